//! Copies from the blocks of segments to where their elements belong.
//!
//! A box of a section knows where its elements lie in the section's data. Here its copy is cut at the
//! borders of blocks, copies are put in the order of the segments' bytes, and neighbouring blocks are
//! fetched together. So a read fetches every block that it needs once, checks it once, and moves
//! elements from it straight to their places, whatever chunks they belong to.

use std::ops::Range;
use std::sync::Arc;

use bedform_format::checksum::crc32c;
use bedform_format::log::Block;
use bedform_format::shard::Extent;
use bedform_storage::Object;

use super::section::LoadedSection;
use super::view::{Loaded, LogSegment};
use crate::cache::ByteCache;
use crate::error::{Error, Result};
use crate::read::scatter::{Axis, Copy, Run, Target};

/// Blocks that were decoded, by segment and place.
pub(crate) type BlockCache = ByteCache<(Arc<str>, u64), Arc<[u8]>>;

/// The most bytes that blocks are fetched together.
const FETCH_BYTES_MAX: u64 = 1 << 20;
/// Extents that are fetched together.
const EXTENTS_MAX: usize = 32;
/// The largest gap between blocks that is read over: a record's head, and a small one's body.
const GAP_BYTES: u64 = 4 << 10;

/// Copies of elements out of blocks, to be fetched in the order of the segments' bytes.
#[derive(Debug, Default)]
pub(crate) struct LogCopies {
    segments: Vec<Arc<LogSegment>>,
    copies: Vec<BlockCopy>,
    /// Where decoded blocks are kept.
    loaded: Option<Arc<Loaded>>,
}

#[derive(Debug)]
struct BlockCopy {
    /// Which of the segments.
    segment: u32,
    block: Block,
    /// The blocks that follow it in the data, if one element lies in several.
    more: Vec<Block>,
    /// From the bytes of the blocks, one behind the other.
    what: Move,
}

/// Elements on their way.
#[derive(Debug)]
enum Move {
    Run(Run),
    Copy(Copy),
}

/// Blocks of one segment that are fetched together, and what is taken from them.
#[derive(Debug)]
pub(crate) struct LogFetch {
    segment: Arc<LogSegment>,
    /// Where decoded blocks are kept, if these are worth it.
    loaded: Option<Arc<Loaded>>,
    /// Byte ranges to read; they follow each other in the buffer.
    pub(crate) extents: Vec<Extent>,
    blocks: Vec<FetchedBlock>,
    moves: Vec<Move>,
}

#[derive(Debug)]
struct FetchedBlock {
    block: Block,
    /// Where it starts in the buffer.
    start: usize,
    /// Behind it those that are decoded together with it.
    joins_next: bool,
    moves: Range<usize>,
}

impl LogCopies {
    /// No copies yet; those of blocks that `loaded` keeps need no fetching.
    pub(crate) fn new(loaded: Arc<Loaded>) -> Self {
        Self { loaded: Some(loaded), ..Self::default() }
    }

    /// The number of copies.
    pub(crate) fn len(&self) -> usize {
        self.copies.len()
    }

    /// Adds a copy from the data of `section`, of elements of `item` bytes.
    ///
    /// # Errors
    /// `Corrupt` if it leaves the data, which decoding rules out.
    pub(super) fn add(
        &mut self,
        section: &LoadedSection,
        copy: Copy,
        item: usize,
    ) -> Result<()> {
        let segment = self.segment_number(&section.segment);
        let (blocks, ends) = section.blocks();
        let copy = ascending(copy);
        let mut source = BlockSource { segment, blocks, ends, item, copies: &mut self.copies };
        source.cut(copy.source_start, copy.target_start, &copy.axes).ok_or_else(|| {
            Error::corrupt(&*section.segment.name, "a box lies outside the data of its section")
        })
    }

