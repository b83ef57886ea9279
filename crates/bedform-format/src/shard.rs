//! The tail of a shard: Bedform's stamp and the index of its chunks.
//!
//! A shard that Bedform wrote is `chunks | stamp | index [| CRC-32C of the index]`, without gaps.
//! Other Zarr readers find the index at the end of the object and ignore the stamp. Another program
//! that rewrites the shard writes neither a stamp nor a gap for one, so a missing stamp differs
//! from a damaged one.
//!
//! ```text
//! stamp, little-endian, 72 + 8 * rank bytes
//!   0  8  "BEDSTAMP"
//!   8  2  version, 1
//!  10  2  rank
//!  12  4  zero
//!  16 16  store
//!  32 16  array
//!  48  8  last commit that the shard contains
//!  56  8  bytes of the chunks before the stamp
//!  64  .  rank * 8: coordinates of the shard in the grid of shards
//!   .  4  zero
//!   .  4  CRC-32C of everything above
//! ```

use crate::checksum::crc32c;
use crate::metadata::Identity;

const MAGIC: &[u8; 8] = b"BEDSTAMP";
const VERSION: u16 = 1;
const MISSING: u64 = u64::MAX;

/// A byte range of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Extent {
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
}

impl Extent {
    /// Returns the offset after the last byte.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }
}

/// The reason why the tail of a shard was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShardError {
    /// The object is shorter than its index.
    #[error("{size} bytes are too few for an index of {needed}")]
    TooSmall {
        /// Length of the object in bytes.
        size: u64,
        /// Length of the index and stamp in bytes.
        needed: u64,
    },
    /// The index is damaged.
    #[error("the index has checksum {found:08x}, expected {expected:08x}")]
    IndexChecksum {
        /// The stored checksum.
        expected: u32,
        /// The checksum of the bytes.
        found: u32,
    },
    /// An entry of the index lies outside the object.
    #[error("the index puts chunk {chunk} at bytes {offset} + {length} of {size}")]
    Entry {
        /// Position of the entry in the index.
        chunk: usize,
        /// Claimed offset.
        offset: u64,
        /// Claimed length.
        length: u64,
        /// Length of the object in bytes.
        size: u64,
    },
    /// The stamp is damaged.
    #[error("the stamp is damaged: {0}")]
    Stamp(&'static str),
    /// The stamp is undamaged but names another shard.
    #[error("the stamp is of another {0}: the object was moved or swapped")]
    Misplaced(&'static str),
}

/// The index of a shard: the extent of each chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardIndex {
    /// The stored entries, after `before` other bytes. Entries are decoded on access only, since a
    /// read of one chunk without caches loads all of them.
    bytes: Vec<u8>,
    before: usize,
    /// Length of the object with the chunks, in bytes.
    object_bytes: u64,
}

impl ShardIndex {
    /// Returns the length in bytes of an index of `chunks` chunks.
    pub fn encoded_bytes(chunks: u64, checked: bool) -> u64 {
        chunks.saturating_mul(16).saturating_add(if checked { 4 } else { 0 })
    }

    /// Makes an index from entries in C order; `None` for an absent chunk.
    pub fn new(entries: impl IntoIterator<Item = Option<Extent>>) -> Self {
        let mut bytes = Vec::new();
        for entry in entries {
            let (offset, length) =
                entry.map_or((MISSING, MISSING), |extent| (extent.offset, extent.length));
            bytes.extend_from_slice(&offset.to_le_bytes());
            bytes.extend_from_slice(&length.to_le_bytes());
        }
        Self { bytes, before: 0, object_bytes: u64::MAX }
    }

    /// Decodes the index of an object of `object_bytes` bytes. Entries are checked against that
    /// length on access.
    ///
    /// # Errors
    /// [`ShardError`] if the index is too short or its checksum does not match.
    pub fn decode(bytes: &[u8], checked: bool, object_bytes: u64) -> Result<Self, ShardError> {
        Self::decode_behind(bytes.to_vec(), 0, checked, object_bytes)
    }

