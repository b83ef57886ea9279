//! Writing of Zarr v2 documents, for sets of references.

use serde_json::{Map, Value, json};

use super::v2::DIMENSIONS;
use super::{ArrayMetadata, Encoding};
use crate::Endian;
use crate::codec::{Serializer, definitions};

/// Returns the `.zarray` document of an array without shards. Without `has_fill` its fill value is
/// null: readers then mask nothing, and show zeros where no chunk is stored.
///
/// All codecs are filters, as kerchunk writes them; no compressor follows.
pub fn write_array_v2(metadata: &ArrayMetadata, has_fill: bool) -> Value {
    let fill = metadata.fill_value.to_json(metadata.data_type);
    json!({
        "zarr_format": 2,
        "shape": metadata.shape,
        "chunks": metadata.chunk_shape,
        "dtype": numpy_name(metadata),
        "order": "C",
        "fill_value": if has_fill { usual_nan(fill) } else { Value::Null },
        "filters": filters(metadata),
        "compressor": null,
    })
}

/// Returns the `.zattrs` document of an array: its attributes, and its dimension names as xarray
/// writes them.
pub fn write_attributes_v2(attributes: &Map<String, Value>, names: &[Option<String>]) -> Value {
    let mut attributes = attributes.clone();
    attributes.insert(DIMENSIONS.to_owned(), json!(names));
    Value::Object(attributes)
}

/// Returns the type of the elements with its byte order: `<f4`.
fn numpy_name(metadata: &ArrayMetadata) -> String {
    let name = metadata.data_type.numpy();
    let mark = match &metadata.encoding {
        _ if metadata.data_type.swap_size() == 1 => '|',
        Encoding::Chunk(chain) if chain.serializer == Serializer::Bytes(Endian::Big) => '>',
        _ => '<',
    };
    format!("{mark}{name}")
}

fn filters(metadata: &ArrayMetadata) -> Value {
    match &metadata.encoding {
        Encoding::Chunk(chain) if !chain.bytes.is_empty() => {
            let written = |codec| definitions::write_numcodec(codec, metadata.data_type);
            chain.bytes.iter().map(written).collect()
        }
        _ => Value::Null,
    }
}

/// Returns the fill value with NaN instead of the bits of an unusual NaN, which Zarr v2 lacks.
fn usual_nan(fill: Value) -> Value {
    match fill {
        Value::String(text) if text.starts_with("0x") => json!("NaN"),
        Value::Array(parts) => parts.into_iter().map(usual_nan).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{BloscCompressor, BloscConfiguration, BloscShuffle, BytesCodec, CodecChain};
    use crate::json::ObjectText;
    use crate::metadata::{ChunkKeys, FillValue, parse_array_v2};
    use crate::{DataType, Limits};

    fn metadata(data_type: DataType, endian: Endian, bytes: Vec<BytesCodec>) -> ArrayMetadata {
        ArrayMetadata {
            shape: vec![7, 4],
            data_type,
            structure: None,
            chunk_shape: vec![2, 4],
            keys: ChunkKeys { prefixed: false, separator: '.' },
            fill_value: FillValue::zero(data_type),
            encoding: Encoding::Chunk(CodecChain {
                transpose: None,
                serializer: Serializer::Bytes(endian),
                bytes,
            }),
            dimension_names: Some(vec![Some("y".into()), Some("x".into())]),
            attributes: ObjectText::from(&Map::from_iter([("units".to_owned(), json!("K"))])),
            identity: None,
            order: None,
            choice: None,
            zarr_format: 2,
        }
    }

    #[test]
    fn the_parser_reads_what_is_written() {
        let blosc = BytesCodec::Blosc(BloscConfiguration {
            compressor: BloscCompressor::Zstd,
            level: 3,
            shuffle: BloscShuffle::Bit,
            type_size: 4,
            block_size: 0,
        });
        let shuffle = BytesCodec::Shuffle { element_size: 4 };
        for bytes in [
            vec![],
            vec![shuffle, BytesCodec::Zlib { level: 4 }, BytesCodec::Fletcher32],
            vec![BytesCodec::Zstd { level: 3, checksum: false }],
            vec![blosc],
        ] {
            for endian in [Endian::Little, Endian::Big] {
                let written = metadata(DataType::Float32, endian, bytes.clone());
                let names = written.dimension_names.clone().unwrap_or_default();
                let units = Map::from_iter([("units".to_owned(), json!("K"))]);
                let Value::Object(attributes) = write_attributes_v2(&units, &names) else {
                    unreachable!("attributes are an object")
                };
                let document = write_array_v2(&written, true);
                let read = parse_array_v2(&document, attributes, &Limits::default()).unwrap();
                assert_eq!(read, written, "{document}");
            }
        }
    }

    #[test]
    fn a_fill_value_is_null_or_one_that_every_reader_knows() {
        let mut written = metadata(DataType::Float32, Endian::Little, vec![]);
        written.fill_value = FillValue::parse(&json!("0x7fc00001"), DataType::Float32).unwrap();
        assert_eq!(write_array_v2(&written, true)["fill_value"], "NaN");
        assert_eq!(write_array_v2(&written, false)["fill_value"], Value::Null);
    }
}
