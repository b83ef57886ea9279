//! Publication of metadata: checks before a name is taken, and the store's document, which makes
//! changes visible.
//!
//! The order of publication decides what a reader may believe:
//!
//! 1. shards, each whole, under their final names;
//! 2. the array's `zarr.json`;
//! 3. the store's `zarr.json`, whose consolidated metadata name every array and its shape.
//!
//! Step 3 is the commit. If an array's own document is ahead of the consolidated one, its commit is
//! under way or was cut off by a crash. Then the consolidated document counts, provided that both
//! are sealed: Bedform was the last to write the array's document. A document that another tool
//! rewrote counts as it is. All changes of metadata happen under the store's lock, all changes of a
//! shape under the array's. Locks are taken in this order: arrays by path, then the store.

use std::collections::BTreeSet;

use bedform_format::ObjectPath;
use bedform_format::json::{JsonText, ObjectText, Texts};
use bedform_format::metadata::{
    GroupTexts, LogState, Replacing, hex, seal_with, write_consolidated, write_group,
};
use bedform_storage::Lock;
use serde_json::{Map, Value, json};

use super::documents::{
    GroupState, StoredDocument, ZARR_JSON, node_type, publish, publish_bytes, read,
};
use super::hierarchy::Hierarchy;
use super::nodes::NodeKind;
use crate::error::{Error, ErrorKind, Result};
use crate::publication::put_back;

/// Draws a random 128-bit key from the operating system.
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

/// Arrays whose locks a deletion holds at a time: each lock takes two of the process's file
/// descriptors.
const LOCKED_MAX: usize = 128;

