//! A level of a refined mesh.

use bedform_geometry::{BoxIndex, BoxList, overlapping_pair};

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
        let is_inside = |at: usize| {
            let one = boxes.get(at)?;
            let mut axes = one.start.iter().zip(one.stop).zip(&shape);
            axes.all(|((from, to), length)| *from >= 0 && to.cast_unsigned() <= *length)
                .then_some(())
        };
        if let Some(at) = (0..boxes.len()).find(|at| is_inside(*at).is_none()) {
            return Err(Error::corrupt("boxes", format!("box {at} lies outside of the domain")));
        }
        if let Some((one, other)) = overlapping_pair(&boxes)? {
            return Err(Error::corrupt("boxes", format!("boxes {one} and {other} overlap")));
        }
        let index = BoxIndex::new(&boxes)?;
        Ok(Self { shape, ratio, spacing, step, boxes, index })
    }
}
