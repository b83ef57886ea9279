//! The plan of a conversion: a plain value, decided without reading elements.

use std::collections::{BTreeMap, BTreeSet};

use bedform_format::DataType;
use bedform_format::shown::shell_quoted;
use bedform_geometry::Order;
use bedform_storage::Profile;
use serde::Serialize;

use super::new_array::codecs_of;
use super::regions::{RegionSizing, Regions};
use super::source::{ConvertSource, SourceArray};
use super::target::ConvertTarget;
use super::words::{count_phrase, quoted};
use super::{ArrayLayoutChoice, CodecWish, ConvertOptions};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::automatic::{NewArrayFacts, default_shards, request};
use crate::layout::{Read, Reader, advise};

/// Assumed bytes of one text in counts of memory.
const TEXT_BYTES: u64 = 64;
/// Assumed bytes of one text in the choice of a layout.
const TEXT_BYTES_LAID_OUT: u64 = 16;
/// Bytes of one text in counts of progress: those of a pointer.
const TEXT_BYTES_COUNTED: u64 = 8;

/// The complaint about elements that no store can hold.
const NO_TYPE: &str = "Zarr has no type for";
/// The most members left out that get a warning each.
const WARNINGS_MAX: usize = 20;

/// The plan of a conversion. As JSON it has the same names.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ConvertPlan {
    /// The source as the user named it.
    pub source: String,
    /// The target as the user named it.
    pub target: String,
    /// The arrays, sorted by name.
    pub arrays: Vec<ArrayPlan>,
    /// The codecs of the arrays.
    pub codecs: CodecWish,
    /// Whether the objects of an array lie in one directory.
    #[serde(skip_serializing)]
    pub flat_keys: bool,
    /// Warnings for the user before it begins: members that cannot be read and are left out.
    pub warnings: Vec<String>,
}

/// The plan of one array.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArrayPlan {
    /// The array's path, the same in the source and in the target.
    pub name: String,
    /// Elements along each axis.
    pub shape: Vec<u64>,
    /// Type of the elements in the target, in NumPy's words: `<f4`; `|O` for text.
    pub dtype: String,
    /// Names of the axes.
    pub dims: Vec<String>,
    /// Elements of a chunk of the source along each axis; `None` for a source without chunks.
    pub source_chunks: Option<Vec<u64>>,
    /// Elements of a chunk of the target along each axis.
    pub chunks: Vec<u64>,
    /// Elements of a shard of the target along each axis.
    pub shards: Vec<u64>,
    /// The order of the chunks in a shard.
    pub order: String,
    /// Elements along each axis that are read and written at a time: whole shards.
    pub region: Vec<u64>,
    /// Bytes of an element in counts of progress.
    #[serde(skip_serializing)]
    pub item_size: u64,
}

impl ConvertPlan {
    /// The decoded bytes of all arrays.
    pub fn bytes(&self) -> u64 {
        self.arrays.iter().map(ArrayPlan::bytes).fold(0, u64::saturating_add)
    }
}

impl ArrayPlan {
    /// The decoded bytes of the array.
    pub fn bytes(&self) -> u64 {
        self.bytes_of(&self.shape)
    }

    pub(super) fn bytes_of(&self, shape: &[u64]) -> u64 {
        shape.iter().copied().fold(self.item_size, u64::saturating_mul)
    }

    pub(super) fn regions(&self) -> Regions<'_> {
        Regions::new(&self.shape, &self.region)
    }
}

