//! The policy of candidates: limits, margins and rates that no profile has.

/// Limits and assumptions for the candidates of an array.
pub(super) struct CandidateSettings {
    /// The most kinds of reads of one array for which one replica is laid out together. Pairs of
    /// them are candidates, too, so the work grows with the square.
    pub(super) kinds_together_max: usize,
    /// Bytes of a shard. A read needs the shard's index first, so larger shards delay it.
    pub(super) shard_bytes: u64,
    /// Shards of a replica above which its shards are larger than `shard_bytes`.
    pub(super) shards_max: f64,
    /// Sample blocks of an array, which are encoded to measure its compression.
    pub(super) sample_blocks: u32,
    /// The most bytes of a sample block.
    pub(super) sample_block_bytes: f64,
    /// The predicted bytes over those of the sample: a margin, so that the replica stays within the
    /// budget.
    pub(super) size_margin: f64,
    /// Encoded bytes of padding beyond the end of an array, as a share of those of as many real
    /// elements.
    pub(super) padding_share: f64,
    /// Bytes of a chunk's entry in the index, with its share of the rest of a shard.
    pub(super) chunk_entry_bytes: f64,
    /// Bytes of the documents of a replica and of its shards' parts other than chunks.
    pub(super) document_bytes: u64,
    /// Compressed bytes of a point's place.
    pub(super) place_bytes: f64,
    /// Seconds to decode a point's place and to look another up: an assumption. A profile has the
    /// rate of decoding and none of searching, which takes most of this time.
    pub(super) place_seconds: f64,
    /// The most places of a replica of points that are loaded: 512 MiB of them.
    pub(super) places_max: u64,
    /// The least share of a listed read's elements that a replica must hold to be read for it; the
    /// array supplies the rest.
    pub(super) held_share_min: f64,
    /// The most times that one read is longer than another along an axis if one replica serves both
    /// alike.
    pub(super) near_ratio_max: f64,
    /// Bytes of the array that a read fetches around a point.
    pub(super) point_block_bytes: u64,
    /// Bytes of elements per second at which a replica is encoded, written and synced: an
    /// assumption. A profile's `write_bytes_per_second` counts bytes that are ready to be written.
    /// With the 900 MB/s of the default profile, replicas would be made that do not pay now.
    pub(super) written_bytes_per_second: f64,
}

pub(super) const SETTINGS: CandidateSettings = CandidateSettings {
    kinds_together_max: 8,
    shard_bytes: 8 << 20,
    shards_max: 4096.0,
    sample_blocks: 12,
    sample_block_bytes: 32e3,
    size_margin: 1.1,
    padding_share: 0.15,
    chunk_entry_bytes: 24.0,
    document_bytes: 16 << 10,
    place_bytes: 1.2,
    place_seconds: 6e-9,
    places_max: 1 << 26,
    held_share_min: 0.25,
    near_ratio_max: 2.0,
    point_block_bytes: 64 << 10,
    written_bytes_per_second: 200e6,
};
