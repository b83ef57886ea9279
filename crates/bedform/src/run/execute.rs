//! Execution of a plan: opens objects, fetches units, decodes chunks and delivers them.
//!
//! All threads are alike: each does all these steps in turn for one unit at a time. A chunk is
//! therefore decoded while it is still in the core's cache, and no queue of fetched bytes can grow.
//! The parts of a read that the threads share are a queue of steps (`queue`), the number of
//! threads (`thread_policy`), collected payloads (`collected`) and counts (`statistics`).
//!
//! Threads live for one read. Starting one costs less than a hundredth of the smallest read that
//! gets one. No thread is left behind for a fork or for the interpreter's exit, and dropping a read
//! joins all of them.

use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, Scope};

use bedform_storage::Version;

use super::buffers::{KeptBuffers, PermittedBuffers, ThreadBuffers};
use super::caching::ChunkCaching;
use super::collected::{COPIES_MAX, CollectedPayloads};
use super::deliver::Deliver;
use super::plan::{OpenedVersions, PlannedCell, ReadPlan};
use super::queue::{PlanningGuard, QueuedUnit, ReadQueue, ReadStep, RequestLimits, SharedQueue};
use super::resolve::{
    CellOpening, NeededChunk, ResolveHooks, ResolvedCell, open_cell, payload_units,
};
use super::statistics::ReadCounters;
pub(crate) use super::statistics::ReadStatistics;
use super::thread_policy::ThreadPolicy;
use crate::error::{Error, Result};
use crate::memory::check_for_read;
use crate::plan::tuning::UNIT_BYTES_MAX;
use crate::source::{Payloads, PendingCell};

/// From so many pieces on, each in a file of its own, a read gets threads: each file may be a wait,
/// even for few bytes.
const MANY_PIECES: usize = 8;

/// Delivers the elements that the plan selects.
///
/// # Errors
/// The first error of any thread or visitor. The contents of a buffer are then unspecified.
pub(crate) fn execute(plan: ReadPlan<'_>, deliver: Deliver<'_>) -> Result<ReadStatistics> {
    execute_noting(plan, deliver, None)
}

/// Runs a plan as [`execute`] does, and notes in `opened` the objects that it opens.
///
/// # Errors
/// As [`execute`].
pub(crate) fn execute_noting(
    plan: ReadPlan<'_>,
    deliver: Deliver<'_>,
    opened: Option<&Mutex<OpenedVersions>>,
) -> Result<ReadStatistics> {
    if let Deliver::Cache(admission) = deliver {
        admission.begin();
    }
    if let Deliver::Buffer(target) = deliver
        && target.len() as u64 != plan.result_bytes()
    {
        return Err(Error::invalid(format!(
            "the buffer has {} bytes, the selection needs {}",
            target.len(),
            plan.result_bytes()
        )));
    }
    if plan.result_bytes() == 0 {
        return Ok(ReadStatistics::default());
    }
    check_for_read()?;
    let run = ReadExecution::new(plan, deliver, opened);
    if plan.tuning().threads_waiting <= 1 {
        run.work(None, true);
    } else {
        std::thread::scope(|scope| {
            run.start_first_threads(scope);
            run.work(Some(scope), true);
            run.queue.wait_for_others(&run.threads);
        });
    }
    run.queue.finish()?;
    Ok(run.counters.into_statistics())
}

/// Returns the most threads that can have a share of a plan. The caller waits for each thread until
/// it has had a core, even for one without work.
fn parts(plan: &ReadPlan<'_>) -> u64 {
    if plan.pieces().iter().any(|piece| !piece.moment.is_settled()) {
        return u64::MAX;
    }
    // Raw elements are only copied, in units. Units that wait for the device start more threads
    // later.
    match plan.is_raw() {
        true => plan.result_bytes().div_ceil(UNIT_BYTES_MAX),
        false => plan.chunk_count().max(1),
    }
}

/// The state that the threads of one read share.
pub(super) struct ReadExecution<'a> {
    pub(super) plan: ReadPlan<'a>,
    pub(super) deliver: Deliver<'a>,
    pub(super) caching: ChunkCaching<'a>,
    pub(super) threads: ThreadPolicy<'a>,
    queue: SharedQueue,
    /// Payloads of covers, of the cells resolved so far.
    collected: Mutex<CollectedPayloads>,
    pub(super) counters: ReadCounters,
    /// The parts of a read from a server; `None` if no object waits for one.
    pub(super) remote: Option<RemoteRead>,
    /// The opened objects, if the caller notes them.
    opened: Option<&'a Mutex<OpenedVersions>>,
}

