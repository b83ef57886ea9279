//! New stores, groups and arrays, changed attributes, deletion.

use std::sync::Arc;
use std::time::Duration;

use bedform_format::ObjectPath;
use bedform_format::metadata::{ArrayMetadata, Identity, LogState, parse_array, write_group};
use bedform_storage::{Condition, Durability, Storage, SyncAll, within};
use serde_json::Map;
use serde_json::Value;

use super::{Store, StoreBacking};
use crate::array::Array;
use crate::cache::take_budget_of_environment;
use crate::error::{Error, ErrorKind, Result};
use crate::log::array::ArrayHandle;
use crate::log::opened::OpenedStore;
use crate::log::place::LogPlace;
use crate::options::OpenOptions;
use crate::threads::check::concurrent_check;
use crate::threads::ordered::map_in_threads;
use crate::zarr::choosing::chosen_for;
use crate::zarr::documents::{publish, read};
use crate::zarr::hierarchy::{Draft, DraftLock};
use crate::zarr::new_array::NewArray;
use crate::zarr::nodes::NodeKind;
use crate::zarr::publish::{
    RootChange, check_free, check_key, check_new, check_new_attributes, commit, commit_all, exists,
    in_use, lock_arrays, own_document, random_key, store_key,
};
use crate::zarr::together::{NewArrayBatch, create_one};

/// The time limit for removing drafts after a failure or cancellation.
const DISCARD: Duration = Duration::from_millis(500);
/// The same limit for a store on a server.
const DISCARD_ON_SERVER: Duration = Duration::from_secs(5);

impl Store {
    /// Creates an empty store in `storage`, durable on return.
    ///
    /// # Errors
    /// `Exists` if there is a store already, or the log of a store that is gone; those of storage.
    pub fn create(
        storage: Arc<dyn Storage>,
        attributes: &Map<String, Value>,
        mut options: OpenOptions,
    ) -> Result<Self> {
        take_budget_of_environment()?;
        options.writable = true;
        let opened = Arc::new(OpenedStore::new(storage, options, None));
        check_new_attributes(&opened, &ObjectPath::root(), attributes)?;
        let root = ObjectPath::root();
        let is_there = |name: &&str| Ok(read(&opened, &root, name)?.is_some());
        let looked = || map_in_threads(opened.threads_asking(), &[".zgroup", ".zarray"], is_there);
        let found = match opened.threads_asking() {
            1 => looked().and_then(|found| check_no_log(&opened).map(|()| found)),
            _ => concurrent_check(|| check_no_log(&opened), |_| looked()),
        };
        if found?.contains(&true) {
            return Err(exists(&opened, &root));
        }
        let document = write_group(&random_key()?, attributes, Some(Map::new()));
        let bytes = bedform_format::metadata::seal(document);
        let path = root.join("zarr.json")?;
        let durability = opened.options.durability;
        let put = opened.storage.put(&path, &bytes, durability, Condition::Absent);
        put.map_err(|error| match error.kind {
            bedform_storage::StorageErrorKind::Exists => exists(&opened, &root),
            _ => error.into(),
        })?;
        Ok(Self { backing: StoreBacking::Zarr(opened) })
    }

    /// Creates a group with its missing parents. Atomic, durable on return.
    ///
    /// # Errors
    /// `Exists`, `ReadOnly`, those of storage.
    pub fn create_group(&self, path: &ObjectPath, attributes: &Map<String, Value>) -> Result<()> {
        let opened = &**self.zarr()?;
        opened.check_writable()?;
        check_new(opened, path, attributes)?;
        let _lock = opened.lock(&ObjectPath::root())?;
        check_free(opened, path)?;
        let store = store_key(opened)?;
        publish(opened, path, write_group(&store, attributes, None))?;
        commit(opened, std::slice::from_ref(path), &[])
    }

    /// Creates an array with the missing groups above it. Atomic, durable on return.
    ///
    /// # Errors
    /// `Exists`, `InvalidArgument` by the layout, `ReadOnly`, those of storage.
    pub fn create_array(&self, path: &ObjectPath, new: &NewArray) -> Result<Array> {
        // The store's lock is held from the first look at the name to the commit, so no draft is
        // needed to reserve the name.
        let opened = self.zarr()?;
        let document = create_one(opened, path, new)?;
        let metadata = parse_array(&document, &opened.options.limits)
            .map_err(|error| Error::metadata(opened.name_of(path), error))?;
        let array = self.draft_of(path, metadata, document, None)?;
        // The array exists, whether or not it can be read back now.
        let _ = array.reload();
        Ok(Array::stored_in(array))
    }

    /// A handle on the array at `path`, which is not yet committed.
    fn draft_of(
        &self,
        path: &ObjectPath,
        metadata: ArrayMetadata,
        document: Value,
        lock: Option<Arc<DraftLock>>,
    ) -> Result<ArrayHandle> {
        ArrayHandle::draft(self.zarr()?.clone(), path.clone(), metadata, document, lock)
    }

