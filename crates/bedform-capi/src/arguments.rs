//! Validates arguments from C: null and misaligned pointers, lengths, text.
//!
//! The number of valid bytes behind a pointer cannot be checked. The callers of these functions
//! guarantee it, and `bedform.h` requires it of programs.

use std::ffi::{CStr, c_char};

use bedform::{Error, ErrorKind, Result};
use bedform_format::log::Boxes;
use bedform_format::{Limits, ObjectPath, json};
use bedform_geometry::{AxisRange, AxisSelection, Points, RANK_MAX, Region, Selection};
use serde_json::{Map, Value};

use crate::status::misuse;

/// Returns a text; null is an error.
pub(crate) unsafe fn text<'a>(what: &str, pointer: *const c_char) -> Result<&'a str> {
    if pointer.is_null() {
        return Err(misuse(format!("the {what} is NULL")));
    }
    // SAFETY: the caller's text ends with a NUL.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| misuse(format!("the {what} is not UTF-8")))
}

/// Parses the path of an array or group.
pub(crate) unsafe fn path(pointer: *const c_char) -> Result<ObjectPath> {
    // SAFETY: the caller's contract.
    Ok(ObjectPath::parse(unsafe { text("path", pointer) }?)?)
}

/// Returns the names in a text such as `time,lat,lon`; null and the empty text have none.
pub(crate) unsafe fn names(what: &str, pointer: *const c_char) -> Result<Vec<String>> {
    if pointer.is_null() {
        return Ok(Vec::new());
    }
    // SAFETY: the caller's contract.
    match unsafe { text(what, pointer) }?.trim() {
        "" => Ok(Vec::new()),
        names => Ok(names.split(',').map(|name| name.trim().to_owned()).collect()),
    }
}

/// Parses a JSON object; null and the empty text stand for an object without keys.
pub(crate) unsafe fn object(what: &str, pointer: *const c_char) -> Result<Map<String, Value>> {
    if pointer.is_null() {
        return Ok(Map::new());
    }
    // SAFETY: the caller's contract.
    match unsafe { text(what, pointer) }? {
        "" => Ok(Map::new()),
        text => json::parse_object(text, &Limits::default())
            .map_err(|error| misuse(format!("the {what} are no JSON object: {error}"))),
    }
}

/// Returns the `count` values behind a pointer.
pub(crate) unsafe fn values<'a, T>(what: &str, pointer: *const T, count: u64) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    let bytes = count.checked_mul(size_of::<T>() as u64).and_then(|n| isize::try_from(n).ok());
    if bytes.is_none() {
        return Err(misuse(format!("{count} is too many for {what}")));
    }
    if pointer.is_null() || !pointer.is_aligned() {
        let problem = if pointer.is_null() { "NULL" } else { "not aligned" };
        return Err(misuse(format!("the pointer to {what} is {problem}")));
    }
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: not null, aligned, of a possible length; the caller guarantees that many values.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// Returns `count` positions in arrays, as [`values`] does; a negative number is an error.
pub(crate) unsafe fn places<'a>(what: &str, pointer: *const u64, count: u64) -> Result<&'a [u64]> {
    // SAFETY: the caller's contract.
    let places = unsafe { values(what, pointer, count) }?;
    let negative = places.iter().map(|place| place.cast_signed()).find(|place| *place < 0);
    match negative.map(i64::unsigned_abs) {
        None => Ok(places),
        Some(before) => Err(misuse(format!(
            "{what} has a place {before} before the first; indices start at 0 in C, at 1 in Fortran"
        ))),
    }
}

/// Returns one value for each of `rank` axes.
pub(crate) unsafe fn axes<'a, T>(what: &str, pointer: *const T, rank: u32) -> Result<&'a [T]> {
    check_rank(rank)?;
    // SAFETY: the caller's contract.
    unsafe { values(what, pointer, rank.into()) }
}

fn check_rank(rank: u32) -> Result<()> {
    if rank as usize <= RANK_MAX {
        return Ok(());
    }
    Err(misuse(format!("{rank} axes; at most {RANK_MAX} are supported")))
}

