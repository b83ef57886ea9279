//! A read fetches each needed byte once and no unneeded one, as `explain` predicts.
//!
//! The definitions give the needed bytes: those of raw elements, and whole chunks of encoded ones.
//! Between two needed bytes, a read may include a gap up to the limit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bedform::{Array, NewArray, OpenOptions, Store};
use bedform_format::ObjectPath;
use bedform_format::shard::{ShardIndex, Stamp};
use bedform_geometry::{Order, Selection, linearize};
use bedform_storage::{MemoryStorage, RecordedOperation, Recording, Storage, StorageOperation};
use proptest::prelude::*;

use super::arrays::{model_of, path, read, with};
use super::cases;
use super::model::{Numbers, points_selected};
use super::strategies::{TYPES, new_array, selection};

type Bytes = BTreeSet<u64>;

/// Returns the index of a shard, and the size of its tail in bytes.
fn index_of(
    storage: &dyn Storage,
    object: &ObjectPath,
    new: &NewArray,
) -> Option<(ShardIndex, u64)> {
    let object = storage.open(object).ok()?;
    let count: u64 = per_shard(new).iter().product();
    let index_bytes = ShardIndex::encoded_bytes(count, true);
    let size = object.version().size;
    let mut bytes = vec![0; usize::try_from(index_bytes).unwrap()];
    object.read(size - index_bytes, &mut bytes).unwrap();
    let index = ShardIndex::decode(&bytes, true, size).unwrap();
    Some((index, index_bytes + Stamp::encoded_bytes(new.shape.len())))
}

fn per_shard(new: &NewArray) -> Vec<u64> {
    let layout = &new.layout;
    layout.shard_shape.iter().zip(&layout.chunk_shape).map(|(a, b)| a / b).collect()
}

/// Returns the place of an element in its stored chunk, counted in elements.
fn place_in_chunk(new: &NewArray, inside: &[u64]) -> u64 {
    let chunk = &new.layout.chunk_shape;
    match &new.layout.transpose {
        None => linearize(inside, chunk),
        Some(order) => {
            let moved: Vec<u64> = order.iter().map(|axis| inside[*axis]).collect();
            let shape: Vec<u64> = order.iter().map(|axis| chunk[*axis]).collect();
            linearize(&moved, &shape)
        }
    }
}

/// True if elements are stored raw, so that reads take parts of chunks.
fn has_raw_elements(new: &NewArray) -> bool {
    let layout = &new.layout;
    layout.codecs.is_empty()
        && layout.serializer.is_none()
        && !layout.checksum
        && new.data_type.item_size().is_some()
}

/// Returns, for each object of a selection, the needed bytes and the tail.
fn needed(
    storage: &dyn Storage,
    new: &NewArray,
    selection: &Selection,
) -> BTreeMap<ObjectPath, (Bytes, u64)> {
    let (layout, is_raw) = (&new.layout, has_raw_elements(new));
    let mut objects = BTreeMap::new();
    for point in points_selected(selection) {
        let divided = |shape: &[u64]| -> Vec<u64> {
            point.iter().zip(shape).map(|(at, length)| at / length).collect()
        };
        let name: Vec<String> = divided(&layout.shard_shape).iter().map(u64::to_string).collect();
        let object =
            path().join(&["c".to_owned()].into_iter().chain(name).collect::<Vec<_>>().join("/"));
        let object = object.unwrap();
        let Some((index, tail)) = index_of(storage, &object, new) else { continue };
        let entry = objects.entry(object).or_insert((Bytes::new(), tail));
        let per_shard = per_shard(new);
        let chunk: Vec<u64> = divided(&layout.chunk_shape)
            .iter()
            .zip(&per_shard)
            .map(|(at, count)| at % count)
            .collect();
        let position = usize::try_from(linearize(&chunk, &per_shard)).unwrap();
        let Some(extent) = index.get(position).unwrap() else { continue };
        if is_raw {
            let inside: Vec<u64> =
                point.iter().zip(&layout.chunk_shape).map(|(at, length)| at % length).collect();
            let item = new.data_type.item_size().unwrap() as u64;
            let start = extent.offset + place_in_chunk(new, &inside) * item;
            entry.0.extend(start..start + item);
        } else {
            entry.0.extend(extent.offset..extent.offset + extent.length);
        }
    }
    objects
}

