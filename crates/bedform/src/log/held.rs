//! Stores held at one moment: all arrays, groups and attributes as one commit left them.
//!
//! A moment is the document of the store's root together with the newest root of its log, both
//! current at the same time. Every change by Bedform leads to one of the two. A commit is a root;
//! the document publishes created, deleted and changed arrays; the stamp of a shard names the last
//! commit in it. Files without such a number are judged by their time: see
//! [`SnapshotMoment`](crate::zarr::held::SnapshotMoment). A snapshot keeps no data: if data that it needs were
//! replaced, a read fails with `SnapshotMoved`.

use std::path::Path;
use std::sync::Arc;

use bedform_format::log::Root;
use bedform_format::metadata::LogState;
use serde_json::{Value, json};

use super::opened::OpenedStore;
use super::place::SUFFIX;
use super::snapshot::Snapshot;
use crate::error::{Error, ErrorKind, Result};
use crate::options::{Freshness, OpenOptions};
use crate::prefetch::HandleReads;
use crate::zarr::documents::GroupState;
use crate::zarr::held::SnapshotMoment;
use crate::zarr::hierarchy::Hierarchy;

/// Attempts to find a moment while others commit.
const ATTEMPTS_MAX: usize = 100;

impl OpenedStore {
    /// Returns a read-only handle on the store as of now. It works as long as the data of this
    /// moment exist.
    ///
    /// # Errors
    /// `Conflict` if others never stop committing; those of reading documents and roots.
    pub(crate) fn hold(&self) -> Result<Self> {
        let mut fresh = self.read_only(Freshness::Read);
        let Hierarchy { options, follows, .. } = &mut fresh.hierarchy;
        *follows = HandleReads::of_snapshot(self.follows.as_deref(), options);
        if let Some(SnapshotMoment { root, since_ns, .. }) = &self.held {
            fresh.hold_at(root.clone(), *since_ns, self.snapshot()?);
            return Ok(fresh);
        }
        // The settled commits at the time `since_ns`. If more were settled after it, the snapshot
        // would take their shards for later ones.
        let settled = |snapshot: &Snapshot| {
            let root = snapshot.view.as_ref().map(|view| view.root.clone());
            root.map(|root| (root.settled, root.settled_shards.clone()))
        };
        let (mut first, mut since_ns) = (settled(&fresh.snapshot()?), fresh.storage.now()?);
        for _ in 0..ATTEMPTS_MAX {
            let before = fresh.snapshot()?;
            let root = fresh.documents.root(&fresh)?;
            let snapshot = fresh.snapshot()?;
            let after = fresh.documents.root(&fresh)?;
            // Numbers of commits only grow: one that was the newest twice was so in between.
            let version =
                |root: &Option<Arc<GroupState>>| root.as_ref().map(|root| root.version.clone());
            if settled(&snapshot) != first {
                (first, since_ns) = (settled(&snapshot), fresh.storage.now()?);
                continue;
            }
            if before.number == snapshot.number && version(&root) == version(&after) {
                fresh.hold_at(root, since_ns, snapshot);
                return Ok(fresh);
            }
        }
        let text = format!("{} keeps changing; try again", self.storage.name());
        Err(Error::new(ErrorKind::Conflict, text))
    }

    /// Returns the moment of a held store as JSON, from which [`OpenedStore::open_held`] opens it
    /// elsewhere; `None` if the store is not held.
    ///
    /// # Errors
    /// As [`GroupState::bytes`].
    pub(crate) fn held_as_json(&self) -> Result<Option<Value>> {
        let Some((held, pinned)) = self.held.as_ref().zip(self.pinned.as_ref()) else {
            return Ok(None);
        };
        let document = match &held.root {
            Some(root) => Value::from(String::from_utf8_lossy(&root.bytes()?).into_owned()),
            None => Value::Null,
        };
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        // The root is included, since later commits remove it from the log.
        let root = pinned.view.as_ref().map(|view| view.root.encode(&self.options.limits));
        let root = root.transpose().map_err(|error| Error::invalid(error.to_string()))?;
        Ok(Some(json!({
            "commit": pinned.number,
            "since_ns": held.since_ns,
            "document": document,
            "root": root.map(text),
        })))
    }

    /// Opens the store at `path` as of a moment that [`OpenedStore::held_as_json`] returned.
    ///
    /// # Errors
    /// Those of opening; `InvalidArgument` for an invalid moment; `SnapshotMoved` if its commits
    /// are no longer there.
    pub(crate) fn open_held(path: &Path, options: OpenOptions, moment: &Value) -> Result<Self> {
        let options = OpenOptions { writable: false, ..options };
        let mut store = Self::open_path(path, options)?.read_only(Freshness::Read);
        let bad = || Error::invalid("not a moment of a store, as a snapshot gives it");
        let number = moment.get("commit").and_then(Value::as_u64).ok_or_else(bad)?;
        let since_ns = moment.get("since_ns").and_then(Value::as_i64).ok_or_else(bad)?;
        let root = match moment.get("document") {
            Some(Value::String(document)) => {
                Some(Arc::new(GroupState::from_bytes(&store, document.as_bytes())?))
            }
            _ => None,
        };
        let now = store.documents.root(&store)?.and_then(|root| root.group.store);
        let then = root.as_ref().and_then(|root| root.group.store);
        if now != then {
            return Err(SnapshotMoment::gone(&store.storage.name()));
        }
        let log = root.as_ref().map_or_else(LogState::default, |root| root.group.log);
        let newest = moment
            .get("root")
            .and_then(Value::as_str)
            .map(|text| Root::decode(text.as_bytes(), &store.options.limits).map_err(|_| bad()));
        let newest = newest.transpose()?.filter(|root| then == Some(root.store));
        let snapshot = match newest {
            Some(newest) => store.pinned(Arc::new(newest), store.log_place()?),
            None if log.pending => return Err(settled(&store, number)),
            None => Snapshot::all_settled(number, then),
        };
        store.hold_at(root, since_ns, snapshot);
        Ok(store)
    }

    /// Returns another handle on the store, with nothing cached.
    fn read_only(&self, freshness: Freshness) -> Self {
        let options = OpenOptions { writable: false, freshness, ..self.options.clone() };
        Self::new(self.storage.clone(), options, self.outer.clone())
    }

    fn hold_at(&mut self, root: Option<Arc<GroupState>>, since_ns: i64, snapshot: Snapshot) {
        let kept = self.storage.sibling(SUFFIX).ok().filter(|_| !self.storage.is_remote());
        self.hierarchy.options.freshness = Freshness::Never;
        self.hierarchy.held = Some(SnapshotMoment { root, since_ns, kept });
        self.pinned = Some(Snapshot { is_held: true, ..snapshot });
    }

    /// Turns the `error` of a held store whose data have moved on into `SnapshotMoved`. (If the log
    /// is damaged instead, the next snapshot says so.)
    pub(crate) fn moved_on(&self, error: Error) -> Error {
        let Some(pinned) = &self.pinned else { return error };
        if !matches!(error.kind(), ErrorKind::SnapshotMoved | ErrorKind::Conflict) {
            return error;
        }
        let number = pinned.number;
        let text = format!("{error}; the snapshot is of commit {number}: take a new one");
        Error::new(ErrorKind::SnapshotMoved, text)
    }
}

/// Returns the error of a moment whose commits have been settled since.
fn settled(store: &OpenedStore, number: u64) -> Error {
    let name = store.storage.name();
    let text = format!(
        "commit {number} of {name} has been settled since the snapshot was taken; take a new one"
    );
    Error::new(ErrorKind::SnapshotMoved, text)
}
