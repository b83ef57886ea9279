//! A parser for the metadata of HDF5 and NetCDF-4 files: groups, datasets, attributes, extents of
//! chunks.
//!
//! [`Hdf5File`] reads a file through a [`ReadAt`], from a local disk or a URL, in aligned blocks;
//! it caches up to 16 MiB of them. Nodes and blocks of an index are announced before use, and
//! fetched concurrently if that is faster ([`ReadAt::read_many`]); up to 8 MiB of them are kept.
//! Objects, listings and chunk indexes are parsed on demand; elements of datasets are never read.
//! [`chunk_map`] describes a whole file for the engine.
//!
//! # Errors
//!
//! [`Hdf5Error::Unknown`] names a part of the format that this parser does not read but the HDF5
//! library may. [`Hdf5Error::Corrupt`] names the byte, [`Hdf5Error::Limit`] the limit.
//!
//! # Hostile files
//!
//! Every length is checked against the size of the file and the limits before memory is allocated.
//! Arithmetic is checked. Levels of a tree decrease by one, each piece of a header is read once,
//! and the depth of types and values is limited. The parser counts all bytes that it uses of a
//! file. They may be 16 MiB plus 64 times the file's size, and at most
//! [`Limits::hdf5_bytes_max`](crate::Limits::hdf5_bytes_max).
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | `source`, `ahead`, `cursor`, `checksum` | the bytes of a file: blocks, readahead, fields, checksums |
//! | `superblock`, `object_header`, `shared` | the start of a file; messages of objects, and shared messages |
//! | `dataspace`, `datatype`, `filter`, `layout`, `attribute`, `link` | the kinds of messages |
//! | `btree_v1`, `btree_v2`, `fractal_heap`, `global_heap` | trees and heaps |
//! | `group`, `object`, `chunk_index`, `value` | links, objects, extents of chunks, values of attributes |
//! | `chunk_map` | the description of a whole file for the engine |
//! | `everything` | reads all content of a file, for fuzzers and tests |
//!
//! The format is that of the "HDF5 File Format Specification Version 3.0", with the layouts of
//! version 5 and the complex numbers of HDF5 2.0.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod ahead;
mod attribute;
mod btree_v1;
mod btree_v2;
mod checksum;
mod chunk_index;
mod chunk_map;
mod cursor;
mod dataspace;
mod datatype;
mod error;
mod everything;
mod filter;
mod fractal_heap;
mod global_heap;
mod group;
mod layout;
mod link;
mod object;
mod object_header;
mod shared;
mod source;
mod superblock;
#[cfg(test)]
mod tests;
mod value;

use std::cell::Cell;

use crate::Limits;

pub use attribute::Attribute;
pub use chunk_index::{Chunk, TakeChunk};
pub use chunk_map::{
    StoredTexts, chunk_map, chunk_map_of_group, chunk_map_without_tables, chunk_table, stored_texts,
};
pub use dataspace::Dataspace;
pub use datatype::{
    BitRange, ByteOrder, CompoundMember, Datatype, FloatFormat, Padding, ReferenceKind, TextFormat,
    TypeKind,
};
pub use error::{Hdf5Error, ReadError};
pub use everything::look_at_everything;
pub use filter::{Hdf5FillValue, PipelineFilter};
pub use group::GroupLinks;
pub use layout::{ChunkIndex, ChunkLayout, Hdf5Layout};
pub use link::{Link, LinkTarget};
pub use object::{Dataset, Hdf5Object, ObjectKind};
pub use source::{ManyRead, ReadAt};
pub use superblock::Superblock;
pub use value::Hdf5Value;

/// Recommended length of blocks on local disks, in bytes.
pub const BLOCK_BYTES: usize = 64 << 10;

/// An open HDF5 file.
pub struct Hdf5File<'r> {
    source: source::CountedFile<'r>,
    superblock: Superblock,
    heaps: global_heap::GlobalHeaps,
}

