//! New stores, groups and arrays, changed attributes, deletion.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bedform_format::metadata::{
    ArrayMetadata, ChunkKeys, Encoding, FillValue, Identity, LogState, ShardEncoding, hex,
    parse_array, write_array, write_consolidated, write_group,
};
use bedform_format::{BytesCodec, CodecChain, DataType, Endian, ObjectPath, Serializer};
use bedform_geometry::Order;
use bedform_storage::{Condition, Lock, Storage, within};
use serde_json::{Map, Value, json};

use super::{Draft, DraftLock, NodeKind, OpenOptions, Shared, Store};
use crate::array::Array;
use crate::error::{Error, ErrorKind, Result};
use crate::log::place::LogPlace;
use crate::threads::check::concurrent_check;
use crate::threads::ordered::map_in_threads;
use crate::zarr::documents::{GroupState, ZARR_JSON, node_type, publish, read};

/// How long drafts are worth being removed: who does it has failed, or was stopped.
const DISCARD: Duration = Duration::from_secs(5);

/// How the elements of a new array become bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct ArrayLayout {
    /// Elements of a chunk along each axis.
    pub chunk_shape: Vec<u64>,
    /// Elements of a shard along each axis: a multiple of the chunk's.
    pub shard_shape: Vec<u64>,
    /// The order of the chunks in a shard.
    pub order: Order,
    /// How elements become bytes; `None` one after another, or text as `vlen-utf8` has it.
    pub serializer: Option<Serializer>,
    /// Codecs from bytes to bytes. A CRC-32C is put behind them unless it is there.
    pub codecs: Vec<BytesCodec>,
    /// The order in which axes are stored in a chunk, slowest first; `None` as they are.
    pub transpose: Option<Vec<usize>>,
    /// False leaves the chunks without a checksum.
    pub checksum: bool,
}

/// What a new array is.
#[derive(Debug, Clone, PartialEq)]
pub struct NewArray {
    /// Elements along each axis.
    pub shape: Vec<u64>,
    /// Type of the elements.
    pub data_type: DataType,
    /// How elements become bytes.
    pub layout: ArrayLayout,
    /// What elements are that were never written.
    pub fill_value: FillValue,
    /// Names of the axes.
    pub dimension_names: Option<Vec<Option<String>>>,
    /// The user's attributes.
    pub attributes: Map<String, Value>,
}

/// A random 128-bit key.
pub(crate) fn random_key() -> Result<[u8; 16]> {
    let mut key = [0; 16];
    let mut filled = 0;
    while filled < key.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        match rustix::rand::getrandom(&mut key[filled..], flags) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                return Err(Error::new(
                    ErrorKind::Io,
                    format!("the system gave no random numbers: {error}"),
                ));
            }
        }
    }
    Ok(key)
}

impl Store {
    /// Creates an empty store in `storage`, durable on return.
    ///
    /// # Errors
    /// `Exists` if there is a store already, or the log of one that is gone; those of storage.
    pub fn create(
        storage: Arc<dyn Storage>,
        attributes: &Map<String, Value>,
        mut options: OpenOptions,
    ) -> Result<Self> {
        options.writable = true;
        let shared = Arc::new(Shared::new(storage, options));
        check_attributes(&shared, &ObjectPath::root(), attributes)?;
        let root = ObjectPath::root();
        let is_there = |name: &&str| Ok(read(&shared, &root, name)?.is_some());
        let looked = || map_in_threads(shared.threads_asking(), &[".zgroup", ".zarray"], is_there);
        let found = match shared.threads_asking() {
            1 => looked().and_then(|found| check_no_log(&shared).map(|()| found)),
            _ => concurrent_check(|| check_no_log(&shared), |_| looked()),
        };
        if found?.contains(&true) {
            return Err(exists(&shared, &root));
        }
        let document = write_group(&random_key()?, attributes, Some(Map::new()));
        let bytes = bedform_format::metadata::seal(document);
        let path = root.join("zarr.json")?;
        let durability = shared.options.durability;
        let put = shared.storage.put(&path, &bytes, durability, Condition::Absent);
        put.map_err(|error| match error.kind {
            bedform_storage::StorageErrorKind::Exists => exists(&shared, &root),
            _ => error.into(),
        })?;
        Ok(Self { shared })
    }

