//! F13: concurrent sessions, readers, direct writers, settling and garbage collection, in thousands
//! of orders of their calls, each from a seed.
//!
//! In every order a reader finds whole commits, never older than any seen before it began. All
//! acknowledged writes are there in the end, and no thread waits for ever.

mod gate;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bedform::comm::Alone;
use bedform::log::recover::LeftoverPolicy;
use bedform::log::session::{CommitReach, SessionOptions};
use bedform::log::settle::CollectOptions;
use bedform::{Elements, ErrorKind, Store};
use bedform_storage::MemoryStorage;
use serde_json::Map;

use self::gate::{Actor, Gate, Gated, Order, run};
use crate::model::{FILL, burst, bytes, form, new_array, options, read, region, whole};
use crate::roles::process;
use crate::support::{Cases, Random, Scratch, count, in_parallel, path};

/// Columns of `t`.
const WIDTH: u64 = 4;
/// The first rows of `t`, which every commit writes.
const COMMON: u64 = 3;
/// The next rows, one per direct writer; appended rows follow.
const OWN: u64 = 2;
/// The shape of `u`, which every commit writes completely.
const OTHER: [u64; 2] = [3, 3];

/// The work of one actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Commits of both arrays, through the burst tier or not.
    Commit {
        tier: Option<CommitReach>,
        in_background: bool,
    },
    /// A session that creates an array and writes it.
    Create,
    /// Rows that sessions append.
    Append,
    /// Rows that are appended directly.
    AppendDirectly,
    /// Repeated direct writes of its own row.
    Write {
        row: u64,
    },
    Read,
    Settle,
    /// Recovery of dead writers' leftovers, among live writers.
    Recover,
}

/// The acknowledged writes so far.
#[derive(Debug, Default, Clone)]
struct Known {
    /// Numbers of the commits, by the value that they wrote.
    commits: BTreeMap<i32, u64>,
    last_commit: u64,
    /// The last value of each direct writer's row.
    own: [i32; OWN as usize],
    /// Appended rows.
    rows: u64,
    /// Arrays created by sessions.
    created: Vec<String>,
}

/// The finding of a reader, with the acknowledged writes when it began.
#[derive(Debug)]
struct Look {
    before: Known,
    rows: Vec<i32>,
    other: Vec<i32>,
}

#[derive(Debug, Default)]
struct History {
    known: Mutex<Known>,
    looks: Mutex<Vec<Vec<Look>>>,
}

type Outcome = Result<(), String>;

fn said(error: bedform::Error) -> String {
    format!("{:?}: {error}", error.kind())
}

/// The actors of a schedule, and the order of their calls.
#[derive(Debug)]
struct Plan {
    parts: Vec<Part>,
    /// For each part, the number of rounds.
    rounds: Vec<u64>,
    /// For each part, whether it opens the store itself.
    opens: Vec<bool>,
    /// True if there is an earlier, unsettled commit.
    is_pending: bool,
    order: Order,
}

impl Plan {
    /// Makes three to six parts, in an order that follows from the seed.
    fn of_seed(seed: u64) -> Self {
        let mut random = Random(seed ^ 0x5ced_u64.rotate_left(32));
        let tiers = [None, None, Some(CommitReach::Shared), Some(CommitReach::Node)];
        let mut commit = || Part::Commit {
            tier: tiers[random.below(4) as usize],
            in_background: random.below(2) == 0,
        };
        let mut parts = vec![Part::Read, commit()];
        let mut left = [
            commit(),
            Part::Append,
            Part::AppendDirectly,
            Part::Write { row: 1 },
            Part::Write { row: 0 },
            Part::Settle,
            Part::Create,
            Part::Read,
            Part::Recover,
        ]
        .to_vec();
        for _ in 0..1 + random.below(4) {
            parts.push(left.remove(random.below(left.len() as u64) as usize));
        }
        Self {
            rounds: parts.iter().map(|_| 1 + random.below(3)).collect(),
            opens: parts.iter().map(|_| random.below(2) == 0).collect(),
            is_pending: random.below(2) == 0,
            order: Order::Seed(random.next()),
            parts,
        }
    }

