//! Splitting of selections: the part inside a box, the parts outside, and their positions in the
//! result.

use crate::positions::{AxisRange, Positions};
use crate::region::Region;
use crate::selection::AxisSelection;

/// Positions along an axis, each with its index along the same axis of a result.
///
/// ```
/// use bedform_geometry::{AxisRange, AxisSelection, PlacedAxis};
///
/// let days = AxisSelection::Range(AxisRange::new(0, 10, 6)?); // 0, 10, .. 50
/// let (inside, outside) = PlacedAxis::whole(&days).at(15, 45);
/// let inside = inside.unwrap();
/// assert_eq!(inside.positions.iter().collect::<Vec<_>>(), [20, 30, 40]);
/// assert_eq!(inside.result.iter().collect::<Vec<_>>(), [2, 3, 4]);
/// assert_eq!(outside.len(), 2);
/// # Ok::<(), bedform_geometry::GeometryError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PlacedAxis {
    /// The positions.
    pub positions: Positions,
    /// Their indexes in the result, ascending, as many as there are positions.
    pub result: Positions,
}

/// A part of an orthogonal selection: the product of positions along its axes.
pub type PlacedBox = Vec<PlacedAxis>;

impl PlacedAxis {
    /// Makes an axis of all positions of a selection, which form the whole result.
    pub fn whole(selection: &AxisSelection) -> Self {
        Self::all(Positions::from(selection))
    }

    /// Makes an axis of these positions, which form the whole result.
    pub fn all(positions: Positions) -> Self {
        let result = Positions::Range(AxisRange::whole(positions.len()));
        Self { positions, result }
    }

    /// Makes an axis of these positions and as many ascending indexes in the result.
    pub fn listed(positions: Vec<u64>, results: Vec<u64>) -> Self {
        let positions = Positions::from_list(positions);
        Self { positions, result: Positions::from_list(results) }
    }

    /// The number of positions.
    pub fn len(&self) -> u64 {
        self.positions.len()
    }

    /// Returns true if there are no positions.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// Splits off the positions from `low` up to and excluding `high`; returns them, if any, and
    /// the others.
    pub fn at(&self, low: u64, high: u64) -> (Option<Self>, Vec<Self>) {
        match &self.positions {
            Positions::Range(range) => {
                let (first, count) = indexes_within(range, low, high);
                let parts =
                    [(0, first), (first, count), (first + count, range.len() - first - count)];
                let [before, inside, after] = parts.map(|(first, count)| self.slice(first, count));
                (inside, [before, after].into_iter().flatten().collect())
            }
            Positions::List(_) => {
                let (inside, outside) = self.partition(|at| (low..high).contains(&at));
                (inside, outside.into_iter().collect())
            }
        }
    }

    /// Splits off the positions inside `runs`; returns them, if any, and the others. Each run is a
    /// first position and a count; runs ascend and do not overlap.
    pub fn in_runs(&self, runs: &[(u64, u64)]) -> (Option<Self>, Vec<Self>) {
        match (&self.positions, runs) {
            (Positions::Range(_), [(first, count)]) => self.at(*first, first + count),
            _ => {
                // Most lists that touch the runs lie entirely inside: these are not copied.
                if !self.is_empty() && self.lies_in(runs) {
                    return (Some(self.clone()), Vec::new());
                }
                let mut finder = RunFinder::new(runs);
                let (inside, outside) = self.partition(|at| finder.run_of(at).is_some());
                (inside, outside.into_iter().collect())
            }
        }
    }

