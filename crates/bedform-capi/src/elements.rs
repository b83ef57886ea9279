//! The types of a program's elements, and their conversion to and from those of an array.
//!
//! A call names the type of its data, or leaves it out: then the data are bytes of the array's own
//! type. Only conversions that keep every value are made, so that success never depends on values.

#![expect(clippy::host_endian_bytes, reason = "the memory of a program has the machine's order")]

use std::borrow::Cow;
use std::ffi::c_char;

use bedform::{Error, ErrorKind, Result};
use bedform_format::DataType;
use half::f16;

use crate::arguments::text;
use crate::status::misuse;

/// Elements that are converted at a time in place.
const BLOCK: usize = 512;
/// The largest size in bytes of an element in memory.
const ELEMENT_BYTES_MAX: usize = 16;

/// The type of a program's elements. A complex number is two scalars, real and imaginary part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ElementType {
    name: &'static str,
    scalar: Scalar,
    is_complex: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scalar {
    /// A truth value of some bytes: true unless all are zero.
    Logical(usize),
    Signed(usize),
    Unsigned(usize),
    Float(usize),
}

/// Zarr's types of numbers, and truth values of the sizes that Fortran has.
const TYPES: [ElementType; 18] = {
    use Scalar::{Float, Logical, Signed, Unsigned};
    const fn of(name: &'static str, scalar: Scalar) -> ElementType {
        ElementType { name, scalar, is_complex: false }
    }
    const fn complex(name: &'static str, scalar: Scalar) -> ElementType {
        ElementType { name, scalar, is_complex: true }
    }
    [
        of("bool", Logical(1)),
        of("logical8", Logical(1)),
        of("logical16", Logical(2)),
        of("logical32", Logical(4)),
        of("logical64", Logical(8)),
        of("int8", Signed(1)),
        of("int16", Signed(2)),
        of("int32", Signed(4)),
        of("int64", Signed(8)),
        of("uint8", Unsigned(1)),
        of("uint16", Unsigned(2)),
        of("uint32", Unsigned(4)),
        of("uint64", Unsigned(8)),
        of("float16", Float(2)),
        of("float32", Float(4)),
        of("float64", Float(8)),
        complex("complex64", Float(4)),
        complex("complex128", Float(8)),
    ]
};

impl ElementType {
    /// Parses the type that a call names; `None` if it names none.
    ///
    /// # Safety
    /// `name` is null or a text that ends with a NUL.
    pub(crate) unsafe fn of_call(name: *const c_char) -> Result<Option<Self>> {
        if name.is_null() {
            return Ok(None);
        }
        // SAFETY: the contract of this function.
        match unsafe { text("dtype", name) }? {
            "" => Ok(None),
            // From Fortran, whose sections may have gaps.
            name if name.ends_with(" with gaps") => Err(misuse(
                "the elements do not follow each other in memory, so they cannot be borrowed: write \
                 a copy of them, as bf_session_write does",
            )),
            name => Self::parse(name).map(Some).ok_or_else(|| {
                let known: Vec<_> = TYPES.iter().map(|known| known.name).collect();
                misuse(format!(
                    "{name} is no type of elements that C or Fortran can pass; there are {}",
                    known.join(", ")
                ))
            }),
        }
    }

    fn parse(name: &str) -> Option<Self> {
        TYPES.into_iter().find(|known| known.name == name)
    }

    fn bytes(self) -> usize {
        let (Scalar::Logical(bytes)
        | Scalar::Signed(bytes)
        | Scalar::Unsigned(bytes)
        | Scalar::Float(bytes)) = self.scalar;
        if self.is_complex { 2 * bytes } else { bytes }
    }

    /// True if every value of this type is one of `other`.
    fn is_within(self, other: Self) -> bool {
        self.scalar.is_within(other.scalar) && self.is_complex <= other.is_complex
    }
}

impl Scalar {
    fn is_within(self, other: Self) -> bool {
        // The digits that keep every integer: those of the magnitude.
        let fits = |digits: usize, float| digits <= significant_bits(float);
        match (self, other) {
            (Self::Logical(_), _) => true,
            (_, Self::Logical(_)) => false,
            (Self::Signed(own), Self::Signed(other))
            | (Self::Unsigned(own), Self::Unsigned(other))
            | (Self::Float(own), Self::Float(other)) => own <= other,
            (Self::Unsigned(own), Self::Signed(other)) => own < other,
            (Self::Unsigned(own), Self::Float(other)) => fits(8 * own, other),
            (Self::Signed(own), Self::Float(other)) => fits(8 * own - 1, other),
            (Self::Signed(_), Self::Unsigned(_)) | (Self::Float(_), _) => false,
        }
    }
}

