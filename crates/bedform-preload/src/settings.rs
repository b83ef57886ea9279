//! The settings that `bedform run` passes in the environment.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The least bytes of a followed read, without `BEDFORM_RUN_MIN`.
const READ_BYTES_MIN: u64 = 4096;
/// The bytes ahead at first, without `BEDFORM_RUN_AHEAD`.
const AHEAD_BYTES: u64 = 8 << 20;
/// The factor by which the bytes ahead may grow.
const GROWTH: u64 = 8;
/// The divisor of the machine's memory that limits the bytes ahead of one sequence of reads.
const MEMORY_PART: u64 = 16;

/// The least bytes of a followed read.
pub(crate) static MIN: AtomicU64 = AtomicU64::new(READ_BYTES_MIN);
/// Bytes ahead at first.
pub(crate) static AHEAD: AtomicU64 = AtomicU64::new(AHEAD_BYTES);
/// The most bytes ahead.
pub(crate) static AHEAD_MAX: AtomicU64 = AtomicU64::new(AHEAD_BYTES * GROWTH);
/// True if the kernel is advised.
pub(crate) static ADVISES: AtomicBool = AtomicBool::new(true);

/// Returns the directory of the report, from the environment.
pub(crate) fn report_directory() -> Option<&'static CStr> {
    variable(c"BEDFORM_RUN_REPORT")
}

/// Reads the environment. A malformed number counts as unset: the library prints nothing.
pub(crate) fn read() {
    let min = number(c"BEDFORM_RUN_MIN").unwrap_or(READ_BYTES_MIN).max(1);
    let ahead = number(c"BEDFORM_RUN_AHEAD").unwrap_or(AHEAD_BYTES);
    // SAFETY: returns numbers of the system.
    let [pages, page] =
        unsafe { [libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)] };
    let [pages, page] = [pages, page].map(|number| u64::try_from(number).unwrap_or(0));
    let memory = pages.saturating_mul(page) / MEMORY_PART;
    MIN.store(min, Ordering::Relaxed);
    AHEAD.store(ahead, Ordering::Relaxed);
    AHEAD_MAX.store(ahead.saturating_mul(GROWTH).min(memory.max(ahead)), Ordering::Relaxed);
    ADVISES.store(number(c"BEDFORM_RUN_ADVISE") != Some(0), Ordering::Relaxed);
}

fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: the name ends with a zero. The value is copied or used before the program begins.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: a value of the environment ends with a zero.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }).filter(|value| !value.is_empty())
}

fn number(name: &CStr) -> Option<u64> {
    variable(name)?.to_str().ok()?.trim().parse().ok()
}
