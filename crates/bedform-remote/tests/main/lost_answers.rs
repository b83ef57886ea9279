//! F14: writers of an object store whose answers get lost. An acknowledged write has happened once,
//! a refused one has not happened, and one with an unknown outcome has happened at most once.

#![allow(clippy::cast_possible_truncation)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use bedform_format::ObjectPath;
use bedform_remote::conformance::{FaultRate, FaultyServer, MissingFeature};
use bedform_remote::{RemoteOptions, RemoteStorage};
use bedform_storage::{
    Condition, Durability, Mode, Object, Storage, StorageError, StorageErrorKind, StorageExt as _,
    Version, WriteHint,
};

use crate::server::wait_until;

const WRITERS: u64 = 3;
const STEPS: u64 = 8;

fn path(text: &str) -> ObjectPath {
    ObjectPath::parse(text).unwrap()
}

fn open(server: &FaultyServer) -> RemoteStorage {
    open_with_parts(server, 2)
}

fn open_with_parts(server: &FaultyServer, part_bytes: usize) -> RemoteStorage {
    let options = RemoteOptions {
        pause: Duration::from_millis(1),
        deadline: Duration::from_millis(60),
        lease: Duration::from_millis(400),
        part_bytes,
        ..RemoteOptions::default()
    };
    let [store, parts] = [server, server].map(|server| Arc::new(server.clone()));
    RemoteStorage::new_in_parts(store, parts, "a/b", "s3://a/b", Mode::ReadWrite, &options)
}

/// Writes an object; every second writer uses a multipart upload.
fn put(
    storage: &RemoteStorage,
    writer: u64,
    path: &ObjectPath,
    bytes: &[u8],
    condition: Condition<'_>,
) -> Result<Version, StorageError> {
    if writer.is_multiple_of(2) {
        return storage.put(path, bytes, Durability::Disk, condition);
    }
    let mut object = storage.create(path, Durability::Disk, WriteHint::of(bytes.len() as u64))?;
    object.append(bytes)?;
    object.publish(condition)
}

fn read_all(object: &dyn Object) -> Option<Vec<u8>> {
    let mut bytes = vec![0; object.version().size as usize];
    object.read(0, &mut bytes).ok().map(|()| bytes)
}

/// The outcome of a step, as its writer learned it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepOutcome {
    Done,
    Refused,
    Unknown,
}

fn heard<T>(outcome: Result<T, bedform_storage::StorageError>) -> StepOutcome {
    match outcome.map_err(|error| error.kind) {
        Ok(_) => StepOutcome::Done,
        Err(StorageErrorKind::Exists | StorageErrorKind::Conflict) => StepOutcome::Refused,
        // A server that refuses every request has not carried out this one, either.
        Err(StorageErrorKind::Server) => StepOutcome::Refused,
        Err(StorageErrorKind::Poisoned) => StepOutcome::Unknown,
        Err(kind) => panic!("{kind:?}"),
    }
}

/// Returns a unique name for each step of each writer.
fn name(writer: u64, step: u64) -> String {
    format!("{writer}.{step};")
}

/// Creates an object that all writers try to create.
fn claim(storage: &RemoteStorage, writer: u64, step: u64) -> StepOutcome {
    let path = path(&format!("claims/{step}"));
    let bytes = name(writer, step);
    heard(put(storage, writer, &path, bytes.as_bytes(), Condition::Absent))
}

/// Adds to a list that all writers share, on the condition that it is unchanged.
fn add(storage: &RemoteStorage, writer: u64, step: u64) -> StepOutcome {
    let path = path("list");
    loop {
        let Ok(found) = storage.find(&path) else { continue };
        let condition = found.as_deref().map_or(Condition::Absent, Condition::Unchanged);
        let mut list = match &found {
            None => Vec::new(),
            Some(object) => match read_all(&**object) {
                Some(list) => list,
                None => continue,
            },
        };
        list.extend(name(writer, step).as_bytes());
        match heard(put(storage, writer, &path, &list, condition)) {
            StepOutcome::Refused => {}
            heard => return heard,
        }
    }
}

/// Adds to another shared list, while holding a lock.
fn add_locked(storage: &RemoteStorage, writer: u64, step: u64) -> StepOutcome {
    let directory = path("locked");
    let lock = match storage.lock(&directory) {
        Ok(lock) => lock,
        Err(error) if error.kind == StorageErrorKind::Poisoned => return StepOutcome::Unknown,
        Err(_) => return StepOutcome::Refused,
    };
    let path = path("locked/list");
    let Ok(Some(mut list)) = storage.find(&path).map(|found| found.and_then(|one| read_all(&*one)))
    else {
        return StepOutcome::Refused;
    };
    list.extend(name(writer, step).as_bytes());
    let outcome = heard(put(storage, writer, &path, &list, Condition::None));
    drop(lock);
    outcome
}

