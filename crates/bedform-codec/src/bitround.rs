//! `bitround` of numcodecs: floats whose last mantissa bits are zero. Decoding changes nothing;
//! Bedform does not write it.

use std::sync::Arc;

use bedform_format::BytesCodec;

use super::{BytesToBytes, Contexts, DecodeRequest, Decoded, Result, only_read};

pub(super) fn open(codec: &BytesCodec) -> Option<Arc<dyn BytesToBytes>> {
    matches!(codec, BytesCodec::BitRound { .. }).then(|| Arc::new(Rounded) as Arc<dyn BytesToBytes>)
}

#[derive(Debug)]
struct Rounded;

impl BytesToBytes for Rounded {
    fn decode(
        &self,
        input: &[u8],
        _: DecodeRequest,
        _: &mut Vec<u8>,
        _: &mut Contexts,
    ) -> Result<Decoded> {
        Ok(Decoded::Front(input.len()))
    }

    fn encode(&self, _: &[u8], _: &mut Vec<u8>, _: &mut Contexts) -> Result<()> {
        only_read("bitround")
    }

    fn encoded_length(&self, decoded: usize) -> Option<usize> {
        Some(decoded)
    }
}
