//! Twenty-eight workloads of the engine; the tests interrupt each of their calls, or make it fail.

use std::sync::Arc;
use std::time::Duration;

use bedform::Store;
use bedform_storage::{LocalStorage, Mode, SimulatedFileSystem, Staging};
use serde_json::Map;

use crate::model::{
    Operation, REPLACED, StoreModel, continuation, dataset_files, form, has_unfinished_conversion,
    judge, observe, options, recover,
};

pub(crate) type Local = LocalStorage<SimulatedFileSystem>;

/// The initial operations of a store, and the operations under test. Without an initial store, the
/// first operation creates it.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) prepare: Option<Vec<Operation>>,
    pub(crate) act: Vec<Operation>,
    /// A promise of an earlier writer, which was killed.
    pub(crate) left: Option<Operation>,
}

/// A storage on `system`, with objects of 8,192 bytes or more treated as large.
pub(crate) fn storage(system: &SimulatedFileSystem) -> Arc<Local> {
    let staging = Staging {
        small_bytes_max: 8192,
        block_bytes: 8192,
        blocks_max: 2,
        writes_max: 2,
        reserve_bytes: 16_384,
        direct: true,
    };
    Arc::new(LocalStorage::over(system.clone(), Mode::ReadWrite, staging))
}

fn append(parts: &[(&str, usize, u64)], seed: u64) -> Operation {
    let parts = parts.iter().map(|(name, axis, count)| ((*name).to_owned(), *axis, *count));
    Operation::Append { parts: parts.collect(), seed }
}

fn write(name: &str, start: &[u64], shape: &[u64], seed: u64) -> Operation {
    Operation::Write { name: name.to_owned(), start: start.to_vec(), shape: shape.to_vec(), seed }
}

fn resize(name: &str, shape: &[u64]) -> Operation {
    Operation::Resize { name: name.to_owned(), shape: shape.to_vec() }
}