    /// Makes one part that another one interrupts after `calls` calls.
    fn of_pair(number: u64, calls: usize) -> Self {
        let of = |number: u64| PAIRED[(number % PAIRED.len() as u64) as usize];
        let parts = vec![of(number), of(number / PAIRED.len() as u64)];
        let (rounds, opens) = (vec![1, 2], vec![true, !number.is_multiple_of(3)]);
        let is_pending = number.is_multiple_of(2);
        Self { parts, rounds, opens, is_pending, order: Order::Interrupted(calls) }
    }
}

/// The parts that interrupt each other in pairs.
const PAIRED: [Part; 10] = [
    Part::Commit { tier: None, in_background: true },
    Part::Commit { tier: Some(CommitReach::Shared), in_background: true },
    Part::Commit { tier: Some(CommitReach::Node), in_background: true },
    Part::Create,
    Part::Append,
    Part::AppendDirectly,
    Part::Write { row: 1 },
    Part::Read,
    Part::Settle,
    Part::Recover,
];
const PAIRS: u64 = (PAIRED.len() * PAIRED.len()) as u64;

/// An actor: one part of a plan.
struct Role {
    number: usize,
    part: Part,
    store: Store,
    rounds: u64,
    history: Arc<History>,
}

impl Role {
    /// Returns a value that identifies the actor and the round.
    fn value(&self, round: u64) -> i32 {
        (self.number as u64 * 1000 + round + 1) as i32
    }

    fn act(&self) -> Outcome {
        match self.part {
            Part::Commit { tier, in_background } => self.commit(tier, in_background),
            Part::Create => self.create(),
            Part::Append => (0..self.rounds).try_for_each(|round| self.append(round)),
            Part::AppendDirectly => {
                (0..self.rounds).try_for_each(|round| self.append_directly(round))
            }
            Part::Write { row } => self.write(row),
            Part::Read => self.read(),
            Part::Settle => (0..self.rounds).try_for_each(|_| {
                self.store.settle().map_err(said)?;
                self.store.collect_log(&CollectOptions::default()).map(drop).map_err(said)
            }),
            Part::Recover => {
                let found = self.store.recover(None, LeftoverPolicy::Keep).map_err(said)?;
                if found.found.is_empty() && found.completed == 0 {
                    return Ok(());
                }
                Err(format!("nobody has died, and {found:?}"))
            }
        }
    }

    fn commit(&self, tier: Option<CommitReach>, in_background: bool) -> Outcome {
        let mut options = SessionOptions::default();
        options.in_background = in_background;
        if let Some(reach) = tier {
            let mut tier = burst(&self.store).map_err(said)?;
            (tier.in_background, tier.part_bytes) = (in_background, 1 << 16);
            (options.burst, options.reach) = (Some(tier), reach);
        }
        let mut session = self.store.session(Box::new(Alone), options).map_err(said)?;
        for round in 0..self.rounds {
            let value = self.value(round);
            let common = bytes(&[value; (COMMON * WIDTH) as usize]);
            let selection = region(&[0, 0], &[COMMON, WIDTH]);
            session.write(&path("t"), &selection, Elements::Bytes(&common)).map_err(said)?;
            let other = bytes(&[value; (OTHER[0] * OTHER[1]) as usize]);
            session.write(&path("u"), &whole(&OTHER), Elements::Bytes(&other)).map_err(said)?;
            let mut number = session.commit().map_err(said)?;
            if tier == Some(CommitReach::Node) {
                number = session.drain().map_err(said)?;
            }
            let mut known = self.history.known.lock().unwrap();
            known.commits.insert(value, number);
            known.last_commit = known.last_commit.max(number);
        }
        Ok(())
    }

    fn create(&self) -> Outcome {
        let name = format!("new{}", self.number);
        let options = SessionOptions::default();
        let mut session = self.store.session(Box::new(Alone), options).map_err(said)?;
        let like = new_array(&form(&[4], &[2], &[4], ""));
        session.create_arrays(&[(path(&name), like)]).map_err(said)?;
        let elements = bytes(&[self.value(0); 4]);
        session.write(&path(&name), &whole(&[4]), Elements::Bytes(&elements)).map_err(said)?;
        session.commit().map_err(said)?;
        self.history.known.lock().unwrap().created.push(name);
        Ok(())
    }

