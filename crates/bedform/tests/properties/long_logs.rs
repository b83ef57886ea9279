//! Logs of many commits: their cost, and that each snapshot equals a list of elements.

use std::sync::Arc;

use bedform::comm::{Alone, Communicator as _, threads_on_nodes};
use bedform::log::session::{Burst, CommitReach, Session, SessionOptions, SettleLimits};
use bedform::log::settle::SettleOptions;
use bedform::{Elements, ErrorKind, OpenOptions, Store};
use bedform_format::log::Root;
use bedform_format::{DataType, Limits, ObjectPath};
use bedform_geometry::Selection;
use bedform_storage::{Condition, Durability, MemoryStorage, Storage};
use proptest::prelude::*;

use super::arrays::{model_of, path, read};
use super::cases;
use super::model::{Model, Numbers};
use super::sessions::{bytes_array, create, open};
use super::strategies::{new_array, selection};

const TYPES: [DataType; 3] = [DataType::UInt8, DataType::Int16, DataType::Float64];
const LOG: &str = ".bedform-log";

fn names(storage: &dyn Storage, directory: &str) -> Vec<String> {
    let log = storage.sibling(LOG).unwrap();
    let listed = log.list(&ObjectPath::parse(directory).unwrap()).unwrap();
    listed.into_iter().map(|entry| entry.name).collect()
}

fn get(storage: &dyn Storage, at: &ObjectPath) -> Vec<u8> {
    let object = storage.open(at).unwrap();
    let mut bytes = vec![0; usize::try_from(object.version().size).unwrap()];
    object.read(0, &mut bytes).unwrap();
    bytes
}

fn newest_root(storage: &dyn Storage) -> Option<Root> {
    let name = names(storage, "roots").pop()?;
    let log = storage.sibling(LOG).unwrap();
    let at = ObjectPath::parse(&format!("roots/{name}")).unwrap();
    Some(Root::decode(&get(&*log, &at), &Limits::default()).unwrap())
}

fn session(store: &Store) -> Session {
    store.session(Box::new(Alone), SessionOptions::default()).unwrap()
}

/// Opens the store with a handle that knows nothing of it.
fn cold(storage: &Arc<dyn Storage>) -> Store {
    let mut options = OpenOptions::default();
    options.cache_bytes = 0;
    Store::open(storage.clone(), options).unwrap()
}

fn check(store: &Store, model: &Model, data_type: DataType) {
    let array = store.array(&path()).unwrap();
    assert_eq!(array.shape().unwrap(), model.shape);
    let all = Selection::all(&model.shape);
    assert_eq!(read(&array, data_type, &all), model.elements);
}

fn change(session: &mut Session, model: &mut Model, data_type: DataType, numbers: &mut Numbers) {
    if numbers.below(4) == 0 && !model.shape.is_empty() {
        let mut shape = model.shape.clone();
        let axis = usize::try_from(numbers.below(shape.len() as u64)).unwrap();
        shape[axis] += numbers.below(2);
        session.resize(&path(), &shape).unwrap();
        model.resize(&shape);
    }
    let chosen = selection(&model.shape, numbers);
    let elements = numbers.elements(data_type, chosen.len().unwrap());
    session.write(&path(), &chosen, Elements::Bytes(&elements.concat())).unwrap();
    model.write(&chosen, &elements);
}

