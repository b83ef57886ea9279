//! Parses golden files, cut files, changed files and impossible claims.
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]

use super::*;
use crate::ObjectPath;

const GOLDEN: [(&str, &[u8], usize); 3] = [
    ("netcdf-classic-1", include_bytes!("../../golden/classic-1.nc"), 13),
    ("netcdf-classic-2", include_bytes!("../../golden/classic-2.nc"), 13),
    ("netcdf-classic-5", include_bytes!("../../golden/classic-5.nc"), 23),
];
const SINGLE: &[u8] = include_bytes!("../../golden/classic-1-single-record.nc");

fn source(size: usize) -> SourceVersion {
    SourceVersion { size: size as u64, ..SourceVersion::default() }
}

fn parse_all(bytes: &[u8]) -> Result<ChunkMap, HeaderError> {
    match parse(bytes, &source(bytes.len()), &Limits::default())? {
        ParsedHeader::Complete(map) => Ok(*map),
        ParsedHeader::Incomplete { .. } => panic!("asked for more than the whole file"),
    }
}

/// The stored bytes of an array in C order.
fn stored(bytes: &[u8], array: &ForeignArray) -> Vec<u8> {
    match array.storage {
        ForeignStorage::Contiguous { offset, length } => {
            bytes[offset as usize..(offset + length) as usize].to_vec()
        }
        ForeignStorage::Records { offset, stride, length } => (0..array.shape[0])
            .flat_map(|record| {
                let at = (offset + record * stride) as usize;
                bytes[at..at + length as usize].to_vec()
            })
            .collect(),
        _ => panic!("a storage that classic files do not have"),
    }
}

/// The elements, by the rule of the script that made the golden files.
fn expected(data_type: DataType, count: u64) -> Vec<u8> {
    let number = |i: u64| i % 100;
    (0..count)
        .flat_map(|i| match data_type {
            DataType::FixedBytes(1) => vec![b'a' + (i % 26) as u8],
            DataType::Int8 | DataType::UInt8 => vec![number(i) as u8],
            DataType::Int16 | DataType::UInt16 => (number(i) as u16).to_be_bytes().to_vec(),
            DataType::Int32 | DataType::UInt32 => (number(i) as u32).to_be_bytes().to_vec(),
            DataType::Int64 | DataType::UInt64 => number(i).to_be_bytes().to_vec(),
            DataType::Float32 => (number(i) as f32).to_be_bytes().to_vec(),
            DataType::Float64 => (number(i) as f64).to_be_bytes().to_vec(),
            other => panic!("{other}"),
        })
        .collect()
}

#[test]
fn every_variable_of_the_golden_files_has_the_values_that_were_written() {
    for (format, bytes, variables) in GOLDEN {
        let map = parse_all(bytes).unwrap();
        assert_eq!((map.format.as_str(), map.arrays.len()), (format, variables));
        for array in &map.arrays {
            let count = array.shape.iter().product();
            assert_eq!(
                stored(bytes, array),
                expected(array.data_type.unwrap(), count),
                "{array:?}"
            );
        }
        let record = map.array("record_i2").unwrap();
        assert_eq!((&record.shape[..], &record.unlimited[..]), (&[4, 5][..], &[true, false][..]));
        assert_eq!(record.dimension_names.as_ref().unwrap(), &["time", "x"]);
    }
}

#[test]
fn attributes_keep_their_types_and_a_single_number_is_no_array() {
    let map = parse_all(GOLDEN[0].1).unwrap();
    let root = map.group("").unwrap();
    assert_eq!(root.attributes[0], ("title".into(), ForeignAttribute::Text("golden".into())));
    let ForeignAttribute::Values(numbers) = &root.attributes[1].1 else { panic!() };
    assert_eq!(numbers.shape, Some(vec![3]));
    assert_eq!(numbers.data, [1, 0, 0xfe, 0xff, 3, 0]);
    let minimum = &map.array("fixed_f4").unwrap().attributes[0].1;
    let ForeignAttribute::Values(minimum) = minimum else { panic!() };
    assert_eq!((minimum.data_type, &minimum.shape), (DataType::Float32, &None));
    assert_eq!(minimum.data, (-1.5_f32).to_le_bytes());
}

#[test]
fn the_records_of_a_single_record_variable_are_not_padded() {
    let map = parse_all(SINGLE).unwrap();
    let array = map.array("only").unwrap();
    assert!(matches!(array.storage, ForeignStorage::Records { stride: 3, length: 3, .. }));
    assert_eq!(stored(SINGLE, array), expected(DataType::Int8, 12));
    assert_eq!(array.fill_value, Some(vec![0xf9]));
}

#[test]
fn a_streaming_record_count_comes_from_the_size_of_the_file() {
    for (_, bytes, _) in GOLDEN {
        let mut bytes = bytes.to_vec();
        let width = if bytes[3] == 5 { 8 } else { 4 };
        bytes[4..4 + width].fill(0xff);
        assert_eq!(parse_all(&bytes).unwrap().array("record_f8").unwrap().shape, [4, 5]);
    }
}

