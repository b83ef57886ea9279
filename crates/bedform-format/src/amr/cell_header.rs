//! The description of one level: its boxes, and the locations of their elements.

use std::collections::HashMap;

use bedform_geometry::BoxList;
use memchr::memchr;

use super::checks::{check_boxes, new_list, read_components, relative_path};
use super::error::{AmrError, Result};
use super::plotfile::PlotfileHeader;
use super::ranges::{ComponentRanges, level_range, ranges_of_boxes};
use super::real::RealDescriptor;
use super::text::TextCursor;
use crate::{Limits, ObjectPath};

/// Fewest bytes of text for a box and its location.
const BOX_BYTES_MIN: usize = b"((0)(0))FabOnDisk: a 0\n".len();

/// The location of the FAB of one box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FabLocation {
    /// The file, as an index into [`CellHeader::files`].
    pub file: u32,
    /// Offset in the file in bytes: of the header of the FAB in version 1, of its elements in
    /// versions 2 to 4.
    pub offset: u64,
}

/// The text `Level_N/Cell_H`: the boxes of a level, and the locations of their elements.
///
/// ```
/// use bedform_format::{Limits, amr::CellHeader};
/// let text = b"1\n1\n2\n0\n(2 0\n((0,0) (7,7) (0,0))\n((8,0) (15,7) (0,0))\n)\n2\n\
///     FabOnDisk: Cell_D_00000 0\nFabOnDisk: Cell_D_00000 1106\n\n";
/// let level = CellHeader::parse(text, &Limits::default())?;
/// assert_eq!(level.boxes.get(1).unwrap().start, [8, 0]);
/// assert_eq!(level.files[0].as_str(), "Cell_D_00000");
/// assert_eq!((level.locations[1].file, level.locations[1].offset), (0, 1106));
/// assert!(level.has_fab_headers());
/// # Ok::<(), bedform_format::amr::AmrError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CellHeader {
    /// The version of the text, 1 to 4.
    pub version: u8,
    /// The number of components of each box, at least 1.
    pub components: u64,
    /// For each axis, the number of ghost cells that each FAB has on either side of its box.
    pub ghost_cells: Vec<u32>,
    /// The boxes, without ghost cells; at least one.
    pub boxes: BoxList,
    /// The files that hold FABs, relative to the directory of this text; no two are equal.
    pub files: Vec<ObjectPath>,
    /// The location of each box's FAB.
    pub locations: Vec<FabLocation>,
    /// The elements' type and byte order; `None` in version 1, in which every FAB has a header.
    pub descriptor: Option<RealDescriptor>,
    /// The bytes of the text that hold the tables of minima and maxima.
    tables: (usize, usize),
}

impl CellHeader {
    /// Parses the text. Minima and maxima are not parsed, see [`component_ranges`].
    ///
    /// The text of version 1 may end after the locations of the FABs.
    ///
    /// [`component_ranges`]: Self::component_ranges
    ///
    /// # Errors
    /// [`AmrError::Corrupt`]; [`AmrError::Unsupported`] for other versions, for data that are not
    /// cell-centred, and for numbers as [`FabHeader::parse`](super::FabHeader::parse) says;
    /// [`AmrError::Limit`] for more boxes than `mesh_boxes_max`, more components than
    /// `mesh_components_max` and more bytes than `index_bytes_max`. Memory use is at most 16 times
    /// the length of the text.
    pub fn parse(text: &[u8], limits: &Limits) -> Result<Self> {
        let mut cursor = TextCursor::new("Cell_H", text, limits)?;
        let version = read_version(&mut cursor)?;
        // A hint about the number of files, which the names give.
        cursor.count("how the files were written")?;
        let components = read_components(&mut cursor, limits)?;
        let ghost_at = cursor;
        let ghost_cells = read_ghost_cells(&mut cursor)?;
        let boxes = read_boxes(&mut cursor, limits)?;
        let ghost_cells = match ghost_cells.as_slice() {
            [all] => vec![*all; boxes.rank()],
            axes if axes.len() == boxes.rank() => ghost_cells,
            axes => {
                let rank = boxes.rank();
                return Err(ghost_at.corrupt(format!(
                    "ghost cells for {} axes, but boxes with {rank}",
                    axes.len()
                )));
            }
        };
        let (files, locations) = read_locations(&mut cursor, boxes.len())?;
        let tables = cursor.at();
        let mut tables_end = text.len();
        let mut descriptor = None;
        if version != 1 {
            // Tables have no parentheses.
            let length = memchr(b'(', cursor.rest()).unwrap_or(cursor.rest().len());
            cursor.skip(length);
            tables_end = cursor.at();
            descriptor = Some(RealDescriptor::read(&mut cursor)?);
        }
        Ok(Self {
            version,
            components,
            ghost_cells,
            boxes,
            files,
            locations,
            descriptor,
            tables: (tables, tables_end),
        })
    }

