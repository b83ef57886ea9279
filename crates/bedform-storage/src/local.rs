//! Objects as plain files below a directory.
//!
//! The contract is that of [`Storage`]. The implementation:
//!
//! - A writer writes a temporary name in the object's directory, syncs, closes and renames it, and
//!   then syncs the directory. A commit costs one sync of the file and one of the directory.
//! - Conditions are checked, and names given, under the lock of the directory (`flock`). It
//!   excludes threads and processes of one machine and ends with its holder. On a network file
//!   system with machine-local locks the conditions `Unchanged` and `None` hold per machine.
//!   `Absent` is a single call that excludes all clients.
//! - After a failed sync the state of the device is unknown. The sync is never repeated: the handle
//!   refuses further writes with `Poisoned`, and reads continue.
//! - Many small objects need no sync each: one sync covers all objects of a device.
//! - A growing object has its name from the start. A sync costs one of the file; the first one also
//!   one of the directory.
//! - The root of a sibling storage is looked up at every call, because other processes create and
//!   delete it. A write creates a missing root, which becomes durable as other directories do.
//! - The writer of a temporary name holds its lock, so that [`Storage::sweep`] can tell a crashed
//!   writer's file from a live one's.
//! - A tree in a workspace is published by one rename of its directory, or by an exchange of two
//!   names; see `local/tree.rs`.
//!
//! Names that begin with `.bedform-temp-`, and the name `.bedform-lock`, belong to this module and
//! are left out of listings.

mod direct;
mod directories;
mod growing;
mod names;
mod object;
mod publish;
mod staging;
mod tree;
mod writer;

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use bedform_format::ObjectPath;
use bedform_format::log::Lane;

use crate::file_system::{FileKind, FileSystem, LinkPolicy, LockWait, uninterrupted};
use crate::implement::checked_suffix;
use crate::{
    Condition, Durability, GrowingObject, ListedEntry, Lock, Object, ObjectWriter, OsFileSystem,
    Storage, StorageError, StorageErrorKind, SyncAll, ThrottleSchedule, Throttled, TreePublication,
    Version, Workspace, WorkspaceName, WriteHint, forward, lacks,
};
use direct::DirectReads;
pub use direct::PAGE_CACHE_BYTES_PER_SECOND;
use directories::directory_error;
use growing::LocalGrowing;
pub use names::is_own_name;
use names::{LOCK_NAME, SweepResult, is_temporary_name};
use object::LocalObject;
use staging::SpareBlocks;
pub use staging::Staging;
use writer::LocalWriter;

pub(crate) type Result<T> = std::result::Result<T, StorageError>;

/// The choice of the storage target of each new object.
pub trait Placement: Send + Sync + std::fmt::Debug {
    /// Returns the index of the target of the object `path`; `None` if it may lie on any.
    fn target(&self, path: &ObjectPath) -> Option<u32>;
}

/// The access for which a local store is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Read only: nothing is ever written, created or deleted.
    #[default]
    ReadOnly,
    /// Read and write below an existing directory.
    ReadWrite,
    /// As `ReadWrite`; a missing directory is created durably.
    Create,
}

/// A directory of the local system as a [`Storage`].
///
/// ```
/// use bedform_format::ObjectPath;
/// use bedform_storage::{Condition, Durability, WriteHint, LocalStorage, Mode, Storage};
///
/// # let root = std::env::temp_dir().join(format!("bedform-doc-{}", std::process::id()));
/// let storage = LocalStorage::open(&root, Mode::Create)?;
/// let path = ObjectPath::parse("temperature/zarr.json").unwrap();
/// let mut writer = storage.create(&path, Durability::Disk, WriteHint::default())?;
/// writer.append(b"{}")?;
/// writer.publish(Condition::Absent)?;
///
/// let mut bytes = [0; 2];
/// storage.open(&path)?.read(0, &mut bytes)?;
/// assert_eq!(&bytes, b"{}");
/// # std::fs::remove_dir_all(root).unwrap();
/// # Ok::<(), bedform_storage::StorageError>(())
/// ```
#[derive(Debug)]
pub struct LocalStorage<F: FileSystem = OsFileSystem> {
    shared: Arc<LocalShared<F>>,
}

impl<F: FileSystem> Clone for LocalStorage<F> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

