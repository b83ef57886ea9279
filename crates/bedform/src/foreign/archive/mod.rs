//! Archives: many foreign files, read as one.
//!
//! # Promises
//!
//! - A variable that has the *joined dimension* has the elements of all files, one file behind the other in the
//!   order in which they were given. Any other is that of the first file, of the same shape and type in all.
//! - Files may differ in chunks, codecs, byte order and format. They agree in everything that says which element
//!   stands where and what its value means; the first file that does not is named.
//! - No file is read as another one than was opened: each is compared with what was known of it when it is opened
//!   for a read, and before every read where the handle is that fresh.
//! - No more than some hundred files are open at once, fewer where the process may open few.
//!
//! # How
//!
//! The chunk maps of all files are found once, in several threads, and become an
//! [`ArchiveMap`](bedform_format::archive), a helper file in a sidecar of all files together. An open that finds
//! it asks for the state of each file, and reads the headers of those alone that have changed.
//!
//! An archive is a [`ForeignFile`]: one with the chunk map of its first file, in which joined variables have the
//! shape of all files. Whoever describes files, lists or converts them needs not know of archives. A joined
//! variable is no [`Source`](crate::source::Source): a read of it is a plan of one piece for each file that its
//! selection touches.
//!
//! | module | holds |
//! |---|---|
//! | `place` | where the files are, and their state |
//! | `examine` | chunk maps of many files, in threads |
//! | `forms` | what files have in common |
//! | `agree` | which dimension is joined, and whether the files fit together |
//! | `open` | archives, opened |
//! | `member` | a variable of one file as a source; files that are open |
//! | `joined` | a joined variable |
//! | `cut` | selections, file by file |

mod agree;
mod cut;
mod examine;
mod forms;
mod joined;
mod member;
mod open;
mod place;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use bedform_format::archive::ArchivedFile;
use bedform_format::chunk_map::{ChunkMap, ForeignArray, SourceVersion};
use bedform_format::{DataType, Limits};

use super::ForeignFile;
use super::facts::ForeignVariable;
use crate::error::{Error, ErrorKind, Result};
use crate::options::Progress;
use crate::source::StoredLayout;
use member::OpenFiles;
use place::ArchiveFiles;

pub(crate) use joined::{FileRead, JoinedVariable};
pub(crate) use member::Member;
pub use place::archive_sidecar;
pub(crate) use place::shown;

/// Gives the chunk map of a file that the parser does not understand.
pub type MakeMap<'a> = &'a dyn Fn(&Path) -> Result<ChunkMap>;

/// How many files are opened as one.
pub struct ArchiveOptions<'a> {
    /// The dimension along which they are joined; nothing for the one in which they differ, or that can grow.
    pub dimension: Option<&'a str>,
    /// Asked for files that only the library of their format understands; without it they are refused.
    pub make_map: Option<MakeMap<'a>>,
    /// Told how many files are done, of how many.
    pub progress: Progress<'a>,
}

impl Default for ArchiveOptions<'_> {
    fn default() -> Self {
        Self { dimension: None, make_map: None, progress: &|_, _| () }
    }
}

impl std::fmt::Debug for ArchiveOptions<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = formatter.debug_struct("ArchiveOptions");
        shown.field("dimension", &self.dimension).finish_non_exhaustive()
    }
}

/// Many files, opened as one.
#[derive(Debug)]
pub(super) struct Archive {
    /// The archive as a user knows it.
    name: String,
    dimension: String,
    /// The first file by itself.
    first: ForeignFile,
    places: ArchiveFiles,
    files: Vec<ArchivedFile>,
    forms: Vec<VariableForm>,
    joined: Vec<JoinedAxis>,
    by_path: HashMap<String, usize>,
    /// Where each file begins along the joined dimension, and where the last one ends.
    starts: Vec<u64>,
    open: OpenFiles,
    limits: Limits,
}

/// A variable that is joined.
#[derive(Debug)]
struct JoinedAxis {
    path: String,
    axis: usize,
}

/// A form, and how variables of it are stored.
#[derive(Debug)]
struct VariableForm {
    array: ForeignArray,
    data_type: DataType,
    layout: StoredLayout,
    decoding: u64,
}

impl Archive {
    /// The archive as a user knows it.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The states of the files, in which they were opened.
    pub(super) fn states(&self) -> impl Iterator<Item = &SourceVersion> {
        self.files.iter().map(|file| &file.source)
    }

    /// The form of joined variable `variable` in file `file`.
    fn form(&self, file: usize, variable: usize) -> &VariableForm {
        &self.forms[self.files[file].variables[variable].form as usize]
    }

    /// The file as a user knows it.
    fn file_name(&self, file: usize) -> String {
        self.places.files[file].path.display().to_string()
    }
}

impl ForeignFile {
    /// The variable at `path`, whoever reads it.
    ///
    /// # Errors
    /// As [`ForeignFile::variable`].
    pub(crate) fn any_variable(&self, path: &str) -> Result<Arc<dyn ForeignVariable>> {
        if let Some(archive) = &self.archive {
            let position = self.position(path)?;
            if let Some(number) = archive.by_path.get(path) {
                return Ok(Arc::new(JoinedVariable::new(self, archive, *number, position)?));
            }
            return Ok(Arc::new(archive.first.variable(path)?));
        }
        Ok(Arc::new(self.variable(path)?))
    }

    /// The file that has the variable at `path` to itself: of an archive the first one.
    ///
    /// # Errors
    /// `NotFound`; `Unsupported` for a variable that many files have together.
    pub(super) fn file_of(&self, path: &str) -> Result<&Self> {
        let Some(archive) = &self.archive else { return Ok(self) };
        self.position(path)?;
        match archive.by_path.contains_key(path) {
            false => Ok(&archive.first),
            true => {
                let text = format!("{}: {path:?} is joined of many files", self.name());
                Err(Error::new(ErrorKind::Unsupported, text))
            }
        }
    }

    /// The dimension along which files are joined; nothing for one file.
    pub fn joined_dimension(&self) -> Option<&str> {
        self.archive.as_ref().map(|archive| archive.dimension.as_str())
    }
}
