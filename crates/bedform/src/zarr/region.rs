//! Parallel writes of all objects of a selection.
//!
//! Several objects are written at a time, each atomically. On one machine a write uses one thread
//! more than cores; uploads to a server are bounded by 224 MiB in flight, and permits limit the
//! concurrent CPU work.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::hierarchy::Hierarchy;
use super::object::{ObjectWrite, moved_if_gone};
use super::source::ZarrSource;
use crate::error::{Error, Result};
use crate::plan::geometry::Geometry;
use crate::source::Moment;
use crate::threads::check::RunningCheck;
use crate::threads::permits::CpuPermits;
use crate::threads::workers::check_cancelled;
use crate::threads::workers::with_workers;
use crate::write::elements::WriteInput;
use crate::write::sink::WriteResources;
use crate::write::together::{publish_together, together_max};

/// From so many objects on, they are made durable together: two syncs for all, instead of four for
/// each object.
const TOGETHER_MIN: u64 = 2;
/// The most bytes of objects in flight to a server.
const UPLOAD_BYTES: u64 = 224 << 20;

/// The objects and bytes of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteStatistics {
    /// Objects written.
    pub objects: u64,
    /// Bytes of those objects.
    pub bytes: u64,
}

/// Parameters of a write besides its elements, as in [`ObjectWrite`].
#[derive(Clone, Copy)]
pub(crate) struct WriteConditions<'a> {
    pub(crate) moment: &'a dyn Moment,
    pub(crate) valid: Option<&'a [u64]>,
    pub(crate) check: Option<&'a RunningCheck>,
}

/// Writes the elements that the plan selects, several objects at a time, each atomically.
///
/// # Errors
/// The first error of any object; objects that were written stay written.
pub(crate) fn write_plan(
    source: &ZarrSource<'_>,
    plan: &Geometry,
    input: WriteInput<'_>,
    WriteConditions { moment, valid, check }: WriteConditions<'_>,
) -> Result<WriteStatistics> {
    let planned =
        PlannedWrite { source, plan, input, way: WriteConditions { moment, valid, check } };
    write_objects(source, planned.cells(), |cell, resources| planned.write(cell, resources))
}

/// The elements to write to one array, and the plan that places them.
pub(crate) struct PlannedWrite<'a> {
    pub(crate) source: &'a ZarrSource<'a>,
    pub(crate) plan: &'a Geometry,
    pub(crate) input: WriteInput<'a>,
    pub(crate) way: WriteConditions<'a>,
}

impl<'a> PlannedWrite<'a> {
    /// The number of objects to write.
    fn cells(&self) -> u64 {
        if self.plan.result_bytes() == 0 { 0 } else { self.plan.cell_count() }
    }

    fn write(&self, cell: u64, resources: WriteResources) -> ObjectWrite<'a> {
        let Self { source, plan, input, way: WriteConditions { moment, valid, check } } = *self;
        ObjectWrite {
            kept_beside: None,
            source,
            moment,
            plan: Some((plan, cell)),
            input,
            coordinates: plan.cell_coordinates(cell),
            valid,
            resources,
            check,
        }
    }
}

