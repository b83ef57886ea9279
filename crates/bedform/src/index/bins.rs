//! Edges of bins, and the number of the bin of each element.
//!
//! A value is in the bin whose number is that of the edges that are at most it. Missing elements
//! are in a bin of their own, [`MISSING_BIN`]. Edges are stored values, so that elements are
//! compared as they are stored. After PARLO (Gong et al.), section III B: bins with common edges,
//! of which each has about as many values as the next.

use bedform_format::DataType;
use bedform_format::index::{EDGES_MAX, MISSING_BIN};

use super::fold::{BlockFold, FoldedNumber, Half, RangeFold, of_type};

/// Elements that are compared with all edges at a time: their numbers stay in the nearest cache.
const TILE: usize = 2048;
/// Cells of edges; the first and the last have values outside the edges.
const CELLS: usize = 256;
/// With more edges in a cell, other ways are faster.
const CELL_EDGES_MAX: usize = 3;
/// With more edges, a search for each element is faster than comparing it with every edge.
const COMPARED_EDGES_MAX: usize = 48;
/// Shares of the values below the outermost edges of many bins: queries ask for tails, and the index
/// has the values of the outermost bins.
const TAILS: [f64; 2] = [0.0025, 0.01];
/// The share of all values in the two outermost bins, where these are tails.
pub(crate) const TAIL_SHARE: f64 = 2.0 * TAILS[0];
/// From so many bins on two at each end are tails.
const TAILED_BINS_MIN: usize = 8;

/// The edges of bins, ascending: at least one, and none twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BinEdges {
    data_type: DataType,
    /// Stored values in the machine's byte order. An edge of zero is -0.0.
    edges: Vec<Vec<u8>>,
    /// True if the outermost bins have few values, and the index has these.
    has_tails: bool,
}

impl BinEdges {
    /// Makes edges, without tails, of stored values in the machine's byte order, in any order. `None`
    /// without any, for more than [`EDGES_MAX`], and for NaN.
    pub(crate) fn new(data_type: DataType, edges: &[Vec<u8>]) -> Option<Self> {
        let mut found = None;
        of_type!(data_type, T => found = sorted_edges::<T>(edges));
        let edges: Vec<Vec<u8>> = found?;
        (1..=EDGES_MAX).contains(&edges.len()).then_some(Self {
            data_type,
            edges,
            has_tails: false,
        })
    }

    /// Chooses the edges of at most `bins` bins by a sample of elements, so that each has about as
    /// many values; of many bins the outer two at each end have fewer. `None` if all values of the
    /// sample are missing or the same.
    pub(crate) fn of_sample(fold: &RangeFold, sample: &[u8], bins: usize) -> Option<Self> {
        let mut edges = Vec::new();
        of_type!(fold.data_type(), T => edges = quantiles::<T>(fold, sample, bins));
        let found = Self::new(fold.data_type(), &edges)?;
        Some(found.with_tails(bins >= TAILED_BINS_MIN))
    }

    /// Reads edges as a record lists them; `None` unless they ascend.
    pub(crate) fn of_record(data_type: DataType, edges: &[String]) -> Option<Self> {
        let size = data_type.item_size()?;
        let native = |text: &String| {
            let mut bytes = unhex(text)?;
            if cfg!(target_endian = "big") {
                bytes.reverse();
            }
            (bytes.len() == size).then_some(bytes)
        };
        let edges = edges.iter().map(native).collect::<Option<Vec<_>>>()?;
        Self::new(data_type, &edges).filter(|found| found.edges == edges)
    }

    /// The edges, stored values in the machine's byte order.
    pub(crate) fn edges(&self) -> &[Vec<u8>] {
        &self.edges
    }

    /// The number of bins, without that of missing elements.
    pub(crate) fn bins(&self) -> usize {
        self.edges.len() + 1
    }

    /// True if the index has the values of the elements in the outermost bins.
    pub(crate) fn has_tails(&self) -> bool {
        self.has_tails
    }

    /// Returns these edges for an index with the values of the outermost bins, or without.
    pub(crate) fn with_tails(self, has_tails: bool) -> Self {
        Self { has_tails, ..self }
    }

    /// True for the number of an outermost bin.
    pub(crate) fn is_outermost(&self, number: u8) -> bool {
        number == 0 || usize::from(number) == self.edges.len()
    }

