//! Measurement of the fixed costs of a read, a chunk and an object, by small reads of an array in
//! memory.

use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_geometry::Selection;
use bedform_storage::{MemoryStorage, Processor, ProcessorWork};
use serde_json::{Map, json};

use super::stopwatch::Stopwatch;
use crate::array::{Array, Elements};
use crate::calibrate::OtherWork;
use crate::error::Result;
use crate::options::OpenOptions;
use crate::store::Store;
use crate::zarr::NewArray;

const CHUNKS: u64 = 2048;
const OBJECTS: u64 = 256;
/// Elements of a chunk: 1 KiB.
const LENGTH: u64 = 256;

/// Measures the seconds of a read, a chunk and an object.
///
/// # Errors
/// None, because the storage in memory has none.
pub(super) fn measure(machine: &mut Processor, watch: &mut Stopwatch) -> Result<()> {
    let options = OpenOptions { threads: Some(1), cache_bytes: 0, ..OpenOptions::default() };
    let store = Store::create(Arc::new(MemoryStorage::new()), &Map::new(), options)?;
    let in_one = array(&store, "one", CHUNKS, CHUNKS)?;
    let apart = array(&store, "apart", OBJECTS, 1)?;
    machine.read_seconds = seconds_apart(&in_one, watch);
    let least_of_one = seconds_of(&in_one, 1, watch);
    let chunks = seconds_of(&in_one, CHUNKS * LENGTH, watch) - least_of_one;
    machine.chunk_seconds = least((chunks - in_memory(machine, CHUNKS)) / CHUNKS as f64);
    let objects = seconds_of(&apart, OBJECTS * LENGTH, watch) - least_of_one;
    let more = objects - in_memory(machine, OBJECTS) - OBJECTS as f64 * machine.chunk_seconds;
    machine.object_seconds += least(more / OBJECTS as f64);
    Ok(())
}

/// Seconds of a small read between other work, as in programs: the core's own caches are cold.
fn seconds_apart(array: &Array, watch: &mut Stopwatch) -> f64 {
    let (mut other, mut element) = (OtherWork::default(), [0; 4]);
    let selection = Selection::all(&[1]);
    watch.seconds_after(|| other.compute(), || drop(array.read(&selection, &mut element)))
}

fn least(seconds: f64) -> f64 {
    seconds.max(1e-8)
}

/// The seconds of decoding and copying for so many chunks.
fn in_memory(machine: &Processor, chunks: u64) -> f64 {
    let (count, bytes) = (chunks as f64, (chunks * LENGTH * 4) as f64);
    let work = ProcessorWork {
        runs: count,
        copied_bytes: bytes,
        decoding_seconds: machine.codec("crc32c").decoding(count, bytes, bytes),
        ..ProcessorWork::default()
    };
    let parts = machine.parts_of(&work);
    parts.decoding + parts.copying
}

fn array(store: &Store, name: &str, chunks: u64, in_shard: u64) -> Result<Array> {
    let description = json!({
        "shape": [chunks * LENGTH], "dtype": "float32", "chunks": [LENGTH], "shards": [in_shard * LENGTH],
        "codecs": ["crc32c"],
    });
    let new = NewArray::from_json(&description, &Default::default())?;
    let array = store.create_array(&ObjectPath::parse(name)?, &new)?;
    let bytes: Vec<u8> = (0..chunks * LENGTH).flat_map(|at| (at as f32).to_le_bytes()).collect();
    array.write(&Selection::all(&[chunks * LENGTH]), Elements::Bytes(&bytes))?;
    Ok(array)
}

fn seconds_of(array: &Array, elements: u64, watch: &mut Stopwatch) -> f64 {
    let mut buffer = vec![0; usize::try_from(elements).map_or(0, |elements| elements * 4)];
    let selection = Selection::all(&[elements]);
    watch.seconds(|| drop(array.read(&selection, &mut buffer)))
}