    /// Creates a group with its missing parents. Atomic, durable on return.
    ///
    /// # Errors
    /// `Exists`, `ReadOnly`, those of storage.
    pub fn create_group(&self, path: &ObjectPath, attributes: &Map<String, Value>) -> Result<()> {
        let shared = &*self.shared;
        shared.check_writable()?;
        check_new(shared, path, attributes)?;
        let _lock = shared.lock(&ObjectPath::root())?;
        check_free(shared, path)?;
        let store = store_key(shared)?;
        publish(shared, path, write_group(&store, attributes, None))?;
        commit(shared, std::slice::from_ref(path), &[])
    }

    /// Creates an array with the missing groups above it. Atomic, durable on return.
    ///
    /// # Errors
    /// `Exists`, `InvalidArgument` by the layout, `ReadOnly`, those of storage.
    pub fn create_array(&self, path: &ObjectPath, new: &NewArray) -> Result<Array> {
        // One hold of the store's lock from the first look at the name to the commit: no draft is needed,
        // which would keep the name between two of them.
        let document = self.create_one(path, new)?;
        let metadata = parse_array(&document, &self.shared.options.limits)
            .map_err(|error| Error::metadata(self.shared.name_of(path), error))?;
        let array = Array::draft(self.shared.clone(), path.clone(), metadata, document, None)?;
        // The array exists, whether or not it can be read back now.
        let _ = array.reload();
        Ok(array)
    }

    /// Creates an array that no reader sees before [`Store::commit_drafts`] names it, so that
    /// several arrays can appear at once with their data. As long as a handle of the draft lives,
    /// nobody else gets its name.
    ///
    /// # Errors
    /// As [`Store::create_array`]; `Conflict` if somebody else is about to create it.
    pub fn draft_array(&self, path: &ObjectPath, new: &NewArray) -> Result<Array> {
        let shared = &*self.shared;
        shared.check_writable()?;
        check_new(shared, path, &new.attributes)?;
        let _lock = shared.lock(&ObjectPath::root())?;
        check_free(shared, path)?;
        let identity = Identity { store: store_key(shared)?, array: random_key()? };
        let document = new.document(identity, shared, path)?;
        let metadata = parse_array(&document, &shared.options.limits)
            .map_err(|error| Error::metadata(shared.name_of(path), error))?;
        publish(shared, path, document.clone())?;
        // Not waited for: whoever holds it may be waiting for the store's lock, which is ours.
        let lock = shared.storage.try_lock(path)?.ok_or_else(|| in_use(shared, path))?;
        let lock = DraftLock::new(lock);
        let draft = Draft { key: identity.array, lock: Arc::downgrade(&lock) };
        shared.drafts().insert(path.clone(), draft);
        Array::draft(self.shared.clone(), path.clone(), metadata, document, Some(lock))
    }

    /// Makes arrays of [`Store::draft_array`] visible, all at once. Atomic, durable on return.
    ///
    /// # Errors
    /// `NotFound` if a draft is gone; `Conflict` if somebody else has created an array of that name
    /// meanwhile; `ReadOnly`, those of storage.
    pub fn commit_drafts(&self, paths: &[ObjectPath]) -> Result<()> {
        self.commit_drafts_with(paths, &[])
    }

    /// As [`Store::commit_drafts`]; in the same commit each of `groups` gets its attributes, and is
    /// created if it is missing.
    ///
    /// # Errors
    /// As [`Store::commit_drafts`]; `Exists` if an array has the path of a group; `LimitExceeded`.
    pub fn commit_drafts_with(
        &self,
        paths: &[ObjectPath],
        groups: &[(ObjectPath, Map<String, Value>)],
    ) -> Result<()> {
        let shared = &*self.shared;
        shared.check_writable()?;
        for (path, attributes) in groups {
            check_new(shared, path, attributes)?;
        }
        let _lock = shared.lock(&ObjectPath::root())?;
        for path in paths {
            let Some(key) = shared.drafts().get(path).map(|draft| draft.key) else { continue };
            check_key(shared, path, &own_document(shared, path)?, &key)?;
        }
        let mut added = paths.to_vec();
        for (path, attributes) in groups {
            if path.is_root() {
                continue;
            }
            if shared.documents.kind(shared, path)? == Some(NodeKind::Array) {
                return Err(exists(shared, path));
            }
            publish(shared, path, write_group(&store_key(shared)?, attributes, None))?;
            added.push(path.clone());
        }
        let of_root = groups.iter().find(|(path, _)| path.is_root());
        let added = added.into_iter().map(|path| (path, None)).collect();
        let attributes = of_root.map(|(_, attributes)| attributes);
        commit_all(shared, added, &[], RootChange { attributes, log: None })?;
        for draft in paths.iter().filter_map(|path| shared.drafts().remove(path)) {
            if let Some(lock) = draft.lock.upgrade() {
                lock.release();
            }
        }
        Ok(())
    }

