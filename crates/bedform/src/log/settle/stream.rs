//! The data of a round, read in the order in which they lie in the log.
//!
//! What a writer wrote in one commit is a run of blocks: those that hold something for the round are
//! read once, one behind the other, checked, and laid. Where the order in which writes count is not
//! the order in which they lie (the epochs of several writers alternate), the parts of each are read
//! in the order that counts.

use std::ops::Range;
use std::sync::Arc;

use bedform_format::checksum::crc32c;
use bedform_format::log::{Block, Directory, Entry, SectionPlace, Touched};

use super::lay::{Building, Reach, split};
use crate::error::{Error, ErrorKind, Result};
use crate::log::section::LoadedSection;
use crate::log::segment::decode_body;
use crate::log::view::View;

/// Entries of one writer that follow each other, of one epoch and rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Group {
    epoch: u32,
    rank: u32,
    /// Which section of the directory.
    section: usize,
    first: usize,
    end: usize,
}

/// Bytes of the log, one behind the other in the data of one section.
pub(super) struct Window {
    job: Arc<Job>,
    /// Of the first byte in the section's data.
    start: u64,
    pub(super) bytes: Vec<u8>,
    /// Bytes of `bytes` that count.
    length: usize,
}

/// Entries of a section that have something for the round.
pub(super) struct Job {
    section: Arc<LoadedSection>,
    commit: u64,
    /// Of each array of the section its place in the round.
    arrays: Vec<Option<usize>>,
    entries: Vec<usize>,
}

/// Calls `deliver` with windows of about `window_bytes` that together are all data that
/// `round` needs, in the order in which they are to be laid. It gives memory back to be used again.
///
/// # Errors
/// `Corrupt` for damaged records; those of storage and of `deliver`.
pub(super) fn read_round(
    view: &View,
    round: &[Reach],
    window_bytes: usize,
    deliver: &mut dyn FnMut(Window) -> Result<Vec<u8>>,
) -> Result<()> {
    let after = round.iter().map(|reach| reach.contained).min().unwrap_or(u64::MAX);
    let mut reader = Reader { window_bytes, buffer: Vec::new() };
    for commit in view.root.commits.iter().filter(|commit| commit.number > after) {
        let directory = view.directory(commit)?;
        for group in groups(view, &directory, round)? {
            let section = view.section_of(&directory, &directory.sections[group.section])?;
            let job = Job::new(section, commit.number, group.first..group.end, round);
            reader.read(Arc::new(job), round, deliver)?;
        }
    }
    Ok(())
}

/// The groups of a commit that may have something for the round, in the order in which they count.
fn groups(view: &View, directory: &Directory, round: &[Reach]) -> Result<Vec<Group>> {
    let mut groups = Vec::new();
    for (number, place) in directory.sections.iter().enumerate() {
        if !has_part(place, round) {
            continue;
        }
        let section = view.section_of(directory, place)?;
        let entries = &section.section.entries;
        let key = |entry: &Entry| (entry.epoch, entry.rank);
        let mut first = 0;
        for run in entries.chunk_by(|one, next| key(one) == key(next)) {
            let (epoch, rank) = key(&run[0]);
            let end = first + run.len();
            groups.push(Group { epoch, rank, section: number, first, end });
            first = end;
        }
    }
    // Stable: groups of one writer stay in the order of writing.
    groups.sort_by_key(|group| (group.epoch, group.rank));
    Ok(groups)
}

fn has_part(place: &SectionPlace, round: &[Reach]) -> bool {
    let is_ours = |part: &Touched, reach: &Reach| {
        let lengths = || part.start.iter().zip(&part.end).map(|(start, end)| end - start);
        part.key == reach.key
            && part.start.len() == reach.rank()
            && reach.touches(&part.start, &lengths().collect::<Vec<u64>>())
    };
    place.arrays.iter().any(|part| round.iter().any(|reach| is_ours(part, reach)))
}

/// Where in the round the array of a section is.
fn place_in(round: &[Reach], section: &LoadedSection) -> Vec<Option<usize>> {
    let arrays = section.section.arrays.iter().map(|array| {
        round.iter().position(|reach| {
            array.key == reach.key
                && array.shape.len() == reach.rank()
                && array.item_size as usize == reach.item_size
        })
    });
    arrays.collect()
}

impl Job {
    fn new(
        section: Arc<LoadedSection>,
        commit: u64,
        entries: Range<usize>,
        round: &[Reach],
    ) -> Self {
        let arrays = place_in(round, &section);
        Self { section, commit, arrays, entries: entries.collect() }
    }

    fn item(&self, entry: &Entry) -> u64 {
        u64::from(self.section.section.arrays[entry.array as usize].item_size)
    }
}

struct Reader {
    window_bytes: usize,
    buffer: Vec<u8>,
}

