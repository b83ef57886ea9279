//! Reads over a log: the newest data count, hidden data are not read, damaged data are an error.

use std::sync::Arc;

use bedform::ReadStatistics;
use bedform::comm::threads;
use bedform::log::session::SessionOptions;
use bedform::{Array, ArrayLayout, Elements, ErrorKind, NewArray, OpenOptions, Store};
use bedform_format::metadata::FillValue;
use bedform_format::{DataType, ObjectPath};
use bedform_geometry::{Order, Region, Selection};
use bedform_storage::{Condition, Durability, MemoryStorage, Storage, WriteHint};
use proptest::prelude::*;

use super::arrays::{model_of, path, read, with};
use super::cases;
use super::model::{Model, Numbers};
use super::strategies::{new_array, selection};

const TYPES: [DataType; 4] =
    [DataType::UInt8, DataType::Int16, DataType::Float64, DataType::Complex128];

pub(super) fn open(storage: &Arc<dyn Storage>, cache_bytes: u64) -> Store {
    let mut options = OpenOptions::default();
    options.commits_named = 2;
    options.writable = true;
    options.cache_bytes = cache_bytes;
    Store::open(storage.clone(), options).unwrap()
}

pub(super) fn create(new: &NewArray) -> Arc<dyn Storage> {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let mut options = OpenOptions::default();
    options.commits_named = 2;
    options.writable = true;
    let store = Store::create(storage.clone(), &serde_json::Map::new(), options).unwrap();
    store.create_array(&path(), new).unwrap();
    storage
}

/// Commits writes of bytes in a session of their own.
pub(super) fn commit(storage: &Arc<dyn Storage>, writes: &[(ObjectPath, Selection, Vec<u8>)]) {
    let store = open(storage, 0);
    let member = threads(1).pop().unwrap();
    let mut session = store.session(Box::new(member), SessionOptions::default()).unwrap();
    for (path, selection, bytes) in writes {
        session.write(path, selection, Elements::Bytes(bytes)).unwrap();
    }
    session.commit().unwrap();
}

pub(crate) fn layout(shape: &[u64], chunk_shape: &[u64], shard_shape: &[u64]) -> NewArray {
    NewArray {
        shape: shape.to_vec(),
        data_type: DataType::UInt8,
        layout: ArrayLayout {
            chunk_shape: chunk_shape.to_vec(),
            shard_shape: shard_shape.to_vec(),
            order: Order::RowMajor,
            serializer: None,
            codecs: vec![],
            transpose: None,
            checksum: true,
            keys: bedform_format::metadata::ChunkKeys::DEFAULT,
            choice: None,
        },
        fill_value: FillValue::zero(DataType::UInt8),
        dimension_names: None,
        attributes: serde_json::Map::new(),
    }
}

fn part(start: &[u64], shape: &[u64]) -> Selection {
    Selection::from(Region::new(start.to_vec(), shape.to_vec()).unwrap())
}

fn statistics(array: &Array, selection: &Selection) -> ReadStatistics {
    let bytes = usize::try_from(array.result_bytes(selection).unwrap()).unwrap();
    array.read(selection, &mut vec![0; bytes]).unwrap()
}

proptest! {
    #![proptest_config(cases(100))]

    /// Direct writes between the commits settle some shards, which then contain other commits than
    /// their neighbours.
    #[test]
    fn any_read_over_commits_and_shards_that_have_some_of_them_is_what_a_list_holds(
        new in new_array(&TYPES),
        commits in 1_usize..6,
        cache in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let storage = create(&new);
        let mut model = model_of(&new);
        let numbers = &mut Numbers(seed);
        for _ in 0..commits {
            let mut writes = Vec::new();
            for _ in 0..numbers.below(5) {
                let selection = selection(&new.shape, numbers);
                let elements = numbers.elements(new.data_type, selection.len().unwrap());
                model.write(&selection, &elements);
                writes.push((path(), selection, elements.concat()));
            }
            commit(&storage, &writes);
            if numbers.below(3) == 0 {
                let selection = Selection::from(whole_chunk(&new, numbers));
                let elements = numbers.elements(new.data_type, selection.len().unwrap());
                model.write(&selection, &elements);
                let array = open(&storage, 0).array(&path()).unwrap();
                with(new.data_type, &elements, |elements| {
                    array.write(&selection, elements).unwrap()
                });
            }
        }
        let array = open(&storage, if cache { 1 << 20 } else { 0 }).array(&path()).unwrap();
        for _ in 0..8 {
            let selection = selection(&new.shape, numbers);
            prop_assert_eq!(&read(&array, new.data_type, &selection), &model.read(&selection));
        }
    }
}

