//! The type of a variable's elements, and whether the engine can use their stored bytes
//! unconverted.

use super::named_types::NamedTypes;
use super::numpy::{NumpyType, member_value, numpy_type};
use crate::chunk_map::Enumeration;
use crate::hdf5::datatype::{Datatype, Padding, TypeKind};
use crate::{DataType, Endian};

/// The type of a variable's elements.
pub(super) struct Hdf5ElementType {
    /// NumPy's name of the type; `str` for text of variable length.
    pub(super) words: String,
    /// The engine's type, if it has one.
    pub(super) data_type: Option<DataType>,
    pub(super) endian: Endian,
    /// The reason why only the native library can read the elements; `None` if the stored bytes are
    /// the elements.
    pub(super) native: Option<String>,
    /// The names of the values, if the type is an enumeration other than bool.
    pub(super) enumeration: Option<Enumeration>,
}

impl Hdf5ElementType {
    pub(super) fn of(datatype: &Datatype, named_types: &NamedTypes) -> Self {
        let only_native = |words: String, native: String| Self {
            words,
            data_type: None,
            endian: Endian::Little,
            native: Some(native),
            enumeration: None,
        };
        if let TypeKind::VariableText(_) = datatype.kind {
            let native = "text of any length".to_owned();
            return Self { data_type: Some(DataType::String), ..only_native("str".into(), native) };
        }
        match numpy_type(datatype) {
            None => only_native("?".into(), "its type has no NumPy equivalent".into()),
            Some(NumpyType::Number { data_type, endian, is_stored_so }) => Self {
                words: NumpyType::Number { data_type, endian, is_stored_so }.code(),
                data_type: Some(data_type),
                endian,
                native: (!is_stored_so)
                    .then(|| "numbers in a form that NumPy does not have".to_owned()),
                enumeration: enumeration(datatype, data_type, named_types),
            },
            Some(text @ NumpyType::Text(size)) => match DataType::fixed_bytes(size.into()) {
                None => only_native(text.code(), "very long text".into()),
                data_type => Self {
                    words: text.code(),
                    data_type,
                    endian: Endian::NATIVE,
                    native: (size > 1 && !is_padded_with_zeros(datatype))
                        .then(|| "text that is not padded with zeros".to_owned()),
                    enumeration: None,
                },
            },
            Some(other @ (NumpyType::Object | NumpyType::Record(..) | NumpyType::Array(..))) => {
                let shown = other.shown();
                only_native(shown.clone(), format!("elements of type {shown}"))
            }
            Some(other) => only_native(other.code(), format!("elements of type {}", other.shown())),
        }
    }
}

fn is_padded_with_zeros(datatype: &Datatype) -> bool {
    matches!(&datatype.kind, TypeKind::Text(format) if format.padding == Padding::Zeros)
}

fn enumeration(
    datatype: &Datatype,
    data_type: DataType,
    named_types: &NamedTypes,
) -> Option<Enumeration> {
    let TypeKind::Enumeration { base, members } = &datatype.kind else { return None };
    if data_type == DataType::Bool {
        return None;
    }
    let members = members.iter().map(|(name, stored)| {
        let value = member_value(base, stored).unwrap_or(0);
        (String::from_utf8_lossy(name).into_owned(), value.to_string())
    });
    let name = named_types.name_of(datatype).unwrap_or_default().to_owned();
    Some(Enumeration { name, members: members.collect() })
}
