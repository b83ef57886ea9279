//! The system calls that local storage uses, as a trait.
//!
//! [`LocalStorage`](crate::LocalStorage) holds the protocol: the order of writes, syncs and
//! renames. A [`FileSystem`] holds the calls. The same protocol therefore runs on the real system
//! ([`OsFileSystem`](crate::OsFileSystem)) and on a simulated one whose power can be cut after any
//! call.
//!
//! Paths are relative to the root with which a file system was opened, and never leave it. Names
//! are single segments in an opened directory. Calls may fail with `EINTR` and may do less than
//! requested; the protocol, not the file system, handles both.

use std::fmt::Debug;
use std::io;

use crate::Version;

/// The kind of object that a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A plain file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A FIFO, socket or device.
    Special,
    /// Not reported by the system; call [`FileSystem::stat_child`].
    Unknown,
}

/// The attributes of a file, as the system reports them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileStatus {
    /// Its kind.
    pub kind: FileKind,
    /// The version of its bytes.
    pub version: Version,
    /// The number of its names; 0 after the last one was removed.
    pub names: u64,
}

/// The treatment of symbolic links on the path to a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkPolicy {
    /// Follow them inside the root: for reading.
    Inside,
    /// Fail with `ELOOP`: for all changes.
    Refuse,
}

/// The treatment of a target name that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replace {
    /// Replace it.
    Allow,
    /// Fail with `EEXIST`.
    Refuse,
}

/// The share of a byte range that is in the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Residency {
    /// All of it.
    Whole,
    /// A part of it, not counting pages at the two ends that also hold bytes outside the range.
    Part,
    /// None of it, except such pages at the two ends.
    Nothing,
}

/// The wait for a lock that another handle holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockWait {
    /// Block until it is free.
    Forever,
    /// Fail at once with `EWOULDBLOCK`.
    Never,
}

