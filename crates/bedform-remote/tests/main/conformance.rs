//! An object store, alone and inside wrappers, against the contract of storage.

use std::sync::Arc;
use std::time::Duration;

use bedform_format::ObjectPath;
use bedform_remote::conformance::{FaultRate, FaultyServer, MissingFeature};
use bedform_remote::{RemoteOptions, RemoteStorage};
use bedform_storage::conformance::check;
use bedform_storage::{
    Condition, Durability, Failing, Fault, Mode, Recording, Storage, StorageErrorKind,
    StorageOperation,
};
use object_store::ObjectStore;
use object_store::memory::InMemory;

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
    let good = FaultRate { writes: 0, reads: 0 };
    check(|| in_object_store(Arc::new(FaultyServer::new(0, good).without(MissingFeature::Ends))));
}

#[test]
fn a_server_that_is_not_fit_for_several_writers_is_written_to_by_one_who_says_so() {
    let good = FaultRate { writes: 0, reads: 0 };
    let path = ObjectPath::parse("a").unwrap();
    for (lack, said) in [
        (MissingFeature::Conditions, "ignores the conditions"),
        (MissingFeature::Metadata, "does not keep the metadata"),
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
fn wrappers_of_a_server_keep_its_contract_and_ask_it_ahead_as_it_does() {
    let remote = || in_object_store(Arc::new(InMemory::new()));
    assert!(check(|| Recording::new(remote())) >= 30);
    assert!(check(|| Failing::new(remote())) >= 30);

    let recording = Recording::new(Failing::new(remote()));
    let path = ObjectPath::parse("a").unwrap();
    recording.put(&path, &[7; 100_000], Durability::Disk, Condition::Absent).unwrap();
    let bell = Arc::default();
    let pending = recording.request_end(&path, 10, &bell).expect("a server is asked ahead");
    let object = pending.take().unwrap().expect("it is there");
    assert_eq!(object.buffered_range(), 99_990..100_000);
    assert_eq!(object.buffered_bytes(99_995, 5), Some(&[7; 5][..]));
    let kept = object.kept().expect("a server's object is kept");
    let bytes = kept.request(20, 30, &bell).expect("bytes are asked for ahead").take().unwrap();
    assert_eq!(bytes[..], [7; 30]);
    assert_eq!((recording.bytes_read(), recording.count(StorageOperation::Open)), (35, 1));

    recording.inner().fail_at(StorageOperation::Read, 0, Fault::Error(StorageErrorKind::Server));
    let failed = kept.request(20, 30, &bell).expect("bytes are asked for ahead").take();
    assert_eq!(failed.unwrap_err().kind, StorageErrorKind::Server);
}
