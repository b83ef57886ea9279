//! The engine: stores, arrays, layouts, reading and writing.
//!
//! The doors (Python, C, the command line) use the public modules:
//!
//! | module | holds |
//! |---|---|
//! | [`store`] | stores: groups of arrays in one place, sessions, snapshots, staging |
//! | [`mod@array`] | arrays: reading, writing, appending, explaining, verifying |
//! | [`mod@log`] | the log of a store: sessions, commits, settling, recovery |
//! | [`comm`] | communicators: the processes of a session and their collective operations |
//! | [`layout`] | predicted costs of layouts, and advice on the cheapest one for given reads |
//! | [`publication`] | trees and files that are built under a hidden name and published |
//! | [`placement`] | the storage target of each shard |
//! | [`foreign`] | NetCDF and HDF5 files, read as they are |
//! | [`hosted`] | HDF5 files that the HDF5 library has open, and reads of it that go faster |
//! | [`references`] | sets of references into other files, as storages |
//! | [`referencing`] | sets of references, made of the chunk maps of files |
//! | [`convert`] | conversion of stores and files, and reorganization in place |
//! | [`repack`] | layouts that other tools give to NetCDF-4 and HDF5 files |
//! | [`mesh`] | refined meshes: levels of boxes, read as uniform arrays |
//! | [`query`] | the elements of arrays at which a condition on their values holds |
//! | [`replica`] | replicas: copies of arrays in layouts that fit the reads |
//! | [`indexing`] | the construction of value indexes |
//! | [`optimize`] | the choice and construction of replicas |
//! | [`sidecar`] | helper files of a source: their place, freshness and budget |
//! | [`trace`] | recorded reads, and the knowledge that is learnt from them |
//! | [`config`] | `bedform.toml` and environment variables |
//! | [`size`] | sizes in options |
//! | [`error`] | the error of the engine and its kinds |
//! | [`panics`] | panics below a door, as errors |
//!
//! Private modules:
//!
//! | module | holds |
//! |---|---|
//! | `zarr` | Zarr stores: documents, locks, the order of publication, shards |
//! | `source` | the seam between an array and its storage: sources, covers, moments |
//! | `index` | the value index: blocks, ranges, and the arrays in the sidecar that hold them |
//! | `plan` | plans of reads and writes: geometry, tuning, prices; no I/O |
//! | `run` | execution of plans: open, fetch, check, decode, deliver |
//! | `prefetch` | readahead along the patterns of reads |
//! | `write` | chunks in memory that are merged and encoded, and the sink that takes them |
//! | `cache` | the cache of the process |
//! | `codec` | the choice of codecs, and the cost of decoding |
//! | `calibrate` | measurement of a storage system and of this machine |
//! | `memory` | a memory budget under `RLIMIT_AS` |
//! | `threads` | scoped threads, CPU permits, memory budgets |
//! | `opening` | storage at a path or URL, and the kind of data there |
//! | `options` | options of opening a store |

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
pub mod hosted;
mod index;
pub mod indexing;
pub mod layout;
pub mod log;
mod memory;
pub mod mesh;
mod opening;
pub mod optimize;
mod options;
pub mod panics;
pub mod placement;
mod plan;
mod prefetch;
pub mod publication;
pub mod query;
pub mod references;
pub mod referencing;
pub mod repack;
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
    Append, Array, BlockRange, Elements, Growth, Prefetched, SelectedRun, ValueIndex, VisitedChunk,
    VisitedElements, append, append_with,
};
pub use cache::{CacheStatistics, KindStatistics, cache_statistics, set_cache_budget};
pub use calibrate::{calibrate, calibrate_url};
pub use error::{Error, ErrorKind, Result};
pub use foreign::ForeignFile;
pub use opening::{PlaceKind, detect};
pub use options::{ExternalFiles, Freshness, OpenOptions, Prefetch, ProgressCallback};
pub use plan::experience::{forget_experience, keep_experience};
pub use plan::price::Price;
pub use prefetch::PrefetchStatistics;
pub use run::{
    Explanation, FollowedReads, PlaceReads, ReadStatistics, ReadsExplanation, RedirectedRead,
};
pub use store::Store;
pub use zarr::{ArrayLayout, NewArray, NodeKind, WriteStatistics};
