//! Local files: behaviour of the real system.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use bedform_format::ObjectPath;
use bedform_storage::{
    Condition, Durability, LocalStorage, Mode, Object, OsFileSystem, OwnedRoot, Staging, Storage,
    StorageErrorKind, WriteHint,
};

/// A directory that is deleted with the test's value.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("bedform-local-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn path(text: &str) -> ObjectPath {
    ObjectPath::parse(text).unwrap()
}

pub(crate) fn put(storage: &dyn Storage, name: &str, bytes: &[u8]) {
    let mut writer = storage.create(&path(name), Durability::Disk, WriteHint::default()).unwrap();
    writer.append(bytes).unwrap();
    writer.publish(Condition::None).unwrap();
}

pub(crate) fn get(object: &dyn Object) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(object.version().size).unwrap()];
    object.read(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn an_identity_is_that_of_the_directory_by_whatever_name_and_as_long_as_it_is_that_one() {
    let scratch = Scratch::new();
    let root = scratch.0.join("a");
    std::fs::create_dir(&root).unwrap();
    symlink("a", scratch.0.join("b")).unwrap();
    let identity = |name: &str| {
        LocalStorage::open(&scratch.0.join(name), Mode::ReadOnly).unwrap().identity().unwrap()
    };
    let first = identity("a");
    assert_eq!(identity("b"), first);
    assert_eq!(identity("b/../a/."), first);
    std::fs::rename(&root, scratch.0.join("c")).unwrap();
    assert_ne!(identity("c"), first);
    std::fs::create_dir(&root).unwrap();
    assert_ne!(identity("a"), first);
}

#[test]
fn links_are_followed_inside_the_root_and_nowhere_else() {
    let (scratch, outside) = (Scratch::new(), Scratch::new());
    let storage = LocalStorage::open(&scratch.0, Mode::ReadWrite).unwrap();
    put(&storage, "a/real", b"inside");
    std::fs::write(outside.0.join("secret"), b"outside").unwrap();
    symlink("real", scratch.0.join("a/relative")).unwrap();
    symlink("a", scratch.0.join("b")).unwrap();
    symlink(outside.0.join("secret"), scratch.0.join("a/absolute")).unwrap();
    symlink(&outside.0, scratch.0.join("c")).unwrap();

    assert_eq!(get(&*storage.open(&path("a/relative")).unwrap()), b"inside");
    assert_eq!(get(&*storage.open(&path("b/real")).unwrap()), b"inside");
    for name in ["a/absolute", "c/secret"] {
        let kind = storage.open(&path(name)).unwrap_err().kind;
        assert_eq!(kind, StorageErrorKind::NotAnObject, "{name}");
        let kind = storage.stat(&path(name)).unwrap_err().kind;
        assert_eq!(kind, StorageErrorKind::NotAnObject, "{name}");
    }
    for name in ["b/new", "c/new"] {
        let error = storage
            .create(&path(name), Durability::Disk, WriteHint::default())
            .map(|_| ())
            .unwrap_err();
        assert_eq!(error.kind, StorageErrorKind::NotAnObject, "{name}");
    }
    assert!(storage.delete(&path("c/secret"), Durability::Disk, Condition::None).is_err());
    storage.delete_tree(&path("a"), Durability::Disk).unwrap();
    assert!(outside.0.join("secret").exists());
}

#[test]
fn without_openat2_no_link_is_followed_at_all() {
    let (scratch, outside) = (Scratch::new(), Scratch::new());
    let system = OsFileSystem::open(&scratch.0).unwrap().without_openat2();
    let storage = LocalStorage::over(system, Mode::ReadWrite, Staging::default());
    put(&storage, "a/b/real", b"inside");
    std::fs::write(outside.0.join("secret"), b"outside").unwrap();
    symlink(outside.0.join("secret"), scratch.0.join("a/absolute")).unwrap();
    symlink(&outside.0, scratch.0.join("c")).unwrap();
    symlink("b", scratch.0.join("a/d")).unwrap();
    assert_eq!(get(&*storage.open(&path("a/b/real")).unwrap()), b"inside");
    for name in ["a/absolute", "c/secret", "a/d/real"] {
        assert!(storage.open(&path(name)).is_err(), "{name}");
        assert!(storage.stat(&path(name)).is_err(), "{name}");
    }
    assert!(storage.create(&path("c/new"), Durability::Disk, WriteHint::default()).is_err());
    assert!(!outside.0.join("new").exists());
}

#[test]
fn a_fifo_a_directory_and_a_socket_are_refused_without_waiting() {
    let scratch = Scratch::new();
    let storage = LocalStorage::open(&scratch.0, Mode::ReadWrite).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        scratch.0.join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    std::fs::create_dir(scratch.0.join("directory")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(scratch.0.join("socket")).unwrap();
    for name in ["fifo", "directory", "socket"] {
        let kind = storage.open(&path(name)).unwrap_err().kind;
        assert_eq!(kind, StorageErrorKind::NotAnObject, "{name}");
    }
}

#[test]
fn a_missing_root_is_made_only_when_asked() {
    let scratch = Scratch::new();
    let root = scratch.0.join("deep/er");
    let kind = LocalStorage::open(&root, Mode::ReadWrite).unwrap_err().kind;
    assert_eq!(kind, StorageErrorKind::NotFound);
    put(&LocalStorage::open(&root, Mode::Create).unwrap(), "x", b"1");
    let reader = LocalStorage::open(&root, Mode::ReadOnly).unwrap();
    assert_eq!(get(&*reader.open(&path("x")).unwrap()), b"1");
    let error =
        reader.create(&path("y"), Durability::Disk, WriteHint::default()).map(|_| ()).unwrap_err();
    assert_eq!(error.kind, StorageErrorKind::ReadOnly);
}

#[test]
fn large_objects_of_any_length_come_back_as_written() {
    let scratch = Scratch::new();
    let storage = LocalStorage::open(&scratch.0, Mode::ReadWrite).unwrap();
    let pattern: Vec<u8> =
        (0..9_437_189u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for (size, piece) in [
        (0, 1),
        (1 << 20, 4096),
        ((1 << 20) + 1, 1000),
        (4 << 20, 2_097_156),
        ((4 << 20) + 4096, 1 << 22),
        (9_437_189, 2_097_156),
    ] {
        for durability in [Durability::Disk, Durability::Process] {
            let name = path("large");
            let mut writer = storage.create(&name, durability, WriteHint::of(size as u64)).unwrap();
            for bytes in pattern[..size].chunks(piece) {
                writer.append(bytes).unwrap();
            }
            assert_eq!(writer.position(), size as u64);
            let version = writer.publish(Condition::None).unwrap();
            assert_eq!(version, storage.stat(&name).unwrap());
            let read = get(&*storage.open(&name).unwrap());
            assert!(read == pattern[..size], "{size} bytes in pieces of {piece}");
        }
    }
}

/// Evicts a file from the page cache.
fn forget(file: &std::path::Path) {
    let file = std::fs::File::open(file).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

#[test]
fn what_is_read_for_the_second_time_stays_in_the_page_cache() {
    let scratch = Scratch::new();
    let bytes: Vec<u8> = (0..8_000_000_u32).map(|i| (i % 251) as u8).collect();
    put(&LocalStorage::open(&scratch.0, Mode::ReadWrite).unwrap(), "a", &bytes);
    forget(&scratch.0.join("a"));
    let (offset, length) = (1_000_001, 2_000_000);
    let mut block = bedform_storage::ReadBlock::default();
    // A new handle each time, as in another process.
    let open = || LocalStorage::open(&scratch.0, Mode::ReadOnly).unwrap().open(&path("a")).unwrap();
    let Some(first) = open().read_past(offset, length, &mut block).unwrap() else {
        return; // This place has no reads past the page cache.
    };
    assert_eq!(first, &bytes[1_000_001..3_000_001]);
    // The mark arrives once the device has answered.
    let started = std::time::Instant::now();
    while open().read_past(offset, length, &mut block).unwrap().is_some() {
        assert!(started.elapsed().as_secs() < 600, "it is never taken for the second time");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let mut second = vec![0; length];
    open().read(offset, &mut second).unwrap();
    assert_eq!(second, &bytes[1_000_001..3_000_001]);
    second.fill(0);
    assert_eq!(open().read_resident(offset, &mut second).unwrap(), length);
    assert_eq!(second, &bytes[1_000_001..3_000_001]);
    // Neighbouring ranges share a page with it and were not read before.
    let mut next = |offset| open().read_past(offset, length, &mut block).unwrap().is_some();
    assert!(next(3_000_001) && next(5_000_001));
}

#[test]
fn where_owners_count_no_link_is_followed_and_nothing_is_appended_to_a_file_elsewhere() {
    let (scratch, outside) = (Scratch::new(), Scratch::new());
    let user = rustix::process::geteuid().as_raw();
    let (root, precious) = (scratch.0.join("a.bedform"), outside.0.join("precious"));
    std::fs::create_dir_all(root.join("inner")).unwrap();
    std::fs::write(root.join("inner/own"), "own").unwrap();
    std::fs::write(&precious, "precious").unwrap();
    symlink("a.bedform", scratch.0.join("link")).unwrap();
    symlink("inner", root.join("inside")).unwrap();
    symlink(&outside.0, root.join("out")).unwrap();
    symlink(&precious, root.join("file")).unwrap();
    std::fs::hard_link(&precious, root.join("second")).unwrap();
    let (fifo, no_device) = (root.join("fifo"), 0);
    let (of_kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, of_kind, mode, no_device).unwrap();
    let open = |root: OwnedRoot<'_>, owner: u32| {
        LocalStorage::open_of_owners(root, Mode::ReadWrite, &[owner])
    };
    let storage = open(OwnedRoot::Itself(&root), user).unwrap();
    assert!(open(OwnedRoot::Itself(&scratch.0.join("link")), user).is_err());
    assert!(open(OwnedRoot::Itself(&root), user + 1).is_err());
    open(OwnedRoot::At(&scratch.0.join("link")), user).unwrap();
    assert_eq!(get(&*storage.open(&path("inner/own")).unwrap()), b"own");
    for name in ["inside/own", "out/precious", "file", "fifo"] {
        assert!(storage.open(&path(name)).is_err(), "{name}");
        assert!(storage.stat(&path(name)).is_err(), "{name}");
        assert!(storage.append(&path(name), b"more").is_err(), "{name}");
    }
    for name in ["out", "inside"] {
        assert!(storage.list(&path(name)).is_err(), "{name}");
        assert!(storage.delete_tree(&path(name), Durability::Process).is_err(), "{name}");
        assert!(storage.within(&path(name)).is_err(), "{name}");
        assert!(storage.try_lock(&path(name)).is_err(), "{name}");
    }
    assert!(storage.append(&path("second"), b"more").is_err());
    assert!(storage.append(&path("inner"), b"more").is_err());
    for text in ["one", "two"] {
        storage.append(&path("new/counts"), text.as_bytes()).unwrap();
    }
    assert_eq!(get(&*storage.open(&path("new/counts")).unwrap()), b"onetwo");
    let made = std::fs::metadata(root.join("new/counts")).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&made.permissions()) & 0o777, 0o600);
    assert_eq!(std::fs::read(&precious).unwrap(), b"precious");
    assert_eq!(std::fs::read(root.join("inner/own")).unwrap(), b"own");
    let others = open(OwnedRoot::At(&root), user + 1).unwrap();
    let refused = others.open(&path("inner/own")).err().unwrap();
    assert_eq!(refused.kind, StorageErrorKind::PermissionDenied);
    assert!(others.append(&path("inner/own"), b"more").is_err());
}
