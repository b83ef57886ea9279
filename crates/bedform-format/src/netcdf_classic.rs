//! A parser for the header of NetCDF classic files (CDF-1, CDF-2, CDF-5), which makes a chunk map.
//!
//! A file is a header, then the fixed-size variables one after another, then the interleaved
//! records of all variables along the record dimension. Numbers are big-endian. No library returns
//! the offset of a CDF-5 variable, and the header is small and frozen, so the parser is our own.
//! Its grammar is appendix B of the NetCDF user's guide.
//!
//! Names are text, not paths. A name with a `/`, a backslash, a control character or bytes that are
//! not UTF-8, or one that is `.` or `..`, is shown with escapes such as `%2F` for those bytes. So
//! every variable has an [`ObjectPath`](crate::ObjectPath); equal paths are refused.
//!
//! A variable that starts or ends beyond the end of the file is an error: the file is cut short.

use crate::chunk_map::{
    AttributeValues, ChunkMap, ChunkMapError, ForeignArray, ForeignAttribute, ForeignDimension,
    ForeignEncoding, ForeignGroup, ForeignStorage, ParsedHeader, SourceVersion,
};
use crate::{DataType, Endian, Limits, json};

/// The reason why a header was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The file does not start with `CDF` and a known version.
    #[error("not a NetCDF classic file: it starts with {0:02x?}, not with CDF and 1, 2 or 5")]
    NotClassic(Vec<u8>),
    /// The file ends inside its header.
    #[error("the file ends inside its NetCDF header: it is cut short")]
    Truncated,
    /// The header exceeds a limit.
    #[error("a NetCDF header over the limit of {0} bytes")]
    TooLarge(u64),
    /// The header contains an impossible value.
    #[error("damaged NetCDF header at byte {at}: {reason}")]
    Invalid {
        /// Offset in the file.
        at: u64,
        /// The broken rule.
        reason: String,
    },
    /// The header does not fit the file.
    #[error(transparent)]
    Map(#[from] ChunkMapError),
}

/// Bytes of memory for a header, in addition to those per byte of header.
const MEMORY_FREE: u64 = 32 << 20;
/// Bytes of memory for a variable, without the names of its dimensions.
const MEMORY_VARIABLE: u64 = 1024;

const TAG_DIMENSIONS: u32 = 0x0a;
const TAG_VARIABLES: u32 = 0x0b;
const TAG_ATTRIBUTES: u32 = 0x0c;

/// Parses the header from the first bytes of a file.
///
/// Pass the first 64 KiB, or the whole file if it is shorter. If the result is
/// [`ParsedHeader::Incomplete`], try again with as many bytes as it names.
///
/// ```
/// use bedform_format::{chunk_map::{ParsedHeader, SourceVersion}, netcdf_classic::parse, Limits};
/// let empty = b"CDF\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
/// let source = SourceVersion { size: 32, ..SourceVersion::default() };
/// let ParsedHeader::Complete(map) = parse(empty, &source, &Limits::default())? else { panic!() };
/// assert_eq!(map.format, "netcdf-classic-1");
/// assert!(matches!(
///     parse(&empty[..20], &source, &Limits::default())?,
///     ParsedHeader::Incomplete { bytes_needed: 32 }
/// ));
/// # Ok::<(), bedform_format::netcdf_classic::HeaderError>(())
/// ```
///
/// # Errors
/// [`HeaderError`] names the byte. Memory use is at most 16 times the input plus 64 MiB.
pub fn parse(
    bytes: &[u8],
    source: &SourceVersion,
    limits: &Limits,
) -> Result<ParsedHeader, HeaderError> {
    let given = bytes.len() as u64;
    let mut reader = HeaderReader { bytes, at: 0, wide: false };
    match read_header(&mut reader, source, limits) {
        Ok(map) => {
            map.check(limits)?;
            Ok(ParsedHeader::Complete(Box::new(map)))
        }
        Err(HeaderStop::Error(error)) => Err(error),
        Err(HeaderStop::More) if given >= source.size => Err(HeaderError::Truncated),
        Err(HeaderStop::More) if given >= limits.metadata_bytes_max => {
            Err(HeaderError::TooLarge(limits.metadata_bytes_max))
        }
        Err(HeaderStop::More) => {
            let wanted = given.saturating_mul(4).clamp(64 << 10, limits.metadata_bytes_max);
            Ok(ParsedHeader::Incomplete { bytes_needed: wanted.min(source.size) })
        }
    }
}

