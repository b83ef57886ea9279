//! Operations on runs of elements: plain loops, which the compiler vectorises.

use half::f16;
use half::slice::HalfFloatSliceExt;

use crate::numeric::{BinaryOperation, CastTo, Numeric, UnaryOperation, unary, with_number};
use crate::syntax::{ArithmeticSign, Comparison};
use crate::values::{ScalarValue, ValueSlice, ValueType, Values, each_number};

/// Converts elements to the type of `out`, whose elements they replace.
pub(crate) fn cast_into(elements: &ValueSlice<'_>, out: &mut Values) {
    macro_rules! cast {
        ($($variant:ident $number:ty),*) => {
            match elements {
                ValueSlice::Bool(bytes) => with_number!(
                    out.value_type(),
                    T => fill(bytes, T::elements_of(out), |byte| {
                        CastTo::<T>::cast(u8::from(byte != 0))
                    }),
                    bool => fill(bytes, out.booleans(), |byte| u8::from(byte != 0))
                ),
                ValueSlice::Float16(halves) if out.value_type() == ValueType::Float32 => {
                    let out = f32::elements_of(out);
                    out.resize(halves.len(), 0.0);
                    halves.convert_to_f32_slice(out);
                }
                $(ValueSlice::$variant(elements) => with_number!(
                    out.value_type(),
                    T => fill(elements, T::elements_of(out), CastTo::<T>::cast),
                    bool => fill(elements, out.booleans(), |element| {
                        u8::from(element != CastTo::<$number>::cast(0_u8))
                    })
                ),)*
            }
        };
    }
    each_number!(cast);
}

fn fill<T: Copy, U>(elements: &[T], out: &mut Vec<U>, function: impl Fn(T) -> U) {
    out.clear();
    out.extend(elements.iter().map(|element| function(*element)));
}

/// Applies an operation with a constant of their type to all values.
pub(crate) fn apply_constant(
    operation: BinaryOperation,
    values: &mut Values,
    constant: ScalarValue,
) {
    with_number!(
        values.value_type(),
        T => if let Some(constant) = T::of(constant) {
            in_place(operation, T::elements_of(values), &[constant]);
        },
        bool => ()
    );
}

/// `left = operation(left, right)`, where one element on the right may stand for all.
pub(crate) fn in_place<T: Numeric>(operation: BinaryOperation, left: &mut [T], right: &[T]) {
    match operation {
        BinaryOperation::Arithmetic(ArithmeticSign::Add) => zip(left, right, T::add),
        BinaryOperation::Arithmetic(ArithmeticSign::Subtract) => zip(left, right, T::subtract),
        BinaryOperation::Arithmetic(ArithmeticSign::Multiply) => zip(left, right, T::multiply),
        BinaryOperation::Arithmetic(ArithmeticSign::Divide) => zip(left, right, T::divide),
        BinaryOperation::Minimum => zip(left, right, T::minimum),
        BinaryOperation::Maximum => zip(left, right, T::maximum),
    }
}

#[inline]
fn zip<T: Copy>(left: &mut [T], right: &[T], function: impl Fn(T, T) -> T) {
    if let [right] = right {
        left.iter_mut().for_each(|left| *left = function(*left, *right));
    } else {
        assert_eq!(left.len(), right.len(), "columns have one length");
        left.iter_mut().zip(right).for_each(|(left, right)| *left = function(*left, *right));
    }
}

/// Applies an operation to all values.
pub(crate) fn unary_in_place(operation: UnaryOperation, values: &mut Values) {
    with_number!(
        values.value_type(),
        T => {
            let values = T::elements_of(values);
            match operation {
                UnaryOperation::Negate => each(values, T::negate),
                UnaryOperation::Absolute => each(values, T::absolute),
                UnaryOperation::SquareRoot => each(values, |value| {
                    unary(UnaryOperation::SquareRoot, value)
                }),
            }
        },
        bool => ()
    );
}

#[inline]
fn each<T: Copy>(values: &mut [T], function: impl Fn(T) -> T) {
    values.iter_mut().for_each(|value| *value = function(*value));
}

