//! Correlation-based patterns: after a place that is read often, some others are read often, too.

use std::collections::{HashMap, VecDeque};

use crate::Place;

/// Times that a place is read before it is the entry of a pattern, and a follower belongs to it.
pub const OFTEN: u32 = 3;
/// Accesses after the entry that are looked at.
const NEXT: usize = 4;
/// Places that are counted; beyond, those that were read once are forgotten.
const PLACES_MAX: usize = 4096;
/// Followers of a place that are counted.
const FOLLOWERS_MAX: usize = 16;

/// What is known of a place.
#[derive(Debug, Clone, Default)]
struct Entry {
    count: u32,
    /// With their counts, in the order in which they came first.
    followers: Vec<(Place, u32)>,
}

/// Finds what follows places that are read often (section 2.3.4).
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
#[derive(Debug, Clone, Default)]
pub struct Correlated {
    entries: HashMap<Place, Entry>,
    recent: VecDeque<Place>,
}

impl Correlated {
    /// The next access.
    pub fn push(&mut self, place: &Place) {
        for before in &self.recent {
            if before == place {
                continue;
            }
            let Some(entry) = self.entries.get_mut(before) else { continue };
            let known = entry.followers.iter_mut().find(|(known, _)| known == place);
            if let Some((_, count)) = known {
                *count = count.saturating_add(1);
            } else if entry.followers.len() < FOLLOWERS_MAX {
                entry.followers.push((place.clone(), 1));
            }
        }
        if self.entries.len() >= PLACES_MAX && !self.entries.contains_key(place) {
            self.make_room();
        }
        let entry = self.entries.entry(place.clone()).or_default();
        entry.count = entry.count.saturating_add(1);
        if self.recent.len() >= NEXT {
            self.recent.pop_front();
        }
        self.recent.push_back(place.clone());
    }

    /// What is often read after a place that is read often.
    pub fn followers(&self, place: &Place) -> impl Iterator<Item = &Place> {
        let entry = self.entries.get(place).filter(|entry| entry.count >= OFTEN);
        let followers = entry.map_or(&[][..], |entry| &entry.followers);
        followers.iter().filter(|(_, count)| *count >= OFTEN).map(|(follower, _)| follower)
    }

    fn make_room(&mut self) {
        self.entries.retain(|_, entry| entry.count > 1);
        if self.entries.len() >= PLACES_MAX / 2 {
            self.entries.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_that_are_read_once_take_bounded_memory() {
        let mut found = Correlated::default();
        for offset in 0..20_000 {
            found.push(&Place::new([(offset, offset + 1)]));
        }
        assert!(found.entries.len() <= PLACES_MAX);
        let most = found.entries.values().map(|entry| entry.followers.len()).max();
        assert!(most <= Some(FOLLOWERS_MAX));
    }
}
