//! Progress reports to Python functions.

use std::cell::Cell;
use std::time::Instant;

use bedform_storage::ASK_EVERY;
use pyo3::prelude::*;

use crate::signals;

/// Returns a progress function that calls `progress` a few times a second. An exception of it ends
/// the work.
pub(crate) fn telling(progress: Option<&Py<PyAny>>) -> impl Fn(u64, u64) {
    let last = Cell::new(None::<Instant>);
    move |done, total| {
        let Some(progress) = progress else { return };
        let is_soon = last.get().is_some_and(|last| last.elapsed() < ASK_EVERY);
        if signals::is_kept() || (is_soon && done < total) {
            return;
        }
        last.set(Some(Instant::now()));
        Python::attach(|py| {
            if let Err(error) = progress.call1(py, (done, total)) {
                signals::keep(error);
            }
        });
    }
}
