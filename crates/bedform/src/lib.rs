//! The engine: stores, arrays, layouts, reading and writing.
//!
//! | module | holds |
//! |---|---|
//! | [`store`] | stores: groups of arrays in one place, and the order in which changes are published |
//! | [`mod@array`] | arrays |
//! | [`mod@log`] | sessions: commits that become shards later |
//! | [`comm`] | how the processes of a session talk to each other |
//! | [`layout`] | which layout fits which reads, as numbers |
//! | [`publication`] | trees and files that are built under a hidden name and published as a whole |
//! | [`foreign`] | NetCDF and HDF5 files, read as they are |
//! | [`convert`] | any store or file into a store whose layouts fit the reads |
//! | [`optimize`] | which replicas a source should have, and how they are made |
//! | [`references`] | sets of references into other files, as storages |
//! | [`replica`] | other copies of arrays, in layouts that fit the reads |
//! | [`sidecar`] | helper files of a source: their place, freshness and budget |
//! | [`trace`] | which reads were made, and what is learnt from them |
//! | [`config`] | `bedform.toml` and variables of the environment |
//! | [`size`] | sizes in options |
//! | [`error`] | what a caller can do about a failure |
//! | [`panics`] | panics below a door, as errors |

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make files of their own"))]

pub mod array;
mod cache;
mod calibrate;
mod codec;
pub mod comm;
pub mod config;
pub mod convert;
pub mod error;
pub mod foreign;
pub mod layout;
pub mod log;
mod memory;
mod opening;
pub mod optimize;
mod options;
pub mod panics;
pub mod placement;
mod plan;
mod prefetch;
pub mod publication;
pub mod references;
pub mod replica;
mod run;
pub mod sidecar;
pub mod size;
mod source;
pub mod store;
mod threads;
pub mod trace;
mod write;
mod zarr;

pub use array::{
    Append, Array, ChunkElements, Elements, Growth, Prefetched, SelectedRun, VisitedChunk, append,
    append_with,
};
pub use cache::{CacheStatistics, KindStatistics, cache_statistics, set_cache_budget};
pub use calibrate::{calibrate, calibrate_url};
pub use error::{Error, ErrorKind, Result};
pub use foreign::ForeignFile;
pub use opening::{PlaceKind, detect};
pub use options::{ExternalFiles, Freshness, OpenOptions, Prefetch, Progress};
pub use plan::experience::{forget_experience, keep_experience};
pub use plan::price::Price;
pub use prefetch::PrefetchStatistics;
pub use run::{Explanation, FollowedReads, ReadStatistics, RedirectedRead};
pub use store::Store;
pub use zarr::{ArrayLayout, NewArray, NodeKind, WriteStatistics};
