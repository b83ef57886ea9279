//! Follows the reads of one array: the queue of reads ahead, from its list or pattern, and its depth.
//!
//! | module | holds |
//! |---|---|
//! | `settings` | limits and thresholds |
//! | `pattern` | the pattern of the reads, and its predictions |
//! | `list` | a list of reads that the program has announced |
//! | `pace` | the time of reads and between them: is reading ahead worth it, how many at once |

mod list;
mod pace;
mod pattern;
mod settings;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bedform_geometry::Selection;
use bedform_patterns::Pattern;

use self::list::ReadList;
use self::pace::ReadPace;
use self::pattern::{ReadPattern, canonical};
use self::settings::SETTINGS;
use super::ahead::{AheadElements, ReadAheadTask};
use super::statistics::PrefetchStatistics;
use super::{BackgroundReader, workers};
use crate::error::Result;
use crate::run::FollowedReads;
use crate::trace::form::place_of;

/// The follower of one array's reads.
#[derive(Debug)]
pub(super) struct Follower {
    limit: u64,
    state: Mutex<FollowerState>,
}

#[derive(Debug, Default)]
struct FollowerState {
    pattern: ReadPattern,
    list: ReadList,
    pace: ReadPace,
    /// Reads ahead in the order of prediction, each with the number of reads at that time.
    ahead: VecDeque<(u64, Arc<ReadAheadTask>)>,
    statistics: PrefetchStatistics,
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

/// Follows a read of `bytes` bytes of an array of this shape from its begin.
pub(super) fn begin<'a>(
    follower: Arc<Follower>,
    shape: &[u64],
    selection: &Selection,
    bytes: u64,
    reader: MakeReader<'a>,
) -> FollowedRead<'a> {
    let mut state = follower.lock();
    state.statistics.reads += 1;
    state.statistics.read_bytes += bytes;
    state.pace.begin(bytes);
    state.list.is_active = state.is_listing();
    if state.are_short() {
        drop(state);
        return FollowedRead { follower, reader, ahead: None, bytes, computed: None };
    }
    let own = place_of(selection);
    let canonical = canonical(own.as_ref());
    state.pattern.see(own, shape);
    let ahead = state.foreseen(canonical.as_ref().unwrap_or(selection));
    state.pattern.size(selection, bytes);
    if ahead.is_some() {
        state.top_up(follower.limit, reader);
    }
    let may_be_long = state.pace.may_be_long();
    drop(state);
    let computed = may_be_long.then(workers::computed);
    FollowedRead { follower, reader, ahead, bytes, computed }
}

impl FollowedRead<'_> {
    /// Takes the elements of the read ahead, and waits for it if it is running.
    ///
    /// # Errors
    /// `Interrupted` if the program cancels the wait.
    pub(crate) fn take(&mut self) -> Result<Option<Box<AheadElements>>> {
        let Some(ahead) = self.ahead.take() else { return Ok(None) };
        let patience = self.follower.lock().pace.patience();
        let taken = ahead.take(patience)?;
        let mut state = self.follower.lock();
        state.statistics.waited += u64::from(taken.has_waited);
        if let Some(took) = taken.took {
            state.pace.add(took);
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
        self.follower.lock().pace.add_direct(took, waits, idled);
    }
}

impl Drop for FollowedRead<'_> {
    fn drop(&mut self) {
        let mut state = self.follower.lock();
        state.pace.end();
        state.top_up(self.follower.limit, self.reader);
    }
}

impl Follower {
    /// Makes a follower with the patterns of earlier runs.
    pub(super) fn new(limit: u64, known: &[Pattern]) -> Self {
        let pattern = ReadPattern::knowing(known);
        Self { limit, state: Mutex::new(FollowerState { pattern, ..FollowerState::default() }) }
    }

    fn lock(&self) -> MutexGuard<'_, FollowerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the predictions by a list of selections, each with the bytes of its result.
    pub(super) fn foresee(&self, selections: Vec<(Selection, u64)>, reader: MakeReader<'_>) {
        let mut state = self.lock();
        state.drop_ahead();
        state.list = ReadList::of(selections);
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
        let is_listed = !state.list.entries.is_empty();
        let pattern = || state.pattern.serving();
        let canonical = canonical(place_of(selection).as_ref());
        let selection = canonical.as_ref().unwrap_or(selection);
        FollowedReads {
            reads_followed: reads,
            reads_foreseen: foreseen,
            reads_used: used,
            prefetched_bytes,
            wasted_bytes,
            foreseen_by: is_listed.then_some("list").or_else(pattern),
            is_read_ahead: state.position(selection).is_some(),
        }
    }

