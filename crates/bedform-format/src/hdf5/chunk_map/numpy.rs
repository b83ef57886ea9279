//! The NumPy types that h5py gives HDF5 types, and their NumPy names.

use std::collections::HashMap;

use crate::hdf5::datatype::{
    BitRange, ByteOrder, CompoundMember, Datatype, FloatFormat, ReferenceKind, TypeKind,
};
use crate::{DataType, Endian};

/// The NumPy type of an HDF5 type.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum NumpyType {
    /// A number for which the engine has a type.
    Number {
        data_type: DataType,
        endian: Endian,
        /// True if the stored bytes are the number; otherwise HDF5 converts them.
        is_stored_so: bool,
    },
    /// A floating-point number of 80 bits or more.
    LongDouble(Endian),
    /// Text of a fixed number of bytes.
    Text(u32),
    /// A Python object: text or sequences of variable length, references.
    Object,
    /// A record: fields with names and offsets, and the length of the whole in bytes.
    Record(Vec<(String, NumpyType, u32)>, u32),
    /// An array of fixed shape.
    Array(Box<NumpyType>, Vec<u32>),
    /// A fixed number of opaque bytes.
    Raw(u32),
    /// An opaque type whose tag is the NumPy name that h5py wrote.
    Tagged(String),
}

/// Returns the NumPy type of `datatype`; `None` if h5py has none.
pub(super) fn numpy_type(datatype: &Datatype) -> Option<NumpyType> {
    let size = datatype.size;
    Some(match &datatype.kind {
        TypeKind::Integer { bits, signed } => integer(size, *bits, *signed)?,
        TypeKind::Bits(bits) => match integer(size, *bits, false)? {
            NumpyType::Number { data_type, endian, .. } => {
                NumpyType::Number { data_type, endian, is_stored_so: false }
            }
            other => other,
        },
        TypeKind::Float { bits, format } => float(size, *bits, format)?,
        TypeKind::Text(_) => NumpyType::Text(size),
        TypeKind::VariableText(_)
        | TypeKind::Reference(ReferenceKind::Object | ReferenceKind::Region) => NumpyType::Object,
        TypeKind::Sequence(base) => numpy_type(base).map(|_| NumpyType::Object)?,
        TypeKind::Enumeration { base, members } => enumeration(base, members)?,
        TypeKind::Array { shape, base } => {
            NumpyType::Array(Box::new(numpy_type(base)?), shape.clone())
        }
        TypeKind::Compound(members) => record(members, size)?,
        TypeKind::Opaque { tag } => match tag.strip_prefix(b"NUMPY:") {
            Some(words) => NumpyType::Tagged(String::from_utf8(words.to_vec()).ok()?),
            None => NumpyType::Raw(size),
        },
        TypeKind::Time | TypeKind::Reference(ReferenceKind::Revised) | TypeKind::Complex(_) => {
            return None;
        }
    })
}

fn endian_of(order: ByteOrder) -> Option<Endian> {
    match order {
        ByteOrder::Little => Some(Endian::Little),
        ByteOrder::Big => Some(Endian::Big),
        ByteOrder::Vax => None,
    }
}

/// Returns a number type; a one-byte type gets the machine's byte order, as in NumPy.
fn number(data_type: DataType, endian: Endian, is_stored_so: bool) -> NumpyType {
    let endian = if data_type.swap_size() == 1 { Endian::NATIVE } else { endian };
    NumpyType::Number { data_type, endian, is_stored_so }
}

fn is_whole(bits: BitRange, size: u32) -> bool {
    bits.offset == 0 && u32::from(bits.precision) == size.saturating_mul(8)
}

fn integer(size: u32, bits: BitRange, signed: bool) -> Option<NumpyType> {
    let data_type = match (size, signed) {
        (1, true) => DataType::Int8,
        (2, true) => DataType::Int16,
        (4, true) => DataType::Int32,
        (8, true) => DataType::Int64,
        (1, false) => DataType::UInt8,
        (2, false) => DataType::UInt16,
        (4, false) => DataType::UInt32,
        (8, false) => DataType::UInt64,
        _ => return None,
    };
    Some(number(data_type, endian_of(bits.order)?, is_whole(bits, size)))
}

/// Returns the smallest NumPy type that holds all values of a floating-point format.
fn float(size: u32, bits: BitRange, format: &FloatFormat) -> Option<NumpyType> {
    let endian = endian_of(bits.order)?;
    let kinds = [
        (DataType::Float16, 2, FloatFormat::ieee(5, 10)),
        (DataType::Float32, 4, FloatFormat::ieee(8, 23)),
        (DataType::Float64, 8, FloatFormat::ieee(11, 52)),
    ];
    for (data_type, bytes, ieee) in kinds {
        if size <= bytes && format.fits(&ieee) {
            let is_stored_so = size == bytes && is_whole(bits, size) && *format == ieee;
            return Some(number(data_type, endian, is_stored_so));
        }
    }
    let extended = FloatFormat { mantissa_bits: 64, ..FloatFormat::ieee(15, 64) };
    (size <= 16 && format.fits(&extended)).then_some(NumpyType::LongDouble(endian))
}

