//! The contract of [`Storage`], case by case.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{get, growing, kind_of, path, put, put_at, read_all, sibling, tree};
use crate::{
    Answer, Bell, Condition, Durability, ListedEntry, ReadBlock, Storage, StorageErrorKind,
    WriteHint,
};

/// One case of the contract.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// The promise in words.
    pub name: &'static str,
    /// Panics if an empty storage breaks it.
    pub run: fn(&dyn Storage),
    /// False for a promise that only places with directories and process-bound locks make: places
    /// that are not [remote](Storage::is_remote).
    pub everywhere: bool,
}

/// Returns a case for every place.
const fn case(name: &'static str, run: fn(&dyn Storage)) -> Case {
    Case { name, run, everywhere: true }
}

/// Returns a case for places that are not remote.
const fn local(name: &'static str, run: fn(&dyn Storage)) -> Case {
    Case { name, run, everywhere: false }
}

/// All cases.
pub const CASES: &[Case] = &[
    case("what was published is read back", reads_back),
    case("an object of no bytes is an object", empty_object),
    case("nothing is seen before it is published", whole_or_nothing),
    case("what was appended with its memory is read back", owned),
    case("a dropped writer leaves nothing", dropped_writer),
    case("absent: an existing object is kept", absent),
    case("unchanged: the newer writer is kept", unchanged),
    local("an opened object keeps its bytes", pinned),
    case("an opened object gives its own bytes or says that they are gone", replaced),
    case("versions tell bytes apart", versions),
    local("a time tells what was published before from what comes later", time),
    local("a directory is dated by the names in it", names_date),
    case("a missing object is said to be missing", missing),
    local("a directory is no object", directories),
    case("deleting twice is deleting", delete),
    local("what was changed is not deleted", delete_unchanged),
    case("a tree is deleted with all below it", delete_tree),
    case("listings are sorted and one level deep", list),
    case("paths may be deep and names long", deep),
    case("reads past the end are refused", truncated),
    case("bytes at hand are those of the object", resident),
    case("what is asked for is what a wait would give", asked),
    case("bytes read past the page cache are those of the object", read_past),
    case("of many creators one wins", race_absent),
    case("no update is lost among many", race_unchanged),
    case("whole objects only while they are replaced", race_readers),
    case("a lock excludes other threads, and not its holder's writes", lock),
    case("a lock that is held is not waited for", try_lock),
    case("trees: a place that publishes none says so", tree::said),
    case("trees: a directory is a place of its own", tree::within),
    local("trees: one appears whole under a name that nobody has", tree::absent),
    local("trees: what has the name already is kept", tree::taken),
    local("trees: two change places", tree::exchanged),
    local("trees: a workspace is taken up again, by one at a time", tree::resumed),
    local("trees: workspaces have nothing in common", tree::apart),
    local("trees: of many publishers one wins", tree::race),
    local("a finished object gets a name that nothing has", tree::object),
    case("a sweep leaves living writers alone", sweep),
    case("identity: that of the place and of nothing else", identity),
    case("growing: what was synced is seen", growing::seen),
    local("growing: a name that exists is kept", growing::exists),
    case("growing: appends of any size and syncs equal a model", growing::model),
    case("growing: a sync of nothing does nothing", growing::sync_of_nothing),
    case("growing: a dropped one leaves what was synced", growing::dropped),
    local("growing: it is deleted as any other", growing::deleted),
    case("growing: what was synced never changes", growing::race_readers),
    local("growing: lanes of one object equal a model", growing::lanes),
    local("growing: only the first lane creates", growing::first_lane),
    case("sibling: empty until something is written", sibling::empty),
    case("sibling: two places have nothing in common", sibling::apart),
    case("sibling: it is deleted and made again", sibling::deleted),
    case("sibling: a lock is of one place", sibling::locks),
    case("sibling: a suffix is a part of one name", sibling::suffixes),
    case("sibling: what is replaced stays under a second name", sibling::kept),
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
    let mut writer = storage.create(&name, Durability::Disk, WriteHint::default()).unwrap();
    writer.append(b"first").unwrap();
    assert_eq!(writer.position(), 5);
    assert_eq!(kind_of(storage.open(&name)), Some(StorageErrorKind::NotFound));
    assert_eq!(storage.list(&path("a")).unwrap(), []);
    writer.publish(Condition::None).unwrap();

    let mut writer = storage.create(&name, Durability::Disk, WriteHint::of(1 << 40)).unwrap();
    writer.append(b"second").unwrap();
    assert_eq!(get(storage, "a/b").unwrap(), b"first");
    writer.publish(Condition::None).unwrap();
    assert_eq!(get(storage, "a/b").unwrap(), b"second");
}

