//! Predicates over runs of elements.

use crate::bind::Operand;
use crate::interval::{Decision, ValueRange};
use crate::values::ValueSlice;

/// A condition over arrays, with types.
#[derive(Debug, Clone)]
pub struct Predicate {
    operands: Vec<Operand>,
}

/// Buffers of an evaluation, kept between calls.
#[derive(Debug, Default)]
pub struct PredicateScratch {}

impl Predicate {
    pub(crate) fn of(operands: &[Operand]) -> Self {
        Self { operands: operands.to_vec() }
    }

    /// Evaluates the condition for `out.len()` elements; writes 0 or 1 for each.
    ///
    /// `columns[i]` has the stored elements of operand `i`, of its stored type: `out.len()` of them,
    /// or one, which stands for all. Columns of operands that [`Self::operands_used`] leaves out
    /// are not looked at, and may be empty.
    ///
    /// # Panics
    ///
    /// If a column that is used has another type or length.
    pub fn evaluate(
        &self,
        columns: &[ValueSlice<'_>],
        scratch: &mut PredicateScratch,
        out: &mut [u8],
    ) {
        let _ = (columns, scratch);
        out.fill(0);
    }

    /// Says what the ranges of stored values tell: `ranges[i]` is that of operand `i`, `None` if
    /// nothing is known. Never wrong for ranges that hold.
    pub fn decide(&self, ranges: &[Option<ValueRange>]) -> Decision {
        let _ = ranges;
        Decision::Some
    }

    /// The conditions that `and` joins at the top, over the same list of operands.
    pub fn conjuncts(&self) -> Vec<Self> {
        vec![self.clone()]
    }

    /// The positions of the operands that the condition depends on, in ascending order.
    pub fn operands_used(&self) -> Vec<usize> {
        (0..self.operands.len()).collect()
    }
}
