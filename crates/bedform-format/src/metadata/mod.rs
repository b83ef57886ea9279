//! Metadata of arrays and groups: parsed from Zarr v3 and v2 documents, written as v3, and for sets of
//! references as v2.
//!
//! The parser works on [`serde_json::Value`] instead of a metadata crate. So an error names the
//! field at fault, unknown keys survive rewriting, and Bedform decides about irregular documents
//! (duplicate keys, bare NaN).

mod choice;
mod element_type;
mod fill;
mod structure;
mod summary;
#[cfg(test)]
mod tests;
mod v2;
mod v2_writer;
mod v3;
mod writer;

use crate::json::ObjectText;
use crate::{CodecChain, DataType};

pub use crate::fields::MetadataError;
pub use choice::{CodecChoice, CodecComparison, ComparedCodec};
pub use element_type::parse_data_type;
pub use fill::FillValue;
pub use structure::Structure;
pub use summary::NodeSummary;
pub use v2::{parse_array_v2, parse_consolidated_v2};
pub use v2_writer::{write_array_v2, write_attributes_v2};
pub(crate) use v3::identity_field_up_to;
pub use v3::parse_hex;
pub use v3::{
    GroupDocument, GroupTexts, LogState, Replacing, parse_array, parse_codecs, parse_document,
    parse_group,
};
pub(crate) use writer::check_seal_in_form;
pub use writer::{
    check_seal, close_choice, hex, own_value, seal, seal_with, write_array, write_codecs,
    write_consolidated, write_data_type, write_group,
};

/// The parsed metadata of one array.
#[derive(Debug, Clone, PartialEq)]
pub struct ArrayMetadata {
    /// Length of each axis in elements.
    pub shape: Vec<u64>,
    /// Type of the elements.
    pub data_type: DataType,
    /// The fields of structured elements; `data_type` holds such an element as opaque bytes.
    pub structure: Option<Structure>,
    /// Shape of a chunk object in elements; of a shard, if the array is sharded.
    pub chunk_shape: Vec<u64>,
    /// The naming of chunk objects.
    pub keys: ChunkKeys,
    /// The value of elements that were never written.
    pub fill_value: FillValue,
    /// The encoding of a chunk object.
    pub encoding: Encoding,
    /// Names of the axes, if given.
    pub dimension_names: Option<Vec<Option<String>>>,
    /// The user's attributes as text, parsed on demand.
    pub attributes: ObjectText,
    /// Random identity of the store and array, if Bedform made the array.
    pub identity: Option<Identity>,
    /// Name of the order of the chunks in a shard that Bedform writes.
    pub order: Option<String>,
    /// State of the codec choice; `None` if the user named the codecs.
    pub choice: Option<CodecChoice>,
    /// Zarr version: 2 or 3.
    pub zarr_format: u8,
}

/// The encoding of a chunk object.
#[derive(Debug, Clone, PartialEq)]
pub enum Encoding {
    /// One encoded chunk.
    Chunk(CodecChain),
    /// A shard: many encoded chunks and an index.
    Shard(ShardEncoding),
}

/// A shard: the `sharding_indexed` codec.
#[derive(Debug, Clone, PartialEq)]
pub struct ShardEncoding {
    /// Shape of an inner chunk in elements.
    pub chunk_shape: Vec<u64>,
    /// The encoding of an inner chunk.
    pub inner: Box<Encoding>,
    /// True if a CRC-32C follows the index.
    pub index_checked: bool,
    /// True if the index precedes the chunks.
    pub index_at_start: bool,
}

/// The naming of chunk objects below an array, by coordinates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkKeys {
    /// True if names start with `c`, as in Zarr v3's default keys.
    pub prefixed: bool,
    /// `/` or `.`.
    pub separator: char,
}

impl ChunkKeys {
    /// Zarr v3's default: `c/0/1`.
    pub const DEFAULT: Self = Self { prefixed: true, separator: '/' };

    /// Returns the name of the chunk object at `coordinates`.
    ///
    /// ```
    /// use bedform_format::metadata::ChunkKeys;
    /// assert_eq!(ChunkKeys::DEFAULT.name(&[0, 12]), "c/0/12");
    /// assert_eq!(ChunkKeys::DEFAULT.name(&[]), "c");
    /// assert_eq!(ChunkKeys { prefixed: false, separator: '.' }.name(&[]), "0");
    /// ```
    pub fn name(self, coordinates: &[u64]) -> String {
        use std::fmt::Write as _;
        let mut name = String::with_capacity(2 + coordinates.len() * 4);
        if self.prefixed {
            name.push('c');
        } else if coordinates.is_empty() {
            name.push('0');
        }
        for (axis, coordinate) in coordinates.iter().enumerate() {
            if axis > 0 || self.prefixed {
                name.push(self.separator);
            }
            // Writing to a string cannot fail.
            let _ = write!(name, "{coordinate}");
        }
        name
    }

    /// Parses the coordinates from a name; reverses [`ChunkKeys::name`].
    pub fn parse(self, name: &str, rank: usize) -> Option<Vec<u64>> {
        let digits = match (self.prefixed, rank) {
            (true, 0) => return (name == "c").then(Vec::new),
            (false, 0) => return (name == "0").then(Vec::new),
            (true, _) => name.strip_prefix('c')?.strip_prefix(self.separator)?,
            (false, _) => name,
        };
        let coordinates: Option<Vec<u64>> = digits
            .split(self.separator)
            .map(|text| text.parse().ok().filter(|value: &u64| value.to_string() == text))
            .collect();
        coordinates.filter(|coordinates| coordinates.len() == rank)
    }
}

/// The identity of an array; stamps in its shards must match it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Random identity of the store.
    pub store: [u8; 16],
    /// Random identity of the array.
    pub array: [u8; 16],
}

impl ArrayMetadata {
    /// Returns the number of axes.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Returns the shard encoding, if the array is sharded.
    pub fn shard(&self) -> Option<&ShardEncoding> {
        match &self.encoding {
            Encoding::Shard(shard) => Some(shard),
            Encoding::Chunk(_) => None,
        }
    }

    /// Returns the shape of the unit of encoding in elements: an inner chunk of a sharded array, or
    /// else a chunk object.
    pub fn inner_chunk_shape(&self) -> &[u64] {
        self.shard().map_or(&self.chunk_shape, |shard| &shard.chunk_shape)
    }
}