#[test]
fn a_header_cut_at_any_byte_asks_for_more_and_a_file_cut_there_is_an_error() {
    for bytes in GOLDEN.map(|(_, bytes, _)| bytes).into_iter().chain([SINGLE]) {
        let whole = parse_all(bytes).unwrap();
        for length in 0..bytes.len() {
            match parse(&bytes[..length], &source(bytes.len()), &Limits::default()).unwrap() {
                ParsedHeader::Complete(map) => assert_eq!(*map, whole),
                ParsedHeader::Incomplete { bytes_needed } => {
                    assert!(bytes_needed > length as u64 && bytes_needed <= bytes.len() as u64);
                }
            }
            // Only the padding after the last record can be missing without damage.
            assert!(parse_all(&bytes[..length]).is_err() || bytes.len() - length < 4, "{length}");
        }
    }
}

#[test]
fn changed_bytes_never_panic_and_what_is_taken_lies_inside_the_file() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut refused = 0;
    for (_, bytes, _) in GOLDEN {
        for _ in 0..20_000 {
            let mut bytes = bytes.to_vec();
            for _ in 0..=random() % 4 {
                let at = (random() % bytes.len() as u64) as usize;
                bytes[at] = random() as u8;
            }
            let Ok(map) = parse_all(&bytes) else {
                refused += 1;
                continue;
            };
            for array in &map.arrays {
                assert!(ObjectPath::parse(&array.path).is_ok());
                stored(&bytes, array);
            }
        }
    }
    assert!(refused > 1_000);
}

#[test]
fn counts_and_offsets_that_cannot_be_are_refused_at_their_byte() {
    let source = source(1 << 40);
    let refused = |tail: &[u8]| {
        let mut bytes = b"CDF\x01\0\0\0\0".to_vec();
        bytes.extend_from_slice(tail);
        bytes.resize(4096, 0);
        match parse(&bytes, &source, &Limits::default()) {
            Err(error) => error.to_string(),
            Ok(other) => panic!("{other:?}"),
        }
    };
    let dimensions = |count: &[u8]| [&b"\0\0\0\x0a"[..], count].concat();
    assert!(refused(&dimensions(b"\xff\xff\xff\xff")).contains("negative count"));
    assert!(refused(&dimensions(b"\0\0\0\x01\x7f\xff\xff\xff")).contains("a name of 2147483647"));
    let one = dimensions(b"\0\0\0\x01\0\0\0\x01a\0\0\0\x80\0\0\0");
    assert!(refused(&one).contains("negative count"));
    let two_records = dimensions(b"\0\0\0\x02\0\0\0\x01a\0\0\0\0\0\0\0\0\0\0\x01b\0\0\0\0\0\0\0");
    assert!(refused(&two_records).contains("two record dimensions"));
    let no_dimensions = [0; 16];
    let variable =
        |tail: &[u8]| [&no_dimensions[..], b"\0\0\0\x0b\0\0\0\x01\0\0\0\x01v\0\0\0", tail].concat();
    assert!(refused(&variable(b"\0\0\0\x21")).contains("33 dimensions"));
    assert!(refused(&variable(b"\0\0\0\x01\0\0\0\x05")).contains("names a dimension"));
    let scalar = |begin: &[u8]| {
        variable(&[&b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x06\0\0\0\x08"[..], begin].concat())
    };
    assert!(refused(&scalar(b"\xff\0\0\0")).contains("negative offset"));
    let cdf1 = parse(b"CDF\x03\0\0\0\0", &source, &Limits::default()).unwrap_err();
    assert!(cdf1.to_string().contains("not a NetCDF classic file"));
}

#[test]
fn a_header_that_counts_more_than_its_bytes_hold_is_read_only_up_to_the_limit() {
    let mut bytes = b"CDF\x01\0\0\0\0\0\0\0\x0a\x7f\xff\xff\xff".to_vec();
    while bytes.len() < 1 << 20 {
        bytes.extend_from_slice(b"\0\0\0\x01a\0\0\0\0\0\0\x01");
    }
    let limits = Limits::default().with_metadata_bytes_max(1 << 20);
    let error = parse(&bytes, &source(1 << 40), &limits).unwrap_err();
    assert_eq!(error, HeaderError::TooLarge(1 << 20));
}

#[test]
fn names_that_are_no_segments_of_a_path_are_shown_with_their_bytes() {
    for (name, text) in [
        (&b"plain name"[..], "plain name"),
        (b"100 %", "100 %"),
        (b"a/b", "a%2Fb"),
        (b"a\nb\\", "a%0Ab%5C"),
        (b"..", "%2E%2E"),
        (b"caf\xe9", "caf%E9"),
        ("caf\u{e9}".as_bytes(), "caf\u{e9}"),
    ] {
        assert_eq!(shown(name), text);
        assert!(ObjectPath::parse(&shown(name)).is_ok());
    }
}

/// The Python tests read the same file, and compare it with the output of the netCDF4 library.
/// `UPDATE_SNAPSHOTS=1` rewrites it.
#[test]
fn the_description_of_a_classic_file_is_the_one_that_python_is_tested_with() {
    let place = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/classic-5-description.json");
    let mut description = parse_all(GOLDEN[2].1).unwrap().description().unwrap();
    description.push(b'\n');
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(place, &description).unwrap();
    }
    assert_eq!(String::from_utf8(std::fs::read(place).unwrap()), String::from_utf8(description));
}