/// The parts of a read that only a server needs. More threads than cores wait for it, so that these
/// share the cores and the memory to decode with.
pub(super) struct RemoteRead {
    limits: RequestLimits,
    pub(super) decoding: PermittedBuffers,
}

/// Starts more threads, as far as there is work for them and the limits allow.
pub(super) type ThreadStarter<'h> = &'h dyn Fn();

impl<'a> ReadExecution<'a> {
    fn new(
        plan: ReadPlan<'a>,
        deliver: Deliver<'a>,
        opened: Option<&'a Mutex<OpenedVersions>>,
    ) -> Self {
        let (tuning, threads) = (plan.tuning(), ThreadPolicy::new(&plan));
        let (requests, bytes) = (tuning.requests_in_flight, threads.buffer_bytes);
        let limits = RequestLimits { requests, bytes };
        let remote = || RemoteRead { limits, decoding: PermittedBuffers::new(tuning.threads) };
        Self {
            plan,
            deliver,
            caching: ChunkCaching::new(&plan, matches!(deliver, Deliver::Cache(_))),
            threads,
            queue: SharedQueue::new(plan.cell_count()),
            collected: Mutex::new(CollectedPayloads::new(plan.cell_count())),
            counters: ReadCounters::default(),
            remote: plan.is_remote().then(remote),
            opened,
        }
    }

