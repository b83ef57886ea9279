//! The result of a simulation.

use serde::Serialize;

/// The load of one target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct TargetLoad {
    /// Number of pieces of requests.
    pub requests: u64,
    /// Bytes of these pieces.
    pub bytes: u64,
    /// Number of pieces that did not start at the end of the previous one.
    pub seeks: u64,
    /// Number of pieces whose object another node had written last.
    pub handovers: u64,
    /// Largest number of pieces in its queue, including the one being served.
    pub queue_max: u64,
    /// Seconds of data transfer.
    pub moving_seconds: f64,
    /// Seconds of seeking.
    pub seeking_seconds: f64,
    /// Seconds of fixed costs per request.
    pub request_seconds: f64,
    /// Seconds of lock handovers.
    pub handover_seconds: f64,
}

impl TargetLoad {
    /// Returns the busy seconds of the target.
    pub fn busy_seconds(&self) -> f64 {
        self.moving_seconds + self.seeking_seconds + self.request_seconds + self.handover_seconds
    }
}

/// A lower bound of the simulated time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bound {
    /// The resource that is busy for that time: `target`, `link`, `client`, `metadata`, `fabric` or
    /// `local`.
    pub what: &'static str,
    /// The busy time in seconds.
    pub seconds: f64,
}

/// The result of a simulation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Simulation {
    /// Time when the last client ended, in seconds.
    pub seconds: f64,
    /// Bytes read from targets.
    pub read_bytes: u64,
    /// Bytes written to targets.
    pub written_bytes: u64,
    /// Number of reads and writes.
    pub requests: u64,
    /// The load of each target.
    pub targets: Vec<TargetLoad>,
    /// The lower bounds of the time, highest first.
    pub bounds: Vec<Bound>,
    /// Time when all clients had left each barrier, in seconds.
    pub barriers: Vec<f64>,
    /// Time when each client ended, in seconds.
    pub clients: Vec<f64>,
    /// Number of creates, opens and syncs.
    pub metadata_operations: u64,
}

impl Simulation {
    /// Returns the highest lower bound of the time; `None` if nothing was done.
    pub fn bound(&self) -> Option<&Bound> {
        self.bounds.first().filter(|bound| bound.seconds > 0.0)
    }

    /// Returns the number of targets that served requests.
    pub fn targets_used(&self) -> usize {
        self.targets.iter().filter(|load| load.requests > 0).count()
    }
}
