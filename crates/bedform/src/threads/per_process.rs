//! A value that each process makes for itself, found without a lock.
//!
//! A forked child has copies of its parent's locks, in the state in which other threads held them,
//! but not those threads. A child that waits for such a lock waits for ever. So a child makes its
//! own value, and neither uses nor frees that of its parent.
//!
//! A handler that `fork` calls in the child increments a counter; a new count means a new process.
//! Asking for the process id instead would cost each lookup a system call.

use std::process;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// The number of forks between the process that loaded the library and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);
/// True once `fork` calls [`count_fork`] in each child.
static IS_COUNTING: AtomicBool = AtomicBool::new(false);

extern "C" fn count_fork() {
    FORKS.fetch_add(1, Ordering::SeqCst);
}

/// Returns a number that a process shares with none of its ancestors.
#[allow(unsafe_code)]
pub(crate) fn generation() -> u64 {
    if !IS_COUNTING.load(Ordering::Acquire) {
        // Not under a `Once`: a child could inherit one in the middle. Several threads may register
        // the handler; a child then counts by more than one, which is harmless.
        // SAFETY: the handler changes an atomic and nothing else, which is allowed in a forked
        // child.
        if unsafe { libc::pthread_atfork(None, None, Some(count_fork)) } != 0 {
            return u64::from(process::id()) | 1 << 63;
        }
        IS_COUNTING.store(true, Ordering::Release);
    }
    FORKS.load(Ordering::Acquire)
}

/// A value that a forked child does not share with its parent.
pub(crate) struct PerProcess<T>(AtomicPtr<ProcessValue<T>>);

/// A value, and the process that made it.
struct ProcessValue<T> {
    generation: u64,
    value: T,
}

impl<T: Send + Sync + 'static> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the value of this process, if there is one.
    pub(crate) fn existing(&self) -> Option<&T> {
        let owned = self.load()?;
        (owned.generation == generation()).then_some(&owned.value)
    }

    /// Returns the value of this process. If there is none, `make` makes one. It gets the parent's
    /// value, of which it must not use any lock.
    #[allow(unsafe_code)]
    pub(crate) fn get(&self, make: impl FnOnce(Option<&T>) -> T) -> &T {
        let generation = generation();
        let found = self.load();
        if let Some(owned) = found
            && owned.generation == generation
        {
            return &owned.value;
        }
        let value = make(found.map(|owned| &owned.value));
        let found = found.map_or(ptr::null_mut(), |owned| ptr::from_ref(owned).cast_mut());
        let own = Box::into_raw(Box::new(ProcessValue { generation, value }));
        match self.0.compare_exchange(found, own, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: it was leaked just now, and is never freed.
            Ok(_) => unsafe { &(*own).value },
            Err(others) => {
                // SAFETY: no other thread has seen `own`. Another thread of this process has put
                // `others`
                // there, which is never freed.
                unsafe {
                    drop(Box::from_raw(own));
                    &(*others).value
                }
            }
        }
    }

    #[allow(unsafe_code)]
    fn load(&self) -> Option<&ProcessValue<T>> {
        // SAFETY: the pointer is null or comes from `Box::into_raw` in `get`, and is never freed once it
        // can be seen: this is for statics.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }
}
