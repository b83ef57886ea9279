//! Commits of a session: the steps that its members take together.
//!
//! Each member makes its data durable and sends a [`Directory`] to the coordinator. The coordinator
//! merges the directories, publishes created arrays, appends one directory to its segment and
//! creates the next root under the store's lock. At [`CommitReach::Node`] a commit is first
//! promised in the burst tier; its root follows once all members have drained it.
//! `docs/log-explained.md` gives the order and the reasons.

use crate::log::opened::OpenedStore;
use crate::log::shapes::enlarge;
use crate::zarr::hierarchy::ShapesByKey;
use crate::zarr::publish::set_log_state;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_format::log::{CommitId, CommitRecord, Directory, GrownArray, Root, TouchedArray};
use bedform_format::metadata::LogState;
use bedform_storage::{Lock, Version};

use super::place::LogPlace;
use super::segment::{PendingDirectory, PendingSync, to_error};
use super::session::{Session, SessionArray, prepare_log};
use super::staged::CommitReach;
use super::stream::SectionStream;
use super::table::TableMerge;
use super::view::RootView;
use crate::comm::{COORDINATOR, Communicator, agree, decide};
use crate::error::{Error, ErrorKind, Result};

/// Number of arrays grown by one commit from which on their lock files stay until the session ends.
const LOCKS_KEPT_MIN: usize = 16;
/// Attempts to create the next root before a commit fails with `Conflict`.
const ATTEMPTS_MAX: usize = 1000;

/// Paths and shapes of the store's arrays by array key, cached for one version of the root
/// document. They are read again only when that version has changed.
#[derive(Debug, Default)]
pub(super) struct DocumentShapes {
    version: Option<Version>,
    by_key: Arc<ShapesByKey>,
}

impl DocumentShapes {
    /// Returns the paths and shapes in the store's current document. A caller that relies on the
    /// shapes holds a lock that keeps the document from changing.
    fn now(&mut self, store: &OpenedStore) -> Result<Arc<ShapesByKey>> {
        let root = store.documents.read_root(store)?;
        let version = root.map(|root| root.version.clone());
        if version.is_none() || self.version != version {
            self.by_key = Arc::new(store.shapes_by_key()?);
            self.version = version;
        }
        Ok(self.by_key.clone())
    }
}

/// Axes along which a session appends, by array key and axis index, with the length before the
/// append.
pub(super) type AppendedAxes = BTreeMap<([u8; 16], usize), u64>;

/// Records the axes along which `shape` exceeds `base`: an array is appended to there. Of several
/// lengths before the append the smallest is kept.
pub(super) fn note_appended(
    appended: &mut AppendedAxes,
    key: [u8; 16],
    shape: &[u64],
    base: &[u64],
) {
    for (axis, (length, base)) in shape.iter().zip(base).enumerate() {
        if base < length {
            let known = appended.entry((key, axis)).or_insert(*base);
            *known = (*known).min(*base);
        }
    }
}

/// A commit that is written except for its root.
#[derive(Debug)]
pub(super) struct PreparedCommit {
    directory: Directory,
    record: CommitRecord,
    /// The axes along which the commit appends. `None` if unknown: then no axis that it lengthens
    /// may have grown meanwhile.
    appended: Option<AppendedAxes>,
}

/// One member's part of a commit that has begun.
pub(super) struct BegunCommit {
    /// The arrays that this member enlarges.
    pub(super) grown: Vec<GrownArray>,
    /// The pending answer of this member's segment; `None` if it has written no data.
    pub(super) finishing: Option<PendingSync>,
}

impl Session {
    /// Begins a commit of all writes since the last one and returns at once. The data become
    /// durable in the background while the program goes on, which must not change elements that it
    /// has lent. Not collective: [`Session::commit_wait`] runs the collective part, in the thread
    /// that calls it. Until then the session accepts no other call.
    ///
    /// # Errors
    /// `InvalidArgument` if a commit has begun and was not waited for. [`Session::commit_wait`]
    /// reports errors of the commit itself, on all members.
    pub fn commit_begin(&mut self) -> Result<()> {
        self.check_sound()?;
        self.begun = Some(self.begin_commit(true));
        Ok(())
    }

