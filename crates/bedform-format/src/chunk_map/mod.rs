//! Chunk maps: the extents of the bytes of every variable of a foreign file.
//!
//! A parser or library for the file's format is asked once, and the answer is stored as a chunk
//! map. After that, the engine reads NetCDF and HDF5 files without HDF5 and without Python.
//!
//! [`ChunkMap::decode`] and [`ChunkMap::from_description`] return only checked maps. Every extent
//! lies inside the file, and every array has a size that fits 63 bits. Every chunk index lies in
//! the grid, and every path is an [`ObjectPath`](crate::ObjectPath). The file may have changed
//! since: compare [`ChunkMap::source`].
//!
//! # Bytes
//!
//! All numbers are little-endian.
//!
//! | bytes | content |
//! |---|---|
//! | 8 | magic `BFCHMAP` and a zero |
//! | 4 | version of this format, 1 |
//! | 4 | number of chunk tables |
//! | 8 | bytes of the description |
//! | .. | the description: JSON, one [`ChunkMap`] without its chunk tables |
//! | .. | for each chunked array, in the description's order, a table: its number of chunks (8), then columns: chunk indexes (8 each), offsets (8), lengths (8), filter masks (4) |
//! | 4 | CRC-32C of everything before |
//!
//! In the description an attribute is `{"text": ".."}`, `{"texts": [..]}` or `{"values":
//! {"data_type": "f4", "endian": "little", "shape": null, "data": "0000803f"}}`. A shape of null is
//! a single number, a list an array. Attributes are `[name, attribute]` pairs in the order of the
//! file. Bytes of a text that are not UTF-8 are marked as [`text_of_bytes`] does. Binary data are
//! hexadecimal.
//!
//! [`text_of_bytes`]: crate::json::text_of_bytes

pub(crate) mod check;
mod description;
#[cfg(test)]
mod tests;
pub(crate) mod wire;

use serde::{Deserialize, Serialize};

use crate::codec::{BytesCodec, CodecChain, Serializer};
use crate::{DataType, Endian};
use description as form;

/// The extents of the bytes of every variable of one foreign file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChunkMap {
    /// Version of the file from which the map was made.
    pub source: SourceVersion,
    /// `netcdf-classic-1`, `netcdf-classic-2`, `netcdf-classic-5`, `netcdf4` or `hdf5`.
    pub format: String,
    /// All groups; the root is first, and parents precede children.
    pub groups: Vec<ForeignGroup>,
    /// All variables.
    pub arrays: Vec<ForeignArray>,
}

/// The result of parsing the first bytes of a file whose header is its chunk map.
#[derive(Debug, Clone, PartialEq)]
pub enum ParsedHeader {
    /// The chunk map.
    Complete(Box<ChunkMap>),
    /// The header is longer than the given bytes: try again with at least this many.
    Incomplete {
        /// Length from the start of the file in bytes: more than were given, at most the file's
        /// size.
        bytes_needed: u64,
    },
}

/// The version of the file from which a map was made; it has the fields of a version in the storage
/// crate. Equal versions stand for the same bytes. Comparison ignores the device number of a file
/// with a time of attribute changes: another machine, or the same one after a restart, may number
/// mounts otherwise.
#[derive(Debug, Clone, Default, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceVersion {
    /// Size of the file in bytes.
    pub size: u64,
    /// Time of the last change of the bytes, in nanoseconds since 1970.
    pub modified_ns: i64,
    /// Time of the last change of bytes or attributes, in nanoseconds since 1970.
    pub changed_ns: i64,
    /// Device and file number, or a hash of the ETag.
    pub identity: (u64, u64),
}

impl PartialEq for SourceVersion {
    fn eq(&self, other: &Self) -> bool {
        let Self { size, modified_ns, changed_ns, identity: (first, second) } = self;
        let of_file = *changed_ns != 0;
        (*size, *modified_ns, *changed_ns, *second)
            == (other.size, other.modified_ns, other.changed_ns, other.identity.1)
            && (of_file || *first == other.identity.0)
    }
}

/// A group of a foreign file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForeignGroup {
    /// Path inside the file; empty for the root.
    pub path: String,
    /// Attributes in file order, without those that netCDF libraries hide.
    pub attributes: Vec<(String, ForeignAttribute)>,
    /// Dimensions that the group itself defines.
    pub dimensions: Vec<ForeignDimension>,
    /// Members that are not shown, because they are in another file or have an invalid name. Also
    /// attributes that are neither text nor numbers: `variable:attribute`, or `:attribute` for
    /// those of the group.
    pub refused: Vec<RefusedMember>,
}

