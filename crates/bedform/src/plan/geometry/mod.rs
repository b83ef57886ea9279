//! The chunks that a selection touches, object by object, and their copies to or from the buffer.
//!
//! A geometry is a plain value, made without I/O. It serves reads (chunk to buffer) and writes
//! (buffer to chunk) alike. An *object* holds chunks: a shard, a chunk object, a foreign file. A
//! *cell* is an object that the selection touches.
//!
//! An orthogonal selection is kept as one table for each axis, and its chunks are the products of
//! the tables' pieces. So a read of a million chunks needs no list of them. Points and unions are
//! listed.
//!
//! | module | holds |
//! |---|---|
//! | `boxes` | boxes in chunks with shapes of their own |
//! | `table` | an orthogonal selection as a table for each axis |
//! | `listed` | chunks of points and of unions, listed |

mod boxes;
mod listed;
mod table;

use bedform_geometry::{
    AxisSelection, ChunkGrid, PlacedAxis, PlacedBox, Points, Positions, Selection, element_count,
};

use self::boxes::BoxCells;
pub(crate) use self::boxes::ChunkBox;
use self::listed::{ChunkLister, ListedCells, ListedPart, copy_of_points, part_of_points};
use self::table::BoxTable;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::copy::Copy;
use crate::plan::numbers::signed;
use crate::plan::part::ChunkPart;

/// The chunks that a selection touches, and the places of their elements in the result.
#[derive(Debug)]
pub(crate) struct Geometry {
    item_size: usize,
    result_bytes: u64,
    /// Chunks of an object along each axis.
    per_object: Vec<u64>,
    chunk_shape: Vec<u64>,
    array_shape: Vec<u64>,
    cells: Cells,
}

/// The touched chunks by object: products of pieces, or a list.
#[derive(Debug)]
enum Cells {
    Product(BoxTable),
    Listed(ListedCells),
    Boxes(BoxCells),
}

/// A part of a selection that fills a box of the result: the positions of its elements in that box,
/// the shape of the box, and the number of result elements before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BoxPart {
    pub(crate) axes: PlacedBox,
    pub(crate) result_shape: Vec<u64>,
    pub(crate) behind: u64,
}

/// A chunk to read or write: its position in its object, and its number in the cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkTask {
    /// The chunk's position in the C order of the object's grid of chunks.
    pub(crate) position: u64,
    /// The chunk's number among the cell's tasks.
    number: u64,
}

impl Geometry {
    /// Makes the geometry of `selection`. `grid` cuts the array into chunks, and each object holds
    /// `per_object` of them along each axis. The result is in C order, with `item_size` bytes an
    /// element.
    ///
    /// # Errors
    /// If the selection leaves the array, or is too large to plan.
    pub(crate) fn new(
        grid: &ChunkGrid,
        per_object: &[u64],
        selection: &Selection,
        item_size: usize,
    ) -> Result<Self> {
        selection.validate(grid.array_shape())?;
        let elements = selection.len().ok_or_else(too_large)?;
        let result_bytes = elements.checked_mul(item_size as u64).ok_or_else(too_large)?;
        i64::try_from(result_bytes).map_err(|_| too_large())?;
        let cells = match selection {
            Selection::Orthogonal(axes) => {
                Cells::Product(BoxTable::new(grid, per_object, axes, item_size, 0)?)
            }
            // Points along one axis are a list of positions.
            Selection::Points(points) if points.rank() == 1 => {
                let pieces = vec![grid.project_list(0, &points.coords()[0])];
                let shape = [points.count()];
                Cells::Product(BoxTable::of_pieces(pieces, &shape, per_object, item_size, 0))
            }
            Selection::Points(points) => {
                Cells::Listed(ListedCells::of_points(grid, per_object, points)?)
            }
            Selection::Union(regions) => {
                Cells::Listed(ListedCells::of_union(grid, per_object, regions, item_size)?)
            }
        };
        Ok(Self::of_cells(grid, per_object, cells, item_size, result_bytes))
    }

    fn of_cells(
        grid: &ChunkGrid,
        per_object: &[u64],
        cells: Cells,
        item_size: usize,
        result_bytes: u64,
    ) -> Self {
        Self {
            item_size,
            result_bytes,
            per_object: per_object.to_vec(),
            chunk_shape: grid.chunk_shape().to_vec(),
            array_shape: grid.array_shape().to_vec(),
            cells,
        }
    }

