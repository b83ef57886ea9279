//! What Python hears of waits for locks.

use pyo3::prelude::*;

/// Says what is waited for, once it takes long, and asks whether Python has a signal to deal with.
pub(crate) fn watch(name: &str, is_long: bool) -> bool {
    // An interpreter that has ended under a daemon thread has neither logs nor signals any more.
    let stopped = Python::try_attach(|py| {
        let told = if is_long { tell(py, name) } else { Ok(()) };
        match told.and_then(|()| py.check_signals()) {
            Ok(()) => false,
            Err(error) => {
                // Raised again, as what it is, by the caller.
                error.restore(py);
                true
            }
        }
    });
    stopped.unwrap_or(false)
}

fn tell(py: Python<'_>, name: &str) -> PyResult<()> {
    let logger = py.import("logging")?.call_method1("getLogger", ("bedform",))?;
    let place = name.trim_end_matches('/');
    let place = if place.is_empty() { "the store" } else { place };
    let text = "waiting for the lock of %s, which another writer holds, or held when it died";
    logger.call_method1("warning", (text, place)).map(drop)
}
