//! Memory in which a writer's elements wait until they are appended.
//!
//! What is little goes to memory that a program's allocator gives page by page, as it is filled. Who
//! writes much gets large pages: to be given 512 small ones takes as long as to copy what they hold.

use bedform_storage::LargeMemory;

use crate::error::Result;
use crate::memory;

/// Bytes of a buffer of little, large enough for the device.
const FEW_BYTES: usize = 1 << 20;
/// Bytes of a buffer of much: a large page.
const MANY_BYTES: usize = 2 << 20;
/// Who may keep less than this waiting has buffers of little only.
const LARGE_FROM_BYTES: usize = 16 << 20;

/// A buffer.
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
    /// A buffer for little.
    pub(super) fn few() -> Self {
        Self { memory: Memory::Few(Vec::with_capacity(FEW_BYTES)), length: 0 }
    }

    /// A buffer for much; for little where the system has no such memory.
    fn many() -> Self {
        match LargeMemory::new(MANY_BYTES) {
            Ok(memory) => Self { memory: Memory::Many(memory), length: 0 },
            Err(_) => Self::few(),
        }
    }

    /// What was added.
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

    /// Takes what fits of `bytes`, and says how much.
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

/// Makes the buffers of a writer.
#[derive(Debug)]
pub(super) struct Buffers {
    has_large: bool,
    /// How many were made: what the first one held was not little if there is another.
    made: usize,
}

impl Buffers {
    /// What a writer cannot do without.
    pub(super) const LEAST_BYTES: u64 = 2 * FEW_BYTES as u64;

    /// For a writer that may keep `bytes` waiting.
    pub(super) fn new(bytes: usize) -> Self {
        Self { has_large: bytes >= LARGE_FROM_BYTES, made: 0 }
    }

    /// A buffer.
    ///
    /// # Errors
    /// `LimitExceeded` if the process may take no more memory.
    pub(super) fn make(&mut self) -> Result<Buffer> {
        memory::check()?;
        self.made += 1;
        Ok(if self.made == 1 || !self.has_large { Buffer::few() } else { Buffer::many() })
    }

    /// True if there is one that can be waited for while another is filled.
    pub(super) fn are_many(&self) -> bool {
        self.made >= 2
    }

    /// How many buffers `bytes` bytes are; two at least, so that one is filled while one is written.
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
        let mut buffers = Buffers::new(64 << 20);
        assert!(!is_large(&buffers.make().unwrap()) && is_large(&buffers.make().unwrap()));
        assert_eq!(buffers.count(64 << 20), 32);
        let mut buffers = Buffers::new(1 << 20);
        assert!(!is_large(&buffers.make().unwrap()) && !is_large(&buffers.make().unwrap()));
        assert_eq!(buffers.count(1 << 20), 2);
    }
}
