//! Parses selections from Python.

use bedform_geometry::{AxisRange, AxisSelection, Points, Region, Selection};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::error::raise;

/// Parses a selection: `("orthogonal", [axis, ...])`, `("points", [coordinates, ...], count)` or
/// `("union", [(start, shape), ...])`. An axis is `(start, step, count)` or a buffer of int64.
pub(crate) fn parse(selection: &Bound<'_, PyTuple>) -> PyResult<Selection> {
    let kind: String = selection.get_item(0)?.extract()?;
    let parts = selection.get_item(1)?.cast_into::<PyList>()?;
    match kind.as_str() {
        "orthogonal" => {
            parts.iter().map(|part| axis(&part)).collect::<PyResult<_>>().map(Selection::Orthogonal)
        }
        "points" => {
            let lists: Vec<Vec<u64>> =
                parts.iter().map(|part| coordinates(&part)).collect::<PyResult<_>>()?;
            let points = if lists.is_empty() {
                Points::of_rank_zero(selection.get_item(2)?.extract()?)
            } else {
                Points::new(lists).map_err(|error| raise(error.into()))?
            };
            Ok(Selection::Points(points))
        }
        "union" => parts
            .iter()
            .map(|part| {
                let (start, shape): (Vec<u64>, Vec<u64>) = part.extract()?;
                Region::new(start, shape).map_err(|error| raise(error.into()))
            })
            .collect::<PyResult<_>>()
            .map(Selection::Union),
        other => Err(PyTypeError::new_err(format!("not a selection: {other:?}"))),
    }
}

fn axis(part: &Bound<'_, PyAny>) -> PyResult<AxisSelection> {
    if let Ok(range) = part.cast::<PyTuple>() {
        let (start, step, count): (u64, i64, u64) = range.extract()?;
        // With fewer than two positions the step has no effect, and the engine rejects zero.
        let step = if step == 0 { 1 } else { step };
        let range = AxisRange::new(start, step, count).map_err(|error| raise(error.into()))?;
        return Ok(AxisSelection::Range(range));
    }
    coordinates(part).map(AxisSelection::Coords)
}

fn coordinates(part: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    let buffer = PyBuffer::<i64>::get(part)?;
    let values = buffer.to_vec(part.py())?;
    // Checked before the conversion, which then reuses the buffer; collecting results would copy
    // it.
    if values.iter().any(|value| *value < 0) {
        return Err(PyTypeError::new_err("coordinates must not be negative here"));
    }
    Ok(values.into_iter().map(i64::cast_unsigned).collect())
}
