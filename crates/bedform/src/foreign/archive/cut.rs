//! Selections of a joined variable, cut into one part for each file.

use std::collections::{BTreeMap, BTreeSet};

use bedform_geometry::{
    AxisRange, AxisSelection, ChunkGrid, PlacedAxis, Points, Positions, Region, Selection,
};

use crate::error::{Error, ErrorKind, Result};
use crate::plan::geometry::{BoxPart, Geometry};

/// The most listed positions that the parts of one selection may have together.
const LISTED_MAX: u64 = 1 << 26;

/// The part of a selection in one file, in the file's own positions.
#[derive(Debug)]
pub(super) enum FilePart {
    Boxes(Vec<BoxPart>),
    /// Points, and their places in the result.
    Points(Points, Vec<u64>),
}

/// The files that a selection touches, in their order, each with its part.
pub(super) type PartsByFile = BTreeMap<usize, FilePart>;

impl FilePart {
    /// Returns the chunks of the file that the part touches, and the places of their elements in
    /// the result.
    ///
    /// # Errors
    /// As [`Geometry::new`].
    pub(super) fn geometry(
        self,
        grid: &ChunkGrid,
        per_object: &[u64],
        item_size: usize,
    ) -> Result<Geometry> {
        match self {
            Self::Boxes(parts) => Geometry::of_parts(grid, per_object, &parts, item_size),
            Self::Points(points, places) => {
                Geometry::placed_points(grid, per_object, points, &places, item_size)
            }
        }
    }
}

/// Cuts a selection, which fits the joined variable, at the files' `starts` along `axis`.
///
/// # Errors
/// `LimitExceeded` for a selection that is too large to plan.
pub(super) fn cut(selection: &Selection, axis: usize, starts: &[u64]) -> Result<PartsByFile> {
    let mut parts = PartsByFile::new();
    if selection.len() == Some(0) {
        return Ok(parts);
    }
    match selection {
        Selection::Orthogonal(axes) => {
            let result_shape = selection.result_shape();
            let whole: Vec<PlacedAxis> = axes.iter().map(PlacedAxis::whole).collect();
            add_box(&mut parts, &whole, (&result_shape, 0), (axis, starts))?;
        }
        Selection::Union(regions) => {
            let mut behind = 0_u64;
            for region in regions {
                let axes = axes_of(region)?;
                let whole: Vec<PlacedAxis> = axes.iter().map(PlacedAxis::whole).collect();
                add_box(&mut parts, &whole, (region.shape(), behind), (axis, starts))?;
                behind = behind.saturating_add(region.len().unwrap_or(u64::MAX));
            }
        }
        Selection::Points(points) => return cut_points(points, |place| place, axis, starts),
    }
    Ok(parts)
}

/// As [`cut`], for a part of a selection whose elements fill a box of a result of `result_shape`.
///
/// # Errors
/// As [`cut`].
pub(super) fn cut_part(
    part: &[PlacedAxis],
    result_shape: &[u64],
    axis: usize,
    starts: &[u64],
) -> Result<PartsByFile> {
    let mut parts = PartsByFile::new();
    add_box(&mut parts, part, (result_shape, 0), (axis, starts))?;
    Ok(parts)
}

/// Returns the file that has position `at`.
pub(super) fn file_of(starts: &[u64], at: u64) -> usize {
    // Several files begin at one position if some of them are empty; the last of these has the
    // element.
    starts.partition_point(|start| *start <= at).saturating_sub(1)
}

/// Returns the files that have some of the positions.
pub(super) fn files_of(positions: &AxisSelection, starts: &[u64]) -> BTreeSet<usize> {
    match positions {
        AxisSelection::Range(range) => files_of_range(range, starts),
        AxisSelection::Coords(list) => files_of_list(list, starts),
    }
}

/// As [`files_of`], for positions of a part.
pub(super) fn files_at(positions: &Positions, starts: &[u64]) -> BTreeSet<usize> {
    match positions {
        Positions::Range(range) => files_of_range(range, starts),
        Positions::List(list) => files_of_list(list, starts),
    }
}

fn files_of_range(range: &AxisRange, starts: &[u64]) -> BTreeSet<usize> {
    let Some((low, high)) = range.bounds() else { return BTreeSet::new() };
    let step = range.step().unsigned_abs();
    // The first position that is not before the file.
    let first = |start: u64| {
        let steps = start.saturating_sub(low).div_ceil(step);
        low.saturating_add(steps.saturating_mul(step))
    };
    let files = file_of(starts, low)..=file_of(starts, high);
    files.filter(|file| first(starts[*file]) < starts[file + 1]).collect()
}

fn files_of_list(positions: &[u64], starts: &[u64]) -> BTreeSet<usize> {
    let (mut files, mut last) = (BTreeSet::new(), 0..0);
    for at in positions {
        // Neighbours in a list are mostly in one file.
        if !last.contains(at) {
            let file = file_of(starts, *at);
            last = starts[file]..starts[file + 1];
            files.insert(file);
        }
    }
    files
}

