//! Growing objects and sibling storages: behaviour of the real system, and costs.

use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bedform_format::ObjectPath;
use bedform_format::log::Lanes;
use bedform_storage::{
    CallFailure, CallKind, Clock, Condition, Durability, Failing, Fault, GrowingObject,
    LocalStorage, MemoryStorage, Mode, OsFileSystem, Recording, SimulatedFileSystem, Staging,
    Storage, StorageErrorKind, StorageOperation, Throttle, ThrottleSchedule, Throttled, WriteHint,
};

use crate::local::{Scratch, get, put};

const SUFFIX: &str = ".bedform-log";

fn path(text: &str) -> ObjectPath {
    ObjectPath::parse(text).unwrap()
}

fn grow(storage: &dyn Storage, name: &str) -> Box<dyn GrowingObject> {
    storage.grow(&path(name), Durability::Disk, None).unwrap()
}

/// Returns the error of opening the sibling of `root`.
fn refusal(root: &Path) -> String {
    let storage = LocalStorage::open(root, Mode::ReadOnly).unwrap();
    storage.sibling(SUFFIX).unwrap_err().to_string()
}

#[test]
fn what_lies_beside_a_store_has_its_real_name_and_is_made_by_the_first_write() {
    let scratch = Scratch::new();
    std::fs::create_dir_all(scratch.0.join("data/run42.zarr")).unwrap();
    symlink("data/run42.zarr", scratch.0.join("link.zarr")).unwrap();
    let place = scratch.0.canonicalize().unwrap().join("data/run42.zarr.bedform-log");

    let storage = LocalStorage::open(&scratch.0.join("link.zarr"), Mode::ReadWrite).unwrap();
    let sibling = storage.sibling(SUFFIX).unwrap();
    assert_eq!(Path::new(&sibling.name()), place);
    assert_eq!(sibling.list(&path("")).unwrap(), []);
    assert!(!place.exists());
    put(&*sibling, "roots/1", b"1");
    assert_eq!(std::fs::read(place.join("roots/1")).unwrap(), b"1");

    let reader = LocalStorage::open(&scratch.0.join("link.zarr"), Mode::ReadOnly).unwrap();
    let reader = reader.sibling(SUFFIX).unwrap();
    assert_eq!(get(&*reader.open(&path("roots/1")).unwrap()), b"1");
    std::fs::remove_dir_all(&place).unwrap();
    assert_eq!(reader.open(&path("roots/1")).unwrap_err().kind, StorageErrorKind::NotFound);
    drop(grow(&*sibling, "segments/1"));
    assert!(reader.open(&path("segments/1")).is_ok());
}

#[test]
fn a_read_only_store_and_its_place_beside_take_no_writes() {
    let scratch = Scratch::new();
    let storage = LocalStorage::open(&scratch.0, Mode::ReadOnly).unwrap();
    let sibling = storage.sibling(SUFFIX).unwrap();
    for place in [&storage as &dyn Storage, &*sibling] {
        let refused = place.grow(&path("a/b"), Durability::Disk, None).map(drop).unwrap_err();
        assert_eq!(refused.kind, StorageErrorKind::ReadOnly);
        let refused = place
            .create(&path("a/b"), Durability::Disk, WriteHint::default())
            .map(drop)
            .unwrap_err();
        assert_eq!(refused.kind, StorageErrorKind::ReadOnly);
        let refused = place.delete_tree(&path(""), Durability::Disk).unwrap_err();
        assert_eq!(refused.kind, StorageErrorKind::ReadOnly);
    }
    assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 0);
    assert!(!Path::new(&sibling.name()).exists());
}

#[test]
fn where_nothing_can_lie_beside_a_store_the_error_says_why() {
    assert!(
        refusal(Path::new("/")).contains("nothing lies beside it"),
        "{}",
        refusal("/".as_ref())
    );
    let mounted = refusal(Path::new("/proc"));
    assert!(mounted.contains("mounted"), "{mounted}");
    let scratch = Scratch::new();
    let root = scratch.0.join("gone.zarr");
    let storage = LocalStorage::open(&root, Mode::Create).unwrap();
    std::fs::remove_dir(&root).unwrap();
    assert_eq!(storage.sibling(SUFFIX).unwrap_err().kind, StorageErrorKind::NotFound);
}

