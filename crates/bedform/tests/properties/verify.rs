//! Verification of a store with a log: it names all damage that affects data.
#![allow(clippy::cast_possible_truncation)]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use bedform::comm::threads;
use bedform::log::session::SessionOptions;
use bedform::log::settle::CollectOptions;
use bedform::store::Verified;
use bedform::{Elements, ErrorKind, OpenOptions, Store};
use bedform_format::ObjectPath;
use bedform_format::log::STRIPE_BYTES;
use bedform_geometry::{Region, Selection};
use bedform_storage::{
    CancelSource, Condition, Durability, MemoryStorage, Storage, WriteHint, cancelled_by,
};

use super::model::Numbers;
use super::overlay::layout;

/// Elements along both axes of the arrays, and objects per array.
const SHAPE: [u64; 2] = [300, 400];
const OBJECTS: u64 = 6;

fn path(name: &str) -> ObjectPath {
    ObjectPath::parse(name).unwrap()
}

fn open(storage: &Arc<dyn Storage>) -> Store {
    let mut options = OpenOptions::default();
    options.commits_named = 2;
    options.writable = true;
    Store::open(storage.clone(), options).unwrap()
}

fn part(start: [u64; 2], shape: [u64; 2]) -> Selection {
    Selection::from(Region::new(start.to_vec(), shape.to_vec()).unwrap())
}

/// Two members write these parts, each its half of the rows, and commit.
fn commit(storage: &Arc<dyn Storage>, parts: &[(&str, [u64; 2], [u64; 2])], value: u8) {
    std::thread::scope(|scope| {
        for (rank, member) in (0..).zip(threads(2)) {
            scope.spawn(move || {
                let mut session =
                    open(storage).session(Box::new(member), SessionOptions::default()).unwrap();
                for (name, start, shape) in parts {
                    let shape = [shape[0] / 2, shape[1]];
                    let selection = part([start[0] + rank * shape[0], start[1]], shape);
                    let count = (shape[0] * shape[1]) as usize;
                    let bytes: Vec<u8> = (0..count).map(|at| at as u8 ^ value).collect();
                    session.write(&path(name), &selection, Elements::Bytes(&bytes)).unwrap();
                }
                session.commit().unwrap();
            });
        }
    });
}

/// A store with arrays `t`, which has a shard and data in the log over it and elsewhere, and `u`,
/// which is all in the log.
fn store() -> Arc<dyn Storage> {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let mut options = OpenOptions::default();
    options.commits_named = 2;
    options.writable = true;
    let store = Store::create(storage.clone(), &serde_json::Map::new(), options).unwrap();
    let new = layout(&SHAPE, &[50, 50], &[150, 150]);
    for name in ["t", "u"] {
        store.create_array(&path(name), &new).unwrap();
    }
    let first = vec![7; 150 * 150];
    let shard = part([0, 0], [150, 150]);
    let array = store.array(&path("t")).unwrap();
    array.write(&shard, Elements::Bytes(&first)).unwrap();
    commit(&storage, &[("t", [100, 20], [200, 150]), ("u", [0, 0], SHAPE)], 1);
    commit(&storage, &[("t", [90, 0], [10, 40])], 2);
    storage
}

fn verify(storage: &Arc<dyn Storage>, arrays: Option<&[ObjectPath]>) -> Verified {
    open(storage).verify(arrays, &|_, _| ()).unwrap()
}

/// All elements of both arrays.
fn read(storage: &Arc<dyn Storage>) -> bedform::Result<Vec<u8>> {
    let store = open(storage);
    let mut bytes = vec![0; 2 * (SHAPE[0] * SHAPE[1]) as usize];
    let (t, u) = bytes.split_at_mut((SHAPE[0] * SHAPE[1]) as usize);
    for (name, elements) in [("t", t), ("u", u)] {
        store.array(&path(name))?.read(&Selection::all(&SHAPE), elements)?;
    }
    Ok(bytes)
}

/// Returns the segments of the log, with their bytes.
fn segments(log: &dyn Storage) -> BTreeMap<String, Vec<u8>> {
    let names = log.list(&path("segments")).unwrap().into_iter().map(|entry| entry.name);
    let bytes = names.map(|name| {
        let object = log.open(&path(&format!("segments/{name}/data"))).unwrap();
        let mut bytes = vec![0; usize::try_from(object.version().size).unwrap()];
        object.read(0, &mut bytes).unwrap();
        (name, bytes)
    });
    bytes.collect()
}

fn put(log: &dyn Storage, segment: &str, bytes: &[u8]) {
    let name = path(&format!("segments/{segment}/data"));
    let mut writer = log.create(&name, Durability::Process, WriteHint::default()).unwrap();
    writer.append(bytes).unwrap();
    writer.publish(Condition::None).unwrap();
}

fn remove(log: &dyn Storage, segment: &str) {
    let name = path(&format!("segments/{segment}/data"));
    log.delete(&name, Durability::Process, Condition::None).unwrap();
}

