//! Archive maps: the metadata of many foreign files that are read as one store.
//!
//! The files of an archive are alike. A joined variable has a few *forms* across the files:
//! descriptions without locations, with only the attributes that define the meaning of values. Each
//! file names the forms of its variables, the extents of their bytes, and the differences from the
//! first file. So the map of ten thousand files takes some MiB. A variable whose times are
//! converted to the units of the first file is compact: the map holds its converted elements.
//!
//! [`ArchiveMap::decode`] checks a map as a [chunk map](crate::chunk_map) is checked: every extent
//! lies inside its file as recorded. Files may have changed since.
//!
//! # Bytes
//!
//! All numbers are little-endian.
//!
//! | bytes | content |
//! |---|---|
//! | 8 | magic `BFARCHV` and a zero |
//! | 4 | version of this format, 2 |
//! | 4 | number of joined variables |
//! | 8 | number of files |
//! | 8 | bytes of the description |
//! | .. | the description: JSON with `dimension` and `forms`; each form is an array of a chunk map |
//! | .. | for each file its size, times and identity (40), the kind of its span (4), the number of its differing variables (4), the first and the last value of its span (16), the numbers of the differing variables (4 each), then for each joined variable: its form (4), its storage (4: 1 a table, 2 bytes), its place (8), and the table (as in a chunk map) or the bytes (their number, 8, then the bytes) |
//! | 4 | CRC-32C of everything before |

use std::collections::HashSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::chunk_map::check::{ChunkBounds, check_array, check_table, inside};
use crate::chunk_map::wire::MapReader;
use crate::chunk_map::{ChunkMapError, ChunkTable, ForeignArray, ForeignStorage, SourceVersion};
use crate::{DataType, Limits, checksum};

const MAGIC: [u8; 8] = *b"BFARCHV\0";
const VERSION: u32 = 2;
const CHECKSUM_BYTES: usize = 4;
/// Smallest encoding of a file, and of a variable in a file, in bytes.
const FILE_BYTES: usize = 64;
const VARIABLE_BYTES: usize = 16;
const HAS_TABLE: u32 = 1;
const HAS_BYTES: u32 = 2;

/// The metadata of many foreign files that are read as one.
#[derive(Debug, Clone, PartialEq)]
pub struct ArchiveMap {
    /// The dimension along which the files are joined.
    pub dimension: String,
    /// All distinct forms of the joined variables.
    pub forms: Vec<ForeignArray>,
    /// The files, in order along the joined dimension.
    pub files: Vec<ArchivedFile>,
}

/// A file of an archive.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ArchivedFile {
    /// Version of the file that the map describes.
    pub source: SourceVersion,
    /// The joined variables, in the same order in every file.
    pub variables: Vec<ArchivedVariable>,
    /// The values of the joined dimension's coordinate in the file.
    pub span: CoordinateSpan,
    /// Indexes, in the first file, of the variables that are not joined and that differ here.
    pub differing: Vec<u32>,
}

/// The values of a coordinate in one file.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CoordinateSpan {
    /// Order of the values.
    pub kind: SpanKind,
    /// The first value, in the units of the first file.
    pub first: f64,
    /// The last value, in the units of the first file.
    pub last: f64,
}

/// The order of the values of a coordinate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SpanKind {
    /// The dimension has no numeric coordinate.
    #[default]
    Unlabeled,
    /// The file has no elements along the dimension.
    Empty,
    /// All values are equal.
    Constant,
    /// No value is below the one before it.
    Increasing,
    /// No value is above the one before it.
    Decreasing,
    /// Another order, or missing values.
    Unordered,
}

impl SpanKind {
    const ALL: [Self; 6] = [
        Self::Unlabeled,
        Self::Empty,
        Self::Constant,
        Self::Increasing,
        Self::Decreasing,
        Self::Unordered,
    ];
}

impl CoordinateSpan {
    fn write(&self, bytes: &mut Vec<u8>, differing: u32) {
        bytes.extend_from_slice(&(self.kind as u32).to_le_bytes());
        bytes.extend_from_slice(&differing.to_le_bytes());
        bytes.extend_from_slice(&self.first.to_le_bytes());
        bytes.extend_from_slice(&self.last.to_le_bytes());
    }

