//! Runs a plan: opens objects, fetches units, decodes chunks and delivers them.
//!
//! There is one kind of thread, and it does all of these in turn for one unit at a time, so that a
//! chunk is decoded while it is still in the core's cache and no queue of fetched bytes can grow. The
//! caller's thread is the first. While the data are in the page cache, there are as many threads as
//! cores; the first request that would wait for the device brings more, as many as keep it busy, or
//! a few where the storage fetches ahead what it is told of.
//!
//! A server is asked for objects and units before anybody takes them (see `queue`), as many as the profile
//! has in flight, and there are no more threads than cores: a thread for each request would cost more
//! than the request. Only what cannot be asked for brings threads that wait.
//!
//! Threads live for one read: starting one costs less than a hundredth of the smallest read that
//! gets one, nothing is left behind for a fork or for the interpreter's exit, and dropping a read
//! joins all of them.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope};

use bedform_codec::ChunkCodec;
use bedform_storage::{ASK_EVERY, Bell, Object, ReadBlock, Version, stopped_by};

use super::buffers::{Buffers, Kept};
use super::chunks::ChunkCache;
use super::deliver::Deliver;
use super::plan::{Opened, Piece, PlannedCell, ReadPlan};
use super::queue::{AskLimits, Queue, QueuedUnit, Work};
use super::resolve::{Opening, ResolvedCell, Resolving, Wanted, payload_units, resolve};
use crate::cache::ObjectKey;
use crate::codec::cost::{Decoding, decoding_seconds};
use crate::error::{Error, ErrorKind, Result};
use crate::memory;
use crate::plan::tuning::{Tuning, UNIT_BYTES_MAX};
use crate::source::{Cover, Payloads, PendingCell};
use crate::threads::extra::ExtraThread;
use crate::threads::permits::CpuPermits;
use crate::threads::workers::check_goes_on;

/// What a read did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadStatistics {
    /// Objects opened.
    pub objects: u64,
    /// Requests for bytes, those for indexes included.
    pub requests: u64,
    /// Bytes asked for, those of indexes included.
    pub bytes: u64,
    /// Chunks decoded, or read in part.
    pub chunks: u64,
    /// Requests that had to wait for the device.
    pub waits: u64,
    /// Objects that are not there, of which the read got fill values.
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

/// What a read that was cancelled says.
const STOPPED: &str = "the read was stopped";

/// Up to so many decoded bytes a read keeps all chunks: that takes a millisecond or two.
const WHOLE_KEPT_BYTES_MAX: u64 = 8 << 20;
/// Decoding a chunk again is dear where it takes so many times as long as keeping it: few chunks that somebody has
/// taken whole are read again.
const DEAR: f64 = 3.0;

/// Of so many pieces, each in a file of its own, each may be a wait, however little is read of it.
const MANY_PIECES: usize = 8;

/// Delivers what the plan selects.
///
/// # Errors
/// The first error of any thread, visitors included; what a buffer holds is then unspecified.
pub(crate) fn execute(plan: ReadPlan<'_>, deliver: Deliver<'_>) -> Result<ReadStatistics> {
    execute_noting(plan, deliver, None)
}

