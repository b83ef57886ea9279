//! Tests of archives of classic files, which the tests write themselves, against a naive model.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use bedform_geometry::{
    AxisRange, AxisSelection, Points, Region, Selection, delinearize, element_count,
};
use proptest::prelude::*;

use super::cut::{FilePart, cut, files_of, files_of_selection};
use super::*;
use crate::array::{Array, VisitedElements};
use crate::options::OpenOptions;
use crate::store::Store;

const WIDTH: u64 = 3;

/// A directory of one test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("bedform-archive-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir(&directory).unwrap();
        Self(directory)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Writes a classic file with the variable `v` of `length` rows that count from `start` on: as
/// records, or contiguous.
fn write_classic(path: &Path, start: u64, length: u64, has_records: bool) {
    let word = |number: u64| u32::try_from(number).unwrap().to_be_bytes();
    let name = |text: &str| {
        let mut bytes = word(text.len() as u64).to_vec();
        bytes.extend(text.as_bytes());
        bytes.resize(4 + text.len().next_multiple_of(4), 0);
        bytes
    };
    let mut bytes = b"CDF\x01".to_vec();
    bytes.extend(word(if has_records { length } else { 0 }));
    bytes.extend([word(10), word(2)].concat());
    bytes.extend([name("time"), word(if has_records { 0 } else { length }).to_vec()].concat());
    bytes.extend([name("x"), word(WIDTH).to_vec()].concat());
    bytes.extend([word(0), word(0), word(11), word(1)].concat());
    bytes.extend([name("v"), [word(2), word(0), word(1), word(0), word(0)].concat()].concat());
    let size = if has_records { WIDTH * 4 } else { length * WIDTH * 4 };
    let begin = bytes.len() as u64 + 12;
    bytes.extend([word(4), word(size), word(begin)].concat());
    for number in start * WIDTH..(start + length) * WIDTH {
        bytes.extend(word(number));
    }
    fs::write(path, bytes).unwrap();
}

/// Opens files of these lengths, every second one with records, as one store.
fn archive(scratch: &Scratch, lengths: &[u64]) -> Store {
    let mut start = 0;
    let paths = lengths.iter().enumerate().map(|(number, length)| {
        let path = scratch.0.join(format!("{number}.nc"));
        write_classic(&path, start, *length, number % 2 == 0);
        start += length;
        path
    });
    let paths: Vec<PathBuf> = paths.collect();
    let sidecar = fs::create_dir_all(scratch.0.join("kept")).map(|()| scratch.0.join("kept"));
    let kept =
        bedform_storage::LocalStorage::open(&sidecar.unwrap(), bedform_storage::Mode::ReadWrite);
    let directory = bedform_format::ObjectPath::parse("archive").unwrap();
    let sidecar = crate::sidecar::Sidecar::in_storage(Arc::new(kept.unwrap()), directory, None);
    let options = OpenOptions { sidecar: Some(sidecar), ..OpenOptions::default() };
    let join = JoinOptions { dimension: Some("time".to_owned()), ..JoinOptions::default() };
    let how = ArchiveOptions { join, ..ArchiveOptions::default() };
    Store::open_archive(&paths, &how, options).unwrap()
}

fn variable(store: &Store) -> Array {
    store.array(&bedform_format::ObjectPath::parse("v").unwrap()).unwrap()
}

/// Returns the positions of a selection in the order of its result.
fn positions(selection: &Selection) -> Vec<Vec<u64>> {
    let of_box = |axes: &[AxisSelection]| -> Vec<Vec<u64>> {
        let shape: Vec<u64> = axes.iter().map(AxisSelection::len).collect();
        let count = element_count(&shape).unwrap();
        let at = |number| {
            let places = delinearize(number, &shape);
            axes.iter().zip(places).map(|(axis, place)| axis.get(place).unwrap()).collect()
        };
        (0..count).map(at).collect()
    };
    match selection {
        Selection::Orthogonal(axes) => of_box(axes),
        Selection::Union(regions) => {
            let axes = |region: &Region| {
                let axes = region.start().iter().zip(region.shape());
                let axes = axes.map(|(start, length)| {
                    AxisSelection::Range(AxisRange::contiguous(*start, *length).unwrap())
                });
                of_box(&axes.collect::<Vec<_>>())
            };
            regions.iter().flat_map(axes).collect()
        }
        Selection::Points(points) => (0..usize::try_from(points.count()).unwrap())
            .map(|number| points.coords().iter().map(|axis| axis[number]).collect())
            .collect(),
    }
}

