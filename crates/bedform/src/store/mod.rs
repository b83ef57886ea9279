//! Stores: groups of arrays in one place.
//!
//! A store is a Zarr v3 group (or, read-only, a v2 one). What a reader may believe follows from the
//! order in which Bedform publishes:
//!
//! 1. shards, each whole, under their final names;
//! 2. the array's `zarr.json`;
//! 3. the store's `zarr.json`, whose consolidated metadata name every array and its shape.
//!
//! Step 3 is the commit. An array whose own document is ahead of the consolidated one belongs to a
//! commit that is under way or that a crash cut off, so the consolidated one counts, as long as both
//! are sealed, that is: Bedform was the last to write the array's document. A document that another
//! tool rewrote counts as it is. All changes of metadata happen under the store's lock, all changes of
//! a shape under the array's, taken in this order: arrays by path, then the store.
//!
//! | module | holds |
//! |---|---|
//! | `documents` | metadata documents: reading, trust, publication |
//! | `create` | new stores, groups and arrays |
//! | `description` | new arrays from JSON |
//! | `nodes` | which arrays and groups there are |
//! | `opening` | stores in directories, options from JSON |
//! | `outer` | groups and arrays that are opened by their own paths |
//! | `rewritten` | stores whose document another program has rewritten |
//! | `together` | arrays that are created together |
//! | `verify` | what is damaged, in the log and in the objects |

pub(crate) mod create;
mod opening;
pub(crate) mod rewritten;
mod verify;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bedform_format::log::Root;
use bedform_format::metadata::{GroupDocument, LogState, parse_hex};
use bedform_format::{Limits, ObjectPath};
use bedform_remote::RemoteOptions;
use bedform_storage::{Durability, Lock, Profile, Storage, Version};
use serde_json::{Map, Value};

use crate::array::Array;
use crate::cache::ByteCache;
use crate::error::{Error, ErrorKind, Result};
use crate::log::place::LogPlace;
use crate::log::view::{Loaded, View};
use crate::plan::tuning::Tuning;
use crate::zarr::source::KeptIndex;

use crate::zarr::documents::GroupState;
pub(crate) use crate::zarr::documents::{ArrayDocument, Documents, publish};
use crate::zarr::outer::Outer;
pub(crate) use crate::zarr::together::NewArrays;
pub use create::{ArrayLayout, NewArray};
pub(crate) use create::{check_key, commit, random_key, set_log_state};
pub use opening::storage_of;
pub use verify::{AbsentObjects, Verified, VerifyWatch};

/// When a store looks whether another writer has changed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Freshness {
    /// Before every read.
    #[default]
    Read,
    /// When a store or array is opened.
    Open,
    /// Never after the first look.
    Never,
}

/// How a store is opened.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Whether the store may be changed.
    pub writable: bool,
    /// What data may claim.
    pub limits: Limits,
    /// Bytes of decoded chunks and of shard indexes to keep; 0 keeps nothing.
    pub cache_bytes: u64,
    /// When to look for changes of others.
    pub freshness: Freshness,
    /// What an acknowledged write survives.
    pub durability: Durability,
    /// Threads that encode and decode; `None` takes one per core, 1 does all on the caller's.
    pub threads: Option<usize>,
    /// The largest gap between extents that is read over, in bytes; `None` takes the default.
    pub gap_bytes: Option<u64>,
    /// The storage's parameters, for prices, merging and threads; `None` takes those that are
    /// assumed of a local disk or of an object store.
    pub profile: Option<Profile>,
    /// For whoever opens the storage: whether large reads may go past the page cache where that is
    /// faster ([`LocalStorage::through_page_cache`](bedform_storage::LocalStorage::through_page_cache)).
    pub direct_reads: bool,
    /// How an object store is reached, where the store is in one.
    pub remote: RemoteOptions,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            writable: false,
            limits: Limits::default(),
            cache_bytes: 256 << 20,
            freshness: Freshness::Read,
            durability: Durability::Disk,
            threads: None,
            gap_bytes: None,
            profile: None,
            direct_reads: true,
            remote: RemoteOptions::default(),
        }
    }
}

