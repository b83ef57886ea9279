//! The source of a conversion: a store, or a foreign file by its chunk map.
//!
//! Callbacks read arrays that only the library of their format can decode.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use bedform_format::chunk_map::{ForeignArray as MapArray, ForeignStorage};
use bedform_format::metadata::FillValue;
use bedform_format::{DataType, ObjectPath};
use bedform_geometry::{AxisRange, AxisSelection, Region, Selection};
use serde_json::{Map, Value};

use super::attributes;
use super::state::{state_of, state_of_files};
use crate::array::Array;
use crate::error::{Error, ErrorKind, Result};
use crate::foreign::attributes::{AttributeStyle, dimension_names, group_attributes};
use crate::foreign::{Callback, ForeignFile, ReadElements};
use crate::replica::ReplicaElements;
use crate::store::Store;
use crate::zarr::nodes::NodeKind;

/// A callback that returns the texts of a region in C order.
pub type ReadTexts = dyn Fn(&Region) -> Result<Vec<String>> + Send + Sync;

/// A callback that reads an array which the engine cannot read: see [`ConvertSource::with_reader`].
#[derive(Clone)]
pub enum RegionReader {
    /// For elements of fixed size.
    Elements(Arc<ReadElements>),
    /// For text.
    Texts(Arc<ReadTexts>),
}

impl fmt::Debug for RegionReader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Elements(_) => "Elements",
            Self::Texts(_) => "Texts",
        })
    }
}

#[derive(Debug, Clone)]
enum SourceBacking {
    Store(Store),
    File(Box<ForeignFile>),
}

/// The source of a conversion: a store as of one moment, or a foreign file.
///
/// ```
/// use std::sync::Arc;
/// use bedform::{OpenOptions, Store};
/// use bedform::convert::ConvertSource;
/// use bedform_storage::MemoryStorage;
///
/// let store = Store::create(Arc::new(MemoryStorage::new()), &Default::default(), OpenOptions::default())?;
/// let source = ConvertSource::store("run42.zarr", &store)?;
/// assert_eq!(source.name(), "run42.zarr");
/// # Ok::<(), bedform::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ConvertSource {
    name: String,
    place: SourceBacking,
    readers: BTreeMap<String, RegionReader>,
    /// The path and the part of the one array that is converted; `None` for all arrays.
    part: Option<(String, ReplicaElements)>,
}

impl ConvertSource {
    /// Takes a store as of now ([`Store::snapshot`]), or a foreign file that was opened as one.
    /// `name` is its path or URL as the user gave it: messages show it, and a conversion resumes
    /// only with a source of the same name.
    ///
    /// # Errors
    /// As [`Store::snapshot`].
    pub fn store(name: impl Into<String>, store: &Store) -> Result<Self> {
        if let Some(file) = store.file() {
            return Ok(Self::file(name, file.clone()));
        }
        let place = SourceBacking::Store(store.snapshot()?);
        Ok(Self { name: name.into(), place, readers: BTreeMap::new(), part: None })
    }

    /// Takes a foreign file; `name` as in [`ConvertSource::store`].
    pub fn file(name: impl Into<String>, file: ForeignFile) -> Self {
        let place = SourceBacking::File(Box::new(file));
        Self { name: name.into(), place, readers: BTreeMap::new(), part: None }
    }

    /// Restricts the source to the part `held` of the array at `path`, without attributes: the
    /// source of a replica.
    #[must_use]
    pub fn part(mut self, path: &str, held: ReplicaElements) -> Self {
        self.part = Some((path.to_owned(), held));
        self
    }

    /// The path and the part of the one array that is converted, if it is not all.
    pub(super) fn copied_part(&self) -> Option<&(String, ReplicaElements)> {
        self.part.as_ref()
    }

    /// Adds a callback that reads the array at `path`, on the converting thread. Each variable
    /// whose storage the chunk map calls native needs one.
    #[must_use]
    pub fn with_reader(mut self, path: &str, reader: RegionReader) -> Self {
        self.readers.insert(path.to_owned(), reader);
        self
    }

    /// The path or URL as the user gave it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A fingerprint of the names and versions of the source's objects, which changes with the
    /// source.
    ///
    /// # Errors
    /// Those of storage.
    pub(super) fn state(&self) -> Result<String> {
        match &self.place {
            SourceBacking::Store(store) => state_of(store.storage(), false),
            SourceBacking::File(file) => Ok(state_of_files(file.states())),
        }
    }

