use std::sync::{Arc, Barrier};

use bedform_format::BytesCodec;
use bedform_format::metadata::own_value;
use bedform_storage::{
    Durability, Failing, Fault, LocalStorage, MemoryStorage, Mode, SimulatedFileSystem, Staging,
    Storage, StorageErrorKind, StorageOperation,
};
use serde_json::{Map, json};

use super::*;
use crate::array::{Append, Array, Elements, append};
use crate::comm::Alone;
use crate::log::session::SessionOptions;
use crate::log::settle::SettleOptions;
use crate::options::{Freshness, OpenOptions};
use crate::store::Store;

/// Rows of an array, each a shard of two chunks.
const ROWS: u64 = 4;
const COLUMNS: u64 = 8192;

fn options(writable: bool) -> OpenOptions {
    let durability = Durability::Process;
    OpenOptions { writable, threads: Some(1), durability, ..OpenOptions::default() }
}

fn path(name: &str) -> ObjectPath {
    ObjectPath::parse(name).unwrap()
}

fn described(rows: u64) -> NewArray {
    let description = json!({
        "shape": [rows, COLUMNS], "dtype": "float32", "chunks": [1, COLUMNS / 2],
        "shards": [1, COLUMNS], "codecs": "auto",
    });
    NewArray::from_json(&description, &Default::default()).unwrap()
}

fn open(storage: &Arc<dyn Storage>) -> Store {
    Store::open(storage.clone(), options(true)).unwrap()
}

/// A store with the array `t`, which has no elements yet.
fn store_with_open(storage: &Arc<dyn Storage>, rows: u64) -> Store {
    let store = Store::create(storage.clone(), &Map::new(), options(true)).unwrap();
    store.create_array(&path("t"), &described(rows)).unwrap();
    store
}

fn in_memory(rows: u64) -> (Arc<dyn Storage>, Store) {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let store = store_with_open(&storage, rows);
    (storage, store)
}

/// A row of smooth numbers, which blosc compresses best, or of noise, which no codec compresses.
fn row(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let element = |at: u64| -> u32 {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let noise = u32::try_from(state >> 33).unwrap();
        #[allow(clippy::cast_precision_loss)]
        let smooth = (280.0 + 20.0 * (at as f32 / 300.0).sin()).to_bits();
        if seed.is_multiple_of(2) { smooth ^ (noise & 0x3ff) } else { noise << 1 }
    };
    (0..COLUMNS).map(element).flat_map(u32::to_ne_bytes).collect()
}

fn row_of(at: u64) -> Selection {
    use bedform_geometry::{AxisRange, AxisSelection};
    let range = |start, length| AxisSelection::Range(AxisRange::contiguous(start, length).unwrap());
    Selection::Orthogonal(vec![range(at, 1), range(0, COLUMNS)])
}

fn write(array: &Array, at: u64, seed: u64) -> Result<()> {
    array.write(&row_of(at), Elements::Bytes(&row(seed))).map(drop)
}

fn read(array: &Array, at: u64) -> Vec<u8> {
    let mut buffer = vec![0; row(0).len()];
    array.read(&row_of(at), &mut buffer).unwrap();
    buffer
}

fn t(store: &Store) -> Array {
    store.array(&path("t")).unwrap()
}

/// The codecs of `t` by the store's document, and whether they are open.
fn codecs(storage: &Arc<dyn Storage>) -> (Vec<BytesCodec>, bool) {
    let metadata = t(&open(storage)).metadata().unwrap();
    let Encoding::Shard(shard) = &metadata.encoding else { panic!("no shards") };
    let Encoding::Chunk(chain) = &*shard.inner else { panic!("no chunks") };
    (chain.bytes.clone(), metadata.choice.is_some_and(|choice| choice.is_open()))
}

fn is_blosc(codecs: &[BytesCodec]) -> bool {
    matches!(codecs, [BytesCodec::Blosc(_), BytesCodec::Crc32c])
}

#[test]
fn the_first_write_chooses_and_later_ones_follow_whatever_they_have() {
    let (storage, store) = in_memory(ROWS);
    let late = t(&open(&storage));
    assert!(codecs(&storage).1);
    assert_eq!(read(&late, 0), vec![0; row(0).len()]);
    write(&t(&store), 0, 0).unwrap();
    let chosen = codecs(&storage);
    assert!(is_blosc(&chosen.0) && !chosen.1, "{chosen:?}");
    // This row is noise, and its handle has the state from before the choice.
    write(&late, 1, 1).unwrap();
    assert_eq!(codecs(&storage), chosen);
    for at in 0..2 {
        assert_eq!(read(&t(&open(&storage)), at), row(at));
    }
}

