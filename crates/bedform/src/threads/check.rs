//! A check that goes on while what it is about is made: nothing is put in place before it has ended well.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use bedform_storage::{ASK_EVERY, GracePeriod, stopped_by, threads_that_fit};

use crate::error::{Error, ErrorKind, Result};
use crate::threads::workers::stopped;

/// What has become of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Passed,
    Failed,
}

/// A check that may still be running.
#[derive(Debug)]
pub(crate) struct Check {
    state: Mutex<State>,
    ended: Condvar,
}

impl Check {
    /// Waits until the check has ended.
    ///
    /// # Errors
    /// If it has failed: whoever made it says why. `Interrupted` if the program wants to wait no longer.
    pub(crate) fn wait(&self) -> Result<()> {
        let (mut state, mut grace) = (self.lock(), GracePeriod::default());
        while *state == State::Running {
            let waited = self.ended.wait_timeout(state, ASK_EVERY);
            let (now, is_late) = waited.unwrap_or_else(PoisonError::into_inner);
            state = now;
            if is_late.timed_out() && *state == State::Running {
                drop(state);
                if grace.is_over() {
                    return Err(stopped());
                }
                state = self.lock();
            }
        }
        match *state {
            State::Failed => Err(Error::new(ErrorKind::Interrupted, "nothing may be written")),
            _ => Ok(()),
        }
    }

    fn end(&self, state: State) {
        *self.lock() = state;
        self.ended.notify_all();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a check as failed unless it has ended: also if it panics nobody waits for ever.
struct Ending<'a>(&'a Check);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let is_running = *self.0.lock() == State::Running;
        if is_running {
            self.0.end(State::Failed);
        }
    }
}

/// Calls `act` while `check` runs on a thread of its own, or behind it where the system has none.
///
/// # Errors
/// That of the check if it fails, whatever `act` says then; else that of `act`.
pub(crate) fn concurrent_check<T>(
    check: impl Fn() -> Result<()> + Sync,
    act: impl FnOnce(&Check) -> Result<T>,
) -> Result<T> {
    let running = Check { state: Mutex::new(State::Running), ended: Condvar::new() };
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let run = || {
            let _ending = Ending(&running);
            stopped_by(&stop, &check).inspect(|()| running.end(State::Passed))
        };
        let thread = std::thread::Builder::new().name("bedform-check".to_owned());
        let started = (threads_that_fit(1) > 0).then(|| thread.spawn_scoped(scope, run));
        let Some(Ok(thread)) = started else {
            check()?;
            running.end(State::Passed);
            return act(&running);
        };
        let outcome = act(&running);
        let was_stopped = |error: &Error| error.kind() == ErrorKind::Interrupted;
        if outcome.as_ref().is_err_and(was_stopped) || running.wait().is_err() {
            // It has ended, or is to.
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
