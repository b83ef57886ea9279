//! The contract of [`Storage`] as a test suite that runs on any implementation.
//!
//! - [`check`] runs every case of the contract on storages that a closure makes.
//! - [`cut_power`] cuts the power after every call of the protocol of local files and checks each
//!   state that may be left. [`cut_power_again`] cuts it during recovery, too.
//! - [`fail_calls`] makes every call of that protocol fail in every way.
//!
//! A broken promise panics with a sentence that names it. Callers compare the returned counts with
//! a floor, so that a test that stops testing is noticed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::cast_possible_truncation)]

mod contract;
mod crash;
mod failures;
mod growing;
mod script;
mod sibling;
mod tree;

use bedform_format::ObjectPath;

pub use contract::{CASES, Case};
pub use crash::{CrashBudget, CrashCounts, cut_power, cut_power_again};
pub use failures::fail_calls;

use crate::{
    Condition, Durability, Object, Storage, StorageError, StorageErrorKind, Version, WriteHint,
};

/// Runs every case of the contract on a new storage from `make`, and returns the number of cases.
///
/// # Panics
/// If the storage breaks the contract.
pub fn check<S: Storage>(make: impl Fn() -> S) -> usize {
    let mut count = 0;
    for case in CASES {
        let storage = make();
        if !case.everywhere && storage.is_remote() {
            continue;
        }
        println_case(case.name);
        (case.run)(&storage);
        count += 1;
    }
    count
}

/// Prints the name of the running case; a failing test shows its output.
#[allow(clippy::print_stdout)]
fn println_case(name: &str) {
    println!("case: {name}");
}

pub(crate) fn path(text: &str) -> ObjectPath {
    ObjectPath::parse(text).unwrap()
}

pub(crate) fn put(
    storage: &dyn Storage,
    name: &str,
    bytes: &[u8],
    condition: Condition<'_>,
) -> Result<Version, StorageError> {
    put_at(storage, name, bytes, condition, Durability::Disk)
}

pub(crate) fn put_at(
    storage: &dyn Storage,
    name: &str,
    bytes: &[u8],
    condition: Condition<'_>,
    durability: Durability,
) -> Result<Version, StorageError> {
    let mut writer = storage.create(&path(name), durability, WriteHint::of(bytes.len() as u64))?;
    for piece in bytes.chunks(5000) {
        writer.append(piece)?;
    }
    writer.publish(condition)
}

pub(crate) fn read_all(object: &dyn Object) -> Result<Vec<u8>, StorageError> {
    let mut bytes = vec![0; usize::try_from(object.version().size).unwrap()];
    object.read(0, &mut bytes)?;
    Ok(bytes)
}

pub(crate) fn get(storage: &dyn Storage, name: &str) -> Result<Vec<u8>, StorageError> {
    read_all(&*storage.open(&path(name))?)
}

pub(crate) fn kind_of<T>(outcome: Result<T, StorageError>) -> Option<StorageErrorKind> {
    outcome.err().map(|error| error.kind)
}