    /// Returns true if each FAB starts with a [`FabHeader`](super::FabHeader), false if its
    /// elements start at its offset.
    pub fn has_fab_headers(&self) -> bool {
        self.version == 1
    }

    /// Parses the minima and maxima of a component, counted from 0, from the same text.
    ///
    /// The ranges are hints: nothing guarantees that they hold the elements. Returns `None` for
    /// version 2, which has no tables, and for tables that are damaged or cut short.
    ///
    /// ```
    /// use bedform_format::{Limits, amr::{CellHeader, ComponentRanges}};
    /// let text = b"1\n1\n2\n0\n(1 0\n((0,0) (7,7) (0,0))\n)\n1\nFabOnDisk: Cell_D_00000 0\n\n\
    ///     1,2\n2.5e+02,0,\n\n1,2\n3e+02,nan,\n\n";
    /// let level = CellHeader::parse(text, &Limits::default())?;
    /// let Some(ComponentRanges::Boxes(ranges)) = level.component_ranges(text, 0) else { panic!() };
    /// assert_eq!((ranges[0].least, ranges[0].greatest), (250.0, 300.0));
    /// assert_eq!(level.component_ranges(text, 2), None);
    /// # Ok::<(), bedform_format::amr::AmrError>(())
    /// ```
    pub fn component_ranges(&self, text: &[u8], component: u64) -> Option<ComponentRanges> {
        let tables = text.get(self.tables.0..self.tables.1)?;
        let component = usize::try_from(component).ok()?;
        match self.version {
            1 | 3 => {
                let ranges = ranges_of_boxes(tables, self.boxes.len(), self.components, component)?;
                Some(ComponentRanges::Boxes(ranges))
            }
            4 => level_range(tables, self.components, component).map(ComponentRanges::Level),
            _ => None,
        }
    }

    /// Checks that this is the text of level `number` of `header`: rank, number of boxes and number
    /// of components are equal.
    ///
    /// ```
    /// # use bedform_format::{Limits, amr::{CellHeader, PlotfileHeader}};
    /// # let limits = Limits::default();
    /// let text = b"HyperCLaw-V1.1\n1\nT\n1\n0\n0\n0\n1\n\n((0) (7) (0))\n0\n0.125\n0\n0\n\
    ///     0 2 0\n0\n0 0.5\n0.5 1\nLevel_0/Cell\n";
    /// let header = PlotfileHeader::parse(text, &limits)?;
    /// let text = b"1\n1\n1\n0\n(1 0\n((0) (7) (0))\n)\n1\nFabOnDisk: Cell_D_00000 0\n";
    /// let error = CellHeader::parse(text, &limits)?.check(&header, 0).unwrap_err();
    /// assert!(error.to_string().ends_with("has 1 boxes in its Cell_H and 2 in the Header"));
    /// # Ok::<(), bedform_format::amr::AmrError>(())
    /// ```
    ///
    /// # Errors
    /// [`AmrError::Mismatch`], also if there is no such level.
    pub fn check(&self, header: &PlotfileHeader, number: usize) -> Result {
        let Some(level) = header.levels.get(number) else {
            return Err(AmrError::mismatch(format!(
                "no level {number} in a Header of {} levels",
                header.levels.len()
            )));
        };
        let pairs = [
            ("axes", self.boxes.rank() as u64, header.rank() as u64),
            ("boxes", self.boxes.len() as u64, level.boxes),
            ("components", self.components, header.components.len() as u64),
        ];
        match pairs.into_iter().find(|(_, own, declared)| own != declared) {
            None => Ok(()),
            Some((what, own, declared)) => Err(AmrError::mismatch(format!(
                "level {number} has {own} {what} in its Cell_H and {declared} in the Header"
            ))),
        }
    }
}

