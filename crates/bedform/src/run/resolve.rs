//! What to fetch of one object: extents, merged where a gap is cheaper to read than to skip.

use std::sync::Arc;

use bedform_format::shard::Extent;
use bedform_storage::Object;

use crate::codec::ChunkCodec;
use crate::error::{Error, Result};
use crate::log::blocks::LogCopies;
use crate::log::fetch::LogFetch;
use crate::log::overlay::{Overlay, Uncovered};
use crate::plan::copy::{Axis, Copy};
use crate::plan::geometry::{ChunkTask, Geometry};
use crate::plan::mask::Mask;
use crate::plan::part::Origin;
use crate::plan::tuning::Merging;
use crate::source::locate::ChunkLocations;

/// The most bytes that chunks are merged to. Also what a thread keeps as its buffer, unless one
/// chunk alone is larger.
pub(crate) const UNIT_BYTES_MAX: u64 = 2 << 20;

/// Smaller extents are better fetched ahead into the page cache than waited for one by one. A block of a
/// log that was cut at the end of a record still counts.
pub(crate) const SCATTERED_BYTES_MIN: u64 = 24 << 10;

/// What one thread fetches, decodes and copies at a time.
#[derive(Debug, Default)]
pub(crate) struct Unit {
    /// Byte ranges to read; they follow each other in the buffer.
    pub(crate) extents: Vec<Extent>,
    /// Chunks in them.
    pub(crate) chunks: Vec<FetchedChunk>,
    /// Copies of elements that are stored as they are, from the buffer to the result.
    pub(crate) raw: Vec<Copy>,
    /// Chunks that were never written.
    pub(crate) missing: Vec<Wanted>,
    /// Blocks of a log in them.
    pub(crate) log: Option<LogFetch>,
}

/// A chunk that the read needs, and what it needs of it.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) task: ChunkTask,
    /// The free elements of each part, where the rest comes from a log.
    free: Option<Vec<Mask>>,
}

/// An encoded chunk in a unit's buffer.
#[derive(Debug)]
pub(crate) struct FetchedChunk {
    pub(crate) wanted: Wanted,
    /// Where it starts in the buffer.
    pub(crate) start: usize,
    /// Its bytes.
    pub(crate) length: usize,
    /// Where it lies in the object, for messages.
    pub(crate) extent: Extent,
    /// Codecs that it was written without.
    pub(crate) skip: u32,
}

impl Unit {
    /// Bytes of the buffer.
    pub(crate) fn bytes(&self) -> u64 {
        self.extents.iter().map(|extent| extent.length).sum()
    }

    /// Requests that the unit makes, and their bytes, beyond what came when the object was opened.
    pub(crate) fn asks(&self, object: &dyn Object) -> (u64, u64) {
        let known = object.at_hand();
        let missing = |extent: &Extent| {
            let from = extent.offset.max(known.start);
            extent.length - extent.end().min(known.end).saturating_sub(from)
        };
        let asked = self.extents.iter().map(missing).filter(|bytes| *bytes > 0);
        asked.fold((0, 0), |(requests, bytes), more| (requests + 1, bytes + more))
    }

    /// True for several extents of a log that are large enough to go past the page cache one by one,
    /// though not large: what a box of an array needs of a log lies in many places.
    pub(crate) fn is_scattered(&self) -> bool {
        let count = self.extents.len() as u64;
        let has_parts = self.log.as_ref().is_some_and(LogFetch::has_parts);
        has_parts && count > 1 && self.bytes() / count >= SCATTERED_BYTES_MIN
    }
}

impl Wanted {
    /// All that the plan takes of a chunk.
    pub(crate) fn all(task: ChunkTask) -> Self {
        Self { task, free: None }
    }

    /// Calls `visit` with each copy that the read needs from the chunk, whose axes are `strides` bytes
    /// apart.
    pub(crate) fn for_each_copy(
        &self,
        plan: &Geometry,
        cell: u64,
        strides: &[i64],
        mut visit: impl FnMut(Copy) -> Result<()>,
    ) -> Result<()> {
        let Some(free) = &self.free else {
            return plan.for_each_copy(cell, self.task, strides, visit);
        };
        let mut masks = free.iter();
        plan.for_each_part(cell, self.task, |part| {
            let mut outcome = Ok(());
            if let Some(mask) = masks.next() {
                mask.for_each_free(&mut |ranges| {
                    if outcome.is_ok() {
                        outcome = visit(part.copy(ranges, Origin { start: 0, strides }));
                    }
                });
            }
            outcome
        })
    }
}