/// A dimension of a foreign file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForeignDimension {
    /// Its name.
    pub name: String,
    /// Its current length.
    pub size: u64,
    /// True if it can grow.
    pub unlimited: bool,
    /// True if the file does not name it and the name was made up.
    #[serde(default)]
    pub phony: bool,
}

/// A member of a group that is not shown, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefusedMember {
    /// Its name in the group.
    pub name: String,
    /// The reason, and the remedy.
    pub reason: String,
}

/// A variable of a foreign file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForeignArray {
    /// Path inside the file.
    pub path: String,
    /// Length of each axis.
    pub shape: Vec<u64>,
    /// For each axis, true if it can grow.
    pub unlimited: Vec<bool>,
    /// Type of the elements; `None` if only the native library has one (compounds, references).
    #[serde(with = "form::optional_data_type")]
    pub data_type: Option<DataType>,
    /// Byte order of stored numbers.
    #[serde(with = "form::endian")]
    pub endian: Endian,
    /// The stored bytes of one fill value; `None` stands for zeros.
    #[serde(with = "form::optional_hexadecimal")]
    pub fill_value: Option<Vec<u8>>,
    /// Name of each axis.
    pub dimension_names: Option<Vec<String>>,
    /// Attributes in file order, without those that netCDF libraries hide.
    pub attributes: Vec<(String, ForeignAttribute)>,
    /// Storage properties from the file, for people and for xarray.
    pub encoding: ForeignEncoding,
    /// Location of the bytes.
    pub storage: ForeignStorage,
}

/// The storage properties of a foreign variable, in the terms of its format.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForeignEncoding {
    /// Type as NumPy's name with byte order (`<f4`), `str` for text of variable length, or the
    /// library's name of any other type.
    pub dtype: String,
    /// Chunk shape of a chunked variable.
    pub chunks: Option<Vec<u64>>,
    /// Filters, in the order in which a writer applies them.
    pub filters: Vec<ForeignFilter>,
    /// Members of an enumeration.
    pub enumeration: Option<Enumeration>,
    /// True if the file names no dimension of the variable, so that the names were made up.
    #[serde(default)]
    pub unlabeled: bool,
    /// True for NetCDF classic, which has no chunks, filters or choice of byte order.
    #[serde(default)]
    pub classic: bool,
}

/// A filter of an HDF5 dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForeignFilter {
    /// Registered identifier.
    pub id: u32,
    /// Parameters.
    pub values: Vec<u32>,
}

/// The names of the values of an enumeration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Enumeration {
    /// Name of the type, or empty.
    pub name: String,
    /// Names and values; values are decimal text, since they may need all 64 bits.
    pub members: Vec<(String, String)>,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForeignAttribute {
    /// Text.
    Text(String),
    /// A list of texts.
    Texts(Vec<String>),
    /// A number or an array of numbers.
    Values(AttributeValues),
}

/// A number or an array of numbers in an attribute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttributeValues {
    /// Type of the numbers.
    #[serde(with = "form::data_type")]
    pub data_type: DataType,
    /// Byte order of `data`, and of the type that a reader returns.
    #[serde(with = "form::endian")]
    pub endian: Endian,
    /// `None` for a single number.
    pub shape: Option<Vec<u64>>,
    /// The numbers, in C order.
    #[serde(with = "form::hexadecimal")]
    pub data: Vec<u8>,
}

/// The location of a variable's bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ForeignStorage {
    /// One extent holds all elements in C order.
    Contiguous {
        /// Offset in the file, in bytes.
        offset: u64,
        /// Length in bytes.
        length: u64,
    },
    /// The map holds the elements, in C order.
    Compact {
        /// The elements.
        #[serde(with = "form::hexadecimal")]
        data: Vec<u8>,
    },
    /// Chunks in a regular grid; chunks at the upper edges are stored whole.
    Chunked {
        /// Chunk shape.
        chunk_shape: Vec<u64>,
        /// One codec for each filter of the file, in the order in which a writer applies them. Bit
        /// `i` of a chunk's filter mask means that filter `i` was skipped for that chunk.
        #[serde(with = "form::codecs")]
        codecs: Vec<BytesCodec>,
        /// The stored chunks; all others hold the fill value.
        #[serde(skip)]
        chunks: ChunkTable,
    },
    /// One extent per index of the first axis, interleaved with the extents of other variables.
    Records {
        /// Offset of the first record, in bytes.
        offset: u64,
        /// Distance between records in bytes.
        stride: u64,
        /// Length of one record in bytes.
        length: u64,
    },
    /// The native library must read the variable.
    Native {
        /// The reason.
        reason: String,
    },
    /// Never written: every element has the fill value.
    Empty,
}