    /// Returns one or two rows, so that half of an append is noticed.
    fn rows(&self, round: u64) -> (u64, Vec<u8>) {
        let rows = 1 + round % 2;
        (rows, bytes(&vec![self.value(round); (rows * WIDTH) as usize]))
    }

    fn append(&self, round: u64) -> Outcome {
        let (rows, elements) = self.rows(round);
        loop {
            let options = SessionOptions::default();
            let mut session = self.store.session(Box::new(Alone), options).map_err(said)?;
            let elements = Elements::Bytes(&elements);
            session.append(&path("t"), 0, &[rows, WIDTH], elements).map_err(said)?;
            match session.commit() {
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => return Err(said(error)),
            }
        }
        self.history.known.lock().unwrap().rows += rows;
        Ok(())
    }

    fn append_directly(&self, round: u64) -> Outcome {
        let (rows, elements) = self.rows(round);
        let array = self.store.array(&path("t")).map_err(said)?;
        let elements = Elements::Bytes(&elements);
        array.append(0, &[rows, WIDTH], elements).map_err(said)?;
        self.history.known.lock().unwrap().rows += rows;
        Ok(())
    }

    fn write(&self, row: u64) -> Outcome {
        let array = self.store.array(&path("t")).map_err(said)?;
        for round in 0..self.rounds {
            let value = self.value(round);
            let elements = bytes(&[value; WIDTH as usize]);
            let selection = region(&[COMMON + row, 0], &[1, WIDTH]);
            array.write(&selection, Elements::Bytes(&elements)).map_err(said)?;
            self.history.known.lock().unwrap().own[row as usize] = value;
        }
        Ok(())
    }

    fn read(&self) -> Outcome {
        let mut looks = Vec::new();
        for _ in 0..2 * self.rounds {
            looks.push(look(&self.store, &self.history)?);
        }
        self.history.looks.lock().unwrap().push(looks);
        Ok(())
    }
}

fn look(store: &Store, history: &History) -> Result<Look, String> {
    let before = history.known.lock().unwrap().clone();
    for name in &before.created {
        let array = store.array(&path(name)).map_err(said)?;
        let found = read(&array, &whole(&[4])).map_err(said)?;
        let number: i32 = name.trim_start_matches("new").parse().unwrap();
        if found != [number * 1000 + 1; 4] {
            return Err(format!("{name}, which was committed, is {found:?}"));
        }
    }
    let array = store.array(&path("t")).map_err(said)?;
    let shape = array.shape().map_err(said)?;
    let values = read(&array, &whole(&shape)).map_err(said)?;
    let mut rows = Vec::new();
    for row in values.chunks(WIDTH as usize) {
        if row.iter().any(|value| *value != row[0]) {
            return Err(format!("row {} is not whole: {row:?}", rows.len()));
        }
        rows.push(row[0]);
    }
    let other = store.array(&path("u")).map_err(said)?;
    let other = read(&other, &whole(&OTHER)).map_err(said)?;
    Ok(Look { before, rows, other })
}

/// Compares a reader's successive findings with the final state.
fn judge(looks: &[Look], last: &Known, in_the_end: &[i32]) -> Outcome {
    let number = |values: &[i32]| {
        if values.iter().any(|value| *value != values[0]) {
            return Err(format!("half a commit: {values:?}"));
        }
        match last.commits.get(&values[0]) {
            Some(number) => Ok(*number),
            None if values[0] == FILL => Ok(0),
            None => Err(format!("{} is of no commit", values[0])),
        }
    };
    let first_row = (COMMON + OWN) as usize;
    let (mut newest, mut own, mut rows_before) = (0, [FILL; OWN as usize], 0);
    for (at, Look { before, rows, other }) in looks.iter().enumerate() {
        let fail = |problem: String| format!("look {at}: {problem}");
        for values in [&rows[..COMMON as usize], other] {
            let found = number(values).map_err(fail)?;
            if found < newest.max(before.last_commit) {
                let (newest, least) = (newest, before.last_commit);
                return Err(fail(format!("commit {found} after {newest}, and {least} was there")));
            }
            newest = found;
        }
        for (row, seen) in own.iter_mut().enumerate() {
            let found = rows[COMMON as usize + row];
            if found < (*seen).max(before.own[row]) {
                let text = format!("own row {row} is {found} after {seen}, {:?}", before.own);
                return Err(fail(text));
            }
            *seen = found;
        }
        let appended = &rows[first_row..];
        let is_prefix = in_the_end[first_row..].starts_with(appended);
        let least = before.rows.max(rows_before);
        if !is_prefix || (appended.len() as u64) < least {
            let text = format!("rows {appended:?} of {in_the_end:?}, at least {least}");
            return Err(fail(text));
        }
        rows_before = appended.len() as u64;
    }
    Ok(())
}

