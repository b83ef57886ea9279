//! Texts of variable length: reading the stored elements, and the heap objects that hold the bytes.
//!
//! An element is the length of a text and a reference into a global heap. Elements are read as raw
//! bytes through an ordinary read plan. The heap collections of many elements are then fetched
//! together.

use std::collections::HashSet;

use super::element::Hdf5ElementType;
use super::storage::{self, ChunkTableLimits};
use crate::chunk_map::{ChunkMapError, ForeignArray};
use crate::hdf5::cursor::FileBlock;
use crate::hdf5::error::{Hdf5Error, Result};
use crate::hdf5::global_heap::HeapReference;
use crate::hdf5::source::ANNOUNCED_MAX;
use crate::hdf5::{Hdf5File, Hdf5FillValue, ObjectKind, TypeKind};
use crate::{DataType, Endian, Limits};

/// Length of a minimal global heap collection, in bytes.
const HEAP_BYTES: u64 = 4096;

/// Concatenated texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredTexts {
    /// Length of each text in bytes.
    pub lengths: Vec<u64>,
    /// The bytes of all texts, mostly UTF-8.
    pub bytes: Vec<u8>,
}

/// Returns the array of texts at `address`, with its chunk table, as an array of raw elements for
/// [`Hdf5File::texts`]; `None` if the address now holds another object.
///
/// # Errors
/// As [`chunk_map`](super::chunk_map).
pub fn stored_texts(
    file: &Hdf5File<'_>,
    address: u64,
    array: &ForeignArray,
    limits: &Limits,
) -> std::result::Result<Option<ForeignArray>, Hdf5Error> {
    let ObjectKind::Dataset(dataset) = file.object(address)?.kind else { return Ok(None) };
    if !matches!(dataset.datatype.kind, TypeKind::VariableText(_)) {
        return Ok(None);
    }
    // `None` stands for the empty text; a fill value is a heap reference, as elements are.
    let fill_value = match &dataset.fill_value {
        Hdf5FillValue::Undefined | Hdf5FillValue::Default => None,
        Hdf5FillValue::Value(bytes) if bytes.len() as u64 == u64::from(dataset.datatype.size) => {
            Some(bytes.clone())
        }
        Hdf5FillValue::Value(_) => {
            return Err(Hdf5Error::unknown("a fill value of another type"));
        }
    };
    let data_type = Some(DataType::Raw(dataset.datatype.size));
    let (words, endian) = (String::new(), Endian::NATIVE);
    let element = Hdf5ElementType { words, data_type, endian, native: None, enumeration: None };
    let mut tables = ChunkTableLimits::new(limits);
    let storage = storage::describe(file, &dataset, &array.shape, &element, &mut tables)?;
    let attributes = Vec::new();
    let raw = ForeignArray { storage, data_type, endian, attributes, fill_value, ..array.clone() };
    let invalid = |reason| ChunkMapError::Invalid { path: array.path.clone(), reason };
    raw.check_chunks(file.size(), limits).map_err(invalid)?;
    Ok(Some(raw))
}

impl Hdf5File<'_> {
    /// Resolves stored `elements` of an array from [`stored_texts`] to their texts.
    ///
    /// # Errors
    /// [`Hdf5Error`].
    pub fn texts(&self, elements: &[u8]) -> std::result::Result<StoredTexts, Hdf5Error> {
        let places = self.places(elements)?;
        let mut texts = StoredTexts::default();
        let mut announced = 0;
        for (number, (length, place)) in places.iter().enumerate() {
            if number >= announced {
                announced = number.saturating_add(self.announce_heaps(places.get(number..))?);
            }
            let before = texts.bytes.len();
            if *length > 0 {
                let object = self.heaps.object(&self.source, *place)?;
                texts.bytes.extend_from_slice(text_of(&object, *length)?);
            }
            texts.lengths.push(texts.bytes.len().saturating_sub(before) as u64);
        }
        Ok(texts)
    }

    /// Decodes the length and the heap reference of each text.
    fn places(&self, elements: &[u8]) -> Result<Vec<(u32, HeapReference)>> {
        let widths = self.source.widths;
        let block = FileBlock { bytes: elements.to_vec(), at: 0, widths };
        let mut cursor = block.cursor();
        let mut places = Vec::new();
        while !cursor.is_empty() {
            places.push((cursor.u32()?, HeapReference::decode(&mut cursor)?));
        }
        Ok(places)
    }

    /// Announces the heaps of the first elements, and returns the number of elements that they
    /// cover.
    fn announce_heaps(&self, places: Option<&[(u32, HeapReference)]>) -> Result<usize> {
        let places = places.unwrap_or_default();
        let mut heaps = HashSet::new();
        let is_announced = |(length, place): &&(u32, HeapReference)| {
            if let (Some(address), true) = (place.collection, *length > 0) {
                heaps.insert(address);
            }
            heaps.len() <= ANNOUNCED_MAX
        };
        let count = places.iter().take_while(is_announced).count();
        self.source.announce(heaps.into_iter().map(|address| (address, HEAP_BYTES)))?;
        Ok(count.max(1))
    }
}

/// Returns a text of up to `length` bytes in a heap object; it ends before the first NUL, as in
/// h5py.
fn text_of(object: &FileBlock, length: u32) -> Result<&[u8]> {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let Some(text) = object.bytes.get(..length) else {
        return Err(Hdf5Error::corrupt(object.at, "a text longer than its heap object"));
    };
    let end = text.iter().position(|byte| *byte == 0);
    Ok(end.and_then(|end| text.get(..end)).unwrap_or(text))
}
