//! Small workloads of local files, in which tests make every step fail.

use std::collections::BTreeMap;

use bedform_format::ObjectPath;

use super::{get, path, put, put_at};
use crate::file_system::{LinkPolicy, uninterrupted};
use crate::{
    CallKind, Condition, Durability, FileSystem, GrowingObject, LocalStorage, Mode,
    SimulatedFileSystem, Staging, Storage, StorageError, StorageErrorKind, TreePublication,
    WorkspaceName,
};

pub(super) type Local = LocalStorage<SimulatedFileSystem>;
/// Objects by name, with their bytes.
pub(super) type ObjectView = BTreeMap<String, Vec<u8>>;

/// A workload: a prepared state and the steps under test.
pub(super) struct Script {
    pub(super) name: &'static str,
    pub(super) prepare: fn(&Local) -> Result<(), StorageError>,
    /// The steps. They note the synced bytes of growing objects in the view.
    pub(super) act: fn(&Local, &mut ObjectView) -> Result<(), StorageError>,
    /// Two objects of which the first is new wherever the second is new.
    pub(super) order: Option<(&'static str, &'static str)>,
    /// The workload grows segments, of which only synced bytes are checked.
    pub(super) grows: bool,
    /// Objects of a tree that the workload publishes: all are old, or all are new.
    pub(super) tree: &'static [&'static str],
}

const OLD: &[u8] = b"old";
const NEW: &[u8] = b"the new bytes";

fn nothing(_: &Local) -> Result<(), StorageError> {
    Ok(())
}

fn old(storage: &Local) -> Result<(), StorageError> {
    put(storage, "a", OLD, Condition::None).map(drop)
}

