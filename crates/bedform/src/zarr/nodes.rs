//! What a store has: by its consolidated metadata, by a walk through its directories, or, where a server
//! lists nothing, by the consolidated metadata of v2.

use std::collections::BTreeMap;

use bedform_format::metadata::parse_consolidated_v2;
use bedform_format::{ObjectPath, json};
use bedform_storage::StorageExt as _;
use serde_json::Value;

use super::documents::{Documents, read_bytes, summary};
use super::hierarchy::Hierarchy;
use crate::error::{Error, ErrorKind, Result};

/// What lies at a path of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// An array.
    Array,
    /// A group.
    Group,
}

/// The consolidated metadata of v2.
const ZMETADATA: &str = ".zmetadata";
/// Groups within groups that a walk looks into.
const WALK_DEPTH_MAX: usize = 32;
/// Nodes that a walk lists.
const NODES_MAX: usize = 1 << 20;

type Nodes = BTreeMap<ObjectPath, NodeKind>;

impl Documents {
    pub(crate) fn nodes(&self, hierarchy: &Hierarchy) -> Result<Nodes> {
        if let Some(root) = self.root(hierarchy)?
            && let Some(consolidated) = &root.group.consolidated
        {
            let nodes = consolidated.iter().map(|(name, text)| {
                let is_array = summary(hierarchy, name, text)?.is_array;
                Ok((ObjectPath::parse(name)?, kind_of(is_array)))
            });
            return nodes.collect();
        }
        let mut nodes = Nodes::new();
        match self.walk(hierarchy, &ObjectPath::root(), 0, &mut nodes) {
            Ok(()) => Ok(nodes),
            Err(error) if hierarchy.storage.is_remote() && error.is_of_list() => {
                consolidated_v2(hierarchy)?.ok_or_else(|| unnamed(hierarchy, &error))
            }
            Err(error) => Err(error),
        }
    }

    /// What lies in the root's directories, whatever the root itself is.
    pub(super) fn nodes_below_root(&self, hierarchy: &Hierarchy) -> Result<Nodes> {
        let mut nodes = Nodes::new();
        self.walk_children(hierarchy, &ObjectPath::root(), 0, &mut nodes)?;
        Ok(nodes)
    }

    fn walk(
        &self,
        hierarchy: &Hierarchy,
        path: &ObjectPath,
        depth: usize,
        nodes: &mut Nodes,
    ) -> Result<()> {
        let kind = self.kind(hierarchy, path)?;
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
        nodes: &mut Nodes,
    ) -> Result<()> {
        for entry in hierarchy.storage.list(path)?.into_iter().filter(|entry| entry.is_directory) {
            // A name that is no valid path cannot be ours or another Zarr library's.
            if let Ok(child) = path.join(&entry.name) {
                self.walk(hierarchy, &child, depth + 1, nodes)?;
            }
        }
        Ok(())
    }
}

/// What the consolidated metadata of v2 name; nothing if there are none.
fn consolidated_v2(hierarchy: &Hierarchy) -> Result<Option<Nodes>> {
    let root = ObjectPath::root();
    let name = root.join(ZMETADATA)?;
    let Some(object) = hierarchy.storage.find(&name)? else { return Ok(None) };
    let bytes = read_bytes(hierarchy, &name, &*object)?;
    let fail = |error| Error::metadata(hierarchy.name_of(&name), error);
    // Nothing but the names is looked at.
    let limits = &hierarchy.options.limits;
    let (mut document, [texts]) =
        json::parse_keeping(&bytes, limits, [&["metadata"]]).map_err(|error| fail(error.into()))?;
    if let Some(texts) = texts {
        document["metadata"] = texts.into_keys().map(|key| (key, Value::Null)).collect();
    }
    let named = parse_consolidated_v2(&document).map_err(fail)?;
    let nodes = named.into_iter().filter(|(path, _)| !path.is_empty());
    let nodes = nodes.map(|(path, is_array)| Ok((ObjectPath::parse(path)?, kind_of(is_array))));
    nodes.collect::<Result<_>>().map(Some)
}

pub(super) fn kind_of(is_array: bool) -> NodeKind {
    if is_array { NodeKind::Array } else { NodeKind::Group }
}

/// The error of a store whose arrays nobody names.
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
