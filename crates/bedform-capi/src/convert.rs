//! Conversion of stores and foreign files.

use std::ffi::{CString, c_char, c_void};
use std::path::Path;

use bedform::convert::{self, ConvertOptions, ConvertSource, ConvertTarget, Converted};
use bedform::{Error, OpenOptions, Store};

use crate::arguments::{object, text};
use crate::status::{StatusNumber, call};

/// `bf_convert_watch`: callbacks of a conversion; each may be NULL.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ConversionWatch {
    /// Passed to the callbacks.
    pub context: *mut c_void,
    /// Called with the decoded bytes done so far and in all.
    pub progress: Option<unsafe extern "C" fn(context: *mut c_void, done: u64, total: u64)>,
    /// Called with each remark about the copy, one line per call.
    pub warning: Option<unsafe extern "C" fn(context: *mut c_void, line: *const c_char)>,
}

impl ConversionWatch {
    fn tell_progress(&self, done: u64, total: u64) {
        if let Some(progress) = self.progress {
            // SAFETY: the program passed the function with this context, for this call.
            unsafe { progress(self.context, done, total) };
        }
    }

    fn tell_warnings(&self, warnings: Vec<String>) {
        let Some(warning) = self.warning else { return };
        for line in warnings {
            let line = CString::new(line.replace('\0', "?")).unwrap_or_default();
            // SAFETY: as above; the text lives during the call.
            unsafe { warning(self.context, line.as_ptr()) };
        }
    }
}

/// `bf_convert`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_convert(
    source: *const c_char,
    target: *const c_char,
    options: *const c_char,
    watch: *const ConversionWatch,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let (name, target) = (text("source", source)?, text("target", target)?);
        let options = ConvertOptions::from_json(&object("options", options)?)?;
        let silent =
            ConversionWatch { context: std::ptr::null_mut(), progress: None, warning: None };
        let watch = watch.as_ref().copied().unwrap_or(silent);
        let mut opening = OpenOptions::default();
        opening.cache_bytes = options.source_cache_bytes();
        let source = ConvertSource::store(name, &Store::open_path(Path::new(name), opening)?)?;
        let target = ConvertTarget::open(Path::new(target), OpenOptions::default())?;
        let plan = convert::plan(&source, &target, &options)?;
        let told = |done, total| watch.tell_progress(done, total);
        let Converted { warnings, .. } =
            convert::run(&plan, &source, &target, &options, &told).map_err(Error::from)?;
        watch.tell_warnings(warnings);
        Ok(())
    })
}
