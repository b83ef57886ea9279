//! Sessions of several members: a commit is atomic over all of them, and overlaps follow the ranks.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Barrier};

use bedform::comm::{Communicator as _, ThreadMember, threads};
use bedform::log::session::{AtEnd, CommitReach, SessionOptions};
use bedform::log::settle::SettleOptions;
use bedform::{Elements, ErrorKind, NewArray, OpenOptions, Store};
use bedform_format::{DataType, ObjectPath};
use bedform_geometry::Selection;
use bedform_storage::{CancelSource, MemoryStorage, Storage, cancelled_by};
use proptest::prelude::*;

use super::arrays::{model_of, path, read, with};
use super::cases;
use super::model::{Element, Numbers};
use super::strategies::{new_array, selection};

const TYPES: [DataType; 3] = [DataType::UInt8, DataType::Int16, DataType::Float64];

pub(crate) fn open(storage: &Arc<dyn Storage>, writable: bool) -> Store {
    let mut options = OpenOptions::default();
    options.commits_named = 2;
    options.writable = writable;
    options.threads = Some(1);
    Store::open(storage.clone(), options).unwrap()
}

pub(crate) fn create(storage: &Arc<dyn Storage>, new: &NewArray) {
    let mut options = OpenOptions::default();
    options.commits_named = 2;
    options.writable = true;
    let store = Store::create(storage.clone(), &serde_json::Map::new(), options).unwrap();
    store.create_array(&path(), new).unwrap();
}

/// The writes of one member for one commit.
type Writes = Vec<(Selection, Vec<Element>)>;

/// Every member writes its part of each commit, and commits.
fn write_all(storage: &Arc<dyn Storage>, data_type: DataType, parts: &[Vec<Writes>]) {
    let members = threads(u32::try_from(parts.len()).unwrap());
    std::thread::scope(|scope| {
        for (member, part) in members.into_iter().zip(parts) {
            scope.spawn(move || {
                let store = open(storage, true);
                let mut session =
                    store.session(Box::new(member), SessionOptions::default()).unwrap();
                for writes in part {
                    for (selection, elements) in writes {
                        with(data_type, elements, |elements| {
                            session.write(&path(), selection, elements).unwrap()
                        });
                    }
                    // Some members begin the commit before the others arrive.
                    if writes.len() % 2 == 1 {
                        session.commit_begin().unwrap();
                    }
                    session.commit_wait().unwrap();
                }
            });
        }
    });
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn what_members_write_together_is_what_a_list_holds_in_the_order_of_their_ranks(
        new in new_array(&TYPES),
        members in 1_usize..5,
        commits in 1_usize..4,
        seed in any::<u64>(),
        is_remote in proptest::bool::weighted(0.25),
    ) {
        let storage = crate::place(is_remote);
        create(&storage, &new);
        let mut model = model_of(&new);
        let numbers = &mut Numbers(seed);
        let mut draw = || -> Writes {
            (0..numbers.below(4))
                .map(|_| {
                    let selection = selection(&new.shape, numbers);
                    let count = selection.len().unwrap();
                    let elements = numbers.elements(new.data_type, count);
                    (selection, elements)
                })
                .collect()
        };
        let parts: Vec<Vec<Writes>> =
            (0..members).map(|_| (0..commits).map(|_| draw()).collect()).collect();
        write_all(&storage, new.data_type, &parts);
        for commit in 0..commits {
            for (selection, elements) in parts.iter().flat_map(|part| &part[commit]) {
                model.write(selection, elements);
            }
        }
        let all = Selection::all(&new.shape);
        let array = open(&storage, false).array(&path()).unwrap();
        prop_assert_eq!(&read(&array, new.data_type, &all), &model.elements);
        open(&storage, true).settle().unwrap();
        prop_assert_eq!(&read(&array, new.data_type, &all), &model.elements);
        prop_assert!(storage.sibling(".bedform-log").unwrap().list(&root()).unwrap().is_empty());
    }
}

fn root() -> bedform_format::ObjectPath {
    bedform_format::ObjectPath::root()
}

pub(crate) fn bytes_array() -> NewArray {
    NewArray {
        shape: vec![64],
        data_type: DataType::UInt8,
        layout: bedform::ArrayLayout {
            chunk_shape: vec![4],
            shard_shape: vec![16],
            order: bedform_geometry::Order::RowMajor,
            serializer: None,
            codecs: vec![],
            transpose: None,
            checksum: true,
            keys: bedform_format::metadata::ChunkKeys::DEFAULT,
            choice: None,
        },
        fill_value: bedform_format::metadata::FillValue::zero(DataType::UInt8),
        dimension_names: None,
        attributes: serde_json::Map::new(),
    }
}

#[test]
fn a_member_that_fails_before_the_commit_leaves_nothing_visible_and_nobody_waiting() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    create(&storage, &bytes_array());
    let all = Selection::all(&[64]);
    let run = |member: ThreadMember| {
        let rank = member.rank();
        let store = open(&storage, true);
        let mut session = store.session(Box::new(member), SessionOptions::default()).unwrap();
        session.write(&path(), &all, Elements::Bytes(&[7; 64])).unwrap();
        // One member is gone before the others commit.
        (rank != 1).then(|| session.commit().map_err(|error| error.kind()))
    };
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let run = &run;
        let all: Vec<_> =
            threads(3).into_iter().map(|member| scope.spawn(move || run(member))).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(outcomes, [Some(Err(ErrorKind::Io)), None, Some(Err(ErrorKind::Io))]);
    let array = open(&storage, false).array(&path()).unwrap();
    assert_eq!(read(&array, DataType::UInt8, &all).concat(), [0; 64]);
}

