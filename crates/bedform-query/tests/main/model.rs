//! Random columns and expressions, evaluated one element at a time by the rules as NumPy states
//! them: a table of result types, and one match for each operation.

use std::cmp::Ordering;
use std::fmt::Write as _;

use bedform_query::{
    AttributeNumber, Operand, Packing, ScalarValue, ValueDecoding, ValueSlice, ValueType,
};
use half::f16;

/// A generator of pseudorandom numbers (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub(crate) fn choose<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

pub(crate) const TYPES: [ValueType; 12] = [
    ValueType::Bool,
    ValueType::Int8,
    ValueType::Int16,
    ValueType::Int32,
    ValueType::Int64,
    ValueType::UInt8,
    ValueType::UInt16,
    ValueType::UInt32,
    ValueType::UInt64,
    ValueType::Float16,
    ValueType::Float32,
    ValueType::Float64,
];

/// `np.result_type` of each pair of `TYPES`, as NumPy 2.4 prints it.
const RESULT_TYPES: [[usize; 12]; 12] = [
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
    [1, 1, 2, 3, 4, 2, 3, 4, 11, 9, 10, 11],
    [2, 2, 2, 3, 4, 2, 3, 4, 11, 10, 10, 11],
    [3, 3, 3, 3, 4, 3, 3, 4, 11, 11, 11, 11],
    [4, 4, 4, 4, 4, 4, 4, 4, 11, 11, 11, 11],
    [5, 2, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
    [6, 3, 3, 3, 4, 6, 6, 7, 8, 10, 10, 11],
    [7, 4, 4, 4, 4, 7, 7, 7, 8, 11, 11, 11],
    [8, 11, 11, 11, 11, 8, 8, 8, 8, 11, 11, 11],
    [9, 9, 10, 11, 11, 9, 10, 11, 11, 9, 10, 11],
    [10, 10, 10, 11, 11, 10, 10, 11, 11, 10, 10, 11],
    [11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11],
];

fn position(kind: ValueType) -> usize {
    TYPES.iter().position(|one| *one == kind).unwrap()
}

fn result_type(one: ValueType, other: ValueType) -> ValueType {
    TYPES[RESULT_TYPES[position(one)][position(other)]]
}

/// A value with its type: integers wide, floats in double precision, which holds all of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value {
    Bool(bool),
    Integer(ValueType, i128),
    Float(ValueType, f64),
}

impl Value {
    pub(crate) fn of(scalar: ScalarValue) -> Self {
        let kind = scalar.value_type();
        let integer = |value: i128| Self::Integer(kind, value);
        match scalar {
            ScalarValue::Bool(value) => Self::Bool(value),
            ScalarValue::Int8(value) => integer(value.into()),
            ScalarValue::Int16(value) => integer(value.into()),
            ScalarValue::Int32(value) => integer(value.into()),
            ScalarValue::Int64(value) => integer(value.into()),
            ScalarValue::UInt8(value) => integer(value.into()),
            ScalarValue::UInt16(value) => integer(value.into()),
            ScalarValue::UInt32(value) => integer(value.into()),
            ScalarValue::UInt64(value) => integer(value.into()),
            ScalarValue::Float16(value) => Self::Float(kind, value.to_f64()),
            ScalarValue::Float32(value) => Self::Float(kind, value.into()),
            ScalarValue::Float64(value) => Self::Float(kind, value),
        }
    }

    fn kind(self) -> ValueType {
        match self {
            Self::Bool(_) => ValueType::Bool,
            Self::Integer(kind, _) | Self::Float(kind, _) => kind,
        }
    }

    pub(crate) fn truth(self) -> Option<bool> {
        if let Self::Bool(value) = self { Some(value) } else { None }
    }

    /// Compares as NumPy does.
    pub(crate) fn equals(self, other: Self) -> bool {
        compare("==", Term::Value(self), Term::Value(other)) == Some(true)
    }

