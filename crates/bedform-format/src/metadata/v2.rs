//! Zarr v2 documents: `.zarray`, with the attributes of a separate `.zattrs`.

use serde_json::{Map, Value};

use super::v3::{check_sizes, chunk_lengths};
use super::{ArrayMetadata, ChunkKeys, Encoding, FillValue, MetadataError, Structure};
use crate::codec::definitions::{self, BYTES_CODECS, Context, SERIALIZERS};
use crate::codec::filters::FILTERS;
use crate::codec::{BytesCodec, CodecChain, Serializer};
use crate::fields::{Fields, Named, invalid, unsupported};
use crate::json::ObjectText;
use crate::{DataType, Endian, Limits};

type Result<T> = std::result::Result<T, MetadataError>;

/// The attribute in which xarray keeps dimension names in Zarr v2.
pub(super) const DIMENSIONS: &str = "_ARRAY_DIMENSIONS";

/// Returns the paths in consolidated metadata (`.zmetadata`), each with true for an array; the
/// root's path is empty. Does not parse the documents.
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

/// Parses a `.zarray` document with the array's attributes.
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
    let chunk_shape =
        chunk_lengths("chunks", fields.lengths("chunks", limits.rank_max, 0)?, &shape)?;
    let (structure, (data_type, endian)) = match fields.need("dtype")? {
        Value::String(name) => {
            let named = DataType::parse_numpy(name);
            (None, named.ok_or_else(|| unsupported("dtype", format!("the data type {name:?}")))?)
        }
        Value::Array(list) => {
            let structure = Structure::parse_v2(list)?;
            let data_type = structure.data_type("dtype")?;
            (Some(structure), (data_type, None))
        }
        _ => return Err(invalid("dtype", "expected a string or a list of fields")),
    };
    let (serializer, bytes) = codecs(&fields, data_type, endian, limits)?;
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
        fill_value: FillValue::parse_v2(
            fields.get("fill_value").unwrap_or(&Value::Null),
            data_type,
        )?,
        dimension_names: dimension_names(&mut attributes, shape.len()),
        attributes: ObjectText::from(&attributes),
        identity: None,
        choice: None,
        order: None,
        keys: ChunkKeys { prefixed: false, separator },
        encoding: Encoding::Chunk(CodecChain { transpose, serializer, bytes }),
        zarr_format: 2,
        shape,
        data_type,
        structure,
        chunk_shape,
    };
    check_sizes(&metadata, limits)?;
    Ok(metadata)
}

/// A numcodecs codec: a serializer or a codec from bytes to bytes.
enum Numcodec {
    Serializer(Serializer),
    Bytes(BytesCodec),
}

/// Parses the filters, then the compressor. The first may take elements, all others take bytes.
fn codecs(
    fields: &Fields<'_, '_>,
    data_type: DataType,
    endian: Option<Endian>,
    limits: &Limits,
) -> Result<(Serializer, Vec<BytesCodec>)> {
    let mut codecs = numcodecs(fields, data_type, endian, limits)?.into_iter().peekable();
    let first = match codecs.next_if(|codec| matches!(codec, Numcodec::Serializer(_))) {
        Some(Numcodec::Serializer(serializer)) => Some(serializer),
        _ => None,
    };
    let is_text = data_type == DataType::String;
    let serializer = match first {
        Some(Serializer::VlenUtf8) if is_text => Serializer::VlenUtf8,
        _ if is_text => return Err(unsupported("filters", "object data without 'vlen-utf8'")),
        Some(Serializer::VlenUtf8) => return Err(text_only()),
        Some(serializer) => serializer,
        None => Serializer::Bytes(endian.unwrap_or(Endian::NATIVE)),
    };
    let bytes = codecs.map(|codec| match codec {
        Numcodec::Bytes(codec) => Ok(codec),
        Numcodec::Serializer(Serializer::VlenUtf8) => Err(text_only()),
        Numcodec::Serializer(_) => {
            Err(invalid("filters", "a codec of numbers cannot follow bytes"))
        }
    });
    Ok((serializer, bytes.collect::<Result<_>>()?))
}

fn text_only() -> MetadataError {
    invalid("filters", "'vlen-utf8' is for text only")
}

fn numcodecs(
    fields: &Fields<'_, '_>,
    data_type: DataType,
    endian: Option<Endian>,
    limits: &Limits,
) -> Result<Vec<Numcodec>> {
    let filters: &[Value] = match fields.get("filters") {
        None | Some(Value::Null) => &[],
        Some(_) => fields.list("filters")?,
    };
    if filters.len() > limits.codecs_max {
        return Err(invalid("filters", format!("over the limit of {}", limits.codecs_max)));
    }
    let numcodec = |at: &str, value| {
        let named = Named::parse_v2(at, value)?;
        let context = Context { at, data_type, endian, zarr_format: 2 };
        if let Some(serializer) = definitions::parse(SERIALIZERS, &named, &context)? {
            return Ok(Numcodec::Serializer(serializer));
        }
        let filter = definitions::parse(FILTERS, &named, &context)?;
        filter
            .map_or_else(
                || definitions::parse(BYTES_CODECS, &named, &context),
                |one| Ok(Some(one)),
            )?
            .map(Numcodec::Bytes)
            .ok_or_else(|| unsupported(at, format!("the codec {:?}", named.name)))
    };
    let compressor = fields.get("compressor").filter(|value| !value.is_null());
    let mut codecs = Vec::with_capacity(filters.len() + 1);
    for (index, value) in filters.iter().enumerate() {
        codecs.push(numcodec(&format!("filters[{index}]"), value)?);
    }
    if let Some(value) = compressor {
        codecs.push(numcodec("compressor", value)?);
    }
    Ok(codecs)
}

/// Removes the dimension names from the attributes, as xarray does.
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
