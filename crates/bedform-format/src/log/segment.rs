//! The records of a segment: what stands before their bodies.
//!
//! ```text
//! head of a record, little-endian, 32 bytes     header, the body of the first record, 40 bytes
//!   0  4  "BSEG"                                  0 16  store
//!   4  2  kind: 1 header, 2 data,                16 16  writer
//!         3 section, 4 directory                 32  4  number of the segment among the writer's
//!   6  2  version, 1                             36  4  CRC-32C of the 36 bytes before
//!   8  8  bytes of the body, as stored
//!  16  8  number of the record in its segment   body of a section or directory
//!  24  4  zero                                    0  8  bytes when decompressed
//!  28  4  CRC-32C of the 28 bytes before          8  4  codec: 0 none, 1 zstd
//!                                                12  4  CRC-32C of what follows
//!                                                16  .  the stored bytes
//! ```
//!
//! A body is followed by zeros up to a multiple of 8 bytes.

use super::{LogError, Result, check_limit, check_version, invalid};
use crate::Limits;
use crate::checksum::crc32c;

/// What the size of a segment is a multiple of after every sync.
pub const SEGMENT_ALIGNMENT: u64 = 4096;
const RECORD_ALIGNMENT: u64 = 8;
/// No file is larger, and offsets below it can be added.
const BODY_BYTES_MAX: u64 = i64::MAX as u64;

const MAGIC: [u8; 4] = *b"BSEG";
const VERSION: u16 = 1;
const RECORD: &str = "a record";
const HEADER: &str = "the header of a segment";
const SEALED: &str = "a sealed body";

/// What a record holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecordKind {
    /// A [`SegmentHeader`].
    Header,
    /// Blocks of data, which a section describes.
    Data,
    /// A [`Section`](super::Section), [`Sealed`].
    Section,
    /// A [`Directory`](super::Directory), [`Sealed`].
    Directory,
}

impl RecordKind {
    fn code(self) -> u16 {
        match self {
            Self::Header => 1,
            Self::Data => 2,
            Self::Section => 3,
            Self::Directory => 4,
        }
    }

    fn from_code(code: u16) -> Option<Self> {
        [Self::Header, Self::Data, Self::Section, Self::Directory]
            .into_iter()
            .find(|kind| kind.code() == code)
    }
}

/// The bytes of a body of `body_bytes` with its padding.
///
/// ```
/// use bedform_format::log::padded_bytes;
/// assert_eq!([0, 1, 8, 9].map(padded_bytes), [0, 8, 8, 16]);
/// ```
pub fn padded_bytes(body_bytes: u64) -> u64 {
    body_bytes.checked_next_multiple_of(RECORD_ALIGNMENT).unwrap_or(u64::MAX)
}

/// What stands before the body of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHead {
    /// What the body is.
    pub kind: RecordKind,
    /// Bytes of the body as it is stored, without padding.
    pub body_bytes: u64,
    /// Number of the record in its segment, from 0.
    pub sequence: u64,
}

impl RecordHead {
    /// Bytes of a head.
    pub const BYTES: usize = 32;

    /// Bytes of the record: head, body and padding.
    pub fn record_bytes(&self) -> u64 {
        padded_bytes(self.body_bytes).saturating_add(Self::BYTES as u64)
    }

    /// The bytes of the head.
    ///
    /// ```
    /// use bedform_format::log::{RecordHead, RecordKind};
    /// let head = RecordHead { kind: RecordKind::Data, body_bytes: 100, sequence: 7 };
    /// let bytes = head.encode();
    /// assert_eq!(RecordHead::decode(&bytes)?, head);
    /// assert_eq!(head.record_bytes(), 32 + 104);
    /// # Ok::<(), bedform_format::log::LogError>(())
    /// ```
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&self.kind.code().to_le_bytes());
        bytes[6..8].copy_from_slice(&VERSION.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        seal_in_place(&mut bytes);
        bytes
    }

    /// Reads a head of exactly [`RecordHead::BYTES`] bytes.
    ///
    /// # Errors
    /// [`LogError`] if it is damaged, of a newer version, or no head.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let bytes: &[u8; Self::BYTES] = exactly(bytes, RECORD)?;
        if bytes[..4] != MAGIC {
            return Err(LogError::Foreign { what: RECORD });
        }
        check_seal_in_place(bytes, RECORD)?;
        check_version(RECORD, u64::from(half(bytes, 6)), u64::from(VERSION))?;
        let (code, body_bytes) = (half(bytes, 4), long(bytes, 8));
        let kind = RecordKind::from_code(code)
            .ok_or_else(|| invalid(RECORD, format!("the unknown kind {code}")))?;
        if word(bytes, 24) != 0 {
            return Err(invalid(RECORD, "its reserved bytes are not zero"));
        }
        check_limit("bytes in a record", body_bytes, BODY_BYTES_MAX)?;
        Ok(Self { kind, body_bytes, sequence: long(bytes, 16) })
    }
}

/// Whose segment, or lane of one, it is: the body of its first record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SegmentHeader {
    /// Identity of the store.
    pub store: [u8; 16],
    /// Identity of the session that writes it: random.
    pub session: [u8; 16],
    /// Rank of the writer in the session.
    pub rank: u32,
}

impl SegmentHeader {
    /// Bytes of a header.
    pub const BYTES: usize = 40;

