//! F19: every file of a burst tier with promised commits is damaged, and no acknowledged commit is
//! lost silently.
//!
//! A writer is killed with promises in its tier. One file there is flipped, cut, extended, removed,
//! swapped or replaced by an older version. Then `recover` brings whole commits in order: all of
//! them, or all before the damage, which it reports. No session and no direct write begins before a
//! decision.

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier, Mutex};

use bedform::comm::{Alone, Communicator, threads};
use bedform::log::recover::LeftoverPolicy;
use bedform::log::session::{Burst, CommitReach, Session, SessionOptions};
use bedform::{Elements, ErrorKind, Store};
use bedform_format::ObjectPath;
use bedform_format::log::{RecordHead, RecordKind};
use bedform_storage::{Condition, Durability, MemoryStorage, Storage};
use serde_json::Map;

use crate::frozen::Files;
use crate::model::{bytes, form, new_array, options, read, region, whole};
use crate::support::{Cases, Random, count, in_parallel, path};

const LENGTH: u64 = 48;
/// Elements of a write.
const WRITTEN: u64 = 6;
/// The most lengths to which a file is cut.
const LENGTHS_MAX: usize = 40;

/// Returns all files of a storage.
fn files_of(storage: &dyn Storage) -> Files {
    let mut found = Files::new();
    let mut open = vec![ObjectPath::root()];
    while let Some(directory) = open.pop() {
        for entry in storage.list(&directory).unwrap() {
            let path = directory.join(&entry.name).unwrap();
            if entry.is_directory {
                open.push(path);
                continue;
            }
            let object = storage.open(&path).unwrap();
            let mut bytes = vec![0; object.version().size as usize];
            object.read(0, &mut bytes).unwrap();
            found.insert(path.to_string(), Arc::new(bytes));
        }
    }
    found
}

fn put_all(storage: &dyn Storage, files: &Files) {
    for (name, bytes) in files {
        storage.put(&path(name), bytes, Durability::Process, Condition::None).unwrap();
    }
}

/// A step of a writer.
#[derive(Debug, Clone, Copy)]
enum Act {
    Commit,
    Append,
    Drain,
    /// Writes that no commit contains.
    Flush,
}

/// A killed writer, with its store and tier.
struct Killed {
    name: &'static str,
    store: Files,
    log: Files,
    /// The tier after each commit; the last state is that of the kill.
    tiers: Vec<Files>,
    /// The contents of the array after each number of commits.
    values: Vec<Vec<i32>>,
    /// The end of each segment after each number of commits.
    ends: Vec<BTreeMap<String, u64>>,
}

fn through(tier: &Arc<MemoryStorage>, part_bytes: u64) -> SessionOptions {
    let mut burst = Burst::new(tier.clone(), None);
    (burst.part_bytes, burst.in_background) = (part_bytes, false);
    let mut options = SessionOptions::default();
    (options.burst, options.reach, options.in_background) = (Some(burst), CommitReach::Node, false);
    options
}

/// Returns the segment of a file in the tier, and the file's name.
fn parts_of(file: &str) -> (&str, &str) {
    let (directory, name) = file.rsplit_once('/').unwrap();
    (directory.rsplit_once('/').map_or(directory, |(_, segment)| segment), name)
}

/// Returns the address in the segment at which a part starts.
fn start_of(name: &str) -> Option<u64> {
    name.parse().ok().filter(|_| name.len() == 20)
}

impl Killed {
    fn new(name: &'static str) -> (Self, Arc<MemoryStorage>, Arc<MemoryStorage>) {
        let storage = Arc::new(MemoryStorage::new());
        let store = Store::create(storage.clone(), &Map::new(), options(true)).unwrap();
        store.create_array(&path("t"), &new_array(&form(&[LENGTH], &[4], &[16], ""))).unwrap();
        let mut killed = Self {
            name,
            store: Files::new(),
            log: Files::new(),
            tiers: Vec::new(),
            values: Vec::new(),
            ends: Vec::new(),
        };
        killed.values.push(read(&store.array(&path("t")).unwrap(), &whole(&[LENGTH])).unwrap());
        killed.ends.push(BTreeMap::new());
        (killed, storage, Arc::new(MemoryStorage::new()))
    }

