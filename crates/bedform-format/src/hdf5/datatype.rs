//! Datatypes: trees that describe the elements of datasets and attributes.

use super::cursor::{Cursor, bytes_for};
use super::error::{Hdf5Error, Result};

/// The type of an element.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Datatype {
    /// Length of a stored element in bytes.
    pub size: u32,
    /// Interpretation of the bytes.
    pub kind: TypeKind,
    /// Address of the committed datatype, if the type is one.
    pub committed: Option<u64>,
}

/// The interpretation of the bytes of an element.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TypeKind {
    /// An integer.
    Integer {
        /// Position of the number in the bytes.
        bits: BitRange,
        /// True for two's complement, false for unsigned.
        signed: bool,
    },
    /// A floating-point number.
    Float {
        /// Position of the number in the bytes.
        bits: BitRange,
        /// Position of its sign, exponent and mantissa.
        format: FloatFormat,
    },
    /// A time; no library converts it.
    Time,
    /// Text of a fixed number of bytes.
    Text(TextFormat),
    /// A bit field.
    Bits(BitRange),
    /// Opaque bytes, described by a tag only.
    Opaque {
        /// The tag, without padding.
        tag: Vec<u8>,
    },
    /// A record.
    Compound(Vec<CompoundMember>),
    /// A reference.
    Reference(ReferenceKind),
    /// An integer with named values.
    Enumeration {
        /// Type of the integer.
        base: Box<Datatype>,
        /// Names and stored values.
        members: Vec<(Vec<u8>, Vec<u8>)>,
    },
    /// A sequence of variable length, stored in a heap.
    Sequence(Box<Datatype>),
    /// Text of variable length, stored in a heap.
    VariableText(TextFormat),
    /// An array of fixed shape.
    Array {
        /// The shape.
        shape: Vec<u32>,
        /// Type of the elements.
        base: Box<Datatype>,
    },
    /// A complex number: real and imaginary part.
    Complex(Box<Datatype>),
}

/// The order of the bytes of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
    /// 16-bit words in the order of the VAX.
    Vax,
}

/// The position of a number in its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BitRange {
    /// Byte order.
    pub order: ByteOrder,
    /// Index of the first bit.
    pub offset: u16,
    /// Number of bits.
    pub precision: u16,
}

/// The positions of sign, exponent and mantissa in a floating-point number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FloatFormat {
    /// Index of the sign bit.
    pub sign_at: u8,
    /// Index of the first bit of the exponent.
    pub exponent_at: u8,
    /// Number of exponent bits.
    pub exponent_bits: u8,
    /// Index of the first bit of the mantissa.
    pub mantissa_at: u8,
    /// Number of mantissa bits.
    pub mantissa_bits: u8,
    /// Bias of the stored exponent.
    pub exponent_bias: u32,
    /// 0: not normalized; 1: the highest bit of the mantissa is set; 2: that bit is implied and not
    /// stored.
    pub normalization: u8,
}

/// The storage of text: padding and character set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TextFormat {
    /// Padding of text that is shorter than its element.
    pub padding: Padding,
    /// True for UTF-8, false for ASCII.
    pub utf8: bool,
}

/// The padding of text that is shorter than its element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Padding {
    /// A NUL ends the text, and arbitrary bytes may follow.
    ZeroTerminated,
    /// Zeros.
    Zeros,
    /// Spaces.
    Spaces,
}

/// A member of a record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CompoundMember {
    /// Its name.
    pub name: Vec<u8>,
    /// Offset in the record, in bytes.
    pub offset: u32,
    /// Its type.
    pub datatype: Datatype,
}

/// The kind of target of a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReferenceKind {
    /// An object, by its address.
    Object,
    /// A part of a dataset, stored in a heap.
    Region,
    /// One of the kinds that HDF5 1.12 introduced.
    Revised,
}

impl Datatype {
    /// Approximate memory of the type, in bytes.
    pub(super) fn weight(&self) -> u64 {
        let own = 16_u64;
        match &self.kind {
            TypeKind::Compound(members) => members.iter().fold(own, |sum, member| {
                let name = member.name.len() as u64;
                sum.saturating_add(name).saturating_add(member.datatype.weight())
            }),
            TypeKind::Enumeration { members, .. } => members.iter().fold(own, |sum, member| {
                let (name, value) = member;
                sum.saturating_add(name.len().saturating_add(value.len()) as u64)
            }),
            TypeKind::Sequence(base) | TypeKind::Array { base, .. } | TypeKind::Complex(base) => {
                own.saturating_add(base.weight())
            }
            TypeKind::Opaque { tag } => own.saturating_add(tag.len() as u64),
            _ => own,
        }
    }