/// Returns the elements of a write.
pub(crate) unsafe fn data<'a>(pointer: *const std::ffi::c_void, bytes: u64) -> Result<&'a [u8]> {
    // SAFETY: the caller's contract.
    unsafe { values("data", pointer.cast(), bytes) }
}

/// Returns the buffer for the elements of a read.
pub(crate) unsafe fn buffer<'a>(
    pointer: *mut std::ffi::c_void,
    bytes: u64,
) -> Result<&'a mut [u8]> {
    // SAFETY: the caller's contract; checked as for reading.
    let length = unsafe { values::<u8>("the buffer", pointer.cast(), bytes) }?.len();
    if length == 0 {
        return Ok(&mut []);
    }
    // SAFETY: as above; no other code uses the buffer during the call.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer.cast(), length) })
}

/// Returns the buffer of so many bytes for numbers, or for structures that consist of numbers.
pub(crate) unsafe fn numbers<'a, T>(
    what: &str,
    pointer: *mut T,
    bytes: u64,
) -> Result<&'a mut [T]> {
    let item = size_of::<T>() as u64;
    if !bytes.is_multiple_of(item) {
        let text = format!("the buffer for {what} has {bytes} bytes, an entry takes {item}");
        return Err(misuse(text));
    }
    // SAFETY: the caller's contract; checked as for reading.
    let length = unsafe { values::<T>(what, pointer, bytes / item) }?.len();
    if length == 0 {
        return Ok(&mut []);
    }
    // SAFETY: as above; no other code uses the buffer during the call.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer, length) })
}

/// Writes `value` to the caller's pointer.
pub(crate) unsafe fn give<T>(what: &str, pointer: *mut T, value: T) -> Result<()> {
    if pointer.is_null() || !pointer.is_aligned() {
        return Err(misuse(format!("the pointer for {what} is NULL or not aligned")));
    }
    // SAFETY: not null and aligned; the caller guarantees space for one value.
    unsafe { pointer.write(value) };
    Ok(())
}

/// Writes `value` to the caller's pointer unless it is null.
pub(crate) unsafe fn give_if<T>(what: &str, pointer: *mut T, value: T) -> Result<()> {
    if pointer.is_null() {
        return Ok(());
    }
    // SAFETY: the caller's contract.
    unsafe { give(what, pointer, value) }
}

/// Writes a text with its NUL to `buffer` unless that is null, and its length in bytes to `needed`.
pub(crate) unsafe fn give_text(
    text: &str,
    buffer: *mut c_char,
    capacity: u64,
    needed: *mut u64,
) -> Result<()> {
    let bytes = text.as_bytes();
    let length = bytes.len() as u64 + 1;
    // SAFETY: the caller's contract.
    unsafe { give_if("the length", needed, length) }?;
    if buffer.is_null() {
        let asks = capacity == 0 && !needed.is_null();
        return if asks { Ok(()) } else { Err(misuse("the buffer for the text is NULL")) };
    }
    if capacity < length {
        return Err(Error::new(
            ErrorKind::LimitExceeded,
            format!("the text needs a buffer of {length} bytes, this one has {capacity}"),
        ));
    }
    // SAFETY: the buffer has `capacity` bytes, which are enough.
    unsafe {
        buffer.copy_from_nonoverlapping(bytes.as_ptr().cast(), bytes.len());
        buffer.add(bytes.len()).write(0);
    }
    Ok(())
}

/// Bytes by which an explanation may be longer at the next call: some numbers are measured, and
/// some depend on the cache.
const EXPLANATION_ROOM: u64 = 256;

/// Writes a text as [`give_text`] does; the length that it writes for a null buffer has room for a
/// text with longer numbers.
pub(crate) unsafe fn give_estimated_text(
    text: &str,
    buffer: *mut c_char,
    capacity: u64,
    needed: *mut u64,
) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe {
        if buffer.is_null() && capacity == 0 {
            return give("the length", needed, text.len() as u64 + EXPLANATION_ROOM);
        }
        give_text(text, buffer, capacity, needed)
    }
}