#[test]
fn a_commit_to_an_array_that_was_made_smaller_or_deleted_is_a_conflict() {
    for delete in [false, true] {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        create(&storage, &bytes_array());
        let store = open(&storage, true);
        let all = Selection::all(&[64]);
        for commits in [false, true] {
            let member = threads(1).pop().unwrap();
            let mut session = store.session(Box::new(member), SessionOptions::default()).unwrap();
            session.write(&path(), &all, Elements::Bytes(&[7; 64])).unwrap();
            if commits {
                assert!(session.commit().is_ok());
                session.write(&path(), &all, Elements::Bytes(&[8; 64])).unwrap();
            }
            let other = open(&storage, true);
            match delete {
                true => other.delete(&path()).unwrap(),
                false => other.array(&path()).unwrap().resize(&[20]).unwrap(),
            }
            let error = session.commit().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            drop(session);
            store.settle().unwrap();
            if delete {
                other.create_array(&path(), &bytes_array()).unwrap();
            } else {
                other.array(&path()).unwrap().resize(&[64]).unwrap();
            }
            let found = read(&store.array(&path()).unwrap(), DataType::UInt8, &all).concat();
            let kept = if commits && !delete { 20 } else { 0 };
            assert_eq!(found, [vec![7; kept], vec![0; 64 - kept]].concat());
            store.array(&path()).unwrap().write(&all, Elements::Bytes(&[0; 64])).unwrap();
        }
    }
}

/// The writer's snapshot has no commits. The shard that it writes replaces one with a settled
/// commit, and must not look older than that commit.
#[test]
fn a_whole_shard_begun_before_the_first_commit_and_ended_after_it_was_settled_is_whole() {
    let all = Selection::all(&[64]);
    for settles_all in [false, true] {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        create(&storage, &bytes_array());
        let other = ObjectPath::parse("other").unwrap();
        open(&storage, true).create_array(&other, &bytes_array()).unwrap();
        let has_begun = Rc::new(Cell::new(false));
        let (place, begun) = (storage.clone(), has_begun.clone());
        let commit_and_settle = CancelSource::each_time(move || {
            if begun.replace(true) {
                return false;
            }
            let all = Selection::all(&[64]);
            let store = open(&place, true);
            let member = threads(1).pop().unwrap();
            let mut session = store.session(Box::new(member), SessionOptions::default()).unwrap();
            for path in [&path(), &ObjectPath::parse("other").unwrap()] {
                session.write(path, &all, Elements::Bytes(&[7; 64])).unwrap();
            }
            session.commit().unwrap();
            drop(session);
            let mut options = SettleOptions::default();
            options.arrays = (!settles_all).then(|| vec![path()]);
            store.settle_with(&options, &|_, _| ()).unwrap();
            false
        });
        let array = open(&storage, true).array(&path()).unwrap();
        cancelled_by(&commit_and_settle, || array.write(&all, Elements::Bytes(&[9; 64]))).unwrap();
        assert!(has_begun.get());
        for _ in 0..2 {
            let found = open(&storage, false).array(&path()).unwrap();
            assert_eq!(read(&found, DataType::UInt8, &all).concat(), [9; 64]);
            open(&storage, true).settle().unwrap();
        }
    }
}

/// Independent sessions, a reader and a settler: the reader sees only whole commits.
#[test]
fn readers_see_whole_commits_while_others_commit_and_settle() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    create(&storage, &bytes_array());
    let all = Selection::all(&[64]);
    let start = Barrier::new(4);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2_u8)
            .map(|writer| {
                let (storage, all, start) = (&storage, &all, &start);
                scope.spawn(move || {
                    let store = open(storage, true);
                    start.wait();
                    for round in 0..20_u8 {
                        let member = threads(1).pop().unwrap();
                        let mut session =
                            store.session(Box::new(member), SessionOptions::default()).unwrap();
                        let value = 1 + 2 * round + writer;
                        session.write(&path(), all, Elements::Bytes(&[value; 64])).unwrap();
                        session.commit().unwrap();
                    }
                })
            })
            .collect();
        let done = || writers.iter().all(std::thread::ScopedJoinHandle::is_finished);
        let settler = scope.spawn(|| {
            let store = open(&storage, true);
            start.wait();
            for _ in 0..15 {
                store.settle().unwrap();
            }
        });
        let array = open(&storage, false).array(&path()).unwrap();
        start.wait();
        while !done() || !settler.is_finished() {
            let found = read(&array, DataType::UInt8, &all).concat();
            assert!(found.iter().all(|value| *value == found[0]), "{found:?}");
        }
    });
    open(&storage, true).settle().unwrap();
    let array = open(&storage, false).array(&path()).unwrap();
    let found = read(&array, DataType::UInt8, &all).concat();
    assert!(found[0] >= 39 && found.iter().all(|value| *value == found[0]), "{found:?}");
}

#[test]
fn members_that_do_not_agree_on_how_the_session_ends_are_told_before_they_write() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    create(&storage, &bytes_array());
    let (mut leaves, mut promises) = (SessionOptions::default(), SessionOptions::default());
    leaves.at_end = AtEnd::Leave;
    promises.reach = CommitReach::Node;
    for (other, name) in [(&leaves, "settle"), (&promises, "durability")] {
        std::thread::scope(|scope| {
            for member in threads(3) {
                let own =
                    if member.rank() == 2 { other.clone() } else { SessionOptions::default() };
                let store = open(&storage, true);
                scope.spawn(move || {
                    let error = store.session(Box::new(member), own).err().unwrap();
                    let said = error.to_string();
                    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{said}");
                    assert!(said.contains(name) && said.contains("0 and 2"), "{said}");
                });
            }
        });
    }
}
