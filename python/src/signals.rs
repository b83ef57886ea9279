//! What Python's signals, Ctrl-C above all, mean to work that goes on without the interpreter.
//!
//! Whoever works or waits asks now and then whether Python has a signal to deal with. What its handler raises
//! ends the work, and is kept: the error that the work ends with is that one ([`take`]), and where the
//! work was done by then, Python raises it as soon as it runs again.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::time::{Duration, Instant};

use pyo3::ffi;
use pyo3::prelude::*;

/// Asking takes the interpreter, so it is asked a few times a second only.
const PAUSE: Duration = Duration::from_millis(100);

thread_local! {
    /// What was raised while this thread worked for Python. Signals are dealt with on the main thread alone.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Says now and then whether work is to stop.
pub(crate) fn interrupted() -> impl Fn() -> bool {
    let last = Cell::new(Instant::now());
    move || {
        if last.get().elapsed() < PAUSE {
            return is_kept();
        }
        last.set(Instant::now());
        is_raised(|_| Ok(()))
    }
}

/// Says what lock is waited for, once it takes long, and whether the wait is to end.
pub(crate) fn watch(name: &str, is_long: bool) -> bool {
    is_raised(|py| if is_long { tell(py, name) } else { Ok(()) })
}

/// Keeps what was raised on this thread; the first counts.
pub(crate) fn keep(raised: PyErr) {
    RAISED.with_borrow_mut(|kept| {
        kept.get_or_insert(raised);
    });
    // SAFETY: the function may be called from any thread at any time, and the pointer is not used. Where
    // there is no room for one more call, the error that the work ends with is still the one that is kept.
    unsafe { ffi::Py_AddPendingCall(Some(raise_kept), std::ptr::null_mut()) };
}

/// What was raised while this thread worked, which is the caller's to raise.
pub(crate) fn take() -> Option<PyErr> {
    RAISED.with_borrow_mut(Option::take)
}

/// True if something was raised while this thread worked.
pub(crate) fn is_kept() -> bool {
    RAISED.with_borrow(Option::is_some)
}

/// True if something is kept, or `act` raises something, or a signal's handler.
fn is_raised(act: impl FnOnce(Python<'_>) -> PyResult<()>) -> bool {
    if is_kept() {
        return true;
    }
    // An interpreter that has ended under a daemon thread has neither logs nor signals any more.
    let raised = Python::try_attach(|py| act(py).and_then(|()| py.check_signals()));
    if let Some(Err(error)) = raised {
        keep(error);
    }
    is_kept()
}

/// Called by Python on its main thread: raises what nobody has taken.
extern "C" fn raise_kept(_: *mut c_void) -> c_int {
    Python::attach(|py| match take() {
        Some(error) => {
            error.restore(py);
            -1
        }
        None => 0,
    })
}

fn tell(py: Python<'_>, name: &str) -> PyResult<()> {
    let logger = py.import("logging")?.call_method1("getLogger", ("bedform",))?;
    let place = name.trim_end_matches('/');
    let place = if place.is_empty() { "the store" } else { place };
    let text = "waiting for the lock of %s, which another writer holds, or held when it died";
    logger.call_method1("warning", (text, place)).map(drop)
}