    /// The bytes of the header.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..16].copy_from_slice(&self.store);
        bytes[16..32].copy_from_slice(&self.session);
        bytes[32..36].copy_from_slice(&self.rank.to_le_bytes());
        seal_in_place(&mut bytes);
        bytes
    }

    /// Reads a header of exactly [`SegmentHeader::BYTES`] bytes.
    ///
    /// # Errors
    /// [`LogError`] if it is damaged.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let bytes: &[u8; Self::BYTES] = exactly(bytes, HEADER)?;
        check_seal_in_place(bytes, HEADER)?;
        let key = |from: usize| std::array::from_fn(|at| bytes[from + at]);
        Ok(Self { store: key(0), session: key(16), rank: word(bytes, 32) })
    }
}

/// How a sealed body is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SealedCodec {
    /// Not at all.
    None,
    /// As one zstd frame.
    Zstd,
}

impl SealedCodec {
    /// The number that stands for the codec.
    pub fn code(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Zstd => 1,
        }
    }

    /// The codec that a number stands for.
    ///
    /// # Errors
    /// [`LogError::Invalid`] for numbers that stand for none.
    pub fn from_code(code: u64) -> Result<Self> {
        match code {
            0 => Ok(Self::None),
            1 => Ok(Self::Zstd),
            _ => Err(invalid(SEALED, format!("the unknown codec {code}"))),
        }
    }
}

/// What stands before the stored bytes of a section or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed {
    /// Bytes when decompressed.
    pub bytes: u64,
    /// How they are compressed.
    pub codec: SealedCodec,
    /// CRC-32C of the stored bytes.
    pub checksum: u32,
}

impl Sealed {
    /// Bytes of a head.
    pub const HEAD_BYTES: usize = 16;

    /// The head of `stored`, which are `bytes` bytes when decompressed.
    ///
    /// ```
    /// use bedform_format::{Limits, log::{Sealed, SealedCodec}};
    /// let sealed = Sealed::new(b"abc", 3, SealedCodec::None);
    /// let body = [&sealed.encode_head()[..], b"abc"].concat();
    /// assert_eq!(Sealed::open(&body, &Limits::default())?, (sealed, &b"abc"[..]));
    /// # Ok::<(), bedform_format::log::LogError>(())
    /// ```
    pub fn new(stored: &[u8], bytes: u64, codec: SealedCodec) -> Self {
        Self { bytes, codec, checksum: crc32c(stored) }
    }

    /// The bytes of the head.
    pub fn encode_head(&self) -> [u8; Self::HEAD_BYTES] {
        let mut bytes = [0; Self::HEAD_BYTES];
        bytes[..8].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.codec.code().to_le_bytes());
        bytes[12..].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    /// Reads the head at the beginning of `body`.
    ///
    /// # Errors
    /// [`LogError`] if it is cut short, of an unknown codec, or claims more bytes than
    /// [`Limits::index_bytes_max`].
    pub fn decode_head(body: &[u8], limits: &Limits) -> Result<Self> {
        let short = LogError::CutShort { what: SEALED };
        let head: &[u8; Self::HEAD_BYTES] = body.first_chunk().ok_or(short)?;
        let sealed = Self {
            bytes: long(head, 0),
            codec: SealedCodec::from_code(u64::from(word(head, 8)))?,
            checksum: word(head, 12),
        };
        check_limit("bytes in a sealed body", sealed.bytes, limits.index_bytes_max)?;
        Ok(sealed)
    }

    /// The head of a whole body and the stored bytes behind it, checked.
    ///
    /// # Errors
    /// As [`Sealed::decode_head`], and if the stored bytes have changed.
    pub fn open<'a>(body: &'a [u8], limits: &Limits) -> Result<(Self, &'a [u8])> {
        let sealed = Self::decode_head(body, limits)?;
        let stored = &body[Self::HEAD_BYTES..];
        check_checksum(SEALED, sealed.checksum, crc32c(stored))?;
        if sealed.codec == SealedCodec::None && sealed.bytes != stored.len() as u64 {
            return Err(invalid(SEALED, "another length than is said, uncompressed"));
        }
        Ok((sealed, stored))
    }
}

pub(super) fn exactly<'a, const N: usize>(
    bytes: &'a [u8],
    what: &'static str,
) -> Result<&'a [u8; N]> {
    let head = bytes.first_chunk().ok_or(LogError::CutShort { what })?;
    if bytes.len() > N { Err(LogError::Trailing { what }) } else { Ok(head) }
}

/// Makes the last four bytes the checksum of the others.
pub(super) fn seal_in_place<const N: usize>(bytes: &mut [u8; N]) {
    let checksum = crc32c(&bytes[..N - 4]);
    bytes[N - 4..].copy_from_slice(&checksum.to_le_bytes());
}

pub(super) fn check_seal_in_place<const N: usize>(
    bytes: &[u8; N],
    what: &'static str,
) -> Result<()> {
    check_checksum(what, word(bytes, N - 4), crc32c(&bytes[..N - 4]))
}

fn check_checksum(what: &'static str, expected: u32, found: u32) -> Result<()> {
    if expected == found { Ok(()) } else { Err(LogError::Checksum { what, expected, found }) }
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|index| bytes[at + index]))
}

pub(super) fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]))
}
