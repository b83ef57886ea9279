//! Stores: one type for all places with groups and arrays, which the doors (Python, C) use.
//!
//! A [`Store`] is a Zarr hierarchy with its log, or a foreign file. Of a file, every call that
//! writes is an error of kind `ReadOnly`.
//!
//! | module | holds |
//! |---|---|
//! | `opening` | stores in directories, at URLs, and in foreign files |
//! | `file` | the groups and variables of a foreign file |
//! | `create` | new stores, groups and arrays, deletion |
//! | `staged` | stores and groups that are built under a hidden name and published as a whole |
//! | `sessions` | sessions, settling, recovery, collection of the log |
//! | `snapshot` | snapshots: stores as of one moment |
//! | `query` | queries of the arrays of a group, each call as of one moment |
//! | `verify` | checks of the log and of all objects |

mod create;
mod file;
mod opening;
mod query;
mod sessions;
mod snapshot;
mod staged;
mod verify;

use std::collections::BTreeMap;
use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_storage::{Profile, Storage};
use serde_json::{Map, Value};

use crate::array::Array;
use crate::error::{Error, ErrorKind, Result};
use crate::foreign::ForeignFile;
use crate::log::array::ArrayHandle;
use crate::log::opened::OpenedStore;
use crate::options::OpenOptions;
use crate::plan::tuning::Tuning;
use crate::prefetch::{HandleReads, PrefetchStatistics};
use crate::replica::{ReplicaStatistics, Replicas};
use crate::zarr::nodes::NodeKind;
use crate::zarr::publish::set_attributes;

use file::FileStore;

pub use crate::opening::storage_of;
pub use query::{QueriedGroup, StoreQuery};
pub use staged::{StagedGroup, StagedStore};
pub use verify::{AbsentObjects, NOT_CHECKED, Verified};

/// A store: arrays and groups in one place. Cheap to clone; safe to share between threads.
#[derive(Debug, Clone)]
pub struct Store {
    backing: StoreBacking,
}

/// The source of a store's groups and arrays.
#[derive(Debug, Clone)]
enum StoreBacking {
    /// A Zarr hierarchy, and its log.
    Zarr(Arc<OpenedStore>),
    /// A foreign file.
    File(Arc<FileStore>),
}

impl Store {
    fn of(opened: OpenedStore) -> Self {
        Self { backing: StoreBacking::Zarr(Arc::new(opened)) }
    }

    /// Wraps a foreign file that `options` opened.
    pub fn of_file(file: ForeignFile, options: OpenOptions) -> Self {
        Self { backing: StoreBacking::File(Arc::new(FileStore { file, options })) }
    }

    /// The foreign file of this store, if it is one.
    pub fn file(&self) -> Option<&ForeignFile> {
        match &self.backing {
            StoreBacking::Zarr(_) => None,
            StoreBacking::File(store) => Some(&store.file),
        }
    }

    /// The limits by which reads are planned.
    pub(crate) fn tuning(&self) -> &Tuning {
        match &self.backing {
            StoreBacking::Zarr(opened) => &opened.tuning,
            StoreBacking::File(store) => &store.file.tuning,
        }
    }

    /// The profile that predicts the times of reads.
    pub(crate) fn profile(&self) -> &Profile {
        &self.tuning().profile
    }

    /// The Zarr hierarchy, for calls that a foreign file does not support.
    ///
    /// # Errors
    /// `ReadOnly` for a foreign file.
    pub(crate) fn zarr(&self) -> Result<&Arc<OpenedStore>> {
        match &self.backing {
            StoreBacking::Zarr(opened) => Ok(opened),
            StoreBacking::File(store) => Err(never_written(&store.file.name())),
        }
    }

    /// Opens the store in `storage`: a Zarr v3 or v2 group, or a single array.
    ///
    /// # Errors
    /// `NotFound` if there is none; `Corrupt`, `Unsupported` by its metadata.
    pub fn open(storage: Arc<dyn Storage>, options: OpenOptions) -> Result<Self> {
        OpenedStore::open_in(storage, options, None).map(Self::of)
    }

