//! Traces into knowledge.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use bedform_format::trace::knowledge::Knowledge;
use bedform_format::trace::{blocks, whole_bytes};
use serde::Serialize;

use super::keeping::{keep_selections, remove_unnamed};
use super::knowledge::{LIST, fitted, newest_knowledge, of_store};
use super::merging::Merging;
use super::record::{FILE_BYTES_MAX, keep_traces};
use super::selections::CountedSelections;
use super::{TRACES, identity};
use crate::error::{Error, ErrorKind, Result};
use crate::options::Progress;
use crate::sidecar::Sidecar;
use crate::threads::workers::check_goes_on;

/// Traces that are looked at in one call, oldest first.
const FILES_MAX: usize = 20_000;
/// A trace may be larger than its writer meant by what it wrote last.
const SLACK: u64 = 8 << 20;

/// What [`learn`] has found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Learned {
    /// Traces that had something new.
    pub traces: u64,
    /// Traces that could not be read, were of somebody else, or held nothing that is valid.
    pub left_out: u64,
    /// Reads of another store, which has or had the same sidecar.
    pub ignored: u64,
    /// What is known now, of these and earlier traces.
    pub knowledge: Knowledge,
}

/// Merges the traces of the store or file at `path` into what is known of its reads, and keeps that in the sidecar.
/// What this process has read so far is part of them.
/// Traces stay where they are; what was merged before is not merged again. `progress` is told traces that are done,
/// of how many.
///
/// # Errors
/// `NotFound` if there is no sidecar, and nothing was recorded; `Conflict` if others learn at the same time;
/// `Interrupted`: what is known then is as before.
pub fn learn(path: &Path, progress: Progress<'_>) -> Result<Learned> {
    learn_in(Sidecar::of_path(path)?, &path.display().to_string(), progress)
}

/// As [`learn`], of what has this sidecar and is shown as `shown`.
///
/// # Errors
/// As [`learn`].
pub fn learn_in(sidecar: Option<Sidecar>, shown: &str, progress: Progress<'_>) -> Result<Learned> {
    let none = || {
        let text = format!("{shown}: no reads were recorded: 'bedform watch {shown}' turns it on");
        Error::new(ErrorKind::NotFound, text)
    };
    let sidecar = sidecar.ok_or_else(none)?;
    // A program may learn from its own reads.
    keep_traces();
    let own = sidecar.own_directory().ok_or_else(none)?;
    let directory = own.join(TRACES);
    let number = sidecar.last_number(LIST);
    let knowledge = newest_knowledge(&sidecar).unwrap_or_default();
    let names = names_of(&directory);
    if names.is_empty() && knowledge.arrays.is_empty() {
        return Err(none());
    }
    let key = sidecar.source().map(identity::key_of).unwrap_or_default();
    let knowledge = of_store(knowledge, &key);
    let mut learned = Learned { traces: 0, left_out: 0, ignored: 0, knowledge };
    let selections = add_traces(&mut learned, (&directory, &names), key, progress)?;
    if learned.traces == 0 {
        return Ok(learned);
    }
    keep_selections(&sidecar, &own, selections, &mut learned.knowledge.arrays)?;
    learned.knowledge = fitted(learned.knowledge);
    match sidecar.save_next(LIST, &learned.knowledge) {
        Some(saved) if saved == number + 1 => {
            remove_unnamed(&own, &learned.knowledge.arrays);
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

/// Adds the new blocks of the traces of these names; returns the selections of their reads, by array.
///
/// # Errors
/// `Interrupted`.
fn add_traces(
    learned: &mut Learned,
    (directory, names): (&Path, &[String]),
    key: identity::Key,
    progress: Progress<'_>,
) -> Result<BTreeMap<String, CountedSelections>> {
    let mut read = BTreeMap::new();
    let Knowledge { arrays, replicas, traces, .. } = &mut learned.knowledge;
    let mut merging = Merging::new(arrays, replicas, key);
    for (done, name) in names.iter().enumerate() {
        check_goes_on("learning was stopped")?;
        progress(done as u64, names.len() as u64);
        let before = traces.get(name).copied().unwrap_or(0);
        let bytes = read_own(&directory.join(name), before, FILE_BYTES_MAX + SLACK);
        let whole = bytes.as_deref().map_or(0, whole_bytes) as u64;
        learned.traces += u64::from(whole > 0);
        learned.left_out += u64::from(bytes.is_none() || whole == 0 && before == 0);
        merging.add(blocks(&bytes.unwrap_or_default()))?;
        read.insert(name.clone(), before + whole);
    }
    let merged = merging.finish()?;
    learned.ignored = merged.ignored;
    // Those that are gone are not asked for again.
    learned.knowledge.traces = read;
    Ok(merged.selections)
}

/// The names of the traces, the oldest first.
fn names_of(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names.truncate(FILES_MAX);
    names
}

/// What a file of this user, of at most `most` bytes, has from `offset` on; nothing for what is none.
pub(super) fn read_own(path: &Path, offset: u64, most: u64) -> Option<Vec<u8>> {
    use std::io::{Seek as _, SeekFrom};
    let mut file = fs::OpenOptions::new()
        .read(true)
        // A FIFO is not waited for.
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
        .ok()?;
    let found = file.metadata().ok()?;
    let is_own = found.is_file() && found.uid() == rustix::process::geteuid().as_raw();
    if !is_own || found.len() > most {
        return None;
    }
    file.seek(SeekFrom::Start(offset)).ok()?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