impl Reader {
    /// Reads what a job needs.
    fn read(
        &mut self,
        mut job: Arc<Job>,
        round: &[Reach],
        deliver: &mut dyn FnMut(Window) -> Result<Vec<u8>>,
    ) -> Result<()> {
        let mut needed = vec![false; job.section.section.blocks.len()];
        if let Some(job) = Arc::get_mut(&mut job) {
            let all = std::mem::take(&mut job.entries);
            job.entries =
                all.into_iter().filter(|entry| mark(job, *entry, round, &mut needed)).collect();
        }
        let mut first = 0;
        for run in needed.chunk_by(|one, next| one == next) {
            let end = first + run.len();
            if run[0] {
                self.read_run(&job, first..end, deliver)?;
            }
            first = end;
        }
        Ok(())
    }

    /// Reads blocks that follow each other.
    fn read_run(
        &mut self,
        job: &Arc<Job>,
        blocks: Range<usize>,
        deliver: &mut dyn FnMut(Window) -> Result<Vec<u8>>,
    ) -> Result<()> {
        let section = &job.section;
        let mut start = if blocks.start == 0 { 0 } else { section.ends[blocks.start - 1] };
        let mut bytes = std::mem::take(&mut self.buffer);
        let (mut length, mut next) = (0, blocks.start);
        while next < blocks.end {
            let room = self.window_bytes.saturating_sub(length) as u64;
            let end = end_of_request(&section.section.blocks[..blocks.end], next, room);
            length = read_blocks(section, next..end, &mut bytes, length)?;
            next = end;
            if length >= self.window_bytes || next == blocks.end {
                bytes = deliver(Window { job: job.clone(), start, bytes, length })?;
                start = section.ends[next - 1];
                length = 0;
            }
        }
        self.buffer = bytes;
        Ok(())
    }
}

/// The end of the blocks from `first` on that one request gives as they are stored, of at most `room`
/// bytes but at least one block.
fn end_of_request(blocks: &[Block], first: usize, room: u64) -> usize {
    let mut end = first + 1;
    let mut bytes = blocks[first].stored_bytes;
    while let Some(next) = blocks.get(end) {
        let last = &blocks[end - 1];
        let follows = last.offset.checked_add(last.stored_bytes) == Some(next.offset);
        bytes = bytes.saturating_add(next.stored_bytes);
        if last.codec != 0 || next.codec != 0 || !follows || bytes > room {
            break;
        }
        end += 1;
    }
    end
}

/// Reads blocks, more than one only if they lie in the segment as in the data, behind the first `length`
/// bytes of `bytes`, and checks them; gives the new length.
fn read_blocks(
    section: &LoadedSection,
    numbers: Range<usize>,
    bytes: &mut Vec<u8>,
    length: usize,
) -> Result<usize> {
    let blocks = &section.section.blocks[numbers];
    let object = &*section.segment.object;
    let name = |block: &Block| format!("segment {} at byte {}", section.segment.name, block.offset);
    for block in blocks {
        if !section.segment.holds(block.offset, block.stored_bytes) {
            return Err(Error::corrupt(name(block), "it ends behind the segment"));
        }
    }
    let Some(first) = blocks.first() else { return Ok(length) };
    let decoded = |block: &Block| usize::try_from(block.bytes).unwrap_or(usize::MAX);
    let end = blocks.iter().fold(length, |end, block| end.saturating_add(decoded(block)));
    if first.codec == 0 {
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        let mut rest = &mut bytes[length..end];
        object.read(first.offset, rest)?;
        for block in blocks {
            let (own, more) = rest.split_at_mut(decoded(block));
            let (found, expected) = (crc32c(own), block.checksum);
            if found != expected {
                let text = format!("it has checksum {found:08x}, expected {expected:08x}");
                return Err(Error::corrupt(name(block), text));
            }
            rest = more;
        }
        return Ok(end);
    }
    let mut stored = vec![0; usize::try_from(first.stored_bytes).unwrap_or(usize::MAX)];
    object.read(first.offset, &mut stored)?;
    let decoded = decode_body(stored, first.codec, first.checksum, first.bytes)
        .map_err(|problem| Error::corrupt(name(first), problem))?;
    bytes.truncate(length);
    bytes.extend_from_slice(&decoded);
    Ok(end)
}

