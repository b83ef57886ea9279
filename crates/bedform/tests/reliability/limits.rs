//! Every limit on claims of data, from both sides.

use std::collections::BTreeMap;
use std::sync::Arc;

use bedform::{ErrorKind, NewArray, OpenOptions, Store};
use bedform_codec::{ChunkCodec, Scratch};
use bedform_format::metadata::{GroupTexts, parse_array, parse_group};
use bedform_format::{
    BytesCodec, CodecChain, DataType, Endian, Limits, ObjectPath, Serializer, json,
};
use bedform_storage::MemoryStorage;
use serde_json::{Map, Value, json};

use crate::child::{TIME_MAX, thread_time};
use crate::frozen::Frozen;
use crate::support::path;

fn array(shape: &Value, chunk: &Value, codecs: &Value) -> Value {
    json!({
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0, "codecs": codecs, "attributes": {},
    })
}

fn is_taken(document: &Value, limits: &Limits) -> bool {
    parse_array(document, limits).is_ok()
}

fn plain(shape: &Value, chunk: &Value) -> Value {
    array(shape, chunk, &json!(["bytes"]))
}

#[test]
#[ignore = "a stage of make reliability"]
fn rank_is_at_most_32() {
    let limits = Limits::default();
    for (rank, is_legal) in [(0, true), (32, true), (33, false)] {
        let ones = json!(vec![1; rank]);
        assert_eq!(is_taken(&plain(&ones, &ones), &limits), is_legal, "{rank}");
    }
}

#[test]
#[ignore = "a stage of make reliability"]
fn a_decoded_chunk_has_at_most_two_gibibytes_and_less_if_asked() {
    let limits = Limits::default();
    for (length, is_legal) in [(1_u64 << 31, true), ((1 << 31) + 1, false), (u64::MAX >> 1, false)]
    {
        let document = plain(&json!([length]), &json!([length]));
        assert_eq!(is_taken(&document, &limits), is_legal, "{length}");
    }
    let document = plain(&json!([4097]), &json!([4097]));
    assert!(is_taken(&document, &limits));
    assert!(!is_taken(&document, &limits.with_chunk_bytes_max(4096)));
}

#[test]
#[ignore = "a stage of make reliability"]
fn a_chain_has_at_most_16_codecs() {
    for (count, is_legal) in [(16, true), (17, false)] {
        let mut codecs = vec![json!("bytes")];
        codecs.resize(count, json!({"name": "gzip", "configuration": {"level": 1}}));
        let document = array(&json!([4]), &json!([4]), &json!(codecs));
        assert_eq!(is_taken(&document, &Limits::default()), is_legal, "{count}");
    }
}

