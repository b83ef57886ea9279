//! Faults that were found in the engine, one test per fault.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::sync::Arc;

use bedform::comm::Alone;
use bedform::log::session::SessionOptions;
use bedform::log::settle::SettleOptions;
use bedform::{Elements, ErrorKind, Freshness, NewArray, OpenOptions, Store};
use bedform_storage::{
    CallFailure, CallKind, CancelSource, LocalStorage, MemoryStorage, Mode, SimulatedFileSystem,
    Storage, cancelled_by,
};
use serde_json::{Map, Value, json};

use crate::model::{
    FILL, Operation, StoreModel, bytes, form, new_array, observe, options, read, region, values,
    whole,
};
use crate::support::{Scratch, path};
use crate::workloads::{run, storage};

fn like() -> crate::model::ArrayModel {
    form(&[4, 4], &[2, 2], &[4, 4], "")
}

fn two_handles() -> (Store, Store) {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let first = Store::create(storage.clone(), &Map::new(), options(true)).unwrap();
    (first, Store::open(storage, options(true)).unwrap())
}

#[test]
fn attributes_that_are_set_during_an_append_are_kept() {
    let (store, other) = two_handles();
    let array = store.create_array(&path("t"), &new_array(&like())).unwrap();
    let attributes = Map::from_iter([("units".to_owned(), json!("K"))]);
    let (own, set) = (other.clone(), attributes.clone());
    let meanwhile = CancelSource::each_time(move || {
        own.set_attributes(&path("t"), set.clone()).unwrap();
        false
    });
    let one = bytes(&[1; 4]);
    cancelled_by(&meanwhile, || array.append(0, &[1, 4], Elements::Bytes(&one))).unwrap();
    assert_eq!(array.attributes().unwrap(), attributes);
    assert_eq!(other.array(&path("t")).unwrap().shape().unwrap(), [5, 4]);
}

#[test]
fn an_array_is_deleted_after_the_append_that_is_under_way() {
    let (store, other) = two_handles();
    let array = store.create_array(&path("t"), &new_array(&like())).unwrap();
    let deletion = Rc::new(OnceCell::new());
    let (own, deleting, is_begun) = (store.clone(), other.clone(), deletion.clone());
    let meanwhile = CancelSource::each_time(move || {
        let deleting = deleting.clone();
        is_begun.get_or_init(|| std::thread::spawn(move || deleting.delete(&path("t"))));
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(own.array(&path("t")).is_ok(), "deleted under the append");
        false
    });
    let one = bytes(&[1; 4]);
    cancelled_by(&meanwhile, || array.append(0, &[1, 4], Elements::Bytes(&one))).unwrap();
    drop(meanwhile);
    Rc::into_inner(deletion).unwrap().into_inner().unwrap().join().unwrap().unwrap();
    assert!(store.nodes().unwrap().is_empty());
    let again = other.create_array(&path("t"), &new_array(&like())).unwrap();
    assert_eq!(read(&again, &whole(&[4, 4])).unwrap(), [FILL; 16]);
}

#[test]
fn a_live_draft_is_not_taken_for_what_a_crash_left() {
    let (store, other) = two_handles();
    let draft = store.draft_array(&path("t"), &new_array(&like())).unwrap();
    for handle in [&other, &store] {
        let refused = handle.draft_array(&path("t"), &new_array(&like()));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Conflict);
    }
    draft.write(&whole(&[4, 4]), Elements::Bytes(&bytes(&[3; 16]))).unwrap();
    assert_eq!(draft.resize(&[5, 5]).unwrap_err().kind(), ErrorKind::InvalidArgument);
    store.commit_drafts(&[path("t")]).unwrap();
    let array = other.array(&path("t")).unwrap();
    assert_eq!(read(&array, &whole(&[4, 4])).unwrap(), [3; 16]);
    // An abandoned draft does not reserve its name.
    drop(store.draft_array(&path("u"), &new_array(&like())).unwrap());
    other.create_array(&path("u"), &new_array(&like())).unwrap();
}

#[test]
fn the_handle_of_a_draft_sees_what_others_append_after_its_commit() {
    let (store, other) = two_handles();
    let draft = store.draft_array(&path("t"), &new_array(&like())).unwrap();
    store.commit_drafts(&[path("t")]).unwrap();
    let array = other.array(&path("t")).unwrap();
    array.append(0, &[2, 4], Elements::Bytes(&bytes(&[1; 8]))).unwrap();
    assert_eq!(draft.shape().unwrap(), [6, 4]);
}

