//! Projection of selections onto chunks: the touched chunks, and the position of each part in the
//! result.
//!
//! An orthogonal selection is projected axis by axis. The touched chunks are the products of the
//! pieces of each axis, so that nothing is allocated per chunk. Points are grouped by chunk.

use crate::error::{GeometryError, check_ranks_equal};
use crate::grid::ChunkGrid;
use crate::positions::{AxisRange, Positions};
use crate::selection::{AxisSelection, Points};

/// The part of an axis selection inside one chunk. Both position lists have the same length:
/// element `inside[i]` of the chunk is element `result[i]` of the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AxisPiece {
    /// The chunk's coordinate along the axis.
    pub chunk: u64,
    /// Positions along the axis, relative to the start of the chunk.
    pub inside: Positions,
    /// Positions along the axis of the result, ascending.
    pub result: Positions,
}

/// The pieces of an axis selection, sorted by chunk, each chunk once.
pub type AxisProjection = Vec<AxisPiece>;

/// The move of one element between a chunk and a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PointMove {
    /// Position of the element in C order of the full chunk.
    pub inside: u64,
    /// Position of the element in the result.
    pub result: u64,
}

/// The points inside one chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PointPiece {
    /// Position of the chunk in C order of the grid.
    pub chunk: u64,
    /// The elements, in the order of the result.
    pub moves: Vec<PointMove>,
}

impl ChunkGrid {
    /// Splits a selection along `axis` at the boundaries of chunks.
    ///
    /// The caller must have validated the selection against the array's shape, and `axis` must be
    /// below the rank. Ranges take one step per piece; unsorted coordinates are sorted by chunk.
    /// The number of pieces is at most [`ChunkGrid::axis_piece_bound`]: check that first if the
    /// array's shape is untrusted.
    ///
    /// ```
    /// use bedform_geometry::{AxisRange, AxisSelection, ChunkGrid, Positions};
    /// let grid = ChunkGrid::new([10], [4])?;
    /// let pieces = grid.project_axis(0, &AxisSelection::Range(AxisRange::new(1, 3, 3)?));
    /// assert_eq!(pieces.len(), 2); // positions 1 | 4 7
    /// assert_eq!(pieces[1].inside, Positions::Range(AxisRange::new(0, 3, 2)?));
    /// assert_eq!(pieces[1].result, Positions::Range(AxisRange::new(1, 1, 2)?));
    /// # Ok::<(), bedform_geometry::GeometryError>(())
    /// ```
    pub fn project_axis(&self, axis: usize, selection: &AxisSelection) -> AxisProjection {
        let chunk_size = self.chunk_shape()[axis];
        match selection {
            AxisSelection::Range(range) => project_range(*range, chunk_size),
            AxisSelection::Coords(coords) => project_coords(coords, chunk_size),
        }
    }

    /// As [`ChunkGrid::project_axis`], for a list of positions.
    pub fn project_list(&self, axis: usize, positions: &[u64]) -> AxisProjection {
        project_coords(positions, self.chunk_shape()[axis])
    }

    /// Returns an upper bound on the number of pieces of [`ChunkGrid::project_axis`]; constant time
    /// for ranges.
    pub fn axis_piece_bound(&self, axis: usize, selection: &AxisSelection) -> u64 {
        let chunk_size = self.chunk_shape()[axis];
        selection.bounds().map_or(0, |(lowest, highest)| {
            let chunks = (highest / chunk_size - lowest / chunk_size).saturating_add(1);
            chunks.min(selection.len())
        })
    }

