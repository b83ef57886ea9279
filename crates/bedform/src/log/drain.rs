//! The drain: the thread that copies parts from a burst tier to the log, and its state shared with
//! the writer.
//!
//! Appended bytes are copied in order, as runs. A run is durable in the log after a sync there;
//! only then is the part that ends with it removed.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bedform_storage::{Condition, Durability};

use super::burst::BurstPlace;
use super::promises::Promises;
use super::segment::{LogFile, LogObject};
use super::staged::CommitReach;
use crate::error::{Error, ErrorKind, Result};

/// Bytes that are copied at a time: fewer than wait to be written, so that writing never waits for
/// reading.
const COPY_BYTES: usize = 4 << 20;
/// A writer that has appended nothing for this long is idle: longer than a sync takes, or than
/// another process occupies a core at a time.
const PAUSE: Duration = Duration::from_millis(250);

/// The function that creates the segment in the log.
pub(super) type Create = Box<dyn FnOnce() -> Result<LogFile> + Send>;

/// A run of bytes of one part.
#[derive(Debug, Clone, Copy)]
pub(super) struct PartRun {
    pub(super) part: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    /// True if the part ends with this run.
    pub(super) is_last: bool,
}

/// The state that the writer and the drain share.
pub(super) struct Drain {
    state: Mutex<DrainState>,
    changed: Condvar,
    /// Bytes appended so far.
    appended: AtomicU64,
    /// The last epoch whose promised commit a root names.
    known: AtomicU32,
    /// True if the log says that nothing more of the segment is expected from the tier.
    is_given_up: AtomicBool,
}

struct DrainState {
    waiting: VecDeque<PartRun>,
    /// Runs that start before this byte may be drained; later ones wait.
    released: u64,
    /// True during a commit: its runs wait until it has returned, unless the tier is full.
    is_held: bool,
    done: DrainProgress,
    /// The writer waits for the first so many bytes: they are synced as soon as they are copied.
    wanted: u64,
    /// True if no more runs follow.
    is_closed: bool,
    failure: Option<Error>,
    has_failed: bool,
    /// The writer's promises, created when the tier was named.
    promises: Option<Promises>,
}

/// Progress of the drain.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DrainProgress {
    /// True if the tier names the store of the parts, and the log notes the tier, as durably as
    /// the reach demands.
    pub(super) is_named: bool,
    /// Bytes that are durable in the log.
    pub(super) durable: u64,
    /// Bytes whose parts are gone from the tier.
    pub(super) freed: u64,
}

