//! The chunk map: where the bytes of every variable of a foreign file lie.
//!
//! A library that knows the file's format is asked once; what it says is kept in this format of our
//! own, so that the engine reads NetCDF and HDF5 files without HDF5 and without Python.
//!
//! A [`ChunkMap`] that [`ChunkMap::decode`] or [`ChunkMap::from_description`] returned has been
//! checked: every extent lies inside the file as it was, every array has a size that fits 63 bits,
//! every chunk index is one of the grid, every path is an [`ObjectPath`](crate::ObjectPath). It says
//! nothing about a file that has changed since: compare [`ChunkMap::source`].
//!
//! # Bytes
//!
//! All numbers are little-endian.
//!
//! | bytes | holds |
//! |---|---|
//! | 8 | magic `BFCHMAP` and a zero |
//! | 4 | version of this format, 1 |
//! | 4 | number of chunk tables |
//! | 8 | bytes of the description |
//! | .. | the description: JSON, one [`ChunkMap`] without its chunk tables |
//! | .. | for each chunked array, in the description's order, a table: its number of chunks (8), then columns: chunk indexes (8 each), offsets (8), lengths (8), filter masks (4) |
//! | 4 | CRC-32C of everything before |
//!
//! In the description an attribute is `{"text": ".."}`, `{"texts": [..]}` or
//! `{"values": {"data_type": "f4", "endian": "little", "shape": null, "data": "0000803f"}}`, where a
//! shape of null is one number, and a list an array; attributes are `[name, attribute]` pairs in the
//! order of the file. Bytes of a text that are no UTF-8 are marked as [`text_of_bytes`] does. Binary data are
//! hexadecimal. Python makes NumPy values of them.
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

/// Where the bytes of every variable of one foreign file lie.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChunkMap {
    /// The file as it was when the map was made.
    pub source: SourceVersion,
    /// `netcdf-classic-1`, `netcdf-classic-2`, `netcdf-classic-5`, `netcdf4` or `hdf5`.
    pub format: String,
    /// All groups, the root first, each before those within it.
    pub groups: Vec<ForeignGroup>,
    /// All variables.
    pub arrays: Vec<ForeignArray>,
}

/// What the first bytes of a file gave, whose header is its chunk map.
#[derive(Debug, Clone, PartialEq)]
pub enum Header {
    /// All of it.
    Complete(Box<ChunkMap>),
    /// The header is longer than the bytes given: try again with this many or more.
    Incomplete {
        /// Bytes from the start of the file; more than were given, at most the file's size.
        bytes_needed: u64,
    },
}

/// Which bytes a map was made of: the same fields as a version in the storage crate. Versions are equal that stand for
/// the same bytes. Of a file, which has a time of the last change of attributes, the device does not count: its number
/// is a matter of the mount, which another machine, or the same one after a restart, numbers otherwise.
#[derive(Debug, Clone, Default, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceVersion {
    /// Bytes of the file.
    pub size: u64,
    /// Time of the last change of the bytes, in nanoseconds since 1970.
    pub modified_ns: i64,
    /// Time of the last change of bytes or attributes, likewise.
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
    /// Attributes in the order of the file, without those that a netCDF library hides.
    pub attributes: Vec<(String, Attribute)>,
    /// Dimensions that the group itself defines.
    pub dimensions: Vec<ForeignDimension>,
    /// Members that are not shown because they name another file, or cannot be named here; and attributes that
    /// no text and no number shows, as `variable:attribute`, those of the group as `:attribute`.
    pub refused: Vec<RefusedMember>,
}

/// A dimension of a foreign file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForeignDimension {
    /// Its name.
    pub name: String,
    /// Its length now.
    pub size: u64,
    /// Whether it can grow.
    pub unlimited: bool,
    /// Whether the file has no name for it and this one was made up.
    #[serde(default)]
    pub phony: bool,
}

/// A member of a group that is not shown, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefusedMember {
    /// Its name in the group.
    pub name: String,
    /// Why, and what to do.
    pub reason: String,
}

/// A variable of a foreign file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForeignArray {
    /// Path inside the file.
    pub path: String,
    /// Lengths of the axes.
    pub shape: Vec<u64>,
    /// For each axis whether it can grow.
    pub unlimited: Vec<bool>,
    /// Type of the elements; none where only the native library has one (compounds, references).
    #[serde(with = "form::optional_data_type")]
    pub data_type: Option<DataType>,
    /// Order of the stored bytes of a number.
    #[serde(with = "form::endian")]
    pub endian: Endian,
    /// One element as it would be stored, for what was never written; none is zeros.
    #[serde(with = "form::optional_hexadecimal")]
    pub fill_value: Option<Vec<u8>>,
    /// A name for each axis.
    pub dimension_names: Option<Vec<String>>,
    /// Attributes in the order of the file, without those that a netCDF library hides.
    pub attributes: Vec<(String, Attribute)>,
    /// What the file says on how the variable is stored, for people and for xarray.
    pub encoding: Encoding,
    /// Where the bytes are.
    pub storage: ForeignStorage,
}

/// How a foreign variable is stored, in the file's own words.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Encoding {
    /// Type in NumPy's words with its byte order (`<f4`), `str` for text of any length, or the
    /// library's own words for a type that has neither.
    pub dtype: String,
    /// Shape of the chunks of a chunked variable.
    pub chunks: Option<Vec<u64>>,
    /// Filters in the order in which they are applied when writing.
    pub filters: Vec<Filter>,
    /// The members of an enumeration.
    pub enumeration: Option<Enumeration>,
    /// Whether the file names none of its dimensions, so that the names were made up.
    #[serde(default)]
    pub unlabeled: bool,
    /// Whether the file is NetCDF classic, which has no chunks, filters or byte orders to tell of.
    #[serde(default)]
    pub classic: bool,
}

