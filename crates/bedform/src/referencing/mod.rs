//! Sets of references, made of the chunk maps of foreign files: kerchunk's and Icechunk's.
//!
//! # Promises
//!
//! - A reader of the set sees the elements of the files, joined as an archive joins them. A variable
//!   that references cannot express is an error or is named in [`ReferenceSet::left_out`]; it is
//!   never missing in silence.
//! - No element is read but those that the set itself stores.
//! - Fill values, masks and packing are those of the files: nothing is decoded.
//!
//! # How
//!
//! [`ReferenceSet::of_file`] asks the file for the stored blocks of all variables, finds a chunk grid
//! that holds for the parts of all files, and lists one reference for each chunk. Small variables
//! are read and stored in the set, as are converted times and coordinates of the joined dimension.
//! The doors write the lists: JSON here, Parquet and Icechunk by the libraries of Python.
//!
//! | module | holds |
//! |---|---|
//! | `maker` | the steps from a file to a set |
//! | `limits` | the limits of a set |
//! | `grid` | the chunk grid of a variable of many files |
//! | `table` | the chunk references of a variable |
//! | `fill` | fill values and masks of both formats |
//! | `names` | paths and URLs of the files |
//! | `document` | metadata in Zarr v2 and v3 |
//! | `kerchunk` | kerchunk's JSON |

mod document;
mod fill;
mod grid;
mod kerchunk;
mod limits;
mod maker;
mod names;
mod table;

use std::ops::Range;

use bedform_format::metadata::ArrayMetadata;
use serde_json::{Map, Value, json};

use crate::error::{Error, Result};
use crate::foreign::ForeignFile;
use crate::options::ProgressCallback;
use limits::{VARIABLE_BYTES_MAX, chunk_count};
use table::{ChunkReference, grid_shape, set_coordinates};

pub use names::FileNames;

/// The format for which a set is made: it decides names of files, and where masks are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReferenceForm {
    /// kerchunk: Zarr v2.
    #[default]
    Kerchunk,
    /// Icechunk: Zarr v3, files by URLs.
    Icechunk,
}

/// Options of making references.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ReferenceOptions {
    /// The format.
    pub form: ReferenceForm,
    /// The largest variable in bytes, of all files together, that is stored in the set; at most 16
    /// MiB. With 0 only variables are that references cannot express.
    pub inline_bytes: u64,
    /// Paths of variables to leave out.
    pub exclude: Vec<String>,
    /// The names of the files in the set.
    pub names: FileNames,
    /// The path or URL of a file that was opened alone.
    pub source: Option<String>,
}

impl ReferenceOptions {
    /// Reads the options from JSON: `form` is `kerchunk` or `icechunk`, `inline_bytes` a number,
    /// `exclude` a list, `source` a path or URL, and `names` either `absolute`, `{"relative_to":
    /// directory}` or `{"below": URL}`.
    ///
    /// # Errors
    /// `InvalidArgument` for another key or value.
    pub fn from_json(given: &Map<String, Value>) -> Result<Self> {
        let mut options = Self::default();
        for (key, value) in given.iter().filter(|(_, value)| !value.is_null()) {
            let bad = || Error::invalid(format!("not a value of {key}: {value}"));
            let text = || value.as_str().map(str::to_owned).ok_or_else(bad);
            match key.as_str() {
                "form" => {
                    options.form = match value.as_str() {
                        Some("kerchunk") => ReferenceForm::Kerchunk,
                        Some("icechunk") => ReferenceForm::Icechunk,
                        _ => return Err(bad()),
                    }
                }
                "inline_bytes" => {
                    let bytes = value.as_u64().filter(|bytes| *bytes <= VARIABLE_BYTES_MAX);
                    options.inline_bytes = bytes.ok_or_else(|| {
                        Error::invalid(format!("inline is at most 16 MiB, not {value} bytes"))
                    })?;
                }
                "exclude" => {
                    let names = value.as_array().ok_or_else(bad)?.iter();
                    let names = names.map(|name| name.as_str().map(str::to_owned));
                    options.exclude = names.collect::<Option<_>>().ok_or_else(bad)?;
                }
                "source" => options.source = Some(text()?),
                "names" => options.names = FileNames::from_json(value).ok_or_else(bad)?,
                _ => return Err(Error::invalid(format!("there is no option {key:?}"))),
            }
        }
        Ok(options)
    }
}

/// References to the chunks of one file, or of many files as one store.
#[derive(Debug)]
pub struct ReferenceSet {
    files: Vec<SetFile>,
    groups: Vec<SetGroup>,
    arrays: Vec<SetArray>,
    left_out: Vec<(String, String)>,
}

/// A file of a set.
#[derive(Debug)]
struct SetFile {
    /// Its path or URL in the set.
    name: String,
    /// Time of its last change, in nanoseconds since 1970; 0 where it is unknown.
    modified_ns: i64,
}

/// A group of a set.
#[derive(Debug)]
struct SetGroup {
    path: String,
    attributes: Map<String, Value>,
}

/// An array of a set.
#[derive(Debug)]
struct SetArray {
    path: String,
    metadata: ArrayMetadata,
    attributes: Map<String, Value>,
    /// True if the document of Zarr v2 has the fill value; else it has null.
    has_fill: bool,
    chunks: ArrayChunks,
}

