//! The real system, through its calls on directories.
//!
//! The root is held as a directory handle. Every path is resolved below it by `openat2`, so that
//! neither a link in the data nor a concurrent rename leads out of it. Where a kernel or sandbox
//! refuses `openat2`, path segments are opened one by one and no link is followed.
//!
//! For a sibling of another root the parent directory is held. The root is looked up at every call,
//! because other processes may create and delete it.

use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write as _};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::fs::{
    Advice, AtFlags, Dir, FallocateFlags, FileType, FlockOperation, Mode, OFlags, RawMode,
    RenameFlags, ResolveFlags, Statx, StatxAttributes, StatxFlags,
};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::Version;
use crate::file_system::{
    FileKind, FileStatus, FileSystem, LinkPolicy, LockWait, Replace, Residency,
};

const COMMON: OFlags = OFlags::CLOEXEC.union(OFlags::NOCTTY).union(OFlags::NONBLOCK);
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::DIRECTORY);
/// The page size in bytes for which the system counts cached pages.
const PAGE_BYTES: u64 = 4096;
const ASKED: StatxFlags = StatxFlags::BASIC_STATS;

/// Opens a file for reading without blocking, also where the name stands for a FIFO. The caller
/// checks the kind of file.
///
/// # Errors
/// Of the system.
pub fn open_without_waiting(path: &Path) -> io::Result<std::fs::File> {
    Ok(rustix::fs::open(path, OFlags::RDONLY.union(COMMON), Mode::empty())?.into())
}

/// The most looks at the clock, half a millisecond apart: together longer than a tick.
const LOOKS_MAX: u32 = 100;

/// The most dirty bytes of other programs that a sync of a whole device may have to write.
const WAITING_BYTES_MAX: u64 = 64 << 20;
/// Whether `syncfs` reports failed writes.
static REPORTS_FAILED_WRITES: OnceLock<bool> = OnceLock::new();

/// True for Linux 5.8 and later.
fn reports_failed_writes() -> bool {
    let system = rustix::system::uname();
    let release = system.release().to_str().unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|n| n.parse().ok());
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (5, 8)
}

/// Returns the bytes of all programs that are dirty in memory; `None` if the system does not report
/// them.
fn waiting_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    Some(kib("Dirty:")?.saturating_add(kib("Writeback:")?).saturating_mul(1024))
}

/// The files of the real system below one directory.
#[derive(Debug)]
pub struct OsFileSystem {
    root: RootHandle,
    path: PathBuf,
    /// False once the system has refused `openat2`.
    resolves: AtomicBool,
    tokens: AtomicU64,
    alias: Option<Alias>,
    /// False if no link is followed, not even inside the root.
    follows_links: bool,
    /// The users whose files may be read; `None` for all users.
    owners: Option<Arc<[u32]>>,
}

/// A file whose real name is no valid object name, with the name that stands for it.
#[derive(Debug, Clone)]
struct Alias {
    name: String,
    real: OsString,
}

/// The directory below which all paths lie.
#[derive(Debug)]
enum RootHandle {
    /// A directory that was opened at the start.
    Held(OwnedFd),
    /// The directory that has this name at each call, if there is one.
    Named { parent: OwnedFd, name: String },
}

/// Finds the present parent and real path of the directory `root`, which was opened as `path`.
fn find(root: &OwnedFd, path: &Path) -> io::Result<(OwnedFd, PathBuf)> {
    let refuse = |reason| Err(io::Error::new(io::ErrorKind::Unsupported, reason));
    let link = format!("/proc/self/fd/{}", root.as_raw_fd());
    let path = std::fs::read_link(link).or_else(|_| path.canonicalize())?;
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return refuse("it is the root of the system, and nothing lies beside it");
    };
    let status = rustix::fs::statx(root, "", AtFlags::EMPTY_PATH, ASKED)?;
    if status.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
        return refuse("a file system is mounted there, and what lies beside it is on another");
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = rustix::fs::open(above, flags, Mode::empty())?;
    let named = rustix::fs::statx(&parent, name, AtFlags::SYMLINK_NOFOLLOW, ASKED)?;
    if status_of(&named).version.identity != status_of(&status).version.identity {
        return Err(Errno::NOENT.into());
    }
    Ok((parent, path))
}

