//! F2 to F5: the power fails after every call of every workload, and again during recovery.
//!
//! After each crash the store opens. Acknowledged operations are complete, and the unfinished one
//! is complete or absent (per shard for region writes). Work continues: growth shows only fill
//! values, appends and merges are right.

use bedform::Store;
use bedform_storage::SimulatedFileSystem;

use crate::model::{Operation, StoreModel, dataset_files, options};
use crate::support::{Cases, Random, count, effort, in_parallel};
use crate::workloads::{
    Progress, Workload, check_cancelled, next_operations, run, storage, workloads,
};

/// Bytes that a device writes atomically.
const SECTOR: u64 = 512;

/// A workload, the system on which it is prepared, and its calls there.
struct Prepared {
    workload: Workload,
    base: SimulatedFileSystem,
    model: Option<StoreModel>,
    calls: u64,
}

fn prepared() -> Vec<Prepared> {
    let prepare = |workload: Workload| {
        let (base, model) = workload.prepared();
        let whole = base.fork();
        let _ = run(&storage(&whole), model.clone(), &workload.act);
        Prepared { workload, base, model, calls: whole.calls() }
    };
    workloads().into_iter().map(prepare).collect()
}

impl Prepared {
    /// Returns the system after a power cut `cut` calls into the workload, with the progress until
    /// then.
    fn cut_after(&self, cut: u64) -> (SimulatedFileSystem, Progress) {
        let system = self.base.fork();
        system.fail_power_after(cut);
        let progress = run(&storage(&system), self.model.clone(), &self.workload.act);
        (system, progress)
    }
}

fn look(
    image: &SimulatedFileSystem,
    progress: &Progress,
    goes_on: bool,
    story: &dyn Fn() -> String,
) {
    let found = progress.judge(image);
    let checked =
        found.and_then(|model| if goes_on { check_cancelled(image, model) } else { Ok(()) });
    if let Err(problem) = checked {
        panic!("{}: {problem}", story());
    }
}

/// F4: checks every crash image of every cut with few unsynced changes.
fn explore(prepared: &Prepared) -> u64 {
    // Long workloads repeat the same few changes, so after many images the test tries fewer
    // changes.
    let (pending_max, many) = effort((7, 700), (12, 6_000));
    let mut images = 0;
    for cut in 0.. {
        let (system, progress) = prepared.cut_after(cut);
        let spent = u32::from(images > many);
        let all = system.exhaustive_crash_images(pending_max - 4 * spent);
        for (image, number) in all.into_iter().flatten().zip(0..) {
            let name = prepared.workload.name;
            let story = || format!("{name}: power cut after call {cut}, exhaustive image {number}");
            // Reads every image; continues to work only on some, because that takes longer.
            look(&image, &progress, number % 16 == 0, &story);
            images += 1;
        }
        if progress.error.is_none() {
            break;
        }
    }
    images
}

#[test]
#[ignore = "a stage of make reliability"]
fn every_image_of_a_power_cut_with_few_changes_has_every_operation_done_or_undone() {
    let images = in_parallel(&prepared(), explore);
    count("workloads", images.len() as u64);
    count("exhaustive-images", images.iter().sum());
}

#[test]
#[ignore = "a stage of make reliability"]
fn a_power_cut_after_any_call_leaves_every_operation_done_or_undone() {
    let prepared = prepared();
    let cases = Cases::new("crash::a_power_cut_after_any_call", 60, 10 * prepared.len() as u64);
    let images = cases.run(|case| {
        let one = &prepared[case.kind(prepared.len())];
        let mut random = Random(case.seed);
        // An unfinished write is rare, so every second case searches for one.
        let mut tries = [1, 40][(case.number / prepared.len() as u64 % 2) as usize];
        let (cut, system, progress) = loop {
            let cut = random.below(one.calls + 1);
            let (system, progress) = one.cut_after(cut);
            tries -= 1;
            if tries == 0 || system.pending_bytes() > SECTOR {
                break (cut, system, progress);
            }
        };
        let story = |kind: &str, number: u64| {
            let name = one.workload.name;
            format!("{name}: power cut after call {cut}, {kind} image {number} of {case:?}")
        };
        let (mut images, mut torn) = (0, 0);
        for (image, number) in system.crash_images(case.seed, 3).zip(0..) {
            look(&image, &progress, true, &|| story("sampled", number));
            images += 1;
        }
        // Changes within a sector cannot be torn.
        if system.pending_bytes() > SECTOR {
            for (image, number) in system.torn_crash_images(case.seed, 12).zip(0..) {
                look(&image, &progress, true, &|| story("torn", number));
                torn += 1;
            }
        }
        (images + torn, torn)
    });
    count("cuts", images.len() as u64);
    count("crash-images", images.iter().map(|case| case.0).sum());
    count("torn-images", images.iter().map(|case| case.1).sum());
}