    /// Ends the commit that [`Session::commit_begin`] has begun. Collective; members may call
    /// [`Session::commit`] instead. Where no commit has begun, it begins one.
    ///
    /// # Errors
    /// As [`Session::commit`].
    pub fn commit_wait(&mut self) -> Result<u64> {
        self.commit()
    }

    /// Starts to make this member's part of the commit durable. With `ahead`, the collective part
    /// is still to come, so a shared segment is synced now and not only flushed.
    fn begin_commit(&mut self, ahead: bool) -> Result<BegunCommit> {
        let commit = self.commit_id();
        let grown = self.take_grown();
        let reach = self.options.reach;
        if reach == CommitReach::Node {
            for GrownArray { key, shape, .. } in &grown {
                enlarge(self.promised_shapes.entry(*key).or_insert_with(|| shape.clone()), shape);
            }
        }
        let is_shared = self.share.is_some();
        let begin = |stream: &mut SectionStream| match is_shared {
            true => stream.begin_hand_over(commit, ahead),
            false => stream.begin_finish(commit, reach),
        };
        let finishing = self.stream.as_mut().map(begin).transpose()?;
        Ok(BegunCommit { grown, finishing })
    }

    /// Returns the begun commit, or begins one now.
    pub(super) fn take_begun(&mut self) -> Result<BegunCommit> {
        self.begun.take().unwrap_or_else(|| self.begin_commit(false))
    }

    /// Makes everything that the members wrote since the last commit visible: all of it or nothing.
    /// Durable on return. Collective. Returns the number of the commit.
    ///
    /// At [`CommitReach::Node`] it returns once all data are durable in the nodes' burst tiers,
    /// with the number of the last visible commit. The promised commit becomes visible, in order,
    /// with the first later commit that finds it drained, or with [`Session::drain`].
    ///
    /// # Errors
    /// The first error of any member, on all. Then nothing that was written is visible, but arrays
    /// that the session created may be: the message names those. `Conflict` if another writer has
    /// appended to an array that this session appends to, has made one smaller, or has deleted it.
    pub fn commit(&mut self) -> Result<u64> {
        self.check_process()?;
        self.enter_handing_over("commit()");
        self.commit_entered()
    }

    /// Commits, after this member has entered the collective call.
    pub(super) fn commit_entered(&mut self) -> Result<u64> {
        if self.share.is_some() {
            let mine = self.check_healthy().and_then(|()| self.hand_over());
            return self.commit_by_node(mine);
        }
        let is_promise = self.options.reach == CommitReach::Node;
        let drain = self.stream.as_mut().and_then(|stream| stream.segment().drain().cloned());
        let drain = drain.filter(|_| is_promise);
        if let Some(drain) = &drain {
            drain.hold();
        }
        let mine = self.check_healthy().and_then(|()| self.finish());
        self.has_promises |= is_promise;
        let told = self.commit_together(mine, Self::commit_message);
        if let Some(drain) = &drain {
            drain.release();
        }
        told
    }

    /// Waits until all commits are drained from the burst tiers and visible. Collective. Returns
    /// the number of the last commit.
    ///
    /// # Errors
    /// As [`Session::commit`]. Promised commits that could not be completed remain for
    /// `bedform recover`.
    pub fn drain(&mut self) -> Result<u64> {
        self.check_process()?;
        self.enter_handing_over("drain()");
        self.drain_entered()
    }

    /// Drains, after this member has entered the collective call.
    pub(super) fn drain_entered(&mut self) -> Result<u64> {
        agree(&*self.members, self.check_not_begun())?;
        let mine = self.check_healthy().and_then(|()| self.finish_draining());
        // Data written since the last commit lie in segments that this session keeps, so no new
        // session is named.
        let number = self.commit_together(mine, |_, number| Ok(number.to_le_bytes().to_vec()))?;
        self.has_promises = false;
        self.promised_shapes.clear();
        Ok(number)
    }

