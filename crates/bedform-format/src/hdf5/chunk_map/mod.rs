//! Builds the chunk map of an HDF5 file; it equals the map that h5py's walk of the file gives, but
//! needs no HDF5 library.
//!
//! Names and dimensions follow the rules of the netCDF library. A variable that the engine cannot
//! decode is in the map as native, with the reason. A file with a part of the format that the
//! parser does not know has no map: [`chunk_map`] fails.
//!
//! | module | holds |
//! |---|---|
//! | `walk` | groups and their members; links are followed inside the file |
//! | `listing`, `named_types` | links by name; committed types by address or content |
//! | `dimensions` | dimension scales, and the name of each axis |
//! | `numpy`, `element` | NumPy's names of types, and the engine's equivalents |
//! | `attributes` | attributes that users see |
//! | `storage` | layouts, filters and chunks in the form of the map |
//! | `texts` | texts of variable length: their elements and their bytes |

mod attributes;
mod dimensions;
mod element;
mod listing;
mod named_types;
mod numpy;
mod storage;
mod texts;
mod walk;

use std::collections::HashMap;

use super::error::{Hdf5Error, Result};
use super::filter::Hdf5FillValue;
use super::{Dataset, Dataspace, Hdf5File, Hdf5Layout, ObjectKind, TypeKind, value};
use crate::chunk_map::{
    ChunkMap, ChunkMapError, ChunkTable, ForeignArray, ForeignEncoding, ForeignFilter,
    ForeignGroup, ForeignStorage, SourceVersion,
};
use crate::{DataType, Limits};
use attributes::AttributeReader;
use element::Hdf5ElementType;
use storage::ChunkTableLimits;
use walk::{FileWalk, WalkedVariable};

pub use texts::{StoredTexts, stored_texts};

/// Makes the chunk map of a file that was opened with the same limits.
///
/// # Errors
/// [`Hdf5Error`]; on [`Hdf5Error::Unknown`], the HDF5 library may be able to make the map.
pub fn chunk_map(
    file: &Hdf5File<'_>,
    source: &SourceVersion,
    limits: &Limits,
) -> std::result::Result<ChunkMap, Hdf5Error> {
    let walk = walk_over(file, limits)?;
    map_of(&walk, walk.parents_first(), source, limits, ChunkTableLimits::new(limits))
        .map(|(map, _)| map)
}

/// Makes the chunk map of a file with empty chunk tables. Also returns the address of each dataset,
/// for later calls: of [`chunk_table`] for a chunk table, of [`stored_texts`] for texts of variable
/// length. `None` stands for an array that the map refuses.
///
/// # Errors
/// As [`chunk_map`].
pub fn chunk_map_without_tables(
    file: &Hdf5File<'_>,
    source: &SourceVersion,
    limits: &Limits,
) -> std::result::Result<(ChunkMap, Vec<Option<u64>>), Hdf5Error> {
    let walk = walk_over(file, limits)?;
    map_of(&walk, walk.parents_first(), source, limits, ChunkTableLimits::deferred(limits))
}

/// Reads the chunk table of an array whose map and address came from [`chunk_map_without_tables`];
/// `None` if the address now holds another array.
///
/// # Errors
/// As [`chunk_map`].
pub fn chunk_table(
    file: &Hdf5File<'_>,
    address: u64,
    array: &ForeignArray,
    limits: &Limits,
) -> std::result::Result<Option<ChunkTable>, Hdf5Error> {
    let ObjectKind::Dataset(dataset) = file.object(address)?.kind else { return Ok(None) };
    let found = storage::describe_chunked(file, &dataset, &array.shape, limits)?;
    let (Some(ForeignStorage::Chunked { chunk_shape, codecs, chunks }), Some(item_size)) =
        (found, array.data_type.and_then(DataType::item_size))
    else {
        return Ok(None);
    };
    let is_known = matches!(&array.storage,
        ForeignStorage::Chunked { chunk_shape: shape, codecs: known, .. }
            if *shape == chunk_shape && *known == codecs);
    if !is_known || dataset.datatype.size as usize != item_size {
        return Ok(None);
    }
    let storage = ForeignStorage::Chunked { chunk_shape, codecs, chunks };
    let described = ForeignArray { storage, ..array.clone() };
    let invalid = |reason| ChunkMapError::Invalid { path: array.path.clone(), reason };
    described.check_chunks(file.size(), limits).map_err(invalid)?;
    match described.storage {
        ForeignStorage::Chunked { chunks, .. } => Ok(Some(chunks)),
        _ => Ok(None),
    }
}

