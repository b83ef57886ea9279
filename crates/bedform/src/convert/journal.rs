//! The journal of a conversion: its finished regions.
//!
//! Two objects of the work directory hold one line for each finished region: `done` grows while a
//! conversion runs, `done.earlier` has the regions of earlier runs. A line is appended after the
//! write of its region has returned, and that write is durable. So no line names a region that a
//! crash can lose. A lost line costs a second write of the region and nothing else, so lines need
//! not be durable at once. They are flushed to the system every 4 MiB of regions, and synced every
//! GiB and at the end of a run.
//!
//! A line is the CRC-32C of the rest, eight hexadecimal digits, and JSON: the array's path, the
//! random key of the array in the store, the region's start.
//!
//! ```text
//! 1d0c37ae ["t","6f2a91c40b7de35883a0d6f4be192c57",[50,0,0]]
//! ```
//!
//! The key ties a line to one array: marks of an array that was removed and created again do not
//! count. Other bytes are ignored: torn lines, and the zeros that pad a growing object.

use std::collections::HashSet;

use bedform_format::checksum::crc32c;
use bedform_format::{ObjectPath, metadata};
use bedform_storage::{
    Condition, Durability, GrowingObject, Object, ObjectWriter, Storage, StorageExt, WriteHint,
};
use serde_json::json;

use super::state::fingerprint;
use crate::error::Result;

const CURRENT: &str = "done";
const EARLIER: &str = "done.earlier";
/// Bytes of regions after which marks are flushed to the system: each flush costs a padded block.
const FLUSH_BYTES: u64 = 4 << 20;
/// Bytes of regions after which marks are made durable.
const SYNC_BYTES: u64 = 1 << 30;
/// Bytes of a journal that are read at a time.
const PIECE_BYTES: usize = 64 << 10;
/// The most bytes of a line: a path has 1,024 bytes, a start at most 32 numbers.
const LINE_BYTES_MAX: usize = 16 << 10;

/// Makes the line of a finished region.
pub(super) fn mark(array: &str, key: &[u8; 16], start: &[u64]) -> String {
    let text = json!([array, metadata::hex(key), start]).to_string();
    format!("{:08x} {text}", crc32c(text.as_bytes()))
}

/// The mark in a line without its end; `None` if the checksum does not match.
fn parse(line: &[u8]) -> Option<&str> {
    let line = std::str::from_utf8(line).ok()?.trim_start_matches('\0');
    let (sum, text) = line.split_once(' ')?;
    (sum == format!("{:08x}", crc32c(text.as_bytes()))).then_some(line)
}

/// Calls `visit` with every mark of a journal, which is read in pieces.
fn each_mark(object: &dyn Object, visit: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    let (mut line, mut at) = (Vec::new(), 0_u64);
    while at < object.version().size {
        let left = usize::try_from(object.version().size - at).unwrap_or(PIECE_BYTES);
        let piece = &mut piece[..left.min(PIECE_BYTES)];
        object.read(at, piece)?;
        at += piece.len() as u64;
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            let (part, is_whole) = match part.strip_suffix(b"\n") {
                Some(part) => (part, true),
                None => (part, false),
            };
            // Padding: no line begins with a zero byte.
            let padding = if line.is_empty() {
                part.iter().take_while(|byte| **byte == 0).count()
            } else {
                0
            };
            line.extend_from_slice(&part[padding..]);
            if is_whole && let Some(mark) = parse(&line) {
                visit(mark)?;
            }
            if is_whole || line.len() > LINE_BYTES_MAX {
                line.clear();
            }
        }
    }
    Ok(())
}

/// The journal of a run.
pub(super) struct Journal {
    /// Fingerprints of the marks of earlier runs, instead of the marks: there may be millions.
    done: HashSet<u128>,
    growing: Box<dyn GrowingObject>,
    /// Bytes of regions whose marks are not flushed yet, and not durable yet.
    unflushed: u64,
    unsynced: u64,
}

impl Journal {
    /// Merges the journals of earlier runs in `directory`, and opens a new one there.
    ///
    /// # Errors
    /// Those of storage.
    pub(super) fn open(storage: &dyn Storage, directory: &ObjectPath) -> Result<Self> {
        let (current, earlier) = (directory.join(CURRENT)?, directory.join(EARLIER)?);
        let last = storage.find(&current)?;
        // First copied durably, then removed, so that marks are always in one of the two places.
        let mut kept = match last {
            Some(_) => Some(storage.create(&earlier, Durability::Disk, WriteHint::default())?),
            None => None,
        };
        let mut done = HashSet::new();
        for object in storage.find(&earlier)?.into_iter().chain(last) {
            each_mark(&*object, &mut |mark| {
                let is_new = done.insert(fingerprint(mark.as_bytes()));
                match &mut kept {
                    Some(kept) if is_new => append(&mut **kept, mark),
                    _ => Ok(()),
                }
            })?;
        }
        if let Some(kept) = kept {
            kept.publish(Condition::None)?;
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
        self.done.contains(&fingerprint(mark.as_bytes()))
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

fn append(writer: &mut dyn ObjectWriter, mark: &str) -> Result<()> {
    Ok(writer.append(format!("{mark}\n").as_bytes())?)
}

#[cfg(test)]
mod tests {
    use bedform_storage::MemoryStorage;
    use proptest::prelude::*;

    use super::*;

    const KEY: [u8; 16] = [7; 16];

    fn marks_in(bytes: &[u8]) -> Vec<String> {
        let storage = MemoryStorage::new();
        let path = ObjectPath::parse("done").unwrap();
        storage.put(&path, bytes, Durability::Process, Condition::None).unwrap();
        let mut marks = Vec::new();
        let object = storage.open(&path).unwrap();
        each_mark(&*object, &mut |mark| {
            marks.push(mark.to_owned());
            Ok(())
        })
        .unwrap();
        marks
    }

    #[test]
    fn only_whole_lines_are_marks() {
        let marks = ["t", "u/\"v\"\n"].map(|name| mark(name, &KEY, &[50, 0]));
        let mut bytes = format!("{}\n", marks[0]).into_bytes();
        bytes.extend(vec![0; 3 * PIECE_BYTES]);
        bytes.extend(format!("{}\n", marks[1]).into_bytes());
        assert_eq!(marks_in(&bytes), marks);
        // A torn line is no mark, wherever it is torn.
        let first = marks[0].len();
        for length in 0..=first {
            assert!(marks_in(&bytes[..length]).is_empty());
            let mut torn = bytes.clone();
            torn[length.min(first - 1)] ^= 1;
            assert_eq!(marks_in(&torn), marks[1..]);
        }
    }

    #[test]
    fn lines_that_lie_in_two_pieces_are_whole() {
        let marks: Vec<String> = (0..5000).map(|at| mark("t", &KEY, &[at, 7])).collect();
        let text = marks.iter().fold(String::new(), |text, mark| text + mark + "\n");
        assert!(text.len() > 3 * PIECE_BYTES);
        assert_eq!(marks_in(text.as_bytes()), marks);
    }

    proptest! {
        #[test]
        fn junk_is_no_mark(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            prop_assert!(marks_in(&bytes).is_empty());
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
