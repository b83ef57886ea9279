//! A visitor gets the chunks of a read, each once, and prefetched chunks are not decoded again.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bedform::foreign::source_version;
use bedform::{Array, Error, ErrorKind, ForeignFile, NewArray, OpenOptions, VisitedElements};
use bedform_format::chunk_map::{ChunkMap, ForeignArray, ForeignEncoding, ForeignStorage};
use bedform_format::{DataType, Endian, ObjectPath};
use bedform_geometry::{ChunkGrid, Region, Selection};
use bedform_storage::{Condition, Durability, MemoryStorage, Storage};
use proptest::prelude::*;

use super::arrays::{model_of, path, read, with};
use super::cases;
use super::model::{Element, Model, Numbers, points_selected};
use super::overlay::{commit, create, open};
use super::strategies::{TYPES, new_array, selection};

/// Larger than all cached data of this process, so nothing is evicted.
const CACHE_BYTES: u64 = 256 << 20;

/// An array after random writes, some of them in overlapping commits, with the expected elements.
fn written(new: &NewArray, numbers: &mut Numbers, cache_bytes: u64) -> (Array, Model) {
    let storage = create(new);
    let mut model = model_of(new);
    for _ in 0..numbers.below(5) {
        let selection = selection(&new.shape, numbers);
        let elements = numbers.elements(new.data_type, selection.len().unwrap());
        let is_direct = new.data_type == DataType::String || numbers.below(2) == 0;
        if is_direct && matches!(selection, Selection::Union(_)) {
            continue;
        }
        model.write(&selection, &elements);
        if is_direct {
            let array = open(&storage, 0).array(&path()).unwrap();
            with(new.data_type, &elements, |elements| array.write(&selection, elements).unwrap());
        } else {
            commit(&storage, &[(path(), selection, elements.concat())]);
        }
    }
    (open(&storage, cache_bytes).array(&path()).unwrap(), model)
}

/// Splits a chunk into its elements.
fn split(elements: VisitedElements<'_>, data_type: DataType) -> Vec<Element> {
    match elements {
        VisitedElements::Bytes(bytes) => {
            bytes.chunks(data_type.item_size().unwrap()).map(<[u8]>::to_vec).collect()
        }
        VisitedElements::Texts(texts) => {
            texts.iter().map(|text| text.as_bytes().to_vec()).collect()
        }
    }
}

/// Visits chunks, and returns their regions and the result assembled from them.
fn visited(
    array: &Array,
    model: &Model,
    data_type: DataType,
    selection: &Selection,
) -> (Vec<Region>, Vec<Option<Element>>) {
    let count = usize::try_from(selection.len().unwrap()).unwrap();
    let seen = Mutex::new((Vec::new(), vec![None; count]));
    let visitor = |chunk: &bedform::VisitedChunk<'_>| {
        let elements = split(chunk.elements(), data_type);
        assert_eq!(elements, model.read(&Selection::from(chunk.region().clone())));
        let mut seen = seen.lock().unwrap();
        seen.0.push(chunk.region().clone());
        let mut selected = 0;
        chunk.for_each_run(|run| {
            for at in 0..run.count {
                let place = &mut seen.1[run.result + at];
                assert!(place.is_none(), "element {} comes twice", run.result + at);
                *place = Some(elements[run.element + at].clone());
            }
            selected += run.count;
            Ok(())
        })?;
        assert!(!chunk.is_selected_whole() || selected == elements.len());
        Ok(())
    };
    array.visit(selection, &visitor).unwrap();
    seen.into_inner().unwrap()
}

fn is_raw(new: &NewArray) -> bool {
    let layout = &new.layout;
    layout.codecs.is_empty() && layout.serializer.is_none() && !layout.checksum
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn chunks_that_are_visited_reassemble_to_what_a_read_gives_and_each_comes_once(
        new in new_array(&TYPES),
        cache in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let numbers = &mut Numbers(seed);
        let (array, model) = written(&new, numbers, if cache { 1 << 20 } else { 0 });
        let grid = ChunkGrid::new(new.shape.clone(), new.layout.chunk_shape.clone()).unwrap();
        for _ in 0..4 {
            let selection = selection(&new.shape, numbers);
            let (regions, result) = visited(&array, &model, new.data_type, &selection);
            let result: Vec<Element> = result.into_iter().map(Option::unwrap).collect();
            prop_assert_eq!(&result, &read(&array, new.data_type, &selection));
            let region = |point: &Vec<u64>| grid.chunk_region_clipped(&grid.chunk_of(point));
            let key = |region: Region| (region.start().to_vec(), region.shape().to_vec());
            let touched: BTreeSet<_> =
                points_selected(&selection).iter().map(|point| key(region(point))).collect();
            prop_assert_eq!(regions.len(), touched.len());
            prop_assert_eq!(regions.into_iter().map(key).collect::<BTreeSet<_>>(), touched);
        }
    }

    #[test]
    fn a_read_of_what_was_prefetched_decodes_nothing(
        new in new_array(&TYPES[..14]),
        seed in any::<u64>(),
    ) {
        let numbers = &mut Numbers(seed);
        let (array, model) = written(&new, numbers, CACHE_BYTES);
        let selection = selection(&new.shape, numbers);
        let done = array.prefetch(&selection).unwrap();
        if !is_raw(&new) {
            prop_assert_eq!(done.left_out, 0);
        }
        let bytes = usize::try_from(array.result_bytes(&selection).unwrap()).unwrap();
        let mut buffer = vec![0xa5; bytes];
        let statistics = array.read(&selection, &mut buffer).unwrap();
        prop_assert_eq!(buffer, model.read(&selection).concat());
        prop_assert!(is_raw(&new) || statistics.chunks == 0, "{:?}", statistics);
        let again = array.prefetch(&selection).unwrap();
        prop_assert_eq!(again.read.chunks, 0);
        prop_assert!(is_raw(&new) || again.left_out == 0);
    }
}

