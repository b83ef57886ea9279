//! Metadata documents: reading them, deciding which copy of an array's document counts, publishing
//! them.
//!
//! The root's document is cached, because every read checks it. An array's own document is believed
//! only as far as the consolidated metadata confirm it, unless another program rewrote it: see
//! `publish` for the order.
//!
//! | module | holds |
//! |---|---|
//! | `stored` | one document: reading, its seal, publication |
//! | `group` | the document of the root, or of a group |
//! | `array` | an array's document, and the versions that it was made from |
//! | `consolidated` | documents inside the store's document; the copy that counts |
//! | `v2` | documents of Zarr v2 |

mod array;
mod consolidated;
mod group;
mod stored;
mod v2;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bedform_format::ObjectPath;
use bedform_format::metadata::{GroupTexts, parse_document, parse_group};
use bedform_storage::{Object, StorageExt as _, Version};
use serde_json::{Map, Value};

use super::hierarchy::Hierarchy;
use super::nodes::NodeKind;
use super::publish::attribute_values;
use crate::error::{Error, ErrorKind, Result};
use crate::options::Freshness;
use crate::threads::ordered::map_in_threads;

pub(crate) use array::{ArrayDocument, ArrayOrigin};
pub(super) use consolidated::summary;
pub(crate) use group::GroupState;
pub(crate) use stored::{StoredDocument, node_type, publish, publish_at, publish_bytes, read};
pub(super) use stored::{read_bytes, read_opened};

use consolidated::{committed, key_of, text_of};
use v2::attributes_v2;

/// The name of Zarr v3 documents.
pub(crate) const ZARR_JSON: &str = "zarr.json";

/// The documents of an opened store. The root's is cached, because every read checks it.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    root: Mutex<Option<Arc<GroupState>>>,
    /// The large document that was read last: opening an array reads it several times.
    recent: Mutex<Option<RecentDocument>>,
    /// True to take the root's document as it is.
    is_as_stored: bool,
    /// Count of publications by this handle: a handle always notices its own changes.
    changes: AtomicU64,
    /// True after documents of nodes are published, until the root's document makes them visible.
    are_ahead: AtomicBool,
}

/// A large document, kept to save parsing it again.
#[derive(Debug)]
struct RecentDocument {
    path: ObjectPath,
    stored: StoredDocument,
    /// While it is open, no other object can have its version.
    _object: Box<dyn Object>,
}

/// Bytes from which a document is kept as [`RecentDocument`].
const RECENT_BYTES_MIN: u64 = 1 << 20;

impl Documents {
    /// Documents that are taken as they are stored, even if another program has rewritten them.
    pub(crate) fn as_stored() -> Self {
        Self { is_as_stored: true, ..Self::default() }
    }

    /// The root group's document; `None` if the store's root is no v3 group.
    pub(crate) fn root(&self, hierarchy: &Hierarchy) -> Result<Option<Arc<GroupState>>> {
        if let Some(held) = &hierarchy.held {
            return Ok(held.root.clone());
        }
        let kept = self.cached_root().clone();
        if let Some(state) = kept {
            let path = ObjectPath::root().join(ZARR_JSON)?;
            // While a replacement is noted, the directory decides which documents count.
            let current = state.group.replacing.is_none()
                && (hierarchy.options.freshness != Freshness::Read
                    || hierarchy.storage.is_current(&path, &state.version)?);
            if current {
                return Ok(Some(state));
            }
        }
        self.read_root(hierarchy)
    }

    /// True if the root's document, when it was last read, said that unsettled commits exist.
    pub(crate) fn is_log_pending(&self, hierarchy: &Hierarchy) -> bool {
        if let Some(held) = &hierarchy.held {
            return held.root.as_ref().is_some_and(|root| root.group.log.pending);
        }
        let kept = self.cached_root();
        kept.as_ref().is_some_and(|root| root.group.log.pending)
    }

