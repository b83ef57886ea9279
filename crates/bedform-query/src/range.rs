//! The range of the stored values of a run.

use half::f16;

use crate::decode::ValueDecoding;
use crate::numeric::Numeric;
use crate::stored_set::{StoredSet, half_key, half_of_key};
use crate::values::{ScalarValue, ValueSlice};

/// Elements that are folded at once where some may be missing.
const TILE: usize = 4096;
/// Independent folds, so that the compiler uses whole registers.
const LANES: usize = 32;

/// Finds the least and greatest stored value that is not missing, and counts the missing values:
/// NaN, and stored values that `decoding` makes missing.
///
/// # Panics
///
/// If the elements are not of the stored type.
///
/// # Examples
///
/// ```
/// use bedform_query::{Packing, ScalarValue, ValueDecoding, ValueSlice, ValueType, range_of};
///
/// let decoding = ValueDecoding::new(ValueType::Float32, Packing::default())?;
/// let (ends, missing) = range_of(&decoding, ValueSlice::Float32(&[2.0, f32::NAN, -1.0]));
/// assert_eq!(ends, Some((ScalarValue::Float32(-1.0), ScalarValue::Float32(2.0))));
/// assert_eq!(missing, 1);
/// # Ok::<(), bedform_query::ExpressionError>(())
/// ```
pub fn range_of(
    decoding: &ValueDecoding,
    stored: ValueSlice<'_>,
) -> (Option<(ScalarValue, ScalarValue)>, u64) {
    assert_eq!(stored.value_type(), decoding.stored(), "elements of the stored type");
    let missing = decoding.missing().filter(|missing| !missing.is_empty());
    let mut fold = RangeFold::default();
    match missing {
        None => fold.add(&stored),
        Some(missing) => {
            for start in (0..stored.len()).step_by(TILE) {
                let tile = stored.slice(start, stored.len().min(start + TILE));
                fold.add_with_missing(&tile, missing);
            }
        }
    }
    (fold.ends, fold.missing)
}

#[derive(Default)]
struct RangeFold {
    ends: Option<(ScalarValue, ScalarValue)>,
    missing: u64,
}

impl RangeFold {
    fn add(&mut self, elements: &ValueSlice<'_>) {
        self.fold(elements, None);
    }

    /// Adds a tile in which the values of a set are missing.
    fn add_with_missing(&mut self, tile: &ValueSlice<'_>, missing: &StoredSet) {
        let mut bytes = [0; TILE];
        let bytes = &mut bytes[..tile.len()];
        missing.test(tile, bytes);
        if tile.len() == 1 || bytes.iter().any(|byte| *byte != 0) {
            self.fold(tile, Some(bytes));
        } else {
            self.fold(tile, None);
        }
    }

    fn fold(&mut self, elements: &ValueSlice<'_>, missing: Option<&[u8]>) {
        match elements {
            ValueSlice::Bool(bytes) => {
                let has = |wanted| bytes.iter().any(|byte| (*byte != 0) == wanted);
                let (no, yes) = (has(false), has(true));
                let ends = (no || yes).then_some((ScalarValue::Bool(!no), ScalarValue::Bool(yes)));
                self.join(ends, 0);
            }
            ValueSlice::Int8(elements) => self.numbers(elements, missing, (i8::MAX, i8::MIN)),
            ValueSlice::Int16(elements) => self.numbers(elements, missing, (i16::MAX, i16::MIN)),
            ValueSlice::Int32(elements) => self.numbers(elements, missing, (i32::MAX, i32::MIN)),
            ValueSlice::Int64(elements) => self.numbers(elements, missing, (i64::MAX, i64::MIN)),
            ValueSlice::UInt8(elements) => self.numbers(elements, missing, (u8::MAX, u8::MIN)),
            ValueSlice::UInt16(elements) => self.numbers(elements, missing, (u16::MAX, u16::MIN)),
            ValueSlice::UInt32(elements) => self.numbers(elements, missing, (u32::MAX, u32::MIN)),
            ValueSlice::UInt64(elements) => self.numbers(elements, missing, (u64::MAX, u64::MIN)),
            ValueSlice::Float16(elements) => self.halves(elements, missing),
            ValueSlice::Float32(elements) => {
                self.numbers(elements, missing, (f32::INFINITY, f32::NEG_INFINITY));
            }
            ValueSlice::Float64(elements) => {
                self.numbers(elements, missing, (f64::INFINITY, f64::NEG_INFINITY));
            }
        }
    }

