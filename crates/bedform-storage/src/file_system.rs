//! The system calls that local storage is made of, as a seam.
//!
//! [`LocalStorage`](crate::LocalStorage) holds the protocol: what is written, synced and renamed in
//! which order. A [`FileSystem`] holds the calls. So the same protocol runs on the real system
//! ([`OsFileSystem`](crate::OsFileSystem)) and on a simulated one whose power can be cut after any
//! call.
//!
//! Paths are relative to the root that a file system was opened with and never leave it. Names are
//! single segments inside an opened directory. Calls may fail with `EINTR` and may do less than was
//! asked for; the protocol, not the file system, deals with both.

use std::fmt::Debug;
use std::io;

use crate::Version;

/// What a name stands for.
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
    /// The system did not say; ask [`FileSystem::stat_child`].
    Unknown,
}

/// What the system says about a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// What it is.
    pub kind: FileKind,
    /// Which bytes it holds.
    pub version: Version,
    /// How many names it has; 0 if the last one was removed.
    pub names: u64,
}

/// What to do with symbolic links on the way to a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// Follow them as long as they stay inside the root: for reading.
    Inside,
    /// Fail with `ELOOP`: for everything that changes something.
    Refuse,
}

/// What to do where the new name exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replace {
    /// Take its place.
    Allow,
    /// Fail with `EEXIST`.
    Refuse,
}

/// How much of a range of bytes is in the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Residency {
    /// All of it.
    Whole,
    /// Some of it, beside what its first and last page have for their other bytes.
    Part,
    /// Nothing of its own.
    Nothing,
}

/// How to ask for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Until it is free.
    Forever,
    /// Not at all: `EWOULDBLOCK` if it is taken.
    Never,
}

