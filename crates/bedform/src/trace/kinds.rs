//! Kinds of reads: repeated reads of an array, with their places and times.
//!
//! Reads with the same lengths and steps are one kind, at any place. A kind counts its places in 64
//! equal stretches of each axis, and keeps the box around them.

use bedform_format::trace::knowledge::{LearnedReadKind, LearnedReadKinds, STRETCHES};
use bedform_format::trace::{TracedAxis, TracedRead};
use bedform_geometry::Region;

/// The most kinds of an array; the kind with the least seconds is dropped.
const KINDS_MAX: usize = 64;

/// Returns the first position of a read along an axis, and its end, exclusive.
fn span(axis: &TracedAxis) -> (u64, u64) {
    let length = axis.count.saturating_sub(1).saturating_mul(axis.step.unsigned_abs());
    let first = if axis.step < 0 { axis.first.saturating_sub(length) } else { axis.first };
    (first, first.saturating_add(length).saturating_add(1))
}

/// Returns the stretch that contains position `at` of an axis of `length`.
fn bin_of(at: u64, length: u64) -> usize {
    let bin = u128::from(at) * u128::from(STRETCHES) / u128::from(length.max(1));
    usize::try_from(bin.min(u128::from(STRETCHES - 1))).unwrap_or(0)
}

/// Returns the first position of a stretch.
fn bin_start(bin: usize, length: u64) -> u64 {
    let start = (bin as u128 * u128::from(length)).div_ceil(u128::from(STRETCHES));
    u64::try_from(start).unwrap_or(u64::MAX).min(length)
}

/// Counts a read of an array of `shape`, which stands for `weight` reads.
pub(super) fn count_read(
    kinds: &mut LearnedReadKinds,
    shape: &[u64],
    read: &TracedRead,
    weight: u64,
) {
    if read.is_list || read.axes.len() != shape.len() || read.axes.is_empty() {
        return;
    }
    let counts = || read.axes.iter().map(|axis| axis.count);
    let step = |axis: &TracedAxis| if axis.count > 1 { axis.step.unsigned_abs() } else { 1 };
    let steps = || read.axes.iter().map(step);
    let is_same = |kind: &LearnedReadKind| {
        kind.counts.iter().copied().eq(counts()) && kind.steps.iter().copied().eq(steps())
    };
    // Searched from the end: the newest kind is the likeliest.
    let found = kinds.0.iter().rposition(is_same);
    let number = found.unwrap_or_else(|| {
        if kinds.0.len() >= KINDS_MAX {
            forget_least(kinds);
        }
        let (counts, steps) = (counts().collect(), steps().collect());
        kinds.0.push(LearnedReadKind { counts, steps, ..LearnedReadKind::default() });
        kinds.0.len() - 1
    });
    count_in(&mut kinds.0[number], shape, read, weight);
}

fn forget_least(kinds: &mut LearnedReadKinds) {
    let least = kinds.0.iter().enumerate().min_by(|a, b| a.1.seconds.total_cmp(&b.1.seconds));
    if let Some(number) = least.map(|(number, _)| number) {
        kinds.0.remove(number);
    }
}

fn count_in(kind: &mut LearnedReadKind, shape: &[u64], read: &TracedRead, weight: u64) {
    let spans: Vec<(u64, u64)> = read.axes.iter().map(span).collect();
    if kind.reads == 0 {
        kind.start = spans.iter().map(|span| span.0).collect();
        kind.end = spans.iter().map(|span| span.1).collect();
        kind.bins = vec![Vec::new(); shape.len()];
    }
    kind.reads = kind.reads.saturating_add(weight);
    kind.bytes = kind.bytes.saturating_add(read.bytes.saturating_mul(weight));
    kind.seconds += read.took_ns as f64 * 1e-9 * weight as f64;
    kind.last_ns = kind.last_ns.max(read.began_ns);
    for (axis, (first, end)) in spans.into_iter().enumerate() {
        kind.start[axis] = kind.start[axis].min(first);
        kind.end[axis] = kind.end[axis].max(end);
        let bins = &mut kind.bins[axis];
        bins.resize(usize::try_from(STRETCHES).unwrap_or(0), 0);
        let touched = bin_of(first, shape[axis])..=bin_of(end.saturating_sub(1), shape[axis]);
        bins[touched].iter_mut().for_each(|count| *count = count.saturating_add(weight));
    }
}

