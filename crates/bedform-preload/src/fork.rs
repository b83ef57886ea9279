//! Forked children start anew.
//!
//! A child has a copy of the parent's memory, and one thread. Another thread of the parent may have
//! held the lock, with the guarded data half changed. The helper thread does not exist in the
//! child, and the counters are the parent's. So the child keeps nothing: it frees the lock, empties
//! the arena and forgets all files.

use crate::{arena, files, helper, inside, pending, record, watch};

/// Registers the handler that resets a forked child; false if that fails.
pub(crate) fn begin() -> bool {
    // SAFETY: the handler is safe in a forked child: it changes only memory of the library.
    unsafe { libc::pthread_atfork(None, None, Some(start_anew)) == 0 }
}

extern "C" fn start_anew() {
    // A signal handler forked while this thread was inside the library, whose frames are still
    // active.
    if inside::is_inside() {
        inside::set_on(false);
        return;
    }
    inside::free_lock();
    record::leave();
    helper::leave();
    pending::leave();
    if files::leave() {
        watch::leave();
        arena::empty();
    }
}
