//! The class `ForeignFile`.

use std::path::{Path, PathBuf};

use bedform::foreign::{ArchiveOptions, Callback, Compat, FileOrder, JoinOptions};
use bedform::{Error, ErrorKind, OpenOptions, PlaceKind, detect};
use bedform_format::Limits;
use bedform_format::chunk_map::{ChunkMap, ChunkTable};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::arguments::options;
use crate::array::{Array, counts_json};
use crate::callback::{elements_by, kept_from};
use crate::error::{ended, raise};
use crate::progress::telling;
use crate::selection::parse;
use crate::signals::detached;

/// An opened foreign file, or an archive of them, with its chunk map.
#[pyclass(frozen, weakref, module = "bedform._internal")]
pub(crate) struct ForeignFile {
    pub(crate) inner: bedform::ForeignFile,
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

/// Makes the chunk map of the file at `path` with a Python function that returns its description
/// and chunk tables. An exception is stored and ends the opening.
fn map_by(make_map: &Py<PyAny>, path: &Path) -> bedform::Result<ChunkMap> {
    let failed = "a function that describes a file has failed";
    let (description, tables) = kept_from(failed, |py| {
        let given = make_map.bind(py).call1((path,))?;
        let (description, columns): (Vec<u8>, Vec<Columns<'_>>) = given.extract()?;
        let tables = columns.iter().map(table).collect::<PyResult<Vec<_>>>()?;
        Ok((description, tables))
    })?;
    let map = ChunkMap::of_library(&description, tables, &Limits::default());
    map.map_err(|error| Error::new(ErrorKind::Corrupt, format!("{}: {error}", path.display())))
}

/// The join of files: the dimension, `compat`, and whether files are sorted by its labels.
pub(crate) type GivenJoin = (Option<String>, String, bool);

/// Converts the join for the engine.
pub(crate) fn join_options((dimension, compat, is_sorted): GivenJoin) -> PyResult<JoinOptions> {
    let order = if is_sorted { FileOrder::ByCoordinate } else { FileOrder::Given };
    let compat = Compat::parse(&compat).map_err(raise)?;
    Ok(JoinOptions { dimension, compat, order })
}

#[pymethods]
impl ForeignFile {
    /// Opens a file by its own header, or by its stored chunk map; `None` without one.
    #[staticmethod]
    fn find(
        py: Python<'_>,
        path: PathBuf,
        allow_external: bool,
        opening: &str,
    ) -> PyResult<Option<Self>> {
        let options = options(opening)?;
        detached(py, || bedform::ForeignFile::find(&path, allow_external, &options))
            .map(|found| found.map(|inner| Self { inner }))
            .map_err(raise)
    }

    /// Opens a file with the description and chunk tables from its library, and stores these.
    #[staticmethod]
    fn from_description(
        py: Python<'_>,
        path: PathBuf,
        description: &[u8],
        tables: Vec<Columns<'_>>,
        allow_external: bool,
        opening: &str,
    ) -> PyResult<Self> {
        let options = options(opening)?;
        let tables = tables.iter().map(table).collect::<PyResult<Vec<_>>>()?;
        let map = py
            .detach(|| ChunkMap::of_library(description, tables, &Limits::default()))
            .map_err(|error| map_error(&path, &error))?;
        detached(py, || bedform::ForeignFile::open_with_map(&path, map, allow_external, &options))
            .map(|inner| Self { inner })
            .map_err(raise)
    }

    /// Opens files as one archive, joined as `join` says. `make_map` returns the description and
    /// chunk tables of a file that only its library can describe. `progress` receives the files
    /// done and in all.
    #[staticmethod]
    #[pyo3(signature = (paths, join, opening, make_map, progress=None))]
    fn open_archive(
        py: Python<'_>,
        paths: Vec<PathBuf>,
        join: GivenJoin,
        opening: &str,
        make_map: &Bound<'_, PyAny>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let (options, make_map) = (options(opening)?, make_map.clone().unbind());
        let join = join_options(join)?;
        let outcome = detached(py, || {
            let make_map = |path: &Path| map_by(&make_map, path);
            let progress = telling(progress.as_ref());
            let how = ArchiveOptions { join, make_map: Some(&make_map), progress: &progress };
            bedform::ForeignFile::open_archive(&paths, &how, &options)
        });
        ended(outcome).map(|inner| Self { inner })
    }

    /// Returns the dimension along which files are joined; `None` for one file.
    fn joined_dimension(&self) -> Option<&str> {
        self.inner.joined_dimension()
    }

    /// Returns the order in which files are joined, as indexes of the given list, and whether it is
    /// that of their labels; `None` for one file.
    fn joined_order(&self) -> Option<(Vec<usize>, bool)> {
        self.inner.joined_order()
    }

    /// Returns a line that names the variables of the first file with other values in other files.
    fn differing_files(&self) -> Option<String> {
        self.inner.differing_files()
    }

    /// Returns the statistics of reading ahead, as JSON.
    fn prefetch_statistics(&self) -> PyResult<String> {
        counts_json(&self.inner.prefetch_statistics())
    }

    /// Returns the use of each replica, as JSON.
    fn replica_statistics(&self) -> PyResult<String> {
        counts_json(&self.inner.replica_statistics())
    }

    /// Drops the buffers of reads ahead.
    fn drop_prefetched(&self, py: Python<'_>) {
        py.detach(|| self.inner.drop_prefetched());
    }

    /// Returns the description of all variables and groups of the file, as JSON.
    fn description<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = detached(py, || self.inner.map().description())
            .map_err(|error| raise(Error::invalid(error.to_string())))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Opens the variable at `path` of the file. If only the library of the format can read it,
    /// `read` returns the elements of a region, given by start and shape. With `is_kept`, decoded
    /// chunks stay in the cache while the file is unchanged.
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

    /// Reads the texts of `selection` of the variable at `path`, in C order. Returns the length of
    /// each in bytes, and their concatenation.
    fn texts<'py>(
        &self,
        py: Python<'py>,
        path: &str,
        selection: &Bound<'_, PyTuple>,
    ) -> PyResult<(Vec<u64>, Bound<'py, PyBytes>)> {
        let selection = parse(selection)?;
        let read = || bedform::Array::texts_of_file(&self.inner, path, &selection);
        let texts = detached(py, read).map_err(raise)?;
        Ok((texts.lengths, PyBytes::new(py, &texts.bytes)))
    }
}

/// Returns the names of the replicas, of this user and of the site, for the present state of the
/// file at `path`.
#[pyfunction]
pub(crate) fn current_replicas(py: Python<'_>, path: PathBuf) -> PyResult<Vec<String>> {
    detached(py, || bedform::replica::current_replicas(&path)).map_err(raise)
}

/// Returns the kind of a path or URL by name, and for an unknown file its likely format.
#[pyfunction]
pub(crate) fn place_kind(py: Python<'_>, path: PathBuf) -> PyResult<(String, Option<String>)> {
    let kind = detached(py, || detect(&path, &OpenOptions::default())).map_err(raise)?;
    let name = kind.name();
    Ok(match kind {
        PlaceKind::OtherFile(looks) => (name, Some(looks)),
        _ => (name, None),
    })
}
