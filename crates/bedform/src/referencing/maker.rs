//! The steps from a file, or an archive, to a set of references.

use bedform_format::chunk_map::{ForeignArray, ForeignStorage};
use bedform_format::{DataType, Endian};
use bedform_geometry::{AxisRange, AxisSelection, Selection};
use serde_json::{Map, Value};

use super::document;
use super::fill::{FillRule, has_marked_number};
use super::grid::{ChunkForm, Fit, Misfit, bytes_of, chunk_form, item_size};
use super::names::file_names;
use super::table::{chunk_references, grid_shape};
use super::{
    ArrayChunks, ReferenceForm, ReferenceOptions, ReferenceSet, SetArray, SetFile, SetGroup,
};
use crate::array::Array;
use crate::error::{Error, ErrorKind, Result};
use crate::foreign::ForeignFile;
use crate::foreign::attributes::{AttributeStyle, group_attributes};
use crate::foreign::stored::StoredVariable;
use crate::options::ProgressCallback;
use crate::threads::workers::check_cancelled;

/// The largest variable in bytes that is stored in a set because references cannot express it.
const STORED_BYTES_MAX: u64 = 16 << 20;
/// Chunks that are cut smaller than this cost more to reference than to store.
const CUT_BYTES_MIN: u64 = 4 << 10;
/// The most chunks of a set, as for readers of sets.
const CHUNKS_MAX: u64 = 1 << 25;
/// Names of registered HDF5 filters that neither numcodecs nor the engine decodes.
const FILTERS: [(u32, &str); 10] = [
    (4, "szip"),
    (5, "nbit"),
    (6, "scaleoffset"),
    (32000, "lzf"),
    (32004, "lz4"),
    (32008, "bitshuffle"),
    (32013, "zfp"),
    (32017, "sz"),
    (32026, "blosc2"),
    (32028, "jpegls"),
];

/// The state of making a set.
pub(super) struct Maker<'m> {
    file: &'m ForeignFile,
    options: &'m ReferenceOptions,
    files: Vec<SetFile>,
    left_out: Vec<(String, String)>,
}

impl<'m> Maker<'m> {
    pub(super) fn new(file: &'m ForeignFile, options: &'m ReferenceOptions) -> Result<Self> {
        let files = file_names(file, options)?;
        Ok(Self { file, options, files, left_out: Vec::new() })
    }

    pub(super) fn make(mut self, progress: ProgressCallback<'_>) -> Result<ReferenceSet> {
        self.check_excluded()?;
        let paths = self.referenced_paths();
        check_chunk_count(self.file, &paths)?;
        let variables = self.file.stored_variables(&paths, progress)?;
        let mut arrays = Vec::with_capacity(variables.len());
        let mut left = CHUNKS_MAX;
        for variable in &variables {
            check_cancelled("making the references was stopped")?;
            let array = self.array(variable, &mut left)?;
            arrays.push(array);
        }
        let groups = self.groups();
        let Self { files, left_out, .. } = self;
        Ok(ReferenceSet { files, groups, arrays, left_out })
    }

    fn check_excluded(&self) -> Result<()> {
        let is_there = |path: &&String| self.file.described(path).is_some();
        match self.options.exclude.iter().find(|path| !is_there(path)) {
            Some(path) => {
                let text = format!("exclude: {} has no variable {path:?}", self.file.name());
                Err(Error::new(ErrorKind::InvalidArgument, text))
            }
            None => Ok(()),
        }
    }

