//! Renewal: a source that was moved, or copied with its times, and is the same.
//!
//! `rsync -a`, `mv` there and back, and the recall of a file from a tape archive leave size and time of change of a
//! file as they were, and change its number or the time of change of its attributes. What was made of it would count
//! for nothing. So pieces of the file, evenly spaced, are remembered by their checksums when something large is made
//! of it. Where a later state differs from a known one by number and by the time of its attributes alone, these
//! pieces are compared; if all are the same, the states are, and every helper file of one is of the other, too.
//!
//! Objects of a store are compared one by one, in `replica` and `array/redirect`.
//!
//! Not noticed are bytes that were changed in place between the pieces of a file whose time of change was put back.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::PoisonError;
use std::time::{SystemTime, UNIX_EPOCH};

use bedform_format::Limits;
use bedform_format::checksum::crc32c;
use bedform_format::chunk_map::SourceVersion;
use bedform_format::sealed::{from_sealed, to_sealed};
use bedform_storage::{Storage, open_without_waiting};
use serde::{Deserialize, Serialize};

use super::{Helper, Sidecar, source_version_of};

/// The name of the helper file.
pub(super) const STATES: &str = "states";
const VERSION: u64 = 1;
/// Pieces of a file, and bytes of one: 1 MiB, which is all of a small file.
const PIECES: u64 = 256;
const PIECE_BYTES: u64 = 4096;
/// States that are remembered as the same, the last ones.
const SAME_MAX: usize = 64;
/// A file that changed so short before it was sampled may have changed again with the same time.
const YOUNG_NS: i64 = 2_000_000_000;

/// States of a source that are known to be the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct States {
    version: u64,
    /// That of which pieces were read.
    source: SourceVersion,
    /// When that was, in nanoseconds since 1970.
    sampled_ns: i64,
    /// Where each piece begins, and its CRC-32C.
    pieces: Vec<(u64, u32)>,
    /// The other states.
    same: Vec<SourceVersion>,
}

impl Helper for States {
    const BYTES_MAX: u64 = 64 << 10;

    fn encode(&self) -> Option<Vec<u8>> {
        to_sealed(self)
    }

    fn decode(bytes: &[u8], _: &Limits) -> Option<Self> {
        let found: Self = from_sealed(bytes)?;
        let is_valid = found.version == VERSION
            && found.same.len() <= SAME_MAX
            && found.pieces.iter().map(|(start, _)| *start).eq(starts(found.source.size));
        is_valid.then_some(found)
    }

    fn source(&self) -> Option<&SourceVersion> {
        Some(&self.source)
    }

    fn renewed(self, source: &SourceVersion) -> Self {
        Self { source: source.clone(), ..self }
    }
}

impl States {
    /// Reads pieces of the file at `path` in the state `source`; nothing if it is in another.
    fn of_file(path: &Path, source: &SourceVersion) -> Option<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        let pieces = pieces_of(path, source, starts(source.size))?;
        let sampled_ns = i64::try_from(now.as_nanos()).ok()?;
        let source = source.clone();
        Some(Self { version: VERSION, source, sampled_ns, pieces, same: Vec::new() })
    }

    fn knows(&self, state: &SourceVersion) -> bool {
        self.source == *state || self.same.contains(state)
    }

    /// True if the file at `path` is in the state `now`, and all pieces of it are as they were.
    fn are_in(&self, path: &Path, now: &SourceVersion) -> bool {
        may_be_same(&self.source, now, self.sampled_ns)
            && pieces_of(path, now, starts(now.size)).as_ref() == Some(&self.pieces)
    }
}

/// Where the pieces of a file of this length begin: one after the other in a small one.
fn starts(size: u64) -> impl Iterator<Item = u64> {
    let count = size.div_ceil(PIECE_BYTES).min(PIECES);
    let last = size.saturating_sub(PIECE_BYTES);
    let is_small = size <= PIECES * PIECE_BYTES;
    (0..count).map(move |number| match is_small {
        true => number * PIECE_BYTES,
        false => {
            let start = u128::from(last) * u128::from(number) / u128::from(count - 1);
            u64::try_from(start).unwrap_or(last)
        }
    })
}