/// Returns the region of a random chunk.
fn whole_chunk(new: &NewArray, numbers: &mut Numbers) -> Region {
    let chunk = &new.layout.chunk_shape;
    let axes = new.shape.iter().zip(chunk).map(|(size, length)| {
        let start = numbers.below(size.div_ceil(*length)) * length;
        (start, (*length).min(size - start))
    });
    let (start, shape): (Vec<u64>, Vec<u64>) = axes.unzip();
    Region::new(start, shape).unwrap()
}

/// Hundreds of small boxes per write, as unstructured grids need them. They are unordered, and
/// overlap each other, other members' boxes and other commits.
#[test]
fn hundreds_of_small_boxes_of_several_members_count_in_their_order() {
    for shape in [vec![4000], vec![61, 83], vec![5, 30, 29]] {
        let new = layout(&shape, &vec![16; shape.len()], &vec![32; shape.len()]);
        let storage = create(&new);
        let mut model = Model::new(&shape, &vec![0]);
        let numbers = &mut Numbers(11);
        let mut boxes = |count: usize| {
            let one = |_| {
                let axes = shape.iter().map(|size| {
                    let start = numbers.below(*size);
                    (start, 1 + numbers.below((size - start).min(6)))
                });
                let (start, lengths): (Vec<u64>, Vec<u64>) = axes.unzip();
                Region::new(start, lengths).unwrap()
            };
            Selection::Union((0..count).map(one).collect())
        };
        let drawn: Vec<Vec<Selection>> =
            (0..3).map(|_| (0..3).map(|_| boxes(300)).collect()).collect();
        let value = |member: usize, commit: usize| u8::try_from(1 + 3 * commit + member).unwrap();
        std::thread::scope(|scope| {
            for (rank, (member, drawn)) in threads(3).into_iter().zip(&drawn).enumerate() {
                let storage = &storage;
                scope.spawn(move || {
                    let store = open(storage, 0);
                    let mut session =
                        store.session(Box::new(member), SessionOptions::default()).unwrap();
                    for (commit, selection) in drawn.iter().enumerate() {
                        let count = usize::try_from(selection.len().unwrap()).unwrap();
                        let bytes = vec![value(rank, commit); count];
                        session.write(&path(), selection, Elements::Bytes(&bytes)).unwrap();
                        session.commit().unwrap();
                    }
                });
            }
        });
        for commit in 0..3 {
            for (rank, drawn) in drawn.iter().enumerate() {
                let selection = &drawn[commit];
                let count = usize::try_from(selection.len().unwrap()).unwrap();
                model.write(selection, &vec![vec![value(rank, commit)]; count]);
            }
        }
        let array = open(&storage, 0).array(&path()).unwrap();
        assert_eq!(read(&array, DataType::UInt8, &Selection::all(&shape)), model.elements);
        for _ in 0..50 {
            let selection = selection(&shape, numbers);
            assert_eq!(read(&array, DataType::UInt8, &selection), model.read(&selection));
        }
        open(&storage, 0).settle().unwrap();
        assert_eq!(read(&array, DataType::UInt8, &Selection::all(&shape)), model.elements);
    }
}

/// Bytes of an array with another type come first, so elements cross the blocks of the log.
#[test]
fn elements_that_lie_in_two_blocks_of_the_log_are_whole() {
    let storage = create(&layout(&[3], &[3], &[3]));
    let numbers_path = ObjectPath::parse("numbers").unwrap();
    let count = 40_000_usize;
    let mut new = layout(&[count as u64], &[1000], &[40_000]);
    new.data_type = DataType::UInt64;
    new.fill_value = FillValue::zero(DataType::UInt64);
    open(&storage, 0).create_array(&numbers_path, &new).unwrap();
    let bytes: Vec<u8> =
        (0..count as u64).flat_map(|at| (at * 0x0101_0101).to_le_bytes()).collect();
    let all = Selection::all(&[count as u64]);
    let first = (path(), Selection::all(&[3]), vec![1, 2, 3]);
    commit(&storage, &[first, (numbers_path.clone(), all.clone(), bytes.clone())]);
    for cache in [0, 1 << 20, 64 << 20] {
        let array = open(&storage, cache).array(&numbers_path).unwrap();
        for _ in 0..2 {
            assert_eq!(read(&array, DataType::UInt64, &all).concat(), bytes);
        }
        for at in (0..count).step_by(7) {
            let one = read(&array, DataType::UInt64, &part(&[at as u64], &[1])).concat();
            assert_eq!(one, bytes[8 * at..8 * at + 8]);
        }
    }
}

