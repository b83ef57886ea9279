//! Execution of a plan: opens objects, fetches units, decodes chunks and delivers them.
//!
//! All threads are alike: each does all these steps in turn for one unit at a time. A chunk is
//! therefore decoded while it is still in the core's cache, and no queue of fetched bytes can grow.
//! The caller's thread is the first. While the data are in the page cache, there are as many
//! threads as cores. The first request that would wait for the device starts more: enough to keep
//! the device busy, or only a few where the kernel honours readahead hints.
//!
//! Requests to a server are sent ahead of the threads that consume them (see `queue`), as many as
//! the profile allows in flight. The threads are then no more than the cores, because a thread for
//! each request would cost more than the request. Only objects that do not support asynchronous
//! requests start threads that wait.
//!
//! Threads live for one read. Starting one costs less than a hundredth of the smallest read that
//! gets one. No thread is left behind for a fork or for the interpreter's exit, and dropping a read
//! joins all of them.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope};

use bedform_codec::ChunkCodec;
use bedform_storage::{ASK_EVERY, Bell, Object, ReadBlock, Version, stopped_by};

use super::buffers::{KeptBuffers, ThreadBuffers};
use super::chunks::ChunkCache;
use super::deliver::Deliver;
use super::plan::{OpenedVersions, PlanPiece, PlannedCell, ReadPlan};
use super::queue::{QueuedUnit, ReadQueue, ReadStep, RequestLimits};
use super::resolve::{
    CellOpening, NeededChunk, ResolveHooks, ResolvedCell, payload_units, resolve,
};
use crate::cache::ObjectKey;
use crate::codec::cost::{Decoding, decoding_seconds};
use crate::error::{Error, ErrorKind, Result};
use crate::memory;
use crate::plan::tuning::{Tuning, UNIT_BYTES_MAX};
use crate::source::{Cover, Payloads, PendingCell};
use crate::threads::extra::ExtraThread;
use crate::threads::permits::CpuPermits;
use crate::threads::workers::check_goes_on;

/// Counts of the work that a read did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadStatistics {
    /// Objects opened.
    pub objects: u64,
    /// Requests for bytes, including those for indexes.
    pub requests: u64,
    /// Bytes requested, including those of indexes.
    pub bytes: u64,
    /// Chunks decoded or read in part.
    pub chunks: u64,
    /// Requests that waited for the device.
    pub waits: u64,
    /// Objects that do not exist; the read gets fill values for them.
    pub absent: u64,
}

impl std::ops::AddAssign for ReadStatistics {
    fn add_assign(&mut self, other: Self) {
        let Self { objects, requests, bytes, chunks, waits, absent } = other;
        self.objects += objects;
        self.requests += requests;
        self.bytes += bytes;
        self.chunks += chunks;
        self.waits += waits;
        self.absent += absent;
    }
}

/// The message of a cancelled read.
const STOPPED: &str = "the read was stopped";

/// The most decoded bytes of a read that caches all its chunks: copying them takes a millisecond or
/// two.
const WHOLE_KEPT_BYTES_MAX: u64 = 8 << 20;
/// Decoding counts as dear if it takes so many times as long as copying the chunk into the cache.
/// Cheaper chunks of which a large read takes every element are not cached: few of them are read
/// again.
const DEAR: f64 = 3.0;

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
    memory::check_for_read()?;
    let decoded = decoded_bytes(&plan);
    let needed =
        if plan.is_raw() { decoded.min(plan.result_bytes().saturating_mul(8)) } else { decoded };
    let run = ReadExecution { opened, ..ReadExecution::new(plan, deliver) };
    if run.tuning.threads_waiting <= 1 {
        run.work(None, true);
    } else {
        std::thread::scope(|scope| {
            let is_of_many = plan.pieces().len() > MANY_PIECES;
            run.with_threads.store(is_of_many, Ordering::Relaxed);
            if run.is_remote || run.tuning.shares(needed) {
                run.with_threads.store(true, Ordering::Relaxed);
                for _ in 1..(run.tuning.threads as u64).min(parts(&plan)) {
                    run.start_thread(scope);
                }
            }
            run.work(Some(scope), true);
            run.wait_for_others();
        });
    }
    run.finish()
}

