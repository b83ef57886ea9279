//! F12: many concurrent writers on one store, in threads and in processes.
//!
//! The result of every race is independent of the order: no element is lost, and a rejected writer
//! gets `Exists` or `Conflict`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bedform::comm::Alone;
use bedform::log::session::SessionOptions;
use bedform::log::settle::CollectOptions;
use bedform::{Elements, ErrorKind, Store};
use bedform_storage::{Durability, LocalStorage, Mode};
use serde_json::{Map, json};

use crate::model::{FILL, bytes, form, new_array, options, read, region, whole};
use crate::roles::process;
use crate::support::{Cases, Random, Scratch, count, path};

const SIDE: u64 = 24;
const BLOCK: u64 = 5;
const ROWS: u64 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Race {
    /// Disjoint blocks that share chunks and shards.
    Regions,
    /// Rows appended to one array, each with its writer's number.
    Appends,
    /// Creations of the same name.
    Creations,
    /// Appends and blocks in one array, while attributes are set.
    Mixed,
    /// Sessions that commit the same rows, blocks of their own, and appends, while one writer
    /// settles and another writes directly.
    Commits,
}

const RACES: [Race; 5] =
    [Race::Regions, Race::Appends, Race::Creations, Race::Mixed, Race::Commits];

fn open(root: &Path, mode: Mode) -> Store {
    let mut options = options(true);
    // Other tests cover power cuts; without syncs there are more races in the same time.
    options.durability = Durability::Process;
    let storage = Arc::new(LocalStorage::open(root, mode).unwrap());
    if mode == Mode::Create {
        Store::create(storage, &Map::new(), options).unwrap()
    } else {
        Store::open(storage, options).unwrap()
    }
}

/// Returns the blocks of writer `writer` of `writers`, with its value.
fn blocks(writer: u64, writers: u64) -> impl Iterator<Item = ([u64; 2], [u64; 2], i32)> {
    let along = SIDE.div_ceil(BLOCK);
    (0..along * along).filter(move |block| block % writers == writer).map(move |block| {
        let start = [block / along * BLOCK, block % along * BLOCK];
        let shape = start.map(|start| BLOCK.min(SIDE - start));
        (start, shape, (writer * 1000 + block + 1) as i32)
    })
}

/// The work of a writer of [`Race::Commits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Share {
    Commit,
    Settle,
    Append,
    Direct,
}

fn share(writer: u64) -> Share {
    match writer {
        1 => Share::Settle,
        3 => Share::Direct,
        2 | 6 => Share::Append,
        _ => Share::Commit,
    }
}

/// Returns a writer's own blocks, below the common rows.
fn own_blocks(writer: u64, writers: u64) -> impl Iterator<Item = ([u64; 2], [u64; 2], i32)> {
    blocks(writer, writers).filter(|(start, _, _)| start[0] >= BLOCK)
}

/// The file in which a writer notes its commits of the common rows: number and value.
fn diary(root: &Path, writer: u64) -> PathBuf {
    root.with_file_name(format!("commits-{writer}"))
}

/// Commits the common rows, and blocks of its own, in three commits of one session.
fn commit_all(store: &Store, root: &Path, writer: u64, writers: u64) {
    let mut session = store.session(Box::new(Alone), SessionOptions::default()).unwrap();
    let mut said = String::new();
    for commit in 0..3 {
        let mine = own_blocks(writer, writers).skip(commit).step_by(3);
        let value = (writer * 1000) as i32 + commit as i32 + 500;
        for (start, shape, value) in mine.chain([([0, 0], [BLOCK, SIDE], value)]) {
            let elements = bytes(&vec![value; (shape[0] * shape[1]) as usize]);
            let selection = region(&start, &shape);
            session.write(&path("t"), &selection, Elements::Bytes(&elements)).unwrap();
        }
        let number = session.commit().unwrap();
        writeln!(said, "{number} {value}").unwrap();
    }
    std::fs::write(diary(root, writer), said).unwrap();
}

/// Appends rows, and repeats after a conflict.
fn append_in_sessions(store: &Store, writer: u64) {
    for row in 0..ROWS {
        let rows = 1 + row % 2;
        let elements = bytes(&vec![(writer * 1000 + row + 1) as i32; (rows * SIDE) as usize]);
        loop {
            let mut session = store.session(Box::new(Alone), SessionOptions::default()).unwrap();
            session.append(&path("t"), 0, &[rows, SIDE], Elements::Bytes(&elements)).unwrap();
            match session.commit() {
                Ok(_) => break,
                Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
            }
        }
    }
}

/// Settles and collects garbage, and checks that the common rows belong to one commit at any time.
fn settle_meanwhile(store: &Store) {
    let array = store.array(&path("t")).unwrap();
    for _ in 0..4 {
        let rows = read(&array, &region(&[0, 0], &[BLOCK, SIDE])).unwrap();
        assert!(rows.iter().all(|value| *value == rows[0]), "half a commit: {rows:?}");
        store.settle().unwrap();
        store.collect_log(&CollectOptions::default()).unwrap();
    }
}

