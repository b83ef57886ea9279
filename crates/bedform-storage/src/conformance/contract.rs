//! The contract of [`Storage`], case by case.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{beside, get, growing, kind_of, path, put, put_at, read_all};
use crate::{Condition, Durability, Entry, ReadBlock, Storage, StorageErrorKind};

/// One promise.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// The promise in words.
    pub name: &'static str,
    /// Panics if an empty storage breaks it.
    pub run: fn(&dyn Storage),
}

/// All of them.
pub const CASES: &[Case] = &[
    Case { name: "what was published is read back", run: reads_back },
    Case { name: "an object of no bytes is an object", run: empty_object },
    Case { name: "nothing is seen before it is published", run: whole_or_nothing },
    Case { name: "a dropped writer leaves nothing", run: dropped_writer },
    Case { name: "absent: an existing object is kept", run: absent },
    Case { name: "unchanged: the newer writer is kept", run: unchanged },
    Case { name: "an opened object keeps its bytes", run: pinned },
    Case { name: "versions tell bytes apart", run: versions },
    Case { name: "a missing object is said to be missing", run: missing },
    Case { name: "a directory is no object", run: directories },
    Case { name: "deleting twice is deleting", run: delete },
    Case { name: "a tree is deleted with all below it", run: delete_tree },
    Case { name: "listings are sorted and one level deep", run: list },
    Case { name: "paths may be deep and names long", run: deep },
    Case { name: "reads past the end are refused", run: truncated },
    Case { name: "bytes at hand are those of the object", run: resident },
    Case { name: "bytes read past the page cache are those of the object", run: read_past },
    Case { name: "of many creators one wins", run: race_absent },
    Case { name: "no update is lost among many", run: race_unchanged },
    Case { name: "whole objects only while they are replaced", run: race_readers },
    Case { name: "a lock excludes other threads, and not its holder's writes", run: lock },
    Case { name: "a lock that is held is not waited for", run: try_lock },
    Case { name: "a sweep leaves living writers alone", run: sweep },
    Case { name: "growing: what was synced is seen", run: growing::seen },
    Case { name: "growing: a name that exists is kept", run: growing::exists },
    Case { name: "growing: appends of any size and syncs equal a model", run: growing::model },
    Case { name: "growing: a sync of nothing does nothing", run: growing::sync_of_nothing },
    Case { name: "growing: a dropped one leaves what was synced", run: growing::dropped },
    Case { name: "growing: it is deleted as any other", run: growing::deleted },
    Case { name: "growing: what was synced never changes", run: growing::race_readers },
    Case { name: "growing: lanes of one object equal a model", run: growing::lanes },
    Case { name: "growing: only the first lane creates", run: growing::first_lane },
    Case { name: "beside: empty until something is written", run: beside::empty },
    Case { name: "beside: two places have nothing in common", run: beside::apart },
    Case { name: "beside: it is deleted and made again", run: beside::deleted },
    Case { name: "beside: a lock is of one place", run: beside::locks },
    Case { name: "beside: a suffix is a part of one name", run: beside::suffixes },
];

fn reads_back(storage: &dyn Storage) {
    let bytes: Vec<u8> = (0..70_000u32).map(|i| (i * 7 % 251) as u8).collect();
    let version = put(storage, "a/b", &bytes, Condition::None).unwrap();
    assert_eq!(version.size, 70_000);
    let object = storage.open(&path("a/b")).unwrap();
    assert_eq!(object.version(), &version);
    assert_eq!(storage.stat(&path("a/b")).unwrap(), version);
    assert_eq!(read_all(&*object).unwrap(), bytes);
    let mut middle = [0; 1000];
    object.read(33_333, &mut middle).unwrap();
    assert_eq!(middle[..], bytes[33_333..34_333]);
    let buffered = put_at(storage, "c", &bytes, Condition::None, Durability::Process).unwrap();
    assert_eq!(buffered.size, 70_000);
    assert_eq!(get(storage, "c").unwrap(), bytes);
}

fn empty_object(storage: &dyn Storage) {
    assert_eq!(put(storage, "a", b"", Condition::Absent).unwrap().size, 0);
    assert_eq!(get(storage, "a").unwrap(), b"");
    let object = storage.open(&path("a")).unwrap();
    assert_eq!(kind_of(object.read(0, &mut [0])), Some(StorageErrorKind::Truncated));
    assert_eq!(kind_of(put(storage, "a", b"", Condition::Absent)), Some(StorageErrorKind::Exists));
}

