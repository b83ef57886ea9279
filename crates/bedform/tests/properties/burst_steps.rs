//! When what lies in the burst tier is drained: not while a commit is on its way, and when a writer pauses.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use bedform::Elements;
use bedform::comm::{Alone, Communicator as _, threads};
use bedform::log::session::{Burst, Reach, SessionOptions};
use bedform_format::DataType;
use bedform_geometry::Selection;
use bedform_storage::{MemoryStorage, Operation, Recording, Storage};

use super::arrays::{path, read};
use super::sessions::{bytes_array, create, open};

/// Longer than a writer that is busy appends nothing.
const PAUSE: Duration = Duration::from_millis(700);
const DEADLINE: Duration = Duration::from_secs(60);

fn options(part_bytes: u64) -> SessionOptions {
    let mut burst = Burst::new(Arc::new(MemoryStorage::new()), None);
    burst.part_bytes = part_bytes;
    let mut options = SessionOptions::default();
    (options.burst, options.reach) = (Some(burst), Reach::Node);
    options
}

/// How often something was appended to the log.
fn drained(storage: &Recording<MemoryStorage>) -> usize {
    let is_drain = |operation: &Operation| *operation == Operation::AppendGrowing;
    storage.events().iter().filter(|event| is_drain(&event.operation)).count()
}

fn wait_until(is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < DEADLINE, "it does not come about");
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_commit_is_drained_when_it_has_returned_and_not_while_others_write_their_part() {
    let recording = Arc::new(Recording::new(MemoryStorage::new()));
    let storage: Arc<dyn Storage> = recording.clone();
    create(&storage, &bytes_array());
    std::thread::scope(|scope| {
        for member in threads(2) {
            let (storage, recording) = (&storage, &recording);
            scope.spawn(move || {
                let rank = member.rank();
                let mut session =
                    open(storage, true).session(Box::new(member), options(1 << 20)).unwrap();
                if rank == 0 {
                    // The other member waits for this one, with all that it has.
                    sleep(PAUSE);
                    assert_eq!(drained(recording), 0);
                }
                let (all, bytes) = (Selection::all(&[64]), [u8::try_from(rank).unwrap() + 1; 64]);
                session.write(&path(), &all, Elements::Bytes(&bytes)).unwrap();
                session.commit().unwrap();
                // Nobody asks for it.
                wait_until(|| drained(recording) > 0);
                session.drain().unwrap();
            });
        }
    });
    let array = open(&storage, false).array(&path()).unwrap();
    assert_eq!(read(&array, DataType::UInt8, &Selection::all(&[64])).concat(), [2; 64]);
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
    wait_until(|| drained(&recording) > 0);
    session.commit().unwrap();
    session.drain().unwrap();
    let array = store.array(&path()).unwrap();
    assert_eq!(read(&array, DataType::UInt8, &Selection::all(&[64])).concat(), [99; 64]);
}
