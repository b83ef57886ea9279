//! Values that repeat as a sequence, whatever they are.

use std::collections::VecDeque;
use std::hash::Hash;

use crate::interner::Interner;
use crate::repeats::{PERIOD_MAX, Repeats};

/// Different values that are told apart.
const VALUES_MAX: usize = 4 * PERIOD_MAX;

/// A sequence of values, and what comes next where it repeats.
#[derive(Debug, Clone)]
pub(crate) struct Composed<T> {
    numbers: Interner<T>,
    repeats: Repeats,
    /// The last values, newest last.
    recent: VecDeque<T>,
}

impl<T: Eq + Hash + Clone> Default for Composed<T> {
    fn default() -> Self {
        Self {
            numbers: Interner::new(VALUES_MAX),
            repeats: Repeats::default(),
            recent: VecDeque::new(),
        }
    }
}

impl<T: Eq + Hash + Clone> Composed<T> {
    pub(crate) fn push(&mut self, value: T) {
        let number = self.numbers.number(&value).or_else(|| {
            self.repeats.clear();
            self.numbers.number(&value)
        });
        self.repeats.push(number.unwrap_or(0));
        if self.recent.len() >= PERIOD_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(value);
    }

    /// The sequence that was there twice, oldest value first, which comes next; empty if there is none.
    pub(crate) fn sequence(&self) -> impl Iterator<Item = &T> + Clone {
        let period = self.repeats.period().unwrap_or(0);
        self.recent.iter().skip(self.recent.len().saturating_sub(period))
    }

    pub(crate) fn clear(&mut self) {
        self.repeats.clear();
        self.recent.clear();
    }
}
