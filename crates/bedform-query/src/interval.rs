//! Predicates over ranges of stored values: interval arithmetic.
//!
//! Each operation is monotone in its operands, rounding included, so its bounds are the results of
//! the same operation on bounds. Where that fails, bounds are those of the type: for integers that
//! may wrap, for divisors that may be zero. NaN is tracked apart.

use crate::decode::ValueDecoding;
use crate::elementwise::Property;
use crate::evaluate::Predicate;
use crate::keys::{key, key_range, value};
use crate::numeric::{BinaryOperation, UnaryOperation, holds};
use crate::operand::Operand;
use crate::stored_set::{StoredSet, span_of};
use crate::syntax::{ArithmeticSign, ComparisonSign};
use crate::tree::{Joint, Node, Operation};
use crate::values::{ScalarValue, ValueType};

/// The stored values of a block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ValueRange {
    /// The least and the greatest stored value that is not missing, in the stored type; `None` if
    /// all are missing.
    pub least_and_greatest: Option<(ScalarValue, ScalarValue)>,
    /// True if some values are missing: NaN, or the array's fill or missing values.
    pub missing: bool,
}

/// The elements of a block that match a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// No element matches.
    None,
    /// All elements match.
    All,
    /// Unknown: the elements must be evaluated.
    Some,
}

impl Predicate {
    /// Says what the ranges of stored values tell: `ranges[i]` is that of operand `i`, `None` if
    /// nothing is known, as behind the end of the list. Never wrong for ranges that hold; a range
    /// that no array of the stored type can have counts as unknown.
    ///
    /// # Examples
    ///
    /// ```
    /// use bedform_query::{
    ///     Decision, Expression, Operand, Packing, ScalarValue, ValueDecoding, ValueRange, ValueType,
    /// };
    ///
    /// let decoding = ValueDecoding::new(ValueType::Float64, Packing::default())?;
    /// let predicate = Expression::parse("2 * x + 1 > 5")?
    ///     .bind(&[Operand { name: "x".into(), decoding }])?;
    /// let ends = (ScalarValue::Float64(0.0), ScalarValue::Float64(1.5));
    /// let range = ValueRange { least_and_greatest: Some(ends), missing: true };
    /// assert_eq!(predicate.decide(&[Some(range)]), Decision::None);
    /// # Ok::<(), bedform_query::ExpressionError>(())
    /// ```
    pub fn decide(&self, ranges: &[Option<ValueRange>]) -> Decision {
        let known = |(index, operand): (usize, &Operand)| {
            OperandBlock::new(&operand.decoding, ranges.get(index).copied().flatten())
        };
        let blocks: Vec<Option<OperandBlock>> =
            self.operands().iter().enumerate().map(known).collect();
        let truth = Blocks { operands: self.operands(), blocks: &blocks }.truth(self.root());
        match (truth.can_hold, truth.can_fail) {
            (false, true) => Decision::None,
            (true, false) => Decision::All,
            _ => Decision::Some,
        }
    }
}

/// The stored values that a block may have.
struct OperandBlock {
    /// An interval of keys.
    span: Option<(u64, u64)>,
    /// True if it may have missing values.
    missing: bool,
}

impl OperandBlock {
    /// `None` if nothing is known.
    fn new(decoding: &ValueDecoding, range: Option<ValueRange>) -> Option<Self> {
        let range = range?;
        let span = match range.least_and_greatest {
            Some(ends) => {
                let stored = decoding.stored();
                if [ends.0, ends.1].iter().any(|end| end.value_type() != stored) {
                    return None;
                }
                Some(span_of(ends)?)
            }
            None => None,
        };
        let has_missing_values = match decoding.missing() {
            Some(set) => !set.spans().is_empty() || decoding.stored().is_float(),
            None => false,
        };
        let is_plausible =
            (has_missing_values || !range.missing) && (span.is_some() || range.missing);
        is_plausible.then_some(Self { span, missing: range.missing })
    }

