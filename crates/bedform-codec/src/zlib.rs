//! `zlib`: zlib streams, including HDF5's deflate.

use std::sync::Arc;

use bedform_format::BytesCodec;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::memory::{finish, grow, invalid, resize};
use super::{BytesToBytes, CodecError, Contexts, DecodeRequest, Decoded, Result, SizeBound};

pub(super) fn open(codec: &BytesCodec) -> Option<Arc<dyn BytesToBytes>> {
    match *codec {
        BytesCodec::Zlib { level } => Some(Arc::new(Zlib { level })),
        _ => None,
    }
}

#[derive(Debug)]
struct Zlib {
    level: u32,
}

impl BytesToBytes for Zlib {
    fn decode(
        &self,
        input: &[u8],
        wanted: DecodeRequest,
        output: &mut Vec<u8>,
        _: &mut Contexts,
    ) -> Result<Decoded> {
        decode(input, wanted.size, output)?;
        Ok(Decoded::Output)
    }

    fn encode(&self, input: &[u8], output: &mut Vec<u8>, _: &mut Contexts) -> Result<()> {
        encode(input, self.level, output)
    }
}

fn decode(input: &[u8], bound: SizeBound, output: &mut Vec<u8>) -> Result<()> {
    let mut decoder = Decompress::new(true);
    let (SizeBound::Exactly(limit) | SizeBound::AtMost(limit)) = bound;
    let start = match bound {
        SizeBound::Exactly(size) => size,
        SizeBound::AtMost(size) => input.len().saturating_mul(4).clamp(1 << 12, size.max(1 << 12)),
    };
    resize(output, start)?;
    loop {
        let consumed = usize::try_from(decoder.total_in()).unwrap_or(usize::MAX);
        let produced = usize::try_from(decoder.total_out()).unwrap_or(usize::MAX);
        let status = decoder
            .decompress(
                input.get(consumed..).unwrap_or_default(),
                &mut output[produced..],
                FlushDecompress::Finish,
            )
            .map_err(|error| invalid("zlib", &error.to_string()))?;
        let found = usize::try_from(decoder.total_out()).unwrap_or(usize::MAX);
        if status == Status::StreamEnd {
            return finish("zlib", bound, found, output);
        }
        if found < output.len() {
            return Err(invalid("zlib", "the stream ends too early"));
        }
        if output.len() > limit {
            return Err(CodecError::Length { codec: "zlib", expected: limit, found });
        }
        // The buffer is full before the end of the stream: one more byte distinguishes a full from
        // an overlong chunk.
        let larger = output.len().saturating_mul(2).min(limit).max(output.len() + 1);
        grow(output, larger)?;
    }
}

fn encode(input: &[u8], level: u32, output: &mut Vec<u8>) -> Result<()> {
    let mut encoder = Compress::new(Compression::new(level), true);
    output.clear();
    loop {
        output.reserve((input.len() / 2).max(1 << 12));
        let consumed = usize::try_from(encoder.total_in()).unwrap_or(usize::MAX);
        let rest = input.get(consumed..).unwrap_or_default();
        let status = encoder
            .compress_vec(rest, output, FlushCompress::Finish)
            .map_err(|error| invalid("zlib", &error.to_string()))?;
        if status == Status::StreamEnd {
            return Ok(());
        }
    }
}
