//! Reads ahead: predicts the next reads of an array from their pattern, and makes them in the
//! background.
//!
//! # How it works
//!
//! Every read of an array into a buffer calls this module at its begin and its end. Each array of
//! an opened store or file has a `Follower`, which grows the pattern of the reads
//! (`bedform-patterns`) and queues the next reads, each an `ReadAheadTask`. Background threads run these
//! through the ordinary plans into buffers of their own. The predicted read then takes the elements
//! from such a buffer.
//!
//! # Promises
//!
//! - **The same elements as an ordinary read.** A buffer records the state that it was read from
//!   ([`ReadVersion`](crate::run::plan::ReadVersion)): the metadata of the array, the commits over it, the
//!   version of each object. The read looks up the same state as any read does, and takes the
//!   buffer only if both are equal.
//! - **No long wait for a guess.** A read waits for its own read ahead once that has begun, since a
//!   second read would take as long. It stops one that takes far longer than usual, because a
//!   server may not answer. A read ahead that has not begun is cancelled, and the read runs
//!   directly.
//! - **Only along a confirmed pattern.** The first read that a pattern does not predict ends it,
//!   and unused buffers are dropped. The depth grows with the number of correct predictions in a
//!   row, so that a run of a hundred reads wastes at most five. After wasted reads, the next
//!   pattern must predict one read correctly before anything is read.
//! - **Only where it helps.** Reads shorter than the waking of a thread are left alone. So are
//!   reads from memory, unless the program computes between them.
//! - **Bounded memory.** The buffers of a store fit the limit that it was opened with. Those of all
//!   stores of the process fit the largest of these limits.
//! - **No effect on exit and fork.** The threads end after some idle time, and hold nothing that an
//!   exit waits for. A forked child begins without any (`threads/per_process`). No thread here
//!   calls into the program: an array that a callback reads is not read ahead.
//!
//! `auto` follows only the main thread of the process, except for lists of reads. A program with
//! reading threads of its own, such as Dask, already overlaps its reads.
//!
//! The strategy is that of Tang, *Dynamic data prefetching and layout optimizations*, section
//! 2.3.6.
//!
//! | module | holds |
//! |---|---|
//! | `ahead` | one read ahead and its states |
//! | `follower` | the reads of one array: pattern, reads ahead, depth |
//! | `workers` | the threads and their queue |
//! | `statistics` | counts of reads ahead and of their use |

mod ahead;
mod follower;
mod statistics;
mod workers;

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bedform_format::trace::query::{QueryTally, TracedCondition};
use bedform_geometry::Selection;
use bedform_patterns::Pattern;

use crate::options::{OpenOptions, Prefetch};
use crate::run::FollowedReads;
use crate::sidecar::Sidecar;
use crate::trace::{self, KnownPatterns, MadeRead};

pub(crate) use ahead::AheadElements;
pub(crate) use follower::{FollowedRead, MakeReader};
pub use statistics::PrefetchStatistics;

/// The environment variable with the limit for reading ahead, for handles opened with `auto`.
const VARIABLE: &str = "BEDFORM_PREFETCH";

/// Returns the setting of the environment in place of `Auto`.
fn or_environment(prefetch: Prefetch) -> Prefetch {
    let said = std::env::var(VARIABLE).ok().filter(|_| prefetch == Prefetch::Auto);
    // A malformed variable must not keep data from being read.
    said.and_then(|text| Prefetch::parse(&text).ok()).unwrap_or(prefetch)
}

/// A reader of one array for the background threads.
pub(crate) trait BackgroundReader: Send + Sync + Debug {
    /// Reads a selection in the background. `None` if it cannot be read, or if its state cannot be
    /// compared with that of a later read.
    fn read_ahead(&self, selection: &Selection) -> Option<AheadElements>;
}

/// Follows the reads of one opened store or file: predicts and records them.
#[derive(Debug)]
pub(crate) struct HandleReads {
    id: u64,
    /// The most bytes of reads ahead; 0 turns reading ahead off.
    limit: u64,
    is_auto: bool,
    /// The place for recorded reads, if they are recorded; that of snapshots is the store's.
    traces: Option<Arc<trace::TraceTarget>>,
    sidecar: Option<Sidecar>,
    known: OnceLock<KnownPatterns>,
    /// True once the program has passed a list of reads.
    has_lists: AtomicBool,
}

static NEXT: AtomicU64 = AtomicU64::new(1);

