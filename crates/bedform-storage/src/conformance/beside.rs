//! The contract of sibling storages, case by case.

use super::{get, kind_of, path, put};
use crate::{Condition, Durability, Storage, StorageErrorKind, WriteHint};

const SUFFIX: &str = ".bedform-log";

pub(super) fn empty(storage: &dyn Storage) {
    let beside = storage.beside(SUFFIX).unwrap();
    assert!(beside.name().ends_with(SUFFIX), "{}", beside.name());
    for name in ["", "roots"] {
        assert_eq!(beside.list(&path(name)).unwrap(), []);
        assert_eq!(beside.sweep(&path(name)).unwrap(), 0);
        beside.sync(&path(name)).unwrap();
        beside.delete_tree(&path(name), Durability::Disk).unwrap();
    }
    for name in ["a", "roots/1"] {
        assert_eq!(kind_of(beside.open(&path(name))), Some(StorageErrorKind::NotFound));
        assert_eq!(kind_of(beside.stat(&path(name))), Some(StorageErrorKind::NotFound));
        beside.delete(&path(name), Durability::Disk, Condition::None).unwrap();
    }
    let version = put(storage, "a", b"x", Condition::None).unwrap();
    assert!(!beside.is_current(&path("a"), &version).unwrap());
    assert_eq!(beside.list(&path("")).unwrap(), []);
}

pub(super) fn apart(storage: &dyn Storage) {
    let beside = storage.beside(SUFFIX).unwrap();
    put(storage, "a", b"here", Condition::Absent).unwrap();
    put(&*beside, "roots/a", b"there", Condition::Absent).unwrap();
    put(&*beside, "a", b"there, too", Condition::Absent).unwrap();
    assert_eq!(get(storage, "a").unwrap(), b"here");
    assert_eq!(get(&*beside, "a").unwrap(), b"there, too");
    assert_eq!(storage.list(&path("")).unwrap().len(), 1);
    // Every caller gets the same sibling for a suffix, and another one for another suffix.
    assert_eq!(get(&*storage.beside(SUFFIX).unwrap(), "roots/a").unwrap(), b"there");
    let other = storage.beside(".other").unwrap();
    assert_eq!(other.list(&path("")).unwrap(), []);
    let further = beside.beside(".old").unwrap();
    put(&*further, "a", b"further", Condition::Absent).unwrap();
    let further = storage.beside(&format!("{SUFFIX}.old")).unwrap();
    assert_eq!(get(&*further, "a").unwrap(), b"further");
}

pub(super) fn deleted(storage: &dyn Storage) {
    let beside = storage.beside(SUFFIX).unwrap();
    put(storage, "a", b"here", Condition::None).unwrap();
    for round in 0..3 {
        let mut growing = beside.grow(&path("segments/1"), Durability::Disk, None).unwrap();
        growing.append(b"there").unwrap();
        growing.sync().unwrap();
        put(&*beside, "roots/1", &[round], Condition::Absent).unwrap();
        let other = storage.beside(SUFFIX).unwrap();
        assert_eq!(get(&*other, "roots/1").unwrap(), [round]);
        // Also through another handle than the one that wrote.
        other.delete_tree(&path(""), Durability::Disk).unwrap();
        assert_eq!(beside.list(&path("")).unwrap(), []);
        assert_eq!(kind_of(beside.stat(&path("roots/1"))), Some(StorageErrorKind::NotFound));
    }
    assert_eq!(get(storage, "a").unwrap(), b"here");
}

pub(super) fn locks(storage: &dyn Storage) {
    let beside = storage.beside(SUFFIX).unwrap();
    put(&*beside, "roots/1", b"x", Condition::Absent).unwrap();
    put(storage, "roots/1", b"x", Condition::Absent).unwrap();
    let held = beside.lock(&path("roots")).unwrap();
    let again = storage.beside(SUFFIX).unwrap();
    assert!(again.try_lock(&path("roots")).unwrap().is_none());
    assert!(storage.try_lock(&path("roots")).unwrap().is_some());
    drop(held);
    assert!(again.try_lock(&path("roots")).unwrap().is_some());
}

pub(super) fn suffixes(storage: &dyn Storage) {
    for suffix in ["", "/a", "a/b", "..", "\0", "\n"] {
        assert_eq!(kind_of(storage.beside(suffix)), Some(StorageErrorKind::Io), "{suffix:?}");
    }
}

/// Checks that a replaced object is kept under its second name, where the place can do so, and that
/// a failed publication keeps nothing.
pub(super) fn kept(storage: &dyn Storage) {
    let beside = storage.beside(SUFFIX).unwrap();
    let replace = |bytes: &[u8], name: &str, condition: Condition<'_>| {
        let mut writer =
            storage.create(&path("c/0"), Durability::Disk, WriteHint::default()).unwrap();
        writer.append(bytes).unwrap();
        writer.keep_replaced(SUFFIX, path(name));
        writer.publish(condition)
    };
    replace(b"one", "kept/none", Condition::Absent).unwrap();
    let first = storage.open(&path("c/0")).unwrap();
    replace(b"two", "kept/one", Condition::Unchanged(&*first)).unwrap();
    assert_eq!(get(storage, "c/0").unwrap(), b"two");
    let names: Vec<_> = beside.list(&path("kept")).unwrap().into_iter().map(|e| e.name).collect();
    if !names.is_empty() {
        assert_eq!(names, ["none", "one"]);
        assert_eq!(get(&*beside, "kept/none").unwrap(), b"");
        assert_eq!(get(&*beside, "kept/one").unwrap(), b"one");
    }
    assert!(replace(b"three", "kept/two", Condition::Unchanged(&*first)).is_err());
    assert!(replace(b"three", "kept/two", Condition::Absent).is_err());
    assert_eq!(get(storage, "c/0").unwrap(), b"two");
    assert_eq!(beside.list(&path("kept")).unwrap().len(), names.len());
    // A taken name keeps its object.
    let second = storage.open(&path("c/0")).unwrap();
    replace(b"four", "kept/one", Condition::Unchanged(&*second)).unwrap();
    assert_eq!(get(storage, "c/0").unwrap(), b"four");
    if !names.is_empty() {
        assert_eq!(get(&*beside, "kept/one").unwrap(), b"one");
    }
}
