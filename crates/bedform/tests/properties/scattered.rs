//! Reads of data in many places of a log, with extents large enough for direct reads.

use std::path::PathBuf;
use std::sync::Arc;

use bedform::comm::threads;
use bedform::log::session::SessionOptions;
use bedform::{Array, ArrayLayout, Elements, ErrorKind, NewArray, OpenOptions, Store};
use bedform_format::DataType;
use bedform_format::metadata::FillValue;
use bedform_geometry::{Order, Region, Selection};
use bedform_storage::{LocalStorage, Mode};

use super::arrays::path;
use super::model::Numbers;

/// The number of rows, and bytes per row. A box with a part of each row has as many extents as
/// rows.
const ROWS: u64 = 48;
const COLUMNS: u64 = 128 << 10;

/// A store on a disk whose log has all rows, then some boxes again. It is removed on drop.
struct Scattered {
    directory: PathBuf,
    /// The expected elements.
    model: Vec<u8>,
}

impl Scattered {
    fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("bedform-{name}-{}", std::process::id()));
        std::fs::create_dir_all(directory.join("s.zarr")).unwrap();
        let mut own = Self { directory, model: vec![0; index(ROWS * COLUMNS)] };
        let store = Store::create(own.storage(), &serde_json::Map::new(), writable()).unwrap();
        let layout = ArrayLayout {
            chunk_shape: vec![16, 32 << 10],
            shard_shape: vec![ROWS, COLUMNS],
            order: Order::RowMajor,
            serializer: None,
            codecs: vec![],
            transpose: None,
            checksum: true,
            keys: bedform_format::metadata::ChunkKeys::DEFAULT,
            choice: None,
        };
        let new = NewArray {
            shape: vec![ROWS, COLUMNS],
            data_type: DataType::UInt8,
            layout,
            fill_value: FillValue::zero(DataType::UInt8),
            dimension_names: None,
            attributes: serde_json::Map::new(),
        };
        store.create_array(&path(), &new).unwrap();
        let half = ROWS / 2;
        own.commit(&store, &[([0, 0], [half, COLUMNS]), ([half, 0], [half, COLUMNS])]);
        // Newer boxes divide the older data into extents of all lengths.
        own.commit(&store, &[([5, 40_000], [20, 300]), ([30, 7], [9, 60_000])]);
        own
    }

    fn storage(&self) -> Arc<LocalStorage> {
        Arc::new(LocalStorage::open(&self.directory.join("s.zarr"), Mode::ReadWrite).unwrap())
    }

    /// Writes random bytes to some boxes, in a session of their own.
    fn commit(&mut self, store: &Store, boxes: &[([u64; 2], [u64; 2])]) {
        let member = threads(1).pop().unwrap();
        let mut session = store.session(Box::new(member), SessionOptions::default()).unwrap();
        for (start, shape) in boxes {
            let numbers = &mut Numbers(start[0] * 7 + shape[1]);
            let bytes: Vec<u8> =
                (0..shape[0] * shape[1]).map(|_| numbers.below(256).to_le_bytes()[0]).collect();
            session.write(&path(), &part(*start, *shape), Elements::Bytes(&bytes)).unwrap();
            for (row, bytes) in (start[0]..).zip(bytes.chunks(index(shape[1]))) {
                let at = index(row * COLUMNS + start[1]);
                self.model[at..at + bytes.len()].copy_from_slice(bytes);
            }
        }
        session.commit().unwrap();
    }

    /// Opens the array without any cached data.
    fn array(&self) -> Array {
        let mut options = OpenOptions::default();
        options.commits_named = 2;
        options.cache_bytes = 0;
        Store::open(self.storage(), options).unwrap().array(&path()).unwrap()
    }

    fn expected(&self, start: [u64; 2], shape: [u64; 2]) -> Vec<u8> {
        let rows = start[0]..start[0] + shape[0];
        let rows = rows.map(|row| index(row * COLUMNS + start[1]));
        rows.flat_map(|at| self.model[at..at + index(shape[1])].iter().copied()).collect()
    }

    /// Returns the files with the data of the log.
    fn segments(&self) -> Vec<PathBuf> {
        let all = self.directory.join("s.zarr.bedform-log/segments");
        std::fs::read_dir(all).unwrap().map(|found| found.unwrap().path().join("data")).collect()
    }

    /// Drops the log from the page cache, as far as the system allows.
    fn forget(&self) {
        for segment in self.segments() {
            let file = std::fs::File::open(segment).unwrap();
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        }
    }
}

impl Drop for Scattered {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn writable() -> OpenOptions {
    let mut options = OpenOptions::default();
    options.commits_named = 2;
    options.writable = true;
    options
}

fn part(start: [u64; 2], shape: [u64; 2]) -> Selection {
    Selection::from(Region::new(start.to_vec(), shape.to_vec()).unwrap())
}

fn index(value: u64) -> usize {
    usize::try_from(value).unwrap()
}

/// Pages that an earlier read left in the page cache make some extents of a unit buffered reads,
/// and others direct reads.
#[test]
fn a_box_in_many_places_of_the_log_is_the_same_from_the_disk_the_page_cache_and_both() {
    let store = Scattered::new("scattered");
    let numbers = &mut Numbers(20_261_122);
    for round in 0..12 {
        // In the narrowest boxes, each extent is one block of the log.
        let width = [1, 1000, 40_000, 70_000][round % 4] + numbers.below(20_000);
        let start = [numbers.below(8), numbers.below(COLUMNS - width)];
        let shape = [ROWS - start[0] - numbers.below(8), width];
        store.forget();
        let expected = store.expected(start, shape);
        let mut counts = Vec::new();
        for temperature in ["cold", "read once", "read twice"] {
            let mut bytes = vec![0; expected.len()];
            let array = store.array();
            let done = array.read(&part(start, shape), &mut bytes).unwrap();
            assert!(bytes == expected, "{temperature}: {start:?} {shape:?}");
            counts.push((done.requests, done.bytes, done.chunks));
        }
        assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
    }
}

#[test]
fn a_damaged_block_among_many_is_an_error_that_names_its_place_cold_and_warm() {
    let store = Scattered::new("scattered-damage");
    let selection = part([0, 0], [ROWS, 64 << 10]);
    let mut bytes = vec![0; index(ROWS * (64 << 10))];
    for segment in store.segments() {
        let mut stored = std::fs::read(&segment).unwrap();
        if stored.len() < bytes.len() {
            continue; // That of the newer boxes.
        }
        stored[index(20 * COLUMNS) + 9000] ^= 4;
        std::fs::write(&segment, stored).unwrap();
        std::fs::File::open(&segment).unwrap().sync_all().unwrap();
    }
    store.forget();
    for temperature in ["cold", "read once"] {
        let error = store.array().read(&selection, &mut bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{temperature}");
        let text = error.to_string();
        assert!(text.contains("/segments/") && text.contains("checksum"), "{text}");
    }
}
