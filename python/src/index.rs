//! Value indexes: building them, and their ranges for tests.

use bedform::indexing::{BinChoice, IndexMaker, IndexOptions, index_arrays, index_conditions};
use bedform::{OpenOptions, ValueIndex};
use bedform_format::ObjectPath;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::arguments::path_of;
use crate::array::Array;
use crate::error::{ended, raise, to_json};
use crate::foreign::ForeignFile;
use crate::progress::telling;
use crate::signals::detached;
use crate::store::Store;

/// An opened source: a store, or a foreign file.
#[derive(FromPyObject)]
pub(crate) enum OpenedSource<'py> {
    Store(PyRef<'py, Store>),
    File(PyRef<'py, ForeignFile>),
}

impl OpenedSource<'_> {
    fn store(&self) -> bedform::Store {
        match self {
            Self::Store(store) => store.inner.clone(),
            Self::File(file) => bedform::Store::of_file(file.inner.clone(), OpenOptions::default()),
        }
    }
}

/// Returns the bins that a kind and its numbers name.
fn bins_of(kind: &str, numbers: Vec<f64>, count: usize) -> PyResult<BinChoice> {
    Ok(match kind {
        "present" => BinChoice::Present,
        "none" => BinChoice::None,
        "auto" => BinChoice::Auto,
        "count" => BinChoice::Count(count),
        "width" => BinChoice::Width(count),
        "edges" => BinChoice::Edges(numbers),
        _ => return Err(PyTypeError::new_err(format!("bins: {kind}"))),
    })
}

/// Builds or renews the indexes of the arrays at these paths, or of all arrays of numbers. `bins`
/// are a kind, edges, and a number. With `renews` an index stays its maker's, else it is the user's.
/// Returns a report for each as JSON.
#[pyfunction]
#[pyo3(signature = (source, arrays, anew, bins, renews, progress=None))]
pub(crate) fn index(
    py: Python<'_>,
    source: OpenedSource<'_>,
    arrays: Option<Vec<String>>,
    anew: bool,
    bins: (String, Vec<f64>, usize),
    renews: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let store = source.store();
    drop(source);
    let paths = arrays.map(|names| names.iter().map(|name| path_of(name)).collect());
    let paths: Option<Vec<ObjectPath>> = paths.transpose()?;
    let mut options = IndexOptions::default();
    options.anew = anew;
    options.bins = bins_of(&bins.0, bins.1, bins.2)?;
    options.maker = if renews { IndexMaker::Present } else { IndexMaker::User };
    let outcome = detached(py, || {
        let progress = telling(progress.as_ref());
        to_json(&index_arrays(&store, paths.as_deref(), &options, &progress)?)
    });
    ended(outcome)
}

/// Returns the existing indexes of a source as JSON.
#[pyfunction]
#[pyo3(name = "index_conditions")]
pub(crate) fn conditions(py: Python<'_>, source: OpenedSource<'_>) -> PyResult<String> {
    let store = source.store();
    drop(source);
    ended(detached(py, || to_json(&index_conditions(&store)?)))
}

/// Returns the index of an array as a dictionary: `shape` of the grid of blocks, `block` shape,
/// `missing_values` as bytes, and `ranges` in C order. A range is the bytes of the least and the
/// greatest value, `None` if all are missing, and the number of missing elements; `None` where it
/// is unknown. Returns `None` without an index.
#[pyfunction]
pub(crate) fn value_index<'py>(
    py: Python<'py>,
    array: &Array,
) -> PyResult<Option<Bound<'py, PyDict>>> {
    let Some(index) = detached(py, || array.inner.value_index()).map_err(raise)? else {
        return Ok(None);
    };
    let described = PyDict::new(py);
    described.set_item("shape", index.grid().grid_shape())?;
    described.set_item("block", index.grid().chunk_shape())?;
    let missing = index.missing_values().iter().map(|value| PyBytes::new(py, value));
    described.set_item("missing_values", PyList::new(py, missing)?)?;
    described.set_item("ranges", ranges(py, &index)?)?;
    Ok(Some(described))
}

fn ranges<'py>(py: Python<'py>, index: &ValueIndex) -> PyResult<Bound<'py, PyList>> {
    let ranges = PyList::empty(py);
    for number in 0..index.grid().chunk_count().unwrap_or(0) {
        let block = bedform_geometry::delinearize(number, index.grid().grid_shape());
        match detached(py, || Ok(index.range(&block))).map_err(raise)? {
            None => ranges.append(py.None())?,
            Some(range) => {
                let values = range.least_and_greatest;
                let bytes = |value: Vec<u8>| PyBytes::new(py, &value);
                let values = values.map(|(least, greatest)| (bytes(least), bytes(greatest)));
                ranges.append((values, range.missing))?;
            }
        }
    }
    Ok(ranges)
}