/// The chunks of one array, sorted by index. All columns have the same length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChunkTable {
    /// Positions of the chunks in C order of the grid.
    pub indexes: Vec<u64>,
    /// Offsets in the file, in bytes.
    pub offsets: Vec<u64>,
    /// Stored lengths in bytes.
    pub lengths: Vec<u64>,
    /// Masks of the filters that were skipped, one bit for each filter.
    pub filter_masks: Vec<u32>,
}

/// One chunk of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkEntry {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Stored length in bytes.
    pub length: u64,
    /// Mask of the filters that were skipped.
    pub filter_mask: u32,
}

impl ChunkTable {
    /// Bytes of a chunk in all four columns.
    pub const ENTRY_BYTES: u64 = 28;

    /// Returns the number of chunks.
    pub fn len(&self) -> usize {
        self.indexes.len()
    }

    /// Returns true if there are no chunks.
    pub fn is_empty(&self) -> bool {
        self.indexes.is_empty()
    }

    /// Returns the chunk at this position of the grid; `None` if it was never written.
    ///
    /// ```
    /// use bedform_format::chunk_map::ChunkTable;
    /// let table = ChunkTable {
    ///     indexes: vec![0, 7],
    ///     offsets: vec![512, 640],
    ///     lengths: vec![128, 90],
    ///     filter_masks: vec![0, 0],
    /// };
    /// assert_eq!(table.find(7).unwrap().offset, 640);
    /// assert!(table.find(1).is_none());
    /// ```
    pub fn find(&self, index: u64) -> Option<ChunkEntry> {
        // Most tables contain every chunk, so that the row is the index.
        let direct = usize::try_from(index).ok().filter(|&at| self.indexes.get(at) == Some(&index));
        let at = direct.or_else(|| self.indexes.binary_search(&index).ok())?;
        Some(ChunkEntry {
            offset: *self.offsets.get(at)?,
            length: *self.lengths.get(at)?,
            filter_mask: *self.filter_masks.get(at)?,
        })
    }
}

impl AttributeValues {
    /// Returns true for types that NetCDF lacks; its library shows no such attributes.
    pub fn is_not_netcdf(&self) -> bool {
        use DataType as T;
        matches!(self.data_type, T::Bool | T::Float16 | T::Complex64 | T::Complex128)
    }
}

impl ForeignArray {
    /// Returns the codecs that decode a chunk, or a whole array without chunks.
    pub fn codec_chain(&self) -> CodecChain {
        let bytes = match &self.storage {
            ForeignStorage::Chunked { codecs, .. } => codecs.clone(),
            _ => Vec::new(),
        };
        CodecChain { transpose: None, serializer: Serializer::Bytes(self.endian), bytes }
    }

    /// Returns the fill value in the machine's byte order; `None` for types of variable size.
    pub fn fill_element(&self) -> Option<Vec<u8>> {
        let data_type = self.data_type?;
        let size = data_type.item_size()?;
        let mut element = self.fill_value.clone().unwrap_or_else(|| vec![0; size]);
        if self.endian != Endian::NATIVE {
            element.chunks_mut(data_type.swap_size().max(1)).for_each(<[u8]>::reverse);
        }
        Some(element)
    }
}

impl ChunkMap {
    /// Returns the array at this path.
    pub fn array(&self, path: &str) -> Option<&ForeignArray> {
        self.arrays.iter().find(|array| array.path == path)
    }

    /// Returns the group at this path; the root's path is empty.
    pub fn group(&self, path: &str) -> Option<&ForeignGroup> {
        self.groups.iter().find(|group| group.path == path)
    }
}

/// The reason why a chunk map was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChunkMapError {
    /// The bytes are not a chunk map.
    #[error("not a chunk map: its first bytes are not BFCHMAP")]
    NotAChunkMap,
    /// Written by a newer Bedform.
    #[error(
        "chunk map version {found}; this Bedform reads up to {supported}: delete it to have it \
         made again, or use a newer Bedform"
    )]
    NewerVersion {
        /// The version found.
        found: u32,
        /// The newest version that this code reads.
        supported: u32,
    },
    /// Cut short, or longer than it says.
    #[error("chunk map of {bytes} bytes: {what}")]
    Length {
        /// Length of the input in bytes.
        bytes: u64,
        /// The mismatch.
        what: &'static str,
    },
    /// The bytes have changed since they were written.
    #[error("chunk map: CRC-32C is {found:08x}, expected {expected:08x}")]
    Checksum {
        /// The stored checksum.
        expected: u32,
        /// The checksum of the bytes.
        found: u32,
    },
    /// The description has another form than the module header defines.
    #[error("chunk map, description: {0}")]
    Description(String),
    /// A statement that cannot hold for the file, or that exceeds a limit.
    #[error("chunk map, {path:?}: {reason}")]
    Invalid {
        /// Path of the array or group.
        path: String,
        /// The broken rule.
        reason: String,
    },
}
