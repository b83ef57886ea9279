//! Syntax trees into typed trees, by NumPy's rules (NEP 50).
//!
//! A number of the text has no type of its own. Arithmetic between numbers is Python's; beside an
//! array a number takes the array's type, or the default type of its own kind if that kind is the
//! greater one: float64 for a float beside integers. Functions give their numbers a type.

use crate::elementwise::Property;
use crate::error::ExpressionError;
use crate::evaluate::Predicate;
use crate::numeric::{BinaryOperation, UnaryOperation, holds};
use crate::operand::Operand;
use crate::packed;
use crate::syntax::{
    ArithmeticSign, ComparisonSign, Function, Literal, LogicSign, Syntax, SyntaxKind, Written,
};
use crate::tree::{Joint, Node};
use crate::types::{float_of, promoted};
use crate::values::{ScalarValue, ValueType};

/// The most nodes of a typed tree: chained comparisons repeat their middle operands.
const NODES_MAX: usize = 100_000;
/// The longest part of an expression in a message, in characters.
const SHOWN_MAX: usize = 40;

/// Makes the typed tree of a syntax tree.
pub(crate) fn predicate(
    syntax: &Syntax,
    operands: &[Operand],
) -> Result<Predicate, ExpressionError> {
    let names = operands.iter().map(|operand| operand.name.clone()).collect();
    let binder = Binder { operands, names };
    let root = match binder.bind(syntax)? {
        BoundPart::Literal(Literal::Bool(value)) => Node::truth(value),
        BoundPart::Node(node) if node.value_type == ValueType::Bool => node,
        other => {
            return Err(ExpressionError::of_whole(format!(
                "the expression gives {} for each element, not a condition: compare with something",
                other.kind()
            )));
        }
    };
    Ok(Predicate::new(operands, root))
}

/// A part of an expression with its type, as far as it has one.
enum BoundPart {
    /// A Python number.
    Literal(Literal),
    Node(Node),
}

impl BoundPart {
    fn kind(&self) -> String {
        match self {
            Self::Literal(Literal::Bool(_)) => "a truth value".into(),
            Self::Literal(_) => "a number".into(),
            Self::Node(node) => format!("{} values", node.value_type),
        }
    }
}

struct Binder<'a> {
    operands: &'a [Operand],
    names: Vec<String>,
}

