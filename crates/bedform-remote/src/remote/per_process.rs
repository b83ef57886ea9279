//! Values of which each process has its own.

use std::process;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A value that a forked child does not share with its parent. In a child no thread drives the
/// copied runtime and connections. The lookup takes no lock, because a fork could copy a locked
/// one.
pub(super) struct PerProcess<T>(AtomicPtr<OwnedByProcess<T>>);

struct OwnedByProcess<T> {
    process: u32,
    value: T,
}

impl<T> PerProcess<T> {
    pub(super) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the value of this process, made by `make` at first use. `unused` gets the new value
    /// if another thread was faster.
    #[allow(unsafe_code)]
    pub(super) fn get<E>(
        &self,
        make: impl FnOnce() -> Result<T, E>,
        unused: impl FnOnce(T),
    ) -> Result<&T, E> {
        let process = process::id();
        let found = self.0.load(Ordering::Acquire);
        // SAFETY: the pointer comes from `Box::into_raw` below and is freed by `drop` alone, which
        // has exclusive access.
        if let Some(owned) = unsafe { found.as_ref() }
            && owned.process == process
        {
            return Ok(&owned.value);
        }
        let own = Box::into_raw(Box::new(OwnedByProcess { process, value: make()? }));
        // The parent's value is leaked: a child must not drop it.
        match self.0.compare_exchange(found, own, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: it was leaked just now, and lives as long as `self`.
            Ok(_) => Ok(unsafe { &(*own).value }),
            Err(others) => {
                // SAFETY: `own` was leaked just now, and no other thread has seen it. `others` was
                // stored by another thread of this process, and lives as long as `self`.
                let (own, others) = unsafe { (Box::from_raw(own), &*others) };
                unused(own.value);
                Ok(&others.value)
            }
        }
    }
}

impl<T> Drop for PerProcess<T> {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        let found = *self.0.get_mut();
        // SAFETY: as in `get`; no reference is left.
        let is_own = unsafe { found.as_ref() }.is_some_and(|owned| owned.process == process::id());
        if is_own {
            // SAFETY: it comes from `Box::into_raw`.
            drop(unsafe { Box::from_raw(found) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn threads_share_one_value_and_it_is_dropped_once() {
        let (made, unused) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let value = Arc::new(7);
        let shared = PerProcess::new();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let make = || {
                        made.fetch_add(1, Ordering::SeqCst);
                        Ok::<_, Infallible>(value.clone())
                    };
                    let count = |_| {
                        unused.fetch_add(1, Ordering::SeqCst);
                    };
                    let Ok(found) = shared.get(make, count);
                    assert_eq!(**found, 7);
                });
            }
        });
        assert_eq!(made.into_inner(), unused.into_inner() + 1);
        drop(shared);
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
