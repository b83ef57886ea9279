//! Recording of reads, and learning from the traces.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use bedform::foreign::{FileOrder, JoinOptions};
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

/// Turns recording of a source's reads on or off, and returns the directory of the traces.
#[pyfunction]
pub(crate) fn watch(py: Python<'_>, source: GivenSource, on: bool) -> PyResult<PathBuf> {
    // The files of a pattern are sorted by their labels, which is the usual case.
    let join = JoinOptions { order: FileOrder::ByCoordinate, ..JoinOptions::default() };
    let directory = detached(py, || match source.place(join) {
        SourcePlace::One(path) => bedform::trace::watch(&path, on),
        many => {
            let directory = bedform::trace::watch_named(&many.sidecar_name()?, &many.shown(), on)?;
            if on {
                many.list()?;
            }
            Ok(directory)
        }
    });
    directory.map_err(raise)
}

/// Sets the program, with its arguments before the command, that runs as `bedform` for a due
/// policy.
#[pyfunction]
pub(crate) fn start_bedform_by(program: Vec<OsString>) {
    bedform::trace::start_bedform_by(program);
}

/// Merges the traces of a source into the knowledge of its reads, and returns that as JSON.
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

/// Returns the sidecar of a source; `None` if no place for it is configured.
fn sidecar_of(source: GivenSource) -> PyResult<Option<Sidecar>> {
    let name = source.place(JoinOptions::default()).sidecar_name();
    name.and_then(|name| Sidecar::find(&name, None)).map_err(raise)
}

/// Returns the directory of a source's sidecar, whether or not it exists; `None` if no place for it
/// is configured.
#[pyfunction]
pub(crate) fn sidecar_directory(source: GivenSource) -> PyResult<Option<PathBuf>> {
    Ok(sidecar_of(source)?.and_then(|sidecar| sidecar.own_directory()))
}

/// Returns the newest generation of a kind of helper file, as JSON, from the sidecar of a source.
/// With `is_of_site` it reads the sidecar of the site. `None` without a JSON object of at most
/// `bytes_max` bytes.
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

/// True if this user has turned recording on for a source.
#[pyfunction]
pub(crate) fn is_watched(source: GivenSource) -> PyResult<bool> {
    Ok(sidecar_of(source)?.is_some_and(|sidecar| bedform::trace::is_marked(&sidecar)))
}

/// Returns new warnings about sidecars that cannot be read, one line each.
#[pyfunction]
pub(crate) fn sidecar_warnings() -> Vec<String> {
    bedform::sidecar::take_warnings()
}

/// Removes the registry's entries of sidecars that are certainly gone, and returns their number;
/// with `dry_run` only counts them.
#[pyfunction]
pub(crate) fn prune_registry(py: Python<'_>, dry_run: bool) -> u64 {
    py.detach(|| bedform::sidecar::prune_registry(dry_run))
}

/// Writes the reads that wait to be recorded; called at the end of a process.
#[pyfunction]
pub(crate) fn keep_traces(py: Python<'_>) {
    py.detach(bedform::trace::keep_traces);
}

/// The function that returns the current computation number, once it was imported.
static COMPUTATIONS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The dictionary `sys.modules`.
static MODULES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();

/// The time of the last check that found Dask not imported, in microseconds since 1970. An atomic
/// number and no lock, because a forked child might inherit a held lock.
static WITHOUT_DASK: AtomicU64 = AtomicU64::new(0);
/// The time in microseconds after which the check is repeated; importing Dask takes longer.
const WITHOUT_DASK_FOR: u64 = 2000;

fn microseconds() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}

/// Returns the computation number of the read that this thread has just made; 0 for none, and while
/// Python ends.
pub(crate) fn computation_of_read() -> u64 {
    // Large after the clock was set back, so the check is repeated.
    let ago = microseconds().wrapping_sub(WITHOUT_DASK.load(Ordering::Relaxed));
    if ago < WITHOUT_DASK_FOR {
        return 0;
    }
    let ask = |py: Python<'_>| {
        let modules = MODULES.get_or_try_init(py, || {
            let modules = py.import("sys")?.getattr("modules")?;
            PyResult::Ok(modules.cast_into::<PyDict>()?.unbind())
        })?;
        // Programs without Dask skip the import.
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
            // No read fails because of its trace, but Ctrl-C may arrive during this call.
            if !raised.is_instance_of::<PyException>(py) {
                keep(raised);
            }
            0
        })
    });
    number.unwrap_or(0)
}
