//! A file system in memory that can lose its power.
//!
//! It behaves like a POSIX file system, and remembers which changes a sync has confirmed. At any
//! moment it enumerates the states that a power cut may leave: see
//! [`SimulatedFileSystem::crash_images`]. Calls can be made to fail, one by one or all from a
//! certain one on. The same calls and seeds give the same bytes: it uses no clock, no thread and no
//! random source.
//!
//! Sibling storages lie on the same disk, so that one power cut hits all of them. Each is one more
//! directory at the top of the disk, and a crash image contains all.

mod crash;
mod faults;
mod state;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use crate::file_system::{
    FileKind, FileStatus, FileSystem, LinkPolicy, LockWait, Replace, Residency,
};
use faults::CallFaults;
pub use faults::{CallFailure, CallKind};
use state::{Body, FileChange, SimulatedDirectory, SimulatedFile, SimulatedState, index, refuse};

#[derive(Debug)]
struct World {
    state: SimulatedState,
    faults: CallFaults,
    next_handle: u64,
}

#[derive(Debug)]
struct SimulatedMachine {
    world: Mutex<World>,
    unlocked: Condvar,
    has_threads: AtomicBool,
    /// Unique in this process.
    number: u64,
}

/// The number of the next machine.
static MACHINES: AtomicU64 = AtomicU64::new(0);

impl SimulatedMachine {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A simulated file system, seen from one root on it; clones are views of the same system.
///
/// ```
/// use bedform_format::ObjectPath;
/// use bedform_storage::{Condition, Durability, LocalStorage, Mode, SimulatedFileSystem, Staging};
/// use bedform_storage::{WriteHint, Storage};
///
/// let system = SimulatedFileSystem::new();
/// let storage = LocalStorage::over(system.clone(), Mode::ReadWrite, Staging::default());
/// let path = ObjectPath::parse("a").unwrap();
/// let mut writer = storage.create(&path, Durability::Disk, WriteHint::default())?;
/// writer.append(b"kept")?;
/// writer.publish(Condition::Absent)?;
/// for image in system.crash_images(1, 100) {
///     assert_eq!(image.tree()["a"], b"kept");
/// }
/// # Ok::<(), bedform_storage::StorageError>(())
/// ```
#[derive(Debug, Clone)]
pub struct SimulatedFileSystem {
    machine: Arc<SimulatedMachine>,
    /// The path of the root, from the top directory on.
    place: Arc<str>,
    /// True if the root is a sibling of another, and may be missing.
    is_named: bool,
}

/// An open file or directory of a [`SimulatedFileSystem`].
#[derive(Debug)]
pub struct SimulatedHandle {
    machine: Arc<SimulatedMachine>,
    inode: u64,
    id: u64,
    is_direct: AtomicBool,
}

impl Drop for SimulatedHandle {
    fn drop(&mut self) {
        let mut world = self.machine.world();
        if let Some(inode) = world.state.inodes.get_mut(&self.inode)
            && inode.lock == Some(self.id)
        {
            inode.lock = None;
            self.machine.unlocked.notify_all();
        }
    }
}

impl Default for SimulatedFileSystem {
    fn default() -> Self {
        Self::new()
    }
}

impl SimulatedFileSystem {
    /// Returns an empty file system.
    pub fn new() -> Self {
        Self::from_state(SimulatedState::new(), &Arc::from(state::FIRST))
    }

    /// Returns the same system with threads for its writers, as on the real one. The calls of each
    /// kind keep their order; the order among kinds then differs between runs.
    #[must_use]
    pub fn with_threads(self) -> Self {
        self.machine.has_threads.store(true, Ordering::Relaxed);
        self
    }

    fn from_state(state: SimulatedState, place: &Arc<str>) -> Self {
        let world = World { state, faults: CallFaults::default(), next_handle: 1 };
        let machine = SimulatedMachine {
            world: Mutex::new(world),
            unlocked: Condvar::new(),
            has_threads: AtomicBool::new(false),
            number: MACHINES.fetch_add(1, Ordering::Relaxed),
        };
        Self { machine: Arc::new(machine), place: Arc::clone(place), is_named: false }
    }

    /// Returns `count` possible states after a power cut now, chosen by `seed`.
    pub fn crash_images(&self, seed: u64, count: u64) -> impl Iterator<Item = Self> + use<> {
        self.sampled_images(seed, count, false)
    }