    /// Returns the paths of all variables that references can express, and notes the others.
    fn referenced_paths(&mut self) -> Vec<&'m str> {
        let file = self.file;
        let mut paths = Vec::new();
        for array in &file.map().arrays {
            if self.options.exclude.contains(&array.path) {
                continue;
            }
            match not_referable(array) {
                Some(reason) => self.left_out.push((array.path.clone(), reason)),
                None => paths.push(array.path.as_str()),
            }
        }
        for group in &file.map().groups {
            for member in &group.refused {
                let inside = if group.path.is_empty() { "" } else { "/" };
                let path = format!("{}{inside}{}", group.path, member.name);
                self.left_out.push((path, member.reason.clone()));
            }
        }
        paths
    }

    fn groups(&mut self) -> Vec<SetGroup> {
        let map = self.file.map();
        let style = AttributeStyle::of(map);
        let mut groups = Vec::with_capacity(map.groups.len());
        for group in &map.groups {
            let mut attributes = group_attributes(&group.attributes, style);
            self.drop_unwritable(&group.path, &mut attributes);
            groups.push(SetGroup { path: group.path.clone(), attributes });
        }
        groups
    }

    /// Removes attributes with numbers that JSON lacks, which Icechunk refuses.
    fn drop_unwritable(&mut self, path: &str, attributes: &mut Map<String, Value>) {
        if self.options.form != ReferenceForm::Icechunk {
            return;
        }
        let names: Vec<String> = attributes
            .iter()
            .filter(|(name, value)| has_marked_number(value) && *name != "_FillValue")
            .map(|(name, _)| name.clone())
            .collect();
        for name in names {
            attributes.shift_remove(&name);
            // A missing value of NaN changes nothing: a reader shows NaN either way.
            if name != "missing_value" {
                let reason = "Icechunk stores no NaN and no infinity in attributes";
                self.left_out.push((format!("{path}:{name}"), reason.to_owned()));
            }
        }
    }

    fn array(&mut self, variable: &StoredVariable<'_>, left: &mut u64) -> Result<SetArray> {
        let described = variable.array;
        let bytes = bytes_of(&described.shape, item_size(variable));
        let is_wanted = bytes <= self.options.inline_bytes
            || self.options.inline_bytes > 0 && self.is_joined_coordinate(variable);
        let referenced = match is_wanted && bytes <= STORED_BYTES_MAX {
            true => None,
            false => match self.referenced(variable, left) {
                Ok(found) => Some(found),
                Err(_) if bytes <= STORED_BYTES_MAX => None,
                Err(misfit) => return Err(self.refusal(&described.path, &misfit)),
            },
        };
        let found = match referenced {
            Some(found) => found,
            None => self.stored(variable)?,
        };
        self.described_array(described, found)
    }

    /// True for the coordinate of the joined dimension: every program reads it first, and would
    /// open each file for it.
    fn is_joined_coordinate(&self, variable: &StoredVariable<'_>) -> bool {
        let dimension = self.file.joined_dimension();
        let name = variable.array.path.rsplit('/').next();
        variable.axis.is_some() && variable.array.shape.len() == 1 && dimension == name
    }

    /// Returns references to the chunks of a variable.
    fn referenced(&self, variable: &StoredVariable<'_>, left: &mut u64) -> Fit<ChunkedVariable> {
        let form = chunk_form(variable)?;
        let misfit = |reason: &str| Misfit { file: 0, reason: reason.to_owned() };
        let item_size = item_size(variable);
        let bytes = bytes_of(&variable.array.shape, item_size);
        let is_small = form.is_cut && bytes_of(&form.shape, item_size) < CUT_BYTES_MIN;
        if is_small && bytes <= STORED_BYTES_MAX {
            return Err(misfit("has chunks that would be cut very small"));
        }
        let grid = grid_shape(&variable.array.shape, &form.shape);
        let count = grid.iter().fold(1_u64, |count, length| count.saturating_mul(*length));
        *left = left.checked_sub(count).ok_or_else(|| misfit(TOO_MANY))?;
        let references = chunk_references(variable, &form.shape);
        let is_full = references.len() as u64 == count;
        let fill = FillRule::of(variable, is_full, self.options.form)?;
        Ok(ChunkedVariable { form, fill, chunks: ArrayChunks::Referenced(references) })
    }

    /// Returns a variable with its elements, in the byte order of this machine.
    fn stored(&self, variable: &StoredVariable<'_>) -> Result<ChunkedVariable> {
        let array = Array::of_file(self.file, &variable.array.path)?;
        let bytes = bytes_of(&variable.array.shape, item_size(variable));
        let mut elements = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
        let axes = variable.array.shape.iter();
        let axes = axes.map(|length| Ok(AxisSelection::Range(AxisRange::contiguous(0, *length)?)));
        let selection = Selection::Orthogonal(axes.collect::<Result<_>>()?);
        array.read(&selection, &mut elements)?;
        let shape = variable.array.shape.iter().map(|length| (*length).max(1)).collect();
        let form = ChunkForm { shape, endian: Endian::NATIVE, codecs: Vec::new(), is_cut: false };
        let fill = FillRule::of_stored(variable, self.options.form);
        Ok(ChunkedVariable { form, fill, chunks: ArrayChunks::Stored(elements) })
    }

    /// Makes an array of its description and its chunks.
    fn described_array(
        &mut self,
        array: &ForeignArray,
        found: ChunkedVariable,
    ) -> Result<SetArray> {
        let style = AttributeStyle::of(self.file.map());
        let ChunkedVariable { form, fill, chunks } = found;
        let mut attributes = document::attributes(array, style, self.options.form, &fill);
        self.drop_unwritable(&array.path, &mut attributes);
        let metadata = document::metadata(array, form, &fill, &attributes, self.options.form)?;
        Ok(SetArray {
            path: array.path.clone(),
            metadata,
            attributes,
            has_fill: fill.is_written,
            chunks,
        })
    }

    /// Returns the error for a variable that is too large to be stored in the set.
    fn refusal(&self, path: &str, misfit: &Misfit) -> Error {
        if misfit.reason == TOO_MANY {
            return too_many_chunks(self.file);
        }
        let file = self.files.get(misfit.file).map_or("", |file| file.name.as_str());
        let text = format!(
            "{path:?}: {file} {}: references need one chunk shape and one list of filters for all files: exclude \
             the variable, or copy the files with bedform convert",
            misfit.reason
        );
        Error::new(ErrorKind::InvalidArgument, text)
    }
}

