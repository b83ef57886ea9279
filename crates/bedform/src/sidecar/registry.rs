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
//! have a sidecar of the same path. So an entry also has the name of its machine: [`prune`] removes
//! the entries of this machine alone whose sidecar or data are certainly gone.
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
use std::time::{Duration, SystemTime};

use bedform_format::sealed::{from_sealed, to_sealed};
use bedform_format::{ObjectPath, metadata};
use bedform_storage::{Condition, Durability, LocalStorage, Mode, OwnedRoot, Storage as _};
use bedform_storage::{StorageErrorKind, StorageExt as _, open_without_waiting};
use rustix::fs::{AtFlags, CWD, OFlags, Statx, StatxFlags};
use serde::{Deserialize, Serialize};

use super::place::{ARCHIVE, SUFFIX, key_of, variable};
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
/// The time for which the directory of removed data must be unchanged before they count as gone:
/// a program may be about to make them anew.
const GONE_FOR: Duration = Duration::from_secs(24 * 60 * 60);

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
    /// The name of the machine that made the entry; empty for one of an earlier version.
    #[serde(default)]
    machine: String,
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
        machine: machine(),
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

/// Removes the entries of this machine whose sidecar or data are certainly gone, and returns their
/// number; with `dry_run` only counts them.
pub(super) fn prune(dry_run: bool) -> u64 {
    let Some(place) = place() else { return 0 };
    let _turn = lock(&place);
    let user = rustix::process::geteuid().as_raw();
    let is_gone = |entry: &RegistryEntry| {
        entry.machine == machine() && (entry.is_sidecar_gone() || entry.are_data_gone())
    };
    let gone =
        entries_in(&place).into_iter().filter(|path| read(path, user).is_some_and(|e| is_gone(&e)));
    gone.filter(|path| dry_run || fs::remove_file(path).is_ok()).count() as u64
}

/// Removes entries of missing sidecars, if there are many. A failure costs the space of an entry.
fn remove_gone(place: &Path) {
    let entries = entries_in(place);
    if entries.len() < ENTRIES_MAX {
        return;
    }
    let user = rustix::process::geteuid().as_raw();
    for path in entries.into_iter().take(ENTRIES_MAX / 2) {
        if read(&path, user).is_some_and(|entry| entry.is_sidecar_gone()) {
            let _ = fs::remove_file(path);
        }
    }
}

/// Returns the files of all entries, the oldest first.
fn entries_in(place: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let mut all: Vec<(SystemTime, PathBuf)> = entries
        .filter(|entry| is_entry(&entry.file_name()))
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    all.sort_unstable();
    all.into_iter().map(|(_, path)| path).collect()
}

/// Returns the name of this machine.
fn machine() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

impl RegistryEntry {
    /// Returns the path of the sidecar; `None` for one that is not UTF-8, which an entry does not
    /// hold exactly.
    fn exact_path(&self) -> Option<&Path> {
        let path = Path::new(&self.path);
        (self.key == key_of(path)).then_some(path)
    }

    /// Returns true if the sidecar is certainly gone.
    fn is_sidecar_gone(&self) -> bool {
        self.exact_path().is_some_and(is_absent)
    }

    /// Returns true if the data beside which the sidecar lies are certainly gone, for a day at
    /// least.
    fn are_data_gone(&self) -> bool {
        let data = self.exact_path().and_then(|path| path.to_str()?.strip_suffix(SUFFIX));
        let Some(data) = data else { return false };
        // The sidecar of an archive has the name of its first file and another suffix.
        let of_archive = data.strip_suffix(ARCHIVE).unwrap_or(data);
        [data, of_archive].map(Path::new).into_iter().all(|data| {
            let changed = data.parent().and_then(|parent| parent.metadata().ok()?.modified().ok());
            let age = changed.and_then(|changed| changed.elapsed().ok());
            is_absent(data) && age.is_some_and(|age| age > GONE_FOR)
        })
    }
}

