//! Chunk grids: the division of an array into chunks.

use crate::error::{GeometryError, check_rank, check_ranks_equal};
use crate::region::Region;
use crate::shape::element_count;

/// The division of an array into chunks of equal shape, starting at the origin.
///
/// A value of this type
///
/// - has an array shape and a chunk shape of equal rank, at most [`RANK_MAX`](crate::RANK_MAX);
/// - has chunk sizes of at least one, and chunks whose elements 64 bits can count;
/// - has, on every axis, a last chunk whose end fits 64 bits.
///
/// The last chunk of an axis may extend past the end of the array. An axis of size 0 has no chunks;
/// a grid without axes has one.
///
/// ```
/// use bedform_geometry::ChunkGrid;
/// let grid = ChunkGrid::new([10, 6], [4, 3])?;
/// assert_eq!(grid.grid_shape(), [3, 2]);
/// assert_eq!(grid.chunk_of(&[9, 2]), [2, 0]);
/// assert_eq!(grid.chunk_region(&[2, 1]).shape(), [4, 3]);
/// assert_eq!(grid.chunk_region_clipped(&[2, 1]).shape(), [2, 3]);
/// # Ok::<(), bedform_geometry::GeometryError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ChunkGrid {
    array_shape: Vec<u64>,
    chunk_shape: Vec<u64>,
    grid_shape: Vec<u64>,
}

impl ChunkGrid {
    /// Makes the grid of an array of `array_shape` in chunks of `chunk_shape`.
    ///
    /// # Errors
    /// [`GeometryError`] names the broken rule of the type.
    pub fn new(
        array_shape: impl Into<Vec<u64>>,
        chunk_shape: impl Into<Vec<u64>>,
    ) -> Result<Self, GeometryError> {
        let (array_shape, chunk_shape) = (array_shape.into(), chunk_shape.into());
        check_rank(array_shape.len())?;
        check_ranks_equal(array_shape.len(), chunk_shape.len())?;
        let mut grid_shape = Vec::with_capacity(array_shape.len());
        for (axis, (&size, &chunk_size)) in array_shape.iter().zip(&chunk_shape).enumerate() {
            if chunk_size == 0 {
                return Err(GeometryError::ChunkSizeZero { axis });
            }
            let count = size.div_ceil(chunk_size);
            if count.checked_mul(chunk_size).is_none() {
                return Err(GeometryError::GridTooLarge { axis, size, chunk_size });
            }
            grid_shape.push(count);
        }
        if element_count(&chunk_shape).is_none() {
            return Err(GeometryError::TooManyElements { shape: chunk_shape });
        }
        Ok(Self { array_shape, chunk_shape, grid_shape })
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.array_shape.len()
    }

    /// The shape of the array.
    pub fn array_shape(&self) -> &[u64] {
        &self.array_shape
    }

    /// The shape of a chunk.
    pub fn chunk_shape(&self) -> &[u64] {
        &self.chunk_shape
    }

    /// The number of chunks along each axis.
    pub fn grid_shape(&self) -> &[u64] {
        &self.grid_shape
    }

    /// The number of chunks, or `None` if 64 bits cannot count them.
    pub fn chunk_count(&self) -> Option<u64> {
        element_count(&self.grid_shape)
    }

    /// The number of elements of a full chunk.
    pub fn chunk_len(&self) -> u64 {
        self.chunk_shape.iter().product()
    }

    /// Returns the full region of a chunk, which may extend past the end of the array. A chunk
    /// outside the grid has an empty region.
    pub fn chunk_region(&self, chunk: &[u64]) -> Region {
        self.region_up_to(chunk, |_| u64::MAX)
    }

    /// Returns the part of a chunk's region inside the array. A chunk outside the grid has an empty
    /// region.
    pub fn chunk_region_clipped(&self, chunk: &[u64]) -> Region {
        self.region_up_to(chunk, |axis| self.array_shape[axis])
    }

