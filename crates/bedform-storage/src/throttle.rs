//! A file system with a given bandwidth and latency, for experiments: it simulates a distant tier.
//!
//! [`Throttled`] delays the calls of another [`FileSystem`]. It wraps calls, not objects, so that
//! it counts the requests that leave the process, after all merging and splitting in the layers
//! above.
//!
//! - A request is a call that a client of a distant server must send. These are: open a file, read,
//!   write, sync, create, rename, link, remove, list. Cached state of a client (open directories,
//!   attributes, resident pages) and locks cost nothing.
//! - Bytes of all requests share one bandwidth; each request waits for its own latency. A request
//!   of `n` bytes takes `latency + n / bandwidth`, and two in flight take less than twice that.
//! - An idle time gives no credit: afterwards it is no faster than before.
//! - Space is not reserved ahead of writes, which most distant places cannot do.
//! - The time of the wrapped call counts towards the delay. Waiting is sleep.
//!
//! The limit applies to one process. A program that starts several processes gives each a share of
//! the bandwidth. The processes then need no common memory, file or clock, and one that ends early
//! keeps no other waiting.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bedform_format::size;

use crate::file_system::{FileStatus, FileSystem, LinkPolicy};
use crate::forward;

const NANOSECONDS: u128 = 1_000_000_000;

/// A bandwidth and a latency.
///
/// ```
/// use bedform_storage::Throttle;
/// use std::time::Duration;
///
/// let throttle = Throttle::parse("512 MB/s, 5 ms")?;
/// assert_eq!(throttle.bytes_per_second(), 512_000_000);
/// assert_eq!(throttle.latency(), Duration::from_millis(5));
/// # Ok::<(), bedform_storage::ThrottleError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Throttle {
    bytes_per_second: u64,
    latency: Duration,
}

/// A text that is not a throttle.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no bandwidth and time a request; expected such as \"512 MB/s, 5 ms\"")]
pub struct ThrottleError {
    text: String,
}

impl Throttle {
    /// Returns a throttle of at least 1 byte per second, with a latency for each request.
    pub fn new(bytes_per_second: u64, latency: Duration) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1), latency }
    }

    /// Parses a throttle: a [size] per second, such as `512 MB/s`, a comma, and a whole number of
    /// s, ms or us.
    ///
    /// # Errors
    /// The text and the expected form.
    pub fn parse(text: &str) -> Result<Self, ThrottleError> {
        let parts = text.split_once(',').and_then(|(rate, time)| {
            Some((bandwidth(rate).filter(|rate| *rate > 0)?, duration_nanoseconds(time)?))
        });
        let (rate, time) = parts.ok_or_else(|| ThrottleError { text: text.to_owned() })?;
        Ok(Self::new(rate, Duration::from_nanos(time)))
    }

    /// Returns the bandwidth in bytes per second.
    pub fn bytes_per_second(self) -> u64 {
        self.bytes_per_second
    }

    /// Returns the latency of a request.
    pub fn latency(self) -> Duration {
        self.latency
    }

    fn transfer_nanoseconds(self, bytes: usize) -> u64 {
        let nanoseconds = bytes as u128 * NANOSECONDS / u128::from(self.bytes_per_second);
        u64::try_from(nanoseconds).unwrap_or(u64::MAX)
    }
}

/// Parses a size followed by `/s`, in bytes per second.
fn bandwidth(text: &str) -> Option<u64> {
    let (size, unit) = text.split_once('/')?;
    unit.trim().eq_ignore_ascii_case("s").then(|| size::parse(size).ok())?
}

