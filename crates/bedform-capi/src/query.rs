//! Calls on queries by value, and on the matching elements that they return.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null;
use std::sync::{Arc, Mutex};

use bedform::query::{PointBatches, QueryArray, QueryOptions, QueryPoints, ValueStatistics};
use bedform::store::StoreQuery;
use bedform::{Error, ErrorKind, Result, size};
use bedform_format::{DataType, ObjectPath};
use bedform_geometry::element_count;

use crate::arguments::{
    axes, buffer as room, give, give_estimated_text, give_text, names, numbers, object, places,
    text, values,
};
use crate::elements::{ElementType, from_stored};
use crate::handles::handle;
use crate::status::{StatusNumber, call, misuse};
use crate::store::StoreHandle;

handle!(
    /// `bf_query`.
    pub QueryHandle, Query, StoreQuery
);
handle!(
    /// `bf_points`.
    pub PointsHandle, Points, Arc<FoundPoints>
);
handle!(
    /// `bf_batches`.
    pub BatchesHandle, Batches, Arc<FoundBatches>
);

/// `BF_NO_LIMIT`.
const NO_LIMIT: u64 = u64::MAX;
/// The memory of a batch without another limit.
const BATCH_MEMORY: u64 = 256 << 20;

/// Matching elements, with the names of the arrays whose values they have.
pub(crate) struct FoundPoints {
    points: QueryPoints,
    names: Vec<String>,
}

/// Batches of matching elements, with the names of the arrays whose values they have.
pub(crate) struct FoundBatches {
    batches: Mutex<PointBatches>,
    names: Vec<String>,
}

/// `bf_value_statistics`. Later versions append fields.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct ValueFacts {
    /// The number of values that are not missing.
    pub count: u64,
    /// Their sum; 0 without values.
    pub sum: f64,
    /// Their mean; NaN without values, as are the next two.
    pub mean: f64,
    /// The least value.
    pub minimum: f64,
    /// The greatest value.
    pub maximum: f64,
}

impl From<&ValueStatistics> for ValueFacts {
    fn from(found: &ValueStatistics) -> Self {
        Self {
            count: found.count,
            sum: found.total(),
            mean: found.mean(),
            minimum: found.least.to_real(),
            maximum: found.greatest.to_real(),
        }
    }
}

/// `bf_query_open`: the options are `group`, `decode` and `memory_bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_query_open(
    store: StoreHandle,
    expression: *const c_char,
    rank: u32,
    dims: *const c_char,
    start: *const u64,
    shape: *const u64,
    options: *const c_char,
    query: *mut QueryHandle,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        give("the query", query, QueryHandle::NULL)?;
        let store = store.get()?;
        let expression = text("expression", expression)?;
        let (group, mut chosen) = query_options(options)?;
        chosen.region = ranges(rank, dims, start, shape)?;
        let opened = store.query(expression, &group, chosen)?;
        give("the query", query, QueryHandle::new(opened))
    })
}

unsafe fn query_options(options: *const c_char) -> Result<(ObjectPath, QueryOptions)> {
    let (mut group, mut chosen) = (ObjectPath::root(), QueryOptions::default());
    // SAFETY: the caller's contract.
    for (key, value) in unsafe { object("options", options) }? {
        let bad = || misuse(format!("not a value of {key}: {value}"));
        match key.as_str() {
            "group" => group = ObjectPath::parse(value.as_str().ok_or_else(bad)?)?,
            "decode" => chosen.decode = value.as_bool().ok_or_else(bad)?,
            "memory_bytes" => chosen.memory = size::from_json(&key, &value)?,
            _ => {
                return Err(misuse(format!(
                    "there is no option {key:?} of a query; there are group, decode, memory_bytes"
                )));
            }
        }
    }
    Ok((group, chosen))
}

