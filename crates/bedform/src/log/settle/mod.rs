//! Commits become shards.
//!
//! In rounds: as many objects as fit into the memory are built of what is stored and what the commits
//! since their stamps lay over it, and written anew with a stamp that names the last of them. The log
//! is read in the order of its data. Any part of it can be repeated, and cut off anywhere: an object
//! with a later stamp needs nothing any more. Readers see the same before and after.
//!
//! | module | holds |
//! |---|---|
//! | `plan` | which objects commits touch |
//! | `choose` | codecs of arrays that have none yet |
//! | `read` | the data of a round, in the order of the log |
//! | `ahead` | the same, read by threads while it is laid |
//! | `stream` | what was read into boxes |
//! | `lay`, `walk`, `split` | boxes into chunks |
//! | `round` | which objects a round has; building one while the last is written |
//! | `shards` | the list of settled shards, while a log has commits |
//! | `collect` | what is settled leaves the log |
//! | `write` | the objects of a round: encoded, written, their stamps read back |

mod ahead;
mod choose;
mod collect;
mod lay;
mod plan;
mod read;
mod round;
mod shards;
mod split;
mod stream;
#[cfg(test)]
mod tests;
mod walk;
mod write;

use crate::log::opened::OpenedStore;
use crate::log::place::SUFFIX;
use crate::log::shapes::publish_grown;
use crate::options::Progress;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bedform_format::ObjectPath;
use bedform_storage::Durability;

use self::ahead::Spare;
use self::round::Rounds;
use self::write::Counts;
use crate::comm::{Call, Communicator, Group, agree, decide};
use crate::error::{Error, Result};
use crate::memory;
use crate::write::sink::Sink;

pub use self::collect::{CollectOptions, CollectStatistics, LogSummary};

/// Memory with which settling goes on, if slowly.
const MEMORY_LEAST_BYTES: u64 = 8 << 20;

/// How commits become shards.
///
/// ```
/// let mut options = bedform::log::settle::SettleOptions::default();
/// options.memory_bytes = 1 << 30;
/// assert!(options.arrays.is_none(), "all of them");
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SettleOptions {
    /// The limit for chunks and for what is read of the log; what the process takes beside those, 64 MiB
    /// and some 40 KiB an array, is not counted. Objects that do not fit are built chunk by chunk, which
    /// may read the log more than once.
    pub memory_bytes: u64,
    /// Only these arrays; commits stay in the log until all arrays are settled.
    pub arrays: Option<Vec<ObjectPath>>,
    /// Only the share of this number, from 0, of so many: for many processes, one share each. Who
    /// settles everything afterwards finds it done, and drops the commits.
    pub part: (u64, u64),
    /// As in [`CollectOptions`]. Without it what was settled leaves the log at once: readers that
    /// still need it notice, take the newest root and start again.
    pub grace: Duration,
}

impl Default for SettleOptions {
    fn default() -> Self {
        Self { memory_bytes: 512 << 20, arrays: None, part: (0, 1), grace: Duration::ZERO }
    }
}

impl SettleOptions {
    /// The call with what all members have to give alike.
    fn call(&self) -> String {
        let Self { memory_bytes: _, arrays, part: _, grace } = self;
        let mut given = Vec::new();
        if let Some(arrays) = arrays {
            let arrays: Vec<_> = arrays.iter().map(ObjectPath::as_str).collect();
            given.push(format!("arrays {arrays:?}"));
        }
        if !grace.is_zero() {
            given.push(format!("grace {grace:?}"));
        }
        format!("settle({})", given.join(", "))
    }
}

/// What settling did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SettleStatistics {
    /// Commits that are in shards now, all of each, and no longer in the log.
    pub commits: u64,
    /// Objects written.
    pub objects: u64,
    /// Bytes of those objects.
    pub bytes: u64,
    /// Bytes of data read from the log in rounds.
    pub read_bytes: u64,
    /// Rounds.
    pub rounds: u64,
    /// Objects that another program had written, before or after the commits that lie over what it
    /// wrote now: nothing tells which.
    pub rewritten: u64,
}

impl SettleStatistics {
    fn numbers(&mut self) -> [&mut u64; 6] {
        let Self { commits, objects, bytes, read_bytes, rounds, rewritten } = self;
        [commits, objects, bytes, read_bytes, rounds, rewritten]
    }

    /// As bytes, for other members.
    fn encode(mut self) -> Vec<u8> {
        self.numbers().into_iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    /// Adds those of another member.
    fn add(&mut self, encoded: &[u8]) {
        for (number, bytes) in self.numbers().into_iter().zip(encoded.as_chunks::<8>().0) {
            *number = number.saturating_add(u64::from_le_bytes(*bytes));
        }
    }
}

impl OpenedStore {
    /// Turns all commits so far into shards. Readers and writers go on meanwhile; what is committed
    /// meanwhile stays in the log. Can be stopped and called again.
    ///
    /// # Errors
    /// `ReadOnly`; `InvalidArgument` for a share that is none; `NotFound` for an array that is not there; `Corrupt` for damaged records;
    /// `Interrupted`; those of storage. What was settled before the error stays settled.
    pub(crate) fn settle_with(
        self: &Arc<Self>,
        options: &SettleOptions,
        progress: Progress<'_>,
    ) -> Result<SettleStatistics> {
        self.check_writable()?;
        let (number, of) = options.part;
        if number >= of {
            return Err(Error::invalid(format!("there is no share {number} of {of}")));
        }
        let counts = Counts::default();
        // Who settles at the same time may be ahead of us.
        let commits = self.in_one_snapshot(|| self.settle_once(options, progress, &counts))?;
        Ok(SettleStatistics { commits, ..counts.statistics() })
    }

