//! The description of a whole plotfile.

use std::collections::HashSet;

use bedform_geometry::BoxList;

use super::checks::{check_boxes, new_list, read_components, relative_path};
use super::error::Result;
use super::text::{AXES_MAX, TextCursor, excerpt};
use crate::shown::is_hidden;
use crate::{Limits, ObjectPath, PathError};

/// Largest number of characters of the name of the format.
const FORMAT_CHARS_MAX: usize = 64;
/// The end of the name of a level's description.
const CELL_HEADER_SUFFIX: &str = "_H";

/// The coordinates that the axes of a plotfile have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CoordinateSystem {
    /// The writer named none.
    Undefined,
    /// Cartesian coordinates.
    Cartesian,
    /// Cylindrical coordinates: radius and height.
    Cylindrical,
    /// Spherical coordinates: radius and angles.
    Spherical,
}

/// A level of a [`PlotfileHeader`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PlotfileLevel {
    /// Cells of the next level along each axis in one cell of this level; empty for the last level.
    pub refinement_ratio: Vec<u32>,
    /// The time step of the simulation.
    pub step: i64,
    /// Size of a cell along each axis in the units of the simulation, above zero.
    pub spacing: Vec<f64>,
    /// The number of boxes, at least 1.
    pub boxes: u64,
    /// The start of the names of the level's files, relative to the plotfile: `Level_0/Cell`.
    pub path: ObjectPath,
}

impl PlotfileLevel {
    /// Returns the path of the text for [`CellHeader::parse`](super::CellHeader::parse), relative
    /// to the plotfile: `Level_0/Cell_H`.
    ///
    /// # Errors
    /// [`PathError`] for a path that is too long; the parser returns no such level.
    pub fn cell_header_path(&self) -> Result<ObjectPath, PathError> {
        ObjectPath::parse(&format!("{}{CELL_HEADER_SUFFIX}", self.path))
    }

    /// Returns the path of a file of [`CellHeader::files`](super::CellHeader::files), relative to
    /// the plotfile: `Level_0/Cell_D_00000`.
    ///
    /// ```
    /// # use bedform_format::{Limits, ObjectPath, amr::PlotfileHeader};
    /// let text = b"HyperCLaw-V1.1\n1\nT\n1\n0\n0\n0\n1\n\n((0) (7) (0))\n0\n0.125\n0\n0\n\
    ///     0 1 0\n0\n0 1\nLevel_0/Cell\n";
    /// let level = &PlotfileHeader::parse(text, &Limits::default())?.levels[0];
    /// let path = level.data_path(&ObjectPath::parse("Cell_D_00000")?)?;
    /// assert_eq!(path.as_str(), "Level_0/Cell_D_00000");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`PathError`] for a path that is too long.
    pub fn data_path(&self, file: &ObjectPath) -> Result<ObjectPath, PathError> {
        self.path.parent().join(file.as_str())
    }
}

/// The text `Header`: components, levels, and the paths of the levels' descriptions.
///
/// Coordinates and times have the units of the simulation, which the text does not name.
///
/// ```
/// use bedform_format::{Limits, amr::PlotfileHeader};
/// let text = b"HyperCLaw-V1.1\n2\ndensity\nY(OH)\n2\n0.5\n1\n0 0\n1 1\n2\n\
///     ((0,0) (7,7) (0,0)) ((0,0) (15,15) (0,0))\n9 18\n0.125 0.125\n0.0625 0.0625\n0\n0\n\
///     0 1 0.5\n9\n0 1\n0 1\nLevel_0/Cell\n1 1 0.5\n18\n0 0.5\n0 0.5\nLevel_1/Cell\n";
/// let header = PlotfileHeader::parse(text, &Limits::default())?;
/// assert_eq!(header.components, ["density", "Y(OH)"]);
/// assert_eq!(header.domains.get(1).unwrap().stop, [16, 16]);
/// assert_eq!(header.levels[0].refinement_ratio, [2, 2]);
/// assert_eq!(header.levels[1].cell_header_path().unwrap().as_str(), "Level_1/Cell_H");
/// # Ok::<(), bedform_format::amr::AmrError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PlotfileHeader {
    /// The first line, `HyperCLaw-V1.1` in most plotfiles: up to 64 visible ASCII characters.
    pub format: String,
    /// The names of the components; no two are equal. A name has no hidden characters, but may have
    /// blanks and slashes.
    pub components: Vec<String>,
    /// The time of the simulation, finite.
    pub time: f64,
    /// The lower bound of the domain along each axis, finite.
    pub lower: Vec<f64>,
    /// The upper bound of the domain along each axis, finite.
    pub upper: Vec<f64>,
    /// The coordinates that the axes have.
    pub coordinate_system: CoordinateSystem,
    /// For each level, the box of all cells that it could have, in its own cells.
    pub domains: BoxList,
    /// The levels, coarsest first; at least one.
    pub levels: Vec<PlotfileLevel>,
}

