//! Threads and their shared state: scoped threads, CPU permits, memory budgets.
//!
//! No pool outlives a call: a thread costs less than a hundredth of the smallest read that starts
//! one, and none is left behind for a fork or for the interpreter's exit.
//!
//! | module | holds |
//! |---|---|
//! | `workers` | scoped threads that work for a caller who polls for cancellation |
//! | `ordered` | work on items in parallel, with results in order |
//! | `permits` | a semaphore that limits concurrent CPU work |
//! | `budget` | a memory budget that the stages of one piece of work share |
//! | `check` | a precondition that is checked concurrently with the write it guards |
//! | `extra` | the limit of reading threads per process |
//! | `per_process` | values that a forked child makes anew |

pub(crate) mod budget;
pub(crate) mod check;
pub(crate) mod extra;
pub(crate) mod ordered;
pub(crate) mod per_process;
pub(crate) mod permits;
pub(crate) mod workers;
