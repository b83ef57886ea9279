//! Every kind of write in a session, compared with lists: boxes, declared boxes, held data, growth,
//! appends.

use std::sync::Arc;

use bedform::comm::{Alone, Communicator as _, threads};
use bedform::log::recover::{LeftoverPolicy, Recovered};
use bedform::log::session::{Burst, CommitReach, Decomposition, Session, SessionOptions};
use bedform::{Elements, ErrorKind, Growth, NewArray, Store, append_with};
use bedform_format::log::Boxes;
use bedform_format::{DataType, ObjectPath};
use bedform_geometry::{AxisRange, AxisSelection, Region, Selection};
use bedform_storage::{Failing, Fault, MemoryStorage, Storage, StorageErrorKind, StorageOperation};
use proptest::prelude::*;

use super::arrays::{model_of, path, read};
use super::cases;
use super::model::{Element, Model, Numbers};
use super::sessions::{bytes_array, create, open};
use super::strategies::{new_array, selection};

const TYPES: [DataType; 3] = [DataType::UInt8, DataType::Int16, DataType::Float64];

#[derive(Debug, Clone, Copy)]
enum Step {
    Write,
    Held,
    Boxes,
    Declared,
    Resize,
    Append,
    Wait,
    Flush,
    Commit,
    Drain,
    Forget,
    Settle,
    LeftBehind,
}

const STEPS: [Step; 13] = [
    Step::Write,
    Step::Held,
    Step::Boxes,
    Step::Declared,
    Step::Resize,
    Step::Append,
    Step::Wait,
    Step::Flush,
    Step::Commit,
    Step::Drain,
    Step::Forget,
    Step::Settle,
    Step::LeftBehind,
];

struct Twins {
    store: Store,
    session: Session,
    declared: Vec<(Decomposition, Vec<Region>)>,
    data_type: DataType,
    /// The committed elements, and the elements after the next commit.
    committed: Model,
    next: Model,
    burst: Option<(Burst, CommitReach)>,
    /// False while a promised commit may or may not be visible.
    is_known: bool,
}

impl Twins {
    fn new(
        storage: &Arc<dyn Storage>,
        new: &NewArray,
        burst: Option<(Burst, CommitReach)>,
    ) -> Self {
        create(storage, new);
        let store = open(storage, true);
        let session = store.session(Box::new(Alone), options(burst.as_ref())).unwrap();
        let (data_type, committed) = (new.data_type, model_of(new));
        let (declared, next, is_known) = (Vec::new(), committed.clone(), true);
        Self { store, session, declared, data_type, committed, next, burst, is_known }
    }

    fn take(&mut self, step: Step, numbers: &mut Numbers) {
        match step {
            Step::Write | Step::Held => {
                let selection = selection(&self.next.shape, numbers);
                let elements = numbers.elements(self.data_type, selection.len().unwrap());
                let bytes = elements.concat();
                if matches!(step, Step::Write) {
                    self.session.write(&path(), &selection, Elements::Bytes(&bytes)).unwrap();
                } else {
                    self.session.write_held(&path(), &selection, Box::new(bytes)).unwrap();
                }
                self.next.write(&selection, &elements);
            }
            Step::Boxes => {
                let Some(regions) = regions_in(&self.next.shape, numbers) else { return };
                let selection = Selection::Union(regions.clone());
                let elements = numbers.elements(self.data_type, selection.len().unwrap());
                let boxes = boxes_of(&regions);
                self.session.write_boxes(&path(), boxes, &elements.concat()).unwrap();
                self.next.write(&selection, &elements);
            }
            Step::Declared => self.write_declared(numbers),
            Step::Resize => {
                let mut shape = self.next.shape.clone();
                shape.iter_mut().for_each(|length| *length += numbers.below(3));
                self.session.resize(&path(), &shape).unwrap();
                self.next.resize(&shape);
            }
            Step::Append => self.append(numbers),
            Step::Wait => {
                let all = Selection::all(&self.next.shape);
                let token = self.session.write(&path(), &all, bytes_of(&self.next.elements));
                self.session.wait(token.unwrap()).unwrap();
            }
            Step::Flush => self.session.flush().unwrap(),
            Step::Commit => {
                if numbers.below(2) == 0 {
                    self.session.commit_begin().unwrap();
                    let all = Selection::all(&self.next.shape);
                    let refused = self.session.write(&path(), &all, bytes_of(&self.next.elements));
                    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
                    assert!(self.session.commit_begin().is_err());
                    let refused = self.session.drain().unwrap_err();
                    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
                }
                self.session.commit_wait().unwrap();
                self.committed = self.next.clone();
                self.is_known = !matches!(self.burst, Some((_, CommitReach::Node)));
            }
            Step::Drain => self.drain(),
            Step::Forget => {
                self.next = self.committed.clone();
                self.declared.clear();
                let options = options(self.burst.as_ref());
                // Promises of the old session remain valid.
                self.session = self.store.session(Box::new(Alone), options).unwrap();
                self.is_known = true;
            }
            Step::Settle => drop(self.store.settle().unwrap()),
            Step::LeftBehind => self.leave_behind(),
        }
        self.check();
    }