impl OsFileSystem {
    /// Opens the existing directory `root`.
    ///
    /// # Errors
    /// Of the system.
    pub fn open(root: &Path) -> io::Result<Self> {
        Self::open_by(root, OFlags::empty())
    }

    /// As [`OsFileSystem::open`], but fails if `root` is a link.
    ///
    /// # Errors
    /// Of the system; `ENOTDIR` for a link.
    pub fn open_no_link(root: &Path) -> io::Result<Self> {
        Self::open_by(root, OFlags::NOFOLLOW)
    }

    fn open_by(root: &Path, links: OFlags) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | links;
        let handle = rustix::fs::open(root, flags, Mode::empty())?;
        Ok(Self {
            root: RootHandle::Held(handle),
            path: root.to_owned(),
            resolves: AtomicBool::new(true),
            tokens: AtomicU64::new(0),
            alias: None,
            follows_links: true,
            owners: None,
        })
    }

    /// Creates the directory `root` and its missing parents, durably, and opens it.
    ///
    /// # Errors
    /// Of the system.
    pub fn create(root: &Path) -> io::Result<Self> {
        let absolute = std::path::absolute(root)?;
        let missing: Vec<_> = absolute.ancestors().take_while(|path| !path.is_dir()).collect();
        for directory in missing.into_iter().rev() {
            match std::fs::create_dir(directory) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            if let Some(parent) = directory.parent() {
                std::fs::File::open(parent)?.sync_all()?;
            }
        }
        Self::open(root)
    }

    /// Returns the same directory without `openat2`, as in some sandboxes.
    #[must_use]
    pub fn without_openat2(self) -> Self {
        self.resolves.store(false, Ordering::Relaxed);
        self
    }

    /// Returns the same directory with the name `name` for the file `real`: for names that are not
    /// UTF-8.
    #[must_use]
    pub(crate) fn with_alias(mut self, name: &str, real: &OsStr) -> Self {
        self.alias = Some(Alias { name: name.to_owned(), real: real.to_owned() });
        self
    }

    /// Returns the same directory, following no link and reading no files of users other than
    /// `owners`.
    #[must_use]
    pub(crate) fn of_owners(mut self, owners: &[u32]) -> Self {
        (self.owners, self.follows_links) = (Some(owners.into()), false);
        self
    }

    /// Returns the status of a file that was opened for reading, after checking its owner.
    fn status_to_read(&self, handle: &OwnedFd) -> io::Result<FileStatus> {
        let answer = rustix::fs::statx(handle, "", AtFlags::EMPTY_PATH, ASKED)?;
        match &self.owners {
            Some(owners) if !owners.contains(&answer.stx_uid) => {
                let text = format!("it belongs to user {}, who is not trusted", answer.stx_uid);
                Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
            }
            _ => Ok(status_of(&answer)),
        }
    }

    /// Opens the file `path` for reading, and returns its status.
    fn open_to_read(&self, path: &str, flags: OFlags) -> io::Result<(OwnedFd, FileStatus)> {
        if self.owners.is_some() {
            // Opening a device may change it, so a file of an unpacked archive is checked first.
            let status = self.stat(path)?;
            if !matches!(status.kind, FileKind::File | FileKind::Directory) {
                return Ok((
                    self.resolve(path, OFlags::PATH | OFlags::CLOEXEC, LinkPolicy::Refuse)?,
                    status,
                ));
            }
        }
        let handle = self.resolve(path, flags | COMMON, LinkPolicy::Inside)?;
        let status = self.status_to_read(&handle)?;
        Ok((handle, status))
    }

    /// Appends `bytes`, in one piece, to the file `name` in `directory`; a missing file is created
    /// for this user alone.
    ///
    /// # Errors
    /// Of the system; `InvalidInput` for anything but a plain file with one name;
    /// `PermissionDenied` for a file that belongs to none of the owners.
    pub(crate) fn append(&self, directory: &OwnedFd, name: &str, bytes: &[u8]) -> io::Result<()> {
        let refused = |reason| io::Error::new(io::ErrorKind::InvalidInput, reason);
        let check = |status: &FileStatus| match (status.kind, status.names) {
            (FileKind::File, 0 | 1) => Ok(()),
            // The other name may be one of the user's own files.
            (FileKind::File, _) => Err(refused("it has another name elsewhere")),
            _ => Err(refused("it is no plain file")),
        };
        match self.stat_child(directory, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => check(&found?)?,
        }
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | COMMON;
        let file = rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o600))?;
        let status = self.status_to_read(&file)?;
        check(&status)?;
        check_size(status.version.size.saturating_add(bytes.len() as u64))?;
        std::fs::File::from(file).write_all(bytes)
    }

    /// Returns the path by which the system knows `path`.
    fn real<'a>(&'a self, path: &'a str) -> &'a OsStr {
        match &self.alias {
            Some(alias) if alias.name == path => &alias.real,
            _ => OsStr::new(path),
        }
    }

    /// Runs `work` with the root's handle.
    fn in_root<T>(
        &self,
        work: impl FnOnce(BorrowedFd<'_>) -> rustix::io::Result<T>,
    ) -> rustix::io::Result<T> {
        let (parent, name) = match &self.root {
            RootHandle::Held(root) => return work(root.as_fd()),
            RootHandle::Named { parent, name } => (parent, name.as_str()),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match rustix::fs::openat(parent, name, flags, Mode::empty()) {
            // A link or a file: the name exists and must not pass for an empty place.
            Err(Errno::NOTDIR) => Err(Errno::LOOP),
            root => work(root?.as_fd()),
        }
    }

    fn resolve(&self, path: &str, flags: OFlags, links: LinkPolicy) -> rustix::io::Result<OwnedFd> {
        self.in_root(|root| self.resolve_in(root, path, flags, links))
    }

    fn resolve_in(
        &self,
        root: BorrowedFd<'_>,
        path: &str,
        flags: OFlags,
        links: LinkPolicy,
    ) -> rustix::io::Result<OwnedFd> {
        let path = self.real(if path.is_empty() { "." } else { path });
        let links = if self.follows_links { links } else { LinkPolicy::Refuse };
        if self.resolves.load(Ordering::Relaxed) {
            let mut rule = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
            if links == LinkPolicy::Refuse {
                rule |= ResolveFlags::NO_SYMLINKS;
            }
            match rustix::fs::openat2(root, path, flags, Mode::empty(), rule) {
                // Sandboxes answer unknown calls with EPERM.
                Err(Errno::NOSYS | Errno::PERM) => self.resolves.store(false, Ordering::Relaxed),
                // The kernel saw a concurrent rename on the path and asks for another attempt.
                Err(Errno::AGAIN) => return walk(root, path, flags),
                outcome => return outcome,
            }
        }
        walk(root, path, flags)
    }
}

/// Asks Lustre to put the empty file `name` on the target with this index. If Lustre refuses (a
/// full or missing target, another kind of file system), the file stays without a target.
fn ask_lfs(directory: &OwnedFd, name: &str, target: u32) -> io::Result<()> {
    let started = Command::new("lfs")
        .args(["setstripe", "-c", "1", "-i", &target.to_string()])
        .arg(name)
        // The directory itself, whatever its name stands for meanwhile: the new process inherits
        // the handle.
        .current_dir(format!("/proc/self/fd/{}", directory.as_raw_fd()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut tool = started.map_err(|error| {
        io::Error::other(format!("lfs, which is to choose its target, cannot be run: {error}"))
    })?;
    // A program that ignores the signals of its children gets an error here, after the child has
    // ended.
    let _ = tool.wait();
    Ok(())
}

/// Opens `path` segment by segment, following no link.
fn walk(root: BorrowedFd<'_>, path: &OsStr, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut segments = path.as_bytes().split(|byte| *byte == b'/');
    let last = segments.next_back().unwrap_or_default();
    let mut directory: Option<OwnedFd> = None;
    for segment in segments.filter(|segment| !segment.is_empty()) {
        let from = directory.as_ref().map_or(root, AsFd::as_fd);
        directory = Some(rustix::fs::openat(from, segment, step, Mode::empty())?);
    }
    let from = directory.as_ref().map_or(root, AsFd::as_fd);
    let opened = rustix::fs::openat(from, last, flags | OFlags::NOFOLLOW, Mode::empty())?;
    if flags.contains(OFlags::PATH) && is_link(&opened)? {
        return Err(Errno::LOOP);
    }
    Ok(opened)
}

fn is_link(handle: &OwnedFd) -> rustix::io::Result<bool> {
    let status = rustix::fs::fstat(handle)?;
    Ok(FileType::from_raw_mode(status.st_mode) == FileType::Symlink)
}

fn kind(file_type: FileType) -> FileKind {
    match file_type {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Link,
        FileType::Unknown => FileKind::Unknown,
        _ => FileKind::Special,
    }
}

fn status_of(answer: &Statx) -> FileStatus {
    let time = |stamp: rustix::fs::StatxTimestamp| {
        stamp.tv_sec.saturating_mul(1_000_000_000).saturating_add(i64::from(stamp.tv_nsec))
    };
    FileStatus {
        kind: kind(FileType::from_raw_mode(RawMode::from(answer.stx_mode))),
        version: Version {
            size: answer.stx_size,
            modified_ns: time(answer.stx_mtime),
            changed_ns: time(answer.stx_ctime),
            identity: (
                // As `stat` has it, so that the records of other languages can be compared.
                rustix::fs::makedev(answer.stx_dev_major, answer.stx_dev_minor),
                answer.stx_ino,
            ),
        },
        names: u64::from(answer.stx_nlink),
    }
}

/// Returns how many of the pages with bytes from `start` to `end` are in the page cache, by the
/// system call `cachestat` of Linux 6.5.
#[allow(unsafe_code)]
fn cached_pages(handle: &OwnedFd, start: u64, end: u64) -> io::Result<u64> {
    /// Its number on every architecture.
    const CACHESTAT: libc::c_long = 451;
    if PAGE_BYTES != rustix::param::page_size() as u64 {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // Offset and length in bytes; pages that are cached, dirty, being written, evicted, recently
    // evicted.
    let range = [start, end.saturating_sub(start)];
    let mut counts = [0_u64; 5];
    // SAFETY: the handle is open; the call reads two and writes five numbers of 64 bits, for which
    // there is memory, and keeps neither address. A kernel without it does nothing.
    let outcome = unsafe {
        libc::syscall(
            CACHESTAT,
            handle.as_raw_fd(),
            range.as_ptr(),
            counts.as_mut_ptr(),
            0 as libc::c_uint,
        )
    };
    if outcome == 0 { Ok(counts[0]) } else { Err(io::Error::last_os_error()) }
}

/// Fails for a file larger than this process may make one. The system would otherwise end a process
/// that does not ignore the signal `SIGXFSZ`.
fn check_size(bytes: u64) -> io::Result<()> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if bytes > limit => Err(Errno::FBIG.into()),
        _ => Ok(()),
    }
}

impl FileSystem for OsFileSystem {
    type Handle = OwnedFd;

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// The real path and the file number: another directory may get the number after this one was
    /// deleted.
    fn identity(&self) -> Option<String> {
        let (holder, name) = match &self.root {
            RootHandle::Held(root) => (root, None),
            RootHandle::Named { parent, name } => (parent, Some(name)),
        };
        let mut path = std::fs::read_link(format!("/proc/self/fd/{}", holder.as_raw_fd()))
            .or_else(|_| {
                self.path.parent().filter(|_| name.is_some()).unwrap_or(&self.path).canonicalize()
            })
            .ok()?;
        path.extend(name);
        let status = |root: BorrowedFd<'_>| rustix::fs::statx(root, "", AtFlags::EMPTY_PATH, ASKED);
        let (device, number) = status_of(&self.in_root(status).ok()?).version.identity;
        Some(format!("file:{device}:{number}:{path:?}"))
    }

    fn sibling(&self, suffix: &str) -> io::Result<Self> {
        let (parent, path) = match &self.root {
            RootHandle::Held(root) => find(root, &self.path)?,
            RootHandle::Named { parent, .. } => (parent.try_clone()?, self.path.clone()),
        };
        let Some(name) = path.file_name().and_then(OsStr::to_str) else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "its name is not UTF-8"));
        };
        let name = format!("{name}{suffix}");
        Ok(Self {
            path: path.with_file_name(&name),
            root: RootHandle::Named { parent, name },
            resolves: AtomicBool::new(self.resolves.load(Ordering::Relaxed)),
            tokens: AtomicU64::new(0),
            alias: None,
            // A sibling storage holds a log, which contains no links.
            follows_links: false,
            owners: self.owners.clone(),
        })
    }

    fn within(&self, path: &str, links: LinkPolicy) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            root: RootHandle::Held(self.resolve(path, flags, links)?),
            path: self.path.join(path),
            resolves: AtomicBool::new(self.resolves.load(Ordering::Relaxed)),
            tokens: AtomicU64::new(0),
            alias: None,
            follows_links: self.follows_links,
            owners: self.owners.clone(),
        })
    }

    fn above(&self) -> io::Result<Option<(OwnedFd, &str)>> {
        match &self.root {
            RootHandle::Held(_) => Ok(None),
            RootHandle::Named { parent, name } => {
                Ok(Some((rustix::fs::openat(parent, ".", DIRECTORY, Mode::empty())?, name)))
            }
        }
    }

    fn open_file(&self, path: &str) -> io::Result<(OwnedFd, FileStatus)> {
        self.open_to_read(path, OFlags::RDONLY)
    }

    fn open_direct(&self, path: &str) -> io::Result<(OwnedFd, FileStatus)> {
        self.open_to_read(path, OFlags::RDONLY | OFlags::DIRECT)
    }

    fn stat(&self, path: &str) -> io::Result<FileStatus> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        self.status_to_read(&self.resolve(path, flags, LinkPolicy::Inside)?)
    }

    fn now(&self) -> io::Result<i64> {
        // Files are dated by the clock's last tick or, since Linux 6.13, by the clock itself.
        let nanoseconds = |time: Timespec| time.tv_sec * 1_000_000_000 + time.tv_nsec;
        let now = nanoseconds(clock_gettime(ClockId::Realtime));
        // The loop ends even if the clock is set back meanwhile.
        for _ in 0..LOOKS_MAX {
            if nanoseconds(clock_gettime(ClockId::RealtimeCoarse)) > now {
                break;
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        Ok(now)
    }

    fn peek(&self, path: &str) -> io::Result<FileStatus> {
        let peek = |root: BorrowedFd<'_>| {
            rustix::fs::statx(root, self.real(path), AtFlags::empty(), ASKED)
        };
        Ok(status_of(&self.in_root(peek)?))
    }

    fn open_directory(&self, path: &str, links: LinkPolicy) -> io::Result<OwnedFd> {
        Ok(self.resolve(path, DIRECTORY, links)?)
    }

    fn open_child(&self, directory: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | COMMON;
        Ok(rustix::fs::openat(directory, name, flags, Mode::empty())?)
    }

    fn create_file(&self, directory: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | COMMON;
        Ok(rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o666))?)
    }

    /// Uses Lustre's own tool: a file that was never opened has no target yet and can be given one.
    fn create_file_on(&self, directory: &OwnedFd, name: &str, target: u32) -> io::Result<OwnedFd> {
        let mode = Mode::from_raw_mode(0o666);
        rustix::fs::mknodat(directory, name, FileType::RegularFile, mode, 0)?;
        let asked = ask_lfs(directory, name, target);
        let opened = asked.and_then(|()| self.open_to_write(directory, name));
        if opened.is_err() {
            let _ = self.unlink(directory, name);
        }
        opened.map_err(|error| match error.kind() {
            // A sweeper took the unlocked file for an orphan: the caller tries another name.
            io::ErrorKind::NotFound => io::ErrorKind::AlreadyExists.into(),
            _ => error,
        })
    }

    fn open_to_write(&self, directory: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | COMMON;
        Ok(rustix::fs::openat(directory, name, flags, Mode::empty())?)
    }

    fn status(&self, handle: &OwnedFd) -> io::Result<FileStatus> {
        Ok(status_of(&rustix::fs::statx(handle, "", AtFlags::EMPTY_PATH, ASKED)?))
    }

    fn stat_child(&self, directory: &OwnedFd, name: &str) -> io::Result<FileStatus> {
        Ok(status_of(&rustix::fs::statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, ASKED)?))
    }

    fn read_at(&self, handle: &OwnedFd, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::pread(handle, buffer, offset)?)
    }

    fn read_resident(&self, handle: &OwnedFd, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut parts = [io::IoSliceMut::new(buffer)];
        match rustix::io::preadv2(handle, &mut parts, offset, ReadWriteFlags::NOWAIT) {
            Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(0),
            outcome => Ok(outcome?),
        }
    }

    fn residency(&self, handle: &OwnedFd, offset: u64, length: u64) -> io::Result<Residency> {
        let end = offset.saturating_add(length);
        let pages = offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES);
        let cached = cached_pages(handle, pages.start * PAGE_BYTES, end)?;
        if cached >= pages.end - pages.start {
            return Ok(Residency::Whole);
        }
        // The first and the last page may be cached for bytes outside the range.
        let inside = offset.div_ceil(PAGE_BYTES)..end / PAGE_BYTES;
        let known = cached > 2 || inside.is_empty();
        let some = cached > 0
            && (known
                || cached_pages(handle, inside.start * PAGE_BYTES, inside.end * PAGE_BYTES)? > 0);
        Ok(if some { Residency::Part } else { Residency::Nothing })
    }

    fn read_ahead(&self, handle: &OwnedFd, offset: u64, length: u64) -> bool {
        // A length of 0 would mean all the rest.
        NonZeroU64::new(length).is_some_and(|length| {
            rustix::fs::fadvise(handle, offset, Some(length), Advice::WillNeed).is_ok()
        })
    }

    fn refuse_read_ahead(&self, handle: &OwnedFd) {
        // If the system refuses, it reads more than was requested.
        let _ = rustix::fs::fadvise(handle, 0, None, Advice::Random);
    }

    fn write_at(&self, handle: &OwnedFd, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        check_size(offset.saturating_add(bytes.len() as u64))?;
        Ok(rustix::io::pwrite(handle, bytes, offset)?)
    }

    fn reserve(&self, handle: &OwnedFd, offset: u64, length: u64) -> io::Result<()> {
        check_size(offset.saturating_add(length))?;
        Ok(rustix::fs::fallocate(handle, FallocateFlags::empty(), offset, length)?)
    }

    fn release(&self, handle: &OwnedFd, offset: u64, length: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(handle, flags, offset, length)?)
    }

    fn set_size(&self, handle: &OwnedFd, size: u64) -> io::Result<()> {
        check_size(size)?;
        Ok(rustix::fs::ftruncate(handle, size)?)
    }

    fn set_direct(&self, handle: &OwnedFd, direct: bool) -> io::Result<()> {
        let flags = if direct { OFlags::DIRECT } else { OFlags::empty() };
        Ok(rustix::fs::fcntl_setfl(handle, flags)?)
    }

    fn sync_file(&self, handle: &OwnedFd) -> io::Result<()> {
        Ok(rustix::fs::fsync(handle)?)
    }

    fn sync_directory(&self, directory: &OwnedFd) -> io::Result<()> {
        Ok(rustix::fs::fsync(directory)?)
    }

    fn can_sync_whole(&self) -> bool {
        *REPORTS_FAILED_WRITES.get_or_init(reports_failed_writes)
            && waiting_bytes().is_some_and(|bytes| bytes <= WAITING_BYTES_MAX)
    }

    fn sync_whole(&self, handle: &OwnedFd) -> io::Result<()> {
        Ok(rustix::fs::syncfs(handle)?)
    }

    #[allow(unsafe_code)]
    fn close(&self, handle: OwnedFd) -> io::Result<()> {
        // SAFETY: the number comes from an OwnedFd that was just given up, so it is open, ours, and
        // used by nobody else. It is not used after this call, which closes it also on an error.
        Ok(unsafe { rustix::io::try_close(handle.into_raw_fd()) }?)
    }

    fn rename(
        &self,
        from: (&OwnedFd, &str),
        to: (&OwnedFd, &str),
        replace: Replace,
    ) -> io::Result<()> {
        let flags = match replace {
            Replace::Allow => RenameFlags::empty(),
            Replace::Refuse => RenameFlags::NOREPLACE,
        };
        Ok(rustix::fs::renameat_with(from.0, from.1, to.0, to.1, flags)?)
    }

    fn rename_directory(&self, from: (&OwnedFd, &str), to: (&OwnedFd, &str)) -> io::Result<()> {
        Ok(rustix::fs::renameat(from.0, from.1, to.0, to.1)?)
    }

    fn exchange(&self, one: (&OwnedFd, &str), other: (&OwnedFd, &str)) -> io::Result<()> {
        let flags = RenameFlags::EXCHANGE;
        Ok(rustix::fs::renameat_with(one.0, one.1, other.0, other.1, flags)?)
    }

    fn link(&self, from: (&OwnedFd, &str), to: (&OwnedFd, &str)) -> io::Result<()> {
        Ok(rustix::fs::linkat(from.0, from.1, to.0, to.1, AtFlags::empty())?)
    }

    fn unlink(&self, directory: &OwnedFd, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(directory, name, AtFlags::empty())?)
    }

    fn make_directory(&self, directory: &OwnedFd, name: &str) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(directory, name, Mode::from_raw_mode(0o777))?)
    }

    fn remove_directory(&self, directory: &OwnedFd, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR)?)
    }

    fn list(&self, directory: &OwnedFd) -> io::Result<Vec<(String, FileKind)>> {
        let mut entries = Vec::new();
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            match name.to_str() {
                None | Some("." | "..") => {}
                Some(name) => entries.push((name.to_owned(), kind(entry.file_type()))),
            }
        }
        Ok(entries)
    }

    fn lock(&self, handle: &OwnedFd, wait: LockWait) -> io::Result<()> {
        let operation = match wait {
            LockWait::Forever => FlockOperation::LockExclusive,
            LockWait::Never => FlockOperation::NonBlockingLockExclusive,
        };
        Ok(rustix::fs::flock(handle, operation)?)
    }

    fn open_lock_file(&self, directory: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
        if self.stat_child(directory, name).is_ok_and(|found| found.kind != FileKind::File) {
            return Err(io::Error::other("the file of its lock is no plain file: remove it"));
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | COMMON;
        Ok(rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o666))?)
    }

    fn token(&self) -> u64 {
        // Each RandomState has its own keys from the system's random source.
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u64(self.tokens.fetch_add(1, Ordering::Relaxed));
        hasher.write_u32(std::process::id());
        hasher.finish()
    }

    fn is_overlapped(&self) -> bool {
        true
    }
}
