//! Least and greatest values and missing elements of runs of elements.
//!
//! An element is missing if it is NaN or has one of the values that mean so. The others are
//! compared as numbers. A bound of zero gets the sign that makes the range wider, so that an
//! expression such as `1 / x` finds both infinities.

use std::borrow::Cow;
use std::ops::Range;

use bedform_format::DataType;

/// Elements that are compared at a time: as many as wide registers hold, so that compilers use
/// them.
const LANES: usize = 16;
/// The largest element in bytes.
pub(crate) const ITEM_MAX: usize = 8;

/// Calls a generic function for the type of numbers of a data type; nothing for other types.
macro_rules! of_type {
    ($data_type:expr, $name:ident => $call:expr) => {
        match $data_type {
            DataType::Bool | DataType::UInt8 => of_type!(u8, $name, $call),
            DataType::Int8 => of_type!(i8, $name, $call),
            DataType::Int16 => of_type!(i16, $name, $call),
            DataType::Int32 => of_type!(i32, $name, $call),
            DataType::Int64 => of_type!(i64, $name, $call),
            DataType::UInt16 => of_type!(u16, $name, $call),
            DataType::UInt32 => of_type!(u32, $name, $call),
            DataType::UInt64 => of_type!(u64, $name, $call),
            DataType::Float16 => of_type!(Half, $name, $call),
            DataType::Float32 => of_type!(f32, $name, $call),
            DataType::Float64 => of_type!(f64, $name, $call),
            _ => {}
        }
    };
    ($type:ty, $name:ident, $call:expr) => {{
        type $name = $type;
        $call
    }};
}

pub(super) use of_type;

/// The range of some elements, in the machine's byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct BlockFold {
    /// The least and greatest value that is not missing; `None` if all are.
    values: Option<([u8; ITEM_MAX], [u8; ITEM_MAX])>,
    /// Number of missing elements.
    pub(crate) missing: u64,
    /// Number of all elements.
    pub(crate) count: u64,
}

/// Finds the ranges of elements of one type.
#[derive(Debug, Clone)]
pub(crate) struct RangeFold {
    data_type: DataType,
    /// Values that mean that an element is missing, in the machine's byte order.
    missing: Vec<Vec<u8>>,
}

/// A box inside a chunk, in C order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FoldedPart<'a> {
    /// The elements of the whole chunk.
    pub(crate) elements: &'a [u8],
    /// Shape of the chunk in elements.
    pub(crate) chunk: &'a [u64],
    /// First position of the box in the chunk.
    pub(crate) start: &'a [u64],
    /// Shape of the box.
    pub(crate) shape: &'a [u64],
}

impl RangeFold {
    /// Makes the fold for elements of a type; `None` for types that are no numbers.
    pub(crate) fn new(data_type: DataType, missing: &[Vec<u8>]) -> Option<Self> {
        let size = data_type.item_size()?;
        let missing: Vec<_> = missing.iter().filter(|value| value.len() == size).cloned().collect();
        is_indexed(data_type).then_some(Self { data_type, missing })
    }

    /// The type of the elements.
    pub(crate) fn data_type(&self) -> DataType {
        self.data_type
    }

    /// The values that mean that an element is missing, in the machine's byte order.
    pub(crate) fn missing_values(&self) -> &[Vec<u8>] {
        &self.missing
    }

    /// Adds the elements of a part of a chunk to `into`. Elements outside the bytes of the chunk
    /// are not counted.
    pub(crate) fn add(&self, part: &FoldedPart<'_>, into: &mut BlockFold) {
        of_type!(self.data_type, T => self.add_of::<T>(part, into));
    }

    /// Adds the elements that `other` was made of.
    pub(crate) fn merge(&self, other: &BlockFold, into: &mut BlockFold) {
        into.missing += other.missing;
        into.count += other.count;
        of_type!(self.data_type, T => merge_values::<T>(other, into));
    }

