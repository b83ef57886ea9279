//! Placement of the cells of a grid on storage targets, so that many targets serve each plane.

use crate::error::GeometryError;
use crate::limits::SEQUENCE_CELLS_MAX;
use crate::order::Order;
use crate::shape::element_count;

/// Largest number of candidate steps for each axis.
const STEPS_MAX: u64 = 1024;
/// Largest number of targets for which steps are compared.
const TARGETS_MAX: u64 = 1 << 16;

/// Returns for each cell of a grid, in C order, the target that stores it, so that planes across
/// each axis lie on as many targets as possible.
///
/// The target of a cell is the sum of its coordinates times a step for each axis, modulo the number
/// of targets. So all planes across an axis touch equally many targets. Steps are chosen one axis
/// after the other, from the last: the step for which the planes that contain the axis touch the
/// most targets. A curve ([`Order::placement`]) spreads boxes well, too. But along a curve, cells
/// of a plane with fewer cells than targets may share a target; here they need not.
///
/// ```
/// use bedform_geometry::spread_placement;
/// // Each row and column of a grid is on all targets.
/// assert_eq!(spread_placement(&[3, 3], 3)?, [0, 1, 2, 1, 2, 0, 2, 0, 1]);
/// # Ok::<(), bedform_geometry::GeometryError>(())
/// ```
///
/// # Errors
/// [`GeometryError::TooManyCells`] for more than [`SEQUENCE_CELLS_MAX`] cells, before anything is
/// allocated.
pub fn spread_placement(grid_shape: &[u64], targets: u32) -> Result<Vec<u64>, GeometryError> {
    let targets = u64::from(targets.max(1));
    places(grid_shape, &steps(grid_shape, targets), targets)
}

/// Returns for each cell of a grid, in C order, the sum of its coordinates times the steps, modulo
/// the targets.
fn places(grid_shape: &[u64], steps: &[u64], targets: u64) -> Result<Vec<u64>, GeometryError> {
    let count = element_count(grid_shape)
        .filter(|&count| count <= SEQUENCE_CELLS_MAX)
        .and_then(|count| usize::try_from(count).ok())
        .ok_or_else(|| GeometryError::TooManyCells { shape: grid_shape.to_vec() })?;
    let mut places = Vec::with_capacity(count);
    if count > 0 {
        places.push(0);
    }
    // From the last axis on, each axis repeats the values of the axes after it, shifted by its
    // step.
    for (&size, &step) in grid_shape.iter().zip(steps).rev() {
        let given = places.len();
        for position in 1..size {
            let moved = position % targets * step % targets;
            for at in 0..given {
                places.push((places[at] + moved) % targets);
            }
        }
    }
    Ok(places)
}

/// The storage target of each cell of a grid that may grow.
///
/// As [`spread_placement`], but a cell's target is independent of the size of the grid. The steps
/// are those of a grid whose planes have about as many cells as there are targets.
///
/// ```
/// use bedform_geometry::Spread;
/// let spread = Spread::new(3, 336);
/// assert_eq!(spread.target(&[0, 0, 0]), 0);
/// assert_eq!(spread.target(&[5, 0, 2]), 261);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spread {
    steps: Vec<u64>,
    targets: u32,
}

impl Spread {
    /// Makes the placement for grids of `dimensions` axes; 0 targets count as 1.
    #[must_use]
    pub fn new(dimensions: usize, targets: u32) -> Self {
        let targets = targets.max(1);
        let grid = vec![plane_side(dimensions, u64::from(targets)).max(2); dimensions];
        Self { steps: steps(&grid, u64::from(targets)), targets }
    }

    /// Returns the target of the cell at `coordinates`, one for each axis.
    #[must_use]
    pub fn target(&self, coordinates: &[u64]) -> u32 {
        let targets = u64::from(self.targets);
        let place = coordinates
            .iter()
            .zip(&self.steps)
            .fold(0, |sum, (&at, step)| (sum + at % targets * step) % targets);
        u32::try_from(place).unwrap_or_default()
    }

    /// Returns for each cell of a grid of the current shape, in C order, its target.
    ///
    /// # Errors
    /// As [`spread_placement`].
    pub fn placement(&self, grid_shape: &[u64]) -> Result<Vec<u64>, GeometryError> {
        places(grid_shape, &self.steps, u64::from(self.targets))
    }
}

