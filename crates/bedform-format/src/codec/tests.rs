use serde_json::{Value, json};

use super::definitions::{BYTES_CODECS, ChunkMapCodec, SERIALIZERS, write};
use super::*;
use crate::metadata::{Encoding, parse_array_v2, parse_codecs, write_codecs};
use crate::{DataType, Limits};

const BYTES: [BytesCodec; 15] = [
    BytesCodec::Zstd { level: -7, checksum: true },
    BytesCodec::Zstd { level: 3, checksum: false },
    BytesCodec::Gzip { level: 5 },
    BytesCodec::Zlib { level: 9 },
    BytesCodec::Blosc(BloscConfiguration {
        compressor: BloscCompressor::Zstd,
        level: 4,
        shuffle: BloscShuffle::Bit,
        type_size: 8,
        block_size: 65_536,
    }),
    BytesCodec::Crc32c,
    BytesCodec::Shuffle { element_size: 8 },
    BytesCodec::Fletcher32,
    BytesCodec::Shuffle { element_size: 1 },
    BytesCodec::Checksum { kind: ChecksumKind::Crc32, is_first: true },
    BytesCodec::Checksum { kind: ChecksumKind::Crc32c, is_first: true },
    BytesCodec::Checksum { kind: ChecksumKind::Adler32, is_first: false },
    BytesCodec::Lz4,
    BytesCodec::Bz2,
    BytesCodec::Lzma { is_alone: true },
];

/// Filters of numcodecs in their Zarr v2 form, for 64-bit floats.
fn filters() -> Vec<Value> {
    vec![
        json!({"id": "delta", "dtype": "<f8", "astype": "<f4"}),
        json!({"id": "fixedscaleoffset", "dtype": "<f8", "astype": "|i1", "scale": 0.5, "offset": -1.0}),
        json!({"id": "quantize", "dtype": "<f8", "astype": "<f2", "digits": 3}),
        json!({"id": "astype", "decode_dtype": "<f8", "encode_dtype": "<u8"}),
        json!({"id": "bitround", "keepbits": 7}),
    ]
}

fn pcodec(delta: PcodecDelta) -> PcodecConfiguration {
    PcodecConfiguration { level: 3, mode: PcodecMode::Classic, delta, page_elements: 4096 }
}

fn parse(codecs: &Value, data_type: DataType) -> Result<CodecChain, String> {
    match parse_codecs("codecs", codecs, &[4], data_type, &Limits::default()) {
        Ok(Encoding::Chunk(chain)) => Ok(chain),
        Ok(Encoding::Shard(_)) => panic!("not sharded"),
        Err(error) => Err(error.to_string()),
    }
}

