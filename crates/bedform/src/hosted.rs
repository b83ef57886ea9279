//! HDF5 files that the HDF5 library has open in this process: for its connector, which asks here
//! before each read.
//!
//! The library stays the reader of the file. The engine supplies the elements of a read only where
//! replicas have a part of it, or where it was read ahead; every other read is the library's. So
//! fill values, filters and conversions stay those of the library.
//!
//! A file counts if its sidecar has a replica or knowledge of its reads, or if it is watched. It is
//! parsed at the first read of a dataset. A file that changes is left to the library from then on.

use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Instant;

use bedform_format::DataType;
use bedform_geometry::{Selection, element_count};

use crate::array::Array;
pub use crate::array::HostedUses;
use crate::error::Result;
use crate::foreign::ForeignFile;
use crate::options::OpenOptions;
use crate::plan::copy::CopyTarget;
use crate::replica::CATALOGUE;
use crate::sidecar::Sidecar;
use crate::trace;

/// An HDF5 file that the library has open for reading.
#[derive(Debug)]
pub struct HostedFile {
    path: PathBuf,
    /// Device and number of the library's file.
    identity: (u64, u64),
    /// The engine's own view; `None` if the path names another file by now, or if only the library
    /// understands it.
    opened: OnceLock<Option<ForeignFile>>,
}

/// A dataset of a hosted file.
#[derive(Debug)]
pub struct HostedDataset {
    array: Array,
    data_type: DataType,
}

impl HostedFile {
    /// Finds the file behind `descriptor`; `None` if the engine knows nothing of it.
    ///
    /// # Errors
    /// `InvalidArgument` for a malformed `BEDFORM_SIDECAR_BYTES`.
    pub fn find(descriptor: BorrowedFd<'_>) -> Result<Option<Self>> {
        let Some((path, identity)) = named(descriptor) else { return Ok(None) };
        let sidecar = Sidecar::of_path(&path)?.filter(is_known);
        Ok(sidecar.map(|_| Self { path, identity, opened: OnceLock::new() }))
    }

    /// Returns the dataset whose object header is at `address` of the file, for reads of elements
    /// of `item_size` bytes along `rank` axes. `None` if the engine does not know it as such.
    pub fn dataset(&self, address: u64, rank: usize, item_size: usize) -> Option<HostedDataset> {
        let file = self.opened.get_or_init(|| self.open()).as_ref()?;
        let described = file.described_at(address)?;
        let array = Array::of_file(file, &described.path).ok()?;
        let data_type = array.data_type().ok()?;
        let fits = data_type.item_size() == Some(item_size) && described.shape.len() == rank;
        fits.then_some(HostedDataset { array, data_type })
    }

    fn open(&self) -> Option<ForeignFile> {
        let file = ForeignFile::open(&self.path, &OpenOptions::default()).ok()?;
        (file.map().source.identity == self.identity).then_some(file)
    }
}

impl HostedDataset {
    /// The type of its elements.
    pub fn data_type(&self) -> DataType {
        self.data_type
    }

    /// Returns the uses for its reads as of now: a replica may come later.
    pub fn uses(&self) -> HostedUses {
        self.array.hosted_uses()
    }

    /// Supplies the elements of `selection` in the `length` bytes at `buffer`, C order, in the
    /// machine's byte order, if the engine has a part of them already; returns true then. Else calls
    /// `read`, by which the library reads, and returns false: the buffer may have been written in
    /// part before. Reads are followed and recorded.
    ///
    /// # Safety
    /// The bytes are valid for reads and writes, and only this call and `read` use them meanwhile.
    pub unsafe fn supply_or(
        &self,
        selection: &Selection,
        (buffer, length): (*mut u8, usize),
        read: impl FnOnce(),
    ) -> bool {
        if self.result_bytes(selection) != Some(length as u64) {
            read();
            return false;
        }
        // SAFETY: the caller's contract; no plan writes to the target once `read` is called.
        let target = unsafe { CopyTarget::at(buffer, length) };
        self.array.supply_or(selection, target, read)
    }

    /// Calls `read`, by which the library reads `selection` in another type than the file's, and
    /// records the read.
    pub fn record(&self, selection: &Selection, read: impl FnOnce()) {
        let began = Instant::now();
        read();
        if let Some(bytes) = self.result_bytes(selection) {
            self.array.record_elsewhere(selection, bytes, began.elapsed());
        }
    }

    fn result_bytes(&self, selection: &Selection) -> Option<u64> {
        let item = self.data_type.item_size()? as u64;
        element_count(&selection.result_shape())?.checked_mul(item)
    }
}

/// Returns the path of an open file, with device and number; `None` for a file without a name, or
/// with one that another file has by now.
fn named(descriptor: BorrowedFd<'_>) -> Option<(PathBuf, (u64, u64))> {
    let link = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    let path = fs::read_link(&link).ok()?;
    let identity = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let own = identity(Path::new(&link))?;
    (path.is_absolute() && identity(&path) == Some(own)).then_some((path, own))
}

/// True if reads of a file with this sidecar may be recorded, read ahead or redirected.
fn is_known(sidecar: &Sidecar) -> bool {
    let has_knowledge = |sidecar: &Sidecar| {
        sidecar.last_number(CATALOGUE) > 0 || trace::newest_knowledge(sidecar).is_some()
    };
    trace::is_watched(sidecar)
        || has_knowledge(sidecar)
        || sidecar.site().is_some_and(has_knowledge)
}
