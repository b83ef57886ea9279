//! Contiguous accesses of any size (section 2.2.1): each starts at the end of the previous one.

use std::collections::VecDeque;

use crate::Place;
use crate::pattern::ContiguousAccesses;

/// Smallest number of accesses of a pattern.
const COUNT_MIN: u64 = 3;
/// Number of recent sizes; their median is the predicted size.
const SIZES: usize = 8;
/// Largest number of runs of earlier program runs.
const KNOWN_MAX: usize = 8;

/// Follows accesses along one axis of an array, or through a file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Contiguous {
    /// The axis, and the number of contiguous accesses along it.
    run: Option<(usize, u64)>,
    start: Option<Place>,
    /// Sizes of the last accesses, newest last.
    sizes: VecDeque<i64>,
    known: Vec<ContiguousAccesses>,
    /// True while a known run is assumed to repeat.
    is_recalled: bool,
}

impl Contiguous {
    /// Records the next access; returns true if it was predicted.
    pub(crate) fn push(&mut self, before: Option<&Place>, place: &Place) -> bool {
        let axis = before.and_then(|before| place.axis_behind(before));
        match (self.run, axis) {
            (Some((known, count)), Some(axis)) if known == axis => {
                let was_known = self.is_active();
                self.run = Some((axis, count.saturating_add(1)));
                self.keep_size(place, axis);
                return was_known;
            }
            (_, Some(axis)) => self.begin(before, place, axis),
            (_, None) => self.recall(place),
        }
        false
    }

    /// Returns the axis of the current pattern and its number of accesses, if there is one.
    pub(crate) fn run(&self) -> Option<(usize, u64)> {
        self.run.filter(|_| self.is_active())
    }

    /// Returns true if a pattern predicts the next place.
    pub(crate) fn is_active(&self) -> bool {
        self.is_recalled || self.run.is_some_and(|(_, count)| count >= COUNT_MIN)
    }

    /// Returns places of the median size from the end of the last access on.
    pub(crate) fn ahead<'a>(&self, at: Option<&'a Place>) -> impl Iterator<Item = Place> + use<'a> {
        let next = self.run.filter(|_| self.is_active()).zip(self.typical());
        let mut last = at.cloned();
        std::iter::from_fn(move || {
            let ((axis, _), size) = next?;
            last = behind(last.as_ref()?, axis, size);
            last.clone()
        })
    }

    /// Returns the current run.
    pub(crate) fn current(&self) -> Option<ContiguousAccesses> {
        let (axis, accesses) = self.run.filter(|(_, count)| *count >= COUNT_MIN)?;
        Some(ContiguousAccesses {
            start: self.start.clone()?,
            axis,
            size: self.typical()?,
            accesses,
        })
    }

    /// Returns the runs of earlier program runs.
    pub(crate) fn known(&self) -> &[ContiguousAccesses] {
        &self.known
    }

    /// Adds a run of an earlier program run, which is predicted when it starts again.
    pub(crate) fn know(&mut self, run: ContiguousAccesses) {
        self.known.retain(|known| known.start != run.start);
        self.known.truncate(KNOWN_MAX - 1);
        self.known.push(run);
    }

    /// Returns the median of the recent sizes.
    fn typical(&self) -> Option<i64> {
        let mut sizes = [0; SIZES];
        for (kept, size) in sizes.iter_mut().zip(&self.sizes) {
            *kept = *size;
        }
        let sizes = &mut sizes[..self.sizes.len().min(SIZES)];
        sizes.sort_unstable();
        sizes.get(sizes.len() / 2).copied().filter(|size| *size > 0)
    }

    fn begin(&mut self, before: Option<&Place>, place: &Place, axis: usize) {
        self.is_recalled = false;
        self.run = Some((axis, 2));
        self.start = before.cloned();
        self.sizes.clear();
        before.into_iter().chain([place]).for_each(|place| self.keep_size(place, axis));
    }

    fn recall(&mut self, place: &Place) {
        let fits = |run: &&ContiguousAccesses| begins_alike(&run.start, place, run.axis);
        let known = self.known.iter().rev().find(fits);
        self.is_recalled = known.is_some();
        self.sizes.clear();
        self.sizes.extend(known.map(|run| run.size));
        self.run = known.map(|run| (run.axis, 1));
        self.start = known.map(|_| place.clone());
    }

    fn keep_size(&mut self, place: &Place, axis: usize) {
        if self.sizes.len() >= SIZES {
            self.sizes.pop_front();
        }
        let bounds = place.bounds().nth(axis);
        self.sizes.extend(bounds.and_then(|(first, end)| end.checked_sub(first)));
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let starts = self.start.iter().chain(self.known.iter().map(|run| &run.start));
        let known = size_of::<ContiguousAccesses>() * self.known.capacity();
        8 * self.sizes.capacity() + known + starts.map(Place::heap_bytes).sum::<usize>()
    }
}