    /// The intervals of keys that it may have, and whether it may have NaN.
    fn spans<'a>(
        &self,
        missing: Option<&'a StoredSet>,
    ) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        let others = missing.filter(|_| self.missing).map_or(&[][..], StoredSet::spans);
        self.span.into_iter().chain(others.iter().copied())
    }
}

/// The truth values that a condition may have in a block.
#[derive(Debug, Clone, Copy)]
struct Truth {
    can_hold: bool,
    can_fail: bool,
}

const UNKNOWN: Truth = Truth { can_hold: true, can_fail: true };

/// The values that a node may have.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// The least and greatest number; none if all values are NaN.
    span: Option<(ScalarValue, ScalarValue)>,
    nan: bool,
}

impl Bounds {
    /// All values of a type.
    fn whole(value_type: ValueType) -> Self {
        let (least, greatest) = key_range(value_type);
        let span = Some((value(value_type, least), value(value_type, greatest)));
        Self { span, nan: value_type.is_float() }
    }

    fn of(value: ScalarValue) -> Self {
        Self { span: (!value.is_nan()).then_some((value, value)), nan: value.is_nan() }
    }

    /// Bounds of a type, or all of its values if one bound is unknown.
    fn new(
        least: Option<ScalarValue>,
        greatest: Option<ScalarValue>,
        nan: bool,
        value_type: ValueType,
    ) -> Self {
        match (least, greatest) {
            (Some(least), Some(greatest)) if !least.is_nan() && !greatest.is_nan() => {
                Self { span: Some((least, greatest)), nan }
            }
            _ => Self::whole(value_type),
        }
    }

    /// Returns true if a number may be a value.
    fn contains(&self, number: ScalarValue) -> bool {
        self.span
            .is_some_and(|(least, greatest)| at_most(least, number) && at_most(number, greatest))
    }
}

fn at_most(one: ScalarValue, other: ScalarValue) -> bool {
    holds(ComparisonSign::LessEqual, one.order(other))
}

struct Blocks<'a> {
    operands: &'a [Operand],
    blocks: &'a [Option<OperandBlock>],
}