    fn write_declared(&mut self, numbers: &mut Numbers) {
        let Some(inner) = self.next.shape.get(1..) else { return };
        if self.declared.is_empty() || numbers.below(3) == 0 {
            let Some(regions) = regions_in(inner, numbers) else { return };
            let declared = self.session.declare(boxes_of(&regions)).unwrap();
            self.declared.push((declared, regions));
        }
        let which = usize::try_from(numbers.below(self.declared.len() as u64)).unwrap();
        let (declared, regions) = self.declared[which].clone();
        let records = self.next.shape[0];
        if records == 0 {
            return;
        }
        let record = numbers.below(records);
        let whole = regions.iter().map(|region| {
            let start = [&[record], region.start()].concat();
            Region::new(start, [&[1], region.shape()].concat()).unwrap()
        });
        let selection = Selection::Union(whole.collect());
        let elements = numbers.elements(self.data_type, selection.len().unwrap());
        let bytes = elements.concat();
        let record = Some(record);
        if numbers.below(2) == 0 {
            self.session.write_declared(&path(), record, declared, &bytes).unwrap();
        } else {
            let held = Box::new(bytes);
            self.session.write_declared_held(&path(), record, declared, held).unwrap();
        }
        self.next.write(&selection, &elements);
    }

    fn append(&mut self, numbers: &mut Numbers) {
        if self.next.shape.is_empty() {
            return;
        }
        let axis = usize::try_from(numbers.below(self.next.shape.len() as u64)).unwrap();
        let mut part = self.next.shape.clone();
        part[axis] = numbers.below(4);
        let elements = numbers.elements(self.data_type, part.iter().product());
        let start = self.session.append(&path(), axis, &part, bytes_of(&elements)).unwrap();
        assert_eq!(start, self.next.shape[axis]);
        let mut corner = vec![0; part.len()];
        corner[axis] = start;
        let mut shape = part.clone();
        shape[axis] += start;
        self.next.resize(&shape);
        self.next.write(&Selection::from(Region::new(corner, part).unwrap()), &elements);
    }

    fn drain(&mut self) {
        self.session.drain().unwrap();
        self.is_known = true;
    }

    /// Starts a failing append of another writer: it leaves elements beyond the end that must stay
    /// invisible.
    fn leave_behind(&mut self) {
        if self.committed.shape.is_empty() {
            return;
        }
        self.drain();
        let array = self.store.array(&path()).unwrap();
        let growth = Growth { array: &array, axis: 0, length: 3 };
        let outcome = append_with(&[growth], &mut |shapes| {
            let grown = self.store.grown(&path(), &shapes[0])?;
            let all = Selection::all(&shapes[0]);
            let bytes = usize::try_from(grown.result_bytes(&all)?).unwrap();
            let mut old = vec![0x77; bytes];
            let kept = Selection::all(&self.committed.shape);
            let count = usize::try_from(grown.result_bytes(&kept)?).unwrap();
            // Along the first axis, so the old elements come first in C order.
            grown.read(&kept, &mut old[..count])?;
            grown.write(&all, Elements::Bytes(&old))?;
            Err(bedform::Error::new(ErrorKind::Io, "somebody pulled the plug"))
        });
        assert!(outcome.is_err());
    }

    fn check(&self) {
        if !self.is_known {
            return;
        }
        let array = self.store.array(&path()).unwrap();
        assert_eq!(array.shape().unwrap(), self.committed.shape);
        let all = Selection::all(&self.committed.shape);
        assert_eq!(read(&array, self.data_type, &all), self.committed.elements);
    }
}

