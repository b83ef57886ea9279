//! Units that become durable together: by one sync of their bytes, and one of their names.

use std::sync::{Mutex, PoisonError};

use bedform_storage::{SyncAll, open_files_max};

use super::sink::{StagedUnit, WriteResources};
use crate::error::Result;

/// The most units at a time; each has two open files.
const TOGETHER_MAX: u64 = 64;
/// Units may use one in so many of the files that the process may open.
const OPEN_FILES_PART: u64 = 8;

/// Returns the most units that may be in flight together.
pub(crate) fn together_max() -> usize {
    let count = (open_files_max() / 2 / OPEN_FILES_PART).min(TOGETHER_MAX);
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// An action on a unit, by its number, with its share of the machine.
type UnitAction<'a> = &'a (dyn Fn(usize, WriteResources) -> Result<()> + Sync);
/// A function that applies an action to all units, several at a time.
type ForEachUnit<'a> = &'a dyn Fn(UnitAction<'_>) -> Result<()>;
/// A function that writes a unit, invisible to readers.
type StageUnit<'a, 's> =
    &'a (dyn Fn(usize, WriteResources) -> Result<Box<dyn StagedUnit + 's>> + Sync);
/// A callback for each published unit, with its bytes.
type UnitPublished<'a> = &'a (dyn Fn(usize, u64) -> Result<()> + Sync);

/// Writes and publishes `count` units, at most [`together_max`]. One `sync` makes the bytes of all
/// units durable before any has its name, and one more makes the names durable. `sync` must be made
/// before the first write, so that it reports writes that fail.
///
/// # Errors
/// The first error of any unit. The names of units that were published before it may not be durable
/// yet.
pub(crate) fn publish_together(
    count: usize,
    sync: &SyncAll<'_>,
    each: ForEachUnit<'_>,
    stage: StageUnit<'_, '_>,
    published: UnitPublished<'_>,
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
