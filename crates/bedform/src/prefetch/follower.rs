//! Follows the reads of one array: their pattern, the queue of reads ahead, and its depth.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bedform_geometry::Selection;
use bedform_patterns::{Analyzer, Pattern, PatternKind, Place};

use super::ahead::{AheadElements, ReadAheadTask};
use super::statistics::PrefetchStatistics;
use super::{BackgroundReader, workers};
use crate::error::Result;
use crate::run::FollowedReads;
use crate::trace::form::{SelectionSteps, cut, place_of, selection_at};

/// Smaller results, in bytes, are not read ahead (section 2.3.6).
const BYTES_MIN: u64 = 1 << 10;
/// Shorter reads end before a thread would have begun.
const TOOK_MIN: Duration = Duration::from_micros(150);
/// After this many reads in a row without a prediction, the analyzer gets [`TOGETHER`] reads at a
/// time. Analyzing one read costs 20 us while the processor's caches are cold, and 1 us for each
/// further one.
const UNPREDICTED_MIN: usize = 32;
const TOGETHER: usize = 8;
/// After a correct prediction, the number of reads that are analyzed singly again.
const CHANCE: usize = 4;
/// The number of first reads of an array that are always analyzed.
const LOOKED_AT: u64 = 8;
/// The least time between reads, as a share of a read's time, if reads do not wait for a device.
const GAP_SHARE: f64 = 0.1;
/// The same share for reads of [`LARGE_BYTES`] or more, which keep all cores and the memory busy.
/// Allocating and copying a buffer costs more than the overlap saves.
const GAP_SHARE_LARGE: f64 = 0.5;
const LARGE_BYTES: u64 = 8 << 20;
/// The most background threads of the process.
const THREADS_MAX: usize = 8;
/// The depth for a newly found pattern, in reads.
const BATCH: usize = 2;
/// Correct predictions in a row for each further read ahead: the waste at the end of a run is at
/// most a twentieth of it.
const RUN_FOR_ONE: u64 = 40;
/// Reads ahead of a list beyond the running ones; a list is certain.
const LISTED_BEYOND: usize = 2;
/// Further reads ahead where the program reads a list in another order.
const LISTED_SPREAD_MAX: usize = 16;
/// The number of reads that may overtake a predicted one before it is dropped.
const OVERTAKEN_MAX: u64 = 16;
/// The longest wait for a running read ahead: a multiple of the mean time of a read, and at least
/// [`PATIENCE_MIN`]. A server may not answer; the direct read has all of its own time.
const PATIENCE_READS: f64 = 4.0;
const PATIENCE_MIN: Duration = Duration::from_secs(2);
/// The most wasted reads ahead that count against the next pattern.
const IN_VAIN_MAX: u64 = 16;
/// The age at which abandoned buffers are dropped if others need the room: at least this, and
/// [`LEFT_GAPS`] times the program's mean time between two reads.
const LEFT_MIN: Duration = Duration::from_secs(1);
const LEFT_GAPS: f64 = 8.0;
/// The number of list entries that are searched for a read out of order.
const LISTED_LOOK: usize = 256;
/// Reads in a row outside a list, before the list is given up.
const UNLISTED_MAX: u64 = 64;

/// The follower of one array's reads.
#[derive(Debug)]
pub(super) struct Follower {
    limit: u64,
    state: Mutex<FollowerState>,
}

#[derive(Debug, Default)]
struct FollowerState {
    analyzer: Analyzer,
    /// Patterns of earlier runs.
    known: Vec<Pattern>,
    form: SelectionSteps,
    shape: Vec<u64>,
    item_size: u64,
    /// Bytes of the last read.
    bytes: u64,
    /// Reads ahead in the order of prediction, each with the number of reads at that time.
    ahead: VecDeque<(u64, Arc<ReadAheadTask>)>,
    /// True while a list has reads left: patterns are not used meanwhile.
    is_list: bool,
    /// Entries of a list that are not queued yet.
    listed: VecDeque<(Selection, u64)>,
    /// Reads in a row outside the list.
    unlisted: u64,
    /// The largest distance at which a read came before its turn in the list.
    spread: usize,
    /// Correct predictions in a row.
    run: u64,
    /// Wasted reads ahead of short runs, up to [`IN_VAIN_MAX`].
    in_vain: u64,
    /// A prediction that must come true before anything is read ahead.
    expected: Option<Selection>,
    /// True if a pattern predicted the last read.
    was_predicted: bool,
    /// Reads in a row without a prediction, and the reads that the analyzer has not got yet.
    unpredicted: usize,
    unseen: Vec<Place>,
    ended: Option<Instant>,
    /// Mean times: between two reads, and of a read without a buffer ahead.
    gap: Mean,
    took: Mean,
    /// True if the last such read waited for a device.
    waits: bool,
    /// True if the last such read kept its thread busy. Such reads gain nothing from running in
    /// parallel, and would delay the first one.
    computes: bool,
    statistics: PrefetchStatistics,
}

