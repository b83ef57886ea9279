//! Requests for raw elements: chunks that are stored as their elements and nothing else.
//!
//! Only the byte ranges that a read needs are fetched, together with small gaps between them.

use bedform_format::shard::Extent;

use super::plan::PlannedCell;
use super::resolve::{NeededChunk, Unit};
use crate::error::{Error, Result};
use crate::plan::copy::{Axis, Copy};
use crate::plan::geometry::ChunkTask;
use crate::plan::tuning::{MergeRules, UNIT_BYTES_MAX};
use crate::source::Location;

/// Adds the units of chunks at the given locations, which are in ascending order.
///
/// # Errors
/// `Corrupt` if a chunk has fewer bytes than its elements.
pub(super) fn gather_raw(
    cell: PlannedCell<'_>,
    chunks: Vec<(Location, NeededChunk)>,
    merging: MergeRules<'_>,
    units: Vec<Unit>,
) -> Result<Vec<Unit>> {
    let MergeRules { gap_bytes: gap_max, extents_max, .. } = merging;
    let mut all = Vec::with_capacity(chunks.len());
    for (location, wanted) in chunks {
        all.push(blocks_of(cell, wanted.task, location.extent, gap_max)?);
    }
    let needed = all.iter().map(ChunkBlocks::bytes).fold(0, u64::saturating_add);
    let (bytes_max, unit) = (merging.request_bytes(needed), Unit::default());
    let mut gatherer =
        Gatherer { gap_max, extents_max, bytes_max, unit, wide: 0, before: 0, units };
    for ChunkBlocks { offset, blocks, pieces } in &all {
        for piece in pieces {
            let (block, inner) = &blocks[piece.number];
            gatherer.add(piece, block, inner, *offset);
        }
    }
    Ok(gatherer.finish())
}

/// The byte ranges to read from the chunk at `offset`: blocks, and the places of each, in the order
/// of the file.
struct ChunkBlocks {
    offset: u64,
    blocks: Vec<(RawBlock, Vec<Axis>)>,
    pieces: Vec<BlockOccurrence>,
}

impl ChunkBlocks {
    fn bytes(&self) -> u64 {
        let spans = self.pieces.iter().map(|piece| self.blocks[piece.number].0.span);
        spans.fold(0, u64::saturating_add)
    }
}

fn blocks_of(
    cell: PlannedCell<'_>,
    task: ChunkTask,
    extent: Extent,
    gap_max: u64,
) -> Result<ChunkBlocks> {
    let (codec, geometry) = (cell.codec(), cell.piece.geometry);
    if extent.length < codec.decoded_bytes() as u64 {
        return Err(Error::corrupt(
            format!("chunk {}", task.position),
            format!("{} bytes, expected {}", extent.length, codec.decoded_bytes()),
        ));
    }
    let item = geometry.item_size() as u64;
    // The boxes of a union may share bytes of the chunk. So the blocks of all copies are sorted
    // before any is fetched.
    let mut blocks: Vec<(RawBlock, Vec<Axis>)> = Vec::new();
    let mut pieces: Vec<BlockOccurrence> = Vec::new();
    geometry.for_each_copy(cell.number, task, codec.strides(), |mut copy| {
        if copy.axes.iter().any(|axis| axis.count() == 0) {
            return Ok(());
        }
        // Walks in the order of the file.
        copy.axes.sort_by_key(|axis| std::cmp::Reverse(source_span(axis)));
        for part in parts(copy, item, gap_max) {
            let split = split_axis(&part.axes, item, gap_max);
            let (outer, inner) = part.axes.split_at(split);
            let block = RawBlock::new(inner, item);
            let number = blocks.len();
            pieces.extend(
                outer_positions(outer, part.source_start, part.target_start).into_iter().map(
                    |(source, target)| BlockOccurrence {
                        start: source - block.before,
                        target,
                        number,
                    },
                ),
            );
            blocks.push((block, inner.to_vec()));
        }
        Ok(())
    })?;
    pieces.sort_unstable();
    Ok(ChunkBlocks { offset: extent.offset, blocks, pieces })
}

/// One occurrence of a block: the byte in the chunk at which it starts, the byte of the target for
/// its first element, and the number of the block.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct BlockOccurrence {
    start: i64,
    target: i64,
    number: usize,
}