/// Returns the most threads that can have a share of a plan. The caller waits for each thread until
/// it has had a core, even for one without work.
fn parts(plan: &ReadPlan<'_>) -> u64 {
    if plan.pieces().iter().any(|piece| !piece.moment.is_settled()) {
        return u64::MAX;
    }
    // Raw elements are only copied, in units. Units that wait for the device start more threads
    // later.
    // as any unit does.
    match plan.is_raw() {
        true => plan.result_bytes().div_ceil(UNIT_BYTES_MAX),
        false => plan.chunk_count().max(1),
    }
}

/// Returns the bytes of all chunks of a plan once they are decoded.
fn decoded_bytes(plan: &ReadPlan<'_>) -> u64 {
    let decoded = plan.pieces().iter().map(|piece| {
        piece.geometry.chunk_count().saturating_mul(piece.layout.codec.decoded_bytes() as u64)
    });
    decoded.fold(0, u64::saturating_add)
}

/// The state that the threads of one read share.
pub(crate) struct ReadExecution<'a> {
    pub(crate) plan: ReadPlan<'a>,
    /// True if the read looks up decoded chunks in the pieces' caches and puts its own there.
    keeps_chunks: bool,
    /// True for a large read that does not cache chunks of which it takes every element: they are
    /// soon decoded again.
    leaves_whole: bool,
    tuning: &'a Tuning,
    /// Bytes of a decoded chunk, and scratch bytes of decoding one: each the most of any piece.
    chunk_bytes: u64,
    scratch_bytes: u64,
    is_raw: bool,
    pub(crate) deliver: Deliver<'a>,
    /// True if opening an object waits for a server.
    is_remote: bool,
    /// A semaphore for decoding, where more threads than cores wait for a server.
    pub(crate) turns: Option<CpuPermits>,
    /// Buffers that the holders of the semaphore decode with.
    pub(crate) spare: Mutex<Vec<KeptBuffers>>,
    cells: u64,
    queue: Mutex<ReadQueue>,
    /// The opened objects, if the caller notes them.
    opened: Option<&'a Mutex<OpenedVersions>>,
    /// Payloads of covers, of the cells resolved so far.
    covered: Mutex<CollectedPayloads>,
    /// Rung when units were added, a planner finished, an answer came, or the read failed.
    bell: Arc<Bell>,
    stopped: AtomicBool,
    /// Cancels the waits of the other threads.
    cut: Arc<AtomicBool>,
    /// True if the read is worth more threads than its caller's.
    with_threads: AtomicBool,
    pub(crate) waiting: AtomicBool,
    /// True once the storage has honoured a readahead hint.
    fetched_ahead: AtomicBool,
    /// True once some requests cannot be read ahead, so that a thread must wait for them.
    fetched_late: AtomicBool,
    threads: AtomicUsize,
    /// The threads that have found nothing to do.
    idle: AtomicUsize,
    /// Bytes of the largest unit so far; 0 before the first.
    largest_unit: AtomicU64,
    objects: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) chunks: AtomicU64,
    waits: AtomicU64,
    absent: AtomicU64,
}

/// Payloads of covers, collected over many cells, so that a block with elements of several cells is
/// fetched once.
#[derive(Default)]
struct CollectedPayloads {
    payloads: Payloads,
    /// The number of cells whose payloads are complete.
    cells: u64,
}

/// The most copies to collect before they become units: they take some MiB of memory.
const COPIES_MAX: usize = 1 << 17;

/// Starts more threads, as far as there is work for them and the limits allow.
pub(crate) type ThreadStarter<'h> = &'h dyn Fn();

