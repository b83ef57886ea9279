//! Errors of shapes, regions and selections.

use crate::limits::{
    BOXES_MAX, CURVE_RANK_MAX, PLACED_CELLS_MAX, PLACED_READS_MAX, RANK_MAX, SEQUENCE_CELLS_MAX,
    TARGETS_MAX,
};

/// The reason why a shape, region, selection or grid was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GeometryError {
    /// More axes than [`RANK_MAX`].
    #[error("rank {rank} is more than the maximum of {RANK_MAX}")]
    RankTooLarge {
        /// The requested rank.
        rank: usize,
    },
    /// Two objects that must have the same number of axes differ.
    #[error("rank {found} was given where rank {expected} is needed")]
    RankMismatch {
        /// The rank of the array, shape or region.
        expected: usize,
        /// The rank that the caller gave.
        found: usize,
    },
    /// An index outside an axis.
    #[error("index {index} is out of bounds for axis {axis} of size {size}")]
    IndexOutOfBounds {
        /// The axis, counted from 0.
        axis: usize,
        /// The offending index.
        index: u64,
        /// The size of the axis.
        size: u64,
    },
    /// A range of indices that passes the end of an axis.
    #[error("start {start} + count {count} passes the end of axis {axis} (size {size})")]
    RangePastEnd {
        /// The axis, counted from 0.
        axis: usize,
        /// The first index.
        start: u64,
        /// The number of consecutive indices.
        count: u64,
        /// The size of the axis.
        size: u64,
    },
    /// A region that leaves the representable index space.
    #[error("start {start} and size {size} along axis {axis} exceed the largest index")]
    RegionTooLarge {
        /// The axis, counted from 0.
        axis: usize,
        /// The start of the region.
        start: u64,
        /// The size of the region.
        size: u64,
    },
    /// A box of a list without cells.
    #[error("a box from {start} to {stop} along axis {axis} has no cells")]
    EmptyBox {
        /// The axis, counted from 0.
        axis: usize,
        /// The lowest cell.
        start: i64,
        /// The first cell after the box.
        stop: i64,
    },
    /// A box of a list with more cells than 63 bits can count.
    #[error("a box has more cells than can be counted")]
    BoxTooLarge,
    /// A list of more boxes than [`BOXES_MAX`].
    #[error("{boxes} boxes are more than the maximum of {BOXES_MAX}")]
    TooManyBoxes {
        /// The number of boxes.
        boxes: u128,
    },
    /// The number of a box beyond the end of a list.
    #[error("box {number} is out of bounds for a list of {boxes} boxes")]
    BoxOutOfBounds {
        /// The number of the box.
        number: u32,
        /// The number of boxes in the list.
        boxes: usize,
    },
    /// An order of boxes that leaves out a box or repeats one.
    #[error("an order of {boxes} boxes must list each of them once")]
    NotAPermutation {
        /// The number of boxes.
        boxes: usize,
    },
    /// A cut into boxes of size zero.
    #[error("boxes cannot be cut into boxes of size 0 along axis {axis}")]
    CutSizeZero {
        /// The axis, counted from 0.
        axis: usize,
    },
    /// A box that no chunk can hold.
    #[error("box {number} of {cells} cells does not fit into a chunk of {chunk_cells} cells")]
    BoxLargerThanChunk {
        /// The number of the box.
        number: u32,
        /// The cells of the box.
        cells: u64,
        /// The cells of a chunk.
        chunk_cells: u64,
    },
    /// Boxes whose positions on storage 64 bits cannot hold.
    #[error("boxes placed one after the other pass the largest position")]
    PackingTooLong,
    /// A placement on no target, on too many, or in stripes without bytes.
    #[error(
        "stripes of {stripe_bytes} bytes on {targets} targets: both must be at least 1, targets at \
         most {TARGETS_MAX}"
    )]
    StripingInvalid {
        /// The number of targets.
        targets: u32,
        /// The bytes of a stripe.
        stripe_bytes: u64,
    },
    /// Costs of a read that are negative or not finite.
    #[error("the costs of a read must be finite and not negative")]
    CostsInvalid,
    /// A translation that leaves the representable index space.
    #[error("start {start} along axis {axis} cannot be moved by {offset}")]
    OffsetOutOfBounds {
        /// The axis, counted from 0.
        axis: usize,
        /// The start of the region.
        start: u64,
        /// The distance of the move.
        offset: i128,
    },
    /// A range whose step is zero.
    #[error("the step of a range must not be zero")]
    StepZero,
    /// A range that leaves the representable index space.
    #[error("a range of {len} indices from {start} by {step} leaves the index space")]
    RangeTooLarge {
        /// The first index.
        start: u64,
        /// The step.
        step: i64,
        /// The number of indices.
        len: u64,
    },
    /// Lists of point coordinates that differ in length.
    #[error("axis {axis} has {found} point coordinates where axis 0 has {expected}")]
    PointCountMismatch {
        /// The axis, counted from 0.
        axis: usize,
        /// The number of coordinates of axis 0.
        expected: u64,
        /// The number of coordinates of this axis.
        found: u64,
    },
    /// A chunk size of zero.
    #[error("the chunk size along axis {axis} must not be zero")]
    ChunkSizeZero {
        /// The axis, counted from 0.
        axis: usize,
    },
    /// An axis whose last chunk ends beyond the largest index.
    #[error(
        "chunks of size {chunk_size} along axis {axis} of size {size} exceed the largest index"
    )]
    GridTooLarge {
        /// The axis, counted from 0.
        axis: usize,
        /// The size of the array along the axis.
        size: u64,
        /// The size of a chunk along the axis.
        chunk_size: u64,
    },
    /// A shape whose elements cannot be counted in 64 bits.
    #[error("shape {shape:?} has more elements than 64 bits can count")]
    TooManyElements {
        /// The shape.
        shape: Vec<u64>,
    },
    /// A grid with too many cells to list.
    #[error("a grid of shape {shape:?} has more than {SEQUENCE_CELLS_MAX} cells to put in order")]
    TooManyCells {
        /// The shape of the grid.
        shape: Vec<u64>,
    },
    /// A grid with too many cells to place by their readers.
    #[error(
        "a grid of shape {shape:?} has more than {PLACED_CELLS_MAX} cells to place by their readers"
    )]
    TooManyPlacedCells {
        /// The shape of the grid.
        shape: Vec<u64>,
    },
    /// Reads that touch too many cells to count.
    #[error("the reads touch more than {PLACED_READS_MAX} cells, each as often as it is read")]
    TooManyPlacedReads,
    /// A curve through too many axes.
    #[error("a curve goes through at most {CURVE_RANK_MAX} axes longer than one, not {rank}")]
    CurveRankTooLarge {
        /// The number of axes longer than one.
        rank: usize,
    },
    /// A box with too many bits for the keys of a curve.
    #[error("axes of {bits:?} bits are too long for a curve: at most 64 each, 128 in all")]
    CurveTooFine {
        /// The bits of each axis.
        bits: Vec<u32>,
    },
    /// A key beyond the end of a curve.
    #[error("key {key} lies beyond the end of a curve of 2^{bits} cells")]
    KeyOutOfBounds {
        /// The key.
        key: u128,
        /// The bits of the curve's keys.
        bits: u32,
    },
    /// An unknown name of an order.
    #[error("unknown order {name:?}: it is row-major, column-major, z or hilbert")]
    OrderUnknown {
        /// The name, shortened to fit a message.
        name: String,
    },
}

/// Checks that a rank is at most [`RANK_MAX`].
pub(crate) fn check_rank(rank: usize) -> Result<(), GeometryError> {
    if rank > RANK_MAX { Err(GeometryError::RankTooLarge { rank }) } else { Ok(()) }
}

/// Checks that two ranks are equal.
pub(crate) fn check_ranks_equal(expected: usize, found: usize) -> Result<(), GeometryError> {
    if expected == found { Ok(()) } else { Err(GeometryError::RankMismatch { expected, found }) }
}