fn whole_or_nothing(storage: &dyn Storage) {
    let name = path("a/b");
    let mut writer = storage.create(&name, Durability::Disk, None).unwrap();
    writer.append(b"first").unwrap();
    assert_eq!(writer.position(), 5);
    assert_eq!(kind_of(storage.open(&name)), Some(StorageErrorKind::NotFound));
    assert_eq!(storage.list(&path("a")).unwrap(), []);
    writer.publish(Condition::None).unwrap();

    let mut writer = storage.create(&name, Durability::Disk, Some(1 << 40)).unwrap();
    writer.append(b"second").unwrap();
    assert_eq!(get(storage, "a/b").unwrap(), b"first");
    writer.publish(Condition::None).unwrap();
    assert_eq!(get(storage, "a/b").unwrap(), b"second");
}

fn dropped_writer(storage: &dyn Storage) {
    let mut writer = storage.create(&path("a"), Durability::Disk, None).unwrap();
    writer.append(&[1; 100_000]).unwrap();
    drop(writer);
    assert_eq!(kind_of(storage.open(&path("a"))), Some(StorageErrorKind::NotFound));
    assert_eq!(storage.sweep(&path("")).unwrap(), 0);
}

fn absent(storage: &dyn Storage) {
    put(storage, "a", b"first", Condition::Absent).unwrap();
    let second = put(storage, "a", b"second", Condition::Absent);
    assert_eq!(kind_of(second), Some(StorageErrorKind::Exists));
    assert_eq!(get(storage, "a").unwrap(), b"first");
}

fn unchanged(storage: &dyn Storage) {
    put(storage, "a", b"first", Condition::None).unwrap();
    let old = storage.open(&path("a")).unwrap();
    assert!(old.is_current().unwrap());
    put(storage, "a", b"2nd..", Condition::Unchanged(&*old)).unwrap();
    assert!(!old.is_current().unwrap());
    let late = put(storage, "a", b"third", Condition::Unchanged(&*old));
    assert_eq!(kind_of(late), Some(StorageErrorKind::Conflict));
    let late = storage.delete(&path("a"), Durability::Disk, Condition::Unchanged(&*old));
    assert_eq!(kind_of(late), Some(StorageErrorKind::Conflict));
    assert_eq!(get(storage, "a").unwrap(), b"2nd..");
    storage.delete(&path("a"), Durability::Disk, Condition::None).unwrap();
    let late = put(storage, "a", b"third", Condition::Unchanged(&*old));
    assert_eq!(kind_of(late), Some(StorageErrorKind::Conflict));
    assert_eq!(kind_of(storage.open(&path("a"))), Some(StorageErrorKind::NotFound));
}

fn pinned(storage: &dyn Storage) {
    put(storage, "a", b"first", Condition::None).unwrap();
    let first = storage.open(&path("a")).unwrap();
    put(storage, "a", b"second", Condition::None).unwrap();
    let second = storage.open(&path("a")).unwrap();
    storage.delete(&path("a"), Durability::Disk, Condition::None).unwrap();
    assert_eq!(read_all(&*first).unwrap(), b"first");
    assert_eq!(read_all(&*second).unwrap(), b"second");
    assert!(!first.is_current().unwrap() && !second.is_current().unwrap());
}

fn versions(storage: &dyn Storage) {
    let mut seen = Vec::new();
    let mut held = Vec::new();
    for _ in 0..10 {
        let version = put(storage, "a", b"same size", Condition::None).unwrap();
        assert!(!seen.contains(&version));
        seen.push(version);
        held.push(storage.open(&path("a")).unwrap());
    }
}

fn missing(storage: &dyn Storage) {
    for name in ["a", "a/b/c"] {
        assert_eq!(kind_of(storage.open(&path(name))), Some(StorageErrorKind::NotFound));
        assert_eq!(kind_of(storage.stat(&path(name))), Some(StorageErrorKind::NotFound));
    }
    assert_eq!(storage.list(&path("a")).unwrap(), []);
    assert_eq!(kind_of(storage.lock(&path("a"))), Some(StorageErrorKind::NotFound));
    assert_eq!(storage.sweep(&path("a")).unwrap(), 0);
    storage.delete_tree(&path("a"), Durability::Disk).unwrap();
}

