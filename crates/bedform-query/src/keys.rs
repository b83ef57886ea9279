//! Values as integers in the same order, so that bisection and intervals work alike for all types.

use half::f16;

use crate::values::{ScalarValue, ValueType};

/// The sign of 64-bit numbers.
const SIGN: u64 = 1 << 63;

/// Returns the key of a value: keys are in the order of values, and neighbours differ by 1.
/// `None` for NaN. The key of -0.0 is just below that of 0.0.
pub(crate) fn key(value: ScalarValue) -> Option<u64> {
    if value.is_nan() {
        return None;
    }
    Some(match value {
        ScalarValue::Bool(value) => u64::from(value),
        ScalarValue::Int8(value) => of_signed(value.into()),
        ScalarValue::Int16(value) => of_signed(value.into()),
        ScalarValue::Int32(value) => of_signed(value.into()),
        ScalarValue::Int64(value) => of_signed(value),
        ScalarValue::UInt8(value) => value.into(),
        ScalarValue::UInt16(value) => value.into(),
        ScalarValue::UInt32(value) => value.into(),
        ScalarValue::UInt64(value) => value,
        ScalarValue::Float16(value) => of_float(value.to_bits().into(), 16),
        ScalarValue::Float32(value) => of_float(value.to_bits().into(), 32),
        ScalarValue::Float64(value) => of_float(value.to_bits(), 64),
    })
}

/// Returns the value of a key of a type.
#[allow(clippy::cast_possible_wrap)]
pub(crate) fn value(value_type: ValueType, key: u64) -> ScalarValue {
    let signed = (key ^ SIGN) as i64;
    match value_type {
        ValueType::Bool => ScalarValue::Bool(key != 0),
        ValueType::Int8 => ScalarValue::Int8(signed as i8),
        ValueType::Int16 => ScalarValue::Int16(signed as i16),
        ValueType::Int32 => ScalarValue::Int32(signed as i32),
        ValueType::Int64 => ScalarValue::Int64(signed),
        ValueType::UInt8 => ScalarValue::UInt8(key as u8),
        ValueType::UInt16 => ScalarValue::UInt16(key as u16),
        ValueType::UInt32 => ScalarValue::UInt32(key as u32),
        ValueType::UInt64 => ScalarValue::UInt64(key),
        ValueType::Float16 => ScalarValue::Float16(f16::from_bits(to_float(key, 16) as u16)),
        ValueType::Float32 => ScalarValue::Float32(f32::from_bits(to_float(key, 32) as u32)),
        ValueType::Float64 => ScalarValue::Float64(f64::from_bits(to_float(key, 64))),
    }
}

/// Returns the keys of the least and the greatest value of a type: those of the infinities for
/// floats.
pub(crate) fn key_range(value_type: ValueType) -> (u64, u64) {
    let (least, greatest) = match value_type {
        ValueType::Bool => return (0, 1),
        ValueType::Int8 => (ScalarValue::Int8(i8::MIN), ScalarValue::Int8(i8::MAX)),
        ValueType::Int16 => (ScalarValue::Int16(i16::MIN), ScalarValue::Int16(i16::MAX)),
        ValueType::Int32 => (ScalarValue::Int32(i32::MIN), ScalarValue::Int32(i32::MAX)),
        ValueType::Int64 => (ScalarValue::Int64(i64::MIN), ScalarValue::Int64(i64::MAX)),
        ValueType::UInt8 => return (0, u8::MAX.into()),
        ValueType::UInt16 => return (0, u16::MAX.into()),
        ValueType::UInt32 => return (0, u32::MAX.into()),
        ValueType::UInt64 => return (0, u64::MAX),
        ValueType::Float16 => {
            (ScalarValue::Float16(f16::NEG_INFINITY), ScalarValue::Float16(f16::INFINITY))
        }
        ValueType::Float32 => {
            (ScalarValue::Float32(f32::NEG_INFINITY), ScalarValue::Float32(f32::INFINITY))
        }
        ValueType::Float64 => {
            (ScalarValue::Float64(f64::NEG_INFINITY), ScalarValue::Float64(f64::INFINITY))
        }
    };
    (key(least).unwrap_or(0), key(greatest).unwrap_or(0))
}

/// Finds the first key from `least` up to `greatest` for which a property holds, which holds for
/// all keys above one for which it holds; `None` if it holds for none.
pub(crate) fn first_key((least, greatest): (u64, u64), holds: impl Fn(u64) -> bool) -> Option<u64> {
    if !holds(greatest) {
        return None;
    }
    // It holds for `high`, and not below `low`.
    let (mut low, mut high) = (least, greatest);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { high = middle } else { low = middle + 1 }
    }
    Some(high)
}

#[allow(clippy::cast_sign_loss)]
fn of_signed(value: i64) -> u64 {
    value as u64 ^ SIGN
}

fn of_float(bits: u64, width: u32) -> u64 {
    let sign = 1 << (width - 1);
    if bits & sign == 0 { bits | sign } else { !bits & mask(width) }
}

fn to_float(key: u64, width: u32) -> u64 {
    let sign = 1 << (width - 1);
    if key & sign == 0 { !key & mask(width) } else { key ^ sign }
}

fn mask(width: u32) -> u64 {
    u64::MAX >> (64 - width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::each_number;

    fn all_types() -> Vec<ValueType> {
        macro_rules! list {
            ($($variant:ident $number:ty),*) => { vec![ValueType::Bool, $(ValueType::$variant),*] };
        }
        each_number!(list)
    }

    #[test]
    fn keys_are_in_the_order_of_values_and_lead_back_to_them() {
        for value_type in all_types() {
            let (least, greatest) = key_range(value_type);
            let step = ((greatest - least) / 1_000).max(1);
            let mut before = None;
            for at in (least..=greatest).step_by(usize::try_from(step).unwrap()) {
                let found = value(value_type, at);
                assert_eq!(key(found), Some(at), "{found:?}");
                if let Some(before) = before {
                    // Equal for the two zeros alone.
                    assert_ne!(found.order(before), Some(std::cmp::Ordering::Less), "{found:?}");
                }
                before = Some(found);
            }
        }
    }

    #[test]
    fn nan_has_no_key_and_lies_outside_of_all_keys() {
        assert_eq!(key(ScalarValue::Float32(f32::NAN)), None);
        let (least, greatest) = key_range(ValueType::Float16);
        assert!(value(ValueType::Float16, greatest + 1).is_nan());
        assert!(value(ValueType::Float16, least - 1).is_nan());
    }

    #[test]
    fn bisection_finds_the_first_key_of_all() {
        for first in 0..=17 {
            let found = first_key((0, 16), |key| key >= first);
            assert_eq!(found, (first <= 16).then_some(first));
        }
        assert_eq!(first_key((0, u64::MAX), |key| key > u64::MAX - 1), Some(u64::MAX));
    }
}