fn large() -> Vec<u8> {
    (0..30_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// All workloads.
pub(super) const SCRIPTS: &[Script] = &[
    Script {
        name: "create",
        prepare: nothing,
        act: |storage, _| put(storage, "a", NEW, Condition::Absent).map(drop),
        order: None,
        grows: false,
        tree: &[],
    },
    Script {
        name: "create below new directories",
        prepare: nothing,
        act: |storage, _| put(storage, "x/y/z/a", NEW, Condition::Absent).map(drop),
        order: None,
        grows: false,
        tree: &[],
    },
    Script {
        name: "create where renaming replaces",
        prepare: |storage| {
            storage.system().remove_feature(CallKind::Rename);
            Ok(())
        },
        act: |storage, _| put(storage, "a", NEW, Condition::Absent).map(drop),
        order: None,
        grows: false,
        tree: &[],
    },
    Script {
        name: "write what is not there",
        prepare: nothing,
        act: |storage, _| put(storage, "x/a", NEW, Condition::None).map(drop),
        order: None,
        grows: false,
        tree: &[],
    },
    Script {
        name: "replace",
        prepare: old,
        act: |storage, _| put(storage, "a", NEW, Condition::None).map(drop),
        order: None,
        grows: false,
        tree: &[],
    },
    Script {
        name: "replace what is unchanged",
        prepare: old,
        act: |storage, _| {
            let object = storage.open(&path("a"))?;
            put(storage, "a", NEW, Condition::Unchanged(&*object)).map(drop)
        },
        order: None,
        grows: false,
        tree: &[],
    },
    Script {
        name: "read and replace with more",
        prepare: old,
        act: |storage, _| {
            let mut bytes = get(storage, "a")?;
            bytes.resize(3, 0);
            bytes.extend_from_slice(&large());
            put(storage, "a", &bytes, Condition::None).map(drop)
        },
        order: None,
        grows: false,
        tree: &[],
    },
    Script {
        name: "create a large object",
        prepare: nothing,
        act: |storage, _| put(storage, "x/a", &large(), Condition::Absent).map(drop),
        order: None,
        grows: false,
        tree: &[],
    },
    Script {
        name: "create in a directory that was not synced",
        prepare: |storage| {
            put_at(storage, "x/y/b", OLD, Condition::None, Durability::Process)?;
            storage.delete(&path("x/y/b"), Durability::Disk, Condition::None)
        },
        act: |storage, _| put(storage, "x/y/a", NEW, Condition::Absent).map(drop),
        order: None,
        grows: false,
        tree: &[],
    },
    Script {
        name: "delete",
        prepare: old,
        act: |storage, _| storage.delete(&path("a"), Durability::Disk, Condition::None),
        order: None,
        grows: false,
        tree: &[],
    },
    Script {
        name: "delete what is unchanged",
        prepare: old,
        act: |storage, _| {
            let object = storage.open(&path("a"))?;
            storage.delete(&path("a"), Durability::Disk, Condition::Unchanged(&*object))
        },
        order: None,
        grows: false,
        tree: &[],
    },
    Script {
        name: "a segment, then the root that names it",
        prepare: |storage| put(storage, "roots/1", OLD, Condition::Absent).map(drop),
        act: |storage, _| {
            put(storage, "segments/1", &large(), Condition::None)?;
            put(storage, "roots/2", NEW, Condition::Absent).map(drop)
        },
        order: Some(("segments/1", "roots/2")),
        grows: false,
        tree: &[],
    },
    Script {
        name: "a segment that grows, then the root that names it",
        prepare: nothing,
        act: |storage, synced| {
            let mut segment = GrownSegment::grow(storage, "")?;
            segment.append(NEW)?;
            segment.sync(synced)?;
            segment.append(&large())?;
            segment.sync(synced)?;
            segment.append(OLD)?;
            segment.append(&large()[..5000])?;
            segment.sync(synced)?;
            put(storage, "roots/1", NEW, Condition::Absent).map(drop)
        },
        order: None,
        grows: true,
        tree: &[],
    },
    Script {
        name: "a segment and its root beside the store, then the store",
        prepare: old,
        act: |storage, synced| {
            let sibling = storage.sibling(SUFFIX)?;
            let mut segment = GrownSegment::grow(&*sibling, BESIDE)?;
            segment.append(&large()[..20_000])?;
            segment.sync(synced)?;
            segment.append(&large())?;
            put(&*sibling, "roots/1", NEW, Condition::None)?;
            put(storage, "a", NEW, Condition::None).map(drop)
        },
        order: Some(("beside: roots/1", "a")),
        grows: true,
        tree: &[],
    },
    Script {
        name: "write beside the store",
        prepare: nothing,
        act: |storage, _| put(&*storage.sibling(SUFFIX)?, "a", NEW, Condition::Absent).map(drop),
        order: None,
        grows: false,
        tree: &[],
    },
    Script {
        name: "delete what has grown",
        prepare: |storage| {
            let mut segment = GrownSegment::grow(storage, "")?;
            segment.append(&large())?;
            segment.sync(&mut ObjectView::new())
        },
        act: |storage, _| storage.delete(&path("segments/1"), Durability::Disk, Condition::None),
        order: None,
        grows: false,
        tree: &[],
    },
    Script {
        name: "delete what lies beside the store, then write to it",
        prepare: |storage| {
            let sibling = storage.sibling(SUFFIX)?;
            put(&*sibling, "roots/1", OLD, Condition::None)?;
            put(&*sibling, "a", OLD, Condition::None).map(drop)
        },
        act: |storage, _| {
            storage.sibling(SUFFIX)?.delete_tree(&path(""), Durability::Disk)?;
            put(storage, "a", NEW, Condition::None).map(drop)
        },
        order: Some(("beside: roots/1", "a")),
        grows: false,
        tree: &[],
    },
    Script {
        name: "publish a tree",
        prepare: nothing,
        act: |storage, _| publish_tree(storage, "x", "x/t", TreePublication::Absent),
        order: None,
        grows: false,
        tree: &["x/t/a", "x/t/b/c"],
    },
    Script {
        name: "publish a tree from another directory, which was taken up",
        prepare: |storage| put(storage, ".partial/plan", OLD, Condition::Absent).map(drop),
        act: |storage, _| {
            let name = WorkspaceName::Resumable(".partial");
            let workspace = storage.workspace(&path(""), name)?.expect("nobody else works there");
            stage(storage, &path(".partial/store"))?;
            let (staged, target) = (path(".partial/store"), path("t"));
            storage.publish_tree(&staged, &target, TreePublication::Absent, Durability::Disk)?;
            workspace.remove()
        },
        order: Some(("t/a", ".partial/plan")),
        grows: false,
        tree: &["t/a", "t/b/c"],
    },
    Script {
        name: "publish an object that a library has written",
        prepare: nothing,
        act: |storage, _| publish_object(storage),
        order: None,
        grows: false,
        tree: &["x/a"],
    },
    Script {
        name: "publish such an object where renaming replaces",
        prepare: |storage| {
            storage.system().remove_feature(CallKind::Rename);
            Ok(())
        },
        act: |storage, _| publish_object(storage),
        order: None,
        grows: false,
        tree: &["x/a"],
    },
    Script {
        name: "exchange a tree",
        prepare: |storage| {
            put(storage, "g/t/a", OLD, Condition::Absent)?;
            put(storage, "g/t/d", OLD, Condition::Absent).map(drop)
        },
        act: |storage, _| publish_tree(storage, "", "g/t", TreePublication::Exchange),
        order: None,
        grows: false,
        tree: &["g/t/a", "g/t/b/c", "g/t/d"],
    },
];

/// Publishes a file that was written into a workspace without a sync, as a library would.
fn publish_object(storage: &Local) -> Result<(), StorageError> {
    let workspace = storage.workspace(&path(""), WorkspaceName::Unique)?;
    let workspace = workspace.expect("a name of its own");
    let fail = |error| StorageError::from_io("write", workspace.path(), error);
    let write = || {
        let (system, place) = (storage.system(), workspace.path().as_str());
        let directory = uninterrupted(|| system.open_directory(place, LinkPolicy::Refuse))?;
        let file = uninterrupted(|| system.create_file(&directory, "file"))?;
        let (bytes, mut done) = (large(), 0);
        while done < bytes.len() {
            done += uninterrupted(|| system.write_at(&file, done as u64, &bytes[done..]))?;
        }
        match system.close(file) {
            // It is closed all the same.
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Ok(()),
            outcome => outcome,
        }
    };
    write().map_err(fail)?;
    let staged = workspace.path().join("file").unwrap();
    storage.publish_object(&staged, &path("x/a"), Durability::Disk)
}

/// Writes a tree of two objects.
fn stage(storage: &Local, staged: &ObjectPath) -> Result<(), StorageError> {
    let tree = storage.within(staged)?;
    put(&*tree, "a", NEW, Condition::None)?;
    put(&*tree, "b/c", &large(), Condition::None).map(drop)
}

/// Stages a tree in `directory` and publishes it.
fn publish_tree(
    storage: &Local,
    directory: &str,
    target: &str,
    how: TreePublication,
) -> Result<(), StorageError> {
    let workspace = storage.workspace(&path(directory), WorkspaceName::Unique)?;
    let staged = workspace.as_ref().expect("a name of its own").path().join("tree").unwrap();
    stage(storage, &staged)?;
    storage.publish_tree(&staged, &path(target), how, Durability::Disk)
}

const SUFFIX: &str = ".bedform-log";
/// The prefix, in a view, of names in the sibling storage.
const BESIDE: &str = "beside: ";

/// A growing object of a workload, with its expected bytes.
struct GrownSegment {
    object: Box<dyn GrowingObject>,
    name: String,
    bytes: Vec<u8>,
}

impl GrownSegment {
    /// Creates the first free segment in `storage`, whose objects have `prefix` in a view.
    fn grow(storage: &dyn Storage, prefix: &str) -> Result<Self, StorageError> {
        let mut number = 1;
        loop {
            let name = format!("segments/{number}");
            match storage.grow(&path(&name), Durability::Disk, None) {
                Err(error) if error.kind == StorageErrorKind::Exists => number += 1,
                outcome => {
                    let (object, name) = (outcome?, format!("{prefix}{name}"));
                    return Ok(Self { object, name, bytes: Vec::new() });
                }
            }
        }
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        self.bytes.extend_from_slice(bytes);
        self.object.append(bytes)
    }

    fn sync(&mut self, synced: &mut ObjectView) -> Result<(), StorageError> {
        self.object.sync()?;
        self.bytes.resize(usize::try_from(self.object.position()).unwrap(), 0);
        synced.insert(self.name.clone(), self.bytes.clone());
        Ok(())
    }
}

/// Returns a storage on `system` whose objects are staged as large ones above 8,192 bytes.
pub(super) fn storage(system: &SimulatedFileSystem) -> Local {
    let staging = Staging {
        small_bytes_max: 8192,
        block_bytes: 8192,
        blocks_max: 2,
        writes_max: 2,
        reserve_bytes: 16_384,
        direct: true,
    };
    LocalStorage::over(system.clone(), Mode::ReadWrite, staging)
}

impl Script {
    /// Returns a new system on which this workload is prepared.
    pub(super) fn prepared(&self) -> Local {
        self.prepared_on(&SimulatedFileSystem::new())
    }

    pub(super) fn prepared_on(&self, system: &SimulatedFileSystem) -> Local {
        let storage = storage(system);
        (self.prepare)(&storage).expect("nothing fails yet");
        storage
    }

    /// Returns the views before and after the workload.
    pub(super) fn views(&self) -> (ObjectView, ObjectView) {
        let storage = self.prepared();
        let before = view(&storage);
        (self.act)(&storage, &mut ObjectView::new()).expect("nothing fails yet");
        let after = view(&storage);
        assert_ne!(before, after, "{}: the workload does nothing", self.name);
        (before, after)
    }

    /// Returns the number of calls of each kind that the workload makes.
    pub(super) fn calls(&self) -> Vec<(CallKind, u64)> {
        let storage = self.prepared();
        let count = |kind| storage.system().count(kind);
        let before = CallKind::ALL.map(count);
        (self.act)(&storage, &mut ObjectView::new()).expect("nothing fails yet");
        let made = |(kind, before): (CallKind, u64)| (kind, count(kind) - before);
        CallKind::ALL.into_iter().zip(before).map(made).collect()
    }

    /// True if the workload grows the object `name`, or stages it visibly.
    fn is_grown(&self, name: &str) -> bool {
        let is_staged = !self.tree.is_empty() && name.starts_with(".partial/");
        is_staged || (self.grows && name.contains("segments/"))
    }

    /// True if the two views are equal, except for growing objects.
    pub(super) fn is_same(&self, one: &ObjectView, other: &ObjectView) -> bool {
        let settled = |name: &&String| !self.is_grown(name);
        one.keys().chain(other.keys()).filter(settled).all(|name| one.get(name) == other.get(name))
    }

    /// Panics unless each object of `seen` is old or new; only new if the workload is done. Each
    /// growing object must begin with its synced bytes.
    pub(super) fn judge(
        &self,
        seen: &ObjectView,
        (before, after): (&ObjectView, &ObjectView),
        progress: &AcknowledgedSteps,
        story: &dyn Fn() -> String,
    ) {
        for (name, bytes) in &progress.synced {
            assert!(
                seen.get(name).is_some_and(|now| now.starts_with(bytes)),
                "{}, {}: of {name:?} {} bytes were synced, and are not there",
                self.name,
                story(),
                bytes.len(),
            );
        }
        let is_new = |name: &&&str| seen.get(**name) == after.get(**name);
        let new = self.tree.iter().filter(is_new).count();
        assert!(
            new == 0 || new == self.tree.len(),
            "{}, {}: a tree is published in parts",
            self.name,
            story()
        );
        let is_done = progress.is_done;
        let names = seen.keys().chain(before.keys()).chain(after.keys());
        for name in names.filter(|name| !self.is_grown(name)) {
            let now = seen.get(name);
            let is_new = now == after.get(name);
            let is_old = now == before.get(name) && !is_done;
            assert!(
                is_new || is_old,
                "{}, {}: {name:?} has {:?} bytes, and is neither old nor new, or old though done",
                self.name,
                story(),
                now.map(Vec::len),
            );
        }
        if let Some((first, second)) = self.order {
            let is_new = |name: &str| seen.get(name) == after.get(name);
            assert!(is_new(first) || !is_new(second), "{}, {}: order", self.name, story());
        }
    }
}

/// The acknowledged steps of a workload.
#[derive(Debug, Clone, Default)]
pub(super) struct AcknowledgedSteps {
    /// True if the whole workload was acknowledged.
    pub(super) is_done: bool,
    /// The acknowledged bytes of growing objects.
    pub(super) synced: ObjectView,
}

/// Returns all objects that a reader finds, in the store and its sibling.
pub(super) fn view(storage: &Local) -> ObjectView {
    let mut seen = ObjectView::new();
    look(storage, "", &mut seen);
    look(&*storage.sibling(SUFFIX).expect("the place beside"), BESIDE, &mut seen);
    seen
}

fn look(storage: &dyn Storage, prefix: &str, seen: &mut ObjectView) {
    let mut open = vec![path("")];
    while let Some(directory) = open.pop() {
        for entry in storage.list(&directory).expect("a listing") {
            let name = directory.join(&entry.name).unwrap();
            assert!(!entry.name.starts_with(".bedform"), "{name} is visible");
            if entry.is_directory {
                open.push(name);
            } else {
                let bytes = get(storage, name.as_str()).expect("an object");
                seen.insert(format!("{prefix}{name}"), bytes);
            }
        }
    }
}

/// True if a temporary name is left, in the store or its sibling.
pub(super) fn has_temporary(system: &SimulatedFileSystem) -> bool {
    let sibling = system.sibling(SUFFIX).expect("the place beside");
    let mut names = system.tree().into_keys().chain(sibling.tree().into_keys());
    names.any(|name| name.contains(".bedform-temp-"))
}

/// Sweeps every directory and panics if a temporary name is left.
pub(super) fn sweep_all(storage: &Local) {
    sweep(storage);
    sweep(&*storage.sibling(SUFFIX).expect("the place beside"));
    assert!(!has_temporary(storage.system()), "a sweep leaves a temporary name");
}

fn sweep(storage: &dyn Storage) {
    let mut open = vec![path("")];
    while let Some(directory) = open.pop() {
        storage.sweep(&directory).expect("a sweep");
        let entries = storage.list(&directory).expect("a listing").into_iter();
        open.extend(entries.filter(|e| e.is_directory).map(|e| directory.join(&e.name).unwrap()));
    }
}
