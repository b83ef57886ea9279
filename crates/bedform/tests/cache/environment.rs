//! The variable `BEDFORM_CACHE`.

use std::path::Path;
use std::process::Command;

use bedform::{ErrorKind, Freshness, Store, cache_statistics};

use super::support::*;

/// The test that runs in a process with the variable.
const TEST: &str = "environment::what_a_process_with_the_variable_does";
/// The variable that names the store to open there.
const STORE: &str = "BEDFORM_TEST_STORE";

/// Runs [`TEST`] with `BEDFORM_CACHE`, on the store at `path`.
fn succeeds(size: &str, path: &Path) -> bool {
    let mut test = Command::new(std::env::current_exe().unwrap());
    test.args([TEST, "--exact", "--ignored"]).env("BEDFORM_CACHE", size).env(STORE, path);
    let output = test.output().unwrap();
    String::from_utf8_lossy(&output.stdout).contains("1 passed")
}

#[test]
#[ignore = "run by the test below, in a process of its own"]
fn what_a_process_with_the_variable_does() {
    let path = std::env::var_os(STORE).unwrap();
    let opened = Store::open_path(Path::new(&path), options(64 << 20, Freshness::Read));
    match std::env::var("BEDFORM_CACHE").unwrap().as_str() {
        "much" => {
            let error = opened.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains("BEDFORM_CACHE"), "{error}");
        }
        size => {
            assert_eq!(cache_statistics().budget, bedform_format::size::parse(size).unwrap());
            // The program's setting overrides the variable.
            bedform::set_cache_budget(5000);
            Store::open_path(Path::new(&path), options(64 << 20, Freshness::Read)).unwrap();
            assert_eq!(cache_statistics().budget, 5000);
        }
    }
}

#[test]
fn the_variable_is_the_budget_unless_the_program_sets_one_and_what_is_no_size_is_an_error() {
    let _alone = alone();
    let directory = Directory::new();
    let at = directory.join("store.zarr");
    create(&at, 1, 1);
    for size in ["1.5 MiB", "0", "much"] {
        assert!(succeeds(size, &at), "{size}");
    }
}
