//! The result of a simulation.

use serde::Serialize;

/// The load of one target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct TargetLoad {
    /// Pieces of requests.
    pub requests: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Pieces that did not begin where the one before them ended.
    pub seeks: u64,
    /// Pieces whose object another node had written to.
    pub handovers: u64,
    /// Pieces in its queue, the one that is served included, at most.
    pub queue_max: u64,
    /// Seconds of moving bytes.
    pub moving_seconds: f64,
    /// Seconds of seeking.
    pub seeking_seconds: f64,
    /// Seconds that requests take of their own.
    pub request_seconds: f64,
    /// Seconds of locks that change hands.
    pub handover_seconds: f64,
}

impl TargetLoad {
    /// Seconds for which the target was busy.
    pub fn busy_seconds(&self) -> f64 {
        self.moving_seconds + self.seeking_seconds + self.request_seconds + self.handover_seconds
    }
}

/// A time that the answer cannot be less than.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bound {
    /// The resource that is busy for that long: `target`, `link`, `client`, `metadata`, `fabric` or `local`.
    pub what: &'static str,
    /// For how long.
    pub seconds: f64,
}

/// The result of a simulation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Simulation {
    /// When the last client had ended.
    pub seconds: f64,
    /// Bytes read from targets.
    pub read_bytes: u64,
    /// Bytes written to targets.
    pub written_bytes: u64,
    /// Reads and writes.
    pub requests: u64,
    /// The load of each target.
    pub targets: Vec<TargetLoad>,
    /// The bounds of the time, the highest first.
    pub bounds: Vec<Bound>,
    /// When all had left each barrier.
    pub barriers: Vec<f64>,
    /// When each client had ended.
    pub clients: Vec<f64>,
    /// Creates, opens and syncs.
    pub metadata_operations: u64,
}

impl Simulation {
    /// The highest of the bounds of the time. `None` if nothing was done.
    pub fn bound(&self) -> Option<&Bound> {
        self.bounds.first().filter(|bound| bound.seconds > 0.0)
    }

    /// Targets that were asked for something.
    pub fn targets_used(&self) -> usize {
        self.targets.iter().filter(|load| load.requests > 0).count()
    }
}