fn directories(storage: &dyn Storage) {
    put(storage, "a/b", b"x", Condition::None).unwrap();
    let refused = Some(StorageErrorKind::NotAnObject);
    assert_eq!(kind_of(storage.open(&path("a"))), refused);
    assert_eq!(kind_of(storage.stat(&path("a"))), refused);
    assert_eq!(kind_of(storage.create(&path(""), Durability::Disk, None)), refused);
    assert_eq!(kind_of(put(storage, "a", b"y", Condition::None)), refused);
    assert_eq!(kind_of(storage.delete(&path("a"), Durability::Disk, Condition::None)), refused);
    assert_eq!(kind_of(put(storage, "a/b/c", b"y", Condition::None)), refused);
    assert_eq!(get(storage, "a/b").unwrap(), b"x");
}

fn delete(storage: &dyn Storage) {
    put(storage, "a/b", b"x", Condition::None).unwrap();
    let object = storage.open(&path("a/b")).unwrap();
    let unchanged = Condition::Unchanged(&*object);
    storage.delete(&path("a/b"), Durability::Disk, unchanged).unwrap();
    let again = storage.delete(&path("a/b"), Durability::Disk, unchanged);
    assert_eq!(kind_of(again), Some(StorageErrorKind::Conflict));
    for name in ["a/b", "never/was"] {
        storage.delete(&path(name), Durability::Disk, Condition::None).unwrap();
    }
    put(storage, "a/b", b"y", Condition::Absent).unwrap();
}

fn delete_tree(storage: &dyn Storage) {
    for name in ["a/b/c", "a/b/d/e", "a/f", "ab"] {
        put(storage, name, b"x", Condition::None).unwrap();
    }
    storage.delete_tree(&path("a/b"), Durability::Disk).unwrap();
    assert_eq!(kind_of(storage.open(&path("a/b/d/e"))), Some(StorageErrorKind::NotFound));
    let left = [Entry { name: "f".into(), is_directory: false }];
    assert_eq!(storage.list(&path("a")).unwrap(), left);
    put(storage, "a/b/c", b"again", Condition::Absent).unwrap();
    storage.delete_tree(&path(""), Durability::Disk).unwrap();
    assert_eq!(storage.list(&path("")).unwrap(), []);
}

fn list(storage: &dyn Storage) {
    for name in ["b", "a10", "a2", "c/x", "C/x/y", "a b"] {
        put(storage, name, b"", Condition::None).unwrap();
    }
    let entries = storage.list(&path("")).unwrap();
    let names: Vec<_> = entries.iter().map(|e| (e.name.as_str(), e.is_directory)).collect();
    let expected =
        [("C", true), ("a b", false), ("a10", false), ("a2", false), ("b", false), ("c", true)];
    assert_eq!(names, expected);
}

fn deep(storage: &dyn Storage) {
    let long = "n".repeat(255);
    let name = format!("{}{long}", "d/".repeat(380));
    put(storage, &name, b"deep", Condition::Absent).unwrap();
    assert_eq!(get(storage, &name).unwrap(), b"deep");
    storage.delete_tree(&path("d"), Durability::Process).unwrap();
    assert_eq!(storage.list(&path("")).unwrap(), []);
}

fn truncated(storage: &dyn Storage) {
    put(storage, "a", b"0123456789", Condition::None).unwrap();
    let object = storage.open(&path("a")).unwrap();
    for (offset, length) in [(0, 11), (9, 2), (10, 1), (1 << 40, 1), (u64::MAX - 1, 4)] {
        let outcome = object.read(offset, &mut vec![0; length]);
        assert_eq!(kind_of(outcome), Some(StorageErrorKind::Truncated), "{length} at {offset}");
    }
    object.read(10, &mut []).unwrap();
}

fn resident(storage: &dyn Storage) {
    let bytes: Vec<u8> = (0..20_000u32).map(|i| (i % 256) as u8).collect();
    put(storage, "a", &bytes, Condition::None).unwrap();
    let object = storage.open(&path("a")).unwrap();
    let mut buffer = [0; 5000];
    for offset in [0usize, 4096, 19_000, 20_000, 30_000] {
        let count = object.read_resident(offset as u64, &mut buffer).unwrap();
        let rest = bytes.get(offset..).unwrap_or(&[]);
        assert!(rest.starts_with(&buffer[..count]));
    }
}

