//! Grows structured patterns access by access (section 2.3.3).
//!
//! A pattern is an odometer: each level counts elements at equal steps, and an element of a level
//! is a row of the level below. The next place belongs to the innermost level that is not at its
//! end.
//!
//! A step that was seen once is a guess; a step that was right twice is sure. A row reveals its
//! length when it ends; then it becomes the first element of a level above. So the second and third
//! row are predicted from their second place on, by the shape of the first row, and later rows
//! entirely. Contiguous and simple-strided patterns miss 3 accesses, and each further level misses
//! 2.

use std::collections::VecDeque;

use crate::walk::LEVELS_MAX;
use crate::{Level, Place, Step, Walk};

/// Smallest number of elements of a level.
const COUNT_MIN: u64 = 3;
/// Largest number of remembered patterns.
const KNOWN_MAX: usize = 32;

/// The relation of an access to the pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrownAccess {
    /// The access was predicted.
    Expected,
    /// The access was unpredictable; the pattern grew by it or starts with it.
    New,
    /// The pattern ended before the access.
    Ended(Walk),
}

/// The current row of a pattern whose step between rows is not sure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CurrentRow<'a> {
    /// Start of the previous row.
    pub before: &'a Place,
    /// Start of the row.
    pub start: &'a Place,
    /// Levels of the row.
    pub levels: Vec<Level>,
}

/// One level while the pattern grows.
#[derive(Debug, Clone)]
struct LevelState {
    /// First place of the level in the current row.
    start: Place,
    step: Option<Step>,
    /// True once the step was right twice.
    is_sure: bool,
    /// Number of elements that have started.
    seen: u64,
    /// Number of elements of a complete row, once one has ended.
    length: Option<u64>,
}

impl LevelState {
    fn new(start: Place) -> Self {
        Self { start, step: None, is_sure: false, seen: 1, length: None }
    }

    fn is_full(&self) -> bool {
        self.length.is_some_and(|length| self.seen >= length)
    }
}

/// The rows of a pattern, innermost first, with the last access.
#[derive(Debug, Clone)]
struct Odometer {
    rows: Vec<LevelState>,
    at: Place,
}

/// The next move: its level, its step, and its start.
struct NextMove<'a> {
    level: usize,
    from: &'a Place,
    step: &'a Step,
    is_sure: bool,
}

impl Odometer {
    fn new(at: Place) -> Self {
        Self { rows: vec![LevelState::new(at.clone())], at }
    }

    /// Returns the level that moves next: the number of levels if all are full.
    fn level(&self) -> usize {
        self.rows.iter().take_while(|row| row.is_full()).count()
    }

    fn next(&self) -> Option<NextMove<'_>> {
        let level = self.level();
        let row = self.rows.get(level)?;
        let from = if level == 0 { &self.at } else { &self.rows[level - 1].start };
        Some(NextMove { level, from, step: row.step.as_ref()?, is_sure: row.is_sure })
    }

    fn move_to(&mut self, level: usize, place: Place) {
        self.rows[level].seen += 1;
        for below in &mut self.rows[..level] {
            below.start.clone_from(&place);
            below.seen = 1;
        }
        self.at = place;
    }

    /// Returns the sure and complete part of the pattern; `None` if there is none.
    fn whole(&self) -> Option<Walk> {
        for (level, row) in self.rows.iter().enumerate().rev() {
            let is_whole = self.rows[..level].iter().all(LevelState::is_full);
            let count = if is_whole { row.seen } else { row.seen - 1 };
            if count >= COUNT_MIN && row.is_sure {
                let top = Level { step: row.step.clone()?, count };
                return Some(Walk {
                    start: row.start.clone(),
                    levels: self.below(level, Some(top))?,
                });
            }
            if level > 0 && count > 0 {
                // Several rows whose step is unknown.
                return Some(Walk { start: row.start.clone(), levels: self.below(level, None)? });
            }
        }
        None
    }

    fn below(&self, level: usize, top: Option<Level>) -> Option<Vec<Level>> {
        let whole = |row: &LevelState| Some(Level { step: row.step.clone()?, count: row.length? });
        self.rows[..level].iter().map(whole).chain(top.map(Some)).collect()
    }
}