/// Returns true if the directory of a path exists and has other names, but not this one. Where the
/// file system of the path is not mounted, its directory is missing or empty.
fn is_absent(path: &Path) -> bool {
    let has_others = || {
        let parent = path.parent().map(fs::read_dir);
        parent.is_some_and(|found| {
            found.is_ok_and(|mut entries| matches!(entries.next(), Some(Ok(_))))
        })
    };
    let found = path.symlink_metadata();
    found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) && has_others()
}

fn nanoseconds(time: rustix::fs::StatxTimestamp) -> i64 {
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(i64::from(time.tv_nsec))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Registers the sidecar of an empty file at `data`.
    fn registered(data: &Path) -> PathBuf {
        fs::create_dir_all(data.parent().unwrap()).unwrap();
        fs::write(data, b"").unwrap();
        let sidecar = PathBuf::from(format!("{}{SUFFIX}", data.display()));
        fs::create_dir(&sidecar).unwrap();
        register(&sidecar).unwrap();
        sidecar
    }

    /// Returns the file and the content of the entry of a sidecar.
    fn entry_of(sidecar: &Path) -> Option<(PathBuf, RegistryEntry)> {
        let user = rustix::process::geteuid().as_raw();
        let all = entries_in(&place().unwrap()).into_iter();
        let mut read = all.filter_map(|path| Some((path.clone(), read(&path, user)?)));
        read.find(|(_, entry)| Path::new(&entry.path) == sidecar)
    }

    fn remove(sidecar: &Path) {
        fs::remove_dir_all(sidecar).unwrap();
    }

    #[test]
    fn entries_go_whose_sidecar_or_data_are_certainly_gone_and_no_others() {
        let scratch = std::env::temp_dir().join(format!("bedform-prune-{}", std::process::id()));
        let _ = fs::remove_dir_all(&scratch);
        let at = |name: &str| registered(&scratch.join(name));
        let kept = at("here/kept.nc");
        let gone = at("here/gone.nc");
        remove(&gone);
        let without_data = at("old/data.nc");
        fs::write(scratch.join("old/another"), b"").unwrap();
        let being_replaced = at("here/replaced.nc");
        let of_archive = at("here/first.nc.archive");
        for data in ["old/data.nc", "here/replaced.nc"] {
            fs::remove_file(scratch.join(data)).unwrap();
        }
        fs::rename(scratch.join("here/first.nc.archive"), scratch.join("here/first.nc")).unwrap();
        let days = SystemTime::now() - 2 * GONE_FOR;
        File::open(scratch.join("old")).unwrap().set_modified(days).unwrap();
        // A file system that is not mounted: its mount point is empty, or missing.
        let unmounted = [at("empty/a.nc"), at("missing/a.nc")];
        fs::remove_dir_all(scratch.join("missing")).unwrap();
        fs::remove_file(scratch.join("empty/a.nc")).unwrap();
        remove(&unmounted[0]);
        let elsewhere = at("here/elsewhere.nc");
        let (file, entry) = entry_of(&elsewhere).unwrap();
        let of_other = RegistryEntry { machine: "another".to_owned(), ..entry };
        write(&place().unwrap(), file.file_name().unwrap().to_str().unwrap(), &of_other).unwrap();
        remove(&elsewhere);

        let pruned = [&gone, &without_data];
        assert!(prune(true) >= 2);
        assert!(pruned.iter().all(|sidecar| entry_of(sidecar).is_some()));
        prune(false);
        assert!(pruned.iter().all(|sidecar| entry_of(sidecar).is_none()));
        for sidecar in
            [&kept, &being_replaced, &of_archive, &unmounted[0], &unmounted[1], &elsewhere]
        {
            assert!(entry_of(sidecar).is_some(), "{}", sidecar.display());
        }
        fs::remove_dir_all(&scratch).unwrap();
    }
}
