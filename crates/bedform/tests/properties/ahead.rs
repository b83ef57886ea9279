//! Reading ahead returns the same elements as a direct read, and happens only along a pattern.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bedform::comm::Alone;
use bedform::log::session::SessionOptions;
use bedform::{Array, Elements, Freshness, NewArray, OpenOptions, Prefetch, Store};
use bedform_format::ObjectPath;
use bedform_geometry::{AxisRange, AxisSelection, Selection};
use bedform_storage::{Durability, LocalStorage, Mode, Storage, Throttle, ThrottleSchedule};
use proptest::prelude::*;
use serde_json::{Map, json};

use crate::{cases, wait_until};

/// Bytes of a row, each a shard of one chunk.
const ROW: usize = 2048;
/// The latency of a read: long enough for reading ahead.
const LATENCY: Duration = Duration::from_micros(400);

/// A directory, with the lock for reading ahead: all tests of the process share one limit.
struct Place {
    path: PathBuf,
    _alone: MutexGuard<'static, ()>,
}

impl Place {
    fn new() -> Self {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("bedform-ahead-{}-{number}", std::process::id());
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        Self { path: std::env::temp_dir().join(name).join("store"), _alone: alone }
    }

    fn open(&self, prefetch: Prefetch, writable: bool) -> Store {
        Store::open(storage(&self.path, writable), options(prefetch, writable)).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // With the log beside the store.
        let _ = self.path.parent().map(std::fs::remove_dir_all);
    }
}

fn storage(path: &Path, writable: bool) -> Arc<dyn Storage> {
    let pace = ThrottleSchedule::new(Throttle::new(1 << 40, LATENCY));
    let mode = if writable { Mode::ReadWrite } else { Mode::ReadOnly };
    Arc::new(LocalStorage::open_throttled(path, mode, pace).unwrap())
}

fn options(prefetch: Prefetch, writable: bool) -> OpenOptions {
    let mut options = OpenOptions::default();
    options.writable = writable;
    options.prefetch = prefetch;
    options.durability = Durability::Process;
    // A cached chunk would be read too fast.
    options.cache_bytes = 0;
    options
}

fn path() -> ObjectPath {
    ObjectPath::parse("t").unwrap()
}

/// A store with an array of rows; each row is filled with its own number.
fn store_of(rows: u8) -> Place {
    let place = Place::new();
    std::fs::create_dir_all(&place.path).unwrap();
    let of_creation = options(Prefetch::Off, true);
    let store = Store::create(storage(&place.path, true), &Map::new(), of_creation).unwrap();
    let description = json!({
        "shape": [rows, ROW], "dtype": "uint8", "chunks": [1, ROW], "shards": [1, ROW],
        "codecs": ["zstd"], "fill_value": 255,
    });
    let new = NewArray::from_json(&description, &bedform_format::Limits::default()).unwrap();
    let array = store.create_array(&path(), &new).unwrap();
    let elements: Vec<u8> = (0..rows).flat_map(|row| [row; ROW]).collect();
    array.write(&rows_at(0, u64::from(rows)), Elements::Bytes(&elements)).unwrap();
    grow_old();
    place
}

/// Waits until the rows are older than a step of the file system's clock; younger ones are not
/// trusted.
fn grow_old() {
    std::thread::sleep(Duration::from_millis(25));
}

fn rows_at(start: u64, count: u64) -> Selection {
    let range = |start, length| AxisSelection::Range(AxisRange::contiguous(start, length).unwrap());
    Selection::Orthogonal(vec![range(start, count), range(0, ROW as u64)])
}

fn row(array: &Array, at: u64) -> u8 {
    let mut elements = vec![0; ROW];
    array.read(&rows_at(at, 1), &mut elements).unwrap();
    assert!(elements.iter().all(|element| *element == elements[0]), "{elements:?}");
    elements[0]
}

/// Reads the first rows one by one, each after all reads ahead are ready.
fn walk(store: &Store, array: &Array, count: u64) {
    read_rows(store, array, 0..count);
}

/// Reads rows one by one, each after all reads ahead are ready: a busy machine reads ahead late.
fn read_rows(store: &Store, array: &Array, rows: impl IntoIterator<Item = u64>) {
    for at in rows {
        let_threads_read(store);
        assert_eq!(u64::from(row(array, at)), at);
    }
    let_threads_read(store);
}

/// Waits until all queued reads ahead are ready.
fn let_threads_read(store: &Store) {
    wait_until("all is read ahead", || {
        let found = store.prefetch_statistics();
        found.ready == found.ahead
    });
}

