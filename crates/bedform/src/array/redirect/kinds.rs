//! Kinds of reads, as numbers: reads of one kind take the same replicas.
//!
//! Lengths, steps and the part that each replica holds along each axis decide the kind of a read.
//! It is computed without dividing the read into parts and without allocation, because no replica
//! helps most reads, and they pay only for this answer.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use bedform_geometry::{AxisRange, AxisSelection, Selection};

use crate::replica::OpenReplica;

/// The most positions of a list that are examined; of longer lists a sample is.
const SAMPLED: usize = 256;

/// A kind of read, as a hash. If two kinds collide, which is very rare, a read may use replicas
/// that are not the best for it.
pub(super) type ReadKindHash = u64;

/// The kind of a read of `selection` of an array; `None` if no replica has any of it.
pub(super) fn kind_of(
    array: &str,
    selection: &Selection,
    replicas: &[Arc<OpenReplica>],
) -> Option<ReadKindHash> {
    let list;
    let axes = match selection {
        Selection::Orthogonal(axes) => SelectedAxes::Each(axes),
        Selection::Points(points) => {
            let [only] = points.coords() else { return None };
            list = only;
            SelectedAxes::List(list)
        }
        Selection::Union(_) => return None,
    };
    let mut hasher = DefaultHasher::new();
    let mut meets = false;
    for (number, replica) in replicas.iter().enumerate() {
        if let Some(eighths) = axes.eighths_in(replica) {
            (number, eighths).hash(&mut hasher);
            meets = true;
        }
    }
    if !meets {
        return None;
    }
    array.hash(&mut hasher);
    axes.hash_lengths(&mut hasher);
    Some(hasher.finish())
}

/// The selected positions along the axes.
#[derive(Clone, Copy)]
enum SelectedAxes<'a> {
    Each(&'a [AxisSelection]),
    /// A list along the only axis.
    List(&'a [u64]),
}

/// The positions that a replica holds along an axis, in runs of (start, count).
type HeldRuns = [(u64, u64)];

impl SelectedAxes<'_> {
    /// The eighths of the read that a replica has, rounded up, and 9 if it has all; `None` if it
    /// has none.
    fn eighths_in(self, replica: &OpenReplica) -> Option<u64> {
        let runs = replica.record.held.runs().filter(|_| !replica.is_broken())?;
        let shares = |axis: usize, runs: &HeldRuns| match self {
            Self::Each(axes) => match &axes[axis] {
                AxisSelection::Range(range) => share_of_range(range, runs),
                AxisSelection::Coords(list) => share_of_list(list, runs),
            },
            Self::List(list) => share_of_list(list, runs),
        };
        let rank = match self {
            Self::Each(axes) => axes.len(),
            Self::List(_) => 1,
        };
        if rank != runs.len() || self.misses(replica) {
            return None;
        }
        let (mut share, mut is_all) = (1.0, true);
        for (axis, runs) in runs.iter().enumerate() {
            let along = shares(axis, runs)?;
            share *= along;
            is_all &= along >= 1.0;
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        Some(if is_all { 9 } else { (8.0_f64 * share).ceil() as u64 })
    }

    /// True if a replica lies outside the ranges of the read. Lists are not checked: finding their
    /// ends means a look at each position.
    fn misses(self, replica: &OpenReplica) -> bool {
        let Self::Each(axes) = self else { return false };
        axes.iter().enumerate().any(|(at, axis)| {
            let AxisSelection::Range(range) = axis else { return false };
            range.bounds().is_some_and(|bounds| !replica.meets(at, bounds))
        })
    }

    fn hash_lengths(self, hasher: &mut DefaultHasher) {
        match self {
            Self::List(list) => (list.len(), 0_u64).hash(hasher),
            Self::Each(axes) => {
                for axis in axes {
                    match axis {
                        AxisSelection::Range(range) => {
                            (range.len(), range.step().unsigned_abs()).hash(hasher);
                        }
                        AxisSelection::Coords(list) => (list.len(), 0_u64).hash(hasher),
                    }
                }
            }
        }
    }
}

/// The part of a range's positions that lie in runs; `None` for none.
#[allow(clippy::cast_precision_loss)]
fn share_of_range(range: &AxisRange, runs: &HeldRuns) -> Option<f64> {
    let (low, high) = range.bounds()?;
    let step = range.step().unsigned_abs();
    // Counts the positions below a bound.
    let below = |bound: u64| bound.saturating_sub(low).div_ceil(step).min(range.len());
    let first = runs.partition_point(|(start, count)| start.saturating_add(*count) <= low);
    let met = runs[first..].iter().take_while(|(start, _)| *start <= high);
    let inside: u64 =
        met.map(|(start, count)| below(start.saturating_add(*count)) - below(*start)).sum();
    (inside > 0).then(|| inside as f64 / range.len() as f64)
}

/// The part of listed positions that lie in runs, by a sample; `None` for none.
#[allow(clippy::cast_precision_loss)]
fn share_of_list(list: &[u64], runs: &HeldRuns) -> Option<f64> {
    let is_inside = |at: u64| {
        let run = runs.partition_point(|(start, _)| *start <= at).checked_sub(1);
        run.is_some_and(|run| at - runs[run].0 < runs[run].1)
    };
    let step = list.len().div_ceil(SAMPLED).max(1);
    let sample = list.iter().step_by(step);
    let (count, inside) = sample.fold((0_u64, 0_u64), |(count, inside), at| {
        (count + 1, inside + u64::from(is_inside(*at)))
    });
    (inside > 0).then(|| inside as f64 / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::cast_precision_loss)]
    fn the_share_in_runs_is_what_counting_gives() {
        let runs = [(2, 3), (7, 1), (10, 5)];
        let held: Vec<u64> = runs.iter().flat_map(|(at, count)| *at..at + count).collect();
        for (start, step, len) in
            [(0, 1, 20), (3, 4, 4), (19, -3, 6), (5, 1, 2), (12, 1, 2), (15, 1, 3), (7, -1, 1)]
        {
            let range = AxisRange::new(start, step, len).unwrap();
            let inside = range.iter().filter(|at| held.contains(at)).count();
            let expected = (inside > 0).then(|| inside as f64 / len as f64);
            assert_eq!(share_of_range(&range, &runs), expected, "{range:?}");
            let list: Vec<u64> = range.iter().collect();
            assert_eq!(share_of_list(&list, &runs), expected, "{list:?}");
        }
        assert_eq!(share_of_range(&AxisRange::whole(0), &runs), None);
        assert_eq!(share_of_list(&[], &runs), None);
    }
}
