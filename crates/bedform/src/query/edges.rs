//! Decoded numbers as stored values, for the edges of the bins of an index.

use bedform_query::{ValueDecoding, Values, range_of};

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
    let edge = bedform_query::stored_edge(&decoding, number);
    Ok(edge.map(|edge| Values::one(edge).as_bytes().to_vec()))
}

/// Returns the decoded least and greatest of some stored elements, in the machine's byte order;
/// `None` if all are missing or infinite.
///
/// # Errors
/// As [`stored_edge`].
pub(crate) fn decoded_ends(array: &Array, elements: &[u8]) -> Result<Option<(f64, f64)>> {
    let decoding = decoding_of(array)?;
    let values = Values::of_bytes(decoding.stored(), elements);
    let ends = values.and_then(|values| range_of(&decoding, values.as_slice()).0);
    let number = |stored| bedform_query::decoded_number(&decoding, stored);
    let ends = ends.and_then(|(least, greatest)| number(least).zip(number(greatest)));
    let ends = ends.map(|(one, other)| (one.min(other), one.max(other)));
    Ok(ends.filter(|(least, greatest)| least.is_finite() && greatest.is_finite()))
}

fn decoding_of(array: &Array) -> Result<ValueDecoding> {
    let stored = packing::value_type(array.data_type()?)
        .ok_or_else(|| Error::invalid("its elements are no numbers").at(array.name()))?;
    let PackedMeaning { packing, time_units } = packing_of(array, stored)?;
    let decoded = ValueDecoding::new(stored, packing)
        .map_err(|error| Error::invalid(error.to_string()).at(array.name()))?;
    Ok(if time_units.is_some() { decoded.undecoded() } else { decoded })
}
