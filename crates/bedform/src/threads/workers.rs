//! Scoped threads that work for one caller, who polls for cancellation meanwhile.
//!
//! Only the calling thread may ask whether its call is cancelled ([`bedform_storage::is_cancelled`]).
//! So it polls while it waits for the other threads, and tells them to stop through one atomic.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::{Builder, Thread};
use std::time::Instant;

use bedform_storage::{ASK_EVERY, GracePeriod, is_cancelled, stopped_by, threads_that_fit};

use crate::error::{Error, ErrorKind, Result};

/// Calls `own` on this thread and `work` on up to `others` more threads with the name `name`, as
/// many as the system has. Returns the result of `own` when all have ended.
pub(crate) fn with_workers<T>(
    name: &str,
    others: usize,
    work: impl Fn() + Sync,
    own: impl FnOnce() -> T,
) -> T {
    let (stop, left) = (Arc::new(AtomicBool::new(false)), AtomicUsize::new(0));
    let caller = std::thread::current();
    std::thread::scope(|scope| {
        for _ in 0..threads_that_fit(others) {
            let (stop, work, working) = (&stop, &work, WorkerGuard::new(&left, &caller));
            // If no thread can be started, this one does all the work.
            let _ = Builder::new().name(name.to_owned()).spawn_scoped(scope, move || {
                let _working = working;
                stopped_by(stop, work);
            });
        }
        let outcome = own();
        let mut asked = Instant::now();
        while left.load(Ordering::Acquire) > 0 {
            std::thread::park_timeout(ASK_EVERY);
            if asked.elapsed() < ASK_EVERY {
                continue;
            }
            asked = Instant::now();
            if is_cancelled() {
                stop.store(true, Ordering::Relaxed);
            }
        }
        outcome
    })
}

/// A guard that counts a working thread, even if it panics or was never started.
struct WorkerGuard<'a> {
    left: &'a AtomicUsize,
    caller: &'a Thread,
}

impl<'a> WorkerGuard<'a> {
    fn new(left: &'a AtomicUsize, caller: &'a Thread) -> Self {
        left.fetch_add(1, Ordering::AcqRel);
        Self { left, caller }
    }
}

impl Drop for WorkerGuard<'_> {
    fn drop(&mut self) {
        self.left.fetch_sub(1, Ordering::AcqRel);
        self.caller.unpark();
    }
}

/// Waits for the answer of another thread; `None` if that has ended without one.
///
/// # Errors
/// `Interrupted` if the program cancels the wait.
pub(crate) fn answer<T>(answers: &Receiver<T>) -> Result<Option<T>> {
    let mut grace = GracePeriod::default();
    loop {
        match answers.recv_timeout(ASK_EVERY) {
            Ok(answer) => return Ok(Some(answer)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) if grace.is_over() => return Err(stopped()),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Fails with `message` once the call that this thread works for is cancelled.
///
/// # Errors
/// `Interrupted`.
pub(crate) fn check_cancelled(message: &str) -> Result<()> {
    if is_cancelled() { Err(Error::new(ErrorKind::Interrupted, message)) } else { Ok(()) }
}

/// Returns the error of a wait that the program has cancelled.
pub(crate) fn stopped() -> Error {
    Error::new(ErrorKind::Interrupted, "stopped while it was waited for")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use crate::threads::workers::*;

    #[test]
    fn threads_that_wait_are_told_to_stop_once_who_called_them_is() {
        let stop = Arc::new(AtomicBool::new(false));
        let given = stopped_by(&stop, || {
            let others = || {
                while !is_cancelled() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            };
            with_workers("test", 3, others, || {
                stop.store(true, Ordering::Relaxed);
                7
            })
        });
        assert_eq!(given, 7);
    }

    #[test]
    fn an_answer_is_waited_for_until_it_comes_or_cannot_or_nobody_wants_it() {
        let (send, answers) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(2 * ASK_EVERY);
                send.send(7).unwrap();
            });
            assert_eq!(answer(&answers).unwrap(), Some(7));
        });
        let stop = Arc::new(AtomicBool::new(true));
        let error = stopped_by(&stop, || answer(&answers)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted);
        drop(send);
        assert_eq!(answer(&answers).unwrap(), None);
    }
}