/// State that all clones, objects and writers of one handle share.
#[derive(Debug)]
pub(crate) struct LocalShared<F: FileSystem> {
    system: F,
    mode: Mode,
    staging: Staging,
    blocks: Arc<SpareBlocks>,
    direct_reads: Arc<DirectReads>,
    /// The message of the first failed sync, of this storage or a sibling.
    poison: Arc<OnceLock<String>>,
    placement: Option<Arc<dyn Placement>>,
    /// Directories whose names, up to the root, are known to be durable, with their device and file
    /// numbers.
    durable: Mutex<HashMap<ObjectPath, (u64, u64)>>,
}

impl<F: FileSystem> LocalShared<F> {
    /// Returns the state of a handle on another root of the same system. Its objects may lie on any
    /// targets.
    fn elsewhere(&self, system: F) -> Self {
        Self {
            system,
            mode: self.mode,
            staging: self.staging.clone(),
            blocks: Arc::clone(&self.blocks),
            direct_reads: Arc::clone(&self.direct_reads),
            poison: Arc::clone(&self.poison),
            placement: None,
            durable: Mutex::default(),
        }
    }
}

impl LocalStorage<OsFileSystem> {
    /// Opens the directory `root`.
    ///
    /// # Errors
    /// `NotFound` if it is missing and `mode` is not `Create`, or if it is no directory;
    /// `PermissionDenied`, `ReadOnly`, `Io`.
    pub fn open(root: &Path, mode: Mode) -> Result<Self> {
        Ok(Self::over(system_of(root, mode)?, mode, Staging::default()))
    }
}

impl LocalStorage {
    /// Opens `root` for reading, with the name `name` for the file `real`, whose own name is no
    /// valid object name.
    ///
    /// # Errors
    /// As [`LocalStorage::open`].
    pub fn open_with_alias(root: &Path, name: &ObjectPath, real: &OsStr) -> Result<Self> {
        let system = system_of(root, Mode::ReadOnly)?.with_alias(name.as_str(), real);
        Ok(Self::over(system, Mode::ReadOnly, Staging::default()))
    }

    /// Opens an existing directory whose objects other users or an unpacked archive may have put
    /// there. No link below `root` is followed. Reading an object that belongs to none of `owners`
    /// fails with `PermissionDenied`. The owner of the opened object counts, not that of its name.
    ///
    /// # Errors
    /// As [`LocalStorage::open`].
    pub fn open_of_owners(root: OwnedRoot<'_>, mode: Mode, owners: &[u32]) -> Result<Self> {
        Ok(Self::over(root.system_of(owners)?, mode, Staging::default()))
    }

    /// Appends `bytes`, in one piece, to the file `path`, to which other processes append as well.
    /// A missing file is created, for this user alone.
    ///
    /// # Errors
    /// As [`Storage::create`]; `Io` for a file that has a second name.
    pub fn append(&self, path: &ObjectPath, bytes: &[u8]) -> Result<()> {
        check_name("append", path)?;
        let shared = &*self.shared;
        shared.check_writable("append", path)?;
        let directory = shared.make_directories(&path.parent())?;
        let appended = shared.system.append(&directory, path.name(), bytes);
        appended.map_err(|error| StorageError::from_io("append", path, error))
    }
}

/// The root of a directory whose objects are accepted by their owners.
#[derive(Debug, Clone, Copy)]
pub enum OwnedRoot<'a> {
    /// A directory, or a link to one.
    At(&'a Path),
    /// A directory that belongs to one of the owners, not a link.
    Itself(&'a Path),
}

impl OwnedRoot<'_> {
    fn system_of(self, owners: &[u32]) -> Result<OsFileSystem> {
        let (Self::At(path) | Self::Itself(path)) = self;
        let opened = match self {
            Self::At(path) => OsFileSystem::open(path).map(|system| system.of_owners(owners)),
            Self::Itself(path) => OsFileSystem::open_no_link(path).and_then(|system| {
                let system = system.of_owners(owners);
                system.stat("").map(|_| system)
            }),
        };
        opened.map_err(|error| StorageError::from_io("open", path.display(), error))
    }
}

impl LocalStorage<Throttled<OsFileSystem>> {
    /// As [`LocalStorage::open`], with the bandwidth and latency of `pace`.
    ///
    /// # Errors
    /// As [`LocalStorage::open`].
    pub fn open_throttled(root: &Path, mode: Mode, pace: Arc<ThrottleSchedule>) -> Result<Self> {
        let system = Throttled::new(system_of(root, mode)?, pace);
        Ok(Self::over(system, mode, Staging::default()))
    }