    fn commit_together(
        &mut self,
        mine: Result<Vec<u8>>,
        tell: impl FnOnce(&mut Self, u64) -> Result<Vec<u8>>,
    ) -> Result<u64> {
        let members = self.members.clone();
        let told = decide(&*members, mine, |parts| {
            let number = self.commit_all(&parts)?;
            tell(self, number)
        });
        self.after_commit(told)
    }

    /// Updates the session after a commit, from the coordinator's answer. Returns the commit's
    /// number.
    pub(super) fn after_commit(&mut self, told: Result<Vec<u8>>) -> Result<u64> {
        self.count_epoch();
        self.appended.clear();
        self.arrays.values_mut().for_each(|known| known.is_new = false);
        if let Err(error) = &told {
            self.arrays.clear();
            self.end_with(error);
        }
        let told = told?;
        let erred = || Error::invalid("the coordinator erred");
        let (number, next) = told.split_first_chunk().ok_or_else(erred)?;
        // The commit stands even if the newest root cannot be read now.
        let _ = self.store.refresh_if_stale();
        if !next.is_empty() {
            let next = next.try_into().map_err(|_| erred())?;
            // The commit stands even if this fails: the next call reports the error.
            if let Err(error) = self.continue_as(next) {
                self.end_with(&error);
            }
        }
        Ok(u64::from_le_bytes(*number))
    }

    /// Returns the arrays that this member enlarges, and forgets their known shapes.
    pub(super) fn take_grown(&mut self) -> Vec<GrownArray> {
        let grown = self.arrays.values().filter_map(SessionArray::grown).collect();
        for SessionArray { target, .. } in self.arrays.values() {
            note_appended(&mut self.appended, target.key, &target.shape, &target.base);
        }
        // The next commit looks their shapes up again.
        self.arrays.retain(|_, known| known.grown().is_none());
        grown
    }

    /// Makes this member's part of the commit durable. Returns the last epoch that it has drained
    /// (a `u32`) and, if it has any data, its encoded directory.
    fn finish(&mut self) -> Result<Vec<u8>> {
        let BegunCommit { grown, finishing } = self.take_begun()?;
        let commit = self.commit_id();
        let mut mine = Directory { commit, grown, ..Directory::default() };
        self.look_up_visible()?;
        if let (Some(stream), Some(finishing)) = (&mut self.stream, finishing) {
            let finished = stream.segment().finished(&finishing)?;
            mine.segments.push(stream.segment().name().to_owned());
            self.sections.extend(finished.sections);
            mine.sections = std::mem::take(&mut self.sections);
            self.ends.push_back((commit.epoch, finished.position));
        }
        let drained = self.drained_epoch();
        let mut part = drained.to_le_bytes().to_vec();
        if !mine.sections.is_empty() || !mine.grown.is_empty() {
            part.extend(mine.encode(&self.store.options.limits).map_err(to_error)?);
        }
        Ok(part)
    }

    /// Waits until this member's part of all commits is drained. Returns the last drained epoch (a
    /// `u32`).
    fn finish_draining(&mut self) -> Result<Vec<u8>> {
        let alone = self.stream.as_mut().filter(|_| self.share.is_none());
        let begin = |stream: &mut SectionStream| stream.segment().begin_finish(CommitReach::Shared);
        let finishing = alone.map(begin).transpose()?;
        self.look_up_visible()?;
        if let Some(stream) = &mut self.stream {
            // Sections that were flushed since the last commit belong to the next one.
            let finished = match finishing {
                Some(finishing) => stream.segment().finished(&finishing)?,
                None => stream.segment().hand_over()?,
            };
            self.sections.extend(finished.sections);
        }
        self.ends.clear();
        Ok(self.drained_epoch().to_le_bytes().to_vec())
    }

