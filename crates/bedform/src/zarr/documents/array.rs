//! An array's document: its own, or the copy in the store's document, and the versions of both.

use std::sync::atomic::{AtomicU64, Ordering};

use bedform_format::ObjectPath;
use bedform_format::metadata::{ArrayMetadata, parse_array};
use bedform_storage::Version;
use serde_json::Value;

use super::consolidated::{EffectiveDocument, committed, document_in, key_of};
use super::stored::{check_attributes_of, is_large, node_type, read};
use super::v2::array_v2;
use super::{Documents, ZARR_JSON, check_not_newer, missing_node};
use crate::error::{Error, Result};
use crate::options::Freshness;
use crate::zarr::choosing::as_closed;
use crate::zarr::held::SnapshotMoment;
use crate::zarr::hierarchy::Hierarchy;

/// Attempts to read an array's documents while other arrays take its place.
const RACES_MAX: u32 = 16;

/// An array's document, and the versions of the documents that it was made from.
#[derive(Debug)]
pub(crate) struct ArrayDocument {
    pub(crate) metadata: ArrayMetadata,
    pub(crate) document: Value,
    pub(crate) origin: ArrayOrigin,
}

/// The versions of the documents from which an array's was made.
#[derive(Debug)]
pub(crate) struct ArrayOrigin {
    own: (ObjectPath, Version),
    root: Option<Version>,
    /// The count of this handle's publications at which it was last found to be current.
    seen: AtomicU64,
    /// The identity that the store's document names here, if the array's own document has another
    /// one or none: another program has replaced it.
    pub(crate) replaced: Option<[u8; 16]>,
}

impl ArrayOrigin {
    pub(super) fn new(
        own: (ObjectPath, Version),
        root: Option<Version>,
        seen: u64,
        replaced: Option<[u8; 16]>,
    ) -> Self {
        Self { own, root, seen: AtomicU64::new(seen), replaced }
    }

    /// The path of the array's own document, and the version that it was read in.
    pub(crate) fn own(&self) -> &(ObjectPath, Version) {
        &self.own
    }
}

impl Documents {
    /// The array at `path` as its last commit left it.
    pub(crate) fn array(&self, hierarchy: &Hierarchy, path: &ObjectPath) -> Result<ArrayDocument> {
        self.array_within(hierarchy, path, RACES_MAX)
    }

    /// As [`Documents::array`]; up to `races` other arrays may take its place meanwhile.
    fn array_within(
        &self,
        hierarchy: &Hierarchy,
        path: &ObjectPath,
        races: u32,
    ) -> Result<ArrayDocument> {
        let missing = || missing_node(hierarchy, "array", path);
        let limits = &hierarchy.options.limits;
        let seen = self.changes.load(Ordering::Acquire);
        let is_held = hierarchy.held.as_ref().is_some_and(|held| held.document(path).is_some());
        let gone = || SnapshotMoment::gone(&hierarchy.name_of(path));
        let Some(own) = read(hierarchy, path, ZARR_JSON)? else {
            let missing = || if is_held { gone() } else { missing() };
            return array_v2(hierarchy, path)?.ok_or_else(missing);
        };
        if node_type(&own.document) != Some("array") {
            return Err(missing());
        }
        // Read after the array's own document, so that it can only be newer.
        let root = match path.is_root() {
            true => None,
            // A writer with the root's document of the time of opening would overwrite rows that
            // others added.
            false if hierarchy.options.writable => self.read_root(hierarchy)?,
            false => self.root(hierarchy)?,
        };
        let name = path.join(ZARR_JSON)?;
        let committed = match &root {
            Some(root) => committed(hierarchy, &root.group, path, &own)?,
            None => Some(EffectiveDocument::Own),
        };
        let in_store = match (&root, own.sealed) {
            (Some(root), false) => document_in(hierarchy, &root.group, path)?,
            _ => None,
        };
        let document = match committed {
            Some(EffectiveDocument::Consolidated(document)) => document,
            Some(EffectiveDocument::Own) => {
                if root.is_some() {
                    check_not_newer(hierarchy, path, &own.version)?;
                }
                as_closed(own.document, in_store.as_ref())
            }
            None if is_held => return Err(gone()),
            // Another array may have taken its place since its document was read.
            None if races > 0 && !hierarchy.storage.is_current(&name, &own.version)? => {
                return self.array_within(hierarchy, path, races - 1);
            }
            None => return Err(missing()),
        };
        // Reading checked its own attributes; the committed ones may differ.
        if root.as_ref().is_some_and(|root| is_large(&root.version, limits)) {
            check_attributes_of(hierarchy, path, &document)?;
        }
        let metadata = parse_array(&document, limits)
            .map_err(|error| Error::metadata(hierarchy.name_of(&name), error))?;
        let had = match &root {
            Some(root) => key_of(hierarchy, &root.group, path)?,
            None => None,
        };
        let has = metadata.identity.map(|identity| identity.array);
        let replaced = had.filter(|had| Some(*had) != has);
        let root = root.map(|root| root.version.clone());
        let origin = ArrayOrigin::new((name, own.version), root, seen, replaced);
        Ok(ArrayDocument { metadata, document, origin })
    }

    /// True if no document that `array` was made from has changed.
    pub(crate) fn is_current(&self, hierarchy: &Hierarchy, array: &ArrayOrigin) -> Result<bool> {
        if hierarchy.held.is_some() {
            return Ok(true);
        }
        let looks_always = hierarchy.options.freshness == Freshness::Read;
        let changes = self.changes.load(Ordering::Acquire);
        if !looks_always && array.seen.load(Ordering::Acquire) == changes {
            return Ok(true);
        }
        let (path, version) = &array.own;
        if !hierarchy.storage.is_current(path, version)? {
            return Ok(false);
        }
        let root = ObjectPath::root().join(ZARR_JSON)?;
        let is_current = match &array.root {
            Some(version) => hierarchy.storage.is_current(&root, version)?,
            None => true,
        };
        if is_current {
            array.seen.store(changes, Ordering::Release);
        }
        Ok(is_current)
    }
}
