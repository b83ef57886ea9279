//! Chunks shown to a visitor, and chunks decoded into the cache: reads that fill no buffer.

use std::sync::atomic::{AtomicBool, Ordering};

use bedform_codec::text;
use bedform_format::metadata::FillValue;
use bedform_geometry::{AxisRange, AxisSelection, ChunkGrid, Region, Selection, strides};

use super::Array;
use super::known::{ArrayAtRead, ArrayRead};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::copy::{CopyTarget, Strided, copy_box};
use crate::plan::geometry::{ChunkTask, Geometry};
use crate::plan::tuning::block_shape;
use crate::run::ReadStatistics;
use crate::run::deliver::{Admission, ChunkVisitor, DecodedChunk, Deliver};
use crate::run::execute::execute;

/// Raw chunks of a foreign file that are larger are visited in blocks: a contiguous variable is one
/// chunk, of any size.
const WHOLE_BYTES_MAX: u64 = 16 << 20;
/// Bytes of such a block.
const BLOCK_BYTES: u64 = 4 << 20;

/// A chunk of an array that is shown to a visitor; see [`Array::visit`].
#[derive(Debug)]
pub struct VisitedChunk<'a> {
    geometry: &'a Geometry,
    cell: u64,
    task: ChunkTask,
    region: Region,
    item_size: usize,
    elements: VisitedElements<'a>,
}

/// The elements of a visited chunk's region in C order.
#[derive(Debug, Clone, Copy)]
pub enum VisitedElements<'a> {
    /// Elements of fixed size, in the machine's byte order.
    Bytes(&'a [u8]),
    /// Texts.
    Texts(&'a [&'a str]),
}

/// Elements of a visited chunk that are consecutive in the chunk and in the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SelectedRun {
    /// Index of the first one among the chunk's elements.
    pub element: usize,
    /// Index of the first one in the result of a read of the selection.
    pub result: usize,
    /// Number of elements.
    pub count: usize,
}

impl<'a> VisitedChunk<'a> {
    /// The region of the array that the chunk covers.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The elements of the chunk's region, selected or not.
    pub fn elements(&self) -> VisitedElements<'a> {
        self.elements
    }

    /// The elements of the chunk's region as bytes, selected or not; empty for text.
    pub fn bytes(&self) -> &'a [u8] {
        match self.elements {
            VisitedElements::Bytes(bytes) => bytes,
            VisitedElements::Texts(_) => &[],
        }
    }

    /// True if the selection takes every element of the chunk's region, each once.
    pub fn is_selected_whole(&self) -> bool {
        self.geometry.covers_chunk(self.cell, self.task)
    }

    /// Calls `act` with the selected elements, run by run. An element that is selected twice is in
    /// two runs.
    ///
    /// # Errors
    /// Those of `act`.
    pub fn for_each_run(&self, mut act: impl FnMut(SelectedRun) -> Result<()>) -> Result<()> {
        let item = self.item_size.max(1);
        let steps = byte_strides(self.region.shape(), item);
        self.geometry.for_each_copy(self.cell, self.task, &steps, |mut copy| {
            copy.tidy();
            copy.for_each_run(item, &mut |run| {
                let (element, result, bytes) = run.parts();
                act(SelectedRun {
                    element: element / item,
                    result: result / item,
                    count: bytes / item,
                })
            })
        })
    }
}

/// The result of [`Array::prefetch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Prefetched {
    /// The fetched bytes; its `chunks` were decoded into the cache, blocks of a log among them.
    pub read: ReadStatistics,
    /// Chunks of the selection that were in the cache already.
    pub present: u64,
    /// Chunks of the selection, and blocks of a log, that were not fetched. The handle's cache has
    /// no room for them, or they are texts or raw elements, which are never cached.
    pub left_out: u64,
}

/// A function that is called with chunks.
type Visitor<'v> = dyn Fn(&VisitedChunk<'_>) -> Result<()> + Sync + 'v;

