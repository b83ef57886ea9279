//! Misuse: each wrong call returns a status and a text that names the mistake, and never crashes.

use std::ffi::{CStr, CString, c_char};
use std::mem::zeroed;
use std::ptr::{dangling, null, null_mut};

use bedform::comm::CMembers;
use bedform_capi::array::*;
use bedform_capi::define::*;
use bedform_capi::session::*;
use bedform_capi::status::*;
use bedform_capi::store::*;
use bedform_capi::{ArrayHandle, DecompositionHandle, SessionHandle, StoreHandle};

use super::support::*;

struct Handles {
    place: Place,
    array: ArrayHandle,
    session: SessionHandle,
    parts: DecompositionHandle,
}

impl Handles {
    fn new() -> Self {
        let place = Place::new();
        let array = place.array();
        let mut session = SessionHandle::NULL;
        let begun = unsafe { bf_session_begin(place.store, null(), null(), &raw mut session) };
        assert_eq!(begun, OK, "{}", last_error());
        let mut parts = DecompositionHandle::NULL;
        let declared =
            unsafe { bf_decomposition_declare(1, 1, [0].as_ptr(), [6].as_ptr(), &raw mut parts) };
        assert_eq!(declared, OK);
        Self { place, array, session, parts }
    }
}

/// Checks each call at once, since the next one replaces the error text.
struct Cases(u32);

impl Drop for Cases {
    fn drop(&mut self) {
        println!("COUNT misuses {}", self.0);
    }
}

impl Cases {
    fn check(&mut self, what: &str, status: StatusNumber, expected: StatusNumber, says: &str) {
        let text = last_error();
        assert_eq!(status, expected, "{what}: {text}");
        assert!(text.contains(says), "{what}: {text:?} does not say {says:?}");
        assert!(!text.contains('\n') && !text.is_empty(), "{what}: {text:?}");
        self.0 += 1;
    }
}

const ZEROS: [u64; 2] = [0, 0];
const WHOLE: [u64; 2] = [4, 6];
const DATA: [i32; 24] = [0; 24];

fn stores_that_are_none(
    cases: &mut Cases,
    s: StoreHandle,
    live: SessionHandle,
    what: &str,
    says: &str,
) {
    let (name, whole) = (c"t".as_ptr(), WHOLE.as_ptr());
    let (mut kind, mut needed) = (0, 0);
    let (mut begun, mut opened) = (SessionHandle::NULL, ArrayHandle::NULL);
    unsafe {
        cases.check(what, bf_kind(s, name, &raw mut kind), INVALID, says);
        cases.check(what, bf_delete(s, name), INVALID, says);
        cases.check(what, bf_settle(s), INVALID, says);
        let begin = bf_session_begin(s, null(), null(), &raw mut begun);
        cases.check(what, begin, INVALID, says);
        cases.check(what, bf_define_begin(s), INVALID, says);
        cases.check(what, bf_define_end(s), INVALID, says);
        cases.check(what, bf_session_define_end(live, s), INVALID, says);
        cases.check(what, bf_close(s), INVALID, says);
        cases.check(what, bf_open_array(s, name, &raw mut opened), INVALID, says);
        let made = bf_create_array(
            s,
            name,
            c"int8".as_ptr(),
            2,
            whole,
            null(),
            null(),
            null(),
            null(),
            null_mut(),
        );
        cases.check(what, made, INVALID, says);
        cases.check(what, bf_list(s, null_mut(), 0, &raw mut needed), INVALID, says);
        let mut snapshot = StoreHandle::NULL;
        cases.check(what, bf_snapshot(s, &raw mut snapshot), INVALID, says);
        let asked = bf_attributes(s, name, null_mut(), 0, &raw mut needed);
        cases.check(what, asked, INVALID, says);
        cases.check(what, bf_set_attributes(s, name, c"{}".as_ptr()), INVALID, says);
        cases.check(what, bf_create_group(s, name, null()), INVALID, says);
        cases.check(what, bf_settle_together(s, null(), null()), INVALID, says);
    }
}

