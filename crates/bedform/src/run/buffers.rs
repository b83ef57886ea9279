//! Memory that the threads of reads use again and again.

use std::sync::Mutex;

use bedform_codec::Scratch;
use bedform_storage::ReadBlock;

/// What one thread uses again from unit to unit.
#[derive(Default)]
pub(crate) struct Buffers {
    pub(crate) fetched: Vec<u8>,
    /// What storage uses to read.
    pub(crate) block: ReadBlock,
    pub(crate) piece: Vec<u8>,
    pub(crate) elements: Vec<u8>,
    pub(crate) scratch: Scratch,
}

impl Buffers {
    fn bytes(&self) -> usize {
        self.fetched.capacity()
            + self.block.bytes()
            + self.piece.capacity()
            + self.elements.capacity()
            + self.scratch.bytes()
    }
}

/// Makes a buffer at least so long; what it held is lost then. Memory of the system that is zero already is not
/// touched before something is put there.
pub(crate) fn grow(buffer: &mut Vec<u8>, length: usize) {
    if buffer.len() < length {
        // The old one first: both together are not needed.
        *buffer = Vec::new();
        *buffer = vec![0; length];
    }
}

/// Buffers of earlier reads, a few: memory that is new costs a small read more than its bytes do.
static KEPT: Mutex<Vec<Buffers>> = Mutex::new(Vec::new());
const KEPT_MAX: usize = 16;
/// Bytes of those of one thread, and of all together.
const KEPT_BYTES_MAX: usize = 6 << 20;
const KEPT_TOGETHER_MAX: usize = 24 << 20;

/// Buffers that go back to the kept ones when they are no longer used.
pub(crate) struct Kept(pub(super) Buffers);

impl Kept {
    pub(crate) fn take() -> Self {
        // Never waits: a fork may have copied the lock as held by a thread that is not there.
        Self(KEPT.try_lock().ok().and_then(|mut kept| kept.pop()).unwrap_or_default())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let bytes = self.0.bytes();
        if bytes <= KEPT_BYTES_MAX
            && let Ok(mut kept) = KEPT.try_lock()
            && kept.len() < KEPT_MAX
            && kept.iter().map(Buffers::bytes).sum::<usize>() + bytes <= KEPT_TOGETHER_MAX
        {
            kept.push(std::mem::take(&mut self.0));
        }
    }
}