/// Returns the name of the format of a file that starts with `start`.
pub fn name_of(start: &[u8]) -> Option<&'static str> {
    match start {
        [b'C', b'D', b'F', 1, ..] => Some("netcdf-classic-1"),
        [b'C', b'D', b'F', 2, ..] => Some("netcdf-classic-2"),
        [b'C', b'D', b'F', 5, ..] => Some("netcdf-classic-5"),
        _ => None,
    }
}

/// As [`parse`], with the error as text.
///
/// # Errors
/// As [`parse`].
pub fn parse_header(
    bytes: &[u8],
    source: &SourceVersion,
    limits: &Limits,
) -> Result<ParsedHeader, String> {
    parse(bytes, source, limits).map_err(|error| error.to_string())
}

/// The reason why reading stopped before the end of the header.
enum HeaderStop {
    More,
    Error(HeaderError),
}

type HeaderResult<T> = Result<T, HeaderStop>;

/// A variable in the header.
struct HeaderVariable {
    name: String,
    dimensions: Vec<usize>,
    attributes: Vec<(String, ForeignAttribute)>,
    data_type: DataType,
    begin: u64,
}

fn read_header(
    reader: &mut HeaderReader,
    source: &SourceVersion,
    limits: &Limits,
) -> HeaderResult<ChunkMap> {
    let magic = reader.bytes.get(..4.min(reader.bytes.len())).unwrap_or_default();
    let version = match magic {
        [b'C', b'D', b'F', version @ (1 | 2 | 5)] => *version,
        short if b"CDF".starts_with(short) && source.size > short.len() as u64 => {
            return Err(HeaderStop::More);
        }
        other => return Err(HeaderStop::Error(HeaderError::NotClassic(other.to_vec()))),
    };
    reader.at = 4;
    reader.wide = version == 5;
    let record_count = reader.record_count()?;
    let (mut dimensions, record) = read_dimensions(reader)?;
    let attributes = reader.attributes(version)?;
    let variables = read_variables(reader, version, &dimensions, limits)?;
    let layout = RecordLayout::new(&variables, &dimensions, record).map_err(|r| reader.wrong(r))?;
    if let Some(record) = record {
        dimensions[record].size = match record_count {
            Some(count) => count,
            // The writer ended before it stored the number of records; the size of the file gives
            // it.
            None => layout.count_in(source.size),
        };
    }
    let arrays = variables
        .into_iter()
        .map(|variable| array_of(variable, &dimensions, record, &layout))
        .collect::<Result<_, _>>()
        .map_err(|reason| reader.wrong(reason))?;
    let root = ForeignGroup { path: String::new(), attributes, dimensions, refused: Vec::new() };
    Ok(ChunkMap {
        source: source.clone(),
        format: format!("netcdf-classic-{version}"),
        groups: vec![root],
        arrays,
    })
}

fn read_dimensions(
    reader: &mut HeaderReader,
) -> HeaderResult<(Vec<ForeignDimension>, Option<usize>)> {
    let count = reader.list(TAG_DIMENSIONS)?;
    let mut dimensions = Vec::new();
    let mut record = None;
    for index in 0..usize::try_from(count).unwrap_or(usize::MAX) {
        let name = reader.name()?;
        let size = reader.count()?;
        if size == 0 && record.replace(index).is_some() {
            return Err(reader.wrong("two record dimensions".into()));
        }
        dimensions.push(ForeignDimension { name, size, unlimited: size == 0, phony: false });
    }
    Ok((dimensions, record))
}