proptest! {
    #![proptest_config(cases(30))]

    #[test]
    fn every_moment_of_a_long_log_is_what_a_list_holds_whoever_commits_and_settles(
        new in new_array(&TYPES),
        seed in any::<u64>(),
        is_remote in proptest::bool::weighted(0.2),
    ) {
        let storage = crate::place(is_remote);
        create(&storage, &new);
        let numbers = &mut Numbers(seed);
        let mut model = model_of(&new);
        let (mut held, mut parts) = (Vec::new(), 0);
        let stores = [open(&storage, true), open(&storage, true)];
        let mut sessions = [session(&stores[0]), session(&stores[1])];
        for commit in 0..40 {
            let at = usize::try_from(numbers.below(2)).unwrap();
            // So that the session looks up the array's shape again.
            sessions[at].commit().unwrap();
            change(&mut sessions[at], &mut model, new.data_type, numbers);
            sessions[at].commit().unwrap();
            match numbers.below(12) {
                0 => held.push((cold(&storage).snapshot().unwrap(), model.clone())),
                1 => check(&cold(&storage), &model, new.data_type),
                2 => {
                    let mut options = SettleOptions::default();
                    options.arrays = (numbers.below(2) == 0).then(|| vec![path()]);
                    // Settling one array leaves the roots around it, until all is settled.
                    parts += usize::from(options.arrays.is_some());
                    stores[0].settle_with(&options, &|_, _| ()).unwrap();
                    // The shards of the snapshots were replaced. (The log keeps nothing without a
                    // grace period.)
                    held.clear();
                }
                _ => {}
            }
            if !is_remote {
                let roots = names(&*storage, "roots").len();
                prop_assert!(roots <= 4 + 3 * parts, "{} roots after commit {}", roots, commit);
            }
            let named = newest_root(&*storage).map_or(0, |root| root.commits.len() + root.tables.len());
            prop_assert!(named <= 12, "{} names after commit {}", named, commit);
        }
        check(&cold(&storage), &model, new.data_type);
        // Snapshots stay readable after later commits: replaced tables still exist.
        for (then, was) in &held {
            check(then, was, new.data_type);
        }
        prop_assert!(cold(&storage).array(&path()).unwrap().verify().unwrap().is_empty());
        drop(sessions);
        stores[0].settle().unwrap();
        check(&cold(&storage), &model, new.data_type);
        let left = storage.sibling(LOG).unwrap().list(&ObjectPath::root()).unwrap();
        let segments = names(&*storage, "segments");
        prop_assert!(left.is_empty(), "{:?} {:?} {:?}", left, segments, newest_root(&*storage));
    }
}

proptest! {
    #![proptest_config(cases(20))]

    #[test]
    fn a_session_that_settles_in_the_background_leaves_what_a_list_holds_and_little_to_settle(
        new in new_array(&TYPES),
        seed in any::<u64>(),
        members in 1_u32..4,
        nodes in 1_u32..3,
        tier in proptest::option::of(prop_oneof![Just(CommitReach::Node), Just(CommitReach::Shared)]),
        is_remote in proptest::bool::weighted(0.2),
    ) {
        let storage = crate::place(is_remote);
        create(&storage, &new);
        let mut numbers = Numbers(seed);
        let mut model = model_of(&new);
        // For each commit: the writer, the selection, the elements, and the call before it.
        let mut writes = Vec::new();
        for _ in 0..40 {
            let chosen = selection(&model.shape, &mut numbers);
            let elements = numbers.elements(new.data_type, chosen.len().unwrap());
            writes.push((numbers.below(u64::from(members)), chosen, elements, numbers.below(6)));
        }
        let most = 4 + numbers.below(8);
        let burst = tier.map(|_| Burst::new(Arc::new(MemoryStorage::new()), Some(1 << 20)));
        std::thread::scope(|scope| {
            for member in threads_on_nodes(members, members.div_ceil(nodes)) {
                let (storage, writes, burst) = (&storage, &writes, burst.clone());
                scope.spawn(move || {
                    let rank = u64::from(member.rank());
                    let mut options = SessionOptions::default();
                    options.background = Some(SettleLimits { bytes: u64::MAX, commits: most });
                    (options.burst, options.reach) = (burst, tier.unwrap_or(CommitReach::Shared));
                    let store = open(storage, true);
                    let mut session = store.session(Box::new(member), options).unwrap();
                    for (writer, chosen, elements, between) in writes {
                        let mut token = None;
                        if *writer == rank {
                            let bytes = elements.concat();
                            token = Some(session.write(&path(), chosen, Elements::Bytes(&bytes)).unwrap());
                        }
                        match between {
                            0 => drop(session.drain().unwrap()),
                            1 => session.flush().unwrap(),
                            2 => session.commit_begin().unwrap(),
                            _ => {}
                        }
                        session.commit().unwrap();
                        // Also for a write into a segment that has ended.
                        token.map_or(Ok(()), |token| session.wait(token)).unwrap();
                        // Draining makes promised commits visible, many at once.
                        if rank == 0 && tier != Some(CommitReach::Node) {
                            let summary = cold(storage).log_summary().unwrap();
                            assert!(summary.commits <= most + 1, "{} of {most}", summary.commits);
                        }
                    }
                    session.close().unwrap();
                });
            }
        });
        for (_, chosen, elements, _) in &writes {
            model.write(chosen, elements);
        }
        check(&cold(&storage), &model, new.data_type);
        prop_assert!(cold(&storage).array(&path()).unwrap().verify().unwrap().is_empty());
        let left = storage.sibling(LOG).unwrap().list(&ObjectPath::root()).unwrap();
        prop_assert!(left.is_empty(), "{:?}", left);
    }
}

