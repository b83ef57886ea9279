//! The chunk map of an HDF5 file: what h5py's walk over the same file gives, without it.
//!
//! Groups and variables are named, and dimensions found, as the netCDF library does. A variable
//! that the engine cannot decode is in the map as native, with the reason; a file with something
//! that the parser does not know has no map, but an error.
//!
//! | module | holds |
//! |---|---|
//! | `walk` | groups and their members, links followed inside the file |
//! | `listing`, `named_types` | members by their names, types by what they are |
//! | `dimensions` | dimension scales, and a name for each axis |
//! | `numpy`, `element` | types in NumPy's words, and which of them the engine has |
//! | `attributes` | attributes that users see |
//! | `storage` | layouts, filters and chunks as the map has them |
//! | `texts` | texts of any length: where their elements lie, and what these stand for |

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
use super::filter::FillValue;
use super::{Dataset, Dataspace, Hdf5File, Layout, ObjectKind, TypeKind, value};
use crate::chunk_map::{
    ChunkMap, ChunkMapError, ChunkTable, Encoding, Filter, ForeignArray, ForeignGroup,
    ForeignStorage, SourceVersion,
};
use crate::{DataType, Limits};
use attributes::AttributeReader;
use element::ElementType;
use storage::Tables;
use walk::{Variable, Walk};

pub use texts::{StoredTexts, stored_texts};

/// The chunk map of a file that was opened with the same limits.
///
/// # Errors
/// [`Hdf5Error`]: of [`Hdf5Error::Unknown`] the HDF5 library may make the map.
pub fn chunk_map(
    file: &Hdf5File<'_>,
    source: &SourceVersion,
    limits: &Limits,
) -> std::result::Result<ChunkMap, Hdf5Error> {
    let walk = walk_over(file, limits)?;
    map_of(&walk, walk.parents_first(), source, limits, Tables::new(limits)).map(|(map, _)| map)
}

/// The chunk map of a file with empty chunk tables, and the addresses of the datasets of its arrays that have
/// one, for [`chunk_table`], or have texts of any length, for [`stored_texts`].
///
/// # Errors
/// As [`chunk_map`].
pub fn chunk_map_without_tables(
    file: &Hdf5File<'_>,
    source: &SourceVersion,
    limits: &Limits,
) -> std::result::Result<(ChunkMap, Vec<Option<u64>>), Hdf5Error> {
    let walk = walk_over(file, limits)?;
    map_of(&walk, walk.parents_first(), source, limits, Tables::deferred(limits))
}

/// The chunk table of an array of the map that [`chunk_map_without_tables`] gave of the same file, and the
/// address with it; none if another array lies there now.
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

/// The chunk map of one group, what is within it, and the groups that it is within; none if the file
/// has no such group. Dimensions have the names that they have in the map of the file.
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
    map_of(&walk, wanted, source, limits, Tables::new(limits)).map(|(map, _)| Some(map))
}

fn walk_over<'f, 'r>(file: &'f Hdf5File<'r>, limits: &Limits) -> Result<Walk<'f, 'r>> {
    if file.superblock().being_written {
        return Err(Hdf5Error::unknown("a writer that has it open, or did not close it"));
    }
    let mut walk = Walk::over(file, limits)?;
    dimensions::name_all(&mut walk)?;
    Ok(walk)
}

/// The map of the groups with these numbers, and the addresses that [`chunk_map_without_tables`] gives.
fn map_of(
    walk: &Walk<'_, '_>,
    wanted: Vec<usize>,
    source: &SourceVersion,
    limits: &Limits,
    mut tables: Tables,
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
            let has_texts = array.data_type == Some(DataType::String);
            if has_texts || matches!(array.storage, ForeignStorage::Chunked { .. }) {
                addresses.insert(array.path.clone(), variable.address);
            }
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

/// A variable, without its attributes.
fn array_of(walk: &Walk<'_, '_>, variable: &Variable, tables: &mut Tables) -> Result<ForeignArray> {
    let dataset = &variable.dataset;
    let element = ElementType::of(&dataset.datatype, &walk.named_types);
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
        encoding: Encoding {
            dtype: element.words,
            chunks: match &dataset.layout {
                Layout::Chunked(layout) => Some(layout.shape.clone()),
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

fn filters_of(dataset: &Dataset) -> Vec<Filter> {
    let filters = dataset.filters.iter();
    filters.map(|filter| Filter { id: filter.id.into(), values: filter.values.clone() }).collect()
}

/// One element as it would be stored, for what was never written.
fn fill_value(dataset: &Dataset, element: &ElementType) -> Option<Vec<u8>> {
    let size = element.data_type.and_then(DataType::item_size)?;
    match &dataset.fill_value {
        FillValue::Undefined => None,
        FillValue::Default => Some(vec![0; size]),
        FillValue::Value(bytes) if element.native.is_none() => {
            Some(bytes.clone()).filter(|bytes| bytes.len() == size)
        }
        FillValue::Value(bytes) => converted_fill(dataset, element, bytes, size),
    }
}

/// A fill value that is stored in another form than the engine's elements; none where only the
/// library that reads the elements knows it.
fn converted_fill(
    dataset: &Dataset,
    element: &ElementType,
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
