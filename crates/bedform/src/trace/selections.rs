//! Counts the selections of lists and points that were read of an array: their reads, seconds and
//! last time.
//!
//! Selections with nearly all elements in common count as the one with the most seconds: a
//! threshold that moves a little is one pattern. In Tang, *Dynamic data prefetching and layout
//! optimizations*, section 3.2.4, a new replica likewise holds only elements that no existing one
//! covers. The overlap of other selections matters when replicas are chosen.

use std::collections::HashMap;

use bedform_format::trace::TracedRead;
use bedform_format::trace::knowledge::{LearnedSelection, LearnedSelections};
use bedform_geometry::{AxisRange, AxisSelection, Selection, element_count};

/// The most learned selections of an array; those with the least seconds are dropped.
pub(super) const SELECTIONS_MAX: usize = 64;
/// The most selections of an array that are counted in one call.
const COUNTED_MAX: usize = 4096;
/// The most hashes of similar selections that one entry names.
const ALIKE_MAX: usize = 64;
/// The share of the elements that two similar selections have in common.
const ALIKE_SHARE: f64 = 0.9;
/// The most runs of all selections of an array that are compared.
const RUNS_MAX: usize = 1 << 24;

/// Runs of positions, each a first position and a count; ascending and disjoint.
pub(crate) type PositionRuns = Vec<(u64, u64)>;

/// Formats a content hash as 16 hexadecimal digits.
pub(super) fn digits_of(hash: u64) -> String {
    format!("{hash:016x}")
}

fn add(known: &mut LearnedSelection, other: &LearnedSelection) {
    known.reads = known.reads.saturating_add(other.reads);
    known.bytes = known.bytes.saturating_add(other.bytes);
    known.seconds += other.seconds;
    known.last_ns = known.last_ns.max(other.last_ns);
}

fn is_named(known: &LearnedSelection, hash: &str) -> bool {
    known.hash == hash || known.alike.iter().any(|other| other == hash)
}

/// Counts the reads of `other` as reads of `known`.
fn absorb(known: &mut LearnedSelection, other: LearnedSelection) {
    add(known, &other);
    let names = std::iter::once(other.hash).chain(other.alike);
    let room = ALIKE_MAX.saturating_sub(known.alike.len());
    known.alike.extend(names.take(room));
}

/// The selections of one array in the traces of one call, by content hash.
#[derive(Debug, Default)]
pub(super) struct CountedSelections(HashMap<u64, LearnedSelection>);

impl CountedSelections {
    /// Counts a read of an array of `shape`, which stands for `weight` reads.
    pub(super) fn count(&mut self, shape: &[u64], read: &TracedRead, weight: u64) {
        if read.selection == 0 {
            return;
        }
        if self.0.len() >= COUNTED_MAX && !self.0.contains_key(&read.selection) {
            self.forget_half();
        }
        let one = self.0.entry(read.selection).or_insert_with(|| LearnedSelection {
            hash: digits_of(read.selection),
            start: read.axes.iter().map(|axis| axis.first).collect(),
            end: read.axes.iter().map(|axis| axis.first.saturating_add(axis.count)).collect(),
            ..LearnedSelection::default()
        });
        one.shape = shape.to_vec();
        one.reads = one.reads.saturating_add(weight);
        one.bytes = one.bytes.saturating_add(read.bytes.saturating_mul(weight));
        #[allow(clippy::cast_precision_loss)]
        let seconds = read.took_ns as f64 * 1e-9 * weight as f64;
        one.seconds += seconds;
        one.last_ns = one.last_ns.max(read.began_ns);
    }

    fn forget_half(&mut self) {
        let mut sorted: Vec<_> = std::mem::take(&mut self.0).into_iter().collect();
        sorted.sort_by(|a, b| b.1.seconds.total_cmp(&a.1.seconds));
        sorted.truncate(COUNTED_MAX / 2);
        self.0 = sorted.into_iter().collect();
    }

    /// Adds the counts to `known`; true if there were any.
    pub(super) fn settle(self, known: &mut LearnedSelections) -> bool {
        let has_new = !self.0.is_empty();
        for (_, one) in self.0 {
            match known.all.iter_mut().find(|known| is_named(known, &one.hash)) {
                Some(known) => {
                    add(known, &one);
                    known.shape = one.shape;
                }
                None => known.all.push(one),
            }
        }
        keep_longest(known, COUNTED_MAX);
        has_new
    }
}