    /// As [`LocalStorage::open_of_owners`], with the bandwidth and latency of `pace`.
    ///
    /// # Errors
    /// As [`LocalStorage::open`].
    pub fn open_of_owners_throttled(
        root: OwnedRoot<'_>,
        mode: Mode,
        owners: &[u32],
        pace: Arc<ThrottleSchedule>,
    ) -> Result<Self> {
        let system = Throttled::new(root.system_of(owners)?, pace);
        Ok(Self::over(system, mode, Staging::default()))
    }
}

fn system_of(root: &Path, mode: Mode) -> Result<OsFileSystem> {
    let system = match mode {
        Mode::Create => OsFileSystem::create(root),
        _ => OsFileSystem::open(root),
    };
    system.map_err(|error| StorageError::from_io("open", root.display(), error))
}

impl<F: FileSystem> LocalStorage<F> {
    /// Returns a storage on the root of `system`, whose writers stage bytes as `staging` says.
    pub fn over(system: F, mode: Mode, staging: Staging) -> Self {
        let shared = LocalShared {
            system,
            mode,
            staging,
            blocks: Arc::default(),
            direct_reads: Arc::default(),
            poison: Arc::default(),
            placement: None,
            durable: Mutex::new(HashMap::new()),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Places new objects on the storage targets that `placement` names, where the file system
    /// allows a choice: on Lustre, by its tool `lfs`. Has an effect only before the storage is
    /// shared.
    #[must_use]
    pub fn placed(mut self, placement: Option<Arc<dyn Placement>>) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.placement = placement;
        }
        self
    }

    /// Sends every read through the page cache. Otherwise large reads of bytes outside the page
    /// cache bypass it, as long as the device is faster than copying into the page cache.
    #[must_use]
    pub fn through_page_cache(self) -> Self {
        self.shared.direct_reads.give_up();
        self
    }

    /// Returns a storage on another root of the same system, with the same mode and options.
    fn elsewhere(&self, system: F) -> Self {
        Self { shared: Arc::new(self.shared.elsewhere(system)) }
    }

    /// Returns the underlying file system.
    pub fn system(&self) -> &F {
        &self.shared.system
    }
}

/// Fails for names that no object can have: the root, and this module's own names.
fn check_name(operation: &'static str, path: &ObjectPath) -> Result<()> {
    if path.is_root() || is_own_name(path.name()) {
        return Err(StorageError::new(StorageErrorKind::NotAnObject, operation, path));
    }
    Ok(())
}

impl<F: FileSystem> Storage for LocalStorage<F> {
    fn name(&self) -> String {
        self.shared.system.name()
    }

    fn identity(&self) -> Option<String> {
        self.shared.system.identity()
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn open(&self, path: &ObjectPath) -> Result<Box<dyn Object>> {
        Ok(Box::new(LocalObject::open(&self.shared, path)?))
    }

    fn stat(&self, path: &ObjectPath) -> Result<Version> {
        let status = uninterrupted(|| self.shared.system.stat(path.as_str()))
            .map_err(|error| StorageError::from_io("stat", path, error))?;
        object::plain(status, "stat", path)
    }

    fn modified_ns(&self, path: &ObjectPath) -> Result<i64> {
        let status = uninterrupted(|| self.shared.system.stat(path.as_str()))
            .map_err(|error| StorageError::from_io("stat", path, error))?;
        match status.kind {
            FileKind::Directory => Ok(status.version.modified_ns),
            _ => object::plain(status, "stat", path).map(|version| version.modified_ns),
        }
    }

    fn now(&self) -> Result<i64> {
        let now = self.shared.system.now();
        now.map_err(|error| StorageError::from_io("date", ObjectPath::root(), error))
    }

    fn is_current(&self, path: &ObjectPath, version: &Version) -> Result<bool> {
        object::is_current(&self.shared.system, path, version)
    }

    fn create(
        &self,
        path: &ObjectPath,
        durability: Durability,
        hint: WriteHint,
    ) -> Result<Box<dyn ObjectWriter + '_>> {
        check_name("create", path)?;
        self.shared.check_writable("create", path)?;
        Ok(Box::new(LocalWriter::create(&self.shared, path, durability, hint)?))
    }

