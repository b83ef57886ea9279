//! The registry of the sidecars that this user has made beside data, or has accepted.
//!
//! Unpacked files belong to the user who unpacks them, also a sidecar in an archive: its owner does
//! not prove who made it. So a sidecar beside data counts only if an entry of the registry names
//! it. The registry is the directory `$BEDFORM_TRUST`, else `$XDG_DATA_HOME/bedform/sidecars`, else
//! `~/.local/share/bedform/sidecars`. Each entry is a file of its own, which a rename publishes:
//! processes that add entries at the same time do not conflict. Changes of entries take turns by a
//! lock of the directory, where the file system has locks.
//!
//! An entry records the path of the sidecar, the inode number and birth time of its directory, and
//! a nonce that lies in the sidecar as well. An archive of a once registered sidecar contains the
//! nonce, and may be unpacked to the same path and get the same inode number. It cannot reproduce
//! the times, which the system sets. Device numbers change after a reboot, and are not compared.
//! The name of an entry has path and inode number: where machines share a home directory, each may
//! have a sidecar of the same path.
//!
//! An entry also records the settings of its sidecar, a watch and a policy. A setting counts only if
//! the entry and the file in the sidecar have the same bytes: an archive that is unpacked over a
//! registered sidecar brings files, and no entry.

#![allow(clippy::disallowed_methods, reason = "the registry lies in the user's data directory")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bedform_format::sealed::{from_sealed, to_sealed};
use bedform_format::{ObjectPath, metadata};
use bedform_storage::{Condition, Durability, LocalStorage, Mode, OwnedRoot, Storage as _};
use bedform_storage::{StorageErrorKind, StorageExt as _, open_without_waiting};
use rustix::fs::{AtFlags, CWD, OFlags, Statx, StatxFlags};
use serde::{Deserialize, Serialize};

use super::place::{key_of, variable};
use crate::config::WRITABLE_BY_OTHERS;

const PLACE_VARIABLE: &str = "BEDFORM_TRUST";
/// The directory of the registry below the user's data directory.
const PLACE: &str = "bedform/sidecars";
/// The file of a sidecar that holds the nonce.
pub(super) const NONCE: &str = "nonce";
const NONCE_BYTES: usize = 16;
const VERSION: u64 = 1;
/// The most bytes of an entry: those of a path, of settings, and little more.
const ENTRY_BYTES_MAX: u64 = 64 << 10;
/// From so many entries on, those of missing sidecars are removed.
const ENTRIES_MAX: usize = 1024;

/// One sidecar of the registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct RegistryEntry {
    version: u64,
    /// The path, for people, and to find out whether the sidecar is gone.
    path: String,
    /// The fingerprint of the path.
    key: String,
    /// The inode number of the directory.
    inode: u64,
    /// The birth time of the directory, in nanoseconds since 1970; 0 if the file system lacks it.
    born_ns: i64,
    /// The time at which the attributes of the nonce's file last changed, in nanoseconds since
    /// 1970.
    nonce_changed_ns: i64,
    /// The nonce in hexadecimal digits.
    nonce: String,
    /// The bytes of each setting, in hexadecimal digits.
    #[serde(default)]
    settings: BTreeMap<String, String>,
}

/// The standing of a directory beside data in the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SidecarStanding {
    /// There is none, or none of this user.
    Missing,
    /// This user made or accepted it.
    Registered,
    /// It is empty, and may be registered without a check.
    Empty,
    /// Any user may have made it.
    Unknown,
    /// It is registered, but others may write to it.
    WritableByOthers,
}

/// A directory beside data, as it was found.
struct BesideDirectory {
    path: PathBuf,
    user: u32,
    status: Statx,
}