impl Binder<'_> {
    fn bind(&self, syntax: &Syntax) -> Result<BoundPart, ExpressionError> {
        let column = syntax.column;
        let bound = match &syntax.kind {
            SyntaxKind::Name(index) => {
                BoundPart::Node(Node::column(*index, self.operands[*index].decoding.decoded()))
            }
            SyntaxKind::Number(literal) => BoundPart::Literal(*literal),
            SyntaxKind::Negate(operand) => negate(self.bind(operand)?, column)?,
            SyntaxKind::Not { is_word, operand } => {
                let sign = if *is_word { "not" } else { "~" };
                BoundPart::Node(self.condition(operand, sign, column)?.negated())
            }
            SyntaxKind::Arithmetic(sign, left, right) => {
                arithmetic(*sign, self.bind(left)?, self.bind(right)?, column)?
            }
            SyntaxKind::Compare(first, rest) => self.comparisons(first, rest, column)?,
            SyntaxKind::Logic(sign, operands) => {
                let conditions: Result<Vec<Node>, _> = operands
                    .iter()
                    .map(|operand| self.condition(operand, sign.text(), column))
                    .collect();
                let joint = match sign {
                    LogicSign::And | LogicSign::BitAnd => Joint::And,
                    LogicSign::Or | LogicSign::BitOr => Joint::Or,
                    LogicSign::BitXor => Joint::Xor,
                };
                BoundPart::Node(Node::logic(joint, conditions?))
            }
            SyntaxKind::Call(function, arguments) => {
                let arguments: Result<Vec<BoundPart>, _> =
                    arguments.iter().map(|argument| self.bind(argument)).collect();
                self.call(*function, arguments?, column)?
            }
        };
        match &bound {
            BoundPart::Node(node) if node.size > NODES_MAX => Err(too_large(column)),
            _ => Ok(bound),
        }
    }

    /// Binds an operand of a sign that joins conditions.
    fn condition(
        &self,
        syntax: &Syntax,
        sign: &str,
        column: usize,
    ) -> Result<Node, ExpressionError> {
        let bound = self.bind(syntax)?;
        match bound {
            BoundPart::Literal(Literal::Bool(value)) => return Ok(Node::truth(value)),
            BoundPart::Node(node) if node.value_type == ValueType::Bool => return Ok(node),
            _ => (),
        }
        let mut shown = Written(syntax, &self.names).to_string();
        if shown.chars().count() > SHOWN_MAX {
            shown = shown.chars().take(SHOWN_MAX).collect::<String>() + "...";
        }
        let advice = match sign {
            "&" | "|" | "^" => {
                "it binds more tightly than comparisons: put them in brackets, (a > 1) & (b < 2), \
                 or write `and`, `or`"
            }
            "~" => "it binds more tightly than comparisons: write ~(a > 1), or `not`",
            _ => "compare it with something",
        };
        Err(ExpressionError::at(
            column,
            format!("`{sign}` takes conditions, but `{shown}` gives {}; {advice}", bound.kind()),
        ))
    }

    /// A chain of comparisons holds if each of them does.
    fn comparisons(
        &self,
        first: &Syntax,
        rest: &[(ComparisonSign, Syntax)],
        column: usize,
    ) -> Result<BoundPart, ExpressionError> {
        let mut left = self.bind(first)?;
        let mut conditions = Vec::with_capacity(rest.len());
        let mut size = 0;
        for (index, (comparison, syntax)) in rest.iter().enumerate() {
            let right = self.bind(syntax)?;
            let next = if index + 1 < rest.len() { right.repeated() } else { None };
            let condition = self.compare(*comparison, left, right, column)?;
            size += condition.size;
            if size > NODES_MAX {
                return Err(too_large(column));
            }
            conditions.push(condition);
            left = next.unwrap_or(BoundPart::Literal(Literal::Bool(false)));
        }
        let node = if conditions.len() == 1 {
            conditions.remove(0)
        } else {
            Node::logic(Joint::And, conditions)
        };
        Ok(BoundPart::Node(node))
    }

    fn compare(
        &self,
        comparison: ComparisonSign,
        left: BoundPart,
        right: BoundPart,
        column: usize,
    ) -> Result<Node, ExpressionError> {
        let (left, right) = match (left, right) {
            (BoundPart::Literal(one), BoundPart::Literal(other)) => {
                return Ok(Node::truth(holds(comparison, python_order(one, other))));
            }
            (BoundPart::Node(node), BoundPart::Literal(literal)) => {
                match beyond_integers(comparison, &node, literal) {
                    Some(answer) => return Ok(Node::truth(answer)),
                    None => beside(node, literal, column)?,
                }
            }
            (BoundPart::Literal(literal), BoundPart::Node(node)) => {
                match beyond_integers(comparison.flipped(), &node, literal) {
                    Some(answer) => return Ok(Node::truth(answer)),
                    None => {
                        let (node, constant) = beside(node, literal, column)?;
                        (constant, node)
                    }
                }
            }
            (BoundPart::Node(left), BoundPart::Node(right)) => with_comparable_types(left, right),
        };
        Ok(packed::comparison(comparison, left, right, self.operands))
    }

    fn call(
        &self,
        function: Function,
        arguments: Vec<BoundPart>,
        column: usize,
    ) -> Result<BoundPart, ExpressionError> {
        let mut arguments = arguments.into_iter();
        let (Some(first), second) = (arguments.next(), arguments.next()) else {
            return Err(ExpressionError::at(column, "an argument is missing"));
        };
        let node = match (function, second) {
            (Function::Abs, _) => return absolute(first, column),
            (Function::Sqrt, _) => {
                let node = with_type(first, column)?;
                let float = float_of(node.value_type);
                node.cast(float).unary(UnaryOperation::SquareRoot)
            }
            (Function::IsNan, _) => {
                packed::property(Property::Nan, with_type(first, column)?, self.operands)
            }
            (Function::IsFinite, _) => {
                packed::property(Property::Finite, with_type(first, column)?, self.operands)
            }
            (_, None) => return Err(ExpressionError::at(column, "an argument is missing")),
            (Function::Minimum, Some(second)) => extreme(true, first, second, column)?,
            (Function::Maximum, Some(second)) => extreme(false, first, second, column)?,
        };
        Ok(BoundPart::Node(node))
    }
}

