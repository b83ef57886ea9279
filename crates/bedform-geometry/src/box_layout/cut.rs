//! Boxes cut at the multiples of a size.

use crate::boxes::{BoxList, CellBox};
use crate::error::{GeometryError, check_ranks_equal};
use crate::limits::BOXES_MAX;

/// Boxes of limited size, cut from larger ones.
///
/// The cuts lie at the multiples of the size in index space. So boxes that touch are cut at the
/// same places, and each piece is the part of a box in one cell of a regular grid.
///
/// ```
/// use bedform_geometry::{BoxList, CutBoxes};
/// let mut boxes = BoxList::new(1)?;
/// boxes.push(&[-3], &[10])?;
/// let cut = CutBoxes::new(&boxes, &[8])?;
/// let starts: Vec<_> = cut.boxes.iter().map(|piece| piece.start[0]).collect();
/// assert_eq!(starts, [-3, 0, 8]);
/// assert_eq!(cut.sources, [0, 0, 0]);
/// # Ok::<(), bedform_geometry::GeometryError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutBoxes {
    /// The pieces: those of a box in C order, after those of the boxes before it.
    pub boxes: BoxList,
    /// For each piece the number of the box from which it comes.
    pub sources: Vec<u32>,
}

impl CutBoxes {
    /// Cuts boxes into pieces of at most `size` cells along each axis.
    ///
    /// # Errors
    /// [`GeometryError::RankMismatch`]; [`GeometryError::CutSizeZero`];
    /// [`GeometryError::TooManyBoxes`], before anything is allocated, for more than
    /// [`BOXES_MAX`](crate::BOXES_MAX) pieces.
    pub fn new(boxes: &BoxList, size: &[u64]) -> Result<Self, GeometryError> {
        check_ranks_equal(boxes.rank(), size.len())?;
        if let Some(axis) = size.iter().position(|&size| size == 0) {
            return Err(GeometryError::CutSizeZero { axis });
        }
        let mut count = 0_u128;
        for cells in boxes.iter() {
            let parts = pieces(cells, size).map(|(first, last)| (last - first).unsigned_abs() + 1);
            count = count.saturating_add(parts.fold(1, u128::saturating_mul));
        }
        if count > BOXES_MAX as u128 {
            return Err(GeometryError::TooManyBoxes { boxes: count });
        }
        let mut cut = Self { boxes: BoxList::new(boxes.rank())?, sources: Vec::new() };
        for (source, cells) in (0_u32..).zip(boxes.iter()) {
            cut.add(source, cells, size)?;
        }
        Ok(cut)
    }

    /// Adds the pieces of one box.
    fn add(&mut self, source: u32, cells: CellBox<'_>, size: &[u64]) -> Result<(), GeometryError> {
        let ranges: Vec<(i128, i128)> = pieces(cells, size).collect();
        let mut place: Vec<i128> = ranges.iter().map(|range| range.0).collect();
        let (mut start, mut stop) = (cells.start.to_vec(), cells.stop.to_vec());
        loop {
            for (axis, &at) in place.iter().enumerate() {
                let size = i128::from(size[axis]);
                start[axis] = clamped(at * size, cells.start[axis], cells.stop[axis]);
                stop[axis] = clamped((at + 1) * size, cells.start[axis], cells.stop[axis]);
            }
            self.boxes.push(&start, &stop)?;
            self.sources.push(source);
            let Some(axis) = (0..place.len()).rev().find(|&axis| place[axis] < ranges[axis].1)
            else {
                return Ok(());
            };
            place[axis] += 1;
            for later in axis + 1..place.len() {
                place[later] = ranges[later].0;
            }
        }
    }
}

/// Returns the first and the last cell of the grid of cuts that a box touches along each axis.
fn pieces(cells: CellBox<'_>, size: &[u64]) -> impl Iterator<Item = (i128, i128)> {
    cells.start.iter().zip(cells.stop).zip(size).map(|((&start, &stop), &size)| {
        let of = |at: i128| at.div_euclid(i128::from(size));
        (of(start.into()), of(i128::from(stop) - 1))
    })
}

/// Returns a position limited to a range.
fn clamped(at: i128, least: i64, most: i64) -> i64 {
    i64::try_from(at.clamp(least.into(), most.into())).unwrap_or(most)
}
