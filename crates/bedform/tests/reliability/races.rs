//! F12: many writers on one store at once, in threads and in processes.
//!
//! Every race has a result that does not depend on who is faster: no element is lost, and whoever is
//! refused is told so by `Exists` or `Conflict`.

use std::path::Path;
use std::sync::Arc;

use bedform::{Elements, ErrorKind, Store};
use bedform_storage::{Durability, LocalStorage, Mode};
use serde_json::{Map, json};

use crate::model::{FILL, bytes, form, new_array, options, read, region, whole};
use crate::roles::process;
use crate::support::{Random, Scratch, count, effort, in_parallel, path, random_seed};

const SIDE: u64 = 24;
const BLOCK: u64 = 5;
const ROWS: u64 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Race {
    /// Disjoint blocks that share chunks and shards.
    Regions,
    /// Rows appended to one array, each with its writer's number.
    Appends,
    /// The same name created.
    Creations,
    /// Appends and blocks in one array, and attributes set meanwhile.
    Mixed,
}

const RACES: [Race; 4] = [Race::Regions, Race::Appends, Race::Creations, Race::Mixed];

fn open(root: &Path, mode: Mode) -> Store {
    let mut options = options(true);
    // Power cuts are another test's; without syncs there are more races in the same time.
    options.durability = Durability::Process;
    let storage = Arc::new(LocalStorage::open(root, mode).unwrap());
    if mode == Mode::Create {
        Store::create(storage, &Map::new(), options).unwrap()
    } else {
        Store::open(storage, options).unwrap()
    }
}

/// The blocks of writer `writer` of `writers`, and the value that it writes there.
fn blocks(writer: u64, writers: u64) -> impl Iterator<Item = ([u64; 2], [u64; 2], i32)> {
    let along = SIDE.div_ceil(BLOCK);
    (0..along * along).filter(move |block| block % writers == writer).map(move |block| {
        let start = [block / along * BLOCK, block % along * BLOCK];
        let shape = start.map(|start| BLOCK.min(SIDE - start));
        (start, shape, (writer * 1000 + block + 1) as i32)
    })
}

/// One writer's part.
fn run(race: Race, store: &Store, writer: u64, writers: u64) {
    let array = || store.array(&path("t")).unwrap();
    let write_blocks = || {
        let array = array();
        for (start, shape, value) in blocks(writer, writers) {
            let elements = bytes(&vec![value; (shape[0] * shape[1]) as usize]);
            let selection = region(&start, &shape);
            array.write(&selection, Elements::Bytes(&elements), &|| false).unwrap();
        }
    };
    let append_rows = || {
        let array = array();
        for row in 0..ROWS {
            let rows = 1 + row % 2;
            let value = (writer * 1000 + row + 1) as i32;
            let elements = bytes(&vec![value; (rows * SIDE) as usize]);
            array.append(0, &[rows, SIDE], Elements::Bytes(&elements), &|| false).unwrap();
        }
    };
    match race {
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

/// Creates the array with its writer's number in attributes and elements; or is refused.
fn create(store: &Store, writer: u64) {
    let mut like = form(&[6, 6], &[2, 2], &[4, 4], "");
    like.attributes = Map::from_iter([("by".to_owned(), json!(writer))]);
    let new = new_array(&like);
    let elements = bytes(&[writer as i32; 36]);
    let outcome = (|| {
        let array = store.draft_array(&path("new"), &new)?;
        array.write(&whole(&[6, 6]), Elements::Bytes(&elements), &|| false)?;
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

/// A process takes part as one writer.
pub(crate) fn take_part(root: &Path, arguments: &[u64]) {
    let [race, writer, writers] = arguments else { panic!("race, writer, writers") };
    run(RACES[*race as usize], &open(root, Mode::ReadWrite), *writer, *writers);
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
                let store = &store;
                scope.spawn(move || run(race, store, writer, number));
            }
        }),
        Writers::Handles => std::thread::scope(|scope| {
            for writer in 0..number {
                let root = &root;
                scope.spawn(move || run(race, &open(root, Mode::ReadWrite), writer, number));
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
    check(race, &open(&root, Mode::ReadWrite), number)
}

fn check(race: Race, store: &Store, writers: u64) -> Result<(), String> {
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
        _ => false,
    }) {
        for (start, shape, value) in blocks(writer, writers) {
            for row in start[0]..start[0] + shape[0] {
                let first = (row * SIDE + start[1]) as usize;
                expected[first..first + shape[1] as usize].fill(value);
            }
        }
    }
    if found.get(..expected.len()) != Some(&expected[..]) {
        return Err("elements of regions are lost".to_owned());
    }
    let appenders: Vec<u64> = (0..writers)
        .filter(|writer| race == Race::Appends || (race == Race::Mixed && writer.is_multiple_of(3)))
        .collect();
    check_rows(&found[expected.len()..], &appenders)
}

/// The rows behind the first ones are those that were appended, in any order of writers.
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
                return Err(format!("row {at} is not whole"));
            }
            at += 1;
        }
    }
    match appenders.iter().find(|writer| next[**writer as usize] != ROWS) {
        Some(writer) => Err(format!("rows of writer {writer} are lost")),
        None => Ok(()),
    }
}

/// Exactly one has created the array, and it is that one's.
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
fn writers_that_race_lose_nothing() {
    let seed = random_seed("races::");
    let mut random = Random(seed);
    let races = effort(1000, 60);
    let trials: Vec<(Race, Writers, u64)> = (0..races)
        .map(|number| {
            let writers = match number % 10 {
                0 => Writers::Processes,
                1..=4 => Writers::OneHandle,
                _ => Writers::Handles,
            };
            (RACES[random.below(4) as usize], writers, 2 + random.below(7))
        })
        .collect();
    in_parallel(&trials, |(race, writers, number)| {
        let outcome = hold(*race, *writers, *number);
        outcome.unwrap_or_else(|problem| panic!("{race:?} of {number} {writers:?}: {problem}"));
    });
    count("races", races);
}
