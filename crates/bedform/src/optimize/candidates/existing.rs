//! Existing replicas as candidates: the reads that they serve, and their past benefit.

use std::sync::Arc;

use super::held::{is_box, part_of};
use super::settings::SETTINGS;
use super::{CandidateReplica, Worth};
use crate::optimize::OptimizedSource;
use crate::optimize::conditions::{ReplicaJudgement, ReplicaState, open_own, places_in};
use crate::optimize::reads::{PricedReadKind, recency};
use crate::replica::{ExpectedReads, Replica, ReplicaElements};
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
            (None, kind) if kind.exact.is_none() => seconds_of_near(kind, replica)?,
            (None, kind) => part.seconds_of_all(seconds_of_whole(kind, replica)?, kind.seconds),
        };
        (seconds < kind.seconds).then_some((still * part.share, seconds))
    });
    let serves: Vec<_> = serves.collect();
    let is_served = |expected: &ExpectedReads| {
        kinds.iter().zip(&serves).any(|(kind, served)| match (served, &kind.exact) {
            (Some(_), None) => near_ratio(&kind.counts, &expected.shape).is_some(),
            (Some((share, _)), Some(_)) => *share >= 1.0 && kind.counts == expected.shape,
            (None, _) => false,
        })
    };
    CandidateReplica {
        planned: None,
        is_of_site: false,
        id: replica.id.clone(),
        bytes: replica.stored_bytes,
        building_seconds: 0.0,
        is_counted: !replica.expected.is_empty() && replica.expected.iter().all(is_served),
        serves,
        worth: Worth::of(replica, source.uses.get(&replica.id), source.newest_ns()),
    }
}

/// Returns the seconds of a read of a replica, by those of the nearest reads that it was made for;
/// `None` if none is near.
fn seconds_of_near(kind: &PricedReadKind, replica: &Replica) -> Option<f64> {
    let seconds = replica.expected.iter().filter_map(|expected| {
        Some(expected.seconds_with * near_ratio(&kind.counts, &expected.shape)?.max(1.0))
    });
    seconds.reduce(f64::min)
}

/// Returns the elements of a read of one shape per element of a read of another; `None` if their
/// lengths differ by more than `near_ratio_max` along any axis.
fn near_ratio(shape: &[u64], than: &[u64]) -> Option<f64> {
    let near = SETTINGS.near_ratio_max;
    let along = |(length, than): (&u64, &u64)| {
        let ratio = *length as f64 / (*than).max(1) as f64;
        (1.0 / near..=near).contains(&ratio).then_some(ratio)
    };
    let ratios = shape.iter().zip(than).map(along).collect::<Option<Vec<_>>>();
    ratios.filter(|_| shape.len() == than.len()).map(|ratios| ratios.iter().product())
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
