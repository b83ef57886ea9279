//! Simulated machines and placements.

use std::str::FromStr;
use std::time::Instant;

use bedform::Error;
use bedform::layout::ocs;
use bedform_geometry::{
    AccessCosts, ChunkGrid, GeometryError, GridReaders, Order, Region, Spread, spread_placement,
};
use bedform_machine::{BenchmarkPattern, Machine, MachineError, Workload};
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};

use crate::error::{raise, to_json};
use crate::signals::detached;

#[expect(clippy::needless_pass_by_value, reason = "what map_err gives")]
fn machine_error(error: MachineError) -> PyErr {
    raise(Error::invalid(error.to_string()))
}

/// The input of a simulation.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Question {
    Workload(Workload),
    Pattern(BenchmarkPattern),
}

/// Checks a machine's description in JSON, and returns it with all defaults filled in.
#[pyfunction]
pub(crate) fn check_machine(machine: &str) -> PyResult<String> {
    to_json(&Machine::from_json(machine).map_err(machine_error)?).map_err(raise)
}

/// Simulates `{"workload": ...}` or `{"pattern": ...}` in JSON on a machine in JSON. Returns the
/// result as JSON, and the seconds that the calculation took.
#[pyfunction]
pub(crate) fn simulate(py: Python<'_>, machine: &str, question: &str) -> PyResult<(String, f64)> {
    let (found, seconds) = detached(py, || {
        let machine = Machine::from_json(machine)?;
        let question = serde_json::from_str(question).map_err(|error| MachineError::Malformed {
            what: "workload",
            reason: error.to_string(),
        })?;
        let workload = match question {
            Question::Workload(workload) => workload,
            Question::Pattern(pattern) => pattern.workload()?,
        };
        let began = Instant::now();
        machine.simulate(&workload).map(|found| (found, began.elapsed().as_secs_f64()))
    })
    .map_err(machine_error)?;
    Ok((to_json(&found).map_err(raise)?, seconds))
}

/// Returns the target of each cell of a grid, in C order. `order` names an order in which targets
/// alternate, `spread`, or `shards` for the placement of shards of a growing array.
#[pyfunction]
pub(crate) fn placement(order: &str, grid: Vec<u64>, targets: u32) -> PyResult<Vec<u64>> {
    let found = match order {
        "spread" => spread_placement(&grid, targets),
        "shards" => Spread::new(grid.len(), targets).placement(&grid),
        order => Order::from_str(order).and_then(|order| order.placement(&grid, targets)),
    };
    found.map_err(|error| raise(Error::invalid(error.to_string())))
}

/// The reads of an array in shards, and the number of targets for the shards.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SharedReads {
    shape: Vec<u64>,
    shards: Vec<u64>,
    targets: u32,
    /// The reads of each process: start and shape.
    reads: Vec<Vec<(Vec<u64>, Vec<u64>)>>,
    element_seconds: f64,
    piece_seconds: f64,
    latency_seconds: f64,
}

/// A placement of shards, with its load on the targets.
#[derive(Serialize)]
struct PlacedShards {
    /// The target of each shard, in C order.
    targets: Vec<u64>,
    /// The processes, then the stored shards, of each target.
    processes: Vec<u64>,
    stored: Vec<u64>,
    seconds: f64,
}

/// Compares the plain spread of an array's shards with the placement for its readers. Input and
/// result are JSON.
#[pyfunction]
pub(crate) fn place_by_readers(py: Python<'_>, question: &str) -> PyResult<String> {
    let asked: SharedReads = serde_json::from_str(question)
        .map_err(|error| raise(Error::invalid(format!("no reads of shards: {error}"))))?;
    let found = detached(py, || {
        let grid = ChunkGrid::new(asked.shape, asked.shards)?;
        let mut readers = GridReaders::new(grid)?;
        for (process, reads) in (0..).zip(asked.reads) {
            for (start, shape) in reads {
                readers.add(process, &Region::new(start, shape)?)?;
            }
        }
        let costs = AccessCosts {
            element_seconds: asked.element_seconds,
            piece_seconds: asked.piece_seconds,
            latency_seconds: asked.latency_seconds,
        };
        let judged = |targets: Vec<u64>| {
            let load = readers.load(&targets, asked.targets);
            PlacedShards {
                processes: load.iter().map(|target| target.processes).collect(),
                stored: load.iter().map(|target| target.stored).collect(),
                seconds: readers.seconds(&targets, asked.targets, &costs),
                targets,
            }
        };
        let placed = readers.placement(asked.targets, &costs);
        Ok((judged(readers.spread(asked.targets)), judged(placed)))
    });
    let found = found.map_err(|error: GeometryError| raise(Error::invalid(error.to_string())))?;
    to_json(&found).map_err(raise)
}

/// Returns Smart-IO's organization of chunks, as JSON, for a chunk shape, a grid of chunks and an
/// optimized size in bytes.
#[pyfunction]
pub(crate) fn organize(
    chunk_shape: Vec<u64>,
    grid_shape: Vec<u64>,
    item_size: u64,
    optimized_bytes: f64,
) -> PyResult<String> {
    let organized = ocs::organize(&chunk_shape, &grid_shape, item_size, optimized_bytes);
    to_json(&organized).map_err(raise)
}
