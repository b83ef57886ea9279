//! Stores whose document another program has rewritten.
//!
//! Such a program keeps attributes and drops what it does not know: the identity of the store, whether
//! there is a log, and the number up to which commits are settled. The arrays' own documents and the
//! log still say the first two, and the stamps of the shards the third, so nothing is lost: commits
//! that are not settled are read, and numbers of commits are never used again.

use bedform_format::ObjectPath;
use bedform_format::metadata::{GroupDocument, LogState, NodeSummary};

use super::documents::{Documents, summary};
use super::hierarchy::Hierarchy;
use super::nodes::NodeKind;
use super::source::{ZarrSource, contained_commit};
use super::state::{ArrayState, load};
use crate::error::{Error, ErrorKind, Result};
use crate::options::{Freshness, OpenOptions};

/// Arrays that are looked at for the identity of their store.
const ARRAYS_MAX: usize = 16;

/// The identity of a store, and what there is of a log.
pub(crate) type LostState = ([u8; 16], LogState);

/// The identity of a store and what there is of a log, where its document no longer says so. Nothing
/// for a store of another program, and for who only reads one without a log, who needs neither, or may
/// not look for one: `group` is what the store's document says now.
///
/// # Errors
/// `Corrupt` for a damaged log or shard; those of storage.
pub(crate) fn lost_state(
    hierarchy: &Hierarchy,
    group: &GroupDocument,
) -> Result<Option<LostState>> {
    let is_writable = hierarchy.options.writable;
    let newest = match (hierarchy.find_root)(&*hierarchy.storage, &hierarchy.options.limits) {
        // Many stores of other programs may be read by all, and listed by nobody.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let others = group.consolidated.iter().flatten();
            let mut others = others.map(|(path, text)| summary(hierarchy, path, text));
            let is_ours = |one: Result<NodeSummary>| Ok::<_, Error>(one?.key_and_shape().is_some());
            let has_ours =
                others.try_fold(false, |any, one| Ok::<_, Error>(any || is_ours(one)?))?;
            if is_writable || has_ours {
                return Err(error);
            }
            return Ok(None);
        }
        newest => newest?,
    };
    if newest.is_none() && !is_writable {
        return Ok(None);
    }
    let limits = hierarchy.options.limits.clone();
    let options = OpenOptions { limits, freshness: Freshness::Open, ..OpenOptions::default() };
    let (storage, find_root) = (hierarchy.storage.clone(), hierarchy.find_root);
    let mut hierarchy = Hierarchy::new(storage, options, find_root);
    hierarchy.documents = Documents::as_stored();
    let hierarchy = &hierarchy;
    let arrays = arrays(hierarchy)?;
    let mut stores = Vec::new();
    for path in arrays.iter().take(ARRAYS_MAX) {
        let identity = load(hierarchy, path).ok().and_then(|state| state.identity().copied());
        stores.extend(identity.map(|identity| identity.store));
    }
    // Beside the store may lie the log of another one that was here before.
    if let Some(newest) = newest.filter(|newest| stores.contains(&newest.store)) {
        let pending = !newest.commits.is_empty();
        let settled = if pending { newest.settled } else { newest.number };
        return Ok(Some((newest.store, LogState { pending, settled })));
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
    Ok(Some((store, LogState { pending: false, settled })))
}

fn arrays(hierarchy: &Hierarchy) -> Result<Vec<ObjectPath>> {
    let nodes = hierarchy.documents.nodes(hierarchy)?.into_iter();
    Ok(nodes.filter(|(_, kind)| *kind == NodeKind::Array).map(|(path, _)| path).collect())
}

/// The last commit that a shard of the array contains.
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
