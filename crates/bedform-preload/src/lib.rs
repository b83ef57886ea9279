//! The library that `bedform run` preloads into a program.
//!
//! It stands between the program and libc, follows the program's reads of regular files, finds their
//! patterns ([`bedform_patterns`]) and advises the kernel (`posix_fadvise`, `POSIX_FADV_WILLNEED`) of the
//! reads that come next. It has no buffers of data: what the program reads comes from the kernel, by the
//! call that the program made.
//!
//! # What it promises the program
//!
//! - Results and `errno` of every call are those of libc. The call comes first, the analysis after it.
//! - The program's threads never wait: not for the kernel's queue (a helper thread advises), not for a lock
//!   (a read that finds it taken is followed by the thread that has it), not for a file system.
//! - Nothing is printed. A failure, even a panic, ends the watching and nothing else.
//!
//! # How it keeps that
//!
//! - Any thread may be anywhere when a signal handler reads: inside `malloc`, or inside this library. So
//!   the library allocates from an arena of its own (`arena`), and a thread that is inside it already
//!   passes through (`inside`).
//! - A forked child starts anew (`fork`): the parent's lock may be held by a thread that the child lacks.
//! - A thread may be cancelled inside a call. The functions let such an unwinding pass (`C-unwind`) and own
//!   nothing while libc's function runs.
//! - A descriptor is looked up at its first read, not when it is opened. Its file position is asked of the
//!   kernel. So `dup`, `lseek`, shared positions and descriptors from elsewhere need no bookkeeping.
//!
//! | module | holds |
//! |---|---|
//! | `calls` | the functions that stand before those of libc |
//! | `next` | libc's own functions, or those of the next preloaded library |
//! | `watch` | what happens at each read |
//! | `pending` | reads that wait to be followed |
//! | `files`, `descriptors`, `device` | from descriptors to files, and to the devices that these are on |
//! | `follow` | one sequence of reads: its pattern, and how far ahead the kernel is advised |
//! | `helper` | the queue of advice and the thread that gives it |
//! | `record` | counters in a file that outlives the process: the report |
//! | `inside`, `arena`, `fork`, `settings` | reentrancy, memory, children, the environment |
#![allow(unsafe_code)]
// In tests libc stays what it is.
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