impl Array {
    /// Shows every chunk that `selection` touches to `visitor`, each once: its elements, its region
    /// of the array, and which of them are selected. Chunks that were never written are shown as
    /// fill values, and commits over a chunk are applied.
    ///
    /// The visitor is called **from several threads at once**, in no order; an error of it ends the
    /// visit and is returned. A large variable of a foreign file without chunks is shown in blocks
    /// of a few MiB.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use std::sync::Arc;
    /// use bedform::{ArrayLayout, Elements, NewArray, OpenOptions, Store};
    /// use bedform_format::metadata::FillValue;
    /// use bedform_format::{DataType, ObjectPath};
    /// use bedform_geometry::{Order, Selection};
    /// use bedform_storage::MemoryStorage;
    ///
    /// let mut options = OpenOptions::default();
    /// options.writable = true;
    /// let store = Store::create(Arc::new(MemoryStorage::new()), &Default::default(), options)?;
    /// let new = NewArray {
    ///     shape: vec![8],
    ///     data_type: DataType::UInt8,
    ///     layout: ArrayLayout {
    ///         chunk_shape: vec![4],
    ///         shard_shape: vec![8],
    ///         order: Order::RowMajor,
    ///         serializer: None,
    ///         codecs: vec![],
    ///         transpose: None,
    ///         checksum: true,
    ///         keys: bedform_format::metadata::ChunkKeys::DEFAULT,
    ///         choice: None,
    ///     },
    ///     fill_value: FillValue::zero(DataType::UInt8),
    ///     dimension_names: None,
    ///     attributes: Default::default(),
    /// };
    /// let array = store.create_array(&ObjectPath::parse("t")?, &new)?;
    /// let all = Selection::all(&[8]);
    /// array.write(&all, Elements::Bytes(&[1, 2, 3, 4, 5, 6, 7, 8]))?;
    ///
    /// let sum = AtomicU64::new(0);
    /// array.visit(&all, &|chunk| {
    ///     let of_chunk = chunk.bytes().iter().map(|&element| u64::from(element)).sum();
    ///     sum.fetch_add(of_chunk, Ordering::Relaxed);
    ///     Ok(())
    /// })?;
    /// assert_eq!(sum.into_inner(), 36);
    ///
    /// let done = array.prefetch(&all)?;
    /// assert_eq!(done.present + done.read.chunks, 2);
    /// # Ok::<(), bedform::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Array::read`], and those of `visitor`. `SnapshotMoved` if the store was settled after
    /// the first chunk was shown: visit again.
    pub fn visit(&self, selection: &Selection, visitor: &Visitor<'_>) -> Result<ReadStatistics> {
        let known = self.known()?;
        if known.has_large_raw_chunks(WHOLE_BYTES_MAX) {
            return self.visit_blocks(&known, selection, visitor, &|selection, buffer| {
                self.read_known(&known, selection, buffer)
            });
        }
        let taker = VisitorAdapter { visitor, has_begun: AtomicBool::new(false) };
        let read = ArrayRead::new(selection, Deliver::Visitor(&taker));
        let once_begun = Some(&taker.has_begun);
        Ok(known.read(ArrayRead { once_begun, ..read })?.statistics)
    }

    /// As [`Array::visit`], from the array itself: the read is neither followed nor recorded, and
    /// no replica serves it.
    ///
    /// # Errors
    /// As [`Array::visit`].
    pub(super) fn visit_unrecorded(
        &self,
        selection: &Selection,
        visitor: &Visitor<'_>,
    ) -> Result<ReadStatistics> {
        let known = self.known()?;
        if known.has_large_raw_chunks(WHOLE_BYTES_MAX) {
            return self.visit_blocks(&known, selection, visitor, &|selection, buffer| {
                known.with_plan(selection, |plan| {
                    execute(plan, Deliver::Buffer(CopyTarget::new(buffer)))
                })
            });
        }
        let taker = VisitorAdapter { visitor, has_begun: AtomicBool::new(false) };
        // A visitor that has seen a chunk may not see it again.
        let outcome = known.with_plan(selection, |plan| {
            let done = execute(plan, Deliver::Visitor(&taker));
            match taker.has_begun.load(Ordering::Relaxed) {
                true => Ok(done),
                false => done.map(Ok),
            }
        });
        outcome?
    }