#[test]
fn a_link_or_file_in_the_place_beside_is_not_taken_for_an_empty_one() {
    let (scratch, outside) = (Scratch::new(), Scratch::new());
    std::fs::write(outside.0.join("secret"), b"outside").unwrap();
    for (name, without_openat2) in [("a", false), ("b", true)] {
        let root = scratch.0.join(name);
        let mut system = OsFileSystem::create(&root).unwrap();
        if without_openat2 {
            system = system.without_openat2();
        }
        let storage = LocalStorage::over(system, Mode::ReadWrite, Staging::default());
        let sibling = storage.sibling(SUFFIX).unwrap();
        let place = scratch.0.join(format!("{name}{SUFFIX}"));
        let refused = Some(StorageErrorKind::NotAnObject);
        let check = || {
            assert_eq!(sibling.open(&path("secret")).err().map(|error| error.kind), refused);
            assert_eq!(sibling.stat(&path("secret")).err().map(|error| error.kind), refused);
            assert_eq!(sibling.list(&path("")).err().map(|error| error.kind), refused);
            let grown = sibling.grow(&path("new"), Durability::Disk, None);
            assert_eq!(grown.err().map(|error| error.kind), refused);
        };
        symlink(&outside.0, &place).unwrap();
        check();
        std::fs::remove_file(&place).unwrap();
        std::fs::write(&place, b"").unwrap();
        check();
        std::fs::remove_file(&place).unwrap();
        put(&*sibling, "x/y", b"now");
        assert_eq!(get(&*sibling.open(&path("x/y")).unwrap()), b"now");
    }
    assert!(!outside.0.join("new").exists());
}

#[test]
fn what_was_set_aside_is_given_back_by_a_sync_and_when_dropped() {
    let scratch = Scratch::new();
    let storage = LocalStorage::open(&scratch.0, Mode::ReadWrite).unwrap();
    let allocated = || {
        let status = std::fs::metadata(scratch.0.join("a")).unwrap();
        (status.len(), status.blocks() * 512)
    };
    let mut growing = storage.grow(&path("a"), Durability::Disk, Some(1 << 40)).unwrap();
    growing.append(&vec![7; 5 << 20]).unwrap();
    growing.sync().unwrap();
    let (size, bytes) = allocated();
    assert_eq!(size, 5 << 20);
    assert!(bytes < 16 << 20, "{bytes} bytes are taken");
    growing.append(&vec![8; 5 << 20]).unwrap();
    drop(growing);
    let (size, bytes) = allocated();
    let kept = (5 << 20..=10 << 20).contains(&size);
    assert!(kept && bytes < 20 << 20, "{size}, {bytes}");
    let synced = &get(&*storage.open(&path("a")).unwrap())[..5 << 20];
    assert!(synced.iter().all(|byte| *byte == 7));
}

#[test]
fn what_the_writer_of_one_lane_set_aside_for_the_others_is_given_back_by_them() {
    let scratch = Scratch::new();
    let storage = LocalStorage::open(&scratch.0, Mode::ReadWrite).unwrap();
    let lanes = Lanes::new(4).unwrap();
    let mut writers: Vec<_> = (0..4)
        .map(|lane| {
            let lane = lanes.lane(lane).unwrap();
            storage.grow_lane(&path("a"), lane, Durability::Disk).unwrap()
        })
        .collect();
    // Lane 3 has no writes, and lanes 2, 1 and 0 ever more, so that the longer lanes reserve rows
    // beyond the shorter ones.
    for (lane, megabytes) in [(2, 5), (1, 20), (0, 90)] {
        writers[lane].append(&vec![7; megabytes << 20]).unwrap();
        writers[lane].flush().unwrap();
    }
    drop(writers);
    let taken = std::fs::metadata(scratch.0.join("a")).unwrap().blocks() * 512;
    let written = 115 << 20;
    assert!((written..written + (2 << 20)).contains(&taken), "{taken} bytes are taken");
}

