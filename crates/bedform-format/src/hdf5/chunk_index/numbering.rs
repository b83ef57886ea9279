//! The numbering of chunks in array indexes.

use super::Indexed;
use crate::hdf5::Dataspace;

/// The order in which an array index stores the chunks of a dataset.
///
/// Chunks are numbered over the largest shape of the dataset, the last axis fastest. An axis
/// without a bound is the slowest, regardless of its position.
pub(super) struct Numbering {
    /// Number of chunks along each axis of the current shape.
    now: Vec<u64>,
    /// Each axis with its largest number of chunks, the fastest axis first.
    fastest_first: Vec<(usize, u64)>,
}

impl Numbering {
    pub(super) fn of(indexed: &Indexed<'_, '_>, growing_is_slowest: bool) -> Self {
        let shape = indexed.dataset.space.shape();
        let max_shape = match &indexed.dataset.space {
            Dataspace::Simple { max_shape, .. } => max_shape.as_slice(),
            Dataspace::Scalar | Dataspace::Null => &[],
        };
        let chunk_shape = &indexed.layout.shape;
        let chunks = |size: u64, chunk: u64| size.div_ceil(chunk.max(1));
        let now = shape.iter().zip(chunk_shape).map(|(size, chunk)| chunks(*size, *chunk));
        let most = max_shape.iter().zip(chunk_shape);
        let most = most.map(|(size, chunk)| size.map_or(u64::MAX, |size| chunks(size, *chunk)));
        let mut fastest_first: Vec<(usize, u64)> = most.enumerate().collect();
        fastest_first.reverse();
        let growing = max_shape.iter().position(Option::is_none).filter(|_| growing_is_slowest);
        if let Some(axis) = growing {
            fastest_first.sort_by_key(|(other, _)| *other == axis);
        }
        Self { now: now.collect(), fastest_first }
    }

    /// Returns the number of chunks of the largest shape; `None` if it exceeds 64 bits.
    pub(super) fn chunk_count(&self) -> Option<u64> {
        let sizes = self.fastest_first.iter();
        sizes.map(|(_, size)| *size).try_fold(1_u64, |count, size| count.checked_mul(size))
    }

    /// Computes the grid position of chunk `number`.
    pub(super) fn position_of(&self, number: u64, position: &mut [u64]) {
        let mut rest = number;
        for (axis, size) in &self.fastest_first {
            if let Some(slot) = position.get_mut(*axis) {
                *slot = rest.checked_rem(*size).unwrap_or(0);
            }
            rest = rest.checked_div(*size).unwrap_or(0);
        }
        // A number past the last chunk gives a position outside the grid.
        if rest > 0 {
            position.fill(u64::MAX);
        }
    }

    /// Returns true if a position lies in the current shape of the dataset.
    pub(super) fn is_inside(&self, position: &[u64]) -> bool {
        position.iter().zip(&self.now).all(|(at, size)| at < size)
    }
}
