//! Runs the fuzz targets on their seeds, and on every input that ever made one fail.

use std::path::Path;

use crate::frozen::load;

#[path = "../../../../fuzz/src/targets.rs"]
mod targets;

fn run_all(directory: &str) -> usize {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz").join(directory);
    let mut inputs = 0;
    for (name, target) in targets::TARGETS {
        let directory = root.join(name);
        if directory.is_dir() {
            for (file, bytes) in load(&directory) {
                println!("{name} {file}");
                target(&bytes);
                inputs += 1;
            }
        }
    }
    inputs
}

#[test]
fn seeds_and_crashers_keep_every_promise() {
    assert!(run_all("seeds") >= 16);
    let crashers = run_all("crashers");
    println!("{crashers} crashers");
}

#[test]
fn the_canary_fails_for_what_it_is_to_be_found_by() {
    targets::canary(b"be");
    assert!(std::panic::catch_unwind(|| targets::canary(b"bedform")).is_err());
}