    /// Creates an array that no reader sees before [`Store::commit_drafts`] names it, so that
    /// several arrays can appear at once with their data. While a handle of the draft lives, no
    /// other writer can take its name.
    ///
    /// # Errors
    /// As [`Store::create_array`]; `Conflict` if another writer is about to create it.
    pub fn draft_array(&self, path: &ObjectPath, new: &NewArray) -> Result<Array> {
        let opened = &**self.zarr()?;
        opened.check_writable()?;
        check_new(opened, path, &new.attributes)?;
        let _lock = opened.lock(&ObjectPath::root())?;
        check_free(opened, path)?;
        let identity = Identity { store: store_key(opened)?, array: random_key()? };
        let document = new.document(identity, opened, path)?;
        let metadata = parse_array(&document, &opened.options.limits)
            .map_err(|error| Error::metadata(opened.name_of(path), error))?;
        publish(opened, path, document.clone())?;
        // Without waiting: the holder may be waiting for the store's lock, which this call holds.
        let lock = opened.storage.try_lock(path)?.ok_or_else(|| in_use(opened, path))?;
        let lock = DraftLock::new(lock);
        let draft = Draft { key: identity.array, lock: Arc::downgrade(&lock) };
        opened.drafts().insert(path.clone(), draft);
        self.draft_of(path, metadata, document, Some(lock)).map(Array::stored_in)
    }

    /// As [`Store::draft_array`]. `elements` are all elements of the array, and choose its codecs
    /// if these are open. They are not written yet.
    ///
    /// # Errors
    /// As [`Store::draft_array`]; `InvalidArgument` for another number of elements.
    pub fn draft_array_of(
        &self,
        path: &ObjectPath,
        new: &NewArray,
        elements: &[u8],
    ) -> Result<Array> {
        let new = chosen_for(&**self.zarr()?, path, new, &|take| take(elements))?;
        self.draft_array(path, &new)
    }

    /// As [`Array::take_warnings`], for all arrays of the store.
    pub fn take_warnings(&self) -> Vec<String> {
        self.zarr().map_or_else(|_| Vec::new(), |opened| opened.tallies.take_lines())
    }

    /// Makes drafts of [`Store::draft_array`] visible, all at once. Atomic, durable on return.
    ///
    /// # Errors
    /// `NotFound` if a draft is gone; `Conflict` if another writer has created an array of that
    /// name meanwhile; `ReadOnly`, those of storage.
    pub fn commit_drafts(&self, paths: &[ObjectPath]) -> Result<()> {
        self.commit_drafts_with(paths, &[])
    }

    /// As [`Store::commit_drafts`]; the same commit sets the attributes of each of `groups`, and
    /// creates missing ones.
    ///
    /// # Errors
    /// As [`Store::commit_drafts`]; `Exists` if an array has the path of a group; `LimitExceeded`.
    pub fn commit_drafts_with(
        &self,
        paths: &[ObjectPath],
        groups: &[(ObjectPath, Map<String, Value>)],
    ) -> Result<()> {
        self.commit_drafts_of(self, paths, groups)
    }

    /// Returns another handle on the store, whose writes are not durable, and the function that makes
    /// all of them durable at once; `None` where storage has no such function, or the store need not
    /// survive a power cut. Drafts of that handle are committed by [`Store::commit_drafts_of`].
    ///
    /// # Errors
    /// Those of opening the store.
    pub(crate) fn synced_together(&self) -> Result<Option<(Self, SyncAll<'_>)>> {
        let opened = &**self.zarr()?;
        if !opened.can_sync_together() {
            return Ok(None);
        }
        let sync = opened.storage.sync_all(&[ObjectPath::root()])?;
        let options = OpenOptions { durability: Durability::Process, ..opened.options.clone() };
        Ok(Some((Self::open(opened.storage.clone(), options)?, sync)))
    }

    /// As [`Store::commit_drafts_with`], for drafts of another handle on the store.
    ///
    /// # Errors
    /// As [`Store::commit_drafts_with`].
    pub(crate) fn commit_drafts_of(
        &self,
        drafting: &Self,
        paths: &[ObjectPath],
        groups: &[(ObjectPath, Map<String, Value>)],
    ) -> Result<()> {
        let opened = &**self.zarr()?;
        let drafts = &**drafting.zarr()?;
        opened.check_writable()?;
        for (path, attributes) in groups {
            check_new(opened, path, attributes)?;
        }
        let _lock = opened.lock(&ObjectPath::root())?;
        for path in paths {
            let Some(key) = drafts.drafts().get(path).map(|draft| draft.key) else { continue };
            check_key(opened, path, &own_document(opened, path)?, &key)?;
        }
        let mut added = paths.to_vec();
        for (path, attributes) in groups {
            if path.is_root() {
                continue;
            }
            if opened.documents.kind(opened, path)? == Some(NodeKind::Array) {
                return Err(exists(opened, path));
            }
            publish(opened, path, write_group(&store_key(opened)?, attributes, None))?;
            added.push(path.clone());
        }
        let of_root = groups.iter().find(|(path, _)| path.is_root());
        let added = added.into_iter().map(|path| (path, None)).collect();
        let attributes = of_root.map(|(_, attributes)| attributes);
        commit_all(opened, added, &[], RootChange { attributes, ..RootChange::default() })?;
        for draft in paths.iter().filter_map(|path| drafts.drafts().remove(path)) {
            if let Some(lock) = draft.lock.upgrade() {
                lock.release();
            }
        }
        Ok(())
    }