fn owned(storage: &dyn Storage) {
    for hint in [WriteHint::default(), WriteHint::of(2 << 20)] {
        let mut writer = storage.create(&path("a"), Durability::Disk, hint).unwrap();
        let mut all = Vec::new();
        for (bytes, is_owned) in [
            (3, false),
            (300_000, true),
            (300_000, true),
            (9, true),
            (700_000, false),
            (1 << 20, true),
        ] {
            let bytes: Vec<u8> = (0..bytes).map(|at: u32| at.to_le_bytes()[1] ^ 7).collect();
            all.extend_from_slice(&bytes);
            match is_owned {
                true => drop(writer.append_owned(bytes).unwrap()),
                false => writer.append(&bytes).unwrap(),
            }
            assert_eq!(writer.position(), all.len() as u64);
        }
        writer.publish(Condition::None).unwrap();
        assert!(get(storage, "a").unwrap() == all, "other bytes than were appended");
    }
}

fn dropped_writer(storage: &dyn Storage) {
    let mut writer = storage.create(&path("a"), Durability::Disk, WriteHint::default()).unwrap();
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

fn replaced(storage: &dyn Storage) {
    let bytes: Vec<u8> = (0..200_000u32).map(|i| (i * 7 % 251) as u8).collect();
    put(storage, "a", &bytes, Condition::None).unwrap();
    let opened = storage.open(&path("a")).unwrap();
    put(storage, "a", &vec![9; bytes.len()], Condition::None).unwrap();
    assert!(!opened.is_current().unwrap());
    match read_all(&*opened) {
        Ok(found) => assert!(found == bytes),
        Err(error) => assert_eq!(error.kind, StorageErrorKind::Conflict),
    }
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

fn time(storage: &dyn Storage) {
    for _ in 0..10 {
        put(storage, "a", b"before", Condition::None).unwrap();
        let between = storage.now().unwrap();
        assert!(storage.stat(&path("a")).unwrap().changed_ns <= between);
        put(storage, "b", b"later", Condition::None).unwrap();
        assert!(storage.stat(&path("b")).unwrap().changed_ns > between);
    }
}

fn missing(storage: &dyn Storage) {
    for name in ["a", "a/b/c"] {
        assert_eq!(kind_of(storage.open(&path(name))), Some(StorageErrorKind::NotFound));
        assert_eq!(kind_of(storage.stat(&path(name))), Some(StorageErrorKind::NotFound));
    }
    assert_eq!(storage.list(&path("a")).unwrap(), []);
    assert_eq!(kind_of(storage.try_lock(&path("a"))), Some(StorageErrorKind::NotFound));
    if !storage.is_remote() {
        assert_eq!(kind_of(storage.lock(&path("a"))), Some(StorageErrorKind::NotFound));
    }
    assert_eq!(storage.sweep(&path("a")).unwrap(), 0);
    storage.delete_tree(&path("a"), Durability::Disk).unwrap();
}

fn directories(storage: &dyn Storage) {
    put(storage, "a/b", b"x", Condition::None).unwrap();
    let refused = Some(StorageErrorKind::NotAnObject);
    assert_eq!(kind_of(storage.open(&path("a"))), refused);
    assert_eq!(kind_of(storage.stat(&path("a"))), refused);
    assert_eq!(kind_of(storage.create(&path(""), Durability::Disk, WriteHint::default())), refused);
    assert_eq!(kind_of(put(storage, "a", b"y", Condition::None)), refused);
    assert_eq!(kind_of(storage.delete(&path("a"), Durability::Disk, Condition::None)), refused);
    assert_eq!(kind_of(put(storage, "a/b/c", b"y", Condition::None)), refused);
    assert_eq!(get(storage, "a/b").unwrap(), b"x");
}

fn names_date(storage: &dyn Storage) {
    put(storage, "a/b/c", b"x", Condition::None).unwrap();
    let mut before = storage.now().unwrap();
    for comes in [true, false] {
        assert!(storage.modified_ns(&path("a/b")).unwrap() <= before);
        if comes {
            put(storage, "a/b/d", b"x", Condition::None).unwrap();
        } else {
            storage.delete(&path("a/b/c"), Durability::Disk, Condition::None).unwrap();
        }
        assert!(storage.modified_ns(&path("a/b")).unwrap() > before);
        before = storage.now().unwrap();
    }
}

fn delete_unchanged(storage: &dyn Storage) {
    put(storage, "a/b", b"x", Condition::None).unwrap();
    let old = storage.open(&path("a/b")).unwrap();
    put(storage, "a/b", b"y", Condition::None).unwrap();
    let late = storage.delete(&path("a/b"), Durability::Disk, Condition::Unchanged(&*old));
    assert_eq!(kind_of(late), Some(StorageErrorKind::Conflict));
    let object = storage.open(&path("a/b")).unwrap();
    let unchanged = Condition::Unchanged(&*object);
    storage.delete(&path("a/b"), Durability::Disk, unchanged).unwrap();
    let again = storage.delete(&path("a/b"), Durability::Disk, unchanged);
    assert_eq!(kind_of(again), Some(StorageErrorKind::Conflict));
}

fn delete(storage: &dyn Storage) {
    put(storage, "a/b", b"x", Condition::None).unwrap();
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
    let left = [ListedEntry { name: "f".into(), is_directory: false }];
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

fn asked(storage: &dyn Storage) {
    let bytes: Vec<u8> = (0..20_000u32).map(|i| (i * 7 % 251) as u8).collect();
    put(storage, "a", &bytes, Condition::None).unwrap();
    let bell = Arc::new(Bell::default());
    for tail in [0, 100, 20_000, 1 << 20] {
        let Some(answer) = storage.request_end(&path("a"), tail, &bell) else { return };
        let object = answer.take().unwrap().expect("it is there");
        assert_eq!(object.version(), storage.open(&path("a")).unwrap().version());
        for (offset, length) in [(0, 20_000), (0, 1), (19_000, 1000), (7, 19_990), (19_999, 1)] {
            let answer = object.request(offset, length, &bell);
            let [start, end] = [offset, offset + length].map(|at| at as usize);
            if let Some(answer) = answer {
                assert_eq!(answer.take().unwrap(), bytes[start..end]);
            }
        }
        for (offset, length) in [(19_999, 2), (20_000, 1), (u64::MAX, 1), (1, u64::MAX)] {
            let given = object.request(offset, length, &bell).map(Answer::take);
            assert!(given.is_none_or(|given| given.is_err()), "what is not there is never made up");
        }
    }
    assert!(bell.count() >= 4);
    let missing = storage.request_end(&path("b"), 100, &bell).expect("as for others");
    assert!(missing.take().unwrap().is_none());
    // A read of a replaced object returns the opened bytes, or an error that they are gone.
    let object = storage.request_end(&path("a"), 1, &bell).unwrap().take().unwrap().unwrap();
    put(storage, "a", &vec![9; 20_000], Condition::None).unwrap();
    if let Some(answer) = object.request(0, 5000, &bell) {
        match answer.take() {
            Ok(given) => assert_eq!(given, bytes[..5000]),
            Err(error) => assert_eq!(error.kind, StorageErrorKind::Conflict),
        }
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
    // A read past the end returns no bytes.
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

/// Increments the counter, retrying after each conflict.
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
    assert_eq!(names, [ListedEntry { name: "x".into(), is_directory: false }]);
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
    let mut writer = storage.create(&path("a/b"), Durability::Disk, WriteHint::default()).unwrap();
    writer.append(b"alive").unwrap();
    assert_eq!(storage.sweep(&path("a")).unwrap(), 0);
    writer.publish(Condition::Absent).unwrap();
    assert_eq!(storage.sweep(&path("a")).unwrap(), 0);
    assert_eq!(get(storage, "a/b").unwrap(), b"alive");
}

fn identity(storage: &dyn Storage) {
    put(storage, "a", b"x", Condition::None).unwrap();
    let sibling = storage.sibling(".bedform-log").unwrap();
    put(&*sibling, "a", b"x", Condition::None).unwrap();
    let own = storage.identity().expect("a place that holds bytes has an identity");
    assert_eq!(storage.identity(), Some(own.clone()));
    let others = sibling.identity().expect("so has what lies beside it");
    assert_ne!(own, others);
    assert_eq!(storage.sibling(".bedform-log").unwrap().identity(), Some(others));
    assert!(storage.stat(&path("a")).unwrap().tells_bytes_apart());
}
