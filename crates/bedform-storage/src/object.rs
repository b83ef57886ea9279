//! Objects: opened for reading, written before publication, or growing under their own name.
//!
//! The traits have no default bodies, so that a wrapper that omits a method does not compile. An
//! implementation declares its missing abilities with [`lacks!`](crate::lacks).

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use bedform_format::ObjectPath;
use bytes::Bytes;

use crate::{Answer, Bell, ReadBlock, StorageError};

type Result<T> = std::result::Result<T, StorageError>;

/// The multiple of bytes to which [`GrowingObject::sync`] pads: the next bytes start on a device
/// block.
pub const SYNC_ALIGNMENT: u64 = 4096;

/// The state of the bytes behind a name. Two equal versions of one path have the same bytes, as far
/// as the place can tell.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Version {
    /// Size of the object in bytes.
    pub size: u64,
    /// Time of the last change of the bytes, in nanoseconds since 1970; 0 where unknown.
    pub modified_ns: i64,
    /// Time of the last change of the bytes or attributes, likewise.
    pub changed_ns: i64,
    /// Device and file number, or a hash of the ETag.
    pub identity: (u64, u64),
}

impl Version {
    /// True if the place reports more about the bytes than their number. A server without ETag and
    /// times does not, and two equal versions may then have different bytes.
    pub fn tells_bytes_apart(&self) -> bool {
        let Self { size: _, modified_ns, changed_ns, identity } = self;
        (*modified_ns, *changed_ns, *identity) != (0, 0, (0, 0))
    }
}

/// A pending answer of [`Storage::request_end`](crate::Storage::request_end): the opened object, or `None`
/// if it is missing.
pub type PendingObject = Answer<Option<Box<dyn Object>>>;

/// The precondition of publishing or deleting an object, checked in the same step.
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

/// An opened object: an immutable sequence of bytes.
pub trait Object: Send + Sync + Debug {
    /// Returns the version of these bytes.
    fn version(&self) -> &Version;

    /// Fills `buffer` with the bytes from `offset` on; waits for the device if needed.
    ///
    /// # Errors
    /// `Truncated` if the object ends before; the contents of `buffer` are then unspecified.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;

    /// Reads `length` bytes into `block`, past the page cache, if they are not in memory and that
    /// is faster. `None` otherwise, and for ranges larger than a block: use [`Object::read`].
    ///
    /// # Errors
    /// `PermissionDenied`, `Io`.
    fn read_past<'b>(
        &self,
        offset: u64,
        length: usize,
        block: &'b mut ReadBlock,
    ) -> Result<Option<&'b [u8]>>;

    /// Gives a readahead hint for a byte range, without waiting. True if the place fetches the
    /// bytes in the background; false if the hint has no effect.
    fn read_ahead(&self, offset: u64, length: u64) -> bool;

    /// Requests the bytes of an extent without waiting; the answer rings `bell`. `None` where the
    /// place has no such requests: use [`Object::read`].
    fn request(&self, offset: u64, length: u64, bell: &Arc<Bell>) -> Option<Answer<Bytes>>;

    /// Fills the front of `buffer` with bytes that are available without waiting for the device.
    /// Returns their number: 0 where none are, or the place cannot tell.
    ///
    /// # Errors
    /// As [`Object::read`].
    fn read_resident(&self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Returns the byte range that came with the opening of the object. Reading it costs nothing.
    fn buffered_range(&self) -> Range<u64>;

    /// Borrows bytes that came with the opening of the object. `None` unless all of them did.
    fn buffered_bytes(&self, offset: u64, length: usize) -> Option<&[u8]>;

    /// Returns a handle of the same version for later reads. It exists where opening costs a
    /// request and each read detects a replaced version. It holds no bytes.
    fn kept(&self) -> Option<Arc<dyn Object>>;

    /// True if the name still stands for these bytes as far as the place can tell cheaply.
    ///
    /// # Errors
    /// As [`Storage::stat`](crate::Storage::stat); a missing name is `Ok(false)`.
    fn is_current(&self) -> Result<bool>;
}

/// An object before publication: bytes are appended, then published under the object's name.
pub trait ObjectWriter: Send {
    /// Returns the number of bytes appended so far.
    fn position(&self) -> u64;

    /// Appends `bytes`.
    ///
    /// # Errors
    /// `NoSpace`, `Io`: the object can no longer be published.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;

    /// As [`ObjectWriter::append`], by moving the memory. The writer may keep it until publication,
    /// which avoids a copy. Returns memory that it does not keep.
    ///
    /// # Errors
    /// As [`ObjectWriter::append`].
    fn append_owned(&mut self, bytes: Vec<u8>) -> Result<Option<Vec<u8>>>;

    /// Keeps the replaced object under the name `path` in the [sibling](crate::Storage::sibling) of
    /// this storage with `suffix`; missing directories are created. If nothing is replaced, an empty
    /// object gets that name. Where a second name cannot be given, the old object is lost without an
    /// error. It takes no extra space.
    fn keep_replaced(&mut self, suffix: &'static str, path: ObjectPath);

    /// Hands all bytes to the system without making them durable. The caller does that with two
    /// calls of [`Storage::sync_all`](crate::Storage::sync_all), before and after
    /// [`ObjectWriter::publish`] gives the name. For many objects they cost no more than for one.
    /// Nothing may be appended afterwards. A place without `sync_all` ignores the call.
    ///
    /// # Errors
    /// As [`ObjectWriter::append`].
    fn hand_over(&mut self) -> Result<()>;

    /// Gives the bytes their name if `condition` holds. Atomic, and durable at
    /// [`Durability::Disk`](crate::Durability::Disk) unless the bytes were handed over. An error
    /// leaves the name unchanged; only after `Poisoned` may a crash leave either state.
    ///
    /// # Errors
    /// `Exists` or `Conflict` by the condition; `NoSpace`, `Io`, `Poisoned`.
    fn publish(self: Box<Self>, condition: Condition<'_>) -> Result<Version>;
}

/// An object that is visible while one writer appends to it, or one
/// [lane](crate::Storage::grow_lane) of such an object.
///
/// Readers may open it at any time and read the synced bytes. They must learn the synced size
/// elsewhere: after it the object may hold arbitrary bytes or zeros, and the size of the object
/// says nothing. An [`Object`] opened earlier may lack bytes that were appended later.
///
/// Dropping the value leaves the object unchanged and ends its threads.
pub trait GrowingObject: Send {
    /// Returns the number of bytes appended so far, padding included; for a lane, those of the
    /// lane.
    fn position(&self) -> u64;

    /// Appends `bytes`.
    ///
    /// # Errors
    /// `NoSpace`, `Io`, perhaps for earlier bytes: synced bytes stay, and nothing more can be
    /// appended or synced. `Poisoned`.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;

    /// Hands all appended bytes to the system: they survive the end of this process, but no power
    /// cut. Pads as [`GrowingObject::sync`] does.
    ///
    /// # Errors
    /// As [`GrowingObject::append`].
    fn flush(&mut self) -> Result<()>;

    /// Hands all appended bytes to the system, where readers find them. At
    /// [`Durability::Disk`](crate::Durability::Disk) they and the object's name survive a power cut
    /// when the call returns. Pads with zeros to a multiple of [`SYNC_ALIGNMENT`] bytes, which
    /// becomes the size of the object and the position. Does nothing if nothing was appended,
    /// unless the object has several lanes.
    ///
    /// # Errors
    /// As [`GrowingObject::append`]. After `Poisoned` a crash may keep or lose the bytes since the
    /// last sync.
    fn sync(&mut self) -> Result<()>;
}
