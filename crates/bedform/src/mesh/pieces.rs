//! The parts of boxes that a region takes.

use bedform_geometry::CellBox;

use super::{CellRegion, MeshLevel};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::copy::{Axis, Copy};

/// The cells of a box that lie in a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LevelPiece {
    /// The number of the box in its level.
    pub number: usize,
    /// The first cell.
    pub start: Vec<i64>,
    /// The number of cells along each axis.
    pub shape: Vec<u64>,
    /// The place of the first element in the data of the level, in bytes.
    pub place: usize,
}

/// The cells of one level that lie in a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LevelPieces {
    /// The level.
    pub level: usize,
    /// A piece for each box that the region touches, in the order of the boxes.
    pub pieces: Vec<LevelPiece>,
    /// The elements, piece after piece, each in C order, in the machine's byte order.
    pub data: Vec<u8>,
}

/// Returns the pieces of a level that a region takes, and the bytes of their elements.
///
/// # Errors
/// `LimitExceeded` for more than `bytes_max` bytes.
pub(super) fn pieces_of(
    level: &MeshLevel,
    region: &CellRegion,
    item: usize,
    bytes_max: u64,
) -> Result<(Vec<LevelPiece>, u64)> {
    let mut bytes = 0_u64;
    let mut pieces = Vec::new();
    for number in level.index.touching(&region.start, &region.stop)? {
        let number = number as usize;
        let Some(one) = level.boxes.get(number) else { continue };
        let start: Vec<i64> = one.start.iter().zip(&region.start).map(|(a, b)| *a.max(b)).collect();
        let stops = one.stop.iter().zip(&region.stop).map(|(a, b)| *a.min(b));
        let shape: Vec<u64> = stops.zip(&start).map(|(to, from)| to.abs_diff(*from)).collect();
        let place = usize::try_from(bytes).unwrap_or(usize::MAX);
        bytes =
            bytes.saturating_add(shape.iter().fold(item as u64, |all, n| all.saturating_mul(*n)));
        check_bytes(bytes, bytes_max)?;
        pieces.push(LevelPiece { number, start, shape, place });
    }
    Ok((pieces, bytes))
}

/// Fails for more bytes than the caller allows, or than a buffer can have.
pub(super) fn check_bytes(bytes: u64, bytes_max: u64) -> Result<()> {
    if bytes <= bytes_max && i64::try_from(bytes).is_ok() {
        return Ok(());
    }
    let text = format!("the region has {bytes} bytes or more, over the limit of {bytes_max}");
    Err(Error::new(ErrorKind::LimitExceeded, text))
}

/// Returns the copy of a piece from its stored box, of which the first axis is the fastest.
pub(super) fn copy_of(piece: &LevelPiece, stored: CellBox<'_>, item: usize) -> Copy {
    let signed = |bytes: usize| bytes.cast_signed() as i64;
    let mut source_step = signed(item);
    let mut source_start = 0;
    let mut target_step = signed(item);
    let mut target_steps: Vec<i64> = Vec::with_capacity(piece.shape.len());
    for length in piece.shape.iter().rev() {
        target_steps.push(target_step);
        target_step = target_step.saturating_mul(length.cast_signed());
    }
    target_steps.reverse();
    let mut axes = Vec::with_capacity(piece.shape.len());
    let cells = stored.start.iter().zip(stored.shape());
    for (axis, (first, length)) in cells.enumerate() {
        source_start += (piece.start[axis] - first) * source_step;
        let (target_step, count) = (target_steps[axis], piece.shape[axis]);
        axes.push(Axis::Even { source_step, target_step, count });
        source_step = source_step.saturating_mul(length.cast_signed());
    }
    Copy { source_start, target_start: signed(piece.place), axes }
}
