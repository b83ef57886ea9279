//! Limits that the crate enforces on every file and every call.

/// The largest number of axes.
pub const RANK_MAX: usize = 32;

/// The largest number of axes, not counting those of size one, that a curve goes through.
pub const CURVE_RANK_MAX: usize = 8;

/// The largest number of cells that [`Order::sequence`](crate::Order::sequence) and
/// [`Order::ranks`](crate::Order::ranks) list.
pub const SEQUENCE_CELLS_MAX: u64 = 1 << 28;

/// The largest number of cells that [`GridReaders`](crate::GridReaders) places.
pub const PLACED_CELLS_MAX: u64 = 1 << 20;

/// The largest number of cells that all reads together may touch which [`GridReaders`](crate::GridReaders) counts.
pub const PLACED_READS_MAX: u64 = 1 << 24;
