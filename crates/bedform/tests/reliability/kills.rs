//! F1: a writing process is killed at random instants, repeatedly, on a real file system.
//!
//! The child reports acknowledged operations on a pipe. The parent derives these operations, and
//! the unfinished one, from the seed. It recovers the promises of the burst tier and reads the
//! store: acknowledged operations must be complete, the unfinished one complete or absent.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bedform::Store;
use bedform_storage::{LocalStorage, Mode};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Map;

use crate::model::{Operation, StoreModel, form, judge, observe, options, recover};
use crate::roles::process;
use crate::support::{Cases, Random, Scratch, count};

const NAMES: [&str; 3] = ["t", "g/u", "g/v"];
const LENGTH_MAX: u64 = 40;

fn random(seed: u64, life: u64) -> Random {
    Random(seed ^ life.wrapping_mul(0xd134_2543_de82_ef95))
}

/// Draws a writer's next operation on a store that holds `model`.
pub(crate) fn next_operation(random: &mut Random, model: &StoreModel) -> Operation {
    let seed = random.next() >> 8;
    let free = NAMES.into_iter().find(|name| !model.contains_key(*name));
    if let Some(name) = free
        && (model.is_empty() || random.below(4) == 0)
    {
        let mut like = form(&[random.below(9), 1 + random.below(9)], &[2, 3], &[4, 6], "zstd");
        if random.below(2) == 0 {
            return Operation::Create { name, like };
        }
        like.codec = "";
        return Operation::Drafts { arrays: vec![(name, like)], seed };
    }
    let names: Vec<&String> = model.keys().collect();
    let name = names[random.below(names.len() as u64) as usize].clone();
    if random.below(2) == 0 {
        return next_of_log(random, model, &names, name, seed);
    }
    let shape = &model[&name].shape;
    match random.below(10) {
        0 => Operation::Attributes { name, value: seed % 1000 },
        1 => Operation::Delete { name: NAMES.into_iter().find(|other| *other == name).unwrap() },
        2 => Operation::Resize { name, shape: vec![random.below(12), 1 + random.below(12)] },
        3..=5 if shape.iter().product::<u64>() > 0 => {
            let start: Vec<u64> = shape.iter().map(|length| random.below(*length)).collect();
            let spans = shape.iter().zip(&start).map(|(length, start)| length - start);
            let shape = spans.map(|rest| 1 + random.below(rest)).collect();
            Operation::Write { name, start, shape, seed }
        }
        _ if shape[0] > LENGTH_MAX => Operation::Resize { name, shape: vec![3, 5] },
        6 => {
            let parts = names.iter().map(|name| ((*name).clone(), 0, 1 + random.below(5)));
            Operation::Append { parts: parts.collect(), seed }
        }
        _ => Operation::Append { parts: vec![(name, 0, 1 + random.below(7))], seed },
    }
}

/// Draws an operation of sessions or on their log.
fn next_of_log(
    random: &mut Random,
    model: &StoreModel,
    names: &[&String],
    name: String,
    seed: u64,
) -> Operation {
    let shape = &model[&name].shape;
    match random.below(8) {
        0 => Operation::Settle {
            memory_bytes: [100, 1 << 20][random.below(2) as usize],
            grace: Duration::from_secs(60 * random.below(2)),
        },
        1 => Operation::Collect,
        2 | 3 if shape[0] <= LENGTH_MAX && shape[1] <= 12 => Operation::Growth {
            name,
            shape: vec![shape[0] + random.below(4), shape[1] + random.below(2)],
            rows: 1 + random.below(3),
            seed,
            is_promise: random.below(2) == 0,
        },
        other => {
            let filled = names.iter().filter(|name| !model[**name].values.is_empty());
            let boxes = filled.map(|name| {
                let shape = &model[*name].shape;
                let start: Vec<u64> = shape.iter().map(|length| random.below(*length)).collect();
                let spans = shape.iter().zip(&start).map(|(length, start)| length - start);
                ((*name).clone(), start.clone(), spans.map(|rest| 1 + random.below(rest)).collect())
            });
            let boxes = boxes.collect();
            match other {
                4 | 6 => Operation::Session { boxes, seed },
                5 => Operation::Background { boxes, seed },
                _ => Operation::Promise { boxes, seed },
            }
        }
    }
}

fn open(root: &Path, mode: Mode) -> Arc<LocalStorage> {
    Arc::new(LocalStorage::open(root, mode).unwrap())
}

