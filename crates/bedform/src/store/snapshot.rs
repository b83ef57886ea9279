//! Snapshots: stores as of one moment.

use std::path::Path;

use serde_json::Value;

use super::{Store, StoreBacking};
use crate::error::Result;
use crate::log::opened::OpenedStore;
use crate::opening::is_file;
use crate::options::OpenOptions;

impl Store {
    /// A snapshot of the store as of now: every array, group and attribute of one moment,
    /// read-only. Later commits, settles and writes by others do not show in it. It starts at the
    /// newest commit, regardless of the handle's freshness.
    ///
    /// A read returns the data of the moment, or an error of kind `SnapshotMoved`. Nothing is kept
    /// for a snapshot: data that were settled, written directly, shrunk or deleted since may be
    /// gone. Later commits alone change nothing. Changes without a commit (direct writes, and all
    /// changes by other programs) are recognized by the times of files, which take a few
    /// milliseconds to advance. On a server, whose clock is another machine's and counts seconds,
    /// they may go unnoticed.
    ///
    /// The snapshot of a foreign file is the file as it was opened.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use bedform::{OpenOptions, Store};
    /// use bedform_format::ObjectPath;
    /// use bedform_storage::MemoryStorage;
    ///
    /// let mut options = OpenOptions::default();
    /// options.writable = true;
    /// let store = Store::create(Arc::new(MemoryStorage::new()), &Default::default(), options)?;
    /// let then = store.snapshot()?;
    /// store.create_group(&ObjectPath::parse("later")?, &Default::default())?;
    /// assert_eq!((store.nodes()?.len(), then.nodes()?.len()), (1, 0));
    /// # Ok::<(), bedform::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Conflict` if others keep committing; those of reading documents and roots.
    pub fn snapshot(&self) -> Result<Self> {
        match &self.backing {
            StoreBacking::Zarr(opened) => opened.hold().map(Self::of),
            StoreBacking::File(_) => Ok(self.clone()),
        }
    }

    /// Describes this snapshot so that [`Store::open_snapshot`] can open it in another process. The
    /// value is as large as the root's document; `None` for a store that is no snapshot.
    ///
    /// # Errors
    /// Those of storage, where a server no longer has that document.
    pub fn moment(&self) -> Result<Option<Value>> {
        match &self.backing {
            StoreBacking::Zarr(opened) => opened.held_as_json(),
            StoreBacking::File(_) => Ok(None),
        }
    }

    /// Opens the snapshot of the store at `path` that [`Store::moment`] describes.
    ///
    /// # Errors
    /// As [`Store::open_path`]; `InvalidArgument` for a value that is no moment; `SnapshotMoved` if
    /// its commits have been settled, or another store is there now.
    pub fn open_snapshot(path: &Path, options: OpenOptions, moment: &Value) -> Result<Self> {
        if is_file(path) {
            return Self::open_path(path, options);
        }
        OpenedStore::open_held(path, options, moment).map(Self::of)
    }
}
