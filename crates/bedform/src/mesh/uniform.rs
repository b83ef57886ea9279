//! Pieces of levels, laid over each other as one array.

use std::sync::{Mutex, PoisonError};

use super::{CellRegion, LevelPiece, LevelPieces};
use crate::error::Result;
use crate::threads::ordered::map_in_threads;

/// The places of one axis of the result that a piece fills: the first of them, and for each the
/// cell of the piece.
struct LaidAxis {
    first: usize,
    cells: Vec<usize>,
    /// Elements between neighbours in the result and in the piece.
    target_step: usize,
    source_step: usize,
}

/// Bytes of a result below which one thread fills it.
const ALONE_BYTES: usize = 1 << 20;
/// Parts of a result for each thread, since pieces lie in some parts and not in others.
const PARTS_OF_THREAD: usize = 4;

/// A region of a level that is filled, in C order, with `item` bytes an element.
pub(super) struct UniformTarget<'a> {
    region: &'a CellRegion,
    item: usize,
    threads: usize,
    target: &'a mut [u8],
}

impl<'a> UniformTarget<'a> {
    pub(super) fn new(
        region: &'a CellRegion,
        item: usize,
        threads: usize,
        target: &'a mut [u8],
    ) -> Self {
        let threads = if target.len() < ALONE_BYTES { 1 } else { threads };
        Self { region, item, threads, target }
    }

    pub(super) fn bytes(&mut self) -> &mut [u8] {
        self.target
    }

    /// Fills all with an element.
    ///
    /// # Errors
    /// `Interrupted` for a call that is cancelled.
    pub(super) fn fill(&mut self, element: &[u8]) -> Result<()> {
        self.in_parts(|_, part| {
            part.chunks_exact_mut(element.len()).for_each(|at| at.copy_from_slice(element));
        })
    }

    /// Lays pieces of a level over it, of which a cell has `ratio` cells along each axis.
    ///
    /// # Errors
    /// `Interrupted` for a call that is cancelled.
    pub(super) fn lay(&mut self, pieces: &LevelPieces, ratio: &[i64]) -> Result<()> {
        let item = self.item;
        self.in_parts(|region, part| {
            for piece in &pieces.pieces {
                lay(piece, &pieces.data, (ratio, item), region, part);
            }
        })
    }

    /// Calls `act` with parts along the first axis, and the region of each.
    fn in_parts(&mut self, act: impl Fn(&CellRegion, &mut [u8]) + Sync) -> Result<()> {
        let (first, last) = (self.region.start[0], self.region.stop[0]);
        let rows = index(last - first).max(1);
        let row = self.target.len() / rows;
        let of_part = rows.div_ceil(self.threads * PARTS_OF_THREAD).max(1);
        if row == 0 {
            return Ok(());
        }
        let parts: Vec<Mutex<(CellRegion, &mut [u8])>> = self
            .target
            .chunks_mut(of_part * row)
            .zip((first..last).step_by(of_part))
            .map(|(part, from)| {
                let mut region = self.region.clone();
                region.start[0] = from;
                region.stop[0] = from + (part.len() / row).cast_signed() as i64;
                Mutex::new((region, part))
            })
            .collect();
        map_in_threads(self.threads, &parts, |part| {
            let (region, part) = &mut *part.lock().unwrap_or_else(PoisonError::into_inner);
            act(region, part);
            Ok(())
        })
        .map(drop)
    }
}

/// Lays the elements of a piece into `target`, a region in C order. A cell of the piece has `ratio`
/// cells of the region along each axis, and an element `item` bytes.
fn lay(
    piece: &LevelPiece,
    data: &[u8],
    (ratio, item): (&[i64], usize),
    region: &CellRegion,
    target: &mut [u8],
) {
    let (mut target_step, mut source_step) = (1, 1);
    let mut axes = Vec::with_capacity(ratio.len());
    for axis in (0..ratio.len()).rev() {
        let (start, ratio, length) = (piece.start[axis], ratio[axis], piece.shape[axis]);
        let (from, to) = (region.start[axis], region.stop[axis]);
        let first = from.max(start * ratio);
        let end = to.min((start + length.cast_signed()) * ratio);
        if first >= end {
            return;
        }
        let cells = (first..end).map(|at| index(at / ratio - start)).collect();
        axes.push(LaidAxis { first: index(first - from), cells, target_step, source_step });
        target_step *= index(to - from);
        source_step *= index(length.cast_signed());
    }
    axes.reverse();
    let source = &data[piece.place..piece.place + source_step * item];
    match item {
        4 => lay_axes::<4>(&axes, source, 0, target, 0),
        _ => lay_axes::<8>(&axes, source, 0, target, 0),
    }
}

fn lay_axes<const ITEM: usize>(
    axes: &[LaidAxis],
    source: &[u8],
    from: usize,
    target: &mut [u8],
    to: usize,
) {
    let Some((axis, inner)) = axes.split_first() else { return };
    let to = to + axis.first * axis.target_step;
    let Some(row_axis) = inner.first() else {
        let row = &mut target[to * ITEM..(to + axis.cells.len()) * ITEM];
        for (element, cell) in row.as_chunks_mut::<ITEM>().0.iter_mut().zip(&axis.cells) {
            let at = (from + cell) * ITEM;
            element.copy_from_slice(&source[at..at + ITEM]);
        }
        return;
    };
    let mut before = None;
    for (number, cell) in axis.cells.iter().enumerate() {
        let to = to + number * axis.target_step;
        match before {
            // The row of a cell that is repeated is that of the row before.
            Some((same, place)) if same == *cell && inner.len() == 1 => {
                let first = place + row_axis.first;
                let row = first * ITEM..(first + row_axis.cells.len()) * ITEM;
                target.copy_within(row, (to + row_axis.first) * ITEM);
            }
            _ => lay_axes::<ITEM>(inner, source, from + cell * axis.source_step, target, to),
        }
        before = Some((*cell, to));
    }
}

/// Places in a region that is in memory fit.
#[allow(clippy::cast_possible_truncation)]
fn index(at: i64) -> usize {
    at.cast_unsigned() as usize
}
