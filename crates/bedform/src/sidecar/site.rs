//! Sidecars of a site: made once by the keepers of an archive, and read by all of its users.
//!
//! The site file defines, for a directory of data `root`, the place of the sidecars of all sources
//! below it, and the users whose files count there. The sidecar of `/archive/era5/1979/t2m.nc` is
//! `<sidecars>/1979/t2m.nc.bedform`.
//!
//! A reader descends from `sidecars`, name by name, and follows no link. Each directory on the way
//! must belong to one of the owners and be writable by its owner alone. Then no other user can put
//! a file there, and the checked state cannot change. A keeper who makes such a sidecar gives each
//! directory the group and the read permissions of the directory or file that it stands for. So a
//! replica is readable by the users who may read its source.

#![allow(
    clippy::disallowed_methods,
    reason = "it makes directories of sidecars, below those that others cannot write"
)]

use std::ffi::OsString;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::place::SUFFIX;
use crate::config::{self, WRITABLE_BY_OTHERS};
use crate::error::{Error, ErrorKind, Result};

/// The superuser, who may write everything.
const ROOT: u32 = 0;
/// Read permissions of the group and of others: for a directory, and for a file.
const READ_DIRECTORY: u32 = 0o055;
const READ_FILE: u32 = 0o044;

/// The place that the site has for the sidecar of one source.
#[derive(Debug, Clone)]
pub(super) struct SiteSidecar {
    /// The path of the site file.
    file: PathBuf,
    /// The directory of the data.
    root: PathBuf,
    /// The directory of the sidecars.
    sidecars: PathBuf,
    /// Users whose files count.
    pub(super) owners: Vec<u32>,
    /// The resolved path of the source.
    source: PathBuf,
    /// The names from `sidecars` to the sidecar.
    names: Vec<OsString>,
}

/// The result of checking the directories of a sidecar.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SiteCheck {
    /// The sidecar exists, belongs to this user id, and may be trusted.
    Trusted(u32),
    /// It does not exist, or this user may not see it.
    Missing,
    /// The reason why it is not trusted.
    Refused(String),
}

/// Returns the site's place for the sidecar of `source`, which is named after `path`; `None` if the
/// site file does not cover it. Both paths are resolved.
///
/// # Errors
/// Those of the site file.
pub(super) fn site_of(path: &Path, source: &Path) -> Result<Option<SiteSidecar>> {
    let Some(file) = config::sidecar_sites()? else { return Ok(None) };
    let below = file.sites().filter_map(|here| {
        // A root may be a link, and a resolved path has none.
        let root: Arc<Path> = match path.starts_with(&here.site.root) {
            true => here.site.root.as_path().into(),
            false => here.real_root()?,
        };
        let relative = path.strip_prefix(&root).ok()?;
        Some((here, root.clone(), relative))
    });
    let deepest = below.max_by_key(|(_, root, _)| root.as_os_str().len());
    let Some((here, root, relative)) = deepest else { return Ok(None) };
    let plain = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        _ => None,
    };
    let names: Option<Vec<OsString>> = relative.components().map(plain).collect();
    let Some(mut names) = names.filter(|names| !names.is_empty()) else { return Ok(None) };
    if let Some(last) = names.last_mut() {
        last.push(SUFFIX);
    }
    Ok(Some(SiteSidecar {
        file: file.path.clone(),
        root: root.to_path_buf(),
        sidecars: here.site.sidecars.clone(),
        owners: here.owner_ids().to_vec(),
        source: source.to_owned(),
        names,
    }))
}

impl SiteSidecar {
    /// Returns the directory of the sidecar, whether or not it exists.
    pub(super) fn directory(&self) -> PathBuf {
        self.names.iter().fold(self.sidecars.clone(), |path, name| path.join(name))
    }

    /// Returns the path of the site file.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// Returns true if `user` keeps the sidecars of the site.
    pub(super) fn is_kept_by(&self, user: u32) -> bool {
        self.owners.contains(&user)
    }

    /// Checks whether the sidecar may be trusted.
    pub(super) fn look(&self) -> SiteCheck {
        let names: Vec<&[u8]> = self.names.iter().map(|name| name.as_bytes()).collect();
        look_at(&self.sidecars, &names, &self.owners, &self.file)
    }

    /// Returns true if this is the sidecar in which `user` keeps files: `user` keeps the sidecars
    /// of the site, and may write this one.
    pub(super) fn is_own(&self, user: u32) -> bool {
        let may_write = |owner| owner == user || user == ROOT;
        self.is_kept_by(user)
            && matches!(self.look(), SiteCheck::Trusted(owner) if may_write(owner))
    }

