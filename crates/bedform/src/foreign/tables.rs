//! Chunk tables of a file that the parser opened, each read when its variable is first selected
//! from.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bedform_format::chunk_map::{ChunkMap, ChunkTable, ForeignArray, ForeignGroup, ForeignStorage};
use bedform_format::{DataType, Limits};

use super::hdf5::{self, Hdf5Access};
use crate::error::Result;
use crate::sidecar::Sidecar;

/// From so many chunks on a table is kept: finding the chunks again takes longer than reading the
/// table.
const KEPT_CHUNKS_MIN: usize = 1 << 14;
/// The same limit for a sidecar that a user asked for. The nodes of a table lie apart, and each may
/// be a wait.
const ASKED_CHUNKS_MIN: usize = 1 << 8;

/// True for a variable of which a map of the parser lacks a part: its chunk table, or its texts.
pub(super) fn is_left_out(array: &ForeignArray) -> bool {
    let has_texts = array.data_type == Some(DataType::String);
    has_texts || matches!(array.storage, ForeignStorage::Chunked { .. })
}

/// The chunk tables of one file.
#[derive(Debug, Default)]
pub(super) struct LazyTables {
    /// The address of each variable's dataset. Empty for a map that has the tables.
    datasets: Vec<Option<u64>>,
    /// The variables by these addresses; the first of a dataset with several names.
    by_address: OnceLock<HashMap<u64, usize>>,
    sidecar: Option<Sidecar>,
    limits: Limits,
    read: Mutex<LoadedTables>,
}

/// Tables that were read, by the numbers of their variables.
#[derive(Debug, Default)]
struct LoadedTables {
    tables: HashMap<usize, Arc<ChunkTable>>,
    bytes: u64,
}

impl LazyTables {
    pub(super) fn new(
        datasets: Vec<Option<u64>>,
        sidecar: Option<Sidecar>,
        limits: Limits,
    ) -> Self {
        Self { datasets, sidecar, limits, ..Self::default() }
    }

    /// Returns the address of the dataset of a variable, if the parser found it.
    pub(super) fn address(&self, position: usize) -> Option<u64> {
        self.datasets.get(position).copied().flatten()
    }

    /// Returns the variable whose dataset is at `address`.
    pub(super) fn variable_at(&self, address: u64) -> Option<usize> {
        let numbers = self.by_address.get_or_init(|| {
            let known = self.datasets.iter().enumerate().rev();
            known.filter_map(|(number, address)| Some(((*address)?, number))).collect()
        });
        numbers.get(&address).copied()
    }

    /// Returns the limits that the file was opened with.
    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the table of a variable; `None` if the map has it. `reader` reads the file.
    ///
    /// # Errors
    /// As [`hdf5::read_table`].
    pub(super) fn of(
        &self,
        map: &ChunkMap,
        position: usize,
        reader: &Hdf5Access<'_>,
    ) -> Result<Option<Arc<ChunkTable>>> {
        let array = &map.arrays[position];
        let is_chunked = matches!(array.storage, ForeignStorage::Chunked { .. });
        let Some(address) = self.address(position).filter(|_| is_chunked) else { return Ok(None) };
        // A thread that panicked left whole tables.
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = read.tables.get(&position) {
            return Ok(Some(table.clone()));
        }
        let mut limits = self.limits.clone();
        limits.index_bytes_max = limits.index_bytes_max.saturating_sub(read.bytes);
        let table = match self.kept(map, array, address) {
            Some(table) => table,
            None => self.read_and_keep(map, array, address, reader, &limits)?,
        };
        read.bytes += table.len() as u64 * ChunkTable::ENTRY_BYTES;
        let table = Arc::new(table);
        read.tables.insert(position, table.clone());
        Ok(Some(table))
    }

    /// Returns the table that the sidecar keeps, if it may be used.
    fn kept(&self, map: &ChunkMap, array: &ForeignArray, address: u64) -> Option<ChunkTable> {
        let sidecar = self.sidecar.as_ref()?;
        if grid_chunks(array) < chunks_min(sidecar) as u64 {
            return None;
        }
        let kept: ChunkMap = sidecar.load(&name_of(address), &map.source, &self.limits)?;
        let found = kept.arrays.into_iter().find(|found| found.path == array.path)?;
        if found.shape != array.shape || found.codec_chain() != array.codec_chain() {
            return None;
        }
        match (found.storage, &array.storage) {
            (
                ForeignStorage::Chunked { chunk_shape, chunks, .. },
                ForeignStorage::Chunked { chunk_shape: expected, .. },
            ) if chunk_shape == *expected => Some(chunks),
            _ => None,
        }
    }

    fn read_and_keep(
        &self,
        map: &ChunkMap,
        array: &ForeignArray,
        address: u64,
        reader: &Hdf5Access<'_>,
        limits: &Limits,
    ) -> Result<ChunkTable> {
        let table = hdf5::read_table(reader, address, array, limits)?;
        let is_current = super::source_version(reader.version()) == map.source;
        if is_current
            && let Some(sidecar) = &self.sidecar
            && table.len() >= chunks_min(sidecar)
        {
            sidecar.save(&name_of(address), &map_of_one(map, with_table(array, &table)));
        }
        Ok(table)
    }
}

/// Returns the number of chunks from which on a table is kept in a sidecar.
fn chunks_min(sidecar: &Sidecar) -> usize {
    if sidecar.is_asked_for() { ASKED_CHUNKS_MIN } else { KEPT_CHUNKS_MIN }
}

/// Returns the name of a chunk table in the sidecar of its file.
fn name_of(address: u64) -> String {
    format!("chunk-table-{address}")
}

/// Returns the most chunks that a variable can have; 0 for one without chunks.
pub(super) fn grid_chunks(array: &ForeignArray) -> u64 {
    let ForeignStorage::Chunked { chunk_shape, .. } = &array.storage else { return 0 };
    let axes = array.shape.iter().zip(chunk_shape);
    axes.fold(1, |count, (size, chunk)| count.saturating_mul(size.div_ceil((*chunk).max(1))))
}

/// Returns the variable with its table, without its attributes.
fn with_table(array: &ForeignArray, table: &ChunkTable) -> ForeignArray {
    let mut array = ForeignArray { attributes: Vec::new(), ..array.clone() };
    if let ForeignStorage::Chunked { chunks, .. } = &mut array.storage {
        chunks.clone_from(table);
    }
    array
}

/// Returns a map that has this variable alone.
pub(super) fn map_of_one(map: &ChunkMap, array: ForeignArray) -> ChunkMap {
    let group_of = |path: &str| ForeignGroup { path: path.to_owned(), ..ForeignGroup::default() };
    let mut groups = vec![group_of("")];
    groups.extend(array.path.match_indices('/').map(|(at, _)| group_of(&array.path[..at])));
    ChunkMap { source: map.source.clone(), format: map.format.clone(), groups, arrays: vec![array] }
}
