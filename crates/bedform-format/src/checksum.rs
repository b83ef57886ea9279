//! CRC-32C (Castagnoli), the checksum of every chunk, index, stamp and record that Bedform writes;
//! seals of documents; and non-cryptographic fingerprints of names and states.

use std::ops::Range;

/// The CRC-32C of `bytes`.
///
/// ```
/// assert_eq!(bedform_format::checksum::crc32c(b"123456789"), 0xe306_9283);
/// ```
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// An incremental CRC-32C, for data that are checked while they are in the CPU cache.
#[derive(Debug)]
pub struct Crc32c(crc_fast::Digest);

impl Crc32c {
    /// Starts a checksum of no bytes.
    pub fn new() -> Self {
        Self(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi))
    }

    /// Adds `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the checksum of all bytes added so far.
    pub fn finish(&self) -> u32 {
        // The digest type is 64 bits wide for every algorithm; CRC-32C fills the low half.
        #[allow(clippy::cast_possible_truncation)]
        let value = self.0.finalize() as u32;
        value
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

/// Placeholder for a seal. A seal is the length of a text in ten decimal digits and its CRC-32C in
/// eight hexadecimal ones. The checksum is computed with zeros in place of its digits.
pub const UNSEALED: &str = "0000000000:00000000";
const SEALED_LENGTH: Range<usize> = 0..10;
/// Position of the checksum in a seal.
pub const SEALED_CHECKSUM: Range<usize> = 11..19;

/// Replaces the [`UNSEALED`] placeholder at offset `at` by the seal of `bytes`.
pub fn set_seal(bytes: &mut [u8], at: usize) {
    let length = format!("{:010}", bytes.len());
    bytes[at..][SEALED_LENGTH].copy_from_slice(length.as_bytes());
    let checksum = format!("{:08x}", crc32c(bytes));
    bytes[at..][SEALED_CHECKSUM].copy_from_slice(checksum.as_bytes());
}

/// Returns the CRC-32C of sealed `bytes`, counting the digits at `checksum` as zeros.
pub fn crc32c_of_sealed(bytes: &[u8], checksum: Range<usize>) -> u32 {
    let mut sum = Crc32c::new();
    sum.update(&bytes[..checksum.start]);
    sum.update(&vec![b'0'; checksum.len()]);
    sum.update(&bytes[checksum.end..]);
    sum.finish()
}

/// An incremental CRC-64/NVME, as fast as memory. It tells apart lists of numbers, where collisions
/// gain an attacker nothing.
///
/// ```
/// use bedform_format::checksum::Crc64;
/// let mut sum = Crc64::new();
/// sum.update(b"123456789");
/// assert_eq!(sum.finish(), 0xae8b_1486_0a79_9888);
/// ```
#[derive(Debug)]
pub struct Crc64(crc_fast::Digest);

impl Crc64 {
    /// Starts a checksum of no bytes.
    pub fn new() -> Self {
        Self(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme))
    }

    /// Adds `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Adds numbers, each as eight little-endian bytes.
    pub fn update_numbers(&mut self, numbers: &[u64]) {
        // The buffer fits the L1 cache; on a little-endian machine the loop is a plain copy.
        let mut bytes = [0; 4096];
        for numbers in numbers.chunks(bytes.len() / 8) {
            for (bytes, number) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(numbers) {
                *bytes = number.to_le_bytes();
            }
            self.0.update(&bytes[..8 * numbers.len()]);
        }
    }

    /// Returns the checksum of all bytes added so far.
    pub fn finish(&self) -> u64 {
        self.0.finalize()
    }
}

impl Default for Crc64 {
    fn default() -> Self {
        Self::new()
    }
}

/// An incremental 128-bit FNV-1a, for names and states where collisions gain an attacker nothing.
///
/// ```
/// use bedform_format::checksum::Fingerprint;
/// let mut fingerprint = Fingerprint::new();
/// fingerprint.update(b"/data/era5.nc");
/// assert_eq!(format!("{:032x}", fingerprint.finish()), "2f7b5b14aafa7b48081647416d4087c7");
/// ```
#[derive(Debug, Clone)]
pub struct Fingerprint(u128);

impl Fingerprint {
    /// Starts a fingerprint of no bytes.
    pub fn new() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    /// Adds `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
        }
    }

    /// Adds whole numbers: several times faster than adding their bytes, with another result.
    ///
    /// ```
    /// use bedform_format::checksum::Fingerprint;
    /// let of = |numbers: &[u64]| {
    ///     let mut fingerprint = Fingerprint::new();
    ///     fingerprint.update_numbers(numbers);
    ///     fingerprint.finish()
    /// };
    /// assert_ne!(of(&[1, 2]), of(&[2, 1]));
    /// assert_eq!(format!("{:032x}", of(&[3, 1 << 40])), "0880945dc5ab1be95a9f38305528bbde");
    /// ```
    pub fn update_numbers(&mut self, numbers: &[u64]) {
        for number in numbers {
            self.0 = (self.0 ^ u128::from(*number)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
        }
    }

    /// Returns the fingerprint of everything added so far.
    pub fn finish(&self) -> u128 {
        self.0
    }

    /// Returns [`Fingerprint::finish`] as two numbers, the higher half first.
    ///
    /// ```
    /// use bedform_format::checksum::Fingerprint;
    /// let mut fingerprint = Fingerprint::new();
    /// fingerprint.update(b"/data/era5.nc");
    /// assert_eq!(fingerprint.halves(), (0x2f7b_5b14_aafa_7b48, 0x0816_4741_6d40_87c7));
    /// ```
    pub fn halves(&self) -> (u64, u64) {
        let [high, low] = [self.0 >> 64, self.0 & u128::from(u64::MAX)];
        (u64::try_from(high).unwrap_or_default(), u64::try_from(low).unwrap_or_default())
    }
}

impl Default for Fingerprint {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_give_the_checksum_of_their_bytes_however_many_they_are() {
        for count in [0, 1, 511, 512, 513, 5000] {
            let numbers: Vec<u64> =
                (0..count).map(|at: u64| at.wrapping_mul(0x0123_4567_89ab_cdef)).collect();
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            let (mut of_numbers, mut of_bytes) = (Crc64::new(), Crc64::new());
            of_numbers.update_numbers(&numbers);
            of_bytes.update(&bytes);
            assert_eq!(of_numbers.finish(), of_bytes.finish());
        }
    }

    #[test]
    fn pieces_give_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..10_000_u32).map(|i| (i * 7 % 251) as u8).collect();
        let mut digest = Crc32c::new();
        for piece in bytes.chunks(777) {
            digest.update(piece);
        }
        assert_eq!(digest.finish(), crc32c(&bytes));
    }
}