/// Waits as [`let_threads_read`] does, and requires a queued read.
fn let_it_read(store: &Store) {
    assert!(store.prefetch_statistics().ahead > 0);
    let_threads_read(store);
}

const ON: Prefetch = Prefetch::Bytes(1 << 20);

#[test]
fn rows_one_by_one_are_read_ahead_after_three_that_were_not_foreseen() {
    let place = store_of(40);
    let store = place.open(ON, false);
    let array = store.array(&path()).unwrap();
    walk(&store, &array, 40);
    let found = store.prefetch_statistics();
    assert_eq!((found.reads, found.read_bytes), (40, 40 * ROW as u64));
    assert_eq!((found.foreseen, found.used), (37, 37), "{found:?}");
    // The array ends with the rows, so nothing was wasted.
    assert_eq!((found.wasted_bytes, found.prefetched_bytes), (0, found.used_bytes));
}

#[test]
fn an_explanation_says_what_foresees_the_reads_and_whether_this_one_is_read_ahead() {
    let place = store_of(40);
    let store = place.open(ON, false);
    let array = store.array(&path()).unwrap();
    assert_eq!(array.explain(&rows_at(0, 1)).unwrap().followed, None);
    walk(&store, &array, 10);
    let_it_read(&store);
    let of = |row| array.explain(&rows_at(row, 1)).unwrap().followed.unwrap();
    assert_eq!((of(10).reads_followed, of(10).reads_foreseen), (10, 7));
    assert_eq!((of(10).foreseen_by, of(10).is_read_ahead), (Some("strided"), true));
    assert!(!of(30).is_read_ahead);
    array.foresee((20..40).map(|at| rows_at(at, 1)).collect()).unwrap();
    assert_eq!((of(20).foreseen_by, of(20).is_read_ahead), (Some("list"), true));
}

#[test]
fn a_row_that_was_written_after_it_was_read_ahead_is_read_again() {
    for freshness in [Freshness::Read, Freshness::Open] {
        let place = store_of(40);
        let mut options = options(ON, true);
        options.freshness = freshness;
        let store = Store::open(storage(&place.path, true), options).unwrap();
        let array = store.array(&path()).unwrap();
        walk(&store, &array, 5);
        let_it_read(&store);
        assert!(store.prefetch_statistics().ready > 0, "{:?}", store.prefetch_statistics());
        // A write of the same handle: even a handle that never looks for changes knows its own
        // writes.
        array.write(&rows_at(5, 1), Elements::Bytes(&[99; ROW])).unwrap();
        assert_eq!(row(&array, 5), 99, "{freshness:?}");
        let_it_read(&store);
        if freshness == Freshness::Read {
            let other = place.open(Prefetch::Off, true).array(&path()).unwrap();
            other.write(&rows_at(6, 1), Elements::Bytes(&[98; ROW])).unwrap();
            assert_eq!(row(&array, 6), 98);
            other.resize(&[6, ROW as u64]).unwrap();
            let gone = array.read(&rows_at(7, 1), &mut [0; ROW]);
            assert_eq!(gone.unwrap_err().kind(), bedform::ErrorKind::OutOfBounds);
        }
    }
}

#[test]
fn a_commit_over_a_row_that_was_read_ahead_is_seen() {
    let place = store_of(40);
    let store = place.open(ON, true);
    let array = store.array(&path()).unwrap();
    walk(&store, &array, 5);
    let_it_read(&store);
    assert!(store.prefetch_statistics().ready > 0);
    let other = place.open(Prefetch::Off, true);
    let session = SessionOptions::default();
    let mut session = other.session(Box::new(Alone), session).unwrap();
    session.write(&path(), &rows_at(5, 1), Elements::Bytes(&[77; ROW])).unwrap();
    session.commit().unwrap();
    assert_eq!(row(&array, 5), 77);
    let_it_read(&store);
    other.settle().unwrap();
    assert_eq!(row(&array, 6), 6);
    assert_eq!(row(&array, 5), 77);
}

#[test]
fn reads_without_a_pattern_have_nothing_read_ahead() {
    let place = store_of(40);
    let store = place.open(ON, false);
    let array = store.array(&path()).unwrap();
    for at in [3, 17, 5, 31, 30, 2, 19, 11, 0, 39, 24, 7] {
        assert_eq!(u64::from(row(&array, at)), at);
    }
    let found = store.prefetch_statistics();
    assert_eq!((found.prefetched_bytes, found.foreseen), (0, 0), "{found:?}");
}

