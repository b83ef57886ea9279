use serde_json::{Value, json};

use super::*;
use crate::codec::BytesCodec;
use crate::{Limits, json as strict};

fn document() -> Value {
    json!({
        "zarr_format": 3, "node_type": "array", "shape": [10, 20], "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 8]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": "NaN",
        "codecs": [{"name": "sharding_indexed", "configuration": {
            "chunk_shape": [2, 4],
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}},
                       {"name": "zstd", "configuration": {"level": 3, "checksum": false}},
                       {"name": "crc32c"}],
            "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}},
                             {"name": "crc32c"}],
            "index_location": "end"}}],
        "attributes": {"units": "K"}, "dimension_names": ["y", null], "storage_transformers": [],
        "bedform": {"must_understand": false, "version": 1,
                    "store": "00112233445566778899aabbccddeeff",
                    "array": "ffeeddccbbaa99887766554433221100"},
    })
}

fn parse(document: &Value) -> Result<ArrayMetadata, MetadataError> {
    parse_array(document, &Limits::default())
}

#[test]
fn a_written_document_reads_back_equal() {
    let metadata = parse(&document()).unwrap();
    let bytes = seal(write_array(&metadata));
    let again = strict::parse(&bytes, &Limits::default()).unwrap();
    assert!(check_seal(&bytes, &again).unwrap());
    assert_eq!(parse(&again).unwrap(), metadata);
    assert_eq!(metadata.inner_chunk_shape(), [2, 4]);
    assert_eq!(metadata.identity.unwrap().store[1], 0x11);
}

#[test]
fn every_changed_bit_of_a_sealed_document_is_reported_or_leaves_its_meaning() {
    let metadata = parse(&document()).unwrap();
    let bytes = seal(write_array(&metadata));
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let Ok(again) = strict::parse(&flipped, &Limits::default()) else { continue };
        if check_seal(&flipped, &again).is_err() {
            continue;
        }
        let mut read = match parse(&again) {
            Ok(read) => read,
            Err(_) => continue,
        };
        // Only the seal or the `bedform` key can have changed.
        read.identity = metadata.identity;
        assert_eq!(read, metadata, "bit {bit}");
    }
}

#[test]
fn a_document_rewritten_by_another_tool_is_taken_although_it_kept_the_seal() {
    let bytes = seal(write_array(&parse(&document()).unwrap()));
    let mut again = strict::parse(&bytes, &Limits::default()).unwrap();
    again["attributes"]["units"] = json!("degC");
    let foreign = serde_json::to_vec_pretty(&again).unwrap();
    assert!(!check_seal(&foreign, &again).unwrap());
}

#[test]
fn hostile_documents_are_refused_by_the_field_at_fault() {
    let cases: [(&str, Value, &str); 16] = [
        ("/zarr_format", json!(4), "zarr_format"),
        ("/shape", json!([-1, 20]), "shape[0]"),
        ("/shape", json!([u64::MAX, 20]), "shape[0]"),
        ("/shape", json!([1_u64 << 62, 20]), "shape"),
        ("/shape", json!(vec![1; 33]), "shape"),
        ("/shape", json!([10]), "chunk_grid"),
        ("/chunk_grid/configuration/chunk_shape", json!([0, 8]), "chunk_shape[0]"),
        ("/chunk_grid/configuration/chunk_shape", json!([5, 8]), "codecs[0]"),
        ("/chunk_grid/configuration/chunk_shape", json!([1_u64 << 40, 1_u64 << 40]), "chunk_grid"),
        ("/chunk_grid/name", json!("rectangular"), "chunk_grid.name"),
        ("/data_type", json!("float128"), "data_type"),
        ("/fill_value", json!("zero"), "fill_value"),
        ("/codecs", json!([]), "codecs"),
        ("/codecs/0/configuration/codecs/1/name", json!("lzma"), "codecs[0]"),
        ("/codecs/0/configuration/codecs/1/configuration/level", json!(99), "level"),
        ("/dimension_names", json!(["y"]), "dimension_names"),
    ];
    for (pointer, value, field) in cases {
        let mut document = document();
        *document.pointer_mut(pointer).unwrap() = value;
        let message = parse(&document).unwrap_err().to_string();
        assert!(message.contains(field), "{pointer}: {message}");
    }
}

#[test]
fn unknown_keys_are_refused_unless_they_say_that_they_may_be_ignored() {
    let mut with = document();
    with["extra"] = json!({"must_understand": false, "x": 1});
    assert!(parse(&with).is_ok());
    with["extra"] = json!({"x": 1});
    assert!(parse(&with).is_err());
}