fn options(burst: Option<&(Burst, CommitReach)>) -> SessionOptions {
    let mut options = SessionOptions::default();
    if let Some((burst, reach)) = burst {
        (options.burst, options.reach) = (Some(burst.clone()), *reach);
    }
    options
}

/// A burst tier with parts of 4 KiB, and a capacity of two parts.
fn burst(storage: &Arc<dyn Storage>) -> Burst {
    let mut burst = Burst::new(storage.clone(), Some(8192));
    burst.part_bytes = 4096;
    burst
}

fn bytes_of(elements: &[Element]) -> Elements<'static> {
    Elements::Bytes(elements.concat().leak())
}

fn boxes_of(regions: &[Region]) -> Boxes {
    let starts = regions.iter().flat_map(|region| region.start().iter().copied()).collect();
    let shapes = regions.iter().flat_map(|region| region.shape().iter().copied()).collect();
    match regions[0].rank() {
        0 => Boxes::without_axes(regions.len()),
        rank => Boxes::new(rank, starts, shapes).unwrap(),
    }
}

/// Returns one to three nonempty boxes; `None` in an empty shape.
fn regions_in(shape: &[u64], numbers: &mut Numbers) -> Option<Vec<Region>> {
    if shape.contains(&0) {
        return None;
    }
    let one = |numbers: &mut Numbers| {
        let start: Vec<u64> = shape.iter().map(|length| numbers.below(*length)).collect();
        let sides = start.iter().zip(shape);
        let sides: Vec<u64> = sides.map(|(at, length)| 1 + numbers.below(length - at)).collect();
        Region::new(start, sides).unwrap()
    };
    Some((0..=numbers.below(3)).map(|_| one(numbers)).collect())
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn whatever_a_session_takes_is_what_a_list_holds_after_each_commit_and_not_before(
        new in new_array(&TYPES),
        steps in prop::collection::vec((prop::sample::select(&STEPS[..]), any::<u64>()), 0..16),
        reach in prop::option::of(prop::sample::select(&[CommitReach::Shared, CommitReach::Node][..])),
        is_remote in proptest::bool::weighted(0.25),
    ) {
        let storage = crate::place(is_remote);
        let fast: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let mut twins = Twins::new(&storage, &new, reach.map(|reach| (burst(&fast), reach)));
        for (step, seed) in steps {
            twins.take(step, &mut Numbers(seed));
        }
        twins.take(Step::Commit, &mut Numbers(0));
        twins.take(Step::Drain, &mut Numbers(0));
        twins.take(Step::Settle, &mut Numbers(0));
        let array = twins.store.array(&path()).unwrap();
        prop_assert_eq!(array.verify().unwrap(), Vec::<String>::new());
        drop(twins.session);
        twins.store.settle().unwrap();
        let root = ObjectPath::root();
        prop_assert!(storage.sibling(".bedform-log").unwrap().list(&root).unwrap().is_empty());
        for store in fast.list(&root).unwrap() {
            let directory = root.join(&store.name).unwrap();
            prop_assert!(fast.list(&directory).unwrap().is_empty());
        }
    }
}

/// A faulty storage, with a faultless burst tier.
fn with_faults() -> (Arc<Failing<MemoryStorage>>, Store, Burst) {
    let storage = Arc::new(Failing::new(MemoryStorage::new()));
    let shared: Arc<dyn Storage> = storage.clone();
    create(&shared, &bytes_array());
    let fast: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let store = open(&shared, true);
    (storage, store, burst(&fast))
}

fn contents(store: &Store) -> Vec<u8> {
    let array = store.array(&path()).unwrap();
    let shape = array.shape().unwrap();
    read(&array, DataType::UInt8, &Selection::all(&shape)).concat()
}