#[test]
fn fill_values_before_anything_else_leave_the_choice_open() {
    let (storage, store) = in_memory(ROWS);
    let array = t(&store);
    let zeros = vec![0; row(0).len()];
    let written = array.write(&row_of(0), Elements::Bytes(&zeros)).unwrap();
    assert_eq!((written.objects, codecs(&storage).1), (0, true));
    let start = array.append(0, &[1, COLUMNS], Elements::Bytes(&zeros)).unwrap();
    assert_eq!((start, array.shape().unwrap()[0]), (ROWS, ROWS + 1));
    assert!(codecs(&storage).1);
    write(&array, 1, 0).unwrap();
    let (chosen, is_open) = codecs(&storage);
    assert!(is_blosc(&chosen) && !is_open, "{chosen:?}");
    // Existing elements are replaced by fill values as by any others.
    array.write(&row_of(1), Elements::Bytes(&zeros)).unwrap();
    for at in 0..=ROWS {
        assert_eq!(read(&t(&open(&storage)), at), zeros, "row {at}");
    }
}

#[test]
fn a_closed_document_says_what_was_compared_and_has_the_old_version() {
    let (_, store) = in_memory(ROWS);
    let version = |array: &Array| own_value(&array.document().unwrap()).unwrap()["version"].clone();
    assert_eq!(version(&t(&store)), 2);
    write(&t(&store), 0, 0).unwrap();
    assert_eq!(version(&t(&store)), 1);
    let described = t(&store).describe().unwrap();
    let compared = described["codec_choice"]["compared"].as_array().unwrap().clone();
    assert!(compared[0]["name"].as_str().unwrap().starts_with("blosc"), "{compared:?}");
    assert!(compared.iter().any(|one| one["name"] == "zstd"), "{compared:?}");
}

#[test]
fn a_handle_that_looks_for_no_changes_reads_what_was_written_since() {
    let (storage, store) = in_memory(ROWS);
    let mut seldom = options(false);
    seldom.freshness = Freshness::Open;
    let reader = t(&Store::open(storage, seldom).unwrap());
    write(&t(&store), 0, 0).unwrap();
    assert_eq!(read(&reader, 0), row(0));
}

#[test]
fn writers_that_race_to_be_first_use_one_codec() {
    for round in 0..12 {
        let (storage, _) = in_memory(ROWS);
        let (together, storage) = (Barrier::new(4), &storage);
        std::thread::scope(|scope| {
            for at in 0..ROWS {
                let (array, together) = (t(&open(storage)), &together);
                scope.spawn(move || {
                    together.wait();
                    write(&array, at, round + at).unwrap();
                });
            }
        });
        for at in 0..ROWS {
            assert_eq!(read(&t(&open(storage)), at), row(round + at), "round {round}");
        }
    }
}

#[test]
fn appends_that_race_to_be_first_use_one_codec() {
    for round in 0..6 {
        let (storage, _) = in_memory(0);
        let (together, storage) = (Barrier::new(3), &storage);
        let starts: Vec<u64> = std::thread::scope(|scope| {
            let appends = (0..3).map(|number| {
                let (array, together) = (t(&open(storage)), &together);
                scope.spawn(move || {
                    let (shape, elements) = ([1, COLUMNS], row(round + number));
                    together.wait();
                    array.append(0, &shape, Elements::Bytes(&elements)).unwrap()
                })
            });
            let appends: Vec<_> = appends.collect();
            appends.into_iter().map(|append| append.join().unwrap()).collect()
        });
        for (number, start) in (0..).zip(starts) {
            assert_eq!(read(&t(&open(storage)), start), row(round + number), "round {round}");
        }
    }
}

#[test]
fn several_arrays_are_appended_to_for_the_first_time_at_once() {
    let (storage, store) = in_memory(0);
    store.create_array(&path("u"), &described(0)).unwrap();
    let arrays = [t(&store), store.array(&path("u")).unwrap()];
    let elements = [row(0), row(1)];
    let parts = arrays.iter().zip(&elements).map(|(array, elements)| Append {
        array,
        axis: 0,
        shape: &[1, COLUMNS],
        elements: Elements::Bytes(elements),
    });
    append(&parts.collect::<Vec<_>>()).unwrap();
    let store = open(&storage);
    assert_eq!(read(&t(&store), 0), row(0));
    assert_eq!(read(&store.array(&path("u")).unwrap(), 0), row(1));
}