    /// Returns the coordinates of the chunk that contains `point`.
    pub fn chunk_of(&self, point: &[u64]) -> Vec<u64> {
        point.iter().zip(&self.chunk_shape).map(|(at, size)| at / size).collect()
    }

    /// Returns the box, in chunk coordinates, of the chunks that contain a point of `region`;
    /// `None` if the region is empty, lies outside the array, or has another rank.
    ///
    /// ```
    /// use bedform_geometry::{ChunkGrid, Region};
    /// let grid = ChunkGrid::new([10, 6], [4, 3])?;
    /// let touched = grid.chunks_of_region(&Region::new([3, 3], [2, 2])?);
    /// assert_eq!(touched, Some(Region::new([0, 1], [2, 1])?));
    /// # Ok::<(), bedform_geometry::GeometryError>(())
    /// ```
    pub fn chunks_of_region(&self, region: &Region) -> Option<Region> {
        let array = Region::from_bounds(vec![0; self.rank()], &self.array_shape);
        let inside = array.intersection(region)?;
        let end: Vec<u64> = (0..self.rank())
            .map(|axis| inside.end(axis).div_ceil(self.chunk_shape[axis]))
            .collect();
        Some(Region::from_bounds(self.chunk_of(inside.start()), &end))
    }

    /// Returns the region of `chunk`, cut off at `limit(axis)`.
    fn region_up_to(&self, chunk: &[u64], limit: impl Fn(usize) -> u64) -> Region {
        let inside = chunk.len() == self.rank()
            && chunk.iter().zip(&self.grid_shape).all(|(at, count)| at < count);
        if !inside {
            return Region::from_bounds(self.array_shape.clone(), &self.array_shape);
        }
        let start: Vec<u64> = chunk.iter().zip(&self.chunk_shape).map(|(at, by)| at * by).collect();
        let end: Vec<u64> = (0..self.rank())
            .map(|axis| (start[axis] + self.chunk_shape[axis]).min(limit(axis)))
            .collect();
        Region::from_bounds(start, &end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_without_axes_has_one_chunk() {
        let grid = ChunkGrid::new([], []).unwrap();
        assert_eq!(grid.chunk_count(), Some(1));
        assert_eq!(grid.chunk_region(&[]).len(), Some(1));
        assert_eq!(grid.chunks_of_region(&Region::whole([]).unwrap()).unwrap().len(), Some(1));
    }

    #[test]
    fn an_empty_axis_has_no_chunks() {
        let grid = ChunkGrid::new([0, 5], [4, 4]).unwrap();
        assert_eq!((grid.grid_shape(), grid.chunk_count()), (&[0, 2][..], Some(0)));
        assert!(grid.chunk_region(&[0, 0]).is_empty());
        assert_eq!(grid.chunks_of_region(&Region::new([0, 0], [1, 1]).unwrap()), None);
    }

    #[test]
    fn grids_that_leave_the_index_space_are_refused() {
        let refused =
            |array: &[u64], chunk: &[u64]| ChunkGrid::new(array, chunk).unwrap_err().to_string();
        assert_eq!(refused(&[3, 4], &[1, 0]), "the chunk size along axis 1 must not be zero");
        assert_eq!(
            refused(&[u64::MAX], &[2]),
            "chunks of size 2 along axis 0 of size 18446744073709551615 exceed the largest index"
        );
        assert!(refused(&[1, 1], &[1 << 32, 1 << 32]).contains("64 bits"));
        assert_eq!(refused(&[1], &[]), "rank 0 was given where rank 1 is needed");
        assert!(refused(&[1; 33], &[1; 33]).contains("33"));
    }

    #[test]
    fn chunks_that_cannot_be_counted_are_no_overflow() {
        let grid = ChunkGrid::new([1 << 40, 1 << 40], [1, 1]).unwrap();
        assert_eq!(grid.chunk_count(), None);
    }
}
