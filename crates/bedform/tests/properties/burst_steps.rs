//! The times at which parts of a burst tier are drained and deleted. Draining pauses during a
//! commit and runs when a writer pauses. A part is deleted once its bytes are durable in the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use bedform::Elements;
use bedform::comm::{Alone, Communicator as _, threads};
use bedform::log::session::{Burst, CommitReach, Session, SessionOptions};
use bedform::log::settle::CollectOptions;
use bedform_format::{DataType, ObjectPath};
use bedform_geometry::Selection;
use bedform_storage::{MemoryStorage, RecordedOperation, Recording, Storage, StorageOperation};

use super::arrays::{path, read};
use super::sessions::{bytes_array, create, open};
use super::wait_until;

/// Longer than a busy writer takes between two appends.
const PAUSE: Duration = Duration::from_millis(700);

fn options(part_bytes: u64) -> SessionOptions {
    through(Arc::new(MemoryStorage::new()), None, part_bytes)
}

fn through(tier: Arc<dyn Storage>, capacity: Option<u64>, part_bytes: u64) -> SessionOptions {
    let mut burst = Burst::new(tier, capacity);
    burst.part_bytes = part_bytes;
    let mut options = SessionOptions::default();
    (options.burst, options.reach) = (Some(burst), CommitReach::Node);
    options
}

fn write(session: &mut Session, value: u8) {
    session.write(&path(), &Selection::all(&[64]), Elements::Bytes(&[value; 64])).unwrap();
}

/// A store with its log and a burst tier, whose operations are recorded together in order.
fn recorded() -> (Arc<Recording<MemoryStorage>>, Arc<dyn Storage>) {
    let recording = Arc::new(Recording::new(MemoryStorage::new()));
    let storage: Arc<dyn Storage> = recording.clone();
    create(&storage, &bytes_array());
    let tier = storage.sibling("-burst").unwrap();
    (recording, tier)
}

fn is_of_part(event: &RecordedOperation, operation: StorageOperation) -> bool {
    event.operation == operation && &*event.place == "-burst" && event.path.name().len() == 20
}

/// Returns the number of appends to the log.
fn drained(storage: &Recording<MemoryStorage>) -> usize {
    let is_drain = |operation: &StorageOperation| *operation == StorageOperation::AppendGrowing;
    storage.events().iter().filter(|event| is_drain(&event.operation)).count()
}

#[test]
fn a_commit_is_drained_when_it_has_returned_and_not_while_others_write_their_part() {
    // If the machine suspends a member between its write and its commit, draining is correct, as
    // for a pausing writer. Draining during the commit would happen in every attempt.
    assert!(
        (0..10).any(|_| is_drained_behind_its_commit()),
        "drained while others write their part"
    );
}

/// Commits with a late member; false if anything was drained before its commit.
fn is_drained_behind_its_commit() -> bool {
    let recording = Arc::new(Recording::new(MemoryStorage::new()));
    let storage: Arc<dyn Storage> = recording.clone();
    create(&storage, &bytes_array());
    let was_drained = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for member in threads(2) {
            let (storage, recording, was_drained) = (&storage, &recording, &was_drained);
            scope.spawn(move || {
                let rank = member.rank();
                let mut session =
                    open(storage, true).session(Box::new(member), options(1 << 20)).unwrap();
                if rank == 0 {
                    // The other member waits for this one, after all its writes.
                    sleep(PAUSE);
                    was_drained.store(drained(recording) > 0, Ordering::Relaxed);
                }
                let (all, bytes) = (Selection::all(&[64]), [u8::try_from(rank).unwrap() + 1; 64]);
                session.write(&path(), &all, Elements::Bytes(&bytes)).unwrap();
                session.commit().unwrap();
                // No call asks for draining.
                wait_until("the log is drained", || drained(recording) > 0);
                session.drain().unwrap();
            });
        }
    });
    let array = open(&storage, false).array(&path()).unwrap();
    assert_eq!(read(&array, DataType::UInt8, &Selection::all(&[64])).concat(), [2; 64]);
    !was_drained.into_inner()
}

#[test]
fn a_writer_that_pauses_is_drained_before_it_commits() {
    let recording = Arc::new(Recording::new(MemoryStorage::new()));
    let storage: Arc<dyn Storage> = recording.clone();
    create(&storage, &bytes_array());
    let store = open(&storage, true);
    let mut session = store.session(Box::new(Alone), options(4096)).unwrap();
    for value in 0..100_u8 {
        session.write(&path(), &Selection::all(&[64]), Elements::Bytes(&[value; 64])).unwrap();
    }
    session.flush().unwrap();
    wait_until("the log is drained", || drained(&recording) > 0);
    session.commit().unwrap();
    session.drain().unwrap();
    let array = store.array(&path()).unwrap();
    assert_eq!(read(&array, DataType::UInt8, &Selection::all(&[64])).concat(), [99; 64]);
}

