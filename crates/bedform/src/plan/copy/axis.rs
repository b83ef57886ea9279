//! One axis of a copy: the offsets of its positions in the source and in the target.

use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::plan::numbers::{index, signed};

/// One axis of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Axis {
    /// Evenly spaced in source and target.
    Even { source_step: i64, target_step: i64, count: u64 },
    /// Listed positions in the source, counted from the first of them, and evenly spaced in the
    /// target.
    List { positions: SharedPositions, source_step: i64, target_step: i64 },
    /// Offsets in bytes from the start, in source and target.
    Table { offsets: Vec<(i64, i64)>, target_step: i64 },
}

/// A non-empty run of entries of a list of positions. The list is shared, so that the copies of a
/// read of millions of listed elements use no memory for each element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SharedPositions {
    list: Arc<Vec<u64>>,
    numbers: Range<usize>,
    /// The lowest and the highest position.
    bounds: (u64, u64),
    ascends: bool,
}

impl SharedPositions {
    /// Takes all positions of a list; `None` for an empty list.
    pub(super) fn new(list: &Arc<Vec<u64>>) -> Option<Self> {
        let (ascends, numbers) = (list.is_sorted(), 0..list.len());
        Self { list: list.clone(), numbers, bounds: (0, 0), ascends }.bounded()
    }

    fn bounded(mut self) -> Option<Self> {
        let all = self.as_slice();
        let (low, high) = match self.ascends {
            true => (all.first()?, all.last()?),
            false => (all.iter().min()?, all.iter().max()?),
        };
        self.bounds = (*low, *high);
        Some(self)
    }

    /// Returns the positions.
    pub(crate) fn as_slice(&self) -> &[u64] {
        &self.list[self.numbers.clone()]
    }

    /// Returns true if no position is below the one before.
    pub(crate) fn ascends(&self) -> bool {
        self.ascends
    }

    pub(super) fn first(&self) -> u64 {
        self.as_slice().first().copied().unwrap_or(0)
    }

    /// Returns the entries with these numbers; `None` if there are none.
    pub(super) fn slice(&self, numbers: Range<usize>) -> Option<Self> {
        let (from, end) = (self.numbers.start + numbers.start, self.numbers.start + numbers.end);
        let numbers = from.min(self.numbers.end)..end.min(self.numbers.end);
        Self { numbers, ..self.clone() }.bounded()
    }

    /// Returns the lowest and highest offset from the first position.
    fn reach(&self, step: i64) -> (i64, i64) {
        let first = signed(self.first());
        let place = |at: u64| (signed(at) - first).saturating_mul(step);
        let (one, other) = (place(self.bounds.0), place(self.bounds.1));
        (one.min(other), one.max(other))
    }
}

impl Axis {
    /// Returns the number of positions.
    pub(crate) fn count(&self) -> u64 {
        match self {
            Self::Even { count, .. } => *count,
            Self::List { positions, .. } => positions.as_slice().len() as u64,
            Self::Table { offsets, .. } => offsets.len() as u64,
        }
    }

    /// Returns the offsets of position number `at` in source and target.
    pub(crate) fn offset(&self, at: u64) -> (i64, i64) {
        match self {
            Self::Even { source_step, target_step, .. } => {
                (source_step * signed(at), target_step * signed(at))
            }
            Self::List { positions, source_step, target_step } => {
                let all = positions.as_slice();
                let place = all.get(index(at)).copied().unwrap_or(positions.first());
                let from = signed(place) - signed(positions.first());
                (from * source_step, target_step * signed(at))
            }
            Self::Table { offsets, .. } => offsets.get(index(at)).copied().unwrap_or_default(),
        }
    }