#[test]
fn collecting_garbage_after_any_cut_leaves_a_store_that_opens() {
    let base = SimulatedFileSystem::new();
    let model = filled(&base);
    let boxes = vec![("t".to_owned(), vec![1, 1], vec![2, 2])];
    let settle = Operation::Settle { memory_bytes: 1 << 20, grace: std::time::Duration::ZERO };
    let operations = [Operation::Session { boxes, seed: 6 }, settle];
    for cut in 0.. {
        let system = base.fork();
        system.fail_power_after(cut);
        let progress = run(&storage(&system), Some(model.clone()), &operations);
        let killed = system.kill();
        let store = Store::open(storage(&killed), options(true)).unwrap();
        Operation::Collect.run(&store, &model).unwrap();
        progress.judge(&killed).unwrap_or_else(|problem| panic!("call {cut}: {problem}"));
        if progress.error.is_none() {
            break;
        }
    }
}

fn filled(system: &SimulatedFileSystem) -> StoreModel {
    let filled = Operation::Drafts { arrays: vec![("t", like())], seed: 4 };
    run(&storage(system), None, std::slice::from_ref(&filled)).before.unwrap()
}

#[test]
fn an_append_that_says_it_failed_has_appended_nothing() {
    let base = SimulatedFileSystem::new();
    let model = filled(&base);
    let append = Operation::Append { parts: vec![("t".to_owned(), 0, 1)], seed: 5 };
    let calls = {
        let clean = base.fork();
        run(&storage(&clean), Some(model.clone()), std::slice::from_ref(&append));
        clean.count(CallKind::Open)
    };
    for k in 0..calls {
        let system = base.fork();
        system.fail_at(CallKind::Open, k, CallFailure::Error(5));
        let progress = run(&storage(&system), Some(model.clone()), std::slice::from_ref(&append));
        system.heal();
        let found = observe(storage(&system), &model).unwrap().unwrap();
        let is_error = progress.error.is_some();
        assert_eq!(found["t"].shape[0], if is_error { 4 } else { 5 }, "open {k}");
    }
}

#[test]
fn a_deletion_that_nobody_synced_does_not_come_back_after_growth() {
    let base = SimulatedFileSystem::new();
    filled(&base);
    let store = Store::open(storage(&base), options(true)).unwrap();
    let array = store.array(&path("t")).unwrap();
    for k in 0..12 {
        let system = base.fork();
        let store = Store::open(storage(&system), options(true)).unwrap();
        system.fail_at(CallKind::Unlink, k, CallFailure::ErrorAfter(5));
        let array = store.array(&path("t")).unwrap();
        if array.resize(&[0, 4]).is_ok() && array.resize(&[4, 4]).is_ok() {
            for image in system.crash_images(k, 20) {
                let found = observe(storage(&image), &StoreModel::new()).unwrap().unwrap();
                assert_eq!(found["t"].values, [FILL; 16], "unlink {k}");
            }
        }
    }
    assert_eq!(read(&array, &whole(&[4, 4])).unwrap(), values(4, 16));
}

#[test]
fn texts_that_could_not_be_read_back_are_not_written() {
    let (store, _) = two_handles();
    let description = json!({
        "shape": [2], "dtype": "string", "chunks": [2], "shards": [2], "codecs": ["zstd"],
        "fill_value": "",
    });
    let new = bedform::NewArray::from_json(&description, &bedform_format::Limits::default());
    let array = store.create_array(&path("t"), &new.unwrap()).unwrap();
    let long = "x".repeat(40 << 20);
    let write = |texts: &[&str]| array.write(&whole(&[2]), Elements::Text(texts));
    assert!(write(&[&long, "short"]).is_ok());
    assert!(write(&[&long, &long]).is_err());
    assert_eq!(array.read_text(&whole(&[2])).unwrap()[1], "short");
}

#[test]
fn arrays_created_together_appear_all_or_none_whichever_call_fails() {
    let base = SimulatedFileSystem::new();
    drop(Store::create(storage(&base), &Map::new(), options(true)).unwrap());
    let names = ["t", "g/u", "g/v", "w"];
    let arrays: Vec<_> = names.iter().map(|name| (path(name), new_array(&like()))).collect();
    for kind in [
        CallKind::Create,
        CallKind::Write,
        CallKind::SyncFile,
        CallKind::SyncDirectory,
        CallKind::SyncWhole,
        CallKind::Rename,
        CallKind::MakeDirectory,
    ] {
        let calls = {
            let clean = base.fork();
            let before = clean.count(kind);
            let store = Store::open(storage(&clean), options(true)).unwrap();
            store.create_arrays(&arrays).unwrap();
            before..clean.count(kind)
        };
        assert!(!calls.is_empty(), "{kind:?}");
        for k in calls {
            let system = base.fork();
            system.fail_at(kind, k, CallFailure::Error(5));
            let store = Store::open(storage(&system), options(true)).unwrap();
            let outcome = store.create_arrays(&arrays);
            drop(store);
            let again = Store::open(storage(&system), options(true)).unwrap();
            let there = names.iter().filter(|name| again.array(&path(name)).is_ok()).count();
            assert!(there == 0 || there == names.len(), "{kind:?} {k}: {there} of them");
            match (outcome, there) {
                // A second attempt succeeds despite the leftovers.
                (Err(_), 0) => again.create_arrays(&arrays).unwrap(),
                (outcome, there) => {
                    assert!(outcome.is_err() || there == names.len(), "{kind:?} {k}");
                }
            }
        }
    }
}

