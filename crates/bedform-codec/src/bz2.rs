//! `bz2`: bzip2 streams. Bedform reads them but does not write them.

use std::sync::Arc;

use bedform_format::BytesCodec;
use bzip2::{Decompress, Status};

use super::memory::{finish, grow, invalid, resize};
use super::{
    BytesToBytes, CodecError, Contexts, DecodeRequest, Decoded, Result, SizeBound, only_read,
};

pub(super) fn open(codec: &BytesCodec) -> Option<Arc<dyn BytesToBytes>> {
    (*codec == BytesCodec::Bz2).then(|| Arc::new(Bz2) as Arc<dyn BytesToBytes>)
}

#[derive(Debug)]
struct Bz2;

impl BytesToBytes for Bz2 {
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

    fn encode(&self, _: &[u8], _: &mut Vec<u8>, _: &mut Contexts) -> Result<()> {
        only_read("bz2")
    }
}

/// Decodes concatenated streams, as Python's `bz2` does.
fn decode(input: &[u8], bound: SizeBound, output: &mut Vec<u8>) -> Result<()> {
    let (SizeBound::Exactly(limit) | SizeBound::AtMost(limit)) = bound;
    // One byte beyond the limit distinguishes a stream that ends from one that continues.
    let most = limit.saturating_add(1);
    let (mut consumed, mut produced) = (0, 0);
    resize(output, input.len().saturating_mul(4).clamp(1 << 12, most.max(1 << 12)))?;
    while consumed < input.len() {
        let mut decoder = Decompress::new(false);
        loop {
            let (input_before, output_before) = (decoder.total_in(), decoder.total_out());
            let status = decoder
                .decompress(&input[consumed..], &mut output[produced..])
                .map_err(|error| invalid("bz2", &error.to_string()))?;
            consumed += usize::try_from(decoder.total_in() - input_before).unwrap_or(usize::MAX);
            produced += usize::try_from(decoder.total_out() - output_before).unwrap_or(usize::MAX);
            if status == Status::StreamEnd {
                break;
            }
            if produced > limit {
                return Err(CodecError::Length { codec: "bz2", expected: limit, found: produced });
            }
            if produced == output.len() {
                grow(output, output.len().saturating_mul(2).min(most).max(produced + 1))?;
            } else if consumed >= input.len() {
                return Err(invalid("bz2", "the stream ends too early"));
            }
        }
    }
    finish("bz2", bound, produced, output)
}
