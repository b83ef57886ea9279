//! Global heaps, which store elements of variable length.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::cursor::{Cursor, FileBlock};
use super::error::{Hdf5Error, Result};
use super::source::CountedFile;

/// A reference to an object in a global heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HeapReference {
    /// Address of the collection; `None` for an empty element.
    pub(super) collection: Option<u64>,
    /// Index of the object in the collection.
    pub(super) index: u32,
}

/// A cache of the collections that were read.
#[derive(Default)]
pub(super) struct GlobalHeaps {
    kept: RefCell<CollectionCache>,
}

#[derive(Default)]
struct CollectionCache {
    collections: HashMap<u64, Rc<Collection>>,
    bytes: usize,
}

/// Largest total length of cached collections, in bytes.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// A collection: objects stored together, by index.
struct Collection {
    block: FileBlock,
    /// Offset in the block and length of each object, in bytes.
    objects: HashMap<u32, (usize, usize)>,
}

impl HeapReference {
    pub(super) const NOTHING: Self = Self { collection: None, index: 0 };

    pub(super) fn decode(cursor: &mut Cursor<'_>) -> Result<Self> {
        Ok(Self { collection: cursor.address()?, index: cursor.u32()? })
    }
}

impl GlobalHeaps {
    /// Returns the referenced object; empty for an empty reference.
    pub(super) fn object(
        &self,
        source: &CountedFile<'_>,
        reference: HeapReference,
    ) -> Result<FileBlock> {
        let Some(address) = reference.collection.filter(|address| *address != 0) else {
            return Ok(FileBlock { bytes: Vec::new(), at: 0, widths: source.widths });
        };
        let collection = self.collection(source, address)?;
        let found = collection.objects.get(&reference.index);
        let block = &collection.block;
        let &(start, length) = found.ok_or_else(|| {
            let what = format!("heap object {} that there is not", reference.index);
            Hdf5Error::corrupt(block.at, what)
        })?;
        source.spend(length as u64)?;
        let mut cursor = block.cursor();
        cursor.skip(start)?;
        let at = cursor.at();
        Ok(FileBlock { bytes: cursor.take(length)?.to_vec(), at, widths: block.widths })
    }

    fn collection(&self, source: &CountedFile<'_>, address: u64) -> Result<Rc<Collection>> {
        if let Some(collection) = self.kept.borrow().collections.get(&address) {
            return Ok(Rc::clone(collection));
        }
        let collection = Rc::new(Collection::read(source, address)?);
        let mut kept = self.kept.borrow_mut();
        let bytes = collection.block.bytes.len();
        kept.bytes = kept.bytes.saturating_add(bytes);
        if kept.bytes > KEPT_BYTES_MAX {
            kept.collections.clear();
            kept.bytes = bytes;
        }
        kept.collections.insert(address, Rc::clone(&collection));
        Ok(collection)
    }
}

impl Collection {
    fn read(source: &CountedFile<'_>, address: u64) -> Result<Self> {
        let lengths = u64::from(source.widths.length);
        let head = source.block(address, lengths.saturating_add(8))?;
        let mut cursor = head.cursor();
        cursor.signature(*b"GCOL")?;
        cursor.version(1, "a global heap")?;
        cursor.skip(3)?;
        let length = cursor.length()?;
        let bytes_max = source.limits.attributes_bytes_max;
        if length > bytes_max {
            return Err(Hdf5Error::limit(format!("a heap of {length} bytes, {bytes_max} allowed")));
        }
        let block = source.block(address, length)?;
        let mut cursor = block.cursor();
        // The head is padded to 8 bytes, like the objects.
        let head_bytes = head.bytes.len().next_multiple_of(8);
        let padding = head_bytes.saturating_sub(head.bytes.len());
        cursor.skip(head_bytes)?;
        let mut objects = HashMap::new();
        while cursor.len() >= head_bytes {
            let index = cursor.u16()?;
            cursor.skip(6)?;
            let length = usize::try_from(cursor.length()?).unwrap_or(usize::MAX);
            if index == 0 {
                // Index 0 is the free space, which comes last.
                break;
            }
            cursor.skip(padding)?;
            let start = block.bytes.len().saturating_sub(cursor.len());
            objects.insert(u32::from(index), (start, length));
            let padded = length.checked_next_multiple_of(8).unwrap_or(length);
            cursor.skip(padded)?;
        }
        Ok(Self { block, objects })
    }
}
