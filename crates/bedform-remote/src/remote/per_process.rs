//! Values that each process makes for itself.

use std::process;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A value that a child which was forked does not share with its parent: of what has threads or
/// connections a child has only a copy that nothing drives. It is found without a lock, which a fork
/// could copy while somebody holds it.
pub(super) struct PerProcess<T>(AtomicPtr<Owned<T>>);

struct Owned<T> {
    process: u32,
    value: T,
}

impl<T> PerProcess<T> {
    pub(super) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// The value of this process, made by `make` if there is none yet; `unused` takes what another
    /// thread has made at the same time.
    #[allow(unsafe_code)]
    pub(super) fn get<E>(
        &self,
        make: impl FnOnce() -> Result<T, E>,
        unused: impl FnOnce(T),
    ) -> Result<&T, E> {
        let process = process::id();
        let found = self.0.load(Ordering::Acquire);
        // SAFETY: what is in the pointer comes from `Box::leak` below and is freed by `drop` alone, which
        // has the value to itself.
        if let Some(owned) = unsafe { found.as_ref() }
            && owned.process == process
        {
            return Ok(&owned.value);
        }
        let own = Box::into_raw(Box::new(Owned { process, value: make()? }));
        // What a parent has left stays where it is: it must not be dropped here, either.
        match self.0.compare_exchange(found, own, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: it was leaked just now, and lives as long as `self`.
            Ok(_) => Ok(unsafe { &(*own).value }),
            Err(others) => {
                // SAFETY: `own` was leaked just now, and nobody else has seen it; `others` was put there by
                // another thread of this process, and lives as long as `self`.
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
        // SAFETY: as in `get`; nobody has a reference any more.
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