/// The chunks of a variable in a form that a set can have.
struct ChunkedVariable {
    form: ChunkForm,
    fill: FillRule,
    chunks: ArrayChunks,
}

const TOO_MANY: &str = "has too many chunks";

fn too_many_chunks(file: &ForeignFile) -> Error {
    let text = format!(
        "{}: more than {CHUNKS_MAX} chunks: make references to fewer files or variables",
        file.name()
    );
    Error::new(ErrorKind::LimitExceeded, text)
}

/// Fails for variables with more chunks than a set may have, before their tables are read.
fn check_chunk_count(file: &ForeignFile, paths: &[&str]) -> Result<()> {
    let arrays = paths.iter().filter_map(|path| file.described(path));
    let count = arrays.fold(0_u64, |count, array| {
        let ForeignStorage::Chunked { chunk_shape, .. } = &array.storage else { return count };
        let grid = grid_shape(&array.shape, chunk_shape);
        let chunks = grid.iter().fold(1_u64, |chunks, length| chunks.saturating_mul(*length));
        count.saturating_add(chunks)
    });
    if count > CHUNKS_MAX { Err(too_many_chunks(file)) } else { Ok(()) }
}

/// Returns the reason why references cannot express a variable; `None` if they can.
fn not_referable(array: &ForeignArray) -> Option<String> {
    let unknown = array.encoding.filters.iter().find_map(|filter| {
        let (_, name) = FILTERS.iter().find(|(id, _)| *id == filter.id)?;
        Some(format!("its filter {name} is none that readers of references have"))
    });
    match &array.storage {
        ForeignStorage::Native { reason } => Some(unknown.unwrap_or_else(|| reason.clone())),
        _ => match array.data_type {
            Some(DataType::String) => {
                Some("texts of any length have no extents of their own".into())
            }
            Some(data_type) if data_type.item_size().is_some() => None,
            _ => Some(format!("elements of type {}", array.encoding.dtype)),
        },
    }
}