/// Returns the box around all reads of a kind, in an array of `shape`.
pub(crate) fn bounds(kind: &LearnedReadKind, shape: &[u64]) -> Option<Region> {
    let ends = kind.end.iter().zip(shape).map(|(end, length)| *end.min(length));
    let lengths = ends.zip(&kind.start).map(|(end, start)| end.checked_sub(*start));
    Region::new(kind.start.clone(), lengths.collect::<Option<Vec<_>>>()?).ok()
}

/// Returns the smallest box of whole stretches, within the bounds, that leaves out rarely read
/// stretches. Such a stretch has at most `1 - share` of the reads of the busiest stretch of its
/// axis.
pub(crate) fn hot_box(kind: &LearnedReadKind, shape: &[u64], share: f64) -> Option<Region> {
    let bounds = bounds(kind, shape)?;
    let (mut start, mut lengths) = (Vec::new(), Vec::new());
    for (axis, bins) in kind.bins.iter().enumerate() {
        let length = *shape.get(axis)?;
        let most = bins.iter().copied().max()?;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let least = ((1.0 - share) * most as f64) as u64;
        let first = bins.iter().position(|count| *count > least)?;
        let last = bins.iter().rposition(|count| *count > least)?;
        let low = bin_start(first, length).max(bounds.start()[axis]);
        let high = bin_start(last + 1, length).min(bounds.end(axis));
        start.push(low);
        lengths.push(high.checked_sub(low)?);
    }
    Region::new(start, lengths).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(axes: &[(u64, u64)]) -> TracedRead {
        TracedRead {
            stream: 0,
            computation: 0,
            began_ns: 7,
            took_ns: 1_000_000,
            bytes: 8,
            was_ahead: false,
            is_list: false,
            selection: 0,
            axes: axes.iter().map(|&(first, count)| TracedAxis { first, count, step: 1 }).collect(),
        }
    }

    #[test]
    fn reads_of_equal_lengths_are_one_kind_and_few_elsewhere_do_not_widen_its_hot_box() {
        let shape = [640, 320];
        let mut kinds = LearnedReadKinds::default();
        for at in 0..100 {
            count_read(&mut kinds, &shape, &read(&[(0, 640), (100 + at % 20, 1)]), 1);
        }
        count_read(&mut kinds, &shape, &read(&[(0, 640), (300, 1)]), 1);
        count_read(&mut kinds, &shape, &read(&[(3, 1), (0, 320)]), 2);
        assert_eq!(kinds.0.len(), 2);
        let series = &kinds.0[0];
        assert_eq!((series.reads, series.bytes), (101, 808));
        assert_eq!(bounds(series, &shape).unwrap(), Region::new([0, 100], [640, 201]).unwrap());
        assert_eq!(
            hot_box(series, &shape, 0.9).unwrap(),
            Region::new([0, 100], [640, 20]).unwrap()
        );
        assert_eq!(bounds(&kinds.0[1], &shape).unwrap(), Region::new([3, 0], [1, 320]).unwrap());
    }

    #[test]
    fn of_many_kinds_those_that_took_least_are_forgotten() {
        let mut kinds = LearnedReadKinds::default();
        for count in 1..=1000 {
            let mut one = read(&[(0, count)]);
            one.took_ns *= count;
            count_read(&mut kinds, &[1000], &one, 1);
        }
        assert_eq!(kinds.0.len(), KINDS_MAX);
        assert!(kinds.0.iter().any(|kind| kind.counts == [1000]));
    }
}
