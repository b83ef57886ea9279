//! Guards of the library: no nested entry by a thread, a preserved `errno`, and one lock for its
//! memory.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Attempts to take the lock; after that its holder does the work.
const ATTEMPTS: usize = 4;

/// True while reads are watched.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// 1 while a thread uses the library's memory.
static LOCK: AtomicU32 = AtomicU32::new(0);

thread_local! {
    // Constant and without a destructor: plain thread-local storage, which signal handlers may use.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
    static HAS_LOCK: Cell<bool> = const { Cell::new(false) };
}

/// True while reads are watched.
#[inline]
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Turns the watching on or off.
pub(crate) fn set_on(is_on: bool) {
    IS_ON.store(is_on, Ordering::Release);
}

/// True if this thread is inside the library.
#[inline]
pub(crate) fn is_inside() -> bool {
    IS_INSIDE.with(Cell::get)
}

/// True if this thread may use the library's memory.
#[inline]
pub(crate) fn has_lock() -> bool {
    HAS_LOCK.with(Cell::get)
}

/// Returns an address that no other living thread has.
#[inline]
pub(crate) fn thread_mark() -> usize {
    IS_INSIDE.with(|flag| std::ptr::from_ref(flag) as usize)
}

/// A guard for a thread inside the library. Nested calls, in a signal handler or by the library,
/// pass straight to libc. It restores `errno` on drop.
pub(crate) struct Inside {
    errno: i32,
}

impl Inside {
    /// Enters the library; `None` if this thread is inside already.
    #[inline]
    pub(crate) fn enter() -> Option<Self> {
        if IS_INSIDE.replace(true) {
            return None;
        }
        // SAFETY: the address of this thread's `errno` is always valid.
        Some(Self { errno: unsafe { *libc::__errno_location() } })
    }

    /// Locks the library's memory; `None` if another thread holds it after some attempts.
    #[inline]
    pub(crate) fn lock(&self) -> Option<LibraryLock<'_>> {
        for _ in 0..ATTEMPTS {
            if LOCK.load(Ordering::Relaxed) == 0
                && LOCK.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                HAS_LOCK.set(true);
                return Some(LibraryLock { _inside: self });
            }
            std::hint::spin_loop();
        }
        None
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // SAFETY: as in `enter`.
        unsafe { *libc::__errno_location() = self.errno };
        IS_INSIDE.set(false);
    }
}

/// A guard for the use of the library's memory.
pub(crate) struct LibraryLock<'a> {
    _inside: &'a Inside,
}

impl Drop for LibraryLock<'_> {
    fn drop(&mut self) {
        HAS_LOCK.set(false);
        LOCK.store(0, Ordering::Release);
    }
}

/// Frees the lock in a forked child, where its holder may not exist.
pub(crate) fn free_lock() {
    HAS_LOCK.set(false);
    LOCK.store(0, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_inside_once_and_keeps_its_errno() {
        // SAFETY: the address of this thread's `errno` is always valid.
        let errno = unsafe { &mut *libc::__errno_location() };
        *errno = libc::ENOENT;
        let stay = Inside::enter().unwrap();
        assert!(Inside::enter().is_none());
        *errno = libc::EIO;
        drop(stay);
        assert_eq!(*errno, libc::ENOENT);
        assert!(!is_inside());
    }
}
