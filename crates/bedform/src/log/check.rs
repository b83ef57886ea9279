//! A check of every object that a root names, with a line for each damage.
//!
//! The check uses no cache: each directory, section and block is read from storage. Sections are
//! read in the order of commits, blocks in the order of the data, in long requests. Memory holds
//! one request, and the directories and sections that a [`RootView`] keeps. A damaged object is
//! noted once, with all arrays that it has data of, and the check continues.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use bedform_format::log::{Block, Directory, Table};
use bedform_geometry::{delinearize, element_count, linearize};
use bedform_storage::{ReadBlock, StorageError};

use super::record::{BodyError, check_stored, decode_body};
use super::section::LoadedSection;
use super::view::{LogObjects, RootView};
use crate::error::{Error, ErrorKind, Result};

/// Bytes of a request: the capacity of a [`ReadBlock`]. A single block may be larger.
const WINDOW_BYTES: u64 = 2 << 20;
/// Largest gap in bytes between blocks that one request reads over: a record's head and a small
/// body.
const GAP_BYTES: u64 = 4 << 10;
/// Most array names in a line; further ones are only counted.
const NAMES_MAX: usize = 8;

/// An array whose logged data are checked, and its objects.
pub(crate) struct CheckedArray {
    /// Its identity in the log, if it has one.
    pub(crate) key: Option<[u8; 16]>,
    pub(crate) name: String,
    /// Number of objects along each axis, and elements of an object along each axis.
    pub(crate) grid: Vec<u64>,
    pub(crate) object_shape: Vec<u64>,
    /// Existing objects, by their index in the C order of the grid.
    pub(crate) stored: BTreeSet<u64>,
    /// Objects that do not exist, but of which the log has data; by the same index.
    pub(crate) logged: BTreeSet<u64>,
}

/// The arrays that a check covers.
pub(crate) struct CheckScope {
    pub(crate) arrays: Vec<CheckedArray>,
    /// True to check data of arrays that the store no longer has, too.
    pub(crate) is_all: bool,
}

/// The result of [`check_log`].
#[derive(Default)]
pub(crate) struct LogCheckResult {
    /// One line for each damaged object.
    pub(crate) lines: Vec<String>,
    /// Objects of the log that do not exist: settled and removed if there is a newer root, else
    /// lost.
    pub(crate) missing: BTreeSet<String>,
}

/// Checks all objects that the root of `view` names and that have data of the arrays in `asked`.
/// Calls `step` with the number of sections done and of all sections; an error of `step` ends the
/// check.
///
/// # Errors
/// `Interrupted`; `LimitExceeded` if memory is short.
pub(crate) fn check_log(
    view: &RootView,
    asked: &mut CheckScope,
    step: &mut dyn FnMut(u64, u64) -> Result<()>,
) -> Result<LogCheckResult> {
    let own = view.with(Arc::new(LogObjects::default()));
    let arrays = asked.arrays.iter().enumerate();
    let by_key = arrays.filter_map(|(at, array)| Some((array.key?, at))).collect();
    let (bytes, past) = (Vec::new(), ReadBlock::default());
    let (damages, missing) = (DamageReport::default(), BTreeSet::new());
    let mut check = LogCheck { view: &own, asked, by_key, damages, missing, bytes, past };
    check.run(step)?;
    Ok(check.into_found())
}

/// A section, and the arrays that it touches.
struct CheckedSection {
    segment: String,
    offset: u64,
    stored_bytes: u64,
    keys: BTreeSet<[u8; 16]>,
}

/// Returns the sections of a table's commits, in commit order.
fn sections_of(table: &Table) -> Vec<CheckedSection> {
    let mut sections = BTreeMap::new();
    for row in &table.rows {
        let segment = table.segments.get(row.segment as usize);
        let section = sections.entry((row.commit, row.order)).or_insert_with(|| CheckedSection {
            segment: segment.map(|segment| segment.name.clone()).unwrap_or_default(),
            offset: row.offset,
            stored_bytes: row.stored_bytes,
            keys: BTreeSet::new(),
        });
        section.keys.insert(row.key);
    }
    sections.into_values().collect()
}