/// The bits of the significand of an IEEE number of this many bytes.
fn significant_bits(bytes: usize) -> usize {
    match bytes {
        2 => 11,
        4 => 24,
        _ => 53,
    }
}

/// Converts elements of one type into as many of another.
type Convert = fn(&[u8], &mut [u8]);

/// Returns the conversion of `from` to `to`, of which each value is one of the other.
fn conversion(from: ElementType, to: ElementType) -> Convert {
    macro_rules! with {
        ($scalar:expr, $T:ident => $then:expr) => {
            match $scalar {
                Scalar::Logical(1) => {
                    type $T = Logical<1>;
                    $then
                }
                Scalar::Logical(2) => {
                    type $T = Logical<2>;
                    $then
                }
                Scalar::Logical(4) => {
                    type $T = Logical<4>;
                    $then
                }
                Scalar::Logical(_) => {
                    type $T = Logical<8>;
                    $then
                }
                Scalar::Signed(1) => {
                    type $T = i8;
                    $then
                }
                Scalar::Signed(2) => {
                    type $T = i16;
                    $then
                }
                Scalar::Signed(4) => {
                    type $T = i32;
                    $then
                }
                Scalar::Signed(_) => {
                    type $T = i64;
                    $then
                }
                Scalar::Unsigned(1) => {
                    type $T = u8;
                    $then
                }
                Scalar::Unsigned(2) => {
                    type $T = u16;
                    $then
                }
                Scalar::Unsigned(4) => {
                    type $T = u32;
                    $then
                }
                Scalar::Unsigned(_) => {
                    type $T = u64;
                    $then
                }
                Scalar::Float(2) => {
                    type $T = f16;
                    $then
                }
                Scalar::Float(4) => {
                    type $T = f32;
                    $then
                }
                Scalar::Float(_) => {
                    type $T = f64;
                    $then
                }
            }
        };
    }
    with!(from.scalar, F => with!(to.scalar, T => match to.is_complex && !from.is_complex {
        true => convert_to_complex::<F, T>,
        false => convert::<F, T>,
    }))
}

fn convert<F: MemoryNumber, T: MemoryNumber>(from: &[u8], to: &mut [u8]) {
    for (from, to) in from.chunks_exact(F::BYTES).zip(to.chunks_exact_mut(T::BYTES)) {
        one::<F, T>(F::load(from)).store(to);
    }
}

fn convert_to_complex<F: MemoryNumber, T: MemoryNumber>(from: &[u8], to: &mut [u8]) {
    for (from, to) in from.chunks_exact(F::BYTES).zip(to.chunks_exact_mut(2 * T::BYTES)) {
        let (real, imaginary) = to.split_at_mut(T::BYTES);
        one::<F, T>(F::load(from)).store(real);
        T::of_integer(0).store(imaginary);
    }
}

fn one<F: MemoryNumber, T: MemoryNumber>(value: F) -> T {
    // 64 bits are enough: no integer of `u64` becomes one of another type.
    if F::IS_INTEGER { T::of_integer(value.integer()) } else { T::of_float(value.float()) }
}

/// A number in memory, in the machine's byte order.
trait MemoryNumber: Copy {
    const BYTES: usize;
    const IS_INTEGER: bool;
    fn load(bytes: &[u8]) -> Self;
    fn store(self, bytes: &mut [u8]);
    fn integer(self) -> i64;
    fn float(self) -> f64;
    fn of_integer(value: i64) -> Self;
    fn of_float(value: f64) -> Self;
}

macro_rules! numbers {
    ($is_integer:literal, $($number:ty),+) => {$(
        #[allow(
            clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_precision_loss,
            clippy::cast_sign_loss, clippy::cast_lossless, trivial_numeric_casts,
            reason = "the types were chosen so that no value is lost"
        )]
        impl MemoryNumber for $number {
            const BYTES: usize = size_of::<Self>();
            const IS_INTEGER: bool = $is_integer;
            fn load(bytes: &[u8]) -> Self {
                Self::from_ne_bytes(bytes.try_into().unwrap_or_default())
            }
            fn store(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_ne_bytes());
            }
            fn integer(self) -> i64 {
                self as i64
            }
            fn float(self) -> f64 {
                self as f64
            }
            fn of_integer(value: i64) -> Self {
                value as Self
            }
            fn of_float(value: f64) -> Self {
                value as Self
            }
        }
    )+};
}

