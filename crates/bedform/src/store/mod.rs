//! Stores: what the doors see of a place that holds groups and arrays.
//!
//! | module | holds |
//! |---|---|
//! | `opening` | stores in directories and at URLs |
//! | `create` | new stores, groups and arrays, deletion |
//! | `staged` | stores and groups that are built under a hidden name and published as a whole |
//! | `sessions` | sessions, settling, recovery: what the log does for a store |
//! | `verify` | what is damaged, in the log and in the objects |

mod create;
mod opening;
mod sessions;
mod staged;
mod verify;

use std::collections::BTreeMap;
use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_storage::Storage;
use serde_json::{Map, Value};

use crate::array::Array;
use crate::error::Result;
use crate::log::array::ArrayHandle;
use crate::log::opened::OpenedStore;
use crate::options::OpenOptions;
use crate::zarr::nodes::NodeKind;
use crate::zarr::publish::set_attributes;

pub use crate::opening::storage_of;
pub use staged::{StagedGroup, StagedStore};
pub use verify::{AbsentObjects, Verified, VerifyWatch};

/// A store: arrays and groups in one place. Cheap to clone; safe to share between threads.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) opened: Arc<OpenedStore>,
}

impl Store {
    fn of(opened: OpenedStore) -> Self {
        Self { opened: Arc::new(opened) }
    }

    /// Opens the store in `storage`: a Zarr v3 or v2 group, or a single array.
    ///
    /// # Errors
    /// `NotFound` if there is none; `Corrupt`, `Unsupported` by its metadata.
    pub fn open(storage: Arc<dyn Storage>, options: OpenOptions) -> Result<Self> {
        OpenedStore::open_in(storage, options, None).map(Self::of)
    }

    /// The place that holds the store.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.opened.storage
    }

    /// How the store was opened.
    pub fn options(&self) -> &OpenOptions {
        &self.opened.options
    }

    /// 2 or 3.
    ///
    /// # Errors
    /// Of reading the store's documents.
    pub fn zarr_format(&self) -> Result<u8> {
        self.opened.documents.zarr_format(&self.opened)
    }

    /// What lies at `path`, if anything.
    ///
    /// # Errors
    /// Of reading the documents there.
    pub fn kind(&self, path: &ObjectPath) -> Result<Option<NodeKind>> {
        self.opened.documents.kind(&self.opened, path)
    }

    /// Opens the array at `path`.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt` or `Unsupported` by its metadata.
    pub fn array(&self, path: &ObjectPath) -> Result<Array> {
        ArrayHandle::open(self.opened.clone(), path.clone()).map(Array::stored_in)
    }

    /// The array at `path` as it will be when [`append_with`](crate::append_with) has given it
    /// `shape`; to write its new elements with, nothing else.
    ///
    /// # Errors
    /// As [`Store::array`]; `InvalidArgument` if the array would not grow.
    pub fn grown(&self, path: &ObjectPath, shape: &[u64]) -> Result<Array> {
        self.array(path)?.stored()?.grown(shape).map(Array::stored_in)
    }

    /// Every array and group of the store by path, the root group not included.
    ///
    /// # Errors
    /// Of reading the documents.
    pub fn nodes(&self) -> Result<BTreeMap<ObjectPath, NodeKind>> {
        self.opened.documents.nodes(&self.opened)
    }

    /// The attributes of the group at `path`.
    ///
    /// # Errors
    /// `NotFound` if there is no group.
    pub fn group_attributes(&self, path: &ObjectPath) -> Result<Map<String, Value>> {
        self.opened.documents.group_attributes(&self.opened, path)
    }

    /// Replaces the attributes of the array or group at `path`. Atomic, durable on return.
    ///
    /// # Errors
    /// `NotFound`, `ReadOnly`, `LimitExceeded`, and those of storage.
    pub fn set_attributes(&self, path: &ObjectPath, attributes: Map<String, Value>) -> Result<()> {
        set_attributes(&self.opened, path, attributes)
    }
}
