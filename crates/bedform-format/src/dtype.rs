//! Data types of array elements, and their names in Zarr and NumPy.

use std::fmt;

/// The type of one element.
///
/// In memory an element has [`DataType::item_size`] bytes, in the machine's byte order.
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
    /// Text of a fixed number of bytes, padded with zeros (NumPy `S`).
    FixedBytes(u32),
    /// A fixed number of UCS-4 characters, padded with zeros (NumPy `U`).
    FixedUnicode(u32),
    /// UTF-8 text of variable length.
    String,
    /// Times (NumPy `datetime64`): 64-bit counts of a unit since 1970; the smallest number is NaT.
    DateTime(TimeUnit),
    /// Durations (NumPy `timedelta64`).
    TimeDelta(TimeUnit),
    /// A fixed number of bytes with any content (NumPy `V`), used also for structured types.
    Raw(u32),
}

/// The unit of times and durations: a multiple of one of NumPy's units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TimeUnit {
    unit: &'static str,
    count: u32,
}

impl TimeUnit {
    /// NumPy's units.
    const UNITS: [&'static str; 14] =
        ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as", "generic"];

    /// Makes `count` of NumPy's unit with this name; `None` for other names, and for counts that
    /// NumPy refuses.
    pub fn new(unit: &str, count: u64) -> Option<Self> {
        let unit = *Self::UNITS
            .iter()
            .find(|known| **known == unit || (unit == "\u{3bc}s" && **known == "us"))?;
        let count = u32::try_from(count).ok().filter(|count| (1..1 << 31).contains(count))?;
        Some(Self { unit, count })
    }

    /// Returns the name of the unit.
    pub fn unit(self) -> &'static str {
        self.unit
    }

    /// Returns the multiple of the unit.
    pub fn count(self) -> u32 {
        self.count
    }

    /// Parses the suffix of a NumPy type string: `[ns]`, `[10us]`, or nothing for the generic unit.
    fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Self::new("generic", 1);
        }
        let inner = text.strip_prefix('[')?.strip_suffix(']')?;
        let digits = inner.bytes().take_while(u8::is_ascii_digit).count();
        let (count, unit) = inner.split_at_checked(digits)?;
        Self::new(unit, if count.is_empty() { 1 } else { count.parse().ok()? })
    }
}

impl fmt::Display for TimeUnit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.unit, self.count) {
            ("generic", _) => Ok(()),
            (unit, 1) => write!(formatter, "[{unit}]"),
            (unit, count) => write!(formatter, "[{count}{unit}]"),
        }
    }
}

/// The byte order of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Endian {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

impl Endian {
    /// The byte order of this machine.
    pub const NATIVE: Self = if cfg!(target_endian = "big") { Self::Big } else { Self::Little };
}

/// Each type with its name in Zarr v3, and its NumPy kind and size.
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

/// The largest size of a fixed-size text element, in bytes.
const FIXED_BYTES_MAX: u32 = 1 << 20;

impl DataType {
    /// Returns the type with this name in Zarr v3 metadata.
    pub fn parse_v3(name: &str) -> Option<Self> {
        if name == "string" {
            return Some(Self::String);
        }
        NAMES.iter().find(|(_, v3, _)| *v3 == name).map(|(data_type, ..)| *data_type)
    }