    /// Decodes the type in a message.
    pub(super) fn decode(mut cursor: Cursor<'_>, depth_max: usize) -> Result<Self> {
        decode(&mut cursor, depth_max)
    }
}

fn decode(cursor: &mut Cursor<'_>, depth_left: usize) -> Result<Datatype> {
    let Some(depth_left) = depth_left.checked_sub(1) else {
        return Err(Hdf5Error::limit("types within types"));
    };
    let start = *cursor;
    let [class_and_version, flags @ ..] = cursor.array::<4>()?;
    let [low, high, _] = flags;
    let (class, version) = (class_and_version & 0x0f, class_and_version >> 4);
    if !(1..=5).contains(&version) {
        return Err(Hdf5Error::unknown(format!("version {version} of a datatype")));
    }
    let size = cursor.u32()?;
    if size == 0 {
        return Err(start.corrupt("a type of 0 bytes"));
    }
    let count = u16::from_le_bytes([low, high]);
    let nested = Nested { version, depth_left };
    let kind = match class {
        0 => {
            let bits = bit_range(cursor, order_of(low), size)?;
            TypeKind::Integer { bits, signed: low & 0x08 != 0 }
        }
        1 => float(cursor, [low, high], size)?,
        2 => {
            cursor.skip(2)?;
            TypeKind::Time
        }
        3 => TypeKind::Text(text_format(&start, low & 0x0f, low >> 4)?),
        4 => TypeKind::Bits(bit_range(cursor, order_of(low), size)?),
        5 => {
            let tag = cursor.take(low.into())?;
            let end = tag.iter().position(|byte| *byte == 0).unwrap_or(tag.len());
            TypeKind::Opaque { tag: tag.get(..end).unwrap_or(tag).to_vec() }
        }
        6 => nested.compound(cursor, count, size)?,
        7 => TypeKind::Reference(match low & 0x0f {
            0 => ReferenceKind::Object,
            1 => ReferenceKind::Region,
            2..=4 => ReferenceKind::Revised,
            other => return Err(start.corrupt(format!("a reference of kind {other}"))),
        }),
        8 => nested.enumeration(cursor, count, size)?,
        9 => {
            let base = decode(cursor, depth_left)?;
            match low & 0x0f {
                0 => TypeKind::Sequence(Box::new(base)),
                1 => TypeKind::VariableText(text_format(&start, low >> 4, high & 0x0f)?),
                other => return Err(start.corrupt(format!("elements of length kind {other}"))),
            }
        }
        10 => nested.array(cursor, size)?,
        11 if low == 1 => TypeKind::Complex(Box::new(decode(cursor, depth_left)?)),
        _ => return Err(Hdf5Error::unknown(format!("class {class} of a datatype"))),
    };
    Ok(Datatype { size, kind, committed: None })
}

fn order_of(flags: u8) -> ByteOrder {
    if flags & 1 == 0 { ByteOrder::Little } else { ByteOrder::Big }
}

fn bit_range(cursor: &mut Cursor<'_>, order: ByteOrder, size: u32) -> Result<BitRange> {
    let before = *cursor;
    let (offset, precision) = (cursor.u16()?, cursor.u16()?);
    let end = u32::from(offset).saturating_add(u32::from(precision));
    if precision == 0 || end > size.saturating_mul(8) {
        return Err(before.corrupt(format!("{precision} bits at {offset} of {size} bytes")));
    }
    Ok(BitRange { order, offset, precision })
}

fn float(cursor: &mut Cursor<'_>, flags: [u8; 2], size: u32) -> Result<TypeKind> {
    let [low, sign_at] = flags;
    let order = match low & 0x41 {
        0x41 => ByteOrder::Vax,
        0x40 => return Err(cursor.corrupt("a byte order that there is not")),
        _ => order_of(low),
    };
    let bits = bit_range(cursor, order, size)?;
    let [exponent_at, exponent_bits, mantissa_at, mantissa_bits] = cursor.array()?;
    let exponent_bias = cursor.u32()?;
    let format = FloatFormat {
        sign_at,
        exponent_at,
        exponent_bits,
        mantissa_at,
        mantissa_bits,
        exponent_bias,
        normalization: low >> 4 & 3,
    };
    Ok(TypeKind::Float { bits, format })
}

