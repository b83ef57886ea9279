//! Learning: the traces of a source become knowledge of its reads.

use std::collections::BTreeMap;
use std::path::Path;

use bedform_format::shown::shell_path;
use bedform_format::trace::knowledge::Knowledge;
use bedform_format::trace::{blocks, whole_bytes};
use serde::Serialize;

use super::keeping::{keep_selections, remove_unnamed};
use super::knowledge::{LIST, fitted, newest_knowledge, of_store};
use super::merging::TraceMerger;
use super::record::{FILE_BYTES_MAX, keep_traces};
use super::selections::CountedSelections;
use super::{TRACES, identity};
use crate::error::{Error, ErrorKind, Result};
use crate::options::ProgressCallback;
use crate::sidecar::Sidecar;
use crate::threads::workers::check_cancelled;

/// The most traces that one call reads, oldest first.
const FILES_MAX: usize = 20_000;
/// Bytes by which a trace may exceed its limit: its writer checks before each write.
const SLACK: u64 = 8 << 20;

/// The outcome of [`learn`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Learned {
    /// Traces with new blocks.
    pub traces: u64,
    /// Traces that could not be read, belonged to another user, or held no valid block.
    pub left_out: u64,
    /// Reads of another store that has or had the same sidecar.
    pub ignored: u64,
    /// The present knowledge, from these and earlier traces.
    pub knowledge: Knowledge,
}

/// Merges the traces of the store or file at `path` into the knowledge of its reads, and saves it
/// in the sidecar. The reads of this process so far are included. Traces stay; a block that was
/// merged before is skipped. `progress` receives the number of traces done and in all.
///
/// # Errors
/// `NotFound` if there is no sidecar and no trace; `Conflict` if another process learns at the same
/// time; `Io` if the knowledge cannot be saved; `Interrupted`, with unchanged knowledge.
pub fn learn(path: &Path, progress: ProgressCallback<'_>) -> Result<Learned> {
    learn_in(Sidecar::of_path(path)?, &path.display().to_string(), progress)
}

/// Learns, as [`learn`] does, for the source with this sidecar. `shown` names it in messages.
///
/// # Errors
/// Those of [`learn`].
pub fn learn_in(
    sidecar: Option<Sidecar>,
    shown: &str,
    progress: ProgressCallback<'_>,
) -> Result<Learned> {
    let none = || {
        let pasted = shell_path(shown);
        let text = format!("{shown}: no reads were recorded: 'bedform watch {pasted}' turns it on");
        Error::new(ErrorKind::NotFound, text)
    };
    let sidecar = sidecar.ok_or_else(none)?;
    // The traces of this process are written first: a program may learn from its own reads.
    keep_traces();
    let number = sidecar.last_number(LIST);
    let knowledge = newest_knowledge(&sidecar).unwrap_or_default();
    let names = names_of(&sidecar);
    if names.is_empty() && knowledge.arrays.is_empty() {
        return Err(none());
    }
    let key = sidecar.source().map(identity::key_of).unwrap_or_default();
    let knowledge = of_store(knowledge, &key);
    let mut learned = Learned { traces: 0, left_out: 0, ignored: 0, knowledge };
    let selections = add_traces(&mut learned, (&sidecar, &names), key, progress)?;
    if learned.traces == 0 {
        return Ok(learned);
    }
    keep_selections(&sidecar, selections, &mut learned.knowledge.arrays)?;
    learned.knowledge = fitted(learned.knowledge);
    match sidecar.save_next(LIST, &learned.knowledge) {
        Some(saved) if saved == number + 1 => {
            remove_unnamed(&sidecar, &learned.knowledge.arrays);
            Ok(learned)
        }
        Some(_) => {
            let text = format!("{shown}: others have learnt meanwhile; learn again");
            Err(Error::new(ErrorKind::Conflict, text))
        }
        None => {
            let text = format!("{shown}: what was learnt cannot be kept in the sidecar");
            Err(Error::new(ErrorKind::Io, text))
        }
    }
}

/// Merges the new blocks of the traces with these names, and returns the selections of their reads,
/// by array.
///
/// # Errors
/// `Interrupted`.
fn add_traces(
    learned: &mut Learned,
    (sidecar, names): (&Sidecar, &[String]),
    key: identity::StoreKey,
    progress: ProgressCallback<'_>,
) -> Result<BTreeMap<String, CountedSelections>> {
    let mut read = BTreeMap::new();
    let Knowledge { arrays, replicas, traces, .. } = &mut learned.knowledge;
    let mut merging = TraceMerger::new(arrays, replicas, key);
    for (done, name) in names.iter().enumerate() {
        check_cancelled("learning was stopped")?;
        progress(done as u64, names.len() as u64);
        let before = traces.get(name).copied().unwrap_or(0);
        let file = format!("{TRACES}/{name}");
        let bytes = sidecar.bytes_from(&file, before, FILE_BYTES_MAX + SLACK);
        let whole = bytes.as_deref().map_or(0, whole_bytes) as u64;
        learned.traces += u64::from(whole > 0);
        learned.left_out += u64::from(bytes.is_none() || whole == 0 && before == 0);
        merging.add(blocks(&bytes.unwrap_or_default()))?;
        read.insert(name.clone(), before + whole);
    }
    let merged = merging.finish()?;
    learned.ignored = merged.ignored;
    // Removed traces leave the list.
    learned.knowledge.traces = read;
    Ok(merged.selections)
}

/// Returns the names of the traces, the oldest first.
fn names_of(sidecar: &Sidecar) -> Vec<String> {
    sidecar.entries(TRACES).into_iter().take(FILES_MAX).map(|entry| entry.name).collect()
}