    fn add_of<T: FoldedNumber>(&self, part: &FoldedPart<'_>, into: &mut BlockFold) {
        let missing: Vec<T> = self.missing.iter().map(|value| T::read(value)).collect();
        let mut extremes = Extremes::<T>::new();
        for_each_run(part, T::BYTES, &mut |run| match missing.as_slice() {
            [] => extremes.add(run, |_| false),
            [one] => extremes.add(run, |value| value == *one),
            [one, other] => extremes.add(run, |value| (value == *one) | (value == *other)),
            many => extremes.add(run, |value| many.contains(&value)),
        });
        extremes.merge_into(into);
    }

    /// Returns the range of some elements.
    pub(crate) fn of(&self, elements: &[u8]) -> BlockFold {
        let count = [(elements.len() / self.data_type.item_size().unwrap_or(1)) as u64];
        let mut found = BlockFold::default();
        let part = FoldedPart { elements, chunk: &count, start: &[0], shape: &count };
        self.add(&part, &mut found);
        found
    }
}

impl<'a> FoldedPart<'a> {
    /// Returns the elements of the box, of `item` bytes each, one behind the other.
    pub(crate) fn gathered(&self, item: usize) -> Cow<'a, [u8]> {
        if self.chunk == self.shape {
            return Cow::Borrowed(self.elements);
        }
        let mut found = Vec::new();
        for_each_run(self, item, &mut |run| found.extend_from_slice(run));
        Cow::Owned(found)
    }
}

/// True for a type of which blocks have ranges: numbers and booleans.
fn is_indexed(data_type: DataType) -> bool {
    use DataType as T;
    matches!(
        data_type,
        T::Bool
            | T::Int8
            | T::Int16
            | T::Int32
            | T::Int64
            | T::UInt8
            | T::UInt16
            | T::UInt32
            | T::UInt64
            | T::Float16
            | T::Float32
            | T::Float64
    )
}

impl BlockFold {
    /// Returns the bytes of the least and greatest value, of `size` bytes each; `None` if all
    /// elements are missing.
    pub(crate) fn values(&self, size: usize) -> Option<(&[u8], &[u8])> {
        let (least, greatest) = self.values.as_ref()?;
        Some((least.get(..size)?, greatest.get(..size)?))
    }
}

/// Calls `act` with each run of consecutive elements of a part.
fn for_each_run(part: &FoldedPart<'_>, size: usize, act: &mut dyn FnMut(&[u8])) {
    let FoldedPart { elements, chunk, start, shape } = *part;
    each_run(chunk, start, shape, &mut |run| {
        act(elements.get(run.start * size..run.end * size).unwrap_or_default());
    });
}

/// Puts bytes, an element each, into a box of a larger one, both in C order. Elements without a
/// place are left out.
pub(crate) fn put_box(into: &mut [u8], whole: &[u64], start: &[u64], shape: &[u64], bytes: &[u8]) {
    let mut rest = bytes;
    each_run(whole, start, shape, &mut |run| {
        let (of_run, behind) = rest.split_at(run.len().min(rest.len()));
        rest = behind;
        let place = into.get_mut(run).filter(|place| place.len() == of_run.len());
        place.into_iter().for_each(|place| place.copy_from_slice(of_run));
    });
}

/// Calls `act` with each run of consecutive elements of a box in a larger one, in C order.
pub(crate) fn each_run(
    whole: &[u64],
    start: &[u64],
    shape: &[u64],
    act: &mut dyn FnMut(Range<usize>),
) {
    if shape.contains(&0) {
        return;
    }
    // Axes from here on are covered whole, so that their elements form one run.
    let covered = whole.iter().zip(shape).rev().take_while(|(whole, shape)| whole == shape);
    let split = whole.len().saturating_sub(covered.count()).saturating_sub(1);
    let run: u64 = shape[split.min(shape.len())..].iter().product();
    let steps = bedform_geometry::strides(whole);
    let first: u64 = start.iter().zip(&steps).map(|(at, step)| at * step).sum();
    let outer = &shape[..split.min(shape.len())];
    let mut at = vec![0_u64; outer.len()];
    loop {
        let begin: u64 = first + at.iter().zip(&steps).map(|(at, step)| at * step).sum::<u64>();
        // Boxes of elements that are in memory.
        let place = |count: u64| usize::try_from(count).unwrap_or(usize::MAX / ITEM_MAX);
        act(place(begin)..place(begin + run));
        let Some(axis) = (0..at.len()).rev().find(|axis| at[*axis] + 1 < outer[*axis]) else {
            return;
        };
        at[axis] += 1;
        at[axis + 1..].fill(0);
    }
}