/// Runs one writer's part.
fn run(race: Race, store: &Store, root: &Path, writer: u64, writers: u64) {
    let array = || store.array(&path("t")).unwrap();
    let write_blocks = || {
        let array = array();
        for (start, shape, value) in blocks(writer, writers) {
            let elements = bytes(&vec![value; (shape[0] * shape[1]) as usize]);
            let selection = region(&start, &shape);
            array.write(&selection, Elements::Bytes(&elements)).unwrap();
        }
    };
    let append_rows = || {
        let array = array();
        for row in 0..ROWS {
            let rows = 1 + row % 2;
            let value = (writer * 1000 + row + 1) as i32;
            let elements = bytes(&vec![value; (rows * SIDE) as usize]);
            array.append(0, &[rows, SIDE], Elements::Bytes(&elements)).unwrap();
        }
    };
    match race {
        Race::Commits => match share(writer) {
            Share::Commit => commit_all(store, root, writer, writers),
            Share::Settle => settle_meanwhile(store),
            Share::Append => append_in_sessions(store, writer),
            Share::Direct => {
                let array = array();
                for (start, shape, value) in own_blocks(writer, writers) {
                    let elements = bytes(&vec![value; (shape[0] * shape[1]) as usize]);
                    let selection = region(&start, &shape);
                    array.write(&selection, Elements::Bytes(&elements)).unwrap();
                }
            }
        },
        Race::Regions => write_blocks(),
        Race::Appends => append_rows(),
        Race::Creations => create(store, writer),
        Race::Mixed if writer.is_multiple_of(3) => append_rows(),
        Race::Mixed if writer % 3 == 1 => write_blocks(),
        Race::Mixed => {
            for value in 0..4 {
                let attributes = Map::from_iter([("by".to_owned(), json!([writer, value]))]);
                store.set_attributes(&path("t"), attributes).unwrap();
            }
        }
    }
}

/// Creates the array with the writer's number in attributes and elements, or is rejected.
fn create(store: &Store, writer: u64) {
    let mut like = form(&[6, 6], &[2, 2], &[4, 4], "");
    like.attributes = Map::from_iter([("by".to_owned(), json!(writer))]);
    let new = new_array(&like);
    let elements = bytes(&[writer as i32; 36]);
    let outcome = (|| {
        let array = store.draft_array(&path("new"), &new)?;
        array.write(&whole(&[6, 6]), Elements::Bytes(&elements))?;
        store.commit_drafts(&[path("new")])
    })();
    match outcome {
        Ok(()) => store.set_attributes(&path(""), Map::from_iter([(writer.to_string(), json!(1))])),
        Err(error) => {
            let kind = error.kind();
            let is_typed =
                matches!(kind, ErrorKind::Exists | ErrorKind::Conflict | ErrorKind::NotFound);
            assert!(is_typed, "{kind:?}: {error}");
            Ok(())
        }
    }
    .unwrap();
}

/// Acts as one writer in a process of its own.
pub(crate) fn take_part(root: &Path, arguments: &[u64]) {
    let [race, writer, writers] = arguments else { panic!("race, writer, writers") };
    run(RACES[*race as usize], &open(root, Mode::ReadWrite), root, *writer, *writers);
}

#[derive(Debug, Clone, Copy)]
enum Writers {
    /// Threads that share one opened store.
    OneHandle,
    /// Threads that have each opened the store.
    Handles,
    Processes,
}

fn hold(race: Race, writers: Writers, number: u64) -> Result<(), String> {
    let scratch = Scratch::new("race");
    let root = scratch.0.join("store");
    let store = open(&root, Mode::Create);
    store.create_array(&path("t"), &new_array(&form(&[SIDE, SIDE], &[3, 4], &[9, 8], ""))).unwrap();
    match writers {
        Writers::OneHandle => std::thread::scope(|scope| {
            for writer in 0..number {
                let (store, root) = (&store, &root);
                scope.spawn(move || run(race, store, root, writer, number));
            }
        }),
        Writers::Handles => std::thread::scope(|scope| {
            for writer in 0..number {
                let root = &root;
                scope.spawn(move || run(race, &open(root, Mode::ReadWrite), root, writer, number));
            }
        }),
        Writers::Processes => {
            let at = RACES.iter().position(|other| *other == race).unwrap() as u64;
            let children: Vec<_> = (0..number)
                .map(|writer| process("race", &root, &[at, writer, number]).spawn().unwrap())
                .collect();
            for child in children {
                let output = child.wait_with_output().unwrap();
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{said}");
            }
        }
    }
    check(race, &open(&root, Mode::ReadWrite), &root, number)
}

