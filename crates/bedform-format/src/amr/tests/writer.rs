//! Random plotfiles, and a naive writer of their texts.

use std::fmt::Write as _;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::Endian;

/// A box with inclusive bounds, as the texts have it.
#[derive(Debug, Clone)]
pub(super) struct WrittenBox {
    pub(super) lowest: Vec<i64>,
    pub(super) highest: Vec<i64>,
    pub(super) file: u32,
    pub(super) offset: u64,
}

#[derive(Debug, Clone)]
pub(super) struct WrittenLevel {
    pub(super) domain: WrittenBox,
    pub(super) ratio: Vec<u32>,
    pub(super) step: i64,
    pub(super) spacing: Vec<f64>,
    pub(super) boxes: Vec<WrittenBox>,
    pub(super) ghosts: Vec<u32>,
    /// For each box, the least and greatest value of each component.
    pub(super) ranges: Vec<Vec<(f64, f64)>>,
}

#[derive(Debug, Clone)]
pub(super) struct WrittenMesh {
    pub(super) rank: usize,
    pub(super) names: Vec<String>,
    pub(super) time: f64,
    pub(super) lower: Vec<f64>,
    pub(super) upper: Vec<f64>,
    pub(super) levels: Vec<WrittenLevel>,
    /// The number of levels that only the lists of the text have.
    pub(super) stale: usize,
    /// The end of each line.
    pub(super) line_end: &'static str,
}

fn joined<T: ToString>(items: &[T], separator: &str) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(separator)
}

pub(super) fn tuple<T: ToString>(items: &[T]) -> String {
    format!("({})", joined(items, ","))
}

pub(super) fn box_text(cells: &WrittenBox) -> String {
    let centring = vec![0; cells.lowest.len()];
    format!("({} {} {})", tuple(&cells.lowest), tuple(&cells.highest), tuple(&centring))
}

pub(super) fn header_text(mesh: &WrittenMesh) -> String {
    let mut text = format!("HyperCLaw-V1.1\n{}\n", mesh.names.len());
    mesh.names.iter().for_each(|name| text += &format!("{name}\n"));
    let levels = &mesh.levels;
    writeln!(text, "{}\n{:e}\n{}", mesh.rank, mesh.time, levels.len() - 1).unwrap();
    writeln!(text, "{} \n{} ", joined(&mesh.lower, " "), joined(&mesh.upper, " ")).unwrap();
    let last = &levels[levels.len() - 1];
    let listed = || levels.iter().chain(std::iter::repeat_n(last, mesh.stale));
    let ratio = |level: &WrittenLevel| match level.ratio.iter().all(|one| *one == level.ratio[0]) {
        true => format!("{} ", level.ratio[0]),
        false => format!("{} ", tuple(&level.ratio)),
    };
    let ratios = listed().count() - 1;
    listed().take(ratios).for_each(|level| text += &ratio(level));
    text += "\n";
    listed().for_each(|level| text += &format!("{} ", box_text(&level.domain)));
    text += "\n";
    listed().for_each(|level| text += &format!("{} ", level.step));
    text += "\n";
    listed().for_each(|level| text += &format!("{} \n", joined(&level.spacing, " ")));
    text += "0\n0\n";
    for (number, level) in levels.iter().enumerate() {
        let count = level.boxes.len();
        writeln!(text, "{number} {count} {:e}\n{}", mesh.time, level.step).unwrap();
        (0..count * mesh.rank).for_each(|at| text += &format!("{at}.5 {:e}\n", at as f64 + 0.625));
        writeln!(text, "Level_{number}/Cell").unwrap();
    }
    text.replace('\n', mesh.line_end)
}

pub(super) const LITTLE_F64: &str = "((8, (64 11 52 0 1 12 0 1023)),(8, (8 7 6 5 4 3 2 1)))";
pub(super) const BIG_F64: &str = "((8, (64 11 52 0 1 12 0 1023)),(8, (1 2 3 4 5 6 7 8)))";
pub(super) const LITTLE_F32: &str = "((8, (32 8 23 0 1 9 0 127)),(4, (4 3 2 1)))";