/// The chunks of an object that a read needs.
#[derive(Debug, Default)]
pub(crate) struct WantedChunks {
    /// As they are stored.
    pub(crate) stored: Vec<Wanted>,
    /// As fill values.
    pub(crate) fill: Vec<Wanted>,
}

impl WantedChunks {
    /// Adds what a read needs of the chunk of `task` beyond what a log has of it, whose copies go to
    /// `copies`.
    ///
    /// # Errors
    /// `Corrupt` for damaged records of the log; those of storage.
    pub(crate) fn add(
        &mut self,
        plan: &Geometry,
        cell: u64,
        task: ChunkTask,
        overlay: Option<&Overlay>,
        copies: &mut LogCopies,
    ) -> Result<()> {
        let Some(overlay) = overlay else {
            self.stored.push(Wanted::all(task));
            return Ok(());
        };
        let wanted = |share| match share {
            Uncovered::All => Some(Wanted::all(task)),
            Uncovered::Some(masks) => Some(Wanted { task, free: Some(masks) }),
            Uncovered::None => None,
        };
        let rest = overlay.take(plan, cell, task, copies)?;
        self.stored.extend(wanted(rest.stored));
        self.fill.extend(wanted(rest.fill));
        Ok(())
    }
}

/// The units of a log's copies, with the segments that they read.
///
/// # Errors
/// `Corrupt` if a block lies outside its segment.
pub(crate) fn log_units(copies: LogCopies) -> Result<Vec<(Arc<dyn Object>, Unit)>> {
    let fetches = copies.into_fetches()?.into_iter().map(|fetch| {
        let unit = |fetch: LogFetch| Unit {
            extents: fetch.extents.clone(),
            log: Some(fetch),
            ..Unit::default()
        };
        (fetch.object(), unit(fetch))
    });
    Ok(fetches.collect())
}

/// The units of chunks of one object.
///
/// # Errors
/// If an extent is larger than a chunk of the array can be.
pub(crate) fn units(
    plan: &Geometry,
    cell: u64,
    wanted: WantedChunks,
    places: &ChunkLocations,
    codec: &ChunkCodec,
    merging: Merging<'_>,
) -> Result<Vec<Unit>> {
    let mut units = Vec::new();
    let gap_max = merging.gap_bytes;
    let (mut found, mut missing) = find_all(wanted.stored, places)?;
    let needed = found.iter().map(|(extent, ..)| extent.length).fold(0, u64::saturating_add);
    let bytes_max = merging.request_bytes(needed);
    missing.extend(wanted.fill);
    if !missing.is_empty() {
        units.push(Unit { missing, ..Unit::default() });
    }
    found.sort_by_key(|(extent, ..)| *extent);
    if codec.is_raw() {
        let (whole, parts): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|(.., wanted)| wanted.free.is_none());
        merge_chunks(parts, codec, (gap_max, bytes_max), &mut units)?;
        let mut gatherer = Gatherer { gap_max, unit: Unit::default(), before: 0, units };
        for (extent, _, wanted) in whole {
            gather_raw(plan, cell, wanted.task, extent, codec, &mut gatherer)?;
        }
        units = gatherer.finish();
    } else {
        merge_chunks(found, codec, (gap_max, bytes_max), &mut units)?;
    }
    Ok(units)
}

/// Chunks with their places, and chunks without any.
type Found = (Vec<(Extent, u32, Wanted)>, Vec<Wanted>);

fn find_all(all: Vec<Wanted>, places: &ChunkLocations) -> Result<Found> {
    let mut found = Vec::with_capacity(all.len());
    let mut missing = Vec::new();
    for wanted in all {
        let position = wanted.task.position;
        let place = places.find(position);
        match place.map_err(|error| Error::corrupt(format!("chunk {position}"), error))? {
            Some((extent, skip)) => found.push((extent, skip, wanted)),
            None => missing.push(wanted),
        }
    }
    Ok((found, missing))
}