    /// Drops the list and all reads ahead.
    pub(super) fn forget(&self) {
        let mut state = self.lock();
        state.list.entries.clear();
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
            && state.pace.has_stopped()
        {
            state.drop_older_than(Duration::ZERO);
        }
    }
}

impl FollowerState {
    /// True if a list has reads left.
    fn is_listing(&self) -> bool {
        self.list.is_active && !(self.list.entries.is_empty() && self.ahead.is_empty())
    }

    /// Returns the number of `selection` among the reads ahead.
    fn position(&self, selection: &Selection) -> Option<usize> {
        self.ahead.iter().position(|(_, ahead)| ahead.selection == *selection)
    }

    /// Returns the read ahead of `selection`, if there is one. An unpredicted read ends the run of
    /// a pattern.
    fn foreseen(&mut self, selection: &Selection) -> Option<Arc<ReadAheadTask>> {
        let expected = self.pattern.expected.take();
        let at = self.position(selection);
        if at.is_some() {
            self.pattern.confirm();
            self.list.unlisted = 0;
            self.statistics.foreseen += 1;
        } else if !self.list.entries.is_empty() {
            self.pass_in_list(selection);
        } else if expected.is_some_and(|expected| expected == *selection) {
            self.pattern.begin_run();
        } else if !self.pattern.was_predicted {
            self.end_run();
        }
        let found = at.and_then(|at| self.ahead.remove(at)).map(|(_, ahead)| ahead);
        self.drop_overtaken();
        found
    }

    /// Finds a read of `selection` in the list; without success several times, gives the list up.
    fn pass_in_list(&mut self, selection: &Selection) {
        let Some(at) = self.list.find(selection) else {
            if self.list.miss() {
                self.end_run();
            }
            return;
        };
        if self.drop_overtaken() {
            self.drop_ahead();
            self.list.skip_to(at);
        } else {
            self.list.take(at);
        }
    }

    /// Drops reads ahead that many reads have overtaken; true if there were any.
    fn drop_overtaken(&mut self) -> bool {
        let before = self.ahead.len();
        while let Some((since, _)) = self.ahead.front()
            && since + SETTINGS.overtaken_max + (self.ahead.len() as u64) < self.statistics.reads
        {
            let overtaken = self.ahead.pop_front();
            self.waste(overtaken.map(|(_, ahead)| ahead));
        }
        self.ahead.len() < before
    }

    fn end_run(&mut self) {
        let wasted = self.drop_ahead();
        self.pattern.end_run(wasted);
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

    /// True if reads are so short that they are not analyzed until they take longer.
    fn are_short(&self) -> bool {
        self.ahead.is_empty()
            && self.list.entries.is_empty()
            && self.statistics.reads > SETTINGS.first_analyzed
            && self.pace.is_short()
    }

    /// Queues reads ahead up to the current depth.
    fn top_up(&mut self, limit: u64, reader: MakeReader<'_>) {
        let is_listed = !self.list.entries.is_empty();
        if !is_listed && (self.list.is_active || !self.pace.is_worth_it()) {
            return;
        }
        let threads = self.pace.at_once();
        let depth = match is_listed {
            true => Some(self.list.depth(threads)),
            false => self.pattern.depth(threads),
        };
        let Some(depth) = depth else {
            self.pattern.expected = self.next().map(|(selection, _)| selection);
            return;
        };
        while self.ahead.len() < depth {
            let Some((selection, bytes)) = self.next() else { return };
            let reserved = workers::reserve(bytes, limit);
            let ahead =
                reserved.map(|room| ReadAheadTask::new(selection.clone(), bytes, reader(), room));
            let Some(ahead) = ahead.filter(|ahead| workers::submit(ahead.clone(), threads)) else {
                if is_listed {
                    self.list.entries.push_front((selection, bytes));
                }
                return;
            };
            self.ahead.push_back((self.statistics.reads, ahead));
        }
    }

    /// Returns the next read to queue, from the list or the pattern.
    fn next(&mut self) -> Option<(Selection, u64)> {
        let listed = self.list.entries.pop_front();
        let is_ahead = |selection: &Selection| self.position(selection).is_some();
        listed.or_else(|| self.pattern.next(self.ahead.len(), is_ahead))
    }
}
