//! The functions that interpose libc's: each calls libc's function, then examines the access.
//!
//! No value with a destructor lives while libc's function runs: a cancelled thread unwinds through
//! these frames. A descriptor is forgotten *before* it is closed: afterwards another thread may get
//! the same number.
//!
//! Calls inside libc bypass interposition. So `fread` has a function of its own here, and so have
//! the variants that compilers substitute (`_FORTIFY_SOURCE`).

use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};

use libc::{FILE, iovec, off_t, size_t, ssize_t};

use crate::watch::{self, ReadStart};
use crate::{descriptors, inside, next};

/// Defines functions that read: libc's function runs with the same arguments, then the access is
/// examined.
macro_rules! reads {
    ($($name:ident($($argument:ident: $kind:ty),*) at $at:expr;)*) => {
        $(
            /// As libc's.
            ///
            /// # Safety
            ///
            /// That of libc's function.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub(crate) unsafe extern "C-unwind" fn $name(fd: c_int, $($argument: $kind),*) -> ssize_t {
                // SAFETY: the arguments are the caller's own.
                let count = unsafe { next::$name(fd, $($argument),*) };
                watch::after(fd, $at, count);
                count
            }
        )*
    };
}

reads! {
    read(data: *mut c_void, count: size_t) at ReadStart::Position;
    __read_chk(data: *mut c_void, count: size_t, room: size_t) at ReadStart::Position;
    readv(parts: *const iovec, count: c_int) at ReadStart::Position;
    pread(data: *mut c_void, count: size_t, at: off_t) at ReadStart::Offset(at);
    pread64(data: *mut c_void, count: size_t, at: off_t) at ReadStart::Offset(at);
    __pread_chk(data: *mut c_void, count: size_t, at: off_t, room: size_t) at ReadStart::Offset(at);
    __pread64_chk(data: *mut c_void, count: size_t, at: off_t, room: size_t) at ReadStart::Offset(at);
    preadv(parts: *const iovec, count: c_int, at: off_t) at ReadStart::Offset(at);
    preadv64(parts: *const iovec, count: c_int, at: off_t) at ReadStart::Offset(at);
    preadv2(parts: *const iovec, count: c_int, at: off_t, flags: c_int) at ReadStart::of_preadv2(at);
    preadv64v2(parts: *const iovec, count: c_int, at: off_t, flags: c_int) at ReadStart::of_preadv2(at);
}

/// As libc's.
///
/// # Safety
///
/// That of libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn fread(
    data: *mut c_void,
    size: size_t,
    count: size_t,
    stream: *mut FILE,
) -> size_t {
    // SAFETY: the arguments are the caller's own.
    let elements = unsafe { next::fread(data, size, count, stream) };
    // SAFETY: the stream was just read.
    unsafe { watch::after_stream(stream, elements.saturating_mul(size)) };
    elements
}

/// As libc's.
///
/// # Safety
///
/// That of libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn __fread_chk(
    data: *mut c_void,
    room: size_t,
    size: size_t,
    count: size_t,
    stream: *mut FILE,
) -> size_t {
    // SAFETY: the arguments are the caller's own.
    let elements = unsafe { next::__fread_chk(data, room, size, count, stream) };
    // SAFETY: the stream was just read.
    unsafe { watch::after_stream(stream, elements.saturating_mul(size)) };
    elements
}

/// As libc's.
///
/// # Safety
///
/// That of libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    descriptors::forget(fd);
    // SAFETY: the argument is the caller's own.
    unsafe { next::close(fd) }
}

/// As libc's.
///
/// # Safety
///
/// That of libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn close_range(
    first: c_uint,
    last: c_uint,
    flags: c_int,
) -> c_int {
    descriptors::forget_range(first, last);
    // SAFETY: the arguments are the caller's own.
    unsafe { next::close_range(first, last, flags) }
}

/// As libc's.
///
/// # Safety
///
/// That of libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn fclose(stream: *mut FILE) -> c_int {
    // SAFETY: the stream is the caller's, and open.
    unsafe { forget_stream(stream) };
    // SAFETY: the argument is the caller's own.
    unsafe { next::fclose(stream) }
}

/// As libc's.
///
/// # Safety
///
/// That of libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn freopen(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut FILE,
) -> *mut FILE {
    // SAFETY: the stream is the caller's, and open.
    unsafe { forget_stream(stream) };
    // SAFETY: the arguments are the caller's own.
    unsafe { next::freopen(path, mode, stream) }
}

/// As libc's.
///
/// # Safety
///
/// That of libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn freopen64(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut FILE,
) -> *mut FILE {
    // SAFETY: the stream is the caller's, and open.
    unsafe { forget_stream(stream) };
    // SAFETY: the arguments are the caller's own.
    unsafe { next::freopen64(path, mode, stream) }
}

unsafe fn forget_stream(stream: *mut FILE) {
    // SAFETY: the address of this thread's `errno` is always valid; the caller passes an open
    // stream.
    unsafe {
        let errno = libc::__errno_location();
        let kept = *errno;
        descriptors::forget(libc::fileno(stream));
        *errno = kept;
    }
}

/// As libc's.
///
/// # Safety
///
/// That of libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn dup2(from: c_int, to: c_int) -> c_int {
    descriptors::forget(to);
    // SAFETY: the arguments are the caller's own.
    unsafe { next::dup2(from, to) }
}

/// As libc's.
///
/// # Safety
///
/// That of libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    descriptors::forget(to);
    // SAFETY: the arguments are the caller's own.
    unsafe { next::dup3(from, to, flags) }
}

/// As libc's, which is variadic; on Linux the arguments arrive as these do. Watching ends before a
/// program restricts its system calls: the kernel might kill it for a call of the library.
///
/// # Safety
///
/// That of libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn prctl(
    option: c_int,
    second: c_ulong,
    third: c_ulong,
    fourth: c_ulong,
    fifth: c_ulong,
) -> c_int {
    if matches!(option, libc::PR_SET_SECCOMP | libc::PR_SET_NO_NEW_PRIVS) {
        inside::set_on(false);
    }
    // SAFETY: the arguments are the caller's own.
    unsafe { next::prctl(option, second, third, fourth, fifth) }
}

/// Defines functions that map files. Reads of a mapped file bypass the library; the report counts
/// the maps.
macro_rules! maps {
    ($($name:ident;)*) => {
        $(
            /// As libc's.
            ///
            /// # Safety
            ///
            /// That of libc's function.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub(crate) unsafe extern "C-unwind" fn $name(
                start: *mut c_void,
                count: size_t,
                protection: c_int,
                flags: c_int,
                fd: c_int,
                at: off_t,
            ) -> *mut c_void {
                // SAFETY: the arguments are the caller's own.
                let mapped = unsafe { next::$name(start, count, protection, flags, fd, at) };
                if fd >= 0 && flags & libc::MAP_ANONYMOUS == 0 && mapped != libc::MAP_FAILED {
                    watch::after_map(fd);
                }
                mapped
            }
        )*
    };
}

maps! {
    mmap;
    mmap64;
}
