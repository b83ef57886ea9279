//! Collectors of counts and of statistics of values, of all matches or along dimensions.
//!
//! A statistic "over" some dimensions has an entry for each position along the others. A block is
//! reduced to a small box of entries, and these boxes are merged in the order of the blocks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use bedform_geometry::element_count;
use bedform_query::{ValueSlice, Values};

use super::frame::{BlockBox, Frame};
use super::rows::{for_each_row, row_length};
use super::scan::{Collector, MatchedBlock};
use crate::error::{Error, ErrorKind, Result};

/// The most entries of a statistic.
const ENTRIES_MAX: u64 = 1 << 28;

/// The dimensions that a statistic keeps.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    /// True for each dimension of the frame that is kept.
    axes: Vec<bool>,
    /// The start of the region along the kept dimensions, and its shape.
    start: Vec<u64>,
    pub(super) shape: Vec<u64>,
}

impl Kept {
    /// Keeps all dimensions but those in `over`; none without a list.
    ///
    /// # Errors
    /// `InvalidArgument` for a dimension that the query lacks; `LimitExceeded`.
    pub(super) fn new(frame: &Frame, over: Option<&[String]>) -> Result<Self> {
        let mut axes = vec![over.is_some(); frame.dims.len()];
        for dim in over.unwrap_or_default() {
            axes[frame.axis(dim)?] = false;
        }
        let kept = |of: &[u64]| -> Vec<u64> {
            of.iter().zip(&axes).filter(|(_, kept)| **kept).map(|(length, _)| *length).collect()
        };
        let (start, shape) = (kept(frame.region.start()), kept(frame.region.shape()));
        if element_count(&shape).is_none_or(|count| count > ENTRIES_MAX) {
            return Err(Error::new(
                ErrorKind::LimitExceeded,
                format!("the result has more than {ENTRIES_MAX} entries; reduce more dimensions"),
            ));
        }
        Ok(Self { axes, start, shape })
    }

    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        element_count(&self.shape).and_then(|count| usize::try_from(count).ok()).unwrap_or(0)
    }

    fn of_block(&self, bounds: &BlockBox) -> BlockBox {
        let kept = |of: &[u64]| -> Vec<u64> {
            let axes = of.iter().zip(&self.axes);
            axes.filter(|(_, kept)| **kept).map(|(length, _)| *length).collect()
        };
        BlockBox { start: kept(&bounds.start), shape: kept(&bounds.shape) }
    }

    /// Calls `act` with each run of elements of a block: the first element, their number, the entry
    /// of the first one among those of the block, and the step from entry to entry: 0 or 1.
    fn for_each_run(&self, bounds: &BlockBox, mut act: impl FnMut(usize, usize, usize, usize)) {
        let own = self.of_block(bounds);
        let step = usize::from(self.axes.last().copied().unwrap_or(false));
        let length = row_length(bounds);
        for_each_row(bounds, |at, position| {
            act(at, length, self.entry_in(&own.start, &own.shape, position), step);
        });
    }

    /// Returns the entry of an element at this position, among those of a box of entries.
    fn entry_in(&self, start: &[u64], shape: &[u64], position: &[u64]) -> usize {
        let kept = position.iter().zip(&self.axes).filter(|(_, kept)| **kept);
        let place = kept.zip(start.iter().zip(shape));
        let entry =
            place.fold(0, |entry, ((at, _), (start, length))| entry * length + (at - start));
        usize::try_from(entry).unwrap_or(usize::MAX)
    }

    /// Merges the entries of a block into those of the whole result.
    fn merge<T>(&self, own: &BlockBox, part: Vec<T>, into: &mut [T], add: impl Fn(&mut T, T)) {
        let mut part = part.into_iter();
        let length = row_length(own);
        for_each_row(own, |_, position| {
            let axes = position.iter().zip(self.start.iter().zip(&self.shape));
            let place = axes.fold(0, |place, (at, (start, length))| place * length + (at - start));
            let place = usize::try_from(place).unwrap_or(usize::MAX);
            let Some(row) = into.get_mut(place..place.saturating_add(length)) else { return };
            for (entry, more) in row.iter_mut().zip(part.by_ref().take(length)) {
                add(entry, more);
            }
        });
    }
}

/// Counts matches.
pub(super) struct CountCollector {
    kept: Kept,
    counts: Mutex<Vec<u64>>,
    /// True if one match is enough for each entry.
    only_any: bool,
    found: AtomicBool,
}

impl CountCollector {
    pub(super) fn new(kept: Kept, only_any: bool) -> Self {
        let counts = Mutex::new(vec![0; kept.len()]);
        Self { kept, counts, only_any, found: AtomicBool::new(false) }
    }

