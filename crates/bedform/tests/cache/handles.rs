//! The cache entries that handles of one store share, and their invalidation by changes.

use std::sync::Arc;

use bedform::{Elements, Freshness, Store};
use bedform_format::BytesCodec;
use bedform_storage::{MemoryStorage, Storage};
use serde_json::{Map, json};

use super::support::*;

/// The cap of a handle: several times the bytes that these tests read.
const CAP: u64 = 64 << 20;
const ALL: [Freshness; 3] = [Freshness::Read, Freshness::Open, Freshness::Never];

#[test]
fn a_second_handle_decodes_no_chunk_again() {
    let _alone = alone();
    let directory = Directory::new();
    let at = directory.join("store.zarr");
    let expected = create(&at, 8, 1);
    let_grow_old();
    assert_eq!(decoded(&open(&at, options(CAP, Freshness::Read)), &expected), 32);
    for freshness in ALL {
        let array = open(&at, options(CAP, freshness));
        let (found, statistics) = read(&array, 0, expected.len() as u64);
        assert!(found == expected);
        assert_eq!((statistics.chunks, statistics.requests, statistics.bytes), (0, 0, 0));
    }
    let mut again = options(CAP, Freshness::Read);
    again.writable = true;
    assert_eq!(decoded(&open(&at, again), &expected), 0);
    assert_eq!(decoded(&open(&at, options(0, Freshness::Read)), &expected), 32, "a bypass");
}

#[test]
fn a_large_read_keeps_no_chunks_that_it_took_whole_and_that_are_decoded_again_soon() {
    let _alone = alone();
    // Another test may have set a smaller budget.
    bedform::set_cache_budget(CAP);
    let (length, chunk) = (12 << 20, 1 << 20);
    // Random bytes do not compress; gzip decodes slowest.
    let mut state = 1_u64;
    let byte = |_| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        state.to_be_bytes()[0]
    };
    let random: Vec<u8> = (0..length).map(byte).collect();
    let even = content(length, 1);
    let again = |codec: BytesCodec, expected: &[u8], (start, count): (u64, u64), name: &str| {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let store = Store::create(storage.clone(), &Map::new(), writable()).unwrap();
        let mut new = new_array(1);
        new.shape = vec![length];
        new.layout.chunk_shape = vec![chunk];
        new.layout.shard_shape = vec![length];
        new.layout.codecs = vec![codec];
        write(&store.create_array(&path(), &new).unwrap(), 0, expected);
        let_grow_old();
        let mut options = options(CAP, Freshness::Read);
        options.profile = Some(bedform_storage::Profile::default_local());
        let array = Store::open(storage, options).unwrap().array(&path()).unwrap();
        let (found, statistics) = read(&array, start, count);
        let [from, to] = [start, start + count].map(|at| usize::try_from(at).unwrap());
        assert!(found == expected[from..to], "{name}");
        assert_eq!(statistics.chunks, count.div_ceil(chunk), "{name}");
        decoded(&array, expected)
    };
    let zstd = BytesCodec::Zstd { level: 1, checksum: false };
    let soon = |part, name| again(zstd, &even, part, name);
    assert_eq!(soon((0, length), "all"), 12);
    assert_eq!(soon((10, length - 10), "the first chunk in part"), 11);
    assert_eq!(soon((0, 8 << 20), "a small read"), 4);
    let gzip = BytesCodec::Gzip { level: 1 };
    assert_eq!(again(gzip, &random, (0, length), "all, decoded late"), 0);
}

#[test]
fn a_second_handle_decodes_no_block_of_a_log_again() {
    let _alone = alone();
    let directory = Directory::new();
    let at = directory.join("store.zarr");
    let mut expected = create(&at, 2, 1);
    let_grow_old();
    let newer = content(CHUNK * 3, 5);
    commit(&at, 100, &newer);
    expected[100..100 + newer.len()].copy_from_slice(&newer);
    assert!(decoded(&open(&at, options(CAP, Freshness::Read)), &expected) > 0);
    assert_eq!(decoded(&open(&at, options(CAP, Freshness::Read)), &expected), 0);
    // A later commit does not affect older blocks.
    commit(&at, 0, &[7; 100]);
    expected[..100].fill(7);
    assert_eq!(decoded(&open(&at, options(CAP, Freshness::Read)), &expected), 1);
}