    /// Reads a span, and the number of differing variables after it.
    fn read(reader: &mut MapReader<'_>) -> Result<Option<(Self, u32)>, ChunkMapError> {
        let mut parts = || Some((reader.u32()?, reader.u32()?, reader.u64()?, reader.u64()?));
        let Some((kind, differing, first, last)) = parts() else { return Ok(None) };
        let kind = usize::try_from(kind).ok().and_then(|kind| SpanKind::ALL.get(kind).copied());
        let (first, last) = (f64::from_bits(first), f64::from_bits(last));
        match kind {
            Some(kind) if first.is_finite() && last.is_finite() => {
                Ok(Some((Self { kind, first, last }, differing)))
            }
            _ => Err(ChunkMapError::Description("a coordinate without an order".into())),
        }
    }
}

/// A variable in a file of an archive.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ArchivedVariable {
    /// Index of its form.
    pub form: u32,
    /// Offset of the first byte, if it is not chunked; address of the dataset, if its chunk table
    /// is not in the map.
    pub at: u64,
    /// The chunk table, if it is in the map.
    pub chunks: Option<Arc<ChunkTable>>,
    /// The elements, if the variable is compact.
    pub data: Option<Arc<[u8]>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    dimension: String,
    forms: Vec<ForeignArray>,
}

impl ForeignArray {
    /// Splits the array into its form and the location of its bytes.
    pub fn into_form(mut self) -> (Self, ArchivedVariable) {
        let mut place = ArchivedVariable::default();
        match &mut self.storage {
            ForeignStorage::Contiguous { offset, .. } | ForeignStorage::Records { offset, .. } => {
                place.at = std::mem::take(offset);
            }
            ForeignStorage::Compact { data } => place.data = Some(std::mem::take(data).into()),
            ForeignStorage::Chunked { chunks, .. } => {
                place.chunks = Some(Arc::new(std::mem::take(chunks)));
            }
            ForeignStorage::Native { .. } | ForeignStorage::Empty => {}
        }
        (self, place)
    }
}