    /// Returns the number of the bin of each of these elements, whose range is `range`.
    pub(crate) fn number(&self, fold: &RangeFold, elements: &[u8], range: &BlockFold) -> Vec<u8> {
        let mut numbers = Vec::new();
        of_type!(self.data_type, T => self.number_of::<T>(fold, elements, range, &mut numbers));
        numbers
    }

    fn number_of<T: FoldedNumber>(
        &self,
        fold: &RangeFold,
        elements: &[u8],
        range: &BlockFold,
        numbers: &mut Vec<u8>,
    ) {
        let edges: Vec<T> = self.edges.iter().map(|edge| T::read(edge)).collect();
        let count = elements.len() / T::BYTES;
        let Some((least, greatest)) = range.values(T::BYTES) else {
            return numbers.resize(count, MISSING_BIN);
        };
        // Elements are compared with the edges between them alone.
        let below = |value: T| edges.partition_point(|edge| !value.is_less(*edge));
        let (first, last) = (below(T::read(least)), below(T::read(greatest)));
        let base = u8::try_from(first).unwrap_or(u8::MAX);
        let edges = &edges[first..last];
        if edges.is_empty() && range.missing == 0 {
            return numbers.resize(count, base);
        }
        let missing: Vec<T> = fold.missing_values().iter().map(|value| T::read(value)).collect();
        let mut values: Vec<T> = Vec::with_capacity(TILE);
        numbers.reserve_exact(count);
        let cells = EdgeCells::new(edges);
        for tile in elements.chunks(TILE * T::BYTES) {
            values.clear();
            values.extend(tile.chunks_exact(T::BYTES).map(T::read));
            let from = numbers.len();
            numbers.resize(from + values.len(), base);
            match &cells {
                Some(cells) => cells.number_tile(&values, &mut numbers[from..]),
                None => number_tile(&values, edges, &mut numbers[from..]),
            }
            set_missing(&values, &missing, &mut numbers[from..]);
        }
    }
}

/// A table of edges: values fall into cells by a function that never decreases, and are compared
/// with the edges of their cell alone.
struct EdgeCells<T> {
    /// The value at which the first cell begins, and cells per unit.
    start: f64,
    scale: f64,
    /// The number of edges in the cells before each.
    before: [u8; CELLS],
    edges: Vec<T>,
    /// The most edges of a cell.
    most: usize,
}

impl<T: FoldedNumber> EdgeCells<T> {
    /// Divides edges into cells; `None` if comparing with all edges is as fast.
    fn new(edges: &[T]) -> Option<Self> {
        let [first, _, .., last] = edges else { return None };
        let start = first.position();
        #[allow(clippy::cast_precision_loss, reason = "a small number")]
        let scale = (CELLS - 2) as f64 / (last.position() - start);
        if !scale.is_finite() || scale <= 0.0 || !start.is_finite() {
            return None;
        }
        let mut cells = Self { start, scale, before: [0; CELLS], edges: edges.to_vec(), most: 0 };
        let mut counts = [0_u8; CELLS];
        for edge in edges {
            counts[cells.cell(*edge)] += 1;
        }
        let mut sum = 0;
        for (before, count) in cells.before.iter_mut().zip(counts) {
            *before = sum;
            sum += count;
        }
        cells.most = counts.into_iter().max().map_or(0, usize::from);
        (cells.most <= CELL_EDGES_MAX).then_some(cells)
    }

    fn cell(&self, value: T) -> usize {
        // Casts of numbers outside saturate, and that of NaN is 0.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let cell = ((value.position() - self.start) * self.scale + 1.0) as usize;
        cell.min(CELLS - 1)
    }

    /// Adds to each number that of the edges that are at most the value.
    fn number_tile(&self, values: &[T], numbers: &mut [u8]) {
        for (number, value) in numbers.iter_mut().zip(values) {
            let before = self.before[self.cell(*value)];
            let mut found = before;
            for next in 0..self.most {
                let edge = self.edges.get(usize::from(before) + next);
                found += u8::from(edge.is_some_and(|edge| !value.is_less(*edge)));
            }
            *number += found;
        }
    }
}

