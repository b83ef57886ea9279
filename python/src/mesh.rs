//! Refined meshes.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use bedform::mesh::{
    CellRegion, LevelPieces, Mesh, MeshOrder, MeshStorage, MeshWriter, NewMesh, RowLevel, steps_of,
};
use bedform::{Error, OpenOptions};
use bedform_format::DataType;
use bedform_format::mesh::MeshRecord;
use bedform_geometry::BoxList;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde_json::{Value, json};

use crate::arguments::{json_of, options, path_of};
use crate::array::{BufferBytes, GivenElements, OwnedElements};
use crate::error::{raise, to_json};
use crate::foreign::ForeignFile;
use crate::progress::telling;
use crate::session::{Session, bytes_of};
use crate::signals::detached;
use crate::store::Store;

/// A refined mesh.
#[pyclass(frozen)]
pub(crate) struct EngineMesh {
    pub(crate) inner: Mesh,
}

/// The first cell of a region, and the cell after the last, along each axis.
type GivenRegion = (Vec<i64>, Vec<i64>);

/// The first cells of a piece, its shape, and the place of its elements in the data of its level.
type GivenPiece = (Vec<i64>, Vec<u64>, usize);

/// The pieces of a level, its data, and a byte for each cell that a finer level has.
type GivenPieces = (Vec<GivenPiece>, OwnedElements, OwnedElements);

/// A level of arrays of one axis: path, ghost cells, boxes and offsets.
type GivenRow = (String, Vec<u32>, Vec<u8>, Vec<u8>);