    pub(crate) fn cast(self, to: ValueType) -> Self {
        if to == ValueType::Bool {
            return Self::Bool(match self {
                Self::Bool(value) => value,
                Self::Integer(_, value) => value != 0,
                Self::Float(_, value) => value != 0.0,
            });
        }
        let integer = match self {
            Self::Bool(value) => i128::from(value),
            Self::Integer(_, value) => value,
            Self::Float(_, value) => {
                assert!(to.is_float(), "no cast truncates floats");
                return Self::Float(to, rounded(value, to));
            }
        };
        if !to.is_float() {
            return wrapped(integer, to);
        }
        Self::Float(to, rounded_integer(integer, to))
    }
}

/// An integer as the nearest float of a type; NumPy makes halves of singles.
fn rounded_integer(integer: i128, to: ValueType) -> f64 {
    match to {
        ValueType::Float64 => integer as f64,
        ValueType::Float32 => f64::from(integer as f32),
        _ => rounded(f64::from(integer as f32), to),
    }
}

/// A double as the nearest float of a type.
fn rounded(value: f64, to: ValueType) -> f64 {
    match to {
        ValueType::Float64 => value,
        ValueType::Float32 => f64::from(value as f32),
        // The nearest half of all: the search is slow, and rounds once.
        _ => nearest_half(value),
    }
}

fn nearest_half(value: f64) -> f64 {
    if value.is_nan() || value == 0.0 {
        return value;
    }
    // Positive halves are in the order of their bits. The value of infinity counts as 65536.
    let at = |bits: u16| if bits == 0x7c00 { 65536.0 } else { f16::from_bits(bits).to_f64() };
    let magnitude = value.abs();
    let (mut first, mut next) = (0_u16, 0x7c01);
    while first < next {
        let middle = u16::midpoint(first, next);
        if at(middle) <= magnitude { first = middle + 1 } else { next = middle }
    }
    let chosen = if next > 0x7c00 {
        0x7c00
    } else {
        let (low, high) = (next - 1, next);
        let (below, above) = (magnitude - at(low), at(high) - magnitude);
        match below.partial_cmp(&above).unwrap() {
            Ordering::Less => low,
            Ordering::Greater => high,
            Ordering::Equal => low + (low & 1),
        }
    };
    f16::from_bits(chosen).to_f64().copysign(value)
}

fn wrapped(value: i128, to: ValueType) -> Value {
    let bits = 8 * to.bytes() as u32;
    let mut value = value & ((1 << bits) - 1);
    let is_signed =
        matches!(to, ValueType::Int8 | ValueType::Int16 | ValueType::Int32 | ValueType::Int64);
    if is_signed && value >> (bits - 1) == 1 {
        value -= 1 << bits;
    }
    Value::Integer(to, value)
}

fn fits(value: i128, to: ValueType) -> bool {
    wrapped(value, to) == Value::Integer(to, value)
}

/// Numbers of Python and arrays' values.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Term {
    Number(Python),
    Value(Value),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Python {
    Bool(bool),
    Integer(i128),
    Float(f64),
}

impl Python {
    fn integer(self) -> Option<i128> {
        match self {
            Self::Bool(value) => Some(i128::from(value)),
            Self::Integer(value) => Some(value),
            Self::Float(_) => None,
        }
    }

    fn float(self) -> f64 {
        match self {
            Self::Float(value) => value,
            other => other.integer().unwrap() as f64,
        }
    }

