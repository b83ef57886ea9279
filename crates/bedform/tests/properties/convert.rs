//! A converted store equals its source, after any number of interruptions and in any layout.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bedform::convert::{
    ArrayLayoutChoice, ConvertError, ConvertOptions, ConvertSource, ConvertTarget, Converted,
    RegionReader, plan, run,
};
use bedform::foreign::source_version;
use bedform::{ErrorKind, ForeignFile, NewArray, NodeKind, OpenOptions, Store};
use bedform_format::chunk_map::{
    AttributeValues, ChunkMap, ForeignArray, ForeignAttribute, ForeignEncoding, ForeignGroup,
    ForeignStorage, RefusedMember,
};
use bedform_format::{DataType, Endian, ObjectPath};
use bedform_geometry::{Order, Region, Selection};
use bedform_storage::{Condition, Durability, MemoryStorage, Storage, stopped_by};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Map, json};

use super::arrays::{read, with};
use super::model::Numbers;
use super::strategies::{TYPES, new_array};
use super::{cases, place};

const NAMES: [&str; 3] = ["a", "g/b", "g/h/c"];

fn path(name: &str) -> ObjectPath {
    ObjectPath::parse(name).unwrap()
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::default();
    options.durability = Durability::Process;
    options.threads = Some(1);
    options
}

/// A store of random arrays, with attributes on all arrays and groups.
fn source_of(arrays: &[NewArray], seed: u64) -> Store {
    let attributes = Map::from_iter([("title".to_owned(), json!("a source"))]);
    let mut writable = options();
    writable.writable = true;
    let store = Store::create(Arc::new(MemoryStorage::new()), &attributes, writable).unwrap();
    let of_group = Map::from_iter([("of".to_owned(), json!([1, 2]))]);
    store.create_group(&path("g"), &of_group).unwrap();
    let mut numbers = Numbers(seed);
    for (name, new) in NAMES.iter().zip(arrays) {
        let array = store.create_array(&path(name), new).unwrap();
        let all = Selection::all(&new.shape);
        let elements = numbers.elements(new.data_type, all.len().unwrap());
        with(new.data_type, &elements, |elements| array.write(&all, elements).unwrap());
    }
    store
}

/// Converts, and stops after more than `regions_max` regions.
fn convert(
    source: &ConvertSource,
    target: &ConvertTarget,
    options: &ConvertOptions,
    regions_max: u64,
) -> Result<Converted, ConvertError> {
    let plan = plan(source, target, options)?;
    let (regions, stopped) = (Cell::new(0), Arc::new(AtomicBool::new(false)));
    let progress = |done, total| {
        assert!(done <= total);
        regions.set(regions.get() + 1);
        stopped.store(regions.get() > regions_max, Ordering::Relaxed);
    };
    stopped_by(&stopped, || run(&plan, source, target, options, &progress))
}

