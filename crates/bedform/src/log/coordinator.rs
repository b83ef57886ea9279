//! The coordinator of a session: the steps of a commit that one member takes for all.
//!
//! The coordinator merges the members' directories, publishes the arrays that the session created,
//! appends one directory to its own segment and creates the next root under the store's lock. Its
//! steps run between the gather and the broadcast of `commit`, once no member has reported an error.
//! No other member has a [`CoordinatorState`]. `growth` has the locks and checks of the arrays that
//! a commit touches.

mod growth;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bedform_format::ObjectPath;
use bedform_format::log::{CommitRecord, Directory, GrownArray, Root};
use bedform_format::metadata::LogState;

pub(super) use self::growth::AppendedAxes;
use self::growth::DocumentShapes;
use super::member::SessionMember;
use super::opened::OpenedStore;
use super::place::LogPlace;
use super::segment::PendingDirectory;
use super::session::{ArrayCreation, CommitReach, SettleBacklog, SettleLimits, prepare_log};
use super::shapes::enlarge;
use super::table::TableMerge;
use crate::error::{Error, ErrorKind, Result};
use crate::zarr::publish::set_log_state;

/// Attempts to create the next root before a commit fails with `Conflict`.
const ATTEMPTS_MAX: usize = 1000;

/// The part of a session that its coordinator alone has.
#[derive(Default)]
pub(super) struct CoordinatorState {
    /// Arrays that appear with the next commit.
    pub(super) creations: Vec<ArrayCreation>,
    /// Commits that wait until they are drained, in order.
    prepared: VecDeque<PreparedCommit>,
    /// The last commit that was visible when the last collective call began.
    pub(super) visible: u64,
    /// Commits that wait to be settled in the background; `None` if settling waits for the end.
    pub(super) backlog: Option<SettleBacklog>,
    /// The axes along which the commit under way appends.
    pub(super) appended: AppendedAxes,
    shapes: DocumentShapes,
    /// Arrays whose lock files were kept.
    locked: BTreeSet<ObjectPath>,
    /// Number of commits that the last root it published names directly.
    tail_length: usize,
}

/// A commit that is written except for its root.
#[derive(Debug)]
pub(super) struct PreparedCommit {
    pub(super) directory: Directory,
    pub(super) record: CommitRecord,
    /// The axes along which the commit appends. `None` if unknown: then no axis that it lengthens
    /// may have grown meanwhile.
    pub(super) appended: Option<AppendedAxes>,
}

impl CoordinatorState {
    pub(super) fn new(background: Option<SettleLimits>) -> Self {
        Self { backlog: background.map(SettleBacklog::new), ..Self::default() }
    }

    /// Removes the lock files that were kept.
    pub(super) fn remove_lock_files(&mut self, store: &OpenedStore) {
        for path in std::mem::take(&mut self.locked) {
            // Locked and released at once, which removes the lock file. If another writer holds it,
            // that writer removes it.
            drop(store.storage.try_lock(&path));
        }
    }
}

/// The coordinator: its state, and the member of the session through which it acts.
pub(super) struct Coordinator<'a> {
    pub(super) state: &'a mut CoordinatorState,
    pub(super) member: &'a mut SessionMember,
}

