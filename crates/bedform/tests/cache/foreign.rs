//! The cache of chunks of foreign files.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bedform::foreign::{Callback, source_version};
use bedform::{Array, ErrorKind, ForeignFile, Freshness};
use bedform_format::chunk_map::{
    ChunkMap, ChunkTable, ForeignArray, ForeignEncoding, ForeignStorage,
};
use bedform_format::{BytesCodec, DataType, Endian, ObjectPath};
use bedform_geometry::Region;
use bedform_storage::{Condition, Durability, MemoryStorage, Storage};

use super::support::*;

const CHUNKS_OF_FILE: u64 = 6;

/// A file of one variable `v` in zlib chunks, and its chunk map.
fn file(storage: &Arc<dyn Storage>, name: &ObjectPath, elements: &[u8]) -> ChunkMap {
    let (mut bytes, mut chunks) = (b"head".to_vec(), ChunkTable::default());
    for (index, chunk) in (0..).zip(elements.chunks(usize::try_from(CHUNK).unwrap())) {
        let start = bytes.len() as u64;
        let level = flate2::Compression::new(1);
        let mut encoder = flate2::write::ZlibEncoder::new(&mut bytes, level);
        encoder.write_all(chunk).unwrap();
        encoder.finish().unwrap();
        chunks.indexes.push(index);
        chunks.offsets.push(start);
        chunks.lengths.push(bytes.len() as u64 - start);
        chunks.filter_masks.push(0);
    }
    storage.put(name, &bytes, Durability::Process, Condition::None).unwrap();
    let codecs = vec![BytesCodec::Zlib { level: 1 }];
    let variable = ForeignArray {
        path: "v".to_owned(),
        shape: vec![elements.len() as u64],
        unlimited: vec![false],
        data_type: Some(DataType::UInt8),
        endian: Endian::Little,
        fill_value: None,
        dimension_names: None,
        attributes: Vec::new(),
        encoding: ForeignEncoding::default(),
        storage: ForeignStorage::Chunked { chunk_shape: vec![CHUNK], codecs, chunks },
    };
    ChunkMap {
        source: source_version(&storage.stat(name).unwrap()),
        groups: Vec::new(),
        arrays: vec![variable],
        format: "hdf5".to_owned(),
    }
}

fn open(storage: &Arc<dyn Storage>, name: &ObjectPath, map: &ChunkMap, cap: u64) -> Array {
    let options = options(cap, Freshness::Read);
    let file = ForeignFile::new(storage.clone(), name.clone(), map.clone(), &options).unwrap();
    Array::of_file(&file, "v").unwrap()
}

#[test]
fn a_second_handle_on_a_file_decodes_no_chunk_again() {
    let _alone = alone();
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let name = ObjectPath::parse("f.nc").unwrap();
    for seed in 1..3 {
        let elements = content(CHUNKS_OF_FILE * CHUNK, seed);
        let map = file(&storage, &name, &elements);
        let array = open(&storage, &name, &map, 1 << 20);
        assert_eq!(decoded(&array, &elements), CHUNKS_OF_FILE);
        assert_eq!(decoded(&array, &elements), 0);
        assert_eq!(decoded(&open(&storage, &name, &map, 1 << 20), &elements), 0);
        assert_eq!(decoded(&open(&storage, &name, &map, 0), &elements), CHUNKS_OF_FILE);
    }
}

#[test]
fn a_callback_is_called_once_for_a_version_of_its_file_and_again_for_the_next() {
    let _alone = alone();
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let name = ObjectPath::parse("f.nc").unwrap();
    let calls = Arc::new(AtomicU64::new(0));
    let open = |seed, is_kept: bool| {
        let mut map = file(&storage, &name, &content(CHUNKS_OF_FILE * CHUNK, seed));
        let reason = "its filter is not known".to_owned();
        map.arrays[0].storage = ForeignStorage::Native { reason };
        let options = options(64 << 20, Freshness::Read);
        let opened = ForeignFile::new(storage.clone(), name.clone(), map, &options).unwrap();
        let calls = calls.clone();
        let callback = Callback::new(Arc::new(move |region: &Region, buffer: &mut [u8]| {
            calls.fetch_add(1, Ordering::Relaxed);
            let all = content(CHUNKS_OF_FILE * CHUNK, seed);
            let start = usize::try_from(region.start()[0]).unwrap();
            buffer.copy_from_slice(&all[start..start + buffer.len()]);
            Ok(())
        }));
        let callback = if is_kept { callback } else { callback.not_kept() };
        move || Array::of_file_by(&opened, "v", callback.clone()).unwrap()
    };
    let read_all = |array: &Array, seed| {
        decoded(array, &content(CHUNKS_OF_FILE * CHUNK, seed));
        calls.swap(0, Ordering::Relaxed)
    };
    let first = open(1, true);
    assert_eq!(read_all(&first(), 1), 1);
    assert_eq!(read_all(&first(), 1), 0, "another handle of the file finds what was kept");
    let second = open(2, true);
    assert_eq!(read_all(&second(), 2), 1);
    let mut buffer = vec![0; 8];
    let stale = first().read(&part(0, 8), &mut buffer).unwrap_err();
    assert_eq!(stale.kind(), ErrorKind::Conflict);
    let third = open(3, false);
    assert_eq!((read_all(&third(), 3), read_all(&third(), 3)), (1, 1));
}
