//! The seam between the engine and any place that keeps bytes.
//!
//! What it promises, and every implementation is held to by the suite `conformance`:
//!
//! - An object is seen whole or not at all: a writer's bytes appear under the object's name in one
//!   step, when [`ObjectWriter::publish`] is called, and never before.
//! - An opened [`Object`] keeps the bytes that it had when it was opened, also while the name is
//!   given to a newer version or deleted; or its reads say `Conflict`, where a place keeps nothing
//!   ([`Storage::is_remote`]).
//! - What [`ObjectWriter::publish`] returned for at [`Durability::Disk`] is there after a power cut.
//! - An error leaves the previous version in place, or says [`StorageErrorKind::Poisoned`].
//! - Only a [`GrowingObject`] is seen before it is whole. What one of its syncs returned for never
//!   changes, and is what others may be told of.
//!
//! Calls block, but [`Storage::ask_end`] and [`Object::ask`], with which few threads have many requests on
//! their way. Where those have nothing to offer, many extents are in flight because many threads call; see
//! the engine's `read::execute`.
//!
//! [`StorageErrorKind::Poisoned`]: crate::StorageErrorKind::Poisoned

use std::fmt::Debug;
use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_format::log::Lane;

use crate::{
    Bell, Condition, GrowingObject, Object, ObjectWriter, PendingObject, StorageError, Version,
};

type Result<T> = std::result::Result<T, StorageError>;

/// What an acknowledged write survives.
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
pub struct Entry {
    /// The last segment of the entry's path.
    pub name: String,
    /// True for a directory (a prefix with objects below it).
    pub is_directory: bool,
}

/// What may have the name that a tree is published under, and what becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreePublication {
    /// Nothing but an empty directory, which gives way; else
    /// [`StorageErrorKind::Exists`](crate::StorageErrorKind::Exists).
    Absent,
    /// A directory, which is at the staged name afterwards.
    Exchange,
}

/// What a [`Workspace`] is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkspaceName<'a> {
    /// A hidden name that nobody else gets. What is in it goes with its owner: when the value is dropped, or,
    /// if the owner died, with the next [sweep](Storage::sweep) of the directory.
    Unique,
    /// This name, of one segment. What is in it stays when its owner ends, to be taken up by the next one,
    /// until it is [removed](Workspace::remove).
    Resumable(&'a str),
}

/// What is known of an object before it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hint {
    /// Its size.
    pub bytes: Option<u64>,
    /// How many objects are likely to be on their way for most of the time that it takes; it is one of them.
    pub at_once: usize,
}

impl Hint {
    /// Of an object of `bytes` that is written by itself.
    #[must_use]
    pub const fn of(bytes: u64) -> Self {
        Self { bytes: Some(bytes), at_once: 1 }
    }
}

impl Default for Hint {
    fn default() -> Self {
        Self { bytes: None, at_once: 1 }
    }
}

/// See [`Storage::sync_all`].
pub type SyncAll<'a> = Box<dyn Fn() -> Result<()> + Send + Sync + 'a>;

/// A place that keeps objects under paths. Cheap to share between threads.
///
/// No method has a default body: what a place cannot do it says itself, and a wrapper that leaves a method
/// out does not compile. Shorthands are in [`StorageExt`]; what implementations have in common is in
/// [`implement`](crate::implement).
pub trait Storage: Send + Sync + Debug {
    /// What a user calls this place: a directory or URL.
    fn name(&self) -> String;

    /// A text that two handles of this process have in common exactly if they see the same bytes with the
    /// same rights; nothing where that cannot be said. The key of caches that all handles share: it holds
    /// no secret, means nothing in another process, and is not for people.
    ///
    /// What it says of an object holds for a [`Version`] that [tells](Version::tells_bytes_apart) bytes
    /// apart.
    fn identity(&self) -> Option<String>;

    /// Opens an object for reading and pins its bytes.
    ///
    /// # Errors
    /// `NotFound`; `NotAnObject` for a directory, device, FIFO, or a link that leaves the store.
    fn open(&self, path: &ObjectPath) -> Result<Box<dyn Object>>;