    /// Makes the geometry of a part of a selection, whose elements go to given positions of a
    /// result of `result_shape`.
    ///
    /// # Errors
    /// As [`Geometry::new`].
    pub(crate) fn placed(
        grid: &ChunkGrid,
        per_object: &[u64],
        part: &[PlacedAxis],
        result_shape: &[u64],
        item_size: usize,
    ) -> Result<Self> {
        let selections: Vec<_> =
            part.iter().map(|axis| AxisSelection::from(&axis.positions)).collect();
        check_result(result_shape, 0, item_size)?;
        let mut geometry =
            Self::new(grid, per_object, &Selection::Orthogonal(selections), item_size)?;
        if let Cells::Product(table) = &mut geometry.cells {
            table.place(part, result_shape, item_size);
        }
        Ok(geometry)
    }

    /// Makes the geometry of some points of a selection, whose elements go to the indices `results`
    /// of the result.
    ///
    /// # Errors
    /// As [`Geometry::new`].
    pub(crate) fn placed_points(
        grid: &ChunkGrid,
        per_object: &[u64],
        points: Points,
        results: &[u64],
        item_size: usize,
    ) -> Result<Self> {
        if points.rank() == 1 {
            let list = points.coords()[0].clone();
            let placed = PlacedAxis::listed(list, results.to_vec());
            let count = results.iter().max().map_or(0, |last| last.saturating_add(1));
            return Self::placed(grid, per_object, &[placed], &[count], item_size);
        }
        let mut geometry = Self::new(grid, per_object, &Selection::Points(points), item_size)?;
        if let Cells::Listed(cells) = &mut geometry.cells {
            cells.place_points(results);
        }
        Ok(geometry)
    }

    /// Makes the geometry of parts of a selection, each of which fills a box of the result of its
    /// own.
    ///
    /// # Errors
    /// As [`Geometry::new`].
    pub(crate) fn of_parts(
        grid: &ChunkGrid,
        per_object: &[u64],
        parts: &[BoxPart],
        item_size: usize,
    ) -> Result<Self> {
        if let [part] = parts {
            let placed = Self::placed(grid, per_object, &part.axes, &part.result_shape, item_size)?;
            return placed.behind(part.behind);
        }
        let mut lister = ChunkLister::default();
        let mut result_bytes = 0_u64;
        for BoxPart { axes, result_shape, behind } in parts {
            let selections: Vec<_> =
                axes.iter().map(|axis| AxisSelection::from(&axis.positions)).collect();
            check_result(result_shape, *behind, item_size)?;
            let mut table = BoxTable::new(grid, per_object, &selections, item_size, *behind)?;
            table.place(axes, result_shape, item_size);
            lister.add(table)?;
            let selection = Selection::Orthogonal(selections);
            selection.validate(grid.array_shape())?;
            let elements = selection.len().ok_or_else(too_large)?;
            result_bytes = elements
                .checked_mul(item_size as u64)
                .and_then(|bytes| bytes.checked_add(result_bytes))
                .ok_or_else(too_large)?;
        }
        let cells = Cells::Listed(lister.cells(per_object));
        Ok(Self::of_cells(grid, per_object, cells, item_size, result_bytes))
    }

    /// Makes the geometry of boxes in chunks, whose copies know the shapes of the boxes. Together
    /// they fill a result of `result_bytes` bytes. Only boxes of an array of one axis may have
    /// commits over them.
    pub(crate) fn of_boxes(
        grid: &ChunkGrid,
        per_object: &[u64],
        boxes: Vec<ChunkBox>,
        item_size: usize,
        result_bytes: u64,
    ) -> Self {
        let cells = Cells::Boxes(BoxCells::new(boxes));
        Self::of_cells(grid, per_object, cells, item_size, result_bytes)
    }

    /// Moves all elements by `elements` positions in a larger result.
    ///
    /// # Errors
    /// `LimitExceeded` if the offset in bytes does not fit 63 bits.
    pub(crate) fn behind(mut self, elements: u64) -> Result<Self> {
        let bytes = elements.checked_mul(self.item_size as u64).ok_or_else(too_large)?;
        let bytes = i64::try_from(bytes).map_err(|_| too_large())?;
        match &mut self.cells {
            Cells::Product(table) => table.move_by(bytes),
            Cells::Listed(cells) => cells.move_by(elements, bytes),
            Cells::Boxes(cells) => cells.move_by(bytes),
        }
        Ok(self)
    }

    /// Returns the bytes of the result.
    pub(crate) fn result_bytes(&self) -> u64 {
        self.result_bytes
    }

    /// Returns the bytes of an element.
    pub(crate) fn item_size(&self) -> usize {
        self.item_size
    }

    /// Returns the number of objects that are touched.
    pub(crate) fn cell_count(&self) -> u64 {
        match &self.cells {
            Cells::Product(table) => table.cell_count(),
            Cells::Listed(cells) => cells.cell_count(),
            Cells::Boxes(cells) => cells.cell_count(),
        }
    }