#[test]
#[ignore = "a stage of make reliability"]
fn shards_are_nested_at_most_three_deep() {
    for (depth, is_legal) in [(1, true), (3, true), (4, false), (50, false)] {
        let mut codecs = json!(["bytes"]);
        for _ in 0..depth {
            codecs = json!([{"name": "sharding_indexed", "configuration": {
                "chunk_shape": [4], "codecs": codecs,
                "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            }}]);
        }
        let document = array(&json!([4]), &json!([4]), &codecs);
        assert_eq!(is_taken(&document, &Limits::default()), is_legal, "{depth}");
    }
}

#[test]
#[ignore = "a stage of make reliability"]
fn a_document_has_at_most_64_mebibytes_and_64_levels() {
    let limits = Limits::default();
    let spaces = |size: usize| [b"{}".to_vec(), vec![b' '; size - 2]].concat();
    assert!(json::parse(&spaces(64 << 20), &limits).is_ok());
    assert!(json::parse(&spaces((64 << 20) + 1), &limits).is_err());
    assert!(json::parse(&spaces(1000), &limits.clone().with_metadata_bytes_max(999)).is_err());
    let nested = |depth: usize| ["[".repeat(depth), "]".repeat(depth)].concat().into_bytes();
    assert!(json::parse(&nested(64), &limits).is_ok());
    assert!(json::parse(&nested(65), &limits).is_err());
}

fn store_with(document: &Value) -> bedform::Result<Map<String, Value>> {
    let bytes = Arc::new(serde_json::to_vec(document).unwrap());
    let files = BTreeMap::from([("zarr.json".to_owned(), bytes)]);
    let store = Store::open(Arc::new(Frozen(files)), OpenOptions::default())?;
    store.group_attributes(&ObjectPath::root())
}

#[test]
#[ignore = "a stage of make reliability"]
fn attributes_have_at_most_16_mebibytes_written_or_read() {
    let attributes = |size: usize| json!({"a": "x".repeat(size)});
    for (size, is_legal) in [((16 << 20) - 100, true), ((16 << 20) + 100, false)] {
        let document =
            json!({"zarr_format": 3, "node_type": "group", "attributes": attributes(size)});
        assert!(parse_group(&document, GroupTexts::default()).is_ok());
        let outcome = store_with(&document);
        assert_eq!(outcome.is_ok(), is_legal, "{size}");
        assert!(outcome.is_ok_and(|_| true) || !is_legal);

        let storage = Arc::new(MemoryStorage::new());
        let Value::Object(attributes) = attributes(size) else { panic!() };
        let created = Store::create(storage, &attributes, OpenOptions::default());
        let kind = created.err().map(|error| error.kind());
        assert_eq!(kind, (!is_legal).then_some(ErrorKind::LimitExceeded), "{size}");
    }
}

#[test]
#[ignore = "a stage of make reliability"]
fn names_have_at_most_255_bytes_and_paths_1024() {
    let segment = |length: usize| "n".repeat(length);
    assert!(ObjectPath::parse(&segment(255)).is_ok());
    assert!(ObjectPath::parse(&segment(256)).is_err());
    let long = [segment(255), segment(255), segment(255), segment(255)].join("/");
    assert_eq!(long.len(), 1023);
    assert!(ObjectPath::parse(&long).is_ok());
    assert!(ObjectPath::parse(&format!("{long}//")).is_err());
    assert!(ObjectPath::parse(&format!("{}/n", &long[..1022])).is_ok());
    assert!(ObjectPath::parse(&format!("{}/nn", &long[..1022])).is_err());
}

#[test]
#[ignore = "a stage of make reliability"]
fn an_index_has_at_most_256_mebibytes_and_less_if_asked() {
    let sharded = |chunks: u64| {
        array(
            &json!([chunks]),
            &json!([chunks]),
            &json!([{
                "name": "sharding_indexed", "configuration": {
                    "chunk_shape": [1], "codecs": ["bytes"],
                    "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
                }
            }]),
        )
    };
    let limits = Limits::default();
    for (chunks, is_legal) in [(1 << 24, true), ((1 << 24) + 1, false), (1 << 31, false)] {
        assert_eq!(is_taken(&sharded(chunks), &limits), is_legal, "{chunks}");
    }
    assert!(!is_taken(&sharded(65), &limits.with_index_bytes_max(1024)));
}

#[test]
#[ignore = "a stage of make reliability"]
fn a_mebibyte_of_hostile_input_is_refused_in_seconds() {
    let limits = Limits::default();
    let documents: [Vec<u8>; 6] = [
        b"[".repeat(1 << 20),
        b"{\"a\":".repeat(1 << 18),
        b"NaN".repeat(1 << 18),
        b"-".repeat(1 << 20),
        b"\"\\u".repeat(1 << 18),
        [b"[".to_vec(), b"{},".repeat(1 << 18), b"!".to_vec()].concat(),
    ];
    for document in documents {
        let started = thread_time();
        assert!(json::parse(&document, &limits).is_err());
        assert!(thread_time() - started < TIME_MAX);
    }
    let codecs = [
        BytesCodec::Zstd { level: 3, checksum: false },
        BytesCodec::Gzip { level: 3 },
        BytesCodec::Zlib { level: 3 },
        BytesCodec::Crc32c,
    ];
    for codec in codecs {
        let chain = CodecChain {
            transpose: None,
            serializer: Serializer::Bytes(Endian::Little),
            bytes: vec![codec; 3],
        };
        let codec = ChunkCodec::new(&chain, DataType::UInt8, &[4096]);
        let started = thread_time();
        assert!(codec.decode(&[0x28; 1 << 20], 0, &mut Scratch::default()).is_err());
        assert!(thread_time() - started < TIME_MAX);
    }
}

#[test]
#[ignore = "a stage of make reliability"]
fn limits_hold_for_what_is_written_too() {
    let storage = Arc::new(MemoryStorage::new());
    let store = Store::create(storage, &Map::new(), OpenOptions::default()).unwrap();
    for description in [
        json!({"shape": [1_u64 << 40], "dtype": "uint8", "chunks": [1_u64 << 32], "shards": [1_u64 << 32]}),
        json!({"shape": [1_u64 << 40], "dtype": "uint8", "chunks": [1], "shards": [1_u64 << 30]}),
        json!({"shape": vec![1; 33], "dtype": "uint8", "chunks": vec![1; 33], "shards": vec![1; 33]}),
    ] {
        let outcome = NewArray::from_json(&description, &Limits::default())
            .and_then(|new| store.create_array(&path("t"), &new));
        assert!(outcome.is_err(), "{description}");
        assert!(store.nodes().unwrap().is_empty());
    }
}