/// Returns all workloads.
pub(crate) fn workloads() -> Vec<Workload> {
    // Three by two shards of two by two chunks; the array's edge cuts the last ones.
    let small = || form(&[10, 7], &[2, 2], &[4, 4], "zstd");
    let filled = || Operation::Drafts { arrays: vec![("t", small())], seed: 1 };
    let two = || Operation::Drafts { arrays: vec![("t", small()), ("g/u", line())], seed: 2 };
    let workload = |name, prepare, act| Workload { name, prepare, act, left: None };
    vec![
        workload("create a store", None, vec![]),
        workload(
            "create an array in a group",
            Some(vec![]),
            vec![Operation::Create { name: "g/u", like: small() }],
        ),
        workload(
            "arrays that appear with their data",
            Some(vec![filled()]),
            vec![Operation::Drafts { arrays: vec![("g/u", line()), ("g/v", small())], seed: 5 }],
        ),
        workload(
            "write whole arrays",
            Some(vec![filled()]),
            vec![write("t", &[0, 0], &[10, 7], 6)],
        ),
        workload(
            "write a region that is merged",
            Some(vec![filled()]),
            vec![write("t", &[1, 1], &[6, 4], 7), write("t", &[3, 2], &[7, 5], 8)],
        ),
        workload(
            "append within and across shards",
            Some(vec![filled()]),
            vec![append(&[("t", 0, 1)], 9), append(&[("t", 0, 6)], 10)],
        ),
        workload(
            "append along the inner axis",
            Some(vec![filled()]),
            vec![append(&[("t", 1, 3)], 11)],
        ),
        workload(
            "append to two arrays",
            Some(vec![two()]),
            vec![
                append(&[("t", 0, 3), ("g/u", 0, 5)], 12),
                append(&[("t", 0, 2), ("g/u", 0, 1)], 13),
            ],
        ),
        workload(
            "shrink and grow",
            Some(vec![filled()]),
            vec![resize("t", &[5, 3]), resize("t", &[9, 9])],
        ),
        workload(
            "delete and create again",
            Some(vec![two()]),
            vec![
                Operation::Delete { name: "t" },
                Operation::Drafts {
                    arrays: vec![("t", form(&[3, 3], &[3, 3], &[3, 3], ""))],
                    seed: 14,
                },
            ],
        ),
        workload(
            "attributes between appends",
            Some(vec![filled()]),
            vec![
                append(&[("t", 0, 1)], 15),
                Operation::Attributes { name: "t".to_owned(), value: 3 },
                append(&[("t", 0, 1)], 16),
            ],
        ),
        // Shards of 16 KiB: staged in blocks, written directly, torn at sectors.
        workload(
            "large shards",
            Some(vec![Operation::Drafts {
                arrays: vec![("t", form(&[64, 64], &[32, 64], &[64, 64], ""))],
                seed: 3,
            }]),
            vec![write("t", &[10, 10], &[30, 20], 17), append(&[("t", 0, 20)], 18)],
        ),
        workload(
            "commits that are settled in the background",
            Some(vec![two()]),
            vec![Operation::Background {
                boxes: vec![
                    ("t".to_owned(), vec![1, 1], vec![6, 4]),
                    ("g/u".to_owned(), vec![2], vec![3]),
                ],
                seed: 21,
            }],
        ),
        workload(
            "commits of sessions",
            Some(vec![two()]),
            vec![
                commit(&[("t", &[1, 1], &[6, 4]), ("g/u", &[2], &[3])], 19),
                commit(&[("t", &[4, 0], &[3, 7])], 20),
            ],
        ),
        workload(
            "create arrays in a session",
            Some(vec![filled()]),
            vec![
                Operation::SessionArrays {
                    arrays: ["g/a", "g/b", "c", "d", "u"].map(|name| (name, line())).to_vec(),
                    seed: 40,
                },
                commit(&[("t", &[4, 0], &[3, 7]), ("u", &[2], &[3])], 41),
            ],
        ),
        workload(
            "settle, and commit again",
            Some(vec![filled(), commit(&[("t", &[1, 1], &[6, 4])], 21)]),
            vec![settle(1 << 20, 0), commit(&[("t", &[3, 2], &[7, 5])], 22)],
        ),
        workload(
            "settle in rounds, and what does not fit one",
            Some(vec![
                two(),
                commit(&[("t", &[1, 1], &[6, 4]), ("g/u", &[0], &[6])], 26),
                commit(&[("t", &[4, 0], &[6, 7])], 27),
            ]),
            vec![settle(100, 0), write("t", &[0, 0], &[3, 3], 28)],
        ),
        workload(
            "commit while others are settled",
            Some(vec![filled(), commit(&[("t", &[1, 1], &[6, 4])], 29)]),
            vec![
                Operation::SettleUnder {
                    name: "t".to_owned(),
                    start: vec![3, 2],
                    shape: vec![4, 4],
                    seed: 30,
                },
                settle(1 << 20, 0),
            ],
        ),
        workload(
            "settle, and collect later",
            Some(vec![filled(), commit(&[("t", &[1, 1], &[6, 4])], 31)]),
            vec![
                settle(1 << 20, 3600),
                resize("t", &[6, 3]),
                resize("t", &[9, 7]),
                Operation::Collect,
                commit(&[("t", &[0, 0], &[2, 2])], 32),
            ],
        ),
        workload(
            "write into what is not settled",
            Some(vec![filled(), commit(&[("t", &[1, 1], &[6, 4])], 23)]),
            vec![write("t", &[2, 0], &[3, 3], 24), append(&[("t", 0, 2)], 25)],
        ),
        workload(
            "grow in a session",
            Some(vec![filled()]),
            vec![growth("t", &[11, 7], 3, 33, false), settle(1 << 20, 0)],
        ),
        workload(
            "promise",
            Some(vec![two()]),
            // Separately, because the first may become visible after the second.
            vec![
                promise(&[("t", &[1, 1], &[6, 4])], 34),
                promise(&[("t", &[7, 0], &[3, 7]), ("g/u", &[2], &[3])], 35),
            ],
        ),
        workload(
            "promise to grow",
            Some(vec![two(), commit(&[("t", &[1, 1], &[6, 4])], 36)]),
            vec![growth("t", &[10, 9], 2, 37, true)],
        ),
        workload(
            "convert into another layout",
            Some(vec![Operation::Drafts {
                arrays: vec![("t", small()), ("g/v", form(&[3, 4], &[2, 2], &[4, 4], ""))],
                seed: 42,
            }]),
            vec![Operation::Convert],
        ),
        workload(
            "a data set as a new store",
            Some(vec![]),
            vec![Operation::NewStore { arrays: vec![("t", small()), ("g/u", line())], seed: 43 }],
        ),
        workload(
            "a data set in the place of a store",
            Some(vec![Operation::NewStore { arrays: vec![("t", small())], seed: 44 }]),
            vec![Operation::NewStore { arrays: vec![("t", line()), ("v", small())], seed: 45 }],
        ),
        workload(
            "a data set in the place of a group",
            Some(vec![
                Operation::Drafts { arrays: vec![("t", line()), ("r/t", small())], seed: 46 },
                commit(&[("r/t", &[1, 1], &[6, 4]), ("t", &[0], &[3])], 47),
            ]),
            vec![
                Operation::ReplaceGroup { arrays: vec![("t", line()), ("v", line())], seed: 48 },
                settle(1 << 20, 0),
            ],
        ),
        Workload {
            name: "recover what was promised",
            prepare: Some(vec![two()]),
            act: vec![Operation::Recover, write("t", &[2, 0], &[3, 3], 38), settle(1 << 20, 0)],
            left: Some(growth("t", &[12, 7], 1, 39, true)),
        },
    ]
}

