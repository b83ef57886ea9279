//! Numbers for values that come again.

use std::collections::HashMap;
use std::hash::Hash;

/// Gives equal values equal numbers, until it has seen too many and forgets all.
#[derive(Debug, Clone)]
pub(crate) struct Interner<T> {
    numbers: HashMap<T, u32>,
    most: usize,
}

impl<T: Eq + Hash + Clone> Interner<T> {
    pub(crate) fn new(most: usize) -> Self {
        Self { numbers: HashMap::new(), most }
    }

    /// The number of a value; nothing if all were forgotten for it: call again.
    pub(crate) fn number(&mut self, value: &T) -> Option<u32> {
        if let Some(&number) = self.numbers.get(value) {
            return Some(number);
        }
        if self.numbers.len() >= self.most {
            self.numbers.clear();
            return None;
        }
        let number = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        self.numbers.insert(value.clone(), number);
        Some(number)
    }
}
