//! Documents of Zarr v2, which Bedform only reads.

use std::sync::atomic::Ordering;

use bedform_format::ObjectPath;
use bedform_format::json::ObjectText;
use bedform_format::metadata::parse_array_v2;
use bedform_storage::StorageExt as _;
use serde_json::{Map, Value};

use super::array::{ArrayDocument, ArrayOrigin};
use super::check_not_newer;
use super::stored::{read, read_bytes};
use crate::error::{Error, Result};
use crate::zarr::hierarchy::Hierarchy;
use crate::zarr::publish::{attribute_values, check_attributes};

/// The array of Zarr v2 at `path`; `None` if there is none.
pub(super) fn array_v2(hierarchy: &Hierarchy, path: &ObjectPath) -> Result<Option<ArrayDocument>> {
    let seen = hierarchy.documents.changes.load(Ordering::Acquire);
    let Some(own) = read(hierarchy, path, ".zarray")? else { return Ok(None) };
    check_not_newer(hierarchy, path, &own.version)?;
    let attributes = attributes_v2(hierarchy, path)?;
    let name = path.join(".zarray")?;
    let metadata = parse_array_v2(&own.document, attributes, &hierarchy.options.limits)
        .map_err(|error| Error::metadata(hierarchy.name_of(&name), error))?;
    let origin = ArrayOrigin::new((name, own.version), None, seen, None);
    Ok(Some(ArrayDocument { metadata, document: own.document, origin }))
}

/// The attributes of a node of Zarr v2.
pub(super) fn attributes_v2(
    hierarchy: &Hierarchy,
    path: &ObjectPath,
) -> Result<Map<String, Value>> {
    let name = path.join(".zattrs")?;
    let Some(object) = hierarchy.storage.find(&name)? else { return Ok(Map::new()) };
    let bytes = read_bytes(hierarchy, &name, &*object)?;
    let text = ObjectText::from_bytes(&bytes, &hierarchy.options.limits)
        .map_err(|error| Error::metadata(hierarchy.name_of(&name), error.into()))?;
    drop(bytes);
    check_attributes(hierarchy, path, &text)?;
    attribute_values(hierarchy, path, &text)
}
