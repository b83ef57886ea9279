//! The interposed functions themselves: libc's, or those of a library that is preloaded after this
//! one.
//!
//! They are looked up when the library is loaded. An earlier call, such as one by a preloaded
//! allocator, uses the system call if there is one, and looks the function up otherwise.

use std::ffi::{CStr, c_int, c_long, c_uint, c_ulong, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{FILE, iovec, off_t, size_t, ssize_t};

/// A function of another library, with its address once known.
struct NextFunction {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl NextFunction {
    const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    fn find(&self) -> *mut c_void {
        // SAFETY: the name ends with a zero.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(found, Ordering::Release);
        found
    }

    #[inline]
    fn address(&self) -> *mut c_void {
        self.address.load(Ordering::Acquire)
    }
}

/// Defines, for each function, a caller of the next function with its name, and `find_all`, which
/// looks all of them up. After `else` stands the fallback before that: a system call, or a lookup.
macro_rules! functions {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty, else $otherwise:tt;)*) => {
        $(
            // The system call returns the same value in a wider type.
            #[allow(clippy::cast_possible_truncation)]
            #[inline]
            pub(crate) unsafe fn $name($($argument: $kind),*) -> $result {
                let next = &names::$name;
                let address = functions!(@address next, $otherwise);
                if address.is_null() {
                    functions!(@otherwise $otherwise, $($argument),*)
                }
                // SAFETY: the function with this name has this type in every libc.
                let next = unsafe {
                    std::mem::transmute::<
                        *mut c_void,
                        unsafe extern "C-unwind" fn($($kind),*) -> $result,
                    >(address)
                };
                // SAFETY: the arguments are the caller's own.
                unsafe { next($($argument),*) }
            }
        )*

        #[allow(non_upper_case_globals)]
        mod names {
            $(
                pub(super) static $name: super::NextFunction = super::NextFunction::new(
                    match std::ffi::CStr::from_bytes_with_nul(
                        concat!(stringify!($name), "\0").as_bytes(),
                    ) {
                        Ok(name) => name,
                        Err(_) => c"",
                    },
                );
            )*
        }

        /// Looks up all functions.
        pub(crate) fn find_all() {
            $(names::$name.find();)*
        }
    };
    (@address $next:ident, { $call:expr }) => { $next.address() };
    (@address $next:ident, look) => {
        if $next.address().is_null() { $next.find() } else { $next.address() }
    };
    (@otherwise { $call:expr }, $($argument:ident),*) => {
        // SAFETY: the system call takes the arguments of the function.
        return unsafe { libc::syscall($call, $($argument as c_long),*) as _ }
    };
    // Without the function in any library, the program could not have called it.
    (@otherwise look, $($argument:ident),*) => { std::process::abort() };
}

functions! {
    read(fd: c_int, data: *mut c_void, count: size_t) -> ssize_t, else { libc::SYS_read };
    pread(fd: c_int, data: *mut c_void, count: size_t, at: off_t) -> ssize_t, else { libc::SYS_pread64 };
    pread64(fd: c_int, data: *mut c_void, count: size_t, at: off_t) -> ssize_t, else { libc::SYS_pread64 };
    readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t, else { libc::SYS_readv };
    preadv(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t, else look;
    preadv64(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t, else look;
    preadv2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t, else look;
    preadv64v2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t, else look;
    __read_chk(fd: c_int, data: *mut c_void, count: size_t, room: size_t) -> ssize_t, else look;
    __pread_chk(fd: c_int, data: *mut c_void, count: size_t, at: off_t, room: size_t) -> ssize_t, else look;
    __pread64_chk(fd: c_int, data: *mut c_void, count: size_t, at: off_t, room: size_t) -> ssize_t, else look;
    fread(data: *mut c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t, else look;
    __fread_chk(data: *mut c_void, room: size_t, size: size_t, count: size_t, stream: *mut FILE) -> size_t, else look;
    prctl(option: c_int, second: c_ulong, third: c_ulong, fourth: c_ulong, fifth: c_ulong) -> c_int,
        else { libc::SYS_prctl };
    close(fd: c_int) -> c_int, else { libc::SYS_close };
    fclose(stream: *mut FILE) -> c_int, else look;
    freopen(path: *const libc::c_char, mode: *const libc::c_char, stream: *mut FILE) -> *mut FILE, else look;
    freopen64(path: *const libc::c_char, mode: *const libc::c_char, stream: *mut FILE) -> *mut FILE, else look;
    dup2(from: c_int, to: c_int) -> c_int, else look;
    dup3(from: c_int, to: c_int, flags: c_int) -> c_int, else { libc::SYS_dup3 };
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int, else { libc::SYS_close_range };
    mmap(start: *mut c_void, count: size_t, protection: c_int, flags: c_int, fd: c_int, at: off_t) -> *mut c_void,
        else { libc::SYS_mmap };
    mmap64(start: *mut c_void, count: size_t, protection: c_int, flags: c_int, fd: c_int, at: off_t) -> *mut c_void,
        else { libc::SYS_mmap };
}
