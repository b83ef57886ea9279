//! Settling in the background while a session writes.
//!
//! The coordinator counts its session's commits that are not settled. Once they reach half of the
//! allowed amount, it settles them in a thread of its own. The members go on in new segments, so
//! that the segments of settled commits can be removed. A commit waits for that thread only if it
//! cannot keep up.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::Builder;

use bedform_format::log::Directory;
use bedform_storage::{Storage, stopped_by, threads_that_fit};

use super::{CommitReach, Session, SessionOptions};
use crate::config::Configuration;
use crate::error::Result;
use crate::log::coordinator::{Coordinator, CoordinatorState};
use crate::log::opened::OpenedStore;
use crate::log::place::LogPlace;
use crate::log::settle::SettleOptions;
use crate::log::stream::DeclaredBoxes;
use crate::threads::workers;
use crate::zarr::publish::random_key;

/// Bytes of memory for chunks and for reads of the log: the program computes at the same time.
const MEMORY_BYTES: u64 = 128 << 20;
/// Threads for which a process under a memory limit needs memory: the one that settles, and one
/// that writes.
const THREADS: usize = 2;

/// Limits of a session's unsettled data, while it settles in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SettleLimits {
    /// Bytes of elements.
    pub bytes: u64,
    /// Number of commits.
    pub commits: u64,
}

impl Default for SettleLimits {
    fn default() -> Self {
        Self { bytes: 1 << 30, commits: 10_000 }
    }
}

impl SettleLimits {
    /// Returns the limits in `bedform.toml` for the store in `storage`, or the default.
    ///
    /// # Errors
    /// Those of the configuration.
    pub fn of_store(storage: &dyn Storage) -> Result<Self> {
        let name = storage.name();
        let directory = Some(Path::new(&name)).filter(|path| path.is_dir());
        let given = Configuration::of_store(directory)?.settle;
        let Self { bytes, commits } = Self::default();
        let given = given.map(|given| (given.bytes, given.commits)).unwrap_or_default();
        Ok(Self {
            bytes: given.0.map_or(bytes, |size| size.bytes().max(1)),
            commits: given.1.map_or(commits, NonZeroU64::get),
        })
    }
}

/// The coordinator's count of commits that wait to be settled.
pub(in crate::log) struct SettleBacklog {
    most: SettleLimits,
    /// Commits that are not known to be settled: number and bytes, in order.
    commits: VecDeque<(u64, u64)>,
    bytes: u64,
    work: Option<BackgroundSettle>,
}

/// A thread that settles, and the flag that stops it.
struct BackgroundSettle {
    outcome: Receiver<Result<()>>,
    stop: Arc<AtomicBool>,
}

impl Drop for BackgroundSettle {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // The thread must end first: it writes for this session.
        let _ = self.outcome.recv();
    }
}

impl SettleBacklog {
    pub(in crate::log) fn new(most: SettleLimits) -> Self {
        Self { most, commits: VecDeque::new(), bytes: 0, work: None }
    }

    /// Counts a visible commit.
    pub(in crate::log) fn note(&mut self, number: u64, directory: &Directory) {
        let touched = directory.sections.iter().flat_map(|section| &section.arrays);
        let bytes = touched.fold(0, |bytes: u64, part| bytes.saturating_add(part.bytes));
        self.commits.push_back((number, bytes));
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn has(&self, share: u64) -> bool {
        self.bytes >= self.most.bytes / share
            || self.commits.len() as u64 >= self.most.commits / share
    }

    /// Checks whether the thread has ended; waits for it while too much is unsettled.
    ///
    /// # Errors
    /// `Interrupted`; those of reading the root.
    pub(in crate::log) fn wait(&mut self, store: &OpenedStore, log: &LogPlace) -> Result<()> {
        while let Some(work) = &self.work {
            let done = match self.has(1) {
                true => workers::answer(&work.outcome)?.is_some(),
                false => work.outcome.try_recv().is_ok(),
            };
            if !done && !self.has(1) {
                return Ok(());
            }
            // The next run meets the same error, and settling at the end reports it.
            self.work = None;
            let (newest, said) = store.newest_root(log)?;
            let settled = newest.map_or(said.settled, |root| root.settled);
            while let Some((number, bytes)) = self.commits.front().copied()
                && number <= settled
            {
                self.commits.pop_front();
                self.bytes -= bytes;
            }
        }
        Ok(())
    }

    fn begin(&mut self, store: &Arc<OpenedStore>, memory_bytes: u64) {
        // With little memory, all of it is left to the program.
        if threads_that_fit(THREADS) < THREADS {
            return;
        }
        let (outcome, stop) = (channel(), Arc::<AtomicBool>::default());
        let (store, stopped) = (store.clone(), stop.clone());
        let settle = move || {
            let memory_bytes = memory_bytes.min(MEMORY_BYTES);
            let options = SettleOptions { memory_bytes, ..SettleOptions::default() };
            let done = stopped_by(&stopped, || store.settle_with(&options, &|_, _| ()));
            let _ = outcome.0.send(done.map(drop));
        };
        // If no thread can start, the next commit tries again.
        if Builder::new().name("bedform-settle".to_owned()).spawn(settle).is_ok() {
            self.work = Some(BackgroundSettle { outcome: outcome.1, stop });
        }
    }
}

impl Coordinator<'_> {
    /// Commits the members' parts, as [`Coordinator::commit_all`], and returns the message about it
    /// for all members. It has the commit's number and, if settling is about to begin, the id of
    /// the session as which they go on in new segments. At [`CommitReach::Node`] they keep their
    /// segments, which may hold promised data that are not drained.
    pub(in crate::log) fn commit(&mut self, parts: &[Vec<u8>]) -> Result<Vec<u8>> {
        let mut told = self.commit_all(parts)?.to_le_bytes().to_vec();
        if let Some(backlog) = &mut self.state.backlog
            && backlog.work.is_none()
            && backlog.has(2)
        {
            let SessionOptions { reach, settle_memory_bytes, .. } = self.member.options;
            match reach {
                CommitReach::Node => backlog.begin(&self.member.store, settle_memory_bytes),
                CommitReach::Shared => told.extend(random_key()?),
            }
        }
        Ok(told)
    }
}

impl Session {
    /// Goes on as session `id`, in new segments; the coordinator settles all commits so far.
    /// Collective.
    ///
    /// # Errors
    /// Of storage, on all members. The session can only end then; its commits stand.
    pub(in crate::log) fn continue_as(&mut self, id: [u8; 16]) -> Result<()> {
        let is_shared = self.member.share.is_some();
        self.member.given_before = self.member.token().number();
        self.end_stream();
        let member = &mut self.member;
        (member.id, member.share) = (id, None);
        member.ends.clear();
        self.declared.values_mut().for_each(DeclaredBoxes::forget);
        if is_shared {
            member.share_segment()?;
        }
        if let Some(CoordinatorState { backlog: Some(backlog), .. }) = &mut self.coordinator {
            backlog.begin(&member.store, member.options.settle_memory_bytes);
        }
        Ok(())
    }

    /// Waits until settling in the background has ended.
    pub(super) fn end_settling(&mut self) {
        let backlog = self.coordinator.as_mut().and_then(|state| state.backlog.take());
        if let Some(work) = backlog.and_then(|backlog| backlog.work) {
            let _ = work.outcome.recv();
        }
    }
}
