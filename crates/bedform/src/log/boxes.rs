//! Selections as lists of boxes, and copies of their elements into the order of the boxes.

use bedform_format::log::Boxes;
use bedform_geometry::{AxisSelection, Selection, element_count, strides};

use crate::error::{Error, ErrorKind, Result};
use crate::plan::copy::{Axis, Copy};

/// Most boxes of one write; each point is a box.
const BOXES_MAX: u64 = 1 << 24;

/// A selection as boxes, with the copies that gather the elements of each box.
pub(super) struct BoxedSelection {
    pub(super) boxes: Boxes,
    /// For each box its bytes, and the copy of its elements from those of the selection. `None` if
    /// the elements of the selection are in the order of the boxes.
    pub(super) copies: Option<Vec<(usize, Copy)>>,
}

/// A run of adjacent positions along one axis: first position, first index in the result, count.
type PositionRun = (u64, u64, u64);

/// Returns the boxes of `selection` in an array with `rank` axes and elements of `item` bytes. An
/// axis with gaps, or in another order, gives a box for each run of adjacent positions.
///
/// # Errors
/// `LimitExceeded` for more than 2^24 boxes.
pub(super) fn parts_of(selection: &Selection, rank: usize, item: usize) -> Result<BoxedSelection> {
    match selection {
        Selection::Union(regions) => {
            check_count(regions.len() as u64)?;
            let regions = || regions.iter().filter(|region| !region.is_empty());
            let starts = regions().flat_map(|region| region.start().iter().copied());
            let shapes = regions().flat_map(|region| region.shape().iter().copied());
            boxes(rank, regions().count(), starts.collect(), shapes.collect())
        }
        Selection::Points(points) => {
            check_count(points.count())?;
            let count = index(points.count());
            let coords = points.coords();
            let starts = (0..count).flat_map(|at| coords.iter().map(move |axis| axis[at]));
            boxes(rank, count, starts.collect(), vec![1; count * rank])
        }
        Selection::Orthogonal(axes) => product(axes, item),
    }
}

fn boxes(rank: usize, count: usize, starts: Vec<u64>, shapes: Vec<u64>) -> Result<BoxedSelection> {
    let boxes = match rank {
        0 => Boxes::without_axes(count),
        _ => Boxes::new(rank, starts, shapes).map_err(|e| Error::invalid(e.to_string()))?,
    };
    Ok(BoxedSelection { boxes, copies: None })
}

fn check_count(count: u64) -> Result<()> {
    if count <= BOXES_MAX {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::LimitExceeded,
        format!(
            "the selection has {count} separate boxes, over the limit of {BOXES_MAX} of one \
                 write; write it in parts"
        ),
    ))
}

/// Returns the boxes of all combinations of the axes' runs.
fn product(axes: &[AxisSelection], item: usize) -> Result<BoxedSelection> {
    let runs: Vec<Vec<PositionRun>> = axes.iter().map(runs_of).collect::<Result<_>>()?;
    let counts: Vec<u64> = runs.iter().map(|runs| runs.len() as u64).collect();
    let count = element_count(&counts).unwrap_or(u64::MAX);
    check_count(count)?;
    let (mut starts, mut shapes) = (Vec::new(), Vec::new());
    let lengths: Vec<u64> = axes.iter().map(AxisSelection::len).collect();
    let steps = strides(&lengths);
    let mut copies = Vec::new();
    let mut at = vec![0_usize; axes.len()];
    for _ in 0..count {
        let chosen: Vec<PositionRun> = at.iter().zip(&runs).map(|(at, runs)| runs[*at]).collect();
        starts.extend(chosen.iter().map(|(start, ..)| *start));
        shapes.extend(chosen.iter().map(|(.., length)| *length));
        if count > 1 {
            copies.push(copy_of(&chosen, &steps, item));
        }
        for axis in (0..at.len()).rev() {
            at[axis] += 1;
            if at[axis] < runs[axis].len() {
                break;
            }
            at[axis] = 0;
        }
    }
    let parts = boxes(axes.len(), index(count), starts, shapes)?;
    Ok(BoxedSelection { copies: (count > 1).then_some(copies), ..parts })
}

/// Returns the bytes of a box, and the copy of its elements from those of the selection.
fn copy_of(runs: &[PositionRun], steps: &[u64], item: usize) -> (usize, Copy) {
    let shape: Vec<u64> = runs.iter().map(|(.., length)| *length).collect();
    let inside = strides(&shape);
    let item = item as u64;
    let mut copy = Copy::default();
    for (axis, (_, result, length)) in runs.iter().enumerate() {
        copy.source_start += signed(result * steps[axis] * item);
        copy.axes.push(Axis::Even {
            source_step: signed(steps[axis] * item),
            target_step: signed(inside[axis] * item),
            count: *length,
        });
    }
    copy.tidy();
    (index(shape.iter().product::<u64>() * item), copy)
}

/// Returns the runs of adjacent positions along an axis, in the order of the selection.
fn runs_of(axis: &AxisSelection) -> Result<Vec<PositionRun>> {
    if let AxisSelection::Range(range) = axis
        && range.is_contiguous()
    {
        return Ok(vec![(range.start(), 0, range.len())]);
    }
    check_count(axis.len())?;
    let mut runs: Vec<PositionRun> = Vec::new();
    for at in 0..axis.len() {
        let Some(position) = axis.get(at) else { break };
        match runs.last_mut() {
            Some((start, _, length)) if *start + *length == position => *length += 1,
            _ => runs.push((position, at, 1)),
        }
    }
    Ok(runs)
}

fn signed(value: u64) -> i64 {
    // The bytes of a selection are in memory, so the value fits.
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[allow(clippy::cast_possible_truncation)]
fn index(value: u64) -> usize {
    // The value counts objects in memory, so it fits.
    value as usize
}
