//! Reads through a handle after another process has replaced or deleted the store or an array.

use std::path::{Path, PathBuf};

use bedform::comm::Alone;
use bedform::log::session::SessionOptions;
use bedform::store::StagedStore;
use bedform::{ArrayLayout, Elements, ErrorKind, Freshness, NewArray, OpenOptions, Store};
use bedform_format::metadata::FillValue;
use bedform_format::{DataType, ObjectPath};
use bedform_geometry::{Order, Selection};
use serde_json::Map;

/// The directory of one test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let directory =
            std::env::temp_dir().join(format!("bedform-replaced-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir(&directory).unwrap();
        Self(directory)
    }

    fn store(&self) -> PathBuf {
        self.0.join("s.zarr")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn options(freshness: Freshness) -> OpenOptions {
    let mut options = OpenOptions::default();
    (options.writable, options.freshness) = (true, freshness);
    options
}

fn open(path: &Path, freshness: Freshness) -> Store {
    Store::open_path(path, options(freshness)).unwrap()
}

fn t() -> ObjectPath {
    ObjectPath::parse("t").unwrap()
}

/// Writes eight bytes in two shards; the second shard is never written.
fn fill(store: &Store, value: u8) {
    let new = NewArray {
        shape: vec![8],
        data_type: DataType::UInt8,
        layout: ArrayLayout {
            chunk_shape: vec![2],
            shard_shape: vec![4],
            order: Order::RowMajor,
            serializer: None,
            codecs: vec![],
            transpose: None,
            checksum: true,
            keys: bedform_format::metadata::ChunkKeys::DEFAULT,
            choice: None,
        },
        fill_value: FillValue::Bytes(vec![9]),
        dimension_names: None,
        attributes: Map::new(),
    };
    let array = store.create_array(&t(), &new).unwrap();
    array.write(&first(), Elements::Bytes(&[value; 4])).unwrap();
}

fn first() -> Selection {
    bedform_geometry::Region::new([0], [4]).unwrap().into()
}

fn replace(path: &Path, value: u8) {
    let staged = StagedStore::create(path, true, &Map::new(), options(Freshness::Read)).unwrap();
    fill(staged.store(), value);
    staged.publish().unwrap();
}

#[test]
fn an_array_that_is_gone_is_a_conflict_and_one_with_shards_that_were_never_written_is_read() {
    let all = Selection::all(&[8]);
    for freshness in [Freshness::Open, Freshness::Never, Freshness::Read] {
        for is_replaced in [true, false] {
            let scratch = Scratch::new("gone");
            fill(
                &Store::create_path(&scratch.store(), &Map::new(), options(freshness)).unwrap(),
                1,
            );
            let array = open(&scratch.store(), freshness).array(&t()).unwrap();
            let mut found = [0; 8];
            array.read(&all, &mut found).unwrap();
            assert_eq!(found, [1, 1, 1, 1, 9, 9, 9, 9]);
            // A document changed by another handle still belongs to the same array.
            let mut attributes = Map::new();
            attributes.insert("a".to_owned(), 1.into());
            open(&scratch.store(), Freshness::Read).set_attributes(&t(), attributes).unwrap();
            array.read(&all, &mut found).unwrap();
            match is_replaced {
                true => replace(&scratch.store(), 2),
                false => open(&scratch.store(), Freshness::Read).delete(&t()).unwrap(),
            }
            let outcome = array.read(&all, &mut found);
            let kind = outcome.unwrap_err().kind();
            let expected = [ErrorKind::Conflict, ErrorKind::NotFound];
            assert!(expected.contains(&kind), "{kind:?} {freshness:?} {is_replaced}");
            if is_replaced {
                let again = open(&scratch.store(), freshness).array(&t()).unwrap();
                again.read(&all, &mut found).unwrap();
                assert_eq!(found, [2, 2, 2, 2, 9, 9, 9, 9]);
            }
        }
    }
}

#[test]
fn a_store_that_is_replaced_takes_its_log_with_it_and_leaves_that_of_its_successor() {
    let scratch = Scratch::new("log");
    let log = scratch.0.join("s.zarr.bedform-log");
    let commit = |value: u8| {
        let store = open(&scratch.store(), Freshness::Read);
        let mut session = store.session(Box::new(Alone), SessionOptions::default()).unwrap();
        session.write(&t(), &first(), Elements::Bytes(&[value; 4])).unwrap();
        session.commit().unwrap();
    };
    fill(&Store::create_path(&scratch.store(), &Map::new(), options(Freshness::Read)).unwrap(), 1);
    for round in 0..3 {
        commit(10 + round);
        assert!(log.is_dir());
        replace(&scratch.store(), 20 + round);
        assert!(!log.exists());
        let names = std::fs::read_dir(&scratch.0).unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = names.filter(|name| name != "s.zarr").collect();
        assert!(left.is_empty(), "{left:?}");
        let mut found = [0; 4];
        let read = |found: &mut [u8]| {
            let store = open(&scratch.store(), Freshness::Read);
            store.array(&t()).unwrap().read(&first(), found).unwrap();
        };
        read(&mut found);
        assert_eq!(found, [20 + round; 4]);
        commit(30 + round);
        read(&mut found);
        assert_eq!(found, [30 + round; 4]);
        open(&scratch.store(), Freshness::Read).settle().unwrap();
    }
}
