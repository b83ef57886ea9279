//! Chunks of points or of a union of boxes, each listed once, however many boxes touch it.

use std::collections::BTreeMap;

use bedform_geometry::{
    AxisRange, AxisSelection, ChunkGrid, PointMove, Points, Region, delinearize, element_count,
    linearize,
};

use super::table::{BoxTable, PIECES_MAX};
use super::{ChunkTask, too_large};
use crate::error::Result;
use crate::plan::copy::{Axis, Copy};
use crate::plan::numbers::{index, signed};
use crate::plan::part::ChunkPart;

/// Chunks that are listed by object, and the boxes that touch them.
#[derive(Debug)]
pub(super) struct ListedCells {
    pub(super) boxes: Vec<BoxTable>,
    cells: Vec<ListedCell>,
}

/// An object, by its coordinates, and its chunks.
#[derive(Debug)]
struct ListedCell {
    object: Vec<u64>,
    chunks: Vec<ListedChunk>,
}

/// A chunk of points, or of a union of boxes, of which several may touch it.
#[derive(Debug)]
pub(super) struct ListedChunk {
    position: u64,
    pub(super) coordinates: Vec<u64>,
    pub(super) parts: Vec<ListedPart>,
}

/// The elements that one box, or a list of points, takes of a chunk.
#[derive(Debug)]
pub(super) enum ListedPart {
    /// The pieces, one for each axis, of one of the boxes.
    Box {
        table: usize,
        pieces: Vec<usize>,
    },
    Points(Vec<PointMove>),
}

/// Boxes whose chunks are to be listed.
#[derive(Debug, Default)]
pub(super) struct ChunkLister {
    boxes: Vec<BoxTable>,
    /// The parts of each chunk, by its coordinates in the grid of all chunks.
    chunks: BTreeMap<Vec<u64>, Vec<ListedPart>>,
}

impl ChunkLister {
    /// Adds the chunks of a box.
    ///
    /// # Errors
    /// `LimitExceeded` if they are too many.
    pub(super) fn add(&mut self, table: BoxTable) -> Result<()> {
        let shape: Vec<u64> = table.piece_counts().collect();
        let count = element_count(&shape).filter(|count| *count <= PIECES_MAX);
        let number = self.boxes.len();
        for at in 0..count.ok_or_else(too_large)? {
            let pieces: Vec<usize> = delinearize(at, &shape).iter().map(|at| index(*at)).collect();
            let parts = self.chunks.entry(table.chunk_coordinates(&pieces)).or_default();
            parts.push(ListedPart::Box { table: number, pieces });
        }
        self.boxes.push(table);
        Ok(())
    }

    /// Groups the chunks by the objects that hold them.
    pub(super) fn cells(self, per_object: &[u64]) -> ListedCells {
        let mut cells: Vec<ListedCell> = Vec::new();
        let mut places: BTreeMap<Vec<u64>, usize> = BTreeMap::new();
        for (coordinates, parts) in self.chunks {
            let along = || coordinates.iter().zip(per_object);
            let object: Vec<u64> = along().map(|(chunk, count)| chunk / count).collect();
            let inside: Vec<u64> = along().map(|(chunk, count)| chunk % count).collect();
            let position = linearize(&inside, per_object);
            let place = *places.entry(object.clone()).or_insert_with(|| {
                cells.push(ListedCell { object, chunks: Vec::new() });
                cells.len() - 1
            });
            cells[place].chunks.push(ListedChunk { position, coordinates, parts });
        }
        ListedCells { boxes: self.boxes, cells }
    }
}

impl ListedCells {
    /// Lists the chunks of points.
    ///
    /// # Errors
    /// If the grid has too many chunks to number.
    pub(super) fn of_points(grid: &ChunkGrid, per_object: &[u64], points: &Points) -> Result<Self> {
        let mut lister = ChunkLister::default();
        for piece in grid.project_points(points)? {
            let coordinates = delinearize(piece.chunk, grid.grid_shape());
            let parts = lister.chunks.entry(coordinates).or_default();
            parts.push(ListedPart::Points(piece.moves));
        }
        Ok(lister.cells(per_object))
    }

