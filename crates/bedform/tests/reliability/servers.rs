//! F14: stores on an object server that loses answers, with several writers.
//!
//! An acknowledged row is there once, a rejected one is absent, and one with an unknown outcome is
//! there at most once. No element of another writer is lost, and readers see only whole rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bedform::comm::Alone;
use bedform::log::session::SessionOptions;
use bedform::log::settle::CollectOptions;
use bedform::{Elements, ErrorKind, Result, Store};
use bedform_remote::conformance::{FaultRate, FaultyServer};
use bedform_remote::{RemoteOptions, RemoteStorage};
use bedform_storage::{CancelSource, Condition, Durability, Mode, Profile, Storage, cancelled_by};
use serde_json::Map;

use crate::model::{FILL, bytes, form, new_array, options, read, region, whole};
use crate::support::{Cases, Random, count, path};

const WRITERS: u64 = 3;
const STEPS: u64 = 6;
const WIDTH: u64 = 5;
const BAD: FaultRate = FaultRate { writes: 60, reads: 4 };
const GOOD: FaultRate = FaultRate { writes: 0, reads: 0 };

fn place(server: &FaultyServer) -> Arc<dyn Storage> {
    place_at(server, "a/b")
}

fn place_at(server: &FaultyServer, prefix: &str) -> Arc<dyn Storage> {
    let options = RemoteOptions {
        pause: Duration::from_millis(1),
        deadline: Duration::from_millis(60),
        lease: Duration::from_millis(600),
        part_bytes: 64,
        ..RemoteOptions::default()
    };
    let shown = format!("s3://{prefix}");
    let is_in_parts = server.seed() % 2 == 1;
    let [store, parts] = [server, server].map(|server| Arc::new(server.clone()));
    let mode = Mode::ReadWrite;
    Arc::new(match is_in_parts {
        true => RemoteStorage::new_in_parts(store, parts, prefix, &shown, mode, &options),
        false => RemoteStorage::new(store, prefix, &shown, mode, &options),
    })
}

fn open(server: &FaultyServer) -> Result<Store> {
    Store::open(place(server), options(true))
}

/// The outcome of a row or block for its writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    Done,
    Refused,
    Unknown,
}

fn heard<T>(outcome: &Result<T>, story: &str) -> Heard {
    match outcome {
        Ok(_) => Heard::Done,
        Err(error) => match error.kind() {
            ErrorKind::Poisoned => Heard::Unknown,
            ErrorKind::Corrupt | ErrorKind::InvalidArgument | ErrorKind::NotFound => {
                panic!("{story}: {error}")
            }
            _ => Heard::Refused,
        },
    }
}

fn append(store: &Store, value: i32) -> Result<()> {
    let elements = bytes(&[value; WIDTH as usize]);
    let array = store.array(&path("t"))?;
    array.append(0, &[1, WIDTH], Elements::Bytes(&elements)).map(drop)
}

fn append_in_session(store: &Store, value: i32) -> Result<()> {
    let elements = bytes(&[value; WIDTH as usize]);
    let mut session = store.session(Box::new(Alone), SessionOptions::default())?;
    session.append(&path("t"), 0, &[1, WIDTH], Elements::Bytes(&elements))?;
    session.commit().map(drop)
}

/// Writes the cell of a writer, which shares a chunk and a shard with the others' cells.
fn write_cell(store: &Store, writer: u64, value: i32) -> Result<()> {
    let array = store.array(&path("u"))?;
    let (start, elements) = ([writer], bytes(&[value]));
    array.write(&region(&start, &[1]), Elements::Bytes(&elements)).map(drop)
}

fn settle(store: &Store) -> Result<()> {
    store.settle()?;
    store.collect_log(&CollectOptions::default()).map(drop)
}

/// Returns the rows that a reader sees, all of them whole.
fn rows(store: &Store, story: &str) -> Result<Vec<i32>> {
    let array = store.array(&path("t"))?;
    let found = read(&array, &whole(&array.shape()?))?;
    let rows = found.chunks(WIDTH as usize);
    Ok(rows
        .map(|row| {
            assert!(row.iter().all(|value| *value == row[0]), "{story}: half a row: {row:?}");
            row[0]
        })
        .collect())
}

struct Diary {
    rows: Vec<(i32, Heard)>,
    cells: Vec<(i32, Heard)>,
}

