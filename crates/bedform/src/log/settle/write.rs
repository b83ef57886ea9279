//! Encodes and writes the objects of a round, and reads their stamps back.

use crate::log::opened::OpenedStore;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use bedform_format::ObjectPath;

use super::SettleStatistics;
use super::lay::{ArrayBuilder, ObjectBuilder};
use crate::error::{Error, ErrorKind, Result};
use crate::threads::budget::{BudgetRound, MemoryBudget};
use crate::write::sink::{BuiltUnit, Sink, StagedUnit, WriteResources};
use crate::write::together::{publish_together, together_max};
use crate::zarr::object::{moved_if_gone, whole_machine};
use crate::zarr::region::{at_once, each_object};

/// Bytes of objects in flight for each writing thread, and the least number of bytes that an object
/// counts. A small object mostly means a wait for the device, and the file system merges syncs that
/// run at the same time.
const WRITING_BYTES: u64 = 8 << 20;
const WRITING_BYTES_MIN: u64 = 512 << 10;
/// Most objects in flight.
const WRITING_MAX: u64 = 16;

/// From this many objects on, one call makes all of them durable, where the system has such a call.
/// A second call makes their names durable.
const SYNCED_TOGETHER_MIN: usize = 2;

/// Counters of a settling, shared by its threads.
#[derive(Default)]
pub(super) struct SettleCounters {
    objects: AtomicU64,
    bytes: AtomicU64,
    pub(super) read_bytes: AtomicU64,
    pub(super) rounds: AtomicU64,
    pub(super) rewritten: AtomicU64,
    /// Settled objects: index of the plan, number of the object, the last commit that it contains.
    settled: Mutex<Vec<(usize, u64, u64)>>,
    /// Objects that were found settled: index of the plan, number of the object.
    found: Mutex<Vec<(usize, u64)>>,
    /// Bytes of the plan that are done.
    pub(super) done: AtomicU64,
}

impl SettleCounters {
    pub(super) fn statistics(&self) -> SettleStatistics {
        SettleStatistics {
            commits: 0,
            objects: self.objects.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            rounds: self.rounds.load(Ordering::Relaxed),
            rewritten: self.rewritten.load(Ordering::Relaxed),
        }
    }

    /// Resets the progress and the lists of settled objects.
    pub(super) fn begin(&self) {
        self.done.store(0, Ordering::Relaxed);
        self.take_settled();
        self.take_found();
    }

    /// Records that an object contains the commits up to `commit`.
    pub(super) fn settled(&self, plan: usize, number: u64, commit: u64) {
        let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        settled.push((plan, number, commit));
    }

    /// Records that an object was found to contain the commits up to `commit`.
    pub(super) fn found(&self, plan: usize, number: u64, commit: u64) {
        self.settled(plan, number, commit);
        self.found.lock().unwrap_or_else(PoisonError::into_inner).push((plan, number));
    }

    pub(super) fn take_found(&self) -> Vec<(usize, u64)> {
        std::mem::take(&mut *self.found.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn take_settled(&self) -> Vec<(usize, u64, u64)> {
        std::mem::take(&mut *self.settled.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

/// An object whose new chunks are all in memory.
struct WritingObject<'a> {
    /// The path of its array.
    path: &'a ObjectPath,
    sink: &'a dyn Sink,
    object: ObjectBuilder,
    valid: Option<&'a [u64]>,
    built: BuiltUnit,
}

impl WritingObject<'_> {
    fn stage(&self, resources: WriteResources) -> Result<Box<dyn StagedUnit + '_>> {
        self.sink.stage_built(&self.object.coordinates, self.valid, &self.built, resources)
    }
}

/// The writer of rounds; any thread may run it.
pub(super) struct Writer<'a> {
    pub(super) store: &'a Arc<OpenedStore>,
    /// The number of the root whose commits are settled.
    pub(super) root: u64,
    pub(super) counts: &'a SettleCounters,
}

impl Writer<'_> {
    /// Encodes and writes the objects of a round and reads their stamps back.
    ///
    /// # Errors
    /// The first error of any object; `Conflict` if another program has written one.
    pub(super) fn write(&self, round: Vec<ArrayBuilder<'_>>) -> Result<()> {
        let mut objects = Vec::new();
        for building in round {
            for mut object in building.objects {
                let valid = building.plan.valid(object.contained);
                let stored = object.stored.take();
                if object.chunks.is_empty() && (stored.is_none() || valid.is_none()) {
                    SettleCounters::add(&self.counts.done, object.bytes);
                    continue;
                }
                let chunks = std::mem::take(&mut object.chunks).into();
                let built = BuiltUnit { stored, chunks };
                let path = &building.plan.path;
                objects.push(WritingObject { path, sink: building.sink, object, valid, built });
            }
        }
        let (together, at_a_time) = match self.synced_together(&objects) {
            Some(count) => (true, count),
            None => (false, objects.len()),
        };
        objects.chunks(at_a_time.max(1)).try_for_each(|part| self.write_part(part, together))
    }

