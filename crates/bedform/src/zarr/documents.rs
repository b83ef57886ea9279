//! Metadata documents: reading them, deciding which copy of an array's document counts, publishing
//! them.
//!
//! The root's document is cached, because every read checks it. An array's own document is believed
//! only as far as the consolidated metadata confirm it, unless another program rewrote it: see
//! `publish` for the order.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bedform_format::json::{self, JsonText, ObjectText, object_text};
use bedform_format::metadata::{
    ArrayMetadata, GroupDocument, GroupTexts, MetadataError, NodeSummary, check_seal, hex,
    parse_array, parse_array_v2, parse_document, parse_group, seal,
};
use bedform_format::{Limits, ObjectPath};
use bedform_storage::{Condition, Durability, Object, StorageExt as _, Version};
use serde_json::{Map, Value};

use super::choosing::as_closed;
use super::held::SnapshotMoment;
use super::hierarchy::Hierarchy;
use super::nodes::NodeKind;
use super::publish::{attribute_values, check_attributes};
use super::replacing::resolve;
use super::rewritten::lost_state;
use crate::error::{Error, ErrorKind, Result};
use crate::options::Freshness;
use crate::threads::ordered::map_in_threads;

/// The name of Zarr v3 documents.
pub(crate) const ZARR_JSON: &str = "zarr.json";

/// Attempts to read an array's documents while other arrays take its place.
const RACES_MAX: u32 = 16;

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
    fn of(
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
    /// The path of the array's own document, and the version that it was read in.
    pub(crate) fn own(&self) -> &(ObjectPath, Version) {
        &self.own
    }
}

/// A document as it is stored.
#[derive(Debug, Clone)]
pub(crate) struct StoredDocument {
    pub(crate) version: Version,
    pub(crate) document: Value,
    /// The documents of other nodes inside a group's document.
    pub(crate) texts: GroupTexts,
    /// True if Bedform was the last to write it.
    pub(crate) sealed: bool,
}

/// Reads the document `name` below `path`; `None` if there is none.
pub(crate) fn read(
    hierarchy: &Hierarchy,
    path: &ObjectPath,
    name: &str,
) -> Result<Option<StoredDocument>> {
    let path = path.join(name)?;
    let Some(object) = hierarchy.storage.find(&path)? else { return Ok(None) };
    let documents = &hierarchy.documents;
    if let Some(stored) = documents.recent(&path, object.version()) {
        return Ok(Some(stored));
    }
    let stored = read_opened(hierarchy, &path, &*object)?;
    documents.keep_recent(path, &stored, object);
    Ok(Some(stored))
}

/// Reads the document `object`, which lies at `path`.
pub(super) fn read_opened(
    hierarchy: &Hierarchy,
    path: &ObjectPath,
    object: &dyn Object,
) -> Result<StoredDocument> {
    let bytes = read_bytes(hierarchy, path, object)?;
    parse(hierarchy, path, object.version(), &bytes)
}

/// Reads the `bytes` of the document at `path`, which were found in `version`.
fn parse(
    hierarchy: &Hierarchy,
    path: &ObjectPath,
    version: &Version,
    bytes: &[u8],
) -> Result<StoredDocument> {
    let limits = &hierarchy.options.limits;
    let fail = |error| Error::metadata(hierarchy.name_of(path), error);
    let (document, texts) = parse_document(bytes, limits).map_err(fail)?;
    if is_large(version, limits) {
        check_attributes_of(hierarchy, path, &document)?;
    }
    let sealed = check_seal(bytes, &document).map_err(fail)?;
    Ok(StoredDocument { version: version.clone(), document, texts, sealed })
}

/// The bytes of the document `object`, which lies at `path`.
pub(super) fn read_bytes(
    hierarchy: &Hierarchy,
    path: &ObjectPath,
    object: &dyn Object,
) -> Result<Vec<u8>> {
    let limits = &hierarchy.options.limits;
    let version = object.version();
    if version.size > limits.metadata_bytes_max {
        return Err(Error::new(
            ErrorKind::LimitExceeded,
            format!(
                "{} has {} bytes, over the limit of {} for metadata",
                hierarchy.name_of(path),
                version.size,
                limits.metadata_bytes_max
            ),
        ));
    }
    let mut bytes = vec![0; usize::try_from(version.size).unwrap_or(usize::MAX)];
    object.read(0, &mut bytes)?;
    Ok(bytes)
}

/// True if a document of this size has room for attributes over the limit.
fn is_large(version: &Version, limits: &Limits) -> bool {
    version.size > limits.attributes_bytes_max
}

/// Publishes a document, replacing any that exists. The caller holds the lock that guards it.
pub(crate) fn publish(hierarchy: &Hierarchy, path: &ObjectPath, document: Value) -> Result<()> {
    publish_at(hierarchy, path, document, hierarchy.options.durability).map(drop)
}

