//! The class `Query`: results as bytes, which Python gives their shapes.

use bedform::query::{Extreme, QueryArray, QueryOptions, ValueStatistics};
use bedform_geometry::Region;
use bedform_query::Values;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use zerocopy::IntoBytes;

use crate::array::{Array, BufferBytes, counts_json};
use crate::error::raise;
use crate::signals::detached;

/// A query of arrays of a store or file: see `bedform::query::ValueQuery`.
#[pyclass(frozen, name = "Query", module = "bedform._internal")]
pub(crate) struct EngineQuery {
    inner: bedform::query::ValueQuery,
}

/// An array by its name in an expression: all of it, or a part with (start, shape), names of
/// dimensions, and whether to decode it.
#[derive(FromPyObject)]
enum NamedArray<'py> {
    Whole(String, Bound<'py, Array>),
    Part(String, Bound<'py, Array>, (Vec<u64>, Vec<u64>), Vec<String>, bool),
}

fn arrays_of(named: Vec<NamedArray<'_>>) -> PyResult<Vec<QueryArray>> {
    named.into_iter().map(array_of).collect()
}

fn array_of(named: NamedArray<'_>) -> PyResult<QueryArray> {
    let (name, array, part) = match named {
        NamedArray::Whole(name, array) => (name, array, None),
        NamedArray::Part(name, array, region, dims, decode) => {
            (name, array, Some((region, dims, decode)))
        }
    };
    let mut found = QueryArray::new(name, array.get().inner.clone());
    if let Some(((start, shape), dims, decode)) = part {
        let part = Region::new(start, shape).map_err(|error| raise(error.into()))?;
        (found.part, found.dims, found.decode) = (Some(part), Some(dims), Some(decode));
    }
    Ok(found)
}

#[pymethods]
impl EngineQuery {
    /// Makes the query of `expression` over `arrays`, in a region of (dimension, start, stop).
    #[new]
    #[pyo3(signature = (expression, arrays, region, decode, memory, threads=None))]
    fn new(
        py: Python<'_>,
        expression: &str,
        arrays: Vec<NamedArray<'_>>,
        region: Vec<(String, u64, u64)>,
        decode: bool,
        memory: u64,
        threads: Option<usize>,
    ) -> PyResult<Self> {
        let mut options = QueryOptions::default();
        options.region = region.into_iter().map(|(dim, start, stop)| (dim, start..stop)).collect();
        (options.decode, options.memory, options.threads) = (decode, memory, threads);
        let arrays = arrays_of(arrays)?;
        detached(py, || bedform::query::ValueQuery::new(expression, &arrays, options))
            .map(|inner| Self { inner })
            .map_err(raise)
    }

    /// Returns the names of the arrays in an expression.
    #[staticmethod]
    fn names(expression: &str) -> PyResult<Vec<String>> {
        bedform::query::ValueQuery::names(expression).map_err(raise)
    }

    /// Returns the dimensions, and the start and shape of the region.
    fn frame(&self) -> (Vec<String>, Vec<u64>, Vec<u64>) {
        let region = self.inner.region();
        (self.inner.dims().to_vec(), region.start().to_vec(), region.shape().to_vec())
    }

    /// Returns the shape of the counts, and these as uint64. With `only_any` they say no more than
    /// whether they are 0.
    fn count<'py>(
        &self,
        py: Python<'py>,
        over: Option<Vec<String>>,
        only_any: bool,
    ) -> PyResult<(Vec<u64>, Bound<'py, PyBytes>)> {
        let over = over.as_deref();
        let counted = detached(py, || match only_any {
            true => self.inner.any(over),
            false => self.inner.count(over),
        });
        let (shape, counts) = counted.map_err(raise)?;
        Ok((shape, PyBytes::new(py, counts.as_bytes())))
    }

    /// Returns the positions along each dimension as uint64, and the values of each array as the
    /// name of their type and their bytes.
    fn points<'py>(
        &self,
        py: Python<'py>,
        values: Vec<NamedArray<'py>>,
        limit: Option<u64>,
    ) -> PyResult<(Bound<'py, PyList>, Bound<'py, PyList>)> {
        let values = arrays_of(values)?;
        let points = detached(py, || self.inner.points(&values, limit)).map_err(raise)?;
        let positions = points.positions.iter().map(|axis| PyBytes::new(py, axis.as_bytes()));
        Ok((PyList::new(py, positions)?, typed(py, &points.values)?))
    }

    /// Returns the values of each array as the name of their type and their bytes.
    fn values<'py>(
        &self,
        py: Python<'py>,
        values: Vec<NamedArray<'py>>,
        limit: Option<u64>,
    ) -> PyResult<Bound<'py, PyList>> {
        let values = arrays_of(values)?;
        let found = detached(py, || self.inner.values(&values, limit)).map_err(raise)?;
        typed(py, &found.values)
    }

    /// Fills a mask of the region.
    fn mask(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut bytes = BufferBytes::of(buffer, true)?;
        detached(py, || self.inner.mask(bytes.get_mut())).map_err(raise)
    }

    /// Returns the statistics of an array at the matches: the shape, and columns of them: counts as
    /// uint64; sums, means, least and greatest values as float64. Without `over` there is also a
    /// tuple of the exact sum, least and greatest value.
    fn statistics<'py>(
        &self,
        py: Python<'py>,
        array: NamedArray<'py>,
        over: Option<Vec<String>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let array = array_of(array)?;
        let over = over.as_deref();
        let found = detached(py, || self.inner.statistics(array, over)).map_err(raise)?;
        let (shape, entries) = found;
        let column = |of: &dyn Fn(&ValueStatistics) -> f64| {
            let reals: Vec<f64> = entries.iter().map(of).collect();
            PyBytes::new(py, reals.as_bytes())
        };
        let counts: Vec<u64> = entries.iter().map(|entry| entry.count).collect();
        let exact = match (over, entries.first()) {
            (None, Some(only)) => {
                let sum = match only.least {
                    Extreme::Integer(_) => only.integer_sum,
                    _ => None,
                };
                Some((sum, exact(py, only.least)?, exact(py, only.greatest)?))
            }
            _ => None,
        };
        (
            shape,
            PyBytes::new(py, counts.as_bytes()),
            column(&ValueStatistics::total),
            column(&ValueStatistics::mean),
            column(&|entry| entry.least.to_real()),
            column(&|entry| entry.greatest.to_real()),
            exact,
        )
            .into_pyobject(py)
    }

    /// Returns the number of values of an array in each class between two edges, as uint64.
    fn histogram<'py>(
        &self,
        py: Python<'py>,
        array: NamedArray<'py>,
        edges: Vec<f64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let array = array_of(array)?;
        let counts = detached(py, || self.inner.histogram(array, &edges)).map_err(raise)?;
        Ok(PyBytes::new(py, counts.as_bytes()))
    }

    /// Explains the query, as JSON.
    fn explain(&self, py: Python<'_>) -> PyResult<String> {
        counts_json(&detached(py, || self.inner.explain()).map_err(raise)?)
    }
}

/// Returns values as the names of their types and their bytes.
fn typed<'py>(py: Python<'py>, values: &[Values]) -> PyResult<Bound<'py, PyList>> {
    let typed = |values: &Values| {
        let name = values.as_slice().value_type().name();
        (name, PyBytes::new(py, values.as_bytes()))
    };
    PyList::new(py, values.iter().map(typed))
}

/// Returns an extreme value as Python's int or float; `None` without values.
fn exact(py: Python<'_>, value: Extreme) -> PyResult<Option<Py<PyAny>>> {
    Ok(match value {
        Extreme::None => None,
        Extreme::Integer(value) => Some(value.into_pyobject(py)?.into_any().unbind()),
        Extreme::Real(value) => Some(value.into_pyobject(py)?.into_any().unbind()),
    })
}
