//! Files compared with the first one: coordinates, fields that are not joined, and the joined
//! coordinate's values.
//!
//! The labels of an archive are those of its first file. Elements of a file with other labels would
//! be read under wrong ones, so labels are compared while the file is examined. The result is kept
//! with the archive.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

use bedform_format::archive::{CoordinateSpan, SpanKind};
use bedform_format::chunk_map::{ChunkMap, ForeignArray};
use bedform_format::{DataType, Limits};

use super::Compat;
use super::agree::is_native;
use super::examine::ExaminedFileMap;
use super::meaning::{
    TimeUnification, give_units_to_bounds, member_of, missing_elements, other_labels, shown,
    take_units, text, time_meaning, unified,
};
use super::values::{
    COMPARED_BYTES_MAX, TOLERANCE, TOLERANCE_OF_TIMES, VariableElements, bytes_of,
};
use crate::error::Result;
use crate::foreign::attributes::{AttributeStyle, dimension_names, group_attributes};

/// The most bytes of fields of the first file to hold, and of fields of all other files to read.
const FIELD_BYTES_MAX: u64 = 64 << 20;
const FIELD_BYTES_READ_MAX: u64 = 256 << 20;
/// The most bytes of converted times that an archive holds.
const CONVERTED_BYTES_MAX: u64 = 64 << 20;

/// The labels of a coordinate.
#[derive(Debug, PartialEq)]
enum CoordinateLabels {
    Numbers(VariableElements),
    Texts(Vec<String>),
}

