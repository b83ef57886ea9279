//! Composition-based patterns: steps that repeat as a sequence.
//!
//! The hours 5, 6, 14 and 15 of each day are steps of 1, 8, 1, 14, again and again (section 2.3.4). A sequence that
//! has come twice is taken to come a third time.
//!
//! The paper builds a suffix tree as the steps come. Its length follows the input; what is needed here is the
//! shortest period of the end, up to [`PERIOD_MAX`]. So for each period the number of steps is kept that have been
//! the same as those a period before: one comparison each for a step, which the processor does many at a time, in
//! memory that no input changes.

/// The longest period that is found.
pub const PERIOD_MAX: usize = 512;
/// Steps that are told apart, beyond which the oldest meaning is given up.
const SYMBOLS_MAX: u32 = u32::MAX - 1;

/// Finds the period in which symbols repeat.
///
/// ```
/// use bedform_patterns::Repeats;
///
/// let mut hours = Repeats::default();
/// let steps = [1, 8, 1, 14, 1, 8, 1, 14];
/// steps.iter().for_each(|step| hours.push(*step));
/// assert_eq!(hours.period(), Some(4));
/// let next: Vec<u32> = hours.next().take(5).collect();
/// assert_eq!(next, [1, 8, 1, 14, 1]);
/// ```
#[derive(Debug, Clone)]
pub struct Repeats {
    /// The last symbols, newest last; no more than twice the longest period.
    recent: Vec<u32>,
    /// For each period less one, how many symbols up to the newest are those of a period before.
    same: Box<[u32]>,
}

impl Default for Repeats {
    fn default() -> Self {
        Self { recent: Vec::new(), same: vec![0; PERIOD_MAX].into() }
    }
}

impl Repeats {
    /// The next symbol.
    pub fn push(&mut self, symbol: u32) {
        if self.recent.len() >= 4 * PERIOD_MAX {
            self.recent.drain(..2 * PERIOD_MAX);
        }
        // Newest first, as the periods are counted.
        for (same, before) in self.same.iter_mut().zip(self.recent.iter().rev()) {
            *same = if *before == symbol { same.saturating_add(1) } else { 0 };
        }
        self.recent.push(symbol.min(SYMBOLS_MAX));
    }

    /// The shortest period whose sequence the newest symbols are twice.
    pub fn period(&self) -> Option<usize> {
        let periods = self.same.iter().zip(1..);
        periods
            .into_iter()
            .find(|(same, period)| **same as usize >= *period)
            .map(|(_, period)| period)
    }

    /// The symbols that come if the sequence goes on; none if nothing repeats.
    pub fn next(&self) -> impl Iterator<Item = u32> + '_ {
        let period = self.period().unwrap_or(0);
        let sequence = &self.recent[self.recent.len() - period..];
        sequence.iter().copied().cycle()
    }

    /// Forgets all symbols.
    pub fn clear(&mut self) {
        self.recent.clear();
        self.same.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn naive(symbols: &[u32]) -> Option<usize> {
        let count = symbols.len();
        (1..=(count / 2).min(PERIOD_MAX))
            .find(|period| symbols[count - period..] == symbols[count - 2 * period..count - period])
    }

    proptest! {
        #[test]
        fn the_shortest_period_is_that_of_the_definition(symbols in prop::collection::vec(0_u32..3, 0..90)) {
            let mut found = Repeats::default();
            for at in 0..symbols.len() {
                found.push(symbols[at]);
                prop_assert_eq!(found.period(), naive(&symbols[..=at]));
            }
        }
    }

    #[test]
    fn a_long_sequence_is_found_at_its_second_end_and_memory_stays() {
        let (mut found, period) = (Repeats::default(), u32::try_from(PERIOD_MAX).unwrap());
        for at in 0..2 * period - 1 {
            found.push(at % period);
            assert_eq!(found.period(), None, "{at}");
        }
        found.push(period - 1);
        assert_eq!(found.period(), Some(PERIOD_MAX));
        (0..100_000).for_each(|at| found.push(at));
        assert!(found.recent.len() <= 4 * PERIOD_MAX);
        assert_eq!(found.period(), None);
    }
}