#[test]
fn handles_of_one_place_in_memory_share_and_those_of_two_do_not() {
    let _alone = alone();
    let storages: [Arc<dyn Storage>; 2] = [(); 2].map(|()| Arc::new(MemoryStorage::new()) as _);
    for (storage, seed) in storages.iter().zip(1..) {
        let store = Store::create(storage.clone(), &Map::new(), writable()).unwrap();
        let array = store.create_array(&path(), &new_array(2)).unwrap();
        write(&array, 0, &content(8 * CHUNK, seed));
        for expected in [8, 0] {
            let store = Store::open(storage.clone(), options(CAP, Freshness::Read)).unwrap();
            let array = store.array(&path()).unwrap();
            assert_eq!(decoded(&array, &content(8 * CHUNK, seed)), expected);
        }
    }
}

#[test]
fn changes_of_metadata_orphan_nothing() {
    let _alone = alone();
    let directory = Directory::new();
    let at = directory.join("store.zarr");
    let mut expected = create(&at, 4, 1);
    let_grow_old();
    let array = open(&at, options(CAP, Freshness::Read));
    assert_eq!(decoded(&array, &expected), 16);
    let store = Store::open_path(&at, writable()).unwrap();
    let attributes = json!({"units": "K"}).as_object().cloned().unwrap();
    store.set_attributes(&path(), attributes).unwrap();
    assert_eq!(decoded(&array, &expected), 0, "attributes");
    let more = content(CHUNKS * CHUNK, 9);
    let elements = Elements::Bytes(&more);
    store.array(&path()).unwrap().append(0, &[CHUNKS * CHUNK], elements).unwrap();
    expected.extend(more);
    let_grow_old();
    assert_eq!(decoded(&array, &expected), CHUNKS, "an append");
    store.array(&path()).unwrap().resize(&[2 * CHUNKS * CHUNK]).unwrap();
    expected.truncate(usize::try_from(2 * CHUNKS * CHUNK).unwrap());
    assert_eq!(decoded(&array, &expected), 0, "a smaller shape");
    store.array(&path()).unwrap().resize(&[3 * CHUNKS * CHUNK]).unwrap();
    expected.resize(expected.len() + usize::try_from(CHUNKS * CHUNK).unwrap(), 0);
    assert_eq!(decoded(&array, &expected), 0, "a larger shape");
}

#[test]
fn a_write_is_seen_by_all_handles_and_only_its_shard_is_decoded_again() {
    let _alone = alone();
    let directory = Directory::new();
    let at = directory.join("store.zarr");
    let mut expected = create(&at, 4, 1);
    let_grow_old();
    let handles = [(); 2].map(|()| open(&at, options(CAP, Freshness::Read)));
    assert_eq!(decoded(&handles[0], &expected), 16);
    for round in 0..50_u8 {
        write(&open(&at, writable()), 5, &[round; 10]);
        expected[5..15].fill(round);
        let counts = [0, 1].map(|at| decoded(&handles[at], &expected));
        assert!(counts[0] <= CHUNKS && counts[1] <= CHUNKS, "{counts:?}");
    }
    // A busy machine may have let the last shard grow old before it was read: then it is kept.
    let_grow_old();
    let counts = [0, 1].map(|at| decoded(&handles[at], &expected));
    assert!(matches!(counts, [0 | CHUNKS, 0]), "{counts:?}");
}

/// File times have steps of milliseconds, and a new file may get the number of a deleted one. So
/// two versions of a shard can have the same time and number.
#[test]
fn writes_that_follow_each_other_at_once_are_told_apart() {
    let _alone = alone();
    let directory = Directory::new();
    let at = directory.join("store.zarr");
    create(&at, 1, 1);
    let array = open(&at, options(CAP, Freshness::Read));
    let writer = open(&at, writable());
    for round in 0..300_u16 {
        let value = round.to_le_bytes()[0];
        for later in 0..3 {
            write(&writer, 0, &[value.wrapping_add(later)]);
        }
        assert_eq!(read(&array, 0, 1).0, [value.wrapping_add(2)], "round {round}");
    }
}

#[test]
fn an_array_in_the_place_of_another_one_is_itself() {
    let _alone = alone();
    let directory = Directory::new();
    let at = directory.join("store.zarr");
    create(&at, 2, 1);
    let length = 2 * CHUNKS * CHUNK;
    for seed in 2..10 {
        let store = Store::open_path(&at, writable()).unwrap();
        store.delete(&path()).unwrap();
        let mut new = new_array(2);
        if seed % 2 == 0 {
            new.layout.codecs = vec![BytesCodec::Gzip { level: 1 }];
        }
        let array = store.create_array(&path(), &new).unwrap();
        write(&array, 0, &content(length, seed));
        let array = open(&at, options(CAP, Freshness::Read));
        assert_eq!(decoded(&array, &content(length, seed)), 8);
    }
}
