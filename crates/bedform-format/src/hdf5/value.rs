//! Decoding of elements, for the values of attributes.

use std::cell::Cell;

use half::f16;

use super::cursor::{Cursor, FileBlock};
use super::datatype::{
    BitRange, ByteOrder, Datatype, FloatFormat, Padding, ReferenceKind, TextFormat, TypeKind,
};
use super::error::{Hdf5Error, Result};
use super::global_heap::{GlobalHeaps, HeapReference};
use super::source::CountedFile;

/// A decoded element.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Hdf5Value {
    /// An integer, or a value of an enumeration.
    Integer(i128),
    /// A floating-point number.
    Float(f64),
    /// Text without its padding, mostly UTF-8.
    Text(Vec<u8>),
    /// The address of an object; `None` for a null reference.
    Reference(Option<u64>),
    /// Elements of an array, or of a sequence.
    List(Vec<Hdf5Value>),
    /// Members of a record, in order.
    Record(Vec<Hdf5Value>),
    /// Bytes of a type that this parser does not decode.
    Bytes(Vec<u8>),
}

/// Bytes charged for each value.
const VALUE_BYTES: u64 = 16;

/// A decoder of elements.
pub(super) struct Decoder<'s, 'r> {
    pub(super) source: &'s CountedFile<'r>,
    pub(super) heaps: &'s GlobalHeaps,
    /// Bytes that values may still take: 16 for each, plus the bytes of those in a heap.
    pub(super) bytes_left: Cell<u64>,
}

impl Decoder<'_, '_> {
    /// Decodes `count` elements.
    pub(super) fn elements(
        &self,
        datatype: &Datatype,
        count: u64,
        cursor: &mut Cursor<'_>,
        depth_left: usize,
    ) -> Result<Vec<Hdf5Value>> {
        let depth_left = depth_left.checked_sub(1);
        let depth_left = depth_left.ok_or_else(|| Hdf5Error::limit("values within values"))?;
        let size = usize::try_from(datatype.size).unwrap_or(usize::MAX);
        let mut values = Vec::new();
        for _ in 0..count {
            self.spend(VALUE_BYTES)?;
            values.push(self.element(datatype, cursor.split(size)?, depth_left)?);
        }
        Ok(values)
    }

    fn spend(&self, bytes: u64) -> Result {
        self.source.spend(bytes)?;
        let left = self.bytes_left.get().checked_sub(bytes);
        self.bytes_left.set(left.ok_or_else(|| Hdf5Error::limit("values of an attribute"))?);
        Ok(())
    }

    fn element(
        &self,
        datatype: &Datatype,
        mut cursor: Cursor<'_>,
        depth_left: usize,
    ) -> Result<Hdf5Value> {
        let bytes = cursor.rest();
        let or_bytes =
            |value: Option<Hdf5Value>| value.unwrap_or_else(|| Hdf5Value::Bytes(bytes.to_vec()));
        Ok(match &datatype.kind {
            TypeKind::Integer { bits, signed } => or_bytes(integer(bytes, *bits, *signed)),
            TypeKind::Enumeration { base, .. } => self.element(base, cursor, depth_left)?,
            TypeKind::Float { bits, format } => or_bytes(float(bytes, *bits, format)),
            TypeKind::Text(format) => Hdf5Value::Text(unpadded(bytes, *format).to_vec()),
            TypeKind::VariableText(format) => {
                let length = cursor.u32()?;
                let object = self.object(length.into(), &mut cursor)?;
                // In memory, text ends with its first NUL, regardless of the padding in the file.
                let format = TextFormat { padding: Padding::ZeroTerminated, ..*format };
                Hdf5Value::Text(unpadded(&object.bytes, format).to_vec())
            }
            TypeKind::Sequence(base) => {
                let count = cursor.u32()?;
                let length = u64::from(count).saturating_mul(base.size.into());
                let object = self.object(length, &mut cursor)?;
                Hdf5Value::List(self.elements(
                    base,
                    count.into(),
                    &mut object.cursor(),
                    depth_left,
                )?)
            }
            TypeKind::Array { shape, base } => {
                let count = shape.iter().try_fold(1_u64, |n, size| n.checked_mul((*size).into()));
                let count = count.ok_or_else(|| cursor.corrupt("an array without an end"))?;
                Hdf5Value::List(self.elements(base, count, &mut cursor, depth_left)?)
            }
            TypeKind::Complex(base) => {
                Hdf5Value::Record(self.elements(base, 2, &mut cursor, depth_left)?)
            }
            TypeKind::Compound(members) => {
                let mut record = Vec::new();
                for member in members {
                    let mut cursor = cursor;
                    cursor.skip(usize::try_from(member.offset).unwrap_or(usize::MAX))?;
                    record.extend(self.elements(&member.datatype, 1, &mut cursor, depth_left)?);
                }
                Hdf5Value::Record(record)
            }
            TypeKind::Reference(ReferenceKind::Object) => {
                Hdf5Value::Reference(cursor.address()?.filter(|address| *address != 0))
            }
            TypeKind::Reference(_)
            | TypeKind::Time
            | TypeKind::Bits(_)
            | TypeKind::Opaque { .. } => Hdf5Value::Bytes(bytes.to_vec()),
        })
    }