impl<'a> ReadExecution<'a> {
    fn new(plan: ReadPlan<'a>, deliver: Deliver<'a>) -> Self {
        // Chunks of a read that would evict most of the cache are not kept, nor are raw elements,
        // which the page cache has.
        let decoded = decoded_bytes(&plan);
        let has_room =
            |piece: &PlanPiece<'_>| piece.cache.is_none_or(|cache| decoded <= cache.limit() / 2);
        let is_text = plan.pieces().iter().any(|piece| piece.layout.is_text());
        let is_small = || plan.pieces().iter().all(has_room);
        let is_admitted = matches!(deliver, Deliver::Cache(_));
        Self {
            leaves_whole: decoded > WHOLE_KEPT_BYTES_MAX && !plan.is_remote() && !plan.calls_back(),
            keeps_chunks: !plan.is_raw() && !is_text && (is_admitted || is_small()),
            plan,
            chunk_bytes: plan.most(|codec| codec.decoded_bytes() as u64),
            scratch_bytes: plan.most(ChunkCodec::scratch_bytes),
            is_raw: plan.is_raw(),
            is_remote: plan.is_remote(),
            turns: plan.is_remote().then(|| CpuPermits::new(plan.tuning().threads)),
            spare: Mutex::default(),
            tuning: plan.tuning(),
            deliver,
            cells: plan.cell_count(),
            queue: Mutex::default(),
            opened: None,
            covered: Mutex::default(),
            bell: Arc::default(),
            stopped: AtomicBool::new(false),
            cut: Arc::default(),
            with_threads: AtomicBool::new(false),
            waiting: AtomicBool::new(false),
            fetched_ahead: AtomicBool::new(false),
            fetched_late: AtomicBool::new(false),
            threads: AtomicUsize::new(1),
            idle: AtomicUsize::new(0),
            largest_unit: AtomicU64::new(0),
            objects: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            chunks: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            absent: AtomicU64::new(0),
        }
    }

