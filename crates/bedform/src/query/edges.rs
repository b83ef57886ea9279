//! Decoded numbers as stored values, for the edges of the bins of an index.

use bedform_query::{ScalarValue, ValueDecoding, ValueSlice, ValueType, range_of};
use zerocopy::IntoBytes;

use super::operand::packing_of;
use super::packing::{self, PackedMeaning};
use crate::array::Array;
use crate::error::{Error, Result};

/// Returns the stored value, in the machine's byte order, that divides the decoded values below
/// `number` from the others; `None` if all or none are below it. Those of times are the stored
/// numbers.
///
/// # Errors
/// `InvalidArgument` by the array's attributes; those of looking it up.
pub(crate) fn stored_edge(array: &Array, number: f64) -> Result<Option<Vec<u8>>> {
    let decoding = decoding_of(array)?;
    Ok(bedform_query::stored_edge(&decoding, number).map(bytes_of))
}

/// Returns the decoded least and greatest of some stored elements, in the machine's byte order;
/// `None` if all are missing or infinite.
///
/// # Errors
/// As [`stored_edge`].
pub(crate) fn decoded_ends(array: &Array, elements: &[u8]) -> Result<Option<(f64, f64)>> {
    let decoding = decoding_of(array)?;
    let ends = scalars_of(decoding.stored(), elements, |values| range_of(&decoding, values).0);
    let number = |stored| bedform_query::decoded_number(&decoding, stored);
    let ends = ends.and_then(|(least, greatest)| number(least).zip(number(greatest)));
    let ends = ends.map(|(one, other)| (one.min(other), one.max(other)));
    Ok(ends.filter(|(least, greatest)| least.is_finite() && greatest.is_finite()))
}

/// Calls `read` with elements in native byte order, which need not be aligned.
pub(super) fn scalars_of<T>(
    value_type: ValueType,
    bytes: &[u8],
    read: impl FnOnce(ValueSlice<'_>) -> Option<T>,
) -> Option<T> {
    // Aligned to every type.
    let mut words = vec![0_u64; bytes.len().div_ceil(8)];
    let aligned = &mut words.as_mut_bytes()[..bytes.len()];
    aligned.copy_from_slice(bytes);
    read(ValueSlice::of_bytes(value_type, aligned)?)
}

fn decoding_of(array: &Array) -> Result<ValueDecoding> {
    let stored = packing::value_type(array.data_type()?)
        .ok_or_else(|| Error::invalid("its elements are no numbers").at(array.name()))?;
    let PackedMeaning { packing, time_units } = packing_of(array, stored)?;
    let decoded = ValueDecoding::new(stored, packing)
        .map_err(|error| Error::invalid(error.to_string()).at(array.name()))?;
    Ok(if time_units.is_some() { decoded.undecoded() } else { decoded })
}

#[allow(clippy::host_endian_bytes, reason = "elements in memory")]
fn bytes_of(value: ScalarValue) -> Vec<u8> {
    match value {
        ScalarValue::Bool(value) => vec![u8::from(value)],
        ScalarValue::Int8(value) => value.to_ne_bytes().to_vec(),
        ScalarValue::Int16(value) => value.to_ne_bytes().to_vec(),
        ScalarValue::Int32(value) => value.to_ne_bytes().to_vec(),
        ScalarValue::Int64(value) => value.to_ne_bytes().to_vec(),
        ScalarValue::UInt8(value) => value.to_ne_bytes().to_vec(),
        ScalarValue::UInt16(value) => value.to_ne_bytes().to_vec(),
        ScalarValue::UInt32(value) => value.to_ne_bytes().to_vec(),
        ScalarValue::UInt64(value) => value.to_ne_bytes().to_vec(),
        ScalarValue::Float16(value) => value.to_ne_bytes().to_vec(),
        ScalarValue::Float32(value) => value.to_ne_bytes().to_vec(),
        ScalarValue::Float64(value) => value.to_ne_bytes().to_vec(),
    }
}
