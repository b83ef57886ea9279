//! A store and its log on the real file system, as users handle them: opened, copied, restored, and
//! used in every way.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bedform::comm::Alone;
use bedform::log::recover::LeftoverPolicy;
use bedform::log::session::{Session, SessionOptions};
use bedform::log::settle::CollectOptions;
use bedform::{Elements, Error, ErrorKind, Store};
use serde_json::{Map, Value};

use crate::model::{
    Operation, StoreModel, bytes, form, observe_store, options, read, region, values, whole,
};
use crate::support::{Scratch, path};

pub(crate) const LOG: &str = ".bedform-log";

/// A store on the real file system, with its expected contents.
pub(crate) struct Place {
    pub(crate) scratch: Scratch,
    pub(crate) model: StoreModel,
}

pub(crate) fn log_of(store: &Path) -> PathBuf {
    PathBuf::from(format!("{}{LOG}", store.display()))
}

pub(crate) fn open(store: &Path) -> Result<Store, Error> {
    Store::open_path(store, options(true))
}

/// Reads all contents of the store.
pub(crate) fn found(store: &Path, like: &StoreModel) -> Result<StoreModel, String> {
    let store = Store::open_path(store, options(false)).map_err(|error| error.to_string())?;
    observe_store(&store, like)
}

pub(crate) fn session(name: &str, start: &[u64], shape: &[u64], seed: u64) -> Operation {
    let boxes = vec![(name.to_owned(), start.to_vec(), shape.to_vec())];
    Operation::Session { boxes, seed }
}

pub(crate) fn settle(grace: Duration) -> Operation {
    Operation::Settle { memory_bytes: 1 << 20, grace }
}

impl Place {
    /// Makes a store with the arrays `t` and `g/u`, with elements.
    pub(crate) fn new(name: &str) -> Self {
        let place = Self { scratch: Scratch::new(name), model: StoreModel::new() };
        let (t, u) = (form(&[10, 7], &[2, 2], &[4, 4], "zstd"), form(&[6], &[2], &[4], ""));
        Store::create_path(&place.store(), &Map::new(), options(true)).unwrap();
        let arrays = vec![("t", t), ("g/u", u)];
        place.then(&[Operation::Drafts { arrays, seed: 1 }])
    }

    /// Makes a store like [`Place::new`], with two commits: all of `g/u` and a part of `t`; then a
    /// part of that.
    pub(crate) fn with_commits(name: &str) -> Self {
        Self::new(name).then(&[
            Operation::Session {
                boxes: vec![
                    ("t".to_owned(), vec![1, 1], vec![6, 4]),
                    ("g/u".to_owned(), vec![0], vec![6]),
                ],
                seed: 2,
            },
            session("t", &[2, 2], &[3, 3], 3),
        ])
    }

    /// Applies `operations` to the store.
    pub(crate) fn then(mut self, operations: &[Operation]) -> Self {
        self.model = run(&self.store(), &self.model, operations);
        self
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.scratch.0.join("run.zarr")
    }

    pub(crate) fn log(&self) -> PathBuf {
        log_of(&self.store())
    }

    pub(crate) fn check(&self, store: &Path) {
        assert_eq!(found(store, &self.model).as_ref(), Ok(&self.model));
    }

    /// Uses the store in every way, and checks that each is an error of `kind` with these texts,
    /// and changes nothing.
    pub(crate) fn check_refused(&self, kind: ErrorKind, what: &[&str]) {
        let before = tree(&self.scratch.0);
        for (name, outcome) in attempts(&self.store()) {
            let error = outcome.expect_err(name);
            assert_eq!(error.kind(), kind, "{name}: {error}");
            for what in what {
                assert!(error.to_string().contains(what), "{name}: {error}");
            }
        }
        let now = tree(&self.scratch.0);
        let lost: Vec<_> = before.iter().filter(|file| !now.contains_key(file.0)).collect();
        assert!(lost.is_empty(), "{lost:?} are gone");
    }
}

/// Applies `operations` to a store that holds `model`.
pub(crate) fn run(store: &Path, model: &StoreModel, operations: &[Operation]) -> StoreModel {
    let mut model = model.clone();
    for operation in operations {
        operation.run(&open(store).unwrap(), &model).unwrap();
        model = operation.apply(&model);
    }
    model
}