    fn cached_root(&self) -> MutexGuard<'_, Option<Arc<GroupState>>> {
        self.root.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The document at `path`, if it was the last large one that was read, in this version.
    fn recent(&self, path: &ObjectPath, version: &Version) -> Option<StoredDocument> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = recent.as_ref()?;
        (recent.path == *path && recent.stored.version == *version).then(|| recent.stored.clone())
    }

    /// Keeps a large document. A group's document with documents of others is not kept here.
    fn keep_recent(&self, path: ObjectPath, stored: &StoredDocument, object: Box<dyn Object>) {
        if stored.version.size >= RECENT_BYTES_MIN && stored.texts == GroupTexts::default() {
            let recent = RecentDocument { path, stored: stored.clone(), _object: object };
            *self.recent.lock().unwrap_or_else(PoisonError::into_inner) = Some(recent);
        }
    }

    /// Drops the cached state of a node whose document was published.
    pub(in crate::zarr) fn note_published(&self, path: &ObjectPath) {
        let is_change = if path.is_root() {
            *self.cached_root() = None;
            self.are_ahead.swap(false, Ordering::AcqRel)
        } else {
            self.are_ahead.store(true, Ordering::Release);
            true
        };
        if is_change {
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// As [`Documents::root`], read from storage now.
    pub(crate) fn read_root(&self, hierarchy: &Hierarchy) -> Result<Option<Arc<GroupState>>> {
        if let Some(held) = &hierarchy.held {
            return Ok(held.root.clone());
        }
        let path = ObjectPath::root().join(ZARR_JSON)?;
        let Some(object) = hierarchy.storage.find(&path)? else { return Ok(None) };
        let kept = self.cached_root().clone();
        let is_same = |kept: &&Arc<GroupState>| {
            kept.version == *object.version() && kept.group.replacing.is_none()
        };
        if let Some(kept) = kept.as_ref().filter(is_same) {
            return Ok(Some(kept.clone()));
        }
        let stored = match self.recent(&path, object.version()) {
            Some(stored) => stored,
            None => read_opened(hierarchy, &path, &*object)?,
        };
        let state = if node_type(&stored.document) == Some("group") {
            GroupState::of(hierarchy, stored, Some(object))?
        } else {
            self.keep_recent(path, &stored, object);
            None
        };
        // A program that rewrites the store's document may leave it without a key.
        let stays =
            |was| state.as_ref().is_some_and(|now| now.group.store.is_none_or(|now| now == was));
        if kept.and_then(|kept| kept.group.store).is_some_and(|was| !stays(was)) {
            // Arrays of the earlier store would look for commits in the log of another one.
            let name = hierarchy.storage.name();
            let text = format!(
                "{name} is another store now, or none: open it again, or put back the zarr.json that was there"
            );
            return Err(Error::new(ErrorKind::Conflict, text));
        }
        let Some(state) = state else { return Ok(None) };
        let state = Arc::new(state);
        *self.cached_root() = Some(state.clone());
        Ok(Some(state))
    }

    /// The root group as it is stored now, if `path` is the root and it was read before. Its
    /// document may be large.
    fn known_root(
        &self,
        hierarchy: &Hierarchy,
        path: &ObjectPath,
    ) -> Result<Option<Arc<GroupState>>> {
        let is_known = path.is_root() && hierarchy.held.is_none() && self.cached_root().is_some();
        if is_known { self.read_root(hierarchy) } else { Ok(None) }
    }

    pub(crate) fn zarr_format(&self, hierarchy: &Hierarchy) -> Result<u8> {
        let root = ObjectPath::root();
        Ok(if read(hierarchy, &root, ZARR_JSON)?.is_some() { 3 } else { 2 })
    }

    pub(crate) fn kind(
        &self,
        hierarchy: &Hierarchy,
        path: &ObjectPath,
    ) -> Result<Option<NodeKind>> {
        if let Some(held) = &hierarchy.held
            && let Some(kind) = held.kind(hierarchy, path)?
        {
            return Ok(Some(kind));
        }
        if self.known_root(hierarchy, path)?.is_some() {
            return Ok(Some(NodeKind::Group));
        }
        if let Some(stored) = read(hierarchy, path, ZARR_JSON)? {
            if !path.is_root() && is_younger(hierarchy, path, &stored)? {
                return Ok(None);
            }
            return match node_type(&stored.document) {
                Some("group") => Ok(Some(NodeKind::Group)),
                Some("array") => {
                    Ok(self.is_committed(hierarchy, path, &stored)?.then_some(NodeKind::Array))
                }
                _ => {
                    let text =
                        format!("{}/zarr.json is neither array nor group", hierarchy.name_of(path));
                    Err(Error::new(ErrorKind::Corrupt, text))
                }
            };
        }
        let of_v2 = [(".zarray", NodeKind::Array), (".zgroup", NodeKind::Group)];
        let found = map_in_threads(hierarchy.threads_asking(), &of_v2, |(name, kind)| {
            match hierarchy.storage.stat(&path.join(name)?) {
                Ok(_) => Ok(Some(*kind)),
                Err(error) if error.is_not_found() => Ok(None),
                Err(error) => Err(error.into()),
            }
        })?;
        Ok(found.into_iter().flatten().next())
    }

    /// False for an array whose creation was not committed (yet).
    fn is_committed(
        &self,
        hierarchy: &Hierarchy,
        path: &ObjectPath,
        own: &StoredDocument,
    ) -> Result<bool> {
        let Some(root) = self.root(hierarchy)? else { return Ok(true) };
        Ok(committed(hierarchy, &root.group, path, own)?.is_some())
    }

    /// The identity of the array that the store's document names at `path`, even where another
    /// program has removed the array's own document.
    pub(crate) fn key_of(
        &self,
        hierarchy: &Hierarchy,
        path: &ObjectPath,
    ) -> Result<Option<[u8; 16]>> {
        match self.root(hierarchy)? {
            Some(root) => key_of(hierarchy, &root.group, path),
            None => Ok(None),
        }
    }

    /// True if the store's document names a node at `path`, whether or not it exists.
    pub(crate) fn names(&self, hierarchy: &Hierarchy, path: &ObjectPath) -> Result<bool> {
        Ok(self.root(hierarchy)?.is_some_and(|root| text_of(&root.group, path).is_some()))
    }

    pub(crate) fn group_attributes(
        &self,
        hierarchy: &Hierarchy,
        path: &ObjectPath,
    ) -> Result<Map<String, Value>> {
        let missing = || missing_node(hierarchy, "group", path);
        if let Some(held) = &hierarchy.held {
            if let Some(root) = held.root.as_ref().filter(|_| path.is_root()) {
                return attribute_values(hierarchy, path, &root.group.attributes);
            }
            if let Some(text) = held.document(path) {
                let group = parse_document(text.as_str().as_bytes(), &hierarchy.options.limits)
                    .and_then(|(document, texts)| parse_group(&document, texts))
                    .map_err(|error| Error::metadata(hierarchy.name_of(path), error))?;
                return attribute_values(hierarchy, path, &group.attributes);
            }
        }
        if let Some(root) = self.known_root(hierarchy, path)? {
            return attribute_values(hierarchy, path, &root.group.attributes);
        }
        if let Some(stored) = read(hierarchy, path, ZARR_JSON)? {
            if node_type(&stored.document) != Some("group") {
                return Err(missing());
            }
            check_not_newer(hierarchy, path, &stored.version)?;
            let group = parse_group(&stored.document, stored.texts)
                .map_err(|error| Error::metadata(hierarchy.name_of(path), error))?;
            // The parsed document is dropped first, so that it and the values do not take memory at
            // once.
            drop(stored.document);
            return attribute_values(hierarchy, path, &group.attributes);
        }
        if read(hierarchy, path, ".zgroup")?.is_none() {
            return Err(missing());
        }
        attributes_v2(hierarchy, path)
    }
}

fn missing_node(hierarchy: &Hierarchy, kind: &str, path: &ObjectPath) -> Error {
    let text = format!("no {kind} {path:?} in {}", hierarchy.storage.name());
    Error::new(ErrorKind::NotFound, text)
}

/// Fails if the document at `path`, found in `version`, is newer than the moment of the hierarchy.
fn check_not_newer(hierarchy: &Hierarchy, path: &ObjectPath, version: &Version) -> Result<()> {
    let Some(held) = &hierarchy.held else { return Ok(()) };
    held.check(version, || hierarchy.name_of(path))
}

/// True for a node that Bedform created after the snapshot's moment. A node of another program is
/// dated by its file: it fails if that is later than the moment.
fn is_younger(hierarchy: &Hierarchy, path: &ObjectPath, own: &StoredDocument) -> Result<bool> {
    let Some(held) = &hierarchy.held else { return Ok(false) };
    let has_all = held.root.as_ref().is_some_and(|root| root.group.consolidated.is_some());
    if has_all && own.sealed {
        return Ok(true);
    }
    held.check(&own.version, || hierarchy.name_of(path)).map(|()| false)
}
