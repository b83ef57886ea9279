//! The VOL connector of HDF5. Its sources are in C; this crate builds them into a plug-in and exports
//! the two functions by which HDF5 finds a connector.

#![allow(non_snake_case, reason = "HDF5 names these functions")]

use std::ffi::{c_int, c_void};

unsafe extern "C" {
    fn bedform_plugin_type() -> c_int;
    fn bedform_plugin_info() -> *const c_void;
}

/// Returns the kind of this plug-in: a VOL connector.
#[unsafe(no_mangle)]
pub extern "C" fn H5PLget_plugin_type() -> c_int {
    // SAFETY: the function takes nothing and returns a constant.
    unsafe { bedform_plugin_type() }
}

/// Returns the connector's class (`H5VL_class_t`), which lives as long as the library.
#[unsafe(no_mangle)]
pub extern "C" fn H5PLget_plugin_info() -> *const c_void {
    // SAFETY: the function takes nothing and returns the address of a constant.
    unsafe { bedform_plugin_info() }
}
