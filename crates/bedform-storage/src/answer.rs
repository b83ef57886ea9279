//! Pending answers of servers: a few threads keep many requests in flight.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::StorageError;

/// The most requests that one thread keeps in flight to a server.
pub const REQUESTS_MAX: usize = 128;

/// The outcome of a request: a value, or an error.
type AnswerOutcome<T> = Result<T, StorageError>;

/// A counter that is raised when an answer arrives, for threads that wait for any of many answers.
///
/// ```
/// use bedform_storage::Bell;
///
/// let bell = Bell::default();
/// let heard = bell.count();
/// // Whoever looks now, and finds nothing, misses nothing that comes from now on.
/// bell.ring();
/// bell.wait(heard, None);
/// ```
#[derive(Debug, Default)]
pub struct Bell {
    count: Mutex<u64>,
    rung: Condvar,
}

impl Bell {
    /// Returns the number of rings so far.
    pub fn count(&self) -> u64 {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Raises the count and wakes all waiting threads.
    pub fn ring(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.rung.notify_all();
    }

    /// Waits until the count is above `heard`, or for at most the given time.
    pub fn wait(&self, heard: u64, at_most: Option<Duration>) {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let quiet = |count: &mut u64| *count == heard;
        match at_most {
            None => drop(self.rung.wait_while(count, quiet)),
            Some(time) => drop(self.rung.wait_timeout_while(count, time, quiet)),
        }
    }
}

/// A pending answer. Dropping it cancels the request.
pub struct Answer<T> {
    slot: Arc<AnswerSlot<T>>,
    give_up: Option<Box<dyn FnOnce() + Send>>,
}

/// The sending end of an [`Answer`]. Dropping it without an answer sends an error of kind `Io`.
pub struct AnswerSender<T> {
    slot: Arc<AnswerSlot<T>>,
}

struct AnswerSlot<T> {
    state: Mutex<AnswerState<T>>,
    is_here: AtomicBool,
    bell: Arc<Bell>,
}

/// The state of an outcome between sender and receiver.
enum AnswerState<T> {
    /// Not yet there, or already taken.
    Empty,
    /// Waiting to be taken.
    Here(AnswerOutcome<T>),
    /// Passed to the answer that this function makes of it.
    PassedOn(Box<dyn FnOnce(AnswerOutcome<T>) + Send>),
}

impl<T> Answer<T> {
    /// Returns an answer with its sending end, which rings `bell`.
    pub fn new(bell: Arc<Bell>) -> (Self, AnswerSender<T>) {
        let (state, is_here) = (Mutex::new(AnswerState::Empty), AtomicBool::new(false));
        let slot = Arc::new(AnswerSlot { state, is_here, bell });
        (Self { slot: slot.clone(), give_up: None }, AnswerSender { slot })
    }

    /// Sets a function that is called if the answer is dropped before it arrives.
    #[must_use]
    pub fn given_up_by(mut self, give_up: impl FnOnce() + Send + 'static) -> Self {
        self.give_up = Some(Box::new(give_up));
        self
    }

    /// True if the answer has arrived.
    pub fn is_here(&self) -> bool {
        self.slot.is_here.load(Ordering::Acquire)
    }

    /// Returns the answer, waiting for it if needed.
    ///
    /// # Errors
    /// The errors of the request.
    pub fn take(self) -> Result<T, StorageError> {
        let slot = &self.slot;
        loop {
            let heard = slot.bell.count();
            match slot.take() {
                Some(outcome) => return outcome,
                None => slot.bell.wait(heard, None),
            }
        }
    }

    /// Returns an answer that `change` makes of this one. `change` may run on the thread that
    /// delivers the outcome, so it must not block. The same bell rings, and dropping the new answer
    /// cancels the request.
    #[must_use]
    pub fn then<U: Send + 'static>(
        mut self,
        change: impl FnOnce(Result<T, StorageError>) -> Result<U, StorageError> + Send + 'static,
    ) -> Answer<U>
    where
        T: 'static,
    {
        let (mut answer, promise) = Answer::new(Arc::clone(&self.slot.bell));
        answer.give_up = self.give_up.take();
        self.slot.pass_on(Box::new(move |outcome| promise.keep(change(outcome))));
        answer
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        if let Some(give_up) = self.give_up.take().filter(|_| !self.is_here()) {
            give_up();
        }
    }
}

