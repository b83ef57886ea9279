//! Correlation-based patterns: after a frequent place, certain other places are frequent, too.

use std::collections::{HashMap, VecDeque};

use smallvec::SmallVec;

use crate::Place;
use crate::fingerprint::PlaceFingerprint;

/// Number of reads of a place that makes it the entry of a pattern, or a follower part of it.
pub const OFTEN: u32 = 3;
/// Number of accesses after an entry that count as followers.
pub(crate) const NEXT: usize = 4;
/// Largest number of counted places; beyond it, places that were read once are dropped.
const PLACES_MAX: usize = 4096;
/// Largest number of counted followers of a place.
pub(crate) const FOLLOWERS_MAX: usize = 16;

/// A place with its count and its followers.
#[derive(Debug, Clone)]
struct CountedPlace {
    place: Place,
    fingerprint: PlaceFingerprint,
    count: u32,
    /// Indexes of followers with their counts, in the order of first occurrence. A place that was
    /// read once has few.
    followers: SmallVec<[(u32, u32); NEXT]>,
}

/// Finds the places that follow frequent places (section 2.3.4).
///
/// ```
/// use bedform_patterns::{Correlated, Place};
///
/// let at = |offset| Place::bytes(offset, 1).unwrap();
/// let mut found = Correlated::default();
/// for offset in [10, 20, 30, 40, 50, 10, 70, 20, 30, 80, 10, 40, 20, 30] {
///     found.push(&at(offset));
/// }
/// assert_eq!(found.followers(&at(10)).collect::<Vec<_>>(), [&at(20), &at(30)]);
/// assert_eq!(found.followers(&at(20)).collect::<Vec<_>>(), [&at(30)]);
/// ```
#[derive(Debug, Clone)]
pub struct Correlated {
    /// Indexed by number.
    entries: Vec<CountedPlace>,
    numbers: HashMap<PlaceFingerprint, u32>,
    /// Numbers of the last places.
    recent: VecDeque<u32>,
    often: u32,
    next: usize,
}

impl Default for Correlated {
    fn default() -> Self {
        Self::new(OFTEN, NEXT)
    }
}

impl Correlated {
    /// Makes a finder with thresholds: the number of reads that makes a pattern, and the number of
    /// accesses after the entry that belong to it.
    pub fn new(often: u32, next: usize) -> Self {
        Self {
            entries: Vec::new(),
            numbers: HashMap::new(),
            recent: VecDeque::new(),
            often: often.max(1),
            next: next.min(FOLLOWERS_MAX),
        }
    }

    /// Records the next access.
    pub fn push(&mut self, place: &Place) {
        self.push_known(place, place.fingerprint());
    }

    pub(crate) fn push_known(&mut self, place: &Place, fingerprint: PlaceFingerprint) {
        let Some(number) = self.number(place, fingerprint) else { return };
        for before in self.recent.iter().filter(|before| **before != number) {
            self.entries[*before as usize].follow(number);
        }
        let entry = &mut self.entries[number as usize];
        entry.count = entry.count.saturating_add(1);
        if self.recent.len() >= self.next {
            self.recent.pop_front();
        }
        self.recent.push_back(number);
    }

    /// Returns the places that often follow a frequent place.
    pub fn followers(&self, place: &Place) -> impl Iterator<Item = &Place> {
        self.followers_of(place, place.fingerprint())
    }

    pub(crate) fn followers_of(
        &self,
        place: &Place,
        fingerprint: PlaceFingerprint,
    ) -> impl Iterator<Item = &Place> {
        let entry = self.numbers.get(&fingerprint).map(|number| &self.entries[*number as usize]);
        let entry = entry.filter(|entry| entry.count >= self.often && entry.place == *place);
        self.often_after(entry)
    }