numbers!(true, i8, i16, i32, i64, u8, u16, u32, u64);
numbers!(false, f32, f64);

impl MemoryNumber for f16 {
    const BYTES: usize = 2;
    const IS_INTEGER: bool = false;
    fn load(bytes: &[u8]) -> Self {
        Self::from_ne_bytes(bytes.try_into().unwrap_or_default())
    }
    fn store(self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.to_ne_bytes());
    }
    fn integer(self) -> i64 {
        f64::from(self).integer()
    }
    fn float(self) -> f64 {
        self.to_f64()
    }
    fn of_integer(value: i64) -> Self {
        Self::from_f64(f64::of_integer(value))
    }
    fn of_float(value: f64) -> Self {
        Self::from_f64(value)
    }
}

/// A truth value of `N` bytes. Compilers represent true as 1, as 255 or with all bits set.
#[derive(Clone, Copy)]
struct Logical<const N: usize>(bool);

impl<const N: usize> MemoryNumber for Logical<N> {
    const BYTES: usize = N;
    const IS_INTEGER: bool = true;
    fn load(bytes: &[u8]) -> Self {
        Self(bytes.iter().any(|byte| *byte != 0))
    }
    fn store(self, bytes: &mut [u8]) {
        let number = u64::from(self.0).to_le_bytes();
        bytes.copy_from_slice(&number[..N]);
        if cfg!(target_endian = "big") {
            bytes.reverse();
        }
    }
    fn integer(self) -> i64 {
        self.0.into()
    }
    fn float(self) -> f64 {
        self.0.into()
    }
    fn of_integer(value: i64) -> Self {
        Self(value != 0)
    }
    fn of_float(value: f64) -> Self {
        Self(value != 0.0)
    }
}

/// The treatment of the elements of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// They are bytes of the array's own type.
    Bytes,
    /// They are truth values, which must be 0 or 1.
    Truths,
    /// They are converted from the first type to the second.
    Converted(ElementType, ElementType),
}

impl Way {
    /// The way of data of type `given` to an array of `stored` elements, for which `refused` makes
    /// the error.
    fn to_array(
        given: Option<ElementType>,
        stored: DataType,
        refused: impl Fn(&str) -> Error,
    ) -> Result<Self> {
        let own = stored.v3_name().and_then(ElementType::parse);
        match (given, own) {
            (None, _) if stored == DataType::Bool => Ok(Self::Truths),
            (None, _) => Ok(Self::Bytes),
            (Some(given), None) if is_same_in_memory(given, stored) => Ok(Self::Bytes),
            (Some(given), Some(own)) if given.is_within(own) => Ok(Self::between(given, own)),
            (Some(given), _) => Err(refused(given.name)),
        }
    }

    /// As [`Way::to_array`], for elements of the array that are read into memory of type `wanted`.
    fn from_array(
        stored: DataType,
        wanted: Option<ElementType>,
        refused: impl Fn(&str) -> Error,
    ) -> Result<Self> {
        let own = stored.v3_name().and_then(ElementType::parse);
        match (wanted, own) {
            (None, _) => Ok(Self::Bytes),
            (Some(wanted), None) if is_same_in_memory(wanted, stored) => Ok(Self::Bytes),
            (Some(wanted), Some(own)) if own.is_within(wanted) => Ok(Self::between(own, wanted)),
            (Some(wanted), _) => Err(refused(wanted.name)),
        }
    }

    fn between(from: ElementType, to: ElementType) -> Self {
        let is_same = from.scalar == to.scalar && from.is_complex == to.is_complex;
        match (is_same, from.scalar) {
            (true, Scalar::Logical(1)) => Self::Truths,
            (true, Scalar::Logical(_)) | (false, _) => Self::Converted(from, to),
            (true, _) => Self::Bytes,
        }
    }
}

