//! The elements that a selection takes of one chunk, as an index space of its own.
//!
//! Element `(a, b, ..)` of a part is at the `a`-th of the positions that the selection takes along
//! the chunk's first axis, and so on. Points have one axis, their number. Boxes of this space are
//! *ranges*: the first index and the count for each axis. So the elements in a box of the array can
//! be found, noted in a [`Mask`](super::mask::Mask) and copied alike for all selections.

use bedform_geometry::{AxisRange, Positions};

use crate::plan::copy::{Axis, Copy};
use crate::plan::numbers::{index, signed};

/// The first index and the count along each axis of a part.
pub(crate) type Ranges = Vec<(u64, u64)>;

/// Some elements of a chunk, and their places in the result.
#[derive(Debug)]
pub(crate) enum ChunkPart<'p> {
    /// All combinations of positions along the axes.
    Box {
        /// One entry for each axis of the chunk.
        axes: Vec<PartAxis<'p>>,
        /// Offset in bytes in the result to which the axes' offsets are added.
        target_start: i64,
    },
    /// Single elements.
    Points {
        /// For each axis of the chunk, the positions of all points.
        inside: Vec<Vec<u64>>,
        /// The offsets in bytes of the points in the result.
        targets: Vec<i64>,
    },
}

/// Positions along one axis of a chunk, and their positions in the result.
#[derive(Debug)]
pub(crate) struct PartAxis<'p> {
    /// Positions from the chunk's start.
    pub(crate) inside: &'p Positions,
    pub(crate) result: &'p Positions,
    /// Bytes between neighbouring positions of the result.
    pub(crate) target_stride: i64,
}

/// Positions along one axis of a chunk that are evenly spaced in the chunk and in the result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RegularAxis {
    pub(crate) inside: AxisRange,
    pub(crate) result: AxisRange,
    pub(crate) target_stride: i64,
}

/// The place of a part's elements in a source: position `p` of an axis lies `p * stride` bytes
/// after `start`, which may itself lie outside the source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin<'s> {
    pub(crate) start: i64,
    pub(crate) strides: &'s [i64],
}

impl ChunkPart<'_> {
    /// Returns the lengths of the index space.
    pub(crate) fn shape(&self) -> Vec<u64> {
        match self {
            Self::Box { axes, .. } => axes.iter().map(|axis| axis.inside.len()).collect(),
            Self::Points { targets, .. } => vec![targets.len() as u64],
        }
    }

    /// Returns the smallest box of the chunk that holds all elements: start, and end, exclusive.
    /// `None` if there are none.
    pub(crate) fn bounds(&self) -> Option<(Vec<u64>, Vec<u64>)> {
        let of_list = |list: &[u64]| {
            let low = list.iter().min()?;
            Some((*low, list.iter().max()? + 1))
        };
        let of_axis = |positions: &Positions| match positions {
            Positions::List(list) => of_list(list),
            Positions::Range(range) => {
                let last = range.get(range.len().checked_sub(1)?)?;
                Some((range.start().min(last), range.start().max(last) + 1))
            }
        };
        match self {
            Self::Box { axes, .. } => axes.iter().map(|axis| of_axis(axis.inside)).collect(),
            Self::Points { targets, .. } if targets.is_empty() => None,
            Self::Points { inside, .. } => inside.iter().map(|list| of_list(list)).collect(),
        }
    }

    /// Returns the axes and the first offset in the result, if all positions are evenly spaced.
    pub(crate) fn regular(&self) -> Option<(Vec<RegularAxis>, i64)> {
        let Self::Box { axes, target_start } = self else { return None };
        let of_axis = |axis: &PartAxis<'_>| match (axis.inside, axis.result) {
            (Positions::Range(inside), Positions::Range(result)) => {
                let target_stride = axis.target_stride;
                Some(RegularAxis { inside: *inside, result: *result, target_stride })
            }
            _ => None,
        };
        Some((axes.iter().map(of_axis).collect::<Option<_>>()?, *target_start))
    }

    /// Visits the elements in the box of the chunk from `low` to `high`, exclusive, as ranges, each
    /// element once.
    pub(crate) fn clip(&self, low: &[u64], high: &[u64], mut visit: impl FnMut(&Ranges)) {
        match self {
            Self::Box { axes, .. } => {
                let mut runs: Vec<Vec<(u64, u64)>> = Vec::with_capacity(axes.len());
                for (at, axis) in axes.iter().enumerate() {
                    let found = runs_within(axis.inside, low[at], high[at]);
                    if found.is_empty() {
                        return;
                    }
                    runs.push(found);
                }
                for_each_combination(&runs, &mut visit);
            }
            Self::Points { inside, targets } => {
                let is_within = |point: usize| {
                    inside.iter().enumerate().all(|(axis, list)| {
                        list.get(point).is_some_and(|at| (low[axis]..high[axis]).contains(at))
                    })
                };
                for_each_run(targets.len(), is_within, |run| visit(&vec![run]));
            }
        }
    }

    /// Returns the copy of the elements of `ranges` from a source to the result; axes of one
    /// element are dropped.
    pub(crate) fn copy(&self, ranges: &Ranges, origin: Origin<'_>) -> Copy {
        let mut copy = Copy { source_start: origin.start, ..Copy::default() };
        match self {
            Self::Box { axes, target_start } => {
                copy.target_start = *target_start;
                for ((axis, range), stride) in axes.iter().zip(ranges).zip(origin.strides) {
                    push_axis(&mut copy, axis, *range, *stride);
                }
            }
            Self::Points { inside, targets } => {
                let (first, count) = ranges.first().copied().unwrap_or((0, 0));
                let source = |point: usize| -> i64 {
                    let axes = inside.iter().zip(origin.strides);
                    axes.map(|(list, stride)| signed(list[point]) * stride).sum()
                };
                let points = index(first)..index(first + count);
                let offsets = points.map(|point| (source(point), targets[point])).collect();
                copy.axes.push(Axis::Table { offsets, target_step: 1 });
            }
        }
        copy
    }
}

