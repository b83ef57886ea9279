//! Repeating sequences of steps, with the steps themselves, and sequences of earlier runs.

use std::collections::VecDeque;

use crate::fingerprint::PlaceFingerprint;
use crate::pattern::Sequence;
use crate::repeats::{PERIOD_MAX, Repeats};
use crate::{Place, Step};

/// Largest number of sequences of earlier runs.
const KNOWN_MAX: usize = 8;

/// The recent steps, and the predicted steps if they repeat.
#[derive(Debug, Clone, Default)]
pub(crate) struct Composed {
    repeats: Repeats,
    /// The last steps, newest last.
    recent: VecDeque<Step>,
    /// First place of the repeating sequence.
    start: Option<Place>,
    /// Number of steps since the sequence was found, modulo its length.
    under_way: usize,
    known: Vec<Sequence>,
    /// A known sequence that has started again: its index, and the index of the next step.
    recalled: Option<(usize, usize)>,
    /// True once a step of the recalled sequence has come.
    is_recalled: bool,
}

impl Composed {
    /// Records the next step, which led to `place`; returns true if it was predicted.
    pub(crate) fn push(
        &mut self,
        step: Step,
        fingerprint: PlaceFingerprint,
        place: &Place,
    ) -> bool {
        let was_recalled = self.go_on(&step);
        let is_right = self.repeats.record(fingerprint) || was_recalled;
        if let Some(period) = self.repeats.period() {
            self.under_way = (self.under_way + 1) % period;
        }
        if self.recent.len() >= PERIOD_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(step);
        if !is_right {
            self.recall(place);
        }
        is_right
    }

    /// Searches for a sequence that repeats up to `place`, unless one is known.
    pub(crate) fn find(&mut self, place: &Place) {
        if self.repeats.period().is_some() {
            return;
        }
        self.repeats.find();
        if let Some(period) = self.repeats.period() {
            let run = self.repeats.run();
            self.start = self.start_of(place, period, run);
            self.under_way = run % period;
        }
    }

    /// Returns the predicted steps, as one repetition of the sequence; empty if nothing repeats.
    pub(crate) fn sequence(&self) -> impl Iterator<Item = &Step> + Clone {
        let period = self.repeats.period();
        let known = match self.recalled {
            Some((which, next)) if period.is_none() => {
                self.known.get(which).map(|known| known.steps.split_at(next))
            }
            _ => None,
        };
        let (before, behind) = known.unwrap_or_default();
        let found = self.recent.iter().skip(self.recent.len() - period.unwrap_or(0));
        found.chain(behind).chain(before)
    }

    /// Returns the repeating sequence with its first place, if any.
    pub(crate) fn current(&self) -> Option<Sequence> {
        self.repeats.period()?;
        Some(Sequence { start: self.start.clone()?, steps: self.sequence_from_start()? })
    }

    /// Returns the sequences of earlier runs.
    pub(crate) fn known(&self) -> &[Sequence] {
        &self.known
    }

    /// Adds a sequence of an earlier run, which is predicted when it starts again.
    pub(crate) fn know(&mut self, sequence: Sequence) {
        if !sequence.steps.is_empty() && sequence.steps.len() <= PERIOD_MAX {
            self.known.retain(|known| known.start != sequence.start);
            self.known.truncate(KNOWN_MAX - 1);
            self.known.push(sequence);
        }
    }

    /// Returns true if the predicted step leads from `from` to `place`.
    pub(crate) fn is_next(&self, from: &Place, place: &Place) -> bool {
        self.sequence().next().is_some_and(|step| place.is_after(from, step))
    }

    /// Returns true if a sequence repeats or was recalled.
    pub(crate) fn repeats(&self) -> bool {
        self.repeats.period().is_some() || self.recalled.is_some()
    }

    /// Returns the length of the sequence that was found to repeat, in steps.
    pub(crate) fn period(&self) -> Option<usize> {
        self.repeats.period()
    }

    /// Returns true if a sequence of an earlier run has started again and continues.
    pub(crate) fn is_recalled(&self) -> bool {
        self.is_recalled
    }

    /// Forgets all steps.
    pub(crate) fn clear(&mut self) {
        self.repeats.clear();
        self.recent.clear();
        (self.recalled, self.is_recalled) = (None, false);
    }

    /// Checks if a known sequence starts at `place`.
    pub(crate) fn recall(&mut self, place: &Place) {
        let known = self.known.iter().rposition(|known| known.start == *place);
        self.recalled = known.map(|which| (which, 0));
        self.is_recalled = false;
    }

    fn go_on(&mut self, step: &Step) -> bool {
        let Some((which, next)) = self.recalled.take() else { return false };
        let Some(steps) = self.known.get(which).map(|known| &known.steps) else { return false };
        let is_right = steps.get(next) == Some(step);
        if is_right {
            self.recalled = Some((which, (next + 1) % steps.len()));
        }
        self.is_recalled = is_right;
        is_right
    }

    /// Returns the start of the sequence, `run` steps before `place`; `period` steps are one
    /// repetition.
    fn start_of(&self, place: &Place, period: usize, run: usize) -> Option<Place> {
        let back = |place: Place, steps| {
            self.recent.iter().rev().take(steps).try_fold(place, |place, step| place.before(step))
        };
        let once = back(place.clone(), period)?.step_to(place)?;
        back(place.before(&once.times((run / period) as u64)?)?, run % period)
    }

    /// Returns the steps in their order from the start; the last access may be within the sequence.
    fn sequence_from_start(&self) -> Option<Vec<Step>> {
        let mut steps: Vec<Step> = self.sequence().cloned().collect();
        (self.under_way <= steps.len()).then(|| steps.rotate_right(self.under_way))?;
        Some(steps)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let steps = self.recent.iter().chain(self.known.iter().flat_map(|known| &known.steps));
        let own = size_of::<Step>() * self.recent.capacity();
        let known = self.known.iter().map(|known| size_of::<Step>() * known.steps.capacity());
        own + known.sum::<usize>()
            + steps.map(Step::heap_bytes).sum::<usize>()
            + self.repeats.heap_bytes()
    }
}
