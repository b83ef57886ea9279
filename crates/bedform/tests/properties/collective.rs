//! Members of a session that make different collective calls. The first differing call fails on all
//! of them with one text that names each member's call, and has no effect.
//!
//! In random programs of two to four members, one member deviates at some step. They run beside a
//! model that compares the calls of all members one by one.

#![allow(clippy::cast_possible_truncation)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};

use bedform::comm::{Communicator as _, ThreadMember, threads, threads_on_nodes};
use bedform::log::recover::LeftoverPolicy;
use bedform::log::session::{AtEnd, Session, SessionOptions};
use bedform::{Elements, ErrorKind, NewArray, OpenOptions, Store};
use bedform_format::metadata::FillValue;
use bedform_format::{DataType, ObjectPath};
use bedform_geometry::{Region, Selection};
use bedform_storage::{MemoryStorage, Storage};
use proptest::prelude::*;

use super::model::Numbers;
use super::sessions::{bytes_array, open};
use super::{PATIENCE, cases};

/// Rows and columns of a new array: each member writes its own row.
const SIDE: u64 = 4;
const SIDE_LENGTH: usize = 4;

#[derive(Debug, Clone, PartialEq)]
enum Step {
    /// Fills the member's own row of an array; the only step that is not collective.
    Write(String, u8),
    /// Appends along an axis. All appends of a case have the same lengths per member.
    Append(String, usize),
    Create(String, DataType),
    Commit,
    Drain,
    End,
}

impl Step {
    /// The text of a call, which must be equal on all members; created arrays are compared
    /// separately.
    fn call(&self) -> String {
        match self {
            Self::Write(..) => unreachable!("it is not collective"),
            Self::Append(name, axis) => format!("append({name:?}, axis {axis})"),
            Self::Create(..) => "create_arrays()".to_owned(),
            Self::Commit => "commit()".to_owned(),
            Self::Drain => "drain()".to_owned(),
            Self::End => "end()".to_owned(),
        }
    }

    fn hands_over(&self) -> bool {
        matches!(self, Self::Commit | Self::Drain | Self::End)
    }

    fn is_collective(&self) -> bool {
        !matches!(self, Self::Write(..))
    }
}

/// The steps of each member, by rank.
type Programs = Vec<Vec<Step>>;

fn step(number: u64, numbers: &mut Numbers) -> Step {
    let name = ["a", "b"][numbers.below(2) as usize].to_owned();
    match numbers.below(9) {
        0 | 1 => Step::Write(name, 1 + numbers.below(90) as u8),
        // The array may not exist.
        2 => Step::Write(format!("new{}", numbers.below(number)), 1 + numbers.below(90) as u8),
        3 | 4 => Step::Append(name, numbers.below(2) as usize),
        5 => Step::Create(format!("new{number}"), DataType::UInt8),
        6 => Step::Drain,
        _ => Step::Commit,
    }
}

/// Makes one program for all members, and changes it for one: a different, further, missing or
/// swapped step, or an early end.
fn programs(members: usize, numbers: &mut Numbers) -> Programs {
    let count = 3 + numbers.below(8);
    let mut all: Vec<Step> = (0..count).map(|number| step(number, numbers)).collect();
    all.push(Step::End);
    let mut programs = vec![all; members];
    let which = numbers.below(members as u64) as usize;
    let program = &mut programs[which];
    let at = numbers.below(count) as usize;
    match numbers.below(8) {
        0 => drop(program.remove(at)),
        1 => program.insert(at, program[at].clone()),
        2 => program.swap(at, (at + 1).min(count as usize - 1)),
        3 => {
            program.truncate(at);
            program.push(Step::End);
        }
        _ => program[at] = altered(&program[at], numbers),
    }
    programs
}

/// Returns a step that differs from this one in one point, or any other step.
fn altered(step: &Step, numbers: &mut Numbers) -> Step {
    match (step, numbers.below(4)) {
        (Step::Append(name, axis), 0 | 1) => {
            Step::Append(if name == "a" { "b" } else { "a" }.to_owned(), *axis)
        }
        (Step::Append(name, axis), 2) => Step::Append(name.clone(), 1 - axis),
        (Step::Create(name, _), 0 | 1) => Step::Create(name.clone(), DataType::Int8),
        (Step::Create(name, data_type), 2) => Step::Create(format!("{name}x"), *data_type),
        _ => self::step(99, numbers),
    }
}