impl CoordinateLabels {
    fn bytes(&self) -> u64 {
        match self {
            Self::Numbers(elements) => elements.bytes.len() as u64,
            Self::Texts(texts) => texts.iter().map(|text| text.len() as u64).sum(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Numbers(elements) => elements.len(),
            Self::Texts(texts) => texts.len(),
        }
    }

    fn shown(&self, at: usize) -> String {
        match self {
            Self::Numbers(elements) => elements.shown(at),
            Self::Texts(texts) => texts.get(at).map(|text| format!("{text:?}")).unwrap_or_default(),
        }
    }

    /// Returns the first position at which the label differs from that of `other`, which has as
    /// many and belongs to `array`.
    fn differs_at(&self, other: &Self, array: &ForeignArray) -> Option<usize> {
        let is_time = time_meaning(array).is_some();
        let tolerance = if is_time { TOLERANCE_OF_TIMES } else { TOLERANCE };
        match (self, other) {
            (Self::Numbers(own), Self::Numbers(that)) => own.differs_at(that, tolerance),
            (Self::Texts(own), Self::Texts(that)) => {
                own.iter().zip(that).position(|(own, that)| own != that)
            }
            _ => Some(0),
        }
    }
}

/// Returns the labels of a variable of a file; `None` for one that is not compared.
fn labels_of(
    file: &ExaminedFileMap,
    number: usize,
    limits: &Limits,
) -> Result<Option<CoordinateLabels>> {
    let array = &file.map.arrays[number];
    if array.data_type == Some(DataType::String) {
        return Ok(file.texts(number, limits)?.map(CoordinateLabels::Texts));
    }
    let Some(elements) = file.elements(number, limits)? else { return Ok(None) };
    let width = match (elements.data_type, &*array.shape) {
        // Characters, with a text in each row.
        (DataType::FixedBytes(1), [_, .., width]) => usize::try_from(*width).unwrap_or(usize::MAX),
        (DataType::FixedBytes(width), [_]) => usize::try_from(width).unwrap_or(usize::MAX),
        _ => return Ok(Some(CoordinateLabels::Numbers(elements))),
    };
    let text = |row: &[u8]| String::from_utf8_lossy(row).trim_end_matches('\0').to_owned();
    Ok(Some(CoordinateLabels::Texts(elements.bytes.chunks_exact(width.max(1)).map(text).collect())))
}

/// Returns the dimension whose labels a variable holds; `None` for other variables.
fn labelled(array: &ForeignArray) -> Option<String> {
    let name = array.path.rsplit('/').next().unwrap_or(&array.path);
    let dimensions = dimension_names(array);
    let is_text = array.data_type == Some(DataType::FixedBytes(1));
    let has_labels = dimensions.len() == 1 || dimensions.len() == 2 && is_text;
    let first = dimensions.into_iter().next();
    first.filter(|first| has_labels && first == name)
}

/// Returns the paths of variables that other variables name as their coordinates.
fn named_coordinates(map: &ChunkMap) -> HashSet<String> {
    let of_arrays = map.arrays.iter().filter_map(|array| {
        let group = array.path.rsplit_once('/').map_or("", |(group, _)| group);
        Some((group, text(array, "coordinates")?))
    });
    let of_groups = map.groups.iter().filter_map(|group| {
        let attributes = group_attributes(&group.attributes, AttributeStyle::H5netcdf);
        Some((group.path.as_str(), attributes.get("coordinates")?.as_str()?.to_owned()))
    });
    let mut paths = HashSet::new();
    for (group, names) in of_arrays.chain(of_groups) {
        paths.extend(names.split_whitespace().map(|name| member_of(group, name)));
    }
    paths
}

/// Returns the variable with the labels of the joined dimension, the one nearest to the root.
pub(super) fn joined_coordinate(arrays: &[ForeignArray], dimension: &str) -> Option<usize> {
    let is_number = |array: &ForeignArray| {
        let is_text = matches!(
            array.data_type,
            None | Some(DataType::String | DataType::FixedBytes(_) | DataType::FixedUnicode(_))
        );
        !is_native(array) && !is_text
    };
    let numbers = 0..arrays.len();
    let found = numbers.filter(|number| {
        let array = &arrays[*number];
        labelled(array).as_deref() == Some(dimension) && is_number(array)
    });
    found.min_by_key(|number| arrays[*number].path.matches('/').count())
}

/// The variables of the first file with which those of the others are compared.
pub(super) struct Comparison {
    /// All variables; the bounds of times have the units of the times.
    arrays: Vec<ForeignArray>,
    file: String,
    limits: Limits,
    joined: Vec<usize>,
    /// The variable with the labels of the joined dimension.
    coordinate: Option<usize>,
    labels: Vec<(usize, CoordinateLabels)>,
    /// Fields that are not joined, with their values; `None` for a large field.
    fields: Vec<(usize, Option<CoordinateLabels>)>,
    /// Of so many files, one has its fields compared.
    stride: usize,
    converted_bytes: AtomicU64,
}

/// The result of a comparison with the first file.
#[derive(Debug, Default)]
pub(super) struct ComparisonResult {
    pub(super) span: CoordinateSpan,
    pub(super) differing: Vec<u32>,
    /// The first reason why the file does not fit.
    pub(super) problem: Option<String>,
}

impl Comparison {
    /// Reads the variables of `first`, which is at `file`, for comparison with `count` other files
    /// joined along `dimension`.
    ///
    /// # Errors
    /// As [`ExaminedFileMap::elements`].
    pub(super) fn new(
        first: &ExaminedFileMap,
        (file, count): (String, usize),
        dimension: &str,
        (compat, limits): (Compat, &Limits),
    ) -> Result<Self> {
        let mut arrays = first.map.arrays.clone();
        give_units_to_bounds(&mut arrays);
        let named = named_coordinates(&first.map);
        let (mut joined, mut labels, mut fields) = (Vec::new(), Vec::new(), Vec::new());
        let mut left = FIELD_BYTES_MAX;
        for (number, array) in arrays.iter().enumerate() {
            let is_coordinate =
                labelled(array).is_some() || array.shape.len() == 1 && named.contains(&array.path);
            if dimension_names(array).iter().any(|name| name == dimension) {
                joined.push(number);
                continue;
            }
            if compat == Compat::Override {
                continue;
            }
            if is_coordinate {
                let found = labels_of(first, number, limits).map_err(|error| error.at(&file))?;
                labels.extend(found.map(|found| (number, found)));
            } else if !is_native(array) || array.data_type == Some(DataType::String) {
                let is_held = bytes_of(array).is_none_or(|bytes| bytes <= left);
                let read = is_held.then(|| labels_of(first, number, limits).ok().flatten());
                let read = read.flatten();
                left = left.saturating_sub(read.as_ref().map_or(0, CoordinateLabels::bytes));
                fields.push((number, read));
            }
        }
        let bytes = (FIELD_BYTES_MAX - left).saturating_mul(count as u64);
        let stride = usize::try_from(bytes.div_ceil(FIELD_BYTES_READ_MAX)).unwrap_or(usize::MAX);
        let coordinate = joined_coordinate(&arrays, dimension);
        Ok(Self {
            arrays,
            file,
            limits: limits.clone(),
            joined,
            coordinate,
            labels,
            fields,
            stride: stride.max(1),
            converted_bytes: AtomicU64::new(CONVERTED_BYTES_MAX),
        })
    }

    /// Returns the variables of the first file, as the others are compared with them.
    pub(super) fn arrays(&self) -> &[ForeignArray] {
        &self.arrays
    }

    /// Returns the first file, as the others are compared with it, and the span of its joined
    /// coordinate.
    ///
    /// # Errors
    /// As [`ExaminedFileMap::elements`].
    pub(super) fn of_first(
        &self,
        first: &ExaminedFileMap,
    ) -> Result<(ExaminedFileMap, ComparisonResult)> {
        let mut own = first.clone();
        own.map.arrays.clone_from(&self.arrays);
        let span = match self.coordinate {
            Some(number) => span_of(
                first.elements(number, &self.limits).map_err(|error| error.at(&self.file))?,
                &missing_elements(&self.arrays[number]),
            ),
            None => CoordinateSpan::default(),
        };
        Ok((own, ComparisonResult { span, ..ComparisonResult::default() }))
    }

