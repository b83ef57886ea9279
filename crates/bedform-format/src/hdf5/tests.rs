#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::cell::RefCell;
use std::collections::HashSet;

use serde_json::{Value as Json, json};

use super::*;
use crate::chunk_map::{ChunkMap, ForeignStorage, SourceVersion};

const OLD: &[u8] = include_bytes!("../../golden/hdf5/old.h5");
const NEW: &[u8] = include_bytes!("../../golden/hdf5/new.h5");
const NETCDF4: &[u8] = include_bytes!("../../golden/hdf5/netcdf4.h5");
const GROWS: &[u8] = include_bytes!("../../golden/hdf5/grows.h5");
const GOLDEN: [(&[u8], &str); 3] = [
    (OLD, include_str!("../../golden/hdf5/old.json")),
    (NEW, include_str!("../../golden/hdf5/new.json")),
    (NETCDF4, include_str!("../../golden/hdf5/netcdf4.json")),
];

fn map_of(bytes: &[u8]) -> Result<ChunkMap, Hdf5Error> {
    let limits = Limits::default();
    let file = Hdf5File::open(&bytes, bytes.len() as u64, BLOCK_BYTES, &limits)?;
    let source = SourceVersion { size: bytes.len() as u64, ..SourceVersion::default() };
    chunk_map(&file, &source, &limits)
}

fn with_file<T>(bytes: &[u8], take: impl FnOnce(&Hdf5File<'_>) -> T) -> T {
    let file = Hdf5File::open(&bytes, bytes.len() as u64, BLOCK_BYTES, &Limits::default());
    take(&file.unwrap())
}

/// Returns the object at a path of hard links.
fn object_at(file: &Hdf5File<'_>, path: &str) -> Hdf5Object {
    let mut object = file.object(file.superblock().root).unwrap();
    for name in path.split('/') {
        let links = file.links(&object).unwrap().links;
        let link = links.iter().find(|link| link.name == name.as_bytes()).unwrap();
        let LinkTarget::Hard(address) = link.target else { panic!("{link:?}") };
        object = file.object(address).unwrap();
    }
    object
}

fn dataset_at(file: &Hdf5File<'_>, path: &str) -> Dataset {
    match object_at(file, path).kind {
        ObjectKind::Dataset(dataset) => *dataset,
        other => panic!("{other:?}"),
    }
}

#[test]
fn chunk_maps_are_those_that_h5py_gives() {
    for (bytes, golden) in GOLDEN {
        let map = map_of(bytes).unwrap();
        let mut description: Json = serde_json::from_slice(&map.description().unwrap()).unwrap();
        for array in description["arrays"].as_array_mut().unwrap() {
            array["encoding"].as_object_mut().unwrap().remove("classic");
        }
        let tables = map.arrays.iter().filter_map(|array| match &array.storage {
            ForeignStorage::Chunked { chunks: table, .. } => {
                Some(json!([table.indexes, table.offsets, table.lengths, table.filter_masks]))
            }
            _ => None,
        });
        let tables: Vec<Json> = tables.collect();
        let golden: Json = serde_json::from_str(golden).unwrap();
        assert_eq!(description, golden["description"]);
        assert_eq!(json!(tables), golden["tables"]);
    }
}

#[test]
fn the_map_of_a_group_has_what_is_within_it_and_the_groups_around() {
    with_file(NETCDF4, |file| {
        let source = SourceVersion { size: NETCDF4.len() as u64, ..SourceVersion::default() };
        let limits = Limits::default();
        let of_group = |group| chunk_map_of_group(file, group, &source, &limits).unwrap();
        let map = of_group("inner").unwrap();
        let groups: Vec<&str> = map.groups.iter().map(|group| group.path.as_str()).collect();
        assert_eq!(groups, ["", "inner"]);
        assert!(map.array("inner/level").is_some());
        assert_eq!(of_group("inn"), None);
        assert_eq!(of_group(""), Some(chunk_map(file, &source, &limits).unwrap()));
    });
}

/// HDF5 (up to 2.2) iterates over an extensible array as if its first axis were the growing one. If
/// another axis grows, h5py returns wrong chunk positions, and a map made from them gives wrong
/// elements. In this file the bytes of a chunk name its position.
#[test]
fn chunks_along_an_axis_that_grows_behind_others_are_where_they_belong() {
    with_file(GROWS, |file| {
        let dataset = dataset_at(file, "grows");
        let mut count = 0;
        let found = file.chunks(&dataset, &mut |chunk| {
            let at = usize::try_from(chunk.offset).unwrap();
            let first = i32::from_le_bytes(*GROWS[at..].first_chunk().unwrap());
            let [row, column] = chunk.position else { panic!("{chunk:?}") };
            assert_eq!(u64::try_from(first).unwrap(), row * 3 * 5 + column * 2);
            count += 1;
            Ok(())
        });
        found.unwrap();
        assert_eq!(count, 9);
    });
}

#[test]
fn chunk_tables_are_read_one_by_one_as_all_at_once() {
    for (bytes, _) in GOLDEN {
        let (whole, limits) = (map_of(bytes).unwrap(), Limits::default());
        with_file(bytes, |file| {
            let (mut map, addresses) =
                chunk_map_without_tables(file, &whole.source, &limits).unwrap();
            assert_eq!(map.arrays.len(), addresses.len());
            for (array, address) in map.arrays.iter_mut().zip(&addresses) {
                let described = array.clone();
                assert!(address.is_some());
                let ForeignStorage::Chunked { chunks, chunk_shape, .. } = &mut array.storage else {
                    continue;
                };
                assert!(chunks.is_empty());
                *chunks =
                    chunk_table(file, address.unwrap(), &described, &limits).unwrap().unwrap();
                // If the array has another chunk shape, the address gives no table.
                let shape: Vec<u64> = chunk_shape.iter().map(|size| size + 1).collect();
                let mut other = described;
                if let ForeignStorage::Chunked { chunk_shape, .. } = &mut other.storage {
                    *chunk_shape = shape;
                }
                assert_eq!(chunk_table(file, address.unwrap(), &other, &limits).unwrap(), None);
            }
            assert_eq!(map, whole);
        });
    }
}

#[test]
fn every_kind_of_index_has_all_chunks() {
    let kinds = [
        ("implicit", ChunkIndex::Implicit, 4),
        ("fixed", ChunkIndex::FixedArray, 12),
        ("grows", ChunkIndex::ExtensibleArray, 12),
        ("both", ChunkIndex::BTreeV2, 12),
    ];
    with_file(NEW, |file| {
        for (name, index, expected) in kinds {
            let dataset = dataset_at(file, name);
            let Hdf5Layout::Chunked(layout) = &dataset.layout else { panic!("{name}") };
            assert_eq!(layout.index, index);
            let mut positions = HashSet::new();
            let mut take = |chunk: Chunk<'_>| {
                positions.insert(chunk.position.to_vec());
                Ok(())
            };
            file.chunks(&dataset, &mut take).unwrap();
            assert_eq!(positions.len(), expected, "{name}");
        }
    });
}