impl BesideDirectory {
    /// Opens the directory at `path`, which must not be a link; `None` for one of another user.
    fn open(path: &Path) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = rustix::fs::openat(CWD, path, flags, rustix::fs::Mode::empty()).ok()?;
        let asked = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let status = rustix::fs::statx(&handle, "", AtFlags::EMPTY_PATH, asked).ok()?;
        let user = rustix::process::geteuid().as_raw();
        (status.stx_uid == user).then(|| Self { path: path.to_owned(), user, status })
    }

    fn born_ns(&self) -> i64 {
        let is_known = self.status.stx_mask & StatxFlags::BTIME.bits() != 0;
        if is_known { nanoseconds(self.status.stx_btime) } else { 0 }
    }

    fn storage(&self, mode: Mode) -> Option<LocalStorage> {
        LocalStorage::open_of_owners(OwnedRoot::Itself(&self.path), mode, &[self.user]).ok()
    }

    /// Returns the nonce in the sidecar, and the time at which its attributes last changed.
    fn nonce(&self) -> Option<(String, i64)> {
        let object = self.storage(Mode::ReadOnly)?.find(&nonce_path()?).ok()??;
        let version = object.version();
        let mut bytes = [0; 2 * NONCE_BYTES];
        if version.size != bytes.len() as u64 {
            return None;
        }
        object.read(0, &mut bytes).ok()?;
        let text = std::str::from_utf8(&bytes).ok()?;
        Some((text.to_owned(), version.changed_ns))
    }

    fn is_empty(&self) -> bool {
        let listed = self.storage(Mode::ReadOnly).and_then(|it| it.list(&ObjectPath::root()).ok());
        // A process that was killed may have left the nonce alone.
        listed.is_some_and(|entries| entries.iter().all(|entry| entry.name == NONCE))
    }

    /// Returns true if the registry has an entry of it.
    fn is_registered(&self) -> bool {
        self.entry().is_some()
    }

    /// Returns its entry in the registry.
    fn entry(&self) -> Option<RegistryEntry> {
        let entry = read(&place()?.join(name_of(self)), self.user)?;
        let (nonce, changed_ns) = self.nonce()?;
        let born_ns = self.born_ns();
        // Some machines report the birth time, and others do not.
        let is_as_old = match (entry.born_ns, born_ns) {
            (0, _) | (_, 0) => entry.nonce_changed_ns == changed_ns,
            (then, now) => then == now,
        };
        let is_of_this = entry.key == key_of(&self.path)
            && entry.inode == self.status.stx_ino
            && entry.nonce == nonce
            && is_as_old;
        is_of_this.then_some(entry)
    }
}

/// Returns the standing of the directory at `path`.
pub(super) fn standing(path: &Path) -> SidecarStanding {
    let Some(found) = BesideDirectory::open(path) else { return SidecarStanding::Missing };
    if !found.is_registered() {
        if found.is_empty() {
            return SidecarStanding::Empty;
        }
        // A process that registers it meanwhile writes the entry before any other file.
        if !found.is_registered() {
            return SidecarStanding::Unknown;
        }
    }
    match u32::from(found.status.stx_mode) & WRITABLE_BY_OTHERS {
        0 => SidecarStanding::Registered,
        _ => SidecarStanding::WritableByOthers,
    }
}

/// Enters the directory at `path`, which holds only files that this user has made or accepted. An
/// earlier entry stays. Processes that do so at the same time all enter the nonce of the first.
///
/// # Errors
/// Those of the system; `NotFound` if no place for the registry is named.
pub(super) fn register(path: &Path) -> io::Result<()> {
    let place = make_place()?;
    let _turn = lock(&place);
    let found = BesideDirectory::open(path).ok_or(io::ErrorKind::NotFound)?;
    if found.is_registered() {
        return Ok(());
    }
    let (nonce, nonce_changed_ns) = make_nonce(&found)?;
    let entry = RegistryEntry {
        version: VERSION,
        path: path.to_string_lossy().into_owned(),
        key: key_of(path),
        inode: found.status.stx_ino,
        born_ns: found.born_ns(),
        nonce_changed_ns,
        nonce,
        settings: BTreeMap::new(),
    };
    write(&place, &name_of(&found), &entry)?;
    remove_gone(&place);
    Ok(())
}

/// Records the bytes of a setting of the registered sidecar at `path`; without bytes, removes it.
///
/// # Errors
/// Those of the system; `NotFound` for a sidecar that is not registered.
pub(super) fn set(path: &Path, name: &str, bytes: Option<&[u8]>) -> io::Result<()> {
    let place = make_place()?;
    let _turn = lock(&place);
    let found = BesideDirectory::open(path).ok_or(io::ErrorKind::NotFound)?;
    let mut entry = found.entry().ok_or(io::ErrorKind::NotFound)?;
    let bytes = bytes.map(metadata::hex);
    if entry.settings.get(name) == bytes.as_ref() {
        return Ok(());
    }
    match bytes {
        Some(bytes) => drop(entry.settings.insert(name.to_owned(), bytes)),
        None => drop(entry.settings.remove(name)),
    }
    write(&place, &name_of(&found), &entry)
}

/// Returns true if this user has given the sidecar at `path` a setting with these bytes.
pub(super) fn has_setting(path: &Path, name: &str, bytes: &[u8]) -> bool {
    let entry = BesideDirectory::open(path).and_then(|found| found.entry());
    entry.is_some_and(|entry| entry.settings.get(name) == Some(&metadata::hex(bytes)))
}

/// Returns true if entries can be made: the place exists, or was made now.
pub(super) fn is_writable() -> bool {
    make_place().is_ok_and(|place| {
        let asked = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        rustix::fs::access(&place, asked).is_ok()
    })
}

