//! The arrays that a commit touches: their locks, the checks of their shapes, and their growth.
//!
//! Other writers may enlarge, shrink or delete an array while a session writes to it. Under the
//! locks of the arrays that a commit enlarges, two growths add up, and an append that another one
//! overtook is a `Conflict`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_format::log::{Directory, Root, TouchedArray};
use bedform_storage::{Lock, Version};

use super::{Coordinator, OpenedStore, PreparedCommit, enlarge};
use crate::error::Result;
use crate::log::view::RootView;
use crate::zarr::hierarchy::ShapesByKey;

/// Number of arrays grown by one commit from which on their lock files stay until the session ends.
const LOCKS_KEPT_MIN: usize = 16;

/// Paths and shapes of the store's arrays by array key, cached for one version of the root
/// document. They are read again only when that version has changed.
#[derive(Debug, Default)]
pub(super) struct DocumentShapes {
    version: Option<Version>,
    by_key: Arc<ShapesByKey>,
}

impl DocumentShapes {
    /// Returns the paths and shapes in the store's current document. A caller that relies on the
    /// shapes holds a lock that keeps the document from changing.
    fn now(&mut self, store: &OpenedStore) -> Result<Arc<ShapesByKey>> {
        let root = store.documents.read_root(store)?;
        let version = root.map(|root| root.version.clone());
        if version.is_none() || self.version != version {
            self.by_key = Arc::new(store.shapes_by_key()?);
            self.version = version;
        }
        Ok(self.by_key.clone())
    }
}

/// Axes along which a session appends, by array key and axis index, with the length before the
/// append.
#[derive(Debug, Default)]
pub(in crate::log) struct AppendedAxes(BTreeMap<([u8; 16], usize), u64>);

impl AppendedAxes {
    /// Records the axes along which `shape` exceeds `base`: an array is appended to there. Of
    /// several lengths before the append the smallest is kept.
    pub(in crate::log) fn note(&mut self, key: [u8; 16], shape: &[u64], base: &[u64]) {
        for (axis, (length, base)) in shape.iter().zip(base).enumerate() {
            if base < length {
                let known = self.0.entry((key, axis)).or_insert(*base);
                *known = (*known).min(*base);
            }
        }
    }

    /// True if an append to the array started at another length than that of `now`, its shape.
    fn is_overtaken(&self, key: [u8; 16], now: &[u64]) -> bool {
        now.iter()
            .enumerate()
            .any(|(axis, length)| self.0.get(&(key, axis)).is_some_and(|base| base != length))
    }
}

impl Coordinator<'_> {
    /// Locks the arrays that the commit enlarges. Direct appends take the same locks.
    pub(super) fn lock_grown(&mut self, directory: &Directory) -> Result<Vec<Box<dyn Lock>>> {
        if directory.grown.is_empty() {
            return Ok(Vec::new());
        }
        let store = &self.member.store;
        let by_key = self.state.shapes.now(store)?;
        let arrays = directory.grown.iter().filter_map(|array| by_key.get(&array.key));
        let mut paths: Vec<&ObjectPath> = arrays.map(|(path, _)| path).collect();
        // Always in the order of paths, so that two writers cannot deadlock.
        paths.sort_unstable();
        let mut locks = Vec::with_capacity(paths.len());
        for path in paths {
            let mut lock = store.lock(path)?;
            if directory.grown.len() >= LOCKS_KEPT_MIN {
                // Creating and removing many lock files in each commit costs much more than
                // locking.
                lock.keep_lock_file();
                self.state.locked.insert(path.clone());
            }
            locks.push(lock);
        }
        Ok(locks)
    }

    /// Sets the base shape of each growing array to its current shape. The caller holds the locks
    /// of these arrays.
    ///
    /// # Errors
    /// `Conflict` if an array was deleted or made smaller, or another writer has appended along the
    /// same axis.
    pub(super) fn settle_growth(&mut self, commit: &mut PreparedCommit) -> Result<()> {
        let PreparedCommit { directory, appended, .. } = commit;
        if directory.grown.is_empty() {
            return Ok(());
        }
        let Self { state, member } = self;
        let store = &member.store;
        let keys: Vec<_> = directory.grown.iter().map(|array| array.key).collect();
        // Growth that others settle meanwhile is in the documents.
        let shapes = store.in_one_snapshot(|| {
            let (newest, _) = store.newest_root(&member.log)?;
            let view = newest.map(|newest| member.view_of(newest));
            let by_key = state.shapes.now(store)?;
            keys.iter().map(|key| shape_in(&by_key, view.as_ref(), key)).collect::<Result<Vec<_>>>()
        })?;
        for (array, now) in directory.grown.iter_mut().zip(shapes) {
            let Some(now) = now.filter(|now| now.len() == array.shape.len()) else {
                return Err(member.conflict("an array was deleted"));
            };
            if now.iter().zip(&array.base).any(|(now, base)| now < base) {
                return Err(member.conflict("another writer has made an array smaller"));
            }
            let is_taken = match appended {
                Some(appended) => appended.is_overtaken(array.key, &now),
                None => (0..now.len()).any(|axis| {
                    array.base[axis] < array.shape[axis] && array.base[axis] < now[axis]
                }),
            };
            if is_taken {
                return Err(member.conflict("another writer has appended to an array"));
            }
            enlarge(&mut array.shape, &now);
            array.base = now;
        }
        directory.grown.retain(|array| array.base != array.shape);
        Ok(())
    }

    /// Fails if an array that the commit touches is gone or too small. Growth by `newest`, the
    /// preceding root, and by the commit itself counts.
    pub(super) fn check_arrays(
        &mut self,
        newest: Option<Arc<Root>>,
        directory: &Directory,
    ) -> Result<()> {
        let Self { state, member } = self;
        let by_key = state.shapes.now(&member.store)?;
        let view = newest.map(|newest| member.view_of(newest));
        let grown: HashMap<_, _> =
            directory.grown.iter().map(|array| (&array.key, &array.shape)).collect();
        let touched = directory.sections.iter().flat_map(|section| &section.arrays);
        for TouchedArray { key, end, .. } in touched {
            let fits = |shape: &Vec<u64>| {
                shape.len() == end.len() && end.iter().zip(shape).all(|(e, n)| e <= n)
            };
            let stored = by_key.get(key).map(|(_, shape)| shape);
            let is_there = stored.is_some()
                && (stored.is_some_and(fits)
                    || grown.get(key).is_some_and(|shape| fits(shape))
                    || shape_in(&by_key, view.as_ref(), key)?.is_some_and(|shape| fits(&shape)));
            if !is_there {
                return Err(member.conflict("an array was deleted or made smaller"));
            }
        }
        Ok(())
    }
}

/// Returns the shape of an array after the commits of a root.
fn shape_in(
    by_key: &ShapesByKey,
    view: Option<&RootView>,
    key: &[u8; 16],
) -> Result<Option<Vec<u64>>> {
    let Some((_, shape)) = by_key.get(key) else { return Ok(None) };
    let mut shape = shape.clone();
    if let Some(grown) = view.map(|view| view.shape_of(key)).transpose()?.flatten() {
        enlarge(&mut shape, &grown);
    }
    Ok(Some(shape))
}