/// Checks that every append is there once, whole, and in the order of its writer.
fn judge_rows(appended: &[i32], known: &Known) -> Outcome {
    let mut next = BTreeMap::<i32, i32>::new();
    let mut at = 0;
    while at < appended.len() {
        let (writer, round) = (appended[at] / 1000, appended[at] % 1000 - 1);
        let length = 1 + round as usize % 2;
        let expected = next.entry(writer).or_default();
        let part = appended.get(at..at + length);
        let is_whole = part.is_some_and(|part| part.iter().all(|value| *value == appended[at]));
        if round != *expected || !is_whole {
            return Err(format!("row {at} of {appended:?} is lost, torn or out of order"));
        }
        *expected += 1;
        at += length;
    }
    if appended.len() as u64 == known.rows {
        return Ok(());
    }
    Err(format!("{} rows were appended, and {appended:?} are there", known.rows))
}

/// Carries out a plan, and returns its calls in order.
fn hold(plan: &Plan) -> Result<Vec<String>, String> {
    let gate = Arc::new(Gate::default());
    let storage = Arc::new(Gated { inner: Arc::new(MemoryStorage::new()), gate: gate.clone() });
    let store = Store::create(storage.clone(), &Map::new(), options(true)).map_err(said)?;
    let rows = [COMMON + OWN, WIDTH];
    // The last row of `t` shares a shard and a chunk with appended rows.
    store.create_array(&path("t"), &new_array(&form(&rows, &[2, 2], &[4, 4], ""))).unwrap();
    store.create_array(&path("u"), &new_array(&form(&OTHER, &[2, 2], &[4, 4], ""))).unwrap();
    let history = Arc::new(History::default());
    history.known.lock().unwrap().own = [FILL; OWN as usize];
    let role = |number: usize, part: Part, rounds: u64, opens: bool| {
        let mut options = options(true);
        // Creation runs in a thread of its own then.
        options.threads = Some(if part == Part::Create { 2 } else { 1 });
        let store = match opens || part == Part::Create {
            true => Store::open(storage.clone(), options).map_err(said)?,
            false => store.clone(),
        };
        Ok::<_, String>(Role { number, part, store, rounds, history: history.clone() })
    };
    if plan.is_pending {
        role(0, Part::Commit { tier: None, in_background: false }, 1, false)?.act()?;
    }
    let mut actors: Vec<Actor> = Vec::new();
    for (number, part) in plan.parts.iter().enumerate() {
        let role = role(number + 1, *part, plan.rounds[number], plan.opens[number])?;
        actors.push(Box::new(move || role.act()));
    }
    let outcome = run(&gate, plan.order, actors);
    let story = |problem: String| {
        let first = outcome.trace.len().saturating_sub(400);
        format!("{}\n{plan:?}\n{problem}", outcome.trace[first..].join("\n"))
    };
    if !outcome.problems.is_empty() {
        return Err(story(outcome.problems.join("\n")));
    }
    judge_all(&storage, &history).map_err(story)?;
    Ok(outcome.trace)
}

