//! Bounds on the sizes and counts that a file claims.
//!
//! A decoder checks every count, size and depth against [`Limits`] before it allocates memory. The
//! defaults admit real data; each can be changed when a store is opened, none can be removed.

/// Bounds on the sizes and counts that data may claim.
///
/// ```
/// let limits = bedform_format::Limits::default().with_chunk_bytes_max(64 << 20);
/// assert_eq!(limits.chunk_bytes_max, 64 << 20);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Number of axes of an array.
    pub rank_max: usize,
    /// Length of one decoded chunk in bytes.
    pub chunk_bytes_max: u64,
    /// Number of codecs in one chain.
    pub codecs_max: usize,
    /// Depth of nested shards.
    pub shard_depth_max: usize,
    /// Length of one metadata document in bytes.
    pub metadata_bytes_max: u64,
    /// Bytes of memory for the values of one metadata document, in addition to 16 times its length.
    pub values_bytes_free: u64,
    /// Nesting depth of one metadata document.
    pub metadata_depth_max: usize,
    /// Length of all attributes of one array or group in bytes.
    pub attributes_bytes_max: u64,
    /// Length of one shard index, chunk map, or section or directory of a log, in bytes.
    pub index_bytes_max: u64,
    /// Number of entries of one section of a log, and of touched parts of arrays in one directory.
    pub section_entries_max: u64,
    /// Number of boxes in all selections of one section of a log.
    pub section_boxes_max: u64,
    /// Depth of nested types in an HDF5 file.
    pub type_depth_max: usize,
    /// Bytes that the parser uses of the metadata of one HDF5 file, counting repeated use.
    pub hdf5_bytes_max: u64,
    /// Length of one set of references in bytes.
    pub references_bytes_max: u64,
    /// Number of levels of a refined mesh.
    pub mesh_levels_max: usize,
    /// Number of components of a refined mesh.
    pub mesh_components_max: u64,
    /// Number of boxes of one level of a refined mesh.
    pub mesh_boxes_max: u64,
    /// Number of objects that one read may have open at once.
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
            mesh_levels_max: 64,
            mesh_components_max: 64 << 10,
            mesh_boxes_max: 16 << 20,
            objects_open_max: 1024,
        }
    }
}

/// Largest number of copies of a document's values in memory: the document, the result of parsing
/// it, and a copy for the caller. Attributes stay text and do not count.
const VALUES_COPIES: u64 = 3;

impl Limits {
    /// Returns the bytes of memory for one copy of the values of a metadata document of `bytes`
    /// bytes.
    pub fn values_bytes_max(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(16).saturating_add(self.values_bytes_free) / VALUES_COPIES
    }

    /// Returns the bytes of memory for the values of attributes of `bytes` bytes: the one copy that
    /// a caller asks for. The rest of the limit is for the texts.
    pub fn attributes_values_bytes_max(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(10).saturating_add(self.values_bytes_free / 4 * 3)
    }

    /// Returns the limits with another bound on the length of a decoded chunk, in bytes.
    #[must_use]
    pub fn with_chunk_bytes_max(mut self, bytes: u64) -> Self {
        self.chunk_bytes_max = bytes;
        self
    }

    /// Returns the limits with another bound on the length of a metadata document, in bytes.
    #[must_use]
    pub fn with_metadata_bytes_max(mut self, bytes: u64) -> Self {
        self.metadata_bytes_max = bytes;
        self
    }

    /// Returns the limits with another bound on the length of a shard index, a chunk map, or a
    /// section or directory of a log, in bytes.
    #[must_use]
    pub fn with_index_bytes_max(mut self, bytes: u64) -> Self {
        self.index_bytes_max = bytes;
        self
    }
}