    /// The type that a function gives the number.
    fn with_type(self) -> Option<Value> {
        Some(match self {
            Self::Bool(value) => Value::Bool(value),
            Self::Float(value) => Value::Float(ValueType::Float64, value),
            Self::Integer(value) if fits(value, ValueType::Int64) => {
                Value::Integer(ValueType::Int64, value)
            }
            Self::Integer(value) if fits(value, ValueType::UInt64) => {
                Value::Integer(ValueType::UInt64, value)
            }
            Self::Integer(_) => return None,
        })
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Tree {
    Column(usize),
    Number(Python),
    Negate(Box<Tree>),
    Arithmetic(char, Box<Tree>, Box<Tree>),
    Call(&'static str, Vec<Tree>),
    Compare(Box<Tree>, Vec<(&'static str, Tree)>),
    Logic(&'static str, Vec<Tree>),
    Not(Box<Tree>),
}

impl Tree {
    /// Writes the tree with brackets around all that has an operator.
    pub(crate) fn write(&self, text: &mut String) {
        match self {
            Self::Column(index) => write!(text, "c{index}").unwrap(),
            Self::Number(number) => write_number(*number, text),
            Self::Negate(inner) => {
                text.push_str("(-");
                inner.write(text);
                text.push(')');
            }
            Self::Not(inner) => {
                text.push_str("(not ");
                inner.write(text);
                text.push(')');
            }
            Self::Arithmetic(sign, left, right) => {
                text.push('(');
                left.write(text);
                write!(text, " {sign} ").unwrap();
                right.write(text);
                text.push(')');
            }
            Self::Call(name, arguments) => {
                write!(text, "{name}(").unwrap();
                for (index, argument) in arguments.iter().enumerate() {
                    text.push_str(if index > 0 { ", " } else { "" });
                    argument.write(text);
                }
                text.push(')');
            }
            Self::Compare(first, rest) => {
                text.push('(');
                first.write(text);
                for (sign, operand) in rest {
                    write!(text, " {sign} ").unwrap();
                    operand.write(text);
                }
                text.push(')');
            }
            Self::Logic(sign, operands) => {
                text.push('(');
                for (index, operand) in operands.iter().enumerate() {
                    if index > 0 {
                        write!(text, " {sign} ").unwrap();
                    }
                    operand.write(text);
                }
                text.push(')');
            }
        }
    }

    /// The value for one element; none if NumPy, or the language, refuses the types.
    pub(crate) fn value(&self, elements: &[Value]) -> Option<Term> {
        Some(match self {
            Self::Column(index) => Term::Value(elements[*index]),
            Self::Number(number) => Term::Number(*number),
            Self::Negate(inner) => match inner.value(elements)? {
                Term::Number(Python::Float(value)) => Term::Number(Python::Float(-value)),
                Term::Number(number) => Term::Number(Python::Integer(-number.integer()?)),
                Term::Value(Value::Bool(_)) => return None,
                Term::Value(Value::Integer(kind, value)) => Term::Value(wrapped(-value, kind)),
                Term::Value(Value::Float(kind, value)) => Term::Value(Value::Float(kind, -value)),
            },
            Self::Arithmetic(sign, left, right) => {
                arithmetic(*sign, left.value(elements)?, right.value(elements)?)?
            }
            Self::Call(name, arguments) => {
                let terms: Option<Vec<Term>> =
                    arguments.iter().map(|argument| argument.value(elements)).collect();
                call(name, &terms?)?
            }
            Self::Compare(first, rest) => {
                let mut left = first.value(elements)?;
                let mut all = true;
                for (sign, operand) in rest {
                    let right = operand.value(elements)?;
                    all &= compare(sign, left, right)?;
                    left = right;
                }
                Term::Value(Value::Bool(all))
            }
            Self::Logic(sign, operands) => {
                let mut truths = Vec::new();
                for operand in operands {
                    truths.push(truth(operand.value(elements)?)?);
                }
                let result = match *sign {
                    "and" | "&" => truths.iter().all(|truth| *truth),
                    "or" | "|" => truths.iter().any(|truth| *truth),
                    _ => truths.iter().filter(|truth| **truth).count() % 2 == 1,
                };
                Term::Value(Value::Bool(result))
            }
            Self::Not(inner) => Term::Value(Value::Bool(!truth(inner.value(elements)?)?)),
        })
    }
}

fn truth(term: Term) -> Option<bool> {
    match term {
        Term::Number(Python::Bool(value)) => Some(value),
        Term::Value(value) => value.truth(),
        Term::Number(_) => None,
    }
}

fn write_number(number: Python, text: &mut String) {
    match number {
        Python::Bool(true) => text.push_str("True"),
        Python::Bool(false) => text.push_str("False"),
        Python::Integer(value) => write!(text, "({value})").unwrap(),
        Python::Float(value) if value.is_nan() => text.push_str("nan"),
        Python::Float(value) if value.is_infinite() => {
            text.push_str(if value > 0.0 { "inf" } else { "(-inf)" });
        }
        Python::Float(value) => write!(text, "({value:?})").unwrap(),
    }
}

/// Two terms in the type of their arithmetic.
fn common(left: Term, right: Term) -> Option<(Value, Value)> {
    match (left, right) {
        (Term::Value(left), Term::Value(right)) => {
            let kind = result_type(left.kind(), right.kind());
            Some((left.cast(kind), right.cast(kind)))
        }
        (Term::Value(left), Term::Number(right)) => beside(left, right),
        (Term::Number(left), Term::Value(right)) => {
            beside(right, left).map(|(right, left)| (left, right))
        }
        (Term::Number(left), Term::Number(right)) => {
            common(Term::Value(left.with_type()?), Term::Value(right.with_type()?))
        }
    }
}

fn beside(value: Value, number: Python) -> Option<(Value, Value)> {
    let kind = match (value.kind(), number) {
        (kind, Python::Bool(_)) => kind,
        (kind, _) if kind.is_float() => kind,
        (_, Python::Float(_)) => ValueType::Float64,
        (ValueType::Bool, Python::Integer(_)) => ValueType::Int64,
        (kind, Python::Integer(_)) => kind,
    };
    let number = match number {
        Python::Bool(number) => Value::Bool(number).cast(kind),
        Python::Float(number) => Value::Float(kind, rounded(number, kind)),
        Python::Integer(number) if kind.is_float() => {
            Value::Float(kind, rounded(number as f64, kind))
        }
        Python::Integer(number) if fits(number, kind) => Value::Integer(kind, number),
        Python::Integer(_) => return None,
    };
    Some((value.cast(kind), number))
}

fn arithmetic(sign: char, left: Term, right: Term) -> Option<Term> {
    if let (Term::Number(left), Term::Number(right)) = (left, right) {
        return python_arithmetic(sign, left, right).map(Term::Number);
    }
    let (left, right) = if sign == '/' {
        let divided = |term| match term {
            Term::Number(Python::Integer(number)) => Term::Number(Python::Float(number as f64)),
            other => other,
        };
        let (left, right) = common(divided(left), divided(right))?;
        if left.kind().is_float() {
            (left, right)
        } else {
            (left.cast(ValueType::Float64), right.cast(ValueType::Float64))
        }
    } else {
        common(left, right)?
    };
    Some(Term::Value(match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => match sign {
            '+' => Value::Bool(left | right),
            '*' => Value::Bool(left & right),
            _ => return None,
        },
        (Value::Integer(kind, left), Value::Integer(_, right)) => match sign {
            '+' => wrapped(left + right, kind),
            '-' => wrapped(left - right, kind),
            // Of the unsigned product of 64 bits the low ones alone count.
            _ => wrapped(left.wrapping_mul(right), kind),
        },
        (Value::Float(kind, left), Value::Float(_, right)) => {
            Value::Float(kind, float_arithmetic(sign, kind, left, right))
        }
        _ => unreachable!("one type"),
    }))
}

/// Double precision holds enough digits for a single rounding of narrower types.
fn float_arithmetic(sign: char, kind: ValueType, left: f64, right: f64) -> f64 {
    let result = match sign {
        '+' => left + right,
        '-' => left - right,
        '*' => left * right,
        _ => left / right,
    };
    rounded(result, kind)
}

fn python_arithmetic(sign: char, left: Python, right: Python) -> Option<Python> {
    if sign == '/' {
        let is_long = |number: Python| number.integer().is_some_and(|value| value.abs() > 1 << 53);
        let are_integers = left.integer().zip(right.integer()).is_some();
        if right.float() == 0.0 || are_integers && (is_long(left) || is_long(right)) {
            return None;
        }
        return Some(Python::Float(left.float() / right.float()));
    }
    if let (Some(left), Some(right)) = (left.integer(), right.integer()) {
        return Some(Python::Integer(match sign {
            '+' => left.checked_add(right)?,
            '-' => left.checked_sub(right)?,
            _ => left.checked_mul(right)?,
        }));
    }
    let result = float_arithmetic(sign, ValueType::Float64, left.float(), right.float());
    Some(Python::Float(result))
}

fn call(name: &str, terms: &[Term]) -> Option<Term> {
    if let ("abs", Term::Number(number)) = (name, terms[0]) {
        return Some(Term::Number(match number {
            Python::Float(value) => Python::Float(value.abs()),
            other => Python::Integer(other.integer()?.abs()),
        }));
    }
    let typed = |term| match term {
        Term::Value(value) => Some(value),
        Term::Number(number) => number.with_type(),
    };
    let first = typed(terms[0])?;
    Some(Term::Value(match name {
        "abs" => match first {
            Value::Integer(kind, value) => wrapped(value.abs(), kind),
            Value::Float(kind, value) => Value::Float(kind, value.abs()),
            other => other,
        },
        "sqrt" => {
            let kind = match first.kind() {
                kind if kind.is_float() => kind,
                kind => [ValueType::Float16, ValueType::Float32, ValueType::Float64]
                    [kind.bytes().ilog2().min(2) as usize],
            };
            let Value::Float(_, value) = first.cast(kind) else { unreachable!() };
            Value::Float(kind, rounded(value.sqrt(), kind))
        }
        "isnan" => Value::Bool(matches!(first, Value::Float(_, value) if value.is_nan())),
        "isfinite" => Value::Bool(!matches!(first, Value::Float(_, value) if !value.is_finite())),
        _ => extreme(name, terms)?,
    }))
}

fn extreme(name: &str, terms: &[Term]) -> Option<Value> {
    let is_least = name == "minimum";
    Some(match common(terms[0], terms[1])? {
        (Value::Bool(one), Value::Bool(other)) if is_least => Value::Bool(one & other),
        (Value::Bool(one), Value::Bool(other)) => Value::Bool(one | other),
        (Value::Integer(kind, one), Value::Integer(_, other)) if is_least => {
            Value::Integer(kind, one.min(other))
        }
        (Value::Integer(kind, one), Value::Integer(_, other)) => {
            Value::Integer(kind, one.max(other))
        }
        (Value::Float(kind, one), Value::Float(_, other)) => {
            let chosen = match (one.is_nan() || other.is_nan(), is_least) {
                (true, _) => f64::NAN,
                // The second one, if both are zeros: NumPy leaves the sign open.
                (_, true) => {
                    if one < other {
                        one
                    } else {
                        other
                    }
                }
                (_, false) => {
                    if one > other {
                        one
                    } else {
                        other
                    }
                }
            };
            Value::Float(kind, chosen)
        }
        _ => unreachable!("one type"),
    })
}

fn compare(sign: &str, left: Term, right: Term) -> Option<bool> {
    let order = match (left, right) {
        (Term::Number(left), Term::Number(right)) => python_order(left, right),
        // Integers compare exactly, whatever their types are.
        (Term::Value(left), Term::Number(right)) if !left.kind().is_float() => {
            match (left.integer(), right.integer()) {
                (Some(left), Some(right)) => Some(left.cmp(&right)),
                _ => order(beside(left, right)?),
            }
        }
        (Term::Number(left), Term::Value(right)) if !right.kind().is_float() => {
            match (left.integer(), right.integer()) {
                (Some(left), Some(right)) => Some(left.cmp(&right)),
                _ => order(common(Term::Number(left), Term::Value(right))?),
            }
        }
        (Term::Value(left), Term::Value(right)) => match (left.integer(), right.integer()) {
            (Some(left), Some(right)) => Some(left.cmp(&right)),
            _ => order(common(Term::Value(left), Term::Value(right))?),
        },
        (left, right) => order(common(left, right)?),
    };
    Some(match sign {
        "<" => order == Some(Ordering::Less),
        "<=" => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        ">" => order == Some(Ordering::Greater),
        ">=" => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        "==" => order == Some(Ordering::Equal),
        _ => order != Some(Ordering::Equal),
    })
}

impl Value {
    fn integer(self) -> Option<i128> {
        match self {
            Self::Bool(value) => Some(i128::from(value)),
            Self::Integer(_, value) => Some(value),
            Self::Float(..) => None,
        }
    }
}

fn order((left, right): (Value, Value)) -> Option<Ordering> {
    match (left, right) {
        (Value::Float(_, left), Value::Float(_, right)) => left.partial_cmp(&right),
        (left, right) => left.integer()?.partial_cmp(&right.integer()?),
    }
}

/// Python compares integers with floats exactly; here by the digits of both.
fn python_order(left: Python, right: Python) -> Option<Ordering> {
    match (left.integer(), right.integer()) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        (None, None) => left.float().partial_cmp(&right.float()),
        (Some(integer), None) => exact(integer, right.float()),
        (None, Some(integer)) => exact(integer, left.float()).map(Ordering::reverse),
    }
}

fn exact(integer: i128, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    if float.abs() > 1e30 {
        return 0.0.partial_cmp(&float);
    }
    // Twice as large, halves are integers; smaller fractions are between them.
    let order = integer.cmp(&(float.floor() as i128));
    Some(if order == Ordering::Equal && float > float.floor() { Ordering::Less } else { order })
}

/// A random column: its decoding and stored elements.
#[derive(Debug, Clone)]
pub(crate) struct RandomColumn {
    pub(crate) stored: ValueType,
    /// None for stored values.
    pub(crate) packing: Option<Packing>,
    pub(crate) bytes: Vec<u8>,
}

impl RandomColumn {
    pub(crate) fn decoding(&self) -> Option<ValueDecoding> {
        match &self.packing {
            None => Some(ValueDecoding::raw(self.stored)),
            Some(packing) => ValueDecoding::new(self.stored, packing.clone()).ok(),
        }
    }

    pub(crate) fn operand(&self, index: usize) -> Operand {
        let decoding = self.decoding().expect("columns are made with decodings that hold");
        Operand { name: format!("c{index}"), decoding }
    }
}

/// Bytes at an address that suits all types.
pub(crate) struct Aligned(Vec<u64>, usize);

impl Aligned {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let mut words = Vec::new();
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            words.push(u64::from_ne_bytes(word));
        }
        Self(words, bytes.len())
    }

    pub(crate) fn slice(&self, kind: ValueType) -> ValueSlice<'_> {
        let bytes = zerocopy::IntoBytes::as_bytes(&self.0[..]);
        ValueSlice::of_bytes(kind, &bytes[..self.1]).expect("whole aligned elements")
    }
}

/// A random element, often a special one.
pub(crate) fn element(random: &mut Random, kind: ValueType) -> Vec<u8> {
    let special = random.below(4) > 0;
    let bits = random.next();
    let small = random.choose(&[0_i64, 1, 2, 3, 5, 7, 10, 100, 127, -1, -2, -3, -10, -100, -128]);
    let float = || -> f64 {
        let list = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            2.0,
            3.0,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            0.1,
            -0.1,
            65504.0,
            1e-7,
            6e-8,
            1e-45,
            1e38,
            1e300,
            9_007_199_254_740_993.0,
            16_777_217.0,
            2048.0,
            2049.0,
        ];
        list[usize::try_from(bits % list.len() as u64).unwrap()]
    };
    let edges = [i64::MIN, i64::MAX, i64::from(i32::MIN), i64::from(i32::MAX), 32767, -32768, 255];
    let integer = match (special, bits % 8) {
        (true, 0) => edges[usize::try_from((bits >> 8) % 7).unwrap()],
        (true, _) => small,
        (false, _) => i64::from_ne_bytes(bits.to_ne_bytes()),
    };
    match kind {
        ValueType::Bool => vec![[0, 1, 1, 2][usize::try_from(bits % 4).unwrap()]],
        ValueType::Float16 if special => f16::from_f64(float()).to_ne_bytes().to_vec(),
        ValueType::Float32 if special => (float() as f32).to_ne_bytes().to_vec(),
        ValueType::Float64 if special => float().to_ne_bytes().to_vec(),
        _ => {
            let bytes = integer.to_le_bytes();
            let mut bytes = bytes[..kind.bytes()].to_vec();
            if cfg!(target_endian = "big") {
                bytes.reverse();
            }
            bytes
        }
    }
}

