//! The data of a round, planned and read in windows of the log.
//!
//! The data of one writer in one commit are a run of blocks. Blocks with data for the round are
//! read once, in order, checked, and laid. Writes count by epoch and rank. Where the epochs of
//! several writers alternate, the parts of each writer are read in that order. All windows are
//! planned in advance, so several are read concurrently, each by a thread of its own.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use bedform_format::log::{Block, Entry};
use bedform_storage::ReadBlock;

use super::lay::{BoxRelation, RoundBounds};
use crate::error::{Error, Result};
use crate::log::record::{check_stored, decode_body};
use crate::log::section::LoadedSection;
use crate::log::view::{ArraySection, RootView};

/// Consecutive entries of a section that are laid one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EntryGroup {
    epoch: u32,
    rank: u32,
    /// Index of the section among those of the commit.
    section: usize,
    first: usize,
    end: usize,
}

/// Consecutive bytes of the data of one section, read from the log.
pub(super) struct Window {
    pub(super) job: Arc<SectionRead>,
    /// Offset of the first byte in the section's data.
    pub(super) start: u64,
    pub(super) bytes: Vec<u8>,
    /// Number of valid bytes in `bytes`.
    pub(super) length: usize,
}

/// A window that is not read yet: a range of blocks.
pub(super) struct WindowPlan {
    job: Arc<SectionRead>,
    blocks: Range<usize>,
}

/// The entries of a section that have data for the round.
pub(super) struct SectionRead {
    pub(super) section: Arc<LoadedSection>,
    pub(super) commit: u64,
    /// For each array of the section, its index in the round, if it is there.
    pub(super) arrays: Vec<Option<usize>>,
    pub(super) entries: Vec<usize>,
}

/// Plans windows of about `window_bytes` bytes that together have all data that `round` needs.
/// Calls `deliver` with each, in the order in which they are laid.
///
/// # Errors
/// `Corrupt` for damaged records; those of storage and of `deliver`.
pub(super) fn plan_windows(
    view: &RootView,
    round: &[RoundBounds],
    window_bytes: u64,
    deliver: &mut dyn FnMut(WindowPlan) -> Result<()>,
) -> Result<()> {
    let mut places = BTreeMap::new();
    for reach in round {
        view.sections(&reach.key, reach.contained, &mut |place| {
            if has_part(&place, reach) {
                places.entry((place.commit, place.order)).or_insert(place);
            }
            Ok(())
        })?;
    }
    let places: Vec<ArraySection> = places.into_values().collect();
    let by_key: ByKey<'_> = round.iter().enumerate().map(|(at, reach)| (&reach.key, at)).collect();
    for commit in places.chunk_by(|one, next| one.commit == next.commit) {
        for group in groups(view, commit)? {
            let section = view.section_of(&commit[group.section])?;
            let number = commit[group.section].commit;
            let mut job =
                SectionRead::new(section, number, group.first..group.end, (round, &by_key));
            let needed = job.keep_needed(round);
            let job = Arc::new(job);
            let mut first = 0;
            for run in needed.chunk_by(|one, next| one == next) {
                let end = first + run.len();
                if run[0] {
                    job.cut(first..end, window_bytes, deliver)?;
                }
                first = end;
            }
        }
    }
    Ok(())
}

/// Returns the groups of entries of a commit, in the order in which their writes count.
fn groups(view: &RootView, sections: &[ArraySection]) -> Result<Vec<EntryGroup>> {
    let mut groups = Vec::new();
    for (number, place) in sections.iter().enumerate() {
        let section = view.section_of(place)?;
        let entries = &section.section.entries;
        let key = |entry: &Entry| (entry.epoch, entry.rank);
        let mut first = 0;
        for run in entries.chunk_by(|one, next| key(one) == key(next)) {
            let (epoch, rank) = key(&run[0]);
            let end = first + run.len();
            groups.push(EntryGroup { epoch, rank, section: number, first, end });
            first = end;
        }
    }
    // The sort is stable: groups of one writer stay in the order of writing.
    groups.sort_by_key(|group| (group.epoch, group.rank));
    // Adjacent groups become one: each append is an epoch of its own, and all are read together.
    groups.dedup_by(|next, group| {
        let follows = next.section == group.section && next.first == group.end;
        if follows {
            group.end = next.end;
        }
        follows
    });
    Ok(groups)
}

