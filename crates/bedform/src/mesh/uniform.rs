//! Pieces of levels, laid over each other as one array.

use super::{CellRegion, LevelPiece};

/// The places of one axis of the result that a piece fills: the first of them, and for each the
/// cell of the piece.
struct LaidAxis {
    first: usize,
    cells: Vec<usize>,
    /// Elements between neighbours in the result and in the piece.
    target_step: usize,
    source_step: usize,
}

/// Lays the elements of a piece into `target`, a region in C order. A cell of the piece has `ratio`
/// cells of the region along each axis, and an element `item` bytes.
pub(super) fn lay(
    piece: &LevelPiece,
    data: &[u8],
    (ratio, item): (&[i64], usize),
    region: &CellRegion,
    target: &mut [u8],
) {
    let (mut target_step, mut source_step) = (1, 1);
    let mut axes = Vec::with_capacity(ratio.len());
    for axis in (0..ratio.len()).rev() {
        let (start, ratio, length) = (piece.start[axis], ratio[axis], piece.shape[axis]);
        let (from, to) = (region.start[axis], region.stop[axis]);
        let first = from.max(start * ratio);
        let end = to.min((start + length.cast_signed()) * ratio);
        let cells = (first..end).map(|at| index(at / ratio - start)).collect();
        axes.push(LaidAxis { first: index(first - from), cells, target_step, source_step });
        target_step *= index(to - from);
        source_step *= index(length.cast_signed());
    }
    axes.reverse();
    let source = &data[piece.place..piece.place + source_step * item];
    match item {
        4 => lay_axes::<4>(&axes, source, 0, target, 0),
        _ => lay_axes::<8>(&axes, source, 0, target, 0),
    }
}

fn lay_axes<const ITEM: usize>(
    axes: &[LaidAxis],
    source: &[u8],
    from: usize,
    target: &mut [u8],
    to: usize,
) {
    let Some((axis, inner)) = axes.split_first() else { return };
    let to = to + axis.first * axis.target_step;
    if inner.is_empty() {
        let row = &mut target[to * ITEM..(to + axis.cells.len()) * ITEM];
        for (element, cell) in row.chunks_exact_mut(ITEM).zip(&axis.cells) {
            let at = (from + cell) * ITEM;
            element.copy_from_slice(&source[at..at + ITEM]);
        }
        return;
    }
    for (number, cell) in axis.cells.iter().enumerate() {
        let (from, to) = (from + cell * axis.source_step, to + number * axis.target_step);
        lay_axes::<ITEM>(inner, source, from, target, to);
    }
}

/// Places in a region that is in memory fit.
#[allow(clippy::cast_possible_truncation)]
fn index(at: i64) -> usize {
    at.cast_unsigned() as usize
}