    /// Notes the present state of store and tier.
    fn note(&mut self, storage: &dyn Storage, tier: &dyn Storage, is_commit: bool) {
        self.store = files_of(storage);
        self.log = files_of(&*storage.sibling(".bedform-log").unwrap());
        let tier = files_of(tier);
        if !is_commit {
            self.tiers.pop();
            self.tiers.push(tier);
            return;
        }
        let mut ends = BTreeMap::<String, u64>::new();
        for (file, bytes) in tier.iter().chain(&self.log) {
            let file = format!("/{file}");
            let (segment, name) = parts_of(&file);
            let start = start_of(name).or((name == "data").then_some(0));
            if let Some(start) = start {
                let end = ends.entry(segment.to_owned()).or_default();
                *end = (*end).max(start + bytes.len() as u64);
            }
        }
        self.ends.push(ends);
        self.tiers.push(tier);
    }

    /// Makes one writer, with parts of `part_bytes`.
    fn alone(name: &'static str, part_bytes: u64, acts: &[Act]) -> Self {
        let (mut killed, storage, tier) = Self::new(name);
        let store = Store::open(storage.clone(), options(true)).unwrap();
        let mut session = store.session(Box::new(Alone), through(&tier, part_bytes)).unwrap();
        for act in acts {
            let mut values = killed.values.last().unwrap().clone();
            let value = killed.values.len() as i32;
            match act {
                Act::Commit => write(&mut session, value, 0, Some(&mut values)),
                Act::Flush => {
                    write(&mut session, -value, 0, None);
                    session.flush().unwrap();
                }
                Act::Append => {
                    let new = bytes(&[value; 2]);
                    session.append(&path("t"), 0, &[2], Elements::Bytes(&new)).unwrap();
                    values.extend([value; 2]);
                }
                Act::Drain => {
                    session.drain().unwrap();
                }
            }
            let is_commit = matches!(act, Act::Commit | Act::Append);
            if is_commit {
                session.commit().unwrap();
                killed.values.push(values);
            }
            killed.note(&*storage, &*tier, is_commit);
        }
        killed
    }

    /// Makes two writers, with a segment each.
    fn together(name: &'static str, part_bytes: u64, commits: usize) -> Self {
        let (killed, storage, tier) = Self::new(name);
        let (killed, barrier) = (Mutex::new(killed), Barrier::new(2));
        std::thread::scope(|scope| {
            for member in threads(2) {
                let (storage, tier, killed, barrier) = (&storage, &tier, &killed, &barrier);
                scope.spawn(move || {
                    let rank = member.rank();
                    let store = Store::open(storage.clone(), options(true)).unwrap();
                    let session = store.session(Box::new(member), through(tier, part_bytes));
                    let mut session = session.unwrap();
                    for number in 1..=commits {
                        write(&mut session, number as i32, u64::from(rank), None);
                        session.commit().unwrap();
                        if barrier.wait().is_leader() {
                            let mut killed = killed.lock().unwrap();
                            let mut values = killed.values.last().unwrap().clone();
                            (0..2).for_each(|rank| put(&mut values, number as i32, rank));
                            killed.values.push(values);
                            killed.note(&**storage, &**tier, true);
                        }
                        barrier.wait();
                    }
                    session.close().unwrap();
                });
            }
        });
        killed.into_inner().unwrap()
    }

    fn commits(&self) -> usize {
        self.values.len() - 1
    }

    fn tier(&self) -> &Files {
        self.tiers.last().unwrap()
    }

    /// Returns the number of commits without data from byte `address` of a segment on.
    fn before(&self, segment: &str, address: u64) -> usize {
        let is_before =
            |ends: &&BTreeMap<String, u64>| ends.get(segment).is_none_or(|end| *end <= address);
        self.ends.iter().skip(1).take_while(is_before).count()
    }

