//! Calls on arrays: creation, description, reading, writing.

use std::ffi::{c_char, c_void};
use std::ops::Deref;
use std::ptr::null;

use bedform::{Array, Elements, Error, NewArray, Result};
use bedform_format::DataType;
use bedform_geometry::{RANK_MAX, Selection, element_count};
use serde_json::{Value, json};

use crate::arguments::{
    axes, boxes, buffer as room, data as elements, give, give_estimated_text, give_if, give_text,
    object, path, points, region, text,
};
use crate::elements::{ElementType, from_stored, to_stored};
use crate::handles::handle;
use crate::status::{StatusNumber, call, misuse};
use crate::store::StoreHandle;

handle!(
    /// `bf_array`.
    pub ArrayHandle, Array, OpenArray
);

/// An array, with the type of its elements, which never changes.
#[derive(Clone)]
pub(crate) struct OpenArray {
    array: Array,
    data_type: DataType,
}

impl OpenArray {
    fn new(array: Array) -> Result<Self> {
        let data_type = array.data_type()?;
        Ok(Self { array, data_type })
    }
}

impl Deref for OpenArray {
    type Target = Array;

    fn deref(&self) -> &Array {
        &self.array
    }
}

/// `bf_array_facts`. Later versions append fields.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ArrayFacts {
    /// The number of axes.
    pub rank: u32,
    /// Always 0.
    pub reserved: u32,
    /// Bytes of an element in memory; 0 for text.
    pub item_bytes: u64,
    /// Elements along each axis.
    pub shape: [u64; RANK_MAX],
    /// Elements of a chunk along each axis.
    pub chunks: [u64; RANK_MAX],
    /// Elements of a shard along each axis; those of a chunk for arrays without shards.
    pub shards: [u64; RANK_MAX],
    /// Zarr's name of the type.
    pub dtype: [u8; DTYPE_BYTES],
}

/// Bytes of a type's name, with the NUL.
const DTYPE_BYTES: usize = 64;

/// `bf_create_array`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_create_array(
    store: StoreHandle,
    name: *const c_char,
    dtype: *const c_char,
    rank: u32,
    shape: *const u64,
    dims: *const c_char,
    chunks: *const u64,
    shards: *const u64,
    options: *const c_char,
    array: *mut ArrayHandle,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        give_if("the array", array, ArrayHandle::NULL)?;
        let (store, path) = (store.get()?, path(name)?);
        let mut description = object("options", options)?;
        check_keys(description.keys())?;
        if description.get("codecs").is_none_or(Value::is_null) {
            // The default of `create_array` in Python.
            description.insert("codecs".to_owned(), json!("auto"));
        }
        description.insert("shape".to_owned(), json!(axes("shape", shape, rank)?));
        description.insert("dtype".to_owned(), dtype_of(text("dtype", dtype)?)?);
        if !dims.is_null() {
            description.insert("dims".to_owned(), names_of(text("dims", dims)?, rank)?);
        }
        for (key, lengths) in [("chunks", chunks), ("shards", shards)] {
            if !lengths.is_null() {
                description.insert(key.to_owned(), json!(axes(key, lengths, rank)?));
            }
        }
        let description = Value::Object(description);
        let new = NewArray::from_json_with(&description, store.options())?;
        let Some((path, new)) = store.define(path, new) else {
            // The array does not exist yet, so there is no handle.
            return Ok(());
        };
        let made = store.create_array(&path, &new)?;
        if array.is_null() {
            return Ok(());
        }
        give("the array", array, ArrayHandle::new(OpenArray::new(made)?))
    })
}

/// Rejects unknown options of a new array.
fn check_keys<'a>(keys: impl Iterator<Item = &'a String>) -> Result<()> {
    const KNOWN: [&str; 10] = [
        "order",
        "codecs",
        "codecs_beyond_zarr",
        "transpose",
        "checksum",
        "fill_value",
        "attributes",
        "reads",
        "append_length",
        "readers",
    ];
    match keys.into_iter().find(|key| !KNOWN.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => Err(misuse(format!(
            "there is no option {key:?} of a new array; there are {}",
            KNOWN.join(", ")
        ))),
    }
}

/// Parses a data type: a name, or a JSON object of Zarr metadata.
fn dtype_of(text: &str) -> Result<Value> {
    if !text.starts_with('{') {
        return Ok(json!(text));
    }
    serde_json::from_str(text).map_err(|error| misuse(format!("the dtype is no JSON: {error}")))
}

