//! Where a source lies that is optimised.

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::foreign::{ArchiveOptions, JoinOptions, archive, archive_sidecar};
use crate::options::OpenOptions;
use crate::sidecar::SidecarName;
use crate::store::Store;

/// Where a source lies: one place, or many files that are read as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourcePlace {
    /// A store or a file.
    One(PathBuf),
    /// Files that are opened as one.
    Archive {
        /// Each file.
        paths: Vec<PathBuf>,
        /// How they are joined.
        join: JoinOptions,
    },
}

impl From<&Path> for SourcePlace {
    fn from(path: &Path) -> Self {
        Self::One(path.to_owned())
    }
}

impl SourcePlace {
    /// The source as a user knows it.
    pub fn shown(&self) -> String {
        match self {
            Self::One(path) => path.display().to_string(),
            Self::Archive { paths, .. } => archive::shown(paths),
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

    /// What its sidecar is found by.
    ///
    /// # Errors
    /// Those of looking for the first file of an archive.
    pub fn sidecar_name(&self) -> Result<SidecarName> {
        match self {
            Self::One(path) => Ok(SidecarName::of_path(path)),
            Self::Archive { paths, .. } => archive_sidecar(paths),
        }
    }
}
