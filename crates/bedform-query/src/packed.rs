//! Comparisons of one array with a constant, as sets of its stored values.
//!
//! Decoding is monotone in exact steps of floats, and so are promotion and most arithmetic with a
//! constant. Bisection through them finds the least stored value for which a comparison holds, so
//! the data are compared as they are stored and never decoded.

use crate::decode::ValueDecoding;
use crate::elementwise::Property;
use crate::keys::{first_key, key_range, value};
use crate::numeric::{BinaryOperation, UnaryOperation};
use crate::operand::Operand;
use crate::stored_set::StoredSet;
use crate::syntax::{ArithmeticSign, ComparisonSign};
use crate::tree::{Node, Operation};
use crate::values::ScalarValue;

/// Makes a comparison, as a set of stored values if that is possible.
pub(crate) fn comparison(
    comparison: ComparisonSign,
    left: Node,
    right: Node,
    operands: &[Operand],
) -> Node {
    let found = match (left.constant(), right.constant()) {
        (None, Some(constant)) => compared(comparison, &left, constant, operands),
        (Some(constant), None) => compared(comparison.flipped(), &right, constant, operands),
        _ => None,
    };
    match found {
        Some((column, set)) => Node::in_set(column, set),
        None => left.compare(comparison, right),
    }
}

/// Makes a test, as a set of stored values if that is possible.
pub(crate) fn property(property: Property, node: Node, operands: &[Operand]) -> Node {
    let found = match (&node.operation, property) {
        (Operation::Column(column), Property::Nan) => {
            let decoding = &operands[*column].decoding;
            let is_known = decoding.is_increasing().is_some() && node.value_type.is_float();
            is_known.then(|| (*column, nan_set(decoding)))
        }
        (Operation::Column(_), Property::Finite) if node.value_type.is_float() => {
            let infinity = ScalarValue::Float64(f64::INFINITY).cast(node.value_type);
            let below = compared(ComparisonSign::Less, &node, infinity, operands);
            let above = infinity
                .unary(UnaryOperation::Negate)
                .and_then(|least| compared(ComparisonSign::Greater, &node, least, operands));
            below
                .zip(above)
                .map(|((column, below), (_, above))| (column, below.intersection(&above)))
        }
        _ => None,
    };
    match found {
        Some((column, set)) => Node::in_set(column, set),
        None => node.test(property),
    }
}

/// The stored values for which `node` compares so with a constant of its type.
fn compared(
    comparison: ComparisonSign,
    node: &Node,
    constant: ScalarValue,
    operands: &[Operand],
) -> Option<(usize, StoredSet)> {
    if constant.is_nan() || constant.value_type() != node.value_type {
        return None;
    }
    let (column, is_increasing) = monotone(node, operands)?;
    let decoding = &operands[column].decoding;
    let (least, greatest) = key_range(decoding.viewed());
    let order = |key| {
        let element = decoding.value_of_viewed(value(decoding.viewed(), key));
        let order = chain_value(node, element).and_then(|value| value.order(constant));
        if is_increasing { order } else { order.map(std::cmp::Ordering::reverse) }
    };
    // The keys before the equal ones, the equal ones, those behind.
    let reached = first_key((least, greatest), |key| order(key).is_some_and(|order| order.is_ge()));
    let passed = first_key((least, greatest), |key| order(key).is_some_and(|order| order.is_gt()));
    let span = |start: Option<u64>, end: Option<u64>| {
        let last = match end {
            None => Some(greatest),
            Some(end) => end.checked_sub(1),
        };
        start.zip(last).filter(|(start, last)| start <= last)
    };
    let (before, equal, behind) =
        (span(Some(least), reached), span(reached, passed), span(passed, None));
    let (less, greater) = if is_increasing { (before, behind) } else { (behind, before) };
    let spans = match comparison {
        ComparisonSign::Less => [less, None],
        ComparisonSign::LessEqual => [less, equal],
        ComparisonSign::Greater => [greater, None],
        ComparisonSign::GreaterEqual => [greater, equal],
        ComparisonSign::Equal => [equal, None],
        ComparisonSign::NotEqual => [less, greater],
    };
    let set = decoding.stored_set(spans.into_iter().flatten().collect(), false);
    let nan = nan_set(decoding);
    let is_unequal = comparison == ComparisonSign::NotEqual;
    let set = if is_unequal { set.union(&nan) } else { set.intersection(&nan.complement()) };
    Some((column, set))
}

/// The stored values that decode to NaN, by a decoding that is monotone.
fn nan_set(decoding: &ValueDecoding) -> StoredSet {
    let masked = decoding.missing().filter(|_| decoding.has_masks());
    let spans = masked.map_or_else(Vec::new, |masked| masked.spans().to_vec());
    StoredSet::new(decoding.stored(), spans, decoding.stored().is_float())
}

/// The operand of a node that is a monotone function of one operand without NaN of its own, and
/// whether it increases.
fn monotone(node: &Node, operands: &[Operand]) -> Option<(usize, bool)> {
    match &node.operation {
        Operation::Column(column) => Some((*column, operands[*column].decoding.is_increasing()?)),
        Operation::Cast(inner) => monotone(inner, operands),
        Operation::Unary(UnaryOperation::Negate, inner) if node.value_type.is_float() => {
            monotone(inner, operands).map(|(column, increasing)| (column, !increasing))
        }
        Operation::Binary(operation, left, right) => {
            let (inner, constant, is_left) = match (left.constant(), right.constant()) {
                (None, Some(constant)) => (left, constant, true),
                (Some(constant), None) => (right, constant, false),
                _ => return None,
            };
            let keeps = keeps_order(*operation, constant, is_left)?;
            monotone(inner, operands).map(|(column, increasing)| (column, increasing == keeps))
        }
        _ => None,
    }
}

/// Returns true if an operation with a constant keeps the order, false if it reverses it; `None` if
/// it does neither, or may give NaN.
fn keeps_order(operation: BinaryOperation, constant: ScalarValue, is_left: bool) -> Option<bool> {
    let BinaryOperation::Arithmetic(sign) = operation else {
        return (!constant.is_nan()).then_some(true);
    };
    // Integers wrap.
    if !constant.value_type().is_float() || !constant.is_finite() {
        return None;
    }
    let zero = ScalarValue::Bool(false).cast(constant.value_type());
    match sign {
        ArithmeticSign::Add => Some(true),
        ArithmeticSign::Subtract => Some(is_left),
        ArithmeticSign::Divide if !is_left => None,
        ArithmeticSign::Multiply | ArithmeticSign::Divide => match constant.order(zero)? {
            std::cmp::Ordering::Less => Some(false),
            std::cmp::Ordering::Equal => None,
            std::cmp::Ordering::Greater => Some(true),
        },
    }
}

/// The value of a monotone node for one value of its operand.
fn chain_value(node: &Node, operand: ScalarValue) -> Option<ScalarValue> {
    match &node.operation {
        Operation::Column(_) => Some(operand),
        Operation::Constant(_) => node.constant(),
        Operation::Cast(inner) => Some(chain_value(inner, operand)?.cast(node.value_type)),
        Operation::Unary(operation, inner) => chain_value(inner, operand)?.unary(*operation),
        Operation::Binary(operation, left, right) => {
            chain_value(left, operand)?.binary(*operation, chain_value(right, operand)?)
        }
        _ => None,
    }
}