impl Blocks<'_> {
    fn truth(&self, node: &Node) -> Truth {
        match &node.operation {
            Operation::InSet(column, set) => self.truth_of_set(*column, set),
            Operation::Column(column) => self.truth_of_column(*column),
            Operation::Constant(_) => {
                let holds = node.constant() == Some(ScalarValue::Bool(true));
                Truth { can_hold: holds, can_fail: !holds }
            }
            Operation::Compare(comparison, left, right) => {
                compared(*comparison, &self.bounds(left), &self.bounds(right))
            }
            Operation::Test(property, inner) => tested(*property, &self.bounds(inner)),
            Operation::Not(inner) => {
                let Truth { can_hold, can_fail } = self.truth(inner);
                Truth { can_hold: can_fail, can_fail: can_hold }
            }
            Operation::Logic(joint, nodes) => {
                let truths = nodes.iter().map(|node| self.truth(node));
                truths.reduce(|one, other| joined(*joint, one, other)).unwrap_or(UNKNOWN)
            }
            Operation::Cast(_) | Operation::Unary(..) | Operation::Binary(..) => UNKNOWN,
        }
    }

    fn truth_of_set(&self, column: usize, set: &StoredSet) -> Truth {
        let Some(block) = &self.blocks[column] else { return UNKNOWN };
        let mut truth = Truth { can_hold: false, can_fail: false };
        for span in block.spans(self.operands[column].decoding.missing()) {
            let (meets, misses) = set.meets(span);
            truth.can_hold |= meets;
            truth.can_fail |= misses;
        }
        if block.missing && set.value_type().is_float() {
            truth.can_hold |= set.has_nan();
            truth.can_fail |= !set.has_nan();
        }
        truth
    }

    /// Booleans: stored as such, or integers of which 0 is false.
    fn truth_of_column(&self, column: usize) -> Truth {
        let decoding = &self.operands[column].decoding;
        let Some(block) = self.blocks[column].as_ref().filter(|_| !decoding.has_steps()) else {
            return UNKNOWN;
        };
        let stored = decoding.stored();
        let zero = |value: f64| ScalarValue::Float64(value).cast(stored);
        let zeros = [-0.0, 0.0].map(|value| {
            key(if stored.is_float() { zero(value) } else { ScalarValue::Bool(false).cast(stored) })
                .unwrap_or(0)
        });
        let zeros = StoredSet::new(stored, vec![(zeros[0], zeros[1])], false);
        let mut truth = Truth { can_hold: false, can_fail: false };
        for span in block.spans(decoding.missing()) {
            let (meets, misses) = zeros.meets(span);
            truth.can_fail |= meets;
            truth.can_hold |= misses;
        }
        // NaN is true.
        truth.can_hold |= block.missing;
        truth
    }

    fn bounds(&self, node: &Node) -> Bounds {
        match &node.operation {
            Operation::Constant(_) => {
                node.constant().map_or_else(|| Bounds::whole(node.value_type), Bounds::of)
            }
            Operation::Column(column) if node.value_type != ValueType::Bool => {
                self.bounds_of_column(*column)
            }
            Operation::Cast(inner) if inner.value_type == ValueType::Bool => {
                let truth = self.truth(inner);
                let ends = [!truth.can_fail, truth.can_hold];
                let [least, greatest] =
                    ends.map(|end| ScalarValue::Bool(end).cast(node.value_type));
                Bounds { span: Some((least, greatest)), nan: false }
            }
            Operation::Cast(inner) => {
                let Bounds { span, nan } = self.bounds(inner);
                let cast = |end: ScalarValue| end.cast(node.value_type);
                Bounds { span: span.map(|(least, greatest)| (cast(least), cast(greatest))), nan }
            }
            Operation::Unary(operation, inner) => {
                unary(*operation, &self.bounds(inner), node.value_type)
            }
            Operation::Binary(operation, left, right) => {
                binary(*operation, &self.bounds(left), &self.bounds(right), node.value_type)
            }
            // Booleans: compared as such.
            _ => {
                let truth = self.truth(node);
                let ends = (ScalarValue::Bool(!truth.can_fail), ScalarValue::Bool(truth.can_hold));
                Bounds { span: Some(ends), nan: false }
            }
        }
    }

    fn bounds_of_column(&self, column: usize) -> Bounds {
        let decoding = &self.operands[column].decoding;
        let whole = Bounds::whole(decoding.decoded());
        let (Some(block), Some(is_increasing)) = (&self.blocks[column], decoding.is_increasing())
        else {
            return whole;
        };
        let missing = decoding.missing().filter(|_| !decoding.has_masks());
        let mut span: Option<(u64, u64)> = None;
        for part in block.spans(missing) {
            let part = decoding.viewed_span(part);
            span = Some(span.map_or(part, |span| (span.0.min(part.0), span.1.max(part.1))));
        }
        let nan = block.missing && (decoding.has_masks() || decoding.stored().is_float());
        let decoded = |key| decoding.value_of_viewed(value(decoding.viewed(), key));
        let span = span.map(|(least, greatest)| {
            let (least, greatest) = (decoded(least), decoded(greatest));
            if is_increasing { (least, greatest) } else { (greatest, least) }
        });
        Bounds { span, nan }
    }
}

fn joined(joint: Joint, one: Truth, other: Truth) -> Truth {
    match joint {
        Joint::And => Truth {
            can_hold: one.can_hold && other.can_hold,
            can_fail: one.can_fail || other.can_fail,
        },
        Joint::Or => Truth {
            can_hold: one.can_hold || other.can_hold,
            can_fail: one.can_fail && other.can_fail,
        },
        Joint::Xor => Truth {
            can_hold: one.can_hold && other.can_fail || one.can_fail && other.can_hold,
            can_fail: one.can_hold && other.can_hold || one.can_fail && other.can_fail,
        },
    }
}

