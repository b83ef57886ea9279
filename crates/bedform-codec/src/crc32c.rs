//! `crc32c`: a CRC-32C after the bytes.

use std::sync::Arc;

use bedform_format::BytesCodec;
use bedform_format::checksum::crc32c;

use super::memory::checked_length;
use super::{BytesToBytes, Contexts, DecodeRequest, Decoded, Result};

pub(super) fn open(codec: &BytesCodec) -> Option<Arc<dyn BytesToBytes>> {
    (*codec == BytesCodec::Crc32c).then(|| Arc::new(Crc32cCodec) as Arc<dyn BytesToBytes>)
}

#[derive(Debug)]
struct Crc32cCodec;

impl BytesToBytes for Crc32cCodec {
    fn decode(
        &self,
        input: &[u8],
        _: DecodeRequest,
        _: &mut Vec<u8>,
        _: &mut Contexts,
    ) -> Result<Decoded> {
        checked_length("crc32c", input, crc32c).map(Decoded::Front)
    }

    fn encode(&self, input: &[u8], output: &mut Vec<u8>, contexts: &mut Contexts) -> Result<()> {
        output.clear();
        output.extend_from_slice(input);
        self.append(output, contexts)
    }

    fn appends(&self) -> bool {
        true
    }

    fn append(&self, bytes: &mut Vec<u8>, _: &mut Contexts) -> Result<()> {
        let checksum = crc32c(bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        Ok(())
    }

    fn encoded_length(&self, decoded: usize) -> Option<usize> {
        decoded.checked_add(4)
    }

    fn checks(&self) -> bool {
        true
    }
}