    /// On the coordinator, at [`CommitReach::Node`], looks up the last visible commit while its
    /// data become durable. After a promise nothing may fail or take long.
    fn look_up_visible(&mut self) -> Result<()> {
        if self.options.reach == CommitReach::Node && self.members.rank() == COORDINATOR {
            self.visible = self.newest_number()?;
        }
        Ok(())
    }

    /// Returns the last epoch that this member has drained completely.
    pub(super) fn drained_epoch(&mut self) -> u32 {
        let drained = match &mut self.stream {
            Some(stream) => stream.segment().drained_bytes(),
            None => u64::MAX,
        };
        while self.ends.front().is_some_and(|(_, end)| *end <= drained) {
            self.ends.pop_front();
        }
        self.ends.front().map_or(self.epoch() + 1, |(epoch, _)| epoch - 1)
    }

    /// Prepares a commit from the members' parts, and publishes the commits that all have drained.
    pub(super) fn commit_all(&mut self, parts: &[Vec<u8>]) -> Result<u64> {
        let mut drained = u32::MAX;
        let mut directories = Vec::with_capacity(parts.len());
        for part in parts {
            let (epoch, directory) = part.split_first_chunk().ok_or_else(cut_short)?;
            drained = drained.min(u32::from_le_bytes(*epoch));
            directories.push(directory);
        }
        self.wait_for_settling()?;
        let mut directory = self.merge(&directories)?;
        let has_something = !directory.sections.is_empty() || !directory.grown.is_empty();
        directory.is_promised = self.options.reach == CommitReach::Node;
        // No data count before the root, so the directory becomes durable while created arrays are
        // published. A promise counts at once, so its directory is written after all steps that may
        // fail.
        let is_early = has_something && !directory.is_promised;
        let early = is_early.then(|| self.begin_directory(&directory)).transpose()?;
        let mut created = Vec::new();
        let outcome = self
            .commit_creations(&mut created)
            .and_then(|()| self.commit_data(directory, has_something, early, drained));
        outcome.map_err(|error| match created.is_empty() {
            true => error,
            false => {
                let said = created_arrays_text(&created, error.kind());
                error.followed_by(said)
            }
        })
    }

    /// On the coordinator, commits the members' data after the arrays that the session created are
    /// published.
    fn commit_data(
        &mut self,
        directory: Directory,
        has_something: bool,
        early: Option<PendingDirectory>,
        drained: u32,
    ) -> Result<u64> {
        let mut number = self.complete_drained(drained)?;
        if directory.is_promised && number.is_none() {
            number = Some(self.visible);
        }
        if has_something {
            let begun = early.map_or_else(|| self.begin_directory(&directory), Ok)?;
            self.prepare(directory, begun)?;
        }
        if self.options.reach == CommitReach::Shared {
            // The directory lies in the coordinator's segment, which may not have drained it.
            let drained = drained.min(self.drained_epoch());
            number = self.complete_drained(drained)?.or(number);
        }
        if self.prepared.is_empty() {
            self.promised_shapes.clear();
        }
        match number {
            Some(number) => Ok(number),
            None => self.newest_number(),
        }
    }

    fn newest_number(&self) -> Result<u64> {
        let (newest, _) = self.store.newest_root(&self.log)?;
        Ok(newest.map_or(0, |root| root.number))
    }

    /// Publishes the commits that all members have drained. Returns the number of the last one.
    fn complete_drained(&mut self, drained: u32) -> Result<Option<u64>> {
        let mut number = None;
        while self.prepared.front().is_some_and(|next| next.directory.commit.epoch <= drained) {
            // Taken off the queue first: a commit that fails here is not tried again.
            let Some(prepared) = self.prepared.pop_front() else { break };
            let epoch = prepared.directory.commit.epoch;
            number = Some(self.complete(prepared)?);
            if let Some(drain) = self.stream()?.segment().drain() {
                drain.set_known(epoch);
            }
        }
        Ok(number)
    }