fn compared(comparison: ComparisonSign, left: &Bounds, right: &Bounds) -> Truth {
    let with_nan = comparison == ComparisonSign::NotEqual;
    let (Some(one), Some(other)) = (left.span, right.span) else {
        return Truth { can_hold: with_nan, can_fail: !with_nan };
    };
    let compare = |comparison, one: ScalarValue, other| holds(comparison, one.order(other));
    let mut truth = match comparison {
        ComparisonSign::Less | ComparisonSign::LessEqual => Truth {
            can_hold: compare(comparison, one.0, other.1),
            can_fail: !compare(comparison, one.1, other.0),
        },
        ComparisonSign::Greater | ComparisonSign::GreaterEqual => Truth {
            can_hold: compare(comparison, one.1, other.0),
            can_fail: !compare(comparison, one.0, other.1),
        },
        ComparisonSign::Equal | ComparisonSign::NotEqual => {
            let overlap = at_most(one.0, other.1) && at_most(other.0, one.1);
            let is_one = overlap && at_most(one.1, other.0) && at_most(other.1, one.0);
            let (can_hold, can_fail) = (overlap, !is_one);
            if with_nan {
                Truth { can_hold: can_fail, can_fail: can_hold }
            } else {
                Truth { can_hold, can_fail }
            }
        }
    };
    if left.nan || right.nan {
        truth.can_hold |= with_nan;
        truth.can_fail |= !with_nan;
    }
    truth
}

fn tested(property: Property, bounds: &Bounds) -> Truth {
    match property {
        Property::Nan => Truth { can_hold: bounds.nan, can_fail: bounds.span.is_some() },
        Property::Finite => {
            let ends = bounds.span.map(|(least, greatest)| [least, greatest]);
            let infinite = |end: &ScalarValue| !end.is_finite();
            let has_infinite = ends.is_some_and(|ends| ends.iter().any(infinite));
            let is_infinite = ends.is_none_or(|ends| infinite(&ends[0]) && ends[0] == ends[1]);
            Truth { can_hold: !is_infinite, can_fail: bounds.nan || has_infinite }
        }
    }
}

fn unary(operation: UnaryOperation, of: &Bounds, value_type: ValueType) -> Bounds {
    let Some((least, greatest)) = of.span else { return *of };
    let zero = ScalarValue::Bool(false).cast(value_type);
    let nan = of.nan;
    let apply = |end: ScalarValue| end.unary(operation);
    match operation {
        UnaryOperation::Negate if value_type.is_float() => {
            Bounds::new(apply(greatest), apply(least), nan, value_type)
        }
        UnaryOperation::Negate => {
            let negated = |end: ScalarValue| {
                ScalarValue::of_integer(end.integer()?.checked_neg()?, value_type)
            };
            Bounds::new(negated(greatest), negated(least), nan, value_type)
        }
        UnaryOperation::Absolute => {
            // The least integer has no absolute value in its type.
            let wraps = value_type.is_signed() && Some(least) == Bounds::whole(value_type).least();
            let (low, high) = (apply(least), apply(greatest));
            if wraps {
                Bounds::whole(value_type)
            } else if at_most(zero, least) {
                Bounds::new(low, high, nan, value_type)
            } else if at_most(greatest, zero) {
                Bounds::new(high, low, nan, value_type)
            } else {
                let highest = low
                    .zip(high)
                    .and_then(|(low, high)| low.binary(BinaryOperation::Maximum, high));
                Bounds::new(Some(zero), highest, nan, value_type)
            }
        }
        UnaryOperation::SquareRoot => {
            let has_negative = !at_most(zero, least);
            if !at_most(zero, greatest) {
                return Bounds { span: None, nan: true };
            }
            let least = if has_negative { Some(zero) } else { apply(least) };
            // The root of -0.0 is -0.0, which compares as 0.0.
            Bounds::new(least, apply(greatest), nan || has_negative, value_type)
        }
    }
}

