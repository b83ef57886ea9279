//! Parsers for the texts of AMReX plotfiles.
//!
//! A plotfile is a directory with the data of an adaptively refined mesh: levels of boxes, each
//! finer than the one before. Its texts say where the elements lie:
//!
//! | text | type | content |
//! |---|---|---|
//! | `Header` | [`PlotfileHeader`] | components, domain, levels, paths |
//! | `Level_N/Cell_H` | [`CellHeader`] | the boxes of a level, the file and offset of each, ranges of values |
//! | start of each FAB in `Level_N/Cell_D_00000` | [`FabHeader`] | element type, byte order, cells, components |
//!
//! A FAB holds the elements of one box, with its ghost cells. Checkpoints have other texts, which
//! are not read.
//!
//! No page specifies the formats. The parsers follow the code that writes and reads them: `VisMF`,
//! `PlotFileUtil`, `PlotFileDataImpl`, `FArrayBox` and `FabConv` of AMReX. Where its reader is
//! lenient, these are: blanks may separate numbers, lines may end with a carriage return, and a
//! `Header` may list more levels than it declares. They are stricter in one respect: each text must
//! end with the end of a line, so that a text that is cut short is noticed.
//!
//! The parsers refuse data that are not cell-centred, numbers other than float32 and float64 in
//! little-endian or big-endian order, bounds of boxes that 32 bits cannot hold, names and paths with
//! hidden characters, and paths that could leave the plotfile. Overlaps of boxes and boxes outside
//! of the domain are not looked for.
//!
//! [`Limits`](crate::Limits) bounds the lengths of the texts, the levels, the components and the
//! boxes. No count is trusted: memory grows with the text that was read.

mod cell_header;
mod checks;
mod error;
mod fab;
mod plotfile;
mod ranges;
mod real;
mod text;

#[cfg(test)]
mod tests;

pub use cell_header::{CellHeader, FabLocation};
pub use error::AmrError;
pub use fab::{FAB_HEADER_BYTES_MAX, FabHeader};
pub use plotfile::{CoordinateSystem, PlotfileHeader, PlotfileLevel};
pub use ranges::{ComponentRange, ComponentRanges};
pub use real::RealDescriptor;
