//! NumPy's rules of promotion (NEP 50).

use crate::values::ValueType;

/// The type of arithmetic between elements of two types.
pub(crate) fn promoted(one: ValueType, other: ValueType) -> ValueType {
    use ValueType::{Bool, Float64};
    match (one, other) {
        _ if one == other => one,
        (Bool, number) | (number, Bool) => number,
        _ if one.is_float() && other.is_float() => larger(one, other),
        (float, integer) if float.is_float() => larger(float, float_beside(integer)),
        (integer, float) if float.is_float() => larger(float, float_beside(integer)),
        _ if one.is_signed() == other.is_signed() => larger(one, other),
        _ => {
            let (signed, unsigned) = if one.is_signed() { (one, other) } else { (other, one) };
            match signed_beyond(unsigned) {
                Some(least) => larger(signed, least),
                None => Float64,
            }
        }
    }
}

/// The type of the square root, and of all functions that give floats.
pub(crate) fn float_of(value_type: ValueType) -> ValueType {
    if value_type.is_float() { value_type } else { float_beside(value_type) }
}

/// The least float type that NumPy uses beside an integer type.
fn float_beside(integer: ValueType) -> ValueType {
    match integer.bytes() {
        1 => ValueType::Float16,
        2 => ValueType::Float32,
        _ => ValueType::Float64,
    }
}

fn larger(one: ValueType, other: ValueType) -> ValueType {
    if one.bytes() >= other.bytes() { one } else { other }
}

/// The least signed type that holds all values of an unsigned one.
fn signed_beyond(unsigned: ValueType) -> Option<ValueType> {
    match unsigned {
        ValueType::UInt8 => Some(ValueType::Int16),
        ValueType::UInt16 => Some(ValueType::Int32),
        ValueType::UInt32 => Some(ValueType::Int64),
        _ => None,
    }
}
