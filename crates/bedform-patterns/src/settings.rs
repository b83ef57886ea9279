//! Thresholds of the analysis.

use crate::correlated::{NEXT, OFTEN};

/// How much an analyzer looks for, and how often.
///
/// The paper analyses in batches (section 2.3.2, thresholds T). Here that concerns the unstructured patterns, whose
/// search costs more than a comparison: a batch of 1, the default, finds them at once.
///
/// ```
/// use bedform_patterns::{Analyzer, Settings};
///
/// let analyzer = Analyzer::with(Settings { often: 5, batch: 16, ..Settings::default() });
/// assert_eq!(analyzer.ahead().next(), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Times that a place is read before its followers are a pattern.
    pub often: u32,
    /// Accesses after such a place that belong to it, at most 16.
    pub next: usize,
    /// Accesses without a prediction between two searches for sequences and for interleaved walks.
    pub batch: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { often: OFTEN, next: NEXT, batch: 1 }
    }
}
