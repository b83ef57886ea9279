//! Records of a segment, read back and checked.
//!
//! `segment` has who writes them. Nothing that was read is believed before its checksum is, and nothing
//! is allocated before its length is within the limits.

use bedform_format::Limits;
use bedform_format::checksum::crc32c;
use bedform_format::log::{
    RecordHead, RecordKind, Sealed, SealedCodec, SegmentHeader, SegmentName,
};
use bedform_storage::Object;

use super::lanes::OpenedSegment;
use crate::error::{Error, ErrorKind, Result};

/// Fails if a segment is not that of its name: somebody has put another one in its place. Of several lanes
/// that of `address` is looked at: others may have nothing, where their writers died.
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
        // The first lane is that of the writer whose rank the segment has in its name.
        name.session == found.session && (start > 0 || name.rank == found.rank)
    };
    let is_own = head.kind == RecordKind::Header && header.store == *store;
    match is_own && SegmentName::parse(name).is_some_and(is_named) {
        true => Ok(()),
        false => Err(damaged(&format!("it is segment {found} of some store"))),
    }
}

/// The body of a section or directory, checked and decompressed.
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

/// As [`read_record`], and how the body is compressed.
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
        .map_err(|problem| damaged(&problem))?;
    Ok((body, sealed.codec))
}

/// Stored bytes, checked and decompressed to exactly `bytes`.
///
/// # Errors
/// What is wrong with them.
pub(super) fn decode_body(
    stored: Vec<u8>,
    codec: u8,
    checksum: u32,
    bytes: u64,
) -> std::result::Result<Vec<u8>, String> {
    let found = crc32c(&stored);
    if found != checksum {
        return Err(format!("it has checksum {found:08x}, expected {checksum:08x}"));
    }
    let length = usize::try_from(bytes).unwrap_or(usize::MAX);
    let decoded = match codec {
        0 => stored,
        1 => {
            let mut decoded = vec![0; length];
            let count = zstd_safe::decompress(decoded.as_mut_slice(), &stored)
                .map_err(|code| zstd_safe::get_error_name(code).to_owned())?;
            decoded.truncate(count);
            decoded
        }
        other => return Err(format!("codec {other} is not known")),
    };
    if decoded.len() != length {
        return Err(format!("it has {} bytes, expected {length}", decoded.len()));
    }
    Ok(decoded)
}