#[test]
fn what_a_burst_tier_has_promised_is_brought_about_after_its_writer_has_died() {
    for fault in
        [StorageOperation::Grow, StorageOperation::AppendGrowing, StorageOperation::SyncGrowing]
    {
        for promises in [1_u8, 3] {
            let (storage, store, burst) = with_faults();
            let node = (burst.clone(), CommitReach::Node);
            let mut session = store.session(Box::new(Alone), options(Some(&node))).unwrap();
            // The log becomes unreachable later, or is so from the start.
            storage.fail_at(fault, 0, Fault::Error(StorageErrorKind::Io));
            let mut promised = 0;
            for value in 1..=promises {
                session.resize(&path(), &[64 + u64::from(value)]).unwrap();
                let all = Selection::all(&[64 + u64::from(value)]);
                let bytes = vec![value; 64 + usize::from(value)];
                let written = session.write(&path(), &all, Elements::Bytes(&bytes));
                // The writer may get an error of draining; then it has promised no more.
                if written.and_then(|_| session.commit()).is_err() {
                    break;
                }
                promised += 1;
                if value == 1 {
                    assert_eq!(contents(&store), [0; 64]);
                }
            }
            // A further write that is never committed.
            let _ = session.write(&path(), &Selection::all(&[64]), Elements::Bytes(&[9; 64]));
            drop(session);
            // The earlier promise would cover a write made now.
            match store.session(Box::new(Alone), options(Some(&node))) {
                Ok(_) => assert_eq!(promised, 0),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                    assert!(error.to_string().contains("bedform recover"), "{error}");
                }
            }
            // A session without the tier gets a conflict if the log names the tier, and removes no
            // data.
            let refused = store.session(Box::new(Alone), SessionOptions::default()).err();
            let blind = store.recover(None, LeftoverPolicy::Commit).unwrap();
            assert_eq!(blind.completed, 0);
            let expected = (!blind.tiers.is_empty()).then_some(ErrorKind::Conflict);
            assert_eq!(refused.map(|error| error.kind()), expected);
            if fault == StorageOperation::AppendGrowing {
                let [tier] = &blind.tiers[..] else { panic!("{blind:?}") };
                assert!(tier.starts_with("memory on node "), "{tier}");
            }
            store.settle().unwrap();
            let found = store.recover(Some(&burst), LeftoverPolicy::Keep).unwrap();
            drop(store.session(Box::new(Alone), options(Some(&node))).unwrap());
            assert!(found.completed >= promised && found.drained_bytes > 0, "{found:?}");
            // If a segment cannot begin durably, the writer hears of it before it promises
            // anything, or the promise is kept.
            assert!(found.completed >= 1 || fault != StorageOperation::AppendGrowing, "{found:?}");
            let kept = u8::try_from(found.completed).unwrap();
            let rows = if kept == 0 { 64 } else { 64 + usize::from(kept) };
            assert_eq!(contents(&store), vec![kept; rows]);
            let again = store.recover(Some(&burst), LeftoverPolicy::Discard).unwrap();
            assert_eq!((again.completed, again.drained_bytes), (0, 0));
            assert!(again.tiers.is_empty(), "{again:?}");
            store.settle().unwrap();
            assert_eq!(contents(&store), vec![kept; rows]);
        }
    }
}

#[test]
fn what_a_writer_leaves_that_fails_stays_until_somebody_decides() {
    for leftover in [LeftoverPolicy::Commit, LeftoverPolicy::Discard] {
        let (storage, store, _) = with_faults();
        let start = || store.session(Box::new(Alone), SessionOptions::default()).unwrap();
        let mut session = start();
        let all = Selection::all(&[64]);
        session.write(&path(), &all, Elements::Bytes(&[1; 64])).unwrap();
        session.commit().unwrap();
        session.write(&path(), &all, Elements::Bytes(&[2; 64])).unwrap();
        session.flush().unwrap();
        storage.fail_at(
            StorageOperation::AppendGrowing,
            0,
            Fault::Error(StorageErrorKind::NoSpace),
        );
        session.write(&path(), &all, Elements::Bytes(&[3; 64])).unwrap();
        let error = session.commit().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        drop(session);
        assert_eq!(contents(&store), [1; 64]);
        // Settling and other sessions leave it in place.
        let mut other = start();
        other.write(&path(), &Selection::all(&[64]), Elements::Bytes(&[4; 64])).unwrap();
        other.commit().unwrap();
        drop(other);
        store.settle().unwrap();
        assert_eq!(contents(&store), [4; 64]);
        let found = store.recover(None, LeftoverPolicy::Keep).unwrap();
        let [one] = &found.found[..] else { panic!("{found:?}") };
        assert_eq!((one.rank, one.writes, one.bytes), (0, 1, 64));
        assert_eq!(one.arrays, [path().to_string()]);
        let done = store.recover(None, leftover).unwrap();
        let expected = if leftover == LeftoverPolicy::Commit { (1, 2) } else { (0, 4) };
        assert_eq!(done.committed, expected.0);
        assert_eq!(contents(&store), [expected.1; 64]);
        let nothing = store.recover(None, LeftoverPolicy::Keep).unwrap();
        assert_eq!(nothing.found, []);
        store.settle().unwrap();
        assert_eq!(contents(&store), [expected.1; 64]);
        let log = storage.sibling(".bedform-log").unwrap();
        assert!(log.list(&ObjectPath::root()).unwrap().is_empty());
    }
}

