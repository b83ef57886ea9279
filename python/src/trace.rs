//! Traces of reads, and what is learnt from them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use bedform::foreign::JoinOptions;
use bedform::optimize::SourcePlace;
use bedform::sidecar::Sidecar;
use bedform::trace::learn_in;
use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use crate::error::{ended, raise, to_json};
use crate::optimize::GivenSource;
use crate::progress::telling;
use crate::signals::{detached, keep};

/// Turns on, or off, that reads of a source are recorded; gives the directory of the traces.
#[pyfunction]
pub(crate) fn watch(py: Python<'_>, source: GivenSource, on: bool) -> PyResult<String> {
    let directory = detached(py, || match source.place(JoinOptions::default()) {
        SourcePlace::One(path) => bedform::trace::watch(&path, on),
        many => bedform::trace::watch_named(&many.sidecar_name()?, &many.shown(), on),
    });
    Ok(directory.map_err(raise)?.display().to_string())
}

/// Says how `bedform` is started where a policy is due: the program, and what comes before the command.
#[pyfunction]
pub(crate) fn start_bedform_by(program: Vec<String>) {
    bedform::trace::start_bedform_by(program);
}

/// Merges the traces of a source into what is known of its reads; gives that as JSON.
#[pyfunction]
#[pyo3(signature = (source, progress=None))]
pub(crate) fn learn(
    py: Python<'_>,
    source: GivenSource,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let outcome = detached(py, || {
        let place = source.place(JoinOptions::default());
        let sidecar = Sidecar::find(&place.sidecar_name()?, None)?;
        to_json(&learn_in(sidecar, &place.shown(), &telling(progress.as_ref()))?)
    });
    ended(outcome)
}

/// The sidecar of a source; nothing where no place is named.
fn sidecar_of(source: GivenSource) -> PyResult<Option<Sidecar>> {
    let name = source.place(JoinOptions::default()).sidecar_name();
    name.and_then(|name| Sidecar::find(&name, None)).map_err(raise)
}

/// The directory of the sidecar of a source, there or not; nothing where no place is named.
#[pyfunction]
pub(crate) fn sidecar_directory(source: GivenSource) -> PyResult<Option<PathBuf>> {
    Ok(sidecar_of(source)?.and_then(|sidecar| sidecar.own_directory()))
}

/// The newest generation of a kind of helper file, as JSON, in the sidecar of a source, or in that of the site where
/// this user only reads it; nothing without a JSON object of at most `bytes_max`.
#[pyfunction]
pub(crate) fn sidecar_document(
    source: GivenSource,
    kind: &str,
    bytes_max: u64,
    is_of_site: bool,
) -> PyResult<Option<String>> {
    let Some(sidecar) = sidecar_of(source)? else { return Ok(None) };
    let sidecar = if is_of_site { sidecar.site() } else { Some(&sidecar) };
    let document = sidecar.and_then(|sidecar| sidecar.newest_document(kind, bytes_max));
    document.map(|document| to_json(&document).map_err(raise)).transpose()
}

/// True if this user has asked for the reads of a source to be recorded.
#[pyfunction]
pub(crate) fn is_watched(source: GivenSource) -> PyResult<bool> {
    Ok(sidecar_of(source)?.is_some_and(|sidecar| bedform::trace::is_marked(&sidecar)))
}

/// What keeps sidecars from being read, a line each, that was not said before.
#[pyfunction]
pub(crate) fn sidecar_warnings() -> Vec<String> {
    bedform::sidecar::take_warnings()
}

/// Writes the reads that wait to be recorded: for the end of a process.
#[pyfunction]
pub(crate) fn keep_traces(py: Python<'_>) {
    py.detach(bedform::trace::keep_traces);
}

/// The module that knows what a read belongs to, once it was asked for.
static COMPUTATIONS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The modules that the program has imported.
static MODULES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();

/// When Dask was last found not to be imported; a time that is not asked of Python again before it is over.
/// In microseconds since 1970: no lock, which a forked child could find held.
static WITHOUT_DASK: AtomicU64 = AtomicU64::new(0);
/// Microseconds: less than importing Dask takes.
const WITHOUT_DASK_FOR: u64 = 2000;

fn microseconds() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}

/// Which computation the read that this thread has just made belongs to; 0 for none, and where Python ends.
pub(crate) fn computation_of_read() -> u64 {
    // A clock that jumped back makes this large.
    let ago = microseconds().wrapping_sub(WITHOUT_DASK.load(Ordering::Relaxed));
    if ago < WITHOUT_DASK_FOR {
        return 0;
    }
    let ask = |py: Python<'_>| {
        let modules = MODULES.get_or_try_init(py, || {
            let modules = py.import("sys")?.getattr("modules")?;
            PyResult::Ok(modules.cast_into::<PyDict>()?.unbind())
        })?;
        // Nobody pays for Dask who does not use it.
        let modules = modules.bind(py);
        if !modules.contains(intern!(py, "dask.local"))?
            && !modules.contains(intern!(py, "distributed.worker"))?
        {
            WITHOUT_DASK.store(microseconds(), Ordering::Relaxed);
            return Ok(0);
        }
        let current = COMPUTATIONS.get_or_try_init(py, || {
            py.import("bedform._computations")?.getattr("current").map(Bound::unbind)
        })?;
        current.call0(py)?.extract::<u64>(py)
    };
    let number = Python::try_attach(|py| {
        ask(py).unwrap_or_else(|raised| {
            // No read fails for its trace, but Ctrl-C may come while Python is asked.
            if !raised.is_instance_of::<PyException>(py) {
                keep(raised);
            }
            0
        })
    });
    number.unwrap_or(0)
}
