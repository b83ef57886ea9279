//! Statuses, and the text of the last error.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};

use bedform::panics::caught;
use bedform::{Error, ErrorKind, Result};

use crate::stopping::stopped;

/// `bf_status`: 0, or a code by the remedy of the error. The numbers never change.
pub type StatusNumber = i32;

/// `BF_OK`.
pub const OK: StatusNumber = 0;
/// `BF_INTERNAL`: a bug of Bedform.
pub const INTERNAL: StatusNumber = 100;

/// The status of each kind of error.
pub fn number(kind: ErrorKind) -> StatusNumber {
    match kind {
        ErrorKind::NotFound => 1,
        ErrorKind::Exists => 2,
        ErrorKind::InvalidArgument => 3,
        ErrorKind::OutOfBounds => 4,
        ErrorKind::Unsupported => 5,
        ErrorKind::Corrupt => 6,
        ErrorKind::Conflict => 7,
        ErrorKind::SnapshotMoved => 8,
        ErrorKind::LimitExceeded => 9,
        ErrorKind::ReadOnly => 10,
        ErrorKind::PermissionDenied => 11,
        ErrorKind::NoSpace => 12,
        ErrorKind::Poisoned => 13,
        ErrorKind::Interrupted => 14,
        ErrorKind::Io => 15,
        // A test compares this with the list of all kinds.
        ErrorKind::Internal | _ => INTERNAL,
    }
}

fn name(status: StatusNumber) -> &'static CStr {
    match status {
        OK => c"Ok",
        1 => c"NotFound",
        2 => c"Exists",
        3 => c"InvalidArgument",
        4 => c"OutOfBounds",
        5 => c"Unsupported",
        6 => c"Corrupt",
        7 => c"Conflict",
        8 => c"SnapshotMoved",
        9 => c"LimitExceeded",
        10 => c"ReadOnly",
        11 => c"PermissionDenied",
        12 => c"NoSpace",
        13 => c"Poisoned",
        14 => c"Interrupted",
        15 => c"Io",
        INTERNAL => c"Internal",
        _ => c"Unknown",
    }
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

fn keep(text: &str) {
    let text = CString::new(text.replace('\0', "?")).unwrap_or_default();
    // A thread that is ending has no last error.
    let _ = LAST_ERROR.try_with(|last| *last.borrow_mut() = text);
}

/// Runs a call, which the thread's stop callback may end, and returns its status. Stores the text
/// of an error for this thread.
pub(crate) fn call(act: impl FnOnce() -> Result<()>) -> StatusNumber {
    match caught(|| stopped(act)).and_then(|outcome| outcome) {
        Ok(()) => OK,
        Err(error) => {
            keep(&error.to_string());
            number(error.kind())
        }
    }
}

/// Makes an error about a handle or pointer.
pub(crate) fn misuse(text: impl Into<String>) -> Error {
    Error::invalid(text)
}

/// `bf_last_error`.
#[unsafe(no_mangle)]
pub extern "C" fn bf_last_error() -> *const c_char {
    LAST_ERROR.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// `bf_status_name`.
#[unsafe(no_mangle)]
pub extern "C" fn bf_status_name(status: StatusNumber) -> *const c_char {
    name(status).as_ptr()
}

/// `bf_version`.
#[unsafe(no_mangle)]
pub extern "C" fn bf_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_error_has_a_number_and_its_own_name() {
        for kind in ErrorKind::ALL {
            assert_eq!(number(kind) == INTERNAL, kind == ErrorKind::Internal, "{kind:?}");
            assert_eq!(name(number(kind)).to_str().unwrap(), kind.name());
        }
    }

    #[test]
    fn a_panic_is_a_status_and_its_text_is_kept() {
        let status = call(|| panic!("what went wrong"));
        assert_eq!(status, INTERNAL);
        // SAFETY: the text lives until the next call.
        let text = unsafe { CStr::from_ptr(bf_last_error()) }.to_str().unwrap();
        assert!(text.contains("what went wrong"), "{text}");
    }
}
