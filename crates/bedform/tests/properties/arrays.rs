//! An array in memory or on disk equals a list of elements after any writes, appends and resizes.

use std::sync::Arc;

use bedform::comm::Alone;
use bedform::log::session::{Session, SessionOptions};
use bedform::{Array, Elements, NewArray, OpenOptions, Store};
use bedform_format::metadata::FillValue;
use bedform_format::{DataType, ObjectPath};
use bedform_geometry::Selection;
use bedform_storage::{Durability, LocalStorage, Mode, Storage};
use proptest::prelude::*;

use super::cases;
use super::model::{Element, Model, Numbers};
use super::strategies::{TYPES, new_array, selection};

#[derive(Debug, Clone, Copy)]
enum Step {
    Write,
    Read,
    Append,
    Resize,
    Reopen,
    /// A write of a session, not yet committed.
    Log,
    Commit,
    Settle,
}

fn steps() -> impl Strategy<Value = Vec<(Step, u64)>> {
    let step = prop_oneof![
        4 => Just(Step::Write),
        3 => Just(Step::Read),
        1 => Just(Step::Append),
        1 => Just(Step::Resize),
        1 => Just(Step::Reopen),
        4 => Just(Step::Log),
        2 => Just(Step::Commit),
        1 => Just(Step::Settle),
    ];
    proptest::collection::vec((step, any::<u64>()), 1..12)
}

fn options(cache_bytes: u64) -> OpenOptions {
    let mut options = OpenOptions::default();
    options.writable = true;
    options.durability = Durability::Process;
    options.cache_bytes = cache_bytes;
    options
}

pub(crate) fn path() -> ObjectPath {
    ObjectPath::parse("group/array").unwrap()
}

pub(crate) fn model_of(new: &NewArray) -> Model {
    let fill = match &new.fill_value {
        FillValue::Text(text) => text.as_bytes().to_vec(),
        FillValue::Bytes(bytes) => bytes.clone(),
    };
    Model::new(&new.shape, &fill)
}

pub(crate) fn read(array: &Array, data_type: DataType, selection: &Selection) -> Vec<Element> {
    let Some(size) = data_type.item_size() else {
        let texts = array.read_text(selection).unwrap();
        return texts.into_iter().map(String::into_bytes).collect();
    };
    // Not zeros, so that elements that the read leaves out are noticed.
    let bytes = usize::try_from(array.result_bytes(selection).unwrap()).unwrap();
    let mut buffer = vec![0xa5; bytes];
    array.read(selection, &mut buffer).unwrap();
    buffer.chunks(size).map(<[u8]>::to_vec).collect()
}

