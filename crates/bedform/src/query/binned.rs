//! Blocks that value indexes decide: each part of the condition holds for whole blocks or bins of
//! one array, compares elements of the outermost bins, or needs arrays in memory alone. Of these
//! blocks the index is read, and not the array.

use bedform_geometry::Region;
use bedform_query::{Decision, Predicate, PredicateScratch, ValueRange, ValueSlice};

use super::columns::SpreadBuffer;
use super::frame::{BlockBox, Frame};
use super::indexed::{IndexRanges, IndexedPart, KnownBins, TailValues};
use super::operand::QueryOperand;
use super::plan::Residents;
use super::scan::count_ones;
use crate::error::Result;
use crate::index::each_run;

/// A block that indexes decide.
#[derive(Debug, Clone, Default)]
pub(super) struct BinnedBlock {
    /// The parts of the condition that an index decides, and the operand of each.
    indexed: Vec<(usize, usize)>,
    /// The parts of the condition that arrays in memory decide.
    in_memory: Vec<usize>,
    /// The number of matches, where ranges and counts of bins tell it.
    pub(super) count: Option<u64>,
    /// The bytes of the index that it reads, about.
    pub(super) stored_bytes: u64,
}

/// The use of the bins of an array for a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BinUse {
    /// They do not decide it.
    None,
    /// The values in the outermost ones decide it.
    Tails,
    /// The numbers of the bins of all elements decide it.
    Numbers,
}

/// The parts of a condition, all of which must hold.
pub(super) struct Conjuncts {
    parts: Vec<Predicate>,
    /// The operands of each.
    used: Vec<Vec<usize>>,
}

/// The arrays of a query, those in memory, and the indexes.
#[derive(Clone, Copy)]
pub(super) struct KnownArrays<'a> {
    pub(super) operands: &'a [QueryOperand],
    pub(super) frame: &'a Frame,
    pub(super) residents: &'a Residents,
    pub(super) indexes: &'a [Option<IndexRanges>],
}

/// The elements of a block of an index for which a part of the condition holds.
enum Verdict {
    Nothing,
    Everything,
    Bins(BinMatches),
}

/// The bins of a block in which a part of the condition holds.
struct BinMatches {
    bins: KnownBins,
    /// A bit for each number of a bin.
    matches: [u64; 4],
    /// Elements in matching bins that are not outermost, and in those that are.
    inner: u64,
    outer: u64,
    /// True if it holds for some elements of an outermost bin and not for others.
    compares_tails: bool,
}

/// The elements of a block of a query for which, by an index, a part of the condition holds.
struct Survey {
    /// The number of matches, if it is known; at least one where it is not.
    count: Option<u64>,
    is_decided: bool,
    stored_bytes: u64,
}

/// The matches of a block by indexes.
pub(super) struct BinnedMatches {
    pub(super) count: u64,
    /// The operand of which `values` holds the stored elements at all matches, and zeros elsewhere.
    pub(super) operand: Option<usize>,
    pub(super) values: Vec<u64>,
}

impl KnownArrays<'_> {
    /// Returns the index of an operand, and the region of a block in its array.
    pub(super) fn index_of(
        &self,
        operand: usize,
        bounds: &BlockBox,
    ) -> Option<(&IndexRanges, Region)> {
        let index = self.indexes.get(operand)?.as_ref()?;
        let (start, shape) = self.operands.get(operand)?.region_in(self.frame, bounds);
        Some((index, Region::new(start, shape).ok()?))
    }

    /// Cuts a block at the blocks of the index whose array spans the frame in its order; one part if
    /// there is none.
    pub(super) fn parts_of(&self, bounds: &BlockBox) -> Vec<BlockBox> {
        let spans = |at: &usize| self.operands[*at].dims == self.frame.dims;
        let parts = (0..self.operands.len()).filter(spans).find_map(|at| {
            let (index, region) = self.index_of(at, bounds)?;
            index.parts(&region)
        });
        match parts {
            Some(parts) => parts.into_iter().map(|part| part.in_frame(bounds)).collect(),
            None => vec![bounds.clone()],
        }
    }
}

impl Conjuncts {
    pub(super) fn of(predicate: &Predicate) -> Self {
        let parts = predicate.conjuncts();
        let used = parts.iter().map(Predicate::operands_used).collect();
        Self { parts, used }
    }

