//! Object stores and HTTP servers as a [`Storage`](bedform_storage::Storage).
//!
//! The asynchronous runtime that the client of the crate `object_store` needs stays in here: calls block,
//! or ask ahead and are answered later.
//!
//! | module | holds |
//! |---|---|
//! | `remote` | [`RemoteStorage`]: objects of S3, GCS, Azure and HTTP servers |
//! | `calibrate` | [`calibrate()`]: measures the profile of an object store in seconds |
//! | [`conformance`] | an object store that fails when told to, forgets to answer, and does things late |

mod calibrate;
pub mod conformance;
mod remote;

pub use calibrate::calibrate;
pub use remote::{Parts, RemoteOptions, RemoteStorage, UrlError};