/// A type of numbers.
pub(super) trait FoldedNumber: Copy + PartialEq {
    const BYTES: usize = size_of::<Self>();
    const LEAST: Self;
    const GREATEST: Self;

    /// Reads a number in the machine's byte order.
    fn read(bytes: &[u8]) -> Self;

    fn write(self) -> [u8; ITEM_MAX];

    fn is_nan(self) -> bool;

    fn is_less(self, other: Self) -> bool;

    /// Returns a number that never decreases as values increase.
    fn position(self) -> f64;

    /// Returns zero with the sign that makes the range from it wider.
    fn low_zero(self) -> Self {
        self
    }

    /// Returns zero with the sign that makes the range up to it wider.
    fn high_zero(self) -> Self {
        self
    }
}

/// Widens a number of the machine's byte order to [`ITEM_MAX`] bytes.
fn widened(bytes: &[u8]) -> [u8; ITEM_MAX] {
    let mut wide = [0; ITEM_MAX];
    wide[..bytes.len()].copy_from_slice(bytes);
    wide
}

macro_rules! integer {
    ($($type:ty)*) => {$(
        #[allow(clippy::host_endian_bytes, reason = "elements in memory")]
        impl FoldedNumber for $type {
            const LEAST: Self = Self::MIN;
            const GREATEST: Self = Self::MAX;

            fn read(bytes: &[u8]) -> Self {
                bytes.first_chunk().map_or(0, |bytes| Self::from_ne_bytes(*bytes))
            }

            fn write(self) -> [u8; ITEM_MAX] {
                widened(&self.to_ne_bytes())
            }

            fn is_nan(self) -> bool {
                false
            }

            fn is_less(self, other: Self) -> bool {
                self < other
            }

            #[allow(clippy::cast_lossless, clippy::cast_precision_loss)]
            fn position(self) -> f64 {
                self as f64
            }
        }
    )*};
}

macro_rules! float {
    ($($type:ty)*) => {$(
        #[allow(clippy::host_endian_bytes, reason = "elements in memory")]
        impl FoldedNumber for $type {
            const LEAST: Self = Self::NEG_INFINITY;
            const GREATEST: Self = Self::INFINITY;

            fn read(bytes: &[u8]) -> Self {
                bytes.first_chunk().map_or(0.0, |bytes| Self::from_ne_bytes(*bytes))
            }

            fn write(self) -> [u8; ITEM_MAX] {
                widened(&self.to_ne_bytes())
            }

            fn is_nan(self) -> bool {
                self.is_nan()
            }

            fn is_less(self, other: Self) -> bool {
                self < other
            }

            fn position(self) -> f64 {
                self.into()
            }

            fn low_zero(self) -> Self {
                if self == 0.0 { -0.0 } else { self }
            }

            fn high_zero(self) -> Self {
                if self == 0.0 { 0.0 } else { self }
            }
        }
    )*};
}

integer!(u8 i8 u16 i16 u32 i32 u64 i64);
float!(f32 f64);

/// An IEEE half-precision number, by its bits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Half(u16);

impl Half {
    const SIGN: u16 = 1 << 15;
    const INFINITY: u16 = 0x7c00;

    /// Returns a number that is ordered as the values are; both zeros are 0.
    fn order(self) -> i32 {
        let size = i32::from(self.0 & !Self::SIGN);
        if self.0 & Self::SIGN == 0 { size } else { -size }
    }
}

impl PartialEq for Half {
    fn eq(&self, other: &Self) -> bool {
        !self.is_nan() && !other.is_nan() && self.order() == other.order()
    }
}

#[allow(clippy::host_endian_bytes, reason = "elements in memory")]
impl FoldedNumber for Half {
    const LEAST: Self = Self(Self::INFINITY | Self::SIGN);
    const GREATEST: Self = Self(Self::INFINITY);

    fn read(bytes: &[u8]) -> Self {
        Self(bytes.first_chunk().map_or(0, |bytes| u16::from_ne_bytes(*bytes)))
    }

    fn write(self) -> [u8; ITEM_MAX] {
        widened(&self.0.to_ne_bytes())
    }

