//! Stored elements into values, as xarray decodes them.
//!
//! The steps are those of `CFMaskCoder`, `CFScaleOffsetCoder` and `BooleanCoder` of
//! `xarray/coding/variables.py` (2026.9), in this order:
//!
//! 1. `_Unsigned` reinterprets integers;
//! 2. elements are converted to the type of values, which the types of the attributes choose;
//! 3. missing values become NaN: they are compared in the type of values, so an integer close to a
//!    missing one is missing too where the conversion rounds both to one float;
//! 4. values are multiplied by `scale_factor`, then `add_offset` is added; each step is computed in
//!    the type that NumPy promotes to, and rounded to the type of values;
//! 5. the attribute `dtype` of "bool" makes booleans.

use crate::elementwise::{apply_constant, cast_into};
use crate::error::ExpressionError;
use crate::keys::{first_key, key, key_range, value};
use crate::numeric::{BinaryOperation, Numeric, with_number};
use crate::stored_set::StoredSet;
use crate::syntax::ArithmeticSign;
use crate::types::promoted;
use crate::values::{Run, ScalarValue, ValueSlice, ValueType, Values};

/// Elements that are decoded at once, so that the steps find them in the cache.
const TILE: usize = 4096;

/// The number of an attribute, with the type that xarray sees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AttributeNumber {
    /// A Python integer, as attributes of Zarr stores are.
    Integer(i128),
    /// A Python float, as attributes of Zarr stores are.
    Real(f64),
    /// A NumPy scalar, as attributes of NetCDF files are.
    Typed(ScalarValue),
}

/// The attributes that say how stored elements become values.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Packing {
    /// `_FillValue`: usually one number.
    pub fill_value: Vec<AttributeNumber>,
    /// `missing_value`: one number or a list.
    pub missing_value: Vec<AttributeNumber>,
    /// `scale_factor`.
    pub scale_factor: Option<AttributeNumber>,
    /// `add_offset`.
    pub add_offset: Option<AttributeNumber>,
    /// `_Unsigned`: true for the text "true", false for "false", `None` for all else.
    pub unsigned: Option<bool>,
    /// True if the attribute `dtype` is "bool".
    pub boolean: bool,
}

/// How stored elements become values.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueDecoding {
    stored: ValueType,
    /// The type that `_Unsigned` says.
    viewed: ValueType,
    /// The type of values before they become booleans.
    value: ValueType,
    /// The values that become NaN, in the type of values.
    masked: Vec<ScalarValue>,
    steps: Vec<DecodingStep>,
    boolean: bool,
    /// The stored values that ranges leave out, without NaN; `None` if that is unknown.
    missing: Option<StoredSet>,
}

/// Values that an index leaves out of its ranges, beside the missing ones of a [`ValueDecoding`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftOutValues {
    /// They are the missing ones.
    Missing,
    /// All of them are missing, others too: a range may hold missing values.
    SomeMissing,
    /// Some are not missing, or nothing is known: its ranges are too narrow to decide anything.
    Others,
}

/// A step of arithmetic: the number has the type that the step is computed in.
#[derive(Debug, Clone, Copy, PartialEq)]
struct DecodingStep {
    sign: ArithmeticSign,
    number: ScalarValue,
}

impl ValueDecoding {
    /// Values are the stored elements. Nothing is known of missing values: a range with some decides
    /// nothing. See [`Self::undecoded`].
    pub fn raw(stored: ValueType) -> Self {
        Self {
            stored,
            viewed: stored,
            value: stored,
            masked: Vec::new(),
            steps: Vec::new(),
            boolean: false,
            missing: None,
        }
    }

