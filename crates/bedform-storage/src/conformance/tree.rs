//! The contract of staged and published trees, case by case.

use super::{get, kind_of, path, put};
use crate::{
    Condition, Durability, ListedEntry, Storage, StorageErrorKind, TreePublication, Workspace,
    WorkspaceName,
};

fn unique(storage: &dyn Storage, directory: &str) -> Box<dyn Workspace> {
    storage.workspace(&path(directory), WorkspaceName::Unique).unwrap().expect("a name of its own")
}

fn publish(
    storage: &dyn Storage,
    staged: &str,
    target: &str,
    how: TreePublication,
) -> Option<StorageErrorKind> {
    kind_of(storage.publish_tree(&path(staged), &path(target), how, Durability::Disk))
}

fn names(storage: &dyn Storage, directory: &str) -> Vec<String> {
    let entries = storage.list(&path(directory)).unwrap().into_iter();
    entries.map(|ListedEntry { name, .. }| name).collect()
}

/// True if the place publishes no trees, as a remote one may say.
fn is_lacking(storage: &dyn Storage) -> bool {
    storage.is_remote()
}

pub(super) fn said(storage: &dyn Storage) {
    put(storage, "staged/a", b"x", Condition::None).unwrap();
    if !is_lacking(storage) {
        return;
    }
    let refused = Some(StorageErrorKind::Unsupported);
    assert_eq!(kind_of(storage.workspace(&path(""), WorkspaceName::Unique)), refused);
    for how in [TreePublication::Absent, TreePublication::Exchange] {
        assert_eq!(publish(storage, "staged", "target", how), refused);
    }
    let published = storage.publish_object(&path("staged/a"), &path("target"), Durability::Disk);
    assert_eq!(kind_of(published), refused);
    assert_eq!(get(storage, "staged/a").unwrap(), b"x");
}

pub(super) fn object(storage: &dyn Storage) {
    let publish = |staged: &str, target: &str| {
        kind_of(storage.publish_object(&path(staged), &path(target), Durability::Disk))
    };
    let workspace = unique(storage, "");
    let staged = workspace.path().join("file").unwrap();
    put(storage, staged.as_str(), b"new", Condition::None).unwrap();
    put(storage, "full/b", b"old", Condition::None).unwrap();
    put(storage, "object", b"old", Condition::None).unwrap();
    let exists = Some(StorageErrorKind::Exists);
    assert_eq!(publish(staged.as_str(), "full"), exists);
    assert_eq!(publish(staged.as_str(), "object"), exists);
    assert_eq!(publish("missing", "target"), Some(StorageErrorKind::NotFound));
    assert_eq!(publish("full", "target"), Some(StorageErrorKind::NotAnObject));
    assert_eq!(get(storage, "object").unwrap(), b"old");
    assert_eq!(get(storage, staged.as_str()).unwrap(), b"new");
    assert_eq!(publish(staged.as_str(), "deep/target"), None);
    assert_eq!(get(storage, "deep/target").unwrap(), b"new");
    assert_eq!(names(storage, workspace.path().as_str()), Vec::<String>::new());
    drop(workspace);
    assert_eq!(names(storage, ""), ["deep", "full", "object"]);
}

pub(super) fn within(storage: &dyn Storage) {
    let below = storage.within(&path("a/b")).unwrap();
    put(&*below, "c/d", b"x", Condition::Absent).unwrap();
    assert_eq!(get(storage, "a/b/c/d").unwrap(), b"x");
    put(storage, "a/b/e", b"y", Condition::Absent).unwrap();
    assert_eq!(get(&*below, "e").unwrap(), b"y");
    assert_eq!(names(&*below, ""), ["c", "e"]);
    assert_eq!(kind_of(below.open(&path("a/b/e"))), Some(StorageErrorKind::NotFound));
    assert_ne!(below.identity(), storage.identity());
    assert_eq!(below.identity(), storage.within(&path("a/b")).unwrap().identity());
    let sibling = below.sibling(".log").unwrap();
    put(&*sibling, "f", b"z", Condition::Absent).unwrap();
    assert_eq!(get(storage, "a/b.log/f").unwrap(), b"z");
    sibling.delete_tree(&path(""), Durability::Disk).unwrap();
    assert_eq!(names(storage, "a"), ["b"]);
}

pub(super) fn absent(storage: &dyn Storage) {
    let workspace = unique(storage, "");
    assert_eq!(names(storage, ""), Vec::<String>::new());
    let staged = workspace.path().join("tree").unwrap();
    let tree = storage.within(&staged).unwrap();
    put(&*tree, "a", b"x", Condition::Absent).unwrap();
    put(&*tree, "b/c", b"y", Condition::Absent).unwrap();
    assert_eq!(publish(storage, staged.as_str(), "deep/target", TreePublication::Absent), None);
    assert_eq!(get(storage, "deep/target/a").unwrap(), b"x");
    assert_eq!(get(storage, "deep/target/b/c").unwrap(), b"y");
    drop(workspace);
    assert_eq!(
        (names(storage, ""), names(storage, "deep")),
        (vec!["deep".into()], vec!["target".into()])
    );
    assert_eq!(storage.sweep(&path("")).unwrap(), 0);
    put(storage, "deep/target/a", b"z", Condition::None).unwrap();
    put(storage, "deep/target/b/d", b"z", Condition::Absent).unwrap();
}

