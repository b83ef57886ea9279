//! The files of a store that is reorganized: hard links of unchanged files, modes and owners of
//! directories and new files.

#![allow(
    clippy::disallowed_methods,
    reason = "it gives second names, modes and owners, in a directory under the lock of the run"
)]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, DirEntry, FileTimes, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use bedform_format::shown::shell_path;
use bedform_storage::is_own_name;
use rustix::fs::{XattrFlags, getxattr, setxattr, syncfs};

use crate::error::{Error, ErrorKind, Result};
use crate::threads::workers::check_cancelled;
use crate::zarr::documents::ZARR_JSON;

/// The access control lists of a directory, and the default for new entries in it.
const ACCESS_LISTS: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];
/// The most bytes of such a list.
const ACCESS_LIST_BYTES: usize = 64 << 10;
/// The bits of a mode that can be set.
const MODE_BITS: u32 = 0o7777;

fn failed(path: &Path, error: &io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
        io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
        // Deleted since it was listed.
        io::ErrorKind::NotFound => ErrorKind::Conflict,
        _ => ErrorKind::Io,
    };
    Error::new(kind, format!("{}: {error}", path.display()))
}

/// True for the names of an array's chunk objects, and of their directories.
fn is_chunk(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    bytes == b"c"
        || bytes.starts_with(b"c.")
        || bytes.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.')
}

/// Calls `visit` with every entry below `from`, a directory before its entries, and with its path
/// in the store. The result says whether to enter a directory.
fn each(
    from: &Path,
    visit: &mut dyn FnMut(&DirEntry, &Metadata, &str) -> Result<bool>,
) -> Result<()> {
    let mut directories = vec![(from.to_owned(), String::new())];
    while let Some((directory, above)) = directories.pop() {
        let entries = fs::read_dir(&directory).map_err(|error| failed(&directory, &error))?;
        for entry in entries {
            check_cancelled("reorganizing was stopped")?;
            let entry = entry.map_err(|error| failed(&directory, &error))?;
            let name = entry.file_name();
            // Locks, and objects that are being written.
            if name.to_str().is_some_and(is_own_name) {
                continue;
            }
            let found = entry.metadata().map_err(|error| failed(&entry.path(), &error))?;
            let name = name.to_str().ok_or_else(|| {
                let text = format!("{}: its name is no UTF-8", entry.path().display());
                Error::new(ErrorKind::Unsupported, text)
            })?;
            let path = if above.is_empty() { name.to_owned() } else { format!("{above}/{name}") };
            if visit(&entry, &found, &path)? && found.is_dir() {
                directories.push((entry.path(), path));
            }
        }
    }
    Ok(())
}

/// Creates the directory `to` with links to all files of `from`; of the arrays `changed` only
/// copies the documents.
///
/// # Errors
/// `Unsupported` for links and devices; those of the system.
pub(super) fn link(from: &Path, to: &Path, changed: &BTreeSet<&str>, shown: &str) -> Result<()> {
    make(to)?;
    each(from, &mut |entry, found, path| {
        let target = to.join(path);
        if found.is_dir() {
            make(&target)?;
            if !changed.contains(path) {
                return Ok(true);
            }
            let document = entry.path().join(ZARR_JSON);
            copy(&document, &target.join(ZARR_JSON))?;
            return Ok(false);
        }
        if !found.is_file() {
            let text = format!(
                "{shown} has {path}, which is neither a file nor a directory: 'bedform convert {} NEW' makes a \
                 store without it",
                shell_path(shown)
            );
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        // The store's own document will be rewritten, and a hard link would change the old one.
        match path == ZARR_JSON {
            true => copy(&entry.path(), &target)?,
            false => second_name(&entry.path(), &target)?,
        }
        Ok(false)
    })
}

/// Links the files that other programs have put into the directories of the arrays `changed`.
///
/// # Errors
/// As [`link`].
pub(super) fn link_others(from: &Path, to: &Path, changed: &BTreeSet<&str>) -> Result<()> {
    for array in changed {
        each(&from.join(array), &mut |entry, found, path| {
            let top = path.split('/').next().unwrap_or(path);
            if is_chunk(OsStr::new(top)) || path == ZARR_JSON {
                return Ok(false);
            }
            let target = to.join(array).join(path);
            if found.is_dir() {
                make(&target)?;
                return Ok(true);
            }
            if found.is_file() {
                second_name(&entry.path(), &target)?;
                return Ok(false);
            }
            let text = format!("{} is neither a file nor a directory", entry.path().display());
            Err(Error::new(ErrorKind::Unsupported, text))
        })?;
    }
    Ok(())
}

fn make(directory: &Path) -> Result<()> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map_err(|error| failed(directory, &error)),
    }
}