#[test]
fn of_arrays_created_together_none_has_the_place_of_another_node() {
    let (store, other) = two_handles();
    let make = |names: &[&str]| {
        let arrays: Vec<_> = names.iter().map(|name| (path(name), new_array(&like()))).collect();
        store.create_arrays(&arrays).map_err(|error| error.kind())
    };
    assert_eq!(make(&[]), Ok(()));
    for wrong in [&["a", "a"][..], &["a", "a-b", "a/b"], &["a/b/c", "a"]] {
        assert_eq!(make(wrong), Err(ErrorKind::InvalidArgument), "{wrong:?}");
    }
    let _draft = other.draft_array(&path("d"), &new_array(&like())).unwrap();
    assert_eq!(make(&["e", "d"]), Err(ErrorKind::Conflict));
    assert!(store.nodes().unwrap().is_empty());
    let many: Vec<String> = (0..40).map(|n| format!("g{}/a{n}", n % 3)).collect();
    assert_eq!(make(&many.iter().map(String::as_str).collect::<Vec<_>>()), Ok(()));
    assert_eq!(other.nodes().unwrap().len(), 43);
    assert_eq!(make(&["new", "g0/a0"]), Err(ErrorKind::Exists));
    assert!(other.array(&path("new")).is_err());
}

/// A second settler took shards for settled whose names were not durable yet, and removed their
/// commits from the log. After a power cut the shards were the old ones.
#[test]
fn a_settling_that_was_cut_off_loses_nothing_when_another_ends_it_before_a_power_cut() {
    let base = SimulatedFileSystem::new();
    let (tall, new) = (form(&[16, 4], &[2, 2], &[4, 4], ""), values(7, 64));
    let store = Store::create(storage(&base), &Map::new(), options(true)).unwrap();
    store.create_array(&path("t"), &new_array(&tall)).unwrap();
    let mut session = store.session(Box::new(Alone), SessionOptions::default()).unwrap();
    session.write(&path("t"), &whole(&[16, 4]), Elements::Bytes(&bytes(&new))).unwrap();
    session.commit().unwrap();
    drop((session, store));
    for kind in [CallKind::Rename, CallKind::Link, CallKind::Exchange] {
        let calls = {
            let clean = base.fork();
            let before = clean.count(kind);
            Store::open(storage(&clean), options(true)).unwrap().settle().unwrap();
            0..clean.count(kind) - before
        };
        assert!(kind != CallKind::Rename || calls.end - calls.start > 4, "{calls:?}");
        for k in calls {
            let system = base.fork();
            system.fail_at(kind, k, CallFailure::Error(5));
            let _ = Store::open(storage(&system), options(true)).unwrap().settle();
            let killed = system.kill();
            Store::open(storage(&killed), options(true)).unwrap().settle().unwrap();
            for image in killed.crash_images(k, 20) {
                let store = Store::open(storage(&image), options(true)).unwrap();
                let array = store.array(&path("t")).unwrap();
                assert_eq!(read(&array, &whole(&[16, 4])).unwrap(), new, "{kind:?} {k}");
            }
        }
    }
}

/// Appends a row of `value` to `t` in a session, and commits.
fn append_row(store: &Store, value: i32) {
    let mut session = store.session(Box::new(Alone), SessionOptions::default()).unwrap();
    let row = bytes(&[value; 4]);
    session.append(&path("t"), 0, &[1, 4], Elements::Bytes(&row)).unwrap();
    session.commit().unwrap();
}