/// Appends to an object of this writer, and returns the synced bytes.
fn grow(storage: &RemoteStorage, writer: u64) -> Vec<u8> {
    let mut synced = Vec::new();
    let Ok(mut growing) = storage.grow(&path(&format!("grown/{writer}")), Durability::Disk, None)
    else {
        return synced;
    };
    let mut all = Vec::new();
    for step in 0..4 {
        let bytes = vec![1 + (writer * 10 + step) as u8; 3000];
        if growing.append(&bytes).and_then(|()| growing.sync()).is_err() {
            break;
        }
        all.extend(bytes);
        all.resize(growing.position() as usize, 0);
        synced.clone_from(&all);
    }
    synced
}

type Diary = BTreeMap<(&'static str, u64, u64), StepOutcome>;

fn write(server: &FaultyServer, writer: u64) -> (Diary, Vec<u8>) {
    let mut storage = open(server);
    let mut diary = Diary::new();
    for step in 0..STEPS {
        for (what, act) in [
            ("claim", claim as fn(&RemoteStorage, u64, u64) -> StepOutcome),
            ("list", add),
            ("locked", add_locked),
        ] {
            let heard = act(&storage, writer, step);
            diary.insert((what, writer, step), heard);
            if heard == StepOutcome::Unknown {
                storage = open(server);
            }
        }
    }
    let synced = grow(&open(server), writer);
    (diary, synced)
}

fn run(seed: u64) -> u64 {
    let server = FaultyServer::new(seed, FaultRate { writes: 200, reads: 20 });
    server.set(FaultRate { writes: 0, reads: 0 });
    let first = open(&server);
    first.put(&path("locked/list"), b"", Durability::Disk, Condition::Absent).unwrap();
    server.set(FaultRate { writes: 200, reads: 20 });
    let parts: Vec<(Diary, Vec<u8>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn({
                    let server = &server;
                    move || write(server, writer)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    wait_until("what is late has arrived", || server.late_writes() == 0);
    server.set(FaultRate { writes: 0, reads: 0 });
    let read = |name: &str| read_all(&*first.open(&path(name)).unwrap()).unwrap();
    let lists = ["list", "locked/list"].map(|name| String::from_utf8(read(name)).unwrap());
    let claims: Vec<String> = (0..STEPS)
        .map(|step| first.find(&path(&format!("claims/{step}"))).unwrap())
        .map(|found| found.and_then(|one| read_all(&*one)).unwrap_or_default())
        .map(|bytes| String::from_utf8(bytes).unwrap())
        .collect();
    for (diary, _) in &parts {
        for ((what, writer, step), heard) in diary {
            let name = name(*writer, *step);
            let list = match *what {
                "claim" => &claims[*step as usize],
                "list" => &lists[0],
                _ => &lists[1],
            };
            let count = list.split_inclusive(';').filter(|entry| *entry == name).count();
            let is_right = match heard {
                StepOutcome::Done => count == 1,
                StepOutcome::Refused => count == 0,
                StepOutcome::Unknown => count <= 1,
            };
            assert!(
                is_right,
                "seed {seed}: {what} {name} heard {heard:?}, there {count} times in {list}"
            );
        }
    }
    for (writer, (_, synced)) in
        parts.iter().enumerate().filter(|(_, (_, synced))| !synced.is_empty())
    {
        let object = first.open(&path(&format!("grown/{writer}"))).unwrap();
        let mut found = vec![0; synced.len()];
        object.read(0, &mut found).unwrap();
        assert!(found == *synced, "seed {seed}: what writer {writer} synced is not there");
    }
    server.faults()
}

/// Runs for half of the stage's seconds, from a random seed on; `BEDFORM_FROM` sets the seed.
#[test]
#[ignore = "a stage of make reliability"]
fn what_is_acknowledged_happened_once_and_what_is_refused_did_not() {
    fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
        std::env::var(name).ok().and_then(|value| value.parse().ok())
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let first: u64 = variable("BEDFORM_FROM").unwrap_or(now.as_secs() % 1_000_000 * 10_000);
    let seconds: f64 = variable("BEDFORM_STAGE_SECONDS").unwrap_or(5.0);
    let end = Instant::now() + Duration::from_secs_f64(seconds / 2.0);
    let (next, faults) = (AtomicU64::new(first), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                // At least as many seeds as the floor requires, even on a slow machine.
                while Instant::now() < end || next.load(Ordering::SeqCst) < first + 80 {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    faults.fetch_add(run(seed), Ordering::SeqCst);
                }
            });
        }
    });
    let next = next.into_inner();
    println!("\nlost_answers: from seed {first} on; to continue: BEDFORM_FROM={next}");
    println!("COUNT writer-seeds {}", next - first);
    println!("COUNT writer-faults {}", faults.into_inner());
}

