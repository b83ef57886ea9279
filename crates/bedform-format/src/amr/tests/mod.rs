//! Texts in all forms, random plotfiles, damage, and impossible claims.
#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]

mod hostile;
mod writer;

use bedform_geometry::CellBox;
use proptest::prelude::*;

use super::*;
use crate::{DataType, Endian, Limits};
use writer::{WrittenBox, cell_text, fab_text, header_text, meshes};

const ONE_LEVEL: &str = "NavierStokes-V1.1\n1\n x velocity \n1\n-2.5e-1\n0\n0\n1\n\n\
    ((0) (7) (0))\n12\n0.125\n1\n0\n0 2 -0.25\n12\n0 0.5\n0.5 1\nLevel_0/Cell\n";
/// Two levels, and the lists of four; the text of a third level follows.
const STALE: &str = "HyperCLaw-V1.1\n2\ntemp\nY(OH)\n3\n0.5\n1\n0 0 0 \n1 1 2 \n\
    2 (2,2,4) 2\n((0,0,0) (7,7,7) (0,0,0)) ((0,0,0) (15,15,15) (0,0,0)) ((0,0,0) (31,31,63))\n\
    10 20 40\n0.125 0.125 0.25 \n0.0625 0.0625 0.125 \n0.03125 0.03125 0.03125\n1 1 1\n0\n0\n\
    0 1 0.5\n10\n0 1\n0 1\n0 2\nLevel_0/Cell\n1 1 0.5\n20\n0 0.5\n0 nan\n0 1\nLevel_1/Cell\n\
    2 1 0.5\n40\n0 0.5\n0 0.5\n0 1\nLevel_2/Cell\n1e-6\n";
const CELLS: &str = "1\n1\n2\n(1,1,0)\n(2 0\n((-8,0,0) (-1,7,7) (0,0,0))\n((0,0,0)(7,7,7))\n)\n2\n\
    FabOnDisk: Cell_D_00001 0\nFabOnDisk: Cell_D_00000 1106\n\n\
    2,2\n1.0e+00,-nan,\n2,inf,\n\n2,2\n3,4,\n5,6,\n\n";
const FAB: &str = "FAB ((8, (32 8 23 0 1 9 0 127)),(4, (1 2 3 4)))((0,0) (3,1) (0,0)) 3\n";

fn header(text: &str) -> Result<PlotfileHeader, AmrError> {
    PlotfileHeader::parse(text.as_bytes(), &Limits::default())
}

fn cells(text: &str) -> Result<CellHeader, AmrError> {
    CellHeader::parse(text.as_bytes(), &Limits::default())
}

fn fab(text: &str) -> Result<FabHeader, AmrError> {
    FabHeader::parse(text.as_bytes(), &Limits::default())
}

/// Whether a parsed box is the half-open form of a written one.
fn is_same(parsed: CellBox, written: &WrittenBox) -> bool {
    let stop: Vec<i64> = written.highest.iter().map(|highest| highest + 1).collect();
    parsed.start == written.lowest && parsed.stop == stop
}

#[test]
fn a_header_of_one_level_on_one_axis_has_a_blank_line_of_ratios() {
    let found = header(ONE_LEVEL).unwrap();
    assert_eq!((found.format.as_str(), found.rank()), ("NavierStokes-V1.1", 1));
    assert_eq!(found.components, ["x velocity"]);
    assert_eq!((found.time, found.lower[0], found.upper[0]), (-0.25, 0.0, 1.0));
    assert_eq!(found.coordinate_system, CoordinateSystem::Cylindrical);
    assert_eq!(found.domains.get(0).unwrap().stop, [8]);
    let [level] = &found.levels[..] else { panic!() };
    assert_eq!((level.step, level.boxes, level.spacing[0]), (12, 2, 0.125));
    assert!(level.refinement_ratio.is_empty());
    assert_eq!(level.path.as_str(), "Level_0/Cell");
}