/// An exponential mean: each new value weighs half.
#[derive(Debug, Clone, Copy, Default)]
struct Mean(Option<f64>);

impl Mean {
    fn add(&mut self, value: Duration) {
        let value = value.as_secs_f64();
        // The first value of a new kind weighs as much as later ones: half.
        self.0 = Some(self.0.map_or(value, |mean| 0.5 * (mean + value)));
    }

    fn seconds(self) -> f64 {
        self.0.unwrap_or(0.0)
    }
}

/// Makes the background reader. Not stored here: that would be a reference cycle through the store.
pub(crate) type MakeReader<'a> = &'a dyn Fn() -> Arc<dyn BackgroundReader>;

/// A read from its begin to its end, as its follower sees it.
pub(crate) struct FollowedRead<'a> {
    follower: Arc<Follower>,
    reader: MakeReader<'a>,
    ahead: Option<Arc<ReadAheadTask>>,
    bytes: u64,
    /// The thread's CPU time before the read, if the read is long enough for it to matter.
    computed: Option<Duration>,
}

pub(super) fn begin<'a>(
    follower: Arc<Follower>,
    shape: &[u64],
    (selection, bytes): (&Selection, u64),
    reader: MakeReader<'a>,
) -> FollowedRead<'a> {
    let mut state = follower.lock();
    state.statistics.reads += 1;
    state.statistics.read_bytes += bytes;
    state.bytes = bytes;
    let now = Instant::now();
    if let Some(ended) = state.ended.take() {
        state.gap.add(now - ended);
    }
    state.is_list = state.is_listing();
    if state.are_short() {
        drop(state);
        return FollowedRead { follower, reader, ahead: None, bytes, computed: None };
    }
    let own = place_of(selection);
    let canonical = canonical(own.as_ref());
    state.was_predicted = false;
    if let Some((form, place)) = own {
        state.see(form, place, shape);
    }
    let ahead = state.foreseen(canonical.as_ref().unwrap_or(selection));
    state.item_size = item_size(selection, bytes);
    if ahead.is_some() {
        state.top_up(follower.limit, reader);
    }
    let is_long = state.took.0.is_none_or(|took| took >= TOOK_MIN.as_secs_f64());
    drop(state);
    let computed = is_long.then(workers::computed);
    FollowedRead { follower, reader, ahead, bytes, computed }
}

impl FollowedRead<'_> {
    /// Takes the elements of the read ahead, and waits for it if it is running.
    ///
    /// # Errors
    /// `Interrupted` if the program cancels the wait.
    pub(crate) fn take(&mut self) -> Result<Option<Box<AheadElements>>> {
        let Some(ahead) = self.ahead.take() else { return Ok(None) };
        let took = self.follower.lock().took.seconds();
        let patience = Duration::try_from_secs_f64(PATIENCE_READS * took).unwrap_or(PATIENCE_MIN);
        let taken = ahead.take(patience.max(PATIENCE_MIN))?;
        let mut state = self.follower.lock();
        state.statistics.waited += u64::from(taken.has_waited);
        if let Some(took) = taken.took {
            state.took.add(took);
            state.statistics.prefetched_bytes += self.bytes;
        }
        if taken.was_stopped {
            state.statistics.prefetched_bytes += self.bytes;
            state.statistics.wasted_bytes += self.bytes;
        }
        Ok(taken.read)
    }

    /// Counts the taken elements as wasted: their state differs from that of the read.
    pub(crate) fn drop_taken(&self) {
        self.follower.lock().statistics.wasted_bytes += self.bytes;
    }

    /// Counts the taken elements as used.
    pub(crate) fn use_taken(&self) {
        let mut state = self.follower.lock();
        state.statistics.used += 1;
        state.statistics.used_bytes += self.bytes;
    }

    /// Records that the read was made directly and took `took`. It counts as waiting for a device
    /// if `waits`. It also does if this thread was on the CPU for less than half of the time, as
    /// with a directory on a server.
    pub(crate) fn was_made(&self, took: Duration, waits: bool) {
        let idled = self.computed.map(|before| 2 * (workers::computed() - before) < took);
        let mut state = self.follower.lock();
        state.took.add(took);
        state.waits = waits || idled == Some(true);
        state.computes = idled == Some(false);
    }
}

