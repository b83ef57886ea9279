//! Thresholds of the analysis.

use crate::correlated::{NEXT, OFTEN};

/// Thresholds and search frequency of an analyzer.
///
/// The paper analyses in batches (section 2.3.2, thresholds T). Here a batch concerns only
/// unstructured patterns, whose search costs more than a comparison. A batch of 1, the default,
/// finds them at once.
///
/// ```
/// use bedform_patterns::{Analyzer, Settings};
///
/// let analyzer = Analyzer::with(Settings { often: 5, batch: 16, ..Settings::default() });
/// assert_eq!(analyzer.ahead().next(), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Number of reads of a place before its followers form a pattern.
    pub often: u32,
    /// Number of accesses after such a place that belong to it, at most 16.
    pub next: usize,
    /// Number of unpredicted accesses between two searches for sequences and interleaved walks.
    pub batch: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { often: OFTEN, next: NEXT, batch: 1 }
    }
}