/// Marks the blocks that hold something of an entry for the round; false if there are none.
fn mark(job: &Job, number: usize, round: &[Reach], needed: &mut [bool]) -> bool {
    let entry = &job.section.section.entries[number];
    let Some(reach) = job.arrays[entry.array as usize].map(|at| &round[at]) else {
        return false;
    };
    let boxes = &job.section.section.selections[entry.selection as usize];
    let item = job.item(entry);
    let mut at = job.section.starts[number];
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

/// Marks the blocks that hold the bytes from `start` to `end`.
fn mark_bytes(ends: &[u64], start: u64, end: u64, needed: &mut [bool]) {
    let first = ends.partition_point(|block_end| *block_end <= start);
    let last = ends.partition_point(|block_end| *block_end < end);
    if let Some(needed) = needed.get_mut(first..=last) {
        needed.fill(true);
    }
}

/// A box of an entry with its record.
fn whole_box(
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

/// Lays windows over chunks, as they come.
#[derive(Default)]
pub(super) struct Layer {
    job: Option<Arc<Job>>,
    /// Which of the job's entries, which box of it, and where in the section's data that box begins.
    entry: usize,
    part: usize,
    at: u64,
    /// The front of an element whose end is in the next window, and where that begins.
    carry: Vec<u8>,
    carried_to: u64,
    start: Vec<u64>,
    lengths: Vec<u64>,
}

impl Layer {
    /// Lays what a window holds.
    ///
    /// # Errors
    /// As [`Building::lay`].
    pub(super) fn lay(&mut self, window: &Window, round: &mut [Building<'_>]) -> Result<()> {
        if !self.job.as_ref().is_some_and(|job| Arc::ptr_eq(job, &window.job)) {
            *self = Self { job: Some(window.job.clone()), ..Self::default() };
            self.at =
                window.job.entries.first().map_or(0, |entry| window.job.section.starts[*entry]);
        }
        let job = &*window.job;
        let section = &job.section.section;
        let end = window.start + window.length as u64;
        let (mut start, mut lengths) =
            (std::mem::take(&mut self.start), std::mem::take(&mut self.lengths));
        while let Some(number) = job.entries.get(self.entry) {
            let entry = &section.entries[*number];
            let boxes = &section.selections[entry.selection as usize];
            let item = job.item(entry);
            let building = job.arrays[entry.array as usize].and_then(|at| round.get_mut(at));
            let Some(building) = building else {
                return Err(Error::new(ErrorKind::Io, "internal error: an entry of no array"));
            };
            while let Some((corner, count)) = boxes.get(self.part) {
                let bytes = count.iter().product::<u64>() * item;
                if self.at >= end {
                    (self.start, self.lengths) = (start, lengths);
                    return Ok(());
                }
                if self.at + bytes > window.start {
                    whole_box(entry, corner, count, &mut start, &mut lengths);
                    if building.reach.touches(&start, &lengths) {
                        self.lay_box(window, building, (&start, &lengths), item, bytes)?;
                    }
                    if self.at + bytes > end {
                        (self.start, self.lengths) = (start, lengths);
                        return Ok(());
                    }
                }
                self.at += bytes;
                self.part += 1;
            }
            self.part = 0;
            self.entry += 1;
            self.at = job.entries.get(self.entry).map_or(0, |entry| job.section.starts[*entry]);
        }
        (self.start, self.lengths) = (start, lengths);
        Ok(())
    }

    /// Lays the part of a box, which begins at `self.at`, that lies in the window.
    fn lay_box(
        &mut self,
        window: &Window,
        building: &mut Building<'_>,
        (start, lengths): (&[u64], &[u64]),
        item: u64,
        bytes: u64,
    ) -> Result<()> {
        let (data, commit) = (&window.bytes[..window.length], window.job.commit);
        let end = window.start + window.length as u64;
        let behind = self.at + bytes;
        if self.at >= window.start && behind <= end {
            let from = index(self.at - window.start);
            return building.lay(commit, start, lengths, &data[from..from + index(bytes)]);
        }
        let mut first = window.start.saturating_sub(self.at).div_ceil(item);
        let last = (end.min(behind) - self.at) / item;
        let mut from = index((self.at + first * item).saturating_sub(window.start));
        if !self.carry.is_empty() && self.carried_to == window.start && self.at < window.start {
            // The element that the window before has the front of.
            let missing = index(item).saturating_sub(self.carry.len());
            self.carry.extend_from_slice(&data[..missing.min(data.len())]);
            self.carried_to = end;
            if missing > data.len() {
                return Ok(());
            }
            let one = std::mem::take(&mut self.carry);
            split(start, lengths, (first - 1, first), &mut |corner, count| {
                building.lay(commit, corner, count, &one)
            })?;
        }
        // Behind an element that the window before has not the front of, which nobody needs.
        first = first.min(last);
        split(start, lengths, (first, last), &mut |corner, count| {
            let length = index(count.iter().product::<u64>() * item);
            let part = &data[from..from + length];
            from += length;
            match building.reach.touches(corner, count) {
                true => building.lay(commit, corner, count, part),
                false => Ok(()),
            }
        })?;
        self.carry.clear();
        let whole = self.at + last * item;
        if behind > end && whole >= window.start {
            self.carry.extend_from_slice(&data[index(whole - window.start)..]);
            self.carried_to = end;
        }
        Ok(())
    }
}

impl Window {
    /// Bytes of the log that it holds.
    pub(super) fn length(&self) -> u64 {
        self.length as u64
    }
}

#[allow(clippy::cast_possible_truncation)]
fn index(value: u64) -> usize {
    // Sizes of what is in memory.
    value as usize
}
