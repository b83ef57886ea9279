//! What a file may claim before it is refused.
//!
//! Every count, size and depth that comes from bytes is held against a [`Limits`] before anything is
//! allocated. The defaults are wide enough for real data; each can be set per open, none removed.

/// The bounds on what data may claim.
///
/// ```
/// let limits = bedform_format::Limits::default().with_chunk_bytes_max(64 << 20);
/// assert_eq!(limits.chunk_bytes_max, 64 << 20);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Dimensions of an array.
    pub rank_max: usize,
    /// Bytes of one decoded chunk.
    pub chunk_bytes_max: u64,
    /// Codecs in one chain.
    pub codecs_max: usize,
    /// Shards within shards.
    pub shard_depth_max: usize,
    /// Bytes of one metadata document.
    pub metadata_bytes_max: u64,
    /// Memory that the values of one metadata document may take beside 16 times its bytes.
    pub values_bytes_free: u64,
    /// Nesting of one metadata document.
    pub metadata_depth_max: usize,
    /// Bytes of all attributes of one array or group.
    pub attributes_bytes_max: u64,
    /// Bytes of one shard index, of one chunk map, or of a section or directory of a log.
    pub index_bytes_max: u64,
    /// Entries of one section of a log, and arrays that one directory says are touched.
    pub section_entries_max: u64,
    /// Boxes of all selections of one section of a log.
    pub section_boxes_max: u64,
    /// Types within types of an HDF5 file.
    pub type_depth_max: usize,
    /// Bytes that are used of the metadata of one HDF5 file, those that are used again included.
    pub hdf5_bytes_max: u64,
    /// Bytes of one set of references.
    pub references_bytes_max: u64,
    /// Objects open at once in one read.
    pub objects_open_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rank_max: 32,
            chunk_bytes_max: 2 << 30,
            codecs_max: 16,
            shard_depth_max: 3,
            metadata_bytes_max: 64 << 20,
            values_bytes_free: 64 << 20,
            metadata_depth_max: 64,
            attributes_bytes_max: 16 << 20,
            index_bytes_max: 256 << 20,
            section_entries_max: 16 << 20,
            section_boxes_max: 64 << 20,
            type_depth_max: 32,
            hdf5_bytes_max: 4 << 30,
            references_bytes_max: 1 << 30,
            objects_open_max: 1024,
        }
    }
}

/// How often the values of a document are in memory at once, at most: the document, what was made of it, and
/// a copy for the caller. Attributes are not among them: they stay text.
const VALUES_COPIES: u64 = 3;

impl Limits {
    /// Bytes of memory that one copy of the values of a metadata document of `bytes` may take.
    pub fn values_bytes_max(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(16).saturating_add(self.values_bytes_free) / VALUES_COPIES
    }

    /// Bytes of memory that the values of attributes of `bytes` may take: the one copy of them that a caller
    /// asked for. The rest is for the texts that they are made of.
    pub fn attributes_values_bytes_max(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(10).saturating_add(self.values_bytes_free / 4 * 3)
    }

    /// The same limits with another bound on the bytes of a decoded chunk.
    #[must_use]
    pub fn with_chunk_bytes_max(mut self, bytes: u64) -> Self {
        self.chunk_bytes_max = bytes;
        self
    }

    /// The same limits with another bound on the bytes of a metadata document.
    #[must_use]
    pub fn with_metadata_bytes_max(mut self, bytes: u64) -> Self {
        self.metadata_bytes_max = bytes;
        self
    }

    /// The same limits with another bound on the bytes of a shard index, of a chunk map, or of a
    /// section or directory of a log.
    #[must_use]
    pub fn with_index_bytes_max(mut self, bytes: u64) -> Self {
        self.index_bytes_max = bytes;
        self
    }
}
