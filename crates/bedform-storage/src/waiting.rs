//! What a program is told, and asked, while one of its threads waits: for a lock, or for a server.

use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::{StorageError, StorageErrorKind};

/// Told of a wait, on the thread that waits and many times a second: for the lock of `name`, or for a
/// server where that is empty. `is_long` is true once, when a wait for a lock begins to need a word of
/// explanation. Whoever gives true ends the wait with `Interrupted`, and is asked again before this thread
/// waits the next time.
pub type WatchWaits = fn(name: &str, is_long: bool) -> bool;

/// How long a wait lasts before the program is asked whether it is to go on.
pub const LISTEN: Duration = Duration::from_millis(50);

/// How long a write that is on its way is waited for once the program wants to stop: else nobody knows what
/// has become of it.
const GRACE: Duration = Duration::from_secs(2);

/// From when on a wait needs a word.
const LONG: Duration = Duration::from_secs(2);

static WATCH: OnceLock<WatchWaits> = OnceLock::new();

thread_local! {
    /// What ends the waits of this thread.
    static STOPS: RefCell<Vec<Stop>> = const { RefCell::new(Vec::new()) };
    /// The program has ended a wait of this thread, and perhaps not heard yet that it has.
    static WAS_STOPPED: Cell<bool> = const { Cell::new(false) };
}

/// What ends waits.
#[derive(Debug)]
enum Stop {
    Flag(Arc<AtomicBool>),
    At(Instant),
}

impl Stop {
    fn is_over(&self) -> bool {
        match self {
            Self::Flag(flag) => flag.load(Ordering::Relaxed),
            Self::At(time) => Instant::now() >= *time,
        }
    }
}

/// Has `watch` told of all waits in this process, from now on. The first call counts.
///
/// ```
/// bedform_storage::watch_waits(|name, is_long| {
///     if is_long {
///         eprintln!("waiting for the lock of {name}, which another writer holds");
///     }
///     false
/// });
/// ```
pub fn watch_waits(watch: WatchWaits) {
    let _ = WATCH.set(watch);
}

/// Does `act`, whose waits on this thread end with `Interrupted` once `stop` is true: for threads that
/// work for another, which hears what the program wants.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use bedform_storage::{goes_on, stopped_by};
///
/// let stop = Arc::new(AtomicBool::new(false));
/// stopped_by(&stop, || {
///     assert!(goes_on());
///     stop.store(true, Ordering::Relaxed);
///     assert!(!goes_on());
/// });
/// assert!(goes_on());
/// ```
pub fn stopped_by<T>(stop: &Arc<AtomicBool>, act: impl FnOnce() -> T) -> T {
    ended_by(Stop::Flag(stop.clone()), act)
}

/// Does `act`, whose waits on this thread end with `Interrupted` when `time` has passed: what is worth only
/// so much. A write that is on its way then still has a while for its answer.
pub fn within<T>(time: Duration, act: impl FnOnce() -> T) -> T {
    // What no clock reaches never ends.
    match Instant::now().checked_add(time) {
        Some(end) => ended_by(Stop::At(end), act),
        None => act(),
    }
}

fn ended_by<T>(stop: Stop, act: impl FnOnce() -> T) -> T {
    /// Takes it away again, also if `act` panics.
    struct Added;
    impl Drop for Added {
        fn drop(&mut self) {
            STOPS.with_borrow_mut(|stops| drop(stops.pop()));
        }
    }
    STOPS.with_borrow_mut(|stops| stops.push(stop));
    let _added = Added;
    act()
}

/// True if the program wants this thread to wait on.
pub fn goes_on() -> bool {
    asked("", false)
}

/// As [`goes_on`], for those who begin to wait: the program is asked only if it has ended the last wait.
pub fn may_begin() -> bool {
    !is_told_to_stop() && (!WAS_STOPPED.get() || goes_on())
}

fn is_told_to_stop() -> bool {
    STOPS.with_borrow(|stops| stops.iter().any(Stop::is_over))
}

fn asked(name: &str, is_long: bool) -> bool {
    let is_over = is_told_to_stop() || WATCH.get().is_some_and(|watch| watch(name, is_long));
    WAS_STOPPED.set(is_over);
    !is_over
}

/// How long something is waited for: until the program wants to wait no longer, and a while longer.
///
/// ```
/// use bedform_storage::{Grace, LISTEN};
///
/// let mut grace = Grace::default();
/// // Waits for so long each time, until there is what it waits for.
/// std::thread::sleep(LISTEN);
/// assert!(!grace.is_over());
/// ```
#[derive(Debug)]
pub struct Grace {
    time: Duration,
    stopped: Option<Instant>,
}

impl Default for Grace {
    /// What a write has.
    fn default() -> Self {
        Self::of(GRACE)
    }
}

impl Grace {
    /// So much longer.
    pub fn of(time: Duration) -> Self {
        Self { time, stopped: None }
    }

    /// True if nothing is to be waited for any more.
    pub fn is_over(&mut self) -> bool {
        if self.stopped.is_none() && goes_on() {
            return false;
        }
        self.stopped.get_or_insert_with(Instant::now).elapsed() >= self.time
    }
}

/// The error of `operation` on `path`, which was waited for until the program wanted to no longer.
pub fn interrupted(operation: &'static str, path: impl Display) -> StorageError {
    StorageError::new(StorageErrorKind::Interrupted, operation, path)
}

/// A wait for the lock of `name`.
#[derive(Debug)]
pub struct Waiting<'a> {
    name: &'a str,
    begun: Instant,
    was_long: bool,
    /// The program wants to wait no longer.
    pub is_over: bool,
}

impl<'a> Waiting<'a> {
    /// One that begins now.
    pub fn new(name: &'a str) -> Self {
        Self { name, begun: Instant::now(), was_long: false, is_over: false }
    }

    /// True if the program wants to wait on. Called on the thread that waits.
    pub fn goes_on(&mut self) -> bool {
        let is_long = !self.was_long && self.begun.elapsed() >= LONG;
        self.was_long |= is_long;
        self.is_over |= !asked(self.name, is_long);
        !self.is_over
    }

    /// The error of a wait that is over.
    pub fn interrupted(&self) -> StorageError {
        interrupted("lock", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_goes_on_where_nobody_watches() {
        let mut waiting = Waiting::new("a");
        assert!(waiting.goes_on() && !waiting.is_over && may_begin());
    }

    #[test]
    fn a_thread_that_is_told_to_stop_waits_no_longer_and_others_do() {
        let [outer, inner] = [false, false].map(|stop| Arc::new(AtomicBool::new(stop)));
        stopped_by(&outer, || {
            stopped_by(&inner, || {
                outer.store(true, Ordering::Relaxed);
                assert!(!may_begin() && !goes_on() && !Waiting::new("a").goes_on());
                let other = std::thread::spawn(|| may_begin() && goes_on());
                assert!(other.join().unwrap());
            });
            outer.store(false, Ordering::Relaxed);
            inner.store(true, Ordering::Relaxed);
            assert!(may_begin() && goes_on());
        });
    }

    #[test]
    fn what_has_a_time_waits_no_longer_than_that() {
        within(Duration::MAX, || assert!(may_begin()));
        within(Duration::from_millis(5), || {
            within(Duration::from_secs(3600), || {
                while goes_on() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                assert!(!may_begin());
            });
        });
        assert!(may_begin());
    }
}
