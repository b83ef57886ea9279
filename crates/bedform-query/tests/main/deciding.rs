use bedform_query::{
    AttributeNumber, Decision, Expression, Operand, Packing, PredicateScratch, ScalarValue,
    ValueDecoding, ValueRange, ValueSlice, ValueType, range_of,
};

use crate::evaluating::RandomCase;
use crate::model::{Aligned, TYPES};

fn range(decoding: &ValueDecoding, elements: ValueSlice<'_>) -> ValueRange {
    let (least_and_greatest, missing) = range_of(decoding, elements);
    ValueRange { least_and_greatest, missing: missing > 0 }
}

fn span(least: f64, greatest: f64) -> Option<ValueRange> {
    let ends = (ScalarValue::Float64(least), ScalarValue::Float64(greatest));
    Some(ValueRange { least_and_greatest: Some(ends), missing: false })
}

fn float64() -> ValueDecoding {
    ValueDecoding::new(ValueType::Float64, Packing::default()).unwrap()
}

fn decided(text: &str, decoding: &ValueDecoding, ranges: &[Option<ValueRange>]) -> Decision {
    let expression = Expression::parse(text).unwrap();
    let operand = |name: &&str| Operand { name: (*name).into(), decoding: decoding.clone() };
    let names = expression.names();
    let operands: Vec<Operand> = names.iter().map(operand).collect();
    // The second range is that of `b`.
    let of = |name: &&str| ranges.get(usize::from(*name == "b")).copied().flatten();
    let ranges: Vec<Option<ValueRange>> = names.iter().map(of).collect();
    expression.bind(&operands).unwrap().decide(&ranges)
}

#[test]
fn random_blocks_are_never_decided_wrongly() {
    let mut scratch = PredicateScratch::default();
    let (mut none, mut all) = (0, 0);
    for seed in 0..12_000 {
        let length = 1 + usize::try_from(seed % 5).unwrap();
        let case = RandomCase::new(1 << 32 | seed, length);
        let Ok((predicate, order)) = case.bind() else { continue };
        let memory: Vec<Aligned> =
            case.columns.iter().map(|column| Aligned::new(&column.bytes)).collect();
        let slices: Vec<ValueSlice<'_>> =
            order.iter().map(|index| memory[*index].slice(case.columns[*index].stored)).collect();
        let ranges: Vec<Option<ValueRange>> = slices
            .iter()
            .zip(predicate.operands())
            .enumerate()
            .map(|(index, (slice, operand))| {
                let is_known = !(seed + index as u64).is_multiple_of(7);
                is_known.then(|| range(&operand.decoding, *slice))
            })
            .collect();
        let mut out = vec![7; length];
        predicate.evaluate(&slices, &mut scratch, &mut out);
        let context = || format!("seed {seed}: {} over {:?}, {ranges:?}", case.text, case.columns);
        match predicate.decide(&ranges) {
            Decision::None => {
                assert!(out.iter().all(|byte| *byte == 0), "none: {}", context());
                none += 1;
            }
            Decision::All => {
                assert!(out.iter().all(|byte| *byte == 1), "all: {}", context());
                all += 1;
            }
            Decision::Some => (),
        }
    }
    assert!(none > 1_000 && all > 500, "{none} none, {all} all");
}

#[test]
fn undecoded_values_may_be_the_missing_ones_that_ranges_leave_out() {
    let fill = AttributeNumber::Typed(ScalarValue::Int16(-999));
    let packing = Packing { fill_value: vec![fill], ..Packing::default() };
    let decoding = ValueDecoding::new(ValueType::Int16, packing).unwrap();
    let ends = (ScalarValue::Int16(5), ScalarValue::Int16(9));
    let ranges = [Some(ValueRange { least_and_greatest: Some(ends), missing: true })];
    assert_eq!(decided("x < 0", &decoding, &ranges), Decision::None);
    assert_eq!(decided("x < 0", &decoding.undecoded(), &ranges), Decision::Some);
    assert_eq!(decided("x * x < 0", &decoding.undecoded(), &ranges), Decision::Some);
    assert_eq!(decided("x < -999", &decoding.undecoded(), &ranges), Decision::None);
    // Nothing says which values are missing.
    assert_eq!(decided("x < -999", &ValueDecoding::raw(ValueType::Int16), &ranges), Decision::Some);
    let all_missing = [Some(ValueRange { least_and_greatest: None, missing: true })];
    assert_eq!(decided("x < 0", &decoding.undecoded(), &all_missing), Decision::All);
    assert_eq!(decided("x < 0", &decoding, &all_missing), Decision::None);
    assert_eq!(decided("x != 0", &decoding, &all_missing), Decision::All);
}

