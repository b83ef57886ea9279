//! All patterns of the accesses to one array or file.

use crate::composed::Composed;
use crate::{Correlated, Grower, Place, Step, Walk};

/// What a prediction comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Equal steps, to any depth.
    Strided,
    /// Rows of a pattern whose steps repeat as a sequence.
    ComposedRows,
    /// Accesses whose steps repeat as a sequence.
    Composed,
    /// Places that often follow another one.
    Correlated,
}

/// Places that a pattern says will come.
type Places<'a> = Box<dyn Iterator<Item = Place> + 'a>;

/// What an access was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The pattern that had predicted it; nothing if none had.
    pub predicted: Option<Kind>,
}

/// Finds the patterns of a sequence of accesses, and says which places come next.
///
/// A pattern is served after so many accesses that it did not predict: 3 for contiguous and simple-strided ones,
/// 2 more for each further depth, 2 p + 1 for a sequence of p steps.
///
/// ```
/// use bedform_patterns::{Analyzer, Place};
///
/// // The hours of each day at which it is coldest and warmest.
/// let hour = |hour| Place::new([(hour, hour + 1), (0, 180), (0, 360)]);
/// let mut analyzer = Analyzer::default();
/// let missed = (0..30)
///     .flat_map(|day| [5, 6, 14, 15].map(|at| hour(24 * day + at)))
///     .filter(|place| analyzer.push(place.clone()).predicted.is_none());
/// assert_eq!(missed.count(), 2 * 4 + 1);
/// assert_eq!(analyzer.ahead().take(2).collect::<Vec<_>>(), [hour(725), hour(726)]);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Analyzer {
    grower: Grower,
    /// From access to access.
    steps: Composed<Step>,
    /// From row to row of the same kind.
    row_steps: Composed<Step>,
    /// The row that is under way.
    row: Walk,
    correlated: Correlated,
    at: Option<Place>,
}

impl Analyzer {
    /// One that knows patterns of earlier runs.
    pub fn knowing(walks: impl IntoIterator<Item = Walk>) -> Self {
        Self { grower: Grower::knowing(walks), ..Self::default() }
    }

    /// The next access.
    pub fn push(&mut self, place: Place) -> Seen {
        let predicted = self.active().and_then(|(kind, mut places)| {
            let is_next = match kind {
                Kind::Correlated => places.any(|next| next == place),
                _ => places.next().as_ref() == Some(&place),
            };
            is_next.then_some(kind)
        });
        match self.at.as_ref().and_then(|at| at.step_to(&place)) {
            Some(step) => self.steps.push(step),
            None => self.steps.clear(),
        }
        if predicted.is_none_or(|kind| kind == Kind::Correlated) {
            self.correlated.push(&place);
        }
        self.at = Some(place.clone());
        self.grower.push(place);
        self.follow_rows();
        Seen { predicted }
    }

