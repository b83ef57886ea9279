//! The callback with which a program stops the calls of a thread.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};

use bedform_storage::{CancelSource, cancelled_by};

/// `bf_stop`: a result other than 0 stops the call.
pub type StopCallback = Option<unsafe extern "C" fn(context: *mut c_void) -> c_int>;

thread_local! {
    static STOP: RefCell<Option<CancelSource>> = const { RefCell::new(None) };
}

/// `bf_set_stop`. Always 0, `BF_OK`.
///
/// # Safety
/// Calls of this thread may call `stop` with `context` until another callback is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_set_stop(stop: StopCallback, context: *mut c_void) -> c_int {
    let source = stop.map(|stop| {
        // SAFETY: the caller guarantees it.
        CancelSource::new(move || unsafe { stop(context) } != 0)
    });
    // A thread that is ending makes no calls.
    let _ = STOP.try_with(|known| *known.borrow_mut() = source);
    0
}

/// Runs `act`, which the callback of this thread may stop.
pub(crate) fn stopped<T>(act: impl FnOnce() -> T) -> T {
    let source = STOP.try_with(|known| known.borrow().clone()).ok().flatten();
    match source {
        Some(source) => cancelled_by(&source, act),
        None => act(),
    }
}
