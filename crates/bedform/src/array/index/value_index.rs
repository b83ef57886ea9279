//! The opened index of an array.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};

use bedform_format::{DataType, Limits};
use bedform_geometry::{ChunkGrid, Region};

use crate::array::Array;
use crate::array::index::elements_of;
use crate::array::redirect::PinnedObjects;
use crate::error::Result;
use crate::index::{
    BinEdges, BlockBins, BlockTails, EachRange, IndexRecord, LevelOne, LevelTwo, RangeFold,
    newest_record,
};
use crate::options::OpenOptions;
use crate::replica::SourceObject;
use crate::sidecar::Sidecar;

/// The index of an array as of one moment: the range of each block whose objects are unchanged.
/// Each object is compared once. Safe to share between threads.
#[derive(Debug)]
pub struct ValueIndex {
    objects: PinnedObjects,
    level_one: LevelOne,
    level_two: Option<LevelTwo>,
    /// The blocks of the array as it is now.
    grid: ChunkGrid,
    data_type: DataType,
    missing_values: Vec<Vec<u8>>,
    /// Indexes into the recorded objects, by their coordinates.
    recorded: HashMap<Vec<u64>, usize>,
    /// Whether the objects that were compared are unchanged.
    compared: Mutex<HashMap<Vec<u64>, bool>>,
}

/// The range of the stored elements of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockRange {
    /// The type of the elements.
    pub data_type: DataType,
    /// The least and greatest value that is not missing, in the machine's byte order; `None` if all
    /// elements are missing. A bound of zero has the sign that makes the range wider.
    pub least_and_greatest: Option<(Vec<u8>, Vec<u8>)>,
    /// The number of missing elements: NaN, and those with a [missing
    /// value](ValueIndex::missing_values).
    pub missing: u64,
}

impl Array {
    /// Opens the index of the array, of this user or of the site; `None` if there is none, or if it
    /// is of other metadata, another division into blocks, or other missing values. A damaged index
    /// counts as none.
    ///
    /// # Errors
    /// Those of looking up the array again.
    pub fn value_index(&self) -> Result<Option<ValueIndex>> {
        let Some(fold) = self.range_fold()? else { return Ok(None) };
        let Some(sidecar) = self.sidecar() else { return Ok(None) };
        let Some(objects) = PinnedObjects::of(self)? else { return Ok(None) };
        // The source may have got its first sidecar while it was open.
        let sidecar = sidecar.found_again().unwrap_or_else(|| sidecar.clone());
        let limits = Limits::default();
        let both = std::iter::once(&sidecar).chain(sidecar.site());
        let found = both.filter_map(|one| Some((one, newest_record(one, self.path(), &limits)?.1)));
        let opened = |(sidecar, record)| ValueIndex::open(sidecar, record, &objects, &fold);
        Ok(found.filter_map(opened).next())
    }
}

impl ValueIndex {
    /// Opens the index of a record; `None` if it is not of the array as it is.
    fn open(
        sidecar: &Sidecar,
        record: IndexRecord,
        objects: &PinnedObjects,
        fold: &RangeFold,
    ) -> Option<Self> {
        let shape = objects.layout().grid.array_shape();
        let is_same = objects.form_and_key() == (record.meaning.clone(), record.key.clone())
            && record.missing_values == hexadecimal(fold.missing_values())
            && record.block_shape.len() == shape.len();
        if !is_same {
            return None;
        }
        let grid = ChunkGrid::new(shape.to_vec(), record.block_shape.clone()).ok()?;
        let at = |(number, object): (usize, &SourceObject)| (object.at.clone(), number);
        let recorded = record.objects.iter().enumerate().map(at).collect();
        let data_type = fold.data_type();
        let options = OpenOptions::default();
        let level_one = LevelOne::open(sidecar, record, data_type, &options).ok()?;
        let (record, paged) = (&level_one.record, level_one.paged());
        let open = || LevelTwo::open(sidecar, record, data_type, paged, &options).ok();
        let level_two = (!record.bins.is_empty()).then(open).flatten();
        Some(Self {
            objects: objects.clone(),
            level_one,
            level_two,
            grid,
            data_type,
            missing_values: fold.missing_values().to_vec(),
            recorded,
            compared: Mutex::default(),
        })
    }

    /// The blocks of the array as it is now.
    pub fn grid(&self) -> &ChunkGrid {
        &self.grid
    }

    /// The stored values that mean that an element is missing, in the machine's byte order. Ranges
    /// leave these and NaN out.
    pub fn missing_values(&self) -> &[Vec<u8>] {
        &self.missing_values
    }

    /// The bytes of the index in storage.
    pub fn stored_bytes(&self) -> u64 {
        self.level_one.record.stored_bytes
    }

    /// Returns the range of a block. `None` if it is unknown: an object with some of its elements
    /// has changed since, commits lie over it, the array was made longer or shorter within the
    /// block, or the index is damaged there.
    pub fn range(&self, block: &[u64]) -> Option<BlockRange> {
        self.is_unchanged(block).then(|| self.range_as_indexed(block)).flatten()
    }