fn is_read(event: &&RecordedOperation) -> bool {
    matches!(event.operation, StorageOperation::Read | StorageOperation::ReadResident)
        && event.bytes > 0
}

/// Compares the reads of one object with the needed bytes. For raw elements, gaps wider than
/// `gap_max` are allowed, up to one byte for four others.
fn check_object(
    read: &[&RecordedOperation],
    needed: &Bytes,
    (tail, size): (u64, u64),
    (gap_max, is_raw): (u64, bool),
) {
    let mut fetched = Bytes::new();
    let mut tails = 0;
    for event in read {
        if event.offset == size - tail && event.bytes == tail {
            tails += 1;
            continue;
        }
        for byte in event.offset..event.offset + event.bytes {
            assert!(fetched.insert(byte), "byte {byte} is read twice: {read:?}");
        }
    }
    assert_eq!(tails, 1, "the index is read once: {read:?}");
    let missed: Vec<_> = needed.difference(&fetched).collect();
    assert!(missed.is_empty(), "{missed:?} are not read: {read:?}");
    for event in read.iter().filter(|event| (event.offset, event.bytes) != (size - tail, tail)) {
        let (mut gaps, mut last) = (Vec::new(), None);
        for byte in needed.range(event.offset..event.offset + event.bytes) {
            let gap = last.map_or(byte - event.offset, |last| byte - last - 1);
            assert!(gap == 0 || last.is_some(), "more is read before what is needed: {read:?}");
            gaps.push(gap);
            last = Some(*byte);
        }
        let end = last.map(|last| last + 1);
        assert_eq!(end, Some(event.offset + event.bytes), "more than is needed: {read:?}");
        let wide: u64 = gaps.iter().filter(|gap| **gap > gap_max).sum();
        let room = if is_raw { (event.bytes - wide) / 4 } else { 0 };
        assert!(wide <= room, "{wide} bytes of wide gaps: {read:?}");
    }
}

fn reader(storage: &Recording<MemoryStorage>, gap: u64) -> Array {
    let mut options = OpenOptions::default();
    options.cache_bytes = 0;
    options.gap_bytes = Some(gap);
    Store::open(Arc::new(storage.clone()), options).unwrap().array(&path()).unwrap()
}

fn created(new: &NewArray, writes: &[u64]) -> (Recording<MemoryStorage>, super::model::Model) {
    created_in(MemoryStorage::new(), new, writes)
}

