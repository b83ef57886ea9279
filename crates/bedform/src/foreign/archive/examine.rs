//! Chunk maps of many files, found by several threads.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bedform_format::chunk_map::{ChunkMap, ChunkTable, ForeignArray, ForeignStorage};
use bedform_format::{DataType, Limits};
use bedform_storage::{Object, Storage, StorageErrorKind};

use super::place::FilePlace;
use super::values::{OpenedVariable, VariableElements, is_small};
use crate::error::{Error, ErrorKind, Result};
use crate::foreign::hdf5::{self, Hdf5Access, ParsedFile};
use crate::foreign::opening::kept_map;
use crate::foreign::tables::{grid_chunks, is_left_out};
use crate::foreign::{read_header, source_version};
use crate::opening::{FrontCachedFile, NO_FILE, PlaceKind, REFERENCES};
use crate::options::{OpenOptions, ProgressCallback};
use crate::threads::ordered::map_numbers;
use crate::threads::workers::check_cancelled;

/// Threads that examine files: they wait for storage most of the time.
const THREADS: usize = 16;
pub(super) const STOPPED: &str = "opening the files was stopped";

/// The variables of a file by its metadata, and the file itself.
#[derive(Clone)]
pub(super) struct ExaminedFileMap {
    pub(super) map: ChunkMap,
    /// For each variable, the address of its dataset if the map lacks its chunks.
    pub(super) datasets: Vec<Option<u64>>,
    pub(super) object: Arc<dyn Object>,
}

/// Returns the results of `act` for each number below `count`, computed by several threads.
///
/// # Errors
/// That of the lowest number; `Interrupted`.
pub(super) fn in_threads<T: Send>(
    count: usize,
    progress: ProgressCallback<'_>,
    act: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let before = |done| {
        check_cancelled(STOPPED)?;
        progress(done as u64, count as u64);
        Ok(())
    };
    let made = map_numbers(1 + THREADS.min(count / 8), count, before, act);
    check_cancelled(STOPPED)?;
    made
}

/// Parses the file at `place` of `storage`; `None` if only the library of its format can.
///
/// # Errors
/// `NotFound`; `Conflict` if it has changed since it was found; `Unsupported` for a file of another
/// kind; `Corrupt`, `LimitExceeded` by its metadata; those of storage.
pub(super) fn examine(
    place: &FilePlace,
    storage: &dyn Storage,
    options: &OpenOptions,
    tables: &TableBudget,
) -> Result<Option<ExaminedFileMap>> {
    let path = &*place.path;
    let opened =
        FrontCachedFile::local(storage, &place.name, options).map_err(|error| {
            match error.kind {
                StorageErrorKind::NotAnObject => other(path, NO_FILE),
                _ => error.into(),
            }
        })?;
    let source = source_version(opened.object.version());
    if source != place.source {
        return Err(changed(path));
    }
    let found = match opened.kind()? {
        PlaceKind::WithHeader(_) => {
            let read = |offset, buffer: &mut [u8]| Ok(opened.read(offset, buffer)?);
            let map = read_header(&read, &source, &options.limits)
                .map_err(|error| error.at(path.display()))?;
            let datasets = vec![None; map.arrays.len()];
            Ok(Some((map, datasets)))
        }
        PlaceKind::Hdf5 => of_hdf5(place, &opened, options, tables),
        PlaceKind::OtherFile(looks) => Err(other(path, &looks)),
        PlaceKind::References => Err(other(path, REFERENCES)),
        _ => Err(other(path, NO_FILE)),
    };
    let found = found?;
    Ok(found.map(|(map, datasets)| ExaminedFileMap {
        map,
        datasets,
        object: Arc::from(opened.object),
    }))
}

/// A chunk map, and for each variable the address of its dataset if the map lacks its chunks.
type DescribedFile = (ChunkMap, Vec<Option<u64>>);

fn of_hdf5(
    place: &FilePlace,
    opened: &FrontCachedFile,
    options: &OpenOptions,
    tables: &TableBudget,
) -> Result<Option<DescribedFile>> {
    if let Some(ParsedFile { mut map, mut datasets }) = hdf5::parse(&place.path, opened, options)? {
        for (array, address) in map.arrays.iter_mut().zip(&mut datasets) {
            *address = address.filter(|_| is_left_out(array));
            let Some(at) = address.filter(|_| tables.takes(array)) else { continue };
            let reader = Hdf5Access::new(&*opened.object, opened.if_settled(), false);
            // A failed search is repeated by the read that needs the table.
            let found = hdf5::read_table(&reader, at, array, &options.limits).ok();
            if let (Some(table), ForeignStorage::Chunked { chunks, .. }) =
                (found, &mut array.storage)
            {
                *chunks = table;
                *address = None;
            }
        }
        return Ok(Some((map, datasets)));
    }
    let kept = kept_map(&place.path, &place.source, &options.limits)?;
    Ok(kept.map(|map| {
        let datasets = vec![None; map.arrays.len()];
        (map, datasets)
    }))
}

