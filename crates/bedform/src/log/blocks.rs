//! Copies of elements from the blocks of segments to their targets.
//!
//! A box of a section knows where its elements lie in the section's data. This module cuts its copy
//! at the borders of blocks, sorts the copies by the segments' bytes, and fetches neighbouring
//! blocks together. So a read fetches and checks each block once, and moves elements from it
//! straight to their targets, across all chunks.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use bedform_codec::Scratch;
use bedform_format::log::Block;

use super::fetch::{LogFetch, place};
use super::section::LoadedSection;
use super::view::LogSegment;
use crate::cache::CacheHandle;
use crate::error::{Error, Result};
use crate::plan::copy::{Axis, ContiguousRun, Copy};
use crate::source::{CoverBatch, Destination, Payload};

/// Copies of elements out of blocks, which are fetched in the order of the segments' bytes.
#[derive(Debug, Default)]
pub(crate) struct LogCopies {
    segments: Vec<Arc<LogSegment>>,
    blocks: Vec<BlockCopies>,
    /// Indices in `blocks`, by the number of the segment and the block's offset in it.
    numbers: HashMap<(u32, u64), usize>,
    /// Index of the block that got the last copy.
    last: usize,
    /// Index, in its section, of the block that was looked up last.
    last_at: usize,
    copies: usize,
    /// The cache for decoded blocks.
    cache: Option<Arc<CacheHandle>>,
}

/// The copies out of one block.
#[derive(Debug)]
pub(super) struct BlockCopies {
    /// Index of its segment.
    segment: u32,
    pub(super) block: Block,
    /// The blocks that follow it in the data, for one element that lies in several.
    pub(super) more: Vec<Block>,
    /// Copies from the bytes of these blocks, one behind the other.
    pub(super) moves: Vec<BlockMove>,
}

/// A copy of elements: one run, or along several axes.
#[derive(Debug)]
pub(super) enum BlockMove {
    Run(ContiguousRun),
    Copy(Copy),
}

impl LogCopies {
    /// Makes an empty list of copies; blocks that `cache` has are not fetched.
    pub(crate) fn new(cache: Option<Arc<CacheHandle>>) -> Self {
        Self { cache: cache.filter(|cache| !cache.is_bypass()), ..Self::default() }
    }

    /// Adds a copy from the data of `section`; an element has `item` bytes.
    ///
    /// # Errors
    /// `Corrupt` if the copy leaves the data, which decoding rules out.
    pub(super) fn add(&mut self, section: &LoadedSection, copy: Copy, item: usize) -> Result<()> {
        let copy = ascending(copy);
        let mut source = BlockSource { section, item, copies: self };
        source.cut(copy.source_start, copy.target_start, &copy.axes).ok_or_else(|| outside(section))
    }

    /// Adds a copy, as [`LogCopies::add`], of `count` elements in one run in the data and in the
    /// target.
    ///
    /// # Errors
    /// As [`LogCopies::add`].
    pub(super) fn add_run(
        &mut self,
        section: &LoadedSection,
        (source, target): (i64, i64),
        count: u64,
        item: usize,
    ) -> Result<()> {
        let mut cut = || {
            let (mut from, to) = (u64::try_from(source).ok()?, usize::try_from(target).ok()?);
            let (mut to, mut left, each) = (to, count, item as u64);
            let (blocks, ends) = section.blocks();
            let mut at = self.block_at(ends, from);
            while left > 0 {
                let end = *ends.get(at)?;
                let before = at.checked_sub(1).map_or(0, |before| ends[before]);
                // Mostly all elements are in this block; no division is needed to find that.
                let now = match left.checked_mul(each).is_some_and(|bytes| bytes <= end - from) {
                    true => left,
                    false => (end - from) / each,
                };
                if now == 0 {
                    let mut source = BlockSource { section, item, copies: self };
                    source.add(at, from.cast_signed(), i64::try_from(to).ok()?, &[])?;
                } else {
                    let run = ContiguousRun::new(index(from - before), to, index(now) * item);
                    self.add_move(&section.segment, blocks.get(at)?, BlockMove::Run(run));
                }
                let done = now.max(1);
                (from, to, left) = (from + done * each, to + index(done) * item, left - done);
                if left > 0 {
                    at += ends.get(at..)?.partition_point(|end| *end <= from);
                }
            }
            Some(())
        };
        cut().ok_or_else(|| outside(section))
    }

    /// Returns the index of the block that has byte `from` of the data: mostly that of the copy
    /// before.
    fn block_at(&mut self, ends: &[u64], from: u64) -> usize {
        let at = self.last_at;
        let is_same = ends.get(at).is_some_and(|end| from < *end)
            && at.checked_sub(1).is_none_or(|before| ends[before] <= from);
        if !is_same {
            self.last_at = ends.partition_point(|end| *end <= from);
        }
        self.last_at
    }