/// Attempts every use of a store: reading, writing directly and in a session, appending, settling,
/// collecting garbage, recovering.
pub(crate) fn attempts(store: &Path) -> Vec<(&'static str, bedform::Result<()>)> {
    let with = |work: &dyn Fn(&Store) -> bedform::Result<()>| open(store).and_then(|s| work(&s));
    let all_of_t = |store: &Store| -> bedform::Result<(bedform::Array, Vec<u64>)> {
        let array = store.array(&path("t"))?;
        let shape = array.shape()?;
        Ok((array, shape))
    };
    vec![
        (
            "read",
            with(&|store| {
                let (array, shape) = all_of_t(store)?;
                read(&array, &whole(&shape)).map(drop)
            }),
        ),
        (
            "write",
            with(&|store| {
                let (array, _) = all_of_t(store)?;
                let new = bytes(&values(90, 4));
                let part = region(&[2, 2], &[2, 2]);
                array.write(&part, Elements::Bytes(&new)).map(drop)
            }),
        ),
        (
            "commit",
            with(&|store| session("t", &[2, 2], &[2, 2], 91).run(store, &StoreModel::new())),
        ),
        (
            "append",
            with(&|store| {
                let (array, shape) = all_of_t(store)?;
                let new = bytes(&values(92, shape[1]));
                array.append(0, &[1, shape[1]], Elements::Bytes(&new)).map(drop)
            }),
        ),
        ("settle", with(&|store| store.settle().map(drop))),
        ("gc", with(&|store| store.collect_log(&CollectOptions::default()).map(drop))),
        ("recover", with(&|store| store.recover(None, LeftoverPolicy::Discard).map(drop))),
    ]
}

/// Returns all files below `root`, with their bytes.
pub(crate) fn tree(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => pending.push(path),
                false => drop(files.insert(path.clone(), fs::read(&path).unwrap())),
            }
        }
    }
    files
}

/// Copies as `cp -r` does.
pub(crate) fn copy(from: &Path, to: &Path) {
    let Ok(entries) = fs::read_dir(from) else { return };
    fs::create_dir_all(to).unwrap();
    for entry in entries {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

pub(crate) fn remove(what: &Path) {
    match what.is_dir() {
        true => fs::remove_dir_all(what).unwrap(),
        false => fs::remove_file(what).unwrap(),
    }
}

/// Replaces `to` by the copy `from` of a store and its log.
pub(crate) fn put_back(from: &Path, to: &Path) {
    for suffix in ["", LOG] {
        let of = |path: &Path| PathBuf::from(format!("{}{suffix}", path.display()));
        let _ = fs::remove_dir_all(of(to));
        copy(&of(from), &of(to));
    }
}

pub(crate) fn start(store: &Store) -> Session {
    store.session(Box::new(Alone), SessionOptions::default()).unwrap()
}

/// Writes two by two elements of `t`.
pub(crate) fn put(session: &mut Session, start: &[u64], seed: u64) -> bedform::Result<()> {
    let new = bytes(&values(seed, 4));
    let region = region(start, &[2, 2]);
    session.write(&path("t"), &region, Elements::Bytes(&new)).map(drop)
}

/// Changes a document like a program that does not know Bedform.
pub(crate) fn edit(file: &Path, change: impl Fn(&mut Map<String, Value>)) {
    let mut document: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    change(document.as_object_mut().unwrap());
    fs::write(file, serde_json::to_vec_pretty(&document).unwrap()).unwrap();
}

/// Sets an attribute of the store like another program, with consolidated metadata or without.
pub(crate) fn rewrite_root(store: &Path, keep_consolidated: bool) {
    edit(&store.join("zarr.json"), |document| {
        match document.get_mut("consolidated_metadata").filter(|_| keep_consolidated) {
            Some(consolidated) => {
                drop(consolidated.as_object_mut().unwrap().remove("bedform"));
            }
            None => drop(document.remove("consolidated_metadata")),
        }
        document.insert("attributes".into(), serde_json::json!({"by": "another"}));
    });
}
