//! Orders of the cells of a grid.

use std::fmt;
use std::str::FromStr;

use crate::curve::{Curve, CurveKind, CurveState};
use crate::error::GeometryError;
use crate::limits::{CURVE_RANK_MAX, SEQUENCE_CELLS_MAX};
use crate::shape::{element_count, strides};

/// The order of the cells of a grid; most often, of the chunks of a shard.
///
/// ```
/// use bedform_geometry::Order;
/// let order: Order = "column-major".parse()?;
/// assert_eq!(order.sequence(&[2, 3])?, [0, 3, 1, 4, 2, 5]);
/// assert_eq!(Order::Hilbert.sequence(&[2, 2])?, [0, 2, 3, 1]);
/// # Ok::<(), bedform_geometry::GeometryError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// The last axis varies fastest: C order.
    #[default]
    RowMajor,
    /// The first axis varies fastest.
    ColumnMajor,
    /// Along the Z curve through the enclosing box of powers of two.
    Z,
    /// Along the Hilbert curve through the enclosing box of powers of two.
    Hilbert,
}

impl Order {
    /// All orders.
    pub const ALL: [Self; 4] = [Self::RowMajor, Self::ColumnMajor, Self::Z, Self::Hilbert];

    /// Returns the order's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::RowMajor => "row-major",
            Self::ColumnMajor => "column-major",
            Self::Z => "z",
            Self::Hilbert => "hilbert",
        }
    }

    /// Lists the cells of a grid in this order, each as its position in C order.
    ///
    /// # Errors
    /// [`GeometryError::TooManyCells`] for more than [`SEQUENCE_CELLS_MAX`] cells, before anything
    /// is allocated; [`GeometryError::CurveRankTooLarge`] if a curve would go through more than
    /// [`CURVE_RANK_MAX`](crate::CURVE_RANK_MAX) axes longer than one.
    pub fn sequence(&self, grid_shape: &[u64]) -> Result<Vec<u64>, GeometryError> {
        let count = cell_count(grid_shape)?;
        match self {
            _ if count == 0 => Ok(Vec::new()),
            Self::RowMajor => Ok((0..count as u64).collect()),
            Self::ColumnMajor => Ok(column_major(grid_shape, count)),
            Self::Z => along_curve(CurveKind::Z, grid_shape, count),
            Self::Hilbert => along_curve(CurveKind::Hilbert, grid_shape, count),
        }
    }

    /// Checks that [`Order::sequence`] would succeed.
    ///
    /// # Errors
    /// As [`Order::sequence`].
    ///
    /// ```
    /// use bedform_geometry::Order;
    /// assert!(Order::Hilbert.check(&[2; 8]).is_ok());
    /// assert!(Order::Hilbert.check(&[2; 9]).is_err());
    /// assert!(Order::RowMajor.check(&[2; 9]).is_ok());
    /// ```
    pub fn check(&self, grid_shape: &[u64]) -> Result<(), GeometryError> {
        let count = cell_count(grid_shape)?;
        let rank = grid_shape.iter().filter(|length| **length > 1).count();
        match self {
            Self::Z | Self::Hilbert if count > 0 && rank > CURVE_RANK_MAX => {
                Err(GeometryError::CurveRankTooLarge { rank })
            }
            _ => Ok(()),
        }
    }

    /// Returns for each cell of a grid, in C order, its position in this order; reverses
    /// [`Order::sequence`].
    ///
    /// # Errors
    /// As [`Order::sequence`].
    pub fn ranks(&self, grid_shape: &[u64]) -> Result<Vec<u64>, GeometryError> {
        let sequence = self.sequence(grid_shape)?;
        let mut ranks = vec![0; sequence.len()];
        for (rank, cell) in (0_u64..).zip(sequence) {
            if let Some(place) = usize::try_from(cell).ok().and_then(|cell| ranks.get_mut(cell)) {
                *place = rank;
            }
        }
        Ok(ranks)
    }
}

impl fmt::Display for Order {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for Order {
    type Err = GeometryError;