#[test]
fn what_something_newer_hides_is_not_read_and_nothing_is_read_twice() {
    let (edge, count) = (512_u64, 512 * 512_usize);
    let storage = create(&layout(&[edge, edge], &[64, 64], &[256, 128]));
    let all = Selection::all(&[edge, edge]);
    let array = |cache| open(&storage, cache).array(&path()).unwrap();
    array(0).write(&all, Elements::Bytes(&vec![1; count])).unwrap();
    for value in 2..6 {
        commit(&storage, &[(path(), all.clone(), vec![value; count])]);
    }
    let found = statistics(&array(0), &all);
    // The indexes of eight shards, and none of their chunks.
    assert!(found.bytes < count as u64 + 8 * 1000, "{found:?}");
    let right = (path(), part(&[0, edge / 2], &[edge, edge / 2]), vec![9; count / 2]);
    commit(&storage, &[right]);
    let found = statistics(&array(0), &all);
    // Half of the earlier commit is hidden, but every block contains some of the other half.
    assert!(found.bytes < (count + count / 2) as u64 + 8 * 1000, "{found:?}");
}

#[test]
fn what_was_never_written_costs_no_request() {
    let storage = create(&layout(&[64, 64], &[8, 8], &[16, 16]));
    // The box around both writes covers the whole array.
    let corners =
        [(path(), part(&[0, 0], &[1, 1]), vec![1]), (path(), part(&[63, 63], &[1, 1]), vec![1])];
    commit(&storage, &corners);
    let array = open(&storage, 0).array(&path()).unwrap();
    let found = statistics(&array, &part(&[16, 0], &[32, 64]));
    assert_eq!((found.requests, found.bytes), (0, 0));
    assert_eq!(
        read(&array, DataType::UInt8, &Selection::all(&[64, 64])).concat().iter().sum::<u8>(),
        2
    );
}

#[test]
fn small_reads_of_the_same_place_fetch_a_block_once() {
    let storage = create(&layout(&[64, 64], &[8, 8], &[16, 16]));
    commit(&storage, &[(path(), Selection::all(&[64, 64]), vec![7; 64 * 64])]);
    let array = open(&storage, 256 << 20).array(&path()).unwrap();
    assert!(statistics(&array, &part(&[0, 0], &[1, 64])).bytes > 0);
    for row in 0..64 {
        assert_eq!(statistics(&array, &part(&[row, 0], &[1, 64])).bytes, 0, "{row}");
    }
}

/// Returns the name and bytes of the store's only segment.
fn segment(log: &dyn Storage) -> (ObjectPath, Vec<u8>) {
    let segments = ObjectPath::parse("segments").unwrap();
    let directory = segments.join(&log.list(&segments).unwrap()[0].name).unwrap();
    let name = directory.join("data").unwrap();
    let object = log.open(&name).unwrap();
    let mut bytes = vec![0; usize::try_from(object.version().size).unwrap()];
    object.read(0, &mut bytes).unwrap();
    (name, bytes)
}

fn replace(log: &dyn Storage, name: &ObjectPath, bytes: &[u8]) {
    let mut writer = log.create(name, Durability::Process, WriteHint::default()).unwrap();
    writer.append(bytes).unwrap();
    writer.publish(Condition::None).unwrap();
}

