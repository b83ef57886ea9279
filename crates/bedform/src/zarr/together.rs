//! Arrays that are created together: first their documents are written, still invisible. Then the
//! store's document makes them all visible at once.

use std::collections::BTreeSet;
use std::ops::Range;

use bedform_format::ObjectPath;
use bedform_format::metadata::{Identity, LogState};
use bedform_storage::{Durability, Version};
use serde_json::Value;

use super::documents::{ZARR_JSON, publish, publish_at};
use super::hierarchy::Hierarchy;
use super::new_array::NewArray;
use super::publish::{
    RootChange, check_free, check_new, commit_all, exists, random_key, store_key,
};
use crate::error::{Error, ErrorKind, Result};
use crate::threads::ordered::map_in_threads;

/// Threads that create arrays where each is made durable separately: they wait for the device, not
/// for a core.
const CREATE_THREADS: usize = 16;
/// From so many arrays on, one call makes all documents durable, if the storage has such a call.
const SYNCED_TOGETHER_MIN: usize = 4;

/// Creates an array; returns its document.
///
/// # Errors
/// As `Store::create_array`.
pub(crate) fn create_one(
    hierarchy: &Hierarchy,
    path: &ObjectPath,
    new: &NewArray,
) -> Result<Value> {
    hierarchy.check_writable()?;
    check_new(hierarchy, path, &new.attributes)?;
    let _lock = hierarchy.lock(&ObjectPath::root())?;
    let new = NewArrayBatch::new(hierarchy, &[(path.clone(), new.clone())])?;
    new.write(hierarchy, 0..1)?;
    new.commit(hierarchy, None)?;
    let document = new.arrays.into_iter().next().map(|(_, document)| document);
    document.ok_or_else(|| exists(hierarchy, path))
}

/// Threads that write documents: more than cores, because the device syncs many at once.
fn threads(hierarchy: &Hierarchy) -> usize {
    if hierarchy.options.threads == Some(1) { 1 } else { CREATE_THREADS }
}

/// Publishes documents in the place of existing ones, each atomically and durable on return.
///
/// # Errors
/// Those of storage: some documents are then published, and some are not.
pub(crate) fn publish_each(hierarchy: &Hierarchy, documents: &[(ObjectPath, Value)]) -> Result<()> {
    let put = |(path, document): &(ObjectPath, Value)| publish(hierarchy, path, document.clone());
    map_in_threads(threads(hierarchy), documents, put).map(drop)
}

/// Arrays that become visible at once.
#[derive(Debug)]
pub(crate) struct NewArrayBatch {
    arrays: Vec<(ObjectPath, Value)>,
    keys: Vec<[u8; 16]>,
    /// True if one call makes all documents durable; otherwise each is made so separately.
    is_synced_together: bool,
}

impl NewArrayBatch {
    /// Prepares the documents of arrays without writing anything.
    ///
    /// # Errors
    /// As `Store::create_arrays`. Names that are free now may be taken when they are written.
    pub(crate) fn new(hierarchy: &Hierarchy, arrays: &[(ObjectPath, NewArray)]) -> Result<Self> {
        check_apart(arrays.iter().map(|(path, _)| path))?;
        let store = store_key(hierarchy)?;
        let root = hierarchy.documents.root(hierarchy)?;
        let taken = root.as_ref().and_then(|root| root.group.consolidated.as_ref());
        let mut keys = Vec::with_capacity(arrays.len());
        let document = |(path, new): &(ObjectPath, NewArray)| {
            check_new(hierarchy, path, &new.attributes)?;
            if path.is_root() || taken.is_some_and(|taken| taken.contains_key(path.as_str())) {
                return Err(exists(hierarchy, path));
            }
            let identity = Identity { store, array: random_key()? };
            keys.push(identity.array);
            Ok((path.clone(), new.document(identity, hierarchy, path)?))
        };
        let arrays = arrays.iter().map(document).collect::<Result<Vec<_>>>()?;
        let is_synced_together =
            arrays.len() >= SYNCED_TOGETHER_MIN && hierarchy.can_sync_together();
        Ok(Self { arrays, keys, is_synced_together })
    }

