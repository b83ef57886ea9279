//! Filter pipelines and fill values.

use super::cursor::Cursor;
use super::error::{Hdf5Error, Result};

/// A filter of a dataset's pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipelineFilter {
    /// Registered identifier: 1 deflate, 2 shuffle, 3 fletcher32, 4 szip, 5 nbit, 6 scale-offset.
    pub id: u16,
    /// True if a chunk may be stored without this filter.
    pub optional: bool,
    /// The registered name, or empty.
    pub name: Vec<u8>,
    /// Parameters.
    pub values: Vec<u32>,
}

/// Largest number of filters in a pipeline.
const FILTERS_MAX: u8 = 32;
/// In version 2, filters with lower identifiers have no names.
const NAMED_FROM: u16 = 256;
const OPTIONAL: u16 = 1;

/// Decodes the filters of a message, in the order in which a writer applies them.
pub(super) fn decode_pipeline(mut cursor: Cursor<'_>) -> Result<Vec<PipelineFilter>> {
    let version = cursor.u8()?;
    let count = cursor.u8()?;
    match version {
        1 => cursor.skip(6)?,
        2 => {}
        _ => return Err(Hdf5Error::unknown(format!("version {version} of a filter pipeline"))),
    }
    if count > FILTERS_MAX {
        return Err(cursor.corrupt(format!("{count} filters")));
    }
    let mut filters = Vec::new();
    for _ in 0..count {
        let id = cursor.u16()?;
        let has_name = version == 1 || id >= NAMED_FROM;
        let name_bytes = if has_name { cursor.u16()? } else { 0 };
        let flags = cursor.u16()?;
        let value_count = cursor.u16()?;
        let stored = cursor.take(name_bytes.into())?;
        let end = stored.iter().position(|byte| *byte == 0).unwrap_or(stored.len());
        let name = stored.get(..end).unwrap_or(stored).to_vec();
        let mut values = Vec::new();
        for _ in 0..value_count {
            values.push(cursor.u32()?);
        }
        if version == 1 && value_count & 1 == 1 {
            cursor.skip(4)?;
        }
        filters.push(PipelineFilter { id, optional: flags & OPTIONAL != 0, name, values });
    }
    Ok(filters)
}

/// The value of elements that were never written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hdf5FillValue {
    /// Arbitrary.
    Undefined,
    /// Zeros.
    Default,
    /// A stored element.
    Value(Vec<u8>),
}

const FLAG_UNDEFINED: u8 = 0x10;
const FLAG_HAS_VALUE: u8 = 0x20;

impl Hdf5FillValue {
    pub(super) fn decode(mut cursor: Cursor<'_>) -> Result<Self> {
        let version = cursor.u8()?;
        match version {
            1 | 2 => {
                cursor.skip(2)?;
                if cursor.u8()? == 0 { Ok(Self::Undefined) } else { element(cursor) }
            }
            3 => match cursor.u8()? {
                flags if flags & FLAG_UNDEFINED != 0 => Ok(Self::Undefined),
                flags if flags & FLAG_HAS_VALUE != 0 => element(cursor),
                _ => Ok(Self::Default),
            },
            _ => Err(Hdf5Error::unknown(format!("version {version} of a fill value"))),
        }
    }

    /// Decodes the message of old libraries.
    pub(super) fn decode_old(cursor: Cursor<'_>) -> Result<Self> {
        let value = element(cursor)?;
        Ok(if value == Self::Default { Self::Undefined } else { value })
    }
}

/// Reads the length of an element, and the element.
fn element(mut cursor: Cursor<'_>) -> Result<Hdf5FillValue> {
    match cursor.u32()? {
        0 => Ok(Hdf5FillValue::Default),
        length if length > i32::MAX.unsigned_abs() => Ok(Hdf5FillValue::Undefined),
        length => {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            Ok(Hdf5FillValue::Value(cursor.take(length)?.to_vec()))
        }
    }
}