fn read_past(storage: &dyn Storage) {
    let bytes: Vec<u8> = (0..3_000_001u32).map(|i| (i * 7 % 251) as u8).collect();
    put(storage, "a", &bytes, Condition::None).unwrap();
    let object = storage.open(&path("a")).unwrap();
    let mut block = ReadBlock::default();
    for (offset, length) in
        [(0, 1 << 20), (1, 300_000), (4095, 262_145), (2_000_001, 1_000_000), (7, 2 << 20)]
    {
        let mut plain = vec![0; length];
        object.read(offset, &mut plain).unwrap();
        if let Some(past) = object.read_past(offset, length, &mut block).unwrap() {
            assert_eq!(past, plain);
        }
    }
    // What is not there is never made up.
    assert!(object.read_past(2_900_000, 300_000, &mut block).unwrap().is_none());
    assert!(object.read_past(u64::MAX, 300_000, &mut block).unwrap_or(None).is_none());
    assert!(object.read_past(0, ReadBlock::BYTES + 1, &mut block).unwrap().is_none());
}

fn race_absent(storage: &dyn Storage) {
    for round in 0..20 {
        let name = format!("roots/{round}");
        let winners = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for writer in 0..4u8 {
                let (name, winners) = (&name, &winners);
                scope.spawn(move || match put(storage, name, &[writer; 9], Condition::Absent) {
                    Ok(_) => winners.store(100 + u64::from(writer), Ordering::SeqCst),
                    Err(error) => assert_eq!(error.kind, StorageErrorKind::Exists),
                });
            }
        });
        let winner = winners.load(Ordering::SeqCst);
        assert!(winner >= 100, "nobody won");
        assert_eq!(u64::from(get(storage, &name).unwrap()[0]), winner - 100);
    }
}

fn race_unchanged(storage: &dyn Storage) {
    put(storage, "counter", &0u64.to_le_bytes(), Condition::None).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..25).for_each(|_| increment(storage)));
        }
    });
    assert_eq!(get(storage, "counter").unwrap(), 100u64.to_le_bytes());
}

/// Adds one to the counter, as often as others come first.
fn increment(storage: &dyn Storage) {
    loop {
        let object = storage.open(&path("counter")).unwrap();
        let count = u64::from_le_bytes(read_all(&*object).unwrap().try_into().unwrap());
        let next = (count + 1).to_le_bytes();
        match put_at(storage, "counter", &next, Condition::Unchanged(&*object), Durability::Process)
        {
            Ok(_) => return,
            Err(error) => assert_eq!(error.kind, StorageErrorKind::Conflict),
        }
    }
}

fn race_readers(storage: &dyn Storage) {
    let write = |value: u8| {
        let size = 1000 + usize::from(value) * 100;
        put_at(storage, "a", &vec![value; size], Condition::None, Durability::Process).unwrap()
    };
    write(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (0..100).for_each(|value| {
                write(value);
            })
        });
        for _ in 0..200 {
            let bytes = get(storage, "a").unwrap();
            assert_eq!(bytes.len(), 1000 + usize::from(bytes[0]) * 100);
            assert!(bytes.iter().all(|byte| *byte == bytes[0]));
        }
    });
}

fn lock(storage: &dyn Storage) {
    put(storage, "log/x", b"", Condition::None).unwrap();
    let inside = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let _guard = storage.lock(&path("log")).unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold the lock");
                    let written =
                        put_at(storage, "log/x", b"y", Condition::None, Durability::Process);
                    assert!(written.is_ok());
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
    });
    let names: Vec<_> = storage.list(&path("log")).unwrap();
    assert_eq!(names, [Entry { name: "x".into(), is_directory: false }]);
}

fn try_lock(storage: &dyn Storage) {
    assert_eq!(kind_of(storage.try_lock(&path("log"))), Some(StorageErrorKind::NotFound));
    put(storage, "log/x", b"", Condition::None).unwrap();
    let held = storage.lock(&path("log")).unwrap();
    assert!(storage.try_lock(&path("log")).unwrap().is_none());
    assert!(storage.try_lock(&path("")).unwrap().is_some());
    drop(held);
    let held = storage.try_lock(&path("log")).unwrap();
    assert!(held.is_some() && storage.try_lock(&path("log")).unwrap().is_none());
}

fn sweep(storage: &dyn Storage) {
    let mut writer = storage.create(&path("a/b"), Durability::Disk, None).unwrap();
    writer.append(b"alive").unwrap();
    assert_eq!(storage.sweep(&path("a")).unwrap(), 0);
    writer.publish(Condition::Absent).unwrap();
    assert_eq!(storage.sweep(&path("a")).unwrap(), 0);
    assert_eq!(get(storage, "a/b").unwrap(), b"alive");
}
