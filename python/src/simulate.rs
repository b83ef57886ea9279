//! Simulated machines.

use std::str::FromStr;
use std::time::Instant;

use bedform::Error;
use bedform::layout::ocs;
use bedform_geometry::{Order, Spread, spread_placement};
use bedform_machine::{Machine, MachineError, Pattern, Workload};
use pyo3::prelude::*;
use serde::Deserialize;

use crate::error::{raise, to_json};
use crate::signals::detached;

#[expect(clippy::needless_pass_by_value, reason = "what map_err gives")]
fn machine_error(error: MachineError) -> PyErr {
    raise(Error::invalid(error.to_string()))
}

/// What is run.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Question {
    Workload(Workload),
    Pattern(Pattern),
}

/// A machine's description in JSON, checked, with all defaults filled in.
#[pyfunction]
pub(crate) fn check_machine(machine: &str) -> PyResult<String> {
    to_json(&Machine::from_json(machine).map_err(machine_error)?).map_err(raise)
}

/// Runs `{"workload": ...}` or `{"pattern": ...}` in JSON on a machine in JSON: what it found, as JSON,
/// and the seconds that the calculation took.
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

/// For each cell of a grid, in C order, the target that holds it: in turn in an order, `spread`, or as shards
/// of arrays are placed, which may grow (`shards`).
#[pyfunction]
pub(crate) fn placement(order: &str, grid: Vec<u64>, targets: u32) -> PyResult<Vec<u64>> {
    let found = match order {
        "spread" => spread_placement(&grid, targets),
        "shards" => Spread::new(grid.len(), targets).placement(&grid),
        order => Order::from_str(order).and_then(|order| order.placement(&grid, targets)),
    };
    found.map_err(|error| raise(Error::invalid(error.to_string())))
}

/// What Smart-IO does with chunks of a shape, as many as a grid says, for an optimized size in bytes, as JSON.
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