    /// Removes drafts of this handle with their shards, within a time limit: 0.5 s, on a server 5
    /// s. Committed arrays stay.
    ///
    /// # Errors
    /// `ReadOnly`, those of storage; `Io` if it would take longer. The rest is invisible, and is
    /// removed when its name is used again.
    pub fn discard_drafts(&self, paths: &[ObjectPath]) -> Result<()> {
        let is_remote = self.storage().is_remote();
        let time = if is_remote { DISCARD_ON_SERVER } else { DISCARD };
        within(time, || self.discard_all(paths)).map_err(|error| match error.kind() {
            // The time limit has passed, although nobody cancelled the call.
            ErrorKind::Interrupted => {
                Error::new(ErrorKind::Io, "what was begun could not be removed in time")
            }
            _ => error,
        })
    }

    fn discard_all(&self, paths: &[ObjectPath]) -> Result<()> {
        let opened = &**self.zarr()?;
        opened.check_writable()?;
        let _lock = opened.lock(&ObjectPath::root())?;
        for path in paths {
            let Some(draft) = opened.drafts().remove(path) else { continue };
            // Another writer may have taken the name meanwhile.
            let own = own_document(opened, path)
                .and_then(|own| check_key(opened, path, &own, &draft.key));
            if own.is_ok() && opened.documents.kind(opened, path)?.is_none() {
                opened.storage.delete_tree(path, opened.options.durability)?;
            }
            if let Some(lock) = draft.lock.upgrade() {
                lock.release();
            }
        }
        Ok(())
    }

    /// Opens the array that [`Store::draft_array`] made at `path`, perhaps in another process,
    /// before it is committed.
    ///
    /// # Errors
    /// `NotFound` if there is no such draft; `Corrupt` by its document.
    pub fn open_draft(&self, path: &ObjectPath) -> Result<Array> {
        let opened = &**self.zarr()?;
        let Some(own) = read(opened, path, "zarr.json")?.filter(|own| own.sealed) else {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("no draft {path:?} in {}", opened.storage.name()),
            ));
        };
        let metadata = parse_array(&own.document, &opened.options.limits)
            .map_err(|error| Error::metadata(opened.name_of(path), error))?;
        self.draft_of(path, metadata, own.document, None).map(Array::stored_in)
    }

    /// Deletes an array or group with everything below it, atomically for readers. Waits for
    /// appends in progress; in a group of more than 128 arrays, no append to the others may start
    /// meanwhile. No session may be writing regions of it. If the process dies, the remains on
    /// storage are removed when the name is used again.
    ///
    /// # Errors
    /// `NotFound`, `ReadOnly`, those of storage.
    pub fn delete(&self, path: &ObjectPath) -> Result<()> {
        let opened = &**self.zarr()?;
        opened.check_writable()?;
        if path.is_root() {
            return Err(Error::invalid("the root group of a store cannot be deleted"));
        }
        let _array_locks = lock_arrays(opened, path)?;
        let _lock = opened.lock(&ObjectPath::root())?;
        // Another program may have removed it, and the store still names it.
        let is_there = opened.documents.kind(opened, path)?.is_some();
        if !is_there && !opened.documents.names(opened, path)? {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("no array or group {path:?} in {}", opened.storage.name()),
            ));
        }
        commit(opened, &[], std::slice::from_ref(path))?;
        match opened.storage.delete_tree(path, opened.options.durability) {
            // The deletion has succeeded: the rest is invisible, and is removed when its name is
            // used again.
            Err(_) if matches!(opened.documents.kind(opened, path), Ok(None)) => Ok(()),
            outcome => Ok(outcome?),
        }
    }

    /// Creates many arrays at once, with the missing groups above them: readers see all of them or
    /// none. Durable on return. Much faster than separate calls: there is one commit, and one call
    /// or several threads make the documents durable before it.
    ///
    /// # Errors
    /// As [`Store::create_array`]; `InvalidArgument` if a path is given twice.
    pub fn create_arrays(&self, arrays: &[(ObjectPath, NewArray)]) -> Result<()> {
        let opened = &**self.zarr()?;
        opened.check_writable()?;
        let _lock = opened.lock(&ObjectPath::root())?;
        let new = NewArrayBatch::new(opened, arrays)?;
        new.write(opened, 0..arrays.len())?;
        new.sync(opened)?;
        new.commit(opened, None)
    }
}

/// Fails if the log of another store lies in this one's place: no session could commit to it.
fn check_no_log(opened: &OpenedStore) -> Result<()> {
    // Listing does not use the key of the store.
    let Ok(log) = LogPlace::of_store(&*opened.storage, [0; 16], &opened.options.limits) else {
        return Ok(());
    };
    if log.newest_number(LogState::default())?.is_none() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Exists,
        format!(
            "{} holds commits of a store that was here and is gone; put that store back, or remove \
             the log if nobody needs its data",
            log.name()
        ),
    ))
}
