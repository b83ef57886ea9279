//! Settling stays within its memory budget plus 64 MiB, for any data.

use std::path::Path;

use bedform::comm::Alone;
use bedform::log::session::{AtEnd, SessionOptions};
use bedform::log::settle::SettleOptions;
use bedform::{Elements, NewArray, Store};
use bedform_format::ObjectPath;
use serde_json::Map;

use crate::child::peak_bytes;
use crate::model::{ArrayModel, bytes, form, new_array, options, region, values};
use crate::roles::process;
use crate::support::{Scratch, count, effort, path};

/// The bytes that settling may take above its memory budget.
const BESIDE_BYTES: u64 = 64 << 20;

fn array(shape: &[u64], chunk: &[u64], shard: &[u64], codec: &'static str) -> NewArray {
    // The model has no values: they would be as many as the array has.
    new_array(&ArrayModel { shape: shape.to_vec(), ..form(&[], chunk, shard, codec) })
}

/// A store in `root` with arrays that are committed, in blocks of rows, and unsettled.
fn commit(root: &Path, arrays: &[(ObjectPath, NewArray)], (shape, rows): (&[u64], u64)) {
    let store = Store::create_path(root, &Map::new(), options(true)).unwrap();
    let mut session = SessionOptions::default();
    session.at_end = AtEnd::Leave;
    let mut session = store.session(Box::new(Alone), session).unwrap();
    session.create_arrays(arrays).unwrap();
    let mut block = shape.to_vec();
    block[0] = rows;
    for (seed, (name, _)) in (0..).zip(arrays) {
        for first in (0..shape[0]).step_by(rows.try_into().unwrap()) {
            let mut start = vec![0; shape.len()];
            start[0] = first;
            let new = bytes(&values(seed + first, block.iter().product()));
            session.write(name, &region(&start, &block), Elements::Bytes(&new)).unwrap();
        }
    }
    session.commit().unwrap();
    session.close().unwrap();
}

/// Settles the store with a budget in MiB, and prints the growth of the process and the number of
/// written objects.
pub(crate) fn settle_within(root: &Path, arguments: &[u64]) {
    let store = Store::open_path(root, options(true)).unwrap();
    let mut settle = SettleOptions::default();
    settle.memory_bytes = arguments[0] << 20;
    let before = peak_bytes();
    let settled = store.settle_with(&settle, &|_, _| ()).unwrap();
    println!("\nSETTLED {} {}", peak_bytes() - before, settled.objects);
}

fn check(root: &Path, mebibytes: u64, objects: u64) {
    let output = process("settle", root, &[mebibytes]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = text.lines().find_map(|line| line.strip_prefix("SETTLED "));
    let said = said.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
    let (grown, settled) = said.split_once(' ').unwrap();
    let grown: u64 = grown.parse().unwrap();
    assert_eq!(settled, objects.to_string());
    assert!(grown <= (mebibytes << 20) + BESIDE_BYTES, "{mebibytes} MiB: grew by {grown} bytes");
}

#[test]
#[ignore = "a stage of make reliability"]
fn small_arrays_are_settled_within_the_limit() {
    let number: u64 = effort(2000, 5000);
    let scratch = Scratch::new("small-arrays");
    let of = |at| (path(&format!("a{at}")), array(&[32, 10], &[8, 10], &[32, 10], ""));
    let arrays: Vec<_> = (0..number).map(of).collect();
    let root = scratch.0.join("run.zarr");
    commit(&root, &arrays, (&[32, 10], 32));
    check(&root, 256, number);
    count("arrays-settled", number);
}

#[test]
#[ignore = "a stage of make reliability"]
fn large_chunks_are_settled_within_limits_that_they_do_and_do_not_fit_into() {
    let edge: u64 = 512;
    let shape = [edge; 3];
    let shards = [128, 256, 256];
    let objects = (edge / 128) * (edge / 256) * (edge / 256);
    for mebibytes in [32, 64, 256] {
        let scratch = Scratch::new("large-chunks");
        let root = scratch.0.join("run.zarr");
        let arrays = [(path("t"), array(&shape, &[64, 64, 64], &shards, "zstd"))];
        commit(&root, &arrays, (&shape, 32));
        check(&root, mebibytes, objects);
        count("limits-held", 1);
    }
}
