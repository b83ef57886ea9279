//! The analyzer: detects all kinds of patterns in the accesses to one array or file, and chooses
//! one for predictions.
//!
//! Each access updates the structured pattern; costlier searches run only while nothing predicts.
//! One kind of pattern at a time provides the places [`ahead`](Analyzer::ahead). It is the most
//! structured kind with a prediction, with two exceptions. Sequences of steps replace the
//! structured pattern if they were right where it was wrong. Interleaved walks replace all ordered
//! patterns if they predicted more of the last accesses.

use crate::composed::Composed;
use crate::contiguous::Contiguous;
use crate::fingerprint::PlaceFingerprint;
use crate::interleaved::Interleaved;
use crate::pattern::{FollowedPlace, Pattern};
use crate::rows::RowSteps;
use crate::{Correlated, Grower, GrownAccess, Place, Settings, Step, Walk};

/// The kind of pattern that makes a prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum PatternKind {
    /// Equal steps, nested to any depth.
    Strided,
    /// Rows of a pattern whose steps repeat as a sequence.
    ComposedRows,
    /// Accesses whose steps repeat as a sequence.
    Composed,
    /// Accesses that each start at the end of the previous one.
    Contiguous,
    /// Several concurrent walks, or one whose order is disturbed.
    Interleaved,
    /// Places that often follow another place.
    Correlated,
}

impl PatternKind {
    /// Returns the name of the kind, for people: `strided`, `composed_rows`, `composed`,
    /// `contiguous`, `interleaved`, `correlated`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Strided => "strided",
            Self::ComposedRows => "composed_rows",
            Self::Composed => "composed",
            Self::Contiguous => "contiguous",
            Self::Interleaved => "interleaved",
            Self::Correlated => "correlated",
        }
    }
}

/// Number of accesses predicted by interleaved walks from which on the walks are saved as patterns.
const INTERLEAVED_MIN: u32 = 16;

/// An iterator over predicted places.
type Places<'a> = Box<dyn Iterator<Item = Place> + 'a>;

/// The result of showing an access to the analyzer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnalyzedAccess {
    /// The kind of pattern that predicted it; `None` if none did.
    pub predicted: Option<PatternKind>,
}

/// An analyzer that finds the patterns of a sequence of accesses and predicts the next places.
///
/// A pattern makes predictions after a number of missed accesses. Contiguous and simple-strided
/// patterns miss 3, and 2 more for each further depth. A sequence of p steps misses 2 p + 1, a
/// pattern of an earlier run 1. Interleaved or disturbed walks each miss a few more.
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
    /// Detects sequences in the steps between consecutive accesses.
    steps: Composed,
    rows: RowSteps,
    contiguous: Contiguous,
    interleaved: Interleaved,
    /// Number of accesses that interleaved walks predicted.
    interleaved_count: u32,
    correlated: Correlated,
    at: Option<(Place, PlaceFingerprint)>,
    /// Of the ordered patterns, the kind that predicts the next place.
    ordered: Option<PatternKind>,
    /// Of all patterns, the kind that predicts the next place.
    active: Option<PatternKind>,
    /// One bit for each of the last accesses, newest lowest: set if an ordered pattern predicted
    /// it.
    record: u16,
    /// True while the sequence of steps predicts better than the structured pattern.
    is_composed: bool,
    /// Number of unpredicted accesses since the last search for sequences.
    waiting: u32,
    batch: u32,
}

impl Analyzer {
    /// Makes an analyzer with other thresholds.
    pub fn with(settings: Settings) -> Self {
        let Settings { often, next, batch } = settings;
        Self {
            correlated: Correlated::new(often, next),
            interleaved: Interleaved::new(batch),
            batch,
            ..Self::default()
        }
    }

    /// Makes an analyzer that knows patterns of earlier runs.
    pub fn knowing<P: Into<Pattern>>(patterns: impl IntoIterator<Item = P>) -> Self {
        let mut analyzer = Self::default();
        analyzer.know(patterns);
        analyzer
    }

    /// Adds patterns of earlier runs: when one starts again, it is predicted from its second access
    /// on.
    pub fn know<P: Into<Pattern>>(&mut self, patterns: impl IntoIterator<Item = P>) {
        for pattern in patterns {
            match pattern.into() {
                Pattern::Walk(walk) => {
                    self.interleaved.learn(&walk);
                    self.grower.know(walk);
                }
                Pattern::Sequence(sequence) => self.steps.know(sequence),
                Pattern::Rows(rows) => {
                    self.grower.know(rows.row.clone());
                    self.rows.know(rows);
                }
                Pattern::Correlated(FollowedPlace { entry, followers }) => {
                    self.correlated.know(&entry, &followers)
                }
                Pattern::Contiguous(run) => self.contiguous.know(run),
            }
        }
    }