#[test]
fn a_header_with_lists_of_more_levels_has_the_levels_that_it_declares() {
    let found = header(STALE).unwrap();
    assert_eq!((found.levels.len(), found.domains.len()), (2, 2));
    assert_eq!(found.levels[0].refinement_ratio, [2, 2, 2]);
    assert_eq!(found.levels[1].spacing, [0.0625, 0.0625, 0.125]);
    assert_eq!((found.levels[1].step, found.levels[1].boxes), (20, 1));
    let finer = header(&STALE.replacen("\n0.5\n1\n", "\n0.5\n2\n", 1)).unwrap();
    assert_eq!(finer.levels[1].refinement_ratio, [2, 2, 4]);
    assert_eq!(finer.domains.get(2).unwrap().stop, [32, 32, 64]);
}

#[test]
fn spacings_of_more_levels_on_one_axis_are_told_from_the_coordinate_system() {
    for spacings in ["0.125\n", "1\n1\n", "1\n0\n2\n"] {
        let text = ONE_LEVEL.replacen("\n0.125\n", &format!("\n0.125\n{spacings}"), 1);
        let found = header(&text).unwrap();
        assert_eq!(found.coordinate_system, CoordinateSystem::Cylindrical, "{spacings:?}");
        assert_eq!(found.levels[0].spacing, [0.125]);
    }
}

#[test]
fn paths_of_a_level_lie_in_its_directory() {
    let level = &header(STALE).unwrap().levels[1];
    assert_eq!(level.cell_header_path().unwrap().as_str(), "Level_1/Cell_H");
    let file = &cells(CELLS).unwrap().files[0];
    assert_eq!(level.data_path(file).unwrap().as_str(), "Level_1/Cell_D_00001");
}

#[test]
fn boxes_come_without_ghost_cells_and_files_are_listed_once() {
    let found = cells(CELLS).unwrap();
    assert_eq!((found.version, found.components, found.has_fab_headers()), (1, 2, true));
    assert_eq!(found.ghost_cells, [1, 1, 0]);
    let first = found.boxes.get(0).unwrap();
    assert_eq!((first.start, first.stop), (&[-8, 0, 0][..], &[0, 8, 8][..]));
    let files: Vec<_> = found.files.iter().map(crate::ObjectPath::as_str).collect();
    assert_eq!(files, ["Cell_D_00001", "Cell_D_00000"]);
    let places: Vec<_> = found.locations.iter().map(|place| (place.file, place.offset)).collect();
    assert_eq!(places, [(0, 0), (1, 1106)]);
    assert_eq!(found.descriptor, None);
}

#[test]
fn ranges_may_be_infinite_or_not_numbers() {
    let found = cells(CELLS).unwrap();
    let range = |component| match found.component_ranges(CELLS.as_bytes(), component) {
        Some(ComponentRanges::Boxes(ranges)) => {
            ranges.iter().map(|range| (range.least, range.greatest)).collect::<Vec<_>>()
        }
        _ => Vec::new(),
    };
    assert_eq!(range(0), [(1.0, 3.0), (2.0, 5.0)]);
    assert!(range(1)[0].0.is_nan());
    assert_eq!(range(1)[1], (f64::INFINITY, 6.0));
    assert!(range(2).is_empty() && range(u64::MAX).is_empty());
}

#[test]
fn damaged_tables_are_dropped_and_the_rest_is_read() {
    for (old, new) in [
        ("2,inf,", "2,"),
        ("2,inf,", "2,inf,3,"),
        ("2,inf,", "2,inf,3"),
        ("\n2,2\n3", "\n3,2\n3"),
        ("5,6,\n", ""),
        ("3,4,", "3,x,"),
        ("2,2\n1.0e", "2 2\n1.0e"),
    ] {
        let text = CELLS.replacen(old, new, 1);
        let found = cells(&text).unwrap();
        assert_eq!(found.component_ranges(text.as_bytes(), 1), None, "{old:?} {new:?}");
    }
    let start = CELLS.find("2,2").unwrap();
    let found = cells(&CELLS[..start]).unwrap();
    assert_eq!(found.component_ranges(&CELLS.as_bytes()[..start], 0), None);
    assert_eq!(found.component_ranges(b"", 0), None);
    let whole = cells(CELLS).unwrap();
    assert_eq!(whole.component_ranges(&CELLS.as_bytes()[..start], 0), None);
}

