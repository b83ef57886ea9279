//! Replicas: which a source should have, and how they are made.

use std::path::PathBuf;

use bedform::optimize::{
    Budget, ExpectedRead, ListedRead, OptimizeOptions, SourcePlace, build, plan,
    run_at_low_priority,
};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::error::{ended, raise, to_json};
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
    pub(crate) fn place(self, dimension: Option<String>) -> SourcePlace {
        match self {
            Self::One(path) => SourcePlace::One(path),
            Self::Many(paths) => SourcePlace::Archive { paths, dimension },
        }
    }
}

/// Decides which replicas a source should have, and makes them unless it is a dry run; gives plan and outcome, null
/// for a dry run, as JSON. `store` is the source, where a place alone does not open it.
#[pyfunction]
#[pyo3(signature = (source, concat_dim, store, budget, reads, selections, like, sidecars, memory_bytes, dry_run, progress=None))]
#[expect(clippy::too_many_arguments, reason = "plain arguments of one call")]
pub(crate) fn optimize(
    py: Python<'_>,
    source: GivenSource,
    concat_dim: Option<String>,
    store: Option<&Store>,
    budget: &str,
    reads: Vec<Expected>,
    selections: Vec<(String, f64, Bound<'_, PyTuple>)>,
    like: Option<GivenSource>,
    sidecars: Option<PathBuf>,
    memory_bytes: u64,
    dry_run: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let listed = selections.into_iter().map(|(array, weight, selection)| {
        Ok(ListedRead { array, selection: parse(&selection)?, weight })
    });
    let listed = listed.collect::<PyResult<Vec<_>>>()?;
    let opened = store.map(|store| store.inner.clone());
    let outcome = detached(py, || {
        let mut options = OptimizeOptions::default();
        options.budget = Budget::parse(budget)?;
        options.memory_bytes = memory_bytes;
        options.store = opened;
        let expected = |(spanned, weight, region): Expected| ExpectedRead {
            array: None,
            spanned,
            weight,
            region,
        };
        options.reads = reads.into_iter().map(expected).collect();
        (options.selections, options.like) = (listed, like.map(|like| like.place(None)));
        options.sidecars = sidecars;
        let place = source.place(concat_dim);
        let planned = plan(&place, &options)?;
        let done = match dry_run {
            true => None,
            false => Some(build(&place, &planned, &options, &telling(progress.as_ref()))?),
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
    ended(detached(py, || to_json(&bedform::optimize::policy_state(&source.place(None))?)))
}

/// Does what the policy of the source at `path` says, at the lowest priority; gives what came of it as JSON, null
/// where another process does it.
#[pyfunction]
pub(crate) fn run_policy(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    run_at_low_priority();
    ended(detached(py, || to_json(&bedform::optimize::run_policy(&path)?)))
}
