//! Object stores and HTTP servers as a [`Storage`](bedform_storage::Storage).
//!
//! The asynchronous runtime of the crate `object_store` stays internal: calls block, or return a
//! pending answer.
//!
//! | module | holds |
//! |---|---|
//! | `remote` | [`RemoteStorage`]: objects of S3, GCS, Azure and HTTP servers |
//! | `calibrate` | [`calibrate()`]: measures the profile of an object store in seconds |
//! | [`conformance`] | an object store that fails on request, loses answers, and completes writes
//! late |

mod calibrate;
pub mod conformance;
mod remote;

pub use calibrate::calibrate;
pub use remote::{MultipartClient, RemoteOptions, RemoteStorage, UrlError};