    fn add_move(&mut self, segment: &Arc<LogSegment>, block: &Block, what: BlockMove) {
        self.copies += 1;
        let last = self.blocks.get_mut(self.last);
        if let Some(last) = last.filter(|last| {
            last.block.offset == block.offset
                && last.more.is_empty()
                && Arc::ptr_eq(&self.segments[last.segment as usize], segment)
        }) {
            return last.moves.push(what);
        }
        let segment = self.segment_number(segment);
        let next = self.blocks.len();
        self.last = *self.numbers.entry((segment, block.offset)).or_insert(next);
        match self.blocks.get_mut(self.last) {
            Some(known) => known.moves.push(what),
            None => {
                let (more, moves) = (Vec::new(), vec![what]);
                self.blocks.push(BlockCopies { segment, block: *block, more, moves });
            }
        }
    }

    fn segment_number(&mut self, segment: &Arc<LogSegment>) -> u32 {
        // Mostly the segment of the copy before.
        let known = self.segments.iter().rposition(|known| Arc::ptr_eq(known, segment));
        let number = known.unwrap_or_else(|| {
            self.segments.push(segment.clone());
            self.segments.len() - 1
        });
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    /// Adds the copies of `other`.
    fn append_copies(&mut self, other: Self) {
        self.cache = self.cache.take().or(other.cache);
        for mut blocks in other.blocks {
            let segment = self.segment_number(&other.segments[blocks.segment as usize]);
            blocks.segment = segment;
            self.copies += blocks.moves.len();
            let next = self.blocks.len();
            let key = (segment, blocks.block.offset);
            let number = match blocks.more.is_empty() {
                true => *self.numbers.entry(key).or_insert(next),
                false => next,
            };
            match self.blocks.get_mut(number) {
                Some(known) => known.moves.append(&mut blocks.moves),
                None => self.blocks.push(blocks),
            }
        }
    }

    /// Returns the fetches, in the order of the segments' bytes.
    ///
    /// # Errors
    /// `Corrupt` if a block lies outside its segment.
    fn into_fetches(mut self) -> Result<Vec<LogFetch>> {
        self.blocks.sort_by_key(|own| (own.segment, own.block.offset, own.more.len()));
        let mut fetches: Vec<LogFetch> = Vec::new();
        let mut last = None;
        for own in self.blocks {
            let segment = &self.segments[own.segment as usize];
            for block in [&own.block].into_iter().chain(&own.more) {
                check_place(segment, block)?;
            }
            // An element in several blocks is rare, and has a fetch of its own.
            let follows = own.more.is_empty() && last == Some(own.segment);
            last = own.more.is_empty().then_some(own.segment);
            match fetches.last_mut().filter(|fetch| follows && fetch.has_room(&own.block)) {
                Some(fetch) => fetch.add_blocks(own),
                None => {
                    let mut fetch = LogFetch::new(segment.clone());
                    fetch.add_blocks(own);
                    fetches.push(fetch);
                }
            }
        }
        // A read that would evict most other entries of the cache is not cached.
        let decoded: u64 = fetches.iter().map(LogFetch::decoded_bytes).sum();
        let cache = self.cache.filter(|cache| decoded <= cache.limit() / 2);
        fetches.iter_mut().for_each(|fetch| fetch.keep_in(cache.as_ref()));
        Ok(fetches)
    }

    /// Fetches and copies everything, on this thread.
    ///
    /// # Errors
    /// `Corrupt` for damaged blocks; those of storage.
    pub(super) fn run(self, to: &Destination<'_>) -> Result<()> {
        let (mut bytes, mut scratch) = (Vec::new(), Scratch::default());
        let mut fetches = self.into_fetches()?.into_iter();
        fetches.try_for_each(|fetch| fetch.fetch_and_run(&mut bytes, &mut scratch, to))
    }
}

impl CoverBatch for LogCopies {
    fn len(&self) -> usize {
        self.copies
    }

    fn append(&mut self, other: Box<dyn Any>) {
        if let Ok(other) = other.downcast::<Self>() {
            self.append_copies(*other);
        }
    }

    fn into_payloads(self: Box<Self>) -> Result<Vec<Box<dyn Payload>>> {
        let fetches = self.into_fetches()?.into_iter();
        Ok(fetches.map(|fetch| Box::new(fetch) as Box<dyn Payload>).collect())
    }
}

/// Fails if a block ends behind its segment: no request is made, and no memory is taken.
fn check_place(segment: &LogSegment, block: &Block) -> Result<()> {
    if segment.holds(block.offset, block.stored_bytes) {
        return Ok(());
    }
    let size = segment.object.version().size;
    let end = block.offset.saturating_add(block.stored_bytes);
    Err(Error::corrupt(
        place(segment, block),
        format!("it ends at byte {end} of a segment of {size} bytes"),
    ))
}

fn outside(section: &LoadedSection) -> Error {
    Error::corrupt(
        section.segment.place_of(section.offset()),
        "a box lies outside the data of its section",
    )
}

/// The data of a section, with the list that takes the copies cut at its blocks.
struct BlockSource<'a> {
    section: &'a LoadedSection,
    item: usize,
    copies: &'a mut LogCopies,
}