fn check_same(source: &Store, copy: &Store) {
    let (left, right) = (source.nodes().unwrap(), copy.nodes().unwrap());
    assert_eq!(left, right);
    let groups = left.iter().filter(|(_, kind)| **kind == NodeKind::Group).map(|(path, _)| path);
    for group in groups.chain([&ObjectPath::root()]) {
        assert_eq!(source.group_attributes(group).unwrap(), copy.group_attributes(group).unwrap());
    }
    for name in left.iter().filter(|(_, kind)| **kind == NodeKind::Array).map(|(path, _)| path) {
        let (one, other) = (source.array(name).unwrap(), copy.array(name).unwrap());
        let (was, is) = (one.metadata().unwrap(), other.metadata().unwrap());
        assert_eq!(was.shape, is.shape);
        assert_eq!((was.data_type, &was.fill_value), (is.data_type, &is.fill_value));
        assert_eq!(one.attributes().unwrap(), other.attributes().unwrap());
        let all = Selection::all(&was.shape);
        assert_eq!(read(&one, was.data_type, &all), read(&other, is.data_type, &all), "{name}");
        assert!(other.verify().unwrap().is_empty());
    }
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn a_conversion_that_is_stopped_again_and_again_ends_with_what_the_source_holds(
        arrays in vec(new_array(&TYPES), 1..=3),
        lengths in vec((1..=4_u64, 1..=3_u64), 4),
        (in_directory, has_layout, seed) in any::<(bool, bool, u64)>(),
    ) {
        let store = source_of(&arrays, seed);
        let source = ConvertSource::store("source", &store).unwrap();
        let place = place(!in_directory);
        let target = if in_directory {
            ConvertTarget::named(place.clone(), "copy", options()).unwrap()
        } else {
            ConvertTarget::whole(place.clone(), options())
        };
        let mut wanted = ConvertOptions::default();
        wanted.verify = seed.is_multiple_of(2);
        let lengths = &lengths[..arrays[0].shape.len()];
        wanted.layout = has_layout.then(|| ArrayLayoutChoice {
            chunks: lengths.iter().map(|(chunk, _)| *chunk).collect(),
            shards: Some(lengths.iter().map(|(chunk, count)| chunk * count).collect()),
            order: Order::Hilbert,
        });
        let mut resumed = 0;
        for stops in 0.. {
            match convert(&source, &target, &wanted, if in_directory { stops } else { 5 * stops }) {
                Ok(done) => {
                    prop_assert!(done.resumed_bytes >= resumed);
                    break;
                }
                Err(ConvertError::Other(error)) => {
                    prop_assert_eq!(error.kind(), ErrorKind::Interrupted, "{} after {}", error, stops);
                    // The target stays invisible, and finished work is kept.
                    if in_directory {
                        prop_assert!(place.list(&path("copy")).unwrap().is_empty());
                        resumed = resumed.max(1);
                    } else {
                        let there = Store::open(place.clone(), options()).unwrap();
                        prop_assert!(there.nodes().unwrap().is_empty());
                        resumed = 0;
                    }
                }
                Err(error) => return Err(TestCaseError::fail(error.to_string())),
            }
        }
        let there = if in_directory { place.within(&path("copy")).unwrap() } else { place.clone() };
        check_same(&store, &Store::open(there, options()).unwrap());
        if in_directory {
            let left: Vec<_> = place.list(&ObjectPath::root()).unwrap();
            prop_assert_eq!(left.len(), 1, "{:?}", left);
        }
        let again = convert(&source, &target, &wanted, u64::MAX).unwrap_err();
        prop_assert!(again.to_string().contains("exists: choose another name"), "{}", again);
    }
}

fn variable(
    name: &str,
    shape: &[u64],
    data_type: DataType,
    storage: ForeignStorage,
) -> ForeignArray {
    ForeignArray {
        path: name.to_owned(),
        shape: shape.to_vec(),
        unlimited: vec![false; shape.len()],
        data_type: Some(data_type),
        endian: Endian::Big,
        fill_value: None,
        dimension_names: Some(
            ["y", "x"][2 - shape.len()..].iter().map(|&n| n.to_owned()).collect(),
        ),
        attributes: Vec::new(),
        encoding: ForeignEncoding::default(),
        storage,
    }
}

fn native() -> ForeignStorage {
    ForeignStorage::Native { reason: "its filter is not known".to_owned() }
}

/// A file of six big-endian numbers, with variables that only its library reads.
fn file() -> ForeignFile {
    let storage = Arc::new(MemoryStorage::new());
    let bytes: Vec<u8> = (0..6_u16).flat_map(|value| (300 * value).to_be_bytes()).collect();
    storage.put(&path("f.nc"), &bytes, Durability::Process, Condition::None).unwrap();
    let mut numbers = variable(
        "g/t",
        &[2, 3],
        DataType::UInt16,
        ForeignStorage::Contiguous { offset: 0, length: 12 },
    );
    let fill = AttributeValues {
        data_type: DataType::UInt16,
        endian: Endian::Big,
        shape: None,
        data: vec![1, 0],
    };
    numbers.attributes = vec![
        ("units".to_owned(), ForeignAttribute::Text("K".to_owned())),
        ("_FillValue".to_owned(), ForeignAttribute::Values(fill)),
    ];
    let title = vec![("title".to_owned(), ForeignAttribute::Text("a file".to_owned()))];
    let group = |path: &str| ForeignGroup { path: path.to_owned(), ..ForeignGroup::default() };
    let refused = RefusedMember { name: "far".to_owned(), reason: "it names a file".to_owned() };
    let map = ChunkMap {
        source: source_version(&storage.stat(&path("f.nc")).unwrap()),
        format: "netcdf4".to_owned(),
        groups: vec![
            ForeignGroup { attributes: title, ..group("") },
            ForeignGroup { refused: vec![refused], ..group("g") },
        ],
        arrays: vec![
            numbers,
            variable("words", &[3], DataType::String, native()),
            variable("bytes", &[3], DataType::UInt8, native()),
        ],
    };
    ForeignFile::new(storage, path("f.nc"), map, &options()).unwrap()
}