    /// Returns the number of chunks that are touched.
    pub(crate) fn chunk_count(&self) -> u64 {
        match &self.cells {
            Cells::Product(table) => table.chunk_count(),
            Cells::Listed(cells) => cells.chunk_count(),
            Cells::Boxes(cells) => cells.chunk_count(),
        }
    }

    /// Returns the coordinates of an object in the grid of objects.
    pub(crate) fn cell_coordinates(&self, cell: u64) -> Vec<u64> {
        match &self.cells {
            Cells::Product(table) => table.cell_coordinates(cell),
            Cells::Listed(cells) => cells.cell_coordinates(cell).to_vec(),
            Cells::Boxes(cells) => vec![cells.object(cell)],
        }
    }

    /// Returns the chunks of an object that the selection touches.
    pub(crate) fn tasks(&self, cell: u64) -> Vec<ChunkTask> {
        match &self.cells {
            Cells::Product(table) => table.tasks(cell, &self.per_object),
            Cells::Listed(cells) => cells.tasks(cell),
            Cells::Boxes(cells) => cells.tasks(cell),
        }
    }

    /// Returns the coordinates of a task's chunk in the grid of all chunks.
    pub(crate) fn chunk_coordinates(&self, cell: u64, task: ChunkTask) -> Vec<u64> {
        match &self.cells {
            Cells::Product(table) => table.chunk_coordinates(&table.pieces_of(cell, task.number)),
            Cells::Listed(cells) => cells.chunk(cell, task.number).coordinates.clone(),
            Cells::Boxes(cells) => vec![cells.chunk(cell, task)],
        }
    }

    /// Calls `visit` with each copy from the task's chunk, whose axes are `chunk_strides` bytes
    /// apart, to the result.
    pub(crate) fn for_each_copy(
        &self,
        cell: u64,
        task: ChunkTask,
        chunk_strides: &[i64],
        mut visit: impl FnMut(Copy) -> Result<()>,
    ) -> Result<()> {
        match &self.cells {
            Cells::Product(table) => {
                visit(table.copy(&table.pieces_of(cell, task.number), chunk_strides))
            }
            Cells::Boxes(cells) => cells.copies(cell, task).cloned().try_for_each(visit),
            Cells::Listed(cells) => {
                cells.chunk(cell, task.number).parts.iter().try_for_each(|part| match part {
                    ListedPart::Box { table, pieces } => {
                        visit(cells.boxes[*table].copy(pieces, chunk_strides))
                    }
                    ListedPart::Points(moves) => visit(copy_of_points(
                        moves,
                        &self.chunk_shape,
                        chunk_strides,
                        self.item_step(),
                    )),
                })
            }
        }
    }

    /// Calls `visit` with each part that the selection takes of the task's chunk, always in the
    /// same order.
    pub(crate) fn for_each_part(
        &self,
        cell: u64,
        task: ChunkTask,
        mut visit: impl FnMut(ChunkPart<'_>) -> Result<()>,
    ) -> Result<()> {
        match &self.cells {
            Cells::Product(table) => visit(table.part(&table.pieces_of(cell, task.number))),
            Cells::Boxes(cells) => cells.parts(cell, task, self.item_step()).try_for_each(visit),
            Cells::Listed(cells) => {
                cells.chunk(cell, task.number).parts.iter().try_for_each(|part| match part {
                    ListedPart::Box { table, pieces } => visit(cells.boxes[*table].part(pieces)),
                    ListedPart::Points(moves) => {
                        visit(part_of_points(moves, &self.chunk_shape, self.item_step()))
                    }
                })
            }
        }
    }

    fn item_step(&self) -> i64 {
        signed(self.item_size as u64)
    }

    /// Returns true if the selection takes every element of the task's chunk that lies in the
    /// array.
    pub(crate) fn covers_chunk(&self, cell: u64, task: ChunkTask) -> bool {
        let Cells::Product(table) = &self.cells else { return false };
        table.pieces(&table.pieces_of(cell, task.number)).enumerate().all(|(at, piece)| {
            let start = piece.chunk * self.chunk_shape[at];
            let inside = self.chunk_shape[at].min(self.array_shape[at].saturating_sub(start));
            // A range never repeats a position. Counting the distinct positions of a list is not
            // worth the time.
            matches!(piece.inside, Positions::Range(_)) && piece.inside.len() == inside
        })
    }
}

/// Fails unless a box of the result, which follows `behind` elements, can be counted in bytes.
fn check_result(shape: &[u64], behind: u64, item_size: usize) -> Result<()> {
    let elements = element_count(shape).and_then(|count| count.checked_add(behind));
    let bytes = elements.and_then(|count| count.checked_mul(item_size as u64));
    bytes.and_then(|bytes| i64::try_from(bytes).ok()).map(drop).ok_or_else(too_large)
}

fn too_large() -> Error {
    Error::new(ErrorKind::LimitExceeded, "the selection is too large; read it in parts")
}