/// Cuts a copy along an axis that is dense enough for one read but too long for a unit. The axis is
/// then walked in blocks and not element by element.
fn parts(copy: Copy, item: u64, gap_max: u64) -> Vec<Copy> {
    let split = split_axis(&copy.axes, item, gap_max);
    let Some(at) = split.checked_sub(1) else { return vec![copy] };
    if let (0, Axis::Table { .. } | Axis::List { .. }) = (at, &copy.axes[0]) {
        return listed_parts(copy, item, gap_max);
    }
    let Axis::Even { source_step, target_step, count } = copy.axes[at] else { return vec![copy] };
    let span = RawBlock::new(&copy.axes[split..], item).span;
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

/// As [`parts`], along a list of positions: neighbours with small gaps become one block.
fn listed_parts(copy: Copy, item: u64, gap_max: u64) -> Vec<Copy> {
    let Some((axis, inner)) = copy.axes.split_first() else { return vec![copy] };
    let span = RawBlock::new(inner, item).span;
    if span > UNIT_BYTES_MAX || !ascends(axis) {
        return vec![copy];
    }
    let mut parts = Vec::new();
    let mut done = 0;
    while done < axis.count() {
        let (first, first_target) = axis.offset(done);
        let count = near_count(axis, done, span, (gap_max, UNIT_BYTES_MAX - span));
        let block = (count > 1).then(|| axis.slice(done..done + count));
        parts.push(Copy {
            source_start: copy.source_start + first,
            target_start: copy.target_start + first_target,
            axes: block.into_iter().chain(inner.iter().cloned()).collect(),
        });
        done += count;
    }
    parts
}

/// Returns the number of positions, from number `first` on, that can be read as one block. Each is
/// `span` bytes long, and the axis ascends. Gaps are at most `gap_max` bytes; no position starts
/// more than `room` bytes after the first.
fn near_count(axis: &Axis, first: u64, span: u64, (gap_max, room): (u64, u64)) -> u64 {
    let place = |at| axis.offset(at).0;
    let distance = |one: u64, other: u64| place(other).abs_diff(place(one));
    let is_near = |at: u64, next: u64| {
        next < axis.count()
            && distance(at, next).saturating_sub(span) <= gap_max
            && distance(first, next) <= room
    };
    let mut at = first;
    // If two positions are near enough, so are all between them, because they ascend.
    while let Some(stride) = STRIDES.iter().find(|stride| is_near(at, at + *stride)) {
        at += stride;
    }
    at + 1 - first
}

/// Steps, in positions, of the search for the end of a dense stretch of a list.
const STRIDES: [u64; 3] = [1024, 32, 1];

fn ascends(axis: &Axis) -> bool {
    match axis {
        Axis::Even { source_step, .. } => *source_step >= 0,
        Axis::List { positions, source_step, .. } => positions.ascends() && *source_step >= 0,
        Axis::Table { offsets, .. } => offsets.is_sorted_by_key(|(source, _)| *source),
    }
}

/// The byte range of a block of inner axes, relative to its first element.
struct RawBlock {
    before: i64,
    span: u64,
}

impl RawBlock {
    fn new(inner: &[Axis], item: u64) -> Self {
        let (low, high) = inner.iter().fold((0_i64, 0_i64), |(low, high), axis| {
            let (axis_low, axis_high) = axis.reach()[0];
            (low + axis_low, high + axis_high)
        });
        Self { before: -low, span: (high - low).cast_unsigned() + item }
    }
}

/// Returns the number of outer axes to walk one by one, so that the inner ones have no gap over
/// `gap_max` bytes.
fn split_axis(axes: &[Axis], item: u64, gap_max: u64) -> usize {
    let mut span = item;
    for at in (0..axes.len()).rev() {
        let whole = span + source_span(&axes[at]);
        if whole > UNIT_BYTES_MAX || !is_dense(&axes[at], span, gap_max) {
            return at + 1;
        }
        span = whole;
    }
    0
}

fn source_span(axis: &Axis) -> u64 {
    let (low, high) = axis.reach()[0];
    (high - low).cast_unsigned()
}

/// Returns true if no gap between positions of `span` bytes each is larger than `gap_max` bytes.
fn is_dense(axis: &Axis, span: u64, gap_max: u64) -> bool {
    let fits = |step: u64| step.saturating_sub(span) <= gap_max;
    match axis {
        Axis::Even { source_step, .. } => fits(source_step.unsigned_abs()),
        list if ascends(list) => near_count(list, 0, span, (gap_max, u64::MAX)) == list.count(),
        list => {
            let mut sources: Vec<i64> = (0..list.count()).map(|at| list.offset(at).0).collect();
            sources.sort_unstable();
            sources.windows(2).all(|pair| fits((pair[1] - pair[0]).cast_unsigned()))
        }
    }
}

/// Returns the start of each block in the source and the target.
fn outer_positions(outer: &[Axis], source: i64, target: i64) -> Vec<(i64, i64)> {
    let mut positions = vec![(source, target)];
    for axis in outer {
        let offsets: Vec<(i64, i64)> = (0..axis.count()).map(|at| axis.offset(at)).collect();
        positions = positions
            .iter()
            .flat_map(|(source, target)| {
                offsets.iter().map(move |(from, to)| (source + from, target + to))
            })
            .collect();
    }
    positions
}

/// Wider gaps are read over as well, up to one byte in so many other bytes of the request. A few
/// large requests, which go past the page cache, take less time than many of a middling size.
const WIDE_SHARE: u64 = 4;

/// A builder that merges blocks into extents, and extents into units, across chunks.
struct Gatherer {
    gap_max: u64,
    /// The most extents of a unit.
    extents_max: usize,
    /// The most bytes of a unit, and of an extent.
    bytes_max: u64,
    unit: Unit,
    /// Bytes of the last extent that lie in gaps over `gap_max` bytes.
    wide: u64,
    /// Bytes of the unit's extents except the last.
    before: u64,
    units: Vec<Unit>,
}

impl Gatherer {
    /// Adds a block of a chunk that starts at `offset`; blocks come in ascending order.
    fn add(&mut self, piece: &BlockOccurrence, block: &RawBlock, inner: &[Axis], offset: u64) {
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

    /// Makes sure that the unit's last extent contains `extent`.
    fn make_room(&mut self, extent: Extent) {
        let Some(last) = self.unit.extents.last_mut() else {
            return self.unit.extents.push(extent);
        };
        if extent.offset >= last.offset && extent.end() - last.offset <= self.bytes_max {
            let gap = extent.offset.saturating_sub(last.end());
            let wide = if gap > self.gap_max { gap } else { 0 };
            if wide == 0 || self.wide + wide <= (last.length - self.wide) / WIDE_SHARE {
                self.wide += wide;
                last.length = last.length.max(extent.end() - last.offset);
                return;
            }
        }
        self.wide = 0;
        let length = last.length;
        let full = self.before + length >= self.bytes_max;
        if full || self.unit.extents.len() >= self.extents_max {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn extents(gap_max: u64, blocks: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let (unit, units) = (Unit::default(), Vec::new());
        let (extents_max, bytes_max) = (64, UNIT_BYTES_MAX);
        let mut gatherer =
            Gatherer { gap_max, extents_max, bytes_max, unit, wide: 0, before: 0, units };
        for (offset, length) in blocks {
            gatherer.make_room(Extent { offset: *offset, length: *length });
        }
        let units = gatherer.finish();
        let extents = units.iter().flat_map(|unit| &unit.extents);
        extents.map(|extent| (extent.offset, extent.length)).collect()
    }

    #[test]
    fn wider_gaps_are_read_over_while_they_are_at_most_a_quarter_of_what_is_read_anyway() {
        let gap_max = 100;
        assert_eq!(extents(gap_max, &[(0, 4000), (5000, 10)]), [(0, 5010)]);
        assert_eq!(extents(gap_max, &[(0, 4000), (5001, 10)]), [(0, 4000), (5001, 10)]);
        // All wide gaps of a request together; gaps within `gap_max` do not count.
        let blocks = [(0, 4000), (4600, 10), (4700, 10), (5200, 10)];
        assert_eq!(extents(gap_max, &blocks), [(0, 4710), (5200, 10)]);
        assert_eq!(extents(gap_max, &[(0, 10), (110, 10), (220, 10)]), [(0, 230)]);
        // A block before it begins another request.
        assert_eq!(extents(gap_max, &[(5000, 4000), (0, 10)]), [(5000, 4000), (0, 10)]);
    }
}
