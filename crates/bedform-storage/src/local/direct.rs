//! Large reads past the page cache, on devices that deliver bytes faster than the page cache takes
//! them in.
//!
//! Copying bytes into the page cache costs a core about as much time as a fast device needs to
//! deliver them. A cold read through it therefore runs at half the device's bandwidth or less. So a
//! large request without a page in the page cache bypasses it. On a slower device that gains
//! nothing, and the next reader would miss the pages. The rate of these requests is measured, and
//! on a slow device, or one without direct reads, the page cache is used again.
//!
//! Only the first read of a range bypasses the page cache. It leaves a mark: one page from the
//! middle of the request, in the page cache. The next reader, in any process, finds the mark and
//! reads the range through the page cache, where all of it stays. Without a second reader the
//! kernel evicts the mark. That is the admission rule of the 2Q cache (Johnson and Shasha, VLDB
//! 1994), with the page cache as the queue of ranges that were read once. Of requests below 1 MiB
//! only some are marked, so that marks cost at most a fortieth of the time.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::ReadBlock;

/// The multiple of bytes for offsets, lengths and addresses of direct reads.
const ALIGNMENT: u64 = 4096;

/// Bytes of the smallest direct read: for smaller requests the device's latency counts, not the
/// page cache.
const BYTES_MIN: usize = 256 << 10;

/// As [`BYTES_MIN`], for requests of which many are in flight.
const SCATTERED_BYTES_MIN: usize = 16 << 10;

/// Bytes per second that the page cache takes in at best: on a slower device it costs nothing.
pub const PAGE_CACHE_BYTES_PER_SECOND: f64 = 1e9;

/// Requests after which the device is judged by the best rate: other requests may have waited for a
/// core.
const JUDGED_AFTER: u32 = 32;

/// Bytes read past the page cache for each mark.
const MARK_BYTES: u64 = 1 << 20;

/// Bytes read through the page cache, after the device was found slow, before the next trial.
const PAUSE_BYTES: u64 = 1 << 30;

/// The decision whether the large reads of one store bypass the page cache.
#[derive(Debug, Default)]
pub(super) struct DirectReads {
    in_flight: AtomicU32,
    /// The number of requests of this trial, and the best rate among them in bytes per second.
    trial: Mutex<(u32, f64)>,
    /// Bytes until the next trial; `u64::MAX` for never.
    pause: AtomicU64,
    /// Bytes read without a mark.
    unmarked: AtomicU64,
}

impl DirectReads {
    /// True if a read of `length` bytes that are not in the page cache should bypass it.
    pub(super) fn wants(&self, length: usize) -> bool {
        length >= BYTES_MIN && self.pause.load(Ordering::Relaxed) == 0
    }

    /// As [`DirectReads::wants`], for one of many requests in flight.
    pub(super) fn wants_scattered(&self, length: usize) -> bool {
        length >= SCATTERED_BYTES_MIN && self.pause.load(Ordering::Relaxed) == 0
    }

    /// Counts bytes that were read through the page cache.
    pub(super) fn passed(&self, length: usize) {
        let less = |left| match left {
            0 | u64::MAX => None,
            left => Some(u64::saturating_sub(left, length as u64)),
        };
        let _ = self.pause.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// True if a request of `length` bytes is to leave a mark.
    pub(super) fn marks(&self, length: usize) -> bool {
        let before = self.unmarked.fetch_add(length as u64, Ordering::Relaxed);
        let due = before + length as u64 >= MARK_BYTES;
        if due {
            self.unmarked.store(0, Ordering::Relaxed);
        }
        due
    }

    /// Turns direct reads off for good: the place has none.
    pub(super) fn give_up(&self) {
        self.pause.store(u64::MAX, Ordering::Relaxed);
    }

    /// Reads the bytes from `offset` on into `block`. `read` reads some bytes at an aligned offset
    /// into aligned memory. `None` if the block or the object is too short.
    pub(super) fn read<'b>(
        &self,
        offset: u64,
        length: usize,
        block: &'b mut ReadBlock,
        mut read: impl FnMut(u64, &mut [u8]) -> io::Result<usize>,
    ) -> io::Result<Option<&'b [u8]>> {
        let skip = index(offset % ALIGNMENT);
        let start = offset - skip as u64;
        let Some(memory) = block.memory() else { return Ok(None) };
        let whole = (skip + length).next_multiple_of(index(ALIGNMENT));
        let Some(part) = memory.get_mut(..whole) else { return Ok(None) };
        let mut filled = 0;
        while filled < skip + length {
            let started = self.start();
            let outcome = read(start + filled as u64, &mut part[filled..]);
            self.finish(started, *outcome.as_ref().unwrap_or(&0));
            let count = outcome?;
            filled += count;
            // The end of the object, or an unaligned stop from which no read can continue.
            let stops = count == 0 || !filled.is_multiple_of(index(ALIGNMENT));
            if filled < skip + length && stops {
                return Ok(None);
            }
        }
        Ok(Some(&part[skip..skip + length]))
    }

    fn start(&self) -> (u32, Instant) {
        (self.in_flight.fetch_add(1, Ordering::Relaxed) + 1, Instant::now())
    }

    fn finish(&self, (before, started): (u32, Instant), bytes: usize) {
        let after = self.in_flight.fetch_sub(1, Ordering::Relaxed);
        if bytes >= BYTES_MIN {
            // The requests in flight all the time have shared the device.
            let together = bytes as f64 * f64::from(before.min(after));
            self.judge(together / started.elapsed().as_secs_f64().max(1e-9));
        }
    }

    /// Notes the rate of a request in bytes per second, and judges the device after
    /// [`JUDGED_AFTER`] requests.
    fn judge(&self, rate: f64) {
        let mut trial = self.trial.lock().unwrap_or_else(PoisonError::into_inner);
        *trial = (trial.0 + 1, trial.1.max(rate));
        if trial.0 < JUDGED_AFTER {
            return;
        }
        let (_, best) = std::mem::take(&mut *trial);
        if best < PAGE_CACHE_BYTES_PER_SECOND {
            // A place without direct reads stays turned off.
            let order = Ordering::Relaxed;
            let _ = self.pause.compare_exchange(0, PAUSE_BYTES, order, order);
        }
    }
}