fn created_in(
    storage: MemoryStorage,
    new: &NewArray,
    writes: &[u64],
) -> (Recording<MemoryStorage>, super::model::Model) {
    let storage = Recording::new(storage);
    let attributes = serde_json::Map::new();
    let store =
        Store::create(Arc::new(storage.clone()), &attributes, OpenOptions::default()).unwrap();
    let array = store.create_array(&path(), new).unwrap();
    let mut model = model_of(new);
    for seed in writes {
        let mut numbers = Numbers(*seed);
        let selection = selection(&new.shape, &mut numbers);
        if matches!(selection, Selection::Union(_)) {
            continue;
        }
        let elements = numbers.elements(new.data_type, selection.len().unwrap());
        with(new.data_type, &elements, |elements| array.write(&selection, elements).unwrap());
        model.write(&selection, &elements);
    }
    (storage, model)
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn a_read_fetches_what_it_needs_once_and_nothing_else(
        new in new_array(&TYPES),
        writes in proptest::collection::vec(any::<u64>(), 0..4),
        reads in proptest::collection::vec(any::<u64>(), 1..4),
        gap in prop_oneof![Just(0_u64), 1..40_u64, Just(16 << 10)],
    ) {
        let (storage, model) = created(&new, &writes);
        let array = reader(&storage, gap);
        for seed in reads {
            let selection = selection(&new.shape, &mut Numbers(seed));
            let needed = needed(storage.inner(), &new, &selection);
            let facts = array.explain(&selection).unwrap();
            storage.clear();
            let found = read(&array, new.data_type, &selection);
            prop_assert_eq!(found, model.read(&selection));
            let events = storage.events();
            let mut by_object: BTreeMap<&ObjectPath, Vec<&RecordedOperation>> = BTreeMap::new();
            for event in events.iter().filter(is_read) {
                by_object.entry(&event.path).or_default().push(event);
            }
            prop_assert!(by_object.keys().all(|object| needed.contains_key(*object)));
            for (object, (bytes, tail)) in &needed {
                let size = storage.inner().stat(object).unwrap().size;
                let none = Vec::new();
                let read = by_object.get(object).unwrap_or(&none);
                check_object(read, bytes, (*tail, size), (gap, has_raw_elements(&new)));
            }
            // `explain` predicted the actual requests.
            let requests = events.iter().filter(is_read).count() as u64;
            let bytes: u64 = events.iter().filter(is_read).map(|event| event.bytes).sum();
            prop_assert_eq!(facts.objects, needed.len() as u64);
            prop_assert_eq!(facts.requests, requests);
            prop_assert_eq!(facts.bytes, bytes);
            // Elements that are stored as they are need no decoding.
            let is_decoded = facts.chunks > 0 && !has_raw_elements(&new);
            prop_assert_eq!(facts.decoded_bytes > 0, is_decoded);
        }
    }

    #[test]
    fn the_statistics_of_a_read_are_what_explain_announced(
        new in new_array(&TYPES[..14]),
        writes in proptest::collection::vec(any::<u64>(), 1..4),
        seed in any::<u64>(),
    ) {
        let (storage, _) = created(&new, &writes);
        let array = reader(&storage, 16 << 10);
        let selection = selection(&new.shape, &mut Numbers(seed));
        let facts = array.explain(&selection).unwrap();
        let mut buffer = vec![0; usize::try_from(array.result_bytes(&selection).unwrap()).unwrap()];
        let done = array.read(&selection, &mut buffer).unwrap();
        let said = [facts.objects, facts.requests, facts.bytes, facts.chunks, facts.result_bytes];
        let did = [done.objects, done.requests, done.bytes, done.chunks, buffer.len() as u64];
        prop_assert_eq!(said, did);
    }
}

/// Merged requests must not need buffers that grow with the read.
#[test]
fn no_request_is_larger_than_two_mebibytes_however_much_is_read() {
    for checksum in [false, true] {
        let mut new = plain(vec![64, 256, 256], vec![16, 64, 64], vec![64, 256, 256]);
        new.layout.checksum = checksum;
        let (storage, _) = created(&new, &[]);
        let store = {
            let mut options = OpenOptions::default();
            options.writable = true;
            Store::open(Arc::new(storage.clone()), options).unwrap()
        };
        let all = Selection::all(&new.shape);
        let elements = vec![1; 64 * 256 * 256 * 4];
        let array = store.array(&path()).unwrap();
        array.write(&all, bedform::Elements::Bytes(&elements)).unwrap();
        let array = reader(&storage, 16 << 10);
        storage.clear();
        let mut buffer = vec![0; elements.len()];
        array.read(&all, &mut buffer).unwrap();
        assert_eq!(buffer, elements);
        let events = storage.events();
        assert!(events.iter().filter(is_read).all(|event| event.bytes <= 2 << 20));
        // The index and 64 chunks of 256 KiB, in the fewest requests within the limit.
        let requests = events.iter().filter(is_read).count();
        assert!((9..=11).contains(&requests), "{requests}");
        assert_eq!(storage.bytes_read_again(), []);
    }
}