pub(crate) fn write_until_killed(root: &Path, arguments: &[u64]) {
    let [seed, life, more_bytes] = arguments else { panic!("seed, life, memory") };
    let storage = open(root, Mode::ReadWrite);
    let mut model = observe(storage.clone(), &StoreModel::new()).unwrap().unwrap();
    let store = Store::open(storage, options(true)).unwrap();
    let mut random = random(*seed, *life);
    let mut output = std::io::stdout();
    output.write_all(b"\nready\n").unwrap();
    if *more_bytes < u64::MAX {
        let maximum = getrlimit(Resource::As).maximum;
        let limit = Rlimit { current: Some(address_space_bytes() + more_bytes), maximum };
        setrlimit(Resource::As, limit).unwrap();
    }
    loop {
        let operation = next_operation(&mut random, &model);
        // A promise is acknowledged at once; the end of its session fulfils it.
        let outcome = match operation.is_promise() {
            true => operation.session(&store, true).map(Some),
            false => operation.run(&store, &model).map(|()| None),
        };
        let promised = match outcome {
            Ok(promised) => promised,
            // Out of memory: the process ends.
            Err(_) if *more_bytes < u64::MAX => std::process::exit(0),
            Err(error) => panic!("{operation:?}: {error}"),
        };
        model = operation.apply(&model);
        output.write_all(b"done\n").unwrap();
        drop(promised);
    }
}

/// Returns the address space of this process in bytes.
fn address_space_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// The limits on a writer's further memory in bytes, where memory is limited.
const MEMORY_BYTES: [u64; 12] = [
    1 << 12,
    1 << 16,
    1 << 18,
    1 << 19,
    1 << 20,
    3 << 19,
    1 << 21,
    1 << 22,
    1 << 23,
    1 << 24,
    3 << 24,
    1 << 26,
];

/// Kills `lives` writers on one store, one after the other; with `in_little_memory` a refused
/// allocation may end them earlier. Returns the number of acknowledged operations.
fn kill_writers(seed: u64, lives: u64, in_little_memory: bool) -> u64 {
    let scratch = Scratch::new("kills");
    let root = scratch.0.join("store");
    Store::create(open(&root, Mode::Create), &Map::new(), options(true)).unwrap();
    let mut model = StoreModel::new();
    let mut acknowledged = 0;
    let mut delays = Random(seed);
    for life in 0..lives {
        let memory = match in_little_memory {
            true => MEMORY_BYTES[life as usize % MEMORY_BYTES.len()],
            false => u64::MAX,
        };
        let arguments = [seed, life, memory];
        let mut child = process("write until killed", &root, &arguments).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let is_ready = lines.any(|line| line.unwrap() == "ready");
        // Half of the writers live until some operations are done, however slow the machine.
        let waits = if in_little_memory { 0 } else { delays.below(2) * delays.below(4) };
        let mut done: Vec<_> = lines.by_ref().take(waits as usize).collect();
        std::thread::sleep(Duration::from_micros(delays.below(50_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let is_quiet = match in_little_memory {
            true => !said.contains("panicked"),
            false => said.is_empty(),
        };
        assert!(is_ready && is_quiet, "seed {seed}, life {life}, memory {memory}: {said}");

        let mut random = random(seed, life);
        done.extend(lines);
        for line in done {
            assert_eq!(line.unwrap(), "done");
            model = next_operation(&mut random, &model).apply(&model);
            acknowledged += 1;
        }
        let under_way = next_operation(&mut random, &model);
        let store = Store::open(open(&root, Mode::ReadWrite), options(true)).unwrap();
        recover(&store).unwrap_or_else(|error| panic!("seed {seed}, life {life}: {error}"));
        let found = observe(open(&root, Mode::ReadOnly), &model);
        let found = found.and_then(|found| found.ok_or_else(|| "the store is gone".to_owned()));
        let judged = found.and_then(|found| judge(found, &model, Some(&under_way)));
        model = judged.unwrap_or_else(|problem| {
            panic!("seed {seed}, life {life}, while {under_way:?}: {problem}")
        });
    }
    acknowledged
}

/// The number of successive writers of one store.
const LIVES: u64 = 24;

#[test]
#[ignore = "a stage of make reliability"]
fn a_killed_writer_leaves_what_it_acknowledged_and_whole_operations() {
    let cases = Cases::new("kills::a_killed_writer", 75, 8);
    let acknowledged = cases.run(|case| kill_writers(case.seed, LIVES, false));
    count("kills", LIVES * acknowledged.len() as u64);
    count("operations-acknowledged", acknowledged.iter().sum());
}

/// F17: a refused allocation is an error or ends the process, and the store stays intact.
#[test]
#[ignore = "a stage of make reliability"]
fn a_writer_that_gets_no_memory_leaves_what_it_acknowledged_and_whole_operations() {
    let cases = Cases::new("kills::a_writer_that_gets_no_memory", 25, 3);
    let acknowledged = cases.run(|case| kill_writers(case.seed, LIVES, true));
    count("lives-in-little-memory", LIVES * acknowledged.len() as u64);
    count("operations-in-little-memory", acknowledged.iter().sum());
}
