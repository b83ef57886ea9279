//! The storage of a variable in a chunk map: layout, filters and chunk table.

use super::element::Hdf5ElementType;
use crate::DataType;
use crate::Limits;
use crate::chunk_map::{ChunkTable, ForeignStorage};
use crate::codec::{BloscCompressor, BloscConfiguration, BloscShuffle, BytesCodec};
use crate::hdf5::error::{Hdf5Error, Result};
use crate::hdf5::{ChunkLayout, Dataset, Hdf5File, Hdf5Layout, PipelineFilter};

const DEFLATE: u16 = 1;
const SHUFFLE: u16 = 2;
const FLETCHER32: u16 = 3;
const BLOSC: u16 = 32001;
const ZSTD: u16 = 32015;

/// Limits of the chunk tables of one file. `entries_left` falls with each table that is read.
pub(super) struct ChunkTableLimits {
    /// True if tables stay empty, for a later call of [`chunk_table`](super::chunk_table).
    are_deferred: bool,
    chunk_bytes_max: u64,
    codecs_max: usize,
    entries_left: u64,
}

impl ChunkTableLimits {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            are_deferred: false,
            chunk_bytes_max: limits.chunk_bytes_max,
            codecs_max: limits.codecs_max,
            entries_left: limits.index_bytes_max / ChunkTable::ENTRY_BYTES,
        }
    }

    /// Makes limits with which all tables stay empty, to be read when a variable is.
    pub(super) fn deferred(limits: &Limits) -> Self {
        Self { are_deferred: true, ..Self::new(limits) }
    }
}

/// Describes the storage of a variable of this shape.
pub(super) fn describe(
    file: &Hdf5File<'_>,
    dataset: &Dataset,
    shape: &[u64],
    element: &Hdf5ElementType,
    tables: &mut ChunkTableLimits,
) -> Result<ForeignStorage> {
    let native = |reason: &str| Ok(ForeignStorage::Native { reason: reason.to_owned() });
    if let Some(reason) = &element.native {
        return native(reason);
    }
    if shape.contains(&0) {
        return Ok(ForeignStorage::Empty);
    }
    let item_size = element.data_type.and_then(DataType::item_size).unwrap_or(1) as u64;
    let total = shape.iter().try_fold(item_size, |bytes, size| bytes.checked_mul(*size));
    match &dataset.layout {
        Hdf5Layout::Chunked(layout) => describe_chunks(file, dataset, shape, layout, tables),
        Hdf5Layout::Compact(data) if Some(data.len() as u64) == total => {
            Ok(ForeignStorage::Compact { data: data.clone() })
        }
        Hdf5Layout::Contiguous { offset: None, .. } => Ok(ForeignStorage::Empty),
        Hdf5Layout::Contiguous { offset: Some(offset), length } => match total {
            Some(total) if length.is_none_or(|length| length == total) => {
                Ok(ForeignStorage::Contiguous { offset: *offset, length: total })
            }
            _ => native("its storage has another size than its shape"),
        },
        Hdf5Layout::Compact(_) => native("its storage has another size than its shape"),
        Hdf5Layout::Virtual | Hdf5Layout::External => native("a layout that is not known"),
    }
}

fn describe_chunks(
    file: &Hdf5File<'_>,
    dataset: &Dataset,
    shape: &[u64],
    layout: &ChunkLayout,
    tables: &mut ChunkTableLimits,
) -> Result<ForeignStorage> {
    let native = |reason: String| Ok(ForeignStorage::Native { reason });
    let mut codecs = Vec::new();
    for filter in &dataset.filters {
        match codec_of(filter) {
            Some(codec) => codecs.push(codec),
            None => return native(format!("filter {}, which Bedform does not have", filter.id)),
        }
    }
    let is_large = layout.chunk_bytes().is_none_or(|bytes| bytes > tables.chunk_bytes_max);
    if is_large || codecs.len() > tables.codecs_max {
        return native("chunks or filters over the limits".into());
    }
    let own = dataset.space.shape();
    let ends_inside = |((own, seen), chunk): ((&u64, &u64), &u64)| {
        own != seen && own.checked_rem(*chunk).is_some_and(|rest| rest != 0)
    };
    if own.iter().zip(shape).zip(&layout.shape).any(ends_inside) {
        // The bytes of an edge chunk beyond the end of the dataset are undefined.
        return native("it is shorter than its dimension and ends inside a chunk".into());
    }
    let chunks = match tables.are_deferred {
        true => ChunkTable::default(),
        false => chunk_table(file, dataset, shape, layout, codecs.len(), tables)?,
    };
    Ok(ForeignStorage::Chunked { chunk_shape: layout.shape.clone(), codecs, chunks })
}

