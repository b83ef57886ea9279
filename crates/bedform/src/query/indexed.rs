//! Ranges of blocks from the value index of an array.

use bedform_geometry::Region;
use bedform_query::{ScalarValue, ValueDecoding, ValueRange, ValueSlice, ValueType, range_of};
use zerocopy::IntoBytes;

use super::operand::QueryOperand;
use super::plan::BlockRanges;
use crate::array::index::{BlockRange, ValueIndex};
use crate::error::Result;

/// The most blocks of an index that are looked up for one block of a query.
const BLOCKS_MAX: u64 = 64;

/// The value index of an operand.
pub(super) struct IndexRanges {
    index: ValueIndex,
    value_type: ValueType,
    /// True if xarray may take elements for missing that the index does not: it compares real
    /// numbers and large integers with fill values after conversions.
    hides_missing: bool,
}

impl IndexRanges {
    /// Opens the index of an operand; `None` if there is none.
    ///
    /// # Errors
    /// Those of looking up the array again.
    pub(super) fn open(operand: &QueryOperand) -> Result<Option<Self>> {
        let value_type = operand.decoding.stored();
        let exact = value_type.is_integer() && value_type.bytes() < 8;
        let hides_missing = operand.has_fill_values && !exact;
        let opened = operand.array.value_index()?;
        Ok(opened.map(|index| Self { index, value_type, hides_missing }))
    }

    /// Returns the bounds of these ranges together.
    fn bounds(&self, ranges: &[BlockRange]) -> Option<(ScalarValue, ScalarValue)> {
        let bounds = ranges.iter().filter_map(|range| range.least_and_greatest.as_ref());
        let bytes: Vec<u8> =
            bounds.flat_map(|(least, greatest)| [least, greatest]).flatten().copied().collect();
        // Aligned to every type.
        let mut words = vec![0_u64; bytes.len().div_ceil(8)];
        let aligned = &mut words.as_mut_bytes()[..bytes.len()];
        aligned.copy_from_slice(&bytes);
        let values = ValueSlice::of_bytes(self.value_type, aligned)?;
        match values.len() {
            // Zeros keep their signs.
            2 => values.get(0).zip(values.get(1)),
            _ => range_of(&ValueDecoding::raw(self.value_type), values).0,
        }
    }
}

impl BlockRanges for IndexRanges {
    fn range(&self, start: &[u64], shape: &[u64]) -> Option<ValueRange> {
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
