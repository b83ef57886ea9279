//! The part of a kind of reads that a replica holds, and the cost of the rest.

use bedform_geometry::Region;

use super::settings::SETTINGS;
use crate::optimize::reads::{ExactElements, PricedReadKind};
use crate::replica::{AxisRuns, ReplicaElements};
use crate::trace::{positions_in, shared};

/// The part of a kind of reads that a replica holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct HeldPart {
    /// The share of the reads that it holds completely; of a listed read, the share of its
    /// elements.
    pub(super) share: f64,
    /// The share of the original seconds that reading the rest from the array takes.
    rest: f64,
}

impl HeldPart {
    fn of_reads(share: f64) -> Self {
        Self { share, rest: 1.0 - share }
    }

    /// Returns the seconds `x` of a whole listed read for [`CandidateReplica::serves`], so that
    /// `share * x + (1 - share) * of_array` is the actual cost. That is `seconds` for the replica's
    /// part, and `rest * of_array` for the remainder.
    pub(super) fn seconds_of_all(self, seconds: f64, of_array: f64) -> f64 {
        (seconds + (self.rest - (1.0 - self.share)) * of_array) / self.share
    }
}

/// Returns the part of a kind of reads that a replica holds; `None` if it is empty, or too small to
/// be read separately. `places` are those of a replica of points.
pub(super) fn part_of(
    kind: &PricedReadKind,
    held: &ReplicaElements,
    places: Option<&[u64]>,
) -> Option<HeldPart> {
    let part = match (&kind.exact, held) {
        (Some(ExactElements::AxisRuns(runs)), ReplicaElements::Runs(held)) => {
            let along = |(held, runs): (&AxisRuns, &AxisRuns)| {
                positions_in(&shared(held, runs)) as f64 / positions_in(runs).max(1) as f64
            };
            HeldPart::of_reads(held.iter().zip(runs).map(along).product())
        }
        (Some(ExactElements::Points(wanted)), ReplicaElements::Points { .. }) => {
            part_of_places(places?, wanted, kind.item_size)
        }
        (Some(_), _) => return None,
        // The bounds of a replica with gaps overstate its elements.
        (None, _) if is_box(held) => HeldPart::of_reads(share_within(kind, &held.bounds()?)),
        (None, _) => return None,
    };
    let least = if kind.exact.is_some() { SETTINGS.held_share_min } else { f64::MIN_POSITIVE };
    (part.share >= least).then_some(part)
}

/// Returns the part of the points `wanted` that a replica of points at `places` holds. The cost of
/// the rest is its number of blocks in the array; dense points leave almost every block to read.
fn part_of_places(places: &[u64], wanted: &[u64], item_size: u64) -> HeldPart {
    let block = (SETTINGS.point_block_bytes / item_size.max(1)).max(1);
    let (mut held, mut common) = (places, 0_usize);
    let (mut blocks, mut blocks_left) = (0_usize, 0_usize);
    let (mut last, mut last_left) = (u64::MAX, u64::MAX);
    for place in wanted {
        held = &held[held.partition_point(|other| other < place)..];
        let at = place / block;
        blocks += usize::from(at != last);
        last = at;
        if held.first() == Some(place) {
            common += 1;
        } else {
            blocks_left += usize::from(at != last_left);
            last_left = at;
        }
    }
    let share = common as f64 / wanted.len().max(1) as f64;
    HeldPart { share, rest: blocks_left as f64 / blocks.max(1) as f64 }
}

/// True for a replica of one box, without gaps.
pub(super) fn is_box(held: &ReplicaElements) -> bool {
    held.runs().is_some_and(|runs| runs.iter().all(|runs| runs.len() == 1))
}

/// Returns the share of the places of a read of `kind` at which it lies inside the box of a
/// replica.
fn share_within(kind: &PricedReadKind, held: &Region) -> f64 {
    let lengths = kind.lengths();
    let along = |axis: usize| {
        let (start, end) = (kind.hot.start()[axis], kind.hot.end(axis));
        let places = (end - start).saturating_sub(lengths[axis]) + 1;
        let low = start.max(held.start()[axis]);
        let high = end.min(held.end(axis));
        let inside = high.saturating_sub(low);
        let fitting = (inside + 1).saturating_sub(lengths[axis]).min(places);
        fitting as f64 / places as f64
    };
    (0..lengths.len()).map(along).product()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_sparse_points_what_a_replica_lacks_takes_its_share_of_the_time_of_dense_ones_all_of_it() {
        let sparse: Vec<u64> = (0..100).map(|at| at * 1_000_000).collect();
        let part = part_of_places(&sparse[..75], &sparse, 8);
        assert_eq!(part, HeldPart { share: 0.75, rest: 0.25 });
        let dense: Vec<u64> = (0..100_000).map(|at| at * 10).collect();
        let held: Vec<u64> = dense.iter().copied().filter(|place| place % 40 != 0).collect();
        let part = part_of_places(&held, &dense, 8);
        assert_eq!(part, HeldPart { share: 0.75, rest: 1.0 });
        // The seconds of the replica's part add to those of the whole array.
        assert!(part.seconds_of_all(1.0, 10.0) > 10.0);
        assert_eq!(part_of_places(&[], &sparse, 8), HeldPart { share: 0.0, rest: 1.0 });
    }
}
