//! The chunk map of an HDF5 file: what h5py's walk over the same file gives, without it.
//!
//! Groups and variables are named, and dimensions found, as the netCDF library does. A variable
//! that the engine cannot decode is in the map as native, with the reason; a file with something
//! that the parser does not know has no map, but an error.
//!
//! | module | holds |
//! |---|---|
//! | `walk` | groups and their members, links followed inside the file |
//! | `dimensions` | dimension scales, and a name for each axis |
//! | `numpy`, `element` | types in NumPy's words, and which of them the engine has |
//! | `attributes` | attributes that users see |
//! | `storage` | layouts, filters and chunks as the map has them |

mod attributes;
mod dimensions;
mod element;
mod numpy;
mod storage;
mod walk;

use super::error::{Hdf5Error, Result};
use super::filter::FillValue;
use super::{Dataset, Dataspace, Hdf5File, Layout, TypeKind, value};
use crate::chunk_map::{ChunkMap, Encoding, Filter, ForeignArray, ForeignGroup, SourceVersion};
use crate::{DataType, Limits};
use element::ElementType;
use storage::Tables;
use walk::{Variable, Walk};

/// The chunk map of a file that was opened with the same limits.
///
/// # Errors
/// [`Hdf5Error`]: of [`Hdf5Error::Unknown`] the HDF5 library may make the map.
pub fn chunk_map(
    file: &Hdf5File<'_>,
    source: &SourceVersion,
    limits: &Limits,
) -> std::result::Result<ChunkMap, Hdf5Error> {
    if file.superblock().being_written {
        return Err(Hdf5Error::unknown("a writer that has it open, or did not close it"));
    }
    let mut walk = Walk::over(file, limits)?;
    dimensions::name_all(&mut walk)?;
    let is_netcdf = walk.is_netcdf();
    let mut tables = Tables::new(limits);
    let mut groups = Vec::new();
    let mut arrays = Vec::new();
    for number in walk.parents_first() {
        let Some(group) = walk.groups.get(number) else { continue };
        for variable in group.variables.iter().filter_map(|number| walk.variables.get(*number)) {
            arrays.push(array_of(&walk, variable, &mut tables)?);
        }
        groups.push(ForeignGroup {
            path: group.path.clone(),
            attributes: attributes::describe(file, &group.attributes)?,
            dimensions: walk.dimensions_of(group),
            refused: group.refused.clone(),
        });
    }
    let format = if is_netcdf { "netcdf4" } else { "hdf5" };
    let map = ChunkMap { source: source.clone(), format: format.into(), groups, arrays };
    map.check(limits)?;
    Ok(map)
}

fn array_of(walk: &Walk<'_, '_>, variable: &Variable, tables: &mut Tables) -> Result<ForeignArray> {
    let dataset = &variable.dataset;
    let element = ElementType::of(&dataset.datatype, &walk.named_types);
    let storage = storage::describe(walk.file, variable, &element, tables)?;
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
        attributes: attributes::describe(walk.file, &variable.attributes)?,
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
