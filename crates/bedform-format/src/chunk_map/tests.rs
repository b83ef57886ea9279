//! Round trips, damage, and impossible claims.
#![allow(clippy::cast_possible_truncation)]

use proptest::prelude::*;

use super::*;
use crate::codec::{BloscCompressor, BloscConfiguration, BloscShuffle};
use crate::{Limits, ObjectPath};

const FILE_BYTES: u64 = 1 << 40;

fn limits() -> Limits {
    Limits::default()
}

fn array(path: &str, shape: &[u64], storage: ForeignStorage) -> ForeignArray {
    ForeignArray {
        path: path.into(),
        shape: shape.to_vec(),
        unlimited: vec![false; shape.len()],
        data_type: Some(DataType::Float32),
        endian: Endian::Big,
        fill_value: Some(vec![0x7f, 0xc0, 0, 0]),
        dimension_names: Some((0..shape.len()).map(|axis| format!("axis{axis}")).collect()),
        attributes: vec![("units".into(), ForeignAttribute::Text("K \"\u{e9}".into()))],
        encoding: ForeignEncoding { dtype: ">f4".into(), ..ForeignEncoding::default() },
        storage,
    }
}

fn map(arrays: Vec<ForeignArray>) -> ChunkMap {
    ChunkMap {
        source: SourceVersion {
            size: FILE_BYTES,
            modified_ns: -1,
            changed_ns: i64::MAX,
            identity: (3, u64::MAX),
        },
        format: "hdf5".into(),
        groups: vec![ForeignGroup {
            dimensions: vec![ForeignDimension {
                name: "time".into(),
                size: 3,
                unlimited: true,
                phony: false,
            }],
            refused: vec![RefusedMember { name: "link".into(), reason: "other.h5".into() }],
            ..ForeignGroup::default()
        }],
        arrays,
    }
}

fn chunked(shape: &[u64], chunk_shape: &[u64], table: ChunkTable) -> ForeignArray {
    let codecs = vec![
        BytesCodec::Shuffle { element_size: 4 },
        BytesCodec::Zlib { level: 4 },
        BytesCodec::Fletcher32,
    ];
    let chunk_shape = chunk_shape.to_vec();
    array("chunked", shape, ForeignStorage::Chunked { chunk_shape, codecs, chunks: table })
}

fn small() -> ChunkMap {
    let table = ChunkTable {
        indexes: vec![0, 3, 5],
        offsets: vec![100, 500, 900],
        lengths: vec![48, 30, 32],
        filter_masks: vec![0, 2, 7],
    };
    let blosc = BytesCodec::Blosc(BloscConfiguration {
        compressor: BloscCompressor::Zstd,
        level: 5,
        shuffle: BloscShuffle::Bit,
        type_size: 4,
        block_size: 0,
    });
    let mut values = array("values", &[], ForeignStorage::Compact { data: vec![1, 2, 3, 4] });
    values.attributes.push((
        "_FillValue".into(),
        ForeignAttribute::Values(AttributeValues {
            data_type: DataType::Float64,
            endian: Endian::Little,
            shape: None,
            data: f64::NAN.to_le_bytes().to_vec(),
        }),
    ));
    values
        .attributes
        .push(("flags".into(), ForeignAttribute::Texts(vec!["a".into(), String::new()])));
    values.encoding.enumeration =
        Some(Enumeration { name: String::new(), members: vec![("A".into(), "-1".into())] });
    values.encoding.filters = vec![ForeignFilter { id: 32_015, values: vec![3] }];
    let mut text = array("text", &[2], ForeignStorage::Native { reason: "text".into() });
    (text.data_type, text.fill_value) = (Some(DataType::String), None);
    let mut compound = array("compound", &[2], ForeignStorage::Native { reason: "why".into() });
    (compound.data_type, compound.fill_value) = (None, None);
    let single = ForeignStorage::Chunked {
        chunk_shape: vec![2],
        codecs: vec![blosc, BytesCodec::Zstd { level: -3, checksum: false }],
        chunks: ChunkTable::default(),
    };
    map(vec![
        chunked(&[4, 9], &[4, 4], ChunkTable::default()),
        ForeignArray { path: "b".into(), ..chunked(&[4, 9], &[2, 4], table) },
        array("c", &[7], ForeignStorage::Contiguous { offset: 8, length: 28 }),
        array("d", &[5, 3], ForeignStorage::Records { offset: 8, stride: 100, length: 12 }),
        array("e", &[5, 0], ForeignStorage::Empty),
        array("f", &[4], single),
        values,
        text,
        compound,
    ])
}

