//! Buffers in which a writer's elements wait until they are appended.
//!
//! The first buffer comes from the allocator, whose memory gets its pages one by one as it is
//! filled. A writer that needs more, and may keep 16 MiB waiting, gets large pages of 2 MiB. To get
//! 512 small pages takes as long as to copy their content.

use bedform_storage::LargeMemory;

use crate::error::Result;
use crate::memory;

/// Bytes of a small buffer, large enough for the device.
const FEW_BYTES: usize = 1 << 20;
/// Bytes of a large buffer: one large page.
const MANY_BYTES: usize = 2 << 20;
/// A writer that may keep fewer bytes than this waiting has small buffers only.
const LARGE_FROM_BYTES: usize = 16 << 20;

/// A buffer of a writer, in small pages or in one large page.
#[derive(Debug)]
pub(super) struct Buffer {
    memory: Memory,
    length: usize,
}

#[derive(Debug)]
enum Memory {
    Few(Vec<u8>),
    Many(LargeMemory),
}

impl Buffer {
    /// Makes a small buffer.
    pub(super) fn few() -> Self {
        Self { memory: Memory::Few(Vec::with_capacity(FEW_BYTES)), length: 0 }
    }

    /// Makes a large buffer; a small one if the system has no such memory.
    fn many() -> Self {
        match LargeMemory::new(MANY_BYTES) {
            Ok(memory) => Self { memory: Memory::Many(memory), length: 0 },
            Err(_) => Self::few(),
        }
    }

    /// Returns the bytes that were added.
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Few(bytes) => bytes,
            Memory::Many(memory) => &memory[..self.length],
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.room() == 0
    }

    fn room(&self) -> usize {
        let capacity = match &self.memory {
            Memory::Few(_) => FEW_BYTES,
            Memory::Many(memory) => memory.len(),
        };
        capacity - self.length
    }

    /// Copies as many of `bytes` as fit, and returns their number.
    pub(super) fn add(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.room());
        let end = self.length + count;
        match &mut self.memory {
            Memory::Few(memory) => memory.extend_from_slice(&bytes[..count]),
            Memory::Many(memory) => memory[self.length..end].copy_from_slice(&bytes[..count]),
        }
        self.length = end;
        count
    }

    pub(super) fn clear(&mut self) {
        if let Memory::Few(bytes) = &mut self.memory {
            bytes.clear();
        }
        self.length = 0;
    }
}

/// The maker of a writer's buffers.
#[derive(Debug)]
pub(super) struct BufferFactory {
    has_large: bool,
    /// Buffers made so far: a writer that needs a second one writes more than a little.
    made: usize,
}

impl BufferFactory {
    /// Least memory of a writer, in bytes: two small buffers.
    pub(super) const LEAST_BYTES: u64 = 2 * FEW_BYTES as u64;

    /// Makes the buffers of a writer that may keep `bytes` bytes waiting.
    pub(super) fn new(bytes: usize) -> Self {
        Self { has_large: bytes >= LARGE_FROM_BYTES, made: 0 }
    }

    /// Makes a buffer: a small one first, then large ones if the writer may have them.
    ///
    /// # Errors
    /// `LimitExceeded` if the process may take no more memory.
    pub(super) fn make(&mut self) -> Result<Buffer> {
        memory::check()?;
        self.made += 1;
        Ok(if self.made == 1 || !self.has_large { Buffer::few() } else { Buffer::many() })
    }

    /// True if the writer can fill one buffer while it waits for another.
    pub(super) fn are_many(&self) -> bool {
        self.made >= 2
    }

    /// Returns the number of buffers for `bytes` bytes; at least two, so that one is filled while
    /// the other is written.
    pub(super) fn count(&self, bytes: usize) -> usize {
        (bytes / if self.has_large { MANY_BYTES } else { FEW_BYTES }).max(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_holds_what_was_added_until_it_is_cleared() {
        for mut buffer in [Buffer::few(), Buffer::many()] {
            for round in 0..2 {
                assert!(buffer.bytes().is_empty());
                assert_eq!(buffer.add(&[7, round]), 2);
                assert_eq!(buffer.bytes(), [7, round]);
                let room = buffer.room();
                assert_eq!(buffer.add(&vec![9; room + 1]), room, "only what fits");
                assert!(buffer.is_full() && buffer.bytes()[2..].iter().all(|byte| *byte == 9));
                assert_eq!(buffer.add(&[1]), 0);
                buffer.clear();
            }
        }
    }

    #[test]
    fn who_writes_little_or_may_keep_little_has_no_large_pages() {
        let is_large = |buffer: &Buffer| matches!(buffer.memory, Memory::Many(_));
        let mut buffers = BufferFactory::new(64 << 20);
        assert!(!is_large(&buffers.make().unwrap()) && is_large(&buffers.make().unwrap()));
        assert_eq!(buffers.count(64 << 20), 32);
        let mut buffers = BufferFactory::new(1 << 20);
        assert!(!is_large(&buffers.make().unwrap()) && !is_large(&buffers.make().unwrap()));
        assert_eq!(buffers.count(1 << 20), 2);
    }
}
