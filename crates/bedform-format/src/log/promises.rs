//! Promise files: the promised commits of a segment, recorded outside the segment.
//!
//! A promise file lies beside the parts of the segment in a burst tier. It tells a damaged part
//! from data that were never promised.
//!
//! ```text
//! header, little-endian, 64 bytes          promise, 64 bytes
//!   0  4  "BPRF"                             0  4  "BPRO"
//!   4  4  version, 1                         4  4  epoch of the commit
//!   8 16  store                              8  8  number of the promise in its segment
//!  24 16  session                           16 16  session
//!  40  4  rank of the segment's writer      32  8  address of the directory's record
//!  44  4  number of the file                40  8  bytes of that record, with head and padding
//!  48  8  number of its first promise       48  4  CRC-32C of that record's body
//!  56  4  zero                              52  8  zero
//!  60  4  CRC-32C of the 60 bytes before    60  4  CRC-32C of the 60 bytes before
//! ```
//!
//! The header and each promise start a block of [`SEGMENT_ALIGNMENT`] bytes, padded with zeros; a
//! sync follows each block. A block of zeros was preallocated, or lost.

use super::segment::{
    SEGMENT_ALIGNMENT, SegmentHeader, check_seal_in_place, exactly, long, seal_in_place, word,
};
use super::{CommitId, LogError, Result, check_limit, invalid};
use crate::Limits;

const HEADER_MAGIC: [u8; 4] = *b"BPRF";
const PROMISE_MAGIC: [u8; 4] = *b"BPRO";
const VERSION: u32 = 1;
const HEADER: &str = "the header of a file of promises";
const PROMISE: &str = "a promise";
/// Numbers up to it can be incremented without overflow.
const NUMBER_MAX: u64 = i64::MAX as u64;
const NAME_START: &str = "promises-";
const NAME_DIGITS: usize = 6;

/// A commit that was reported durable to its writers before a root names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Promise {
    /// The commit.
    pub commit: CommitId,
    /// Number of the promise in its segment, from 0.
    pub number: u64,
    /// Address of the directory's record in the segment.
    pub address: u64,
    /// Length of that record in bytes, with head and padding.
    pub stored_bytes: u64,
    /// CRC-32C of that record's body.
    pub checksum: u32,
}

impl Promise {
    /// Length of a promise in bytes.
    pub const BYTES: usize = 64;

    /// Encodes the promise.
    ///
    /// ```
    /// use bedform_format::log::{CommitId, Promise};
    /// let commit = CommitId { session: [7; 16], epoch: 3 };
    /// let promise =
    ///     Promise { commit, number: 2, address: 8192, stored_bytes: 160, checksum: 0x1234_5678 };
    /// assert_eq!(Promise::decode(&promise.encode())?, promise);
    /// # Ok::<(), bedform_format::log::LogError>(())
    /// ```
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&PROMISE_MAGIC);
        bytes[4..8].copy_from_slice(&self.commit.epoch.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.commit.session);
        bytes[32..40].copy_from_slice(&self.address.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.stored_bytes.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.checksum.to_le_bytes());
        seal_in_place(&mut bytes);
        bytes
    }

    /// Decodes a promise from exactly [`Promise::BYTES`] bytes.
    ///
    /// # Errors
    /// [`LogError`] if the bytes are damaged, or not a promise.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let bytes: &[u8; Self::BYTES] = exactly(bytes, PROMISE)?;
        if bytes[..4] != PROMISE_MAGIC {
            return Err(LogError::Foreign { what: PROMISE });
        }
        check_seal_in_place(bytes, PROMISE)?;
        if bytes[52..60] != [0; 8] {
            return Err(invalid(PROMISE, "its reserved bytes are not zero"));
        }
        let session = std::array::from_fn(|at| bytes[16 + at]);
        let promise = Self {
            commit: CommitId { session, epoch: word(bytes, 4) },
            number: long(bytes, 8),
            address: long(bytes, 32),
            stored_bytes: long(bytes, 40),
            checksum: word(bytes, 48),
        };
        let end = promise.address.checked_add(promise.stored_bytes);
        if end.is_none_or(|end| i64::try_from(end).is_err()) {
            let Self { address, stored_bytes, .. } = promise;
            let problem = format!("bytes {address} + {stored_bytes} of a segment");
            return Err(invalid(PROMISE, problem));
        }
        Ok(promise)
    }
}

/// The header of a promise file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PromisesHeader {
    /// Header of the segment whose commits the file promises.
    pub segment: SegmentHeader,
    /// Number of the file, as in its name.
    pub file: u32,
    /// Number of the first promise in the file.
    pub first: u64,
}