/// Parses a whole number of s, ms or us, in nanoseconds.
fn duration_nanoseconds(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 3] = [("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let (_, times) = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()))?;
    number.parse::<u64>().ok()?.checked_mul(*times)
}

/// A clock that tells the time and sleeps.
pub trait Clock: Send + Sync + Debug {
    /// Returns the time since a fixed moment.
    fn now(&self) -> Duration;

    /// Returns at `time` or later.
    fn sleep_until(&self, time: Duration);
}

#[derive(Debug)]
struct SystemClock {
    start: Instant,
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn sleep_until(&self, time: Duration) {
        if let Some(left) = time.checked_sub(self.now()).filter(|left| !left.is_zero()) {
            std::thread::sleep(left);
        }
    }
}

/// The schedule of all requests that share a throttle.
#[derive(Debug)]
pub struct ThrottleSchedule {
    throttle: Throttle,
    clock: Arc<dyn Clock>,
    /// The time at which the bytes of all requests so far are transferred, in nanoseconds of the
    /// clock. Not behind a lock: a fork may copy it at any moment.
    free: AtomicU64,
}

impl ThrottleSchedule {
    /// Returns a new schedule by the system's clock.
    pub fn new(throttle: Throttle) -> Arc<Self> {
        Self::by_clock(throttle, Arc::new(SystemClock { start: Instant::now() }))
    }

    /// As [`ThrottleSchedule::new`], by another clock.
    pub fn by_clock(throttle: Throttle, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { throttle, clock, free: AtomicU64::new(0) })
    }

    /// Returns the bandwidth and latency.
    pub fn throttle(&self) -> Throttle {
        self.throttle
    }

    /// Runs `work`, a request of `bytes` bytes, and returns after its delay.
    fn request<T>(&self, bytes: usize, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let now = nanoseconds(self.clock.now());
        let transfer = self.throttle.transfer_nanoseconds(bytes);
        let through = |free: u64| free.max(now).saturating_add(transfer);
        let before =
            self.free.fetch_update(Ordering::AcqRel, Ordering::Acquire, |free| Some(through(free)));
        let (Ok(free) | Err(free)) = before;
        let outcome = work();
        let end = Duration::from_nanos(through(free)).saturating_add(self.throttle.latency);
        self.clock.sleep_until(end);
        outcome
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A file system that is throttled by a [`ThrottleSchedule`].
///
/// ```
/// use bedform_format::ObjectPath;
/// use bedform_storage::{
///     Condition, Durability, LocalStorage, Mode, SimulatedFileSystem, Staging, Storage,
///     Throttle, ThrottleSchedule, Throttled, WriteHint,
/// };
///
/// let pace = ThrottleSchedule::new(Throttle::parse("1 GB/s, 10 us")?);
/// let system = Throttled::new(SimulatedFileSystem::new(), pace);
/// let storage = LocalStorage::over(system, Mode::ReadWrite, Staging::default());
/// let path = ObjectPath::parse("a").unwrap();
/// storage.create(&path, Durability::Disk, WriteHint::default())?.publish(Condition::Absent)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Throttled<F> {
    inner: F,
    pace: Arc<ThrottleSchedule>,
}

impl<F> Throttled<F> {
    /// Returns the calls of `inner`, delayed by a schedule that other file systems may share.
    pub fn new(inner: F, pace: Arc<ThrottleSchedule>) -> Self {
        Self { inner, pace }
    }

    fn request<T>(&self, bytes: usize, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.pace.request(bytes, work)
    }
}

impl<F: FileSystem> FileSystem for Throttled<F> {
    type Handle = F::Handle;

    fn sibling(&self, suffix: &str) -> io::Result<Self> {
        Ok(Self { inner: self.inner.sibling(suffix)?, pace: Arc::clone(&self.pace) })
    }

    fn within(&self, path: &str, links: LinkPolicy) -> io::Result<Self> {
        Ok(Self { inner: self.inner.within(path, links)?, pace: Arc::clone(&self.pace) })
    }

    fn open_file(&self, path: &str) -> io::Result<(F::Handle, FileStatus)> {
        let opened = self.request(0, || self.inner.open_file(path))?;
        // Bytes read ahead would be resident without a delay.
        self.inner.refuse_read_ahead(&opened.0);
        Ok(opened)
    }

    // No readahead hints: their bytes would be resident without a delay.
    fn read_ahead(&self, _: &F::Handle, _: u64, _: u64) -> bool {
        false
    }

    // Most distant places cannot reserve space, and the time that it takes here would not be part
    // of a request.
    fn reserve(&self, _: &F::Handle, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    // Nothing is reserved, so there is nothing to free.
    fn release(&self, _: &F::Handle, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    forward!(self.inner as FileSystem: name, identity, above, now, token, is_overlapped);
    forward!(self.inner as FileSystem: stat, peek, status, stat_child, read_resident, residency);
    forward!(self.inner as FileSystem: open_directory, open_child, open_lock_file, lock, close);
    forward!(self.inner as FileSystem: refuse_read_ahead, set_size, set_direct, can_sync_whole);
    forward!(self.inner as FileSystem through request: open_direct, read_at, write_at, list);
    forward!(self.inner as FileSystem through request: create_file, create_file_on, open_to_write);
    forward!(self.inner as FileSystem through request: sync_file, sync_directory, sync_whole);
    forward!(self.inner as FileSystem through request: rename, rename_directory, exchange, link);
    forward!(self.inner as FileSystem through request: unlink, make_directory, remove_directory);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Durability, LocalStorage, Mode, SimulatedFileSystem, Staging, Storage};
    use bedform_format::ObjectPath;

    /// A clock that advances only by sleeping.
    #[derive(Debug, Default)]
    struct Still(AtomicU64);

    impl Clock for Still {
        fn now(&self) -> Duration {
            Duration::from_nanos(self.0.load(Ordering::SeqCst))
        }

        fn sleep_until(&self, time: Duration) {
            self.0.fetch_max(nanoseconds(time), Ordering::SeqCst);
        }
    }

    /// A clock that stands still: all requests start at once, and it records their ends.
    #[derive(Debug, Default)]
    struct Stopped(std::sync::Mutex<Vec<u128>>);

    impl Clock for Stopped {
        fn now(&self) -> Duration {
            Duration::ZERO
        }

        fn sleep_until(&self, time: Duration) {
            self.0.lock().unwrap().push(time.as_millis());
        }
    }

    fn throttle() -> Throttle {
        Throttle::parse("1000 B/s, 5 ms").unwrap()
    }

    #[test]
    fn a_request_takes_its_latency_and_the_time_of_its_bytes() {
        let clock = Arc::new(Still::default());
        let pace = ThrottleSchedule::by_clock(throttle(), clock.clone());
        for (bytes, end) in [(100, 105), (0, 110), (10, 125)] {
            pace.request(bytes, || Ok(())).unwrap();
            assert_eq!(clock.now(), Duration::from_millis(end));
        }
        // An idle time gives no credit.
        clock.sleep_until(Duration::from_secs(9));
        pace.request(100, || Ok(())).unwrap();
        assert_eq!(clock.now(), Duration::from_millis(9105));
    }

    #[test]
    fn requests_in_flight_share_the_bandwidth_and_not_the_latency() {
        let clock = Arc::new(Stopped::default());
        let pace = ThrottleSchedule::by_clock(throttle(), clock.clone());
        for _ in 0..3 {
            pace.request(100, || Ok(())).unwrap();
        }
        assert_eq!(*clock.0.lock().unwrap(), [105, 205, 305]);
    }

    #[test]
    fn what_a_call_takes_by_itself_counts_and_a_failure_is_waited_for() {
        let clock = Arc::new(Still::default());
        let pace = ThrottleSchedule::by_clock(throttle(), clock.clone());
        let slow = || {
            clock.sleep_until(Duration::from_millis(70));
            Err::<(), _>(io::ErrorKind::Other.into())
        };
        assert!(pace.request(80, slow).is_err());
        assert_eq!(clock.now(), Duration::from_millis(85));
    }

    #[test]
    fn the_store_and_what_lies_beside_it_wait_for_each_other() {
        let clock = Arc::new(Stopped::default());
        let pace = ThrottleSchedule::by_clock(throttle(), clock.clone());
        let system = Throttled::new(SimulatedFileSystem::new(), pace);
        let storage = LocalStorage::over(system, Mode::ReadWrite, Staging::default());
        let sibling = storage.sibling("-log").unwrap();
        let path = ObjectPath::parse("a").unwrap();
        for place in [&storage as &dyn Storage, &*sibling] {
            let mut growing = place.grow(&path, Durability::Process, None).unwrap();
            growing.append(&[1; 4096]).unwrap();
            growing.sync().unwrap();
        }
        let last = clock.0.lock().unwrap().iter().copied().max();
        assert_eq!(last, Some(2 * 4096 + 5));
    }

    #[test]
    fn nothing_is_set_aside_in_a_distant_place() {
        let pace = ThrottleSchedule::by_clock(throttle(), Arc::new(Stopped::default()));
        let system = Throttled::new(SimulatedFileSystem::new(), pace);
        let root = system.open_directory("", LinkPolicy::Refuse).unwrap();
        let file = system.create_file(&root, "a").unwrap();
        let error = system.reserve(&file, 0, 4096).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert_eq!(system.status(&file).unwrap().version.size, 0);
    }

    #[test]
    fn bandwidths_and_times_have_units() {
        for (text, rate, microseconds) in [
            ("512MB/s,5ms", 512_000_000, 5000),
            (" 3 gib/s , 10 us ", 3 << 30, 10),
            ("7B/s,1s", 7, 1_000_000),
            ("1KiB/s,0ms", 1024, 0),
            ("1.5GB/s,5ms", 1_500_000_000, 5000),
        ] {
            let throttle = Throttle::parse(text).unwrap();
            assert_eq!(throttle.bytes_per_second(), rate, "{text}");
            assert_eq!(throttle.latency(), Duration::from_micros(microseconds), "{text}");
        }
        for text in
            ["", "5ms", "512MB/s", "512,5", "0MB/s,5ms", "-1MB/s,5ms", "1MB/m,5ms", "1MB/s,5m"]
        {
            let error = Throttle::parse(text).unwrap_err().to_string();
            assert!(error.contains("512 MB/s, 5 ms") && !error.contains('\n'), "{error}");
        }
        assert!(Throttle::parse("99999999999999GB/s,5ms").is_err());
    }
}