    /// Starts the threads that the read has from its beginning.
    fn start_first_threads<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let (plan, tuning) = (&self.plan, self.plan.tuning());
        let most = if plan.is_raw() { plan.result_bytes().saturating_mul(8) } else { u64::MAX };
        let is_large = self.remote.is_some() || tuning.shares(plan.decoded_bytes().min(most));
        if is_large || plan.pieces().len() > MANY_PIECES {
            self.threads.share();
        }
        if is_large {
            for _ in 1..(tuning.threads as u64).min(parts(plan)) {
                self.start_thread(scope);
            }
        }
    }

    /// Starts one more thread if the limits and the system allow. The read goes on without it
    /// otherwise.
    fn start_thread<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let started = self.threads.begin().is_some_and(|extra| {
            let work = move || {
                let _leave = (ReadThreadGuard(self), extra);
                self.queue.interruptible(|| self.work(Some(scope), false));
            };
            Builder::new().name("bedform-read".to_owned()).spawn_scoped(scope, work).is_ok()
        });
        if !started {
            self.threads.end();
        }
    }

    /// Runs steps of the read until none is left.
    fn work<'scope>(&'scope self, scope: Option<&'scope Scope<'scope, '_>>, is_caller: bool) {
        let (mut kept, mut fetching) = (None, ThreadBuffers::default());
        let more = || {
            if let Some(scope) = scope {
                let missing = self.threads.missing(|| self.queue.left());
                (0..missing).for_each(|_| self.start_thread(scope));
            }
        };
        let helpers: ThreadStarter<'_> = &more;
        let take = |queue: &mut ReadQueue| self.take_step(queue);
        while let Some(step) = self.queue.next(is_caller, &self.threads, take) {
            let outcome = match step {
                ReadStep::Cell(cell, asked) => self.resolve_cell(cell, asked, helpers),
                ReadStep::Unit(unit) => {
                    // Most threads wait for a server most of the time, so the decoding ones share
                    // the spare buffers.
                    let own = match self.remote {
                        Some(_) => &mut fetching,
                        None => &mut kept.get_or_insert_with(KeptBuffers::take).0,
                    };
                    self.run_unit(unit, own, helpers)
                }
            };
            if let Err(error) = outcome {
                self.queue.fail(error);
            }
        }
    }

    /// Takes a step from the queue. For a server, it first sends requests for the next ones, and
    /// takes a step whose answers have come.
    fn take_step(&self, queue: &mut ReadQueue) -> Option<ReadStep> {
        let Some(remote) = &self.remote else { return queue.take_next() };
        let open = |number| {
            let cell = self.plan.cell(number)?;
            let need = cell.need(cell.tasks().len());
            cell.piece.source.ask(&cell.coordinates(), need, &self.queue.bell)
        };
        let asked = queue.ask(remote.limits, &self.queue.bell, &open);
        self.counters.waits.add(asked as u64);
        queue.take_asked()
    }

    /// Resolves a cell, delivers its cached chunks and adds its units to the queue.
    fn resolve_cell(
        &self,
        number: u64,
        asked: Option<PendingCell>,
        helpers: ThreadStarter<'_>,
    ) -> Result<()> {
        let resolving = CellResolution { run: self, helpers };
        let planned = PlanningGuard(&self.queue);
        let Some(cell) = self.plan.cell(number) else { return Ok(()) };
        let tasks = cell.tasks();
        let opening = CellOpening { need: cell.need(tasks.len()), asked };
        let mut payloads = Payloads::default();
        let mut open = open_cell(cell, &tasks, opening, &mut payloads, &resolving)?;
        if let Some(open) = &mut open {
            self.deliver_cached(open)?;
        }
        let resolved =
            open.map(|open| open.resolve(self.plan.merging(), &resolving)).transpose()?;
        self.note_opened(number, resolved.as_ref());
        self.add_payloads(payloads, 1)?;
        let Some(ResolvedCell { opened, units }) = resolved else {
            for task in tasks {
                self.deliver_chunk(cell, &NeededChunk::all(task), None, None, &mut Vec::new())?;
            }
            return Ok(());
        };
        self.counters.objects.add(1);
        self.counters.requests.add(opened.index_requests);
        self.counters.bytes.add(opened.index_bytes);
        let queued = |unit| QueuedUnit::new(opened.object.clone(), number, unit);
        self.queue.add(units.into_iter().map(queued).collect(), &self.threads);
        drop(planned);
        if self.threads.has_waited() {
            self.read_ahead();
            helpers();
        }
        Ok(())
    }

    fn note_opened(&self, number: u64, cell: Option<&ResolvedCell>) {
        let Some(opened) = self.opened else { return };
        let version = cell.map(|cell| cell.opened.object.version());
        // The stand-in for a missing object under a cover has no version.
        let version = version.filter(|version| **version != Version::default()).cloned();
        opened.lock().unwrap_or_else(PoisonError::into_inner).insert(number, version);
    }

    /// Adds payloads of covers; `cells` counts the cells whose payloads are now complete. Payloads
    /// that are due become units.
    fn add_payloads(&self, payloads: Payloads, cells: u64) -> Result<()> {
        let collected = || self.collected.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(payloads) = collected().add(payloads, cells) else { return Ok(()) };
        let mut units = Vec::new();
        for (object, unit) in payload_units(payloads)? {
            let Some(payload) = &unit.payload else { continue };
            if payload.take_kept(&self.destination())? || !self.admits_payload(&**payload) {
                continue;
            }
            units.push(QueuedUnit::new(object, 0, unit));
        }
        if units.iter().any(|queued| queued.unit.is_scattered()) {
            self.threads.share();
        }
        self.queue.add(units, &self.threads);
        Ok(())
    }

    /// Notes that a request is about to wait for the device, and starts readahead and threads.
    pub(super) fn waits(&self, helpers: ThreadStarter<'_>) {
        self.counters.waits.add(1);
        self.threads.note_wait();
        self.read_ahead();
        helpers();
    }

    /// Gives the storage readahead hints for the next units, so that the device serves many
    /// requests at once and no thread waits for each. Not for servers, which get requests ahead
    /// instead.
    fn read_ahead(&self) {
        if self.remote.is_some() {
            return;
        }
        for (object, extents) in self.queue.next_extents(&self.threads) {
            for extent in extents {
                self.threads.note_hint(object.read_ahead(extent.offset, extent.length));
            }
        }
    }
}

/// The hooks of `resolve` for one cell that a thread of a read resolves.
struct CellResolution<'r, 'a, 'h> {
    run: &'r ReadExecution<'a>,
    helpers: ThreadStarter<'h>,
}

impl ResolveHooks for CellResolution<'_, '_, '_> {
    fn note_absent(&self) {
        self.run.counters.absent.add(1);
    }

    fn waits(&self) {
        self.run.waits(self.helpers);
    }

    fn take_payloads(&self, payloads: &mut Payloads) -> Result<()> {
        match payloads.len() < COPIES_MAX {
            true => Ok(()),
            false => self.run.add_payloads(std::mem::take(payloads), 0),
        }
    }

    fn takes_whole(&self) -> bool {
        self.run.deliver.takes_whole()
    }

    fn admits(&self, cell: PlannedCell<'_>) -> bool {
        self.run.admits(cell)
    }
}

/// A guard that counts a thread out and wakes the caller, even after a panic.
struct ReadThreadGuard<'r, 'a>(&'r ReadExecution<'a>);

impl Drop for ReadThreadGuard<'_, '_> {
    fn drop(&mut self) {
        self.0.threads.end();
        self.0.queue.bell.ring();
    }
}
