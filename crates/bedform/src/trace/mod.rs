//! Traces: which reads were made of a store or file, kept in its sidecar; and what is learnt from them.
//!
//! Nothing is recorded before somebody has turned it on: [`watch`] leaves a file `watch` in the sidecar, which
//! every open of this user sees; `BEDFORM_TRACE=1` does the same for one process. Then each process appends
//! [blocks](bedform_format::trace) to a file of its own in `traces/`, which only this user may read. It holds
//! paths of arrays, positions and times; no names of machines or users.
//!
//! - **At one place**: `Known::read` in `array`, where every read of an array comes by.
//! - **Bounded**: reads wait in memory for ten seconds or a block; a process writes no more than
//!   [`FILE_BYTES_MAX`], of more and more reads every fourth, 16th, 64th for as many; the oldest files go when all
//!   have more than [`ALL_BYTES_MAX`]. What lists and points select takes at most an eighth of that, 64 MiB an array;
//!   of more the box around it is all that is known.
//! - **Harmless**: what cannot be written is not kept, and no read fails. A process that is killed loses the last
//!   seconds. A forked child has a file of its own.
//!
//! [`learn`] merges the files of all processes into [`Knowledge`]: patterns of each array, and how many reads and
//! bytes they explain. Who opens the store later knows these patterns from the first read on.
//!
//! | module | holds |
//! |---|---|
//! | `form` | selections as places of a pattern, and back |
//! | `record` | reads that wait, and the file that they go to |
//! | `recorded` | what reads of lists and points selected, beside the file of the reads |
//! | `kinds` | reads of the same lengths and steps, counted by place |
//! | `selections` | selections that were read of an array, and how often |
//! | `policy` | replicas that are made after so many reads, unasked |
//! | `keeping` | the selections that are kept, each in a file of its own |
//! | `knowledge` | knowledge as a helper file; `bedform_format::trace::knowledge` has its bytes |
//! | `learn` | the traces of a source into its knowledge |
//! | `merging` | reads into the patterns of their arrays |
//! | `identity` | what tells a store from another at the same path |
//! | `processes` | what the processes of one run read together |
//! | `computations` | blocks of a computation into the read that its user made |

mod computations;
pub(crate) mod form;
mod identity;
mod keeping;
mod kinds;
mod knowledge;
mod learn;
mod merging;
mod policy;
mod processes;
mod record;
mod recorded;
mod selections;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

pub use bedform_format::trace::knowledge::{
    Explained, Knowledge, LearnedArray, LearnedSelection, LearnedSelections, ReadKind, ReadKinds,
    ReplicaUse,
};
pub(crate) use keeping::kept_selection;
pub(crate) use kinds::{bounds, hot_box};
pub(crate) use knowledge::{KnownPatterns, known_patterns, newest_knowledge, newest_read_ns};
pub use learn::{Learned, learn, learn_in};
pub(crate) use policy::PolicyPlace;
pub use policy::{PolicyOutcome, PolicySettings, PolicyState, start_bedform_by};
pub use record::{ALL_BYTES_MAX, FILE_BYTES_MAX, ask_for_computations, keep_traces};
pub(crate) use record::{MadeRead, Place, forget, record};
pub(crate) use selections::{positions_in, runs_of, shared};

use crate::error::{Error, ErrorKind, Result};
use crate::opening::url_of;
use crate::sidecar::{Sidecar, SidecarName};

const MARKER: &str = "watch";
const VARIABLE: &str = "BEDFORM_TRACE";

/// True if reads of the source with this sidecar are to be recorded.
pub(crate) fn is_watched(sidecar: &Sidecar) -> bool {
    let said = std::env::var(VARIABLE).ok();
    match said.as_deref().map(str::trim) {
        Some("0" | "off" | "false") => false,
        Some("") | None => is_marked(sidecar),
        Some(_) => true,
    }
}

/// True if this user has asked for the reads of the source with this sidecar to be recorded.
pub fn is_marked(sidecar: &Sidecar) -> bool {
    sidecar.setting(MARKER).is_some()
}

/// Turns on, or off, that reads of the store or file at `path` are recorded, by all processes of this user that
/// open it from now on. Gives the directory of the traces. The sidecar is made beside the data where that can be
/// done, else in the user's cache.
///
/// # Errors
/// `NotFound` if there is nothing at `path`; those of making the sidecar.
pub fn watch(path: &Path, on: bool) -> Result<PathBuf> {
    if url_of(path).is_none() && path.symlink_metadata().is_err() {
        return Err(Error::new(
            ErrorKind::NotFound,
            format!("{}: there is nothing", path.display()),
        ));
    }
    watch_named(&SidecarName::of_path(path), &path.display().to_string(), on)
}

/// As [`watch`], of what has a sidecar of this name and is shown as `shown`.
///
/// # Errors
/// Those of making the sidecar.
pub fn watch_named(name: &SidecarName, shown: &str, on: bool) -> Result<PathBuf> {
    let sidecar = match on {
        true => Sidecar::make(name)?,
        false => Sidecar::find(name, None)?,
    };
    let found = sidecar.and_then(|sidecar| Some((sidecar.own_directory()?, sidecar)));
    let (directory, sidecar) = found.ok_or_else(|| {
        let text = format!("{shown}: no place for a sidecar: set BEDFORM_SIDECAR to a directory");
        Error::new(ErrorKind::NotFound, text)
    })?;
    let marked = if on { sidecar.set(MARKER, b"") } else { sidecar.unset(MARKER) };
    marked.map_err(|error| error.at(directory.join(MARKER).display().to_string()))?;
    Ok(directory.join(TRACES))
}

/// The directory of traces in a sidecar.
const TRACES: &str = "traces";

/// True for the names of traces and recorded selections: a time, a process, a random number.
fn is_trace(name: &str) -> bool {
    let lengths = [16, 8, 8];
    let parts =
        name.split('-').map(|part| (part.len(), part.bytes().all(|b| b.is_ascii_hexdigit())));
    parts.eq(lengths.map(|length| (length, true)))
}

/// Removes the oldest traces of a directory where there are too many: names begin with a time.
fn make_room(sidecar: &Sidecar, directory: &str, bytes_max: u64, files_max: usize) {
    let mut all = sidecar.files(directory);
    all.retain(|(name, _)| is_trace(name));
    let mut bytes: u64 = all.iter().map(|(_, size)| size).sum();
    let mut count = all.len();
    for (name, size) in all {
        if bytes < bytes_max && count < files_max {
            return;
        }
        let _ = sidecar.remove(&format!("{directory}/{name}"));
        (bytes, count) = (bytes.saturating_sub(size), count - 1);
    }
}