    /// As [`Array::visit`], in blocks that `read` reads one after the other.
    fn visit_blocks(
        &self,
        known: &ArrayAtRead<'_>,
        selection: &Selection,
        visitor: &Visitor<'_>,
        read: &dyn Fn(&Selection, &mut [u8]) -> Result<ReadStatistics>,
    ) -> Result<ReadStatistics> {
        let layout = known.layout();
        let item = layout.item_size;
        let shape = layout.grid.array_shape();
        let blocks = block_shape(shape, &vec![1; shape.len()], item as u64, BLOCK_BYTES);
        let grid = ChunkGrid::new(shape.to_vec(), blocks)?;
        let geometry = Geometry::new(&grid, &vec![1; shape.len()], selection, item)?;
        let (mut statistics, mut buffer) = (ReadStatistics::default(), Vec::new());
        for cell in 0..geometry.cell_count() {
            for task in geometry.tasks(cell) {
                let region = grid.chunk_region_clipped(&geometry.chunk_coordinates(cell, task));
                let selection = whole_region(&region)?;
                buffer.resize(usize::try_from(self.result_bytes(&selection)?).unwrap_or(0), 0);
                statistics += read(&selection, &mut buffer)?;
                let elements = VisitedElements::Bytes(&buffer);
                let geometry = &geometry;
                visitor(&VisitedChunk { geometry, cell, task, region, item_size: item, elements })?;
            }
        }
        Ok(statistics)
    }

    /// Decodes the chunks of `selection` into the cache of the process for later reads, and blocks
    /// of the log over them. Returns counts. It fetches at most the bytes that this handle's cache
    /// may keep ([`cache_bytes`](crate::OpenOptions::cache_bytes)), and nothing without a cache.
    ///
    /// A read whose chunks take more than half of the cache does not use it: prefetch pays for
    /// reads of parts. See [`Array::visit`] for an example.
    ///
    /// # Errors
    /// As [`Array::read`].
    pub fn prefetch(&self, selection: &Selection) -> Result<Prefetched> {
        let known = self.known()?;
        let admission = Admission::new(known.cache_limit());
        let read = ArrayRead::new(selection, Deliver::Cache(&admission));
        let read = known.read(read)?.statistics;
        let (present, left_out) = (admission.present(), admission.left_out());
        Ok(Prefetched { read, present, left_out })
    }

    /// As [`Array::visit`], for a visitor that tolerates being shown a chunk again.
    pub(super) fn visit_again(
        &self,
        known: &ArrayAtRead<'_>,
        selection: &Selection,
        visitor: &Visitor<'_>,
    ) -> Result<ReadStatistics> {
        let taker = VisitorAdapter { visitor, has_begun: AtomicBool::new(false) };
        Ok(known.read(ArrayRead::new(selection, Deliver::Visitor(&taker)))?.statistics)
    }
}

/// Turns a region into a selection.
fn whole_region(region: &Region) -> Result<Selection> {
    let ranges = region.start().iter().zip(region.shape());
    let ranges = ranges
        .map(|(start, length)| Ok(AxisSelection::Range(AxisRange::contiguous(*start, *length)?)));
    Ok(Selection::Orthogonal(ranges.collect::<Result<_>>()?))
}

/// Shifts a region by `by` elements along an axis.
fn moved(region: &Region, axis: usize, by: u64) -> Result<Region> {
    let mut start = region.start().to_vec();
    start[axis] = start[axis].saturating_add(by);
    Ok(Region::new(start, region.shape().to_vec())?)
}

/// Converts the decoded chunks of a read for a visitor.
struct VisitorAdapter<'v> {
    visitor: &'v Visitor<'v>,
    /// True once the visitor has been called.
    has_begun: AtomicBool,
}