    fn segment_number(&mut self, segment: &Arc<LogSegment>) -> u32 {
        // Mostly that of the copy before.
        let known = self.segments.iter().rposition(|known| Arc::ptr_eq(known, segment));
        let number = known.unwrap_or_else(|| {
            self.segments.push(segment.clone());
            self.segments.len() - 1
        });
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    /// Adds the copies of another.
    pub(crate) fn append(&mut self, other: Self) {
        self.loaded = self.loaded.take().or(other.loaded);
        let numbers: Vec<u32> =
            other.segments.iter().map(|segment| self.segment_number(segment)).collect();
        self.copies.extend(other.copies.into_iter().map(|mut copy| {
            copy.segment = numbers[copy.segment as usize];
            copy
        }));
    }

    /// What to fetch, in the order of the segments' bytes.
    ///
    /// # Errors
    /// `Corrupt` if a block lies outside its segment.
    pub(crate) fn into_fetches(mut self) -> Result<Vec<LogFetch>> {
        self.copies.sort_by_key(|copy| (copy.segment, copy.block.offset, copy.more.len()));
        let mut fetches: Vec<LogFetch> = Vec::new();
        let mut last = None;
        for copy in self.copies {
            let segment = &self.segments[copy.segment as usize];
            let is_same_segment = last.is_some_and(|(last, _)| last == copy.segment);
            let key = (copy.segment, copy.block);
            if let (true, true, Some(fetch)) =
                (copy.more.is_empty(), last == Some(key), fetches.last_mut())
            {
                fetch.add_move(copy.what);
                continue;
            }
            for block in [&copy.block].into_iter().chain(&copy.more) {
                check_place(segment, block)?;
            }
            // What lies in several blocks is fetched for itself: there is hardly any.
            let follows = is_same_segment && copy.more.is_empty();
            let fetch = fetches.last_mut().filter(|fetch| follows && fetch.has_room(&copy.block));
            let fetch = match fetch {
                Some(fetch) => fetch,
                None => {
                    fetches.push(LogFetch::new(segment.clone()));
                    let Some(fetch) = fetches.last_mut() else { continue };
                    fetch
                }
            };
            fetch.add_block(copy.block);
            for block in &copy.more {
                fetch.join_block(*block);
            }
            fetch.add_move(copy.what);
            last = copy.more.is_empty().then_some(key);
        }
        // A read that would push most others out is not kept.
        let decoded: u64 = fetches.iter().map(LogFetch::decoded_bytes).sum();
        let loaded = self.loaded.filter(|loaded| decoded <= loaded.blocks.limit() / 2);
        fetches.iter_mut().for_each(|fetch| fetch.loaded.clone_from(&loaded));
        Ok(fetches)
    }

    /// Fetches and copies everything, on this thread.
    ///
    /// # Errors
    /// `Corrupt` for damaged blocks; those of storage.
    pub(super) fn run(self, to: &Destination<'_>) -> Result<()> {
        let (mut bytes, mut scratch) = (Vec::new(), Vec::new());
        for fetch in self.into_fetches()? {
            if fetch.take_kept(to)? {
                continue;
            }
            bytes.resize(fetch.bytes(), 0);
            let mut rest = bytes.as_mut_slice();
            for extent in &fetch.extents {
                let (now, later) = rest.split_at_mut(index(extent.length));
                fetch.segment.object.read(extent.offset, now)?;
                rest = later;
            }
            fetch.run(&bytes, &mut scratch, to)?;
        }
        Ok(())
    }
}

/// Where elements go.
pub(crate) struct Destination<'a> {
    pub(crate) target: Target<'a>,
    pub(crate) item: usize,
    /// Bytes of the numbers to reverse; 1 for none.
    pub(crate) swap: usize,
}

/// Nothing outside a segment is asked for, nor memory taken for it.
fn check_place(segment: &LogSegment, block: &Block) -> Result<()> {
    let size = segment.object.version().size;
    let end = block.offset.saturating_add(block.stored_bytes);
    if end <= size {
        return Ok(());
    }
    Err(Error::corrupt(
        place(segment, block),
        format!("it ends at byte {end} of a segment of {size} bytes"),
    ))
}

fn place(segment: &LogSegment, block: &Block) -> String {
    format!("segment {} at byte {}", segment.name, block.offset)
}

/// The blocks that the copies of one box are cut at.
struct BlockSource<'a> {
    segment: u32,
    blocks: &'a [Block],
    /// Of each block the first byte behind it in the data.
    ends: &'a [u64],
    item: usize,
    copies: &'a mut Vec<BlockCopy>,
}

