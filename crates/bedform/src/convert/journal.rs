//! Which regions of a conversion are done.
//!
//! Two objects of the work directory hold one line for each finished region: `done` grows while a conversion
//! runs, `done.earlier` has what earlier runs had finished. A line is appended after the write of its region
//! returned, which is when the region is durable, so that no line claims what a crash can take back. A lost
//! line costs the region a second write and nothing else, so lines need not be durable themselves: they are
//! handed to the system every few regions, and synced at the end of a run.
//!
//! A line is the CRC-32C of the rest, eight hexadecimal digits, and JSON: the array's path, the random key of
//! the array in the store, the region's start.
//!
//! ```text
//! 1d0c37ae ["t","6f2a91c40b7de35883a0d6f4be192c57",[50,0,0]]
//! ```
//!
//! The key ties a line to one array: marks of an array that was removed and created again claim nothing. What is
//! not such a line is ignored: torn ones, and the zeros with which a growing object is padded.

use std::collections::HashSet;

use bedform_format::checksum::crc32c;
use bedform_format::{ObjectPath, metadata};
use bedform_storage::{Condition, Durability, GrowingObject, Storage, StorageExt};
use serde_json::json;

use crate::error::{Error, ErrorKind, Result};

const CURRENT: &str = "done";
const EARLIER: &str = "done.earlier";
/// Marks are handed to the system after so many bytes of regions: each time costs a padded block.
const FLUSH_BYTES: u64 = 256 << 10;
/// Marks are made durable after so many bytes of regions.
const SYNC_BYTES: u64 = 1 << 30;
/// Marks of a hundred million regions.
const JOURNAL_BYTES_MAX: u64 = 8 << 30;

/// A finished region, as a line has it.
pub(super) fn mark(array: &str, key: &[u8; 16], start: &[u64]) -> String {
    let text = json!([array, metadata::hex(key), start]).to_string();
    format!("{:08x} {text}", crc32c(text.as_bytes()))
}

/// The whole lines of a journal.
fn parse(bytes: &[u8]) -> impl Iterator<Item = &str> {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    lines.filter_map(|line| {
        let line = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?.trim_start_matches('\0');
        let (sum, text) = line.split_once(' ')?;
        (sum == format!("{:08x}", crc32c(text.as_bytes()))).then_some(line)
    })
}

/// The journal of a run.
pub(super) struct Journal {
    done: HashSet<String>,
    growing: Box<dyn GrowingObject>,
    /// Bytes of regions whose marks are not with the system, and not durable.
    unflushed: u64,
    unsynced: u64,
}

impl Journal {
    /// Takes up what earlier runs have left in `directory`, and begins to write there.
    ///
    /// # Errors
    /// Those of storage.
    pub(super) fn open(storage: &dyn Storage, directory: &ObjectPath) -> Result<Self> {
        let (current, earlier) = (directory.join(CURRENT)?, directory.join(EARLIER)?);
        let mut done = HashSet::new();
        let last = read(storage, &current)?;
        for bytes in [read(storage, &earlier)?, last.clone()].iter().flatten() {
            done.extend(parse(bytes).map(str::to_owned));
        }
        if last.is_some() {
            // First kept elsewhere, durably, then removed: marks are never in neither place.
            let mut lines: Vec<&str> = done.iter().map(String::as_str).collect();
            lines.sort_unstable();
            let text = lines.iter().fold(String::new(), |text, line| text + line + "\n");
            storage.put(&earlier, text.as_bytes(), Durability::Disk, Condition::None)?;
            storage.delete(&current, Durability::Disk, Condition::None)?;
        }
        let growing = storage.grow(&current, Durability::Disk, None)?;
        Ok(Self { done, growing, unflushed: 0, unsynced: 0 })
    }

    /// Removes all marks from `directory`, durably.
    ///
    /// # Errors
    /// Those of storage.
    pub(super) fn remove(storage: &dyn Storage, directory: &ObjectPath) -> Result<()> {
        for name in [CURRENT, EARLIER] {
            storage.delete(&directory.join(name)?, Durability::Disk, Condition::None)?;
        }
        Ok(())
    }

    /// True if an earlier run has finished the region of this mark.
    pub(super) fn is_done(&self, mark: &str) -> bool {
        self.done.contains(mark)
    }

    /// Notes that a region of `bytes` is finished and durable.
    ///
    /// # Errors
    /// Those of storage.
    pub(super) fn note(&mut self, mark: &str, bytes: u64) -> Result<()> {
        self.growing.append(format!("{mark}\n").as_bytes())?;
        self.unflushed = self.unflushed.saturating_add(bytes);
        self.unsynced = self.unsynced.saturating_add(bytes);
        if self.unsynced >= SYNC_BYTES {
            self.sync()
        } else if self.unflushed >= FLUSH_BYTES {
            self.unflushed = 0;
            Ok(self.growing.flush()?)
        } else {
            Ok(())
        }
    }

    /// Makes all marks durable.
    ///
    /// # Errors
    /// Those of storage.
    pub(super) fn sync(&mut self) -> Result<()> {
        (self.unflushed, self.unsynced) = (0, 0);
        Ok(self.growing.sync()?)
    }
}

fn read(storage: &dyn Storage, path: &ObjectPath) -> Result<Option<Vec<u8>>> {
    let Some(object) = storage.find(path)? else { return Ok(None) };
    let size = object.version().size;
    if size > JOURNAL_BYTES_MAX {
        let text = format!("{path:?}: {size} bytes of finished regions are over the limit");
        return Err(Error::new(ErrorKind::LimitExceeded, text));
    }
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
    object.read(0, &mut bytes)?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use bedform_storage::MemoryStorage;

    use super::*;

    const KEY: [u8; 16] = [7; 16];

    #[test]
    fn only_whole_lines_are_marks() {
        let marks = ["t", "u/\"v\"\n"].map(|name| mark(name, &KEY, &[50, 0]));
        let mut bytes = format!("{}\n", marks[0]).into_bytes();
        bytes.extend([0; 100]);
        bytes.extend(format!("{}\n", marks[1]).into_bytes());
        assert_eq!(parse(&bytes).collect::<Vec<_>>(), marks);
        // Torn anywhere, a line is none.
        let first = marks[0].len();
        for length in 0..=first {
            assert_eq!(parse(&bytes[..length]).count(), 0);
            let mut torn = bytes.clone();
            torn[length.min(first - 1)] ^= 1;
            assert_eq!(parse(&torn).collect::<Vec<_>>(), [marks[1].as_str()]);
        }
    }

    #[test]
    fn marks_stay_from_run_to_run() {
        let storage = MemoryStorage::new();
        let work = ObjectPath::parse("work").unwrap();
        for run in 0..4_u64 {
            let mut journal = Journal::open(&storage, &work).unwrap();
            for earlier in 0..4 {
                assert_eq!(journal.is_done(&mark("t", &KEY, &[earlier])), earlier < run);
                assert!(!journal.is_done(&mark("t", &[8; 16], &[earlier])));
            }
            journal.note(&mark("t", &KEY, &[run]), 1).unwrap();
            journal.sync().unwrap();
        }
        Journal::remove(&storage, &work).unwrap();
        let journal = Journal::open(&storage, &work).unwrap();
        assert!(!journal.is_done(&mark("t", &KEY, &[0])));
    }
}