    /// As [`ShardIndex::decode`], with `before` other bytes in front, which are kept.
    ///
    /// # Errors
    /// As [`ShardIndex::decode`].
    pub fn decode_behind(
        mut bytes: Vec<u8>,
        before: usize,
        checked: bool,
        object_bytes: u64,
    ) -> Result<Self, ShardError> {
        let short = || ShardError::TooSmall { size: bytes.len() as u64, needed: 4 };
        let encoded = bytes.get(before..).ok_or_else(short)?;
        if checked {
            let (head, tail) = encoded.split_last_chunk::<4>().ok_or_else(short)?;
            let (expected, found) = (u32::from_le_bytes(*tail), crc32c(head));
            if expected != found {
                return Err(ShardError::IndexChecksum { expected, found });
            }
            bytes.truncate(bytes.len() - 4);
        }
        Ok(Self { bytes, before, object_bytes })
    }

    /// Returns the bytes before the index that were read with it.
    pub fn before(&self) -> &[u8] {
        &self.bytes[..self.before]
    }

    fn pairs(&self) -> &[[u8; 16]] {
        self.bytes[self.before..].as_chunks::<16>().0
    }

    fn entries(&self) -> impl Iterator<Item = (u64, u64)> {
        self.pairs().iter().map(entry_of)
    }

    /// Encodes the index.
    pub fn encode(&self, checked: bool) -> Vec<u8> {
        let mut bytes = self.bytes[self.before..].to_vec();
        if checked {
            bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
        }
        bytes
    }

    /// Returns the extent of the chunk at `position` in C order; `None` if it is absent.
    ///
    /// # Errors
    /// [`ShardError::Entry`] if the extent lies outside the object.
    pub fn get(&self, position: usize) -> Result<Option<Extent>, ShardError> {
        match self.pairs().get(position).map(entry_of) {
            None | Some((MISSING, MISSING)) => Ok(None),
            Some((offset, length)) if self.is_inside(offset, length) => {
                Ok(Some(Extent { offset, length }))
            }
            Some((offset, length)) => {
                let size = self.object_bytes;
                Err(ShardError::Entry { chunk: position, offset, length, size })
            }
        }
    }

    fn is_inside(&self, offset: u64, length: u64) -> bool {
        offset.checked_add(length).is_some_and(|end| end <= self.object_bytes)
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.pairs().len()
    }

    /// Returns true if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.pairs().is_empty()
    }

    /// Returns the memory of the index in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the offset after the last chunk that lies in the object.
    pub fn data_end(&self) -> u64 {
        let inside = self.entries().filter(|&(offset, length)| self.is_inside(offset, length));
        inside.map(|(offset, length)| offset + length).max().unwrap_or(0)
    }
}

/// Decodes offset and length.
fn entry_of(pair: &[u8; 16]) -> (u64, u64) {
    let pair = u128::from_le_bytes(*pair);
    #[allow(clippy::cast_possible_truncation)]
    (pair as u64, (pair >> 64) as u64)
}

/// The identity of a shard, and the last commit that it contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// Identity of the store and the array.
    pub identity: Identity,
    /// The last commit whose data the shard contains; 0 if it contains only direct writes.
    pub commit: u64,
    /// Length of the chunks before the stamp, in bytes.
    pub data_bytes: u64,
    /// Coordinates of the shard in the grid of shards.
    pub coordinates: Vec<u64>,
}

impl Stamp {
    /// Returns the length in bytes of a stamp for an array with `rank` axes.
    pub fn encoded_bytes(rank: usize) -> u64 {
        72 + 8 * rank as u64
    }