pub(super) fn cell_text(mesh: &WrittenMesh, level: &WrittenLevel, version: u8) -> String {
    let components = mesh.names.len();
    let boxes = &level.boxes;
    let count = boxes.len();
    let ghosts = match level.ghosts.iter().all(|one| *one == level.ghosts[0]) {
        true => level.ghosts[0].to_string(),
        false => tuple(&level.ghosts),
    };
    let mut text = format!("{version}\n1\n{components}\n{ghosts}\n({count} 0\n");
    boxes.iter().for_each(|one| text += &format!("{}\n", box_text(one)));
    text += &format!(")\n{count}\n");
    for one in boxes {
        writeln!(text, "FabOnDisk: Cell_D_{:05} {}", one.file, one.offset).unwrap();
    }
    text += "\n";
    for is_least in [true, false] {
        let side = |range: &(f64, f64)| if is_least { range.0 } else { range.1 };
        if let 1 | 3 = version {
            text += &format!("{count},{components}\n");
            for row in &level.ranges {
                row.iter().for_each(|range| text += &format!("{:e},", side(range)));
                text += "\n";
            }
            text += "\n";
        } else if version == 4 {
            level.ranges[0].iter().for_each(|range| text += &format!("{:e},", side(range)));
            text += "\n";
        }
    }
    if version > 1 {
        text += &format!("{LITTLE_F64}\n");
    }
    text.replace('\n', mesh.line_end)
}

/// The header of the FAB of a box, with the ghost cells of its level.
pub(super) fn fab_text(
    mesh: &WrittenMesh,
    level: &WrittenLevel,
    number: usize,
    endian: Endian,
) -> String {
    let mut grown = level.boxes[number].clone();
    for (axis, ghost) in level.ghosts.iter().enumerate() {
        grown.lowest[axis] -= i64::from(*ghost);
        grown.highest[axis] += i64::from(*ghost);
    }
    let descriptor = if endian == Endian::Little { LITTLE_F64 } else { BIG_F64 };
    format!("FAB {descriptor}{} {}\n", box_text(&grown), mesh.names.len())
}

fn boxes(rank: usize) -> impl Strategy<Value = WrittenBox> {
    let axis = (-50_000..50_000_i64, 0..300_i64);
    (vec(axis, rank), 0..4_u32, 0..1_u64 << 45).prop_map(|(axes, file, offset)| WrittenBox {
        lowest: axes.iter().map(|(lowest, _)| *lowest).collect(),
        highest: axes.iter().map(|(lowest, more)| lowest + more).collect(),
        file,
        offset,
    })
}

fn levels(rank: usize, components: usize) -> impl Strategy<Value = WrittenLevel> {
    let value = prop_oneof![any::<f64>(), Just(f64::INFINITY), Just(0.0)];
    let range = (value.clone(), value);
    let ranges = vec(vec(range, components), 6);
    let sizes = vec(1e-12..1e6_f64, rank);
    let counts = (vec(1..5_u32, rank), vec(0..4_u32, rank));
    (boxes(rank), counts, 0..1_i64 << 40, sizes, vec(boxes(rank), 1..7), ranges).prop_map(
        |(domain, (ratio, ghosts), step, spacing, boxes, mut ranges)| {
            ranges.truncate(boxes.len());
            WrittenLevel { domain, ratio, step, spacing, boxes, ghosts, ranges }
        },
    )
}

pub(super) fn meshes() -> impl Strategy<Value = WrittenMesh> {
    (1..=3_usize, 1..5_usize, 1..5_usize, 0..3_usize).prop_flat_map(
        |(rank, components, level_count, stale)| {
            let bounds = || vec(-1e3..1e3_f64, rank);
            let finite = any::<f64>().prop_filter("finite", |time| time.is_finite());
            let levels = vec(levels(rank, components), level_count);
            let names = vec("[a-z]{1,3}[ ()/*.a-z0-9]{0,6}[a-z]", components);
            let line_end = prop_oneof![Just("\n"), Just("\r\n")];
            (names, finite, bounds(), bounds(), levels, line_end).prop_map(
                move |(mut names, time, lower, upper, levels, line_end)| {
                    names.iter_mut().enumerate().for_each(|(at, name)| *name += &at.to_string());
                    WrittenMesh { rank, names, time, lower, upper, levels, stale, line_end }
                },
            )
        },
    )
}
