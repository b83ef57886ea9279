//! The library that `bedform run` preloads into a program.
//!
//! It interposes libc's functions, follows the program's reads of regular files, finds their
//! patterns ([`bedform_patterns`]) and advises the kernel (`posix_fadvise`, `POSIX_FADV_WILLNEED`)
//! of the next reads. It buffers no data: the kernel serves each read by the call that the program
//! made.
//!
//! # Promises to the program
//!
//! - Results and `errno` of every call are those of libc. The call comes first, the analysis after
//!   it.
//! - The program's threads never wait: a helper thread calls `posix_fadvise`, and a read that finds
//!   the lock taken is followed by the thread that holds it.
//! - Nothing is printed. A failure, even a panic, ends the watching and nothing else.
//!
//! # How it keeps them
//!
//! - A signal handler may read while its thread is inside `malloc`, or inside this library. So the
//!   library allocates from an arena of its own (`arena`), and a nested call passes straight to
//!   libc (`inside`).
//! - A forked child starts anew (`fork`): the parent's lock may be held by a thread that the child
//!   lacks.
//! - A thread may be cancelled inside a call. The functions let such an unwinding pass (`C-unwind`)
//!   and own nothing while libc's function runs.
//! - A descriptor is looked up at its first read, not when it is opened, and the kernel is asked
//!   for its position. So `dup`, `lseek`, shared positions and inherited descriptors need no
//!   bookkeeping.
//!
//! | module | holds |
//! |---|---|
//! | `calls` | the functions that interpose those of libc |
//! | `next` | libc's own functions, or those of the next preloaded library |
//! | `watch` | the steps after each read |
//! | `pending` | the queue of reads to be followed |
//! | `files`, `descriptors`, `device` | the files of descriptors, and the devices of files |
//! | `follow` | one sequence of reads: its pattern and its readahead window |
//! | `helper` | the queue of advice and the thread that gives it |
//! | `record` | counters in a file that outlives the process: the report |
//! | `inside`, `arena`, `fork` | reentrancy and locking, memory, forked children |
//! | `start`, `settings` | initialization, the environment |
#![allow(unsafe_code)]
// Tests use libc without interposition.
#![cfg_attr(test, allow(dead_code))]

mod arena;
mod calls;
mod descriptors;
mod device;
mod files;
mod follow;
mod fork;
mod helper;
mod inside;
mod next;
mod pending;
mod record;
mod settings;
mod start;
mod watch;