/// The length of both axes, and the elements in C order.
#[derive(Debug, Clone, PartialEq)]
struct Plane {
    shape: [u64; 2],
    elements: Vec<u8>,
}

impl Plane {
    fn new() -> Self {
        Self { shape: [SIDE; 2], elements: vec![0; SIDE_LENGTH * SIDE_LENGTH] }
    }

    fn at(&mut self, row: u64, column: u64) -> &mut u8 {
        let at = row * self.shape[1] + column;
        &mut self.elements[usize::try_from(at).unwrap()]
    }

    fn grow(&mut self, axis: usize, length: u64) {
        let mut shape = self.shape;
        shape[axis] += length;
        let count = usize::try_from(shape[0] * shape[1]).unwrap();
        let mut grown = Self { shape, elements: vec![0; count] };
        for row in 0..self.shape[0] {
            for column in 0..self.shape[1] {
                *grown.at(row, column) = *self.at(row, column);
            }
        }
        *self = grown;
    }

    /// Appends rows or columns filled with `value`.
    fn append(&mut self, axis: usize, length: u64, value: u8) {
        let (start, across) = (self.shape[axis], self.shape[1 - axis]);
        self.grow(axis, length);
        for at in start..start + length {
            for other in 0..across {
                let [row, column] = if axis == 0 { [at, other] } else { [other, at] };
                *self.at(row, column) = value;
            }
        }
    }
}

/// The value that a member appends, which identifies its elements.
fn mark(rank: usize, number: usize) -> u8 {
    u8::try_from(100 + rank * 10 + number % 10).unwrap()
}

/// The outcome of a call, equal on all members.
#[derive(Debug, Clone, PartialEq)]
enum Heard {
    Fine,
    /// The calls differ: each different call, with the lowest rank that makes it.
    Differs(Vec<(usize, String)>),
    Over,
}

#[derive(Debug)]
struct Expected {
    committed: BTreeMap<String, Plane>,
    /// The outcomes of each member's calls, by rank, in order.
    heard: Vec<Vec<Heard>>,
}

/// Runs the programs in the model, one joint call after the other.
fn expected(programs: &Programs, lengths: &[u64]) -> Expected {
    let start: BTreeMap<_, _> = ["a", "b"].map(|name| (name.to_owned(), Plane::new())).into();
    let (mut committed, mut next, mut is_over) = (start.clone(), start, false);
    let mut left: Vec<_> = programs.iter().map(|program| program.iter().peekable()).collect();
    let mut heard = vec![Vec::new(); programs.len()];
    for number in 0.. {
        let mut calls = Vec::new();
        for (rank, steps) in left.iter_mut().enumerate() {
            while let Some(Step::Write(name, value)) = steps.next_if(|step| !step.is_collective()) {
                let Some(plane) = next.get_mut(name) else { continue };
                (0..SIDE).for_each(|column| *plane.at(rank as u64, column) = *value);
            }
            calls.push(steps.next());
        }
        if calls.iter().all(Option::is_none) {
            return Expected { committed, heard };
        }
        let met = if is_over { Heard::Over } else { meet(&calls) };
        for (heard, _) in heard.iter_mut().zip(&calls).filter(|(_, call)| call.is_some()) {
            heard.push(met.clone());
        }
        match (&met, calls[0]) {
            (Heard::Fine, Some(Step::Append(name, axis))) => {
                for (rank, length) in lengths.iter().enumerate() {
                    next.get_mut(name).unwrap().append(*axis, *length, mark(rank, number));
                }
            }
            (Heard::Fine, Some(Step::Create(name, _))) => {
                next.insert(name.clone(), Plane::new());
            }
            (Heard::Fine, Some(Step::Drain)) => {
                // Created arrays appear, empty.
                next.keys().for_each(|name| {
                    committed.entry(name.clone()).or_insert_with(Plane::new);
                });
            }
            (Heard::Fine, _) => committed.clone_from(&next),
            _ => is_over |= calls.iter().flatten().any(|call| call.hands_over()),
        }
    }
    unreachable!("programs end")
}