impl PlotfileHeader {
    /// Parses the text.
    ///
    /// The parser reads as many levels as the text declares. A writer may list ratios, domains,
    /// steps and spacings of more levels, or append any text; these are ignored.
    ///
    /// # Errors
    /// [`AmrError::Corrupt`], also for paths that are absolute, contain `..` or hidden characters;
    /// [`AmrError::Unsupported`] for domains that are not cell-centred; [`AmrError::Limit`] for
    /// more levels than `mesh_levels_max`, more components than `mesh_components_max`, more boxes
    /// of a level than `mesh_boxes_max`, and more bytes than `index_bytes_max`. Memory use is at
    /// most 16 times the length of the text, and 128 bytes per component and level.
    ///
    /// [`AmrError::Corrupt`]: super::AmrError::Corrupt
    /// [`AmrError::Unsupported`]: super::AmrError::Unsupported
    /// [`AmrError::Limit`]: super::AmrError::Limit
    pub fn parse(text: &[u8], limits: &Limits) -> Result<Self> {
        let mut cursor = TextCursor::new("Header", text, limits)?;
        let format = read_format(&mut cursor)?;
        let components = read_names(&mut cursor, limits)?;
        let rank = read_rank(&mut cursor)?;
        let time = one(&mut cursor, "the time", TextCursor::finite)?;
        let level_count = read_level_count(&mut cursor, limits)?;
        let [lower, upper] = [
            one(&mut cursor, "a lower bound", |line, what| line.finite_axes(rank, what))?,
            one(&mut cursor, "an upper bound", |line, what| line.finite_axes(rank, what))?,
        ];
        let ratios = read_ratios(&mut cursor, rank, level_count)?;
        let domains = read_domains(&mut cursor, rank, level_count)?;
        let mut line = cursor.line("the steps")?;
        let steps = (0..level_count).map(|_| line.integer("a step")).collect::<Result<Vec<_>>>()?;
        let spacings = read_spacings(&mut cursor, rank, level_count)?;
        let coordinate_system = read_coordinate_system(&mut cursor)?;
        one(&mut cursor, "the width of the boundary", TextCursor::integer)?;
        let mut levels = Vec::new();
        let declared = ratios.into_iter().zip(steps).zip(spacings);
        for (number, ((refinement_ratio, step), spacing)) in declared.enumerate() {
            let boxes = read_grids(&mut cursor, rank, number, limits)?;
            let path = read_level_path(&mut cursor)?;
            levels.push(PlotfileLevel { refinement_ratio, step, spacing, boxes, path });
        }
        Ok(Self { format, components, time, lower, upper, coordinate_system, domains, levels })
    }

    /// The number of axes, 1 to 3.
    pub fn rank(&self) -> usize {
        self.domains.rank()
    }
}

/// Reads a line with one value.
fn one<'a, T>(
    cursor: &mut TextCursor<'a>,
    what: &str,
    read: impl FnOnce(&mut TextCursor<'a>, &str) -> Result<T>,
) -> Result<T> {
    let mut line = cursor.line(what)?;
    let value = read(&mut line, what)?;
    line.finish(what)?;
    Ok(value)
}

fn read_format(cursor: &mut TextCursor) -> Result<String> {
    let before = *cursor;
    let word = one(cursor, "the name of the format", TextCursor::word)?;
    let is_visible = word.iter().all(u8::is_ascii_graphic);
    match std::str::from_utf8(word) {
        Ok(text) if is_visible && word.len() <= FORMAT_CHARS_MAX => Ok(text.to_owned()),
        _ => Err(before.expected("the name of a format such as HyperCLaw-V1.1")),
    }
}

fn read_names(cursor: &mut TextCursor, limits: &Limits) -> Result<Vec<String>> {
    let count = one(cursor, "the number of components", |line, _| read_components(line, limits))?;
    let mut known = HashSet::new();
    let mut names = Vec::new();
    for _ in 0..count {
        let line = cursor.line("the name of a component")?;
        let name = line.rest().trim_ascii();
        let text = std::str::from_utf8(name).ok();
        let Some(text) = text.filter(|text| !text.is_empty() && !text.chars().any(is_hidden))
        else {
            return Err(line.corrupt(format!(
                "the name of a component in visible UTF-8 expected, not {}",
                excerpt(name)
            )));
        };
        if !known.insert(text) {
            return Err(line.corrupt(format!("a second component {}", excerpt(name))));
        }
        names.push(text.to_owned());
    }
    Ok(names)
}

fn read_rank(cursor: &mut TextCursor) -> Result<usize> {
    let before = *cursor;
    let rank = one(cursor, "the number of axes", TextCursor::integer)?;
    match usize::try_from(rank) {
        Ok(rank @ 1..=AXES_MAX) => Ok(rank),
        _ => Err(before.expected(&format!("a number of axes from 1 to {AXES_MAX}"))),
    }
}