pub(crate) fn scalar(random: &mut Random, kind: ValueType) -> ScalarValue {
    Aligned::new(&element(random, kind)).slice(kind).get(0).unwrap()
}

fn attribute(random: &mut Random, stored: ValueType) -> AttributeNumber {
    match random.below(6) {
        0 => AttributeNumber::Integer(i128::from(random.choose(&[-1, 0, 1, 2, 100, -999, 255]))),
        1 => AttributeNumber::Real(random.choose(&[-1.0, 0.0, 0.5, 1e20, -999.0, f64::NAN, 3.0])),
        2 => {
            let kind = random.choose(&TYPES[1..]);
            AttributeNumber::Typed(scalar(random, kind))
        }
        _ if stored == ValueType::Bool => AttributeNumber::Integer(1),
        _ => AttributeNumber::Typed(scalar(random, stored)),
    }
}

fn factor(random: &mut Random) -> AttributeNumber {
    let value = random.choose(&[
        0.01,
        0.1,
        0.5,
        2.0,
        -0.25,
        1.0,
        273.15,
        -40.0,
        1e-3,
        0.0,
        1e30,
        f64::INFINITY,
        3.0,
    ]);
    match random.below(6) {
        0 => AttributeNumber::Real(value),
        1 => AttributeNumber::Integer(random.choose(&[2, 3, -1, 10])),
        2 | 3 => AttributeNumber::Typed(ScalarValue::Float32(value as f32)),
        4 => AttributeNumber::Typed(ScalarValue::Float64(value)),
        _ => AttributeNumber::Typed(ScalarValue::Int16(5)),
    }
}