impl BoundPart {
    /// The same once more, for the next comparison of a chain; `None` if it is too large.
    fn repeated(&self) -> Option<Self> {
        match self {
            Self::Literal(literal) => Some(Self::Literal(*literal)),
            Self::Node(node) if node.size <= NODES_MAX => Some(Self::Node(node.clone())),
            Self::Node(_) => None,
        }
    }
}

fn too_large(column: usize) -> ExpressionError {
    ExpressionError::at(column, format!("the expression has more than {NODES_MAX} operations"))
}

fn negate(bound: BoundPart, column: usize) -> Result<BoundPart, ExpressionError> {
    Ok(match bound {
        BoundPart::Literal(Literal::Real(value)) => BoundPart::Literal(Literal::Real(-value)),
        BoundPart::Literal(Literal::Huge(value)) => BoundPart::Literal(Literal::Huge(-value)),
        BoundPart::Literal(literal) => {
            let value = literal.integer().and_then(i128::checked_neg);
            BoundPart::Literal(Literal::Integer(value.ok_or_else(|| too_long(column))?))
        }
        BoundPart::Node(node) if node.value_type == ValueType::Bool => {
            return Err(ExpressionError::at(
                column,
                "`-` takes numbers; write `not` for conditions",
            ));
        }
        BoundPart::Node(node) => BoundPart::Node(node.unary(UnaryOperation::Negate)),
    })
}

fn absolute(bound: BoundPart, column: usize) -> Result<BoundPart, ExpressionError> {
    Ok(match bound {
        BoundPart::Literal(Literal::Real(value)) => BoundPart::Literal(Literal::Real(value.abs())),
        BoundPart::Literal(Literal::Huge(value)) => BoundPart::Literal(Literal::Huge(value.abs())),
        BoundPart::Literal(literal) => {
            let value = literal.integer().and_then(i128::checked_abs);
            BoundPart::Literal(Literal::Integer(value.ok_or_else(|| too_long(column))?))
        }
        BoundPart::Node(node) if node.value_type == ValueType::Bool => BoundPart::Node(node),
        BoundPart::Node(node) => BoundPart::Node(node.unary(UnaryOperation::Absolute)),
    })
}

fn arithmetic(
    sign: ArithmeticSign,
    left: BoundPart,
    right: BoundPart,
    column: usize,
) -> Result<BoundPart, ExpressionError> {
    let (left, right) = match (left, right) {
        (BoundPart::Literal(one), BoundPart::Literal(other)) => {
            return python_arithmetic(sign, one, other, column).map(BoundPart::Literal);
        }
        operands => operands,
    };
    let (left, right) = match sign {
        // Integers are divided as floats, also by numbers that their type cannot hold.
        ArithmeticSign::Divide => {
            with_common_type(left.into_dividend(), right.into_dividend(), column)?
        }
        _ => with_common_type(left, right, column)?,
    };
    let node = match (sign, left.value_type) {
        (ArithmeticSign::Divide, value_type) if !value_type.is_float() => {
            let (left, right) = (left.cast(ValueType::Float64), right.cast(ValueType::Float64));
            left.binary(BinaryOperation::Arithmetic(sign), right)
        }
        (ArithmeticSign::Add, ValueType::Bool) => Node::logic(Joint::Or, vec![left, right]),
        (ArithmeticSign::Multiply, ValueType::Bool) => Node::logic(Joint::And, vec![left, right]),
        (_, ValueType::Bool) => {
            return Err(ExpressionError::at(
                column,
                "conditions cannot be subtracted; `!=` says where they differ",
            ));
        }
        _ => left.binary(BinaryOperation::Arithmetic(sign), right),
    };
    Ok(BoundPart::Node(node))
}