    /// Waits for a directory that is being written, and queues its commit until all members have
    /// drained it.
    fn prepare(&mut self, directory: Directory, begun: PendingDirectory) -> Result<()> {
        let record = self.directory_record(begun)?;
        let end = record.offset.saturating_add(record.stored_bytes);
        self.ends.push_back((directory.commit.epoch, end));
        let appended = std::mem::take(&mut self.appended);
        self.prepared.push_back(PreparedCommit { directory, record, appended: Some(appended) });
        Ok(())
    }

    /// Appends a directory without a promise.
    fn write_directory(&mut self, directory: &Directory) -> Result<CommitRecord> {
        let begun = self.begin_directory_of(directory, None)?;
        self.directory_record(begun)
    }

    /// Starts to append the directory of a commit and, if the commit is promised, its promise.
    fn begin_directory(&mut self, directory: &Directory) -> Result<PendingDirectory> {
        let promised = directory.is_promised.then_some(directory.commit);
        self.begin_directory_of(directory, promised)
    }

    fn begin_directory_of(
        &mut self,
        directory: &Directory,
        promised: Option<CommitId>,
    ) -> Result<PendingDirectory> {
        let body = directory.encode(&self.store.options.limits).map_err(to_error)?;
        let reach = self.options.reach;
        self.stream()?.segment().directory(body, reach, promised)
    }

    /// Waits until a directory is durable, and returns its record for a root.
    fn directory_record(&mut self, placing: PendingDirectory) -> Result<CommitRecord> {
        let segment = self.stream()?.segment();
        let place = segment.placed(&placing)?;
        Ok(CommitRecord {
            number: 0,
            segment: segment.name().to_owned(),
            offset: place.offset,
            stored_bytes: place.stored_bytes,
            bytes: place.bytes,
            codec: place.codec,
        })
    }

    /// Publishes a commit that another session promised; only its root is missing.
    pub(super) fn complete_promised_of(
        &mut self,
        directory: Directory,
        record: CommitRecord,
    ) -> Result<u64> {
        self.complete(PreparedCommit { directory, record, appended: None })
    }

    /// Writes and publishes a commit of sections that another session has left. `appended` names
    /// the axes along which that session appended.
    pub(super) fn commit_directory(
        &mut self,
        directory: Directory,
        appended: AppendedAxes,
    ) -> Result<u64> {
        let record = self.write_directory(&directory)?;
        self.complete(PreparedCommit { directory, record, appended: Some(appended) })
    }

    /// Publishes a commit that all members have drained.
    fn complete(&mut self, prepared: PreparedCommit) -> Result<u64> {
        let PreparedCommit { mut directory, mut record, appended } = prepared;
        // From here on no other writer enlarges these arrays.
        let _locks = self.lock_grown(&directory)?;
        let before = directory.grown.clone();
        self.settle_growth(&mut directory, appended.as_ref())?;
        if directory.grown != before {
            record = self.write_directory(&directory)?;
            self.stream()?.segment().finish(CommitReach::Shared)?;
        }
        self.publish(&directory, &record)
    }

    /// Merges the encoded directories of all members into one.
    pub(super) fn merge(&self, parts: &[&[u8]]) -> Result<Directory> {
        let limits = &self.store.options.limits;
        let mut all = Directory { commit: self.commit_id(), ..Directory::default() };
        let mut grown = BTreeMap::<[u8; 16], GrownArray>::new();
        for part in parts.iter().filter(|part| !part.is_empty()) {
            let one = Directory::decode(part, limits).map_err(to_error)?;
            // The members of a node name the same segment.
            let is_same = !one.segments.is_empty() && all.segments.ends_with(&one.segments);
            let before = all.segments.len() - if is_same { one.segments.len() } else { 0 };
            let first = u32::try_from(before).unwrap_or(u32::MAX);
            all.segments.truncate(before);
            all.segments.extend(one.segments);
            all.sections.extend(one.sections.into_iter().map(|mut section| {
                section.segment = section.segment.saturating_add(first);
                section
            }));
            for array in one.grown {
                let known = grown.entry(array.key).or_insert_with(|| array.clone());
                enlarge(&mut known.shape, &array.shape);
            }
        }
        all.grown = grown.into_values().collect();
        Ok(all)
    }

