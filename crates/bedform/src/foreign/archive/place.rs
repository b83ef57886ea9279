//! The paths of the files of an archive, and the states in which they were found.

use std::collections::HashMap;
use std::fs::symlink_metadata;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bedform_format::ObjectPath;
use bedform_format::chunk_map::SourceVersion;
use bedform_storage::{Mode, Storage};

use super::examine::in_threads;
use crate::error::{Error, ErrorKind, Result};
use crate::opening::{file_of, storage_of, url_of};
use crate::options::OpenOptions;
use crate::sidecar::{SidecarName, source_version_of};

/// The most files of an archive.
const FILES_MAX: usize = 1 << 17;

/// The files of an archive.
#[derive(Debug)]
pub(super) struct ArchiveFiles {
    /// The directories that hold the files.
    directories: Vec<Arc<dyn Storage>>,
    pub(super) files: Vec<FilePlace>,
    /// The moment before their states were looked up.
    pub(super) found_at: SystemTime,
}

/// The place of one file.
#[derive(Debug)]
pub(super) struct FilePlace {
    /// Its path, with links resolved.
    pub(super) path: PathBuf,
    directory: usize,
    pub(super) name: ObjectPath,
    /// Its state when it was found.
    pub(super) source: SourceVersion,
    /// Its index in the given list.
    given: usize,
}

impl ArchiveFiles {
    /// Finds the files at `paths`.
    ///
    /// # Errors
    /// `InvalidArgument` without paths; `NotFound`, `PermissionDenied`; `Unsupported` for anything
    /// but a file of this machine; those of storage; `LimitExceeded` for too many.
    pub(super) fn find(paths: &[PathBuf], options: &OpenOptions) -> Result<Self> {
        let found_at = SystemTime::now();
        let found = resolved(paths)?;
        let (mut directories, mut numbers) = (Vec::new(), HashMap::new());
        let mut files = Vec::with_capacity(found.len());
        for (given, (path, source)) in found.into_iter().enumerate() {
            let plain = path.file_name().and_then(|name| name.to_str()).map(ObjectPath::parse);
            let (directory, name) = match (path.parent(), plain) {
                (Some(parent), Some(Ok(name))) => {
                    let directory = match numbers.get(parent) {
                        Some(number) => *number,
                        None => {
                            directories.push(storage_of(parent, Mode::ReadOnly, options)?);
                            numbers.insert(parent.to_owned(), directories.len() - 1);
                            directories.len() - 1
                        }
                    };
                    (directory, name)
                }
                // A name that no object has.
                _ => {
                    let (storage, name) = file_of(&path, options)?;
                    directories.push(storage);
                    (directories.len() - 1, name)
                }
            };
            files.push(FilePlace { path, directory, name, source, given });
        }
        Ok(Self { directories, files, found_at })
    }

    /// Returns the indices that the files had in the given list.
    pub(super) fn given(&self) -> Vec<usize> {
        self.files.iter().map(|file| file.given).collect()
    }

    /// Sorts the files into another order, given by their numbers.
    pub(super) fn arrange(&mut self, order: &[usize]) {
        let mut files: Vec<_> = std::mem::take(&mut self.files).into_iter().map(Some).collect();
        self.files = order.iter().filter_map(|file| files[*file].take()).collect();
    }

    /// Returns the directory of a file.
    pub(super) fn storage(&self, file: usize) -> &Arc<dyn Storage> {
        &self.directories[self.files[file].directory]
    }
}

/// Returns the name of the files at `paths` together, for users and messages.
pub(crate) fn shown(paths: &[PathBuf]) -> String {
    match paths {
        [] => "no file".to_owned(),
        [only] => only.display().to_string(),
        [first, ..] => format!("{} and {} more", first.display(), paths.len() - 1),
    }
}

/// Returns the name by which the sidecar of the files at `paths` together is found.
///
/// # Errors
/// Those of opening the first file.
pub fn archive_sidecar(paths: &[PathBuf]) -> Result<SidecarName> {
    let first = paths.get(..1).unwrap_or_default();
    let found = resolved(first)?.into_iter().next();
    Ok(SidecarName::of_archive(&found.map(|(path, _)| path).unwrap_or_default()))
}

/// Returns the paths of the files, with links resolved.
///
/// # Errors
/// As [`ArchiveFiles::find`].
pub(super) fn resolved_paths(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    Ok(resolved(paths)?.into_iter().map(|(path, _)| path).collect())
}

/// Returns the files with links resolved, and their states.
fn resolved(paths: &[PathBuf]) -> Result<Vec<(PathBuf, SourceVersion)>> {
    if paths.is_empty() {
        return Err(Error::invalid("no file is given: an archive has one or more"));
    }
    if paths.len() > FILES_MAX {
        let text = format!("{} files, over the limit of {FILES_MAX} of an archive", paths.len());
        return Err(Error::new(ErrorKind::LimitExceeded, text));
    }
    let mut parents: HashMap<&Path, PathBuf> = HashMap::new();
    for path in paths {
        if let Some(url) = url_of(path) {
            let text = format!("{url}: only files of this machine are joined: copy it there");
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let parent = parent_of(path);
        if !parents.contains_key(parent) {
            let real = parent.canonicalize().map_err(|error| failed(path, &error))?;
            parents.insert(parent, real);
        }
    }
    in_threads(paths.len(), &|_, _| (), |number| {
        let path = &paths[number];
        let parent = &parents[parent_of(path)];
        resolved_in(path, parent)
    })
}

fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn resolved_in(path: &Path, parent: &Path) -> Result<(PathBuf, SourceVersion)> {
    let failed = |error: std::io::Error| failed(path, &error);
    let named = path.file_name().map(|name| parent.join(name));
    let mut real = match named {
        Some(named) => named,
        None => path.canonicalize().map_err(failed)?,
    };
    let mut found = symlink_metadata(&real).map_err(failed)?;
    if found.is_symlink() {
        real = path.canonicalize().map_err(failed)?;
        found = symlink_metadata(&real).map_err(failed)?;
    }
    if !found.is_file() {
        let what = if found.is_dir() { "a directory" } else { "no plain file" };
        let text = format!(
            "{} is {what}: NetCDF and HDF5 files are joined; a Zarr store is opened by itself",
            path.display()
        );
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    Ok((real, source_version_of(&found)))
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    let kind = match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => ErrorKind::NotFound,
        std::io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
        _ => ErrorKind::Io,
    };
    Error::new(kind, format!("{}: {error}", path.display()))
}