    /// Returns the least number of commits that `recover` brings if a file is damaged from byte
    /// `at` on.
    fn least(&self, file: &str, at: u64) -> usize {
        let (segment, name) = parts_of(file);
        start_of(name).map_or(self.commits(), |start| self.before(segment, start + at))
    }
}

/// Returns the index of a write, by its value and the writer's rank.
fn start(value: i32, rank: u64) -> u64 {
    (u64::from(value.unsigned_abs()) * 5 + rank * 24) % (LENGTH - WRITTEN)
}

fn put(values: &mut [i32], value: i32, rank: u64) {
    let start = start(value, rank) as usize;
    values[start..start + WRITTEN as usize].fill(value * 10 + rank as i32);
}

fn write(session: &mut Session, value: i32, rank: u64, values: Option<&mut Vec<i32>>) {
    let elements = bytes(&[value * 10 + rank as i32; WRITTEN as usize]);
    let place = region(&[start(value, rank)], &[WRITTEN]);
    session.write(&path("t"), &place, Elements::Bytes(&elements)).unwrap();
    if let Some(values) = values {
        put(values, value, rank);
    }
}

/// Returns writers that were killed in different ways.
fn killed() -> Vec<Killed> {
    use Act::{Append, Commit, Drain, Flush};
    vec![
        Killed::alone("small parts", 4096, &[Commit; 5]),
        Killed::alone("one part", 1 << 20, &[Commit, Commit, Append, Commit, Flush]),
        Killed::alone("some drained", 8192, &[Commit, Commit, Drain, Commit, Append, Commit]),
        Killed::alone("many promises", 1 << 20, &[Commit; 66]),
        Killed::alone(
            "drained with many",
            16384,
            &[[Commit; 65].as_slice(), &[Drain], &[Commit; 3]].concat(),
        ),
        Killed::together("two writers", 8192, 4),
    ]
}

/// A change of the tier, with the number of commits that survive it.
struct Fault {
    story: String,
    tier: Files,
    least: usize,
}

impl Fault {
    fn new(killed: &Killed, file: &str, at: u64, new: Option<Vec<u8>>, story: String) -> Self {
        let mut tier = killed.tier().clone();
        match new {
            Some(bytes) => tier.insert(file.to_owned(), Arc::new(bytes)),
            None => tier.remove(file),
        };
        let story = format!("{}: {file} {story}", killed.name);
        Self { story, tier, least: killed.least(file, at) }
    }

    fn flip(killed: &Killed, file: &str, bit: u64) -> Self {
        let mut bytes = killed.tier()[file].to_vec();
        bytes[bit as usize / 8] ^= 1 << (bit % 8);
        Self::new(killed, file, bit / 8, Some(bytes), format!("bit {bit} flipped"))
    }

    fn cut(killed: &Killed, file: &str, length: u64) -> Self {
        let bytes = killed.tier()[file][..length as usize].to_vec();
        Self::new(killed, file, length, Some(bytes), format!("cut to {length}"))
    }

    fn extend(killed: &Killed, file: &str, more: &[u8]) -> Self {
        let mut bytes = killed.tier()[file].to_vec();
        let length = bytes.len() as u64;
        bytes.extend_from_slice(more);
        Self::new(killed, file, length, Some(bytes), format!("with {} bytes more", more.len()))
    }

    fn remove(killed: &Killed, file: &str) -> Self {
        Self::new(killed, file, 0, None, "removed".to_owned())
    }

    /// Removes a whole segment, or the whole tier.
    fn remove_all(killed: &Killed, start: &str) -> Self {
        let mut tier = killed.tier().clone();
        tier.retain(|file, _| !file.starts_with(start));
        Self { story: format!("{}: all of {start:?} removed", killed.name), tier, least: 0 }
    }

    /// Replaces `file` by `other`.
    fn replace(killed: &Killed, file: &str, other: &[u8], story: &str) -> Self {
        Self::new(killed, file, 0, Some(other.to_vec()), format!("replaced by {story}"))
    }