/// Returns the sections of a commit.
fn sections_in(directory: &Directory) -> Vec<CheckedSection> {
    let sections = directory.sections.iter().filter_map(|place| {
        Some(CheckedSection {
            segment: directory.segments.get(place.segment as usize)?.clone(),
            offset: place.offset,
            stored_bytes: place.stored_bytes,
            keys: place.arrays.iter().map(|touched| touched.key).collect(),
        })
    });
    sections.collect()
}

struct LogCheck<'a> {
    view: &'a RootView,
    asked: &'a mut CheckScope,
    /// Indices of the arrays in `asked`, by their keys.
    by_key: HashMap<[u8; 16], usize>,
    damages: DamageReport,
    missing: BTreeSet<String>,
    bytes: Vec<u8>,
    past: ReadBlock,
}

/// The damaged objects, each once.
#[derive(Default)]
struct DamageReport {
    all: Vec<DamagedObject>,
    numbers: HashMap<String, usize>,
}

struct DamagedObject {
    text: String,
    arrays: BTreeSet<String>,
}

impl LogCheck<'_> {
    fn run(&mut self, step: &mut dyn FnMut(u64, u64) -> Result<()>) -> Result<()> {
        let root = self.view.root.clone();
        let mut sections = 0;
        for record in &root.tables {
            step(0, 0)?;
            match self.view.whole_table(record) {
                Ok(table) => sections += sections_of(&table).len() as u64,
                Err(error) => {
                    let text = self.text_of(error, &format!("tables/{}", record.name))?;
                    let all = format!("every array in commits {} to {}", record.first, record.last);
                    self.damages.note(text, [all]);
                }
            }
        }
        for commit in &root.commits {
            step(0, 0)?;
            match self.view.directory(commit) {
                Ok(directory) => sections += directory.sections.len() as u64,
                Err(error) => {
                    let text = self.text_of(error, &format!("segments/{}", commit.segment))?;
                    let all = format!("every array in commit {}", commit.number);
                    self.damages.note(text, [all]);
                }
            }
        }
        let mut done = 0;
        let mut check = |own: &mut Self, places: &[CheckedSection]| {
            for place in places {
                step(done, sections)?;
                own.section(place, &mut |_| step(done, sections))?;
                done += 1;
            }
            Ok::<_, Error>(())
        };
        // Damaged tables and directories were noted above.
        for record in &root.tables {
            if let Ok(table) = self.view.whole_table(record) {
                check(self, &sections_of(&table))?;
            }
        }
        for commit in &root.commits {
            if let Ok(directory) = self.view.directory(commit) {
                check(self, &sections_in(&directory))?;
            }
        }
        Ok(())
    }

    fn into_found(self) -> LogCheckResult {
        LogCheckResult { lines: self.damages.into_lines(), missing: self.missing }
    }

    fn asks(&self, key: &[u8; 16]) -> bool {
        self.asked.is_all || self.by_key.contains_key(key)
    }

    /// Returns the names of the covered arrays among `keys`.
    fn names<'k>(&self, keys: impl Iterator<Item = &'k [u8; 16]>) -> BTreeSet<String> {
        let name = |key| match self.by_key.get(key) {
            Some(at) => Some(self.asked.arrays[*at].name.clone()),
            None => self.asked.is_all.then(|| "an array that cannot be opened".to_owned()),
        };
        keys.filter_map(name).collect()
    }

    /// Returns the text of an error at `object`; a missing object is noted.
    ///
    /// # Errors
    /// An error of memory, which tells nothing about the object.
    fn text_of(&mut self, error: Error, object: &str) -> Result<String> {
        if error.is_of_memory() {
            return Err(error);
        }
        // A server reports an object that was removed meanwhile as changed.
        if !matches!(error.kind(), ErrorKind::SnapshotMoved | ErrorKind::Conflict) {
            return Ok(error.to_string());
        }
        self.missing.insert(object.to_owned());
        Ok(format!("{}/{object} is missing: put it back", self.view.place.name()))
    }

    fn section(
        &mut self,
        place: &CheckedSection,
        wait: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        if !place.keys.iter().any(|key| self.asks(key)) {
            return Ok(());
        }
        match self.view.section(&place.segment, place.offset, place.stored_bytes) {
            Ok(section) => {
                self.add_logged(&section);
                self.data(&section, wait)
            }
            Err(error) => {
                let text = self.text_of(error, &format!("segments/{}", place.segment))?;
                let names = self.names(place.keys.iter());
                self.damages.note(text, names);
                Ok(())
            }
        }
    }

    /// Checks the blocks of a section that have data of the covered arrays.
    fn data(
        &mut self,
        section: &LoadedSection,
        wait: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let blocks = section.blocks().0;
        let mut bad: Vec<(usize, String)> = Vec::new();
        let mut first = 0;
        let needed = self.needed(section);
        while first < blocks.len() {
            let end = end_of_window(blocks, &needed, first);
            if end > first {
                wait(0)?;
                self.window(section, first..end, &mut bad)?;
            }
            first = end.max(first + 1);
        }
        for run in bad.chunk_by(|one, next| one.0 + 1 == next.0) {
            self.note_blocks(section, run);
        }
        Ok(())
    }

    fn needed(&self, section: &LoadedSection) -> Vec<bool> {
        let own = &section.section;
        if own.arrays.iter().all(|array| self.asks(&array.key)) {
            return vec![true; own.blocks.len()];
        }
        let mut needed = vec![false; own.blocks.len()];
        for (number, entry) in own.entries.iter().enumerate() {
            if self.asks(&own.arrays[entry.array as usize].key) {
                let start = section.starts[number];
                let end = start + section.bytes_of(number);
                let first = section.ends.partition_point(|block_end| *block_end <= start);
                let behind = section.ends.partition_point(|block_end| *block_end < end) + 1;
                needed[first..behind.min(own.blocks.len())].fill(true);
            }
        }
        needed
    }

    /// Checks the blocks of one request; if that fails, each block in a request of its own.
    fn window(
        &mut self,
        section: &LoadedSection,
        numbers: Range<usize>,
        bad: &mut Vec<(usize, String)>,
    ) -> Result<()> {
        let blocks = &section.blocks().0[numbers.clone()];
        let outside = |block: &Block| !section.segment.holds(block.offset, block.stored_bytes);
        let outcome = match blocks.iter().any(outside) {
            true => Err(None),
            false => self.read(section, blocks, numbers.start).map_err(Some),
        };
        let error = match outcome {
            Ok(problems) => {
                for (number, problem) in problems {
                    let place = section.segment.place_of(section.blocks().0[number].offset);
                    bad.push((number, problem.damage_at(place)?));
                }
                return Ok(());
            }
            Err(error) => error,
        };
        if numbers.len() > 1 {
            return numbers
                .into_iter()
                .try_for_each(|number| self.window(section, number..number + 1, bad));
        }
        let problem = error.map_or_else(
            || "it ends behind the segment".to_owned(),
            |error| format!("it cannot be read: {error}"),
        );
        bad.push((numbers.start, problem));
        Ok(())
    }

    /// Reads the blocks from index `first` on, and returns the damaged ones.
    fn read(
        &mut self,
        section: &LoadedSection,
        blocks: &[Block],
        first: usize,
    ) -> std::result::Result<Vec<(usize, BodyError)>, StorageError> {
        let [front, ..] = blocks else { return Ok(Vec::new()) };
        let end = blocks.iter().map(|block| block.offset + block.stored_bytes).max().unwrap_or(0);
        let length = index(end - front.offset);
        let object = &section.segment.object;
        if let Some(found) = object.read_past(front.offset, length, &mut self.past)? {
            return Ok(problems(blocks, first, found));
        }
        self.bytes.resize(length, 0);
        object.read(front.offset, &mut self.bytes)?;
        Ok(problems(blocks, first, &self.bytes))
    }

    /// Notes adjacent damaged blocks in one line.
    fn note_blocks(&mut self, section: &LoadedSection, run: &[(usize, String)]) {
        let ([(first, problem), ..], [.., (last, _)]) = (run, run) else { return };
        let (blocks, ends) = section.blocks();
        let start = first.checked_sub(1).map_or(0, |before| ends[before]);
        let entries = section.starts.partition_point(|begin| *begin < ends[*last]);
        let before = section.starts.partition_point(|begin| *begin <= start).saturating_sub(1);
        let own = &section.section;
        let keys = own.entries[before..entries].iter();
        let names = self.names(keys.map(|entry| &own.arrays[entry.array as usize].key));
        let problem = match run.len() {
            1 => problem.clone(),
            count => {
                let end = blocks[*last].offset + blocks[*last].stored_bytes;
                format!("{count} blocks, up to byte {end}; of the first: {problem}")
            }
        };
        let object = section.segment.place_of(blocks[*first].offset);
        let error = Error::corrupt(object, problem);
        self.damages.note(error.to_string(), names);
    }

    /// Notes the missing objects of which the section has data.
    fn add_logged(&mut self, section: &LoadedSection) {
        let own = &section.section;
        for entry in &own.entries {
            let Some(at) = self.by_key.get(&own.arrays[entry.array as usize].key) else { continue };
            let array = &mut self.asked.arrays[*at];
            let room = element_count(&array.grid).unwrap_or(u64::MAX);
            if (array.stored.len() + array.logged.len()) as u64 >= room {
                continue;
            }
            for (start, lengths) in own.selections[entry.selection as usize].iter() {
                let record = entry.record.map(|record| (record, record + 1));
                let axes =
                    start.iter().zip(lengths).map(|(start, length)| (*start, start + length));
                array.add_logged(record.into_iter().chain(axes));
            }
        }
    }
}