fn write(server: &FaultyServer, writer: u64, seed: u64, story: &str) -> Diary {
    let random = &mut Random(seed * WRITERS + writer);
    let mut diary = Diary { rows: Vec::new(), cells: Vec::new() };
    let mut store = open(server);
    for step in 0..STEPS {
        let opened = match store {
            Ok(opened) => opened,
            // The server reports the error again at the next attempt.
            Err(error) => {
                heard(&Err::<(), _>(error), story);
                store = open(server);
                continue;
            }
        };
        let value = (1 + writer * 100 + step) as i32;
        let outcome = match random.below(5) {
            0 | 1 => {
                let outcome = append(&opened, value);
                diary.rows.push((value, heard(&outcome, story)));
                outcome
            }
            2 => {
                let outcome = append_in_session(&opened, value);
                diary.rows.push((value, heard(&outcome, story)));
                outcome
            }
            3 => {
                let outcome = write_cell(&opened, writer, value);
                let done = heard(&outcome, story) == Heard::Done;
                // A write into shards is not atomic as a whole: after an error a part of it may
                // stay.
                diary.cells.push((value, if done { Heard::Done } else { Heard::Unknown }));
                outcome
            }
            _ => settle(&opened),
        };
        heard(&outcome, story);
        heard(&rows(&opened, story), story);
        let is_over = outcome.is_err_and(|error| error.kind() == ErrorKind::Poisoned);
        store = if is_over { open(server) } else { Ok(opened) };
    }
    diary
}

fn create(server: &FaultyServer) -> Store {
    let store = Store::create(place(server), &Map::new(), options(true)).unwrap();
    store.create_array(&path("t"), &new_array(&form(&[0, WIDTH], &[2, 2], &[4, 4], ""))).unwrap();
    store.create_array(&path("u"), &new_array(&form(&[WRITERS], &[2], &[4], ""))).unwrap();
    store
}

fn run(seed: u64) -> u64 {
    let story = &format!("seed {seed}");
    let server = FaultyServer::new(seed, GOOD);
    create(&server);
    server.set(BAD);
    let parts: Vec<Diary> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let server = &server;
                scope.spawn(move || write(server, writer, seed, story))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    // Waits for delayed requests.
    std::thread::sleep(Duration::from_millis(40));
    server.set(GOOD);
    let store = open(&server).unwrap();
    let found = rows(&store, story).unwrap();
    settle(&store).unwrap();
    let store = open(&server).unwrap();
    assert_eq!(rows(&store, story).unwrap(), found, "{story}: settled to something else");
    for (value, heard) in parts.iter().flat_map(|part| &part.rows) {
        let times = found.iter().filter(|found| *found == value).count();
        let is_right = match heard {
            Heard::Done => times == 1,
            Heard::Refused => times == 0,
            Heard::Unknown => times <= 1,
        };
        assert!(is_right, "{story}: row {value} heard {heard:?}, and is there {times} times");
    }
    assert!(!found.contains(&FILL), "{story}: a row that nobody wrote: {found:?}");
    let cells = read(&store.array(&path("u")).unwrap(), &whole(&[WRITERS])).unwrap();
    for (writer, part) in parts.iter().enumerate() {
        // The last value known to be stored, or a later one with an unknown outcome.
        let mut may_be = vec![FILL];
        for (value, heard) in &part.cells {
            match heard {
                Heard::Done => may_be = vec![*value],
                Heard::Unknown => may_be.push(*value),
                Heard::Refused => {}
            }
        }
        let cell = cells[writer];
        assert!(may_be.contains(&cell), "{story}: cell {writer} is {cell}, not of {may_be:?}");
    }
    let problems = store.verify(None, &|_, _| ()).unwrap().problems;
    assert_eq!(problems, Vec::<String>::new(), "{story}");
    server.faults()
}

#[test]
#[ignore = "a stage of make reliability"]
fn stores_behind_a_server_that_forgets_to_answer_have_what_was_acknowledged_once() {
    let cases = Cases::new("servers::stores_behind_a_server", 50, 30);
    let faults = cases.run(|case| run(case.seed));
    count("server-seeds", faults.len() as u64);
    count("server-faults", faults.iter().sum());
}

/// Returns the names and bytes of the log's roots.
fn roots(log: &dyn Storage) -> Vec<(String, Vec<u8>)> {
    let read = |name: &str| {
        let object = log.open(&path(&format!("roots/{name}"))).unwrap();
        let mut bytes = vec![0; object.version().size as usize];
        object.read(0, &mut bytes).unwrap();
        bytes
    };
    let names = log.list(&path("roots")).unwrap().into_iter().map(|entry| entry.name);
    names.map(|name| (name.clone(), read(&name))).collect()
}