fn read_variables(
    reader: &mut HeaderReader,
    version: u8,
    dimensions: &[ForeignDimension],
    limits: &Limits,
) -> HeaderResult<Vec<HeaderVariable>> {
    let memory_max = MEMORY_FREE + 8 * reader.bytes.len() as u64;
    let mut memory = 0_u64;
    let count = reader.list(TAG_VARIABLES)?;
    let mut variables = Vec::new();
    for _ in 0..count {
        let name = reader.name()?;
        let rank = reader.count()?;
        if rank > limits.rank_max as u64 {
            let limit = limits.rank_max;
            return Err(reader.wrong(format!("{rank} dimensions, over the limit of {limit}")));
        }
        memory += MEMORY_VARIABLE;
        let mut axes = Vec::new();
        for _ in 0..rank {
            let axis = usize::try_from(reader.count()?).unwrap_or(usize::MAX);
            let Some(dimension) = dimensions.get(axis) else {
                return Err(reader.wrong("a variable names a dimension that there is not".into()));
            };
            if dimension.unlimited && !axes.is_empty() {
                return Err(reader.wrong("the record dimension is not the first".into()));
            }
            memory += dimension.name.len() as u64 + 64;
            axes.push(axis);
        }
        if memory > memory_max {
            return Err(HeaderStop::Error(HeaderError::TooLarge(memory_max)));
        }
        let attributes = reader.attributes(version)?;
        let data_type = reader.data_type(version)?;
        // Skips the stored size of the variable, which is wrong for large ones; it is computed
        // instead.
        reader.skip_count()?;
        let begin = reader.begin(version)?;
        variables.push(HeaderVariable { name, dimensions: axes, attributes, data_type, begin });
    }
    Ok(variables)
}

/// The layout of the interleaved records.
struct RecordLayout {
    /// Distance between records in bytes.
    stride: u64,
    /// Offset of the first record, in bytes.
    begin: u64,
}

impl RecordLayout {
    fn new(
        variables: &[HeaderVariable],
        dimensions: &[ForeignDimension],
        record: Option<usize>,
    ) -> Result<Self, String> {
        let mut layout = Self { stride: 0, begin: u64::MAX };
        let mut first_length = 0;
        let mut count = 0;
        for variable in variables {
            if record.is_none() || variable.dimensions.first() != record.as_ref() {
                continue;
            }
            let length = inner_bytes(variable, dimensions, 1)?;
            let padded = length.checked_next_multiple_of(4);
            layout.stride = padded
                .and_then(|padded| layout.stride.checked_add(padded))
                .ok_or("records of more than 2^64 bytes")?;
            layout.begin = layout.begin.min(variable.begin);
            count += 1;
            first_length = length;
        }
        // If only one variable has records, they are not padded.
        if count == 1 {
            layout.stride = first_length;
        }
        Ok(layout)
    }

    fn count_in(&self, file_bytes: u64) -> u64 {
        file_bytes.saturating_sub(self.begin).checked_div(self.stride).unwrap_or(0)
    }
}

/// Returns the length in bytes of one record of a variable (`skip` 1), or of the whole variable
/// (`skip` 0).
fn inner_bytes(
    variable: &HeaderVariable,
    dimensions: &[ForeignDimension],
    skip: usize,
) -> Result<u64, String> {
    let item_size = variable.data_type.item_size().unwrap_or(1) as u64;
    variable
        .dimensions
        .iter()
        .skip(skip)
        .try_fold(item_size, |bytes, &axis| bytes.checked_mul(dimensions[axis].size))
        .ok_or_else(|| format!("variable {:?} has more than 2^64 bytes", variable.name))
}

