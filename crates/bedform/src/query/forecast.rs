//! The share of a query's blocks that a value index would leave out, before there is one: some
//! blocks are read, and decided by their ranges as a plan would.

use bedform_geometry::{ChunkGrid, Region};
use bedform_query::{Decision, Predicate, ValueRange, bin_ranges, range_of};

use super::binned::{BinUse, Conjuncts, KnownArrays};
use super::columns::{QueryColumn, SpreadBuffer};
use super::frame::BlockBox;
use super::indexed::{parts_in, scalar_of};
use super::operand::QueryOperand;
use super::{PreparedQuery, ValueQuery};
use crate::error::Result;
use crate::index::BinEdges;
use crate::plan::spread::spread;

/// Blocks that a forecast reads, and their bytes.
const BLOCKS_MAX: u64 = 64;
const SAMPLE_BYTES: u64 = 32 << 20;

/// A query with an index of one of its arrays, as predicted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct IndexForecast {
    /// The share of the blocks that ranges do not decide.
    pub(crate) undecided: f64,
    /// The use of bins for these.
    pub(crate) bins: BinUse,
}

impl ValueQuery {
    /// Predicts the query with an index, of blocks on this grid and perhaps of bins between these
    /// edges, of the array at `path`. `None` if the array has no part in the condition, or is so
    /// small that it is read whole.
    ///
    /// # Errors
    /// Those of reads.
    pub(crate) fn forecast(
        &self,
        path: &str,
        grid: &ChunkGrid,
        edges: Option<&BinEdges>,
    ) -> Result<Option<IndexForecast>> {
        let prepared = self.with(&[])?;
        let residents = prepared.residents(Some(&self.predicate))?;
        let used = self.predicate.operands_used().into_iter();
        let mut large = used.filter(|at| residents.columns[*at].is_none());
        let Some(at) = large.find(|at| prepared.operands[*at].array.path() == path) else {
            return Ok(None);
        };
        let indexes = prepared.indexes(&self.predicate, &residents)?;
        let PreparedQuery { operands, frame, .. } = &prepared;
        let arrays = KnownArrays { operands, frame, residents: &residents, indexes: &indexes };
        let asked = IndexedOperand { arrays, predicate: &self.predicate, at, grid };
        let undecided = asked.undecided_share()?;
        let bins = edges.and_then(|edges| asked.bin_use(edges)).unwrap_or(BinUse::None);
        Ok(Some(IndexForecast { undecided, bins }))
    }
}

/// An operand of a query that could have an index.
struct IndexedOperand<'a> {
    arrays: KnownArrays<'a>,
    predicate: &'a Predicate,
    at: usize,
    /// The blocks of the index.
    grid: &'a ChunkGrid,
}

