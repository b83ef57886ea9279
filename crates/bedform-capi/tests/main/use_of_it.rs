//! The ordinary use of each call.

use std::ffi::{CStr, CString, c_int, c_void};
use std::mem::zeroed;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use bedform_capi::array::*;
use bedform_capi::define::*;
use bedform_capi::session::*;
use bedform_capi::status::*;
use bedform_capi::stopping::bf_set_stop;
use bedform_capi::store::*;
use bedform_capi::{ArrayHandle, DecompositionHandle, SessionHandle, StoreHandle};
use bedform_format::ObjectPath;
use bedform_storage::{LocalStorage, Mode, Storage as _};

use super::support::*;

fn bytes_of(values: &[i32]) -> u64 {
    (values.len() * 4) as u64
}

fn whole(array: ArrayHandle) -> Vec<i32> {
    let mut found = vec![-1; 24];
    let (start, shape) = ([0, 0], [4, 6]);
    let read = unsafe {
        bf_read(
            array,
            2,
            start.as_ptr(),
            shape.as_ptr(),
            null(),
            found.as_mut_ptr().cast(),
            bytes_of(&found),
        )
    };
    assert_eq!(read, OK, "{}", last_error());
    found
}

fn begin(store: StoreHandle, options: &CStr) -> SessionHandle {
    let mut session = SessionHandle::NULL;
    let begun = unsafe { bf_session_begin(store, null(), options.as_ptr(), &raw mut session) };
    assert_eq!(begun, OK, "{}", last_error());
    session
}

#[test]
fn what_is_written_is_read_as_boxes_points_and_every_other_element() {
    let place = Place::new();
    let array = place.array();
    let values: Vec<i32> = (0..24).collect();
    let (start, shape) = ([0_u64, 0], [4_u64, 6]);
    unsafe {
        let data = values.as_ptr().cast();
        let bytes = bytes_of(&values);
        assert_eq!(bf_write(array, 2, start.as_ptr(), shape.as_ptr(), null(), data, bytes), OK);
        assert_eq!(whole(array), values);
        let mut found = [0_i32; 4];
        let buffer = found.as_mut_ptr().cast();
        let (start, shape, stride) = ([3_u64, 1], [2_u64, 2], [-2_i64, 3]);
        let read = bf_read(array, 2, start.as_ptr(), shape.as_ptr(), stride.as_ptr(), buffer, 16);
        assert_eq!((read, found), (OK, [19, 22, 7, 10]));
        let coordinates = [0_u64, 0, 3, 5, 1, 2, 1, 2];
        assert_eq!(bf_read_points(array, 2, 4, coordinates.as_ptr(), buffer, 16), OK);
        assert_eq!(found, [0, 23, 8, 8]);
        let (starts, shapes) = ([1_u64, 1, 3, 4], [2_u64, 1, 1, 2]);
        assert_eq!(bf_read_boxes(array, 2, 2, starts.as_ptr(), shapes.as_ptr(), buffer, 16), OK);
        assert_eq!(found, [7, 13, 22, 23]);
        let stride = [1_i64, 2];
        let (start, shape) = ([0_u64, 1], [1_u64, 3]);
        let every_other = [-1_i32, -2, -3];
        let data = every_other.as_ptr().cast();
        let wrote = bf_write(array, 2, start.as_ptr(), shape.as_ptr(), stride.as_ptr(), data, 12);
        assert_eq!((wrote, &whole(array)[..6]), (OK, &[0, -1, 2, -2, 4, -3][..]));
    }
    assert_eq!(bf_close_array(array), OK);
}