#[test]
fn an_object_of_parts_is_there_whole_and_one_that_is_given_up_leaves_nothing() {
    let server = FaultyServer::new(1, FaultRate { writes: 0, reads: 0 });
    let (storage, at) = (open(&server), path("d/a"));
    let bytes: Vec<u8> = (0..=255).collect();
    for count in [0, 1, 3, 4, 5, 6, 7, 8, 9, 200] {
        let version = put(&storage, 1, &at, &bytes[..count], Condition::None).unwrap();
        let found = storage.open(&at).unwrap();
        assert_eq!(*found.version(), version, "{count}");
        assert_eq!(read_all(&*found).unwrap(), bytes[..count]);
        assert_eq!(server.uploads(), 0, "{count}");
    }
    let begin = || {
        let mut object = storage.create(&at, Durability::Disk, WriteHint::of(256)).unwrap();
        object.append(&bytes).unwrap();
        object
    };
    drop(begin());
    let refused = begin().publish(Condition::Absent).unwrap_err();
    assert_eq!(refused.kind, StorageErrorKind::Exists);
    let old = storage.open(&at).unwrap();
    put(&storage, 1, &at, b"others", Condition::Unchanged(&*old)).unwrap();
    let refused = begin().publish(Condition::Unchanged(&*old)).unwrap_err();
    assert_eq!(refused.kind, StorageErrorKind::Conflict);
    // The early lookup does not count: the object was opened after the writer was created.
    let late = begin();
    put(&storage, 0, &at, b"newer", Condition::None).unwrap();
    let newest = storage.open(&at).unwrap();
    late.publish(Condition::Unchanged(&*newest)).unwrap();
    assert_eq!(read_all(&*storage.open(&at).unwrap()).unwrap(), bytes);
    wait_until("no upload is left", || server.uploads() == 0);
}

#[test]
fn an_object_beside_many_goes_whole_and_one_by_itself_in_parts() {
    let bytes: Vec<u8> = (0..=255).collect();
    for at_once in 1..12 {
        let server = FaultyServer::new(1, FaultRate { writes: 0, reads: 0 });
        let (storage, at) = (open(&server), path("d/a"));
        let hint = WriteHint { bytes: Some(256), at_once };
        let mut object = storage.create(&at, Durability::Disk, hint).unwrap();
        object.append(&bytes).unwrap();
        object.publish(Condition::Absent).unwrap();
        assert_eq!(read_all(&*storage.open(&at).unwrap()).unwrap(), bytes);
        assert_eq!(server.uploads_begun() > 0, at_once < 6, "{at_once}");
    }
}

#[test]
fn of_an_object_that_ends_sooner_than_expected_what_was_sent_in_parts_is_not_sent_again() {
    const PIECE: usize = 4 << 20;
    let server = FaultyServer::new(1, FaultRate { writes: 0, reads: 0 });
    let (storage, at) = (open_with_parts(&server, 2 * PIECE), path("d/a"));
    let bytes: Vec<u8> = (0..3 * PIECE + 1000).map(|at| (at % 251) as u8).collect();
    let mut object =
        storage.create(&at, Durability::Disk, WriteHint::of(9 * PIECE as u64)).unwrap();
    let (front, rest) = bytes.split_at(2 * PIECE);
    object.append(front).unwrap();
    wait_until("its upload is begun", || server.uploads() == 1);
    object.append(rest).unwrap();
    let before = server.sent_whole();
    object.publish(Condition::Absent).unwrap();
    assert_eq!(server.sent_whole(), before);
    assert_eq!(read_all(&*storage.open(&at).unwrap()).unwrap(), bytes);
}