    /// Compares a file, the `position`-th of the new ones, and converts its joined times.
    ///
    /// # Errors
    /// As [`ExaminedFileMap::elements`].
    pub(super) fn compare(
        &self,
        file: &mut ExaminedFileMap,
        position: usize,
    ) -> Result<ComparisonResult> {
        give_units_to_bounds(&mut file.map.arrays);
        let paths = file.map.arrays.iter().map(|array| array.path.clone());
        let numbers: HashMap<String, usize> = paths.zip(0..).collect();
        let number_of = |number: usize| numbers.get(&self.arrays[number].path).copied();
        let mut compared = ComparisonResult::default();
        let mut problem = None;
        for &number in &self.joined {
            let Some(own) = number_of(number) else { continue };
            let found = self.unify(file, (number, own))?;
            if let UnitsOutcome::Failed(reason) = found {
                problem = problem.or(Some(reason));
                continue;
            }
            if self.coordinate == Some(number) {
                let elements = match found {
                    UnitsOutcome::Converted(elements) => Some(elements),
                    _ => file.elements(own, &self.limits)?,
                };
                compared.span = span_of(elements, &missing_elements(&file.map.arrays[own]));
            }
        }
        for (number, labels) in &self.labels {
            let Some(own) = number_of(*number) else { continue };
            problem = problem.or(self.other_labels(file, (*number, own), labels)?);
        }
        if position.is_multiple_of(self.stride) {
            for (number, values) in &self.fields {
                let Some(own) = number_of(*number) else { continue };
                if self.is_other_field(file, (*number, own), values.as_ref()) {
                    compared.differing.extend(u32::try_from(*number));
                }
            }
        }
        Ok(ComparisonResult { problem, ..compared })
    }

    /// Converts a joined variable of a file to the units of the first file.
    fn unify(
        &self,
        file: &mut ExaminedFileMap,
        (number, own): (usize, usize),
    ) -> Result<UnitsOutcome> {
        let first = &self.arrays[number];
        let conversion = match unified(first, &file.map.arrays[own]) {
            TimeUnification::AsTheyAre => return Ok(UnitsOutcome::Same),
            TimeUnification::SameUnits => {
                take_units(first, &mut file.map.arrays[own]);
                return Ok(UnitsOutcome::Same);
            }
            TimeUnification::Never(reason) => {
                return Ok(UnitsOutcome::Failed(self.decoded_instead(&reason)));
            }
            TimeUnification::Convert(conversion) => conversion,
        };
        let path = &first.path;
        let bytes = bytes_of(&file.map.arrays[own]).unwrap_or(u64::MAX);
        let take = |left: u64| left.checked_sub(bytes);
        let is_small = bytes <= COMPARED_BYTES_MAX
            && self
                .converted_bytes
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
                .is_ok();
        let times = if is_small { file.elements(own, &self.limits)? } else { None };
        let Some(times) = times else {
            let units = time_meaning(first).unwrap_or_default();
            let reason = format!("{path:?} has more times than are converted to {units:?}");
            return Ok(UnitsOutcome::Failed(self.decoded_instead(&reason)));
        };
        let array = &mut file.map.arrays[own];
        match conversion.apply(array, &times) {
            Ok(elements) => {
                take_units(first, array);
                file.datasets[own] = None;
                Ok(UnitsOutcome::Converted(elements))
            }
            Err(reason) => Ok(UnitsOutcome::Failed(self.decoded_instead(&reason))),
        }
    }

    fn decoded_instead(&self, reason: &str) -> String {
        format!(
            "{reason}, the units of {}: join decoded times, with xr.open_mfdataset(paths, \
             engine=\"bedform\")",
            self.file
        )
    }

