//! An opened store: its hierarchy of groups and arrays, and the log over it.
//!
//! A read or write sees a [`Snapshot`]: the newest root of the log, or that all commits are
//! settled. [`OpenedStore::in_one_snapshot`] repeats an action if the data move on meanwhile. A
//! read-only handle that looks for changes once stays at its first snapshot.

use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bedform_format::ObjectPath;
use bedform_format::log::Root;
use bedform_format::metadata::{GroupDocument, LogState};
use bedform_storage::{Mode, Storage};

use super::place::LogPlace;
use super::snapshot::Snapshot;
use super::view::{LogObjects, RootView};
use crate::cache::take_budget_of_environment;
use crate::error::{Error, ErrorKind, Result};
use crate::opening::{add_kept_profile, check_local, remote_of, storage_of, url_of};
use crate::options::{Freshness, OpenOptions};
use crate::replica::Replicas;
use crate::zarr::documents::GroupState;
use crate::zarr::hierarchy::Hierarchy;
use crate::zarr::nodes::NodeKind;
use crate::zarr::outer::EnclosingStore;
use crate::zarr::rewritten::has_array_of;

/// Attempts of a read or write to find a snapshot that lasts while others settle.
const ATTEMPTS_MAX: usize = 100;
/// Attempts after an object on a server was replaced meanwhile.
const REPLACED_MAX: usize = 16;
/// Consecutive attempts that find the data moved on, but the same newest root.
const UNMOVED_MAX: u32 = 3;

/// Returns the error of a log or store that has not moved on although `error` says so.
pub(crate) fn not_whole(name: &str, error: &Error) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!(
            "{error}; yet nothing has changed: {name} or its log is not whole, or they are not of the \
             same time; put back both as they were together"
        ),
    )
}

/// An opened store: its [`Hierarchy`], with the commits that are not settled.
#[derive(Debug)]
pub(crate) struct OpenedStore {
    pub(super) hierarchy: Hierarchy,
    /// The view of the log's newest root when it was last looked up.
    view: Mutex<Option<Arc<RootView>>>,
    pub(super) loaded: Arc<LogObjects>,
    /// The first snapshot of a handle that looks for changes once.
    first: Mutex<Option<Snapshot>>,
    /// Replicas of its arrays; `None` where there can be none.
    pub(crate) replicas: Option<Arc<Replicas>>,
    /// The snapshot at which a held store stays.
    pub(super) pinned: Option<Snapshot>,
    /// True if the root was an array, not a group, when the store was opened.
    pub(crate) is_array: bool,
}

impl Deref for OpenedStore {
    type Target = Hierarchy;

    fn deref(&self) -> &Hierarchy {
        &self.hierarchy
    }
}

