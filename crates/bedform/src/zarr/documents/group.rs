//! The document of a store's root, or of a group.

use bedform_format::ObjectPath;
use bedform_format::metadata::{GroupDocument, parse_group};
use bedform_storage::{Object, Version};
use serde_json::Value;

use super::ZARR_JSON;
use super::stored::{StoredDocument, node_type, parse};
use crate::error::{Error, Result};
use crate::zarr::hierarchy::Hierarchy;
use crate::zarr::replacing::resolve;
use crate::zarr::rewritten::lost_state;

/// A group's document as it was when it was read.
#[derive(Debug)]
pub(crate) struct GroupState {
    pub(crate) version: Version,
    /// The document without the consolidated documents, which are in `group`.
    pub(crate) document: Value,
    pub(crate) group: GroupDocument,
    /// While it is open, no other object can have its version. `None` where a snapshot brought the
    /// document.
    object: Option<Box<dyn Object>>,
}

impl GroupState {
    /// The bytes of the document.
    ///
    /// # Errors
    /// Those of storage; `Conflict` where a server no longer has them.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(self.version.size).unwrap_or(usize::MAX)];
        if let Some(object) = &self.object {
            object.read(0, &mut bytes)?;
        }
        Ok(bytes)
    }

    /// Parses the document of the root of `hierarchy` out of a snapshot that was taken elsewhere.
    ///
    /// # Errors
    /// `Corrupt` if the bytes are no group's document; those of [`Documents::root`].
    pub(crate) fn from_bytes(hierarchy: &Hierarchy, bytes: &[u8]) -> Result<Self> {
        let path = ObjectPath::root().join(ZARR_JSON)?;
        let version = Version { size: bytes.len() as u64, ..Version::default() };
        let stored = parse(hierarchy, &path, &version, bytes)?;
        let state = Self::of(hierarchy, stored, None)?;
        let missing = || Error::corrupt(hierarchy.name_of(&path), "the snapshot has no group");
        state.ok_or_else(missing)
    }

    /// Interprets the root's `stored` document; `None` if it is no group's.
    pub(super) fn of(
        hierarchy: &Hierarchy,
        stored: StoredDocument,
        object: Option<Box<dyn Object>>,
    ) -> Result<Option<Self>> {
        let StoredDocument { version, document, texts, .. } = stored;
        if node_type(&document) != Some("group") {
            return Ok(None);
        }
        let path = ObjectPath::root().join(ZARR_JSON)?;
        let mut group = parse_group(&document, texts)
            .map_err(|error| Error::metadata(hierarchy.name_of(&path), error))?;
        if let (None, false) = (group.store, hierarchy.documents.is_as_stored)
            && let Some((store, log)) = lost_state(hierarchy, &group)?
        {
            // The other program may have changed the arrays' entries, so the arrays' own documents
            // count.
            (group.store, group.log, group.consolidated) = (Some(store), log, None);
        }
        resolve(hierarchy, &mut group)?;
        Ok(Some(Self { version, document, group, object }))
    }
}
