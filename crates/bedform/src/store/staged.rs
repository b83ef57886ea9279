//! Stores, and groups of a store, that are built under a hidden name and published atomically.
//!
//! Until publication readers find the earlier store or group. A value that is dropped before
//! publication removes its tree; the tree of a killed process is removed when another one is staged
//! in the same directory. See [`crate::publication`] for file systems that cannot exchange names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_storage::{Durability, Mode, Storage, StorageErrorKind, TreePublication};
use serde_json::{Map, Value};

use super::Store;
use crate::array::Array;
use crate::error::{Error, ErrorKind, Result};
use crate::log::place::SUFFIX as LOG_SUFFIX;
use crate::opening::{add_kept_profile, check_local, storage_of};
use crate::options::OpenOptions;
use crate::publication::{StagedTree, has_name, no_directory, quoted, split_target};
use crate::zarr::new_array::NewArray;
use crate::zarr::nodes::NodeKind;
use crate::zarr::publish::{check_key, check_new, lock_arrays, own_document};
use crate::zarr::replacing::replace_group;

/// The most bytes of a root that are read.
const ROOT_BYTES_MAX: u64 = 64 << 20;

/// Documents of which a store has at least one.
const DOCUMENTS: [&str; 3] = ["zarr.json", ".zgroup", ".zarray"];

/// A store that is built beside its place.
///
/// ```
/// use bedform::store::StagedStore;
/// use bedform::{OpenOptions, Store};
/// use serde_json::Map;
///
/// # let directory = std::env::temp_dir().join(format!("bedform-staged-{}", std::process::id()));
/// let target = directory.join("run.zarr");
/// let staged = StagedStore::create(&target, false, &Map::new(), OpenOptions::default())?;
/// staged.store().create_group(&bedform_format::ObjectPath::parse("g").unwrap(), &Map::new())?;
/// assert!(!target.exists());
/// staged.publish()?;
/// assert_eq!(Store::open_path(&target, OpenOptions::default())?.nodes()?.len(), 1);
/// # std::fs::remove_dir_all(directory).unwrap();
/// # Ok::<(), bedform::Error>(())
/// ```
#[derive(Debug)]
pub struct StagedStore {
    staged: StagedTree,
    store: Store,
    /// True if an existing store of that name is replaced.
    replaces: bool,
    shown: String,
}

impl StagedStore {
    /// Stages a store for the directory `target`, and creates the missing directories above it.
    /// With `replaces`, an existing store is replaced. Apart from that only an empty directory may
    /// have the name.
    ///
    /// # Errors
    /// `Exists` for any other entry of that name, or the log of a store that is gone;
    /// `InvalidArgument` for a target that is no path of this machine, and if a part of the path
    /// above is a file; those of storage.
    pub fn create(
        target: &Path,
        replaces: bool,
        attributes: &Map<String, Value>,
        mut options: OpenOptions,
    ) -> Result<Self> {
        check_local(target)?;
        let shown = target.to_string_lossy().into_owned();
        // The target of a link is replaced, not the link.
        let resolved = target.is_symlink().then(|| target.canonicalize().ok()).flatten();
        let target = resolved.as_deref().unwrap_or(target);
        let above = std::path::absolute(target).ok();
        if let Some(above) = above.as_deref().and_then(Path::parent).filter(|path| !path.exists()) {
            let made = storage_of(above, Mode::Create, &options);
            let is_below_file = above.ancestors().any(Path::is_file);
            made.map_err(|error| if is_below_file { no_directory(above) } else { error })?;
        }
        let (above, name) = split_target(target)?;
        let parent = storage_of(&above, Mode::ReadWrite, &options)?;
        add_kept_profile(&mut options, &above);
        let staged = StagedTree::begin(&parent, &name)?;
        check_place(&*parent, &name, replaces, &shown)?;
        // Opened by its path, so that its shards go to the configured storage targets.
        let path = above.join(staged.tree()?.as_str());
        let storage = storage_of(&path, Mode::Create, &options)?;
        let store = Store::create(storage, attributes, options)?;
        Ok(Self { staged, store, replaces, shown })
    }

    /// As [`StagedStore::create`], for the directory `name` of `parent`.
    ///
    /// # Errors
    /// As [`StagedStore::create`].
    pub fn create_in(
        parent: &Arc<dyn Storage>,
        name: &ObjectPath,
        replaces: bool,
        attributes: &Map<String, Value>,
        options: OpenOptions,
    ) -> Result<Self> {
        let shown = format!("{}/{name}", parent.name());
        let staged = StagedTree::begin(parent, name)?;
        check_place(&**parent, name, replaces, &shown)?;
        let store = Store::create(staged.storage()?, attributes, options)?;
        Ok(Self { staged, store, replaces, shown })
    }