#[test]
#[ignore = "a stage of make reliability"]
fn roots_that_arrive_when_all_is_settled_are_none() {
    for hides in [false, true] {
        let server = FaultyServer::new(1, GOOD);
        let store = create(&server);
        append_in_session(&store, 1).unwrap();
        append_in_session(&store, 2).unwrap();
        let log = place_at(&server, "a/b.bedform-log");
        let late = roots(&*log);
        assert_eq!(late.len(), 3);
        settle(&store).unwrap();
        assert_eq!(roots(&*log), []);
        for (name, bytes) in &late {
            let name = path(&format!("roots/{name}"));
            log.put(&name, bytes, Durability::Process, Condition::Absent).unwrap();
        }
        server.set_hiding(hides);
        for value in 3..6 {
            let store = open(&server).unwrap();
            settle(&store).unwrap();
            append_in_session(&store, value).unwrap();
            let now: Vec<i32> = (1..=value).collect();
            assert_eq!(rows(&open(&server).unwrap(), "late roots").unwrap(), now);
        }
        settle(&store).unwrap();
        server.set_hiding(false);
        assert_eq!(rows(&open(&server).unwrap(), "late roots").unwrap(), [1, 2, 3, 4, 5]);
    }
}

#[test]
#[ignore = "a stage of make reliability"]
fn lists_that_lack_what_came_last_hide_no_commit_and_no_writer() {
    let server = FaultyServer::new(2, GOOD);
    let store = create(&server);
    append_in_session(&store, 1).unwrap();
    server.set_hiding(true);
    let elements = bytes(&[2; WIDTH as usize]);
    let mut session = store.session(Box::new(Alone), SessionOptions::default()).unwrap();
    session.append(&path("t"), 0, &[1, WIDTH], Elements::Bytes(&elements)).unwrap();
    // A list hides the writer from this handle.
    settle(&open(&server).unwrap()).unwrap();
    session.commit().unwrap();
    drop(session);
    let found = rows(&open(&server).unwrap(), "late lists").unwrap();
    assert_eq!(found, [1, 2]);
    settle(&open(&server).unwrap()).unwrap();
    server.set_hiding(false);
    assert_eq!(rows(&open(&server).unwrap(), "late lists").unwrap(), [1, 2]);
}

/// A store of 100 shards with one chunk each, and a profile with `in_flight` parallel requests.
fn hundred_shards(server: &FaultyServer, in_flight: u32) -> (Store, Vec<i32>) {
    let values: Vec<i32> = (0..400).collect();
    let store = Store::create(place(server), &Map::new(), options(true)).unwrap();
    let array = new_array(&form(&[400], &[4], &[4], ""));
    let array = store.create_array(&path("v"), &array).unwrap();
    array.write(&whole(&[400]), Elements::Bytes(&bytes(&values))).unwrap();
    let mut options = options(false);
    options.profile = Some(Profile { requests_in_flight: in_flight, ..Profile::default_remote() });
    (Store::open(place(server), options).unwrap(), values)
}

/// Waits until `count` reads wait for the server, and checks that no more do.
fn expect_waiting(server: &FaultyServer, count: usize) {
    while server.waiting() < count {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(server.waiting(), count);
}

#[test]
#[ignore = "a stage of make reliability"]
fn one_thread_has_as_many_requests_on_their_way_as_the_profile_says() {
    for in_flight in [1, 7, 24] {
        let server = FaultyServer::new(1, GOOD);
        let (store, values) = hundred_shards(&server, in_flight);
        let array = store.array(&path("v")).unwrap();
        server.set_silent(Some("/c/"));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| read(&array, &whole(&[400])));
            expect_waiting(&server, in_flight as usize);
            server.set_silent(None);
            assert_eq!(reader.join().unwrap().unwrap(), values);
        });
    }
}

#[test]
#[ignore = "a stage of make reliability"]
fn a_read_that_is_stopped_waits_for_no_answer_and_leaves_no_request() {
    let server = FaultyServer::new(1, GOOD);
    let (store, values) = hundred_shards(&server, 9);
    let array = store.array(&path("v")).unwrap();
    server.set_silent(Some("/c/"));
    let is_stopped = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut buffer = vec![0; 1600];
            let flag = is_stopped.clone();
            let source = CancelSource::new(move || flag.load(Ordering::Relaxed));
            cancelled_by(&source, || array.read(&whole(&[400]), &mut buffer))
        });
        expect_waiting(&server, 9);
        is_stopped.store(true, Ordering::Relaxed);
        assert_eq!(reader.join().unwrap().unwrap_err().kind(), ErrorKind::Interrupted);
    });
    expect_waiting(&server, 0);
    server.set_silent(None);
    assert_eq!(read(&array, &whole(&[400])).unwrap(), values);
}