    /// Values are decoded as `xarray.open_dataset` does by default.
    ///
    /// # Errors
    ///
    /// For attributes that xarray refuses, and for those that would truncate values.
    ///
    /// # Examples
    ///
    /// ```
    /// use bedform_query::{AttributeNumber, Packing, ScalarValue, ValueDecoding, ValueType};
    ///
    /// let float = |number| Some(AttributeNumber::Typed(ScalarValue::Float64(number)));
    /// let packing = Packing {
    ///     fill_value: vec![AttributeNumber::Typed(ScalarValue::Int16(-32767))],
    ///     scale_factor: float(0.01),
    ///     add_offset: float(273.15),
    ///     ..Packing::default()
    /// };
    /// let decoding = ValueDecoding::new(ValueType::Int16, packing)?;
    /// assert_eq!(decoding.decoded(), ValueType::Float64);
    /// # Ok::<(), bedform_query::ExpressionError>(())
    /// ```
    pub fn new(stored: ValueType, packing: Packing) -> Result<Self, ExpressionError> {
        let viewed = viewed(stored, packing.unsigned);
        let numbers = MissingNumbers::of(stored, viewed, &packing)?;
        let value = value_type(viewed, &packing, &numbers)?;
        let masked = numbers.masks.iter().filter_map(|mask| mask.in_type(value)).collect();
        let mut decoding = Self {
            stored,
            viewed,
            value,
            masked,
            steps: Vec::new(),
            boolean: packing.boolean,
            missing: None,
        };
        let signs = [ArithmeticSign::Multiply, ArithmeticSign::Add];
        for (sign, number) in signs.into_iter().zip([packing.scale_factor, packing.add_offset]) {
            if let Some(number) = number {
                decoding.steps.push(DecodingStep { sign, number: number.beside(value)? });
            }
        }
        decoding.missing = Some(decoding.missing_set());
        Ok(decoding)
    }

    /// The same array with `decode=False`: values are the stored elements. Ranges may leave out the
    /// missing values of `self`; deciding adds them.
    #[must_use]
    pub fn undecoded(&self) -> Self {
        Self { missing: self.missing.clone(), ..Self::raw(self.stored) }
    }

    /// Returns the type of stored elements.
    pub fn stored(&self) -> ValueType {
        self.stored
    }

    /// Returns the type of values.
    pub fn decoded(&self) -> ValueType {
        if self.boolean { ValueType::Bool } else { self.value }
    }

    /// Decodes a run: `out` holds its values and nothing else afterwards. Its memory is kept if it
    /// had this type before.
    ///
    /// # Panics
    ///
    /// If the elements are not of the stored type.
    pub fn decode(&self, stored: ValueSlice<'_>, out: &mut Values) {
        assert_eq!(stored.value_type(), self.stored, "elements of the stored type");
        with_number!(
            self.value,
            T => self.decode_numbers::<T>(&stored, out),
            bool => {
                out.become_type(ValueType::Bool);
                cast_into(&stored, out);
            }
        );
        if self.boolean && self.value != ValueType::Bool {
            let mut bytes = Values::new(ValueType::Bool);
            cast_into(&out.as_slice(), &mut bytes);
            *out = bytes;
        }
    }

    fn decode_numbers<T: Numeric>(&self, stored: &ValueSlice<'_>, out: &mut Values) {
        out.become_type(T::TYPE);
        if stored.len() <= TILE || self.is_identity() {
            return self.decode_tile::<T>(*stored, out);
        }
        let mut memory = std::mem::take(T::elements_of(out));
        memory.clear();
        memory.reserve(stored.len());
        let mut tile = Values::new(T::TYPE);
        for start in (0..stored.len()).step_by(TILE) {
            let end = stored.len().min(start + TILE);
            self.decode_tile::<T>(stored.slice(start, end), &mut tile);
            memory.extend_from_slice(T::elements_of(&mut tile));
        }
        *T::elements_of(out) = memory;
    }

    fn decode_tile<T: Numeric>(&self, stored: ValueSlice<'_>, out: &mut Values) {
        cast_into(&self.viewed_slice(stored).as_slice(), out);
        self.mask::<T>(T::elements_of(out));
        let mut wide = Values::new(self.value);
        for step in &self.steps {
            step.apply(out, &mut wide);
        }
    }

