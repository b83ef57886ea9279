//! The order of boxes along a curve through a virtual grid (dissertation of Tang, section 4.2.2,
//! "SFC approach").
//!
//! The unit of the virtual grid is the average size of the boxes, on each axis rounded to whole
//! cells; its origin is the lowest cell of all boxes. A box is mapped to the unit that it overlaps
//! most. If several units tie, a box goes to the one with most boxes in it and in the units that
//! share a face with it; then, to the first in C order. For this count, each other box that
//! ties counts in the middle one of its tied units. Boxes of the same unit follow each other by
//! their starts.
//!
//! The dissertation defines neither the count nor the order after a second tie. Two bounds are
//! added here: of the tied units of a box at most [`TIED_UNITS_MAX`] in its middle are compared,
//! and the unit is doubled along the longest axis until the keys of the curve fit into 128 bits.

use std::collections::HashMap;

use crate::box_tiles::ListedBounds;
use crate::boxes::CellBox;
use crate::curve::{Curve, CurveKind};
use crate::error::GeometryError;

/// The number of tied units that are compared for one box.
const TIED_UNITS_MAX: u64 = 64;

/// The number of units for each box up to which all units are counted in one list.
const DENSE_UNITS_PER_BOX: usize = 8;

/// The bits of the keys of a curve.
const KEY_BITS: u32 = 128;

/// Returns the numbers of boxes in the order of a curve.
pub(super) fn curve_order(
    kind: CurveKind,
    boxes: ListedBounds<'_>,
) -> Result<Vec<u32>, GeometryError> {
    if boxes.len() == 0 {
        return Ok(Vec::new());
    }
    let grid = VirtualGrid::new(boxes);
    let curve = Curve::new(kind, &grid.bits)?;
    let units = grid.units_of(boxes);
    let keys = units.chunks_exact(boxes.rank()).map(|unit| curve.index(unit));
    let mut keyed: Vec<(u128, u32)> = keys.zip(boxes.numbers()).collect();
    keyed.sort_unstable_by(|(key, number), (other_key, other)| {
        let bounds = |number| {
            let cells = boxes.get(number);
            (cells.start, cells.stop, number)
        };
        key.cmp(other_key).then_with(|| bounds(*number).cmp(&bounds(*other)))
    });
    Ok(keyed.into_iter().map(|(_, number)| number).collect())
}

/// A grid whose units are about as large as the average box.
#[derive(Debug)]
struct VirtualGrid {
    origin: Vec<i64>,
    /// The cells of a unit along each axis.
    unit: Vec<u64>,
    /// The last unit along each axis.
    last: Vec<u64>,
    /// The distance of neighbours along each axis in the C order of all units.
    strides: Vec<u128>,
    /// The bits that the units take along each axis; at most [`KEY_BITS`] in all.
    bits: Vec<u32>,
}

/// The units that a box overlaps most along one axis: all that tie.
#[derive(Debug, Clone, Copy)]
struct TiedUnits {
    first: u64,
    last: u64,
}

impl VirtualGrid {
    /// Makes the grid of a list that is not empty.
    fn new(boxes: ListedBounds<'_>) -> Self {
        let rank = boxes.rank();
        let (mut origin, mut end) = (vec![i64::MAX; rank], vec![i64::MIN; rank]);
        let mut lengths = vec![0_u128; rank];
        for cells in boxes.numbers().map(|number| boxes.get(number)) {
            for axis in 0..rank {
                origin[axis] = origin[axis].min(cells.start[axis]);
                end[axis] = end[axis].max(cells.stop[axis]);
                lengths[axis] += u128::from(cells.stop[axis].abs_diff(cells.start[axis]));
            }
        }
        let count = boxes.len() as u128;
        let mean = |length: &u128| u64::try_from((length + count / 2) / count).unwrap_or(u64::MAX);
        let mut unit: Vec<u64> = lengths.iter().map(|length| mean(length).max(1)).collect();
        let last_of = |axis: usize, unit: u64| (end[axis].abs_diff(origin[axis]) - 1) / unit;
        let mut last: Vec<u64> = (0..rank).map(|axis| last_of(axis, unit[axis])).collect();
        let bits_of = |last: u64| u64::BITS - last.leading_zeros();
        let mut bits: Vec<u32> = last.iter().map(|&last| bits_of(last)).collect();
        while bits.iter().sum::<u32>() > KEY_BITS {
            let longest = (0..rank).rev().max_by_key(|&axis| bits[axis]).unwrap_or(0);
            unit[longest] = unit[longest].saturating_mul(2);
            last[longest] = last_of(longest, unit[longest]);
            bits[longest] = bits_of(last[longest]);
        }
        let mut strides = vec![1_u128; rank];
        for axis in (1..rank).rev() {
            // The product overflows only beyond the last axis that has two units.
            let size = u128::from(last[axis]) + 1;
            strides[axis - 1] = strides[axis].checked_mul(size).unwrap_or(0);
        }
        Self { origin, unit, last, strides, bits }
    }

    /// Returns the unit of each box: its coordinates, one box after the other.
    fn units_of(&self, boxes: ListedBounds<'_>) -> Vec<u64> {
        let rank = boxes.rank();
        let mut units = Vec::with_capacity(boxes.len() * rank);
        let mut tied = Vec::new();
        for number in boxes.numbers() {
            let mut is_tied = false;
            for axis in 0..rank {
                let TiedUnits { first, last } = self.tied_along(axis, boxes.get(number));
                is_tied |= first < last;
                units.push(first + (last - first) / 2);
            }
            if is_tied {
                tied.push(number);
            }
        }
        if !tied.is_empty() {
            let mut counts = UnitCounts::new(self.unit_count(), boxes.len());
            for unit in units.chunks_exact(rank) {
                counts.increment(self.position(unit));
            }
            for number in tied {
                let unit = &mut units[number as usize * rank..(number as usize + 1) * rank];
                let best = self.best_unit(boxes.get(number), unit, &counts);
                unit.copy_from_slice(&best);
            }
        }
        units
    }