fn promise(boxes: &[(&str, &[u64], &[u64])], seed: u64) -> Operation {
    match commit(boxes, seed) {
        Operation::Session { boxes, seed } => Operation::Promise { boxes, seed },
        other => other,
    }
}

fn growth(name: &str, shape: &[u64], rows: u64, seed: u64, is_promise: bool) -> Operation {
    Operation::Growth { name: name.to_owned(), shape: shape.to_vec(), rows, seed, is_promise }
}

fn commit(boxes: &[(&str, &[u64], &[u64])], seed: u64) -> Operation {
    let own = |(name, start, shape): &(&str, &[u64], &[u64])| {
        ((*name).to_owned(), start.to_vec(), shape.to_vec())
    };
    Operation::Session { boxes: boxes.iter().map(own).collect(), seed }
}

fn settle(memory_bytes: u64, grace_seconds: u64) -> Operation {
    Operation::Settle { memory_bytes, grace: Duration::from_secs(grace_seconds) }
}

fn line() -> crate::model::ArrayModel {
    form(&[6], &[2], &[4], "")
}

impl Workload {
    /// Returns a system prepared for the workload, with the store's contents; `None` without a
    /// store.
    pub(crate) fn prepared(&self) -> (SimulatedFileSystem, Option<StoreModel>) {
        let system = SimulatedFileSystem::new();
        let Some(prepare) = &self.prepare else { return (system, None) };
        let store = Store::create(storage(&system), &Map::new(), options(true)).unwrap();
        let mut model = StoreModel::new();
        for operation in prepare {
            operation.run(&store, &model).unwrap();
            model = operation.apply(&model);
        }
        let Some(left) = &self.left else { return (system, Some(model)) };
        let session = left.session(&store, false).unwrap();
        let killed = system.kill();
        drop(session);
        (killed, Some(left.apply(&model)))
    }
}

/// The unfinished work when a run of operations ended.
#[derive(Debug, Clone)]
pub(crate) enum UnderWay {
    Nothing,
    Creation,
    Operation(Operation),
}

/// The progress of a run of operations.
#[derive(Debug)]
pub(crate) struct Progress {
    /// The acknowledged contents; `None` before the store's creation.
    pub(crate) before: Option<StoreModel>,
    pub(crate) under_way: UnderWay,
    pub(crate) error: Option<bedform::Error>,
    /// True if there may be promises to fulfil.
    pub(crate) has_promises: bool,
}

