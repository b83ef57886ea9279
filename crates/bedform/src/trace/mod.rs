//! Traces: the recorded reads of a store or file, kept in its sidecar, and the knowledge learned
//! from them.
//!
//! Recording is off until somebody turns it on. [`watch`] leaves a file `watch` in the sidecar,
//! which every later open by this user sees. `BEDFORM_TRACE=1` does the same for one process. Then
//! each process appends [blocks](bedform_format::trace) to a file of its own in `traces/`, which
//! only this user may read. It holds paths of arrays, positions and times; no names of machines or
//! users.
//!
//! - **At one place**: every read of an array passes `ArrayAtRead::read` in `array`, which
//!   records it. The reads that a query makes are recorded as one query, by `query/recording`: its
//!   condition once, with a count.
//! - **Bounded**: a read waits in memory for at most ten seconds, or until its block is full. A
//!   process writes at most [`FILE_BYTES_MAX`]; after each quarter of it, only every fourth, 16th,
//!   64th read is recorded, with that weight. The oldest files are removed once all files exceed
//!   [`ALL_BYTES_MAX`]. The positions of lists and points take at most an eighth of that, and 64
//!   MiB per array; beyond it, only the box around them is recorded.
//! - **Harmless**: a failed write is ignored, and no read fails. A killed process loses the last
//!   seconds of its trace. A forked child has a file of its own.
//!
//! [`learn`] merges the files of all processes into [`Knowledge`]: the patterns of each array, and
//! the reads and bytes that they explain. A later open of the store predicts reads by these
//! patterns from the first read on.
//!
//! | module | holds |
//! |---|---|
//! | `form` | the conversion of selections to places of a pattern, and back |
//! | `record` | recorded reads in memory, and the trace file of a process |
//! | `recorded` | the recorded selections of lists and points, in a file beside the trace |
//! | `learn` | the merging of a source's traces into its knowledge |
//! | `merging` | the merging of recorded reads into the patterns of their arrays |
//! | `computations` | the merging of a computation's blocks into the read that its user made |
//! | `queries` | the conditions of queries of an array, with counts |
//! | `kinds` | kinds of reads, by lengths and steps, counted by place |
//! | `selections` | the selections that were read of an array, with counts |
//! | `keeping` | the learned selections, each in a file of its own |
//! | `processes` | the joint pattern of the processes of one run |
//! | `knowledge` | the helper file of the knowledge; `bedform_format::trace` defines its bytes |
//! | `policy` | replicas made unasked after a number of recorded reads |
//! | `identity` | the key that tells a store from another one at the same path |

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
mod queries;
mod record;
mod recorded;
mod selections;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

pub use bedform_format::trace::knowledge::{
    Explained, Knowledge, LearnedArray, LearnedCondition, LearnedQueries, LearnedReadKind,
    LearnedReadKinds, LearnedSelection, LearnedSelections, ReplicaUse,
};
pub(crate) use keeping::kept_selection;
pub(crate) use kinds::{bounds, hot_box};
pub(crate) use knowledge::{KnownPatterns, known_patterns, newest_knowledge, newest_read_ns};
pub use learn::{Learned, learn, learn_in};
pub(crate) use policy::PolicyPlace;
pub use policy::{PolicyOutcome, PolicySettings, PolicyState, start_bedform_by};
pub use record::{ALL_BYTES_MAX, FILE_BYTES_MAX, ask_for_computations, keep_traces};
pub(crate) use record::{MadeRead, TraceTarget, nanoseconds, record, record_query};
pub(crate) use selections::{positions_in, runs_of, shared};

use crate::error::{Error, ErrorKind, Result};
use crate::opening::url_of;
use crate::sidecar::{Sidecar, SidecarName};

const MARKER: &str = "watch";
const VARIABLE: &str = "BEDFORM_TRACE";

/// True if reads of the source with this sidecar should be recorded.
pub(crate) fn is_watched(sidecar: &Sidecar) -> bool {
    let said = std::env::var(VARIABLE).ok();
    match said.as_deref().map(str::trim) {
        Some("0" | "off" | "false") => false,
        Some("") | None => is_marked(sidecar),
        Some(_) => true,
    }
}

/// True if this user has turned recording on for the source with this sidecar.
pub fn is_marked(sidecar: &Sidecar) -> bool {
    sidecar.setting(MARKER).is_some()
}

/// Turns recording of the reads of the store or file at `path` on or off, for all processes of this
/// user that open it later. Returns the directory of the traces. Makes the sidecar beside the data
/// if possible, else in the user's cache directory.
///
/// # Errors
/// `NotFound` if there is nothing at `path`; errors of making the sidecar.
pub fn watch(path: &Path, on: bool) -> Result<PathBuf> {
    if url_of(path).is_none() && path.symlink_metadata().is_err() {
        return Err(Error::new(
            ErrorKind::NotFound,
            format!("{}: there is nothing", path.display()),
        ));
    }
    watch_named(&SidecarName::of_path(path), &path.display().to_string(), on)
}

/// Turns recording on or off, as [`watch`] does, for the source with a sidecar of this name.
/// `shown` names it in messages.
///
/// # Errors
/// Errors of making the sidecar.
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

/// True for a name of a trace or of recorded selections: a time, a process and a random number.
fn is_trace(name: &str) -> bool {
    let lengths = [16, 8, 8];
    let parts =
        name.split('-').map(|part| (part.len(), part.bytes().all(|b| b.is_ascii_hexdigit())));
    parts.eq(lengths.map(|length| (length, true)))
}

/// Removes the oldest traces of a directory until both limits hold; names begin with a time.
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
