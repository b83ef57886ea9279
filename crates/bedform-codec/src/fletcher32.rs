//! `fletcher32`: HDF5's Fletcher-32 after the bytes. Bedform reads it but does not write it.

use std::sync::Arc;

use bedform_format::BytesCodec;

use super::memory::checked_length;
use super::{BytesToBytes, CodecError, Contexts, DecodeRequest, Decoded, Result};

pub(super) fn open(codec: &BytesCodec) -> Option<Arc<dyn BytesToBytes>> {
    (*codec == BytesCodec::Fletcher32).then(|| Arc::new(Fletcher32Codec) as Arc<dyn BytesToBytes>)
}

#[derive(Debug)]
struct Fletcher32Codec;

impl BytesToBytes for Fletcher32Codec {
    fn decode(
        &self,
        input: &[u8],
        _: DecodeRequest,
        _: &mut Vec<u8>,
        _: &mut Contexts,
    ) -> Result<Decoded> {
        checked_length("fletcher32", input, fletcher32).map(Decoded::Front)
    }

    fn encode(&self, _: &[u8], _: &mut Vec<u8>, _: &mut Contexts) -> Result<()> {
        Err(CodecError::Unsupported("writing the codec Fletcher32".to_owned()))
    }

    fn encoded_length(&self, decoded: usize) -> Option<usize> {
        decoded.checked_add(4)
    }
}

/// Returns HDF5's Fletcher-32: over big-endian 16-bit words, modulo 65,535.
fn fletcher32(bytes: &[u8]) -> u32 {
    let (mut low, mut high) = (0_u32, 0_u32);
    let fold = |sum: u32| (sum & 0xffff) + (sum >> 16);
    let (pairs, odd) = bytes.as_chunks::<2>();
    // 360 words is the largest block that cannot overflow 32 bits.
    for block in pairs.chunks(360) {
        for pair in block {
            low += u32::from(u16::from_be_bytes(*pair));
            high += low;
        }
        low = fold(low);
        high = fold(high);
    }
    if let [last] = odd {
        low += u32::from(*last) << 8;
        high += low;
        low = fold(low);
        high = fold(high);
    }
    low = fold(low);
    high = fold(high);
    high << 16 | low
}
