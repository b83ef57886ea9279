//! Snapshots: stores that are held at one moment.

use std::path::Path;

use serde_json::Value;

use super::{Backing, Store};
use crate::error::Result;
use crate::log::opened::OpenedStore;
use crate::opening::is_file;
use crate::options::OpenOptions;

impl Store {
    /// The store as of now: every array, group and attribute of one moment, read-only, whatever others commit,
    /// settle, create, write and delete meanwhile. It looks for the newest commit, whatever the handle's
    /// freshness.
    ///
    /// A read gives what there was at the moment, or is an error of kind `SnapshotMoved`: nothing is kept for
    /// a snapshot, and what was settled, written directly, shrunk or deleted since is no longer there. What a
    /// commit adds changes nothing for it. Of changes that have no commit (direct writes, and all of other
    /// programs) it knows by the times of files: a few milliseconds go by until these tell before from after. On
    /// a server, whose times are another machine's and in seconds, they may go unnoticed.
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
    /// `Conflict` if others never stop committing; those of reading documents and roots.
    pub fn snapshot(&self) -> Result<Self> {
        match &self.backing {
            Backing::Zarr(opened) => opened.hold().map(Self::of),
            Backing::File(_) => Ok(self.clone()),
        }
    }

    /// What [`Store::open_snapshot`] opens this snapshot by, in another process: the moment, for a store that is
    /// a snapshot, of the size of the root's document; nothing for others.
    ///
    /// # Errors
    /// Of storage, where a server no longer has that document.
    pub fn moment(&self) -> Result<Option<Value>> {
        match &self.backing {
            Backing::Zarr(opened) => opened.held_as_json(),
            Backing::File(_) => Ok(None),
        }
    }

    /// Opens the snapshot of the store at `path` that [`Store::moment`] describes.
    ///
    /// # Errors
    /// As [`Store::open_path`]; `InvalidArgument` for what is no moment; `SnapshotMoved` if its commits have been
    /// settled, or another store lies there.
    pub fn open_snapshot(path: &Path, options: OpenOptions, moment: &Value) -> Result<Self> {
        if is_file(path) {
            return Self::open_path(path, options);
        }
        OpenedStore::open_held(path, options, moment).map(Self::of)
    }
}
