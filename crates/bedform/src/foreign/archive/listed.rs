//! The list of an archive's files, kept so that each of them finds the archive.
//!
//! A program of the HDF5 library opens one file of an archive at a time. The sidecar of all files
//! together has their list; the sidecar of each of their directories names the first file of every
//! archive with files there. Both are written when the user watches or optimizes the archive, and
//! an archive whose list is lost is no longer found by its files, until the user does so again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bedform_format::Limits;
use bedform_format::chunk_map::SourceVersion;
use bedform_format::sealed::{from_sealed, to_sealed};
use bedform_storage::Version;
use serde::{Deserialize, Serialize};

use super::place::resolved_paths;
use super::{Compat, FileOrder, JoinOptions};
use crate::error::Result;
use crate::sidecar::{Helper, Sidecar, SidecarName};

const FILES: &str = "archive-files";
const ARCHIVES: &str = "archives";
/// The most archives with files in one directory; the last ones count.
const ARCHIVES_MAX: usize = 64;

/// The files of an archive in the given order, and the way in which they are joined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ListedFiles {
    /// Paths, with links resolved.
    pub(crate) files: Vec<PathBuf>,
    dimension: Option<String>,
    is_override: bool,
    is_sorted: bool,
}

impl ListedFiles {
    /// Returns the way in which the files are joined.
    pub(crate) fn join(&self) -> JoinOptions {
        JoinOptions {
            dimension: self.dimension.clone(),
            compat: if self.is_override { Compat::Override } else { Compat::Equals },
            order: if self.is_sorted { FileOrder::ByCoordinate } else { FileOrder::Given },
        }
    }

    /// Returns the version of the list in the sidecar of an archive; `None` without a list.
    pub(crate) fn version(sidecar: &Sidecar) -> Option<Version> {
        sidecar.version_of(FILES).or_else(|| sidecar.site()?.version_of(FILES))
    }

    /// Loads the list from the sidecar of an archive.
    pub(crate) fn load(sidecar: &Sidecar) -> Option<Self> {
        sidecar.load(FILES, &SourceVersion::default(), &Limits::default())
    }
}

impl Helper for ListedFiles {
    const BYTES_MAX: u64 = 64 << 20;

    // Paths that are no text cannot be encoded.
    fn encode(&self) -> Option<Vec<u8>> {
        to_sealed(self)
    }

    fn decode(bytes: &[u8], _: &Limits) -> Option<Self> {
        from_sealed(bytes)
    }
}

/// The first files of the archives with files in one directory.
#[derive(Debug, Default, Serialize, Deserialize)]
struct ListedArchives {
    first_files: Vec<PathBuf>,
}

impl Helper for ListedArchives {
    const BYTES_MAX: u64 = 1 << 20;

    fn encode(&self) -> Option<Vec<u8>> {
        to_sealed(self)
    }

    fn decode(bytes: &[u8], _: &Limits) -> Option<Self> {
        from_sealed(bytes)
    }
}

/// Keeps the list of the files at `paths`, which are joined as `join` says. A list that cannot be
/// kept is no error: programs of the HDF5 library then read the files as if they were single.
///
/// # Errors
/// `InvalidArgument` without paths; `NotFound` and others for a file that cannot be looked up.
pub fn list_files(paths: &[PathBuf], join: &JoinOptions) -> Result<()> {
    let listed = ListedFiles {
        files: resolved_paths(paths)?,
        dimension: join.dimension.clone(),
        is_override: join.compat == Compat::Override,
        is_sorted: join.order == FileOrder::ByCoordinate,
    };
    let Some(first) = listed.files.first() else { return Ok(()) };
    let Some(sidecar) = Sidecar::find(&SidecarName::of_archive(first), None)? else {
        return Ok(());
    };
    if ListedFiles::load(&sidecar).as_ref() != Some(&listed) {
        sidecar.save(FILES, &listed);
    }
    let directories: BTreeSet<&Path> =
        listed.files.iter().filter_map(|file| file.parent()).collect();
    for directory in directories {
        list_archive(first, directory)?;
    }
    Ok(())
}

/// Notes in the sidecar of `directory` that an archive with this first file has files there.
fn list_archive(first: &Path, directory: &Path) -> Result<()> {
    let name = SidecarName::of_path(directory);
    let Some(mut sidecar) = Sidecar::find(&name, None)? else { return Ok(()) };
    let mut listed = first_files_in(&sidecar);
    if listed.iter().any(|known| known == first) {
        return Ok(());
    }
    if sidecar.is_of_site() {
        // Only a directory that is there is written at a site.
        let Some(made) = Sidecar::make(&name)? else { return Ok(()) };
        sidecar = made;
    }
    listed.push(first.to_owned());
    let first_files = listed.split_off(listed.len().saturating_sub(ARCHIVES_MAX));
    sidecar.save(ARCHIVES, &ListedArchives { first_files });
    Ok(())
}

fn first_files_in(sidecar: &Sidecar) -> Vec<PathBuf> {
    let found =
        sidecar.load_own::<ListedArchives>(ARCHIVES, &SourceVersion::default(), &Limits::default());
    found.unwrap_or_default().first_files
}

/// Returns the first files of archives that have files in the directory of the file at `path`, the
/// latest first, of this user and of the site.
///
/// # Errors
/// As [`Sidecar::of_path`].
pub(crate) fn archives_beside(path: &Path) -> Result<Vec<PathBuf>> {
    let Some(directory) = path.parent() else { return Ok(Vec::new()) };
    let Some(sidecar) = Sidecar::of_path(directory)? else { return Ok(Vec::new()) };
    let mut found = sidecar.site().map(first_files_in).unwrap_or_default();
    found.extend(first_files_in(&sidecar));
    found.reverse();
    Ok(found)
}
