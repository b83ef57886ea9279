//! Foreign files, conversions, and calls that are stopped.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};

use bedform_capi::array::*;
use bedform_capi::convert::*;
use bedform_capi::status::*;
use bedform_capi::stopping::*;
use bedform_capi::store::*;
use bedform_capi::{ArrayHandle, StoreHandle};

use super::support::*;

const UNSUPPORTED: StatusNumber = 5;
const INTERRUPTED: StatusNumber = 14;

fn golden(name: &str) -> CString {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../bedform-format/golden/");
    CString::new(format!("{directory}{name}")).unwrap()
}

fn open(path: &CStr) -> StoreHandle {
    let mut store = StoreHandle::NULL;
    let opened = unsafe { bf_open(path.as_ptr(), c"r".as_ptr(), null(), &raw mut store) };
    assert_eq!(opened, OK, "{}", last_error());
    store
}

#[test]
fn a_classic_file_is_listed_described_and_never_written() {
    let path = golden("classic-1.nc");
    let store = open(&path);
    let listed =
        text_of(|buffer, capacity, needed| unsafe { bf_list(store, buffer, capacity, needed) });
    let nodes: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let (name, _) = nodes.as_object().unwrap().iter().next().unwrap();
    let name = CString::new(name.as_str()).unwrap();
    let mut array = ArrayHandle::NULL;
    unsafe {
        assert_eq!(bf_open_array(store, name.as_ptr(), &raw mut array), OK, "{}", last_error());
        assert_eq!(bf_delete(store, name.as_ptr()), READ_ONLY);
        assert!(last_error().contains("foreign files are never written"), "{}", last_error());
        assert_eq!(bf_settle(store), READ_ONLY);
        assert_eq!(bf_resize(array, 1, [1].as_ptr()), READ_ONLY);
        let mut other = StoreHandle::NULL;
        let opened = bf_open(path.as_ptr(), c"r+".as_ptr(), null(), &raw mut other);
        assert_eq!((opened, other), (READ_ONLY, StoreHandle::NULL));
    }
    assert_eq!((bf_close_array(array), bf_close(store)), (OK, OK));
}

#[test]
fn a_file_of_another_kind_is_named_for_what_it_is() {
    let mut store = StoreHandle::NULL;
    let path = golden("make_description.py");
    let opened = unsafe { bf_open(path.as_ptr(), c"r".as_ptr(), null(), &raw mut store) };
    assert_eq!(opened, UNSUPPORTED);
    assert!(last_error().contains("not a NetCDF or HDF5 file"), "{}", last_error());
}

#[test]
fn an_explanation_has_room_for_longer_numbers_and_refuses_what_a_read_refuses() {
    let place = Place::new();
    let array = place.array();
    let explain = |start: [u64; 2], buffer: *mut c_char, capacity, needed| {
        let shape = [2_u64, 2];
        let (start, shape) = (start.as_ptr(), shape.as_ptr());
        unsafe { bf_array_explain(array, 2, start, shape, null(), buffer, capacity, needed) }
    };
    let mut needed = 0;
    assert_eq!(explain([0, 0], null_mut(), 0, &raw mut needed), OK, "{}", last_error());
    let mut buffer = vec![0_u8; usize::try_from(needed).unwrap()];
    assert_eq!(explain([0, 0], buffer.as_mut_ptr().cast(), needed, null_mut()), OK);
    let text = CStr::from_bytes_until_nul(&buffer).unwrap().to_str().unwrap();
    let explanation: serde_json::Value = serde_json::from_str(text).unwrap();
    assert_eq!(explanation["result_bytes"], 16);
    assert_eq!(explain([9, 0], null_mut(), 0, &raw mut needed), OUT_OF_BOUNDS);
    assert_eq!(explain([0, 0], null_mut(), 0, null_mut()), INVALID);
    assert_eq!(explain([0, 0], buffer.as_mut_ptr().cast(), 3, null_mut()), LIMIT);
}

unsafe extern "C" fn always(asked: *mut c_void) -> c_int {
    unsafe { *asked.cast::<u32>() += 1 };
    1
}

/// Takes 100 ms, long enough for the stop callback to be called after it.
unsafe extern "C" fn note_progress(context: *mut c_void, done: u64, total: u64) {
    std::thread::sleep(std::time::Duration::from_millis(100));
    unsafe { context.cast::<(u64, u64)>().write((done, total)) };
}

#[test]
fn a_conversion_tells_what_is_done_and_a_callback_of_its_thread_stops_it() {
    let place = Place::new();
    let source = place.path();
    let target = CString::new(format!("{}.copy", source.to_str().unwrap())).unwrap();
    let (mut asked, mut told) = (0_u32, (0_u64, 0_u64));
    let context = (&raw mut told).cast();
    let watch = ConversionWatch { context, progress: Some(note_progress), warning: None };
    let convert = |options: Option<&CStr>| {
        let options = options.map_or(null(), CStr::as_ptr);
        unsafe { bf_convert(source.as_ptr(), target.as_ptr(), options, &raw const watch) }
    };
    assert_eq!(convert(Some(c"{\"memory\": 1}")), INVALID, "no option of that name");
    assert_eq!(unsafe { bf_set_stop(Some(always), (&raw mut asked).cast()) }, OK);
    let reads = c"{\"reads\": {\"y,x\": 1.0}, \"verify\": true}";
    assert_eq!(convert(Some(reads)), INTERRUPTED, "{}", last_error());
    assert!(asked > 0);
    assert_eq!(unsafe { bf_set_stop(None, null_mut()) }, OK);
    assert_eq!(convert(Some(reads)), OK, "{}", last_error());
    assert_eq!(told, (96, 96));
    assert_eq!(convert(None), EXISTS);
    let null_target = unsafe { bf_convert(source.as_ptr(), null(), null(), null()) };
    assert_eq!(null_target, INVALID);
}