/// Leaves a session with the uncommitted `write`.
fn leave(storage: &Failing<MemoryStorage>, store: &Store, write: impl FnOnce(&mut Session)) {
    let mut session = store.session(Box::new(Alone), SessionOptions::default()).unwrap();
    write(&mut session);
    session.flush().unwrap();
    storage.fail_at(StorageOperation::SyncGrowing, 0, Fault::Error(StorageErrorKind::NoSpace));
    assert!(session.commit().is_err());
}

#[test]
fn what_a_writer_has_appended_and_left_is_committed_only_where_nobody_has_appended_since() {
    let append = |session: &mut Session, bytes: &[u8]| {
        let count = bytes.len() as u64;
        session.append(&path(), 0, &[count], Elements::Bytes(bytes)).unwrap();
    };
    let leave_rows = |storage: &Failing<MemoryStorage>, store: &Store| {
        leave(storage, store, |session| {
            append(session, &[2; 3]);
            append(session, &[3; 2]);
        });
    };
    let (storage, store, _) = with_faults();
    leave_rows(&storage, &store);
    assert_eq!(contents(&store), [0; 64]);
    assert_eq!(store.recover(None, LeftoverPolicy::Commit).unwrap().committed, 1);
    assert_eq!(contents(&store), [&[0; 64][..], &[2; 3], &[3; 2]].concat());

    let (storage, store, _) = with_faults();
    leave_rows(&storage, &store);
    // Growth without an append conflicts with no other writer.
    leave(&storage, &store, |session| {
        session.resize(&path(), &[65]).unwrap();
        session.write(&path(), &Selection::all(&[65]), Elements::Bytes(&[1; 65])).unwrap();
    });
    let mut other = store.session(Box::new(Alone), SessionOptions::default()).unwrap();
    append(&mut other, &[9; 4]);
    other.commit().unwrap();
    drop(other);
    let expected = [&[1; 65][..], &[9; 3]].concat();
    for _ in 0..2 {
        let error = store.recover(None, LeftoverPolicy::Commit).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(error.to_string().contains("can only be discarded"), "{error}");
        assert_eq!(contents(&store), expected);
    }
    let recover = |leftover| store.recover(None, leftover).unwrap();
    assert_eq!(recover(LeftoverPolicy::Keep).found.len(), 1);
    assert_eq!(recover(LeftoverPolicy::Discard).committed, 0);
    store.settle().unwrap();
    assert_eq!(contents(&store), expected);
    assert_eq!(recover(LeftoverPolicy::Keep), Recovered::default());
}

#[test]
fn what_a_session_that_ends_in_good_order_did_not_commit_is_gone() {
    let (_, store, _) = with_faults();
    let mut session = store.session(Box::new(Alone), SessionOptions::default()).unwrap();
    session.write(&path(), &Selection::all(&[64]), Elements::Bytes(&[2; 64])).unwrap();
    session.flush().unwrap();
    drop(session);
    let found = store.recover(None, LeftoverPolicy::Keep).unwrap();
    assert_eq!(found, Recovered::default());
    assert_eq!(contents(&store), [0; 64]);
}

#[test]
fn a_writer_that_lives_is_not_recovered() {
    let (_, store, burst) = with_faults();
    let node = (burst.clone(), CommitReach::Node);
    let mut session = store.session(Box::new(Alone), options(Some(&node))).unwrap();
    session.write(&path(), &Selection::all(&[64]), Elements::Bytes(&[2; 64])).unwrap();
    session.flush().unwrap();
    let found = store.recover(Some(&burst), LeftoverPolicy::Commit).unwrap();
    assert!(found.live > 0 && found.found.is_empty(), "{found:?}");
    session.commit().unwrap();
    session.drain().unwrap();
    assert_eq!(contents(&store), [2; 64]);
}