/// Hard-links a file; copies it, with its times, where the system cannot link.
fn second_name(from: &Path, to: &Path) -> Result<()> {
    match fs::hard_link(from, to) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(failed(from, &error)),
        Err(_) => copy(from, to),
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).map_err(|error| failed(from, &error))?;
    let found = fs::metadata(from).map_err(|error| failed(from, &error))?;
    let (accessed, modified) = (found.accessed(), found.modified());
    if let (Ok(accessed), Ok(modified)) = (accessed, modified)
        && let Ok(file) = fs::File::options().append(true).open(to)
    {
        // Replicas recognize shards by their times. Where these cannot be set, replicas are
        // rebuilt.
        let _ = file.set_times(FileTimes::new().set_accessed(accessed).set_modified(modified));
    }
    Ok(())
}

/// Copies modes, owners and access lists from the old store `from` to directories and new files of
/// the new store `to`; new shards take those of their array's old document. Then makes all of them
/// durable. Returns warnings for the user.
///
/// # Errors
/// Those of the system.
pub(super) fn finish(from: &Path, to: &Path, changed: &BTreeSet<&str>) -> Result<Vec<String>> {
    let mut warnings = BTreeSet::new();
    let mut later = Vec::new();
    each(to, &mut |entry, found, path| {
        let of_array = changed.iter().find(|array| is_within(path, array));
        let (same, there) = (from.join(path), fs::symlink_metadata(from.join(path)).ok());
        let is_same = |old: &Metadata| (old.dev(), old.ino()) == (found.dev(), found.ino());
        if there.as_ref().is_some_and(is_same) {
            return Ok(false);
        }
        // A resumed run may find foreign entries in the work directory, for example out of an
        // unpacked archive.
        if !found.is_dir() && (!found.is_file() || found.nlink() > 1) {
            let text = format!(
                "{} was not made by a reorganization: remove {} and run the same command again",
                entry.path().display(),
                to.parent().unwrap_or(to).display()
            );
            return Err(Error::new(ErrorKind::Conflict, text));
        }
        let is_new = |array: &str| {
            let inner = path[array.len()..].trim_start_matches('/');
            is_chunk(OsStr::new(inner.split('/').next().unwrap_or(inner)))
        };
        let like = match of_array.filter(|array| path != **array && is_new(array)) {
            Some(array) if found.is_dir() => from.join(array),
            Some(array) => from.join(array).join(ZARR_JSON),
            None => same,
        };
        let like = fs::metadata(&like).map_err(|error| failed(&like, &error))?;
        if found.is_dir() {
            later.push((entry.path(), path.to_owned(), like));
            return Ok(true);
        }
        make_like(&entry.path(), found, &like, &mut warnings)?;
        Ok(false)
    })?;
    let root = |path: &Path| fs::metadata(path).map_err(|error| failed(path, &error));
    later.push((to.to_owned(), String::new(), root(from)?));
    // Inner directories first: an outer one may be closed to this user afterwards.
    for (directory, path, like) in later.iter().rev() {
        copy_access_lists(&from.join(path), directory);
        make_like(directory, &root(directory)?, like, &mut warnings)?;
    }
    let open = fs::File::open(to).map_err(|error| failed(to, &error))?;
    syncfs(&open).map_err(|error| failed(to, &error.into()))?;
    Ok(warnings.into_iter().collect())
}

fn is_within(path: &str, array: &str) -> bool {
    path.strip_prefix(array).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn make_like(
    path: &Path,
    now: &Metadata,
    like: &Metadata,
    warnings: &mut BTreeSet<String>,
) -> Result<()> {
    let differing = |then: u32, now: u32| (then != now).then_some(then);
    let (user, group) = (differing(like.uid(), now.uid()), differing(like.gid(), now.gid()));
    if (user.is_some() || group.is_some()) && chown(path, user, group).is_err() {
        warnings.insert(format!(
            "new files and directories do not belong to user {} and group {}, as the old ones did: chown them",
            like.uid(),
            like.gid()
        ));
    }
    if (now.mode() ^ like.mode()) & MODE_BITS != 0 || user.is_some() || group.is_some() {
        let mode = fs::Permissions::from_mode(like.mode() & MODE_BITS);
        fs::set_permissions(path, mode).map_err(|error| failed(path, &error))?;
    }
    Ok(())
}

/// Copies access control lists, where the system has them.
fn copy_access_lists(from: &Path, to: &Path) {
    for name in ACCESS_LISTS {
        let mut list = vec![0; ACCESS_LIST_BYTES];
        if let Ok(length) = getxattr(from, name, &mut list[..]) {
            let _ = setxattr(to, name, &list[..length], XattrFlags::empty());
        }
    }
}