/// Gives missing elements the number of their bin.
fn set_missing<T: FoldedNumber>(values: &[T], missing: &[T], numbers: &mut [u8]) {
    for (number, value) in numbers.iter_mut().zip(values) {
        *number = if value.is_nan() { MISSING_BIN } else { *number };
    }
    for missing in missing {
        for (number, value) in numbers.iter_mut().zip(values) {
            *number = if value == missing { MISSING_BIN } else { *number };
        }
    }
}

/// Adds to each number that of the edges that are at most the value.
fn number_tile<T: FoldedNumber>(values: &[T], edges: &[T], numbers: &mut [u8]) {
    if edges.len() <= COMPARED_EDGES_MAX {
        for edge in edges {
            for (number, value) in numbers.iter_mut().zip(values) {
                *number += u8::from(!value.is_less(*edge));
            }
        }
    } else {
        for (number, value) in numbers.iter_mut().zip(values) {
            let found = edges.partition_point(|edge| !value.is_less(*edge));
            *number += u8::try_from(found).unwrap_or(0);
        }
    }
}

/// Sorts edges, drops the least value of the type, below which no value lies, and equal ones;
/// `None` for NaN.
fn sorted_edges<T: FoldedNumber>(edges: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
    let mut edges: Vec<T> = edges.iter().map(|edge| T::read(edge).low_zero()).collect();
    if edges.iter().any(|edge| edge.is_nan()) {
        return None;
    }
    edges.retain(|edge| T::LEAST.is_less(*edge));
    edges.sort_by(order);
    edges.dedup();
    Some(edges.iter().map(|edge| edge.write()[..T::BYTES].to_vec()).collect())
}

fn order<T: FoldedNumber>(one: &T, other: &T) -> std::cmp::Ordering {
    other.is_less(*one).cmp(&one.is_less(*other))
}

/// The shares of values below each edge of so many bins.
#[allow(clippy::cast_precision_loss, reason = "at most 254 bins")]
fn shares(bins: usize) -> Vec<f64> {
    let tails = if bins >= TAILED_BINS_MIN { &TAILS[..] } else { &[] };
    let inner = bins.saturating_sub(2 * tails.len()).max(1);
    let least = tails.last().copied().unwrap_or(0.0);
    let evenly = (1..inner).map(|at| least + (1.0 - 2.0 * least) * at as f64 / inner as f64);
    let last = tails.iter().rev().map(|share| 1.0 - share);
    tails.iter().copied().chain(evenly).chain(last).collect()
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a sample of some millions, and shares of it"
)]
fn quantiles<T: FoldedNumber>(fold: &RangeFold, sample: &[u8], bins: usize) -> Vec<Vec<u8>> {
    let missing: Vec<T> = fold.missing_values().iter().map(|value| T::read(value)).collect();
    let is_value = |value: &T| !value.is_nan() && !missing.contains(value);
    let mut values: Vec<T> = sample.chunks_exact(T::BYTES).map(T::read).filter(is_value).collect();
    values.sort_unstable_by(order);
    let at = |share: f64| values.get((share * values.len() as f64) as usize).copied();
    let least = values.first().copied();
    // An edge at the least value of all would have nothing below it.
    let edges = shares(bins.clamp(2, EDGES_MAX + 1)).into_iter().filter_map(at);
    let edges = edges.filter(|edge| least.is_some_and(|least| least.is_less(*edge)));
    edges.map(|edge| edge.write()[..T::BYTES].to_vec()).collect()
}

/// Reads bytes from hexadecimal digits.
fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let digit =
        |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pair = |pair: &[u8]| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?);
    digits.chunks(2).map(pair).collect()
}