fn axis(size: u64) -> impl Strategy<Value = AxisSelection> {
    let last = i64::try_from(size).unwrap() - 1;
    let range = (0..=last, 0..=last, 1..4_i64).prop_map(|(a, b, step)| {
        let step = if a <= b { step } else { -step };
        let count = (b - a).unsigned_abs() / step.unsigned_abs() + 1;
        AxisSelection::Range(AxisRange::new(a.unsigned_abs(), step, count).unwrap())
    });
    prop_oneof![range, prop::collection::vec(0..size, 0..6).prop_map(AxisSelection::Coords)]
}

fn region(rows: u64) -> impl Strategy<Value = Region> {
    let along = |size: u64| (0..size).prop_flat_map(move |start| (Just(start), 0..=size - start));
    (along(rows), along(WIDTH)).prop_map(|((a, n), (b, m))| Region::new([a, b], [n, m]).unwrap())
}

fn selection(rows: u64) -> impl Strategy<Value = Selection> {
    let points = prop::collection::vec((0..rows, 0..WIDTH), 0..9).prop_map(|points| {
        let (rows, columns) = points.into_iter().unzip();
        Selection::Points(Points::new(vec![rows, columns]).unwrap())
    });
    prop_oneof![
        (axis(rows), axis(WIDTH)).prop_map(|(rows, row)| Selection::Orthogonal(vec![rows, row])),
        prop::collection::vec(region(rows), 0..5).prop_map(Selection::Union),
        points,
    ]
}

/// Lengths of files, at least one of them with a row, and a selection of all rows.
fn case() -> impl Strategy<Value = (Vec<u64>, Selection)> {
    let lengths = prop::collection::vec(0_u64..5, 1..6)
        .prop_filter("nothing to select", |lengths| lengths.iter().sum::<u64>() > 0);
    lengths.prop_flat_map(|lengths| {
        let rows = lengths.iter().sum();
        (Just(lengths), selection(rows))
    })
}

