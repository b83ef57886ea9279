//! The elements of an array that a replica holds, and their positions in the replica.

use bedform_geometry::{
    AxisRange, AxisSelection, PlacedAxis, PlacedBox, Region, Selection, element_count, split_by,
};
use serde::{Deserialize, Serialize};

/// Runs of positions along an axis, each a first position and a count: ascending and not adjacent.
pub type AxisRuns = Vec<(u64, u64)>;

/// Largest number of single elements in a replica; their positions are in memory while it is read.
const POINTS_MAX: u64 = 1 << 28;
/// Largest number of runs along an axis of a replica.
const RUNS_MAX: usize = 1 << 20;

/// The elements that a replica holds, in the order of the array, without the gaps between them.
///
/// ```
/// use bedform_format::replica::ReplicaElements;
///
/// // Hours 5 and 6 of two days, of the northern half.
/// let held = ReplicaElements::of_runs(vec![vec![(5, 2), (29, 2)], vec![(0, 90)]], &[48, 180]).unwrap();
/// assert_eq!(held.shape(), [4, 90]);
/// assert!(ReplicaElements::of_runs(vec![vec![(5, 2), (6, 2)]], &[48]).is_none()); // overlapping runs
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaElements {
    /// The product of runs along each axis. Each run is a first position and a count; runs ascend
    /// and are not adjacent.
    Runs(Vec<Vec<(u64, u64)>>),
    /// Single elements. An array of the replica holds their positions in C order of the source
    /// array, ascending.
    Points {
        /// Number of elements.
        count: u64,
        /// The first position.
        first: u64,
        /// The last position.
        last: u64,
    },
}

impl ReplicaElements {
    /// Makes the product of these runs along each axis of an array of `shape`; `None` if a run is
    /// empty, overlaps another or leaves the array.
    pub fn of_runs(runs: Vec<Vec<(u64, u64)>>, shape: &[u64]) -> Option<Self> {
        let held = Self::Runs(runs.into_iter().map(|axis| joined(&axis)).collect());
        held.fits(shape).then_some(held)
    }

    /// Makes the elements of a box.
    pub fn region(region: &Region) -> Self {
        let run = |(start, length): (&u64, &u64)| vec![(*start, *length)];
        Self::Runs(region.start().iter().zip(region.shape()).map(run).collect())
    }

    /// Makes single elements from ascending positions in C order of an array; `None` for an empty
    /// list, and for more elements than a replica may hold.
    pub fn points(places: &[u64]) -> Option<Self> {
        let (first, last) = (*places.first()?, *places.last()?);
        let count = places.len() as u64;
        (count <= POINTS_MAX).then_some(Self::Points { count, first, last })
    }

    /// Returns true if an array of `shape` can contain the elements.
    pub(super) fn fits(&self, shape: &[u64]) -> bool {
        match self {
            Self::Points { count, first, last } => {
                let fits = element_count(shape).is_some_and(|elements| *last < elements);
                fits && first <= last
                    && (1..=POINTS_MAX).contains(count)
                    && *count - 1 <= last - first
            }
            Self::Runs(runs) => {
                runs.len() == shape.len()
                    && runs.iter().zip(shape).all(|(runs, length)| run_within(runs, *length))
                    && element_count(&self.shape()).is_some()
            }
        }
    }

    /// Returns the shape of the replica.
    pub fn shape(&self) -> Vec<u64> {
        match self {
            Self::Points { count, .. } => vec![*count],
            Self::Runs(runs) => {
                runs.iter().map(|runs| runs.iter().map(|(_, count)| count).sum()).collect()
            }
        }
    }

    /// Returns the runs along each axis; `None` for points.
    pub fn runs(&self) -> Option<&[Vec<(u64, u64)>]> {
        match self {
            Self::Runs(runs) => Some(runs),
            Self::Points { .. } => None,
        }
    }

    /// Returns the bounding box in the array; `None` for points.
    pub fn bounds(&self) -> Option<Region> {
        let ends = self.runs()?.iter().map(|runs| {
            let (start, (last, count)) = (runs.first()?.0, runs.last()?);
            Some((start, last + count - start))
        });
        let (start, shape): (Vec<_>, Vec<_>) =
            ends.collect::<Option<Vec<_>>>()?.into_iter().unzip();
        Region::new(start, shape).ok()
    }

    /// Splits a part of a read into the box inside the replica, in positions of the array, and the
    /// remainder.
    pub fn split(&self, part: &[PlacedAxis]) -> (Option<PlacedBox>, Vec<PlacedBox>) {
        match self {
            Self::Runs(runs) => split_by(part, |axis, placed| placed.in_runs(&runs[axis])),
            Self::Points { .. } => (None, vec![part.to_vec()]),
        }
    }