/// The chunks of an array.
#[derive(Debug)]
enum ArrayChunks {
    /// All elements, as one raw chunk in the set.
    Stored(Vec<u8>),
    /// References to the stored chunks, sorted by position.
    Referenced(Vec<ChunkReference>),
}

/// Columns of the chunk references of an array, for a library that writes them.
#[derive(Debug, Default)]
pub struct ReferenceColumns {
    /// For each chunk, its index along each axis.
    pub indexes: Vec<u32>,
    /// Indexes of the files; -1 for a chunk that is not stored.
    pub files: Vec<i32>,
    /// Offsets in bytes.
    pub offsets: Vec<i64>,
    /// Lengths in bytes.
    pub lengths: Vec<i64>,
}

impl ReferenceSet {
    /// Makes the references to the chunks of `file`. `progress` receives the files done and in all.
    ///
    /// # Errors
    /// `InvalidArgument` for a variable whose files have no common chunk grid, naming the file;
    /// `Unsupported` if references express no variable; `LimitExceeded` for too many chunks or
    /// stored elements; those of reading chunk tables and elements; `Interrupted`.
    pub fn of_file(
        file: &ForeignFile,
        options: &ReferenceOptions,
        progress: ProgressCallback<'_>,
    ) -> Result<Self> {
        maker::Maker::new(file, options)?.make(progress)
    }

    /// Returns variables and attributes of the files that the set lacks, with the reasons.
    pub fn left_out(&self) -> &[(String, String)] {
        &self.left_out
    }

    /// Returns a summary: the number of `files`, and for each of the `arrays` its `path`, `shape`,
    /// `chunks`, `dtype`, number of `references` and `stored_bytes`.
    pub fn summary(&self) -> Value {
        let arrays = self.arrays.iter().map(|array| {
            let (references, stored) = match &array.chunks {
                ArrayChunks::Stored(bytes) => (0, bytes.len()),
                ArrayChunks::Referenced(references) => (references.len(), 0),
            };
            json!({
                "path": array.path,
                "shape": array.metadata.shape,
                "chunks": array.metadata.chunk_shape,
                "dtype": array.metadata.data_type.to_string(),
                "references": references,
                "stored_bytes": stored,
            })
        });
        json!({"files": self.files.len(), "arrays": arrays.collect::<Value>()})
    }

    /// Returns the path or URL of each file in the set, and the time of its last change in
    /// nanoseconds since 1970 (0 where it is unknown).
    pub fn files(&self) -> Vec<(&str, i64)> {
        self.files.iter().map(|file| (file.name.as_str(), file.modified_ns)).collect()
    }

    /// Returns the number of chunks of array `number`, stored in files or not.
    pub fn chunk_count(&self, number: usize) -> u64 {
        self.arrays.get(number).map_or(0, SetArray::chunk_count)
    }

    /// Returns the elements of array `number`, if the set stores them as one chunk.
    pub fn elements(&self, number: usize) -> Option<&[u8]> {
        match &self.arrays.get(number)?.chunks {
            ArrayChunks::Stored(bytes) => Some(bytes),
            ArrayChunks::Referenced(_) => None,
        }
    }

    /// Returns one row for each chunk of array `number` whose position is in the range, without
    /// indexes.
    pub fn rows(&self, number: usize, positions: Range<u64>) -> ReferenceColumns {
        dense_columns(self.references(number), positions)
    }

    /// Returns a range of the references of array `number`, with the indexes of their chunks.
    pub fn indexed(&self, number: usize, range: Range<usize>) -> ReferenceColumns {
        let references = self.references(number).get(range).unwrap_or_default();
        let grid = self.arrays.get(number).map(SetArray::grid).unwrap_or_default();
        sparse_columns(references, &grid)
    }

    fn references(&self, number: usize) -> &[ChunkReference] {
        match self.arrays.get(number).map(|array| &array.chunks) {
            Some(ArrayChunks::Referenced(references)) => references,
            _ => &[],
        }
    }
}

impl SetArray {
    fn grid(&self) -> Vec<u64> {
        grid_shape(&self.metadata.shape, &self.metadata.chunk_shape)
    }

    fn chunk_count(&self) -> u64 {
        chunk_count(&self.grid())
    }
}

fn dense_columns(references: &[ChunkReference], rows: Range<u64>) -> ReferenceColumns {
    let mut columns = ReferenceColumns::default();
    let first = references.partition_point(|found| found.position < rows.start);
    let mut rest = references[first..].iter().peekable();
    for position in rows {
        match rest.next_if(|found| found.position == position) {
            Some(found) => columns.push(found),
            None => {
                columns.files.push(-1);
                columns.offsets.push(0);
                columns.lengths.push(0);
            }
        }
    }
    columns
}

fn sparse_columns(references: &[ChunkReference], grid: &[u64]) -> ReferenceColumns {
    let mut columns = ReferenceColumns::default();
    let mut at = vec![0; grid.len()];
    for found in references {
        columns.push(found);
        set_coordinates(&mut at, found.position, grid);
        let along = at.iter().map(|at| u32::try_from(*at).unwrap_or(u32::MAX));
        columns.indexes.extend(along);
    }
    columns
}

impl ReferenceColumns {
    fn push(&mut self, found: &ChunkReference) {
        self.files.push(found.file.cast_signed());
        self.offsets.push(found.offset.cast_signed());
        self.lengths.push(found.length.cast_signed());
    }
}