/// Merges selections with nearly all elements in common. `load` returns the selection of a learned
/// one.
pub(super) fn join(
    known: &mut LearnedSelections,
    load: impl Fn(&LearnedSelection) -> Option<Selection>,
) {
    let mut room = RUNS_MAX;
    let mut joined: Vec<(LearnedSelection, Option<SelectionRuns>)> = Vec::new();
    for one in std::mem::take(&mut known.all) {
        // Sorted by seconds, so the earlier one stays. Selections beyond the limit need no
        // comparison.
        let elements = match joined.len() < SELECTIONS_MAX && one.is_kept {
            true => load(&one).and_then(|selection| SelectionRuns::new(&selection, &one.shape)),
            false => None,
        };
        let elements = elements.filter(|elements| elements.runs_count() <= room);
        let same = joined.iter_mut().find(|(other, known)| {
            let known = known.as_ref().zip(elements.as_ref());
            other.shape == one.shape && known.is_some_and(|(a, b)| a.is_nearly(b))
        });
        match same {
            Some((other, _)) => absorb(other, one),
            None => {
                room -= elements.as_ref().map_or(0, SelectionRuns::runs_count);
                joined.push((one, elements));
            }
        }
    }
    known.all = joined.into_iter().map(|(one, _)| one).collect();
    keep_longest(known, SELECTIONS_MAX);
}

/// Sorts selections by their seconds, longest first, and keeps the first `count`.
fn keep_longest(known: &mut LearnedSelections, count: usize) {
    // By hash where the seconds are equal, so that the next plan is the same.
    known.all.sort_by(|a, b| b.seconds.total_cmp(&a.seconds).then_with(|| a.hash.cmp(&b.hash)));
    known.all.truncate(count);
}

/// The elements of a selection, in any order: all combinations of positions in runs along each
/// axis. Points have one axis, of places in the C order of the array.
struct SelectionRuns {
    axes: Vec<PositionRuns>,
    count: f64,
}

impl SelectionRuns {
    fn new(selection: &Selection, shape: &[u64]) -> Option<Self> {
        // The shape comes from a file: this excludes shapes in which the number of a place
        // overflows.
        element_count(shape)?;
        selection.validate(shape).ok()?;
        let axes = match selection {
            Selection::Points(points) => vec![runs_of_any(points.places(shape))],
            Selection::Orthogonal(axes) => axes.iter().map(runs_of_axis).collect(),
            Selection::Union(_) => return None,
        };
        let count = axes.iter().map(|runs| positions_in(runs) as f64).product();
        Some(Self { axes, count })
    }

    fn runs_count(&self) -> usize {
        self.axes.iter().map(Vec::len).sum()
    }

    /// True if the common elements are nearly all elements of both.
    fn is_nearly(&self, other: &Self) -> bool {
        let most = self.count.max(other.count);
        if self.axes.len() != other.axes.len() || self.count.min(other.count) < ALIKE_SHARE * most {
            return false;
        }
        let axes = self.axes.iter().zip(&other.axes);
        let common = axes.map(|(a, b)| positions_in(&shared(a, b)) as f64);
        common.product::<f64>() >= ALIKE_SHARE * most
    }
}

/// Returns the selected positions along an axis, as runs.
fn runs_of_axis(axis: &AxisSelection) -> PositionRuns {
    match axis {
        AxisSelection::Range(range) if range.step() == 1 => vec![(range.start(), range.len())],
        AxisSelection::Range(range) => runs_of_any(positions_of(range)),
        AxisSelection::Coords(positions) => runs_of_any(positions.clone()),
    }
}

fn positions_of(range: &AxisRange) -> Vec<u64> {
    // A longer range than [`RUNS_MAX`] is not compared, so its end may be missing.
    let count = range.len().min(RUNS_MAX as u64 + 1);
    (0..count).filter_map(|at| range.get(at)).collect()
}

fn runs_of_any(mut positions: Vec<u64>) -> PositionRuns {
    positions.sort_unstable();
    positions.dedup();
    runs_of(&positions)
}

/// Returns ascending positions as runs.
pub(crate) fn runs_of(positions: &[u64]) -> PositionRuns {
    let mut runs: PositionRuns = Vec::new();
    for &at in positions {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == at => *count += 1,
            _ => runs.push((at, 1)),
        }
    }
    runs
}

/// Returns the common positions of two lists of runs, as runs.
pub(crate) fn shared(one: &[(u64, u64)], other: &[(u64, u64)]) -> PositionRuns {
    let (mut a, mut b) = (one.iter().peekable(), other.iter().peekable());
    let mut all = PositionRuns::new();
    while let (Some((first, count)), Some((start, length))) = (a.peek(), b.peek()) {
        let (low, end, stop) = (*first.max(start), first + count, start + length);
        if low < end.min(stop) {
            all.push((low, end.min(stop) - low));
        }
        match end <= stop {
            true => a.next(),
            false => b.next(),
        };
    }
    all
}