/// As [`execute`]; notes the objects that it opens.
///
/// # Errors
/// As [`execute`].
pub(crate) fn execute_noting(
    plan: ReadPlan<'_>,
    deliver: Deliver<'_>,
    opened: Option<&Mutex<Opened>>,
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
    let run = Run { opened, ..Run::new(plan, deliver) };
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

/// How many threads can have a part of a plan: one that gets none is still waited for, until it has had a core.
fn parts(plan: &ReadPlan<'_>) -> u64 {
    if plan.pieces().iter().any(|piece| !piece.moment.is_settled()) {
        return u64::MAX;
    }
    // Of elements as they are only copies are shared; those that are waited for bring threads as units do.
    match plan.is_raw() {
        true => plan.result_bytes().div_ceil(UNIT_BYTES_MAX),
        false => plan.chunk_count().max(1),
    }
}

/// Bytes of all chunks of a plan when they are decoded.
fn decoded_bytes(plan: &ReadPlan<'_>) -> u64 {
    let decoded = plan.pieces().iter().map(|piece| {
        piece.geometry.chunk_count().saturating_mul(piece.layout.codec.decoded_bytes() as u64)
    });
    decoded.fold(0, u64::saturating_add)
}

/// The state that the threads of one read share.
pub(crate) struct Run<'a> {
    pub(crate) plan: ReadPlan<'a>,
    /// True if decoded chunks are looked for in the pieces' caches, and kept there.
    keeps_chunks: bool,
    /// True for a read that is large enough to leave out of them those that it takes whole, and can be decoded again
    /// soon.
    leaves_whole: bool,
    tuning: &'a Tuning,
    /// Bytes of a decoded chunk, and those that decoding it takes beside the encoded ones: the most of
    /// any piece.
    chunk_bytes: u64,
    scratch_bytes: u64,
    is_raw: bool,
    pub(crate) deliver: Deliver<'a>,
    /// True if opening an object is a wait.
    is_remote: bool,
    /// Leave to decode, where a server is waited for by more threads than there are cores.
    pub(crate) turns: Option<CpuPermits>,
    /// What those who have leave decode with.
    pub(crate) spare: Mutex<Vec<Kept>>,
    cells: u64,
    queue: Mutex<Queue>,
    /// What is opened, where that is noted.
    opened: Option<&'a Mutex<Opened>>,
    /// What covers of the cells resolved so far have.
    covered: Mutex<Covered>,
    /// Rung when units were added, a planner finished, an answer came, or the read failed.
    bell: Arc<Bell>,
    stopped: AtomicBool,
    /// Ends what the other threads wait for.
    cut: Arc<AtomicBool>,
    /// True if the read is worth more threads than its caller's.
    with_threads: AtomicBool,
    pub(crate) waiting: AtomicBool,
    /// True once the storage fetches requests while nobody waits for them.
    fetched_ahead: AtomicBool,
    /// True once there are requests that somebody must wait for.
    fetched_late: AtomicBool,
    threads: AtomicUsize,
    /// Those of them that find nothing to do.
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

/// Payloads, which are fetched together for many cells: a block that has something of several is
/// fetched once.
#[derive(Default)]
struct Covered {
    payloads: Payloads,
    /// Cells whose payloads are all in, or have been.
    cells: u64,
}

/// Copies that wait for those of other cells: some MiB of memory.
const COPIES_MAX: usize = 1 << 17;

/// Brings more threads in, as far as there is work for them and the limits allow.
pub(crate) type Helpers<'h> = &'h dyn Fn();

impl<'a> Run<'a> {
    fn new(plan: ReadPlan<'a>, deliver: Deliver<'a>) -> Self {
        // A read that would push most others out is not kept, nor is what the page cache has as well.
        let decoded = decoded_bytes(&plan);
        let has_room =
            |piece: &Piece<'_>| piece.cache.is_none_or(|cache| decoded <= cache.limit() / 2);
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

    /// Where the decoded chunks of a cell are kept.
    pub(crate) fn cache_of<'p>(&self, cell: PlannedCell<'p>) -> Option<ChunkCache<'p>> {
        cell.piece.cache.filter(|_| self.keeps_chunks)
    }

    /// Whether a chunk that was decoded from so many bytes is to be kept, of which the read takes all if `is_whole`
    /// says so.
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

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // A thread that panicked is reported by the scope; the queue itself is always whole.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts one more thread if the limits and the system allow; going without is no error.
    fn start_thread<'scope, 'env>(&'scope self, scope: &'scope Scope<'scope, 'env>) {
        let mine = self.threads.fetch_add(1, Ordering::Relaxed);
        let extra = if mine < self.thread_limit() { ExtraThread::begin() } else { None };
        let started = extra.is_some_and(|extra| {
            let work = move || {
                let _leave = (Leave(self), extra);
                stopped_by(&self.cut, || self.work(Some(scope), false));
            };
            Builder::new().name("bedform-read".to_owned()).spawn_scoped(scope, work).is_ok()
        });
        if !started {
            self.threads.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Threads whose buffers fit the bound together.
    fn thread_limit(&self) -> usize {
        let (chunk, scratch) = (self.chunk_bytes, self.scratch_bytes);
        let fetched = match self.largest_unit.load(Ordering::Relaxed) {
            0 if self.is_raw => UNIT_BYTES_MAX,
            0 => UNIT_BYTES_MAX.max(chunk),
            largest => largest,
        };
        // Only large requests to a device have a use for a block.
        let has_block = fetched >= SMALL_UNIT_BYTES && !self.is_remote;
        let block = if has_block { ReadBlock::BYTES as u64 } else { 0 };
        let (each, all) = match self.is_remote {
            // Those who wait for the server, or for leave to decode, hold what was fetched alone.
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

    /// Works until nothing is left.
    fn work<'scope, 'env>(&'scope self, scope: Option<&'scope Scope<'scope, 'env>>, caller: bool) {
        let (mut kept, mut fetching) = (None, Buffers::default());
        let more = || {
            if let Some(scope) = scope {
                self.grow(scope);
            }
        };
        let helpers: Helpers<'_> = &more;
        loop {
            if caller && let Err(error) = check_goes_on(STOPPED) {
                self.fail(error);
            }
            let outcome = match self.next(caller) {
                Work::Done => return,
                Work::Nothing => Ok(()),
                Work::Cell(cell, asked) => self.resolve_cell(cell, asked, helpers),
                Work::Unit(unit) => {
                    // Most threads wait for a server most of the time: those that decode take turns with
                    // what is kept.
                    let own = match self.is_remote {
                        true => &mut fetching,
                        false => &mut kept.get_or_insert_with(Kept::take).0,
                    };
                    self.run_unit(unit, own, helpers)
                }
            };
            if let Err(error) = outcome {
                self.fail(error);
            }
        }
    }

    fn next(&self, caller: bool) -> Work {
        loop {
            let heard = self.bell.count();
            {
                let mut queue = self.lock();
                if self.stopped.load(Ordering::Relaxed) {
                    return Work::Done;
                }
                // Units have turned out larger than they were when this thread was started.
                if !caller && self.threads.load(Ordering::Relaxed) > self.thread_limit() {
                    return Work::Done;
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
                    None if queue.is_done(self.cells) => return Work::Done,
                    None => {}
                }
            }
            self.idle.fetch_add(1, Ordering::Relaxed);
            self.bell.wait(heard, caller.then_some(ASK_EVERY));
            self.idle.fetch_sub(1, Ordering::Relaxed);
            if caller {
                return Work::Nothing;
            }
        }
    }

    /// Asks the server for what comes next.
    fn ask(&self, queue: &mut Queue) {
        let open = |number| {
            let cell = self.plan.cell(number)?;
            let need = cell.need(cell.tasks().len());
            cell.piece.source.ask(&cell.coordinates(), need, &self.bell)
        };
        let scratch = self.scratch_bytes.saturating_mul(self.tuning.threads as u64);
        let bytes = self.tuning.buffer_bytes.saturating_sub(scratch);
        let limits = AskLimits { requests: self.tuning.requests_in_flight, bytes };
        let asked = queue.ask(limits, self.cells, &self.bell, &open);
        self.waits.fetch_add(asked as u64, Ordering::Relaxed);
    }

    /// Hears, while the other threads end what they have begun, whether they are to end at once.
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

    /// Requests wait for the device: more threads keep it busy.
    fn grow<'scope, 'env>(&'scope self, scope: &'scope Scope<'scope, 'env>) {
        if !self.with_threads.load(Ordering::Relaxed) {
            return;
        }
        let left = {
            let queue = self.lock();
            queue.units.len() as u64 + (self.cells - queue.next_cell)
        };
        let mut threads = self.threads.load(Ordering::Relaxed);
        // Who has something to do, a wait as a rule, takes nothing of what is left.
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
        helpers: Helpers<'_>,
    ) -> Result<()> {
        let resolving = CellOfRun { run: self, helpers, coordinates: OnceCell::new() };
        let planned = Planned(self);
        let Some(cell) = self.plan.cell(number) else { return Ok(()) };
        let tasks = cell.tasks();
        let opening = Opening { need: cell.need(tasks.len()), asked };
        let mut payloads = Payloads::default();
        let resolved = resolve(self.plan, cell, &tasks, opening, &mut payloads, &resolving)?;
        self.note_opened(number, resolved.as_ref());
        self.add_payloads(payloads, 1)?;
        let Some(resolved) = resolved else {
            for task in tasks {
                self.deliver_missing(cell, &Wanted::all(task), None)?;
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
        // What stands for an object that is not there, under a cover, has no version.
        let version = version.filter(|version| **version != Version::default()).cloned();
        opened.lock().unwrap_or_else(PoisonError::into_inner).insert(number, version);
    }

    fn add_units(&self, units: Vec<QueuedUnit>) {
        let largest = units.iter().map(|queued| queued.unit.bytes()).max().unwrap_or(0);
        self.largest_unit.fetch_max(largest, Ordering::Relaxed);
        self.lock().units.extend(units);
        self.bell.ring();
    }

    /// Adds what covers have, with which the payloads of `cells` cells are complete. With the last of all
    /// cells, or when many wait, they become units.
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

    /// A request is about to wait for the device.
    pub(crate) fn waits(&self, helpers: Helpers<'_>) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.waiting.store(true, Ordering::Relaxed);
        self.read_ahead();
        helpers();
    }

    /// Tells the storage which requests come next, so that it is busy with many of them while no
    /// thread has to wait for each. A server is asked for them instead.
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
            // In large steps: each goes through the queue.
            if queue.ahead > end / 2 {
                return;
            }
            let start = std::mem::replace(&mut queue.ahead, end);
            let units = queue.units.range(start..end);
            if units.clone().any(|queued| queued.unit.is_scattered()) {
                self.fetched_late.store(true, Ordering::Relaxed);
            }
            // Scattered ones go past the page cache.
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

/// A cell that a thread of a read resolves.
struct CellOfRun<'r, 'a, 'h> {
    run: &'r Run<'a>,
    helpers: Helpers<'h>,
    /// The coordinates of its object, as the cache has them.
    coordinates: OnceCell<ObjectKey>,
}

impl Resolving for CellOfRun<'_, '_, '_> {
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
        of: &Wanted,
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

/// Units below this are never read past the page cache.
const SMALL_UNIT_BYTES: u64 = 128 << 10;

/// Units of which the storage is told before they are read.
const AHEAD_MAX: usize = 256;
/// Bytes of these units together.
const AHEAD_BYTES_MAX: u64 = 64 << 20;

/// Counts a thread out and wakes the caller, who may wait for it, also if it panics.
struct Leave<'r, 'a>(&'r Run<'a>);

impl Drop for Leave<'_, '_> {
    fn drop(&mut self) {
        self.0.threads.fetch_sub(1, Ordering::Release);
        self.0.bell.ring();
    }
}

/// Counts a planner out and wakes those who wait for its units, also if it fails or panics.
struct Planned<'r, 'a>(&'r Run<'a>);

impl Drop for Planned<'_, '_> {
    fn drop(&mut self) {
        self.0.lock().planning -= 1;
        self.0.bell.ring();
    }
}
