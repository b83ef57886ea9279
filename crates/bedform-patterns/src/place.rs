//! Places, the bounds of accesses, and steps between places.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::fingerprint::{self, PlaceFingerprint};

/// Largest number of axes of a place in a file.
pub const RANK_MAX: usize = 32;

/// Bounds of up to four axes are stored inline, because each access makes a place.
type InlineBounds = SmallVec<[i64; 8]>;

/// A box of an array or a byte range of a file: for each axis, the first position and the position
/// after the last.
///
/// ```
/// use bedform_patterns::Place;
///
/// let first = Place::new([(0, 1), (0, 90)]);
/// let second = Place::new([(1, 2), (0, 90)]);
/// let step = first.step_to(&second).unwrap();
/// assert_eq!(second.after(&step), Some(Place::new([(2, 3), (0, 90)])));
/// ```
#[derive(Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<i64>", into = "Vec<i64>")]
pub struct Place(InlineBounds);

/// The moves of all bounds from one place to the next.
#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<i64>", into = "Vec<i64>")]
pub struct Step(InlineBounds);

impl Place {
    /// Makes a place from its bounds along each axis.
    pub fn new(bounds: impl IntoIterator<Item = (i64, i64)>) -> Self {
        Self(bounds.into_iter().flat_map(|(first, end)| [first, end]).collect())
    }

    /// Makes the place of a byte range; `None` if it exceeds 63 bits.
    pub fn bytes(offset: u64, size: u64) -> Option<Self> {
        let end = i64::try_from(offset.checked_add(size)?).ok()?;
        Some(Self::new([(i64::try_from(offset).ok()?, end)]))
    }

    /// Returns the bounds along each axis.
    pub fn bounds(&self) -> impl ExactSizeIterator<Item = (i64, i64)> + '_ {
        self.0.chunks_exact(2).map(|bounds| (bounds[0], bounds[1]))
    }

    /// Returns the number of axes.
    pub fn rank(&self) -> usize {
        self.0.len() / 2
    }

    /// Returns the step to `next`; `None` if the ranks differ or a move exceeds 64 bits.
    pub fn step_to(&self, next: &Self) -> Option<Step> {
        both(&next.0, &self.0, i64::checked_sub).map(Step)
    }

    /// Returns the place after a step; `None` if a bound exceeds 64 bits.
    pub fn after(&self, step: &Step) -> Option<Self> {
        both(&self.0, &step.0, i64::checked_add).map(Self)
    }

    /// Returns the place from which a step leads here; `None` if a bound exceeds 64 bits.
    pub fn before(&self, step: &Step) -> Option<Self> {
        both(&self.0, &step.0, i64::checked_sub).map(Self)
    }

    /// Returns true if the step leads from `from` to this place.
    pub fn is_after(&self, from: &Self, step: &Step) -> bool {
        self.is_steps_after(from, step, 1)
    }

    /// Returns true if `times` steps lead from `from` to this place.
    #[inline]
    pub(crate) fn is_steps_after(&self, from: &Self, step: &Step, times: i64) -> bool {
        let is_alike = self.0.len() == from.0.len() && self.0.len() == step.0.len();
        let mut bounds = self.0.iter().zip(&from.0).zip(&step.0);
        let leads = |((own, from), by): ((&i64, &i64), &i64)| {
            by.checked_mul(times).and_then(|by| from.checked_add(by)) == Some(*own)
        };
        is_alike && bounds.all(leads)
    }

    /// Returns the axis along which this place starts at the end of `before`, if all other bounds
    /// are equal.
    pub fn axis_behind(&self, before: &Self) -> Option<usize> {
        if self.0.len() != before.0.len() {
            return None;
        }
        let mut axes = self.bounds().zip(before.bounds());
        let axis = axes.position(|(own, before)| own != before)?;
        let ((first, end), (before_first, before_end)) =
            (self.bounds().nth(axis)?, before.bounds().nth(axis)?);
        let goes_on = before_first <= before_end && first == before_end && first <= end;
        (goes_on && axes.all(|(own, before)| own == before)).then_some(axis)
    }

    /// Returns the sum of the distances between the bounds of two places of equal rank.
    pub(crate) fn distance(&self, other: &Self) -> u64 {
        let moves = self.0.iter().zip(&other.0).map(|(own, other)| own.abs_diff(*other));
        moves.fold(0, u64::saturating_add)
    }

    /// Returns the linear fingerprint of the place.
    pub(crate) fn fingerprint(&self) -> PlaceFingerprint {
        fingerprint::of_place(&self.0)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        heap_bytes(&self.0)
    }
}

impl Step {
    /// Returns true if the next place is the same one.
    pub fn is_none(&self) -> bool {
        self.0.iter().all(|&by| by == 0)
    }

