//! One read ahead and its states: waiting, running, ready, gone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bedform_geometry::Selection;
use bedform_storage::{ASK_EVERY, stopped_by};

use super::BackgroundReader;
use super::workers::ReservedBytes;
use crate::error::Result;
use crate::run::ReadStatistics;
use crate::run::plan::ReadVersion;
use crate::threads::workers::check_cancelled;

/// The elements of a selection, with the state that they were read from and the statistics.
#[derive(Debug)]
pub(crate) struct AheadElements {
    pub(crate) elements: Vec<u8>,
    pub(crate) as_of: ReadVersion,
    pub(crate) statistics: ReadStatistics,
}

/// A read that a background thread makes before the program asks for it.
#[derive(Debug)]
pub(crate) struct ReadAheadTask {
    pub(super) selection: Selection,
    pub(super) bytes: u64,
    state: Mutex<ReadAheadState>,
    changed: Condvar,
    stop: Arc<AtomicBool>,
    _reserved: ReservedBytes,
}

#[derive(Debug)]
enum ReadAheadState {
    /// Queued; no thread has begun.
    Waiting(Arc<dyn BackgroundReader>),
    Running,
    Ready {
        read: Box<AheadElements>,
        took: Duration,
        since: Instant,
    },
    /// It was taken, cancelled, or failed.
    Gone,
}

/// The outcome of a read that takes its read ahead.
#[derive(Debug)]
pub(super) struct TakenAhead {
    pub(super) read: Option<Box<AheadElements>>,
    /// The duration of the background read.
    pub(super) took: Option<Duration>,
    pub(super) has_waited: bool,
    /// The background read exceeded the patience and was stopped.
    pub(super) was_stopped: bool,
}

impl ReadAheadTask {
    pub(super) fn new(
        selection: Selection,
        bytes: u64,
        reader: Arc<dyn BackgroundReader>,
        reserved: ReservedBytes,
    ) -> Arc<Self> {
        Arc::new(Self {
            selection,
            bytes,
            state: Mutex::new(ReadAheadState::Waiting(reader)),
            changed: Condvar::new(),
            stop: Arc::default(),
            _reserved: reserved,
        })
    }

    fn lock(&self) -> MutexGuard<'_, ReadAheadState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the read, unless it was cancelled.
    pub(super) fn run(&self) {
        let reader = {
            let mut state = self.lock();
            match std::mem::replace(&mut *state, ReadAheadState::Running) {
                ReadAheadState::Waiting(reader) => reader,
                other => {
                    *state = other;
                    return;
                }
            }
        };
        let end = ReadAheadEnd(self);
        let began = Instant::now();
        let read = stopped_by(&self.stop, || reader.read_ahead(&self.selection));
        if let Some(read) = read.filter(|_| !self.stop.load(Ordering::Relaxed)) {
            let (read, since) = (Box::new(read), Instant::now());
            *self.lock() = ReadAheadState::Ready { read, took: since - began, since };
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
    pub(super) fn take(&self, patience: Duration) -> Result<TakenAhead> {
        let (mut has_waited, asked) = (false, Instant::now());
        let mut state = self.lock();
        while matches!(*state, ReadAheadState::Running) {
            has_waited = true;
            (state, _) =
                self.changed.wait_timeout(state, ASK_EVERY).unwrap_or_else(PoisonError::into_inner);
            let goes_on = check_cancelled("the read was stopped");
            if goes_on.is_err()
                || asked.elapsed() > patience && matches!(*state, ReadAheadState::Running)
            {
                self.stop.store(true, Ordering::Relaxed);
                let given_up = TakenAhead { read: None, took: None, has_waited, was_stopped: true };
                return goes_on.map(|()| given_up);
            }
        }
        Ok(match std::mem::replace(&mut *state, ReadAheadState::Gone) {
            ReadAheadState::Ready { read, took, .. } => {
                TakenAhead { read: Some(read), took: Some(took), has_waited, was_stopped: false }
            }
            _ => TakenAhead { read: None, took: None, has_waited, was_stopped: false },
        })
    }

    /// Cancels the read: drops a ready buffer, stops a running read. True if it had begun.
    pub(super) fn drop_unused(&self) -> bool {
        self.stop.store(true, Ordering::Relaxed);
        let mut state = self.lock();
        match *state {
            ReadAheadState::Waiting(_) => {
                *state = ReadAheadState::Gone;
                false
            }
            ReadAheadState::Ready { .. } => {
                *state = ReadAheadState::Gone;
                true
            }
            ReadAheadState::Running => true,
            ReadAheadState::Gone => false,
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        matches!(&*self.lock(), ReadAheadState::Ready { .. })
    }

    /// True for a buffer that has been ready for longer than `age`, and for a failed read.
    pub(super) fn is_older_than(&self, age: Duration) -> bool {
        match &*self.lock() {
            ReadAheadState::Ready { since, .. } => since.elapsed() > age,
            ReadAheadState::Gone => true,
            ReadAheadState::Waiting(_) | ReadAheadState::Running => false,
        }
    }
}

/// Marks a read ahead as gone on drop if it has no result, also after a panic.
struct ReadAheadEnd<'a>(&'a ReadAheadTask);

impl Drop for ReadAheadEnd<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if matches!(*state, ReadAheadState::Running) {
            *state = ReadAheadState::Gone;
        }
        drop(state);
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use bedform_storage::is_cancelled;

    use super::super::workers::reserve;
    use super::*;

    /// A reader that runs until it is stopped, for at most 600 s.
    #[derive(Debug, Default)]
    struct Silent {
        was_stopped: AtomicBool,
    }

    impl BackgroundReader for Silent {
        fn read_ahead(&self, _: &Selection) -> Option<AheadElements> {
            let began = Instant::now();
            while !is_cancelled() && began.elapsed() < Duration::from_secs(600) {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.was_stopped.store(is_cancelled(), Ordering::Relaxed);
            None
        }
    }

    #[test]
    fn a_read_that_does_not_end_is_waited_for_a_while_and_stopped() {
        let silent = Arc::new(Silent::default());
        let reserved = reserve(8, 1 << 30).unwrap();
        let ahead =
            ReadAheadTask::new(Selection::Orthogonal(Vec::new()), 8, silent.clone(), reserved);
        std::thread::scope(|scope| {
            scope.spawn(|| ahead.run());
            while matches!(*ahead.lock(), ReadAheadState::Waiting(_)) {
                std::thread::yield_now();
            }
            let taken = ahead.take(Duration::from_millis(20)).unwrap();
            assert!(taken.read.is_none() && taken.has_waited && taken.was_stopped);
        });
        assert!(silent.was_stopped.load(Ordering::Relaxed));
    }
}
