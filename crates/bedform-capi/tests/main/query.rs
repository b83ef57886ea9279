//! Queries: wrong calls return a status that names the mistake; results have the length of buffers.

use std::ffi::CStr;
use std::ptr::{null, null_mut};

use bedform_capi::array::*;
use bedform_capi::query::*;
use bedform_capi::status::*;
use bedform_capi::store::*;
use bedform_capi::{BatchesHandle, PointsHandle, QueryHandle, StoreHandle};

use super::support::*;

const STATISTICS: u64 = size_of::<ValueFacts>() as u64;

fn numbers() -> [i32; 24] {
    std::array::from_fn(|at| i32::try_from(at).unwrap())
}

/// A store whose array `t` of shape (4, 6) has the numbers from 0 to 23.
fn numbered() -> Place {
    let place = Place::new();
    let (array, data) = (place.array(), numbers());
    let (start, shape) = ([0, 0], [4, 6]);
    let written = unsafe {
        let data = data.as_ptr().cast();
        bf_write(array, 2, start.as_ptr(), shape.as_ptr(), null(), data, 96)
    };
    assert_eq!((written, bf_close_array(array)), (OK, OK), "{}", last_error());
    place
}

fn open(place: &Place, expression: &CStr, options: &CStr) -> (StatusNumber, QueryHandle) {
    let mut query = QueryHandle { id: 7 };
    let (expression, options) = (expression.as_ptr(), options.as_ptr());
    let status = unsafe {
        bf_query_open(place.store, expression, 0, null(), null(), null(), options, &raw mut query)
    };
    (status, query)
}

fn opened(place: &Place) -> QueryHandle {
    let (status, query) = open(place, c"t >= 10", c"");
    assert_eq!(status, OK, "{}", last_error());
    query
}

/// Checks the status and the text of a wrong call, before the next one replaces the text.
fn refused(status: StatusNumber, expected: StatusNumber, says: &str) {
    let text = last_error();
    assert_eq!(status, expected, "{text}");
    assert!(text.contains(says), "{text:?} does not say {says:?}");
    assert!(!text.contains('\n'), "{text:?}");
}

#[test]
fn a_query_that_cannot_be_made_has_no_handle_and_names_the_mistake() {
    let place = numbered();
    for (expression, options, status, says) in [
        (c"t >", c"", INVALID, "column"),
        (c"t > u", c"", NOT_FOUND, "it has t"),
        (c"t > 3", c"{\"group\": \"g\"}", NOT_FOUND, "no group \"g\""),
        (c"t > 3", c"{\"memory\": 1}", INVALID, "no option \"memory\""),
        (c"t > 3", c"{\"decode\": 1}", INVALID, "decode: 1"),
        (c"t > 3", c"{\"memory_bytes\": \"much\"}", INVALID, "memory_bytes"),
    ] {
        let (found, query) = open(&place, expression, options);
        refused(found, status, says);
        assert_eq!(query, QueryHandle::NULL);
    }
    let region = |dims: Option<&CStr>, start: &[u64], shape: &[u64]| {
        let mut query = QueryHandle::NULL;
        let rank = u32::try_from(start.len()).unwrap();
        let (expression, dims) = (c"t > 3".as_ptr(), dims.map_or(null(), CStr::as_ptr));
        let (start, shape) = (start.as_ptr(), shape.as_ptr());
        unsafe {
            let query = &raw mut query;
            bf_query_open(place.store, expression, rank, dims, start, shape, null(), query)
        }
    };
    refused(region(None, &[0], &[1]), INVALID, "0 names");
    refused(region(Some(c"y,x"), &[0], &[1]), INVALID, "2 names");
    refused(region(Some(c"z"), &[0], &[1]), INVALID, "they have y, x");
    refused(region(Some(c"y, y"), &[0, 0], &[1, 1]), INVALID, "twice");
    refused(region(Some(c"y"), &[2], &[3]), OUT_OF_BOUNDS, "start 2 + count 3");
    refused(region(Some(c"y"), &[u64::MAX], &[1]), INVALID, "before the first");
    refused(region(Some(c"y"), &[1], &[u64::MAX]), INVALID, "64 bits");
    assert_eq!(region(Some(c"x"), &[6], &[0]), OK, "{}", last_error());
}

