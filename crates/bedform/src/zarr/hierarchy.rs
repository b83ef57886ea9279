//! An opened hierarchy: the groups and arrays of one place, as Zarr has them.
//!
//! It holds documents, drafts and locks. It does not know unsettled commits: the log lies over it
//! (see [`crate::log`]).

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bedform_format::json::JsonText;
use bedform_format::log::Root;
use bedform_format::{Limits, ObjectPath};
use bedform_storage::{Durability, Lock, Profile, Storage};

use super::documents::{Documents, summary};
use super::held::SnapshotMoment;
use super::nodes::NodeKind;
use super::outer::EnclosingStore;
use super::tally::Tallies;
use crate::cache::{CacheHandle, PlaceId};
use crate::error::{Error, ErrorKind, Result};
use crate::options::OpenOptions;
use crate::plan::tuning::Tuning;
use crate::prefetch::HandleReads;

/// Finds the newest root of a log beside a place; `None` if there is none.
pub(crate) type FindRoot = fn(&dyn Storage, &Limits) -> Result<Option<Root>>;

/// The state of an opened store that its arrays share, apart from the log.
#[derive(Debug)]
pub(crate) struct Hierarchy {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) options: OpenOptions,
    pub(crate) tuning: Tuning,
    /// The follower of reads for readahead; `None` where nothing may be read ahead.
    pub(crate) follows: Option<Arc<HandleReads>>,
    pub(crate) documents: Documents,
    pub(crate) cache: Arc<CacheHandle>,
    pub(super) find_root: FindRoot,
    next_array: AtomicU64,
    /// Drafts of this handle that are not yet committed, with their keys.
    drafts: Mutex<HashMap<ObjectPath, Draft>>,
    /// Sizes of chunks encoded with chosen codecs.
    pub(crate) tallies: Tallies,
    /// Directories that this handle has swept.
    swept: Mutex<HashSet<ObjectPath>>,
    /// The moment of a snapshot; `None` for a store that is not held.
    pub(crate) held: Option<SnapshotMoment>,
    /// The store that this group or array belongs to, if it was opened by its own path.
    pub(crate) outer: Option<Arc<EnclosingStore>>,
}

/// An array that is not yet committed: its key, and the lock that lives as long as its handles.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) key: [u8; 16],
    pub(crate) lock: Weak<DraftLock>,
}

/// The lock of a draft's directory. While it is held, no other process takes the draft for the
/// remains of a crash.
pub(crate) struct DraftLock {
    lock: Mutex<Option<Box<dyn Lock>>>,
    /// Set once a writer of the draft has looked for promises of dead writers.
    are_promises_kept: AtomicBool,
}

impl DraftLock {
    pub(crate) fn new(lock: Box<dyn Lock>) -> Arc<Self> {
        Arc::new(Self { lock: Mutex::new(Some(lock)), are_promises_kept: AtomicBool::new(false) })
    }

    /// True until the draft is committed.
    pub(crate) fn is_live(&self) -> bool {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// True if a writer of the draft has looked for promises of dead writers before, and none was
    /// left. None can arise: no session knows the draft.
    pub(crate) fn are_promises_kept(&self) -> bool {
        self.is_live() && self.are_promises_kept.load(Ordering::Relaxed)
    }

    /// Notes that no promise of a dead writer was left when the draft was written to.
    pub(crate) fn note_promises_kept(&self) {
        self.are_promises_kept.store(true, Ordering::Relaxed);
    }

    pub(crate) fn release(&self) {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl std::fmt::Debug for DraftLock {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("DraftLock").field(&self.is_live()).finish()
    }
}

/// Paths and shapes of arrays by their keys.
pub(crate) type ShapesByKey = HashMap<[u8; 16], (ObjectPath, Vec<u64>)>;

/// The most directories that a handle remembers as swept; at this number it forgets them all.
const SWEPT_MAX: usize = 1 << 16;

impl Hierarchy {
    /// Makes the hierarchy in `storage` without reading anything. `find_root` finds a root of the
    /// log beside a store whose document no longer says that there is one.
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        mut options: OpenOptions,
        find_root: FindRoot,
    ) -> Self {
        let tuning = if storage.is_remote() {
            options.profile.get_or_insert_with(Profile::default_remote);
            Tuning::of_server(&options)
        } else {
            Tuning::with(&options)
        };
        let place = storage.identity().map(|identity| PlaceId::new(&identity));
        Self {
            cache: Arc::new(CacheHandle::new(options.cache_bytes, place)),
            follows: HandleReads::new(&options),
            documents: Documents::default(),
            next_array: AtomicU64::new(0),
            drafts: Mutex::default(),
            tallies: Tallies::default(),
            swept: Mutex::default(),
            held: None,
            outer: None,
            find_root,
            storage,
            tuning,
            options,
        }
    }

    /// Threads that ask storage for several objects at once. Requests to a server overlap; a local
    /// answer takes less time than starting a thread.
    pub(crate) fn threads_asking(&self) -> usize {
        match self.storage.is_remote() && self.options.threads != Some(1) {
            true => self.tuning.threads_waiting.max(1),
            false => 1,
        }
    }

    /// Locks a group or array, and removes the remains of dead writers from its directory.
    pub(crate) fn lock(&self, path: &ObjectPath) -> Result<Box<dyn Lock>> {
        let lock = self.storage.lock(path)?;
        self.sweep_once(path);
        Ok(lock)
    }

    /// Removes the remains of dead writers from the directory `path`, the first time that this
    /// handle writes there. Files that cannot be removed are hidden, and cost only their space.
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

    /// Maps the keys of all arrays that Bedform made to their paths and shapes, as the store's
    /// document has them.
    ///
    /// # Errors
    /// Those of reading the documents.
    pub(crate) fn shapes_by_key(&self) -> Result<ShapesByKey> {
        if let Some(root) = self.documents.root(self)?
            && let Some(consolidated) = &root.group.consolidated
        {
            let shape_of = |(path, text): (&String, &JsonText)| {
                let Some((key, shape)) = summary(self, path, text)?.key_and_shape() else {
                    return Ok(None);
                };
                Ok(Some((key, (ObjectPath::parse(path)?, shape))))
            };
            let shapes = consolidated.iter().map(shape_of);
            return shapes.filter_map(Result::transpose).collect();
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

    /// Fails if this is a part of a store with unsettled commits.
    ///
    /// # Errors
    /// `InvalidArgument` names the store and the path in it; those of reading that store's
    /// document.
    pub(crate) fn check_outer(&self) -> Result<()> {
        self.outer.as_ref().map_or(Ok(()), |outer| outer.check_settled())
    }

    /// A number that no other opened array of this store has.
    pub(crate) fn number(&self) -> u64 {
        self.next_array.fetch_add(1, Ordering::Relaxed)
    }

    /// The name of an object as the user knows it.
    pub(crate) fn name_of(&self, path: &ObjectPath) -> String {
        let root = self.storage.name();
        if path.is_root() { root } else { format!("{root}/{path}") }
    }

    /// True if one call can make many objects durable, and the store's durability asks for that.
    pub(crate) fn can_sync_together(&self) -> bool {
        self.options.durability == Durability::Disk && self.storage.can_sync_all()
    }

    /// Fails unless the store was opened for writing.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.options.writable {
            return Ok(());
        }
        let why = match self.held {
            Some(_) => "is a snapshot, which is never written; write to the store itself",
            None => "was opened read-only; open it with mode \"r+\"",
        };
        Err(Error::new(ErrorKind::ReadOnly, format!("{} {why}", self.storage.name())))
    }
}
