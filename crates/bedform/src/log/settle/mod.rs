//! Settling: the conversion of commits into shards.
//!
//! Settling works in rounds. A round has as many objects as fit into the memory limit. Each object
//! is built from its stored chunks and from the commits after its stamp, and is written with a new
//! stamp. The log is read in the order of its data. Settling may stop anywhere and be repeated: an
//! object with a later stamp is skipped. Readers see the same values before and after.
//!
//! | module | holds |
//! |---|---|
//! | `plan` | the objects that commits touch |
//! | `choose` | codecs for arrays that have none yet |
//! | `read` | the data of a round, in the order of the log |
//! | `ahead` | threads that read the data of a round in advance |
//! | `stream` | windows of the log, cut into boxes |
//! | `lay`, `walk`, `split` | boxes, copied into chunks |
//! | `round` | the objects of a round; builds one round while the last is written |
//! | `shards` | the list of settled shards, while a log has commits |
//! | `collect` | removal of settled commits, and of objects that nobody needs |
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
use crate::options::ProgressCallback;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bedform_format::ObjectPath;
use bedform_storage::Durability;

use self::ahead::WindowPool;
use self::round::Rounds;
use self::write::SettleCounters;
use crate::comm::{CollectiveCall, Communicator, MemberGroup, agree, decide};
use crate::error::{Error, Result};
use crate::memory;
use crate::write::sink::Sink;

pub use self::collect::{CollectOptions, CollectStatistics, LogSummary};

/// Least memory, in bytes, with which settling proceeds, if slowly.
const MEMORY_LEAST_BYTES: u64 = 8 << 20;

/// Options of settling.
///
/// ```
/// let mut options = bedform::log::settle::SettleOptions::default();
/// options.memory_bytes = 1 << 30;
/// assert!(options.arrays.is_none(), "all of them");
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SettleOptions {
    /// Limit in bytes for chunks and for data read from the log: of this process, or of all members
    /// of a node together. Each process takes another 64 MiB and some 40 KiB for each array, which
    /// are not counted. An object that does not fit is built chunk by chunk, and may read the log
    /// more than once.
    pub memory_bytes: u64,
    /// The arrays to settle; `None` for all. Commits stay in the log until all arrays are settled.
    pub arrays: Option<Vec<ObjectPath>>,
    /// The share to settle, from 0, and the number of shares: for many processes, one share each. A
    /// later call for everything finds the shares settled, and drops the commits.
    pub part: (u64, u64),
    /// As in [`CollectOptions`]. If it is zero, settled data leave the log at once. A reader that
    /// still needs them takes the newest root and starts again.
    pub grace: Duration,
}

impl Default for SettleOptions {
    fn default() -> Self {
        Self { memory_bytes: 512 << 20, arrays: None, part: (0, 1), grace: Duration::ZERO }
    }
}

impl SettleOptions {
    /// Returns the options of one of `members`, which settle together.
    fn share(&self, members: &MemberGroup) -> Self {
        let part = (u64::from(members.rank()), u64::from(members.size()));
        let on_node = members.node().map_or(1, Communicator::size);
        Self { part, memory_bytes: self.memory_bytes / u64::from(on_node), ..self.clone() }
    }

    /// Returns the text of the call, with the options that must be equal on all members.
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

/// Counts of the work that settling did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SettleStatistics {
    /// Commits that are in shards completely now, and no longer in the log.
    pub commits: u64,
    /// Objects written.
    pub objects: u64,
    /// Bytes of those objects.
    pub bytes: u64,
    /// Bytes of data read from the log in rounds.
    pub read_bytes: u64,
    /// Rounds of settling.
    pub rounds: u64,
    /// Objects that another program had written. Nothing tells whether it wrote them before or
    /// after the commits that were settled into them.
    pub rewritten: u64,
}

impl SettleStatistics {
    fn numbers(&mut self) -> [&mut u64; 6] {
        let Self { commits, objects, bytes, read_bytes, rounds, rewritten } = self;
        [commits, objects, bytes, read_bytes, rounds, rewritten]
    }

