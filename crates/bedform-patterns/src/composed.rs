//! Sequences of steps that repeat, with the steps themselves, and those of earlier runs.

use std::collections::VecDeque;

use crate::fingerprint::Fingerprint;
use crate::pattern::Sequence;
use crate::repeats::{PERIOD_MAX, Repeats};
use crate::{Place, Step};

/// Sequences of earlier runs that are kept.
const KNOWN_MAX: usize = 8;

/// The steps so far, and the next ones where they repeat.
#[derive(Debug, Clone, Default)]
pub(crate) struct Composed {
    repeats: Repeats,
    /// The last steps, newest last.
    recent: VecDeque<Step>,
    /// Where the sequence that repeats began.
    start: Option<Place>,
    /// Steps since the sequence was found, modulo its length.
    under_way: usize,
    known: Vec<Sequence>,
    /// A known sequence that has begun again: which one, and the step that comes next.
    recalled: Option<(usize, usize)>,
    /// True once a step of it has come.
    is_recalled: bool,
}

impl Composed {
    /// The next step, which led to `place`: true if it was the one that comes next.
    pub(crate) fn push(&mut self, step: Step, fingerprint: Fingerprint, place: &Place) -> bool {
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

    /// Looks for a sequence that repeats up to `place`, if none is known.
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

    /// The steps that come next, as a sequence that repeats; none if none does.
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

    /// The sequence that repeats and where it began, if one does.
    pub(crate) fn current(&self) -> Option<Sequence> {
        self.repeats.period()?;
        Some(Sequence { start: self.start.clone()?, steps: self.sequence_from_start()? })
    }

    /// The sequences of earlier runs.
    pub(crate) fn known(&self) -> &[Sequence] {
        &self.known
    }

    /// A sequence of an earlier run: it is predicted where it begins again.
    pub(crate) fn know(&mut self, sequence: Sequence) {
        if !sequence.steps.is_empty() && sequence.steps.len() <= PERIOD_MAX {
            self.known.retain(|known| known.start != sequence.start);
            self.known.truncate(KNOWN_MAX - 1);
            self.known.push(sequence);
        }
    }

    /// True if the step that comes next leads from one place to another.
    pub(crate) fn is_next(&self, from: &Place, place: &Place) -> bool {
        self.sequence().next().is_some_and(|step| place.is_after(from, step))
    }

    /// True if a sequence is known to repeat.
    pub(crate) fn repeats(&self) -> bool {
        self.repeats.period().is_some() || self.recalled.is_some()
    }

    /// The steps of the sequence that was found to repeat.
    pub(crate) fn period(&self) -> Option<usize> {
        self.repeats.period()
    }

    /// True if a sequence of an earlier run has begun again and goes on.
    pub(crate) fn is_recalled(&self) -> bool {
        self.is_recalled
    }

    /// Forgets the steps, and where they led.
    pub(crate) fn clear(&mut self) {
        self.repeats.clear();
        self.recent.clear();
        (self.recalled, self.is_recalled) = (None, false);
    }

    /// Looks whether a known sequence begins at a place.
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

    /// Where the sequence began that so many of the last steps are, up to `place`.
    fn start_of(&self, place: &Place, period: usize, run: usize) -> Option<Place> {
        let back = |place: Place, steps| {
            self.recent.iter().rev().take(steps).try_fold(place, |place, step| place.before(step))
        };
        let once = back(place.clone(), period)?.step_to(place)?;
        back(place.before(&once.times((run / period) as u64)?)?, run % period)
    }

    /// The steps in their order from the start: the sequence may be under way.
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