    /// The place that holds the store; for a foreign file, its directory.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        match &self.backing {
            StoreBacking::Zarr(opened) => &opened.storage,
            StoreBacking::File(store) => store.file.storage(),
        }
    }

    /// True for a place with a single array, at the root's path, instead of a group.
    pub fn is_array(&self) -> bool {
        matches!(&self.backing, StoreBacking::Zarr(opened) if opened.is_array)
    }

    /// Counts of readahead by this handle, and of its use.
    pub fn prefetch_statistics(&self) -> PrefetchStatistics {
        self.follows().map(HandleReads::statistics).unwrap_or_default()
    }

    /// Counts of this handle's reads from each replica that they considered.
    pub fn replica_statistics(&self) -> Vec<ReplicaStatistics> {
        match &self.backing {
            StoreBacking::Zarr(opened) => {
                opened.replicas.as_deref().map(Replicas::statistics).unwrap_or_default()
            }
            StoreBacking::File(store) => store.file.replica_statistics(),
        }
    }

    /// Drops elements that were read ahead, for a program that reads nothing more. Later reads are
    /// followed anew.
    pub fn drop_prefetched(&self) {
        self.follows().into_iter().for_each(HandleReads::forget);
    }

    fn follows(&self) -> Option<&HandleReads> {
        self.shared_follows().map(Arc::as_ref)
    }

    fn shared_follows(&self) -> Option<&Arc<HandleReads>> {
        match &self.backing {
            StoreBacking::Zarr(opened) => opened.follows.as_ref(),
            StoreBacking::File(store) => store.file.follows.as_ref(),
        }
    }

    /// The recorder of the reads of the store, if they are recorded.
    pub(crate) fn recorder(&self) -> Option<Arc<HandleReads>> {
        self.shared_follows().filter(|follows| follows.records()).cloned()
    }

    /// The options that opened the store.
    pub fn options(&self) -> &OpenOptions {
        match &self.backing {
            StoreBacking::Zarr(opened) => &opened.options,
            StoreBacking::File(store) => &store.options,
        }
    }

    /// The version of the Zarr format: 2 or 3.
    ///
    /// # Errors
    /// Those of reading the store's documents; `Unsupported` for a foreign file.
    pub fn zarr_format(&self) -> Result<u8> {
        match &self.backing {
            StoreBacking::Zarr(opened) => opened.documents.zarr_format(opened),
            StoreBacking::File(store) => Err(Error::new(
                ErrorKind::Unsupported,
                format!("{} is a {} file, and no Zarr store", store.file.name(), store.format()),
            )),
        }
    }

    /// The format of the store: `zarr-v3`, `zarr-v2`, `netcdf-classic-1` (`-2`, `-5`), `netcdf4` or
    /// `hdf5`.
    ///
    /// # Errors
    /// Those of reading the store's documents.
    pub fn format(&self) -> Result<String> {
        match &self.backing {
            StoreBacking::Zarr(_) => Ok(format!("zarr-v{}", self.zarr_format()?)),
            StoreBacking::File(store) => Ok(store.format().to_owned()),
        }
    }

    /// The kind of node at `path`, if there is one.
    ///
    /// # Errors
    /// Those of reading the documents there.
    pub fn kind(&self, path: &ObjectPath) -> Result<Option<NodeKind>> {
        match &self.backing {
            StoreBacking::Zarr(opened) => opened.documents.kind(opened, path),
            StoreBacking::File(store) => Ok(store.kind(path)),
        }
    }

    /// Opens the array at `path`.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt` or `Unsupported` by its metadata; `Unsupported` for a variable of a
    /// foreign file that only the library of its format reads.
    pub fn array(&self, path: &ObjectPath) -> Result<Array> {
        match &self.backing {
            StoreBacking::Zarr(opened) => {
                ArrayHandle::open(opened.clone(), path.clone()).map(Array::stored_in)
            }
            StoreBacking::File(store) => Array::of_file(&store.file, path.as_str()),
        }
    }

    /// The array at `path` with the `shape` that [`append_with`](crate::append_with) will give it.
    /// Use it only to write the new elements.
    ///
    /// # Errors
    /// As [`Store::array`]; `InvalidArgument` if the array would not grow.
    pub fn grown(&self, path: &ObjectPath, shape: &[u64]) -> Result<Array> {
        self.array(path)?.stored()?.grown(shape).map(Array::stored_in)
    }

    /// Lists every array and group of the store by path, except the root group. For a foreign file,
    /// its variables and groups.
    ///
    /// # Errors
    /// Those of reading the documents.
    pub fn nodes(&self) -> Result<BTreeMap<ObjectPath, NodeKind>> {
        match &self.backing {
            StoreBacking::Zarr(opened) => opened.documents.nodes(opened),
            StoreBacking::File(store) => store.nodes(),
        }
    }

    /// The attributes of the group at `path`.
    ///
    /// # Errors
    /// `NotFound` if there is no group.
    pub fn group_attributes(&self, path: &ObjectPath) -> Result<Map<String, Value>> {
        match &self.backing {
            StoreBacking::Zarr(opened) => opened.documents.group_attributes(opened, path),
            StoreBacking::File(store) => store.group_attributes(path),
        }
    }

    /// The attributes of the array or group at `path`. Those of a foreign file have the values that
    /// xarray shows, also for variables that only the library of their format reads.
    ///
    /// # Errors
    /// `NotFound`; those of reading the documents.
    pub fn attributes(&self, path: &ObjectPath) -> Result<Map<String, Value>> {
        match (&self.backing, self.kind(path)?) {
            (StoreBacking::Zarr(_), Some(NodeKind::Array)) => self.array(path)?.attributes(),
            (StoreBacking::File(store), Some(NodeKind::Array)) => store.variable_attributes(path),
            _ => self.group_attributes(path),
        }
    }

    /// Replaces the attributes of the array or group at `path`. Atomic, durable on return.
    ///
    /// # Errors
    /// `NotFound`, `ReadOnly`, `LimitExceeded`, and those of storage.
    pub fn set_attributes(&self, path: &ObjectPath, attributes: Map<String, Value>) -> Result<()> {
        set_attributes(self.zarr()?, path, attributes)
    }
}

/// Makes the error of an attempt to change the foreign file `name`.
fn never_written(name: &str) -> Error {
    Error::new(
        ErrorKind::ReadOnly,
        format!("{name}: foreign files are never written; convert it with 'bedform convert'"),
    )
}