#[test]
fn buffers_of_another_length_than_the_result_are_refused_and_left_alone() {
    let place = numbered();
    let query = opened(&place);
    let mut counts = [7_u64; 24];
    let mut entries = [ValueFacts { count: 7, sum: 0., mean: 0., minimum: 0., maximum: 0. }; 24];
    let mut mask = [7_u8; 25];
    let edges = [0., 10., 20., 30.];
    let (to, name, edges) = (counts.as_mut_ptr(), c"t".as_ptr(), edges.as_ptr());
    let facts = entries.as_mut_ptr();
    unsafe {
        let over = c"x".as_ptr();
        refused(bf_query_count_over(query, over, to, 40), INVALID, "result has 4, of shape [4]");
        refused(bf_query_count_over(query, over, to, 33), INVALID, "an entry takes 8");
        refused(bf_query_count_over(query, over, null_mut(), 32), INVALID, "counts is NULL");
        refused(bf_query_count_over(query, c"z".as_ptr(), to, 32), INVALID, "no dimension \"z\"");
        refused(bf_query_count_over(query, null(), to, 16), INVALID, "result has 1");
        let odd = to.wrapping_byte_add(1);
        refused(bf_query_count_over(query, over, odd, 32), INVALID, "not aligned");
        refused(bf_query_count(query, null_mut()), INVALID, "for the count is NULL");
        refused(bf_query_any(query, null_mut()), INVALID, "for the answer is NULL");
        refused(bf_query_mask(query, mask.as_mut_ptr(), 25), INVALID, "the result has 24");
        let two = 2 * STATISTICS;
        refused(bf_query_statistics(query, name, over, facts, two), INVALID, "the result has 4");
        refused(bf_query_statistics(query, name, null(), facts, 8), INVALID, "an entry takes 40");
        let unknown = bf_query_statistics(query, c"u".as_ptr(), null(), facts, STATISTICS);
        refused(unknown, NOT_FOUND, "no array \"u\"");
        refused(bf_query_histogram(query, name, 3, edges, to, 16), INVALID, "the result has 3");
        refused(bf_query_histogram(query, name, 0, edges, to, 0), INVALID, "two or more");
        refused(bf_query_histogram(query, name, u64::MAX, edges, to, 16), INVALID, "too many");
        refused(bf_query_region(query, 1, to, to), INVALID, "2 dimensions: \"y,x\"");
        refused(bf_query_rank(query, null_mut()), INVALID, "for the rank is NULL");
        refused(bf_query_explain(query, null_mut(), 0, null_mut()), INVALID, "length is NULL");
    }
    assert!(counts.iter().all(|count| *count == 7) && mask.iter().all(|byte| *byte == 7));
    assert!(entries.iter().all(|entry| entry.count == 7));
    unsafe {
        assert_eq!(bf_query_histogram(query, name, 3, edges, to, 24), OK, "{}", last_error());
        assert_eq!(counts[..4], [0, 10, 4, 7]);
        assert_eq!(bf_query_count_over(query, c"x,y".as_ptr(), counts.as_mut_ptr(), 8), OK);
        assert_eq!(counts[0], 14);
    }
    assert_eq!(bf_query_close(query), OK);
    refused(bf_query_close(query), INVALID, "was closed before");
}

#[test]
fn points_outlive_their_query_and_refuse_buffers_that_do_not_fit() {
    let place = numbered();
    let query = opened(&place);
    let mut points = PointsHandle { id: 7 };
    let mut found = |arrays: Option<&CStr>, limit| {
        let arrays = arrays.map_or(null(), CStr::as_ptr);
        let status = unsafe { bf_query_points(query, arrays, limit, &raw mut points) };
        (status, points)
    };
    let (status, none) = found(Some(c"t,u"), u64::MAX);
    refused(status, NOT_FOUND, "no array \"u\"");
    assert_eq!(none, PointsHandle::NULL);
    refused(found(None, u64::MAX - 1).0, INVALID, "a limit is not negative: -2");
    let (status, empty) = found(None, 0);
    assert_eq!(status, OK, "{}", last_error());
    let (status, points) = found(Some(c"t"), 3);
    assert_eq!(status, OK, "{}", last_error());
    assert_eq!(bf_query_close(query), OK);

    let (mut count, mut coordinates, mut values) = (0, [7_u64; 6], [7_i64; 3]);
    let (to, buffer, name) = (coordinates.as_mut_ptr(), values.as_mut_ptr().cast(), c"t".as_ptr());
    unsafe {
        assert_eq!(bf_points_count(empty, &raw mut count), OK);
        assert_eq!((count, bf_points_positions(empty, 2, null_mut(), 0)), (0, OK));
        refused(bf_points_values(empty, name, buffer, 0), NOT_FOUND, "values of no array");
        assert_eq!(bf_points_count(points, &raw mut count), OK);
        assert_eq!(count, 3);
        refused(bf_points_positions(points, 1, to, 24), INVALID, "has 2 dimensions");
        refused(bf_points_positions(points, 2, to, 40), INVALID, "the result has 6");
        refused(bf_points_values(points, c"x".as_ptr(), buffer, 12), NOT_FOUND, "values of t");
        refused(bf_points_values(points, name, buffer, 24), INVALID, "its values need 12");
        let (int64, int16) = (c"int64".as_ptr(), c"int16".as_ptr());
        refused(bf_points_values_as(points, name, buffer, 12, int64), INVALID, "needs 24");
        refused(bf_points_values_as(points, name, buffer, 6, int16), INVALID, "change values");
        refused(bf_points_count(points, null_mut()), INVALID, "for the count is NULL");
        assert_eq!(bf_points_positions(points, 2, to, 48), OK, "{}", last_error());
        assert_eq!(bf_points_values_as(points, name, buffer, 24, int64), OK, "{}", last_error());
    }
    assert_eq!((coordinates, values), ([1, 4, 1, 5, 2, 0], [10, 11, 12]));
    let dtype = text_of(|buffer, capacity, needed| unsafe {
        bf_points_dtype(points, name, buffer, capacity, needed)
    });
    assert_eq!(dtype, "int32");
    assert_eq!((bf_points_close(points), bf_points_close(empty)), (OK, OK));
    refused(bf_points_close(points), INVALID, "was closed before");
}

