//! A level of a refined mesh.
//!
//! Its elements lie in *grids*: the boxes of a plotfile, the sub-boxes of a store.

use bedform_geometry::{BoxIndex, BoxList, CellBox, overlapping_pair};

use super::pieces::LevelPiece;
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
    /// The sub-boxes into which a store cuts the boxes.
    sub_boxes: Option<BoxList>,
    /// The index of the grids.
    pub(super) index: BoxIndex,
    /// The index of the boxes, where these are not the grids.
    box_index: Option<BoxIndex>,
}

impl MeshLevel {
    /// The boxes in which the elements are stored: the boxes of a plotfile, the sub-boxes of a
    /// store.
    pub fn grids(&self) -> &BoxList {
        self.sub_boxes.as_ref().unwrap_or(&self.boxes)
    }

    /// Makes the index of the grids: of the boxes, or of the sub-boxes if there are any. The number
    /// of cells and `sources`, the box of each sub-box, are checked.
    ///
    /// # Errors
    /// `Corrupt` for boxes that overlap or lie outside of the domain, and for sub-boxes that are not
    /// the parts of the boxes.
    pub(super) fn new(
        (shape, ratio): (Vec<u64>, Vec<u32>),
        spacing: Vec<f64>,
        step: i64,
        boxes: BoxList,
        cut: Option<(BoxList, &[usize])>,
    ) -> Result<Self> {
        let is_outside = |one: CellBox<'_>| !is_inside(one.start, one.stop, &shape);
        if let Some(at) = boxes.iter().position(is_outside) {
            return Err(Error::corrupt("boxes", format!("box {at} lies outside of the domain")));
        }
        if let Some((one, other)) = overlapping_pair(&boxes)? {
            return Err(Error::corrupt("boxes", format!("boxes {one} and {other} overlap")));
        }
        let sub_boxes = match cut {
            None => None,
            Some((sub_boxes, sources)) => {
                check_cut(&boxes, &sub_boxes, sources)?;
                Some(sub_boxes)
            }
        };
        let box_index = sub_boxes.as_ref().map(|_| BoxIndex::new(&boxes)).transpose()?;
        let index = BoxIndex::new(sub_boxes.as_ref().unwrap_or(&boxes))?;
        Ok(Self { shape, ratio, spacing, step, boxes, sub_boxes, index, box_index })
    }

    /// Returns true if the grids have all cells of a region of the level before, of which a cell has
    /// `ratio` cells of this one along each axis.
    pub(super) fn has_all(&self, start: &[i64], stop: &[i64], ratio: &[i64]) -> Result<bool> {
        let (start, stop) = (refined(start, ratio), refined(stop, ratio));
        let cells = |sides: &mut dyn Iterator<Item = u64>| {
            sides.fold(1_u128, |all, length| all.saturating_mul(length.into()))
        };
        let mut left = cells(&mut start.iter().zip(&stop).map(|(from, to)| to.abs_diff(*from)));
        // Grids share no cell, so that the parts add up.
        for number in self.index.touching(&start, &stop)? {
            let Some(grid) = self.grids().get(number as usize) else { continue };
            left = left.saturating_sub(cells(&mut (0..ratio.len()).map(|axis| {
                let from = grid.start[axis].max(start[axis]);
                from.abs_diff(grid.stop[axis].min(stop[axis]).max(from))
            })));
        }
        Ok(left == 0)
    }

    /// Marks the cells of a piece of a coarser level of which one box of this level has all: one
    /// byte a cell, in C order. A cell of that level has `ratio` cells of this one along each axis.
    pub(super) fn mark_covered(
        &self,
        piece: &LevelPiece,
        ratio: &[i64],
        marks: &mut [u8],
    ) -> Result<()> {
        let (start, stop) = (&piece.start, piece.stop());
        let index = self.box_index.as_ref().unwrap_or(&self.index);
        for number in index.touching(&refined(start, ratio), &refined(&stop, ratio))? {
            let Some(one) = self.boxes.get(number as usize) else { continue };
            // Neither side is negative.
            let low = (0..ratio.len())
                .map(|at| (one.start[at] + ratio[at] - 1) / ratio[at])
                .zip(start)
                .map(|(low, from)| low.max(*from) - from);
            let high = (0..ratio.len())
                .map(|at| one.stop[at] / ratio[at])
                .zip(start.iter().zip(&stop))
                .map(|(high, (from, to))| high.min(*to) - from);
            let ranges: Vec<(i64, i64)> = low.zip(high).collect();
            mark(&ranges, &piece.shape, marks);
        }
        Ok(())
    }
}

/// Returns a side of a region in cells of a finer level.
fn refined(side: &[i64], ratio: &[i64]) -> Vec<i64> {
    side.iter().zip(ratio).map(|(at, ratio)| at * ratio).collect()
}

/// Marks a box of an array in C order.
fn mark(ranges: &[(i64, i64)], shape: &[u64], marks: &mut [u8]) {
    let Some((&(low, high), inner)) = ranges.split_first() else { return };
    let place = |at: i64| usize::try_from(at).unwrap_or(0);
    if inner.is_empty() {
        marks[place(low)..place(high.max(low))].fill(1);
        return;
    }
    let row = shape[1..].iter().product::<u64>();
    let row = usize::try_from(row).unwrap_or(usize::MAX);
    for at in place(low)..place(high) {
        mark(inner, &shape[1..], &mut marks[at * row..(at + 1) * row]);
    }
}

/// Fails unless the sub-boxes of each box have each of its cells once.
fn check_cut(boxes: &BoxList, sub_boxes: &BoxList, sources: &[usize]) -> Result<()> {
    let refuse = |text: String| Err(Error::corrupt("sub_boxes", text));
    let mut cells = vec![0_u64; boxes.len()];
    for (at, (part, source)) in sub_boxes.iter().zip(sources).enumerate() {
        let is_part = boxes.get(*source).is_some_and(|one| {
            let starts = one.start.iter().zip(part.start).all(|(from, at)| from <= at);
            starts && one.stop.iter().zip(part.stop).all(|(to, at)| at <= to)
        });
        if !is_part {
            return refuse(format!("sub-box {at} is no part of box {source}"));
        }
        cells[*source] = cells[*source].saturating_add(part.cells());
    }
    if let Some(at) = boxes.iter().zip(&cells).position(|(one, cells)| one.cells() != *cells) {
        return refuse(format!("the sub-boxes of box {at} do not have its cells"));
    }
    match overlapping_pair(sub_boxes)? {
        Some((one, other)) => refuse(format!("sub-boxes {one} and {other} overlap")),
        None => Ok(()),
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