/// Opens or creates the store, and runs `operations` up to the first error.
pub(crate) fn run(
    storage: &Arc<Local>,
    before: Option<StoreModel>,
    operations: &[Operation],
) -> Progress {
    let store = match &before {
        Some(_) => Store::open(storage.clone(), options(true)),
        None => Store::create(storage.clone(), &Map::new(), options(true)),
    };
    let store = match store {
        Ok(store) => store,
        Err(error) => {
            let under_way = if before.is_some() { UnderWay::Nothing } else { UnderWay::Creation };
            let has_promises = has_promises(operations);
            return Progress { before, under_way, error: Some(error), has_promises };
        }
    };
    go_on(&store, before.unwrap_or_default(), operations)
}

fn has_promises(operations: &[Operation]) -> bool {
    operations.iter().any(|next| next.is_promise() || matches!(next, Operation::Recover))
}

/// Runs `operations` up to the first error.
pub(crate) fn go_on(store: &Store, mut before: StoreModel, operations: &[Operation]) -> Progress {
    let has_promises = has_promises(operations);
    for operation in operations {
        if let Err(error) = operation.run(store, &before) {
            let under_way = UnderWay::Operation(operation.clone());
            return Progress { before: Some(before), under_way, error: Some(error), has_promises };
        }
        before = operation.apply(&before);
    }
    Progress { before: Some(before), under_way: UnderWay::Nothing, error: None, has_promises }
}

impl Progress {
    /// Recovers promises, reads the contents of `system`, and compares them with the acknowledged
    /// contents and the unfinished work. Returns the contents from now on.
    pub(crate) fn judge(&self, system: &SimulatedFileSystem) -> Result<Option<StoreModel>, String> {
        if self.has_promises {
            let store = Store::open(storage(system), options(true));
            let outcome = store.and_then(|store| recover(&store));
            outcome.map_err(|error| format!("what was promised cannot be recovered: {error}"))?;
        }
        let nothing = StoreModel::new();
        let found = observe(storage(system), self.before.as_ref().unwrap_or(&nothing))?;
        match (&self.before, found, &self.under_way) {
            (None, None, _) => Ok(None),
            (None, Some(found), UnderWay::Creation) if found.is_empty() => Ok(Some(found)),
            (None, Some(_), _) => Err("a store that nobody created is there".to_owned()),
            (Some(_), None, _) => Err("the store is gone".to_owned()),
            (Some(before), Some(found), UnderWay::Operation(operation)) => {
                judge(found, before, Some(operation)).map(Some)
            }
            (Some(before), Some(found), _) => judge(found, before, None).map(Some),
        }
    }
}

/// Returns the next operations: an interrupted conversion resumes, then all others.
pub(crate) fn next_operations(
    system: &SimulatedFileSystem,
    model: &Option<StoreModel>,
) -> Vec<Operation> {
    let Some(model) = model else { return Vec::new() };
    let mut operations = continuation(model);
    if has_unfinished_conversion(&*storage(system)) {
        operations.insert(0, Operation::Convert);
    }
    if !dataset_files(system).is_empty() {
        operations.push(Operation::NewStore { arrays: vec![("w", line())], seed: 81 });
    }
    if model.keys().any(|name| name.starts_with(REPLACED)) {
        operations.push(Operation::ReplaceGroup { arrays: vec![("w", line())], seed: 82 });
    }
    operations
}

/// Checks that work continues: growth shows fill values, appends and merges are right.
pub(crate) fn check_cancelled(
    system: &SimulatedFileSystem,
    model: Option<StoreModel>,
) -> Result<(), String> {
    let operations = next_operations(system, &model);
    let progress = run(&storage(system), model, &operations);
    if let Some(error) = &progress.error {
        return Err(format!("work does not go on: {:?}: {error}", progress.under_way));
    }
    progress.judge(system).map(drop).map_err(|error| format!("after going on: {error}"))
}