fn parse_v2(dtype: &str, filters: &Value, compressor: &Value) -> Result<CodecChain, String> {
    let document = json!({
        "zarr_format": 2, "shape": [4], "chunks": [4], "dtype": dtype, "order": "C",
        "fill_value": null, "filters": filters, "compressor": compressor,
    });
    let outcome = parse_array_v2(&document, serde_json::Map::new(), &Limits::default());
    match outcome.map(|metadata| metadata.encoding) {
        Ok(Encoding::Chunk(chain)) => Ok(chain),
        Ok(Encoding::Shard(_)) => panic!("not sharded"),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn every_codec_is_written_by_a_name_of_its_own_and_read_again() {
    for codec in BYTES {
        let written = write(BYTES_CODECS, &codec, DataType::Float64);
        let name = written["name"].as_str().unwrap();
        assert!(!is_serializer(name), "{codec:?}");
        let chain = parse(
            &json!([{"name": "bytes", "configuration": {"endian": "big"}}, written]),
            DataType::Float64,
        );
        assert_eq!(chain.unwrap().bytes, [codec]);
    }
    for (serializer, data_type) in [
        (Serializer::Bytes(Endian::Big), DataType::Float64),
        (Serializer::VlenUtf8, DataType::String),
        (Serializer::Pcodec(pcodec(PcodecDelta::Auto)), DataType::Float64),
    ] {
        let written = write(SERIALIZERS, &serializer, data_type);
        assert!(is_serializer(written["name"].as_str().unwrap()));
        let chain = parse(&json!([written, "crc32c"]), data_type).unwrap();
        assert_eq!(chain.serializer, serializer);
        assert_eq!(write_codecs(&Encoding::Chunk(chain), data_type)[0], written);
    }
}

#[test]
fn what_a_chunk_map_says_of_a_codec_is_what_it_was_told() {
    for codec in BYTES {
        let Some(form) = ChunkMapCodec::of(&codec) else { continue };
        assert_eq!(form.codec(), Ok(codec));
    }
    assert!(ChunkMapCodec::of(&BytesCodec::Crc32c).is_none());
    assert!(ChunkMapCodec::of(&BytesCodec::Zstd { level: 1, checksum: true }).is_none());
}

#[test]
fn filters_stand_before_bytes_in_v3_and_have_the_configuration_of_numcodecs() {
    for filter in filters() {
        let chain = parse_v2("<f8", &json!([filter]), &json!({"id": "lz4"})).unwrap();
        assert!(chain.bytes[0].is_filter() && !chain.is_raw());
        let written = write_codecs(&Encoding::Chunk(chain.clone()), DataType::Float64);
        let mut configuration = written[0]["configuration"].clone();
        configuration["id"] = filter["id"].clone();
        assert_eq!(configuration, filter);
        assert_eq!(written[0]["name"], format!("numcodecs.{}", filter["id"].as_str().unwrap()));
        assert_eq!(written[1]["name"], "bytes");
        assert_eq!(parse(&written, DataType::Float64), Ok(chain));
    }
    let delta = json!({"name": "numcodecs.delta", "configuration": {"dtype": "<i4"}});
    let big = json!({"name": "bytes", "configuration": {"endian": "big"}});
    let error = parse(&json!([delta, big]), DataType::Int32).unwrap_err();
    assert!(error.contains("big-endian bytes behind a filter"), "{error}");
}

#[test]
fn pcodec_has_the_configuration_of_numcodecs() {
    let defaults = PcodecConfiguration {
        level: 8,
        mode: PcodecMode::Auto,
        delta: PcodecDelta::Auto,
        page_elements: 1 << 18,
    };
    let whole = json!({
        "level": 8, "mode_spec": "auto", "delta_spec": "auto", "paging_spec": "equal_pages_up_to",
        "delta_encoding_order": null, "equal_pages_up_to": 262_144,
    });
    assert_eq!(
        write(SERIALIZERS, &Serializer::Pcodec(defaults), DataType::Int32),
        json!({"name": "numcodecs.pcodec", "configuration": whole})
    );
    for named in [
        json!("pcodec"),
        json!("numcodecs.pcodec"),
        json!({"name": "numcodecs.pcodec", "configuration": {}}),
        json!({"name": "numcodecs.pcodec", "configuration": whole}),
    ] {
        let chain = parse(&json!([named]), DataType::Int32).unwrap();
        assert_eq!(chain.serializer, Serializer::Pcodec(defaults), "{named}");
        assert!(!chain.is_raw() && !chain.is_checked());
    }
    for delta in [
        PcodecDelta::Auto,
        PcodecDelta::None,
        PcodecDelta::Consecutive(0),
        PcodecDelta::Consecutive(7),
        PcodecDelta::Lookback,
    ] {
        let serializer = Serializer::Pcodec(pcodec(delta));
        let written = write(SERIALIZERS, &serializer, DataType::Float16);
        assert_eq!(parse(&json!([written]), DataType::Float16).unwrap().serializer, serializer);
        let mut of_v2 = written["configuration"].clone();
        of_v2["id"] = json!("pcodec");
        let as_compressor = parse_v2("<f2", &json!(null), &of_v2).unwrap();
        assert_eq!((as_compressor.serializer, as_compressor.bytes), (serializer, vec![]));
        let as_filter = parse_v2("<f2", &json!([of_v2]), &json!({"id": "crc32c"})).unwrap();
        assert_eq!(as_filter.serializer, serializer);
        assert!(as_filter.is_checked());
    }
}

#[test]
fn pcodec_of_what_it_does_not_take_is_refused_by_the_field_at_fault() {
    let of = |configuration: Value| {
        let codec = json!({"name": "numcodecs.pcodec", "configuration": configuration});
        parse(&json!([codec]), DataType::Int32).unwrap_err()
    };
    for (configuration, field) in [
        (json!({"level": 13}), "level"),
        (json!({"level": "8"}), "level"),
        (json!({"mode_spec": "try_dict"}), "mode_spec"),
        (json!({"mode_spec": 1}), "mode_spec"),
        (json!({"paging_spec": "exact"}), "paging_spec"),
        (json!({"delta_spec": "try_conv1"}), "delta_spec"),
        (json!({"delta_spec": "try_consecutive"}), "delta_encoding_order"),
        (json!({"delta_spec": "none", "delta_encoding_order": 1}), "delta_encoding_order"),
        (json!({"delta_encoding_order": 8}), "delta_encoding_order"),
        (json!({"equal_pages_up_to": 63}), "equal_pages_up_to"),
        (json!({"equal_pages_up_to": 1 << 25}), "equal_pages_up_to"),
    ] {
        let error = of(configuration);
        assert!(error.starts_with(&format!("codecs[0].configuration.{field}:")), "{error}");
    }
    for data_type in [DataType::Bool, DataType::UInt8, DataType::Complex64, DataType::String] {
        let error = parse(&json!(["pcodec"]), data_type).unwrap_err();
        assert!(error.starts_with("codecs[0]:") && error.contains("16, 32 and 64 bits"), "{error}");
    }
    let codec = json!({"id": "pcodec"});
    let shuffle = json!({"id": "shuffle"});
    for (dtype, filters, compressor, problem) in [
        (">i4", json!([]), &codec, "big-endian"),
        ("|i1", json!([]), &codec, "not int8"),
        ("<i4", json!([shuffle]), &codec, "cannot follow bytes"),
        ("<i4", json!([codec]), &codec, "cannot follow bytes"),
        ("|O", json!([codec]), &shuffle, "not string"),
    ] {
        let error = parse_v2(dtype, &filters, compressor).unwrap_err();
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn codecs_that_are_not_known_or_in_the_wrong_place_are_refused_where_they_stand() {
    let delta = json!({"name": "numcodecs.delta", "configuration": {"dtype": "|i1"}});
    let delta_of_f4 = json!({"name": "numcodecs.delta", "configuration": {"dtype": "<f4"}});
    for (codecs, problem) in [
        (json!(["bytes", "lz5"]), "codecs[1]: the codec \"lz5\" is not supported"),
        (json!(["zstd"]), "codecs[0]: the codec \"zstd\" is not supported"),
        (json!(["vlen-utf8"]), "codecs[0]: the codec \"vlen-utf8\" is not supported"),
        (json!(["bytes", "bytes"]), "codecs[1]: \"bytes\" cannot follow bytes"),
        (json!(["bytes", "pcodec"]), "codecs[1]: \"pcodec\" cannot follow bytes"),
        (json!(["bytes", "transpose"]), "codecs[1]: \"transpose\" cannot follow bytes"),
        (json!(["bytes", "numcodecs.bitround"]), "\"numcodecs.bitround\" cannot follow bytes"),
        (
            json!([delta, "transpose"]),
            "codecs[1]: a transposition behind a filter is not supported",
        ),
        (json!([delta, delta_of_f4, "bytes"]), "a filter of float32 behind int8 is not supported"),
        (json!([delta, "vlen-utf8"]), "is not supported"),
        (json!([]), "no codec makes bytes"),
    ] {
        let error = parse(&codecs, DataType::Int8).unwrap_err();
        assert!(error.contains(problem), "{error}");
    }
    for (filters, problem) in [
        (json!([{"id": "lz5"}]), "filters[0]: the codec \"lz5\" is not supported"),
        (json!([{"id": "vlen-utf8"}]), "'vlen-utf8' is for text only"),
        (json!([{"id": "shuffle"}, {"id": "vlen-utf8"}]), "'vlen-utf8' is for text only"),
        (json!([{"level": 1}]), "filters[0].id: missing"),
    ] {
        let error = parse_v2("<i4", &filters, &json!(null)).unwrap_err();
        assert!(error.contains(problem), "{error}");
    }
    assert!(parse_v2("|O", &json!([]), &json!(null)).unwrap_err().contains("object data"));
}
