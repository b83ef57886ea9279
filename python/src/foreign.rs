//! Foreign files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bedform::foreign::Callback;
use bedform::store::storage_of;
use bedform::{Error, ErrorKind, OpenOptions};
use bedform_format::chunk_map::{ChunkMap, ChunkTable};
use bedform_format::{Limits, ObjectPath};
use bedform_storage::{Mode, Storage};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arguments::options;
use crate::array::Array;
use crate::callback::elements_by;
use crate::error::raise;
use crate::signals::detached;

/// A foreign file, opened: its chunk map, and where it is.
#[pyclass(frozen, module = "bedform._internal")]
pub(crate) struct ForeignFile {
    pub(crate) inner: bedform::ForeignFile,
}

/// The directory of a file as storage, and the file in it.
fn place(path: &Path, options: &OpenOptions) -> bedform::Result<(Arc<dyn Storage>, ObjectPath)> {
    let unusable = || Error::invalid(format!("{}: not the path of a file", path.display()));
    let parent = path.parent().ok_or_else(unusable)?;
    let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(unusable)?;
    Ok((storage_of(parent, Mode::ReadOnly, options)?, ObjectPath::parse(name)?))
}

fn map_error(path: &Path, error: &impl std::fmt::Display) -> PyErr {
    raise(Error::new(ErrorKind::Corrupt, format!("{}: {error}", path.display())))
}

/// The columns of one chunk table: indexes, offsets, lengths, filter masks.
type Columns<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>);

fn table(columns: &Columns<'_>) -> PyResult<ChunkTable> {
    let py = columns.0.py();
    let wide = |column| PyBuffer::<u64>::get(column)?.to_vec(py);
    Ok(ChunkTable {
        indexes: wide(&columns.0)?,
        offsets: wide(&columns.1)?,
        lengths: wide(&columns.2)?,
        filter_masks: PyBuffer::<u32>::get(&columns.3)?.to_vec(py)?,
    })
}

#[pymethods]
impl ForeignFile {
    /// Opens a NetCDF classic file.
    #[staticmethod]
    fn open_classic(py: Python<'_>, path: PathBuf, opening: &str) -> PyResult<Self> {
        let options = options(opening)?;
        detached(py, || {
            let (storage, name) = place(&path, &options)?;
            bedform::ForeignFile::open_classic(storage, name, &options)
        })
        .map(|inner| Self { inner })
        .map_err(raise)
    }

    /// Opens a file with the description and chunk tables that its library gave.
    #[staticmethod]
    fn from_description(
        py: Python<'_>,
        path: PathBuf,
        description: &[u8],
        tables: Vec<Columns<'_>>,
        opening: &str,
    ) -> PyResult<Self> {
        let tables = tables.iter().map(table).collect::<PyResult<Vec<_>>>()?;
        let map =
            detached(py, || ChunkMap::from_description(description, tables, &Limits::default()))
                .map_err(|error| map_error(&path, &error))?;
        Self::with_map(py, &path, map, opening)
    }

    /// Opens a file with a chunk map that was kept.
    #[staticmethod]
    fn from_map(py: Python<'_>, path: PathBuf, map: &[u8], opening: &str) -> PyResult<Self> {
        let map = detached(py, || ChunkMap::decode(map, &Limits::default()))
            .map_err(|error| map_error(&path, &error))?;
        Self::with_map(py, &path, map, opening)
    }

    /// The chunk map, to keep.
    fn encode<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = detached(py, || self.inner.map().encode())
            .map_err(|error| raise(Error::invalid(error.to_string())))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// The description of everything in the file, as JSON.
    fn description<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = detached(py, || self.inner.map().description())
            .map_err(|error| raise(Error::invalid(error.to_string())))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// The variable at `path` of the file; through `read`, which gives the elements of a region by start and
    /// shape, where only the library of the format can read it. `is_kept`: whether decoded chunks of
    /// that may be kept for as long as the file stays the same.
    #[pyo3(signature = (path, read=None, is_kept=true))]
    fn array(
        &self,
        py: Python<'_>,
        path: &str,
        read: Option<Py<PyAny>>,
        is_kept: bool,
    ) -> PyResult<Array> {
        let callback = read.map(|read| {
            let callback = Callback::new(elements_by(read)).one_at_a_time();
            if is_kept { callback } else { callback.not_kept() }
        });
        let opened = detached(py, || match callback {
            Some(callback) => bedform::Array::of_file_by(&self.inner, path, callback),
            None => bedform::Array::of_file(&self.inner, path),
        });
        opened.map(|inner| Array { inner }).map_err(raise)
    }
}

impl ForeignFile {
    fn with_map(py: Python<'_>, path: &Path, map: ChunkMap, opening: &str) -> PyResult<Self> {
        let options = options(opening)?;
        detached(py, || {
            let (storage, name) = place(path, &options)?;
            bedform::ForeignFile::new(storage, name, map, &options)
        })
        .map(|inner| Self { inner })
        .map_err(raise)
    }
}
