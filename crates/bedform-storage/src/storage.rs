//! The interface between the engine and every place that keeps bytes: directories, object stores,
//! memory.
//!
//! [`Storage`] promises the following, and the suite `conformance` tests every implementation for
//! it:
//!
//! - Readers see an object whole or not at all. [`ObjectWriter::publish`] makes a writer's bytes
//!   appear under the object's name in one step.
//! - An opened [`Object`] keeps the bytes of its opening, also after its name was given to a newer
//!   version or deleted. A remote place keeps no old bytes ([`Storage::is_remote`]): there, such
//!   reads return `Conflict`.
//! - An object that [`ObjectWriter::publish`] returned for at [`Durability::Disk`] survives a power
//!   cut.
//! - An error leaves the previous version in place, or is [`StorageErrorKind::Poisoned`].
//! - Only a [`GrowingObject`] is visible before it is complete. Bytes covered by one of its syncs
//!   never change, and only those may be announced to readers.
//!
//! All calls block, except [`Storage::request_end`] and [`Object::request`], by which a few threads keep
//! many requests in flight. Where these two return nothing, the engine's `run::execute` reads many
//! extents at once by many threads.
//!
//! [`StorageErrorKind::Poisoned`]: crate::StorageErrorKind::Poisoned

use std::fmt::Debug;
use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_format::log::Lane;

use crate::{
    Bell, Condition, GrowingObject, Object, ObjectWriter, PendingObject, StorageError, Version,
    forward,
};

type Result<T> = std::result::Result<T, StorageError>;

/// The failures that an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// The end of this process: bytes are handed to the system, nothing is synced.
    Process,
    /// A power cut: file and directory are synced before the call returns.
    #[default]
    Disk,
}

/// One entry of a directory listing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListedEntry {
    /// The last segment of the entry's path.
    pub name: String,
    /// True for a directory (a prefix with objects below it).
    pub is_directory: bool,
}

/// The precondition on the target name of [`Storage::publish_tree`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreePublication {
    /// The name is free, or belongs to an empty directory, which is replaced. Otherwise the call
    /// fails with [`StorageErrorKind::Exists`](crate::StorageErrorKind::Exists).
    Absent,
    /// The name belongs to a directory, which has the staged name afterwards.
    Exchange,
}

/// The name of a [`Workspace`], and with it the lifetime of its contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkspaceName<'a> {
    /// A hidden name that no other workspace gets. The contents are deleted when the value is
    /// dropped. If the owner died, the next [sweep](Storage::sweep) of the parent directory deletes
    /// them.
    Unique,
    /// This name, one path segment. The contents outlive the owner, so that a later owner can
    /// resume the work. [`Workspace::remove`] deletes them.
    Resumable(&'a str),
}

/// The expected size and concurrency of an object that is about to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteHint {
    /// The size of the object in bytes, if known.
    pub bytes: Option<u64>,
    /// The number of objects likely to be in flight during most of the write, this one included.
    pub at_once: usize,
}

impl WriteHint {
    /// A hint for an object of `bytes` bytes that is the only one in flight.
    #[must_use]
    pub const fn of(bytes: u64) -> Self {
        Self { bytes: Some(bytes), at_once: 1 }
    }
}

impl Default for WriteHint {
    fn default() -> Self {
        Self { bytes: None, at_once: 1 }
    }
}

/// A function that makes many objects durable at once. See [`Storage::sync_all`].
pub type SyncAll<'a> = Box<dyn Fn() -> Result<()> + Send + Sync + 'a>;

/// A place that keeps objects under paths. Cheap to share between threads.
///
/// No method has a default body: an implementation states each missing ability, and a wrapper that
/// omits a method does not compile. A new method needs a row in the table of
/// [`implement`](crate::implement), which has the building blocks of implementations. Shorthands are
/// in [`StorageExt`].
pub trait Storage: Send + Sync + Debug {
    /// Returns the name by which a user knows this place: a directory or URL.
    fn name(&self) -> String;

    /// Returns a text that is equal for two handles exactly if they see the same bytes with the
    /// same rights. `None` where that cannot be decided. Caches that all handles of the process
    /// share use it as their key. It contains no secret, means nothing in another process, and is
    /// not meant for people.
    ///
    /// A cached statement about an object holds for a [`Version`] that [tells bytes
    /// apart](Version::tells_bytes_apart).
    fn identity(&self) -> Option<String>;

    /// Opens an object for reading and pins its bytes.
    ///
    /// # Errors
    /// `NotFound`; `NotAnObject` for a directory, device, FIFO, or a link that leaves the store.
    fn open(&self, path: &ObjectPath) -> Result<Box<dyn Object>>;