    /// As [`OpenedStore::settle_together`], of members that are not in a session.
    ///
    /// # Errors
    /// As [`OpenedStore::settle_together`]; `InvalidArgument` if the members name different stores, arrays or
    /// times, before anything is settled.
    pub(crate) fn settle_by(
        self: &Arc<Self>,
        members: Box<dyn Communicator>,
        options: &SettleOptions,
        progress: Progress<'_>,
    ) -> Result<SettleStatistics> {
        let members = Group::by_node(members)?;
        // A store without a key has no log, and nothing to settle.
        let store = self.log_place().map_or([0; 16], |log| log.store);
        members.enter(Call::of("store", store, options.call()).at(self.storage.name()));
        decide(&members, self.check_writable().map(|()| Vec::new()), |_| Ok(Vec::new()))?;
        self.settle_together(&members, options, progress)
    }

    /// As [`Store::settle_with`] everything, by all members: each settles a share of the objects, and
    /// the coordinator drops the commits when all have. Collective; gives each member what all did.
    ///
    /// # Errors
    /// As [`Store::settle_with`]: the first error of any member, on all.
    pub(crate) fn settle_together(
        self: &Arc<Self>,
        members: &Group,
        options: &SettleOptions,
        progress: Progress<'_>,
    ) -> Result<SettleStatistics> {
        let part = (u64::from(members.rank()), u64::from(members.size()));
        let share = SettleOptions { part, ..options.clone() };
        let mine = agree(members, self.settle_with(&share, progress))?;
        let told = decide(members, Ok(mine.encode()), |parts| {
            let mut all = self.settle_with(options, progress)?;
            parts.iter().for_each(|part| all.add(part));
            Ok(all.encode())
        })?;
        let mut all = SettleStatistics::default();
        all.add(&told);
        Ok(all)
    }

    /// Makes the names of objects durable that were found settled, before the log forgets what is in them:
    /// whoever published them may not have lived to do that.
    fn sync_found(&self, plans: &[plan::ArrayPlan], found: &[(usize, u64)]) -> Result<()> {
        if self.options.durability == Durability::Process {
            return Ok(());
        }
        let mut directories = BTreeSet::new();
        for (plan, number) in found {
            directories.extend(plans[*plan].directories(*number)?);
        }
        Ok(directories.iter().try_for_each(|directory| self.storage.sync(directory))?)
    }

    /// Settles the commits of the newest root; gives how many need nothing any more.
    fn settle_once(
        self: &Arc<Self>,
        options: &SettleOptions,
        progress: Progress<'_>,
        counts: &Counts,
    ) -> Result<u64> {
        let SettleOptions { memory_bytes, arrays, part, grace } = options;
        self.look_unless_always()?;
        let view = self.snapshot()?.view.filter(|view| view.root.has_commits());
        let Some(view) = view else {
            // Writers that have ended since the last time may have left something.
            if self.log_place().is_ok() {
                self.collect_log(&CollectOptions { grace: *grace, dry_run: false })?;
            }
            return Ok(0);
        };
        let memory_bytes = memory::granted(*memory_bytes, MEMORY_LEAST_BYTES)?;
        // What objects are built from chunk by chunk is kept within the limit, too.
        let view = Arc::new(view.with_cap(memory_bytes / 4));
        let mut plans = plan::plan(self, &view, arrays.as_deref())?;
        choose::choose_codecs(self, &view, &mut plans)?;
        let pinned: Vec<_> = plans.iter().map(|plan| plan.pinned(self, &view)).collect();
        let kept_beside = if grace.is_zero() { None } else { Some(SUFFIX) };
        let shards: Vec<_> = pinned.iter().map(|array| array.sink(kept_beside)).collect();
        let sinks: Vec<_> = shards.iter().map(|sink| sink as &dyn Sink).collect();
        let objects = || plans.iter().flat_map(|plan| &plan.objects);
        let rounds = Rounds {
            store: self,
            view: &view,
            plans: &plans,
            sinks: &sinks,
            part: *part,
            memory_bytes,
            total_bytes: objects().fold(0, |all, object| all.saturating_add(object.bytes)),
            progress,
            counts,
            spare: Spare::default(),
        };
        rounds.run()?;
        drop(rounds);
        if *part != (0, 1) {
            return Ok(0);
        }
        self.sync_found(&plans, &counts.take_found())?;
        let settled = shards::list(&plans, &mut counts.take_settled());
        if arrays.is_some() {
            self.list_settled(&settled)?;
            return Ok(0);
        }
        publish_grown(self, &view)?;
        self.drop_commits(&view, &settled)?;
        self.collect_log(&CollectOptions { grace: *grace, dry_run: false })?;
        view.commit_count()
    }
}
