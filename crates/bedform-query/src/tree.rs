//! Typed trees: each node has the type of its values, and takes operands of the right types.
//!
//! The functions that make nodes fold constants, and join conditions on one array.

use crate::elementwise::Property;
use crate::numeric::{BinaryOperation, UnaryOperation, holds};
use crate::stored_set::StoredSet;
use crate::syntax::ComparisonSign;
use crate::values::{ScalarValue, ValueType, Values};

/// A node of a typed tree.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) operation: Operation,
    pub(crate) value_type: ValueType,
    /// The nodes of the tree below, this one included.
    pub(crate) size: usize,
}

/// The operations of nodes.
#[derive(Debug, Clone)]
pub(crate) enum Operation {
    /// The values of an operand.
    Column(usize),
    /// One value, which stands for all elements.
    Constant(Values),
    /// Values converted to the node's type.
    Cast(Box<Node>),
    Unary(UnaryOperation, Box<Node>),
    /// An operation of two nodes of the node's type.
    Binary(BinaryOperation, Box<Node>, Box<Node>),
    Test(Property, Box<Node>),
    /// A comparison of two nodes of one type, or of int64 with uint64.
    Compare(ComparisonSign, Box<Node>, Box<Node>),
    /// The stored elements of an operand are in a set.
    InSet(usize, StoredSet),
    Logic(Joint, Vec<Node>),
    Not(Box<Node>),
}

/// The operators that join conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joint {
    And,
    Or,
    Xor,
}

impl Node {
    fn new(operation: Operation, value_type: ValueType) -> Self {
        let below = match &operation {
            Operation::Column(_) | Operation::Constant(_) | Operation::InSet(..) => 0,
            Operation::Cast(one)
            | Operation::Unary(_, one)
            | Operation::Test(_, one)
            | Operation::Not(one) => one.size,
            Operation::Binary(_, one, other) | Operation::Compare(_, one, other) => {
                one.size + other.size
            }
            Operation::Logic(_, nodes) => nodes.iter().map(|node| node.size).sum(),
        };
        Self { operation, value_type, size: below + 1 }
    }

    pub(crate) fn column(index: usize, value_type: ValueType) -> Self {
        Self::new(Operation::Column(index), value_type)
    }

    pub(crate) fn scalar(value: ScalarValue) -> Self {
        Self::new(Operation::Constant(Values::one(value)), value.value_type())
    }

    pub(crate) fn truth(value: bool) -> Self {
        Self::scalar(ScalarValue::Bool(value))
    }

    /// The value of a constant.
    pub(crate) fn constant(&self) -> Option<ScalarValue> {
        if let Operation::Constant(value) = &self.operation {
            value.as_slice().get(0)
        } else {
            None
        }
    }

    pub(crate) fn cast(self, to: ValueType) -> Self {
        if self.value_type == to {
            return self;
        }
        match self.constant() {
            Some(value) => Self::scalar(value.cast(to)),
            None => Self::new(Operation::Cast(Box::new(self)), to),
        }
    }

    pub(crate) fn unary(self, operation: UnaryOperation) -> Self {
        if let Some(value) = self.constant().and_then(|value| value.unary(operation)) {
            return Self::scalar(value);
        }
        let value_type = self.value_type;
        Self::new(Operation::Unary(operation, Box::new(self)), value_type)
    }

    pub(crate) fn binary(self, operation: BinaryOperation, other: Self) -> Self {
        let constants = self.constant().zip(other.constant());
        if let Some(value) = constants.and_then(|(one, other)| one.binary(operation, other)) {
            return Self::scalar(value);
        }
        let value_type = self.value_type;
        Self::new(Operation::Binary(operation, Box::new(self), Box::new(other)), value_type)
    }

    pub(crate) fn test(self, property: Property) -> Self {
        if !self.value_type.is_float() {
            return Self::truth(property == Property::Finite);
        }
        match (self.constant(), property) {
            (Some(value), Property::Nan) => Self::truth(value.is_nan()),
            (Some(value), Property::Finite) => Self::truth(value.is_finite()),
            (None, _) => Self::new(Operation::Test(property, Box::new(self)), ValueType::Bool),
        }
    }