    /// Locks the arrays that the commit enlarges. Direct appends take the same locks.
    fn lock_grown(&mut self, directory: &Directory) -> Result<Vec<Box<dyn Lock>>> {
        if directory.grown.is_empty() {
            return Ok(Vec::new());
        }
        let store = self.store.clone();
        let by_key = self.shapes.now(&store)?;
        let arrays = directory.grown.iter().filter_map(|array| by_key.get(&array.key));
        let mut paths: Vec<&ObjectPath> = arrays.map(|(path, _)| path).collect();
        // Always in the order of paths, so that two writers cannot deadlock.
        paths.sort_unstable();
        let mut locks = Vec::with_capacity(paths.len());
        for path in paths {
            let mut lock = store.lock(path)?;
            if directory.grown.len() >= LOCKS_KEPT_MIN {
                // Creating and removing many lock files in each commit costs much more than
                // locking.
                lock.keep_lock_file();
                self.locked.insert(path.clone());
            }
            locks.push(lock);
        }
        Ok(locks)
    }

    /// Sets the base shape of each growing array to its current shape. The caller holds the locks
    /// of these arrays.
    ///
    /// # Errors
    /// `Conflict` if an array was deleted or made smaller, or another writer has appended along the
    /// same axis.
    fn settle_growth(
        &mut self,
        directory: &mut Directory,
        appended: Option<&AppendedAxes>,
    ) -> Result<()> {
        if directory.grown.is_empty() {
            return Ok(());
        }
        let store = self.store.clone();
        let keys: Vec<_> = directory.grown.iter().map(|array| array.key).collect();
        // Growth that others settle meanwhile is in the documents.
        let shapes = store.in_one_snapshot(|| {
            let (newest, _) = store.newest_root(&self.log)?;
            let view = newest.map(|newest| self.view_of(newest));
            let by_key = self.shapes.now(&store)?;
            keys.iter().map(|key| shape_in(&by_key, view.as_ref(), key)).collect::<Result<Vec<_>>>()
        })?;
        for (array, now) in directory.grown.iter_mut().zip(shapes) {
            let Some(now) = now.filter(|now| now.len() == array.shape.len()) else {
                return Err(self.conflict("an array was deleted"));
            };
            if now.iter().zip(&array.base).any(|(now, base)| now < base) {
                return Err(self.conflict("another writer has made an array smaller"));
            }
            let is_taken = match appended {
                Some(appended) => now.iter().enumerate().any(|(axis, length)| {
                    appended.get(&(array.key, axis)).is_some_and(|base| base != length)
                }),
                None => (0..now.len()).any(|axis| {
                    array.base[axis] < array.shape[axis] && array.base[axis] < now[axis]
                }),
            };
            if is_taken {
                return Err(self.conflict("another writer has appended to an array"));
            }
            enlarge(&mut array.shape, &now);
            array.base = now;
        }
        directory.grown.retain(|array| array.base != array.shape);
        Ok(())
    }

