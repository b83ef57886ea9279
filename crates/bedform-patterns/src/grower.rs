//! Grows structured patterns access by access (section 2.3.3).
//!
//! A pattern is an odometer: each level counts elements at equal steps, and an element of one level is a row of the
//! level below. The next place is that of the innermost level that is not at its end.
//!
//! A step that was seen once is a guess, and one that was right twice is sure. A row shows its length when it ends:
//! then it becomes the first element of a level above. So the second row is predicted from its second place on, by
//! the shape of the first one, and the third from its first but one: contiguous and simple-strided patterns miss 3
//! accesses, each level more misses 2.

use std::collections::VecDeque;

use crate::walk::LEVELS_MAX;
use crate::{Level, Place, Step, Walk};

/// Elements of a level that make it one.
const COUNT_MIN: u64 = 3;
/// Patterns that are remembered.
const KNOWN_MAX: usize = 32;

/// The relation of an access to the pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grown {
    /// The one that was predicted.
    Expected,
    /// One that could not be predicted, from which the pattern grew or begins.
    New,
    /// The pattern had ended before it.
    Ended(Walk),
}

/// A row of a pattern whose rows lie at steps that are not sure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowUnderWay<'a> {
    /// Where the row before began.
    pub before: &'a Place,
    /// Where it began.
    pub start: &'a Place,
    /// Its levels.
    pub levels: Vec<Level>,
}

/// One level while it grows.
#[derive(Debug, Clone)]
struct Row {
    /// Its first place in the row that is under way.
    start: Place,
    step: Option<Step>,
    /// True once the step was right twice.
    is_sure: bool,
    /// Elements that have begun.
    seen: u64,
    /// Elements of a whole row, once one has ended.
    length: Option<u64>,
}

impl Row {
    fn new(start: Place) -> Self {
        Self { start, step: None, is_sure: false, seen: 1, length: None }
    }

    fn is_full(&self) -> bool {
        self.length.is_some_and(|length| self.seen >= length)
    }
}

/// The rows of a pattern, innermost first, and the last access.
#[derive(Debug, Clone)]
struct Odometer {
    rows: Vec<Row>,
    at: Place,
}

/// The next move: its level, its step, and the place that it starts from.
struct Next<'a> {
    level: usize,
    from: &'a Place,
    step: &'a Step,
    is_sure: bool,
}

impl Odometer {
    fn new(at: Place) -> Self {
        Self { rows: vec![Row::new(at.clone())], at }
    }

    /// The level that moves next: as many as there are if all are full.
    fn level(&self) -> usize {
        self.rows.iter().take_while(|row| row.is_full()).count()
    }

    fn next(&self) -> Option<Next<'_>> {
        let level = self.level();
        let row = self.rows.get(level)?;
        let from = if level == 0 { &self.at } else { &self.rows[level - 1].start };
        Some(Next { level, from, step: row.step.as_ref()?, is_sure: row.is_sure })
    }

    fn move_to(&mut self, level: usize, place: Place) {
        self.rows[level].seen += 1;
        for below in &mut self.rows[..level] {
            below.start.clone_from(&place);
            below.seen = 1;
        }
        self.at = place;
    }

    /// The pattern as far as it is sure and whole; nothing if that is none.
    fn whole(&self) -> Option<Walk> {
        for (level, row) in self.rows.iter().enumerate().rev() {
            let is_whole = self.rows[..level].iter().all(Row::is_full);
            let count = if is_whole { row.seen } else { row.seen - 1 };
            if count >= COUNT_MIN && row.is_sure {
                let top = Level { step: row.step.clone()?, count };
                return Some(Walk {
                    start: row.start.clone(),
                    levels: self.below(level, Some(top))?,
                });
            }
            if level > 0 && count > 0 {
                // Rows without a step between them.
                return Some(Walk { start: row.start.clone(), levels: self.below(level, None)? });
            }
        }
        None
    }

    fn below(&self, level: usize, top: Option<Level>) -> Option<Vec<Level>> {
        let whole = |row: &Row| Some(Level { step: row.step.clone()?, count: row.length? });
        self.rows[..level].iter().map(whole).chain(top.map(Some)).collect()
    }
}