/// Returns a simulated system, and a storage on it with the default staging.
fn simulated() -> (SimulatedFileSystem, LocalStorage<SimulatedFileSystem>) {
    let system = SimulatedFileSystem::new();
    (system.clone(), LocalStorage::over(system, Mode::ReadWrite, Staging::default()))
}

/// Returns the calls that `work` makes, by kind.
fn calls(system: &SimulatedFileSystem, work: impl FnOnce()) -> Vec<(CallKind, u64)> {
    let before = CallKind::ALL.map(|kind| system.count(kind));
    work();
    let made = CallKind::ALL.map(|kind| system.count(kind));
    let counts = CallKind::ALL.into_iter().zip(before.iter().zip(made));
    counts.map(|(kind, (before, made))| (kind, made - before)).filter(|(_, n)| *n > 0).collect()
}

#[test]
fn a_sync_costs_one_of_the_file_and_the_first_one_those_of_the_names() {
    use CallKind::{Reserve, SetDirect, SetSize, SyncDirectory, SyncFile, Write};
    let (system, storage) = simulated();
    let sibling = storage.sibling(SUFFIX).unwrap();
    let mut growing = grow(&*sibling, "segments/1");
    assert_eq!(calls(&system, || growing.append(&[1; 100_000]).unwrap()), []);
    let first = calls(&system, || growing.sync().unwrap());
    // The file; its name, that of its directory and that of the root.
    for call in [(Write, 1), (SyncFile, 1), (SyncDirectory, 3)] {
        assert!(first.contains(&call), "{first:?}");
    }
    assert_eq!(calls(&system, || growing.sync().unwrap()), []);

    growing.append(&[2; 100_000]).unwrap();
    assert_eq!(calls(&system, || growing.sync().unwrap()), [(Write, 1), (SyncFile, 1)]);
    // Four blocks; the sync writes the last one.
    let appended = calls(&system, || growing.append(&vec![3; 7 << 20]).unwrap());
    assert_eq!(appended, [(Write, 3), (Reserve, 1), (SetDirect, 1)]);
    let synced = calls(&system, || growing.sync().unwrap());
    assert_eq!(synced, [(Write, 1), (SetSize, 1), (SyncFile, 1)]);
    growing.append(&[4]).unwrap();
    let synced = calls(&system, || growing.sync().unwrap());
    assert_eq!(synced, [(Write, 1), (SetDirect, 1), (SyncFile, 1)]);

    let mut second = grow(&*sibling, "segments/2");
    second.append(&[5; 10]).unwrap();
    let first = calls(&system, || second.sync().unwrap());
    assert!(first.contains(&(SyncFile, 1)) && first.contains(&(SyncDirectory, 1)), "{first:?}");
}

#[test]
fn one_power_cut_hits_the_store_and_what_lies_beside_it() {
    let (system, storage) = simulated();
    let sibling = storage.sibling(SUFFIX).unwrap();
    let mut growing = grow(&*sibling, "segments/1");
    growing.append(b"kept").unwrap();
    growing.sync().unwrap();
    growing.append(&vec![1; 3 << 20]).unwrap();
    put(&storage, "a", b"kept, too");
    for image in system.crash_images(1, 100) {
        let storage = LocalStorage::over(image, Mode::ReadOnly, Staging::default());
        assert_eq!(get(&*storage.open(&path("a")).unwrap()), b"kept, too");
        let segment = storage.sibling(SUFFIX).unwrap().open(&path("segments/1")).unwrap();
        assert!(get(&*segment).starts_with(b"kept"));
    }
}