    /// As [`ConvertSource::state`], for a store whose files get hard links meanwhile.
    ///
    /// # Errors
    /// Those of storage.
    pub(super) fn state_but_links(&self) -> Result<String> {
        match &self.place {
            SourceBacking::Store(store) => state_of(store.storage(), true),
            SourceBacking::File(_) => self.state(),
        }
    }

    /// Paths of all arrays, sorted.
    ///
    /// # Errors
    /// `Unsupported` for a store that is a single array; those of reading documents.
    pub(super) fn array_names(&self) -> Result<BTreeSet<String>> {
        if let Some((path, _)) = &self.part {
            return Ok(BTreeSet::from([path.clone()]));
        }
        match &self.place {
            SourceBacking::File(file) => {
                Ok(file.map().arrays.iter().map(|array| array.path.clone()).collect())
            }
            SourceBacking::Store(store) => {
                if store.kind(&ObjectPath::root())? == Some(NodeKind::Array) {
                    let text = "is a single array: convert the group that holds it";
                    return Err(Error::new(
                        ErrorKind::Unsupported,
                        format!("{} {text}", self.name),
                    ));
                }
                let nodes = store.nodes()?.into_iter();
                let arrays = nodes.filter(|(_, kind)| *kind == NodeKind::Array);
                Ok(arrays.map(|(path, _)| path.as_str().to_owned()).collect())
            }
        }
    }

    /// True for a store, where every array has a document of its own.
    pub(super) fn is_store(&self) -> bool {
        matches!(self.place, SourceBacking::Store(_))
    }

    /// The reason that no store can hold the elements of the array at `path`; `None` if one can.
    pub(super) fn not_storable(&self, path: &str) -> Option<String> {
        let SourceBacking::File(file) = &self.place else { return None };
        let array = file.described(path)?;
        match &array.storage {
            _ if array.data_type.is_some() => None,
            ForeignStorage::Native { reason } => Some(reason.clone()),
            _ => Some(format!("elements of type {}", array.encoding.dtype)),
        }
    }

    /// The reason that the array at `path` cannot be read: only the library of its format can, and
    /// there is no callback.
    pub(super) fn not_readable(&self, path: &str) -> Option<String> {
        let SourceBacking::File(file) = &self.place else { return None };
        match &file.described(path)?.storage {
            ForeignStorage::Native { reason } if !self.readers.contains_key(path) => {
                Some(reason.clone())
            }
            _ => None,
        }
    }

    /// Members of a foreign file that cannot be read, and the reasons.
    pub(super) fn refused(&self) -> Vec<(String, String)> {
        let SourceBacking::File(file) = &self.place else { return Vec::new() };
        if self.part.is_some() {
            return Vec::new();
        }
        let groups = file.map().groups.iter();
        groups
            .flat_map(|group| {
                group.refused.iter().map(|member| {
                    let path = match group.path.as_str() {
                        "" => member.name.clone(),
                        group => format!("{group}/{}", member.name),
                    };
                    (path, member.reason.clone())
                })
            })
            .collect()
    }

    /// The attributes of all groups, outer ones first, the root's among them.
    ///
    /// # Errors
    /// Those of reading documents; `InvalidArgument` for a path that no store can have.
    pub(super) fn groups(&self) -> Result<BTreeMap<ObjectPath, Map<String, Value>>> {
        let mut groups = BTreeMap::from([(ObjectPath::root(), Map::new())]);
        if let Some((path, _)) = &self.part {
            let mut outer = ObjectPath::parse(path)?.parent();
            while !outer.is_root() {
                groups.insert(outer.clone(), Map::new());
                outer = outer.parent();
            }
            return Ok(groups);
        }
        match &self.place {
            SourceBacking::File(file) => {
                let style = AttributeStyle::of(file.map());
                for group in &file.map().groups {
                    let found = group_attributes(&group.attributes, style);
                    groups.insert(ObjectPath::parse(&group.path)?, found);
                }
            }
            SourceBacking::Store(store) => {
                let nodes = store.nodes()?.into_iter();
                let inner =
                    nodes.filter(|(_, kind)| *kind == NodeKind::Group).map(|(path, _)| path);
                for path in std::iter::once(ObjectPath::root()).chain(inner) {
                    let found = store.group_attributes(&path)?;
                    groups.insert(path, found);
                }
            }
        }
        Ok(groups)
    }

    /// The array at `path`.
    ///
    /// # Errors
    /// `NotFound`; `Unsupported` for an array that needs a callback and has none; those of opening
    /// it.
    pub(super) fn array(&self, path: &str) -> Result<SourceArray> {
        let whole = self.whole_array(path)?;
        Ok(match &self.part {
            Some((_, held)) => whole.part(held.clone()),
            None => whole,
        })
    }