    /// Returns the patterns that were found, for a later run.
    pub fn patterns(&self) -> Vec<Pattern> {
        let sequences = self.steps.known().iter().cloned().chain(self.steps.current());
        let correlated = self.correlated.patterns().map(|(entry, followers)| {
            let (entry, followers) = (entry.clone(), followers.into_iter().cloned().collect());
            Pattern::Correlated(FollowedPlace { entry, followers })
        });
        let runs = self.contiguous.known().iter().cloned().chain(self.contiguous.current());
        let rows = self.rows.known().chain(self.rows.current());
        let walks = self.walks().map(Pattern::Walk).chain(rows.map(Pattern::Rows));
        // The most numerous kind is last, since a reader stops at its limit.
        let few = sequences.map(Pattern::Sequence).chain(runs.map(Pattern::Contiguous));
        walks.chain(few).chain(correlated).collect()
    }

    /// Shows the next access to the analyzer.
    pub fn push(&mut self, place: Place) -> AnalyzedAccess {
        let fingerprint = place.fingerprint();
        let ordered = self.ordered_had(&place);
        let was_strided = self.ordered == Some(PatternKind::Strided);
        let is_composed = self.push_step(&place, fingerprint);
        self.contiguous.push(self.at.as_ref().map(|(at, _)| at), &place);
        let is_interleaved = self.interleaved.push(&place, fingerprint, ordered.is_none());
        let predicted = match self.active {
            Some(PatternKind::Interleaved) => is_interleaved.then_some(PatternKind::Interleaved),
            Some(PatternKind::Correlated) => self.correlated_had(&place),
            _ => ordered,
        };
        if predicted == Some(PatternKind::Interleaved) {
            self.interleaved_count = self.interleaved_count.saturating_add(1);
        }
        if predicted.is_none_or(|kind| kind == PatternKind::Correlated) {
            self.correlated.push_known(&place, fingerprint);
        }
        match &mut self.at {
            Some((at, number)) => {
                at.clone_from(&place);
                *number = fingerprint;
            }
            None => self.at = Some((place.clone(), fingerprint)),
        }
        let grown = self.grower.push(place);
        self.is_composed =
            is_composed && (self.is_composed || was_strided && grown != GrownAccess::Expected);
        if grown != GrownAccess::Expected {
            self.rows.follow(&self.grower, self.at.as_ref().map(|(at, _)| at));
            if let GrownAccess::Ended(walk) = &grown {
                self.interleaved.learn(walk);
            }
        }
        self.record = self.record << 1 | u16::from(ordered.is_some());
        self.choose(ordered.is_some());
        AnalyzedAccess { predicted }
    }