    /// The elements in the type that `_Unsigned` says.
    fn viewed_slice<'a>(&self, elements: ValueSlice<'a>) -> Run<'a> {
        if self.viewed == self.stored {
            return Run::Borrowed(elements);
        }
        let mut values = Values::new(self.viewed);
        cast_into(&elements, &mut values);
        Run::Owned(values)
    }

    fn mask<T: Numeric>(&self, values: &mut [T]) {
        let Some(nan) = T::of(ScalarValue::Float64(f64::NAN).cast(T::TYPE)) else { return };
        for masked in self.masked.iter().filter_map(|masked| T::of(*masked)) {
            for value in &mut *values {
                *value = if *value == masked { nan } else { *value };
            }
        }
    }

    /// Returns true if values are the stored elements.
    pub(crate) fn is_identity(&self) -> bool {
        self.value == self.stored
            && self.masked.is_empty()
            && self.steps.is_empty()
            && (!self.boolean || self.stored == ValueType::Bool)
    }

    /// The direction of the decoding, if greater elements never give lesser values (true) or never
    /// greater ones (false), and all but missing ones give numbers. `None` if neither is so.
    pub(crate) fn is_increasing(&self) -> Option<bool> {
        let has_order = !self.boolean || self.is_identity();
        if !has_order || (!self.value.is_float() && !self.steps.is_empty()) {
            return None;
        }
        let mut increasing = true;
        for step in &self.steps {
            if !step.number.is_finite() {
                return None;
            }
            if step.sign == ArithmeticSign::Multiply {
                let zero = ScalarValue::Bool(false).cast(step.number.value_type());
                increasing = match step.number.order(zero)? {
                    std::cmp::Ordering::Less => !increasing,
                    std::cmp::Ordering::Equal => return None,
                    std::cmp::Ordering::Greater => increasing,
                };
            }
        }
        Some(increasing)
    }

    /// The value of an element that is not missing, in the viewed type.
    pub(crate) fn value_of_viewed(&self, element: ScalarValue) -> ScalarValue {
        let value = self
            .steps
            .iter()
            .fold(element.cast(self.value), |value, step| step.apply_scalar(value));
        if self.boolean { value.cast(ValueType::Bool) } else { value }
    }

    /// The type that `_Unsigned` says.
    pub(crate) fn viewed(&self) -> ValueType {
        self.viewed
    }

    /// The interval of keys of viewed values, of one of stored keys: that of all values, if the two
    /// orders differ in it.
    pub(crate) fn viewed_span(&self, (least, greatest): (u64, u64)) -> (u64, u64) {
        if self.viewed == self.stored {
            return (least, greatest);
        }
        let of = |at| key(value(self.stored, at).cast(self.viewed)).unwrap_or(0);
        let span = (of(least), of(greatest));
        if span.0 <= span.1 { span } else { key_range(self.viewed) }
    }

    /// Returns true if values are scaled or offset.
    pub(crate) fn has_steps(&self) -> bool {
        !self.steps.is_empty()
    }

    /// Returns true if some stored elements become NaN.
    pub(crate) fn has_masks(&self) -> bool {
        !self.masked.is_empty()
    }

    /// How values that an index leaves out of its ranges, NaN aside, relate to those that are
    /// missing by this decoding.
    ///
    /// # Examples
    ///
    /// ```
    /// use bedform_query::{AttributeNumber, LeftOutValues, Packing, ScalarValue, ValueDecoding, ValueType};
    ///
    /// let fill_value = vec![AttributeNumber::Typed(ScalarValue::Int16(-1))];
    /// let decoding = ValueDecoding::new(ValueType::Int16, Packing { fill_value, ..Packing::default() })?;
    /// assert_eq!(decoding.left_out(&[ScalarValue::Int16(-1)]), LeftOutValues::Missing);
    /// assert_eq!(decoding.left_out(&[]), LeftOutValues::SomeMissing);
    /// assert_eq!(decoding.left_out(&[ScalarValue::Int16(7)]), LeftOutValues::Others);
    /// # Ok::<(), bedform_query::ExpressionError>(())
    /// ```
    pub fn left_out(&self, values: &[ScalarValue]) -> LeftOutValues {
        let Some(missing) = &self.missing else { return LeftOutValues::Others };
        let keys: Vec<u64> = values.iter().filter_map(|value| key(*value)).collect();
        if !keys.iter().all(|at| missing.meets((*at, *at)).0) {
            return LeftOutValues::Others;
        }
        let spans = keys.into_iter().map(|at| (at, at)).collect();
        match StoredSet::new(self.stored, spans, false).spans() == missing.spans() {
            true => LeftOutValues::Missing,
            false => LeftOutValues::SomeMissing,
        }
    }

    /// The stored values that ranges leave out, without NaN; `None` if that is unknown.
    pub(crate) fn missing(&self) -> Option<&StoredSet> {
        self.missing.as_ref()
    }

    /// The stored values that become NaN, without NaN.
    fn missing_set(&self) -> StoredSet {
        let (least, greatest) = key_range(self.viewed);
        let mut spans = Vec::new();
        for masked in &self.masked {
            let order = |at| value(self.viewed, at).cast(self.value).order(*masked);
            let first =
                first_key((least, greatest), |at| order(at).is_some_and(|order| order.is_ge()));
            let beyond =
                first_key((least, greatest), |at| order(at).is_some_and(|order| order.is_gt()));
            let last = match beyond {
                None => Some(greatest),
                Some(beyond) => beyond.checked_sub(1),
            };
            spans.extend(first.zip(last));
        }
        self.stored_set(spans, false)
    }

    /// Makes a set of stored values from intervals of the viewed type.
    pub(crate) fn stored_set(&self, spans: Vec<(u64, u64)>, has_nan: bool) -> StoredSet {
        if self.viewed == self.stored {
            return StoredSet::new(self.stored, spans, has_nan);
        }
        // The stored order is the viewed one from the least stored value on, then from the front.
        let split =
            key(value(self.stored, key_range(self.stored).0).cast(self.viewed)).unwrap_or(0);
        let to_stored = |at: u64| key(value(self.viewed, at).cast(self.stored)).unwrap_or(0);
        let mut parts = Vec::new();
        for (least, greatest) in spans.into_iter().filter(|(least, greatest)| least <= greatest) {
            if least < split {
                parts.push((to_stored(least), to_stored(greatest.min(split - 1))));
            }
            if greatest >= split {
                parts.push((to_stored(least.max(split)), to_stored(greatest)));
            }
        }
        StoredSet::new(self.stored, parts, has_nan)
    }
}