impl<T> AnswerSender<T> {
    /// Sends the answer.
    pub fn keep(self, outcome: Result<T, StorageError>) {
        self.slot.put(outcome);
    }
}

impl<T> Drop for AnswerSender<T> {
    fn drop(&mut self) {
        if !self.slot.is_here.load(Ordering::Acquire) {
            let reason = std::io::Error::other("the request ended without an answer");
            self.slot.put(Err(StorageError::from_io("read", "", reason)));
        }
    }
}

impl<T> AnswerSlot<T> {
    fn state(&self) -> MutexGuard<'_, AnswerState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, outcome: AnswerOutcome<T>) {
        let mut state = self.state();
        self.is_here.store(true, Ordering::Release);
        match std::mem::replace(&mut *state, AnswerState::Empty) {
            AnswerState::PassedOn(next) => {
                drop(state);
                next(outcome);
            }
            AnswerState::Empty | AnswerState::Here(_) => {
                *state = AnswerState::Here(outcome);
                drop(state);
                self.bell.ring();
            }
        }
    }

    fn take(&self) -> Option<AnswerOutcome<T>> {
        let mut state = self.state();
        match std::mem::replace(&mut *state, AnswerState::Empty) {
            AnswerState::Here(outcome) => Some(outcome),
            other => {
                *state = other;
                None
            }
        }
    }

    fn pass_on(&self, next: Box<dyn FnOnce(AnswerOutcome<T>) + Send>) {
        let mut state = self.state();
        match std::mem::replace(&mut *state, AnswerState::Empty) {
            AnswerState::Here(outcome) => {
                drop(state);
                next(outcome);
            }
            _ => *state = AnswerState::PassedOn(next),
        }
    }
}

impl<T> std::fmt::Debug for Answer<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Answer").field("is_here", &self.is_here()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_waited_for_and_comes_once() {
        let bell = Arc::new(Bell::default());
        let (answer, promise) = Answer::new(bell.clone());
        assert!(!answer.is_here());
        std::thread::scope(|scope| {
            scope.spawn(|| promise.keep(Ok(7)));
            assert_eq!(answer.take().unwrap(), 7);
        });
        assert_eq!(bell.count(), 1);
    }

    #[test]
    fn whoever_looks_between_two_rings_misses_none() {
        let bell = Bell::default();
        let heard = bell.count();
        bell.ring();
        bell.wait(heard, None);
        bell.wait(bell.count(), Some(Duration::from_millis(1)));
    }

    #[test]
    fn a_promise_that_is_not_kept_is_an_error() {
        let (answer, promise) = Answer::<()>::new(Arc::default());
        drop(promise);
        assert!(answer.is_here());
        assert!(answer.take().unwrap_err().to_string().contains("without an answer"));
    }

    #[test]
    fn an_answer_made_of_another_comes_with_it_and_is_given_up_with_it() {
        for comes_first in [false, true] {
            let (answer, promise) = Answer::new(Arc::default());
            let (number, promise) = if comes_first {
                promise.keep(Ok(7));
                (answer.then(|found: Result<i32, _>| Ok(found?.to_string())), None)
            } else {
                (answer.then(|found: Result<i32, _>| Ok(found?.to_string())), Some(promise))
            };
            assert_eq!(number.is_here(), comes_first);
            promise.into_iter().for_each(|promise| promise.keep(Ok(7)));
            assert_eq!(number.take().unwrap(), "7");
        }
        let given_up = Arc::new(AtomicBool::new(false));
        let told = given_up.clone();
        let (answer, promise) = Answer::<()>::new(Arc::default());
        let answer = answer.given_up_by(move || told.store(true, Ordering::Relaxed));
        drop(answer.then(|outcome| outcome));
        assert!(given_up.load(Ordering::Relaxed));
        drop(promise);
    }

    #[test]
    fn an_answer_is_given_up_only_where_it_is_still_on_its_way() {
        for comes in [false, true] {
            let given_up = Arc::new(AtomicBool::new(false));
            let (answer, promise) = Answer::new(Arc::default());
            let told = given_up.clone();
            let answer = answer.given_up_by(move || told.store(true, Ordering::Relaxed));
            if comes {
                promise.keep(Ok(()));
            }
            drop(answer);
            assert_eq!(given_up.load(Ordering::Relaxed), !comes);
        }
    }
}
