//! Sets of stored values, as intervals: the answer of a comparison for each stored value.

use half::f16;

use crate::elementwise::broadcast;
use crate::keys::{key, key_range, value};
use crate::numeric::Numeric;
use crate::values::{ScalarValue, ValueSlice, ValueType};

/// A set of values of one type: disjoint intervals in ascending order with both ends inside, and
/// perhaps NaN.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StoredSet {
    value_type: ValueType,
    spans: Vec<(u64, u64)>,
    has_nan: bool,
    /// The same for comparisons.
    test: SpanTest,
}

/// The intervals whose elements are in the set, or are not.
#[derive(Debug, Clone, PartialEq)]
struct SpanTest {
    spans: Vec<(ScalarValue, ScalarValue)>,
    is_outside: bool,
}

impl StoredSet {
    /// Makes a set of intervals of keys, which may overlap.
    pub(crate) fn new(value_type: ValueType, mut spans: Vec<(u64, u64)>, has_nan: bool) -> Self {
        spans.retain(|(least, greatest)| least <= greatest);
        spans.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::with_capacity(spans.len());
        for (least, greatest) in spans {
            match joined.last_mut() {
                Some(last) if least <= last.1.saturating_add(1) => last.1 = last.1.max(greatest),
                _ => joined.push((least, greatest)),
            }
        }
        let gaps = gaps(value_type, &joined);
        // NaN is inside of no interval.
        let is_outside = if value_type.is_float() { has_nan } else { gaps.len() < joined.len() };
        let tested = if is_outside { &gaps } else { &joined };
        let scalar = |key| value(value_type, key);
        let spans = tested.iter().map(|(least, greatest)| (scalar(*least), scalar(*greatest)));
        let test = SpanTest { spans: spans.collect(), is_outside };
        Self { value_type, spans: joined, has_nan, test }
    }

    pub(crate) fn value_type(&self) -> ValueType {
        self.value_type
    }

    /// The intervals of keys.
    pub(crate) fn spans(&self) -> &[(u64, u64)] {
        &self.spans
    }