impl OpenedStore {
    /// Returns the store in `storage`, without reading anything; it may be a part of the store
    /// `outer`.
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        options: OpenOptions,
        outer: Option<Arc<EnclosingStore>>,
    ) -> Self {
        let replicas = Replicas::new(&options);
        let mut hierarchy = Hierarchy::new(storage, options, LogPlace::newest_of_any_store);
        hierarchy.outer = outer;
        let loaded = Arc::new(LogObjects::new(hierarchy.cache.clone()));
        let view = Mutex::default();
        let first = Mutex::default();
        Self { hierarchy, view, loaded, first, replicas, pinned: None, is_array: false }
    }

    /// Opens the store at `path`, a directory or a URL. Uses the profile that is kept for its
    /// storage unless the options have one.
    ///
    /// # Errors
    /// As [`OpenedStore::open_in`]; `Unsupported` if `path` is no path of this machine;
    /// `InvalidArgument` for a part of a store that is opened for writing or has commits which are
    /// not settled.
    pub(crate) fn open_path(path: &Path, mut options: OpenOptions) -> Result<Self> {
        if let Some(url) = url_of(path) {
            return Self::open_url(url, options);
        }
        check_local(path)?;
        add_kept_profile(&mut options, path);
        let outer = EnclosingStore::of(path, &options, LogPlace::newest_of_any_store).map(Arc::new);
        if let Some(outer) = outer.as_ref().filter(|_| options.writable) {
            return Err(outer.refuse_writing());
        }
        let mode = if options.writable { Mode::ReadWrite } else { Mode::ReadOnly };
        Self::open_in(storage_of(path, mode, &options)?, options, outer)
    }

    fn open_url(url: &str, mut options: OpenOptions) -> Result<Self> {
        let mode = if options.writable { Mode::ReadWrite } else { Mode::ReadOnly };
        let storage = remote_of(url, mode, &mut options)?;
        Self::open_in(storage, options, None)
    }

    /// Opens the store in `storage`, which may be a group or an array of the store `outer`.
    ///
    /// # Errors
    /// `NotFound` if there is none; `Corrupt`, `Unsupported` by its metadata.
    pub(crate) fn open_in(
        storage: Arc<dyn Storage>,
        options: OpenOptions,
        outer: Option<Arc<EnclosingStore>>,
    ) -> Result<Self> {
        take_budget_of_environment()?;
        let mut store = Self::new(storage, options, outer);
        let root = ObjectPath::root();
        let kind = store.documents.kind(&store, &root)?.ok_or_else(|| {
            Error::new(
                ErrorKind::NotFound,
                format!(
                    "{} is not a Zarr store: it has no zarr.json, .zgroup or .zarray",
                    store.storage.name()
                ),
            )
        })?;
        store.is_array = kind == NodeKind::Array;
        if store.options.writable && store.documents.zarr_format(&store)? == 2 {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "{} is Zarr v2, which Bedform only reads; convert it with 'bedform convert'",
                    store.storage.name()
                ),
            ));
        }
        if store.options.writable {
            store.sweep_once(&root);
        }
        store.check_outer()?;
        store.check_log_is_not_newer()?;
        Ok(store)
    }

    /// Returns the place of this store's log, whether or not a log exists.
    ///
    /// # Errors
    /// `InvalidArgument` for a store that Bedform has not made.
    pub(crate) fn log_place(&self) -> Result<LogPlace> {
        let key = self.documents.root(self)?.and_then(|root| root.group.store);
        let key = key.ok_or_else(|| {
            Error::invalid(format!(
                "{} was not made by Bedform, so it has no log; convert it with 'bedform convert'",
                self.storage.name()
            ))
        })?;
        LogPlace::of_store(&*self.storage, key, &self.options.limits)
    }

    /// Fails if a dead writer may have promised commits through a burst tier: they have to become
    /// visible before any later write.
    ///
    /// # Errors
    /// `Conflict`; those of storage.
    pub(crate) fn check_promises_kept(&self) -> Result<()> {
        // Stores that Bedform has not made, and places beside which nothing can lie, have no log.
        let Ok(log) = self.log_place() else { return Ok(()) };
        if log.check_promises_kept().is_ok() {
            return Ok(());
        }
        // A writer that just begins has noted its tier, and may not have locked its segment yet.
        let _lock = self.lock(&ObjectPath::root())?;
        log.check_promises_kept()
    }

    /// Returns the state of all commits as of now, settled or not.
    ///
    /// # Errors
    /// `Corrupt` if the log is missing or damaged; those of storage.
    pub(crate) fn snapshot(&self) -> Result<Snapshot> {
        if let Some(pinned) = &self.pinned {
            return Ok(pinned.clone());
        }
        self.check_outer()?;
        if !self.looks_once() {
            return self.snapshot_now();
        }
        let lock = || self.first.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(first) = &*lock() {
            return Ok(first.clone());
        }
        // If two threads look at once, the first snapshot counts for both.
        let found = self.snapshot_now()?;
        Ok(lock().get_or_insert(found).clone())
    }

    /// True for a read-only handle that looks for changes once: its reads of several arrays see one
    /// moment.
    fn looks_once(&self) -> bool {
        self.options.freshness != Freshness::Read && !self.options.writable
    }

    fn snapshot_now(&self) -> Result<Snapshot> {
        let Some(root) = self.documents.root(self)? else { return Ok(Snapshot::default()) };
        let log = root.group.log;
        if !log.has_log() {
            return Ok(Snapshot::all_settled(log.settled, root.group.store));
        }
        let kept = || self.view.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept().clone();
        if let (Some(known), true) = (&known, self.options.freshness != Freshness::Read) {
            return Ok(Snapshot::of(known.clone()));
        }
        self.newest_snapshot(log, known)
    }

    /// Returns the newest root of `place`, from the time of the store's document, and the log state
    /// in that document. Both are current while the caller holds the store's lock; otherwise they
    /// may be outdated.
    ///
    /// # Errors
    /// Of storage; `Corrupt` for a damaged root, or document.
    pub(crate) fn newest_root(&self, place: &LogPlace) -> Result<(Option<Arc<Root>>, LogState)> {
        let document = self.documents.read_root(self)?;
        let log = document.map_or_else(LogState::default, |document| document.group.log);
        Ok((place.newest(log, None)?, log))
    }

    /// Fails if the store's document names no log but the log beside it has commits: an older copy
    /// has replaced the store to which they belong.
    fn check_log_is_not_newer(&self) -> Result<()> {
        let Some(root) = self.documents.root(self)? else { return self.check_is_array() };
        // If the document names a log, every reader looks at it.
        if root.group.store.is_none() || root.group.log.has_log() {
            return Ok(());
        }
        // Where nothing can lie beside the store, or something else does, there is no log.
        let Ok(place) = self.log_place() else { return Ok(()) };
        let Ok(listed) = place.root_numbers() else { return Ok(()) };
        let Some(last) = listed.last() else { return Ok(()) };
        let is_old = *last <= root.group.log.settled;
        let newest = LogPlace::newest_of_any_store(&*self.storage, &self.options.limits);
        // A damaged root is no obstacle if all its commits are settled.
        if is_old && newest.is_err() {
            return Ok(());
        }
        // Another writer may have committed since the document was read.
        match (newest?, self.documents.read_root(self)?) {
            (Some(newest), Some(_)) if newest.store != place.store => self.check_is_not_of(&newest),
            (Some(newest), Some(document)) if !is_old => {
                place.check_age(&newest, document.group.log)
            }
            _ => Ok(()),
        }
    }

    /// Fails if the document of an array has replaced that of a store.
    fn check_is_array(&self) -> Result<()> {
        // An array of a store has no log of its own, and servers are not asked for one.
        if self.outer.is_some() || self.storage.is_remote() {
            return Ok(());
        }
        match LogPlace::newest_of_any_store(&*self.storage, &self.options.limits) {
            Ok(Some(newest)) => self.check_is_not_of(&newest),
            // A place that cannot be listed has no log of Bedform's.
            _ => Ok(()),
        }
    }

    /// Fails if arrays here belong to the store of `newest`, a root with commits or settled shards.
    /// The document at the root then belongs to another store, and does not know them.
    fn check_is_not_of(&self, newest: &Root) -> Result<()> {
        let is_needed = newest.has_commits() || !newest.settled_shards.is_empty();
        if !is_needed || !has_array_of(self, &newest.store)? {
            return Ok(());
        }
        let name = self.storage.name();
        Err(Error::corrupt(
            format!("{name}/zarr.json"),
            format!(
                "it is not that of the store whose arrays are here, and of which {name} has a log: put back the \
                 one that was there"
            ),
        ))
    }

    /// Reads the store's document again, and forgets the known snapshot.
    pub(crate) fn refresh(&self) -> Result<()> {
        let root = self.documents.read_root(self)?;
        *self.view.lock().unwrap_or_else(PoisonError::into_inner) = None;
        *self.first.lock().unwrap_or_else(PoisonError::into_inner) = None;
        drop(root);
        Ok(())
    }

    /// Closes the segments of the log, so that they are opened again after other ones have replaced
    /// them.
    pub(crate) fn forget_segments(&self) {
        self.loaded.forget_segments();
    }

    /// Looks for a newer root on a handle whose reads do not. So reads see the commits of this
    /// process, and settling covers all commits.
    ///
    /// # Errors
    /// Of storage.
    pub(crate) fn refresh_if_stale(&self) -> Result<()> {
        if self.options.freshness == Freshness::Read { Ok(()) } else { self.refresh() }
    }

    /// Calls `act` until the data do not move on meanwhile. A handle that stays at its snapshot
    /// does not wait for that.
    ///
    /// # Errors
    /// Those of `act`; `Corrupt` if data that it needs are gone, or newer than the log;
    /// `SnapshotMoved` if the data never come to rest, or have moved on from the snapshot at which
    /// the handle stays.
    pub(crate) fn in_one_snapshot<T>(&self, mut act: impl FnMut() -> Result<T>) -> Result<T> {
        if self.pinned.is_some() {
            return act().map_err(|error| self.moved_on(error));
        }
        if self.looks_once() {
            return self.in_first_snapshot(act);
        }
        let (mut last, mut unmoved, mut replaced) = (None, 0, 0);
        for _ in 0..ATTEMPTS_MAX {
            let error = match act() {
                Err(error) if error.kind() == ErrorKind::SnapshotMoved => error,
                // An opened object was replaced on the server: look again, and plan with the new
                // one.
                Err(error)
                    if error.kind() == ErrorKind::Conflict
                        && self.storage.is_remote()
                        && replaced < REPLACED_MAX =>
                {
                    replaced += 1;
                    self.cache.forget_own();
                    self.refresh()?;
                    continue;
                }
                outcome => return outcome,
            };
            self.refresh()?;
            // Data that have moved on have a newer root. If there is none, the log and the shards
            // are of different times, or incomplete.
            let number = self.snapshot()?.number;
            unmoved = if last == Some(number) { unmoved + 1 } else { 0 };
            if unmoved == UNMOVED_MAX {
                return Err(not_whole(&self.storage.name(), &error));
            }
            last = Some(number);
        }
        act()
    }

    /// As [`OpenedStore::in_one_snapshot`], for a handle that stays at its snapshot.
    fn in_first_snapshot<T>(&self, mut act: impl FnMut() -> Result<T>) -> Result<T> {
        for _ in 0..REPLACED_MAX {
            match act() {
                // An object on a server was replaced; the new one may belong to the snapshot.
                Err(error) if error.kind() == ErrorKind::Conflict && self.storage.is_remote() => {
                    self.cache.forget_own();
                }
                Err(error) if error.kind() == ErrorKind::SnapshotMoved => {
                    return Err(self.has_moved_on(&error));
                }
                outcome => return outcome,
            }
        }
        act()
    }

    /// Returns the error of a handle that stays at its snapshot if `error` says that the data have
    /// moved on.
    fn has_moved_on(&self, error: &Error) -> Error {
        // Does not read the store's document again, which would be a look for changes.
        let newest = || {
            let said =
                self.documents.root(self)?.map_or_else(LogState::default, |root| root.group.log);
            let newest = self.log_place()?.newest(said, None)?;
            Ok::<_, Error>((newest.map(|root| root.number), self.snapshot()?.number))
        };
        match newest() {
            Ok((Some(newest), known)) if newest == known => not_whole(&self.storage.name(), error),
            _ => Error::new(
                ErrorKind::SnapshotMoved,
                format!("{error}; this handle looks for changes once: open the store again"),
            ),
        }
    }

    /// Returns the snapshot of the newest root of a store whose document names a log.
    fn newest_snapshot(
        &self,
        mut said: LogState,
        mut known: Option<Arc<RootView>>,
    ) -> Result<Snapshot> {
        let place = self.log_place()?;
        let mut looked_at: Option<Arc<GroupState>> = None;
        for _ in 0..ATTEMPTS_MAX {
            let newest = place.newest(said, known.take().map(|view| view.root.clone()).as_ref())?;
            // Another process may have settled, and removed the log, since the document was read.
            let Some(document) = (match &newest {
                Some(_) if looked_at.is_none() => self.documents.root(self)?,
                _ => self.documents.read_root(self)?,
            }) else {
                break;
            };
            let GroupDocument { log, store, .. } = &document.group;
            said = *log;
            let problem = match LogPlace::current(newest, *log) {
                None => match place.check_log_present(*log) {
                    Ok(()) => return Ok(Snapshot::all_settled(log.settled, *store)),
                    Err(error) => error,
                },
                Some(root) => match place.check_age(&root, *log) {
                    Ok(()) => return Ok(self.pinned(root, place)),
                    Err(error) => error,
                },
            };
            // The document and the roots were not read at one moment: only a problem that a second
            // look confirms is an error.
            if looked_at.is_some_and(|before| before.version == document.version) {
                return Err(problem);
            }
            looked_at = Some(document);
        }
        Err(Error::new(ErrorKind::Conflict, format!("{} keeps changing", place.name())))
    }

    /// Returns the snapshot of `newest`, with the known view if it has the same number.
    pub(super) fn pinned(&self, newest: Arc<Root>, place: LogPlace) -> Snapshot {
        let mut kept = self.view.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = kept.as_ref().filter(|known| known.root.number == newest.number) {
            return Snapshot::of(known.clone());
        }
        let view = RootView::new(newest, place, &self.options.limits, self.loaded.clone());
        let view = Arc::new(view);
        *kept = Some(view.clone());
        Snapshot::of(view)
    }
}
