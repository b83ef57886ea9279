//! Moments and covers: commits over the objects of an array that are not part of them yet.
//!
//! A reader pins a moment, opens a cell, and asks the moment for its cover. The cover depends on
//! the last commit that the cell's object contains. For each chunk that the read needs, the cover
//! takes elements first and adds their payloads to a batch. The other elements are those of the
//! source, or fill values. Batches of many cells become payloads that are fetched together, so that
//! bytes which serve several cells are fetched and decoded once.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use crate::error::Result;
use crate::plan::copy::CopyTarget;
use crate::plan::geometry::{ChunkTask, Geometry};
use crate::plan::mask::Mask;
use bedform_codec::Scratch;
use bedform_format::shard::Extent;
use bedform_storage::Object;

/// The commits of one array that count at one moment.
pub(crate) trait Moment: Sync {
    /// Returns the last commit; 0 before the first.
    fn number(&self) -> u64;

    /// Returns true if every commit is in the objects, so that no cell has a cover.
    fn is_settled(&self) -> bool;

    /// Returns the last commit of the moment's own store in an object that claims to contain
    /// `contained`. It is 0 if the object came from another store, whose commits have other
    /// numbers.
    fn contained(&self, contained: u64) -> u64;

    /// Fails if the object at `coordinates`, which contains the commits up to `contained`, is not
    /// of this moment. `name` returns the object's name.
    ///
    /// # Errors
    /// `SnapshotMoved` if the object contains later commits than the moment has; `Corrupt` if it
    /// lacks commits that it must contain; those of storage.
    fn check(&self, coordinates: &[u64], contained: u64, name: &dyn Fn() -> String) -> Result<()>;

    /// Returns the cover of the object at `coordinates`, which contains the commits up to
    /// `contained`.
    ///
    /// # Errors
    /// As [`Moment::check`]; `Corrupt` for damaged records.
    fn cover(
        &self,
        coordinates: &[u64],
        contained: u64,
        name: &dyn Fn() -> String,
    ) -> Result<Option<Arc<dyn Cover>>>;
}

/// The moment of an array without any cover: a foreign file, a store without a log.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Settled;

impl Moment for Settled {
    fn number(&self) -> u64 {
        0
    }

    fn is_settled(&self) -> bool {
        true
    }

    fn contained(&self, _contained: u64) -> u64 {
        0
    }

    fn check(&self, _: &[u64], _: u64, _: &dyn Fn() -> String) -> Result<()> {
        Ok(())
    }

    fn cover(&self, _: &[u64], _: u64, _: &dyn Fn() -> String) -> Result<Option<Arc<dyn Cover>>> {
        Ok(None)
    }
}

/// The committed data that lie over the chunks of one object.
pub(crate) trait Cover: Send + Sync + Debug {
    /// Takes elements of a task's chunk: adds their payloads to `payloads`, and returns the
    /// elements that are still needed of the chunk itself.
    ///
    /// # Errors
    /// `Corrupt` for damaged records; those of storage.
    fn take(
        &self,
        geometry: &Geometry,
        cell: u64,
        task: ChunkTask,
        payloads: &mut Payloads,
    ) -> Result<UncoveredRest>;

    /// Returns true if the cover may have elements of the chunk at `coordinates`. It also returns
    /// true if it cannot tell; [`Cover::lay`] then fails with the reason.
    fn touches(&self, coordinates: &[u64]) -> bool;

    /// Writes all elements of the cover over those of the chunk at `coordinates`, which are in the
    /// stored layout.
    ///
    /// # Errors
    /// `Corrupt` for damaged data; those of storage.
    fn lay(&self, coordinates: &[u64], elements: &mut [u8]) -> Result<()>;
}

/// The elements of a chunk that a cover leaves to the source.
#[derive(Debug)]
pub(crate) enum Uncovered {
    All,
    /// The free elements of each part.
    Some(Vec<Mask>),
    None,
}