#[test]
fn an_error_of_a_visitor_ends_the_visit_and_is_its_error() {
    let new = super::overlay::layout(&[64], &[4], &[16]);
    let array = open(&create(&new), 0).array(&path()).unwrap();
    let calls = AtomicUsize::new(0);
    let visitor = |_: &bedform::VisitedChunk<'_>| {
        calls.fetch_add(1, Ordering::Relaxed);
        Err(Error::new(ErrorKind::SnapshotMoved, "seen enough"))
    };
    let error = array.visit(&Selection::all(&[64]), &visitor).unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (ErrorKind::SnapshotMoved, "seen enough")
    );
    assert_eq!(calls.into_inner(), 1, "the read stays on one thread and is not made anew");
}

/// A contiguous variable of big-endian numbers in a file of its own.
fn contiguous(shape: &[u64]) -> Array {
    let count = shape.iter().product::<u64>();
    let bytes: Vec<u8> =
        (0..count).flat_map(|at| at.wrapping_mul(40_503).to_le_bytes()[..2].to_vec()).collect();
    let (storage, name) = (Arc::new(MemoryStorage::new()), ObjectPath::parse("f.nc").unwrap());
    storage.put(&name, &bytes, Durability::Process, Condition::None).unwrap();
    let variable = ForeignArray {
        path: "v".to_owned(),
        shape: shape.to_vec(),
        unlimited: vec![false; shape.len()],
        data_type: Some(DataType::UInt16),
        endian: Endian::Big,
        fill_value: None,
        dimension_names: None,
        attributes: Vec::new(),
        encoding: ForeignEncoding::default(),
        storage: ForeignStorage::Contiguous { offset: 0, length: bytes.len() as u64 },
    };
    let map = ChunkMap {
        source: source_version(&storage.stat(&name).unwrap()),
        groups: Vec::new(),
        arrays: vec![variable],
        format: "netcdf4".to_owned(),
    };
    let file = ForeignFile::new(storage, name, map, &OpenOptions::default()).unwrap();
    Array::of_file(&file, "v").unwrap()
}

/// A contiguous variable is one chunk of any size; the engine reads a large one in blocks.
#[test]
fn a_variable_without_chunks_is_visited_whole_if_it_is_small_and_in_blocks_if_it_is_large() {
    for (shape, blocks) in [([3, 5, 10], 1), ([1100, 1000, 10], 4)] {
        let array = contiguous(&shape);
        let start = vec![shape[0] / 2 - 1, 1, 2];
        let lengths = vec![shape[0] - start[0], shape[1] - 2, 5];
        let selection = Selection::from(Region::new(start, lengths).unwrap());
        let bytes = usize::try_from(array.result_bytes(&selection).unwrap()).unwrap();
        let (mut expected, found) = (vec![0; bytes], Mutex::new((0, vec![0; bytes])));
        array.read(&selection, &mut expected).unwrap();
        let visitor = |chunk: &bedform::VisitedChunk<'_>| {
            assert!(chunk.bytes().len() <= 4 << 20);
            let mut found = found.lock().unwrap();
            found.0 += 1;
            chunk.for_each_run(|run| {
                let (from, to, bytes) = (2 * run.element, 2 * run.result, 2 * run.count);
                found.1[to..to + bytes].copy_from_slice(&chunk.bytes()[from..from + bytes]);
                Ok(())
            })
        };
        array.visit(&selection, &visitor).unwrap();
        let (visited, found) = found.into_inner().unwrap();
        assert_eq!(visited, blocks);
        assert!(found == expected);
        let done = array.prefetch(&selection).unwrap();
        assert_eq!((done.read.requests, done.left_out), (0, 1));
    }
}