#[allow(unreachable_patterns)]
/// Compares elements of one type, or int64 with uint64; writes 0 or 1. One element on a side may
/// stand for all.
pub(crate) fn compare(
    comparison: Comparison,
    left: &ValueSlice<'_>,
    right: &ValueSlice<'_>,
    out: &mut [u8],
) {
    macro_rules! pairs {
        ($($variant:ident $number:ty),*) => {
            match (left, right) {
                (ValueSlice::Bool(left), ValueSlice::Bool(right)) => {
                    compare_elements(comparison, left, right, out, |byte| u8::from(byte != 0));
                }
                (ValueSlice::Float16(left), ValueSlice::Float16(right)) => {
                    compare_elements(comparison, left, right, out, f16::to_f32);
                }
                (ValueSlice::Int64(left), ValueSlice::UInt64(right)) => {
                    compare_signs(comparison, left, right, out);
                }
                (ValueSlice::UInt64(left), ValueSlice::Int64(right)) => {
                    compare_signs(comparison.flipped(), right, left, out);
                }
                $((ValueSlice::$variant(left), ValueSlice::$variant(right)) => {
                    compare_elements(comparison, left, right, out, |element| element);
                })*
                _ => unreachable!("typed trees compare elements of one type"),
            }
        };
    }
    each_number!(pairs);
}

#[inline]
fn compare_elements<T: Copy, U: PartialOrd>(
    comparison: Comparison,
    left: &[T],
    right: &[T],
    out: &mut [u8],
    of: impl Fn(T) -> U,
) {
    match comparison {
        Comparison::Less => pairs(left, right, out, |left, right| of(left) < of(right)),
        Comparison::LessEqual => pairs(left, right, out, |left, right| of(left) <= of(right)),
        Comparison::Greater => pairs(left, right, out, |left, right| of(left) > of(right)),
        Comparison::GreaterEqual => pairs(left, right, out, |left, right| of(left) >= of(right)),
        Comparison::Equal => pairs(left, right, out, |left, right| of(left) == of(right)),
        Comparison::NotEqual => pairs(left, right, out, |left, right| of(left) != of(right)),
    }
}

/// Compares signed with unsigned integers as numbers.
fn compare_signs(comparison: Comparison, left: &[i64], right: &[u64], out: &mut [u8]) {
    pairs(left, right, out, |left, right| {
        let order = u64::try_from(left).map_or(std::cmp::Ordering::Less, |left| left.cmp(&right));
        crate::numeric::holds(comparison, Some(order))
    });
}

#[inline]
fn pairs<T: Copy, U: Copy>(left: &[T], right: &[U], out: &mut [u8], holds: impl Fn(T, U) -> bool) {
    match (left, right) {
        ([left], [right]) => out.fill(u8::from(holds(*left, *right))),
        ([left], _) => {
            assert_eq!(right.len(), out.len(), "columns have one length");
            let targets = out.iter_mut().zip(right);
            targets.for_each(|(out, right)| *out = u8::from(holds(*left, *right)));
        }
        (_, [right]) => {
            assert_eq!(left.len(), out.len(), "columns have one length");
            let targets = out.iter_mut().zip(left);
            targets.for_each(|(out, left)| *out = u8::from(holds(*left, *right)));
        }
        _ => {
            assert_eq!(
                (left.len(), right.len()),
                (out.len(), out.len()),
                "columns have one length"
            );
            let targets = out.iter_mut().zip(left.iter().zip(right));
            targets.for_each(|(out, (left, right))| *out = u8::from(holds(*left, *right)));
        }
    }
}

/// Writes 1 for elements that have a property, 0 for the others.
pub(crate) fn test(elements: &ValueSlice<'_>, out: &mut [u8], property: Property) {
    macro_rules! properties {
        ($($variant:ident $number:ty),*) => {
            match elements {
                ValueSlice::Bool(_) => out.fill(u8::from(property == Property::Finite)),
                $(ValueSlice::$variant(elements) => match property {
                    Property::Nan => one(elements, out, |element| Numeric::is_nan(element)),
                    Property::Finite => one(elements, out, |element| Numeric::is_finite(element)),
                },)*
            }
        };
    }
    each_number!(properties);
}

#[inline]
fn one<T: Copy>(elements: &[T], out: &mut [u8], holds: impl Fn(T) -> bool) {
    crate::stored_set::broadcast(elements, out, |element| u8::from(holds(element)));
}

/// Properties of floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Property {
    Nan,
    Finite,
}
