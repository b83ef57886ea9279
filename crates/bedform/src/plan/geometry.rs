//! The chunks that a selection touches, object by object, and their copies to or from the buffer.
//!
//! A geometry is a plain value, made without I/O. It serves reads (chunk to buffer) and writes
//! (buffer to chunk) alike. An *object* holds chunks: a shard, a chunk object, a foreign file. A
//! *cell* is an object that the selection touches.
//!
//! An orthogonal selection is kept as one table for each axis, and its chunks are the products of
//! the tables' pieces. So a read of a million chunks needs no list of them. Points and unions are
//! listed.

use std::collections::BTreeMap;
use std::ops::Range;

use bedform_geometry::{
    AxisPiece, AxisRange, AxisSelection, ChunkGrid, PlacedAxis, PlacedBox, PointMove, Points,
    Positions, Selection, delinearize, element_count, linearize, strides,
};

use crate::error::{Error, ErrorKind, Result};
use crate::plan::copy::{Axis, Copy};
use crate::plan::part::{ChunkPart, PartAxis};

/// The most pieces of one selection, over all its axes.
const PIECES_MAX: u64 = 1 << 24;

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
    Listed { boxes: Vec<BoxTable>, cells: Vec<(Vec<u64>, Vec<ListedChunk>)> },
}