impl BlockSource<'_> {
    /// Cuts the copy of the elements of `axes` at the borders of blocks, and adds the pieces. The
    /// first element lies at byte `source` of the data, and no axis steps back. `None` if the copy
    /// leaves the data.
    fn cut(&mut self, source: i64, target: i64, axes: &[Axis]) -> Option<()> {
        let (mut source, mut target) = (source, target);
        let place = u64::try_from(source).ok()?;
        let ends = self.section.blocks().1;
        let mut at = ends.partition_point(|end| *end <= place);
        let Some((first, rest)) = axes.split_first() else {
            return self.add(at, source, target, axes);
        };
        let mut left = first.clone();
        let below = span(rest) + i64::try_from(self.item).ok()?;
        loop {
            let end = i64::try_from(*ends.get(at)?).ok()?;
            let fits = fitting(&left, end - source - below);
            if fits == left.count() {
                return match fits {
                    0 => Some(()),
                    _ => self.add(at, source, target, &with_first(left, rest)),
                };
            }
            let done = match fits {
                0 => {
                    let (from, to) = left.offset(0);
                    self.cut(source + from, target + to, rest)?;
                    1
                }
                _ => {
                    self.add(at, source, target, &with_first(left.slice(0..fits), rest))?;
                    fits
                }
            };
            if done == left.count() {
                return Some(());
            }
            // The rest of the axis counts from its own first element.
            let (from, to) = left.offset(done);
            left = left.slice(done..left.count());
            (source, target) = (source + from, target + to);
            let place = u64::try_from(source).ok()?;
            at += ends.get(at..)?.partition_point(|end| *end <= place);
        }
    }

    /// Adds a copy that starts in block `at`; at most a single element leaves that block.
    fn add(&mut self, at: usize, source: i64, target: i64, axes: &[Axis]) -> Option<()> {
        let (blocks, ends) = self.section.blocks();
        let block = blocks.get(at)?;
        let before = at.checked_sub(1).map_or(0, |before| ends[before]);
        let start = source - i64::try_from(before).ok()?;
        let end = u64::try_from(source).ok()? + self.item as u64;
        let mut copy = Copy { source_start: start, target_start: target, axes: axes.to_vec() };
        copy.tidy();
        let what = copy.as_run(self.item).map_or_else(|| BlockMove::Copy(copy), BlockMove::Run);
        if !axes.is_empty() || end <= ends[at] {
            self.copies.add_move(&self.section.segment, block, what);
            return Some(());
        }
        let last = ends.partition_point(|block_end| *block_end < end);
        let more = blocks.get(at + 1..last + 1)?.to_vec();
        let segment = self.copies.segment_number(&self.section.segment);
        self.copies.copies += 1;
        let joined = BlockCopies { segment, block: *block, more, moves: vec![what] };
        self.copies.blocks.push(joined);
        Some(())
    }
}

/// Returns the same copy with axes that step only forward in the source, the outermost first.
fn ascending(mut copy: Copy) -> Copy {
    for axis in &mut copy.axes {
        if let Axis::List { .. } = axis {
            *axis = axis.clone().into_table();
        }
        match axis {
            Axis::List { .. } => {}
            Axis::Even { source_step, target_step, count } => {
                let last = signed(count.saturating_sub(1));
                if *source_step < 0 {
                    copy.source_start += *source_step * last;
                    copy.target_start += *target_step * last;
                    (*source_step, *target_step) = (-*source_step, -*target_step);
                }
            }
            Axis::Table { offsets, .. } => {
                offsets.sort_unstable();
                let (from, to) = rebase(offsets);
                copy.source_start += from;
                copy.target_start += to;
            }
        }
    }
    copy
}

/// Makes offsets relative to the first of them, and returns the first.
fn rebase(offsets: &mut [(i64, i64)]) -> (i64, i64) {
    let first = offsets.first().copied().unwrap_or_default();
    offsets.iter_mut().for_each(|pair| *pair = (pair.0 - first.0, pair.1 - first.1));
    first
}

/// Returns the bytes from the first element of the axes to the last.
fn span(axes: &[Axis]) -> i64 {
    axes.iter().map(|axis| axis.reach()[0].1).sum()
}

/// Returns the number of positions of an axis that lie at most `room` bytes ahead.
fn fitting(axis: &Axis, room: i64) -> u64 {
    match axis {
        _ if room < 0 => 0,
        Axis::Even { source_step, count, .. } => match *source_step {
            0 => *count,
            step => (*count).min((room / step).cast_unsigned() + 1),
        },
        axis => partition_point(axis.count(), |at| axis.offset(at).0 <= room),
    }
}

/// Returns the number of values in `0..count` before the first for which `holds` is false.
fn partition_point(count: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        match holds(middle) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    low
}

fn with_first(first: Axis, rest: &[Axis]) -> Vec<Axis> {
    [first].into_iter().chain(rest.iter().cloned()).collect()
}

fn signed(value: u64) -> i64 {
    // The value counts elements whose bytes fitted, so it fits.
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[allow(clippy::cast_possible_truncation)]
fn index(value: u64) -> usize {
    // The value is a size in memory, checked against the limits when its section was decoded.
    value as usize
}