/// Locks the arrays at and below `path`, once no append to them is under way. The locks keep later
/// appends from starting, so that none writes into a new array of the same name.
pub(crate) fn lock_arrays(hierarchy: &Hierarchy, path: &ObjectPath) -> Result<Vec<Box<dyn Lock>>> {
    let arrays: Vec<ObjectPath> = match hierarchy.documents.kind(hierarchy, path)? {
        Some(NodeKind::Array) => vec![path.clone()],
        None => Vec::new(),
        Some(NodeKind::Group) => {
            let mut nodes = hierarchy.documents.nodes(hierarchy)?;
            nodes.retain(|other, kind| *kind == NodeKind::Array && other.is_within(path));
            nodes.into_keys().collect()
        }
    };
    let mut locks = Vec::with_capacity(arrays.len().min(LOCKED_MAX));
    // All holders of several locks take them in the order of paths, so that no two wait for each
    // other.
    for array in &arrays {
        match hierarchy.lock(array) {
            Ok(lock) if locks.len() < LOCKED_MAX => locks.push(lock),
            Ok(_) => {}
            // Another program has removed it, and the store still names it.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(locks)
}

pub(crate) fn exists(hierarchy: &Hierarchy, path: &ObjectPath) -> Error {
    Error::new(
        ErrorKind::Exists,
        format!("{} exists already; open it, or choose another name", hierarchy.name_of(path)),
    )
}

/// Fails if something visible is at `path`; removes the remains of a crashed creation or deletion.
pub(crate) fn check_free(hierarchy: &Hierarchy, path: &ObjectPath) -> Result<()> {
    if path.is_root() {
        return Err(exists(hierarchy, path));
    }
    if hierarchy.documents.kind(hierarchy, path)?.is_some() {
        return Err(exists(hierarchy, path));
    }
    let mut parent = path.parent();
    while !parent.is_root() {
        if hierarchy.documents.kind(hierarchy, &parent)? == Some(NodeKind::Array) {
            return Err(Error::invalid(format!(
                "{path:?} would lie inside the array {parent:?}; choose another name"
            )));
        }
        parent = parent.parent();
    }
    // The lock of a creator that died may remain, on storage where locks outlive their holder.
    match hierarchy.storage.try_lock_of_dead(path) {
        Err(error) if error.is_not_found() => return Ok(()),
        outcome => outcome?.map(drop).ok_or_else(|| in_use(hierarchy, path))?,
    }
    if !hierarchy.storage.list(path)?.is_empty() {
        hierarchy.storage.delete_tree(path, hierarchy.options.durability)?;
    }
    Ok(())
}

pub(crate) fn in_use(hierarchy: &Hierarchy, path: &ObjectPath) -> Error {
    Error::new(
        ErrorKind::Conflict,
        format!("{} is being created by another writer; open it later", hierarchy.name_of(path)),
    )
}

/// Names of Zarr's own documents, in both formats: no array or group may have them.
const DOCUMENTS: [&str; 5] = [ZARR_JSON, ".zarray", ".zgroup", ".zattrs", ".zmetadata"];

/// Fails if no array or group can have this name or these attributes.
pub(crate) fn check_new(
    hierarchy: &Hierarchy,
    path: &ObjectPath,
    attributes: &Map<String, Value>,
) -> Result<()> {
    if let Some(name) = path.as_str().split('/').find(|name| DOCUMENTS.contains(name)) {
        return Err(Error::invalid(format!(
            "no array or group can be called {path:?}: {name:?} is a document of Zarr; choose another \
             name"
        )));
    }
    check_new_attributes(hierarchy, path, attributes)
}

/// Fails if no array or group can have these attributes.
pub(crate) fn check_new_attributes(
    hierarchy: &Hierarchy,
    path: &ObjectPath,
    attributes: &Map<String, Value>,
) -> Result<()> {
    let limits = &hierarchy.options.limits;
    let depth_max = limits.metadata_depth_max.saturating_sub(LEVELS_ABOVE);
    if !is_within_depth(attributes.values(), depth_max) {
        return Err(Error::new(
            ErrorKind::LimitExceeded,
            format!("the attributes of {path:?} are nested deeper than {depth_max} levels"),
        ));
    }
    let text = ObjectText::from(attributes);
    check_attributes(hierarchy, path, &text)?;
    // So few bytes hold no more values than a reader accepts.
    if limits.attributes_values_bytes_max(0) / VALUE_BYTES_MAX > text.as_str().len() as u64 {
        return Ok(());
    }
    attribute_values(hierarchy, path, &text).map(drop)
}

/// The most levels above attributes in a document that repeats those of other nodes.
const LEVELS_ABOVE: usize = 8;

/// True if `values` have at most so many levels of lists and objects. Parsing has limited the
/// depth, so that this recursion ends.
fn is_within_depth<'v>(mut values: impl Iterator<Item = &'v Value>, depth_max: usize) -> bool {
    values.all(|value| match (value, depth_max.checked_sub(1)) {
        (Value::Array(_) | Value::Object(_), None) => false,
        (Value::Array(list), Some(rest)) => is_within_depth(list.iter(), rest),
        (Value::Object(object), Some(rest)) => is_within_depth(object.values(), rest),
        _ => true,
    })
}

/// Fails if the attributes have more bytes than the limit.
pub(crate) fn check_attributes(
    hierarchy: &Hierarchy,
    path: &ObjectPath,
    attributes: &ObjectText,
) -> Result<()> {
    let limit = hierarchy.options.limits.attributes_bytes_max;
    // Escapes only make a text longer.
    if attributes.as_str().len() as u64 <= limit {
        return Ok(());
    }
    match attributes.written_bytes() {
        bytes if bytes > limit => Err(Error::new(
            ErrorKind::LimitExceeded,
            format!("the attributes of {path:?} have {bytes} bytes, over the limit of {limit}"),
        )),
        _ => Ok(()),
    }
}

/// The most bytes of memory that one byte of a document takes once parsed.
const VALUE_BYTES_MAX: u64 = 128;

/// Parses the attributes of the node at `path`.
///
/// # Errors
/// `LimitExceeded` for values that would take far more memory than the text; `Corrupt` for a key
/// that appears twice.
pub(crate) fn attribute_values(
    hierarchy: &Hierarchy,
    path: &ObjectPath,
    attributes: &ObjectText,
) -> Result<Map<String, Value>> {
    attributes.parse(&hierarchy.options.limits).map_err(|error| {
        Error::metadata(format!("the attributes of {}", hierarchy.name_of(path)), error.into())
    })
}

/// Returns the key of the store; makes one for a store that another tool wrote last.
pub(crate) fn store_key(hierarchy: &Hierarchy) -> Result<[u8; 16]> {
    let root = hierarchy.documents.read_root(hierarchy)?.ok_or_else(|| not_a_group(hierarchy))?;
    if let Some(key) = root.group.store {
        return Ok(key);
    }
    let key = random_key()?;
    publish_root(hierarchy, &root, &key, consolidated(hierarchy, &root)?, RootChange::default())?;
    Ok(key)
}

/// Records the state of the log in the store's document. Durable on return. The caller holds the
/// store's lock.
pub(crate) fn set_log_state(hierarchy: &Hierarchy, log: LogState) -> Result<()> {
    let key = store_key(hierarchy)?;
    let root = hierarchy.documents.read_root(hierarchy)?.ok_or_else(|| not_a_group(hierarchy))?;
    if root.group.log == log {
        return Ok(());
    }
    let change = RootChange { log: Some(log), ..RootChange::default() };
    publish_root(hierarchy, &root, &key, consolidated(hierarchy, &root)?, change)
}

/// Notes in the store's document that a group is about to take another one's place, if `is_needed`
/// returns true for the current documents. Returns whether it did. The caller holds the store's
/// lock.
pub(super) fn note_replacing(
    hierarchy: &Hierarchy,
    replacing: &Replacing,
    is_needed: impl FnOnce(&Texts) -> Result<bool>,
) -> Result<bool> {
    let key = store_key(hierarchy)?;
    let root = hierarchy.documents.read_root(hierarchy)?.ok_or_else(|| not_a_group(hierarchy))?;
    let documents = consolidated(hierarchy, &root)?;
    if !is_needed(&documents)? {
        return Ok(false);
    }
    let change = RootChange { replacing: Some(replacing), ..RootChange::default() };
    publish_root(hierarchy, &root, &key, documents, change)?;
    Ok(true)
}

/// Changes of the root's document besides those of arrays and groups.
#[derive(Default)]
pub(crate) struct RootChange<'a> {
    pub(crate) attributes: Option<&'a Map<String, Value>>,
    pub(crate) log: Option<LogState>,
    /// A group that is about to take another one's place.
    pub(crate) replacing: Option<&'a Replacing>,
}

