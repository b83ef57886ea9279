//! Refined meshes.

use std::path::PathBuf;

use bedform::mesh::{CellRegion, LevelPieces, Mesh, MeshOrder, MeshStorage, steps_of};
use bedform_geometry::BoxList;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde_json::json;

use crate::arguments::{json_of, options, path_of};
use crate::array::BufferBytes;
use crate::error::{raise, to_json};
use crate::progress::telling;
use crate::signals::detached;
use crate::store::Store;

/// A refined mesh.
#[pyclass(frozen)]
pub(crate) struct EngineMesh {
    inner: Mesh,
}

/// The first cell of a region, and the cell after the last, along each axis.
type GivenRegion = (Vec<i64>, Vec<i64>);

/// The first cells of a piece, its shape, and the place of its elements in the data of its level.
type GivenPiece = (Vec<i64>, Vec<u64>, usize);

/// The pieces of a level, and its data.
type GivenPieces = (Vec<GivenPiece>, Py<PyBytes>);

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

    /// Returns the path and the time of each mesh of a store.
    #[staticmethod]
    fn steps(py: Python<'_>, store: &Store) -> PyResult<Vec<(String, f64)>> {
        let found = detached(py, || steps_of(&store.inner)).map_err(raise)?;
        Ok(found.into_iter().map(|step| (step.path.to_string(), step.time)).collect())
    }

    /// Writes the mesh into the group `path` of a store: sub-boxes of at most `sub_box` cells, in
    /// the order with that name. `codecs` has the members of a new array that say how its elements
    /// are encoded, as JSON. Calls `progress` with the bytes done and in all.
    #[allow(clippy::too_many_arguments)]
    fn store_in(
        &self,
        py: Python<'_>,
        store: &Store,
        path: &str,
        order: &str,
        sub_box: Option<Vec<u64>>,
        codecs: &str,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let path = path_of(path)?;
        let order = MeshOrder::named(order).map_err(raise)?;
        let storage = MeshStorage { order, sub_box, codecs: json_of(codecs)? };
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
        Ok(found.into_iter().map(|pieces| given(py, pieces)).collect())
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
        Ok(given(py, detached(py, read).map_err(raise)?))
    }
}

/// Returns start and stop of each box, as 64-bit numbers of this machine.
fn bounds_of(py: Python<'_>, boxes: &BoxList) -> Py<PyBytes> {
    let bounds = boxes.iter().flat_map(|one| one.start.iter().chain(one.stop));
    let bytes: Vec<u8> = bounds.flat_map(|at| at.to_ne_bytes()).collect();
    PyBytes::new(py, &bytes).unbind()
}

fn given(py: Python<'_>, LevelPieces { pieces, data, .. }: LevelPieces) -> GivenPieces {
    let pieces = pieces.into_iter().map(|piece| (piece.start, piece.shape, piece.place));
    (pieces.collect(), PyBytes::new(py, &data).unbind())
}
