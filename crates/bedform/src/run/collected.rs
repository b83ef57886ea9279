//! Payloads of covers, collected over many cells, so that a block with elements of several cells is
//! fetched once.
//!
//! The payloads become units after the last cell, or once many copies are collected: copies take
//! memory.

use crate::source::Payloads;

/// The most copies to collect before they become units: they take some MiB of memory.
pub(super) const COPIES_MAX: usize = 1 << 17;

/// Payloads of the covers of the cells resolved so far.
pub(super) struct CollectedPayloads {
    payloads: Payloads,
    /// The number of cells whose payloads are not complete.
    cells_left: u64,
}

impl CollectedPayloads {
    pub(super) fn new(cells: u64) -> Self {
        Self { payloads: Payloads::default(), cells_left: cells }
    }

    /// Adds payloads; `cells` counts the cells whose payloads are now complete. Returns the
    /// collected payloads if they should become units.
    pub(super) fn add(&mut self, payloads: Payloads, cells: u64) -> Option<Payloads> {
        self.payloads.append(payloads);
        self.cells_left = self.cells_left.saturating_sub(cells);
        let is_due = self.cells_left == 0 || self.payloads.len() >= COPIES_MAX;
        is_due.then(|| std::mem::take(&mut self.payloads))
    }
}
