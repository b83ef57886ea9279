//! The plan of a query: the blocks that may match, what is known of each, and batches of them.
//!
//! Conditions on one-dimensional arrays, such as `lat > 40`, are evaluated first, over the whole
//! region: blocks without a match along some dimension are left out, the others are cut to the part
//! between the first match and the last. Ranges of stored values, from the value index and of
//! one-dimensional arrays, then leave out blocks in which nothing can match, and recognize those in
//! which everything does, which are not read.

use bedform_query::{Decision, Predicate, PredicateScratch, ValueRange, ValueSlice, range_of};

use super::columns::{QueryColumn, SpreadBuffer};
use super::frame::{BlockBox, Frame};
use super::operand::QueryOperand;
use crate::error::Result;

/// Bytes of elements that a batch reads of all arrays together, about.
const BATCH_BYTES: u64 = 8 << 20;
/// The most blocks of a batch.
const BATCH_BLOCKS_MAX: usize = 1 << 12;
/// The largest array that is read whole before the first block: one that spans all dimensions, and
/// one that repeats along some, whose elements many blocks need.
const RESIDENT_BYTES_MAX: u64 = 64 << 10;
const REPEATED_BYTES_MAX: u64 = 8 << 20;

/// A block that may match.
#[derive(Debug, Clone)]
pub(super) struct PlannedBlock {
    pub(super) bounds: BlockBox,
    /// True if every element matches.
    pub(super) matches_whole: bool,
}

/// The blocks of a query that may match, in C order, and counts of all.
#[derive(Debug, Default)]
pub(super) struct QueryPlan {
    pub(super) blocks: Vec<PlannedBlock>,
    /// Blocks of the region.
    pub(super) total: u64,
    /// Blocks that one-dimensional conditions leave out.
    pub(super) outside: u64,
    /// Blocks that ranges leave out.
    pub(super) pruned: u64,
}

/// The arrays of a query that are read whole, and the conditions that they decide.
#[derive(Debug)]
pub(super) struct Residents {
    /// For each operand, its elements in the region, if it is small.
    pub(super) columns: Vec<Option<QueryColumn>>,
    /// For each dimension, a byte for each index of the region that is 1 if conditions on this
    /// dimension alone hold there; `None` if there are no such conditions.
    masks: Vec<Option<Vec<u8>>>,
}

/// The ranges of the stored values of blocks of one array, as a value index knows them.
pub(super) trait BlockRanges: Sync {
    /// Returns the range of the elements of the array from `start`, `shape` of them; `None` if it
    /// is unknown.
    fn range(&self, start: &[u64], shape: &[u64]) -> Option<ValueRange>;
}

impl Residents {
    /// Reads the small arrays of a query, and evaluates conditions on one dimension alone.
    ///
    /// # Errors
    /// Those of reads.
    pub(super) fn read(
        operands: &[QueryOperand],
        frame: &Frame,
        predicate: Option<&Predicate>,
    ) -> Result<Self> {
        let whole =
            BlockBox { start: frame.region.start().to_vec(), shape: frame.region.shape().to_vec() };
        let mut columns = Vec::with_capacity(operands.len());
        for operand in operands {
            let most = match operand.dims.len() < frame.dims.len() {
                true => REPEATED_BYTES_MAX,
                false => RESIDENT_BYTES_MAX,
            };
            let is_small = operand.bytes() <= most && !frame.region.is_empty();
            columns.push(match is_small {
                true => {
                    let mut column = QueryColumn::new(operand, frame);
                    column.read(operand, std::iter::once(&whole))?;
                    Some(column)
                }
                false => None,
            });
        }
        let mut residents = Self { columns, masks: vec![None; frame.dims.len()] };
        for condition in predicate.map(Predicate::conjuncts).unwrap_or_default() {
            residents.evaluate_along(&condition, operands, frame)?;
        }
        Ok(residents)
    }

    /// Makes residents of a query that reads nothing before its blocks.
    pub(super) fn none(operands: usize, dims: usize) -> Self {
        Self { columns: (0..operands).map(|_| None).collect(), masks: vec![None; dims] }
    }

