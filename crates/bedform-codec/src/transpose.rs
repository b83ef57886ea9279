//! `transpose`: axes in another order. Chunks are not rearranged; copies use the strides.

/// Returns the strides in bytes of the array's axes, in a chunk that stores its axes in `order`.
pub(super) fn stored_strides(
    shape: &[usize],
    order: Option<&[usize]>,
    item_size: usize,
) -> Vec<i64> {
    let mut strides = vec![0_i64; shape.len()];
    let mut stride = item_size;
    for position in (0..shape.len()).rev() {
        let axis = order.map_or(position, |order| order[position]);
        strides[axis] = i64::try_from(stride).unwrap_or(i64::MAX);
        stride = stride.saturating_mul(shape[axis]);
    }
    strides
}
