//! The objects of an array that replicas were made of, and whether each is as it was.

use std::time::SystemTime;

use bedform_format::checksum::crc32c;
use bedform_format::chunk_map::SourceVersion;
use bedform_format::metadata::hex;
use bedform_geometry::{PlacedAxis, Region, Selection};
use bedform_storage::{Object, Version};

use super::super::Array;
use super::super::known::Known;
use super::base::Base;
use crate::cache::was_too_young;
use crate::error::{Error, ErrorKind, Result};
use crate::foreign::archive::JoinedVariable;
use crate::foreign::facts::Sources;
use crate::replica::{OBJECTS_MAX, ObjectsOf, pieces_if_alike};
use crate::sidecar::source_version;
use crate::source::Source as _;
use crate::threads::workers::check_goes_on;
use crate::zarr::source::ZarrSource;
use crate::zarr::state::ArrayState;

/// Bytes of a piece of an object by which it is told from another.
const PIECE_BYTES: u64 = 4096;

/// What of an array changes by itself. An object is known by its coordinates: of an archive, where its file
/// begins and ends along the joined axis.
pub(crate) enum Objects<'a> {
    /// Nothing: it is of one file, and replicas are of a state of that.
    File,
    /// Shards of a store.
    Store(StoredObjects<'a>),
    /// Files, one behind the other.
    Archive(&'a JoinedVariable),
}

/// The objects of an array of a store.
pub(crate) struct StoredObjects<'a> {
    pub(super) source: ZarrSource<'a>,
    /// The key of the array, in hexadecimal digits.
    pub(super) key: String,
    /// Whether every read asks for them again.
    pub(super) asks_again: bool,
}

