//! One document as it is stored: reading with its limits and seal, and publication.

use bedform_format::json::{self, object_text};
use bedform_format::metadata::{GroupTexts, check_seal, parse_document, seal};
use bedform_format::{Limits, ObjectPath};
use bedform_storage::{Condition, Durability, Object, StorageExt as _, Version};
use serde_json::Value;

use super::ZARR_JSON;
use crate::error::{Error, ErrorKind, Result};
use crate::zarr::hierarchy::Hierarchy;
use crate::zarr::publish::check_attributes;

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
pub(in crate::zarr) fn read_opened(
    hierarchy: &Hierarchy,
    path: &ObjectPath,
    object: &dyn Object,
) -> Result<StoredDocument> {
    let bytes = read_bytes(hierarchy, path, object)?;
    parse(hierarchy, path, object.version(), &bytes)
}

/// Reads the `bytes` of the document at `path`, which were found in `version`.
pub(super) fn parse(
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
pub(in crate::zarr) fn read_bytes(
    hierarchy: &Hierarchy,
    path: &ObjectPath,
    object: &dyn Object,
) -> Result<Vec<u8>> {
    let limits = &hierarchy.options.limits;
    let version = object.version();
    if version.size > limits.metadata_bytes_max {
        let (name, size, most) = (hierarchy.name_of(path), version.size, limits.metadata_bytes_max);
        let text = format!("{name} has {size} bytes, over the limit of {most} for metadata");
        return Err(Error::new(ErrorKind::LimitExceeded, text));
    }
    let mut bytes = vec![0; usize::try_from(version.size).unwrap_or(usize::MAX)];
    object.read(0, &mut bytes)?;
    Ok(bytes)
}

/// True if a document of this size has room for attributes over the limit.
pub(super) fn is_large(version: &Version, limits: &Limits) -> bool {
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
    let limits = &hierarchy.options.limits;
    let over = |problem: String| {
        let text = format!("{}: {problem}", hierarchy.name_of(path));
        Error::new(ErrorKind::LimitExceeded, text)
    };
    let (size, most) = (bytes.len(), limits.metadata_bytes_max);
    if size as u64 > most {
        return Err(over(format!("metadata of {size} bytes are over the limit of {most}")));
    }
    // A document that readers would refuse must not replace one that they accept.
    json::check_depth(bytes, limits).map_err(|error| over(error.to_string()))?;
    let document = path.join(ZARR_JSON)?;
    let put = hierarchy.storage.put(&document, bytes, durability, Condition::None);
    hierarchy.documents.note_published(path);
    Ok(put?)
}

/// Fails if the attributes of `document`, that of the node at `path`, are over the limit.
pub(super) fn check_attributes_of(
    hierarchy: &Hierarchy,
    path: &ObjectPath,
    document: &Value,
) -> Result<()> {
    let attributes = document.get("attributes").and_then(object_text);
    attributes.map_or(Ok(()), |attributes| check_attributes(hierarchy, path, &attributes))
}

pub(crate) fn node_type(document: &Value) -> Option<&str> {
    document.get("node_type").and_then(Value::as_str)
}