pub(crate) fn packing(random: &mut Random, stored: ValueType) -> Packing {
    let mut packing = Packing::default();
    if random.one_in(2) {
        packing.fill_value.push(attribute(random, stored));
    }
    if random.one_in(4) {
        for _ in 0..=random.below(2) {
            packing.missing_value.push(attribute(random, stored));
        }
    }
    let same = random.one_in(2).then(|| factor(random));
    if random.one_in(2) {
        packing.scale_factor = Some(same.unwrap_or_else(|| factor(random)));
    }
    if random.one_in(2) {
        packing.add_offset = Some(factor(random));
    }
    if random.one_in(6) {
        packing.unsigned = Some(random.one_in(2));
    }
    packing.boolean = random.one_in(12);
    packing
}

/// A random column whose packing holds.
pub(crate) fn column(random: &mut Random, length: usize) -> RandomColumn {
    let stored = random.choose(&TYPES);
    let mut column = RandomColumn { stored, packing: None, bytes: Vec::new() };
    if random.one_in(2) {
        column.packing = Some(packing(random, stored));
        if column.decoding().is_none() {
            column.packing = Some(Packing::default());
        }
    }
    // Some columns have few values, so that conditions hold for all or none.
    let pool: Vec<Vec<u8>> = (0..=random.below(3)).map(|_| element(random, stored)).collect();
    let few = random.one_in(2);
    for _ in 0..length {
        let mut bytes =
            if few { pool[random.below(pool.len())].clone() } else { element(random, stored) };
        if let (Some(packing), true) = (&column.packing, random.one_in(5))
            && let Some(AttributeNumber::Typed(value)) = packing.fill_value.first()
            && value.value_type() == stored
        {
            bytes = bytes_of(*value);
        }
        column.bytes.extend_from_slice(&bytes);
    }
    column
}