/// Puts neighbouring chunks into one unit.
fn merge_chunks(
    found: Vec<(Extent, u32, Wanted)>,
    codec: &ChunkCodec,
    (gap_max, bytes_max): (u64, u64),
    units: &mut Vec<Unit>,
) -> Result<()> {
    let mut current = Unit::default();
    for (extent, skip, wanted) in found {
        if extent.length > codec.encoded_bytes_max() {
            return Err(Error::corrupt(
                format!("chunk {}", wanted.task.position),
                format!(
                    "{} bytes are more than a chunk of {} can have",
                    extent.length,
                    codec.decoded_bytes()
                ),
            ));
        }
        let start = match current.extents.last_mut() {
            Some(last)
                if extent.offset >= last.offset
                    && extent.offset <= last.end().saturating_add(gap_max)
                    && extent.end().saturating_sub(last.offset) <= bytes_max =>
            {
                let start = extent.offset - last.offset;
                last.length = last.length.max(extent.end() - last.offset);
                start
            }
            Some(_) => {
                units.push(std::mem::take(&mut current));
                current.extents.push(extent);
                0
            }
            None => {
                current.extents.push(extent);
                0
            }
        };
        current.chunks.push(FetchedChunk {
            wanted,
            start: index(start),
            length: index(extent.length),
            extent,
            skip,
        });
    }
    if !current.chunks.is_empty() {
        units.push(current);
    }
    Ok(())
}

/// Elements that are stored as they are: only the bytes that are needed, with the gaps between them
/// where those are small.
fn gather_raw(
    plan: &Geometry,
    cell: u64,
    task: ChunkTask,
    extent: Extent,
    codec: &ChunkCodec,
    gatherer: &mut Gatherer,
) -> Result<()> {
    if extent.length < codec.decoded_bytes() as u64 {
        return Err(Error::corrupt(
            format!("chunk {}", task.position),
            format!("{} bytes, expected {}", extent.length, codec.decoded_bytes()),
        ));
    }
    let item = plan.item_size() as u64;
    // Boxes of a union may share bytes of the chunk, so the blocks of all copies are put in order
    // before any is fetched.
    let mut blocks: Vec<(Block, Vec<Axis>)> = Vec::new();
    let mut pieces: Vec<Piece> = Vec::new();
    plan.for_each_copy(cell, task, codec.strides(), |mut copy| {
        if copy.axes.iter().any(|axis| axis_count(axis) == 0) {
            return Ok(());
        }
        // Walk in the order of the file.
        copy.axes.sort_by_key(|axis| std::cmp::Reverse(source_span(axis)));
        for part in parts(copy, item, gatherer.gap_max) {
            let split = split_axis(&part.axes, item, gatherer.gap_max);
            let (outer, inner) = part.axes.split_at(split);
            let block = Block::new(inner, item);
            let number = blocks.len();
            pieces.extend(
                outer_positions(outer, part.source_start, part.target_start)
                    .into_iter()
                    .map(|(source, target)| Piece { start: source - block.before, target, number }),
            );
            blocks.push((block, inner.to_vec()));
        }
        Ok(())
    })?;
    pieces.sort_unstable();
    for piece in &pieces {
        let (block, inner) = &blocks[piece.number];
        gatherer.add(piece, block, inner, extent.offset);
    }
    Ok(())
}

/// A block of elements: where its bytes start in the chunk, where its first element goes in the
/// target, and which block it is.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Piece {
    start: i64,
    target: i64,
    number: usize,
}

/// Cuts a copy along an axis that is dense enough to be read in one go but too long for a unit, so
/// that it is walked in blocks and not element by element.
fn parts(copy: Copy, item: u64, gap_max: u64) -> Vec<Copy> {
    let split = split_axis(&copy.axes, item, gap_max);
    let Some(at) = split.checked_sub(1) else { return vec![copy] };
    let Axis::Even { source_step, target_step, count } = copy.axes[at] else { return vec![copy] };
    let span = Block::new(&copy.axes[split..], item).span;
    let step = source_step.unsigned_abs();
    if step == 0 || step.saturating_sub(span) > gap_max || span > UNIT_BYTES_MAX {
        return vec![copy];
    }
    let in_block = ((UNIT_BYTES_MAX - span) / step + 1).min(count);
    if in_block < 2 {
        return vec![copy];
    }
    let (blocks, rest) = (count / in_block, count % in_block);
    let inside = |count| Axis::Even { source_step, target_step, count };
    let steps = in_block.cast_signed();
    let mut parts = Vec::with_capacity(2);
    let mut whole = copy.clone();
    whole.axes[at] = inside(in_block);
    whole.axes.insert(
        at,
        Axis::Even {
            source_step: source_step * steps,
            target_step: target_step * steps,
            count: blocks,
        },
    );
    parts.push(whole);
    if rest > 0 {
        let done = (blocks * in_block).cast_signed();
        let mut last = copy;
        last.source_start += source_step * done;
        last.target_start += target_step * done;
        last.axes[at] = inside(rest);
        parts.push(last);
    }
    parts
}

/// The bytes that a block of inner axes spans around its first element.
struct Block {
    before: i64,
    span: u64,
}

