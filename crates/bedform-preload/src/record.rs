//! Counters of a process and of each file that it reads, in memory that outlives the process.
//!
//! If the report has a directory, the memory is a mapped file there. The kernel keeps its pages
//! when the process is killed, calls `_exit` or executes another program, so no final write is
//! needed. `bedform run` reads these files. Without a directory the counters are not reported. An
//! empty file stands for a process whose counters found no space, or passed its limit of file sizes.
//!
//! A file has [`RECORDS`] records of [`RECORD_BYTES`] bytes: the process, the sum of all files that
//! lost their record, and one record per file. A record is a path (256 bytes, padded with zeros)
//! and numbers of 8 bytes in the byte order of the machine. `python/bedform/_run_report.py` has the
//! same list.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_long};
use std::io::Write;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::arena;
use crate::settings;

/// The number of counted kinds of patterns; the last one counts all others.
pub(crate) const KINDS: usize = 7;
/// The most files of a process with a record of their own.
pub(crate) const FILES: usize = 510;

const PATH_BYTES: usize = 256;
const RECORD_BYTES: usize = 512;
const RECORDS: usize = FILES + 2;
/// The first number of a complete table.
const MAGIC: u64 = u64::from_le_bytes(*b"BFRUN001");
const DIRECTORY_BYTES: usize = 1024;
const PROCESS_NUMBERS: usize = 6;

/// The counters of one file; those of the process are the [`ProcessNumber`]s.
#[repr(C)]
pub(crate) struct Record {
    path: UnsafeCell<[u8; PATH_BYTES]>,
    /// Reads of any size.
    pub(crate) reads: AtomicU64,
    /// Their bytes.
    pub(crate) bytes: AtomicU64,
    /// Reads that were large enough to be followed.
    pub(crate) followed_reads: AtomicU64,
    /// Their bytes.
    pub(crate) followed_bytes: AtomicU64,
    /// Followed reads that a pattern predicted, by kind.
    pub(crate) predicted_reads: [AtomicU64; KINDS],
    /// Their bytes, by kind.
    pub(crate) predicted_bytes: [AtomicU64; KINDS],
    /// Bytes that the kernel was advised to read.
    pub(crate) advised_bytes: AtomicU64,
    /// Advised bytes that the program then read.
    pub(crate) used_bytes: AtomicU64,
    /// The number of times that the file was mapped.
    pub(crate) maps: AtomicU64,
    /// Reads that were dropped because the queue was full.
    pub(crate) left_out: AtomicU64,
    spare: [AtomicU64; RECORD_BYTES / 8 - PATH_BYTES / 8 - 8 - 2 * KINDS],
}

const _: () = assert!(size_of::<Record>() == RECORD_BYTES);

/// The indexes of the numbers in the first record.
#[derive(Clone, Copy)]
pub(crate) enum ProcessNumber {
    /// The magic number of the file.
    Magic = 0,
    /// The process identifier.
    Id = 1,
    /// Files that lost their record to another file.
    Folded = 2,
    /// Mapped rings of `io_uring`.
    Rings = 3,
    /// Descriptors that bypass the page cache.
    Direct = 4,
    /// Reads of files that were not looked up, because another thread held the lock.
    LeftOut = 5,
}

struct ReportDirectory(UnsafeCell<[u8; DIRECTORY_BYTES]>);

// SAFETY: written before the program begins, only read afterwards.
unsafe impl Sync for ReportDirectory {}

static DIRECTORY: ReportDirectory = ReportDirectory(UnsafeCell::new([0; DIRECTORY_BYTES]));
/// The records of this process; null until it reads a file.
static TABLE: AtomicPtr<Record> = AtomicPtr::new(ptr::null_mut());

/// The numbers of the process before its records exist.
static EARLY: [AtomicU64; PROCESS_NUMBERS] = [const { AtomicU64::new(0) }; PROCESS_NUMBERS];

