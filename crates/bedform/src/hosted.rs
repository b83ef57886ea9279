//! HDF5 files that the HDF5 library has open in this process: for its connector, which asks here
//! before each read.
//!
//! The library stays the reader of the file. The engine supplies the elements of a read only where
//! replicas have a part of it, or where it was read ahead; every other read is the library's. So
//! fill values, filters and conversions stay those of the library.
//!
//! A file counts if its sidecar has a replica or knowledge of its reads, or if it is watched; else if
//! that is so of an archive that lists it (`archives`). It is parsed at the first read of a dataset.
//! A file that changes is left to the library from then on, and so is one that a forked child reads
//! first and its parent has opened.

mod archives;

use std::borrow::Cow;
use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bedform_format::DataType;
use bedform_format::chunk_map::ForeignArray;
use bedform_geometry::{Selection, element_count};

use self::archives::HostedArchive;
use crate::array::Array;
pub use crate::array::HostedUses;
use crate::error::Result;
use crate::foreign::{DatasetAddresses, ForeignFile};
use crate::options::OpenOptions;
use crate::plan::copy::CopyTarget;
use crate::replica::CATALOGUE;
use crate::sidecar::Sidecar;
use crate::threads::per_process::generation;
use crate::trace;

/// An HDF5 file that the library has open for reading.
#[derive(Debug)]
pub struct HostedFile {
    path: PathBuf,
    /// Device and number of the library's file.
    identity: (u64, u64),
    /// The process that has opened it.
    generation: u64,
    /// The archive that lists the file; `None` for a file that counts by itself.
    archive: Option<HostedArchive>,
    /// The engine's own view; `None` if the path names another file by now, or if only the library
    /// understands it.
    opened: OnceLock<Option<OpenedFile>>,
}

/// The engine's own view of a hosted file.
#[derive(Debug)]
struct OpenedFile {
    addresses: DatasetAddresses,
    source: ElementsSource,
}

/// The source of the elements that the engine supplies.
#[derive(Debug)]
enum ElementsSource {
    File(Box<ForeignFile>),
    /// An archive, and the number of the file there.
    Archive(Arc<ForeignFile>, usize),
}

/// A dataset of a hosted file.
#[derive(Debug)]
pub struct HostedDataset {
    array: Array,
    data_type: DataType,
    shape: Vec<u64>,
    /// The joined axis of the array, and the dataset's first position along it; `None` if the array
    /// is the dataset.
    begins: Option<(usize, u64)>,
}

impl HostedFile {
    /// Finds the file behind `descriptor`; `None` if the engine knows nothing of it.
    ///
    /// # Errors
    /// `InvalidArgument` for a malformed `BEDFORM_SIDECAR_BYTES`.
    pub fn find(descriptor: BorrowedFd<'_>) -> Result<Option<Self>> {
        let Some((path, identity)) = named(descriptor) else { return Ok(None) };
        let is_known_alone = Sidecar::of_path(&path)?.is_some_and(|own| is_known(&own));
        let archive = if is_known_alone { None } else { HostedArchive::of_file(&path)? };
        if !is_known_alone && archive.is_none() {
            return Ok(None);
        }
        let (generation, opened) = (generation(), OnceLock::new());
        Ok(Some(Self { path, identity, generation, archive, opened }))
    }

    /// Returns the dataset whose object header is at `address` of the file, for reads of elements
    /// of `item_size` bytes along `rank` axes. `None` if the engine does not know it as such.
    pub fn dataset(&self, address: u64, rank: usize, item_size: usize) -> Option<HostedDataset> {
        // A forked child must not wait for a thread of its parent.
        let opened = match self.generation == generation() {
            true => self.opened.get_or_init(|| self.open()),
            false => self.opened.get()?,
        };
        let opened = opened.as_ref()?;
        let described = opened.addresses.described_at(address)?;
        let (array, begins) = opened.source.array(described)?;
        let data_type = array.data_type().ok()?;
        let fits = data_type.item_size() == Some(item_size) && described.shape.len() == rank;
        let shape = described.shape.clone();
        fits.then_some(HostedDataset { array, data_type, shape, begins })
    }

    fn open(&self) -> Option<OpenedFile> {
        let file = ForeignFile::open(&self.path, &OpenOptions::default()).ok()?;
        let state = &file.map().source;
        if state.identity != self.identity {
            return None;
        }
        let addresses = file.dataset_addresses();
        let source = match &self.archive {
            None => ElementsSource::File(Box::new(file)),
            Some(archive) => {
                let (archive, number) = archive.file(&self.path, state)?;
                ElementsSource::Archive(archive, number)
            }
        };
        Some(OpenedFile { addresses, source })
    }
}

impl ElementsSource {
    /// Returns the array that has the elements of a dataset, and where they begin in it if it has
    /// those of other files, too.
    fn array(&self, dataset: &ForeignArray) -> Option<(Array, Option<(usize, u64)>)> {
        let (archive, number) = match self {
            Self::File(file) => return Some((Array::of_file(file, &dataset.path).ok()?, None)),
            Self::Archive(archive, number) => (archive, *number),
        };
        let (axis, stretch) = archive.joined_stretch(&dataset.path, number)?;
        let array = Array::of_file(archive, &dataset.path).ok()?;
        let mut shape = array.shape().ok()?;
        *shape.get_mut(axis)? = stretch.end - stretch.start;
        (shape == dataset.shape).then_some((array, Some((axis, stretch.start))))
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
        let placed = self.placed(selection);
        let Some(placed) = placed.filter(|_| self.bytes_of(selection) == Some(length as u64))
        else {
            read();
            return false;
        };
        // SAFETY: the caller's contract; no plan writes to the target once `read` is called.
        let target = unsafe { CopyTarget::at(buffer, length) };
        self.array.supply_or(&placed, target, read)
    }

    /// Calls `read`, by which the library reads `selection` in another type than the file's, and
    /// records the read.
    pub fn record(&self, selection: &Selection, read: impl FnOnce()) {
        let began = Instant::now();
        read();
        if let Some((placed, bytes)) = self.placed(selection).zip(self.bytes_of(selection)) {
            self.array.record_elsewhere(&placed, bytes, began.elapsed());
        }
    }

    /// Returns a selection of the dataset as one of the array; `None` outside the dataset as the
    /// engine knows it.
    fn placed<'s>(&self, selection: &'s Selection) -> Option<Cow<'s, Selection>> {
        selection.validate(&self.shape).ok()?;
        match self.begins {
            None => Some(Cow::Borrowed(selection)),
            Some((axis, start)) => Some(Cow::Owned(selection.shifted(axis, start).ok()?)),
        }
    }

    fn bytes_of(&self, selection: &Selection) -> Option<u64> {
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