fn push_axis(copy: &mut Copy, axis: &PartAxis<'_>, (first, count): (u64, u64), stride: i64) {
    match (axis.inside, axis.result) {
        (Positions::Range(inside), Positions::Range(result)) => {
            let place = |range: &AxisRange| signed(range.get(first).unwrap_or(range.start()));
            copy.source_start += place(inside) * stride;
            copy.target_start += place(result) * axis.target_stride;
            if count != 1 {
                copy.axes.push(Axis::Even {
                    source_step: inside.step() * stride,
                    target_step: result.step() * axis.target_stride,
                    count,
                });
            }
        }
        (inside, result) => {
            let place = |at: u64| {
                let (from, to) = inside.get(at).zip(result.get(at)).unwrap_or_default();
                (signed(from) * stride, signed(to) * axis.target_stride)
            };
            if count == 1 {
                let (from, to) = place(first);
                copy.source_start += from;
                copy.target_start += to;
            } else {
                let offsets = (first..first + count).map(place).collect();
                copy.axes.push(Axis::Table { offsets, target_step: axis.target_stride });
            }
        }
    }
}

/// Returns the runs of indices whose positions are at least `low` and less than `high`.
fn runs_within(positions: &Positions, low: u64, high: u64) -> Vec<(u64, u64)> {
    match positions {
        Positions::Range(range) => range_within(range, low, high).into_iter().collect(),
        Positions::List(list) => {
            let mut runs = Vec::new();
            let is_within = |at: usize| (low..high).contains(&list[at]);
            for_each_run(list.len(), is_within, |run| runs.push(run));
            runs
        }
    }
}

/// Returns the first index and the count of the positions that are at least `low` and less than
/// `high`.
pub(crate) fn range_within(range: &AxisRange, low: u64, high: u64) -> Option<(u64, u64)> {
    let (start, step) = (range.start(), range.step().unsigned_abs().max(1));
    // The first index at or past the near bound, and the first past the far bound.
    let (first, end) = match range.step() < 0 {
        false => (
            low.saturating_sub(start).div_ceil(step),
            match high > start {
                true => (high - start).div_ceil(step),
                false => 0,
            },
        ),
        true => (
            match start >= high {
                true => (start - high) / step + 1,
                false => 0,
            },
            match start >= low {
                true => (start - low) / step + 1,
                false => 0,
            },
        ),
    };
    let end = end.min(range.len());
    (first < end).then(|| (first, end - first))
}

fn for_each_run(count: usize, holds: impl Fn(usize) -> bool, mut visit: impl FnMut((u64, u64))) {
    let mut at = 0;
    while at < count {
        let end = (at..count).find(|at| !holds(*at)).unwrap_or(count);
        if end > at {
            visit((at as u64, (end - at) as u64));
        }
        at = end + 1;
    }
}

fn for_each_combination(runs: &[Vec<(u64, u64)>], visit: &mut impl FnMut(&Ranges)) {
    let mut at = vec![0_usize; runs.len()];
    let mut chosen: Ranges = runs.iter().map(|runs| runs[0]).collect();
    loop {
        visit(&chosen);
        let mut axis = runs.len();
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            at[axis] += 1;
            if at[axis] < runs[axis].len() {
                chosen[axis] = runs[axis][at[axis]];
                break;
            }
            at[axis] = 0;
            chosen[axis] = runs[axis][0];
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::part::*;

    fn within(start: u64, step: i64, len: u64, low: u64, high: u64) -> Vec<u64> {
        let range = AxisRange::new(start, step, len).unwrap();
        let (first, count) = range_within(&range, low, high).unwrap_or((0, 0));
        (first..first + count).map(|at| range.get(at).unwrap()).collect()
    }

    #[test]
    fn the_indexes_within_a_box_are_those_whose_positions_are() {
        for (start, step, len) in
            [(0, 1, 9), (2, 3, 3), (8, -1, 9), (7, -3, 3), (4, 1, 1), (5, -2, 1)]
        {
            let range = AxisRange::new(start, step, len).unwrap();
            for low in 0..10 {
                for high in low..11 {
                    let expected: Vec<u64> = (0..len)
                        .filter_map(|at| range.get(at))
                        .filter(|at| (low..high).contains(at))
                        .collect();
                    assert_eq!(within(start, step, len, low, high), expected, "{range:?} {low}");
                }
            }
        }
    }
}