    fn grow(
        &self,
        path: &ObjectPath,
        durability: Durability,
        size_hint: Option<u64>,
    ) -> Result<Box<dyn GrowingObject>> {
        check_name("create", path)?;
        self.shared.check_writable("create", path)?;
        let lane = Lane::ONLY;
        Ok(Box::new(LocalGrowing::create(&self.shared, path, lane, durability, size_hint)?))
    }

    fn grow_lane(
        &self,
        path: &ObjectPath,
        lane: Lane,
        durability: Durability,
    ) -> Result<Box<dyn GrowingObject>> {
        check_name("create", path)?;
        self.shared.check_writable("create", path)?;
        Ok(Box::new(LocalGrowing::create(&self.shared, path, lane, durability, None)?))
    }

    fn sibling(&self, suffix: &str) -> Result<Arc<dyn Storage>> {
        let shared = &*self.shared;
        let suffix = checked_suffix(suffix)?;
        let system = uninterrupted(|| shared.system.sibling(suffix)).map_err(|error| {
            StorageError::from_io("open", format!("{}{suffix}", self.name()), error)
        })?;
        Ok(Arc::new(self.elsewhere(system)))
    }

    fn within(&self, path: &ObjectPath) -> Result<Arc<dyn Storage>> {
        let shared = &*self.shared;
        let links =
            if shared.mode == Mode::ReadOnly { LinkPolicy::Inside } else { LinkPolicy::Refuse };
        if shared.mode != Mode::ReadOnly {
            shared.check_writable("open", path)?;
            let directory = shared.make_directories(path)?;
            shared.make_path_durable(path, &directory)?;
        }
        let system = uninterrupted(|| shared.system.within(path.as_str(), links));
        let system = system.map_err(|error| directory_error("open", path, error))?;
        Ok(Arc::new(self.elsewhere(system).placed(shared.placement.clone())))
    }

    fn workspace(
        &self,
        directory: &ObjectPath,
        name: WorkspaceName<'_>,
    ) -> Result<Option<Box<dyn Workspace>>> {
        self.shared.check_writable("create", directory)?;
        let workspace = tree::workspace(&self.shared, directory, name)?;
        Ok(workspace.map(|workspace| Box::new(workspace) as Box<dyn Workspace>))
    }

    fn publish_tree(
        &self,
        staged: &ObjectPath,
        target: &ObjectPath,
        how: TreePublication,
        durability: Durability,
    ) -> Result<()> {
        self.shared.check_writable("publish", target)?;
        tree::publish_tree(&self.shared, staged, target, how, durability)
    }

    fn publish_object(
        &self,
        staged: &ObjectPath,
        target: &ObjectPath,
        durability: Durability,
    ) -> Result<()> {
        check_name("publish", target)?;
        self.shared.check_writable("publish", target)?;
        publish::publish_object(&self.shared, staged, target, durability)
    }

    fn delete(
        &self,
        path: &ObjectPath,
        durability: Durability,
        condition: Condition<'_>,
    ) -> Result<()> {
        check_name("delete", path)?;
        self.shared.check_writable("delete", path)?;
        publish::delete(&self.shared, path, durability, condition)
    }