fn check(race: Race, store: &Store, root: &Path, writers: u64) -> Result<(), String> {
    if race == Race::Creations {
        return check_creation(store);
    }
    let array = store.array(&path("t")).unwrap();
    let shape = array.shape().unwrap();
    let found = read(&array, &whole(&shape)).map_err(|error| error.to_string())?;
    let mut expected = vec![FILL; (SIDE * SIDE) as usize];
    for writer in (0..writers).filter(|writer| match race {
        Race::Regions => true,
        Race::Mixed => writer % 3 == 1,
        Race::Commits => matches!(share(*writer), Share::Commit | Share::Direct),
        _ => false,
    }) {
        let of_all = race == Race::Commits;
        let own = blocks(writer, writers).filter(|(start, _, _)| !of_all || start[0] >= BLOCK);
        for (start, shape, value) in own {
            for row in start[0]..start[0] + shape[0] {
                let first = (row * SIDE + start[1]) as usize;
                expected[first..first + shape[1] as usize].fill(value);
            }
        }
    }
    if race == Race::Commits {
        let last = last_commit(root, writers)?;
        expected[..(BLOCK * SIDE) as usize].fill(last);
    }
    if found.get(..expected.len()) != Some(&expected[..]) {
        return Err("elements of regions are lost".to_owned());
    }
    let appenders: Vec<u64> = (0..writers)
        .filter(|writer| match race {
            Race::Appends => true,
            Race::Mixed => writer.is_multiple_of(3),
            Race::Commits => share(*writer) == Share::Append,
            _ => false,
        })
        .collect();
    check_rows(&found[expected.len()..], &appenders)
}

/// Returns the value of the commit with the highest number, which counts.
fn last_commit(root: &Path, writers: u64) -> Result<i32, String> {
    let mut commits = BTreeMap::new();
    for writer in (0..writers).filter(|writer| share(*writer) == Share::Commit) {
        let mut before = 0;
        for line in std::fs::read_to_string(diary(root, writer)).unwrap().lines() {
            let (number, value) = line.split_once(' ').unwrap();
            let (number, value): (u64, i32) = (number.parse().unwrap(), value.parse().unwrap());
            if number <= before || commits.insert(number, value).is_some() {
                return Err(format!("commit {number} was made twice, or out of order"));
            }
            before = number;
        }
    }
    commits.pop_last().map(|(_, value)| value).ok_or_else(|| "no commits".to_owned())
}

/// Checks that the appended rows follow the first ones, in any order of writers.
fn check_rows(found: &[i32], appenders: &[u64]) -> Result<(), String> {
    let rows: Vec<&[i32]> = found.chunks(SIDE as usize).collect();
    let mut at = 0;
    let mut next = vec![0; appenders.iter().max().map_or(0, |last| *last as usize + 1)];
    while at < rows.len() {
        let value = rows[at][0];
        let (writer, row) = ((value / 1000) as usize, (value % 1000 - 1) as u64);
        if next.get(writer) != Some(&row) {
            return Err(format!("row {at} is {value}, which is lost, torn or out of order"));
        }
        next[writer] += 1;
        for _ in 0..=row % 2 {
            if rows.get(at).is_none_or(|row| row.iter().any(|other| *other != value)) {
                return Err(format!("row {at} is not whole: {:?}", rows.get(at)));
            }
            at += 1;
        }
    }
    match appenders.iter().find(|writer| next[**writer as usize] != ROWS) {
        Some(writer) => Err(format!("rows of writer {writer} are lost")),
        None => Ok(()),
    }
}

/// Checks that exactly one writer has created the array, with its own contents.
fn check_creation(store: &Store) -> Result<(), String> {
    let winners = store.group_attributes(&path("")).unwrap();
    let array = store.array(&path("new")).map_err(|error| error.to_string())?;
    let by = array.attributes().unwrap()["by"].clone();
    if winners.len() != 1 || !winners.contains_key(&by.to_string()) {
        return Err(format!("{winners:?} have created it, and it is of {by}"));
    }
    let found = read(&array, &whole(&[6, 6])).map_err(|error| error.to_string())?;
    if found.iter().all(|value| json!(value) == by) {
        Ok(())
    } else {
        Err(format!("elements of {by} are {found:?}"))
    }
}

#[test]
#[ignore = "a stage of make reliability"]
fn writers_that_race_lose_nothing() {
    // Each race with each kind of writers at least once; processes are one in ten.
    let kinds = RACES.len() * 10;
    let cases = Cases::new("races::", 100, 3 * kinds as u64);
    let races = cases.run(|case| {
        let kind = case.kind(kinds);
        let race = RACES[kind % RACES.len()];
        let writers = match kind / RACES.len() {
            0 => Writers::Processes,
            1..=4 => Writers::OneHandle,
            _ => Writers::Handles,
        };
        let number = 2 + Random(case.seed).below(7);
        let outcome = hold(race, writers, number);
        outcome.unwrap_or_else(|problem| panic!("{race:?} of {number} {writers:?}: {problem}"));
        race
    });
    let of_sessions = races.iter().filter(|race| **race == Race::Commits).count();
    count("races", races.len() as u64);
    count("races-of-sessions", of_sessions as u64);
}