    /// Converts a part inside the replica to positions of the replica.
    pub fn inner(&self, part: &[PlacedAxis]) -> PlacedBox {
        let inner = |(placed, runs): (&PlacedAxis, &Vec<(u64, u64)>)| match runs.as_slice() {
            [(first, _)] => placed.relative_to(*first),
            runs => placed.along_runs(runs),
        };
        part.iter().zip(self.runs().unwrap_or_default()).map(inner).collect()
    }

    /// Returns the elements of the array in a region of the replica; empty for points.
    pub fn outer(&self, region: &Region) -> Selection {
        let axis = |(axis, runs): (usize, &Vec<(u64, u64)>)| {
            let (start, length) = (region.start()[axis], region.shape()[axis]);
            outer_positions(runs, start, length)
        };
        let runs = self.runs().unwrap_or_default();
        Selection::Orthogonal(runs.iter().enumerate().map(axis).collect())
    }
}

/// Returns true if the runs ascend, do not overlap, and lie on an axis of this length.
fn run_within(runs: &[(u64, u64)], length: u64) -> bool {
    let mut end = 0;
    let ascend = runs.iter().all(|(first, count)| {
        let follows = *first >= end && *count > 0;
        match first.checked_add(*count) {
            Some(next) if follows && next <= length => {
                end = next;
                true
            }
            _ => false,
        }
    });
    ascend && !runs.is_empty() && runs.len() <= RUNS_MAX
}

/// Returns the positions in the array of `length` elements along the runs, from element `start` on.
fn outer_positions(runs: &[(u64, u64)], start: u64, length: u64) -> AxisSelection {
    let (mut left, mut place) = (length, start);
    let mut parts = Vec::new();
    for (first, count) in runs {
        if place >= *count {
            place -= count;
            continue;
        }
        let taken = (count - place).min(left);
        if taken > 0 {
            parts.push((first + place, taken));
        }
        (place, left) = (0, left - taken);
    }
    match parts.as_slice() {
        [(first, count)] => match AxisRange::contiguous(*first, *count) {
            Ok(range) => AxisSelection::Range(range),
            Err(_) => AxisSelection::Coords(Vec::new()),
        },
        parts => AxisSelection::Coords(
            parts.iter().flat_map(|(first, count)| *first..first + count).collect(),
        ),
    }
}

/// Joins adjacent runs.
fn joined(runs: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> = Vec::with_capacity(runs.len());
    for (first, count) in runs {
        match all.last_mut() {
            Some((start, length)) if start.checked_add(*length) == Some(*first) => *length += count,
            _ => all.push((*first, *count)),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_a_replica_are_positions_of_its_array() {
        let held =
            ReplicaElements::of_runs(vec![vec![(2, 3), (10, 2)], vec![(4, 4)]], &[20, 8]).unwrap();
        assert_eq!(held.shape(), [5, 4]);
        let region = Region::new([1, 1], [3, 2]).unwrap();
        let Selection::Orthogonal(axes) = held.outer(&region) else { panic!() };
        assert_eq!(axes[0], AxisSelection::Coords(vec![3, 4, 10]));
        assert_eq!(axes[1], AxisSelection::Range(AxisRange::new(5, 1, 2).unwrap()));
        assert_eq!(held.bounds().unwrap(), Region::new([2, 4], [10, 4]).unwrap());
        let part: Vec<_> = axes.iter().map(PlacedAxis::whole).collect();
        let (inside, rest) = held.split(&part);
        assert!(rest.is_empty());
        let inner = held.inner(&inside.unwrap());
        assert_eq!(inner[0].positions.iter().collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(inner[1].positions.iter().collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn points_lie_within_their_array() {
        let held = ReplicaElements::points(&[3, 4, 90]).unwrap();
        assert!(held.fits(&[10, 10]) && !held.fits(&[10, 9]));
        assert_eq!(held.shape(), [3]);
        assert!(!ReplicaElements::Points { count: 9, first: 1, last: 3 }.fits(&[10]));
        assert!(!ReplicaElements::Points { count: 1, first: 4, last: 3 }.fits(&[10]));
        assert!(ReplicaElements::points(&[]).is_none());
    }

    #[test]
    fn runs_that_touch_are_one_and_those_that_leave_the_array_are_refused() {
        let held = ReplicaElements::of_runs(vec![vec![(0, 2), (2, 3)]], &[5]).unwrap();
        assert_eq!(held.runs().unwrap(), [vec![(0, 5)]]);
        for runs in [vec![], vec![(0, 0)], vec![(4, 2)], vec![(3, 1), (1, 1)], vec![(u64::MAX, 2)]]
        {
            assert!(ReplicaElements::of_runs(vec![runs.clone()], &[5]).is_none(), "{runs:?}");
        }
        assert!(ReplicaElements::of_runs(vec![], &[5]).is_none());
    }
}
