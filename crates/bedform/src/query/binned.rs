//! Blocks that the bins of value indexes decide: each part of the condition holds for whole bins of
//! one array, or needs arrays in memory alone. Only the numbers of the bins are read.

use bedform_geometry::{Region, element_count};
use bedform_query::{Decision, Predicate, PredicateScratch, ValueRange, ValueSlice};

use super::columns::SpreadBuffer;
use super::frame::BlockBox;
use super::indexed::IndexRanges;
use super::plan::Residents;
use crate::error::Result;
use crate::index::each_run;

/// A block that bins decide.
#[derive(Debug, Clone)]
pub(super) struct BinnedBlock {
    conditions: Vec<BinCondition>,
    /// Indexes of the parts of the condition that arrays in memory decide.
    in_memory: Vec<usize>,
    /// The number of matches, where the counts of the bins tell it.
    pub(super) count: Option<u64>,
}

/// The bins of one array in which a part of the condition holds.
#[derive(Debug, Clone)]
struct BinCondition {
    operand: usize,
    block: IndexedBlock,
    /// A bit for each number of a bin.
    matches: [u64; 4],
}

/// A block of an index, and the box in it that a block of a query takes.
#[derive(Debug, Clone)]
pub(super) struct IndexedBlock {
    pub(super) at: Vec<u64>,
    /// The checksum of the numbers of its elements.
    pub(super) checksum: u32,
    /// Its shape.
    pub(super) whole: Vec<u64>,
    /// The start of the box in it, and the shape of the box.
    pub(super) start: Vec<u64>,
    pub(super) shape: Vec<u64>,
}

/// The bins of a block: the range of each that has elements, and their number.
pub(super) struct KnownBins {
    pub(super) block: IndexedBlock,
    /// Numbers of bins, their ranges, and counts of elements.
    pub(super) present: Vec<(u8, ValueRange, u64)>,
}

/// The parts of a condition, all of which must hold.
pub(super) struct Conjuncts {
    parts: Vec<Predicate>,
    /// The operands of each.
    used: Vec<Vec<usize>>,
}

impl Conjuncts {
    pub(super) fn of(predicate: &Predicate) -> Self {
        let parts = predicate.conjuncts();
        let used = parts.iter().map(Predicate::operands_used).collect();
        Self { parts, used }
    }

    /// Returns what bins say of a block: `None` if some part needs elements that are not in memory.
    /// `ranges` are those of the operands in the block; `bins` finds the bins of an operand there.
    pub(super) fn decide(
        &self,
        ranges: &[Option<ValueRange>],
        residents: &Residents,
        bins: impl Fn(usize) -> Option<KnownBins>,
    ) -> Option<BinnedBlock> {
        let mut found = BinnedBlock { conditions: Vec::new(), in_memory: Vec::new(), count: None };
        let mut count = None;
        for (number, (part, used)) in self.parts.iter().zip(&self.used).enumerate() {
            if part.decide(ranges) == Decision::All {
                continue;
            }
            if used.iter().all(|at| residents.columns[*at].is_some()) {
                found.in_memory.push(number);
                continue;
            }
            let [operand] = used.as_slice() else { return None };
            let known = bins(*operand)?;
            let (matches, counted) = matching_bins(part, *operand, ranges, &known)?;
            let block = known.block;
            let is_whole = block.whole == block.shape;
            count = is_whole.then_some(counted);
            found.conditions.push(BinCondition { operand: *operand, block, matches });
        }
        let is_counted = found.conditions.len() == 1 && found.in_memory.is_empty();
        found.count = count.filter(|_| is_counted);
        Some(found)
    }