/// Parses the names of axes, as in `time,lat,lon`; an empty name stands for none.
fn names_of(text: &str, rank: u32) -> Result<Value> {
    let mut names: Vec<Value> = Vec::new();
    if !(text.is_empty() && rank == 0) {
        let value = |name: &str| if name.is_empty() { Value::Null } else { json!(name) };
        names.extend(text.split(',').map(str::trim).map(value));
    }
    if names.len() == rank as usize {
        return Ok(Value::Array(names));
    }
    Err(misuse(format!("{} names {text:?} for {rank} axes", names.len())))
}

/// `bf_open_array`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_open_array(
    store: StoreHandle,
    name: *const c_char,
    array: *mut ArrayHandle,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        give("the array", array, ArrayHandle::NULL)?;
        let found = store.get()?.array(&path(name)?)?;
        give("the array", array, ArrayHandle::new(OpenArray::new(found)?))
    })
}

/// `bf_close_array`.
#[unsafe(no_mangle)]
pub extern "C" fn bf_close_array(array: ArrayHandle) -> StatusNumber {
    call(|| array.take().map(drop))
}

/// `bf_array_info`: writes the first `bytes` bytes of the facts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_array_info(
    array: ArrayHandle,
    facts: *mut ArrayFacts,
    bytes: u64,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let found = facts_of(array)?;
        if bytes != size_of::<ArrayFacts>() as u64 {
            return Err(misuse(format!(
                "bf_array_facts of {bytes} bytes; this version has {}: pass sizeof of it",
                size_of::<ArrayFacts>()
            )));
        }
        give("the facts", facts, found)
    })
}

fn facts_of(array: ArrayHandle) -> Result<ArrayFacts> {
    let described = array.get()?.describe()?;
    let lengths = |key: &str| -> Option<[u64; RANK_MAX]> {
        let mut all = [0; RANK_MAX];
        for (length, value) in all.iter_mut().zip(described.get(key)?.as_array()?) {
            *length = value.as_u64()?;
        }
        Some(all)
    };
    let missing = || Error::invalid("the array cannot be described");
    let chunks = lengths("chunks").ok_or_else(missing)?;
    let rank = described["shape"].as_array().map_or(0, Vec::len);
    let data_type = array.get()?.data_type;
    let mut facts = ArrayFacts {
        rank: u32::try_from(rank).unwrap_or(0),
        reserved: 0,
        item_bytes: data_type.item_size().unwrap_or(0) as u64,
        shape: lengths("shape").ok_or_else(missing)?,
        chunks,
        shards: lengths("shards").unwrap_or(chunks),
        dtype: [0; DTYPE_BYTES],
    };
    let name = data_type.to_string();
    for (to, from) in facts.dtype[..DTYPE_BYTES - 1].iter_mut().zip(name.bytes()) {
        *to = from;
    }
    Ok(facts)
}

/// `bf_array_dimension_name`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_array_dimension_name(
    array: ArrayHandle,
    axis: u32,
    buffer: *mut c_char,
    capacity: u64,
    needed: *mut u64,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let names = array.get()?.dimension_names()?;
        let name = names
            .get(axis as usize)
            .ok_or_else(|| misuse(format!("axis {axis} of an array of {} axes", names.len())))?;
        give_text(name.as_deref().unwrap_or_default(), buffer, capacity, needed)
    })
}

/// `bf_array_describe`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_array_describe(
    array: ArrayHandle,
    buffer: *mut c_char,
    capacity: u64,
    needed: *mut u64,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe { give_text(&array.get()?.describe()?.to_string(), buffer, capacity, needed) })
}

/// `bf_array_explain`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_array_explain(
    array: ArrayHandle,
    rank: u32,
    start: *const u64,
    shape: *const u64,
    stride: *const i64,
    buffer: *mut c_char,
    capacity: u64,
    needed: *mut u64,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let explanation = array.get()?.explain(&region(rank, start, shape, stride)?)?;
        let text = serde_json::to_string(&explanation);
        let text = text.map_err(|error| Error::invalid(error.to_string()))?;
        give_estimated_text(&text, buffer, capacity, needed)
    })
}

