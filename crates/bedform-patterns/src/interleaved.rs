//! Detects walks that several workers take concurrently, and walks whose order workers disturb.
//!
//! Dask and MPI workers walk the tiles of an array together. The accesses to the array come in
//! raster order with permuted neighbours, or as several arbitrarily interleaved walks. In neither
//! case are consecutive accesses at the step of a walk. So an unpredicted access is compared with
//! the recent ones: three at equal steps, regardless of the accesses between them, start a
//! [`Walker`]. A walker expects the next places of its walk, and skips places that came early. If
//! the step of a walker is a multiple of another's on the same line, the other one replaces it.
//!
//! Random accesses to a small array contain many meaningless progressions. So a walker makes
//! predictions only after its very next places have come, as many as [`Interleaved::doubt`], or
//! many close to each other. Each predicted walk that fails raises the doubt, each that continues
//! lowers it. While searches fail, they become rarer.
//!
//! Rows of equal length teach [`RowShapes`] their length: then the next row is predicted before its
//! first place is read.

use std::cmp::Reverse;

use crate::fingerprint::{self, PlaceFingerprint};
use crate::recent::RecentAccesses;
use crate::shapes::{NextRow, RowShapes};
use crate::walker::{TRUE, WINDOW, Walker};
use crate::{Place, Walk};

/// Largest number of concurrent walkers: 16 of as many workers, their next rows, and some that may
/// fail.
const WALKERS_MAX: usize = 40;
/// Largest number of walkers without predictions.
const UNSERVED_MAX: usize = 16;
/// Number of accesses for which it is remembered that a place was read.
const LATELY: u64 = 256;
/// Smallest number of places ahead before the next row is started.
const AHEAD: u64 = 3 * WINDOW / 4;
/// Number of places that make a row, even without predictions.
const ROW_MIN: u64 = 5;
const DOUBT_MIN: u32 = 1;
const DOUBT_MAX: u32 = 16;
/// Doubt from which on learned shapes are not trusted.
const DOUBT: u32 = 4;
/// Number of accesses of an ordered walk from which on its step is learned.
const LEARNED: u64 = 16;
/// Number of accesses without a new walk after which only one in `RARELY` is searched.
const FRUITLESS: u64 = 512;
const RARELY: u32 = 8;
/// Number of places before the start of a walk that may still come.
const BEFORE: i64 = 32;
/// Number of slots; a power of two.
const LATELY_SEEN: u16 = 1024;

/// All current walks.
#[derive(Debug, Clone)]
pub(crate) struct Interleaved {
    time: u64,
    recent: RecentAccesses,
    walkers: Vec<Walker>,
    shapes: RowShapes,
    /// Number of very next places that must have come before a new walk makes predictions.
    doubt: u32,
    /// Recently read places by slot, with their time; recorded only while walks make predictions.
    lately: Vec<(PlaceFingerprint, u64)>,
    /// One bit for each of the last accesses, newest lowest: set if a walk predicted it.
    record: u16,
    /// Time when a walk last started to make predictions.
    last_served: u64,
    /// Number of unexpected accesses since the last search.
    waiting: u32,
    batch: u32,
}

impl Default for Interleaved {
    fn default() -> Self {
        Self::new(1)
    }
}

impl Interleaved {
    /// Makes a detector that searches once per `batch` unpredicted accesses.
    pub(crate) fn new(batch: u32) -> Self {
        Self {
            time: 0,
            recent: RecentAccesses::default(),
            walkers: Vec::new(),
            shapes: RowShapes::default(),
            doubt: DOUBT_MIN,
            lately: Vec::new(),
            record: 0,
            last_served: 0,
            waiting: 0,
            batch: batch.max(1),
        }
    }

    /// Records the next access, with true if the ordered patterns missed it; returns true if a walk
    /// predicted it.
    pub(crate) fn push(
        &mut self,
        place: &Place,
        fingerprint: PlaceFingerprint,
        is_missed: bool,
    ) -> bool {
        self.time += 1;
        let is_served = self.is_served();
        let is_right = (is_served || is_missed) && self.follow(place, fingerprint);
        if is_served {
            self.keep(fingerprint);
        }
        if is_missed && !is_right {
            self.look(place, fingerprint);
        }
        self.recent.push(place, fingerprint);
        self.record = self.record << 1 | u16::from(is_right);
        is_right
    }