    /// Parses a NumPy type string such as `<f4`, as in Zarr v2 metadata. The byte order is `None`
    /// for types without one.
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
        if let Some(unit) = rest.strip_prefix("M8") {
            return Some((Self::DateTime(TimeUnit::parse(unit)?), endian));
        }
        if let Some(unit) = rest.strip_prefix("m8") {
            return Some((Self::TimeDelta(TimeUnit::parse(unit)?), endian));
        }
        if let Some(digits) = rest.strip_prefix('V') {
            return Some((Self::Raw(fixed(digits, 1)?), None));
        }
        if let Some(digits) = rest.strip_prefix('S') {
            return Some((Self::FixedBytes(fixed(digits, 1)?), None));
        }
        if let Some(digits) = rest.strip_prefix('U') {
            return Some((Self::FixedUnicode(fixed(digits, 4)?), endian));
        }
        let (data_type, ..) = NAMES.iter().find(|(.., numpy)| *numpy == rest)?;
        Some((*data_type, endian))
    }

    /// Returns NumPy's `S` of this many bytes; `None` over the limit.
    pub fn fixed_bytes(bytes: u64) -> Option<Self> {
        let bytes = u32::try_from(bytes).ok().filter(|bytes| *bytes <= FIXED_BYTES_MAX)?;
        Some(Self::FixedBytes(bytes))
    }

    /// Returns NumPy's `V` of this many bytes; `None` over the limit.
    pub fn raw(bytes: u64) -> Option<Self> {
        let bytes = u32::try_from(bytes).ok().filter(|bytes| *bytes <= FIXED_BYTES_MAX)?;
        Some(Self::Raw(bytes))
    }

    /// Returns true for times, durations and opaque bytes, which core Zarr v3 does not name. Such
    /// arrays can be read but not created; conversions copy times under the names that zarr-python
    /// uses.
    pub fn is_only_read(self) -> bool {
        matches!(self, Self::DateTime(_) | Self::TimeDelta(_) | Self::Raw(_))
    }

    /// Returns NumPy's `U` of this many bytes, four per character; `None` over the limit.
    pub fn fixed_unicode(bytes: u64) -> Option<Self> {
        let bytes = u32::try_from(bytes).ok().filter(|bytes| *bytes <= FIXED_BYTES_MAX)?;
        (bytes % 4 == 0).then_some(Self::FixedUnicode(bytes / 4))
    }

    /// Returns the name in Zarr v3 metadata; `None` for types that a name does not define.
    pub fn v3_name(self) -> Option<&'static str> {
        if self == Self::String {
            return Some("string");
        }
        NAMES.iter().find(|(data_type, ..)| *data_type == self).map(|(_, v3, _)| *v3)
    }

    /// Returns the NumPy type without byte order, such as `f4`; `O` for text of variable length.
    pub fn numpy(self) -> String {
        match self {
            Self::String => "O".to_owned(),
            Self::FixedBytes(count) => format!("S{count}"),
            Self::FixedUnicode(count) => format!("U{count}"),
            Self::DateTime(unit) => format!("M8{unit}"),
            Self::TimeDelta(unit) => format!("m8{unit}"),
            Self::Raw(count) => format!("V{count}"),
            _ => NAMES
                .iter()
                .find(|(data_type, ..)| *data_type == self)
                .map_or_else(String::new, |(.., numpy)| (*numpy).to_owned()),
        }
    }

    /// Returns the length of an element in bytes; `None` for text of variable length.
    pub fn item_size(self) -> Option<usize> {
        Some(match self {
            Self::Bool | Self::Int8 | Self::UInt8 => 1,
            Self::Int16 | Self::UInt16 | Self::Float16 => 2,
            Self::Int32 | Self::UInt32 | Self::Float32 => 4,
            Self::Int64 | Self::UInt64 | Self::Float64 | Self::Complex64 => 8,
            Self::DateTime(_) | Self::TimeDelta(_) => 8,
            Self::Complex128 => 16,
            Self::FixedBytes(count) | Self::Raw(count) => count as usize,
            Self::FixedUnicode(count) => count as usize * 4,
            Self::String => return None,
        })
    }

    /// Returns the length in bytes of the numbers in an element; a change of byte order reverses
    /// each.
    pub fn swap_size(self) -> usize {
        match self {
            Self::Complex64 | Self::FixedUnicode(_) => 4,
            Self::Complex128 => 8,
            Self::FixedBytes(_) | Self::Raw(_) | Self::String => 1,
            _ => self.item_size().unwrap_or(1),
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.v3_name()) {
            (_, Some(name)) => formatter.write_str(name),
            (Self::DateTime(unit), _) => write!(formatter, "datetime64{unit}"),
            (Self::TimeDelta(unit), _) => write!(formatter, "timedelta64{unit}"),
            _ => formatter.write_str(&self.numpy()),
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
    fn times_have_a_unit_of_numpy_and_how_many_of_it() {
        for (name, unit, count) in [
            ("<M8[ns]", "ns", 1),
            (">M8[25us]", "us", 25),
            ("<m8[D]", "D", 1),
            ("<m8", "generic", 1),
        ] {
            let (parsed, _) = DataType::parse_numpy(name).unwrap();
            let (DataType::DateTime(found) | DataType::TimeDelta(found)) = parsed else {
                panic!("{name}")
            };
            assert_eq!((found.unit(), found.count()), (unit, count));
            assert_eq!(parsed.numpy(), name[1..]);
            assert_eq!((parsed.item_size(), parsed.swap_size()), (Some(8), 8));
        }
        for name in
            ["<M8[x]", "<M8[ns", "<M8[0s]", "<M8[99999999999s]", "<M8[]", "<M4[s]", "<M8[s]x"]
        {
            assert_eq!(DataType::parse_numpy(name), None, "{name}");
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