impl IndexedOperand<'_> {
    fn operand(&self) -> &QueryOperand {
        &self.arrays.operands[self.at]
    }

    /// Reads some blocks, and returns the share of those that ranges do not decide.
    #[allow(clippy::cast_precision_loss, reason = "a share of at most 64 blocks")]
    fn undecided_share(&self) -> Result<f64> {
        let KnownArrays { frame, residents, .. } = self.arrays;
        let block = self.operand().block.iter().product::<u64>();
        let block = block.saturating_mul(self.operand().decoding.stored().bytes() as u64);
        let count = (SAMPLE_BYTES / block.max(1)).clamp(1, BLOCKS_MAX);
        let mut column = QueryColumn::new(self.operand(), frame);
        let (mut all, mut undecided) = (0_u64, 0_u64);
        for number in spread(count, frame.block_count()) {
            let mut bounds = frame.block(number);
            if residents.cut(&mut bounds, frame) {
                column.read(self.operand(), std::iter::once(&bounds))?;
                all += 1;
                undecided += u64::from(self.is_undecided(&bounds, &column)?);
            }
        }
        Ok(undecided as f64 / all.max(1) as f64)
    }

    /// True if neither the range of a block decides it, nor those of its parts on the grid.
    fn is_undecided(&self, bounds: &BlockBox, column: &QueryColumn) -> Result<bool> {
        if self.decide(bounds, column)? != Decision::Some {
            return Ok(false);
        }
        for part in self.parts(bounds) {
            if self.decide(&part, column)? == Decision::Some {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn decide(&self, bounds: &BlockBox, column: &QueryColumn) -> Result<Decision> {
        let mut room = SpreadBuffer::default();
        let elements = column.of_block(bounds)?;
        let elements = elements.tile(0..bounds.len(), &mut room)?;
        let (least_and_greatest, missing) = range_of(&self.operand().decoding, elements);
        let mut ranges = self.arrays.ranges(bounds);
        ranges[self.at] = Some(ValueRange { least_and_greatest, missing: missing > 0 });
        Ok(self.predicate.decide(&ranges))
    }

    /// Cuts a block on the grid of the index, if the array spans the frame in its order.
    fn parts(&self, bounds: &BlockBox) -> Vec<BlockBox> {
        let parts = || {
            let (start, shape) = self.operand().region_in(self.arrays.frame, bounds);
            let region = Region::new(start, shape).ok()?;
            parts_in(self.grid, &self.grid.chunks_of_region(&region)?, &region)
        };
        let spans = self.operand().dims == self.arrays.frame.dims;
        match spans.then(parts).flatten() {
            Some(parts) => parts.into_iter().map(|part| part.in_frame(bounds)).collect(),
            None => vec![bounds.clone()],
        }
    }

    /// Returns the use of bins between these edges; `None` if the array does not span the frame.
    fn bin_use(&self, edges: &BinEdges) -> Option<BinUse> {
        let value_type = self.operand().decoding.stored();
        let stored = edges.edges().iter().map(|edge| scalar_of(value_type, edge));
        let bins = bin_ranges(value_type, &stored.collect::<Option<Vec<_>>>()?)?;
        let conjuncts = Conjuncts::of(self.predicate);
        let spans = self.operand().dims == self.arrays.frame.dims;
        spans.then(|| conjuncts.bin_use(self.at, &bins, edges.has_tails(), self.arrays))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bedform_format::ObjectPath;
    use bedform_geometry::Selection;
    use bedform_storage::MemoryStorage;
    use serde_json::json;

    use super::*;
    use crate::array::{Array, Elements};
    use crate::options::OpenOptions;
    use crate::query::{QueryArray, QueryOptions};
    use crate::store::Store;
    use crate::zarr::NewArray;

    const SHAPE: [u64; 3] = [64, 64, 128];

    /// An array `t` of 64 maps, in a chunk each, whose elements are those of `value`.
    fn array(value: impl Fn(u64) -> f64) -> Array {
        let options = OpenOptions { writable: true, ..OpenOptions::default() };
        let storage = Arc::new(MemoryStorage::new());
        let store = Store::create(storage, &Default::default(), options).unwrap();
        let new = json!({
            "shape": SHAPE, "dtype": "float64", "dims": ["z", "y", "x"], "chunks": [1, 64, 128]
        });
        let new = NewArray::from_json_with(&new, &OpenOptions::default()).unwrap();
        let array = store.create_array(&ObjectPath::parse("t").unwrap(), &new).unwrap();
        #[allow(clippy::host_endian_bytes, reason = "elements in memory")]
        let bytes: Vec<u8> =
            (0..SHAPE.iter().product()).flat_map(|at| value(at).to_ne_bytes()).collect();
        array.write(&Selection::all(&SHAPE), Elements::Bytes(&bytes)).unwrap();
        array
    }

    /// Returns a number from 0 to 1 for each element.
    fn noise(at: u64) -> f64 {
        (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn forecast(array: &Array, text: &str, edges: &[f64], tails: bool) -> Option<IndexForecast> {
        let grid = array.index_form().unwrap().unwrap().grid;
        #[allow(clippy::host_endian_bytes, reason = "elements in memory")]
        let stored: Vec<Vec<u8>> = edges.iter().map(|edge| edge.to_ne_bytes().to_vec()).collect();
        let edges = BinEdges::new(array.data_type().unwrap(), &stored);
        let edges = edges.map(|edges| edges.with_tails(tails));
        let arrays = [QueryArray::new("t", array.clone())];
        let query = ValueQuery::new(text, &arrays, QueryOptions::default()).unwrap();
        query.forecast("t", &grid, edges.as_ref()).unwrap()
    }

    #[test]
    fn the_share_of_undecided_blocks_is_that_of_the_maps_with_the_bound_between_their_ends() {
        let maps = array(|at| (at / (64 * 128)) as f64 + noise(at));
        for (text, undecided) in [("t > 61.5", 1), ("t > 64", 0), ("t > 9.5 and t < 20.5", 2)] {
            let found = forecast(&maps, text, &[], false).unwrap();
            assert_eq!(found.undecided, f64::from(undecided) / 64.0, "{text}");
        }
        let same = array(noise);
        assert_eq!(forecast(&same, "t > 0.5", &[], false).unwrap().undecided, 1.0);
    }

    #[test]
    fn bins_decide_conditions_at_their_edges_and_with_tails_those_in_the_outermost_bins() {
        let same = array(noise);
        let bins = |text, tails| forecast(&same, text, &[0.01, 0.5, 0.99], tails).unwrap().bins;
        assert_eq!(bins("t >= 0.5", false), BinUse::Numbers);
        assert_eq!(bins("t >= 0.6", true), BinUse::None);
        assert_eq!(bins("t > 0.995", true), BinUse::Tails);
        assert_eq!(bins("t > 0.995", false), BinUse::None);
    }

    #[test]
    fn an_array_without_a_part_in_the_condition_has_no_forecast() {
        let same = array(noise);
        let grid = same.index_form().unwrap().unwrap().grid;
        let arrays = [QueryArray::new("t", same)];
        let query = ValueQuery::new("t > 0.5", &arrays, QueryOptions::default()).unwrap();
        assert_eq!(query.forecast("u", &grid, None).unwrap(), None);
    }
}