#[test]
fn a_chunk_over_the_limit_is_refused_before_anything_is_read() {
    let mut huge = document();
    huge["shape"] = json!([1 << 20, 1 << 20]);
    huge["chunk_grid"]["configuration"]["chunk_shape"] = json!([1 << 20, 1 << 20]);
    huge["codecs"] = json!([{"name": "bytes", "configuration": {"endian": "little"}}]);
    assert!(parse(&huge).unwrap_err().to_string().contains("over the limit"));
}

#[test]
fn two_transpositions_are_one() {
    let mut twice = document();
    twice["codecs"] = json!([
        {"name": "transpose", "configuration": {"order": [1, 0]}},
        {"name": "transpose", "configuration": {"order": [1, 0]}},
        {"name": "bytes", "configuration": {"endian": "big"}},
    ]);
    match parse(&twice).unwrap().encoding {
        Encoding::Chunk(chain) => assert_eq!(chain.transpose, None),
        Encoding::Shard(_) => panic!("not sharded"),
    }
}

#[test]
fn version_2_documents_map_onto_the_same_description() {
    let document = json!({
        "zarr_format": 2, "shape": [10, 20], "chunks": [5, 20], "dtype": ">i2", "order": "F",
        "fill_value": null, "filters": [{"id": "shuffle", "elementsize": 2}],
        "compressor": {"id": "zlib", "level": 3}, "dimension_separator": "/",
    });
    let attributes = json!({"_ARRAY_DIMENSIONS": ["y", "x"], "units": "m"});
    let metadata =
        parse_array_v2(&document, attributes.as_object().unwrap().clone(), &Limits::default());
    let metadata = metadata.unwrap();
    assert_eq!(metadata.dimension_names.unwrap()[1].as_deref(), Some("x"));
    assert_eq!(metadata.attributes.as_str(), r#"{"units":"m"}"#);
    let Encoding::Chunk(chain) = metadata.encoding else { panic!("not sharded") };
    assert_eq!(chain.transpose, Some(vec![1, 0]));
    assert_eq!(
        chain.bytes,
        [BytesCodec::Shuffle { element_size: 2 }, BytesCodec::Zlib { level: 3 }]
    );
}

#[test]
fn consolidated_documents_of_version_2_name_arrays_and_groups() {
    let document = json!({"zarr_consolidated_format": 1, "metadata": {
        ".zgroup": {}, ".zattrs": {}, "g/.zgroup": {}, "g/t/.zarray": {}, "g/t/.zattrs": {},
    }});
    let mut named = parse_consolidated_v2(&document).unwrap();
    named.sort_unstable();
    assert_eq!(named, [("", false), ("g", false), ("g/t", true)]);
    for refused in [json!({}), json!({"metadata": 1}), json!([])] {
        assert!(parse_consolidated_v2(&refused).is_err(), "{refused}");
    }
}

#[test]
fn keys_name_their_coordinates_both_ways() {
    for keys in [ChunkKeys::DEFAULT, ChunkKeys { prefixed: false, separator: '.' }] {
        for coordinates in [vec![], vec![0], vec![3, 0, 12]] {
            let name = keys.name(&coordinates);
            assert_eq!(keys.parse(&name, coordinates.len()), Some(coordinates));
        }
        assert_eq!(keys.parse("c/01", 1), None);
        assert_eq!(keys.parse("c/-1", 1), None);
        assert_eq!(keys.parse("zarr.json", 1), None);
    }
}

#[test]
fn a_group_that_is_being_replaced_is_in_its_stores_document() {
    let replacing = json!({"group": "g", "metadata": {"": {"node_type": "group"}}});
    let document = |replacing: Value| {
        let mut document = write_group(&[7; 16], &serde_json::Map::new(), Some(Default::default()));
        document["consolidated_metadata"]["replacing"] = replacing;
        document
    };
    let parse = |document: Value| {
        let bytes = seal(document);
        let (document, texts) = parse_document(&bytes, &Limits::default()).unwrap();
        // The kept texts restore the document.
        assert_eq!(seal_with(document.clone(), &texts.kept()), bytes);
        let mut whole = document.clone();
        texts.clone().insert_into(&mut whole, &Limits::default()).unwrap();
        whole = strict::with_values(whole, &Limits::default()).unwrap();
        assert_eq!(whole, strict::parse(&bytes, &Limits::default()).unwrap());
        parse_group(&document, texts)
    };
    let group = parse(document(replacing.clone())).unwrap();
    let found = group.replacing.unwrap();
    assert_eq!((found.group.as_str(), found.metadata.len()), ("g", 1));
    assert_eq!(found.metadata[""].parse(&Limits::default()).unwrap(), replacing["metadata"][""]);
    assert_eq!(found.to_value(), json!({"group": "g", "metadata": {}}));
    for damaged in [json!(1), json!({"group": "g"}), json!({"group": 1, "metadata": {}})] {
        assert!(parse(document(damaged)).is_err());
    }
}