/// What lies at a path of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// An array.
    Array,
    /// A group.
    Group,
}

/// A store: arrays and groups in one place. Cheap to clone; safe to share between threads.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) shared: Arc<Shared>,
}

/// What all arrays of an opened store have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) options: OpenOptions,
    pub(crate) tuning: Tuning,
    pub(crate) documents: Documents,
    pub(crate) indexes: ByteCache<ObjectPath, KeptIndex>,
    pub(crate) chunks: ChunkCache,
    next_array: AtomicU64,
    /// Drafts of this handle that are not yet committed, with their keys.
    drafts: Mutex<HashMap<ObjectPath, Draft>>,
    /// Directories that this handle has swept.
    swept: Mutex<HashSet<ObjectPath>>,
    /// The newest root of the log when it was last looked up, and what views have loaded.
    view: Mutex<Option<Arc<View>>>,
    loaded: Arc<Loaded>,
    /// The store of which this is a group or an array, if it was opened by the path of one.
    outer: Option<Outer>,
}

/// An array that is not yet committed: its key, and the lock that lives as long as its handles.
#[derive(Debug)]
pub(crate) struct Draft {
    key: [u8; 16],
    lock: Weak<DraftLock>,
}

/// The lock of a draft's directory. While it is held, nobody else takes the draft for something that
/// a crash left behind.
pub(crate) struct DraftLock {
    lock: Mutex<Option<Box<dyn Lock>>>,
    /// Set once somebody who writes to the draft has looked for promises of dead writers.
    are_promises_kept: AtomicBool,
}

impl DraftLock {
    fn new(lock: Box<dyn Lock>) -> Arc<Self> {
        Arc::new(Self { lock: Mutex::new(Some(lock)), are_promises_kept: AtomicBool::new(false) })
    }

    /// True until the draft is committed.
    pub(crate) fn is_live(&self) -> bool {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// True if a writer of the draft has looked for promises of dead ones before, and none was left. None
    /// can come: no session knows the draft.
    pub(crate) fn are_promises_kept(&self) -> bool {
        self.is_live() && self.are_promises_kept.load(Ordering::Relaxed)
    }

    /// Notes that no promise of a dead writer was left when the draft was written to.
    pub(crate) fn note_promises_kept(&self) {
        self.are_promises_kept.store(true, Ordering::Relaxed);
    }

    fn release(&self) {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl std::fmt::Debug for DraftLock {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("DraftLock").field(&self.is_live()).finish()
    }
}

/// The state of a store that a read or write goes by.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    /// The last commit.
    pub(crate) number: u64,
    /// The identity of the store, whose commits these numbers count: stamps of arrays that came from
    /// other stores count those of theirs.
    pub(crate) store: Option<[u8; 16]>,
    /// The commits that are not settled; nothing if all are.
    pub(crate) view: Option<Arc<View>>,
}

impl Snapshot {
    fn of(view: Arc<View>) -> Self {
        Self { number: view.root.number, store: Some(view.root.store), view: Some(view) }
    }
}

/// Paths and shapes of arrays by their keys.
pub(crate) type ShapesByKey = HashMap<[u8; 16], (ObjectPath, Vec<u64>)>;

/// Of the document of an array that Bedform made.
fn key_and_shape(document: &Value) -> Option<([u8; 16], Vec<u64>)> {
    let key = parse_hex(document.get("bedform")?.get("array")?.as_str()?)?;
    let shape = document.get("shape")?.as_array()?;
    Some((key, shape.iter().map(Value::as_u64).collect::<Option<_>>()?))
}

/// Snapshots that a read or write tries while others settle.
const ATTEMPTS_MAX: usize = 100;
/// Times that objects on a server may be replaced under what is done with them.
const REPLACED_MAX: usize = 16;
/// Attempts in a row that find the data moved on, and the same newest root.
const UNMOVED_MAX: u32 = 3;

/// Directories that a handle remembers to have swept; beyond it forgets all.
const SWEPT_MAX: usize = 1 << 16;

/// The error of a log or store where `error` says that the data have moved on, and they have not.
pub(crate) fn not_whole(name: &str, error: &Error) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!(
            "{error}; yet nothing has changed: {name} or its log is not whole, or they are not of the \
             same time; put back both as they were together"
        ),
    )
}

