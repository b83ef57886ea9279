//! What a read asks for, and how long that takes.

use std::cmp::Ordering;
use std::ops::AddAssign;

use bedform_storage::Demand;
use serde::Serialize;

use super::tuning::Tuning;

/// Seconds that a read takes, predicted by the profile of its storage. Prices of different plans can be
/// compared.
///
/// ```
/// use bedform::Price;
/// let (index_first, whole) = (Price { seconds: 0.2, exact: true }, Price { seconds: 0.1, exact: false });
/// assert!(whole < index_first);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Price {
    /// Seconds of a cold read.
    pub seconds: f64,
    /// True if the objects were opened and their indexes read; false for an estimate by the geometry
    /// alone.
    pub exact: bool,
}

impl PartialOrd for Price {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.seconds.partial_cmp(&other.seconds)
    }
}

/// What a read, or a part of it, asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cost {
    /// Objects opened.
    pub(crate) objects: u64,
    /// Those of them that come as a whole when they are opened.
    pub(crate) whole_objects: u64,
    /// Requests for indexes.
    pub(crate) index_requests: u64,
    /// Bytes of these.
    pub(crate) index_bytes: u64,
    /// Requests for chunks.
    pub(crate) requests: u64,
    /// Bytes of these.
    pub(crate) bytes: u64,
    /// Bytes of the largest request.
    pub(crate) largest: u64,
    /// Chunks decoded, or read in part.
    pub(crate) chunks: u64,
    /// Chunks that were never written.
    pub(crate) missing: u64,
    /// Bytes of decoded chunks of objects.
    pub(crate) decoded_bytes: u64,
    /// Bytes of decoded blocks of a log.
    pub(crate) log_bytes: u64,
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.objects += other.objects;
        self.whole_objects += other.whole_objects;
        self.index_requests += other.index_requests;
        self.index_bytes += other.index_bytes;
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.largest = self.largest.max(other.largest);
        self.chunks += other.chunks;
        self.missing += other.missing;
        self.decoded_bytes += other.decoded_bytes;
        self.log_bytes += other.log_bytes;
    }
}

impl Cost {
    /// Seconds that the storage takes for a cold read, by the terms of
    /// [`CostModel`](crate::layout::CostModel): a wait for the first index and one for the first chunk,
    /// then requests and bytes. Of those as many are in flight as there is room for beside
    /// `scratch_bytes` for each core.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn price(&self, tuning: &Tuning, scratch_bytes: u64) -> Price {
        if self.objects == 0 {
            return Price { seconds: 0.0, exact: true };
        }
        let Self { index_requests, requests, largest, .. } = *self;
        let waits = if index_requests > 0 && requests > 0 { 2.0 } else { 1.0 };
        let bytes = self.bytes + self.index_bytes;
        let [all, bytes, streams, largest] =
            [requests + index_requests, bytes, requests.max(index_requests), largest]
                .map(|count| count as f64);
        let room = tuning.at_once(bytes / streams.max(1.0), scratch_bytes);
        // Files are fetched in pieces, ahead.
        let largest = if tuning.profile.is_remote { largest } else { 0.0 };
        let demand = Demand { waits, requests: all, bytes, streams: streams.min(room), largest };
        Price { seconds: tuning.profile.seconds_of(demand), exact: true }
    }
}
