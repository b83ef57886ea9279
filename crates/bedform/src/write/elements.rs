//! Chunks as elements in memory: new ones, ones merged with stored elements, ones trimmed to the
//! array's shape.
//!
//! Elements have the stored layout (order of axes, byte order). Text is held as numbers of texts: 0
//! is the fill value, then come the caller's texts, then those of the stored chunk.

use crate::error::{Error, Result};
use crate::plan::copy::{Axis, Copy, CopyTarget};
use crate::source::{Cover, StoredLayout};
use bedform_codec::{Scratch, text};
use bedform_format::metadata::FillValue;
use bedform_geometry::{ChunkGrid, Region};

/// Elements to write, in C order.
#[derive(Debug, Clone, Copy)]
pub enum Elements<'a> {
    /// Fixed-size elements in the machine's byte order.
    Bytes(&'a [u8]),
    /// Texts.
    Text(&'a [&'a str]),
}

/// The elements of a write, in C order of the selection.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WriteInput<'a> {
    /// Fixed-size elements in the machine's byte order.
    Bytes(&'a [u8]),
    /// Texts, and the numbers `1..` that stand for them.
    Text(&'a [&'a str], &'a [u8]),
}

impl<'a> WriteInput<'a> {
    /// Returns the elements that copies take.
    pub(crate) fn elements(&self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) | Self::Text(_, bytes) => bytes,
        }
    }
}

/// One chunk on its way into an object. It is reused from chunk to chunk.
#[derive(Debug, Default)]
pub(crate) struct ChunkElements {
    elements: Vec<u8>,
    /// Texts of the stored chunk.
    stored_texts: Vec<String>,
    joined: Vec<u8>,
}

impl ChunkElements {
    /// Makes a chunk in memory that was used before.
    pub(crate) fn in_memory(elements: Vec<u8>) -> Self {
        Self { elements, ..Self::default() }
    }

    /// Returns the memory of the elements.
    pub(crate) fn into_memory(self) -> Vec<u8> {
        self.elements
    }

    /// Makes room for the elements of a chunk, all of which must then be written.
    pub(crate) fn make_room(&mut self, layout: &StoredLayout) {
        self.stored_texts.clear();
        self.reserve(layout);
        self.elements.resize(layout.codec.decoded_bytes(), 0);
    }

    /// Reserves memory for the elements and for a checksum behind them.
    fn reserve(&mut self, layout: &StoredLayout) {
        let room = layout.codec.decoded_bytes() + size_of::<u32>();
        self.elements.reserve_exact(room.saturating_sub(self.elements.len()));
    }

    /// Sets every element to the fill value.
    pub(crate) fn clear(&mut self, layout: &StoredLayout) {
        self.stored_texts.clear();
        let length = layout.codec.decoded_bytes();
        let fill = layout.stored_fill();
        self.elements.clear();
        self.reserve(layout);
        if fill.iter().all(|byte| *byte == 0) {
            self.elements.resize(length, 0);
        } else {
            while self.elements.len() < length {
                self.elements.extend_from_slice(&fill);
            }
        }
    }

    /// Loads the elements of a stored chunk.
    pub(crate) fn load(
        &mut self,
        layout: &StoredLayout,
        encoded: &[u8],
        scratch: &mut Scratch,
        input: &WriteInput<'_>,
    ) -> Result<()> {
        self.stored_texts.clear();
        let decoded = layout
            .codec
            .decode(encoded, 0, scratch)
            .map_err(|error| Error::decoding("a stored chunk", error))?;
        self.elements.clear();
        if let WriteInput::Text(texts, _) = input {
            let count = usize::try_from(layout.grid.chunk_len()).unwrap_or(usize::MAX);
            let stored = text::split(decoded, count)
                .map_err(|error| Error::corrupt("a stored chunk", error))?;
            let first = texts.len() as u64 + 1;
            let numbers = first..first + stored.len() as u64;
            self.elements.extend(numbers.flat_map(u64::to_le_bytes));
            self.stored_texts.extend(stored.into_iter().map(str::to_owned));
        } else {
            self.elements.extend_from_slice(decoded);
        }
        Ok(())
    }

    /// Copies elements of the caller into the chunk; `copy` is the copy from the chunk to the
    /// caller's elements.
    pub(crate) fn put(
        &mut self,
        layout: &StoredLayout,
        copy: Copy,
        input: &WriteInput<'_>,
    ) -> Result<()> {
        let mut copy = copy.reversed();
        copy.tidy();
        let target = CopyTarget::new(&mut self.elements);
        // SAFETY: this thread alone has the chunk.
        unsafe { copy.run(input.elements(), target, layout.item_size, layout.codec.swap_size()) }
    }

