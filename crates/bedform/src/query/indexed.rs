//! Ranges and bins of blocks from the value index of an array.

use bedform_geometry::{ChunkGrid, Region, delinearize, element_count};
use bedform_query::{
    LeftOutValues, ScalarValue, ValueDecoding, ValueRange, ValueType, Values, bin_ranges,
    common_range, range_of,
};

use super::frame::{BlockBox, Frame};
use super::operand::QueryOperand;
use crate::array::index::{BlockRange, ValueIndex};
use crate::error::Result;
use crate::index::MISSING_BIN;

/// Indexes of at most so many objects are compared with the array before the blocks are planned.
const COMPARED_AT_ONCE_MAX: usize = 1 << 14;
/// The most blocks of an index that are looked up for one block of a query.
const BLOCKS_MAX: u64 = 256;

/// The value index of an operand.
pub(super) struct IndexRanges {
    index: ValueIndex,
    value_type: ValueType,
    /// True if elements may be missing that the index counts among the values: xarray compares
    /// fill values after conversions, so that neighbours may equal them.
    hides_missing: bool,
    /// The range of each bin of level two.
    bins: Option<Vec<ValueRange>>,
    /// True if all blocks of the query's region have been compared already, and have not changed.
    all_unchanged: bool,
}

/// The part of a block of an index that lies in a box of the array.
#[derive(Debug, Clone)]
pub(super) struct IndexedPart {
    at: Vec<u64>,
    /// The shape of the block.
    pub(super) whole: Vec<u64>,
    /// The start of the part in the block, and its shape.
    pub(super) start: Vec<u64>,
    pub(super) shape: Vec<u64>,
    /// The start of the part in the box.
    pub(super) place: Vec<u64>,
}

/// The bins of a block.
pub(super) struct KnownBins {
    /// Those with elements.
    pub(super) present: Vec<KnownBin>,
    checksum: u32,
    tail_checksum: u32,
}

/// A bin of a block.
pub(super) struct KnownBin {
    pub(super) number: u8,
    /// The range of its elements in the block.
    pub(super) range: ValueRange,
    /// Their number.
    pub(super) count: u64,
    pub(super) is_outermost: bool,
}

/// The elements of a block in the outermost bins.
pub(super) struct TailValues {
    /// Places in the C order of the block.
    pub(super) positions: Vec<u16>,
    /// Stored values, and their bytes.
    pub(super) values: Values,
    pub(super) bytes: Vec<u8>,
}

impl IndexedPart {
    /// Makes the part of a block, of the region `whole`, in a box.
    fn new(at: Vec<u64>, whole: &Region, region: &Region) -> Option<Self> {
        let common = whole.intersection(region)?;
        let within = |outer: &Region| -> Vec<u64> {
            common.start().iter().zip(outer.start()).map(|(at, first)| at - first).collect()
        };
        Some(Self {
            at,
            whole: whole.shape().to_vec(),
            start: within(whole),
            shape: common.shape().to_vec(),
            place: within(region),
        })
    }

    /// Returns the part as a box of the frame, where it is a part of `bounds`.
    pub(super) fn in_frame(self, bounds: &BlockBox) -> BlockBox {
        let start = bounds.start.iter().zip(&self.place).map(|(start, place)| start + place);
        BlockBox { start: start.collect(), shape: self.shape }
    }

    /// True if the part is the whole block.
    pub(super) fn is_whole(&self) -> bool {
        self.whole == self.shape
    }

    /// The number of elements of the part.
    pub(super) fn len(&self) -> u64 {
        element_count(&self.shape).unwrap_or(u64::MAX)
    }

    /// The number of elements of the block.
    pub(super) fn block_len(&self) -> u64 {
        element_count(&self.whole).unwrap_or(u64::MAX)
    }

