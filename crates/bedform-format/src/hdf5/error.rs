//! Why something in an HDF5 file was not read.

use crate::chunk_map::ChunkMapError;

/// An error of a reader that is given to the parser.
pub type ReadError = Box<dyn std::error::Error + Send + Sync>;

pub(super) type Result<T = ()> = std::result::Result<T, Hdf5Error>;

/// Why something in an HDF5 file was not read.
///
/// The variants differ by remedy: what is [`Unknown`](Self::Unknown) the HDF5 library may read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Hdf5Error {
    /// No superblock where the format allows one.
    #[error("not an HDF5 file: it has no HDF5 superblock")]
    NotHdf5,
    /// A part of the format that this parser does not read.
    #[error("an HDF5 file with {what}, which is read by the HDF5 library only")]
    Unknown {
        /// What it is.
        what: String,
    },
    /// Bytes that no library writes.
    #[error("damaged HDF5 file at byte {at}: {what}")]
    Corrupt {
        /// What is wrong.
        what: String,
        /// Where in the file.
        at: u64,
    },
    /// An object asks for more than a limit allows: others may not.
    #[error("HDF5 metadata over a limit: {what}")]
    Limit {
        /// Of what there is too much, and how much is allowed.
        what: String,
    },
    /// All objects together ask for more than a limit allows.
    #[error("HDF5 metadata over a limit, met at {object:?}: {what}")]
    FileLimit {
        /// Of what there is too much, and how much is allowed.
        what: String,
        /// The path of the object at which the limit was met.
        object: String,
    },
    /// What the file says gives no chunk map that holds.
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

    /// The same error, met at the object of this path unless it was at one within.
    pub(super) fn met_at(mut self, path: &str) -> Self {
        if let Self::FileLimit { object, .. } = &mut self
            && object == "/"
        {
            path.clone_into(object);
        }
        self
    }
}
