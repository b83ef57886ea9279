//! Selections: the elements that a read or write requests.

use std::sync::Arc;

use crate::error::{GeometryError, check_rank, check_ranks_equal};
use crate::positions::{AxisRange, Positions};
use crate::region::Region;
use crate::shape::{delinearize, element_count, strides};

/// The selected positions along one axis.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AxisSelection {
    /// Evenly spaced positions.
    Range(AxisRange),
    /// Positions in any order, duplicates allowed.
    Coords(Vec<u64>),
}

impl AxisSelection {
    /// The number of positions.
    pub fn len(&self) -> u64 {
        match self {
            Self::Range(range) => range.len(),
            Self::Coords(coords) => coords.len() as u64,
        }
    }

    /// Returns true if there are no positions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns position number `i`, or `None` past the last.
    pub fn get(&self, i: u64) -> Option<u64> {
        match self {
            Self::Range(range) => range.get(i),
            Self::Coords(coords) => coords.get(usize::try_from(i).ok()?).copied(),
        }
    }

    /// Returns the lowest and the highest position, or `None` if there are none.
    pub fn bounds(&self) -> Option<(u64, u64)> {
        match self {
            Self::Range(range) => range.bounds(),
            Self::Coords(coords) => bounds_of(coords),
        }
    }
}

/// Returns the lowest and the highest position, or `None` if there are none. Sorted positions,
/// which are detected first, need only one comparison each.
///
/// ```
/// use bedform_geometry::bounds_of;
///
/// assert_eq!(bounds_of(&[7, 2, 5]), Some((2, 7)));
/// assert_eq!(bounds_of(&[]), None);
/// ```
pub fn bounds_of(positions: &[u64]) -> Option<(u64, u64)> {
    match positions.is_sorted() {
        true => Some((*positions.first()?, *positions.last()?)),
        false => Some((*positions.iter().min()?, *positions.iter().max()?)),
    }
}

/// Single points: one list of coordinates per axis, of equal lengths.
///
/// ```
/// use bedform_geometry::Points;
/// let points = Points::new(vec![vec![0, 5], vec![1, 2]])?; // (0, 1) and (5, 2)
/// assert_eq!((points.rank(), points.count()), (2, 2));
/// # Ok::<(), bedform_geometry::GeometryError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Points {
    coords: Vec<Vec<u64>>,
    count: u64,
}

impl Points {
    /// Makes the points with coordinates `coords[axis][i]`. Without axes there are no points: see
    /// [`Points::of_rank_zero`].
    ///
    /// # Errors
    /// [`GeometryError::RankTooLarge`], or [`GeometryError::PointCountMismatch`] if the lists
    /// differ in length.
    pub fn new(coords: Vec<Vec<u64>>) -> Result<Self, GeometryError> {
        check_rank(coords.len())?;
        let expected = coords.first().map_or(0, |axis| axis.len() as u64);
        for (axis, list) in coords.iter().enumerate() {
            let found = list.len() as u64;
            if found != expected {
                return Err(GeometryError::PointCountMismatch { axis, expected, found });
            }
        }
        Ok(Self { coords, count: expected })
    }

    /// Makes `count` copies of the only point of an array without axes.
    pub fn of_rank_zero(count: u64) -> Self {
        Self { coords: Vec::new(), count }
    }

    /// Makes the points at positions `places` in C order of an array of `shape`.
    ///
    /// ```
    /// use bedform_geometry::Points;
    /// let points = Points::at_places(&[1, 7], &[3, 4])?;
    /// assert_eq!(points.coords(), [[0, 1], [1, 3]]); // (0, 1) and (1, 3)
    /// assert_eq!(points.places(&[3, 4]), [1, 7]);
    /// # Ok::<(), bedform_geometry::GeometryError>(())
    /// ```
    ///
    /// # Errors
    /// As [`Points::new`].
    pub fn at_places(places: &[u64], shape: &[u64]) -> Result<Self, GeometryError> {
        let mut coords = vec![Vec::with_capacity(places.len()); shape.len()];
        for place in places {
            let point = delinearize(*place, shape);
            coords.iter_mut().zip(point).for_each(|(axis, at)| axis.push(at));
        }
        Self::new(coords)
    }

