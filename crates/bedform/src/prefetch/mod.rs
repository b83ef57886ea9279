//! Reads ahead: what the reads of a process do again and again is read before it is asked for.
//!
//! # How
//!
//! Every read of an array into a buffer comes by here twice, when it begins and when it has ended. A
//! [`Follower`] for each array of an opened store or file grows the pattern of the reads
//! (`bedform-patterns`) and keeps the reads that it says come next, each an [`Ahead`]. A thread in the
//! background runs them as any other read, through the same plans, into buffers of their own. The read that
//! was foreseen takes the elements from there.
//!
//! # Promises
//!
//! - **Nothing else is returned than a read would.** A buffer says what it was read as of ([`AsOf`](crate::run::plan::AsOf)): the
//!   state of the array, the commits over it, the version of each object. The read looks all of this up as
//!   any read does, and takes the buffer only if it is the same; else it reads.
//! - **No read waits for a guess.** A read that was foreseen and has begun is waited for: it takes no longer
//!   than to begin anew. If it does, by far, it is stopped: a server may have fallen silent. Whatever has not
//!   begun is taken back, and the read is made at once.
//! - **Only where a pattern is sure.** Nothing is read ahead before a pattern was right; the first read that
//!   is another ends it, and what was not used is dropped. How many reads are ahead grows with how many were
//!   foreseen in a row, so that a run of a hundred wastes at most five. Where guesses were in vain, the next
//!   pattern must be right once more before anything is read.
//! - **Only where it helps.** Reads that are over sooner than a thread wakes are left alone, and those
//!   between which the program does nothing else while nobody waits for a device.
//! - **Bounded.** Buffers ahead take no more than the limit that the store was opened with, all stores of
//!   the process together no more than the largest of these limits.
//! - **Nothing is left behind.** The threads end when there was nothing to do for a while, and hold nothing
//!   that an exit waits for. A forked child begins without any (`threads/per_process`). No thread here calls
//!   into the program: variables that a callback reads are not read ahead.
//!
//! `auto` follows the main thread of the process alone, but for lists that are handed over: a program with
//! reading threads of its own, such as Dask, has more than one read under way already.
//!
//! The strategy is that of Tang, *Dynamic data prefetching and layout optimizations*, section 2.3.6.
//!
//! | module | holds |
//! |---|---|
//! | `ahead` | one read ahead, and what becomes of it |
//! | `follower` | the reads of one array: pattern, reads ahead, how deep |
//! | `workers` | the threads, and the queue that they work on |
//! | `statistics` | what was read ahead, and what was used |

mod ahead;
mod follower;
mod statistics;
mod workers;

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bedform_geometry::Selection;
use bedform_patterns::Pattern;

use crate::options::{OpenOptions, Prefetch};
use crate::run::FollowedReads;
use crate::sidecar::Sidecar;
use crate::trace::{self, KnownPatterns, MadeRead};

pub(crate) use ahead::ReadAhead;
pub(crate) use follower::{Followed, MakeReader};
pub use statistics::PrefetchStatistics;

/// The variable that says how much may be read ahead for whoever opens without saying anything.
const VARIABLE: &str = "BEDFORM_PREFETCH";

/// What the environment says where nothing else does.
fn or_environment(prefetch: Prefetch) -> Prefetch {
    let said = std::env::var(VARIABLE).ok().filter(|_| prefetch == Prefetch::Auto);
    // What is wrong in the environment must not keep data from being read.
    said.and_then(|text| Prefetch::parse(&text).ok()).unwrap_or(prefetch)
}

/// Whoever reads an array for the threads in the background.
pub(crate) trait ReadsAhead: Send + Sync + Debug {
    /// Reads a selection, of which nothing is known; nothing where it cannot be read, or not be told from other
    /// reads later.
    fn read_ahead(&self, selection: &Selection) -> Option<ReadAhead>;
}

/// Follows the reads of one opened store or file. What it knows goes with it.
#[derive(Debug)]
pub(crate) struct Follows {
    id: u64,
    /// Bytes that may be ahead; 0 where nothing is read ahead.
    limit: u64,
    is_auto: bool,
    /// Where the reads are recorded, if they are.
    traces: Option<trace::Place>,
    sidecar: Option<Sidecar>,
    known: OnceLock<KnownPatterns>,
    /// True once a list of reads was handed over.
    has_lists: AtomicBool,
}

static NEXT: AtomicU64 = AtomicU64::new(1);

impl Follows {
    /// For a handle that was opened like that; nothing where nothing is to be read ahead and none is recorded.
    pub(crate) fn new(options: &OpenOptions) -> Option<Arc<Self>> {
        let prefetch = or_environment(options.prefetch);
        let limit = match prefetch {
            Prefetch::Off => 0,
            Prefetch::Auto => options.cache_bytes / 2,
            Prefetch::Bytes(bytes) => bytes,
        };
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let sidecar = options.sidecar.clone();
        let watched = sidecar.as_ref().filter(|_| options.records);
        let watched = watched.filter(|sidecar| trace::is_watched(sidecar));
        let traces = watched.and_then(|sidecar| trace::Place::new(id, sidecar));
        let is_auto = prefetch == Prefetch::Auto;
        let (known, has_lists) = (OnceLock::new(), AtomicBool::new(false));
        (limit > 0 || traces.is_some())
            .then(|| Arc::new(Self { id, limit, is_auto, traces, sidecar, known, has_lists }))
    }

    /// True if reads are recorded.
    pub(crate) fn records(&self) -> bool {
        self.traces.is_some()
    }

    /// Records a read that has ended, where reads are recorded.
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

    /// The patterns of an array that earlier runs had.
    fn known(&self, path: &str) -> &[Pattern] {
        let load = || self.sidecar.as_ref().map(trace::known_patterns).unwrap_or_default();
        self.known.get_or_init(load).get(path).map_or(&[], Vec::as_slice)
    }

    /// A read of `bytes` bytes of the array at `path` begins; nothing where it is not followed. `reader` gives who
    /// reads it ahead, of an array of `shape`.
    pub(crate) fn begin<'a>(
        &self,
        path: &str,
        shape: &[u64],
        read: (&Selection, u64),
        reader: MakeReader<'a>,
    ) -> Option<Followed<'a>> {
        if self.limit == 0 {
            return None;
        }
        if self.is_auto && !workers::is_main_thread() {
            // What a list says counts for whoever reads it.
            let has_lists = self.has_lists.load(Ordering::Relaxed);
            let follower = has_lists.then(|| workers::follower_so_far(self, path)).flatten()?;
            return follower.is_listed().then(|| follower::begin(follower, shape, read, reader));
        }
        Some(follower::begin(workers::follower(self, path), shape, read, reader))
    }

    /// Reads these selections of the array at `path` ahead, one after the other, as they are used; instead of what
    /// was foreseen before.
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

    /// What is known of the reads of the array at `path`, if there were any.
    pub(crate) fn followed_reads(
        &self,
        path: &str,
        selection: &Selection,
    ) -> Option<FollowedReads> {
        workers::follower_so_far(self, path).map(|follower| follower.followed_reads(selection))
    }

    /// Drops what is ahead, and what is known of the reads.
    pub(crate) fn forget(&self) {
        workers::forget(self);
    }

    /// What was read ahead, of all arrays.
    pub(crate) fn statistics(&self) -> PrefetchStatistics {
        workers::statistics_of(self)
    }
}

impl Drop for Follows {
    fn drop(&mut self) {
        workers::forget(self);
        if self.traces.is_some() {
            trace::forget(self.id);
        }
    }
}