/// The first settler had put the rows into the shard. The second took them for leftovers of an
/// interrupted append, so the rows vanished from the store and from the log.
#[test]
fn rows_that_a_session_appended_survive_two_who_settle_at_once() {
    let mut looks = 0;
    for when in 0.. {
        let (store, other) = two_handles();
        store.create_array(&path("t"), &new_array(&form(&[3, 4], &[2, 2], &[4, 4], ""))).unwrap();
        append_row(&store, 7);
        let told = Cell::new(0);
        let meanwhile = |_, _| {
            if told.replace(told.get() + 1) == when {
                other.settle().unwrap();
            }
        };
        let progress = meanwhile;
        store.settle_with(&SettleOptions::default(), &progress).unwrap();
        let array = other.array(&path("t")).unwrap();
        assert_eq!(read(&array, &region(&[3, 0], &[1, 4])).unwrap(), [7; 4], "{when}");
        looks += 1;
        if told.get() <= when {
            break;
        }
    }
    assert!(looks > 2, "{looks}");
}

/// It failed with `SnapshotMoved`, an error for readers of a fixed moment.
#[test]
fn an_append_goes_on_when_others_commit_and_write_to_its_shard_meanwhile() {
    let (store, other) = two_handles();
    let like = form(&[3, 4], &[2, 2], &[4, 4], "");
    let array = store.create_array(&path("t"), &new_array(&like)).unwrap();
    let is_first = Rc::new(Cell::new(true));
    let (own, first) = (other.clone(), is_first.clone());
    let meanwhile = CancelSource::each_time(move || {
        if first.replace(false) {
            let boxes = vec![("t".to_owned(), vec![0, 0], vec![1, 4])];
            Operation::Session { boxes, seed: 1 }.run(&own, &StoreModel::new()).unwrap();
            let row = bytes(&[8; 4]);
            let written = own.array(&path("t")).unwrap();
            let row = Elements::Bytes(&row);
            written.write(&region(&[1, 0], &[1, 4]), row).unwrap();
        }
        false
    });
    let nine = bytes(&[9; 4]);
    cancelled_by(&meanwhile, || array.append(0, &[1, 4], Elements::Bytes(&nine))).unwrap();
    assert!(!is_first.get());
    let found = read(&other.array(&path("t")).unwrap(), &whole(&[4, 4])).unwrap();
    assert_eq!(found[..4], values(1, 4));
    assert_eq!(found[4..], [[8; 4], [FILL; 4], [9; 4]].concat());
}

/// A writer merged a shard with commits beyond the end that it knew, and lost them.
#[test]
fn a_writer_that_looks_for_no_changes_keeps_what_lies_behind_the_end_that_it_knows() {
    let (store, _) = two_handles();
    store.create_array(&path("t"), &new_array(&form(&[3, 4], &[1, 2], &[4, 4], ""))).unwrap();
    let mut seldom = options(true);
    seldom.freshness = Freshness::Open;
    let late = Store::open(store.storage().clone(), seldom).unwrap();
    let array = late.array(&path("t")).unwrap();
    append_row(&store, 7);
    store.settle().unwrap();
    let boxes = vec![("t".to_owned(), vec![3, 0], vec![1, 4])];
    Operation::Session { boxes, seed: 1 }.run(&store, &StoreModel::new()).unwrap();
    let row = bytes(&[8; 4]);
    array.write(&region(&[2, 0], &[1, 4]), Elements::Bytes(&row)).unwrap();
    let found = read(&store.array(&path("t")).unwrap(), &whole(&[4, 4])).unwrap();
    assert_eq!(found[8..], [&[8; 4], &values(1, 4)[..]].concat());
}

/// Documents of consolidated metadata stay text when a store's document is read. A change of a
/// group's document must write them back: setting attributes once published a store without its
/// arrays.
#[test]
fn attributes_of_a_group_are_set_and_what_it_says_of_others_stays() {
    let scratch = Scratch::new("attributes");
    let storage = Arc::new(LocalStorage::open(&scratch.0, Mode::ReadWrite).unwrap());
    let store = Store::create(storage, &Map::new(), OpenOptions::default()).unwrap();
    let new = json!({"shape": [4], "dtype": "int32", "chunks": [4], "shards": [4]});
    let new = NewArray::from_json(&new, &Default::default()).unwrap();
    store.create_array(&path("g/a"), &new).unwrap();
    let document = |name: &str| -> Value {
        serde_json::from_slice(&std::fs::read(scratch.0.join(name).join("zarr.json")).unwrap())
            .unwrap()
    };
    // A group with consolidated metadata of its own, as another program leaves it.
    let mut inner = document("g");
    inner["consolidated_metadata"] =
        json!({"kind": "inline", "must_understand": false, "metadata": {"a": document("g/a")}});
    std::fs::write(scratch.0.join("g/zarr.json"), inner.to_string()).unwrap();
    for group in ["", "g"] {
        let before = document(group);
        let attributes = Map::from_iter([("units".to_owned(), json!(["K", {"a": null}]))]);
        store.set_attributes(&path(group), attributes.clone()).unwrap();
        let after = document(group);
        assert_eq!(after["attributes"], Value::Object(attributes));
        let others = |document: &Value| document["consolidated_metadata"]["metadata"].clone();
        assert_eq!(others(&after), others(&before));
        assert!(store.array(&path("g/a")).is_ok());
        assert_eq!(store.nodes().unwrap().len(), 2);
    }
    // The store's document repeats the whole document of the inner group.
    assert_eq!(document("")["consolidated_metadata"]["metadata"]["g"], document("g"));
}