/// Stores the directory of the report: a program may change its environment.
pub(crate) fn remember_directory() {
    let Some(directory) = settings::report_directory().map(CStr::to_bytes) else { return };
    if directory.len() < DIRECTORY_BYTES {
        // SAFETY: the program has not begun, so there is no other thread.
        let kept = unsafe { &mut *DIRECTORY.0.get() };
        kept[..directory.len()].copy_from_slice(directory);
    }
}

/// Drops the parent's records in a forked child.
pub(crate) fn leave() {
    TABLE.store(ptr::null_mut(), Ordering::Release);
    EARLY.iter().for_each(|number| number.store(0, Ordering::Relaxed));
}

/// Returns the record of the file in a slot, if this process has records.
#[inline]
pub(crate) fn of_slot(slot: u16) -> Option<&'static Record> {
    at(usize::from(slot) + 2)
}

fn at(number: usize) -> Option<&'static Record> {
    let table = TABLE.load(Ordering::Acquire);
    if table.is_null() || number >= RECORDS {
        return None;
    }
    // SAFETY: a table has this many records, is never unmapped, and zeros are a valid record.
    Some(unsafe { &*table.add(number) })
}

/// Increments a number of the process.
pub(crate) fn count_of_process(number: ProcessNumber) {
    let cell = number_of_process(number);
    cell.unwrap_or(&EARLY[number as usize]).fetch_add(1, Ordering::Relaxed);
}

fn number_of_process(number: ProcessNumber) -> Option<&'static AtomicU64> {
    let process = at(0)?;
    Some(match number {
        ProcessNumber::Magic => &process.reads,
        ProcessNumber::Id => &process.bytes,
        ProcessNumber::Folded => &process.followed_reads,
        ProcessNumber::Rings => &process.followed_bytes,
        ProcessNumber::Direct => &process.predicted_reads[0],
        ProcessNumber::LeftOut => &process.predicted_reads[1],
    })
}