/// Grows the pattern of the accesses to one array or file.
///
/// ```
/// use bedform_patterns::{Grower, GrownAccess, Place};
///
/// let mut grower = Grower::default();
/// let at = |offset| Place::bytes(offset, 1).unwrap();
/// let missed = [1, 3, 5, 11, 13, 15, 21, 23, 25, 31, 33, 35]
///     .into_iter()
///     .filter(|offset| grower.push(at(*offset)) != GrownAccess::Expected);
/// assert_eq!(missed.collect::<Vec<_>>(), [1, 3, 5, 11, 21]);
/// assert_eq!(grower.ahead().next(), Some(at(41)));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Grower {
    odometer: Option<Odometer>,
    /// Patterns that ended, newest last.
    known: VecDeque<Walk>,
    /// True while the levels above the first come from a known pattern.
    is_recalled: bool,
}

impl Grower {
    /// Makes a grower that knows patterns of earlier runs: when one starts again, it is predicted
    /// from its second access on.
    pub fn knowing(walks: impl IntoIterator<Item = Walk>) -> Self {
        let mut grower = Self::default();
        walks.into_iter().for_each(|walk| grower.know(walk));
        grower
    }

    /// Returns the patterns that ended, oldest first.
    pub fn known(&self) -> impl Iterator<Item = &Walk> {
        self.known.iter()
    }

    /// Records the next access.
    pub fn push(&mut self, place: Place) -> GrownAccess {
        let Some(odometer) = &mut self.odometer else {
            self.begin(place);
            return GrownAccess::New;
        };
        match odometer.next() {
            Some(next) if place.is_after(next.from, next.step) => {
                let level = next.level;
                let was_sure = std::mem::replace(&mut odometer.rows[level].is_sure, true);
                odometer.move_to(level, place);
                if was_sure {
                    return GrownAccess::Expected;
                }
                self.recall();
                GrownAccess::New
            }
            _ => self.turn(place),
        }
    }

    /// Returns the predicted next places, as far as they are sure.
    pub fn ahead(&self) -> impl Iterator<Item = Place> + use<> {
        let mut odometer = self.odometer.clone();
        std::iter::from_fn(move || {
            let odometer = odometer.as_mut()?;
            let next = odometer.next().filter(|next| next.is_sure)?;
            let (level, place) = (next.level, next.from.after(next.step)?);
            odometer.move_to(level, place.clone());
            Some(place)
        })
    }

    /// Returns true if `place` is the sure next place.
    pub(crate) fn is_next(&self, place: &Place) -> bool {
        let next = self.odometer.as_ref().and_then(Odometer::next);
        next.is_some_and(|next| next.is_sure && place.is_after(next.from, next.step))
    }

    /// Returns true while a known pattern is assumed to repeat.
    pub(crate) fn is_recalled(&self) -> bool {
        self.is_recalled
    }

    /// Returns the number of places in the current innermost row.
    pub(crate) fn row_count(&self) -> u64 {
        self.odometer.as_ref().map_or(0, |odometer| odometer.rows[0].seen)
    }

    /// Returns the number of places so far, if at most one row of the pattern is sure.
    pub(crate) fn rows_count(&self) -> Option<u64> {
        match self.odometer.as_ref()?.rows.as_slice() {
            _ if self.is_recalled => None,
            [row] => Some(row.seen),
            [row, above] if !above.is_sure => {
                Some(row.length?.saturating_mul(above.seen).saturating_add(row.seen))
            }
            _ => None,
        }
    }

    /// Adds a pattern of an earlier run.
    pub(crate) fn know(&mut self, walk: Walk) {
        self.remember(walk);
    }