impl Coordinator<'_> {
    /// Prepares a commit from the members' parts, and publishes the commits that all have drained.
    pub(super) fn commit_all(&mut self, parts: &[Vec<u8>]) -> Result<u64> {
        let mut drained = u32::MAX;
        let mut directories = Vec::with_capacity(parts.len());
        for part in parts {
            let (epoch, directory) = part.split_first_chunk().ok_or_else(cut_short)?;
            drained = drained.min(u32::from_le_bytes(*epoch));
            directories.push(directory);
        }
        if let Some(backlog) = &mut self.state.backlog {
            backlog.wait(&self.member.store, &self.member.log)?;
        }
        let mut directory = self.member.merge(&directories)?;
        directory.is_promised = self.member.options.reach == CommitReach::Node;
        // No data count before the root, so the directory becomes durable while created arrays are
        // published. A promise counts at once, so its directory is written after all steps that may
        // fail.
        let is_early = has_content(&directory) && !directory.is_promised;
        let early = is_early.then(|| self.member.begin_directory(&directory, None)).transpose()?;
        let mut created = Vec::new();
        self.commit_creations(&mut created)
            .and_then(|()| self.commit_data(directory, early, drained))
            .map_err(|error| with_created(error, &created))
    }

    /// Commits the members' data after the arrays that the session created are published.
    fn commit_data(
        &mut self,
        directory: Directory,
        early: Option<PendingDirectory>,
        drained: u32,
    ) -> Result<u64> {
        let mut number = self.complete_drained(drained)?;
        if directory.is_promised && number.is_none() {
            number = Some(self.state.visible);
        }
        if has_content(&directory) {
            let promised = directory.is_promised.then_some(directory.commit);
            let begin = || self.member.begin_directory(&directory, promised);
            let begun = early.map_or_else(begin, Ok)?;
            self.prepare(directory, &begun)?;
        }
        if self.member.options.reach == CommitReach::Shared {
            // The directory lies in the coordinator's segment, which may not have drained it.
            let drained = drained.min(self.member.drained_epoch());
            number = self.complete_drained(drained)?.or(number);
        }
        if self.state.prepared.is_empty() {
            self.member.promised_shapes.clear();
        }
        number.map_or_else(|| self.member.newest_number(), Ok)
    }

    /// Publishes the commits that all members have drained. Returns the number of the last one.
    fn complete_drained(&mut self, drained: u32) -> Result<Option<u64>> {
        let mut number = None;
        let is_drained = |next: &PreparedCommit| next.directory.commit.epoch <= drained;
        while self.state.prepared.front().is_some_and(is_drained) {
            // Taken off the queue first: a commit that fails here is not tried again.
            let Some(prepared) = self.state.prepared.pop_front() else { break };
            let epoch = prepared.directory.commit.epoch;
            number = Some(self.complete(prepared)?);
            if let Some(drain) = self.member.stream()?.segment().drain() {
                drain.set_known(epoch);
            }
        }
        Ok(number)
    }

    /// Waits for a directory that is being written, and queues its commit until all members have
    /// drained it.
    fn prepare(&mut self, directory: Directory, begun: &PendingDirectory) -> Result<()> {
        let record = self.member.directory_record(begun)?;
        let end = record.offset.saturating_add(record.stored_bytes);
        self.member.ends.push_back((directory.commit.epoch, end));
        let appended = Some(std::mem::take(&mut self.state.appended));
        self.state.prepared.push_back(PreparedCommit { directory, record, appended });
        Ok(())
    }

    /// Writes and publishes a commit of sections that another session has left. `appended` names
    /// the axes along which that session appended.
    pub(super) fn commit_directory(
        &mut self,
        directory: Directory,
        appended: AppendedAxes,
    ) -> Result<u64> {
        let record = self.member.write_directory(&directory)?;
        self.complete(PreparedCommit { directory, record, appended: Some(appended) })
    }

    /// Publishes a commit that all members have drained, or that another session promised.
    pub(super) fn complete(&mut self, mut commit: PreparedCommit) -> Result<u64> {
        // From here on no other writer enlarges these arrays.
        let _locks = self.lock_grown(&commit.directory)?;
        let before = commit.directory.grown.clone();
        self.settle_growth(&mut commit)?;
        let PreparedCommit { directory, mut record, .. } = commit;
        if directory.grown != before {
            record = self.member.write_directory(&directory)?;
            self.member.stream()?.segment().finish(CommitReach::Shared)?;
        }
        self.publish(&directory, &record)
    }

    /// Publishes the root that names the commit; tries again while other writers are faster.
    fn publish(&mut self, directory: &Directory, record: &CommitRecord) -> Result<u64> {
        let store = self.member.store.clone();
        let place = self.member.log.clone();
        let merged = self.merge_tail();
        for _ in 0..ATTEMPTS_MAX {
            // The removal of old roots takes the same lock. A removed number is free again, and a
            // commit that took it would be lost.
            let _lock = store.lock(&ObjectPath::root())?;
            let (newest, log) = store.newest_root(&place)?;
            check_place(&store, &place, newest.as_deref(), log)?;
            let mut root = newest.as_deref().cloned();
            if let (Some(root), Some(merged)) = (&mut root, &merged) {
                merged.apply(root);
            }
            // The first root continues from the last settled number.
            let root = root.unwrap_or_else(|| first_root(&place, log.settled));
            let root = successor(root, directory, record);
            self.check_arrays(newest.clone(), directory)?;
            // The first commit sets `pending`; while it is set, no writer shrinks or deletes an
            // array.
            if newest.as_ref().is_none_or(|root| !root.has_commits())
                && let Some(log) = prepare_log(&store, &place, root.settled)?
            {
                set_log_state(&store, log)?;
            }
            match place.publish(&root) {
                Ok(()) => {
                    self.state.tail_length = root.commits.len();
                    if let Some(backlog) = &mut self.state.backlog {
                        backlog.note(root.number, directory);
                    }
                    place.remove_replaced(&root);
                    return Ok(root.number);
                }
                Err(error) if error.kind() == ErrorKind::Exists => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(
            ErrorKind::Conflict,
            format!("other writers of {} were faster {ATTEMPTS_MAX} times; retry", place.name()),
        ))
    }

    /// Writes a table that replaces the last commits if the root names many of them. An error does
    /// not fail the commit: a later commit tries again.
    fn merge_tail(&self) -> Option<TableMerge> {
        let SessionMember { store, log, .. } = &*self.member;
        let many = store.options.commits_named.max(1);
        if self.state.tail_length < many {
            return None;
        }
        let (newest, _) = store.newest_root(log).ok()?;
        self.member.view_of(newest?).merge(many).ok()?
    }
}

