//! Predicates over runs of elements.
//!
//! A run is evaluated in tiles of 4,096 elements, node by node, so that each operation finds the
//! results of the one before in the core's cache. Each operation is one loop over a tile.

use std::sync::Arc;

use crate::elementwise::{binary_in_place, broadcast, cast_into, compare, test, unary_in_place};
use crate::numeric::{Numeric, with_number};
use crate::operand::Operand;
use crate::tree::{Joint, Node, Operation};
use crate::values::{Run, ValueSlice, ValueType, Values};

/// The elements of a tile.
const TILE: usize = 4096;

/// A condition over arrays, with types.
#[derive(Debug, Clone)]
pub struct Predicate {
    operands: Arc<[Operand]>,
    root: Node,
}

/// Buffers of an evaluation, kept between calls.
#[derive(Debug, Default)]
pub struct PredicateScratch {
    free: Vec<Values>,
}

impl PredicateScratch {
    /// Returns an empty run of a type.
    fn take(&mut self, value_type: ValueType) -> Values {
        let found = self.free.iter().position(|values| values.value_type() == value_type);
        found.map_or_else(|| Values::new(value_type), |index| self.free.swap_remove(index))
    }

    fn take_bytes(&mut self, length: usize) -> Vec<u8> {
        let mut values = self.take(ValueType::Bool);
        let mut bytes = std::mem::take(values.booleans());
        bytes.resize(length, 0);
        bytes
    }

    fn give(&mut self, run: Run<'_>) {
        if let Run::Owned(values) = run {
            self.free.push(values);
        }
    }
}

impl Predicate {
    pub(crate) fn new(operands: &[Operand], root: Node) -> Self {
        Self { operands: operands.into(), root }
    }

    pub(crate) fn root(&self) -> &Node {
        &self.root
    }

    /// Returns the operands, in the order in which they were bound.
    pub fn operands(&self) -> &[Operand] {
        &self.operands
    }

    /// Evaluates the condition for `out.len()` elements; writes 0 or 1 for each.
    ///
    /// `columns[i]` has the stored elements of operand `i`, of its stored type: `out.len()` of them,
    /// or one, which stands for all. Columns of operands that [`Self::operands_used`] leaves out
    /// are not looked at, and may be empty.
    ///
    /// # Panics
    ///
    /// If a column that is used has another type or length.
    ///
    /// # Examples
    ///
    /// ```
    /// use bedform_query::{
    ///     Expression, Operand, PredicateScratch, ValueDecoding, ValueSlice, ValueType,
    /// };
    ///
    /// let decoding = ValueDecoding::raw(ValueType::Float32);
    /// let operand = Operand { name: "t2m".into(), decoding };
    /// let predicate = Expression::parse("t2m > 310")?.bind(&[operand])?;
    /// let mut found = [0; 3];
    /// let stored = ValueSlice::Float32(&[300.0, 311.0, f32::NAN]);
    /// predicate.evaluate(&[stored], &mut PredicateScratch::default(), &mut found);
    /// assert_eq!(found, [0, 1, 0]);
    /// # Ok::<(), bedform_query::ExpressionError>(())
    /// ```
    pub fn evaluate(
        &self,
        columns: &[ValueSlice<'_>],
        scratch: &mut PredicateScratch,
        out: &mut [u8],
    ) {
        for column in self.operands_used() {
            let (given, stored) = (&columns[column], self.operands[column].decoding.stored());
            assert_eq!(given.value_type(), stored, "elements of column {column}");
            assert!(
                given.len() == out.len() || given.len() == 1,
                "column {column} has {} elements, the result {}",
                given.len(),
                out.len()
            );
        }
        for (index, tile) in out.chunks_mut(TILE).enumerate() {
            let start = index * TILE;
            let span =
                TileSpan { columns, operands: &self.operands, start, end: start + tile.len() };
            span.condition(&self.root, scratch, tile);
        }
    }

    /// The conditions that `and` joins at the top, over the same list of operands. Conditions on one
    /// array may have become one.
    pub fn conjuncts(&self) -> Vec<Self> {
        let of = |root: &Node| Self { operands: self.operands.clone(), root: root.clone() };
        match &self.root.operation {
            Operation::Logic(Joint::And, nodes) => nodes.iter().map(of).collect(),
            _ => vec![self.clone()],
        }
    }

    /// The positions of the operands that the condition depends on, in ascending order. It may be
    /// fewer than the names: `x >= 0` holds for all unsigned integers.
    pub fn operands_used(&self) -> Vec<usize> {
        let mut used = vec![false; self.operands.len()];
        self.root.visit_columns(&mut |column| used[column] = true);
        (0..used.len()).filter(|column| used[*column]).collect()
    }
}

/// A tile of the columns.
struct TileSpan<'a> {
    columns: &'a [ValueSlice<'a>],
    operands: &'a [Operand],
    start: usize,
    end: usize,
}

