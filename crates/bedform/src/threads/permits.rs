//! A semaphore that limits concurrent CPU work among threads that mostly wait. Few compute at a
//! time, so the first of them finish early, and their results are sent while others compute.

use std::sync::{Condvar, Mutex, PoisonError};

/// A semaphore of permits for CPU work.
#[derive(Debug)]
pub(crate) struct CpuPermits {
    free: Mutex<usize>,
    freed: Condvar,
}

/// A permit, released on drop.
pub(crate) struct CpuPermit<'a>(&'a CpuPermits);

impl CpuPermits {
    /// Makes a semaphore of `at_once` permits, at least one.
    pub(crate) fn new(at_once: usize) -> Self {
        Self { free: Mutex::new(at_once.max(1)), freed: Condvar::new() }
    }

    /// Waits for a permit. Its holder must not wait for anything but the processor.
    pub(crate) fn take(&self) -> CpuPermit<'_> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            free = self.freed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
        CpuPermit(self)
    }
}

impl Drop for CpuPermit<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use crate::threads::permits::*;

    #[test]
    fn no_more_compute_at_a_time_than_have_leave() {
        for at_once in 0..4 {
            let turns = CpuPermits::new(at_once);
            let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        let _turn = turns.take();
                        let computing = now.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(computing, Ordering::SeqCst);
                        std::thread::yield_now();
                        now.fetch_sub(1, Ordering::SeqCst);
                    });
                }
            });
            assert!(most.into_inner() <= at_once.max(1), "{at_once}");
        }
    }
}
