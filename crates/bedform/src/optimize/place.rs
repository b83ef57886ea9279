//! Where a source lies that is optimised.

use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::foreign::{ArchiveOptions, archive_sidecar, make_archive_sidecar};
use crate::options::OpenOptions;
use crate::sidecar::Sidecar;
use crate::store::Store;

/// Where a source lies: one place, or many files that are read as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourcePlace {
    /// A store or a file.
    One(PathBuf),
    /// Files, in the order in which they are joined.
    Archive {
        /// Each file.
        paths: Vec<PathBuf>,
        /// As in [`ArchiveOptions`].
        dimension: Option<String>,
    },
}

impl From<&Path> for SourcePlace {
    fn from(path: &Path) -> Self {
        Self::One(path.to_owned())
    }
}

impl SourcePlace {
    /// The source as a user knows it.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::One(path) => path.display().to_string(),
            Self::Archive { paths, .. } => match paths.as_slice() {
                [] => "no file".to_owned(),
                [only] => only.display().to_string(),
                [first, ..] => format!("{} and {} more", first.display(), paths.len() - 1),
            },
        }
    }

    pub(super) fn open(&self, options: OpenOptions) -> Result<Store> {
        match self {
            Self::One(path) => Store::open_path(path, options),
            Self::Archive { paths, dimension } => {
                let dimension = dimension.as_deref();
                let how = ArchiveOptions { dimension, ..ArchiveOptions::default() };
                Store::open_archive(paths, &how, options)
            }
        }
    }

    /// The sidecar, there or not; nothing where there is no place for one.
    ///
    /// # Errors
    /// As [`Sidecar::of_path`].
    pub(super) fn sidecar(&self) -> Result<Option<Sidecar>> {
        match self {
            Self::One(path) => Sidecar::of_path(path),
            Self::Archive { paths, .. } => archive_sidecar(paths),
        }
    }

    /// The directory of the sidecar, made if it is missing: beside the source, or where the environment says, but
    /// in no home directory that nobody has named.
    ///
    /// # Errors
    /// `PermissionDenied` where it can be at none of these places; those of making it.
    pub(super) fn make_sidecar(&self) -> Result<PathBuf> {
        let made = match self {
            Self::One(path) => Sidecar::make_of_path(path)?,
            Self::Archive { paths, .. } => make_archive_sidecar(paths)?,
        };
        let is_named = std::env::var_os("BEDFORM_SIDECAR").is_some_and(|place| !place.is_empty());
        made.filter(|directory| is_named || self.is_beside(directory)).ok_or_else(|| {
            let text = format!(
                "{}: replicas cannot lie beside it, where this user may not write: set BEDFORM_SIDECAR to a \
                 directory for them",
                self.shown()
            );
            Error::new(ErrorKind::PermissionDenied, text)
        })
    }

    fn is_beside(&self, directory: &Path) -> bool {
        let path = match self {
            Self::One(path) => Some(path),
            Self::Archive { paths, .. } => paths.first(),
        };
        let path = path.map(|path| path.canonicalize().unwrap_or_else(|_| path.clone()));
        let above = directory.parent().and_then(|above| above.canonicalize().ok());
        above.as_deref() == path.as_deref().and_then(Path::parent)
    }
}
