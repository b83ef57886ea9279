//! Forked children start anew.
//!
//! A child has the parent's memory as it was, with one thread. The lock may be another thread's, and what
//! it guards half changed; the helper thread is not there; the counters are the parent's. So the child uses
//! none of it: the lock becomes free, the arena empty, all files unknown.

use crate::{arena, files, helper, inside, pending, record, watch};

/// Has children start anew; false if that is not possible.
pub(crate) fn begin() -> bool {
    // SAFETY: the function is safe in a forked child: it changes memory of the library alone.
    unsafe { libc::pthread_atfork(None, None, Some(start_anew)) == 0 }
}

extern "C" fn start_anew() {
    // A signal handler forked while this thread was inside: the child goes on there, with what it has.
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