#[test]
fn attributes_have_their_values() {
    with_file(OLD, |file| {
        let object = object_at(file, "chunked");
        let attributes = file.attributes(&object).unwrap();
        let value = |name: &str| {
            let found = attributes.iter().find(|other| other.name == name.as_bytes()).unwrap();
            file.values(found).unwrap()
        };
        let text = |text: &str| Hdf5Value::Text(text.as_bytes().to_vec());
        assert_eq!(value("units"), [text("K")]);
        assert_eq!(value("names"), [text("one"), text("two")]);
        assert_eq!(value("range"), [Hdf5Value::Float(-1.5), Hdf5Value::Float(2.5)]);
        assert_eq!(value("flag"), [Hdf5Value::Integer(1)]);
        assert_eq!(
            value("record"),
            [Hdf5Value::Record(vec![Hdf5Value::Integer(1), Hdf5Value::Float(2.0)])]
        );
        let list = vec![Hdf5Value::Integer(1), Hdf5Value::Integer(2)];
        assert_eq!(value("lists"), [Hdf5Value::List(list), Hdf5Value::List(vec![])]);
    });
}

#[test]
fn links_come_in_the_order_in_which_they_were_made_where_that_is_tracked() {
    with_file(NEW, |file| {
        let links = file.links(&object_at(file, "many")).unwrap();
        assert!(links.order_tracked);
        let names = links.links.iter().map(|link| String::from_utf8_lossy(&link.name).into_owned());
        let made: Vec<String> = (0..10).map(|i| format!("link-{}", i * 7 % 10)).collect();
        assert_eq!(names.collect::<Vec<_>>(), made);
        assert_eq!(file.superblock().user_block_bytes, 512);
    });
}

#[test]
fn links_out_of_the_file_are_listed_and_not_followed() {
    with_file(OLD, |file| {
        let links = file.links(&object_at(file, "group")).unwrap().links;
        let outside = links.iter().find(|link| link.name == b"outside").unwrap();
        let expected = LinkTarget::External { file: b"other.h5".to_vec(), path: b"/x".to_vec() };
        assert_eq!(outside.target, expected);
    });
}

/// A reader that counts its requests and may fail.
struct Counting<'b> {
    bytes: &'b [u8],
    reads: RefCell<Vec<(u64, usize)>>,
    fails: bool,
}