fn with_readers() -> ConvertSource {
    let texts = |region: &Region| {
        let words = ["ein", "zwei", ""];
        let end = usize::try_from(region.end(0)).unwrap();
        let start = end - usize::try_from(region.shape()[0]).unwrap();
        Ok(words[start..end].iter().map(|&word| word.to_owned()).collect())
    };
    let bytes = |region: &Region, buffer: &mut [u8]| {
        for (at, byte) in (region.start()[0]..).zip(buffer) {
            *byte = u8::try_from(at + 7).unwrap();
        }
        Ok(())
    };
    ConvertSource::file("f.nc", file())
        .with_reader("words", RegionReader::Texts(Arc::new(texts)))
        .with_reader("bytes", RegionReader::Elements(Arc::new(bytes)))
}

#[test]
fn a_file_is_converted_by_its_chunk_map_and_by_callbacks() {
    let place = Arc::new(MemoryStorage::new());
    let target = ConvertTarget::named(place.clone(), "copy", options()).unwrap();
    let mut wanted = ConvertOptions::default();
    wanted.verify = true;
    let done = convert(&with_readers(), &target, &wanted, u64::MAX).unwrap();
    assert_eq!(done.warnings, ["'g/far' is left out: it names a file"]);
    let copy = Store::open(place.within(&path("copy")).unwrap(), options()).unwrap();
    assert_eq!(copy.group_attributes(&ObjectPath::root()).unwrap()["title"], json!("a file"));
    let numbers = copy.array(&path("g/t")).unwrap();
    let elements = read(&numbers, DataType::UInt16, &Selection::all(&[2, 3]));
    #[allow(clippy::host_endian_bytes)]
    let expected = (0..6_u16).map(|n| (300 * n).to_ne_bytes().to_vec());
    assert_eq!(elements, expected.collect::<Vec<_>>());
    let metadata = numbers.metadata().unwrap();
    assert_eq!(metadata.dimension_names.unwrap(), [Some("y".to_owned()), Some("x".to_owned())]);
    let attributes = numbers.attributes().unwrap();
    assert_eq!(attributes["units"], json!("K"));
    assert_eq!(attributes["_FillValue"], json!(256));
    let words = copy.array(&path("words")).unwrap().read_text(&Selection::all(&[3]));
    assert_eq!(words.unwrap(), ["ein", "zwei", ""]);
    let bytes = copy.array(&path("bytes")).unwrap();
    assert_eq!(read(&bytes, DataType::UInt8, &Selection::all(&[3])).concat(), [7, 8, 9]);
}

#[test]
fn what_cannot_be_converted_is_named_before_anything_is_written() {
    let place = Arc::new(MemoryStorage::new());
    let target = ConvertTarget::named(place.clone(), "copy", options()).unwrap();
    let refused = |source: &ConvertSource, wanted: &ConvertOptions, said: &str| {
        let error = plan(source, &target, wanted).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(said), "{error}");
    };
    let mut wanted = ConvertOptions::default();
    let without = ConvertSource::file("f.nc", file());
    refused(&without, &wanted, "'bytes': its filter is not known");
    refused(&without, &wanted, "--exclude bytes --exclude words");
    wanted.reads = vec![(vec!["z".to_owned()], 1.0)];
    refused(&with_readers(), &wanted, "the reads (z): the dimensions are x, y");
    wanted.reads.clear();
    wanted.memory_bytes = 0;
    refused(&with_readers(), &wanted, "need at least 1 MiB");
    wanted.exclude = vec!["none".to_owned()];
    refused(&with_readers(), &wanted, "no array 'none' to leave out");
    assert!(place.list(&ObjectPath::root()).unwrap().is_empty());
}

#[test]
fn a_callback_that_fails_ends_the_conversion_and_the_next_one_goes_on() {
    let place = Arc::new(MemoryStorage::new());
    let target = ConvertTarget::named(place.clone(), "copy", options()).unwrap();
    let fail =
        |_: &Region, _: &mut [u8]| Err(bedform::Error::new(ErrorKind::Io, "the library failed"));
    let failing = with_readers().with_reader("bytes", RegionReader::Elements(Arc::new(fail)));
    let error = convert(&failing, &target, &ConvertOptions::default(), u64::MAX).unwrap_err();
    assert_eq!(error.to_string(), "the library failed");
    let done = convert(&with_readers(), &target, &ConvertOptions::default(), u64::MAX).unwrap();
    assert_eq!(done.resumed_bytes, 0, "it was the first array");
}