    /// Returns the units that a box overlaps most along an axis. These are consecutive: the inner
    /// units of a long box, or one or both of two.
    fn tied_along(&self, axis: usize, cells: CellBox<'_>) -> TiedUnits {
        let unit = self.unit[axis];
        let low = cells.start[axis].abs_diff(self.origin[axis]);
        let high = cells.stop[axis].abs_diff(self.origin[axis]) - 1;
        let (first, last) = (low / unit, high / unit);
        let (in_first, in_last) = (unit - low % unit, high % unit + 1);
        match last - first {
            0 => TiedUnits { first, last },
            1 if in_first > in_last => TiedUnits { first, last: first },
            1 if in_first < in_last => TiedUnits { first: last, last },
            1 => TiedUnits { first, last },
            _ => TiedUnits {
                first: first + u64::from(in_first < unit),
                last: last - u64::from(in_last < unit),
            },
        }
    }

    /// Returns the tied unit of a box with most other boxes in it and at its faces. The box counts
    /// in the unit `counted`.
    fn best_unit(&self, cells: CellBox<'_>, counted: &[u64], counts: &UnitCounts) -> Vec<u64> {
        let mut ranges: Vec<TiedUnits> =
            (0..self.unit.len()).map(|axis| self.tied_along(axis, cells)).collect();
        narrow(&mut ranges);
        let mut unit: Vec<u64> = ranges.iter().map(|range| range.first).collect();
        let mut best = (self.neighbours(&unit, counted, counts), unit.clone());
        while advance(&mut unit, &ranges) {
            let neighbours = self.neighbours(&unit, counted, counts);
            if neighbours > best.0 {
                best = (neighbours, unit.clone());
            }
        }
        best.1
    }

    /// Counts the boxes in a unit and in those that share a face with it, without the box that
    /// counts in the unit `counted`.
    fn neighbours(&self, unit: &[u64], counted: &[u64], counts: &UnitCounts) -> u64 {
        let position = self.position(unit);
        let mut total = counts.of(position);
        for (axis, &stride) in self.strides.iter().enumerate() {
            if unit[axis] > 0 {
                total += counts.of(position - stride);
            }
            if unit[axis] < self.last[axis] {
                total += counts.of(position + stride);
            }
        }
        let apart = unit.iter().zip(counted).map(|(a, b)| a.abs_diff(*b).min(2)).sum::<u64>();
        total - u64::from(apart <= 1)
    }

    /// Returns the position of a unit in C order.
    fn position(&self, unit: &[u64]) -> u128 {
        unit.iter().zip(&self.strides).map(|(&at, stride)| u128::from(at) * stride).sum()
    }

    /// Returns the number of units; `None` if 128 bits cannot hold it.
    fn unit_count(&self) -> Option<u128> {
        self.last.iter().try_fold(1_u128, |count, &last| count.checked_mul(u128::from(last) + 1))
    }
}

/// The number of boxes in each unit.
enum UnitCounts {
    /// For all units, where they are few.
    Dense(Vec<u32>),
    /// For units with boxes.
    Sparse(HashMap<u128, u32>),
}

impl UnitCounts {
    /// Makes the counts of `boxes` boxes in a grid of `units` units.
    fn new(units: Option<u128>, boxes: usize) -> Self {
        let dense = units.and_then(|units| usize::try_from(units).ok());
        match dense.filter(|&units| units / DENSE_UNITS_PER_BOX <= boxes) {
            Some(units) => Self::Dense(vec![0; units]),
            None => Self::Sparse(HashMap::with_capacity(boxes)),
        }
    }

    fn increment(&mut self, position: u128) {
        match self {
            Self::Dense(counts) => {
                if let Some(count) =
                    usize::try_from(position).ok().and_then(|at| counts.get_mut(at))
                {
                    *count += 1;
                }
            }
            Self::Sparse(counts) => *counts.entry(position).or_default() += 1,
        }
    }

    fn of(&self, position: u128) -> u64 {
        let count = match self {
            Self::Dense(counts) => usize::try_from(position).ok().and_then(|at| counts.get(at)),
            Self::Sparse(counts) => counts.get(&position),
        };
        count.copied().unwrap_or(0).into()
    }
}

/// Narrows ranges to their middle until they have at most [`TIED_UNITS_MAX`] units together. The
/// widest range is halved first.
fn narrow(ranges: &mut [TiedUnits]) {
    let width = |range: &TiedUnits| range.last - range.first;
    let count = |ranges: &[TiedUnits]| {
        ranges
            .iter()
            .fold(1_u64, |count, range| count.saturating_mul(width(range).saturating_add(1)))
    };
    while count(ranges) > TIED_UNITS_MAX {
        let Some(widest) = ranges.iter_mut().rev().max_by_key(|range| width(range)) else { return };
        let quarter = (width(widest) + 1) / 4;
        widest.first += quarter;
        widest.last -= quarter.max(1);
    }
}

/// Moves a unit to the next one of the ranges in C order; returns false after the last.
fn advance(unit: &mut [u64], ranges: &[TiedUnits]) -> bool {
    for (at, range) in unit.iter_mut().zip(ranges).rev() {
        if *at < range.last {
            *at += 1;
            return true;
        }
        *at = range.first;
    }
    false
}