/// True if elements of type `given` lie in memory as `stored` ones that are no numbers do: counts of
/// a time unit, the bytes of text, anything for elements without a type.
fn is_same_in_memory(given: ElementType, stored: DataType) -> bool {
    match stored {
        DataType::DateTime(_) | DataType::TimeDelta(_) => given.scalar == Scalar::Signed(8),
        DataType::FixedBytes(_) => {
            matches!(given.scalar, Scalar::Signed(1) | Scalar::Unsigned(1))
        }
        DataType::FixedUnicode(_) => {
            matches!(given.scalar, Scalar::Signed(4) | Scalar::Unsigned(4))
        }
        DataType::Raw(_) => true,
        _ => false,
    }
}

const REMEDY: &str = "which can change values: convert them first";

/// Returns `data` of type `given`, `count` elements, as elements of the array `name` of type
/// `stored`.
///
/// # Errors
/// `InvalidArgument` for types of which values could be lost, and for another number of bytes.
pub(crate) fn to_stored<'a>(
    name: &str,
    stored: DataType,
    given: Option<ElementType>,
    count: Option<u64>,
    data: &'a [u8],
) -> Result<Cow<'a, [u8]>> {
    let refused =
        |given: &str| misuse(format!("{name} holds {stored} and the data are {given}, {REMEDY}"));
    match Way::to_array(given, stored, refused)? {
        Way::Bytes => Ok(Cow::Borrowed(data)),
        Way::Truths if data.iter().all(|byte| *byte <= 1) => Ok(Cow::Borrowed(data)),
        Way::Truths => {
            let mut truths = memory(data.len())?;
            convert::<Logical<1>, Logical<1>>(data, &mut truths);
            Ok(Cow::Owned(truths))
        }
        Way::Converted(from, to) => {
            let count = check_count(name, data.len(), from, count)?;
            let mut converted = memory(count.saturating_mul(to.bytes()))?;
            conversion(from, to)(data, &mut converted);
            Ok(Cow::Owned(converted))
        }
    }
}

/// Fills `buffer`, `count` elements of type `wanted`, from the array `name` of type `stored`, whose
/// elements `read` reads into the buffer that it is given.
///
/// # Errors
/// As [`to_stored`], and the error of `read`.
pub(crate) fn from_stored(
    name: &str,
    stored: DataType,
    wanted: Option<ElementType>,
    count: Option<u64>,
    buffer: &mut [u8],
    read: impl FnOnce(&mut [u8]) -> Result<()>,
) -> Result<()> {
    let refused = |wanted: &str| {
        misuse(format!("{name} holds {stored} and the buffer is for {wanted}, {REMEDY}"))
    };
    match Way::from_array(stored, wanted, refused)? {
        Way::Bytes => read(buffer),
        Way::Truths => {
            read(buffer)?;
            buffer.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
            Ok(())
        }
        Way::Converted(from, to) => {
            let count = check_count(name, buffer.len(), to, count)?;
            // Elements in memory are never smaller, so there is room for the stored ones behind
            // them, from which they are made in place.
            let first = buffer.len() - count * from.bytes();
            read(&mut buffer[first..])?;
            widen(buffer, first, from, to);
            Ok(())
        }
    }
}

/// Converts the elements that start at byte `first` of `buffer` into ones that fill it.
fn widen(buffer: &mut [u8], first: usize, from: ElementType, to: ElementType) {
    let convert = conversion(from, to);
    let mut block = [0; BLOCK * ELEMENT_BYTES_MAX];
    let (mut read, mut written) = (first, 0);
    while read < buffer.len() {
        let bytes = (buffer.len() - read).min(BLOCK * from.bytes());
        block[..bytes].copy_from_slice(&buffer[read..read + bytes]);
        let end = written + bytes / from.bytes() * to.bytes();
        convert(&block[..bytes], &mut buffer[written..end]);
        (read, written) = (read + bytes, end);
    }
}

/// Returns the number of elements in so many bytes, if the selection has as many.
fn check_count(name: &str, bytes: usize, of: ElementType, needed: Option<u64>) -> Result<usize> {
    let needed = needed.and_then(|count| count.checked_mul(of.bytes() as u64));
    if needed == Some(bytes as u64) {
        return Ok(bytes / of.bytes());
    }
    let needed = needed.map_or_else(|| "more than there can be".to_owned(), |n| n.to_string());
    let what = of.name;
    Err(misuse(format!(
        "{bytes} bytes of {what} were given for {name}, the selection needs {needed}"
    )))
}