    /// Returns the axis of the positions with these numbers, counted from the first of them.
    pub(crate) fn slice(&self, numbers: Range<u64>) -> Self {
        let count = numbers.end.saturating_sub(numbers.start);
        match self {
            Self::Even { source_step, target_step, .. } => {
                Self::Even { source_step: *source_step, target_step: *target_step, count }
            }
            Self::List { positions, source_step, target_step } => {
                let (source_step, target_step) = (*source_step, *target_step);
                match positions.slice(index(numbers.start)..index(numbers.end)) {
                    Some(positions) => Self::List { positions, source_step, target_step },
                    None => Self::Even { source_step, target_step, count: 0 },
                }
            }
            Self::Table { offsets, target_step } => {
                let part = &offsets[index(numbers.start)..index(numbers.end)];
                let (from, to) = part.first().copied().unwrap_or_default();
                let offsets = part.iter().map(|pair| (pair.0 - from, pair.1 - to)).collect();
                Self::Table { offsets, target_step: *target_step }
            }
        }
    }

    /// Converts a list into a table; other axes stay as they are.
    pub(crate) fn into_table(self) -> Self {
        match self {
            Self::List { target_step, .. } => Self::Table {
                offsets: (0..self.count()).map(|at| self.offset(at)).collect(),
                target_step,
            },
            other => other,
        }
    }

    /// Returns true if the elements are contiguous in source and target.
    pub(super) fn is_contiguous(&self, item: usize) -> bool {
        let item = i64::try_from(item).unwrap_or(i64::MAX);
        matches!(self, Self::Even { source_step, target_step, .. } if (*source_step, *target_step) == (item, item))
    }

    /// Returns this axis and the next inner one as a single axis, if they continue each other.
    pub(super) fn fused(&self, inner: &Self) -> Option<Self> {
        let &Self::Even { source_step: wide, target_step: wide_target, count: outer } = self else {
            return None;
        };
        let &Self::Even { source_step, target_step, count } = inner else { return None };
        let length = signed(count);
        let continues = source_step.checked_mul(length) == Some(wide)
            && target_step.checked_mul(length) == Some(wide_target);
        continues.then(|| Self::Even { source_step, target_step, count: outer * count })
    }

    pub(super) fn target_step(&self) -> i64 {
        match self {
            Self::Even { target_step, .. }
            | Self::List { target_step, .. }
            | Self::Table { target_step, .. } => *target_step,
        }
    }

    /// Returns the lowest and highest offset in the source, and in the target.
    pub(crate) fn reach(&self) -> [(i64, i64); 2] {
        match self {
            Self::Even { source_step, target_step, count } => {
                let last = i64::try_from(count.saturating_sub(1)).unwrap_or(i64::MAX);
                [*source_step, *target_step].map(|step| {
                    let end = step.saturating_mul(last);
                    (end.min(0), end.max(0))
                })
            }
            Self::List { positions, source_step, target_step } => {
                let end = target_step.saturating_mul(signed(self.count().saturating_sub(1)));
                [positions.reach(*source_step), (end.min(0), end.max(0))]
            }
            Self::Table { offsets, .. } => {
                let range = |pick: fn(&(i64, i64)) -> i64| {
                    let low = offsets.iter().map(pick).min().unwrap_or(0);
                    (low, offsets.iter().map(pick).max().unwrap_or(0))
                };
                [range(|pair| pair.0), range(|pair| pair.1)]
            }
        }
    }
}

/// Calls `act` with the offsets in source and target of each position of `axes`.
pub(super) fn for_each_place(
    axes: &[Axis],
    source: i64,
    target: i64,
    act: &mut dyn FnMut(i64, i64) -> Result<()>,
) -> Result<()> {
    let Some((first, rest)) = axes.split_first() else { return act(source, target) };
    match first {
        Axis::Even { source_step, target_step, count } => {
            let (mut source, mut target) = (source, target);
            for _ in 0..*count {
                for_each_place(rest, source, target, act)?;
                source = source.saturating_add(*source_step);
                target = target.saturating_add(*target_step);
            }
        }
        Axis::List { .. } => {
            for (from, to) in (0..first.count()).map(|at| first.offset(at)) {
                for_each_place(rest, source + from, target + to, act)?;
            }
        }
        Axis::Table { offsets, .. } => {
            for (from, to) in offsets {
                for_each_place(rest, source + from, target + to, act)?;
            }
        }
    }
    Ok(())
}
