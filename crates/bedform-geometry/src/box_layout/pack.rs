//! Boxes in a row of chunks.

use crate::boxes::{BoxList, CellBox};
use crate::error::GeometryError;

/// Boxes placed one after the other in an array of one axis with a regular chunk grid, so that no
/// box lies in two chunks.
///
/// A box that does not fit into the rest of a chunk begins the next one (next fit). The rest of the
/// chunk is a hole. The order is kept, so that near boxes stay near.
///
/// ```
/// use bedform_geometry::{BoxList, PackedBoxes};
/// let mut boxes = BoxList::new(1)?;
/// for (start, stop) in [(0, 6), (6, 12), (12, 16)] {
///     boxes.push(&[start], &[stop])?;
/// }
/// let packed = PackedBoxes::new(&boxes, &[2, 0, 1], 10)?;
/// assert_eq!(packed.offsets, [4, 10, 0]);
/// assert_eq!((packed.cells, packed.hole_cells), (20, 4));
/// # Ok::<(), bedform_geometry::GeometryError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedBoxes {
    /// For each box of the list the position of its first cell in the array.
    pub offsets: Vec<u64>,
    /// The length of the array in cells: whole chunks.
    pub cells: u64,
    /// The number of cells of the array without a cell of a box.
    pub hole_cells: u64,
}

impl PackedBoxes {
    /// Places boxes in an order, which lists the number of each box once, into chunks of
    /// `chunk_cells` cells.
    ///
    /// # Errors
    /// [`GeometryError::NotAPermutation`]; [`GeometryError::BoxLargerThanChunk`];
    /// [`GeometryError::PackingTooLong`] if 64 bits cannot hold the length.
    pub fn new(boxes: &BoxList, order: &[u32], chunk_cells: u64) -> Result<Self, GeometryError> {
        check_permutation(boxes, order)?;
        let mut offsets = vec![0; boxes.len()];
        let (mut end, mut box_cells) = (0_u64, 0_u64);
        for &number in order {
            let cells = cells_of(boxes, number)?;
            if cells > chunk_cells {
                return Err(GeometryError::BoxLargerThanChunk { number, cells, chunk_cells });
            }
            // A box has a cell, so chunks have one.
            let in_chunk = end % chunk_cells;
            if in_chunk > chunk_cells - cells {
                end =
                    end.checked_add(chunk_cells - in_chunk).ok_or(GeometryError::PackingTooLong)?;
            }
            offsets[number as usize] = end;
            end = end.checked_add(cells).ok_or(GeometryError::PackingTooLong)?;
            box_cells += cells;
        }
        let length = match end.checked_rem(chunk_cells) {
            None | Some(0) => end,
            Some(rest) => {
                end.checked_add(chunk_cells - rest).ok_or(GeometryError::PackingTooLong)?
            }
        };
        Ok(Self { offsets, cells: length, hole_cells: length - box_cells })
    }

    /// Returns the share of the array that is holes, from 0 to 1; 0 for an empty array.
    ///
    /// ```
    /// use bedform_geometry::{BoxList, PackedBoxes};
    /// let mut boxes = BoxList::new(1)?;
    /// boxes.push(&[0], &[6])?;
    /// assert_eq!(PackedBoxes::new(&boxes, &[0], 8)?.hole_share(), 0.25);
    /// # Ok::<(), bedform_geometry::GeometryError>(())
    /// ```
    pub fn hole_share(&self) -> f64 {
        if self.cells == 0 { 0.0 } else { self.hole_cells as f64 / self.cells as f64 }
    }
}

/// Checks that an order lists each box once.
pub(super) fn check_permutation(boxes: &BoxList, order: &[u32]) -> Result<(), GeometryError> {
    let refusal = GeometryError::NotAPermutation { boxes: boxes.len() };
    if order.len() != boxes.len() {
        return Err(refusal);
    }
    let mut is_listed = vec![false; boxes.len()];
    for &number in order {
        match is_listed.get_mut(number as usize) {
            Some(listed) if !*listed => *listed = true,
            _ => return Err(refusal),
        }
    }
    Ok(())
}

/// Returns the number of cells of a box.
pub(super) fn cells_of(boxes: &BoxList, number: u32) -> Result<u64, GeometryError> {
    let cells = boxes.get(number as usize).map(CellBox::cells);
    cells.ok_or(GeometryError::BoxOutOfBounds { number, boxes: boxes.len() })
}