impl BlockSource<'_> {
    /// Adds the copy of the elements of `axes`, whose first one lies at `source` in the data; no axis
    /// leads back. `None` if it leaves the data.
    fn cut(&mut self, source: i64, target: i64, axes: &[Axis]) -> Option<()> {
        let (mut source, mut target) = (source, target);
        let place = u64::try_from(source).ok()?;
        let mut at = self.ends.partition_point(|end| *end <= place);
        let Some((first, rest)) = axes.split_first() else {
            return self.add(at, source, target, axes);
        };
        let mut left = first.clone();
        let below = span(rest) + i64::try_from(self.item).ok()?;
        loop {
            let end = i64::try_from(*self.ends.get(at)?).ok()?;
            let fits = fitting(&left, end - source - below);
            if fits == count(&left) {
                return match fits {
                    0 => Some(()),
                    _ => self.add(at, source, target, &with_first(left, rest)),
                };
            }
            let done = match fits {
                0 => {
                    let (from, to) = offset(&left, 0);
                    self.cut(source + from, target + to, rest)?;
                    1
                }
                _ => {
                    self.add(at, source, target, &with_first(slice(&left, 0..fits), rest))?;
                    fits
                }
            };
            left = slice(&left, done..count(&left));
            if count(&left) == 0 {
                return Some(());
            }
            // What is left counts from its own first element.
            let (from, to) = match &mut left {
                Axis::Even { source_step, target_step, .. } => {
                    (*source_step * signed(done), *target_step * signed(done))
                }
                Axis::Table { offsets, .. } => rebase(offsets),
            };
            (source, target) = (source + from, target + to);
            let place = u64::try_from(source).ok()?;
            at += self.ends.get(at..)?.partition_point(|end| *end <= place);
        }
    }

    /// Adds a copy that starts in block `at` and leaves it at most with a single element.
    fn add(&mut self, at: usize, source: i64, target: i64, axes: &[Axis]) -> Option<()> {
        let block = *self.blocks.get(at)?;
        let before = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        let start = source - i64::try_from(before).ok()?;
        let end = u64::try_from(source).ok()? + self.item as u64;
        let last = match axes.is_empty() {
            true => self.ends.partition_point(|block_end| *block_end < end),
            false => at,
        };
        let more = self.blocks.get(at + 1..last + 1)?.to_vec();
        let mut copy = Copy { source_start: start, target_start: target, axes: axes.to_vec() };
        copy.tidy();
        let what = copy.as_run(self.item).map_or_else(|| Move::Copy(copy), Move::Run);
        self.copies.push(BlockCopy { segment: self.segment, block, more, what });
        Some(())
    }
}

