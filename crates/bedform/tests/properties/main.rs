//! Compares the engine with naive models: a list of elements, and sets of bytes.

#![allow(clippy::disallowed_methods, reason = "tests make files of their own")]

#[cfg(test)]
mod ahead;
#[cfg(test)]
mod arrays;
#[cfg(test)]
mod burst_steps;
#[cfg(test)]
mod callback;
#[cfg(test)]
mod collective;
#[cfg(test)]
mod convert;
#[cfg(test)]
mod deliver;
#[cfg(test)]
mod long_logs;
#[cfg(test)]
mod model;
#[cfg(test)]
mod nodes;
#[cfg(test)]
mod overlay;
#[cfg(test)]
mod pieces;
#[cfg(test)]
mod reads;
#[cfg(test)]
mod replaced;
#[cfg(test)]
mod scattered;
#[cfg(test)]
mod session_steps;
#[cfg(test)]
mod sessions;
#[cfg(test)]
mod settle;
#[cfg(test)]
mod strategies;
#[cfg(test)]
mod verify;

/// The number of cases of a property, by `BEDFORM_TESTS` (default, ci, nightly), as in the Python
/// tests.
#[cfg(test)]
fn cases(default: u32) -> proptest::test_runner::Config {
    let factor = match std::env::var("BEDFORM_TESTS").as_deref() {
        Ok("ci") => 4,
        Ok("nightly") => 100,
        _ => 1,
    };
    let mut config = proptest::test_runner::Config::with_cases(default * factor);
    config.failure_persistence = None;
    config
}

/// A limit that only a hanging test reaches.
#[cfg(test)]
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(600);

/// Waits until `condition` holds, for at most [`PATIENCE`]; `awaited` names the condition.
#[cfg(test)]
fn wait_until(awaited: &str, mut condition: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain until {awaited}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// An empty place: memory, or an object store.
#[cfg(test)]
fn place(is_remote: bool) -> std::sync::Arc<dyn bedform_storage::Storage> {
    if is_remote {
        let store = std::sync::Arc::new(object_store::memory::InMemory::new());
        let (mode, options) = (bedform_storage::Mode::ReadWrite, Default::default());
        let place = bedform_remote::RemoteStorage::new(store, "a/b", "s3://a/b", mode, &options);
        return std::sync::Arc::new(place);
    }
    std::sync::Arc::new(bedform_storage::MemoryStorage::new())
}