    /// Returns the next place, if it is sure.
    pub(crate) fn next_place(&self) -> Option<Place> {
        let next = self.odometer.as_ref()?.next().filter(|next| next.is_sure)?;
        next.from.after(next.step)
    }

    /// Returns true if the next place is sure.
    pub(crate) fn is_sure(&self) -> bool {
        let next = self.odometer.as_ref().and_then(Odometer::next);
        // A place outside the range of 64-bit integers is not predicted.
        next.is_some_and(|next| next.is_sure && next.from.after(next.step).is_some())
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let rows = self.odometer.as_ref().map_or(0, |odometer| {
            let own = odometer
                .rows
                .iter()
                .map(|row| row.start.heap_bytes() + row.step.as_ref().map_or(0, Step::heap_bytes));
            size_of::<LevelState>() * odometer.rows.capacity() + own.sum::<usize>()
        });
        let known = self.known.iter().map(Walk::heap_bytes).sum::<usize>();
        rows + known + size_of::<Walk>() * self.known.capacity()
    }

    /// Returns the pattern so far, if it is one.
    pub fn current(&self) -> Option<Walk> {
        self.odometer.as_ref()?.whole()
    }

    /// Returns the current row, if rows are complete but their step is not sure, with the start of
    /// the previous row.
    pub fn row(&self) -> Option<CurrentRow<'_>> {
        let odometer = self.odometer.as_ref()?;
        let sure = odometer.rows.iter().take_while(|row| row.is_sure).count();
        let start = &odometer.rows.get(sure.checked_sub(1)?)?.start;
        let before = &odometer.rows.get(sure)?.start;
        Some(CurrentRow { before, start, levels: odometer.below(sure, None)? })
    }

    /// Ends the current pattern, remembers it, and returns it, if it is one.
    pub fn end(&mut self) -> Option<Walk> {
        let ended = self.odometer.take().and_then(|odometer| odometer.whole());
        self.is_recalled = false;
        if let Some(walk) = &ended {
            self.remember(walk.clone());
        }
        ended
    }

    fn begin(&mut self, place: Place) {
        let mut odometer = Odometer::new(place);
        self.is_recalled = false;
        if let Some(walk) = self.known.iter().rev().find(|walk| walk.start == odometer.at) {
            odometer.rows = rows_of(walk, &odometer.at, 1);
            self.is_recalled = true;
        }
        self.odometer = Some(odometer);
    }

    /// Handles an unpredicted place: a row has ended, or the pattern.
    fn turn(&mut self, place: Place) -> GrownAccess {
        let Some(odometer) = &mut self.odometer else { return GrownAccess::New };
        if self.is_recalled {
            return self.turn_back(place);
        }
        let level = odometer.level();
        let is_top = level + 1 >= odometer.rows.len();
        let last = level.min(odometer.rows.len() - 1);
        let row = &mut odometer.rows[last];
        // A single place, or a wrong guess: the step is another one.
        if level == 0 && !row.is_sure {
            let step = odometer.at.step_to(&place);
            *row = LevelState { step, seen: 2, ..LevelState::new(odometer.at.clone()) };
            if row.step.is_none() {
                *row = LevelState::new(place.clone());
            }
            odometer.at = place;
            return GrownAccess::New;
        }
        // Equal rows at unequal steps.
        if level == last && level > 0 && !row.is_sure {
            let ended = odometer.whole();
            let from = odometer.rows[level - 1].start.clone();
            let step = from.step_to(&place);
            odometer.rows[level] = LevelState { step, seen: 1, ..LevelState::new(from) };
            odometer.move_to(level, place);
            return self.ended(ended);
        }
        let step = row.start.step_to(&place);
        if is_top && row.seen >= COUNT_MIN && last + 1 < LEVELS_MAX && step.is_some() {
            row.length = Some(row.seen);
            let above = LevelState { step, seen: 1, ..LevelState::new(row.start.clone()) };
            odometer.rows.push(above);
            odometer.move_to(last + 1, place);
            return GrownAccess::New;
        }
        self.start_again(place)
    }

    /// Ends the pattern; the next one may continue from its last place.
    fn start_again(&mut self, place: Place) -> GrownAccess {
        let last = self.odometer.as_ref().map(|odometer| odometer.at.clone());
        let ended = self.end();
        self.begin(place);
        if let (Some(odometer), Some(last), false) = (&mut self.odometer, last, self.is_recalled)
            && let Some(step) = last.step_to(&odometer.at)
        {
            odometer.rows = vec![LevelState { step: Some(step), seen: 2, ..LevelState::new(last) }];
        }
        ended.map_or(GrownAccess::New, GrownAccess::Ended)
    }

    /// Drops a recalled pattern that did not repeat; the part seen so far may continue.
    fn turn_back(&mut self, place: Place) -> GrownAccess {
        self.is_recalled = false;
        if let Some(odometer) = &mut self.odometer {
            odometer.rows.truncate(1);
            let row = &mut odometer.rows[0];
            row.length = None;
            if row.seen < COUNT_MIN {
                row.is_sure = false;
            }
        }
        match self.push(place) {
            // The recalled pattern did not predict the place.
            GrownAccess::Expected => GrownAccess::New,
            grown => grown,
        }
    }

    fn ended(&mut self, walk: Option<Walk>) -> GrownAccess {
        let Some(walk) = walk else { return GrownAccess::New };
        self.remember(walk.clone());
        GrownAccess::Ended(walk)
    }

    fn remember(&mut self, walk: Walk) {
        if walk.levels.is_empty() || walk.levels.len() > LEVELS_MAX {
            return;
        }
        self.known.retain(|known| *known != walk);
        if self.known.len() >= KNOWN_MAX {
            self.known.pop_front();
        }
        self.known.push_back(walk);
    }

    /// Once the first row is sure, assumes that the newest known pattern with such a row repeats.
    fn recall(&mut self) {
        let Some(odometer) = &mut self.odometer else { return };
        let [row] = odometer.rows.as_slice() else { return };
        let fits = |walk: &&Walk| {
            Some(&walk.levels[0].step) == row.step.as_ref() && walk.levels[0].count > row.seen
        };
        if let Some(walk) = self.known.iter().rev().find(fits) {
            odometer.rows = rows_of(walk, &row.start.clone(), row.seen);
            self.is_recalled = true;
        }
    }
}

