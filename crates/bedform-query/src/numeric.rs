//! The arithmetic of single elements, with NumPy's results.

use half::f16;

use crate::syntax::{ArithmeticSign, ComparisonSign};
use crate::values::{ScalarValue, ValueSlice, ValueType, Values, each_number};

/// A type of numbers.
pub(crate) trait Numeric: Copy + PartialOrd + 'static {
    const TYPE: ValueType;

    /// The elements of a slice, or none if it has another type.
    fn elements<'a>(slice: &ValueSlice<'a>) -> Option<&'a [Self]>;
    /// The elements of a run, which becomes an empty one of this type if it has another type.
    fn elements_of(values: &mut Values) -> &mut Vec<Self>;
    fn scalar(self) -> ScalarValue;
    /// The value of a scalar, or none if it has another type.
    fn of(scalar: ScalarValue) -> Option<Self>;
    /// The greatest and the least value, infinities included.
    fn ends() -> (Self, Self);

    fn add(self, other: Self) -> Self;
    fn subtract(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
    /// Integers are divided as floats; typed trees have no other division.
    fn divide(self, other: Self) -> Self;
    fn negate(self) -> Self;
    fn absolute(self) -> Self;
    fn square_root(self) -> Self;
    fn is_nan(self) -> bool;
    fn is_finite(self) -> bool;

    /// The lesser one, or NaN if one is NaN.
    #[inline]
    fn minimum(self, other: Self) -> Self {
        if self < other || self.is_nan() { self } else { other }
    }

    /// The greater one, or NaN if one is NaN.
    #[inline]
    fn maximum(self, other: Self) -> Self {
        if self > other || self.is_nan() { self } else { other }
    }
}

/// Operations of two numbers that give a number of their type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BinaryOperation {
    Arithmetic(ArithmeticSign),
    Minimum,
    Maximum,
}

/// Operations of one number that give a number of its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnaryOperation {
    Negate,
    Absolute,
    SquareRoot,
}

/// The access to elements, which is the same for all types.
macro_rules! numeric_access {
    ($variant:ident, $number:ty) => {
        const TYPE: ValueType = ValueType::$variant;

        #[inline]
        fn elements<'a>(slice: &ValueSlice<'a>) -> Option<&'a [Self]> {
            if let ValueSlice::$variant(elements) = slice { Some(elements) } else { None }
        }

        #[inline]
        fn elements_of(values: &mut Values) -> &mut Vec<Self> {
            if !matches!(values, Values::$variant(_)) {
                *values = Values::$variant(Vec::new());
            }
            let Values::$variant(elements) = values else { unreachable!() };
            elements
        }

        #[inline]
        fn scalar(self) -> ScalarValue {
            ScalarValue::$variant(self)
        }

        #[inline]
        fn of(scalar: ScalarValue) -> Option<Self> {
            if let ScalarValue::$variant(value) = scalar { Some(value) } else { None }
        }
    };
}

