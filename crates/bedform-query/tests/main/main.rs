//! Expressions, held against a naive model and against sentences about NumPy and xarray.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::host_endian_bytes,
    clippy::too_many_lines,
    reason = "a model of C's conversions; helpers of tests fail as tests do"
)]

/// Conditions decided by ranges.
mod deciding;
/// The decoding of stored values.
mod decoding;
/// Conditions over runs of elements.
mod evaluating;
/// Random columns and expressions, evaluated one element at a time.
mod model;
/// Texts, their trees and their errors.
mod parsing;
/// The ranges of runs.
mod ranges;
