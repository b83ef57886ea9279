//! `bytes`: fixed-size elements, concatenated.

use std::sync::Arc;

use bedform_format::{DataType, Endian, Serializer};

use super::{ArrayToBytes, ChunkOf, SizeBound};

pub(super) fn open(serializer: &Serializer, chunk: &ChunkOf<'_>) -> Option<Arc<dyn ArrayToBytes>> {
    match *serializer {
        Serializer::Bytes(endian) => {
            let swap_size = swap_size(endian, chunk.data_type);
            Some(Arc::new(RawElements { decoded_bytes: chunk.bytes(), swap_size }))
        }
        _ => None,
    }
}

/// The identity codec: stored bytes are the elements, and copies into and out of a chunk change the
/// byte order.
#[derive(Debug)]
struct RawElements {
    decoded_bytes: usize,
    swap_size: usize,
}

impl ArrayToBytes for RawElements {
    fn is_identity(&self) -> bool {
        true
    }

    fn decoded_length(&self, _: usize) -> SizeBound {
        SizeBound::Exactly(self.decoded_bytes)
    }

    fn swap_size(&self) -> usize {
        self.swap_size
    }
}

/// Length in bytes of the numbers to reverse for elements stored in byte order `endian`; 1 if none.
pub(super) fn swap_size(endian: Endian, data_type: DataType) -> usize {
    if endian == Endian::NATIVE { 1 } else { data_type.swap_size() }
}