/// Decides the arrays, their layouts and their regions.
pub(super) fn decide(
    source: &ConvertSource,
    target: &ConvertTarget,
    options: &ConvertOptions,
) -> Result<ConvertPlan> {
    let names = chosen_names(source, &options.exclude)?;
    let mut arrays = Vec::with_capacity(names.len());
    let (mut matched, mut known) = (BTreeSet::new(), BTreeSet::new());
    let (mut left_out, mut unstorable) = (source.refused(), BTreeMap::new());
    for name in names {
        let array = match source.array(&name) {
            Err(error) if source.is_store() && error.is_of_document() => {
                left_out.push((name, error.to_string()));
                continue;
            }
            outcome => outcome?,
        };
        if let Some(reason) = array.not_storable() {
            unstorable.insert(name, reason);
            continue;
        }
        let reads = reads_of(&array, options, &mut matched);
        known.extend(array.dimension_names.iter().cloned());
        arrays.push(decide_array(name, &array, reads, target, options)?);
    }
    let names: Vec<String> = unstorable.keys().cloned().collect();
    check_all(source, &names, NO_TYPE, &|name| unstorable.get(name).cloned())?;
    if let (true, true, Some((path, reason))) =
        (arrays.is_empty(), source.is_store(), left_out.first())
    {
        let text = format!("nothing can be converted: array {}: {reason}", quoted(path));
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    check_matched(source, options, &matched, &known)?;
    // Attributes are listed as `array:attribute`.
    let is_of = |path: &str, name: &str| {
        path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    };
    left_out.retain(|(path, _)| !options.exclude.iter().any(|name| is_of(path, name)));
    Ok(ConvertPlan {
        source: source.name().to_owned(),
        target: target.name().to_owned(),
        codecs: options.codecs.clone(),
        flat_keys: options.flat_keys,
        warnings: warnings_of(&left_out),
        arrays,
    })
}

/// A warning for each of the first members left out, and one for the number of the others.
fn warnings_of(left_out: &[(String, String)]) -> Vec<String> {
    let said = left_out.iter().take(WARNINGS_MAX);
    let mut warnings: Vec<String> =
        said.map(|(path, reason)| format!("{} is left out: {reason}", quoted(path))).collect();
    let others = left_out.len().saturating_sub(WARNINGS_MAX);
    if others > 0 {
        warnings
            .push(format!("{others} more are left out: bedform info lists them with the reasons"));
    }
    warnings
}

/// The names of the arrays to convert.
///
/// # Errors
/// `InvalidArgument` for arrays that no store can hold or that nothing can read, and for an unknown
/// name to leave out.
fn chosen_names(source: &ConvertSource, exclude: &[String]) -> Result<Vec<String>> {
    let there = source.array_names()?;
    if let Some(unknown) = exclude.iter().find(|name| !there.contains(*name)) {
        return Err(Error::invalid(format!(
            "{} has no array {} to leave out: it has {}",
            quoted(source.name()),
            quoted(unknown),
            listed(there.iter())
        )));
    }
    let names: Vec<String> = there.into_iter().filter(|name| !exclude.contains(name)).collect();
    check_all(source, &names, NO_TYPE, &|name| source.not_storable(name))?;
    check_all(source, &names, "only the library of its format reads", &|name| {
        source.not_readable(name)
    })?;
    Ok(names)
}

/// Fails if `reason_of` returns a reason for any of the arrays.
fn check_all(
    source: &ConvertSource,
    names: &[String],
    problem: &str,
    reason_of: &dyn Fn(&str) -> Option<String>,
) -> Result<()> {
    let (mut texts, mut flags) = (Vec::new(), Vec::new());
    for (name, reason) in names.iter().filter_map(|name| Some((name, reason_of(name)?))) {
        texts.push(format!("array {}: {reason}", quoted(name)));
        flags.push(format!("--exclude {}", shell_quoted(name)));
    }
    if texts.is_empty() {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{}: {problem} {}: leave it out with exclude= ({})",
        quoted(source.name()),
        texts.join("; "),
        flags.join(" ")
    )))
}

fn listed<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<&str> = names.map(String::as_str).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// The expected reads whose axes the array has; adds their numbers to `matched`.
fn reads_of(
    array: &SourceArray,
    options: &ConvertOptions,
    matched: &mut BTreeSet<usize>,
) -> Vec<(Read, f64)> {
    let axis = |name: &String| array.dimension_names.iter().position(|known| known == name);
    let mut reads = Vec::new();
    for (number, (names, weight)) in options.reads.iter().enumerate() {
        if let Some(spanned) = names.iter().map(axis).collect::<Option<Vec<usize>>>() {
            matched.insert(number);
            reads.push((Read::Axes { spanned }, *weight));
        }
    }
    reads
}

/// Fails if no array has the axes of an expected read.
fn check_matched(
    source: &ConvertSource,
    options: &ConvertOptions,
    matched: &BTreeSet<usize>,
    known: &BTreeSet<String>,
) -> Result<()> {
    let reads = options.reads.iter().enumerate();
    let mut unmatched: Vec<&Vec<String>> = reads
        .filter(|(number, _)| !matched.contains(number))
        .map(|(_, (names, _))| names)
        .collect();
    if unmatched.is_empty() {
        return Ok(());
    }
    unmatched.sort_unstable();
    let texts: Vec<String> =
        unmatched.iter().map(|names| format!("({})", names.join(", "))).collect();
    Err(Error::invalid(format!(
        "no array of {} has the dimensions of the reads {}: the dimensions are {}",
        quoted(source.name()),
        texts.join(", "),
        listed(known.iter())
    )))
}