#[test]
fn a_map_with_every_kind_of_storage_comes_back_as_it_was() {
    let map = small();
    assert_eq!(ChunkMap::decode(&map.encode().unwrap(), &limits()).unwrap(), map);
}

#[test]
fn every_flipped_bit_is_an_error() {
    let bytes = small().encode().unwrap();
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(ChunkMap::decode(&changed, &limits()).is_err(), "bit {bit}");
    }
}

#[test]
fn a_map_cut_at_any_length_or_with_a_byte_more_is_an_error() {
    let mut bytes = small().encode().unwrap();
    for length in 0..bytes.len() {
        assert!(ChunkMap::decode(&bytes[..length], &limits()).is_err(), "{length} bytes");
    }
    bytes.push(0);
    assert!(ChunkMap::decode(&bytes, &limits()).is_err());
}

/// Returns the bytes with a matching checksum: a checksum must not be the only defence.
fn reseal(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.len() - 4;
    let checksum = crate::checksum::crc32c(&bytes[..end]);
    bytes[end..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

#[test]
fn changed_bytes_under_a_right_checksum_never_panic_and_keep_the_promises() {
    let bytes = small().encode().unwrap();
    for at in 0..bytes.len() - 4 {
        for value in [0, 1, 0x2c, 0x39, 0x7f, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[at] = value;
            if let Ok(map) = ChunkMap::decode(&reseal(changed), &limits()) {
                map.check(&limits()).unwrap();
            }
        }
    }
}

#[test]
fn a_newer_version_is_named_and_other_files_are_told_apart() {
    let mut bytes = small().encode().unwrap();
    bytes[8] = 2;
    let error = ChunkMap::decode(&reseal(bytes), &limits()).unwrap_err();
    assert_eq!(error, ChunkMapError::NewerVersion { found: 2, supported: 1 });
    assert_eq!(ChunkMap::decode(b"CDF\x01", &limits()), Err(ChunkMapError::NotAChunkMap));
}

#[test]
fn claims_that_cannot_be_true_of_the_file_are_refused() {
    let contiguous = |offset, length| ForeignStorage::Contiguous { offset, length };
    let records = |offset, stride, length| ForeignStorage::Records { offset, stride, length };
    let table = |index, offset, length, mask| ChunkTable {
        indexes: vec![index],
        offsets: vec![offset],
        lengths: vec![length],
        filter_masks: vec![mask],
    };
    let twice = ChunkTable {
        indexes: vec![1, 1],
        offsets: vec![0, 0],
        lengths: vec![1, 1],
        filter_masks: vec![0, 0],
    };
    let no_fill = |array: ForeignArray| ForeignArray { fill_value: Some(vec![1]), ..array };
    let duplicate = ("units".to_owned(), ForeignAttribute::Text(String::new()));
    let mut twice_named = array("a", &[], ForeignStorage::Empty);
    twice_named.attributes.push(duplicate);
    let big = 1 << 62;
    let cases = [
        (array("a", &[7], contiguous(FILE_BYTES, 28)), "cut short"),
        (array("a", &[7], contiguous(u64::MAX, 28)), "cut short"),
        (array("a", &[7], contiguous(0, 27)), "27 bytes stored"),
        (array("a", &[big, big], ForeignStorage::Empty), "more than 2^63"),
        (array("a", &[0, big, big], ForeignStorage::Empty), "more than 2^63"),
        (array("a", &[1; 33], ForeignStorage::Empty), "33 dimensions"),
        (array("../a", &[1], ForeignStorage::Empty), "'.' or '..'"),
        (array("g/a", &[1], ForeignStorage::Empty), "does not have before it"),
        (array("", &[1], ForeignStorage::Empty), "without a name"),
        (no_fill(array("a", &[1], ForeignStorage::Empty)), "fill value of 1 bytes"),
        (twice_named, "two attributes"),
        (array("a", &[big / 4, 1], records(0, u64::MAX, 4)), "beyond 2^64"),
        (array("a", &[3, 1], records(FILE_BYTES - 11, 4, 4)), "cut short"),
        (array("a", &[3, 1], records(0, 3, 4)), "3 bytes apart"),
        (array("a", &[], records(0, 4, 4)), "without an axis"),
        (chunked(&[8], &[0], ChunkTable::default()), "chunks of length 0"),
        (chunked(&[8], &[4, 1], ChunkTable::default()), "another rank"),
        (chunked(&[], &[], ChunkTable::default()), "another rank"),
        (chunked(&[8], &[big], ChunkTable::default()), "more than 2^63"),
        (chunked(&[8], &[1 << 31], ChunkTable::default()), "over the limit"),
        (chunked(&[8], &[4], table(2, 0, 1, 0)), "chunk 2 of 2"),
        (chunked(&[8], &[4], table(1, FILE_BYTES, 1, 0)), "chunk 1: 1 bytes at"),
        (chunked(&[8], &[4], table(1, 0, 3 << 30, 0)), "over the limit"),
        (chunked(&[8], &[4], table(1, 0, 1, 8)), "names a filter"),
        (chunked(&[8], &[4], table(1, 0, 15, 7)), "15 bytes stored, unfiltered"),
        (chunked(&[8], &[4], twice), "twice"),
    ];
    for (case, expected) in cases {
        let error = map(vec![case]).check(&limits()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error} lacks {expected}");
    }
}

#[test]
fn two_variables_or_groups_of_one_path_are_refused() {
    let twin = || array("a", &[], ForeignStorage::Empty);
    assert!(map(vec![twin(), twin()]).check(&limits()).is_err());
    let mut groups = map(vec![]);
    groups.groups.push(ForeignGroup::default());
    assert!(groups.check(&limits()).is_err());
}

#[test]
fn a_description_needs_as_many_tables_as_it_has_chunked_arrays() {
    let description = small().description().unwrap();
    for count in [2, 4] {
        let tables = vec![ChunkTable::default(); count];
        assert!(ChunkMap::from_description(&description, tables, &limits()).is_err());
    }
    let tables = vec![ChunkTable::default(); 3];
    assert!(ChunkMap::from_description(&description, tables, &limits()).is_ok());
}

#[test]
fn tables_given_in_any_order_are_sorted() {
    let map = small();
    let reversed = ChunkTable {
        indexes: vec![5, 0, 3],
        offsets: vec![900, 100, 500],
        lengths: vec![32, 48, 30],
        filter_masks: vec![7, 0, 2],
    };
    let tables = vec![ChunkTable::default(), reversed, ChunkTable::default()];
    let description = map.description().unwrap();
    assert_eq!(ChunkMap::from_description(&description, tables, &limits()).unwrap(), map);
}

#[test]
fn documents_made_of_many_tiny_texts_are_refused_before_they_are_read() {
    let mut text = b"{\"a\": [".to_vec();
    text.resize(12 << 20, b'"');
    let error = ChunkMap::from_description(&text, vec![], &limits()).unwrap_err();
    assert!(error.to_string().contains("texts in"), "{error}");
}

#[test]
fn a_document_a_million_levels_deep_or_with_a_key_twice_is_refused() {
    let deep = "[".repeat(1_000_000);
    assert!(ChunkMap::from_description(deep.as_bytes(), vec![], &limits()).is_err());
    let text = String::from_utf8(map(vec![]).description().unwrap()).unwrap();
    let twice = text.replacen('{', "{\"format\":\"hdf5\",", 1);
    assert!(ChunkMap::from_description(twice.as_bytes(), vec![], &limits()).is_err());
}

#[test]
fn a_million_chunks_come_back_as_they_were() {
    let count = 1_000_000_u64;
    let table = ChunkTable {
        indexes: (0..count).collect(),
        offsets: (0..count).map(|i| 4096 + i * 100).collect(),
        lengths: (0..count).map(|i| 50 + i % 50).collect(),
        filter_masks: vec![0; count as usize],
    };
    let map = map(vec![chunked(&[1000, 4000], &[1, 4], table)]);
    let bytes = map.encode().unwrap();
    assert_eq!(ChunkMap::decode(&bytes, &limits()).unwrap(), map);
    let array = map.array("chunked").unwrap();
    let ForeignStorage::Chunked { chunks, .. } = &array.storage else { panic!() };
    assert_eq!(chunks.find(999_999).unwrap().offset, 4096 + 99_999_900);
    assert!(chunks.find(count).is_none());
}

#[test]
fn the_fill_element_is_in_the_order_of_the_machine() {
    let array = array("a", &[1], ForeignStorage::Empty);
    let mut stored = array.fill_element().unwrap();
    if Endian::NATIVE == Endian::Little {
        stored.reverse();
    }
    assert_eq!(stored, [0x7f, 0xc0, 0, 0]);
    let zero = ForeignArray { fill_value: None, ..array };
    assert_eq!(zero.fill_element(), Some(vec![0; 4]));
}

fn any_table(count: u64) -> impl Strategy<Value = ChunkTable> {
    prop::collection::btree_map(0..count, (0..FILE_BYTES / 2, 0_u64..1 << 20, 0_u32..7), 0..40)
        .prop_map(|entries| ChunkTable {
            indexes: entries.keys().copied().collect(),
            offsets: entries.values().map(|entry| entry.0).collect(),
            lengths: entries.values().map(|entry| entry.1).collect(),
            filter_masks: entries.values().map(|entry| entry.2).collect(),
        })
}

proptest! {
    #[test]
    fn any_map_comes_back_as_it_was(
        tables in prop::collection::vec(any_table(60), 0..5),
        name in "[\\PC&&[^/]]{1,12}",
        text in "(?s).{0,60}",
        data in prop::collection::vec(any::<u8>(), 0..50),
    ) {
        prop_assume!(ObjectPath::parse(&format!("0{name}")).is_ok());
        let mut arrays: Vec<ForeignArray> = tables
            .into_iter()
            .enumerate()
            .map(|(i, table)| {
                let path = format!("{i}{name}");
                ForeignArray { path, ..chunked(&[12, 19], &[2, 2], table) }
            })
            .collect();
        let shape = Some(vec![data.len() as u64]);
        let values =
            AttributeValues { data_type: DataType::Int8, endian: Endian::Little, shape, data };
        if let Some(array) = arrays.first_mut() {
            array.attributes = vec![
                (text.clone(), ForeignAttribute::Text(text)),
                (format!("x{name}"), ForeignAttribute::Values(values)),
            ];
            array.attributes.dedup_by(|a, b| a.0 == b.0);
        }
        let map = map(arrays);
        let decoded = ChunkMap::decode(&map.encode().unwrap(), &limits());
        prop_assert_eq!(decoded.unwrap(), map);
    }
}

#[test]
fn the_description_that_python_makes_is_understood() {
    let description = include_bytes!("../../golden/hdf5-description.json");
    type Columns = (Vec<u64>, Vec<u64>, Vec<u64>, Vec<u32>);
    let tables: Vec<Columns> =
        serde_json::from_slice(include_bytes!("../../golden/hdf5-tables.json")).unwrap();
    let tables = tables
        .into_iter()
        .map(|(indexes, offsets, lengths, filter_masks)| ChunkTable {
            indexes,
            offsets,
            lengths,
            filter_masks,
        })
        .collect();
    let map = ChunkMap::from_description(description, tables, &limits()).unwrap();
    assert_eq!(ChunkMap::decode(&map.encode().unwrap(), &limits()).unwrap(), map);
    let skipped = map.array("skipped").unwrap();
    let ForeignStorage::Chunked { chunks, .. } = &skipped.storage else { panic!() };
    assert_eq!(chunks.find(0).unwrap().filter_mask, 3);
    assert_eq!(
        skipped.codec_chain().bytes,
        [BytesCodec::Shuffle { element_size: 4 }, BytesCodec::Zlib { level: 4 }]
    );
    let compact = map.array("compact").unwrap();
    assert_eq!(compact.storage, ForeignStorage::Compact { data: vec![0, 1, 0xff, 0xfe, 0, 3] });
    assert_eq!(map.array("compound").unwrap().data_type, None);
    assert_eq!(map.array("never").unwrap().fill_value, Some((-1.5_f32).to_le_bytes().to_vec()));
}