    /// As [`SimulatedFileSystem::crash_images`], with every write torn into sectors or pages, each
    /// of which is kept or lost on its own.
    pub fn torn_crash_images(&self, seed: u64, count: u64) -> impl Iterator<Item = Self> + use<> {
        self.sampled_images(seed, count, true)
    }

    fn sampled_images(
        &self,
        seed: u64,
        count: u64,
        is_torn: bool,
    ) -> impl Iterator<Item = Self> + use<> {
        let (state, place) = (self.machine.world().state.clone(), Arc::clone(&self.place));
        (0..count).map(move |number| {
            let seed = crash::Random(seed ^ number.wrapping_mul(0xd134_2543_de82_ef95)).next();
            let fate = &mut crash::Sampled::new(seed, is_torn);
            Self::from_state(crash::image(&state, fate), &place)
        })
    }

    /// Returns all possible states in which each change is kept or lost as a whole. `None` if more
    /// than `pending_max` changes are unconfirmed.
    pub fn exhaustive_crash_images(
        &self,
        pending_max: u32,
    ) -> Option<impl Iterator<Item = Self> + use<>> {
        let (state, place) = (self.machine.world().state.clone(), Arc::clone(&self.place));
        let questions = crash::questions(&state);
        if questions > pending_max.min(32) {
            return None;
        }
        Some((0..1u64 << questions).map(move |bits| {
            let fate = &mut crash::Enumerated { bits, asked: 0 };
            Self::from_state(crash::image(&state, fate), &place)
        }))
    }

    /// Returns the system after its only process was killed: no written byte is lost, and locks are
    /// released. Calls on the old system fail from now on.
    #[must_use]
    pub fn kill(&self) -> Self {
        let mut world = self.machine.world();
        let mut state = world.state.clone();
        state.inodes.values_mut().for_each(|inode| inode.lock = None);
        world.faults.power_fails_at = Some(0);
        Self::from_state(state, &self.place)
    }

    /// Returns an independent copy of this file system, without any loss.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self::from_state(self.machine.world().state.clone(), &self.place)
    }

    /// Makes the `k`-th call of one kind from now on (0 is the next) fail.
    pub fn fail_at(&self, kind: CallKind, k: u64, failure: CallFailure) {
        let faults = &mut self.machine.world().faults;
        let number = faults.counts.get(&kind).copied().unwrap_or(0).saturating_add(k);
        faults.failures.insert((kind, number), failure);
    }

    /// Allows `k` more calls; all later ones fail and do nothing.
    pub fn fail_power_after(&self, k: u64) {
        let faults = &mut self.machine.world().faults;
        faults.power_fails_at = Some(faults.calls.saturating_add(k));
    }

    /// Sets the clock that dates files, and its step for every change. The step is 1 initially, 0
    /// for a clock that stands still, negative for one that runs backwards.
    pub fn set_clock(&self, now: i64, step: i64) {
        let mut world = self.machine.world();
        (world.state.clock, world.state.clock_step) = (now, step);
    }

    /// Removes all scheduled failures: the power is back.
    pub fn heal(&self) {
        let faults = &mut self.machine.world().faults;
        faults.power_fails_at = None;
        faults.failures.clear();
    }

    /// Removes the calls of this kind: they fail with `EOPNOTSUPP`. For `Rename`, only the form
    /// that does not replace is missing.
    pub fn remove_feature(&self, kind: CallKind) {
        self.machine.world().faults.lacks.push(kind);
    }

    /// Returns the number of calls of one kind so far.
    pub fn count(&self, kind: CallKind) -> u64 {
        self.machine.world().faults.counts.get(&kind).copied().unwrap_or(0)
    }

    /// Returns the number of written bytes that no sync has confirmed.
    pub fn pending_bytes(&self) -> u64 {
        let world = self.machine.world();
        let files = world.state.inodes.values().filter_map(|inode| match &inode.body {
            Body::File(file) => Some(file),
            Body::Directory(_) => None,
        });
        files
            .flat_map(|file| &file.pending)
            .map(|pending| match &pending.change {
                FileChange::Write { bytes, .. } => bytes.len() as u64,
                FileChange::Size(_) => 0,
            })
            .sum()
    }

    /// Returns the number of calls of all kinds so far.
    pub fn calls(&self) -> u64 {
        self.machine.world().faults.calls
    }