    /// Converts positions that lie in `runs` to positions in the concatenated runs.
    ///
    /// ```
    /// use bedform_geometry::{AxisRange, AxisSelection, PlacedAxis};
    ///
    /// let rows = AxisSelection::Range(AxisRange::contiguous(4, 8)?); // 4 .. 11
    /// let runs = [(2, 4), (10, 5)];
    /// let (inside, outside) = PlacedAxis::whole(&rows).in_runs(&runs);
    /// let inside = inside.unwrap();
    /// assert_eq!(inside.positions.iter().collect::<Vec<_>>(), [4, 5, 10, 11]);
    /// assert_eq!(inside.along_runs(&runs).positions.iter().collect::<Vec<_>>(), [2, 3, 4, 5]);
    /// assert_eq!(outside[0].positions.iter().collect::<Vec<_>>(), [6, 7, 8, 9]);
    /// # Ok::<(), bedform_geometry::GeometryError>(())
    /// ```
    #[must_use]
    pub fn along_runs(&self, runs: &[(u64, u64)]) -> Self {
        let mut starts = Vec::with_capacity(runs.len());
        let mut total = 0_u64;
        for (_, count) in runs {
            starts.push(total);
            total = total.saturating_add(*count);
        }
        let mut finder = RunFinder::new(runs);
        let mut place = |at| finder.run_of(at).map_or(0, |run| starts[run] + (at - runs[run].0));
        let positions = match self.positions.get(0).map(&mut place) {
            Some(first) if self.follows(runs) => {
                Positions::Range(AxisRange::derived(first, 1, self.len()))
            }
            _ => Positions::from_list(self.positions.iter().map(place).collect()),
        };
        Self { positions, result: self.result.clone() }
    }

    /// Returns the positions relative to `origin`, which must not exceed any of them.
    #[must_use]
    pub fn relative_to(&self, origin: u64) -> Self {
        let positions = match &self.positions {
            Positions::Range(range) => Positions::Range(AxisRange::derived(
                range.start().saturating_sub(origin),
                range.step(),
                range.len(),
            )),
            Positions::List(list) if origin == 0 => Positions::List(list.clone()),
            Positions::List(list) => {
                Positions::from_list(list.iter().map(|at| at.saturating_sub(origin)).collect())
            }
        };
        Self { positions, result: self.result.clone() }
    }

    /// Returns true if this is a list and all its positions lie in `runs`.
    fn lies_in(&self, runs: &[(u64, u64)]) -> bool {
        let Positions::List(list) = &self.positions else { return false };
        let mut left = &list[..];
        let mut finder = RunFinder::new(runs);
        while let [at, ..] = left {
            let Some(run) = finder.run_of(*at) else { return false };
            let (first, count) = runs[run];
            let inside = left.iter().take_while(|at| at.wrapping_sub(first) < count).count();
            left = &left[inside..];
        }
        true
    }

    /// Returns true if this is a list that is contiguous in the concatenated runs.
    fn follows(&self, runs: &[(u64, u64)]) -> bool {
        let Positions::List(list) = &self.positions else { return false };
        let mut left = &list[..];
        let Some(begin) = list.first() else { return false };
        let Some(run) = RunFinder::new(runs).run_of(*begin) else { return false };
        for (first, count) in &runs[run..] {
            let from = *begin.max(first);
            let here = usize::try_from(first.saturating_add(*count) - from).unwrap_or(usize::MAX);
            let (inside, behind) = left.split_at(here.min(left.len()));
            if !inside.iter().zip(from..).all(|(at, expected)| *at == expected) {
                return false;
            }
            left = behind;
        }
        left.is_empty()
    }

    fn partition(&self, mut is_inside: impl FnMut(u64) -> bool) -> (Option<Self>, Option<Self>) {
        let (mut inside, mut outside) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
        for (at, result) in self.positions.iter().zip(self.result.iter()) {
            let (positions, results) = if is_inside(at) { &mut inside } else { &mut outside };
            positions.push(at);
            results.push(result);
        }
        let part = |(positions, results): (Vec<u64>, Vec<u64>)| {
            (!positions.is_empty()).then(|| Self::listed(positions, results))
        };
        (part(inside), part(outside))
    }

    /// Returns `count` positions of a range, from index `first` on.
    fn slice(&self, first: u64, count: u64) -> Option<Self> {
        let Positions::Range(range) = &self.positions else { return None };
        let start = range.get(first).filter(|_| count > 0)?;
        let positions = Positions::Range(AxisRange::derived(start, range.step(), count));
        let result = match &self.result {
            Positions::Range(places) => {
                let start = places.get(first)?;
                Positions::Range(AxisRange::derived(start, places.step(), count))
            }
            Positions::List(list) => {
                let from = usize::try_from(first).ok()?;
                let to = from.checked_add(usize::try_from(count).ok()?)?;
                Positions::from_list(list.get(from..to)?.to_vec())
            }
        };
        Some(Self { positions, result })
    }
}

