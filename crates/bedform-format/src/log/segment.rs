//! The records of a segment: their heads, the header record, and the sealing of bodies.
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
//! Zeros pad each body to a multiple of 8 bytes.

use super::{LogError, Result, check_limit, check_version, invalid};
use crate::Limits;
use crate::checksum::crc32c;

/// The size of a segment is a multiple of this number of bytes after every sync.
pub const SEGMENT_ALIGNMENT: u64 = 4096;
const RECORD_ALIGNMENT: u64 = 8;
/// No file is larger, so offsets up to it can be added without overflow.
const BODY_BYTES_MAX: u64 = i64::MAX as u64;

const MAGIC: [u8; 4] = *b"BSEG";
const VERSION: u16 = 1;
const RECORD: &str = "a record";
const HEADER: &str = "the header of a segment";
const SEALED: &str = "a sealed body";

/// The kind of a record.
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

/// Returns the length of a body with its padding, in bytes.
///
/// ```
/// use bedform_format::log::padded_bytes;
/// assert_eq!([0, 1, 8, 9].map(padded_bytes), [0, 8, 8, 16]);
/// ```
pub fn padded_bytes(body_bytes: u64) -> u64 {
    body_bytes.checked_next_multiple_of(RECORD_ALIGNMENT).unwrap_or(u64::MAX)
}

/// The head of a record: the 32 bytes before its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHead {
    /// The kind of the body.
    pub kind: RecordKind,
    /// Length of the stored body in bytes, without padding.
    pub body_bytes: u64,
    /// Index of the record in its segment, from 0.
    pub sequence: u64,
}

impl RecordHead {
    /// Length of a head in bytes.
    pub const BYTES: usize = 32;

    /// Returns the length of the record: head, body and padding.
    pub fn record_bytes(&self) -> u64 {
        padded_bytes(self.body_bytes).saturating_add(Self::BYTES as u64)
    }

    /// Encodes the head.
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

    /// Decodes a head from exactly [`RecordHead::BYTES`] bytes.
    ///
    /// # Errors
    /// [`LogError`] if the bytes are damaged, of a newer version, or not a head.
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

/// The body of the first record of a segment or lane: store, session and writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SegmentHeader {
    /// Identity of the store.
    pub store: [u8; 16],
    /// Random identity of the session that writes the segment.
    pub session: [u8; 16],
    /// Rank of the writer in the session.
    pub rank: u32,
}

impl SegmentHeader {
    /// Length of a header in bytes.
    pub const BYTES: usize = 40;

    /// Encodes the header.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..16].copy_from_slice(&self.store);
        bytes[16..32].copy_from_slice(&self.session);
        bytes[32..36].copy_from_slice(&self.rank.to_le_bytes());
        seal_in_place(&mut bytes);
        bytes
    }

    /// Decodes a header from exactly [`SegmentHeader::BYTES`] bytes.
    ///
    /// # Errors
    /// [`LogError`] if the bytes are damaged.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let bytes: &[u8; Self::BYTES] = exactly(bytes, HEADER)?;
        check_seal_in_place(bytes, HEADER)?;
        let key = |from: usize| std::array::from_fn(|at| bytes[from + at]);
        Ok(Self { store: key(0), session: key(16), rank: word(bytes, 32) })
    }
}

/// Compression of a sealed body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SealedCodec {
    /// Not compressed.
    None,
    /// One zstd frame.
    Zstd,
}

impl SealedCodec {
    /// Returns the number of the codec in the format.
    pub fn code(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Zstd => 1,
        }
    }

    /// Returns the codec with this number in the format.
    ///
    /// # Errors
    /// [`LogError::Invalid`] for an unknown number.
    pub fn from_code(code: u64) -> Result<Self> {
        match code {
            0 => Ok(Self::None),
            1 => Ok(Self::Zstd),
            _ => Err(invalid(SEALED, format!("the unknown codec {code}"))),
        }
    }
}

/// The head of the stored bytes of a section or directory: length, codec and checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed {
    /// Length when decompressed, in bytes.
    pub bytes: u64,
    /// Compression of the stored bytes.
    pub codec: SealedCodec,
    /// CRC-32C of the stored bytes.
    pub checksum: u32,
}

impl Sealed {
    /// Length of the head in bytes.
    pub const HEAD_BYTES: usize = 16;

    /// Returns the head for `stored`, which decompresses to `bytes` bytes.
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

    /// Encodes the head.
    pub fn encode_head(&self) -> [u8; Self::HEAD_BYTES] {
        let mut bytes = [0; Self::HEAD_BYTES];
        bytes[..8].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.codec.code().to_le_bytes());
        bytes[12..].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    /// Decodes the head at the start of `body`.
    ///
    /// # Errors
    /// [`LogError`] if the head is cut short, has an unknown codec, or claims more bytes than
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

    /// Splits a whole body into its head and the stored bytes, and verifies the checksum.
    ///
    /// # Errors
    /// As [`Sealed::decode_head`], and [`LogError::Checksum`] if the stored bytes have changed.
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

/// Writes the CRC-32C of the other bytes into the last four bytes.
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
