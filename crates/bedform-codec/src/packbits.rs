//! `packbits` of numcodecs: booleans, eight to a byte. Bedform reads it but does not write it.

use std::sync::Arc;

use bedform_format::BytesCodec;

use super::memory::{grow, invalid};
use super::{BytesToBytes, Contexts, DecodeRequest, Decoded, Result, only_read};

pub(super) fn open(codec: &BytesCodec) -> Option<Arc<dyn BytesToBytes>> {
    (*codec == BytesCodec::PackBits).then(|| Arc::new(PackedBits) as Arc<dyn BytesToBytes>)
}

#[derive(Debug)]
struct PackedBits;

impl BytesToBytes for PackedBits {
    fn decode(
        &self,
        input: &[u8],
        _: DecodeRequest,
        output: &mut Vec<u8>,
        _: &mut Contexts,
    ) -> Result<Decoded> {
        let Some((padding, packed)) = input.split_first() else {
            return Err(invalid("packbits", "no data"));
        };
        let bits = packed.len().saturating_mul(8);
        let padding = usize::from(*padding);
        let count = bits.checked_sub(padding).filter(|_| padding < 8);
        let count = count.ok_or_else(|| invalid("packbits", "more padding than a byte"))?;
        output.clear();
        grow(output, bits)?;
        for (places, byte) in output.as_chunks_mut::<8>().0.iter_mut().zip(packed) {
            for (bit, place) in places.iter_mut().enumerate() {
                *place = byte >> (7 - bit) & 1;
            }
        }
        output.truncate(count);
        Ok(Decoded::Output)
    }

    fn encode(&self, _: &[u8], _: &mut Vec<u8>, _: &mut Contexts) -> Result<()> {
        only_read("packbits")
    }

    fn encoded_length(&self, decoded: usize) -> Option<usize> {
        Some(decoded.div_ceil(8) + 1)
    }
}
