//! The stored form of an array: cut into chunks and objects, encoded chunk by chunk.

use bedform_codec::ChunkCodec;
use bedform_format::metadata::FillValue;
use bedform_geometry::{ChunkGrid, Region, Selection, element_count};

use crate::error::Result;
use crate::plan::copy::swap_bytes;
use crate::plan::geometry::Geometry;

/// The stored form of an array in any format, by which a read plans and decodes.
#[derive(Debug, Clone)]
pub(crate) struct StoredLayout {
    /// The division of the array into chunks, the unit of encoding.
    pub(crate) grid: ChunkGrid,
    /// Chunks of an object along each axis.
    pub(crate) per_object: Vec<u64>,
    /// The codec of a chunk.
    pub(crate) codec: ChunkCodec,
    /// Bytes of an element in a buffer; a text is held as its 64-bit number.
    pub(crate) item_size: usize,
    /// The value of elements that were never written, in the machine's byte order.
    pub(crate) fill: FillValue,
}

/// The number that stands for the fill value of texts.
const TEXT_FILL: [u8; 8] = [0; 8];

impl StoredLayout {
    /// Returns the chunks that `selection` touches, and the places of their elements in the result.
    ///
    /// # Errors
    /// `OutOfBounds`, `InvalidArgument` if the selection does not fit the array.
    pub(crate) fn geometry(&self, selection: &Selection) -> Result<Geometry> {
        Geometry::new(&self.grid, &self.per_object, selection, self.item_size)
    }

    /// Returns true for an array of text.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.fill, FillValue::Text(_))
    }

    /// Returns the fill value as an element of a buffer, in the machine's byte order.
    pub(crate) fn fill_element(&self) -> &[u8] {
        match &self.fill {
            FillValue::Text(_) => &TEXT_FILL,
            FillValue::Bytes(bytes) => bytes,
        }
    }

    /// Returns the fill value as an element of a decoded chunk.
    pub(crate) fn stored_fill(&self) -> Vec<u8> {
        let mut fill = self.fill_element().to_vec();
        if !self.is_text() {
            swap_bytes(&mut fill, self.codec.swap_size());
        }
        fill
    }

    /// Returns the bytes of the decoded chunks of an object.
    pub(crate) fn object_bytes(&self) -> u64 {
        let chunks: u64 = self.per_object.iter().product();
        chunks.saturating_mul(self.codec.decoded_bytes() as u64)
    }

    /// Returns the bytes of the elements that lie inside the array, for the chunk at `chunk` in the
    /// grid of chunks.
    pub(crate) fn bytes_inside(&self, chunk: &[u64]) -> u64 {
        let inside = self.grid.chunk_region_clipped(chunk);
        let elements = element_count(inside.shape()).unwrap_or(u64::MAX);
        elements.saturating_mul(self.item_size as u64)
    }

    /// Returns the region of an object, by its coordinates in the grid of objects; it may extend
    /// beyond the array.
    ///
    /// # Errors
    /// `OutOfBounds` if the region cannot be counted.
    pub(crate) fn object_region(&self, coordinates: &[u64]) -> Result<Region> {
        let shape = self.grid.chunk_shape().iter().zip(&self.per_object);
        let shape: Vec<u64> = shape.map(|(chunk, count)| chunk * count).collect();
        let start = coordinates.iter().zip(&shape).map(|(at, length)| at * length);
        let start: Vec<u64> = start.collect();
        Ok(Region::new(start, shape)?)
    }
}