    /// Encodes the counts for other members, each in eight bytes, little-endian.
    fn encode(mut self) -> Vec<u8> {
        self.numbers().into_iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    /// Adds the encoded counts of another member.
    fn add(&mut self, encoded: &[u8]) {
        for (number, bytes) in self.numbers().into_iter().zip(encoded.as_chunks::<8>().0) {
            *number = number.saturating_add(u64::from_le_bytes(*bytes));
        }
    }
}

impl OpenedStore {
    /// Turns all commits so far into shards. Readers and writers continue meanwhile; later commits
    /// stay in the log. An interrupted call can be repeated.
    ///
    /// # Errors
    /// `ReadOnly`; `InvalidArgument` for a share that does not exist; `NotFound` for an array that
    /// does not exist; `Corrupt` for damaged records; `Interrupted`; those of storage. Objects that
    /// were settled before the error stay settled.
    pub(crate) fn settle_with(
        self: &Arc<Self>,
        options: &SettleOptions,
        progress: ProgressCallback<'_>,
    ) -> Result<SettleStatistics> {
        self.check_writable()?;
        let (number, of) = options.part;
        if number >= of {
            return Err(Error::invalid(format!("there is no share {number} of {of}")));
        }
        let counts = SettleCounters::default();
        // Another process that settles may be ahead; then a newer snapshot is taken.
        let commits = self.in_one_snapshot(|| self.settle_once(options, progress, &counts))?;
        Ok(SettleStatistics { commits, ..counts.statistics() })
    }

    /// Settles together, as [`OpenedStore::settle_together`], for members that are not in a
    /// session.
    ///
    /// # Errors
    /// As [`OpenedStore::settle_together`]; `InvalidArgument` if the members name different stores,
    /// arrays or times, before anything is settled.
    pub(crate) fn settle_by(
        self: &Arc<Self>,
        members: Box<dyn Communicator>,
        options: &SettleOptions,
        progress: ProgressCallback<'_>,
    ) -> Result<SettleStatistics> {
        let members = MemberGroup::by_node(members)?;
        // A store without a key has no log, and nothing to settle.
        let store = self.log_place().map_or([0; 16], |log| log.store);
        members.enter(CollectiveCall::of("store", store, options.call()).at(self.storage.name()));
        decide(&members, self.check_writable().map(|()| Vec::new()), |_| Ok(Vec::new()))?;
        self.settle_together(&members, options, progress)
    }

    /// Settles everything, as [`OpenedStore::settle_with`], by all members. Each settles a share of
    /// the objects, and the coordinator drops the commits when all have ended. The members of a
    /// node divide its memory among them. Collective; returns the counts of all members together.
    ///
    /// # Errors
    /// As [`OpenedStore::settle_with`]: the first error of any member, on all.
    pub(crate) fn settle_together(
        self: &Arc<Self>,
        members: &MemberGroup,
        options: &SettleOptions,
        progress: ProgressCallback<'_>,
    ) -> Result<SettleStatistics> {
        let mine = agree(members, self.settle_with(&options.share(members), progress))?;
        let told = decide(members, Ok(mine.encode()), |parts| {
            let mut all = self.settle_with(options, progress)?;
            parts.iter().for_each(|part| all.add(part));
            Ok(all.encode())
        })?;
        let mut all = SettleStatistics::default();
        all.add(&told);
        Ok(all)
    }

    /// Makes the names of objects durable that were found settled, before the log drops their
    /// commits. The process that published them may have died before it synced the directories.
    fn sync_found(&self, plans: &[plan::SettlePlan], found: &[(usize, u64)]) -> Result<()> {
        if self.options.durability == Durability::Process {
            return Ok(());
        }
        let mut directories = BTreeSet::new();
        for (plan, number) in found {
            directories.extend(plans[*plan].directories(*number)?);
        }
        Ok(directories.iter().try_for_each(|directory| self.storage.sync(directory))?)
    }

    /// Settles the commits of the newest root. Returns the number of commits that left the log.
    fn settle_once(
        self: &Arc<Self>,
        options: &SettleOptions,
        progress: ProgressCallback<'_>,
        counts: &SettleCounters,
    ) -> Result<u64> {
        let SettleOptions { memory_bytes, arrays, part, grace } = options;
        self.refresh_if_stale()?;
        let view = self.snapshot()?.view.filter(|view| view.root.has_commits());
        let Some(view) = view else {
            // Writers that have ended since the last settling may have left segments to remove.
            if self.log_place().is_ok() {
                self.collect_log(&CollectOptions { grace: *grace, dry_run: false })?;
            }
            return Ok(0);
        };
        let memory_bytes = memory::granted(*memory_bytes, MEMORY_LEAST_BYTES)?;
        // An object that is built chunk by chunk keeps blocks in the cache: a quarter of the
        // memory.
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
            spare: WindowPool::default(),
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
