//! Units that become durable together: by one sync of their bytes, and one of their names.

use std::sync::{Mutex, PoisonError};

use bedform_storage::{SyncAll, open_files_max};

use super::sink::{StagedUnit, WriteResources};
use crate::error::Result;

/// So many at most at a time, each of which has two open files.
const TOGETHER_MAX: u64 = 64;
/// They take this part of the files that the process may open.
const OPEN_FILES_PART: u64 = 8;

/// How many units may be on their way together.
pub(crate) fn together_max() -> usize {
    let count = (open_files_max() / 2 / OPEN_FILES_PART).min(TOGETHER_MAX);
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// What is done to a unit, by its number, with its share of the machine.
type Act<'a> = &'a (dyn Fn(usize, WriteResources) -> Result<()> + Sync);
/// Does something to all units, several at a time.
type Each<'a> = &'a dyn Fn(Act<'_>) -> Result<()>;
/// Writes a unit, seen by nobody.
type Stage<'a, 's> = &'a (dyn Fn(usize, WriteResources) -> Result<Box<dyn StagedUnit + 's>> + Sync);
/// Told of a unit that is published, and of its bytes.
type Published<'a> = &'a (dyn Fn(usize, u64) -> Result<()> + Sync);

/// Writes and publishes `count` units, at most [`together_max`]: one `sync` makes all of them durable before any
/// has its name, and one more the names. It was made before anything is written, so that it tells of writes
/// that fail.
///
/// # Errors
/// The first error of any unit; of units that were published before it the names may not be durable yet.
pub(crate) fn publish_together(
    count: usize,
    sync: &SyncAll<'_>,
    each: Each<'_>,
    stage: Stage<'_, '_>,
    published: Published<'_>,
) -> Result<()> {
    let staged: Vec<_> = (0..count).map(|_| Mutex::new(None)).collect();
    let slot = |at: usize| staged[at].lock().unwrap_or_else(PoisonError::into_inner);
    each(&|at, resources| {
        let mut unit = stage(at, resources)?;
        unit.hand_over()?;
        *slot(at) = Some(unit);
        Ok(())
    })?;
    sync()?;
    each(&|at, _| {
        let Some(unit) = slot(at).take() else { return Ok(()) };
        published(at, unit.publish()?)
    })?;
    Ok(sync()?)
}