    /// Returns the shape of the result, and the counts in C order.
    pub(super) fn finish(self) -> (Vec<u64>, Vec<u64>) {
        (self.kept.shape, self.counts.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Collector for CountCollector {
    type Part = (BlockBox, Vec<u64>);

    fn only_counts(&self, bounds: &BlockBox) -> bool {
        self.kept.of_block(bounds).len() == 1
    }

    fn collect(&self, block: &MatchedBlock<'_>) -> Result<Self::Part> {
        self.found.store(true, Ordering::Relaxed);
        let own = self.kept.of_block(block.bounds);
        let mut counts = vec![0; own.len()];
        if let [count] = counts.as_mut_slice() {
            *count = block.count;
            return Ok((own, counts));
        }
        self.kept.for_each_run(block.bounds, |at, length, entry, step| {
            let mask = block.mask.map(|mask| &mask[at..at + length]);
            if step == 0 {
                counts[entry] += mask.map_or(length as u64, |mask| {
                    mask.iter().map(|matches| u64::from(*matches)).sum()
                });
                return;
            }
            let row = &mut counts[entry..entry + length];
            match mask {
                None => row.iter_mut().for_each(|count| *count += 1),
                Some(mask) => {
                    row.iter_mut().zip(mask).for_each(|(count, one)| *count += u64::from(*one));
                }
            }
        });
        Ok((own, counts))
    }

    fn merge(&self, (own, part): Self::Part) -> Result<()> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        self.kept.merge(&own, part, &mut counts, |count, more| *count += more);
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.only_any && self.kept.shape.is_empty() && self.found.load(Ordering::Relaxed)
    }

    fn can_skip(&self, bounds: &BlockBox) -> bool {
        let entry = || {
            let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            let Kept { start, shape, .. } = &self.kept;
            counts.get(self.kept.entry_in(start, shape, &bounds.start)).copied()
        };
        self.only_any && self.only_counts(bounds) && entry().is_some_and(|count| count > 0)
    }
}

/// A statistic of the values of an array at the matches; missing values do not count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ValueStatistics {
    /// The number of values.
    pub count: u64,
    /// The sum, of reals with a correction for rounding (Neumaier).
    pub sum: f64,
    correction: f64,
    /// The exact sum of integers, if it fits.
    pub integer_sum: Option<i128>,
    /// The least value; meaningless without values.
    pub least: Extreme,
    /// The greatest value.
    pub greatest: Extreme,
}

/// The least or greatest value, exact for integers and reals.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Extreme {
    /// There are no values.
    None,
    /// An integer or truth value.
    Integer(i128),
    /// A real number.
    Real(f64),
}

impl Extreme {
    /// Returns the value as a real number; NaN without values.
    #[allow(clippy::cast_precision_loss)]
    pub fn to_real(self) -> f64 {
        match self {
            Self::None => f64::NAN,
            Self::Integer(value) => value as f64,
            Self::Real(value) => value,
        }
    }
}

impl Default for ValueStatistics {
    fn default() -> Self {
        Self {
            count: 0,
            sum: 0.0,
            correction: 0.0,
            integer_sum: Some(0),
            least: Extreme::None,
            greatest: Extreme::None,
        }
    }
}

impl ValueStatistics {
    fn add_real(&mut self, value: f64) {
        if value.is_nan() {
            return;
        }
        self.count += 1;
        self.add_to_sum(value);
        let least = matches!(self.least, Extreme::Real(least) if least <= value);
        let greatest = matches!(self.greatest, Extreme::Real(greatest) if greatest >= value);
        if !least {
            self.least = Extreme::Real(value);
        }
        if !greatest {
            self.greatest = Extreme::Real(value);
        }
    }

    fn add_to_sum(&mut self, value: f64) {
        let sum = self.sum + value;
        if sum.is_finite() {
            let lost = match self.sum.abs() >= value.abs() {
                true => (self.sum - sum) + value,
                false => (value - sum) + self.sum,
            };
            self.correction += lost;
        }
        self.sum = sum;
    }

    fn add_integer(&mut self, value: i128) {
        self.count += 1;
        self.integer_sum = self.integer_sum.and_then(|sum| sum.checked_add(value));
        if !matches!(self.least, Extreme::Integer(least) if least <= value) {
            self.least = Extreme::Integer(value);
        }
        if !matches!(self.greatest, Extreme::Integer(greatest) if greatest >= value) {
            self.greatest = Extreme::Integer(value);
        }
    }

    fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.add_to_sum(other.sum);
        self.correction += other.correction;
        let sums = self.integer_sum.zip(other.integer_sum);
        self.integer_sum = sums.and_then(|(sum, more)| sum.checked_add(more));
        self.least = extreme(self.least, other.least, |one, other| one <= other);
        self.greatest = extreme(self.greatest, other.greatest, |one, other| one >= other);
    }

    /// Returns the sum of all values as a real number.
    #[allow(clippy::cast_precision_loss)]
    pub fn total(&self) -> f64 {
        match (self.least, self.integer_sum) {
            (Extreme::Integer(_), Some(sum)) => sum as f64,
            _ => self.sum + self.correction,
        }
    }

    /// Returns the mean; NaN without values.
    #[allow(clippy::cast_precision_loss)]
    pub fn mean(&self) -> f64 {
        self.total() / self.count as f64
    }
}

