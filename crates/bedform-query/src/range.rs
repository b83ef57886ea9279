//! The range of the stored values of a run.

use crate::decode::ValueDecoding;
use crate::numeric::Numeric;
use crate::stored_set::{StoredSet, half_key, half_of_key};
use crate::values::{ScalarValue, ValueSlice, ValueType};

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
    let kind = stored.value_type();
    let mut missing = StoredSet::new(kind, Vec::new(), kind.is_float());
    if let Some(values) = decoding.missing() {
        missing = missing.union(values);
    }
    // A plain fold counts NaN of wide floats by itself.
    let is_plain = missing.spans().is_empty() && kind != ValueType::Float16;
    let mut fold = StoredRange { ends: None, missing: 0, set: (!is_plain).then_some(missing) };
    if is_plain {
        fold.add(&stored);
    } else {
        for start in (0..stored.len()).step_by(TILE) {
            fold.add(&stored.slice(start, stored.len().min(start + TILE)));
        }
    }
    (fold.ends, fold.missing)
}

/// The range of the elements so far.
struct StoredRange {
    ends: Option<(ScalarValue, ScalarValue)>,
    missing: u64,
    /// The missing values, NaN among them; none if NaN alone is missing.
    set: Option<StoredSet>,
}

impl StoredRange {
    fn add(&mut self, elements: &ValueSlice<'_>) {
        macro_rules! numbers {
            ($($variant:ident)*) => {
                match elements {
                    ValueSlice::Bool(bytes) => {
                        let bytes: Vec<u8> = bytes.iter().map(|byte| u8::from(*byte != 0)).collect();
                        self.numbers(elements, &bytes, |byte| ScalarValue::Bool(byte != 0));
                    }
                    ValueSlice::Float16(halves) => {
                        let keys: Vec<i16> = halves.iter().map(|half| half_key(*half)).collect();
                        self.numbers(elements, &keys, |key| ScalarValue::Float16(half_of_key(key)));
                    }
                    $(ValueSlice::$variant(numbers) => {
                        self.numbers(elements, numbers, Numeric::scalar);
                    })*
                }
            };
        }
        numbers! { Int8 Int16 Int32 Int64 UInt8 UInt16 UInt32 UInt64 Float32 Float64 }
    }

    /// Adds elements by numbers in the same order.
    fn numbers<T: Numeric>(
        &mut self,
        elements: &ValueSlice<'_>,
        numbers: &[T],
        scalar: impl Fn(T) -> ScalarValue,
    ) {
        let Some(set) = &self.set else {
            return self.join(fold(numbers), numbers.len(), scalar);
        };
        let mut bytes = [0; TILE];
        let marks = &mut bytes[..numbers.len()];
        set.test(elements, marks);
        let marked: u64 = marks.iter().map(|mark| u64::from(*mark)).sum();
        self.missing += marked;
        let Some(first) = marks.iter().position(|mark| *mark == 0) else { return };
        if marked == 0 {
            return self.join(fold(numbers), numbers.len(), scalar);
        }
        // One of the others stands for those that are missing: it changes neither end.
        let other = numbers[first];
        let pairs = numbers.iter().zip(&*marks);
        let rest: Vec<T> =
            pairs.map(|(number, mark)| if *mark == 0 { *number } else { other }).collect();
        self.join(fold(&rest), rest.len(), scalar);
    }

    fn join<T>(
        &mut self,
        (least, greatest, missing): (T, T, u64),
        elements: usize,
        scalar: impl Fn(T) -> ScalarValue,
    ) {
        use std::cmp::Ordering::{Greater, Less};
        self.missing += missing;
        if missing == elements as u64 {
            return;
        }
        let (least, greatest) = (scalar(least), scalar(greatest));
        self.ends = Some(self.ends.map_or((least, greatest), |ends| {
            (
                if least.order(ends.0) == Some(Less) { least } else { ends.0 },
                if greatest.order(ends.1) == Some(Greater) { greatest } else { ends.1 },
            )
        }));
    }
}

/// The least and greatest element and the count of NaN, which compares as neither.
fn fold<T: Numeric>(elements: &[T]) -> (T, T, u64) {
    // The greatest and least value of the type.
    let (highest, lowest) = T::ends();
    let (mut least, mut greatest) = ([highest; LANES], [lowest; LANES]);
    let mut missing = 0;
    // Counts of so many lanes fit 16 bits, and a register holds many of them.
    for block in elements.chunks(LANES << 8) {
        let mut counts = [0_u16; LANES];
        let (lanes, rest) = block.as_chunks::<LANES>();
        for lanes in lanes {
            for lane in 0..LANES {
                let element = lanes[lane];
                least[lane] = if element < least[lane] { element } else { least[lane] };
                greatest[lane] = if element > greatest[lane] { element } else { greatest[lane] };
                counts[lane] += u16::from(element.is_nan());
            }
        }
        for element in rest {
            least[0] = if *element < least[0] { *element } else { least[0] };
            greatest[0] = if *element > greatest[0] { *element } else { greatest[0] };
            missing += u64::from(element.is_nan());
        }
        missing += counts.iter().map(|count| u64::from(*count)).sum::<u64>();
    }
    let lesser = |one: T, other: T| if other < one { other } else { one };
    let greater = |one: T, other: T| if other > one { other } else { one };
    let least = least.into_iter().fold(highest, lesser);
    (least, greatest.into_iter().fold(lowest, greater), missing)
}
