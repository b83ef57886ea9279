//! Whether a server's shard comes whole when it is opened, or its index first and then its chunks.
//!
//! What decides is which of the two is sooner by the profile. The reader asks here, and so does who
//! chooses a layout for it.

use bedform_storage::{Profile, StorageDemand};

/// The most bytes that are asked for before anything is known of an object: more are worth a request of
/// their own, and the memory of a read is bounded.
pub(crate) const WHOLE_BYTES_MAX: u64 = 4 << 20;
/// Bytes that a read of a server may keep in memory.
pub(crate) const SERVER_BUFFER_BYTES: u64 = 256 << 20;

/// Requests of `request_bytes` each that a read of a server has on its way at once: what it keeps in memory
/// are their answers, and `scratch_bytes` for what is decoded.
pub(crate) fn requests_at_once(buffer_bytes: u64, scratch_bytes: u64, request_bytes: f64) -> f64 {
    #[allow(clippy::cast_precision_loss)]
    let room = buffer_bytes.saturating_sub(scratch_bytes) as f64;
    (room / request_bytes.max(1.0)).ceil().max(1.0)
}

/// What a read needs of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Need {
    /// Chunks of it; 0 for its index alone.
    pub(crate) chunks: u64,
    /// Objects that the read needs about as much of.
    pub(crate) objects: u64,
}

/// The shards of an array.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShardSize {
    /// Chunks that a shard has room for.
    pub(crate) chunks: f64,
    /// Bytes of a shard.
    pub(crate) bytes: f64,
    /// Those of them that are read to find the chunks.
    pub(crate) end_bytes: f64,
}

/// The most bytes that an object may have to come whole, in a read of so many objects.
pub(crate) fn whole_bytes_max(profile: &Profile, buffer_bytes: u64, objects: u64) -> u64 {
    let at_once = u64::from(profile.requests_in_flight).min(objects).max(1);
    (buffer_bytes / at_once).min(WHOLE_BYTES_MAX)
}

/// True if whole shards are no later than their indexes and then what is needed of them.
pub(crate) fn whole_is_sooner(profile: &Profile, need: Need, shard: ShardSize) -> bool {
    #[allow(clippy::cast_precision_loss)]
    let [objects, chunks] = [need.objects, need.chunks].map(|count| count as f64);
    let needed = objects * (shard.bytes - shard.end_bytes).max(0.0) * chunks / shard.chunks;
    let parts = profile.streams_for(needed).max(objects);
    let whole = StorageDemand {
        waits: 1.0,
        requests: objects,
        bytes: objects * shard.bytes,
        streams: objects,
        largest: shard.bytes,
        ..StorageDemand::default()
    };
    let index_first = StorageDemand {
        waits: 2.0,
        requests: objects + parts,
        bytes: objects * shard.end_bytes + needed,
        streams: parts,
        largest: (shard.bytes - shard.end_bytes).max(0.0) / shard.chunks,
        ..StorageDemand::default()
    };
    profile.seconds_of(whole) <= profile.seconds_of(index_first)
}

/// The whole part of `value`, or the nearest number there is.
#[expect(clippy::cast_possible_truncation, reason = "a float cast saturates")]
#[expect(clippy::cast_sign_loss, reason = "a float cast saturates")]
pub(crate) fn whole_number(value: f64) -> u64 {
    value as u64
}
