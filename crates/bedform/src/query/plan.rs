//! The plan of a query: the blocks that may match, what is known of each, and batches of them.
//!
//! Conditions on one-dimensional arrays, such as `lat > 40`, are evaluated first, over the whole
//! region: blocks without a match along some dimension are left out, the others are cut to the part
//! between the first match and the last. Ranges of stored values, from the value index and of
//! one-dimensional arrays, then leave out blocks in which nothing can match, and recognize those in
//! which everything does, which are not read. The others are cut at the blocks of an index, which
//! are smaller: if indexes decide each of these parts, the array is not read; if not, the block is
//! read as a whole.

use bedform_query::{Decision, Predicate, PredicateScratch, ValueRange, ValueSlice, range_of};

use super::binned::{BinnedBlock, Conjuncts, KnownArrays};
use super::columns::{QueryColumn, SpreadBuffer};
use super::frame::{BlockBox, Frame};
use super::operand::QueryOperand;
use crate::error::Result;

/// Bytes of elements that a batch reads of all arrays together, about.
const BATCH_BYTES: u64 = 8 << 20;
/// The most blocks of a batch.
const BATCH_BLOCKS_MAX: usize = 1 << 12;
/// Blocks that a thread plans at least.
const PLANNED_MIN: u64 = 128;
/// The largest array that is read whole before the first block: one that spans all dimensions, and
/// one that repeats along some, whose elements many blocks need.
const RESIDENT_BYTES_MAX: u64 = 64 << 10;
const REPEATED_BYTES_MAX: u64 = 8 << 20;

/// A block that may match.
#[derive(Debug, Clone)]
pub(super) struct PlannedBlock {
    pub(super) bounds: BlockBox,
    pub(super) state: BlockState,
}

/// The state of a block in a plan.
#[derive(Debug, Clone)]
pub(super) enum BlockState {
    /// Every element matches.
    Whole,
    /// Indexes decide.
    Binned(BinnedBlock),
    /// Its elements must be read.
    Read,
}

