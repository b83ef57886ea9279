//! Archives: many foreign files, read as one.
//!
//! # Promises
//!
//! - A variable that has the *joined dimension* has the elements of all files. The files follow
//!   each other in the order of their labels along it, or in the given order. Any other variable is
//!   that of the first file.
//! - Labels are true. Coordinates along other dimensions are equal in all files. Those along the
//!   joined one rise or fall throughout, and times are in the units of the first file.
//!   `Compat::Override` takes this promise away.
//! - Files may differ in chunks, codecs, byte order and format. They agree in everything that
//!   decides the places and meanings of elements; the first file that does not is named in the
//!   error.
//! - A file that was replaced or changed is never read as the opened one. Each file's state is
//!   compared when it is opened for a read, and before every read if the handle has
//!   `freshness="read"`.
//! - At most some hundred files are open at once, fewer if the process may open few.
//!
//! # How
//!
//! The chunk maps of all files are found once, by several threads, and become an
//! [`ArchiveMap`](bedform_format::archive), a helper file in a sidecar of all files together. A
//! later open reads that map, checks the state of each file, and reads the headers of changed files
//! alone.
//!
//! An archive is a [`ForeignFile`]: one with the chunk map of its first file, in which joined
//! variables have the shape of all files. So code that describes, lists or converts files does not
//! depend on archives. A joined variable is not a [`Source`](crate::source::Source): a read of it
//! is a plan of one piece for each file that its selection touches.
//!
//! | module | holds |
//! |---|---|
//! | `place` | the paths of the files, and their states |
//! | `examine` | chunk maps of many files, by several threads |
//! | `forms` | the common properties of variables of many files |
//! | `agree` | the choice of the joined dimension, and the check that the files fit together |
//! | `compare` | coordinates and fields, compared with those of the first file |
//! | `meaning` | units and calendars; joined times in the units of the first file |
//! | `times` | CF times, converted |
//! | `values` | the elements of small variables |
//! | `order` | the order of files by their labels |
//! | `open` | opening an archive |
//! | `member` | a variable of one file as a source; open files |
//! | `joined` | a joined variable |
//! | `stored` | the stored blocks of joined variables |
//! | `cut` | selections, file by file |
//! | `listed` | the list by which a file finds its archive |

mod agree;
mod compare;
mod cut;
mod examine;
mod forms;
mod joined;
mod listed;
mod meaning;
mod member;
mod open;
mod order;
mod place;
mod stored;
#[cfg(test)]
mod tests;
mod times;
mod values;

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
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
pub use listed::list_files;
pub(crate) use listed::{ListedFiles, archives_beside};
pub(crate) use member::ArchiveMember;
pub use place::archive_sidecar;
pub(crate) use place::shown;

/// A function that makes the chunk map of a file that the parser does not understand.
pub type MakeMap<'a> = &'a dyn Fn(&Path) -> Result<ChunkMap>;

/// The way in which files are joined.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JoinOptions {
    /// The joined dimension. `None` means the dimension that can grow, or else the one whose labels
    /// differ.
    pub dimension: Option<String>,
    /// The checks that files must pass.
    pub compat: Compat,
    /// The order in which they are joined.
    pub order: FileOrder,
}

/// The checks that files must pass, in addition to the types and shapes of joined variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compat {
    /// Coordinates must be equal, and the joined labels must rise or fall throughout.
    #[default]
    Equals,
    /// No check: coordinates are those of the first file.
    Override,
}

impl Compat {
    /// Returns the option with this name.
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
    /// The order in which the files are given.
    #[default]
    Given,
    /// The order of the labels of the joined dimension; the given order if it has none.
    ByCoordinate,
}

/// Options for opening many files as one.
pub struct ArchiveOptions<'a> {
    /// The way in which the files are joined.
    pub join: JoinOptions,
    /// Called for files that only the library of their format understands; without it they are
    /// refused.
    pub make_map: Option<MakeMap<'a>>,
    /// Called with the number of files done, and of all files.
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
    /// The archive's name for users and messages.
    name: String,
    dimension: String,
    /// The first file alone.
    first: ForeignFile,
    places: ArchiveFiles,
    files: Vec<ArchivedFile>,
    forms: Vec<VariableForm>,
    joined: Vec<JoinedAxis>,
    by_path: HashMap<String, usize>,
    /// The start of each file along the joined dimension, and the end of the last one.
    starts: Vec<u64>,
    /// True if the files were sorted into the order of their labels.
    is_sorted: bool,
    open: OpenFiles,
    limits: Limits,
}

/// A joined variable, and its joined axis.
#[derive(Debug)]
struct JoinedAxis {
    path: String,
    axis: usize,
}

/// A form, and the stored form of its variables.
#[derive(Debug)]
struct VariableForm {
    array: ForeignArray,
    data_type: DataType,
    layout: StoredLayout,
    decoding: u64,
}

impl Archive {
    /// Returns the archive's name for users and messages.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the states of the files when they were opened.
    pub(super) fn states(&self) -> impl Iterator<Item = &SourceVersion> {
        self.files.iter().map(|file| &file.source)
    }

    /// Returns the form of joined variable `variable` in file `file`.
    fn form(&self, file: usize, variable: usize) -> &VariableForm {
        &self.forms[self.files[file].variables[variable].form as usize]
    }

    /// Returns the file's name for users and messages.
    fn file_name(&self, file: usize) -> String {
        self.places.files[file].path.display().to_string()
    }
}

impl ForeignFile {
    /// Returns the variable at `path`, joined or not.
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

    /// Returns the file that alone has the variable at `path`: the first file of an archive.
    ///
    /// # Errors
    /// `NotFound`; `Unsupported` for a joined variable.
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

    /// Returns the dimension along which files are joined; `None` for a single file.
    pub fn joined_dimension(&self) -> Option<&str> {
        self.archive.as_ref().map(|archive| archive.dimension.as_str())
    }

    /// Returns the order in which files are joined, as indices of the given list, and whether the
    /// files were sorted by their labels. `None` for a single file.
    pub fn joined_order(&self) -> Option<(Vec<usize>, bool)> {
        let archive = self.archive.as_ref()?;
        Some((archive.places.given(), archive.is_sorted))
    }

    /// Returns the files of an archive, in order, each with its state when it was opened; none for a
    /// single file.
    pub(crate) fn joined_files(&self) -> impl Iterator<Item = (&Path, &SourceVersion)> {
        let archive = self.archive.iter();
        archive
            .flat_map(|archive| archive.places.files.iter().zip(&archive.files))
            .map(|(place, file)| (&*place.path, &file.source))
    }

    /// Closes the files of an archive that reads have left open; further reads open them again.
    pub(crate) fn close_files(&self) {
        if let Some(archive) = &self.archive {
            archive.open.close_all();
        }
    }

    /// Returns the axis along which the variable at `path` is joined, and the stretch of that axis
    /// which file number `file` of the archive has. `None` if it is not joined, or if the archive
    /// has converted its values or keeps them.
    pub(crate) fn joined_stretch(&self, path: &str, file: usize) -> Option<(usize, Range<u64>)> {
        let archive = self.archive.as_ref()?;
        let number = *archive.by_path.get(path)?;
        let is_of_file = archive.files.get(file)?.variables.get(number)?.data.is_none();
        let stretch = *archive.starts.get(file)?..*archive.starts.get(file + 1)?;
        is_of_file.then_some((archive.joined[number].axis, stretch))
    }

    /// Returns a line that names variables which are read from the first file but have other values
    /// in other files; `None` if all agree.
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