/// Checks the state through a new handle, before and after settling everything.
fn judge_all(storage: &Arc<Gated>, history: &History) -> Outcome {
    let known = history.known.lock().unwrap().clone();
    let open = || Store::open(storage.clone(), options(true)).map_err(said);
    let end = look(&open()?, history)?;
    judge_rows(&end.rows[(COMMON + OWN) as usize..], &known)?;
    let store = open()?;
    store.settle().map_err(said)?;
    store.collect_log(&CollectOptions::default()).map_err(said)?;
    let settled = look(&open()?, history)?;
    let rows = end.rows.clone();
    judge(&[end, settled], &known, &rows).map_err(|problem| format!("in the end: {problem}"))?;
    let looks = history.looks.lock().unwrap();
    looks.iter().try_for_each(|looks| judge(looks, &known, &rows))
}

/// The kind of schedules that a process tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trial {
    Seeds,
    /// Each seed twice.
    Twice,
    Pairs,
}

const TRIALS: [Trial; 3] = [Trial::Seeds, Trial::Twice, Trial::Pairs];

/// Tries `number` seeds or pairs, from the first on, in a process of its own.
pub(crate) fn take_part(_: &Path, arguments: &[u64]) {
    let [trial, first, number] = arguments else { panic!("trial, first, number") };
    let (mut schedules, mut calls) = (0, 0);
    let mut hold = |number: u64, plan: &Plan| {
        let trace = hold(plan).unwrap_or_else(|problem| panic!("{problem}\nin schedule {number}"));
        schedules += 1;
        calls += trace.len();
        trace
    };
    for number in *first..first + number {
        match TRIALS[*trial as usize] {
            Trial::Seeds => drop(hold(number, &Plan::of_seed(number))),
            Trial::Twice => {
                let trace = hold(number, &Plan::of_seed(number));
                let again = hold(number, &Plan::of_seed(number));
                let differs = trace.iter().zip(&again).find(|(one, other)| one != other);
                assert!(trace == again, "schedule {number} differs from itself: {differs:?}");
            }
            Trial::Pairs => {
                for interrupted_after in 1.. {
                    let trace = hold(number, &Plan::of_pair(number, interrupted_after));
                    let own = trace.iter().filter(|line| line.starts_with("0 "));
                    if own.count() <= interrupted_after {
                        break;
                    }
                }
            }
        }
    }
    println!("\nTRIED {schedules} {calls}");
}

/// Tries `number` schedules from `first` on, in a process with threads of its own. Returns the
/// numbers of schedules and of their calls.
fn try_some(trial: Trial, first: u64, number: u64) -> (u64, u64) {
    let scratch = Scratch::new("schedules");
    let at = TRIALS.iter().position(|other| *other == trial).unwrap() as u64;
    let output = process("schedules", &scratch.0, &[at, first, number]).output().unwrap();
    let (said, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{trial:?} from {first} on:\n{said}\n{errors}");
    let tried = said.lines().find_map(|line| line.strip_prefix("TRIED ")?.split_once(' '));
    let (schedules, calls) = tried.unwrap();
    (schedules.parse().unwrap(), calls.parse().unwrap())
}

/// Seeds per process.
const SEEDS: u64 = 10;

#[test]
#[ignore = "a stage of make reliability"]
fn in_whatever_order_threads_act_commits_are_whole_and_nothing_is_lost() {
    let cases = Cases::new("schedules::in_whatever_order", 100, 9);
    let tried = cases.run(|case| try_some(Trial::Seeds, case.seed, SEEDS));
    count("schedules", tried.iter().map(|tried| tried.0).sum());
    count("scheduled-calls", tried.iter().map(|tried| tried.1).sum());
}

#[test]
#[ignore = "a stage of make reliability"]
fn whoever_is_interrupted_at_any_call_by_whomever_loses_nothing() {
    let firsts: Vec<u64> = (0..PAIRS).step_by(SEEDS as usize).collect();
    let tried = in_parallel(&firsts, |first| try_some(Trial::Pairs, *first, SEEDS));
    count("interruptions", tried.iter().map(|tried| tried.0).sum());
}

#[test]
#[ignore = "a stage of make reliability"]
fn a_seed_gives_the_same_schedule_again() {
    for first in [0, 1000] {
        assert!(try_some(Trial::Twice, first, 20).0 > 0);
    }
}