    /// Lists the chunks of boxes, whose elements follow each other in the result.
    ///
    /// # Errors
    /// `LimitExceeded` if they are too many.
    pub(super) fn of_union(
        grid: &ChunkGrid,
        per_object: &[u64],
        regions: &[Region],
        item_size: usize,
    ) -> Result<Self> {
        let mut lister = ChunkLister::default();
        let mut start = 0_u64;
        for region in regions {
            let axes = region.start().iter().zip(region.shape());
            let axes = axes.map(|(start, length)| AxisRange::contiguous(*start, *length));
            let axes: Vec<AxisSelection> = axes
                .map(|range| range.map(AxisSelection::Range))
                .collect::<std::result::Result<_, _>>()?;
            lister.add(BoxTable::new(grid, per_object, &axes, item_size, start)?)?;
            start += region.len().ok_or_else(too_large)?;
        }
        Ok(lister.cells(per_object))
    }

    /// Returns the moves of each chunk's points.
    fn moves(&mut self) -> impl Iterator<Item = &mut PointMove> {
        let chunks = self.cells.iter_mut().flat_map(|cell| &mut cell.chunks);
        chunks.flat_map(|chunk| &mut chunk.parts).flat_map(|part| match part {
            ListedPart::Points(moves) => moves.as_mut_slice(),
            ListedPart::Box { .. } => &mut [],
        })
    }

    /// Moves the elements of points to the indices `places` of a larger result.
    pub(super) fn place_points(&mut self, places: &[u64]) {
        self.moves().for_each(|point| point.result = places[index(point.result)]);
    }

    /// Moves all elements by `elements` positions, of `bytes` bytes, in a larger result.
    pub(super) fn move_by(&mut self, elements: u64, bytes: i64) {
        self.boxes.iter_mut().for_each(|table| table.move_by(bytes));
        self.moves().for_each(|point| point.result += elements);
    }

    /// Returns the number of objects that are touched.
    pub(super) fn cell_count(&self) -> u64 {
        self.cells.len() as u64
    }

    /// Returns the number of chunks that are touched.
    pub(super) fn chunk_count(&self) -> u64 {
        self.cells.iter().map(|cell| cell.chunks.len() as u64).sum()
    }

    /// Returns the coordinates of a cell's object in the grid of objects.
    pub(super) fn cell_coordinates(&self, cell: u64) -> &[u64] {
        &self.cells[index(cell)].object
    }

    /// Returns the chunks of a cell.
    pub(super) fn tasks(&self, cell: u64) -> Vec<ChunkTask> {
        let chunks = self.cells[index(cell)].chunks.iter().zip(0..);
        chunks.map(|(chunk, number)| ChunkTask { position: chunk.position, number }).collect()
    }

    /// Returns the chunk with this number in a cell.
    pub(super) fn chunk(&self, cell: u64, number: u64) -> &ListedChunk {
        &self.cells[index(cell)].chunks[index(number)]
    }
}

/// Returns points of a chunk of shape `chunk` as a part of it; `item` is the bytes of an element.
pub(super) fn part_of_points(moves: &[PointMove], chunk: &[u64], item: i64) -> ChunkPart<'static> {
    let mut inside = vec![Vec::with_capacity(moves.len()); chunk.len()];
    for point in moves {
        let mut left = point.inside;
        for (axis, length) in inside.iter_mut().zip(chunk).rev() {
            axis.push(left % length);
            left /= length;
        }
    }
    let targets = moves.iter().map(|point| signed(point.result) * item).collect();
    ChunkPart::Points { inside, targets }
}

/// Returns the copy of points of a chunk, whose axes are `chunk_strides` bytes apart; `item` is the
/// bytes of an element.
pub(super) fn copy_of_points(
    moves: &[PointMove],
    chunk: &[u64],
    chunk_strides: &[i64],
    item: i64,
) -> Copy {
    let offset = |inside: u64| -> i64 {
        let (mut left, mut source) = (inside, 0);
        for (length, stride) in chunk.iter().zip(chunk_strides).rev() {
            source += signed(left % length) * stride;
            left /= length;
        }
        source
    };
    let offsets =
        moves.iter().map(|point| (offset(point.inside), signed(point.result) * item)).collect();
    Copy {
        source_start: 0,
        target_start: 0,
        axes: vec![Axis::Table { offsets, target_step: item }],
    }
}