    /// # Errors
    /// [`GeometryError::OrderUnknown`] for a name that [`Order::name`] never returns.
    fn from_str(name: &str) -> Result<Self, GeometryError> {
        Self::ALL
            .into_iter()
            .find(|order| order.name() == name)
            .ok_or_else(|| GeometryError::OrderUnknown { name: name.chars().take(80).collect() })
    }
}

/// Returns the number of cells of a grid, if it is small enough to list.
fn cell_count(grid_shape: &[u64]) -> Result<usize, GeometryError> {
    element_count(grid_shape)
        .filter(|&count| count <= SEQUENCE_CELLS_MAX)
        .and_then(|count| usize::try_from(count).ok())
        .ok_or_else(|| GeometryError::TooManyCells { shape: grid_shape.to_vec() })
}

/// Lists the cells of a non-empty grid, the first axis fastest.
fn column_major(grid_shape: &[u64], count: usize) -> Vec<u64> {
    let strides = strides(grid_shape);
    let mut sequence = Vec::with_capacity(count);
    sequence.push(0);
    // Each axis repeats the cells of the axes before it once per position.
    for (&size, stride) in grid_shape.iter().zip(strides) {
        let given = sequence.len();
        for position in 1..size {
            for place in 0..given {
                sequence.push(sequence[place] + position * stride);
            }
        }
    }
    sequence
}

/// Lists the cells of a non-empty grid along a curve.
fn along_curve(
    kind: CurveKind,
    grid_shape: &[u64],
    count: usize,
) -> Result<Vec<u64>, GeometryError> {
    // Axes of size one do not take part.
    let strides = strides(grid_shape);
    let long = || grid_shape.iter().zip(&strides).filter(|(size, _)| **size > 1);
    let sizes: Vec<u64> = long().map(|(size, _)| *size).collect();
    let strides: Vec<u64> = long().map(|(_, stride)| *stride).collect();
    let bits: Vec<u32> = sizes.iter().map(|size| u64::BITS - (size - 1).leading_zeros()).collect();
    let curve = Curve::new(kind, &bits)?;
    let offsets = curve.levels().iter().enumerate();
    let offsets = offsets.map(|(level, axes)| corner_offsets(level, axes, &strides)).collect();
    let mut walk = CurveWalk {
        curve: &curve,
        offsets,
        origin: vec![0; sizes.len()],
        sizes,
        sequence: Vec::with_capacity(count),
    };
    walk.descend(curve.levels().len(), 0, CurveState::default());
    Ok(walk.sequence)
}

/// Returns for each corner of a block at `level` the distance in C order from the block's first
/// cell to the corner's first cell.
fn corner_offsets(level: usize, axes: &[usize], strides: &[u64]) -> Vec<u64> {
    let offset = |corner: u32| {
        let set = axes.iter().enumerate().filter(|(bit, _)| corner >> bit & 1 == 1);
        set.map(|(_, &axis)| strides[axis] << level).sum()
    };
    (0..1 << axes.len()).map(offset).collect()
}

/// A traversal of a curve that skips blocks outside a grid.
struct CurveWalk<'a> {
    curve: &'a Curve,
    sizes: Vec<u64>,
    /// The result of [`corner_offsets`] for each level.
    offsets: Vec<Vec<u64>>,
    /// The first cell of the current block.
    origin: Vec<u64>,
    sequence: Vec<u64>,
}

impl CurveWalk<'_> {
    /// Visits the cells of a block of `levels` levels, whose first cell is at position `place` in C
    /// order. The recursion depth is the bits of the longest axis, at most 28.
    fn descend(&mut self, levels: usize, place: u64, state: CurveState) {
        let Some(level) = levels.checked_sub(1) else {
            self.sequence.push(place);
            return;
        };
        let axes = &self.curve.levels()[level];
        let half = 1_u64 << level;
        // One bit for each axis along which the upper half of the block has cells in the grid.
        let open = axes.iter().enumerate().fold(0_u32, |open, (bit, &axis)| {
            open | u32::from(self.origin[axis] + half < self.sizes[axis]) << bit
        });
        for step in 0..1_u32 << axes.len() {
            let (corner, next) = self.curve.corner_of(axes.len(), state, step);
            if corner & !open != 0 {
                continue;
            }
            let place = place + self.offsets[level][corner as usize];
            if level == 0 {
                self.sequence.push(place);
                continue;
            }
            self.shift_origin(axes, corner, |at| at + half);
            self.descend(level, place, next);
            self.shift_origin(axes, corner, |at| at - half);
        }
    }

    /// Moves the origin along the axes whose bit is set in `corner`.
    fn shift_origin(&mut self, axes: &[usize], corner: u32, shift: impl Fn(u64) -> u64) {
        for (bit, &axis) in axes.iter().enumerate() {
            if corner >> bit & 1 == 1 {
                self.origin[axis] = shift(self.origin[axis]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for order in Order::ALL {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        let error = "Hilbert".parse::<Order>().unwrap_err().to_string();
        assert!(error.contains("\"Hilbert\"") && error.contains("row-major"), "{error}");
    }

    #[test]
    fn grids_that_are_too_large_are_refused_before_memory_is_taken() {
        for order in Order::ALL {
            for shape in [&[1 << 29][..], &[1 << 15; 2], &[u64::MAX; 2], &[2; 32]] {
                let refused = order.sequence(shape);
                assert!(matches!(refused, Err(GeometryError::TooManyCells { .. })), "{shape:?}");
            }
            assert_eq!(order.sequence(&[u64::MAX, 0, u64::MAX]), Ok(vec![]));
        }
    }

    #[test]
    fn curves_go_through_at_most_eight_axes_longer_than_one() {
        let mut shape = [1; 32];
        shape[..8].fill(2);
        assert_eq!(Order::Hilbert.sequence(&shape).unwrap().len(), 256);
        shape[31] = 2;
        assert_eq!(Order::Z.sequence(&shape), Err(GeometryError::CurveRankTooLarge { rank: 9 }));
        assert_eq!(Order::ColumnMajor.sequence(&shape).unwrap().len(), 512);
    }

    #[test]
    fn a_grid_without_axes_has_one_cell() {
        for order in Order::ALL {
            assert_eq!(order.sequence(&[]), Ok(vec![0]));
            assert_eq!(order.ranks(&[1, 1]), Ok(vec![0]));
        }
    }

    #[test]
    fn an_elongated_grid_is_a_chain_of_cubes() {
        let sequence = Order::Hilbert.sequence(&[1000, 4, 4]).unwrap();
        for (place, cell) in sequence.iter().enumerate() {
            assert_eq!(cell / 16 / 4, place as u64 / 64);
        }
    }
}
