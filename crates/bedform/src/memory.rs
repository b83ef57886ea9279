//! A memory budget under a limit of address space (`RLIMIT_AS`, usual in batch jobs).
//!
//! Work ends with an error before the system refuses memory, because a refused allocation aborts
//! the process.

use bedform_storage::memory_left;

use crate::error::{Error, Result};

/// Bytes that writing takes apart from its data: threads, their share of the allocator, documents.
const BESIDE_BYTES: u64 = 32 << 20;

/// Bytes that reading takes apart from its data.
const READ_BYTES: u64 = 8 << 20;
/// The divisor of the remaining bytes: a quarter may be data. Allocators reserve 64 MiB of
/// addresses per thread, as long as addresses last, and fragmentation takes some.
const SHARE: u64 = 4;

/// Fails if the limit leaves less than writing takes apart from its data.
///
/// # Errors
/// `LimitExceeded`.
pub(crate) fn check() -> Result<()> {
    granted(0, 0).map(drop)
}

/// Fails if the limit leaves less than reading takes apart from its data. The caller has allocated
/// the buffers, and codecs report a lack of memory.
///
/// # Errors
/// `LimitExceeded`.
pub(crate) fn check_for_read() -> Result<()> {
    match memory_left() {
        Some(left) if left < READ_BYTES => Err(too_little(left, READ_BYTES)),
        _ => Ok(()),
    }
}

/// Returns the part of `bytes` that the limit allows; all of them without a limit.
///
/// # Errors
/// `LimitExceeded` if that is less than `least`.
pub(crate) fn granted(bytes: u64, least: u64) -> Result<u64> {
    memory_left().map_or(Ok(bytes), |left| granted_of(left, bytes, least))
}

fn granted_of(left: u64, bytes: u64, least: u64) -> Result<u64> {
    let least = least.min(bytes);
    match left.checked_sub(BESIDE_BYTES) {
        Some(free) if free / SHARE >= least => Ok(bytes.min(free / SHARE)),
        _ => Err(too_little(left, SHARE * least + BESIDE_BYTES)),
    }
}

fn too_little(left: u64, needed: u64) -> Error {
    let text = format!(
        "this process may take only {} MiB more memory, and this takes up to {}: take less elsewhere, or raise the \
         limit (RLIMIT_AS with ulimit -v)",
        left >> 20,
        needed >> 20,
    );
    Error::no_memory(text)
}

/// Tests of situations in which the system refuses memory.
#[cfg(test)]
pub(crate) mod shortage {
    use std::process::Command;

    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    /// Requests up to this size are granted: messages need some.
    const LEFT_BYTES: usize = 8 << 10;
    const CHILD: &str = "BEDFORM_TEST_OF_SHORTAGE";

    /// Runs `work` in a child process, as the test `name` of this crate. There no request for more
    /// than a few KiB is granted.
    pub(crate) fn of(name: &str, work: impl FnOnce()) {
        if std::env::var_os(CHILD).is_some() {
            let _taken = take_all();
            return work();
        }
        let mut test = Command::new(std::env::current_exe().unwrap());
        let test = test.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(CHILD, "1");
        let said = test.output().unwrap();
        let text = String::from_utf8_lossy(&said.stdout);
        let errors = String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success() && text.contains("1 passed"), "{text}{errors}");
    }

    fn take_all() -> Vec<Vec<u8>> {
        let mut taken = Vec::with_capacity(1 << 16);
        let limit = Rlimit { current: Some(0), maximum: getrlimit(Resource::As).maximum };
        setrlimit(Resource::As, limit).unwrap();
        let mut bytes = 1 << 20;
        while bytes >= LEFT_BYTES {
            let mut one = Vec::<u8>::new();
            match one.try_reserve_exact(bytes) {
                Ok(()) => taken.push(one),
                Err(_) => bytes /= 2,
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn work_is_granted_half_of_what_is_left_beside_what_it_takes_anyway_or_told_that_it_is_too_little()
     {
        let mib = |count: u64| count << 20;
        assert_eq!(granted_of(u64::MAX, mib(512), mib(8)).unwrap(), mib(512));
        assert_eq!(granted_of(mib(232), mib(512), mib(8)).unwrap(), mib(50));
        assert_eq!(granted_of(mib(64), mib(512), mib(8)).unwrap(), mib(8));
        assert_eq!(granted_of(mib(34), 100, mib(8)).unwrap(), 100);
        assert_eq!(granted_of(mib(32), 0, 0).unwrap(), 0);
        for (left, bytes) in [(mib(63), mib(512)), (mib(31), 0), (0, 0)] {
            let error = granted_of(left, bytes, mib(8)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::LimitExceeded);
            assert!(error.to_string().contains("RLIMIT_AS"), "{error}");
        }
    }
}