macro_rules! numeric_integers {
    ($($variant:ident $number:ty, $absolute:expr;)*) => {$(
        impl Numeric for $number {
            numeric_access!($variant, $number);

            #[inline]
            fn ends() -> (Self, Self) {
                (Self::MAX, Self::MIN)
            }
            #[inline]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline]
            fn subtract(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            #[inline]
            fn multiply(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline]
            fn divide(self, other: Self) -> Self {
                self.checked_div(other).unwrap_or(0)
            }
            #[inline]
            fn negate(self) -> Self {
                self.wrapping_neg()
            }
            #[inline]
            fn absolute(self) -> Self {
                $absolute(self)
            }
            #[inline]
            fn square_root(self) -> Self {
                self
            }
            #[inline]
            fn is_nan(self) -> bool {
                false
            }
            #[inline]
            fn is_finite(self) -> bool {
                true
            }
        }
    )*};
}
numeric_integers! {
    Int8 i8, i8::wrapping_abs;
    Int16 i16, i16::wrapping_abs;
    Int32 i32, i32::wrapping_abs;
    Int64 i64, i64::wrapping_abs;
    UInt8 u8, std::convert::identity;
    UInt16 u16, std::convert::identity;
    UInt32 u32, std::convert::identity;
    UInt64 u64, std::convert::identity;
}

macro_rules! numeric_floats {
    // Types with operations of their own.
    ($variant:ident $number:ty) => {
        impl Numeric for $number {
            numeric_access!($variant, $number);

            #[inline]
            fn ends() -> (Self, Self) {
                (Self::INFINITY, Self::NEG_INFINITY)
            }
            #[inline]
            fn add(self, other: Self) -> Self {
                self + other
            }
            #[inline]
            fn subtract(self, other: Self) -> Self {
                self - other
            }
            #[inline]
            fn multiply(self, other: Self) -> Self {
                self * other
            }
            #[inline]
            fn divide(self, other: Self) -> Self {
                self / other
            }
            #[inline]
            fn negate(self) -> Self {
                -self
            }
            #[inline]
            fn absolute(self) -> Self {
                self.abs()
            }
            #[inline]
            fn square_root(self) -> Self {
                self.sqrt()
            }
            #[inline]
            fn is_nan(self) -> bool {
                self.is_nan()
            }
            #[inline]
            fn is_finite(self) -> bool {
                self.is_finite()
            }
        }
    };
}
numeric_floats!(Float32 f32);
numeric_floats!(Float64 f64);

/// Half precision is computed in single precision and rounded, which gives the nearest result.
impl Numeric for f16 {
    numeric_access!(Float16, f16);

    #[inline]
    fn ends() -> (Self, Self) {
        (Self::INFINITY, Self::NEG_INFINITY)
    }

    #[inline]
    fn add(self, other: Self) -> Self {
        Self::from_f32(self.to_f32() + other.to_f32())
    }
    #[inline]
    fn subtract(self, other: Self) -> Self {
        Self::from_f32(self.to_f32() - other.to_f32())
    }
    #[inline]
    fn multiply(self, other: Self) -> Self {
        Self::from_f32(self.to_f32() * other.to_f32())
    }
    #[inline]
    fn divide(self, other: Self) -> Self {
        Self::from_f32(self.to_f32() / other.to_f32())
    }
    #[inline]
    fn negate(self) -> Self {
        Self::from_bits(self.to_bits() ^ 0x8000)
    }
    #[inline]
    fn absolute(self) -> Self {
        Self::from_bits(self.to_bits() & 0x7fff)
    }
    #[inline]
    fn square_root(self) -> Self {
        Self::from_f32(self.to_f32().sqrt())
    }
    #[inline]
    fn is_nan(self) -> bool {
        self.is_nan()
    }
    #[inline]
    fn is_finite(self) -> bool {
        self.is_finite()
    }
}

/// The conversion of an element, as C does it.
pub(crate) trait CastTo<T> {
    fn cast(self) -> T;
}

macro_rules! cast_from {
    ($($from:ty),*) => {$(cast_from!(@ $from: i8 i16 i32 i64 u8 u16 u32 u64 f32 f64);)*};
    (@ $from:ty: $($to:ty)*) => {$(
        impl CastTo<$to> for $from {
            #[inline]
            #[allow(clippy::cast_lossless, clippy::cast_possible_wrap, clippy::cast_precision_loss)]
            #[allow(clippy::cast_sign_loss)]
            fn cast(self) -> $to {
                self as $to
            }
        }
    )*};
}
cast_from!(i8, i16, i32, i64, u8, u16, u32, u64, f32, f64);

macro_rules! cast_with_half {
    ($($number:ty),*) => {$(
        impl CastTo<f16> for $number {
            #[inline]
            #[allow(clippy::cast_lossless, clippy::cast_precision_loss)]
            fn cast(self) -> f16 {
                f16::from_f32(self as f32)
            }
        }
        impl CastTo<$number> for f16 {
            #[inline]
            #[allow(clippy::cast_lossless, clippy::cast_sign_loss)]
            fn cast(self) -> $number {
                self.to_f32() as $number
            }
        }
    )*};
}
cast_with_half!(i8, i16, i32, i64, u8, u16, u32, u64, f32);

impl CastTo<f16> for f16 {
    #[inline]
    fn cast(self) -> f16 {
        self
    }
}

impl CastTo<f64> for f16 {
    #[inline]
    fn cast(self) -> f64 {
        self.to_f64()
    }
}

impl CastTo<f16> for f64 {
    /// Rounds once, through the float of single precision that is rounded to odd.
    #[inline]
    fn cast(self) -> f16 {
        let nearest = self as f32;
        let back = f64::from(nearest);
        let bits = nearest.to_bits();
        if back == self || self.is_nan() || nearest.is_infinite() || bits & 1 == 1 {
            return f16::from_f32(nearest);
        }
        // The odd one of the two neighbours: towards zero or away from it.
        let odd = if back.abs() > self.abs() { bits - 1 } else { bits + 1 };
        f16::from_f32(f32::from_bits(odd))
    }
}

/// Applies a comparison to the order of two values, which have none if one is NaN.
#[inline]
pub(crate) fn holds(comparison: ComparisonSign, order: Option<std::cmp::Ordering>) -> bool {
    use std::cmp::Ordering::{Equal, Greater, Less};
    match comparison {
        ComparisonSign::Less => order == Some(Less),
        ComparisonSign::LessEqual => matches!(order, Some(Less | Equal)),
        ComparisonSign::Greater => order == Some(Greater),
        ComparisonSign::GreaterEqual => matches!(order, Some(Greater | Equal)),
        ComparisonSign::Equal => order == Some(Equal),
        ComparisonSign::NotEqual => order != Some(Equal),
    }
}

/// Applies an operation of two numbers.
#[inline]
pub(crate) fn binary<T: Numeric>(operation: BinaryOperation, one: T, other: T) -> T {
    match operation {
        BinaryOperation::Arithmetic(ArithmeticSign::Add) => one.add(other),
        BinaryOperation::Arithmetic(ArithmeticSign::Subtract) => one.subtract(other),
        BinaryOperation::Arithmetic(ArithmeticSign::Multiply) => one.multiply(other),
        BinaryOperation::Arithmetic(ArithmeticSign::Divide) => one.divide(other),
        BinaryOperation::Minimum => one.minimum(other),
        BinaryOperation::Maximum => one.maximum(other),
    }
}

/// Applies an operation of one number.
#[inline]
pub(crate) fn unary<T: Numeric>(operation: UnaryOperation, one: T) -> T {
    match operation {
        UnaryOperation::Negate => one.negate(),
        UnaryOperation::Absolute => one.absolute(),
        UnaryOperation::SquareRoot => one.square_root(),
    }
}

/// Runs code with `$T` as the Rust type of a type of numbers.
macro_rules! with_number {
    ($value_type:expr, $T:ident => $number:expr, bool => $bool:expr) => {
        match $value_type {
            ValueType::Bool => $bool,
            ValueType::Int8 => {
                type $T = i8;
                $number
            }
            ValueType::Int16 => {
                type $T = i16;
                $number
            }
            ValueType::Int32 => {
                type $T = i32;
                $number
            }
            ValueType::Int64 => {
                type $T = i64;
                $number
            }
            ValueType::UInt8 => {
                type $T = u8;
                $number
            }
            ValueType::UInt16 => {
                type $T = u16;
                $number
            }
            ValueType::UInt32 => {
                type $T = u32;
                $number
            }
            ValueType::UInt64 => {
                type $T = u64;
                $number
            }
            ValueType::Float16 => {
                type $T = half::f16;
                $number
            }
            ValueType::Float32 => {
                type $T = f32;
                $number
            }
            ValueType::Float64 => {
                type $T = f64;
                $number
            }
        }
    };
}
pub(crate) use with_number;

macro_rules! scalar_operations {
    ($($variant:ident $number:ty),*) => {
        impl ScalarValue {
            /// Converts the value. Floats become true unless they are 0.
            pub(crate) fn cast(self, to: ValueType) -> Self {
                match self {
                    Self::Bool(value) => with_number!(
                        to,
                        T => CastTo::<T>::cast(u8::from(value)).scalar(),
                        bool => self
                    ),
                    $(Self::$variant(value) => with_number!(
                        to,
                        T => CastTo::<T>::cast(value).scalar(),
                        bool => Self::Bool(value != CastTo::<$number>::cast(0_u8))
                    ),)*
                }
            }

            /// Applies an operation of two numbers of one type; `None` for all else.
            pub(crate) fn binary(self, operation: BinaryOperation, other: Self) -> Option<Self> {
                match (self, other) {
                    $((Self::$variant(one), Self::$variant(other)) => {
                        Some(Self::$variant(binary(operation, one, other)))
                    })*
                    _ => None,
                }
            }

            /// Applies an operation of one number; `None` for booleans.
            pub(crate) fn unary(self, operation: UnaryOperation) -> Option<Self> {
                match self {
                    Self::Bool(_) => None,
                    $(Self::$variant(one) => Some(Self::$variant(unary(operation, one))),)*
                }
            }

            /// The order of two values of one type, or of two integers; `None` for NaN.
            pub(crate) fn order(self, other: Self) -> Option<std::cmp::Ordering> {
                match (self, other) {
                    (Self::Bool(one), Self::Bool(other)) => Some(one.cmp(&other)),
                    $((Self::$variant(one), Self::$variant(other)) => one.partial_cmp(&other),)*
                    _ => Some(self.integer()?.cmp(&other.integer()?)),
                }
            }

            /// Returns true for NaN.
            pub(crate) fn is_nan(self) -> bool {
                match self {
                    Self::Bool(_) => false,
                    $(Self::$variant(value) => Numeric::is_nan(value),)*
                }
            }

            /// Returns false for NaN and infinities.
            pub(crate) fn is_finite(self) -> bool {
                match self {
                    Self::Bool(_) => true,
                    $(Self::$variant(value) => Numeric::is_finite(value),)*
                }
            }
        }
    };
}
each_number!(scalar_operations);

impl ScalarValue {
    /// The value of an integer or boolean.
    pub(crate) fn integer(self) -> Option<i128> {
        Some(match self {
            Self::Bool(value) => i128::from(value),
            Self::Int8(value) => i128::from(value),
            Self::Int16(value) => i128::from(value),
            Self::Int32(value) => i128::from(value),
            Self::Int64(value) => i128::from(value),
            Self::UInt8(value) => i128::from(value),
            Self::UInt16(value) => i128::from(value),
            Self::UInt32(value) => i128::from(value),
            Self::UInt64(value) => i128::from(value),
            Self::Float16(_) | Self::Float32(_) | Self::Float64(_) => return None,
        })
    }

    /// Makes an integer of an integer type; `None` if the type cannot hold it.
    pub(crate) fn of_integer(value: i128, to: ValueType) -> Option<Self> {
        Some(match to {
            ValueType::Int8 => Self::Int8(value.try_into().ok()?),
            ValueType::Int16 => Self::Int16(value.try_into().ok()?),
            ValueType::Int32 => Self::Int32(value.try_into().ok()?),
            ValueType::Int64 => Self::Int64(value.try_into().ok()?),
            ValueType::UInt8 => Self::UInt8(value.try_into().ok()?),
            ValueType::UInt16 => Self::UInt16(value.try_into().ok()?),
            ValueType::UInt32 => Self::UInt32(value.try_into().ok()?),
            ValueType::UInt64 => Self::UInt64(value.try_into().ok()?),
            ValueType::Bool | ValueType::Float16 | ValueType::Float32 | ValueType::Float64 => {
                return None;
            }
        })
    }
}
