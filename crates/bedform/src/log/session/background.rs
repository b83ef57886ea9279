//! Settling while a session writes.
//!
//! The coordinator counts what its session has committed and nobody has settled. Once that is half of what may wait, it
//! settles in a thread of its own, and the members go on in new segments, so that those which are being settled can
//! go. A commit waits for that thread only where it cannot keep up.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::Builder;

use bedform_format::log::Directory;
use bedform_storage::{Storage, stopped_by, threads_that_fit};

use super::{Reach, Session};
use crate::config::Configuration;
use crate::error::Result;
use crate::log::opened::OpenedStore;
use crate::log::place::LogPlace;
use crate::log::settle::SettleOptions;
use crate::threads::workers;
use crate::zarr::publish::random_key;

/// Memory for chunks and for what is read of the log: the program computes beside it.
const MEMORY_BYTES: u64 = 128 << 20;
/// Threads for which a process under a limit has to have memory: the one that settles and one that writes.
const THREADS: usize = 2;

/// What of a session may wait to be settled, while it settles in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InBackground {
    /// Bytes of elements.
    pub bytes: u64,
    /// Commits.
    pub commits: u64,
}

impl Default for InBackground {
    fn default() -> Self {
        Self { bytes: 1 << 30, commits: 10_000 }
    }
}

impl InBackground {
    /// As `bedform.toml` says for the store in `storage`, or the default.
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

/// What the coordinator knows of what waits.
pub(in crate::log) struct Waiting {
    most: InBackground,
    /// Commits that nobody is known to have settled: their numbers and bytes, in order.
    commits: VecDeque<(u64, u64)>,
    bytes: u64,
    work: Option<Work>,
}

/// A thread that settles.
struct Work {
    outcome: Receiver<Result<()>>,
    stop: Arc<AtomicBool>,
}

impl Drop for Work {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Until it has ended: what it writes is its session's.
        let _ = self.outcome.recv();
    }
}

impl Waiting {
    pub(super) fn new(most: InBackground) -> Self {
        Self { most, commits: VecDeque::new(), bytes: 0, work: None }
    }

    /// Notes a commit that is visible.
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

    /// Looks whether the thread is done; waits for it where too much waits.
    ///
    /// # Errors
    /// `Interrupted`; those of reading the root.
    fn look(&mut self, store: &OpenedStore, log: &LogPlace) -> Result<()> {
        while let Some(work) = &self.work {
            let done = match self.has(1) {
                true => workers::answer(&work.outcome)?.is_some(),
                false => work.outcome.try_recv().is_ok(),
            };
            if !done && !self.has(1) {
                return Ok(());
            }
            // What it failed with the next one meets again, and who settles at the end is told.
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

    fn begin(&mut self, store: &Arc<OpenedStore>) {
        // The program has what little memory there is.
        if threads_that_fit(THREADS) < THREADS {
            return;
        }
        let (outcome, stop) = (channel(), Arc::<AtomicBool>::default());
        let (store, stopped) = (store.clone(), stop.clone());
        let settle = move || {
            let options = SettleOptions { memory_bytes: MEMORY_BYTES, ..SettleOptions::default() };
            let done = stopped_by(&stopped, || store.settle_with(&options, &|_, _| ()));
            let _ = outcome.0.send(done.map(drop));
        };
        // Without a thread the next commit tries again.
        if Builder::new().name("bedform-settle".to_owned()).spawn(settle).is_ok() {
            self.work = Some(Work { outcome: outcome.1, stop });
        }
    }
}

impl Session {
    /// On the coordinator: what all are told of a commit: its number, and, where what was committed is about to be
    /// settled, which session they go on as, in new segments. What a burst tier has promised and not drained keeps
    /// its segments.
    pub(in crate::log) fn commit_told(&mut self, number: u64) -> Result<Vec<u8>> {
        let mut told = number.to_le_bytes().to_vec();
        if let Some(waiting) = &mut self.waiting
            && waiting.work.is_none()
            && waiting.has(2)
        {
            match self.options.reach {
                Reach::Node => waiting.begin(&self.store),
                Reach::Shared => told.extend(random_key()?),
            }
        }
        Ok(told)
    }

    /// On the coordinator: waits where too much waits to be settled.
    pub(in crate::log) fn wait_for_settling(&mut self) -> Result<()> {
        match &mut self.waiting {
            Some(waiting) => waiting.look(&self.store, &self.log),
            None => Ok(()),
        }
    }

    /// Goes on as session `id`, in new segments; the coordinator settles what was committed so far. Collective.
    ///
    /// # Errors
    /// Of storage, on all members: the session can only end, and what was committed stands.
    pub(in crate::log) fn go_on_as(&mut self, id: [u8; 16]) -> Result<()> {
        let is_shared = self.share.is_some();
        self.given_before = self.token().0;
        self.end_stream();
        (self.id, self.share) = (id, None);
        self.ends.clear();
        self.declared.iter_mut().for_each(|declared| declared.forget());
        if is_shared {
            self.share_segment()?;
        }
        if let Some(waiting) = &mut self.waiting {
            waiting.begin(&self.store);
        }
        Ok(())
    }

    /// Waits until nothing is settled in the background any more.
    pub(super) fn end_settling(&mut self) {
        if let Some(work) = self.waiting.take().and_then(|waiting| waiting.work) {
            let _ = work.outcome.recv();
        }
    }
}