/// The pieces of the file at `path`, which is in the state `source` before and after; else nothing.
fn pieces_of(
    path: &Path,
    source: &SourceVersion,
    starts: impl Iterator<Item = u64>,
) -> Option<Vec<(u64, u32)>> {
    let file = open_without_waiting(path).ok()?;
    let is_same = |file: &File| {
        file.metadata().is_ok_and(|found| found.is_file() && source_version_of(&found) == *source)
    };
    if !is_same(&file) {
        return None;
    }
    let mut buffer = vec![0; usize::try_from(PIECE_BYTES).ok()?];
    let mut pieces = Vec::new();
    for start in starts {
        let length = usize::try_from(PIECE_BYTES.min(source.size - start)).ok()?;
        file.read_exact_at(&mut buffer[..length], start).ok()?;
        pieces.push((start, crc32c(&buffer[..length])));
    }
    is_same(&file).then_some(pieces)
}

/// True for states that may be the same, of the first of which pieces were read at a time, in nanoseconds since 1970.
pub(crate) fn may_be_same(then: &SourceVersion, now: &SourceVersion, sampled_ns: i64) -> bool {
    then.modified_ns <= sampled_ns.saturating_sub(YOUNG_NS) && are_alike(then, now)
}

/// True for states of one length and one time of change.
fn are_alike(then: &SourceVersion, now: &SourceVersion) -> bool {
    let is_known = then.modified_ns != 0 && then.identity != (0, 0) && now.identity != (0, 0);
    is_known && then.size == now.size && then.modified_ns == now.modified_ns
}

impl Sidecar {
    /// Remembers pieces of the source, which is a file in the state `source`: what is made of it then counts for later
    /// states that are the same.
    pub(crate) fn remember_state(&self, source: &SourceVersion) {
        let (Some(path), Some(storage)) = (self.source(), self.holder.to_read()) else { return };
        let known: Option<States> = self.read_any(&*storage, STATES, &Limits::default());
        if known.is_some_and(|known| known.knows(source)) {
            return;
        }
        if let Some(states) = States::of_file(path, source) {
            self.save_states(&states);
        }
    }

    fn save_states(&self, states: &States) {
        if self.save(STATES, states) {
            // The umask of an owner of a site may hide them from its users.
            self.open_to_readers(&[]);
        }
    }

    /// True if what was made of the source in the state `then` is of the state `now`, too, in which it is now.
    pub(super) fn is_same_source(
        &self,
        storage: &dyn Storage,
        then: &SourceVersion,
        now: &SourceVersion,
    ) -> bool {
        if then == now {
            return true;
        }
        if !are_alike(then, now) {
            return false;
        }
        let mut compared = self.compared.lock().unwrap_or_else(PoisonError::into_inner);
        let known = compared.iter().find(|(one, other, _)| one == then && other == now);
        if let Some((.., is_same)) = known {
            return *is_same;
        }
        let is_same = self.compare(storage, then, now);
        compared.push((then.clone(), now.clone(), is_same));
        is_same
    }

    fn compare(&self, storage: &dyn Storage, then: &SourceVersion, now: &SourceVersion) -> bool {
        let states: Option<States> = self.read_any(storage, STATES, &Limits::default());
        let Some((mut states, path)) = states.zip(self.source()) else { return false };
        if !states.knows(then) {
            return false;
        }
        if states.knows(now) {
            return true;
        }
        if !states.are_in(path, now) {
            return false;
        }
        if states.same.len() == SAME_MAX {
            states.same.remove(0);
        }
        states.same.push(now.clone());
        self.save_states(&states);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_small_file_and_reach_from_end_to_end_of_a_large_one() {
        let of = |size: u64| starts(size).collect::<Vec<_>>();
        assert!(of(0).is_empty());
        assert_eq!(of(10_000), [0, 4096, 8192]);
        for size in [PIECES * PIECE_BYTES, PIECES * PIECE_BYTES + 1, 1 << 31, u64::MAX] {
            let found = of(size);
            assert_eq!(found.len() as u64, PIECES);
            assert_eq!((found[0], found[255]), (0, size - PIECE_BYTES));
            assert!(found.is_sorted_by(|one, next| one < next));
        }
    }
}