    /// Exchanges two files.
    fn exchange(killed: &Killed, one: &str, other: &str) -> Self {
        let mut fault = Self::replace(killed, one, &killed.tier()[other], "");
        fault.tier.insert(other.to_owned(), killed.tier()[one].clone());
        fault.least = fault.least.min(killed.least(other, 0));
        fault.story = format!("{}: {one} and {other} exchanged", killed.name);
        fault
    }
}

/// The store as the writer left it, with a tier of these files.
struct Trial {
    store: Store,
    storage: Arc<MemoryStorage>,
    tier: Arc<MemoryStorage>,
}

impl Trial {
    fn new(killed: &Killed, tier: &Files) -> Self {
        let (storage, fast) = (Arc::new(MemoryStorage::new()), Arc::new(MemoryStorage::new()));
        put_all(&*storage, &killed.store);
        put_all(&*storage.sibling(".bedform-log").unwrap(), &killed.log);
        put_all(&*fast, tier);
        let store = Store::open(storage.clone(), options(true)).unwrap();
        Self { store, storage, tier: fast }
    }

    fn burst(&self) -> Burst {
        Burst::new(self.tier.clone(), None)
    }

    /// Returns the number of visible commits.
    fn visible(&self, killed: &Killed, story: &str) -> usize {
        let store = Store::open(self.storage.clone(), options(false)).unwrap();
        let array = store.array(&path("t")).unwrap();
        let shape = array.shape().unwrap();
        let found = read(&array, &whole(&shape));
        let found = found.unwrap_or_else(|error| panic!("{story}: cannot be read: {error}"));
        // The last match: two commits may leave the same contents.
        let visible = killed.values.iter().rposition(|values| *values == found);
        visible.unwrap_or_else(|| panic!("{story}: {found:?} is not what any commit left"))
    }

    /// Checks whether writes are allowed, with writes that change nothing.
    fn check_begins(&self, may_begin: bool, story: &str) {
        let mut with_tier = through(&self.tier, 4096);
        with_tier.reach = CommitReach::Shared;
        let begun = [SessionOptions::default(), with_tier]
            .map(|options| self.store.session(Box::new(Alone), options).map(drop));
        let array = self.store.array(&path("t")).unwrap();
        let now = read(&array, &whole(&[2])).unwrap();
        let written = array.write(&whole(&[2]), Elements::Bytes(&bytes(&now))).map(drop);
        for outcome in begun.into_iter().chain([written]) {
            match outcome {
                Ok(()) => assert!(may_begin, "{story}: something is written before a decision"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Conflict, "{story}: {error}");
                    assert!(!may_begin, "{story}: nothing can be written: {error}");
                }
            }
        }
    }
}

/// Counts of the outcomes of faults.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    reported: u64,
    harmless: u64,
}