impl<'r> Hdf5File<'r> {
    /// Opens a file of `size` bytes and reads its superblock.
    ///
    /// Requests are for `block_bytes` bytes: [`BLOCK_BYTES`] on local disks, more where a request
    /// has a high latency.
    ///
    /// ```
    /// use bedform_format::{Limits, hdf5::{BLOCK_BYTES, Hdf5Error, Hdf5File}};
    /// let bytes: &[u8] = b"no HDF5";
    /// let opened = Hdf5File::open(&bytes, 7, BLOCK_BYTES, &Limits::default());
    /// assert!(matches!(opened.err(), Some(Hdf5Error::NotHdf5)));
    /// ```
    ///
    /// # Errors
    /// [`Hdf5Error`].
    pub fn open(
        reader: &'r dyn ReadAt,
        size: u64,
        block_bytes: usize,
        limits: &Limits,
    ) -> Result<Self, Hdf5Error> {
        Self::of(source::CountedFile::new(reader, size, block_bytes, limits))
    }

    /// As [`Hdf5File::open`], but ignores checksums, which a fuzzer's input never satisfies.
    ///
    /// # Errors
    /// [`Hdf5Error`].
    #[doc(hidden)]
    pub fn open_unchecked(
        reader: &'r dyn ReadAt,
        size: u64,
        block_bytes: usize,
        limits: &Limits,
    ) -> Result<Self, Hdf5Error> {
        let mut source = source::CountedFile::new(reader, size, block_bytes, limits);
        source.checks_sums = false;
        Self::of(source)
    }

    fn of(mut source: source::CountedFile<'r>) -> Result<Self, Hdf5Error> {
        let superblock = superblock::read(&mut source)?;
        Ok(Self { source, superblock, heaps: global_heap::GlobalHeaps::default() })
    }

    /// Returns the size of the file in bytes.
    pub(super) fn size(&self) -> u64 {
        self.source.size()
    }

    /// Returns the content of the superblock and its extension.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Reads the object at an address: that of the root group, of a link, or of a reference.
    ///
    /// # Errors
    /// [`Hdf5Error`].
    pub fn object(&self, address: u64) -> Result<Hdf5Object, Hdf5Error> {
        Hdf5Object::read(&self.source, address)
    }

    /// Reads the links of a group; empty for other objects.
    ///
    /// # Errors
    /// [`Hdf5Error`].
    pub fn links(&self, group: &Hdf5Object) -> Result<GroupLinks, Hdf5Error> {
        group::read_links(&self.source, &group.header)
    }

    /// Reads the attributes of an object, in creation order if the object tracks it, else by name.
    ///
    /// # Errors
    /// [`Hdf5Error`].
    pub fn attributes(&self, object: &Hdf5Object) -> Result<Vec<Attribute>, Hdf5Error> {
        attribute::read_all(&self.source, &object.header)
    }

    /// Decodes the elements of an attribute in C order; those of variable length are read from
    /// their heap.
    ///
    /// # Errors
    /// [`Hdf5Error`].
    pub fn values(&self, attribute: &Attribute) -> Result<Vec<Hdf5Value>, Hdf5Error> {
        let bytes_left = Cell::new(self.source.limits.attributes_bytes_max);
        let decoder = value::Decoder { source: &self.source, heaps: &self.heaps, bytes_left };
        let count = attribute.space.element_count().unwrap_or(u64::MAX);
        let bytes = attribute.data.clone();
        let block = cursor::FileBlock { bytes, at: attribute.at, widths: self.source.widths };
        let depth_max = self.source.limits.type_depth_max;
        decoder.elements(&attribute.datatype, count, &mut block.cursor(), depth_max)
    }

    /// Calls `take` with every written chunk of a dataset, in the order of its index; never for a
    /// dataset without chunks.
    ///
    /// # Errors
    /// [`Hdf5Error`], and any error of `take`.
    pub fn chunks(&self, dataset: &Dataset, take: TakeChunk<'_>) -> Result<(), Hdf5Error> {
        match &dataset.layout {
            Hdf5Layout::Chunked(layout) => {
                chunk_index::for_each(&self.source, dataset, layout, take)
            }
            _ => Ok(()),
        }
    }
}
