//! Checks of arrays together: first everything that the newest root of their log names, then each
//! of their objects.
//!
//! In this order data that are settled meanwhile are checked in one place or the other.

use std::collections::{BTreeSet, HashSet};

use bedform_format::ObjectPath;

use super::verify::STOPPED;
use crate::error::{Error, ErrorKind, Result};
use crate::log::array::ArrayHandle;
use crate::log::check::{CheckScope, check_log};
use crate::log::opened::OpenedStore;
use crate::options::ProgressCallback;
use crate::threads::workers::check_cancelled;

/// Attempts to check a root while others settle.
const ATTEMPTS_MAX: usize = 100;

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Verified {
    /// A line for each damage: an object, a chunk, a record or blocks of the log.
    pub problems: Vec<String>,
    /// The arrays with missing objects.
    pub absent: Vec<AbsentObjects>,
}

/// Missing objects of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AbsentObjects {
    /// The array.
    pub array: ObjectPath,
    /// The number of missing objects. An object without data in the log was never written or is
    /// lost; nothing tells which.
    pub objects: u64,
    /// The number of objects in the array's shape.
    pub of: u64,
    /// The number of missing objects with data in the log.
    pub in_log: u64,
}

/// Checks the log of the arrays, then their objects. `is_all` checks data of removed arrays in the
/// log, too.
///
/// # Errors
/// `Interrupted`; those of storage.
pub(crate) fn verify_arrays(
    store: &OpenedStore,
    arrays: &[&ArrayHandle],
    is_all: bool,
    progress: ProgressCallback<'_>,
) -> Result<Verified> {
    let count = arrays.len() as u64;
    let mut sections = 0;
    let mut step = |done: u64, all: u64| {
        sections = all;
        check_cancelled(STOPPED)?;
        if all > 0 {
            progress(done, all + count);
        }
        Ok(())
    };
    let mut found = verify_log(store, arrays, is_all, &mut step)?;
    for (done, array) in (0..).zip(arrays) {
        progress(sections + done, sections + count);
        let mut add = |line| found.problems.push(line);
        if let Err(error) = array.verify_objects(&mut add) {
            note(error, &mut found.problems)?;
        }
    }
    progress(sections + count, sections + count);
    // Damage that concerns several arrays is reported once.
    let mut said = HashSet::new();
    found.problems.retain(|line| said.insert(line.clone()));
    Ok(found)
}

/// Checks the log, and counts the missing objects.
fn verify_log(
    store: &OpenedStore,
    arrays: &[&ArrayHandle],
    is_all: bool,
    step: &mut dyn FnMut(u64, u64) -> Result<()>,
) -> Result<Verified> {
    let mut missing = BTreeSet::new();
    for _ in 0..ATTEMPTS_MAX {
        store.refresh()?;
        let view = store.snapshot()?.view;
        let mut asked = CheckScope { arrays: Vec::new(), is_all };
        let (mut paths, mut problems) = (Vec::new(), Vec::new());
        for array in arrays {
            step(0, 0)?;
            // The check of its objects reports the error.
            if let Ok(checked) = array.checked() {
                asked.arrays.push(checked);
                paths.push(array.path.clone());
            }
        }
        if let Some(view) = view {
            let found = check_log(&view, &mut asked, step)?;
            // An object that is missing again under a newly pinned root is lost.
            if !found.missing.is_subset(&missing) {
                missing = found.missing;
                continue;
            }
            problems = found.lines;
        }
        if is_all {
            check_cancelled(STOPPED)?;
            problems.extend(
                store.log_place().map_or(Ok(Vec::new()), |log| store.damaged_promises(&log))?,
            );
        }
        let absent = paths.into_iter().zip(&asked.arrays).filter_map(|(array, checked)| {
            let of = checked.grid.iter().fold(1, |all, count| u64::saturating_mul(all, *count));
            let objects = of.saturating_sub(checked.stored.len() as u64);
            let in_log = checked.logged.len() as u64;
            (objects > 0).then_some(AbsentObjects { array, objects, of, in_log })
        });
        return Ok(Verified { absent: absent.collect(), problems });
    }
    Err(Error::new(
        ErrorKind::SnapshotMoved,
        format!("{} was settled {ATTEMPTS_MAX} times meanwhile: try again", store.storage.name()),
    ))
}

/// Turns damage into a line; other errors end the check.
pub(crate) fn note(error: Error, problems: &mut Vec<String>) -> Result<()> {
    match error.kind() {
        ErrorKind::Corrupt | ErrorKind::NotFound | ErrorKind::Conflict => {
            problems.push(error.to_string());
            Ok(())
        }
        _ => Err(error),
    }
}