/// Grows the pattern of the accesses to one array or file.
///
/// ```
/// use bedform_patterns::{Grower, Grown, Place};
///
/// let mut grower = Grower::default();
/// let at = |offset| Place::bytes(offset, 1).unwrap();
/// let missed = [1, 3, 5, 11, 13, 15, 21, 23, 25, 31, 33, 35]
///     .into_iter()
///     .filter(|offset| grower.push(at(*offset)) != Grown::Expected);
/// assert_eq!(missed.collect::<Vec<_>>(), [1, 3, 5, 11, 21]);
/// assert_eq!(grower.ahead().next(), Some(at(41)));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Grower {
    odometer: Option<Odometer>,
    /// Patterns that ended, newest last.
    known: VecDeque<Walk>,
    /// True while the levels above the first are those of a known pattern.
    is_recalled: bool,
}

impl Grower {
    /// One that knows patterns of earlier runs: where one begins again, it is predicted from its second access on.
    pub fn knowing(walks: impl IntoIterator<Item = Walk>) -> Self {
        let mut grower = Self::default();
        walks.into_iter().for_each(|walk| grower.know(walk));
        grower
    }

    /// The patterns that ended, oldest first.
    pub fn known(&self) -> impl Iterator<Item = &Walk> {
        self.known.iter()
    }

    /// The next access.
    pub fn push(&mut self, place: Place) -> Grown {
        let Some(odometer) = &mut self.odometer else {
            self.begin(place);
            return Grown::New;
        };
        match odometer.next() {
            Some(next) if place.is_after(next.from, next.step) => {
                let level = next.level;
                let was_sure = std::mem::replace(&mut odometer.rows[level].is_sure, true);
                odometer.move_to(level, place);
                if was_sure {
                    return Grown::Expected;
                }
                self.recall();
                Grown::New
            }
            _ => self.turn(place),
        }
    }

    /// The places that come next, as far as they are sure.
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

    /// True if a place is the one that is sure to come next.
    pub(crate) fn is_next(&self, place: &Place) -> bool {
        let next = self.odometer.as_ref().and_then(Odometer::next);
        next.is_some_and(|next| next.is_sure && place.is_after(next.from, next.step))
    }

    /// True while a known pattern is taken to come again.
    pub(crate) fn is_recalled(&self) -> bool {
        self.is_recalled
    }

    /// Places of the innermost row that is under way.
    pub(crate) fn row_count(&self) -> u64 {
        self.odometer.as_ref().map_or(0, |odometer| odometer.rows[0].seen)
    }

    /// Places so far of a pattern of which no more than a row is sure.
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

    /// A pattern of an earlier run.
    pub(crate) fn know(&mut self, walk: Walk) {
        self.remember(walk);
    }

    /// The place that comes next, if that is sure.
    pub(crate) fn next_place(&self) -> Option<Place> {
        let next = self.odometer.as_ref()?.next().filter(|next| next.is_sure)?;
        next.from.after(next.step)
    }

    /// True if the next place is sure.
    pub(crate) fn is_sure(&self) -> bool {
        let next = self.odometer.as_ref().and_then(Odometer::next);
        // A place that cannot be counted is none.
        next.is_some_and(|next| next.is_sure && next.from.after(next.step).is_some())
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let rows = self.odometer.as_ref().map_or(0, |odometer| {
            let own = odometer
                .rows
                .iter()
                .map(|row| row.start.heap_bytes() + row.step.as_ref().map_or(0, Step::heap_bytes));
            size_of::<Row>() * odometer.rows.capacity() + own.sum::<usize>()
        });
        let known = self.known.iter().map(Walk::heap_bytes).sum::<usize>();
        rows + known + size_of::<Walk>() * self.known.capacity()
    }

    /// The pattern so far, if it is one.
    pub fn current(&self) -> Option<Walk> {
        self.odometer.as_ref()?.whole()
    }