/// A decoded chunk: of which opened array, which version of which of its objects, and where in it. Versions
/// alone do not tell objects apart: those of a server that names no bytes may have one size and one time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ChunkKey {
    array: u64,
    coordinates: Arc<[u64]>,
    object: Version,
    position: u64,
}

/// Decoded chunks.
pub(crate) type ChunkCache = ByteCache<ChunkKey, Arc<[u8]>>;

impl ChunkKey {
    /// The key of the chunk at `position` of the object at `coordinates` in the grid of objects.
    pub(crate) fn new(
        array: u64,
        coordinates: &Arc<[u64]>,
        object: &Version,
        position: u64,
    ) -> Self {
        Self { array, coordinates: coordinates.clone(), object: object.clone(), position }
    }
}

impl Shared {
    pub(crate) fn new(storage: Arc<dyn Storage>, mut options: OpenOptions) -> Self {
        let tuning = if storage.is_remote() {
            options.profile.get_or_insert_with(Profile::default_remote);
            Tuning::of_server(&options)
        } else {
            Tuning::with(&options)
        };
        // Indexes are small and spare a request each; chunks get the rest.
        let for_indexes = options.cache_bytes / 8;
        Self {
            indexes: ByteCache::new(for_indexes),
            chunks: ByteCache::new(options.cache_bytes - for_indexes),
            documents: Documents::default(),
            next_array: AtomicU64::new(0),
            drafts: Mutex::default(),
            swept: Mutex::default(),
            view: Mutex::default(),
            loaded: Arc::new(Loaded::new(options.cache_bytes)),
            outer: None,
            storage,
            tuning,
            options,
        }
    }

    /// Threads that ask storage for several things: where a server answers they wait together, elsewhere
    /// an answer takes less than a thread.
    pub(crate) fn threads_asking(&self) -> usize {
        match self.storage.is_remote() && self.options.threads != Some(1) {
            true => self.tuning.threads_waiting.max(1),
            false => 1,
        }
    }

    /// Takes the lock of a group or array, and removes what dead writers left in its directory.
    pub(crate) fn lock(&self, path: &ObjectPath) -> Result<Box<dyn Lock>> {
        let lock = self.storage.lock(path)?;
        self.sweep_once(path);
        Ok(lock)
    }

    /// Removes what dead writers left in the directory `path`, the first time that this handle
    /// writes there. What cannot be removed is hidden, and costs no more than its space.
    pub(crate) fn sweep_once(&self, path: &ObjectPath) {
        {
            let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
            if swept.len() >= SWEPT_MAX {
                swept.clear();
            }
            if !swept.insert(path.clone()) {
                return;
            }
        }
        let _ = self.storage.sweep(path);
    }

    pub(crate) fn drafts(&self) -> MutexGuard<'_, HashMap<ObjectPath, Draft>> {
        self.drafts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Paths and shapes of all arrays that Bedform made, by their keys, as the store's document has
    /// them.
    ///
    /// # Errors
    /// Of reading the documents.
    pub(crate) fn shapes_by_key(&self) -> Result<ShapesByKey> {
        if let Some(root) = self.documents.root(self)?
            && let Some(consolidated) = &root.group.consolidated
        {
            return consolidated
                .iter()
                .filter_map(|(path, document)| {
                    let (key, shape) = key_and_shape(document)?;
                    Some(ObjectPath::parse(path).map(|path| (key, (path, shape))))
                })
                .collect::<std::result::Result<_, _>>()
                .map_err(Error::from);
        }
        let mut shapes = HashMap::new();
        for (path, kind) in self.documents.nodes(self)? {
            if kind == NodeKind::Array {
                let metadata = self.documents.array(self, &path)?.metadata;
                if let Some(identity) = metadata.identity {
                    shapes.insert(identity.array, (path, metadata.shape));
                }
            }
        }
        Ok(shapes)
    }