/// As [`publish`], at another durability than the store's. Returns the version.
pub(crate) fn publish_at(
    hierarchy: &Hierarchy,
    path: &ObjectPath,
    document: Value,
    durability: Durability,
) -> Result<Version> {
    publish_bytes(hierarchy, path, &seal(document), durability)
}

/// Publishes the bytes of a document, as [`publish_at`].
pub(crate) fn publish_bytes(
    hierarchy: &Hierarchy,
    path: &ObjectPath,
    bytes: &[u8],
    durability: Durability,
) -> Result<Version> {
    if bytes.len() as u64 > hierarchy.options.limits.metadata_bytes_max {
        return Err(Error::new(
            ErrorKind::LimitExceeded,
            format!(
                "{}: metadata of {} bytes are over the limit of {}",
                hierarchy.name_of(path),
                bytes.len(),
                hierarchy.options.limits.metadata_bytes_max
            ),
        ));
    }
    // A document that readers would refuse must not replace one that they accept.
    json::check_depth(bytes, &hierarchy.options.limits).map_err(|error| {
        Error::new(ErrorKind::LimitExceeded, format!("{}: {error}", hierarchy.name_of(path)))
    })?;
    let document = path.join(ZARR_JSON)?;
    let put = hierarchy.storage.put(&document, bytes, durability, Condition::None);
    hierarchy.documents.note_published(path);
    Ok(put?)
}

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
        let kept = self.root.lock().unwrap_or_else(PoisonError::into_inner).clone();
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
        let kept = self.root.lock().unwrap_or_else(PoisonError::into_inner);
        kept.as_ref().is_some_and(|root| root.group.log.pending)
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
    pub(super) fn note_published(&self, path: &ObjectPath) {
        let is_change = if path.is_root() {
            *self.root.lock().unwrap_or_else(PoisonError::into_inner) = None;
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
        let kept = self.root.lock().unwrap_or_else(PoisonError::into_inner).clone();
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
            return Err(Error::new(
                ErrorKind::Conflict,
                format!(
                    "{} is another store now, or none: open it again, or put back the zarr.json that was there",
                    hierarchy.storage.name()
                ),
            ));
        }
        let Some(state) = state else { return Ok(None) };
        let state = Arc::new(state);
        *self.root.lock().unwrap_or_else(PoisonError::into_inner) = Some(state.clone());
        Ok(Some(state))
    }

    /// The root group as it is stored now, if `path` is the root and it was read before. Its
    /// document may be large.
    fn known_root(
        &self,
        hierarchy: &Hierarchy,
        path: &ObjectPath,
    ) -> Result<Option<Arc<GroupState>>> {
        let is_known = path.is_root()
            && hierarchy.held.is_none()
            && self.root.lock().unwrap_or_else(PoisonError::into_inner).is_some();
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
                _ => Err(Error::new(
                    ErrorKind::Corrupt,
                    format!("{}/zarr.json is neither array nor group", hierarchy.name_of(path)),
                )),
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
        let missing = || {
            Error::new(
                ErrorKind::NotFound,
                format!("no array {path:?} in {}", hierarchy.storage.name()),
            )
        };
        let limits = &hierarchy.options.limits;
        let seen = self.changes.load(Ordering::Acquire);
        let held = hierarchy.held.as_ref();
        let Some(own) = read(hierarchy, path, ZARR_JSON)? else {
            let is_gone = held.is_some_and(|held| held.document(path).is_some());
            let missing = || match is_gone {
                true => SnapshotMoment::gone(&hierarchy.name_of(path)),
                false => missing(),
            };
            return array_v2(hierarchy, path, limits)?.ok_or_else(missing);
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
            None if held.is_some_and(|held| held.document(path).is_some()) => {
                return Err(SnapshotMoment::gone(&hierarchy.name_of(path)));
            }
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
        let origin = ArrayOrigin {
            own: (name, own.version),
            root: root.map(|root| root.version.clone()),
            seen: AtomicU64::new(seen),
            replaced: had.filter(|had| Some(*had) != has),
        };
        Ok(ArrayDocument { metadata, document, origin })
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
        let root = self.root(hierarchy)?;
        let documents = root.as_ref().and_then(|root| root.group.consolidated.as_ref());
        Ok(documents.is_some_and(|documents| documents.contains_key(path.as_str())))
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

    pub(crate) fn group_attributes(
        &self,
        hierarchy: &Hierarchy,
        path: &ObjectPath,
    ) -> Result<Map<String, Value>> {
        let missing = || {
            Error::new(
                ErrorKind::NotFound,
                format!("no group {path:?} in {}", hierarchy.storage.name()),
            )
        };
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

/// The document of an array that counts.
enum EffectiveDocument {
    /// Its own document.
    Own,
    /// The copy in the consolidated metadata, given here.
    Consolidated(Value),
}

/// Decides which document of the array at `path` counts: none if its creation was never committed.
fn committed(
    hierarchy: &Hierarchy,
    root: &GroupDocument,
    path: &ObjectPath,
    own: &StoredDocument,
) -> Result<Option<EffectiveDocument>> {
    let (Some(consolidated), Some(store)) = (&root.consolidated, &root.store) else {
        return Ok(Some(EffectiveDocument::Own));
    };
    let key =
        |document: &Value, key: &str| document.get("bedform").and_then(|own| own.get(key)).cloned();
    if !own.sealed || key(&own.document, "store") != Some(Value::String(hex(store))) {
        return Ok(Some(EffectiveDocument::Own));
    }
    let Some(text) = consolidated.get(path.as_str()) else { return Ok(None) };
    let document = parse_text(hierarchy, path, text)?;
    let is_same = key(&document, "array") == key(&own.document, "array");
    Ok(is_same.then_some(EffectiveDocument::Consolidated(document)))
}

/// The identity of the array that a store's document names at `path`.
fn key_of(
    hierarchy: &Hierarchy,
    root: &GroupDocument,
    path: &ObjectPath,
) -> Result<Option<[u8; 16]>> {
    let text = root.consolidated.as_ref().and_then(|documents| documents.get(path.as_str()));
    text.map_or(Ok(None), |text| Ok(summary(hierarchy, path.as_str(), text)?.key))
}

/// The document of the array at `path` in the store's document.
fn document_in(
    hierarchy: &Hierarchy,
    root: &GroupDocument,
    path: &ObjectPath,
) -> Result<Option<Value>> {
    let text = root.consolidated.as_ref().and_then(|documents| documents.get(path.as_str()));
    text.map(|text| parse_text(hierarchy, path, text)).transpose()
}

/// Parses the consolidated document of the node at `path`.
fn parse_text(hierarchy: &Hierarchy, path: &ObjectPath, text: &JsonText) -> Result<Value> {
    parse_document(text.as_str().as_bytes(), &hierarchy.options.limits)
        .map(|(document, _)| document)
        .map_err(|error| damaged_text(hierarchy, path.as_str(), error))
}

/// Summarizes the node at `path` by the text of its consolidated document.
///
/// # Errors
/// `Corrupt` names the store's document and the node.
pub(super) fn summary(hierarchy: &Hierarchy, path: &str, text: &JsonText) -> Result<NodeSummary> {
    let limits = &hierarchy.options.limits;
    NodeSummary::of(text, limits).map_err(|error| damaged_text(hierarchy, path, error.into()))
}

fn damaged_text(hierarchy: &Hierarchy, path: &str, error: MetadataError) -> Error {
    let place = format!("the consolidated document of {path:?} in {}", hierarchy.storage.name());
    Error::metadata(place, error)
}

fn check_attributes_of(hierarchy: &Hierarchy, path: &ObjectPath, document: &Value) -> Result<()> {
    let attributes = document.get("attributes").and_then(object_text);
    attributes.map_or(Ok(()), |attributes| check_attributes(hierarchy, path, &attributes))
}

pub(crate) fn node_type(document: &Value) -> Option<&str> {
    document.get("node_type").and_then(Value::as_str)
}

fn array_v2(
    hierarchy: &Hierarchy,
    path: &ObjectPath,
    limits: &Limits,
) -> Result<Option<ArrayDocument>> {
    let seen = hierarchy.documents.changes.load(Ordering::Acquire);
    let Some(own) = read(hierarchy, path, ".zarray")? else { return Ok(None) };
    check_not_newer(hierarchy, path, &own.version)?;
    let attributes = attributes_v2(hierarchy, path)?;
    let name = path.join(".zarray")?;
    let metadata = parse_array_v2(&own.document, attributes, limits)
        .map_err(|error| Error::metadata(hierarchy.name_of(&name), error))?;
    let origin = ArrayOrigin {
        own: (name, own.version),
        root: None,
        seen: AtomicU64::new(seen),
        replaced: None,
    };
    Ok(Some(ArrayDocument { metadata, document: own.document, origin }))
}

fn attributes_v2(hierarchy: &Hierarchy, path: &ObjectPath) -> Result<Map<String, Value>> {
    let name = path.join(".zattrs")?;
    let Some(object) = hierarchy.storage.find(&name)? else { return Ok(Map::new()) };
    let bytes = read_bytes(hierarchy, &name, &*object)?;
    let text = ObjectText::from_bytes(&bytes, &hierarchy.options.limits)
        .map_err(|error| Error::metadata(hierarchy.name_of(&name), error.into()))?;
    drop(bytes);
    check_attributes(hierarchy, path, &text)?;
    attribute_values(hierarchy, path, &text)
}