fn judge(killed: &Killed, fault: &Fault, comes_back: bool) -> Counts {
    let Fault { story, tier, least } = fault;
    let trial = Trial::new(killed, tier);
    trial.check_begins(false, story);
    let outcome = trial.store.recover(Some(&trial.burst()), LeftoverPolicy::Keep);
    let visible = trial.visible(killed, story);
    assert!(visible >= *least, "{story}: {visible} commits, {least} are undamaged: {outcome:?}");
    let (is_reported, is_damaged) = match &outcome {
        Ok(done) => (!done.damaged.is_empty() || !done.tiers.is_empty(), !done.damaged.is_empty()),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Conflict, "{story}: {error}");
            (true, false)
        }
    };
    let is_all = visible == killed.commits();
    assert!(is_all || is_reported, "{story}: {visible} commits, and no word of more: {outcome:?}");
    trial.check_begins(!is_reported, story);
    let problems = trial.store.verify(None, &|_, _| ()).unwrap().problems;
    assert_eq!(problems.is_empty(), !is_damaged, "{story}: {outcome:?}, {problems:?}");
    if is_reported && comes_back {
        trial.tier.delete_tree(&ObjectPath::root(), Durability::Process).unwrap();
        put_all(&*trial.tier, killed.tier());
        let again = trial.store.recover(Some(&trial.burst()), LeftoverPolicy::Keep);
        let again = again.unwrap_or_else(|error| panic!("{story}: {error}"));
        assert!(again.damaged.is_empty() && again.tiers.is_empty(), "{story}: {again:?}");
        assert_eq!(trial.visible(killed, story), killed.commits(), "{story}: {again:?}");
    } else {
        let again = trial.store.recover(Some(&trial.burst()), LeftoverPolicy::Keep);
        assert_eq!(trial.visible(killed, story), visible, "{story}");
        let says = |done: &bedform::log::recover::Recovered| done.damaged.clone();
        if let (Ok(outcome), Ok(again)) = (&outcome, &again) {
            assert_eq!(says(outcome).len(), says(again).len(), "{story}: {again:?}");
        }
        let done = trial.store.recover(Some(&trial.burst()), LeftoverPolicy::Discard);
        let done = done.unwrap_or_else(|error| panic!("{story}: cannot be given up: {error}"));
        assert_eq!(trial.visible(killed, story), visible, "{story}: {done:?}");
    }
    let visible = trial.visible(killed, story);
    trial.check_begins(true, story);
    trial.store.settle().unwrap();
    assert_eq!(trial.visible(killed, story), visible, "{story}: settled");
    let problems = trial.store.verify(None, &|_, _| ()).unwrap().problems;
    assert!(problems.is_empty(), "{story}: {problems:?}");
    match is_reported {
        true => Counts { reported: 1, harmless: 0 },
        false => Counts { reported: 0, harmless: 1 },
    }
}

fn judge_all(cases: &[(&Killed, Fault)]) -> Counts {
    let judged = in_parallel(&(0..cases.len()).collect::<Vec<_>>(), |at| {
        judge(cases[*at].0, &cases[*at].1, at % 2 == 0)
    });
    sum(judged.into_iter())
}

fn sum(judged: impl Iterator<Item = Counts>) -> Counts {
    judged.fold(Counts::default(), |sum, one| Counts {
        reported: sum.reported + one.reported,
        harmless: sum.harmless + one.harmless,
    })
}

#[test]
#[ignore = "a stage of make reliability"]
fn an_undamaged_tier_brings_all_that_was_promised() {
    for killed in killed() {
        let fault = Fault {
            story: killed.name.to_owned(),
            tier: killed.tier().clone(),
            least: killed.commits(),
        };
        let counts = judge(&killed, &fault, false);
        assert_eq!(counts.reported, 0, "{}", killed.name);
    }
}

/// Returns the lengths at which a part of a file ends, and lengths near them.
fn lengths(bytes: &[u8]) -> Vec<u64> {
    let size = bytes.len() as u64;
    let mut ends = vec![0, 1, 31, 32, 40, 63, 64, 72, 4095, 4096, 4097, size / 2, size - 1];
    for (start, head) in heads(bytes) {
        let body = start + RecordHead::BYTES as u64;
        ends.extend([start, start + 1, body, body + head.body_bytes / 2, body + head.body_bytes]);
    }
    ends.retain(|length| *length < size);
    ends.sort_unstable();
    ends.dedup();
    // Many records are of the same kind, so only some are cut.
    let step = ends.len().div_ceil(LENGTHS_MAX);
    ends.into_iter().step_by(step).collect()
}

/// Returns the heads of the records that begin in a part.
fn heads(bytes: &[u8]) -> Vec<(u64, RecordHead)> {
    let (mut at, mut found) = (0, Vec::new());
    while at + RecordHead::BYTES <= bytes.len() {
        match RecordHead::decode(&bytes[at..at + RecordHead::BYTES]) {
            Ok(head) => {
                found.push((at as u64, head));
                at += head.record_bytes() as usize;
            }
            Err(_) => at = (at + 1).next_multiple_of(4096),
        }
    }
    found
}