fn memory(bytes: usize) -> Result<Vec<u8>> {
    let mut memory = Vec::new();
    memory.try_reserve_exact(bytes).map_err(|_| {
        let text =
            format!("no memory for {bytes} bytes of converted elements: write fewer at a time");
        Error::new(ErrorKind::LimitExceeded, text)
    })?;
    memory.resize(bytes, 0);
    Ok(memory)
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "the values are chosen so that none is")]
mod tests {
    use super::*;

    /// Values of a type that other types may lack: their bytes, and their meaning.
    fn values(of: ElementType) -> Vec<(Vec<u8>, (f64, i128, f64))> {
        let integers = |low: i128, high: i128| vec![low, low + 1, 0, 1, high - 1, high];
        let bits = 8 * of.bytes();
        let integer = |value: i128| {
            let bytes = value.to_ne_bytes();
            let bytes = if cfg!(target_endian = "big") {
                &bytes[16 - of.bytes()..]
            } else {
                &bytes[..of.bytes()]
            };
            (bytes.to_vec(), (value as f64, value, 0.0))
        };
        match of.scalar {
            Scalar::Logical(_) => vec![integer(0), integer(1)],
            Scalar::Signed(_) => {
                let high = (1_i128 << (bits - 1)) - 1;
                integers(-high - 1, high).into_iter().map(integer).collect()
            }
            Scalar::Unsigned(_) => {
                integers(0, (1_i128 << bits) - 1).into_iter().map(integer).collect()
            }
            Scalar::Float(size) => {
                let all = match size {
                    2 => [0.5, -2.0, 65504.0, 1.0 / 1024.0 / 16384.0],
                    4 => [0.1_f32.into(), -2.0, f32::MAX.into(), f32::MIN_POSITIVE.into()],
                    _ => [0.1, -2.0, f64::MAX, f64::MIN_POSITIVE],
                };
                let bytes = |value: f64| match size {
                    2 => f16::from_f64(value).to_ne_bytes().to_vec(),
                    4 => (value as f32).to_ne_bytes().to_vec(),
                    _ => value.to_ne_bytes().to_vec(),
                };
                let number = |value: f64| match of.is_complex {
                    true => {
                        ([bytes(value), bytes(-value)].concat(), (value, value as i128, -value))
                    }
                    false => (bytes(value), (value, value as i128, 0.0)),
                };
                all.into_iter().map(number).collect()
            }
        }
    }

    /// The meaning of an element, as `values` has it.
    fn meaning(of: ElementType, bytes: &[u8]) -> (f64, i128, f64) {
        let float = |bytes: &[u8]| match bytes.len() {
            2 => f16::from_ne_bytes(bytes.try_into().unwrap()).to_f64(),
            4 => f32::from_ne_bytes(bytes.try_into().unwrap()).into(),
            _ => f64::from_ne_bytes(bytes.try_into().unwrap()),
        };
        let integer: i128 = match (of.scalar, bytes.len()) {
            (Scalar::Signed(_), 1) => i8::from_ne_bytes(bytes.try_into().unwrap()).into(),
            (Scalar::Signed(_), 2) => i16::from_ne_bytes(bytes.try_into().unwrap()).into(),
            (Scalar::Signed(_), 4) => i32::from_ne_bytes(bytes.try_into().unwrap()).into(),
            (Scalar::Signed(_), _) => i64::from_ne_bytes(bytes.try_into().unwrap()).into(),
            (Scalar::Float(_), _) => {
                let (real, imaginary) =
                    bytes.split_at(bytes.len() / (1 + usize::from(of.is_complex)));
                let imaginary = if of.is_complex { float(imaginary) } else { 0.0 };
                return (float(real), float(real) as i128, imaginary);
            }
            (_, 1) => bytes[0].into(),
            (_, 2) => u16::from_ne_bytes(bytes.try_into().unwrap()).into(),
            (_, 4) => u32::from_ne_bytes(bytes.try_into().unwrap()).into(),
            (_, _) => u64::from_ne_bytes(bytes.try_into().unwrap()).into(),
        };
        (integer as f64, integer, 0.0)
    }

    fn data_type(of: ElementType) -> Option<DataType> {
        DataType::parse_v3(of.name)
    }