/// An orthogonal selection, cut at the borders of chunks and objects.
#[derive(Debug)]
struct BoxTable {
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

/// A chunk of points, or of a union of boxes, of which several may touch it.
#[derive(Debug)]
struct ListedChunk {
    position: u64,
    coordinates: Vec<u64>,
    parts: Vec<ListedPart>,
}

/// The elements that one box, or a list of points, takes of a chunk.
#[derive(Debug)]
enum ListedPart {
    /// The pieces, one for each axis, of one of the boxes.
    Box {
        table: usize,
        pieces: Vec<usize>,
    },
    Points(Vec<PointMove>),
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
            other => listed(grid, per_object, other, item_size)?,
        };
        Ok(Self {
            item_size,
            result_bytes,
            per_object: per_object.to_vec(),
            chunk_shape: grid.chunk_shape().to_vec(),
            array_shape: grid.array_shape().to_vec(),
            cells,
        })
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
        let geometry = Self::new(grid, per_object, &Selection::Points(points), item_size)?;
        Ok(geometry.with_places(results))
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
        let (mut boxes, mut chunks) = (Vec::with_capacity(parts.len()), BTreeMap::new());
        let mut result_bytes = 0_u64;
        for BoxPart { axes, result_shape, behind } in parts {
            let selections: Vec<_> =
                axes.iter().map(|axis| AxisSelection::from(&axis.positions)).collect();
            check_result(result_shape, *behind, item_size)?;
            let mut table = BoxTable::new(grid, per_object, &selections, item_size, *behind)?;
            table.place(axes, result_shape, item_size);
            add_box(&mut chunks, &table, boxes.len())?;
            boxes.push(table);
            let selection = Selection::Orthogonal(selections);
            selection.validate(grid.array_shape())?;
            let elements = selection.len().ok_or_else(too_large)?;
            result_bytes = elements
                .checked_mul(item_size as u64)
                .and_then(|bytes| bytes.checked_add(result_bytes))
                .ok_or_else(too_large)?;
        }
        Ok(Self {
            item_size,
            result_bytes,
            per_object: per_object.to_vec(),
            chunk_shape: grid.chunk_shape().to_vec(),
            array_shape: grid.array_shape().to_vec(),
            cells: Cells::Listed { boxes, cells: cells_of(chunks, per_object) },
        })
    }

    /// Moves the elements of points to the indices `places` of a larger result.
    fn with_places(mut self, places: &[u64]) -> Self {
        if let Cells::Listed { cells, .. } = &mut self.cells {
            let chunks = cells.iter_mut().flat_map(|(_, chunks)| chunks);
            for part in chunks.flat_map(|chunk| &mut chunk.parts) {
                if let ListedPart::Points(moves) = part {
                    moves.iter_mut().for_each(|point| point.result = places[index(point.result)]);
                }
            }
        }
        self
    }

    /// Moves all elements by `elements` positions in a larger result.
    ///
    /// # Errors
    /// `LimitExceeded` if the offset in bytes does not fit 63 bits.
    pub(crate) fn behind(mut self, elements: u64) -> Result<Self> {
        let bytes = elements.checked_mul(self.item_size as u64).ok_or_else(too_large)?;
        let bytes = i64::try_from(bytes).map_err(|_| too_large())?;
        match &mut self.cells {
            Cells::Product(table) => table.target_start += bytes,
            Cells::Listed { boxes, cells } => {
                boxes.iter_mut().for_each(|table| table.target_start += bytes);
                let chunks = cells.iter_mut().flat_map(|(_, chunks)| chunks);
                for part in chunks.flat_map(|chunk| &mut chunk.parts) {
                    if let ListedPart::Points(moves) = part {
                        moves.iter_mut().for_each(|point| point.result += elements);
                    }
                }
            }
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
            Cells::Product(table) => {
                table.axes.iter().map(|axis| axis.objects.len() as u64).product()
            }
            Cells::Listed { cells, .. } => cells.len() as u64,
        }
    }

    /// Returns the number of chunks that are touched.
    pub(crate) fn chunk_count(&self) -> u64 {
        match &self.cells {
            Cells::Product(table) => {
                table.axes.iter().map(|axis| axis.pieces.len() as u64).product()
            }
            Cells::Listed { cells, .. } => {
                cells.iter().map(|(_, chunks)| chunks.len() as u64).sum()
            }
        }
    }

    /// Returns the coordinates of an object in the grid of objects.
    pub(crate) fn cell_coordinates(&self, cell: u64) -> Vec<u64> {
        match &self.cells {
            Cells::Product(table) => {
                table.objects_of(cell).map(|(axis, at)| axis.objects[at].0).collect()
            }
            Cells::Listed { cells, .. } => cells[index(cell)].0.clone(),
        }
    }

    /// Returns the chunks of an object that the selection touches.
    pub(crate) fn tasks(&self, cell: u64) -> Vec<ChunkTask> {
        match &self.cells {
            Cells::Product(table) => {
                let ranges = table.piece_ranges(cell);
                let counts: Vec<u64> = ranges.iter().map(|range| range.len() as u64).collect();
                let steps = strides(&self.per_object);
                // For each axis, the summand of each piece in the position.
                let places: Vec<Vec<u64>> = ranges
                    .iter()
                    .zip(&table.axes)
                    .enumerate()
                    .map(|(at, (range, axis))| {
                        axis.pieces[range.clone()]
                            .iter()
                            .map(|piece| piece.chunk % self.per_object[at] * steps[at])
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
            Cells::Listed { cells, .. } => cells[index(cell)]
                .1
                .iter()
                .zip(0..)
                .map(|(chunk, number)| ChunkTask { position: chunk.position, number })
                .collect(),
        }
    }

    /// Returns the coordinates of a task's chunk in the grid of all chunks.
    pub(crate) fn chunk_coordinates(&self, cell: u64, task: ChunkTask) -> Vec<u64> {
        match &self.cells {
            Cells::Product(table) => table
                .pieces_of(cell, task.number)
                .iter()
                .zip(&table.axes)
                .map(|(piece, axis)| axis.pieces[*piece].chunk)
                .collect(),
            Cells::Listed { cells, .. } => {
                cells[index(cell)].1[index(task.number)].coordinates.clone()
            }
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
            Cells::Listed { boxes, cells } => {
                for part in &cells[index(cell)].1[index(task.number)].parts {
                    match part {
                        ListedPart::Box { table, pieces } => {
                            visit(boxes[*table].copy(pieces, chunk_strides))?;
                        }
                        ListedPart::Points(moves) => visit(self.copy_points(moves, chunk_strides))?,
                    }
                }
                Ok(())
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
            Cells::Listed { boxes, cells } => {
                for part in &cells[index(cell)].1[index(task.number)].parts {
                    match part {
                        ListedPart::Box { table, pieces } => visit(boxes[*table].part(pieces))?,
                        ListedPart::Points(moves) => visit(self.part_of_points(moves))?,
                    }
                }
                Ok(())
            }
        }
    }

    fn part_of_points(&self, moves: &[PointMove]) -> ChunkPart<'_> {
        let mut inside = vec![Vec::with_capacity(moves.len()); self.chunk_shape.len()];
        for point in moves {
            let mut left = point.inside;
            for (axis, length) in inside.iter_mut().zip(&self.chunk_shape).rev() {
                axis.push(left % length);
                left /= length;
            }
        }
        let item = signed(self.item_size as u64);
        let targets = moves.iter().map(|point| signed(point.result) * item).collect();
        ChunkPart::Points { inside, targets }
    }

    fn copy_points(&self, moves: &[PointMove], chunk_strides: &[i64]) -> Copy {
        let item = signed(self.item_size as u64);
        let axes = || self.chunk_shape.iter().zip(chunk_strides).rev();
        let offset = |inside: u64| -> i64 {
            let (mut left, mut source) = (inside, 0);
            for (length, stride) in axes() {
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

    /// Returns true if the selection takes every element of the task's chunk that lies in the
    /// array.
    pub(crate) fn covers_chunk(&self, cell: u64, task: ChunkTask) -> bool {
        let Cells::Product(table) = &self.cells else { return false };
        let pieces = table.pieces_of(cell, task.number);
        pieces.iter().zip(&table.axes).enumerate().all(|(at, (piece, axis))| {
            let piece = &axis.pieces[*piece];
            let start = piece.chunk * self.chunk_shape[at];
            let inside = self.chunk_shape[at].min(self.array_shape[at].saturating_sub(start));
            // A range never repeats a position. Counting the distinct positions of a list is not
            // worth the time.
            matches!(piece.inside, Positions::Range(_)) && piece.inside.len() == inside
        })
    }
}

impl BoxTable {
    fn new(
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
    fn of_pieces(
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
    fn place(&mut self, part: &[PlacedAxis], result_shape: &[u64], item_size: usize) {
        let strides = strides(result_shape);
        let strides = strides.iter().map(|stride| signed(stride * item_size as u64));
        self.target_strides = strides.collect();
        for (axis, placed) in self.axes.iter_mut().zip(part) {
            axis.pieces.iter_mut().for_each(|piece| {
                piece.result = placed.result.picked(&piece.result);
            });
        }
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
    fn pieces_of(&self, cell: u64, number: u64) -> Vec<usize> {
        let ranges = self.piece_ranges(cell);
        let shape: Vec<u64> = ranges.iter().map(|range| range.len() as u64).collect();
        delinearize(number, &shape)
            .iter()
            .zip(ranges)
            .map(|(at, range)| range.start + index(*at))
            .collect()
    }

    fn part(&self, pieces: &[usize]) -> ChunkPart<'_> {
        let axes = pieces.iter().enumerate().map(|(axis, piece)| {
            let piece = &self.axes[axis].pieces[*piece];
            let target_stride = self.target_strides[axis];
            PartAxis { inside: &piece.inside, result: &piece.result, target_stride }
        });
        ChunkPart::Box { axes: axes.collect(), target_start: self.target_start }
    }

    fn copy(&self, pieces: &[usize], chunk_strides: &[i64]) -> Copy {
        let mut copy = Copy { target_start: self.target_start, ..Copy::default() };
        for (axis, piece) in pieces.iter().enumerate() {
            let piece = &self.axes[axis].pieces[*piece];
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

/// Returns the chunks of points or of a union of boxes, each once, however many boxes touch it.
fn listed(
    grid: &ChunkGrid,
    per_object: &[u64],
    selection: &Selection,
    item_size: usize,
) -> Result<Cells> {
    let mut boxes = Vec::new();
    let mut chunks: BTreeMap<Vec<u64>, Vec<ListedPart>> = BTreeMap::new();
    match selection {
        Selection::Points(points) => {
            for piece in grid.project_points(points)? {
                let coordinates = delinearize(piece.chunk, grid.grid_shape());
                chunks.entry(coordinates).or_default().push(ListedPart::Points(piece.moves));
            }
        }
        Selection::Union(regions) => {
            let mut start = 0_u64;
            for region in regions {
                let axes: Vec<AxisSelection> = region
                    .start()
                    .iter()
                    .zip(region.shape())
                    .map(|(start, length)| {
                        AxisRange::contiguous(*start, *length).map(AxisSelection::Range)
                    })
                    .collect::<std::result::Result<_, _>>()?;
                let table = BoxTable::new(grid, per_object, &axes, item_size, start)?;
                start += region.len().ok_or_else(too_large)?;
                add_box(&mut chunks, &table, boxes.len())?;
                boxes.push(table);
            }
        }
        Selection::Orthogonal(_) => {}
    }
    Ok(Cells::Listed { boxes, cells: cells_of(chunks, per_object) })
}

/// Groups chunks, given by their coordinates, by the objects that hold them.
fn cells_of(
    chunks: BTreeMap<Vec<u64>, Vec<ListedPart>>,
    per_object: &[u64],
) -> Vec<(Vec<u64>, Vec<ListedChunk>)> {
    let mut cells: Vec<(Vec<u64>, Vec<ListedChunk>)> = Vec::new();
    let mut places: BTreeMap<Vec<u64>, usize> = BTreeMap::new();
    for (coordinates, parts) in chunks {
        let object: Vec<u64> =
            coordinates.iter().zip(per_object).map(|(chunk, count)| chunk / count).collect();
        let inside: Vec<u64> =
            coordinates.iter().zip(per_object).map(|(chunk, count)| chunk % count).collect();
        let position = linearize(&inside, per_object);
        let place = *places.entry(object.clone()).or_insert_with(|| {
            cells.push((object, Vec::new()));
            cells.len() - 1
        });
        cells[place].1.push(ListedChunk { position, coordinates, parts });
    }
    cells
}

/// Fails unless a box of the result, which follows `behind` elements, can be counted in bytes.
fn check_result(shape: &[u64], behind: u64, item_size: usize) -> Result<()> {
    let elements = element_count(shape).and_then(|count| count.checked_add(behind));
    let bytes = elements.and_then(|count| count.checked_mul(item_size as u64));
    bytes.and_then(|bytes| i64::try_from(bytes).ok()).map(drop).ok_or_else(too_large)
}

fn add_box(
    chunks: &mut BTreeMap<Vec<u64>, Vec<ListedPart>>,
    table: &BoxTable,
    number: usize,
) -> Result<()> {
    let shape: Vec<u64> = table.axes.iter().map(|axis| axis.pieces.len() as u64).collect();
    let count = element_count(&shape).filter(|count| *count <= PIECES_MAX).ok_or_else(too_large)?;
    for at in 0..count {
        let pieces: Vec<usize> = delinearize(at, &shape).iter().map(|at| index(*at)).collect();
        let coordinates =
            pieces.iter().zip(&table.axes).map(|(piece, axis)| axis.pieces[*piece].chunk).collect();
        chunks.entry(coordinates).or_default().push(ListedPart::Box { table: number, pieces });
    }
    Ok(())
}

fn too_large() -> Error {
    Error::new(ErrorKind::LimitExceeded, "the selection is too large; read it in parts")
}

fn signed(value: u64) -> i64 {
    // Sizes were checked against i64::MAX when the geometry was made.
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[allow(clippy::cast_possible_truncation)]
fn index(value: u64) -> usize {
    // Counts of things that are in memory.
    value as usize
}
