//! Attributes of foreign files, as JSON.
//!
//! The names and values are those that xarray's engines show: `netcdf4` for NetCDF files and
//! `h5netcdf` for other HDF5 files. So a dataset is the same in Python, C and the command line, and
//! before and after a conversion.

use bedform_format::chunk_map::{
    AttributeValues, ChunkMap, ForeignArray as MapArray, ForeignAttribute,
};
use bedform_format::json::{NUMBER, text_of_bytes};
use bedform_format::{DataType, Endian};
use serde_json::{Map, Number, Value, json};

/// The xarray engine whose names and values attributes have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttributeStyle {
    Netcdf4,
    H5netcdf,
}

impl AttributeStyle {
    pub(crate) fn of(map: &ChunkMap) -> Self {
        if map.format == "hdf5" { Self::H5netcdf } else { Self::Netcdf4 }
    }

    /// Returns true for number types that NetCDF lacks; its library does not show attributes of
    /// them.
    fn hides(self, values: &AttributeValues) -> bool {
        self == Self::Netcdf4 && values.is_not_netcdf()
    }
}

/// Returns the attributes of a group.
pub(crate) fn group_attributes(
    stored: &[(String, ForeignAttribute)],
    style: AttributeStyle,
) -> Map<String, Value> {
    let shown = stored.iter().filter_map(|(name, attribute)| {
        let value = match attribute {
            ForeignAttribute::Text(text) => json!(text),
            ForeignAttribute::Texts(texts) => json!(texts),
            ForeignAttribute::Values(values) if style.hides(values) => return None,
            ForeignAttribute::Values(values) => of_values(values),
        };
        Some((name.clone(), value))
    });
    shown.collect()
}

/// Returns the attributes of a variable.
pub(crate) fn variable_attributes(array: &MapArray, style: AttributeStyle) -> Map<String, Value> {
    let mut attributes = group_attributes(&array.attributes, style);
    if style == AttributeStyle::Netcdf4 {
        attributes.shift_remove("least_significant_digit");
    }
    attributes
}

/// Returns numbers or characters: one value, or nested lists of the attribute's shape.
fn of_values(values: &AttributeValues) -> Value {
    let size = values.data_type.item_size().unwrap_or(1).max(1);
    let mut elements =
        values.data.chunks_exact(size).map(|raw| element(raw, values.data_type, values.endian));
    match &values.shape {
        None => elements.next().unwrap_or(Value::Null),
        Some(shape) => nested(shape, &mut elements),
    }
}

fn nested(shape: &[u64], elements: &mut dyn Iterator<Item = Value>) -> Value {
    match shape {
        [] => elements.next().unwrap_or(Value::Null),
        // The map was checked: it has as many elements.
        [length, inner @ ..] => (0..*length).map(|_| nested(inner, elements)).collect(),
    }
}

fn element(raw: &[u8], data_type: DataType, endian: Endian) -> Value {
    use DataType as T;
    let mut raw = raw.to_vec();
    if endian == Endian::Big {
        raw.chunks_mut(data_type.swap_size().max(1)).for_each(<[u8]>::reverse);
    }
    let mut wide = [0; 8];
    let length = raw.len().min(8);
    wide[..length].copy_from_slice(&raw[..length]);
    let unsigned = u64::from_le_bytes(wide);
    let signed = || {
        let unused = 64 - 8 * u32::try_from(length).unwrap_or(8);
        // Shifting up and back fills the upper bits with the sign.
        unsigned.wrapping_shl(unused).cast_signed().wrapping_shr(unused)
    };
    match data_type {
        T::Bool => json!(unsigned != 0),
        T::Int8 | T::Int16 | T::Int32 | T::Int64 => json!(signed()),
        T::UInt8 | T::UInt16 | T::UInt32 | T::UInt64 => json!(unsigned),
        T::Float16 | T::Float32 | T::Float64 => float(&raw),
        T::Complex64 | T::Complex128 => {
            let (real, imaginary) = raw.split_at(raw.len() / 2);
            json!([float(real), float(imaginary)])
        }
        _ => json!(text_of_bytes(&raw).replace('\0', "")),
    }
}

/// Returns a little-endian floating-point number. Numbers that JSON lacks become marked text.
fn float(raw: &[u8]) -> Value {
    let number = match *raw {
        [a, b] => half(u16::from_le_bytes([a, b])),
        [a, b, c, d] => f64::from(f32::from_le_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => f64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => f64::NAN,
    };
    let word = match Number::from_f64(number) {
        Some(number) => return Value::Number(number),
        None if number.is_nan() => "NaN",
        None if number > 0.0 => "Infinity",
        None => "-Infinity",
    };
    json!(format!("{NUMBER}{word}"))
}

/// Returns the value of an IEEE half-precision number.
fn half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023) / 1024.0);
    sign * match exponent {
        0 => fraction * 2_f64.powi(-14),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction) * 2_f64.powi(exponent - 15),
    }
}

/// Returns a name for each axis of a variable.
pub(crate) fn dimension_names(array: &MapArray) -> Vec<String> {
    let given = array.dimension_names.as_deref().unwrap_or_default();
    let name = |axis: usize| given.get(axis).cloned().unwrap_or_else(|| format!("dim_{axis}"));
    (0..array.shape.len()).map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(
        data_type: DataType,
        endian: Endian,
        shape: Option<Vec<u64>>,
        data: &[u8],
    ) -> ForeignAttribute {
        ForeignAttribute::Values(AttributeValues { data_type, endian, shape, data: data.to_vec() })
    }

    #[test]
    fn numbers_of_any_type_and_order_become_numbers() {
        use DataType as T;
        for (data_type, endian, data, expected) in [
            (T::Int8, Endian::Little, &[0xff][..], json!(-1)),
            (T::Int16, Endian::Big, &[0xff, 0xfe][..], json!(-2)),
            (T::UInt32, Endian::Big, &[0, 0, 1, 0][..], json!(256)),
            (T::Float32, Endian::Little, &1.5_f32.to_le_bytes()[..], json!(1.5)),
            (T::Float64, Endian::Big, &f64::NAN.to_be_bytes()[..], json!("\u{e000}NaN")),
            (T::Float16, Endian::Little, &[0, 0xc0][..], json!(-2.0)),
            (T::FixedBytes(1), Endian::Little, &b"m"[..], json!("m")),
        ] {
            let stored = [("a".to_owned(), values(data_type, endian, None, data))];
            assert_eq!(
                group_attributes(&stored, AttributeStyle::H5netcdf)["a"],
                expected,
                "{data_type}"
            );
        }
        let stored =
            [("a".to_owned(), values(T::UInt8, Endian::Little, Some(vec![2, 2]), &[1, 2, 3, 4]))];
        assert_eq!(
            group_attributes(&stored, AttributeStyle::Netcdf4)["a"],
            json!([[1, 2], [3, 4]])
        );
        let stored = [("a".to_owned(), values(T::Bool, Endian::Little, None, &[1]))];
        assert!(group_attributes(&stored, AttributeStyle::Netcdf4).is_empty());
    }
}