    /// True for a place behind a server. Each call waits for an answer, so concurrent calls pay.
    /// Once the name of an opened [`Object`] is given to a newer version, reads of the opened one
    /// return `Conflict`. A reader then has to plan again.
    ///
    /// Such a place holds objects only. A directory is a common prefix of names, and a growing
    /// object has a single writer. Conditional deletion is missing. A lock expires some time after
    /// its holder died, and a holder that may have lost its lock stops writing.
    fn is_remote(&self) -> bool;

    /// Opens an object, as [`Storage::open`] does, for a caller that will read its last `bytes`
    /// bytes, or all of a shorter object. A remote place sends these bytes with the same answer.
    ///
    /// # Errors
    /// As [`Storage::open`].
    fn open_end(&self, path: &ObjectPath, bytes: u64) -> Result<Box<dyn Object>>;

    /// Opens an object as [`StorageExt::find_end`] does, without waiting; the answer rings `bell`.
    /// `None` where waiting costs nothing, as for files of this machine: call
    /// [`StorageExt::find_end`] there.
    fn request_end(&self, path: &ObjectPath, bytes: u64, bell: &Arc<Bell>)
    -> Option<PendingObject>;

    /// Returns the version that `path` stands for now. Cheaper than [`Storage::open`].
    ///
    /// # Errors
    /// As [`Storage::open`].
    fn stat(&self, path: &ObjectPath) -> Result<Version>;

    /// Returns the time of the last change of the object `path`, in nanoseconds since 1970. The
    /// clock is that of the place and may be wrong; 0 where the time is unknown. For a directory,
    /// where the place has any, it is the time at which an entry was last added or removed.
    ///
    /// # Errors
    /// As [`Storage::open`].
    fn modified_ns(&self, path: &ObjectPath) -> Result<i64>;

    /// Returns a time, in nanoseconds, by the clock that dates the objects of this place. The
    /// [`Version`] of an object named before the call has this change time or an earlier one. An
    /// object named after the return has a later one. The call waits until that holds: a few
    /// milliseconds for files, whose times advance with the kernel's ticks. Nothing is guaranteed
    /// if the clock belongs to another machine or counts seconds.
    /// # Errors
    /// `Io` if the clock cannot be read.
    fn now(&self) -> Result<i64>;

    /// True if `path` still stands for `version`. As cheap as the place allows, because readers
    /// call it before every read.
    ///
    /// # Errors
    /// As [`Storage::stat`]; a missing name is `Ok(false)`.
    fn is_current(&self, path: &ObjectPath, version: &Version) -> Result<bool>;

    /// Starts a new object. Nothing is visible until it is published, and dropping the writer
    /// leaves nothing behind. A wrong hint is harmless.
    ///
    /// # Errors
    /// `ReadOnly`, `PermissionDenied`, `NoSpace`, `NotAnObject`, `Io`.
    fn create(
        &self,
        path: &ObjectPath,
        durability: Durability,
        hint: WriteHint,
    ) -> Result<Box<dyn ObjectWriter + '_>>;

    /// Publishes an object of `bytes`: [`Storage::create`], append and publish in one call, for
    /// small objects.
    ///
    /// # Errors
    /// As [`Storage::create`] and [`ObjectWriter::publish`].
    fn put(
        &self,
        path: &ObjectPath,
        bytes: &[u8],
        durability: Durability,
        condition: Condition<'_>,
    ) -> Result<Version>;

    /// Creates an empty object under its own name for appending. It is visible at once and may grow
    /// for any length of time. `size_hint` is the expected size in bytes, if known; a wrong one is
    /// harmless.
    ///
    /// # Errors
    /// `Exists`; as [`Storage::create`].
    fn grow(
        &self,
        path: &ObjectPath,
        durability: Durability,
        size_hint: Option<u64>,
    ) -> Result<Box<dyn GrowingObject>>;

    /// Opens one lane of a growing object that several writers share. `bedform_format::log::Lanes`
    /// maps the lane's bytes to byte ranges of the object. The writer of the first lane creates the
    /// object, the others open it. A lane without writes reads as zeros, or is missing at the end
    /// of the object. Reserved space without writes reads the same. A writer reserves space only in
    /// its own lane.
    ///
    /// A sync by any writer makes durable all bytes that writers on the same system have handed to
    /// it, which [`GrowingObject::flush`] does.
    ///
    /// # Errors
    /// As [`Storage::grow`]; `NotFound` for other lanes than the first; `Io` where the place has no such
    /// objects.
    fn grow_lane(
        &self,
        path: &ObjectPath,
        lane: Lane,
        durability: Durability,
    ) -> Result<Box<dyn GrowingObject>>;

