//! Settling in rounds and shares of any size does not change the contents of the store.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bedform::comm::{Alone, Communicator as _, threads};
use bedform::log::session::SessionOptions;
use bedform::log::settle::{CollectOptions, LogSummary, SettleOptions, SettleStatistics};
use bedform::{ArrayLayout, Elements, ErrorKind, NewArray, OpenOptions, Result, Store};
use bedform_format::metadata::FillValue;
use bedform_format::{DataType, ObjectPath};
use bedform_geometry::{AxisRange, AxisSelection, Order, Selection};
use bedform_storage::{
    CancelSource, Condition, Durability, Failing, Fault, LocalStorage, MemoryStorage, Mode,
    RecordedOperation, Recording, SimulatedFileSystem, Staging, Storage, StorageErrorKind,
    StorageOperation, WriteHint, cancelled_by,
};
use proptest::prelude::*;

use super::arrays::{model_of, path, read, with};
use super::cases;
use super::model::Numbers;
use super::strategies::{new_array, selection};

const TYPES: [DataType; 3] = [DataType::UInt8, DataType::Int16, DataType::Float64];

fn open(storage: &Arc<dyn Storage>, threads: Option<usize>) -> Store {
    let mut options = OpenOptions::default();
    options.commits_named = 2;
    options.writable = true;
    options.threads = threads;
    Store::open(storage.clone(), options).unwrap()
}

fn create(storage: &Arc<dyn Storage>) -> Store {
    let mut options = OpenOptions::default();
    options.commits_named = 2;
    options.writable = true;
    Store::create(storage.clone(), &serde_json::Map::new(), options).unwrap()
}

fn settle(store: &Store, options: &SettleOptions) -> Result<SettleStatistics> {
    store.settle_with(options, &|_, _| ())
}

fn options(memory_bytes: u64, part: (u64, u64)) -> SettleOptions {
    let mut options = SettleOptions::default();
    (options.memory_bytes, options.part) = (memory_bytes, part);
    options
}

/// An array of numbers in `shape`, divided into `shards` of `chunks`.
fn plain(data_type: DataType, shape: &[u64], chunks: &[u64], shards: &[u64]) -> NewArray {
    NewArray {
        shape: shape.to_vec(),
        data_type,
        layout: ArrayLayout {
            chunk_shape: chunks.to_vec(),
            shard_shape: shards.to_vec(),
            order: Order::RowMajor,
            serializer: None,
            codecs: vec![],
            transpose: None,
            checksum: true,
            keys: bedform_format::metadata::ChunkKeys::DEFAULT,
            choice: None,
        },
        fill_value: FillValue::zero(data_type),
        dimension_names: None,
        attributes: serde_json::Map::new(),
    }
}

fn region(start: &[u64], shape: &[u64]) -> Selection {
    let axes = start.iter().zip(shape);
    let axes = axes.map(|(start, length)| AxisRange::contiguous(*start, *length).unwrap());
    Selection::Orthogonal(axes.map(AxisSelection::Range).collect())
}

/// Returns the numbers from 0 on, in the layout of a buffer.
#[allow(clippy::host_endian_bytes)]
fn counting(count: u32) -> Vec<u8> {
    (0..count).flat_map(|at| f64::from(at).to_ne_bytes()).collect()
}

