//! The table of files that the program reads: maps descriptors to slots.
//!
//! A device and an inode identify a file, whatever its descriptors. A file keeps its slot until
//! another file needs it. Then the slot's generation changes, which invalidates the entries of its
//! descriptors.
//!
//! The table has a lock of its own, held for a microsecond, and longer for the first file on a
//! device. No function here allocates.

use std::cell::UnsafeCell;
use std::mem;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::descriptors::{self, DescriptorState};
use crate::device::Devices;
use crate::helper;
use crate::inside::Inside;
use crate::record::{self, FILES, ProcessNumber};

/// Attempts to take the lock, some microseconds in all; each descriptor is looked up only once.
const ATTEMPTS: usize = 256;

#[derive(Clone, Copy)]
struct WatchedFile {
    is_used: bool,
    device: u64,
    inode: u64,
}

struct Files {
    all: [WatchedFile; FILES],
    devices: Devices,
    is_used: bool,
}

struct LockedFiles(UnsafeCell<Files>);

// SAFETY: only the thread with the lock uses it.
unsafe impl Sync for LockedFiles {}

static TABLE: LockedFiles = LockedFiles(UnsafeCell::new(Files {
    all: [WatchedFile { is_used: false, device: 0, inode: 0 }; FILES],
    devices: Devices::new(),
    is_used: false,
}));
static LOCK: AtomicU32 = AtomicU32::new(0);
/// The number of files that each slot has had.
static GENERATIONS: [AtomicU32; FILES] = [const { AtomicU32::new(0) }; FILES];
/// The size in bytes of the file in each slot, at the last look.
static BYTES: [AtomicU64; FILES] = [const { AtomicU64::new(0) }; FILES];
/// Bytes of one hint for the file in each slot.
static HINT_BYTES: [AtomicU32; FILES] = [const { AtomicU32::new(0) }; FILES];
/// The last use of the file in each slot, on the clock [`TIME`].
static USED_AT: [AtomicU64; FILES] = [const { AtomicU64::new(0) }; FILES];
static TIME: AtomicU64 = AtomicU64::new(0);

/// True if the slot still has the file of this generation.
pub(crate) fn is_current(slot: u16, generation: u32) -> bool {
    GENERATIONS[usize::from(slot)].load(Ordering::Acquire) == generation
}

/// Marks the file in a slot as used now.
pub(crate) fn touch(slot: u16) {
    let now = TIME.fetch_add(1, Ordering::Relaxed);
    USED_AT[usize::from(slot)].store(now, Ordering::Relaxed);
}

/// Returns the bytes of one hint for the file in a slot.
pub(crate) fn hint_bytes(slot: u16) -> u64 {
    u64::from(HINT_BYTES[usize::from(slot)].load(Ordering::Relaxed))
}

/// Returns the size in bytes of the file in a slot, which is at least `end`.
pub(crate) fn bytes(slot: u16, descriptor: i32, end: u64) -> u64 {
    let known = &BYTES[usize::from(slot)];
    let bytes = known.load(Ordering::Relaxed);
    if end <= bytes {
        return bytes;
    }
    let status = status_of(descriptor);
    let bytes = status.map_or(0, |status| u64::try_from(status.st_size).unwrap_or(0)).max(end);
    known.store(bytes, Ordering::Relaxed);
    bytes
}

/// Forgets all files in a forked child; false if there were none.
pub(crate) fn leave() -> bool {
    LOCK.store(0, Ordering::Release);
    // SAFETY: the child has one thread.
    let files = unsafe { &mut *TABLE.0.get() };
    if !mem::replace(&mut files.is_used, false) {
        return false;
    }
    for (file, generation) in files.all.iter_mut().zip(&GENERATIONS) {
        file.is_used = false;
        generation.fetch_add(1, Ordering::AcqRel);
    }
    true
}

/// Returns the state of a descriptor, after a first look if needed. A read of an empty file that
/// returned bytes is of no disk: files of `/proc` claim to be regular.
pub(crate) fn identify(_inside: &Inside, descriptor: i32, bytes: u64) -> DescriptorState {
    match descriptors::known(descriptor) {
        DescriptorState::File { slot, generation } if is_current(slot, generation) => {
            return DescriptorState::File { slot, generation };
        }
        DescriptorState::Ignored => return DescriptorState::Ignored,
        _ => {}
    }
    let Some(status) = status_of(descriptor) else { return DescriptorState::No };
    // SAFETY: returns flags.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
    let is_direct = flags & libc::O_DIRECT != 0;
    let is_regular = status.st_mode & libc::S_IFMT == libc::S_IFREG;
    if !is_regular || is_direct || (status.st_size == 0 && bytes > 0) {
        if is_regular && is_direct {
            record::count_of_process(ProcessNumber::Direct);
        }
        descriptors::keep(descriptor, DescriptorState::Ignored);
        return DescriptorState::Ignored;
    }
    let Some(known) = with_table(|files| files.slot_for(descriptor, &status)) else {
        record::count_of_process(ProcessNumber::LeftOut);
        return DescriptorState::No;
    };
    descriptors::keep(descriptor, known);
    known
}

/// Calls `act` with the table; `None` if another thread holds the lock after some attempts.
fn with_table<T>(act: impl FnOnce(&mut Files) -> T) -> Option<T> {
    let is_mine = (0..ATTEMPTS).any(|_| {
        std::hint::spin_loop();
        LOCK.load(Ordering::Relaxed) == 0
            && LOCK.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    });
    if !is_mine {
        return None;
    }
    // SAFETY: this thread has the lock. No function of the table panics; a lock that stays taken
    // only ends the lookups.
    let result = act(unsafe { &mut *TABLE.0.get() });
    LOCK.store(0, Ordering::Release);
    Some(result)
}

impl Files {
    /// Returns the slot of a file: its own, a free one, or the least recently used.
    fn slot_for(&mut self, descriptor: i32, status: &libc::stat) -> DescriptorState {
        record::make();
        self.is_used = true;
        let is_same = |file: &WatchedFile| {
            file.is_used && file.device == status.st_dev && file.inode == status.st_ino
        };
        let found = self.all.iter().position(is_same);
        let number = found
            .or_else(|| self.all.iter().position(|file| !file.is_used))
            .or_else(|| (0..FILES).min_by_key(|at| USED_AT[*at].load(Ordering::Relaxed)))
            .unwrap_or(0);
        let Ok(slot) = u16::try_from(number) else { return DescriptorState::No };
        if found.is_none() {
            self.begin(slot, descriptor, status);
        }
        touch(slot);
        DescriptorState::File { slot, generation: GENERATIONS[number].load(Ordering::Acquire) }
    }

    fn begin(&mut self, slot: u16, descriptor: i32, status: &libc::stat) {
        let number = usize::from(slot);
        if self.all[number].is_used {
            record::fold(slot);
        }
        self.all[number] =
            WatchedFile { is_used: true, device: status.st_dev, inode: status.st_ino };
        BYTES[number].store(u64::try_from(status.st_size).unwrap_or(0), Ordering::Relaxed);
        let hint_bytes = self.devices.hint_bytes(status.st_dev);
        HINT_BYTES[number].store(hint_bytes, Ordering::Relaxed);
        GENERATIONS[number].fetch_add(1, Ordering::AcqRel);
        helper::cancel(slot);
        record::begin(slot, descriptor);
    }
}

fn status_of(descriptor: i32) -> Option<libc::stat> {
    // SAFETY: zeros are a valid value, and the call writes a value of this type.
    unsafe {
        let mut status: libc::stat = mem::zeroed();
        (libc::fstat(descriptor, &raw mut status) == 0).then_some(status)
    }
}
