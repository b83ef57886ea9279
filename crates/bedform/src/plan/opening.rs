//! The choice between two ways to read a shard on a server: whole in one request, or its index
//! first and then its chunks.
//!
//! The profile predicts the seconds of both, and the faster one wins. Reads and the choice of a
//! layout both decide here.

use bedform_storage::{Profile, StorageDemand};

/// The most bytes of an object to request before its index is known. More bytes are worth a request
/// of their own, and the memory of a read is bounded.
pub(crate) const WHOLE_BYTES_MAX: u64 = 4 << 20;
/// Bytes of memory that a read from a server may use.
pub(crate) const SERVER_BUFFER_BYTES: u64 = 256 << 20;

/// Returns the number of requests of `request_bytes` each that a read from a server has in flight.
/// Its memory holds their answers, and `scratch_bytes` for decoding.
pub(crate) fn requests_at_once(buffer_bytes: u64, scratch_bytes: u64, request_bytes: f64) -> f64 {
    #[allow(clippy::cast_precision_loss)]
    let room = buffer_bytes.saturating_sub(scratch_bytes) as f64;
    (room / request_bytes.max(1.0)).ceil().max(1.0)
}

/// The part of an object that a read needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Need {
    /// Chunks of the object; 0 for its index alone.
    pub(crate) chunks: u64,
    /// Objects of the read; it needs about as much of each.
    pub(crate) objects: u64,
}

/// The size of the shards of an array.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShardSize {
    /// Chunks that a shard has room for.
    pub(crate) chunks: f64,
    /// Bytes of a shard.
    pub(crate) bytes: f64,
    /// Bytes at the end of the shard that are read to find its chunks.
    pub(crate) end_bytes: f64,
}

/// Returns the most bytes of an object that is fetched whole, in a read of `objects` objects.
pub(crate) fn whole_bytes_max(profile: &Profile, buffer_bytes: u64, objects: u64) -> u64 {
    let at_once = u64::from(profile.requests_in_flight).min(objects).max(1);
    (buffer_bytes / at_once).min(WHOLE_BYTES_MAX)
}

/// Returns true if fetching whole shards takes no longer than fetching their indexes and then the
/// needed chunks.
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

/// Returns the integer part of `value`, saturated to the range of the type.
#[expect(clippy::cast_possible_truncation, reason = "a float cast saturates")]
#[expect(clippy::cast_sign_loss, reason = "a float cast saturates")]
pub(crate) fn whole_number(value: f64) -> u64 {
    value as u64
}
