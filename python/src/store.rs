//! The class `Store`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bedform::comm::Members;
use bedform::log::burst::Burst;
use bedform::log::settle::{CollectOptions, SettleOptions};
use bedform::{Append, Elements, Growth, NewArray, NodeKind};
use bedform_format::ObjectPath;
use pyo3::prelude::*;
use serde_json::{Map, Value};

use crate::arguments::{json_of, new_arrays, options, path_of};
use crate::array::{Array, BufferBytes, GivenElements, counts_json};
use crate::comm::PythonMessages;
use crate::error::{ended, raise, warn};
use crate::foreign::ForeignFile;
use crate::progress::telling;
use crate::session::Session;
use crate::signals::{self, detached};
use crate::storage::PythonStorage;

/// An opened store.
#[pyclass(frozen, module = "bedform._internal")]
pub(crate) struct Store {
    pub(crate) inner: bedform::Store,
}

#[pymethods]
impl Store {
    /// Opens the store in the directory `path`.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf, opening: &str) -> PyResult<Self> {
        let options = options(opening)?;
        detached(py, || bedform::Store::open_path(&path, options))
            .map(|inner| Self { inner })
            .map_err(raise)
    }

    /// Opens the store described by the references in `document`, in kerchunk's JSON. Relative
    /// paths in it start at the directory `base`. The sidecar is that of `place`, the file or URL
    /// of the references, if there is one.
    #[staticmethod]
    fn open_references(
        py: Python<'_>,
        name: &str,
        document: &[u8],
        base: PathBuf,
        place: Option<PathBuf>,
        opening: &str,
    ) -> PyResult<Self> {
        let options = options(opening)?;
        detached(py, || {
            let set = bedform::references::parse(document, name, &options.limits)?;
            bedform::Store::open_references(name, set, &base, place.as_deref(), options)
        })
        .map(|inner| Self { inner })
        .map_err(raise)
    }

    /// Opens a store whose objects `calls` reads: see `PythonStorage`. The sidecar is that of
    /// `place`, if the store has one.
    #[staticmethod]
    fn open_callback(
        py: Python<'_>,
        name: &str,
        calls: Py<PyAny>,
        state: &str,
        is_remote: bool,
        place: Option<PathBuf>,
        opening: &str,
    ) -> PyResult<Self> {
        let options = options(opening)?;
        let storage = Arc::new(PythonStorage::new(name, calls, state, is_remote));
        detached(py, || bedform::Store::open_in_place(storage, place.as_deref(), options))
            .map(|inner| Self { inner })
            .map_err(raise)
    }

    /// Creates a store in the directory `path`, or at a URL.
    #[staticmethod]
    fn create(py: Python<'_>, path: PathBuf, attributes: &str, opening: &str) -> PyResult<Self> {
        let options = options(opening)?;
        let attributes = json_of(attributes)?;
        detached(py, || bedform::Store::create_path(&path, &attributes, options))
            .map(|inner| Self { inner })
            .map_err(raise)
    }

    /// Returns a read-only snapshot of the store, with the JSON by which `open_snapshot` opens it
    /// in another process.
    fn snapshot(&self, py: Python<'_>) -> PyResult<(Self, String)> {
        let outcome = detached(py, || {
            let inner = self.inner.snapshot()?;
            let moment = inner.moment()?.unwrap_or_default();
            Ok((inner, moment.to_string()))
        });
        outcome.map(|(inner, moment)| (Self { inner }, moment)).map_err(raise)
    }

    /// Opens the snapshot of the store at `path` that `moment` describes.
    #[staticmethod]
    fn open_snapshot(py: Python<'_>, path: PathBuf, opening: &str, moment: &str) -> PyResult<Self> {
        let options = options(opening)?;
        let moment = Value::Object(json_of(moment)?);
        detached(py, || bedform::Store::open_snapshot(&path, options, &moment))
            .map(|inner| Self { inner })
            .map_err(raise)
    }

    /// Returns the Zarr format: 2 or 3.
    fn zarr_format(&self, py: Python<'_>) -> PyResult<u8> {
        detached(py, || self.inner.zarr_format()).map_err(raise)
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

    /// True if the store is a single array without a group.
    fn is_array(&self) -> bool {
        self.inner.is_array()
    }

    /// Returns the kind of the object at `path`: "array", "group" or `None`.
    fn kind(&self, py: Python<'_>, path: &str) -> PyResult<Option<&'static str>> {
        let path = path_of(path)?;
        Ok(detached(py, || self.inner.kind(&path)).map_err(raise)?.map(kind_name))
    }

    /// Returns the foreign file behind this store, if there is one.
    fn file(&self) -> Option<ForeignFile> {
        self.inner.file().map(|file| ForeignFile { inner: file.clone() })
    }

    /// Returns the paths and kinds of all arrays and groups below the root.
    fn nodes(&self, py: Python<'_>) -> PyResult<Vec<(String, &'static str)>> {
        let nodes = detached(py, || self.inner.nodes()).map_err(raise)?;
        Ok(nodes.into_iter().map(|(path, kind)| (path.to_string(), kind_name(kind))).collect())
    }

    /// Opens the array at `path`.
    fn array(&self, py: Python<'_>, path: &str) -> PyResult<Array> {
        let path = path_of(path)?;
        detached(py, || self.inner.array(&path)).map(|inner| Array { inner }).map_err(raise)
    }

    /// Returns the attributes of a group, as JSON.
    fn group_attributes(&self, py: Python<'_>, path: &str) -> PyResult<String> {
        let path = path_of(path)?;
        detached(py, || self.inner.group_attributes(&path))
            .map(|map| Value::Object(map).to_string())
            .map_err(raise)
    }

    /// Replaces the attributes of an array or group.
    fn set_attributes(&self, py: Python<'_>, path: &str, attributes: &str) -> PyResult<()> {
        let (path, attributes) = (path_of(path)?, json_of(attributes)?);
        detached(py, || self.inner.set_attributes(&path, attributes)).map_err(raise)
    }

    /// Creates a group.
    fn create_group(&self, py: Python<'_>, path: &str, attributes: &str) -> PyResult<()> {
        let (path, attributes) = (path_of(path)?, json_of(attributes)?);
        detached(py, || self.inner.create_group(&path, &attributes)).map_err(raise)
    }

    /// Creates an array from its description in JSON. A draft stays invisible to readers until
    /// `commit_drafts`.
    #[pyo3(signature = (path, description, draft, elements=None))]
    fn create_array(
        &self,
        py: Python<'_>,
        path: &str,
        description: &str,
        draft: bool,
        elements: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Array> {
        let path = path_of(path)?;
        let description = Value::Object(json_of(description)?);
        let elements = elements.map(|elements| BufferBytes::of(elements, false)).transpose()?;
        detached(py, || {
            let new = NewArray::from_json_with(&description, self.inner.options())?;
            match (draft, &elements) {
                (true, Some(elements)) => self.inner.draft_array_of(&path, &new, elements.get()),
                (true, None) => self.inner.draft_array(&path, &new),
                (false, _) => self.inner.create_array(&path, &new),
            }
        })
        .map(|inner| Array { inner })
        .map_err(raise)
    }

    /// Makes drafts visible, all at once, and sets the attributes of groups, each a path and JSON.
    #[pyo3(signature = (paths, groups=Vec::new()))]
    fn commit_drafts(
        &self,
        py: Python<'_>,
        paths: Vec<String>,
        groups: Vec<(String, String)>,
    ) -> PyResult<()> {
        let paths: Vec<ObjectPath> =
            paths.iter().map(|path| path_of(path)).collect::<PyResult<_>>()?;
        let groups: Vec<(ObjectPath, Map<String, Value>)> = groups
            .iter()
            .map(|(path, attributes)| Ok((path_of(path)?, json_of(attributes)?)))
            .collect::<PyResult<_>>()?;
        detached(py, || self.inner.commit_drafts_with(&paths, &groups)).map_err(raise)
    }

    /// Removes drafts with their data.
    fn discard_drafts(&self, py: Python<'_>, paths: Vec<String>) -> PyResult<()> {
        let paths: Vec<ObjectPath> =
            paths.iter().map(|path| path_of(path)).collect::<PyResult<_>>()?;
        detached(py, || self.inner.discard_drafts(&paths)).map_err(raise)
    }

    /// Opens the draft at `path`.
    fn draft(&self, py: Python<'_>, path: &str) -> PyResult<Array> {
        let path = path_of(path)?;
        detached(py, || self.inner.open_draft(&path)).map(|inner| Array { inner }).map_err(raise)
    }

    /// Returns the array at `path` as it will be with `shape`.
    fn grown(&self, py: Python<'_>, path: &str, shape: Vec<u64>) -> PyResult<Array> {
        let path = path_of(path)?;
        detached(py, || self.inner.grown(&path, &shape)).map(|inner| Array { inner }).map_err(raise)
    }

    /// Extends arrays, each given as (array, axis, length). `fill` writes the new elements; it is
    /// called with the new shapes.
    fn append_with(
        &self,
        py: Python<'_>,
        parts: Vec<(PyRef<'_, Array>, usize, u64)>,
        fill: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let arrays: Vec<(&bedform::Array, usize, u64)> =
            parts.iter().map(|part| (&part.0.inner, part.1, part.2)).collect();
        let fill = fill.clone().unbind();
        let outcome = detached(py, || {
            let parts: Vec<Growth<'_>> = arrays
                .iter()
                .map(|&(array, axis, length)| Growth { array, axis, length })
                .collect();
            bedform::append_with(&parts, &mut |shapes| {
                Python::attach(|py| match fill.call1(py, (shapes.to_vec(),)) {
                    Ok(_) => Ok(()),
                    Err(error) => {
                        signals::keep(error);
                        let message = "the new elements could not be written";
                        Err(bedform::Error::new(bedform::ErrorKind::Interrupted, message))
                    }
                })
            })
        });
        outcome.map_err(raise)
    }

    /// Deletes an array or group.
    fn delete(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        let path = path_of(path)?;
        detached(py, || self.inner.delete(&path)).map_err(raise)
    }

    /// Starts a writing session of the processes of `comm`, or of this process alone; `options` are
    /// JSON.
    #[pyo3(signature = (options, comm=None))]
    fn session(
        &self,
        py: Python<'_>,
        options: &str,
        comm: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Session> {
        let messages = comm.map(PythonMessages::of).transpose()?;
        let options = json_of(options)?;
        detached(py, || Session::begin(&self.inner, &options, messages)).map_err(raise)
    }

    /// Creates arrays all at once, each given by a path and a description in JSON.
    fn create_arrays(&self, py: Python<'_>, arrays: Vec<(String, String)>) -> PyResult<()> {
        let arrays = new_arrays(&arrays, self.inner.options())?;
        detached(py, || self.inner.create_arrays(&arrays)).map_err(raise)
    }

    /// Finds the leftovers of dead writers, also in the burst tier at `burst` or the configured
    /// one, and returns their fate as JSON. `leftover` is `"keep"`, `"commit"` or `"discard"`.
    #[pyo3(signature = (leftover, burst=None))]
    fn recover(&self, py: Python<'_>, leftover: &str, burst: Option<PathBuf>) -> PyResult<String> {
        let outcome = detached(py, || {
            let leftover = leftover.parse()?;
            let burst = match &burst {
                Some(path) => Some(Burst::existing(path)?),
                None => Burst::of_store(&**self.inner.storage())?,
            };
            self.inner.recover(burst.as_ref(), leftover)
        });
        Ok(ended(outcome)?.to_json().to_string())
    }

    /// Settles commits into shards: of all arrays or those named, or of a share of the objects.
    /// Calls `progress` with the bytes done and in all. With `comm` each of its processes settles a
    /// share. Returns counts by name.
    #[allow(clippy::too_many_arguments)]
    #[pyo3(signature = (memory_bytes, arrays, part, grace_seconds, progress, comm))]
    fn settle(
        &self,
        py: Python<'_>,
        memory_bytes: u64,
        arrays: Option<Vec<String>>,
        part: (u64, u64),
        grace_seconds: f64,
        progress: Option<Py<PyAny>>,
        comm: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<(&'static str, u64)>> {
        let messages = comm.map(PythonMessages::of).transpose()?;
        let mut options = SettleOptions::default();
        options.memory_bytes = memory_bytes;
        let paths = arrays.map(|all| all.iter().map(|name| path_of(name)).collect());
        options.arrays = paths.transpose()?;
        options.part = part;
        options.grace = seconds(grace_seconds)?;
        let outcome = detached(py, || {
            let tell = telling(progress.as_ref());
            match messages {
                None => self.inner.settle_with(&options, &tell),
                Some(messages) => {
                    let members = Box::new(Members::new(Box::new(messages)));
                    self.inner.settle_together(members, &options, &tell)
                }
            }
        });
        let done = ended(outcome)?;
        warn(py, self.inner.take_warnings())?;
        Ok(vec![
            ("commits", done.commits),
            ("objects", done.objects),
            ("bytes", done.bytes),
            ("read_bytes", done.read_bytes),
            ("rounds", done.rounds),
            ("rewritten", done.rewritten),
        ])
    }

    /// Reads and checks all stored objects. Calls `progress` with the steps done and in all.
    /// Returns one line per problem. For each array with absent objects it also returns the path,
    /// the number of absent and of all objects, and the number of absent ones with data in the log.
    #[allow(clippy::type_complexity)]
    fn verify(
        &self,
        py: Python<'_>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(Vec<String>, Vec<(String, u64, u64, u64)>)> {
        let outcome = detached(py, || {
            let tell = telling(progress.as_ref());
            self.inner.verify(None, &tell)
        });
        let found = ended(outcome)?;
        let absent = found.absent.into_iter();
        let absent = absent.map(|one| (one.array.to_string(), one.objects, one.of, one.in_log));
        Ok((found.problems, absent.collect()))
    }

    /// Warns about arrays whose chunks are much larger than the sample that chose their codecs.
    fn warn(&self, py: Python<'_>) -> PyResult<()> {
        warn(py, self.inner.take_warnings())
    }

    /// Returns a summary of the log, as JSON; null for numbers that the storage does not provide.
    fn log_summary(&self, py: Python<'_>) -> PyResult<String> {
        let found = detached(py, || self.inner.log_summary()).map_err(raise)?;
        Ok(found.to_json().to_string())
    }

    /// Removes unneeded objects from the log, or only counts them with `dry_run`; returns counts by
    /// name.
    fn collect_log(
        &self,
        py: Python<'_>,
        grace_seconds: f64,
        dry_run: bool,
    ) -> PyResult<Vec<(&'static str, u64)>> {
        let mut options = CollectOptions::default();
        options.grace = seconds(grace_seconds)?;
        options.dry_run = dry_run;
        let done = detached(py, || self.inner.collect_log(&options)).map_err(raise)?;
        Ok(vec![
            ("segments", done.segments),
            ("bytes", done.bytes),
            ("segments_kept", done.segments_kept),
            ("roots", done.roots),
            ("is_gone", u64::from(done.is_gone)),
        ])
    }

    /// Appends to several arrays at once, each given as (array, axis, shape, elements). Returns the
    /// index of the first new element of each array.
    fn append(&self, py: Python<'_>, parts: Vec<PythonAppend<'_>>) -> PyResult<Vec<u64>> {
        let data: Vec<GivenElements> =
            parts.iter().map(|part| GivenElements::of(&part.3)).collect::<PyResult<_>>()?;
        let arrays: Vec<&bedform::Array> = parts.iter().map(|part| &part.0.inner).collect();
        let shapes: Vec<(usize, &Vec<u64>)> = parts.iter().map(|part| (part.1, &part.2)).collect();
        let outcome = detached(py, || append(&arrays, &shapes, &data)).map_err(raise)?;
        warn(py, self.inner.take_warnings())?;
        Ok(outcome)
    }
}

fn seconds(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| raise(bedform::Error::invalid(format!("not a number of seconds: {seconds}"))))
}

/// One array of an append: the array, the axis, the shape of the new elements, the elements.
type PythonAppend<'py> = (PyRef<'py, Array>, usize, Vec<u64>, Bound<'py, PyAny>);

fn append(
    arrays: &[&bedform::Array],
    shapes: &[(usize, &Vec<u64>)],
    data: &[GivenElements],
) -> bedform::Result<Vec<u64>> {
    // Borrowed texts, in lists that outlive the call.
    let texts: Vec<Vec<&str>> = data
        .iter()
        .map(|data| match data {
            GivenElements::Text(texts) => texts.iter().map(String::as_str).collect(),
            GivenElements::Bytes(_) => Vec::new(),
        })
        .collect();
    let parts: Vec<Append<'_>> = arrays
        .iter()
        .zip(shapes)
        .zip(data.iter().zip(&texts))
        .map(|((array, (axis, shape)), (data, texts))| Append {
            array,
            axis: *axis,
            shape,
            elements: match data {
                GivenElements::Bytes(owner) => Elements::Bytes(owner.get()),
                GivenElements::Text(_) => Elements::Text(texts),
            },
        })
        .collect();
    bedform::append(&parts)
}

fn kind_name(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::Array => "array",
        NodeKind::Group => "group",
    }
}