/// Returns the files that a selection touches, which fits the joined variable.
///
/// # Errors
/// `InvalidArgument` for a region that no range describes.
pub(super) fn files_of_selection(
    selection: &Selection,
    axis: usize,
    starts: &[u64],
) -> Result<BTreeSet<usize>> {
    if selection.len() == Some(0) {
        return Ok(BTreeSet::new());
    }
    match selection {
        Selection::Orthogonal(axes) => Ok(files_of(&axes[axis], starts)),
        Selection::Union(regions) => {
            let mut files = BTreeSet::new();
            for region in regions.iter().filter(|region| region.len() != Some(0)) {
                files.extend(files_of(&axes_of(region)?[axis], starts));
            }
            Ok(files)
        }
        Selection::Points(points) => Ok(files_of_list(&points.coords()[axis], starts)),
    }
}

fn axes_of(region: &Region) -> Result<Vec<AxisSelection>> {
    let axes = region.start().iter().zip(region.shape());
    let axes = axes
        .map(|(start, length)| Ok(AxisSelection::Range(AxisRange::contiguous(*start, *length)?)));
    axes.collect()
}

/// Adds the parts of one box of a selection. Its elements fill a box of `shape` of the result,
/// after `behind` elements.
fn add_box(
    parts: &mut PartsByFile,
    axes: &[PlacedAxis],
    (shape, behind): (&[u64], u64),
    (axis, starts): (usize, &[u64]),
) -> Result<()> {
    if axes.iter().any(|axis| axis.is_empty()) {
        return Ok(());
    }
    let along = along_files(&axes[axis], starts);
    let listed = |placed: &PlacedAxis| match &placed.positions {
        Positions::List(list) => list.len() as u64,
        Positions::Range(_) => 0,
    };
    // Each file has a copy of the other axes.
    let others = axes.iter().enumerate().filter(|(number, _)| *number != axis);
    let others: u64 = others.map(|(_, placed)| listed(placed)).sum();
    if others.saturating_mul(along.len() as u64) > LISTED_MAX {
        return Err(Error::new(
            ErrorKind::LimitExceeded,
            "the selection has too long lists for so many files; read it in parts",
        ));
    }
    for (file, placed) in along {
        let mut axes = axes.to_vec();
        axes[axis] = placed;
        let part = BoxPart { axes, result_shape: shape.to_vec(), behind };
        match parts.entry(file).or_insert_with(|| FilePart::Boxes(Vec::new())) {
            FilePart::Boxes(boxes) => boxes.push(part),
            FilePart::Points(..) => {}
        }
    }
    Ok(())
}

/// Returns the positions along the joined axis for each file, counted from the file's first.
fn along_files(whole: &PlacedAxis, starts: &[u64]) -> Vec<(usize, PlacedAxis)> {
    match &whole.positions {
        Positions::Range(range) => {
            let of_file = |file: usize| {
                let (inside, _) = whole.at(starts[file], starts[file + 1]);
                Some((file, inside?.relative_to(starts[file])))
            };
            files_of_range(range, starts).into_iter().filter_map(of_file).collect()
        }
        Positions::List(list) => {
            let mut by_file: BTreeMap<usize, (Vec<u64>, Vec<u64>)> = BTreeMap::new();
            for (place, at) in whole.result.iter().zip(list.iter()) {
                let file = file_of(starts, *at);
                let (positions, places) = by_file.entry(file).or_default();
                positions.push(at - starts[file]);
                places.push(place);
            }
            let placed =
                |(file, (positions, places))| (file, PlacedAxis::listed(positions, places));
            by_file.into_iter().map(placed).collect()
        }
    }
}

/// As [`cut`], for points; `place_of` returns the place in the result for the number of a point.
///
/// # Errors
/// As [`cut`].
pub(super) fn cut_points(
    points: &Points,
    place_of: impl Fn(u64) -> u64,
    axis: usize,
    starts: &[u64],
) -> Result<PartsByFile> {
    let mut parts = PartsByFile::new();
    let mut by_file: BTreeMap<usize, (Vec<Vec<u64>>, Vec<u64>)> = BTreeMap::new();
    for (place, at) in points.coords()[axis].iter().enumerate() {
        let file = file_of(starts, *at);
        let (coords, places) =
            by_file.entry(file).or_insert_with(|| (vec![Vec::new(); points.rank()], Vec::new()));
        for (number, (to, from)) in coords.iter_mut().zip(points.coords()).enumerate() {
            to.push(from[place] - if number == axis { starts[file] } else { 0 });
        }
        places.push(place_of(place as u64));
    }
    for (file, (coords, places)) in by_file {
        parts.insert(file, FilePart::Points(Points::new(coords)?, places));
    }
    Ok(parts)
}