impl Drop for FollowedRead<'_> {
    fn drop(&mut self) {
        let mut state = self.follower.lock();
        state.ended = Some(Instant::now());
        state.top_up(self.follower.limit, self.reader);
    }
}

impl Follower {
    /// Makes a follower with the patterns of earlier runs.
    pub(super) fn new(limit: u64, known: &[Pattern]) -> Self {
        let known = known.to_vec();
        let analyzer = Analyzer::knowing(known.clone());
        Self {
            limit,
            state: Mutex::new(FollowerState { analyzer, known, ..FollowerState::default() }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, FollowerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the predictions by a list of selections, each with the bytes of its result.
    pub(super) fn foresee(&self, selections: Vec<(Selection, u64)>, reader: MakeReader<'_>) {
        let mut state = self.lock();
        state.drop_ahead();
        state.listed = selections.into();
        state.is_list = true;
        (state.unlisted, state.spread) = (0, 0);
        state.top_up(self.limit, reader);
    }

    pub(super) fn statistics(&self) -> PrefetchStatistics {
        let state = self.lock();
        let ready = state.ahead.iter().filter(|(_, ahead)| ahead.is_ready()).count();
        PrefetchStatistics {
            ahead: state.ahead.len() as u64,
            ready: ready as u64,
            ..state.statistics
        }
    }

    /// True if a list has reads left.
    pub(super) fn is_listed(&self) -> bool {
        self.lock().is_listing()
    }

    /// Returns the statistics of the reads, and whether `selection` is read ahead.
    pub(super) fn followed_reads(&self, selection: &Selection) -> FollowedReads {
        let state = self.lock();
        let PrefetchStatistics { reads, foreseen, used, prefetched_bytes, wasted_bytes, .. } =
            state.statistics;
        let is_listed = !state.listed.is_empty();
        let pattern = || state.analyzer.serving().map(PatternKind::name);
        let canonical = canonical(place_of(selection).as_ref());
        let selection = canonical.as_ref().unwrap_or(selection);
        FollowedReads {
            reads_followed: reads,
            reads_foreseen: foreseen,
            reads_used: used,
            prefetched_bytes,
            wasted_bytes,
            foreseen_by: is_listed.then_some("list").or_else(pattern),
            is_read_ahead: state.ahead.iter().any(|(_, ahead)| ahead.selection == *selection),
        }
    }

    /// Drops the list and all reads ahead.
    pub(super) fn forget(&self) {
        let mut state = self.lock();
        state.listed.clear();
        state.drop_ahead();
    }

    /// Drops buffers that have been ready for longer than `age`.
    pub(super) fn drop_older_than(&self, age: Duration) {
        self.lock().drop_older_than(age);
    }

    /// Drops ready buffers if the program has stopped reading this array, and no other thread holds
    /// the lock.
    pub(super) fn try_drop_left(&self) {
        if let Ok(mut state) = self.state.try_lock()
            && let Some(ended) = state.ended
            && ended.elapsed() > LEFT_MIN
            && ended.elapsed().as_secs_f64() > LEFT_GAPS * state.gap.seconds()
        {
            state.drop_older_than(Duration::ZERO);
        }
    }
}

impl FollowerState {
    /// True if a list has reads left.
    fn is_listing(&self) -> bool {
        self.is_list && !(self.listed.is_empty() && self.ahead.is_empty())
    }

    /// Returns the read ahead of `selection`, if there is one. An unpredicted read ends the run of
    /// a pattern.
    fn foreseen(&mut self, selection: &Selection) -> Option<Arc<ReadAheadTask>> {
        let was_expected = self.expected.take().is_some_and(|expected| expected == *selection);
        let at = self.ahead.iter().position(|(_, ahead)| ahead.selection == *selection);
        if at.is_some() {
            self.run += 1;
            (self.unlisted, self.unpredicted) = (0, 0);
            self.statistics.foreseen += 1;
        } else if !self.listed.is_empty() {
            self.pass_in_list(selection);
        } else if was_expected {
            (self.run, self.unpredicted) = (1, 0);
        } else if !self.was_predicted {
            self.end_run();
        }
        let found = at.and_then(|at| self.ahead.remove(at)).map(|(_, ahead)| ahead);
        self.drop_overtaken();
        found
    }

    /// Finds a read of `selection` in the list; without success several times, gives the list up.
    fn pass_in_list(&mut self, selection: &Selection) {
        let mut near = self.listed.iter().take(LISTED_LOOK);
        let Some(at) = near.position(|(listed, _)| listed == selection) else {
            self.unlisted += 1;
            if self.unlisted > UNLISTED_MAX {
                self.listed.clear();
                self.end_run();
            }
            return;
        };
        self.unlisted = 0;
        if self.drop_overtaken() {
            // The program has skipped the earlier entries.
            self.drop_ahead();
            self.spread = 0;
            self.listed.drain(..=at);
            return;
        }
        self.listed.remove(at);
        if at < LISTED_SPREAD_MAX {
            self.spread = self.spread.max(at + 1);
        }
    }

    /// Drops reads ahead that many reads have overtaken; true if there were any.
    fn drop_overtaken(&mut self) -> bool {
        let before = self.ahead.len();
        while let Some((since, _)) = self.ahead.front()
            && since + OVERTAKEN_MAX + (self.ahead.len() as u64) < self.statistics.reads
        {
            let overtaken = self.ahead.pop_front();
            self.waste(overtaken.map(|(_, ahead)| ahead));
        }
        self.ahead.len() < before
    }

    fn end_run(&mut self) {
        let in_vain = self.drop_ahead();
        self.in_vain = (self.in_vain + in_vain).min(IN_VAIN_MAX).saturating_sub(self.run);
        self.run = 0;
    }

    /// Passes the next read to the analyzer; after many unpredicted reads, in batches.
    fn see(&mut self, form: SelectionSteps, place: Place, shape: &[u64]) {
        if form != self.form || shape != self.shape {
            if self.form != SelectionSteps::default() {
                self.analyzer = Analyzer::knowing(self.known.clone());
            }
            self.form = form;
            self.shape = shape.to_vec();
            self.unseen.clear();
        }
        self.unseen.push(place);
        if self.unpredicted < UNPREDICTED_MIN || self.unseen.len() >= TOGETHER {
            for place in self.unseen.drain(..) {
                self.was_predicted = self.analyzer.push(place).predicted.is_some();
                self.unpredicted = match self.was_predicted {
                    // Single predictions happen by chance: a few reads show whether they continue.
                    true => self.unpredicted.min(UNPREDICTED_MIN - CHANCE),
                    false => self.unpredicted + 1,
                };
            }
        }
    }

    /// Cancels reads ahead, and returns how many had begun.
    fn waste(&mut self, ahead: impl IntoIterator<Item = Arc<ReadAheadTask>>) -> u64 {
        let mut count = 0;
        for ahead in ahead {
            if ahead.drop_unused() {
                count += 1;
                self.statistics.prefetched_bytes += ahead.bytes;
                self.statistics.wasted_bytes += ahead.bytes;
            }
        }
        count
    }

    /// Keeps queued reads: dropping one could drop the last reference to the store, and with it
    /// this follower.
    fn drop_older_than(&mut self, age: Duration) {
        let all = std::mem::take(&mut self.ahead).into_iter();
        let (old, young): (VecDeque<_>, _) = all.partition(|(_, ahead)| ahead.is_older_than(age));
        self.ahead = young;
        self.waste(old.into_iter().map(|(_, ahead)| ahead));
    }

    fn drop_ahead(&mut self) -> u64 {
        let unused = std::mem::take(&mut self.ahead);
        self.waste(unused.into_iter().map(|(_, ahead)| ahead))
    }

    /// True if reads are so short that analyzing them costs more than reading ahead saves. They are
    /// analyzed again once they take longer.
    fn are_short(&self) -> bool {
        self.ahead.is_empty()
            && self.listed.is_empty()
            && self.statistics.reads > LOOKED_AT
            && 2.0 * self.took.seconds() < TOOK_MIN.as_secs_f64()
    }

    /// True if the overlap saves more than reading ahead costs.
    fn is_worth_it(&self) -> bool {
        let (took, gap) = (self.took.seconds(), self.gap.seconds());
        let share = if self.bytes < LARGE_BYTES { GAP_SHARE } else { GAP_SHARE_LARGE };
        took >= TOOK_MIN.as_secs_f64() && (self.waits || gap >= share * took)
    }

    /// Returns the number of parallel reads ahead: enough to finish one per read of the program, or
    /// one if reads compute.
    fn at_once(&self) -> usize {
        if self.computes {
            return 1;
        }
        let (took, gap) = (self.took.seconds(), self.gap.seconds());
        let wanted = (1..THREADS_MAX).find(|count| took <= *count as f64 * gap);
        wanted.unwrap_or(THREADS_MAX)
    }

    /// Queues reads ahead up to the current depth.
    fn top_up(&mut self, limit: u64, reader: MakeReader<'_>) {
        let is_listed = !self.listed.is_empty();
        if !is_listed && (self.is_list || !self.is_worth_it()) {
            return;
        }
        let threads = self.at_once();
        let run = usize::try_from(self.run / RUN_FOR_ONE).unwrap_or(usize::MAX);
        let depth = match is_listed {
            true => threads + LISTED_BEYOND + self.spread,
            // After wasted reads, the next prediction must come true before anything is read.
            false if self.run == 0 && self.in_vain > 0 => {
                self.expected = self.next().map(|(selection, _)| selection);
                return;
            }
            // No read has confirmed the prediction yet.
            false if self.run <= u64::from(self.in_vain > 0) => 1,
            false => (threads + 1).clamp(BATCH, BATCH.saturating_add(run)),
        };
        while self.ahead.len() < depth {
            let Some((selection, bytes)) = self.next() else { return };
            let reserved = workers::reserve(bytes, limit);
            let ahead =
                reserved.map(|room| ReadAheadTask::new(selection.clone(), bytes, reader(), room));
            let Some(ahead) = ahead.filter(|ahead| workers::submit(ahead.clone(), threads)) else {
                if is_listed {
                    self.listed.push_front((selection, bytes));
                }
                return;
            };
            self.ahead.push_back((self.statistics.reads, ahead));
        }
    }

    /// Returns the next read to queue, from the list or the pattern.
    fn next(&mut self) -> Option<(Selection, u64)> {
        if let Some(listed) = self.listed.pop_front() {
            return Some(listed);
        }
        // The size of the next read is unknown.
        if self.analyzer.serving() == Some(PatternKind::Contiguous) || !self.unseen.is_empty() {
            return None;
        }
        let known = self.ahead.len() + 1;
        for place in self.analyzer.ahead().take(known + usize::try_from(OVERTAKEN_MAX).ok()?) {
            let place = cut(&place, &self.shape)?;
            let selection = selection_at(&self.form, &place)?;
            if self.ahead.iter().any(|(_, ahead)| ahead.selection == selection) {
                continue;
            }
            let bytes = elements(&selection)?.checked_mul(self.item_size)?;
            return (bytes >= BYTES_MIN).then_some((selection, bytes));
        }
        None
    }
}

/// Returns a box in the form that a pattern predicts: bounds and steps only.
fn canonical(own: Option<&(SelectionSteps, Place)>) -> Option<Selection> {
    own.and_then(|(form, place)| selection_at(form, place))
}

fn elements(selection: &Selection) -> Option<u64> {
    let Selection::Orthogonal(axes) = selection else { return None };
    axes.iter().try_fold(1_u64, |all, axis| all.checked_mul(axis.len()))
}

fn item_size(selection: &Selection, bytes: u64) -> u64 {
    elements(selection).and_then(|count| bytes.checked_div(count)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_reads_that_wait_for_nothing_are_left_alone_unless_much_is_computed_between_them() {
        let state = |bytes, gap_ms, waits| {
            let mean = |ms| Mean(Some(f64::from(ms) * 1e-3));
            FollowerState {
                bytes,
                gap: mean(gap_ms),
                took: mean(6),
                waits,
                ..FollowerState::default()
            }
        };
        assert!(state(1 << 20, 1, false).is_worth_it());
        assert!(!state(64 << 20, 1, false).is_worth_it());
        assert!(state(64 << 20, 4, false).is_worth_it());
        assert!(state(64 << 20, 1, true).is_worth_it());
    }

    #[test]
    fn reads_that_compute_are_made_one_after_the_other_and_those_that_wait_at_once() {
        let mean = |ms| Mean(Some(f64::from(ms) * 1e-3));
        let state = |computes| FollowerState {
            gap: mean(2),
            took: mean(6),
            computes,
            ..FollowerState::default()
        };
        assert_eq!((state(true).at_once(), state(false).at_once()), (1, 3));
    }
}
