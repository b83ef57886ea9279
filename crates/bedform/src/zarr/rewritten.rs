//! Stores whose document another program has rewritten.
//!
//! Such a program keeps attributes and drops keys that it does not know: the store's identity,
//! whether there is a log, and the number of the last settled commit. The arrays' own documents and
//! the log still hold the first two, and the stamps of the shards the third. So nothing is lost:
//! unsettled commits are read, and numbers of commits are never used again.

use std::collections::BTreeMap;

use bedform_format::ObjectPath;
use bedform_format::metadata::{GroupDocument, LogState};

use super::documents::{Documents, summary};
use super::hierarchy::Hierarchy;
use super::nodes::NodeKind;
use super::source::{ZarrSource, contained_commit};
use super::state::{ArrayState, load};
use crate::error::{ErrorKind, Result};
use crate::options::{Freshness, OpenOptions};

/// The most arrays whose documents are searched for the identity of their store.
const ARRAYS_MAX: usize = 16;

/// The identity of a store and the state of its log.
pub(crate) type RecoveredState = ([u8; 16], LogState);

/// Recovers the identity of a store and the state of its log, where its document no longer has
/// them. `group` is the store's document as it is now. Returns `None` for a store of another
/// program, and for a read-only store without a log, or with a log that this user may not look for.
///
/// # Errors
/// `Corrupt` for a damaged log or shard; those of storage.
pub(crate) fn lost_state(
    hierarchy: &Hierarchy,
    group: &GroupDocument,
) -> Result<Option<RecoveredState>> {
    let is_writable = hierarchy.options.writable;
    let newest = match (hierarchy.find_root)(&*hierarchy.storage, &hierarchy.options.limits) {
        // Many stores of other programs are public to read and closed to listing.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return match is_writable || names_ours(hierarchy, group)? {
                true => Err(error),
                false => Ok(None),
            };
        }
        newest => newest?,
    };
    if newest.is_none() && !is_writable {
        return Ok(None);
    }
    let hierarchy = &as_stored(hierarchy);
    let arrays = arrays(hierarchy.documents.nodes(hierarchy)?);
    let stores = stores_of(hierarchy, &arrays);
    // The log beside the store may belong to an earlier store in the same place.
    if let Some(newest) = newest.filter(|newest| stores.contains(&newest.store)) {
        let pending = newest.has_commits();
        let settled = if pending { newest.settled } else { newest.number };
        return Ok(Some((newest.store, LogState { pending, kept: !pending, settled })));
    }
    let Some(store) = stores.first().filter(|_| is_writable).copied() else {
        return Ok(None);
    };
    let mut settled = 0;
    for path in &arrays {
        let Ok(state) = load(hierarchy, path) else { continue };
        if state.identity().is_some_and(|identity| identity.store == store) {
            settled = settled.max(last_stamp(hierarchy, path, &state)?);
        }
    }
    Ok(Some((store, LogState::all_settled(settled))))
}

/// True if the consolidated metadata name an array that Bedform made.
fn names_ours(hierarchy: &Hierarchy, group: &GroupDocument) -> Result<bool> {
    for (path, text) in group.consolidated.iter().flatten() {
        if summary(hierarchy, path, text)?.key_and_shape().is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// True if the array at the root, or one below it, says that it belongs to `store`.
///
/// # Errors
/// Those of storage.
pub(crate) fn has_array_of(hierarchy: &Hierarchy, store: &[u8; 16]) -> Result<bool> {
    let hierarchy = &as_stored(hierarchy);
    let mut paths = vec![ObjectPath::root()];
    paths.extend(arrays(hierarchy.documents.nodes_below_root(hierarchy)?));
    Ok(stores_of(hierarchy, &paths).contains(store))
}

/// The same hierarchy with its documents as they are stored, without recovered state.
fn as_stored(hierarchy: &Hierarchy) -> Hierarchy {
    let limits = hierarchy.options.limits.clone();
    let options = OpenOptions { limits, freshness: Freshness::Open, ..OpenOptions::default() };
    let (storage, find_root) = (hierarchy.storage.clone(), hierarchy.find_root);
    let mut hierarchy = Hierarchy::new(storage, options, find_root);
    hierarchy.documents = Documents::as_stored();
    hierarchy
}

/// The stores to which the first of `arrays` say they belong.
fn stores_of(hierarchy: &Hierarchy, arrays: &[ObjectPath]) -> Vec<[u8; 16]> {
    let identity = |path| load(hierarchy, path).ok().and_then(|state| state.identity().copied());
    let identities = arrays.iter().take(ARRAYS_MAX).filter_map(identity);
    identities.map(|identity| identity.store).collect()
}

fn arrays(nodes: BTreeMap<ObjectPath, NodeKind>) -> Vec<ObjectPath> {
    let arrays = nodes.into_iter().filter(|(_, kind)| *kind == NodeKind::Array);
    arrays.map(|(path, _)| path).collect()
}

/// The last commit that any shard of the array contains.
fn last_stamp(hierarchy: &Hierarchy, path: &ObjectPath, state: &ArrayState) -> Result<u64> {
    if state.shard().is_none() {
        return Ok(0);
    }
    let source = ZarrSource { hierarchy, path, state };
    let mut last = 0;
    for coordinates in source.existing()? {
        if let Some(object) = source.open_object(&coordinates)? {
            let (index, _) = source.read_index(&coordinates, &*object, &|| ())?;
            last = last.max(contained_commit(&index));
        }
    }
    Ok(last)
}