#[allow(clippy::host_endian_bytes)]
fn native(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn named(name: &str) -> ObjectPath {
    ObjectPath::parse(name).unwrap()
}

/// Commits `bytes` to selections of arrays, each in a session of its own.
fn commit(store: &Store, writes: &[(&str, Selection, &[u8])]) {
    let member = threads(1).pop().unwrap();
    let mut session = store.session(Box::new(member), SessionOptions::default()).unwrap();
    for (name, selection, bytes) in writes {
        session.write(&named(name), selection, Elements::Bytes(bytes)).unwrap();
    }
    session.commit().unwrap();
}

fn all_of(store: &Store, name: &str) -> Vec<u8> {
    let array = store.array(&named(name)).unwrap();
    let all = Selection::all(&array.shape().unwrap());
    let mut bytes = vec![0; usize::try_from(array.result_bytes(&all).unwrap()).unwrap()];
    array.read(&all, &mut bytes).unwrap();
    bytes
}

fn log_is_gone(storage: &Arc<dyn Storage>) -> bool {
    storage.sibling(".bedform-log").unwrap().list(&ObjectPath::root()).unwrap().is_empty()
}

proptest! {
    #![proptest_config(cases(120))]

    #[test]
    fn rounds_of_any_size_and_shares_of_any_number_leave_what_a_list_holds(
        new in new_array(&TYPES),
        commits in 1_usize..4,
        memory_bytes in prop_oneof![Just(0_u64), 1_u64..2000, Just(1 << 20)],
        parts in 1_u64..4,
        cores in prop_oneof![Just(Some(1)), Just(Some(3))],
        seed in any::<u64>(),
        is_remote in proptest::bool::weighted(0.25),
    ) {
        let storage = crate::place(is_remote);
        create(&storage).create_array(&path(), &new).unwrap();
        let store = open(&storage, cores);
        let mut model = model_of(&new);
        let numbers = &mut Numbers(seed);
        for number in 0..commits {
            let member = threads(1).pop().unwrap();
            let mut session = store.session(Box::new(member), SessionOptions::default()).unwrap();
            for _ in 0..1 + numbers.below(4) {
                let selection = selection(&new.shape, numbers);
                let elements = numbers.elements(new.data_type, selection.len().unwrap());
                with(new.data_type, &elements, |elements| {
                    session.write(&path(), &selection, elements).unwrap();
                });
                model.write(&selection, &elements);
            }
            session.commit().unwrap();
            drop(session);
            // Some commits are settled before the next one, others together with it.
            if number + 1 < commits && numbers.below(2) == 0 {
                settle(&store, &options(memory_bytes, (0, parts))).unwrap();
            }
        }
        let all = Selection::all(&new.shape);
        let array = open(&storage, Some(1)).array(&path()).unwrap();
        for part in (0..parts).rev() {
            settle(&store, &options(memory_bytes, (part, parts))).unwrap();
            prop_assert_eq!(&read(&array, new.data_type, &all), &model.elements);
        }
        let last = settle(&store, &options(memory_bytes, (0, 1))).unwrap();
        prop_assert_eq!(&read(&array, new.data_type, &all), &model.elements);
        prop_assert!(parts == 1 || last.objects == 0, "{:?}", last);
        prop_assert!(log_is_gone(&storage));
    }
}

/// Elements across two blocks of the log, in boxes that rounds divide.
#[test]
fn elements_across_blocks_and_boxes_across_rounds_arrive_whole() {
    let (rows, columns) = (7_u32, 90_000);
    let shape = [u64::from(rows), u64::from(columns)];
    let flags = plain(DataType::UInt8, &[3], &[3], &[3]);
    let field = plain(DataType::Float64, &shape, &[2, 5_000], &[4, 20_000]);
    let bytes = counting(rows * columns);
    for cores in [Some(1), Some(2)] {
        let copy: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let other = create(&copy);
        other.create_array(&named("flags"), &flags).unwrap();
        other.create_array(&named("field"), &field).unwrap();
        let all = Selection::all(&shape);
        // An odd number of bytes precedes the numbers.
        commit(&other, &[("flags", region(&[0], &[3]), &[1, 2, 3]), ("field", all, &bytes)]);
        let done = settle(&open(&copy, cores), &options(4 << 20, (0, 1))).unwrap();
        assert!(done.rounds > 3, "{done:?}");
        assert!(all_of(&other, "field") == bytes);
        assert_eq!(all_of(&other, "flags"), [1, 2, 3]);
    }
}

/// Boxes of one to three elements, very many per chunk, some overlapping, some across chunks; with
/// and without a record axis.
#[test]
fn scattered_elements_arrive_each_in_its_place_by_any_number_of_threads() {
    const COUNT: u64 = 6_000;
    let ranges = |step: u64, length: u64| -> Selection {
        let every = (0..COUNT).filter(|at| at % step < length);
        Selection::Orthogonal(vec![
            AxisSelection::Range(AxisRange::contiguous(1, 2).unwrap()),
            AxisSelection::Coords(every.collect()),
        ])
    };
    let new = plain(DataType::Float64, &[4, COUNT], &[2, 500], &[2, 2_000]);
    let mut model = vec![0_f64; usize::try_from(4 * COUNT).unwrap()];
    let mut writes = Vec::new();
    for (number, (step, length)) in [(7, 3), (2, 1), (5, 2), (501, 2)].into_iter().enumerate() {
        let mut values = Vec::new();
        for row in 1..3 {
            for at in (0..COUNT).filter(|at| at % step < length) {
                let value = (number * 100_000 + values.len()) as f64;
                model[usize::try_from(row * COUNT + at).unwrap()] = value;
                values.push(value);
            }
        }
        writes.push((ranges(step, length), native(&values)));
    }
    for cores in [Some(1), Some(3)] {
        for memory in [20_000, 64 << 20] {
            let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
            let store = create(&storage);
            store.create_array(&named("t"), &new).unwrap();
            for two in writes.chunks(2) {
                let two: Vec<_> = two
                    .iter()
                    .map(|(selection, bytes)| ("t", selection.clone(), bytes.as_slice()))
                    .collect();
                commit(&store, &two);
            }
            let over_the_log = all_of(&store, "t");
            settle(&open(&storage, cores), &options(memory, (0, 1))).unwrap();
            assert!(log_is_gone(&storage));
            assert!(all_of(&store, "t") == native(&model), "{cores:?} {memory}");
            assert!(over_the_log == native(&model));
        }
    }
}

/// Two shards do not fit into the memory budget: the second is built while the first is written.
#[test]
fn who_waits_for_memory_of_a_writer_that_fails_gets_its_error_and_the_next_call_goes_on() {
    let storage = Arc::new(Failing::new(MemoryStorage::new()));
    let shared: Arc<dyn Storage> = storage.clone();
    let new = plain(DataType::UInt8, &[60_000], &[100], &[10_000]);
    create(&shared).create_array(&named("t"), &new).unwrap();
    let values: Vec<u8> = (0..=250).cycle().take(60_000).collect();
    let store = open(&shared, Some(3));
    commit(&store, &[("t", Selection::all(&[60_000]), &values)]);
    for nth in [0, 1, 2] {
        storage.fail_at(StorageOperation::Publish, nth, Fault::Error(StorageErrorKind::NoSpace));
        let error = settle(&store, &options(16_000, (0, 1))).unwrap_err();
        assert!(error.to_string().contains("space"), "{error}");
        assert!(all_of(&open(&shared, None), "t") == values);
    }
    let done = settle(&store, &options(16_000, (0, 1))).unwrap();
    assert_eq!((done.objects, done.rounds), (3, 3), "{done:?}");
    assert!(all_of(&store, "t") == values && log_is_gone(&shared));
}

#[test]
fn where_all_fits_into_memory_every_byte_of_the_log_is_read_once() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let store = create(&storage);
    let new = plain(DataType::Float64, &[400, 500], &[50, 50], &[100, 250]);
    store.create_array(&named("t"), &new).unwrap();
    // Four writers, each with a band across all shards of a row.
    let bytes = counting(4 * 100 * 500);
    let member = threads(1).pop().unwrap();
    let mut session = store.session(Box::new(member), SessionOptions::default()).unwrap();
    for (band, bytes) in bytes.chunks(100 * 500 * 8).enumerate() {
        let selection = region(&[100 * band as u64, 0], &[100, 500]);
        session.write(&named("t"), &selection, Elements::Bytes(bytes)).unwrap();
    }
    session.commit().unwrap();
    drop(session);
    let done = settle(&store, &options(64 << 20, (0, 1))).unwrap();
    assert_eq!((done.rounds, done.read_bytes, done.objects), (1, bytes.len() as u64, 8));
    assert_eq!(done.commits, 1);
    assert!(all_of(&store, "t") == bytes);
}