impl DecodingStep {
    /// Applies the step to values, by way of the type that it is computed in.
    fn apply(&self, values: &mut Values, wide: &mut Values) {
        let operation = BinaryOperation::Arithmetic(self.sign);
        let (value_type, step_type) = (values.value_type(), self.number.value_type());
        if value_type == step_type {
            return apply_constant(operation, values, self.number);
        }
        wide.become_type(step_type);
        cast_into(&values.as_slice(), wide);
        apply_constant(operation, wide, self.number);
        cast_into(&wide.as_slice(), values);
    }

    fn apply_scalar(&self, value: ScalarValue) -> ScalarValue {
        let operation = BinaryOperation::Arithmetic(self.sign);
        let result = value.cast(self.number.value_type()).binary(operation, self.number);
        result.unwrap_or(value).cast(value.value_type())
    }
}

impl AttributeNumber {
    /// The type that xarray reads off the number.
    fn value_type(self) -> ValueType {
        match self {
            Self::Integer(_) => ValueType::Int64,
            Self::Real(_) => ValueType::Float64,
            Self::Typed(value) => value.value_type(),
        }
    }

    fn is_nan(self) -> bool {
        match self {
            Self::Integer(_) => false,
            Self::Real(value) => value.is_nan(),
            Self::Typed(value) => value.is_nan(),
        }
    }

    /// The number in the type that arithmetic with elements of a type is computed in.
    fn beside(self, value_type: ValueType) -> Result<ScalarValue, ExpressionError> {
        match self {
            Self::Typed(value) => Ok(value.cast(promoted(value_type, value.value_type()))),
            Self::Real(value) => Ok(ScalarValue::Float64(value).cast(value_type)),
            Self::Integer(value) => ScalarValue::of_python(value, value_type)
                .ok_or_else(|| refused(format!("{value} does not fit into {value_type}"))),
        }
    }