    /// Fills the mask of a block by the numbers of its bins. Returns the number of matches; `None`
    /// if the numbers of a bin cannot be read.
    ///
    /// # Errors
    /// Those of arrays in memory.
    pub(super) fn evaluate(
        &self,
        block: &BinnedBlock,
        bounds: &BlockBox,
        indexes: &[Option<IndexRanges>],
        residents: &Residents,
        mask: &mut Vec<u8>,
    ) -> Result<Option<u64>> {
        mask.clear();
        mask.resize(bounds.len(), 1);
        for condition in &block.conditions {
            let index = indexes.get(condition.operand).and_then(Option::as_ref);
            let Some(numbers) = index.and_then(|index| index.numbers(&condition.block)) else {
                return Ok(None);
            };
            condition.apply(&numbers, mask);
        }
        let mut found = Vec::new();
        for &number in &block.in_memory {
            let (part, used) = (&self.parts[number], &self.used[number]);
            found.resize(mask.len(), 0);
            let mut rooms: Vec<SpreadBuffer> =
                residents.columns.iter().map(|_| SpreadBuffer::default()).collect();
            let mut slices = vec![ValueSlice::Bool(&[]); residents.columns.len()];
            for (at, room) in rooms.iter_mut().enumerate().filter(|(at, _)| used.contains(at)) {
                if let Some(column) = &residents.columns[at] {
                    slices[at] = column.of_block(bounds)?.tile(0..mask.len(), room)?;
                }
            }
            part.evaluate(&slices, &mut PredicateScratch::default(), &mut found);
            mask.iter_mut().zip(&found).for_each(|(mask, found)| *mask &= found);
        }
        Ok(Some(mask.iter().map(|matches| u64::from(*matches)).sum()))
    }
}

/// The bins in which a part holds, and the number of their elements; `None` if it holds for some
/// values of a bin and not for others.
fn matching_bins(
    part: &Predicate,
    operand: usize,
    ranges: &[Option<ValueRange>],
    known: &KnownBins,
) -> Option<([u64; 4], u64)> {
    let mut of_bin = ranges.to_vec();
    let (mut matches, mut counted) = ([0_u64; 4], 0);
    for (number, range, count) in &known.present {
        of_bin[operand] = Some(*range);
        match part.decide(&of_bin) {
            Decision::None => {}
            Decision::All => {
                matches[usize::from(*number >> 6)] |= 1 << (number & 63);
                counted += count;
            }
            Decision::Some => return None,
        }
    }
    Some((matches, counted))
}

impl BinnedBlock {
    /// The bytes of the numbers that it reads, about.
    pub(super) fn stored_bytes(&self, indexes: &[Option<IndexRanges>]) -> u64 {
        let bytes = |condition: &BinCondition| {
            let index = indexes.get(condition.operand).and_then(Option::as_ref);
            let elements = element_count(&condition.block.whole).unwrap_or(0);
            index.map_or(0, |index| index.stored_bytes_of(elements))
        };
        self.conditions.iter().map(bytes).sum()
    }
}

impl BinCondition {
    /// Clears the mask at the elements of other bins.
    fn apply(&self, numbers: &[u8], mask: &mut [u8]) {
        let mut table = [0_u8; 256];
        for (number, holds) in (0..=u8::MAX).zip(&mut table) {
            *holds = u8::from(self.matches[usize::from(number >> 6)] >> (number & 63) & 1 == 1);
        }
        let IndexedBlock { whole, start, shape, .. } = &self.block;
        let mut rest = mask;
        each_run(whole, start, shape, &mut |run| {
            let taken = std::mem::take(&mut rest);
            let (of_run, behind) = taken.split_at_mut(run.len().min(taken.len()));
            rest = behind;
            for (holds, number) in of_run.iter_mut().zip(numbers.get(run).unwrap_or_default()) {
                *holds &= table[usize::from(*number)];
            }
        });
    }
}

impl IndexedBlock {
    /// The box of a region in the only block of an index that it touches.
    pub(super) fn new(at: Vec<u64>, checksum: u32, whole: &Region, region: &Region) -> Self {
        let start = region.start().iter().zip(whole.start()).map(|(at, first)| at - first);
        Self {
            at,
            checksum,
            whole: whole.shape().to_vec(),
            start: start.collect(),
            shape: region.shape().to_vec(),
        }
    }
}