/// Describes the storage of a variable of this shape whose dataset is chunked.
pub(super) fn describe_chunked(
    file: &Hdf5File<'_>,
    dataset: &Dataset,
    shape: &[u64],
    limits: &Limits,
) -> Result<Option<ForeignStorage>> {
    let Hdf5Layout::Chunked(layout) = &dataset.layout else { return Ok(None) };
    describe_chunks(file, dataset, shape, layout, &mut ChunkTableLimits::new(limits)).map(Some)
}

/// Reads the chunks inside the shape of a variable, sorted by grid position.
fn chunk_table(
    file: &Hdf5File<'_>,
    dataset: &Dataset,
    shape: &[u64],
    layout: &ChunkLayout,
    codec_count: usize,
    tables: &mut ChunkTableLimits,
) -> Result<ChunkTable> {
    let own = dataset.space.shape();
    let axes = shape.iter().zip(&layout.shape);
    let grid: Vec<u64> = axes.map(|(size, chunk)| size.div_ceil((*chunk).max(1))).collect();
    let codec_count = u32::try_from(codec_count).unwrap_or(u32::MAX);
    let all_skipped = 1_u32.checked_shl(codec_count).unwrap_or(0).wrapping_sub(1);
    let mut table = ChunkTable::default();
    file.chunks(dataset, &mut |chunk| {
        let mut index = Some(0_u64);
        for (at, size) in chunk.position.iter().zip(&grid) {
            index = index
                .filter(|_| at < size)
                .and_then(|index| index.checked_mul(*size)?.checked_add(*at));
        }
        let Some(index) = index else { return Ok(()) };
        tables.entries_left = tables
            .entries_left
            .checked_sub(1)
            .ok_or_else(|| Hdf5Error::limit_of_file("more chunks than a chunk map may have"))?;
        let ends = chunk.position.iter().zip(&layout.shape);
        let ends = ends.map(|(at, size)| at.saturating_add(1).saturating_mul(*size));
        let is_edge = ends.zip(own).any(|(end, size)| end > *size);
        let is_unfiltered = layout.edges_unfiltered && is_edge;
        table.indexes.push(index);
        table.offsets.push(chunk.offset);
        table.lengths.push(chunk.length);
        table.filter_masks.push(if is_unfiltered { all_skipped } else { chunk.filter_mask });
        Ok(())
    })?;
    table.sorted().map_err(Hdf5Error::Map)
}

/// Returns the codec that decodes a filter; `None` if the engine has none.
fn codec_of(filter: &PipelineFilter) -> Option<BytesCodec> {
    let first = filter.values.first().copied();
    match filter.id {
        DEFLATE => first.filter(|level| *level <= 9).map(|level| BytesCodec::Zlib { level }),
        SHUFFLE => {
            first.filter(|size| *size > 0).map(|element_size| BytesCodec::Shuffle { element_size })
        }
        FLETCHER32 => Some(BytesCodec::Fletcher32),
        ZSTD => {
            let level = first.map_or(3, u32::cast_signed);
            Some(BytesCodec::Zstd { level, checksum: false })
        }
        BLOSC => blosc(&filter.values).map(BytesCodec::Blosc),
        _ => None,
    }
}

fn blosc(values: &[u32]) -> Option<BloscConfiguration> {
    let [_, _, type_size, _, settings @ ..] = values else { return None };
    let setting = |at: usize, default: u32| settings.get(at).copied().unwrap_or(default);
    Some(BloscConfiguration {
        compressor: match setting(2, 0) {
            0 => BloscCompressor::BloscLz,
            1 => BloscCompressor::Lz4,
            2 => BloscCompressor::Lz4Hc,
            4 => BloscCompressor::Zlib,
            5 => BloscCompressor::Zstd,
            _ => return None,
        },
        level: u8::try_from(setting(0, 5).min(9)).ok()?,
        shuffle: match setting(1, 1) {
            0 => BloscShuffle::None,
            1 => BloscShuffle::Byte,
            2 => BloscShuffle::Bit,
            _ => return None,
        },
        type_size: u8::try_from(*type_size).ok().filter(|size| *size > 0)?,
        block_size: 0,
    })
}