/// Returns the number of positions in all runs.
pub(crate) fn positions_in(runs: &[(u64, u64)]) -> u64 {
    runs.iter().map(|(_, count)| count).sum()
}

#[cfg(test)]
mod tests {
    use bedform_format::trace::TracedAxis;
    use bedform_geometry::Points;

    use super::*;

    fn read(selection: u64, took_ns: u64, began_ns: u64) -> TracedRead {
        TracedRead {
            stream: 0,
            computation: 0,
            began_ns,
            took_ns,
            bytes: 8,
            was_ahead: false,
            is_list: true,
            selection,
            axes: vec![TracedAxis { first: 2, count: 90, step: 1 }],
        }
    }

    fn rows(positions: impl IntoIterator<Item = u64>) -> Selection {
        Selection::Orthogonal(vec![AxisSelection::Coords(positions.into_iter().collect())])
    }

    fn settled(reads: &[(u64, u64)]) -> LearnedSelections {
        let (mut known, mut counted) = (LearnedSelections::default(), CountedSelections::default());
        for (selection, took_ns) in reads {
            counted.count(&[100], &read(*selection, *took_ns, 5), 1);
        }
        assert!(counted.settle(&mut known));
        known.all.iter_mut().for_each(|one| one.is_kept = true);
        known
    }

    fn counts(known: &LearnedSelections) -> Vec<(&str, u64)> {
        known.all.iter().map(|one| (one.hash.trim_start_matches('0'), one.reads)).collect()
    }

    #[test]
    fn selections_are_counted_by_content_and_those_that_took_most_come_first() {
        let mut known = settled(&[(1, 5), (2, 50), (1, 5), (3, 1), (0, 1000)]);
        assert_eq!(counts(&known), [("2", 1), ("1", 2), ("3", 1)]);
        let mut counted = CountedSelections::default();
        counted.count(&[100], &read(3, 1000, 9), 4);
        assert!(counted.settle(&mut known));
        assert_eq!(counts(&known), [("3", 5), ("2", 1), ("1", 2)]);
        assert_eq!((known.all[0].last_ns, known.all[0].end[0]), (9, 92));
        assert!(!CountedSelections::default().settle(&mut known));
    }

    #[test]
    fn the_same_elements_in_another_order_and_nearly_the_same_count_as_one() {
        let mut known = settled(&[(1, 9), (2, 8), (3, 7), (4, 6), (5, 5)]);
        let load = |one: &LearnedSelection| match one.hash.trim_start_matches('0') {
            "1" => Some(rows(0..50)),
            "2" => Some(rows((0..50).rev())),
            "3" => Some(rows(3..50)),
            "4" => Some(rows(20..70)),
            _ => Some(Selection::Points(Points::new(vec![(20..70).collect()]).unwrap())),
        };
        join(&mut known, load);
        assert_eq!(counts(&known), [("1", 3), ("4", 2)]);
        // A later read of a selection that was merged into another.
        let mut counted = CountedSelections::default();
        counted.count(&[100], &read(3, 1, 7), 2);
        assert!(counted.settle(&mut known));
        assert_eq!(counts(&known), [("1", 5), ("4", 2)]);
    }

    #[test]
    fn shapes_that_no_array_has_are_compared_with_none() {
        let points = |at: u64| {
            let lists = vec![vec![at, u64::MAX - 1], vec![7, u64::MAX - 1]];
            Selection::Points(Points::new(lists).unwrap())
        };
        let mut known = settled(&[(1, 9), (2, 8)]);
        known.all.iter_mut().for_each(|one| one.shape = vec![u64::MAX; 2]);
        join(&mut known, |one| Some(points(one.seconds.to_bits() % 5)));
        assert_eq!(counts(&known), [("1", 1), ("2", 1)]);
    }

    #[test]
    fn of_many_selections_those_that_took_least_are_forgotten() {
        let reads: Vec<(u64, u64)> = (1..10_000).map(|at| (at, at)).collect();
        let mut known = settled(&reads);
        assert!(known.all.len() <= COUNTED_MAX);
        join(&mut known, |_| None);
        assert_eq!(known.all.len(), SELECTIONS_MAX);
        assert_eq!(known.all[0].hash, digits_of(9_999));
    }

    #[test]
    fn what_runs_have_in_common_is_found() {
        let (a, b) = (runs_of(&[0, 1, 2, 7, 8, 20]), runs_of(&[2, 3, 7, 8, 9, 19, 20, 21]));
        assert_eq!(shared(&a, &b), [(2, 1), (7, 2), (20, 1)]);
        assert_eq!(shared(&b, &a), shared(&a, &b));
        assert_eq!((shared(&a, &[]), positions_in(&a)), (Vec::new(), 6));
    }
}
