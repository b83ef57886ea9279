//! The real file system, watched: every opened file and directory must lie below the root.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use bedform_storage::file_system::{FileStatus, FileSystem, LinkPolicy, Replace};
use bedform_storage::{OsFileSystem, forward};

/// A file system that records accesses outside a root directory.
#[derive(Debug)]
pub(crate) struct Watched {
    inner: OsFileSystem,
    root: PathBuf,
    calls: AtomicU64,
    /// Files that were opened, made, renamed or removed outside the root.
    outside: Mutex<Vec<String>>,
}

impl Watched {
    pub(crate) fn new(root: &Path) -> Self {
        Self {
            inner: OsFileSystem::open(root).unwrap(),
            root: root.canonicalize().unwrap(),
            calls: AtomicU64::new(0),
            outside: Mutex::default(),
        }
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    pub(crate) fn outside(&self) -> Vec<String> {
        self.outside.lock().unwrap().clone()
    }

    fn check(&self, handle: &OwnedFd, call: &str) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let path = std::fs::read_link(format!("/proc/self/fd/{}", handle.as_raw_fd())).unwrap();
        if !path.starts_with(&self.root) {
            self.outside.lock().unwrap().push(format!("{call} {}", path.display()));
        }
    }

    fn opened(&self, handle: io::Result<OwnedFd>, call: &str) -> io::Result<OwnedFd> {
        let handle = handle?;
        self.check(&handle, call);
        Ok(handle)
    }

    /// Records a change of `name` in `directory`.
    fn change(&self, directory: &OwnedFd, name: &str, call: &str) {
        self.check(directory, call);
        if name.contains('/') || name == ".." {
            self.outside.lock().unwrap().push(format!("{call} {name:?}"));
        }
    }
}

impl FileSystem for Watched {
    type Handle = OwnedFd;

    fn sibling(&self, _: &str) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn within(&self, _: &str, _: LinkPolicy) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn above(&self) -> io::Result<Option<(OwnedFd, &str)>> {
        Ok(None)
    }

    fn open_file(&self, path: &str) -> io::Result<(OwnedFd, FileStatus)> {
        let (handle, status) = self.inner.open_file(path)?;
        self.check(&handle, "open");
        Ok((handle, status))
    }

    fn open_direct(&self, path: &str) -> io::Result<(OwnedFd, FileStatus)> {
        let (handle, status) = self.inner.open_direct(path)?;
        self.check(&handle, "open");
        Ok((handle, status))
    }

    fn open_directory(&self, path: &str, links: LinkPolicy) -> io::Result<OwnedFd> {
        self.opened(self.inner.open_directory(path, links), "open directory")
    }

    fn open_child(&self, directory: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
        self.opened(self.inner.open_child(directory, name), "open child")
    }

    fn create_file(&self, directory: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
        self.change(directory, name, "create");
        self.opened(self.inner.create_file(directory, name), "create")
    }

    fn create_file_on(&self, directory: &OwnedFd, name: &str, target: u32) -> io::Result<OwnedFd> {
        self.change(directory, name, "create");
        self.opened(self.inner.create_file_on(directory, name, target), "create")
    }

    fn open_to_write(&self, directory: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
        self.change(directory, name, "open to write");
        self.opened(self.inner.open_to_write(directory, name), "open to write")
    }

    fn write_at(&self, handle: &OwnedFd, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.check(handle, "write");
        self.inner.write_at(handle, offset, bytes)
    }

    fn release(&self, handle: &OwnedFd, offset: u64, length: u64) -> io::Result<()> {
        self.check(handle, "release");
        self.inner.release(handle, offset, length)
    }

    fn set_size(&self, handle: &OwnedFd, size: u64) -> io::Result<()> {
        self.check(handle, "cut");
        self.inner.set_size(handle, size)
    }

    fn rename(
        &self,
        from: (&OwnedFd, &str),
        to: (&OwnedFd, &str),
        replace: Replace,
    ) -> io::Result<()> {
        self.change(from.0, from.1, "rename");
        self.change(to.0, to.1, "rename");
        self.inner.rename(from, to, replace)
    }

    fn rename_directory(&self, from: (&OwnedFd, &str), to: (&OwnedFd, &str)) -> io::Result<()> {
        self.change(from.0, from.1, "rename directory");
        self.change(to.0, to.1, "rename directory");
        self.inner.rename_directory(from, to)
    }

    fn exchange(&self, one: (&OwnedFd, &str), other: (&OwnedFd, &str)) -> io::Result<()> {
        self.change(one.0, one.1, "exchange");
        self.change(other.0, other.1, "exchange");
        self.inner.exchange(one, other)
    }

    fn link(&self, from: (&OwnedFd, &str), to: (&OwnedFd, &str)) -> io::Result<()> {
        self.change(to.0, to.1, "link");
        self.inner.link(from, to)
    }

    fn unlink(&self, directory: &OwnedFd, name: &str) -> io::Result<()> {
        self.change(directory, name, "unlink");
        self.inner.unlink(directory, name)
    }

    fn make_directory(&self, directory: &OwnedFd, name: &str) -> io::Result<()> {
        self.change(directory, name, "make directory");
        self.inner.make_directory(directory, name)
    }

    fn remove_directory(&self, directory: &OwnedFd, name: &str) -> io::Result<()> {
        self.change(directory, name, "remove directory");
        self.inner.remove_directory(directory, name)
    }

    fn open_lock_file(&self, directory: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
        self.opened(self.inner.open_lock_file(directory, name), "open lock")
    }

    forward!(self.inner as FileSystem: name, identity, now, token, is_overlapped, close, lock);
    forward!(self.inner as FileSystem: stat, peek, status, stat_child, read_at, list);
    forward!(self.inner as FileSystem: read_resident, residency, read_ahead, refuse_read_ahead);
    forward!(self.inner as FileSystem: reserve, set_direct, sync_file, sync_directory);
    forward!(self.inner as FileSystem: can_sync_whole, sync_whole);
}
