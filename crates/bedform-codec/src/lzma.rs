//! `lzma`: LZMA streams, in the xz format or the older .lzma format. Bedform reads them but does
//! not write them.

use std::sync::Arc;

use bedform_format::BytesCodec;
use liblzma::stream::{Action, CONCATENATED, Status, Stream};

use super::memory::{finish, grow, invalid, resize};
use super::{
    BytesToBytes, CodecError, Contexts, DecodeRequest, Decoded, Result, SizeBound, only_read,
};

/// Largest memory of a decoder in bytes: enough for streams of xz's highest level.
const MEMORY_BYTES_MAX: u64 = 68 << 20;

pub(super) fn open(codec: &BytesCodec) -> Option<Arc<dyn BytesToBytes>> {
    match *codec {
        BytesCodec::Lzma { is_alone } => Some(Arc::new(Lzma { is_alone })),
        _ => None,
    }
}

#[derive(Debug)]
struct Lzma {
    is_alone: bool,
}

impl BytesToBytes for Lzma {
    fn decode(
        &self,
        input: &[u8],
        wanted: DecodeRequest,
        output: &mut Vec<u8>,
        _: &mut Contexts,
    ) -> Result<Decoded> {
        let decoder = match self.is_alone {
            true => Stream::new_lzma_decoder(MEMORY_BYTES_MAX),
            false => Stream::new_stream_decoder(MEMORY_BYTES_MAX, CONCATENATED),
        };
        decode(decoder.map_err(refused)?, input, wanted.size, output)?;
        Ok(Decoded::Output)
    }

    fn encode(&self, _: &[u8], _: &mut Vec<u8>, _: &mut Contexts) -> Result<()> {
        only_read("lzma")
    }
}

fn refused(error: liblzma::stream::Error) -> CodecError {
    match error {
        liblzma::stream::Error::MemLimit => CodecError::Unsupported(format!(
            "LZMA with a dictionary that takes more than {} MiB",
            MEMORY_BYTES_MAX >> 20
        )),
        error => invalid("lzma", &error.to_string()),
    }
}

fn decode(mut decoder: Stream, input: &[u8], bound: SizeBound, output: &mut Vec<u8>) -> Result<()> {
    let (SizeBound::Exactly(limit) | SizeBound::AtMost(limit)) = bound;
    let most = limit.saturating_add(1);
    resize(output, input.len().saturating_mul(4).clamp(1 << 12, most.max(1 << 12)))?;
    loop {
        let consumed = usize::try_from(decoder.total_in()).unwrap_or(usize::MAX);
        let produced = usize::try_from(decoder.total_out()).unwrap_or(usize::MAX);
        let rest = input.get(consumed..).unwrap_or_default();
        let status =
            decoder.process(rest, &mut output[produced..], Action::Finish).map_err(refused)?;
        let found = usize::try_from(decoder.total_out()).unwrap_or(usize::MAX);
        if status == Status::StreamEnd {
            return finish("lzma", bound, found, output);
        }
        if found > limit {
            return Err(CodecError::Length { codec: "lzma", expected: limit, found });
        }
        if found == output.len() {
            grow(output, output.len().saturating_mul(2).min(most).max(found + 1))?;
        } else if found == produced && decoder.total_in() == consumed as u64 {
            return Err(invalid("lzma", "the stream ends too early"));
        }
    }
}
