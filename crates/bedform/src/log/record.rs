//! Records of a segment, read back and checked; module `segment` writes them.
//!
//! No bytes are used before their checksum is verified, and no memory is allocated before its
//! length is checked against the limits.

use std::fmt;

use bedform_codec::{CodecError, Scratch, decompress_zstd};
use bedform_format::Limits;
use bedform_format::checksum::crc32c;
use bedform_format::log::{
    Block, RecordHead, RecordKind, Sealed, SealedCodec, SegmentHeader, SegmentName,
};
use bedform_storage::Object;

use super::lanes::OpenedSegment;
use crate::error::{Error, ErrorKind, Result};

/// Fails if a segment is not the one of its name: another one was put in its place. Of several
/// lanes only the lane of `address` is checked: others may be empty, if their writers died.
///
/// # Errors
/// `Corrupt`; those of storage.
pub(super) fn check_header(
    segment: &OpenedSegment,
    address: u64,
    store: &[u8; 16],
    name: &str,
    shown: &dyn Fn() -> String,
) -> Result<()> {
    let start = segment.lanes.start_of(address);
    let mut bytes = [0; RecordHead::BYTES + SegmentHeader::BYTES];
    let read = segment.object.read(start, &mut bytes);
    read.map_err(|error| Error::from(error).at(shown()))?;
    let (head, body) = bytes.split_at(RecordHead::BYTES);
    let damaged = |problem: &dyn std::fmt::Display| Error::corrupt(shown(), problem);
    let head = RecordHead::decode(head).map_err(|error| damaged(&error))?;
    let header = SegmentHeader::decode(body).map_err(|error| damaged(&error))?;
    let found = SegmentName::from(&header);
    let is_named = |name: SegmentName| {
        // The segment's name has the rank of the writer of the first lane.
        name.session == found.session && (start > 0 || name.rank == found.rank)
    };
    let is_own = head.kind == RecordKind::Header && header.store == *store;
    match is_own && SegmentName::parse(name).is_some_and(is_named) {
        true => Ok(()),
        false => Err(damaged(&format!("it is segment {found} of some store"))),
    }
}

/// Reads the body of a section or directory, checked and decompressed.
///
/// # Errors
/// `Corrupt` if there is no such record at `offset`, or it is damaged; those of storage.
pub(super) fn read_record(
    segment: &dyn Object,
    offset: u64,
    kind: RecordKind,
    limits: &Limits,
    name: &dyn Fn() -> String,
) -> Result<Vec<u8>> {
    read_sealed(segment, offset, kind, limits, name).map(|(body, _)| body)
}

/// As [`read_record`]; also returns the codec of the body.
///
/// # Errors
/// As [`read_record`].
pub(super) fn read_sealed(
    segment: &dyn Object,
    offset: u64,
    kind: RecordKind,
    limits: &Limits,
    name: &dyn Fn() -> String,
) -> Result<(Vec<u8>, SealedCodec)> {
    let damaged = |problem: &dyn std::fmt::Display| {
        Error::corrupt(format!("{} at byte {offset}", name()), problem)
    };
    let mut head = [0; RecordHead::BYTES];
    segment.read(offset, &mut head).map_err(|error| Error::from(error).at(name()))?;
    let head = RecordHead::decode(&head).map_err(|error| damaged(&error))?;
    if head.kind != kind {
        return Err(damaged(&format!("it is a record of kind {:?}", head.kind)));
    }
    if head.body_bytes > limits.index_bytes_max {
        let text = format!("a record of {} bytes is over the limit", head.body_bytes);
        return Err(Error::new(ErrorKind::LimitExceeded, text).at(name()));
    }
    let mut body = vec![0; usize::try_from(head.body_bytes).unwrap_or(usize::MAX)];
    let read = segment.read(offset + RecordHead::BYTES as u64, &mut body);
    read.map_err(|error| Error::from(error).at(name()))?;
    let (sealed, stored) = Sealed::open(&body, limits).map_err(|error| damaged(&error))?;
    let codec = u8::from(sealed.codec == SealedCodec::Zstd);
    let body = decode_body(stored.to_vec(), codec, sealed.checksum, sealed.bytes)
        .map_err(|error| error.of(format!("{} at byte {offset}", name())))?;
    Ok((body, sealed.codec))
}