    /// Returns true if both are the same number.
    fn equals(self, other: Self) -> bool {
        match (self.exact(), other.exact()) {
            (Ok(one), Ok(other)) => one == other,
            (Err(one), Err(other)) => one == other,
            // An integer and a float: equal if both conversions lose nothing.
            (Ok(integer), Err(float)) | (Err(float), Ok(integer)) => {
                integer as f64 == float && float as i128 == integer
            }
        }
    }

    /// The number as an integer or a float.
    fn exact(self) -> Result<i128, f64> {
        let float = |value: ScalarValue| match value.cast(ValueType::Float64) {
            ScalarValue::Float64(value) => value,
            _ => f64::NAN,
        };
        match self {
            Self::Integer(value) => Ok(value),
            Self::Real(value) => Err(value),
            Self::Typed(value) => value.integer().ok_or_else(|| float(value)),
        }
    }
}

impl ScalarValue {
    /// Converts a Python integer as NumPy does beside an array; `None` if it does not fit.
    pub(crate) fn of_python(value: i128, to: ValueType) -> Option<Self> {
        if to.is_float() {
            return Some(Self::Float64(value as f64).cast(to));
        }
        Self::of_integer(value, to)
    }
}

/// A value that becomes NaN: it is compared with elements as NumPy does.
#[derive(Debug, Clone, Copy)]
struct MissingNumber {
    number: AttributeNumber,
    /// True for a Python number, which takes the type of the elements.
    is_weak: bool,
}

impl MissingNumber {
    /// The one value of a float type that equals the mask; `None` if there is none.
    fn in_type(self, value_type: ValueType) -> Option<ScalarValue> {
        let number = match self.number {
            AttributeNumber::Integer(value) if self.is_weak => {
                return ScalarValue::of_python(value, value_type);
            }
            // NumPy makes arrays of Python's numbers first: of 64 bits.
            AttributeNumber::Integer(value) => ScalarValue::Float64(value as f64),
            AttributeNumber::Real(value) => ScalarValue::Float64(value),
            AttributeNumber::Typed(value) => value,
        };
        let number = number.cast(promoted(value_type, number.value_type()));
        let value = number.cast(value_type);
        let back = value.cast(number.value_type());
        (back.order(number) == Some(std::cmp::Ordering::Equal)).then_some(value)
    }
}

/// The missing values that xarray collects from the attributes.
struct MissingNumbers {
    masks: Vec<MissingNumber>,
    /// True if an attribute is kept, perhaps with NaN alone.
    has_attribute: bool,
}

impl MissingNumbers {
    fn of(
        stored: ValueType,
        viewed: ValueType,
        packing: &Packing,
    ) -> Result<Self, ExpressionError> {
        let numbers = |list: &[AttributeNumber]| -> Vec<AttributeNumber> {
            list.iter().copied().filter(|number| !number.is_nan()).collect()
        };
        let (mut fills, mut missing) =
            (numbers(&packing.fill_value), numbers(&packing.missing_value));
        // Integers cannot be NaN: xarray drops such an attribute.
        let kept = |list: &[AttributeNumber], numbers: &[AttributeNumber]| {
            !(list.is_empty() || numbers.is_empty() && stored.is_integer())
        };
        let keeps_fill = kept(&packing.fill_value, &fills);
        let has_attribute = keeps_fill || kept(&packing.missing_value, &missing);
        let mut reinterpreted_fill = None;
        if viewed != stored && keeps_fill {
            let [fill] = packing.fill_value[..] else {
                return Err(refused("`_FillValue` beside `_Unsigned` must be one number".into()));
            };
            fills.clear();
            missing.retain(|number| !number.equals(fill));
            // A Python integer if the array becomes unsigned, else a scalar of its type.
            let number = reinterpreted(fill, stored, viewed)?;
            reinterpreted_fill = Some(MissingNumber { number, is_weak: stored.is_signed() });
        }
        let strong = missing.into_iter().chain(fills);
        let strong = strong.map(|number| MissingNumber { number, is_weak: false });
        Ok(Self { masks: strong.chain(reinterpreted_fill).collect(), has_attribute })
    }
}