    /// Returns the difference between a coordinate of a file and that of the first file.
    fn other_labels(
        &self,
        file: &ExaminedFileMap,
        (number, own): (usize, usize),
        labels: &CoordinateLabels,
    ) -> Result<Option<String>> {
        let (first, array) = (&self.arrays[number], &file.map.arrays[own]);
        let (path, of_first) = (&first.path, &self.file);
        let hint = "the labels of one file do not fit the other; compat=\"override\" takes those \
                    of the first file";
        if let Some((name, of, own)) = other_labels(first, array) {
            let (of, own) = (shown(of.as_ref()), shown(own.as_ref()));
            let text =
                format!("{path:?} has the attribute {name} {own}, in {of_first} {of}: {hint}");
            return Ok(Some(text));
        }
        let dimensions = [first, array].map(|array| dimension_names(array).into_iter().next());
        if dimensions[0] != dimensions[1] {
            let [of, own] = dimensions.map(Option::unwrap_or_default);
            return Ok(Some(format!("{path:?} lies along {own}, in {of_first} along {of}")));
        }
        let Some(found) = labels_of(file, own, &self.limits)? else { return Ok(None) };
        if found.len() != labels.len() {
            let (own, of) = (found.len(), labels.len());
            return Ok(Some(format!("{path:?} has {own} labels, in {of_first} {of}")));
        }
        Ok(found.differs_at(labels, first).map(|at| {
            let (own, of) = (found.shown(at), labels.shown(at));
            format!("{path:?} is {own} at position {at}, in {of_first} {of}: {hint}")
        }))
    }

    /// Returns true if a field of a file, which is not joined, differs from that of the first file.
    fn is_other_field(
        &self,
        file: &ExaminedFileMap,
        (number, own): (usize, usize),
        values: Option<&CoordinateLabels>,
    ) -> bool {
        use CoordinateLabels::{Numbers, Texts};
        let (first, array) = (&self.arrays[number], &file.map.arrays[own]);
        let is_alike = first.shape == array.shape && first.data_type == array.data_type;
        if other_labels(first, array).is_some() {
            return true;
        }
        match (values, labels_of(file, own, &self.limits)) {
            // Texts may be padded to another width.
            (Some(Texts(of)), Ok(Some(Texts(own)))) => *of != own,
            (Some(Numbers(of)), Ok(Some(Numbers(own)))) => !is_alike || own.is_other(of),
            // Damaged values count as different.
            (Some(_), Err(_)) => true,
            _ => !is_alike,
        }
    }
}

/// The outcome of converting a variable to the units of the first file.
enum UnitsOutcome {
    Same,
    Converted(VariableElements),
    Failed(String),
}

/// Returns the order and the ends of a coordinate's values; the default for a coordinate that is
/// too large to read.
fn span_of(elements: Option<VariableElements>, missing: &[Vec<u8>]) -> CoordinateSpan {
    let Some(elements) = elements else { return CoordinateSpan::default() };
    let of_kind = |kind| CoordinateSpan { kind, ..CoordinateSpan::default() };
    let is_missing = elements.iter().any(|element| missing.iter().any(|one| one == element));
    let numbers = (0..elements.len()).map(|at| elements.number(at));
    let Some(numbers) = numbers.collect::<Option<Vec<f64>>>() else {
        return CoordinateSpan::default();
    };
    let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else {
        return of_kind(SpanKind::Empty);
    };
    if is_missing || !numbers.iter().all(|number| number.is_finite()) {
        return of_kind(SpanKind::Unordered);
    }
    let rises = numbers.windows(2).all(|pair| pair[0] <= pair[1]);
    let falls = numbers.windows(2).all(|pair| pair[0] >= pair[1]);
    let kind = match (rises, falls) {
        (true, true) => SpanKind::Constant,
        (true, false) => SpanKind::Increasing,
        (false, true) => SpanKind::Decreasing,
        (false, false) => SpanKind::Unordered,
    };
    CoordinateSpan { kind, first: *first, last: *last }
}

/// Returns the dimensions along which two files may be joined: those whose labels differ, or else
/// those without labels whose lengths differ.
///
/// # Errors
/// As [`ExaminedFileMap::elements`].
pub(super) fn differing_dimensions(
    first: &ExaminedFileMap,
    other: &ExaminedFileMap,
    limits: &Limits,
) -> Result<BTreeSet<String>> {
    let of_other = other.map.arrays.iter().map(|array| array.path.as_str());
    let numbers: HashMap<&str, usize> = of_other.zip(0..).collect();
    let (mut by_labels, mut by_length) = (BTreeSet::new(), BTreeSet::new());
    for (number, array) in first.map.arrays.iter().enumerate() {
        let Some(&own) = numbers.get(array.path.as_str()) else { continue };
        let that = &other.map.arrays[own];
        let names = dimension_names(array);
        if names != dimension_names(that) {
            continue;
        }
        if let Some(dimension) = labelled(array) {
            let is_other = array.shape.first() != that.shape.first()
                || other_labels(array, that).is_some()
                || match (labels_of(first, number, limits)?, labels_of(other, own, limits)?) {
                    (Some(of), Some(own)) => own.differs_at(&of, array).is_some(),
                    _ => false,
                };
            by_labels.extend(is_other.then_some(dimension));
            continue;
        }
        let axes = array.shape.iter().zip(&that.shape).zip(names);
        by_length.extend(axes.filter(|((a, b), _)| a != b).map(|(_, name)| name));
    }
    Ok(if by_labels.is_empty() { by_length } else { by_labels })
}
