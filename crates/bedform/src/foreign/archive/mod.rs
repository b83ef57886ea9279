//! Archives: many foreign files, read as one.
//!
//! # Promises
//!
//! - A variable that has the *joined dimension* has the elements of all files, one file behind the other in the
//!   order of their labels along it, or in which they were given. Any other is that of the first file.
//! - Labels are true: coordinates along other dimensions are equal in all files, those along the joined one rise or
//!   fall throughout, and times are in the units of the first file. `Compat::Override` takes this promise away.
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
//! | `compare` | coordinates and fields, compared with those of the first file |
//! | `meaning` | units and calendars; joined times in the units of the first file |
//! | `times` | CF times, converted |
//! | `values` | the elements of small variables |
//! | `order` | the order of files by their labels |
//! | `open` | archives, opened |
//! | `member` | a variable of one file as a source; files that are open |
//! | `joined` | a joined variable |
//! | `cut` | selections, file by file |

mod agree;
mod compare;
mod cut;
mod examine;
mod forms;
mod joined;
mod meaning;
mod member;
mod open;
mod order;
mod place;
#[cfg(test)]
mod tests;
mod times;
mod values;

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use bedform_format::archive::ArchivedFile;
use bedform_format::chunk_map::{ChunkMap, ForeignArray, SourceVersion};
use bedform_format::{DataType, Limits};

use super::ForeignFile;
use super::facts::ForeignVariable;
use crate::error::{Error, ErrorKind, Result};
use crate::options::ProgressCallback;
use crate::source::StoredLayout;
use member::OpenFiles;
use place::ArchiveFiles;

pub(crate) use joined::{FileRead, JoinedVariable};
pub(crate) use member::Member;
pub use place::archive_sidecar;
pub(crate) use place::shown;

/// Gives the chunk map of a file that the parser does not understand.
pub type MakeMap<'a> = &'a dyn Fn(&Path) -> Result<ChunkMap>;

/// How files are joined.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JoinOptions {
    /// The dimension along which they are joined; nothing for the one that can grow, or the labels of which differ.
    pub dimension: Option<String>,
    /// The checks that files must pass.
    pub compat: Compat,
    /// The order in which they are joined.
    pub order: FileOrder,
}

/// The checks that files must pass, beside the types and shapes of joined variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compat {
    /// Coordinates are equal, and the joined labels rise or fall throughout.
    #[default]
    Equals,
    /// Nothing: coordinates are those of the first file.
    Override,
}

impl Compat {
    /// The option that a user calls `name`.
    ///
    /// # Errors
    /// `InvalidArgument` for another name.
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "equals" => Ok(Self::Equals),
            "override" => Ok(Self::Override),
            _ => Err(Error::invalid(format!("compat is \"equals\" or \"override\", not {name:?}"))),
        }
    }
}

/// The order in which files are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FileOrder {
    /// That in which they are given.
    #[default]
    Given,
    /// That of the labels of the joined dimension; without such that in which they are given.
    ByCoordinate,
}

/// How many files are opened as one.
pub struct ArchiveOptions<'a> {
    /// How they are joined.
    pub join: JoinOptions,
    /// Asked for files that only the library of their format understands; without it they are refused.
    pub make_map: Option<MakeMap<'a>>,
    /// Told how many files are done, of how many.
    pub progress: ProgressCallback<'a>,
}

impl Default for ArchiveOptions<'_> {
    fn default() -> Self {
        Self { join: JoinOptions::default(), make_map: None, progress: &|_, _| () }
    }
}

impl std::fmt::Debug for ArchiveOptions<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = formatter.debug_struct("ArchiveOptions");
        shown.field("join", &self.join).finish_non_exhaustive()
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
    /// Whether the files are in the order of their labels because they were sorted.
    is_sorted: bool,
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

    /// The order in which files are joined, as numbers of the list that was given, and whether it is that of their
    /// labels; nothing for one file.
    pub fn joined_order(&self) -> Option<(Vec<usize>, bool)> {
        let archive = self.archive.as_ref()?;
        Some((archive.places.given(), archive.is_sorted))
    }

    /// A line that names the variables that are read from the first file and have other values in other files;
    /// nothing if all agree.
    pub fn differing_files(&self) -> Option<String> {
        let archive = self.archive.as_ref()?;
        let arrays = &archive.first.map.arrays;
        let others =
            archive.files.iter().enumerate().filter(|(_, file)| !file.differing.is_empty());
        let others: Vec<_> = others.collect();
        let (first, _) = others.first()?;
        let variables: BTreeSet<u32> =
            others.iter().flat_map(|(_, file)| file.differing.iter().copied()).collect();
        let path = |number: u32| arrays.get(usize::try_from(number).ok()?).map(|array| &array.path);
        let names = variables.into_iter().filter_map(path).map(|path| format!("{path:?}"));
        let names: Vec<String> = names.collect();
        let more = match others.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Some(format!(
            "{}{more}: other values than {} in {}, which are not joined: those of {} are read",
            archive.file_name(*first),
            archive.file_name(0),
            names.join(", "),
            archive.file_name(0)
        ))
    }
}