    /// The unpublished store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The path of the store until it is published.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(self.store.storage().name())
    }

    /// Gives the finished store its name, in one step. No other handle may write to it any more. A
    /// store that it replaces is removed, with its log.
    ///
    /// # Errors
    /// `Exists` if the name was taken meanwhile by anything that is not replaced; those of storage.
    /// The earlier store stays, unless the kind is `Poisoned`.
    pub fn publish(self) -> Result<()> {
        let Self { staged, store, replaces, shown } = self;
        let durability = store.options().durability;
        drop(store);
        let (parent, target) = (staged.parent().clone(), staged.target().clone());
        if check_place(&*parent, &target, replaces, &shown)? {
            let old = log_owner(&*parent, &target).ok().flatten();
            staged.publish(TreePublication::Exchange, durability)?;
            // The new store has its name, even if removing the old log fails.
            if old.is_some() {
                let _ = remove_log(&staged, old.as_deref(), durability);
            }
        } else {
            staged.publish(TreePublication::Absent, durability)?;
        }
        // The remains of the old store are hidden, and a later sweep removes them.
        let _ = staged.remove();
        Ok(())
    }
}

/// Fails unless the name of a new store may be taken; true if it belongs to a store that is
/// replaced.
fn check_place(
    parent: &dyn Storage,
    target: &ObjectPath,
    replaces: bool,
    shown: &str,
) -> Result<bool> {
    let fail = |what: &str| {
        Err(Error::new(ErrorKind::Exists, format!("{shown} exists {what}; choose another name")))
    };
    if is_store(parent, target)? {
        return if replaces { Ok(true) } else { fail("already") };
    }
    let gives_way = || Ok::<_, Error>(is_directory(parent, target)? && is_empty(parent, target)?);
    if has_name(parent, target)? && !gives_way()? {
        return fail("and is no store");
    }
    if !is_empty(parent, &log_of(target)?.join("roots")?)? {
        return Err(Error::new(
            ErrorKind::Exists,
            format!(
                "{} holds commits of a store that was here and is gone; put that store back, or remove \
                 the log if nobody needs its data",
                quoted(&format!("{shown}{}", LOG_SUFFIX))
            ),
        ));
    }
    Ok(false)
}

fn is_directory(parent: &dyn Storage, name: &ObjectPath) -> Result<bool> {
    let entries = parent.list(&name.parent())?;
    Ok(entries.iter().any(|entry| entry.name == name.name() && entry.is_directory))
}

fn is_empty(parent: &dyn Storage, directory: &ObjectPath) -> Result<bool> {
    Ok(parent.list(directory)?.is_empty())
}