/// Returns the smallest side of a cube whose planes have at least as many cells as there are
/// targets.
fn plane_side(dimensions: usize, targets: u64) -> u64 {
    let axes = u32::try_from(dimensions.saturating_sub(1)).unwrap_or(u32::MAX);
    let (mut below, mut found) = (0, targets);
    while below + 1 < found {
        let side = u64::midpoint(below, found);
        match side.saturating_pow(axes) >= targets {
            true => found = side,
            false => below = side,
        }
    }
    found
}

/// Returns the step of each axis.
fn steps(grid_shape: &[u64], targets: u64) -> Vec<u64> {
    let mut steps = vec![0; grid_shape.len()];
    // Positions beyond the number of targets repeat the first ones.
    let sizes: Vec<u64> = grid_shape.iter().map(|&size| size.clamp(1, targets)).collect();
    let mut is_first = true;
    for axis in (0..sizes.len()).rev().filter(|&axis| grid_shape[axis] > 1) {
        steps[axis] = match std::mem::take(&mut is_first) || targets > TARGETS_MAX {
            true => 1,
            false => best_step(axis, &sizes, &steps, targets),
        };
    }
    steps
}

/// Returns the first step of `axis` that maximizes the number of targets touched by the cells of
/// this and the later axes, and by those of each plane across a later axis.
fn best_step(axis: usize, sizes: &[u64], steps: &[u64], targets: u64) -> u64 {
    let behind: Vec<usize> = (axis + 1..sizes.len()).filter(|&other| sizes[other] > 1).collect();
    let tried = targets.min(STEPS_MAX);
    let mut best = (0, 0);
    for number in 0..tried {
        let step = number * targets / tried;
        let mut trial = steps.to_vec();
        trial[axis] = step;
        let mut least = touched(axis, None, sizes, &trial, targets);
        for &fixed in &behind {
            least = least.min(touched(axis, Some(fixed), sizes, &trial, targets));
        }
        if least > best.0 {
            best = (least, step);
        }
    }
    best.1
}

/// Returns the number of targets that the cells of all axes from `axis` on touch, with one axis
/// fixed, in millionths of the largest possible number.
fn touched(axis: usize, fixed: Option<usize>, sizes: &[u64], steps: &[u64], targets: u64) -> u64 {
    let mut seen = vec![false; usize::try_from(targets).unwrap_or(0)];
    let mut found = vec![0_u64];
    if let Some(first) = seen.first_mut() {
        *first = true;
    }
    let mut cells = 1_u64;
    for other in (axis..sizes.len()).filter(|&other| Some(other) != fixed) {
        cells = cells.saturating_mul(sizes[other]).min(targets);
        let given = found.len();
        for position in 1..sizes[other] {
            if found.len() as u64 == targets {
                break;
            }
            let moved = position * steps[other] % targets;
            for at in 0..given {
                let place = (found[at] + moved) % targets;
                let Some(seen) = usize::try_from(place).ok().and_then(|at| seen.get_mut(at)) else {
                    continue;
                };
                if !std::mem::replace(seen, true) {
                    found.push(place);
                }
            }
        }
    }
    found.len() as u64 * 1_000_000 / cells.max(1)
}