impl Bounds {
    fn least(&self) -> Option<ScalarValue> {
        self.span.map(|(least, _)| least)
    }
}

fn binary(
    operation: BinaryOperation,
    left: &Bounds,
    right: &Bounds,
    value_type: ValueType,
) -> Bounds {
    let nan = left.nan || right.nan;
    let (Some(one), Some(other)) = (left.span, right.span) else {
        return Bounds { span: None, nan: true };
    };
    match operation {
        BinaryOperation::Minimum | BinaryOperation::Maximum => {
            let apply = |one: ScalarValue, other| one.binary(operation, other);
            Bounds::new(apply(one.0, other.0), apply(one.1, other.1), nan, value_type)
        }
        BinaryOperation::Arithmetic(sign) if value_type.is_float() => {
            let nan = nan || may_be_nan(sign, left, right, value_type);
            let apply = |one: ScalarValue, other| one.binary(operation, other);
            let zero = ScalarValue::Bool(false).cast(value_type);
            match sign {
                ArithmeticSign::Add => {
                    Bounds::new(apply(one.0, other.0), apply(one.1, other.1), nan, value_type)
                }
                ArithmeticSign::Subtract => {
                    Bounds::new(apply(one.0, other.1), apply(one.1, other.0), nan, value_type)
                }
                ArithmeticSign::Divide if right.contains(zero) => Bounds::whole(value_type),
                ArithmeticSign::Multiply | ArithmeticSign::Divide => {
                    corners(one, other, apply, nan, value_type)
                }
            }
        }
        BinaryOperation::Arithmetic(sign) => {
            let apply = |one: ScalarValue, other: ScalarValue| {
                let (one, other) = (one.integer()?, other.integer()?);
                let result = match sign {
                    ArithmeticSign::Add => one.checked_add(other),
                    ArithmeticSign::Subtract => one.checked_sub(other),
                    ArithmeticSign::Multiply => one.checked_mul(other),
                    ArithmeticSign::Divide => None,
                };
                ScalarValue::of_integer(result?, value_type)
            };
            corners(one, other, apply, nan, value_type)
        }
    }
}

/// The bounds of an operation that is monotone in each operand: the least and greatest result of
/// bounds.
fn corners(
    one: (ScalarValue, ScalarValue),
    other: (ScalarValue, ScalarValue),
    apply: impl Fn(ScalarValue, ScalarValue) -> Option<ScalarValue>,
    nan: bool,
    value_type: ValueType,
) -> Bounds {
    let results = [(one.0, other.0), (one.0, other.1), (one.1, other.0), (one.1, other.1)]
        .map(|(one, other)| apply(one, other).filter(|result| !result.is_nan()));
    let extreme = |operation| {
        results.into_iter().reduce(|best, next| best?.binary(operation, next?)).flatten()
    };
    let (least, greatest) = (extreme(BinaryOperation::Minimum), extreme(BinaryOperation::Maximum));
    Bounds::new(least, greatest, nan, value_type)
}

/// Returns true if an operation of numbers may give NaN.
fn may_be_nan(sign: ArithmeticSign, left: &Bounds, right: &Bounds, value_type: ValueType) -> bool {
    let number = |value: f64| ScalarValue::Float64(value).cast(value_type);
    let (most, least, zero) = (number(f64::INFINITY), number(f64::NEG_INFINITY), number(0.0));
    let is_infinite = |bounds: &Bounds| bounds.contains(most) || bounds.contains(least);
    match sign {
        ArithmeticSign::Add => {
            left.contains(most) && right.contains(least)
                || left.contains(least) && right.contains(most)
        }
        ArithmeticSign::Subtract => {
            left.contains(most) && right.contains(most)
                || left.contains(least) && right.contains(least)
        }
        ArithmeticSign::Multiply => {
            left.contains(zero) && is_infinite(right) || is_infinite(left) && right.contains(zero)
        }
        ArithmeticSign::Divide => {
            left.contains(zero) && right.contains(zero) || is_infinite(left) && is_infinite(right)
        }
    }
}
