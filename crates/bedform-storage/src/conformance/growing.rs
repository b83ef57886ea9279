//! The contract of growing objects, case by case.

use std::sync::atomic::{AtomicU64, Ordering};

use bedform_format::log::{Lanes, STRIPE_BYTES};

use super::{get, kind_of, path, put, read_all};
use crate::{
    Condition, Durability, GrowingObject, ListedEntry, SYNC_ALIGNMENT, Storage, StorageErrorKind,
};

/// Returns bytes that depend on their offset.
fn pattern(start: usize, length: usize) -> Vec<u8> {
    let byte = |at: usize| ((at as u32).wrapping_mul(2_654_435_761) >> 24) as u8;
    (start..start + length).map(byte).collect()
}

fn grow(storage: &dyn Storage, name: &str) -> Box<dyn GrowingObject> {
    storage.grow(&path(name), Durability::Disk, None).unwrap()
}

/// Reads the first `length` bytes of an object that may have more.
fn front(storage: &dyn Storage, name: &str, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    storage.open(&path(name)).unwrap().read(0, &mut bytes).unwrap();
    bytes
}

pub(super) fn seen(storage: &dyn Storage) {
    let mut growing = grow(storage, "a/b");
    let entry = ListedEntry { name: "b".into(), is_directory: false };
    assert_eq!(storage.list(&path("a")).unwrap(), [entry]);
    storage.open(&path("a/b")).unwrap();
    growing.append(b"first").unwrap();
    assert_eq!(growing.position(), 5);
    growing.sync().unwrap();
    assert_eq!(growing.position(), SYNC_ALIGNMENT);
    assert_eq!(storage.stat(&path("a/b")).unwrap().size, SYNC_ALIGNMENT);
    let early = storage.open(&path("a/b")).unwrap();
    let first = read_all(&*early).unwrap();
    assert!(first.starts_with(b"first") && first[5..].iter().all(|byte| *byte == 0));

    growing.append(b"second").unwrap();
    assert_eq!(front(storage, "a/b", first.len()), first);
    growing.sync().unwrap();
    assert!(!early.is_current().unwrap());
    let all = get(storage, "a/b").unwrap();
    assert_eq!(all.len() as u64, 2 * SYNC_ALIGNMENT);
    assert!(all.starts_with(&first) && all[first.len()..].starts_with(b"second"));
    assert_eq!(read_all(&*early).unwrap(), first);
    assert_eq!(storage.sweep(&path("a")).unwrap(), 0);
}

pub(super) fn exists(storage: &dyn Storage) {
    let mut first = grow(storage, "a/b");
    first.append(b"first").unwrap();
    first.sync().unwrap();
    put(storage, "c", b"whole", Condition::Absent).unwrap();
    for (name, kind) in [
        ("a/b", StorageErrorKind::Exists),
        ("c", StorageErrorKind::Exists),
        ("a", StorageErrorKind::Exists),
        ("", StorageErrorKind::NotAnObject),
        ("c/d", StorageErrorKind::NotAnObject),
    ] {
        let refused = storage.grow(&path(name), Durability::Disk, None);
        assert_eq!(kind_of(refused), Some(kind), "{name:?}");
    }
    assert_eq!(get(storage, "c").unwrap(), b"whole");
    assert!(get(storage, "a/b").unwrap().starts_with(b"first"));
    let late = put(storage, "a/b", b"whole", Condition::Absent);
    assert_eq!(kind_of(late), Some(StorageErrorKind::Exists));
}

/// Returns sizes of all magnitudes from 1 byte to 5 MiB, a few large ones, the same in every run.
fn sizes(seed: u64) -> impl Iterator<Item = usize> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let scale = 1 << ((state >> 59) % 23);
        1 + (state >> 33) as usize % scale
    })
}

pub(super) fn model(storage: &dyn Storage) {
    let cases = [
        (Durability::Disk, None),
        (Durability::Process, None),
        (Durability::Disk, Some(64 << 20)),
        (Durability::Disk, Some(1)),
    ];
    for (number, (durability, hint)) in cases.into_iter().enumerate() {
        let name = format!("segments/{number}");
        let mut growing = storage.grow(&path(&name), durability, hint).unwrap();
        let mut expected = Vec::new();
        for (step, size) in sizes(number as u64).take(60).enumerate() {
            let size = if step == 20 { 5 << 20 } else { size };
            let bytes = pattern(expected.len(), size);
            growing.append(&bytes).unwrap();
            expected.extend_from_slice(&bytes);
            assert_eq!(growing.position(), expected.len() as u64);
            if step % 7 == 3 {
                growing.sync().unwrap();
                expected.resize(expected.len().next_multiple_of(SYNC_ALIGNMENT as usize), 0);
                assert_eq!(growing.position(), expected.len() as u64);
                assert_eq!(storage.stat(&path(&name)).unwrap().size, expected.len() as u64);
                assert!(front(storage, &name, expected.len()) == expected, "step {step} of {name}");
            }
        }
        growing.sync().unwrap();
        drop(growing);
        expected.resize(expected.len().next_multiple_of(SYNC_ALIGNMENT as usize), 0);
        assert!(get(storage, &name).unwrap() == expected, "{name} at the end");
    }
}

