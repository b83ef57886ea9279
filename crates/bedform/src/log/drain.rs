//! The side of the burst tier that passes parts on to the log, and what it and the writer tell each other.
//!
//! What was appended is moved in order, as runs of bytes. A run is durable in the log after a sync there;
//! then, and not before, the part that ends with it is removed.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bedform_storage::{Condition, Durability};

use super::burst::BurstPlace;
use super::promises::Promises;
use super::segment::{LogFile, LogObject};
use super::staged::Reach;
use crate::error::{Error, ErrorKind, Result};

/// Bytes that are moved at a time: fewer than wait to be written, so that writing never waits for reading.
const COPY_BYTES: usize = 4 << 20;
/// A writer that appends nothing for so long is not busy: longer than a sync takes, or a turn of others
/// on a core.
const PAUSE: Duration = Duration::from_millis(250);

/// Makes the segment in the log.
pub(super) type Create = Box<dyn FnOnce() -> Result<LogFile> + Send>;

/// A run of bytes of a part.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) part: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    /// Nothing more is appended to the part.
    pub(super) is_last: bool,
}

/// What the writer and the drain tell each other.
pub(super) struct Drain {
    state: Mutex<State>,
    changed: Condvar,
    /// Bytes appended so far.
    appended: AtomicU64,
    /// A root knows the promised commits up to this epoch.
    known: AtomicU32,
    /// Nothing of the segment is expected from the tier any more, as the log says.
    is_given_up: AtomicBool,
}

struct State {
    waiting: VecDeque<Run>,
    /// Runs that start before this byte are to be drained; later ones wait.
    released: u64,
    /// A commit is on its way: what it has waits until it has returned, unless the tier is full.
    is_held: bool,
    done: Done,
    /// The writer waits for these bytes: make them durable as soon as they are moved.
    wanted: u64,
    /// Nothing more comes.
    is_closed: bool,
    failure: Option<Error>,
    has_failed: bool,
    /// What the writer notes promises with, made when the tier was named.
    promises: Option<Promises>,
}

/// What the drain has done.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Done {
    /// The tier says whose parts these are, and the log that they are expected, as durably as it has to
    /// be known.
    pub(super) is_named: bool,
    /// Bytes that are durable in the log.
    pub(super) durable: u64,
    /// Bytes whose parts are gone from the tier.
    pub(super) freed: u64,
}

