//! An orthogonal selection as a table of pieces for each axis, whose products are its chunks.
//!
//! A cell or chunk is a number, from which its pieces follow by division: nothing is listed.

use std::ops::Range;

use bedform_geometry::{AxisPiece, AxisSelection, ChunkGrid, PlacedAxis, delinearize, strides};

use super::ChunkTask;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::copy::Copy;
use crate::plan::numbers::{index, signed};
use crate::plan::part::{ChunkPart, PartAxis};

/// The most pieces of one selection, over all its axes.
pub(super) const PIECES_MAX: u64 = 1 << 24;

/// An orthogonal selection, cut at the borders of chunks and objects.
#[derive(Debug)]
pub(super) struct BoxTable {
    axes: Vec<AxisTable>,
    /// Offset in bytes of its first element in the result.
    target_start: i64,
    target_strides: Vec<i64>,
}

/// The pieces of a selection along one axis, grouped by object.
#[derive(Debug)]
struct AxisTable {
    pieces: Vec<AxisPiece>,
    /// For each touched object along the axis: its coordinate and its pieces.
    objects: Vec<(u64, Range<usize>)>,
}

impl BoxTable {
    pub(super) fn new(
        grid: &ChunkGrid,
        per_object: &[u64],
        selections: &[AxisSelection],
        item_size: usize,
        target_start: u64,
    ) -> Result<Self> {
        // The bounds of lists are computed only where the lists are long.
        let lengths = selections.iter().map(AxisSelection::len).fold(0, u64::saturating_add);
        let bound = selections.iter().enumerate().try_fold(0_u64, |sum, (axis, selection)| {
            sum.checked_add(match lengths <= PIECES_MAX {
                true => selection.len(),
                false => grid.axis_piece_bound(axis, selection),
            })
        });
        if bound.is_none_or(|bound| bound > PIECES_MAX) {
            return Err(Error::new(
                ErrorKind::LimitExceeded,
                "the selection touches too many chunks along an axis; read it in parts",
            ));
        }
        let shape: Vec<u64> = selections.iter().map(AxisSelection::len).collect();
        let axes = selections.iter().enumerate();
        let pieces = axes.map(|(axis, selection)| grid.project_axis(axis, selection)).collect();
        Ok(Self::of_pieces(pieces, &shape, per_object, item_size, target_start))
    }

    /// Makes the table of these pieces along the axes of a result of `shape`.
    pub(super) fn of_pieces(
        pieces: Vec<Vec<AxisPiece>>,
        shape: &[u64],
        per_object: &[u64],
        item_size: usize,
        target_start: u64,
    ) -> Self {
        let table = |(pieces, per_object): (Vec<AxisPiece>, &u64)| AxisTable {
            objects: group(&pieces, *per_object),
            pieces,
        };
        let item = item_size as u64;
        Self {
            axes: pieces.into_iter().zip(per_object).map(table).collect(),
            target_start: signed(target_start * item),
            target_strides: strides(shape).iter().map(|stride| signed(stride * item)).collect(),
        }
    }

    /// Moves the elements of `part`, which the table was made of, to their positions in a result of
    /// `result_shape`.
    pub(super) fn place(&mut self, part: &[PlacedAxis], result_shape: &[u64], item_size: usize) {
        let strides = strides(result_shape);
        let strides = strides.iter().map(|stride| signed(stride * item_size as u64));
        self.target_strides = strides.collect();
        for (axis, placed) in self.axes.iter_mut().zip(part) {
            axis.pieces.iter_mut().for_each(|piece| {
                piece.result = placed.result.picked(&piece.result);
            });
        }
    }

    /// Moves all elements by `bytes` in the result.
    pub(super) fn move_by(&mut self, bytes: i64) {
        self.target_start += bytes;
    }

    /// Returns the number of objects that the selection touches.
    pub(super) fn cell_count(&self) -> u64 {
        self.axes.iter().map(|axis| axis.objects.len() as u64).product()
    }

    /// Returns the number of chunks that the selection touches.
    pub(super) fn chunk_count(&self) -> u64 {
        self.piece_counts().product()
    }

    /// Returns the number of pieces along each axis.
    pub(super) fn piece_counts(&self) -> impl Iterator<Item = u64> {
        self.axes.iter().map(|axis| axis.pieces.len() as u64)
    }