/// Returns the remedy, in words, for a sidecar that cannot be registered.
pub(super) fn remedy() -> String {
    let set = format!(
        "set {PLACE_VARIABLE} to a directory for that, or BEDFORM_SIDECAR to a directory for sidecars"
    );
    match place() {
        Some(place) => format!(
            "a sidecar beside data counts only if {} names it, which cannot be written: {set}",
            place.display()
        ),
        None => format!(
            "a sidecar beside data counts only if it is registered in the user's home directory, and HOME is not set: \
             {set}"
        ),
    }
}

/// Returns the directory of the registry, whether or not it exists.
fn place() -> Option<PathBuf> {
    if let Some(named) = variable(PLACE_VARIABLE) {
        return Some(named);
    }
    if cfg!(test) {
        let name = format!("bedform-trust-{}", std::process::id());
        return Some(std::env::temp_dir().join(name));
    }
    // The XDG rules: a relative path there is to be ignored.
    let data = variable("XDG_DATA_HOME").filter(|place| place.is_absolute());
    let data = data.or_else(|| variable("HOME").map(|home| home.join(".local/share")))?;
    Some(data.join(PLACE))
}

fn make_place() -> io::Result<PathBuf> {
    let place = place().ok_or(io::ErrorKind::NotFound)?;
    DirBuilder::new().recursive(true).mode(0o700).create(&place)?;
    Ok(place)
}

/// Takes the lock of the registry; `None` where its file system has no locks.
fn lock(place: &Path) -> Option<File> {
    let directory = File::open(place).ok()?;
    rustix::fs::flock(&directory, rustix::fs::FlockOperation::LockExclusive).ok()?;
    Some(directory)
}

/// Returns the nonce of a sidecar, and makes one if there is none.
fn make_nonce(found: &BesideDirectory) -> io::Result<(String, i64)> {
    let refused = || io::Error::from(io::ErrorKind::PermissionDenied);
    let (storage, path) = found.storage(Mode::ReadWrite).zip(nonce_path()).ok_or_else(refused)?;
    let mut nonce = [0; NONCE_BYTES];
    rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty())?;
    let text = metadata::hex(&nonce);
    match storage.put(&path, text.as_bytes(), Durability::Disk, Condition::Absent) {
        Err(error) if error.kind != StorageErrorKind::Exists => {
            return Err(io::Error::other(error));
        }
        _ => {}
    }
    // Read back, as other processes see it from now on.
    found.nonce().ok_or_else(refused)
}

fn nonce_path() -> Option<ObjectPath> {
    ObjectPath::parse(NONCE).ok()
}

fn name_of(found: &BesideDirectory) -> String {
    format!("{}-{:016x}", key_of(&found.path), found.status.stx_ino)
}

/// Returns true for a name that [`name_of`] returns.
fn is_entry(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    name.len() == 49 && name[32] == b'-' && name[..32].iter().chain(&name[33..]).all(is_digit)
}

/// Reads the entry in a file that belongs to this user alone.
fn read(path: &Path, user: u32) -> Option<RegistryEntry> {
    let is_link = path.symlink_metadata().ok()?.is_symlink();
    let file = open_without_waiting(path).ok().filter(|_| !is_link)?;
    let found = file.metadata().ok()?;
    let is_own = found.is_file() && found.uid() == user && found.mode() & WRITABLE_BY_OTHERS == 0;
    if !is_own || found.len() > ENTRY_BYTES_MAX {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(ENTRY_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    from_sealed(&bytes).filter(|entry: &RegistryEntry| entry.version == VERSION)
}

fn write(place: &Path, name: &str, entry: &RegistryEntry) -> io::Result<()> {
    let bytes = to_sealed(entry).filter(|bytes| bytes.len() as u64 <= ENTRY_BYTES_MAX);
    let bytes = bytes.ok_or(io::ErrorKind::InvalidInput)?;
    let mut random = [0; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    let temporary = place.join(format!(".{name}-{}", metadata::hex(&random)));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    let written = file
        .write_all(&bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&temporary, place.join(name)))
        .and_then(|()| File::open(place)?.sync_all());
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Removes entries of missing sidecars, if there are many. A failure costs the space of an entry.
fn remove_gone(place: &Path) {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let mut own: Vec<(SystemTime, PathBuf)> = entries
        .filter(|entry| is_entry(&entry.file_name()))
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    if own.len() < ENTRIES_MAX {
        return;
    }
    own.sort_unstable();
    let user = rustix::process::geteuid().as_raw();
    for (_, path) in own.into_iter().take(ENTRIES_MAX / 2) {
        let is_gone = read(&path, user).is_some_and(|entry| {
            Path::new(&entry.path)
                .symlink_metadata()
                .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        });
        if is_gone {
            let _ = fs::remove_file(path);
        }
    }
}

fn nanoseconds(time: rustix::fs::StatxTimestamp) -> i64 {
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(i64::from(time.tv_nsec))
}
