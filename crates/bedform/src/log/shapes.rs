//! Shapes that commits give to arrays, and their publication.

use std::collections::BTreeMap;
use std::sync::Arc;

use bedform_format::ObjectPath;
use serde_json::json;

use super::array::ArrayHandle;
use super::opened::OpenedStore;
use super::view::RootView;
use crate::error::{Error, ErrorKind, Result};
use crate::zarr::publish::{RootChange, check_key, commit_all};
use crate::zarr::state::ArrayState;
use crate::zarr::together::publish_each;

/// Enlarges `shape` to at least `other` along every axis.
pub(crate) fn enlarge(shape: &mut [u64], other: &[u64]) {
    shape.iter_mut().zip(other).for_each(|(length, other)| *length = (*length).max(*other));
}

/// Publishes the shapes that the commits of `settled` gave to arrays. To be called when these
/// commits are in the shards.
///
/// # Errors
/// Those of storage. Shapes that were published before the error stay.
pub(crate) fn publish_grown(store: &Arc<OpenedStore>, settled: &RootView) -> Result<()> {
    let shapes = settled.shapes()?;
    if shapes.is_empty() {
        return Ok(());
    }
    let by_key = store.shapes_by_key()?;
    let mut arrays = BTreeMap::new();
    for (key, shape) in &shapes {
        let Some((path, stored)) = by_key.get(key) else { continue };
        if stored.iter().zip(shape).any(|(stored, shape)| stored < shape) {
            arrays.insert(path.clone(), (ArrayHandle::open(store.clone(), path.clone())?, shape));
        }
    }
    let _locks = arrays.values().map(|(array, _)| array.lock()).collect::<Result<Vec<_>>>()?;
    // A writer that makes an array smaller holds its lock, too, and waits until no commits are
    // left. If others have settled these commits, they have published the shapes, and an array may
    // be smaller since.
    let (newest, _) = store.newest_root(&store.log_place()?)?;
    if newest.is_none_or(|newest| newest.settled >= settled.root.number) {
        return Ok(());
    }
    let mut changes = Vec::with_capacity(arrays.len());
    for (path, (array, shape)) in &arrays {
        let state = array.reload()?;
        let mut larger = state.metadata.shape.clone();
        enlarge(&mut larger, shape);
        changes.push((path, array.with_shape(&state, &larger)?));
    }
    let changes: Vec<_> = changes.iter().map(|(path, state)| (*path, state)).collect();
    if changes.is_empty() { Ok(()) } else { commit_shapes(store, &changes) }
}

/// Publishes new shapes: first the arrays' documents, then the store's, which makes them visible.
pub(crate) fn commit_shapes(
    store: &OpenedStore,
    changes: &[(&ObjectPath, &ArrayState)],
) -> Result<()> {
    let root = ObjectPath::root();
    let is_alone = changes.iter().any(|(path, _)| path.is_root());
    let _lock = if is_alone { None } else { Some(store.lock(&root)?) };
    // Since the arrays were read, attributes may have changed and arrays may have been deleted:
    // only the shapes are set here.
    let mut documents = Vec::with_capacity(changes.len());
    for (path, state) in changes {
        let known = store.documents.array(store, path)?;
        let mut document = known.document;
        let old = known.metadata.shape.iter();
        if old.zip(&state.metadata.shape).any(|(old, new)| new < old) {
            check_no_commits(store)?;
        }
        if let Some(identity) = state.identity() {
            check_key(store, path, &document, &identity.array)?;
        }
        document["shape"] = json!(state.metadata.shape);
        documents.push(((*path).clone(), document));
    }
    publish_each(store, &documents)?;
    if is_alone {
        return Ok(());
    }
    let added = documents.into_iter().map(|(path, document)| (path, Some(document)));
    commit_all(store, added.collect(), &[], RootChange::default())
}

/// Fails if there are commits that are not settled: they may lie behind the array's new end. While
/// the caller holds the store's lock, no writer makes the first one.
fn check_no_commits(store: &OpenedStore) -> Result<()> {
    store.refresh()?;
    match store.snapshot()?.view {
        Some(view) if view.root.has_commits() => Err(Error::new(
            ErrorKind::SnapshotMoved,
            format!("{} was written to while an array was made smaller", store.storage.name()),
        )),
        _ => Ok(()),
    }
}

/// Fails if commits that are not settled have made an array larger than its metadata say. The
/// caller holds the locks of the arrays, so no writer enlarges them meanwhile.
pub(crate) fn check_not_grown(store: &OpenedStore, arrays: &[&ArrayHandle]) -> Result<()> {
    store.refresh()?;
    let Some(view) = store.snapshot()?.view else { return Ok(()) };
    for array in arrays {
        let state = array.reload()?;
        let key = state.identity().map(|identity| identity.array);
        let grown = key.map(|key| view.shape_of(&key)).transpose()?.flatten();
        let is_larger = grown.is_some_and(|grown| {
            grown.iter().zip(&state.metadata.shape).any(|(grown, stored)| grown > stored)
        });
        if is_larger {
            return Err(Error::new(
                ErrorKind::SnapshotMoved,
                format!("a commit has made {} larger meanwhile", array.name()),
            ));
        }
    }
    Ok(())
}
