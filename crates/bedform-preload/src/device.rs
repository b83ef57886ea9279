//! The number of bytes that the kernel reads for one hint.
//!
//! For one `posix_fadvise` the kernel reads at most the readahead of the device (128 KiB by
//! default), and drops the rest. Requests of that size are the fastest, so the library reads the
//! size from `/sys`, once per device. The thread that looks up a file does this, never the helper:
//! the helper might get a descriptor number that the program expects.

use std::ffi::CStr;
use std::io::Write;

/// The bytes that the kernel reads for one hint on any device.
const BYTES_MIN: u32 = 128 << 10;
/// The most bytes of one request of the kernel.
const BYTES_MAX: u32 = 2 << 20;
const DEVICES: usize = 8;

/// The devices that were looked up last.
pub(crate) struct Devices {
    known: [(u64, u32); DEVICES],
    next: usize,
}

impl Devices {
    pub(crate) const fn new() -> Self {
        Self { known: [(0, 0); DEVICES], next: 0 }
    }

    /// Returns the bytes of one hint for a file on the device.
    pub(crate) fn hint_bytes(&mut self, device: u64) -> u32 {
        if let Some((_, bytes)) =
            self.known.iter().find(|known| **known != (0, 0) && known.0 == device)
        {
            return *bytes;
        }
        let bytes = ask(device).clamp(BYTES_MIN, BYTES_MAX);
        self.known[self.next % DEVICES] = (device, bytes);
        self.next = (self.next + 1) % DEVICES;
        bytes
    }
}

/// Returns the readahead of a device in bytes, for a disk, a partition, or a file system without a
/// disk. Zero if it is unknown.
fn ask(device: u64) -> u32 {
    let [major, minor] = [libc::major(device), libc::minor(device)];
    let mut name = [0_u8; 80];
    let places = [("dev/block", "/queue"), ("dev/block", "/../queue"), ("class/bdi", "")];
    let found = places.into_iter().find_map(|(before, behind)| {
        name.fill(0);
        let length = name.len() - 1;
        write!(&mut name[..length], "/sys/{before}/{major}:{minor}{behind}/read_ahead_kb").ok()?;
        number_in(CStr::from_bytes_until_nul(&name).ok()?)
    });
    found.unwrap_or(0).saturating_mul(1024)
}

/// Returns the number in a small file. Uses system calls, which are no cancellation points and not
/// interposed.
fn number_in(path: &CStr) -> Option<u32> {
    let mut text = [0_u8; 16];
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: the path ends with a zero, the buffer has the given length, and the descriptor is
    // ours.
    let count = unsafe {
        let descriptor = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags);
        if descriptor < 0 {
            return None;
        }
        let count = libc::syscall(libc::SYS_read, descriptor, text.as_mut_ptr(), text.len());
        libc::syscall(libc::SYS_close, descriptor);
        count
    };
    let text = text.get(..usize::try_from(count).ok()?)?;
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn any_device_has_a_size_that_the_kernel_reads() {
        let mut devices = Devices::new();
        let disk = std::fs::metadata(env!("CARGO_MANIFEST_DIR")).unwrap().dev();
        for device in (0..20).chain([disk, u64::MAX]) {
            let bytes = devices.hint_bytes(device);
            assert!((BYTES_MIN..=BYTES_MAX).contains(&bytes));
            assert_eq!(devices.hint_bytes(device), bytes);
        }
        let bytes = devices.hint_bytes(disk);
        assert!(devices.known.contains(&(disk, bytes)));
    }

    #[test]
    fn only_a_number_is_one() {
        assert_eq!(number_in(c"/nothing/there"), None);
        assert_eq!(number_in(c"/proc/self/comm"), None);
        assert_eq!(number_in(c"/"), None);
    }
}
