//! Everything that a session takes, against lists: boxes, declared boxes, held data, growing, appending.

use std::sync::Arc;

use bedform::comm::{Alone, Communicator as _, threads};
use bedform::log::session::{Decomposition, Session, SessionOptions};
use bedform::{Elements, ErrorKind, Growth, NewArray, Store, append_with};
use bedform_format::DataType;
use bedform_format::log::Boxes;
use bedform_geometry::{Region, Selection};
use bedform_storage::{MemoryStorage, Storage};
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
    Forget,
    Settle,
    LeftBehind,
}

const STEPS: [Step; 12] = [
    Step::Write,
    Step::Held,
    Step::Boxes,
    Step::Declared,
    Step::Resize,
    Step::Append,
    Step::Wait,
    Step::Flush,
    Step::Commit,
    Step::Forget,
    Step::Settle,
    Step::LeftBehind,
];

struct Twins {
    store: Store,
    session: Session,
    declared: Vec<(Decomposition, Vec<Region>)>,
    data_type: DataType,
    /// What is committed, and what will be.
    committed: Model,
    next: Model,
}

impl Twins {
    fn new(storage: &Arc<dyn Storage>, new: &NewArray) -> Self {
        create(storage, new);
        let store = open(storage, true);
        let session = store.session(Box::new(Alone), SessionOptions::default()).unwrap();
        let (data_type, committed) = (new.data_type, model_of(new));
        Self { store, session, declared: Vec::new(), data_type, next: committed.clone(), committed }
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
                self.session.commit().unwrap();
                self.committed = self.next.clone();
            }
            Step::Forget => {
                self.next = self.committed.clone();
                self.declared.clear();
                let options = SessionOptions::default();
                self.session = self.store.session(Box::new(Alone), options).unwrap();
            }
            Step::Settle => drop(self.store.settle(&|| false).unwrap()),
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
        self.session.write_declared(&path(), Some(record), declared, &bytes).unwrap();
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

    /// Somebody else begins to append, and fails: elements behind the end that nobody may ever see.
    fn leave_behind(&mut self) {
        if self.committed.shape.is_empty() {
            return;
        }
        let array = self.store.array(&path()).unwrap();
        let growth = Growth { array: &array, axis: 0, length: 3 };
        let outcome = append_with(&[growth], &mut |shapes| {
            let grown = self.store.grown(&path(), &shapes[0])?;
            let all = Selection::all(&shapes[0]);
            let bytes = usize::try_from(grown.result_bytes(&all)?).unwrap();
            let mut old = vec![0x77; bytes];
            let kept = Selection::all(&self.committed.shape);
            let count = usize::try_from(grown.result_bytes(&kept)?).unwrap();
            // The axis is the first, so that what is there already comes first.
            grown.read(&kept, &mut old[..count], &|| false)?;
            grown.write(&all, Elements::Bytes(&old), &|| false)?;
            Err(bedform::Error::new(ErrorKind::Io, "somebody pulled the plug"))
        });
        assert!(outcome.is_err());
    }

    fn check(&self) {
        let array = self.store.array(&path()).unwrap();
        assert_eq!(array.shape().unwrap(), self.committed.shape);
        let all = Selection::all(&self.committed.shape);
        assert_eq!(read(&array, self.data_type, &all), self.committed.elements);
    }
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

/// One to three boxes, none empty; nothing in an empty shape.
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
    ) {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let mut twins = Twins::new(&storage, &new);
        for (step, seed) in steps {
            twins.take(step, &mut Numbers(seed));
        }
        twins.take(Step::Commit, &mut Numbers(0));
        twins.take(Step::Settle, &mut Numbers(0));
        let array = twins.store.array(&path()).unwrap();
        prop_assert_eq!(array.verify(&|| false).unwrap(), Vec::<String>::new());
        drop(twins.session);
        twins.store.settle(&|| false).unwrap();
        prop_assert!(storage.beside(".bedform-log").unwrap().list(&bedform_format::ObjectPath::root()).unwrap().is_empty());
    }
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
                    let start =
                        session.append(&path(), 0, &shape, Elements::Bytes(&mine)).unwrap();
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
    // It looks again, and goes on.
    assert_eq!(second.append(&path(), 0, &[1], Elements::Bytes(&[2])).unwrap(), 66);
    second.commit().unwrap();
    store.array(&path()).unwrap().append(0, &[1], Elements::Bytes(&[3]), &|| false).unwrap();
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
    let beyond = session.write_declared(&path(), None, declared, &[1; 8]).map(drop);
    assert_eq!(kind(beyond), ErrorKind::InvalidArgument);
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
