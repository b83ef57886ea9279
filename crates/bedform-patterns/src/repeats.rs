//! Composition-based patterns: steps that repeat as a sequence.
//!
//! The hours 5, 6, 14 and 15 of each day are steps of 1, 8, 1, 14, repeatedly (section 2.3.4). A
//! sequence that came twice is assumed to come again, and its period is kept while it is right. Of
//! several periods, the one whose repetition extends furthest back is chosen: for steps 1, 1, 1, 9
//! the period of the rows, not of the ones.
//!
//! The paper builds a suffix tree as the steps come, which grows with the input. Here only the last
//! symbols are kept, each with the position of the previous symbol in the same slot of a table. So
//! a search considers only periods at which the newest symbol occurred before, and runs only while
//! no period is known. On average, searches compare at most [`COMPARED_EACH`] symbols per new
//! symbol, for any input; memory is bounded, too.

use crate::fingerprint;

/// The longest period that can be found.
pub const PERIOD_MAX: usize = 512;
/// Number of symbols that are kept: a longest sequence twice.
const KEPT: usize = 2 * PERIOD_MAX;
/// Binary logarithm of the number of slots.
const SLOT_BITS: u32 = 10;
/// Average number of comparisons per new symbol that searches may make: regular sequences need
/// fewer.
const COMPARED_EACH: usize = 32;
/// Cost of one candidate period, in comparisons.
const CANDIDATE: usize = 4;
/// Largest number of comparisons of one search, paid from the unused allowance.
const COMPARED_MAX: usize = 8 * KEPT;

/// Finds the period in which symbols repeat.
///
/// ```
/// use bedform_patterns::Repeats;
///
/// let mut hours = Repeats::default();
/// let steps = [1, 8, 1, 14, 1, 8, 1, 14];
/// steps.iter().for_each(|step| hours.push(*step));
/// assert_eq!(hours.period(), Some(4));
/// let next: Vec<u64> = hours.next().take(5).collect();
/// assert_eq!(next, [1, 8, 1, 14, 1]);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Repeats {
    /// Indexed by position modulo [`KEPT`].
    symbols: Vec<u64>,
    /// For each symbol, the position plus one of the previous symbol in its slot; 0 if none.
    before: Vec<u32>,
    /// For each slot, its newest position plus one.
    slots: Vec<u32>,
    /// Number of positions so far.
    end: u32,
    /// The first position since the last [`Repeats::clear`].
    begin: u32,
    period: Option<usize>,
    /// Number of symbols that matched when the period was found.
    run: usize,
    /// The candidate period with the longest match, not yet a whole sequence, and its length. It
    /// avoids comparing a long period anew for each symbol.
    growing: Option<(usize, usize)>,
    /// Number of comparisons beyond the allowance.
    debt: usize,
}

impl Repeats {
    /// Adds the next symbol, and searches for a period.
    pub fn push(&mut self, symbol: u64) {
        self.record(symbol);
        self.find();
    }

    /// Returns the period, once its sequence came twice.
    pub fn period(&self) -> Option<usize> {
        self.period
    }

    /// Returns the number of symbols that belonged to the repetition when it was found: one
    /// sequence, plus all symbols equal to those a period before.
    pub(crate) fn run(&self) -> usize {
        self.run
    }