    /// Returns every reachable file below this root, hidden ones included, with its bytes.
    pub fn tree(&self) -> BTreeMap<String, Vec<u8>> {
        let world = self.machine.world();
        let mut files = BTreeMap::new();
        let root = world.state.resolve(&self.place, "").ok();
        let mut open: Vec<_> = root.map(|root| (String::new(), root)).into_iter().collect();
        while let Some((path, number)) = open.pop() {
            match world.state.inodes.get(&number).map(|inode| &inode.body) {
                Some(Body::File(file)) => {
                    files.insert(path, file.bytes.to_vec());
                }
                Some(Body::Directory(directory)) => {
                    open.extend(directory.entries.iter().map(|(name, number)| {
                        let join = if path.is_empty() { "" } else { "/" };
                        (format!("{path}{join}{name}"), *number)
                    }));
                }
                None => {}
            }
        }
        files
    }

    /// Makes a call: counts it, fails as scheduled, and otherwise runs `work`.
    fn call<T>(
        &self,
        kind: CallKind,
        work: impl FnOnce(&mut World, bool) -> io::Result<T>,
    ) -> io::Result<T> {
        let (failure, outcome) = {
            let world = &mut *self.machine.world();
            let failure = world.faults.next(kind)?;
            if let Some(CallFailure::Error(number)) = failure {
                return Err(io::Error::from_raw_os_error(number));
            }
            (failure, work(world, failure == Some(CallFailure::Short))?)
        };
        // A handle in the outcome is dropped here, after the world is unlocked.
        match failure {
            Some(CallFailure::ErrorAfter(number)) => Err(io::Error::from_raw_os_error(number)),
            _ => Ok(outcome),
        }
    }

    fn handle(&self, world: &mut World, inode: u64) -> SimulatedHandle {
        let id = world.next_handle;
        world.next_handle += 1;
        let machine = Arc::clone(&self.machine);
        SimulatedHandle { machine, inode, id, is_direct: AtomicBool::new(false) }
    }

    fn sync(
        &self,
        kind: CallKind,
        handle: &SimulatedHandle,
        work: fn(&mut SimulatedState, u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let outcome = self.call(kind, |world, _| work(&mut world.state, handle.inode));
        if outcome.is_err() {
            self.machine.world().state.doubt(handle.inode);
        }
        outcome
    }
}

/// Returns the bytes that a call processes out of `length`: half of them if it is short.
fn share(length: usize, is_short: bool) -> usize {
    if is_short { length.div_ceil(2) } else { length }
}

impl FileSystem for SimulatedFileSystem {
    type Handle = SimulatedHandle;

    fn name(&self) -> String {
        self.place.to_string()
    }

    fn identity(&self) -> Option<String> {
        Some(format!("simulated:{}:{}", self.machine.number, self.place))
    }

    fn sibling(&self, suffix: &str) -> io::Result<Self> {
        let place = format!("{}{suffix}", self.place).into();
        Ok(Self { machine: Arc::clone(&self.machine), place, is_named: true })
    }

    fn within(&self, path: &str, links: LinkPolicy) -> io::Result<Self> {
        drop(self.open_directory(path, links)?);
        let separator = if path.is_empty() { "" } else { "/" };
        let place = format!("{}{separator}{path}", self.place).into();
        Ok(Self { machine: Arc::clone(&self.machine), place, is_named: false })
    }

    fn above(&self) -> io::Result<Option<(SimulatedHandle, &str)>> {
        if !self.is_named {
            return Ok(None);
        }
        let (above, name) = self.place.rsplit_once('/').unwrap_or(("", &self.place));
        let above = self.call(CallKind::OpenDirectory, |world, _| {
            let number = world.state.resolve(above, "")?;
            Ok(self.handle(world, number))
        });
        Ok(Some((above?, name)))
    }

    fn open_file(&self, path: &str) -> io::Result<(SimulatedHandle, FileStatus)> {
        self.call(CallKind::Open, |world, _| {
            let number = world.state.resolve(&self.place, path)?;
            let status = world.state.status(number)?;
            Ok((self.handle(world, number), status))
        })
    }

    /// There is no page cache.
    fn open_direct(&self, _path: &str) -> io::Result<(SimulatedHandle, FileStatus)> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn stat(&self, path: &str) -> io::Result<FileStatus> {
        self.call(CallKind::Stat, |world, _| {
            world.state.status(world.state.resolve(&self.place, path)?)
        })
    }

    fn now(&self) -> io::Result<i64> {
        Ok(self.machine.world().state.clock)
    }

    fn peek(&self, path: &str) -> io::Result<FileStatus> {
        self.stat(path)
    }