/// A log of `commits` commits of one element each.
fn log_of(commits: u64) -> Arc<dyn Storage> {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    create(&storage, &bytes_array());
    let store = open(&storage, true);
    let mut session = session(&store);
    for commit in 0..commits {
        let one = one(commit % 64);
        session.write(&path(), &one, Elements::Bytes(&[u8::try_from(commit).unwrap()])).unwrap();
        session.commit().unwrap();
    }
    drop(session);
    storage
}

fn one(at: u64) -> Selection {
    Selection::from(bedform_geometry::Region::new(vec![at], vec![1]).unwrap())
}

#[test]
fn a_table_that_is_damaged_or_missing_is_an_error_that_names_it_and_verify_says_so() {
    let storage = log_of(40);
    let log = storage.sibling(LOG).unwrap();
    for table in newest_root(&*storage).unwrap().tables {
        let at = ObjectPath::parse(&format!("tables/{}", table.name)).unwrap();
        let whole = get(&*log, &at);
        let mut changed = whole.clone();
        for position in [0, whole.len() / 2, whole.len() - 1] {
            changed[position] ^= 1;
        }
        for bytes in [Some(changed), Some(whole[..whole.len() - 1].to_vec()), None] {
            match &bytes {
                Some(bytes) => {
                    log.put(&at, bytes, Durability::Disk, Condition::None).unwrap();
                }
                None => log.delete(&at, Durability::Disk, Condition::None).unwrap(),
            }
            let store = cold(&storage);
            let array = store.array(&path()).unwrap();
            let mut elements = [0; 64];
            let error = array.read(&Selection::all(&[64]), &mut elements).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert!(error.to_string().contains(&table.name), "{error}");
            let found = array.verify().unwrap();
            assert!(found.iter().any(|line| line.contains(&table.name)), "{found:?}");
        }
        log.put(&at, &whole, Durability::Disk, Condition::None).unwrap();
    }
    let all = Selection::all(&[64]);
    let found = read(&cold(&storage).array(&path()).unwrap(), DataType::UInt8, &all).concat();
    assert_eq!(found[..40], (0..40).collect::<Vec<u8>>());
}

#[test]
fn a_log_of_the_first_version_is_read_and_goes_on() {
    let storage = log_of(1);
    let log = storage.sibling(LOG).unwrap();
    // Twenty commits, each named by its own directory, as in the first version.
    let store = open(&storage, true);
    let mut options = OpenOptions::default();
    (options.commits_named, options.writable) = (100, true);
    let many = Store::open(storage.clone(), options).unwrap();
    let mut first = session(&many);
    for value in 1..20 {
        first
            .write(&path(), &one(value), Elements::Bytes(&[u8::try_from(value).unwrap()]))
            .unwrap();
        first.commit().unwrap();
    }
    let root = newest_root(&*storage).unwrap();
    assert_eq!((root.tables.len(), root.commits.len()), (0, 20));
    let at = ObjectPath::parse(&format!("roots/{}", Root::name(root.number))).unwrap();
    let bytes = root.encode_first_version(&Limits::default()).unwrap();
    log.put(&at, &bytes, Durability::Disk, Condition::None).unwrap();
    let expected: Vec<u8> = (0..64).map(|at| if at < 20 { at } else { 0 }).collect();
    let all = Selection::all(&[64]);
    let contents = || read(&cold(&storage).array(&path()).unwrap(), DataType::UInt8, &all).concat();
    assert_eq!(contents(), expected);
    let mut next = session(&store);
    for _ in 0..2 {
        next.write(&path(), &one(0), Elements::Bytes(&[0])).unwrap();
        next.commit().unwrap();
    }
    assert_eq!(newest_root(&*storage).unwrap().tables.len(), 1);
    assert_eq!(contents(), expected);
}
