//! The contract of sibling storages, case by case.

use super::{get, kind_of, path, put};
use crate::{Condition, Durability, Storage, StorageErrorKind, WriteHint};

const SUFFIX: &str = ".bedform-log";

pub(super) fn empty(storage: &dyn Storage) {
    let sibling = storage.sibling(SUFFIX).unwrap();
    assert!(sibling.name().ends_with(SUFFIX), "{}", sibling.name());
    for name in ["", "roots"] {
        assert_eq!(sibling.list(&path(name)).unwrap(), []);
        assert_eq!(sibling.sweep(&path(name)).unwrap(), 0);
        sibling.sync(&path(name)).unwrap();
        sibling.delete_tree(&path(name), Durability::Disk).unwrap();
    }
    for name in ["a", "roots/1"] {
        assert_eq!(kind_of(sibling.open(&path(name))), Some(StorageErrorKind::NotFound));
        assert_eq!(kind_of(sibling.stat(&path(name))), Some(StorageErrorKind::NotFound));
        sibling.delete(&path(name), Durability::Disk, Condition::None).unwrap();
    }
    let version = put(storage, "a", b"x", Condition::None).unwrap();
    assert!(!sibling.is_current(&path("a"), &version).unwrap());
    assert_eq!(sibling.list(&path("")).unwrap(), []);
}

pub(super) fn apart(storage: &dyn Storage) {
    let sibling = storage.sibling(SUFFIX).unwrap();
    put(storage, "a", b"here", Condition::Absent).unwrap();
    put(&*sibling, "roots/a", b"there", Condition::Absent).unwrap();
    put(&*sibling, "a", b"there, too", Condition::Absent).unwrap();
    assert_eq!(get(storage, "a").unwrap(), b"here");
    assert_eq!(get(&*sibling, "a").unwrap(), b"there, too");
    assert_eq!(storage.list(&path("")).unwrap().len(), 1);
    // Every caller gets the same sibling for a suffix, and another one for another suffix.
    assert_eq!(get(&*storage.sibling(SUFFIX).unwrap(), "roots/a").unwrap(), b"there");
    let other = storage.sibling(".other").unwrap();
    assert_eq!(other.list(&path("")).unwrap(), []);
    let further = sibling.sibling(".old").unwrap();
    put(&*further, "a", b"further", Condition::Absent).unwrap();
    let further = storage.sibling(&format!("{SUFFIX}.old")).unwrap();
    assert_eq!(get(&*further, "a").unwrap(), b"further");
}

pub(super) fn deleted(storage: &dyn Storage) {
    let sibling = storage.sibling(SUFFIX).unwrap();
    put(storage, "a", b"here", Condition::None).unwrap();
    for round in 0..3 {
        let mut growing = sibling.grow(&path("segments/1"), Durability::Disk, None).unwrap();
        growing.append(b"there").unwrap();
        growing.sync().unwrap();
        put(&*sibling, "roots/1", &[round], Condition::Absent).unwrap();
        let other = storage.sibling(SUFFIX).unwrap();
        assert_eq!(get(&*other, "roots/1").unwrap(), [round]);
        // Also through another handle than the one that wrote.
        other.delete_tree(&path(""), Durability::Disk).unwrap();
        assert_eq!(sibling.list(&path("")).unwrap(), []);
        assert_eq!(kind_of(sibling.stat(&path("roots/1"))), Some(StorageErrorKind::NotFound));
    }
    assert_eq!(get(storage, "a").unwrap(), b"here");
}

pub(super) fn locks(storage: &dyn Storage) {
    let sibling = storage.sibling(SUFFIX).unwrap();
    put(&*sibling, "roots/1", b"x", Condition::Absent).unwrap();
    put(storage, "roots/1", b"x", Condition::Absent).unwrap();
    let held = sibling.lock(&path("roots")).unwrap();
    let again = storage.sibling(SUFFIX).unwrap();
    assert!(again.try_lock(&path("roots")).unwrap().is_none());
    assert!(storage.try_lock(&path("roots")).unwrap().is_some());
    drop(held);
    assert!(again.try_lock(&path("roots")).unwrap().is_some());
}

pub(super) fn suffixes(storage: &dyn Storage) {
    for suffix in ["", "/a", "a/b", "..", "\0", "\n"] {
        assert_eq!(kind_of(storage.sibling(suffix)), Some(StorageErrorKind::Io), "{suffix:?}");
    }
}

/// Checks that a replaced object is kept under its second name, where the place can do so, and that
/// a failed publication keeps nothing.
pub(super) fn kept(storage: &dyn Storage) {
    let sibling = storage.sibling(SUFFIX).unwrap();
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
    let names: Vec<_> = sibling.list(&path("kept")).unwrap().into_iter().map(|e| e.name).collect();
    if !names.is_empty() {
        assert_eq!(names, ["none", "one"]);
        assert_eq!(get(&*sibling, "kept/none").unwrap(), b"");
        assert_eq!(get(&*sibling, "kept/one").unwrap(), b"one");
    }
    assert!(replace(b"three", "kept/two", Condition::Unchanged(&*first)).is_err());
    assert!(replace(b"three", "kept/two", Condition::Absent).is_err());
    assert_eq!(get(storage, "c/0").unwrap(), b"two");
    assert_eq!(sibling.list(&path("kept")).unwrap().len(), names.len());
    // A taken name keeps its object.
    let second = storage.open(&path("c/0")).unwrap();
    replace(b"four", "kept/one", Condition::Unchanged(&*second)).unwrap();
    assert_eq!(get(storage, "c/0").unwrap(), b"four");
    if !names.is_empty() {
        assert_eq!(get(&*sibling, "kept/one").unwrap(), b"one");
    }
}