/// The calls of one system, below one root directory.
pub trait FileSystem: Send + Sync + Debug + 'static {
    /// An open file or directory. Dropping it closes it and gives up its lock.
    type Handle: Send + Sync + Debug + 'static;

    /// The root as a user knows it.
    fn name(&self) -> String;

    /// See [`Storage::identity`](crate::Storage::identity).
    fn identity(&self) -> Option<String>;

    /// The calls below the directory that lies beside the root and has its real name, links resolved,
    /// with `suffix` behind. It may be missing, and may be made and deleted by anyone: as long as it
    /// is missing, paths, the empty one too, fail with `ENOENT`.
    ///
    /// # Errors
    /// Of the system; where nothing lies beside the root, one that says why.
    fn beside(&self, suffix: &str) -> io::Result<Self>
    where
        Self: Sized;

    /// The calls below the directory `path`, which exists, as the root from now on.
    ///
    /// # Errors
    /// Of the system.
    fn within(&self, path: &str, links: Links) -> io::Result<Self>
    where
        Self: Sized;

    /// Of a place [beside](FileSystem::beside) another: the directory in which the root has its name,
    /// and that name. Else nothing.
    ///
    /// # Errors
    /// Of the system.
    fn above(&self) -> io::Result<Option<(Self::Handle, &str)>>;

    /// Opens the file `path` for reading, following links inside the root, and says what it is.
    /// Returns at once also for a FIFO or device.
    ///
    /// # Errors
    /// Of the system; `EXDEV` for a link that leaves the root.
    fn open_file(&self, path: &str) -> io::Result<(Self::Handle, Status)>;

    /// As [`FileSystem::open_file`], for reads past the page cache, whose buffers, offsets and lengths
    /// are multiples of 4,096.
    ///
    /// # Errors
    /// As [`FileSystem::open_file`]; of any kind but `NotFound` where the place has no such way.
    fn open_direct(&self, path: &str) -> io::Result<(Self::Handle, Status)>;

    /// Says what `path` is, by the same way as [`FileSystem::open_file`].
    ///
    /// # Errors
    /// As [`FileSystem::open_file`].
    fn stat(&self, path: &str) -> io::Result<Status>;

    /// See [`Storage::now`](crate::Storage::now).
    ///
    /// # Errors
    /// Of the system.
    fn now(&self) -> io::Result<i64>;

    /// As [`FileSystem::stat`] in a single call that may look through links out of the root: good
    /// only to compare with what is known.
    ///
    /// # Errors
    /// Of the system.
    fn peek(&self, path: &str) -> io::Result<Status>;

    /// Opens the directory `path`; empty for the root.
    ///
    /// # Errors
    /// Of the system.
    fn open_directory(&self, path: &str, links: Links) -> io::Result<Self::Handle>;

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

    /// Asks the system to bring no more of an opened file than is read.
    fn refuse_read_ahead(&self, handle: &Self::Handle);

    /// As [`FileSystem::create_file`], and asks the system to keep the file's bytes on the storage target of
    /// this index, where it has such and lets us. Where it does not, the file lies as others do.
    ///
    /// # Errors
    /// Of the system; if it cannot be asked.
    fn create_file_on(
        &self,
        directory: &Self::Handle,
        name: &str,
        target: u32,
    ) -> io::Result<Self::Handle>;

    /// Opens the file `name` in `directory`, which exists, for writing, following no link.
    ///
    /// # Errors
    /// Of the system.
    fn open_to_write(&self, directory: &Self::Handle, name: &str) -> io::Result<Self::Handle>;

    /// What an opened file is.
    ///
    /// # Errors
    /// Of the system.
    fn status(&self, handle: &Self::Handle) -> io::Result<Status>;

    /// What `name` in `directory` is, following no link.
    ///
    /// # Errors
    /// Of the system.
    fn stat_child(&self, directory: &Self::Handle, name: &str) -> io::Result<Status>;

    /// Reads some bytes from `offset`: 0 at the end.
    ///
    /// # Errors
    /// Of the system.
    fn read_at(&self, handle: &Self::Handle, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Reads some bytes from `offset` that need no wait: 0 where there are none.
    ///
    /// # Errors
    /// Of the system.
    fn read_resident(
        &self,
        handle: &Self::Handle,
        offset: u64,
        buffer: &mut [u8],
    ) -> io::Result<usize>;

    /// How much of a range of bytes can be read without a wait. Unlike
    /// [`FileSystem::read_resident`], asking brings nothing into the page cache.
    ///
    /// # Errors
    /// Where the system cannot tell.
    fn residency(&self, handle: &Self::Handle, offset: u64, length: u64) -> io::Result<Residency>;

    /// Lets the system fetch a range of bytes while the caller goes on; false if it does not.
    fn read_ahead(&self, handle: &Self::Handle, offset: u64, length: u64) -> bool;

    /// Writes some of `bytes` at `offset`.
    ///
    /// # Errors
    /// Of the system.
    fn write_at(&self, handle: &Self::Handle, offset: u64, bytes: &[u8]) -> io::Result<usize>;

    /// Makes a file long enough for `length` bytes from `offset` on, with space set aside for them: a
    /// hint that makes the writes that follow cheaper.
    ///
    /// # Errors
    /// Where the place has no such way, or no space. The file may have become longer all the same.
    fn reserve(&self, handle: &Self::Handle, offset: u64, length: u64) -> io::Result<()>;

    /// Gives back the space of `length` bytes from `offset` on, which are zeros then; the file stays as
    /// long as it is.
    ///
    /// # Errors
    /// Where the place has no such way.
    fn release(&self, handle: &Self::Handle, offset: u64, length: u64) -> io::Result<()>;

    /// Cuts a file to `size` bytes.
    ///
    /// # Errors
    /// Of the system.
    fn set_size(&self, handle: &Self::Handle, size: u64) -> io::Result<()>;

    /// Turns writing past the page cache on or off. When on, buffers, offsets and lengths of writes
    /// are multiples of 4,096.
    ///
    /// # Errors
    /// Where the place has no such way.
    fn set_direct(&self, handle: &Self::Handle, direct: bool) -> io::Result<()>;

    /// Makes the bytes and size of a file durable.
    ///
    /// # Errors
    /// Of the system; what was written is then in an unknown state.
    fn sync_file(&self, handle: &Self::Handle) -> io::Result<()>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// Of the system; the names are then in an unknown state.
    fn sync_directory(&self, directory: &Self::Handle) -> io::Result<()>;

    /// True if [`FileSystem::sync_whole`] is to be had, says where a write failed, and has little to do
    /// for others.
    fn can_sync_whole(&self) -> bool;

    /// Makes everything durable that was written to the device that `handle` lies on, by anyone.
    ///
    /// # Errors
    /// As [`FileSystem::sync_file`], for all of it.
    fn sync_whole(&self, handle: &Self::Handle) -> io::Result<()>;

    /// Closes a written file and says if the system had an error to report.
    ///
    /// # Errors
    /// Of the system; the file is closed all the same.
    fn close(&self, handle: Self::Handle) -> io::Result<()>;

    /// Gives the file `from` in the first directory the name `to` in the second, which may be the same, in one
    /// step.
    ///
    /// # Errors
    /// Of the system; `EINVAL` or `ENOSYS` where `Replace::Refuse` is not to be had.
    fn rename(
        &self,
        from: (&Self::Handle, &str),
        to: (&Self::Handle, &str),
        replace: Replace,
    ) -> io::Result<()>;

    /// Gives the directory `from` in the first directory the name `to` in the second, in one step; an empty
    /// directory there gives way.
    ///
    /// # Errors
    /// Of the system; `ENOTEMPTY` or `EEXIST` for a directory that is not empty, `ENOTDIR` for anything else
    /// that has the name.
    fn rename_directory(
        &self,
        from: (&Self::Handle, &str),
        to: (&Self::Handle, &str),
    ) -> io::Result<()>;

    /// Lets a name in one directory and one in another, or in the same, change places in one step.
    ///
    /// # Errors
    /// Of the system; `EINVAL`, `ENOSYS` or `EOPNOTSUPP` where this is not to be had.
    fn exchange(&self, one: (&Self::Handle, &str), other: (&Self::Handle, &str)) -> io::Result<()>;

    /// Gives the file `from` in the first directory the second name `to` in the second, which must not exist.
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

    /// The names in a directory, in any order; those that are not UTF-8 are left out.
    ///
    /// # Errors
    /// Of the system.
    fn list(&self, directory: &Self::Handle) -> io::Result<Vec<(String, FileKind)>>;

    /// Takes the exclusive lock of an open file or directory. Two handles of one file exclude each
    /// other, also in one process. Dies with its owner.
    ///
    /// # Errors
    /// Of the system; `EWOULDBLOCK` if it is taken and `wait` is `Never`.
    fn lock(&self, handle: &Self::Handle, wait: Wait) -> io::Result<()>;

    /// Opens the lock file `name` in `directory`, making it if it is missing.
    ///
    /// # Errors
    /// Of the system.
    fn open_lock_file(&self, directory: &Self::Handle, name: &str) -> io::Result<Self::Handle>;

    /// A number that no other caller gets, in this process or another.
    fn token(&self) -> u64;

    /// True if writing from a second thread while the caller goes on is worth while.
    fn is_overlapped(&self) -> bool;
}

/// Calls `call` again as long as a signal interrupts it.
pub(crate) fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}
