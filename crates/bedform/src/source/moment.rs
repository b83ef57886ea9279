//! Moments and covers: what was committed over the objects of an array and is not part of them yet.
//!
//! A reader pins a moment, opens a cell, and asks the moment for its cover with the last commit that the
//! cell's object contains. Of each chunk that the read needs the cover takes elements first and adds
//! their payloads to a batch; what is left counts as the source has it, or is the fill value. Batches of
//! many cells become payloads that are fetched together, so that bytes which serve several cells are
//! fetched and decoded once.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use crate::error::Result;
use crate::plan::copy::Target;
use crate::plan::geometry::{ChunkTask, Geometry};
use crate::plan::mask::Mask;
use bedform_codec::Scratch;
use bedform_format::shard::Extent;
use bedform_storage::Object;

/// One array as of one moment: which commits count.
pub(crate) trait Moment: Sync {
    /// The last commit; 0 before the first.
    fn number(&self) -> u64;

    /// True if every commit is in the objects: nothing lies over any cell.
    fn is_settled(&self) -> bool;

    /// The part of `contained`, the last commit that an object says it contains, that counts: 0 where the
    /// object came from another store, whose commits have other numbers.
    fn contained(&self, contained: u64) -> u64;

    /// Fails if the object at `coordinates`, which contains the commits up to `contained`, is not of this
    /// moment. `name` gives the object's name.
    ///
    /// # Errors
    /// `SnapshotMoved` if it contains later commits than the moment has; `Corrupt` if it must contain
    /// later ones than it does; those of storage.
    fn check(&self, coordinates: &[u64], contained: u64, name: &dyn Fn() -> String) -> Result<()>;

    /// What lies over the object at `coordinates`, which contains the commits up to `contained`.
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

/// The moment of an array over which nothing can lie: a foreign file, a store without a log.
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

/// What lies over the chunks of one object.
pub(crate) trait Cover: Send + Sync + Debug {
    /// Takes elements of a task's chunk: adds their payloads to `payloads`, and says what is needed of
    /// the chunk itself.
    ///
    /// # Errors
    /// `Corrupt` for damaged records; those of storage.
    fn take(
        &self,
        geometry: &Geometry,
        cell: u64,
        task: ChunkTask,
        payloads: &mut Payloads,
    ) -> Result<Rest>;

    /// True if something has a share in the chunk at `coordinates`, or that cannot be told, which
    /// [`Cover::lay`] then says.
    fn touches(&self, coordinates: &[u64]) -> bool;

    /// Lays everything over the elements of the chunk at `coordinates`, which lie as they are stored.
    ///
    /// # Errors
    /// `Corrupt` for damaged data; those of storage.
    fn lay(&self, coordinates: &[u64], elements: &mut [u8]) -> Result<()>;
}

/// Some of the elements that a read takes of a chunk.
#[derive(Debug)]
pub(crate) enum Uncovered {
    All,
    /// The free elements of each part.
    Some(Vec<Mask>),
    None,
}

/// What a read still needs of a chunk beyond what its cover has.
#[derive(Debug)]
pub(crate) struct Rest {
    /// What counts as it is stored.
    pub(crate) stored: Uncovered,
    /// What is the fill value, whatever is stored.
    pub(crate) fill: Uncovered,
}

/// Where elements go.
pub(crate) struct Destination<'a> {
    /// Nothing where what is decoded is kept and goes nowhere.
    pub(crate) target: Option<Target<'a>>,
    /// Bytes of an element.
    pub(crate) item: usize,
    /// Bytes of the numbers to reverse; 1 for none.
    pub(crate) swap: usize,
}

/// What covers have of the cells of a read so far; nothing before the first that has something.
#[derive(Default)]
pub(crate) struct Payloads(Option<Box<dyn CoverBatch>>);

/// The payloads of one kind of cover, before it is known which of them are fetched together.
pub(crate) trait CoverBatch: Any + Send {
    /// The number of copies.
    fn len(&self) -> usize;

    /// Adds what another batch of the same kind has.
    fn append(&mut self, other: Box<dyn Any>);

    /// What to fetch, in the order of the objects' bytes.
    ///
    /// # Errors
    /// `Corrupt` if some of it lies outside its object.
    fn into_payloads(self: Box<Self>) -> Result<Vec<Box<dyn Payload>>>;
}

impl Payloads {
    /// The batch of a kind of cover, made by `new` if this is the first.
    pub(crate) fn batch<B: CoverBatch>(&mut self, new: impl FnOnce() -> B) -> Option<&mut B> {
        let batch = self.0.get_or_insert_with(|| Box::new(new()));
        let batch: &mut dyn Any = &mut **batch;
        batch.downcast_mut()
    }

    /// The number of copies.
    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |batch| batch.len())
    }

    /// Adds what covers of other cells have.
    pub(crate) fn append(&mut self, other: Self) {
        match (&mut self.0, other.0) {
            (Some(own), Some(other)) => own.append(other),
            (own, other) => *own = own.take().or(other),
        }
    }

    /// What to fetch, in the order of the objects' bytes.
    ///
    /// # Errors
    /// As [`CoverBatch::into_payloads`].
    pub(crate) fn into_payloads(self) -> Result<Vec<Box<dyn Payload>>> {
        self.0.map_or(Ok(Vec::new()), CoverBatch::into_payloads)
    }
}

/// Bytes of one object that a cover has something in: fetched together, checked, decoded, and copied.
pub(crate) trait Payload: Send + Sync + Debug {
    /// The object.
    fn object(&self) -> Arc<dyn Object>;

    /// Byte ranges to read; they follow each other in the buffer.
    fn extents(&self) -> &[Extent];

    /// The number of blocks that are checked and decoded.
    fn block_count(&self) -> u64;

    /// Bytes of the blocks when they are decoded.
    fn decoded_bytes(&self) -> u64;

    /// True if the decoded blocks are kept in the cache.
    fn keeps(&self) -> bool;

    /// True if what one extent holds can be checked and copied while others are on their way.
    fn has_parts(&self) -> bool;

    /// Copies from what is kept in memory; true if that was all.
    ///
    /// # Errors
    /// Of a copy that leaves its buffers.
    fn take_kept(&self, to: &Destination<'_>) -> Result<bool>;

    /// Checks and copies what lies in a part of the buffer: `bytes`, which belong at `start` in it, whole
    /// extents; all of them, unless the payload [has parts](Payload::has_parts).
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
