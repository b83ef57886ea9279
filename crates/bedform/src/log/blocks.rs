//! Copies from the blocks of segments to where their elements belong.
//!
//! A box of a section knows where its elements lie in the section's data. Here its copy is cut at the
//! borders of blocks, copies are put in the order of the segments' bytes, and neighbouring blocks are
//! fetched together. So a read fetches every block that it needs once, checks it once, and moves
//! elements from it straight to their places, whatever chunks they belong to.

use std::collections::HashMap;
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
    blocks: Vec<BlockCopies>,
    /// Which of these it is, by the number of the segment and the block's offset in it.
    numbers: HashMap<(u32, u64), usize>,
    /// The one that was added to last.
    last: usize,
    copies: usize,
    /// Where decoded blocks are kept.
    loaded: Option<Arc<Loaded>>,
}

/// What is taken of a block.
#[derive(Debug)]
struct BlockCopies {
    /// Which of the segments.
    segment: u32,
    block: Block,
    /// The blocks that follow it in the data, for one element that lies in several.
    more: Vec<Block>,
    /// From the bytes of the blocks, one behind the other.
    moves: Vec<Move>,
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
}

#[derive(Debug)]
struct FetchedBlock {
    block: Block,
    /// Where it starts in the buffer.
    start: usize,
    /// True if it is decoded together with the next one.
    joins_next: bool,
    moves: Vec<Move>,
}

impl LogCopies {
    /// No copies yet; those of blocks that `loaded` keeps need no fetching.
    pub(crate) fn new(loaded: Arc<Loaded>) -> Self {
        Self { loaded: Some(loaded), ..Self::default() }
    }

    /// The number of copies.
    pub(crate) fn len(&self) -> usize {
        self.copies
    }

    /// Adds a copy from the data of `section`, of elements of `item` bytes.
    ///
    /// # Errors
    /// `Corrupt` if it leaves the data, which decoding rules out.
    pub(super) fn add(&mut self, section: &LoadedSection, copy: Copy, item: usize) -> Result<()> {
        let copy = ascending(copy);
        let mut source = BlockSource { section, item, copies: self };
        source.cut(copy.source_start, copy.target_start, &copy.axes).ok_or_else(|| outside(section))
    }

    /// As [`LogCopies::add`], for `count` elements that lie in one run in the data and the target.
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
            let mut at = ends.partition_point(|end| *end <= from);
            while left > 0 {
                let end = *ends.get(at)?;
                let before = at.checked_sub(1).map_or(0, |before| ends[before]);
                let now = left.min((end - from) / each);
                if now == 0 {
                    let mut source = BlockSource { section, item, copies: self };
                    source.add(at, from.cast_signed(), i64::try_from(to).ok()?, &[])?;
                } else {
                    let run = Run::new(index(from - before), to, index(now) * item);
                    self.add_move(&section.segment, blocks.get(at)?, Move::Run(run));
                }
                let done = now.max(1);
                (from, to, left) = (from + done * each, to + index(done) * item, left - done);
                at += ends.get(at..)?.partition_point(|end| *end <= from);
            }
            Some(())
        };
        cut().ok_or_else(|| outside(section))
    }

    fn add_move(&mut self, segment: &Arc<LogSegment>, block: &Block, what: Move) {
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

    /// What to fetch, in the order of the segments' bytes.
    ///
    /// # Errors
    /// `Corrupt` if a block lies outside its segment.
    pub(crate) fn into_fetches(mut self) -> Result<Vec<LogFetch>> {
        self.blocks.sort_by_key(|own| (own.segment, own.block.offset, own.more.len()));
        let mut fetches: Vec<LogFetch> = Vec::new();
        let mut last = None;
        for own in self.blocks {
            let segment = &self.segments[own.segment as usize];
            for block in [&own.block].into_iter().chain(&own.more) {
                check_place(segment, block)?;
            }
            // What lies in several blocks is fetched for itself: there is hardly any.
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

fn outside(section: &LoadedSection) -> Error {
    Error::corrupt(&*section.segment.name, "a box lies outside the data of its section")
}

/// The data of a section, at whose blocks the copies of a box are cut.
struct BlockSource<'a> {
    section: &'a LoadedSection,
    item: usize,
    copies: &'a mut LogCopies,
}

impl BlockSource<'_> {
    /// Adds the copy of the elements of `axes`, whose first one lies at `source` in the data; no axis
    /// leads back. `None` if it leaves the data.
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
            at += ends.get(at..)?.partition_point(|end| *end <= place);
        }
    }

    /// Adds a copy that starts in block `at` and leaves it at most with a single element.
    fn add(&mut self, at: usize, source: i64, target: i64, axes: &[Axis]) -> Option<()> {
        let (blocks, ends) = self.section.blocks();
        let block = blocks.get(at)?;
        let before = at.checked_sub(1).map_or(0, |before| ends[before]);
        let start = source - i64::try_from(before).ok()?;
        let end = u64::try_from(source).ok()? + self.item as u64;
        let mut copy = Copy { source_start: start, target_start: target, axes: axes.to_vec() };
        copy.tidy();
        let what = copy.as_run(self.item).map_or_else(|| Move::Copy(copy), Move::Run);
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
        Self { segment, loaded: None, extents: Vec::new(), blocks: Vec::new() }
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

    fn add_blocks(&mut self, own: BlockCopies) {
        self.add_block(own.block);
        for block in own.more {
            if let Some(last) = self.blocks.last_mut() {
                last.joins_next = true;
            }
            self.add_block(block);
        }
        if let Some(last) = self.blocks.last_mut() {
            last.moves = own.moves;
        }
    }

    fn add_block(&mut self, block: Block) {
        let before = self.bytes() as u64;
        let end = block.offset + block.stored_bytes;
        let start = match self.extents.last_mut() {
            Some(last) if block.offset >= last.end() && block.offset <= last.end() + GAP_BYTES => {
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
        let (start, moves) = (index(start), Vec::new());
        self.blocks.push(FetchedBlock { block, start, joins_next: false, moves });
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
            fetched.move_all(&bytes, to)?;
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
                    fetched.move_all(&joined, to)?;
                    joined.clear();
                }
                continue;
            }
            if let Some(loaded) = &self.loaded {
                let key = (self.segment.name.clone(), block.offset);
                loaded.blocks.put(key, Arc::from(decoded), block.bytes + 128);
            }
            fetched.move_all(decoded, to)?;
        }
        Ok(())
    }
}

impl FetchedBlock {
    fn move_all(&self, bytes: &[u8], to: &Destination<'_>) -> Result<()> {
        for one in &self.moves {
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