/// Makes the records of this process, if it has none. The caller has the lock.
pub(crate) fn make() {
    if !TABLE.load(Ordering::Acquire).is_null() {
        return;
    }
    let table = map_file().unwrap_or_else(|| arena::map_pages(RECORDS * RECORD_BYTES));
    TABLE.store(table.cast(), Ordering::Release);
    let Some(process) = at(0) else { return };
    // SAFETY: only the caller, with the lock, writes paths.
    read_link(c"/proc/self/exe", unsafe { &mut *process.path.get() });
    if let Some(id) = number_of_process(ProcessNumber::Id) {
        id.store(u64::from(std::process::id()), Ordering::Relaxed);
    }
    for number in [ProcessNumber::Rings, ProcessNumber::Direct, ProcessNumber::LeftOut] {
        if let Some(cell) = number_of_process(number) {
            cell.fetch_add(EARLY[number as usize].swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
    }
    // Last, because a table without the magic number is incomplete.
    if let Some(magic) = number_of_process(ProcessNumber::Magic) {
        magic.store(MAGIC, Ordering::Release);
    }
}

/// Starts the record of a file that is open as `descriptor`. The caller has the lock.
pub(crate) fn begin(slot: u16, descriptor: i32) {
    let Some(record) = of_slot(slot) else { return };
    let mut link = [0_u8; 32];
    if write!(&mut link[..31], "/proc/self/fd/{descriptor}").is_ok()
        && let Ok(link) = CStr::from_bytes_until_nul(&link)
    {
        // SAFETY: only the caller, with the lock, writes paths.
        read_link(link, unsafe { &mut *record.path.get() });
    }
}

/// Adds the numbers of a slot's record to the sum of all earlier files, and clears it. The caller
/// has the lock.
pub(crate) fn fold(slot: u16) {
    let (Some(record), Some(others)) = (of_slot(slot), at(1)) else { return };
    for (number, sum) in record.numbers().zip(others.numbers()) {
        sum.fetch_add(number.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }
    // SAFETY: only the caller, with the lock, writes paths.
    unsafe { *record.path.get() = [0; PATH_BYTES] };
    count_of_process(ProcessNumber::Folded);
}

impl Record {
    fn numbers(&self) -> impl Iterator<Item = &AtomicU64> {
        let one = [&self.reads, &self.bytes, &self.followed_reads, &self.followed_bytes];
        let two = [&self.advised_bytes, &self.used_bytes, &self.maps, &self.left_out];
        let kinds = self.predicted_reads.iter().chain(&self.predicted_bytes);
        one.into_iter().chain(kinds).chain(two)
    }
}

/// Reads a link's target; keeps the end of a long path.
fn read_link(link: &CStr, path: &mut [u8; PATH_BYTES]) {
    let mut whole = [0_u8; 4096];
    // SAFETY: the name ends with a zero, and the buffer has the given length.
    let count = unsafe { libc::readlink(link.as_ptr(), whole.as_mut_ptr().cast(), whole.len()) };
    let whole = &whole[..usize::try_from(count).unwrap_or(0)];
    let end = &whole[whole.len().saturating_sub(PATH_BYTES - 1)..];
    path.fill(0);
    path[..end.len()].copy_from_slice(end);
}

/// Maps a new file in the directory of the report; `None` without a directory, or without space.
fn map_file() -> Option<*mut u8> {
    // SAFETY: written before the program began.
    let directory = CStr::from_bytes_until_nul(unsafe { &*DIRECTORY.0.get() }).ok()?;
    if directory.is_empty() {
        return None;
    }
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock is written to a value of its type.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    let mut path = [0_u8; DIRECTORY_BYTES + 80];
    let mut rest = &mut path[..DIRECTORY_BYTES + 79];
    rest.write_all(directory.to_bytes()).ok()?;
    let [id, seconds, nanoseconds] = [i64::from(std::process::id()), now.tv_sec, now.tv_nsec];
    write!(rest, "/{id}-{seconds}-{nanoseconds}.part").ok()?;
    let path = CStr::from_bytes_until_nul(&path).ok()?;
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    // System calls, not libc's functions, which are cancellation points: a cancelled thread would
    // unwind from them.
    // SAFETY: the path ends with a zero.
    let opened =
        unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o600) };
    let descriptor = i32::try_from(opened).ok().filter(|descriptor| *descriptor >= 0)?;
    let table = map_descriptor(descriptor);
    // SAFETY: the descriptor is ours.
    unsafe { libc::syscall(libc::SYS_close, descriptor) };
    table
}

fn map_descriptor(descriptor: i32) -> Option<*mut u8> {
    let bytes = RECORDS * RECORD_BYTES;
    if !may_be_as_large(bytes) {
        return None;
    }
    // Allocates the whole file: a write to a mapped page without disk space would kill the program.
    // SAFETY: the descriptor is open.
    let allocated =
        unsafe { libc::syscall(libc::SYS_fallocate, descriptor, 0, 0 as c_long, bytes as c_long) };
    if allocated != 0 && !write_zeros(descriptor, bytes) {
        return None;
    }
    let start = arena::map_raw(bytes, libc::MAP_SHARED, descriptor);
    (!start.is_null()).then_some(start)
}

/// True if the process may make a file of so many bytes. Just to try would kill it: the system sends
/// `SIGXFSZ` to a process that passes its limit (`ulimit -f`).
fn may_be_as_large(bytes: usize) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is written to a value of its type.
    let code = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    code == 0 && bytes as u64 <= limit.rlim_cur
}

/// Fills the file, on file systems that cannot allocate ahead.
fn write_zeros(descriptor: i32, bytes: usize) -> bool {
    let zeros = [0_u8; 4096];
    let write = || {
        // SAFETY: the buffer has the given length.
        unsafe { libc::syscall(libc::SYS_write, descriptor, zeros.as_ptr(), zeros.len()) }
    };
    (0..bytes / zeros.len()).all(|_| usize::try_from(write()) == Ok(zeros.len()))
}

// SAFETY: numbers are atomic, and only the thread with the lock writes paths.
unsafe impl Sync for Record {}
