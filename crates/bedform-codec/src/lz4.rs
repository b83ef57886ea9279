//! `lz4` of numcodecs: a u32 size and an LZ4 block. Bedform reads it but does not write it.

use std::sync::Arc;

use bedform_format::BytesCodec;

use super::memory::{invalid, resize};
use super::{
    BytesToBytes, CodecError, Contexts, DecodeRequest, Decoded, Result, SizeBound, only_read,
};

pub(super) fn open(codec: &BytesCodec) -> Option<Arc<dyn BytesToBytes>> {
    (*codec == BytesCodec::Lz4).then(|| Arc::new(Lz4) as Arc<dyn BytesToBytes>)
}

#[derive(Debug)]
struct Lz4;

impl BytesToBytes for Lz4 {
    fn decode(
        &self,
        input: &[u8],
        wanted: DecodeRequest,
        output: &mut Vec<u8>,
        _: &mut Contexts,
    ) -> Result<Decoded> {
        let Some((head, block)) = input.split_first_chunk::<4>() else {
            return Err(invalid("lz4", "too short"));
        };
        let size = usize::try_from(u32::from_le_bytes(*head)).unwrap_or(usize::MAX);
        let (expected, fits) = match wanted.size {
            SizeBound::Exactly(expected) => (expected, size == expected),
            SizeBound::AtMost(expected) => (expected, size <= expected),
        };
        if !fits {
            return Err(CodecError::Length { codec: "lz4", expected, found: size });
        }
        // An LZ4 block decodes to at most 255 bytes per byte.
        if size / 255 > block.len() {
            return Err(invalid("lz4", "too short for its size"));
        }
        resize(output, size)?;
        let found = lz4_flex::block::decompress_into(block, output)
            .map_err(|error| invalid("lz4", &error.to_string()))?;
        match found == size {
            true => Ok(Decoded::Output),
            false => Err(CodecError::Length { codec: "lz4", expected: size, found }),
        }
    }

    fn encode(&self, _: &[u8], _: &mut Vec<u8>, _: &mut Contexts) -> Result<()> {
        only_read("lz4")
    }
}
