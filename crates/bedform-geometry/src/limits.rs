//! Limits that the crate enforces on every file and every call.

/// The largest number of axes.
pub const RANK_MAX: usize = 32;

/// The largest number of axes of a curve, not counting axes of size one.
pub const CURVE_RANK_MAX: usize = 8;

/// The largest number of cells in a list of [`Order::sequence`](crate::Order::sequence) or
/// [`Order::ranks`](crate::Order::ranks).
pub const SEQUENCE_CELLS_MAX: u64 = 1 << 28;

/// The largest number of cells that [`GridReaders`](crate::GridReaders) places.
pub const PLACED_CELLS_MAX: u64 = 1 << 20;

/// The largest number of cells that all reads of a [`GridReaders`](crate::GridReaders) touch
/// together.
pub const PLACED_READS_MAX: u64 = 1 << 24;

/// The largest number of boxes that an order, an index or a cut lists.
pub const BOXES_MAX: usize = 1 << 26;

/// The largest number of targets of a [`StripedTargets`](crate::StripedTargets).
pub const TARGETS_MAX: u32 = 1 << 16;