impl PromisesHeader {
    /// Length of a header in bytes.
    pub const BYTES: usize = 64;

    /// Encodes the header.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&HEADER_MAGIC);
        bytes[4..8].copy_from_slice(&VERSION.to_le_bytes());
        bytes[8..24].copy_from_slice(&self.segment.store);
        bytes[24..40].copy_from_slice(&self.segment.session);
        bytes[40..44].copy_from_slice(&self.segment.rank.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.file.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.first.to_le_bytes());
        seal_in_place(&mut bytes);
        bytes
    }

    /// Decodes a header from exactly [`PromisesHeader::BYTES`] bytes.
    ///
    /// # Errors
    /// [`LogError`] if the bytes are damaged, of a newer version, or not a header.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let bytes: &[u8; Self::BYTES] = exactly(bytes, HEADER)?;
        if bytes[..4] != HEADER_MAGIC {
            return Err(LogError::Foreign { what: HEADER });
        }
        check_seal_in_place(bytes, HEADER)?;
        super::check_version(HEADER, u64::from(word(bytes, 4)), u64::from(VERSION))?;
        if word(bytes, 56) != 0 {
            return Err(invalid(HEADER, "its reserved bytes are not zero"));
        }
        let key = |from: usize| std::array::from_fn(|at| bytes[from + at]);
        let segment = SegmentHeader { store: key(8), session: key(24), rank: word(bytes, 40) };
        let first = long(bytes, 48);
        check_limit("promises before a file of promises", first, NUMBER_MAX)?;
        Ok(Self { segment, file: word(bytes, 44), first })
    }
}

/// A decoded promise file, without its unreadable blocks.
///
/// ```
/// use bedform_format::Limits;
/// use bedform_format::log::{PromiseFile, PromisesHeader, SegmentHeader};
/// let segment = SegmentHeader { store: [1; 16], session: [2; 16], rank: 0 };
/// let header = PromisesHeader { segment, file: 0, first: 0 };
/// let file = PromiseFile::decode(&header.encode(), &Limits::default())?;
/// assert_eq!((file.header, file.promises, file.has_torn_end), (header, vec![], false));
/// assert_eq!(PromiseFile::parse_name(&PromiseFile::name(3)), Some(3));
/// # Ok::<(), bedform_format::log::LogError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromiseFile {
    /// The header of the file.
    pub header: PromisesHeader,
    /// The readable promises, in order. A gap in their numbers is an unreadable block.
    pub promises: Vec<Promise>,
    /// True if unreadable bytes follow the last readable promise.
    pub has_torn_end: bool,
}

impl PromiseFile {
    /// Returns the name of file `number`.
    pub fn name(number: u32) -> String {
        format!("{NAME_START}{number:0NAME_DIGITS$}")
    }

    /// Parses the number of a file from its name; `None` for names of other objects.
    pub fn parse_name(name: &str) -> Option<u32> {
        let number = name.strip_prefix(NAME_START)?.parse().ok()?;
        (Self::name(number) == name).then_some(number)
    }

    /// Decodes the readable blocks. A promise counts only in the block that its number implies.
    ///
    /// # Errors
    /// [`LogError`] if the header is damaged or of a newer version, or if the file is longer than
    /// [`Limits::metadata_bytes_max`].
    pub fn decode(bytes: &[u8], limits: &Limits) -> Result<Self> {
        let found = bytes.len() as u64;
        check_limit("bytes in a file of promises", found, limits.metadata_bytes_max)?;
        let short = LogError::CutShort { what: HEADER };
        let header = bytes.first_chunk::<{ PromisesHeader::BYTES }>().ok_or(short)?;
        let header = PromisesHeader::decode(header)?;
        let (mut promises, mut has_torn_end) = (Vec::new(), false);
        let block_bytes = usize::try_from(SEGMENT_ALIGNMENT).unwrap_or(usize::MAX);
        for (block, number) in bytes.chunks(block_bytes).skip(1).zip(header.first..) {
            let promise = block.first_chunk::<{ Promise::BYTES }>();
            let promise = promise.and_then(|bytes| Promise::decode(bytes).ok());
            let is_own = |promise: &Promise| {
                promise.number == number && promise.commit.session == header.segment.session
            };
            match promise.filter(is_own) {
                Some(promise) => {
                    promises.push(promise);
                    has_torn_end = false;
                }
                None => has_torn_end |= block.iter().any(|byte| *byte != 0),
            }
        }
        Ok(Self { header, promises, has_torn_end })
    }
}
