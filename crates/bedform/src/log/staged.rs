//! A segment that goes through the burst tier: appended there, and drained to its place behind that.
//!
//! The stream of bytes is the same in both. In the burst tier it is cut into parts, so that what has
//! been drained can be removed while the segment grows: the tier may be smaller than what is written.
//! A part is removed when its bytes are durable in the log. A writer that finds the tier full waits for
//! that; what the tier cannot take at all goes to the log directly.
//!
//! Who waits for the tier alone gets all of the node: what no commit has yet is not drained while the
//! writer is busy and half of the tier is free; nor is what a commit has, before it has returned: other
//! processes of the node may still be writing their parts of it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use bedform_storage::{Condition, Durability, GrowingObject, Lock, StorageErrorKind};

use super::burst::{Burst, BurstPlace};
use super::segment::LogFile;
use crate::error::{Error, ErrorKind, Result};

/// Bytes that are moved at a time: fewer than wait to be written, so that writing never waits for reading.
const COPY_BYTES: usize = 4 << 20;
/// Bytes of a part that are set aside at once: the tier is everybody's.
const AHEAD_BYTES_MAX: u64 = 64 << 20;
/// A writer that appends nothing for so long is not busy: longer than a sync takes, or a turn of others
/// on a core.
const PAUSE: Duration = Duration::from_millis(250);

/// How far data have to get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Reach {
    /// Durable where all nodes can read them.
    #[default]
    Shared,
    /// Durable in this node's burst tier; visible, and safe from the loss of the node, when they are
    /// drained.
    Node,
}

/// What a writer appends its segment to.
pub(super) enum Sink {
    Direct(Box<dyn GrowingObject>),
    Staged(Box<Staged>),
}

impl Sink {
    pub(super) fn position(&self) -> u64 {
        match self {
            Self::Direct(object) => object.position(),
            Self::Staged(staged) => staged.position(),
        }
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Direct(object) => Ok(object.append(bytes)?),
            Self::Staged(staged) => staged.append(bytes),
        }
    }

    /// Makes everything appended durable, as far as `reach` says.
    pub(super) fn sync(&mut self, reach: Reach) -> Result<()> {
        match (self, reach) {
            (Self::Direct(object), _) => Ok(object.sync()?),
            (Self::Staged(staged), Reach::Node) => staged.sync_part(),
            (Self::Staged(staged), Reach::Shared) => {
                staged.sync_part()?;
                staged.drained(staged.position())
            }
        }
    }

    /// Hands everything appended to the system.
    pub(super) fn flush(&mut self) -> Result<()> {
        match self {
            Self::Direct(object) => Ok(object.flush()?),
            Self::Staged(staged) => staged.flush(),
        }
    }

    /// Fails if what was appended before cannot become visible any more. What a sync makes durable
    /// after that is as good as promised, whatever happens meanwhile.
    pub(super) fn check(&self) -> Result<()> {
        match self {
            Self::Direct(_) => Ok(()),
            Self::Staged(staged) => staged.check(),
        }
    }

    /// What says how much has been drained; nothing without a burst tier.
    pub(super) fn drain(&self) -> Option<Arc<Drain>> {
        match self {
            Self::Direct(_) => None,
            Self::Staged(staged) => Some(staged.shared.clone()),
        }
    }
}

/// A segment on its way through the burst tier.
pub(super) struct Staged {
    place: BurstPlace,
    durability: Durability,
    /// The part that is appended to, and where it starts; nothing at the start of one.
    part: Option<Box<dyn GrowingObject>>,
    start: u64,
    /// The first byte that the drain has not been told of.
    told: u64,
    shared: Arc<Drain>,
    part_bytes: u64,
    capacity: u64,
    hands: Hands,
    _lock: Box<dyn Lock>,
}

/// Makes the segment in the log.
type Create = Box<dyn FnOnce() -> Result<LogFile> + Send>;

/// Who drains.
enum Hands {
    Thread(JoinHandle<()>),
    /// The writer itself, when it waits for it.
    Own(Box<Drainer>),
    Nobody,
}

/// A run of bytes of a part.
#[derive(Debug, Clone, Copy)]
struct Run {
    part: u64,
    start: u64,
    end: u64,
    /// Nothing more is appended to the part.
    is_last: bool,
}

/// What the writer and the drain tell each other.
pub(super) struct Drain {
    state: Mutex<State>,
    changed: Condvar,
    /// Bytes appended so far.
    appended: AtomicU64,
}

struct State {
    waiting: VecDeque<Run>,
    /// Runs that start before this byte are to be drained; later ones wait.
    released: u64,
    /// A commit is on its way: what it has waits until it has returned, unless the tier is full.
    is_held: bool,
    /// Bytes that are durable in the log.
    durable: u64,
    /// The writer waits for these bytes: make them durable as soon as they are moved.
    wanted: u64,
    /// Nothing more comes.
    is_closed: bool,
    failure: Option<Error>,
    has_failed: bool,
}

