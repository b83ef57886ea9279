//! Delivers Python's signals, such as Ctrl-C, to work that runs without the interpreter.
//!
//! Every call of the engine goes through [`detached`], which makes every wait and loop poll for
//! signals. An exception of a signal's handler ends the work, and is stored. The error of the ended
//! work is then replaced by that exception ([`take`]). If the work was already done, Python raises
//! it as soon as the interpreter runs again.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::panic::resume_unwind;

use bedform::panics::caught;
use bedform_storage::{CancelSource, cancelled_by, recheck_sources};
use pyo3::ffi;
use pyo3::prelude::*;

thread_local! {
    /// An exception raised while this thread worked for Python. Signals are handled on the main
    /// thread only.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
    static SIGNALS: CancelSource = CancelSource::patient(|| is_raised(|_| Ok(())));
}

/// Calls `act` without the interpreter; an exception of a signal's handler ends it. A panic
/// continues with the message of its error: PyO3 raises it as `PanicException`, which
/// `bedform._errors` translates.
pub(crate) fn detached<T: Send>(py: Python<'_>, act: impl Send + FnOnce() -> T) -> T {
    let outcome = py.detach(|| SIGNALS.with(|signals| cancelled_by(signals, || caught(act))));
    outcome.unwrap_or_else(|error| resume_unwind(Box::new(error.to_string())))
}

/// Logs the name of a lock that a writer has waited for a long time.
pub(crate) fn tell_of_lock(name: &str) {
    is_raised(|py| tell(py, name));
}

/// Stores an exception raised on this thread; the first one counts.
pub(crate) fn keep(raised: PyErr) {
    RAISED.with_borrow_mut(|kept| {
        kept.get_or_insert(raised);
    });
    recheck_sources();
    // SAFETY: the function may be called from any thread at any time, and the pointer is not used.
    // If Python's queue of pending calls is full, the stored exception still replaces the error of
    // the work.
    unsafe { ffi::Py_AddPendingCall(Some(raise_kept), std::ptr::null_mut()) };
}

/// Takes the exception raised while this thread worked, for the caller to raise.
pub(crate) fn take() -> Option<PyErr> {
    RAISED.with_borrow_mut(Option::take)
}

/// True if an exception is stored for this thread.
pub(crate) fn is_kept() -> bool {
    RAISED.with_borrow(Option::is_some)
}

/// True if an exception is stored, after calling `act` and the handlers of signals.
fn is_raised(act: impl FnOnce(Python<'_>) -> PyResult<()>) -> bool {
    if is_kept() {
        return true;
    }
    // In a daemon thread the interpreter may have ended, without logs and signals.
    let raised = Python::try_attach(|py| act(py).and_then(|()| py.check_signals()));
    if let Some(Err(error)) = raised {
        keep(error);
    }
    is_kept()
}

/// Raises a stored exception that no call has taken; Python calls it on its main thread.
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

/// Logs a warning to the logger `bedform`.
pub(crate) fn warn(py: Python<'_>, text: &str, about: &str) -> PyResult<()> {
    let logger = py.import("logging")?.call_method1("getLogger", ("bedform",))?;
    logger.call_method1("warning", (text, about)).map(drop)
}