#[test]
fn a_changed_bit_or_a_cut_segment_is_an_error_for_those_who_need_it_and_never_data() {
    let storage = create(&layout(&[300_000], &[1000], &[100_000]));
    let bytes: Vec<u8> = (0..300_000_u64).map(|at| at.to_le_bytes()[0] ^ 0x5a).collect();
    commit(&storage, &[(path(), Selection::all(&[300_000]), bytes.clone())]);
    let log = storage.sibling(".bedform-log").unwrap();
    let (name, good) = segment(&*log);
    let numbers = &mut Numbers(5);
    for round in 0..60 {
        let mut bad = good.clone();
        if round % 4 == 0 {
            bad.truncate(usize::try_from(numbers.below(good.len() as u64)).unwrap());
        } else {
            let at = usize::try_from(numbers.below(bad.len() as u64)).unwrap();
            bad[at] ^= 1 << numbers.below(8);
        }
        replace(&*log, &name, &bad);
        let mut found = Vec::new();
        for start in (0..300_000).step_by(20_000) {
            let array = open(&storage, 0).array(&path()).unwrap();
            let mut buffer = vec![0; 20_000];
            let outcome = array.read(&part(&[start], &[20_000]), &mut buffer);
            let start = usize::try_from(start).unwrap();
            match outcome {
                Ok(_) => assert_eq!(buffer, bytes[start..start + 20_000]),
                Err(error) => found.push(error.kind()),
            }
        }
        assert!(
            found.iter().all(|kind| matches!(kind, ErrorKind::Corrupt | ErrorKind::Io)),
            "{found:?}"
        );
        let in_a_block = round % 4 != 0 && found.len() < 15;
        assert!(!in_a_block || found.len() <= 3, "one block is read by few: {found:?}");
    }
    replace(&*log, &name, &good);
    let array = open(&storage, 0).array(&path()).unwrap();
    assert_eq!(read(&array, DataType::UInt8, &Selection::all(&[300_000])).concat(), bytes);
}

/// An interrupted append leaves elements beyond the array's end. A commit that makes the array
/// larger must not reveal them.
#[test]
fn what_lies_behind_the_end_when_a_commit_makes_an_array_larger_is_the_fill_value() {
    for shape in [vec![20_u64], vec![5, 7]] {
        let rank = shape.len();
        let new = layout(&shape, &vec![4; rank], &vec![8; rank]);
        let storage = create(&new);
        let larger: Vec<u64> = shape.iter().map(|size| 2 * size + 3).collect();
        let store = open(&storage, 0);
        let all = |shape: &[u64]| Selection::all(shape);
        let bytes = |shape: &[u64], value: u8| {
            vec![value; usize::try_from(shape.iter().product::<u64>()).unwrap()]
        };
        let cut_off = store.grown(&path(), &larger).unwrap();
        cut_off.write(&all(&larger), Elements::Bytes(&bytes(&larger, 9))).unwrap();
        let array = store.array(&path()).unwrap();
        array.write(&all(&shape), Elements::Bytes(&bytes(&shape, 1))).unwrap();
        let mut model = Model::new(&shape, &vec![0]);
        model.write(&all(&shape), &vec![vec![1]; bytes(&shape, 1).len()]);

        let member = threads(1).pop().unwrap();
        let mut session = store.session(Box::new(member), SessionOptions::default()).unwrap();
        session.resize(&path(), &larger).unwrap();
        let (start, lengths) = (vec![3; rank], vec![larger[0] - 4; rank]);
        let lengths: Vec<u64> =
            lengths.iter().zip(&larger).map(|(n, size)| *n.min(&(size - 3))).collect();
        let some = part(&start, &lengths);
        session.write(&path(), &some, Elements::Bytes(&bytes(&lengths, 2))).unwrap();
        session.commit().unwrap();
        model.resize(&larger);
        model.write(&some, &vec![vec![2]; bytes(&lengths, 2).len()]);
        let found = |selection: &Selection| {
            let array = open(&storage, 0).array(&path()).unwrap();
            read(&array, DataType::UInt8, selection)
        };
        assert_eq!(found(&all(&larger)), model.elements, "over the log");
        let numbers = &mut Numbers(3);
        for _ in 0..40 {
            let selection = selection(&larger, numbers);
            assert_eq!(found(&selection), model.read(&selection));
        }
        let last: Vec<u64> = larger.iter().map(|size| size - 1).collect();
        let one = part(&last, &vec![1; rank]);
        let array = open(&storage, 0).array(&path()).unwrap();
        array.write(&one, Elements::Bytes(&[5])).unwrap();
        model.write(&one, &[vec![5]]);
        assert_eq!(found(&all(&larger)), model.elements, "after a direct write");
    }
}
