//! Policies of a store whose reads change from run to run.

use std::fs;
use std::path::PathBuf;

use bedform_format::{Limits, ObjectPath};
use bedform_geometry::{Region, Selection};
use serde_json::{Map, json};

use super::{run_policy, set_policy};
use crate::array::Elements;
use crate::options::OpenOptions;
use crate::replica::{Replica, replicas_in};
use crate::sidecar::Sidecar;
use crate::store::Store;
use crate::trace::watch;
use crate::zarr::NewArray;

const SHAPE: [u64; 3] = [400, 40, 40];

/// A store of maps of noise whose reads are recorded.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let place = std::env::temp_dir().join(format!("bedform-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(&place).unwrap();
        let scratch = Self(place);
        let options = OpenOptions { writable: true, ..OpenOptions::default() };
        let store = Store::create_path(&scratch.path(), &Map::new(), options).unwrap();
        let described = json!({
            "shape": SHAPE, "dtype": "uint32", "chunks": [1, 40, 40], "shards": [400, 40, 40],
            "codecs": ["zstd"],
        });
        let new = NewArray::from_json(&described, &Limits::default()).unwrap();
        let array = store.create_array(&name_of_array(), &new).unwrap();
        let noise = |at: u64| at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        let values: Vec<u8> =
            (0..SHAPE.iter().product()).flat_map(|at| noise(at)[3..7].to_vec()).collect();
        array.write(&Selection::all(&SHAPE), Elements::Bytes(&values)).unwrap();
        watch(&scratch.path(), true).unwrap();
        set_policy(&scratch.path(), u64::MAX, Some("400%")).unwrap();
        scratch
    }

    fn path(&self) -> PathBuf {
        self.0.join("s.zarr")
    }

    /// Reads series of `length` times at all places of a box of rows and columns, runs the policy,
    /// and returns the replicas that it made, and all that there are.
    fn read(&self, length: u64, rows: u64, columns: u64) -> (Vec<String>, Vec<Replica>) {
        let options = OpenOptions { replicas: false, ..OpenOptions::default() };
        let array = Store::open_path(&self.path(), options).unwrap();
        let array = array.array(&name_of_array()).unwrap();
        let mut series = vec![0; 4 * usize::try_from(length).unwrap()];
        for at in 0..rows * columns {
            let place = Region::new([0, at / columns, at % columns], [length, 1, 1]).unwrap();
            array.read(&Selection::from(&place), &mut series).unwrap();
        }
        drop(array);
        let outcome = run_policy(&self.path()).unwrap().unwrap();
        assert_eq!(outcome.error, "");
        let sidecar = Sidecar::of_path(&self.path()).unwrap().unwrap();
        (outcome.made, replicas_in(&sidecar, &Limits::default()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn name_of_array() -> ObjectPath {
    ObjectPath::parse("t").unwrap()
}

#[test]
fn a_replica_of_a_larger_region_takes_the_place_of_the_one_that_it_contains() {
    let place = Scratch::new("policy-larger-region");
    for rows in [6, 8, 11] {
        let (made, all) = place.read(SHAPE[0], rows, 8);
        assert_eq!((made.len(), all.len()), (1, 1), "{rows} rows");
        assert_eq!(all[0].held.shape(), [SHAPE[0], rows, 8]);
    }
    let (made, all) = place.read(SHAPE[0], 11, 8);
    assert_eq!((made.len(), all.len()), (0, 1), "the same reads again");
}

#[test]
fn reads_of_nearly_the_same_lengths_are_served_by_the_replica_that_exists() {
    let place = Scratch::new("policy-nearly-the-same");
    let (made, all) = place.read(SHAPE[0], 6, 8);
    assert_eq!((made.len(), all.len()), (1, 1));
    for shorter in [1, 7, 30] {
        let (made, all) = place.read(SHAPE[0] - shorter, 6, 8);
        assert_eq!((made.len(), all.len()), (0, 1), "{shorter} fewer");
    }
}
