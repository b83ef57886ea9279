//! Refined meshes.

use std::path::PathBuf;

use bedform::mesh::{CellRegion, LevelPieces, Mesh};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde_json::json;

use crate::arguments::options;
use crate::array::BufferBytes;
use crate::error::{raise, to_json};
use crate::signals::detached;

/// A refined mesh.
#[pyclass(frozen)]
pub(crate) struct EngineMesh {
    inner: Mesh,
}

/// The first cell of a region, and the cell after the last, along each axis.
type GivenRegion = (Vec<i64>, Vec<i64>);

/// The first cells of a piece, its shape, and the place of its elements in the data of its level.
type GivenPiece = (Vec<i64>, Vec<u64>, usize);

#[pymethods]
impl EngineMesh {
    /// Opens the plotfile at `path`.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf, opening: &str) -> PyResult<Self> {
        let options = options(opening)?;
        let inner = detached(py, || Mesh::open(&path, &options)).map_err(raise)?;
        Ok(Self { inner })
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
        let boxes = &self.inner.level(level).map_err(raise)?.boxes;
        let bounds = boxes.iter().flat_map(|one| one.start.iter().chain(one.stop));
        let bytes: Vec<u8> = bounds.flat_map(|at| at.to_ne_bytes()).collect();
        Ok(PyBytes::new(py, &bytes).unbind())
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
    ) -> PyResult<Vec<(Vec<GivenPiece>, Py<PyBytes>)>> {
        let region = CellRegion { start: region.0, stop: region.1 };
        let read = || self.inner.pieces(component, &region, level, bytes_max);
        let found = detached(py, read).map_err(raise)?;
        let given = |LevelPieces { pieces, data, .. }: LevelPieces| {
            let pieces = pieces.into_iter().map(|piece| (piece.start, piece.shape, piece.place));
            (pieces.collect(), PyBytes::new(py, &data).unbind())
        };
        Ok(found.into_iter().map(given).collect())
    }
}