    fn numbers<T: Numeric>(&mut self, elements: &[T], missing: Option<&[u8]>, start: (T, T)) {
        let (ends, count) = match missing {
            None => fold(elements, start),
            Some(missing) => {
                let marked = elements.iter().zip(missing);
                fold_marked(marked.map(|(element, byte)| (*element, *byte != 0)), start)
            }
        };
        self.add_ends(elements.len(), ends, count, T::scalar);
    }

    /// Halves by their keys, among which NaN is marked as missing.
    fn halves(&mut self, elements: &[f16], missing: Option<&[u8]>) {
        let marked = elements.iter().enumerate().map(|(index, element)| {
            let is_missing = missing.is_some_and(|missing| missing[index] != 0);
            (half_key(*element), is_missing || element.is_nan())
        });
        let (ends, count) = fold_marked(marked, (i16::MAX, i16::MIN));
        let scalar = |key| ScalarValue::Float16(half_of_key(key));
        self.add_ends(elements.len(), ends, count, scalar);
    }

    fn add_ends<K>(
        &mut self,
        elements: usize,
        ends: (K, K),
        missing: u64,
        scalar: impl Fn(K) -> ScalarValue,
    ) {
        let has_numbers = missing < elements as u64;
        let ends = has_numbers.then(|| (scalar(ends.0), scalar(ends.1)));
        self.join(ends, missing);
    }

    fn join(&mut self, ends: Option<(ScalarValue, ScalarValue)>, missing: u64) {
        use std::cmp::Ordering::{Greater, Less};
        self.missing += missing;
        self.ends = match (self.ends, ends) {
            (Some(one), Some(other)) => Some((
                if other.0.order(one.0) == Some(Less) { other.0 } else { one.0 },
                if other.1.order(one.1) == Some(Greater) { other.1 } else { one.1 },
            )),
            (one, other) => one.or(other),
        };
    }
}

/// The least and greatest element and the count of NaN, which compares as neither.
fn fold<T: Numeric>(elements: &[T], start: (T, T)) -> ((T, T), u64) {
    let mut least = [start.0; LANES];
    let mut greatest = [start.1; LANES];
    let mut missing = 0;
    // Blocks of lanes: counts fit 16 bits, which a register holds many of.
    for block in elements.chunks(LANES << 8) {
        let mut counts = [0_u16; LANES];
        for lanes in block.chunks(LANES) {
            for (lane, element) in lanes.iter().enumerate() {
                least[lane] = if *element < least[lane] { *element } else { least[lane] };
                greatest[lane] = if *element > greatest[lane] { *element } else { greatest[lane] };
                counts[lane] += u16::from(element.is_nan());
            }
        }
        missing += counts.iter().map(|count| u64::from(*count)).sum::<u64>();
    }
    let lesser = |one: T, other: T| if other < one { other } else { one };
    let greater = |one: T, other: T| if other > one { other } else { one };
    let ends =
        (least.into_iter().fold(start.0, lesser), greatest.into_iter().fold(start.1, greater));
    (ends, missing)
}

/// The least and greatest element of those that are not marked, and the count of the others.
fn fold_marked<K: Copy + PartialOrd>(
    elements: impl Iterator<Item = (K, bool)>,
    start: (K, K),
) -> ((K, K), u64) {
    let (mut ends, mut missing) = (start, 0);
    for (element, is_missing) in elements {
        // NaN compares as neither, but it is equal to nothing.
        #[allow(clippy::eq_op)]
        let is_missing = is_missing | (element != element);
        let low = if is_missing { start.0 } else { element };
        let high = if is_missing { start.1 } else { element };
        ends.0 = if low < ends.0 { low } else { ends.0 };
        ends.1 = if high > ends.1 { high } else { ends.1 };
        missing += u64::from(is_missing);
    }
    (ends, missing)
}