#[test]
fn a_promise_to_append_where_others_have_is_a_conflict_until_it_is_given_up() {
    let (_, store, burst) = with_faults();
    let mut promising =
        store.session(Box::new(Alone), options(Some(&(burst.clone(), CommitReach::Node)))).unwrap();
    promising.append(&path(), 0, &[2], Elements::Bytes(&[2; 2])).unwrap();
    promising.commit().unwrap();
    let mut other = store.session(Box::new(Alone), SessionOptions::default()).unwrap();
    other.append(&path(), 0, &[1], Elements::Bytes(&[9])).unwrap();
    other.commit().unwrap();
    drop(other);
    let expected = [&[0; 64][..], &[9]].concat();
    assert_eq!(promising.drain().unwrap_err().kind(), ErrorKind::Conflict);
    drop(promising);
    for _ in 0..2 {
        let error = store.recover(Some(&burst), LeftoverPolicy::Keep).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(error.to_string().contains("--discard"), "{error}");
        assert_eq!(contents(&store), expected);
    }
    let done = store.recover(Some(&burst), LeftoverPolicy::Discard).unwrap();
    assert_eq!((done.completed, done.given_up), (0, 1));
    drop(store.session(Box::new(Alone), SessionOptions::default()).unwrap());
    store.settle().unwrap();
    assert_eq!(contents(&store), expected);
}

#[test]
fn a_tier_that_returns_after_its_promises_were_given_up_and_forgotten_brings_nothing() {
    let (storage, store, burst) = with_faults();
    let node = (burst.clone(), CommitReach::Node);
    let mut session = store.session(Box::new(Alone), options(Some(&node))).unwrap();
    storage.fail_at(StorageOperation::AppendGrowing, 0, Fault::Error(StorageErrorKind::Io));
    session.write(&path(), &Selection::all(&[64]), Elements::Bytes(&[2; 64])).unwrap();
    session.commit().unwrap();
    drop(session);
    // The node of the tier is down.
    assert_eq!(store.recover(None, LeftoverPolicy::Discard).unwrap().tiers.len(), 1);
    let mut other = store.session(Box::new(Alone), SessionOptions::default()).unwrap();
    other.write(&path(), &Selection::all(&[64]), Elements::Bytes(&[9; 64])).unwrap();
    other.commit().unwrap();
    drop(other);
    store.settle().unwrap();
    store.settle().unwrap();
    let done = store.recover(Some(&burst), LeftoverPolicy::Keep).unwrap();
    assert_eq!(done, Recovered::default());
    assert_eq!(contents(&store), [9; 64]);
    drop(store.session(Box::new(Alone), options(Some(&node))).unwrap());
}

#[test]
fn without_a_tier_there_is_nothing_to_promise() {
    let (_, store, _) = with_faults();
    let mut options = SessionOptions::default();
    options.reach = CommitReach::Node;
    let mut session = store.session(Box::new(Alone), options).unwrap();
    session.write(&path(), &Selection::all(&[64]), Elements::Bytes(&[2; 64])).unwrap();
    assert_eq!(session.commit().unwrap(), 1);
    assert_eq!(contents(&store), [2; 64]);
}

#[test]
fn what_members_append_together_follows_each_other_by_rank() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    create(&storage, &bytes_array());
    std::thread::scope(|scope| {
        for member in threads(3) {
            let storage = &storage;
            scope.spawn(move || {
                let rank = u8::try_from(member.rank()).unwrap();
                let store = open(storage, true);
                let mut session =
                    store.session(Box::new(member), SessionOptions::default()).unwrap();
                for step in 0..2_u8 {
                    let mine = vec![10 * (step + 1) + rank; usize::from(rank)];
                    let shape = [u64::from(rank)];
                    let start = session.append(&path(), 0, &shape, Elements::Bytes(&mine)).unwrap();
                    let before = [0, 0, 1][usize::from(rank)];
                    assert_eq!(start, 64 + 3 * u64::from(step) + before);
                }
                session.commit().unwrap();
            });
        }
    });
    let array = open(&storage, false).array(&path()).unwrap();
    let expected = [vec![0; 64], vec![11, 12, 12, 21, 22, 22]].concat();
    assert_eq!(read(&array, DataType::UInt8, &Selection::all(&[70])).concat(), expected);
}

