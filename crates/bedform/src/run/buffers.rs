//! Memory that the threads of reads reuse.

use std::sync::{Mutex, PoisonError};

use bedform_codec::Scratch;
use bedform_storage::ReadBlock;

use crate::threads::permits::CpuPermits;

/// Memory that one thread reuses from unit to unit.
#[derive(Default)]
pub(super) struct ThreadBuffers {
    pub(super) fetched: Vec<u8>,
    /// The aligned memory of reads past the page cache.
    pub(super) block: ReadBlock,
    pub(super) piece: Vec<u8>,
    pub(super) decoding: DecodingBuffers,
}

/// Memory to decode a chunk and to lay a cover over its elements.
#[derive(Default)]
pub(super) struct DecodingBuffers {
    pub(super) scratch: Scratch,
    pub(super) laid: Vec<u8>,
}

impl ThreadBuffers {
    fn bytes(&self) -> usize {
        self.fetched.capacity()
            + self.block.bytes()
            + self.piece.capacity()
            + self.decoding.laid.capacity()
            + self.decoding.scratch.bytes()
    }
}

/// Makes `buffer` at least `length` bytes long; its contents are lost when it grows. The system
/// hands out zeroed pages, so the new memory is not touched here.
pub(super) fn resize_discarding(buffer: &mut Vec<u8>, length: usize) {
    if buffer.len() < length {
        // Frees the old memory first, so that both are never held together.
        *buffer = Vec::new();
        *buffer = vec![0; length];
    }
}

/// Buffers of earlier reads: fresh memory costs a small read more than the bytes that it fetches.
static KEPT: Mutex<Vec<ThreadBuffers>> = Mutex::new(Vec::new());
const KEPT_MAX: usize = 16;
/// The most bytes to keep from one thread, and from all threads together.
const KEPT_BYTES_MAX: usize = 6 << 20;
const KEPT_TOGETHER_MAX: usize = 24 << 20;

/// Buffers that return to the list of kept buffers when they are dropped.
pub(super) struct KeptBuffers(pub(super) ThreadBuffers);

impl KeptBuffers {
    pub(super) fn take() -> Self {
        // Never blocks: a forked child may inherit the lock as held by a thread that it lacks.
        Self(KEPT.try_lock().ok().and_then(|mut kept| kept.pop()).unwrap_or_default())
    }
}

impl Drop for KeptBuffers {
    fn drop(&mut self) {
        let bytes = self.0.bytes();
        if bytes <= KEPT_BYTES_MAX
            && let Ok(mut kept) = KEPT.try_lock()
            && kept.len() < KEPT_MAX
            && kept.iter().map(ThreadBuffers::bytes).sum::<usize>() + bytes <= KEPT_TOGETHER_MAX
        {
            kept.push(std::mem::take(&mut self.0));
        }
    }
}

/// Buffers to decode with, one set for each permit, in a read of many threads that mostly wait for a
/// server.
pub(super) struct PermittedBuffers {
    permits: CpuPermits,
    spare: Mutex<Vec<KeptBuffers>>,
}

impl PermittedBuffers {
    /// Makes the buffers for `at_once` threads that decode at a time.
    pub(super) fn new(at_once: usize) -> Self {
        Self { permits: CpuPermits::new(at_once), spare: Mutex::default() }
    }

    /// Waits for a permit and decodes with its buffers.
    pub(super) fn with<T>(&self, decode: impl FnOnce(&mut DecodingBuffers) -> T) -> T {
        let _permit = self.permits.take();
        let spare = || self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let known = spare().pop();
        let mut kept = known.unwrap_or_else(KeptBuffers::take);
        let outcome = decode(&mut kept.0.decoding);
        spare().push(kept);
        outcome
    }
}
