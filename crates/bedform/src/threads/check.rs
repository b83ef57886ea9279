//! A precondition that is checked concurrently with the write it guards; the result of the write is
//! put in place only once the check has passed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use bedform_storage::{ASK_EVERY, GracePeriod, stopped_by, threads_that_fit};

use crate::error::{Error, ErrorKind, Result};
use crate::threads::workers::stopped;

/// The state of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckState {
    Running,
    Passed,
    Failed,
}

/// A check that may still be running.
#[derive(Debug)]
pub(crate) struct RunningCheck {
    state: Mutex<CheckState>,
    ended: Condvar,
}

impl RunningCheck {
    /// Waits until the check has ended.
    ///
    /// # Errors
    /// If the check has failed; its own error gives the reason. `Interrupted` if the program
    /// cancels the wait.
    pub(crate) fn wait(&self) -> Result<()> {
        let (mut state, mut grace) = (self.lock(), GracePeriod::default());
        while *state == CheckState::Running {
            let waited = self.ended.wait_timeout(state, ASK_EVERY);
            let (now, is_late) = waited.unwrap_or_else(PoisonError::into_inner);
            state = now;
            if is_late.timed_out() && *state == CheckState::Running {
                drop(state);
                if grace.is_over() {
                    return Err(stopped());
                }
                state = self.lock();
            }
        }
        match *state {
            CheckState::Failed => Err(Error::new(ErrorKind::Interrupted, "nothing may be written")),
            _ => Ok(()),
        }
    }

    fn end(&self, state: CheckState) {
        *self.lock() = state;
        self.ended.notify_all();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, CheckState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A guard that ends a running check as failed on drop, so that a panic leaves no thread waiting.
struct CheckGuard<'a>(&'a RunningCheck);

impl Drop for CheckGuard<'_> {
    fn drop(&mut self) {
        let is_running = *self.0.lock() == CheckState::Running;
        if is_running {
            self.0.end(CheckState::Failed);
        }
    }
}

/// Calls `act` while `check` runs on a thread of its own, or after it if the system has no thread.
///
/// # Errors
/// The error of the check if it fails, whatever `act` returns; else that of `act`.
pub(crate) fn concurrent_check<T>(
    check: impl Fn() -> Result<()> + Sync,
    act: impl FnOnce(&RunningCheck) -> Result<T>,
) -> Result<T> {
    let running = RunningCheck { state: Mutex::new(CheckState::Running), ended: Condvar::new() };
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let run = || {
            let _ending = CheckGuard(&running);
            stopped_by(&stop, &check).inspect(|()| running.end(CheckState::Passed))
        };
        let thread = std::thread::Builder::new().name("bedform-check".to_owned());
        let started = (threads_that_fit(1) > 0).then(|| thread.spawn_scoped(scope, run));
        let Some(Ok(thread)) = started else {
            check()?;
            running.end(CheckState::Passed);
            return act(&running);
        };
        let outcome = act(&running);
        let was_stopped = |error: &Error| error.kind() == ErrorKind::Interrupted;
        if outcome.as_ref().is_err_and(was_stopped) || running.wait().is_err() {
            // The check has ended, or is to end.
            stop.store(true, Ordering::Relaxed);
        }
        let checked = thread.join().unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Io, "internal error: a thread that checks has ended"))
        });
        checked.and(outcome)
    })
}

#[cfg(test)]
mod tests {
    use crate::threads::check::*;

    #[test]
    fn what_waits_for_a_check_goes_on_only_if_it_passes() {
        let slow = || std::thread::sleep(std::time::Duration::from_millis(5));
        let passed = concurrent_check(
            || {
                slow();
                Ok(())
            },
            |check| check.wait().map(|()| 7),
        );
        assert_eq!(passed.unwrap(), 7);
        let failed = concurrent_check(
            || {
                slow();
                Err(Error::invalid("why"))
            },
            |check| check.wait().map(|()| 7),
        );
        assert_eq!(failed.unwrap_err().to_string(), "why");
        let unasked = concurrent_check(|| Err(Error::invalid("why")), |_| Ok(7));
        assert_eq!(unasked.unwrap_err().to_string(), "why");
        let own = concurrent_check(|| Ok(()), |_| Err::<(), _>(Error::invalid("own")));
        assert_eq!(own.unwrap_err().to_string(), "own");
    }
}