fn is_store(parent: &dyn Storage, path: &ObjectPath) -> Result<bool> {
    for name in DOCUMENTS {
        match parent.stat(&path.join(name)?) {
            Ok(_) => return Ok(true),
            Err(error) if error.is_not_found() || error.kind == StorageErrorKind::NotAnObject => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

/// The directory of the log of the store at `path`.
fn log_of(path: &ObjectPath) -> Result<ObjectPath> {
    Ok(path.parent().join(&format!("{}{}", path.name(), LOG_SUFFIX))?)
}

/// Removes the log beside the target if it still belongs to `owner`: a session of the new store may
/// have begun its log. The log loses its name in one step, so that no session starts a log in a
/// directory that is being removed.
fn remove_log(staged: &StagedTree, owner: Option<&[u8]>, durability: Durability) -> Result<()> {
    let (parent, target) = (staged.parent(), staged.target());
    if log_owner(&**parent, target)?.as_deref() == owner {
        let aside = staged.directory().join("log")?;
        parent.publish_tree(&log_of(target)?, &aside, TreePublication::Absent, durability)?;
    }
    Ok(())
}

/// The owner of the log beside `store`: the key in its newest root, or the bytes of that root if it
/// is damaged; `None` without roots.
fn log_owner(parent: &dyn Storage, store: &ObjectPath) -> Result<Option<Vec<u8>>> {
    let roots = log_of(store)?.join("roots")?;
    let Some(newest) = parent.list(&roots)?.into_iter().next_back() else { return Ok(None) };
    let root = parent.open(&roots.join(&newest.name)?)?;
    let size = usize::try_from(root.version().size.min(ROOT_BYTES_MAX)).unwrap_or(0);
    let mut bytes = vec![0; size];
    root.read(0, &mut bytes)?;
    let document: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let key = document["bedform"]["store"].as_str();
    Ok(Some(key.map_or_else(|| bytes.clone(), |key| key.as_bytes().to_vec())))
}

/// A group that is built in a hidden directory of its store, and replaces an existing group.
///
/// The store's document notes the replacement before the two directories are exchanged. So readers
/// find the old arrays or the new ones at any moment, also after a crash.
///
/// ```
/// use std::sync::Arc;
/// use bedform::{NewArray, OpenOptions, Store};
/// use bedform_format::ObjectPath;
/// use bedform_storage::MemoryStorage;
/// use serde_json::{Map, json};
///
/// let store = Store::create(Arc::new(MemoryStorage::new()), &Map::new(), OpenOptions::default())?;
/// let new = |length: u64| {
///     let description = json!({"shape": [length], "dtype": "int32", "chunks": [4], "shards": [4]});
///     NewArray::from_json(&description, &Default::default())
/// };
/// store.create_array(&ObjectPath::parse("g/old")?, &new(4)?)?;
/// let mut staged = store.stage_group(&ObjectPath::parse("g")?)?;
/// staged.draft_array("new", &new(8)?)?;
/// staged.publish(&Map::new())?;
/// let names: Vec<_> = store.nodes()?.into_keys().map(|path| path.to_string()).collect();
/// assert_eq!(names, ["g", "g/new"]);
/// # Ok::<(), bedform::Error>(())
/// ```
#[derive(Debug)]
pub struct StagedGroup {
    store: Store,
    staged: StagedTree,
    drafts: Vec<ObjectPath>,
}

impl Store {
    /// Stages a group that will replace the one at `path`.
    ///
    /// # Errors
    /// `NotFound` if there is no group; `Unsupported` in a place that cannot rename; `ReadOnly`,
    /// those of storage.
    pub fn stage_group(&self, path: &ObjectPath) -> Result<StagedGroup> {
        let opened = self.zarr()?;
        opened.check_writable()?;
        check_group(self, path)?;
        if opened.storage.is_remote() {
            let name = opened.name_of(path);
            let text = format!("{name}: no group in an object store is replaced as a whole");
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let staged = StagedTree::begin(&opened.storage, path)?;
        Ok(StagedGroup { store: self.clone(), staged, drafts: Vec::new() })
    }
}

fn check_group(store: &Store, path: &ObjectPath) -> Result<()> {
    if !path.is_root() && store.kind(path)? == Some(NodeKind::Group) {
        return Ok(());
    }
    let text = format!("no group {path:?} in {} that could be replaced", store.storage().name());
    Err(Error::new(ErrorKind::NotFound, text))
}

impl StagedGroup {
    /// The path in the store under which the group is built.
    ///
    /// # Errors
    /// `InvalidArgument` if it is too long.
    pub fn path(&self) -> Result<ObjectPath> {
        self.staged.tree()
    }

    /// The options that opened the store.
    pub fn options(&self) -> &OpenOptions {
        self.store.options()
    }

    /// Creates an array of the new group; see [`Store::draft_array`].
    ///
    /// # Errors
    /// As [`Store::draft_array`].
    pub fn draft_array(&mut self, name: &str, new: &NewArray) -> Result<Array> {
        let path = self.staged.tree()?.join(name)?;
        let array = self.store.draft_array(&path, new)?;
        self.drafts.push(path);
        Ok(array)
    }

    /// As [`StagedGroup::draft_array`]. `elements` are all elements of the array, and choose its
    /// codecs if these are open.
    ///
    /// # Errors
    /// As [`Store::draft_array_of`].
    pub fn draft_array_of(&mut self, name: &str, new: &NewArray, elements: &[u8]) -> Result<Array> {
        let path = self.staged.tree()?.join(name)?;
        let array = self.store.draft_array_of(&path, new, elements)?;
        self.drafts.push(path);
        Ok(array)
    }

    /// Publishes the group with these attributes, in one step. The old arrays are removed, with
    /// unsettled commits over them. Durable on return. Waits for appends in progress, as
    /// [`Store::delete`] does.
    ///
    /// # Errors
    /// `NotFound` if the group is gone; `Conflict` if another writer has replaced a new array;
    /// those of storage. The old group stays, unless the kind is `Poisoned`.
    pub fn publish(mut self, attributes: &Map<String, Value>) -> Result<()> {
        let store = self.store.clone();
        let opened = &**store.zarr()?;
        check_new(opened, self.staged.target(), attributes)?;
        let _array_locks = lock_arrays(opened, self.staged.target())?;
        let _lock = opened.lock(&ObjectPath::root())?;
        check_group(&store, self.staged.target())?;
        let mut arrays = Map::new();
        for path in &self.drafts {
            let document = own_document(opened, path)?;
            if let Some(key) = opened.drafts().get(path).map(|draft| draft.key) {
                check_key(opened, path, &document, &key)?;
            }
            arrays.insert(path.name().to_owned(), document);
        }
        replace_group(opened, &self.staged, attributes, arrays)?;
        self.release();
        Ok(())
    }

    /// Releases the drafts and their locks.
    fn release(&mut self) {
        let Ok(opened) = self.store.zarr() else { return };
        for path in self.drafts.drain(..) {
            let draft = opened.drafts().remove(&path);
            if let Some(lock) = draft.and_then(|draft| draft.lock.upgrade()) {
                lock.release();
            }
        }
    }
}

impl Drop for StagedGroup {
    fn drop(&mut self) {
        self.release();
    }
}
