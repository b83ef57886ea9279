//! The location of a source that is optimized.

use std::path::{Path, PathBuf};

use bedform_format::shown::shell_path;

use crate::error::Result;
use crate::foreign::{ArchiveOptions, JoinOptions, archive, archive_sidecar, list_files};
use crate::options::OpenOptions;
use crate::sidecar::SidecarName;
use crate::store::Store;

/// The location of a source: one path, or many files opened as one archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourcePlace {
    /// A store or a file.
    One(PathBuf),
    /// Files that are opened as one archive.
    Archive {
        /// The path of each file.
        paths: Vec<PathBuf>,
        /// The way in which the files are joined.
        join: JoinOptions,
    },
}

impl From<&Path> for SourcePlace {
    fn from(path: &Path) -> Self {
        Self::One(path.to_owned())
    }
}

impl SourcePlace {
    /// Returns the source as the user named it, for messages.
    pub fn shown(&self) -> String {
        match self {
            Self::One(path) => path.display().to_string(),
            Self::Archive { paths, .. } => archive::shown(paths),
        }
    }

    /// Returns a command of the command line with the source, for messages: it can be pasted, but
    /// for a list of files, which only the user knows in full.
    pub(super) fn command(&self, name: &str) -> String {
        match self {
            Self::One(path) => format!("'bedform {name} {}'", shell_path(&path.to_string_lossy())),
            Self::Archive { .. } => format!("'bedform {name}' of the same pattern or list"),
        }
    }

    pub(super) fn open(&self, options: OpenOptions) -> Result<Store> {
        match self {
            Self::One(path) => Store::open_path(path, options),
            Self::Archive { paths, join } => {
                let how = ArchiveOptions { join: join.clone(), ..ArchiveOptions::default() };
                Store::open_archive(paths, &how, options)
            }
        }
    }

    /// Keeps the list of an archive's files, by which programs of the HDF5 library that open one of
    /// them find the archive's sidecar. Does nothing for one path.
    ///
    /// # Errors
    /// Errors of looking up the files.
    pub fn list(&self) -> Result<()> {
        match self {
            Self::One(_) => Ok(()),
            Self::Archive { paths, join } => list_files(paths, join),
        }
    }

    /// Returns the name by which its sidecar is found.
    ///
    /// # Errors
    /// Errors of looking up the first file of an archive.
    pub fn sidecar_name(&self) -> Result<SidecarName> {
        match self {
            Self::One(path) => Ok(SidecarName::of_path(path)),
            Self::Archive { paths, .. } => archive_sidecar(paths),
        }
    }
}