fn enumeration(base: &Datatype, members: &[(Vec<u8>, Vec<u8>)]) -> Option<NumpyType> {
    let numpy = numpy_type(base)?;
    let NumpyType::Number { endian, is_stored_so, data_type } = numpy else { return None };
    let is_one_of = |name: &[u8], value: i128| {
        let found = members.iter().find(|(other, _)| other == name);
        found.is_some_and(|(_, stored)| member_value(base, stored) == Some(value))
    };
    if members.len() == 2 && is_one_of(b"FALSE", 0) && is_one_of(b"TRUE", 1) {
        let is_stored_so = is_stored_so && data_type == DataType::Int8;
        return Some(number(DataType::Bool, Endian::NATIVE, is_stored_so));
    }
    Some(number(data_type, endian, is_stored_so))
}

/// Returns the value of a member of an enumeration.
pub(super) fn member_value(base: &Datatype, stored: &[u8]) -> Option<i128> {
    let TypeKind::Integer { bits, signed } = base.kind else { return None };
    match crate::hdf5::value::integer(stored, bits, signed)? {
        crate::hdf5::Hdf5Value::Integer(value) => Some(value),
        _ => None,
    }
}

fn record(members: &[CompoundMember], size: u32) -> Option<NumpyType> {
    let mut fields = Vec::new();
    let mut by_offset: Vec<&CompoundMember> = members.iter().collect();
    by_offset.sort_by_key(|member| member.offset);
    // NumPy's offsets are those in memory, where a heap reference has another size than in the
    // file.
    let mut moved = 0_i64;
    let mut offsets = HashMap::new();
    for member in by_offset {
        let offset = i64::from(member.offset).checked_add(moved)?;
        offsets.entry(&member.name).or_insert(u32::try_from(offset).ok()?);
        let change = i64::from(memory_size(&member.datatype)?);
        moved = moved.checked_add(change.checked_sub(member.datatype.size.into())?)?;
    }
    for member in members {
        let name = String::from_utf8(member.name.clone()).ok()?;
        fields.push((name, numpy_type(&member.datatype)?, *offsets.get(&member.name)?));
    }
    complex(&fields, size).or_else(|| {
        let size = u32::try_from(i64::from(size).checked_add(moved)?).ok()?;
        Some(NumpyType::Record(fields, size))
    })
}

/// Returns a complex type if the record is one: h5py stores it as fields `r` and `i`.
fn complex(fields: &[(String, NumpyType, u32)], size: u32) -> Option<NumpyType> {
    let [(real, one, start), (imaginary, other, next)] = fields else { return None };
    let NumpyType::Number { data_type, endian, is_stored_so } = one else { return None };
    if real != "r" || imaginary != "i" || one != other {
        return None;
    }
    let (data_type, bytes) = match data_type {
        DataType::Float32 => (DataType::Complex64, 4),
        DataType::Float64 => (DataType::Complex128, 8),
        _ => return None,
    };
    let is_packed = *start == 0 && *next == bytes && size == bytes.saturating_mul(2);
    Some(number(data_type, *endian, *is_stored_so && is_packed))
}

/// Returns the size of an element in memory, in bytes; a heap reference becomes a pointer.
fn memory_size(datatype: &Datatype) -> Option<u32> {
    match &datatype.kind {
        TypeKind::VariableText(_) => Some(8),
        TypeKind::Sequence(_) => Some(16),
        TypeKind::Reference(ReferenceKind::Revised) => Some(64),
        TypeKind::Array { shape, base } => {
            shape.iter().try_fold(memory_size(base)?, |size, axis| size.checked_mul(*axis))
        }
        TypeKind::Compound(members) => members.iter().try_fold(datatype.size, |size, member| {
            let change = i64::from(memory_size(&member.datatype)?);
            let size = i64::from(size).checked_add(change)?;
            u32::try_from(size.checked_sub(member.datatype.size.into())?).ok()
        }),
        _ => Some(datatype.size),
    }
}

impl FloatFormat {
    /// Returns the IEEE format with this number of exponent and mantissa bits.
    fn ieee(exponent_bits: u8, mantissa_bits: u8) -> Self {
        let half = 1_u32.checked_shl(u32::from(exponent_bits).saturating_sub(1)).unwrap_or(0);
        Self {
            sign_at: exponent_bits.saturating_add(mantissa_bits),
            exponent_at: mantissa_bits,
            exponent_bits,
            mantissa_at: 0,
            mantissa_bits,
            exponent_bias: half.saturating_sub(1),
            normalization: 2,
        }
    }