/// Reads `selection` into the caller's buffer for elements of type `dtype`.
unsafe fn read(
    array: ArrayHandle,
    selection: &Selection,
    dtype: *const c_char,
    buffer: *mut c_void,
    bytes: u64,
) -> Result<()> {
    // SAFETY: the contract of the call.
    let (buffer, wanted) = unsafe { (room(buffer, bytes)?, ElementType::of_call(dtype)?) };
    let OpenArray { array, data_type } = array.get()?;
    let read = |buffer: &mut [u8]| array.read(selection, buffer).map(drop);
    from_stored(array.path(), data_type, wanted, selection.len(), buffer, read)
}

/// `bf_read`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_read(
    array: ArrayHandle,
    rank: u32,
    start: *const u64,
    shape: *const u64,
    stride: *const i64,
    buffer: *mut c_void,
    bytes: u64,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    unsafe { bf_read_as(array, rank, start, shape, stride, buffer, bytes, null()) }
}

/// `bf_read_as`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_read_as(
    array: ArrayHandle,
    rank: u32,
    start: *const u64,
    shape: *const u64,
    stride: *const i64,
    buffer: *mut c_void,
    bytes: u64,
    dtype: *const c_char,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe { read(array, &region(rank, start, shape, stride)?, dtype, buffer, bytes) })
}

/// `bf_read_boxes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_read_boxes(
    array: ArrayHandle,
    rank: u32,
    count: u64,
    starts: *const u64,
    shapes: *const u64,
    buffer: *mut c_void,
    bytes: u64,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    unsafe { bf_read_boxes_as(array, rank, count, starts, shapes, buffer, bytes, null()) }
}

/// `bf_read_boxes_as`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_read_boxes_as(
    array: ArrayHandle,
    rank: u32,
    count: u64,
    starts: *const u64,
    shapes: *const u64,
    buffer: *mut c_void,
    bytes: u64,
    dtype: *const c_char,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let selection = Selection::Union(boxes(rank, count, starts, shapes)?);
        read(array, &selection, dtype, buffer, bytes)
    })
}

/// `bf_read_points`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_read_points(
    array: ArrayHandle,
    rank: u32,
    count: u64,
    coordinates: *const u64,
    buffer: *mut c_void,
    bytes: u64,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    unsafe { bf_read_points_as(array, rank, count, coordinates, buffer, bytes, null()) }
}

/// `bf_read_points_as`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_read_points_as(
    array: ArrayHandle,
    rank: u32,
    count: u64,
    coordinates: *const u64,
    buffer: *mut c_void,
    bytes: u64,
    dtype: *const c_char,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe { read(array, &points(rank, count, coordinates)?, dtype, buffer, bytes) })
}

/// `bf_write`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_write(
    array: ArrayHandle,
    rank: u32,
    start: *const u64,
    shape: *const u64,
    stride: *const i64,
    data: *const c_void,
    bytes: u64,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    unsafe { bf_write_as(array, rank, start, shape, stride, data, bytes, null()) }
}

/// `bf_write_as`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_write_as(
    array: ArrayHandle,
    rank: u32,
    start: *const u64,
    shape: *const u64,
    stride: *const i64,
    data: *const c_void,
    bytes: u64,
    dtype: *const c_char,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let selection = region(rank, start, shape, stride)?;
        let (data, given) = (elements(data, bytes)?, ElementType::of_call(dtype)?);
        let OpenArray { array, data_type } = array.get()?;
        let stored = to_stored(array.path(), data_type, given, selection.len(), data)?;
        array.write(&selection, Elements::Bytes(&stored)).map(drop)
    })
}

/// `bf_resize`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_resize(
    array: ArrayHandle,
    rank: u32,
    shape: *const u64,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe { array.get()?.resize(axes("shape", shape, rank)?) })
}

/// `bf_append`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_append(
    array: ArrayHandle,
    axis: u32,
    rank: u32,
    shape: *const u64,
    data: *const c_void,
    bytes: u64,
    start: *mut u64,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    unsafe { bf_append_as(array, axis, rank, shape, data, bytes, start, null()) }
}

/// `bf_append_as`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_append_as(
    array: ArrayHandle,
    axis: u32,
    rank: u32,
    shape: *const u64,
    data: *const c_void,
    bytes: u64,
    start: *mut u64,
    dtype: *const c_char,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let shape = axes("shape", shape, rank)?;
        let (data, given) = (elements(data, bytes)?, ElementType::of_call(dtype)?);
        let OpenArray { array, data_type } = array.get()?;
        let stored = to_stored(array.path(), data_type, given, element_count(shape), data)?;
        let at = array.append(axis as usize, shape, Elements::Bytes(&stored))?;
        give_if("the start", start, at)
    })
}
