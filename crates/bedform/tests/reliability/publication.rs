//! Publication on file systems that cannot exchange names, and during reads.

use std::sync::atomic::{AtomicBool, Ordering};

use bedform::store::StagedStore;
use bedform::{ErrorKind, Store};
use bedform_storage::{CallKind, SimulatedFileSystem, Storage};
use serde_json::Map;

use crate::model::{
    DATASET, DATASETS, Operation, REPLACED, StoreModel, form, observe, observe_store, options,
    read, whole,
};
use crate::support::path;
use crate::workloads::{run, storage};

fn old() -> Vec<(&'static str, crate::model::ArrayModel)> {
    vec![("t", form(&[6], &[2], &[4], ""))]
}

/// A store prepared with the operations `before`.
fn prepared(before: &[Operation]) -> (SimulatedFileSystem, StoreModel) {
    let system = SimulatedFileSystem::new();
    let progress = run(&storage(&system), None, before);
    assert!(progress.error.is_none(), "{:?}", progress.error);
    (system, progress.before.unwrap())
}

/// Returns the crash images after each call of `act`, on a system that cannot exchange names.
fn images(
    base: &SimulatedFileSystem,
    model: &StoreModel,
    act: &Operation,
) -> Vec<SimulatedFileSystem> {
    let mut images = Vec::new();
    for cut in 0.. {
        let system = base.fork();
        system.remove_feature(CallKind::Exchange);
        system.fail_power_after(cut);
        let progress = run(&storage(&system), Some(model.clone()), std::slice::from_ref(act));
        images.push(system.kill());
        images.extend(system.crash_images(cut, 2));
        if progress.error.is_none() {
            return images;
        }
    }
    images
}

#[test]
fn where_no_names_are_exchanged_a_replaced_store_is_complete_beside_its_place_or_back() {
    let before = Operation::NewStore { arrays: old(), seed: 1 };
    let (base, model) = prepared(std::slice::from_ref(&before));
    let act = Operation::NewStore { arrays: vec![("v", form(&[3], &[2], &[4], ""))], seed: 2 };
    let (mut windows, mut done) = (0, 0);
    for image in images(&base, &model, &act) {
        image.remove_feature(CallKind::Exchange);
        let place = storage(&image).sibling(DATASETS).unwrap();
        let found = observe(storage(&image), &model).unwrap().unwrap();
        if found.is_empty() {
            windows += 1;
            let aside = path(&format!(".{DATASET}.bedform-replaced/old"));
            let aside = Store::open(place.within(&aside).unwrap(), options(false)).unwrap();
            assert_eq!(observe_store(&aside, &StoreModel::new()).unwrap().len(), 1);
        } else if found != model {
            assert_eq!(found, act.apply(&model));
            done += 1;
        }
        // Staging a store there restores the old one, and leaves no other files.
        let (name, attributes) = (path(DATASET), Map::new());
        let staged = StagedStore::create_in(&place, &name, true, &attributes, options(true));
        drop(staged.unwrap());
        let expected = if found.is_empty() { &model } else { &found };
        assert_eq!(observe(storage(&image), &model).unwrap().as_ref(), Some(expected));
        let after = run(&storage(&image), Some(expected.clone()), std::slice::from_ref(&act));
        assert!(after.error.is_none(), "{:?}", after.error);
        let hidden = crate::model::dataset_files(&image);
        assert!(!hidden.iter().any(|name| name.contains(".bedform")), "{hidden:?}");
    }
    assert!(windows > 0 && done > 0, "{windows} {done}");
}

#[test]
fn where_no_names_are_exchanged_a_replaced_group_is_back_after_the_next_change() {
    let before = Operation::Drafts { arrays: vec![("r/t", old().remove(0).1)], seed: 3 };
    let (base, model) = prepared(std::slice::from_ref(&before));
    let act = Operation::ReplaceGroup { arrays: vec![("v", form(&[3], &[2], &[4], ""))], seed: 4 };
    let (mut windows, mut done) = (0, 0);
    for image in images(&base, &model, &act) {
        image.remove_feature(CallKind::Exchange);
        let found = observe(storage(&image), &model);
        if found.is_err() {
            windows += 1;
            let aside = path(&format!(".{REPLACED}.bedform-replaced/old/t/zarr.json"));
            assert!(storage(&image).stat(&aside).is_ok(), "the old group is gone");
        }
        let store = Store::open(storage(&image), options(true)).unwrap();
        store.create_group(&path("after"), &Map::new()).unwrap();
        let after = observe(storage(&image), &model).unwrap().unwrap();
        if after != model {
            assert_eq!(after, act.apply(&model));
            done += 1;
        }
    }
    assert!(windows > 0 && done > 0, "{windows} {done}");
}

#[test]
fn readers_find_the_old_group_or_the_new_one_at_any_moment() {
    let form = || form(&[6], &[2], &[4], "");
    let system = SimulatedFileSystem::new();
    let before = Operation::Drafts { arrays: vec![("r/t", form())], seed: 1 };
    let model = run(&storage(&system), None, &[before]).before.unwrap();
    let is_done = AtomicBool::new(false);
    let reads = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0_u64;
            while !is_done.load(Ordering::Relaxed) {
                let store = Store::open(storage(&system), options(false)).unwrap();
                for _ in 0..20 {
                    let array = store.array(&path("r/t")).expect("neither is there");
                    let found = match read(&array, &whole(&[6])) {
                        // The group was opened before, and another one has replaced it.
                        Err(error) if error.kind() == ErrorKind::Conflict => continue,
                        found => found.expect("a mixture"),
                    };
                    let is_whole = (1..=100).any(|seed| found == crate::model::values(seed, 6));
                    assert!(is_whole, "{found:?}");
                    reads += 1;
                }
            }
            reads
        });
        let mut model = model;
        for seed in 2..=100 {
            let replace = Operation::ReplaceGroup { arrays: vec![("t", form())], seed };
            let progress = run(&storage(&system), Some(model), &[replace]);
            assert!(progress.error.is_none(), "{:?}", progress.error);
            model = progress.before.unwrap();
        }
        is_done.store(true, Ordering::Relaxed);
        reader.join().unwrap()
    });
    assert!(reads > 0);
}
