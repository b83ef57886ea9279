//! Sinks: the targets that settled data are written into, one unit at a time.
//!
//! A unit is the part of a target that becomes visible as a whole: a shard, or the part of a file's
//! dataset that one write replaces. Settling opens a unit, lays elements over new chunks, and
//! publishes them. The contract:
//!
//! - The sink knows the contents of a unit: its chunks, and the last commit that it contains, from
//!   a stamp or a journal of its own.
//! - Chunks that are not built stay as they are stored.
//! - Publication is atomic: a reader sees the unit before it or after it. Where a format cannot do
//!   that, publication is idempotent, and the unit contains its commits only once all of it is
//!   written.
//! - A version that another writer published after the unit was opened is never lost: the sink
//!   builds again on that version.
//!   what is there now.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bedform_storage::Object;

use super::elements::ChunkElements;
use crate::error::Result;
use crate::source::ChunkLocations;
use crate::threads::budget::MemoryReservation;
use crate::threads::permits::CpuPermits;

/// The share of the machine that one unit gets while it is written.
#[derive(Debug, Clone)]
pub(crate) struct WriteResources {
    pub(crate) threads: usize,
    /// A semaphore for CPU work, where units wait for a server.
    pub(crate) permits: Option<Arc<CpuPermits>>,
    /// The number of units in flight, including this one.
    pub(crate) at_once: usize,
}

/// A unit as it is stored.
pub(crate) struct StoredUnit {
    pub(crate) object: Arc<dyn Object>,
    pub(crate) locations: ChunkLocations,
    /// The last commit that it contains; 0 for none.
    pub(crate) contained: u64,
    /// False if another program was the last to write it.
    pub(crate) is_ours: bool,
}

/// A unit whose new chunks are in memory, as elements.
pub(crate) struct BuiltUnit {
    /// The stored unit, with the chunks that stay as they are.
    pub(crate) stored: Option<StoredUnit>,
    /// The new chunks by their positions; removed as they are written.
    pub(crate) chunks: Mutex<HashMap<u64, BuiltChunk>>,
}

/// A new chunk, and its reservation of a memory budget.
pub(crate) struct BuiltChunk {
    pub(crate) elements: ChunkElements,
    pub(crate) room: Option<MemoryReservation>,
}

/// A unit that is written and not published.
pub(crate) trait StagedUnit: Send {
    /// Leaves it to the caller to make the unit durable by the storage's `sync_all`: once now, and
    /// once when it is published.
    ///
    /// # Errors
    /// Those of storage.
    fn hand_over(&mut self) -> Result<()>;

    /// Publishes the unit, durable unless it was handed over; returns its bytes.
    ///
    /// # Errors
    /// Those of storage; `Conflict` if other writers were faster in every attempt.
    fn publish(self: Box<Self>) -> Result<u64>;
}

/// A target of the settled data of one array.
pub(crate) trait Sink: Sync {
    /// Returns the name of a unit for messages.
    fn unit_name(&self, coordinates: &[u64]) -> String;

    /// Opens the unit at `coordinates` in the grid of units; `None` if there is none.
    ///
    /// # Errors
    /// `Corrupt` by the index or chunk map; those of storage.
    fn open_unit(&self, coordinates: &[u64]) -> Result<Option<StoredUnit>>;

    /// Writes a unit of new chunks and of those that stay, invisible to readers. Stored elements
    /// outside `valid` are not kept.
    ///
    /// # Errors
    /// Those of storage; `Corrupt` if a chunk to merge with is damaged.
    fn stage_built<'s>(
        &'s self,
        coordinates: &[u64],
        valid: Option<&'s [u64]>,
        built: &'s BuiltUnit,
        resources: WriteResources,
    ) -> Result<Box<dyn StagedUnit + 's>>;

    /// Returns true if committed data that the unit at `coordinates` does not contain lie over it.
    ///
    /// # Errors
    /// As [`Sink::open_unit`]; those of the cover.
    fn is_covered(&self, coordinates: &[u64]) -> Result<bool>;

    /// Publishes a unit chunk by chunk, each merged with its cover; returns its bytes.
    ///
    /// # Errors
    /// As [`StagedUnit::publish`]; `Corrupt` if a chunk to merge with is damaged.
    fn publish_covered(&self, coordinates: &[u64], resources: WriteResources) -> Result<u64>;
}