    fn is_nan(self) -> bool {
        self.0 & !Self::SIGN > Self::INFINITY
    }

    fn is_less(self, other: Self) -> bool {
        self.order() < other.order()
    }

    fn position(self) -> f64 {
        self.order().into()
    }

    fn low_zero(self) -> Self {
        if self.order() == 0 { Self(Self::SIGN) } else { self }
    }

    fn high_zero(self) -> Self {
        if self.order() == 0 { Self(0) } else { self }
    }
}

/// The least and greatest numbers of runs, lane by lane.
struct Extremes<T> {
    least: [T; LANES],
    greatest: [T; LANES],
    missing: u64,
    count: u64,
}

impl<T: FoldedNumber> Extremes<T> {
    fn new() -> Self {
        let (least, greatest) = ([T::GREATEST; LANES], [T::LEAST; LANES]);
        Self { least, greatest, missing: 0, count: 0 }
    }

    fn add(&mut self, run: &[u8], is_missing: impl Fn(T) -> bool) {
        let (mut least, mut greatest) = (self.least, self.greatest);
        let blocks = run.chunks_exact(LANES * T::BYTES);
        let rest = blocks.remainder();
        for block in blocks {
            let mut skipped = 0_u32;
            for lane in 0..LANES {
                let value = T::read(&block[lane * T::BYTES..(lane + 1) * T::BYTES]);
                let skip = value.is_nan() | is_missing(value);
                let (low, high) = if skip { (T::GREATEST, T::LEAST) } else { (value, value) };
                least[lane] = if low.is_less(least[lane]) { low } else { least[lane] };
                greatest[lane] = if greatest[lane].is_less(high) { high } else { greatest[lane] };
                skipped += u32::from(skip);
            }
            self.missing += u64::from(skipped);
        }
        for element in rest.chunks_exact(T::BYTES) {
            let value = T::read(element);
            if value.is_nan() | is_missing(value) {
                self.missing += 1;
            } else {
                least[0] = if value.is_less(least[0]) { value } else { least[0] };
                greatest[0] = if greatest[0].is_less(value) { value } else { greatest[0] };
            }
        }
        (self.least, self.greatest) = (least, greatest);
        self.count += (run.len() / T::BYTES) as u64;
    }

    fn merge_into(self, into: &mut BlockFold) {
        into.missing += self.missing;
        into.count += self.count;
        if self.missing == self.count {
            return;
        }
        let least = self.least.into_iter().fold(T::GREATEST, less).low_zero();
        let greatest = self.greatest.into_iter().fold(T::LEAST, more).high_zero();
        let values = Some((least.write(), greatest.write()));
        merge_values::<T>(&BlockFold { values, ..BlockFold::default() }, into);
    }
}

fn less<T: FoldedNumber>(one: T, other: T) -> T {
    if other.is_less(one) { other } else { one }
}

fn more<T: FoldedNumber>(one: T, other: T) -> T {
    if one.is_less(other) { other } else { one }
}