proptest! {
    #[test]
    fn parts_of_a_selection_send_each_element_of_a_file_to_its_place((lengths, selection) in case()) {
        let mut starts = vec![0];
        lengths.iter().for_each(|length| starts.push(starts.last().unwrap() + length));
        let mut found = BTreeMap::new();
        for (file, part) in cut(&selection, 0, &starts).unwrap() {
            let mut add = |place: u64, mut position: Vec<u64>| {
                assert!(position[0] < lengths[file]);
                position[0] += starts[file];
                assert!(found.insert(place, position).is_none(), "a place twice");
            };
            match part {
                FilePart::Points(points, places) => {
                    let positions = positions(&Selection::Points(points));
                    places.into_iter().zip(positions).for_each(|(place, at)| add(place, at));
                }
                FilePart::Boxes(boxes) => for part in boxes {
                    let axes: Vec<_> = part.axes.iter().map(|axis| AxisSelection::from(&axis.positions)).collect();
                    let shape: Vec<u64> = axes.iter().map(AxisSelection::len).collect();
                    for (number, position) in positions(&Selection::Orthogonal(axes)).into_iter().enumerate() {
                        let inside = delinearize(number as u64, &shape);
                        let place = part.axes.iter().zip(inside).map(|(axis, at)| axis.result.get(at).unwrap());
                        let place: Vec<u64> = place.collect();
                        add(part.behind + bedform_geometry::linearize(&place, &part.result_shape), position);
                    }
                }
            }
        }
        let expected: BTreeMap<u64, Vec<u64>> = (0..).zip(positions(&selection)).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn no_file_counts_as_read_that_has_nothing_of_a_selection((lengths, selection) in case()) {
        let mut starts = vec![0];
        lengths.iter().for_each(|length| starts.push(starts.last().unwrap() + length));
        let of_position = |at: &Vec<u64>| starts.iter().rposition(|start| *start <= at[0]).unwrap();
        let expected: BTreeSet<usize> = positions(&selection).iter().map(of_position).collect();
        prop_assert_eq!(&files_of_selection(&selection, 0, &starts).unwrap(), &expected);
        // Of a part of a read only the positions along the joined axis are known.
        if let Selection::Orthogonal(axes) = selection && !axes[1].is_empty() {
            prop_assert_eq!(files_of(&axes[0], &starts), expected);
        }
    }
}

#[test]
fn reads_and_visits_of_joined_files_are_those_of_one_array() {
    let scratch = Scratch::new("reads");
    let lengths = [3, 2, 0, 4];
    let store = archive(&scratch, &lengths);
    let v = variable(&store);
    assert_eq!(v.shape().unwrap(), [9, WIDTH]);
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let check = |selection: Selection| {
        let value = |at: &Vec<u64>| u32::try_from(at[0] * WIDTH + at[1]).unwrap();
        let expected: Vec<u32> = positions(&selection).iter().map(value).collect();
        let mut buffer = vec![0; expected.len() * 4];
        v.read(&selection, &mut buffer).unwrap();
        #[allow(clippy::host_endian_bytes)]
        let numbers = |bytes: &[u8]| -> Vec<u32> {
            bytes.as_chunks().0.iter().map(|bytes| u32::from_ne_bytes(*bytes)).collect()
        };
        assert_eq!(numbers(&buffer), expected);
        // A visitor sees each chunk once, at its place in the whole, and every element that is
        // selected.
        let seen = Mutex::new((Vec::new(), vec![None; expected.len()]));
        v.visit(&selection, &|chunk| {
            let VisitedElements::Bytes(bytes) = chunk.elements() else { panic!("no bytes") };
            let region = chunk.region();
            let elements = numbers(bytes);
            let first = region.start()[0] * WIDTH;
            assert_eq!(elements[0], u32::try_from(first).unwrap());
            assert_eq!(elements.len() as u64, region.shape()[0] * WIDTH);
            let (regions, places) = &mut *seen.lock().unwrap();
            regions.push(region.start().to_vec());
            chunk.for_each_run(|run| {
                for at in 0..run.count {
                    places[run.result + at] = Some(elements[run.element + at]);
                }
                Ok(())
            })
        })
        .unwrap();
        let (mut regions, places) = seen.into_inner().unwrap();
        assert_eq!(places, expected.into_iter().map(Some).collect::<Vec<_>>());
        let all = regions.len();
        regions.sort();
        regions.dedup();
        assert_eq!(regions.len(), all, "a chunk twice");
        v.explain(&selection).unwrap();
        v.estimate(&selection).unwrap();
        Ok(())
    };
    runner.run(&selection(9), check).unwrap();
    let path = [bedform_format::ObjectPath::parse("v").unwrap()];
    assert!(store.verify(Some(&path), &|_, _| ()).unwrap().problems.is_empty());
}

#[test]
fn a_file_that_is_cut_after_it_was_opened_is_an_error_that_names_it() {
    let scratch = Scratch::new("cut");
    let store = archive(&scratch, &[3, 2, 4]);
    let v = variable(&store);
    let mut buffer = vec![0; 9 * 3 * 4];
    v.read(&Selection::all(&[9, WIDTH]), &mut buffer).unwrap();
    write_classic(&scratch.0.join("1.nc"), 0, 1, false);
    let error = v.read(&Selection::all(&[9, WIDTH]), &mut buffer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("1.nc"), "{error}");
    fs::remove_file(scratch.0.join("2.nc")).unwrap();
    let last = Selection::Orthogonal(vec![
        AxisSelection::Range(AxisRange::contiguous(6, 2).unwrap()),
        AxisSelection::Range(AxisRange::whole(WIDTH)),
    ]);
    let error = v.read(&last, &mut buffer[..24]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("2.nc"), "{error}");
}
