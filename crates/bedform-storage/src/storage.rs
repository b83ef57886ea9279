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
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_format::log::Lane;
use bytes::Bytes;

use crate::{Answer, Bell, Found, ReadBlock, StorageError, StorageErrorKind};

type Result<T> = std::result::Result<T, StorageError>;

/// What [`GrowingObject::sync`] pads to: the next bytes then begin where a device's blocks do.
pub const SYNC_ALIGNMENT: u64 = 4096;

/// What an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// The end of this process: bytes are handed to the system, nothing is synced.
    Process,
    /// A power cut: file and directory are synced before the call returns.
    #[default]
    Disk,
}

/// Which bytes a name stood for: two equal versions of one path are the same bytes, as far as the
/// place can tell.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Version {
    /// Bytes of the object.
    pub size: u64,
    /// Time of the last change of the bytes, in nanoseconds since 1970; 0 where unknown.
    pub modified_ns: i64,
    /// Time of the last change of bytes or attributes, likewise.
    pub changed_ns: i64,
    /// Device and file number, or a hash of the ETag.
    pub identity: (u64, u64),
}

/// One entry of a directory listing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The last segment of the entry's path.
    pub name: String,
    /// True for a directory (a prefix with objects below it).
    pub is_directory: bool,
}

/// What must hold at the moment that a writer's bytes get their name.
#[derive(Debug, Clone, Copy)]
pub enum Condition<'a> {
    /// No object has the name; else [`StorageErrorKind::Exists`].
    Absent,
    /// The name still stands for this opened object; else
    /// [`StorageErrorKind::Conflict`].
    Unchanged(&'a dyn Object),
    /// Nothing: the newest writer wins.
    None,
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

/// A place that keeps objects under paths. Cheap to share between threads.
pub trait Storage: Send + Sync + Debug {
    /// What a user calls this place: a directory or URL.
    fn name(&self) -> String;

    /// Opens an object for reading and pins its bytes.
    ///
    /// # Errors
    /// `NotFound`; `NotAnObject` for a directory, device, FIFO, or a link that leaves the store.
    fn open(&self, path: &ObjectPath) -> Result<Box<dyn Object>>;

    /// As [`Storage::open`]; nothing if there is no such object.
    ///
    /// # Errors
    /// As [`Storage::open`], without `NotFound`.
    fn find(&self, path: &ObjectPath) -> Result<Option<Box<dyn Object>>> {
        match self.open(path) {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// True for a place behind a server. Each call waits for an answer, so that many are better made at
    /// once; and an opened [`Object`] loses its bytes when its name is given to a newer version: reads of
    /// it are then a `Conflict`, and whoever planned by it has to plan again.
    ///
    /// What there is in such a place is objects alone: directories are the parts of names that several of
    /// them have in common, and an object grows for one writer. Nothing can be deleted on condition. A lock
    /// is given up some time after its holder died; a holder that may have lost one writes nothing more.
    fn is_remote(&self) -> bool {
        false
    }

    /// As [`Storage::open`], by who will read the last `bytes` of the object, or all of it if it has no
    /// more: a remote place sends them along.
    ///
    /// # Errors
    /// As [`Storage::open`].
    fn open_end(&self, path: &ObjectPath, bytes: u64) -> Result<Box<dyn Object>> {
        let _ = bytes;
        self.open(path)
    }

    /// As [`Storage::open_end`]; nothing if there is no such object.
    ///
    /// # Errors
    /// As [`Storage::find`].
    fn find_end(&self, path: &ObjectPath, bytes: u64) -> Result<Option<Box<dyn Object>>> {
        let _ = bytes;
        self.find(path)
    }

    /// As [`Storage::find_end`], without waiting for it: the answer rings `bell`. Nothing where that is no
    /// wait worth it, as with the files of this machine: use [`Storage::find_end`].
    fn ask_end(&self, path: &ObjectPath, bytes: u64, bell: &Arc<Bell>) -> Option<Found> {
        let _ = (path, bytes, bell);
        None
    }

    /// The version that `path` stands for now. Cheaper than [`Storage::open`].
    ///
    /// # Errors
    /// As [`Storage::open`].
    fn stat(&self, path: &ObjectPath) -> Result<Version>;

    /// When the object that `path` stands for was last changed, in nanoseconds since 1970 by the clock of
    /// the place, which may be wrong; 0 where that is unknown.
    ///
    /// # Errors
    /// As [`Storage::open`].
    fn modified_ns(&self, path: &ObjectPath) -> Result<i64> {
        Ok(self.stat(path)?.modified_ns)
    }

    /// True if `path` still stands for `version`. As cheap as the place allows, because readers ask
    /// it before every read.
    ///
    /// # Errors
    /// As [`Storage::stat`]; a missing name is `Ok(false)`.
    fn is_current(&self, path: &ObjectPath, version: &Version) -> Result<bool> {
        match self.stat(path) {
            Ok(found) => Ok(found == *version),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

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
    ) -> Result<Version> {
        let mut writer = self.create(path, durability, Hint::of(bytes.len() as u64))?;
        writer.append(bytes)?;
        writer.publish(condition)
    }

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
    ) -> Result<Box<dyn GrowingObject>> {
        if lane.is_alone() {
            return self.grow(path, durability, None);
        }
        let reason = io::Error::other("objects of several writers are not to be had here");
        Err(StorageError::from_io("create", path, reason))
    }

    /// The place whose name is this one's with `suffix` behind it, in the same mode and with the same
    /// options; of a directory that is its sibling. Nothing is made until something is written there,
    /// and until then it is as an empty one. What poisons one of the two poisons both.
    ///
    /// # Errors
    /// `Io` where nothing can lie beside this place, or if `suffix` is not a part of one name;
    /// `NotFound` if this place was moved or deleted; `PermissionDenied`.
    fn beside(&self, suffix: &str) -> Result<Arc<dyn Storage>>;

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
    fn can_sync_all(&self) -> bool {
        false
    }

    /// Makes all objects in `directories` durable, with their names and those of the directories: what
    /// was published at [`Durability::Process`] is then as good as at [`Durability::Disk`]. It waits for
    /// whatever else lies in the system's memory for these devices: worth it for many small objects.
    ///
    /// # Errors
    /// As [`Storage::sync`]; `NotFound` for a missing directory; `Io` where it is not to be had.
    fn sync_all(&self, directories: &[ObjectPath]) -> Result<()> {
        let _ = directories;
        let refused = std::io::ErrorKind::Unsupported.into();
        Err(StorageError::from_io("sync", self.name(), refused))
    }

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
    fn try_lock_of_dead(&self, path: &ObjectPath) -> Result<Option<Box<dyn Lock>>> {
        self.try_lock(path)
    }

    /// Removes what crashed writers left in the directory `path` (unpublished objects whose writer
    /// is provably gone), and says how many. Never touches a published object.
    ///
    /// # Errors
    /// `PermissionDenied`, `Io`.
    fn sweep(&self, path: &ObjectPath) -> Result<u64>;
}

/// An opened object: an unchanging run of bytes.
pub trait Object: Send + Sync + Debug {
    /// The version whose bytes this is.
    fn version(&self) -> &Version;

    /// Fills `buffer` with the bytes from `offset` on, waiting for the device if need be.
    ///
    /// # Errors
    /// `Truncated` if the object ends before; the contents of `buffer` are then unspecified.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;

    /// Bytes that are not at hand, in `block`, where the place reads so many of them faster that way;
    /// else nothing: use [`Object::read`]. What a block cannot hold is never read so.
    ///
    /// # Errors
    /// `PermissionDenied`, `Io`.
    fn read_past<'b>(
        &self,
        offset: u64,
        length: usize,
        block: &'b mut ReadBlock,
    ) -> Result<Option<&'b [u8]>> {
        let _ = (offset, length, block);
        Ok(None)
    }

    /// Says that these bytes will be read soon, without waiting for them. True if the place fetches
    /// them meanwhile; false if it can do nothing with such a hint.
    fn read_ahead(&self, offset: u64, length: u64) -> bool {
        let _ = (offset, length);
        false
    }

    /// The bytes of an extent, without waiting for them: the answer rings `bell`. Nothing where that cannot
    /// be had: use [`Object::read`].
    fn ask(&self, offset: u64, length: u64, bell: &Arc<Bell>) -> Option<Answer<Bytes>> {
        let _ = (offset, length, bell);
        None
    }

    /// Fills the front of `buffer` with bytes that are at hand without waiting for the device, and
    /// says how many there were: 0 where nothing is at hand or the place cannot tell.
    ///
    /// # Errors
    /// As [`Object::read`].
    fn read_resident(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let _ = (offset, buffer);
        Ok(0)
    }

    /// The bytes that came when the object was opened: to read them costs nothing.
    fn at_hand(&self) -> Range<u64> {
        0..0
    }

    /// Bytes of those that came when the object was opened, where they lie; nothing unless all of them
    /// did.
    fn known(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let _ = (offset, length);
        None
    }

    /// The same version, to be kept for later reads without opening it again, where opening is a request
    /// of its own and reads find out by themselves whether the version is still the one. Holds no bytes.
    fn kept(&self) -> Option<Arc<dyn Object>> {
        None
    }

    /// True if the name still stands for these bytes as far as the place can tell cheaply.
    ///
    /// # Errors
    /// As [`Storage::stat`]; a missing name is `Ok(false)`.
    fn is_current(&self) -> Result<bool>;
}

/// An object on its way: bytes are appended, then published under the object's name.
pub trait ObjectWriter: Send {
    /// Bytes appended so far.
    fn position(&self) -> u64;

    /// Appends `bytes`.
    ///
    /// # Errors
    /// `NoSpace`, `Io`: the object can no longer be published.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;

    /// As [`ObjectWriter::append`], where the writer may keep the memory until the object is published,
    /// so that what it needs is not there twice. Gives back memory that it does not keep.
    ///
    /// # Errors
    /// As [`ObjectWriter::append`].
    fn append_owned(&mut self, bytes: Vec<u8>) -> Result<Option<Vec<u8>>> {
        self.append(&bytes)?;
        Ok(Some(bytes))
    }

    /// Gives the bytes their name if `condition` holds: atomic, and durable at
    /// [`Durability::Disk`]. On an error the name stands for what it stood for before; only an
    /// error of kind `Poisoned` means that either state may be found after a crash.
    ///
    /// # Errors
    /// `Exists` or `Conflict` by the condition, `NoSpace`, `Io`, `Poisoned`.
    fn publish(self: Box<Self>, condition: Condition<'_>) -> Result<Version>;
}

/// An object that is seen while it grows, appended to by one writer.
///
/// Of an object that has several [lanes](Storage::grow_lane) this is one of them.
///
/// Readers open it at any time. They may read what was synced, and should be told elsewhere how much
/// that is: behind it there may be anything, zeros or nothing, and the size of the object says nothing.
/// What was appended after an [`Object`] was opened may be missing from that one.
///
/// Dropping it leaves the object as it is, and no thread behind.
pub trait GrowingObject: Send {
    /// Bytes appended so far, padding included; of a lane, to that.
    fn position(&self) -> u64;

    /// Appends `bytes` behind what is there.
    ///
    /// # Errors
    /// `NoSpace`, `Io`, perhaps for earlier bytes: what was synced stays, and nothing more can be
    /// appended or synced. `Poisoned`.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;

    /// Hands everything appended to the system: it outlives this process, not a power cut. Pads as
    /// [`GrowingObject::sync`] does.
    ///
    /// # Errors
    /// As [`GrowingObject::append`].
    fn flush(&mut self) -> Result<()> {
        self.sync()
    }

    /// Hands everything appended to the system, where readers find it, and at [`Durability::Disk`]
    /// makes it and the object's name survive a power cut before it returns. Pads with zeros to a
    /// multiple of [`SYNC_ALIGNMENT`], which is then the object's size and the position; appending
    /// goes on from there. Without anything new it does nothing, unless others have lanes, too.
    ///
    /// # Errors
    /// As [`GrowingObject::append`]; `Poisoned` if what was appended since the last sync may be there
    /// or not after a crash.
    fn sync(&mut self) -> Result<()>;
}

/// Holds an advisory lock until dropped.
pub trait Lock: Send + Sync {}

/// Where the next `length` bytes of a lane from `position` on go in the object, and how many of them
/// lie there.
///
/// # Errors
/// `NoSpace` if the lane has no room for all of them.
pub(crate) fn place_in(
    lane: Lane,
    position: u64,
    length: usize,
    path: &ObjectPath,
) -> Result<(u64, usize)> {
    let end = position.checked_add(length as u64);
    if end.is_none_or(|end| end > lane.bytes_max()) {
        return Err(StorageError::new(StorageErrorKind::NoSpace, "write", path));
    }
    let run = lane.run(position);
    Ok((run.offset, usize::try_from(run.length).unwrap_or(usize::MAX).min(length)))
}

/// The zeros that an object of `position` bytes is padded with.
pub(crate) fn padding(position: u64) -> &'static [u8] {
    static ZEROS: [u8; 4096] = [0; 4096];
    let missing = position.next_multiple_of(SYNC_ALIGNMENT) - position;
    usize::try_from(missing).map_or(&[], |missing| &ZEROS[..missing])
}

/// `suffix`, if a name stays a single segment with it behind.
///
/// # Errors
/// `Io`.
pub(crate) fn checked_suffix(suffix: &str) -> Result<&str> {
    match ObjectPath::parse(suffix) {
        Ok(path) if !path.is_root() && path.parent().is_root() => Ok(suffix),
        _ => {
            let reason = io::Error::other("what lies beside a place has its name and more");
            Err(StorageError::from_io("open", suffix, reason))
        }
    }
}
