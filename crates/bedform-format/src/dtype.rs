//! Data types of array elements and how they are named in Zarr and NumPy.

use std::fmt;

/// The type of one element.
///
/// In memory elements are in the machine's order, [`DataType::item_size`] bytes each.
///
/// ```
/// use bedform_format::DataType;
/// assert_eq!(DataType::parse_v3("float32"), Some(DataType::Float32));
/// assert_eq!(DataType::Float32.numpy(), "f4");
/// assert_eq!(DataType::String.item_size(), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DataType {
    /// One byte, 0 or 1.
    Bool,
    /// Signed integer, 1 byte.
    Int8,
    /// Signed integer, 2 bytes.
    Int16,
    /// Signed integer, 4 bytes.
    Int32,
    /// Signed integer, 8 bytes.
    Int64,
    /// Unsigned integer, 1 byte.
    UInt8,
    /// Unsigned integer, 2 bytes.
    UInt16,
    /// Unsigned integer, 4 bytes.
    UInt32,
    /// Unsigned integer, 8 bytes.
    UInt64,
    /// IEEE half precision.
    Float16,
    /// IEEE single precision.
    Float32,
    /// IEEE double precision.
    Float64,
    /// Two single precision numbers.
    Complex64,
    /// Two double precision numbers.
    Complex128,
    /// So many bytes, padded with zeros (NumPy `S`).
    FixedBytes(u32),
    /// So many UCS-4 characters, padded with zeros (NumPy `U`).
    FixedUnicode(u32),
    /// Text of any length in UTF-8.
    String,
}

/// The order of the bytes of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Endian {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

impl Endian {
    /// The order of this machine.
    pub const NATIVE: Self = if cfg!(target_endian = "big") { Self::Big } else { Self::Little };
}

/// (type, name in Zarr v3, NumPy kind and size)
const NAMES: [(DataType, &str, &str); 14] = [
    (DataType::Bool, "bool", "b1"),
    (DataType::Int8, "int8", "i1"),
    (DataType::Int16, "int16", "i2"),
    (DataType::Int32, "int32", "i4"),
    (DataType::Int64, "int64", "i8"),
    (DataType::UInt8, "uint8", "u1"),
    (DataType::UInt16, "uint16", "u2"),
    (DataType::UInt32, "uint32", "u4"),
    (DataType::UInt64, "uint64", "u8"),
    (DataType::Float16, "float16", "f2"),
    (DataType::Float32, "float32", "f4"),
    (DataType::Float64, "float64", "f8"),
    (DataType::Complex64, "complex64", "c8"),
    (DataType::Complex128, "complex128", "c16"),
];

/// The longest fixed-size text element, in bytes.
const FIXED_BYTES_MAX: u32 = 1 << 20;

impl DataType {
    /// The type with this name in Zarr v3 metadata.
    pub fn parse_v3(name: &str) -> Option<Self> {
        if name == "string" {
            return Some(Self::String);
        }
        NAMES.iter().find(|(_, v3, _)| *v3 == name).map(|(data_type, ..)| *data_type)
    }

    /// The type and byte order of a NumPy type string such as `<f4`, as Zarr v2 metadata has them.
    /// `None` as order where it does not matter.
    pub fn parse_numpy(name: &str) -> Option<(Self, Option<Endian>)> {
        let endian = match name.chars().next()? {
            '<' => Some(Endian::Little),
            '>' => Some(Endian::Big),
            '|' | '=' => None,
            _ => return None,
        };
        let rest = name.get(1..)?;
        if rest == "O" {
            return Some((Self::String, None));
        }
        let fixed = |digits: &str, width: u32| {
            let count: u32 = digits.parse().ok()?;
            (count.checked_mul(width)? <= FIXED_BYTES_MAX).then_some(count)
        };
        if let Some(digits) = rest.strip_prefix('S') {
            return Some((Self::FixedBytes(fixed(digits, 1)?), None));
        }
        if let Some(digits) = rest.strip_prefix('U') {
            return Some((Self::FixedUnicode(fixed(digits, 4)?), endian));
        }
        let (data_type, ..) = NAMES.iter().find(|(.., numpy)| *numpy == rest)?;
        Some((*data_type, endian))
    }

