//! Every storage against the contract, and the local one against its protocol.

use bedform_storage::conformance::{CrashBudget, check, cut_power, cut_power_again, fail_calls};
use bedform_storage::{
    Failing, LocalStorage, MemoryStorage, Mode, OsFileSystem, Recording, SimulatedFileSystem,
    Staging, Throttle, ThrottleSchedule, Throttled,
};

use crate::local::Scratch;

#[test]
fn memory_keeps_the_contract() {
    check(MemoryStorage::new);
    check(MemoryStorage::cold);
}

#[test]
fn recording_keeps_the_contract() {
    check(|| Recording::new(MemoryStorage::new()));
}

#[test]
fn failing_keeps_the_contract_while_nothing_fails() {
    check(|| Failing::new(MemoryStorage::new()));
}

#[test]
fn local_files_keep_the_contract() {
    let scratch = Scratch::new();
    let next = std::cell::Cell::new(0);
    check(|| {
        next.set(next.get() + 1);
        LocalStorage::open(&scratch.0.join(next.get().to_string()), Mode::Create).unwrap()
    });
}

#[test]
fn local_files_keep_the_contract_with_many_blocks_in_flight() {
    let scratch = Scratch::new();
    let next = std::cell::Cell::new(0);
    check(|| {
        next.set(next.get() + 1);
        let system = OsFileSystem::create(&scratch.0.join(next.get().to_string())).unwrap();
        let staging = Staging { small_bytes_max: 0, block_bytes: 4096, ..Staging::default() };
        LocalStorage::over(system, Mode::ReadWrite, staging)
    });
}

#[test]
fn simulated_files_keep_the_contract() {
    check(|| {
        let staging = Staging { small_bytes_max: 4096, block_bytes: 4096, ..Staging::default() };
        LocalStorage::over(SimulatedFileSystem::new(), Mode::ReadWrite, staging)
    });
}

#[test]
fn throttled_files_keep_the_contract() {
    let pace = ThrottleSchedule::new(Throttle::parse("1 GB/s, 1 us").unwrap());
    check(|| {
        let system = Throttled::new(SimulatedFileSystem::new(), pace.clone());
        LocalStorage::over(system, Mode::ReadWrite, Staging::default())
    });
}

#[test]
fn a_power_cut_after_any_call_leaves_the_old_or_the_new_and_all_that_was_acknowledged() {
    let start = std::time::Instant::now();
    let counts = cut_power(CrashBudget::default());
    println!("{counts:?} in {:?}", start.elapsed());
    assert!(counts.images >= 20_000 && counts.exhaustive_images >= 2_000, "{counts:?}");
}

#[test]
fn power_cuts_during_recovery_lose_nothing_either() {
    let start = std::time::Instant::now();
    let counts = cut_power_again(CrashBudget::default(), 3);
    println!("{counts:?} in {:?}", start.elapsed());
    assert!(counts.images >= 2_000, "{counts:?}");
}

#[test]
fn every_call_may_fail_in_every_way() {
    let start = std::time::Instant::now();
    let counts = fail_calls();
    println!("{counts:?} in {:?}", start.elapsed());
    assert!(counts.failures >= 1_000, "{counts:?}");
}
