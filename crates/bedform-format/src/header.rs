//! File formats whose header locates all variables.
//!
//! A format is a module that parses the header into a [`ChunkMap`](crate::chunk_map::ChunkMap), and
//! a line in [`FORMATS`]. The engine recognizes its files by their first bytes, and opens them in
//! Rust, Python, C and the command line.

use crate::Limits;
use crate::chunk_map::{ParsedHeader, SourceVersion};
use crate::netcdf_classic;

/// A function that parses the header of a file from its first bytes, or returns the error.
pub type ParseHeader = fn(&[u8], &SourceVersion, &Limits) -> Result<ParsedHeader, String>;

/// A format whose header is its chunk map.
#[derive(Debug, Clone, Copy)]
pub struct HeaderFormat {
    /// Returns the name of the format from the first 16 bytes of a file; `None` for other formats.
    pub name_of: fn(&[u8]) -> Option<&'static str>,
    /// Parses the header.
    pub parse: ParseHeader,
}

/// All such formats. No two accept the same first bytes.
pub const FORMATS: [HeaderFormat; 1] =
    [HeaderFormat { name_of: netcdf_classic::name_of, parse: netcdf_classic::parse_header }];

/// Returns the format of a file that starts with `start`, and its name.
///
/// ```
/// let (_, name) = bedform_format::header::format_of(b"CDF\x05").unwrap();
/// assert_eq!(name, "netcdf-classic-5");
/// assert!(bedform_format::header::format_of(b"GRIB").is_none());
/// ```
pub fn format_of(start: &[u8]) -> Option<(&'static HeaderFormat, &'static str)> {
    FORMATS.iter().find_map(|format| Some((format, (format.name_of)(start)?)))
}