    fn whole_array(&self, path: &str) -> Result<SourceArray> {
        match &self.place {
            SourceBacking::Store(store) => {
                SourceArray::of_store(store.array(&ObjectPath::parse(path)?)?)
            }
            SourceBacking::File(file) => {
                let reading: Box<dyn RegionSource> = match self.readers.get(path) {
                    Some(RegionReader::Texts(read)) => Box::new(TextReader(read.clone())),
                    Some(RegionReader::Elements(read)) => {
                        let callback = Callback::new(read.clone()).one_at_a_time();
                        Box::new(Array::of_file_by(file, path, callback)?)
                    }
                    None => Box::new(Array::of_file(file, path)?),
                };
                SourceArray::of_file(file, path, reading)
            }
        }
    }
}

/// An array of a source: its description, and a reader of its elements.
pub(super) struct SourceArray {
    pub(super) shape: Vec<u64>,
    /// Type of the elements as they are read.
    stored: DataType,
    pub(super) dimension_names: Vec<String>,
    pub(super) chunks: Option<Vec<u64>>,
    pub(super) fill_value: FillValue,
    pub(super) attributes: Map<String, Value>,
    reading: Box<dyn RegionSource>,
}

/// Buffers for the elements of a region.
#[derive(Debug, Default)]
pub(super) struct RegionBuffers {
    /// Elements of fixed size.
    pub(super) bytes: Vec<u8>,
    /// Elements of arrays of text.
    pub(super) texts: Vec<String>,
}

/// A reader of the elements of regions: an array, a part of one, or a callback.
trait RegionSource: Send + Sync {
    fn read(&self, region: &Region, buffer: &mut [u8]) -> Result<()>;
    fn read_part(&self, held: &ReplicaElements, region: &Region, buffer: &mut [u8]) -> Result<()>;
    fn read_texts(&self, region: &Region) -> Result<Vec<String>>;
}

impl SourceArray {
    pub(super) fn of_store(array: Array) -> Result<Self> {
        let metadata = array.metadata()?;
        let attributes = array.attributes()?;
        let given = metadata.dimension_names.clone().unwrap_or_default();
        let name = |axis: usize| given.get(axis).cloned().flatten();
        let names = (0..metadata.shape.len())
            .map(|axis| name(axis).unwrap_or_else(|| format!("dim_{axis}")));
        Ok(Self {
            dimension_names: names.collect(),
            chunks: Some(metadata.inner_chunk_shape().to_vec()),
            fill_value: storable_fill(metadata.fill_value.clone(), metadata.data_type),
            attributes: attributes::array_attributes(attributes, metadata.data_type),
            stored: metadata.data_type,
            shape: metadata.shape,
            reading: Box::new(array),
        })
    }

    /// Restricts the array to the part `held`.
    fn part(self, held: ReplicaElements) -> Self {
        Self {
            shape: held.shape(),
            attributes: Map::new(),
            reading: Box::new(PartReader { whole: self.reading, held }),
            ..self
        }
    }

    fn of_file(file: &ForeignFile, path: &str, reading: Box<dyn RegionSource>) -> Result<Self> {
        let array = file.described(path).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("no variable {path:?} in {}", file.name()))
        })?;
        let stored = array.data_type.ok_or_else(|| {
            let text = format!("{path:?} of {} has elements that no store can hold", file.name());
            Error::new(ErrorKind::Unsupported, text)
        })?;
        let style = AttributeStyle::of(file.map());
        Ok(Self {
            shape: array.shape.clone(),
            stored,
            dimension_names: dimension_names(array),
            chunks: chunks_of(array),
            fill_value: storable_fill(fill_of(array, stored), stored),
            attributes: attributes::variable_attributes(array, style),
            reading,
        })
    }

    /// The reason that no store can hold the elements; `None` if one can.
    pub(super) fn not_storable(&self) -> Option<String> {
        let is_time = matches!(self.stored, DataType::DateTime(_) | DataType::TimeDelta(_));
        let is_storable = is_time || !self.stored.is_only_read();
        (!is_storable).then(|| format!("elements of type {}", self.stored))
    }

    /// Type of the elements in a store: text of fixed length becomes text.
    pub(super) fn data_type(&self) -> DataType {
        match self.stored {
            DataType::FixedUnicode(_) => DataType::String,
            other => other,
        }
    }

    pub(super) fn is_text(&self) -> bool {
        self.data_type() == DataType::String
    }

    /// Reads `region` into `values`, whose memory is reused.
    ///
    /// # Errors
    /// Those of reading; `InvalidArgument` from a callback that returns a wrong number of texts.
    pub(super) fn read(&self, region: &Region, values: &mut RegionBuffers) -> Result<()> {
        let count = region.len().and_then(|count| usize::try_from(count).ok());
        let too_large = || Error::new(ErrorKind::LimitExceeded, "a region is larger than memory");
        let count = count.ok_or_else(too_large)?;
        let Some(item_size) = self.stored.item_size() else {
            values.texts = self.reading.read_texts(region)?;
            return check_count(values.texts.len(), count);
        };
        let bytes = count.checked_mul(item_size).ok_or_else(too_large)?;
        values.bytes.clear();
        values.bytes.try_reserve_exact(bytes).map_err(|_| too_large())?;
        values.bytes.resize(bytes, 0);
        self.reading.read(region, &mut values.bytes)?;
        if self.is_text() {
            values.texts = values.bytes.chunks_exact(item_size.max(1)).map(text_of).collect();
            return check_count(values.texts.len(), count);
        }
        Ok(())
    }
}