    /// Reads an element of variable length from its heap.
    fn object(&self, length: u64, cursor: &mut Cursor<'_>) -> Result<FileBlock> {
        let start = *cursor;
        let reference = HeapReference::decode(cursor)?;
        let reference = if length == 0 { HeapReference::NOTHING } else { reference };
        self.spend(length)?;
        let mut object = self.heaps.object(self.source, reference)?;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if object.bytes.len() < length {
            return Err(start.corrupt("an element longer than its heap object"));
        }
        object.bytes.truncate(length);
        Ok(object)
    }
}

/// Returns text without its padding.
pub(super) fn unpadded(bytes: &[u8], format: TextFormat) -> &[u8] {
    let end = match format.padding {
        Padding::ZeroTerminated => bytes.iter().position(|byte| *byte == 0),
        Padding::Zeros => bytes.iter().rposition(|byte| *byte != 0).map(after).or(Some(0)),
        Padding::Spaces => bytes.iter().rposition(|byte| *byte != b' ').map(after).or(Some(0)),
    };
    end.and_then(|end| bytes.get(..end)).unwrap_or(bytes)
}

fn after(position: usize) -> usize {
    position.saturating_add(1)
}

/// Returns the bits of a number of up to 16 bytes, shifted to bit 0.
fn raw_bits(bytes: &[u8], range: BitRange) -> Option<u128> {
    let mut little = [0; 16];
    let slots = little.get_mut(..bytes.len())?;
    match range.order {
        ByteOrder::Little => slots.copy_from_slice(bytes),
        ByteOrder::Big => slots.iter_mut().zip(bytes.iter().rev()).for_each(|(to, b)| *to = *b),
        ByteOrder::Vax => return None,
    }
    let shifted = u128::from_le_bytes(little).checked_shr(range.offset.into())?;
    let unused = 128_u32.checked_sub(range.precision.into())?;
    Some(shifted & u128::MAX.checked_shr(unused)?)
}

pub(super) fn integer(bytes: &[u8], range: BitRange, signed: bool) -> Option<Hdf5Value> {
    let raw = raw_bits(bytes, range)?;
    if range.precision > 64 {
        return None;
    }
    let value = i128::try_from(raw).ok()?;
    let sign = 1_i128.checked_shl(u32::from(range.precision).checked_sub(1)?)?;
    let value = if signed && value & sign != 0 {
        value.checked_sub(sign)?.checked_sub(sign)?
    } else {
        value
    };
    Some(Hdf5Value::Integer(value))
}

/// Decodes a number in one of the IEEE formats.
fn float(bytes: &[u8], range: BitRange, format: &FloatFormat) -> Option<Hdf5Value> {
    let raw = raw_bits(bytes, range)?;
    let ieee = |exponent_bits: u8, mantissa_bits: u8, exponent_bias: u32| {
        *format
            == FloatFormat {
                sign_at: exponent_bits.saturating_add(mantissa_bits),
                exponent_at: mantissa_bits,
                exponent_bits,
                mantissa_at: 0,
                mantissa_bits,
                exponent_bias,
                normalization: 2,
            }
    };
    let value = match range.precision {
        16 if ieee(5, 10, 15) => f16::from_bits(u16::try_from(raw).ok()?).to_f64(),
        32 if ieee(8, 23, 127) => f32::from_bits(u32::try_from(raw).ok()?).into(),
        64 if ieee(11, 52, 1023) => f64::from_bits(u64::try_from(raw).ok()?),
        _ => return None,
    };
    Some(Hdf5Value::Float(value))
}
