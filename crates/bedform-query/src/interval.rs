//! Predicates over ranges of stored values.

use crate::values::ScalarValue;

/// The stored values of a block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ValueRange {
    /// The least and the greatest stored value that is not missing, in the stored type; `None` if
    /// all are missing.
    pub least_and_greatest: Option<(ScalarValue, ScalarValue)>,
    /// True if some values are missing: NaN, or the array's fill or missing values.
    pub missing: bool,
}

/// The elements of a block that match a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// No element matches.
    None,
    /// All elements match.
    All,
    /// Unknown: the elements must be evaluated.
    Some,
}