impl Drain {
    /// Returns the state before any run. At [`CommitReach::Node`] data are drained after their
    /// commit.
    pub(super) fn new(reach: CommitReach) -> Arc<Self> {
        // Data that count only once they are drained need no name here after a power cut.
        let (released, is_named) = match reach {
            CommitReach::Node => (0, false),
            CommitReach::Shared => (u64::MAX, true),
        };
        let state = DrainState {
            waiting: VecDeque::new(),
            released,
            is_held: false,
            done: DrainProgress { is_named, ..DrainProgress::default() },
            wanted: 0,
            is_closed: false,
            failure: None,
            has_failed: false,
            promises: None,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            appended: AtomicU64::new(0),
            known: AtomicU32::new(0),
            is_given_up: AtomicBool::new(false),
        })
    }

    fn lock(&self) -> MutexGuard<'_, DrainState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and wakes all waiters.
    fn change(&self, change: impl FnOnce(&mut DrainState)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn wait<'a>(&self, state: MutexGuard<'a, DrainState>) -> MutexGuard<'a, DrainState> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many bytes are durable in the log.
    pub(super) fn durable_bytes(&self) -> u64 {
        self.lock().done.durable
    }

    /// Notes the last epoch whose promised commit a root names. Its promise and earlier ones may be
    /// removed from the tier.
    pub(super) fn set_known(&self, epoch: u32) {
        self.known.store(epoch, Ordering::Relaxed);
    }

    /// Returns the last epoch whose promised commit a root names.
    pub(super) fn known(&self) -> u32 {
        self.known.load(Ordering::Relaxed)
    }

    /// Notes that the log expects nothing more from the tier: all of the segment may be removed
    /// there.
    pub(super) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }

    /// Takes the writer's promises, which are there once.
    pub(super) fn take_promises(&self) -> Option<Promises> {
        self.lock().promises.take()
    }

    /// Notes the number of bytes that have been appended so far.
    pub(super) fn count_appended(&self, bytes: u64) {
        self.appended.store(bytes, Ordering::Relaxed);
    }

    /// Queues a run. With `releases`, it and all runs before it are drained at once.
    pub(super) fn tell(&self, run: PartRun, releases: bool) {
        self.change(|state| {
            if run.start < run.end || run.is_last {
                state.waiting.push_back(run);
            }
            if releases {
                state.released = state.released.max(run.end);
            }
        });
    }

    /// Notes that no more runs follow.
    pub(super) fn close(&self) {
        self.change(|state| state.is_closed = true);
    }

    /// Fails if draining has failed; the full error only once.
    pub(super) fn check(&self) -> Result<()> {
        self.lock().check()
    }

    /// Waits until the tier durably names the store of the parts, and the log notes the tier.
    pub(super) fn wait_for_name(&self) -> Result<()> {
        let mut state = self.lock();
        while !state.done.is_named {
            state.check()?;
            state = self.wait(state);
        }
        Ok(())
    }

    /// Has the first `bytes` bytes drained at once, and waits until `reached` returns that many.
    pub(super) fn wait_for(&self, bytes: u64, reached: fn(&DrainProgress) -> u64) -> Result<()> {
        let mut state = self.lock();
        while reached(&state.done) < bytes {
            state.check()?;
            state.wanted = state.wanted.max(bytes);
            state.released = state.released.max(bytes);
            self.changed.notify_all();
            state = self.wait(state);
        }
        Ok(())
    }

    /// Keeps queued runs from being released until the commit under way has returned.
    pub(super) fn hold(&self) {
        self.lock().is_held = true;
    }

    /// True while a commit is under way.
    pub(super) fn is_held(&self) -> bool {
        self.lock().is_held
    }

    /// Ends a hold, and releases all queued runs.
    pub(super) fn release(&self) {
        self.change(|state| {
            state.is_held = false;
            state.release_waiting();
        });
    }

    /// Waits for a change. Releases the queued runs if no bytes were appended for a while.
    fn wait_for_pause(&self, state: MutexGuard<'_, DrainState>) {
        let before = self.appended.load(Ordering::Relaxed);
        let waited = self.changed.wait_timeout(state, PAUSE);
        let (mut state, outcome) = waited.unwrap_or_else(PoisonError::into_inner);
        if outcome.timed_out() && !state.is_held && self.appended.load(Ordering::Relaxed) == before
        {
            state.release_waiting();
        }
    }
}

impl DrainState {
    fn release_waiting(&mut self) {
        self.released = self.released.max(self.waiting.back().map_or(0, |run| run.end));
    }

    fn check(&mut self) -> Result<()> {
        if !self.has_failed {
            return Ok(());
        }
        Err(self.failure.take().unwrap_or_else(|| {
            Error::new(ErrorKind::Poisoned, "draining the burst tier failed; start a new session")
        }))
    }
}

/// The thread that copies parts to the log.
pub(super) struct Drainer {
    place: BurstPlace,
    target: DrainTarget,
    shared: Arc<Drain>,
    /// Runs that were appended to the log and are not yet durable there.
    moved: Vec<PartRun>,
}

/// The segment in the log, created on first use.
enum DrainTarget {
    Missing(Option<Create>),
    There(LogFile),
}

impl DrainTarget {
    /// Returns the segment in the log, and creates it if it is missing.
    fn object(&mut self) -> Result<&mut LogObject> {
        if let Self::Missing(create) = self {
            let create = create.take().ok_or_else(|| Error::new(ErrorKind::Io, "no segment"))?;
            *self = Self::There(create()?);
        }
        match self {
            Self::There(file) => Ok(&mut file.object),
            Self::Missing(_) => Err(Error::new(ErrorKind::Io, "no segment")),
        }
    }
}

impl Drainer {
    pub(super) fn new(place: BurstPlace, create: Create, shared: Arc<Drain>) -> Self {
        Self { place, target: DrainTarget::Missing(Some(create)), shared, moved: Vec::new() }
    }

    /// Drains until no more runs follow.
    pub(super) fn run(mut self) {
        let outcome = self.name().and_then(|()| self.drain());
        self.say(outcome);
    }

