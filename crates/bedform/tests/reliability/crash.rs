//! F2 to F5: the power fails after every call of every workload, and again during recovery.
//!
//! After each crash the store opens, what was acknowledged is there whole, of what was under way
//! there is all or nothing (all or nothing of each shard for region writes), and work goes on:
//! growth shows fill values only, appends and merges are right.

use bedform::Store;
use bedform_storage::SimulatedFileSystem;

use crate::model::{Operation, StoreModel, dataset_files, options};
use crate::support::{Random, count, effort, effort_at_night, in_parallel, random_seed};
use crate::workloads::{
    Progress, Workload, check_goes_on, next_operations, run, storage, workloads,
};

/// Sampled images per cut: of any kind, and with writes torn where writes are under way.
#[derive(Debug, Clone, Copy)]
struct Budget {
    seed: u64,
    any: u64,
    torn: u64,
    /// Changes under way up to which all images are tried.
    pending_max: u32,
    /// Of so many calls one is followed by a cut.
    every: usize,
}

#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    cuts: u64,
    images: u64,
    torn: u64,
    exhaustive: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.cuts += other.cuts;
        self.images += other.images;
        self.torn += other.torn;
        self.exhaustive += other.exhaustive;
    }
}

/// The system after the power failed `cut` calls into the workload, and how far it came.
fn cut_after(
    workload: &Workload,
    base: &SimulatedFileSystem,
    model: &Option<StoreModel>,
    cut: u64,
) -> (SimulatedFileSystem, Progress) {
    let system = base.fork();
    system.fail_power_after(cut);
    let progress = run(&storage(&system), model.clone(), &workload.act);
    (system, progress)
}

fn look(
    image: &SimulatedFileSystem,
    progress: &Progress,
    goes_on: bool,
    story: &dyn Fn() -> String,
) {
    let found = progress.judge(image);
    let checked =
        found.and_then(|model| if goes_on { check_goes_on(image, model) } else { Ok(()) });
    if let Err(problem) = checked {
        panic!("{}: {problem}", story());
    }
}

/// Images of one workload after which fewer changes under way are tried in all ways.
fn exhaustive_many() -> u64 {
    effort_at_night(6_000, 700, 3_000)
}

fn explore(workload: &Workload, budget: Budget) -> Counts {
    let started = std::time::Instant::now();
    let (base, model) = workload.prepared();
    let mut counts = Counts::default();
    for cut in (0..).step_by(effort(1, 11) * budget.every) {
        let (system, progress) = cut_after(workload, &base, &model, cut);
        counts.cuts += 1;
        let story = |kind: &str, number: u64| {
            format!(
                "{}: power cut after call {cut}, {kind} image {number}, {budget:?}",
                workload.name
            )
        };
        let seed = budget.seed ^ (cut << 20);
        for (image, number) in system.crash_images(seed, budget.any).zip(0..) {
            look(&image, &progress, true, &|| story("sampled", number));
            counts.images += 1;
        }
        // Below a sector's size nothing can be torn.
        if system.pending_bytes() > 512 {
            for (image, number) in system.torn_crash_images(seed, budget.torn).zip(0..) {
                look(&image, &progress, true, &|| story("torn", number));
                counts.images += 1;
                counts.torn += 1;
            }
        }
        // Long workloads come by the same few changes again and again.
        let spent = u32::from(counts.exhaustive > exhaustive_many());
        let pending_max = budget.pending_max.saturating_sub(4 * spent);
        for (image, number) in
            system.exhaustive_crash_images(pending_max).into_iter().flatten().zip(0..)
        {
            // All are read; that work goes on is tried on some, for it takes longer.
            look(&image, &progress, number % 16 == 0, &|| story("exhaustive", number));
            counts.images += 1;
            counts.exhaustive += 1;
        }
        if progress.error.is_none() {
            break;
        }
    }
    println!("{}: {counts:?} in {:?}", workload.name, started.elapsed());
    counts
}

