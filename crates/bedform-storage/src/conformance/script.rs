//! Small workloads of local files whose every step is made to fail.

use std::collections::BTreeMap;

use super::{get, path, put, put_at};
use crate::{
    CallKind, Condition, Durability, LocalStorage, Mode, SimulatedFileSystem, Staging, Storage,
    StorageError,
};

pub(super) type Local = LocalStorage<SimulatedFileSystem>;
/// Objects and their bytes.
pub(super) type View = BTreeMap<String, Vec<u8>>;

/// One workload: what is there before, and what is then done.
pub(super) struct Script {
    pub(super) name: &'static str,
    pub(super) prepare: fn(&Local) -> Result<(), StorageError>,
    pub(super) act: fn(&Local) -> Result<(), StorageError>,
    /// Where the second object is in its new state, the first one is, too.
    pub(super) order: Option<(&'static str, &'static str)>,
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
        act: |storage| put(storage, "a", NEW, Condition::Absent).map(drop),
        order: None,
    },
    Script {
        name: "create below new directories",
        prepare: nothing,
        act: |storage| put(storage, "x/y/z/a", NEW, Condition::Absent).map(drop),
        order: None,
    },
    Script {
        name: "create where renaming replaces",
        prepare: |storage| {
            storage.system().remove_feature(CallKind::Rename);
            Ok(())
        },
        act: |storage| put(storage, "a", NEW, Condition::Absent).map(drop),
        order: None,
    },
    Script {
        name: "write what is not there",
        prepare: nothing,
        act: |storage| put(storage, "x/a", NEW, Condition::None).map(drop),
        order: None,
    },
    Script {
        name: "replace",
        prepare: old,
        act: |storage| put(storage, "a", NEW, Condition::None).map(drop),
        order: None,
    },
    Script {
        name: "replace what is unchanged",
        prepare: old,
        act: |storage| {
            let object = storage.open(&path("a"))?;
            put(storage, "a", NEW, Condition::Unchanged(&*object)).map(drop)
        },
        order: None,
    },
    Script {
        name: "read and replace with more",
        prepare: old,
        act: |storage| {
            let mut bytes = get(storage, "a")?;
            bytes.resize(3, 0);
            bytes.extend_from_slice(&large());
            put(storage, "a", &bytes, Condition::None).map(drop)
        },
        order: None,
    },
    Script {
        name: "create a large object",
        prepare: nothing,
        act: |storage| put(storage, "x/a", &large(), Condition::Absent).map(drop),
        order: None,
    },
    Script {
        name: "create in a directory that was not synced",
        prepare: |storage| {
            put_at(storage, "x/y/b", OLD, Condition::None, Durability::Process)?;
            storage.delete(&path("x/y/b"), Durability::Disk, Condition::None)
        },
        act: |storage| put(storage, "x/y/a", NEW, Condition::Absent).map(drop),
        order: None,
    },
    Script {
        name: "delete",
        prepare: old,
        act: |storage| storage.delete(&path("a"), Durability::Disk, Condition::None),
        order: None,
    },
    Script {
        name: "delete what is unchanged",
        prepare: old,
        act: |storage| {
            let object = storage.open(&path("a"))?;
            storage.delete(&path("a"), Durability::Disk, Condition::Unchanged(&*object))
        },
        order: None,
    },
    Script {
        name: "a segment, then the root that names it",
        prepare: |storage| put(storage, "roots/1", OLD, Condition::Absent).map(drop),
        act: |storage| {
            put(storage, "segments/1", &large(), Condition::None)?;
            put(storage, "roots/2", NEW, Condition::Absent).map(drop)
        },
        order: Some(("segments/1", "roots/2")),
    },
];

/// Storage on `system` whose objects are large from 8,192 bytes on.
pub(super) fn storage(system: &SimulatedFileSystem) -> Local {
    let staging = Staging {
        small_bytes_max: 8192,
        block_bytes: 8192,
        blocks_max: 2,
        reserve_bytes: 16_384,
        direct: true,
    };
    LocalStorage::over(system.clone(), Mode::ReadWrite, staging)
}

impl Script {
    /// A new system on which this workload is prepared.
    pub(super) fn prepared(&self) -> Local {
        self.prepared_on(&SimulatedFileSystem::new())
    }

    pub(super) fn prepared_on(&self, system: &SimulatedFileSystem) -> Local {
        let storage = storage(system);
        (self.prepare)(&storage).expect("nothing fails yet");
        storage
    }

    /// What is seen before and after the workload.
    pub(super) fn views(&self) -> (View, View) {
        let storage = self.prepared();
        let before = view(&storage);
        (self.act)(&storage).expect("nothing fails yet");
        let after = view(&storage);
        assert_ne!(before, after, "{}: the workload does nothing", self.name);
        (before, after)
    }

    /// How many calls of each kind the workload makes.
    pub(super) fn calls(&self) -> Vec<(CallKind, u64)> {
        let storage = self.prepared();
        let count = |kind| storage.system().count(kind);
        let before = CallKind::ALL.map(count);
        (self.act)(&storage).expect("nothing fails yet");
        let made = |(kind, before): (CallKind, u64)| (kind, count(kind) - before);
        CallKind::ALL.into_iter().zip(before).map(made).collect()
    }

    /// Panics unless each object of `seen` is in its old or new state, or new if `is_done`.
    pub(super) fn judge(
        &self,
        seen: &View,
        before: &View,
        after: &View,
        is_done: bool,
        story: &dyn Fn() -> String,
    ) {
        for name in seen.keys().chain(before.keys()).chain(after.keys()) {
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

/// Everything that a reader finds.
pub(super) fn view(storage: &Local) -> View {
    let mut seen = View::new();
    let mut open = vec![path("")];
    while let Some(directory) = open.pop() {
        for entry in storage.list(&directory).expect("a listing") {
            let name = directory.join(&entry.name).unwrap();
            assert!(!entry.name.starts_with(".bedform"), "{name} is visible");
            if entry.is_directory {
                open.push(name);
            } else {
                seen.insert(name.to_string(), get(storage, name.as_str()).expect("an object"));
            }
        }
    }
    seen
}

/// Sweeps every directory and panics if a temporary name is left.
pub(super) fn sweep_all(storage: &Local) {
    let mut open = vec![path("")];
    while let Some(directory) = open.pop() {
        storage.sweep(&directory).expect("a sweep");
        let entries = storage.list(&directory).expect("a listing").into_iter();
        open.extend(entries.filter(|e| e.is_directory).map(|e| directory.join(&e.name).unwrap()));
    }
    let left = storage.system().tree().into_keys().find(|name| name.contains(".bedform-temp-"));
    assert_eq!(left, None, "a sweep leaves a temporary name");
}