fn handles_that_are_none(cases: &mut Cases, given: &Handles) {
    let Handles { place, array, session, parts } = given;
    let (store, array, session, parts) = (place.store.id, array.id, session.id, parts.id);
    let (zeros, whole) = (ZEROS.as_ptr(), WHOLE.as_ptr());
    let name = c"t".as_ptr();
    let mut room = [0_i32; 24];
    let buffer = room.as_mut_ptr().cast();
    let data = DATA.as_ptr().cast();
    let mut check = |id: u64, what: &str, says: &str, wrong_for: &[&str]| unsafe {
        let wanted = |kind: &str| wrong_for.contains(&kind);
        let (s, a) = (StoreHandle { id }, ArrayHandle { id });
        let (w, d) = (SessionHandle { id }, DecompositionHandle { id });
        let mut facts: ArrayFacts = zeroed();
        if wanted("store") {
            stores_that_are_none(cases, s, SessionHandle { id: session }, what, says);
        }
        if wanted("array") {
            cases.check(what, bf_read(a, 2, zeros, whole, null(), buffer, 96), INVALID, says);
            cases.check(what, bf_write(a, 2, zeros, whole, null(), data, 96), INVALID, says);
            cases.check(what, bf_resize(a, 2, whole), INVALID, says);
            cases.check(
                what,
                bf_array_info(a, &raw mut facts, size_of::<ArrayFacts>() as u64),
                INVALID,
                says,
            );
        }
        if wanted("session") {
            cases.check(what, bf_session_write(w, name, 2, zeros, whole, data, 96), INVALID, says);
            cases.check(what, bf_session_commit(w, null_mut()), INVALID, says);
        }
        if wanted("decomposition") {
            let live = SessionHandle { id: session };
            let status = bf_session_write_decomposed(live, name, 0, d, data, 24);
            cases.check(what, status, INVALID, says);
        }
    };
    let all = ["store", "array", "session", "decomposition"];
    check(0, "a null handle", "handle is null", &all);
    check(store, "a store", "is wanted, this is one of a store", &all[1..]);
    check(
        array,
        "an array",
        "is wanted, this is one of an array",
        &["store", "session", "decomposition"],
    );
    check(
        session,
        "a session",
        "is wanted, this is one of a session",
        &["store", "array", "decomposition"],
    );
    check(parts, "boxes", "is wanted, this is one of a decomposition", &all[..3]);
    check(0x1234_5678_9abc_def0, "a random number", "is not a handle", &all);
    check(u64::MAX, "all ones", "is not a handle", &all);
}

#[test]
fn handles_that_are_null_of_another_kind_or_made_up_are_noticed() {
    let given = Handles::new();
    let mut cases = Cases(0);
    handles_that_are_none(&mut cases, &given);
    assert!(cases.0 >= 120, "{} cases", cases.0);
}

