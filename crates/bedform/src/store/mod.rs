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
//! | `opening` | stores in directories, options from JSON |
//! | `together` | arrays that are created together |

mod create;
mod description;
mod documents;
mod opening;
mod together;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bedform_format::metadata::{LogState, parse_hex};
use bedform_format::shard::ShardIndex;
use bedform_format::{Limits, ObjectPath};
use bedform_storage::{Durability, Lock, Profile, Storage, Version};
use serde_json::{Map, Value};

use crate::array::Array;
use crate::cache::ByteCache;
use crate::error::{Error, ErrorKind, Result};
use crate::log::place::LogPlace;
use crate::log::view::{Loaded, View};
use crate::read::tuning::Tuning;

pub use create::{ArrayLayout, NewArray};
pub(crate) use create::{check_key, commit, random_key, set_log_state};
pub(crate) use documents::{ArrayDocument, Documents, publish};
pub use opening::storage_of;
pub(crate) use together::NewArrays;

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
    /// The storage's parameters, for prices, merging and threads; `None` takes those of a local disk.
    pub profile: Option<Profile>,
    /// For whoever opens the storage: whether large reads may go past the page cache where that is
    /// faster ([`LocalStorage::through_page_cache`](bedform_storage::LocalStorage::through_page_cache)).
    pub direct_reads: bool,
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
    pub(crate) indexes: ByteCache<ObjectPath, (Version, Arc<ShardIndex>)>,
    pub(crate) chunks: ChunkCache,
    next_array: AtomicU64,
    /// Drafts of this handle that are not yet committed, with their keys.
    drafts: Mutex<HashMap<ObjectPath, Draft>>,
    /// Directories that this handle has swept.
    swept: Mutex<HashSet<ObjectPath>>,
    /// The newest root of the log when it was last looked up, and what views have loaded.
    view: Mutex<Option<Arc<View>>>,
    loaded: Arc<Loaded>,
}

/// An array that is not yet committed: its key, and the lock that lives as long as its handles.
#[derive(Debug)]
pub(crate) struct Draft {
    key: [u8; 16],
    lock: Weak<DraftLock>,
}

/// The lock of a draft's directory. While it is held, nobody else takes the draft for something that
/// a crash left behind.
pub(crate) struct DraftLock(Mutex<Option<Box<dyn Lock>>>);

impl DraftLock {
    fn new(lock: Box<dyn Lock>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(lock))))
    }

    /// True until the draft is committed.
    pub(crate) fn is_live(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn release(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
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
    /// The commits that are not settled; nothing if all are.
    pub(crate) view: Option<Arc<View>>,
}

impl Snapshot {
    fn of(view: Arc<View>) -> Self {
        Self { number: view.root.number, view: Some(view) }
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

/// Directories that a handle remembers to have swept; beyond it forgets all.
const SWEPT_MAX: usize = 1 << 16;

/// A decoded chunk: of which opened array, which version of which object, and where in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ChunkKey {
    pub(crate) array: u64,
    pub(crate) object: Version,
    pub(crate) position: u64,
}

/// Decoded chunks.
pub(crate) type ChunkCache = ByteCache<ChunkKey, Arc<[u8]>>;

impl ChunkKey {
    pub(crate) fn new(array: u64, object: &Version, position: u64) -> Self {
        Self { array, object: object.clone(), position }
    }
}

impl Shared {
    fn new(storage: Arc<dyn Storage>, options: OpenOptions) -> Self {
        let tuning = Tuning::with(&options);
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
            storage,
            tuning,
            options,
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

    /// What is committed, as of now: settled or not.
    ///
    /// # Errors
    /// `Corrupt` if the log is missing or damaged; those of storage.
    pub(crate) fn snapshot(&self) -> Result<Snapshot> {
        let Some(root) = self.documents.root(self)? else { return Ok(Snapshot::default()) };
        let LogState { pending, settled } = root.group.log;
        if !pending {
            return Ok(Snapshot { number: settled, view: None });
        }
        let kept = || self.view.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept().clone();
        if let (Some(known), true) = (&known, self.options.freshness != Freshness::Read) {
            return Ok(Snapshot::of(known.clone()));
        }
        self.newest_snapshot(known, settled)
    }

    /// As [`Shared::snapshot`], whatever was known before.
    pub(crate) fn look_again(&self) -> Result<()> {
        let root = self.documents.read_root(self)?;
        *self.view.lock().unwrap_or_else(PoisonError::into_inner) = None;
        drop(root);
        Ok(())
    }

    /// Calls `act` until the data do not move on under it.
    ///
    /// # Errors
    /// Those of `act`; `SnapshotMoved` if they never stop.
    pub(crate) fn in_one_snapshot<T>(&self, mut act: impl FnMut() -> Result<T>) -> Result<T> {
        for _ in 0..ATTEMPTS_MAX {
            match act() {
                Err(error) if error.kind() == ErrorKind::SnapshotMoved => self.look_again()?,
                outcome => return outcome,
            }
        }
        act()
    }

    fn newest_snapshot(&self, known: Option<Arc<View>>, settled: u64) -> Result<Snapshot> {
        let place = self.log_place()?;
        let Some(newest) = place.newest(known.as_ref().map(|view| &view.root))? else {
            // Settled and removed since the document was read?
            let log = self.documents.read_root(self)?.map(|root| root.group.log);
            let settled = log.map_or(settled, |log| log.settled.max(settled));
            if log.is_some_and(|log| log.pending) {
                place.check_there()?;
            }
            return Ok(Snapshot { number: settled, view: None });
        };
        if let Some(known) = known.filter(|known| known.root.number == newest.number) {
            return Ok(Snapshot::of(known));
        }
        let view = View::new(newest, place, &self.options.limits, self.loaded.clone());
        let view = Arc::new(view);
        *self.view.lock().unwrap_or_else(PoisonError::into_inner) = Some(view.clone());
        Ok(Snapshot::of(view))
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
        let shared = Arc::new(Shared::new(storage, options));
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