/// Returns the outcome of one joint call.
fn meet(calls: &[Option<&Step>]) -> Heard {
    let mut differing: Vec<(usize, String)> = Vec::new();
    let calls: Vec<&Step> =
        calls.iter().map(|call| call.expect("an end ends it for all")).collect();
    for (rank, call) in calls.iter().map(|step| step.call()).enumerate() {
        if differing.iter().all(|(_, known)| *known != call) {
            differing.push((rank, call));
        }
    }
    if differing.len() > 1 {
        return Heard::Differs(differing);
    }
    let other = calls.iter().position(|step| matches!(step, Step::Create(..)) && step != &calls[0]);
    match (other, calls[0]) {
        (Some(rank), Step::Create(name, _)) => {
            Heard::Differs(vec![(0, format!("{name:?}")), (rank, String::new())])
        }
        _ => Heard::Fine,
    }
}

fn plane_array(data_type: DataType) -> NewArray {
    let layout = bedform::ArrayLayout {
        chunk_shape: vec![2, 2],
        shard_shape: vec![4, 4],
        ..bytes_array().layout
    };
    let fill_value = FillValue::zero(data_type);
    NewArray { shape: vec![SIDE; 2], data_type, layout, fill_value, ..bytes_array() }
}

/// A store with the arrays `a` and `b`.
fn two_arrays() -> Arc<dyn Storage> {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let mut options = OpenOptions::default();
    options.commits_named = 2;
    options.writable = true;
    let store = Store::create(storage.clone(), &serde_json::Map::new(), options).unwrap();
    for name in ["a", "b"] {
        store.create_array(&named(name), &plane_array(DataType::UInt8)).unwrap();
    }
    storage
}

fn named(name: &str) -> ObjectPath {
    ObjectPath::parse(name).unwrap()
}

/// The result of one member's call.
type Outcome = Result<(), (ErrorKind, String)>;

/// A member of a case: its program, and the lengths that each member appends.
struct Writer {
    member: ThreadMember,
    storage: Arc<dyn Storage>,
    program: Vec<Step>,
    lengths: Vec<u64>,
}

impl Writer {
    /// Runs the program, and returns the results of its collective calls.
    fn run(self) -> Vec<Outcome> {
        let Self { member, storage, program, lengths } = self;
        let rank = member.rank() as usize;
        let store = open(&storage, true);
        let mut options = SessionOptions::default();
        options.at_end = AtEnd::Leave;
        let mut session = Some(store.session(Box::new(member), options).unwrap());
        let mut outcomes = Vec::new();
        let mut shapes: BTreeMap<_, _> = ["a", "b"].map(|name| (name.to_owned(), [SIDE; 2])).into();
        for step in &program {
            let Some(open) = &mut session else { break };
            let outcome = match step {
                Step::Write(name, value) => {
                    write(open, name, rank as u64, *value);
                    continue;
                }
                Step::Append(name, axis) => {
                    let shape = shapes.get_mut(name).unwrap();
                    let value = mark(rank, outcomes.len());
                    let outcome = append(open, name, *shape, (*axis, lengths[rank]), value);
                    if outcome.is_ok() {
                        shape[*axis] += lengths.iter().sum::<u64>();
                    }
                    outcome
                }
                Step::Create(name, data_type) => {
                    open.create_arrays(&[(named(name), plane_array(*data_type))])
                }
                Step::Commit => open.commit().map(drop),
                Step::Drain => open.drain().map(drop),
                Step::End => session.take().unwrap().close(),
            };
            outcomes.push(outcome.map_err(|error| (error.kind(), error.to_string())));
        }
        outcomes
    }
}

fn write(session: &mut Session, name: &str, row: u64, value: u8) {
    let row = Selection::from(Region::new(vec![row, 0], vec![1, SIDE]).unwrap());
    // An error is allowed: the array may not exist, and the session may be over.
    let _ = session.write(&named(name), &row, Elements::Bytes(&[value; SIDE_LENGTH]));
}

/// Appends `length` along an axis to an array of this shape.
fn append(
    session: &mut Session,
    name: &str,
    mut shape: [u64; 2],
    (axis, length): (usize, u64),
    value: u8,
) -> bedform::Result<()> {
    shape[axis] = length;
    let elements = vec![value; usize::try_from(shape[0] * shape[1]).unwrap()];
    session.append(&named(name), axis, &shape, Elements::Bytes(&elements)).map(drop)
}