    /// Returns the use of bins with these ranges, of one operand, for blocks that ranges do not
    /// decide. `has_tails` says that the values in the outermost ones are known.
    pub(super) fn bin_use(
        &self,
        operand: usize,
        bins: &[ValueRange],
        has_tails: bool,
        arrays: KnownArrays<'_>,
    ) -> BinUse {
        let is_outermost = |number: usize| has_tails && (number == 0 || number + 1 == bins.len());
        let mut found = BinUse::Tails;
        for (part, used) in self.parts.iter().zip(&self.used) {
            if used.iter().all(|at| arrays.residents.columns[*at].is_some()) {
                continue;
            }
            if *used != [operand] {
                return BinUse::None;
            }
            let mut ranges = none(arrays);
            for (number, bin) in bins.iter().enumerate() {
                ranges[operand] = Some(*bin);
                match part.decide(&ranges) {
                    _ if is_outermost(number) => {}
                    Decision::None => {}
                    Decision::All => found = BinUse::Numbers,
                    Decision::Some => return BinUse::None,
                }
            }
        }
        found
    }

    /// Returns what indexes say of a block: `None` if some part needs elements that are not in
    /// memory, and nothing excludes matches. `ranges` are those of the operands in the block.
    pub(super) fn decide(
        &self,
        ranges: &[Option<ValueRange>],
        arrays: KnownArrays<'_>,
        bounds: &BlockBox,
    ) -> Option<BinnedBlock> {
        let mut found = BinnedBlock::default();
        let mut is_decided = true;
        for (number, (part, used)) in self.parts.iter().zip(&self.used).enumerate() {
            if part.decide(ranges) == Decision::All {
                continue;
            }
            if used.iter().all(|at| arrays.residents.columns[*at].is_some()) {
                found.in_memory.push(number);
                continue;
            }
            let known = match used.as_slice() {
                [operand] => arrays.index_of(*operand, bounds).map(|index| (*operand, index)),
                _ => None,
            };
            let Some((operand, (index, region))) = known else {
                is_decided = false;
                continue;
            };
            let survey = survey(part, operand, ranges, index, &region);
            if survey.count == Some(0) {
                return Some(BinnedBlock { count: Some(0), ..BinnedBlock::default() });
            }
            is_decided &= survey.is_decided;
            found.stored_bytes += survey.stored_bytes;
            found.count = survey.count;
            found.indexed.push((number, operand));
        }
        let is_alone = found.indexed.len() == 1 && found.in_memory.is_empty();
        found.count = found.count.filter(|_| is_alone);
        is_decided.then_some(found)
    }

    /// Returns the number of matches of a block by counts and tails, without the places of all of
    /// them; `None` if that needs their places.
    pub(super) fn count(
        &self,
        block: &BinnedBlock,
        bounds: &BlockBox,
        arrays: KnownArrays<'_>,
    ) -> Option<u64> {
        let ([(number, operand)], []) = (block.indexed.as_slice(), block.in_memory.as_slice())
        else {
            return None;
        };
        if block.count.is_some() {
            return block.count;
        }
        let (part, (index, region)) = (&self.parts[*number], arrays.index_of(*operand, bounds)?);
        let mut count = 0;
        for indexed in index.parts(&region)? {
            count += match verdict(part, *operand, &none(arrays), index, &indexed)? {
                Verdict::Nothing => 0,
                Verdict::Everything => indexed.len(),
                Verdict::Bins(_) if !indexed.is_whole() => return None,
                Verdict::Bins(bins) if !bins.compares_tails => bins.inner + bins.outer,
                Verdict::Bins(bins) => {
                    let tails = index.tails(&indexed, &bins.bins)?;
                    let found = compared(part, *operand, arrays, &tails);
                    bins.inner + count_ones(&found)
                }
            };
        }
        Some(count)
    }