impl ArchiveMap {
    /// Encodes the archive; the module header has the layout.
    ///
    /// # Errors
    /// [`ChunkMapError::Description`] for a codec that no foreign file has, and for files with
    /// different variables.
    pub fn encode(&self) -> Result<Vec<u8>, ChunkMapError> {
        let refuse = |reason: String| ChunkMapError::Description(reason);
        let description =
            Description { dimension: self.dimension.clone(), forms: self.forms.clone() };
        let description =
            serde_json::to_vec(&description).map_err(|error| refuse(error.to_string()))?;
        let count = self.files.first().map_or(0, |file| file.variables.len());
        let mut bytes = Vec::with_capacity(
            64 + description.len() + self.files.len() * (FILE_BYTES + count * VARIABLE_BYTES),
        );
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        let variables = u32::try_from(count).map_err(|_| refuse("too many variables".into()))?;
        bytes.extend_from_slice(&variables.to_le_bytes());
        bytes.extend_from_slice(&(self.files.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&(description.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&description);
        for file in &self.files {
            if file.variables.len() != count {
                return Err(refuse("files of different variables".into()));
            }
            let SourceVersion { size, modified_ns, changed_ns, identity } = &file.source;
            bytes.extend_from_slice(&size.to_le_bytes());
            bytes.extend_from_slice(&modified_ns.to_le_bytes());
            bytes.extend_from_slice(&changed_ns.to_le_bytes());
            bytes.extend_from_slice(&identity.0.to_le_bytes());
            bytes.extend_from_slice(&identity.1.to_le_bytes());
            let differing = u32::try_from(file.differing.len());
            let differing = differing.map_err(|_| refuse("too many variables".into()))?;
            file.span.write(&mut bytes, differing);
            file.differing.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
            for variable in &file.variables {
                variable.write(&mut bytes)?;
            }
        }
        let checksum = checksum::crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        Ok(bytes)
    }

    /// Decodes an archive and checks it as the module header says.
    ///
    /// ```
    /// use bedform_format::Limits;
    /// use bedform_format::archive::ArchiveMap;
    ///
    /// let map = ArchiveMap { dimension: "time".into(), forms: vec![], files: vec![] };
    /// let bytes = map.encode()?;
    /// assert_eq!(ArchiveMap::decode(&bytes, &Limits::default())?, map);
    /// assert!(ArchiveMap::decode(&bytes[1..], &Limits::default()).is_err());
    /// # Ok::<(), bedform_format::chunk_map::ChunkMapError>(())
    /// ```
    ///
    /// # Errors
    /// [`ChunkMapError`]; memory use on the way is not much larger than the input.
    pub fn decode(bytes: &[u8], limits: &Limits) -> Result<Self, ChunkMapError> {
        let length = |what| ChunkMapError::Length { bytes: bytes.len() as u64, what };
        let short = || length("cut short");
        let (body, stored) = bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or_else(short)?;
        let mut reader = MapReader { rest: body };
        if reader.take(MAGIC.len()) != Some(&MAGIC) {
            return Err(ChunkMapError::NotAChunkMap);
        }
        let version = reader.u32().ok_or_else(short)?;
        if version > VERSION {
            return Err(ChunkMapError::NewerVersion { found: version, supported: VERSION });
        }
        if version < VERSION {
            // Version 1 did not compare the files, so the map must be made anew.
            return Err(ChunkMapError::Description(format!("of the older version {version}")));
        }
        if bytes.len() as u64 > limits.index_bytes_max {
            return Err(length("over the limit for an archive"));
        }
        let (expected, found) = (u32::from_le_bytes(*stored), checksum::crc32c(body));
        if expected != found {
            return Err(ChunkMapError::Checksum { expected, found });
        }
        let mut head = || Some((reader.u32()?, reader.u64()?, reader.u64()?));
        let (variables, files, described) = head().ok_or_else(short)?;
        let described = usize::try_from(described).ok().and_then(|count| reader.take(count));
        let described = described.ok_or_else(short)?;
        if described.len() as u64 > limits.metadata_bytes_max {
            return Err(length("its description is over the limit"));
        }
        let Description { dimension, forms } = serde_json::from_slice(described)
            .map_err(|error| ChunkMapError::Description(error.to_string()))?;
        let each = FILE_BYTES.saturating_add((variables as usize).saturating_mul(VARIABLE_BYTES));
        // Limits the number of files to as many as the remaining bytes can hold, before any
        // allocation.
        let files = usize::try_from(files).ok().filter(|count| *count <= reader.rest.len() / each);
        let files = files.ok_or_else(short)?;
        let checks = forms.iter().map(|form| CheckedForm::check(form, limits));
        let checks = checks.collect::<Result<Vec<_>, _>>()?;
        let mut found = Vec::with_capacity(files);
        for _ in 0..files {
            let file = ArchivedFile::read(&mut reader, variables, &checks)?;
            found.push(file.ok_or_else(short)?);
        }
        match reader.rest.is_empty() {
            true => Ok(Self { dimension, forms, files: found }),
            false => Err(length("bytes behind the last file")),
        }
    }
}

impl ArchivedFile {
    fn read(
        reader: &mut MapReader<'_>,
        variables: u32,
        forms: &[CheckedForm<'_>],
    ) -> Result<Option<Self>, ChunkMapError> {
        let mut source = || {
            Some(SourceVersion {
                size: reader.u64()?,
                modified_ns: reader.u64()?.cast_signed(),
                changed_ns: reader.u64()?.cast_signed(),
                identity: (reader.u64()?, reader.u64()?),
            })
        };
        let Some(source) = source() else { return Ok(None) };
        let Some((span, count)) = CoordinateSpan::read(reader)? else { return Ok(None) };
        let mut differing = Vec::new();
        for _ in 0..count {
            let Some(number) = reader.u32() else { return Ok(None) };
            differing.push(number);
        }
        let mut found = Vec::with_capacity(variables as usize);
        for _ in 0..variables {
            let Some(variable) = ArchivedVariable::read(reader)? else { return Ok(None) };
            let form = usize::try_from(variable.form).ok().and_then(|form| forms.get(form));
            let invalid = |reason| ChunkMapError::Invalid { path: String::new(), reason };
            let form = form.ok_or_else(|| invalid("a form that there is not".into()))?;
            form.check_place(&variable, source.size).map_err(invalid)?;
            found.push(variable);
        }
        Ok(Some(Self { source, variables: found, span, differing }))
    }
}

impl ArchivedVariable {
    fn write(&self, bytes: &mut Vec<u8>) -> Result<(), ChunkMapError> {
        let has = |is_there: bool, flag: u32| if is_there { flag } else { 0 };
        let follows = has(self.chunks.is_some(), HAS_TABLE) | has(self.data.is_some(), HAS_BYTES);
        bytes.extend_from_slice(&self.form.to_le_bytes());
        bytes.extend_from_slice(&follows.to_le_bytes());
        bytes.extend_from_slice(&self.at.to_le_bytes());
        if let Some(table) = &self.chunks {
            table.write(bytes)?;
        }
        if let Some(data) = &self.data {
            bytes.extend_from_slice(&(data.len() as u64).to_le_bytes());
            bytes.extend_from_slice(data);
        }
        Ok(())
    }

    fn read(reader: &mut MapReader<'_>) -> Result<Option<Self>, ChunkMapError> {
        let mut head = || Some((reader.u32()?, reader.u32()?, reader.u64()?));
        let Some((form, follows, at)) = head() else { return Ok(None) };
        if follows & !(HAS_TABLE | HAS_BYTES) != 0 {
            return Err(ChunkMapError::Description("something unknown in a file".into()));
        }
        let mut variable = Self { form, at, chunks: None, data: None };
        if follows & HAS_TABLE != 0 {
            let Some(table) = reader.table() else { return Ok(None) };
            variable.chunks = Some(Arc::new(table));
        }
        if follows & HAS_BYTES != 0 {
            let mut data = || {
                let count = usize::try_from(reader.u64()?).ok()?;
                reader.take(count)
            };
            let Some(data) = data() else { return Ok(None) };
            variable.data = Some(data.into());
        }
        Ok(Some(variable))
    }
}

/// A checked form, with the bounds for the extents of each file.
struct CheckedForm<'a> {
    array: &'a ForeignArray,
    /// Length of all elements in bytes.
    total: u64,
    bounds: Option<ChunkBounds>,
}

impl<'a> CheckedForm<'a> {
    fn check(array: &'a ForeignArray, limits: &Limits) -> Result<Self, ChunkMapError> {
        let invalid = |reason| ChunkMapError::Invalid { path: array.path.clone(), reason };
        let parent = array.path.rsplit_once('/').map_or("", |(parent, _)| parent);
        let is_compact = matches!(array.storage, ForeignStorage::Compact { .. });
        // The form does not hold the bytes of a compact variable.
        let storage = if is_compact { ForeignStorage::Empty } else { array.storage.clone() };
        let plain = ForeignArray { storage, ..array.clone() };
        let groups = HashSet::from(["", parent]);
        check_array(&plain, i64::MAX as u64, &groups, limits).map_err(invalid)?;
        let item = array.data_type.and_then(DataType::item_size).unwrap_or(1) as u64;
        let total = array.shape.iter().fold(item, |bytes, axis| bytes.saturating_mul(*axis));
        let bounds = ChunkBounds::of(array, limits).map_err(invalid)?;
        Ok(Self { array, total, bounds })
    }

    fn check_place(&self, place: &ArchivedVariable, file_bytes: u64) -> Result<(), String> {
        let is_chunked = self.bounds.is_some();
        let is_compact = matches!(self.array.storage, ForeignStorage::Compact { .. });
        if place.chunks.is_some() && !is_chunked || place.data.is_some() != is_compact {
            return Err("something else than its form says".into());
        }
        match &self.array.storage {
            ForeignStorage::Contiguous { length, .. } => inside(place.at, *length, file_bytes),
            ForeignStorage::Records { stride, length, .. } => {
                let Some(last) = self.array.shape[0].checked_sub(1).filter(|_| *length > 0) else {
                    return Ok(());
                };
                let span = last.checked_mul(*stride).and_then(|span| span.checked_add(*length));
                inside(place.at, span.ok_or("records that end beyond 2^64")?, file_bytes)
            }
            ForeignStorage::Compact { .. } => {
                let found = place.data.as_ref().map_or(0, |data| data.len() as u64);
                if found == self.total { Ok(()) } else { Err(format!("{found} bytes stored")) }
            }
            ForeignStorage::Chunked { .. } => match (&self.bounds, &place.chunks) {
                (Some(bounds), Some(table)) => check_table(table, bounds, file_bytes),
                _ => inside(place.at, 0, file_bytes),
            },
            ForeignStorage::Empty | ForeignStorage::Native { .. } => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk_map::ForeignEncoding;
    use crate::{BytesCodec, Endian};

    fn form(storage: ForeignStorage) -> ForeignArray {
        ForeignArray {
            path: "g/t".to_owned(),
            shape: vec![4, 3],
            unlimited: vec![true, false],
            data_type: Some(DataType::Int16),
            endian: Endian::Big,
            fill_value: None,
            dimension_names: Some(vec!["time".to_owned(), "x".to_owned()]),
            attributes: Vec::new(),
            encoding: ForeignEncoding::default(),
            storage,
        }
    }

    /// Returns an archive of one file with a variable of each storage kind.
    fn archive() -> ArchiveMap {
        let table = ChunkTable {
            indexes: vec![0, 1],
            offsets: vec![40, 60],
            lengths: vec![12, 12],
            filter_masks: vec![0, 0],
        };
        let codecs: Vec<BytesCodec> = Vec::new();
        let all = [
            ForeignStorage::Contiguous { offset: 10, length: 24 },
            ForeignStorage::Records { offset: 20, stride: 10, length: 6 },
            ForeignStorage::Compact { data: vec![7; 24] },
            ForeignStorage::Chunked { chunk_shape: vec![2, 3], codecs, chunks: table },
            ForeignStorage::Empty,
        ];
        let (forms, mut variables): (Vec<_>, Vec<_>) =
            all.map(|storage| form(storage).into_form()).into_iter().unzip();
        (0..).zip(&mut variables).for_each(|(number, variable)| variable.form = number);
        let source = SourceVersion { size: 100, ..SourceVersion::default() };
        let span = CoordinateSpan { kind: SpanKind::Increasing, first: -1.5, last: 7.0 };
        let files = vec![ArchivedFile { source, variables, span, differing: vec![3, 9] }];
        ArchiveMap { dimension: "time".to_owned(), forms, files }
    }

    #[test]
    fn an_archive_comes_back_and_no_cut_or_changed_one_is_believed() {
        let (map, limits) = (archive(), Limits::default());
        let bytes = map.encode().unwrap();
        assert_eq!(ArchiveMap::decode(&bytes, &limits).unwrap(), map);
        for end in 0..bytes.len() {
            assert!(ArchiveMap::decode(&bytes[..end], &limits).is_err(), "{end}");
        }
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 4;
            assert!(ArchiveMap::decode(&bytes, &limits).is_err(), "{at}");
        }
    }

    #[test]
    fn places_outside_of_their_file_are_refused() {
        let refused = |change: &dyn Fn(&mut ArchiveMap)| {
            let mut map = archive();
            change(&mut map);
            ArchiveMap::decode(&map.encode().unwrap(), &Limits::default()).is_err()
        };
        assert!(!refused(&|_| ()));
        assert!(refused(&|map| map.files[0].source.size = 60));
        assert!(refused(&|map| map.files[0].variables[0].at = 77));
        assert!(refused(&|map| map.files[0].variables[1].at = 65));
        assert!(refused(&|map| map.files[0].variables[2].data = Some([7; 23].into())));
        assert!(refused(&|map| map.files[0].variables[2].data = None));
        assert!(refused(&|map| map.files[0].variables[4].form = 9));
        assert!(refused(&|map| map.files[0].span.first = f64::NAN));
        assert!(refused(&|map| map.forms[0].shape[0] = 5));
        let at = |index, offset| ChunkTable {
            indexes: vec![index],
            offsets: vec![offset],
            lengths: vec![12],
            filter_masks: vec![0],
        };
        for (variable, table) in [(0, at(0, 40)), (3, at(9, 40)), (3, at(0, 90))] {
            let table = Arc::new(table);
            assert!(refused(&|map| {
                map.files[0].variables[variable].chunks = Some(table.clone());
            }));
        }
    }
}