#[pymethods]
impl EngineMesh {
    /// Opens the plotfile at `path`.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf, opening: &str) -> PyResult<Self> {
        let options = options(opening)?;
        let inner = detached(py, || Mesh::open(&path, &options)).map_err(raise)?;
        Ok(Self { inner })
    }

    /// Opens the mesh in the group `path` of a store.
    #[staticmethod]
    fn of_store(py: Python<'_>, store: &Store, path: &str) -> PyResult<Self> {
        let path = path_of(path)?;
        let inner = detached(py, || Mesh::of_store(&store.inner, &path)).map_err(raise)?;
        Ok(Self { inner })
    }

    /// Makes a mesh of arrays of one axis: see `Mesh::of_rows`. `record` is a record of a mesh, and
    /// `levels` has for each level the path of its array, the ghost cells along each axis, and the
    /// start and stop of each box and the offset of each, as 64-bit numbers of this machine.
    #[staticmethod]
    fn of_rows(
        py: Python<'_>,
        file: &ForeignFile,
        name: String,
        record: &str,
        levels: Vec<GivenRow>,
    ) -> PyResult<Self> {
        let store = bedform::Store::of_file(file.inner.clone(), OpenOptions::default());
        let record = MeshRecord::decode(&Value::Object(json_of(record)?), &store.options().limits);
        let record = record.map_err(|error| raise(Error::corrupt(&*name, error.to_string())))?;
        let level = |(path, ghosts, boxes, offsets): GivenRow| {
            let mut list = BoxList::new(record.rank()).map_err(|error| raise(error.into()))?;
            for bounds in numbers(&boxes).chunks_exact(2 * record.rank()) {
                let (start, stop) = bounds.split_at(record.rank());
                list.push(start, stop).map_err(|error| raise(error.into()))?;
            }
            let offsets = numbers(&offsets).into_iter().map(i64::cast_unsigned).collect();
            Ok(RowLevel { path: path_of(&path)?, boxes: list, ghosts, offsets })
        };
        let levels = levels.into_iter().map(level).collect::<PyResult<_>>()?;
        let opened = detached(py, || Mesh::of_rows(&store, name, record, levels));
        Ok(Self { inner: opened.map_err(raise)? })
    }

    /// Returns the path and the time of each mesh of a store.
    #[staticmethod]
    fn steps(py: Python<'_>, store: &Store) -> PyResult<Vec<(String, f64)>> {
        let found = detached(py, || steps_of(&store.inner)).map_err(raise)?;
        Ok(found.into_iter().map(|step| (step.path.to_string(), step.time)).collect())
    }

    /// Writes the mesh into the group `path` of a store: sub-boxes of at most `sub_box` cells, in
    /// the order with that name, of the components with these numbers. `codecs` has the members of a new array that say how its elements
    /// are encoded, as JSON. Calls `progress` with the bytes done and in all.
    #[allow(clippy::too_many_arguments)]
    fn store_in(
        &self,
        py: Python<'_>,
        store: &Store,
        path: &str,
        order: &str,
        sub_box: Option<Vec<u64>>,
        components: Option<Vec<usize>>,
        codecs: &str,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let path = path_of(path)?;
        let order = MeshOrder::named(order).map_err(raise)?;
        let codecs = json_of(codecs)?;
        let storage = MeshStorage { order, sub_box, components, codecs, ..MeshStorage::default() };
        let write = || {
            let tell = telling(progress.as_ref());
            self.inner.store_in(&store.inner, &path, &storage, &tell)
        };
        detached(py, write).map_err(raise)
    }

    /// Returns everything but the boxes, as JSON.
    fn facts(&self) -> PyResult<String> {
        let mesh = &self.inner;
        let level = |level: &bedform::mesh::MeshLevel| {
            json!({
                "shape": level.shape,
                "ratio": level.ratio,
                "spacing": level.spacing,
                "step": level.step,
                "boxes": level.boxes.len(),
            })
        };
        let facts = json!({
            "components": mesh.components(),
            "time": mesh.time(),
            "lower": mesh.lower(),
            "upper": mesh.upper(),
            "coordinates": mesh.coordinates(),
            "dtype": mesh.data_type().v3_name(),
            "levels": mesh.levels().iter().map(level).collect::<Vec<_>>(),
        });
        to_json(&facts).map_err(raise)
    }

    /// Returns start and stop of each box of a level, as 64-bit numbers of this machine.
    fn boxes(&self, py: Python<'_>, level: usize) -> PyResult<Py<PyBytes>> {
        Ok(bounds_of(py, &self.inner.level(level).map_err(raise)?.boxes))
    }

    /// As `boxes`, of the boxes in which the elements of a level are stored.
    fn grids(&self, py: Python<'_>, level: usize) -> PyResult<Py<PyBytes>> {
        Ok(bounds_of(py, self.inner.level(level).map_err(raise)?.grids()))
    }

    /// Reads a region of a level into `buffer`, with the element `fill` where no level has a cell.
    #[allow(clippy::too_many_arguments)]
    fn read(
        &self,
        py: Python<'_>,
        component: &str,
        region: GivenRegion,
        level: usize,
        fill: &[u8],
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let region = CellRegion { start: region.0, stop: region.1 };
        let mut bytes = BufferBytes::of(buffer, true)?;
        let read = || self.inner.read(component, &region, level, fill, bytes.get_mut());
        detached(py, read).map_err(raise)
    }

    /// Explains `read` without reading elements, as JSON.
    fn explain(
        &self,
        py: Python<'_>,
        component: &str,
        region: GivenRegion,
        level: usize,
    ) -> PyResult<String> {
        let region = CellRegion { start: region.0, stop: region.1 };
        let explain = || self.inner.explain(component, &region, level);
        to_json(&detached(py, explain).map_err(raise)?).map_err(raise)
    }

    /// Returns the requests of `read` that `clients` processes share, as JSON.
    fn workload(
        &self,
        py: Python<'_>,
        component: &str,
        region: GivenRegion,
        level: usize,
        clients: u32,
    ) -> PyResult<String> {
        let region = CellRegion { start: region.0, stop: region.1 };
        let requests = || self.inner.workload(component, &region, level, clients);
        to_json(&detached(py, requests).map_err(raise)?).map_err(raise)
    }

    /// Returns for each level up to `level` the pieces of its boxes that lie in a region of
    /// `level`, and their elements.
    fn pieces(
        &self,
        py: Python<'_>,
        component: &str,
        region: GivenRegion,
        level: usize,
        bytes_max: u64,
    ) -> PyResult<Vec<GivenPieces>> {
        let region = CellRegion { start: region.0, stop: region.1 };
        let read = || self.inner.pieces(component, &region, level, bytes_max);
        let found = detached(py, read).map_err(raise)?;
        Ok(found.into_iter().map(given).collect())
    }

    /// Returns the cells from `starts` up to and excluding `stops` of each of the grids `numbers` of
    /// a level, as `pieces` does.
    #[allow(clippy::too_many_arguments)]
    fn read_parts(
        &self,
        py: Python<'_>,
        component: &str,
        level: usize,
        numbers: Vec<usize>,
        starts: Vec<Vec<i64>>,
        stops: Vec<Vec<i64>>,
        bytes_max: u64,
    ) -> PyResult<GivenPieces> {
        let regions = starts.into_iter().zip(stops).map(|(start, stop)| CellRegion { start, stop });
        let parts: Vec<_> = numbers.into_iter().zip(regions).collect();
        let read = || self.inner.read_parts(component, level, &parts, bytes_max);
        Ok(given(detached(py, read).map_err(raise)?))
    }
}

