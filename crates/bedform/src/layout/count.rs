//! Counts of the chunks that a read touches in a shard, and of the runs that they form.
//!
//! A read touches the same chunks in most of the shards along an axis. So an axis is a few
//! [`ShardPattern`]s, and the shards of an array are the combinations of one pattern for each axis.

use bedform_geometry::AxisSelection;
use smallvec::{SmallVec, smallvec};

/// The most combinations of patterns that are counted one by one.
const COMBINATIONS_MAX: usize = 1 << 8;
/// The most stretches along one axis, and the most points, that are told apart.
pub(super) const STRETCHES_MAX: usize = 1 << 12;

/// The chunks touched along one axis: sorted stretches, half-open, neither empty nor adjacent.
pub(super) type Stretches = SmallVec<[(u64, u64); 2]>;
/// The patterns of one axis. If a read is one stretch they are the first shard, those between, and
/// the last.
pub(super) type ShardPatterns = SmallVec<[ShardPattern; 3]>;
/// One value for each axis, inline for up to four axes: a search counts some ten thousand reads.
pub(super) type PerAxis<T> = SmallVec<[T; 4]>;

/// The chunks touched along one axis inside one shard, and the number of shards with the same ones.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ShardPattern {
    pub(super) touched: Stretches,
    /// Chunks of the shard along the axis that lie in the array.
    pub(super) present: u64,
    pub(super) shards: f64,
}

/// Chunks of one shard, merged into runs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ChunkRuns {
    pub(super) count: f64,
    /// Chunks in the runs, including those in merged gaps.
    pub(super) cells: f64,
}

/// Returns the chunks that hold stretches of elements.
pub(super) fn coarsen(stretches: &[(u64, u64)], chunk: u64) -> Stretches {
    let mut touched = Stretches::with_capacity(stretches.len());
    for &(start, end) in stretches {
        let (first, last) = (start / chunk, end.div_ceil(chunk));
        match touched.last_mut() {
            Some(previous) if first <= previous.1 => previous.1 = previous.1.max(last),
            _ => touched.push((first, last)),
        }
    }
    touched
}

pub(super) fn cells_in(stretches: &[(u64, u64)]) -> f64 {
    stretches.iter().map(|(start, end)| (end - start) as f64).sum()
}

/// Returns the elements selected along an axis, as stretches. Too many elements are replaced by the
/// stretch from the first to the last.
pub(super) fn stretches_of(axis: &AxisSelection) -> Stretches {
    let Some((lowest, highest)) = axis.bounds() else { return Stretches::new() };
    let bounds = smallvec![(lowest, highest + 1)];
    if axis.len() > STRETCHES_MAX as u64 || axis.len() == highest - lowest + 1 {
        return bounds;
    }
    let mut positions: Vec<u64> = (0..axis.len()).filter_map(|at| axis.get(at)).collect();
    positions.sort_unstable();
    positions.dedup();
    let elements: Vec<_> = positions.into_iter().map(|at| (at, at + 1)).collect();
    coarsen(&elements, 1)
}

/// Cuts stretches of chunks into shards of `inner` chunks, of `total` along the axis.
pub(super) fn patterns_of(stretches: &[(u64, u64)], inner: u64, total: u64) -> ShardPatterns {
    let mut patterns = ShardPatterns::new();
    // The shard in which the last stretch ended, and its touched chunks so far.
    let mut open: Option<(u64, Stretches)> = None;
    let mut close = |shard: u64, touched: Stretches, shards: f64| {
        let present = (total - shard * inner).min(inner);
        let same = |known: &&mut ShardPattern| known.present == present && known.touched == touched;
        match patterns.iter_mut().find(same) {
            Some(known) => known.shards += shards,
            None => patterns.push(ShardPattern { touched, present, shards }),
        }
    };
    for &(start, end) in stretches {
        let (first, last) = (start / inner, (end - 1) / inner);
        for shard in [first, last] {
            let origin = shard * inner;
            let inside =
                (start.max(origin) - origin, end.min(origin.saturating_add(inner)) - origin);
            match &mut open {
                Some((at, touched)) if *at == shard => {
                    if touched.last() != Some(&inside) {
                        touched.push(inside);
                    }
                }
                _ => {
                    if let Some((at, touched)) = open.replace((shard, smallvec![inside])) {
                        close(at, touched, 1.0);
                    }
                }
            }
        }
        if last - first > 1 {
            close(first + 1, smallvec![(0, inner)], (last - first - 1) as f64);
        }
    }
    if let Some((at, touched)) = open {
        close(at, touched, 1.0);
    }
    patterns
}

