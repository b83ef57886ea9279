//! The pattern of an array's reads: the analyzer, the reads that it has not got yet, and its record.

use bedform_geometry::Selection;
use bedform_patterns::{Analyzer, Pattern, PatternKind, Place};

use super::settings::SETTINGS;
use crate::trace::form::{SelectionSteps, cut, selection_at};

/// The pattern of an array's reads, and how well it has predicted them.
#[derive(Debug, Default)]
pub(super) struct ReadPattern {
    analyzer: Analyzer,
    /// Patterns of earlier runs.
    known: Vec<Pattern>,
    form: SelectionSteps,
    shape: Vec<u64>,
    item_size: u64,
    /// Correct predictions in a row.
    run: u64,
    /// Wasted reads ahead of short runs, up to a maximum.
    in_vain: u64,
    /// A prediction that must come true before anything is read ahead.
    pub(super) expected: Option<Selection>,
    /// True if a pattern predicted the last read.
    pub(super) was_predicted: bool,
    /// Reads in a row without a prediction, and the reads that the analyzer has not got yet.
    unpredicted: usize,
    unseen: Vec<Place>,
}

impl ReadPattern {
    /// Begins with the patterns of earlier runs.
    pub(super) fn knowing(known: &[Pattern]) -> Self {
        let known = known.to_vec();
        Self { analyzer: Analyzer::knowing(known.clone()), known, ..Self::default() }
    }

    /// Returns the name of the pattern that serves the reads.
    pub(super) fn serving(&self) -> Option<&'static str> {
        self.analyzer.serving().map(PatternKind::name)
    }

    /// Passes the next read to the analyzer; after many unpredicted reads, in batches.
    pub(super) fn see(&mut self, own: Option<(SelectionSteps, Place)>, shape: &[u64]) {
        self.was_predicted = false;
        let Some((form, place)) = own else { return };
        if form != self.form || shape != self.shape {
            if self.form != SelectionSteps::default() {
                self.analyzer = Analyzer::knowing(self.known.clone());
            }
            self.form = form;
            self.shape = shape.to_vec();
            self.unseen.clear();
        }
        self.unseen.push(place);
        if self.unpredicted < SETTINGS.unpredicted_min
            || self.unseen.len() >= SETTINGS.analyzed_together
        {
            let singly = SETTINGS.unpredicted_min - SETTINGS.analyzed_singly;
            for place in self.unseen.drain(..) {
                self.was_predicted = self.analyzer.push(place).predicted.is_some();
                self.unpredicted = match self.was_predicted {
                    true => self.unpredicted.min(singly),
                    false => self.unpredicted + 1,
                };
            }
        }
    }

    /// Notes the size in bytes of an element of the array, by a read of it.
    pub(super) fn size(&mut self, selection: &Selection, bytes: u64) {
        let count = elements(selection);
        self.item_size = count.and_then(|count| bytes.checked_div(count)).unwrap_or(0);
    }

    /// Counts a read that was read ahead.
    pub(super) fn confirm(&mut self) {
        self.run += 1;
        self.unpredicted = 0;
    }

    /// Begins a run with a prediction that came true.
    pub(super) fn begin_run(&mut self) {
        (self.run, self.unpredicted) = (1, 0);
    }

    /// Ends the run, after which `wasted` reads ahead were in vain.
    pub(super) fn end_run(&mut self, wasted: u64) {
        let in_vain = (self.in_vain + wasted).min(SETTINGS.in_vain_max);
        self.in_vain = in_vain.saturating_sub(self.run);
        self.run = 0;
    }

    /// Returns the number of reads ahead for `threads` threads; `None` if the next prediction must
    /// come true before anything is read, after wasted reads.
    pub(super) fn depth(&self, threads: usize) -> Option<usize> {
        let is_doubtful = self.in_vain > 0;
        if self.run == 0 && is_doubtful {
            return None;
        }
        if self.run <= u64::from(is_doubtful) {
            // No read has confirmed the prediction yet.
            return Some(1);
        }
        let beyond = usize::try_from(self.run / SETTINGS.run_for_one).unwrap_or(usize::MAX);
        let first = SETTINGS.first_depth;
        Some((threads + 1).clamp(first, first.saturating_add(beyond)))
    }

    /// Returns the next predicted read beyond those that `is_ahead` finds among `count` reads ahead,
    /// with the bytes of its result.
    pub(super) fn next(
        &self,
        count: usize,
        is_ahead: impl Fn(&Selection) -> bool,
    ) -> Option<(Selection, u64)> {
        // The size of the next read is unknown.
        if self.analyzer.serving() == Some(PatternKind::Contiguous) || !self.unseen.is_empty() {
            return None;
        }
        let known = count + 1 + usize::try_from(SETTINGS.overtaken_max).ok()?;
        for place in self.analyzer.ahead().take(known) {
            let selection = selection_at(&self.form, &cut(&place, &self.shape)?)?;
            if !is_ahead(&selection) {
                let bytes = elements(&selection)?.checked_mul(self.item_size)?;
                return (bytes >= SETTINGS.result_bytes_min).then_some((selection, bytes));
            }
        }
        None
    }
}

/// Returns a box in the form that a pattern predicts: bounds and steps only.
pub(super) fn canonical(own: Option<&(SelectionSteps, Place)>) -> Option<Selection> {
    own.and_then(|(form, place)| selection_at(form, place))
}

fn elements(selection: &Selection) -> Option<u64> {
    let Selection::Orthogonal(axes) = selection else { return None };
    axes.iter().try_fold(1_u64, |all, axis| all.checked_mul(axis.len()))
}