    fn open_directory(&self, path: &str, _links: LinkPolicy) -> io::Result<SimulatedHandle> {
        self.call(CallKind::OpenDirectory, |world, _| {
            let number = world.state.resolve(&self.place, path)?;
            world.state.directory(number)?;
            Ok(self.handle(world, number))
        })
    }

    fn open_child(&self, directory: &SimulatedHandle, name: &str) -> io::Result<SimulatedHandle> {
        self.call(CallKind::Open, |world, _| {
            let number = world.state.child(directory.inode, name)?;
            Ok(self.handle(world, number))
        })
    }

    fn create_file(&self, directory: &SimulatedHandle, name: &str) -> io::Result<SimulatedHandle> {
        self.call(CallKind::Create, |world, _| {
            let number =
                world.state.add(directory.inode, name, Body::File(SimulatedFile::default()))?;
            Ok(self.handle(world, number))
        })
    }

    /// There is one storage target.
    fn create_file_on(
        &self,
        directory: &SimulatedHandle,
        name: &str,
        _target: u32,
    ) -> io::Result<SimulatedHandle> {
        self.create_file(directory, name)
    }

    fn open_to_write(
        &self,
        directory: &SimulatedHandle,
        name: &str,
    ) -> io::Result<SimulatedHandle> {
        self.open_child(directory, name)
    }

    fn status(&self, handle: &SimulatedHandle) -> io::Result<FileStatus> {
        self.call(CallKind::Stat, |world, _| world.state.status(handle.inode))
    }

    fn stat_child(&self, directory: &SimulatedHandle, name: &str) -> io::Result<FileStatus> {
        self.call(CallKind::Stat, |world, _| {
            world.state.status(world.state.child(directory.inode, name)?)
        })
    }