    /// Returns the range that a block had when the index was made.
    pub(crate) fn range_as_indexed(&self, block: &[u64]) -> Option<BlockRange> {
        let found = self.level_one.block(block)?;
        let (data_type, missing) = (self.data_type, found.missing);
        Some(BlockRange { data_type, least_and_greatest: found.values, missing })
    }

    /// The edges of the bins of level two; `None` without it.
    pub(crate) fn edges(&self) -> Option<&BinEdges> {
        self.level_one.edges().filter(|_| self.level_two.is_some())
    }

    /// The edges of the bins that the index was made with, also if level two is lost.
    pub(crate) fn recorded_edges(&self) -> Option<&BinEdges> {
        self.level_one.edges()
    }

    /// The record of the index.
    pub(crate) fn record(&self) -> &IndexRecord {
        &self.level_one.record
    }

    /// Returns the bins of a block; `None` without level two, and if it is unknown as for
    /// [`ValueIndex::range`].
    pub(crate) fn bins(&self, block: &[u64]) -> Option<BlockBins> {
        self.is_unchanged(block).then(|| self.bins_as_indexed(block)).flatten()
    }

    /// Returns the bins that a block had when the index was made.
    pub(crate) fn bins_as_indexed(&self, block: &[u64]) -> Option<BlockBins> {
        self.edges()?;
        self.level_one.bins(block)
    }

    /// Reads the number of the bin of each element of a block, in C order; `None` if they are not
    /// those of the checksum.
    pub(crate) fn numbers(&self, block: &[u64], checksum: u32) -> Option<Vec<u8>> {
        self.level_two.as_ref()?.numbers(self.grid.chunk_region_clipped(block), checksum)
    }

    /// Returns the elements in the outermost bins of a block; `None` without them, and if they are
    /// not those of the checksum.
    pub(crate) fn tail(&self, block: &[u64], checksum: u32) -> Option<BlockTails> {
        self.level_two.as_ref()?.tail(&self.level_one.tail(block)?, checksum)
    }

    /// True if the elements of a box of blocks are those of the index.
    pub(crate) fn is_unchanged_in(&self, blocks: &Region) -> bool {
        if blocks.is_empty() || blocks.rank() != self.grid.rank() {
            return false;
        }
        let now = elements_of(&self.grid, blocks).ok().filter(|now| !now.is_empty());
        let then = elements_of(&self.level_one.blocks, blocks).ok();
        now.is_some_and(|now| Some(&now) == then.as_ref() && self.has_objects_of(&now))
    }

    /// Calls `act` with the least and the greatest value of each block of a box as it was when the
    /// index was made, unless all its elements are missing, and with the number of missing ones.
    /// `None` if some are unknown.
    pub(crate) fn each_range_as_indexed(
        &self,
        blocks: &Region,
        act: &mut EachRange<'_>,
    ) -> Option<()> {
        self.level_one.each_range(blocks, act)
    }

    /// True if the elements of a block are those of the index.
    fn is_unchanged(&self, block: &[u64]) -> bool {
        let only = Region::new(block.to_vec(), vec![1; block.len()]);
        only.is_ok_and(|only| self.is_unchanged_in(&only))
    }

    /// True if each object with elements of a region is recorded and unchanged.
    fn has_objects_of(&self, region: &Region) -> bool {
        let objects = self.objects.of_region(region);
        objects.is_some_and(|objects| objects.into_iter().all(|at| self.is_still(at)))
    }

    /// True if the object at these coordinates is unchanged.
    fn is_still(&self, at: Vec<u64>) -> bool {
        let Some(number) = self.recorded.get(&at) else { return false };
        let lock = || self.compared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&at) {
            return *known;
        }
        // Without the lock: on a server the comparison is a wait.
        let is_still = self.objects.is_still(&self.level_one.record.objects[*number]);
        lock().insert(at, is_still);
        is_still
    }

    /// Compares every object again before its next use.
    pub(crate) fn look_again(&self) {
        self.compared.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// True if the array has the recorded shape, and each of its objects is recorded and unchanged.
    pub(crate) fn is_complete(&self) -> bool {
        let shape = self.grid.array_shape();
        let whole = Region::whole(shape.to_vec());
        self.level_one.record.array_shape == shape
            && whole.is_ok_and(|whole| self.has_objects_of(&whole))
    }
}

/// Returns stored values in the machine's byte order as a record lists them.
pub(crate) fn hexadecimal(values: &[Vec<u8>]) -> Vec<String> {
    let little = |value: &Vec<u8>| {
        let mut bytes = value.clone();
        if cfg!(target_endian = "big") {
            bytes.reverse();
        }
        bedform_format::metadata::hex(&bytes)
    };
    values.iter().map(little).collect()
}
