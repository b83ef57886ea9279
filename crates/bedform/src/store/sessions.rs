//! Sessions of a store, and the settling, recovery and collection of their commits.

use super::Store;
use crate::comm::Communicator;
use crate::error::Result;
use crate::log::recover::{LeftoverPolicy, Recovered};
use crate::log::session::{Burst, Session, SessionOptions, decline};
use crate::log::settle::{
    CollectOptions, CollectStatistics, LogSummary, SettleOptions, SettleStatistics,
};
use crate::options::ProgressCallback;

impl Store {
    /// Starts a session of `members`. Collective: all members make this call.
    ///
    /// # Errors
    /// `ReadOnly`; `InvalidArgument` for a store that is no group of Bedform's; `Conflict` if a
    /// dead writer may have promised commits through a burst tier, which must be recovered first:
    /// [`Store::recover`]; those of storage and of the other members.
    pub fn session(
        &self,
        members: Box<dyn Communicator>,
        options: SessionOptions,
    ) -> Result<Session> {
        match self.zarr() {
            Ok(store) => store.session(members, options),
            // The other members wait in this call, and must be told.
            Err(error) => Err(decline(members, error)),
        }
    }

    /// Settles all commits so far: [`Store::settle_with`] the defaults.
    ///
    /// # Errors
    /// As [`Store::settle_with`].
    pub fn settle(&self) -> Result<SettleStatistics> {
        self.settle_with(&SettleOptions::default(), &|_, _| ())
    }

    /// Settles all commits so far: turns them into shards. Readers and writers may continue
    /// meanwhile; later commits stay in the log. Can be stopped and called again.
    ///
    /// # Errors
    /// `ReadOnly`; `InvalidArgument` for a share that does not exist; `NotFound` for a missing
    /// array; `Corrupt` for damaged records; `Interrupted`; those of storage. Shards that were
    /// settled before the error stay settled.
    pub fn settle_with(
        &self,
        options: &SettleOptions,
        progress: ProgressCallback<'_>,
    ) -> Result<SettleStatistics> {
        self.zarr()?.settle_with(options, progress)
    }

    /// As [`Store::settle_with`], by all members: each settles a share of the objects, and the
    /// coordinator drops the commits when all have. Collective; returns the statistics of all
    /// members to each.
    ///
    /// # Errors
    /// As [`Store::settle_with`]: the first error of any member, on all; `InvalidArgument` if the
    /// members name different stores, arrays or times, before anything is settled.
    pub fn settle_together(
        &self,
        members: Box<dyn Communicator>,
        options: &SettleOptions,
        progress: ProgressCallback<'_>,
    ) -> Result<SettleStatistics> {
        match self.zarr() {
            Ok(store) => store.settle_by(members, options, progress),
            // The other members wait in this call, and must be told.
            Err(error) => Err(decline(members, error)),
        }
    }

    /// Summarizes the unsettled commits, and the rest of the log.
    ///
    /// # Errors
    /// `Corrupt` for a damaged or missing log; those of storage.
    pub fn log_summary(&self) -> Result<LogSummary> {
        self.zarr()?.log_summary()
    }

    /// Removes unused objects from the log: old roots, and segments that no commit refers to and
    /// that no writer uses any more. Removes the whole log if nothing is left in it.
    ///
    /// # Errors
    /// `ReadOnly`; `Corrupt` for a damaged root; those of storage. The call can always be repeated.
    pub fn collect_log(&self, options: &CollectOptions) -> Result<CollectStatistics> {
        self.zarr()?.collect_log(options)
    }

    /// Finds the remains of dead writers, and commits their promises. Living writers are not
    /// affected. Can be stopped and called again.
    ///
    /// # Errors
    /// `ReadOnly`; those of storage; `Conflict` where a promise cannot be kept, unless `leftover`
    /// discards it. Its causes: an array was deleted, others have made it larger or appended in the
    /// same place, or the promise was made to the store of which this is a copy.
    pub fn recover(&self, burst: Option<&Burst>, leftover: LeftoverPolicy) -> Result<Recovered> {
        self.zarr()?.recover(burst, leftover)
    }
}
