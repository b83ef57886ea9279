//! The class `ReferenceSet`.

use std::path::PathBuf;

use bedform::referencing::{self, ReferenceColumns, ReferenceOptions};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arguments::json_of;
use crate::error::{ended, raise, to_json};
use crate::foreign::ForeignFile;
use crate::progress::telling;
use crate::signals::detached;

/// References to the chunks of a foreign file, or of an archive.
#[pyclass(frozen, name = "ReferenceSet", module = "bedform._internal")]
pub(crate) struct MadeReferenceSet {
    inner: referencing::ReferenceSet,
}

/// Columns of numbers in the machine's byte order: chunk indexes (uint32), files (int32), offsets
/// and lengths (int64).
type NumberColumns<'py> =
    (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

#[pymethods]
impl MadeReferenceSet {
    /// Makes references to an opened file or archive. `progress` receives the files done and in all.
    #[new]
    #[pyo3(signature = (file, options, progress=None))]
    fn new(
        py: Python<'_>,
        file: &Bound<'_, ForeignFile>,
        options: &str,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let options = ReferenceOptions::from_json(&json_of(options)?).map_err(raise)?;
        let file = &file.get().inner;
        let outcome = detached(py, || {
            let progress = telling(progress.as_ref());
            referencing::ReferenceSet::of_file(file, &options, &progress)
        });
        ended(outcome).map(|inner| Self { inner })
    }

    /// Returns a summary, as JSON.
    fn summary(&self) -> PyResult<String> {
        to_json(&self.inner.summary()).map_err(raise)
    }

    /// Returns what the set lacks, with the reasons.
    fn left_out(&self) -> Vec<(String, String)> {
        self.inner.left_out().to_vec()
    }

    /// Returns the name of each file in the set, and the time of its last change in nanoseconds.
    fn files(&self) -> Vec<(String, i64)> {
        let files = self.inner.files().into_iter();
        files.map(|(name, modified_ns)| (name.to_owned(), modified_ns)).collect()
    }

    /// Returns the number of chunks of an array, stored in files or not.
    fn chunk_count(&self, number: usize) -> u64 {
        self.inner.chunk_count(number)
    }

    /// Returns the elements of an array that the set stores as one chunk.
    fn elements<'py>(&self, py: Python<'py>, number: usize) -> Option<Bound<'py, PyBytes>> {
        self.inner.elements(number).map(|bytes| PyBytes::new(py, bytes))
    }

    /// Returns one row for each chunk position from `first` to `end`, without indexes.
    fn rows<'py>(
        &self,
        py: Python<'py>,
        number: usize,
        first: u64,
        end: u64,
    ) -> NumberColumns<'py> {
        in_bytes(py, &detached(py, || self.inner.rows(number, first..end)))
    }

    /// Returns the references of an array from `first` to `end`, with the indexes of their chunks.
    fn indexed<'py>(
        &self,
        py: Python<'py>,
        number: usize,
        first: usize,
        end: usize,
    ) -> NumberColumns<'py> {
        in_bytes(py, &detached(py, || self.inner.indexed(number, first..end)))
    }

    /// Returns the keys and texts of all documents, in Zarr v2 or v3.
    fn documents(&self, zarr_format: u8) -> Vec<(String, String)> {
        if zarr_format == 2 { self.inner.documents_v2() } else { self.inner.documents_v3() }
    }

    /// Writes kerchunk's JSON to a file, atomically.
    fn publish_kerchunk(&self, py: Python<'_>, target: PathBuf, replaces: bool) -> PyResult<()> {
        ended(detached(py, || self.inner.publish_kerchunk(&target, replaces)))
    }
}

fn in_bytes<'py>(py: Python<'py>, columns: &ReferenceColumns) -> NumberColumns<'py> {
    (
        bytes_of(py, &columns.indexes, u32::to_ne_bytes),
        bytes_of(py, &columns.files, i32::to_ne_bytes),
        bytes_of(py, &columns.offsets, i64::to_ne_bytes),
        bytes_of(py, &columns.lengths, i64::to_ne_bytes),
    )
}

#[allow(clippy::host_endian_bytes)]
fn bytes_of<'py, T: Copy, const N: usize>(
    py: Python<'py>,
    numbers: &[T],
    bytes: fn(T) -> [u8; N],
) -> Bound<'py, PyBytes> {
    let raw: Vec<u8> = numbers.iter().flat_map(|number| bytes(*number)).collect();
    PyBytes::new(py, &raw)
}