/// Writes the elements of several plans, each object atomically. Many objects are made durable
/// together, where storage can.
///
/// # Errors
/// As [`write_plan`].
pub(crate) fn write_plans(hierarchy: &Hierarchy, planned: &[PlannedWrite<'_>]) -> Result<()> {
    let count: u64 = planned.iter().map(PlannedWrite::cells).sum();
    let most = together_max();
    if count < TOGETHER_MIN || most < 2 || !hierarchy.can_sync_together() {
        let each =
            |one: &PlannedWrite<'_>| write_plan(one.source, one.plan, one.input, one.way).map(drop);
        return planned.iter().try_for_each(each);
    }
    let paths: Vec<_> = planned.iter().map(|one| one.source.path.clone()).collect();
    let objects: Vec<(&PlannedWrite<'_>, u64)> =
        planned.iter().flat_map(|one| (0..one.cells()).map(move |cell| (one, cell))).collect();
    objects.chunks(most).try_for_each(|objects| {
        let sync = hierarchy.storage.sync_all(&paths).map_err(moved_if_gone)?;
        let each = |act: &(dyn Fn(usize, WriteResources) -> Result<()> + Sync)| {
            let act = |number, resources| {
                act(usize::try_from(number).unwrap_or(usize::MAX), resources).map(|()| 0)
            };
            each_object(hierarchy, objects.len() as u64, at_once(hierarchy), act).map(drop)
        };
        let stage = |at: usize, resources| {
            let (one, cell) = objects[at];
            one.write(cell, resources).stage_change()
        };
        publish_together(objects.len(), &sync, &each, &stage, &|_, _| Ok(()))
    })
}

/// Makes `count` changes of objects, several at a time. `write` gets the number of a change and its
/// share of the machine's threads.
///
/// # Errors
/// As [`write_plan`].
pub(crate) fn write_objects<'a>(
    source: &ZarrSource<'_>,
    count: u64,
    write: impl Fn(u64, WriteResources) -> ObjectWrite<'a> + Sync,
) -> Result<WriteStatistics> {
    let act = |number, resources| write(number, resources).run();
    let state = source.state;
    let at_once = at_once_of(source.hierarchy, state.layout.object_bytes());
    each_object(source.hierarchy, count, at_once, act)
}

/// As [`at_once`], for objects of up to `object_bytes`. An upload holds its object in memory until
/// the server has it, and needs no core meanwhile, so more run at a time.
fn at_once_of(hierarchy: &Hierarchy, object_bytes: u64) -> usize {
    let cores = at_once(hierarchy);
    if !hierarchy.storage.is_remote() || hierarchy.options.threads == Some(1) {
        return cores;
    }
    uploads_of(object_bytes, cores.max(hierarchy.tuning.threads_waiting))
}

/// As many objects as fit into [`UPLOAD_BYTES`], at least one and at most `most`.
fn uploads_of(object_bytes: u64, most: usize) -> usize {
    let fitting = UPLOAD_BYTES / object_bytes.max(1);
    usize::try_from(fitting).unwrap_or(usize::MAX).clamp(1, most.max(1))
}

/// The number of objects written at a time: one more than cores, so that one is encoded while
/// another is synced.
pub(crate) fn at_once(hierarchy: &Hierarchy) -> usize {
    match hierarchy.options.threads {
        Some(1) => 1,
        _ => hierarchy.tuning.threads + 1,
    }
}

/// How many of `count` objects are in flight together with object `number`, of up to `at_once`: all
/// rounds but the last are full, and the last has the remainder.
fn on_their_way(number: u64, count: u64, at_once: usize) -> usize {
    let left = count % at_once as u64;
    match number >= count - left {
        true => usize::try_from(left).unwrap_or(at_once),
        false => at_once,
    }
}

/// Calls `act` with the numbers of `count` objects, `at_once` at a time, and the share of the
/// machine of each. `act` returns the bytes that it wrote.
///
/// # Errors
/// The first error of any object; objects that were written stay written.
pub(crate) fn each_object(
    hierarchy: &Hierarchy,
    count: u64,
    at_once: usize,
    act: impl Fn(u64, WriteResources) -> Result<u64> + Sync,
) -> Result<WriteStatistics> {
    if count == 0 {
        return Ok(WriteStatistics::default());
    }
    let outer = usize::try_from(count).unwrap_or(usize::MAX).min(at_once.max(1));
    let threads = hierarchy.tuning.threads.div_ceil(outer);
    // An encoder of files waits for the disk between chunks, so only uploads need a limit on
    // concurrent CPU work.
    let permits =
        hierarchy.storage.is_remote().then(|| Arc::new(CpuPermits::new(hierarchy.tuning.threads)));
    let (next, bytes, objects) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let stopped = AtomicBool::new(false);
    let failure: Mutex<Option<Error>> = Mutex::new(None);
    let fail = |error| {
        stopped.store(true, Ordering::Relaxed);
        let mut failure = failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        failure.get_or_insert(error);
    };
    let work = || {
        while !stopped.load(Ordering::Relaxed) {
            if let Err(error) = check_cancelled("the write was stopped") {
                return fail(error);
            }
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return;
            }
            let at_once = on_their_way(number, count, outer);
            match act(number, WriteResources { threads, permits: permits.clone(), at_once }) {
                Ok(written) => {
                    objects.fetch_add(1, Ordering::Relaxed);
                    bytes.fetch_add(written, Ordering::Relaxed);
                }
                Err(error) => return fail(error),
            }
        }
    };
    with_workers("bedform-write", outer - 1, work, work);
    match failure.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(WriteStatistics { objects: objects.into_inner(), bytes: bytes.into_inner() }),
    }
}

#[cfg(test)]
mod tests {
    use crate::zarr::region::*;

    #[test]
    fn objects_that_are_left_over_are_on_their_way_by_themselves() {
        let all = |count, at_once| -> Vec<usize> {
            (0..count).map(|number| on_their_way(number, count, at_once)).collect()
        };
        assert_eq!(all(7, 3), [3, 3, 3, 3, 3, 3, 1]);
        assert_eq!(all(5, 3), [3, 3, 3, 2, 2]);
        assert_eq!(all(4, 2), [2; 4]);
        assert_eq!(all(2, 2), [2; 2]);
    }

    #[test]
    fn uploads_are_bounded_by_their_bytes() {
        for object_bytes in [0, 1, 1 << 20, 32 << 20, 33 << 20, UPLOAD_BYTES, UPLOAD_BYTES + 1] {
            for most in [1, 3, 32] {
                let uploads = uploads_of(object_bytes, most);
                assert!((1..=most).contains(&uploads), "{object_bytes} {most}");
                assert!(uploads == 1 || uploads as u64 * object_bytes <= UPLOAD_BYTES);
            }
        }
        assert_eq!(uploads_of(32 << 20, 32), 7);
        assert_eq!(uploads_of(u64::MAX, 32), 1);
    }
}