    /// Fills the mask of a block by indexes and arrays in memory. `None` if an index cannot be read.
    ///
    /// # Errors
    /// Those of arrays in memory.
    pub(super) fn evaluate(
        &self,
        block: &BinnedBlock,
        bounds: &BlockBox,
        arrays: KnownArrays<'_>,
        mask: &mut Vec<u8>,
    ) -> Result<Option<BinnedMatches>> {
        mask.clear();
        mask.resize(bounds.len(), 1);
        let mut matches = BinnedMatches { count: 0, operand: None, values: Vec::new() };
        for (number, operand) in &block.indexed {
            let part = &self.parts[*number];
            let applied = arrays.index_of(*operand, bounds).and_then(|(index, region)| {
                Painter { part, operand: *operand, arrays, index, bounds }.paint(&region, mask)
            });
            let Some(values) = applied else { return Ok(None) };
            // Those of another part do not lie at matches of this one alone.
            if let (Some(values), [_]) = (values, block.indexed.as_slice()) {
                matches.operand = Some(*operand);
                matches.values = values;
            }
        }
        let mut found = Vec::new();
        for &number in &block.in_memory {
            let (part, used) = (&self.parts[number], &self.used[number]);
            found.resize(mask.len(), 0);
            let columns = &arrays.residents.columns;
            let mut rooms: Vec<SpreadBuffer> =
                columns.iter().map(|_| SpreadBuffer::default()).collect();
            let mut slices = vec![ValueSlice::Bool(&[]); columns.len()];
            for (at, room) in rooms.iter_mut().enumerate().filter(|(at, _)| used.contains(at)) {
                if let Some(column) = &columns[at] {
                    slices[at] = column.of_block(bounds)?.tile(0..mask.len(), room)?;
                }
            }
            part.evaluate(&slices, &mut PredicateScratch::default(), &mut found);
            mask.iter_mut().zip(&found).for_each(|(mask, found)| *mask &= found);
        }
        matches.count = count_ones(mask);
        Ok(Some(matches))
    }
}

/// No knowledge of any operand.
fn none(arrays: KnownArrays<'_>) -> Vec<Option<ValueRange>> {
    vec![None; arrays.operands.len()]
}

/// Finds what an index says of a part of the condition in a region.
fn survey(
    part: &Predicate,
    operand: usize,
    ranges: &[Option<ValueRange>],
    index: &IndexRanges,
    region: &Region,
) -> Survey {
    let mut found = Survey { count: Some(0), is_decided: true, stored_bytes: 0 };
    let undecided = Survey { count: None, is_decided: false, stored_bytes: 0 };
    let Some(parts) = index.parts(region) else { return undecided };
    for indexed in parts {
        let count = match verdict(part, operand, ranges, index, &indexed) {
            None => return undecided,
            Some(Verdict::Nothing) => Some(0),
            Some(Verdict::Everything) => Some(indexed.len()),
            Some(Verdict::Bins(bins)) => {
                found.stored_bytes += index.bytes_of(&indexed, &bins.bins, bins.inner > 0);
                let is_known = indexed.is_whole() && !bins.compares_tails;
                is_known.then_some(bins.inner + bins.outer)
            }
        };
        found.count = found.count.zip(count).map(|(all, count)| all + count);
    }
    found
}

/// Returns what an index says of a part of the condition in one of its blocks; `None` if it holds
/// for some elements of a bin without known values, and not for others.
fn verdict(
    part: &Predicate,
    operand: usize,
    ranges: &[Option<ValueRange>],
    index: &IndexRanges,
    indexed: &IndexedPart,
) -> Option<Verdict> {
    let mut known = ranges.to_vec();
    known[operand] = Some(index.range_of_block(indexed)?);
    match part.decide(&known) {
        Decision::None => return Some(Verdict::Nothing),
        Decision::All => return Some(Verdict::Everything),
        Decision::Some => {}
    }
    let bins = index.bins(indexed)?;
    let mut found = BinMatches { bins, matches: [0; 4], inner: 0, outer: 0, compares_tails: false };
    let mut all = true;
    for bin in &found.bins.present {
        known[operand] = Some(bin.range);
        match part.decide(&known) {
            Decision::None => all = false,
            Decision::All => {
                found.matches[usize::from(bin.number >> 6)] |= 1 << (bin.number & 63);
                match bin.is_outermost {
                    true => found.outer += bin.count,
                    false => found.inner += bin.count,
                }
            }
            Decision::Some if bin.is_outermost && index.has_tails() => {
                (found.compares_tails, all) = (true, false);
            }
            Decision::Some => return None,
        }
    }
    let is_empty = found.inner + found.outer == 0 && !found.compares_tails;
    Some(match (is_empty, all) {
        (true, _) => Verdict::Nothing,
        (_, true) => Verdict::Everything,
        _ => Verdict::Bins(found),
    })
}

/// Evaluates a part of the condition for the elements of a tail.
fn compared(
    part: &Predicate,
    operand: usize,
    arrays: KnownArrays<'_>,
    tails: &TailValues,
) -> Vec<u8> {
    let mut slices = vec![ValueSlice::Bool(&[]); arrays.operands.len()];
    slices[operand] = tails.values.as_slice();
    let mut found = vec![0; tails.positions.len()];
    part.evaluate(&slices, &mut PredicateScratch::default(), &mut found);
    found
}

