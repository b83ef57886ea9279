//! The attributes of a chunk map: the ones that h5py and the netCDF library show.

use std::collections::HashSet;

use super::numpy::{NumpyType, numpy_type};
use crate::chunk_map::{AttributeValues, ForeignAttribute as Described, RefusedMember};
use crate::hdf5::datatype::TypeKind;
use crate::hdf5::error::{Hdf5Error, Result};
use crate::hdf5::{Attribute, Dataspace, Hdf5File, Hdf5Value};
use crate::json::text_of_bytes;
use crate::netcdf_classic::shown;
use crate::{DataType, Endian};

/// Attributes with NetCDF's own bookkeeping, which no library shows.
const HIDDEN: [&str; 8] = [
    "CLASS",
    "DIMENSION_LIST",
    "NAME",
    "REFERENCE_LIST",
    "_NCProperties",
    "_Netcdf4Coordinates",
    "_Netcdf4Dimid",
    "_nc3_strict",
];

/// Describes the attributes of the objects of one file.
pub(super) struct AttributeReader<'f, 'r> {
    pub(super) file: &'f Hdf5File<'r>,
    /// True for NetCDF files: the netCDF library hides attributes of some types.
    pub(super) is_netcdf: bool,
}

impl AttributeReader<'_, '_> {
    /// Describes the attributes that users see. Attributes that are neither text nor numbers are
    /// listed in `refused` under `owner`: the name of a variable, or "" for a group.
    pub(super) fn describe(
        &self,
        attributes: &[Attribute],
        owner: &str,
        refused: &mut Vec<RefusedMember>,
    ) -> Result<Vec<(String, Described)>> {
        let mut described = Vec::new();
        let mut names = HashSet::new();
        for attribute in attributes {
            if HIDDEN.iter().any(|hidden| hidden.as_bytes() == attribute.name) {
                continue;
            }
            let name = name_of(&attribute.name);
            let value = describe_one(self.file, attribute)?;
            let mut refuse = |reason| {
                refused.push(RefusedMember { name: format!("{owner}:{name}"), reason });
            };
            match &value {
                None => refuse(format!("{}, which h5py reads", kind_of(attribute))),
                Some(Described::Values(values)) if self.is_netcdf && values.is_not_netcdf() => {
                    let kind = values.data_type;
                    refuse(format!("an attribute of type {kind}, which NetCDF does not have"));
                }
                Some(_) => {}
            }
            if let Some(value) = value
                && names.insert(name.clone())
            {
                described.push((name, value));
            }
        }
        Ok(described)
    }
}

/// Returns the phrase for an attribute without text or numbers.
fn kind_of(attribute: &Attribute) -> &'static str {
    match attribute.datatype.kind {
        TypeKind::Compound(_) => "an attribute of records",
        TypeKind::Reference(_) => "an attribute of references",
        TypeKind::Sequence(_) => "an attribute of lists of any length",
        TypeKind::Opaque { .. } => "an attribute of opaque bytes",
        TypeKind::Array { .. } => "an attribute of arrays",
        _ => "an attribute of a type that Bedform does not have",
    }
}

/// Returns the attribute's name as shown: bytes that are not UTF-8 become escapes such as `%FE`.
fn name_of(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(name) => name.replace('\0', ""),
        Err(_) => shown(name),
    }
}

/// Returns text without NUL bytes, which C writers leave at the end.
fn clean(text: &[u8]) -> String {
    text_of_bytes(text).replace('\0', "")
}

fn describe_one(file: &Hdf5File<'_>, attribute: &Attribute) -> Result<Option<Described>> {
    let is_null = attribute.space == Dataspace::Null;
    match &attribute.datatype.kind {
        TypeKind::VariableText(_) if is_null => return Ok(Some(Described::Texts(Vec::new()))),
        TypeKind::Text(_) if is_null => return Ok(Some(Described::Text(String::new()))),
        TypeKind::Text(_) if attribute.datatype.size == 1 => {
            let data = texts(file, attribute)?;
            let data = data.iter().map(|text| text.first().copied().unwrap_or(0)).collect();
            return Ok(Some(values(DataType::FixedBytes(1), Endian::NATIVE, attribute, data)));
        }
        TypeKind::VariableText(_) | TypeKind::Text(_) => {
            let mut texts: Vec<String> =
                texts(file, attribute)?.iter().map(|text| clean(text)).collect();
            return Ok(Some(match texts.len() {
                1 => Described::Text(texts.pop().unwrap_or_default()),
                _ => Described::Texts(texts),
            }));
        }
        _ => {}
    }
    let Some(NumpyType::Number { data_type, endian, is_stored_so }) =
        numpy_type(&attribute.datatype)
    else {
        return Ok(None);
    };
    // HDF5 does not convert bit fields to numbers: their bytes are taken as stored.
    let is_bits = matches!(attribute.datatype.kind, TypeKind::Bits(_));
    let mut data = if is_stored_so || is_bits {
        attribute.data.clone()
    } else {
        converted(file, attribute, data_type, endian)?
    };
    // h5py returns a scalar in the byte order of the machine.
    let is_swapped = attribute.space == Dataspace::Scalar && endian != Endian::NATIVE;
    if is_swapped {
        data.chunks_mut(data_type.swap_size().max(1)).for_each(<[u8]>::reverse);
    }
    let endian = if is_swapped { Endian::NATIVE } else { endian };
    Ok(Some(values(data_type, endian, attribute, data)))
}

/// Returns the elements of a text attribute.
fn texts(file: &Hdf5File<'_>, attribute: &Attribute) -> Result<Vec<Vec<u8>>> {
    let values = file.values(attribute)?.into_iter();
    Ok(values
        .map(|value| if let Hdf5Value::Text(text) = value { text } else { Vec::new() })
        .collect())
}

/// Describes a numeric attribute. The libraries show an array of length one as a scalar.
fn values(data_type: DataType, endian: Endian, attribute: &Attribute, data: Vec<u8>) -> Described {
    let shape = match &attribute.space {
        Dataspace::Null => Some(vec![0]),
        Dataspace::Scalar => None,
        Dataspace::Simple { shape, .. } => match shape.as_slice() {
            [1] => None,
            [1, inner @ ..] => Some(inner.to_vec()),
            all => Some(all.to_vec()),
        },
    };
    Described::Values(AttributeValues { data_type, endian, shape, data })
}

/// Converts integers whose stored form NumPy does not have.
fn converted(
    file: &Hdf5File<'_>,
    attribute: &Attribute,
    data_type: DataType,
    endian: Endian,
) -> Result<Vec<u8>> {
    let size = data_type.item_size().unwrap_or(1);
    let mut data = Vec::new();
    for value in file.values(attribute)? {
        let bytes = integer_bytes(&value, size, endian);
        let unknown = || Hdf5Error::unknown("attributes of numbers that are not IEEE's");
        data.extend(bytes.ok_or_else(unknown)?);
    }
    Ok(data)
}

/// Encodes an integer in `size` bytes; `None` for other values.
pub(super) fn integer_bytes(value: &Hdf5Value, size: usize, endian: Endian) -> Option<Vec<u8>> {
    let Hdf5Value::Integer(number) = value else { return None };
    let mut bytes = number.to_le_bytes().get(..size)?.to_vec();
    if endian == Endian::Big {
        bytes.reverse();
    }
    Some(bytes)
}