    /// True for a place behind a server. Each call waits for an answer, so that many are better made at
    /// once; and an opened [`Object`] loses its bytes when its name is given to a newer version: reads of
    /// it are then a `Conflict`, and whoever planned by it has to plan again.
    ///
    /// What there is in such a place is objects alone: directories are the parts of names that several of
    /// them have in common, and an object grows for one writer. Nothing can be deleted on condition. A lock
    /// is given up some time after its holder died; a holder that may have lost one writes nothing more.
    fn is_remote(&self) -> bool;

    /// As [`Storage::open`], by who will read the last `bytes` of the object, or all of it if it has no
    /// more: a remote place sends them along.
    ///
    /// # Errors
    /// As [`Storage::open`].
    fn open_end(&self, path: &ObjectPath, bytes: u64) -> Result<Box<dyn Object>>;

    /// As [`StorageExt::find_end`], without waiting for it: the answer rings `bell`. Nothing where that is no
    /// wait worth it, as with the files of this machine: use [`StorageExt::find_end`].
    fn ask_end(&self, path: &ObjectPath, bytes: u64, bell: &Arc<Bell>) -> Option<PendingObject>;

    /// The version that `path` stands for now. Cheaper than [`Storage::open`].
    ///
    /// # Errors
    /// As [`Storage::open`].
    fn stat(&self, path: &ObjectPath) -> Result<Version>;

    /// When the object that `path` stands for was last changed, in nanoseconds since 1970 by the clock of
    /// the place, which may be wrong; 0 where that is unknown. Of a directory, where there are such, when a name
    /// in it last came or went.
    ///
    /// # Errors
    /// As [`Storage::open`].
    fn modified_ns(&self, path: &ObjectPath) -> Result<i64>;

    /// A time by the clock that dates the objects of this place, in nanoseconds: the [`Version`] of what
    /// got its name before the call has changed at that time at the latest, that of what gets its name
    /// after the return has changed later. It waits for that to be so: a few milliseconds for files,
    /// whose times go by the ticks of the system. Nothing is sure of a place whose clock is another
    /// machine's, or counts seconds.
    ///
    /// # Errors
    /// `Io` if the clock cannot be read.
    fn now(&self) -> Result<i64>;

    /// True if `path` still stands for `version`. As cheap as the place allows, because readers ask
    /// it before every read.
    ///
    /// # Errors
    /// As [`Storage::stat`]; a missing name is `Ok(false)`.
    fn is_current(&self, path: &ObjectPath, version: &Version) -> Result<bool>;

    /// Starts a new object. Nothing is visible until it is published; dropping the writer leaves
    /// nothing behind. A wrong hint is harmless.
    ///
    /// # Errors
    /// `ReadOnly`, `PermissionDenied`, `NoSpace`, `NotAnObject`, `Io`.
    fn create(
        &self,
        path: &ObjectPath,
        durability: Durability,
        hint: Hint,
    ) -> Result<Box<dyn ObjectWriter + '_>>;

    /// Publishes an object of `bytes`: [`Storage::create`] and all that follows, for small ones.
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

    /// Creates an object under its own name, empty, to be appended to for as long as one likes: it is
    /// seen at once, and grows. `size_hint` is the expected size in bytes, if known; a wrong one is
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

    /// As [`Storage::grow`], of an object that several writers share, each appending to a lane of its
    /// own: `bedform_format::log::Lanes` says which bytes that is. The writer of the first lane creates
    /// the object, the others find it. A lane that was not written to reads as zeros, or is missing at
    /// the end; so is what was set aside and not written. Space is only set aside in a writer's own lane.
    ///
    /// A sync by any of them makes durable what all that see the object through the same system have
    /// handed to it, which [`GrowingObject::flush`] does.
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

    /// The place whose name is this one's with `suffix` behind it, in the same mode and with the same
    /// options; of a directory that is its sibling. Nothing is made until something is written there,
    /// and until then it is as an empty one. What poisons one of the two poisons both.
    ///
    /// # Errors
    /// `Io` where nothing can lie beside this place, or if `suffix` is not a part of one name;
    /// `NotFound` if this place was moved or deleted; `PermissionDenied`.
    fn beside(&self, suffix: &str) -> Result<Arc<dyn Storage>>;