    /// Publishes the root that names the commit; tries again while other writers are faster.
    fn publish(&mut self, directory: &Directory, record: &CommitRecord) -> Result<u64> {
        let store = self.store.clone();
        let merged = self.merge_tail();
        for _ in 0..ATTEMPTS_MAX {
            // The removal of old roots takes the same lock. A removed number is free again, and a
            // commit that took it would be lost.
            let _lock = store.lock(&ObjectPath::root())?;
            let (newest, log) = store.newest_root(&self.log)?;
            check_place(&store, &self.log, newest.as_deref(), log)?;
            let mut root = newest.as_deref().cloned();
            if let (Some(root), Some(merged)) = (&mut root, &merged) {
                merged.apply(root);
            }
            let root = self.successor(root, log.settled, directory, record);
            self.check_arrays(newest.clone(), directory)?;
            // The first commit sets `pending`; while it is set, no writer shrinks or deletes an
            // array.
            if newest.as_ref().is_none_or(|root| !root.has_commits())
                && let Some(log) = prepare_log(&store, &self.log, root.settled)?
            {
                set_log_state(&store, log)?;
            }
            match self.log.publish(&root) {
                Ok(()) => {
                    self.tail_length = root.commits.len();
                    if let Some(waiting) = &mut self.waiting {
                        waiting.note(root.number, directory);
                    }
                    self.log.remove_replaced(&root);
                    return Ok(root.number);
                }
                Err(error) if error.kind() == ErrorKind::Exists => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(
            ErrorKind::Conflict,
            format!("other writers of {} were faster {ATTEMPTS_MAX} times; retry", self.log.name()),
        ))
    }

    /// Returns a view of `root` that shares the objects loaded for this store.
    fn view_of(&self, root: Arc<Root>) -> RootView {
        RootView::new(root, self.log.clone(), &self.store.options.limits, self.store.loaded.clone())
    }

    /// Writes a table that replaces the last commits if the root names many of them. An error does
    /// not fail the commit: a later commit tries again.
    fn merge_tail(&self) -> Option<TableMerge> {
        let many = self.store.options.commits_named.max(1);
        if self.tail_length < many {
            return None;
        }
        let (newest, _) = self.store.newest_root(&self.log).ok()?;
        self.view_of(newest?).merge(many).ok()?
    }

    /// Fails if an array that the commit touches is gone or too small. Growth by `newest`, the
    /// preceding root, and by the commit itself counts.
    fn check_arrays(&mut self, newest: Option<Arc<Root>>, directory: &Directory) -> Result<()> {
        let store = self.store.clone();
        let by_key = self.shapes.now(&store)?;
        let view = newest.map(|newest| self.view_of(newest));
        let grown: HashMap<_, _> =
            directory.grown.iter().map(|array| (&array.key, &array.shape)).collect();
        let touched = directory.sections.iter().flat_map(|section| &section.arrays);
        for TouchedArray { key, end, .. } in touched {
            let fits = |shape: &Vec<u64>| {
                shape.len() == end.len() && end.iter().zip(shape).all(|(e, n)| e <= n)
            };
            let stored = by_key.get(key).map(|(_, shape)| shape);
            let is_there = stored.is_some()
                && (stored.is_some_and(fits)
                    || grown.get(key).is_some_and(|shape| fits(shape))
                    || shape_in(&by_key, view.as_ref(), key)?.is_some_and(|shape| fits(&shape)));
            if !is_there {
                return Err(self.conflict("an array was deleted or made smaller"));
            }
        }
        Ok(())
    }

    pub(super) fn conflict(&self, what: &str) -> Error {
        Error::new(
            ErrorKind::Conflict,
            format!(
                "since a commit of {} was begun, {what}: none of its data are visible; write them \
                 again in a new session",
                self.store.storage.name()
            ),
        )
    }

    /// Returns the root after `newest` with one more commit, whose directory lies at `record`. The
    /// first root continues from the last `settled` number.
    fn successor(
        &self,
        newest: Option<Root>,
        settled: u64,
        directory: &Directory,
        record: &CommitRecord,
    ) -> Root {
        let mut root = newest.unwrap_or_else(|| first_root(&self.log, settled));
        root.number += 1;
        root.commits.push(CommitRecord { number: root.number, ..record.clone() });
        root.sessions.insert(directory.commit.session, directory.commit.epoch);
        for GrownArray { key, shape, .. } in &directory.grown {
            enlarge(root.shapes.entry(*key).or_insert_with(|| shape.clone()), shape);
        }
        root
    }
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

/// Describes the arrays that a failed commit has made visible, and the remedy.
fn created_arrays_text(created: &[ObjectPath], kind: ErrorKind) -> String {
    const NAMES_MAX: usize = 8;
    let names = created.iter().take(NAMES_MAX).map(ObjectPath::as_str).collect::<Vec<_>>();
    let more = match created.len().saturating_sub(NAMES_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    // After other errors the state of the data is unknown.
    let data = if kind == ErrorKind::Conflict { ", without its data" } else { "" };
    let names = names.join(", ");
    format!(
        "the arrays that it created are visible{data}: {names}{more}; write to them, or delete them"
    )
}

pub(super) fn cut_short() -> Error {
    Error::new(ErrorKind::Io, "a member of the session said less than it had to")
}

/// Returns the shape of an array after the commits of a root.
fn shape_in(
    by_key: &ShapesByKey,
    view: Option<&RootView>,
    key: &[u8; 16],
) -> Result<Option<Vec<u64>>> {
    let Some((_, shape)) = by_key.get(key) else { return Ok(None) };
    let mut shape = shape.clone();
    if let Some(grown) = view.map(|view| view.shape_of(key)).transpose()?.flatten() {
        enlarge(&mut shape, &grown);
    }
    Ok(Some(shape))
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bedform_format::ObjectPath;
    use bedform_geometry::Selection;
    use bedform_storage::{
        Failing, Fault, MemoryStorage, Storage, StorageErrorKind, StorageOperation,
    };
    use serde_json::{Map, json};

    use crate::comm::Alone;
    use crate::log::session::SessionOptions;
    use crate::{Elements, NewArray, OpenOptions, Result, Store};

    fn commit_twice_and_settle(store: &Store, in_background: bool) -> Result<()> {
        let path = ObjectPath::parse("t")?;
        let options = SessionOptions { in_background, ..SessionOptions::default() };
        let mut session = store.session(Box::new(Alone), options)?;
        for value in [1, 2] {
            session.write(&path, &Selection::all(&[4]), Elements::Bytes(&[value; 4]))?;
            session.flush()?;
            session.commit()?;
        }
        session.close()
    }

    /// Returns the error text if the `k`-th `operation` fails; `None` if there are fewer.
    fn said(operation: StorageOperation, k: u64, in_background: bool) -> Option<String> {
        let storage = Arc::new(Failing::new(MemoryStorage::new()));
        let shared: Arc<dyn Storage> = storage.clone();
        let options = OpenOptions { writable: true, ..OpenOptions::default() };
        let store = Store::create(shared, &Map::new(), options).unwrap();
        let new = json!({"shape": [4], "dtype": "uint8", "chunks": [2], "shards": [4]});
        let new = NewArray::from_json(&new, &Default::default()).unwrap();
        store.create_array(&ObjectPath::parse("t").unwrap(), &new).unwrap();
        storage.fail_at(operation, k, Fault::Error(StorageErrorKind::NoSpace));
        commit_twice_and_settle(&store, in_background).err().map(|error| error.to_string())
    }

    #[test]
    fn what_cannot_be_written_to_a_log_is_told_with_the_name_of_the_log() {
        let of_log = ["README.txt", "kept", "roots", "segments", "settled", "tables", "tiers"];
        let (mut found, mut wrong) = (0, Vec::new());
        for operation in [
            StorageOperation::Publish,
            StorageOperation::Grow,
            StorageOperation::AppendGrowing,
            StorageOperation::SyncGrowing,
            StorageOperation::List,
            StorageOperation::Stat,
        ] {
            for in_background in [false, true] {
                for text in (0..40).filter_map(|k| said(operation, k, in_background)) {
                    let is_of_log = of_log.iter().any(|name| text.contains(&format!("\"{name}")));
                    let names = text.matches(".bedform-log: cannot ").count();
                    if names != usize::from(is_of_log) {
                        wrong.push(format!("{operation:?}: {text}"));
                    }
                    found += usize::from(is_of_log);
                }
            }
        }
        assert_eq!(wrong, [""; 0]);
        assert!(found >= 10, "{found}");
    }
}
