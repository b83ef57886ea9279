//! Level one of an index: the ranges of all blocks, in three Zarr arrays that are read page by
//! page.
//!
//! A page that cannot be read, or does not have the fingerprint of the record, counts as absent.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bedform_format::index::IndexRecord;
use bedform_format::{DataType, ObjectPath};
use bedform_geometry::{ChunkGrid, Region, Selection, linearize};
use bedform_storage::Mode;

use super::page_fingerprint;
use super::record::{LEVEL_ONE, directory_of};
use crate::error::{Error, Result};
use crate::opening::storage_in_sidecar;
use crate::options::{Freshness, OpenOptions, Prefetch};
use crate::plan::copy::CopyTarget;
use crate::run::deliver::Deliver;
use crate::run::execute::execute;
use crate::run::read_source::ReadSource;
use crate::sidecar::Sidecar;
use crate::zarr::hierarchy::Hierarchy;
use crate::zarr::source::ZarrSource;
use crate::zarr::state::{ArrayState, load};

/// The arrays of level one: the least values, the greatest, the counts of missing ones.
pub(crate) const ARRAY_NAMES: [&str; 3] = ["minimum", "maximum", "missing"];
/// The type of the counts.
pub(crate) const MISSING_TYPE: DataType = DataType::UInt32;
/// The most bytes of pages in memory; one more drops them all.
const PAGES_BYTES_MAX: u64 = 64 << 20;

/// The range of a block, in the machine's byte order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockValues {
    /// The least and greatest value that is not missing; `None` if all are missing.
    pub(crate) values: Option<(Vec<u8>, Vec<u8>)>,
    /// The number of missing elements.
    pub(crate) missing: u64,
}

/// The opened level one of an index.
#[derive(Debug)]
pub(crate) struct LevelOne {
    pub(crate) record: IndexRecord,
    /// The blocks of the array as it was when the index was made.
    pub(crate) blocks: ChunkGrid,
    /// The pages, in units of blocks.
    paged: ChunkGrid,
    hierarchy: Hierarchy,
    /// The arrays, with the bytes of an element.
    arrays: Vec<(ObjectPath, ArrayState, usize)>,
    item_size: usize,
    pages: Mutex<HashMap<u64, Option<Arc<LevelOnePage>>>>,
}

/// The elements of the three arrays in one page.
#[derive(Debug)]
struct LevelOnePage {
    region: Region,
    elements: Vec<Vec<u8>>,
}

impl LevelOne {
    /// Opens the level one that a record names, with elements of `data_type`.
    ///
    /// # Errors
    /// Those of opening it; `Corrupt` if it does not fit the record.
    pub(crate) fn open(
        sidecar: &Sidecar,
        record: IndexRecord,
        data_type: DataType,
        options: &OpenOptions,
    ) -> Result<Self> {
        let options = OpenOptions {
            writable: false,
            freshness: Freshness::Never,
            prefetch: Prefetch::Off,
            cache_bytes: 0,
            replicas: false,
            records: false,
            sidecar: None,
            profile: None,
            refines: None,
            ..options.clone()
        };
        let place = format!("{}/{LEVEL_ONE}/{}", directory_of(&record.array), record.level_one);
        let storage = storage_in_sidecar(sidecar, &place, Mode::ReadOnly, &options)?;
        let blocks = ChunkGrid::new(record.array_shape.clone(), record.block_shape.clone())?;
        let paged = ChunkGrid::new(blocks.grid_shape().to_vec(), record.page_shape.clone())?;
        let hierarchy = Hierarchy::new(storage, options, |_, _| Ok(None));
        let mut arrays = Vec::with_capacity(ARRAY_NAMES.len());
        for (name, expected) in ARRAY_NAMES.iter().zip([data_type, data_type, MISSING_TYPE]) {
            let path = ObjectPath::parse(name)?;
            let state = load(&hierarchy, &path)?;
            let is_right =
                state.metadata.data_type == expected && state.metadata.shape == blocks.grid_shape();
            match expected.item_size().filter(|_| is_right) {
                Some(size) => arrays.push((path, state, size)),
                None => return Err(Error::corrupt(place, "it is not the index of its record")),
            }
        }
        let item_size = data_type.item_size().unwrap_or(0);
        let pages = Mutex::default();
        Ok(Self { record, blocks, paged, hierarchy, arrays, item_size, pages })
    }

