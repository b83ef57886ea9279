//! How near a process is to the limits on its memory (`RLIMIT_AS`, usual in batch jobs) and its open files.

use std::fs;

use rustix::param::page_size;
use rustix::process::{Resource, getrlimit};

/// Addresses that the system's allocator takes for a thread of its own, as long as there are any, and its stack.
const THREAD_BYTES: u64 = 72 << 20;

/// Bytes of addresses that this process may still take, where it has a limit; nothing where it has none, or the
/// system does not say how much is taken.
pub fn memory_left() -> Option<u64> {
    let limit = getrlimit(Resource::As).current?;
    let pages = fs::read_to_string("/proc/self/statm").ok()?;
    let taken: u64 = pages.split(' ').next()?.parse().ok()?;
    Some(limit.saturating_sub(taken.saturating_mul(page_size() as u64)))
}

/// How many of `wanted` more threads fit into half of what the limit leaves; all without a limit.
pub fn threads_that_fit(wanted: usize) -> usize {
    memory_left().map_or(wanted, |left| fit(left, wanted))
}

/// Files that this process may have open at a time.
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