fn check_count(found: usize, expected: usize) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Error::invalid(format!("a reader gave {found} texts for a region of {expected} elements")))
}

fn chunks_of(array: &MapArray) -> Option<Vec<u64>> {
    match &array.storage {
        ForeignStorage::Chunked { chunk_shape, .. } => Some(chunk_shape.clone()),
        _ => array.encoding.chunks.clone().filter(|chunks| chunks.len() == array.shape.len()),
    }
}

fn fill_of(array: &MapArray, data_type: DataType) -> FillValue {
    array.fill_element().map_or_else(|| FillValue::zero(data_type), FillValue::Bytes)
}

/// The fill value of the array in the store: see [`SourceArray::data_type`].
fn storable_fill(fill: FillValue, stored: DataType) -> FillValue {
    match (stored, fill) {
        (DataType::FixedUnicode(_), FillValue::Bytes(bytes)) => FillValue::Text(text_of(&bytes)),
        (_, fill) => fill,
    }
}

/// Decodes text from an element of four bytes per character, in the machine's byte order, padded
/// with zeros.
fn text_of(element: &[u8]) -> String {
    let (characters, _) = element.as_chunks::<4>();
    #[allow(clippy::host_endian_bytes)]
    let codes = characters.iter().map(|bytes| u32::from_ne_bytes(*bytes));
    let text: String =
        codes.map(|code| char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    text.trim_end_matches('\0').to_owned()
}

/// Turns a region into a selection.
///
/// # Errors
/// `InvalidArgument` for a region whose end does not fit 64 bits.
pub(super) fn selection_of(region: &Region) -> Result<Selection> {
    let ranges = region.start().iter().zip(region.shape());
    let ranges = ranges
        .map(|(start, length)| Ok(AxisSelection::Range(AxisRange::contiguous(*start, *length)?)));
    Ok(Selection::Orthogonal(ranges.collect::<Result<_>>()?))
}

/// A reader of a part of an array.
struct PartReader {
    whole: Box<dyn RegionSource>,
    held: ReplicaElements,
}

impl RegionSource for PartReader {
    fn read(&self, region: &Region, buffer: &mut [u8]) -> Result<()> {
        self.whole.read_part(&self.held, region, buffer)
    }

    fn read_part(&self, _: &ReplicaElements, _: &Region, _: &mut [u8]) -> Result<()> {
        Err(Error::invalid("a part of a part of an array"))
    }

    fn read_texts(&self, _: &Region) -> Result<Vec<String>> {
        Err(Error::new(ErrorKind::Unsupported, "replicas hold no texts"))
    }
}

impl RegionSource for Array {
    fn read(&self, region: &Region, buffer: &mut [u8]) -> Result<()> {
        self.read(&selection_of(region)?, buffer).map(drop)
    }

    fn read_part(&self, held: &ReplicaElements, region: &Region, buffer: &mut [u8]) -> Result<()> {
        self.read(&held.outer(region), buffer).map(drop)
    }

    fn read_texts(&self, region: &Region) -> Result<Vec<String>> {
        self.read_text(&selection_of(region)?)
    }
}

/// A reader of texts by a callback, because no chunk of the engine can hold them.
struct TextReader(Arc<ReadTexts>);

impl RegionSource for TextReader {
    fn read(&self, _: &Region, _: &mut [u8]) -> Result<()> {
        Err(Error::invalid("a reader of texts was given for elements"))
    }

    fn read_part(&self, _: &ReplicaElements, _: &Region, _: &mut [u8]) -> Result<()> {
        Err(Error::invalid("a reader of texts was given for elements"))
    }

    fn read_texts(&self, region: &Region) -> Result<Vec<String>> {
        (self.0)(region)
    }
}