#[test]
fn of_two_sessions_that_append_at_once_the_second_is_told_and_nothing_is_lost() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    create(&storage, &bytes_array());
    let store = open(&storage, true);
    let session = || store.session(Box::new(Alone), SessionOptions::default()).unwrap();
    let (mut first, mut second) = (session(), session());
    assert_eq!(first.append(&path(), 0, &[2], Elements::Bytes(&[1, 1])).unwrap(), 64);
    assert_eq!(second.append(&path(), 0, &[1], Elements::Bytes(&[2])).unwrap(), 64);
    first.commit().unwrap();
    let error = second.commit().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    // The session's writes are lost, so a second commit must not succeed.
    for again in [second.commit(), second.append(&path(), 0, &[1], Elements::Bytes(&[2]))] {
        let error = again.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
        assert!(error.to_string().contains("was refused"), "{error}");
    }
    let mut second = session();
    assert_eq!(second.append(&path(), 0, &[1], Elements::Bytes(&[2])).unwrap(), 66);
    second.commit().unwrap();
    store.array(&path()).unwrap().append(0, &[1], Elements::Bytes(&[3])).unwrap();
    assert_eq!(first.append(&path(), 0, &[1], Elements::Bytes(&[4])).unwrap(), 68);
    first.commit().unwrap();
    let array = store.array(&path()).unwrap();
    let tail = Region::new(vec![64], vec![5]).unwrap();
    let found = read(&array, DataType::UInt8, &Selection::from(tail)).concat();
    assert_eq!(found, [1, 1, 2, 3, 4]);
}

#[test]
fn what_does_not_fit_is_refused_and_the_session_goes_on() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    create(&storage, &bytes_array());
    let store = open(&storage, true);
    let mut session = store.session(Box::new(Alone), SessionOptions::default()).unwrap();
    let boxes = |start: u64, length: u64| Boxes::one(&[start], &[length]).unwrap();
    let kind = |outcome: bedform::Result<()>| outcome.unwrap_err().kind();
    let beyond = session.write_boxes(&path(), boxes(60, 5), &[1; 5]).map(drop);
    assert_eq!(kind(beyond), ErrorKind::OutOfBounds);
    let short = session.write_boxes(&path(), boxes(0, 5), &[1; 4]).map(drop);
    assert_eq!(kind(short), ErrorKind::InvalidArgument);
    let smaller = session.resize(&path(), &[63]);
    assert_eq!(kind(smaller), ErrorKind::InvalidArgument);
    let declared = session.declare(boxes(60, 8)).unwrap();
    for (record, expected) in [
        (None, ErrorKind::OutOfBounds),
        (Some(64), ErrorKind::OutOfBounds),
        (Some(0), ErrorKind::InvalidArgument),
    ] {
        let beyond = session.write_declared(&path(), record, declared, &[1; 8]).map(drop);
        assert_eq!(kind(beyond), expected);
    }
    let unknown = Decomposition::from_number(7);
    let unknown = session.write_declared(&path(), None, unknown, &[1; 8]).map(drop);
    assert_eq!(kind(unknown), ErrorKind::InvalidArgument);
    session.resize(&path(), &[68]).unwrap();
    session.write_declared(&path(), None, declared, &[1; 8]).unwrap();
    session.commit().unwrap();
    let array = store.array(&path()).unwrap();
    let found = read(&array, DataType::UInt8, &Selection::all(&[68])).concat();
    assert_eq!(found, [vec![0; 60], vec![1; 8]].concat());
}

#[test]
fn what_a_failed_append_left_behind_is_never_seen_in_a_session_that_grows() {
    let mut new = bytes_array();
    new.shape = vec![4];
    for (chunk, shard) in [(1, 1), (2, 4), (4, 16), (3, 3)] {
        (new.layout.chunk_shape, new.layout.shard_shape) = (vec![chunk], vec![shard]);
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let mut twins = Twins::new(&storage, &new, None);
        twins.leave_behind();
        let mut session = twins.store.session(Box::new(Alone), options(None)).unwrap();
        session.resize(&path(), &[6]).unwrap();
        session.write_boxes(&path(), Boxes::one(&[4], &[1]).unwrap(), &[7]).unwrap();
        session.commit().unwrap();
        assert_eq!(contents(&twins.store), [0, 0, 0, 0, 7, 0], "{chunk} {shard}: committed");
        twins.store.settle().unwrap();
        assert_eq!(contents(&twins.store), [0, 0, 0, 0, 7, 0], "{chunk} {shard}: settled");
    }
}

fn line(start: u64, length: u64) -> Selection {
    let range = AxisRange::contiguous(start, length).unwrap();
    Selection::Orthogonal(vec![AxisSelection::Range(range)])
}

