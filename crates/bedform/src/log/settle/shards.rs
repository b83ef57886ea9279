//! The list of settled shards, which a root names while its log exists.
//!
//! The stamp of a shard says which commits the shard contains. An older version of the shard that
//! was put back has a stamp, too, and would pass for intact; a lost shard has none. So the list
//! says which commit each settled shard must contain, and a shard that contains less is damaged.
//! The list goes with the log. Plain Zarr has no such list.
//!
//! The list is stored in several objects, which merge as tables do. So settling a little at a time
//! does not rewrite the whole list.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};

use bedform_format::ObjectPath;
use bedform_format::checksum::crc32c;
use bedform_format::log::{Root, SettledArray, SettledRecord, SettledShards};
use bedform_storage::{Condition, Durability};

use super::plan::SettlePlan;
use crate::error::{Error, ErrorKind, Result};
use crate::log::place::LogPlace;
use crate::log::view::RootView;

const SETTLED: &str = "settled";

impl RootView {
    /// Fails if the shard at `coordinates`, which contains the commits up to `contained`, must
    /// contain later ones.
    ///
    /// # Errors
    /// `Corrupt`; those of storage.
    pub(crate) fn check_contained(
        &self,
        key: &[u8; 16],
        coordinates: &[u64],
        contained: u64,
        name: &dyn Fn() -> String,
    ) -> Result<()> {
        let mut commit = 0;
        for shards in self.settled_shards()?.iter() {
            commit = commit.max(shards.commit_of(key, coordinates).unwrap_or(0));
        }
        if contained >= commit {
            return Ok(());
        }
        let found = match contained {
            0 => "it is lost, or another program has written it".to_owned(),
            _ => format!("it is an older version of itself, of commit {contained}"),
        };
        Err(Error::new(
            ErrorKind::Corrupt,
            format!(
                "{} is damaged: commit {commit} was settled into it, and {found}; restore it from a copy, or \
                 write all of it anew",
                name()
            ),
        ))
    }

    /// Returns the coordinates of the shards of an array that must exist.
    ///
    /// # Errors
    /// As [`RootView::check_contained`].
    pub(crate) fn settled_objects(&self, key: &[u8; 16]) -> Result<Vec<Vec<u64>>> {
        let lists = self.settled_shards()?;
        let arrays = lists.iter().flat_map(|shards| &shards.arrays);
        let of_array = arrays.filter(|array| array.key() == key);
        let all: BTreeSet<_> = of_array.flat_map(|array| array.iter().map(|(at, _)| at)).collect();
        Ok(all.into_iter().collect())
    }

    /// Returns the lists that the root names; reads those that are not in memory yet.
    fn settled_shards(&self) -> Result<Vec<Arc<SettledShards>>> {
        let records = &self.root.settled_shards;
        if records.is_empty() {
            return Ok(Vec::new());
        }
        let mut known = self.loaded().settled.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lists = Vec::with_capacity(records.len());
        for record in records {
            let list = match known.iter().find(|(known, _)| known == record) {
                Some((_, list)) => list.clone(),
                None => Arc::new(self.place.settled_shards(*record)?),
            };
            lists.push((*record, list));
        }
        known.clone_from(&lists);
        Ok(lists.into_iter().map(|(_, list)| list).collect())
    }
}

impl LogPlace {
    pub(in crate::log) fn settled_path(number: u64) -> Result<ObjectPath> {
        Ok(ObjectPath::root().join(SETTLED)?.join(&format!("{number:010}"))?)
    }

    /// Returns the numbers of the lists that exist.
    pub(in crate::log) fn settled_numbers(&self) -> Result<Vec<u64>> {
        let entries = self.named(self.storage.list(&ObjectPath::root().join(SETTLED)?))?;
        Ok(entries.iter().filter_map(|entry| entry.name.parse().ok()).collect())
    }

    fn settled_shards(&self, record: SettledRecord) -> Result<SettledShards> {
        let path = Self::settled_path(record.number)?;
        let name = || format!("{}/{path}", self.name());
        let object = self.storage.open(&path).map_err(|error| match error.is_not_found() {
            // Removed with the log since its root was read, or lost: a newer root tells.
            true => Error::new(ErrorKind::SnapshotMoved, format!("{} is gone", name())),
            false => Error::from(error).at(self.name()),
        })?;
        if object.version().size != record.bytes {
            let size = object.version().size;
            return Err(Error::corrupt(name(), format!("{size} bytes, not {}", record.bytes)));
        }
        let mut bytes = vec![0; usize::try_from(record.bytes).unwrap_or(usize::MAX)];
        self.named(object.read(0, &mut bytes))?;
        if crc32c(&bytes) != record.checksum {
            return Err(Error::corrupt(name(), "its bytes have changed"));
        }
        SettledShards::decode(&bytes, &self.limits).map_err(|error| Error::corrupt(name(), error))
    }

    /// Writes a list for `root`: `more`, merged with the earlier lists that are no larger, or with
    /// all of them if `one`. Durable on return.
    ///
    /// # Errors
    /// Those of storage; `Corrupt` if the list so far is damaged.
    pub(super) fn add_settled(
        &self,
        root: &mut Root,
        more: &SettledShards,
        one: bool,
    ) -> Result<()> {
        let mut bytes = more.encode(&self.limits).map_or(u64::MAX, |bytes| bytes.len() as u64);
        let mut kept = root.settled_shards.len();
        while let Some(before) = kept.checked_sub(1)
            && (one || root.settled_shards[before].bytes <= bytes)
        {
            bytes = bytes.saturating_add(root.settled_shards[before].bytes);
            kept = before;
        }
        let mut all = SettledShards::default();
        for record in root.settled_shards.split_off(kept) {
            all = all.with(self.settled_shards(record)?);
        }
        let all = all.with(more.clone());
        let bytes = all.encode(&self.limits).map_err(|error| Error::invalid(error.to_string()))?;
        let path = Self::settled_path(root.number)?;
        // An earlier attempt with this number has created no root, or this attempt will create
        // none.
        self.named(self.storage.put(&path, &bytes, Durability::Disk, Condition::None))?;
        let (number, checksum) = (root.number, crc32c(&bytes));
        root.settled_shards.push(SettledRecord { number, bytes: bytes.len() as u64, checksum });
        Ok(())
    }
}

/// Returns the list of the shards in `settled`: plan, number of the object, last commit in the
/// object.
pub(super) fn list(plans: &[SettlePlan], settled: &mut [(usize, u64, u64)]) -> SettledShards {
    settled.sort_unstable();
    let mut arrays = BTreeMap::new();
    for (plan, number, commit) in settled.iter() {
        let plan = &plans[*plan];
        let array = arrays
            .entry(plan.key)
            .or_insert_with(|| SettledArray::new(plan.key, plan.grid.clone()));
        array.add(&plan.coordinates(*number), *commit);
    }
    SettledShards { arrays: arrays.into_values().collect() }
}