    /// Returns the storage whose name is this one's followed by `suffix`, with the same mode and
    /// options. For a directory that is a sibling directory. It is created by the first write;
    /// until then it is empty. A failed sync that poisons one of the two poisons both.
    ///
    /// # Errors
    /// `Io` where the place can have no sibling, or if `suffix` is not a part of one name.
    /// `NotFound` if this place was moved or deleted; `PermissionDenied`.
    fn sibling(&self, suffix: &str) -> Result<Arc<dyn Storage>>;

    /// Returns the storage whose root is the directory `path` of this one, with the same mode and
    /// options. A writable place creates a missing directory durably. A failed sync that poisons
    /// one of the two poisons both. After a rename of the directory the storage must be opened
    /// anew.
    ///
    /// # Errors
    /// `NotFound` in a place that is only read; `NotAnObject`, `PermissionDenied`, `Io`.
    fn within(&self, path: &ObjectPath) -> Result<Arc<dyn Storage>>;

    /// Opens a directory inside `directory` in which a tree is staged until
    /// [`Storage::publish_tree`] gives it its name. The value holds the directory's lock until it
    /// is dropped. `None` if another owner holds it, which happens to a resumable workspace only.
    ///
    /// # Errors
    /// `Unsupported` in a place that publishes no trees; `ReadOnly`, `PermissionDenied`, `NoSpace`,
    /// `NotAnObject`, `Io`.
    fn workspace(
        &self,
        directory: &ObjectPath,
        name: WorkspaceName<'_>,
    ) -> Result<Option<Box<dyn Workspace>>>;

    /// Gives the directory `staged`, with everything below it, the name `target` in one step. After
    /// a crash it has one of the two names. At [`Durability::Disk`] the new name is durable when
    /// the call returns, provided the contents were written at that level. The caller must not
    /// write to the tree meanwhile. An error leaves both names unchanged; only after `Poisoned` may
    /// a crash leave either state.
    ///
    /// # Errors
    /// `Exists` with [`TreePublication::Absent`]. `NotFound` without the directory `staged`, or,
    /// for an exchange, without `target`. `NotAnObject` if either is no directory. `Unsupported` in
    /// object stores, on file systems without an exchange of names, for names on two file systems,
    /// and for one directory inside the other. `Poisoned`, `PermissionDenied`, `ReadOnly`,
    /// `NoSpace`, `Io`.
    fn publish_tree(
        &self,
        staged: &ObjectPath,
        target: &ObjectPath,
        how: TreePublication,
        durability: Durability,
    ) -> Result<()>;

    /// Gives the finished object `staged`, written by any process, the free name `target` in one
    /// step. After a crash it has one of the two names. At [`Durability::Disk`] its bytes and the
    /// new name are durable when the call returns. The caller must not write to it any more. An
    /// error leaves both names unchanged; only after `Poisoned` may a crash leave either state.
    ///
    /// # Errors
    /// `Exists`; `NotFound` without `staged`; `NotAnObject` if that is a directory. `Unsupported`
    /// in a place without renames, such as an object store. `Poisoned`, `PermissionDenied`,
    /// `ReadOnly`, `NoSpace`, `Io`.
    fn publish_object(
        &self,
        staged: &ObjectPath,
        target: &ObjectPath,
        durability: Durability,
    ) -> Result<()>;

    /// Deletes an object, atomically; durable when the call returns at [`Durability::Disk`].
    /// Idempotent: a missing object is no error. `condition` must not be `Absent`.
    ///
    /// # Errors
    /// `Conflict` if `condition` does not hold: nothing was deleted.
    fn delete(
        &self,
        path: &ObjectPath,
        durability: Durability,
        condition: Condition<'_>,
    ) -> Result<()>;

    /// Deletes a directory with everything below it. Not atomic; links are not followed; a missing
    /// directory is no error. The root stays, unless this storage was opened by
    /// [`Storage::sibling`]. An error leaves a part deleted, and another call continues.
    ///
    /// # Errors
    /// `PermissionDenied`, `ReadOnly`, `Io`.
    fn delete_tree(&self, path: &ObjectPath, durability: Durability) -> Result<()>;

    /// Returns the entries directly below `path`, sorted by name; empty if there is no such
    /// directory. Unpublished objects are left out.
    ///
    /// # Errors
    /// `PermissionDenied`, `Io`.
    fn list(&self, path: &ObjectPath) -> Result<Vec<ListedEntry>>;

    /// Makes durable which objects exist directly below `path`, whichever process added or removed
    /// them. A missing directory is no error.
    ///
    /// # Errors
    /// `Poisoned` if the outcome is unknown; `PermissionDenied`, `Io`.
    fn sync(&self, path: &ObjectPath) -> Result<()>;