    /// Returns all entries with their followers.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = (&Place, Vec<&Place>)> {
        let entries = self.entries.iter().filter(|entry| entry.count >= self.often);
        let all =
            entries.map(|entry| (&entry.place, self.often_after(Some(entry)).collect::<Vec<_>>()));
        all.filter(|(_, followers)| !followers.is_empty())
    }

    /// Adds a pattern of an earlier run.
    pub(crate) fn know(&mut self, place: &Place, followers: &[Place]) {
        let mut number = |place: &Place| {
            let number = self.number(place, place.fingerprint())?;
            let entry = &mut self.entries[number as usize];
            entry.count = entry.count.max(self.often);
            Some(number)
        };
        let Some(entry) = number(place) else { return };
        let followers: Vec<u32> = followers.iter().filter_map(number).collect();
        // Making room for followers may have removed the entry.
        let Some(entry) =
            self.entries.get_mut(entry as usize).filter(|entry| entry.place == *place)
        else {
            return;
        };
        for follower in followers {
            (0..self.often).for_each(|_| entry.follow(follower));
        }
    }

    fn often_after<'a>(
        &'a self,
        entry: Option<&'a CountedPlace>,
    ) -> impl Iterator<Item = &'a Place> {
        let followers = entry.map_or(&[][..], |entry| &entry.followers);
        let often = followers.iter().filter(|(_, count)| *count >= self.often);
        often.filter_map(|(number, _)| Some(&self.entries.get(*number as usize)?.place))
    }

    /// Returns the number of a place, added if new; `None` if another place has its fingerprint.
    fn number(&mut self, place: &Place, fingerprint: PlaceFingerprint) -> Option<u32> {
        if let Some(&number) = self.numbers.get(&fingerprint) {
            return (self.entries[number as usize].place == *place).then_some(number);
        }
        if self.entries.len() >= PLACES_MAX {
            self.make_room();
        }
        let number = u32::try_from(self.entries.len()).ok()?;
        let (place, followers) = (place.clone(), SmallVec::new());
        self.entries.push(CountedPlace { place, fingerprint, count: 0, followers });
        self.numbers.insert(fingerprint, number);
        Some(number)
    }

    /// Drops the places that were read once, or all places if that leaves too many.
    fn make_room(&mut self) {
        let kept = self.entries.iter().filter(|entry| entry.count > 1).count();
        let is_kept = |entry: &CountedPlace| entry.count > 1 && kept < PLACES_MAX / 2;
        let mut numbers = 0..;
        let number = |entry| if is_kept(entry) { numbers.next() } else { None };
        let new: Vec<Option<u32>> = self.entries.iter().map(number).collect();
        self.renumber(&new);
    }

    fn renumber(&mut self, new: &[Option<u32>]) {
        let renumbered = |number: u32| new.get(number as usize).copied().flatten();
        let mut numbers = new.iter();
        self.entries.retain(|_| numbers.next().is_some_and(Option::is_some));
        for entry in &mut self.entries {
            entry.followers.retain(|(number, _)| {
                renumbered(*number).is_some_and(|new| {
                    *number = new;
                    true
                })
            });
        }
        self.recent = self.recent.iter().filter_map(|number| renumbered(*number)).collect();
        let all = self.entries.iter().zip(0..);
        self.numbers = all.map(|(entry, number)| (entry.fingerprint, number)).collect();
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let spilled = |entry: &CountedPlace| {
            let followers = &entry.followers;
            entry.place.heap_bytes()
                + if followers.spilled() { 8 * followers.capacity() } else { 0 }
        };
        let table = self.numbers.capacity() * (size_of::<(PlaceFingerprint, u32)>() + 1);
        size_of::<CountedPlace>() * self.entries.capacity()
            + self.entries.iter().map(spilled).sum::<usize>()
            + 8 * table / 7
            + 4 * self.recent.capacity()
    }
}

impl CountedPlace {
    fn follow(&mut self, number: u32) {
        let known = self.followers.iter_mut().find(|(known, _)| *known == number);
        if let Some((_, count)) = known {
            *count = count.saturating_add(1);
        } else if self.followers.len() < FOLLOWERS_MAX {
            self.followers.push((number, 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(offset: i64) -> Place {
        Place::new([(offset, offset + 1)])
    }

    #[test]
    fn places_that_are_read_once_take_bounded_memory() {
        let mut found = Correlated::default();
        for offset in 0..20_000 {
            found.push(&at(offset));
        }
        assert!(found.entries.len() <= PLACES_MAX);
        let most = found.entries.iter().map(|entry| entry.followers.len()).max();
        assert!(most <= Some(FOLLOWERS_MAX));
        assert!(found.heap_bytes() < 1 << 20, "{}", found.heap_bytes());
    }

    #[test]
    fn places_that_are_read_often_are_kept_where_room_is_made() {
        let mut found = Correlated::default();
        for offset in 0..20_000 {
            found.push(&at(1000 + offset));
            if offset % 100 == 0 {
                found.push(&at(1));
                found.push(&at(2));
            }
        }
        assert_eq!(found.followers(&at(1)).collect::<Vec<_>>(), [&at(2)]);
    }

    proptest! {
        #[test]
        fn followers_are_those_of_the_definition(offsets in prop::collection::vec(0_i64..7, 0..120)) {
            let mut found = Correlated::default();
            offsets.iter().for_each(|offset| found.push(&at(*offset)));
            for entry in 0..7 {
                let reads = (0..offsets.len()).filter(|read| offsets[*read] == entry);
                let mut counts = [0; 7];
                for read in reads.clone() {
                    let next = offsets.iter().skip(read + 1).take(NEXT);
                    next.filter(|next| **next != entry).for_each(|next| counts[usize::try_from(*next).unwrap()] += 1);
                }
                let is_entry = reads.count() >= OFTEN as usize;
                let mut expected: Vec<Place> = (0..7)
                    .filter(|next| is_entry && counts[usize::try_from(*next).unwrap()] >= OFTEN)
                    .map(at)
                    .collect();
                let mut followers: Vec<Place> = found.followers(&at(entry)).cloned().collect();
                expected.sort();
                followers.sort();
                prop_assert_eq!(followers, expected);
            }
        }
    }
}