#[test]
fn descriptors_give_the_type_and_the_byte_order() {
    for (descriptor, data_type, endian) in [
        (writer::LITTLE_F64, DataType::Float64, Endian::Little),
        (writer::BIG_F64, DataType::Float64, Endian::Big),
        (writer::LITTLE_F32, DataType::Float32, Endian::Little),
    ] {
        let text = CELLS.replacen('1', "2", 1) + descriptor;
        let found = cells(&text).unwrap();
        let descriptor = found.descriptor.unwrap();
        assert_eq!((descriptor.data_type, descriptor.endian), (data_type, endian));
        assert!(!found.has_fab_headers());
        assert_eq!(found.component_ranges(text.as_bytes(), 0), None);
    }
    let error = cells(&CELLS.replacen('1', "2", 1)).unwrap_err();
    assert!(matches!(error, AmrError::Corrupt { .. }), "{error}");
}

#[test]
fn the_header_of_a_fab_gives_the_bytes_of_a_component() {
    let text = [FAB.as_bytes(), &[0xff; 96]].concat();
    let found = FabHeader::parse(&text, &Limits::default()).unwrap();
    assert_eq!((found.data_type, found.endian), (DataType::Float32, Endian::Big));
    assert_eq!((found.components, found.component_bytes), (3, 4 * 2 * 4));
    assert_eq!(found.header_bytes, FAB.len());
    assert_eq!(found.cells().stop, [4, 2]);
}

#[test]
fn texts_of_one_plotfile_are_checked_against_each_other() {
    let one = "1\n1\n2\n0\n(1 0\n((0,0,0) (7,7,7) (0,0,0))\n)\n1\nFabOnDisk: a 0\n";
    let level = cells(one).unwrap();
    let whole = header(STALE).unwrap();
    level.check(&whole, 0).unwrap();
    for (text, number, message) in [
        (CELLS, 0, "damaged AMReX plotfile: level 0 has 2 boxes in its Cell_H and 1 in the Header"),
        (
            &one.replacen("\n2\n", "\n3\n", 1),
            1,
            "damaged AMReX plotfile: level 1 has 3 components in its Cell_H and 2 in the Header",
        ),
        (one, 2, "damaged AMReX plotfile: no level 2 in a Header of 2 levels"),
    ] {
        assert_eq!(cells(text).unwrap().check(&whole, number).unwrap_err().to_string(), message);
    }
    let ghosts = cells(CELLS).unwrap();
    let first = |cells: &str| fab(&format!("FAB {}{cells} 2\n", writer::BIG_F64)).unwrap();
    first("((-9,-1,0) (0,8,7) (0,0,0))").check(&ghosts, 0).unwrap();
    for other in ["((-9,-1,0) (0,8,8) (0,0,0))", "((-8,0,0) (-1,7,7) (0,0,0))", "((0) (0))"] {
        let error = first(other).check(&ghosts, 0).unwrap_err();
        assert!(error.to_string().contains("the FAB of box 0 has the cells"), "{error}");
    }
    assert!(first("((0) (0))").check(&ghosts, 2).is_err());
    assert!(fab(FAB).unwrap().check(&ghosts, 0).is_err());
}