/// The lesser or greater one of two values.
fn extreme(
    is_least: bool,
    first: BoundPart,
    second: BoundPart,
    column: usize,
) -> Result<Node, ExpressionError> {
    let (first, second) = with_common_type(first, second, column)?;
    Ok(match (first.value_type, is_least) {
        (ValueType::Bool, true) => Node::logic(Joint::And, vec![first, second]),
        (ValueType::Bool, false) => Node::logic(Joint::Or, vec![first, second]),
        (_, true) => first.binary(BinaryOperation::Minimum, second),
        (_, false) => first.binary(BinaryOperation::Maximum, second),
    })
}

impl BoundPart {
    /// An integer as the float that division makes of it, beside integers; floats beside floats are
    /// the same either way.
    fn into_dividend(self) -> Self {
        match self {
            Self::Literal(Literal::Integer(value)) => Self::Literal(Literal::Real(value as f64)),
            other => other,
        }
    }
}

/// Gives two operands the type of their arithmetic.
fn with_common_type(
    left: BoundPart,
    right: BoundPart,
    column: usize,
) -> Result<(Node, Node), ExpressionError> {
    let (left, right) = match (left, right) {
        (BoundPart::Node(node), BoundPart::Literal(literal)) => {
            return beside(node, literal, column);
        }
        (BoundPart::Literal(literal), BoundPart::Node(node)) => {
            let (node, constant) = beside(node, literal, column)?;
            return Ok((constant, node));
        }
        (left, right) => (with_type(left, column)?, with_type(right, column)?),
    };
    let common = promoted(left.value_type, right.value_type);
    Ok((left.cast(common), right.cast(common)))
}

/// Gives two nodes a type in which they compare as numbers: integers exactly.
fn with_comparable_types(left: Node, right: Node) -> (Node, Node) {
    let is_mixed = |one: &Node, other: &Node| {
        one.value_type == ValueType::UInt64 && other.value_type.is_signed()
    };
    if is_mixed(&left, &right) {
        return (left, right.cast(ValueType::Int64));
    }
    if is_mixed(&right, &left) {
        return (left.cast(ValueType::Int64), right);
    }
    let common = promoted(left.value_type, right.value_type);
    (left.cast(common), right.cast(common))
}

/// Gives an array and a number the type of their arithmetic.
fn beside(node: Node, literal: Literal, column: usize) -> Result<(Node, Node), ExpressionError> {
    let kind = node.value_type;
    let common = match literal {
        Literal::Bool(_) => kind,
        _ if kind.is_float() => kind,
        Literal::Real(_) => ValueType::Float64,
        Literal::Integer(_) | Literal::Huge(_) if kind == ValueType::Bool => ValueType::Int64,
        Literal::Integer(_) | Literal::Huge(_) => kind,
    };
    let value = match literal {
        Literal::Bool(value) => Some(ScalarValue::Bool(value).cast(common)),
        Literal::Real(value) => Some(ScalarValue::Float64(value).cast(common)),
        Literal::Huge(value) if common.is_float() && value.is_finite() => {
            Some(ScalarValue::Float64(value).cast(common))
        }
        Literal::Huge(_) => None,
        Literal::Integer(value) => ScalarValue::of_python(value, common),
    };
    let value = value.ok_or_else(|| {
        ExpressionError::at(
            column,
            format!("a number does not fit into {common}: write it as a float"),
        )
    })?;
    Ok((node.cast(common), Node::scalar(value)))
}

/// The answer for all elements, where integers are compared with one that their type cannot hold.
fn beyond_integers(comparison: ComparisonSign, node: &Node, literal: Literal) -> Option<bool> {
    if node.value_type.is_float() {
        return None;
    }
    let held = if node.value_type == ValueType::Bool { ValueType::Int64 } else { node.value_type };
    let is_above = match literal {
        Literal::Integer(value) if ScalarValue::of_integer(value, held).is_none() => value > 0,
        Literal::Huge(value) => value > 0.0,
        _ => return None,
    };
    let order = if is_above { std::cmp::Ordering::Less } else { std::cmp::Ordering::Greater };
    Some(holds(comparison, Some(order)))
}

