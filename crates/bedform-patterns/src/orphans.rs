//! The last accesses that nothing predicted, and three of them at equal steps.
//!
//! Walks that several workers take at the same time, or one walk whose order is disturbed, leave no two accesses that
//! follow each other at the step of a walk. But three places of each are soon among the last ones, in whatever order.
//! Fingerprints are linear, so the third of two is one number to look up: a search over [`KEPT`] places takes about
//! a hundred nanoseconds.

use crate::fingerprint::{self, Fingerprint};
use crate::{Place, Step};

/// Accesses that are kept.
const KEPT: usize = 128;
const SLOT_BITS: u32 = 10;

/// Three places at equal steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Three {
    pub(crate) first: Place,
    pub(crate) step: Step,
}

/// The last accesses, by their fingerprints.
#[derive(Debug, Clone, Default)]
pub(crate) struct Orphans {
    /// Two rings.
    fingerprints: Vec<Fingerprint>,
    places: Vec<Place>,
    /// Where the next one goes.
    end: usize,
    /// By slot, the index of the newest place, and one. A place whose slot another one takes is not found: one of
    /// the next ones is.
    slots: Vec<u8>,
}

impl Orphans {
    pub(crate) fn push(&mut self, place: &Place, fingerprint: Fingerprint) {
        self.slots.resize(1 << SLOT_BITS, 0);
        let at = self.end;
        match (self.fingerprints.get_mut(at), self.places.get_mut(at)) {
            (Some(number), Some(kept)) => {
                *number = fingerprint;
                kept.clone_from(place);
            }
            _ => {
                self.fingerprints.push(fingerprint);
                self.places.push(place.clone());
            }
        }
        self.slots[slot(fingerprint)] = u8::try_from(at + 1).unwrap_or(0);
        self.end = (at + 1) % KEPT;
    }

    #[inline]
    pub(crate) fn has(&self, fingerprint: Fingerprint) -> bool {
        self.index(fingerprint).is_some()
    }

    /// The three places with the shortest step that the newest one makes with others.
    pub(crate) fn three(&self, newest: &Place, fingerprint: Fingerprint) -> Option<Three> {
        let (mut shortest, mut found) = (u64::MAX, None);
        for (at, &other) in self.fingerprints.iter().enumerate() {
            let outer = other.wrapping_mul(2).wrapping_sub(fingerprint);
            let inner = fingerprint.wrapping_mul(2).wrapping_sub(other);
            if other == fingerprint || !self.has(outer) && !self.has(inner) {
                continue;
            }
            let distance = self.places[at].distance(newest);
            if distance < shortest {
                (shortest, found) = (distance, Some((at, outer, inner)));
            }
        }
        let (at, outer, inner) = found?;
        let place = &self.places[at];
        let behind = self.get(outer).and_then(|outer| three([outer, place, newest]));
        behind.or_else(|| three([place, newest, self.get(inner)?])).map(Three::forwards)
    }

    fn get(&self, fingerprint: Fingerprint) -> Option<&Place> {
        self.places.get(self.index(fingerprint)?)
    }

    #[inline]
    fn index(&self, fingerprint: Fingerprint) -> Option<usize> {
        let at = usize::from(self.slots.get(slot(fingerprint))?.checked_sub(1)?);
        (self.fingerprints.get(at) == Some(&fingerprint)).then_some(at)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let places = self.places.iter().map(Place::heap_bytes).sum::<usize>();
        let own = self.places.capacity() * size_of::<Place>() + 8 * self.fingerprints.capacity();
        own + self.slots.capacity() + places
    }
}

impl Three {
    /// The same three in the order in which arrays and files are read.
    fn forwards(self) -> Self {
        let first_move =
            self.step.moves().find_map(|(first, end)| [first, end].into_iter().find(|by| *by != 0));
        let third = self.step.times(2).and_then(|twice| self.first.after(&twice));
        match (first_move, third, self.step.back()) {
            (Some(..0), Some(first), Some(step)) => Self { first, step },
            _ => self,
        }
    }
}

fn three(places: [&Place; 3]) -> Option<Three> {
    let [first, second, third] = places;
    let step = first.step_to(second)?;
    (!step.is_none() && third.is_after(second, &step)).then(|| Three { first: first.clone(), step })
}

fn slot(fingerprint: Fingerprint) -> usize {
    fingerprint::slot(fingerprint, SLOT_BITS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(offset: i64) -> Place {
        Place::new([(offset, offset + 1)])
    }

    fn found(orphans: &Orphans, newest: i64) -> Option<(i64, i64)> {
        let three = orphans.three(&at(newest), at(newest).fingerprint())?;
        Some((three.first.bounds().next()?.0, three.step.moves().next()?.0))
    }

    fn all(offsets: &[i64]) -> Orphans {
        let mut orphans = Orphans::default();
        offsets.iter().for_each(|offset| orphans.push(&at(*offset), at(*offset).fingerprint()));
        orphans
    }

    #[test]
    fn three_places_at_equal_steps_are_found_in_any_order() {
        assert_eq!(found(&all(&[5, 100, 7, 31]), 9), Some((5, 2)));
        assert_eq!(found(&all(&[5, 100, 9, 31]), 7), Some((5, 2)));
        assert_eq!(found(&all(&[5, 100, 9, 31]), 8), None);
        // The shortest step.
        assert_eq!(found(&all(&[0, 10, 18, 19]), 20), Some((18, 1)));
    }

    #[test]
    fn the_same_place_again_is_no_step() {
        assert_eq!(found(&all(&[5, 5, 5]), 5), None);
    }

    #[test]
    fn places_that_are_long_ago_are_not_found() {
        let many: Vec<i64> =
            [5, 7].into_iter().chain((1..150).map(|at| 100 * at * at * at)).collect();
        assert_eq!(found(&all(&many), 9), None);
        assert!(all(&many).places.len() <= KEPT);
    }

    proptest! {
        #[test]
        fn what_is_found_is_there(offsets in prop::collection::vec(0_i64..40, 1..30)) {
            let (newest, before) = offsets.split_last().unwrap();
            if let Some((first, step)) = found(&all(before), *newest) {
                let three = [first, first + step, first + 2 * step];
                prop_assert!(step != 0 && three.contains(newest));
                prop_assert!(three.iter().all(|offset| offsets.contains(offset)));
            }
        }
    }
}