/// The same copy with axes that only lead forward in the source, the outermost first.
fn ascending(mut copy: Copy) -> Copy {
    for axis in &mut copy.axes {
        match axis {
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

/// Makes offsets count from the first of them, which is given.
fn rebase(offsets: &mut [(i64, i64)]) -> (i64, i64) {
    let first = offsets.first().copied().unwrap_or_default();
    offsets.iter_mut().for_each(|pair| *pair = (pair.0 - first.0, pair.1 - first.1));
    first
}

fn count(axis: &Axis) -> u64 {
    match axis {
        Axis::Even { count, .. } => *count,
        Axis::Table { offsets, .. } => offsets.len() as u64,
    }
}

fn offset(axis: &Axis, at: u64) -> (i64, i64) {
    match axis {
        Axis::Even { source_step, target_step, .. } => {
            (source_step * signed(at), target_step * signed(at))
        }
        Axis::Table { offsets, .. } => offsets.get(index(at)).copied().unwrap_or_default(),
    }
}

/// Bytes from the first element of the axes to the last.
fn span(axes: &[Axis]) -> i64 {
    axes.iter().map(|axis| axis.reach()[0].1).sum()
}

/// How many of an axis lie at most `room` bytes ahead.
fn fitting(axis: &Axis, room: i64) -> u64 {
    match axis {
        _ if room < 0 => 0,
        Axis::Even { source_step, count, .. } => match *source_step {
            0 => *count,
            step => (*count).min((room / step).cast_unsigned() + 1),
        },
        Axis::Table { offsets, .. } => offsets.partition_point(|pair| pair.0 <= room) as u64,
    }
}

fn slice(axis: &Axis, range: Range<u64>) -> Axis {
    match axis {
        Axis::Even { source_step, target_step, .. } => Axis::Even {
            source_step: *source_step,
            target_step: *target_step,
            count: range.end - range.start,
        },
        Axis::Table { offsets, target_step } => Axis::Table {
            offsets: offsets[index(range.start)..index(range.end)].to_vec(),
            target_step: *target_step,
        },
    }
}

fn with_first(first: Axis, rest: &[Axis]) -> Vec<Axis> {
    [first].into_iter().chain(rest.iter().cloned()).collect()
}

impl LogFetch {
    fn new(segment: Arc<LogSegment>) -> Self {
        let (extents, blocks, moves) = (Vec::new(), Vec::new(), Vec::new());
        Self { segment, loaded: None, extents, blocks, moves }
    }

    /// The segment.
    pub(crate) fn object(&self) -> Arc<dyn Object> {
        self.segment.object.clone()
    }

    /// Bytes of the buffer.
    pub(crate) fn bytes(&self) -> usize {
        self.extents.iter().map(|extent| index(extent.length)).sum()
    }

    /// The number of blocks.
    pub(crate) fn block_count(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Bytes of the blocks when they are decoded.
    pub(crate) fn decoded_bytes(&self) -> u64 {
        self.blocks.iter().map(|fetched| fetched.block.bytes).sum()
    }

    fn has_room(&self, block: &Block) -> bool {
        self.bytes() as u64 + block.stored_bytes <= FETCH_BYTES_MAX
            && self.extents.len() < EXTENTS_MAX
            && self.blocks.last().is_none_or(|last| last.block.offset < block.offset)
    }

    fn add_block(&mut self, block: Block) {
        let before = self.bytes() as u64;
        let end = block.offset + block.stored_bytes;
        let start = match self.extents.last_mut() {
            Some(last)
                if block.offset >= last.end() && block.offset <= last.end() + GAP_BYTES =>
            {
                let start = before + (block.offset - last.end());
                last.length = end - last.offset;
                start
            }
            _ => {
                let (offset, length) = (block.offset, block.stored_bytes);
                self.extents.push(Extent { offset, length });
                before
            }
        };
        let moves = self.moves.len()..self.moves.len();
        self.blocks.push(FetchedBlock { block, start: index(start), joins_next: false, moves });
    }

    /// Adds a block that is decoded behind the last one.
    fn join_block(&mut self, block: Block) {
        if let Some(last) = self.blocks.last_mut() {
            last.joins_next = true;
        }
        self.add_block(block);
    }

    fn add_move(&mut self, what: Move) {
        self.moves.push(what);
        if let Some(block) = self.blocks.last_mut() {
            block.moves.end = self.moves.len();
        }
    }

    /// Makes the moves from blocks that are kept; true if that were all.
    ///
    /// # Errors
    /// Of a copy that leaves its buffers.
    pub(crate) fn take_kept(&self, to: &Destination<'_>) -> Result<bool> {
        let Some(Loaded { blocks: cache, .. }) = self.loaded.as_deref() else { return Ok(false) };
        // All or nothing: the buffer is laid out.
        let mut kept = Vec::with_capacity(self.blocks.len());
        for fetched in &self.blocks {
            let key = (self.segment.name.clone(), fetched.block.offset);
            match cache.get(&key, |_| true) {
                Some(bytes) if !fetched.joins_next => kept.push(bytes),
                _ => return Ok(false),
            }
        }
        for (fetched, bytes) in self.blocks.iter().zip(kept) {
            self.move_all(fetched, &bytes, to)?;
        }
        Ok(true)
    }

    /// Checks the blocks, whose stored bytes `bytes` holds, and makes the moves.
    ///
    /// # Errors
    /// `Corrupt` if a block is damaged.
    pub(crate) fn run(
        &self,
        bytes: &[u8],
        scratch: &mut Vec<u8>,
        to: &Destination<'_>,
    ) -> Result<()> {
        let mut joined = Vec::new();
        for fetched in &self.blocks {
            let block = &fetched.block;
            let stored = bytes.get(fetched.start..fetched.start + index(block.stored_bytes));
            let decoded = decode(block, stored.unwrap_or_default(), scratch)
                .map_err(|problem| Error::corrupt(place(&self.segment, block), problem))?;
            if fetched.joins_next || !joined.is_empty() {
                joined.extend_from_slice(decoded);
                if !fetched.joins_next {
                    self.move_all(fetched, &joined, to)?;
                    joined.clear();
                }
                continue;
            }
            if let Some(loaded) = &self.loaded {
                let key = (self.segment.name.clone(), block.offset);
                loaded.blocks.put(key, Arc::from(decoded), block.bytes + 128);
            }
            self.move_all(fetched, decoded, to)?;
        }
        Ok(())
    }

    fn move_all(&self, fetched: &FetchedBlock, bytes: &[u8], to: &Destination<'_>) -> Result<()> {
        for one in &self.moves[fetched.moves.clone()] {
            // SAFETY: no element of a target is in two copies: what lies over a chunk is taken from one
            // box alone, and the parts of a plan go to different elements.
            unsafe {
                match one {
                    Move::Run(run) => run.run(bytes, to.target, to.swap)?,
                    Move::Copy(copy) => copy.run(bytes, to.target, to.item, to.swap)?,
                }
            }
        }
        Ok(())
    }
}

/// The decoded bytes of a block.
fn decode<'b>(
    block: &Block,
    stored: &'b [u8],
    scratch: &'b mut Vec<u8>,
) -> std::result::Result<&'b [u8], String> {
    let (expected, found) = (block.checksum, crc32c(stored));
    if found != expected {
        return Err(format!("it has checksum {found:08x}, expected {expected:08x}"));
    }
    let length = index(block.bytes);
    let decoded = match block.codec {
        0 => stored,
        1 => {
            scratch.resize(length, 0);
            let count = zstd_safe::decompress(scratch.as_mut_slice(), stored)
                .map_err(|code| zstd_safe::get_error_name(code).to_owned())?;
            &scratch[..count]
        }
        other => return Err(format!("codec {other} is not known")),
    };
    match decoded.len() == length {
        true => Ok(decoded),
        false => Err(format!("it has {} bytes, expected {length}", decoded.len())),
    }
}

fn signed(value: u64) -> i64 {
    // Counts of elements whose bytes were counted.
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[allow(clippy::cast_possible_truncation)]
fn index(value: u64) -> usize {
    // Sizes of what is in memory; sections were held against the limits when they were decoded.
    value as usize
}