#[test]
fn what_is_logged_chooses_when_it_is_settled() {
    let (storage, store) = in_memory(ROWS);
    let reader = t(&open(&storage));
    let mut session = store.session(Box::new(Alone), SessionOptions::default()).unwrap();
    session.write(&path("t"), &row_of(2), Elements::Bytes(&row(2))).unwrap();
    session.commit().unwrap();
    assert!(codecs(&storage).1, "nothing was settled");
    assert_eq!(read(&reader, 2), row(2));
    drop(session);
    store.settle_with(&SettleOptions::default(), &|_, _| ()).unwrap();
    let chosen = codecs(&storage);
    assert!(is_blosc(&chosen.0) && !chosen.1, "{chosen:?}");
    assert_eq!(read(&reader, 2), row(2));
}

#[test]
fn commits_that_make_an_open_array_larger_are_read() {
    let (storage, store) = in_memory(0);
    let readers = [t(&store), t(&open(&storage))];
    let mut session = store.session(Box::new(Alone), SessionOptions::default()).unwrap();
    session.append(&path("t"), 0, &[1, COLUMNS], Elements::Bytes(&row(4))).unwrap();
    session.commit().unwrap();
    for reader in readers {
        assert_eq!(read(&reader, 0), row(4));
    }
}

#[test]
fn drafts_get_their_codecs_with_the_first_write_of_any_handle() {
    let (storage, store) = in_memory(ROWS);
    let draft = store.draft_array(&path("d"), &described(ROWS)).unwrap();
    let others: Vec<Array> =
        (0..2).map(|_| open(&storage).open_draft(&path("d")).unwrap()).collect();
    write(&others[0], 0, 0).unwrap();
    write(&draft, 1, 1).unwrap();
    write(&others[1], 2, 3).unwrap();
    assert_eq!(read(&others[1], 0), row(0));
    store.commit_drafts(&[path("d")]).unwrap();
    let found = open(&storage).array(&path("d")).unwrap();
    for (at, seed) in [(0, 0), (1, 1), (2, 3)] {
        assert_eq!(read(&found, at), row(seed));
    }
}

#[test]
fn a_draft_whose_elements_are_known_is_closed_from_the_beginning() {
    let (_, store) = in_memory(ROWS);
    let elements: Vec<u8> = (0..ROWS).flat_map(|at| row(2 * at)).collect();
    let draft = store.draft_array_of(&path("d"), &described(ROWS), &elements).unwrap();
    let choice = draft.metadata().unwrap().choice.unwrap();
    assert!(
        matches!(choice, CodecChoice::Made(made) if made.compared[0].name.starts_with("blosc"))
    );
}

#[test]
fn attributes_and_shapes_change_while_an_array_is_open() {
    let (storage, store) = in_memory(ROWS);
    let attributes = json!({"units": "K"}).as_object().unwrap().clone();
    store.set_attributes(&path("t"), attributes.clone()).unwrap();
    t(&store).resize(&[2 * ROWS, COLUMNS]).unwrap();
    assert!(codecs(&storage).1);
    write(&t(&store), 2 * ROWS - 1, 0).unwrap();
    store.set_attributes(&path("t"), attributes.clone()).unwrap();
    assert!(is_blosc(&codecs(&storage).0));
    assert_eq!(t(&open(&storage)).attributes().unwrap(), attributes);
    assert_eq!(read(&t(&open(&storage)), 2 * ROWS - 1), row(0));
}

#[test]
fn codecs_that_a_writer_was_cut_off_with_are_those_that_the_next_one_takes() {
    let storage = Failing::new(MemoryStorage::new());
    let shared: Arc<dyn Storage> = Arc::new(storage.clone());
    let store = store_with_open(&shared, ROWS);
    let array = t(&store);
    // The array's own document is put back, the store's is not.
    storage.fail_at(StorageOperation::Publish, 1, Fault::Error(StorageErrorKind::Io));
    write(&array, 0, 0).unwrap_err();
    assert!(codecs(&shared).1, "the store's document counts");
    write(&t(&open(&shared)), 1, 1).unwrap();
    let chosen = codecs(&shared);
    assert!(is_blosc(&chosen.0) && !chosen.1, "noise alone is not compressed: {chosen:?}");
    assert_eq!(read(&array, 1), row(1));
}

