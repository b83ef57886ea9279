//! Memory that the threads of reads reuse.

use std::sync::Mutex;

use bedform_codec::Scratch;
use bedform_storage::ReadBlock;

/// Memory that one thread reuses from unit to unit.
#[derive(Default)]
pub(crate) struct ThreadBuffers {
    pub(crate) fetched: Vec<u8>,
    /// The aligned memory of reads past the page cache.
    pub(crate) block: ReadBlock,
    pub(crate) piece: Vec<u8>,
    pub(crate) elements: Vec<u8>,
    pub(crate) scratch: Scratch,
}

impl ThreadBuffers {
    fn bytes(&self) -> usize {
        self.fetched.capacity()
            + self.block.bytes()
            + self.piece.capacity()
            + self.elements.capacity()
            + self.scratch.bytes()
    }
}

/// Makes `buffer` at least `length` bytes long; its contents are lost when it grows. The system
/// hands out zeroed pages, so the new memory is not touched here.
pub(crate) fn grow(buffer: &mut Vec<u8>, length: usize) {
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
pub(crate) struct KeptBuffers(pub(super) ThreadBuffers);

impl KeptBuffers {
    pub(crate) fn take() -> Self {
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
