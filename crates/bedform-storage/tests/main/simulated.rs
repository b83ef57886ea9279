//! The simulated file system: it loses the same changes that a real one may lose, reproducibly.

use std::collections::BTreeSet;

use bedform_format::ObjectPath;
use bedform_storage::conformance::{CrashBudget, cut_power};
use bedform_storage::file_system::{LinkPolicy, Replace};
use bedform_storage::{
    CallFailure, CallKind, Condition, Durability, FileSystem, LocalStorage, Mode,
    SimulatedFileSystem, Staging, Storage, StorageErrorKind, TreePublication, WorkspaceName,
    WriteHint,
};

/// Returns a system with a synced file `a` of `size` bytes of 1.
fn with_file(size: usize) -> SimulatedFileSystem {
    let system = SimulatedFileSystem::new();
    let root = system.open_directory("", LinkPolicy::Refuse).unwrap();
    let file = system.create_file(&root, "a").unwrap();
    system.write_at(&file, 0, &vec![1; size]).unwrap();
    system.sync_file(&file).unwrap();
    system.sync_directory(&root).unwrap();
    system
}

fn overwrite(system: &SimulatedFileSystem, offset: u64, size: usize) {
    let root = system.open_directory("", LinkPolicy::Refuse).unwrap();
    let file = system.open_child(&root, "a").unwrap();
    system.write_at(&file, offset, &vec![2; size]).unwrap();
}

#[test]
fn an_unsynced_write_may_be_torn_at_sectors_and_pages_and_nowhere_else() {
    let system = with_file(16_384);
    overwrite(&system, 100, 12_000);
    let mut outcomes = BTreeSet::new();
    for image in system.crash_images(3, 500) {
        let bytes = image.tree()["a"].clone();
        for sector in 0..32 {
            let start = (sector * 512).max(100);
            let end = ((sector + 1) * 512).min(12_100);
            assert!(start >= end || bytes[start..end].iter().all(|byte| *byte == bytes[start]));
        }
        assert!(bytes[..100].iter().chain(&bytes[12_100..]).all(|byte| *byte == 1));
        outcomes.insert(bytes);
    }
    assert!(outcomes.len() > 100, "only {} outcomes", outcomes.len());
}

#[test]
fn a_longer_size_may_survive_without_the_bytes() {
    let system = with_file(512);
    overwrite(&system, 512, 4096);
    let images: Vec<_> = system.exhaustive_crash_images(12).unwrap().collect();
    let files: BTreeSet<_> = images.iter().map(|image| image.tree()["a"].clone()).collect();
    let grown = |byte| [vec![1; 512], vec![byte; 4096]].concat();
    assert_eq!(files, BTreeSet::from([vec![1; 512], grown(0), grown(2)]));
}

#[test]
fn changes_of_names_survive_each_by_itself() {
    let system = with_file(1);
    let root = system.open_directory("", LinkPolicy::Refuse).unwrap();
    system.link((&root, "a"), (&root, "b")).unwrap();
    system.rename((&root, "a"), (&root, "c"), Replace::Allow).unwrap();
    system.make_directory(&root, "d").unwrap();
    let images = system.exhaustive_crash_images(12).unwrap();
    let names: BTreeSet<Vec<String>> =
        images.map(|image| image.tree().into_keys().collect()).collect();
    let expected = [&["a"][..], &["a", "b"], &["c"], &["b", "c"]];
    let expected = expected.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
    assert_eq!(names, BTreeSet::from(expected));
}

#[test]
fn what_a_failed_sync_left_in_doubt_no_later_sync_confirms() {
    let system = with_file(1);
    overwrite(&system, 0, 1);
    let root = system.open_directory("", LinkPolicy::Refuse).unwrap();
    let file = system.open_child(&root, "a").unwrap();
    system.fail_at(CallKind::SyncFile, 0, CallFailure::Error(5));
    assert!(system.sync_file(&file).is_err());
    system.sync_file(&file).unwrap();
    let outcomes: BTreeSet<_> =
        system.exhaustive_crash_images(12).unwrap().map(|image| image.tree()["a"][0]).collect();
    assert_eq!(outcomes, BTreeSet::from([1, 2]));
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let trees = |seed| -> Vec<_> {
        let system = with_file(8192);
        overwrite(&system, 50, 8000);
        system.crash_images(seed, 50).map(|image| image.tree()).collect()
    };
    for seed in [1, 2, 3] {
        assert_eq!(trees(seed), trees(seed));
    }
    assert_ne!(trees(1), trees(2));
    let budget = CrashBudget { images_per_cut: 5, ..CrashBudget::default() };
    assert_eq!(cut_power(budget), cut_power(budget));
}