#[test]
fn arrays_of_a_session_are_written_at_once_by_all_members_and_appear_with_the_commit() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    create(&storage, &bytes_array());
    let names = ["g/a", "b", "c", "d", "e"].map(|name| ObjectPath::parse(name).unwrap());
    std::thread::scope(|scope| {
        for member in threads(3) {
            let (storage, names) = (&storage, &names);
            scope.spawn(move || {
                let rank = u8::try_from(member.rank()).unwrap();
                let store = open(storage, true);
                let mut session =
                    store.session(Box::new(member), SessionOptions::default()).unwrap();
                let taken = [(names[1].clone(), bytes_array()), (path(), bytes_array())];
                let refused = session.create_arrays(if rank == 0 { &taken } else { &[] });
                assert_eq!(refused.unwrap_err().kind(), ErrorKind::Exists);
                let new = names.clone().map(|name| (name, bytes_array()));
                session.create_arrays(if rank == 0 { &new } else { &[] }).unwrap();
                for name in names {
                    let mine = line(u64::from(rank) * 10, 10);
                    session.write(name, &mine, Elements::Bytes(&[rank + 1; 10])).unwrap();
                }
                let start = session.append(&names[0], 0, &[1], Elements::Bytes(&[9])).unwrap();
                assert_eq!(start, 64 + u64::from(rank));
                session.resize(&names[1], &[70]).unwrap();
                let end = line(69, 1);
                session.write(&names[1], &end, Elements::Bytes(&[8])).unwrap();
                assert!(store.array(&names[1]).is_err(), "it is seen before the commit");
                session.commit().unwrap();
                let again = line(40, 1);
                session.write(&names[2], &again, Elements::Bytes(&[rank])).unwrap();
                session.commit().unwrap();
            });
        }
    });
    let store = open(&storage, false);
    let all = |name: &ObjectPath, length: u64| {
        let array = store.array(name).unwrap();
        read(&array, DataType::UInt8, &Selection::all(&[length])).concat()
    };
    let written = [[1; 10], [2; 10], [3; 10]].concat();
    let expected = |changes: &[(usize, u8)], length: usize| {
        let mut expected = written.clone();
        expected.resize(length, 0);
        changes.iter().for_each(|(at, value)| expected[*at] = *value);
        expected
    };
    assert_eq!(all(&names[0], 67), expected(&[(64, 9), (65, 9), (66, 9)], 67));
    assert_eq!(all(&names[1], 70), expected(&[(69, 8)], 70));
    assert_eq!(all(&names[2], 64), expected(&[(40, 2)], 64));
    assert_eq!(all(&names[4], 64), expected(&[], 64));
}

#[test]
fn arrays_of_a_session_that_ends_without_a_commit_leave_nothing() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    create(&storage, &bytes_array());
    let store = open(&storage, true);
    let names = ["a", "b", "c", "d"].map(|name| ObjectPath::parse(name).unwrap());
    let new = names.clone().map(|name| (name, bytes_array()));
    let mut session = store.session(Box::new(Alone), SessionOptions::default()).unwrap();
    session.create_arrays(&new).unwrap();
    session.leave();
    assert!(storage.list(&names[0]).unwrap().is_empty());
    store.create_arrays(&new).unwrap();
}

#[test]
fn of_two_that_create_an_array_at_once_the_session_is_told() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    create(&storage, &bytes_array());
    let (store, other) = (open(&storage, true), open(&storage, true));
    let names = ["a", "b", "c", "d"].map(|name| ObjectPath::parse(name).unwrap());
    let new = names.clone().map(|name| (name, bytes_array()));
    let mut session = store.session(Box::new(Alone), SessionOptions::default()).unwrap();
    session.create_arrays(&new).unwrap();
    session.write(&names[0], &Selection::all(&[64]), Elements::Bytes(&[1; 64])).unwrap();
    // Uncommitted arrays of a session do not bind others. Both creations may be in progress.
    while other.create_arrays(&new[..1]).is_err() {}
    let error = session.commit().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Exists), "{error}");
    assert!(error.to_string().contains('a'), "{error}");
    drop(session);
    let array = store.array(&names[0]).unwrap();
    assert_eq!(read(&array, DataType::UInt8, &Selection::all(&[64])).concat(), [0; 64]);
    assert_eq!(store.nodes().unwrap().len(), 3, "{:?}", store.nodes());
}