/// The device's latency bounds small requests, so it must know of many at once.
#[test]
fn requests_are_told_to_the_storage_before_they_are_waited_for() {
    for chunk in [16, 64] {
        let mut new = plain(vec![1024, 1024], vec![chunk, chunk], vec![1024, 1024]);
        new.layout.checksum = true;
        let (storage, _) = created_in(MemoryStorage::cold(), &new, &[]);
        let mut options = OpenOptions::default();
        options.writable = true;
        let store = Store::open(Arc::new(storage.clone()), options).unwrap();
        let elements = vec![1; 1024 * 1024 * 4];
        let array = store.array(&path()).unwrap();
        let all = Selection::all(&new.shape);
        array.write(&all, bedform::Elements::Bytes(&elements)).unwrap();
        let array = reader(&storage, 0);
        storage.clear();
        // One element of every second chunk along both axes, so no two requests merge.
        let places = || (0..1024).step_by(2 * usize::try_from(chunk).unwrap());
        let element =
            |row, column| bedform_geometry::Region::new(vec![row, column], vec![1, 1]).unwrap();
        let union = places().flat_map(|row| places().map(move |column| element(row, column)));
        read(&array, new.data_type, &Selection::Union(union.collect()));
        let events = storage.events();
        let of_chunks = |operation| -> BTreeSet<_> {
            let done = events.iter().filter(|event| event.operation == operation);
            let places = done.map(|event| (event.offset, event.bytes));
            places.filter(|(_, bytes)| *bytes == chunk * chunk * 4 + 4).collect()
        };
        let (told, waited) =
            (of_chunks(StorageOperation::ReadAhead), of_chunks(StorageOperation::Read));
        assert_eq!(waited.len() as u64, (512 / chunk) * (512 / chunk));
        assert!(told.is_subset(&waited));
        // The read may wait for a few requests before it announces the others.
        assert!(told.len() + 8 > waited.len(), "{} of {}", told.len(), waited.len());
    }
}

/// A regression: a union of boxes that overlap inside a raw chunk was read box by box, and the
/// shared bytes once per box.
#[test]
fn boxes_of_a_union_that_share_bytes_share_a_request() {
    let new = plain(vec![8], vec![8], vec![8]);
    let (storage, _) = created(&new, &[]);
    let store = {
        let mut options = OpenOptions::default();
        options.writable = true;
        Store::open(Arc::new(storage.clone()), options).unwrap()
    };
    let elements: Vec<u8> = (0..32).collect();
    let array = store.array(&path()).unwrap();
    array.write(&Selection::all(&[8]), bedform::Elements::Bytes(&elements)).unwrap();
    let region = |start, length| bedform_geometry::Region::new(vec![start], vec![length]).unwrap();
    let union = Selection::Union(vec![region(2, 4), region(1, 3), region(0, 7)]);
    let array = reader(&storage, 0);
    let requests = array.explain(&union).unwrap().requests;
    storage.clear();
    let found = read(&array, new.data_type, &union).concat();
    assert_eq!(found, [&elements[8..24], &elements[4..16], &elements[..28]].concat());
    assert_eq!(storage.bytes_read_again(), []);
    // One request for the index, one for the elements.
    assert_eq!(requests, 2);
}

/// An array of raw 32-bit elements.
fn plain(shape: Vec<u64>, chunk_shape: Vec<u64>, shard_shape: Vec<u64>) -> NewArray {
    let data_type = bedform_format::DataType::Float32;
    NewArray {
        shape,
        data_type,
        layout: bedform::ArrayLayout {
            chunk_shape,
            shard_shape,
            order: Order::Hilbert,
            serializer: None,
            codecs: vec![],
            transpose: None,
            checksum: false,
            keys: bedform_format::metadata::ChunkKeys::DEFAULT,
            choice: None,
        },
        fill_value: bedform_format::metadata::FillValue::zero(data_type),
        dimension_names: None,
        attributes: serde_json::Map::new(),
    }
}
