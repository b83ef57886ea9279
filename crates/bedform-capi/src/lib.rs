//! The C library: `bedform.h` as a thin layer over the engine.
//!
//! `include/bedform.h` is the contract. Every call validates its arguments as far as possible, does
//! the work, and returns a status; no panic crosses to C. Handles are indexes into a table, not
//! pointers, so that the library detects a closed handle, or one of another kind.
//!
//! | module | holds |
//! |---|---|
//! | [`status`] | statuses, and the text of the last error |
//! | `handles` | the table behind all handles |
//! | `arguments` | the validation of arguments from C |
//! | `elements` | the types of a program's elements, and their conversion |
//! | [`hdf5`] | calls of the HDF5 connector |
//! | [`stopping`] | the callback that stops calls |
//! | [`store`], [`mod@array`], [`query`], [`session`], [`define`], [`convert`] | calls by object |

// The text in `bedform.h`, for C programmers, is the contract of every call: pointers are null, or
// valid for the bytes that the call reads or writes.
#![expect(clippy::missing_safety_doc, reason = "bedform.h has the contract of each call")]

mod arguments;
pub mod array;
pub mod convert;
pub mod define;
mod elements;
mod handles;
pub mod hdf5;
pub mod query;
pub mod session;
pub mod status;
pub mod stopping;
pub mod store;

pub use array::ArrayHandle;
pub use query::{BatchesHandle, PointsHandle, QueryHandle};
pub use session::{DecompositionHandle, SessionHandle};
pub use store::StoreHandle;