    fn delete_tree(&self, path: &ObjectPath, durability: Durability) -> Result<()> {
        let shared = &*self.shared;
        shared.check_writable("delete", path)?;
        let Some(directory) = shared.find_directory("delete", path, LinkPolicy::Refuse)? else {
            return Ok(());
        };
        shared.forget_durable(path);
        let parent = match shared.holder(path) {
            Ok(None) => {
                shared.empty(&directory, path, 0)?;
                directory
            }
            Ok(Some((parent, name))) => {
                match shared.remove_tree((&parent, name), &directory, path, 0)? {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(StorageError::from_io("delete", path, error));
                    }
                    _ => parent,
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(StorageError::from_io("delete", path, error)),
        };
        if durability == Durability::Disk {
            shared.system.sync_directory(&parent).map_err(|error| shared.poison(path, error))?;
        }
        Ok(())
    }

    fn list(&self, path: &ObjectPath) -> Result<Vec<ListedEntry>> {
        let shared = &*self.shared;
        let directory = match shared.find_directory("list", path, LinkPolicy::Inside) {
            Ok(Some(directory)) => directory,
            Ok(None) => return Ok(Vec::new()),
            // A path through a plain file leads to no directory either.
            Err(error) if error.is_not_found() => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let found = uninterrupted(|| shared.system.list(&directory))
            .map_err(|error| StorageError::from_io("list", path, error))?;
        let mut entries: Vec<ListedEntry> = found
            .into_iter()
            .filter(|(name, _)| !is_own_name(name) && ObjectPath::parse(name).is_ok())
            .map(|(name, kind)| {
                let is_directory = shared.is_directory(path, &name, kind);
                ListedEntry { name, is_directory }
            })
            .collect();
        entries.sort_unstable();
        Ok(entries)
    }

    fn sync(&self, path: &ObjectPath) -> Result<()> {
        let shared = &*self.shared;
        shared.check_writable("sync", path)?;
        match shared.find_directory("sync", path, LinkPolicy::Refuse)? {
            Some(directory) => {
                shared.system.sync_directory(&directory).map_err(|error| shared.poison(path, error))
            }
            None => Ok(()),
        }
    }

    fn can_sync_all(&self) -> bool {
        self.shared.system.can_sync_whole()
    }

    fn sync_all(&self, directories: &[ObjectPath]) -> Result<SyncAll<'_>> {
        let shared = &*self.shared;
        let mut devices = BTreeMap::new();
        for path in directories {
            shared.check_writable("sync", path)?;
            let fail = |error| StorageError::from_io("sync", path, error);
            let open = || shared.system.open_directory(path.as_str(), LinkPolicy::Refuse);
            let directory = uninterrupted(open).map_err(fail)?;
            let status = uninterrupted(|| shared.system.status(&directory)).map_err(fail)?;
            devices.entry(status.version.identity.0).or_insert_with(|| (path.clone(), directory));
        }
        Ok(Box::new(move || {
            devices.values().try_for_each(|(path, directory)| {
                shared.check_writable("sync", path)?;
                let outcome = shared.system.sync_whole(directory);
                outcome.map_err(|error| shared.poison(path, error))
            })
        }))
    }

    fn lock(&self, path: &ObjectPath) -> Result<Box<dyn Lock>> {
        self.shared.check_writable("lock", path)?;
        let lock = publish::lock(&self.shared, path, LockWait::Forever)?;
        lock.ok_or_else(|| StorageError::new(StorageErrorKind::Io, "lock", path))
    }

    fn try_lock(&self, path: &ObjectPath) -> Result<Option<Box<dyn Lock>>> {
        self.shared.check_writable("lock", path)?;
        publish::lock(&self.shared, path, LockWait::Never)
    }

    /// As [`Storage::try_lock`]: the system always knows whether a holder is alive.
    fn try_lock_of_dead(&self, path: &ObjectPath) -> Result<Option<Box<dyn Lock>>> {
        self.try_lock(path)
    }

    fn sweep(&self, path: &ObjectPath) -> Result<u64> {
        let shared = &*self.shared;
        shared.check_writable("sweep", path)?;
        let Some(directory) = shared.find_directory("sweep", path, LinkPolicy::Refuse)? else {
            return Ok(0);
        };
        let fail = |error| StorageError::from_io("sweep", path, error);
        // Under this lock, publishers release the lock of their file before they rename it.
        uninterrupted(|| shared.system.lock(&directory, LockWait::Forever)).map_err(fail)?;
        let (mut swept, mut workspaces) = (0, Vec::new());
        for (name, _) in uninterrupted(|| shared.system.list(&directory)).map_err(fail)? {
            if name == LOCK_NAME {
                names::remove_free_lock(&shared.system, &directory).map_err(fail)?;
            } else if is_temporary_name(&name) {
                match names::remove_orphan(&shared.system, &directory, &name).map_err(fail)? {
                    SweepResult::Removed => swept += 1,
                    SweepResult::Kept => {}
                    SweepResult::Workspace => workspaces.extend(path.join(&name)),
                }
            }
        }
        // Other processes need not wait while trees are deleted.
        drop(directory);
        for workspace in workspaces {
            swept += u64::from(tree::remove_dead_workspace(&self.shared, workspace)?);
        }
        Ok(swept)
    }

    lacks!(open_end, request_end);
    forward!(implement as Storage: put);
}