fn read_version(cursor: &mut TextCursor) -> Result<u8> {
    let before = *cursor;
    match cursor.count("the version")? {
        version @ 1..=4 => Ok(u8::try_from(version).unwrap_or(0)),
        version => Err(before.unsupported(format!("version {version}; 1 to 4 are read"))),
    }
}

/// Reads the number of ghost cells: one for all axes, or one per axis in parentheses.
fn read_ghost_cells(cursor: &mut TextCursor) -> Result<Vec<u32>> {
    const WHAT: &str = "the number of ghost cells";
    let before = *cursor;
    let checked = |count: i64| {
        let count = u32::try_from(count).ok().filter(|count| i32::try_from(*count).is_ok());
        count.ok_or_else(|| before.expected(WHAT))
    };
    if cursor.peek() == Some(b'(') {
        let axes = cursor.axis_integers(WHAT)?;
        return axes.as_slice().iter().map(|count| checked(*count)).collect();
    }
    Ok(vec![checked(cursor.integer(WHAT)?)?])
}

/// Reads `(count 0`, the boxes and `)`.
fn read_boxes(cursor: &mut TextCursor, limits: &Limits) -> Result<BoxList> {
    cursor.byte(b'(')?;
    let before = *cursor;
    let count = cursor.count("the number of boxes")?;
    check_boxes(&before, cursor, count, BOX_BYTES_MIN, limits)?;
    // A number that AMReX ignores.
    cursor.integer("the number after the number of boxes")?;
    let mut boxes = None;
    for _ in 0..count {
        let before = *cursor;
        let found = cursor.cells()?;
        let (start, stop) = (found.start.as_slice(), found.stop.as_slice());
        let list = match &mut boxes {
            Some(list) => list,
            none => none.insert(new_list(&before, start.len())?),
        };
        list.push(start, stop).map_err(|error| before.corrupt(error.to_string()))?;
    }
    cursor.byte(b')')?;
    boxes.ok_or_else(|| before.expected("a positive number of boxes"))
}

/// Reads the number of boxes again, and a line `FabOnDisk: file offset` for each.
fn read_locations(
    cursor: &mut TextCursor,
    boxes: usize,
) -> Result<(Vec<ObjectPath>, Vec<FabLocation>)> {
    let before = *cursor;
    let count = cursor.count("the number of FABs")?;
    if count != boxes as u64 {
        return Err(before.corrupt(format!("{count} FABs for {boxes} boxes")));
    }
    let mut numbers = HashMap::new();
    let mut files = Vec::new();
    let mut locations = Vec::new();
    let mut last: Option<(&[u8], u32)> = None;
    for _ in 0..boxes {
        let before = *cursor;
        if cursor.word("FabOnDisk:")? != b"FabOnDisk:" {
            return Err(before.expected("FabOnDisk:"));
        }
        let at_name = *cursor;
        let name = cursor.word("the name of a file")?;
        let offset = cursor.count("the offset of a FAB")?;
        cursor.end_line("the offset of a FAB")?;
        let file = match last {
            Some((last, file)) if last == name => file,
            _ => match numbers.get(name) {
                Some(file) => *file,
                None => {
                    let file = u32::try_from(files.len())
                        .map_err(|_| at_name.limit("more than 2^32 files"))?;
                    files.push(relative_path(&at_name, name)?);
                    numbers.insert(name, file);
                    file
                }
            },
        };
        last = Some((name, file));
        locations.push(FabLocation { file, offset });
    }
    Ok((files, locations))
}
