//! Attributes as a chunk map has them: those that users see.

use std::collections::HashSet;

use super::numpy::{NumpyType, numpy_type};
use crate::chunk_map::{Attribute as Described, AttributeValues};
use crate::hdf5::datatype::TypeKind;
use crate::hdf5::error::{Hdf5Error, Result};
use crate::hdf5::{Attribute, Dataspace, Hdf5File, Value};
use crate::netcdf_classic::shown;
use crate::{DataType, Endian};

/// Attributes that hold NetCDF's own bookkeeping; no library shows them.
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

/// The attributes that users see. Those of types that neither text nor numbers can show are left
/// out, as the netCDF library does.
pub(super) fn describe(
    file: &Hdf5File<'_>,
    attributes: &[Attribute],
) -> Result<Vec<(String, Described)>> {
    let mut described = Vec::new();
    let mut names = HashSet::new();
    for attribute in attributes {
        if HIDDEN.iter().any(|hidden| hidden.as_bytes() == attribute.name) {
            continue;
        }
        if let Some(value) = describe_one(file, attribute)? {
            // Names that are not UTF-8 may be the same without what is not: then they are shown with it.
            let name = Some(clean(&attribute.name)).filter(|name| !names.contains(name));
            let name = name.unwrap_or_else(|| shown(&attribute.name));
            if names.insert(name.clone()) {
                described.push((name, value));
            }
        }
    }
    Ok(described)
}

/// Text without what is not UTF-8 and without zeros, which writers in C leave at the end.
fn clean(text: &[u8]) -> String {
    String::from_utf8_lossy(text).replace('\0', "")
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
    // HDF5 makes no numbers of bits: they are taken as they are.
    let is_bits = matches!(attribute.datatype.kind, TypeKind::Bits(_));
    let mut data = if is_stored_so || is_bits {
        attribute.data.clone()
    } else {
        converted(file, attribute, data_type, endian)?
    };
    // h5py shows a scalar as a number of Python's machine.
    let is_swapped = attribute.space == Dataspace::Scalar && endian != Endian::NATIVE;
    if is_swapped {
        data.chunks_mut(data_type.swap_size().max(1)).for_each(<[u8]>::reverse);
    }
    let endian = if is_swapped { Endian::NATIVE } else { endian };
    Ok(Some(values(data_type, endian, attribute, data)))
}

/// The elements of an attribute of text.
fn texts(file: &Hdf5File<'_>, attribute: &Attribute) -> Result<Vec<Vec<u8>>> {
    let values = file.values(attribute)?.into_iter();
    Ok(values.map(|value| if let Value::Text(text) = value { text } else { Vec::new() }).collect())
}

/// Numbers. The libraries show an array of length one as its element.
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

/// Integers that are stored in another form than NumPy's.
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

/// An integer in so many bytes; none for other values.
pub(super) fn integer_bytes(value: &Value, size: usize, endian: Endian) -> Option<Vec<u8>> {
    let Value::Integer(number) = value else { return None };
    let mut bytes = number.to_le_bytes().get(..size)?.to_vec();
    if endian == Endian::Big {
        bytes.reverse();
    }
    Some(bytes)
}