/// A budget in bytes for small chunk tables that are read when an archive is opened. Otherwise a
/// later read of many files would have to find the table in each of them.
pub(super) struct TableBudget(AtomicU64);

/// The most chunks of a variable whose table is small.
const SMALL_TABLE_CHUNKS: u64 = 64;

impl TableBudget {
    pub(super) fn new(bytes: u64) -> Self {
        Self(AtomicU64::new(bytes))
    }

    /// Returns true if the table of a variable should be read, and takes its bytes.
    fn takes(&self, array: &ForeignArray) -> bool {
        let chunks = grid_chunks(array);
        let take = |left: u64| left.checked_sub(chunks * ChunkTable::ENTRY_BYTES);
        matches!(array.storage, ForeignStorage::Chunked { .. })
            && chunks <= SMALL_TABLE_CHUNKS
            && self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

impl ExaminedFileMap {
    /// Makes the result for an opened file whose map has all chunks.
    pub(super) fn whole(map: ChunkMap, object: Arc<dyn Object>) -> Self {
        let datasets = vec![None; map.arrays.len()];
        Self { map, datasets, object }
    }

    /// Returns the elements of a variable; `None` for a large one, and for one that only the
    /// library of the format reads.
    ///
    /// # Errors
    /// `Corrupt`, `Conflict` by the file; those of storage.
    pub(super) fn elements(
        &self,
        number: usize,
        limits: &Limits,
    ) -> Result<Option<VariableElements>> {
        let array = &self.map.arrays[number];
        if !is_small(array) {
            return Ok(None);
        }
        let table = match (&array.storage, self.datasets[number]) {
            (ForeignStorage::Chunked { .. }, Some(address)) => {
                hdf5::read_table(&self.reader(), address, array, limits)?
            }
            (ForeignStorage::Chunked { chunks, .. }, None) => chunks.clone(),
            _ => ChunkTable::default(),
        };
        self.elements_of(array, table)
    }

    fn reader(&self) -> Hdf5Access<'_> {
        Hdf5Access::new(&*self.object, None, false)
    }

    fn elements_of(
        &self,
        array: &ForeignArray,
        table: ChunkTable,
    ) -> Result<Option<VariableElements>> {
        let (name, object, table) = (array.path.clone(), self.object.clone(), Arc::new(table));
        match (OpenedVariable { name, array, object, table }).elements() {
            // A codec that the engine lacks.
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(None),
            read => read,
        }
    }

    /// Returns the texts of a variable of texts of any length; `None` for others, and for one that
    /// only the library reads.
    ///
    /// # Errors
    /// As [`ExaminedFileMap::elements`].
    pub(super) fn texts(&self, number: usize, limits: &Limits) -> Result<Option<Vec<String>>> {
        let array = &self.map.arrays[number];
        let address = self.datasets[number].filter(|_| array.data_type == Some(DataType::String));
        let Some(address) = address else { return Ok(None) };
        let mut stored = hdf5::read_stored_texts(&self.reader(), address, array, limits)?;
        if !is_small(&stored) {
            return Ok(None);
        }
        let table = match &mut stored.storage {
            ForeignStorage::Chunked { chunks, .. } => std::mem::take(chunks),
            _ => ChunkTable::default(),
        };
        let Some(elements) = self.elements_of(&stored, table)? else { return Ok(None) };
        let texts = hdf5::read_texts(&self.reader(), &elements.bytes, &array.path, limits)?;
        let mut rest = &texts.bytes[..];
        let mut found = Vec::with_capacity(texts.lengths.len());
        for length in texts.lengths {
            let length = usize::try_from(length).unwrap_or(usize::MAX).min(rest.len());
            let (text, behind) = rest.split_at(length);
            found.push(String::from_utf8_lossy(text).into_owned());
            rest = behind;
        }
        Ok(Some(found))
    }
}

/// Returns the error for a file that has changed since it was found.
pub(super) fn changed(path: &Path) -> Error {
    let text = format!("{} has changed since it was opened; open the files again", path.display());
    Error::new(ErrorKind::Conflict, text)
}

fn other(path: &Path, looks: &str) -> Error {
    let text = format!("{}: not a NetCDF or HDF5 file; it is {looks}", path.display());
    Error::new(ErrorKind::Unsupported, text)
}