#[test]
fn what_was_stopped_stays_readable_and_goes_on() {
    for cores in [Some(1), Some(2)] {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let new = plain(DataType::UInt8, &[64], &[4], &[8]);
        create(&storage).create_array(&named("t"), &new).unwrap();
        let store = open(&storage, cores);
        commit(&store, &[("t", Selection::all(&[64]), &[7; 64])]);
        let mut written = 0;
        let mut stops = 0;
        loop {
            let looks = Cell::new(0);
            // Stops a little later each time.
            let source = CancelSource::each_time(move || {
                looks.set(looks.get() + 1);
                looks.get() > 4 * (1 + stops)
            });
            let outcome = cancelled_by(&source, || settle(&store, &options(64, (0, 1))));
            assert_eq!(all_of(&open(&storage, cores), "t"), [7; 64]);
            match outcome {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}");
                    stops += 1;
                }
                Ok(done) => {
                    written += done.objects;
                    break;
                }
            }
        }
        assert!(stops > 0 && written <= 8, "{stops} {written}");
        assert!(log_is_gone(&storage));
    }
}

#[test]
fn who_settles_late_puts_nothing_into_an_array_that_has_taken_the_place_of_its_own() {
    for round_bytes in [16, 64, 1 << 20] {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let new = plain(DataType::UInt8, &[64], &[4], &[8]);
        create(&storage).create_array(&named("t"), &new).unwrap();
        let (store, others) = (open(&storage, Some(1)), open(&storage, Some(1)));
        commit(&store, &[("t", Selection::all(&[64]), &[7; 64])]);
        let asked = AtomicU64::new(0);
        let progress = |_, _| {
            // Another writer settles everything, deletes the array, and creates a new one.
            if asked.fetch_add(1, Ordering::SeqCst) == 0 {
                others.settle().unwrap();
                others.delete(&named("t")).unwrap();
                others.create_array(&named("t"), &new).unwrap();
            }
        };
        let outcome = store.settle_with(&options(round_bytes, (0, 1)), &progress);
        assert!(asked.load(Ordering::SeqCst) > 0);
        if let Err(error) = outcome {
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        }
        assert_eq!(all_of(&open(&storage, Some(1)), "t"), [0; 64], "{round_bytes}");
    }
}