    /// Returns the moves of the bounds along each axis.
    pub fn moves(&self) -> impl ExactSizeIterator<Item = (i64, i64)> + '_ {
        self.0.chunks_exact(2).map(|moves| (moves[0], moves[1]))
    }

    /// Returns the step `count` times; `None` if a move exceeds 64 bits.
    pub fn times(&self, count: u64) -> Option<Self> {
        let count = i64::try_from(count).ok()?;
        self.0.iter().map(|by| by.checked_mul(count)).collect::<Option<_>>().map(Self)
    }

    /// Returns the reverse step.
    pub(crate) fn back(&self) -> Option<Self> {
        self.0.iter().map(|by| by.checked_neg()).collect::<Option<_>>().map(Self)
    }

    /// Returns the multiple of `unit` that equals this step; `None` if it is not a whole number.
    pub fn over(&self, unit: &Self) -> Option<u64> {
        let (own, by) = self.0.iter().zip(&unit.0).find(|(_, by)| **by != 0)?;
        let times = u64::try_from(own.checked_div(*by)?).ok()?;
        (unit.times(times).as_ref() == Some(self)).then_some(times)
    }

    /// Returns the sum of the moves of all bounds.
    pub(crate) fn distance(&self) -> u64 {
        self.0.iter().fold(0, |sum: u64, by| sum.saturating_add(by.unsigned_abs()))
    }

    pub(crate) fn fingerprint(&self) -> PlaceFingerprint {
        fingerprint::of_step(&self.0)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        heap_bytes(&self.0)
    }
}

#[inline]
fn both(one: &[i64], other: &[i64], act: impl Fn(i64, i64) -> Option<i64>) -> Option<InlineBounds> {
    if one.len() != other.len() {
        return None;
    }
    let mut all = InlineBounds::from_slice(one);
    for (own, other) in all.iter_mut().zip(other) {
        *own = act(*own, *other)?;
    }
    Some(all)
}

fn heap_bytes(bounds: &InlineBounds) -> usize {
    if bounds.spilled() { bounds.capacity() * size_of::<i64>() } else { 0 }
}

fn checked(bounds: &[i64]) -> Result<InlineBounds, &'static str> {
    if bounds.len() % 2 == 1 {
        return Err("a bound without the other one of its axis");
    }
    if bounds.len() > 2 * RANK_MAX {
        return Err("more axes than an array has");
    }
    Ok(InlineBounds::from_slice(bounds))
}

/// The common impls of both types: cheap clones, and checked deserialization.
macro_rules! bounds {
    ($type:ident) => {
        impl Clone for $type {
            fn clone(&self) -> Self {
                Self(InlineBounds::from_slice(&self.0))
            }

            fn clone_from(&mut self, other: &Self) {
                if self.0.len() == other.0.len() {
                    self.0.copy_from_slice(&other.0);
                } else {
                    *self = other.clone();
                }
            }
        }

        impl TryFrom<Vec<i64>> for $type {
            type Error = &'static str;

            fn try_from(bounds: Vec<i64>) -> Result<Self, Self::Error> {
                checked(&bounds).map(Self)
            }
        }

        impl From<$type> for Vec<i64> {
            fn from(bounds: $type) -> Self {
                bounds.0.into_vec()
            }
        }
    };
}
bounds!(Place);
bounds!(Step);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_that_cannot_be_counted_have_no_step() {
        let far = Place::new([(i64::MAX - 1, i64::MAX)]);
        let low = Place::new([(i64::MIN, i64::MIN + 1)]);
        assert_eq!(far.step_to(&low), None);
        let step = Place::new([(0, 1)]).step_to(&Place::new([(2, 3)])).unwrap();
        assert_eq!(far.after(&step), None);
        assert_eq!(step.times(u64::MAX), None);
        assert_eq!(far.step_to(&Place::new([(0, 1), (0, 1)])), None);
        assert_eq!(Place::bytes(u64::MAX, 1), None);
    }

    #[test]
    fn boxes_that_grow_have_a_step_too() {
        let [one, two, three] = [4, 6, 8].map(|end| Place::new([(0, end), (3, 5)]));
        let step = one.step_to(&two).unwrap();
        assert_eq!(two.after(&step), Some(three.clone()));
        assert!(three.is_after(&two, &step) && !three.is_after(&one, &step));
        assert_eq!(three.before(&step), Some(two));
    }

    #[test]
    fn a_place_is_behind_another_along_one_axis_alone() {
        let place = |first, end| Place::new([(0, 5), (first, end), (2, 3)]);
        assert_eq!(place(4, 9).axis_behind(&place(1, 4)), Some(1));
        assert_eq!(place(5, 9).axis_behind(&place(1, 4)), None);
        assert_eq!(place(4, 3).axis_behind(&place(1, 4)), None);
        assert_eq!(place(4, 9).axis_behind(&place(5, 4)), None);
        assert_eq!(Place::new([(0, 5), (4, 9), (2, 4)]).axis_behind(&place(1, 4)), None);
        assert_eq!(Place::new([]).axis_behind(&Place::new([])), None);
    }

    #[test]
    fn a_step_is_so_many_times_another_one_or_none() {
        let step = |by: i64| Place::new([(0, 1)]).step_to(&Place::new([(by, by + 1)])).unwrap();
        assert_eq!(step(12).over(&step(4)), Some(3));
        assert_eq!(step(-12).over(&step(-4)), Some(3));
        assert_eq!(step(12).over(&step(5)), None);
        assert_eq!(step(12).over(&step(-4)), None);
        assert_eq!(step(0).over(&step(0)), None);
    }
}