#[test]
fn a_pattern_after_many_reads_without_one_is_found_a_few_reads_later() {
    let place = store_of(250);
    let store = place.open(ON, false);
    let array = store.array(&path()).unwrap();
    let mut chance = 1_u64;
    for _ in 0..150 {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        row(&array, chance >> 32 & 127);
    }
    let before = store.prefetch_statistics();
    for at in 128..168 {
        assert_eq!(u64::from(row(&array, at)), at);
    }
    let found = store.prefetch_statistics().foreseen - before.foreseen;
    assert!((40 - 3 - 8..=37).contains(&found), "{found} foreseen");
}

#[test]
fn a_pattern_that_breaks_wastes_a_batch_at_most() {
    let place = store_of(100);
    let store = place.open(ON, false);
    let array = store.array(&path()).unwrap();
    walk(&store, &array, 20);
    for at in [77, 3, 60, 59, 91] {
        assert_eq!(u64::from(row(&array, at)), at);
    }
    let found = store.prefetch_statistics();
    // A third buffer is the first read of a possible second row of the pattern.
    assert!(found.wasted_bytes <= 3 * ROW as u64, "{found:?}");
    assert!(found.used > 10, "{found:?}");
}

#[test]
fn what_a_list_says_is_read_ahead_in_its_order() {
    let place = store_of(100);
    let store = place.open(ON, false);
    let array = store.array(&path()).unwrap();
    let order: Vec<u64> = (0..60).map(|at| at * 37 % 100).collect();
    array.foresee(order.iter().map(|at| rows_at(*at, 1)).collect()).unwrap();
    read_rows(&store, &array, order.iter().copied());
    let found = store.prefetch_statistics();
    assert!(found.used > 50, "{found:?}");
    assert_eq!(found.wasted_bytes, 0, "{found:?}");
    // Reads outside a list are made directly, and reads of the list are still found.
    array.foresee(order.iter().map(|at| rows_at(*at, 1)).collect()).unwrap();
    read_rows(&store, &array, order[..10].iter().flat_map(|at| [99, *at]));
    assert!(store.prefetch_statistics().used > found.used + 5);
    let outside = array.foresee(vec![rows_at(99, 2)]);
    assert_eq!(outside.unwrap_err().kind(), bedform::ErrorKind::OutOfBounds);
}

#[test]
fn a_list_of_which_some_are_left_out_or_come_sooner_goes_on_and_one_that_nobody_reads_ends() {
    let place = store_of(250);
    let store = place.open(ON, false);
    let array = store.array(&path()).unwrap();
    let rows = |rows: std::ops::Range<u64>| rows.map(|at| rows_at(at, 1)).collect();
    array.foresee(rows(0..100)).unwrap();
    read_rows(&store, &array, 50..100);
    let left_out = store.prefetch_statistics();
    assert!(left_out.used > 10, "{left_out:?}");
    array.foresee(rows(0..100)).unwrap();
    read_rows(&store, &array, (0..50).flat_map(|pair| [2 * pair + 1, 2 * pair]));
    let sooner = store.prefetch_statistics();
    assert!(sooner.used > left_out.used + 50, "{sooner:?}");
    array.foresee(rows(0..40)).unwrap();
    read_rows(&store, &array, 100..250);
    let ended = store.prefetch_statistics();
    assert!(ended.used > sooner.used + 50, "{ended:?}");
}

#[test]
fn what_one_store_has_left_behind_makes_room_for_another() {
    let place = store_of(40);
    let limit = Prefetch::Bytes(2 * ROW as u64);
    let left = place.open(limit, false);
    let array = left.array(&path()).unwrap();
    walk(&left, &array, 5);
    assert_eq!(left.prefetch_statistics().ahead, 2);
    // Buffers count as abandoned after a second, or after a multiple of the time between two reads.
    wait_until("another store reads ahead", || {
        let store = place.open(limit, false);
        let array = store.array(&path()).unwrap();
        read_rows(&store, &array, 0..40);
        store.prefetch_statistics().used > 10
    });
    assert_eq!(left.prefetch_statistics().ahead, 0);
}

#[test]
fn walks_of_which_nobody_knows_who_is_next_have_little_read_in_vain() {
    let place = store_of(250);
    let store = place.open(ON, false);
    let array = store.array(&path()).unwrap();
    let (mut at, mut chance) = ([0, 30, 60, 90, 120, 150, 180, 210], 1_u64);
    for _ in 0..160 {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let walk = &mut at[usize::try_from(chance >> 61).unwrap()];
        assert_eq!(u64::from(row(&array, *walk)), *walk);
        *walk += 1;
        let_threads_read(&store);
    }
    let found = store.prefetch_statistics();
    assert!(found.wasted_bytes <= found.used_bytes + 16 * ROW as u64, "{found:?}");
}

