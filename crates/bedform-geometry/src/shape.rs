//! Shapes and C order: the last axis varies fastest.

/// Returns the number of elements of `shape`, or `None` if 64 bits cannot count them.
///
/// A shape without axes has one element; a shape with a zero length has none, regardless of the
/// other lengths.
///
/// ```
/// use bedform_geometry::element_count;
/// assert_eq!(element_count(&[3, 4]), Some(12));
/// assert_eq!(element_count(&[]), Some(1));
/// assert_eq!(element_count(&[u64::MAX, 2, 0]), Some(0));
/// assert_eq!(element_count(&[u64::MAX, 2]), None);
/// ```
pub fn element_count(shape: &[u64]) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1_u64, |count, &size| count.checked_mul(size))
}

/// Returns the position of `point` in C order of `shape`.
///
/// `point` must lie in `shape`, whose elements 64 bits must be able to count. Otherwise the result
/// is meaningless (it saturates instead of wrapping).
///
/// ```
/// assert_eq!(bedform_geometry::linearize(&[1, 2], &[3, 4]), 6);
/// ```
pub fn linearize(point: &[u64], shape: &[u64]) -> u64 {
    debug_assert_eq!(point.len(), shape.len());
    point
        .iter()
        .zip(shape)
        .fold(0_u64, |index, (&at, &size)| index.saturating_mul(size).saturating_add(at))
}

/// Returns the point at position `index` in C order of `shape`; reverses [`linearize`].
///
/// An index past the last element wraps around; a shape without elements gives the origin.
///
/// ```
/// assert_eq!(bedform_geometry::delinearize(6, &[3, 4]), [1, 2]);
/// ```
pub fn delinearize(index: u64, shape: &[u64]) -> Vec<u64> {
    let mut rest = index;
    let mut point = vec![0; shape.len()];
    for (at, &size) in point.iter_mut().zip(shape).rev() {
        if size != 0 {
            *at = rest % size;
            rest /= size;
        }
    }
    point
}

/// Returns the distance in elements between neighbours along each axis, in C order.
///
/// Saturates beyond 64 bits, which [`element_count`] detects.
///
/// ```
/// assert_eq!(bedform_geometry::strides(&[2, 3, 4]), [12, 4, 1]);
/// ```
pub fn strides(shape: &[u64]) -> Vec<u64> {
    let mut strides = vec![1_u64; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(shape[axis]);
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RANK_MAX;

    #[test]
    fn linear_indices_count_the_points_in_c_order() {
        let shape = [2, 3, 4];
        for index in 0..24 {
            let point = delinearize(index, &shape);
            assert_eq!(linearize(&point, &shape), index);
            let dot: u64 = point.iter().zip(strides(&shape)).map(|(at, by)| at * by).sum();
            assert_eq!(dot, index);
        }
        assert_eq!(delinearize(13, &shape), [1, 0, 1]);
    }

    #[test]
    fn a_shape_without_axes_has_one_element() {
        assert_eq!(element_count(&[]), Some(1));
        assert_eq!(linearize(&[], &[]), 0);
        assert!(delinearize(0, &[]).is_empty());
        assert!(strides(&[]).is_empty());
    }

    #[test]
    fn shapes_of_the_largest_rank_are_counted() {
        let shape = [2_u64; RANK_MAX];
        assert_eq!(element_count(&shape), Some(1 << 32));
        assert_eq!(linearize(&[1; RANK_MAX], &shape), (1 << 32) - 1);
        assert_eq!(delinearize((1 << 32) - 1, &shape), [1; RANK_MAX]);
        assert_eq!(element_count(&[4; RANK_MAX]), None);
        assert_eq!(strides(&[4; RANK_MAX + 2])[0], u64::MAX);
    }

    #[test]
    fn a_shape_without_elements_divides_nothing_by_zero() {
        assert_eq!(delinearize(5, &[2, 0, 3]), [1, 0, 2]);
        assert_eq!(strides(&[2, 0, 3]), [0, 3, 1]);
    }
}
