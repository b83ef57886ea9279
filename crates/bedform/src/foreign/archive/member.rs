//! A variable of one file of an archive as a source, and the open files of an archive.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bedform_format::chunk_map::{ChunkTable, ForeignStorage};
use bedform_storage::{Object, StorageError, Version, open_files_max};
use rustix::io::Errno;

use super::examine::changed;
use super::{Archive, VariableForm};
use crate::error::{Error, ErrorKind, Result};
use crate::foreign::chunks::{TableHandle, cell_of};
use crate::foreign::hdf5::{self, Hdf5Access};
use crate::foreign::inline::CompactObject;
use crate::foreign::source_version;
use crate::plan::opening::Need;
use crate::source::{OpenCell, PendingCell, Source};

/// The most files that are open at once, and the divisor of the files that the process may open.
const OPEN_MAX: u64 = 256;
const OPEN_SHARE: u64 = 4;
/// One in so many of the open files is closed at a time.
const CLOSED_SHARE: usize = 4;
/// Opening a file in the page cache takes less, except now and then if the thread had to wait for a
/// core.
const WAITED_MIN: Duration = Duration::from_micros(300);
const WAITED_IN_A_ROW: u32 = 3;
/// The most bytes of chunk tables in memory beside those of the archive.
const TABLE_BYTES_MAX: u64 = 64 << 20;

/// The open files, and chunk tables that were read.
#[derive(Debug)]
pub(super) struct OpenFiles {
    limit: usize,
    /// True if every read checks whether a file has changed.
    checks: bool,
    /// The number of files in a row that took as long to open as a wait for the device.
    slow: AtomicU32,
    state: Mutex<OpenFilesState>,
}

/// Open files and tables, under one lock.
#[derive(Debug, Default)]
struct OpenFilesState {
    /// The number of uses so far.
    clock: u64,
    /// Open files, each with the time of its last use on this clock.
    objects: HashMap<usize, (u64, Arc<dyn Object>)>,
    /// Tables by file and variable.
    tables: HashMap<(usize, usize), Arc<ChunkTable>>,
    table_bytes: u64,
}

impl OpenFiles {
    /// Keeps at most `most` files open.
    pub(super) fn new(checks: bool, most: usize) -> Self {
        let limit = (open_files_max() / OPEN_SHARE).clamp(1, OPEN_MAX);
        let limit = usize::try_from(limit).unwrap_or(1).min(most.max(1));
        Self { limit, checks, slow: AtomicU32::new(0), state: Mutex::default() }
    }

    /// Returns true if every read checks whether a file has changed.
    pub(super) fn asks_again(&self) -> bool {
        self.checks
    }

    /// Returns true if files wait for the device, given the time that the last one took to open.
    fn has_waited(&self, took: Duration) -> bool {
        if took <= WAITED_MIN {
            self.slow.store(0, Ordering::Relaxed);
            return false;
        }
        self.slow.fetch_add(1, Ordering::Relaxed) + 1 >= WAITED_IN_A_ROW
    }

    fn lock(&self) -> MutexGuard<'_, OpenFilesState> {
        // A thread that panicked left consistent values.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self, file: usize) -> Option<Arc<dyn Object>> {
        let mut state = self.lock();
        state.clock += 1;
        let clock = state.clock;
        let (used, object) = state.objects.get_mut(&file)?;
        *used = clock;
        Some(object.clone())
    }

    fn keep(&self, file: usize, object: &Arc<dyn Object>) {
        let mut state = self.lock();
        state.clock += 1;
        let clock = state.clock;
        state.objects.insert(file, (clock, object.clone()));
        if state.objects.len() > self.limit {
            // Several files are closed at a time, so that few opens have to search for the oldest.
            let mut uses: Vec<u64> = state.objects.values().map(|(used, _)| *used).collect();
            let (_, oldest, _) = uses.select_nth_unstable(self.limit / CLOSED_SHARE);
            let oldest = *oldest;
            state.objects.retain(|_, (used, _)| *used > oldest);
        }
    }

    pub(super) fn close_all(&self) {
        self.lock().objects.clear();
    }

    fn table(&self, key: (usize, usize)) -> Option<Arc<ChunkTable>> {
        self.lock().tables.get(&key).cloned()
    }

    fn keep_table(&self, key: (usize, usize), table: &Arc<ChunkTable>) {
        let bytes = table.len() as u64 * ChunkTable::ENTRY_BYTES;
        let mut state = self.lock();
        if state.table_bytes + bytes > TABLE_BYTES_MAX {
            state.tables.clear();
            state.table_bytes = 0;
        }
        if bytes <= TABLE_BYTES_MAX && state.tables.insert(key, table.clone()).is_none() {
            state.table_bytes += bytes;
        }
    }
}

