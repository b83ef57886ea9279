//! One read ahead, and what becomes of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bedform_geometry::Selection;
use bedform_storage::{ASK_EVERY, stopped_by};

use super::ReadsAhead;
use super::workers::Reserved;
use crate::error::Result;
use crate::run::ReadStatistics;
use crate::run::plan::AsOf;
use crate::threads::workers::check_goes_on;

/// The elements of a selection, what they were read as of, and what the read did.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    pub(crate) elements: Vec<u8>,
    pub(crate) as_of: AsOf,
    pub(crate) statistics: ReadStatistics,
}

/// A read that is to be made before it is asked for.
#[derive(Debug)]
pub(crate) struct Ahead {
    pub(super) selection: Selection,
    pub(super) bytes: u64,
    state: Mutex<State>,
    changed: Condvar,
    stop: Arc<AtomicBool>,
    _reserved: Reserved,
}

#[derive(Debug)]
enum State {
    /// Nobody has begun.
    Waiting(Arc<dyn ReadsAhead>),
    Running,
    Ready {
        read: Box<ReadAhead>,
        took: Duration,
        since: Instant,
    },
    /// It was taken, taken back, or could not be read.
    Gone,
}

/// What a read that was foreseen finds.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) read: Option<Box<ReadAhead>>,
    /// How long it took in the background.
    pub(super) took: Option<Duration>,
    pub(super) has_waited: bool,
}

impl Ahead {
    pub(super) fn new(
        selection: Selection,
        bytes: u64,
        reader: Arc<dyn ReadsAhead>,
        reserved: Reserved,
    ) -> Arc<Self> {
        Arc::new(Self {
            selection,
            bytes,
            state: Mutex::new(State::Waiting(reader)),
            changed: Condvar::new(),
            stop: Arc::default(),
            _reserved: reserved,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads, unless it was taken back.
    pub(super) fn run(&self) {
        let reader = {
            let mut state = self.lock();
            match std::mem::replace(&mut *state, State::Running) {
                State::Waiting(reader) => reader,
                other => {
                    *state = other;
                    return;
                }
            }
        };
        let end = Ending(self);
        let began = Instant::now();
        let read = stopped_by(&self.stop, || reader.read_ahead(&self.selection));
        if let Some(read) = read.filter(|_| !self.stop.load(Ordering::Relaxed)) {
            let (read, since) = (Box::new(read), Instant::now());
            *self.lock() = State::Ready { read, took: since - began, since };
        }
        drop(end);
        // Perhaps the last that has the store.
        drop(reader);
    }

    /// The elements, if they are there or under way; takes back what nobody has begun.
    ///
    /// # Errors
    /// `Interrupted` if the program wants to wait no longer.
    pub(super) fn take(&self) -> Result<Taken> {
        let mut has_waited = false;
        let mut state = self.lock();
        while matches!(*state, State::Running) {
            has_waited = true;
            (state, _) =
                self.changed.wait_timeout(state, ASK_EVERY).unwrap_or_else(PoisonError::into_inner);
            check_goes_on("the read was stopped")?;
        }
        Ok(match std::mem::replace(&mut *state, State::Gone) {
            State::Ready { read, took, .. } => {
                Taken { read: Some(read), took: Some(took), has_waited }
            }
            _ => Taken { read: None, took: None, has_waited },
        })
    }

    /// Takes it back: what is there is dropped, what is under way is stopped. True if it had begun.
    pub(super) fn drop_unused(&self) -> bool {
        self.stop.store(true, Ordering::Relaxed);
        let mut state = self.lock();
        match *state {
            State::Waiting(_) => {
                *state = State::Gone;
                false
            }
            State::Ready { .. } => {
                *state = State::Gone;
                true
            }
            State::Running => true,
            State::Gone => false,
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        matches!(&*self.lock(), State::Ready { .. })
    }

    /// True if it has been there unused for so long.
    pub(super) fn is_older_than(&self, age: Duration) -> bool {
        matches!(&*self.lock(), State::Ready { since, .. } if since.elapsed() > age)
    }
}

/// Ends the run of a read ahead, also if it panics.
struct Ending<'a>(&'a Ahead);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if matches!(*state, State::Running) {
            *state = State::Gone;
        }
        drop(state);
        self.0.changed.notify_all();
    }
}
