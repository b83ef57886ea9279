//! Sessions of a store, and what becomes of their commits.

use super::Store;
use crate::comm::Communicator;
use crate::error::Result;
use crate::log::recover::{Leftover, Recovered};
use crate::log::session::{Burst, Session, SessionOptions, decline};
use crate::log::settle::{
    CollectOptions, CollectStatistics, LogSummary, SettleOptions, SettleStatistics,
};
use crate::options::Progress;

impl Store {
    /// Starts a session of `members`, all of which make this call.
    ///
    /// # Errors
    /// `ReadOnly`; `InvalidArgument` for a store that is no group of Bedform's; `Conflict` if a writer has
    /// died that may have promised commits through a burst tier, which come first: [`Store::recover`];
    /// those of storage and of the other members.
    pub fn session(
        &self,
        members: Box<dyn Communicator>,
        options: SessionOptions,
    ) -> Result<Session> {
        match self.zarr() {
            Ok(store) => store.session(members, options),
            // The others are waiting in this call.
            Err(error) => Err(decline(members, error)),
        }
    }

    /// Turns all commits so far into shards: [`Store::settle_with`] the defaults.
    ///
    /// # Errors
    /// As [`Store::settle_with`].
    pub fn settle(&self) -> Result<SettleStatistics> {
        self.settle_with(&SettleOptions::default(), &|_, _| ())
    }

    /// Turns all commits so far into shards. Readers and writers go on meanwhile; what is committed
    /// meanwhile stays in the log. Can be stopped and called again.
    ///
    /// # Errors
    /// `ReadOnly`; `InvalidArgument` for a share that is none; `NotFound` for an array that is not there; `Corrupt` for damaged records;
    /// `Interrupted`; those of storage. What was settled before the error stays settled.
    pub fn settle_with(
        &self,
        options: &SettleOptions,
        progress: Progress<'_>,
    ) -> Result<SettleStatistics> {
        self.zarr()?.settle_with(options, progress)
    }

    /// As [`Store::settle_with`] everything, by all members: each settles a share of the objects, and
    /// the coordinator drops the commits when all have. Collective; gives each member what all did.
    ///
    /// # Errors
    /// As [`Store::settle_with`]: the first error of any member, on all; `InvalidArgument` if the members
    /// name different stores, arrays or times, before anything is settled.
    pub fn settle_together(
        &self,
        members: Box<dyn Communicator>,
        options: &SettleOptions,
        progress: Progress<'_>,
    ) -> Result<SettleStatistics> {
        match self.zarr() {
            Ok(store) => store.settle_by(members, options, progress),
            // The others are waiting in this call.
            Err(error) => Err(decline(members, error)),
        }
    }

    /// What is committed and not settled, and whether there is more.
    ///
    /// # Errors
    /// `Corrupt` for a damaged or missing log; those of storage.
    pub fn log_summary(&self) -> Result<LogSummary> {
        self.zarr()?.log_summary()
    }

    /// Removes what nobody needs any more from the log: segments that no commit refers to and whose
    /// writers are gone, old roots, and the whole log if nothing is left in it.
    ///
    /// # Errors
    /// `ReadOnly`; `Corrupt` for a damaged root; those of storage. Going on is always possible.
    pub fn collect_log(&self, options: &CollectOptions) -> Result<CollectStatistics> {
        self.zarr()?.collect_log(options)
    }

    /// Finds what writers that died left behind, and brings about what they had promised. Writers that
    /// live are not touched. Can be stopped and called again.
    ///
    /// # Errors
    /// `ReadOnly`; `Conflict` where a promise cannot be kept, unless what is left over is discarded:
    /// because an array was deleted, or made larger by others, or the promise was made to the store of
    /// which this is a copy; or where what was left over cannot be committed any more, because others
    /// have appended where it was appended, or an array was deleted; those of storage.
    pub fn recover(&self, burst: Option<&Burst>, leftover: Leftover) -> Result<Recovered> {
        self.zarr()?.recover(burst, leftover)
    }
}