#[test]
fn arithmetic_of_several_arrays_is_decided_by_intervals() {
    let decoding = float64();
    let ranges = [span(1.0, 2.0), span(10.0, 20.0)];
    for (text, expected) in [
        ("a + b > 22", Decision::None),
        ("a + b >= 22", Decision::Some),
        ("a + b > 10", Decision::All),
        ("a * b < 50", Decision::All),
        ("b / a >= 5", Decision::All),
        ("a / b > 0.2", Decision::None),
        ("a / (b - 15) > 1000", Decision::Some),
        ("sqrt(b) < a", Decision::None),
        ("minimum(a, b) <= 2", Decision::All),
        ("abs(a - b) > 8", Decision::Some),
        ("abs(a - b) >= 8", Decision::All),
        ("a < b", Decision::All),
        ("not (a < b)", Decision::None),
        ("a < b or a > b", Decision::All),
        ("a > 5 and a / b > 0", Decision::None),
        ("isnan(a + b)", Decision::None),
        ("isfinite(a * b)", Decision::All),
    ] {
        assert_eq!(decided(text, &decoding, &ranges), expected, "{text}");
    }
}

#[test]
fn nan_that_an_operation_may_make_is_counted() {
    let decoding = float64();
    let infinite = [span(0.0, f64::INFINITY), span(0.0, f64::INFINITY)];
    for text in
        ["a - b <= inf", "a * b >= 0", "a / (b + 1) >= 0", "sqrt(a - 1) >= 0", "a - b == a - b"]
    {
        assert_eq!(decided(text, &decoding, &infinite), Decision::Some, "{text}");
    }
    assert_eq!(decided("a + b >= 0", &decoding, &infinite), Decision::All);
    assert_eq!(decided("sqrt(-1 - a) >= 0", &decoding, &infinite), Decision::None);
    assert_eq!(decided("sqrt(-1 - a) != 0", &decoding, &infinite), Decision::All);
}

#[test]
fn integers_that_may_wrap_are_unknown() {
    let decoding = ValueDecoding::raw(ValueType::Int8);
    let ends = (ScalarValue::Int8(-100), ScalarValue::Int8(100));
    let ranges = [Some(ValueRange { least_and_greatest: Some(ends), missing: false })];
    assert_eq!(decided("x + 27 < -100", &decoding, &ranges), Decision::None);
    assert_eq!(decided("x + 28 < -100", &decoding, &ranges), Decision::Some);
    let least = (ScalarValue::Int8(-128), ScalarValue::Int8(-127));
    let ranges = [Some(ValueRange { least_and_greatest: Some(least), missing: false })];
    assert_eq!(decided("abs(x) > 0", &decoding, &ranges), Decision::Some);
}

#[test]
fn ranges_that_no_array_can_have_decide_nothing() {
    for stored in TYPES {
        let Ok(decoding) = ValueDecoding::new(stored, Packing::default()) else { continue };
        let wrong = ScalarValue::Float64(1.0);
        for least_and_greatest in [
            None,
            Some((wrong, ScalarValue::UInt8(1))),
            Some((ScalarValue::Float32(f32::NAN), ScalarValue::Float32(1.0))),
            Some((ScalarValue::Float64(2.0), wrong)),
            Some((ScalarValue::Int32(2), ScalarValue::Int32(1))),
        ] {
            let range = ValueRange { least_and_greatest, missing: false };
            let text = if stored == ValueType::Bool { "x" } else { "x > 5" };
            assert_eq!(decided(text, &decoding, &[Some(range)]), Decision::Some, "{stored}");
        }
        let text = if stored == ValueType::Bool { "x" } else { "x == 5" };
        assert_eq!(decided(text, &decoding, &[]), Decision::Some, "{stored}");
        let operand = Operand { name: "x".into(), decoding };
        let predicate = Expression::parse(text).unwrap().bind(&[operand]).unwrap();
        assert_eq!(predicate.decide(&[]), Decision::Some, "{stored}");
    }
}

#[test]
fn unsigned_views_are_decided_in_their_own_order() {
    let packing = Packing { unsigned: Some(true), ..Packing::default() };
    let decoding = ValueDecoding::new(ValueType::Int8, packing).unwrap();
    let ends = |least, greatest| {
        let ends = (ScalarValue::Int8(least), ScalarValue::Int8(greatest));
        [Some(ValueRange { least_and_greatest: Some(ends), missing: false })]
    };
    assert_eq!(decided("x > 127", &decoding, &ends(-128, -1)), Decision::All);
    assert_eq!(decided("x > 127", &decoding, &ends(0, 127)), Decision::None);
    assert_eq!(decided("x > 127", &decoding, &ends(-1, 1)), Decision::Some);
    assert_eq!(decided("x * 1 > 127", &decoding, &ends(-1, 1)), Decision::Some);
    assert_eq!(decided("x * 1 > 127", &decoding, &ends(-3, -2)), Decision::All);
}
