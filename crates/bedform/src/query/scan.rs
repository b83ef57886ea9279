//! Execution of a query: batches of blocks are read, evaluated and given to a collector.
//!
//! Several threads take batches. Each reads the arrays of the expression for the blocks that are
//! not decided, evaluates these, then reads the arrays whose values are asked for, of the blocks
//! with matches alone. The parts that a collector makes of blocks are merged in the order of the
//! blocks, so that sums of floats come out the same each time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bedform_query::{Predicate, PredicateScratch, ValueSlice, Values};
use zerocopy::IntoBytes;

use super::binned::{BinnedMatches, Conjuncts, KnownArrays};
use super::columns::{QueryColumn, SpreadBuffer};
use super::frame::{BlockBox, Frame};
use super::indexed::IndexRanges;
use super::operand::QueryOperand;
use super::plan::{BlockState, PlannedBlock, QueryPlan, Residents};
use super::recording::QueryRecord;
use crate::error::{Error, ErrorKind, Result};
use crate::threads::ordered::in_order;
use crate::threads::workers::check_cancelled;

/// Elements that are evaluated at once.
const TILE: usize = 16 << 10;

/// A block with at least one matching element.
pub(super) struct MatchedBlock<'b> {
    pub(super) bounds: &'b BlockBox,
    /// A byte for each element in C order, 1 where it matches; `None` if all match.
    pub(super) mask: Option<&'b [u8]>,
    /// The number of matching elements.
    pub(super) count: u64,
    /// Decoded elements of the arrays whose values are asked for, in C order of the block.
    pub(super) values: &'b [Values],
}

/// A taker of the matches of a query.
pub(super) trait Collector: Sync {
    /// The contribution of one block.
    type Part: Send;

    /// Makes the part of a block; called by several threads.
    ///
    /// # Errors
    /// Those of the collector, which end the query.
    fn collect(&self, block: &MatchedBlock<'_>) -> Result<Self::Part>;

    /// Takes the part of the next block, in C order of the blocks.
    ///
    /// # Errors
    /// Those of the collector, which end the query.
    fn merge(&self, part: Self::Part) -> Result<()>;

    /// Returns true once further blocks change nothing.
    fn is_done(&self) -> bool {
        false
    }

    /// Returns true if the places of matches in this block change nothing: their number does.
    fn only_counts(&self, bounds: &BlockBox) -> bool {
        let _ = bounds;
        false
    }

    /// Returns true if nothing in this block can change the result any more.
    fn can_skip(&self, bounds: &BlockBox) -> bool {
        let _ = bounds;
        false
    }
}

/// Everything that the threads of a query share.
pub(super) struct QueryScan<'s> {
    pub(super) frame: &'s Frame,
    /// The arrays of the expression, then those whose values are asked for.
    pub(super) operands: &'s [QueryOperand],
    pub(super) predicate: Option<&'s Predicate>,
    /// The operands whose values are asked for.
    pub(super) wanted: &'s [usize],
    pub(super) residents: &'s Residents,
    pub(super) plan: &'s QueryPlan,
    /// The value index of each operand that has one.
    pub(super) indexes: &'s [Option<IndexRanges>],
    /// The parts of the predicate.
    pub(super) conjuncts: &'s Conjuncts,
    pub(super) threads: usize,
    /// The record of the query, if it is recorded.
    pub(super) record: Option<&'s QueryRecord>,
    /// The number of matching elements so far.
    pub(super) matched: AtomicU64,
}

/// The memory of one thread.
struct Worker {
    columns: Vec<QueryColumn>,
    rooms: Vec<SpreadBuffer>,
    scratch: PredicateScratch,
    masks: Vec<Vec<u8>>,
    /// Of the blocks of a batch, the matches that indexes gave.
    binned: Vec<Option<BinnedMatches>>,
    values: Vec<Values>,
}