/// A filter of an HDF5 dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// Registered number.
    pub id: u32,
    /// Parameters.
    pub values: Vec<u32>,
}

/// The names of the values of an enumeration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Enumeration {
    /// Name of the type; empty where it has none.
    pub name: String,
    /// Names and values, the values as decimal text (they may need all 64 bits).
    pub members: Vec<(String, String)>,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attribute {
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
    /// Order of the bytes in `data`, and of the type that a reader is to see.
    #[serde(with = "form::endian")]
    pub endian: Endian,
    /// None for a single number.
    pub shape: Option<Vec<u64>>,
    /// The numbers, in C order.
    #[serde(with = "form::hexadecimal")]
    pub data: Vec<u8>,
}

/// Where the bytes of a variable are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ForeignStorage {
    /// One extent holds all elements in C order.
    Contiguous {
        /// First byte in the file.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// The elements in C order are in the map itself.
    Compact {
        /// The bytes.
        #[serde(with = "form::hexadecimal")]
        data: Vec<u8>,
    },
    /// Chunks in a regular grid; chunks at the upper edges are stored whole.
    Chunked {
        /// Shape of a chunk.
        chunk_shape: Vec<u64>,
        /// Filters, one for each of the file's and in their order, first to last when writing; bit
        /// `i` of a chunk's filter mask says that filter `i` was left out for that chunk.
        #[serde(with = "form::codecs")]
        codecs: Vec<BytesCodec>,
        /// The chunks that exist; others hold the fill value.
        #[serde(skip)]
        chunks: ChunkTable,
    },
    /// One piece for each index of the first axis, interleaved with those of other variables.
    Records {
        /// First byte of the first record.
        offset: u64,
        /// Bytes from one record to the next.
        stride: u64,
        /// Bytes of one record.
        length: u64,
    },
    /// To be read through the native library.
    Native {
        /// Why.
        reason: String,
    },
    /// Never written: every element has the fill value.
    Empty,
}

/// The chunks of one array, ascending by index. All columns have the same length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChunkTable {
    /// Position of the chunk in the grid, counted in C order.
    pub indexes: Vec<u64>,
    /// First byte in the file.
    pub offsets: Vec<u64>,
    /// Stored bytes.
    pub lengths: Vec<u64>,
    /// Filters that were left out, bit by bit.
    pub filter_masks: Vec<u32>,
}

/// One chunk of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkEntry {
    /// First byte in the file.
    pub offset: u64,
    /// Stored bytes.
    pub length: u64,
    /// Filters that were left out, bit by bit.
    pub filter_mask: u32,
}

impl ChunkTable {
    /// Bytes of a chunk in the four columns.
    pub const ENTRY_BYTES: u64 = 28;

    /// Number of chunks.
    pub fn len(&self) -> usize {
        self.indexes.len()
    }

    /// True if there is no chunk.
    pub fn is_empty(&self) -> bool {
        self.indexes.is_empty()
    }

    /// The chunk at this position of the grid; none if it was never written.
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
        // Most tables have every chunk: then the position is the index.
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
    /// True for numbers that NetCDF does not have; its library shows no such attributes.
    pub fn is_not_netcdf(&self) -> bool {
        use DataType as T;
        matches!(self.data_type, T::Bool | T::Float16 | T::Complex64 | T::Complex128)
    }
}

impl ForeignArray {
    /// How the stored bytes of a chunk, or of the whole of an array without chunks, become elements.
    pub fn codec_chain(&self) -> CodecChain {
        let bytes = match &self.storage {
            ForeignStorage::Chunked { codecs, .. } => codecs.clone(),
            _ => Vec::new(),
        };
        CodecChain { transpose: None, serializer: Serializer::Bytes(self.endian), bytes }
    }

    /// The fill value in the machine's byte order; none for types without a fixed size.
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
    /// The array at this path.
    pub fn array(&self, path: &str) -> Option<&ForeignArray> {
        self.arrays.iter().find(|array| array.path == path)
    }

    /// The group at this path; the root's is empty.
    pub fn group(&self, path: &str) -> Option<&ForeignGroup> {
        self.groups.iter().find(|group| group.path == path)
    }
}

/// Why a chunk map was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChunkMapError {
    /// Not a chunk map at all.
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
        /// The newest that is understood.
        supported: u32,
    },
    /// Cut short, or longer than it says.
    #[error("chunk map of {bytes} bytes: {what}")]
    Length {
        /// Bytes given.
        bytes: u64,
        /// What does not fit.
        what: &'static str,
    },
    /// The bytes are not those that were written.
    #[error("chunk map: CRC-32C is {found:08x}, expected {expected:08x}")]
    Checksum {
        /// The checksum stored.
        expected: u32,
        /// The checksum of the bytes.
        found: u32,
    },
    /// The description is not of the form that the module describes.
    #[error("chunk map, description: {0}")]
    Description(String),
    /// A statement that cannot be true of the file, or that is over a limit.
    #[error("chunk map, {path:?}: {reason}")]
    Invalid {
        /// Array or group.
        path: String,
        /// What is wrong.
        reason: String,
    },
}
