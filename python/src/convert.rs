//! Conversions.

use std::path::PathBuf;
use std::sync::Arc;

use bedform::Error;
use bedform::convert::{
    self, ConvertError, ConvertOptions, ConvertPlan, ConvertSource, ConvertTarget, Converted,
    RegionReader,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use serde_json::{Map, Value};

use crate::arguments::options as opening_options;
use crate::callback::{called, elements_by};
use crate::error::{EngineError, ended, raise};
use crate::foreign::ForeignFile;
use crate::signals::{self, detached};
use crate::store::Store;

/// A conversion that was planned.
#[pyclass(frozen, module = "bedform._internal")]
pub(crate) struct Conversion {
    source: ConvertSource,
    target: ConvertTarget,
    options: ConvertOptions,
    plan: ConvertPlan,
}

/// A function that reads a region of an array, and whether it gives texts; by the array's path.
type Reader = (String, bool, Py<PyAny>);

fn options_of(text: &str) -> PyResult<ConvertOptions> {
    let given: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| raise(Error::invalid(error.to_string())))?;
    ConvertOptions::from_json(&given).map_err(raise)
}

fn source_of(name: &str, opened: &Bound<'_, PyAny>) -> PyResult<ConvertSource> {
    if let Ok(store) = opened.cast::<Store>() {
        let store = &store.get().inner;
        return detached(opened.py(), || ConvertSource::store(name, store)).map_err(raise);
    }
    let file = opened
        .cast::<ForeignFile>()
        .map_err(|_| PyTypeError::new_err("the source must be a store or a foreign file"))?;
    Ok(ConvertSource::file(name, file.get().inner.clone()))
}

fn reader_of(is_text: bool, read: Py<PyAny>) -> RegionReader {
    if is_text {
        return RegionReader::Texts(Arc::new(move |region| {
            called(&read, region, |given| given.extract())
        }));
    }
    RegionReader::Elements(elements_by(read))
}

/// The error of a conversion; its own two have kinds that nothing else has.
fn raise_converting(error: ConvertError) -> PyErr {
    match error {
        ConvertError::Busy(text) => EngineError::new_err(("Busy", text)),
        ConvertError::Differs(text) => EngineError::new_err(("Differs", text)),
        ConvertError::Other(error) => raise(error),
    }
}

#[pymethods]
impl Conversion {
    /// Plans the conversion of what was opened, a store or a foreign file, by the name that the user gave
    /// it, with functions that read what the engine cannot.
    #[new]
    fn new(
        py: Python<'_>,
        name: &str,
        opened: &Bound<'_, PyAny>,
        readers: Vec<Reader>,
        target: PathBuf,
        opening: &str,
        options: &str,
    ) -> PyResult<Self> {
        let mut source = source_of(name, opened)?;
        for (path, is_text, read) in readers {
            source = source.with_reader(&path, reader_of(is_text, read));
        }
        let (options, opening) = (options_of(options)?, opening_options(opening)?);
        let outcome = detached(py, || {
            let target = ConvertTarget::open(&target, opening)?;
            let plan = convert::plan(&source, &target, &options)?;
            Ok(Self { source, target, options, plan })
        });
        ended(outcome)
    }

    /// The plan as JSON.
    fn plan(&self) -> PyResult<String> {
        serde_json::to_string(&self.plan).map_err(|error| raise(Error::invalid(error.to_string())))
    }

    /// Converts; tells `progress` after each region how many bytes of how many are done. Gives the bytes
    /// that an earlier run had done, and warnings.
    #[pyo3(signature = (progress=None))]
    fn run(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<(u64, Vec<String>)> {
        let tell = |done: u64, total: u64| {
            let Some(progress) = &progress else { return };
            Python::attach(|py| {
                if let Err(error) = progress.call1(py, (done, total)) {
                    signals::keep(error);
                }
            });
        };
        let outcome = detached(py, || {
            convert::run(&self.plan, &self.source, &self.target, &self.options, &tell)
        });
        let Converted { resumed_bytes, warnings, .. } = outcome.map_err(raise_converting)?;
        signals::take().map_or(Ok((resumed_bytes, warnings)), Err)
    }
}

/// The bytes that a source is to be opened to keep, of the memory that a conversion has.
#[pyfunction]
pub(crate) fn source_cache_bytes(memory_bytes: u64) -> u64 {
    let mut options = ConvertOptions::default();
    options.memory_bytes = memory_bytes;
    options.source_cache_bytes()
}