fn array_of(
    variable: HeaderVariable,
    dimensions: &[ForeignDimension],
    record: Option<usize>,
    layout: &RecordLayout,
) -> Result<ForeignArray, String> {
    let axes = || variable.dimensions.iter().map(|&axis| &dimensions[axis]);
    let is_record = record.is_some() && variable.dimensions.first() == record.as_ref();
    let length = inner_bytes(&variable, dimensions, usize::from(is_record))?;
    let storage = if is_record {
        ForeignStorage::Records { offset: variable.begin, stride: layout.stride, length }
    } else {
        ForeignStorage::Contiguous { offset: variable.begin, length }
    };
    let numpy = variable.data_type.numpy();
    let order = if variable.data_type.swap_size() == 1 { '|' } else { '>' };
    Ok(ForeignArray {
        shape: axes().map(|dimension| dimension.size).collect(),
        unlimited: axes().map(|dimension| dimension.unlimited).collect(),
        data_type: Some(variable.data_type),
        endian: Endian::Big,
        fill_value: fill_value(&variable),
        dimension_names: Some(axes().map(|dimension| dimension.name.clone()).collect()),
        encoding: ForeignEncoding {
            dtype: format!("{order}{numpy}"),
            classic: true,
            ..ForeignEncoding::default()
        },
        storage,
        path: variable.name,
        attributes: variable.attributes,
    })
}

/// Returns the attribute `_FillValue` as one stored element.
fn fill_value(variable: &HeaderVariable) -> Option<Vec<u8>> {
    let (_, attribute) = variable.attributes.iter().find(|(name, _)| name == "_FillValue")?;
    match attribute {
        ForeignAttribute::Text(text) if variable.data_type == DataType::FixedBytes(1) => {
            (text.len() == 1).then(|| text.as_bytes().to_vec())
        }
        ForeignAttribute::Values(values)
            if values.shape.is_none() && values.data_type == variable.data_type =>
        {
            let mut bytes = values.data.clone();
            bytes.reverse();
            Some(bytes)
        }
        _ => None,
    }
}

/// Returns a name as a valid path segment, escaped as the module header says.
pub fn shown(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    let needs_escape = |c: char| c.is_control() || c == '/' || c == '\\';
    if text == "." || text == ".." {
        return text.replace('.', "%2E");
    }
    if text.as_bytes() == name && !text.chars().any(needs_escape) {
        return text.into_owned();
    }
    let mut escaped = String::new();
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if needs_escape(c) {
                let mut buffer = [0; 4];
                c.encode_utf8(&mut buffer).bytes().for_each(|b| escaped += &format!("%{b:02X}"));
            } else {
                escaped.push(c);
            }
        }
        chunk.invalid().iter().for_each(|byte| escaped += &format!("%{byte:02X}"));
    }
    escaped
}

/// A reader of the header, with its position.
struct HeaderReader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// True if counts have 8 bytes (CDF-5), false for 4.
    wide: bool,
}

impl<'a> HeaderReader<'a> {
    fn wrong(&self, reason: String) -> HeaderStop {
        HeaderStop::Error(HeaderError::Invalid { at: self.at as u64, reason })
    }

