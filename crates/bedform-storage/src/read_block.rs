//! Memory that a device can fill in few, long pieces.

use memmap2::{Advice, MmapMut};

/// A large page where the machine has them.
const LARGE_PAGE_BYTES: usize = 2 << 20;

/// Memory for reads past the page cache, made when it is first used: one large page, and as much
/// behind it as the checksum of a chunk that fills the page and the alignment of a request need.
///
/// Pages of 4 KiB come from anywhere in memory, and to fill 512 of them takes some devices twice as
/// long as to fill one large page.
#[derive(Debug, Default)]
pub struct ReadBlock {
    map: Option<MmapMut>,
}

impl ReadBlock {
    /// What a block holds.
    pub const BYTES: usize = LARGE_PAGE_BYTES + (64 << 10);

    /// The memory, whose address is a multiple of 4,096. Nothing if the system has no more.
    pub fn memory(&mut self) -> Option<&mut [u8]> {
        if self.map.is_none() {
            // What is never touched of it takes no memory.
            let map = MmapMut::map_anon(LARGE_PAGE_BYTES + Self::BYTES).ok()?;
            let start = Self::start(&map);
            // A machine without large pages takes small ones.
            let _ = map.advise_range(Advice::HugePage, start, LARGE_PAGE_BYTES);
            self.map = Some(map);
        }
        let map = self.map.as_mut()?;
        let start = Self::start(map);
        map.get_mut(start..start + Self::BYTES)
    }

    /// Bytes that the block takes.
    pub fn bytes(&self) -> usize {
        if self.map.is_some() { Self::BYTES } else { 0 }
    }

    fn start(map: &MmapMut) -> usize {
        map.as_ptr().align_offset(LARGE_PAGE_BYTES).min(LARGE_PAGE_BYTES)
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
        assert_eq!(block.bytes(), ReadBlock::BYTES);
    }
}