    /// The place whose root is the directory `path` of this one, in the same mode and with the same options.
    /// A place that is written to makes the directory, durably, if it is missing. What poisons one of the two
    /// poisons both. Open it anew once the directory was renamed.
    ///
    /// # Errors
    /// `NotFound` in a place that is only read; `NotAnObject`, `PermissionDenied`, `Io`.
    fn within(&self, path: &ObjectPath) -> Result<Arc<dyn Storage>>;

    /// A directory in `directory` in which a tree grows before [`Storage::publish_tree`] gives it its name,
    /// and whose lock is held until the value is dropped. `None` if somebody else works in it, which only
    /// happens to a resumable one.
    ///
    /// # Errors
    /// `Unsupported` in a place that publishes no trees; `ReadOnly`, `PermissionDenied`, `NoSpace`,
    /// `NotAnObject`, `Io`.
    fn workspace(
        &self,
        directory: &ObjectPath,
        name: WorkspaceName<'_>,
    ) -> Result<Option<Box<dyn Workspace>>>;

    /// Gives the directory `staged`, with all below it, the name `target`, in one step: after a crash too it
    /// has the one name or the other. At [`Durability::Disk`] it is the new one once the call returned, if
    /// what is in the tree was written at that level. Nothing in the tree is being written meanwhile. An
    /// error leaves both names as they were; only one of kind `Poisoned` means that either state may be
    /// found after a crash.
    ///
    /// # Errors
    /// `Exists` by [`TreePublication::Absent`]; `NotFound` without the directory `staged`, or without
    /// `target` where they change places; `NotAnObject` if either is no directory. `Unsupported` where the
    /// place cannot do it: object stores; file systems that exchange no names; names on two file systems;
    /// one directory inside the other. `Poisoned`, `PermissionDenied`, `ReadOnly`, `NoSpace`, `Io`.
    fn publish_tree(
        &self,
        staged: &ObjectPath,
        target: &ObjectPath,
        how: TreePublication,
        durability: Durability,
    ) -> Result<()>;

    /// Gives the finished object `staged`, whoever wrote it, the name `target`, which nothing has, in one step:
    /// after a crash too it has the one name or the other. At [`Durability::Disk`] its bytes and the new name
    /// are durable once the call returned. Nobody writes to it any more. An error leaves both names as they
    /// were; only one of kind `Poisoned` means that either state may be found after a crash.
    ///
    /// # Errors
    /// `Exists`; `NotFound` without `staged`; `NotAnObject` if that is a directory. `Unsupported` where the
    /// place renames nothing, as object stores; `Poisoned`, `PermissionDenied`, `ReadOnly`, `NoSpace`, `Io`.
    fn publish_object(
        &self,
        staged: &ObjectPath,
        target: &ObjectPath,
        durability: Durability,
    ) -> Result<()>;

    /// Deletes an object. Atomic; durable when the call returns at [`Durability::Disk`]. A missing
    /// object is no error: deleting twice is deleting. `condition` must not be `Absent`.
    ///
    /// # Errors
    /// `Conflict` if `condition` does not hold: nothing was deleted.
    fn delete(
        &self,
        path: &ObjectPath,
        durability: Durability,
        condition: Condition<'_>,
    ) -> Result<()>;

    /// Deletes a directory with all below it: not atomic, links are not followed, a missing one is
    /// no error. The root stays, unless it is that of a place [beside](Storage::beside) another. An
    /// error leaves some of it deleted; calling again goes on.
    ///
    /// # Errors
    /// `PermissionDenied`, `ReadOnly`, `Io`.
    fn delete_tree(&self, path: &ObjectPath, durability: Durability) -> Result<()>;

    /// The entries directly below `path`, sorted by name; empty if there is no such directory.
    /// Objects that are not yet published do not appear.
    ///
    /// # Errors
    /// `PermissionDenied`, `Io`.
    fn list(&self, path: &ObjectPath) -> Result<Vec<Entry>>;

