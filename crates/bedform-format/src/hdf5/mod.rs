//! Metadata of HDF5 files, NetCDF-4 files among them: groups, datasets, attributes, places of
//! chunks.
//!
//! [`Hdf5File`] reads a file through a [`ReadAt`], in aligned blocks of which it keeps up to 16
//! MiB, so that it serves local disks and URLs alike. Nodes and blocks of an index are announced
//! before they are used, and fetched many at once where that is faster
//! ([`ReadAt::read_many`]): up to 8 MiB of them are kept. It parses an object, a listing or a chunk
//! index when it is asked for, and never reads elements. [`chunk_map`] makes of a whole file what
//! the engine needs.
//!
//! # Errors
//!
//! [`Hdf5Error::Unknown`] names a part of the format that this parser does not read: the HDF5
//! library may. [`Hdf5Error::Corrupt`] names the byte, [`Hdf5Error::Limit`] the limit.
//!
//! # Hostile files
//!
//! Every length is checked against the size of the file and the limits before memory is allocated.
//! Arithmetic is checked. Levels of a tree go down by one, a piece of a header is read once, types
//! and values have a depth. All bytes that are used of a file are counted, and may be 16 MiB and 64
//! times its size, at most [`Limits::hdf5_bytes_max`](crate::Limits::hdf5_bytes_max).
//!
//! # Modules
//!
//! | module | holds |
//! |---|---|
//! | `source`, `ahead`, `cursor`, `checksum` | bytes of the file, those that were announced, fields in them, their checksum |
//! | `superblock`, `object_header`, `shared` | where the file begins; messages of objects, and those that objects share |
//! | `dataspace`, `datatype`, `filter`, `layout`, `attribute`, `link` | what messages say |
//! | `btree_v1`, `btree_v2`, `fractal_heap`, `global_heap` | trees and heaps |
//! | `group`, `object`, `chunk_index`, `value` | links, objects, places of chunks, values of attributes |
//! | `chunk_map` | all of it as the engine reads it |
//! | `everything` | all that a file says, for fuzzers and tests |
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
    BitRange, ByteOrder, Datatype, FloatFormat, Member, Padding, ReferenceKind, TextFormat,
    TypeKind,
};
pub use error::{Hdf5Error, ReadError};
pub use everything::look_at_everything;
pub use filter::{FillValue, PipelineFilter};
pub use group::Links;
pub use layout::{ChunkIndex, ChunkLayout, Layout};
pub use link::{Link, LinkTarget};
pub use object::{Dataset, Object, ObjectKind};
pub use source::{ManyRead, ReadAt};
pub use superblock::Superblock;
pub use value::Value;

/// Bytes of the blocks that are asked for on local disks.
pub const BLOCK_BYTES: usize = 64 << 10;

/// An HDF5 file, opened.
pub struct Hdf5File<'r> {
    source: source::Source<'r>,
    superblock: Superblock,
    heaps: global_heap::GlobalHeaps,
}

impl<'r> Hdf5File<'r> {
    /// Reads the superblock of a file of `size` bytes.
    ///
    /// `block_bytes` are asked for at once: [`BLOCK_BYTES`] on local disks, more where a request is
    /// dear.
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
        Self::of(source::Source::new(reader, size, block_bytes, limits))
    }

    /// As [`Hdf5File::open`], without a look at checksums: for fuzzers, whose inputs have none that
    /// is right.
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
        let mut source = source::Source::new(reader, size, block_bytes, limits);
        source.checks_sums = false;
        Self::of(source)
    }

    fn of(mut source: source::Source<'r>) -> Result<Self, Hdf5Error> {
        let superblock = superblock::read(&mut source)?;
        Ok(Self { source, superblock, heaps: global_heap::GlobalHeaps::default() })
    }

    /// Bytes of the file.
    pub(super) fn size(&self) -> u64 {
        self.source.size()
    }

    /// What the superblock says.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The object at an address: that of the root, of a link, or of a reference.
    ///
    /// # Errors
    /// [`Hdf5Error`].
    pub fn object(&self, address: u64) -> Result<Object, Hdf5Error> {
        Object::read(&self.source, address)
    }

    /// The names in a group; none in other objects.
    ///
    /// # Errors
    /// [`Hdf5Error`].
    pub fn links(&self, group: &Object) -> Result<Links, Hdf5Error> {
        group::read_links(&self.source, &group.header)
    }

    /// The attributes of an object: in the order in which they were made where the object tracks
    /// that, else by name.
    ///
    /// # Errors
    /// [`Hdf5Error`].
    pub fn attributes(&self, object: &Object) -> Result<Vec<Attribute>, Hdf5Error> {
        attribute::read_all(&self.source, &object.header)
    }

    /// The elements of an attribute in C order; those of variable length come from their heap.
    ///
    /// # Errors
    /// [`Hdf5Error`].
    pub fn values(&self, attribute: &Attribute) -> Result<Vec<Value>, Hdf5Error> {
        let bytes_left = Cell::new(self.source.limits.attributes_bytes_max);
        let decoder = value::Decoder { source: &self.source, heaps: &self.heaps, bytes_left };
        let count = attribute.space.element_count().unwrap_or(u64::MAX);
        let bytes = attribute.data.clone();
        let block = cursor::Block { bytes, at: attribute.at, widths: self.source.widths };
        let depth_max = self.source.limits.type_depth_max;
        decoder.elements(&attribute.datatype, count, &mut block.cursor(), depth_max)
    }

    /// Calls `take` with every chunk of a dataset that was written, in the order of its index;
    /// never for a dataset without chunks.
    ///
    /// # Errors
    /// [`Hdf5Error`], and that of `take`.
    pub fn chunks(&self, dataset: &Dataset, take: TakeChunk<'_>) -> Result<(), Hdf5Error> {
        match &dataset.layout {
            Layout::Chunked(layout) => chunk_index::for_each(&self.source, dataset, layout, take),
            _ => Ok(()),
        }
    }
}