    /// Removes drafts of this handle, with what was written to them, as far as that takes seconds. What was
    /// committed stays.
    ///
    /// # Errors
    /// `ReadOnly`, those of storage; `Io` if it would take longer. What is left is invisible, and goes when
    /// its name is used again.
    pub fn discard_drafts(&self, paths: &[ObjectPath]) -> Result<()> {
        within(DISCARD, || self.discard_all(paths)).map_err(|error| match error.kind() {
            // Nobody need have stopped it.
            ErrorKind::Interrupted => {
                Error::new(ErrorKind::Io, "what was begun could not be removed in time")
            }
            _ => error,
        })
    }

    fn discard_all(&self, paths: &[ObjectPath]) -> Result<()> {
        let shared = &*self.shared;
        shared.check_writable()?;
        let _lock = shared.lock(&ObjectPath::root())?;
        for path in paths {
            let Some(draft) = shared.drafts().remove(path) else { continue };
            // Somebody else may have taken the name meanwhile.
            let own = own_document(shared, path)
                .and_then(|own| check_key(shared, path, &own, &draft.key));
            if own.is_ok() && shared.documents.kind(shared, path)?.is_none() {
                shared.storage.delete_tree(path, shared.options.durability)?;
            }
            if let Some(lock) = draft.lock.upgrade() {
                lock.release();
            }
        }
        Ok(())
    }

    /// The array that [`Store::draft_array`] made at `path`, perhaps in another process, while it is
    /// not yet committed.
    ///
    /// # Errors
    /// `NotFound` if there is no such draft; `Corrupt` by its document.
    pub fn open_draft(&self, path: &ObjectPath) -> Result<Array> {
        let shared = &*self.shared;
        let Some(own) = read(shared, path, "zarr.json")?.filter(|own| own.sealed) else {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("no draft {path:?} in {}", shared.storage.name()),
            ));
        };
        let metadata = parse_array(&own.document, &shared.options.limits)
            .map_err(|error| Error::metadata(shared.name_of(path), error))?;
        Array::draft(self.shared.clone(), path.clone(), metadata, own.document, None)
    }

    /// Deletes an array or group with all below it, after the appends that are under way: in a group of
    /// more than 128 arrays those to the others may not begin now. Nobody may be writing regions of it.
    /// Readers see it whole or not at all; what it leaves on storage if the process dies is removed
    /// when its name is used again.
    ///
    /// # Errors
    /// `NotFound`, `ReadOnly`, those of storage.
    pub fn delete(&self, path: &ObjectPath) -> Result<()> {
        let shared = &*self.shared;
        shared.check_writable()?;
        if path.is_root() {
            return Err(Error::invalid("the root group of a store cannot be deleted"));
        }
        let _array_locks = lock_arrays(shared, path)?;
        let _lock = shared.lock(&ObjectPath::root())?;
        // Another program may have removed it, and the store still names it.
        let is_there = shared.documents.kind(shared, path)?.is_some();
        if !is_there && !shared.documents.names(shared, path)? {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("no array or group {path:?} in {}", shared.storage.name()),
            ));
        }
        commit(shared, &[], std::slice::from_ref(path))?;
        match shared.storage.delete_tree(path, shared.options.durability) {
            // Deleted it is: what is left is invisible, and goes when its name is used again.
            Err(_) if matches!(shared.documents.kind(shared, path), Ok(None)) => Ok(()),
            outcome => Ok(outcome?),
        }
    }
}