#[allow(clippy::host_endian_bytes, reason = "memory of this process")]
fn numbers(bytes: &[u8]) -> Vec<i64> {
    bytes.as_chunks::<8>().0.iter().map(|bytes| i64::from_ne_bytes(*bytes)).collect()
}

/// Creates a mesh without boxes in the group `path` of a store: see `NewMesh`. `record` is a record of
/// a mesh, `codecs` has the members of a new array that say how its elements are encoded.
#[pyfunction]
pub(crate) fn create_mesh(
    py: Python<'_>,
    store: &Store,
    path: &str,
    record: &str,
    dtype: &str,
    codecs: &str,
) -> PyResult<()> {
    let record = serde_json::from_str(record);
    let record = record.map_err(|error| raise(Error::invalid(error.to_string())))?;
    let data_type = DataType::parse_v3(dtype)
        .ok_or_else(|| raise(Error::invalid(format!("meshes of {dtype} are not supported"))))?;
    let new = NewMesh { record, data_type, codecs: json_of(codecs)? };
    let path = path_of(path)?;
    detached(py, || new.create(&store.inner, &path)).map_err(raise)
}

/// A mesh that a session writes.
#[pyclass(frozen)]
pub(crate) struct EngineMeshWriter {
    inner: Mutex<MeshWriter>,
}

#[pymethods]
impl EngineMeshWriter {
    /// Opens the mesh in the group `path` of a store.
    #[new]
    fn new(py: Python<'_>, store: &Store, path: &str) -> PyResult<Self> {
        let path = path_of(path)?;
        let writer = detached(py, || MeshWriter::open(&store.inner, &path)).map_err(raise)?;
        Ok(Self { inner: Mutex::new(writer) })
    }

    /// Writes boxes of a component of a level; `bounds` has the start and the stop of each, as
    /// 64-bit numbers of this machine.
    fn write(
        &self,
        py: Python<'_>,
        session: &Session,
        component: &str,
        level: usize,
        bounds: &[u8],
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let bounds = numbers(bounds);
        let data = GivenElements::of(buffer)?;
        let elements = bytes_of(&data)?;
        let write = || {
            let mut writer = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            session.with(|session| writer.write(session, component, level, &bounds, elements))
        };
        detached(py, write).map_err(raise)
    }
}

/// Returns start and stop of each box, as 64-bit numbers of this machine.
fn bounds_of(py: Python<'_>, boxes: &BoxList) -> Py<PyBytes> {
    let bounds = boxes.iter().flat_map(|one| one.start.iter().chain(one.stop));
    let bytes: Vec<u8> = bounds.flat_map(|at| at.to_ne_bytes()).collect();
    PyBytes::new(py, &bytes).unbind()
}

fn given(LevelPieces { pieces, data, covered, .. }: LevelPieces) -> GivenPieces {
    let pieces = pieces.into_iter().map(|piece| (piece.start, piece.shape, piece.place));
    (pieces.collect(), OwnedElements::new(data), OwnedElements::new(covered))
}
