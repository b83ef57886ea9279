//! Positions along one axis.

use std::sync::Arc;

use crate::error::GeometryError;

/// `len` positions along one axis: `start`, `start + step`, `start + 2 * step`, ...
///
/// A value of this type
///
/// - has a step that is not zero; it may be negative;
/// - has positions, if any, from 0 up to and excluding the largest 64-bit index.
///
/// ```
/// use bedform_geometry::AxisRange;
/// let range = AxisRange::new(9, -4, 3)?;
/// assert_eq!(range.iter().collect::<Vec<_>>(), [9, 5, 1]);
/// assert!(AxisRange::new(9, -4, 4).is_err());
/// # Ok::<(), bedform_geometry::GeometryError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AxisRange {
    start: u64,
    step: i64,
    len: u64,
}

impl AxisRange {
    /// Makes the range of `len` positions from `start` by `step`.
    ///
    /// # Errors
    /// [`GeometryError::StepZero`], or [`GeometryError::RangeTooLarge`] if a position is negative
    /// or too large.
    pub fn new(start: u64, step: i64, len: u64) -> Result<Self, GeometryError> {
        if step == 0 {
            return Err(GeometryError::StepZero);
        }
        let range = Self { start, step, len };
        if len == 0 {
            return Ok(range);
        }
        let last = i128::from(step)
            .checked_mul(i128::from(len - 1))
            .and_then(|distance| distance.checked_add(i128::from(start)));
        let fits = |at: i128| (0..i128::from(u64::MAX)).contains(&at);
        if fits(i128::from(start)) && last.is_some_and(fits) {
            Ok(range)
        } else {
            Err(GeometryError::RangeTooLarge { start, step, len })
        }
    }

    /// Makes the range of `len` consecutive positions from `start`.
    ///
    /// # Errors
    /// [`GeometryError::RangeTooLarge`] if `start + len` does not fit 64 bits.
    pub fn contiguous(start: u64, len: u64) -> Result<Self, GeometryError> {
        Self::new(start, 1, len)
    }

    /// Makes the range of all positions of an axis of `size`.
    pub fn whole(size: u64) -> Self {
        Self { start: 0, step: 1, len: size }
    }

    /// Makes a range derived from valid ones. The step of fewer than two positions is irrelevant
    /// and becomes 1, so that equal positions compare equal.
    pub(crate) fn derived(start: u64, step: i64, len: u64) -> Self {
        Self { start, step: if len < 2 { 1 } else { step }, len }
    }

    /// Returns the first position; meaningless for an empty range.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Returns the distance between positions, never zero.
    pub fn step(&self) -> i64 {
        self.step
    }

    /// The number of positions.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if there are no positions.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns position number `i`, or `None` past the last.
    pub fn get(&self, i: u64) -> Option<u64> {
        (i < self.len).then(|| self.at(i))
    }

    /// Returns the positions in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + use<> {
        let range = *self;
        (0..range.len).map(move |i| range.at(i))
    }

    /// Returns the lowest and the highest position, or `None` if there are none.
    pub fn bounds(&self) -> Option<(u64, u64)> {
        let last = self.get(self.len.checked_sub(1)?)?;
        Some((self.start.min(last), self.start.max(last)))
    }

    /// Returns true if each position is its predecessor plus one.
    pub fn is_contiguous(&self) -> bool {
        self.step == 1 || self.len < 2
    }

    /// Returns position `i`, which must exist. The sum is exact although it wraps: the invariant of
    /// the type keeps the true value below 2^64.
    pub(crate) fn at(&self, i: u64) -> u64 {
        self.start.wrapping_add(i.wrapping_mul(self.step.cast_unsigned()))
    }
}

/// A sequence of positions along one axis, in any order, with duplicates allowed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Positions {
    /// Evenly spaced positions.
    Range(AxisRange),
    /// Irregular positions. Selections made from them share the list, which may have millions.
    List(Arc<Vec<u64>>),
}

impl Positions {
    /// Makes the positions of `list`, as a range if they are evenly spaced.
    pub fn from_list(list: Vec<u64>) -> Self {
        let Some(step) = even_step(&list) else {
            return Self::List(Arc::new(list));
        };
        let start = list.first().copied().unwrap_or(0);
        Self::Range(AxisRange::derived(start, step, list.len() as u64))
    }

    /// The number of positions.
    pub fn len(&self) -> u64 {
        match self {
            Self::Range(range) => range.len(),
            Self::List(list) => list.len() as u64,
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
            Self::List(list) => list.get(usize::try_from(i).ok()?).copied(),
        }
    }