    #[test]
    fn every_pair_of_types_keeps_all_values_or_is_refused_by_name() {
        let (mut kept, mut refused) = (0, 0);
        for from in TYPES {
            for (to, stored) in TYPES.into_iter().filter_map(|to| Some((to, data_type(to)?))) {
                let given = values(from);
                let data: Vec<u8> = given.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
                let count = Some(given.len() as u64);
                match to_stored("t", stored, Some(from), count, &data) {
                    Ok(written) => {
                        let back = written.chunks(to.bytes()).map(|bytes| meaning(to, bytes));
                        let is_float = matches!(to.scalar, Scalar::Float(_));
                        for ((_, meant), back) in given.iter().zip(back) {
                            assert_eq!((meant.0, meant.2), (back.0, back.2), "{from:?} to {to:?}");
                            assert!(is_float || meant.1 == back.1, "{from:?} to {to:?}");
                        }
                        kept += 1;
                    }
                    Err(error) => {
                        let text = error.to_string();
                        assert!(text.contains(from.name) && text.contains(to.name), "{text}");
                        refused += 1;
                    }
                }
            }
        }
        // NumPy's safe casts without those of 64-bit integers to floats, and four sizes of Fortran's
        // logicals to everything.
        assert_eq!((kept, refused), (76 + 4 * 14, 14 * 14 - 76));
    }

    #[test]
    fn elements_are_widened_in_place_whatever_their_number() {
        for count in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7] {
            let given: Vec<i16> =
                (0..count).map(|at| i16::try_from(at % 999).unwrap() - 500).collect();
            let mut buffer = vec![7; count * 16];
            let wanted = ElementType::parse("complex128");
            from_stored("t", DataType::Int16, wanted, Some(count as u64), &mut buffer, |stored| {
                let bytes: Vec<u8> = given.iter().flat_map(|value| value.to_ne_bytes()).collect();
                stored.copy_from_slice(&bytes);
                Ok(())
            })
            .unwrap();
            for (value, bytes) in given.iter().zip(buffer.chunks(16)) {
                assert_eq!(
                    meaning(wanted.unwrap(), bytes),
                    (f64::from(*value), i128::from(*value), 0.0)
                );
            }
        }
    }

    #[test]
    fn true_is_stored_as_1_however_it_is_represented() {
        let all = [0, 1, 2, 254, 255];
        for given in [None, ElementType::parse("bool"), ElementType::parse("logical8")] {
            let stored = to_stored("t", DataType::Bool, given, Some(5), &all).unwrap();
            assert_eq!(*stored, [0, 1, 1, 1, 1]);
        }
        let four: Vec<u8> =
            [0_i32, 1, -1, 255, 1 << 31].iter().flat_map(|value| value.to_ne_bytes()).collect();
        let given = ElementType::parse("logical32");
        let stored = to_stored("t", DataType::Bool, given, Some(5), &four).unwrap();
        assert_eq!(*stored, [0, 1, 1, 1, 1]);
        let mut back = vec![9; 20];
        from_stored("t", DataType::Bool, given, Some(5), &mut back, |stored| {
            stored.copy_from_slice(&all);
            Ok(())
        })
        .unwrap();
        let back: Vec<i32> =
            back.chunks(4).map(|bytes| i32::from_ne_bytes(bytes.try_into().unwrap())).collect();
        assert_eq!(back, [0, 1, 1, 1, 1]);
    }

    #[test]
    fn elements_that_are_no_numbers_have_the_type_that_their_memory_has() {
        let given = |name| ElementType::parse(name);
        let data = [0; 16];
        let time = DataType::parse_numpy("<M8[ns]").unwrap().0;
        for (stored, fits, not) in [
            (time, "int64", "float64"),
            (DataType::FixedBytes(4), "uint8", "float32"),
            (DataType::FixedUnicode(4), "uint32", "float32"),
        ] {
            assert_eq!(*to_stored("t", stored, given(fits), None, &data).unwrap(), data);
            assert!(to_stored("t", stored, given(not), None, &data).is_err());
        }
        assert!(to_stored("t", DataType::Raw(16), given("complex128"), None, &data).is_ok());
        for (bytes, count) in [(5, Some(1)), (8, Some(1)), (4, None)] {
            let data = &data[..bytes];
            let error =
                to_stored("t", DataType::Float64, given("float32"), count, data).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(&format!("{bytes} bytes of float32 were given for t")), "{text}");
        }
    }
}