    /// Evaluates a condition if all its arrays have one common dimension and no other.
    fn evaluate_along(
        &mut self,
        condition: &Predicate,
        operands: &[QueryOperand],
        frame: &Frame,
    ) -> Result<()> {
        let used = condition.operands_used();
        let dim = |at: &usize| match operands[*at].dims.as_slice() {
            [only] if self.columns[*at].is_some() => Some(only),
            _ => None,
        };
        let Some(Some(first)) = used.first().map(dim) else { return Ok(()) };
        if used.iter().any(|at| dim(at) != Some(first)) {
            return Ok(());
        }
        let axis = frame.axis(first)?;
        let mut along =
            BlockBox { start: frame.region.start().to_vec(), shape: vec![1; frame.dims.len()] };
        along.shape[axis] = frame.region.shape()[axis];
        let count = along.len();
        let mut rooms: Vec<SpreadBuffer> =
            operands.iter().map(|_| SpreadBuffer::default()).collect();
        let mut slices = vec![ValueSlice::Bool(&[]); operands.len()];
        for (at, room) in rooms.iter_mut().enumerate().filter(|(at, _)| used.contains(at)) {
            if let Some(column) = &self.columns[at] {
                slices[at] = column.of_block(&along)?.tile(0..count, room)?;
            }
        }
        let mut found = vec![0; count];
        condition.evaluate(&slices, &mut PredicateScratch::default(), &mut found);
        match &mut self.masks[axis] {
            None => self.masks[axis] = Some(found),
            Some(known) => known.iter_mut().zip(found).for_each(|(known, found)| *known &= found),
        }
        Ok(())
    }

    /// Cuts a block to the part between the first and the last index at which the conditions on
    /// each dimension hold. Returns false if there is none.
    fn cut(&self, block: &mut BlockBox, frame: &Frame) -> bool {
        for (axis, mask) in self.masks.iter().enumerate() {
            let Some(mask) = mask else { continue };
            let from = index(block.start[axis] - frame.region.start()[axis]);
            let part = &mask[from..from + index(block.shape[axis])];
            let Some(first) = part.iter().position(|holds| *holds != 0) else { return false };
            let last = part.iter().rposition(|holds| *holds != 0).unwrap_or(first);
            block.start[axis] += first as u64;
            block.shape[axis] = (last - first + 1) as u64;
        }
        true
    }

    /// Returns the range of the elements that a block takes of a one-dimensional array.
    fn range(&self, at: usize, operand: &QueryOperand, block: &BlockBox) -> Option<ValueRange> {
        let column = self.columns[at].as_ref().filter(|_| operand.dims.len() == 1)?;
        let mut along = block.clone();
        column.reduce(&mut along);
        let mut room = SpreadBuffer::default();
        let elements = column.of_block(&along).ok()?.tile(0..along.len(), &mut room).ok()?;
        let (least_and_greatest, missing) = range_of(&operand.decoding, elements);
        Some(ValueRange { least_and_greatest, missing: missing > 0 })
    }
}

impl QueryPlan {
    /// Plans a query. Without a predicate every block matches whole.
    pub(super) fn new<I: BlockRanges>(
        operands: &[QueryOperand],
        frame: &Frame,
        predicate: Option<&Predicate>,
        residents: &Residents,
        indexes: &[Option<I>],
    ) -> Self {
        let mut plan = Self { total: frame.block_count(), ..Self::default() };
        for number in 0..plan.total {
            let mut bounds = frame.block(number);
            if !residents.cut(&mut bounds, frame) {
                plan.outside += 1;
                continue;
            }
            let decision = match predicate {
                None => Decision::All,
                Some(predicate) => {
                    let ranges = operands.iter().enumerate().map(|(at, operand)| {
                        let of_index = || {
                            let (start, shape) = operand.region_in(frame, &bounds);
                            indexes.get(at)?.as_ref()?.range(&start, &shape)
                        };
                        residents.range(at, operand, &bounds).or_else(of_index)
                    });
                    predicate.decide(&ranges.collect::<Vec<_>>())
                }
            };
            match decision {
                Decision::None => plan.pruned += 1,
                Decision::All => plan.blocks.push(PlannedBlock { bounds, matches_whole: true }),
                Decision::Some => plan.blocks.push(PlannedBlock { bounds, matches_whole: false }),
            }
        }
        plan
    }

    /// Returns the plan in which no block is known to match.
    pub(super) fn undecided(mut self) -> Self {
        self.blocks.iter_mut().for_each(|block| block.matches_whole = false);
        self
    }

    /// Cuts the blocks into batches of about equal bytes, as ranges of their list.
    pub(super) fn batches(&self, item_bytes: u64) -> Vec<std::ops::Range<usize>> {
        let (mut batches, mut from, mut bytes) = (Vec::new(), 0, 0_u64);
        for (at, block) in self.blocks.iter().enumerate() {
            bytes = bytes.saturating_add(block.bounds.len() as u64 * item_bytes.max(1));
            if bytes >= BATCH_BYTES || at + 1 - from >= BATCH_BLOCKS_MAX {
                batches.push(from..at + 1);
                (from, bytes) = (at + 1, 0);
            }
        }
        if from < self.blocks.len() {
            batches.push(from..self.blocks.len());
        }
        batches
    }
}

#[allow(clippy::cast_possible_truncation)]
fn index(value: u64) -> usize {
    // Lengths of arrays that are in memory.
    value as usize
}