/// Crashes, recovers and crashes during that, `depth` times in all.
fn crash_again(
    image: &SimulatedFileSystem,
    progress: &Progress,
    depth: u64,
    random: &mut Random,
    story: &str,
) -> u64 {
    let model = progress.judge(image).unwrap_or_else(|problem| panic!("{story}: {problem}"));
    if depth == 0 {
        let checked = check_cancelled(image, model);
        checked.unwrap_or_else(|problem| panic!("{story}: {problem}"));
        return 1;
    }
    let operations = next_operations(image, &model);
    let calls = {
        let whole = image.fork();
        let _ = run(&storage(&whole), model.clone(), &operations);
        whole.calls()
    };
    let mut images = 0;
    for _ in 0..2 {
        let cut = random.below(calls + 1);
        let system = image.fork();
        system.fail_power_after(cut);
        let progress = run(&storage(&system), model.clone(), &operations);
        for (image, number) in system.crash_images(random.next(), 2).zip(0..) {
            let story = format!("{story}; then after call {cut}, image {number}");
            images += crash_again(&image, &progress, depth - 1, random, &story);
        }
    }
    images
}

#[test]
#[ignore = "a stage of make reliability"]
fn power_cuts_during_recovery_lose_nothing_either() {
    let prepared = prepared();
    let cases = Cases::new("crash::power_cuts_during_recovery", 25, prepared.len() as u64);
    let images = cases.run(|case| {
        let one = &prepared[case.kind(prepared.len())];
        let mut random = Random(case.seed);
        let cut = random.below(one.calls + 1);
        let (system, progress) = one.cut_after(cut);
        let mut images = 0;
        for (image, number) in system.crash_images(random.next(), 2).zip(0..) {
            let story = format!("{}: cut {cut}, image {number} of {case:?}", one.workload.name);
            // Two and three crashes alternate.
            let depth = 1 + number % 2;
            images += crash_again(&image, &progress, depth, &mut random, &story);
        }
        images
    });
    count("recovery-images", images.iter().sum());
}

#[test]
#[ignore = "a stage of make reliability"]
fn a_settled_store_holds_nothing_but_zarr() {
    for workload in workloads() {
        let (system, model) = workload.prepared();
        let progress = run(&storage(&system), model, &workload.act);
        assert!(progress.error.is_none(), "{}", workload.name);
        let hidden = system.tree().into_keys().find(|name| name.contains(".bedform"));
        assert_eq!(hidden, None, "{}", workload.name);
    }
}

#[test]
#[ignore = "a stage of make reliability"]
fn the_same_workload_makes_the_same_calls() {
    // The calls of background settling have no fixed order.
    let is_alone = |workload: &Workload| {
        !workload.act.iter().any(|operation| matches!(operation, Operation::Background { .. }))
    };
    for workload in workloads().into_iter().filter(is_alone) {
        let run_once = || {
            let (system, model) = workload.prepared();
            let _ = run(&storage(&system), model, &workload.act);
            (system.calls(), system.tree().into_keys().collect::<Vec<_>>())
        };
        assert_eq!(run_once(), run_once(), "{}", workload.name);
    }
}

/// Returns the hidden files in the store and beside it.
fn hidden_files(system: &SimulatedFileSystem) -> impl Iterator<Item = String> {
    let files = system.tree().into_keys().chain(dataset_files(system));
    files.filter(|name| name.contains(".bedform"))
}

#[test]
#[ignore = "a stage of make reliability"]
fn what_a_killed_writer_left_goes_when_somebody_writes_there() {
    let names = [
        "append to two arrays",
        "a data set as a new store",
        "a data set in the place of a store",
        "a data set in the place of a group",
    ];
    let mut prepared = prepared();
    prepared.retain(|one| names.contains(&one.workload.name));
    in_parallel(&prepared, |one| {
        let name = one.workload.name;
        let mut left_behind = 0;
        for cut in 0.. {
            let (system, progress) = one.cut_after(cut);
            let killed = system.kill();
            left_behind += hidden_files(&killed).count();
            let model = progress.judge(&killed).unwrap();
            let store = Store::open(storage(&killed), options(true)).unwrap();
            drop(store);
            check_cancelled(&killed, model).unwrap();
            assert_eq!(hidden_files(&killed).next(), None, "{name}: killed after call {cut}");
            if progress.error.is_none() {
                break;
            }
        }
        assert!(left_behind > 20, "{name}: only {left_behind} hidden files were ever left behind");
    });
}