    pub(crate) fn compare(self, comparison: ComparisonSign, other: Self) -> Self {
        if let Some((one, other)) = self.constant().zip(other.constant()) {
            return Self::truth(holds(comparison, one.order(other)));
        }
        let operation = Operation::Compare(comparison, Box::new(self), Box::new(other));
        Self::new(operation, ValueType::Bool)
    }

    pub(crate) fn in_set(column: usize, set: StoredSet) -> Self {
        if set.is_empty() {
            return Self::truth(false);
        }
        if set.complement().is_empty() {
            return Self::truth(true);
        }
        Self::new(Operation::InSet(column, set), ValueType::Bool)
    }

    pub(crate) fn negated(self) -> Self {
        match self.operation {
            Operation::InSet(column, set) => Self::in_set(column, set.complement()),
            Operation::Not(inner) => *inner,
            _ => match self.constant() {
                Some(value) => Self::truth(value == ScalarValue::Bool(false)),
                None => Self::new(Operation::Not(Box::new(self)), ValueType::Bool),
            },
        }
    }

    /// Joins conditions.
    pub(crate) fn logic(joint: Joint, nodes: Vec<Self>) -> Self {
        if joint == Joint::Xor {
            return Self::new(Operation::Logic(joint, nodes), ValueType::Bool);
        }
        let mut flat: Vec<Self> = Vec::with_capacity(nodes.len());
        for node in nodes {
            match node.operation {
                Operation::Logic(inner, nodes) if inner == joint => {
                    nodes.into_iter().for_each(|node| join(joint, &mut flat, node));
                }
                _ => join(joint, &mut flat, node),
            }
        }
        // The value that decides all, and the one that changes nothing.
        let decides = ScalarValue::Bool(joint == Joint::Or);
        if flat.iter().any(|node| node.constant() == Some(decides)) {
            return Self::scalar(decides);
        }
        flat.retain(|node| node.constant().is_none());
        match flat.len() {
            0 => Self::truth(joint == Joint::And),
            1 => flat.remove(0),
            _ => Self::new(Operation::Logic(joint, flat), ValueType::Bool),
        }
    }

    /// Visits the operands that the node depends on.
    pub(crate) fn visit_columns(&self, visit: &mut impl FnMut(usize)) {
        match &self.operation {
            Operation::Column(column) | Operation::InSet(column, _) => visit(*column),
            Operation::Constant(_) => (),
            Operation::Cast(one)
            | Operation::Unary(_, one)
            | Operation::Test(_, one)
            | Operation::Not(one) => one.visit_columns(visit),
            Operation::Binary(_, one, other) | Operation::Compare(_, one, other) => {
                one.visit_columns(visit);
                other.visit_columns(visit);
            }
            Operation::Logic(_, nodes) => nodes.iter().for_each(|node| node.visit_columns(visit)),
        }
    }
}

/// The most intervals of a set that joins conditions: more are slower than the conditions.
const JOINED_SPANS_MAX: usize = 4;

/// Adds a condition to those that are joined: into the last one on the same array, if there is one
/// and the set stays small.
fn join(joint: Joint, nodes: &mut Vec<Node>, node: Node) {
    let set_of = |node: &Node| match &node.operation {
        Operation::InSet(column, set) => Some((*column, set.clone())),
        _ => None,
    };
    if let Some((column, set)) = set_of(&node) {
        let is_same =
            |other: &&mut Node| matches!(other.operation, Operation::InSet(at, _) if at == column);
        if let Some(other) = nodes.iter_mut().rev().find(is_same) {
            let joined = set_of(other).map(|(_, other)| match joint {
                Joint::And => other.intersection(&set),
                _ => other.union(&set),
            });
            if let Some(joined) = joined.filter(|joined| joined.tests() <= JOINED_SPANS_MAX) {
                *other = Node::in_set(column, joined);
                return;
            }
        }
    }
    nodes.push(node);
}