/// Returns the indexes of the positions of a range from `low` up to and excluding `high`: the
/// first, and the count.
fn indexes_within(range: &AxisRange, low: u64, high: u64) -> (u64, u64) {
    let step = range.step().unsigned_abs();
    let Some((least, _)) = range.bounds() else { return (0, 0) };
    // The number of positions below `bound`, counted from the lowest.
    let below = |bound: u64| bound.saturating_sub(least).div_ceil(step).min(range.len());
    let (first, end) = (below(low), below(high.max(low)));
    match range.step() > 0 {
        true => (first, end - first),
        false => (range.len() - end, end - first),
    }
}

/// Splits a part into its piece inside `region`, if any, and disjoint parts outside.
///
/// ```
/// use bedform_geometry::{AxisRange, AxisSelection, PlacedAxis, Region, split};
///
/// let whole = PlacedAxis::whole(&AxisSelection::Range(AxisRange::whole(10)));
/// let (inside, rest) = split(&[whole.clone(), whole], &Region::new([2, 2], [3, 3])?);
/// assert_eq!(inside.unwrap()[0].len(), 3);
/// let elements = |part: &Vec<PlacedAxis>| part.iter().map(PlacedAxis::len).product::<u64>();
/// assert_eq!(rest.iter().map(elements).sum::<u64>(), 100 - 9);
/// # Ok::<(), bedform_geometry::GeometryError>(())
/// ```
pub fn split(part: &[PlacedAxis], region: &Region) -> (Option<PlacedBox>, Vec<PlacedBox>) {
    split_by(part, |axis, placed| placed.at(region.start()[axis], region.end(axis)))
}

/// As [`split`], with `cut` to separate inside from outside along an axis.
pub fn split_by(
    part: &[PlacedAxis],
    cut: impl Fn(usize, &PlacedAxis) -> (Option<PlacedAxis>, Vec<PlacedAxis>),
) -> (Option<PlacedBox>, Vec<PlacedBox>) {
    let mut rest = Vec::new();
    let mut inside: PlacedBox = Vec::with_capacity(part.len());
    for (axis, placed) in part.iter().enumerate() {
        let (within, outside) = cut(axis, placed);
        for outside in outside {
            let behind = part[axis + 1..].iter().cloned();
            rest.push(inside.iter().cloned().chain([outside]).chain(behind).collect());
        }
        let Some(within) = within else { return (None, vec![part.to_vec()]) };
        inside.push(within);
    }
    (Some(inside), rest)
}

/// A lookup of the runs of positions, fast for consecutive positions.
struct RunFinder<'r> {
    runs: &'r [(u64, u64)],
    /// The run that was found last, its first position, and its count.
    last: usize,
    first: u64,
    count: u64,
}

impl<'r> RunFinder<'r> {
    fn new(runs: &'r [(u64, u64)]) -> Self {
        let (first, count) = runs.first().copied().unwrap_or((0, 0));
        Self { runs, last: 0, first, count }
    }