fn extreme(one: Extreme, other: Extreme, stays: impl Fn(f64, f64) -> bool) -> Extreme {
    match (one, other) {
        (Extreme::None, other) => other,
        (one, Extreme::None) => one,
        (Extreme::Integer(a), Extreme::Integer(b)) => {
            // Of one array, so both are integers.
            let smaller = stays(0.0, 1.0) == (a <= b);
            Extreme::Integer(if smaller { a } else { b })
        }
        (Extreme::Real(a), Extreme::Real(b)) => Extreme::Real(if stays(a, b) { a } else { b }),
        (one, _) => one,
    }
}

/// Collects statistics of the first array whose values are asked for.
pub(super) struct StatisticsCollector {
    kept: Kept,
    entries: Mutex<Vec<ValueStatistics>>,
}

impl StatisticsCollector {
    pub(super) fn new(kept: Kept) -> Self {
        let entries = Mutex::new(vec![ValueStatistics::default(); kept.len()]);
        Self { kept, entries }
    }

    /// Returns the shape of the result, and the statistics in C order.
    pub(super) fn finish(self) -> (Vec<u64>, Vec<ValueStatistics>) {
        (self.kept.shape, self.entries.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Collector for StatisticsCollector {
    type Part = (BlockBox, Vec<ValueStatistics>);

    fn collect(&self, block: &MatchedBlock<'_>) -> Result<Self::Part> {
        let own = self.kept.of_block(block.bounds);
        let mut entries = vec![ValueStatistics::default(); own.len()];
        if let Some(values) = block.values.first() {
            self.kept.for_each_run(block.bounds, |at, length, entry, step| {
                for inside in 0..length {
                    if block.mask.is_none_or(|mask| mask[at + inside] != 0) {
                        add(&mut entries[entry + inside * step], values.as_slice(), at + inside);
                    }
                }
            });
        }
        Ok((own, entries))
    }

    fn merge(&self, (own, part): Self::Part) -> Result<()> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        self.kept.merge(&own, part, &mut entries, ValueStatistics::merge);
        Ok(())
    }
}

fn add(entry: &mut ValueStatistics, values: ValueSlice<'_>, at: usize) {
    match values {
        ValueSlice::Bool(values) => entry.add_integer(i128::from(values[at] != 0)),
        ValueSlice::Int8(values) => entry.add_integer(values[at].into()),
        ValueSlice::Int16(values) => entry.add_integer(values[at].into()),
        ValueSlice::Int32(values) => entry.add_integer(values[at].into()),
        ValueSlice::Int64(values) => entry.add_integer(values[at].into()),
        ValueSlice::UInt8(values) => entry.add_integer(values[at].into()),
        ValueSlice::UInt16(values) => entry.add_integer(values[at].into()),
        ValueSlice::UInt32(values) => entry.add_integer(values[at].into()),
        ValueSlice::UInt64(values) => entry.add_integer(values[at].into()),
        ValueSlice::Float16(values) => entry.add_real(values[at].into()),
        ValueSlice::Float32(values) => entry.add_real(values[at].into()),
        ValueSlice::Float64(values) => entry.add_real(values[at]),
    }
}

/// Counts the values of the first array whose values are asked for, by classes between edges: each
/// but the last without its upper edge, as `numpy.histogram` does.
pub(super) struct HistogramCollector<'e> {
    pub(super) edges: &'e [f64],
    pub(super) counts: Mutex<Vec<u64>>,
}

impl Collector for HistogramCollector<'_> {
    type Part = Vec<u64>;

    fn collect(&self, block: &MatchedBlock<'_>) -> Result<Self::Part> {
        let mut counts = vec![0; self.edges.len().saturating_sub(1)];
        let Some(values) = block.values.first().map(Values::to_reals) else { return Ok(counts) };
        let [first, .., last] = self.edges else { return Ok(counts) };
        for (at, value) in values.iter().enumerate() {
            let matches = block.mask.is_none_or(|mask| mask[at] != 0);
            if !matches || !(*first..=*last).contains(value) {
                continue;
            }
            let class = self.edges.partition_point(|edge| edge <= value).max(1) - 1;
            let class = class.min(counts.len() - 1);
            counts[class] += 1;
        }
        Ok(counts)
    }

    fn merge(&self, part: Self::Part) -> Result<()> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter_mut().zip(part).for_each(|(count, more)| *count += more);
        Ok(())
    }
}