#[test]
fn who_settles_late_makes_no_array_larger_that_has_become_smaller_since() {
    for round_bytes in [16, 64, 1 << 20] {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let new = plain(DataType::UInt8, &[16], &[4], &[8]);
        create(&storage).create_array(&named("t"), &new).unwrap();
        let (store, others) = (open(&storage, Some(1)), open(&storage, Some(1)));
        let mut session = store.session(Box::new(Alone), SessionOptions::default()).unwrap();
        session.resize(&named("t"), &[64]).unwrap();
        session.write(&named("t"), &Selection::all(&[64]), Elements::Bytes(&[7; 64])).unwrap();
        session.commit().unwrap();
        drop(session);
        let asked = AtomicU64::new(0);
        let progress = |_, _| {
            if asked.fetch_add(1, Ordering::SeqCst) == 0 {
                others.settle().unwrap();
                others.array(&named("t")).unwrap().resize(&[32]).unwrap();
            }
        };
        store.settle_with(&options(round_bytes, (0, 1)), &progress).unwrap();
        assert!(asked.load(Ordering::SeqCst) > 0);
        let again = open(&storage, Some(1));
        assert_eq!(again.array(&named("t")).unwrap().shape().unwrap(), [32], "{round_bytes}");
        assert_eq!(all_of(&again, "t"), [7; 32]);
        again.array(&named("t")).unwrap().resize(&[64]).unwrap();
        let expected: Vec<u8> = [[7; 32], [0; 32]].concat();
        assert_eq!(all_of(&again, "t"), expected, "what was cut off does not come back");
    }
}

#[test]
fn one_array_can_be_settled_and_the_others_wait() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let store = create(&storage);
    for name in ["t", "g/u"] {
        store.create_array(&named(name), &plain(DataType::UInt8, &[8], &[4], &[8])).unwrap();
    }
    commit(&store, &[("t", region(&[0], &[8]), &[1; 8]), ("g/u", region(&[2], &[4]), &[2; 4])]);
    let mut one = SettleOptions::default();
    one.arrays = Some(vec![named("g/u")]);
    let done = settle(&store, &one).unwrap();
    assert_eq!((done.commits, done.objects), (0, 1));
    assert!(!log_is_gone(&storage));
    one.arrays = Some(vec![named("missing")]);
    assert_eq!(settle(&store, &one).unwrap_err().kind(), ErrorKind::NotFound);
    let done = settle(&store, &SettleOptions::default()).unwrap();
    assert_eq!((done.commits, done.objects), (1, 1));
    assert_eq!(all_of(&store, "t"), [1; 8]);
    assert_eq!(all_of(&store, "g/u"), [0, 0, 2, 2, 2, 2, 0, 0]);
    assert!(log_is_gone(&storage));
}

