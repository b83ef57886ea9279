//! The recent accesses, and arithmetic progressions of three among them.
//!
//! If several workers take walks concurrently, or disturb the order of one walk, consecutive
//! accesses are not at the step of a walk. But three places of each walk are soon among the recent
//! ones, in any order. Fingerprints are linear, so two places determine the fingerprint of the
//! third. A search over [`KEPT`] places takes a few hundred nanoseconds.

use crate::fingerprint::{self, PlaceFingerprint};
use crate::{Place, Step};

/// Number of recent accesses.
const KEPT: usize = 128;
const SLOT_BITS: u32 = 10;

/// Three places at equal steps: an arithmetic progression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Progression {
    pub(crate) first: Place,
    pub(crate) step: Step,
}

/// The recent accesses, indexed by fingerprint.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecentAccesses {
    places: Vec<Place>,
    /// Index at which the next one is stored.
    end: usize,
    table: Option<Box<RecentTable>>,
}

/// Fingerprints by index, and indexes by slot. The sizes are fixed because a search consists almost
/// entirely of lookups.
#[derive(Debug, Clone)]
struct RecentTable {
    fingerprints: [PlaceFingerprint; KEPT],
    /// For each slot, the index of its newest place. An older place in the same slot is not found;
    /// a later place of its walk is.
    slots: [u8; 1 << SLOT_BITS],
}

impl RecentTable {
    #[inline]
    fn index(&self, fingerprint: PlaceFingerprint) -> Option<usize> {
        let at = usize::from(self.slots[slot(fingerprint) % self.slots.len()]) % KEPT;
        (self.fingerprints[at] == fingerprint).then_some(at)
    }
}

impl RecentAccesses {
    pub(crate) fn push(&mut self, place: &Place, fingerprint: PlaceFingerprint) {
        let at = self.end;
        match self.places.get_mut(at) {
            Some(kept) => kept.clone_from(place),
            None => self.places.push(place.clone()),
        }
        let table = self.table.get_or_insert_with(|| {
            Box::new(RecentTable { fingerprints: [0; KEPT], slots: [0; 1 << SLOT_BITS] })
        });
        table.fingerprints[at] = fingerprint;
        table.slots[slot(fingerprint)] = u8::try_from(at).unwrap_or(0);
        self.end = (at + 1) % KEPT;
    }

    pub(crate) fn has(&self, fingerprint: PlaceFingerprint) -> bool {
        self.get(fingerprint).is_some()
    }

    /// Returns the progression with the shortest step that contains the newest place.
    pub(crate) fn progression(
        &self,
        newest: &Place,
        fingerprint: PlaceFingerprint,
    ) -> Option<Progression> {
        let table = self.table.as_ref()?;
        let (mut shortest, mut found) = (u64::MAX, None);
        for (place, &other) in self.places.iter().zip(&table.fingerprints) {
            let by = fingerprint.wrapping_sub(other);
            let (outer, inner) = (other.wrapping_sub(by), fingerprint.wrapping_add(by));
            if table.index(outer).is_none() && table.index(inner).is_none() || by == 0 {
                continue;
            }
            let distance = place.distance(newest);
            if distance < shortest {
                (shortest, found) = (distance, Some((place, outer, inner)));
            }
        }
        let (place, outer, inner) = found?;
        let behind = self.get(outer).and_then(|outer| progression([outer, place, newest]));
        behind.or_else(|| progression([place, newest, self.get(inner)?])).map(Progression::forwards)
    }

    fn get(&self, fingerprint: PlaceFingerprint) -> Option<&Place> {
        self.places.get(self.table.as_ref()?.index(fingerprint)?)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let places = self.places.iter().map(Place::heap_bytes).sum::<usize>();
        let table = self.table.as_ref().map_or(0, |_| size_of::<RecentTable>());
        places + self.places.capacity() * size_of::<Place>() + table
    }
}

impl Progression {
    /// Returns the same places in the order in which arrays and files are stored.
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

fn progression(places: [&Place; 3]) -> Option<Progression> {
    let [first, second, third] = places;
    let step = first.step_to(second)?;
    (!step.is_none() && third.is_after(second, &step))
        .then(|| Progression { first: first.clone(), step })
}

fn slot(fingerprint: PlaceFingerprint) -> usize {
    fingerprint::slot(fingerprint, SLOT_BITS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(offset: i64) -> Place {
        Place::new([(offset, offset + 1)])
    }

    fn found(recent: &RecentAccesses, newest: i64) -> Option<(i64, i64)> {
        let progression = recent.progression(&at(newest), at(newest).fingerprint())?;
        Some((progression.first.bounds().next()?.0, progression.step.moves().next()?.0))
    }

    fn all(offsets: &[i64]) -> RecentAccesses {
        let mut recent = RecentAccesses::default();
        offsets.iter().for_each(|offset| recent.push(&at(*offset), at(*offset).fingerprint()));
        recent
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
                let progression = [first, first + step, first + 2 * step];
                prop_assert!(step != 0 && progression.contains(newest));
                prop_assert!(progression.iter().all(|offset| offsets.contains(offset)));
            }
        }
    }
}