/// Returns the range of each dimension of a region.
unsafe fn ranges(
    rank: u32,
    dims: *const c_char,
    start: *const u64,
    shape: *const u64,
) -> Result<Vec<(String, std::ops::Range<u64>)>> {
    // SAFETY: the caller's contract.
    let (names, start, shape) = unsafe {
        let shape = axes("shape", shape, rank)?;
        (names("dims", dims)?, places("start", start, rank.into())?, shape)
    };
    if names.len() != start.len() {
        let text = format!("dims has {} names for a region of {rank} dimensions", names.len());
        return Err(misuse(text));
    }
    let bounds = start.iter().zip(shape);
    let ends = bounds.map(|(&start, &count)| Some(start..start.checked_add(count)?));
    let ranges = names.into_iter().zip(ends).map(|(dim, range)| {
        range.map(|range| (dim, range)).ok_or_else(|| {
            misuse("the region ends behind what 64 bits can count; a shape is not negative")
        })
    });
    ranges.collect()
}

/// `bf_query_close`.
#[unsafe(no_mangle)]
pub extern "C" fn bf_query_close(query: QueryHandle) -> StatusNumber {
    call(|| query.take().map(drop))
}

/// `bf_query_rank`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_query_rank(query: QueryHandle, rank: *mut u32) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe { give("the rank", rank, rank_of(query.get()?.dims())) })
}

fn rank_of(dims: &[String]) -> u32 {
    u32::try_from(dims.len()).unwrap_or(u32::MAX)
}

/// `bf_query_dims`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_query_dims(
    query: QueryHandle,
    buffer: *mut c_char,
    capacity: u64,
    needed: *mut u64,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe { give_text(&query.get()?.dims().join(","), buffer, capacity, needed) })
}

/// `bf_query_region`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_query_region(
    query: QueryHandle,
    rank: u32,
    start: *mut u64,
    shape: *mut u64,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let query = query.get()?;
        check_rank("the query", rank, query.dims())?;
        let region = query.at_one_moment(|query, _| Ok(query.region().clone()))?;
        let bytes = u64::from(rank) * size_of::<u64>() as u64;
        numbers("start", start, bytes)?.copy_from_slice(region.start());
        numbers("shape", shape, bytes)?.copy_from_slice(region.shape());
        Ok(())
    })
}

fn check_rank(what: &str, rank: u32, dims: &[String]) -> Result<()> {
    if rank as usize == dims.len() {
        return Ok(());
    }
    let (count, names) = (dims.len(), dims.join(","));
    Err(misuse(format!("rank {rank}, but {what} has {count} dimensions: {names:?}")))
}

/// `bf_query_count`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_query_count(query: QueryHandle, count: *mut u64) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        give("the count", count, 0)?;
        let found = query.get()?.at_one_moment(|query, _| query.count(None))?;
        give("the count", count, found.1.iter().sum())
    })
}

/// `bf_query_any`: 1 or 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_query_any(query: QueryHandle, any: *mut c_int) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        give("the answer", any, 0)?;
        let found = query.get()?.at_one_moment(|query, _| query.any(None))?;
        give("the answer", any, found.1.iter().any(|count| *count > 0).into())
    })
}

/// `bf_query_count_over`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_query_count_over(
    query: QueryHandle,
    over: *const c_char,
    counts: *mut u64,
    bytes: u64,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let (query, over) = (query.get()?, names_of_over(over)?);
        let counts = numbers("the counts", counts, bytes)?;
        query.at_one_moment(|query, _| {
            let shape = query.shape_over(&[], over.as_deref())?;
            check_length("counts", counts.len(), &shape)?;
            counts.copy_from_slice(&query.count(over.as_deref())?.1);
            Ok(())
        })
    })
}

/// Returns the dimensions that a result is taken over; without names it is taken over all.
unsafe fn names_of_over(over: *const c_char) -> Result<Option<Vec<String>>> {
    // SAFETY: the caller's contract.
    Ok(Some(unsafe { names("over", over) }?).filter(|names| !names.is_empty()))
}

/// Checks the length of a buffer before the work for a result of `shape`.
fn check_length(what: &str, length: usize, shape: &[u64]) -> Result<()> {
    let needed = element_count(shape);
    if needed == Some(length as u64) {
        return Ok(());
    }
    let needed = needed.map_or_else(|| "more than there can be".to_owned(), |n| n.to_string());
    Err(misuse(format!(
        "the buffer has room for {length} {what}, the result has {needed}, of shape {shape:?}"
    )))
}

