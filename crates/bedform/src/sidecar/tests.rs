//! Tests of sidecars, with a kind of helper file that holds a text.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use bedform_format::checksum::crc32c;
use bedform_storage::{
    Failing, Fault, LocalStorage, MemoryStorage, Mode, SimulatedFileSystem, Staging,
    StorageErrorKind, StorageOperation,
};

use super::place::{HolderAccess, LocalDirectory, key_of};
use super::*;
use crate::trace::{PolicyOutcome, PolicyPlace, PolicySettings};

/// A text, the size of its source, and their checksum.
#[derive(Debug, PartialEq, Clone)]
struct Note {
    source: SourceVersion,
    text: String,
}

impl Helper for Note {
    const BYTES_MAX: u64 = 1 << 10;

    fn encode(&self) -> Option<Vec<u8>> {
        let mut bytes = [&self.source.size.to_le_bytes(), self.text.as_bytes()].concat();
        bytes.extend(crc32c(&bytes).to_le_bytes());
        Some(bytes)
    }

    fn decode(bytes: &[u8], _: &Limits) -> Option<Self> {
        let (body, checksum) = bytes.split_last_chunk()?;
        let (size, text) = body.split_first_chunk()?;
        let source = source(u64::from_le_bytes(*size));
        let text = String::from_utf8(text.to_vec()).ok()?;
        (crc32c(body) == u32::from_le_bytes(*checksum)).then_some(Self { source, text })
    }

    fn source(&self) -> Option<&SourceVersion> {
        Some(&self.source)
    }
}

fn source(size: u64) -> SourceVersion {
    SourceVersion { size, ..SourceVersion::default() }
}

fn note(text: &str) -> Note {
    Note { source: source(7), text: text.to_owned() }
}

fn loaded(sidecar: &Sidecar) -> Option<String> {
    Some(sidecar.load::<Note>("note", &source(7), &Limits::default())?.text)
}

fn newest(sidecar: &Sidecar) -> Option<(u64, String)> {
    let (number, note) = sidecar.load_newest::<Note>("notes", &source(7), &Limits::default())?;
    Some((number, note.text))
}

fn in_memory() -> (Arc<MemoryStorage>, Sidecar) {
    let storage = Arc::new(MemoryStorage::new());
    let directory = ObjectPath::parse("a").unwrap();
    (storage.clone(), Sidecar::in_storage(storage, directory, None))
}

fn put(storage: &dyn Storage, path: &str, bytes: &[u8]) {
    let path = ObjectPath::parse(path).unwrap();
    storage.put(&path, bytes, Durability::Process, Condition::None).unwrap();
}

fn kept_by(path: PathBuf, user: u32) -> LocalDirectory {
    LocalDirectory {
        path,
        owners: vec![user],
        access: HolderAccess::Make,
        is_sidecar: false,
        site: None,
    }
}

/// A directory of this test alone, and a sidecar in it of files of `user`.
struct Scratch {
    path: PathBuf,
    sidecar: Sidecar,
}

