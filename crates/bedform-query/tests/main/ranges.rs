use bedform_query::{
    AttributeNumber, Packing, ScalarValue, ValueDecoding, ValueSlice, ValueType, range_of,
};
use half::f16;

use crate::model::{Aligned, Random, TYPES, Value, bytes_of, column};

/// The order of values of one type.
fn less(one: ScalarValue, other: ScalarValue) -> bool {
    match (one, other) {
        (ScalarValue::Bool(one), ScalarValue::Bool(other)) => !one & other,
        (ScalarValue::Int8(one), ScalarValue::Int8(other)) => one < other,
        (ScalarValue::Int16(one), ScalarValue::Int16(other)) => one < other,
        (ScalarValue::Int32(one), ScalarValue::Int32(other)) => one < other,
        (ScalarValue::Int64(one), ScalarValue::Int64(other)) => one < other,
        (ScalarValue::UInt8(one), ScalarValue::UInt8(other)) => one < other,
        (ScalarValue::UInt16(one), ScalarValue::UInt16(other)) => one < other,
        (ScalarValue::UInt32(one), ScalarValue::UInt32(other)) => one < other,
        (ScalarValue::UInt64(one), ScalarValue::UInt64(other)) => one < other,
        (ScalarValue::Float16(one), ScalarValue::Float16(other)) => one < other,
        (ScalarValue::Float32(one), ScalarValue::Float32(other)) => one < other,
        (ScalarValue::Float64(one), ScalarValue::Float64(other)) => one < other,
        _ => unreachable!("one type"),
    }
}

fn is_nan(value: ScalarValue) -> bool {
    match value {
        ScalarValue::Float16(value) => value.is_nan(),
        ScalarValue::Float32(value) => value.is_nan(),
        ScalarValue::Float64(value) => value.is_nan(),
        _ => false,
    }
}

/// Returns true for an element that equals a missing value as NumPy compares them, in the type of
/// values.
fn is_masked(packing: &Packing, element: ScalarValue, stored: ValueType) -> bool {
    let plain = Packing { boolean: false, ..packing.clone() };
    let value_type = ValueDecoding::new(stored, plain).unwrap().decoded();
    let numbers = packing.fill_value.iter().chain(&packing.missing_value);
    let mut numbers = numbers.map(|number| match number {
        AttributeNumber::Integer(number) => Value::Integer(ValueType::Int64, *number),
        AttributeNumber::Real(number) => Value::Float(ValueType::Float64, *number),
        AttributeNumber::Typed(number) => Value::of(*number),
    });
    value_type.is_float()
        && numbers.any(|number| Value::of(element).cast(value_type).equals(number))
}

#[test]
fn ranges_are_those_of_elements_one_by_one() {
    let mut some_missing = 0;
    for seed in 0..3_000 {
        let random = &mut Random(2 << 32 | seed);
        let length = if seed % 50 == 0 { 10_000 } else { random.below(100) };
        let mut column = column(random, length);
        // `decoding.rs` tests how fill values are reinterpreted.
        if let Some(packing) = column.packing.as_mut() {
            packing.unsigned = None;
        }
        let Some(decoding) = column.decoding() else { continue };
        let aligned = Aligned::new(&column.bytes);
        let slice = aligned.slice(column.stored);
        let (mut ends, mut missing) = (None::<(ScalarValue, ScalarValue)>, 0);
        for index in 0..length {
            let element = slice.get(index).unwrap();
            let packing = column.packing.as_ref();
            let is_masked = packing.is_some_and(|one| is_masked(one, element, column.stored));
            if is_masked || is_nan(element) {
                missing += 1;
                continue;
            }
            let (least, greatest) = ends.unwrap_or((element, element));
            ends = Some((
                if less(element, least) { element } else { least },
                if less(greatest, element) { element } else { greatest },
            ));
        }
        let (found, count) = range_of(&decoding, slice);
        assert_eq!(count, missing, "seed {seed}: {:?}", column.packing);
        assert_eq!(found.is_some(), ends.is_some(), "seed {seed}");
        if let (Some(found), Some(ends)) = (found, ends) {
            // The two zeros are one value.
            for (one, other) in [(found.0, ends.0), (found.1, ends.1)] {
                assert!(!less(one, other) && !less(other, one), "seed {seed}: {found:?} {ends:?}");
            }
        }
        some_missing += usize::from(missing > 0 && missing < length as u64);
    }
    assert!(some_missing > 300, "{some_missing} columns with some missing values");
}

#[test]
fn nan_and_fill_values_are_counted_and_left_out() {
    let fill = AttributeNumber::Typed(ScalarValue::Float32(1e20));
    let packing = Packing { fill_value: vec![fill], ..Packing::default() };
    let decoding = ValueDecoding::new(ValueType::Float32, packing).unwrap();
    let elements = [f32::NAN, 1e20, -3.0, f32::INFINITY];
    let (ends, missing) = range_of(&decoding, ValueSlice::Float32(&elements));
    let expected = (ScalarValue::Float32(-3.0), ScalarValue::Float32(f32::INFINITY));
    assert_eq!((ends, missing), (Some(expected), 2));
    let (ends, missing) = range_of(&decoding, ValueSlice::Float32(&[f32::NAN, 1e20]));
    assert_eq!((ends, missing), (None, 2));
}

#[test]
fn runs_of_infinities_and_of_nothing_have_their_ranges() {
    let raw = ValueDecoding::raw(ValueType::Float16);
    let elements = [f16::INFINITY, f16::NAN, f16::INFINITY];
    let infinity = ScalarValue::Float16(f16::INFINITY);
    assert_eq!(range_of(&raw, ValueSlice::Float16(&elements)), (Some((infinity, infinity)), 1));
    for kind in TYPES {
        let nothing = Aligned::new(&[]);
        assert_eq!(range_of(&ValueDecoding::raw(kind), nothing.slice(kind)), (None, 0));
        let one = Aligned::new(&bytes_of(ScalarValue::UInt64(0))[..kind.bytes()]);
        let element = one.slice(kind).get(0).unwrap();
        let found = range_of(&ValueDecoding::raw(kind), one.slice(kind));
        assert_eq!(found, (Some((element, element)), 0));
    }
}

#[test]
fn long_runs_of_nan_are_counted_to_the_end() {
    let mut elements = vec![f32::NAN; 1_000_003];
    elements[1_000_001] = 4.0;
    let raw = ValueDecoding::raw(ValueType::Float32);
    let (ends, missing) = range_of(&raw, ValueSlice::Float32(&elements));
    assert_eq!(ends, Some((ScalarValue::Float32(4.0), ScalarValue::Float32(4.0))));
    assert_eq!(missing, 1_000_002);
}