impl CheckedArray {
    /// Notes the missing objects that a box touches; `axes` has its start and end along each axis.
    fn add_logged(&mut self, axes: impl Iterator<Item = (u64, u64)>) {
        let (first, counts): (Vec<u64>, Vec<u64>) = axes
            .zip(self.object_shape.iter().zip(&self.grid))
            .map(|((start, end), (length, objects))| {
                let first = start / length;
                (first, end.div_ceil(*length).min(*objects).saturating_sub(first))
            })
            .unzip();
        if counts.len() != self.grid.len() {
            return;
        }
        for number in 0..element_count(&counts).unwrap_or(0) {
            let inside = delinearize(number, &counts);
            let at: Vec<u64> = inside.iter().zip(&first).map(|(at, first)| at + first).collect();
            let object = linearize(&at, &self.grid);
            if !self.stored.contains(&object) {
                self.logged.insert(object);
            }
        }
    }
}

impl DamageReport {
    fn note(&mut self, text: String, names: impl IntoIterator<Item = String>) {
        let next = self.all.len();
        let number = *self.numbers.entry(text.clone()).or_insert(next);
        if number == next {
            self.all.push(DamagedObject { text, arrays: BTreeSet::new() });
        }
        self.all[number].arrays.extend(names);
    }

    fn into_lines(self) -> Vec<String> {
        let lines = self.all.into_iter().map(|damage| {
            let more = damage.arrays.len().saturating_sub(NAMES_MAX);
            let names: Vec<String> = damage.arrays.into_iter().take(NAMES_MAX).collect();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{} (it has data of {}{more})", damage.text, names.join(", "))
        });
        lines.collect()
    }
}