    /// Where the log of this store is, or would be.
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
        LogPlace::beside(&*self.storage, key, &self.options.limits)
    }

    /// Fails if a writer has died that may have promised commits through a burst tier: they come before
    /// whatever is written now.
    ///
    /// # Errors
    /// `Conflict`; those of storage.
    pub(crate) fn check_promises_kept(&self) -> Result<()> {
        // Stores that others have made, and places beside which nothing can lie, have no log.
        let Ok(log) = self.log_place() else { return Ok(()) };
        if log.check_promises_kept().is_ok() {
            return Ok(());
        }
        // A writer that just begins has noted its tier, and may not have the lock of its segment yet.
        let _lock = self.lock(&ObjectPath::root())?;
        log.check_promises_kept()
    }

    /// What is committed, as of now: settled or not.
    ///
    /// # Errors
    /// `Corrupt` if the log is missing or damaged; those of storage.
    pub(crate) fn snapshot(&self) -> Result<Snapshot> {
        self.check_outer()?;
        let Some(root) = self.documents.root(self)? else { return Ok(Snapshot::default()) };
        let LogState { pending, settled } = root.group.log;
        if !pending {
            return Ok(Snapshot { number: settled, store: root.group.store, view: None });
        }
        let kept = || self.view.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept().clone();
        if let (Some(known), true) = (&known, self.options.freshness != Freshness::Read) {
            return Ok(Snapshot::of(known.clone()));
        }
        self.newest_snapshot(root.group.log, known)
    }

    /// The newest root of `place`, of the time of the store's document, and what that says of the log. Who
    /// holds the store's lock is told what is so; who does not, what was.
    ///
    /// # Errors
    /// Of storage; `Corrupt` for a damaged root, or document.
    pub(crate) fn newest_root(&self, place: &LogPlace) -> Result<(Option<Arc<Root>>, LogState)> {
        let document = self.documents.read_root(self)?;
        let log = document.map_or_else(LogState::default, |document| document.group.log);
        Ok((place.newest(log, None)?, log))
    }

    /// Fails if this is part of a store that has commits which are not settled.
    ///
    /// # Errors
    /// `Unsupported` names the store and the path in it; of reading that store's document.
    pub(crate) fn check_outer(&self) -> Result<()> {
        self.outer.as_ref().map_or(Ok(()), Outer::check_settled)
    }

    /// Fails if the log beside a store that says it has none has commits: an older copy of the store
    /// was put in the place of the one that they belong to.
    fn check_log_is_not_newer(&self) -> Result<()> {
        let Some(root) = self.documents.root(self)? else { return Ok(()) };
        if root.group.store.is_none() || root.group.log.pending {
            return Ok(());
        }
        // Where nothing can lie beside the store, or something else does, there is no log.
        let Ok(place) = self.log_place() else { return Ok(()) };
        let Ok(listed) = place.root_numbers() else { return Ok(()) };
        if listed.last().is_none_or(|number| *number <= root.group.log.settled) {
            return Ok(());
        }
        let newest = LogPlace::newest_of_any(&*self.storage, &self.options.limits)?;
        // Somebody may have committed since the document was read.
        match (newest, self.documents.read_root(self)?) {
            (Some(newest), Some(document)) if newest.store == place.store => {
                place.check_age(&newest, document.group.log)
            }
            _ => Ok(()),
        }
    }

    /// As [`Shared::snapshot`], whatever was known before.
    pub(crate) fn look_again(&self) -> Result<()> {
        let root = self.documents.read_root(self)?;
        *self.view.lock().unwrap_or_else(PoisonError::into_inner) = None;
        drop(root);
        Ok(())
    }

    /// Looks for a newer root where reads do not: what this process has committed they see, and all that
    /// is committed is settled.
    ///
    /// # Errors
    /// Of storage.
    pub(crate) fn look_unless_always(&self) -> Result<()> {
        if self.options.freshness == Freshness::Read { Ok(()) } else { self.look_again() }
    }

    /// Calls `act` until the data do not move on under it.
    ///
    /// # Errors
    /// Those of `act`; `Corrupt` if what it needs is gone, or is newer than the log; `SnapshotMoved` if
    /// the data never stop.
    pub(crate) fn in_one_snapshot<T>(&self, mut act: impl FnMut() -> Result<T>) -> Result<T> {
        let (mut last, mut unmoved, mut replaced) = (None, 0, 0);
        for _ in 0..ATTEMPTS_MAX {
            let error = match act() {
                Err(error) if error.kind() == ErrorKind::SnapshotMoved => error,
                // What was opened was replaced, and is gone: what is there now is planned anew.
                Err(error)
                    if error.kind() == ErrorKind::Conflict
                        && self.storage.is_remote()
                        && replaced < REPLACED_MAX =>
                {
                    replaced += 1;
                    self.indexes.clear();
                    self.look_again()?;
                    continue;
                }
                outcome => return outcome,
            };
            self.look_again()?;
            // What has moved on has a newer root. Where there is none, the log and the shards are not
            // of one time, or not whole.
            let number = self.snapshot()?.number;
            unmoved = if last == Some(number) { unmoved + 1 } else { 0 };
            if unmoved == UNMOVED_MAX {
                return Err(not_whole(&self.storage.name(), &error));
            }
            last = Some(number);
        }
        act()
    }

    /// The newest root of a store that has said there is a log.
    fn newest_snapshot(
        &self,
        mut said: LogState,
        mut known: Option<Arc<View>>,
    ) -> Result<Snapshot> {
        let place = self.log_place()?;
        let mut looked_at: Option<Arc<GroupState>> = None;
        for _ in 0..ATTEMPTS_MAX {
            let newest = place.newest(said, known.take().map(|view| view.root.clone()).as_ref())?;
            // Others may have settled, and removed the log, since the document was read.
            let Some(document) = (match &newest {
                Some(_) if looked_at.is_none() => self.documents.root(self)?,
                _ => self.documents.read_root(self)?,
            }) else {
                break;
            };
            let GroupDocument { log, store, .. } = &document.group;
            said = *log;
            let problem = match LogPlace::current(newest, *log) {
                None if !log.pending => {
                    return Ok(Snapshot { number: log.settled, store: *store, view: None });
                }
                None => place.missing(),
                Some(root) => match place.check_age(&root, *log) {
                    Ok(()) => return Ok(self.pinned(root, place)),
                    Err(error) => error,
                },
            };
            // The document and the roots were not looked at in one moment: only what is still so at a
            // second look is wrong.
            if looked_at.is_some_and(|before| before.version == document.version) {
                return Err(problem);
            }
            looked_at = Some(document);
        }
        Err(Error::new(ErrorKind::Conflict, format!("{} keeps changing", place.name())))
    }

    /// The snapshot of `newest`, and what is known of it.
    fn pinned(&self, newest: Arc<Root>, place: LogPlace) -> Snapshot {
        let mut kept = self.view.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = kept.as_ref().filter(|known| known.root.number == newest.number) {
            return Snapshot::of(known.clone());
        }
        let view = View::new(newest, place, &self.options.limits, self.loaded.clone());
        let view = Arc::new(view);
        *kept = Some(view.clone());
        Snapshot::of(view)
    }

    /// A number that no other opened array of this store has.
    pub(crate) fn number(&self) -> u64 {
        self.next_array.fetch_add(1, Ordering::Relaxed)
    }

    /// The name of an object as a user knows it.
    pub(crate) fn name_of(&self, path: &ObjectPath) -> String {
        let root = self.storage.name();
        if path.is_root() { root } else { format!("{root}/{path}") }
    }

    /// Fails unless the store was opened for writing.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.options.writable {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::ReadOnly,
            format!("{} was opened read-only; open it with mode \"r+\"", self.storage.name()),
        ))
    }
}

