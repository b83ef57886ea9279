//! The class `Conversion`, and its workers.

use std::path::PathBuf;
use std::sync::Arc;

use bedform::Error;
use bedform::convert::{
    self, ConvertError, ConvertOptions, ConvertPlan, ConvertSource, ConvertTarget, Converted,
    ExchangedTasks, RegionReader, RegionTask, RegionWorker as EngineWorker, TargetPlace,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use serde_json::{Map, Value};

use crate::arguments::options as opening_options;
use crate::callback::{called, elements_by, kept_from};
use crate::error::{EngineError, ended, raise, to_json};
use crate::foreign::ForeignFile;
use crate::signals::{self, detached};
use crate::store::Store;

/// A planned conversion.
#[pyclass(frozen, module = "bedform._internal")]
pub(crate) struct Conversion {
    source: ConvertSource,
    target: ConvertTarget,
    options: ConvertOptions,
    plan: ConvertPlan,
}

/// A Python function that reads a region of an array: the array's path, whether it returns texts,
/// the function.
type GivenReader = (String, bool, Py<PyAny>);

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

/// Makes a source from an opened store or foreign file, with functions for the arrays that the
/// engine cannot read.
fn source_with(
    name: &str,
    opened: &Bound<'_, PyAny>,
    readers: Vec<GivenReader>,
) -> PyResult<ConvertSource> {
    let mut source = source_of(name, opened)?;
    for (path, is_text, read) in readers {
        source = source.with_reader(&path, reader_of(is_text, read));
    }
    Ok(source)
}

fn from_json<'a, T: serde::Deserialize<'a>>(text: &'a str) -> PyResult<T> {
    serde_json::from_str(text).map_err(|error| raise(Error::invalid(error.to_string())))
}

/// Hands tasks to the workers behind a Python function: see `bedform._dask_regions`.
pub(crate) fn exchange_by(
    exchange: &Py<PyAny>,
    place: &TargetPlace,
    tasks: &[RegionTask],
) -> bedform::Result<ExchangedTasks> {
    let (place, tasks) = (to_json(place)?, tasks.iter().map(to_json));
    let tasks = tasks.collect::<bedform::Result<Vec<_>>>()?;
    kept_from("workers have failed", |py| {
        let (finished, warnings, tasks_at_once) =
            exchange.bind(py).call1((place, tasks))?.extract()?;
        Ok(ExchangedTasks { finished, warnings, tasks_at_once })
    })
}

/// Converts the error of a conversion; two of its kinds occur nowhere else.
fn raise_converting(error: ConvertError) -> PyErr {
    match error {
        ConvertError::Busy(text) => EngineError::new_err(("Busy", text)),
        ConvertError::Differs(text) => EngineError::new_err(("Differs", text)),
        ConvertError::Other(error) => raise(error),
    }
}

#[pymethods]
impl Conversion {
    /// Plans the conversion of an opened store or foreign file, with functions for the arrays that
    /// the engine cannot read. `name` is the user's name for it.
    #[new]
    fn new(
        py: Python<'_>,
        name: &str,
        opened: &Bound<'_, PyAny>,
        readers: Vec<GivenReader>,
        target: PathBuf,
        opening: &str,
        options: &str,
    ) -> PyResult<Self> {
        let source = source_with(name, opened, readers)?;
        let (options, opening) = (options_of(options)?, opening_options(opening)?);
        let outcome = detached(py, || {
            let target = ConvertTarget::open(&target, opening)?;
            let plan = convert::plan(&source, &target, &options)?;
            Ok(Self { source, target, options, plan })
        });
        ended(outcome)
    }

    /// Returns the plan, as JSON.
    fn plan(&self) -> PyResult<String> {
        to_json(&self.plan).map_err(raise)
    }

    /// Runs the conversion; calls `progress` after each region with the bytes done and in all.
    /// Returns the bytes that an earlier run had done, and warnings. With `exchange`, workers copy:
    /// it receives a place and tasks, and returns the numbers of finished tasks, warnings, and the
    /// number of tasks to pass at once.
    #[pyo3(signature = (progress=None, exchange=None))]
    fn run(
        &self,
        py: Python<'_>,
        progress: Option<Py<PyAny>>,
        exchange: Option<Py<PyAny>>,
    ) -> PyResult<(u64, Vec<String>)> {
        let tell = |done: u64, total: u64| {
            let Some(progress) = &progress else { return };
            Python::attach(|py| {
                if let Err(error) = progress.call1(py, (done, total)) {
                    signals::keep(error);
                }
            });
        };
        let Self { source, target, options, plan } = self;
        let outcome = detached(py, || match &exchange {
            None => convert::run(plan, source, target, options, &tell),
            Some(exchange) => {
                let exchange =
                    |place: &TargetPlace, tasks: &[RegionTask]| exchange_by(exchange, place, tasks);
                convert::run_on_workers(plan, source, target, options, &tell, &exchange)
            }
        });
        let Converted { resumed_bytes, warnings, .. } = outcome.map_err(raise_converting)?;
        signals::take().map_or(Ok((resumed_bytes, warnings)), Err)
    }
}

/// The source and target of a conversion, opened by a worker in another process.
#[pyclass(frozen, module = "bedform._internal")]
pub(crate) struct RegionWorker(EngineWorker);

#[pymethods]
impl RegionWorker {
    /// Opens the target at `place`, with a source as for a conversion.
    #[new]
    fn new(
        py: Python<'_>,
        name: &str,
        opened: &Bound<'_, PyAny>,
        readers: Vec<GivenReader>,
        place: &str,
        opening: &str,
    ) -> PyResult<Self> {
        let source = source_with(name, opened, readers)?;
        let (place, opening) = (from_json::<TargetPlace>(place)?, opening_options(opening)?);
        ended(detached(py, || EngineWorker::open(source, &place, opening))).map(Self)
    }

    /// Does a task, and returns warnings. Durable on return.
    fn run(&self, py: Python<'_>, task: &str) -> PyResult<Vec<String>> {
        let task = from_json::<RegionTask>(task)?;
        let outcome = detached(py, || self.0.run(&task)).map_err(raise_converting)?;
        signals::take().map_or(Ok(outcome), Err)
    }
}

/// Returns the cache budget, in bytes, for opening the source of a conversion with this memory.
#[pyfunction]
pub(crate) fn source_cache_bytes(memory_bytes: u64) -> u64 {
    let mut options = ConvertOptions::default();
    options.memory_bytes = memory_bytes;
    options.source_cache_bytes()
}