/// Returns the rows of a known pattern that starts at `start`, with `seen` places seen. The
/// outermost of several rows may be longer this time.
fn rows_of(walk: &Walk, start: &Place, seen: u64) -> Vec<LevelState> {
    let row = |level: &Level| LevelState {
        start: start.clone(),
        step: Some(level.step.clone()),
        is_sure: true,
        seen: 1,
        length: Some(level.count),
    };
    let mut rows: Vec<LevelState> = walk.levels.iter().map(row).collect();
    rows[0].seen = seen;
    if let [_, .., top] = rows.as_mut_slice() {
        top.length = None;
    }
    rows
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(offset: i64) -> Place {
        Place::new([(offset, offset + 1)])
    }

    fn step(by: i64) -> Step {
        at(0).step_to(&at(by)).unwrap()
    }

    fn missed(grower: &mut Grower, places: impl IntoIterator<Item = Place>) -> usize {
        places
            .into_iter()
            .filter(|place| grower.push(place.clone()) != GrownAccess::Expected)
            .count()
    }

    fn walk(start: i64, levels: &[(i64, u64)]) -> Walk {
        let levels = levels.iter().map(|&(by, count)| Level { step: step(by), count });
        Walk { start: at(start), levels: levels.collect() }
    }

    #[test]
    fn three_dimensions_of_strides_miss_seven_accesses() {
        let whole = walk(7, &[(2, 5), (40, 4), (1000, 6)]);
        let mut grower = Grower::default();
        assert_eq!(missed(&mut grower, whole.places()), 3 + 2 * 2);
        assert_eq!(grower.current(), Some(whole));
    }

    #[test]
    fn what_is_predicted_is_what_comes() {
        let whole = walk(7, &[(2, 5), (40, 4), (1000, 6)]);
        let mut grower = Grower::default();
        let places: Vec<Place> = whole.places().collect();
        for (number, place) in places.iter().enumerate() {
            let ahead: Vec<Place> = grower.ahead().take(4).collect();
            let next = &places[number..];
            if number > 60 {
                assert!(next.starts_with(&ahead) || next.len() < 4, "{number}: {ahead:?}");
                assert!(!ahead.is_empty());
            }
            grower.push(place.clone());
        }
    }

    #[test]
    fn a_pattern_that_begins_again_misses_one_access() {
        let whole = walk(7, &[(2, 5), (40, 4)]);
        let mut grower = Grower::knowing([whole.clone()]);
        assert_eq!(missed(&mut grower, whole.places()), 1);
        // At another start it is recognized by its first row.
        let mut grower = Grower::knowing([whole]);
        assert_eq!(missed(&mut grower, walk(900, &[(2, 5), (40, 4)]).places()), 3);
    }

    #[test]
    fn a_known_pattern_that_does_not_come_gives_way() {
        let mut grower = Grower::knowing([walk(7, &[(2, 5), (40, 4)])]);
        let row = walk(7, &[(2, 50)]);
        assert_eq!(missed(&mut grower, row.places()), 2);
        assert_eq!(grower.current(), Some(row));
    }

    #[test]
    fn rows_at_uneven_steps_end_one_by_one() {
        let mut grower = Grower::default();
        let starts = [0, 100, 300, 400, 1000];
        let rows = starts.map(|start| walk(start, &[(3, 4)]));
        let mut ended = Vec::new();
        for place in rows.iter().flat_map(Walk::places) {
            if let GrownAccess::Ended(walk) = grower.push(place) {
                ended.push(walk);
            }
        }
        assert_eq!(ended, rows[..3]);
    }

    #[test]
    fn rasters_over_tiles_are_rows_of_rows() {
        let tile = |row: i64, column: i64| {
            Place::new([(row * 64, row * 64 + 64), (column * 32, column * 32 + 32)])
        };
        let tiles = (0..6).flat_map(|row| (0..9).map(move |column| tile(row, column)));
        let mut grower = Grower::default();
        assert_eq!(missed(&mut grower, tiles), 5);
    }

    #[test]
    fn the_same_place_again_and_again_is_a_pattern() {
        let mut grower = Grower::default();
        assert_eq!(missed(&mut grower, (0..9).map(|_| at(5))), 3);
    }

    proptest! {
        #[test]
        fn any_walk_is_found_with_two_more_misses_a_level(
            start in -1000_i64..1000,
            levels in prop::collection::vec((1_i64..4, 3_u64..6), 1..5),
        ) {
            // Steps that leave the level below, so that the walk has one description only.
            let mut span = 1;
            let levels: Vec<(i64, u64)> = levels.into_iter().map(|(more, count)| {
                let by = span + more;
                span = by * i64::try_from(count).unwrap();
                (by, count)
            }).collect();
            let whole = walk(start, &levels);
            let mut grower = Grower::default();
            prop_assert_eq!(missed(&mut grower, whole.places()), 3 + 2 * (levels.len() - 1));
            prop_assert_eq!(grower.current(), Some(whole));
        }

        #[test]
        fn nothing_that_comes_makes_it_fail_or_predict_what_cannot_be(
            offsets in prop::collection::vec(prop_oneof![0_i64..4, any::<i64>()], 0..200),
        ) {
            let mut grower = Grower::default();
            for offset in offsets {
                let place = Place::new([(offset, offset.saturating_add(1))]);
                let expected = grower.ahead().next();
                let grown = grower.push(place.clone());
                prop_assert_eq!(expected == Some(place), grown == GrownAccess::Expected);
                prop_assert!(grower.ahead().take(50).count() <= 50);
                prop_assert!(grower.known().count() <= KNOWN_MAX);
            }
        }
    }
}