    /// Makes durable which objects are, and are no longer, directly below `path`, whoever changed
    /// that. A missing directory is no error.
    ///
    /// # Errors
    /// `Poisoned` if the outcome is unknown; `PermissionDenied`, `Io`.
    fn sync(&self, path: &ObjectPath) -> Result<()>;

    /// True if [`Storage::sync_all`] is to be had, and has little to do for others just now.
    fn can_sync_all(&self) -> bool;

    /// What makes all objects in `directories` durable each time that it is called, with their names and
    /// those of the directories: what was published at [`Durability::Process`] is then as good as at
    /// [`Durability::Disk`]. It waits for whatever else lies in the system's memory for these devices: worth
    /// it for many objects. It fails for any write to the devices that has failed since it was made: to be
    /// made before what it is to make durable is written.
    ///
    /// # Errors
    /// `NotFound` for a missing directory; `Io` where it is not to be had. When it is called, as
    /// [`Storage::sync`].
    fn sync_all(&self, directories: &[ObjectPath]) -> Result<SyncAll<'_>>;

    /// Waits until this process and thread alone hold the advisory lock named `path` (a directory
    /// of the store, which must exist). The lock is given up when the guard is dropped and when the
    /// holder dies, or some time after it; it never goes stale.
    ///
    /// # Errors
    /// `NotFound` without the directory, but in a [remote](Storage::is_remote) place; `Io` where the place
    /// has no locks.
    fn lock(&self, path: &ObjectPath) -> Result<Box<dyn Lock>>;

    /// As [`Storage::lock`], without waiting: `None` if somebody holds the lock, or may hold it.
    ///
    /// # Errors
    /// As [`Storage::lock`]; `NotFound` without the directory, anywhere.
    fn try_lock(&self, path: &ObjectPath) -> Result<Option<Box<dyn Lock>>>;

    /// As [`Storage::try_lock`], by who has to know: waits until it can be told whether a holder is alive.
    ///
    /// # Errors
    /// As [`Storage::try_lock`].
    fn try_lock_of_dead(&self, path: &ObjectPath) -> Result<Option<Box<dyn Lock>>>;

    /// Removes what crashed writers left in the directory `path` (unpublished objects, and unique
    /// workspaces, whose writer is provably gone), and says how many. Never touches a published object.
    ///
    /// # Errors
    /// `PermissionDenied`, `Io`.
    fn sweep(&self, path: &ObjectPath) -> Result<u64>;
}

/// What follows from the methods of [`Storage`] in one way only.
pub trait StorageExt: Storage {
    /// As [`Storage::open`]; nothing if there is no such object.
    ///
    /// # Errors
    /// As [`Storage::open`], without `NotFound`.
    fn find(&self, path: &ObjectPath) -> Result<Option<Box<dyn Object>>> {
        found(self.open(path))
    }

    /// As [`Storage::open_end`]; nothing if there is no such object.
    ///
    /// # Errors
    /// As [`StorageExt::find`].
    fn find_end(&self, path: &ObjectPath, bytes: u64) -> Result<Option<Box<dyn Object>>> {
        found(self.open_end(path, bytes))
    }
}

impl<S: Storage + ?Sized> StorageExt for S {}

fn found(opened: Result<Box<dyn Object>>) -> Result<Option<Box<dyn Object>>> {
    match opened {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// A directory in which a tree grows before it is published. See [`Storage::workspace`].
///
/// What lies in it is written and read by its path in the storage, or by [`Storage::within`].
pub trait Workspace: Send + Sync {
    /// Where it is.
    fn path(&self) -> &ObjectPath;

    /// Deletes it with all that is in it, durably. Dropping a unique one does so as far as it can.
    ///
    /// # Errors
    /// As [`Storage::delete_tree`]; what is left goes with a sweep, or when it is taken up again.
    fn remove(self: Box<Self>) -> Result<()>;
}

/// Holds an advisory lock until dropped.
pub trait Lock: Send + Sync {
    /// Leaves what is made for the lock, if anything is, when it is given up: for who takes it again soon, and
    /// then gives it up without this.
    fn keep_place(&mut self) {}
}