/// Calls `visit` for each combination of one pattern for each axis, with the number of shards that
/// have it. If there are too many, axes are thinned to their most frequent pattern.
pub(super) fn for_each_combination(
    patterns: &[ShardPatterns],
    mut visit: impl FnMut(&[&ShardPattern], f64),
) {
    let mut axes: PerAxis<SmallVec<[(&ShardPattern, f64); 3]>> = patterns
        .iter()
        .map(|axis| axis.iter().map(|pattern| (pattern, pattern.shards)).collect())
        .collect();
    let count = |axes: &[SmallVec<_>]| {
        axes.iter().fold(1_usize, |count, axis| count.saturating_mul(axis.len()))
    };
    while count(&axes) > COMBINATIONS_MAX {
        let Some(longest) = axes.iter_mut().max_by_key(|axis| axis.len()) else { break };
        let all: f64 = longest.iter().map(|(_, shards)| shards).sum();
        let most = longest.iter().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(pattern, _)| *pattern);
        *longest = most.map(|pattern| (pattern, all)).into_iter().collect();
    }
    let combinations = count(&axes);
    let mut chosen = PerAxis::with_capacity(axes.len());
    for number in 0..combinations {
        let (mut rest, mut shards) = (number, 1.0);
        chosen.clear();
        for axis in &axes {
            let (pattern, count) = axis[rest % axis.len()];
            rest /= axis.len();
            shards *= count;
            chosen.push(pattern);
        }
        visit(&chosen, shards);
    }
}

/// Returns the runs in row-major order, or column-major if `reversed`, in closed form. From the
/// fastest axis outwards, the chunks touched so far repeat at the stride of the next axis.
pub(super) fn runs_in_rows(
    combination: &[&ShardPattern],
    gap_max: u64,
    reversed: bool,
) -> ChunkRuns {
    let mut runs = ChunkRuns { count: 1.0, cells: 1.0 };
    // The cells from the first touched one to behind the last, and the cells of one step of the
    // next axis.
    let (mut span, mut stride) = (1_u64, 1_u64);
    for number in 0..combination.len() {
        let axis = if reversed { number } else { combination.len() - 1 - number };
        let ShardPattern { touched, present, .. } = combination[axis];
        let repeats = cells_in(touched);
        let mut merged = (0.0, 0.0);
        let mut join = |steps: u64, times: f64| {
            let gap = steps.saturating_mul(stride).saturating_sub(span);
            if gap <= gap_max && times > 0.0 {
                merged = (merged.0 + times, merged.1 + times * gap as f64);
            }
        };
        touched.iter().for_each(|(start, end)| join(1, (end - start - 1) as f64));
        touched.windows(2).for_each(|pair| join(pair[1].0 - (pair[0].1 - 1), 1.0));
        runs.count = repeats * runs.count - merged.0;
        runs.cells = repeats * runs.cells + merged.1;
        let length =
            touched.last().map_or(0, |last| last.1 - 1) - touched.first().map_or(0, |f| f.0);
        span = span.saturating_add(length.saturating_mul(stride));
        stride = stride.saturating_mul(*present);
    }
    runs
}

/// Returns the runs of the touched chunks along a curve; `places` holds every chunk's place on it.
pub(super) fn runs_on_curve(
    places: &[u64],
    grid: &[u64],
    combination: &[&ShardPattern],
    gap_max: u64,
) -> ChunkRuns {
    let mut cells = vec![0_u64];
    for (pattern, &size) in combination.iter().zip(grid) {
        let along = pattern.touched.iter().flat_map(|&(start, end)| start..end);
        let along: Vec<u64> = along.collect();
        cells =
            cells.iter().flat_map(|cell| along.iter().map(move |at| cell * size + at)).collect();
    }
    let mut touched: Vec<u64> = cells
        .into_iter()
        .filter_map(|cell| places.get(usize::try_from(cell).ok()?).copied())
        .collect();
    touched.sort_unstable();
    let mut runs = ChunkRuns { count: 1.0, cells: touched.len() as f64 };
    for pair in touched.windows(2) {
        let gap = pair[1] - pair[0] - 1;
        if gap <= gap_max {
            runs.cells += gap as f64;
        } else {
            runs.count += 1.0;
        }
    }
    runs
}

/// Returns, for each cell of `grid` in C order, its number among the present cells along
/// `sequence`.
pub(super) fn places_of(sequence: &[u64], grid: &[u64], present: &[u64]) -> Vec<u64> {
    let mut places = vec![u64::MAX; sequence.len()];
    let mut next = 0;
    for &cell in sequence {
        let mut rest = cell;
        let mut inside = true;
        for (size, limit) in grid.iter().zip(present).rev() {
            inside &= rest % size < *limit;
            rest /= size;
        }
        if let (true, Ok(cell)) = (inside, usize::try_from(cell)) {
            places[cell] = next;
            next += 1;
        }
    }
    places
}