impl Scratch {
    fn new(name: &str, user: u32) -> Self {
        let name = format!("bedform-sidecar-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        let holder = kept_by(path.join("kept"), user);
        let directory = ObjectPath::parse(&key_of(&path)).unwrap();
        let storage = Arc::new(MemoryStorage::new());
        let sidecar = Sidecar::in_storage(storage, directory, Some(1 << 20));
        Self { path, sidecar: Sidecar { holder: Arc::new(holder), ..sidecar } }
    }

    fn file(&self) -> PathBuf {
        self.path.join("kept").join(self.sidecar.directory.as_str()).join("note")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[test]
fn the_last_helper_that_was_kept_is_found_as_long_as_its_source_is_the_same() {
    let (_, sidecar) = in_memory();
    assert_eq!(loaded(&sidecar), None);
    for text in ["first", "second"] {
        assert!(sidecar.save("note", &note(text)));
        assert_eq!(loaded(&sidecar).unwrap(), text);
    }
    assert!(sidecar.load::<Note>("note", &source(8), &Limits::default()).is_none());
}

#[test]
fn bytes_that_are_damaged_cut_short_or_too_many_are_as_if_they_were_not_there() {
    let (storage, sidecar) = in_memory();
    let good = note("text").encode().unwrap();
    for at in 0..good.len() {
        let mut damaged = good.clone();
        damaged[at] ^= 1;
        put(&*storage, "a/note", &damaged);
        assert_eq!(loaded(&sidecar), None, "byte {at}");
        put(&*storage, "a/note", &good[..at]);
        assert_eq!(loaded(&sidecar), None, "cut at {at}");
    }
    let large = Note { text: "x".repeat(2000), ..note("") };
    assert!(!sidecar.save("note", &large), "more than its kind may have");
    put(&*storage, "a/note", &large.encode().unwrap());
    assert_eq!(loaded(&sidecar), None);
    put(&*storage, "a/note", &good);
    assert!(loaded(&sidecar).is_some());
}

#[test]
fn a_file_of_another_user_or_behind_a_link_is_ignored() {
    let own = Scratch::new("own", user());
    assert!(own.sidecar.save("note", &note("own")));
    assert!(loaded(&own.sidecar).is_some());
    let of_other = kept_by(own.path.join("kept"), user() + 1);
    let sidecar = Sidecar { holder: Arc::new(of_other), ..own.sidecar.clone() };
    assert_eq!(loaded(&sidecar), None);

    let file = own.file();
    let elsewhere = file.with_file_name("elsewhere");
    fs::rename(&file, &elsewhere).unwrap();
    symlink("elsewhere", &file).unwrap();
    assert_eq!(loaded(&own.sidecar), None);
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert_eq!(loaded(&own.sidecar), None);
    fs::remove_dir(&file).unwrap();
    fs::rename(&elsewhere, &file).unwrap();
    assert!(loaded(&own.sidecar).is_some());
}

#[test]
fn what_the_site_knows_of_a_source_is_everybodys_and_its_policy_is_not() {
    let (own, of_site) = (Scratch::new("user", user()), Scratch::new("site", user()));
    let site = of_site.sidecar.clone();
    let sidecar = Sidecar { site: Some(Arc::new(site.clone())), ..own.sidecar.clone() };
    assert!(site.save("note", &note("of the site")));
    assert_eq!(loaded(&sidecar).unwrap(), "of the site");

    let place = PolicyPlace::new(&site).unwrap();
    assert!(place.set(&PolicySettings::new(10, None, "/era5.nc".to_owned())));
    place.keep_outcome(&PolicyOutcome::default());
    let state = place.state(true);
    assert!(state.settings.is_some() && state.outcome.is_some());
    let state = PolicyPlace::new(&sidecar).unwrap().state(true);
    assert!(state.settings.is_none() && state.outcome.is_none());
}

#[test]
fn nothing_is_made_before_something_is_kept_and_then_for_this_user_alone() {
    let own = Scratch::new("made", user());
    assert_eq!(loaded(&own.sidecar), None);
    assert!(!own.path.exists());
    assert!(own.sidecar.save("note", &note("text")));
    let mode = fs::metadata(own.path.join("kept")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    assert_eq!(fs::metadata(own.file()).unwrap().uid(), user());
}

#[test]
fn an_error_of_storage_is_an_absent_helper() {
    for operation in [
        StorageOperation::Open,
        StorageOperation::Read,
        StorageOperation::Create,
        StorageOperation::Publish,
    ] {
        let storage = Arc::new(Failing::new(MemoryStorage::new()));
        let sidecar = Sidecar::in_storage(storage.clone(), ObjectPath::root(), Some(1 << 20));
        sidecar.save("note", &note("first"));
        for k in 0..4 {
            storage.fail_at(
                operation,
                storage.count(operation) + k,
                Fault::Error(StorageErrorKind::Io),
            );
        }
        let found = loaded(&sidecar);
        assert!(found.is_none_or(|text| text == "first"));
        sidecar.save("note", &note("second"));
        sidecar.save_next("notes", &note("second"));
        newest(&sidecar);
    }
}

#[test]
fn of_generations_the_newest_valid_one_counts_and_those_before_the_last_go() {
    let (storage, sidecar) = in_memory();
    assert_eq!(newest(&sidecar), None);
    for number in 1..=4 {
        assert_eq!(sidecar.save_next("notes", &note(&number.to_string())), Some(number));
        assert_eq!(newest(&sidecar).unwrap(), (number, number.to_string()));
    }
    let names = storage.list(&ObjectPath::parse("a/notes").unwrap()).unwrap();
    let names: Vec<_> = names.into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["00000003", "00000004"]);
    put(&*storage, "a/notes/00000004", b"damaged");
    assert_eq!(newest(&sidecar).unwrap(), (3, "3".to_owned()));
    assert_eq!(sidecar.save_next("notes", &note("5")), Some(5), "no number is used twice");
}

#[test]
fn numbers_that_cannot_be_followed_are_an_end_and_no_panic() {
    let (storage, sidecar) = in_memory();
    put(&*storage, "a/notes/99999999", b"");
    put(&*storage, "a/notes/18446744073709551615", b"");
    put(&*storage, "a/notes/+0000001", b"");
    assert_eq!(sidecar.save_next("notes", &note("text")), None);
    assert_eq!(newest(&sidecar), None);
}

#[test]
fn writers_at_the_same_time_get_numbers_of_their_own() {
    let (_, sidecar) = in_memory();
    let numbers: Vec<_> = std::thread::scope(|scope| {
        let write = || scope.spawn(|| sidecar.save_next("notes", &note("text")).unwrap());
        let writers: Vec<_> = (0..8).map(|_| write()).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    // The number that a late writer gave back is left out.
    let apart: BTreeSet<_> = numbers.iter().copied().collect();
    assert_eq!(apart.len(), 8, "{numbers:?}");
    assert_eq!(newest(&sidecar).map(|(number, _)| number), apart.last().copied());
}

#[test]
fn sidecars_that_were_used_least_recently_go_first() {
    let storage = Arc::new(MemoryStorage::new());
    // Each counts for 64 KiB.
    let sidecar = |name: &str| {
        let directory = ObjectPath::parse(&key_of(Path::new(name))).unwrap();
        Sidecar::in_storage(storage.clone(), directory, Some(200 << 10))
    };
    put(&*storage, "notes of somebody/else", &[0; 1 << 18]);
    put(&*storage, &format!("{}/large", "ab".repeat(16)), &[0; 1 << 18]);
    for name in ["a", "b", "c"] {
        assert!(sidecar(name).save("note", &note(name)));
    }
    assert!(loaded(&sidecar("a")).is_some(), "used again");
    assert!(sidecar("d").save("note", &note("d")));
    let left: Vec<_> =
        ["a", "b", "c", "d"].into_iter().filter(|n| loaded(&sidecar(n)).is_some()).collect();
    assert_eq!(left, ["a", "c", "d"]);
    // Files of other programs have stayed.
    assert_eq!(storage.list(&ObjectPath::root()).unwrap().len(), 5);
}

#[test]
fn sidecars_with_replicas_stay_and_do_not_count() {
    let storage = Arc::new(MemoryStorage::new());
    let key = |name: &str| key_of(Path::new(name));
    let sidecar = |name: &str| {
        let directory = ObjectPath::parse(&key(name)).unwrap();
        Sidecar::in_storage(storage.clone(), directory, Some(130 << 10))
    };
    put(&*storage, &format!("{}/replicas/r/t/c.0", key("a")), &[0; 1 << 20]);
    for name in ["a", "b", "c", "d"] {
        assert!(sidecar(name).save("note", &note(name)));
    }
    let is_kept = |name: &&str| loaded(&sidecar(name)).is_some();
    let left: Vec<_> = ["a", "b", "c", "d"].into_iter().filter(is_kept).collect();
    assert_eq!(left, ["a", "c", "d"]);
}

#[test]
fn a_budget_of_nothing_keeps_nothing() {
    let storage = Arc::new(MemoryStorage::new());
    let directory = ObjectPath::parse(&key_of(Path::new("a"))).unwrap();
    let sidecar = Sidecar::in_storage(storage.clone(), directory, Some(0));
    assert!(!sidecar.save("note", &note("text")));
    assert!(storage.list(&ObjectPath::root()).unwrap().is_empty());
}

#[test]
fn after_a_power_cut_at_any_call_a_helper_is_old_new_or_absent() {
    let storage_of = |system: &SimulatedFileSystem| {
        Arc::new(LocalStorage::over(system.clone(), Mode::ReadWrite, Staging::default()))
    };
    let sidecar = |system: &SimulatedFileSystem| {
        let directory = ObjectPath::parse(&key_of(Path::new("a"))).unwrap();
        Sidecar::in_storage(storage_of(system), directory, Some(1 << 20))
    };
    let base = SimulatedFileSystem::new();
    sidecar(&base).save("note", &note("old"));
    let calls = {
        let system = base.fork();
        let before = system.calls();
        sidecar(&system).save("note", &note("new"));
        sidecar(&system).save_next("notes", &note("new"));
        system.calls() - before
    };
    assert!(calls > 10, "{calls} calls");
    for cut in 0..calls {
        let system = base.fork();
        system.fail_power_after(cut);
        sidecar(&system).save("note", &note("new"));
        sidecar(&system).save_next("notes", &note("new"));
        for image in system.crash_images(cut, 20) {
            let after = sidecar(&image);
            let found = loaded(&after);
            assert!(found.is_none_or(|text| text == "old" || text == "new"), "cut {cut}");
            assert!(newest(&after).is_none_or(|(_, text)| text == "new"), "cut {cut}");
            assert!(after.save("note", &note("again")), "cut {cut}");
            assert_eq!(loaded(&after).unwrap(), "again", "cut {cut}");
        }
    }
}
