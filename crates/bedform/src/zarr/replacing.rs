//! Atomic replacement of one group of a store by another.
//!
//! 1. The new group is complete, in a hidden directory.
//! 2. The store's document gets a note (`replacing`) with the documents of the new group, beside
//!    those of the old one.
//! 3. The two directories change places, in one step. From now on the new group counts.
//! 4. The store's document names the new group only.
//!
//! A reader of a document with a note looks at the directory: an array there under its new key
//! shows that step 3 has happened. So a reader, or a writer after a crash, finds the old group or
//! the new one, whole. The next change of the store's document drops the note.
//!
//! Log commits over the old arrays no longer apply, as after a deletion: they name arrays by their
//! keys.

use bedform_format::ObjectPath;
use bedform_format::json::{JsonText, Texts};
use bedform_format::metadata::{GroupDocument, NodeSummary, Replacing, write_group};
use bedform_storage::TreePublication;
use serde_json::{Map, Value};

use super::documents::{ZARR_JSON, publish, read, summary};
use super::hierarchy::Hierarchy;
use super::publish::{NodeUpdate, RootChange, commit, commit_all, note_replacing, store_key};
use crate::error::Result;
use crate::publication::StagedTree;

/// Levels of a store's document above the documents of a new group.
const DEPTH: usize = 4;

/// Gives `group` the documents that count: those of the new group once it has taken the old one's
/// place.
///
/// # Errors
/// Those of reading the documents of arrays.
pub(super) fn resolve(hierarchy: &Hierarchy, group: &mut GroupDocument) -> Result<()> {
    let Some(replacing) = &group.replacing else { return Ok(()) };
    let Some(consolidated) = &mut group.consolidated else { return Ok(()) };
    let path = ObjectPath::parse(&replacing.group)?;
    if !has_happened(hierarchy, replacing, &path, consolidated)? {
        return Ok(());
    }
    consolidated.retain(|name, _| !is_within(name, &path));
    for (name, document) in &replacing.metadata {
        consolidated.insert(below(&path, name)?.as_str().to_owned(), document.clone());
    }
    Ok(())
}

fn is_within(name: &str, group: &ObjectPath) -> bool {
    ObjectPath::parse(name).is_ok_and(|name| name.is_within(group))
}

fn below(group: &ObjectPath, name: &str) -> Result<ObjectPath> {
    Ok(if name.is_empty() { group.clone() } else { group.join(name)? })
}

/// True once the directories have changed places.
fn has_happened(
    hierarchy: &Hierarchy,
    replacing: &Replacing,
    group: &ObjectPath,
    old: &Texts,
) -> Result<bool> {
    for (name, text) in &replacing.metadata {
        if let Some(key) = summary(hierarchy, name, text)?.key {
            let stored = read(hierarchy, &below(group, name)?, ZARR_JSON)?;
            let found = stored.and_then(|stored| NodeSummary::of_value(&stored.document).key);
            return Ok(found == Some(key));
        }
    }
    // A new group without arrays: look whether those of the old one are gone.
    match array_within(hierarchy, old, group)? {
        Some(name) => Ok(read(hierarchy, &ObjectPath::parse(name)?, ZARR_JSON)?.is_none()
            && read(hierarchy, group, ZARR_JSON)?.is_some()),
        None => Ok(false),
    }
}

/// The name of an array within `group`, if there is one.
fn array_within<'a>(
    hierarchy: &Hierarchy,
    documents: &'a Texts,
    group: &ObjectPath,
) -> Result<Option<&'a str>> {
    for (name, text) in documents.iter().filter(|(name, _)| is_within(name, group)) {
        if summary(hierarchy, name, text)?.is_array {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Puts the staged tree, with arrays of these names and documents, in the place of its target
/// group. The caller holds the locks of the arrays below it, and the store's.
///
/// # Errors
/// Those of storage: the old group stays, unless the kind is `Poisoned`.
pub(crate) fn replace_group(
    hierarchy: &Hierarchy,
    staged: &StagedTree,
    attributes: &Map<String, Value>,
    arrays: Map<String, Value>,
) -> Result<()> {
    let group = staged.target();
    let document = write_group(&store_key(hierarchy)?, attributes, None);
    let has_arrays = !arrays.is_empty();
    let mut documents = arrays;
    documents.insert(String::new(), document.clone());
    let metadata = documents.iter().map(|(name, one)| (name.clone(), JsonText::of(one, DEPTH)));
    let replacing = Replacing { group: group.as_str().to_owned(), metadata: metadata.collect() };
    publish(hierarchy, &staged.tree()?, document.clone())?;
    if !note_replacing(hierarchy, &replacing, |old| {
        Ok(has_arrays || array_within(hierarchy, old, group)?.is_some())
    })? {
        // Neither group has arrays: they differ in one document.
        publish(hierarchy, group, document)?;
        return commit(hierarchy, std::slice::from_ref(group), &[]);
    }
    let exchanged = staged.publish(TreePublication::Exchange, hierarchy.options.durability);
    hierarchy.documents.note_published(group);
    if let Err(error) = exchanged {
        // The old group counts, even with the note.
        let _ = commit(hierarchy, &[], &[]);
        return Err(error);
    }
    let added: Vec<NodeUpdate> = documents
        .into_iter()
        .map(|(name, document)| Ok((below(group, &name)?, Some(document))))
        .collect::<Result<_>>()?;
    // The exchange has happened: the note says so until the store's document next changes.
    let _ = commit_all(hierarchy, added, std::slice::from_ref(group), RootChange::default());
    Ok(())
}