    /// Returns the elements in the stored layout.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.elements
    }

    /// Lays committed data that are not settled over the chunk at `coordinates`.
    pub(crate) fn lay(&mut self, coordinates: &[u64], cover: &dyn Cover) -> Result<()> {
        cover.lay(coordinates, &mut self.elements)
    }

    /// Sets every element of the chunk at `coordinates` outside `valid` to the fill value.
    pub(crate) fn trim(
        &mut self,
        layout: &StoredLayout,
        coordinates: &[u64],
        valid: &[u64],
    ) -> Result<()> {
        let chunk = layout.grid.chunk_region(coordinates);
        let (strides, fill) = (layout.codec.strides(), layout.stored_fill());
        fill_outside(&chunk, valid, strides, layout.item_size, &fill, &mut self.elements)
    }

    /// Returns true if every element is the fill value, so that the chunk need not be stored.
    pub(crate) fn is_fill(&self, layout: &StoredLayout) -> bool {
        consists_of(&self.elements, &layout.stored_fill())
    }

    /// Encodes the chunk; its elements are then lost.
    pub(crate) fn encode(
        &mut self,
        layout: &StoredLayout,
        input: &WriteInput<'_>,
        scratch: &mut Scratch,
        output: &mut Vec<u8>,
    ) -> Result<()> {
        let outcome = match input {
            WriteInput::Bytes(_) => layout.codec.encode_owned(&mut self.elements, scratch, output),
            WriteInput::Text(texts, _) => {
                self.join(layout, texts)?;
                layout.codec.encode(&self.joined, scratch, output)
            }
        };
        outcome.map_err(Error::encoding)
    }

    /// Moves `encoded` into the memory of the elements if it fits there, because the memory budget
    /// counts that memory. Frees the memory of `encoded` then.
    pub(crate) fn carry(&mut self, encoded: &mut Vec<u8>) -> Vec<u8> {
        let mut memory = std::mem::take(&mut self.elements);
        if memory.capacity() < encoded.len() {
            return memory;
        }
        memory.clear();
        memory.extend_from_slice(encoded);
        std::mem::replace(encoded, memory)
    }

    /// Concatenates the texts that the elements stand for.
    fn join(&mut self, layout: &StoredLayout, texts: &[&str]) -> Result<()> {
        let fill = match &layout.fill {
            FillValue::Text(fill) => fill.as_str(),
            FillValue::Bytes(_) => "",
        };
        let (numbers, _) = self.elements.as_chunks::<8>();
        let named = numbers.iter().map(|number| {
            let number = usize::try_from(u64::from_le_bytes(*number)).unwrap_or(0);
            match number.checked_sub(1) {
                None => fill,
                Some(at) if at < texts.len() => texts[at],
                Some(at) => self.stored_texts.get(at - texts.len()).map_or(fill, |t| t),
            }
        });
        text::join(named, &mut self.joined).map_err(|error| Error::invalid(error.to_string()))
    }
}

/// Returns true if `elements` is `fill` repeated.
pub(crate) fn consists_of(elements: &[u8], fill: &[u8]) -> bool {
    if fill.is_empty() || elements.is_empty() {
        return !fill.is_empty();
    }
    let (head, tail) = elements.split_at(fill.len().min(elements.len()));
    // If the bytes equal themselves one element further on, every element equals the first.
    head == fill && tail == &elements[..tail.len()]
}

/// Returns true if no element of the chunk at `coordinates` lies inside `valid`.
pub(crate) fn is_outside(grid: &ChunkGrid, coordinates: &[u64], valid: &[u64]) -> bool {
    coordinates
        .iter()
        .zip(grid.chunk_shape())
        .zip(valid)
        .any(|((at, length), valid)| at.saturating_mul(*length) >= *valid)
}

/// Sets every element of a chunk outside `valid` to `fill`. The axes of the chunk are `strides`
/// bytes apart.
pub(crate) fn fill_outside(
    chunk: &Region,
    valid: &[u64],
    strides: &[i64],
    item_size: usize,
    fill: &[u8],
    elements: &mut [u8],
) -> Result<()> {
    for region in chunk.subtract(&Region::whole(valid.to_vec())?) {
        let region = region.relative_to(chunk.start())?;
        let mut copy = Copy::default();
        for (axis, stride) in strides.iter().enumerate() {
            copy.target_start += signed(region.start()[axis]) * stride;
            let count = region.shape()[axis];
            copy.axes.push(Axis::Even { source_step: 0, target_step: *stride, count });
        }
        copy.tidy();
        // SAFETY: this thread alone has the chunk.
        unsafe { copy.run(fill, CopyTarget::new(elements), item_size, 1)? };
    }
    Ok(())
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_moves_into_the_memory_of_its_elements_if_it_fits() {
        for (length, fits) in [(0, true), (7, true), (8, true), (9, false)] {
            let elements = Vec::with_capacity(8);
            let memory = elements.as_ptr();
            let mut chunk = ChunkElements { elements, ..ChunkElements::default() };
            let mut encoded = vec![3; length];
            let left = chunk.carry(&mut encoded);
            assert_eq!(encoded, vec![3; length]);
            assert_eq!(encoded.as_ptr() == memory, fits, "{length}");
            assert_eq!(left.as_ptr() == memory, !fits, "{length}");
        }
    }
}
