//! Zarr v2 documents: `.zarray`, with the attributes of `.zattrs` beside it.

use serde_json::{Map, Value};

use super::reader::{Fields, invalid, unsupported};
use super::v3::{blosc, check_sizes, same_rank};
use super::{ArrayMetadata, ChunkKeys, Encoding, FillValue, MetadataError};
use crate::codec::{BytesCodec, CodecChain, Serializer};
use crate::{DataType, Endian, Limits};

type Result<T> = std::result::Result<T, MetadataError>;

/// The attribute in which xarray keeps dimension names in Zarr v2.
const DIMENSIONS: &str = "_ARRAY_DIMENSIONS";

/// The paths that consolidated metadata, `.zmetadata`, name, the root's being empty, and whether each is of an
/// array. What their documents say is not looked at.
///
/// # Errors
/// [`MetadataError`] names the field at fault.
pub fn parse_consolidated_v2(document: &Value) -> Result<Vec<(&str, bool)>> {
    let fields = Fields::new("", document)?;
    fields.integer("zarr_consolidated_format", 1..=1, Some(1))?;
    let Value::Object(documents) = fields.need("metadata")? else {
        return Err(invalid("metadata", "expected an object"));
    };
    let named = documents.keys().filter_map(|key| {
        let (path, name) = key.rsplit_once('/').unwrap_or(("", key));
        match name {
            ".zarray" => Some((path, true)),
            ".zgroup" => Some((path, false)),
            _ => None,
        }
    });
    Ok(named.collect())
}

/// Reads a `.zarray` document and the attributes beside it.
///
/// # Errors
/// [`MetadataError`] names the field at fault.
pub fn parse_array_v2(
    document: &Value,
    mut attributes: Map<String, Value>,
    limits: &Limits,
) -> Result<ArrayMetadata> {
    let fields = Fields::new("", document)?;
    fields.integer("zarr_format", 2..=2, None)?;
    let shape = fields.lengths("shape", limits.rank_max, 0)?;
    let chunk_shape = fields.lengths("chunks", limits.rank_max, 1)?;
    same_rank("chunks", chunk_shape.len(), shape.len())?;
    let (data_type, endian) = match fields.need("dtype")? {
        Value::String(name) => DataType::parse_numpy(name)
            .ok_or_else(|| unsupported("dtype", format!("the data type {name:?}")))?,
        _ => return Err(unsupported("dtype", "a structured data type")),
    };
    let bytes = bytes_codecs(&fields, data_type, limits)?;
    let (serializer, bytes) = if data_type == DataType::String {
        match bytes.split_first() {
            Some((None, rest)) => (Serializer::VlenUtf8, rest.to_vec()),
            _ => return Err(unsupported("filters", "object data without 'vlen-utf8'")),
        }
    } else {
        (Serializer::Bytes(endian.unwrap_or(Endian::NATIVE)), bytes)
    };
    let bytes: Option<Vec<BytesCodec>> = bytes.into_iter().collect();
    let Some(bytes) = bytes else {
        return Err(invalid("filters", "'vlen-utf8' is for text only"));
    };
    let transpose = match fields.get("order").map(Value::as_str) {
        None | Some(Some("C")) => None,
        Some(Some("F")) => Some((0..shape.len()).rev().collect()).filter(|_| shape.len() > 1),
        Some(other) => {
            let found = other.unwrap_or("something else");
            return Err(invalid("order", format!("expected 'C' or 'F', found {found:?}")));
        }
    };
    let separator = match fields.get("dimension_separator").map(Value::as_str) {
        None | Some(Some(".")) => '.',
        Some(Some("/")) => '/',
        Some(_) => return Err(invalid("dimension_separator", "expected '.' or '/'")),
    };
    let metadata = ArrayMetadata {
        fill_value: FillValue::parse(fields.get("fill_value").unwrap_or(&Value::Null), data_type)?,
        dimension_names: dimension_names(&mut attributes, shape.len()),
        attributes,
        identity: None,
        order: None,
        keys: ChunkKeys { prefixed: false, separator },
        encoding: Encoding::Chunk(CodecChain { transpose, serializer, bytes }),
        zarr_format: 2,
        shape,
        data_type,
        chunk_shape,
    };
    check_sizes(&metadata, limits)?;
    Ok(metadata)
}

/// Filters, then the compressor; `None` in the list stands for `vlen-utf8`.
fn bytes_codecs(
    fields: &Fields<'_, '_>,
    data_type: DataType,
    limits: &Limits,
) -> Result<Vec<Option<BytesCodec>>> {
    let filters: &[Value] = match fields.get("filters") {
        None | Some(Value::Null) => &[],
        Some(_) => fields.list("filters")?,
    };
    if filters.len() > limits.codecs_max {
        return Err(invalid("filters", format!("over the limit of {}", limits.codecs_max)));
    }
    let compressor = fields.get("compressor").filter(|value| !value.is_null());
    let mut codecs = Vec::with_capacity(filters.len() + 1);
    for (index, value) in filters.iter().enumerate() {
        codecs.push(numcodec(&format!("filters[{index}]"), value, data_type)?);
    }
    if let Some(value) = compressor {
        codecs.push(numcodec("compressor", value, data_type)?);
    }
    Ok(codecs)
}

fn numcodec(path: &str, value: &Value, data_type: DataType) -> Result<Option<BytesCodec>> {
    let fields = Fields::new(path, value)?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Ok(Some(match fields.text("id")? {
        "vlen-utf8" => return Ok(None),
        "zstd" => BytesCodec::Zstd {
            level: fields.integer("level", -131_072..=22, Some(0))? as i32,
            checksum: fields.boolean("checksum", false)?,
        },
        "gzip" => {
            BytesCodec::Gzip { level: fields.integer("level", -1..=9, Some(5))?.max(0) as u32 }
        }
        "zlib" => {
            BytesCodec::Zlib { level: fields.integer("level", -1..=9, Some(1))?.max(0) as u32 }
        }
        "blosc" => BytesCodec::Blosc(blosc(&fields, data_type)?),
        "crc32c" => BytesCodec::Crc32c,
        "shuffle" => BytesCodec::Shuffle {
            element_size: fields.integer("elementsize", 1..=i64::from(u16::MAX), Some(4))? as u32,
        },
        other => return Err(unsupported(path, format!("the codec {other:?}"))),
    }))
}

/// Takes the dimension names out of the attributes, as xarray does.
fn dimension_names(
    attributes: &mut Map<String, Value>,
    rank: usize,
) -> Option<Vec<Option<String>>> {
    let names: Vec<Option<String>> = attributes
        .get(DIMENSIONS)?
        .as_array()?
        .iter()
        .map(|name| name.as_str().map(|text| Some(text.to_owned())))
        .collect::<Option<_>>()?;
    if names.len() != rank {
        return None;
    }
    attributes.remove(DIMENSIONS);
    Some(names)
}
