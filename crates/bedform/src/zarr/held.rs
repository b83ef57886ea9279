//! The moment of a snapshot, as the hierarchy sees it: the store's document, and a time.
//!
//! In a store that Bedform made, the root's consolidated metadata hold every document as of its
//! last commit. Objects without a commit number (documents of other programs, shards written
//! directly) are judged by time: if storage dates one after the moment, it is newer than the
//! snapshot.

use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_format::json::JsonText;
use bedform_storage::{Storage, Version};

use super::documents::{GroupState, summary};
use super::hierarchy::Hierarchy;
use super::nodes::{NodeKind, kind_of};
use crate::error::{Error, ErrorKind, Result};

/// The moment of a snapshot, without its commits, which the log holds: see
/// [`crate::log::snapshot`].
#[derive(Debug, Clone)]
pub(crate) struct SnapshotMoment {
    /// The document of the store's root; `None` where that is no group of Zarr v3.
    pub(crate) root: Option<Arc<GroupState>>,
    /// The moment, in nanoseconds by the clock of storage: see
    /// [`Storage::now`](bedform_storage::Storage::now). The snapshot's commits may be a little
    /// later.
    pub(crate) since_ns: i64,
    /// The place of shards that were replaced since; `None` where no log can be.
    pub(crate) kept: Option<Arc<dyn Storage>>,
}

impl SnapshotMoment {
    /// The document of the node at `path` as of the moment; `None` where the root's document does
    /// not have it.
    pub(crate) fn document(&self, path: &ObjectPath) -> Option<&JsonText> {
        self.root.as_ref()?.group.consolidated.as_ref()?.get(path.as_str())
    }

    /// The kind of the node at `path` as of the moment, by the root's document.
    ///
    /// # Errors
    /// `Corrupt` where its document cannot be parsed.
    pub(super) fn kind(
        &self,
        hierarchy: &Hierarchy,
        path: &ObjectPath,
    ) -> Result<Option<NodeKind>> {
        let Some(text) = self.document(path) else { return Ok(None) };
        Ok(Some(kind_of(summary(hierarchy, path.as_str(), text)?.is_array)))
    }

    /// Fails if the object `name`, found in this version, has changed since the moment.
    ///
    /// # Errors
    /// `SnapshotMoved`.
    pub(crate) fn check(&self, version: &Version, name: impl FnOnce() -> String) -> Result<()> {
        let Version { changed_ns, modified_ns, .. } = version;
        let changed = if *changed_ns == 0 { modified_ns } else { changed_ns };
        if *changed <= self.since_ns {
            return Ok(());
        }
        Err(Self::moved(&name(), "was written"))
    }

    /// The error of an object that was changed since the moment; `how` names the change.
    pub(crate) fn moved(name: &str, how: &str) -> Error {
        let text = format!("{name} {how} after the snapshot was taken");
        Error::new(ErrorKind::SnapshotMoved, text)
    }

    /// The error of an array or group that was deleted or replaced since the moment.
    pub(crate) fn gone(name: &str) -> Error {
        Self::moved(name, "was deleted or replaced")
    }
}