#[test]
fn a_sweep_removes_what_a_killed_writer_left_and_no_more() {
    let system = SimulatedFileSystem::new();
    let open = |system: &SimulatedFileSystem| {
        LocalStorage::over(system.clone(), Mode::ReadWrite, Staging::default())
    };
    let path = ObjectPath::parse("a/b").unwrap();
    let storage = open(&system);
    let writer = storage.create(&path, Durability::Disk, WriteHint::default()).unwrap();
    let survivor = open(&system.kill());
    assert_eq!(survivor.system().tree().len(), 1);
    let living = survivor.create(&path, Durability::Disk, WriteHint::default()).unwrap();
    assert_eq!(survivor.sweep(&path.parent()).unwrap(), 1);
    assert_eq!(survivor.system().tree().len(), 1);
    drop((writer, living));
    assert_eq!(survivor.system().tree().len(), 0);
}

#[test]
fn a_sweep_removes_the_workspace_of_a_killed_owner_and_none_that_is_to_be_taken_up() {
    let system = SimulatedFileSystem::new();
    let open = |system: &SimulatedFileSystem| {
        LocalStorage::over(system.clone(), Mode::ReadWrite, Staging::default())
    };
    let stage = |storage: &LocalStorage<SimulatedFileSystem>, name| {
        let workspace = storage.workspace(&ObjectPath::root(), name).unwrap().expect("it is free");
        let object = workspace.path().join("tree").unwrap().join("a").unwrap();
        storage.put(&object, b"x", Durability::Disk, Condition::Absent).unwrap();
        workspace
    };
    let storage = open(&system);
    let killed = [WorkspaceName::Unique, WorkspaceName::Resumable(".partial")]
        .map(|name| stage(&storage, name));
    let survivor = open(&system.kill());
    let living = stage(&survivor, WorkspaceName::Unique);
    let files = |of: &str| {
        let tree = survivor.system().tree();
        tree.keys().filter(|name| name.starts_with(of) && name.ends_with("tree/a")).count()
    };
    assert_eq!((files(".bedform-temp-"), files(".partial")), (2, 1));
    assert_eq!(survivor.sweep(&ObjectPath::root()).unwrap(), 1);
    assert_eq!((files(".bedform-temp-"), files(".partial")), (1, 1));
    assert_eq!(files(living.path().as_str()), 1);
    let name = WorkspaceName::Resumable(".partial");
    let again = survivor.workspace(&ObjectPath::root(), name).unwrap().expect("its owner is gone");
    again.remove().unwrap();
    drop(living);
    assert_eq!(survivor.system().tree().len(), 0);
    drop(killed);
}

#[test]
fn a_file_system_that_exchanges_no_names_says_so_and_changes_nothing() {
    let system = SimulatedFileSystem::new();
    system.remove_feature(CallKind::Exchange);
    let storage = LocalStorage::over(system, Mode::ReadWrite, Staging::default());
    let [staged, target] = ["staged", "target"].map(|name| ObjectPath::parse(name).unwrap());
    for tree in [&staged, &target] {
        let object = tree.join("a").unwrap();
        let bytes = tree.as_str().as_bytes();
        storage.put(&object, bytes, Durability::Disk, Condition::Absent).unwrap();
    }
    let before = storage.system().tree();
    let exchange = TreePublication::Exchange;
    let refused = storage.publish_tree(&staged, &target, exchange, Durability::Disk).unwrap_err();
    assert_eq!(refused.kind, StorageErrorKind::Unsupported);
    assert!(refused.to_string().contains("exchanges no names"), "{refused}");
    assert_eq!(storage.system().tree(), before);
}

#[test]
fn a_directory_that_changes_its_parent_has_one_name_or_the_other_in_every_image() {
    let system = with_file(1);
    let root = system.open_directory("", LinkPolicy::Refuse).unwrap();
    for name in ["from", "to"] {
        system.make_directory(&root, name).unwrap();
    }
    system.sync_directory(&root).unwrap();
    let [from, to] = ["from", "to"].map(|name| system.open_child(&root, name).unwrap());
    system.make_directory(&from, "tree").unwrap();
    let tree = system.open_child(&from, "tree").unwrap();
    system.create_file(&tree, "x").unwrap();
    system.sync_directory(&tree).unwrap();
    system.sync_directory(&from).unwrap();
    system.rename_directory((&from, "tree"), (&to, "renamed")).unwrap();
    let names = |system: &SimulatedFileSystem| -> BTreeSet<Vec<String>> {
        let images = system.exhaustive_crash_images(12).unwrap();
        images.map(|image| image.tree().into_keys().filter(|name| name != "a").collect()).collect()
    };
    let [old, new] = ["from/tree/x", "to/renamed/x"].map(|name| vec![name.to_owned()]);
    assert_eq!(names(&system), BTreeSet::from([old, new.clone()]));
    // A journal has both changes in one transaction: a sync of either directory syncs both.
    system.sync_directory(&from).unwrap();
    assert_eq!(names(&system), BTreeSet::from([new]));
}