impl StoredObjects<'_> {
    fn version(&self, coordinates: &[u64]) -> Result<Option<SourceVersion>> {
        let path = self.source.object_path(coordinates)?;
        match self.source.hierarchy.storage.stat(&path) {
            Ok(version) => Ok(Some(source_version(&version))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl<'a> Objects<'a> {
    /// Those of a variable whose chunks lie there.
    pub(super) fn of_variable(sources: Sources<'a>) -> Self {
        match sources {
            Sources::One(_) => Self::File,
            Sources::Joined(joined) => Self::Archive(joined),
        }
    }

    /// The coordinates of those that hold the elements of a selection.
    fn of_selection(&self, selection: &Selection) -> Result<Vec<Vec<u64>>> {
        let found: Vec<Vec<u64>> = match self {
            Self::File => Vec::new(),
            Self::Store(stored) => {
                let geometry = stored.source.state.layout.geometry(selection)?;
                check_count(geometry.cell_count())?;
                (0..geometry.cell_count()).map(|cell| geometry.cell_coordinates(cell)).collect()
            }
            Self::Archive(joined) => {
                let stretches = joined.stretches_of(selection)?.into_iter();
                stretches.map(|(start, end)| vec![start, end]).collect()
            }
        };
        check_count(found.len() as u64)?;
        Ok(found)
    }

    /// The identity of the array among others at its path: its key, or the joined dimension and units of times.
    pub(super) fn key(&self) -> Option<&str> {
        match self {
            Self::File => None,
            Self::Store(stored) => Some(&stored.key),
            Self::Archive(joined) => Some(joined.key()),
        }
    }

    /// Whether every read asks for them again.
    pub(super) fn asks_again(&self) -> bool {
        match self {
            Self::File => false,
            Self::Store(stored) => stored.asks_again,
            Self::Archive(joined) => joined.asks_again(),
        }
    }

    /// The version of one; nothing for one that is not there. Of an archive it is that which was found when it was
    /// opened, unless the file is looked at `anew`.
    ///
    /// # Errors
    /// Those of storage.
    pub(super) fn version(&self, coordinates: &[u64], anew: bool) -> Result<Option<SourceVersion>> {
        match (self, coordinates) {
            (Self::Store(stored), _) => stored.version(coordinates),
            (Self::Archive(joined), [start, end]) => joined.version((*start, *end), anew),
            _ => Ok(None),
        }
    }

    /// As [`pieces_of`], of one in the state `state`.
    ///
    /// # Errors
    /// Those of storage.
    pub(super) fn pieces(&self, coordinates: &[u64], state: &SourceVersion) -> Result<Option<u32>> {
        match (self, coordinates) {
            (Self::Store(stored), _) => pieces_of_shard(&stored.source, coordinates, state),
            (Self::Archive(joined), [start, end]) => pieces_of_file(joined, (*start, *end), state),
            _ => Ok(None),
        }
    }
}

/// The CRC-32C of pieces of an object in the state `state`, of its begin, its middle and its end, where the index of
/// a shard is; nothing if it is in another state.
fn pieces_of(object: &dyn Object, state: &SourceVersion) -> Result<Option<u32>> {
    if source_version(object.version()) != *state {
        return Ok(None);
    }
    let last = state.size.saturating_sub(PIECE_BYTES);
    let mut starts = vec![0, last / 2, last];
    starts.dedup();
    let mut bytes = Vec::new();
    for start in starts {
        let from = bytes.len();
        let length = usize::try_from(PIECE_BYTES.min(state.size - start)).unwrap_or(0);
        bytes.resize(from + length, 0);
        object.read(start, &mut bytes[from..])?;
    }
    Ok(Some(crc32c(&bytes)))
}

/// As [`pieces_of`]; nothing for one that is not there, or far away.
fn pieces_of_shard(
    source: &ZarrSource<'_>,
    coordinates: &[u64],
    state: &SourceVersion,
) -> Result<Option<u32>> {
    if source.is_remote() {
        return Ok(None);
    }
    match source.hierarchy.storage.open(&source.object_path(coordinates)?) {
        Err(error) if error.is_not_found() => Ok(None),
        opened => pieces_of(&*opened?, state),
    }
}

/// As [`pieces_of`], of the file with this stretch of an archive; nothing for one that is not there.
fn pieces_of_file(
    joined: &JoinedVariable,
    stretch: (u64, u64),
    state: &SourceVersion,
) -> Result<Option<u32>> {
    match joined.opened(stretch)? {
        Some(object) => pieces_of(&*object, state),
        None => Ok(None),
    }
}

fn check_count(count: u64) -> Result<()> {
    if count <= OBJECTS_MAX as u64 {
        return Ok(());
    }
    Err(Error::new(ErrorKind::LimitExceeded, format!("a replica of {count} objects")))
}

/// What tells an array of a store from others that lay at its path: its key, in hexadecimal digits.
pub(super) fn key_of(state: &ArrayState) -> String {
    state.identity().map_or_else(String::new, |own| hex(&own.array))
}

impl Base<'_> {
    /// The objects that have something of a part of a read; nothing for more than `limit` of a store.
    pub(super) fn objects_in(&self, part: &[PlacedAxis], limit: u64) -> Option<Vec<Vec<u64>>> {
        match &self.objects {
            Objects::File => Some(Vec::new()),
            Objects::Store(_) => {
                let own: Vec<PlacedAxis> =
                    part.iter().map(|axis| PlacedAxis::all(axis.positions.clone())).collect();
                let shape: Vec<u64> = part.iter().map(PlacedAxis::len).collect();
                let geometry = self.geometry(&own, &shape).ok()?;
                let cells = 0..geometry.cell_count();
                (cells.end <= limit)
                    .then(|| cells.map(|cell| geometry.cell_coordinates(cell)).collect())
            }
            Objects::Archive(joined) => {
                let stretches = joined.stretches(&part.get(joined.axis())?.positions);
                Some(stretches.into_iter().map(|(start, end)| vec![start, end]).collect())
            }
        }
    }

    /// The elements of the array that an object has.
    pub(super) fn object_region(&self, coordinates: &[u64]) -> Option<Region> {
        match (&self.objects, coordinates) {
            (Objects::Archive(joined), [start, end]) => {
                let whole = Region::whole(self.layout.grid.array_shape()).ok()?;
                let (mut first, mut shape) = (whole.start().to_vec(), whole.shape().to_vec());
                (first[joined.axis()], shape[joined.axis()]) = (*start, end - start);
                Region::new(first, shape).ok()
            }
            _ => self.layout.object_region(coordinates).ok(),
        }
    }
}

impl Array {
    /// The objects that hold the elements of a selection, each as it is now, but those that were changed just
    /// before `time`; nothing for an array of one file.
    ///
    /// # Errors
    /// `LimitExceeded` for too many; `Conflict` for one that was changed just before, if `all` are needed, and for a
    /// file that has changed since the archive was opened; those of storage.
    pub(crate) fn objects_of(
        &self,
        selection: &Selection,
        time: SystemTime,
        all: bool,
    ) -> Result<Option<ObjectsOf>> {
        self.with_objects(|objects| {
            let Some(key) = objects.key() else { return Ok(None) };
            let coordinates =
                objects.of_selection(selection).map_err(|error| error.at(self.name()))?;
            let mut found = Vec::with_capacity(coordinates.len());
            for coordinates in coordinates {
                match objects.version(&coordinates, true)? {
                    Some(version) if is_young(&version, time) => {
                        // What is not named counts as changed, which nobody asks of points one by one.
                        if all {
                            let text = "it is being written: try again when it is not";
                            return Err(Error::new(ErrorKind::Conflict, text).at(self.name()));
                        }
                    }
                    None if matches!(objects, Objects::Archive(_)) => {
                        let text = "a file has changed since it was opened: try again";
                        return Err(Error::new(ErrorKind::Conflict, text).at(self.name()));
                    }
                    version => found.push((coordinates, version)),
                }
            }
            let key = key.to_owned();
            Ok(Some(ObjectsOf { key, objects: found, pieces: Vec::new(), sampled_ns: 0 }))
        })
    }

    /// The same objects, with pieces of each, where the array lies on this machine: for what moves them later.
    ///
    /// # Errors
    /// `Interrupted`; those of storage.
    pub(crate) fn with_pieces(&self, of: ObjectsOf, time: SystemTime) -> Result<ObjectsOf> {
        self.with_objects(|objects| {
            let mut pieces = Vec::with_capacity(of.objects.len());
            for (coordinates, state) in &of.objects {
                check_goes_on("making replicas was stopped")?;
                let found = match state {
                    Some(state) => objects.pieces(coordinates, state)?,
                    None => Some(0),
                };
                // One that has changed already will not be taken for the same, either.
                let Some(found) = found else { return Ok(of) };
                pieces.push(found);
            }
            let time = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let sampled_ns = i64::try_from(time.as_nanos()).unwrap_or(0);
            Ok(ObjectsOf { pieces, sampled_ns, ..of })
        })
    }

    /// The share of objects that are as they were; 0 where the array is another one.
    ///
    /// # Errors
    /// Those of storage.
    pub(crate) fn share_still(&self, of: &ObjectsOf) -> Result<f64> {
        self.with_objects(|objects| {
            if objects.key() != Some(&of.key) {
                return Ok(0.0);
            }
            let mut still = 0_usize;
            for (number, (coordinates, then)) in of.objects.iter().enumerate() {
                let Ok(now) = objects.version(coordinates, true) else { continue };
                let is_alike = || {
                    let pieces = objects.pieces(coordinates, now.as_ref()?).ok()??;
                    Some(pieces_if_alike(of, number, now.as_ref())? == pieces)
                };
                still += usize::from(now == *then || is_alike() == Some(true));
            }
            Ok(still as f64 / of.objects.len().max(1) as f64)
        })
    }

    /// What tells it from other arrays that lay at its path; nothing where it is told by its file.
    ///
    /// # Errors
    /// Of looking it up.
    pub(crate) fn key(&self) -> Result<Option<String>> {
        self.with_objects(|objects| Ok(objects.key().map(str::to_owned)))
    }

    /// Calls `act` with what of the array changes by itself.
    fn with_objects<T>(&self, act: impl FnOnce(&Objects<'_>) -> Result<T>) -> Result<T> {
        match self.known()? {
            Known::Stored(handle, state, _) => {
                let source = handle.pinned(&state)?.source;
                let key = key_of(&state);
                act(&Objects::Store(StoredObjects { source, key, asks_again: true }))
            }
            Known::Foreign(variable) => act(&Objects::of_variable(variable.sources())),
        }
    }
}

/// True for an object that was changed just before `time`: what is written then may not be told from it.
fn is_young(version: &SourceVersion, time: SystemTime) -> bool {
    was_too_young(&Version { changed_ns: version.changed_ns, ..Version::default() }, time)
}
