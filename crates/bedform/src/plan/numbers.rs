//! Conversions of counts that are known to fit.

/// Returns a count as an offset. Counts here are positions in a chunk and a result, whose bytes were
/// compared with `i64::MAX` when the geometry was made.
pub(crate) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Returns a count of things that are in memory as an index.
#[allow(clippy::cast_possible_truncation)]
pub(crate) fn index(value: u64) -> usize {
    value as usize
}
