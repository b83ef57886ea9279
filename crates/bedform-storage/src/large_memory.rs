//! Memory that a device can fill, or read, in few, long pieces.
//!
//! Pages of 4 KiB are scattered in memory. Filling 512 of them takes some devices twice as long as
//! filling one large page of 2 MiB.

use std::io;
use std::ops::{Deref, DerefMut};

use memmap2::{Advice, MmapMut};

/// Size in bytes of a large page, on machines that have them.
const LARGE_PAGE_BYTES: usize = 2 << 20;

/// Zeroed memory in large pages, as far as whole ones fit, at an address that suits direct reads
/// and writes.
#[derive(Debug)]
pub struct LargeMemory {
    map: MmapMut,
    start: usize,
    bytes: usize,
}

impl LargeMemory {
    /// Allocates `bytes` bytes.
    ///
    /// # Errors
    /// Of the system, if it has no more memory.
    pub fn new(bytes: usize) -> io::Result<Self> {
        // Untouched pages take no memory.
        let map = MmapMut::map_anon(bytes.saturating_add(LARGE_PAGE_BYTES))?;
        let start = map.as_ptr().align_offset(LARGE_PAGE_BYTES).min(LARGE_PAGE_BYTES);
        let large = bytes / LARGE_PAGE_BYTES * LARGE_PAGE_BYTES;
        if large > 0 {
            // A machine without large pages gives small ones.
            let _ = map.advise_range(Advice::HugePage, start, large);
        }
        Ok(Self { map, start, bytes })
    }
}

impl Deref for LargeMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map[self.start..self.start + self.bytes]
    }
}

impl DerefMut for LargeMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.map[self.start..self.start + self.bytes]
    }
}

/// A lazily allocated buffer for reads past the page cache: one large page and 64 KiB more. The
/// extra bytes hold the checksum of a chunk that fills the page, and the alignment of a request.
#[derive(Debug, Default)]
pub struct ReadBlock {
    memory: Option<LargeMemory>,
    start: usize,
    is_for_scattered: bool,
}

impl ReadBlock {
    /// Size of a block in bytes.
    pub const BYTES: usize = LARGE_PAGE_BYTES + (64 << 10);

    /// Returns the memory after the start; `None` if the system has no more.
    pub fn memory(&mut self) -> Option<&mut [u8]> {
        if self.memory.is_none() {
            self.memory = LargeMemory::new(Self::BYTES).ok();
        }
        self.memory.as_deref_mut().and_then(|memory| memory.get_mut(self.start..))
    }

    /// Keeps the first `bytes` bytes, which hold earlier reads: later requests are read into the
    /// memory after them.
    pub fn set_start(&mut self, bytes: usize) {
        self.start = bytes;
    }

    /// Says whether the next requests are scattered and many at a time: each is small, their sum is
    /// large.
    pub fn set_scattered(&mut self, is_scattered: bool) {
        self.is_for_scattered = is_scattered;
    }

    /// True if the next requests are scattered.
    pub fn is_for_scattered(&self) -> bool {
        self.is_for_scattered
    }

    /// Returns the number of bytes that the block has allocated.
    pub fn bytes(&self) -> usize {
        if self.memory.is_some() { Self::BYTES } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_is_aligned_and_stays() {
        let mut block = ReadBlock::default();
        assert_eq!(block.bytes(), 0);
        let memory = block.memory().expect("memory");
        assert_eq!((memory.len(), memory.as_ptr().align_offset(4096)), (ReadBlock::BYTES, 0));
        memory[ReadBlock::BYTES - 1] = 7;
        assert_eq!(block.memory().expect("memory")[ReadBlock::BYTES - 1], 7);
        block.set_start(4096);
        assert_eq!(block.memory().expect("memory")[ReadBlock::BYTES - 4097], 7);
        assert_eq!(block.bytes(), ReadBlock::BYTES);
    }

    #[test]
    fn memory_may_be_of_any_size() {
        for bytes in [0, 1, 4096, LARGE_PAGE_BYTES, LARGE_PAGE_BYTES + 1] {
            let mut memory = LargeMemory::new(bytes).expect("memory");
            memory.fill(1);
            assert_eq!(memory.iter().map(|&byte| usize::from(byte)).sum::<usize>(), bytes);
        }
    }
}
