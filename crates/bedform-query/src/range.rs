//! The range of the stored values of a run.

use crate::decode::ValueDecoding;
use crate::values::{ScalarValue, ValueSlice};

/// Finds the least and greatest stored value that is not missing, and counts the missing values:
/// NaN, and stored values that `decoding` makes missing.
pub fn range_of(
    decoding: &ValueDecoding,
    stored: ValueSlice<'_>,
) -> (Option<(ScalarValue, ScalarValue)>, u64) {
    let _ = (decoding, stored);
    (None, 0)
}
