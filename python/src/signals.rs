//! What Python's signals, Ctrl-C above all, mean to work that goes on without the interpreter.
//!
//! Every call of the engine is made by [`detached`]: whoever works or waits asks now and then whether Python has
//! a signal to deal with. What its handler raises ends the work, and is kept: the error that the work ends with
//! is that one ([`take`]), and where the work was done by then, Python raises it as soon as it runs again.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::panic::resume_unwind;

use bedform::panics::caught;
use bedform_storage::{CancelSource, ask_soon, cancelled_by};
use pyo3::ffi;
use pyo3::prelude::*;

thread_local! {
    /// What was raised while this thread worked for Python. Signals are dealt with on the main thread alone.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
    static SIGNALS: CancelSource = CancelSource::patient(|| is_raised(|_| Ok(())));
}

/// Calls `act` without the interpreter; a signal whose handler raises something ends it. A panic goes on as one whose
/// message is that of the error: PyO3 raises it as `PanicException`, which `bedform._errors` translates.
pub(crate) fn detached<T: Send>(py: Python<'_>, act: impl Send + FnOnce() -> T) -> T {
    let outcome = py.detach(|| SIGNALS.with(|signals| cancelled_by(signals, || caught(act))));
    outcome.unwrap_or_else(|error| resume_unwind(Box::new(error.to_string())))
}

/// Says what lock is waited for, once it takes long.
pub(crate) fn tell_of_lock(name: &str) {
    is_raised(|py| tell(py, name));
}

/// Keeps what was raised on this thread; the first counts.
pub(crate) fn keep(raised: PyErr) {
    RAISED.with_borrow_mut(|kept| {
        kept.get_or_insert(raised);
    });
    ask_soon();
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
    let place = name.trim_end_matches('/');
    let place = if place.is_empty() { "the store" } else { place };
    let text = "waiting for the lock of %s, which another writer holds, or held when it died";
    warn(py, text, place)
}

/// Logs a warning, for those who listen to Bedform's.
pub(crate) fn warn(py: Python<'_>, text: &str, about: &str) -> PyResult<()> {
    let logger = py.import("logging")?.call_method1("getLogger", ("bedform",))?;
    logger.call_method1("warning", (text, about)).map(drop)
}
