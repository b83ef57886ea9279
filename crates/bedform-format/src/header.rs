//! Formats whose files say in a header where their variables lie.
//!
//! A format is a module that parses the header into a [`ChunkMap`](crate::chunk_map::ChunkMap), and a line in [`FORMATS`]: the engine then
//! tells its files by their first bytes and opens them, through every door.

use crate::Limits;
use crate::chunk_map::{Header, SourceVersion};
use crate::netcdf_classic;

/// Parses the header of a file from its first bytes, or says what is wrong with it.
pub type ParseHeader = fn(&[u8], &SourceVersion, &Limits) -> Result<Header, String>;

/// A format with such a header.
#[derive(Debug, Clone, Copy)]
pub struct HeaderFormat {
    /// The name of the format, by the first 16 bytes of a file; nothing if the file is of another one.
    pub name_of: fn(&[u8]) -> Option<&'static str>,
    /// Reads the header.
    pub parse: ParseHeader,
}

/// All of them. No two know the same bytes.
pub const FORMATS: [HeaderFormat; 1] =
    [HeaderFormat { name_of: netcdf_classic::name_of, parse: netcdf_classic::parse_header }];

/// The format of a file that begins with `start`, and its name.
///
/// ```
/// let (_, name) = bedform_format::header::format_of(b"CDF\x05").unwrap();
/// assert_eq!(name, "netcdf-classic-5");
/// assert!(bedform_format::header::format_of(b"GRIB").is_none());
/// ```
pub fn format_of(start: &[u8]) -> Option<(&'static HeaderFormat, &'static str)> {
    FORMATS.iter().find_map(|format| Some((format, (format.name_of)(start)?)))
}
