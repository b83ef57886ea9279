//! Shared by the tests: a store in a directory of its own, with handles to it.

use std::ffi::{CStr, CString, c_char};
use std::path::PathBuf;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use bedform_capi::array::{bf_create_array, bf_open_array};
use bedform_capi::status::{OK, StatusNumber, bf_last_error};
use bedform_capi::store::{bf_close, bf_create};
use bedform_capi::{ArrayHandle, StoreHandle};

pub(crate) const NOT_FOUND: StatusNumber = 1;
pub(crate) const EXISTS: StatusNumber = 2;
pub(crate) const INVALID: StatusNumber = 3;
pub(crate) const OUT_OF_BOUNDS: StatusNumber = 4;
pub(crate) const LIMIT: StatusNumber = 9;
pub(crate) const READ_ONLY: StatusNumber = 10;
pub(crate) const INTERRUPTED: StatusNumber = 14;

/// A directory that is removed with its store.
pub(crate) struct Place {
    directory: PathBuf,
    pub(crate) store: StoreHandle,
}

impl Place {
    /// A store with the array `t` of shape (4, 6), of int32, in chunks of (2, 3).
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("bedform-capi-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&directory);
        let mut place = Self { directory, store: StoreHandle::NULL };
        let path = place.path();
        let options = c"{\"durability\": \"process\"}";
        let made =
            unsafe { bf_create(path.as_ptr(), null(), options.as_ptr(), &raw mut place.store) };
        assert_eq!(made, OK, "{}", last_error());
        let (shape, chunks) = ([4, 6], [2, 3]);
        let made = unsafe {
            bf_create_array(
                place.store,
                c"t".as_ptr(),
                c"int32".as_ptr(),
                2,
                shape.as_ptr(),
                c"y,x".as_ptr(),
                chunks.as_ptr(),
                null(),
                null(),
                null_mut(),
            )
        };
        assert_eq!(made, OK, "{}", last_error());
        place
    }

    pub(crate) fn path(&self) -> CString {
        CString::new(self.directory.join("s.zarr").to_str().unwrap()).unwrap()
    }

    pub(crate) fn array(&self) -> ArrayHandle {
        let mut array = ArrayHandle::NULL;
        let opened = unsafe { bf_open_array(self.store, c"t".as_ptr(), &raw mut array) };
        assert_eq!(opened, OK, "{}", last_error());
        array
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        bf_close(self.store);
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

pub(crate) fn last_error() -> String {
    unsafe { CStr::from_ptr(bf_last_error()) }.to_str().unwrap().to_owned()
}

/// Calls a function that returns a text, first for its length, then with a buffer.
pub(crate) fn text_of(give: impl Fn(*mut c_char, u64, *mut u64) -> StatusNumber) -> String {
    let mut needed = 0;
    assert_eq!(give(null_mut(), 0, &raw mut needed), OK, "{}", last_error());
    let mut buffer = vec![0_u8; usize::try_from(needed).unwrap()];
    assert_eq!(give(buffer.as_mut_ptr().cast(), needed, null_mut()), OK, "{}", last_error());
    CStr::from_bytes_with_nul(&buffer).unwrap().to_str().unwrap().to_owned()
}
