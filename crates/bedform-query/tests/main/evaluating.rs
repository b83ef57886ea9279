use bedform_query::{
    Expression, ExpressionError, Operand, Predicate, PredicateScratch, ScalarValue, ValueDecoding,
    ValueSlice, ValueType, Values,
};
use half::f16;

use crate::model::{Aligned, Random, RandomColumn, Value, column, condition};

fn bind(text: &str, types: &[ValueType]) -> Result<Predicate, ExpressionError> {
    let expression = Expression::parse(text).unwrap();
    let operands: Vec<Operand> = expression
        .names()
        .iter()
        .zip(types)
        .map(|(name, kind)| Operand { name: (*name).into(), decoding: ValueDecoding::raw(*kind) })
        .collect();
    expression.bind(&operands)
}

fn bound(text: &str, types: &[ValueType]) -> Predicate {
    bind(text, types).unwrap()
}

fn evaluated(text: &str, columns: &[ValueSlice<'_>]) -> Vec<u8> {
    let types: Vec<ValueType> = columns.iter().map(ValueSlice::value_type).collect();
    let length = columns.iter().map(ValueSlice::len).max().unwrap();
    let mut out = vec![7; length];
    bound(text, &types).evaluate(columns, &mut PredicateScratch::default(), &mut out);
    out
}

fn refused(text: &str, types: &[ValueType]) -> String {
    bind(text, types).unwrap_err().message
}

/// A random expression over random columns, which may be refused.
pub(crate) struct RandomCase {
    pub(crate) text: String,
    pub(crate) columns: Vec<RandomColumn>,
    pub(crate) length: usize,
    /// The answers of the model; none if the types are refused.
    pub(crate) expected: Option<Vec<u8>>,
}

impl RandomCase {
    pub(crate) fn new(seed: u64, length: usize) -> Self {
        let random = &mut Random(seed);
        let count = 1 + random.below(3);
        let columns: Vec<RandomColumn> = (0..count)
            .map(|_| {
                let broadcast = random.one_in(6);
                column(random, if broadcast { 1 } else { length })
            })
            .collect();
        let depth = random.below(4);
        let tree = condition(random, depth, count);
        let mut text = String::new();
        tree.write(&mut text);
        let values: Vec<Vec<Value>> = columns.iter().map(model_values).collect();
        let expected: Option<Vec<u8>> = (0..length)
            .map(|index| {
                let at = |values: &Vec<Value>| values[index % values.len().max(1)];
                let elements: Vec<Value> = values.iter().map(at).collect();
                match tree.value(&elements)? {
                    crate::model::Term::Value(value) => value.truth().map(u8::from),
                    crate::model::Term::Number(crate::model::Python::Bool(value)) => {
                        Some(u8::from(value))
                    }
                    crate::model::Term::Number(_) => None,
                }
            })
            .collect();
        Self { text, columns, length, expected }
    }

    /// The expression, and the operands in the order of its names.
    pub(crate) fn bind(&self) -> Result<(Predicate, Vec<usize>), bedform_query::ExpressionError> {
        let expression = Expression::parse(&self.text)?;
        let order: Vec<usize> =
            expression.names().iter().map(|name| name[1..].parse().unwrap()).collect();
        let operands: Vec<Operand> =
            order.iter().map(|index| self.columns[*index].operand(*index)).collect();
        Ok((expression.bind(&operands)?, order))
    }
}

/// The values of a column, decoded by the crate: `decoding.rs` tests the decoding.
fn model_values(column: &RandomColumn) -> Vec<Value> {
    let aligned = Aligned::new(&column.bytes);
    let mut values = Values::new(ValueType::Bool);
    column.decoding().unwrap().decode(aligned.slice(column.stored), &mut values);
    (0..values.len()).map(|index| Value::of(values.as_slice().get(index).unwrap())).collect()
}

#[test]
fn random_expressions_give_the_answers_of_the_model() {
    let mut scratch = PredicateScratch::default();
    let (mut accepted, mut mixed) = (0, 0);
    for seed in 0..6_000 {
        let case = RandomCase::new(seed, 1 + usize::try_from(seed % 40).unwrap());
        let context = format!("seed {seed}: {} over {:?}", case.text, case.columns);
        match (case.bind(), &case.expected) {
            (Err(_), None) => (),
            (Ok((predicate, order)), Some(expected)) => {
                let memory: Vec<Aligned> =
                    case.columns.iter().map(|column| Aligned::new(&column.bytes)).collect();
                let slices: Vec<ValueSlice<'_>> = order
                    .iter()
                    .map(|index| memory[*index].slice(case.columns[*index].stored))
                    .collect();
                let mut out = vec![7; case.length];
                predicate.evaluate(&slices, &mut scratch, &mut out);
                assert_eq!(&out, expected, "{context}");
                accepted += 1;
                mixed += usize::from(out.contains(&0) && out.contains(&1));
            }
            (Ok(_), None) => panic!("accepted: {context}"),
            (Err(error), Some(_)) => panic!("refused, {error}: {context}"),
        }
    }
    assert!(accepted > 3_000 && mixed > 600, "{accepted} accepted, {mixed} with both answers");
}

#[test]
fn conjuncts_together_say_what_the_whole_says() {
    let mut scratch = PredicateScratch::default();
    let mut split = 0;
    for seed in 10_000..11_500 {
        let case = RandomCase::new(seed, 20);
        let Ok((predicate, order)) = case.bind() else { continue };
        let memory: Vec<Aligned> =
            case.columns.iter().map(|column| Aligned::new(&column.bytes)).collect();
        let slices: Vec<ValueSlice<'_>> =
            order.iter().map(|index| memory[*index].slice(case.columns[*index].stored)).collect();
        let mut together = vec![1; 20];
        for conjunct in predicate.conjuncts() {
            let mut out = vec![7; 20];
            conjunct.evaluate(&slices, &mut scratch, &mut out);
            together.iter_mut().zip(out).for_each(|(all, one)| *all &= one);
            assert!(
                conjunct
                    .operands_used()
                    .iter()
                    .all(|used| predicate.operands_used().contains(used))
            );
        }
        assert_eq!(Some(together), case.expected, "{}", case.text);
        split += usize::from(predicate.conjuncts().len() > 1);
    }
    assert!(split > 30, "{split} have several conjuncts");
}

#[test]
fn runs_longer_than_a_tile_are_evaluated_to_their_end() {
    let elements: Vec<f64> = (0..10_001).map(f64::from).collect();
    let scale = [2.0_f64];
    let columns = [ValueSlice::Float64(&elements), ValueSlice::Float64(&scale)];
    let found = evaluated("x * two > 10000 and x != 9999", &columns);
    let expected: Vec<u8> = (0..10_001).map(|x| u8::from(x * 2 > 10_000 && x != 9_999)).collect();
    assert_eq!(found, expected);
}

#[test]
fn integers_compare_with_numbers_beyond_their_type_as_numbers() {
    let bytes = ValueSlice::UInt8(&[0, 255]);
    assert_eq!(evaluated("x < 300", &[bytes]), [1, 1]);
    assert_eq!(evaluated("x >= -1", &[bytes]), [1, 1]);
    assert_eq!(evaluated("x == 1000000000000000000000000000000000000000000", &[bytes]), [0, 0]);
    assert_eq!(evaluated("-1000000000000000000000000000000000000000000 != x", &[bytes]), [1, 1]);
}

#[test]
fn signed_and_unsigned_integers_compare_exactly() {
    let signed = ValueSlice::Int64(&[-1, i64::MAX, i64::MIN]);
    let unsigned = ValueSlice::UInt64(&[u64::MAX, 1 << 63, 1 << 63]);
    assert_eq!(evaluated("a < b", &[signed, unsigned]), [1, 1, 1]);
    assert_eq!(evaluated("b == a", &[unsigned, signed]), [0, 0, 0]);
}

#[test]
fn integers_beside_a_float_are_rounded_to_float64_as_numpy_does() {
    let elements = ValueSlice::Int64(&[1 << 53, (1 << 53) + 1, (1 << 53) + 2]);
    assert_eq!(evaluated("x > 9007199254740992.0", &[elements]), [0, 0, 1]);
    assert_eq!(evaluated("x > 9007199254740992", &[elements]), [0, 1, 1]);
}

#[test]
fn a_number_takes_the_type_of_the_array_beside_it() {
    let single = ValueSlice::Float32(&[0.1, f32::INFINITY]);
    assert_eq!(evaluated("x == 0.1", &[single]), [1, 0]);
    // The largest single is less than the number, which rounds to infinity.
    assert_eq!(evaluated("x > 1e300", &[single]), [0, 0]);
    // The root of 2 is a NumPy scalar of 64 bits, so the comparison is in float64.
    let root = ValueSlice::Float32(&[std::f32::consts::SQRT_2]);
    assert_eq!(evaluated("x == sqrt(2)", &[root]), [0]);
}

#[test]
fn nan_is_unequal_to_all_and_in_no_other_relation() {
    let elements = ValueSlice::Float32(&[f32::NAN, -0.0]);
    for (text, expected) in [
        ("x == x", [0, 1]),
        ("x != x", [1, 0]),
        ("not x < 1", [1, 0]),
        ("x >= 0", [0, 1]),
        ("isnan(x)", [1, 0]),
        ("isfinite(x)", [0, 1]),
        ("minimum(x, 1) < 5", [0, 1]),
        ("maximum(1, x) < 5", [0, 1]),
        ("x != nan", [1, 1]),
    ] {
        assert_eq!(evaluated(text, &[elements]), expected, "{text}");
    }
}

#[test]
fn integers_wrap_and_divide_as_floats() {
    let bytes = ValueSlice::UInt8(&[200, 1]);
    assert_eq!(evaluated("x + 100 == 44", &[bytes]), [1, 0]);
    assert_eq!(evaluated("-x == 255", &[bytes]), [0, 1]);
    assert_eq!(evaluated("x / 400 == 0.5", &[bytes]), [1, 0]);
    let least = ValueSlice::Int8(&[-128]);
    assert_eq!(evaluated("abs(x) == -128", &[least]), [1]);
}

#[test]
fn halves_round_after_each_step() {
    let elements = [2048.0, 0.1].map(f16::from_f32);
    let halves = ValueSlice::Float16(&elements);
    assert_eq!(evaluated("x + 1 - 2048 == 0", &[halves]), [1, 0]);
    let sum = f16::from_f32(elements[1].to_f32() + elements[1].to_f32());
    let product = f16::from_f32(sum.to_f32() * elements[1].to_f32());
    let expected = ScalarValue::Float16(product);
    let other = [product];
    assert_eq!(
        evaluated("(x + x) * x == y", &[halves, ValueSlice::Float16(&other)]),
        [0, 1],
        "{expected:?}"
    );
}

#[test]
fn arithmetic_refuses_what_numpy_refuses() {
    assert!(refused("x + 300 > 0", &[ValueType::UInt8]).contains("does not fit into uint8"));
    assert!(refused("(a > 1) - (a > 2)", &[ValueType::Int8]).contains("subtracted"));
    assert!(refused("-(a > 1)", &[ValueType::Int8]).contains("`not`"));
    assert!(refused("a > 1 / 0", &[ValueType::Int8]).contains("divided by zero"));
}

#[test]
fn signs_that_bind_too_tightly_say_how_to_write_it() {
    let float = ValueType::Float32;
    let message = refused("a > 1 & b < 2", &[float, float]);
    assert!(message.contains("`&`") && message.contains("brackets"), "{message}");
    assert!(refused("~a > 1", &[float]).contains("~(a > 1)"));
    let message = refused("a and b > 1", &[float, float]);
    assert_eq!(
        message,
        "`and` takes conditions, but `a` gives float32 values; compare it with something"
    );
    assert!(refused("a + 1", &[float]).contains("not a condition"));
}

#[test]
fn chains_of_chains_stay_small() {
    let mut text = "x".to_owned();
    for _ in 0..60 {
        text = format!("(0 <= {text} <= x)");
    }
    let message = refused(&text, &[ValueType::Float64]);
    assert!(message.contains("operations"), "{message}");
}

#[test]
fn conditions_that_always_hold_use_no_operand() {
    let predicate = bound("x >= 0 and (x < 256 or y > 1)", &[ValueType::UInt8, ValueType::Float32]);
    assert!(predicate.operands_used().is_empty());
    let mut out = [0; 3];
    let nothing = [ValueSlice::UInt8(&[]), ValueSlice::Float32(&[])];
    predicate.evaluate(&nothing, &mut PredicateScratch::default(), &mut out);
    assert_eq!(out, [1, 1, 1]);
}

#[test]
fn conditions_on_one_array_become_one() {
    let predicate = bound("1 < x and x < 5 and y > 2", &[ValueType::Int16, ValueType::Int16]);
    assert_eq!(predicate.conjuncts().len(), 2);
}

#[test]
#[should_panic(expected = "elements")]
fn columns_of_another_length_are_refused() {
    evaluated("x > y", &[ValueSlice::Int8(&[1, 2, 3]), ValueSlice::Int8(&[1, 2])]);
}

#[test]
fn thousands_of_conditions_on_one_array_are_joined() {
    let text: Vec<String> = (0..3_000).map(|value| format!("x == {}", 2 * value)).collect();
    let elements: Vec<i16> = (0..6_000).collect();
    let found = evaluated(&text.join(" or "), &[ValueSlice::Int16(&elements)]);
    let expected: Vec<u8> = elements.iter().map(|value| u8::from(value % 2 == 0)).collect();
    assert_eq!(found, expected);
}

#[test]
fn predicates_are_shared_between_threads() {
    fn is_shared<T: Send + Sync>(_: &T) {}
    is_shared(&bound("x > 1", &[ValueType::Int8]));
}
