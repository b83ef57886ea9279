//! Ranges of blocks from the value index of an array.

use bedform_geometry::Region;
use bedform_query::{
    LeftOutValues, ScalarValue, ValueDecoding, ValueRange, ValueSlice, ValueType, range_of,
};
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
    /// True if elements may be missing that the index counts among the values: xarray compares
    /// fill values after conversions, so that neighbours may equal them.
    hides_missing: bool,
}

impl IndexRanges {
    /// Opens the index of an operand; `None` if there is none.
    ///
    /// # Errors
    /// Those of looking up the array again.
    pub(super) fn open(operand: &QueryOperand) -> Result<Option<Self>> {
        let value_type = operand.decoding.stored();
        let Some(index) = operand.array.value_index()? else { return Ok(None) };
        let left_out = index.missing_values().iter();
        let left_out = left_out.filter_map(|bytes| scalars_of(value_type, bytes, |of| of.get(0)));
        let hides_missing = match operand.decoding.left_out(&left_out.collect::<Vec<_>>()) {
            LeftOutValues::Missing => false,
            LeftOutValues::SomeMissing => true,
            LeftOutValues::Others => return Ok(None),
        };
        Ok(Some(Self { index, value_type, hides_missing }))
    }

    /// Returns the bounds of these ranges together.
    fn bounds(&self, ranges: &[BlockRange]) -> Option<(ScalarValue, ScalarValue)> {
        let bounds = ranges.iter().filter_map(|range| range.least_and_greatest.as_ref());
        let bytes: Vec<u8> =
            bounds.flat_map(|(least, greatest)| [least, greatest]).flatten().copied().collect();
        scalars_of(self.value_type, &bytes, |values| match values.len() {
            // Zeros keep their signs.
            2 => values.get(0).zip(values.get(1)),
            _ => range_of(&ValueDecoding::raw(self.value_type), values).0,
        })
    }
}

/// Calls `read` with elements in native byte order, which need not be aligned.
fn scalars_of<T>(
    value_type: ValueType,
    bytes: &[u8],
    read: impl FnOnce(ValueSlice<'_>) -> Option<T>,
) -> Option<T> {
    // Aligned to every type.
    let mut words = vec![0_u64; bytes.len().div_ceil(8)];
    let aligned = &mut words.as_mut_bytes()[..bytes.len()];
    aligned.copy_from_slice(bytes);
    read(ValueSlice::of_bytes(value_type, aligned)?)
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