/// A directory that is removed after its test, with file times of the system.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("bedform-{name}-{}", std::process::id()));
        std::fs::create_dir_all(path.join("s.zarr")).unwrap();
        Self(path)
    }

    fn storage(&self) -> Arc<dyn Storage> {
        Arc::new(LocalStorage::open(&self.0.join("s.zarr"), Mode::ReadWrite).unwrap())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the number of segments in the log.
fn segments(storage: &Arc<dyn Storage>) -> usize {
    let log = storage.sibling(".bedform-log").unwrap();
    log.list(&named("segments")).unwrap().len()
}

#[test]
fn what_readers_may_still_need_stays_for_the_grace_period() {
    let directory = Directory::new("grace");
    let storage = directory.storage();
    let store = create(&storage);
    store.create_array(&named("t"), &plain(DataType::UInt8, &[8], &[4], &[4])).unwrap();
    commit(&store, &[("t", Selection::all(&[8]), &[1; 8])]);
    let mut later = SettleOptions::default();
    later.grace = Duration::from_secs(3600);
    settle(&store, &later).unwrap();
    assert_eq!((segments(&storage), all_of(&store, "t")), (1, vec![1; 8]));
    let mut options = CollectOptions::default();
    (options.grace, options.dry_run) = (Duration::from_secs(3600), true);
    assert_eq!(store.collect_log(&options).unwrap().segments_kept, 1);
    options.grace = Duration::ZERO;
    let found = store.collect_log(&options).unwrap();
    assert_eq!((found.segments, found.segments_kept, found.is_gone), (1, 0, true));
    assert!(found.bytes >= 4096, "{found:?}");
    assert_eq!(segments(&storage), 1, "nothing goes in a dry run");
    options.dry_run = false;
    assert_eq!(store.collect_log(&options).unwrap(), found);
    assert!(log_is_gone(&storage));
    assert_eq!(all_of(&store, "t"), [1; 8]);
}

/// Roots with times of tomorrow, or of long ago.
#[test]
fn a_clock_that_jumps_delays_what_is_removed_and_changes_no_data() {
    let directory = Directory::new("clock");
    let storage = directory.storage();
    let store = create(&storage);
    store.create_array(&named("t"), &plain(DataType::UInt8, &[8], &[4], &[4])).unwrap();
    let mut later = SettleOptions::default();
    later.grace = Duration::from_secs(60);
    let day = Duration::from_secs(86_400);
    let times = [(SystemTime::now() + day, 1), (SystemTime::now() - day, 0)];
    for (value, (time, stay)) in (1_u8..).zip(times) {
        commit(&store, &[("t", Selection::all(&[8]), &[value; 8])]);
        settle(&store, &later).unwrap();
        let roots = directory.0.join("s.zarr.bedform-log/roots");
        for root in std::fs::read_dir(&roots).unwrap() {
            let file = std::fs::File::options().write(true).open(root.unwrap().path()).unwrap();
            file.set_modified(time).unwrap();
        }
        let mut options = CollectOptions::default();
        options.grace = Duration::from_secs(60);
        let found = store.collect_log(&options).unwrap();
        assert_eq!((found.segments_kept, found.is_gone), (stay, stay == 0));
        assert_eq!(all_of(&open(&storage, None), "t"), [value; 8]);
    }
}

#[test]
fn the_summary_of_a_log_counts_what_is_not_settled() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let store = create(&storage);
    store.create_array(&named("t"), &plain(DataType::UInt8, &[8], &[4], &[4])).unwrap();
    assert_eq!(store.log_summary().unwrap(), LogSummary::default());
    for _ in 0..3 {
        commit(&store, &[("t", Selection::all(&[8]), &[1; 8])]);
    }
    let found = store.log_summary().unwrap();
    assert_eq!((found.commits, found.segments), (3, 3));
    settle(&store, &SettleOptions::default()).unwrap();
    assert_eq!(store.log_summary().unwrap(), LogSummary::default());
}

