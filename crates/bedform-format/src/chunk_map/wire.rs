//! The encoding of chunk maps.

use super::{ChunkMap, ChunkMapError, ChunkTable, ForeignStorage};
use crate::{Limits, checksum};

/// First bytes of a chunk map.
const MAGIC: [u8; 8] = *b"BFCHMAP\0";
/// The version that is written, and the newest that is read.
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 24;
const CHECKSUM_BYTES: usize = 4;
#[allow(clippy::cast_possible_truncation)]
const ENTRY_BYTES: usize = ChunkTable::ENTRY_BYTES as usize;
/// Memory of one short text in a growing list, in bytes.
const TEXT_MEMORY: usize = 96;
/// Memory that texts may take regardless of the size of the description, in bytes.
const TEXT_MEMORY_FREE: usize = 32 << 20;

impl ChunkMap {
    /// Returns the JSON description of this map: everything except the chunk tables.
    ///
    /// # Errors
    /// [`ChunkMapError::Description`] if an array has a codec that no foreign file has.
    pub fn description(&self) -> Result<Vec<u8>, ChunkMapError> {
        serde_json::to_vec(self).map_err(|error| ChunkMapError::Description(error.to_string()))
    }

    /// Encodes the map; the module header has the layout.
    ///
    /// # Errors
    /// As [`ChunkMap::description`], and [`ChunkMapError::Invalid`] if the columns of a table
    /// differ in length.
    pub fn encode(&self) -> Result<Vec<u8>, ChunkMapError> {
        let description = self.description()?;
        let tables: Vec<&ChunkTable> = self.tables().collect();
        let entries: usize = tables.iter().map(|table| table.len()).sum();
        let mut bytes = Vec::with_capacity(
            HEADER_BYTES
                + description.len()
                + tables.len() * 8
                + entries * ENTRY_BYTES
                + CHECKSUM_BYTES,
        );
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        let table_count = u32::try_from(tables.len())
            .map_err(|_| ChunkMapError::Description("more than 2^32 tables".into()))?;
        bytes.extend_from_slice(&table_count.to_le_bytes());
        bytes.extend_from_slice(&(description.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&description);
        for table in tables {
            table.write(&mut bytes)?;
        }
        let checksum = checksum::crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        Ok(bytes)
    }

    /// Decodes a map and checks it as the module header says.
    ///
    /// ```
    /// use bedform_format::{chunk_map::{ChunkMap, ForeignGroup, SourceVersion}, Limits};
    /// let map = ChunkMap {
    ///     source: SourceVersion::default(),
    ///     format: "hdf5".into(),
    ///     groups: vec![ForeignGroup::default()],
    ///     arrays: vec![],
    /// };
    /// let bytes = map.encode()?;
    /// assert_eq!(ChunkMap::decode(&bytes, &Limits::default())?, map);
    /// assert!(ChunkMap::decode(&bytes[1..], &Limits::default()).is_err());
    /// # Ok::<(), bedform_format::chunk_map::ChunkMapError>(())
    /// ```
    ///
    /// # Errors
    /// [`ChunkMapError`]; memory use on the way is at most 16 times the input.
    pub fn decode(bytes: &[u8], limits: &Limits) -> Result<Self, ChunkMapError> {
        let length = |what| ChunkMapError::Length { bytes: bytes.len() as u64, what };
        let mut reader = MapReader { rest: bytes };
        if reader.take(MAGIC.len()) != Some(&MAGIC) {
            return Err(ChunkMapError::NotAChunkMap);
        }
        let version = reader.u32().ok_or_else(|| length("cut short in its header"))?;
        if version > VERSION {
            return Err(ChunkMapError::NewerVersion { found: version, supported: VERSION });
        }
        if version == 0 {
            return Err(ChunkMapError::Description("version 0".into()));
        }
        if bytes.len() as u64 > limits.index_bytes_max {
            return Err(length("over the limit for a chunk map"));
        }
        let (body, stored) = reader
            .rest
            .split_last_chunk::<CHECKSUM_BYTES>()
            .ok_or_else(|| length("cut short in its header"))?;
        let (expected, found) =
            (u32::from_le_bytes(*stored), checksum::crc32c(&bytes[..bytes.len() - CHECKSUM_BYTES]));
        if expected != found {
            return Err(ChunkMapError::Checksum { expected, found });
        }
        reader.rest = body;
        let table_count = reader.u32().ok_or_else(|| length("cut short in its header"))?;
        let description = reader
            .u64()
            .and_then(|bytes| reader.take(usize::try_from(bytes).ok()?))
            .ok_or_else(|| length("cut short in its description"))?;
        // Reserves no more than the remaining bytes can hold: a table takes at least 8 bytes.
        let mut tables = Vec::with_capacity(reader.rest.len().min(table_count as usize * 8) / 8);
        for _ in 0..table_count {
            tables.push(reader.table().ok_or_else(|| length("cut short in a chunk table"))?);
        }
        if !reader.rest.is_empty() {
            return Err(length("bytes behind the last chunk table"));
        }
        Self::from_description(description, tables, limits)
    }

    /// Makes a map from a description and its chunk tables, in the order of the description, and
    /// checks it as the module header says. The tables need not be sorted.
    ///
    /// # Errors
    /// [`ChunkMapError::Description`] and [`ChunkMapError::Invalid`].
    pub fn from_description(
        description: &[u8],
        tables: Vec<ChunkTable>,
        limits: &Limits,
    ) -> Result<Self, ChunkMapError> {
        let map = Self::parse(description, tables, limits)?;
        map.check(limits)?;
        Ok(map)
    }

    /// As [`ChunkMap::from_description`], for a description that a library has just made:
    /// [refuses](ChunkMap::refuse_invalid) invalid variables and keeps the others.
    ///
    /// # Errors
    /// As [`ChunkMap::from_description`].
    pub fn of_library(
        description: &[u8],
        tables: Vec<ChunkTable>,
        limits: &Limits,
    ) -> Result<Self, ChunkMapError> {
        let mut map = Self::parse(description, tables, limits)?;
        map.refuse_invalid(limits);
        map.check(limits)?;
        Ok(map)
    }

    fn parse(
        description: &[u8],
        tables: Vec<ChunkTable>,
        limits: &Limits,
    ) -> Result<Self, ChunkMapError> {
        let refuse = |reason: String| Err(ChunkMapError::Description(reason));
        if description.len() as u64 > limits.metadata_bytes_max {
            return refuse(format!("{} bytes, over the limit", description.len()));
        }
        // Counts texts first: they need the most memory per byte of the document.
        let texts = description.iter().filter(|byte| **byte == b'"').count() / 2;
        if texts * TEXT_MEMORY > TEXT_MEMORY_FREE + 16 * description.len() {
            return refuse(format!("{texts} texts in {} bytes, over the limit", description.len()));
        }
        let mut map: Self = match serde_json::from_slice(description) {
            Ok(map) => map,
            Err(error) => return refuse(error.to_string()),
        };
        let mut tables = tables.into_iter();
        for array in &mut map.arrays {
            if let ForeignStorage::Chunked { chunks, .. } = &mut array.storage {
                let Some(table) = tables.next() else {
                    return refuse("fewer chunk tables than chunked arrays".into());
                };
                *chunks = table.sorted()?;
            }
        }
        if tables.next().is_some() {
            return refuse("more chunk tables than chunked arrays".into());
        }
        Ok(map)
    }

    /// Returns the chunk tables in the order of the arrays.
    fn tables(&self) -> impl Iterator<Item = &ChunkTable> {
        self.arrays.iter().filter_map(|array| match &array.storage {
            ForeignStorage::Chunked { chunks, .. } => Some(chunks),
            _ => None,
        })
    }
}

impl ChunkTable {
    /// Appends the encoded table.
    pub(crate) fn write(&self, bytes: &mut Vec<u8>) -> Result<(), ChunkMapError> {
        self.check_columns()?;
        bytes.extend_from_slice(&(self.len() as u64).to_le_bytes());
        for column in [&self.indexes, &self.offsets, &self.lengths] {
            column.iter().for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()));
        }
        self.filter_masks.iter().for_each(|mask| bytes.extend_from_slice(&mask.to_le_bytes()));
        Ok(())
    }

    fn check_columns(&self) -> Result<(), ChunkMapError> {
        let count = self.indexes.len();
        if [self.offsets.len(), self.lengths.len(), self.filter_masks.len()] == [count; 3] {
            return Ok(());
        }
        Err(ChunkMapError::Description("columns of different lengths in a chunk table".into()))
    }

    /// Sorts the chunks by index.
    pub(crate) fn sorted(self) -> Result<Self, ChunkMapError> {
        self.check_columns()?;
        if self.indexes.is_sorted() {
            return Ok(self);
        }
        let mut order: Vec<usize> = (0..self.indexes.len()).collect();
        order.sort_unstable_by_key(|&at| self.indexes[at]);
        let pick = |column: &[u64]| order.iter().map(|&at| column[at]).collect::<Vec<u64>>();
        Ok(Self {
            indexes: pick(&self.indexes),
            offsets: pick(&self.offsets),
            lengths: pick(&self.lengths),
            filter_masks: order.iter().map(|&at| self.filter_masks[at]).collect(),
        })
    }
}

/// A reader of the remaining bytes; each read returns `None` if too few are left.
pub(crate) struct MapReader<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> MapReader<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(head)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        let (head, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(u32::from_le_bytes(*head))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        let (head, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(u64::from_le_bytes(*head))
    }

    pub(crate) fn table(&mut self) -> Option<ChunkTable> {
        let count = usize::try_from(self.u64()?).ok()?;
        let mut columns = MapReader { rest: self.take(count.checked_mul(ENTRY_BYTES)?)? };
        let mut column = || Some(numbers(columns.take(count * 8)?));
        let (indexes, offsets, lengths) = (column()?, column()?, column()?);
        let (masks, _) = columns.rest.as_chunks::<4>();
        let filter_masks = masks.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        Some(ChunkTable { indexes, offsets, lengths, filter_masks })
    }
}

fn numbers(bytes: &[u8]) -> Vec<u64> {
    let (numbers, _) = bytes.as_chunks::<8>();
    numbers.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()
}
