//! Cancellation of calls.
//!
//! A door names, for each call, a [`CancelSource`] that knows whether the user still wants it
//! (Ctrl-C, a C callback, a request whose client has gone). Only the caller's thread asks the
//! source, at most every [`ASK_EVERY`], wherever the call works or waits ([`is_cancelled`]). Other
//! threads that work for the call read one atomic, which the caller's thread sets ([`stopped_by`]).
//! Scopes nest, and each may end the calls inside.
//!
//! A cancelled call returns `Interrupted`. A write in flight to a server then gets a grace period
//! for its answer ([`GracePeriod`]).

use std::cell::{Cell, RefCell};
use std::fmt::{self, Debug, Display};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::{StorageError, StorageErrorKind};

/// The interval at which a source is asked, and the longest wait between two questions.
pub const ASK_EVERY: Duration = Duration::from_millis(50);

/// Time for the answer of a write in flight after a call was cancelled: without an answer its
/// outcome would be unknown.
const GRACE: Duration = Duration::from_secs(2);

/// The first pause between two attempts to take a lock.
const PAUSE: Duration = Duration::from_millis(1);

/// The time after which a wait for a lock is reported.
const LONG: Duration = Duration::from_secs(2);

/// A function that is told, on the waiting thread, that the wait for the lock of `name` is long.
pub type LockReport = fn(name: &str);

static TELL_OF_LOCK: OnceLock<LockReport> = OnceLock::new();

thread_local! {
    /// The conditions that end the calls of this thread, innermost last.
    static STOPS: RefCell<Vec<StopCondition>> = const { RefCell::new(Vec::new()) };
    /// True if a call of this thread was cancelled and its caller may not have noticed yet.
    static WAS_STOPPED: Cell<bool> = const { Cell::new(false) };
}

/// A function that tells whether a call is to stop, and how often to ask it.
#[derive(Clone)]
pub struct CancelSource {
    is_over: Rc<dyn Fn() -> bool>,
    every: Duration,
    is_patient: bool,
}

impl CancelSource {
    /// A source that is asked at once, and then every [`ASK_EVERY`]. After it has returned true, it
    /// is asked each time until it returns false.
    pub fn new(is_over: impl Fn() -> bool + 'static) -> Self {
        Self { is_over: Rc::new(is_over), every: ASK_EVERY, is_patient: false }
    }

    /// As [`CancelSource::new`], but first asked after a call has lasted [`ASK_EVERY`]: for a
    /// question that costs more than a short call.
    pub fn patient(is_over: impl Fn() -> bool + 'static) -> Self {
        Self { is_patient: true, ..Self::new(is_over) }
    }

    /// A source that is asked at every point where a call may end: for tests that cancel at each of
    /// them.
    pub fn each_time(is_over: impl Fn() -> bool + 'static) -> Self {
        Self { every: Duration::ZERO, ..Self::new(is_over) }
    }
}

impl Debug for CancelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelSource").field("every", &self.every).finish_non_exhaustive()
    }
}

/// A condition that ends a call.
#[derive(Debug)]
enum StopCondition {
    Flag(Arc<AtomicBool>),
    At(Instant),
    Asked { source: CancelSource, last: Cell<Option<Instant>>, is_asked: Cell<bool> },
}

/// The state of a condition.
enum StopState {
    Over,
    NotOver,
    /// The answer is unknown: this function has to be called.
    Ask(Rc<dyn Fn() -> bool>),
}

impl StopCondition {
    fn known(&self) -> StopState {
        let is_over = match self {
            Self::Flag(flag) => flag.load(Ordering::Relaxed),
            Self::At(time) => Instant::now() >= *time,
            // The source may itself make calls, which do not ask it again.
            Self::Asked { is_asked, .. } if is_asked.get() => false,
            Self::Asked { source, last, is_asked } => {
                let now = Instant::now();
                let is_soon = match last.get() {
                    Some(last) => now.duration_since(last) < source.every,
                    None => source.is_patient,
                };
                if is_soon && !WAS_STOPPED.get() {
                    last.set(last.get().or(Some(now)));
                    return StopState::NotOver;
                }
                last.set(Some(now));
                is_asked.set(true);
                return StopState::Ask(source.is_over.clone());
            }
        };
        if is_over { StopState::Over } else { StopState::NotOver }
    }

    fn answered(&self) {
        if let Self::Asked { is_asked, .. } = self {
            is_asked.set(false);
        }
    }
}

/// Registers `tell` as this process's report of long waits for locks. Only the first call has an
/// effect.
///
/// ```
/// bedform_storage::report_lock_waits(|name| {
///     eprintln!("waiting for the lock of {name}, which another writer holds");
/// });
/// ```
pub fn report_lock_waits(tell: LockReport) {
    let _ = TELL_OF_LOCK.set(tell);
}