impl<'b> Counting<'b> {
    fn of(bytes: &'b [u8]) -> Self {
        Self { bytes, reads: RefCell::default(), fails: false }
    }
}

impl ReadAt for Counting<'_> {
    fn read_at(&self, offset: u64, length: usize) -> Result<Vec<u8>, ReadError> {
        self.reads.borrow_mut().push((offset, length));
        if self.fails { Err("the disk is gone".into()) } else { self.bytes.read_at(offset, length) }
    }

    fn read_many(&self, _: &[(u64, usize)]) -> ManyRead {
        Ok(None)
    }
}

#[test]
fn blocks_are_asked_for_once_and_only_where_they_are_needed() {
    // The file has an unreferenced megabyte at its end: only its first blocks are read.
    let mut bytes = NETCDF4.to_vec();
    bytes.resize(1 << 20, 0);
    let reader = Counting::of(&bytes);
    let limits = Limits::default();
    let file = Hdf5File::open(&reader, bytes.len() as u64, 4096, &limits).unwrap();
    let source = SourceVersion { size: bytes.len() as u64, ..SourceVersion::default() };
    chunk_map(&file, &source, &limits).unwrap();
    let reads = reader.reads.into_inner();
    let offsets: HashSet<u64> = reads.iter().map(|(offset, _)| *offset).collect();
    assert_eq!(offsets.len(), reads.len());
    assert!(reads.iter().all(|(offset, length)| offset % 4096 == 0 && *length == 4096));
    assert!(reads.len() <= NETCDF4.len() / 4096 + 1, "{reads:?}");
}

#[test]
fn errors_say_by_their_kind_what_to_do() {
    let opened = |bytes: &[u8]| {
        Hdf5File::open(&bytes, bytes.len() as u64, BLOCK_BYTES, &Limits::default()).err()
    };
    assert!(matches!(opened(b"CDF\x01"), Some(Hdf5Error::NotHdf5)));
    let mut newer = OLD.to_vec();
    newer[8] = 9;
    assert!(matches!(opened(&newer), Some(Hdf5Error::Unknown { .. })));
    let cut = opened(&OLD[..OLD.len() - 1]).unwrap();
    assert!(cut.to_string().contains("cut short"), "{cut}");
    let mut flipped = NEW.to_vec();
    flipped[512 + 20] ^= 1;
    let wrong = opened(&flipped).unwrap();
    assert!(
        wrong.to_string().starts_with("damaged HDF5 file at byte 512: the checksum"),
        "{wrong}"
    );
    let reader = Counting { fails: true, ..Counting::of(OLD) };
    let failed = Hdf5File::open(&reader, 100, BLOCK_BYTES, &Limits::default()).err();
    assert!(matches!(failed, Some(Hdf5Error::Read(_))));
    let limits = Limits { hdf5_bytes_max: 2000, ..Limits::default() };
    let file = Hdf5File::open(&OLD, OLD.len() as u64, BLOCK_BYTES, &limits).unwrap();
    let refused = chunk_map(&file, &SourceVersion::default(), &limits);
    assert!(matches!(refused, Err(Hdf5Error::FileLimit { .. })));
}

#[test]
fn a_file_that_is_being_written_is_left_to_the_library() {
    let mut bytes = NEW.to_vec();
    bytes[512 + 11] = 1;
    let body = bytes[512..512 + 44].to_vec();
    bytes[512 + 44..512 + 48].copy_from_slice(&checksum::lookup3(&body).to_le_bytes());
    assert!(matches!(map_of(&bytes), Err(Hdf5Error::Unknown { .. })));
}

#[test]
fn damaged_and_cut_files_are_errors_and_no_panics() {
    for (bytes, _) in GOLDEN {
        for at in 0..bytes.len() {
            let mut flipped = bytes.to_vec();
            flipped[at] = [0xff, 0, flipped[at] ^ 0x10, 0x7f][at % 4];
            look_at_everything(&flipped);
            if at % 8 == 0 {
                look_at_everything(&bytes[..at]);
            }
        }
    }
}

/// Numbers that are implausible as a length or address, in a few places at once.
#[test]
fn files_of_hostile_numbers_are_errors_and_no_panics() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap()
    };
    let hostile = [u64::MAX, u64::MAX >> 1, 1 << 40, 0xffff_ffff, 0x8000, 48, 1, 0];
    for round in 0..20_000 {
        let mut bytes = [OLD, NEW, NETCDF4, GROWS][round % 4].to_vec();
        for _ in 0..=random(4) {
            let width = [1, 2, 4, 8][random(4)];
            let at = random(bytes.len() - width);
            let number = hostile[random(hostile.len())].to_le_bytes();
            bytes[at..at + width].copy_from_slice(&number[..width]);
        }
        look_at_everything(&bytes);
    }
}