    /// Returns true if a walk makes predictions.
    pub(crate) fn is_served(&self) -> bool {
        self.walkers.iter().any(|walker| walker.is_served)
    }

    /// Returns how many of the last 16 accesses a walk predicted.
    pub(crate) fn score(&self) -> u32 {
        self.record.count_ones()
    }

    /// Learns from a pattern of ordered accesses.
    pub(crate) fn learn(&mut self, walk: &Walk) {
        if walk.count() >= LEARNED {
            self.shapes.learn(walk);
        }
    }

    /// Returns the predicted places: those of all walks in turn, without places already seen; then
    /// those of the following rows.
    pub(crate) fn ahead(&self) -> impl Iterator<Item = Place> + '_ {
        let served = || self.walkers.iter().filter(|walker| walker.is_served);
        let mut turns: Vec<_> = in_turn(served())
            .into_iter()
            .map(|walkers| walkers.into_iter().flat_map(Walker::ahead))
            .collect();
        let mut turn = 0;
        let walks = std::iter::from_fn(move || {
            while !turns.is_empty() {
                turn %= turns.len();
                if let Some(place) = turns[turn].next() {
                    turn += 1;
                    return Some(place);
                }
                drop(turns.remove(turn));
            }
            None
        });
        let last = served().next_back();
        let rows = last
            .into_iter()
            .flat_map(|last| self.shapes.free_rows(last.step_fingerprint, &last.start));
        let rows = rows.flat_map(|row| {
            (0..row.length).map_while(move |number| row.start.after(&row.step.times(number)?))
        });
        walks.chain(rows)
    }

    /// Returns the walks that were found; rows that form one walk are returned as that walk.
    pub(crate) fn walks(&self) -> impl Iterator<Item = Walk> + '_ {
        let is_open = |walker: &&Walker| walker.is_true() && walker.length.is_none();
        let open = self.walkers.iter().filter(is_open);
        self.shapes.walks().chain(open.filter_map(Walker::walk))
    }

    /// Finds the walks that contain a place; returns true if one of them predicted it.
    fn follow(&mut self, place: &Place, fingerprint: PlaceFingerprint) -> bool {
        let mut served = None;
        let mut at = 0;
        while at < self.walkers.len() {
            let walker = &mut self.walkers[at];
            let Some(offset) = walker.offset(place, fingerprint) else {
                at += 1;
                continue;
            };
            let is_same = |other: usize| {
                self.walkers[other].step_fingerprint == self.walkers[at].step_fingerprint
            };
            if served.is_some_and(is_same) {
                // Two walkers met: they are one walk.
                self.walkers.remove(at);
                continue;
            }
            if self.see(at, offset) {
                served = served.or(Some(at));
            }
            at += 1;
        }
        self.end_stale();
        served.is_some()
    }

    /// Records a place of a walk; returns true if the walk made predictions before.
    fn see(&mut self, at: usize, offset: u64) -> bool {
        let walker = &mut self.walkers[at];
        let was_served = walker.is_served;
        walker.see(offset, self.time);
        walker.is_claim = false;
        if !was_served && walker.shows(self.doubt) {
            self.serve(at);
        }
        if self.walkers[at].is_served {
            self.claim_after(at);
        }
        was_served
    }

    fn serve(&mut self, at: usize) {
        self.last_served = self.time;
        let walker = &mut self.walkers[at];
        walker.is_served = true;
        let length = self.shapes.length(walker.step_fingerprint);
        walker.length = length.filter(|length| *length > walker.reached);
        self.shapes.begin(walker);
    }

    /// Starts the rows that follow a row that is nearly complete.
    fn claim_after(&mut self, at: usize) {
        let walker = &self.walkers[at];
        let (Some(mut left), false) = (walker.left(), walker.has_successor) else { return };
        let (step, start, length) =
            (walker.step_fingerprint, walker.start.clone(), walker.length.unwrap_or(1));
        let claims = self.walkers.iter().filter(|walker| walker.is_claim).count() as u64;
        let begun = self.walkers.len() as u64 - claims;
        let most = begun.max(AHEAD.div_ceil(length.max(1)));
        let mut free = most.saturating_sub(claims);
        while left <= AHEAD && free > 0 && self.make_room() {
            let Some(row) = self.shapes.free_rows(step, &start).next() else {
                // No free row exists, and none will.
                left = u64::MAX;
                break;
            };
            left = left.saturating_add(row.length);
            free -= 1;
            if !self.begin_row(row) {
                break;
            }
        }
        // Making room may have removed walkers.
        let own = self
            .walkers
            .iter_mut()
            .find(|walker| walker.start == start && walker.step_fingerprint == step);
        if let Some(walker) = own {
            walker.has_successor = left > AHEAD;
        }
    }

    /// Starts a row before it is read.
    fn begin_row(&mut self, row: NextRow) -> bool {
        let Some(mut walker) = Walker::new(row.start, row.step, self.time) else { return false };
        walker.length = Some(row.length);
        (walker.is_served, walker.is_claim) = (true, true);
        let (lately, recent, time) = (&self.lately, &self.recent, self.time);
        walker.mark(|fingerprint| recent.has(fingerprint) || was_lately(lately, fingerprint, time));
        walker.is_claim = walker.reached == 0;
        self.shapes.begin(&walker);
        self.walkers.push(walker);
        true
    }

    /// Handles an access outside all walks: the start of a row, an extension of a row at either
    /// end, or a new walk.
    fn look(&mut self, place: &Place, fingerprint: PlaceFingerprint) {
        if let Some(row) = self.shapes.row_at(place, fingerprint)
            && self.make_room()
        {
            self.begin_row(row);
            if let Some(walker) = self.walkers.last_mut()
                && let Some(offset) = walker.offset(place, fingerprint)
            {
                walker.see(offset, self.time);
                walker.is_claim = false;
            }
            return;
        }
        if self.goes_before(place, fingerprint) || self.goes_beyond(place, fingerprint) {
            return;
        }
        self.waiting += 1;
        // While searches fail, they are rarer.
        let is_fruitless = self.time - self.last_served > FRUITLESS;
        let rarely = if is_fruitless { RARELY } else { self.doubt.min(RARELY) };
        if self.waiting >= self.batch.max(rarely) {
            self.waiting = 0;
            self.begin(place, fingerprint);
        }
    }

    /// Checks if a walk started before its assumed start.
    fn goes_before(&mut self, place: &Place, fingerprint: PlaceFingerprint) -> bool {
        for walker in &mut self.walkers {
            let before = walker.number(fingerprint).filter(|number| (-BEFORE..0).contains(number));
            let Some(by) = before.map(i64::unsigned_abs).filter(|_| walker.next < WINDOW) else {
                continue;
            };
            let is_there =
                walker.step.times(by).is_some_and(|step| walker.start.is_after(place, &step));
            if is_there && walker.length.is_none_or(|length| walker.reached + by <= length) {
                let start = walker.start_fingerprint;
                walker.begin_before(place, by, self.time);
                self.shapes.begin_before(start, walker);
                return true;
            }
        }
        false
    }

    /// Checks if a row is longer than assumed.
    fn goes_beyond(&mut self, place: &Place, fingerprint: PlaceFingerprint) -> bool {
        let beyond = |walker: &mut Walker| {
            walker.go_beyond(place, fingerprint, self.time).then_some(walker.step_fingerprint)
        };
        let Some(step) = self.walkers.iter_mut().find_map(beyond) else { return false };
        self.shapes.forget_length(step);
        for walker in self.walkers.iter_mut().filter(|walker| walker.step_fingerprint == step) {
            walker.length = None;
        }
        true
    }

    /// Searches for a new walk.
    fn begin(&mut self, place: &Place, fingerprint: PlaceFingerprint) {
        let Some(progression) = self.recent.progression(place, fingerprint) else { return };
        let Some(mut walker) = Walker::through(progression, &self.recent, self.time) else {
            return;
        };
        if self.walkers.iter().any(|other| other.covers(&walker)) {
            return;
        }
        self.walkers.retain(|other| !walker.covers(other));
        if !self.make_room() {
            return;
        }
        // The newest place is not among the recent ones yet.
        if let Some(offset) = walker.offset(place, fingerprint) {
            walker.see(offset, self.time);
        }
        walker.right = 0;
        let is_known = self.shapes.knows(walker.step_fingerprint);
        self.walkers.push(walker);
        if is_known && self.doubt < DOUBT {
            self.serve(self.walkers.len() - 1);
        }
    }

    /// Makes room for a walk; drops the walker without predictions whose last access is oldest.
    fn make_room(&mut self) -> bool {
        let free = || self.walkers.iter().enumerate().filter(|(_, walker)| !walker.is_served);
        if self.walkers.len() < WALKERS_MAX && free().count() < UNSERVED_MAX {
            return true;
        }
        let oldest = free().min_by_key(|(_, walker)| walker.at).map(|(at, _)| at);
        let oldest = oldest.map(|at| self.walkers.remove(at));
        oldest.inspect(|walker| self.end(walker)).is_some()
    }

    /// Ends walks that are complete or had no recent access.
    fn end_stale(&mut self) {
        let mut at = 0;
        while at < self.walkers.len() {
            let walker = &self.walkers[at];
            if self.time > walker.until {
                let walker = self.walkers.remove(at);
                self.end(&walker);
            } else {
                at += 1;
            }
        }
    }

    fn end(&mut self, walker: &Walker) {
        if !walker.is_served {
            if walker.next >= walker.reached {
                self.end_row(walker);
            }
            return;
        }
        if walker.is_claim {
            self.shapes.forget_row(walker);
            return;
        }
        if walker.is_true() || walker.is_over() {
            self.doubt = self.doubt.saturating_sub(1).max(DOUBT_MIN);
        } else if walker.reached < TRUE {
            self.doubt = (self.doubt + 2).min(DOUBT_MAX);
        }
        self.end_row(walker);
    }

    /// Learns from a row that has ended; its length may apply to current rows.
    fn end_row(&mut self, row: &Walker) {
        // A row that was cut at its known length teaches nothing.
        if row.reached < ROW_MIN || row.is_over() {
            return;
        }
        self.shapes.end(row);
        let Some(length) = self.shapes.length(row.step_fingerprint) else { return };
        let alike = self
            .walkers
            .iter_mut()
            .filter(|walker| walker.step_fingerprint == row.step_fingerprint);
        for walker in alike.filter(|walker| walker.length.is_none() && walker.reached <= length) {
            walker.length = Some(length);
        }
    }

    /// Records that a place was read.
    fn keep(&mut self, fingerprint: PlaceFingerprint) {
        self.lately.resize(LATELY_SEEN.into(), (0, 0));
        self.lately[lately(fingerprint)] = (fingerprint, self.time);
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let walkers = self.walkers.iter().map(Walker::heap_bytes).sum::<usize>();
        let own = size_of::<Walker>() * self.walkers.capacity() + 16 * self.lately.capacity();
        own + walkers + self.recent.heap_bytes() + self.shapes.heap_bytes()
    }
}