impl QueryScan<'_> {
    /// Runs the query.
    ///
    /// # Errors
    /// Those of reads and of the collector; `Interrupted`.
    pub(super) fn run<C: Collector>(&self, collector: &C) -> Result<()> {
        let item_bytes = self.operands.iter().enumerate();
        let item_bytes = item_bytes
            .filter(|(at, _)| self.residents.columns[*at].is_none())
            .map(|(_, operand)| operand.decoding.stored().bytes() as u64)
            .sum();
        let batches = self.plan.batches(item_bytes);
        let is_done = AtomicBool::new(false);
        let start = || Worker {
            columns: self.operands.iter().map(|of| QueryColumn::new(of, self.frame)).collect(),
            rooms: self.operands.iter().map(|_| SpreadBuffer::default()).collect(),
            scratch: PredicateScratch::default(),
            masks: Vec::new(),
            binned: Vec::new(),
            values: Vec::new(),
        };
        let make = |at: usize, worker: &mut Worker| {
            check_cancelled("the query was stopped")?;
            if is_done.load(Ordering::Relaxed) || collector.is_done() {
                is_done.store(true, Ordering::Relaxed);
                return Ok(Vec::new());
            }
            self.run_batch(&self.plan.blocks[batches[at].clone()], worker, collector)
        };
        let take =
            |parts: Vec<C::Part>| parts.into_iter().try_for_each(|part| collector.merge(part));
        in_order(batches.len(), self.threads, 2 * self.threads, start, make, take)
    }

    fn run_batch<C: Collector>(
        &self,
        blocks: &[PlannedBlock],
        worker: &mut Worker,
        collector: &C,
    ) -> Result<Vec<C::Part>> {
        let blocks: Vec<&PlannedBlock> =
            blocks.iter().filter(|block| !collector.can_skip(&block.bounds)).collect();
        let used = self.predicate.map(Predicate::operands_used).unwrap_or_default();
        let mut counts = self.known_counts(&blocks, worker, collector)?;
        let is_read: Vec<bool> = counts.iter().map(Option::is_none).collect();
        let undecided = blocks.iter().zip(&is_read).filter(|(_, is_read)| **is_read);
        let undecided: Vec<&BlockBox> = undecided.map(|(block, _)| &block.bounds).collect();
        if !undecided.is_empty() {
            for &at in &used {
                self.read(at, worker, undecided.iter().copied())?;
            }
        }
        self.evaluate(&blocks, &used, worker, &mut counts)?;
        let counts: Vec<u64> = counts.into_iter().map(Option::unwrap_or_default).collect();
        self.matched.fetch_add(counts.iter().sum(), Ordering::Relaxed);
        let matched: Vec<usize> = (0..blocks.len()).filter(|at| counts[*at] > 0).collect();
        for &at in self.wanted {
            let lacks = |number: &&usize| !has_values(worker.binned[**number].as_ref(), at);
            let lacking: Vec<usize> = matched.iter().filter(lacks).copied().collect();
            // Its elements are there if the condition needed them in each of these blocks.
            if used.contains(&at) && lacking.iter().all(|number| is_read[*number]) {
                continue;
            }
            self.read(at, worker, lacking.iter().map(|number| &blocks[*number].bounds))?;
        }
        let mut parts = Vec::with_capacity(matched.len());
        for number in matched {
            let (block, count) = (blocks[number], counts[number]);
            self.decode(number, &block.bounds, worker)?;
            let all = count == block.bounds.len() as u64 || collector.only_counts(&block.bounds);
            let mask = (!all).then_some(worker.masks[number].as_slice());
            let (bounds, values) = (&block.bounds, worker.values.as_slice());
            parts.push(collector.collect(&MatchedBlock { bounds, mask, count, values })?);
        }
        Ok(parts)
    }

    /// Reads what blocks need of an operand, unless that is in memory.
    fn read<'b>(
        &self,
        at: usize,
        worker: &mut Worker,
        blocks: impl Iterator<Item = &'b BlockBox>,
    ) -> Result<()> {
        if self.residents.columns[at].is_some() {
            return Ok(());
        }
        worker.columns[at].read(&self.operands[at], blocks)?;
        if let Some(record) = self.record {
            record.add_bytes(at, worker.columns[at].bytes_read());
        }
        Ok(())
    }

    /// Returns the number of matches of each block for which no elements must be read, `None` for
    /// the others. Fills the masks of blocks that bins decide.
    fn known_counts<C: Collector>(
        &self,
        blocks: &[&PlannedBlock],
        worker: &mut Worker,
        collector: &C,
    ) -> Result<Vec<Option<u64>>> {
        let Worker { masks, binned: matches, .. } = worker;
        masks.resize_with(masks.len().max(blocks.len()), Vec::new);
        matches.clear();
        matches.resize_with(blocks.len(), || None);
        let Self { operands, frame, residents, indexes, .. } = *self;
        let arrays = KnownArrays { operands, frame, residents, indexes };
        let mut counts = Vec::with_capacity(blocks.len());
        for ((block, mask), matches) in blocks.iter().zip(masks).zip(matches) {
            let bounds = &block.bounds;
            counts.push(match &block.state {
                BlockState::Whole => Some(bounds.len() as u64),
                BlockState::Read => None,
                BlockState::Binned(binned) => {
                    let count = || self.conjuncts.count(binned, bounds, arrays);
                    let only_counts = collector.only_counts(bounds) && self.wanted.is_empty();
                    match only_counts.then(count).flatten() {
                        Some(count) => Some(count),
                        None => {
                            *matches = self.conjuncts.evaluate(binned, bounds, arrays, mask)?;
                            matches.as_ref().map(|matches| matches.count)
                        }
                    }
                }
            });
        }
        Ok(counts)
    }

    /// Evaluates the blocks that are not decided, into the worker's masks, and counts their
    /// matches.
    fn evaluate(
        &self,
        blocks: &[&PlannedBlock],
        used: &[usize],
        worker: &mut Worker,
        counts: &mut [Option<u64>],
    ) -> Result<()> {
        let Worker { columns, rooms, scratch, masks, .. } = worker;
        let Some(predicate) = self.predicate else { return Ok(()) };
        for ((block, mask), known) in blocks.iter().zip(masks).zip(counts) {
            if known.is_some() {
                continue;
            }
            let elements = block.bounds.len();
            mask.resize(elements, 0);
            let column = |at: &usize| {
                let column = self.residents.columns[*at].as_ref().unwrap_or(&columns[*at]);
                Ok((*at, column.of_block(&block.bounds)?))
            };
            let parts = used.iter().map(column).collect::<Result<Vec<_>>>()?;
            let mut from = 0;
            let mut count = 0_u64;
            while from < elements {
                let to = elements.min(from + TILE);
                let mut slices = vec![ValueSlice::Bool(&[]); self.operands.len()];
                for (room, (at, part)) in rooms.iter_mut().zip(&parts) {
                    slices[*at] = part.tile(from..to, room)?;
                }
                let found = &mut mask[from..to];
                predicate.evaluate(&slices, scratch, found);
                count += count_ones(found);
                from = to;
            }
            *known = Some(count);
        }
        Ok(())
    }

    /// Decodes the values that are asked for, of block `number` of a batch.
    fn decode(&self, number: usize, bounds: &BlockBox, worker: &mut Worker) -> Result<()> {
        let Worker { columns, rooms, values, binned, .. } = worker;
        values.clear();
        let matches = binned[number].as_ref();
        for (room, &at) in rooms.iter_mut().zip(self.wanted) {
            let decoding = &self.operands[at].decoding;
            let of_index = matches.filter(|_| has_values(matches, at));
            let stored = match of_index {
                Some(matches) => {
                    let bytes = matches.values.as_bytes();
                    let bytes = &bytes[..bounds.len() * decoding.stored().bytes()];
                    ValueSlice::of_bytes(decoding.stored(), bytes).ok_or_else(|| {
                        Error::new(ErrorKind::Internal, "an index has values of another type")
                    })?
                }
                None => {
                    let column = self.residents.columns[at].as_ref().unwrap_or(&columns[at]);
                    column.of_block(bounds)?.tile(0..bounds.len(), room)?
                }
            };
            let mut decoded = Values::new(decoding.decoded());
            decoding.decode(stored, &mut decoded);
            values.push(decoded);
        }
        Ok(())
    }
}

/// True if an index gave the stored elements of an operand at all matches of a block.
fn has_values(matches: Option<&BinnedMatches>, operand: usize) -> bool {
    matches.is_some_and(|matches| matches.operand == Some(operand))
}

/// Counts bytes that are 1; all others are 0.
pub(super) fn count_ones(mask: &[u8]) -> u64 {
    // Sums of 255 bytes fit a byte, and are added by vectors of bytes.
    mask.chunks(255 * 64).map(|part| part.iter().map(|byte| u64::from(*byte)).sum::<u64>()).sum()
}
