//! Replicas, layouts, policies and trust.

use std::path::PathBuf;

use bedform::Error;
use bedform::convert::{RegionTask, TargetPlace, TaskExchange};
use bedform::foreign::JoinOptions;
use bedform::layout::readers::readers_named;
use bedform::mesh::Mesh;
use bedform::optimize::{
    ExpectedRead, ListedRead, MeshOptimizeOptions, OptimizeOptions, ReplicaBudget, SourcePlace,
    plan, plan_layouts, plan_meshes, reorganize, run_at_low_priority,
};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::convert::exchange_by;
use crate::error::{ended, raise, to_json};
use crate::foreign::{GivenJoin, join_options};
use crate::mesh::EngineMesh;
use crate::progress::telling;
use crate::selection::parse;
use crate::signals::detached;
use crate::store::Store;

/// An expected read: the names of the axes that it spans, its weight, its bounds by name, first
/// position and end, and the array; `None` for all arrays.
type GivenRead = (Vec<String>, f64, Vec<(String, u64, u64)>, Option<String>);

/// A path, or the files of an archive.
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

/// The reads to optimize for: expected reads, listed selections, or another source whose learned
/// reads count.
type Reads<'py> = (Vec<GivenRead>, Vec<(String, f64, Bound<'py, PyTuple>)>, Option<GivenSource>);

/// Makes the options of planning replicas or layouts.
fn options_of(
    (reads, selections, like): Reads<'_>,
    memory_bytes: u64,
) -> PyResult<OptimizeOptions> {
    let listed = selections.into_iter().map(|(array, weight, selection)| {
        Ok(ListedRead { array, selection: parse(&selection)?, weight })
    });
    let mut options = OptimizeOptions::default();
    options.selections = listed.collect::<PyResult<Vec<_>>>()?;
    options.reads = reads.into_iter().map(expected_read).collect();
    options.like = like.map(|like| like.place(JoinOptions::default()));
    options.memory_bytes = memory_bytes;
    Ok(options)
}

fn expected_read((spanned, weight, region, array): GivenRead) -> ExpectedRead {
    ExpectedRead { array, spanned, weight, region }
}

/// Calls `act` with an exchange that hands tasks to workers behind a Python function, if there is
/// one.
fn with_exchange<T>(
    exchange: Option<&Py<PyAny>>,
    act: impl FnOnce(Option<TaskExchange<'_>>) -> bedform::Result<T>,
) -> bedform::Result<T> {
    match exchange {
        None => act(None),
        Some(exchange) => act(Some(&|place: &TargetPlace, tasks: &[RegionTask]| {
            exchange_by(exchange, place, tasks)
        })),
    }
}

/// Chooses the replicas of a source, and makes them unless it is a dry run. Returns the plan and
/// the outcome, null for a dry run, as JSON. `store` is the source if its path alone does not open
/// it. With `exchange`, workers copy as in a conversion.
#[pyfunction]
#[pyo3(signature = (source, join, store, budget, reads, sidecars, memory_bytes, dry_run, progress=None, exchange=None))]
#[expect(clippy::too_many_arguments, reason = "plain arguments of one call")]
pub(crate) fn optimize(
    py: Python<'_>,
    source: GivenSource,
    join: GivenJoin,
    store: Option<&Store>,
    budget: Option<&str>,
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
        options.budget = budget.map_or(Ok(ReplicaBudget::Default), ReplicaBudget::parse)?;
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

/// Returns the sub-boxes and the order of a store of a mesh for expected reads, as JSON.
#[pyfunction]
pub(crate) fn mesh_layout(
    py: Python<'_>,
    mesh: &EngineMesh,
    reads: Vec<GivenRead>,
) -> PyResult<String> {
    let reads: Vec<ExpectedRead> = reads.into_iter().map(expected_read).collect();
    ended(detached(py, || to_json(&bedform::optimize::layout_for_reads(&mesh.inner, &reads)?)))
}

/// Returns the names of the replicas of refined meshes of one place that reads can use.
#[pyfunction]
pub(crate) fn current_mesh_replicas(
    py: Python<'_>,
    meshes: Vec<PyRef<'_, EngineMesh>>,
    path: PathBuf,
) -> PyResult<Vec<String>> {
    let meshes: Vec<Mesh> = meshes.iter().map(|mesh| mesh.inner.clone()).collect();
    detached(py, || bedform::optimize::current_mesh_replicas(&meshes, &path)).map_err(raise)
}

/// Chooses the replicas of refined meshes of one place, opened without replicas and records, and makes
/// them unless it is a dry run. Returns the plan and the outcome, as [`optimize`] does.
#[pyfunction]
#[pyo3(signature = (meshes, path, budget, reads, sidecars, dry_run, progress=None))]
#[expect(clippy::too_many_arguments, reason = "plain arguments of one call")]
pub(crate) fn optimize_meshes(
    py: Python<'_>,
    meshes: Vec<PyRef<'_, EngineMesh>>,
    path: PathBuf,
    budget: Option<&str>,
    reads: Vec<GivenRead>,
    sidecars: Option<PathBuf>,
    dry_run: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let reads = reads.into_iter().map(expected_read).collect();
    let meshes: Vec<Mesh> = meshes.iter().map(|mesh| mesh.inner.clone()).collect();
    let outcome = detached(py, || {
        let budget = budget.map_or(Ok(ReplicaBudget::Default), ReplicaBudget::parse)?;
        let options = MeshOptimizeOptions { budget, reads, sidecars };
        if dry_run {
            return to_json(&(plan_meshes(&meshes, &path, &options)?, ()));
        }
        let tell = telling(progress.as_ref());
        to_json(&bedform::optimize::optimize_meshes(&meshes, &path, &options, &tell)?)
    });
    ended(outcome)
}

/// Returns the replicas of a source, of this user and of the site, each with its state and the
/// reason, as JSON. `store` is as in [`optimize`].
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

/// Chooses the layouts of a store's arrays, and reorganizes the store unless it is a dry run.
/// Returns the plan and the outcome, null for a dry run, as JSON. With `exchange`, workers copy as
/// in a conversion.
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

/// Sets the policy of the source at `path`: it is optimized after every `after` recorded reads,
/// within the default budget if there is no other; 0 for never.
#[pyfunction]
#[pyo3(signature = (path, after, budget=None))]
pub(crate) fn set_policy(
    py: Python<'_>,
    path: PathBuf,
    after: u64,
    budget: Option<&str>,
) -> PyResult<()> {
    detached(py, || bedform::optimize::set_policy(&path, after, budget)).map_err(raise)
}

/// Returns the policy of a source, and whether its reads are recorded, as JSON.
#[pyfunction]
pub(crate) fn policy_state(py: Python<'_>, source: GivenSource) -> PyResult<String> {
    ended(detached(py, || {
        to_json(&bedform::optimize::policy_state(&source.place(JoinOptions::default()))?)
    }))
}

/// Carries out the policy of the source at `path`, at the lowest priority. Returns the outcome as
/// JSON; null if another process is doing so.
#[pyfunction]
pub(crate) fn run_policy(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    run_at_low_priority();
    ended(detached(py, || to_json(&bedform::optimize::run_policy(&path)?)))
}

/// Compares the sidecar beside a source with it, and registers the sidecar; returns the outcome as
/// JSON.
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