/// The documents of everything below the root; collected from the nodes for a store of another
/// tool.
fn consolidated(hierarchy: &Hierarchy, root: &GroupState) -> Result<Texts> {
    if let Some(documents) = &root.group.consolidated {
        return Ok(documents.clone());
    }
    let mut documents = Texts::new();
    for path in hierarchy.documents.nodes(hierarchy)?.keys() {
        insert(&mut documents, path, &own_document(hierarchy, path)?);
    }
    Ok(documents)
}

/// Levels of a store's document above those in its consolidated metadata.
const DEPTH: usize = 3;

fn insert(documents: &mut Texts, path: &ObjectPath, document: &Value) {
    documents.insert(path.as_str().to_owned(), JsonText::of(document, DEPTH));
}

/// Publishes the root's document. Bedform's own key comes before the user's, because
/// [`bedform_format::metadata::seal`] looks for it there.
fn publish_root(
    hierarchy: &Hierarchy,
    root: &GroupState,
    key: &[u8; 16],
    documents: Texts,
    change: RootChange<'_>,
) -> Result<()> {
    if let Some(replacing) = &root.group.replacing {
        // A crash may have interrupted an exchange that takes two steps.
        put_back(&*hierarchy.storage, &ObjectPath::parse(&replacing.group)?)?;
    }
    let mut document = Map::new();
    document.insert("zarr_format".to_owned(), json!(3));
    document.insert("node_type".to_owned(), json!("group"));
    let log = change.log.unwrap_or(root.group.log);
    let mut consolidated = write_consolidated(key, log, Map::new());
    let mut texts = GroupTexts { consolidated: Some(documents), replacing: None };
    if let Some(replacing) = change.replacing {
        consolidated["replacing"] = replacing.to_value();
        texts.replacing = Some(replacing.metadata.clone());
    }
    document.insert("consolidated_metadata".to_owned(), consolidated);
    if let Some(attributes) = change.attributes {
        document.insert("attributes".to_owned(), Value::Object(attributes.clone()));
    }
    let Value::Object(rest) = &root.document else { return Err(not_a_group(hierarchy)) };
    for (name, value) in rest {
        if !document.contains_key(name) {
            document.insert(name.clone(), value.clone());
        }
    }
    let bytes = seal_with(Value::Object(document), &texts.kept());
    publish_bytes(hierarchy, &ObjectPath::root(), &bytes, hierarchy.options.durability).map(drop)
}