#[test]
fn a_failed_sync_is_never_tried_again_and_poisons_both_places() {
    for kind in [CallKind::SyncFile, CallKind::SyncDirectory] {
        let (system, storage) = simulated();
        let sibling = storage.sibling(SUFFIX).unwrap();
        let mut growing = grow(&*sibling, "segments/1");
        growing.append(b"bytes").unwrap();
        system.fail_at(kind, 0, CallFailure::Error(5));
        for _ in 0..3 {
            assert_eq!(growing.sync().unwrap_err().kind, StorageErrorKind::Poisoned);
        }
        assert_eq!(growing.append(b"more").unwrap_err().kind, StorageErrorKind::Poisoned);
        for place in [&storage as &dyn Storage, &*sibling, &*storage.sibling(".other").unwrap()] {
            let refused = place.grow(&path("b"), Durability::Disk, None).map(drop).unwrap_err();
            assert_eq!(refused.kind, StorageErrorKind::Poisoned);
        }
        assert!(sibling.open(&path("segments/1")).is_ok(), "reads go on");
    }
}

#[test]
fn after_a_failed_write_nothing_more_is_synced_and_other_objects_go_on() {
    for threaded in [false, true] {
        let (mut system, mut storage) = simulated();
        if threaded {
            system = system.with_threads();
            storage = LocalStorage::over(system.clone(), Mode::ReadWrite, Staging::default());
        }
        let mut growing = grow(&storage, "a");
        growing.append(b"synced").unwrap();
        growing.sync().unwrap();
        system.fail_at(CallKind::Write, 1, CallFailure::Error(28));
        let outcome = growing.append(&vec![1; 9 << 20]).and_then(|()| growing.sync());
        assert_eq!(outcome.unwrap_err().kind, StorageErrorKind::NoSpace);
        assert!(growing.sync().is_err() && growing.append(b"more").is_err());
        let left = get(&*storage.open(&path("a")).unwrap());
        // With threads, the write before the failed one may start after it.
        let written = 4096 + if threaded { 4 << 20 } else { 2 << 20 };
        assert!(left.starts_with(b"synced") && left.len() <= written, "{}", left.len());
        assert!(left[4096..].iter().all(|byte| *byte == 1), "nothing is set aside behind them");
        grow(&storage, "b").sync().unwrap();
    }
}

/// A clock for large requests: it advances when two of them are in flight, or one has waited for a
/// while.
#[derive(Debug, Default)]
struct Meeting {
    waiting: Mutex<(u32, u32)>,
    changed: Condvar,
}

impl Clock for Meeting {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep_until(&self, time: Duration) {
        if time.is_zero() {
            return;
        }
        let mut waiting = self.waiting.lock().unwrap();
        waiting.0 += 1;
        waiting.1 = waiting.1.max(waiting.0);
        self.changed.notify_all();
        let together = |waiting: &mut (u32, u32)| waiting.1 < 2;
        // Reached only if writes are made one after the other.
        let patience = Duration::from_secs(300);
        let (mut waiting, _) =
            self.changed.wait_timeout_while(waiting, patience, together).unwrap();
        waiting.0 -= 1;
    }
}

#[test]
fn two_long_writes_of_a_writer_are_under_way_at_once_and_lie_where_they_belong() {
    let clock = Arc::new(Meeting::default());
    // One second per byte, and no latency.
    let pace = ThrottleSchedule::by_clock(Throttle::new(1, Duration::ZERO), clock.clone());
    let system = Throttled::new(SimulatedFileSystem::new().with_threads(), pace);
    let storage = LocalStorage::over(system, Mode::ReadWrite, Staging::default());
    let mut growing = grow(&storage, "a");
    let bytes: Vec<u8> = (0..251).cycle().take(15 << 20).collect();
    bytes.chunks(1 << 20).for_each(|part| growing.append(part).unwrap());
    growing.sync().unwrap();
    assert!(clock.waiting.lock().unwrap().1 >= 2, "one after the other");
    drop(growing);
    let found = get(&*storage.open(&path("a")).unwrap());
    assert!(found == bytes);
}