    /// Returns the place, in the C order of a box of this shape, of an element of the block; `None`
    /// if it lies outside the part.
    pub(super) fn place_of(&self, position: u64, shape: &[u64]) -> Option<u64> {
        let (mut rest, mut place, mut step) = (position, 0, 1);
        for axis in (0..shape.len()).rev() {
            let inside = (rest % self.whole[axis]).checked_sub(self.start[axis])?;
            if inside >= self.shape[axis] {
                return None;
            }
            rest /= self.whole[axis];
            place += (self.place[axis] + inside) * step;
            step *= shape[axis];
        }
        Some(place)
    }
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
        let whole =
            BlockBox { start: frame.region.start().to_vec(), shape: frame.region.shape().to_vec() };
        let (start, shape) = operand.region_in(frame, &whole);
        let blocks = index.grid().chunks_of_region(&Region::new(start, shape)?);
        let all_unchanged = index.record().objects.len() <= COMPARED_AT_ONCE_MAX
            && blocks.is_some_and(|blocks| index.is_unchanged_in(&blocks));
        Ok(Some(Self { index, value_type, hides_missing, bins, all_unchanged }))
    }

    /// True if the index has the values in the outermost bins.
    pub(super) fn has_tails(&self) -> bool {
        self.bins.is_some() && self.index.edges().is_some_and(|edges| edges.has_tails())
    }

    /// Returns the blocks that a region of the array touches; `None` if some have changed since, and
    /// for too many.
    fn touched(&self, region: &Region) -> Option<Region> {
        let touched = self.index.grid().chunks_of_region(region)?;
        let is_small = touched.len().is_some_and(|count| (1..=BLOCKS_MAX).contains(&count));
        let is_known = || self.all_unchanged || self.index.is_unchanged_in(&touched);
        (is_small && is_known()).then_some(touched)
    }

    /// Returns the parts of blocks of which a region of the array consists; `None` if some have
    /// changed since, and for too many.
    pub(super) fn parts(&self, region: &Region) -> Option<Vec<IndexedPart>> {
        parts_in(self.index.grid(), &self.touched(region)?, region)
    }

    /// Returns the range between the least and the greatest of these stored values, with missing
    /// ones.
    fn range_of_ends(&self, ends: &[u8], missing: u64) -> Option<ValueRange> {
        let values = Values::of_bytes(self.value_type, ends)?;
        let values = values.as_slice();
        let least_and_greatest = match values.len() {
            0 => None,
            // Zeros keep their signs.
            2 => Some(values.get(0).zip(values.get(1))?),
            _ => Some(range_of(&ValueDecoding::raw(self.value_type), values).0?),
        };
        Some(ValueRange { least_and_greatest, missing: self.hides_missing || missing > 0 })
    }

    /// Returns the range of a block; `None` if it is unknown.
    pub(super) fn range_of_block(&self, part: &IndexedPart) -> Option<ValueRange> {
        let BlockRange { least_and_greatest, missing, .. } =
            self.index.range_as_indexed(&part.at)?;
        let (least, greatest) = least_and_greatest.unwrap_or_default();
        self.range_of_ends(&[least, greatest].concat(), missing)
    }

    /// Returns the range of the elements of a region; `None` if it is unknown.
    pub(super) fn range(&self, region: &Region) -> Option<ValueRange> {
        let (mut ends, mut all_missing) = (Vec::new(), 0);
        let blocks = self.touched(region)?;
        self.index.each_range_as_indexed(&blocks, &mut |values, missing| {
            if let Some((least, greatest)) = values {
                ends.extend_from_slice(least);
                ends.extend_from_slice(greatest);
            }
            all_missing += missing;
        })?;
        self.range_of_ends(&ends, all_missing)
    }

    /// Returns the bins of a block; `None` if they are unknown.
    pub(super) fn bins(&self, part: &IndexedPart) -> Option<KnownBins> {
        let ranges = self.bins.as_ref()?;
        let edges = self.index.edges()?;
        let known = self.index.bins_as_indexed(&part.at)?;
        let whole = self.range_of_block(part)?;
        let values = whole.least_and_greatest.is_some().then_some(whole);
        let (counts, missing) = known.counts.split_at_checked(ranges.len())?;
        let mut present = Vec::new();
        for (number, (count, range)) in (0..).zip(counts.iter().zip(ranges)) {
            if *count > 0 {
                // Of the outer bins a block has a part.
                let mut range = common_range(range, values.as_ref()?)?;
                range.missing = self.hides_missing;
                let (count, is_outermost) = (u64::from(*count), edges.is_outermost(number));
                present.push(KnownBin { number, range, count, is_outermost });
            }
        }
        if let [missing] = missing
            && *missing > 0
        {
            present.push(KnownBin {
                number: MISSING_BIN,
                range: ValueRange { least_and_greatest: None, missing: true },
                count: u64::from(*missing),
                is_outermost: false,
            });
        }
        let (checksum, tail_checksum) = (known.checksum, known.tail_checksum);
        Some(KnownBins { present, checksum, tail_checksum })
    }

    /// The bytes of the index that are read of a block, about: those of its numbers, or of its tails
    /// alone.
    pub(super) fn bytes_of(&self, part: &IndexedPart, bins: &KnownBins, numbers: bool) -> u64 {
        let outermost = bins.present.iter().filter(|bin| bin.is_outermost && self.has_tails());
        let tails: u64 = outermost.map(|bin| bin.count).sum();
        let tails = tails * (2 + self.value_type.bytes() as u64);
        let all = element_count(self.index.grid().array_shape()).unwrap_or(u64::MAX).max(1);
        let stored = u128::from(self.index.stored_bytes()) * u128::from(part.block_len());
        match numbers || !self.has_tails() {
            true => u64::try_from(stored / u128::from(all)).unwrap_or(u64::MAX),
            false => tails,
        }
    }

    /// Reads the numbers of the bins of a block, in its C order; `None` if they are damaged.
    pub(super) fn numbers(&self, part: &IndexedPart, bins: &KnownBins) -> Option<Vec<u8>> {
        self.index.numbers(&part.at, bins.checksum)
    }

    /// Reads the elements in the outermost bins of a block; `None` if they are damaged.
    #[allow(clippy::host_endian_bytes, reason = "elements in memory")]
    pub(super) fn tails(&self, part: &IndexedPart, bins: &KnownBins) -> Option<TailValues> {
        let found = self.index.tail(&part.at, bins.tail_checksum)?;
        let (positions, _) = found.positions.as_chunks::<2>();
        let positions: Vec<u16> = positions.iter().map(|at| u16::from_ne_bytes(*at)).collect();
        let values = Values::of_bytes(self.value_type, &found.values)?;
        let bytes = found.values;
        let fits = values.as_slice().len() == positions.len();
        fits.then_some(TailValues { positions, values, bytes })
    }
}

/// Returns the parts of the blocks `touched` of a grid in a region of the array; `None` for too many.
pub(super) fn parts_in(
    grid: &ChunkGrid,
    touched: &Region,
    region: &Region,
) -> Option<Vec<IndexedPart>> {
    let count = touched.len().filter(|count| *count <= BLOCKS_MAX)?;
    let part = |number: u64| {
        let mut at = delinearize(number, touched.shape());
        at.iter_mut().zip(touched.start()).for_each(|(at, first)| *at += first);
        let whole = grid.chunk_region_clipped(&at);
        IndexedPart::new(at, &whole, region)
    };
    (0..count).map(part).collect()
}

/// Returns the element in these bytes, in native byte order.
pub(super) fn scalar_of(value_type: ValueType, bytes: &[u8]) -> Option<ScalarValue> {
    Values::of_bytes(value_type, bytes)?.as_slice().get(0)
}