    /// Returns the cache for the decoded chunks of a cell, if the read uses it.
    pub(crate) fn cache_of<'p>(&self, cell: PlannedCell<'p>) -> Option<ChunkCache<'p>> {
        cell.piece.cache.filter(|_| self.keeps_chunks)
    }

    /// Returns true if a chunk that was decoded from `encoded_bytes` bytes is to be cached.
    /// `is_whole` says whether the read takes all of its elements.
    pub(crate) fn keeps(
        &self,
        codec: &ChunkCodec,
        encoded_bytes: usize,
        is_whole: impl FnOnce() -> Result<bool>,
    ) -> Result<bool> {
        if !self.leaves_whole || matches!(self.deliver, Deliver::Cache(_)) {
            return Ok(true);
        }
        let (processor, decoded) = (&self.tuning.profile.processor, codec.decoded_bytes() as u64);
        let of = Decoding::of(1, encoded_bytes as u64, decoded);
        let keeping = of.decoded_bytes / processor.fresh_bytes_per_second;
        let is_dear = decoding_seconds(codec.chain(), processor, of) > DEAR * keeping;
        Ok(is_dear || !is_whole()?)
    }

    fn finish(self) -> Result<ReadStatistics> {
        let queue = self.queue.into_inner().unwrap_or_else(PoisonError::into_inner);
        match queue.error {
            Some(error) => Err(error),
            None => Ok(ReadStatistics {
                objects: self.objects.into_inner(),
                requests: self.requests.into_inner(),
                bytes: self.bytes.into_inner(),
                chunks: self.chunks.into_inner(),
                waits: self.waits.into_inner(),
                absent: self.absent.into_inner(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ReadQueue> {
        // The scope reports a thread that panicked; the queue is always consistent.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts one more thread if the limits and the system allow. The read goes on without it
    /// otherwise.
    fn start_thread<'scope, 'env>(&'scope self, scope: &'scope Scope<'scope, 'env>) {
        let mine = self.threads.fetch_add(1, Ordering::Relaxed);
        let extra = if mine < self.thread_limit() { ExtraThread::begin() } else { None };
        let started = extra.is_some_and(|extra| {
            let work = move || {
                let _leave = (ReadThreadGuard(self), extra);
                stopped_by(&self.cut, || self.work(Some(scope), false));
            };
            Builder::new().name("bedform-read".to_owned()).spawn_scoped(scope, work).is_ok()
        });
        if !started {
            self.threads.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns the most threads whose buffers together fit the memory bound of the read.
    fn thread_limit(&self) -> usize {
        let (chunk, scratch) = (self.chunk_bytes, self.scratch_bytes);
        let fetched = match self.largest_unit.load(Ordering::Relaxed) {
            0 if self.is_raw => UNIT_BYTES_MAX,
            0 => UNIT_BYTES_MAX.max(chunk),
            largest => largest,
        };
        // Only large requests to a device use an aligned block.
        let has_block = fetched >= SMALL_UNIT_BYTES && !self.is_remote;
        let block = if has_block { ReadBlock::BYTES as u64 } else { 0 };
        let (each, all) = match self.is_remote {
            // A thread that waits for the server, or for a decoding permit, holds fetched bytes
            // alone.
            true => {
                let scratch = scratch.saturating_mul(self.tuning.threads as u64);
                (fetched, self.tuning.buffer_bytes.saturating_sub(scratch))
            }
            false => {
                (scratch.saturating_add(fetched).saturating_add(block), self.tuning.buffer_bytes)
            }
        };
        let fit = usize::try_from(all / each.max(1)).unwrap_or(usize::MAX);
        let ahead = self.fetched_ahead.load(Ordering::Relaxed);
        let useful = match ahead && !self.fetched_late.load(Ordering::Relaxed) {
            true => self.tuning.threads_ahead(),
            false => self.tuning.threads_waiting,
        };
        fit.clamp(1, useful.max(self.tuning.threads))
    }

    /// Runs steps of the read until none is left.
    fn work<'scope, 'env>(&'scope self, scope: Option<&'scope Scope<'scope, 'env>>, caller: bool) {
        let (mut kept, mut fetching) = (None, ThreadBuffers::default());
        let more = || {
            if let Some(scope) = scope {
                self.grow(scope);
            }
        };
        let helpers: ThreadStarter<'_> = &more;
        loop {
            if caller && let Err(error) = check_goes_on(STOPPED) {
                self.fail(error);
            }
            let outcome = match self.next(caller) {
                ReadStep::Done => return,
                ReadStep::Nothing => Ok(()),
                ReadStep::Cell(cell, asked) => self.resolve_cell(cell, asked, helpers),
                ReadStep::Unit(unit) => {
                    // Most threads wait for a server most of the time, so the decoding ones share
                    // the spare buffers.
                    let own = match self.is_remote {
                        true => &mut fetching,
                        false => &mut kept.get_or_insert_with(KeptBuffers::take).0,
                    };
                    self.run_unit(unit, own, helpers)
                }
            };
            if let Err(error) = outcome {
                self.fail(error);
            }
        }
    }

    fn next(&self, caller: bool) -> ReadStep {
        loop {
            let heard = self.bell.count();
            {
                let mut queue = self.lock();
                if self.stopped.load(Ordering::Relaxed) {
                    return ReadStep::Done;
                }
                // Units have turned out larger than they were when this thread started.
                if !caller && self.threads.load(Ordering::Relaxed) > self.thread_limit() {
                    return ReadStep::Done;
                }
                let found = match self.is_remote {
                    true => {
                        self.ask(&mut queue);
                        queue.take_asked()
                    }
                    false => queue.take_next(self.cells),
                };
                match found {
                    Some(work) => return work,
                    None if queue.is_done(self.cells) => return ReadStep::Done,
                    None => {}
                }
            }
            self.idle.fetch_add(1, Ordering::Relaxed);
            self.bell.wait(heard, caller.then_some(ASK_EVERY));
            self.idle.fetch_sub(1, Ordering::Relaxed);
            if caller {
                return ReadStep::Nothing;
            }
        }
    }

    /// Sends requests for the next units and objects to the server.
    fn ask(&self, queue: &mut ReadQueue) {
        let open = |number| {
            let cell = self.plan.cell(number)?;
            let need = cell.need(cell.tasks().len());
            cell.piece.source.ask(&cell.coordinates(), need, &self.bell)
        };
        let scratch = self.scratch_bytes.saturating_mul(self.tuning.threads as u64);
        let bytes = self.tuning.buffer_bytes.saturating_sub(scratch);
        let limits = RequestLimits { requests: self.tuning.requests_in_flight, bytes };
        let asked = queue.ask(limits, self.cells, &self.bell, &open);
        self.waits.fetch_add(asked as u64, Ordering::Relaxed);
    }

    /// Polls for cancellation while the other threads end.
    fn wait_for_others(&self) {
        loop {
            let heard = self.bell.count();
            if self.threads.load(Ordering::Acquire) <= 1 {
                return;
            }
            self.bell.wait(heard, Some(ASK_EVERY));
            if let Err(error) = check_goes_on(STOPPED) {
                self.fail(error);
            }
        }
    }

    fn fail(&self, error: Error) {
        if error.kind() == ErrorKind::Interrupted {
            self.cut.store(true, Ordering::Relaxed);
        }
        let mut queue = self.lock();
        queue.error.get_or_insert(error);
        self.stopped.store(true, Ordering::Relaxed);
        drop(queue);
        self.bell.ring();
    }

    /// Starts more threads to keep the device busy while requests wait for it.
    fn grow<'scope, 'env>(&'scope self, scope: &'scope Scope<'scope, 'env>) {
        if !self.with_threads.load(Ordering::Relaxed) {
            return;
        }
        let left = {
            let queue = self.lock();
            queue.units.len() as u64 + (self.cells - queue.next_cell)
        };
        let mut threads = self.threads.load(Ordering::Relaxed);
        // A thread with work, as a rule a wait, takes nothing of the rest.
        let busy = threads.saturating_sub(self.idle.load(Ordering::Relaxed)) as u64;
        while threads < self.thread_limit() && (threads as u64) < busy + left {
            self.start_thread(scope);
            threads += 1;
        }
    }

    /// Resolves a cell and adds its units to the queue.
    fn resolve_cell(
        &self,
        number: u64,
        asked: Option<PendingCell>,
        helpers: ThreadStarter<'_>,
    ) -> Result<()> {
        let resolving = CellResolution { run: self, helpers, coordinates: OnceCell::new() };
        let planned = PlanningGuard(self);
        let Some(cell) = self.plan.cell(number) else { return Ok(()) };
        let tasks = cell.tasks();
        let opening = CellOpening { need: cell.need(tasks.len()), asked };
        let mut payloads = Payloads::default();
        let resolved = resolve(self.plan, cell, &tasks, opening, &mut payloads, &resolving)?;
        self.note_opened(number, resolved.as_ref());
        self.add_payloads(payloads, 1)?;
        let Some(resolved) = resolved else {
            for task in tasks {
                self.deliver_missing(cell, &NeededChunk::all(task), None)?;
            }
            return Ok(());
        };
        let opened = &resolved.opened;
        self.objects.fetch_add(1, Ordering::Relaxed);
        self.requests.fetch_add(opened.index_requests, Ordering::Relaxed);
        self.bytes.fetch_add(opened.index_bytes, Ordering::Relaxed);
        let queued = |unit| QueuedUnit::new(opened.object.clone(), number, unit);
        self.add_units(resolved.units.into_iter().map(queued).collect());
        drop(planned);
        if self.waiting.load(Ordering::Relaxed) {
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

    fn add_units(&self, units: Vec<QueuedUnit>) {
        let largest = units.iter().map(|queued| queued.unit.bytes()).max().unwrap_or(0);
        self.largest_unit.fetch_max(largest, Ordering::Relaxed);
        self.lock().units.extend(units);
        self.bell.ring();
    }

    /// Adds payloads of covers; `cells` counts the cells whose payloads are now complete. After the
    /// last cell, or once many copies are collected, the payloads become units.
    fn add_payloads(&self, payloads: Payloads, cells: u64) -> Result<()> {
        let payloads = {
            let mut covered = self.covered.lock().unwrap_or_else(PoisonError::into_inner);
            covered.payloads.append(payloads);
            covered.cells += cells;
            if covered.cells < self.cells && covered.payloads.len() < COPIES_MAX {
                return Ok(());
            }
            std::mem::take(&mut covered.payloads)
        };
        let mut units = Vec::new();
        for (object, unit) in payload_units(payloads)? {
            let Some(payload) = &unit.payload else { continue };
            if payload.take_kept(&self.destination())? || !self.admits_payload(&**payload) {
                continue;
            }
            units.push(QueuedUnit::new(object, 0, unit));
        }
        if units.iter().any(|queued| queued.unit.is_scattered()) {
            self.with_threads.store(true, Ordering::Relaxed);
        }
        self.add_units(units);
        Ok(())
    }

    /// Notes that a request is about to wait for the device, and starts readahead and threads.
    pub(crate) fn waits(&self, helpers: ThreadStarter<'_>) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.waiting.store(true, Ordering::Relaxed);
        self.read_ahead();
        helpers();
    }

    /// Gives the storage readahead hints for the next units, so that the device serves many
    /// requests at once and no thread waits for each. Not for servers, which get requests ahead
    /// instead.
    fn read_ahead(&self) {
        if self.is_remote {
            return;
        }
        let ahead: Vec<_> = {
            let mut queue = self.lock();
            let mut left = AHEAD_BYTES_MAX;
            let within = |queued: &&QueuedUnit| {
                let fits = left > 0;
                left = left.saturating_sub(queued.unit.bytes());
                fits
            };
            let end = queue.units.iter().take(AHEAD_MAX).take_while(within).count();
            // In large steps, because each one walks the queue.
            if queue.ahead > end / 2 {
                return;
            }
            let start = std::mem::replace(&mut queue.ahead, end);
            let units = queue.units.range(start..end);
            if units.clone().any(|queued| queued.unit.is_scattered()) {
                self.fetched_late.store(true, Ordering::Relaxed);
            }
            // Scattered units are read past the page cache.
            let units = units.filter(|queued| !queued.unit.is_scattered());
            units.map(|queued| (queued.object.clone(), queued.unit.extents.clone())).collect()
        };
        for (object, extents) in ahead {
            for extent in extents {
                let fetched = object.read_ahead(extent.offset, extent.length);
                let said = if fetched { &self.fetched_ahead } else { &self.fetched_late };
                said.store(true, Ordering::Relaxed);
            }
        }
    }
}

/// The hooks of `resolve` for one cell that a thread of a read resolves.
struct CellResolution<'r, 'a, 'h> {
    run: &'r ReadExecution<'a>,
    helpers: ThreadStarter<'h>,
    /// The coordinates of its object as a key of the cache.
    coordinates: OnceCell<ObjectKey>,
}

impl ResolveHooks for CellResolution<'_, '_, '_> {
    fn note_absent(&self) {
        self.run.absent.fetch_add(1, Ordering::Relaxed);
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

    fn is_at_hand(
        &self,
        cell: PlannedCell<'_>,
        object: &dyn Object,
        of: &NeededChunk,
        cover: Option<&dyn Cover>,
    ) -> Result<bool> {
        let Some(cache) = self.run.cache_of(cell) else { return Ok(false) };
        let coordinates = self.coordinates.get_or_init(|| ObjectKey::at(&cell.coordinates()));
        let kept = cache.get(coordinates, object.version(), of.task.position);
        self.run.deliver_kept(cell, of, kept.as_deref(), cover)
    }

    fn admits(&self, cell: PlannedCell<'_>) -> bool {
        self.run.admits(cell)
    }
}

/// Units of fewer bytes are never read past the page cache.
const SMALL_UNIT_BYTES: u64 = 128 << 10;

/// The most units that get readahead hints before they are read.
const AHEAD_MAX: usize = 256;
/// The most bytes of those units together.
const AHEAD_BYTES_MAX: u64 = 64 << 20;

/// A guard that counts a thread out and wakes the caller, even after a panic.
struct ReadThreadGuard<'r, 'a>(&'r ReadExecution<'a>);

impl Drop for ReadThreadGuard<'_, '_> {
    fn drop(&mut self) {
        self.0.threads.fetch_sub(1, Ordering::Release);
        self.0.bell.ring();
    }
}

/// A guard that counts a planner out and wakes the threads that wait for its units, even after a
/// failure or panic.
struct PlanningGuard<'r, 'a>(&'r ReadExecution<'a>);

impl Drop for PlanningGuard<'_, '_> {
    fn drop(&mut self) {
        self.0.lock().planning -= 1;
        self.0.bell.ring();
    }
}
