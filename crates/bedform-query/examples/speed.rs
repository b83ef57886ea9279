//! Prints the speed of conditions and ranges over runs in memory, in GB of stored elements a second:
//! the best of several rounds on one core, beside a plain sum of the same bytes.

use std::hint::black_box;
use std::time::Instant;

use bedform_query::{
    AttributeNumber, Expression, Operand, Packing, PredicateScratch, ScalarValue, ValueDecoding,
    ValueSlice, ValueType, range_of,
};
use half::f16;

const ELEMENTS: usize = 1 << 23;
const ROUNDS: usize = 15;

#[allow(clippy::print_stdout, clippy::cast_precision_loss)]
fn report(name: &str, bytes: usize, mut run: impl FnMut()) {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!("{name:50} {:6.2} GB/s", bytes as f64 / best / 1e9);
}

fn condition(text: &str, decoding: &ValueDecoding, columns: &[ValueSlice<'_>]) {
    let expression = Expression::parse(text).expect("an expression");
    let operand = |name: &&str| Operand { name: (*name).into(), decoding: decoding.clone() };
    let operands: Vec<Operand> = expression.names().iter().map(operand).collect();
    let predicate = expression.bind(&operands).expect("types that fit");
    let mut out = vec![0; ELEMENTS];
    let mut scratch = PredicateScratch::default();
    let columns = &columns[..operands.len()];
    let bytes = columns.iter().map(|column| column.len() * column.value_type().bytes()).sum();
    report(&format!("{}: {text}", decoding.stored()), bytes, || {
        predicate.evaluate(black_box(columns), &mut scratch, &mut out);
        black_box(&out);
    });
}

fn range(name: &str, decoding: &ValueDecoding, column: ValueSlice<'_>) {
    let bytes = column.len() * column.value_type().bytes();
    report(&format!("range of {name}"), bytes, || {
        black_box(range_of(decoding, black_box(column)));
    });
}

fn main() {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 40) as u32
    };
    let doubles: Vec<f64> = (0..ELEMENTS).map(|_| f64::from(next()) / f64::from(1 << 24)).collect();
    let singles: Vec<f32> = doubles.iter().map(|value| *value as f32).collect();
    let halves: Vec<f16> = singles.iter().map(|value| f16::from_f32(*value)).collect();
    let shorts: Vec<i16> = doubles.iter().map(|value| (value * 60000.0 - 30000.0) as i16).collect();
    let longs: Vec<i64> = doubles.iter().map(|value| (value * 1e12) as i64).collect();
    report("sum of float64", ELEMENTS * 8, || {
        let bits: u64 =
            black_box(&doubles).iter().map(|value| value.to_bits()).fold(0, u64::wrapping_add);
        black_box(bits);
    });
    let plain = |kind| ValueDecoding::new(kind, Packing::default()).expect("no attributes");
    let typed = |number| AttributeNumber::Typed(number);
    let single = |number| Some(typed(ScalarValue::Float32(number)));
    let packed = Packing {
        fill_value: vec![typed(ScalarValue::Int16(-30000))],
        scale_factor: single(0.01),
        add_offset: single(273.15),
        ..Packing::default()
    };
    let packed = ValueDecoding::new(ValueType::Int16, packed).expect("attributes that fit");
    let fill = Packing { fill_value: vec![typed(ScalarValue::Float32(0.5))], ..Packing::default() };
    let filled = ValueDecoding::new(ValueType::Float32, fill).expect("attributes that fit");
    let (f64s, f32s) = (ValueSlice::Float64(&doubles), ValueSlice::Float32(&singles));
    let (i16s, i64s) = (ValueSlice::Int16(&shorts), ValueSlice::Int64(&longs));
    let f16s = ValueSlice::Float16(&halves);
    for text in [
        "x > 0.999",
        "0.2 < x < 0.7",
        "x != 0.5",
        "x - y > 0.5",
        "x > 0.999 and y > 0.5",
        "sqrt(x * x + y * y) > 0.5",
        "x * 2 + 1 > 2.9",
    ] {
        condition(text, &plain(ValueType::Float64), &[f64s, f64s]);
        condition(text, &plain(ValueType::Float32), &[f32s, f32s]);
    }
    condition("x > 0.999", &plain(ValueType::Float16), &[f16s]);
    condition("x - y > 0.5", &plain(ValueType::Float16), &[f16s, f16s]);
    condition("x > 500000000000", &plain(ValueType::Int64), &[i64s]);
    condition("x > 500000000000.5", &plain(ValueType::Int64), &[i64s]);
    condition("x > 0", &plain(ValueType::Int16), &[i16s]);
    condition("x > 310", &packed, &[i16s]);
    condition("x < 310", &packed, &[i16s]);
    condition("x < 310 and y - x < 3", &packed, &[i16s, i16s]);
    condition("x > 0.9", &filled, &[f32s]);
    range("float64", &plain(ValueType::Float64), f64s);
    range("float32", &plain(ValueType::Float32), f32s);
    range("float32 with a fill value", &filled, f32s);
    range("int16", &plain(ValueType::Int16), i16s);
    range("int16 with a fill value", &packed, i16s);
    range("int64", &plain(ValueType::Int64), i64s);
    range("float16", &plain(ValueType::Float16), f16s);
}