/// Widens the range of `into` by that of `other`.
fn merge_values<T: FoldedNumber>(other: &BlockFold, into: &mut BlockFold) {
    into.values = match (into.values, other.values) {
        (Some((low, high)), Some((least, greatest))) => Some((
            less(T::read(&low), T::read(&least)).write(),
            more(T::read(&high), T::read(&greatest)).write(),
        )),
        (own, other) => own.or(other),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<T: FoldedNumber>(values: &[T]) -> Vec<u8> {
        values.iter().flat_map(|value| value.write()[..T::BYTES].to_vec()).collect()
    }

    fn of<T: FoldedNumber>(
        data_type: DataType,
        values: &[T],
        missing: &[T],
    ) -> (Option<(T, T)>, u64) {
        let missing: Vec<_> = missing.iter().map(|value| bytes(&[*value])).collect();
        let found = RangeFold::new(data_type, &missing).unwrap().of(&bytes(values));
        assert_eq!(found.count, values.len() as u64);
        let values = found.values(T::BYTES);
        (values.map(|(least, greatest)| (T::read(least), T::read(greatest))), found.missing)
    }

    #[test]
    fn nan_and_missing_values_are_left_out_and_counted() {
        let values: Vec<f64> = (0..100).map(f64::from).collect();
        assert_eq!(of(DataType::Float64, &values, &[]), (Some((0.0, 99.0)), 0));
        assert_eq!(of(DataType::Float64, &values, &[0.0, 99.0]), (Some((1.0, 98.0)), 2));
        assert_eq!(of(DataType::Float64, &values, &[0.0, 99.0, 98.0]), (Some((1.0, 97.0)), 3));
        let mut some = values.clone();
        (some[3], some[99]) = (f64::NAN, -f64::INFINITY);
        assert_eq!(of(DataType::Float64, &some, &[0.0]), (Some((-f64::INFINITY, 98.0)), 2));
        assert_eq!(of(DataType::Float64, &[f64::NAN; 40], &[]), (None, 40));
        assert_eq!(of(DataType::Float64, &[f64::INFINITY; 3], &[]).0.unwrap().0, f64::INFINITY);
    }

    #[test]
    fn whole_numbers_reach_the_ends_of_their_types() {
        assert_eq!(of(DataType::Int8, &[-128_i8, 127, 3], &[]), (Some((-128, 127)), 0));
        assert_eq!(of(DataType::UInt64, &[u64::MAX, 5], &[]), (Some((5, u64::MAX)), 0));
        assert_eq!(of(DataType::Int64, &[i64::MIN, 5], &[i64::MIN]), (Some((5, 5)), 1));
        let many: Vec<i16> =
            (0..1000_i32).map(|at| i16::try_from(at * 37 % 1000 - 500).unwrap()).collect();
        assert_eq!(of(DataType::Int16, &many, &[-500]), (Some((-499, 499)), 1));
    }

    #[test]
    fn a_bound_of_zero_is_as_wide_as_both_zeros() {
        let (range, _) = of(DataType::Float32, &[0.0_f32, -0.0], &[]);
        let (least, greatest) = range.unwrap();
        assert!(least.is_sign_negative() && greatest.is_sign_positive());
        assert_eq!((least, greatest), (0.0, 0.0));
    }

    #[test]
    fn half_precision_numbers_are_ordered_as_numbers() {
        // 1, -2, 0.5, NaN, -0, -infinity.
        let values = [0x3c00, 0xc000, 0x3800, 0x7e00, 0x8000, 0xfc00].map(Half);
        let (range, missing) = of(DataType::Float16, &values, &[Half(0xfc00)]);
        assert_eq!(
            (range.map(|(least, greatest)| (least.0, greatest.0)), missing),
            (Some((0xc000, 0x3c00)), 2)
        );
    }

    #[test]
    fn a_part_of_a_chunk_has_the_range_of_its_elements_alone() {
        let values: Vec<i32> = (0..60).collect();
        let fold = RangeFold::new(DataType::Int32, &[]).unwrap();
        let (elements, chunk) = (bytes(&values), [3, 4, 5]);
        for (start, shape, count, least, greatest) in [
            ([0, 0, 0], [3, 4, 5], 60, 0, 59),
            ([1, 1, 1], [2, 2, 3], 12, 26, 53),
            ([2, 0, 4], [1, 4, 1], 4, 44, 59),
            ([1, 2, 0], [1, 2, 5], 10, 30, 39),
        ] {
            let mut found = BlockFold::default();
            let part =
                FoldedPart { elements: &elements, chunk: &chunk, start: &start, shape: &shape };
            fold.add(&part, &mut found);
            let (low, high) = found.values(4).unwrap();
            assert_eq!((found.count, i32::read(low), i32::read(high)), (count, least, greatest));
        }
        let mut one = BlockFold::default();
        let part = FoldedPart { elements: &bytes(&[7_i32]), chunk: &[], start: &[], shape: &[] };
        fold.add(&part, &mut one);
        assert_eq!((one.count, i32::read(one.values(4).unwrap().0)), (1, 7));
    }

    #[test]
    fn texts_times_and_complex_numbers_have_no_ranges() {
        for data_type in [DataType::String, DataType::Complex64, DataType::FixedBytes(4)] {
            assert!(RangeFold::new(data_type, &[]).is_none(), "{data_type}");
        }
    }
}