fn has_part(place: &ArraySection, reach: &RoundBounds) -> bool {
    place.boxes.iter().any(|(start, end)| {
        let lengths = || start.iter().zip(end).map(|(start, end)| end - start);
        start.len() == reach.rank() && reach.touches(start, &lengths().collect::<Vec<u64>>())
    })
}

/// The indices of arrays in the round, by the arrays' keys.
type ByKey<'r> = HashMap<&'r [u8; 16], usize>;

/// Returns, for each array of a section, its index in the round, if it is there.
fn places_in(
    (round, by_key): (&[RoundBounds], &ByKey<'_>),
    section: &LoadedSection,
) -> Vec<Option<usize>> {
    let arrays = section.section.arrays.iter().map(|array| {
        by_key.get(&array.key).copied().filter(|at| {
            let reach = &round[*at];
            array.shape.len() == reach.rank() && array.item_size as usize == reach.item_size
        })
    });
    arrays.collect()
}

impl SectionRead {
    fn new(
        section: Arc<LoadedSection>,
        commit: u64,
        entries: Range<usize>,
        round: (&[RoundBounds], &ByKey<'_>),
    ) -> Self {
        let arrays = places_in(round, &section);
        Self { section, commit, arrays, entries: entries.collect() }
    }

    /// Returns the bytes of one element of an entry.
    pub(super) fn item(&self, entry: &Entry) -> u64 {
        u64::from(self.section.section.arrays[entry.array as usize].item_size)
    }

    /// Drops the entries without data for the round. Returns, for each block, whether the round
    /// needs it.
    fn keep_needed(&mut self, round: &[RoundBounds]) -> Vec<bool> {
        let mut needed = vec![false; self.section.section.blocks.len()];
        let mut entries = std::mem::take(&mut self.entries);
        entries.retain(|entry| mark(self, *entry, round, &mut needed));
        self.entries = entries;
        needed
    }

    /// Cuts consecutive blocks into windows, and delivers each.
    fn cut(
        self: &Arc<Self>,
        blocks: Range<usize>,
        window_bytes: u64,
        deliver: &mut dyn FnMut(WindowPlan) -> Result<()>,
    ) -> Result<()> {
        let (mut first, mut bytes) = (blocks.start, 0);
        for at in blocks.clone() {
            bytes += self.section.section.blocks[at].bytes;
            let next = at + 1;
            let follows = blocks.contains(&next).then(|| self.section.section.blocks[next].bytes);
            if follows.is_none_or(|more| bytes + more > window_bytes) {
                deliver(WindowPlan { job: self.clone(), blocks: first..next })?;
                (first, bytes) = (next, 0);
            }
        }
        Ok(())
    }
}

impl WindowPlan {
    /// Reads the window into `bytes`, and checks it. `block` is memory for reads past the page
    /// cache.
    ///
    /// # Errors
    /// `Corrupt` for a damaged block; those of storage.
    pub(super) fn read(self, mut bytes: Vec<u8>, block: &mut ReadBlock) -> Result<Window> {
        let section = &self.job.section;
        let start = self.blocks.start.checked_sub(1).map_or(0, |before| section.ends[before]);
        let (mut length, mut next) = (0, self.blocks.start);
        while next < self.blocks.end {
            let end = end_of_request(&section.section.blocks[..self.blocks.end], next);
            length = read_blocks(section, next..end, &mut bytes, length, block)?;
            next = end;
        }
        Ok(Window { job: self.job, start, bytes, length })
    }
}

/// Returns the end of the blocks from `first` on that one request reads in the form they are stored
/// in.
fn end_of_request(blocks: &[Block], first: usize) -> usize {
    let follows = |last: &Block, next: &Block| {
        last.codec == 0
            && next.codec == 0
            && last.offset.checked_add(last.stored_bytes) == Some(next.offset)
    };
    let more = blocks[first..].windows(2).take_while(|pair| follows(&pair[0], &pair[1]));
    first + 1 + more.count()
}

/// Reads blocks into `bytes` behind its first `length` bytes, and checks them; returns the new
/// length. Several blocks have to be adjacent in the segment and uncompressed.
fn read_blocks(
    section: &LoadedSection,
    numbers: Range<usize>,
    bytes: &mut Vec<u8>,
    length: usize,
    past: &mut ReadBlock,
) -> Result<usize> {
    let blocks = &section.section.blocks[numbers];
    let object = &*section.segment.object;
    for block in blocks {
        if !section.segment.holds(block.offset, block.stored_bytes) {
            return Err(damaged(section, block, "it ends behind the segment"));
        }
    }
    let Some(first) = blocks.first() else { return Ok(length) };
    bytes.truncate(length);
    if first.codec == 0 {
        let stored = blocks.iter().fold(0, |all, block| all + index(block.stored_bytes));
        if let Some(found) = object.read_past(first.offset, stored, past)? {
            check(section, blocks, found)?;
            bytes.extend_from_slice(found);
        } else {
            bytes.resize(length + stored, 0);
            object.read(first.offset, &mut bytes[length..])?;
            check(section, blocks, &bytes[length..])?;
        }
    } else {
        let mut stored = vec![0; index(first.stored_bytes)];
        object.read(first.offset, &mut stored)?;
        let decoded = decode_body(stored, first.codec, first.checksum, first.bytes)
            .map_err(|error| error.of(section.segment.place_of(first.offset)))?;
        bytes.extend_from_slice(&decoded);
    }
    Ok(bytes.len())
}

/// Checks blocks against their checksums; `found` has their stored bytes, one behind the other.
fn check(section: &LoadedSection, blocks: &[Block], mut found: &[u8]) -> Result<()> {
    for block in blocks {
        let (own, more) = found.split_at(index(block.stored_bytes).min(found.len()));
        check_stored(own, block.checksum).map_err(|error| damaged(section, block, error))?;
        found = more;
    }
    Ok(())
}

fn damaged(section: &LoadedSection, block: &Block, text: impl std::fmt::Display) -> Error {
    Error::corrupt(section.segment.place_of(block.offset), text)
}

/// Marks the blocks that have data of an entry for the round; returns false if there are none.
fn mark(job: &SectionRead, number: usize, round: &[RoundBounds], needed: &mut [bool]) -> bool {
    let entry = &job.section.section.entries[number];
    let Some(reach) = job.arrays[entry.array as usize].map(|at| &round[at]) else {
        return false;
    };
    let (begin, item) = (job.section.starts[number], job.item(entry));
    let (low, high) = job.section.bounds(number);
    match reach.position_of(&low, &high) {
        BoxRelation::Outside => return false,
        BoxRelation::Inside => {
            let bytes = job.section.bytes_of(number);
            mark_bytes(&job.section.ends, begin, begin + bytes, needed);
            return bytes > 0;
        }
        BoxRelation::Across => {}
    }
    let boxes = &job.section.section.selections[entry.selection as usize];
    let mut at = begin;
    let mut is_needed = false;
    let (mut start, mut lengths) = (Vec::new(), Vec::new());
    for (corner, count) in boxes.iter() {
        whole_box(entry, corner, count, &mut start, &mut lengths);
        let bytes = count.iter().product::<u64>() * item;
        if reach.touches(&start, &lengths) {
            let (first, last) = reach.span(&start, &lengths);
            mark_bytes(&job.section.ends, at + first * item, at + (last + 1) * item, needed);
            is_needed = true;
        }
        at += bytes;
    }
    is_needed
}

/// Marks the blocks that hold the bytes from `start` to `end` of the section's data.
fn mark_bytes(ends: &[u64], start: u64, end: u64, needed: &mut [bool]) {
    let first = ends.partition_point(|block_end| *block_end <= start);
    let last = ends.partition_point(|block_end| *block_end < end);
    if let Some(needed) = needed.get_mut(first..=last) {
        needed.fill(true);
    }
}

/// Writes a box of an entry, its record index included, into `start` and `lengths`.
pub(super) fn whole_box(
    entry: &Entry,
    corner: &[u64],
    count: &[u64],
    start: &mut Vec<u64>,
    lengths: &mut Vec<u64>,
) {
    start.clear();
    start.extend(entry.record.iter().chain(corner));
    lengths.clear();
    lengths.extend(entry.record.iter().map(|_| 1).chain(count.iter().copied()));
}

impl Window {
    /// Returns the number of bytes of the log in the window.
    pub(super) fn length(&self) -> u64 {
        self.length as u64
    }
}

#[allow(clippy::cast_possible_truncation)]
pub(super) fn index(value: u64) -> usize {
    // The value is a size in memory, so it fits.
    value as usize
}