#[test]
fn who_promises_has_said_durably_whose_the_parts_are_and_who_begins_has_not_waited_for_it() {
    for reach in [CommitReach::Node, CommitReach::Shared] {
        let (recording, tier) = recorded();
        let storage: Arc<dyn Storage> = recording.clone();
        let mut options = through(tier, None, 4096);
        options.reach = reach;
        let mut session = open(&storage, true).session(Box::new(Alone), options).unwrap();
        write(&mut session, 1);
        session.commit().unwrap();
        let events = recording.events();
        let is_name = |event: &&RecordedOperation| event.path.name() == "STORE.txt";
        let said =
            events.iter().filter(is_name).filter(|e| e.operation == StorageOperation::Publish);
        let said: Vec<bool> = said.map(|event| event.is_durable).collect();
        match reach {
            CommitReach::Node => assert_eq!(said, [false, true]),
            // No commit counts before it is drained.
            CommitReach::Shared => assert_eq!(said, [false]),
        }
    }
}

#[test]
fn a_part_goes_when_its_bytes_are_durable_in_the_log_and_the_last_one_with_the_drain() {
    let (recording, tier) = recorded();
    let storage: Arc<dyn Storage> = recording.clone();
    let mut session =
        open(&storage, true).session(Box::new(Alone), through(tier, None, 4096)).unwrap();
    for value in 0..200 {
        write(&mut session, value);
    }
    session.commit().unwrap();
    session.drain().unwrap();
    let count =
        |operation| recording.events().iter().filter(|event| is_of_part(event, operation)).count();
    // The session continues with an empty tier.
    wait_until("the tier is empty", || {
        count(StorageOperation::Delete) == count(StorageOperation::Grow)
    });
    assert!(count(StorageOperation::Grow) > 2, "{} parts", count(StorageOperation::Grow));
    let mut durable = 0;
    for event in recording.events() {
        if event.operation == StorageOperation::SyncGrowing && event.path.name() == "data" {
            durable = durable.max(event.offset + event.bytes);
        }
        if is_of_part(&event, StorageOperation::Delete) {
            let start: u64 = event.path.name().parse().unwrap();
            assert!(start + 4096 <= durable, "{start} went at {durable}");
        }
    }
    write(&mut session, 201);
    session.commit().unwrap();
    drop(session);
    let array = open(&storage, false).array(&path()).unwrap();
    assert_eq!(read(&array, DataType::UInt8, &Selection::all(&[64])).concat(), [201; 64]);
}

#[test]
fn a_tier_never_has_more_parts_than_it_may() {
    for is_promise in [true, false] {
        let (recording, tier) = recorded();
        let storage: Arc<dyn Storage> = recording.clone();
        let mut options = through(tier, Some(3 * 4096), 4096);
        options.reach = if is_promise { CommitReach::Node } else { CommitReach::Shared };
        let mut session = open(&storage, true).session(Box::new(Alone), options).unwrap();
        for round in 0..3 {
            for value in 0..200 {
                write(&mut session, value + round);
            }
            session.commit().unwrap();
        }
        session.drain().unwrap();
        let (mut parts, mut most) = (0, 0);
        for event in recording.events() {
            parts += i32::from(is_of_part(&event, StorageOperation::Grow));
            parts -= i32::from(is_of_part(&event, StorageOperation::Delete));
            most = most.max(parts);
        }
        assert!((2..=3).contains(&most), "{most} parts were there at a time");
    }
}

#[test]
fn the_log_is_begun_while_the_first_commit_is_written_and_goes_with_a_session_without_one() {
    let (recording, tier) = recorded();
    let storage: Arc<dyn Storage> = recording.clone();
    let store = open(&storage, true);
    let mut session = store.session(Box::new(Alone), through(tier, None, 4096)).unwrap();
    write(&mut session, 1);
    let log = storage.sibling(".bedform-log").unwrap();
    let first = ObjectPath::parse("roots/0000000000.json").unwrap();
    wait_until("the log is begun", || log.stat(&first).is_ok());
    let array = open(&storage, false).array(&path()).unwrap();
    let all = Selection::all(&[64]);
    assert_ne!(read(&array, DataType::UInt8, &all).concat(), [1; 64]);
    drop(session);
    store.settle().unwrap();
    store.collect_log(&CollectOptions::default()).unwrap();
    assert!(log.list(&ObjectPath::root()).unwrap().is_empty());
}