#[test]
fn memory_that_comes_with_its_bytes_is_kept_if_it_is_large_and_parts_are_cut_through_it() {
    let server = FaultyServer::new(1, FaultRate { writes: 0, reads: 0 });
    let (storage, at) = (open_with_parts(&server, 100_000), path("d/a"));
    let mut object = storage.create(&at, Durability::Disk, WriteHint::of(1 << 20)).unwrap();
    let (small, large) = (vec![1; 1000], (0..300_000_u32).map(|at| (at >> 7) as u8));
    let large: Vec<u8> = large.collect();
    assert!(object.append_owned(large.clone()).unwrap().is_none());
    object.append(&large).unwrap();
    assert_eq!(object.append_owned(small.clone()).unwrap().as_ref(), Some(&small));
    // The present buffer has little in it, so it is filled.
    assert_eq!(object.append_owned(large.clone()).unwrap().as_ref(), Some(&large));
    object.append(&large[..90_000]).unwrap();
    assert!(object.append_owned(large.clone()).unwrap().is_none());
    object.publish(Condition::Absent).unwrap();
    let expected = [&large[..], &large, &small, &large, &large[..90_000], &large].concat();
    assert!(read_all(&*storage.open(&at).unwrap()).unwrap() == expected, "other bytes");
    assert_eq!((server.uploads_begun(), server.uploads()), (1, 0));
}

/// Runs `act` in a thread, and `meanwhile` between its write of `name` and the loss of the answer.
fn while_held<T: Send>(
    server: &FaultyServer,
    name: &str,
    act: impl FnOnce() -> T + Send,
    meanwhile: impl FnOnce(),
) -> T {
    server.hold(name);
    std::thread::scope(|scope| {
        let acting = scope.spawn(act);
        wait_until("the write has happened", || server.is_holding());
        meanwhile();
        server.let_go();
        acting.join().unwrap()
    })
}

#[test]
fn a_lock_that_others_took_before_its_release_was_known_is_theirs() {
    let server = FaultyServer::new(1, FaultRate { writes: 0, reads: 0 });
    let (first, second) = (open(&server), open(&server));
    let directory = path("d");
    first.put(&path("d/a"), b"1", Durability::Disk, Condition::Absent).unwrap();
    let lock = first.lock(&directory).unwrap();
    let mut taken = None;
    while_held(
        &server,
        "a/b/d/.bedform-lock",
        || drop(lock),
        || taken = Some(second.lock(&directory).unwrap()),
    );
    assert!(first.try_lock(&directory).unwrap().is_none());
    drop(taken);
    assert!(first.try_lock(&directory).unwrap().is_some());
}

#[test]
fn a_write_that_others_followed_before_it_was_known_is_not_what_is_there() {
    let server = FaultyServer::new(1, FaultRate { writes: 0, reads: 0 });
    let (first, second) = (open(&server), open(&server));
    let at = path("d/a");
    let version = while_held(
        &server,
        "a/b/d/a",
        || first.put(&at, b"1", Durability::Disk, Condition::None).unwrap(),
        || {
            second.put(&at, b"2", Durability::Disk, Condition::None).unwrap();
        },
    );
    assert_ne!(version, first.stat(&at).unwrap());
    assert_eq!(read_all(&*first.open(&at).unwrap()).unwrap(), b"2");
    // Its next write needs no guess.
    first.put(&at, b"3", Durability::Disk, Condition::None).unwrap();
    assert_eq!(read_all(&*second.open(&at).unwrap()).unwrap(), b"3");
}

#[test]
fn a_single_writer_needs_nothing_of_a_server_that_loses_answers_but_objects() {
    for lack in [MissingFeature::Conditions, MissingFeature::Metadata] {
        let server = FaultyServer::new(3, FaultRate { writes: 300, reads: 0 }).without(lack);
        let options = RemoteOptions {
            pause: Duration::from_millis(1),
            single_writer: true,
            ..RemoteOptions::default()
        };
        let place = Arc::new(server.clone());
        let storage = RemoteStorage::new(place, "a", "s3://a", Mode::ReadWrite, &options);
        for number in 0..40 {
            let at = path(&format!("d/{number}"));
            let bytes = name(0, number);
            storage.put(&at, bytes.as_bytes(), Durability::Disk, Condition::Absent).unwrap();
        }
        server.set(FaultRate { writes: 0, reads: 0 });
        for number in 0..40 {
            let found = storage.open(&path(&format!("d/{number}"))).unwrap();
            assert_eq!(read_all(&*found).unwrap(), name(0, number).as_bytes());
        }
        assert!(server.faults() > 10);
    }
}
