//! A walker: one of several concurrent walks, with a possibly disturbed order.

use crate::fingerprint::{Divider, PlaceFingerprint};
use crate::recent::{Progression, RecentAccesses};
use crate::{Level, Place, Step, Walk};

/// Number of places, from the first unseen one on, that may come out of order.
pub(crate) const WINDOW: u64 = 64;
/// Number of places past the end that may still belong to the walk.
const BEYOND: u64 = 8;
/// Largest average number of accesses between places of a walk: with 16 workers, each makes every
/// sixteenth. Random accesses to few places eventually cover a row, too, but less often.
const GAP_MAX: u64 = 32;
/// Number of accesses that a walk waits for its next place in any case.
const PATIENCE: u64 = 24;
/// Number of accesses without a place after which a walk has ended.
const STALE: u64 = 128;
/// Number of places that confirm a walk.
pub(crate) const TRUE: u64 = 8;
/// Number of places seen after an unseen one at which the unseen one counts as left out.
const HOLE_MAX: u32 = 40;

/// Places at equal steps from a start, numbered from 0.
#[derive(Debug, Clone)]
pub(crate) struct Walker {
    pub(crate) start: Place,
    pub(crate) start_fingerprint: PlaceFingerprint,
    pub(crate) step: Step,
    pub(crate) step_fingerprint: PlaceFingerprint,
    divider: Divider,
    /// The first unseen number.
    pub(crate) next: u64,
    /// One bit for each number from there on that was seen; the lowest is never set.
    seen: u64,
    /// Length of the walk, if rows have a known length.
    pub(crate) length: Option<u64>,
    /// The highest seen number plus one.
    pub(crate) reached: u64,
    /// Number of accesses that were the very next place.
    pub(crate) right: u32,
    /// True if the walk makes predictions.
    pub(crate) is_served: bool,
    /// True if it was started before any of its places was read.
    pub(crate) is_claim: bool,
    /// True once the walk that follows its end was started.
    pub(crate) has_successor: bool,
    /// Time of its start, and of its last access.
    born: u64,
    pub(crate) at: u64,
    /// Number of its accesses.
    hits: u64,
    /// Time until which it waits for the next access.
    pub(crate) until: u64,
}

impl Walker {
    /// Makes a walker; `None` for steps that cannot be followed.
    pub(crate) fn new(start: Place, step: Step, at: u64) -> Option<Self> {
        let step_fingerprint = step.fingerprint();
        Some(Self {
            start_fingerprint: start.fingerprint(),
            divider: Divider::new(step_fingerprint)?,
            start,
            step,
            step_fingerprint,
            next: 0,
            seen: 0,
            length: None,
            reached: 0,
            right: 0,
            is_served: false,
            is_claim: false,
            has_successor: false,
            born: at,
            at,
            hits: 0,
            until: at + STALE,
        })
    }

    /// Makes a walker through a progression, and through the recent places before and after it.
    pub(crate) fn through(
        progression: Progression,
        recent: &RecentAccesses,
        at: u64,
    ) -> Option<Self> {
        let Progression { mut first, step } = progression;
        let (mut start, by) = (first.fingerprint(), step.fingerprint());
        while recent.has(start.wrapping_sub(by)) {
            let Some(before) = first.before(&step) else { break };
            (first, start) = (before, start.wrapping_sub(by));
        }
        let mut walker = Self::new(first, step, at)?;
        walker.reached = 3;
        walker.mark(|fingerprint| recent.has(fingerprint));
        Some(walker)
    }

    /// Marks the next places that were already seen.
    pub(crate) fn mark(&mut self, was_seen: impl Fn(PlaceFingerprint) -> bool) {
        let mut fingerprint = self.fingerprint(self.next);
        let numbers = self.length.map_or(WINDOW, |length| length.saturating_sub(self.next));
        for offset in 0..WINDOW.min(numbers) {
            if was_seen(fingerprint) {
                self.seen |= 1 << offset;
                self.reached = self.reached.max(self.next + offset + 1);
            }
            fingerprint = fingerprint.wrapping_add(self.step_fingerprint);
        }
        self.pass();
    }