    fn read_at(
        &self,
        handle: &SimulatedHandle,
        offset: u64,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        self.call(CallKind::Read, |world, is_short| {
            let bytes = &world.state.file(handle.inode)?.bytes;
            let rest = bytes.get(index(offset)..).unwrap_or(&[]);
            let count = share(rest.len().min(buffer.len()), is_short);
            buffer[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        })
    }

    fn read_resident(
        &self,
        handle: &SimulatedHandle,
        offset: u64,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        self.read_at(handle, offset, buffer)
    }

    fn residency(&self, _: &SimulatedHandle, _: u64, _: u64) -> io::Result<Residency> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn read_ahead(&self, _: &SimulatedHandle, _: u64, _: u64) -> bool {
        false
    }

    fn refuse_read_ahead(&self, _: &SimulatedHandle) {}

    fn write_at(&self, handle: &SimulatedHandle, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.call(CallKind::Write, |world, is_short| {
            let is_aligned = offset.is_multiple_of(4096) && bytes.len().is_multiple_of(4096);
            if handle.is_direct.load(Ordering::Relaxed) && !is_aligned {
                return refuse(Errno::INVAL);
            }
            let count = share(bytes.len(), is_short);
            let change = FileChange::Write { offset, bytes: bytes[..count].into() };
            world.state.change_file(handle.inode, change)?;
            Ok(count)
        })
    }

    fn reserve(&self, handle: &SimulatedHandle, offset: u64, length: u64) -> io::Result<()> {
        self.call(CallKind::Reserve, |world, _| {
            let before = world.state.file(handle.inode)?.bytes.len() as u64;
            let size = offset.saturating_add(length).max(before);
            world.state.change_file(handle.inode, FileChange::Size(size))
        })
    }

    fn release(&self, _: &SimulatedHandle, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn set_size(&self, handle: &SimulatedHandle, size: u64) -> io::Result<()> {
        self.call(CallKind::SetSize, |world, _| {
            world.state.change_file(handle.inode, FileChange::Size(size))
        })
    }

    fn set_direct(&self, handle: &SimulatedHandle, direct: bool) -> io::Result<()> {
        self.call(CallKind::SetDirect, |_, _| {
            handle.is_direct.store(direct, Ordering::Relaxed);
            Ok(())
        })
    }

    fn sync_file(&self, handle: &SimulatedHandle) -> io::Result<()> {
        self.sync(CallKind::SyncFile, handle, SimulatedState::sync_file)
    }

    fn sync_directory(&self, directory: &SimulatedHandle) -> io::Result<()> {
        self.sync(CallKind::SyncDirectory, directory, SimulatedState::sync_directory)
    }

    fn can_sync_whole(&self) -> bool {
        true
    }

    fn sync_whole(&self, _handle: &SimulatedHandle) -> io::Result<()> {
        let outcome = self.call(CallKind::SyncWhole, |world, _| world.state.sync_whole());
        if outcome.is_err() {
            self.machine.world().state.doubt_whole();
        }
        outcome
    }

    fn close(&self, handle: SimulatedHandle) -> io::Result<()> {
        let outcome = self.call(CallKind::Close, |_, _| Ok(()));
        drop(handle);
        outcome
    }

    fn rename(
        &self,
        from: (&SimulatedHandle, &str),
        to: (&SimulatedHandle, &str),
        replace: Replace,
    ) -> io::Result<()> {
        let (from, to) = ((from.0.inode, from.1), (to.0.inode, to.1));
        self.call(CallKind::Rename, |world, _| {
            if replace == Replace::Refuse && world.faults.lacks.contains(&CallKind::Rename) {
                return refuse(Errno::INVAL);
            }
            world.state.rename(from, to, replace)
        })
    }

    fn rename_directory(
        &self,
        from: (&SimulatedHandle, &str),
        to: (&SimulatedHandle, &str),
    ) -> io::Result<()> {
        let (from, to) = ((from.0.inode, from.1), (to.0.inode, to.1));
        self.call(CallKind::Rename, |world, _| world.state.rename_directory(from, to))
    }

    fn exchange(
        &self,
        one: (&SimulatedHandle, &str),
        other: (&SimulatedHandle, &str),
    ) -> io::Result<()> {
        let (one, other) = ((one.0.inode, one.1), (other.0.inode, other.1));
        self.call(CallKind::Exchange, |world, _| world.state.exchange(one, other))
    }

    fn link(&self, from: (&SimulatedHandle, &str), to: (&SimulatedHandle, &str)) -> io::Result<()> {
        self.call(CallKind::Link, |world, _| {
            let number = world.state.child(from.0.inode, from.1)?;
            if world.state.child(to.0.inode, to.1).is_ok() {
                return refuse(Errno::EXIST);
            }
            world.state.change_names(to.0.inode, vec![(to.1.to_owned(), Some(number))])
        })
    }

    fn unlink(&self, directory: &SimulatedHandle, name: &str) -> io::Result<()> {
        self.call(CallKind::Unlink, |world, _| {
            world.state.remove(directory.inode, name, FileKind::File)
        })
    }

    fn make_directory(&self, directory: &SimulatedHandle, name: &str) -> io::Result<()> {
        self.call(CallKind::MakeDirectory, |world, _| {
            let body = Body::Directory(SimulatedDirectory::default());
            world.state.add(directory.inode, name, body).map(|_| ())
        })
    }

    fn remove_directory(&self, directory: &SimulatedHandle, name: &str) -> io::Result<()> {
        self.call(CallKind::RemoveDirectory, |world, _| {
            world.state.remove(directory.inode, name, FileKind::Directory)
        })
    }

    fn list(&self, directory: &SimulatedHandle) -> io::Result<Vec<(String, FileKind)>> {
        self.call(CallKind::List, |world, _| {
            let entries = &world.state.directory(directory.inode)?.entries;
            let kind = |number: &u64| world.state.status(*number).map(|status| status.kind);
            entries.iter().map(|(name, number)| Ok((name.clone(), kind(number)?))).collect()
        })
    }

    fn lock(&self, handle: &SimulatedHandle, wait: LockWait) -> io::Result<()> {
        self.call(CallKind::Lock, |_, _| Ok(()))?;
        let mut world = self.machine.world();
        loop {
            let inode = world.state.inode_mut(handle.inode)?;
            match inode.lock {
                Some(holder) if holder != handle.id => {}
                _ => {
                    inode.lock = Some(handle.id);
                    return Ok(());
                }
            }
            if wait == LockWait::Never {
                return refuse(Errno::WOULDBLOCK);
            }
            world = self.machine.unlocked.wait(world).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn open_lock_file(
        &self,
        directory: &SimulatedHandle,
        name: &str,
    ) -> io::Result<SimulatedHandle> {
        self.call(CallKind::Create, |world, _| {
            let number = match world.state.child(directory.inode, name) {
                Ok(number) => number,
                Err(_) => {
                    world.state.add(directory.inode, name, Body::File(SimulatedFile::default()))?
                }
            };
            Ok(self.handle(world, number))
        })
    }

    fn is_overlapped(&self) -> bool {
        self.machine.has_threads.load(Ordering::Relaxed)
    }

    fn token(&self) -> u64 {
        let state = &mut self.machine.world().state;
        state.next_token += 1;
        crash::Random(state.next_token).next()
    }
}