pub(crate) fn bytes_of(value: ScalarValue) -> Vec<u8> {
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

fn number(random: &mut Random) -> Python {
    match random.below(12) {
        0 => Python::Float(random.choose(&[f64::NAN, f64::INFINITY, 1e300, 1e-300, 70000.0])),
        1..=4 => Python::Float(random.choose(&[0.0, 0.5, 1.5, -1.0, 0.1, 2.0, 100.25, 1e6, -3.0])),
        5 => Python::Bool(random.one_in(2)),
        6 => Python::Integer(random.choose(&[
            1 << 53,
            (1 << 53) + 1,
            1 << 63,
            (1 << 64) - 1,
            -(1 << 63),
            1 << 70,
            -(1 << 70),
            300,
            -300,
        ])),
        _ => Python::Integer(random.choose(&[0, 1, 2, 3, 5, 7, 100, 127, -1, -2, -100])),
    }
}

pub(crate) fn numeric(random: &mut Random, depth: usize, columns: usize) -> Tree {
    if depth == 0 || random.one_in(4) {
        return if random.one_in(3) {
            Tree::Number(number(random))
        } else {
            Tree::Column(random.below(columns))
        };
    }
    let inner = |random: &mut Random| Box::new(numeric(random, depth - 1, columns));
    match random.below(8) {
        0 => Tree::Negate(inner(random)),
        1 => {
            let name = random.choose(&["abs", "sqrt"]);
            Tree::Call(name, vec![*inner(random)])
        }
        2 => {
            let name = random.choose(&["minimum", "maximum"]);
            Tree::Call(name, vec![*inner(random), *inner(random)])
        }
        _ => {
            let sign = random.choose(&['+', '-', '*', '/']);
            Tree::Arithmetic(sign, inner(random), inner(random))
        }
    }
}

pub(crate) fn condition(random: &mut Random, depth: usize, columns: usize) -> Tree {
    if depth == 0 || random.one_in(2) {
        let sign = |random: &mut Random| random.choose(&["<", "<=", ">", ">=", "==", "!="]);
        return match random.below(10) {
            0 => {
                let name = random.choose(&["isnan", "isfinite"]);
                Tree::Call(name, vec![numeric(random, depth, columns)])
            }
            1 => Tree::Column(random.below(columns)),
            2..=5 => {
                // One array and one number, as most conditions are.
                let (array, number) =
                    (Tree::Column(random.below(columns)), Tree::Number(number(random)));
                let sign = sign(random);
                if random.one_in(2) {
                    Tree::Compare(Box::new(array), vec![(sign, number)])
                } else {
                    Tree::Compare(Box::new(number), vec![(sign, array)])
                }
            }
            _ => {
                let first = Box::new(numeric(random, depth, columns));
                let rest = (0..=usize::from(random.one_in(4)))
                    .map(|_| (sign(random), numeric(random, depth, columns)));
                Tree::Compare(first, rest.collect())
            }
        };
    }
    if random.one_in(4) {
        return Tree::Not(Box::new(condition(random, depth - 1, columns)));
    }
    let sign = random.choose(&["and", "or", "&", "|", "^"]);
    let count = 2 + random.below(2);
    Tree::Logic(sign, (0..count).map(|_| condition(random, depth - 1, columns)).collect())
}
