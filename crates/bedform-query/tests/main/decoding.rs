use bedform_query::{
    AttributeNumber, Packing, ScalarValue, ValueDecoding, ValueSlice, ValueType, Values,
};

const fn typed(value: ScalarValue) -> AttributeNumber {
    AttributeNumber::Typed(value)
}

fn decoded(packing: Packing, stored: ValueSlice<'_>) -> Values {
    let decoding = ValueDecoding::new(stored.value_type(), packing).unwrap();
    let mut values = Values::new(ValueType::Bool);
    decoding.decode(stored, &mut values);
    assert_eq!(values.value_type(), decoding.decoded());
    values
}

/// Numbers as texts, so that NaN is equal to NaN.
fn shown(values: &Values) -> String {
    format!("{values:?}")
}

fn decoded_type(
    stored: ValueType,
    scale: Option<AttributeNumber>,
    offset: Option<AttributeNumber>,
    fill: Option<AttributeNumber>,
) -> ValueType {
    let packing = Packing {
        scale_factor: scale,
        add_offset: offset,
        fill_value: fill.into_iter().collect(),
        ..Packing::default()
    };
    ValueDecoding::new(stored, packing).unwrap().decoded()
}

#[test]
fn the_types_of_scale_and_offset_choose_the_type_of_values() {
    use ValueType::{Float32, Float64, Int16, Int32, Int64, UInt8};
    let single = Some(typed(ScalarValue::Float32(0.5)));
    let double = Some(typed(ScalarValue::Float64(0.5)));
    let python = Some(AttributeNumber::Real(0.5));
    assert_eq!(decoded_type(Int16, single, single, None), Float32);
    assert_eq!(decoded_type(Int32, single, single, None), Float64);
    assert_eq!(decoded_type(Int32, single, None, None), Float32);
    assert_eq!(decoded_type(Int16, single, double, None), Float64);
    assert_eq!(decoded_type(Int16, None, single, None), Float64);
    assert_eq!(decoded_type(UInt8, python, None, None), Float64);
    assert_eq!(decoded_type(Int16, Some(AttributeNumber::Integer(2)), None, None), Int64);
    let fill = Some(typed(ScalarValue::Int16(0)));
    assert_eq!(decoded_type(Int16, None, None, fill), Float32);
    assert_eq!(decoded_type(Int32, None, None, fill), Float64);
    assert_eq!(decoded_type(Int16, double, None, fill), Float64);
    // NaN masks nothing, but the attribute keeps the type of the elements.
    let nan = Some(typed(ScalarValue::Float32(f32::NAN)));
    assert_eq!(decoded_type(Float32, double, None, nan), Float32);
    assert_eq!(decoded_type(Float32, double, None, None), Float64);
}

#[test]
fn packed_values_are_multiplied_and_offset_in_their_own_type() {
    let packing = Packing {
        fill_value: vec![typed(ScalarValue::Int16(-32767))],
        scale_factor: Some(typed(ScalarValue::Float32(0.01))),
        add_offset: Some(typed(ScalarValue::Float32(273.15))),
        ..Packing::default()
    };
    let values = decoded(packing, ValueSlice::Int16(&[0, 100, -32767]));
    let Values::Float32(values) = values else { panic!("{values:?}") };
    assert_eq!(values[..2], [273.15_f32, 100.0 * 0.01_f32 + 273.15_f32]);
    assert!(values[2].is_nan());
}

#[test]
fn missing_values_are_compared_in_the_type_of_values() {
    // 16777217 is rounded to the float of its neighbour, which is missing then, too.
    let packing = Packing {
        missing_value: vec![AttributeNumber::Integer(16_777_216), typed(ScalarValue::Int32(5))],
        scale_factor: Some(typed(ScalarValue::Float32(1.0))),
        ..Packing::default()
    };
    let values = decoded(packing, ValueSlice::Int32(&[16_777_216, 16_777_217, 16_777_218, 5]));
    assert_eq!(shown(&values), "Float32([NaN, NaN, 16777218.0, NaN])");
    // As a double 1e20 is not the single next to it, and masks nothing.
    let fill = |number| Packing { fill_value: vec![number], ..Packing::default() };
    let stored = ValueSlice::Float32(&[1e20]);
    assert_eq!(shown(&decoded(fill(AttributeNumber::Real(1e20)), stored)), "Float32([1e20])");
    let single = typed(ScalarValue::Float32(1e20));
    assert_eq!(shown(&decoded(fill(single), stored)), "Float32([NaN])");
}

#[test]
fn unsigned_says_how_integers_are_read_and_takes_the_fill_value_along() {
    let packing = Packing {
        fill_value: vec![typed(ScalarValue::Int8(-1))],
        unsigned: Some(true),
        ..Packing::default()
    };
    let values = decoded(packing, ValueSlice::Int8(&[-1, -2, 3]));
    assert_eq!(shown(&values), "Float32([NaN, 254.0, 3.0])");
    let packing = Packing { unsigned: Some(false), ..Packing::default() };
    assert_eq!(shown(&decoded(packing, ValueSlice::UInt16(&[65535]))), "Int16([-1])");
}

#[test]
fn booleans_are_all_that_is_not_zero() {
    let packing = Packing { boolean: true, ..Packing::default() };
    assert_eq!(shown(&decoded(packing.clone(), ValueSlice::Int8(&[0, 1, -3]))), "Bool([0, 1, 1])");
    let packing = Packing { fill_value: vec![typed(ScalarValue::Int8(0))], ..packing };
    assert_eq!(shown(&decoded(packing, ValueSlice::Int8(&[0, 1]))), "Bool([1, 1])");
    let raw = ValueDecoding::raw(ValueType::Bool);
    let mut values = Values::new(ValueType::Float64);
    raw.decode(ValueSlice::Bool(&[0, 1, 255]), &mut values);
    assert_eq!(shown(&values), "Bool([0, 1, 1])");
}

#[test]
fn packings_that_cannot_hold_are_refused_in_one_line() {
    let refused = |stored, packing| ValueDecoding::new(stored, packing).unwrap_err().message;
    let integer = Packing { scale_factor: Some(AttributeNumber::Integer(2)), ..Packing::default() };
    assert!(refused(ValueType::Float32, integer.clone()).contains("truncate"));
    let masked = Packing { fill_value: vec![AttributeNumber::Integer(1)], ..integer };
    assert!(refused(ValueType::Int16, masked).contains("NaN"));
    let fill =
        |number| Packing { fill_value: vec![number], unsigned: Some(true), ..Packing::default() };
    assert!(refused(ValueType::Int8, fill(AttributeNumber::Integer(255))).contains("int8"));
    let masked = Packing { fill_value: vec![AttributeNumber::Integer(1)], ..Packing::default() };
    assert!(refused(ValueType::Bool, masked).contains("booleans"));
}

#[test]
fn long_runs_are_decoded_to_their_end_into_the_same_memory() {
    let packing =
        Packing { scale_factor: Some(typed(ScalarValue::Float64(0.5))), ..Packing::default() };
    let decoding = ValueDecoding::new(ValueType::UInt16, packing).unwrap();
    let stored: Vec<u16> = (0..50_000).collect();
    let mut values = Values::new(ValueType::Float64);
    for length in [50_000, 3] {
        decoding.decode(ValueSlice::UInt16(&stored[..length]), &mut values);
        let expected = stored[..length].iter().map(|value| f64::from(*value) * 0.5).collect();
        assert_eq!(values, Values::Float64(expected));
    }
}