/// Returns the box of `shape` at `start`. With a stride it has every n-th element, `shape` of them.
pub(crate) unsafe fn region(
    rank: u32,
    start: *const u64,
    shape: *const u64,
    stride: *const i64,
) -> Result<Selection> {
    // SAFETY: the caller's contract.
    let (start, shape) = unsafe {
        check_rank(rank)?;
        (places("start", start, rank.into())?, axes("shape", shape, rank)?)
    };
    if stride.is_null() {
        return Ok(Region::new(start, shape)?.into());
    }
    // SAFETY: the caller's contract.
    let stride = unsafe { axes("stride", stride, rank) }?;
    let ranges = start.iter().zip(stride).zip(shape);
    let ranges = ranges.map(|((&start, &step), &count)| {
        AxisRange::new(start, step, count).map(AxisSelection::Range).map_err(Error::from)
    });
    Ok(Selection::Orthogonal(ranges.collect::<Result<_>>()?))
}

/// Returns `count` boxes from their starts and shapes, `rank` numbers per box.
pub(crate) unsafe fn boxes(
    rank: u32,
    count: u64,
    starts: *const u64,
    shapes: *const u64,
) -> Result<Vec<Region>> {
    // SAFETY: the caller's contract.
    let (starts, shapes) = unsafe { corners(rank, count, starts, shapes) }?;
    let rank = rank as usize;
    let pairs = starts.chunks_exact(rank).zip(shapes.chunks_exact(rank));
    pairs.map(|(start, shape)| Ok(Region::new(start, shape)?)).collect()
}

/// Returns the starts and shapes of boxes with at least one axis.
unsafe fn corners<'a>(
    rank: u32,
    count: u64,
    starts: *const u64,
    shapes: *const u64,
) -> Result<(&'a [u64], &'a [u64])> {
    check_rank(rank)?;
    if rank == 0 {
        return Err(misuse("boxes have at least one axis"));
    }
    let numbers = count.checked_mul(rank.into()).ok_or_else(|| misuse("too many boxes"))?;
    // SAFETY: the caller's contract.
    unsafe { Ok((places("starts", starts, numbers)?, values("shapes", shapes, numbers)?)) }
}

/// Returns the nonempty boxes for a session, as [`boxes`] does; `None` if all are empty.
pub(crate) unsafe fn boxes_to_write(
    rank: u32,
    count: u64,
    starts: *const u64,
    shapes: *const u64,
) -> Result<Option<Boxes>> {
    // SAFETY: the caller's contract.
    let (all_starts, all_shapes) = unsafe { corners(rank, count, starts, shapes) }?;
    let rank = rank as usize;
    // There may be millions of boxes, so none becomes a value of its own.
    let (mut starts, mut shapes) = (Vec::new(), Vec::new());
    if all_shapes.contains(&0) {
        for (start, shape) in all_starts.chunks_exact(rank).zip(all_shapes.chunks_exact(rank)) {
            if !shape.contains(&0) {
                starts.extend_from_slice(start);
                shapes.extend_from_slice(shape);
            }
        }
    } else {
        starts.extend_from_slice(all_starts);
        shapes.extend_from_slice(all_shapes);
    }
    if starts.is_empty() {
        return Ok(None);
    }
    if starts.iter().zip(&shapes).any(|(at, length)| at.checked_add(*length).is_none()) {
        return Err(misuse("a box ends behind what 64 bits can count"));
    }
    let boxes = Boxes::new(rank, starts, shapes);
    boxes.map(Some).map_err(|error| misuse(error.to_string()))
}

/// Returns `count` points from their coordinates, `rank` numbers per point.
pub(crate) unsafe fn points(rank: u32, count: u64, coordinates: *const u64) -> Result<Selection> {
    check_rank(rank)?;
    let numbers = count.checked_mul(rank.into()).ok_or_else(|| misuse("too many points"))?;
    // SAFETY: the caller's contract.
    let all = unsafe { places("coordinates", coordinates, numbers) }?;
    let rank = rank as usize;
    if rank == 0 {
        return Ok(Selection::Points(Points::of_rank_zero(count)));
    }
    let axis = |axis| all.iter().copied().skip(axis).step_by(rank).collect();
    Ok(Selection::Points(Points::new((0..rank).map(axis).collect())?))
}