    /// Returns the coordinates of a cell's object in the grid of objects.
    pub(super) fn cell_coordinates(&self, cell: u64) -> Vec<u64> {
        self.objects_of(cell).map(|(axis, at)| axis.objects[at].0).collect()
    }

    /// Returns the coordinates of the chunk of these pieces in the grid of all chunks.
    pub(super) fn chunk_coordinates(&self, pieces: &[usize]) -> Vec<u64> {
        self.pieces(pieces).map(|piece| piece.chunk).collect()
    }

    /// Returns the chunks of a cell that the selection touches.
    pub(super) fn tasks(&self, cell: u64, per_object: &[u64]) -> Vec<ChunkTask> {
        let ranges = self.piece_ranges(cell);
        let counts: Vec<u64> = ranges.iter().map(|range| range.len() as u64).collect();
        let steps = strides(per_object);
        // For each axis, the summand of each piece in the position.
        let places: Vec<Vec<u64>> = ranges
            .iter()
            .zip(&self.axes)
            .enumerate()
            .map(|(at, (range, axis))| {
                axis.pieces[range.clone()]
                    .iter()
                    .map(|piece| piece.chunk % per_object[at] * steps[at])
                    .collect()
            })
            .collect();
        let count: u64 = counts.iter().product();
        let mut tasks = Vec::with_capacity(index(count));
        let mut at = vec![0_usize; counts.len()];
        for number in 0..count {
            let position = at.iter().zip(&places).map(|(at, places)| places[*at]).sum();
            tasks.push(ChunkTask { position, number });
            for axis in (0..at.len()).rev() {
                at[axis] += 1;
                if at[axis] < places[axis].len() {
                    break;
                }
                at[axis] = 0;
            }
        }
        tasks
    }

    /// Returns the table of each axis, with the index of the cell's object in it.
    fn objects_of(&self, cell: u64) -> impl Iterator<Item = (&AxisTable, usize)> {
        let shape: Vec<u64> = self.axes.iter().map(|axis| axis.objects.len() as u64).collect();
        self.axes.iter().zip(delinearize(cell, &shape)).map(|(axis, at)| (axis, index(at)))
    }

    fn piece_ranges(&self, cell: u64) -> Vec<Range<usize>> {
        self.objects_of(cell).map(|(axis, at)| axis.objects[at].1.clone()).collect()
    }

    /// Returns the pieces, one for each axis, of task `number` of a cell.
    pub(super) fn pieces_of(&self, cell: u64, number: u64) -> Vec<usize> {
        let ranges = self.piece_ranges(cell);
        let shape: Vec<u64> = ranges.iter().map(|range| range.len() as u64).collect();
        delinearize(number, &shape)
            .iter()
            .zip(ranges)
            .map(|(at, range)| range.start + index(*at))
            .collect()
    }

    /// Returns the pieces with these numbers, one for each axis.
    pub(super) fn pieces(&self, numbers: &[usize]) -> impl Iterator<Item = &AxisPiece> {
        self.axes.iter().zip(numbers).map(|(axis, number)| &axis.pieces[*number])
    }

    /// Returns the elements that these pieces take of their chunk.
    pub(super) fn part(&self, pieces: &[usize]) -> ChunkPart<'_> {
        let axes = self.pieces(pieces).zip(&self.target_strides);
        let axes = axes.map(|(piece, target_stride)| PartAxis {
            inside: &piece.inside,
            result: &piece.result,
            target_stride: *target_stride,
        });
        ChunkPart::Box { axes: axes.collect(), target_start: self.target_start }
    }

    /// Returns the copy of these pieces from a chunk to the result.
    pub(super) fn copy(&self, pieces: &[usize], chunk_strides: &[i64]) -> Copy {
        let mut copy = Copy { target_start: self.target_start, ..Copy::default() };
        for (axis, piece) in self.pieces(pieces).enumerate() {
            copy.push(&piece.inside, chunk_strides[axis], &piece.result, self.target_strides[axis]);
        }
        copy
    }
}

/// Groups pieces into runs that lie in the same object.
fn group(pieces: &[AxisPiece], per_object: u64) -> Vec<(u64, Range<usize>)> {
    let mut objects: Vec<(u64, Range<usize>)> = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        let object = piece.chunk / per_object;
        match objects.last_mut() {
            Some((last, range)) if *last == object => range.end = at + 1,
            _ => objects.push((object, at..at + 1)),
        }
    }
    objects
}