/// Returns the end of the needed blocks that one request reads from `first` on.
fn end_of_window(blocks: &[Block], needed: &[bool], first: usize) -> usize {
    let mut end = first;
    let mut behind = blocks[first].offset;
    while end < blocks.len() && needed[end] {
        let (offset, more) = (blocks[end].offset, blocks[end].stored_bytes);
        let follows = offset >= behind && offset - behind <= GAP_BYTES;
        let next = offset.saturating_add(more);
        if end > first && (!follows || next - blocks[first].offset > WINDOW_BYTES) {
            break;
        }
        (behind, end) = (next, end + 1);
    }
    end
}

/// Returns the damaged blocks; `found` has the stored bytes from the first block on.
fn problems(blocks: &[Block], first: usize, found: &[u8]) -> Vec<(usize, BodyError)> {
    let front = blocks.first().map_or(0, |block| block.offset);
    let problem = |(number, block): (usize, &Block)| {
        let start = index(block.offset - front);
        let stored = found.get(start..start + index(block.stored_bytes)).unwrap_or_default();
        let problem = match block.codec {
            0 => check_stored(stored, block.checksum).err(),
            codec => decode_body(stored.to_vec(), codec, block.checksum, block.bytes).err(),
        };
        problem.map(|problem| (number, problem))
    };
    (first..).zip(blocks).filter_map(problem).collect()
}

#[allow(clippy::cast_possible_truncation)]
fn index(value: u64) -> usize {
    // The value is a size in memory, checked against the limits when its section was decoded.
    value as usize
}