    /// Returns the number of objects that one sync makes durable; `None` if the system has no such
    /// sync, or if it is not worth it.
    fn synced_together(&self, objects: &[WritingObject<'_>]) -> Option<usize> {
        let is_worth_it = objects.len() >= SYNCED_TOGETHER_MIN && self.store.can_sync_together();
        let count = together_max();
        (is_worth_it && count >= SYNCED_TOGETHER_MIN).then_some(count)
    }

    /// Writes objects. If `together`, one sync makes all of them durable, and one more their names.
    fn write_part(&self, objects: &[WritingObject<'_>], together: bool) -> Result<()> {
        if !together {
            return self.each(objects, &|at, resources| {
                let writing = &objects[at];
                let written = writing.stage(resources)?.publish()?;
                self.wrote(writing.sink, &writing.object, written)
            });
        }
        let mut paths: Vec<ObjectPath> = objects.iter().map(|object| object.path.clone()).collect();
        paths.dedup();
        let sync = self.store.storage.sync_all(&paths).map_err(moved_if_gone)?;
        let each =
            |act: &(dyn Fn(usize, WriteResources) -> Result<()> + Sync)| self.each(objects, act);
        let stage = |at: usize, resources| objects[at].stage(resources);
        publish_together(objects.len(), &sync, &each, &stage, &|at, bytes| {
            SettleCounters::add(&self.counts.bytes, bytes);
            let WritingObject { sink, object, .. } = &objects[at];
            self.check_settled(*sink, &object.coordinates)
        })?;
        objects.iter().for_each(|writing| self.count(&writing.object));
        Ok(())
    }

    /// Calls `act` with the index of each object and its share of the machine, several
    /// concurrently.
    fn each(
        &self,
        objects: &[WritingObject<'_>],
        act: &(dyn Fn(usize, WriteResources) -> Result<()> + Sync),
    ) -> Result<()> {
        let store = &self.store;
        let large = match store.storage.is_remote() && store.options.threads != Some(1) {
            // Each object takes memory until the server has it, and needs no core meanwhile.
            true => store.tuning.threads_waiting as u64,
            false => at_once(store) as u64,
        };
        let (rooms, go_on) = (MemoryBudget::new(large * WRITING_BYTES), || Ok(()));
        let threads = if large == 1 { 1 } else { large.max(WRITING_MAX) };
        let threads = usize::try_from(threads).unwrap_or(1);
        let act = |number: u64, resources| {
            let at = usize::try_from(number).unwrap_or(usize::MAX);
            let bytes = objects[at].object.bytes.clamp(WRITING_BYTES_MIN, WRITING_BYTES);
            let _room = BudgetRound::new(&rooms, &go_on).room(bytes)?;
            act(at, resources).map(|()| 0)
        };
        each_object(store, objects.len() as u64, threads, act).map(drop)
    }

    /// Writes an object that is larger than a round: chunk by chunk, each merged with the commits
    /// over it.
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub(super) fn write_large(
        &self,
        sink: &dyn Sink,
        object: &ObjectBuilder,
        valid: Option<&[u64]>,
    ) -> Result<()> {
        if valid.is_some() || sink.is_covered(&object.coordinates)? {
            let resources = whole_machine(self.store);
            // Another process may have settled it since `valid` was found; the commits still over
            // it count.
            let written = sink.publish_covered(&object.coordinates, resources)?;
            return self.wrote(sink, object, written);
        }
        SettleCounters::add(&self.counts.done, object.bytes);
        Ok(())
    }

    /// Counts a written object, if the stamp that is read back is right.
    fn wrote(&self, sink: &dyn Sink, object: &ObjectBuilder, written: u64) -> Result<()> {
        self.check_settled(sink, &object.coordinates)?;
        SettleCounters::add(&self.counts.bytes, written);
        self.count(object);
        Ok(())
    }

    /// Counts a durable object, without its bytes.
    fn count(&self, object: &ObjectBuilder) {
        self.counts.settled(object.plan, object.number, self.root);
        SettleCounters::add(&self.counts.objects, 1);
        SettleCounters::add(&self.counts.done, object.bytes);
    }

    /// Fails unless the stamp of the object says that it contains the commits of the view.
    fn check_settled(&self, sink: &dyn Sink, coordinates: &[u64]) -> Result<()> {
        if sink.open_unit(coordinates)?.is_some_and(|stored| stored.contained >= self.root) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Conflict,
            format!(
                "{} does not contain what was settled into it: another program has written it; \
                 settle again",
                sink.unit_name(coordinates)
            ),
        ))
    }
}