    /// Groups points by chunk, sorted by chunk. The caller must have validated the points against
    /// the array's shape, and their number against the limit of a result. The output takes memory
    /// for each point, even for points of rank 0, which are stored as a count.
    ///
    /// # Errors
    /// [`GeometryError::RankMismatch`], or [`GeometryError::TooManyElements`] if the chunks of the
    /// grid cannot be counted.
    pub fn project_points(&self, points: &Points) -> Result<Vec<PointPiece>, GeometryError> {
        check_ranks_equal(self.rank(), points.rank())?;
        if self.chunk_count().is_none() {
            return Err(GeometryError::TooManyElements { shape: self.grid_shape().to_vec() });
        }
        let mut places: Vec<(u64, PointMove)> =
            (0..points.count()).map(|result| (0, PointMove { inside: 0, result })).collect();
        // Accumulates positions axis by axis, as `linearize` does, but over whole lists of
        // coordinates.
        for (axis, coords) in points.coords().iter().enumerate() {
            let (chunk_size, chunk_count) = (self.chunk_shape()[axis], self.grid_shape()[axis]);
            for ((chunk, to), &at) in places.iter_mut().zip(coords) {
                *chunk = chunk.saturating_mul(chunk_count).saturating_add(at / chunk_size);
                to.inside = to.inside * chunk_size + at % chunk_size;
            }
        }
        if !places.is_sorted_by_key(|(chunk, _)| *chunk) {
            places.sort_unstable_by_key(|(chunk, to)| (*chunk, to.result));
        }
        let pieces = places.chunk_by(|a, b| a.0 == b.0);
        Ok(pieces
            .map(|piece| PointPiece {
                chunk: piece[0].0,
                moves: piece.iter().map(|(_, to)| *to).collect(),
            })
            .collect())
    }
}

/// Splits a range, in the order of the result.
fn project_range(range: AxisRange, chunk_size: u64) -> AxisProjection {
    let mut pieces = Vec::new();
    let (step, stride) = (range.step(), range.step().unsigned_abs());
    let mut done = 0;
    while done < range.len() {
        let at = range.at(done);
        let (chunk, inside) = (at / chunk_size, at % chunk_size);
        let room = if step > 0 { chunk_size - 1 - inside } else { inside };
        let len = (room / stride).saturating_add(1).min(range.len() - done);
        pieces.push(AxisPiece {
            chunk,
            inside: Positions::Range(AxisRange::derived(inside, step, len)),
            result: Positions::Range(AxisRange::derived(done, 1, len)),
        });
        done += len;
    }
    if step < 0 {
        pieces.reverse();
    }
    pieces
}

/// Splits a list of coordinates by chunk. Within a chunk the order is that of the result, so that
/// writes to the result are sequential.
fn project_coords(coords: &[u64], chunk_size: u64) -> AxisProjection {
    if coords.is_sorted() {
        return project_sorted(coords, chunk_size);
    }
    let mut places: Vec<(u64, u64, u64)> = (0_u64..)
        .zip(coords)
        .map(|(result, at)| (at / chunk_size, result, at % chunk_size))
        .collect();
    if !places.is_sorted_by_key(|(chunk, ..)| *chunk) {
        places.sort_unstable();
    }
    let pieces = places.chunk_by(|a, b| a.0 == b.0);
    pieces
        .map(|piece| AxisPiece {
            chunk: piece[0].0,
            inside: Positions::from_list(piece.iter().map(|place| place.2).collect()),
            result: Positions::from_list(piece.iter().map(|place| place.1).collect()),
        })
        .collect()
}

/// As [`project_coords`], for sorted coordinates: those of a chunk are adjacent, and each is copied
/// once.
fn project_sorted(coords: &[u64], chunk_size: u64) -> AxisProjection {
    let mut pieces = Vec::new();
    let mut done = 0;
    while let Some(&first) = coords.get(done) {
        let chunk = first / chunk_size;
        let start = chunk * chunk_size;
        let count = length_below(&coords[done..], start.saturating_add(chunk_size));
        let inside = coords[done..done + count].iter().map(|at| at - start).collect();
        pieces.push(AxisPiece {
            chunk,
            inside: Positions::from_list(inside),
            result: Positions::Range(AxisRange::derived(done as u64, 1, count as u64)),
        });
        done += count;
    }
    pieces
}

