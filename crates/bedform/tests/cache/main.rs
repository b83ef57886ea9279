//! The process-wide cache, as stores, files and logs use it.
//!
//! These tests have a process of their own: the handles open in it determine the budget, and they
//! fork.

#![allow(clippy::disallowed_methods, reason = "tests make files of their own")]

#[cfg(test)]
mod budget;
#[cfg(test)]
mod environment;
#[cfg(test)]
mod foreign;
#[cfg(test)]
mod handles;

#[cfg(test)]
mod support {
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use bedform::comm::threads;
    use bedform::log::session::SessionOptions;
    use bedform::{
        Array, ArrayLayout, Elements, Freshness, NewArray, OpenOptions, ReadStatistics, Store,
    };
    use bedform_format::metadata::FillValue;
    use bedform_format::{BytesCodec, DataType, ObjectPath};
    use bedform_geometry::{Order, Region, Selection};
    use bedform_storage::Durability;
    use serde_json::Map;

    /// Serializes the tests, which share the cache. A forked child does not take this lock.
    pub(crate) fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A directory that is removed after the test.
    pub(crate) struct Directory(PathBuf);

    impl Directory {
        pub(crate) fn new() -> Self {
            static NEXT: AtomicU64 = AtomicU64::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("bedform-cache-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        pub(crate) fn join(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    pub(crate) fn options(cache_bytes: u64, freshness: Freshness) -> OpenOptions {
        let mut options = OpenOptions::default();
        options.cache_bytes = cache_bytes;
        options.freshness = freshness;
        options.durability = Durability::Process;
        options
    }

    pub(crate) fn writable() -> OpenOptions {
        let mut options = options(0, Freshness::Read);
        options.writable = true;
        options
    }

    /// Bytes of a chunk of these arrays.
    pub(crate) const CHUNK: u64 = 4096;
    /// Chunks of a shard.
    pub(crate) const CHUNKS: u64 = 4;

    /// An array of bytes, of `shards` shards.
    pub(crate) fn new_array(shards: u64) -> NewArray {
        NewArray {
            shape: vec![shards * CHUNKS * CHUNK],
            data_type: DataType::UInt8,
            layout: ArrayLayout {
                chunk_shape: vec![CHUNK],
                shard_shape: vec![CHUNKS * CHUNK],
                order: Order::RowMajor,
                codecs: vec![BytesCodec::Zstd { level: 1, checksum: false }],
                keys: bedform_format::metadata::ChunkKeys::DEFAULT,
                transpose: None,
                serializer: None,
                checksum: true,
                choice: None,
            },
            fill_value: FillValue::zero(DataType::UInt8),
            dimension_names: None,
            attributes: Map::new(),
        }
    }

    pub(crate) fn path() -> ObjectPath {
        ObjectPath::parse("a").unwrap()
    }

    pub(crate) fn part(start: u64, length: u64) -> Selection {
        Selection::from(Region::new(vec![start], vec![length]).unwrap())
    }

    /// Bytes that differ from store to store.
    pub(crate) fn content(length: u64, seed: u64) -> Vec<u8> {
        (0..length).map(|at| (at.wrapping_mul(seed * 2 + 1) >> 3).to_le_bytes()[0]).collect()
    }

    /// A store with one array of `shards` shards.
    pub(crate) fn create(at: &Path, shards: u64, seed: u64) -> Vec<u8> {
        let store = Store::create_path(at, &Map::new(), writable()).unwrap();
        let array = store.create_array(&path(), &new_array(shards)).unwrap();
        let bytes = content(shards * CHUNKS * CHUNK, seed);
        write(&array, 0, &bytes);
        bytes
    }

    pub(crate) fn write(array: &Array, start: u64, bytes: &[u8]) {
        let selection = part(start, bytes.len() as u64);
        array.write(&selection, Elements::Bytes(bytes)).unwrap();
    }

    /// Commits `bytes` at `start` and leaves them in the log.
    pub(crate) fn commit(at: &Path, start: u64, bytes: &[u8]) {
        let store = Store::open_path(at, writable()).unwrap();
        let member = threads(1).pop().unwrap();
        let mut session = store.session(Box::new(member), SessionOptions::default()).unwrap();
        let selection = part(start, bytes.len() as u64);
        session.write(&path(), &selection, Elements::Bytes(bytes)).unwrap();
        session.commit().unwrap();
    }

    pub(crate) fn open(at: &Path, options: OpenOptions) -> Array {
        Store::open_path(at, options).unwrap().array(&path()).unwrap()
    }

    pub(crate) fn read(array: &Array, start: u64, length: u64) -> (Vec<u8>, ReadStatistics) {
        let mut buffer = vec![0; usize::try_from(length).unwrap()];
        let statistics = array.read(&part(start, length), &mut buffer).unwrap();
        (buffer, statistics)
    }

    /// Waits until the last write is old enough for the cache.
    pub(crate) fn let_grow_old() {
        std::thread::sleep(std::time::Duration::from_millis(40));
    }

    /// Reads all of an array, checks it, and returns the number of decoded chunks.
    pub(crate) fn decoded(array: &Array, expected: &[u8]) -> u64 {
        let (found, statistics) = read(array, 0, expected.len() as u64);
        assert!(found == expected, "{} has other elements", array.name());
        statistics.chunks
    }
}
