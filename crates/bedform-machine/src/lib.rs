//! Simulation of machines that are not at hand: the time that requests would take on a described
//! parallel file system.
//!
//! A discrete-event calculation without storage, clock or randomness. `docs/simulation.md` has the
//! numbered equations; comments here refer to the numbers.
//!
//! | item | meaning |
//! |---|---|
//! | [`Machine`] | targets, clients, links and metadata servers of a description file |
//! | [`Workload`] | files, and the operations of each client in order |
//! | [`BenchmarkPattern`] | a workload described by a few parameters, as in file system benchmarks |
//! | [`Machine::simulate`] | runs a workload on a machine |
//! | [`Simulation`] | the time, the load of each target, and lower bounds of the time |
//!
//! Do not confuse it with `bedform_storage::SimulatedFileSystem`, which stores real bytes and loses
//! them as in a power failure.

mod description;
mod engine;
mod error;
mod pattern;
mod report;
mod servers;
mod stripes;
mod workload;

#[cfg(test)]
mod tests;

pub use description::{
    Clients, DeviceCosts, Fabric, Machine, MetadataCosts, Striping, TARGETS_MAX, TargetCosts,
};
pub use error::MachineError;
pub use pattern::{BenchmarkPattern, PatternShape};
pub use report::{Bound, Simulation, TargetLoad};
pub use stripes::RequestPiece;
pub use workload::{
    CLIENTS_MAX, ClientOperation, ClientWorkload, FILES_MAX, FileStriping, OPERATIONS_MAX,
    PIECES_MAX, Workload,
};