#[test]
fn recordings_and_faults_are_shared_with_the_place_beside() {
    let storage = Recording::new(Failing::new(MemoryStorage::new()));
    let sibling = storage.sibling(SUFFIX).unwrap();
    let mut growing = grow(&*sibling, "a");
    growing.append(&[1; 10]).unwrap();
    growing.sync().unwrap();
    growing.append(&[1; 10]).unwrap();
    growing.sync().unwrap();
    put(&storage, "a", b"x");
    let of = |operation| {
        let events = storage.events();
        let found = events.into_iter().filter(|event| event.operation == operation);
        found.map(|event| (event.place.to_string(), event.offset, event.bytes)).collect::<Vec<_>>()
    };
    let there = |offset, bytes| (SUFFIX.to_owned(), offset, bytes);
    assert_eq!(of(StorageOperation::Grow), [there(0, 0)]);
    assert_eq!(of(StorageOperation::AppendGrowing), [there(0, 10), there(4096, 10)]);
    assert_eq!(of(StorageOperation::SyncGrowing), [there(0, 4096), there(4096, 4096)]);
    assert_eq!(of(StorageOperation::Publish), [(String::new(), 0, 1)]);

    let fault = Fault::ErrorAfter(StorageErrorKind::Poisoned);
    storage.inner().fail_at(StorageOperation::SyncGrowing, 0, fault);
    growing.append(&[1]).unwrap();
    for _ in 0..2 {
        assert_eq!(growing.sync().unwrap_err().kind, StorageErrorKind::Poisoned);
    }
    storage.inner().fail_at(StorageOperation::Grow, 0, Fault::Error(StorageErrorKind::NoSpace));
    let refused = sibling.grow(&path("b"), Durability::Disk, None).map(drop).unwrap_err();
    assert_eq!(refused.kind, StorageErrorKind::NoSpace);
}

#[test]
fn places_in_memory_are_shared_by_clones() {
    let storage = MemoryStorage::new();
    put(&*storage.sibling(SUFFIX).unwrap(), "a", b"x");
    let clone = storage.clone().sibling(SUFFIX).unwrap();
    assert_eq!(get(&*clone.open(&path("a")).unwrap()), b"x");
    let deleted = clone.delete(&path("a"), Durability::Disk, Condition::None);
    deleted.unwrap();
    let sibling = storage.sibling(SUFFIX).unwrap();
    assert_eq!(sibling.stat(&path("a")).unwrap_err().kind, StorageErrorKind::NotFound);
}

#[test]
fn many_objects_are_made_durable_with_their_directories_by_one_call() {
    let (system, storage) = simulated();
    let names: Vec<String> = (0..5).map(|number| format!("group/{number}")).collect();
    let directories: Vec<_> = names.iter().map(|name| path(name)).collect();
    let made = calls(&system, || {
        for directory in &directories {
            let object = directory.join("document").unwrap();
            let mut writer =
                storage.create(&object, Durability::Process, WriteHint::default()).unwrap();
            writer.append(b"bytes").unwrap();
            writer.publish(Condition::None).unwrap();
        }
        assert!(storage.can_sync_all());
        storage.sync_all(&directories).unwrap()().unwrap();
    });
    let of_kind = |wanted| made.iter().find(|(kind, _)| *kind == wanted).map_or(0, |(_, n)| *n);
    assert_eq!([CallKind::SyncFile, CallKind::SyncDirectory].map(of_kind), [0, 0]);
    assert_eq!(of_kind(CallKind::SyncWhole), 1);
    for image in system.crash_images(1, 50) {
        let storage = LocalStorage::over(image, Mode::ReadOnly, Staging::default());
        for directory in &directories {
            let object = storage.open(&directory.join("document").unwrap()).unwrap();
            assert_eq!(get(&*object), b"bytes");
        }
    }

    let missing = storage.sync_all(&[path("nothing")]).err().unwrap();
    assert_eq!(missing.kind, StorageErrorKind::NotFound);
    system.fail_at(CallKind::SyncWhole, 0, CallFailure::Error(5));
    let sync = storage.sync_all(&directories).unwrap();
    assert_eq!(sync().unwrap_err().kind, StorageErrorKind::Poisoned);
    for refused in [sync().unwrap_err(), storage.sync_all(&directories).err().unwrap()] {
        assert_eq!(refused.kind, StorageErrorKind::Poisoned, "it is never tried again");
    }
}
