//! Bins of stored values: edges from decoded numbers, and the range of each bin.

use crate::decode::ValueDecoding;
use crate::interval::ValueRange;
use crate::keys::{key, key_range, value};
use crate::operand::Operand;
use crate::parse::Expression;
use crate::tree::Operation;
use crate::values::{ScalarValue, ValueType, Values};

/// Returns the stored value that divides values below a number from those that are at least it:
/// an edge of bins of stored values. `None` if no stored value does, or all do, and where the order
/// of stored values is not that of decoded ones.
///
/// # Examples
///
/// ```
/// use bedform_query::{AttributeNumber, Packing, ScalarValue, ValueDecoding, ValueType, stored_edge};
///
/// let scale_factor = Some(AttributeNumber::Typed(ScalarValue::Float64(0.5)));
/// let packing = Packing { scale_factor, ..Packing::default() };
/// let decoding = ValueDecoding::new(ValueType::Int16, packing)?;
/// assert_eq!(stored_edge(&decoding, 10.2), Some(ScalarValue::Int16(21)));
/// assert_eq!(stored_edge(&decoding, 1e9), None);
/// # Ok::<(), bedform_query::ExpressionError>(())
/// ```
pub fn stored_edge(decoding: &ValueDecoding, number: f64) -> Option<ScalarValue> {
    if !number.is_finite() || decoding.viewed() != decoding.stored() {
        return None;
    }
    let increasing = decoding.is_increasing()?;
    let operand = Operand { name: "x".into(), decoding: decoding.clone() };
    let predicate = Expression::parse(&format!("x >= {number:?}")).ok()?.bind(&[operand]).ok()?;
    let Operation::InSet(_, set) = &predicate.root().operation else { return None };
    let (least, greatest) = key_range(decoding.stored());
    let edge = match increasing {
        true => set.spans().first()?.0,
        false => set.spans().last()?.1.checked_add(1)?,
    };
    (least < edge && edge <= greatest).then(|| value(decoding.stored(), edge))
}

/// Returns the range of the values in each bin between ascending edges: bin `i` has the values from
/// the edge before it, and below the edge behind it. `None` unless the edges ascend and have the
/// type.
///
/// # Examples
///
/// ```
/// use bedform_query::{ScalarValue, ValueType, bin_ranges};
///
/// let ranges = bin_ranges(ValueType::UInt8, &[ScalarValue::UInt8(10)]).unwrap();
/// let ends = ranges[1].least_and_greatest.unwrap();
/// assert_eq!(ends, (ScalarValue::UInt8(10), ScalarValue::UInt8(255)));
/// ```
pub fn bin_ranges(value_type: ValueType, edges: &[ScalarValue]) -> Option<Vec<ValueRange>> {
    let (least, greatest) = key_range(value_type);
    let of_type = edges.iter().all(|edge| edge.value_type() == value_type);
    let keys = edges.iter().map(|edge| key(*edge)).collect::<Option<Vec<_>>>()?;
    let ascend = keys.first().is_some_and(|first| least < *first)
        && keys.windows(2).all(|pair| matches!(pair, [one, next] if one < next));
    if !of_type || !ascend {
        return None;
    }
    let starts = std::iter::once(least).chain(keys.iter().copied());
    let ends = keys.iter().map(|key| key - 1).chain([greatest]);
    let range = |(start, end)| {
        let ends = (value(value_type, start), value(value_type, end));
        ValueRange { least_and_greatest: Some(ends), missing: false }
    };
    Some(starts.zip(ends).map(range).collect())
}

/// Returns the values of a range that are in both, without missing ones; `None` if there are none.
pub fn common_range(one: &ValueRange, other: &ValueRange) -> Option<ValueRange> {
    let (one, other) = (one.least_and_greatest?, other.least_and_greatest?);
    let value_type = one.0.value_type();
    let keys = [one.0, one.1, other.0, other.1].map(key);
    let [Some(least), Some(greatest), Some(other_least), Some(other_greatest)] = keys else {
        return None;
    };
    let (least, greatest) = (least.max(other_least), greatest.min(other_greatest));
    let ends = (value(value_type, least), value(value_type, greatest));
    let range = ValueRange { least_and_greatest: Some(ends), missing: false };
    (least <= greatest).then_some(range)
}

/// Returns the decoded number of a stored value; `None` for one that is missing.
pub fn decoded_number(decoding: &ValueDecoding, stored: ScalarValue) -> Option<f64> {
    let mut values = Values::new(decoding.decoded());
    decoding.decode(Values::one(stored).as_slice(), &mut values);
    match values.as_slice().get(0)?.cast(ValueType::Float64) {
        ScalarValue::Float64(number) if !number.is_nan() => Some(number),
        _ => None,
    }
}