    /// Drains the queued runs, and makes them durable.
    pub(super) fn run_waiting(&mut self) {
        let outcome = self.drain_waiting();
        self.say(outcome);
    }

    fn say(&self, outcome: Result<()>) {
        self.shared.change(|state| {
            if let Err(error) = outcome {
                (state.has_failed, state.failure) = (true, Some(error));
            }
        });
    }

    /// Makes the tier durably name the store of the parts, and creates the segment in the log,
    /// which notes the tier. Later promises are then known to be missing where the tier is not at
    /// hand.
    pub(super) fn name(&mut self) -> Result<()> {
        if !self.shared.lock().done.is_named {
            let promises = self.place.in_tier(self.place.name_promises())?;
            self.target.object()?;
            self.shared.change(|state| {
                state.promises = promises;
                state.done.is_named = true;
            });
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<()> {
        // At once: errors of the place show before much is promised, and later syncs need not wait
        // for the names.
        self.target.object()?.sync()?;
        while let Some(run) = self.next()? {
            self.copy(run)?;
            self.moved.push(run);
        }
        self.settle()?;
        // Bytes behind the last sync belong to no commit: they are removed in any case.
        if self.place.has_promising_writer() && !self.shared.is_given_up.load(Ordering::Relaxed) {
            // The promises of commits that are not visible yet stay as their proof.
            return self.place.in_tier(self.place.remove_parts());
        }
        self.place.in_tier(self.place.remove())
    }

    fn drain_waiting(&mut self) -> Result<()> {
        loop {
            let next = self.shared.lock().waiting.pop_front();
            let Some(run) = next else { return self.settle() };
            self.copy(run)?;
            self.moved.push(run);
        }
    }

    /// Returns the next run. Makes copied runs durable before it waits, and when the writer waits
    /// for them.
    fn next(&mut self) -> Result<Option<PartRun>> {
        loop {
            let shared = self.shared.clone();
            let mut state = shared.lock();
            // A run may have no bytes, and only mark the end of a part.
            let is_released =
                |run: &PartRun| run.start < state.released || run.end <= state.released;
            let is_next = |run: &PartRun| is_released(run) || state.is_closed;
            let has_next = state.waiting.front().is_some_and(is_next);
            let moved = self.moved.last().map_or(state.done.durable, |run| run.end);
            let is_wanted = state.done.durable < state.wanted && state.wanted <= moved;
            if !self.moved.is_empty() && (is_wanted || !has_next) {
                drop(state);
                self.settle()?;
                continue;
            }
            if has_next {
                return Ok(state.waiting.pop_front());
            }
            if state.is_closed {
                return Ok(None);
            }
            if state.waiting.is_empty() || state.is_held {
                drop(shared.wait(state));
            } else {
                shared.wait_for_pause(state);
            }
        }
    }

    /// Appends the bytes of `run` to the log.
    fn copy(&mut self, run: PartRun) -> Result<()> {
        let object = self.target.object()?;
        let path = self.place.part(run.part)?;
        let part = self.place.in_tier(self.place.storage.open(&path))?;
        let mut buffer = vec![0; COPY_BYTES];
        let mut at = run.start;
        while at < run.end {
            let left = usize::try_from(run.end - at).unwrap_or(usize::MAX);
            let bytes = &mut buffer[..left.min(COPY_BYTES)];
            self.place.in_tier(part.read(at - run.part, bytes))?;
            object.append(bytes)?;
            at += bytes.len() as u64;
        }
        Ok(())
    }

    /// Makes copied runs durable, then removes the parts that are no longer needed.
    fn settle(&mut self) -> Result<()> {
        let Some(last) = self.moved.last() else { return Ok(()) };
        let end = last.end;
        let object = self.target.object()?;
        object.sync()?;
        debug_assert_eq!(object.position(), end, "parts are padded as syncs are");
        // Callers that wait for durability need not wait for the tier.
        self.shared.change(|state| state.done.durable = end);
        for run in self.moved.drain(..).filter(|run| run.is_last) {
            let path = self.place.part(run.part)?;
            let deleted = self.place.storage.delete(&path, Durability::Process, Condition::None);
            self.place.in_tier(deleted)?;
            self.shared.change(|state| state.done.freed = run.end);
        }
        Ok(())
    }
}
