//! What a program is told, and asked, while one of its threads waits for a lock.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::{StorageError, StorageErrorKind};

/// Told of a wait for the lock of `name`, on the thread that waits and many times a second. `is_long` is
/// true once, when it begins to need a word of explanation. Whoever gives true ends the wait with
/// `Interrupted`.
pub type WatchWaits = fn(name: &str, is_long: bool) -> bool;

/// From when on a wait needs a word.
const LONG: Duration = Duration::from_secs(2);

static WATCH: OnceLock<WatchWaits> = OnceLock::new();

/// Has `watch` told of all waits for locks in this process, from now on. The first call counts.
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

/// A wait for the lock of `name`.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    name: &'a str,
    begun: Instant,
    was_long: bool,
    /// The program wants to wait no longer.
    pub(crate) is_over: bool,
}

impl<'a> Waiting<'a> {
    pub(crate) fn new(name: &'a str) -> Self {
        Self { name, begun: Instant::now(), was_long: false, is_over: false }
    }

    /// True if the program wants to wait on. Called on the thread that waits.
    pub(crate) fn goes_on(&mut self) -> bool {
        let Some(watch) = WATCH.get() else { return true };
        let is_long = !self.was_long && self.begun.elapsed() >= LONG;
        self.was_long |= is_long;
        self.is_over |= watch(self.name, is_long);
        !self.is_over
    }

    /// The error of a wait that is over.
    pub(crate) fn interrupted(&self) -> StorageError {
        StorageError::new(StorageErrorKind::Interrupted, "lock", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_goes_on_where_nobody_watches() {
        let mut waiting = Waiting::new("a");
        assert!(waiting.goes_on() && !waiting.is_over);
    }
}