impl Drain {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that are durable in the log.
    pub(super) fn durable_bytes(&self) -> u64 {
        self.lock().durable
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// What waits is not to be drained until the commit that is on its way has returned.
    pub(super) fn hold(&self) {
        self.lock().is_held = true;
    }

    /// Everything that the drain has been told of is to be drained.
    pub(super) fn release(&self) {
        let mut state = self.lock();
        state.is_held = false;
        state.release_waiting();
        drop(state);
        self.changed.notify_all();
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
}

impl Staged {
    /// Stages a segment that will lie in the log where `create` makes it.
    ///
    /// # Errors
    /// Those of the burst tier; `Io` if the system has no thread to give.
    pub(super) fn new(
        burst: &Burst,
        place: BurstPlace,
        create: Create,
        reach: Reach,
    ) -> Result<Self> {
        place.prepare()?;
        let lock = place.storage.lock(&place.directory)?;
        let shared = Arc::new(Drain {
            state: Mutex::new(State {
                waiting: VecDeque::new(),
                released: if reach == Reach::Node { 0 } else { u64::MAX },
                is_held: false,
                durable: 0,
                wanted: 0,
                is_closed: false,
                failure: None,
                has_failed: false,
            }),
            changed: Condvar::new(),
            appended: AtomicU64::new(0),
        });
        let target = Target::Missing(Some(create));
        let (told, moved) = (shared.clone(), Vec::new());
        let drainer = Drainer { place: place.clone(), target, shared: told, moved };
        let hands = if burst.in_background {
            let thread = Builder::new().name("bedform-drain".to_owned());
            Hands::Thread(thread.spawn(move || drainer.run()).map_err(|error| {
                Error::new(ErrorKind::Io, format!("cannot start a thread: {error}"))
            })?)
        } else {
            Hands::Own(Box::new(drainer))
        };
        // What counts only when it is drained need not survive a power cut here.
        let durability = match reach {
            Reach::Node => Durability::Disk,
            Reach::Shared => Durability::Process,
        };
        Ok(Self {
            place,
            durability,
            part: None,
            start: 0,
            told: 0,
            shared,
            part_bytes: burst.part_bytes,
            capacity: burst.capacity_bytes.max(2 * burst.part_bytes),
            hands,
            _lock: lock,
        })
    }

    fn position(&self) -> u64 {
        self.start + self.part.as_ref().map_or(0, |part| part.position())
    }

    fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let room = self.part_bytes - (self.position() - self.start);
            let length = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
            let (now, later) = bytes.split_at(length);
            self.part()?.append(now)?;
            bytes = later;
            if self.position() - self.start >= self.part_bytes {
                self.end_part()?;
            }
        }
        self.shared.appended.store(self.position(), Ordering::Relaxed);
        Ok(())
    }

    /// The part that is appended to; a new one begins when there is room for it.
    fn part(&mut self) -> Result<&mut Box<dyn GrowingObject>> {
        if self.part.is_none() {
            self.make_room()?;
            let path = self.place.part(self.start)?;
            let storage = self.place.storage.clone();
            let hint = Some(self.part_bytes.min(AHEAD_BYTES_MAX));
            let part = match storage.grow(&path, self.durability, hint) {
                Err(error) if error.kind == StorageErrorKind::NoSpace => {
                    // Others may have filled it; our own share comes free when it is drained.
                    self.drained(self.start)?;
                    storage.grow(&path, self.durability, hint)?
                }
                outcome => outcome?,
            };
            self.part = Some(part);
        }
        self.part.as_mut().ok_or_else(|| Error::new(ErrorKind::Io, "no part"))
    }

    /// Waits until the tier has room for another part.
    fn make_room(&mut self) -> Result<()> {
        let free = self.capacity.saturating_sub(self.part_bytes);
        if self.start > free {
            self.drained(self.start - free)?;
        }
        Ok(())
    }

    fn end_part(&mut self) -> Result<()> {
        if let Some(part) = &mut self.part {
            part.sync()?;
        }
        let end = self.position();
        let waits = end - self.shared.durable_bytes();
        self.tell(end, true, waits > self.capacity / 2);
        self.part = None;
        self.start = end;
        Ok(())
    }

    /// Hands what was appended to the system, durably where that counts, and to the drain.
    fn sync_part(&mut self) -> Result<()> {
        if let Some(part) = &mut self.part {
            part.sync()?;
        }
        let end = self.position();
        let is_held = self.shared.lock().is_held;
        self.tell(end, false, !is_held);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.check()?;
        self.part.as_mut().map_or(Ok(()), |part| Ok(part.flush()?))
    }