fn explore_all(budget: Budget) -> Counts {
    let mut sum = Counts::default();
    for counts in in_parallel(&workloads(), |workload| explore(workload, budget)) {
        sum += counts;
    }
    println!("{budget:?}: {sum:?}");
    sum
}

#[test]
fn a_power_cut_after_any_call_leaves_every_operation_done_or_undone() {
    let name = "crash::a_power_cut_after_any_call";
    let (any, torn, pending_max) = effort_at_night((8, 130, 12), (2, 12, 7), (1, 2, 0));
    let fixed = Budget { seed: 1, any, torn, pending_max, every: 1 };
    let mut counts = explore_all(fixed);
    let (seed, every) = (random_seed(name), effort_at_night(1, 5, 1));
    counts += explore_all(Budget { seed, any: 1, torn: 2, pending_max: 0, every });
    count("cuts", counts.cuts);
    count("crash-images", counts.images);
    count("torn-images", counts.torn);
    count("exhaustive-images", counts.exhaustive);
}

/// Crashes, recovers, crashes while doing so, `depth` times in all.
fn crash_again(
    image: &SimulatedFileSystem,
    progress: &Progress,
    depth: u64,
    random: &mut Random,
    story: &str,
) -> u64 {
    let model = progress.judge(image).unwrap_or_else(|problem| panic!("{story}: {problem}"));
    if depth == 0 {
        let checked = check_goes_on(image, model);
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
fn power_cuts_during_recovery_lose_nothing_either() {
    let seeds = [1, random_seed("crash::power_cuts_during_recovery")];
    let step = effort(23, 151);
    let mut images = 0;
    for seed in seeds {
        images += in_parallel(&workloads(), |workload| {
            let (base, model) = workload.prepared();
            let mut random = Random(seed);
            let mut images = 0;
            for cut in (random.below(step)..).step_by(step as usize) {
                let (system, progress) = cut_after(workload, &base, &model, cut);
                for (image, number) in system.crash_images(seed ^ cut, 2).zip(0..) {
                    let story =
                        format!("{}: cut {cut}, image {number}, seed {seed}", workload.name);
                    // Two crashes and three, in turn.
                    let depth = 1 + number % 2;
                    images += crash_again(&image, &progress, depth, &mut random, &story);
                }
                if progress.error.is_none() {
                    break;
                }
            }
            images
        })
        .iter()
        .sum::<u64>();
    }
    count("recovery-images", images);
}

#[test]
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
fn the_same_workload_makes_the_same_calls() {
    // What is settled in the background comes when it comes.
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

/// The files that nobody is to see, in the store and beside it.
fn hidden_files(system: &SimulatedFileSystem) -> impl Iterator<Item = String> {
    let files = system.tree().into_keys().chain(dataset_files(system));
    files.filter(|name| name.contains(".bedform"))
}

#[test]
fn what_a_killed_writer_left_goes_when_somebody_writes_there() {
    let names = [
        "append to two arrays",
        "a data set as a new store",
        "a data set in the place of a store",
        "a data set in the place of a group",
    ];
    let workloads = workloads();
    for workload in workloads.iter().filter(|workload| names.contains(&workload.name)) {
        let (base, model) = workload.prepared();
        let mut left_behind = 0;
        for cut in 0.. {
            let (system, progress) = cut_after(workload, &base, &model, cut);
            let killed = system.kill();
            left_behind += hidden_files(&killed).count();
            let model = progress.judge(&killed).unwrap();
            let store = Store::open(storage(&killed), options(true)).unwrap();
            drop(store);
            check_goes_on(&killed, model).unwrap();
            assert_eq!(
                hidden_files(&killed).next(),
                None,
                "{}: killed after call {cut}",
                workload.name
            );
            if progress.error.is_none() {
                break;
            }
        }
        let name = workload.name;
        assert!(left_behind > 20, "{name}: only {left_behind} hidden files were ever left behind");
    }
}