impl Store {
    /// Opens the store in `storage`: a Zarr v3 or v2 group, or a single array.
    ///
    /// # Errors
    /// `NotFound` if there is none; `Corrupt`, `Unsupported` by its metadata.
    pub fn open(storage: Arc<dyn Storage>, options: OpenOptions) -> Result<Self> {
        Self::open_in(storage, options, None)
    }

    /// As [`Store::open`], of what may be a group or an array of the store `outer`.
    fn open_in(
        storage: Arc<dyn Storage>,
        options: OpenOptions,
        outer: Option<Outer>,
    ) -> Result<Self> {
        let shared = Arc::new(Shared { outer, ..Shared::new(storage, options) });
        let store = Self { shared };
        if store.kind(&ObjectPath::root())?.is_none() {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!(
                    "{} is not a Zarr store: it has no zarr.json, .zgroup or .zarray",
                    store.shared.storage.name()
                ),
            ));
        }
        if store.shared.options.writable && store.zarr_format()? == 2 {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "{} is Zarr v2, which Bedform only reads; convert it with 'bedform convert'",
                    store.shared.storage.name()
                ),
            ));
        }
        if store.shared.options.writable {
            store.shared.sweep_once(&ObjectPath::root());
        }
        store.shared.check_outer()?;
        store.shared.check_log_is_not_newer()?;
        Ok(store)
    }

    /// The place that holds the store.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.shared.storage
    }

    /// How the store was opened.
    pub fn options(&self) -> &OpenOptions {
        &self.shared.options
    }

    /// 2 or 3.
    ///
    /// # Errors
    /// Of reading the store's documents.
    pub fn zarr_format(&self) -> Result<u8> {
        self.shared.documents.zarr_format(&self.shared)
    }

    /// What lies at `path`, if anything.
    ///
    /// # Errors
    /// Of reading the documents there.
    pub fn kind(&self, path: &ObjectPath) -> Result<Option<NodeKind>> {
        self.shared.documents.kind(&self.shared, path)
    }

    /// Opens the array at `path`.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt` or `Unsupported` by its metadata.
    pub fn array(&self, path: &ObjectPath) -> Result<Array> {
        Array::open(self.shared.clone(), path.clone())
    }

    /// The array at `path` as it will be when [`append_with`](crate::append_with) has given it
    /// `shape`; to write its new elements with, nothing else.
    ///
    /// # Errors
    /// As [`Store::array`]; `InvalidArgument` if the array would not grow.
    pub fn grown(&self, path: &ObjectPath, shape: &[u64]) -> Result<Array> {
        self.array(path)?.grown(shape)
    }

    /// Every array and group of the store by path, the root group not included.
    ///
    /// # Errors
    /// Of reading the documents.
    pub fn nodes(&self) -> Result<BTreeMap<ObjectPath, NodeKind>> {
        self.shared.documents.nodes(&self.shared)
    }

    /// The attributes of the group at `path`.
    ///
    /// # Errors
    /// `NotFound` if there is no group.
    pub fn group_attributes(&self, path: &ObjectPath) -> Result<Map<String, Value>> {
        self.shared.documents.group_attributes(&self.shared, path)
    }

    /// Replaces the attributes of the array or group at `path`. Atomic, durable on return.
    ///
    /// # Errors
    /// `NotFound`, `ReadOnly`, `LimitExceeded`, and those of storage.
    pub fn set_attributes(&self, path: &ObjectPath, attributes: Map<String, Value>) -> Result<()> {
        create::set_attributes(&self.shared, path, attributes)
    }
}