impl Archive {
    /// Opens the file that the archive knows, or returns it if it is open.
    ///
    /// # Errors
    /// `Conflict` if another file has taken its place, or it was changed; those of storage.
    pub(super) fn object(&self, file: usize) -> Result<Arc<dyn Object>> {
        if let Some(object) = self.open.kept(file) {
            // Also without checks at each read: the tables of an open file hold its old places.
            self.check(file, object.version())?;
            return Ok(object);
        }
        let (storage, place) = (self.places.storage(file), &self.places.files[file]);
        let opened = match storage.open_end(&place.name, 1) {
            Err(error) if is_out_of_files(&error) => {
                self.open.close_all();
                storage.open_end(&place.name, 1)
            }
            opened => opened,
        };
        let object: Arc<dyn Object> = Arc::from(opened?);
        if source_version(object.version()) != self.files[file].source {
            return Err(changed(&place.path));
        }
        self.open.keep(file, &object);
        Ok(object)
    }

    /// Fails unless the name of a file still refers to this version of it.
    fn check(&self, file: usize, version: &Version) -> Result<()> {
        let place = &self.places.files[file];
        // A file that is gone gives its own error.
        match self.places.storage(file).is_current(&place.name, version)? {
            true => Ok(()),
            false => {
                self.places.storage(file).stat(&place.name)?;
                Err(changed(&place.path))
            }
        }
    }

    /// Fails unless a file is still the one that the archive knows, for variables whose bytes the
    /// archive holds.
    fn check_state(&self, file: usize) -> Result<()> {
        let place = &self.places.files[file];
        let found = self.places.storage(file).stat(&place.name)?;
        match source_version(&found) == self.files[file].source {
            true => Ok(()),
            false => Err(changed(&place.path)),
        }
    }

    /// Returns the chunks of a variable in a file; `None` for one without chunks.
    pub(super) fn table(
        &self,
        (file, variable): (usize, usize),
        form: &VariableForm,
        object: &dyn Object,
    ) -> Result<Option<Arc<ChunkTable>>> {
        let place = &self.files[file].variables[variable];
        let ForeignStorage::Chunked { .. } = &form.array.storage else { return Ok(None) };
        if let Some(table) = &place.chunks {
            return Ok(Some(table.clone()));
        }
        if let Some(table) = self.open.table((file, variable)) {
            return Ok(Some(table));
        }
        let reader = Hdf5Access::new(object, None, false);
        let table = hdf5::read_table(&reader, place.at, &form.array, &self.limits)
            .map_err(|error| error.at(self.file_name(file)))?;
        let table = Arc::new(table);
        self.open.keep_table((file, variable), &table);
        Ok(Some(table))
    }
}

/// Returns true if the process may open no more files.
fn is_out_of_files(error: &StorageError) -> bool {
    let code = error.source.as_ref().and_then(std::io::Error::raw_os_error);
    code == Some(Errno::MFILE.raw_os_error())
}

/// A variable of one file of an archive.
#[derive(Clone, Copy)]
pub(crate) struct ArchiveMember<'a> {
    pub(super) archive: &'a Archive,
    pub(super) file: usize,
    pub(super) variable: usize,
}

impl ArchiveMember<'_> {
    fn form(&self) -> &VariableForm {
        self.archive.form(self.file, self.variable)
    }

    fn has_own_bytes(&self) -> bool {
        !matches!(self.form().array.storage, ForeignStorage::Empty | ForeignStorage::Compact { .. })
    }
}

impl Source for ArchiveMember<'_> {
    fn open(
        &self,
        _: &[u64],
        _: Need,
        _: Option<PendingCell>,
        waits: &dyn Fn(),
    ) -> Result<Option<OpenCell>> {
        let began = Instant::now();
        let (archive, form) = (self.archive, self.form());
        let place = &archive.files[self.file].variables[self.variable];
        if !self.has_own_bytes() && archive.open.checks {
            archive.check_state(self.file)?;
        }
        let mut table = None;
        let object: Arc<dyn Object> = match (&form.array.storage, &place.data) {
            (ForeignStorage::Empty, _) => return Ok(None),
            (ForeignStorage::Compact { .. }, Some(data)) => {
                Arc::new(CompactObject::new(data.to_vec()))
            }
            (ForeignStorage::Compact { .. }, None) => {
                let text = format!("{}: an archive without its bytes", self.object_name(&[]));
                return Err(Error::new(ErrorKind::Corrupt, text));
            }
            _ => {
                let object = archive.object(self.file)?;
                table = archive.table((self.file, self.variable), form, &*object)?;
                object
            }
        };
        // Only the duration shows whether the file was in the page cache.
        if archive.open.has_waited(began.elapsed()) {
            waits();
        }
        let table = || TableHandle::Own(table.unwrap_or_default());
        Ok(Some(cell_of(object, &form.array.storage, Some(place.at), table)))
    }

    fn is_still(&self, _: &[u64], version: Option<&Version>) -> Result<bool> {
        let archive = self.archive;
        match version {
            _ if !self.has_own_bytes() => {
                Ok(!archive.open.checks || archive.check_state(self.file).is_ok())
            }
            Some(version) => {
                let name = &archive.places.files[self.file].name;
                Ok(archive.places.storage(self.file).is_current(name, version)?)
            }
            None => Ok(false),
        }
    }

    fn object_name(&self, _: &[u64]) -> String {
        format!("{}/{}", self.archive.file_name(self.file), self.form().array.path)
    }

    fn place_name(&self) -> String {
        self.archive.file_name(self.file)
    }
}
