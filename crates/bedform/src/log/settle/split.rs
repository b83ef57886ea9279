//! A range of a box's elements, cut into boxes.

use crate::error::Result;

/// A callback that gets the start and the lengths of a box.
type BoxVisitor<'a> = dyn FnMut(&[u64], &[u64]) -> Result<()> + 'a;

/// Calls `visit` with boxes, by start and lengths, that together are the elements `first..end` of a
/// box in its C order.
///
/// # Errors
/// Those of `visit`.
pub(super) fn split(
    start: &[u64],
    lengths: &[u64],
    (first, end): (u64, u64),
    visit: &mut BoxVisitor<'_>,
) -> Result<()> {
    let (mut corner, mut count) = (start.to_vec(), lengths.to_vec());
    split_axis(0, lengths, (first, end), (&mut corner, &mut count), visit)
}

fn split_axis(
    axis: usize,
    lengths: &[u64],
    (mut first, end): (u64, u64),
    (corner, count): (&mut Vec<u64>, &mut Vec<u64>),
    visit: &mut BoxVisitor<'_>,
) -> Result<()> {
    if first >= end {
        return Ok(());
    }
    if axis == lengths.len() {
        return visit(corner, count);
    }
    let step: u64 = lengths[axis + 1..].iter().product();
    let begin = corner[axis];
    // Parts of the first and of the last row, and all whole rows between.
    while first < end {
        let row = first / step;
        let rows = if first.is_multiple_of(step) { end / step - row } else { 0 };
        corner[axis] = begin + row;
        if rows > 0 {
            count[axis] = rows;
            visit(corner, count)?;
            first += rows * step;
        } else {
            count[axis] = 1;
            let inner = (first - row * step, (end - row * step).min(step));
            split_axis(axis + 1, lengths, inner, (corner, count), visit)?;
            first = row * step + inner.1;
        }
    }
    corner[axis] = begin;
    count[axis] = lengths[axis];
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bedform_geometry::{element_count, linearize};

    #[test]
    fn the_parts_of_a_box_are_its_elements_in_their_order() {
        for lengths in [vec![], vec![5], vec![3, 4], vec![2, 3, 4], vec![2, 1, 3]] {
            let start: Vec<u64> = (0..lengths.len() as u64).map(|axis| 10 * axis).collect();
            let all = element_count(&lengths).unwrap();
            for first in 0..all {
                for end in first..=all {
                    let mut found = Vec::new();
                    split(&start, &lengths, (first, end), &mut |corner, count| {
                        let inside: Vec<u64> = corner
                            .iter()
                            .zip(&start)
                            .map(|(corner, start)| corner - start)
                            .collect();
                        let from = linearize(&inside, &lengths);
                        found.extend(from..from + count.iter().product::<u64>());
                        Ok(())
                    })
                    .unwrap();
                    assert!(found.into_iter().eq(first..end), "{lengths:?} {first}..{end}");
                }
            }
        }
    }
}