impl HandleReads {
    /// Follows a handle opened with these options; `None` if it neither reads ahead nor records.
    pub(crate) fn new(options: &OpenOptions) -> Option<Arc<Self>> {
        let watched = options.sidecar.as_ref().filter(|_| options.records);
        let watched = watched.filter(|sidecar| trace::is_watched(sidecar));
        Self::recording(options, watched.and_then(trace::TraceTarget::new).map(Arc::new))
    }

    /// As [`HandleReads::new`], for a snapshot of the store that `parent` follows. The records of both
    /// wait together: a query makes a snapshot of its own.
    pub(crate) fn of_snapshot(parent: Option<&Self>, options: &OpenOptions) -> Option<Arc<Self>> {
        Self::recording(options, parent.and_then(|parent| parent.traces.clone()))
    }

    fn recording(
        options: &OpenOptions,
        traces: Option<Arc<trace::TraceTarget>>,
    ) -> Option<Arc<Self>> {
        let prefetch = or_environment(options.prefetch);
        let limit = match prefetch {
            Prefetch::Off => 0,
            Prefetch::Auto => options.cache_bytes / 2,
            Prefetch::Bytes(bytes) => bytes,
        };
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let sidecar = options.sidecar.clone();
        let is_auto = prefetch == Prefetch::Auto;
        let (known, has_lists) = (OnceLock::new(), AtomicBool::new(false));
        (limit > 0 || traces.is_some())
            .then(|| Arc::new(Self { id, limit, is_auto, traces, sidecar, known, has_lists }))
    }

    /// True if reads are recorded.
    pub(crate) fn records(&self) -> bool {
        self.traces.is_some()
    }

    /// True if reads may be made ahead.
    pub(crate) fn reads_ahead(&self) -> bool {
        self.limit > 0
    }

    /// Adds a finished read to the trace, if reads are recorded.
    pub(crate) fn record(
        &self,
        array: (&str, &[u64], u64),
        selection: &Selection,
        read: &MadeRead<'_>,
    ) {
        if let Some(place) = &self.traces {
            trace::record(place, array, selection, read);
        }
    }

    /// Adds a finished query to the trace of an array, if reads are recorded.
    pub(crate) fn record_query(
        &self,
        array: (&str, &[u64], u64),
        condition: TracedCondition,
        tally: &QueryTally,
    ) {
        if let Some(place) = &self.traces {
            trace::record_query(place, array, condition, tally);
        }
    }

    /// Returns the patterns of an array from earlier runs.
    fn known(&self, path: &str) -> &[Pattern] {
        let load = || self.sidecar.as_ref().map(trace::known_patterns).unwrap_or_default();
        self.known.get_or_init(load).get(path).map_or(&[], Vec::as_slice)
    }

    /// Follows a read of `bytes` bytes of the array at `path`, of shape `shape`, from its begin.
    /// `None` if the read is not followed. `reader` makes the background reader.
    pub(crate) fn begin<'a>(
        &self,
        path: &str,
        shape: &[u64],
        (selection, bytes): (&Selection, u64),
        reader: MakeReader<'a>,
    ) -> Option<FollowedRead<'a>> {
        if self.limit == 0 {
            return None;
        }
        if self.is_auto && !workers::is_main_thread() {
            // A list counts for reads of every thread.
            let has_lists = self.has_lists.load(Ordering::Relaxed);
            let follower = has_lists.then(|| workers::follower_so_far(self, path)).flatten()?;
            let is_listed = follower.is_listed();
            return is_listed.then(|| follower::begin(follower, shape, selection, bytes, reader));
        }
        Some(follower::begin(workers::follower(self, path), shape, selection, bytes, reader))
    }

    /// Reads these selections of the array at `path` ahead in turn, as the program uses them; drops
    /// earlier predictions. Each comes with the bytes of its result.
    pub(crate) fn foresee(
        &self,
        path: &str,
        selections: Vec<(Selection, u64)>,
        reader: MakeReader<'_>,
    ) {
        if self.limit > 0 {
            self.has_lists.store(true, Ordering::Relaxed);
            workers::follower(self, path).foresee(selections, reader);
        }
    }

    /// Returns the statistics of the reads of the array at `path`, if there were any.
    pub(crate) fn followed_reads(
        &self,
        path: &str,
        selection: &Selection,
    ) -> Option<FollowedReads> {
        workers::follower_so_far(self, path).map(|follower| follower.followed_reads(selection))
    }

    /// Drops all buffers and learned patterns of this handle.
    pub(crate) fn forget(&self) {
        workers::forget(self);
    }

    /// Returns the statistics of all arrays of this handle.
    pub(crate) fn statistics(&self) -> PrefetchStatistics {
        workers::statistics_of(self)
    }
}

impl Drop for HandleReads {
    fn drop(&mut self) {
        workers::forget(self);
    }
}