#[test]
fn the_summary_of_a_log_counts_segments_that_may_have_what_no_commit_has() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let store = create(&storage);
    store.create_array(&named("t"), &plain(DataType::UInt8, &[8], &[4], &[4])).unwrap();
    commit(&store, &[("t", Selection::all(&[8]), &[1; 8])]);
    let mut session = store.session(Box::new(Alone), SessionOptions::default()).unwrap();
    session.write(&named("t"), &Selection::all(&[8]), Elements::Bytes(&[2; 8])).unwrap();
    session.flush().unwrap();
    let counts =
        || store.log_summary().map(|found| (found.segments, found.segments_open.unwrap())).unwrap();
    assert_eq!(counts(), (1, 1));
    settle(&store, &SettleOptions::default()).unwrap();
    assert_eq!(counts(), (0, 1));
    session.commit().unwrap();
    assert_eq!(counts(), (1, 0));
}

/// Returns all bytes of an object.
fn bytes_of(storage: &Arc<dyn Storage>, name: &str) -> Vec<u8> {
    let object = storage.open(&named(name)).unwrap();
    let mut bytes = vec![0; usize::try_from(object.version().size).unwrap()];
    object.read(0, &mut bytes).unwrap();
    bytes
}

fn put(storage: &Arc<dyn Storage>, name: &str, bytes: &[u8]) {
    let mut writer =
        storage.create(&named(name), Durability::Process, WriteHint::default()).unwrap();
    writer.append(bytes).unwrap();
    writer.publish(Condition::None).unwrap();
}

/// A store with commits made while others were settled, and the shard of the first settling.
fn settled_under_commits() -> (Arc<dyn Storage>, Store, Vec<u8>) {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let store = create(&storage);
    store.create_array(&named("t"), &plain(DataType::UInt8, &[12], &[4], &[4])).unwrap();
    commit(&store, &[("t", region(&[0], &[8]), &[1; 8])]);
    settle(&store, &SettleOptions::default()).unwrap();
    let old = bytes_of(&storage, "t/c/0");
    for value in [2, 3] {
        commit(&store, &[("t", region(&[0], &[8]), &[value; 8])]);
        let late = Cell::new(false);
        let progress = |_, _| {
            if !late.replace(true) {
                commit(&store, &[("t", region(&[8], &[4]), &[value + 10; 4])]);
            }
        };
        let done = store.settle_with(&SettleOptions::default(), &progress).unwrap();
        assert_eq!(store.log_summary().unwrap().commits, 1, "{done:?}");
    }
    (storage, store, old)
}

#[test]
fn while_there_is_a_log_a_shard_that_is_lost_or_older_is_damage_and_not_data() {
    let (storage, store, old) = settled_under_commits();
    let expected = [[3; 4], [3; 4], [13; 4]].concat();
    assert_eq!(all_of(&store, "t"), expected);
    let whole = bytes_of(&storage, "t/c/0");
    let damaged = |what: &str| {
        let array = open(&storage, None).array(&named("t")).unwrap();
        let mut bytes = [0; 4];
        let outcome = array.read(&region(&[2], &[4]), &mut bytes).map(drop);
        let outcomes = [outcome, array.write(&region(&[2], &[1]), Elements::Bytes(&[9])).map(drop)];
        for outcome in outcomes {
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert!(error.to_string().contains(what), "{error}");
            assert!(error.to_string().contains("t/c/0"), "{error}");
        }
        // Other shards stay readable.
        array.read(&region(&[4], &[4]), &mut bytes).unwrap();
        assert_eq!(bytes, [3; 4]);
    };
    put(&storage, "t/c/0", &old);
    damaged("an older version of itself");
    storage.delete(&named("t/c/0"), Durability::Process, Condition::None).unwrap();
    damaged("it is lost");
    assert!(
        open(&storage, None).array(&named("t")).unwrap().verify().unwrap()[0]
            .contains("it is lost")
    );
    put(&storage, "t/c/0", &whole);
    assert_eq!(all_of(&store, "t"), expected);
    // The shard is written completely anew.
    storage.delete(&named("t/c/0"), Durability::Process, Condition::None).unwrap();
    let array = store.array(&named("t")).unwrap();
    array.write(&region(&[0], &[4]), Elements::Bytes(&[7; 4])).unwrap();
    settle(&store, &SettleOptions::default()).unwrap();
    assert_eq!(all_of(&store, "t"), [[7; 4], [3; 4], [13; 4]].concat());
    assert!(log_is_gone(&storage));
}

