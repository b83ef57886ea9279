//! Every storage is held to the contract, and the local one to its protocol.

use bedform_storage::conformance::{
    Budget, FaultyServer, Lack, Likelihood, check, cut_power, cut_power_again, fail_calls,
};
use std::sync::Arc;
use std::time::Duration;

use bedform_format::ObjectPath;
use bedform_storage::{
    Condition, Durability, Failing, Fault, LocalStorage, MemoryStorage, Mode, Operation,
    OsFileSystem, Pace, Recording, RemoteOptions, RemoteStorage, SimulatedFileSystem, Staging,
    Storage, StorageErrorKind, Throttle, Throttled,
};

use object_store::ObjectStore;
use object_store::memory::InMemory;

use crate::local::Scratch;

#[test]
fn memory_keeps_the_contract() {
    check(MemoryStorage::new);
    check(MemoryStorage::cold);
}

#[test]
fn recording_keeps_the_contract() {
    check(|| Recording::new(MemoryStorage::new()));
}

#[test]
fn failing_keeps_the_contract_while_nothing_fails() {
    check(|| Failing::new(MemoryStorage::new()));
}

#[test]
fn wrappers_of_a_server_keep_its_contract_and_ask_it_ahead_as_it_does() {
    let remote = || in_object_store(Arc::new(InMemory::new()));
    assert!(check(|| Recording::new(remote())) >= 30);
    assert!(check(|| Failing::new(remote())) >= 30);

    let recording = Recording::new(Failing::new(remote()));
    let path = ObjectPath::parse("a").unwrap();
    recording.put(&path, &[7; 100_000], Durability::Disk, Condition::Absent).unwrap();
    let bell = Arc::default();
    let pending = recording.ask_end(&path, 10, &bell).expect("a server is asked ahead");
    let object = pending.take().unwrap().expect("it is there");
    assert_eq!(object.at_hand(), 99_990..100_000);
    assert_eq!(object.known(99_995, 5), Some(&[7; 5][..]));
    let kept = object.kept().expect("a server's object is kept");
    let bytes = kept.ask(20, 30, &bell).expect("bytes are asked for ahead").take().unwrap();
    assert_eq!(bytes[..], [7; 30]);
    assert_eq!((recording.bytes_read(), recording.count(Operation::Open)), (35, 1));

    recording.inner().fail_at(Operation::Read, 0, Fault::Error(StorageErrorKind::Server));
    let failed = kept.ask(20, 30, &bell).expect("bytes are asked for ahead").take();
    assert_eq!(failed.unwrap_err().kind, StorageErrorKind::Server);
}

#[test]
fn local_files_keep_the_contract() {
    let scratch = Scratch::new();
    let next = std::cell::Cell::new(0);
    check(|| {
        next.set(next.get() + 1);
        LocalStorage::open(&scratch.0.join(next.get().to_string()), Mode::Create).unwrap()
    });
}

#[test]
fn local_files_keep_the_contract_with_many_blocks_in_flight() {
    let scratch = Scratch::new();
    let next = std::cell::Cell::new(0);
    check(|| {
        next.set(next.get() + 1);
        let system = OsFileSystem::create(&scratch.0.join(next.get().to_string())).unwrap();
        let staging = Staging { small_bytes_max: 0, block_bytes: 4096, ..Staging::default() };
        LocalStorage::over(system, Mode::ReadWrite, staging)
    });
}

#[test]
fn simulated_files_keep_the_contract() {
    check(|| {
        let staging = Staging { small_bytes_max: 4096, block_bytes: 4096, ..Staging::default() };
        LocalStorage::over(SimulatedFileSystem::new(), Mode::ReadWrite, staging)
    });
}

#[test]
fn throttled_files_keep_the_contract() {
    let pace = Pace::new(Throttle::parse("1 GB/s, 1 us").unwrap());
    check(|| {
        let system = Throttled::new(SimulatedFileSystem::new(), pace.clone());
        LocalStorage::over(system, Mode::ReadWrite, Staging::default())
    });
}

fn in_object_store(store: Arc<dyn ObjectStore>) -> RemoteStorage {
    let options = RemoteOptions { pause: Duration::from_millis(1), ..RemoteOptions::default() };
    RemoteStorage::new(store, "bucket/store", "s3://bucket/store", Mode::ReadWrite, &options)
}

#[test]
fn an_object_store_keeps_the_contract() {
    let count = check(|| in_object_store(Arc::new(InMemory::new())));
    assert!(count >= 30, "{count}");
}

#[test]
fn an_object_store_that_counts_no_bytes_from_the_end_keeps_the_contract() {
    let good = Likelihood { writes: 0, reads: 0 };
    check(|| in_object_store(Arc::new(FaultyServer::new(0, good).without(Lack::Ends))));
}

#[test]
fn a_server_that_is_not_fit_for_several_writers_is_written_to_by_one_who_says_so() {
    let good = Likelihood { writes: 0, reads: 0 };
    let path = ObjectPath::parse("a").unwrap();
    for (lack, said) in [
        (Lack::Conditions, "ignores the conditions"),
        (Lack::Metadata, "does not keep the metadata"),
    ] {
        let server = Arc::new(FaultyServer::new(0, good).without(lack));
        let storage = in_object_store(server.clone());
        let put = |storage: &RemoteStorage| {
            storage.put(&path, b"x", Durability::Disk, Condition::Absent).map(drop)
        };
        for refused in [
            put(&storage),
            storage.lock(&ObjectPath::root()).map(drop),
            storage.grow(&path, Durability::Disk, None).map(drop),
        ] {
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains(said) && refused.contains("single_writer"), "{refused}");
        }
        assert_eq!(storage.list(&ObjectPath::root()).unwrap(), []);
        let options = RemoteOptions { single_writer: true, ..RemoteOptions::default() };
        let alone = RemoteStorage::new(server, "a", "s3://a", Mode::ReadWrite, &options);
        put(&alone).unwrap();
        assert_eq!(put(&alone).unwrap_err().kind, StorageErrorKind::Exists);
        drop(alone.lock(&ObjectPath::root()).unwrap());
    }
}

#[test]
fn a_power_cut_after_any_call_leaves_the_old_or_the_new_and_all_that_was_acknowledged() {
    let start = std::time::Instant::now();
    let counts = cut_power(Budget::default());
    println!("{counts:?} in {:?}", start.elapsed());
    assert!(counts.images >= 20_000 && counts.exhaustive_images >= 2_000, "{counts:?}");
}

#[test]
fn power_cuts_during_recovery_lose_nothing_either() {
    let start = std::time::Instant::now();
    let counts = cut_power_again(Budget::default(), 3);
    println!("{counts:?} in {:?}", start.elapsed());
    assert!(counts.images >= 2_000, "{counts:?}");
}

#[test]
fn every_call_may_fail_in_every_way() {
    let start = std::time::Instant::now();
    let counts = fail_calls();
    println!("{counts:?} in {:?}", start.elapsed());
    assert!(counts.failures >= 1_000, "{counts:?}");
}
