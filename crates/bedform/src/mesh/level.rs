//! A level of a refined mesh.

use bedform_geometry::{BoxIndex, BoxList, CellBox, overlapping_pair};

use crate::error::{Error, Result};

/// A level: the cells of the domain, and the boxes that hold elements.
#[derive(Debug)]
pub struct MeshLevel {
    /// The number of cells of the domain along each axis.
    pub shape: Vec<u64>,
    /// Cells of the next level along each axis in one cell of this level; empty for the last one.
    pub ratio: Vec<u32>,
    /// The size of a cell along each axis, in the units of the simulation.
    pub spacing: Vec<f64>,
    /// The time step.
    pub step: i64,
    /// The boxes, without ghost cells; they share no cell.
    pub boxes: BoxList,
    pub(super) index: BoxIndex,
}

impl MeshLevel {
    /// Makes the index of the boxes, whose cells lie in the domain.
    ///
    /// # Errors
    /// `Corrupt` for boxes that overlap or lie outside of the domain.
    pub(super) fn new(
        (shape, ratio): (Vec<u64>, Vec<u32>),
        spacing: Vec<f64>,
        step: i64,
        boxes: BoxList,
    ) -> Result<Self> {
        let is_outside = |one: CellBox<'_>| !is_inside(one.start, one.stop, &shape);
        if let Some(at) = boxes.iter().position(is_outside) {
            return Err(Error::corrupt("boxes", format!("box {at} lies outside of the domain")));
        }
        if let Some((one, other)) = overlapping_pair(&boxes)? {
            return Err(Error::corrupt("boxes", format!("boxes {one} and {other} overlap")));
        }
        let index = BoxIndex::new(&boxes)?;
        Ok(Self { shape, ratio, spacing, step, boxes, index })
    }
}

/// Returns true if the cells from `start` up to and excluding `stop` lie in a domain of `shape`.
pub(super) fn is_inside(start: &[i64], stop: &[i64], shape: &[u64]) -> bool {
    let mut axes = start.iter().zip(stop).zip(shape);
    start.len() == shape.len()
        && stop.len() == shape.len()
        && axes
            .all(|((from, to), length)| *from >= 0 && from <= to && to.cast_unsigned() <= *length)
}