impl Block {
    fn new(inner: &[Axis], item: u64) -> Self {
        let (low, high) = inner.iter().fold((0_i64, 0_i64), |(low, high), axis| {
            let (axis_low, axis_high) = axis.reach()[0];
            (low + axis_low, high + axis_high)
        });
        Self { before: -low, span: (high - low).cast_unsigned() + item }
    }
}

/// How many outer axes to walk one by one, so that what is left has no gap over `gap_max`.
fn split_axis(axes: &[Axis], item: u64, gap_max: u64) -> usize {
    let mut span = item;
    for at in (0..axes.len()).rev() {
        let step = largest_step(&axes[at]);
        let whole = span + source_span(&axes[at]);
        if step.saturating_sub(span) > gap_max || whole > UNIT_BYTES_MAX {
            return at + 1;
        }
        span = whole;
    }
    0
}

fn axis_count(axis: &Axis) -> u64 {
    match axis {
        Axis::Even { count, .. } => *count,
        Axis::Table { offsets, .. } => offsets.len() as u64,
    }
}

fn source_span(axis: &Axis) -> u64 {
    let (low, high) = axis.reach()[0];
    (high - low).cast_unsigned()
}

fn largest_step(axis: &Axis) -> u64 {
    match axis {
        Axis::Even { source_step, .. } => source_step.unsigned_abs(),
        Axis::Table { offsets, .. } => {
            let mut sources: Vec<i64> = offsets.iter().map(|pair| pair.0).collect();
            sources.sort_unstable();
            let steps = sources.windows(2).map(|pair| (pair[1] - pair[0]).cast_unsigned());
            steps.max().unwrap_or(0)
        }
    }
}

/// Where each block starts in the source and the target.
fn outer_positions(outer: &[Axis], source: i64, target: i64) -> Vec<(i64, i64)> {
    let mut positions = vec![(source, target)];
    for axis in outer {
        let offsets: Vec<(i64, i64)> = match axis {
            Axis::Even { source_step, target_step, count } => (0..*count)
                .map(|at| (at.cast_signed() * source_step, at.cast_signed() * target_step))
                .collect(),
            Axis::Table { offsets, .. } => offsets.clone(),
        };
        positions = positions
            .iter()
            .flat_map(|(source, target)| {
                offsets.iter().map(move |(from, to)| (source + from, target + to))
            })
            .collect();
    }
    positions
}

/// Merges blocks into extents, and extents into units, from chunk to chunk.
struct Gatherer {
    gap_max: u64,
    unit: Unit,
    /// Bytes of the unit's extents but the last.
    before: u64,
    units: Vec<Unit>,
}

impl Gatherer {
    /// Adds a block of a chunk that starts at `offset`; blocks come in ascending order.
    fn add(&mut self, piece: &Piece, block: &Block, inner: &[Axis], offset: u64) {
        let start = offset + piece.start.cast_unsigned();
        self.make_room(Extent { offset: start, length: block.span });
        let last = self.unit.extents.last().map_or(start, |last| last.offset);
        let mut copy = Copy {
            source_start: (self.before + start - last).cast_signed() + block.before,
            target_start: piece.target,
            axes: inner.to_vec(),
        };
        copy.tidy();
        self.unit.raw.push(copy);
    }

    /// Makes the unit's last extent one that holds `extent`.
    fn make_room(&mut self, extent: Extent) {
        let Some(last) = self.unit.extents.last_mut() else {
            return self.unit.extents.push(extent);
        };
        if extent.offset >= last.offset
            && extent.offset <= last.end().saturating_add(self.gap_max)
            && extent.end() - last.offset <= UNIT_BYTES_MAX
        {
            last.length = last.length.max(extent.end() - last.offset);
            return;
        }
        let length = last.length;
        let full = self.before + length >= UNIT_BYTES_MAX;
        if full || self.unit.extents.len() >= EXTENTS_MAX {
            self.units.push(std::mem::take(&mut self.unit));
            self.before = 0;
        } else {
            self.before += length;
        }
        self.unit.extents.push(extent);
    }

    fn finish(mut self) -> Vec<Unit> {
        if !self.unit.extents.is_empty() {
            self.units.push(self.unit);
        }
        self.units
    }
}

/// Extents of one unit: enough to make small requests worth a thread's turn, few enough that other
/// threads get some.
const EXTENTS_MAX: usize = 32;

#[allow(clippy::cast_possible_truncation)]
fn index(value: u64) -> usize {
    // Lengths were held against what a chunk can have.
    value as usize
}