#[test]
#[ignore = "a stage of make reliability"]
fn a_file_of_a_tier_that_was_harmed_as_a_whole_is_reported_or_does_not_matter() {
    let all = killed();
    let mut cases = Vec::new();
    for (killed, others) in all.iter().zip(all.iter().skip(1).chain(&all[..1])) {
        let tier = killed.tier();
        let mut add = |fault| cases.push((killed, fault));
        add(Fault::remove_all(killed, ""));
        let segments: std::collections::BTreeSet<_> =
            tier.keys().map(|file| file.rsplit_once('/').unwrap().0).collect();
        segments.into_iter().for_each(|segment| add(Fault::remove_all(killed, segment)));
        for (file, bytes) in tier {
            add(Fault::remove(killed, file));
            lengths(bytes).into_iter().for_each(|length| add(Fault::cut(killed, file, length)));
            for more in [&[0; 64][..], &[0xa5; 1], &[0xa5; 64], &[0; 8192], &[0xa5; 8192], bytes] {
                add(Fault::extend(killed, file, more));
            }
            for (number, older) in killed.tiers.iter().enumerate() {
                if let Some(older) = older.get(file).filter(|older| *older != bytes) {
                    let story = format!("what it was after commit {}", number + 1);
                    add(Fault::replace(killed, file, older, &story));
                }
            }
            for (other, bytes) in tier.iter().filter(|(other, _)| *other != file) {
                add(Fault::replace(killed, file, bytes, other));
                if other > file {
                    add(Fault::exchange(killed, file, other));
                }
            }
            for (other, bytes) in others.tier() {
                add(Fault::replace(killed, file, bytes, &format!("{} of {}", other, others.name)));
            }
        }
    }
    let counts = judge_all(&cases);
    println!("{counts:?}");
    count("tier-files-harmed", cases.len() as u64);
    assert!(counts.reported > counts.harmless / 4, "{counts:?}");
}

/// The role of a byte in a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Head,
    Header,
    Data,
    Section,
    Directory,
    Padding,
}

fn classes(bytes: &[u8]) -> Vec<Class> {
    let mut classes = vec![Class::Padding; bytes.len()];
    for (start, head) in heads(bytes) {
        let body = start as usize + RecordHead::BYTES;
        classes[start as usize..body].fill(Class::Head);
        let class = match head.kind {
            RecordKind::Header => Class::Header,
            RecordKind::Data => Class::Data,
            RecordKind::Section => Class::Section,
            RecordKind::Directory => Class::Directory,
        };
        let end = bytes.len().min(body + head.body_bytes as usize);
        classes[body..end].fill(class);
    }
    classes
}

#[test]
#[ignore = "a stage of make reliability"]
fn every_byte_of_a_part_is_reported_when_it_changes_or_does_not_matter() {
    let killed = Killed::alone("one part", 1 << 20, &[Act::Commit, Act::Append, Act::Commit]);
    let (file, bytes) =
        killed.tier().iter().find(|(file, _)| start_of(parts_of(file).1).is_some()).unwrap();
    let mut random = Random(7);
    let mut cases = Vec::new();
    let mut by_class = BTreeMap::<Class, u64>::new();
    for (at, class) in classes(bytes).into_iter().enumerate() {
        let step = if class == Class::Padding { 64 } else { 1 };
        if at % step == 0 {
            *by_class.entry(class).or_default() += 1;
            cases.push((&killed, Fault::flip(&killed, file, at as u64 * 8 + random.below(8))));
        }
    }
    println!("{by_class:?}");
    assert!(by_class.len() == 6, "{by_class:?}");
    let counts = judge_all(&cases);
    println!("{counts:?}");
    count("tier-bytes-flipped", cases.len() as u64);
}

