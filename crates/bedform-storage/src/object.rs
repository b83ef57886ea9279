//! Objects: opened for reading, on their way to a name, and growing under one.
//!
//! The traits hold what an implementation must decide, and have no default bodies: a wrapper that leaves a
//! method out does not compile. An implementation that lacks an ability says so with
//! [`lacks!`](crate::lacks).

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use bedform_format::ObjectPath;
use bytes::Bytes;

use crate::{Answer, Bell, ReadBlock, StorageError};

type Result<T> = std::result::Result<T, StorageError>;

/// What [`GrowingObject::sync`] pads to: the next bytes then begin where a device's blocks do.
pub const SYNC_ALIGNMENT: u64 = 4096;

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

impl Version {
    /// True if the place says more of the bytes than how many they are: servers without ETag and time do
    /// not, and then two equal versions may be other bytes.
    pub fn tells_bytes_apart(&self) -> bool {
        let Self { size: _, modified_ns, changed_ns, identity } = self;
        (*modified_ns, *changed_ns, *identity) != (0, 0, (0, 0))
    }
}

/// An answer to whether an object is there: opened, if it is.
pub type PendingObject = Answer<Option<Box<dyn Object>>>;

/// What must hold at the moment that a writer's bytes get their name.
#[derive(Debug, Clone, Copy)]
pub enum Condition<'a> {
    /// No object has the name; else [`StorageErrorKind::Exists`](crate::StorageErrorKind::Exists).
    Absent,
    /// The name still stands for this opened object; else
    /// [`StorageErrorKind::Conflict`](crate::StorageErrorKind::Conflict).
    Unchanged(&'a dyn Object),
    /// Nothing: the newest writer wins.
    None,
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
    ) -> Result<Option<&'b [u8]>>;

    /// Says that these bytes will be read soon, without waiting for them. True if the place fetches
    /// them meanwhile; false if it can do nothing with such a hint.
    fn read_ahead(&self, offset: u64, length: u64) -> bool;

    /// The bytes of an extent, without waiting for them: the answer rings `bell`. Nothing where that cannot
    /// be had: use [`Object::read`].
    fn ask(&self, offset: u64, length: u64, bell: &Arc<Bell>) -> Option<Answer<Bytes>>;

    /// Fills the front of `buffer` with bytes that are at hand without waiting for the device, and
    /// says how many there were: 0 where nothing is at hand or the place cannot tell.
    ///
    /// # Errors
    /// As [`Object::read`].
    fn read_resident(&self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// The bytes that came when the object was opened: to read them costs nothing.
    fn at_hand(&self) -> Range<u64>;

    /// Bytes of those that came when the object was opened, where they lie; nothing unless all of them
    /// did.
    fn known(&self, offset: u64, length: usize) -> Option<&[u8]>;

    /// The same version, to be kept for later reads without opening it again, where opening is a request
    /// of its own and reads find out by themselves whether the version is still the one. Holds no bytes.
    fn kept(&self) -> Option<Arc<dyn Object>>;

    /// True if the name still stands for these bytes as far as the place can tell cheaply.
    ///
    /// # Errors
    /// As [`Storage::stat`](crate::Storage::stat); a missing name is `Ok(false)`.
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
    fn append_owned(&mut self, bytes: Vec<u8>) -> Result<Option<Vec<u8>>>;

    /// What the bytes take the place of is to stay under the name `path` in the place
    /// [beside](crate::Storage::beside) with `suffix`, whose directories are made; of nothing an object without
    /// bytes, which is made while there is nothing. Where an object cannot have two names, or cannot be given a
    /// second one, it goes, and nobody is told. It costs no space but that of the object.
    fn keep_replaced(&mut self, suffix: &'static str, path: ObjectPath);

    /// Hands all bytes over to the system, and leaves it to the caller to make them durable, and then the
    /// name that [`ObjectWriter::publish`] gives them, each time by [`Storage::sync_all`](crate::Storage::sync_all):
    /// of many objects that costs no more than of one. Nothing more may be appended. What a place without
    /// that call does with it is nothing.
    ///
    /// # Errors
    /// As [`ObjectWriter::append`].
    fn hand_over(&mut self) -> Result<()>;

    /// Gives the bytes their name if `condition` holds: atomic, and durable at
    /// [`Durability::Disk`](crate::Durability::Disk) unless they were handed over. On an error the name
    /// stands for what it stood for before; only an error of kind `Poisoned` means that either state may be
    /// found after a crash.
    ///
    /// # Errors
    /// `Exists` or `Conflict` by the condition, `NoSpace`, `Io`, `Poisoned`.
    fn publish(self: Box<Self>, condition: Condition<'_>) -> Result<Version>;
}

/// An object that is seen while it grows, appended to by one writer.
///
/// Of an object that has several [lanes](crate::Storage::grow_lane) this is one of them.
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
    fn flush(&mut self) -> Result<()>;

    /// Hands everything appended to the system, where readers find it, and at [`Durability::Disk`](crate::Durability::Disk)
    /// makes it and the object's name survive a power cut before it returns. Pads with zeros to a
    /// multiple of [`SYNC_ALIGNMENT`], which is then the object's size and the position; appending
    /// goes on from there. Without anything new it does nothing, unless others have lanes, too.
    ///
    /// # Errors
    /// As [`GrowingObject::append`]; `Poisoned` if what was appended since the last sync may be there
    /// or not after a crash.
    fn sync(&mut self) -> Result<()>;
}