    /// Returns the positions of the points in C order of an array of `shape`, which must contain
    /// them.
    pub fn places(&self, shape: &[u64]) -> Vec<u64> {
        let mut places = vec![0; usize::try_from(self.count).unwrap_or(0)];
        for (list, step) in self.coords.iter().zip(strides(shape)) {
            places.iter_mut().zip(list).for_each(|(place, at)| *place += at * step);
        }
        places
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.coords.len()
    }

    /// The number of points.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the coordinates, one list per axis.
    pub fn coords(&self) -> &[Vec<u64>] {
        &self.coords
    }
}

/// The elements that a read or write requests, in the order of the result.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Selection {
    /// The product of positions along each axis; the result has one axis for each.
    Orthogonal(Vec<AxisSelection>),
    /// Single points; the result has one axis.
    Points(Points),
    /// Boxes: the elements of each in C order, box after box, with repeated overlaps; the result
    /// has one axis.
    Union(Vec<Region>),
}

impl Selection {
    /// Selects all elements of an array of `shape`.
    pub fn all(shape: &[u64]) -> Self {
        Self::Orthogonal(
            shape.iter().map(|&size| AxisSelection::Range(AxisRange::whole(size))).collect(),
        )
    }

    /// Checks that every position lies in an array of `shape`. A selection without positions along
    /// an axis is never out of bounds on that axis.
    ///
    /// ```
    /// use bedform_geometry::{AxisRange, AxisSelection, Selection};
    /// let rows = AxisSelection::Coords(vec![3, 12]);
    /// let columns = AxisSelection::Range(AxisRange::new(4, -2, 3)?);
    /// let error = Selection::Orthogonal(vec![columns, rows]).validate(&[5, 10]).unwrap_err();
    /// assert_eq!(error.to_string(), "index 12 is out of bounds for axis 1 of size 10");
    /// # Ok::<(), bedform_geometry::GeometryError>(())
    /// ```
    ///
    /// # Errors
    /// [`GeometryError::RankTooLarge`], [`GeometryError::RankMismatch`];
    /// [`GeometryError::RangePastEnd`] for consecutive positions, else
    /// [`GeometryError::IndexOutOfBounds`] with the highest index along the axis.
    pub fn validate(&self, shape: &[u64]) -> Result<(), GeometryError> {
        check_rank(shape.len())?;
        match self {
            Self::Orthogonal(axes) => {
                check_ranks_equal(shape.len(), axes.len())?;
                for (axis, selection) in axes.iter().enumerate() {
                    let highest = selection.bounds().map(|(_, highest)| highest);
                    let size = shape[axis];
                    check_highest(axis, highest, size).map_err(|error| match selection {
                        AxisSelection::Range(range) if range.step() == 1 && range.len() > 1 => {
                            let (start, count) = (range.start(), range.len());
                            GeometryError::RangePastEnd { axis, start, count, size }
                        }
                        _ => error,
                    })?;
                }
            }
            Self::Points(points) => {
                check_ranks_equal(shape.len(), points.rank())?;
                for (axis, coords) in points.coords().iter().enumerate() {
                    let highest = bounds_of(coords).map(|(_, highest)| highest);
                    check_highest(axis, highest, shape[axis])?;
                }
            }
            Self::Union(regions) => {
                for region in regions {
                    check_ranks_equal(shape.len(), region.rank())?;
                    for (axis, &size) in shape.iter().enumerate() {
                        let highest = (!region.is_empty()).then(|| region.end(axis) - 1);
                        check_highest(axis, highest, size)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the selection of the positions that lie `by` further along `axis`, which is below the
    /// rank.
    ///
    /// # Errors
    /// [`GeometryError::RangeTooLarge`], [`GeometryError::RegionTooLarge`] for positions that 64
    /// bits cannot hold.
    pub fn shifted(&self, axis: usize, by: u64) -> Result<Self, GeometryError> {
        let too_large = |start| GeometryError::RangeTooLarge { start, step: 1, len: by };
        let moved = |coords: &[u64]| -> Result<Vec<u64>, GeometryError> {
            coords.iter().map(|&at| at.checked_add(by).ok_or(too_large(at))).collect()
        };
        Ok(match self {
            Self::Orthogonal(axes) => {
                let mut axes = axes.clone();
                axes[axis] = match &axes[axis] {
                    AxisSelection::Range(range) => {
                        let start = range.start().checked_add(by);
                        let start = start.ok_or(too_large(range.start()))?;
                        AxisSelection::Range(AxisRange::new(start, range.step(), range.len())?)
                    }
                    AxisSelection::Coords(coords) => AxisSelection::Coords(moved(coords)?),
                };
                Self::Orthogonal(axes)
            }
            Self::Points(points) => {
                let mut coords = points.coords().to_vec();
                coords[axis] = moved(&coords[axis])?;
                Self::Points(Points::new(coords)?)
            }
            Self::Union(regions) => {
                let moved = regions.iter().map(|region| {
                    let mut start = region.start().to_vec();
                    start[axis] = start[axis].checked_add(by).ok_or(too_large(start[axis]))?;
                    Region::new(start, region.shape())
                });
                Self::Union(moved.collect::<Result<_, _>>()?)
            }
        })
    }

    /// Returns the shape of the result. Lengths beyond 64 bits saturate; [`Selection::len`] detects
    /// them.
    pub fn result_shape(&self) -> Vec<u64> {
        match self {
            Self::Orthogonal(axes) => axes.iter().map(AxisSelection::len).collect(),
            Self::Points(points) => vec![points.count()],
            Self::Union(_) => vec![self.len().unwrap_or(u64::MAX)],
        }
    }

    /// Returns the number of elements of the result, or `None` if 64 bits cannot count them.
    pub fn len(&self) -> Option<u64> {
        match self {
            Self::Orthogonal(_) => element_count(&self.result_shape()),
            Self::Points(points) => Some(points.count()),
            Self::Union(regions) => {
                regions.iter().try_fold(0_u64, |count, region| count.checked_add(region.len()?))
            }
        }
    }

    /// Returns true if no elements are selected.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }
}

impl From<&AxisSelection> for Positions {
    /// Copies a list once; selections made from the result share the copy.
    fn from(selection: &AxisSelection) -> Self {
        match selection {
            AxisSelection::Range(range) => Self::Range(*range),
            AxisSelection::Coords(list) => Self::List(Arc::new(list.clone())),
        }
    }
}

impl From<&Positions> for AxisSelection {
    fn from(positions: &Positions) -> Self {
        match positions {
            Positions::Range(range) => Self::Range(*range),
            Positions::List(list) => Self::Coords(list.to_vec()),
        }
    }
}

impl From<&Region> for Selection {
    fn from(region: &Region) -> Self {
        let axes = region.start().iter().zip(region.shape());
        Self::Orthogonal(
            axes.map(|(&start, &size)| AxisSelection::Range(AxisRange::derived(start, 1, size)))
                .collect(),
        )
    }
}

impl From<Region> for Selection {
    fn from(region: Region) -> Self {
        Self::from(&region)
    }
}

/// Checks the highest index along an axis, if any.
fn check_highest(axis: usize, highest: Option<u64>, size: u64) -> Result<(), GeometryError> {
    match highest {
        Some(index) if index >= size => Err(GeometryError::IndexOutOfBounds { axis, index, size }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shifted_selection_has_all_positions_further_along_one_axis() {
        let range = |start, step, len| AxisRange::new(start, step, len).unwrap();
        let axes = |first| {
            Selection::Orthogonal(vec![
                AxisSelection::Range(first),
                AxisSelection::Coords(vec![3, 1]),
            ])
        };
        assert_eq!(axes(range(9, -4, 3)).shifted(0, 10).unwrap(), axes(range(19, -4, 3)));
        let Selection::Orthogonal(moved) = axes(range(0, 1, 2)).shifted(1, 5).unwrap() else {
            unreachable!("the kind stays")
        };
        assert_eq!(moved[1], AxisSelection::Coords(vec![8, 6]));
        let points =
            |row| Selection::Points(Points::new(vec![vec![row, 1 + row], vec![2, 2]]).unwrap());
        assert_eq!(points(0).shifted(0, 7).unwrap(), points(7));
        let boxes = |row| Selection::Union(vec![Region::new([row, 4], [2, 2]).unwrap()]);
        assert_eq!(boxes(1).shifted(0, 2).unwrap(), boxes(3));
    }

    #[test]
    fn positions_beyond_64_bits_are_an_error() {
        let last = u64::MAX - 1;
        for selection in [
            Selection::Orthogonal(vec![AxisSelection::Coords(vec![last])]),
            Selection::all(&[5]),
            Selection::Points(Points::new(vec![vec![last]]).unwrap()),
            Selection::Union(vec![Region::new([3], [1]).unwrap()]),
        ] {
            assert!(selection.shifted(0, u64::MAX - 2).is_err(), "{selection:?}");
        }
    }
}