/// Runs `act`, a call that ends with `Interrupted` once `source` returns true.
///
/// ```
/// use bedform_storage::{CancelSource, cancelled_by, is_cancelled};
///
/// let source = CancelSource::each_time(|| true);
/// assert!(cancelled_by(&source, is_cancelled));
/// assert!(!is_cancelled());
/// ```
pub fn cancelled_by<T>(source: &CancelSource, act: impl FnOnce() -> T) -> T {
    WAS_STOPPED.set(false);
    let (last, is_asked) = (Cell::new(None), Cell::new(false));
    ended_by(StopCondition::Asked { source: source.clone(), last, is_asked }, act)
}

/// Runs `act`, which ends with `Interrupted` once `stop` is true: for threads that work for a call
/// on another thread, which asks the source.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use bedform_storage::{is_cancelled, stopped_by};
///
/// let stop = Arc::new(AtomicBool::new(false));
/// stopped_by(&stop, || {
///     assert!(!is_cancelled());
///     stop.store(true, Ordering::Relaxed);
///     assert!(is_cancelled());
/// });
/// assert!(!is_cancelled());
/// ```
pub fn stopped_by<T>(stop: &Arc<AtomicBool>, act: impl FnOnce() -> T) -> T {
    ended_by(StopCondition::Flag(stop.clone()), act)
}

/// Runs `act` with a time limit: it ends with `Interrupted` once `time` has passed. A write in
/// flight then still gets a grace period for its answer.
pub fn within<T>(time: Duration, act: impl FnOnce() -> T) -> T {
    // A time that overflows the clock is no limit.
    match Instant::now().checked_add(time) {
        Some(end) => ended_by(StopCondition::At(end), act),
        None => act(),
    }
}

fn ended_by<T>(stop: StopCondition, act: impl FnOnce() -> T) -> T {
    /// Removes the condition on drop, also if `act` panics.
    struct StopGuard;
    impl Drop for StopGuard {
        fn drop(&mut self) {
            STOPS.with_borrow_mut(|stops| drop(stops.pop()));
        }
    }
    STOPS.with_borrow_mut(|stops| stops.push(stop));
    let _added = StopGuard;
    act()
}

/// Makes the next check ask this thread's sources, however recent the last question was: for
/// callers that know of an event which a source reports.
pub fn recheck_sources() {
    WAS_STOPPED.set(true);
}

/// True if a condition may end the current call of this thread.
pub fn may_be_cancelled() -> bool {
    STOPS.with_borrow(|stops| !stops.is_empty())
}

/// True if the current call of this thread is cancelled. Asks the sources that are due.
pub fn is_cancelled() -> bool {
    let is_over = is_over();
    WAS_STOPPED.set(is_over);
    is_over
}

/// As [`is_cancelled`], before a wait: a source is asked only if it ended the last wait.
pub fn may_begin() -> bool {
    let is_told = STOPS.with_borrow(|stops| {
        stops.iter().any(|stop| match stop {
            StopCondition::Asked { .. } => false,
            told => matches!(told.known(), StopState::Over),
        })
    });
    !(is_told || WAS_STOPPED.get() && is_cancelled())
}

fn is_over() -> bool {
    for at in 0.. {
        match STOPS.with_borrow(|stops| stops.get(at).map(StopCondition::known)) {
            None => return false,
            Some(StopState::Over) => return true,
            Some(StopState::NotOver) => {}
            Some(StopState::Ask(source)) => {
                let is_over = source();
                STOPS.with_borrow(|stops| stops.get(at).map(StopCondition::answered));
                if is_over {
                    return true;
                }
            }
        }
    }
    false
}

/// A wait that lasts until the call is cancelled, and then for a grace period.
///
/// ```
/// use bedform_storage::{ASK_EVERY, GracePeriod};
///
/// let mut grace = GracePeriod::default();
/// // Waits for so long each time, until there is what it waits for.
/// std::thread::sleep(ASK_EVERY);
/// assert!(!grace.is_over());
/// ```
#[derive(Debug)]
pub struct GracePeriod {
    time: Duration,
    stopped: Option<Instant>,
}

impl Default for GracePeriod {
    /// The grace period of a write.
    fn default() -> Self {
        Self::of(GRACE)
    }
}

impl GracePeriod {
    /// A grace period of `time`.
    pub fn of(time: Duration) -> Self {
        Self { time, stopped: None }
    }