    /// True if [`Storage::sync_all`] is available and would at present write few bytes of other
    /// programs.
    fn can_sync_all(&self) -> bool;

    /// Returns a function that makes all objects in `directories` durable, with their names and
    /// those of the directories. Objects published at [`Durability::Process`] are then as safe as
    /// at [`Durability::Disk`]. The function waits for all other bytes that the system holds for
    /// these devices, so it pays for many objects only. It fails for any write to the devices that
    /// failed since this call. Call it before writing the objects.
    ///
    /// # Errors
    /// `NotFound` for a missing directory; `Io` where the place has no such function. The function
    /// itself fails as [`Storage::sync`] does.
    fn sync_all(&self, directories: &[ObjectPath]) -> Result<SyncAll<'_>>;

    /// Waits until this thread alone, of all processes, holds the advisory lock of the existing
    /// directory `path`. Dropping the guard releases the lock. If the holder dies, the lock is
    /// released at once or after its lease; it never stays held.
    ///
    /// # Errors
    /// `NotFound` without the directory, except in a [remote](Storage::is_remote) place. `Io` in a
    /// place without locks.
    fn lock(&self, path: &ObjectPath) -> Result<Box<dyn Lock>>;

    /// As [`Storage::lock`], without waiting: `None` if another holder has the lock, or may have
    /// it.
    ///
    /// # Errors
    /// As [`Storage::lock`]; `NotFound` without the directory, anywhere.
    fn try_lock(&self, path: &ObjectPath) -> Result<Option<Box<dyn Lock>>>;

    /// As [`Storage::try_lock`], but waits until it is certain whether the holder is alive.
    ///
    /// # Errors
    /// As [`Storage::try_lock`].
    fn try_lock_of_dead(&self, path: &ObjectPath) -> Result<Option<Box<dyn Lock>>>;

    /// Removes the files of crashed writers in the directory `path` (unpublished objects and unique
    /// workspaces) and returns their number. A file is removed only if its writer provably ended.
    /// Published objects are never touched.
    ///
    /// # Errors
    /// `PermissionDenied`, `Io`.
    fn sweep(&self, path: &ObjectPath) -> Result<u64>;
}

/// Shorthands that follow from the methods of [`Storage`].
pub trait StorageExt: Storage {
    /// As [`Storage::open`]; `None` if there is no such object.
    ///
    /// # Errors
    /// As [`Storage::open`], without `NotFound`.
    fn find(&self, path: &ObjectPath) -> Result<Option<Box<dyn Object>>> {
        if_found(self.open(path))
    }

    /// As [`Storage::open_end`]; `None` if there is no such object.
    ///
    /// # Errors
    /// As [`StorageExt::find`].
    fn find_end(&self, path: &ObjectPath, bytes: u64) -> Result<Option<Box<dyn Object>>> {
        if_found(self.open_end(path, bytes))
    }
}

impl<S: Storage + ?Sized> StorageExt for S {}

/// Returns the object of a successful opening; `None` if it is missing.
///
/// # Errors
/// Other errors of the opening.
pub fn if_found(opened: Result<Box<dyn Object>>) -> Result<Option<Box<dyn Object>>> {
    match opened {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Wrappers accept a shared storage as any other.
impl<S: Storage + ?Sized> Storage for Arc<S> {
    forward!(**self as Storage: name, identity, is_remote, now, sibling, within);
    forward!(**self as Storage: open, open_end, request_end, stat, modified_ns, is_current);
    forward!(**self as Storage: create, put, grow, grow_lane, delete, delete_tree);
    forward!(**self as Storage: workspace, publish_tree, publish_object, list, sweep);
    forward!(**self as Storage: sync, can_sync_all, sync_all, lock, try_lock, try_lock_of_dead);
}

/// A directory in which a tree is staged before publication. See [`Storage::workspace`].
///
/// Its contents are written and read by their paths in the storage, or through [`Storage::within`].
pub trait Workspace: Send + Sync {
    /// Returns the path of the workspace in the storage.
    fn path(&self) -> &ObjectPath;

    /// Deletes the directory and its contents, durably. Dropping a unique workspace does so as far
    /// as possible.
    ///
    /// # Errors
    /// As [`Storage::delete_tree`]. A sweep or the next owner of the name removes the rest.
    fn remove(self: Box<Self>) -> Result<()>;
}

/// A guard that holds an advisory lock until it is dropped.
pub trait Lock: Send + Sync {
    /// Keeps the file or object behind the lock when the guard is dropped. For a caller that takes
    /// the lock again soon, and then drops a guard without this call.
    fn keep_lock_file(&mut self) {}
}