/// True if a commit of `directory` changes anything.
pub(super) fn has_content(directory: &Directory) -> bool {
    !directory.sections.is_empty() || !directory.grown.is_empty()
}

/// Returns the root after `root` with one more commit, whose directory lies at `record`.
fn successor(mut root: Root, directory: &Directory, record: &CommitRecord) -> Root {
    root.number += 1;
    root.commits.push(CommitRecord { number: root.number, ..record.clone() });
    root.sessions.insert(directory.commit.session, directory.commit.epoch);
    for GrownArray { key, shape, .. } in &directory.grown {
        enlarge(root.shapes.entry(*key).or_insert_with(|| shape.clone()), shape);
    }
    root
}

/// Fails if `log` is no longer the store's log: no reader would see a commit there.
pub(super) fn check_place(
    store: &OpenedStore,
    log: &LogPlace,
    newest: Option<&Root>,
    state: LogState,
) -> Result<()> {
    let now = store.log_place()?.name();
    if now != log.name() {
        return Err(Error::new(
            ErrorKind::Conflict,
            format!(
                "the store was moved while this session was open, and its log is {now} now, not \
                 {}; none of the data of this commit are visible: start a new session",
                log.name()
            ),
        ));
    }
    match newest {
        None => log.check_log_present(state),
        Some(newest) => log.check_age(newest, state),
    }
}

/// Adds to the error of a failed commit the arrays that it has made visible, and the remedy.
fn with_created(error: Error, created: &[ObjectPath]) -> Error {
    const NAMES_MAX: usize = 8;
    if created.is_empty() {
        return error;
    }
    let names = created.iter().take(NAMES_MAX).map(ObjectPath::as_str).collect::<Vec<_>>();
    let more = match created.len().saturating_sub(NAMES_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    // After other errors the state of the data is unknown.
    let data = if error.kind() == ErrorKind::Conflict { ", without its data" } else { "" };
    let names = names.join(", ");
    error.followed_by(format!(
        "the arrays that it created are visible{data}: {names}{more}; write to them, or delete them"
    ))
}

pub(super) fn cut_short() -> Error {
    Error::new(ErrorKind::Io, "a member of the session said less than it had to")
}

/// Returns the root of a log without commits.
pub(super) fn first_root(log: &LogPlace, settled: u64) -> Root {
    Root {
        store: log.store,
        number: settled,
        settled,
        since: settled,
        tables: Vec::new(),
        commits: Vec::new(),
        shapes: BTreeMap::new(),
        sessions: BTreeMap::new(),
        settled_shards: Vec::new(),
    }
}
