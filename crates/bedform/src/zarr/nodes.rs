//! The list of a store's groups and arrays.
//!
//! It comes from the consolidated metadata, else from a walk through the directories, or, where a
//! server denies listing, from the consolidated metadata of v2.

use std::collections::BTreeMap;

use bedform_format::metadata::{MetadataError, parse_consolidated_v2};
use bedform_format::{Limits, ObjectPath, json};
use bedform_storage::StorageExt as _;
use serde_json::Value;

use super::documents::{Documents, read_bytes, summary};
use super::hierarchy::Hierarchy;
use crate::error::{Error, ErrorKind, Result};

/// The kind of node at a path of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// An array.
    Array,
    /// A group.
    Group,
}

/// The consolidated metadata of v2.
const ZMETADATA: &str = ".zmetadata";
/// The most levels of groups that a walk enters.
const WALK_DEPTH_MAX: usize = 32;
/// The most nodes that a walk lists.
const NODES_MAX: usize = 1 << 20;

type NodeKinds = BTreeMap<ObjectPath, NodeKind>;

impl Documents {
    pub(crate) fn nodes(&self, hierarchy: &Hierarchy) -> Result<NodeKinds> {
        if let Some(root) = self.root(hierarchy)?
            && let Some(consolidated) = &root.group.consolidated
        {
            let nodes = consolidated.iter().map(|(name, text)| {
                let kind = or_unreadable(
                    summary(hierarchy, name, text).map(|found| Some(kind_of(found.is_array))),
                )?;
                Ok((ObjectPath::parse(name)?, kind.unwrap_or(NodeKind::Array)))
            });
            return nodes.collect();
        }
        let mut nodes = NodeKinds::new();
        match self.walk(hierarchy, &ObjectPath::root(), 0, &mut nodes) {
            Ok(()) => Ok(nodes),
            Err(error) if hierarchy.storage.is_remote() && error.is_of_list() => {
                consolidated_v2(hierarchy)?.ok_or_else(|| unnamed(hierarchy, &error))
            }
            Err(error) => Err(error),
        }
    }

    /// The nodes in the directories below the root, even if the root itself is no group.
    pub(super) fn nodes_below_root(&self, hierarchy: &Hierarchy) -> Result<NodeKinds> {
        let mut nodes = NodeKinds::new();
        self.walk_children(hierarchy, &ObjectPath::root(), 0, &mut nodes)?;
        Ok(nodes)
    }

    fn walk(
        &self,
        hierarchy: &Hierarchy,
        path: &ObjectPath,
        depth: usize,
        nodes: &mut NodeKinds,
    ) -> Result<()> {
        let kind = match path.is_root() {
            true => self.kind(hierarchy, path)?,
            false => or_unreadable(self.kind(hierarchy, path))?,
        };
        if let (Some(kind), false) = (kind, path.is_root()) {
            nodes.insert(path.clone(), kind);
        }
        if kind != Some(NodeKind::Group) {
            return Ok(());
        }
        if depth >= WALK_DEPTH_MAX || nodes.len() >= NODES_MAX {
            return Err(Error::new(
                ErrorKind::LimitExceeded,
                format!("{} has too many groups", hierarchy.storage.name()),
            ));
        }
        self.walk_children(hierarchy, path, depth, nodes)
    }

    fn walk_children(
        &self,
        hierarchy: &Hierarchy,
        path: &ObjectPath,
        depth: usize,
        nodes: &mut NodeKinds,
    ) -> Result<()> {
        for entry in hierarchy.storage.list(path)?.into_iter().filter(|entry| entry.is_directory) {
            // A name that is no valid path belongs to no Zarr library.
            if let Ok(child) = path.join(&entry.name) {
                self.walk(hierarchy, &child, depth + 1, nodes)?;
            }
        }
        Ok(())
    }
}

/// Lists a node whose document cannot be read as an array: opening it reports why, and the others
/// are listed.
fn or_unreadable(kind: Result<Option<NodeKind>>) -> Result<Option<NodeKind>> {
    match kind {
        Err(error) if error.is_of_document() => Ok(Some(NodeKind::Array)),
        kind => kind,
    }
}

/// The nodes that the consolidated metadata of v2 name; `None` if there are none.
fn consolidated_v2(hierarchy: &Hierarchy) -> Result<Option<NodeKinds>> {
    let root = ObjectPath::root();
    let name = root.join(ZMETADATA)?;
    let Some(object) = hierarchy.storage.find(&name)? else { return Ok(None) };
    let bytes = read_bytes(hierarchy, &name, &*object)?;
    named_v2(&bytes, &hierarchy.options.limits)
        .map_err(|error| Error::metadata(hierarchy.name_of(&name), error))?
        .into_iter()
        .map(|(path, kind)| Ok((ObjectPath::parse(&path)?, kind)))
        .collect::<Result<_>>()
        .map(Some)
}

/// The paths below the root that the consolidated metadata of v2 name. Only the names are parsed.
fn named_v2(
    bytes: &[u8],
    limits: &Limits,
) -> std::result::Result<Vec<(String, NodeKind)>, MetadataError> {
    let (mut document, [texts]) = json::parse_keeping(bytes, limits, [&["metadata"]])?;
    if let Some(texts) = texts {
        document["metadata"] = texts.into_keys().map(|key| (key, Value::Null)).collect();
    }
    let named = parse_consolidated_v2(&document)?;
    let below = named.into_iter().filter(|(path, _)| !path.is_empty());
    Ok(below.map(|(path, is_array)| (path.to_owned(), kind_of(is_array))).collect())
}

pub(super) fn kind_of(is_array: bool) -> NodeKind {
    if is_array { NodeKind::Array } else { NodeKind::Group }
}

/// The error of a store whose arrays can neither be listed nor are named by metadata.
fn unnamed(hierarchy: &Hierarchy, error: &Error) -> Error {
    let name = hierarchy.storage.name();
    Error::new(
        error.kind(),
        format!(
            "{name}: {error}; it has no consolidated metadata, which would name its arrays: open them by \
             their paths, or consolidate the metadata"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consolidated_metadata_of_v2_are_read_for_their_names_alone() {
        let limits = Limits::default();
        let dense = format!("[{}]", vec!["1"; 1 << 20].join(","));
        let document = format!(
            r#"{{"zarr_consolidated_format": 1, "metadata": {{".zgroup": {{}}, ".zattrs": {{"a": {dense}}},
            "g/.zgroup": 1, "g/t/.zarray": {{"a": 1, "a": 2}}, "g/t/.zattrs": {{"a": [NaN, {dense}]}},
            "u/.zarray": "no document", "v/other": {{}}}}}}"#
        );
        let named = named_v2(document.as_bytes(), &limits).unwrap();
        let expected = [("g", NodeKind::Group), ("g/t", NodeKind::Array), ("u", NodeKind::Array)];
        assert_eq!(named, expected.map(|(path, kind)| (path.to_owned(), kind)));
        for damaged in [
            "",
            "{}",
            r#"{"zarr_consolidated_format": 1}"#,
            r#"{"zarr_consolidated_format": 1, "metadata": []}"#,
            r#"{"zarr_consolidated_format": 1, "metadata": {"a/.zarray": {}, "a/.zarray": {}}}"#,
            r#"{"zarr_consolidated_format": 1, "metadata": {"a/.zarray": {]}}"#,
            r#"{"zarr_consolidated_format": 2, "metadata": {}}"#,
        ] {
            assert!(named_v2(damaged.as_bytes(), &limits).is_err(), "{damaged}");
        }
    }
}