    /// The arrays' keys, in their order.
    pub(crate) fn keys(&self) -> &[[u8; 16]] {
        &self.keys
    }

    /// The arrays' paths, in their order.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &ObjectPath> {
        self.arrays.iter().map(|(path, _)| path)
    }

    /// How many arrays there are.
    pub(crate) fn len(&self) -> usize {
        self.arrays.len()
    }

    /// Writes the documents of some of the arrays, and returns their versions, in order. The caller
    /// holds the store's lock.
    ///
    /// # Errors
    /// `Exists` if something visible has such a name; those of storage.
    pub(crate) fn write(&self, hierarchy: &Hierarchy, part: Range<usize>) -> Result<Vec<Version>> {
        let (durability, threads) = match self.is_synced_together {
            true => (Durability::Process, 1),
            false => (hierarchy.options.durability, threads(hierarchy)),
        };
        map_in_threads(threads, &self.arrays[part], |(path, document)| {
            check_free(hierarchy, path)?;
            publish_at(hierarchy, path, document.clone(), durability)
        })
    }

    /// Makes all documents durable that are not so yet.
    ///
    /// # Errors
    /// Those of storage.
    pub(crate) fn sync(&self, hierarchy: &Hierarchy) -> Result<()> {
        if !self.is_synced_together {
            return Ok(());
        }
        let paths: Vec<ObjectPath> = self.arrays.iter().map(|(path, _)| path.clone()).collect();
        Ok(hierarchy.storage.sync_all(&paths)?()?)
    }

    /// Fails if another writer has changed the documents since they were written, in `versions`.
    /// The caller holds the store's lock.
    ///
    /// # Errors
    /// `Conflict`; those of storage.
    pub(crate) fn check_untouched(
        &self,
        hierarchy: &Hierarchy,
        versions: &[Version],
    ) -> Result<()> {
        for ((path, _), version) in self.arrays.iter().zip(versions) {
            if !hierarchy.storage.is_current(&path.join(ZARR_JSON)?, version)? {
                return Err(Error::new(
                    ErrorKind::Conflict,
                    format!("another writer has created {} meanwhile", hierarchy.name_of(path)),
                ));
            }
        }
        Ok(())
    }

    /// Makes the arrays visible, and records `log` as the state of the log, if given. Atomic,
    /// durable on return. The caller holds the store's lock.
    ///
    /// # Errors
    /// Those of storage; then none of the arrays is visible.
    pub(crate) fn commit(&self, hierarchy: &Hierarchy, log: Option<LogState>) -> Result<()> {
        let added = self.arrays.iter().cloned().map(|(path, document)| (path, Some(document)));
        commit_all(hierarchy, added.collect(), &[], RootChange { log, ..RootChange::default() })
    }

    /// Removes the documents of arrays that were not committed, except those that another writer
    /// has replaced. The caller holds the store's lock.
    pub(crate) fn discard(&self, hierarchy: &Hierarchy, versions: &[Version]) {
        for ((path, _), version) in self.arrays.iter().zip(versions) {
            let own = path.join(ZARR_JSON).ok();
            let is_ours =
                own.is_some_and(|own| hierarchy.storage.is_current(&own, version).unwrap_or(false));
            if is_ours {
                // The rest is invisible, and is removed when the name is used again.
                let _ = hierarchy.storage.delete_tree(path, Durability::Process);
            }
        }
    }
}

/// Fails if a path is given twice, or lies inside another.
fn check_apart<'a>(paths: impl Iterator<Item = &'a ObjectPath> + Clone) -> Result<()> {
    let mut all = BTreeSet::new();
    if let Some(twice) = paths.clone().find(|path| !all.insert(*path)) {
        return Err(Error::invalid(format!("{twice:?} is given twice")));
    }
    for path in paths {
        let mut parent = path.parent();
        while !parent.is_root() {
            if all.contains(&parent) {
                return Err(Error::invalid(format!(
                    "{path:?} would lie inside the array {parent:?}"
                )));
            }
            parent = parent.parent();
        }
    }
    Ok(())
}
