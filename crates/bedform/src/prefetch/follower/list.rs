//! A list of reads that the program has announced: its order is certain, unlike a pattern's.

use std::collections::VecDeque;

use bedform_geometry::Selection;

use super::settings::SETTINGS;

/// The list of an array's next reads.
#[derive(Debug, Default)]
pub(super) struct ReadList {
    /// True while the list has reads left: patterns are not used meanwhile.
    pub(super) is_active: bool,
    /// Entries that are not queued yet, each with the bytes of its result.
    pub(super) entries: VecDeque<(Selection, u64)>,
    /// Reads in a row outside the list.
    pub(super) unlisted: u64,
    /// The largest distance at which a read came before its turn.
    spread: usize,
}

impl ReadList {
    /// Begins a list.
    pub(super) fn of(entries: Vec<(Selection, u64)>) -> Self {
        Self { is_active: true, entries: entries.into(), unlisted: 0, spread: 0 }
    }

    /// Finds a read near the front of the list, and counts it as listed.
    pub(super) fn find(&mut self, selection: &Selection) -> Option<usize> {
        let mut near = self.entries.iter().take(SETTINGS.listed_look);
        let at = near.position(|(listed, _)| listed == selection)?;
        self.unlisted = 0;
        Some(at)
    }

    /// Counts a read outside the list; returns true after too many, which end it.
    pub(super) fn miss(&mut self) -> bool {
        self.unlisted += 1;
        if self.unlisted <= SETTINGS.unlisted_max {
            return false;
        }
        self.entries.clear();
        true
    }

    /// Removes an entry that the program reads before its turn.
    pub(super) fn take(&mut self, at: usize) {
        self.entries.remove(at);
        if at < SETTINGS.listed_spread_max {
            self.spread = self.spread.max(at + 1);
        }
    }

    /// Removes the entries up to this one, the earlier of which the program has skipped.
    pub(super) fn skip_to(&mut self, at: usize) {
        self.spread = 0;
        self.entries.drain(..=at);
    }

    /// Returns the number of reads ahead for `threads` threads.
    pub(super) fn depth(&self, threads: usize) -> usize {
        threads + SETTINGS.listed_beyond + self.spread
    }
}
