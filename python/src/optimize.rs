//! Replicas: which a source should have, and how they are made.

use std::path::PathBuf;

use bedform::Error;
use bedform::convert::{Exchange, RegionTask, TargetPlace};
use bedform::foreign::JoinOptions;
use bedform::layout::readers::readers_named;
use bedform::optimize::{
    Budget, ExpectedRead, ListedRead, OptimizeOptions, SourcePlace, plan, plan_layouts, reorganize,
    run_at_low_priority,
};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::convert::exchange_by;
use crate::error::{ended, raise, to_json};
use crate::foreign::{GivenJoin, join_options};
use crate::progress::telling;
use crate::selection::parse;
use crate::signals::detached;
use crate::store::Store;

/// Axes that reads span, by name, and their weight; where they are, by name, first position and end.
type Expected = (Vec<String>, f64, Vec<(String, u64, u64)>);

/// A place, or files that are opened as one.
#[derive(FromPyObject)]
pub(crate) enum GivenSource {
    One(PathBuf),
    Many(Vec<PathBuf>),
}

impl GivenSource {
    pub(crate) fn place(self, join: JoinOptions) -> SourcePlace {
        match self {
            Self::One(path) => SourcePlace::One(path),
            Self::Many(paths) => SourcePlace::Archive { paths, join },
        }
    }
}

/// What reads count: axes that they span, selections, another source whose learnt reads they are.
type Reads<'py> = (Vec<Expected>, Vec<(String, f64, Bound<'py, PyTuple>)>, Option<GivenSource>);

/// Options of both ways to optimise.
fn options_of(
    (reads, selections, like): Reads<'_>,
    memory_bytes: u64,
) -> PyResult<OptimizeOptions> {
    let listed = selections.into_iter().map(|(array, weight, selection)| {
        Ok(ListedRead { array, selection: parse(&selection)?, weight })
    });
    let mut options = OptimizeOptions::default();
    options.selections = listed.collect::<PyResult<Vec<_>>>()?;
    let expected =
        |(spanned, weight, region): Expected| ExpectedRead { array: None, spanned, weight, region };
    options.reads = reads.into_iter().map(expected).collect();
    options.like = like.map(|like| like.place(JoinOptions::default()));
    options.memory_bytes = memory_bytes;
    Ok(options)
}

/// Calls `act` with what hands tasks to the workers behind a function of Python's, if there is one.
fn with_exchange<T>(
    exchange: Option<&Py<PyAny>>,
    act: impl FnOnce(Option<Exchange<'_>>) -> bedform::Result<T>,
) -> bedform::Result<T> {
    match exchange {
        None => act(None),
        Some(exchange) => act(Some(&|place: &TargetPlace, tasks: &[RegionTask]| {
            exchange_by(exchange, place, tasks)
        })),
    }
}

/// Decides which replicas a source should have, and makes them unless it is a dry run; gives plan and outcome, null
/// for a dry run, as JSON. `store` is the source, where a place alone does not open it. With `exchange`, as for a
/// conversion, workers copy.
#[pyfunction]
#[pyo3(signature = (source, join, store, budget, reads, sidecars, memory_bytes, dry_run, progress=None, exchange=None))]
#[expect(clippy::too_many_arguments, reason = "plain arguments of one call")]
pub(crate) fn optimize(
    py: Python<'_>,
    source: GivenSource,
    join: GivenJoin,
    store: Option<&Store>,
    budget: &str,
    reads: Reads<'_>,
    sidecars: Option<PathBuf>,
    memory_bytes: u64,
    dry_run: bool,
    progress: Option<Py<PyAny>>,
    exchange: Option<Py<PyAny>>,
) -> PyResult<String> {
    let mut options = options_of(reads, memory_bytes)?;
    options.store = store.map(|store| store.inner.clone());
    options.sidecars = sidecars;
    let join = join_options(join)?;
    let outcome = detached(py, || {
        options.budget = Budget::parse(budget)?;
        let place = source.place(join);
        if dry_run {
            return to_json(&(plan(&place, &options)?, ()));
        }
        let done = with_exchange(exchange.as_ref(), |exchange| {
            bedform::optimize::optimize(&place, &options, &telling(progress.as_ref()), exchange)
        });
        to_json(&done?)
    });
    ended(outcome)
}

/// The replicas of a source, of this user and of the site, each with whether it is read, and why not, as JSON. `store`
/// as in [`optimize`].
#[pyfunction]
pub(crate) fn replica_conditions(
    py: Python<'_>,
    source: GivenSource,
    join: GivenJoin,
    store: Option<&Store>,
) -> PyResult<String> {
    let mut options = OptimizeOptions::default();
    options.store = store.map(|store| store.inner.clone());
    let place = source.place(join_options(join)?);
    ended(detached(py, || to_json(&bedform::optimize::conditions(&place, &options)?)))
}

/// Decides which layouts the arrays of a store should have, and gives them these unless it is a dry run; gives plan
/// and outcome, null for a dry run, as JSON. With `exchange`, as for a conversion, workers copy.
#[pyfunction]
#[pyo3(signature = (source, reads, readers, memory_bytes, dry_run, progress=None, exchange=None))]
#[expect(clippy::too_many_arguments, reason = "plain arguments of one call")]
pub(crate) fn optimize_layouts(
    py: Python<'_>,
    source: GivenSource,
    reads: Reads<'_>,
    readers: &str,
    memory_bytes: u64,
    dry_run: bool,
    progress: Option<Py<PyAny>>,
    exchange: Option<Py<PyAny>>,
) -> PyResult<String> {
    let mut options = options_of(reads, memory_bytes)?;
    let outcome = detached(py, || {
        let readers: serde_json::Value =
            serde_json::from_str(readers).map_err(|error| Error::invalid(error.to_string()))?;
        options.readers = readers_named(Some(&readers))?;
        let place = source.place(JoinOptions::default());
        let planned = plan_layouts(&place, &options)?;
        let done = match dry_run {
            true => None,
            false => Some(with_exchange(exchange.as_ref(), |exchange| {
                reorganize(&place, &planned, &options, &telling(progress.as_ref()), exchange)
            })?),
        };
        to_json(&(&planned, &done))
    });
    ended(outcome)
}

/// Has the source at `path` optimised each time that `after` more reads were recorded; 0 for never.
#[pyfunction]
pub(crate) fn set_policy(py: Python<'_>, path: PathBuf, after: u64, budget: &str) -> PyResult<()> {
    detached(py, || bedform::optimize::set_policy(&path, after, budget)).map_err(raise)
}

/// Whether the reads of the source at `path` are recorded, and what is made of them unasked, as JSON.
#[pyfunction]
pub(crate) fn policy_state(py: Python<'_>, source: GivenSource) -> PyResult<String> {
    ended(detached(py, || {
        to_json(&bedform::optimize::policy_state(&source.place(JoinOptions::default()))?)
    }))
}

/// Does what the policy of the source at `path` says, at the lowest priority; gives what came of it as JSON, null
/// where another process does it.
#[pyfunction]
pub(crate) fn run_policy(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    run_at_low_priority();
    ended(detached(py, || to_json(&bedform::optimize::run_policy(&path)?)))
}

/// Compares the sidecar beside a source with it, and lets it count from then on; gives what became of it as JSON.
#[pyfunction]
#[pyo3(signature = (source, join, progress=None))]
pub(crate) fn trust(
    py: Python<'_>,
    source: GivenSource,
    join: GivenJoin,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let place = source.place(join_options(join)?);
    ended(detached(py, || to_json(&bedform::optimize::trust(&place, &telling(progress.as_ref()))?)))
}