    fn take(&mut self, count: u64) -> HeaderResult<&'a [u8]> {
        let end = usize::try_from(count).ok().and_then(|count| self.at.checked_add(count));
        let taken = end.and_then(|end| self.bytes.get(self.at..end)).ok_or(HeaderStop::More)?;
        self.at += taken.len();
        Ok(taken)
    }

    fn u32(&mut self) -> HeaderResult<u32> {
        let taken = self.take(4)?;
        Ok(taken.iter().fold(0, |value, byte| value << 8 | u32::from(*byte)))
    }

    fn u64(&mut self) -> HeaderResult<u64> {
        let taken = self.take(8)?;
        Ok(taken.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    /// Reads a count; negative ones are refused.
    fn count(&mut self) -> HeaderResult<u64> {
        let (value, negative) = if self.wide {
            let value = self.u64()?;
            (value, value > i64::MAX as u64)
        } else {
            let value = self.u32()?;
            (u64::from(value), value > i32::MAX as u32)
        };
        if negative { Err(self.wrong("a negative count".into())) } else { Ok(value) }
    }

    fn skip_count(&mut self) -> HeaderResult<()> {
        self.take(if self.wide { 8 } else { 4 }).map(|_| ())
    }

    /// Reads the number of records; `None` if the size of the file determines it.
    fn record_count(&mut self) -> HeaderResult<Option<u64>> {
        let bytes = self.bytes.get(self.at..self.at + if self.wide { 8 } else { 4 });
        if bytes.ok_or(HeaderStop::More)?.iter().all(|byte| *byte == 0xff) {
            self.skip_count()?;
            return Ok(None);
        }
        self.count().map(Some)
    }

    fn begin(&mut self, version: u8) -> HeaderResult<u64> {
        let value = if version == 1 { u64::from(self.u32()?) } else { self.u64()? };
        let limit = if version == 1 { i32::MAX as u64 } else { i64::MAX as u64 };
        if value > limit { Err(self.wrong("a negative offset".into())) } else { Ok(value) }
    }

    /// Reads the number of entries of a list that starts with `tag`; an absent list has two zeros.
    fn list(&mut self, tag: u32) -> HeaderResult<u64> {
        let found = self.u32()?;
        let count = self.count()?;
        if found == tag || (found == 0 && count == 0) {
            return Ok(count);
        }
        Err(self.wrong(format!("tag {found:#x} where a list {tag:#x} should begin")))
    }

    /// Reads `count` bytes, and skips the padding to a multiple of 4.
    fn padded(&mut self, count: u64) -> HeaderResult<&'a [u8]> {
        let taken = self.take(count)?;
        self.take(count.wrapping_neg() % 4)?;
        Ok(taken)
    }

    fn name(&mut self) -> HeaderResult<String> {
        let count = self.count()?;
        if count == 0 || count > 256 {
            return Err(self.wrong(format!("a name of {count} bytes, not 1 to 256")));
        }
        Ok(shown(self.padded(count)?))
    }

    fn data_type(&mut self, version: u8) -> HeaderResult<DataType> {
        let code = self.u32()?;
        Ok(match code {
            1 => DataType::Int8,
            2 => DataType::FixedBytes(1),
            3 => DataType::Int16,
            4 => DataType::Int32,
            5 => DataType::Float32,
            6 => DataType::Float64,
            7 if version == 5 => DataType::UInt8,
            8 if version == 5 => DataType::UInt16,
            9 if version == 5 => DataType::UInt32,
            10 if version == 5 => DataType::Int64,
            11 if version == 5 => DataType::UInt64,
            _ => return Err(self.wrong(format!("unknown data type {code}"))),
        })
    }

    fn attributes(&mut self, version: u8) -> HeaderResult<Vec<(String, ForeignAttribute)>> {
        let count = self.list(TAG_ATTRIBUTES)?;
        let mut attributes = Vec::new();
        for _ in 0..count {
            let name = self.name()?;
            let data_type = self.data_type(version)?;
            let length = self.count()?;
            let item_size = data_type.item_size().unwrap_or(1);
            let bytes = length
                .checked_mul(item_size as u64)
                .ok_or_else(|| self.wrong("an attribute of more than 2^64 bytes".into()))?;
            let data = self.padded(bytes)?;
            attributes.push((name, attribute_of(data_type, length, data)));
        }
        Ok(attributes)
    }
}

/// Decodes the value of an attribute; numbers become little-endian, which most libraries show.
fn attribute_of(data_type: DataType, length: u64, data: &[u8]) -> ForeignAttribute {
    if data_type == DataType::FixedBytes(1) {
        // C writers include the NUL that ends a text; readers drop it.
        return ForeignAttribute::Text(json::text_of_bytes(data).replace('\0', ""));
    }
    let mut data = data.to_vec();
    data.chunks_mut(data_type.swap_size().max(1)).for_each(<[u8]>::reverse);
    let shape = (length != 1).then(|| vec![length]);
    ForeignAttribute::Values(AttributeValues { data_type, endian: Endian::Little, shape, data })
}

#[cfg(test)]
#[path = "netcdf_classic/tests.rs"]
mod tests;