/// Returns the number of sorted positions below `end`, of which the first is one. The search
/// doubles its steps, since there may be as many chunks as positions.
fn length_below(coords: &[u64], end: u64) -> usize {
    let (mut low, mut step) = (0, 1);
    while coords.get(low + step).is_some_and(|at| *at < end) {
        low += step;
        step *= 2;
    }
    let high = (low + step).min(coords.len());
    low + coords[low..high].partition_point(|at| *at < end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, step: i64, len: u64) -> Positions {
        Positions::Range(AxisRange::new(start, step, len).unwrap())
    }

    fn project(size: u64, chunk: u64, selection: AxisSelection) -> AxisProjection {
        ChunkGrid::new([size], [chunk]).unwrap().project_axis(0, &selection)
    }

    #[test]
    fn a_step_larger_than_a_chunk_skips_chunks() {
        let pieces = project(100, 4, AxisSelection::Range(AxisRange::new(1, 10, 3).unwrap()));
        let chunks: Vec<u64> = pieces.iter().map(|piece| piece.chunk).collect();
        assert_eq!(chunks, [0, 2, 5]);
        assert_eq!(pieces[1].inside, range(3, 1, 1));
    }

    #[test]
    fn a_negative_step_walks_backwards_inside_chunks_sorted_forwards() {
        let pieces = project(10, 4, AxisSelection::Range(AxisRange::new(9, -2, 5).unwrap()));
        let expected = vec![
            AxisPiece { chunk: 0, inside: range(3, -2, 2), result: range(3, 1, 2) },
            AxisPiece { chunk: 1, inside: range(3, -2, 2), result: range(1, 1, 2) },
            AxisPiece { chunk: 2, inside: range(1, 1, 1), result: range(0, 1, 1) },
        ];
        assert_eq!(pieces, expected);
    }

    #[test]
    fn sorted_coordinates_fill_contiguous_parts_of_the_result() {
        let pieces = project(10, 4, AxisSelection::Coords(vec![0, 1, 3, 5, 5, 6]));
        assert_eq!(pieces[0].inside, Positions::List(vec![0, 1, 3].into()));
        assert_eq!(pieces[1].inside, Positions::List(vec![1, 1, 2].into()));
        assert_eq!((&pieces[0].result, &pieces[1].result), (&range(0, 1, 3), &range(3, 1, 3)));
    }

    #[test]
    fn a_huge_axis_costs_as_much_as_its_pieces() {
        let size = u64::MAX - 1;
        let step = i64::MAX;
        let selection = AxisSelection::Range(AxisRange::new(0, step, 3).unwrap());
        let grid = ChunkGrid::new([size], [1]).unwrap();
        assert_eq!(grid.axis_piece_bound(0, &selection), 3);
        assert_eq!(grid.project_axis(0, &selection).len(), 3);
        let all = AxisSelection::Range(AxisRange::whole(size));
        assert_eq!(grid.axis_piece_bound(0, &all), size);
        assert_eq!(project(size, size, all).len(), 1);
    }

    #[test]
    fn points_are_grouped_by_chunk_in_the_order_of_the_result() {
        let grid = ChunkGrid::new([4, 6], [2, 3]).unwrap();
        let points = Points::new(vec![vec![3, 0, 3, 0], vec![5, 1, 4, 1]]).unwrap();
        let pieces = grid.project_points(&points).unwrap();
        let to = |inside, result| PointMove { inside, result };
        let expected = vec![
            PointPiece { chunk: 0, moves: vec![to(1, 1), to(1, 3)] },
            PointPiece { chunk: 3, moves: vec![to(5, 0), to(4, 2)] },
        ];
        assert_eq!(pieces, expected);
    }

    #[test]
    fn points_of_rank_zero_come_from_the_only_chunk() {
        let grid = ChunkGrid::new([], []).unwrap();
        let pieces = grid.project_points(&Points::of_rank_zero(2)).unwrap();
        assert_eq!((pieces.len(), pieces[0].chunk, pieces[0].moves.len()), (1, 0, 2));
        assert!(grid.project_points(&Points::of_rank_zero(0)).unwrap().is_empty());
        assert!(grid.project_points(&Points::new(vec![vec![]]).unwrap()).is_err());
    }
}