#[test]
#[ignore = "a stage of make reliability"]
fn a_tier_that_was_harmed_at_random_is_reported_or_does_not_matter() {
    let all = killed();
    let cases = Cases::new("tiers::a_tier_that_was_harmed_at_random", 100, 28 * all.len() as u64);
    let tried = cases.run(|case| {
        let killed = &all[case.kind(all.len())];
        let mut fault = random_fault(killed, &mut Random(case.seed));
        fault.story = format!("{} ({case:?})", fault.story);
        judge(killed, &fault, case.seed.is_multiple_of(2))
    });
    println!("{:?}", sum(tried.iter().copied()));
    count("tier-damages", tried.len() as u64);
}

fn random_fault(killed: &Killed, random: &mut Random) -> Fault {
    let files: Vec<&String> = killed.tier().keys().collect();
    let file = files[random.below(files.len() as u64) as usize];
    let other = files[random.below(files.len() as u64) as usize];
    let bytes = &killed.tier()[file];
    let size = bytes.len() as u64;
    let older = &killed.tiers[random.below(killed.tiers.len() as u64) as usize];
    match random.below(8) {
        0..=2 if size > 0 => Fault::flip(killed, file, random.below(size * 8)),
        3 if size > 0 => Fault::cut(killed, file, random.below(size)),
        4 => {
            let more = random.below(5000);
            let more: Vec<u8> = (0..more).map(|_| random.next() as u8).collect();
            Fault::extend(killed, file, &more)
        }
        5 => match older.get(file) {
            Some(older) => Fault::replace(killed, file, older, "an older version"),
            None => Fault::remove(killed, file),
        },
        6 => Fault::exchange(killed, file, other),
        _ => Fault::replace(killed, file, &killed.tier()[other], other),
    }
}

/// Tiers of versions without files of promises.
#[test]
#[ignore = "a stage of make reliability"]
fn a_tier_without_files_of_promises_is_recovered_as_before() {
    for killed in killed() {
        let mut tier = killed.tier().clone();
        tier.retain(|file, _| !parts_of(file).1.starts_with("promises-"));
        for (file, bytes) in &mut tier {
            if file.ends_with("STORE.txt") {
                let text = String::from_utf8(bytes.to_vec()).unwrap();
                let lines = text.lines().filter(|line| !line.contains("promises-"));
                let lines: Vec<&str> = lines.collect();
                *bytes = Arc::new(format!("{}\n", lines.join("\n")).into_bytes());
            }
        }
        let story = format!("{}, of an earlier version", killed.name);
        let fault = Fault { story, tier, least: killed.commits() };
        assert_eq!(judge(&killed, &fault, false).reported, 0, "{}", killed.name);
    }
}

#[test]
#[ignore = "a stage of make reliability"]
fn a_report_names_the_commit_the_segment_and_the_byte_in_the_tier() {
    let killed = Killed::alone("small parts", 4096, &[Act::Commit; 4]);
    let second = |class: Class| {
        let files = killed.tier().iter().filter(|(file, _)| start_of(parts_of(file).1).is_some());
        let mut with = files.filter(|(_, bytes)| classes(bytes).contains(&class));
        let (file, bytes) = with.nth(1).unwrap();
        let at = classes(bytes).iter().rposition(|found| *found == class).unwrap();
        (file.clone(), at as u64)
    };
    for class in [Class::Data, Class::Section, Class::Directory] {
        let (file, at) = second(class);
        let fault = Fault::flip(&killed, &file, at * 8);
        let trial = Trial::new(&killed, &fault.tier);
        let done = trial.store.recover(Some(&trial.burst()), LeftoverPolicy::Keep).unwrap();
        let [line] = &done.damaged[..] else { panic!("{done:?}") };
        let (segment, name) = parts_of(&file);
        let says = ["commit of epoch 2 of session", segment, name, "2 later commits", "at byte"];
        assert!(says.iter().all(|part| line.contains(part)), "{class:?}: {line}");
        assert_eq!(done.completed, 1);
        assert_eq!(trial.visible(&killed, "report"), 1);
        let given_up = trial.store.recover(None, LeftoverPolicy::Discard).unwrap();
        assert_eq!((given_up.given_up, given_up.damaged.len()), (3, 1));
    }
}
