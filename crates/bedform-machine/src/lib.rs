//! Machines that are not at hand: how long requests would take on a described parallel file system.
//!
//! A calculation, event by event: nothing is stored, no clock is read, nothing is drawn at random. The
//! equations are in `docs/simulation.md`, numbered; comments here name them.
//!
//! | item | is |
//! |---|---|
//! | [`Machine`] | targets, clients, links, metadata server, as a description file has them |
//! | [`Workload`] | files, and for each client its operations in order |
//! | [`Pattern`] | a workload in few words: as benchmarks of file systems make |
//! | [`Machine::simulate`] | runs one on the other |
//! | [`Simulation`] | when it ended, the load of each target, and the bounds of the time |
//!
//! Not to be mixed up with `bedform_storage::SimulatedFileSystem`, which keeps real bytes and loses them as
//! a power failure would.

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
    Clients, DeviceCosts, Fabric, Machine, MetadataCosts, Striping, TARGETS_MAX, Targets,
};
pub use error::MachineError;
pub use pattern::{Pattern, PatternShape};
pub use report::{Bound, Simulation, TargetLoad};
pub use stripes::Piece;
pub use workload::{
    CLIENTS_MAX, Client, FILES_MAX, FileStriping, OPERATIONS_MAX, Operation, PIECES_MAX, Workload,
};