/// Makes the chunk map of one group with its ancestors and descendants; `None` if the file has no
/// such group. Dimensions have the same names as in the map of the whole file.
///
/// # Errors
/// As [`chunk_map`].
pub fn chunk_map_of_group(
    file: &Hdf5File<'_>,
    group: &str,
    source: &SourceVersion,
    limits: &Limits,
) -> std::result::Result<Option<ChunkMap>, Hdf5Error> {
    let walk = walk_over(file, limits)?;
    if walk.groups.iter().all(|other| other.path != group) {
        return Ok(None);
    }
    let is_within = |inner: &str, outer: &str| {
        let rest = inner.strip_prefix(outer);
        outer.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let mut wanted = walk.parents_first();
    wanted.retain(|number| {
        let other = walk.groups.get(*number).map_or("", |other| other.path.as_str());
        is_within(other, group) || is_within(group, other)
    });
    map_of(&walk, wanted, source, limits, ChunkTableLimits::new(limits)).map(|(map, _)| Some(map))
}

fn walk_over<'f, 'r>(file: &'f Hdf5File<'r>, limits: &Limits) -> Result<FileWalk<'f, 'r>> {
    if file.superblock().being_written {
        return Err(Hdf5Error::unknown("a writer that has it open, or did not close it"));
    }
    let mut walk = FileWalk::over(file, limits)?;
    dimensions::name_all(&mut walk)?;
    Ok(walk)
}

/// Makes the map of the groups with these indexes, with the addresses of
/// [`chunk_map_without_tables`].
fn map_of(
    walk: &FileWalk<'_, '_>,
    wanted: Vec<usize>,
    source: &SourceVersion,
    limits: &Limits,
    mut tables: ChunkTableLimits,
) -> Result<(ChunkMap, Vec<Option<u64>>)> {
    let mut groups = Vec::new();
    let mut arrays = Vec::new();
    let mut addresses = HashMap::new();
    let reader = AttributeReader { file: walk.file, is_netcdf: walk.is_netcdf() };
    for group in wanted.into_iter().filter_map(|number| walk.groups.get(number)) {
        let mut refused = group.refused.clone();
        let attributes = reader.describe(&group.attributes, "", &mut refused)?;
        for variable in group.variables.iter().filter_map(|number| walk.variables.get(*number)) {
            let array = array_of(walk, variable, &mut tables);
            let mut array = array.map_err(|error| error.met_at(&variable.path))?;
            let name = variable.path.rsplit('/').next().unwrap_or_default();
            array.attributes = reader.describe(&variable.attributes, name, &mut refused)?;
            addresses.insert(array.path.clone(), variable.address);
            arrays.push(array);
        }
        groups.push(ForeignGroup {
            path: group.path.clone(),
            attributes,
            dimensions: walk.dimensions_of(group),
            refused,
        });
    }
    let format = if reader.is_netcdf { "netcdf4" } else { "hdf5" };
    let mut map = ChunkMap { source: source.clone(), format: format.into(), groups, arrays };
    map.refuse_invalid(limits);
    map.check(limits)?;
    let addresses = map.arrays.iter().map(|array| addresses.get(&array.path).copied()).collect();
    Ok((map, addresses))
}

/// Describes a variable, without its attributes.
fn array_of(
    walk: &FileWalk<'_, '_>,
    variable: &WalkedVariable,
    tables: &mut ChunkTableLimits,
) -> Result<ForeignArray> {
    let dataset = &variable.dataset;
    let element = Hdf5ElementType::of(&dataset.datatype, &walk.named_types);
    let storage = storage::describe(walk.file, dataset, &variable.shape, &element, tables)?;
    let max_shape = match &dataset.space {
        Dataspace::Simple { max_shape, .. } => max_shape.as_slice(),
        Dataspace::Scalar | Dataspace::Null => &[],
    };
    Ok(ForeignArray {
        path: variable.path.clone(),
        shape: variable.shape.clone(),
        unlimited: max_shape.iter().map(Option::is_none).collect(),
        data_type: element.data_type,
        endian: element.endian,
        fill_value: fill_value(dataset, &element),
        dimension_names: Some(walk.names_of(variable)),
        attributes: Vec::new(),
        encoding: ForeignEncoding {
            dtype: element.words,
            chunks: match &dataset.layout {
                Hdf5Layout::Chunked(layout) => Some(layout.shape.clone()),
                _ => None,
            },
            filters: filters_of(dataset),
            enumeration: element.enumeration,
            unlabeled: variable.unlabeled,
            classic: false,
        },
        storage,
    })
}

fn filters_of(dataset: &Dataset) -> Vec<ForeignFilter> {
    let filters = dataset.filters.iter();
    filters
        .map(|filter| ForeignFilter { id: filter.id.into(), values: filter.values.clone() })
        .collect()
}

/// Returns the fill value as one stored element; `None` if it is undefined or unusable.
fn fill_value(dataset: &Dataset, element: &Hdf5ElementType) -> Option<Vec<u8>> {
    let size = element.data_type.and_then(DataType::item_size)?;
    match &dataset.fill_value {
        Hdf5FillValue::Undefined => None,
        Hdf5FillValue::Default => Some(vec![0; size]),
        Hdf5FillValue::Value(bytes) if element.native.is_none() => {
            Some(bytes.clone()).filter(|bytes| bytes.len() == size)
        }
        Hdf5FillValue::Value(bytes) => converted_fill(dataset, element, bytes, size),
    }
}

/// Converts a fill value whose stored form differs from the engine's elements; `None` if only the
/// native library can convert it.
fn converted_fill(
    dataset: &Dataset,
    element: &Hdf5ElementType,
    stored: &[u8],
    size: usize,
) -> Option<Vec<u8>> {
    match &dataset.datatype.kind {
        TypeKind::Text(format) => {
            let mut text = value::unpadded(stored, *format).to_vec();
            text.resize(size, 0);
            Some(text)
        }
        TypeKind::Integer { bits, signed } => {
            let value = value::integer(stored, *bits, *signed)?;
            attributes::integer_bytes(&value, size, element.endian)
        }
        TypeKind::Bits(_) => Some(stored.to_vec()).filter(|bytes| bytes.len() == size),
        _ => None,
    }
}