    /// Returns the predicted symbols; empty if nothing repeats.
    pub fn next(&self) -> impl Iterator<Item = u64> + '_ {
        let period = self.period.unwrap_or(0);
        let sequence = (0..period).map(move |at| self.back(period - 1 - at));
        sequence.cycle()
    }

    /// Forgets all symbols.
    pub fn clear(&mut self) {
        self.begin = self.end;
        (self.period, self.growing) = (None, None);
    }

    /// Adds the next symbol without a search; returns true if the known period predicted it.
    pub(crate) fn record(&mut self, symbol: u64) -> bool {
        if self.end == u32::MAX - 1 {
            *self = Self::default();
        }
        let is_right = self.period.is_some_and(|period| self.back(period - 1) == symbol);
        if !is_right {
            self.period = None;
        }
        let grows = |&(period, _): &(usize, usize)| self.back(period - 1) == symbol;
        self.growing = self.growing.filter(grows).map(|(period, same)| (period, same + 1));
        self.slots.resize(1 << SLOT_BITS, 0);
        let slot = &mut self.slots[slot(symbol)];
        let before = std::mem::replace(slot, self.end + 1);
        let at = self.end as usize % KEPT;
        if at == self.symbols.len() {
            self.symbols.push(symbol);
            self.before.push(before);
        } else {
            self.symbols[at] = symbol;
            self.before[at] = before;
        }
        self.end += 1;
        self.debt = self.debt.saturating_sub(COMPARED_EACH);
        is_right
    }

    /// Searches for a period, unless one is known.
    pub(crate) fn find(&mut self) {
        if self.period.is_some() || self.begin == self.end {
            return;
        }
        let (newest, mut longest) = (self.back(0), 0);
        let mut candidate = self.before_of(self.end - 1);
        while let Some(at) = candidate {
            let period = (self.end - 1 - at) as usize;
            if at < self.begin || period > PERIOD_MAX || self.debt >= COMPARED_MAX {
                return;
            }
            self.debt += CANDIDATE;
            if self.at(at) == newest {
                let same = self.same_so_far(period);
                if same >= period && same > longest {
                    (self.period, self.run, longest) = (Some(period), period + same, same);
                }
            }
            candidate = self.before_of(at);
        }
    }

    /// As `same`, but continues an earlier comparison of the growing period, and charges the cost.
    fn same_so_far(&mut self, period: usize) -> usize {
        let known = self.growing.filter(|(growing, _)| *growing == period);
        let same = known.map_or_else(|| self.same(period), |(_, same)| same);
        if known.is_none() {
            self.debt += same;
        }
        if self.growing.is_none_or(|(_, longest)| same > longest) {
            self.growing = Some((period, same));
        }
        same
    }

    /// Returns how many of the newest symbols equal the symbol a period before.
    fn same(&self, period: usize) -> usize {
        let kept = ((self.end - self.begin) as usize).min(KEPT);
        let count = kept.saturating_sub(period);
        (0..count).take_while(|back| self.back(*back) == self.back(back + period)).count()
    }

    /// Returns the symbol `back` positions before the newest.
    fn back(&self, back: usize) -> u64 {
        self.symbols[(self.end as usize - 1 - back) % KEPT]
    }

    fn at(&self, position: u32) -> u64 {
        self.symbols[position as usize % KEPT]
    }

    fn before_of(&self, position: u32) -> Option<u32> {
        self.before[position as usize % KEPT].checked_sub(1)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        8 * self.symbols.capacity() + 4 * (self.before.capacity() + self.slots.capacity())
    }
}

fn slot(symbol: u64) -> usize {
    fingerprint::slot(symbol.wrapping_mul(0x9E37_79B9_7F4A_7C15), SLOT_BITS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn same(symbols: &[u64], period: usize) -> usize {
        let (old, new) = (&symbols[..symbols.len() - period], &symbols[period..]);
        old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count()
    }

    /// Returns the known period while it is right, else the period whose repetition extends
    /// furthest back.
    fn naive(symbols: &[u64], known: Option<usize>) -> Option<usize> {
        let newest = symbols.len() - 1;
        let known = known.filter(|period| symbols[newest - period] == symbols[newest]);
        let periods = (1..=(symbols.len() / 2).min(PERIOD_MAX)).rev();
        let found = periods.filter(|period| same(symbols, *period) >= *period);
        known.or(found.max_by_key(|period| same(symbols, *period)))
    }

    proptest! {
        #[test]
        fn the_period_is_that_of_the_definition(symbols in prop::collection::vec(0_u64..3, 1..90)) {
            let (mut found, mut period) = (Repeats::default(), None);
            for at in 0..symbols.len() {
                found.push(symbols[at]);
                period = naive(&symbols[..=at], period);
                prop_assert_eq!(found.period(), period);
            }
        }
    }

    #[test]
    fn a_long_sequence_is_found_at_its_second_end_and_memory_stays() {
        let (mut found, period) = (Repeats::default(), PERIOD_MAX as u64);
        for at in 0..2 * period - 1 {
            found.push(at % period);
            assert_eq!(found.period(), None, "{at}");
        }
        found.push(period - 1);
        assert_eq!(found.period(), Some(PERIOD_MAX));
        (0..100_000).for_each(|at| found.push(at));
        assert!(found.heap_bytes() <= 32 << 10);
        assert_eq!(found.period(), None);
    }

    #[test]
    fn rows_of_equal_steps_have_the_period_of_the_rows() {
        let mut found = Repeats::default();
        let steps = [1, 1, 8, 14].into_iter().cycle();
        let wrong = steps.take(40).filter(|step| {
            !found.record(*step) | {
                found.find();
                false
            }
        });
        assert!(wrong.count() <= 8);
    }

    #[test]
    fn what_was_cleared_is_no_longer_seen() {
        let mut found = Repeats::default();
        [1, 2, 3, 1, 2].iter().for_each(|step| found.push(*step));
        found.clear();
        found.push(3);
        assert_eq!((found.period(), found.next().next()), (None, None));
    }
}