    /// NumPy's `S` of so many bytes; `None` over the limit.
    pub fn fixed_bytes(bytes: u64) -> Option<Self> {
        let bytes = u32::try_from(bytes).ok().filter(|bytes| *bytes <= FIXED_BYTES_MAX)?;
        Some(Self::FixedBytes(bytes))
    }

    /// NumPy's `U` of so many bytes, four a character; `None` over the limit.
    pub fn fixed_unicode(bytes: u64) -> Option<Self> {
        let bytes = u32::try_from(bytes).ok().filter(|bytes| *bytes <= FIXED_BYTES_MAX)?;
        (bytes % 4 == 0).then_some(Self::FixedUnicode(bytes / 4))
    }

    /// The name in Zarr v3 metadata; `None` for types that need more than a name.
    pub fn v3_name(self) -> Option<&'static str> {
        if self == Self::String {
            return Some("string");
        }
        NAMES.iter().find(|(data_type, ..)| *data_type == self).map(|(_, v3, _)| *v3)
    }

    /// The NumPy type without its byte order, such as `f4`; `O` for text.
    pub fn numpy(self) -> String {
        match self {
            Self::String => "O".to_owned(),
            Self::FixedBytes(count) => format!("S{count}"),
            Self::FixedUnicode(count) => format!("U{count}"),
            _ => NAMES
                .iter()
                .find(|(data_type, ..)| *data_type == self)
                .map_or_else(String::new, |(.., numpy)| (*numpy).to_owned()),
        }
    }

    /// Bytes of one element; `None` for text of any length.
    pub fn item_size(self) -> Option<usize> {
        Some(match self {
            Self::Bool | Self::Int8 | Self::UInt8 => 1,
            Self::Int16 | Self::UInt16 | Self::Float16 => 2,
            Self::Int32 | Self::UInt32 | Self::Float32 => 4,
            Self::Int64 | Self::UInt64 | Self::Float64 | Self::Complex64 => 8,
            Self::Complex128 => 16,
            Self::FixedBytes(count) => count as usize,
            Self::FixedUnicode(count) => count as usize * 4,
            Self::String => return None,
        })
    }

    /// Bytes of the numbers that an element is made of: what a change of byte order reverses.
    pub fn swap_size(self) -> usize {
        match self {
            Self::Complex64 | Self::FixedUnicode(_) => 4,
            Self::Complex128 => 8,
            Self::FixedBytes(_) | Self::String => 1,
            _ => self.item_size().unwrap_or(1),
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.v3_name() {
            Some(name) => formatter.write_str(name),
            None => formatter.write_str(&self.numpy()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_named_type_is_found_again_by_both_of_its_names() {
        for (data_type, v3, numpy) in NAMES {
            assert_eq!(DataType::parse_v3(v3), Some(data_type));
            let (parsed, endian) = DataType::parse_numpy(&format!(">{numpy}")).unwrap();
            assert_eq!((parsed, endian), (data_type, Some(Endian::Big)));
            assert_eq!(data_type.item_size().unwrap() % data_type.swap_size(), 0);
        }
    }

    #[test]
    fn fixed_text_has_a_bounded_size() {
        assert_eq!(DataType::parse_numpy("|S3"), Some((DataType::FixedBytes(3), None)));
        assert_eq!(DataType::FixedUnicode(5).item_size(), Some(20));
        assert_eq!(DataType::parse_numpy("|S4000000000"), None);
        assert_eq!(DataType::parse_numpy("<U4000000000"), None);
        assert_eq!(DataType::parse_numpy("<x4"), None);
        assert_eq!(DataType::parse_numpy(""), None);
    }
}
