//! The callback by which a program stops the calls of a thread.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use crate::status::{Status, call};

/// `bf_stop`: anything but 0 stops the call that asks.
pub type Stop = Option<unsafe extern "C" fn(context: *mut c_void) -> c_int>;

thread_local! {
    static STOP: Cell<(Stop, *mut c_void)> = const { Cell::new((None, null_mut())) };
}

/// `bf_set_stop`.
#[unsafe(no_mangle)]
pub extern "C" fn bf_set_stop(stop: Stop, context: *mut c_void) -> Status {
    call(|| {
        STOP.set((stop, context));
        Ok(())
    })
}

/// True if the callback of this thread says that the call is to stop. Asked on the caller's thread alone.
pub(crate) fn stops() -> bool {
    match STOP.get() {
        // SAFETY: the program gave the callback with this context, for the calls of this thread.
        (Some(stop), context) => unsafe { stop(context) != 0 },
        (None, _) => false,
    }
}