/// Runs the programs, one thread per member; `None` after a timeout.
fn run_all(
    storage: &Arc<dyn Storage>,
    programs: &Programs,
    lengths: &[u64],
    per_node: u32,
) -> Option<Vec<Vec<Outcome>>> {
    let (said, heard) = channel();
    let members = threads_on_nodes(u32::try_from(programs.len()).unwrap(), per_node);
    for (rank, (member, program)) in members.into_iter().zip(programs.clone()).enumerate() {
        let writer =
            Writer { member, storage: storage.clone(), program, lengths: lengths.to_vec() };
        let said = said.clone();
        std::thread::spawn(move || said.send((rank, writer.run())));
    }
    let mut outcomes = vec![Vec::new(); programs.len()];
    for _ in programs {
        let (rank, outcome) = heard.recv_timeout(PATIENCE).ok()?;
        outcomes[rank] = outcome;
    }
    Some(outcomes)
}

fn found(store: &Store) -> BTreeMap<String, Plane> {
    let arrays = store.nodes().unwrap().into_keys().filter(|path| !path.is_root());
    let planes = arrays.map(|path| {
        let array = store.array(&path).unwrap();
        let shape: [u64; 2] = array.shape().unwrap().try_into().unwrap();
        let mut elements = vec![0; usize::try_from(shape[0] * shape[1]).unwrap()];
        array.read(&Selection::all(&shape), &mut elements).unwrap();
        (path.to_string(), Plane { shape, elements })
    });
    planes.collect()
}

/// Compares the outcomes of all members with the expected ones.
fn check_heard(outcomes: &[Vec<Outcome>], heard: &[Vec<Heard>], story: &str) {
    for (rank, (outcomes, heard)) in outcomes.iter().zip(heard).enumerate() {
        assert_eq!(outcomes.len(), heard.len(), "rank {rank}: {outcomes:?}\n{story}");
        for (number, (outcome, heard)) in outcomes.iter().zip(heard).enumerate() {
            let place = || format!("rank {rank}, call {number}: {outcome:?}\n{story}");
            match (heard, outcome) {
                (Heard::Fine, Ok(())) => {}
                (Heard::Over, Err((ErrorKind::Poisoned, _))) => {}
                (Heard::Differs(calls), Err((ErrorKind::InvalidArgument, text))) => {
                    for (rank, call) in calls {
                        let is_named = [format!("rank {rank} "), format!("ranks {rank} ")]
                            .iter()
                            .any(|name| text.contains(name.as_str()));
                        assert!(is_named && text.contains(call.as_str()), "{}", place());
                    }
                }
                _ => panic!("{heard:?} was to be expected of {}", place()),
            }
        }
    }
}

/// Runs one case, and returns the number of differing calls.
fn check(seed: u64) -> usize {
    let numbers = &mut Numbers(seed);
    let members = 2 + numbers.below(3) as usize;
    let per_node = 1 + numbers.below(members as u64) as u32;
    let lengths: Vec<u64> = (0..members).map(|_| numbers.below(3)).collect();
    let programs = programs(members, numbers);
    let mut story = format!("seed {seed}, {per_node} on a node");
    for program in &programs {
        let _ = write!(story, "\n{program:?}");
    }
    let storage = two_arrays();
    let expected = expected(&programs, &lengths);
    let outcomes = run_all(&storage, &programs, &lengths, per_node);
    let outcomes = outcomes.unwrap_or_else(|| panic!("the members wait for each other: {story}"));
    check_heard(&outcomes, &expected.heard, &story);
    for number in 0..outcomes.iter().map(Vec::len).max().unwrap() {
        let mut texts = outcomes.iter().filter_map(|all| all.get(number));
        let first = texts.next();
        assert!(texts.all(|text| Some(text) == first), "call {number}: {outcomes:?}\n{story}");
    }
    assert_eq!(found(&open(&storage, true)), expected.committed, "{story}");
    let store = open(&storage, true);
    store.recover(None, LeftoverPolicy::Discard).unwrap();
    store.settle().unwrap();
    assert_eq!(found(&store), expected.committed, "settled: {story}");
    let differs = |heard: &&Heard| matches!(heard, Heard::Differs(_));
    expected.heard[0].iter().filter(differs).count()
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn calls_that_differ_fail_on_all_members_and_nothing_of_them_is_to_be_seen(seed in any::<u64>()) {
        check(seed);
    }
}

