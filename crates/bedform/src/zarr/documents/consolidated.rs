//! The documents of other nodes inside the store's document, and the copy of an array's that counts.

use bedform_format::ObjectPath;
use bedform_format::json::JsonText;
use bedform_format::metadata::{GroupDocument, MetadataError, NodeSummary, hex, parse_document};
use serde_json::Value;

use super::stored::StoredDocument;
use crate::error::{Error, Result};
use crate::zarr::hierarchy::Hierarchy;

/// The document of an array that counts.
pub(super) enum EffectiveDocument {
    /// Its own document.
    Own,
    /// The copy in the consolidated metadata, given here.
    Consolidated(Value),
}

/// Decides which document of the array at `path` counts: none if its creation was never committed.
pub(super) fn committed(
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

/// The text of the node at `path` in the store's document.
pub(super) fn text_of<'r>(root: &'r GroupDocument, path: &ObjectPath) -> Option<&'r JsonText> {
    root.consolidated.as_ref()?.get(path.as_str())
}

/// The identity of the array that a store's document names at `path`.
pub(super) fn key_of(
    hierarchy: &Hierarchy,
    root: &GroupDocument,
    path: &ObjectPath,
) -> Result<Option<[u8; 16]>> {
    text_of(root, path).map_or(Ok(None), |text| Ok(summary(hierarchy, path.as_str(), text)?.key))
}

/// The document of the array at `path` in the store's document.
pub(super) fn document_in(
    hierarchy: &Hierarchy,
    root: &GroupDocument,
    path: &ObjectPath,
) -> Result<Option<Value>> {
    text_of(root, path).map(|text| parse_text(hierarchy, path, text)).transpose()
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
pub(in crate::zarr) fn summary(
    hierarchy: &Hierarchy,
    path: &str,
    text: &JsonText,
) -> Result<NodeSummary> {
    let limits = &hierarchy.options.limits;
    NodeSummary::of(text, limits).map_err(|error| damaged_text(hierarchy, path, error.into()))
}

fn damaged_text(hierarchy: &Hierarchy, path: &str, error: MetadataError) -> Error {
    let place = format!("the consolidated document of {path:?} in {}", hierarchy.storage.name());
    Error::metadata(place, error)
}