    /// Returns the index of the run that contains a position.
    fn run_of(&mut self, at: u64) -> Option<usize> {
        if at.wrapping_sub(self.first) < self.count {
            return Some(self.last);
        }
        let run = self.runs.partition_point(|(first, _)| *first <= at).checked_sub(1)?;
        let (first, count) = self.runs[run];
        if at - first >= count {
            return None;
        }
        (self.last, self.first, self.count) = (run, first, count);
        Some(run)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn axis(size: u64) -> impl Strategy<Value = AxisSelection> {
        let range = (0..size, -3_i64..4, 0_u64..9).prop_filter_map(
            "leaves the axis",
            move |(start, step, len)| {
                let range = AxisRange::new(start, step, len).ok()?;
                range
                    .bounds()
                    .is_none_or(|(_, high)| high < size)
                    .then_some(AxisSelection::Range(range))
            },
        );
        prop_oneof![range, prop::collection::vec(0..size, 0..6).prop_map(AxisSelection::Coords)]
    }

    /// Returns each element with its position in the result.
    fn elements(part: &[PlacedAxis]) -> Vec<(Vec<u64>, Vec<u64>)> {
        let mut all = vec![(Vec::new(), Vec::new())];
        for axis in part {
            let with = |(result, at): &(Vec<u64>, Vec<u64>)| {
                let (result, at) = (result.clone(), at.clone());
                let more = axis.result.iter().zip(axis.positions.iter());
                let more = more.map(move |(place, position)| {
                    ([&result[..], &[place]].concat(), [&at[..], &[position]].concat())
                });
                more.collect::<Vec<_>>()
            };
            all = all.iter().flat_map(with).collect();
        }
        all
    }

    proptest! {
        #[test]
        fn the_parts_of_a_split_selection_have_each_element_once_on_the_right_side(
            (axes, start, shape) in (axis(20), axis(20)).prop_flat_map(|(a, b)| {
                (Just(vec![a, b]), prop::collection::vec(0_u64..20, 2), prop::collection::vec(1_u64..20, 2))
            }),
        ) {
            let region = Region::new(start, shape).unwrap();
            let whole: Vec<_> = axes.iter().map(PlacedAxis::whole).collect();
            let (inside, rest) = split(&whole, &region);
            let wanted: BTreeMap<_, _> = elements(&whole).into_iter().collect();
            let mut found = BTreeMap::new();
            for (result, at) in inside.iter().flat_map(|part| elements(part)) {
                prop_assert!(region.contains(&at));
                prop_assert!(found.insert(result, at).is_none());
            }
            for (result, at) in rest.iter().flat_map(|part| elements(part)) {
                prop_assert!(!region.contains(&at));
                prop_assert!(found.insert(result, at).is_none());
            }
            prop_assert_eq!(found, wanted);
        }

        #[test]
        fn positions_in_runs_are_places_in_all_runs(
            selection in axis(40), cuts in prop::collection::btree_set(0_u64..40, 0..8),
        ) {
            let cuts: Vec<u64> = cuts.into_iter().collect();
            let runs: Vec<_> = cuts.chunks_exact(2).map(|pair| (pair[0], pair[1] - pair[0])).collect();
            let all: Vec<u64> = runs.iter().flat_map(|(first, count)| *first..first + count).collect();
            let whole = PlacedAxis::whole(&selection);
            let (inside, outside) = whole.in_runs(&runs);
            let mut found = BTreeMap::new();
            if let Some(part) = &inside {
                let places = part.along_runs(&runs);
                for ((result, at), place) in part.result.iter().zip(part.positions.iter()).zip(places.positions.iter()) {
                    prop_assert_eq!(at, all[usize::try_from(place).unwrap()]);
                    found.insert(result, at);
                }
            }
            for part in &outside {
                for (result, at) in part.result.iter().zip(part.positions.iter()) {
                    prop_assert!(!all.contains(&at));
                    found.insert(result, at);
                }
            }
            let wanted: BTreeMap<_, _> = whole.result.iter().zip(whole.positions.iter()).collect();
            prop_assert_eq!(found, wanted);
        }
    }

    #[test]
    fn the_rest_of_positions_in_runs_is_cut_along_the_other_axes_as_well() {
        let axes =
            [AxisSelection::Coords(vec![7, 1, 3]), AxisSelection::Range(AxisRange::whole(4))];
        let whole: Vec<_> = axes.iter().map(PlacedAxis::whole).collect();
        let cut = |axis: usize, placed: &PlacedAxis| match axis {
            0 => placed.in_runs(&[(1, 3)]),
            _ => placed.at(0, 2),
        };
        let (inside, rest) = split_by(&whole, cut);
        assert_eq!(inside.unwrap()[0].positions.iter().collect::<Vec<_>>(), [1, 3]);
        let rest: Vec<_> = rest.iter().flat_map(|part| elements(part)).collect();
        let of = |result: [u64; 2], at: [u64; 2]| (result.to_vec(), at.to_vec());
        assert_eq!(rest.len(), 4 + 4);
        assert!(rest.contains(&of([0, 3], [7, 3])) && rest.contains(&of([2, 2], [3, 2])));
    }
}