    /// Tells the drain of the bytes up to `end`, and whether it is to begin with them.
    fn tell(&mut self, end: u64, is_last: bool, releases: bool) {
        let run = Run { part: self.start, start: self.told, end, is_last };
        self.told = end;
        let mut state = self.shared.lock();
        if run.start < end || is_last {
            state.waiting.push_back(run);
        }
        if releases {
            state.released = state.released.max(end);
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Fails if draining has failed.
    fn check(&self) -> Result<()> {
        failed(&mut self.shared.lock())
    }

    /// Waits until the first `bytes` bytes are durable in the log.
    fn drained(&mut self, bytes: u64) -> Result<()> {
        self.check()?;
        if let Hands::Own(drainer) = &mut self.hands {
            drainer.run_waiting();
        }
        let mut state = self.shared.lock();
        while state.durable < bytes {
            failed(&mut state)?;
            state.wanted = state.wanted.max(bytes);
            state.released = state.released.max(bytes);
            self.shared.changed.notify_all();
            state = self.shared.wait(state);
        }
        Ok(())
    }
}

fn failed(state: &mut State) -> Result<()> {
    if !state.has_failed {
        return Ok(());
    }
    Err(state.failure.take().unwrap_or_else(|| {
        Error::new(ErrorKind::Poisoned, "draining the burst tier failed; start a new session")
    }))
}

impl Drop for Staged {
    fn drop(&mut self) {
        self.part = None;
        self.shared.lock().is_closed = true;
        self.shared.changed.notify_all();
        match std::mem::replace(&mut self.hands, Hands::Nobody) {
            Hands::Thread(thread) => {
                // It says what it failed with to whoever asks; a panic there has nobody to tell.
                let _ = thread.join();
            }
            Hands::Own(drainer) => {
                if self.check().is_ok() {
                    drainer.run();
                }
            }
            Hands::Nobody => {}
        }
    }
}

/// The side of the thread that moves parts to the log.
struct Drainer {
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
    fn object(&mut self) -> Result<&mut dyn GrowingObject> {
        if let Self::Missing(create) = self {
            let create = create.take().ok_or_else(|| Error::new(ErrorKind::Io, "no segment"))?;
            *self = Self::There(create()?);
        }
        match self {
            Self::There(file) => Ok(&mut *file.object),
            Self::Missing(_) => Err(Error::new(ErrorKind::Io, "no segment")),
        }
    }
}

impl Drainer {
    /// Drains until nothing more comes.
    fn run(mut self) {
        let outcome = self.drain();
        self.say(outcome);
    }

    /// Drains what waits, and makes it durable.
    fn run_waiting(&mut self) {
        let outcome = self.drain_waiting();
        self.say(outcome);
    }

    fn say(&self, outcome: Result<()>) {
        let mut state = self.shared.lock();
        if let Err(error) = outcome {
            (state.has_failed, state.failure) = (true, Some(error));
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    fn drain(&mut self) -> Result<()> {
        // At once: what is wrong with the place is known before much is promised.
        self.target.object()?;
        while let Some(run) = self.next()? {
            self.copy(run)?;
            self.moved.push(run);
        }
        self.settle()?;
        // What was appended behind the last sync is nobody's.
        self.place.remove()
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
            let is_next = |run: &Run| run.start < state.released || state.is_closed;
            let has_next = state.waiting.front().is_some_and(is_next);
            let moved = self.moved.last().map_or(state.durable, |run| run.end);
            let is_wanted = state.durable < state.wanted && state.wanted <= moved;
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
        let part = self.place.storage.open(&self.place.part(run.part)?)?;
        let mut buffer = vec![0; COPY_BYTES];
        let mut at = run.start;
        while at < run.end {
            let left = usize::try_from(run.end - at).unwrap_or(usize::MAX);
            let bytes = &mut buffer[..left.min(COPY_BYTES)];
            part.read(at - run.part, bytes)?;
            object.append(bytes)?;
            at += bytes.len() as u64;
        }
        Ok(())
    }

    /// Makes what was moved durable, and removes the parts that are no longer needed.
    fn settle(&mut self) -> Result<()> {
        let Some(last) = self.moved.last() else { return Ok(()) };
        let end = last.end;
        let object = self.target.object()?;
        object.sync()?;
        debug_assert_eq!(object.position(), end, "parts are padded as syncs are");
        for run in self.moved.drain(..).filter(|run| run.is_last) {
            let path = self.place.part(run.part)?;
            self.place.storage.delete(&path, Durability::Process, Condition::None)?;
        }
        self.shared.lock().durable = end;
        self.shared.changed.notify_all();
        Ok(())
    }
}