pub(super) fn sync_of_nothing(storage: &dyn Storage) {
    let mut growing = grow(storage, "a");
    for _ in 0..2 {
        growing.sync().unwrap();
        assert_eq!(get(storage, "a").unwrap(), b"");
    }
    growing.append(&[1; SYNC_ALIGNMENT as usize]).unwrap();
    for _ in 0..2 {
        growing.sync().unwrap();
        assert_eq!(get(storage, "a").unwrap(), [1; SYNC_ALIGNMENT as usize]);
    }
    growing.append(&[]).unwrap();
    growing.sync().unwrap();
    assert_eq!(growing.position(), SYNC_ALIGNMENT);
}

pub(super) fn dropped(storage: &dyn Storage) {
    let mut growing = grow(storage, "a");
    growing.append(b"synced").unwrap();
    growing.sync().unwrap();
    growing.append(&pattern(0, 3 << 20)).unwrap();
    drop(growing);
    assert!(front(storage, "a", 4096).starts_with(b"synced"));
    assert!(storage.stat(&path("a")).unwrap().size <= 4096 + (3 << 20), "what was set aside stays");
    drop(grow(storage, "b"));
    assert_eq!(get(storage, "b").unwrap(), b"");
    assert_eq!(storage.sweep(&path("")).unwrap(), 0);
}

pub(super) fn deleted(storage: &dyn Storage) {
    let mut growing = grow(storage, "segments/a");
    growing.append(b"bytes").unwrap();
    growing.sync().unwrap();
    let reader = storage.open(&path("segments/a")).unwrap();
    storage.delete(&path("segments/a"), Durability::Disk, Condition::None).unwrap();
    assert_eq!(kind_of(storage.open(&path("segments/a"))), Some(StorageErrorKind::NotFound));
    // Later appends go to an object without a name.
    growing.append(b"more").unwrap();
    growing.sync().unwrap();
    assert_eq!(storage.list(&path("segments")).unwrap(), []);
    assert!(read_all(&*reader).unwrap().starts_with(b"bytes"));

    let mut again = grow(storage, "segments/a");
    again.append(b"again").unwrap();
    again.sync().unwrap();
    growing.append(b"more").unwrap();
    growing.sync().unwrap();
    assert_eq!(storage.stat(&path("segments/a")).unwrap().size, SYNC_ALIGNMENT);
    let object = storage.open(&path("segments/a")).unwrap();
    storage.delete(&path("segments/a"), Durability::Disk, Condition::Unchanged(&*object)).unwrap();
}

pub(super) fn race_readers(storage: &dyn Storage) {
    let mut growing = grow(storage, "a");
    let synced = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let synced = &synced;
        let writer = scope.spawn(move || {
            for (round, size) in sizes(7).take(40).enumerate() {
                let start = growing.position() as usize;
                growing.append(&pattern(start, size.min(300_000) + round)).unwrap();
                growing.sync().unwrap();
                synced.store(growing.position(), Ordering::SeqCst);
            }
        });
        let mut before = Vec::new();
        let mut is_over = false;
        while !is_over {
            is_over = writer.is_finished();
            let length = synced.load(Ordering::SeqCst) as usize;
            let now = front(storage, "a", length);
            assert!(now.starts_with(&before), "what was synced has changed");
            before = now;
        }
    });
}

pub(super) fn lanes(storage: &dyn Storage) {
    for count in [1, 3] {
        let lanes = Lanes::new(count).unwrap();
        let name = format!("lanes/{count}");
        let mut written: Vec<Vec<u8>> = vec![Vec::new(); count as usize];
        let mut growing: Vec<_> = lanes
            .all()
            .map(|lane| storage.grow_lane(&path(&name), lane, Durability::Disk).unwrap())
            .collect();
        let mut sizes = sizes(5);
        for round in 0..4 {
            for (number, (own, model)) in growing.iter_mut().zip(&mut written).enumerate() {
                // In some rounds the first writer appends nothing and syncs the bytes of the
                // others.
                if (number + round) % 3 != 0 {
                    let bytes = pattern(number + model.len(), sizes.next().unwrap() + 700_000);
                    own.append(&bytes).unwrap();
                    model.extend(bytes);
                }
                own.flush().unwrap();
                model.resize(model.len().next_multiple_of(SYNC_ALIGNMENT as usize), 0);
                assert_eq!(own.position(), model.len() as u64);
            }
            growing[0].sync().unwrap();
            let object = storage.open(&path(&name)).unwrap();
            for (lane, model) in lanes.all().zip(&written) {
                let mut at = 0;
                while at < model.len() {
                    let run = lane.run(at as u64);
                    let left = model.len() - at;
                    let mut found = vec![0; usize::try_from(run.length).unwrap_or(left).min(left)];
                    object.read(run.offset, &mut found).unwrap();
                    assert!(found == model[at..at + found.len()], "lane {lane:?} at {at}");
                    at += found.len();
                }
            }
        }
    }
}

pub(super) fn first_lane(storage: &dyn Storage) {
    let lanes = Lanes::new(2).unwrap();
    let grow = |number| {
        let lane = lanes.lane(number).unwrap();
        storage.grow_lane(&path("a/b"), lane, Durability::Disk)
    };
    assert_eq!(kind_of(grow(1)), Some(StorageErrorKind::NotFound));
    let first = grow(0).unwrap();
    assert_eq!(kind_of(grow(0)), Some(StorageErrorKind::Exists));
    let mut second = grow(1).unwrap();
    second.append(b"second").unwrap();
    second.sync().unwrap();
    drop((first, second));
    let mut bytes = [0; 6];
    storage.open(&path("a/b")).unwrap().read(STRIPE_BYTES, &mut bytes).unwrap();
    assert_eq!(&bytes, b"second");
}
