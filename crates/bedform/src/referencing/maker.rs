//! The steps from a file, or an archive, to a set of references.

use bedform_format::chunk_map::{ForeignArray, ForeignStorage, RefusedMember};
use bedform_format::{DataType, Endian};
use bedform_geometry::{AxisRange, AxisSelection, Selection};
use serde_json::{Map, Value};

use super::document;
use super::fill::{FillRule, has_marked_number};
use super::grid::{ChunkForm, Fit, Misfit, bytes_of, chunk_form, item_size};
use super::limits::{SetLimits, VARIABLE_BYTES_MAX, chunk_count};
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

/// Chunks that are cut smaller than this cost more to reference than to store.
const CUT_BYTES_MIN: u64 = 4 << 10;
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

/// Names of documents of Zarr, which no array and no group can have.
const DOCUMENTS: [&str; 5] = ["zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"];

/// The state of making a set.
pub(super) struct Maker<'m> {
    file: &'m ForeignFile,
    options: &'m ReferenceOptions,
    files: Vec<SetFile>,
    limits: SetLimits,
    left_out: Vec<(String, String)>,
}

impl<'m> Maker<'m> {
    pub(super) fn new(file: &'m ForeignFile, options: &'m ReferenceOptions) -> Result<Self> {
        let files = file_names(file, options)?;
        let limits = SetLimits::of(file);
        Ok(Self { file, options, files, limits, left_out: Vec::new() })
    }

    pub(super) fn make(mut self, progress: ProgressCallback<'_>) -> Result<ReferenceSet> {
        self.check_excluded()?;
        let paths = self.referenced_paths()?;
        self.limits.check_chunks(self.file, &paths)?;
        let variables = self.file.stored_variables(&paths, progress)?;
        let mut arrays = Vec::with_capacity(variables.len());
        for variable in &variables {
            check_cancelled("making the references was stopped")?;
            arrays.push(self.array(variable)?);
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
    ///
    /// # Errors
    /// `Unsupported` if there is none.
    fn referenced_paths(&mut self) -> Result<Vec<&'m str>> {
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
            let refused = group.refused.iter();
            self.left_out.extend(refused.map(|RefusedMember { name, reason }| {
                (document::key(&group.path, name), reason.clone())
            }));
        }
        if paths.is_empty() { Err(self.nothing_left()) } else { Ok(paths) }
    }

    /// Returns the error for a file without any variable that references express.
    fn nothing_left(&self) -> Error {
        let reasons = self.left_out.iter().map(|(path, reason)| format!("{path:?}: {reason}"));
        let reasons = reasons.collect::<Vec<_>>().join("; ");
        let why = if reasons.is_empty() { "it has none".to_owned() } else { reasons };
        let text = format!("{}: no variable is left for the set: {why}", self.file.name());
        Error::new(ErrorKind::Unsupported, text)
    }

    fn groups(&mut self) -> Vec<SetGroup> {
        let map = self.file.map();
        let style = AttributeStyle::of(map);
        let mut groups = Vec::with_capacity(map.groups.len());
        for group in map.groups.iter().filter(|group| !is_document(&group.path)) {
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

    /// Makes the array of a variable: of references, or with its elements.
    ///
    /// # Errors
    /// `InvalidArgument` for a variable that fits neither; `LimitExceeded`; those of reading.
    fn array(&mut self, variable: &StoredVariable<'_>) -> Result<SetArray> {
        let is_small = variable_bytes(variable) <= VARIABLE_BYTES_MAX;
        let chunked = match is_small && self.is_inline(variable) {
            true => self.stored(variable)?,
            false => match self.referenced(variable)? {
                Ok(found) => found,
                Err(_) if is_small => self.stored(variable)?,
                Err(misfit) => return Err(self.refusal(&variable.array.path, &misfit)),
            },
        };
        self.described_array(variable.array, chunked)
    }

    /// True for a variable that the options say to store, whether or not references express it.
    fn is_inline(&self, variable: &StoredVariable<'_>) -> bool {
        let inline = self.options.inline_bytes;
        variable_bytes(variable) <= inline || inline > 0 && self.is_joined_coordinate(variable)
    }

    /// True for the coordinate of the joined dimension: every program reads it first, and would
    /// open each file for it.
    fn is_joined_coordinate(&self, variable: &StoredVariable<'_>) -> bool {
        let dimension = self.file.joined_dimension();
        let name = variable.array.path.rsplit('/').next();
        variable.axis.is_some() && variable.array.shape.len() == 1 && dimension == name
    }

    /// Returns references to the chunks of a variable.
    ///
    /// # Errors
    /// `LimitExceeded` for too many chunks.
    fn referenced(&mut self, variable: &StoredVariable<'_>) -> Result<Fit<ChunkedVariable>> {
        let form = match wanted_form(variable) {
            Ok(form) => form,
            Err(misfit) => return Ok(Err(misfit)),
        };
        let count = chunk_count(&grid_shape(&variable.array.shape, &form.shape));
        self.limits.take_chunks(count)?;
        let references = chunk_references(variable, &form.shape);
        let is_full = references.len() as u64 == count;
        let fill = FillRule::of(variable, is_full, self.options.form);
        Ok(fill.and_then(|fill| match fill.is_mask_by_mistake {
            true if variable_bytes(variable) <= VARIABLE_BYTES_MAX => {
                Err(Misfit::new(0, "has a fill value that readers would take for a mask"))
            }
            _ => Ok(ChunkedVariable { form, fill, chunks: ArrayChunks::Referenced(references) }),
        }))
    }

    /// Returns a variable with its elements, in the byte order of this machine.
    ///
    /// # Errors
    /// `LimitExceeded` for too many stored elements; those of reading.
    fn stored(&mut self, variable: &StoredVariable<'_>) -> Result<ChunkedVariable> {
        let bytes = variable_bytes(variable);
        self.limits.take_bytes(bytes)?;
        let array = Array::of_file(self.file, &variable.array.path)?;
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
        if fill.is_mask_by_mistake {
            let reason = "where chunks were never written its elements have the fill value, which xarray masks in \
                 kerchunk's sets; Icechunk's keep fill value and mask apart";
            self.left_out.push((format!("{}:_FillValue", array.path), reason.to_owned()));
        }
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
        let file = self.files.get(misfit.file).map_or("", |file| file.name.as_str());
        let text = format!(
            "{path:?}: references cannot express it: {file} {}: exclude the variable, or copy the files with bedform \
             convert",
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

/// Returns the common chunk form of all parts, unless its chunks are cut very small.
fn wanted_form(variable: &StoredVariable<'_>) -> Fit<ChunkForm> {
    let form = chunk_form(variable)?;
    let is_tiny = form.is_cut && bytes_of(&form.shape, item_size(variable)) < CUT_BYTES_MIN;
    if is_tiny && variable_bytes(variable) <= VARIABLE_BYTES_MAX {
        return Err(Misfit::new(0, "has chunks that would be cut very small"));
    }
    Ok(form)
}

/// Returns the bytes of all elements of a variable.
fn variable_bytes(variable: &StoredVariable<'_>) -> u64 {
    bytes_of(&variable.array.shape, item_size(variable))
}

/// Returns the reason why references cannot express a variable; `None` if they can.
fn not_referable(array: &ForeignArray) -> Option<String> {
    if is_document(&array.path) {
        return Some("its path has the name of a document of Zarr".into());
    }
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

/// True for a path that has the name of a document of Zarr.
fn is_document(path: &str) -> bool {
    path.split('/').any(|name| DOCUMENTS.contains(&name))
}