    /// The places that come next, as far as a pattern says: without end, where it has none.
    pub fn ahead(&self) -> impl Iterator<Item = Place> + '_ {
        self.active().into_iter().flat_map(|(_, places)| places)
    }

    /// The pattern that says what comes next, and what that is: of several the most structured one.
    fn active(&self) -> Option<(Kind, Places<'_>)> {
        let followers = self.at.iter().flat_map(|at| self.correlated.followers(at).cloned());
        let strided = self.grower.ahead();
        [
            (Kind::Strided, Box::new(strided) as Places<'_>),
            (Kind::ComposedRows, Box::new(self.rows_ahead())),
            (Kind::Composed, Box::new(self.steps_ahead())),
            (Kind::Correlated, Box::new(followers)),
        ]
        .into_iter()
        .find_map(|(kind, mut places)| {
            let first = places.next()?;
            let more = (kind == Kind::Strided).then(|| self.rows_ahead()).into_iter().flatten();
            Some((kind, Box::new(std::iter::once(first).chain(places).chain(more)) as Places<'_>))
        })
    }

    /// The structured patterns that ended and the one that goes on, oldest first.
    pub fn walks(&self) -> impl Iterator<Item = Walk> + '_ {
        self.grower.known().cloned().chain(self.grower.current())
    }

    /// The sequence of steps that repeats, if one does.
    pub fn sequence(&self) -> Vec<Step> {
        self.steps.sequence().cloned().collect()
    }

    /// Looks whether another row has begun.
    fn follow_rows(&mut self) {
        let Some(row) = self.grower.row() else { return };
        let Walk { start, levels } = &mut self.row;
        if *levels != row.levels {
            self.row_steps.clear();
            *levels = row.levels;
        } else if start == row.start {
            return;
        }
        start.clone_from(row.start);
        match row.before.step_to(row.start) {
            Some(step) => self.row_steps.push(step),
            None => self.row_steps.clear(),
        }
    }

    /// The rows after the one that is under way, where their steps repeat.
    fn rows_ahead(&self) -> impl Iterator<Item = Place> + '_ {
        let mut row = self.row.clone();
        let rows = self.row_steps.sequence().cycle().map_while(move |step| {
            row.start = row.start.after(step)?;
            Some(row.clone())
        });
        rows.flat_map(|row| (0..row.count()).map_while(move |number| row.place(number)))
    }

    fn steps_ahead(&self) -> impl Iterator<Item = Place> + '_ {
        let mut place = self.at.clone();
        self.steps.sequence().cycle().map_while(move |step| {
            place = place.as_ref().and_then(|place| place.after(step));
            place.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: i64) -> Place {
        Place::new([(offset, offset + 1)])
    }

    fn missed(analyzer: &mut Analyzer, places: impl IntoIterator<Item = Place>) -> usize {
        places.into_iter().filter(|place| analyzer.push(place.clone()).predicted.is_none()).count()
    }

    /// The slices of the hours of a day: rows of four places at each of the hours.
    fn slices_of_hours(days: i64) -> Vec<Place> {
        let hours = (0..days).flat_map(|day| [5, 6, 14, 15].map(|hour| 24 * day + hour));
        hours.flat_map(|hour| (0..4).map(move |slice| at(1000 * hour + 10 * slice))).collect()
    }

    #[test]
    fn rows_at_hours_that_repeat_each_day_are_predicted_from_the_third_day_on() {
        let mut analyzer = Analyzer::default();
        let places = slices_of_hours(30);
        assert!(missed(&mut analyzer, places[..2 * 16 + 4].iter().cloned()) <= 3 + 2 * 4);
        assert_eq!(missed(&mut analyzer, places[2 * 16 + 4..].iter().cloned()), 0);
    }

    #[test]
    fn what_is_ahead_is_what_comes_of_rows_at_hours() {
        let mut analyzer = Analyzer::default();
        let places = slices_of_hours(9);
        for (number, place) in places.iter().enumerate() {
            if (50..100).contains(&number) {
                let ahead: Vec<Place> = analyzer.ahead().take(20).collect();
                assert_eq!(ahead, places[number..number + 20], "{number}");
            }
            analyzer.push(place.clone());
        }
    }

    #[test]
    fn places_that_follow_others_often_are_predicted() {
        let mut analyzer = Analyzer::default();
        let offsets = [10, 20, 91, 30, 10, 20, 55, 77, 10, 20, 8, 3, 10];
        missed(&mut analyzer, offsets.map(at));
        assert_eq!(analyzer.ahead().collect::<Vec<_>>(), [at(20)]);
        assert_eq!(analyzer.push(at(20)).predicted, Some(Kind::Correlated));
    }

    #[test]
    fn random_places_are_hardly_ever_predicted() {
        let mut analyzer = Analyzer::default();
        let mut state = 1_u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            i64::try_from(state >> 40).unwrap()
        };
        let count = 5000;
        let ahead = (0..count).filter(|_| {
            analyzer.push(at(random()));
            analyzer.ahead().next().is_some()
        });
        assert_eq!(ahead.count(), 0);
    }
}