#[allow(clippy::cast_possible_truncation)]
fn index(small: u64) -> usize {
    // At most a few blocks, so it fits.
    small as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(length: usize) -> Vec<u8> {
        (0..251).cycle().take(length).collect()
    }

    /// Returns a file of `length` bytes, whose reads return at most `most` bytes.
    fn file(length: usize, most: usize) -> impl FnMut(u64, &mut [u8]) -> io::Result<usize> {
        let bytes = bytes(length);
        move |offset, part| {
            assert!(offset.is_multiple_of(ALIGNMENT) && part.as_ptr().align_offset(4096) == 0);
            assert!(part.len().is_multiple_of(4096));
            let start = index(offset).min(bytes.len());
            let count = part.len().min(most).min(bytes.len() - start);
            part[..count].copy_from_slice(&bytes[start..start + count]);
            Ok(count)
        }
    }

    #[test]
    fn the_bytes_are_those_that_were_asked_for_also_by_short_reads() {
        let reads = DirectReads::default();
        let mut block = ReadBlock::default();
        for (offset, length, most) in
            [(0, 4096, 1 << 20), (5, 300_000, 1 << 20), (4095, 2, 4096), (8191, 700_000, 8192)]
        {
            let found = reads.read(offset, length, &mut block, file(1 << 20, most)).unwrap();
            assert_eq!(found.unwrap(), &bytes(1 << 20)[index(offset)..index(offset) + length]);
        }
    }

    #[test]
    fn what_the_block_or_the_object_cannot_give_is_left_to_others() {
        let reads = DirectReads::default();
        let mut block = ReadBlock::default();
        let mut ask = |offset, length, most| {
            reads.read(offset, length, &mut block, file(1 << 20, most)).unwrap().is_some()
        };
        assert!(ask(0, 1 << 20, 1 << 20));
        assert!(!ask(1, 1 << 20, 1 << 20), "past the end");
        assert!(!ask(0, ReadBlock::BYTES + 1, 1 << 20), "too long");
        assert!(!ask(0, 9000, 1000), "stops in the middle of a page");
    }

    #[test]
    fn large_requests_are_marked_and_of_small_ones_some() {
        let reads = DirectReads::default();
        assert!((0..5).all(|_| reads.marks(1 << 20)));
        let marked: Vec<_> = (0..8).map(|_| reads.marks(256 << 10)).collect();
        assert_eq!(marked, [false, false, false, true, false, false, false, true]);
    }

    #[test]
    fn a_slow_device_is_read_through_the_page_cache_for_a_while() {
        let reads = DirectReads::default();
        assert!(reads.wants(BYTES_MIN) && !reads.wants(BYTES_MIN - 1));
        assert!(reads.wants_scattered(SCATTERED_BYTES_MIN));
        assert!(!reads.wants_scattered(SCATTERED_BYTES_MIN - 1));
        (1..JUDGED_AFTER).for_each(|_| reads.judge(0.2e9));
        assert!(reads.wants(BYTES_MIN), "too early to say");
        reads.judge(0.9e9);
        assert!(!reads.wants(BYTES_MIN));
        reads.passed(index(PAUSE_BYTES) - 1);
        assert!(!reads.wants(BYTES_MIN));
        reads.passed(1);
        assert!(reads.wants(BYTES_MIN), "tried again");
        (1..JUDGED_AFTER).for_each(|_| reads.judge(0.2e9));
        reads.judge(2e9);
        assert!(reads.wants(BYTES_MIN), "one fast request shows what the device can do");
        reads.give_up();
        reads.passed(usize::MAX);
        assert!(!reads.wants(BYTES_MIN), "never again");
    }
}