#[test]
fn an_array_that_was_replaced_gets_no_codecs_of_the_old_one() {
    let (storage, store) = in_memory(ROWS);
    let old = t(&open(&storage));
    store.delete(&path("t")).unwrap();
    store.create_array(&path("t"), &described(ROWS)).unwrap();
    // Stored rows stay readable, whether the write fails or succeeds.
    let _ = write(&old, 0, 0);
    write(&t(&store), 1, 1).unwrap();
    assert_eq!(read(&t(&open(&storage)), 1), row(1));
}

#[test]
fn an_open_state_never_writes_a_shard() {
    use crate::source::Settled;
    use crate::zarr::object::{ObjectWrite, whole_machine};

    let (_, store) = in_memory(ROWS);
    let (array, opened) = (t(&store), store.zarr().unwrap());
    let handle = array.stored().unwrap();
    let state = handle.state().unwrap();
    let plan = state.layout.geometry(&row_of(0)).unwrap();
    let elements = row(0);
    let write = ObjectWrite {
        kept_beside: None,
        source: &ZarrSource { hierarchy: opened, path: &handle.path, state: &state },
        moment: &Settled,
        plan: Some((&plan, 0)),
        input: WriteInput::Bytes(&elements),
        coordinates: vec![0, 0],
        valid: None,
        resources: whole_machine(opened),
        check: None,
    };
    write.run().unwrap_err();
    assert_eq!(read(&array, 0), vec![0; elements.len()]);
}

fn simulated(system: &SimulatedFileSystem) -> Arc<dyn Storage> {
    let staging = Staging {
        small_bytes_max: 8192,
        block_bytes: 8192,
        blocks_max: 2,
        writes_max: 2,
        reserve_bytes: 16_384,
        direct: true,
    };
    Arc::new(LocalStorage::over(system.clone(), Mode::ReadWrite, staging))
}

/// After a power cut at any call of the first write, another writer goes on. Acknowledged rows are
/// there, and so are the second writer's, whichever of the two chose the codecs.
#[test]
fn power_cuts_at_any_call_of_the_first_write_leave_one_codec() {
    let durable = || OpenOptions { durability: Durability::Disk, ..options(true) };
    let base = SimulatedFileSystem::new();
    let store = Store::create(simulated(&base), &Map::new(), durable()).unwrap();
    store.create_array(&path("t"), &described(ROWS)).unwrap();
    drop(store);
    let (mut images, mut adopted) = (0, 0);
    for cut in 0.. {
        let system = base.fork();
        let store = Store::open(simulated(&system), durable()).unwrap();
        let array = t(&store);
        system.fail_power_after(cut);
        let is_done = write(&array, 0, 0).is_ok();
        let seen: Vec<_> = system.crash_images(cut, 2).chain([system.kill()]).collect();
        for image in seen {
            images += 1;
            let store = Store::open(simulated(&image), durable()).unwrap();
            let before = read(&t(&store), 0);
            assert!(before == row(0) || (!is_done && before == vec![0; before.len()]), "cut {cut}");
            write(&t(&store), 1, 1).unwrap();
            let fresh = t(&Store::open(simulated(&image), options(false)).unwrap());
            assert_eq!(read(&fresh, 0), before, "cut {cut}");
            assert_eq!(read(&fresh, 1), row(1), "cut {cut}");
            let Encoding::Shard(shard) = fresh.metadata().unwrap().encoding else { panic!() };
            let Encoding::Chunk(chain) = *shard.inner else { panic!() };
            adopted += usize::from(is_blosc(&chain.bytes) && before != row(0));
        }
        if is_done {
            break;
        }
    }
    assert!(images > 50 && adopted > 0, "{images} images, {adopted} adopted");
}

#[test]
fn a_sample_that_was_not_like_the_rest_is_told_once() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let store = Store::create(storage, &Map::new(), options(true)).unwrap();
    let rows = (20 << 20) / (COLUMNS * 4);
    store.create_array(&path("t"), &described(rows)).unwrap();
    let array = t(&store);
    let mut constant = vec![0; row(0).len()];
    constant.fill(7);
    array.write(&row_of(0), Elements::Bytes(&constant)).unwrap();
    assert!(array.take_warnings().is_empty());
    for at in 1..rows {
        write(&array, at, 2 * at + 1).unwrap();
    }
    let told = array.take_warnings();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("/t: ") && told[0].contains("name codecs"), "{told:?}");
    assert!(store.take_warnings().is_empty());
}