    /// The values that are in both sets.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let pairs = self.spans.iter().flat_map(|one| {
            other.spans.iter().map(|other| (one.0.max(other.0), one.1.min(other.1)))
        });
        Self::new(self.value_type, pairs.collect(), self.has_nan && other.has_nan)
    }

    /// The values that are in one of the sets.
    pub(crate) fn union(&self, other: &Self) -> Self {
        let spans = self.spans.iter().chain(&other.spans).copied().collect();
        Self::new(self.value_type, spans, self.has_nan || other.has_nan)
    }

    /// The values that are not in the set.
    pub(crate) fn complement(&self) -> Self {
        let has_nan = self.value_type.is_float() && !self.has_nan;
        Self::new(self.value_type, gaps(self.value_type, &self.spans), has_nan)
    }

    /// The number of intervals that an element is compared with.
    pub(crate) fn tests(&self) -> usize {
        self.test.spans.len()
    }

    /// Returns true if the set has no value.
    pub(crate) fn is_empty(&self) -> bool {
        self.spans.is_empty() && !self.has_nan
    }

    /// Returns true if the set has NaN.
    pub(crate) fn has_nan(&self) -> bool {
        self.has_nan
    }

    /// Returns true if a value of an interval of keys is in the set, and if one is not.
    pub(crate) fn meets(&self, (least, greatest): (u64, u64)) -> (bool, bool) {
        let inside = self.spans.iter().any(|span| span.0 <= greatest && least <= span.1);
        let all = self.spans.iter().any(|span| span.0 <= least && greatest <= span.1);
        (inside, !all)
    }

    /// Writes 1 for each element that is in the set, 0 for the others. One element may stand for
    /// all.
    pub(crate) fn test(&self, elements: &ValueSlice<'_>, out: &mut [u8]) {
        match elements {
            ValueSlice::Bool(bytes) => {
                let [no, yes] = [0, 1].map(|key| u8::from(self.meets((key, key)).0));
                broadcast(bytes, out, |byte| if byte == 0 { no } else { yes });
            }
            ValueSlice::Int8(elements) => self.test_elements(elements, out),
            ValueSlice::Int16(elements) => self.test_elements(elements, out),
            ValueSlice::Int32(elements) => self.test_elements(elements, out),
            ValueSlice::Int64(elements) => self.test_elements(elements, out),
            ValueSlice::UInt8(elements) => self.test_elements(elements, out),
            ValueSlice::UInt16(elements) => self.test_elements(elements, out),
            ValueSlice::UInt32(elements) => self.test_elements(elements, out),
            ValueSlice::UInt64(elements) => self.test_elements(elements, out),
            ValueSlice::Float16(elements) => self.test_halves(elements, out),
            ValueSlice::Float32(elements) => self.test_elements(elements, out),
            ValueSlice::Float64(elements) => self.test_elements(elements, out),
        }
    }

    fn test_elements<T: Numeric>(&self, elements: &[T], out: &mut [u8]) {
        let outside = u8::from(self.test.is_outside);
        let ends = |span: &(ScalarValue, ScalarValue)| T::of(span.0).zip(T::of(span.1));
        let spans: Vec<(T, T)> = self.test.spans.iter().filter_map(ends).collect();
        let Some(((least, greatest), others)) = spans.split_first() else {
            return out.fill(outside);
        };
        let (least, greatest) = (*least, *greatest);
        broadcast(elements, out, |element| {
            u8::from((least <= element) & (element <= greatest)) ^ outside
        });
        for (least, greatest) in others {
            let (least, greatest) = (*least, *greatest);
            let add = |out: &mut u8, element: T| {
                // Inside of one interval more: the intervals are disjoint.
                *out ^= u8::from((least <= element) & (element <= greatest));
            };
            if let [element] = elements {
                out.iter_mut().for_each(|out| add(out, *element));
            } else {
                out.iter_mut().zip(elements).for_each(|(out, element)| add(out, *element));
            }
        }
    }

    /// Half precision by its keys: integers compare many times as fast.
    fn test_halves(&self, elements: &[f16], out: &mut [u8]) {
        let outside = u8::from(self.test.is_outside);
        out.fill(outside);
        for (least, greatest) in &self.test.spans {
            let ends = [*least, *greatest].map(|end| match end {
                ScalarValue::Float16(end) => half_key(end),
                _ => 0,
            });
            let add = |out: &mut u8, element: f16| {
                let key = half_key(element);
                *out ^= u8::from((ends[0] <= key) & (key <= ends[1]));
            };
            if let [element] = elements {
                out.iter_mut().for_each(|out| add(out, *element));
            } else {
                out.iter_mut().zip(elements).for_each(|(out, element)| add(out, *element));
            }
        }
    }
}

/// The key of a half as a signed integer; NaN lies outside of the keys of the infinities.
#[allow(clippy::cast_possible_wrap)]
#[inline]
pub(crate) fn half_key(element: f16) -> i16 {
    let bits = element.to_bits() as i16;
    bits ^ ((bits >> 15) & 0x7fff)
}

/// The half of a key.
#[allow(clippy::cast_sign_loss)]
pub(crate) fn half_of_key(key: i16) -> f16 {
    f16::from_bits((key ^ ((key >> 15) & 0x7fff)) as u16)
}

/// The intervals between intervals.
fn gaps(value_type: ValueType, spans: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let (least, greatest) = key_range(value_type);
    let mut gaps = Vec::with_capacity(spans.len() + 1);
    let mut next = Some(least);
    for span in spans {
        if let Some(next) = next.filter(|next| *next < span.0) {
            gaps.push((next, span.0 - 1));
        }
        next = span.1.checked_add(1);
    }
    if let Some(next) = next.filter(|next| *next <= greatest) {
        gaps.push((next, greatest));
    }
    gaps
}

/// The key of a value that is not NaN.
pub(crate) fn span_of(ends: (ScalarValue, ScalarValue)) -> Option<(u64, u64)> {
    key(ends.0).zip(key(ends.1)).filter(|(least, greatest)| least <= greatest)
}
