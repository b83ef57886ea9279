//! Unpredictable bytes and orders, the same in each run.

/// A small generator of incompressible bytes (SplitMix64): fixed seed, fixed sequence.
#[derive(Debug, Clone)]
pub struct SampleRandom(pub u64);

impl SampleRandom {
    /// Returns the next number.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Fills `block`, whose length is a multiple of 8 bytes.
    pub fn fill(&mut self, block: &mut [u8]) {
        for word in block.chunks_exact_mut(8) {
            word.copy_from_slice(&self.next().to_le_bytes());
        }
    }

    /// Puts `items` into an unpredictable order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.next() % (last as u64 + 1);
            items.swap(last, usize::try_from(other).unwrap_or(last));
        }
    }
}