    /// Returns true if the format `other` holds all values of this one.
    fn fits(&self, other: &Self) -> bool {
        self.mantissa_bits <= other.mantissa_bits
            && self.exponent_max() <= other.exponent_max()
            && self.exponent_bias <= other.exponent_bias
    }

    fn exponent_max(&self) -> i64 {
        let count = 1_i64.checked_shl(self.exponent_bits.into()).unwrap_or(i64::MAX);
        count.saturating_sub(self.exponent_bias.into())
    }
}

impl NumpyType {
    /// Returns NumPy's `dtype.str`.
    pub(super) fn code(&self) -> String {
        match self {
            Self::Number { data_type, endian, .. } => {
                let order = if data_type.swap_size() == 1 { '|' } else { order_sign(*endian) };
                format!("{order}{}", data_type.numpy())
            }
            Self::LongDouble(endian) => format!("{}f16", order_sign(*endian)),
            Self::Text(size) => format!("|S{size}"),
            Self::Object => "|O".into(),
            Self::Raw(size) | Self::Record(_, size) => format!("|V{size}"),
            Self::Array(..) => "|V".into(),
            Self::Tagged(words) => words.clone(),
        }
    }

    /// Returns NumPy's `str(dtype)`.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Object => "object".into(),
            Self::LongDouble(Endian::NATIVE) => "float128".into(),
            Self::Tagged(words) => {
                let native = words.strip_prefix(order_sign(Endian::NATIVE));
                match native.and_then(|rest| rest.split_at_checked(2)) {
                    Some(("M8", unit)) => format!("datetime64{unit}"),
                    Some(("m8", unit)) => format!("timedelta64{unit}"),
                    _ => words.clone(),
                }
            }
            Self::Record(..) | Self::Array(..) => self.inner(),
            Self::Number { .. } | Self::LongDouble(_) | Self::Text(_) | Self::Raw(_) => self.code(),
        }
    }

    /// Returns NumPy's text for this type inside another type.
    fn inner(&self) -> String {
        match self {
            Self::Number { data_type: DataType::Bool, .. } => "'?'".into(),
            Self::Object => "'O'".into(),
            Self::Record(fields, size) => record_words(fields, *size),
            Self::Array(base, shape) => format!("({}, {})", base.inner(), tuple(shape)),
            _ => format!("'{}'", self.code().trim_start_matches('|')),
        }
    }

    /// Returns the size of an element in memory, in bytes.
    fn size(&self) -> u32 {
        match self {
            Self::Number { data_type, .. } => {
                data_type.item_size().and_then(|size| u32::try_from(size).ok()).unwrap_or(0)
            }
            Self::LongDouble(_) => 16,
            Self::Text(size) | Self::Raw(size) | Self::Record(_, size) => *size,
            Self::Object | Self::Tagged(_) => 8,
            Self::Array(base, shape) => {
                shape.iter().fold(base.size(), |size, axis| size.saturating_mul(*axis))
            }
        }
    }
}

fn order_sign(endian: Endian) -> char {
    match endian {
        Endian::Little => '<',
        Endian::Big => '>',
    }
}

fn record_words(fields: &[(String, NumpyType, u32)], size: u32) -> String {
    let mut end = 0_u32;
    let mut is_packed = true;
    for (_, field, offset) in fields {
        is_packed &= *offset == end;
        end = end.saturating_add(field.size());
    }
    if is_packed && end == size {
        let shown = fields.iter().map(|(name, field, _)| match field {
            NumpyType::Array(base, shape) => {
                format!("({}, {}, {})", quoted(name), base.inner(), tuple(shape))
            }
            _ => format!("({}, {})", quoted(name), field.inner()),
        });
        return format!("[{}]", shown.collect::<Vec<_>>().join(", "));
    }
    let names = fields.iter().map(|(name, ..)| quoted(name)).collect::<Vec<_>>().join(", ");
    let formats = fields.iter().map(|(_, field, _)| field.inner()).collect::<Vec<_>>().join(", ");
    let offsets = fields.iter().map(|(.., at)| at.to_string()).collect::<Vec<_>>().join(", ");
    format!(
        "{{'names': [{names}], 'formats': [{formats}], 'offsets': [{offsets}], 'itemsize': {size}}}"
    )
}

/// Returns a Python string literal.
fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut shown = String::from(quote);
    for c in text.chars() {
        match c {
            '\\' => shown.push_str("\\\\"),
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            c if c == quote => shown.extend(['\\', c]),
            c => shown.push(c),
        }
    }
    shown.push(quote);
    shown
}

fn tuple(shape: &[u32]) -> String {
    let sizes: Vec<String> = shape.iter().map(u32::to_string).collect();
    let comma = if shape.len() == 1 { "," } else { "" };
    format!("({}{comma})", sizes.join(", "))
}