/// A regression: one member appended to another array, and all rows got wrong places.
#[test]
fn members_that_append_to_different_arrays_are_told_so_and_go_on() {
    let storage = two_arrays();
    let own = |name: &str| {
        let append = |name: &str| Step::Append(name.to_owned(), 0);
        vec![append(name), append("a"), Step::Commit, Step::End]
    };
    let programs = vec![own("b"), own("a"), own("a"), own("a")];
    let outcomes = run_all(&storage, &programs, &[1; 4], 2).unwrap();
    let text = "the processes must make the same collective calls in the same order: rank 0 calls \
                append(\"b\", axis 0), ranks 1 to 3 call append(\"a\", axis 0)";
    for outcomes in outcomes {
        let error = Err((ErrorKind::InvalidArgument, text.to_owned()));
        assert_eq!(outcomes, [error, Ok(()), Ok(()), Ok(())]);
    }
    let mut whole = Plane::new();
    (0..4).for_each(|rank| whole.append(0, 1, mark(rank, 1)));
    let expected: BTreeMap<_, _> = [("a".to_owned(), whole), ("b".to_owned(), Plane::new())].into();
    assert_eq!(found(&open(&storage, true)), expected);
}

/// Lets two members of a session append a row to `a`, after running `before` for each; returns the
/// results.
fn appended_by_two(
    storage: &Arc<dyn Storage>,
    bytes: [usize; 2],
    before: impl Fn(u32, &mut Session) + Sync,
) -> Vec<Outcome> {
    let append = |member: ThreadMember| {
        let rank = member.rank();
        let store = open(storage, true);
        let mut session = store.session(Box::new(member), SessionOptions::default()).unwrap();
        before(rank, &mut session);
        let bytes = vec![1; bytes[rank as usize]];
        let outcome = session.append(&named("a"), 0, &[1, SIDE], Elements::Bytes(&bytes));
        session.commit().unwrap();
        outcome.map(drop).map_err(|error| (error.kind(), error.to_string()))
    };
    std::thread::scope(|scope| {
        let append = &append;
        let all: Vec<_> =
            threads(2).into_iter().map(|member| scope.spawn(move || append(member))).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn members_that_know_different_arrays_of_one_name_do_not_append() {
    let storage = two_arrays();
    let steps = Barrier::new(2);
    let outcomes = appended_by_two(&storage, [SIDE_LENGTH; 2], |rank, session| {
        if rank == 0 {
            // From here on the member knows the array.
            write(session, "b", 0, 1);
            let _ = session.resize(&named("a"), &[SIDE; 2]);
        }
        steps.wait();
        if rank == 1 {
            let store = open(&storage, true);
            store.delete(&named("a")).unwrap();
            store.create_array(&named("a"), &plane_array(DataType::UInt8)).unwrap();
        }
        steps.wait();
    });
    let (kind, text) = outcomes[0].clone().unwrap_err();
    assert!(kind == ErrorKind::InvalidArgument && text.contains("different arrays a"), "{text}");
    assert_eq!(outcomes[0], outcomes[1]);
    assert_eq!(found(&open(&storage, true))["a"], Plane::new());
}

#[test]
fn elements_that_one_member_lacks_are_an_error_of_all_and_nothing_is_appended() {
    let storage = two_arrays();
    let outcomes = appended_by_two(&storage, [SIDE_LENGTH, 3], |_, _| ());
    for outcome in outcomes {
        let (kind, text) = outcome.unwrap_err();
        assert!(kind == ErrorKind::InvalidArgument && text.contains("3 bytes were given for a"));
    }
    assert_eq!(found(&open(&storage, true))["a"], Plane::new());
}

#[test]
fn programs_that_differ_are_drawn_often() {
    let differing = (0..100).filter(|seed| check(*seed) > 0).count();
    assert!(differing > 50, "{differing}");
}