/// `bf_query_mask`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_query_mask(
    query: QueryHandle,
    mask: *mut u8,
    bytes: u64,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let (query, mask) = (query.get()?, numbers("the mask", mask, bytes)?);
        query.at_one_moment(|query, _| {
            check_length("truth values", mask.len(), query.region().shape())?;
            query.mask(mask)
        })
    })
}

/// `bf_query_statistics`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_query_statistics(
    query: QueryHandle,
    array: *const c_char,
    over: *const c_char,
    statistics: *mut ValueFacts,
    bytes: u64,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let (query, name, over) = (query.get()?, text("array", array)?, names_of_over(over)?);
        let statistics = numbers("the statistics", statistics, bytes)?;
        query.at_one_moment(|query, group| {
            let array = QueryArray::new(name, group.array(name)?);
            let shape = query.shape_over(std::slice::from_ref(&array), over.as_deref())?;
            check_length("statistics", statistics.len(), &shape)?;
            let (_, found) = query.statistics(array, over.as_deref())?;
            statistics.iter_mut().zip(&found).for_each(|(entry, found)| *entry = found.into());
            Ok(())
        })
    })
}

/// `bf_query_histogram`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_query_histogram(
    query: QueryHandle,
    array: *const c_char,
    bins: u64,
    edges: *const f64,
    counts: *mut u64,
    bytes: u64,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let (query, name) = (query.get()?, text("array", array)?);
        let edges = values("the edges", edges, bins.saturating_add(1))?;
        let counts = numbers("the counts", counts, bytes)?;
        check_length("counts", counts.len(), &[bins])?;
        query.at_one_moment(|query, group| {
            let found = query.histogram(QueryArray::new(name, group.array(name)?), edges)?;
            counts.copy_from_slice(&found);
            Ok(())
        })
    })
}

/// `bf_query_explain`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_query_explain(
    query: QueryHandle,
    buffer: *mut c_char,
    capacity: u64,
    needed: *mut u64,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let explanation = query.get()?.at_one_moment(|query, _| query.explain())?;
        let text = serde_json::to_string(&explanation);
        let text = text.map_err(|error| Error::invalid(error.to_string()))?;
        give_estimated_text(&text, buffer, capacity, needed)
    })
}

/// Refuses a number that was negative in the program.
fn check_not_negative(what: &str, number: u64) -> Result<()> {
    match number.cast_signed() {
        negative @ ..0 => Err(misuse(format!("{what} is not negative: {negative}"))),
        _ => Ok(()),
    }
}

/// `bf_query_points`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_query_points(
    query: QueryHandle,
    arrays: *const c_char,
    limit: u64,
    points: *mut PointsHandle,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        give("the points", points, PointsHandle::NULL)?;
        let (query, names) = (query.get()?, names("arrays", arrays)?);
        let limit = Some(limit).filter(|limit| *limit != NO_LIMIT);
        if let Some(limit) = limit {
            check_not_negative("a limit", limit)?;
        }
        let found =
            query.at_one_moment(|query, group| query.points(&group.arrays(&names)?, limit))?;
        give(
            "the points",
            points,
            PointsHandle::new(Arc::new(FoundPoints { points: found, names })),
        )
    })
}

/// `bf_query_batches`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_query_batches(
    query: QueryHandle,
    arrays: *const c_char,
    memory_bytes: u64,
    batches: *mut BatchesHandle,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        give("the batches", batches, BatchesHandle::NULL)?;
        let (query, names) = (query.get()?, names("arrays", arrays)?);
        check_not_negative("memory_bytes", memory_bytes)?;
        let memory = if memory_bytes == 0 { BATCH_MEMORY } else { memory_bytes };
        let found =
            query.at_one_moment(|query, group| query.batches(&group.arrays(&names)?, memory))?;
        let found = FoundBatches { batches: Mutex::new(found), names };
        give("the batches", batches, BatchesHandle::new(Arc::new(found)))
    })
}

/// `bf_batches_next`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_batches_next(
    batches: BatchesHandle,
    points: *mut PointsHandle,
    found: *mut c_int,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        give("the points", points, PointsHandle::NULL)?;
        give("the answer", found, 0)?;
        let batches = batches.get()?;
        let next = batches.batches.lock().map_err(|_| batches_panicked())?.next_batch()?;
        let Some(next) = next else { return Ok(()) };
        let next = FoundPoints { points: next, names: batches.names.clone() };
        give("the points", points, PointsHandle::new(Arc::new(next)))?;
        give("the answer", found, 1)
    })
}