#[test]
fn batches_are_the_points_in_order_and_outlive_their_query() {
    let place = numbered();
    let query = opened(&place);
    let mut batches = BatchesHandle { id: 7 };
    let mut begin = |arrays: &CStr, memory| {
        let status = unsafe { bf_query_batches(query, arrays.as_ptr(), memory, &raw mut batches) };
        (status, batches)
    };
    for (arrays, memory, expected, says) in [
        (c"u", 0, NOT_FOUND, "no array \"u\""),
        (c"t", 27, LIMIT, "a matching element takes 28 bytes"),
        (c"t", u64::MAX, INVALID, "memory_bytes is not negative: -1"),
    ] {
        let (status, none) = begin(arrays, memory);
        refused(status, expected, says);
        assert_eq!(none, BatchesHandle::NULL);
    }
    let (status, batches) = begin(c"t", 3 * 28);
    assert_eq!((status, bf_query_close(query)), (OK, OK), "{}", last_error());

    let (mut points, mut found, mut all) = (PointsHandle::NULL, 7, Vec::new());
    let next =
        |points: *mut PointsHandle, found| unsafe { bf_batches_next(batches, points, found) };
    refused(next(null_mut(), &raw mut found), INVALID, "for the points is NULL");
    refused(next(&raw mut points, null_mut()), INVALID, "for the answer is NULL");
    loop {
        assert_eq!(next(&raw mut points, &raw mut found), OK, "{}", last_error());
        if found == 0 {
            break;
        }
        let (mut count, mut values) = (0, [0_i32; 3]);
        unsafe {
            assert_eq!(bf_points_count(points, &raw mut count), OK);
            assert!((1..=3).contains(&count), "{count}");
            let (buffer, name) = (values.as_mut_ptr().cast(), c"t".as_ptr());
            assert_eq!(bf_points_values(points, name, buffer, 4 * count), OK, "{}", last_error());
        }
        all.extend_from_slice(&values[..usize::try_from(count).unwrap()]);
        assert_eq!(bf_points_close(points), OK);
    }
    assert_eq!((points, all), (PointsHandle::NULL, (10..24).collect()));
    assert_eq!(next(&raw mut points, &raw mut found), OK, "{}", last_error());
    assert_eq!((found, bf_batches_close(batches)), (0, OK));
    refused(next(&raw mut points, &raw mut found), INVALID, "was closed before");
    refused(bf_batches_close(BatchesHandle::NULL), INVALID, "batches handle is null");
}

#[test]
fn handles_of_other_kinds_are_no_queries_and_a_query_outlives_its_store() {
    let place = numbered();
    let path = place.path();
    let (mut store, mut query, mut any) = (StoreHandle::NULL, QueryHandle::NULL, 7);
    unsafe {
        assert_eq!(bf_open(path.as_ptr(), c"r".as_ptr(), null(), &raw mut store), OK);
        let expression = c"t > 22".as_ptr();
        let (dims, lengths, to) = (null(), null(), &raw mut query);
        let made = bf_query_open(store, expression, 0, dims, lengths, lengths, null(), to);
        assert_eq!((made, bf_close(store)), (OK, OK), "{}", last_error());
        assert_eq!((bf_query_any(query, &raw mut any), any), (OK, 1), "{}", last_error());
        let other = QueryHandle { id: place.store.id };
        refused(bf_query_any(other, &raw mut any), INVALID, "of a query is wanted");
        refused(bf_query_any(QueryHandle::NULL, &raw mut any), INVALID, "query handle is null");
        let points = PointsHandle { id: query.id };
        refused(bf_points_count(points, null_mut()), INVALID, "of a result of points is wanted");
    }
    let limited = open(&place, c"t >= 0", c"{\"memory_bytes\": 100}").1;
    let mut points = PointsHandle::NULL;
    let status = unsafe { bf_query_points(limited, null(), u64::MAX, &raw mut points) };
    refused(status, LIMIT, "more than 100 bytes");
    assert_eq!((bf_query_close(query), bf_query_close(limited)), (OK, OK));
}