#[test]
fn a_hundred_thousand_boxes_are_read_from_their_texts() {
    let count = 100_000_u64;
    let mut whole =
        format!("V\n1\nu\n3\n0\n0\n0 0 0\n1 1 1\n\n{BIG}\n0\n1 1 1\n0\n0\n0 {count} 0\n0\n");
    (0..count * 3).for_each(|_| whole += "0.017578125000000000 0.019531250000000000\n");
    whole += "Level_0/Cell\n";
    let found = header(&whole).unwrap();
    assert_eq!(found.levels[0].boxes, count);

    let mut text = format!("1\n1\n1\n0\n({count} 0\n");
    let (mut boxes, mut places) = (String::new(), String::new());
    for at in 0..count {
        boxes += &format!("(({at},8,16) ({at},15,23) (0,0,0))\n");
        places += &format!("FabOnDisk: Cell_D_{:05} {at}\n", at % 256);
    }
    text += &format!("{boxes})\n{count}\n{places}\n");
    let level = cells(&text).unwrap();
    assert_eq!((level.boxes.len() as u64, level.files.len()), (count, 256));
    assert_eq!(level.locations[99_999].offset, 99_999);
    level.check(&found, 0).unwrap();
}

const BIG: &str = "((0,0,0) (131071,31,31) (0,0,0))";

proptest! {
    #[test]
    fn the_header_of_any_plotfile_is_read_as_it_was_written(mesh in meshes()) {
        let found = header(&header_text(&mesh)).unwrap();
        prop_assert_eq!(&found.components, &mesh.names);
        prop_assert_eq!(found.time.to_bits(), mesh.time.to_bits());
        prop_assert_eq!((&found.lower, &found.upper), (&mesh.lower, &mesh.upper));
        prop_assert_eq!(found.levels.len(), mesh.levels.len());
        for (number, (level, written)) in found.levels.iter().zip(&mesh.levels).enumerate() {
            prop_assert!(is_same(found.domains.get(number).unwrap(), &written.domain));
            let is_last = number + 1 == mesh.levels.len();
            prop_assert_eq!(&level.refinement_ratio[..], if is_last { &[] } else { &written.ratio[..] });
            prop_assert_eq!((level.step, &level.spacing), (written.step, &written.spacing));
            prop_assert_eq!(level.boxes, written.boxes.len() as u64);
            prop_assert_eq!(level.path.as_str(), format!("Level_{number}/Cell"));
        }
    }

    #[test]
    fn the_levels_of_any_plotfile_are_read_as_they_were_written(
        mesh in meshes(),
        version in 1..=4_u8,
        endian in prop_oneof![Just(Endian::Little), Just(Endian::Big)],
    ) {
        let whole = header(&header_text(&mesh)).unwrap();
        for (number, written) in mesh.levels.iter().enumerate() {
            let text = cell_text(&mesh, written, version);
            let found = cells(&text).unwrap();
            found.check(&whole, number).unwrap();
            prop_assert_eq!(&found.ghost_cells, &written.ghosts);
            prop_assert_eq!(found.descriptor.is_some(), version > 1);
            for (at, one) in written.boxes.iter().enumerate() {
                prop_assert!(is_same(found.boxes.get(at).unwrap(), one));
                let place = found.locations[at];
                let file = found.files[place.file as usize].as_str();
                prop_assert_eq!(file, format!("Cell_D_{:05}", one.file));
                prop_assert_eq!(place.offset, one.offset);
                let head = fab(&fab_text(&mesh, written, at, endian)).unwrap();
                prop_assert_eq!(head.endian, endian);
                head.check(&found, at).unwrap();
            }
            for component in 0..mesh.names.len() {
                let expected = |range: &ComponentRange, at: usize| {
                    let (least, greatest) = written.ranges[at][component];
                    range.least.total_cmp(&least).is_eq() && range.greatest.total_cmp(&greatest).is_eq()
                };
                match found.component_ranges(text.as_bytes(), component as u64) {
                    Some(ComponentRanges::Boxes(ranges)) => {
                        prop_assert!(version == 1 || version == 3);
                        prop_assert_eq!(ranges.len(), written.boxes.len());
                        prop_assert!(ranges.iter().enumerate().all(|(at, one)| expected(one, at)));
                    }
                    Some(ComponentRanges::Level(range)) => {
                        prop_assert!(version == 4 && expected(&range, 0));
                    }
                    None => prop_assert_eq!(version, 2),
                }
            }
        }
    }
}
