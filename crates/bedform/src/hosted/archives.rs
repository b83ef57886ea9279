//! Archives whose files the HDF5 library opens one by one.
//!
//! The process keeps the archives that it used last, because programs that open one file after the
//! other need them each time. Their files are closed when the library has none of them open.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bedform_format::chunk_map::SourceVersion;
use bedform_storage::Version;

use super::is_known;
use crate::error::Result;
use crate::foreign::{ArchiveOptions, ForeignFile, ListedFiles, archives_beside};
use crate::options::OpenOptions;
use crate::sidecar::{Sidecar, SidecarName};
use crate::threads::per_process::PerProcess;

/// The most archives that are kept.
const KEPT_MAX: usize = 16;
/// The most files of an archive that the engine itself keeps open beside the library's.
const OPEN_MAX: usize = 16;

/// The archives that were used last, the latest at the end.
static ARCHIVES: PerProcess<Mutex<Vec<Arc<ArchiveEntry>>>> = PerProcess::new();

/// An archive through which the library's files are read, as long as this lives.
#[derive(Debug)]
pub(super) struct HostedArchive(Arc<ArchiveEntry>);

/// An archive that is kept.
#[derive(Debug)]
struct ArchiveEntry {
    /// The directory of its sidecar, by which it is known, and the version of the list there.
    directory: PathBuf,
    version: Version,
    listed: ListedFiles,
    /// The files of the list.
    paths: HashSet<PathBuf>,
    state: Mutex<ArchiveState>,
    /// Hosted files that are read through it.
    users: AtomicUsize,
}

/// An archive when it was opened last.
#[derive(Debug, Default)]
enum ArchiveState {
    #[default]
    Closed,
    /// The files cannot be joined.
    Failed,
    Opened(OpenedArchive),
}

#[derive(Debug)]
struct OpenedArchive {
    archive: Arc<ForeignFile>,
    /// The number of each file, and its state.
    files: HashMap<PathBuf, (usize, SourceVersion)>,
}

impl HostedArchive {
    /// Returns the archive that lists the file at `path` and of which something is known; `None` if
    /// there is none. Of several the one that was listed last counts.
    ///
    /// # Errors
    /// As [`Sidecar::of_path`].
    pub(super) fn of_file(path: &Path) -> Result<Option<Self>> {
        for first in archives_beside(path)? {
            let sidecar = Sidecar::find(&SidecarName::of_archive(&first), None)?;
            let Some(entry) = sidecar.filter(is_known).and_then(|known| entry_of(&known)) else {
                continue;
            };
            if entry.paths.contains(path) {
                entry.users.fetch_add(1, Ordering::Relaxed);
                return Ok(Some(Self(entry)));
            }
        }
        Ok(None)
    }

    /// Returns the opened archive, and the number of the file at `path` in it. It is opened anew if
    /// it knows the file in another state. `None` if the files cannot be joined.
    pub(super) fn file(
        &self,
        path: &Path,
        state: &SourceVersion,
    ) -> Option<(Arc<ForeignFile>, usize)> {
        let mut kept = lock(&self.0.state);
        if let ArchiveState::Opened(opened) = &*kept
            && let Some(number) = opened.number_of(path, state)
        {
            return Some((opened.archive.clone(), number));
        }
        if let ArchiveState::Failed = &*kept {
            return None;
        }
        *kept = self.0.open();
        let ArchiveState::Opened(opened) = &*kept else { return None };
        Some((opened.archive.clone(), opened.number_of(path, state)?))
    }
}

impl Drop for HostedArchive {
    fn drop(&mut self) {
        if self.0.users.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        // Another thread that opens it has a user of its own.
        if let Ok(kept) = self.0.state.try_lock()
            && let ArchiveState::Opened(opened) = &*kept
        {
            opened.archive.close_files();
        }
    }
}

impl ArchiveEntry {
    fn open(&self) -> ArchiveState {
        let how = ArchiveOptions { join: self.listed.join(), ..ArchiveOptions::default() };
        let mut options = OpenOptions::default();
        options.limits.objects_open_max = options.limits.objects_open_max.min(OPEN_MAX);
        let Ok(archive) = ForeignFile::open_archive(&self.listed.files, &how, &options) else {
            return ArchiveState::Failed;
        };
        let files = archive.joined_files().enumerate();
        let files = files.map(|(number, (path, state))| (path.to_owned(), (number, state.clone())));
        let files = files.collect();
        ArchiveState::Opened(OpenedArchive { archive: Arc::new(archive), files })
    }
}

impl OpenedArchive {
    /// Returns the number of the file at `path`, if the archive has it in this state.
    fn number_of(&self, path: &Path, state: &SourceVersion) -> Option<usize> {
        let (number, known) = self.files.get(path)?;
        (known == state).then_some(*number)
    }
}

/// Returns the kept archive with this sidecar, or keeps it; `None` without a list of its files.
fn entry_of(sidecar: &Sidecar) -> Option<Arc<ArchiveEntry>> {
    let (directory, version) = (sidecar.own_directory()?, ListedFiles::version(sidecar)?);
    let is_it = |entry: &ArchiveEntry| entry.directory == directory;
    let kept = ARCHIVES.get(|_| Mutex::default());
    let mut known = lock(kept);
    if let Some(at) = known.iter().position(|entry| is_it(entry) && entry.version == version) {
        let entry = known.remove(at);
        known.push(entry.clone());
        return Some(entry);
    }
    // Loading takes long: the list is unlocked meanwhile.
    drop(known);
    let listed = ListedFiles::load(sidecar)?;
    let paths = listed.files.iter().cloned().collect();
    let (state, users) = (Mutex::default(), AtomicUsize::new(0));
    let entry = Arc::new(ArchiveEntry { directory, version, listed, paths, state, users });
    let mut known = lock(kept);
    known.retain(|other| other.directory != entry.directory);
    if known.len() >= KEPT_MAX {
        known.remove(0);
    }
    known.push(entry.clone());
    Some(entry)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked left consistent values.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