impl Drain {
    /// Nothing is drained yet. Who waits for the tier alone has its data drained when it has committed.
    pub(super) fn new(reach: Reach) -> Arc<Self> {
        // What counts only when it is drained need not be known here after a power cut.
        let (released, is_named) = match reach {
            Reach::Node => (0, false),
            Reach::Shared => (u64::MAX, true),
        };
        let state = State {
            waiting: VecDeque::new(),
            released,
            is_held: false,
            done: Done { is_named, ..Done::default() },
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and tells everybody.
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that are durable in the log.
    pub(super) fn durable_bytes(&self) -> u64 {
        self.lock().done.durable
    }

    /// A root knows the promised commits up to this epoch: what says so in the tier may go.
    pub(super) fn set_known(&self, epoch: u32) {
        self.known.store(epoch, Ordering::Relaxed);
    }

    /// The epoch up to which a root knows what was promised.
    pub(super) fn known(&self) -> u32 {
        self.known.load(Ordering::Relaxed)
    }

    /// The log expects nothing from the tier any more: all of it may go from there.
    pub(super) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }

    /// What the writer notes promises with, once.
    pub(super) fn take_promises(&self) -> Option<Promises> {
        self.lock().promises.take()
    }

    /// Notes that so many bytes have been appended.
    pub(super) fn count_appended(&self, bytes: u64) {
        self.appended.store(bytes, Ordering::Relaxed);
    }

    /// Tells of a run, and whether it, and what comes before, is to be drained at once.
    pub(super) fn tell(&self, run: Run, releases: bool) {
        self.change(|state| {
            if run.start < run.end || run.is_last {
                state.waiting.push_back(run);
            }
            if releases {
                state.released = state.released.max(run.end);
            }
        });
    }

    /// Nothing more comes.
    pub(super) fn close(&self) {
        self.change(|state| state.is_closed = true);
    }

    /// Fails if draining has failed: in full once.
    pub(super) fn check(&self) -> Result<()> {
        self.lock().check()
    }

    /// Waits until the tier says durably whose the parts are, and the log through which tier they come.
    pub(super) fn wait_for_name(&self) -> Result<()> {
        let mut state = self.lock();
        while !state.done.is_named {
            state.check()?;
            state = self.wait(state);
        }
        Ok(())
    }

    /// Has the first `bytes` bytes drained at once, and waits until `reached` says that it is done.
    pub(super) fn wait_for(&self, bytes: u64, reached: fn(&Done) -> u64) -> Result<()> {
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

    /// What waits is not to be drained until the commit that is on its way has returned.
    pub(super) fn hold(&self) {
        self.lock().is_held = true;
    }

    /// True while a commit is on its way.
    pub(super) fn is_held(&self) -> bool {
        self.lock().is_held
    }

    /// Everything that the drain has been told of is to be drained.
    pub(super) fn release(&self) {
        self.change(|state| {
            state.is_held = false;
            state.release_waiting();
        });
    }

    /// Waits for more; what waits is released if nothing was appended for a while.
    fn wait_for_pause(&self, state: MutexGuard<'_, State>) {
        let before = self.appended.load(Ordering::Relaxed);
        let waited = self.changed.wait_timeout(state, PAUSE);
        let (mut state, outcome) = waited.unwrap_or_else(PoisonError::into_inner);
        if outcome.timed_out() && !state.is_held && self.appended.load(Ordering::Relaxed) == before
        {
            state.release_waiting();
        }
    }
}

impl State {
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

/// The side of the thread that moves parts to the log.
pub(super) struct Drainer {
    place: BurstPlace,
    target: Target,
    shared: Arc<Drain>,
    /// What was appended to the log and is not yet durable there.
    moved: Vec<Run>,
}

/// Where the drain goes to.
enum Target {
    Missing(Option<Create>),
    There(LogFile),
}

impl Target {
    /// The segment in the log, which is made if it is missing.
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
        Self { place, target: Target::Missing(Some(create)), shared, moved: Vec::new() }
    }

    /// Drains until nothing more comes.
    pub(super) fn run(mut self) {
        let outcome = self.name().and_then(|()| self.drain());
        self.say(outcome);
    }

    /// Drains what waits, and makes it durable.
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

    /// Has the tier say durably whose the parts are, and begins the segment in the log, which notes the
    /// tier: what is promised after that is known to be missing where the tier is not at hand.
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
        // At once: what is wrong with the place is known before much is promised; and its names need not
        // be waited for later.
        self.target.object()?.sync()?;
        while let Some(run) = self.next()? {
            self.copy(run)?;
            self.moved.push(run);
        }
        self.settle()?;
        // What was appended behind the last sync is nobody's: it goes in any case.
        if self.place.has_promising_writer() && !self.shared.is_given_up.load(Ordering::Relaxed) {
            // What was promised and is not visible yet has its proof here.
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

    /// The next run. Before a wait, and when somebody waits for it, what was moved becomes durable.
    fn next(&mut self) -> Result<Option<Run>> {
        loop {
            let shared = self.shared.clone();
            let mut state = shared.lock();
            // A run may have no bytes, and say only that a part has ended.
            let is_released = |run: &Run| run.start < state.released || run.end <= state.released;
            let is_next = |run: &Run| is_released(run) || state.is_closed;
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
    fn copy(&mut self, run: Run) -> Result<()> {
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

    /// Makes what was moved durable, and then removes the parts that are no longer needed.
    fn settle(&mut self) -> Result<()> {
        let Some(last) = self.moved.last() else { return Ok(()) };
        let end = last.end;
        let object = self.target.object()?;
        object.sync()?;
        debug_assert_eq!(object.position(), end, "parts are padded as syncs are");
        // Who waits for that need not wait for the tier.
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