    /// Makes the directory of the sidecar, and those above it.
    ///
    /// # Errors
    /// Those of the system; `PermissionDenied` if the site would not trust it.
    pub(super) fn make(&self) -> Result<()> {
        let failed = |path: &Path, error: &std::io::Error| {
            let kind = match error.kind() {
                std::io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
                std::io::ErrorKind::StorageFull => ErrorKind::NoSpace,
                _ => ErrorKind::Io,
            };
            let of = self.file.display();
            let text = format!("{}: {error}; {of} says that sidecars go there", path.display());
            Error::new(kind, text)
        };
        let (mut own, mut source) = (self.sidecars.clone(), self.root.clone());
        make_readable_as(&own, &source).map_err(|error| failed(&own, &error))?;
        for (number, name) in self.names.iter().enumerate() {
            own.push(name);
            match number + 1 == self.names.len() {
                true => source.clone_from(&self.source),
                false => source.push(name),
            }
            make_readable_as(&own, &source).map_err(|error| failed(&own, &error))?;
        }
        match self.look() {
            SiteCheck::Trusted(_) => Ok(()),
            SiteCheck::Missing => Err(failed(&own, &std::io::ErrorKind::NotFound.into())),
            SiteCheck::Refused(why) => Err(Error::new(ErrorKind::PermissionDenied, why)),
        }
    }
}

/// Makes the directory `own`, if it is missing, for the users who may read `source`.
fn make_readable_as(own: &Path, source: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    match fs::DirBuilder::new().mode(0o700).create(own) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Ok(()),
        made => made?,
    }
    let of = fs::metadata(source)?;
    let mut mode = of.mode() & if of.is_dir() { READ_DIRECTORY } else { READ_FILE };
    if !of.is_dir() {
        // Users who may read a file may list a directory that stands for it.
        mode |= mode >> 2;
    }
    if std::os::unix::fs::chown(own, None, Some(of.gid())).is_err() {
        mode &= 0o005;
    }
    fs::set_permissions(own, fs::Permissions::from_mode(0o700 | mode))
}

/// Lets all users read the file or directory at `path` and everything below, if the directories
/// above let them through. A file that they can read is not touched, because the change time of its
/// attributes is a part of its version.
pub(super) fn open_to_readers(path: &Path) {
    let mut paths = vec![path.to_owned()];
    while let Some(path) = paths.pop() {
        let open = |found: &fs::Metadata, mode: u32| {
            if found.mode() & 0o7777 != mode {
                // A failure leaves a file that others cannot read.
                let _ = fs::set_permissions(&path, fs::Permissions::from_mode(mode));
            }
        };
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => {
                open(&found, 0o755);
                let entries = fs::read_dir(&path).into_iter().flatten().flatten();
                paths.extend(entries.map(|entry| entry.path()));
            }
            // A hard-linked file is not one of ours.
            Ok(found) if found.is_file() && found.nlink() == 1 => open(&found, 0o644),
            _ => {}
        }
    }
}

/// Checks the directory `first`, and those below it along `names`, one in the other.
pub(super) fn look_at(first: &Path, names: &[&[u8]], owners: &[u32], file: &Path) -> SiteCheck {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut shown = first.to_owned();
    let (mut handle, mut uid): (Option<OwnedFd>, u32) = (None, 0);
    for name in std::iter::once(None).chain(names.iter().map(|name| Some(*name))) {
        let opened = match (&handle, name) {
            (Some(above), Some(name)) => {
                shown.push(std::ffi::OsStr::from_bytes(name));
                rustix::fs::openat(above, name, flags | OFlags::NOFOLLOW, Mode::empty())
            }
            _ => rustix::fs::openat(CWD, first, flags, Mode::empty()),
        };
        let refused = |why: String| {
            SiteCheck::Refused(format!("{} is not trusted as a sidecar: {why}", shown.display()))
        };
        let opened = match opened {
            Ok(opened) => opened,
            Err(Errno::NOTDIR | Errno::LOOP) => {
                return refused("it is no directory, and links are not followed".to_owned());
            }
            Err(_) => return SiteCheck::Missing,
        };
        let Ok(found) = rustix::fs::fstat(&opened) else { return SiteCheck::Missing };
        if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
            return refused("it is no directory".to_owned());
        }
        if !owners.contains(&found.st_uid) {
            let (uid, file) = (found.st_uid, file.display());
            return refused(format!(
                "it belongs to user {uid}, who is none of its owners in {file}"
            ));
        }
        if found.st_mode & WRITABLE_BY_OTHERS != 0 {
            return refused("others than its owner may write it: chmod go-w".to_owned());
        }
        (handle, uid) = (Some(opened), found.st_uid);
    }
    SiteCheck::Trusted(uid)
}