#[test]
fn handles_that_were_closed_are_noticed_however_often() {
    let Handles { place, array, session, parts } = Handles::new();
    let mut cases = Cases(0);
    let mut store = StoreHandle::NULL;
    let path = place.path();
    assert_eq!(unsafe { bf_open(path.as_ptr(), c"r".as_ptr(), null(), &raw mut store) }, OK);
    assert_eq!((bf_close(store), bf_close_array(array)), (OK, OK));
    assert_eq!((bf_decomposition_free(parts), bf_session_end(session)), (OK, OK));
    let closed = "was closed before";
    for again in ["the second time", "the third time"] {
        cases.check(again, bf_close(store), INVALID, closed);
        cases.check(again, bf_close_array(array), INVALID, closed);
        cases.check(again, bf_decomposition_free(parts), INVALID, closed);
        cases.check(again, bf_session_end(session), INVALID, closed);
        cases.check(again, bf_session_abort(session), INVALID, closed);
    }
    let (zeros, whole) = (ZEROS.as_ptr(), WHOLE.as_ptr());
    let (name, data) = (c"t".as_ptr(), DATA.as_ptr().cast());
    let mut room = [0_i32; 24];
    let buffer = room.as_mut_ptr().cast();
    unsafe {
        let read = bf_read(array, 2, zeros, whole, null(), buffer, 96);
        cases.check("reading", read, INVALID, closed);
        let write = bf_session_write(session, name, 2, zeros, whole, data, 96);
        cases.check("writing", write, INVALID, closed);
        cases.check("commit", bf_session_commit(session, null_mut()), INVALID, closed);
        let mut opened = ArrayHandle { id: 5 };
        let open = bf_open_array(store, name, &raw mut opened);
        cases.check("opening", open, INVALID, closed);
        assert_eq!(opened, ArrayHandle::NULL, "nothing is given with an error");
    }
    // A new handle in a used entry of the table does not revive the old handles.
    let fresh = place.array();
    cases.check("an old handle", bf_close_array(array), INVALID, closed);
    assert_eq!(bf_close_array(fresh), OK);
    assert_eq!(cases.0, 15);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a list of cases")]
fn pointers_that_are_null_or_not_aligned_are_noticed() {
    let Handles { place, array, session, parts } = Handles::new();
    let mut cases = Cases(0);
    let c = &mut cases;
    let store = place.store;
    let (zeros, whole) = (ZEROS.as_ptr(), WHOLE.as_ptr());
    let (name, data) = (c"t".as_ptr(), DATA.as_ptr().cast());
    let mut room = [0_i32; 24];
    let buffer = room.as_mut_ptr().cast();
    let mut handle = StoreHandle::NULL;
    let mut opened = ArrayHandle::NULL;
    let odd = zeros.wrapping_byte_add(1);
    let path = place.path();
    let path = path.as_ptr();
    unsafe {
        c.check(
            "no path",
            bf_create(null(), null(), null(), &raw mut handle),
            INVALID,
            "path is NULL",
        );
        c.check(
            "no room",
            bf_create(path, null(), null(), null_mut()),
            INVALID,
            "for the store is NULL",
        );
        c.check(
            "no path",
            bf_open(null(), c"r".as_ptr(), null(), &raw mut handle),
            INVALID,
            "path is NULL",
        );
        c.check("no mode", bf_open(path, null(), null(), &raw mut handle), INVALID, "mode is NULL");
        c.check(
            "no room",
            bf_open(path, c"r".as_ptr(), null(), null_mut()),
            INVALID,
            "for the store",
        );
        c.check("no name", bf_open_array(store, null(), &raw mut opened), INVALID, "path is NULL");
        c.check("no room", bf_open_array(store, name, null_mut()), INVALID, "for the array");
        c.check(
            "no room",
            bf_open_array(store, name, (&raw mut opened).wrapping_byte_add(3)),
            INVALID,
            "not aligned",
        );
        c.check("no room", bf_kind(store, name, null_mut()), INVALID, "for the kind");
        c.check("no name", bf_delete(store, null()), INVALID, "path is NULL");
        c.check("no text", bf_set_attributes(store, name, null()), INVALID, "attributes is NULL");
        c.check(
            "no facts",
            bf_array_info(array, null_mut(), size_of::<ArrayFacts>() as u64),
            INVALID,
            "for the facts",
        );
        c.check(
            "no start",
            bf_read(array, 2, null(), whole, null(), buffer, 96),
            INVALID,
            "to start is NULL",
        );
        c.check(
            "no shape",
            bf_read(array, 2, zeros, null(), null(), buffer, 96),
            INVALID,
            "to shape is NULL",
        );
        c.check(
            "odd start",
            bf_read(array, 2, odd, whole, null(), buffer, 96),
            INVALID,
            "not aligned",
        );
        c.check(
            "no buffer",
            bf_read(array, 2, zeros, whole, null(), null_mut(), 96),
            INVALID,
            "buffer is NULL",
        );
        c.check(
            "no data",
            bf_write(array, 2, zeros, whole, null(), null(), 96),
            INVALID,
            "data is NULL",
        );
        c.check(
            "no points",
            bf_read_points(array, 2, 2, null(), buffer, 8),
            INVALID,
            "coordinates is NULL",
        );
        c.check(
            "no starts",
            bf_read_boxes(array, 2, 1, null(), whole, buffer, 96),
            INVALID,
            "starts is NULL",
        );
        c.check("no shape", bf_resize(array, 2, null()), INVALID, "shape is NULL");
        c.check(
            "no shape",
            bf_append(array, 0, 2, null(), data, 96, null_mut()),
            INVALID,
            "shape is NULL",
        );
        c.check(
            "no dtype",
            bf_create_array(
                store,
                c"u".as_ptr(),
                null(),
                2,
                whole,
                null(),
                null(),
                null(),
                null(),
                null_mut(),
            ),
            INVALID,
            "dtype is NULL",
        );
        c.check(
            "no shape",
            bf_create_array(
                store,
                c"u".as_ptr(),
                c"int8".as_ptr(),
                2,
                null(),
                null(),
                null(),
                null(),
                null(),
                null_mut(),
            ),
            INVALID,
            "shape is NULL",
        );
        c.check(
            "no session",
            bf_session_begin(store, null(), null(), null_mut()),
            INVALID,
            "for the session",
        );
        c.check(
            "no name",
            bf_session_write(session, null(), 2, zeros, whole, data, 96),
            INVALID,
            "path is NULL",
        );
        c.check(
            "no data",
            bf_session_write(session, name, 2, zeros, whole, null(), 96),
            INVALID,
            "data is NULL",
        );
        c.check(
            "no points",
            bf_session_write_points(session, name, 2, 1, null(), data, 4),
            INVALID,
            "coordinates",
        );
        c.check(
            "no shapes",
            bf_session_write_boxes(session, name, 2, 1, zeros, null(), data, 96),
            INVALID,
            "shapes",
        );
        c.check(
            "no room",
            bf_decomposition_declare(1, 1, zeros, whole, null_mut()),
            INVALID,
            "decomposition",
        );
        c.check(
            "no data",
            bf_session_write_decomposed(session, name, 0, parts, null(), 24),
            INVALID,
            "data",
        );
        c.check("no comm", bf_comm_free(null_mut()), INVALID, "communicator is NULL");
        let mut empty = CMembers::EMPTY;
        c.check("empty comm", bf_comm_free(&raw mut empty), INVALID, "was not filled");
        let mut facts: ArrayFacts = zeroed();
        c.check("small facts", bf_array_info(array, &raw mut facts, 8), INVALID, "pass sizeof");
        let mut begun = SessionHandle::NULL;
        let status = bf_session_begin(store, &raw const empty, null(), &raw mut begun);
        c.check("empty comm", status, INVALID, "was not filled");
        c.check("no buffer", bf_list(store, null_mut(), 10, null_mut()), INVALID, "text is NULL");
        c.check("no buffer", bf_list(store, null_mut(), 0, null_mut()), INVALID, "text is NULL");
    }
    assert_eq!(cases.0, 36);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a list of cases")]
fn lengths_numbers_and_texts_that_do_not_fit_are_named() {
    let Handles { place, array, session, parts } = Handles::new();
    let mut cases = Cases(0);
    let c = &mut cases;
    let store = place.store;
    let (zeros, whole) = (ZEROS.as_ptr(), WHOLE.as_ptr());
    let (name, data) = (c"t".as_ptr(), DATA.as_ptr().cast());
    let mut room = [0_i32; 24];
    let buffer = room.as_mut_ptr().cast();
    let huge = [u64::MAX, u64::MAX];
    let huge = huge.as_ptr();
    let stop = [0_i64, 1];
    let mut needed = 0;
    let mut short = [0 as c_char; 2];
    unsafe {
        c.check("one axis", bf_read(array, 1, zeros, whole, null(), buffer, 96), INVALID, "rank");
        c.check(
            "100 axes",
            bf_read(array, 100, zeros, whole, null(), buffer, 96),
            INVALID,
            "at most 32",
        );
        c.check("all axes", bf_resize(array, u32::MAX, whole), INVALID, "at most 32");
        c.check("one axis", bf_resize(array, 1, whole), INVALID, "2 axes");
        c.check(
            "a small buffer",
            bf_read(array, 2, zeros, whole, null(), buffer, 95),
            INVALID,
            "95",
        );
        c.check("no bytes", bf_read(array, 2, zeros, whole, null(), buffer, 0), INVALID, "");
        c.check(
            "endless",
            bf_read(array, 2, zeros, whole, null(), buffer, u64::MAX),
            INVALID,
            "too many",
        );
        c.check(
            "outside",
            bf_read(array, 2, whole, whole, null(), buffer, 96),
            OUT_OF_BOUNDS,
            "passes the end of axis",
        );
        c.check("overflow", bf_read(array, 2, huge, huge, null(), buffer, 96), INVALID, "");
        c.check(
            "a stride of 0",
            bf_read(array, 2, zeros, whole, stop.as_ptr(), buffer, 96),
            INVALID,
            "",
        );
        c.check(
            "small data",
            bf_write(array, 2, zeros, whole, null(), data, 4),
            INVALID,
            "elements were given",
        );
        c.check("outside", bf_read_points(array, 2, 1, whole, buffer, 4), OUT_OF_BOUNDS, "");
        c.check(
            "many points",
            bf_read_points(array, 2, u64::MAX, zeros, buffer, 4),
            INVALID,
            "too many",
        );
        c.check(
            "many points",
            bf_read_points(array, 2, u64::MAX / 16, zeros, buffer, 4),
            INVALID,
            "too many",
        );
        c.check(
            "many boxes",
            bf_read_boxes(array, 2, u64::MAX, zeros, whole, buffer, 4),
            INVALID,
            "too many",
        );
        c.check(
            "no axis",
            bf_read_boxes(array, 0, 3, zeros, whole, buffer, 4),
            INVALID,
            "at least one axis",
        );
        c.check("axis 5", bf_append(array, 5, 2, whole, data, 96, null_mut()), INVALID, "axis 5");
        c.check(
            "axis 2",
            bf_array_dimension_name(array, 2, short.as_mut_ptr(), 2, null_mut()),
            INVALID,
            "axis 2",
        );
        c.check(
            "a short text",
            bf_list(store, short.as_mut_ptr(), 2, &raw mut needed),
            LIMIT,
            "needs a buffer of",
        );
        assert_eq!(needed, 14);
        c.check(
            "record -2",
            bf_session_write_decomposed(session, name, -2, parts, data, 24),
            INVALID,
            "record is -2",
        );
        c.check(
            "record 9",
            bf_session_write_decomposed(session, name, 9, parts, data, 24),
            OUT_OF_BOUNDS,
            "record 9",
        );
        c.check(
            "no record",
            bf_session_write_decomposed(session, name, -1, parts, data, 24),
            INVALID,
            "do not lie in",
        );
        c.check(
            "no array",
            bf_session_write(session, c"v".as_ptr(), 2, zeros, whole, data, 96),
            NOT_FOUND,
            "v",
        );
        c.check(
            "small data",
            bf_session_write(session, name, 2, zeros, whole, data, 95),
            INVALID,
            "95 bytes",
        );
        let mut opened = ArrayHandle::NULL;
        let opened = &raw mut opened;
        for (path, status, says) in [
            (&b"../t\0"[..], INVALID, ""),
            (b"\xff\xfe\0", INVALID, "not UTF-8"),
            (b"zarr.json\0", NOT_FOUND, "zarr.json"),
            (b"missing\0", NOT_FOUND, "missing"),
        ] {
            c.check("a path", bf_open_array(store, path.as_ptr().cast(), opened), status, says);
        }
        assert_eq!(bf_session_abort(session), OK);
    }
    assert_eq!(cases.0, 28);
}

/// Earlier the status depended on whether the end overflowed 64 bits.
#[test]
fn places_before_the_first_have_one_status_in_every_call() {
    let Handles { place: _place, array, session, parts: _ } = Handles::new();
    let mut cases = Cases(0);
    let one = [1_u64, 1];
    let (name, data) = (c"t".as_ptr(), DATA.as_ptr().cast());
    let mut room = [0_i32; 24];
    let buffer = room.as_mut_ptr().cast();
    let mut parts = DecompositionHandle::NULL;
    let steps = [2_i64, 2];
    for (before, says) in [
        (-1_i64, "1 before the first; indices start at 0 in C, at 1 in Fortran"),
        (-5, "5 before"),
        (i64::MIN, "9223372036854775808 before"),
    ] {
        let start = [0, before.cast_unsigned()];
        let (start, one, steps) = (start.as_ptr(), one.as_ptr(), steps.as_ptr());
        let mut check = |what: &str, status| cases.check(what, status, INVALID, says);
        unsafe {
            check("read", bf_read(array, 2, start, one, null(), buffer, 4));
            check("read steps", bf_read(array, 2, start, one, steps, buffer, 4));
            check("read boxes", bf_read_boxes(array, 2, 1, start, one, buffer, 4));
            check("read points", bf_read_points(array, 2, 1, start, buffer, 4));
            check("write", bf_write(array, 2, start, one, null(), data, 4));
            check("write steps", bf_write(array, 2, start, one, steps, data, 4));
            check("session", bf_session_write(session, name, 2, start, one, data, 4));
            let mut token = 0;
            let lent =
                bf_session_write_borrowed(session, name, 2, start, one, data, 4, &raw mut token);
            check("lend", lent);
            check("boxes", bf_session_write_boxes(session, name, 2, 1, start, one, data, 4));
            check("points", bf_session_write_points(session, name, 2, 1, start, data, 4));
            check("declare", bf_decomposition_declare(2, 1, start, one, &raw mut parts));
        }
    }
    assert_eq!(cases.0, 33);
}

#[test]
fn options_that_do_not_exist_or_are_no_json_are_named() {
    let place = Place::new();
    let mut cases = Cases(0);
    let path = place.path();
    let mut store = StoreHandle::NULL;
    for (options, says) in [
        (c"{\"cash_bytes\": 1}", "no option \"cash_bytes\""),
        (c"{\"cache_bytes\": -1}", "not a value of cache_bytes"),
        (c"{\"cache_bytes\": \"1 G\"}", "cache_bytes: \"1 G\" is not a size"),
        (c"{\"freshness\": \"now\"}", "not a value of freshness"),
        (c"{\"prefetch\": \"much\"}", "not a value of prefetch"),
        (c"[1]", "no JSON object"),
        (c"{", "no JSON object"),
    ] {
        let mode = c"r".as_ptr();
        let status = unsafe { bf_open(path.as_ptr(), mode, options.as_ptr(), &raw mut store) };
        cases.check("opening", status, INVALID, says);
    }
    let create = |dtype: &CStr, dims: Option<&CStr>, options: &CStr| unsafe {
        bf_create_array(
            place.store,
            c"u".as_ptr(),
            dtype.as_ptr(),
            2,
            WHOLE.as_ptr(),
            dims.map_or(null(), CStr::as_ptr),
            null(),
            null(),
            options.as_ptr(),
            null_mut(),
        )
    };
    cases.check("a type", create(c"float33", None, c""), INVALID, "float33");
    cases.check("a type", create(c"{", None, c""), INVALID, "dtype is no JSON");
    cases.check("names", create(c"int8", Some(c"a"), c""), INVALID, "1 names");
    cases.check("names", create(c"int8", Some(c"a,b,c"), c""), INVALID, "3 names");
    cases.check("option", create(c"int8", None, c"{\"chunk\": 1}"), INVALID, "no option \"chunk\"");
    cases.check(
        "reads",
        create(c"int8", None, c"{\"reads\": {\"z\": 1}}"),
        INVALID,
        "no axis \"z\"",
    );
    cases.check("codecs", create(c"int8", None, c"{\"codecs\": [\"none\"]}"), INVALID, "none");
    let mut session = SessionHandle::NULL;
    for options in [c"{\"settle\": \"never\"}", c"{\"settle\": 1}", c"{\"x\": 1}"] {
        let status =
            unsafe { bf_session_begin(place.store, null(), options.as_ptr(), &raw mut session) };
        cases.check("a session", status, INVALID, "");
    }
    for options in [c"{\"memory_bytes\": \"much\"}", c"{\"grace_seconds\": -1}", c"{\"x\": 1}"] {
        let status = unsafe { bf_settle_together(place.store, null(), options.as_ptr()) };
        cases.check("settling", status, INVALID, "");
    }
    let chunks = [3_u64, 3];
    let shards = [4_u64, 4];
    let status = unsafe {
        bf_create_array(
            place.store,
            c"u".as_ptr(),
            c"int8".as_ptr(),
            2,
            WHOLE.as_ptr(),
            null(),
            chunks.as_ptr(),
            shards.as_ptr(),
            null(),
            null_mut(),
        )
    };
    cases.check("shards", status, INVALID, "");
    assert_eq!(cases.0, 21);
}

#[test]
fn stores_that_are_not_there_or_may_not_be_written_are_named() {
    let place = Place::new();
    let mut cases = Cases(0);
    let path = place.path();
    let mut store = StoreHandle::NULL;
    let (read, other) = (c"r".as_ptr(), c"w".as_ptr());
    unsafe {
        let missing = CString::new(format!("{}x", path.to_str().unwrap())).unwrap();
        let open = bf_open(missing.as_ptr(), read, null(), &raw mut store);
        cases.check("missing", open, NOT_FOUND, "s.zarrx");
        cases.check(
            "mode w",
            bf_open(path.as_ptr(), other, null(), &raw mut store),
            INVALID,
            "bf_create",
        );
        cases.check("empty", bf_open(c"".as_ptr(), read, null(), &raw mut store), INVALID, "empty");
        let remote = c"ftp://host/s.zarr".as_ptr();
        cases.check("remote", bf_open(remote, read, null(), &raw mut store), INVALID, "s3:");
        let again = bf_create(path.as_ptr(), null(), null(), &raw mut store);
        cases.check("twice", again, EXISTS, "exists already");
        assert_eq!(bf_open(path.as_ptr(), read, null(), &raw mut store), OK);
        let data = dangling::<i32>().cast();
        let mut array = ArrayHandle::NULL;
        assert_eq!(bf_open_array(store, c"t".as_ptr(), &raw mut array), OK);
        let write = bf_write(array, 2, ZEROS.as_ptr(), ZEROS.as_ptr(), null(), data, 0);
        cases.check("read-only", write, READ_ONLY, "read-only");
        let mut session = SessionHandle::NULL;
        let begin = bf_session_begin(store, null(), null(), &raw mut session);
        cases.check("read-only", begin, READ_ONLY, "read-only");
        cases.check("read-only", bf_settle(store), READ_ONLY, "read-only");
        cases.check("read-only", bf_delete(store, c"t".as_ptr()), READ_ONLY, "read-only");
        assert_eq!((bf_close(store), bf_close_array(array)), (OK, OK));
    }
    assert_eq!(cases.0, 9);
}