/// The fill value as `_Unsigned` reinterprets it.
fn reinterpreted(
    fill: AttributeNumber,
    stored: ValueType,
    viewed: ValueType,
) -> Result<AttributeNumber, ExpressionError> {
    let held = if stored.is_signed() { stored } else { viewed };
    let value = match fill {
        AttributeNumber::Typed(value) if !value.value_type().is_float() => Some(value.cast(held)),
        _ => {
            let whole = match fill.exact() {
                Ok(value) => Some(value),
                Err(value) => Some(value as i128).filter(|whole| *whole as f64 == value),
            };
            whole.and_then(|value| ScalarValue::of_integer(value, held))
        }
    };
    let value = value.ok_or_else(|| refused(format!("`_FillValue` does not fit into {held}")))?;
    let value = value.cast(viewed);
    Ok(match value.integer() {
        Some(integer) if stored.is_signed() => AttributeNumber::Integer(integer),
        _ => AttributeNumber::Typed(value),
    })
}

/// The type that `_Unsigned` gives to stored elements.
fn viewed(stored: ValueType, unsigned: Option<bool>) -> ValueType {
    use ValueType::{Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    match (unsigned, stored) {
        (Some(true), Int8) => UInt8,
        (Some(true), Int16) => UInt16,
        (Some(true), Int32) => UInt32,
        (Some(true), Int64) => UInt64,
        (Some(false), UInt8) => Int8,
        (Some(false), UInt16) => Int16,
        (Some(false), UInt32) => Int32,
        (Some(false), UInt64) => Int64,
        _ => stored,
    }
}

/// The type of values, before they become booleans.
fn value_type(
    viewed: ValueType,
    packing: &Packing,
    numbers: &MissingNumbers,
) -> Result<ValueType, ExpressionError> {
    let scales = packing.scale_factor.map(AttributeNumber::value_type);
    let offsets = packing.add_offset.map(AttributeNumber::value_type);
    if [scales, offsets].contains(&Some(ValueType::Bool)) {
        return Err(refused("`scale_factor` and `add_offset` must be numbers".into()));
    }
    let is_packed = scales.or(offsets).is_some();
    let chosen = if is_packed && (!numbers.masks.is_empty() || !numbers.has_attribute) {
        packed_type(viewed, scales, offsets)
    } else if !numbers.masks.is_empty() {
        masked_type(viewed).ok_or_else(|| refused("booleans have no missing values".into()))?
    } else {
        viewed
    };
    if is_packed && chosen == ValueType::Bool {
        return Err(refused("booleans are not scaled".into()));
    }
    if !chosen.is_float() && !numbers.masks.is_empty() {
        return Err(refused(
            "`scale_factor` is an integer: the values cannot be NaN where they are missing".into(),
        ));
    }
    if is_packed && viewed.is_float() && !chosen.is_float() {
        return Err(refused("`scale_factor` is an integer, which would truncate floats".into()));
    }
    Ok(chosen)
}

/// xarray's `_choose_float_dtype` for packed arrays.
fn packed_type(
    viewed: ValueType,
    scale: Option<ValueType>,
    offset: Option<ValueType>,
) -> ValueType {
    match (scale, offset) {
        (Some(one), Some(other)) if one == other && one.is_float() && one.bytes() >= 4 => {
            if viewed.is_integer() && viewed.bytes() == 4 { ValueType::Float64 } else { one }
        }
        (Some(one), None) => one,
        _ => ValueType::Float64,
    }
}

/// xarray's `maybe_promote`: a type that has NaN.
fn masked_type(viewed: ValueType) -> Option<ValueType> {
    match viewed {
        ValueType::Bool => None,
        float if float.is_float() => Some(float),
        integer if integer.bytes() <= 2 => Some(ValueType::Float32),
        _ => Some(ValueType::Float64),
    }
}

fn refused(message: String) -> ExpressionError {
    ExpressionError::of_whole(format!("the array cannot be decoded: {message}"))
}