fn decide_array(
    name: String,
    array: &SourceArray,
    reads: Vec<(Read, f64)>,
    target: &ConvertTarget,
    options: &ConvertOptions,
) -> Result<ArrayPlan> {
    let data_type = array.data_type();
    let sized = |text: u64| data_type.item_size().map_or(text, |size| (size as u64).max(1));
    let extent = RegionSizing {
        shape: &array.shape,
        source_chunks: array.chunks.as_deref(),
        item_size: sized(TEXT_BYTES),
        threads: target.threads(),
    };
    let memory = options.memory_for_regions();
    let layout = match &options.layout {
        Some(layout) if layout.chunks.len() == array.shape.len() => {
            let shards = layout.shards.clone();
            let shards = shards
                .unwrap_or_else(|| default_shards(&array.shape, &layout.chunks, extent.item_size));
            (layout.chunks.clone(), shards, layout.order)
        }
        _ => {
            let item_size = sized(TEXT_BYTES_LAID_OUT);
            let profile = options.profile.as_ref().unwrap_or_else(|| target.profile());
            let (chunks, shards, order) =
                advised(array, item_size, reads, &options.readers, profile)
                    .map_err(|error| error.at(format!("array {}", quoted(&name))))?;
            let shards = extent.fit_shards(&chunks, &shards, memory);
            (chunks, shards, order)
        }
    };
    planned(name, array, layout, &extent, options)
}

/// Plans an array in the layout `given`, with smaller shards where the memory requires it.
///
/// # Errors
/// `InvalidArgument` if it does not fit the memory.
pub(super) fn decide_given(
    name: String,
    array: &SourceArray,
    given: &ArrayLayoutChoice,
    target: &ConvertTarget,
    options: &ConvertOptions,
) -> Result<ArrayPlan> {
    let item_size = array.data_type().item_size().map_or(TEXT_BYTES, |size| (size as u64).max(1));
    let extent = RegionSizing {
        shape: &array.shape,
        source_chunks: array.chunks.as_deref(),
        item_size,
        threads: target.threads(),
    };
    let shards = given.shards.as_ref().unwrap_or(&given.chunks);
    let shards = extent.fit_shards(&given.chunks, shards, options.memory_for_regions());
    planned(name, array, (given.chunks.clone(), shards, given.order), &extent, options)
}

/// Plans an array with these chunks, shards and order.
fn planned(
    name: String,
    array: &SourceArray,
    (chunks, shards, order): (Vec<u64>, Vec<u64>, Order),
    extent: &RegionSizing<'_>,
    options: &ConvertOptions,
) -> Result<ArrayPlan> {
    let (data_type, memory) = (array.data_type(), options.memory_for_regions());
    check_layout(&name, &array.shape, &chunks, &shards)?;
    codecs_of(array, &chunks, &options.codecs)
        .map_err(|error| error.at(format!("array {}", quoted(&name))))?;
    let least = extent.memory_needed(&shards);
    if least > memory {
        let needed = ConvertOptions::memory_with_cache(least);
        return Err(Error::invalid(format!(
            "array {} does not fit the memory: its blocks need at least {} MiB (--memory)",
            quoted(&name),
            (needed >> 20) + 1
        )));
    }
    Ok(ArrayPlan {
        region: extent.grow_region(&shards, memory),
        name,
        dtype: numpy_name(data_type),
        dims: array.dimension_names.clone(),
        source_chunks: array.chunks.clone(),
        chunks,
        shards,
        order: order.name().to_owned(),
        item_size: data_type.item_size().map_or(TEXT_BYTES_COUNTED, |size| size as u64),
        shape: array.shape.clone(),
    })
}

/// Fails if chunks and shards do not fit each other; creating the array checks the rest.
fn check_layout(name: &str, shape: &[u64], chunks: &[u64], shards: &[u64]) -> Result<()> {
    let fits = shards.len() == shape.len()
        && chunks.iter().zip(shards).all(|(chunk, shard)| *chunk > 0 && shard % chunk == 0);
    if fits && !shards.contains(&0) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "array {}: shards of {} are no whole number of chunks of {}",
        quoted(name),
        count_phrase(shards),
        count_phrase(chunks)
    )))
}

fn advised(
    array: &SourceArray,
    item_size: u64,
    reads: Vec<(Read, f64)>,
    readers: &[Reader],
    profile: &Profile,
) -> Result<(Vec<u64>, Vec<u64>, Order)> {
    let names: Vec<Option<String>> = array.dimension_names.iter().cloned().map(Some).collect();
    let asked = NewArrayFacts {
        shape: &array.shape,
        item_size,
        dimension_names: &names,
        reads: None,
        append_length: None,
        readers,
    };
    let mut question = request(&asked, profile.clone())?;
    question.reads.reads = reads;
    question.source_chunks.clone_from(&array.chunks);
    let advice = advise(&question).map_err(|error| Error::invalid(error.to_string()))?;
    Ok((advice.chunk_shape, advice.shard_shape, advice.order))
}

/// The type in NumPy's words with its byte order.
fn numpy_name(data_type: DataType) -> String {
    let has_order = data_type.swap_size() > 1;
    format!("{}{}", if has_order { '<' } else { '|' }, data_type.numpy())
}

/// The layout in the plan of an array.
pub(super) fn layout_of(array: &ArrayPlan) -> Result<ArrayLayoutChoice> {
    Ok(ArrayLayoutChoice {
        chunks: array.chunks.clone(),
        shards: Some(array.shards.clone()),
        order: array.order.parse()?,
    })
}