    /// Returns the range of a block of the array as it was; `None` if its page is damaged.
    pub(crate) fn block(&self, block: &[u64]) -> Option<BlockValues> {
        let inside = block.len() == self.blocks.rank()
            && block.iter().zip(self.blocks.grid_shape()).all(|(at, count)| at < count);
        let page = inside.then(|| self.page(&self.paged.chunk_of(block))).flatten()?;
        let within = block.iter().zip(page.region.start()).map(|(at, start)| at - start);
        let number = linearize(&within.collect::<Vec<_>>(), page.region.shape());
        let number = usize::try_from(number).ok()?;
        let element = |array: usize, size: usize| {
            page.elements.get(array)?.get(number * size..(number + 1) * size)
        };
        #[allow(clippy::host_endian_bytes, reason = "elements in memory")]
        let missing = u32::from_ne_bytes(element(2, 4)?.try_into().ok()?);
        let count = self.blocks.chunk_region_clipped(block).len()?;
        let (least, greatest) = (element(0, self.item_size)?, element(1, self.item_size)?);
        let values = match u64::from(missing) {
            missing if missing > count => return None,
            missing if missing == count => None,
            _ => Some((least.to_vec(), greatest.to_vec())),
        };
        Some(BlockValues { values, missing: missing.into() })
    }

    /// Returns the page at `coordinates`, read at its first use.
    fn page(&self, coordinates: &[u64]) -> Option<Arc<LevelOnePage>> {
        let number = linearize(coordinates, self.paged.grid_shape());
        let lock = || self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&number) {
            return known.clone();
        }
        // Without the lock: other pages are read meanwhile.
        let found = self.read_page(coordinates, number).ok().flatten().map(Arc::new);
        let mut pages = lock();
        let page_bytes = self.page_blocks().saturating_mul(2 * self.item_size as u64 + 4);
        if (pages.len() as u64 + 1).saturating_mul(page_bytes) > PAGES_BYTES_MAX {
            pages.clear();
        }
        pages.insert(number, found.clone());
        found
    }

    fn page_blocks(&self) -> u64 {
        let grid = self.blocks.grid_shape().iter().zip(self.paged.chunk_shape());
        grid.fold(1, |all, (grid, page)| all.saturating_mul(*page.min(grid)))
    }

    fn read_page(&self, coordinates: &[u64], number: u64) -> Result<Option<LevelOnePage>> {
        let region = self.paged.chunk_region_clipped(coordinates);
        let count = region.len().and_then(|count| usize::try_from(count).ok());
        let Some(count) = count else { return Ok(None) };
        let selection = Selection::from(region.clone());
        let mut elements = Vec::with_capacity(self.arrays.len());
        for (path, state, size) in &self.arrays {
            // The record bounds the blocks of a page.
            let mut buffer = vec![0; count.saturating_mul(*size)];
            let source = ZarrSource { hierarchy: &self.hierarchy, path, state };
            let read = ReadSource::settled(&source, &state.layout, &self.hierarchy.tuning);
            let geometry = state.layout.geometry(&selection)?;
            let deliver = Deliver::Buffer(CopyTarget::new(&mut buffer));
            read.with_plan(&geometry, |plan| execute(plan, deliver))?;
            elements.push(buffer);
        }
        let fingerprint = page_fingerprint(&elements[0], &elements[1], &elements[2]);
        let number = usize::try_from(number).ok();
        let recorded = number.and_then(|number| self.record.pages.get(number));
        Ok((recorded == Some(&fingerprint)).then_some(LevelOnePage { region, elements }))
    }
}