impl<'a> TileSpan<'a> {
    /// The stored elements of an operand in the tile, or the one that stands for all.
    fn stored(&self, column: usize) -> ValueSlice<'a> {
        let elements = &self.columns[column];
        if elements.len() == 1 { *elements } else { elements.slice(self.start, self.end) }
    }

    /// Evaluates a node of booleans.
    fn condition(&self, node: &'a Node, scratch: &mut PredicateScratch, out: &mut [u8]) {
        match &node.operation {
            Operation::InSet(column, set) => set.test(&self.stored(*column), out),
            Operation::Compare(comparison, left, right) => {
                let (left, right) = (self.values(left, scratch), self.values(right, scratch));
                compare(*comparison, &left.as_slice(), &right.as_slice(), out);
                scratch.give(left);
                scratch.give(right);
            }
            Operation::Test(property, inner) => {
                let inner = self.values(inner, scratch);
                test(&inner.as_slice(), out, *property);
                scratch.give(inner);
            }
            Operation::Logic(joint, nodes) => self.joined(*joint, nodes, scratch, out),
            Operation::Not(inner) => {
                self.condition(inner, scratch, out);
                out.iter_mut().for_each(|byte| *byte ^= 1);
            }
            Operation::Column(_)
            | Operation::Constant(_)
            | Operation::Cast(_)
            | Operation::Unary(..)
            | Operation::Binary(..) => {
                let values = self.values(node, scratch);
                let mut bytes = scratch.take(ValueType::Bool);
                cast_into(&values.as_slice(), &mut bytes);
                broadcast(bytes.booleans(), out, |byte| byte);
                scratch.free.push(bytes);
                scratch.give(values);
            }
        }
    }

    fn joined(
        &self,
        joint: Joint,
        nodes: &'a [Node],
        scratch: &mut PredicateScratch,
        out: &mut [u8],
    ) {
        let Some((first, others)) = nodes.split_first() else { return out.fill(0) };
        self.condition(first, scratch, out);
        let mut bytes = scratch.take_bytes(out.len());
        for node in others {
            let is_decided = match joint {
                // Whole registers at a time, without a way out between.
                Joint::And => out.iter().fold(0, |all, byte| all | byte) == 0,
                Joint::Or => out.iter().fold(1, |all, byte| all & byte) == 1,
                Joint::Xor => false,
            };
            if is_decided {
                break;
            }
            self.condition(node, scratch, &mut bytes);
            let pairs = out.iter_mut().zip(&bytes);
            match joint {
                Joint::And => pairs.for_each(|(out, byte)| *out &= byte),
                Joint::Or => pairs.for_each(|(out, byte)| *out |= byte),
                Joint::Xor => pairs.for_each(|(out, byte)| *out ^= byte),
            }
        }
        scratch.free.push(Values::Bool(bytes));
    }

    /// The values of a node.
    fn values(&self, node: &'a Node, scratch: &mut PredicateScratch) -> Run<'a> {
        match &node.operation {
            Operation::Constant(value) => Run::Borrowed(value.as_slice()),
            Operation::Column(column) => {
                let (stored, decoding) = (self.stored(*column), &self.operands[*column].decoding);
                if decoding.is_identity() {
                    return Run::Borrowed(stored);
                }
                let mut values = scratch.take(node.value_type);
                decoding.decode(stored, &mut values);
                Run::Owned(values)
            }
            Operation::Cast(inner) => {
                let inner = self.values(inner, scratch);
                let mut values = scratch.take(node.value_type);
                cast_into(&inner.as_slice(), &mut values);
                scratch.give(inner);
                Run::Owned(values)
            }
            Operation::Unary(operation, inner) => {
                let mut values = self.owned(inner, scratch);
                unary_in_place(*operation, &mut values);
                Run::Owned(values)
            }
            Operation::Binary(operation, left, right) => {
                let mut values = self.owned(left, scratch);
                let right = self.values(right, scratch);
                spread(&mut values, right.as_slice().len());
                binary_in_place(*operation, &mut values, &right.as_slice());
                scratch.give(right);
                Run::Owned(values)
            }
            _ => {
                let mut bytes = scratch.take_bytes(self.end - self.start);
                self.condition(node, scratch, &mut bytes);
                Run::Owned(Values::Bool(bytes))
            }
        }
    }

    /// The values of a node, to be changed.
    fn owned(&self, node: &'a Node, scratch: &mut PredicateScratch) -> Values {
        match self.values(node, scratch) {
            Run::Owned(values) => values,
            Run::Borrowed(slice) => {
                let mut values = scratch.take(node.value_type);
                cast_into(&slice, &mut values);
                values
            }
        }
    }
}

/// Repeats the one value that stands for all, if the other operand has more.
fn spread(values: &mut Values, length: usize) {
    if values.len() == 1 && length != 1 {
        with_number!(
            values.value_type(),
            T => {
                let elements = T::elements_of(values);
                let one = elements[0];
                elements.resize(length, one);
            },
            bool => {
                let bytes = values.booleans();
                let one = bytes[0];
                bytes.resize(length, one);
            }
        );
    }
}
