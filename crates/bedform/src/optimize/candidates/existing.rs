//! Existing replicas as candidates: the reads that they serve, and their past benefit.

use std::sync::Arc;

use super::held::{is_box, part_of};
use super::settings::SETTINGS;
use super::{CandidateReplica, Worth};
use crate::optimize::OptimizedSource;
use crate::optimize::conditions::{ReplicaJudgement, ReplicaState, open_own, places_in};
use crate::optimize::reads::{PricedReadKind, recency};
use crate::replica::{Replica, ReplicaElements};
use crate::trace::ReplicaUse;

impl Worth {
    fn of(replica: &Replica, used: Option<&ReplicaUse>, newest_ns: u64) -> Self {
        let made_ns = replica.made.saturating_mul(1_000_000_000);
        let Some(used) = used else { return Self { seconds: 0.0, last_ns: made_ns } };
        let (mut reads, mut saved) = (0.0, 0.0);
        for expected in &replica.expected {
            reads += expected.reads;
            saved += expected.reads * (expected.seconds_without - expected.seconds_with).max(0.0);
        }
        let each = if reads > 0.0 { saved / reads } else { 0.0 };
        let seconds = each * used.reads as f64 * recency(used.last_ns, newest_ns);
        Self { seconds, last_ns: used.last_ns.max(made_ns) }
    }
}

/// Returns an existing replica, in this condition, as a candidate.
pub(super) fn existing(
    source: &OptimizedSource,
    (replica, condition): &(Replica, ReplicaJudgement),
    kinds: &[PricedReadKind],
) -> CandidateReplica {
    let still = if condition.state == ReplicaState::Broken { 0.0 } else { condition.share };
    // Loaded only for a listed read.
    let mut places = None;
    let serves = kinds.iter().map(|kind| {
        if kind.array != replica.array || kind.array_shape != replica.array_shape || still <= 0.0 {
            return None;
        }
        let is_of_points =
            matches!((&replica.held, &kind.exact), (ReplicaElements::Points { .. }, Some(_)));
        let places = match is_of_points {
            true => places.get_or_insert_with(|| places_of(source, replica)).as_ref(),
            false => None,
        };
        let part = part_of(kind, &replica.held, places.map(|places| places.as_slice()))?;
        let alike = replica.expected.iter().find(|expected| expected.shape == kind.counts);
        let seconds = match (alike.filter(|_| kind.exact.is_none() || part.share >= 1.0), kind) {
            (Some(alike), _) => alike.seconds_with,
            (None, kind) => part.seconds_of_all(seconds_of_whole(kind, replica)?, kind.seconds),
        };
        (seconds < kind.seconds).then_some((still * part.share, seconds))
    });
    CandidateReplica {
        planned: None,
        is_of_site: false,
        id: replica.id.clone(),
        bytes: replica.stored_bytes,
        building_seconds: 0.0,
        serves: serves.collect(),
        worth: Worth::of(replica, source.uses.get(&replica.id), source.newest_ns()),
    }
}

/// Returns the seconds to read all of a replica of listed elements, for a listed read.
fn seconds_of_whole(kind: &PricedReadKind, replica: &Replica) -> Option<f64> {
    let is_listed = kind.exact.is_some() && !is_box(&replica.held);
    let expected = replica.expected.iter().map(|expected| expected.seconds_with);
    expected.filter(|_| is_listed).reduce(f64::max)
}

/// Returns the places of the elements of a replica of points, ascending; `None` if they cannot be
/// read, or are too many.
fn places_of(source: &OptimizedSource, replica: &Replica) -> Option<Arc<Vec<u64>>> {
    let ReplicaElements::Points { count, .. } = replica.held else { return None };
    if count > SETTINGS.places_max {
        return None;
    }
    let own = open_own(source.sidecar.as_ref()?, replica).ok()?;
    let places = places_in(&own, count).ok()?;
    places.is_sorted_by(|a, b| a < b).then(|| Arc::new(places))
}
