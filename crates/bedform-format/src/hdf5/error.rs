//! Errors of the HDF5 parser.

use crate::chunk_map::ChunkMapError;

/// An error of a [`ReadAt`](super::ReadAt) implementation.
pub type ReadError = Box<dyn std::error::Error + Send + Sync>;

pub(super) type Result<T = ()> = std::result::Result<T, Hdf5Error>;

/// The reason why an object of an HDF5 file was not read.
///
/// The variants differ by remedy: the HDF5 library may read a file that is
/// [`Unknown`](Self::Unknown) here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Hdf5Error {
    /// The file has no superblock at any offset that the format allows.
    #[error("not an HDF5 file: it has no HDF5 superblock")]
    NotHdf5,
    /// A part of the format that this parser does not read.
    #[error("an HDF5 file with {what}, which is read by the HDF5 library only")]
    Unknown {
        /// The unknown part.
        what: String,
    },
    /// Bytes that no library would write.
    #[error("damaged HDF5 file at byte {at}: {what}")]
    Corrupt {
        /// The broken rule.
        what: String,
        /// Offset in the file.
        at: u64,
    },
    /// One object exceeds a limit; other objects may be readable.
    #[error("HDF5 metadata over a limit: {what}")]
    Limit {
        /// The limited quantity and its limit.
        what: String,
    },
    /// All objects together exceed a limit.
    #[error("HDF5 metadata over a limit, met at {object:?}: {what}")]
    FileLimit {
        /// The limited quantity and its limit.
        what: String,
        /// The path of the object at which the limit was met.
        object: String,
    },
    /// The chunk map made from the file is invalid.
    #[error(transparent)]
    Map(#[from] ChunkMapError),
    /// The reader failed.
    #[error("cannot read the HDF5 file")]
    Read(#[source] ReadError),
}

impl Hdf5Error {
    pub(super) fn unknown(what: impl Into<String>) -> Self {
        Self::Unknown { what: what.into() }
    }

    pub(super) fn corrupt(at: u64, what: impl Into<String>) -> Self {
        Self::Corrupt { what: what.into(), at }
    }

    pub(super) fn limit(what: impl Into<String>) -> Self {
        Self::Limit { what: what.into() }
    }

    pub(super) fn limit_of_file(what: impl Into<String>) -> Self {
        Self::FileLimit { what: what.into(), object: "/".into() }
    }

    /// Adds the path of the object to a file limit, unless a nested object has set it.
    pub(super) fn met_at(mut self, path: &str) -> Self {
        if let Self::FileLimit { object, .. } = &mut self
            && object == "/"
        {
            path.clone_into(object);
        }
        self
    }
}