/// Returns the place of this size that follows `place`.
fn behind(place: &Place, axis: usize, size: i64) -> Option<Place> {
    let end = place.bounds().nth(axis)?.1;
    let bounds = (end, end.checked_add(size)?);
    Some(Place::new(
        place.bounds().enumerate().map(|(at, own)| if at == axis { bounds } else { own }),
    ))
}

/// Returns true if both start at the same position along the axis and are equal along all others.
fn begins_alike(one: &Place, other: &Place, axis: usize) -> bool {
    let mut axes = one.bounds().zip(other.bounds()).enumerate();
    one.rank() == other.rank()
        && axes.all(|(at, (one, other))| if at == axis { one.0 == other.0 } else { one == other })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Places along the second axis with these sizes.
    fn places(sizes: &[i64]) -> Vec<Place> {
        let ends = sizes.iter().scan(10, |end, size| {
            *end += size;
            Some((*end - size, *end))
        });
        ends.map(|bounds| Place::new([(0, 5), bounds, (7, 8)])).collect()
    }

    fn missed(found: &mut Contiguous, places: &[Place]) -> usize {
        let befores = std::iter::once(None).chain(places.iter().map(Some));
        befores.zip(places).filter(|(before, place)| !found.push(*before, place)).count()
    }

    #[test]
    fn places_of_any_size_are_predicted_after_three() {
        let (mut found, places) = (Contiguous::default(), places(&[4, 8, 4, 8, 9, 100, 7, 8, 8]));
        assert_eq!(missed(&mut found, &places), 3);
        let ahead: Vec<Place> = found.ahead(places.last()).take(2).collect();
        assert_eq!(ahead[0].bounds().nth(1), Some((166, 174)));
        assert_eq!(ahead[1].bounds().nth(1), Some((174, 182)));
    }

    #[test]
    fn a_gap_ends_the_run() {
        let (mut found, mut places) = (Contiguous::default(), places(&[4, 8, 4, 8, 9]));
        places.remove(3);
        missed(&mut found, &places);
        assert!(!found.is_active());
        assert_eq!(found.ahead(places.last()).next(), None);
    }

    #[test]
    fn a_known_run_misses_one_access() {
        let places = places(&[4, 8, 4, 8, 9]);
        let mut found = Contiguous::default();
        missed(&mut found, &places);
        let run = found.current().unwrap();
        assert_eq!((run.accesses, run.axis, run.size), (5, 1, 8));
        let mut loaded = Contiguous::default();
        loaded.know(run);
        assert_eq!(missed(&mut loaded, &places), 1);
    }

    #[test]
    fn places_of_no_size_predict_nothing_without_end() {
        let mut found = Contiguous::default();
        let places = places(&[4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        missed(&mut found, &places);
        assert_eq!(found.ahead(places.last()).next(), None);
    }

    proptest! {
        #[test]
        fn runs_are_those_of_the_definition(sizes in prop::collection::vec((0_i64..5, 0_i64..8), 0..40)) {
            let mut end = 0;
            let places: Vec<(i64, i64)> = sizes.iter().map(|(size, gap)| {
                let first = end + (gap - 6).max(0);
                end = first + size;
                (first, end)
            }).collect();
            let mut found = Contiguous::default();
            let places: Vec<Place> = places.into_iter().map(|bounds| Place::new([bounds])).collect();
            for (at, place) in places.iter().enumerate() {
                let touches = |at: usize| at > 0 && places[at].axis_behind(&places[at - 1]).is_some();
                let naive = at >= 3 && (at - 2..=at).all(touches);
                let before = at.checked_sub(1).map(|before| &places[before]);
                prop_assert_eq!(found.push(before, place), naive);
            }
        }
    }
}