impl ChunkVisitor for VisitorAdapter<'_> {
    fn take(&self, chunk: DecodedChunk<'_>) -> Result<()> {
        let (cell, task) = (chunk.cell, chunk.task);
        let layout = cell.piece.layout;
        let geometry = cell.piece.geometry;
        let coordinates = geometry.chunk_coordinates(cell.number, task);
        let region = layout.grid.chunk_region_clipped(&coordinates);
        let in_array = match cell.piece.begins {
            Some((axis, start)) => moved(&region, axis, start)?,
            None => region.clone(),
        };
        let show = |elements: VisitedElements<'_>| {
            self.has_begun.store(true, Ordering::Relaxed);
            let (region, item_size) = (in_array.clone(), layout.item_size);
            let cell = cell.number;
            (self.visitor)(&VisitedChunk { geometry, cell, task, region, item_size, elements })
        };
        if let FillValue::Text(fill) = &layout.fill {
            let texts = texts_of(&chunk, &region, fill).map_err(|error| {
                error.at(format!("{}, chunk {coordinates:?}", cell.object_name()))
            })?;
            return show(VisitedElements::Texts(&texts));
        }
        let mut room = Vec::new();
        show(VisitedElements::Bytes(bytes_of(&chunk, &region, &mut room)?))
    }
}

/// The elements of `region` in C order: a part of the chunk if it has this order, else a copy in
/// `room`.
fn bytes_of<'c>(
    chunk: &DecodedChunk<'c>,
    region: &Region,
    room: &'c mut Vec<u8>,
) -> Result<&'c [u8]> {
    let (layout, codec) = (chunk.cell.piece.layout, chunk.cell.codec());
    let item = layout.item_size;
    let bytes = byte_count(region, item)?;
    let Some(elements) = chunk.elements else {
        room.extend(layout.fill_element().iter().copied().cycle().take(bytes));
        return Ok(room);
    };
    let (stored, wanted) = (codec.strides(), byte_strides(region.shape(), item));
    let mut axes = region.shape().iter().zip(stored.iter().zip(&wanted));
    let lies_so = axes.all(|(length, (stored, wanted))| *length <= 1 || stored == wanted);
    if lies_so
        && codec.swap_size() == 1
        && let Some(front) = elements.get(..bytes)
    {
        return Ok(front);
    }
    room.resize(bytes, 0);
    let source = Strided { bytes: elements, strides: stored };
    let target = Strided { bytes: room.as_mut_slice(), strides: &wanted };
    copy_box(region.shape(), source, target, item, codec.swap_size())?;
    Ok(room)
}

/// The texts of `region` in C order.
fn texts_of<'c>(chunk: &DecodedChunk<'c>, region: &Region, fill: &'c str) -> Result<Vec<&'c str>> {
    let (layout, codec) = (chunk.cell.piece.layout, chunk.cell.codec());
    let item = layout.item_size;
    let bytes = byte_count(region, item)?;
    let Some(elements) = chunk.elements else { return Ok(vec![fill; bytes / item.max(1)]) };
    let count = usize::try_from(layout.grid.chunk_len()).unwrap_or(usize::MAX);
    let texts = text::split(elements, count)
        .map_err(|error| Error::new(ErrorKind::Corrupt, error.to_string()))?;
    let wanted = byte_strides(region.shape(), item);
    let numbers: Vec<u8> = (0..texts.len() as u64).flat_map(u64::to_le_bytes).collect();
    let mut dense = vec![0; bytes];
    let source = Strided { bytes: numbers.as_slice(), strides: codec.strides() };
    let target = Strided { bytes: dense.as_mut_slice(), strides: &wanted };
    copy_box(region.shape(), source, target, item, 1)?;
    let numbers = dense.as_chunks::<8>().0.iter();
    let places = numbers.map(|number| usize::try_from(u64::from_le_bytes(*number)).ok());
    Ok(places.map(|at| at.and_then(|at| texts.get(at).copied()).unwrap_or_default()).collect())
}

/// The bytes of the elements of a region.
fn byte_count(region: &Region, item: usize) -> Result<usize> {
    let count = region.len().and_then(|count| usize::try_from(count).ok());
    count
        .and_then(|count| count.checked_mul(item))
        .ok_or_else(|| Error::new(ErrorKind::LimitExceeded, "a chunk is larger than memory"))
}

/// The bytes from an element to the next along each axis of a box in C order.
fn byte_strides(shape: &[u64], item: usize) -> Vec<i64> {
    let step = |count: u64| i64::try_from(count.saturating_mul(item as u64)).unwrap_or(i64::MAX);
    strides(shape).into_iter().map(step).collect()
}
