//! Members on several nodes: the members of a node share a segment, and the result equals a list of
//! elements.
#![allow(clippy::cast_possible_truncation)]

use std::collections::BTreeSet;
use std::sync::Arc;

use bedform::comm::{Communicator as _, ThreadMember, threads_on_nodes};
use bedform::log::recover::LeftoverPolicy;
use bedform::log::session::{Session, SessionOptions};
use bedform::{Array, ArrayLayout, ErrorKind, NewArray, OpenOptions, Store};
use bedform_format::log::{Boxes, SegmentName};
use bedform_format::{DataType, ObjectPath};
use bedform_geometry::{Region, Selection};
use bedform_storage::{
    Failing, Fault, MemoryStorage, RecordedOperation, Recording, Storage, StorageErrorKind,
    StorageOperation,
};
use proptest::prelude::*;

use super::arrays::{model_of, path, read, with};
use super::cases;
use super::model::{Element, Numbers};
use super::sessions::{bytes_array, create, open};
use super::strategies::{new_array, selection};

const TYPES: [DataType; 3] = [DataType::UInt8, DataType::Int16, DataType::Float64];

/// Runs `act` on each of `size` members in its session, and returns the results.
fn on_nodes<T: Send>(
    storages: &[Arc<dyn Storage>],
    per_node: u32,
    act: impl Fn(u32, Session) -> T + Sync,
) -> Vec<T> {
    let members = threads_on_nodes(u32::try_from(storages.len()).unwrap(), per_node);
    let run = |member: ThreadMember, storage: &Arc<dyn Storage>| {
        let rank = member.rank();
        let store = open(storage, true);
        act(rank, store.session(Box::new(member), SessionOptions::default()).unwrap())
    };
    std::thread::scope(|scope| {
        let run = &run;
        let all: Vec<_> = members
            .into_iter()
            .zip(storages)
            .map(|(member, storage)| scope.spawn(move || run(member, storage)))
            .collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[derive(Debug)]
enum Act {
    Write(Selection, Vec<Element>),
    Flush,
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn what_members_of_nodes_write_is_what_a_list_holds_before_and_after_settling(
        new in new_array(&TYPES),
        members in 2_usize..7,
        per_node in 1_u32..5,
        commits in 1_usize..4,
        seed in any::<u64>(),
    ) {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        create(&storage, &new);
        let mut model = model_of(&new);
        let numbers = &mut Numbers(seed);
        // In some commits some members write nothing, leaders too; some members flush between their
        // writes.
        let mut draw = || -> Vec<Act> {
            (0..numbers.below(5))
                .map(|_| match numbers.below(4) {
                    0 => Act::Flush,
                    _ => {
                        let selection = selection(&new.shape, numbers);
                        let count = selection.len().unwrap();
                        Act::Write(selection, numbers.elements(new.data_type, count))
                    }
                })
                .collect()
        };
        let parts: Vec<Vec<Vec<Act>>> =
            (0..members).map(|_| (0..commits).map(|_| draw()).collect()).collect();
        let watching = open(&storage, false).array(&path()).unwrap();
        on_nodes(&vec![storage.clone(); members], per_node, |rank, mut session| {
            for acts in &parts[rank as usize] {
                for act in acts {
                    match act {
                        Act::Flush => session.flush().unwrap(),
                        Act::Write(selection, elements) => {
                            with(new.data_type, elements, |elements| {
                                session.write(&path(), selection, elements).unwrap();
                            });
                        }
                    }
                }
                session.commit().unwrap();
                if rank == 0 {
                    // The handle keeps opened objects, and still sees later commits.
                    read(&watching, new.data_type, &Selection::all(&new.shape));
                }
            }
        });
        for commit in 0..commits {
            for act in parts.iter().flat_map(|part| &part[commit]) {
                if let Act::Write(selection, elements) = act {
                    model.write(selection, elements);
                }
            }
        }
        let all = Selection::all(&new.shape);
        prop_assert_eq!(&read(&watching, new.data_type, &all), &model.elements);
        let array = open(&storage, false).array(&path()).unwrap();
        prop_assert_eq!(&read(&array, new.data_type, &all), &model.elements);
        let found = open(&storage, true).recover(None, LeftoverPolicy::Keep).unwrap();
        prop_assert_eq!(found.found, vec![]);
        open(&storage, true).settle().unwrap();
        prop_assert_eq!(&read(&array, new.data_type, &all), &model.elements);
        let log = storage.sibling(".bedform-log").unwrap();
        prop_assert!(log.list(&ObjectPath::root()).unwrap().is_empty());
    }
}

fn one(start: u64, length: u64) -> Boxes {
    Boxes::one(&[start], &[length]).unwrap()
}

fn contents(storage: &Arc<dyn Storage>) -> Vec<u8> {
    let array = open(storage, false).array(&path()).unwrap();
    read(&array, DataType::UInt8, &Selection::all(&[64])).concat()
}

/// Returns the paths of these operations on the log's segments.
fn of_segments(events: &[RecordedOperation], operation: StorageOperation) -> Vec<String> {
    let in_segment = |event: &&RecordedOperation| {
        event.operation == operation && event.path.as_str().starts_with("segments/")
    };
    events.iter().filter(in_segment).map(|event| event.path.to_string()).collect()
}

/// Opens the array without any cached data.
fn open_cold(storage: &Arc<dyn Storage>) -> Array {
    let mut options = OpenOptions::default();
    options.cache_bytes = 0;
    options.threads = Some(1);
    Store::open(storage.clone(), options).unwrap().array(&path()).unwrap()
}

#[test]
fn a_commit_costs_a_sync_for_each_node_and_a_reader_opens_what_it_touches() {
    let recording = Recording::new(MemoryStorage::new());
    let storage: Arc<dyn Storage> = Arc::new(recording.clone());
    create(&storage, &bytes_array());
    let counts = on_nodes(&vec![storage.clone(); 12], 4, |rank, mut session| {
        let mut at = Vec::new();
        // Too few commits for a table.
        for value in 1..3 {
            // The leader of the last node never writes data of its own.
            if rank != 8 {
                session.write_boxes(&path(), one(4 * u64::from(rank), 4), &[value; 4]).unwrap();
            }
            session.commit().unwrap();
            at.push(recording.events().len());
        }
        at
    });
    let events = recording.events();
    let created = of_segments(&events, StorageOperation::Grow);
    assert_eq!(created.len(), 3, "{created:?}");
    let lanes: Vec<_> = created
        .iter()
        .map(|path| SegmentName::parse(path.split('/').nth(1).unwrap()).unwrap())
        .map(|name| (name.rank, name.lanes.count()))
        .collect();
    assert_eq!(lanes.iter().collect::<BTreeSet<_>>(), [(0, 4), (4, 4), (8, 4)].iter().collect());
    assert_eq!(of_segments(&events, StorageOperation::Open).len(), 9, "the other lanes");
    // One sync per leader, and one for the directory.
    assert_eq!(of_segments(&events, StorageOperation::SyncGrowing).len(), 2 * (3 + 1));
    drop(counts);
    let expected: Vec<u8> = (0..64).map(|at| if at < 48 && at / 4 != 8 { 2 } else { 0 }).collect();
    assert_eq!(contents(&storage), expected);
    // A read of one node's data opens its segment, and the one with the directories.
    recording.clear();
    let array = open_cold(&storage);
    let part = Selection::from(Region::new(vec![20], vec![4]).unwrap());
    assert_eq!(read(&array, DataType::UInt8, &part).concat(), [2; 4]);
    let opened: BTreeSet<_> =
        of_segments(&recording.events(), StorageOperation::Open).into_iter().collect();
    assert_eq!(opened.len(), 2, "{opened:?}");
}

#[test]
fn a_reader_of_a_region_opens_what_lies_over_that_and_not_over_all_of_its_shard() {
    let recording = Recording::new(MemoryStorage::new());
    let storage: Arc<dyn Storage> = Arc::new(recording.clone());
    let layout = ArrayLayout { shard_shape: vec![64], ..bytes_array().layout };
    create(&storage, &NewArray { layout, ..bytes_array() });
    on_nodes(&vec![storage.clone(); 8], 2, |rank, mut session| {
        let bytes = [rank as u8 + 1; 8];
        session.write_boxes(&path(), one(8 * u64::from(rank), 8), &bytes).unwrap();
        session.commit().unwrap();
    });
    let array = open_cold(&storage);
    for (start, length, expected) in [(36, 4, 2), (28, 8, 3), (0, 64, 4)] {
        recording.clear();
        let array = match length {
            64 => array.clone(),
            _ => open_cold(&storage),
        };
        let part = Selection::from(Region::new(vec![start], vec![length]).unwrap());
        let elements: Vec<u8> = (start..start + length).map(|at| (at / 8) as u8 + 1).collect();
        assert_eq!(read(&array, DataType::UInt8, &part).concat(), elements);
        let opened: BTreeSet<_> =
            of_segments(&recording.events(), StorageOperation::Open).into_iter().collect();
        assert_eq!(opened.len(), expected, "{start}: {opened:?}");
    }
}

#[test]
fn a_node_alone_syncs_its_data_with_the_directory() {
    let recording = Recording::new(MemoryStorage::new());
    let storage: Arc<dyn Storage> = Arc::new(recording.clone());
    create(&storage, &bytes_array());
    on_nodes(&vec![storage.clone(); 4], 4, |rank, mut session| {
        session.write_boxes(&path(), one(16 * u64::from(rank), 16), &[7; 16]).unwrap();
        session.commit().unwrap();
    });
    assert_eq!(of_segments(&recording.events(), StorageOperation::SyncGrowing).len(), 1);
    assert_eq!(contents(&storage), [7; 64]);
}

#[test]
fn what_takes_a_large_description_is_read_as_what_takes_a_small_one() {
    // One 300 KB description belongs to a leader, another to an ordinary member; the others are
    // small.
    const COUNT: u64 = 150_000;
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let layout = ArrayLayout {
        chunk_shape: vec![1 << 16],
        shard_shape: vec![1 << 20],
        ..bytes_array().layout
    };
    create(&storage, &NewArray { shape: vec![101 * COUNT], layout, ..bytes_array() });
    let starts = |rank: u64| (0..COUNT).map(move |at| 100 * at + at * at % 37 + rank);
    let boxes = |rank: u32| match rank {
        1 | 2 => {
            let starts: Vec<u64> = starts(u64::from(rank)).collect();
            let shapes = vec![1; starts.len()];
            Boxes::new(1, starts, shapes).unwrap()
        }
        _ => one(u64::from(rank), 2),
    };
    on_nodes(&vec![storage.clone(); 4], 2, |rank, mut session| {
        let boxes = boxes(rank);
        let bytes = vec![rank as u8 + 1; usize::try_from(boxes.elements().unwrap()).unwrap()];
        session.write_boxes(&path(), boxes, &bytes).unwrap();
        session.commit().unwrap();
    });
    let mut expected = vec![0; 101 * COUNT as usize];
    for rank in 0..4 {
        for (start, length) in boxes(rank).iter() {
            let (start, length) = (start[0] as usize, length[0] as usize);
            expected[start..start + length].fill(rank as u8 + 1);
        }
    }
    let found = |storage| {
        let array = open(storage, false).array(&path()).unwrap();
        read(&array, DataType::UInt8, &Selection::all(&[101 * COUNT])).concat()
    };
    assert!(found(&storage) == expected);
    open(&storage, true).settle().unwrap();
    assert!(found(&storage) == expected);
}

type Storages = Vec<Arc<dyn Storage>>;

/// The storages of the members; that of `failing` fails.
fn with_faults(
    members: usize,
    failing: usize,
) -> (Arc<dyn Storage>, Arc<Failing<MemoryStorage>>, Storages) {
    let memory = MemoryStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    create(&storage, &bytes_array());
    let faulty = Arc::new(Failing::new(memory));
    let mut storages = vec![storage.clone(); members];
    storages[failing] = faulty.clone();
    (storage, faulty, storages)
}

#[test]
fn what_one_member_cannot_write_is_an_error_of_all_and_the_rest_can_be_recovered() {
    for failing in 0..4 {
        let (storage, faulty, storages) = with_faults(4, failing);
        let outcomes = on_nodes(&storages, 2, |rank, mut session| {
            let own = one(16 * u64::from(rank), 16);
            session.write_boxes(&path(), own.clone(), &[1; 16]).unwrap();
            session.commit().unwrap();
            session.write_boxes(&path(), own, &[2; 16]).unwrap();
            if rank as usize == failing {
                let full = Fault::Error(StorageErrorKind::NoSpace);
                faulty.fail_at(StorageOperation::AppendGrowing, 0, full);
            }
            let error = session.commit().unwrap_err();
            assert_eq!(session.commit().unwrap_err().kind(), ErrorKind::Poisoned);
            error
        });
        for (rank, error) in outcomes.iter().enumerate() {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
            let named = error.to_string().starts_with(&format!("rank {failing}: "));
            assert_eq!(named, rank != failing, "{error}");
        }
        assert_eq!(contents(&storage), [1; 64]);
        let store = open(&storage, true);
        store.settle().unwrap();
        let done = store.recover(None, LeftoverPolicy::Commit).unwrap();
        let bytes: u64 = done.found.iter().map(|found| found.bytes).sum();
        // A failing leader also loses the data of its node.
        let lost = if failing % 2 == 0 { 32 } else { 16 };
        assert_eq!(bytes, 64 - lost, "{done:?}");
        let expected: Vec<u8> = (0..64)
            .map(|at| {
                let rank = at / 16;
                let is_lost = if lost == 32 { rank / 2 == failing / 2 } else { rank == failing };
                if is_lost { 1 } else { 2 }
            })
            .collect();
        assert_eq!(contents(&storage), expected, "{failing}");
        store.settle().unwrap();
        assert_eq!(contents(&storage), expected);
        let log = storage.sibling(".bedform-log").unwrap();
        assert!(log.list(&ObjectPath::root()).unwrap().is_empty());
    }
}

#[test]
fn what_members_flushed_is_found_lane_by_lane_and_counts_in_the_order_of_writing() {
    let (storage, faulty, storages) = with_faults(3, 1);
    on_nodes(&storages, 3, |rank, mut session| {
        for value in 1..4 {
            let own = one(20 * u64::from(rank), 24);
            session.write_boxes(&path(), own, &[10 * value + rank as u8; 24]).unwrap();
            session.flush().unwrap();
        }
        // The last member is gone before the commit.
        if rank == 1 {
            faulty.fail_at(StorageOperation::AppendGrowing, 0, Fault::Error(StorageErrorKind::Io));
            let _ = session.write_boxes(&path(), one(0, 1), &[99]);
        }
        assert!(session.commit().is_err());
    });
    let store = open(&storage, true);
    assert_eq!(contents(&storage), [0; 64]);
    let done = store.recover(None, LeftoverPolicy::Commit).unwrap();
    let ranks: Vec<_> = done.found.iter().map(|found| (found.rank, found.writes)).collect();
    assert_eq!(ranks, [(0, 3), (1, 3), (2, 3)]);
    let mut expected = vec![0; 64];
    for rank in 0..3_usize {
        expected[20 * rank..20 * rank + 24].fill(30 + rank as u8);
    }
    assert_eq!(contents(&storage), expected);
}

#[test]
fn a_member_that_is_gone_or_leaves_ends_it_for_all_on_every_node() {
    for gone in 0..6 {
        for leaves in [false, true] {
            let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
            create(&storage, &bytes_array());
            let outcomes = on_nodes(&vec![storage.clone(); 6], 3, |rank, mut session| {
                session.write_boxes(&path(), one(8 * u64::from(rank), 8), &[7; 8]).unwrap();
                if rank == gone {
                    if leaves {
                        session.leave();
                    }
                    return None;
                }
                Some(session.commit().is_err())
            });
            for (rank, outcome) in (0..).zip(outcomes) {
                assert_eq!(outcome, (rank != gone).then_some(true), "{gone} {leaves}");
            }
            assert_eq!(contents(&storage), [0; 64]);
        }
    }
}

#[test]
fn nodes_without_any_write_cost_nothing_to_commit_and_leave_nothing() {
    let recording = Recording::new(MemoryStorage::new());
    let storage: Arc<dyn Storage> = Arc::new(recording.clone());
    create(&storage, &bytes_array());
    on_nodes(&vec![storage.clone(); 6], 2, |rank, mut session| {
        if rank == 3 {
            session.write_boxes(&path(), one(0, 64), &[7; 64]).unwrap();
        }
        session.commit().unwrap();
        session.commit().unwrap();
    });
    // One sync by node 1, and one for the directory.
    assert_eq!(of_segments(&recording.events(), StorageOperation::SyncGrowing).len(), 2);
    assert_eq!(contents(&storage), [7; 64]);
    let store: Store = open(&storage, true);
    store.settle().unwrap();
    let log = storage.sibling(".bedform-log").unwrap();
    assert!(log.list(&ObjectPath::root()).unwrap().is_empty());
}

/// Each member writes several stripes, in held and in copied pieces.
#[test]
fn large_writes_go_through_many_stripes_of_every_lane() {
    let mut new = bytes_array();
    let length = 9 << 20_u64;
    new.shape = vec![3, length];
    (new.layout.chunk_shape, new.layout.shard_shape) = (vec![1, 1 << 20], vec![1, 1 << 22]);
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    create(&storage, &new);
    let bytes_of = |rank: u64| -> Vec<u8> {
        (0..length).map(|at| (at.wrapping_mul(2_654_435_761 + rank) >> 13) as u8).collect()
    };
    on_nodes(&vec![storage.clone(); 3], 3, |rank, mut session| {
        let bytes = bytes_of(u64::from(rank));
        let row = Boxes::one(&[u64::from(rank), 0], &[1, length]).unwrap();
        session.write_boxes(&path(), row, &bytes).unwrap();
        session.commit().unwrap();
    });
    let array = open(&storage, false).array(&path()).unwrap();
    for rank in 0..3 {
        let row = Selection::from(Region::new(vec![rank, 0], vec![1, length]).unwrap());
        let mut found = vec![0; usize::try_from(length).unwrap()];
        array.read(&row, &mut found).unwrap();
        assert!(found == bytes_of(rank), "{rank}");
    }
    open(&storage, true).settle().unwrap();
    let mut found = vec![0; usize::try_from(3 * length).unwrap()];
    array.read(&Selection::all(&[3, length]), &mut found).unwrap();
    let (rows, all) = (found.chunks(usize::try_from(length).unwrap()), 0..3);
    assert!(rows.zip(all).all(|(row, rank)| row == bytes_of(rank)));
}
