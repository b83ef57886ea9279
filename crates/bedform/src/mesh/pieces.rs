//! The parts of boxes that a region takes.

use bedform_geometry::CellBox;

use super::{CellRegion, LevelParts, MeshLevel};
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
    /// Bytes between neighbours along each axis in the data.
    pub steps: Vec<i64>,
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
    /// A byte for each element: 1 for a cell of which one box of a finer level of the read has all;
    /// empty without a finer level.
    pub covered: Vec<u8>,
}

/// Pieces whose elements follow each other.
#[derive(Debug)]
pub(super) struct PieceList {
    pub(super) pieces: Vec<LevelPiece>,
    /// The bytes of all elements.
    pub(super) bytes: u64,
    item: u64,
    bytes_max: u64,
}

impl LevelPiece {
    /// Returns the number of cells.
    pub(super) fn cells(&self) -> u64 {
        self.shape.iter().fold(1, |all, length| all.saturating_mul(*length))
    }

    /// Returns the cell after the last along each axis.
    pub(super) fn stop(&self) -> Vec<i64> {
        self.start.iter().zip(&self.shape).map(|(at, n)| at + n.cast_signed()).collect()
    }
}

impl PieceList {
    pub(super) fn new(item: usize, bytes_max: u64) -> Self {
        Self { pieces: Vec::new(), bytes: 0, item: item as u64, bytes_max }
    }

    pub(super) fn parts(&self) -> LevelParts<'_> {
        LevelParts { pieces: &self.pieces, bytes: self.bytes }
    }

    /// Adds the cells of grid `number` from `start` up to and excluding `stop`.
    ///
    /// # Errors
    /// `LimitExceeded` for more bytes than the limit.
    pub(super) fn push(&mut self, number: usize, start: Vec<i64>, stop: &[i64]) -> Result<()> {
        let shape: Vec<u64> = stop.iter().zip(&start).map(|(to, at)| to.abs_diff(*at)).collect();
        let place = usize::try_from(self.bytes).unwrap_or(usize::MAX);
        let bytes = shape.iter().fold(self.item, |all, n| all.saturating_mul(*n));
        self.bytes = self.bytes.saturating_add(bytes);
        check_bytes(self.bytes, self.bytes_max)?;
        let steps = c_order_steps(&shape, self.item);
        self.pieces.push(LevelPiece { number, start, shape, place, steps });
        Ok(())
    }
}

/// Returns the pieces of a level that a region takes.
///
/// # Errors
/// `LimitExceeded` for more than `bytes_max` bytes.
pub(super) fn pieces_of(
    level: &MeshLevel,
    region: &CellRegion,
    item: usize,
    bytes_max: u64,
) -> Result<PieceList> {
    let mut pieces = PieceList::new(item, bytes_max);
    for number in level.index.touching(&region.start, &region.stop)? {
        let number = number as usize;
        let Some(one) = level.grids().get(number) else { continue };
        let start = one.start.iter().zip(&region.start).map(|(a, b)| *a.max(b)).collect();
        let stop: Vec<i64> = one.stop.iter().zip(&region.stop).map(|(a, b)| *a.min(b)).collect();
        pieces.push(number, start, &stop)?;
    }
    Ok(pieces)
}

/// Returns the pieces of the grids of a level that together fill the box `cells`, whose elements lie
/// in C order from byte `place` on; `item` is the bytes of an element.
pub(super) fn pieces_within(
    level: &MeshLevel,
    cells: CellBox<'_>,
    place: usize,
    item: u64,
) -> Result<Vec<LevelPiece>> {
    let shape: Vec<u64> = cells.shape().collect();
    let steps = c_order_steps(&shape, item);
    cut(&LevelPiece { number: 0, start: cells.start.to_vec(), shape, place, steps }, level)
}

/// Returns the pieces of the grids of a level that have cells of a piece, each with its part of the
/// places of that piece.
pub(super) fn cut(whole: &LevelPiece, level: &MeshLevel) -> Result<Vec<LevelPiece>> {
    let region = CellRegion { start: whole.start.clone(), stop: whole.stop() };
    let mut pieces = pieces_of(level, &region, 1, u64::MAX)?.pieces;
    for piece in &mut pieces {
        let axes = piece.start.iter().zip(&whole.start).zip(&whole.steps);
        let before: i64 = axes.map(|((at, first), step)| (at - first) * step).sum();
        piece.place = whole.place + usize::try_from(before).unwrap_or(usize::MAX);
        piece.steps.clone_from(&whole.steps);
    }
    Ok(pieces)
}

/// Fails for more bytes than the caller allows, or than a buffer can have.
pub(super) fn check_bytes(bytes: u64, bytes_max: u64) -> Result<()> {
    if bytes <= bytes_max && i64::try_from(bytes).is_ok() {
        return Ok(());
    }
    let text = format!("the region has {bytes} bytes or more, over the limit of {bytes_max}");
    Err(Error::new(ErrorKind::LimitExceeded, text))
}

/// The axis of a stored box along which elements follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FastestAxis {
    /// x, as in a plotfile.
    First,
    /// The last one, as in a store.
    Last,
}

/// Returns the copy of a piece from its stored box, whose first element lies at byte `origin`.
pub(super) fn copy_of(
    piece: &LevelPiece,
    stored: CellBox<'_>,
    (fastest, origin): (FastestAxis, i64),
    item: usize,
) -> Copy {
    let lengths: Vec<u64> = stored.shape().collect();
    let source_steps = match fastest {
        FastestAxis::First => steps(lengths.iter(), item as u64),
        FastestAxis::Last => c_order_steps(&lengths, item as u64),
    };
    let mut copy =
        Copy { source_start: origin, target_start: piece.place.cast_signed() as i64, axes: vec![] };
    for (axis, source_step) in source_steps.into_iter().enumerate() {
        copy.source_start += (piece.start[axis] - stored.start[axis]) * source_step;
        let (target_step, count) = (piece.steps[axis], piece.shape[axis]);
        copy.axes.push(Axis::Even { source_step, target_step, count });
    }
    copy
}

/// Returns the bytes between neighbours along each axis of a box in C order.
fn c_order_steps(shape: &[u64], item: u64) -> Vec<i64> {
    let mut found = steps(shape.iter().rev(), item);
    found.reverse();
    found
}

/// Returns the bytes between neighbours along each axis, of which the first is the fastest.
fn steps<'a>(lengths: impl Iterator<Item = &'a u64>, item: u64) -> Vec<i64> {
    let mut step = item;
    let next = |length: &u64| {
        let own = step;
        step = step.saturating_mul(*length);
        i64::try_from(own).unwrap_or(i64::MAX)
    };
    lengths.map(next).collect()
}
