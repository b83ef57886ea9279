//! Errors of the parsers of plotfiles.

/// The reason why a text of a plotfile was refused.
///
/// The variants differ by remedy. Messages are one line with at most 40 characters of the text, and
/// name the line, counted from 1.
///
/// ```
/// use bedform_format::{Limits, amr::{AmrError, CellHeader}};
/// let error = CellHeader::parse(b"1\n1\nmany\n", &Limits::default()).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "damaged AMReX Cell_H at line 3: the number of components expected, not \"many\""
/// );
/// assert!(matches!(error, AmrError::Corrupt { line: 3, .. }));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AmrError {
    /// Text that AMReX would not write, or that is cut short.
    #[error("damaged AMReX {file} at line {line}: {reason}")]
    Corrupt {
        /// The kind of text: `Header`, `Cell_H` or `FAB header`.
        file: &'static str,
        /// The line, counted from 1.
        line: u64,
        /// The broken rule.
        reason: String,
    },
    /// A part of the format that these parsers do not read; AMReX may read it.
    #[error("unsupported AMReX {file} at line {line}: {reason}")]
    Unsupported {
        /// The kind of text: `Header`, `Cell_H` or `FAB header`.
        file: &'static str,
        /// The line, counted from 1.
        line: u64,
        /// The unsupported part.
        reason: String,
    },
    /// A length or count over a limit of [`Limits`](crate::Limits).
    #[error("AMReX {file} over a limit at line {line}: {reason}")]
    Limit {
        /// The kind of text: `Header`, `Cell_H` or `FAB header`.
        file: &'static str,
        /// The line, counted from 1.
        line: u64,
        /// The limited quantity and its limit.
        reason: String,
    },
    /// Two texts of one plotfile that contradict each other.
    #[error("damaged AMReX plotfile: {reason}")]
    Mismatch {
        /// The quantity, and its two values.
        reason: String,
    },
}

impl AmrError {
    pub(super) fn mismatch(reason: impl Into<String>) -> Self {
        Self::Mismatch { reason: reason.into() }
    }
}

pub(super) type Result<T = (), E = AmrError> = std::result::Result<T, E>;