pub(super) fn taken(storage: &dyn Storage) {
    let (absent, exchange) = (TreePublication::Absent, TreePublication::Exchange);
    put(storage, "staged/a", b"new", Condition::None).unwrap();
    put(storage, "full/b", b"old", Condition::None).unwrap();
    put(storage, "object", b"old", Condition::None).unwrap();
    let exists = Some(StorageErrorKind::Exists);
    assert_eq!(publish(storage, "staged", "full", absent), exists);
    assert_eq!(publish(storage, "staged", "object", absent), exists);
    assert_eq!(publish(storage, "missing", "target", absent), Some(StorageErrorKind::NotFound));
    assert_eq!(publish(storage, "object", "target", absent), Some(StorageErrorKind::NotAnObject));
    assert_eq!(publish(storage, "staged", "object", exchange), Some(StorageErrorKind::NotAnObject));
    assert_eq!(publish(storage, "staged", "target", exchange), Some(StorageErrorKind::NotFound));
    for (staged, target) in [("staged", "staged/in"), ("staged/in", "staged"), ("staged", "staged")]
    {
        for how in [absent, exchange] {
            assert!(publish(storage, staged, target, how).is_some(), "{staged} {target} {how:?}");
        }
    }
    assert_eq!(get(storage, "staged/a").unwrap(), b"new");
    assert_eq!(get(storage, "full/b").unwrap(), b"old");
    assert_eq!(get(storage, "object").unwrap(), b"old");
    // An empty directory is replaced.
    storage.delete(&path("full/b"), Durability::Disk, Condition::None).unwrap();
    assert_eq!(publish(storage, "staged", "full", absent), None);
    assert_eq!(
        (get(storage, "full/a").unwrap(), names(storage, "")),
        (b"new".to_vec(), vec!["full".into(), "object".into()])
    );
}

pub(super) fn exchanged(storage: &dyn Storage) {
    put(storage, "groups/g/a", b"old", Condition::None).unwrap();
    put(storage, "groups/g/b", b"old", Condition::None).unwrap();
    let opened = storage.open(&path("groups/g/a")).unwrap();
    let workspace = unique(storage, "groups");
    let staged = workspace.path().join("g").unwrap();
    put(storage, staged.join("a").unwrap().as_str(), b"new", Condition::None).unwrap();
    let exchange = TreePublication::Exchange;
    assert_eq!(publish(storage, staged.as_str(), "groups/g", exchange), None);
    assert_eq!(get(storage, "groups/g/a").unwrap(), b"new");
    assert_eq!(names(storage, "groups/g"), ["a"]);
    assert!(!opened.is_current().unwrap());
    assert_eq!(super::read_all(&*opened).unwrap(), b"old");
    assert_eq!(get(storage, staged.join("b").unwrap().as_str()).unwrap(), b"old");
    workspace.remove().unwrap();
    assert_eq!(names(storage, "groups"), ["g"]);
}

pub(super) fn resumed(storage: &dyn Storage) {
    let name = WorkspaceName::Resumable(".target.partial");
    let workspace = storage.workspace(&path(""), name).unwrap().expect("nobody works in it");
    assert_eq!(workspace.path(), &path(".target.partial"));
    assert!(storage.workspace(&path(""), name).unwrap().is_none(), "two work in it");
    put(storage, ".target.partial/plan.json", b"{}", Condition::None).unwrap();
    drop(workspace);
    assert_eq!(storage.sweep(&path("")).unwrap(), 0);
    let workspace = storage.workspace(&path(""), name).unwrap().expect("its owner is gone");
    assert_eq!(get(storage, ".target.partial/plan.json").unwrap(), b"{}");
    put(storage, ".target.partial/store/a", b"x", Condition::None).unwrap();
    let absent = TreePublication::Absent;
    assert_eq!(publish(storage, ".target.partial/store", "target", absent), None);
    workspace.remove().unwrap();
    assert_eq!(names(storage, ""), ["target"]);
    assert_eq!(get(storage, "target/a").unwrap(), b"x");
}

pub(super) fn apart(storage: &dyn Storage) {
    let (one, other) = (unique(storage, "a"), unique(storage, "a"));
    assert_ne!(one.path(), other.path());
    put(storage, one.path().join("x").unwrap().as_str(), b"x", Condition::None).unwrap();
    assert_eq!(storage.sweep(&path("a")).unwrap(), 0);
    assert_eq!(names(storage, one.path().as_str()), ["x"]);
    drop(one);
    assert_eq!(names(storage, "a"), Vec::<String>::new());
    assert_eq!(names(storage, other.path().as_str()), Vec::<String>::new());
}

pub(super) fn race(storage: &dyn Storage) {
    for round in 0..10 {
        let target = format!("targets/{round}");
        let winners: usize = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4u8)
                .map(|writer| {
                    let target = &target;
                    scope.spawn(move || {
                        let workspace = unique(storage, "targets");
                        let staged = workspace.path().join("t").unwrap();
                        let object = staged.join("a").unwrap();
                        put(storage, object.as_str(), &[writer; 9], Condition::None).unwrap();
                        let absent = TreePublication::Absent;
                        match publish(storage, staged.as_str(), target, absent) {
                            None => 1,
                            Some(kind) => {
                                assert_eq!(kind, StorageErrorKind::Exists);
                                0
                            }
                        }
                    })
                })
                .collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).sum()
        });
        assert_eq!(winners, 1);
        assert_eq!(get(storage, &format!("{target}/a")).unwrap().len(), 9);
    }
}