    /// Returns the number of a place on the walk; negative before the start.
    #[inline]
    pub(crate) fn number(&self, fingerprint: PlaceFingerprint) -> Option<i64> {
        self.divider.steps(fingerprint.wrapping_sub(self.start_fingerprint))
    }

    /// Returns true if the places of another walk lie on this one, near its seen places.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let is_near = |number: i64| {
            number >= -WINDOW.cast_signed()
                && number <= self.reached.saturating_add(WINDOW).cast_signed()
        };
        let is_multiple = |times: i64| times != 0 && times.unsigned_abs() <= WINDOW;
        self.number(other.start_fingerprint).is_some_and(is_near)
            && self.divider.steps(other.step_fingerprint).is_some_and(is_multiple)
    }

    /// Returns the distance of a place from the next number, if the place may come.
    #[inline]
    pub(crate) fn offset(&self, place: &Place, fingerprint: PlaceFingerprint) -> Option<u64> {
        let signed = self.number(fingerprint)?;
        let number = u64::try_from(signed).ok()?;
        let offset = number.checked_sub(self.next).filter(|offset| *offset < WINDOW)?;
        let may_come =
            self.seen & (1 << offset) == 0 && self.length.is_none_or(|length| number < length);
        (may_come && place.is_steps_after(&self.start, &self.step, signed)).then_some(offset)
    }

    /// Records a place at this distance from the next number.
    pub(crate) fn see(&mut self, offset: u64, at: u64) {
        self.hit(at);
        self.seen |= 1_u64.checked_shl(u32::try_from(offset).unwrap_or(u32::MAX)).unwrap_or(0);
        self.reached = self.reached.max(self.next.saturating_add(offset).saturating_add(1));
        if offset == 0 {
            self.right = self.right.saturating_add(1);
        }
        if self.seen.count_ones() > HOLE_MAX {
            self.seen |= 1;
        }
        self.pass();
    }

    /// Extends the walk to a place `by` numbers before its start; the numbers between may still
    /// come.
    pub(crate) fn begin_before(&mut self, place: &Place, by: u64, at: u64) {
        self.start.clone_from(place);
        self.start_fingerprint = place.fingerprint();
        self.reached = self.reached.saturating_add(by);
        self.hit(at);
        let behind = by.saturating_add(self.next);
        let is_kept = behind < WINDOW
            && self.seen.leading_zeros() >= u32::try_from(behind).unwrap_or(u32::MAX);
        if is_kept {
            let passed = (1 << self.next) - 1;
            self.seen = self.seen << behind | passed << by | 1;
            self.next = 0;
            self.pass();
        } else {
            self.next = behind;
        }
    }

    /// Removes the assumed length of the walk if a place lies just past its end.
    pub(crate) fn go_beyond(
        &mut self,
        place: &Place,
        fingerprint: PlaceFingerprint,
        at: u64,
    ) -> bool {
        let beyond = self.length.and_then(|length| {
            let number = self.number(fingerprint)?;
            let by = u64::try_from(number).ok()?.checked_sub(length)?;
            (by < BEYOND && place.is_steps_after(&self.start, &self.step, number)).then_some(number)
        });
        let Some(offset) = beyond.and_then(|number| number.unsigned_abs().checked_sub(self.next))
        else {
            return false;
        };
        self.length = None;
        if offset < WINDOW {
            self.see(offset, at);
        }
        true
    }

    /// Records an access. The next one is expected within eight times the average gap between
    /// accesses.
    fn hit(&mut self, at: u64) {
        (self.at, self.hits) = (at, self.hits + 1);
        self.until = at + STALE.min(PATIENCE + 8 * ((at - self.born) / self.hits));
    }

    /// Returns true if enough places have come to confirm the walk.
    pub(crate) fn is_true(&self) -> bool {
        self.is_served && self.hits >= TRUE && u64::from(self.right) >= TRUE / 2
    }

    /// Returns true once all numbers were seen.
    pub(crate) fn is_over(&self) -> bool {
        self.length.is_some_and(|length| self.next >= length)
    }

    /// Returns true if `doubt` very next places have come, or enough places close to each other to
    /// exclude chance.
    pub(crate) fn shows(&self, doubt: u32) -> bool {
        let is_dense =
            3 * u64::from(self.seen.count_ones()) >= self.reached.saturating_sub(self.next);
        let is_often = self.at - self.born <= GAP_MAX * (self.hits + 1);
        is_often && (self.right >= doubt || is_dense && self.hits >= 4 + 2 * u64::from(doubt))
    }

    /// Returns the number of unseen places, if the length is known.
    pub(crate) fn left(&self) -> Option<u64> {
        Some(
            self.length?
                .saturating_sub(self.next)
                .saturating_sub(u64::from(self.seen.count_ones())),
        )
    }

    pub(crate) fn place(&self, number: u64) -> Option<Place> {
        self.start.after(&self.step.times(number)?)
    }

    /// Returns the next places, without those already seen.
    pub(crate) fn ahead(&self) -> impl Iterator<Item = Place> + '_ {
        let numbers = self.next..self.length.unwrap_or(u64::MAX);
        let is_seen = |number: &u64| {
            let offset = number - self.next;
            offset < WINDOW && self.seen & (1 << offset) != 0
        };
        numbers.filter(move |number| !is_seen(number)).map_while(|number| self.place(number))
    }

    /// Returns the part of the walk that was seen.
    pub(crate) fn walk(&self) -> Option<Walk> {
        let level = Level { step: self.step.clone(), count: self.reached };
        (self.reached >= 3).then(|| Walk { start: self.start.clone(), levels: vec![level] })
    }

    fn fingerprint(&self, number: u64) -> PlaceFingerprint {
        self.start_fingerprint.wrapping_add(self.step_fingerprint.wrapping_mul(number))
    }

    /// Advances past the seen places.
    fn pass(&mut self) {
        let passed = self.seen.trailing_ones();
        self.next = self.next.saturating_add(u64::from(passed));
        self.seen = self.seen.checked_shr(passed).unwrap_or(0);
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.start.heap_bytes() + self.step.heap_bytes()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(offset: i64) -> Place {
        Place::new([(offset, offset + 1)])
    }

    fn walker() -> Walker {
        Walker::new(at(100), at(0).step_to(&at(3)).unwrap(), 0).unwrap()
    }

    proptest! {
        #[test]
        fn of_a_disturbed_walk_what_was_not_seen_is_ahead(
            late in prop::collection::vec(0_u64..32, 60),
        ) {
            let mut numbers: Vec<u64> = (0..60).collect();
            numbers.sort_by_key(|number| number + late[usize::try_from(*number).unwrap()]);
            let (mut walker, mut left) = (walker(), (0..60).collect::<Vec<u64>>());
            walker.length = Some(60);
            for number in numbers {
                let place = at(100 + 3 * i64::try_from(number).unwrap());
                let offset = walker.offset(&place, place.fingerprint());
                prop_assert!(offset.is_some());
                walker.see(offset.unwrap(), 1);
                left.retain(|other| *other != number);
                let ahead = left.iter().map(|number| walker.place(*number).unwrap());
                prop_assert!(walker.ahead().eq(ahead));
                prop_assert_eq!(walker.offset(&place, place.fingerprint()), None);
            }
        }
    }

    #[test]
    fn a_place_that_is_left_out_does_not_stop_the_walk() {
        let mut walker = walker();
        for number in 1..500 {
            let place = walker.place(number).unwrap();
            let offset = walker.offset(&place, place.fingerprint());
            walker.see(offset.unwrap(), 1);
        }
        assert_eq!(walker.next, 500);
    }
}