/// Reads the number of the finest level; returns the number of levels.
fn read_level_count(cursor: &mut TextCursor, limits: &Limits) -> Result<usize> {
    let before = *cursor;
    let finest = one(cursor, "the finest level", TextCursor::count)?;
    let limit = limits.mesh_levels_max;
    match usize::try_from(finest) {
        Ok(finest) if finest < limit => Ok(finest + 1),
        _ => Err(before.limit(format!("{finest} is the finest of more than {limit} levels"))),
    }
}

/// Reads the refinement ratios of all levels but the last; returns an empty one for the last.
fn read_ratios(cursor: &mut TextCursor, rank: usize, level_count: usize) -> Result<Vec<Vec<u32>>> {
    const WHAT: &str = "a refinement ratio";
    let mut line = cursor.line(WHAT)?;
    let mut ratios = Vec::new();
    for _ in 1..level_count {
        let before = line;
        let ratio = match line.peek() {
            Some(b'(') => line.axis_integers(WHAT)?.as_slice().to_vec(),
            _ => vec![line.integer(WHAT)?; rank],
        };
        let positive = |ratio: &i64| u32::try_from(*ratio).ok().filter(|ratio| *ratio > 0);
        match ratio.iter().map(positive).collect::<Option<Vec<_>>>() {
            Some(ratio) if ratio.len() == rank => ratios.push(ratio),
            _ => return Err(before.expected(&format!("{WHAT} of {rank} positive integers"))),
        }
    }
    ratios.push(Vec::new());
    Ok(ratios)
}

fn read_domains(cursor: &mut TextCursor, rank: usize, level_count: usize) -> Result<BoxList> {
    let mut line = cursor.line("the domains")?;
    let mut domains = new_list(&line, rank)?;
    for _ in 0..level_count {
        let before = line;
        let domain = line.cells()?;
        domains
            .push(domain.start.as_slice(), domain.stop.as_slice())
            .map_err(|error| before.corrupt(format!("the domain of a level: {error}")))?;
    }
    Ok(domains)
}

/// Reads the spacing of each level, and skips the lines with spacings of further levels.
fn read_spacings(
    cursor: &mut TextCursor,
    rank: usize,
    level_count: usize,
) -> Result<Vec<Vec<f64>>> {
    const WHAT: &str = "the spacing of a level";
    let mut spacings = Vec::new();
    while spacings.len() < level_count || is_spacing(cursor, rank) {
        let before = *cursor;
        let spacing = one(cursor, WHAT, |line, what| line.finite_axes(rank, what))?;
        if spacings.len() < level_count {
            if spacing.iter().any(|size| *size <= 0.0) {
                return Err(before.expected(&format!("{WHAT} above zero")));
            }
            spacings.push(spacing);
        }
    }
    Ok(spacings)
}

/// Returns true if the next line is the spacing of a level, not the coordinate system.
///
/// The coordinate system is one number. A spacing along one axis is one number, too; but two lines
/// after the coordinate system is the first line of a level, which has three numbers.
fn is_spacing(cursor: &TextCursor, rank: usize) -> bool {
    let mut cursor = *cursor;
    let mut words = || cursor.line("a number").map_or(0, TextCursor::words_left);
    words() == rank && (rank > 1 || (words() == 1 && words() == 1))
}

fn read_coordinate_system(cursor: &mut TextCursor) -> Result<CoordinateSystem> {
    let before = *cursor;
    match one(cursor, "the coordinate system", TextCursor::integer)? {
        -1 => Ok(CoordinateSystem::Undefined),
        0 => Ok(CoordinateSystem::Cartesian),
        1 => Ok(CoordinateSystem::Cylindrical),
        2 => Ok(CoordinateSystem::Spherical),
        _ => Err(before.expected("a coordinate system from -1 to 2")),
    }
}

/// Reads the lines of a level before its path; returns the number of boxes.
///
/// The physical bounds of the boxes must be numbers, and are not kept: the boxes give them.
fn read_grids(cursor: &mut TextCursor, rank: usize, number: usize, limits: &Limits) -> Result<u64> {
    const BOUND: &str = "a bound of a box";
    let before = *cursor;
    let mut line = cursor.line("a level")?;
    if line.count("the number of a level")? != number as u64 {
        return Err(before.expected(&format!("level {number}")));
    }
    let at_count = line;
    let count = line.count("the number of boxes")?;
    line.real("the time of a level")?;
    line.finish("the time of a level")?;
    one(cursor, "the step of a level", TextCursor::integer)?;
    // Each axis of a box has a line, of at least 4 bytes: "0 0".
    check_boxes(&at_count, cursor, count, 4 * rank, limits)?;
    for _ in 0..count {
        for _ in 0..rank {
            cursor.real(BOUND)?;
            cursor.real(BOUND)?;
        }
    }
    cursor.end_line(BOUND)?;
    Ok(count)
}

fn read_level_path(cursor: &mut TextCursor) -> Result<ObjectPath> {
    let before = *cursor;
    let name = one(cursor, "the path of a level", TextCursor::word)?;
    let path = relative_path(&before, name)?;
    // The paths that are made of it must be paths, too.
    relative_path(&before, &[name, CELL_HEADER_SUFFIX.as_bytes()].concat())?;
    Ok(path)
}
