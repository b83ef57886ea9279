//! Sidecars beside data that this user has not made: checked file by file before they may count.

#![allow(clippy::disallowed_methods, reason = "nothing is believed yet: each name is looked at")]

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use super::place::{HolderAccess, LocalDirectory, SidecarCandidates};
use super::registry::{self, NONCE, SidecarStanding};
use super::{REPLICAS, Sidecar, SidecarName, warnings};
use crate::config::WRITABLE_BY_OTHERS;
use crate::error::{Error, ErrorKind, Result};

/// Names that Bedform gives in a sidecar, and prefixes of such names.
const NAMES: [&str; 14] = [
    "archive",
    "catalogue",
    "chunk-map",
    "chunk-map-external",
    "knowledge",
    "learned-selections",
    "mesh-catalogue",
    NONCE,
    "policy",
    "recorded-selections",
    REPLICAS,
    "states",
    "traces",
    "watch",
];
const BEGINNINGS: [&str; 2] = ["archive-", "chunk-table-"];
/// Names that stay once replicas were compared: knowledge of reads changes no value.
const KEPT: [&str; 5] =
    ["knowledge", "learned-selections", "recorded-selections", REPLICAS, "traces"];
/// The most files and directories of a sidecar that are checked.
const ENTRIES_MAX: usize = 1 << 20;

impl Sidecar {
    /// Returns the unregistered sidecar beside the source of this name, to be compared with the
    /// source. It holds only plain files of this user, under names that Bedform gives. `None` if it
    /// is registered.
    ///
    /// # Errors
    /// `NotFound` without a directory of this user; `PermissionDenied` if others may write it, if
    /// it holds links, hard-linked files, devices or files of others, or if no entry can be
    /// registered.
    pub(crate) fn unregistered(name: &SidecarName) -> Result<Option<Self>> {
        let candidates = SidecarCandidates::of(name, None)?;
        let path = candidates.beside();
        let refuse = |what: String| Err(Error::new(ErrorKind::PermissionDenied, what));
        match registry::standing(&path) {
            SidecarStanding::Missing => {
                let text = format!("{}: there is no sidecar of this user", path.display());
                return Err(Error::new(ErrorKind::NotFound, text));
            }
            SidecarStanding::Registered => return Ok(None),
            SidecarStanding::WritableByOthers => return refuse(writable_by_others(&path)),
            SidecarStanding::Empty | SidecarStanding::Unknown => {}
        }
        if !registry::is_writable() {
            return refuse(format!("{}: {}", path.display(), registry::remedy()));
        }
        if let Err(why) = check_all(&path, candidates.user()) {
            return refuse(format!("{why}, or remove {}", path.display()));
        }
        let holder = LocalDirectory::of_one(path, candidates.user(), HolderAccess::Write);
        Ok(Some(candidates.sidecar_in(Arc::new(holder))))
    }

    /// Removes all files that were not compared, and returns their names.
    ///
    /// # Errors
    /// Those of storage.
    pub(crate) fn remove_uncompared(&self) -> Result<Vec<String>> {
        let mut removed = Vec::new();
        for entry in self.entries("") {
            if KEPT.contains(&entry.name.as_str()) {
                continue;
            }
            match entry.is_directory {
                true => self.remove_directory(&entry.name),
                false => self.remove(&entry.name)?,
            }
            removed.push(entry.name);
        }
        Ok(removed)
    }

    /// Enters the sidecar in the registry.
    ///
    /// # Errors
    /// `PermissionDenied` if that cannot be done.
    pub(crate) fn register(&self) -> Result<()> {
        let Some(path) = self.own_directory() else { return Ok(()) };
        registry::register(&path).map_err(|error| {
            let text = format!("{}: {error}; {}", path.display(), registry::remedy());
            Error::new(ErrorKind::PermissionDenied, text)
        })?;
        warnings::forget(&path);
        Ok(())
    }
}

pub(super) fn writable_by_others(path: &Path) -> String {
    format!(
        "{} is not used: others than its owner may write it: chmod -R go-w {}",
        path.display(),
        path.display()
    )
}

fn check_all(top: &Path, user: u32) -> std::result::Result<(), String> {
    let found = fs::symlink_metadata(top).map_err(|error| format!("{}: {error}", top.display()))?;
    if found.mode() & WRITABLE_BY_OTHERS != 0 {
        return Err(writable_by_others(top));
    }
    let mut directories = vec![top.to_owned()];
    let mut count = 0;
    while let Some(directory) = directories.pop() {
        let failed = |error| format!("{}: {error}", directory.display());
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let found = fs::symlink_metadata(&path).map_err(failed)?;
            count += 1;
            if count > ENTRIES_MAX {
                return Err(format!("{} has too many files", top.display()));
            }
            if let Some(why) = doubt_of(&found, user) {
                return Err(format!("{} {why}: remove it", path.display()));
            }
            if directory == top && !is_ours(&path) {
                return Err(format!("{} is none of Bedform's names: move it", path.display()));
            }
            if found.is_dir() {
                directories.push(path);
            }
        }
    }
    Ok(())
}

fn doubt_of(found: &Metadata, user: u32) -> Option<String> {
    if !found.is_file() && !found.is_dir() {
        return Some("is neither a file nor a directory".to_owned());
    }
    if found.uid() != user {
        return Some(format!("belongs to user {}", found.uid()));
    }
    if found.mode() & WRITABLE_BY_OTHERS != 0 {
        return Some("may be written by others".to_owned());
    }
    (found.is_file() && found.nlink() != 1).then(|| "has another name elsewhere".to_owned())
}

fn is_ours(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    NAMES.contains(&name)
        || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
        || bedform_storage::is_own_name(name)
}