#[test]
fn of_a_whole_store_nothing_is_said_but_where_the_data_of_absent_objects_are() {
    let storage = store();
    let found = verify(&storage, None);
    assert_eq!(found.problems, Vec::<String>::new());
    let absent = found.absent.iter();
    let absent: Vec<_> =
        absent.map(|one| (one.array.as_str(), one.objects, one.of, one.in_log)).collect();
    // `t` has one object; rows 100 to 300 and columns 20 to 170 touch three others.
    assert_eq!(absent, [("t", OBJECTS - 1, OBJECTS, 3), ("u", OBJECTS, OBJECTS, OBJECTS)]);
    open(&storage).settle().unwrap();
    let found = verify(&storage, None);
    assert_eq!(found.problems, Vec::<String>::new());
    assert_eq!(found.absent.iter().map(|one| one.in_log).collect::<Vec<_>>(), [0]);
}

#[test]
fn a_changed_bit_of_the_log_is_said_wherever_it_could_be_read() {
    let storage = store();
    let log = storage.sibling(".bedform-log").unwrap();
    let (whole, expected) = (segments(&*log), read(&storage).unwrap());
    let numbers = &mut Numbers(5);
    let (mut said, mut unread) = (0, 0);
    for round in 0..400 {
        let names: Vec<&String> = whole.keys().collect();
        let name = names[numbers.below(names.len() as u64) as usize];
        let mut bytes = whole[name].clone();
        // Most of the segment of two members is a hole between their lanes.
        let written: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
        let (one, two) =
            written.split_at(written.partition_point(|at| (*at as u64) < STRIPE_BYTES));
        // Some rounds damage the descriptions, behind the data of each lane.
        let among = match round % 4 {
            0 | 1 => &written[..],
            2 if !two.is_empty() => &two[two.len().saturating_sub(200)..],
            _ => &one[one.len().saturating_sub(400)..],
        };
        let at = among[numbers.below(among.len() as u64) as usize];
        let bit = numbers.below(8);
        bytes[at] ^= 1 << bit;
        put(&*log, name, &bytes);
        let problems = verify(&storage, None).problems;
        let is_read = read(&storage).is_ok_and(|found| found == expected);
        match problems.as_slice() {
            [] => {
                assert!(
                    is_read,
                    "bit {bit} of byte {at} of {name} is not said, and reads are wrong"
                );
                unread += 1;
            }
            problems => {
                for problem in problems {
                    assert!(problem.contains(&log.name()), "{problem}");
                    assert!(problem.contains(name.as_str()), "{problem}");
                }
                said += 1;
            }
        }
        put(&*log, name, &whole[name]);
    }
    // Heads of data records, and padding, are never read.
    assert!(said > 3 * unread, "{said} are said, {unread} are not read");
    assert_eq!(verify(&storage, None).problems, Vec::<String>::new());
}

#[test]
fn several_damages_are_all_said_each_once_with_the_arrays_that_it_has_data_of() {
    let storage = store();
    let log = storage.sibling(".bedform-log").unwrap();
    let whole = segments(&*log);
    let (first, second) = {
        let by_size = |one: &&String| whole[*one].len();
        (whole.keys().max_by_key(by_size).unwrap(), whole.keys().min_by_key(by_size).unwrap())
    };
    // Data of `t` come first, then those of `u`: three damaged blocks, of which two are adjacent.
    let mut bytes = whole[first].clone();
    for at in [200, 20_000 + (32 << 10), 20_000 + (64 << 10)] {
        bytes[at] ^= 4;
    }
    put(&*log, first, &bytes);
    remove(&*log, second);
    let problems = verify(&storage, None).problems;
    let with = |what: &str| problems.iter().filter(|line| line.contains(what)).count();
    assert_eq!((with(first), with(second), with("is missing")), (problems.len() - 1, 1, 1));
    assert!(problems.len() >= 2, "{problems:?}");
    assert!(with("data of t") >= 1 && with("data of u") + with("t, u") >= 1, "{problems:?}");
    // A check of one array reports only that array, but a missing directory affects all.
    remove(&*log, first);
    put(&*log, second, &whole[second]);
    for (name, other) in [("t", "u"), ("u", "t")] {
        let problems = verify(&storage, Some(&[path(name)])).problems;
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(!problems[0].contains(&format!("data of {other}")), "{problems:?}");
    }
    let error = open(&storage).collect_log(&CollectOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains(first.as_str()), "{error}");
    let error = open(&storage).verify(Some(&[path("v")]), &|_, _| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn what_is_settled_during_a_check_is_not_taken_for_lost() {
    for late in 0..4 {
        let storage = store();
        let steps = Cell::new(0);
        let progress = |_, _| {
            steps.set(steps.get() + 1);
            if steps.get() == late + 1 {
                open(&storage).settle().unwrap();
            }
        };
        let found = open(&storage).verify(None, &progress).unwrap();
        assert_eq!(found.problems, Vec::<String>::new(), "settled at step {late}");
        assert!(steps.get() > late);
    }
}

#[test]
fn a_check_stops_where_it_is_told_to() {
    let storage = store();
    for after in 0..8 {
        let asked = Cell::new(0);
        let source = CancelSource::each_time(move || asked.replace(asked.get() + 1) >= after);
        let check = || open(&storage).verify(None, &|_, _| ());
        let error = cancelled_by(&source, check).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted);
    }
}