    /// The row that is under way where rows are whole, and their steps not sure: where it and the one before began,
    /// and their levels.
    pub fn row(&self) -> Option<RowUnderWay<'_>> {
        let odometer = self.odometer.as_ref()?;
        let sure = odometer.rows.iter().take_while(|row| row.is_sure).count();
        let start = &odometer.rows.get(sure.checked_sub(1)?)?.start;
        let before = &odometer.rows.get(sure)?.start;
        Some(RowUnderWay { before, start, levels: odometer.below(sure, None)? })
    }

    /// Forgets where the accesses are, and keeps the patterns.
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

    /// A place that was not predicted: a row has ended, or the pattern.
    fn turn(&mut self, place: Place) -> Grown {
        let Some(odometer) = &mut self.odometer else { return Grown::New };
        if self.is_recalled {
            return self.turn_back(place);
        }
        let level = odometer.level();
        let is_top = level + 1 >= odometer.rows.len();
        let last = level.min(odometer.rows.len() - 1);
        let row = &mut odometer.rows[last];
        // One place, or a guess that was wrong: the step is another.
        if level == 0 && !row.is_sure {
            let step = odometer.at.step_to(&place);
            *row = Row { step, seen: 2, ..Row::new(odometer.at.clone()) };
            if row.step.is_none() {
                *row = Row::new(place.clone());
            }
            odometer.at = place;
            return Grown::New;
        }
        // The same rows, but not at equal steps.
        if level == last && level > 0 && !row.is_sure {
            let ended = odometer.whole();
            let from = odometer.rows[level - 1].start.clone();
            let step = from.step_to(&place);
            odometer.rows[level] = Row { step, seen: 1, ..Row::new(from) };
            odometer.move_to(level, place);
            return self.ended(ended);
        }
        let step = row.start.step_to(&place);
        if is_top && row.seen >= COUNT_MIN && last + 1 < LEVELS_MAX && step.is_some() {
            row.length = Some(row.seen);
            let above = Row { step, seen: 1, ..Row::new(row.start.clone()) };
            odometer.rows.push(above);
            odometer.move_to(last + 1, place);
            return Grown::New;
        }
        self.start_again(place)
    }

    /// The pattern ends. The next one may go on from its last place.
    fn start_again(&mut self, place: Place) -> Grown {
        let last = self.odometer.as_ref().map(|odometer| odometer.at.clone());
        let ended = self.end();
        self.begin(place);
        if let (Some(odometer), Some(last), false) = (&mut self.odometer, last, self.is_recalled)
            && let Some(step) = last.step_to(&odometer.at)
        {
            odometer.rows = vec![Row { step: Some(step), seen: 2, ..Row::new(last) }];
        }
        ended.map_or(Grown::New, Grown::Ended)
    }

    /// A known pattern was not the one that comes: the part seen so far may go on.
    fn turn_back(&mut self, place: Place) -> Grown {
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
            // The recalled pattern had not predicted it.
            Grown::Expected => Grown::New,
            grown => grown,
        }
    }

    fn ended(&mut self, walk: Option<Walk>) -> Grown {
        let Some(walk) = walk else { return Grown::New };
        self.remember(walk.clone());
        Grown::Ended(walk)
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

    /// Once the first row is sure, the last pattern that began with such a row is taken to come again.
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

/// The rows of a known pattern that begins at `start`, of which so many places were seen. The outermost may be
/// longer this time, if it has one within.
fn rows_of(walk: &Walk, start: &Place, seen: u64) -> Vec<Row> {
    let row = |level: &Level| Row {
        start: start.clone(),
        step: Some(level.step.clone()),
        is_sure: true,
        seen: 1,
        length: Some(level.count),
    };
    let mut rows: Vec<Row> = walk.levels.iter().map(row).collect();
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
        places.into_iter().filter(|place| grower.push(place.clone()) != Grown::Expected).count()
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
        // Elsewhere it is known by its first row.
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
            if let Grown::Ended(walk) = grower.push(place) {
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
            // Steps that leave the level below, so that a walk is no other one.
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
                prop_assert_eq!(expected == Some(place), grown == Grown::Expected);
                prop_assert!(grower.ahead().take(50).count() <= 50);
                prop_assert!(grower.known().count() <= KNOWN_MAX);
            }
        }
    }
}