/// Returns the walks whose places come in turn, most recent first, each with the rows that follow
/// it. The next row follows the walk that ends first.
fn in_turn<'a>(walkers: impl Iterator<Item = &'a Walker>) -> Vec<Vec<&'a Walker>> {
    let (claims, mut begun): (Vec<&Walker>, Vec<&Walker>) =
        walkers.partition(|walker| walker.is_claim);
    begun.sort_by_key(|walker| Reverse(walker.at));
    let left = |walker: &Walker| walker.left().unwrap_or(u64::MAX);
    let mut turns: Vec<(u64, Vec<&Walker>)> =
        begun.into_iter().map(|walker| (left(walker), vec![walker])).collect();
    for claim in claims {
        match turns.iter_mut().min_by_key(|(left, _)| *left) {
            Some((all, turn)) => {
                *all = all.saturating_add(left(claim));
                turn.push(claim);
            }
            None => turns.push((left(claim), vec![claim])),
        }
    }
    turns.into_iter().map(|(_, turn)| turn).collect()
}

fn lately(fingerprint: PlaceFingerprint) -> usize {
    fingerprint::slot(fingerprint, LATELY_SEEN.trailing_zeros())
}

/// Returns true if a place was among the last accesses.
fn was_lately(seen: &[(PlaceFingerprint, u64)], fingerprint: PlaceFingerprint, time: u64) -> bool {
    let seen = seen.get(lately(fingerprint));
    seen.is_some_and(|(other, at)| *other == fingerprint && time - at < LATELY && *at > 0)
}