    /// Returns the positions with these indexes; indexes out of range are skipped.
    ///
    /// ```
    /// use bedform_geometry::{AxisRange, Positions};
    /// let positions = Positions::Range(AxisRange::new(10, 5, 8)?);
    /// let numbers = Positions::Range(AxisRange::new(1, 2, 3)?); // 1, 3, 5
    /// assert_eq!(positions.picked(&numbers).iter().collect::<Vec<_>>(), [15, 25, 35]);
    /// # Ok::<(), bedform_geometry::GeometryError>(())
    /// ```
    #[must_use]
    pub fn picked(&self, numbers: &Self) -> Self {
        if let (Self::Range(own), Self::Range(numbers)) = (self, numbers)
            && let Some(step) = own.step().checked_mul(numbers.step())
            && let Some(start) = own.get(numbers.start())
            && numbers.bounds().is_none_or(|(_, last)| last < own.len())
        {
            return Self::Range(AxisRange::derived(start, step, numbers.len()));
        }
        Self::from_list(numbers.iter().filter_map(|number| self.get(number)).collect())
    }

    /// Returns the positions in order.
    pub fn iter(&self) -> PositionsIter<'_> {
        PositionsIter { positions: self, next: 0 }
    }

    /// Returns true if each position is its predecessor plus one. Projections return such positions
    /// as a range.
    pub fn is_contiguous(&self) -> bool {
        match self {
            Self::Range(range) => range.is_contiguous(),
            Self::List(list) => list.windows(2).all(|pair| pair[0].checked_add(1) == Some(pair[1])),
        }
    }
}

impl<'a> IntoIterator for &'a Positions {
    type Item = u64;
    type IntoIter = PositionsIter<'a>;

    fn into_iter(self) -> PositionsIter<'a> {
        self.iter()
    }
}

/// An iterator over the positions of a [`Positions`].
#[derive(Debug, Clone)]
pub struct PositionsIter<'a> {
    positions: &'a Positions,
    next: u64,
}

impl Iterator for PositionsIter<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let position = self.positions.get(self.next)?;
        self.next += 1;
        Some(position)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.positions.len() - self.next);
        (left.unwrap_or(usize::MAX), left.ok())
    }
}

/// Returns the step of evenly spaced positions, unless it is zero; 1 for fewer than two.
fn even_step(list: &[u64]) -> Option<i64> {
    let [first, second, ..] = list else {
        return Some(1);
    };
    let step = second.wrapping_sub(*first).cast_signed();
    let even =
        step != 0 && list.windows(2).all(|pair| pair[0].checked_add_signed(step) == Some(pair[1]));
    even.then_some(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_leaves_the_index_space_is_refused() {
        assert_eq!(AxisRange::new(0, 0, 3), Err(GeometryError::StepZero));
        assert!(AxisRange::new(2, -1, 3).is_ok());
        assert!(AxisRange::new(2, -1, 4).is_err());
        assert!(AxisRange::new(u64::MAX - 1, 1, 1).is_ok());
        assert!(AxisRange::new(u64::MAX - 1, 1, 2).is_err());
        assert!(AxisRange::new(u64::MAX, -1, 1).is_err());
        assert!(AxisRange::new(1, i64::MAX, u64::MAX).is_err());
        assert!(AxisRange::new(1, i64::MIN, u64::MAX).is_err());
        assert!(AxisRange::new(u64::MAX, i64::MIN, 0).is_ok());
    }

    #[test]
    fn steps_of_half_the_index_space_are_exact() {
        let range = AxisRange::new(1, i64::MAX, 2).unwrap();
        assert_eq!(range.get(1), Some(1 << 63));
        let back = AxisRange::new(1 << 63, i64::MIN, 2).unwrap();
        assert_eq!((back.get(1), back.get(2)), (Some(0), None));
        assert_eq!(back.bounds(), Some((0, 1 << 63)));
    }

    #[test]
    fn evenly_spaced_lists_become_ranges() {
        let range = |start, step, len| Positions::Range(AxisRange::new(start, step, len).unwrap());
        assert_eq!(Positions::from_list(vec![]), range(0, 1, 0));
        assert_eq!(Positions::from_list(vec![7]), range(7, 1, 1));
        assert_eq!(Positions::from_list(vec![7, 8, 9]), range(7, 1, 3));
        assert_eq!(Positions::from_list(vec![7, 4, 1]), range(7, -3, 3));
        assert_eq!(Positions::from_list(vec![7, 7]), Positions::List(vec![7, 7].into()));
        assert_eq!(Positions::from_list(vec![1, 2, 4]), Positions::List(vec![1, 2, 4].into()));
        let far = vec![0, u64::MAX - 1];
        assert_eq!(Positions::from_list(far.clone()), Positions::List(far.into()));
    }
}
