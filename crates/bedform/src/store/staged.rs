//! Stores, and groups of a store, that are built under a hidden name and published as a whole.
//!
//! Until then readers find what was there before. What is dropped without publication leaves nothing; what a killed
//! process has left goes when something is next staged in the same directory. See [`crate::publication`] for file
//! systems that exchange no names.

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

/// Bytes of a root that is looked into.
const ROOT_BYTES_MAX: u64 = 64 << 20;

/// The documents of which a store has one.
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
    /// Whether a store that has the name gives way.
    replaces: bool,
    shown: String,
}

impl StagedStore {
    /// Begins a store for the directory `target`, with the missing directories above it. If it `replaces`, a store
    /// that is there gives way; nothing else does but an empty directory.
    ///
    /// # Errors
    /// `Exists` if something else is there, or the log of a store that is gone; `InvalidArgument` for what is no
    /// path of this machine, and if something above is a file; those of storage.
    pub fn create(
        target: &Path,
        replaces: bool,
        attributes: &Map<String, Value>,
        mut options: OpenOptions,
    ) -> Result<Self> {
        check_local(target)?;
        let shown = target.to_string_lossy().into_owned();
        // What a link stands for is replaced, not the link.
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
        // Opened by its path: its shards go to the storage targets that are configured.
        let path = above.join(staged.tree()?.as_str());
        let storage = storage_of(&path, Mode::Create, &options)?;
        let store = Store::create(storage, attributes, options)?;
        Ok(Self { staged, store, replaces, shown })
    }

    /// As [`StagedStore::create`], of the directory `name` of `parent`.
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

    /// The store, which only its builder sees.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Where the store is until it is published.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(self.store.storage().name())
    }

    /// Gives the finished store its name, in one step. Nobody writes to it any more. A store that it replaces is
    /// removed, with its log.
    ///
    /// # Errors
    /// `Exists` if something that does not give way has got the name meanwhile; those of storage. What was there
    /// stays, unless the kind is `Poisoned`.
    pub fn publish(self) -> Result<()> {
        let Self { staged, store, replaces, shown } = self;
        let durability = store.options().durability;
        drop(store);
        let (parent, target) = (staged.parent().clone(), staged.target().clone());
        if check_place(&*parent, &target, replaces, &shown)? {
            let old = log_owner(&*parent, &target).ok().flatten();
            staged.publish(TreePublication::Exchange, durability)?;
            // The new store has its name, whatever becomes of the old log.
            if old.is_some() {
                let _ = remove_log(&staged, old.as_deref(), durability);
            }
        } else {
            staged.publish(TreePublication::Absent, durability)?;
        }
        // What is left of the old one is hidden, and goes with a sweep.
        let _ = staged.remove();
        Ok(())
    }
}

/// Checks what has the name of a new store; true if it is a store that gives way.
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

/// Removes the log beside the target if it is `owner`'s: others may have begun that of the new store by now. It
/// loses its name in one step, so that nobody begins another one in what is being removed.
fn remove_log(staged: &StagedTree, owner: Option<&[u8]>, durability: Durability) -> Result<()> {
    let (parent, target) = (staged.parent(), staged.target());
    if log_owner(&**parent, target)?.as_deref() == owner {
        let aside = staged.directory().join("log")?;
        parent.publish_tree(&log_of(target)?, &aside, TreePublication::Absent, durability)?;
    }
    Ok(())
}

/// Whose log lies beside `store`: the key in its newest root, or that root where it is damaged; nothing without
/// roots.
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

/// A group that is built in a hidden directory of its store, and takes the place of one that is there.
///
/// The store's document notes the replacement before the two directories change places, so that readers find
/// the old arrays or the new ones in every moment, also after a crash.
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
    /// Begins a group that is to take the place of the one at `path`.
    ///
    /// # Errors
    /// `NotFound` if there is no group; `Unsupported` in a place that renames nothing; `ReadOnly`, those of
    /// storage.
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
    /// If it is too long.
    pub fn path(&self) -> Result<ObjectPath> {
        self.staged.tree()
    }

    /// How the store was opened.
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

    /// As [`StagedGroup::draft_array`], of which all elements are `elements`: codecs that are open are chosen by
    /// them.
    ///
    /// # Errors
    /// As [`Store::draft_array_of`].
    pub fn draft_array_of(&mut self, name: &str, new: &NewArray, elements: &[u8]) -> Result<Array> {
        let path = self.staged.tree()?.join(name)?;
        let array = self.store.draft_array_of(&path, new, elements)?;
        self.drafts.push(path);
        Ok(array)
    }

    /// Puts the group in its place, with these attributes, in one step. The arrays that were there are gone, with
    /// what is committed over them and not settled. Durable on return. The appends under way are waited for, as
    /// [`Store::delete`] does.
    ///
    /// # Errors
    /// `NotFound` if the group is gone; `Conflict` if another writer has replaced a new array; those of storage.
    /// The old group stays, unless the kind is `Poisoned`.
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

    /// Lets go of the drafts.
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
