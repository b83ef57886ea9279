//! What an array or group is: parsed from Zarr v3 and v2 documents, written as v3.
//!
//! The documents are read by hand from [`serde_json::Value`] and not through a metadata crate: an
//! error can then name the field at fault, a document can be written back with every key that we do
//! not know in its place, and doubtful documents (keys twice, bare NaN) are ours to judge.

mod choice;
mod element_type;
mod fill;
mod structure;
mod summary;
#[cfg(test)]
mod tests;
mod v2;
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

/// The parsed description of one array.
#[derive(Debug, Clone, PartialEq)]
pub struct ArrayMetadata {
    /// Elements along each axis.
    pub shape: Vec<u64>,
    /// Type of the elements.
    pub data_type: DataType,
    /// The fields of structured elements, which `data_type` has as bytes.
    pub structure: Option<Structure>,
    /// Elements of a chunk object (of a shard, where arrays are sharded) along each axis.
    pub chunk_shape: Vec<u64>,
    /// How objects are named.
    pub keys: ChunkKeys,
    /// What elements are that were never written.
    pub fill_value: FillValue,
    /// What lies in a chunk object.
    pub encoding: Encoding,
    /// Names of the axes, where given.
    pub dimension_names: Option<Vec<Option<String>>>,
    /// The user's attributes, which stay text until somebody asks for one.
    pub attributes: ObjectText,
    /// Identity and stamps, if Bedform made the array.
    pub identity: Option<Identity>,
    /// The order of the chunks in a shard that Bedform writes, by name.
    pub order: Option<String>,
    /// How the codecs were chosen, or that they are not yet; nothing where they were named.
    pub choice: Option<CodecChoice>,
    /// 2 or 3.
    pub zarr_format: u8,
}

/// What lies in a chunk object.
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
    /// Elements of an inner chunk along each axis.
    pub chunk_shape: Vec<u64>,
    /// How an inner chunk becomes bytes.
    pub inner: Box<Encoding>,
    /// Whether a CRC-32C follows the index.
    pub index_checked: bool,
    /// Whether the index lies before the chunks.
    pub index_at_start: bool,
}

/// How the coordinates of a chunk object become its name below the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkKeys {
    /// Whether the name starts with `c` (Zarr v3's default keys).
    pub prefixed: bool,
    /// `/` or `.`.
    pub separator: char,
}

impl ChunkKeys {
    /// Zarr v3's default: `c/0/1`.
    pub const DEFAULT: Self = Self { prefixed: true, separator: '/' };

    /// The name of the chunk object at `coordinates`.
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

    /// The coordinates that a name of [`ChunkKeys::name`] stands for.
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

/// Who made an array: what stamps in its shards are held against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Random, of the store.
    pub store: [u8; 16],
    /// Random, of the array.
    pub array: [u8; 16],
}

impl ArrayMetadata {
    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// The shard encoding, if the array is sharded.
    pub fn shard(&self) -> Option<&ShardEncoding> {
        match &self.encoding {
            Encoding::Shard(shard) => Some(shard),
            Encoding::Chunk(_) => None,
        }
    }

    /// Elements along each axis of the unit of encoding: of an inner chunk where the array is
    /// sharded, of a chunk object where it is not.
    pub fn inner_chunk_shape(&self) -> &[u64] {
        self.shard().map_or(&self.chunk_shape, |shard| &shard.chunk_shape)
    }
}