impl Order {
    /// Returns for each cell of a grid, in C order, the target that stores it: cells go to targets
    /// in turn, in this order. Along the Hilbert curve, neighbouring cells have close positions and
    /// so different targets: many targets serve each plane and box (Smart-IO, section IV-C).
    ///
    /// ```
    /// use bedform_geometry::Order;
    /// // A column of a grid in C order is on one target, along the curve on three of four.
    /// let column = |targets: Vec<u64>| -> Vec<u64> { targets.into_iter().step_by(4).collect() };
    /// assert_eq!(column(Order::RowMajor.placement(&[4, 4], 4)?), [0, 0, 0, 0]);
    /// assert_eq!(column(Order::Hilbert.placement(&[4, 4], 4)?), [0, 3, 0, 1]);
    /// # Ok::<(), bedform_geometry::GeometryError>(())
    /// ```
    ///
    /// # Errors
    /// As [`Order::sequence`].
    pub fn placement(&self, grid_shape: &[u64], targets: u32) -> Result<Vec<u64>, GeometryError> {
        let mut places = self.ranks(grid_shape)?;
        places.iter_mut().for_each(|place| *place %= u64::from(targets.max(1)));
        Ok(places)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::shape::delinearize;

    /// Returns, for the worst plane, the share of the targets that serve it among those that could.
    fn least_share(grid: &[u64], targets: u32, places: &[u64]) -> f64 {
        let cells: u64 = grid.iter().product();
        let mut least = 1.0_f64;
        for axis in 0..grid.len() {
            for at in 0..grid[axis] {
                let plane = (0..cells).zip(places);
                let found: BTreeSet<u64> = plane
                    .filter(|(cell, _)| delinearize(*cell, grid)[axis] == at)
                    .map(|(_, place)| *place)
                    .collect();
                let most = (cells / grid[axis]).min(u64::from(targets));
                least = least.min(found.len() as f64 / most as f64);
            }
        }
        least
    }

    #[test]
    fn planes_of_a_cube_touch_nearly_all_targets_that_could_serve_them() {
        for (grid, targets) in
            [(vec![16; 3], 336), (vec![16; 3], 144), (vec![8; 3], 336), (vec![16, 112, 112], 336)]
        {
            let places = spread_placement(&grid, targets).unwrap();
            let share = least_share(&grid, targets, &places);
            assert!(share >= 0.95, "{grid:?} on {targets}: {share}");
        }
    }

    #[test]
    fn cells_keep_their_targets_while_a_grid_grows_and_planes_touch_most() {
        let grids: [(&[u64], u32); 8] = [
            (&[16, 16, 16], 336),
            (&[16, 112, 112], 336),
            (&[8, 8, 8], 144),
            (&[100, 10, 10], 248),
            (&[30, 20, 20], 77),
            (&[12, 8, 8], 8),
            (&[9, 40], 16),
            (&[6, 5, 4, 3], 20),
        ];
        for (grid, targets) in grids {
            let spread = Spread::new(grid.len(), targets);
            let places = spread.placement(grid).unwrap();
            for (cell, &place) in (0_u64..).zip(&places).step_by(97) {
                assert_eq!(u64::from(spread.target(&delinearize(cell, grid))), place);
            }
            let share = least_share(grid, targets, &places);
            assert!(share >= 0.95, "{grid:?} on {targets}: {share}");
        }
    }

    #[test]
    fn any_number_of_dimensions_and_targets_has_a_target() {
        assert_eq!(Spread::new(0, 5).target(&[]), 0);
        assert_eq!(Spread::new(1, 5).target(&[u64::MAX]), 0);
        assert_eq!(Spread::new(2, 0).target(&[3, 4]), 0);
        assert!(Spread::new(12, 7).target(&[u64::MAX; 12]) < 7);
        assert!(Spread::new(2, u32::MAX).target(&[7, u64::MAX]) < u32::MAX);
    }

    #[test]
    fn grids_without_cells_or_too_many_are_dealt_with() {
        assert_eq!(spread_placement(&[4, 0], 7).unwrap(), []);
        assert_eq!(spread_placement(&[], 7).unwrap(), [0]);
        assert_eq!(spread_placement(&[1, 5, 1], 3).unwrap(), [0, 1, 2, 0, 1]);
        assert!(spread_placement(&[1 << 40, 1 << 40], 7).is_err());
        assert_eq!(spread_placement(&[3], 0).unwrap(), [0, 0, 0]);
        assert_eq!(spread_placement(&[2, 2], u32::MAX).unwrap(), [0, 1, 1, 2]);
    }

    proptest! {
        #[test]
        fn every_cell_has_a_target_and_planes_across_an_axis_touch_as_many(
            grid in prop::collection::vec(1_u64..7, 1..4), targets in 1_u32..50,
        ) {
            let places = spread_placement(&grid, targets).unwrap();
            prop_assert_eq!(places.len() as u64, grid.iter().product::<u64>());
            prop_assert!(places.iter().all(|&place| place < u64::from(targets)));
            for axis in 0..grid.len() {
                let mut counts = BTreeSet::new();
                for at in 0..grid[axis] {
                    let plane = (0_u64..).zip(&places);
                    let found: BTreeSet<_> = plane
                        .filter(|(cell, _)| delinearize(*cell, &grid)[axis] == at)
                        .map(|(_, place)| *place)
                        .collect();
                    counts.insert(found.len());
                }
                prop_assert_eq!(counts.len(), 1);
            }
        }
    }
}