/// Fails if the log of another store lies where that of a new one would: no session could commit to it.
fn check_no_log(shared: &Shared) -> Result<()> {
    // The key of the store does not matter for what is only listed.
    let Ok(log) = LogPlace::beside(&*shared.storage, [0; 16], &shared.options.limits) else {
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

/// Arrays whose locks a deletion holds at a time: each takes two of the files that a process may have.
const LOCKED_MAX: usize = 128;

/// Waits until no append to an array at or below `path` is under way, and keeps others from beginning,
/// as long as what this gives lives: what they write must not land in a later array.
fn lock_arrays(shared: &Shared, path: &ObjectPath) -> Result<Vec<Box<dyn Lock>>> {
    let arrays: Vec<ObjectPath> = match shared.documents.kind(shared, path)? {
        Some(NodeKind::Array) => vec![path.clone()],
        None => Vec::new(),
        Some(NodeKind::Group) => {
            let mut nodes = shared.documents.nodes(shared)?;
            nodes.retain(|other, kind| *kind == NodeKind::Array && other.is_within(path));
            nodes.into_keys().collect()
        }
    };
    let mut locks = Vec::with_capacity(arrays.len().min(LOCKED_MAX));
    // In the order of paths, as all who hold several: none can wait for each other.
    for array in &arrays {
        match shared.lock(array) {
            Ok(lock) if locks.len() < LOCKED_MAX => locks.push(lock),
            Ok(_) => {}
            // Another program has removed it, and the store still names it.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(locks)
}

impl NewArray {
    /// The document of the array at `path`.
    pub(crate) fn document(
        &self,
        identity: Identity,
        shared: &Shared,
        path: &ObjectPath,
    ) -> Result<Value> {
        let document = write_array(&self.metadata(identity)?);
        // It is read back as a reader would, so that none can be written that is refused.
        parse_array(&document, &shared.options.limits).map_err(|error| {
            Error::invalid(format!("array {path:?} cannot be created: {error}"))
        })?;
        Ok(document)
    }

    fn metadata(&self, identity: Identity) -> Result<ArrayMetadata> {
        let layout = &self.layout;
        let rank = self.shape.len();
        let ranks = [layout.chunk_shape.len(), layout.shard_shape.len()];
        if ranks.iter().any(|other| *other != rank) {
            return Err(Error::invalid(format!(
                "the shape {:?}, the chunks {:?} and the shards {:?} must have one rank",
                self.shape, layout.chunk_shape, layout.shard_shape
            )));
        }
        let mut bytes = layout.codecs.clone();
        if layout.checksum && bytes.last() != Some(&BytesCodec::Crc32c) {
            bytes.push(BytesCodec::Crc32c);
        }
        let serializer = layout.serializer.unwrap_or(match self.data_type {
            DataType::String => Serializer::VlenUtf8,
            _ => Serializer::Bytes(Endian::Little),
        });
        let transpose = layout.transpose.clone().filter(|order| !order.is_sorted());
        let inner = Encoding::Chunk(CodecChain { transpose, serializer, bytes });
        Ok(ArrayMetadata {
            shape: self.shape.clone(),
            data_type: self.data_type,
            chunk_shape: layout.shard_shape.clone(),
            keys: ChunkKeys::DEFAULT,
            fill_value: self.fill_value.clone(),
            encoding: Encoding::Shard(ShardEncoding {
                chunk_shape: layout.chunk_shape.clone(),
                inner: Box::new(inner),
                index_checked: true,
                index_at_start: false,
            }),
            dimension_names: self.dimension_names.clone(),
            attributes: self.attributes.clone(),
            identity: Some(identity),
            order: Some(layout.order.name().to_owned()),
            zarr_format: 3,
        })
    }
}

pub(crate) fn exists(shared: &Shared, path: &ObjectPath) -> Error {
    Error::new(
        ErrorKind::Exists,
        format!("{} exists already; open it, or choose another name", shared.name_of(path)),
    )
}

/// Fails if something visible is at `path`; removes what a crashed creation or deletion left there.
pub(crate) fn check_free(shared: &Shared, path: &ObjectPath) -> Result<()> {
    if path.is_root() {
        return Err(exists(shared, path));
    }
    if shared.documents.kind(shared, path)?.is_some() {
        return Err(exists(shared, path));
    }
    let mut parent = path.parent();
    while !parent.is_root() {
        if shared.documents.kind(shared, &parent)? == Some(NodeKind::Array) {
            return Err(Error::invalid(format!(
                "{path:?} would lie inside the array {parent:?}; choose another name"
            )));
        }
        parent = parent.parent();
    }
    // Who has died while it was made has left its lock, where nothing dies with its holder.
    match shared.storage.try_lock_of_dead(path) {
        Err(error) if error.is_not_found() => return Ok(()),
        outcome => outcome?.map(drop).ok_or_else(|| in_use(shared, path))?,
    }
    if !shared.storage.list(path)?.is_empty() {
        shared.storage.delete_tree(path, shared.options.durability)?;
    }
    Ok(())
}

fn in_use(shared: &Shared, path: &ObjectPath) -> Error {
    Error::new(
        ErrorKind::Conflict,
        format!("{} is being created by another writer; open it later", shared.name_of(path)),
    )
}

/// Names of Zarr's own documents, of both formats: nothing else can have them.
const DOCUMENTS: [&str; 5] = [ZARR_JSON, ".zarray", ".zgroup", ".zattrs", ".zmetadata"];

/// Fails if no array or group can have this name, or these attributes.
pub(crate) fn check_new(
    shared: &Shared,
    path: &ObjectPath,
    attributes: &impl serde::Serialize,
) -> Result<()> {
    if let Some(name) = path.as_str().split('/').find(|name| DOCUMENTS.contains(name)) {
        return Err(Error::invalid(format!(
            "no array or group can be called {path:?}: {name:?} is a document of Zarr; choose another \
             name"
        )));
    }
    check_attributes(shared, path, attributes)
}

pub(crate) fn check_attributes(
    shared: &Shared,
    path: &ObjectPath,
    attributes: &impl serde::Serialize,
) -> Result<()> {
    let bytes = serde_json::to_vec(attributes).map_or(u64::MAX, |bytes| bytes.len() as u64);
    let limit = shared.options.limits.attributes_bytes_max;
    if bytes <= limit {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::LimitExceeded,
        format!("the attributes of {path:?} have {bytes} bytes, over the limit of {limit}"),
    ))
}

/// The key of the store; one is made for a store that another tool wrote last.
pub(crate) fn store_key(shared: &Shared) -> Result<[u8; 16]> {
    let root = shared.documents.read_root(shared)?.ok_or_else(|| not_a_group(shared))?;
    if let Some(key) = root.group.store {
        return Ok(key);
    }
    let key = random_key()?;
    publish_root(shared, &root, &key, consolidated(shared, &root)?, RootChange::default())?;
    Ok(key)
}

/// Says in the store's document what there is of a log. Durable on return. The caller holds the store's
/// lock.
pub(crate) fn set_log_state(shared: &Shared, log: LogState) -> Result<()> {
    let key = store_key(shared)?;
    let root = shared.documents.read_root(shared)?.ok_or_else(|| not_a_group(shared))?;
    if root.group.log == log {
        return Ok(());
    }
    let change = RootChange { log: Some(log), ..RootChange::default() };
    publish_root(shared, &root, &key, consolidated(shared, &root)?, change)
}

/// What is to become different in the root's document, beside what it says of arrays and groups.
#[derive(Default)]
pub(crate) struct RootChange<'a> {
    pub(crate) attributes: Option<&'a Map<String, Value>>,
    pub(crate) log: Option<LogState>,
}

/// The documents of everything below the root; put together for a store of another tool.
fn consolidated(shared: &Shared, root: &GroupState) -> Result<Map<String, Value>> {
    if let Some(documents) = &root.group.consolidated {
        return Ok(documents.clone());
    }
    let mut documents = Map::new();
    for path in shared.documents.nodes(shared)?.keys() {
        documents.insert(path.as_str().to_owned(), own_document(shared, path)?);
    }
    Ok(documents)
}

/// Publishes the root's document. Our own key comes before anything of the user's, which is where
/// [`bedform_format::metadata::seal`] looks for it.
fn publish_root(
    shared: &Shared,
    root: &GroupState,
    key: &[u8; 16],
    documents: Map<String, Value>,
    change: RootChange<'_>,
) -> Result<()> {
    let mut sorted: Vec<(String, Value)> = documents.into_iter().collect();
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    let mut document = Map::new();
    document.insert("zarr_format".to_owned(), json!(3));
    document.insert("node_type".to_owned(), json!("group"));
    let log = change.log.unwrap_or(root.group.log);
    let consolidated = write_consolidated(key, log, Map::from_iter(sorted));
    document.insert("consolidated_metadata".to_owned(), consolidated);
    if let Some(attributes) = change.attributes {
        document.insert("attributes".to_owned(), Value::Object(attributes.clone()));
    }
    let Value::Object(rest) = &root.document else { return Err(not_a_group(shared)) };
    for (name, value) in rest {
        if !document.contains_key(name) {
            document.insert(name.clone(), value.clone());
        }
    }
    publish(shared, &ObjectPath::root(), Value::Object(document))
}

fn not_a_group(shared: &Shared) -> Error {
    Error::invalid(format!(
        "{} is a single array, not a group; open the directory above it",
        shared.storage.name()
    ))
}

/// Publishes the root's document with the documents of `added` (and of missing groups above them)
/// in its consolidated metadata, and without those of `removed` and all below. The caller holds the
/// store's lock. This is the commit.
pub(crate) fn commit(shared: &Shared, added: &[ObjectPath], removed: &[ObjectPath]) -> Result<()> {
    let added = added.iter().map(|path| (path.clone(), None)).collect();
    commit_all(shared, added, removed, RootChange::default())
}

/// A new or changed node, with its document if that is at hand; else it is read.
pub(crate) type Added = (ObjectPath, Option<Value>);

/// As [`commit`], with what else is to become different in the root's document.
pub(crate) fn commit_all(
    shared: &Shared,
    added: Vec<Added>,
    removed: &[ObjectPath],
    change: RootChange<'_>,
) -> Result<()> {
    let root = shared.documents.read_root(shared)?.ok_or_else(|| not_a_group(shared))?;
    let mut documents = consolidated(shared, &root)?;
    let gone = |path: &str| {
        ObjectPath::parse(path)
            .is_ok_and(|path| removed.iter().any(|removed| path.is_within(removed)))
    };
    documents.retain(|path, _| !gone(path));
    let mut groups = BTreeSet::new();
    for (path, document) in added {
        let document = document.map_or_else(|| own_document(shared, &path), Ok)?;
        documents.insert(path.as_str().to_owned(), document);
        let mut parent = path.parent();
        while !parent.is_root() {
            groups.insert(parent.clone());
            parent = parent.parent();
        }
    }
    let store = match root.group.store {
        Some(key) => key,
        None => random_key()?,
    };
    for group in groups.iter().filter(|group| !documents.contains_key(group.as_str())) {
        if read(shared, group, "zarr.json")?.is_none() {
            publish(shared, group, write_group(&store, &Map::new(), None))?;
        }
    }
    for group in &groups {
        if !documents.contains_key(group.as_str()) {
            documents.insert(group.as_str().to_owned(), own_document(shared, group)?);
        }
    }
    publish_root(shared, &root, &store, documents, change)
}

/// Fails unless `document`, at `path`, is that of the array with `key`: somebody may have deleted
/// the array and created another one of that name.
pub(crate) fn check_key(
    shared: &Shared,
    path: &ObjectPath,
    document: &Value,
    key: &[u8; 16],
) -> Result<()> {
    let found = document.get("bedform").and_then(|own| own.get("array")).and_then(Value::as_str);
    if found == Some(hex(key).as_str()) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Conflict,
        format!("{} was replaced by another writer; open it again", shared.name_of(path)),
    ))
}

fn own_document(shared: &Shared, path: &ObjectPath) -> Result<Value> {
    read(shared, path, "zarr.json")?.map(|stored| stored.document).ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("{}/zarr.json is gone", shared.name_of(path)))
    })
}

/// See [`Store::set_attributes`].
pub(crate) fn set_attributes(
    shared: &Shared,
    path: &ObjectPath,
    attributes: Map<String, Value>,
) -> Result<()> {
    shared.check_writable()?;
    check_attributes(shared, path, &attributes)?;
    let _lock = shared.lock(&ObjectPath::root())?;
    if shared.documents.kind(shared, path)?.is_none() {
        return Err(Error::new(
            ErrorKind::NotFound,
            format!("no array or group {path:?} in {}", shared.storage.name()),
        ));
    }
    let mut document = match node_type(&own_document(shared, path)?) {
        Some("array") => shared.documents.array(shared, path)?.document,
        _ => own_document(shared, path)?,
    };
    document["attributes"] = Value::Object(attributes);
    publish(shared, path, document)?;
    if path.is_root() { Ok(()) } else { commit(shared, std::slice::from_ref(path), &[]) }
}
