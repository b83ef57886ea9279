//! The C library: `bedform.h` over the engine, without logic that another door would need.
//!
//! `include/bedform.h` is the contract. Every call checks what can be checked of its arguments, does the
//! work, and returns a status; no panic crosses to C. Handles are numbers of a table, not pointers, so
//! that one that was closed, or is of another kind, is noticed.
//!
//! | module | holds |
//! |---|---|
//! | [`status`] | statuses, and the text of the last error |
//! | `handles` | the table behind all handles |
//! | `arguments` | what comes from C, checked |
//! | [`stopping`] | the callback that stops calls |
//! | [`store`], [`mod@array`], [`session`], [`define`], [`convert`] | the calls, and what their handles stand for |

// The contract of every call is the text of `bedform.h`, which C programmers read: pointers are null or
// valid for what the call says it reads and writes.
#![expect(clippy::missing_safety_doc, reason = "bedform.h has the contract of each call")]

mod arguments;
pub mod array;
pub mod convert;
pub mod define;
mod handles;
pub mod session;
pub mod status;
pub mod stopping;
pub mod store;

pub use array::ArrayHandle;
pub use session::{DecompositionHandle, SessionHandle};
pub use store::StoreHandle;