/// The elements that a read still needs of a chunk beyond those of its cover.
#[derive(Debug)]
pub(crate) struct UncoveredRest {
    /// Elements whose stored values count.
    pub(crate) stored: Uncovered,
    /// Elements that are fill values, whatever is stored.
    pub(crate) fill: Uncovered,
}

/// The target of decoded elements, and their encoding.
pub(crate) struct Destination<'a> {
    /// The buffer of the result; `None` if decoded blocks are only cached.
    pub(crate) target: Option<CopyTarget<'a>>,
    /// Bytes of an element.
    pub(crate) item: usize,
    /// The size in bytes of the numbers to reverse; 1 for none.
    pub(crate) swap: usize,
}

/// Payloads of covers, collected over the cells of a read; empty before the first.
#[derive(Default)]
pub(crate) struct Payloads(Option<Box<dyn CoverBatch>>);

/// Payloads of one kind of cover, before they are grouped for fetching.
pub(crate) trait CoverBatch: Any + Send {
    /// Returns the number of copies.
    fn len(&self) -> usize;

    /// Adds the payloads of another batch of the same kind.
    fn append(&mut self, other: Box<dyn Any>);

    /// Groups the batch into payloads to fetch, in the order of the objects' bytes.
    ///
    /// # Errors
    /// `Corrupt` if some bytes lie outside their object.
    fn into_payloads(self: Box<Self>) -> Result<Vec<Box<dyn Payload>>>;
}

impl Payloads {
    /// Returns the batch of a kind of cover, made by `new` if this is the first.
    pub(crate) fn batch<B: CoverBatch>(&mut self, new: impl FnOnce() -> B) -> Option<&mut B> {
        let batch = self.0.get_or_insert_with(|| Box::new(new()));
        let batch: &mut dyn Any = &mut **batch;
        batch.downcast_mut()
    }

    /// Returns the number of copies.
    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |batch| batch.len())
    }

    /// Adds the payloads of other cells.
    pub(crate) fn append(&mut self, other: Self) {
        match (&mut self.0, other.0) {
            (Some(own), Some(other)) => own.append(other),
            (own, other) => *own = own.take().or(other),
        }
    }

    /// Groups the batch into payloads to fetch, in the order of the objects' bytes.
    ///
    /// # Errors
    /// As [`CoverBatch::into_payloads`].
    pub(crate) fn into_payloads(self) -> Result<Vec<Box<dyn Payload>>> {
        self.0.map_or(Ok(Vec::new()), CoverBatch::into_payloads)
    }
}

/// Byte ranges of one object with elements of covers, which are fetched together, checked, decoded
/// and copied.
pub(crate) trait Payload: Send + Sync + Debug {
    /// Returns the object.
    fn object(&self) -> Arc<dyn Object>;

    /// Returns the byte ranges to read; they are concatenated in the buffer.
    fn extents(&self) -> &[Extent];

    /// Returns the number of blocks that are checked and decoded.
    fn block_count(&self) -> u64;

    /// Returns the bytes of the decoded blocks.
    fn decoded_bytes(&self) -> u64;

    /// Returns true if the decoded blocks are put into the cache.
    fn keeps(&self) -> bool;

    /// Returns true if one extent can be checked and copied while others are in flight.
    fn has_parts(&self) -> bool;

    /// Copies elements of cached blocks; returns true if those were all.
    ///
    /// # Errors
    /// If a copy leaves its buffers.
    fn take_kept(&self, to: &Destination<'_>) -> Result<bool>;

    /// Checks and copies a part of the buffer: `bytes`, which belong at offset `start`. They are
    /// whole extents, and all of them unless the payload [has parts](Payload::has_parts).
    ///
    /// # Errors
    /// `Corrupt` if a block is damaged; `LimitExceeded` if memory is short.
    fn run_part(
        &self,
        start: usize,
        bytes: &[u8],
        scratch: &mut Scratch,
        to: &Destination<'_>,
    ) -> Result<()>;
}