#[test]
fn facts_names_attributes_and_lists_are_those_of_the_store() {
    let place = Place::new();
    let array = place.array();
    unsafe {
        let mut facts: ArrayFacts = zeroed();
        assert_eq!(bf_array_info(array, &raw mut facts, size_of::<ArrayFacts>() as u64), OK);
        assert_eq!((facts.rank, facts.item_bytes), (2, 4));
        assert_eq!((&facts.shape[..3], &facts.chunks[..2]), (&[4, 6, 0][..], &[2, 3][..]));
        assert_eq!(facts.shards[..2], [4, 6]);
        assert_eq!(CStr::from_ptr(facts.dtype.as_ptr().cast()), c"int32");
        let name = text_of(|b, c, n| bf_array_dimension_name(array, 1, b, c, n));
        assert_eq!(name, "x");
        let described = text_of(|b, c, n| bf_array_describe(array, b, c, n));
        assert!(described.contains("\"numpy\":\"i4\""), "{described}");
        let (group, attributes) = (c"forcing/wind", c"{\"units\": \"m s-1\"}");
        assert_eq!(bf_create_group(place.store, group.as_ptr(), attributes.as_ptr()), OK);
        let list = text_of(|b, c, n| bf_list(place.store, b, c, n));
        assert_eq!(list, r#"{"forcing":"group","forcing/wind":"group","t":"array"}"#);
        let read =
            |name: &CStr| text_of(|b, c, n| bf_attributes(place.store, name.as_ptr(), b, c, n));
        assert_eq!(read(group), r#"{"units":"m s-1"}"#);
        for name in [c"t", c"forcing", c""] {
            let status = bf_set_attributes(place.store, name.as_ptr(), c"{\"a\": [1]}".as_ptr());
            assert_eq!((status, read(name).as_str()), (OK, r#"{"a":[1]}"#));
        }
        let mut kind = 7;
        for (name, expected) in [(c"t", 1), (c"forcing", 2), (c"u", 0)] {
            assert_eq!(bf_kind(place.store, name.as_ptr(), &raw mut kind), OK);
            assert_eq!(kind, expected);
        }
        assert_eq!(bf_delete(place.store, c"forcing".as_ptr()), OK);
        assert_eq!(text_of(|b, c, n| bf_list(place.store, b, c, n)), r#"{"t":"array"}"#);
    }
}

#[test]
fn arrays_grow_by_appends_and_by_resizing() {
    let place = Place::new();
    let array = place.array();
    let mut start = 0;
    let row = [7_i32; 6];
    unsafe {
        let shape = [1_u64, 6];
        let data = row.as_ptr().cast();
        assert_eq!(bf_append(array, 0, 2, shape.as_ptr(), data, 24, &raw mut start), OK);
        assert_eq!(start, 4);
        let (start, shape) = ([4_u64, 0], [1_u64, 6]);
        let mut found = [0_i32; 6];
        let buffer = found.as_mut_ptr().cast();
        assert_eq!(bf_read(array, 2, start.as_ptr(), shape.as_ptr(), null(), buffer, 24), OK);
        assert_eq!(found, row);
        assert_eq!(bf_resize(array, 2, [4_u64, 6].as_ptr()), OK);
        let outside = bf_read(array, 2, start.as_ptr(), shape.as_ptr(), null(), buffer, 24);
        assert_eq!(outside, OUT_OF_BOUNDS);
        assert!(last_error().contains("index 4 is out of bounds"), "{}", last_error());
    }
}

#[test]
fn a_session_shows_boxes_points_and_decompositions_when_it_commits() {
    let place = Place::new();
    let array = place.array();
    let session = begin(place.store, c"{\"settle\": \"later\", \"buffer_bytes\": 1000000}");
    unsafe {
        let ones = [1_i32; 24];
        let data = ones.as_ptr().cast();
        let (start, shape) = ([0_u64, 0], [4_u64, 6]);
        let name = c"t".as_ptr();
        assert_eq!(
            bf_session_write(session, name, 2, start.as_ptr(), shape.as_ptr(), data, 96),
            OK
        );
        let twos = [2_i32, 2, 2];
        let (starts, shapes) = ([0_u64, 0, 1, 4], [1_u64, 1, 1, 2]);
        let (starts, shapes) = (starts.as_ptr(), shapes.as_ptr());
        let data = twos.as_ptr().cast();
        assert_eq!(bf_session_write_boxes(session, name, 2, 2, starts, shapes, data, 12), OK);
        let threes = [3_i32, 4];
        let coordinates = [2_u64, 2, 2, 5];
        let (at, data) = (coordinates.as_ptr(), threes.as_ptr().cast());
        assert_eq!(bf_session_write_points(session, name, 2, 2, at, data, 8), OK);
        let mut parts = DecompositionHandle::NULL;
        let (starts, shapes) = ([1_u64, 4], [1_u64, 2]);
        let (starts, shapes) = (starts.as_ptr(), shapes.as_ptr());
        assert_eq!(bf_decomposition_declare(1, 2, starts, shapes, &raw mut parts), OK);
        let fives = [5_i32; 3];
        let data = fives.as_ptr().cast();
        assert_eq!(bf_session_write_decomposed(session, name, 3, parts, data, 12), OK);
        assert_eq!(bf_decomposition_free(parts), OK);
        assert!(whole(array).iter().all(|value| *value == 0), "nothing before the commit");
        let mut number = 0;
        assert_eq!(bf_session_commit(session, &raw mut number), OK);
        assert_eq!(number, 1);
    }
    let expected = [
        2, 1, 1, 1, 1, 1, //
        1, 1, 1, 1, 2, 2, //
        1, 1, 3, 1, 1, 4, //
        1, 5, 1, 1, 5, 5,
    ];
    assert_eq!(whole(array), expected);
    assert_eq!(bf_session_end(session), OK);
    assert_eq!(bf_settle(place.store), OK);
    assert_eq!(whole(array), expected);
}

#[test]
fn a_session_borrows_data_grows_arrays_and_takes_what_has_no_element() {
    let place = Place::new();
    let array = place.array();
    let session = begin(place.store, c"");
    let name = c"t".as_ptr();
    let values: Vec<i32> = (100..124).collect();
    unsafe {
        let (start, shape) = ([0_u64, 0], [4_u64, 6]);
        let (at, whole, data) = (start.as_ptr(), shape.as_ptr(), values.as_ptr().cast());
        let mut token = 0;
        let token = &raw mut token;
        let status = bf_session_write_borrowed(session, name, 2, at, whole, data, 96, token);
        assert_eq!((status, bf_session_wait(session, *token)), (OK, OK), "{}", last_error());
        assert_eq!(bf_session_write_boxes(session, name, 2, 1, at, at, null(), 0), OK);
        let mut parts = DecompositionHandle::NULL;
        assert_eq!(bf_decomposition_declare(1, 0, null(), null(), &raw mut parts), OK);
        assert_eq!(bf_session_write_decomposed(session, name, 1, parts, null(), 0), OK);
        let (mut rows, lend) = (DecompositionHandle::NULL, bf_session_write_decomposed_borrowed);
        assert_eq!(bf_decomposition_declare(2, 1, at, whole, &raw mut rows), OK);
        assert_eq!(lend(session, name, -1, rows, data, 96, token), OK, "{}", last_error());
        assert_eq!(bf_session_wait(session, *token), OK);
        assert_eq!(bf_session_wait(session, u64::MAX), INVALID);
        assert!(last_error().contains("no write of this session"), "{}", last_error());
        assert_eq!(lend(session, name, 0, parts, null(), 0, token), OK, "nothing is lent");
        assert_eq!(lend(session, name, -2, rows, data, 96, token), INVALID);
        assert_eq!(bf_session_flush(session), OK);
        let (row, mut first) = ([1_u64, 6], 0);
        let row = row.as_ptr();
        assert_eq!(bf_session_append(session, name, 0, 2, row, data, 24, &raw mut first), OK);
        assert_eq!(first, 4);
        assert_eq!(bf_session_resize(session, name, 2, [7_u64, 6].as_ptr()), OK);
        assert_eq!(bf_session_commit(session, null_mut()), OK, "{}", last_error());
        let mut facts: ArrayFacts = zeroed();
        assert_eq!(bf_array_info(array, &raw mut facts, size_of::<ArrayFacts>() as u64), OK);
        assert_eq!(facts.shape[..2], [7, 6]);
    }
    assert_eq!(whole(array), values);
    assert_eq!(bf_session_end(session), OK, "{}", last_error());
    assert_eq!(whole(array), values);
}

#[test]
fn sizes_of_options_are_numbers_or_texts_with_units() {
    let place = Place::new();
    let session = begin(place.store, c"{\"buffer_bytes\": \"1.5 MiB\", \"settle\": \"later\"}");
    assert_eq!(bf_session_end(session), OK, "{}", last_error());
    for options in [c"{\"memory_bytes\": \"64 MB\"}", c"{\"memory_bytes\": 64000000}"] {
        let settled = unsafe { bf_settle_together(place.store, null(), options.as_ptr()) };
        assert_eq!(settled, OK, "{}", last_error());
    }
}

#[test]
fn a_session_that_is_aborted_leaves_nothing_and_one_that_ends_commits() {
    let place = Place::new();
    let array = place.array();
    for (end, expected) in
        [(bf_session_abort as extern "C" fn(SessionHandle) -> StatusNumber, 0), (bf_session_end, 9)]
    {
        let session = begin(place.store, c"");
        let nine = 9_i32;
        let (at, data) = ([0_u64, 0], (&raw const nine).cast());
        let one = [1_u64, 1];
        let (at, one) = (at.as_ptr(), one.as_ptr());
        let wrote = unsafe { bf_session_write(session, c"t".as_ptr(), 2, at, one, data, 4) };
        assert_eq!((wrote, end(session)), (OK, OK));
        assert_eq!(whole(array)[0], expected);
    }
    let log = format!("{}.bedform-log", place.path().to_str().unwrap());
    assert!(!std::path::Path::new(&log).exists(), "settled at the end");
}

#[test]
fn new_arrays_leave_their_layout_to_bedform_or_say_it() {
    let place = Place::new();
    let mut array = ArrayHandle::NULL;
    let shape = [0_u64, 90, 180];
    let options = c"{\"reads\": {\"lat,lon\": 1.0}, \"readers\": \"bedform\", \"codecs\": [\"zstd\"], \"fill_value\": 2}";
    unsafe {
        let made = bf_create_array(
            place.store,
            c"g/maps".as_ptr(),
            c"float32".as_ptr(),
            3,
            shape.as_ptr(),
            c"time,lat,lon".as_ptr(),
            null(),
            null(),
            options.as_ptr(),
            &raw mut array,
        );
        assert_eq!(made, OK, "{}", last_error());
        let mut facts: ArrayFacts = zeroed();
        assert_eq!(bf_array_info(array, &raw mut facts, size_of::<ArrayFacts>() as u64), OK);
        assert_eq!((facts.chunks[0], facts.shards[0] > 0), (1, true));
        let again = bf_create_array(
            place.store,
            c"g/maps".as_ptr(),
            c"float32".as_ptr(),
            3,
            shape.as_ptr(),
            null(),
            null(),
            null(),
            null(),
            null_mut(),
        );
        assert_eq!(again, EXISTS);
        let scalar = bf_create_array(
            place.store,
            c"scalar".as_ptr(),
            c"int64".as_ptr(),
            0,
            null(),
            null(),
            null(),
            null(),
            null(),
            &raw mut array,
        );
        assert_eq!(scalar, OK, "{}", last_error());
        let (written, mut found) = (42_i64, 0_i64);
        let data = (&raw const written).cast();
        assert_eq!(bf_write(array, 0, null(), null(), null(), data, 8), OK, "{}", last_error());
        let buffer = (&raw mut found).cast();
        assert_eq!(bf_read(array, 0, null(), null(), null(), buffer, 8), OK);
        assert_eq!(found, 42);
    }
}

#[test]
fn new_arrays_are_compressed_unless_told_otherwise() {
    let place = Place::new();
    let shape = [4_u64];
    let codecs_of = |name: &CStr, options: *const std::ffi::c_char| unsafe {
        let mut array = ArrayHandle::NULL;
        let (dtype, shape) = (c"int32".as_ptr(), shape.as_ptr());
        let (name, none) = (name.as_ptr(), null());
        let made = bf_create_array(
            place.store,
            name,
            dtype,
            1,
            shape,
            null(),
            none,
            none,
            options,
            &raw mut array,
        );
        assert_eq!(made, OK, "{}", last_error());
        let mut text = [0; 4096];
        assert_eq!(bf_array_describe(array, text.as_mut_ptr(), 4096, null_mut()), OK);
        let text = CStr::from_ptr(text.as_ptr()).to_str().unwrap();
        let described: serde_json::Value = serde_json::from_str(text).unwrap();
        described["codecs"].as_array().unwrap().iter().any(|codec| codec["name"] == "zstd")
    };
    assert!(codecs_of(c"a", null()));
    assert!(codecs_of(c"b", c"{\"codecs\": null}".as_ptr()));
    assert!(!codecs_of(c"c", c"{\"codecs\": []}".as_ptr()));
}

#[test]
fn arrays_that_are_defined_appear_at_once_or_with_the_commit_of_a_session() {
    let place = Place::new();
    let define = |names: &[&CStr]| {
        assert_eq!(bf_define_begin(place.store), OK, "{}", last_error());
        for name in names {
            let shape = [3_u64];
            let (dtype, shape) = (c"uint8".as_ptr(), shape.as_ptr());
            let (dims, lengths) = (null(), null());
            let (options, array) = (null(), null_mut());
            let name = name.as_ptr();
            let made = unsafe {
                bf_create_array(
                    place.store,
                    name,
                    dtype,
                    1,
                    shape,
                    dims,
                    lengths,
                    lengths,
                    options,
                    array,
                )
            };
            assert_eq!(made, OK, "{}", last_error());
        }
    };
    let is_there = |name: &CStr| {
        let mut array = ArrayHandle::NULL;
        OK == unsafe { bf_open_array(place.store, name.as_ptr(), &raw mut array) }
    };
    define(&[c"a", c"b"]);
    assert!(!is_there(c"a"));
    assert_eq!(bf_define_end(place.store), OK, "{}", last_error());
    assert!(is_there(c"a") && is_there(c"b"));
    assert_eq!(bf_define_end(place.store), INVALID);

    let session = begin(place.store, c"");
    define(&[c"c", c"g/d", c"e", c"f"]);
    assert_eq!(bf_session_define_end(session, place.store), OK, "{}", last_error());
    let (start, shape, data) = ([1_u64], [2_u64], [7_u8, 8]);
    for name in [c"c", c"g/d"] {
        let (start, shape, data) = (start.as_ptr(), shape.as_ptr(), data.as_ptr().cast());
        let written = unsafe { bf_session_write(session, name.as_ptr(), 1, start, shape, data, 2) };
        assert_eq!(written, OK, "{}", last_error());
    }
    assert!(!is_there(c"c"));
    assert_eq!(unsafe { bf_session_commit(session, null_mut()) }, OK, "{}", last_error());
    assert!(is_there(c"c") && is_there(c"g/d"));
    define(&[c"c"]);
    assert_eq!(bf_session_define_end(session, place.store), EXISTS);
    assert_eq!(bf_session_define_end(session, place.store), INVALID);
    assert!(last_error().contains("bf_define_begin was not called"), "{}", last_error());
    define(&[]);
    assert_eq!(bf_session_define_end(session, place.store), OK, "{}", last_error());
    assert_eq!(bf_session_end(session), OK, "{}", last_error());
}

#[test]
fn a_snapshot_stays_as_it_was_and_is_not_written_to() {
    let place = Place::new();
    let (mut then, before) = (StoreHandle::NULL, whole(place.array()));
    assert_eq!(unsafe { bf_snapshot(place.store, &raw mut then) }, OK, "{}", last_error());
    let mut array = ArrayHandle::NULL;
    assert_eq!(unsafe { bf_open_array(then, c"t".as_ptr(), &raw mut array) }, OK);
    assert_eq!(whole(array), before);
    let shape = [9_u64, 9];
    assert_eq!(unsafe { bf_resize(array, 2, shape.as_ptr()) }, READ_ONLY);
    assert!(last_error().contains("is a snapshot"), "{}", last_error());
    assert_eq!((bf_close(then), bf_close_array(array)), (OK, OK));
}

#[test]
fn handles_live_on_in_other_threads_and_after_their_store_is_closed() {
    let place = Place::new();
    let array = place.array();
    let path = place.path();
    let mut reader = StoreHandle::NULL;
    let mode = c"r".as_ptr();
    assert_eq!(unsafe { bf_open(path.as_ptr(), mode, null(), &raw mut reader) }, OK);
    let mut through = ArrayHandle::NULL;
    assert_eq!(unsafe { bf_open_array(reader, c"t".as_ptr(), &raw mut through) }, OK);
    assert_eq!(bf_close(reader), OK);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || {
                assert_eq!(whole(through), whole(array));
                let mut missing = ArrayHandle::NULL;
                let name = CString::new("missing").unwrap();
                let status =
                    unsafe { bf_open_array(place_store(through), name.as_ptr(), &raw mut missing) };
                assert_eq!(status, INVALID, "an array is no store");
                assert!(last_error().contains("a handle of a store is wanted"), "{}", last_error());
            });
        }
    });
    assert_eq!(bf_close_array(through), OK);
}

/// The handle of an array, passed as one of a store.
fn place_store(array: ArrayHandle) -> StoreHandle {
    StoreHandle { id: array.id }
}

#[test]
fn the_version_and_the_names_of_statuses_are_texts() {
    let text = |pointer| unsafe { CStr::from_ptr(pointer) }.to_str().unwrap();
    assert_eq!(text(bf_version()), env!("CARGO_PKG_VERSION"));
    assert_eq!(text(bf_status_name(1)), "NotFound");
    assert_eq!(text(bf_status_name(4711)), "Unknown");
}

#[test]
fn a_wait_for_a_lock_ends_when_the_function_of_the_thread_says_so_and_not_before() {
    unsafe extern "C" fn count(context: *mut c_void) -> c_int {
        let asked = unsafe { &*context.cast::<AtomicU32>() };
        i32::from(asked.fetch_add(1, Ordering::Relaxed) == 2)
    }
    let place = Place::new();
    let path = place.path();
    let storage = LocalStorage::open(Path::new(path.to_str().unwrap()), Mode::ReadWrite).unwrap();
    let held = storage.lock(&ObjectPath::root()).unwrap();
    let asked = AtomicU32::new(0);
    let context = (&raw const asked).cast_mut().cast();
    let write = || unsafe { bf_set_attributes(place.store, c"".as_ptr(), c"{\"a\": 1}".as_ptr()) };
    assert_eq!(unsafe { bf_set_stop(Some(count), context) }, OK);
    assert_eq!(write(), INTERRUPTED, "{}", last_error());
    drop(held);
    assert_eq!(write(), OK, "{}", last_error());
    assert_eq!(unsafe { bf_set_stop(None, null_mut()) }, OK);
    assert_eq!((write(), asked.into_inner()), (OK, 3));
}

#[test]
fn recovery_counts_what_a_dead_writer_left() {
    let place = Place::new();
    let size = size_of::<RecoveryFacts>() as u64;
    let mut found = RecoveryFacts::default();
    let recover = |options: &CStr, found: *mut RecoveryFacts, bytes| unsafe {
        bf_recover(place.store, options.as_ptr(), found, bytes)
    };
    assert_eq!(recover(c"", &raw mut found, size), OK, "{}", last_error());
    assert_eq!(found, RecoveryFacts::default());

    let mut session = SessionHandle::NULL;
    let begun = unsafe { bf_session_begin(place.store, null(), null(), &raw mut session) };
    assert_eq!(begun, OK, "{}", last_error());
    let data = [7_i32; 6];
    let (start, shape) = ([0_u64, 0], [1_u64, 6]);
    let written = unsafe {
        let data = data.as_ptr().cast();
        bf_session_write(session, c"t".as_ptr(), 2, start.as_ptr(), shape.as_ptr(), data, 24)
    };
    assert_eq!((written, bf_session_flush(session)), (OK, OK), "{}", last_error());
    assert_eq!(recover(c"", &raw mut found, size), OK, "{}", last_error());
    assert_eq!((found.live, found.uncommitted_writes), (1, 0), "it lives");
    assert_eq!(recover(c"", null_mut(), 0), OK);
    assert_eq!(recover(c"", &raw mut found, size - 8), INVALID);
    assert!(last_error().contains("pass sizeof of it"), "{}", last_error());
    for wrong in [c"{\"leftover\": \"none\"}", c"{\"burst\": 5}", c"{\"x\": 1}"] {
        assert_eq!(recover(wrong, null_mut(), 0), INVALID);
    }
    assert_eq!(bf_session_abort(session), OK);
}

#[test]
fn a_wait_yields_first_and_sleeps_later() {
    let mut before = bf_comm_rest(0);
    for tries in [1, 63, 64, 65, 90, u32::MAX] {
        let now = bf_comm_rest(tries);
        assert!(now >= before, "the clock goes forward");
        before = now;
    }
}
