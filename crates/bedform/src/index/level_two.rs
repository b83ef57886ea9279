//! Level two of an index: the array with the number of the bin of each element, read block by block.

use bedform_format::checksum::crc32c;
use bedform_format::index::IndexRecord;
use bedform_format::{DataType, ObjectPath};
use bedform_geometry::Region;
use bedform_storage::Mode;

use super::level_one::{read_box, reading};
use super::record::{BINS, directory_of};
use crate::error::{Error, Result};
use crate::opening::storage_in_sidecar;
use crate::options::OpenOptions;
use crate::sidecar::Sidecar;
use crate::zarr::hierarchy::Hierarchy;
use crate::zarr::state::{ArrayState, load};

/// The array, in its group.
pub(crate) const NUMBERS: &str = "numbers";

/// The opened level two of an index.
#[derive(Debug)]
pub(crate) struct LevelTwo {
    hierarchy: Hierarchy,
    path: ObjectPath,
    state: ArrayState,
}

impl LevelTwo {
    /// Opens the level two that a record names.
    ///
    /// # Errors
    /// Those of opening it; `Corrupt` if it does not fit the record.
    pub(crate) fn open(
        sidecar: &Sidecar,
        record: &IndexRecord,
        options: &OpenOptions,
    ) -> Result<Self> {
        let options = reading(options);
        let place = format!("{}/{BINS}/{}", directory_of(&record.array), record.bins);
        let storage = storage_in_sidecar(sidecar, &place, Mode::ReadOnly, &options)?;
        let hierarchy = Hierarchy::new(storage, options, |_, _| Ok(None));
        let path = ObjectPath::parse(NUMBERS)?;
        let state = load(&hierarchy, &path)?;
        let is_right = state.metadata.data_type == DataType::UInt8
            && state.metadata.shape.len() == record.array_shape.len();
        match is_right {
            true => Ok(Self { hierarchy, path, state }),
            false => Err(Error::corrupt(place, "it is not the level two of its record")),
        }
    }

    /// Reads the numbers of the elements of a block, in C order; `None` if they do not have the
    /// checksum, or cannot be read.
    pub(crate) fn numbers(&self, block: Region, checksum: u32) -> Option<Vec<u8>> {
        let shape = &self.state.metadata.shape;
        let inside = (0..block.rank()).all(|axis| block.end(axis) <= shape[axis]);
        let elements = block.len().filter(|_| inside)?;
        // The record bounds the elements of a block.
        let mut numbers = vec![0; usize::try_from(elements).ok()?];
        read_box(&self.hierarchy, &self.path, &self.state, block, &mut numbers).ok()?;
        (crc32c(&numbers) == checksum).then_some(numbers)
    }
}
