//! The header of a FAB.

use bedform_geometry::{BoxList, CellBox};
use memchr::memchr;

use super::cell_header::CellHeader;
use super::checks::{new_list, read_components};
use super::error::{AmrError, Result};
use super::real::RealDescriptor;
use super::text::{TextBox, TextCursor, excerpt};
use crate::{DataType, Endian, Limits};

/// Largest length of the header of a FAB in bytes, with the end of its line.
///
/// AMReX writes at most 250 bytes; reading so many bytes from the offset of a FAB suffices.
pub const FAB_HEADER_BYTES_MAX: usize = 1024;

/// The header of a FAB: the line before the elements of one box.
///
/// The elements follow in Fortran order: the first axis varies fastest, and the component slowest.
///
/// ```
/// use bedform_format::amr::FabHeader;
/// use bedform_format::{DataType, Endian, Limits};
/// let line = b"FAB ((8, (64 11 52 0 1 12 0 1023)),(8, (8 7 6 5 4 3 2 1)))((-1,0) (8,7) (0,0)) 2\n";
/// let header = FabHeader::parse(line, &Limits::default())?;
/// assert_eq!((header.data_type, header.endian), (DataType::Float64, Endian::Little));
/// assert_eq!((header.cells().start, header.cells().stop), (&[-1, 0][..], &[9, 8][..]));
/// assert_eq!((header.header_bytes, header.component_bytes), (line.len(), 10 * 8 * 8));
/// # Ok::<(), bedform_format::amr::AmrError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FabHeader {
    /// The type of the elements: [`DataType::Float32`] or [`DataType::Float64`].
    pub data_type: DataType,
    /// The byte order of the elements.
    pub endian: Endian,
    /// The number of components, at least 1.
    pub components: u64,
    /// Length of the header in bytes, with the end of its line.
    pub header_bytes: usize,
    /// Length of the elements of one component in bytes. The length of all components fits into 63
    /// bits.
    pub component_bytes: u64,
    /// The cells, as the only box.
    cells: BoxList,
}

impl FabHeader {
    /// Parses the header at the start of `bytes`, which the elements may follow.
    ///
    /// [`FAB_HEADER_BYTES_MAX`] bytes suffice; more are not looked at.
    ///
    /// # Errors
    /// [`AmrError::Corrupt`]; [`AmrError::Unsupported`] for headers of old FABs, for other numbers
    /// than float32 and float64, for other byte orders than little-endian and big-endian, and for
    /// data that are not cell-centred; [`AmrError::Limit`] for more components than
    /// `mesh_components_max`.
    pub fn parse(bytes: &[u8], limits: &Limits) -> Result<Self> {
        let start = bytes.get(..FAB_HEADER_BYTES_MAX).unwrap_or(bytes);
        let Some(end) = memchr(b'\n', start) else {
            let cursor = TextCursor::unlimited("FAB header", start);
            return Err(cursor.corrupt(format!(
                "no end of line in {} bytes that start with {}",
                start.len(),
                excerpt(start)
            )));
        };
        let line = start.get(..end).unwrap_or_default();
        let mut cursor = TextCursor::unlimited("FAB header", line);
        let Some(after) = line.strip_prefix(b"FAB") else {
            return Err(cursor.expected("FAB"));
        };
        if after.first() == Some(&b':') {
            return Err(cursor.unsupported("a FAB of the old form, with \"FAB:\""));
        }
        cursor.skip(line.len() - after.len());
        let RealDescriptor { data_type, endian } = RealDescriptor::read(&mut cursor)?;
        let before = cursor;
        let TextBox { start, stop } = cursor.cells()?;
        let mut cells = new_list(&before, start.as_slice().len())?;
        cells
            .push(start.as_slice(), stop.as_slice())
            .map_err(|error| before.corrupt(error.to_string()))?;
        let components = read_components(&mut cursor, limits)?;
        cursor.finish("the number of components")?;
        let item_size = data_type.item_size().unwrap_or(0) as u64;
        let component_bytes = cells.iter().map(CellBox::cells).sum::<u64>().checked_mul(item_size);
        let fits = |bytes: &u64| {
            bytes.checked_mul(components).is_some_and(|all| i64::try_from(all).is_ok())
        };
        let Some(component_bytes) = component_bytes.filter(fits) else {
            return Err(before.corrupt("a FAB of more bytes than 63 bits can count"));
        };
        let header_bytes = end.saturating_add(1);
        Ok(Self { data_type, endian, components, header_bytes, component_bytes, cells })
    }

    /// The cells of the FAB, with ghost cells.
    pub fn cells(&self) -> CellBox<'_> {
        self.cells.get(0).unwrap_or(CellBox { start: &[], stop: &[] })
    }

    /// Checks that this is the header of box `number` of `level`: its cells are the box and its
    /// ghost cells, and the numbers of components are equal.
    ///
    /// ```
    /// # use bedform_format::{Limits, amr::{CellHeader, FabHeader}};
    /// # let limits = Limits::default();
    /// let text = b"1\n1\n1\n2\n(1 0\n((0) (7) (0))\n)\n1\nFabOnDisk: Cell_D_00000 0\n";
    /// let level = CellHeader::parse(text, &limits)?;
    /// let line = b"FAB ((8, (32 8 23 0 1 9 0 127)),(4, (4 3 2 1)))((-2) (9) (0)) 1\n";
    /// FabHeader::parse(line, &limits)?.check(&level, 0)?;
    /// # Ok::<(), bedform_format::amr::AmrError>(())
    /// ```
    ///
    /// # Errors
    /// [`AmrError::Mismatch`], also if there is no such box.
    pub fn check(&self, level: &CellHeader, number: usize) -> Result {
        if self.components != level.components {
            return Err(AmrError::mismatch(format!(
                "the FAB of box {number} has {} components, its Cell_H has {}",
                self.components, level.components
            )));
        }
        let Some(valid) = level.boxes.get(number) else {
            return Err(AmrError::mismatch(format!(
                "no box {number} in a Cell_H of {} boxes",
                level.boxes.len()
            )));
        };
        let cells = self.cells();
        let is_grown = |own: &[i64], valid: &[i64], sign: i64| {
            own.len() == valid.len()
                && own.iter().zip(valid).zip(&level.ghost_cells).all(|((own, valid), ghost)| {
                    let ghost = i64::from(*ghost).saturating_mul(sign);
                    *own == valid.saturating_add(ghost)
                })
        };
        if is_grown(cells.start, valid.start, -1) && is_grown(cells.stop, valid.stop, 1) {
            return Ok(());
        }
        Err(AmrError::mismatch(format!(
            "the FAB of box {number} has the cells {:?} to {:?}, its Cell_H has {:?} to {:?} with \
             {:?} ghost cells",
            cells.start, cells.stop, valid.start, valid.stop, level.ghost_cells
        )))
    }
}