/// The shard was stamped as one without the commit, which then covered the newer write.
#[test]
fn a_direct_write_by_a_handle_that_looks_for_changes_seldom_comes_after_all_commits() {
    for freshness in [Freshness::Open, Freshness::Never] {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let store = Store::create(storage.clone(), &Map::new(), options(true)).unwrap();
        store.create_array(&path("t"), &new_array(&like())).unwrap();
        let commit = |seed| {
            let boxes = vec![("t".to_owned(), vec![0, 0], vec![4, 4])];
            Operation::Session { boxes, seed }.run(&store, &StoreModel::new()).unwrap();
        };
        commit(1);
        let mut seldom = options(true);
        seldom.freshness = freshness;
        let late = Store::open(storage, seldom).unwrap();
        let array = late.array(&path("t")).unwrap();
        let before = read(&array, &whole(&[4, 4])).unwrap();
        assert_eq!(before, values(1, 16));
        commit(2);
        array.write(&region(&[0, 0], &[1, 4]), Elements::Bytes(&bytes(&[9; 4]))).unwrap();
        let expected = [&[9; 4], &values(2, 16)[4..]].concat();
        let now = || read(&store.array(&path("t")).unwrap(), &whole(&[4, 4])).unwrap();
        assert_eq!(now(), expected, "{freshness:?}");
        store.settle().unwrap();
        assert_eq!(now(), expected, "{freshness:?}");
    }
}

/// A session committed elements of one type to an array of another.
#[test]
fn a_session_does_not_write_to_what_others_have_put_in_the_place_of_its_array() {
    let (store, other) = two_handles();
    for name in ["t", "u"] {
        store.create_array(&path(name), &new_array(&like())).unwrap();
    }
    let mut session = store.session(Box::new(Alone), SessionOptions::default()).unwrap();
    let row = bytes(&[1; 4]);
    session.append(&path("t"), 0, &[1, 4], Elements::Bytes(&row)).unwrap();
    session.commit().unwrap();
    session.look_up(&path("u")).unwrap();
    other.settle().unwrap();
    for name in ["t", "u"] {
        other.delete(&path(name)).unwrap();
        other.create_array(&path(name), &new_array(&like())).unwrap();
        let written = session.write(&path(name), &region(&[0, 0], &[1, 4]), Elements::Bytes(&row));
        let error = written.and_then(|_| session.commit()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    }
    let found = read(&other.array(&path("t")).unwrap(), &whole(&[4, 4])).unwrap();
    assert_eq!(found, [FILL; 16]);
}

/// The commit restored the old length of the other axis.
#[test]
fn an_append_to_an_array_that_others_make_smaller_is_a_conflict() {
    let (store, other) = two_handles();
    store.create_array(&path("t"), &new_array(&like())).unwrap();
    let mut session = store.session(Box::new(Alone), SessionOptions::default()).unwrap();
    let row = bytes(&[1; 4]);
    session.append(&path("t"), 0, &[1, 4], Elements::Bytes(&row)).unwrap();
    other.array(&path("t")).unwrap().resize(&[4, 1]).unwrap();
    let error = session.commit().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(other.array(&path("t")).unwrap().shape().unwrap(), [4, 1]);
}

/// The check reported shards settled by others as damage.
#[test]
fn the_check_of_a_snapshot_that_has_moved_on_says_so() {
    let (store, other) = two_handles();
    store.create_array(&path("t"), &new_array(&like())).unwrap();
    let boxes = vec![("t".to_owned(), vec![0, 0], vec![4, 4])];
    Operation::Session { boxes: boxes.clone(), seed: 1 }.run(&store, &StoreModel::new()).unwrap();
    store.settle().unwrap();
    let then = store.snapshot().unwrap();
    assert!(then.verify(None, &|_, _| ()).unwrap().problems.is_empty());
    Operation::Session { boxes, seed: 2 }.run(&other, &StoreModel::new()).unwrap();
    other.settle().unwrap();
    let error = then.verify(None, &|_, _| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SnapshotMoved, "{error}");
}