/// The reason why stored bytes of a segment cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error("it has checksum {found:08x}, expected {expected:08x}")]
    Checksum { found: u32, expected: u32 },
    #[error("it has {found} bytes, expected {expected}")]
    Length { found: usize, expected: usize },
    #[error("codec {0} is not known")]
    UnknownCodec(u8),
    #[error(transparent)]
    Codec(#[from] CodecError),
}

impl BodyError {
    /// Returns the error of reading the record at `place`.
    pub(super) fn of(self, place: impl fmt::Display) -> Error {
        match self {
            Self::Codec(error) => Error::decoding(place, error),
            error => Error::corrupt(place, error),
        }
    }

    /// Returns a description of the damage.
    ///
    /// # Errors
    /// A lack of memory: it says nothing about the bytes at `place`.
    pub(super) fn damage_at(self, place: impl fmt::Display) -> Result<String> {
        match self {
            Self::Codec(error @ CodecError::Memory { .. }) => Err(Error::decoding(place, error)),
            error => Ok(error.to_string()),
        }
    }
}

/// Checks stored bytes, and decompresses them to exactly `bytes` bytes.
///
/// # Errors
/// Damage to the bytes, or a lack of memory.
pub(super) fn decode_body(
    stored: Vec<u8>,
    codec: u8,
    checksum: u32,
    bytes: u64,
) -> std::result::Result<Vec<u8>, BodyError> {
    check_stored(&stored, checksum)?;
    let length = usize::try_from(bytes).unwrap_or(usize::MAX);
    let decoded = match codec {
        0 => stored,
        1 => decompress_zstd(&stored, length)?,
        other => return Err(BodyError::UnknownCodec(other)),
    };
    check_length(decoded.len(), length)?;
    Ok(decoded)
}

/// As [`decode_body`], in the memory of `scratch`.
///
/// # Errors
/// As [`decode_body`].
pub(super) fn decode_block<'b>(
    block: &Block,
    stored: &'b [u8],
    scratch: &'b mut Scratch,
) -> std::result::Result<&'b [u8], BodyError> {
    check_stored(stored, block.checksum)?;
    let length = usize::try_from(block.bytes).unwrap_or(usize::MAX);
    let decoded = match block.codec {
        0 => stored,
        1 => scratch.decompress_zstd(stored, length)?,
        other => return Err(BodyError::UnknownCodec(other)),
    };
    check_length(decoded.len(), length)?;
    Ok(decoded)
}

/// Fails if stored bytes do not have the expected CRC-32C.
///
/// # Errors
/// [`BodyError::Checksum`].
pub(super) fn check_stored(stored: &[u8], expected: u32) -> std::result::Result<(), BodyError> {
    match crc32c(stored) {
        found if found == expected => Ok(()),
        found => Err(BodyError::Checksum { found, expected }),
    }
}

fn check_length(found: usize, expected: usize) -> std::result::Result<(), BodyError> {
    match found == expected {
        true => Ok(()),
        false => Err(BodyError::Length { found, expected }),
    }
}

#[cfg(test)]
mod tests {
    use bedform_codec::compress_zstd;

    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_segment_is_not_damaged_where_zstd_gets_no_memory() {
        let stored = compress_zstd(&[7; 4096], 1).unwrap();
        let (checksum, bytes) = (crc32c(&stored), 4096);
        let stored_bytes = stored.len() as u64;
        let block = Block { offset: 0, stored_bytes, bytes, checksum, codec: 1 };
        let name = "log::record::tests::a_segment_is_not_damaged_where_zstd_gets_no_memory";
        crate::memory::shortage::of(name, || {
            let body = decode_body(stored.clone(), 1, checksum, bytes).unwrap_err();
            let mut scratch = Scratch::default();
            let of_block = decode_block(&block, &stored, &mut scratch).unwrap_err();
            for error in [body, of_block] {
                let error = error.of("segments/a");
                assert_eq!(error.kind(), ErrorKind::LimitExceeded, "{error}");
                assert!(error.is_of_memory(), "{error}");
            }
            let error = decode_body(stored.clone(), 1, checksum, bytes).unwrap_err();
            assert!(error.damage_at("segments/a").is_err());
        });
        let error = decode_body(stored, 1, checksum ^ 1, bytes).unwrap_err();
        assert_eq!(error.of("segments/a").kind(), ErrorKind::Corrupt);
    }
}
