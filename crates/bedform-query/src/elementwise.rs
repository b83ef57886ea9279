//! Operations on runs of elements: plain loops, which the compiler vectorises.

use half::f16;
use half::slice::HalfFloatSliceExt;

use crate::numeric::{BinaryOperation, CastTo, Numeric, UnaryOperation, unary, with_number};
use crate::syntax::{ArithmeticSign, ComparisonSign};
use crate::values::{ScalarValue, ValueSlice, ValueType, Values, each_number};

/// Halves that are computed with at once.
const HALVES: usize = 256;

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
                ValueSlice::Float32(singles) if out.value_type() == ValueType::Float16 => {
                    let out = f16::elements_of(out);
                    out.resize(singles.len(), f16::ZERO);
                    out.convert_from_f32_slice(singles);
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
    binary_in_place(operation, values, &Values::one(constant).as_slice());
}

/// `left = operation(left, right)` for values of one type, of which one on the right may stand for
/// all.
pub(crate) fn binary_in_place(
    operation: BinaryOperation,
    left: &mut Values,
    right: &ValueSlice<'_>,
) {
    if let (Values::Float16(left), ValueSlice::Float16(right)) = (&mut *left, right) {
        return halves_in_place(operation, left, right);
    }
    with_number!(
        left.value_type(),
        T => if let Some(right) = T::elements(right) {
            in_place(operation, T::elements_of(left), right);
        },
        bool => ()
    );
}

/// Halves in blocks of singles, which processors convert and compute with in whole registers.
fn halves_in_place(operation: BinaryOperation, left: &mut [f16], right: &[f16]) {
    for (index, left) in left.chunks_mut(HALVES).enumerate() {
        let mut block = [0.0; HALVES];
        let singles = &mut block[..left.len()];
        left.convert_to_f32_slice(singles);
        let mut other = [0.0; HALVES];
        in_place(operation, singles, half_block(right, index, left.len(), &mut other));
        left.convert_from_f32_slice(singles);
    }
}

/// A block of halves as singles: the one that stands for all, or those of a block.
fn half_block<'a>(
    halves: &[f16],
    index: usize,
    length: usize,
    block: &'a mut [f32; HALVES],
) -> &'a [f32] {
    let halves =
        if halves.len() == 1 { halves } else { &halves[index * HALVES..index * HALVES + length] };
    let singles = &mut block[..halves.len()];
    halves.convert_to_f32_slice(singles);
    singles
}

/// `left = operation(left, right)`, where one element on the right may stand for all.
fn in_place<T: Numeric>(operation: BinaryOperation, left: &mut [T], right: &[T]) {
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
    comparison: ComparisonSign,
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
                    for (index, out) in out.chunks_mut(HALVES).enumerate() {
                        let (mut one, mut other) = ([0.0; HALVES], [0.0; HALVES]);
                        let left = half_block(left, index, out.len(), &mut one);
                        let right = half_block(right, index, out.len(), &mut other);
                        compare_elements(comparison, left, right, out, |single| single);
                    }
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
    comparison: ComparisonSign,
    left: &[T],
    right: &[T],
    out: &mut [u8],
    of: impl Fn(T) -> U,
) {
    match comparison {
        ComparisonSign::Less => pairs(left, right, out, |left, right| of(left) < of(right)),
        ComparisonSign::LessEqual => pairs(left, right, out, |left, right| of(left) <= of(right)),
        ComparisonSign::Greater => pairs(left, right, out, |left, right| of(left) > of(right)),
        ComparisonSign::GreaterEqual => {
            pairs(left, right, out, |left, right| of(left) >= of(right))
        }
        ComparisonSign::Equal => pairs(left, right, out, |left, right| of(left) == of(right)),
        ComparisonSign::NotEqual => pairs(left, right, out, |left, right| of(left) != of(right)),
    }
}

/// Compares signed with unsigned integers as numbers.
fn compare_signs(comparison: ComparisonSign, left: &[i64], right: &[u64], out: &mut [u8]) {
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
    broadcast(elements, out, |element| u8::from(holds(element)));
}

/// Properties of floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Property {
    Nan,
    Finite,
}

/// Applies a function to each element, or to the one that stands for all.
#[inline]
pub(crate) fn broadcast<T: Copy, U: Copy>(
    elements: &[T],
    out: &mut [U],
    function: impl Fn(T) -> U,
) {
    if let [element] = elements {
        out.fill(function(*element));
        return;
    }
    assert_eq!(elements.len(), out.len(), "a column has as many elements as the result");
    for (out, element) in out.iter_mut().zip(elements) {
        *out = function(*element);
    }
}