fn text_format(start: &Cursor<'_>, padding: u8, charset: u8) -> Result<TextFormat> {
    let padding = match padding {
        0 => Padding::ZeroTerminated,
        1 => Padding::Zeros,
        2 => Padding::Spaces,
        other => return Err(start.corrupt(format!("padding {other} of text"))),
    };
    match charset {
        0 | 1 => Ok(TextFormat { padding, utf8: charset == 1 }),
        other => Err(Hdf5Error::unknown(format!("the character set {other}"))),
    }
}

/// The context of nested types: version of the message, and remaining depth.
struct Nested {
    version: u8,
    depth_left: usize,
}

impl Nested {
    fn compound(&self, cursor: &mut Cursor<'_>, count: u16, size: u32) -> Result<TypeKind> {
        let mut members = Vec::new();
        for _ in 0..count {
            let name = self.name(cursor)?;
            let start = *cursor;
            let width = if self.version >= 3 { bytes_for(size.into()) } else { 4 };
            let offset = u32::try_from(cursor.uint(width)?).unwrap_or(u32::MAX);
            let shape = if self.version == 1 { old_member_shape(cursor)? } else { Vec::new() };
            let mut datatype = decode(cursor, self.depth_left)?;
            if !shape.is_empty() {
                datatype = array_of(&start, shape, datatype, None)?;
            }
            if offset.checked_add(datatype.size).is_none_or(|end| end > size) {
                return Err(start.corrupt("a member that ends behind its record"));
            }
            members.push(CompoundMember { name, offset, datatype });
        }
        if members.is_empty() {
            return Err(cursor.corrupt("a record without members"));
        }
        Ok(TypeKind::Compound(members))
    }

    fn enumeration(&self, cursor: &mut Cursor<'_>, count: u16, size: u32) -> Result<TypeKind> {
        let start = *cursor;
        let base = Box::new(decode(cursor, self.depth_left)?);
        if base.size != size || !matches!(base.kind, TypeKind::Integer { .. }) {
            return Err(start.corrupt("an enumeration over no integer of its size"));
        }
        let mut names = Vec::new();
        for _ in 0..count {
            names.push(self.name(cursor)?);
        }
        let width = usize::try_from(size).unwrap_or(usize::MAX);
        let mut members = Vec::with_capacity(names.len());
        for name in names {
            members.push((name, cursor.take(width)?.to_vec()));
        }
        Ok(TypeKind::Enumeration { base, members })
    }

    fn array(&self, cursor: &mut Cursor<'_>, size: u32) -> Result<TypeKind> {
        let start = *cursor;
        let rank = usize::from(cursor.u8()?);
        let is_old = self.version < 3;
        if is_old {
            cursor.skip(3)?;
        }
        let mut shape = Vec::new();
        for _ in 0..rank {
            shape.push(cursor.u32()?);
        }
        if is_old {
            cursor.skip(rank.saturating_mul(4))?;
        }
        let base = decode(cursor, self.depth_left)?;
        array_of(&start, shape, base, Some(size)).map(|array| array.kind)
    }

    /// Reads the name of a member; before version 3, names are padded to a multiple of 8 bytes.
    fn name(&self, cursor: &mut Cursor<'_>) -> Result<Vec<u8>> {
        let name = cursor.zero_terminated()?;
        if self.version < 3 {
            let stored = name.len().saturating_add(1);
            cursor.skip(
                stored.checked_next_multiple_of(8).unwrap_or(stored).saturating_sub(stored),
            )?;
        }
        Ok(name.to_vec())
    }
}

/// Reads the shape of an array member, as version 1 stores it.
fn old_member_shape(cursor: &mut Cursor<'_>) -> Result<Vec<u32>> {
    let rank = usize::from(cursor.u8()?);
    // Reserved bytes, and an unused permutation of the axes.
    cursor.skip(11)?;
    let sizes = [cursor.u32()?, cursor.u32()?, cursor.u32()?, cursor.u32()?];
    let shape =
        sizes.get(..rank).ok_or_else(|| cursor.corrupt(format!("{rank} axes of a member")))?;
    Ok(shape.to_vec())
}

fn array_of(
    start: &Cursor<'_>,
    shape: Vec<u32>,
    base: Datatype,
    stored_size: Option<u32>,
) -> Result<Datatype> {
    let size = shape.iter().try_fold(base.size, |size, axis| size.checked_mul(*axis));
    match size {
        Some(size) if size > 0 && stored_size.is_none_or(|stored| stored == size) => {
            let kind = TypeKind::Array { shape, base: Box::new(base) };
            Ok(Datatype { size, kind, committed: None })
        }
        _ => Err(start.corrupt("an array of another size than its elements")),
    }
}
