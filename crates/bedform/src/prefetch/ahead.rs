//! One read ahead and its states: waiting, running, ready, gone.

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

/// The elements of a selection, with the state that they were read from and the statistics.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    pub(crate) elements: Vec<u8>,
    pub(crate) as_of: AsOf,
    pub(crate) statistics: ReadStatistics,
}

/// A read that a background thread makes before the program asks for it.
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
    /// Queued; no thread has begun.
    Waiting(Arc<dyn ReadsAhead>),
    Running,
    Ready {
        read: Box<ReadAhead>,
        took: Duration,
        since: Instant,
    },
    /// It was taken, cancelled, or failed.
    Gone,
}

/// The outcome of a read that takes its read ahead.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) read: Option<Box<ReadAhead>>,
    /// The duration of the background read.
    pub(super) took: Option<Duration>,
    pub(super) has_waited: bool,
    /// The background read exceeded the patience and was stopped.
    pub(super) was_stopped: bool,
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

    /// Makes the read, unless it was cancelled.
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
        // This may be the last reference to the store, so it is dropped after the lock.
        drop(reader);
    }

    /// Takes the elements, and waits up to `patience` if the read is running. A read that has not
    /// begun is cancelled; a read that exceeds `patience` is stopped.
    ///
    /// # Errors
    /// `Interrupted` if the program cancels the wait.
    pub(super) fn take(&self, patience: Duration) -> Result<Taken> {
        let (mut has_waited, asked) = (false, Instant::now());
        let mut state = self.lock();
        while matches!(*state, State::Running) {
            has_waited = true;
            (state, _) =
                self.changed.wait_timeout(state, ASK_EVERY).unwrap_or_else(PoisonError::into_inner);
            let goes_on = check_goes_on("the read was stopped");
            if goes_on.is_err() || asked.elapsed() > patience && matches!(*state, State::Running) {
                self.stop.store(true, Ordering::Relaxed);
                let given_up = Taken { read: None, took: None, has_waited, was_stopped: true };
                return goes_on.map(|()| given_up);
            }
        }
        Ok(match std::mem::replace(&mut *state, State::Gone) {
            State::Ready { read, took, .. } => {
                Taken { read: Some(read), took: Some(took), has_waited, was_stopped: false }
            }
            _ => Taken { read: None, took: None, has_waited, was_stopped: false },
        })
    }

    /// Cancels the read: drops a ready buffer, stops a running read. True if it had begun.
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

    /// True for a buffer that has been ready for longer than `age`, and for a failed read.
    pub(super) fn is_older_than(&self, age: Duration) -> bool {
        match &*self.lock() {
            State::Ready { since, .. } => since.elapsed() > age,
            State::Gone => true,
            State::Waiting(_) | State::Running => false,
        }
    }
}

/// Marks a read ahead as gone on drop if it has no result, also after a panic.
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

#[cfg(test)]
mod tests {
    use bedform_storage::goes_on;

    use super::super::workers::reserve;
    use super::*;

    /// A reader that runs until it is stopped, for at most 600 s.
    #[derive(Debug, Default)]
    struct Silent {
        was_stopped: AtomicBool,
    }

    impl ReadsAhead for Silent {
        fn read_ahead(&self, _: &Selection) -> Option<ReadAhead> {
            let began = Instant::now();
            while goes_on() && began.elapsed() < Duration::from_secs(600) {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.was_stopped.store(!goes_on(), Ordering::Relaxed);
            None
        }
    }

    #[test]
    fn a_read_that_does_not_end_is_waited_for_a_while_and_stopped() {
        let silent = Arc::new(Silent::default());
        let reserved = reserve(8, 1 << 30).unwrap();
        let ahead = Ahead::new(Selection::Orthogonal(Vec::new()), 8, silent.clone(), reserved);
        std::thread::scope(|scope| {
            scope.spawn(|| ahead.run());
            while matches!(*ahead.lock(), State::Waiting(_)) {
                std::thread::yield_now();
            }
            let taken = ahead.take(Duration::from_millis(20)).unwrap();
            assert!(taken.read.is_none() && taken.has_waited && taken.was_stopped);
        });
        assert!(silent.was_stopped.load(Ordering::Relaxed));
    }
}