#[test]
fn a_list_of_settled_shards_that_is_damaged_or_another_is_said_and_old_ones_go() {
    let (storage, store, _) = settled_under_commits();
    let log = storage.sibling(".bedform-log").unwrap();
    let lists = log.list(&named("settled")).unwrap();
    assert_eq!(lists.len(), 1, "{lists:?}");
    let name = format!("settled/{}", lists[0].name);
    let whole = bytes_of(&log, &name);
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        put(&log, &name, &bytes);
        let array = open(&storage, None).array(&named("t")).unwrap();
        let error = array.read(&region(&[0], &[1]), &mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
    put(&log, &name, &whole);
    assert_eq!(all_of(&open(&storage, None), "t"), [[3; 4], [3; 4], [13; 4]].concat());
    drop(store);
}

#[test]
fn members_settle_together_and_an_error_of_one_is_that_of_all() {
    for fails in [false, true] {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let store = create(&storage);
        store.create_array(&named("t"), &plain(DataType::UInt8, &[96], &[2], &[4])).unwrap();
        commit(&store, &[("t", Selection::all(&[96]), &[5; 96])]);
        let done: Vec<_> = std::thread::scope(|scope| {
            let storage = &storage;
            let run = move |member: bedform::comm::ThreadMember| {
                let store = open(storage, None);
                let stops = fails && member.rank() == 1;
                let source = CancelSource::each_time(move || stops);
                let options = options(64, (0, 1));
                cancelled_by(&source, || {
                    store.settle_together(Box::new(member), &options, &|_, _| ())
                })
            };
            let all: Vec<_> =
                threads(3).into_iter().map(|member| scope.spawn(move || run(member))).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(all_of(&store, "t"), [5; 96]);
        assert_eq!(log_is_gone(&storage), !fails);
        for outcome in &done {
            match outcome {
                Err(error) => assert!(fails && error.kind() == ErrorKind::Interrupted, "{error}"),
                Ok(all) => {
                    assert!(!fails);
                    assert_eq!((all.commits, all.objects), (1, 24), "all hear of all");
                    assert_eq!(Some(all), done[0].as_ref().ok());
                }
            }
        }
    }
}

#[test]
fn the_shards_of_a_round_are_durable_by_one_sync_before_they_have_names_and_one_after() {
    let system =
        LocalStorage::over(SimulatedFileSystem::new(), Mode::ReadWrite, Staging::default());
    let recording = Arc::new(Recording::new(system));
    let storage: Arc<dyn Storage> = recording.clone();
    let store = create(&storage);
    store.create_array(&named("a"), &plain(DataType::UInt8, &[64], &[4], &[8])).unwrap();
    let elements = counting(64);
    commit(&store, &[("a", region(&[0], &[64]), &elements[..64])]);
    recording.clear();
    store.settle().unwrap();
    let events = recording.events();
    let of_shards = |operation: StorageOperation| {
        let is_of = move |(_, event): &(usize, &RecordedOperation)| {
            event.operation == operation && event.path.as_str().starts_with("a/c/")
        };
        events.iter().enumerate().filter(is_of).map(|(at, _)| at).collect::<Vec<_>>()
    };
    let published = of_shards(StorageOperation::Publish);
    assert_eq!(published.len(), 8);
    assert!(published.iter().all(|at| !events[*at].is_durable), "none by itself");
    let is_sync =
        |at: &usize| events[*at].operation == StorageOperation::Sync && events[*at].path.is_root();
    let (last_append, first) = (of_shards(StorageOperation::Append).pop().unwrap(), published[0]);
    assert_eq!((last_append..first).filter(is_sync).count(), 1, "before any has a name");
    let next_durable = (published[7]..events.len()).find(|at| events[*at].is_durable).unwrap();
    assert_eq!(
        (published[7]..next_durable).filter(is_sync).count(),
        1,
        "before anything relies on it"
    );
    assert_eq!(all_of(&store, "a"), elements[..64]);
    // The publication of a single shard is durable without a joint sync.
    commit(&store, &[("a", region(&[0], &[8]), &elements[..8])]);
    recording.clear();
    store.settle().unwrap();
    let is_shard = |event: &RecordedOperation| event.path.as_str() == "a/c/0";
    let events = recording.events();
    let mut published = events.iter().filter(|event| event.operation == StorageOperation::Publish);
    assert!(published.find(|event| is_shard(event)).unwrap().is_durable);
}