/// Calls `act` with elements as the engine takes them.
pub(crate) fn with<T>(
    data_type: DataType,
    elements: &[Element],
    act: impl FnOnce(Elements<'_>) -> T,
) -> T {
    if data_type == DataType::String {
        let texts: Vec<&str> =
            elements.iter().map(|element| std::str::from_utf8(element).unwrap()).collect();
        return act(Elements::Text(&texts));
    }
    act(Elements::Bytes(&elements.concat()))
}

struct Twins {
    storage: Arc<dyn Storage>,
    store: Store,
    array: Array,
    model: Model,
    data_type: DataType,
    cache_bytes: u64,
    session: Option<Session>,
    /// Writes of the session that are not committed.
    taken: Vec<(Selection, Vec<Element>)>,
}

impl Twins {
    fn new(storage: Arc<dyn Storage>, new: &NewArray, cache_bytes: u64) -> Self {
        let attributes = serde_json::Map::new();
        let store = Store::create(storage.clone(), &attributes, options(cache_bytes)).unwrap();
        let array = store.create_array(&path(), new).unwrap();
        let data_type = new.data_type;
        let (session, taken) = (None, Vec::new());
        Self { storage, store, array, model: model_of(new), data_type, cache_bytes, session, taken }
    }

    fn take(&mut self, step: Step, seed: u64) {
        let numbers = &mut Numbers(seed);
        match step {
            Step::Write => {
                let selection = loop {
                    // Unions can only be read: no interface writes to one.
                    let selection = selection(&self.model.shape, numbers);
                    if !matches!(selection, Selection::Union(_)) {
                        break selection;
                    }
                };
                let count = selection.len().unwrap();
                // Sometimes the fill value, which removes chunks.
                let elements = if numbers.below(4) == 0 {
                    vec![self.model.fill.clone(); usize::try_from(count).unwrap()]
                } else {
                    numbers.elements(self.data_type, count)
                };
                with(self.data_type, &elements, |elements| {
                    self.array.write(&selection, elements).unwrap()
                });
                self.model.write(&selection, &elements);
                self.check(&Selection::all(&self.model.shape));
            }
            Step::Read => self.check(&selection(&self.model.shape, numbers)),
            Step::Log if self.data_type == DataType::String => {}
            Step::Log => {
                let selection = selection(&self.model.shape, numbers);
                let elements = numbers.elements(self.data_type, selection.len().unwrap());
                let start = || self.store.session(Box::new(Alone), SessionOptions::default());
                let session = self.session.get_or_insert_with(|| start().unwrap());
                with(self.data_type, &elements, |elements| {
                    session.write(&path(), &selection, elements).unwrap()
                });
                self.taken.push((selection, elements));
                self.check(&Selection::all(&self.model.shape));
            }
            Step::Commit => {
                if let Some(session) = &mut self.session {
                    session.commit().unwrap();
                }
                for (selection, elements) in std::mem::take(&mut self.taken) {
                    self.model.write(&selection, &elements);
                }
                self.check(&Selection::all(&self.model.shape));
            }
            Step::Settle => {
                self.store.settle().unwrap();
                self.check(&Selection::all(&self.model.shape));
            }
            Step::Append => {
                self.forget_session();
                self.append(numbers);
            }
            Step::Resize => {
                self.forget_session();
                let shape: Vec<u64> = self.model.shape.iter().map(|_| numbers.below(9)).collect();
                self.array.resize(&shape).unwrap();
                self.model.resize(&shape);
                self.check(&Selection::all(&shape));
            }
            Step::Reopen => {
                self.forget_session();
                self.store = Store::open(self.storage.clone(), options(self.cache_bytes)).unwrap();
                self.array = self.store.array(&path()).unwrap();
                self.check(&Selection::all(&self.model.shape));
            }
        }
    }

    /// Ends the session; uncommitted writes are lost.
    fn forget_session(&mut self) {
        self.session = None;
        self.taken.clear();
    }

    fn append(&mut self, numbers: &mut Numbers) {
        if self.model.shape.is_empty() {
            return;
        }
        let rank = self.model.shape.len() as u64;
        let axis = usize::try_from(numbers.below(rank)).unwrap();
        let mut part = self.model.shape.clone();
        let old = part[axis];
        part[axis] = numbers.below(6);
        let elements = numbers.elements(self.data_type, part.iter().product());
        let start = with(self.data_type, &elements, |elements| {
            self.array.append(axis, &part, elements).unwrap()
        });
        assert_eq!(start, old);
        let mut grown = self.model.shape.clone();
        grown[axis] += part[axis];
        self.model.resize(&grown);
        let mut first = vec![0; grown.len()];
        first[axis] = old;
        let region = bedform_geometry::Region::new(first, part).unwrap();
        self.model.write(&Selection::from(region), &elements);
        self.check(&Selection::all(&grown));
    }

    fn check(&self, selection: &Selection) {
        assert_eq!(self.array.shape().unwrap(), self.model.shape);
        let found = read(&self.array, self.data_type, selection);
        assert_eq!(found, self.model.read(selection), "{selection:?}");
    }

    fn finish(&self) {
        assert_eq!(self.array.verify().unwrap(), Vec::<String>::new());
        let mut options = options(0);
        options.writable = false;
        let store = Store::open(self.storage.clone(), options).unwrap();
        let array = store.array(&path()).unwrap();
        let all = Selection::all(&self.model.shape);
        assert_eq!(read(&array, self.data_type, &all), self.model.elements);
    }
}

fn run(storage: Arc<dyn Storage>, new: &NewArray, steps: &[(Step, u64)], cache_bytes: u64) {
    let mut twins = Twins::new(storage, new, cache_bytes);
    for (step, seed) in steps {
        twins.take(*step, *seed);
    }
    twins.finish();
}

const CACHES: [u64; 3] = [0, 4096, 64 << 20];

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn an_array_in_memory_holds_what_a_list_would(
        new in new_array(&TYPES),
        steps in steps(),
        cache in proptest::sample::select(&CACHES[..]),
        is_remote in proptest::bool::weighted(0.25),
    ) {
        run(crate::place(is_remote), &new, &steps, cache);
    }
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn an_array_on_disk_holds_what_a_list_would(
        new in new_array(&TYPES),
        steps in steps(),
        cache in proptest::sample::select(&CACHES[..]),
    ) {
        let directory = Directory::new();
        let storage = LocalStorage::open(&directory.store, Mode::Create).unwrap();
        run(Arc::new(storage), &new, &steps, cache);
    }
}

/// A directory for a store and its log, removed on drop.
struct Directory {
    all: std::path::PathBuf,
    /// The path of the store.
    store: std::path::PathBuf,
}

impl Directory {
    fn new() -> Self {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("bedform-properties-{}-{number}", std::process::id());
        let all = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&all).unwrap();
        Self { store: all.join("store"), all }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.all);
    }
}
