//! The threads that reads have started beyond their callers', counted over the whole process.

use std::sync::atomic::{AtomicU64, Ordering};

use bedform_storage::threads_that_fit;

/// The most such threads of a process.
const THREADS_MAX: u32 = 64;

static THREADS: ThreadCount = ThreadCount(AtomicU64::new(0));

/// A guard that counts one thread for as long as it lives.
pub(crate) struct ExtraThread(());

impl ExtraThread {
    /// Counts one more thread; `None` if the limit is reached, or memory is short.
    pub(crate) fn begin() -> Option<Self> {
        (threads_that_fit(1) > 0 && THREADS.begin(std::process::id())).then_some(Self(()))
    }
}

impl Drop for ExtraThread {
    fn drop(&mut self) {
        THREADS.end(std::process::id());
    }
}

/// The process id in the upper half, and the number of its threads in the lower half: a fork copies
/// the number, but not the threads.
struct ThreadCount(AtomicU64);

impl ThreadCount {
    fn begin(&self, process: u32) -> bool {
        self.change(process, |count| (count < THREADS_MAX).then_some(count + 1))
    }

    fn end(&self, process: u32) {
        self.change(process, |count| count.checked_sub(1));
    }

    /// Changes the count of `process`; returns false if `next` returns `None`.
    fn change(&self, process: u32, next: impl Fn(u32) -> Option<u32>) -> bool {
        let changed = |packed: u64| {
            let [owner, count] = [packed >> 32, packed & u64::from(u32::MAX)];
            let is_own = owner == u64::from(process);
            let count = if is_own { u32::try_from(count).unwrap_or(u32::MAX) } else { 0 };
            Some(u64::from(process) << 32 | u64::from(next(count)?))
        };
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use crate::threads::extra::*;

    #[test]
    fn threads_are_bounded_in_each_process_and_a_child_has_none_of_its_parents() {
        let count = ThreadCount(AtomicU64::new(0));
        assert_eq!((0..100).filter(|_| count.begin(7)).count(), 64);
        count.end(7);
        assert!(count.begin(7) && !count.begin(7));
        // The same memory, in a child.
        assert_eq!((0..100).filter(|_| count.begin(8)).count(), 64);
        (0..64).for_each(|_| count.end(8));
        count.end(8);
        assert!(count.begin(8), "it does not fall below none");
    }
}