    /// True if the wait is to end.
    pub fn is_over(&mut self) -> bool {
        if self.stopped.is_none() && !is_cancelled() {
            return false;
        }
        self.stopped.get_or_insert_with(Instant::now).elapsed() >= self.time
    }
}

/// Returns the error of `operation` on `path`, whose wait was cancelled.
pub fn interrupted(operation: &'static str, path: impl Display) -> StorageError {
    StorageError::new(StorageErrorKind::Interrupted, operation, path)
}

/// A wait for the lock of `name`, with growing pauses and one report when it is long.
#[derive(Debug)]
pub struct LockPoll<'a> {
    name: &'a str,
    begun: Instant,
    was_long: bool,
    pause: Duration,
    /// True once the waiting call was cancelled.
    pub was_cancelled: bool,
}

impl<'a> LockPoll<'a> {
    /// Starts a wait.
    pub fn new(name: &'a str) -> Self {
        Self { name, begun: Instant::now(), was_long: false, pause: PAUSE, was_cancelled: false }
    }

    /// True if the waiting call is cancelled. Must be called on the waiting thread. Reports a wait
    /// that has become long.
    pub fn is_cancelled(&mut self) -> bool {
        if !self.was_long && self.begun.elapsed() >= LONG {
            self.was_long = true;
            if let Some(tell) = TELL_OF_LOCK.get() {
                tell(self.name);
            }
        }
        self.was_cancelled |= is_cancelled();
        self.was_cancelled
    }

    /// Sleeps, longer each time, up to [`ASK_EVERY`].
    ///
    /// # Errors
    /// `Interrupted` if the call was cancelled.
    pub fn pause(&mut self) -> Result<(), StorageError> {
        if self.is_cancelled() {
            return Err(self.interrupted());
        }
        std::thread::sleep(self.pause);
        self.pause = (self.pause * 2).min(ASK_EVERY);
        Ok(())
    }

    /// Returns the error of a cancelled wait.
    pub fn interrupted(&self) -> StorageError {
        interrupted("lock", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_goes_on_where_nobody_ends_it() {
        let mut waiting = LockPoll::new("a");
        assert!(!waiting.is_cancelled() && !waiting.was_cancelled && may_begin());
    }

    #[test]
    fn a_source_is_asked_as_often_as_it_says_and_until_it_wants_the_call_again() {
        let asked = Rc::new(Cell::new(0));
        let counting = |every| {
            let asked = asked.clone();
            asked.set(0);
            let is_over = move || {
                asked.set(asked.get() + 1);
                asked.get() == 3
            };
            CancelSource { every, ..CancelSource::patient(is_over) }
        };
        cancelled_by(&counting(Duration::from_secs(3600)), || {
            assert!(!is_cancelled() && !is_cancelled())
        });
        assert_eq!(asked.get(), 0);
        let each_time = CancelSource { is_patient: false, ..counting(Duration::ZERO) };
        cancelled_by(&each_time, || {
            assert!(may_begin() && !is_cancelled() && !is_cancelled() && is_cancelled());
            assert_eq!(asked.get(), 3);
            assert!(may_begin());
            assert_eq!(asked.get(), 4);
        });
        cancelled_by(&counting(Duration::from_millis(2)), || {
            while !is_cancelled() {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(!is_cancelled());
        });
        assert_eq!(asked.get(), 4);
    }

    #[test]
    fn a_source_may_make_calls_of_its_own_which_do_not_ask_it() {
        let inner =
            || !cancelled_by(&CancelSource::each_time(|| true), is_cancelled) || is_cancelled();
        let outer = CancelSource::each_time(inner);
        cancelled_by(&outer, || assert!(!is_cancelled() && !is_cancelled()));
    }

    #[test]
    fn a_thread_that_is_told_to_stop_waits_no_longer_and_others_do() {
        let [outer, inner] = [false, false].map(|stop| Arc::new(AtomicBool::new(stop)));
        stopped_by(&outer, || {
            stopped_by(&inner, || {
                outer.store(true, Ordering::Relaxed);
                assert!(!may_begin() && is_cancelled() && LockPoll::new("a").is_cancelled());
                let other = std::thread::spawn(|| may_begin() && !is_cancelled());
                assert!(other.join().unwrap());
            });
            outer.store(false, Ordering::Relaxed);
            inner.store(true, Ordering::Relaxed);
            assert!(may_begin() && !is_cancelled());
        });
    }

    #[test]
    fn what_has_a_time_waits_no_longer_than_that() {
        within(Duration::MAX, || assert!(may_begin()));
        within(Duration::from_millis(5), || {
            within(Duration::from_secs(3600), || {
                while !is_cancelled() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                assert!(!may_begin());
            });
        });
        assert!(may_begin());
    }
}
