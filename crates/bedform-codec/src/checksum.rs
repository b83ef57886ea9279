//! `crc32`, `adler32` and `crc32c` of numcodecs: checksums before or after the data. Bedform reads
//! them but does not write them.

use std::sync::Arc;

use bedform_format::BytesCodec;
use bedform_format::codec::ChecksumKind;
use crc_fast::CrcAlgorithm;

use super::memory::{checked_length, grow};
use super::{BytesToBytes, CodecError, Contexts, DecodeRequest, Decoded, Result, only_read};

pub(super) fn open(codec: &BytesCodec) -> Option<Arc<dyn BytesToBytes>> {
    match *codec {
        BytesCodec::Checksum { kind, is_first } => {
            Some(Arc::new(NumcodecsChecksum { kind, is_first }))
        }
        _ => None,
    }
}

#[derive(Debug)]
struct NumcodecsChecksum {
    kind: ChecksumKind,
    is_first: bool,
}

impl NumcodecsChecksum {
    fn name(&self) -> &'static str {
        match self.kind {
            ChecksumKind::Crc32 => "crc32",
            ChecksumKind::Adler32 => "adler32",
            _ => "crc32c",
        }
    }

    #[allow(clippy::cast_possible_truncation)]
    fn of(&self, bytes: &[u8]) -> u32 {
        match self.kind {
            ChecksumKind::Crc32 => crc_fast::checksum(CrcAlgorithm::Crc32IsoHdlc, bytes) as u32,
            ChecksumKind::Adler32 => adler32(bytes),
            _ => crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32,
        }
    }
}

impl BytesToBytes for NumcodecsChecksum {
    fn decode(
        &self,
        input: &[u8],
        _: DecodeRequest,
        output: &mut Vec<u8>,
        _: &mut Contexts,
    ) -> Result<Decoded> {
        let codec = self.name();
        if !self.is_first {
            return checked_length(codec, input, |bytes| self.of(bytes)).map(Decoded::Front);
        }
        let Some((head, body)) = input.split_first_chunk::<4>() else {
            return Err(CodecError::Length { codec, expected: 4, found: input.len() });
        };
        let (expected, found) = (u32::from_le_bytes(*head), self.of(body));
        if expected != found {
            return Err(CodecError::Checksum { codec, expected, found });
        }
        output.clear();
        grow(output, body.len())?;
        output.copy_from_slice(body);
        Ok(Decoded::Output)
    }

    fn encode(&self, _: &[u8], _: &mut Vec<u8>, _: &mut Contexts) -> Result<()> {
        only_read(self.name())
    }

    fn encoded_length(&self, decoded: usize) -> Option<usize> {
        decoded.checked_add(4)
    }
}

/// Returns zlib's Adler-32: two sums modulo 65,521.
fn adler32(bytes: &[u8]) -> u32 {
    const MODULUS: u32 = 65_521;
    let (mut low, mut high) = (1_u32, 0_u32);
    // 5,552 bytes is the largest block that cannot overflow 32 bits.
    for block in bytes.chunks(5552) {
        for byte in block {
            low += u32::from(*byte);
            high += low;
        }
        low %= MODULUS;
        high %= MODULUS;
    }
    high << 16 | low
}
