//! Where an access lies, and how the next one lies to it.

/// A box of an array or a run of bytes of a file: its bounds axis by axis, the first position and the one behind the
/// last.
///
/// ```
/// use bedform_patterns::Place;
///
/// let first = Place::new([(0, 1), (0, 90)]);
/// let second = Place::new([(1, 2), (0, 90)]);
/// let step = first.step_to(&second).unwrap();
/// assert_eq!(second.after(&step), Some(Place::new([(2, 3), (0, 90)])));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Place(Box<[i64]>);

/// The moves of all bounds from one place to the next.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Step(Box<[i64]>);

impl Place {
    /// A place by its bounds along each axis.
    pub fn new(bounds: impl IntoIterator<Item = (i64, i64)>) -> Self {
        Self(bounds.into_iter().flat_map(|(first, end)| [first, end]).collect())
    }

    /// So many bytes of a file; nothing where that is no place in a file.
    pub fn bytes(offset: u64, size: u64) -> Option<Self> {
        let end = i64::try_from(offset.checked_add(size)?).ok()?;
        Some(Self::new([(i64::try_from(offset).ok()?, end)]))
    }

    /// The bounds along each axis.
    pub fn bounds(&self) -> impl Iterator<Item = (i64, i64)> {
        self.0.chunks_exact(2).map(|bounds| (bounds[0], bounds[1]))
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.0.len() / 2
    }

    /// The step that leads to `next`; nothing where they have other axes, or lie too far apart to count.
    pub fn step_to(&self, next: &Self) -> Option<Step> {
        self.with(next.0.iter(), i64::checked_sub, true).map(Step)
    }

    /// The place that a step leads to; nothing where it leaves what can be counted.
    pub fn after(&self, step: &Step) -> Option<Self> {
        self.with(step.0.iter(), i64::checked_add, false).map(Self)
    }

    fn with<'a>(
        &self,
        other: impl ExactSizeIterator<Item = &'a i64>,
        act: fn(i64, i64) -> Option<i64>,
        turned: bool,
    ) -> Option<Box<[i64]>> {
        if self.0.len() != other.len() {
            return None;
        }
        let both = self.0.iter().zip(other);
        both.map(|(own, other)| if turned { act(*other, *own) } else { act(*own, *other) })
            .collect()
    }
}

impl Step {
    /// True if the next place is the same one.
    pub fn is_none(&self) -> bool {
        self.0.iter().all(|&by| by == 0)
    }

    /// The moves of the bounds along each axis.
    pub fn moves(&self) -> impl Iterator<Item = (i64, i64)> {
        self.0.chunks_exact(2).map(|moves| (moves[0], moves[1]))
    }

    /// The same step `count` times; nothing where that leaves what can be counted.
    pub fn times(&self, count: u64) -> Option<Self> {
        let count = i64::try_from(count).ok()?;
        self.0.iter().map(|by| by.checked_mul(count)).collect::<Option<_>>().map(Self)
    }
}

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
        assert_eq!(two.after(&step), Some(three));
    }
}
