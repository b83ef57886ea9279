//! Structured patterns: places at equal steps, and such rows at equal steps, nested to any depth.

use serde::{Deserialize, Serialize};

use crate::{Place, Step};

/// Largest number of levels of a pattern.
pub const LEVELS_MAX: usize = 8;

/// One level of a walk.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Level {
    /// The step between elements.
    pub step: Step,
    /// The number of elements, at least 2.
    pub count: u64,
}

/// A kd-strided pattern (section 2.2.1): a place, and for each level, innermost first, a step and a
/// count.
///
/// ```
/// use bedform_patterns::{Level, Place, Walk};
///
/// let at = |offset| Place::bytes(offset, 1).unwrap();
/// let step = |by| at(0).step_to(&at(by)).unwrap();
/// let rows = Walk {
///     start: at(1),
///     levels: vec![Level { step: step(2), count: 3 }, Level { step: step(10), count: 3 }],
/// };
/// let offsets: Vec<i64> = rows.places().map(|place| place.bounds().next().unwrap().0).collect();
/// assert_eq!(offsets, [1, 3, 5, 11, 13, 15, 21, 23, 25]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "SavedWalk")]
pub struct Walk {
    /// The first place.
    pub start: Place,
    /// The levels, innermost first.
    pub levels: Vec<Level>,
}

/// A walk from a file, not yet checked.
#[derive(Deserialize)]
struct SavedWalk {
    start: Place,
    levels: Vec<Level>,
}

impl TryFrom<SavedWalk> for Walk {
    type Error = &'static str;

    fn try_from(SavedWalk { start, levels }: SavedWalk) -> Result<Self, Self::Error> {
        if levels.len() > LEVELS_MAX {
            return Err("a walk of too many levels");
        }
        let is_whole = |level: &Level| level.count >= 2 && level.step.moves().len() == start.rank();
        if !levels.iter().all(is_whole) {
            return Err("a walk with a level of less than two places, or of other axes");
        }
        Ok(Self { start, levels })
    }
}

impl Walk {
    /// Returns the number of accesses.
    pub fn count(&self) -> u64 {
        self.levels.iter().fold(1, |count: u64, level| count.saturating_mul(level.count))
    }

    /// Returns the place of an access by its index; `None` past the last.
    pub fn place(&self, number: u64) -> Option<Place> {
        let (mut place, mut left) = (self.start.clone(), number);
        for level in &self.levels {
            place = place.after(&level.step.times(left % level.count.max(1))?)?;
            left /= level.count.max(1);
        }
        (left == 0).then_some(place)
    }

    /// Returns all places, in order.
    pub fn places(&self) -> impl Iterator<Item = Place> + '_ {
        (0..self.count()).map_while(|number| self.place(number))
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let steps = self.levels.iter().map(|level| level.step.heap_bytes());
        let levels = size_of::<Level>() * self.levels.capacity();
        self.start.heap_bytes() + levels + steps.sum::<usize>()
    }
}