/// The error of batches in which a call panicked: which one comes next is not known.
fn batches_panicked() -> Error {
    Error::new(
        ErrorKind::Poisoned,
        "an earlier call on these batches failed with a bug: begin again with bf_query_batches",
    )
}

/// `bf_batches_close`.
#[unsafe(no_mangle)]
pub extern "C" fn bf_batches_close(batches: BatchesHandle) -> StatusNumber {
    call(|| batches.take().map(drop))
}

/// `bf_points_close`.
#[unsafe(no_mangle)]
pub extern "C" fn bf_points_close(points: PointsHandle) -> StatusNumber {
    call(|| points.take().map(drop))
}

/// `bf_points_count`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_points_count(points: PointsHandle, count: *mut u64) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe { give("the count", count, points.get()?.points.count) })
}

/// `bf_points_rank`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_points_rank(points: PointsHandle, rank: *mut u32) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe { give("the rank", rank, rank_of(&points.get()?.points.dims)) })
}

/// `bf_points_dims`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_points_dims(
    points: PointsHandle,
    buffer: *mut c_char,
    capacity: u64,
    needed: *mut u64,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe { give_text(&points.get()?.points.dims.join(","), buffer, capacity, needed) })
}

/// `bf_points_positions`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_points_positions(
    points: PointsHandle,
    rank: u32,
    coordinates: *mut u64,
    bytes: u64,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let found = points.get()?;
        let found = &found.points;
        check_rank("the result", rank, &found.dims)?;
        let coordinates = numbers("the coordinates", coordinates, bytes)?;
        check_length("coordinates", coordinates.len(), &[found.count, rank.into()])?;
        for (axis, positions) in found.positions.iter().enumerate() {
            let column = coordinates.iter_mut().skip(axis).step_by(rank as usize);
            column.zip(positions).for_each(|(entry, position)| *entry = *position);
        }
        Ok(())
    })
}

/// `bf_points_dtype`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_points_dtype(
    points: PointsHandle,
    array: *const c_char,
    buffer: *mut c_char,
    capacity: u64,
    needed: *mut u64,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let found = points.get()?;
        let at = found.column(text("array", array)?)?;
        give_text(found.points.values[at].value_type().name(), buffer, capacity, needed)
    })
}

/// `bf_points_values`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_points_values(
    points: PointsHandle,
    array: *const c_char,
    buffer: *mut c_void,
    bytes: u64,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    unsafe { bf_points_values_as(points, array, buffer, bytes, null()) }
}

/// `bf_points_values_as`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_points_values_as(
    points: PointsHandle,
    array: *const c_char,
    buffer: *mut c_void,
    bytes: u64,
    dtype: *const c_char,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let (found, name) = (points.get()?, text("array", array)?);
        let values = &found.points.values[found.column(name)?];
        let (buffer, wanted) = (room(buffer, bytes)?, ElementType::of_call(dtype)?);
        let stored = values.value_type().name();
        let stored = DataType::parse_v3(stored)
            .ok_or_else(|| Error::invalid(format!("values of type {stored} have no form in C")))?;
        from_stored(name, stored, wanted, Some(found.points.count), buffer, |room| {
            let bytes = values.as_bytes();
            if room.len() != bytes.len() {
                let (given, needed) = (room.len(), bytes.len());
                let text = format!("{given} bytes were given for {name}, its values need {needed}");
                return Err(misuse(text));
            }
            room.copy_from_slice(bytes);
            Ok(())
        })
    })
}

impl FoundPoints {
    /// Returns the number of the array of this name.
    fn column(&self, name: &str) -> Result<usize> {
        self.names.iter().position(|known| known == name).ok_or_else(|| {
            let known = self.names.join(", ");
            let known = if known.is_empty() { "no array" } else { &known };
            Error::new(
                ErrorKind::NotFound,
                format!("the points have values of {known}: name {name:?} in bf_query_points"),
            )
        })
    }
}
