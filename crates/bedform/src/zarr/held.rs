//! The moment that a hierarchy is held at: a snapshot's documents, and the time after which nothing counts.
//!
//! Of a store that Bedform made the consolidated metadata are those of the last commit to its documents: who has
//! the root's document has all of them. What has no number of a commit (documents of other programs, shards that
//! were written directly) is known by its time: what storage dates after the moment is of another one.

use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_format::json::JsonText;
use bedform_storage::{Storage, Version};

use super::documents::{GroupState, summary};
use super::hierarchy::Hierarchy;
use super::nodes::{NodeKind, kind_of};
use crate::error::{Error, ErrorKind, Result};

/// A moment, as far as the hierarchy knows it. (Its commits are the log's: see [`crate::log::snapshot`].)
#[derive(Debug, Clone)]
pub(crate) struct Held {
    /// The document of the store's root; nothing where that is no group of Zarr v3.
    pub(crate) root: Option<Arc<GroupState>>,
    /// The moment, by the clock of storage: see [`Storage::now`](bedform_storage::Storage::now). Its commits
    /// may be a little later.
    pub(crate) since_ns: i64,
    /// Where shards lie that were replaced since; nothing where no log can be.
    pub(crate) kept: Option<Arc<dyn Storage>>,
}

impl Held {
    /// The document of the node at `path` as of the moment; nothing where the root's does not have it.
    pub(crate) fn document(&self, path: &ObjectPath) -> Option<&JsonText> {
        self.root.as_ref()?.group.consolidated.as_ref()?.get(path.as_str())
    }

    /// What lay at `path` at the moment, by the root's document.
    ///
    /// # Errors
    /// `Corrupt` where the document is none.
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

    /// The error of an object that was changed since, as `how` says.
    pub(crate) fn moved(name: &str, how: &str) -> Error {
        let text = format!("{name} {how} after the snapshot was taken");
        Error::new(ErrorKind::SnapshotMoved, text)
    }

    /// The error of an array or group that has gone since, or whose place another one has taken.
    pub(crate) fn gone(name: &str) -> Error {
        Self::moved(name, "was deleted or replaced")
    }
}
