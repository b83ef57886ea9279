//! Ranges of blocks from the value index of an array.

use bedform_geometry::{Region, element_count};
use bedform_query::{
    LeftOutValues, ScalarValue, ValueDecoding, ValueRange, ValueType, Values, bin_ranges,
    common_range, range_of,
};

use super::binned::{IndexedBlock, KnownBins};
use super::frame::Frame;
use super::operand::QueryOperand;
use crate::array::index::{BlockRange, ValueIndex};
use crate::error::Result;
use crate::index::MISSING_BIN;

/// The most blocks of an index that are looked up for one block of a query.
const BLOCKS_MAX: u64 = 64;

/// The value index of an operand.
pub(super) struct IndexRanges {
    index: ValueIndex,
    value_type: ValueType,
    /// True if elements may be missing that the index counts among the values: xarray compares
    /// fill values after conversions, so that neighbours may equal them.
    hides_missing: bool,
    /// The range of each bin of level two.
    bins: Option<Vec<ValueRange>>,
}

impl IndexRanges {
    /// Opens the index of an operand; `None` if there is none.
    ///
    /// # Errors
    /// Those of looking up the array again.
    pub(super) fn open(operand: &QueryOperand, frame: &Frame) -> Result<Option<Self>> {
        let value_type = operand.decoding.stored();
        let Some(index) = operand.array.value_index()? else { return Ok(None) };
        let left_out = index.missing_values().iter();
        let left_out = left_out.filter_map(|bytes| scalar_of(value_type, bytes));
        let hides_missing = match operand.decoding.left_out(&left_out.collect::<Vec<_>>()) {
            LeftOutValues::Missing => false,
            LeftOutValues::SomeMissing => true,
            LeftOutValues::Others => return Ok(None),
        };
        // Boxes of the index are boxes of the frame only if both have the same axes.
        let edges = index.edges().filter(|_| operand.dims == frame.dims);
        let bins = edges.and_then(|edges| {
            let edges = edges.edges().iter().map(|edge| scalar_of(value_type, edge));
            bin_ranges(value_type, &edges.collect::<Option<Vec<_>>>()?)
        });
        Ok(Some(Self { index, value_type, hides_missing, bins }))
    }

    /// Returns the bounds of these ranges together.
    fn bounds(&self, ranges: &[BlockRange]) -> Option<(ScalarValue, ScalarValue)> {
        let bounds = ranges.iter().filter_map(|range| range.least_and_greatest.as_ref());
        let bytes: Vec<u8> =
            bounds.flat_map(|(least, greatest)| [least, greatest]).flatten().copied().collect();
        let values = Values::of_bytes(self.value_type, &bytes)?;
        let values = values.as_slice();
        match values.len() {
            // Zeros keep their signs.
            2 => values.get(0).zip(values.get(1)),
            _ => range_of(&ValueDecoding::raw(self.value_type), values).0,
        }
    }
}

impl IndexRanges {
    /// Returns the bins of a box of the array; `None` if they are unknown, and for a box that lies
    /// in several blocks.
    pub(super) fn bins(&self, start: &[u64], shape: &[u64]) -> Option<KnownBins> {
        let ranges = self.bins.as_ref()?;
        let region = Region::new(start.to_vec(), shape.to_vec()).ok()?;
        let touched = self.index.grid().chunks_of_region(&region)?;
        if touched.len() != Some(1) {
            return None;
        }
        let at = touched.start().to_vec();
        let (known, range) = (self.index.bins(&at)?, self.index.range(&at)?);
        let values = self
            .bounds(&[range])
            .map(|ends| ValueRange { least_and_greatest: Some(ends), missing: false });
        let (counts, missing) = known.counts.split_at_checked(ranges.len())?;
        let mut present = Vec::new();
        for (number, (count, range)) in (0..).zip(counts.iter().zip(ranges)) {
            if *count > 0 {
                // Of the outer bins a block has a part.
                let mut range = common_range(range, values.as_ref()?)?;
                range.missing = self.hides_missing;
                present.push((number, range, u64::from(*count)));
            }
        }
        if let [missing] = missing
            && *missing > 0
        {
            let range = ValueRange { least_and_greatest: None, missing: true };
            present.push((MISSING_BIN, range, u64::from(*missing)));
        }
        let whole = self.index.grid().chunk_region_clipped(&at);
        let block = IndexedBlock::new(at, known.checksum, &whole, &region);
        Some(KnownBins { block, present })
    }

    /// The bytes that the index of so many elements takes in storage, about.
    pub(super) fn stored_bytes_of(&self, elements: u64) -> u64 {
        let all = element_count(self.index.grid().array_shape()).unwrap_or(u64::MAX).max(1);
        let share = u128::from(self.index.stored_bytes()) * u128::from(elements) / u128::from(all);
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// Reads the numbers of the bins of a block; `None` if they are damaged.
    pub(super) fn numbers(&self, block: &IndexedBlock) -> Option<Vec<u8>> {
        self.index.numbers(&block.at, block.checksum)
    }

    /// Returns the range of the elements of the array from `start`, `shape` of them; `None` if it
    /// is unknown.
    pub(super) fn range(&self, start: &[u64], shape: &[u64]) -> Option<ValueRange> {
        let region = Region::new(start.to_vec(), shape.to_vec()).ok()?;
        let touched = self.index.grid().chunks_of_region(&region)?;
        if touched.len().is_none_or(|count| count > BLOCKS_MAX) {
            return None;
        }
        let mut ranges = Vec::new();
        for number in 0..touched.len()? {
            let mut block = bedform_geometry::delinearize(number, touched.shape());
            block.iter_mut().zip(touched.start()).for_each(|(at, first)| *at += first);
            ranges.push(self.index.range(&block)?);
        }
        let missing = self.hides_missing || ranges.iter().any(|range| range.missing > 0);
        let has_values = ranges.iter().any(|range| range.least_and_greatest.is_some());
        let least_and_greatest = match has_values {
            true => Some(self.bounds(&ranges)?),
            false => None,
        };
        Some(ValueRange { least_and_greatest, missing })
    }
}

/// Returns the element in these bytes, in native byte order.
fn scalar_of(value_type: ValueType, bytes: &[u8]) -> Option<ScalarValue> {
    Values::of_bytes(value_type, bytes)?.as_slice().get(0)
}