#[test]
fn what_was_read_ahead_was_used_or_is_said_to_be_wasted() {
    let place = store_of(40);
    let store = place.open(ON, true);
    let array = store.array(&path()).unwrap();
    array.foresee(vec![rows_at(5, 1)]).unwrap();
    let_it_read(&store);
    array.write(&rows_at(5, 1), Elements::Bytes(&[99; ROW])).unwrap();
    assert_eq!(row(&array, 5), 99);
    let found = store.prefetch_statistics();
    assert_eq!(found.wasted_bytes, ROW as u64, "{found:?}");
    assert_eq!(found.prefetched_bytes, found.used_bytes + found.wasted_bytes, "{found:?}");
}

#[test]
fn a_store_that_is_gone_has_nothing_ahead() {
    let place = store_of(40);
    let storage = storage(&place.path, false);
    let store = Store::open(storage.clone(), options(ON, false)).unwrap();
    let array = store.array(&path()).unwrap();
    walk(&store, &array, 5);
    let_it_read(&store);
    assert!(store.prefetch_statistics().ready > 0);
    drop((store, array));
    wait_until("the thread that read ahead has let go", || Arc::strong_count(&storage) == 1);
}

#[test]
fn nothing_is_read_ahead_where_it_is_off_or_the_thread_is_not_the_main_one() {
    let place = store_of(20);
    for prefetch in [Prefetch::Off, Prefetch::Auto] {
        let mut options = options(prefetch, false);
        options.cache_bytes = 1 << 20;
        let store = Store::open(storage(&place.path, false), options).unwrap();
        let array = store.array(&path()).unwrap();
        (0..20).for_each(|at| assert_eq!(u64::from(row(&array, at)), at));
        assert_eq!(store.prefetch_statistics(), Default::default());
    }
}

#[test]
fn no_more_is_ahead_than_the_limit_says() {
    let place = store_of(40);
    let store = place.open(Prefetch::Bytes(ROW as u64), false);
    let array = store.array(&path()).unwrap();
    walk(&store, &array, 8);
    let_it_read(&store);
    store.drop_prefetched();
    let small = place.open(Prefetch::Bytes(ROW as u64 - 1), false);
    let array = small.array(&path()).unwrap();
    (0..8).for_each(|at| assert_eq!(u64::from(row(&array, at)), at));
    assert_eq!(small.prefetch_statistics().prefetched_bytes, 0);
}

#[derive(Debug, Clone, Copy)]
enum Step {
    /// Reads rows from a start, with a step.
    Run {
        start: u8,
        by: i8,
        count: u8,
    },
    Read(u8),
    Write {
        at: u8,
        value: u8,
        is_own: bool,
    },
    Pause,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_u8..30, -3_i8..4, 3_u8..12).prop_map(|(start, by, count)| Step::Run { start, by, count }),
        2 => (0_u8..30).prop_map(Step::Read),
        3 => (0_u8..30, any::<u8>(), any::<bool>())
            .prop_map(|(at, value, is_own)| Step::Write { at, value, is_own }),
        1 => Just(Step::Pause),
    ]
}

proptest! {
    #![proptest_config(cases(12))]

    #[test]
    fn reads_give_what_was_written_last_whatever_was_read_ahead(steps in prop::collection::vec(step(), 1..25)) {
        let place = store_of(30);
        let mut model: Vec<u8> = (0..30).collect();
        let (store, other) = (place.open(ON, true), place.open(Prefetch::Off, true));
        let array = store.array(&path()).unwrap();
        let other = other.array(&path()).unwrap();
        for step in steps {
            match step {
                Step::Run { start, by, count } => {
                    for number in 0..i64::from(count) {
                        let at = i64::from(start) + number * i64::from(by);
                        let Some(expected) = usize::try_from(at).ok().and_then(|at| model.get(at)) else { break };
                        prop_assert_eq!(row(&array, u64::try_from(at).unwrap()), *expected);
                    }
                }
                Step::Read(at) => prop_assert_eq!(row(&array, u64::from(at)), model[usize::from(at)]),
                Step::Write { at, value, is_own } => {
                    let writer = if is_own { &array } else { &other };
                    writer.write(&rows_at(u64::from(at), 1), Elements::Bytes(&[value; ROW])).unwrap();
                    model[usize::from(at)] = value;
                }
                Step::Pause => grow_old(),
            }
        }
    }
}