    /// Encodes the stamp.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(72 + 8 * self.coordinates.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        // The largest rank is 32.
        #[allow(clippy::cast_possible_truncation)]
        bytes.extend_from_slice(&(self.coordinates.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.identity.store);
        bytes.extend_from_slice(&self.identity.array);
        bytes.extend_from_slice(&self.commit.to_le_bytes());
        bytes.extend_from_slice(&self.data_bytes.to_le_bytes());
        for coordinate in &self.coordinates {
            bytes.extend_from_slice(&coordinate.to_le_bytes());
        }
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// Decodes a stamp from exactly [`Stamp::encoded_bytes`] bytes.
    ///
    /// # Errors
    /// [`ShardError::Stamp`] if the bytes are damaged or of a newer version.
    pub fn decode(bytes: &[u8]) -> Result<Self, ShardError> {
        let Some((body, checksum)) = bytes.split_last_chunk::<4>() else {
            return Err(ShardError::Stamp("too short"));
        };
        if crc32c(body) != u32::from_le_bytes(*checksum) {
            return Err(ShardError::Stamp("checksum mismatch"));
        }
        if body.len() < 68 || body.get(..8) != Some(MAGIC.as_slice()) {
            return Err(ShardError::Stamp("not a stamp"));
        }
        let half = |at: usize| u16::from_le_bytes([body[at], body[at + 1]]);
        let word = |at: usize| {
            body[at..at + 8].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
        };
        let key = |at: usize| std::array::from_fn(|index| body[at + index]);
        if half(8) != VERSION {
            return Err(ShardError::Stamp("of a newer version"));
        }
        let rank = usize::from(half(10));
        if body.len() != 68 + 8 * rank {
            return Err(ShardError::Stamp("of another rank"));
        }
        Ok(Self {
            identity: Identity { store: key(16), array: key(32) },
            commit: word(48),
            data_bytes: word(56),
            coordinates: (0..rank).map(|axis| word(64 + 8 * axis)).collect(),
        })
    }

    /// Checks that the stamp names this array and these coordinates.
    ///
    /// # Errors
    /// [`ShardError::Misplaced`] if it names another store, array or shard.
    pub fn check(&self, identity: &Identity, coordinates: &[u64]) -> Result<(), ShardError> {
        if self.identity.store != identity.store {
            Err(ShardError::Misplaced("store"))
        } else if self.identity.array != identity.array {
            Err(ShardError::Misplaced("array"))
        } else if self.coordinates != coordinates {
            Err(ShardError::Misplaced("shard of the array"))
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp() -> Stamp {
        Stamp {
            identity: Identity { store: [1; 16], array: [2; 16] },
            commit: 7,
            data_bytes: 4096,
            coordinates: vec![3, 0, 5],
        }
    }

    #[test]
    fn every_changed_bit_of_a_stamp_is_noticed() {
        let bytes = stamp().encode();
        assert_eq!(bytes.len() as u64, Stamp::encoded_bytes(3));
        assert_eq!(Stamp::decode(&bytes).unwrap(), stamp());
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Stamp::decode(&flipped).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(Stamp::decode(&bytes[..length]).is_err(), "length {length}");
        }
    }

    #[test]
    fn a_stamp_of_another_place_says_which() {
        let identity = stamp().identity;
        assert!(stamp().check(&identity, &[3, 0, 5]).is_ok());
        assert_eq!(
            stamp().check(&identity, &[3, 0, 6]),
            Err(ShardError::Misplaced("shard of the array"))
        );
        let other = Identity { array: [9; 16], ..identity };
        assert_eq!(stamp().check(&other, &[3, 0, 5]), Err(ShardError::Misplaced("array")));
    }

    #[test]
    fn an_entry_outside_the_object_is_refused_and_the_others_are_not() {
        let extent = Extent { offset: 100, length: 50 };
        let bytes = ShardIndex::new([None, Some(extent)]).encode(true);
        let index = ShardIndex::decode(&bytes, true, 150).unwrap();
        let found = [0, 1, 2].map(|position| index.get(position));
        assert_eq!(found, [Ok(None), Ok(Some(extent)), Ok(None)]);
        assert_eq!(index.data_end(), 150);
        let index = ShardIndex::decode(&bytes, true, 149).unwrap();
        assert_eq!(index.get(0), Ok(None));
        assert!(matches!(index.get(1), Err(ShardError::Entry { chunk: 1, .. })));
        assert_eq!(index.data_end(), 0);
        for (offset, length) in [(u64::MAX, 1), (1, u64::MAX), (u64::MAX - 1, u64::MAX)] {
            let half_missing = ShardIndex::new([Some(Extent { offset, length })]).encode(false);
            let index = ShardIndex::decode(&half_missing, false, u64::MAX).unwrap();
            assert!(index.get(0).is_err());
        }
        let mut flipped = bytes;
        flipped[17] ^= 1;
        assert!(matches!(
            ShardIndex::decode(&flipped, true, 150),
            Err(ShardError::IndexChecksum { .. })
        ));
    }
}