/// Clears the mask of a block where a part of the condition does not hold.
struct Painter<'a> {
    part: &'a Predicate,
    operand: usize,
    arrays: KnownArrays<'a>,
    index: &'a IndexRanges,
    bounds: &'a BlockBox,
}

impl Painter<'_> {
    /// Clears the mask. Returns the stored elements at the matches if tails have all of them; `None`
    /// if the index cannot be read.
    fn paint(&self, region: &Region, mask: &mut [u8]) -> Option<Option<Vec<u64>>> {
        let Self { part, operand, arrays, index, .. } = *self;
        let mut values = Some(Vec::new());
        for indexed in index.parts(region)? {
            match verdict(part, operand, &none(arrays), index, &indexed)? {
                Verdict::Everything => values = None,
                Verdict::Nothing => {
                    let IndexedPart { place, shape, .. } = &indexed;
                    each_run(&self.bounds.shape, place, shape, &mut |run| {
                        mask[run].fill(0);
                    });
                }
                Verdict::Bins(bins) => {
                    if bins.inner > 0 {
                        values = None;
                    }
                    let found = self.matches(&indexed, &bins, &mut values)?;
                    self.apply(&indexed, &found, mask);
                }
            }
        }
        Some(values.filter(|values| !values.is_empty()))
    }

    /// Returns a byte for each element of a block of the index, 1 where the part holds. Puts the
    /// values of tails into `values`.
    fn matches(
        &self,
        indexed: &IndexedPart,
        bins: &BinMatches,
        values: &mut Option<Vec<u64>>,
    ) -> Option<Vec<u8>> {
        let Self { part, operand, arrays, index, .. } = *self;
        let from_tails = index.has_tails() && (bins.inner == 0 || bins.compares_tails);
        let mut found = match bins.inner > 0 || !from_tails {
            false => vec![0; usize::try_from(indexed.block_len()).ok()?],
            true => {
                let mut table = [0_u8; 256];
                for (number, holds) in (0..=u8::MAX).zip(&mut table) {
                    let bit = bins.matches[usize::from(number >> 6)] >> (number & 63) & 1;
                    *holds = u8::from(bit == 1);
                }
                let mut numbers = index.numbers(indexed, &bins.bins)?;
                numbers.iter_mut().for_each(|number| *number = table[usize::from(*number)]);
                numbers
            }
        };
        if !from_tails {
            *values = None;
            return Some(found);
        }
        let tails = index.tails(indexed, &bins.bins)?;
        let holds = compared(part, operand, arrays, &tails);
        for (position, holds) in tails.positions.iter().zip(&holds) {
            *found.get_mut(usize::from(*position))? = *holds;
        }
        if let Some(values) = values {
            self.put_values(indexed, &tails, &holds, values);
        }
        Some(found)
    }

    /// Puts the elements of tails that match into their places in the block of the query.
    fn put_values(
        &self,
        indexed: &IndexedPart,
        tails: &TailValues,
        holds: &[u8],
        values: &mut Vec<u64>,
    ) {
        let bytes = &tails.bytes;
        let item = bytes.len() / tails.positions.len().max(1);
        values.resize((self.bounds.len() * item).div_ceil(8), 0);
        let target = zerocopy::IntoBytes::as_mut_bytes(values.as_mut_slice());
        let elements = tails.positions.iter().zip(bytes.chunks_exact(item.max(1))).zip(holds);
        for ((position, element), _) in elements.filter(|(_, holds)| **holds != 0) {
            let place = indexed.place_of(u64::from(*position), &self.bounds.shape);
            let Some(place) = place.and_then(|place| usize::try_from(place).ok()) else { continue };
            if let Some(target) = target.get_mut(place * item..(place + 1) * item) {
                target.copy_from_slice(element);
            }
        }
    }

    /// Clears the mask where the elements of a block of the index do not match.
    fn apply(&self, indexed: &IndexedPart, found: &[u8], mask: &mut [u8]) {
        let mut inside = Vec::new();
        let found = match indexed.is_whole() {
            true => found,
            false => {
                each_run(&indexed.whole, &indexed.start, &indexed.shape, &mut |run| {
                    inside.extend_from_slice(found.get(run).unwrap_or_default());
                });
                &inside
            }
        };
        let mut rest = found;
        each_run(&self.bounds.shape, &indexed.place, &indexed.shape, &mut |run| {
            let (of_run, behind) = rest.split_at(run.len().min(rest.len()));
            rest = behind;
            mask[run].iter_mut().zip(of_run).for_each(|(mask, found)| *mask &= found);
        });
    }
}