#[cfg(test)]
#[allow(clippy::host_endian_bytes, clippy::cast_precision_loss, reason = "small numbers in memory")]
mod tests {
    use super::*;

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_ne_bytes()).collect()
    }

    fn edges(values: &[f32]) -> Option<BinEdges> {
        let edges: Vec<Vec<u8>> = values.iter().map(|edge| edge.to_ne_bytes().to_vec()).collect();
        BinEdges::new(DataType::Float32, &edges)
    }

    fn numbers(edges: &BinEdges, values: &[f32], missing: &[f32]) -> Vec<u8> {
        let missing: Vec<Vec<u8>> =
            missing.iter().map(|value| value.to_ne_bytes().to_vec()).collect();
        let fold = RangeFold::new(DataType::Float32, &missing).unwrap();
        let elements = bytes(values);
        edges.number(&fold, &elements, &fold.of(&elements))
    }

    #[test]
    fn the_number_of_a_bin_is_that_of_the_edges_that_are_at_most_the_value() {
        let edges = edges(&[2.0, 1.0, 1.0, 5.0]).unwrap();
        assert_eq!(edges.bins(), 4);
        let values = [0.5, 1.0, 1.5, 2.0, 4.9, 5.0, f32::INFINITY, f32::NEG_INFINITY];
        assert_eq!(numbers(&edges, &values, &[]), [0, 1, 1, 2, 2, 3, 3, 0]);
        assert_eq!(numbers(&edges, &[f32::NAN, 1.5, 9.0], &[9.0]), [255, 1, 255]);
    }

    #[test]
    fn both_zeros_are_in_the_bin_above_an_edge_of_zero() {
        let edges = edges(&[0.0]).unwrap();
        assert_eq!(edges.edges(), [(-0.0_f32).to_ne_bytes().to_vec()]);
        assert_eq!(numbers(&edges, &[-0.0, 0.0, -1e-45], &[]), [1, 1, 0]);
    }

    #[test]
    fn many_edges_give_the_same_numbers_as_a_search() {
        let many: Vec<f32> = (0..200_u16).map(f32::from).collect();
        let edges = edges(&many).unwrap();
        let values: Vec<f32> = (0..5000_u16).map(|at| f32::from(at) / 23.0 - 2.0).collect();
        let below = |value: f32| many.iter().filter(|edge| **edge <= value).count();
        let expected: Vec<u8> =
            values.iter().map(|value| u8::try_from(below(*value)).unwrap()).collect();
        assert_eq!(numbers(&edges, &values, &[]), expected);
    }

    #[test]
    fn edges_that_no_bins_can_have_are_none() {
        assert!(edges(&[]).is_none());
        assert!(edges(&[f32::NAN]).is_none());
        assert!(edges(&[f32::NEG_INFINITY]).is_none());
        let many: Vec<f32> = (0..254_u16).map(f32::from).collect();
        assert!(edges(&many).is_none());
    }

    #[test]
    fn edges_of_a_sample_divide_it_evenly_between_finer_tails() {
        let values: Vec<f32> = (0..100_000_u32).map(|at| (at * 7919 % 100_000) as f32).collect();
        let fold = RangeFold::new(DataType::Float32, &[]).unwrap();
        let found = BinEdges::of_sample(&fold, &bytes(&values), 20).unwrap();
        assert_eq!(found.bins(), 20);
        let numbers = numbers(&found, &values, &[]);
        let counts: Vec<usize> =
            (0..20).map(|bin| numbers.iter().filter(|number| **number == bin).count()).collect();
        assert_eq!((counts[0], counts[1], counts[18], counts[19]), (250, 750, 750, 250));
        assert!(counts[2..18].iter().all(|count| (6120..6130).contains(count)), "{counts:?}");
        assert!(BinEdges::of_sample(&fold, &bytes(&[3.0; 50]), 20).is_none());
        assert!(BinEdges::of_sample(&fold, &bytes(&[f32::NAN; 50]), 20).is_none());
        // Most values are the same: bins are fewer.
        let mut few = vec![1.0_f32; 1000];
        few.extend([2.0, 3.0]);
        assert_eq!(BinEdges::of_sample(&fold, &bytes(&few), 4), None);
    }

    #[test]
    fn edges_of_a_record_must_ascend() {
        let record = |edges: &[&str]| {
            let edges: Vec<String> = edges.iter().map(|edge| (*edge).to_owned()).collect();
            BinEdges::of_record(DataType::Int16, &edges)
        };
        let found = record(&["ffff", "0500"]).unwrap();
        assert_eq!(found.edges(), [(-1_i16).to_ne_bytes().to_vec(), 5_i16.to_ne_bytes().to_vec()]);
        for refused in [&["0500", "ffff"][..], &["05"], &["xx00"], &["050"], &["0500", "0500"], &[]]
        {
            assert!(record(refused).is_none(), "{refused:?}");
        }
    }
}