/// Gives a number the type that NumPy's functions give it.
fn with_type(bound: BoundPart, column: usize) -> Result<Node, ExpressionError> {
    let literal = match bound {
        BoundPart::Node(node) => return Ok(node),
        BoundPart::Literal(literal) => literal,
    };
    let value = match literal {
        Literal::Bool(value) => Some(ScalarValue::Bool(value)),
        Literal::Real(value) => Some(ScalarValue::Float64(value)),
        Literal::Integer(value) => ScalarValue::of_integer(value, ValueType::Int64)
            .or_else(|| ScalarValue::of_integer(value, ValueType::UInt64)),
        Literal::Huge(_) => None,
    };
    value.map(Node::scalar).ok_or_else(|| too_long(column))
}

fn too_long(column: usize) -> ExpressionError {
    ExpressionError::at(column, "an integer is too large to compute with: write it as a float")
}

impl Literal {
    /// The value of an integer or boolean.
    fn integer(self) -> Option<i128> {
        match self {
            Self::Bool(value) => Some(i128::from(value)),
            Self::Integer(value) => Some(value),
            Self::Huge(_) | Self::Real(_) => None,
        }
    }

    fn float(self) -> f64 {
        match self {
            Self::Bool(value) => f64::from(u8::from(value)),
            Self::Integer(value) => value as f64,
            Self::Huge(value) | Self::Real(value) => value,
        }
    }
}

/// Arithmetic of Python numbers.
fn python_arithmetic(
    sign: ArithmeticSign,
    one: Literal,
    other: Literal,
    column: usize,
) -> Result<Literal, ExpressionError> {
    if matches!(one, Literal::Huge(_)) || matches!(other, Literal::Huge(_)) {
        return Err(too_long(column));
    }
    if sign == ArithmeticSign::Divide {
        return python_quotient(one, other, column);
    }
    if let Some((one, other)) = one.integer().zip(other.integer()) {
        let result = match sign {
            ArithmeticSign::Add => one.checked_add(other),
            ArithmeticSign::Subtract => one.checked_sub(other),
            _ => one.checked_mul(other),
        };
        return result.map(Literal::Integer).ok_or_else(|| too_long(column));
    }
    let (one, other) = (one.float(), other.float());
    Ok(Literal::Real(match sign {
        ArithmeticSign::Add => one + other,
        ArithmeticSign::Subtract => one - other,
        _ => one * other,
    }))
}

fn python_quotient(
    one: Literal,
    other: Literal,
    column: usize,
) -> Result<Literal, ExpressionError> {
    // Python rounds the exact quotient of two integers; that of floats is the same if both are
    // exact.
    if let Some(integers) = one.integer().zip(other.integer())
        && integers.0.abs().max(integers.1.abs()) > 1 << 53
    {
        return Err(too_long(column));
    }
    if other.float() == 0.0 {
        return Err(ExpressionError::at(column, "a number is divided by zero"));
    }
    Ok(Literal::Real(one.float() / other.float()))
}

/// Python compares integers with floats exactly.
fn python_order(one: Literal, other: Literal) -> Option<std::cmp::Ordering> {
    match (one.integer(), other.integer()) {
        (Some(one), Some(other)) => Some(one.cmp(&other)),
        (Some(one), None) => order_with_float(one, other.float()),
        (None, Some(other)) => {
            order_with_float(other, one.float()).map(std::cmp::Ordering::reverse)
        }
        (None, None) => one.float().partial_cmp(&other.float()),
    }
}

fn order_with_float(integer: i128, float: f64) -> Option<std::cmp::Ordering> {
    // Beyond the integers of 128 bits the float alone decides; within, its whole part is exact.
    if float.is_nan() || float.abs() >= 2_f64.powi(127) {
        return 0.0.partial_cmp(&float);
    }
    let whole = float.trunc();
    let order = integer.cmp(&(whole as i128));
    Some(order.then(whole.partial_cmp(&float)?))
}