/// The system calls below one root directory.
pub trait FileSystem: Send + Sync + Debug + 'static {
    /// An open file or directory. Dropping it closes it and releases its lock.
    type Handle: Send + Sync + Debug + 'static;

    /// Returns the root as a user knows it.
    fn name(&self) -> String;

    /// See [`Storage::identity`](crate::Storage::identity).
    fn identity(&self) -> Option<String>;

    /// Returns the calls below a sibling directory of the root: the root's real name, links
    /// resolved, followed by `suffix`. Any process may create and delete that directory. While it
    /// is missing, all paths, the empty one included, fail with `ENOENT`.
    ///
    /// # Errors
    /// Of the system. If the root can have no sibling, the error says why.
    fn sibling(&self, suffix: &str) -> io::Result<Self>
    where
        Self: Sized;

    /// Returns the calls below the existing directory `path`, which becomes the root.
    ///
    /// # Errors
    /// Of the system.
    fn within(&self, path: &str, links: LinkPolicy) -> io::Result<Self>
    where
        Self: Sized;

    /// Returns the parent directory and name of a root opened by [`FileSystem::sibling`]. `None` for
    /// other roots.
    ///
    /// # Errors
    /// Of the system.
    fn above(&self) -> io::Result<Option<(Self::Handle, &str)>>;

    /// Opens the file `path` for reading, following links inside the root, and returns its status.
    /// Does not block on a FIFO or device.
    ///
    /// # Errors
    /// Of the system; `EXDEV` for a link that leaves the root.
    fn open_file(&self, path: &str) -> io::Result<(Self::Handle, FileStatus)>;

    /// As [`FileSystem::open_file`], for reads past the page cache. Buffers, offsets and lengths of
    /// such reads are multiples of 4,096 bytes.
    ///
    /// # Errors
    /// As [`FileSystem::open_file`]; any error but `NotFound` where the place has no direct reads.
    fn open_direct(&self, path: &str) -> io::Result<(Self::Handle, FileStatus)>;

    /// Returns the status of `path`, resolved as by [`FileSystem::open_file`].
    ///
    /// # Errors
    /// As [`FileSystem::open_file`].
    fn stat(&self, path: &str) -> io::Result<FileStatus>;

    /// See [`Storage::now`](crate::Storage::now).
    ///
    /// # Errors
    /// Of the system.
    fn now(&self) -> io::Result<i64>;

    /// As [`FileSystem::stat`], in a single call that may follow links out of the root. Use the
    /// result only to compare it with a known status.
    ///
    /// # Errors
    /// Of the system.
    fn peek(&self, path: &str) -> io::Result<FileStatus>;

    /// Opens the directory `path`; empty for the root.
    ///
    /// # Errors
    /// Of the system.
    fn open_directory(&self, path: &str, links: LinkPolicy) -> io::Result<Self::Handle>;

    /// Opens the file or directory `name` in `directory` for reading, following no link.
    ///
    /// # Errors
    /// Of the system.
    fn open_child(&self, directory: &Self::Handle, name: &str) -> io::Result<Self::Handle>;

    /// Creates the file `name` in `directory` for writing; it must not exist.
    ///
    /// # Errors
    /// Of the system.
    fn create_file(&self, directory: &Self::Handle, name: &str) -> io::Result<Self::Handle>;

    /// Turns off readahead for an opened file.
    fn refuse_read_ahead(&self, handle: &Self::Handle);

    /// As [`FileSystem::create_file`], and requests that the file lies on the storage target with
    /// this index. If the system refuses, the file is placed as any other.
    ///
    /// # Errors
    /// Of the system; if the request cannot be made.
    fn create_file_on(
        &self,
        directory: &Self::Handle,
        name: &str,
        target: u32,
    ) -> io::Result<Self::Handle>;

    /// Opens the existing file `name` in `directory` for writing, following no link.
    ///
    /// # Errors
    /// Of the system.
    fn open_to_write(&self, directory: &Self::Handle, name: &str) -> io::Result<Self::Handle>;

    /// Returns the status of an opened file.
    ///
    /// # Errors
    /// Of the system.
    fn status(&self, handle: &Self::Handle) -> io::Result<FileStatus>;

    /// Returns the status of `name` in `directory`, following no link.
    ///
    /// # Errors
    /// Of the system.
    fn stat_child(&self, directory: &Self::Handle, name: &str) -> io::Result<FileStatus>;

    /// Reads some bytes from `offset` on and returns their number: 0 at the end.
    ///
    /// # Errors
    /// Of the system.
    fn read_at(&self, handle: &Self::Handle, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Reads some bytes from `offset` on that are in memory, and returns their number: 0 where none
    /// are.
    ///
    /// # Errors
    /// Of the system.
    fn read_resident(
        &self,
        handle: &Self::Handle,
        offset: u64,
        buffer: &mut [u8],
    ) -> io::Result<usize>;

    /// Returns the share of a byte range that can be read without waiting. Unlike
    /// [`FileSystem::read_resident`], the call brings nothing into the page cache.
    ///
    /// # Errors
    /// Where the system cannot tell.
    fn residency(&self, handle: &Self::Handle, offset: u64, length: u64) -> io::Result<Residency>;

    /// Gives a readahead hint for a byte range; false if the system ignores it.
    fn read_ahead(&self, handle: &Self::Handle, offset: u64, length: u64) -> bool;

    /// Writes some of `bytes` at `offset`, and returns their number.
    ///
    /// # Errors
    /// Of the system.
    fn write_at(&self, handle: &Self::Handle, offset: u64, bytes: &[u8]) -> io::Result<usize>;

    /// Extends a file to hold `length` bytes from `offset` on, and allocates their space: a hint
    /// that makes later writes cheaper.
    ///
    /// # Errors
    /// If the place cannot do it or has no space. The file may have become longer all the same.
    fn reserve(&self, handle: &Self::Handle, offset: u64, length: u64) -> io::Result<()>;

    /// Frees the space of `length` bytes from `offset` on, which then read as zeros. The size of
    /// the file stays.
    ///
    /// # Errors
    /// If the place cannot do it.
    fn release(&self, handle: &Self::Handle, offset: u64, length: u64) -> io::Result<()>;

    /// Sets the size of a file, in bytes.
    ///
    /// # Errors
    /// Of the system.
    fn set_size(&self, handle: &Self::Handle, size: u64) -> io::Result<()>;

    /// Turns writing past the page cache on or off. While it is on, buffers, offsets and lengths of
    /// writes are multiples of 4,096 bytes.
    ///
    /// # Errors
    /// If the place has no direct writes.
    fn set_direct(&self, handle: &Self::Handle, direct: bool) -> io::Result<()>;

    /// Makes the bytes and size of a file durable.
    ///
    /// # Errors
    /// Of the system; the state of the written bytes is then unknown.
    fn sync_file(&self, handle: &Self::Handle) -> io::Result<()>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// Of the system; the state of the names is then unknown.
    fn sync_directory(&self, directory: &Self::Handle) -> io::Result<()>;

    /// True if [`FileSystem::sync_whole`] is available, reports failed writes, and would write few
    /// bytes of other programs.
    fn can_sync_whole(&self) -> bool;

    /// Makes durable all bytes that any process wrote to the device of `handle`.
    ///
    /// # Errors
    /// As [`FileSystem::sync_file`], for every file of the device.
    fn sync_whole(&self, handle: &Self::Handle) -> io::Result<()>;

    /// Closes a written file and reports a deferred error of the system.
    ///
    /// # Errors
    /// Of the system; the file is closed all the same.
    fn close(&self, handle: Self::Handle) -> io::Result<()>;

    /// Renames the file `from` in the first directory to `to` in the second, atomically. The two
    /// directories may be the same.
    ///
    /// # Errors
    /// Of the system; `EINVAL` or `ENOSYS` where `Replace::Refuse` is unsupported.
    fn rename(
        &self,
        from: (&Self::Handle, &str),
        to: (&Self::Handle, &str),
        replace: Replace,
    ) -> io::Result<()>;

    /// Renames the directory `from` in the first directory to `to` in the second, atomically. An
    /// empty directory of that name is replaced.
    ///
    /// # Errors
    /// Of the system; `ENOTEMPTY` or `EEXIST` if `to` is a directory with entries, `ENOTDIR` if it
    /// is no directory.
    fn rename_directory(
        &self,
        from: (&Self::Handle, &str),
        to: (&Self::Handle, &str),
    ) -> io::Result<()>;

    /// Exchanges two names atomically, in one directory or two.
    ///
    /// # Errors
    /// Of the system; `EINVAL`, `ENOSYS` or `EOPNOTSUPP` where this is unsupported.
    fn exchange(&self, one: (&Self::Handle, &str), other: (&Self::Handle, &str)) -> io::Result<()>;

    /// Gives the file `from` in the first directory a second name, the free name `to` in the second
    /// directory.
    ///
    /// # Errors
    /// Of the system.
    fn link(&self, from: (&Self::Handle, &str), to: (&Self::Handle, &str)) -> io::Result<()>;

    /// Removes the name of a file or link.
    ///
    /// # Errors
    /// Of the system.
    fn unlink(&self, directory: &Self::Handle, name: &str) -> io::Result<()>;

    /// Makes a directory.
    ///
    /// # Errors
    /// Of the system.
    fn make_directory(&self, directory: &Self::Handle, name: &str) -> io::Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Of the system.
    fn remove_directory(&self, directory: &Self::Handle, name: &str) -> io::Result<()>;

    /// Returns the names in a directory, in any order. Names that are not UTF-8 are left out.
    ///
    /// # Errors
    /// Of the system.
    fn list(&self, directory: &Self::Handle) -> io::Result<Vec<(String, FileKind)>>;

    /// Takes the exclusive lock of an open file or directory. Two handles of one file exclude each
    /// other, also in one process. The lock ends with its owner.
    ///
    /// # Errors
    /// Of the system; `EWOULDBLOCK` if another handle holds it and `wait` is `Never`.
    fn lock(&self, handle: &Self::Handle, wait: LockWait) -> io::Result<()>;

    /// Opens the lock file `name` in `directory`, creating it if it is missing.
    ///
    /// # Errors
    /// Of the system.
    fn open_lock_file(&self, directory: &Self::Handle, name: &str) -> io::Result<Self::Handle>;

    /// Returns a number that no other caller gets, in this process or another.
    fn token(&self) -> u64;

    /// True if writing by a second thread while the caller continues pays.
    fn is_overlapped(&self) -> bool;
}

/// Repeats `call` while it fails with `EINTR`.
pub(crate) fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}
