//! The limits of a process on its memory (`RLIMIT_AS`, usual in batch jobs), threads and open
//! files.

use std::fs;

use rustix::param::page_size;
use rustix::process::{Resource, getrlimit};

/// Bytes of address space for one more thread: its stack, and an arena of the C library's
/// allocator.
const THREAD_BYTES: u64 = 72 << 20;

/// Returns the bytes of address space that this process may still take. `None` without a limit, or
/// where the system does not report the bytes in use.
pub fn memory_left() -> Option<u64> {
    let limit = getrlimit(Resource::As).current?;
    let pages = fs::read_to_string("/proc/self/statm").ok()?;
    let taken: u64 = pages.split(' ').next()?.parse().ok()?;
    Some(limit.saturating_sub(taken.saturating_mul(page_size() as u64)))
}

/// Returns how many of `wanted` more threads fit into half of the remaining address space.
pub fn threads_that_fit(wanted: usize) -> usize {
    memory_left().map_or(wanted, |left| fit(left, wanted))
}

/// Returns the number of files that this process may have open at a time.
pub fn open_files_max() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

fn fit(left: u64, wanted: usize) -> usize {
    usize::try_from(left / 2 / THREAD_BYTES).map_or(wanted, |count| count.min(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_fit_into_half_of_what_is_left() {
        assert_eq!(fit(0, 4), 0);
        assert_eq!(fit(6 * THREAD_BYTES, 4), 3);
        assert_eq!(fit(u64::MAX, 4), 4);
    }
}