/// The blocks of a query that may match, in C order, and counts of all.
#[derive(Debug, Default)]
pub(super) struct QueryPlan {
    pub(super) blocks: Vec<PlannedBlock>,
    /// Blocks of the region.
    pub(super) total: u64,
    /// Blocks that one-dimensional conditions leave out.
    pub(super) outside: u64,
    /// Blocks that indexes leave out.
    pub(super) pruned: u64,
    /// Blocks in which everything matches.
    pub(super) whole: u64,
    /// Blocks that indexes decide; several of `blocks` may be parts of one.
    pub(super) binned: u64,
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
    pub(super) fn cut(&self, block: &mut BlockBox, frame: &Frame) -> bool {
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
    pub(super) fn new(
        arrays: KnownArrays<'_>,
        predicate: Option<&Predicate>,
        threads: usize,
    ) -> Self {
        let total = arrays.frame.block_count();
        let Some(predicate) = predicate else { return Self::of_all(arrays, total) };
        let planning = Planning { arrays, predicate, conjuncts: Conjuncts::of(predicate) };
        let parts = u64::try_from(threads.max(1)).unwrap_or(1).min(total.div_ceil(PLANNED_MIN));
        let ranges: Vec<std::ops::Range<u64>> =
            (0..parts).map(|part| total * part / parts..total * (part + 1) / parts).collect();
        let plans = std::thread::scope(|scope| {
            let planned = |range: &std::ops::Range<u64>| {
                let (planning, range) = (&planning, range.clone());
                scope.spawn(move || planning.plan(range))
            };
            // The caller's thread plans the first part.
            let others: Vec<_> = ranges.iter().skip(1).map(planned).collect();
            let first = ranges.first().map(|range| planning.plan(range.clone()));
            let others = others.into_iter().map(|other| match other.join() {
                Ok(plan) => plan,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            first.into_iter().chain(others).collect::<Vec<_>>()
        });
        let mut plan = plans.into_iter().fold(Self::default(), Self::followed_by);
        plan.total = total;
        plan
    }

    /// The plan in which every block matches whole.
    fn of_all(arrays: KnownArrays<'_>, total: u64) -> Self {
        let mut plan = Self { total, ..Self::default() };
        for number in 0..total {
            let mut bounds = arrays.frame.block(number);
            match arrays.residents.cut(&mut bounds, arrays.frame) {
                true => plan.push(bounds, BlockState::Whole),
                false => plan.outside += 1,
            }
        }
        plan
    }

    fn followed_by(mut self, next: Self) -> Self {
        self.blocks.extend(next.blocks);
        self.outside += next.outside;
        self.pruned += next.pruned;
        self.whole += next.whole;
        self.binned += next.binned;
        self
    }

    fn push(&mut self, bounds: BlockBox, state: BlockState) {
        match &state {
            BlockState::Whole => self.whole += 1,
            BlockState::Binned(_) => self.binned += 1,
            BlockState::Read => {}
        }
        self.blocks.push(PlannedBlock { bounds, state });
    }

    /// The blocks whose elements must be read.
    pub(super) fn read(&self) -> impl Iterator<Item = &PlannedBlock> {
        self.blocks.iter().filter(|block| matches!(block.state, BlockState::Read))
    }

    /// Returns the plan in which no block is known to match.
    pub(super) fn undecided(mut self) -> Self {
        self.blocks.iter_mut().for_each(|block| block.state = BlockState::Read);
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

impl KnownArrays<'_> {
    /// Returns the range of the elements that a block takes of each operand, where it is known.
    pub(super) fn ranges(&self, bounds: &BlockBox) -> Vec<Option<ValueRange>> {
        let ranges = self.operands.iter().enumerate().map(|(at, operand)| {
            let of_index = || {
                let (index, region) = self.index_of(at, bounds)?;
                index.range(&region)
            };
            self.residents.range(at, operand, bounds).or_else(of_index)
        });
        ranges.collect()
    }
}

/// The planning of a query with a condition.
struct Planning<'a> {
    arrays: KnownArrays<'a>,
    predicate: &'a Predicate,
    conjuncts: Conjuncts,
}

impl Planning<'_> {
    /// Plans some blocks of the frame.
    fn plan(&self, numbers: std::ops::Range<u64>) -> QueryPlan {
        let KnownArrays { frame, residents, .. } = self.arrays;
        let mut plan = QueryPlan::default();
        for number in numbers {
            let mut bounds = frame.block(number);
            if !residents.cut(&mut bounds, frame) {
                plan.outside += 1;
                continue;
            }
            match self.decide(&bounds, false) {
                None => plan.pruned += 1,
                Some(BlockState::Read) => self.divide(bounds, &mut plan),
                Some(state) => plan.push(bounds, state),
            }
        }
        plan
    }

    /// Adds the parts of a block that may match, cut as the blocks of an index, if indexes decide all
    /// of them; else the block, which must be read.
    fn divide(&self, bounds: BlockBox, plan: &mut QueryPlan) {
        let mut decided = Vec::new();
        for bounds in self.arrays.parts_of(&bounds) {
            match self.decide(&bounds, true) {
                None => {}
                Some(BlockState::Read) => {
                    decided.clear();
                    decided.push(PlannedBlock { bounds, state: BlockState::Read });
                    break;
                }
                Some(state) => decided.push(PlannedBlock { bounds, state }),
            }
        }
        match decided.as_slice() {
            [] => plan.pruned += 1,
            [PlannedBlock { state: BlockState::Read, .. }] => plan.push(bounds, BlockState::Read),
            _ => {
                plan.binned += 1;
                plan.blocks.extend(decided);
            }
        }
    }

    /// Returns the state of a block by the ranges of its elements and, with `bins`, by the bins of an
    /// index; `None` if nothing matches.
    fn decide(&self, bounds: &BlockBox, bins: bool) -> Option<BlockState> {
        let ranges = self.arrays.ranges(bounds);
        match self.predicate.decide(&ranges) {
            Decision::None => None,
            Decision::All => Some(BlockState::Whole),
            Decision::Some if !bins => Some(BlockState::Read),
            Decision::Some => match self.conjuncts.decide(&ranges, self.arrays, bounds) {
                Some(binned) if binned.count == Some(0) => None,
                Some(binned) => Some(BlockState::Binned(binned)),
                None => Some(BlockState::Read),
            },
        }
    }
}

#[allow(clippy::cast_possible_truncation)]
fn index(value: u64) -> usize {
    // Lengths of arrays that are in memory.
    value as usize
}