fn not_a_group(hierarchy: &Hierarchy) -> Error {
    Error::invalid(format!(
        "{} is a single array, not a group; open the directory above it",
        hierarchy.storage.name()
    ))
}

/// Publishes the root's document with the documents of `added` (and of missing groups above them)
/// in its consolidated metadata, and without those at and below `removed`. This is the commit. The
/// caller holds the store's lock.
pub(crate) fn commit(
    hierarchy: &Hierarchy,
    added: &[ObjectPath],
    removed: &[ObjectPath],
) -> Result<()> {
    let added = added.iter().map(|path| (path.clone(), None)).collect();
    commit_all(hierarchy, added, removed, RootChange::default())
}

/// A new or changed node, with its document if the caller has it; otherwise it is read.
pub(crate) type NodeUpdate = (ObjectPath, Option<Value>);

/// As [`commit`], with further changes of the root's document.
pub(crate) fn commit_all(
    hierarchy: &Hierarchy,
    added: Vec<NodeUpdate>,
    removed: &[ObjectPath],
    change: RootChange<'_>,
) -> Result<()> {
    let root = hierarchy.documents.read_root(hierarchy)?.ok_or_else(|| not_a_group(hierarchy))?;
    let mut documents = consolidated(hierarchy, &root)?;
    let gone = |path: &str| {
        ObjectPath::parse(path)
            .is_ok_and(|path| removed.iter().any(|removed| path.is_within(removed)))
    };
    documents.retain(|path, _| !gone(path));
    let mut groups = BTreeSet::new();
    for (path, document) in added {
        let document = document.map_or_else(|| own_document(hierarchy, &path), Ok)?;
        insert(&mut documents, &path, &document);
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
        if read(hierarchy, group, "zarr.json")?.is_none() {
            publish(hierarchy, group, write_group(&store, &Map::new(), None))?;
        }
    }
    for group in &groups {
        if !documents.contains_key(group.as_str()) {
            insert(&mut documents, group, &own_document(hierarchy, group)?);
        }
    }
    publish_root(hierarchy, &root, &store, documents, change)
}

/// Fails unless `document`, at `path`, is that of the array with `key`: another writer may have
/// deleted the array and created one of the same name.
pub(crate) fn check_key(
    hierarchy: &Hierarchy,
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
        format!("{} was replaced by another writer; open it again", hierarchy.name_of(path)),
    ))
}

/// Reads the whole document at `path`, with the consolidated documents of a group.
pub(crate) fn own_document(hierarchy: &Hierarchy, path: &ObjectPath) -> Result<Value> {
    let StoredDocument { mut document, texts, .. } = own_stored(hierarchy, path)?;
    let inserted = texts.insert_into(&mut document, &hierarchy.options.limits);
    inserted.map_err(|error| Error::metadata(hierarchy.name_of(path), error))?;
    Ok(document)
}

fn own_stored(hierarchy: &Hierarchy, path: &ObjectPath) -> Result<StoredDocument> {
    read(hierarchy, path, ZARR_JSON)?.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("{}/zarr.json is gone", hierarchy.name_of(path)))
    })
}

/// See [`Store::set_attributes`].
pub(crate) fn set_attributes(
    hierarchy: &Hierarchy,
    path: &ObjectPath,
    attributes: Map<String, Value>,
) -> Result<()> {
    hierarchy.check_writable()?;
    check_new_attributes(hierarchy, path, &attributes)?;
    let _lock = hierarchy.lock(&ObjectPath::root())?;
    if hierarchy.documents.kind(hierarchy, path)?.is_none() {
        return Err(Error::new(
            ErrorKind::NotFound,
            format!("no array or group {path:?} in {}", hierarchy.storage.name()),
        ));
    }
    let StoredDocument { mut document, texts, .. } = own_stored(hierarchy, path)?;
    if node_type(&document) == Some("array") {
        document = hierarchy.documents.array(hierarchy, path)?.document;
    }
    document["attributes"] = Value::Object(attributes);
    let bytes = seal_with(document, &texts.kept());
    publish_bytes(hierarchy, path, &bytes, hierarchy.options.durability)?;
    if path.is_root() { Ok(()) } else { commit(hierarchy, std::slice::from_ref(path), &[]) }
}