    /// Returns the predicted next places; without end if the pattern has none.
    pub fn ahead(&self) -> impl Iterator<Item = Place> + '_ {
        let at = self.at.as_ref();
        let places: Option<Places<'_>> = self.active.map(|kind| match kind {
            PatternKind::Strided => {
                Box::new(self.grower.ahead().chain(self.rows.ahead())) as Places<'_>
            }
            PatternKind::ComposedRows => Box::new(self.rows.ahead()),
            PatternKind::Composed => Box::new(self.steps_ahead()),
            PatternKind::Contiguous => Box::new(self.contiguous.ahead(at.map(|(at, _)| at))),
            PatternKind::Interleaved => Box::new(self.interleaved.ahead()),
            PatternKind::Correlated => Box::new(self.followers().cloned()),
        });
        places.into_iter().flatten()
    }

    /// Returns the kind of pattern that predicts the next places, if any.
    pub fn serving(&self) -> Option<PatternKind> {
        self.active
    }

    /// Returns the structured patterns that ended and the current ones, oldest first.
    pub fn walks(&self) -> impl Iterator<Item = Walk> + '_ {
        // Ordered accesses may form interleaved walks by chance.
        let are_interleaved = self.interleaved_count >= INTERLEAVED_MIN;
        let interleaved = self.interleaved.walks().take_while(move |_| are_interleaved);
        self.grower.known().cloned().chain(interleaved).chain(self.grower.current())
    }

    /// Returns the repeating sequence of steps, if any.
    pub fn sequence(&self) -> Vec<Step> {
        self.steps.sequence().cloned().collect()
    }

    /// Returns the bytes of heap memory.
    pub fn heap_bytes(&self) -> usize {
        self.grower.heap_bytes()
            + self.steps.heap_bytes()
            + self.rows.heap_bytes()
            + self.contiguous.heap_bytes()
            + self.interleaved.heap_bytes()
            + self.correlated.heap_bytes()
            + self.at.as_ref().map_or(0, |(at, _)| at.heap_bytes())
    }

    /// Returns the kind of ordered pattern that predicts `place`, if it does.
    fn ordered_had(&self, place: &Place) -> Option<PatternKind> {
        let kind = self.ordered?;
        let (at, _) = self.at.as_ref()?;
        let is_next = match kind {
            PatternKind::Strided => self.grower.is_next(place),
            PatternKind::ComposedRows => self.rows.is_next(place),
            PatternKind::Composed => self.steps.is_next(at, place),
            _ => false,
        };
        if is_next { Some(kind) } else { self.had_size_apart(kind, at, place) }
    }

    /// Accepts a contiguous access of an unpredicted size, if the pattern also continues at the end
    /// of the last access.
    fn had_size_apart(&self, kind: PatternKind, at: &Place, place: &Place) -> Option<PatternKind> {
        let (axis, _) = self.contiguous.run()?;
        let goes_on = |place: &Place| place.axis_behind(at) == Some(axis);
        let next_goes_on = || match kind {
            PatternKind::Strided => self.grower.next_place().is_some_and(|next| goes_on(&next)),
            PatternKind::ComposedRows => {
                self.rows.ahead().next().is_some_and(|next| goes_on(&next))
            }
            PatternKind::Composed => self.steps_ahead().next().is_some_and(|next| goes_on(&next)),
            kind => kind == PatternKind::Contiguous,
        };
        (goes_on(place) && next_goes_on()).then_some(PatternKind::Contiguous)
    }

    /// Records the step to `place`; returns true if the repeating sequence predicted it.
    fn push_step(&mut self, place: &Place, fingerprint: PlaceFingerprint) -> bool {
        let step = self
            .at
            .as_ref()
            .and_then(|(at, number)| Some((at.step_to(place)?, fingerprint.wrapping_sub(*number))));
        if let Some((step, number)) = step {
            return self.steps.push(step, number, place);
        }
        self.steps.clear();
        self.steps.recall(place);
        false
    }

    /// Chooses the pattern that predicts the next place.
    fn choose(&mut self, was_right: bool) {
        if !was_right {
            self.waiting += 1;
            if self.waiting >= self.batch {
                self.waiting = 0;
                if let Some((at, _)) = &self.at {
                    self.steps.find(at);
                    self.rows.find();
                }
            }
        }
        self.ordered = self.ordered_kind();
        let is_interleaved = self.interleaved.is_served()
            && (self.ordered.is_none() || self.interleaved.score() > self.record.count_ones());
        self.active = if is_interleaved {
            Some(PatternKind::Interleaved)
        } else {
            self.ordered.or_else(|| self.followers().next().map(|_| PatternKind::Correlated))
        };
    }

    fn ordered_kind(&self) -> Option<PatternKind> {
        let is_recalled = self.steps.is_recalled() && !self.grower.is_recalled();
        if (self.is_composed || is_recalled || self.is_row_of_sequence()) && self.has_step() {
            Some(PatternKind::Composed)
        } else if self.grower.is_sure() && !self.is_run_across_rows() {
            Some(PatternKind::Strided)
        } else if self.rows.has_next() {
            Some(PatternKind::ComposedRows)
        } else if self.has_step() {
            Some(PatternKind::Composed)
        } else if self.contiguous.is_active() {
            Some(PatternKind::Contiguous)
        } else {
            None
        }
    }

    /// Returns true if the known rows cover less than two repetitions of a sequence, and so may be
    /// part of it.
    fn is_row_of_sequence(&self) -> bool {
        let period = self.steps.period().filter(|period| *period > 1);
        let rows = period.and_then(|_| self.grower.rows_count());
        rows.zip(period).is_some_and(|(rows, period)| rows <= 2 * period as u64)
    }

    /// Returns true if contiguous accesses continued past the assumed start of a row, and the
    /// predicted next place is not contiguous.
    fn is_run_across_rows(&self) -> bool {
        let run = self.contiguous.run().filter(|(_, count)| *count > self.grower.row_count());
        run.zip(self.at.as_ref()).is_some_and(|((axis, _), (at, _))| {
            self.grower.next_place().and_then(|next| next.axis_behind(at)) != Some(axis)
        })
    }

    fn has_step(&self) -> bool {
        self.steps.repeats() && self.steps_ahead().next().is_some()
    }

    fn steps_ahead(&self) -> impl Iterator<Item = Place> + '_ {
        let mut place = self.at.as_ref().map(|(at, _)| at.clone());
        self.steps.sequence().cycle().map_while(move |step| {
            place = place.as_ref().and_then(|place| place.after(step));
            place.clone()
        })
    }

    fn followers(&self) -> impl Iterator<Item = &Place> {
        let at = self.at.iter();
        at.flat_map(|(at, fingerprint)| self.correlated.followers_of(at, *fingerprint))
    }

    fn correlated_had(&self, place: &Place) -> Option<PatternKind> {
        self.followers().any(|follower| follower == place).then_some(PatternKind::Correlated)
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

    /// The slices of the hours of a day: a row of four places at each hour.
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
        assert_eq!(analyzer.push(at(20)).predicted, Some(PatternKind::Correlated));
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
