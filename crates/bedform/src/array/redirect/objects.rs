//! The objects of an array that replicas are made of, and checks that each is unchanged.
//!
//! A replica or an index is made of an object only under three conditions. Its version is the same before and
//! after, and is older than a step of its file system's clock; no commit lies over it
//! ([`Array::bound`]). Other objects are not listed, and reads take their elements from the array
//! itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use bedform_format::chunk_map::SourceVersion;
use bedform_format::metadata::hex;
use bedform_geometry::{ChunkGrid, PlacedAxis, Region, Selection, delinearize};

use super::super::known::ArrayAtRead;
use super::super::{Array, ArrayBacking};
use super::base::BaseArray;
use crate::cache::{clock_step, is_young};
use crate::error::{Error, ErrorKind, Result};
use crate::foreign::archive::JoinedVariable;
use crate::foreign::facts::{ForeignVariable, Sources};
use crate::log::array::ArrayHandle;
use crate::log::snapshot::{PinnedArray, Snapshot};
use crate::plan::opening::Need;
use crate::plan::tuning::Tuning;
use crate::replica::{OBJECTS_MAX, ReplicaObject, SourceObject, SourceObjects, Standing};
use crate::run::read_source::ReadSource;
use crate::sidecar::source_version;
use crate::source::{Moment as _, Source as _, StoredLayout};
use crate::threads::workers::check_cancelled;
use crate::zarr::state::ArrayState;

/// Longer than a clock step of most file systems: two writes so far apart have different times.
const LEAST_STEP: Duration = Duration::from_millis(20);

/// The separately changing objects of an array. Coordinates identify an object: in an archive, the
/// start and end of its file along the joined axis; a single file has none.
pub(crate) enum ArrayObjects<'a> {
    /// One file, in the state that reads use.
    File { variable: &'a dyn ForeignVariable, own: ReadSource<'a>, state: &'a SourceVersion },
    /// Shards of a store.
    Store(StoredObjects<'a>),
    /// Files that are joined along an axis.
    Archive(&'a JoinedVariable),
}

/// The objects of an array of a store.
pub(crate) struct StoredObjects<'a> {
    pinned: &'a PinnedArray<'a>,
    /// The key of the array, in hexadecimal digits.
    key: String,
}

impl<'a> StoredObjects<'a> {
    pub(super) fn new(pinned: &'a PinnedArray<'a>) -> Self {
        let identity = pinned.source.state.identity();
        Self { pinned, key: identity.map_or_else(String::new, |own| hex(&own.array)) }
    }

    fn version(&self, coordinates: &[u64]) -> Result<Option<SourceVersion>> {
        let path = self.pinned.source.object_path(coordinates)?;
        match self.pinned.source.hierarchy.storage.stat(&path) {
            Ok(version) => Ok(Some(source_version(&version))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// An object as it is now, with the last commit that it contains. `None` if unsettled commits
    /// lie over it: restoring the log from a backup may lose them again.
    ///
    /// # Errors
    /// `SnapshotMoved` for an object that is being settled; those of storage.
    fn settled(&self, coordinates: &[u64]) -> Result<Option<SourceObject>> {
        let PinnedArray { source, moment } = self.pinned;
        let opened = source.open(coordinates, Need::default(), None, &|| ())?;
        let version = opened.as_ref().map(|cell| source_version(cell.object.version()));
        let commit = moment.contained(opened.map_or(0, |cell| cell.contained));
        let cover = moment.cover(coordinates, commit, &|| source.object_name_of(coordinates))?;
        Ok(cover.is_none().then(|| SourceObject { at: coordinates.to_vec(), version, commit }))
    }

    /// The number of the moment for which one check of an object suffices. `None` where every read
    /// checks again, as on disks and with freshness before every read.
    fn looked_at(&self) -> Option<u64> {
        let PinnedArray { source, moment } = self.pinned;
        (source.is_remote() && source.keeps_shards()).then(|| moment.number())
    }
}

impl<'a> ArrayObjects<'a> {
    /// The objects of a variable; `None` for a variable that a callback reads, which has no state.
    pub(super) fn of_variable(variable: &'a dyn ForeignVariable) -> Option<Self> {
        match variable.sources() {
            Sources::One(own) => variable.state().map(|state| Self::File { variable, own, state }),
            Sources::Joined(joined) => Some(Self::Archive(joined)),
        }
    }

    /// The array as reads see it; `None` for many files, each with a source of its own.
    pub(super) fn read_source(&self) -> Option<ReadSource<'a>> {
        match self {
            Self::File { own, .. } => Some(*own),
            Self::Store(stored) => Some(stored.pinned.read_source()),
            Self::Archive(_) => None,
        }
    }

    /// Grid, codecs and fill value of the whole array.
    pub(super) fn layout(&self) -> &'a StoredLayout {
        match self {
            Self::File { own, .. } => own.layout,
            Self::Store(stored) => &stored.pinned.source.state.layout,
            Self::Archive(joined) => &joined.facts().layout,
        }
    }

    /// The parameters for planning reads of the array.
    pub(super) fn tuning(&self) -> &'a Tuning {
        match self {
            Self::File { own, .. } => own.tuning,
            Self::Store(stored) => &stored.pinned.source.hierarchy.tuning,
            Self::Archive(joined) => &joined.facts().tuning,
        }
    }

    /// The fingerprint that the array's replicas must carry, beside those of their objects.
    pub(super) fn form(&self) -> &'a str {
        match self {
            Self::File { variable, .. } => &variable.facts().meaning,
            Self::Store(stored) => &stored.pinned.source.state.form,
            Self::Archive(joined) => &joined.facts().meaning,
        }
    }

    /// The coordinates of the objects that hold the elements of a selection.
    fn of_selection(&self, selection: &Selection) -> Result<Vec<Vec<u64>>> {
        let found: Vec<Vec<u64>> = match self {
            Self::File { .. } => vec![Vec::new()],
            Self::Store(_) => {
                let geometry = self.layout().geometry(selection)?;
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

    /// The identity of the array among others at its path: its key, or the joined dimension with
    /// its time units.
    pub(super) fn key(&self) -> &str {
        match self {
            Self::File { .. } => "",
            Self::Store(stored) => &stored.key,
            Self::Archive(joined) => joined.key(),
        }
    }

    /// See [`StoredObjects::looked_at`].
    pub(super) fn looked_at(&self) -> Option<u64> {
        match self {
            // The read has checked the file.
            Self::File { .. } => Some(0),
            Self::Store(stored) => stored.looked_at(),
            Self::Archive(joined) => (!joined.asks_again()).then_some(0),
        }
    }

    /// The version of an object. `None` if it does not exist, or has changed since the archive or
    /// file was opened. For a file it is the version found then, unless `anew` checks the file
    /// again.
    ///
    /// # Errors
    /// Those of storage.
    pub(super) fn version(&self, coordinates: &[u64], anew: bool) -> Result<Option<SourceVersion>> {
        match (self, coordinates) {
            (Self::Store(stored), _) => stored.version(coordinates),
            (Self::Archive(joined), [start, end]) => joined.version((*start, *end), anew),
            (Self::File { variable, state, .. }, []) => {
                let is_same = !anew || variable.is_as_opened(true)?;
                Ok(is_same.then(|| (*state).clone()))
            }
            _ => Ok(None),
        }
    }

    /// The region of the array that an object holds.
    pub(super) fn region(&self, coordinates: &[u64]) -> Option<Region> {
        let whole = || Region::whole(self.layout().grid.array_shape()).ok();
        match (self, coordinates) {
            (Self::Store(_), _) => self.layout().object_region(coordinates).ok(),
            (Self::Archive(joined), [start, end]) => {
                let whole = whole()?;
                let (mut first, mut shape) = (whole.start().to_vec(), whole.shape().to_vec());
                (first[joined.axis()], shape[joined.axis()]) = (*start, end - start);
                Region::new(first, shape).ok()
            }
            (Self::File { .. }, _) => whole(),
            _ => None,
        }
    }

    /// An object as it is now; `None` where no replica may be made of it now.
    ///
    /// # Errors
    /// `Conflict` for a file that has changed since it was opened; those of storage.
    fn settled(&self, coordinates: &[u64]) -> Result<Option<SourceObject>> {
        if let Self::Store(stored) = self {
            return match stored.settled(coordinates) {
                Err(error) if error.kind() == ErrorKind::SnapshotMoved => Ok(None),
                outcome => outcome,
            };
        }
        let Some(version) = self.version(coordinates, true)? else {
            let text = "a file has changed since it was opened: try again";
            return Err(Error::new(ErrorKind::Conflict, text));
        };
        Ok(Some(SourceObject { at: coordinates.to_vec(), version: Some(version), commit: 0 }))
    }
}

/// The coordinates of the objects of an array that a region touches, in C order; `None` for too
/// many.
fn objects_of_region(layout: &StoredLayout, region: &Region) -> Option<Vec<Vec<u64>>> {
    let lengths = layout.grid.chunk_shape().iter().zip(&layout.per_object);
    let lengths: Vec<u64> = lengths.map(|(chunk, count)| chunk.saturating_mul(*count)).collect();
    let whole = ChunkGrid::new(layout.grid.array_shape(), lengths).ok()?;
    let Some(touched) = whole.chunks_of_region(region) else { return Some(Vec::new()) };
    let count = touched.len().filter(|count| *count <= OBJECTS_MAX as u64)?;
    let place = |number| {
        let mut at = delinearize(number, touched.shape());
        at.iter_mut().zip(touched.start()).for_each(|(at, start)| *at += start);
        at
    };
    Some((0..count).map(place).collect())
}

fn check_count(count: u64) -> Result<()> {
    if count <= OBJECTS_MAX as u64 {
        return Ok(());
    }
    let text = format!("{count} objects of an array are over the limit of {OBJECTS_MAX}");
    Err(Error::new(ErrorKind::LimitExceeded, text))
}

impl BaseArray<'_> {
    /// The objects that hold elements of a part of a read; `None` for more than `limit` objects of
    /// a store.
    pub(super) fn objects_in(&self, part: &[PlacedAxis], limit: u64) -> Option<Vec<Vec<u64>>> {
        match &self.objects {
            ArrayObjects::File { .. } => Some(vec![Vec::new()]),
            ArrayObjects::Store(_) => {
                let own: Vec<PlacedAxis> =
                    part.iter().map(|axis| PlacedAxis::all(axis.positions.clone())).collect();
                let shape: Vec<u64> = part.iter().map(PlacedAxis::len).collect();
                let geometry = self.geometry(&own, &shape).ok()?;
                let cells = 0..geometry.cell_count();
                (cells.end <= limit)
                    .then(|| cells.map(|cell| geometry.cell_coordinates(cell)).collect())
            }
            ArrayObjects::Archive(joined) => {
                let stretches = joined.stretches(&part.get(joined.axis())?.positions);
                Some(stretches.into_iter().map(|(start, end)| vec![start, end]).collect())
            }
        }
    }
}

/// The objects of an array as of one moment, for comparisons that outlive one read. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) enum PinnedObjects {
    Stored(ArrayHandle, Arc<ArrayState>, Snapshot),
    Foreign(Arc<dyn ForeignVariable>),
}

impl PinnedObjects {
    /// The objects of an array as it is now, or as of the snapshot at which its store stays; `None`
    /// for an array without objects that can be compared.
    ///
    /// # Errors
    /// Those of looking up the array again.
    pub(crate) fn of(array: &Array) -> Result<Option<Self>> {
        Ok(Some(match &array.backing {
            ArrayBacking::Stored(handle) => {
                let (state, snapshot) = handle.state_in_snapshot()?;
                Self::Stored(handle.clone(), state, snapshot)
            }
            ArrayBacking::Foreign(variable) => {
                if ArrayObjects::of_variable(&**variable).is_none() {
                    return Ok(None);
                }
                Self::Foreign(variable.clone())
            }
        }))
    }

    fn with<T>(&self, act: impl FnOnce(&ArrayObjects<'_>) -> Option<T>) -> Option<T> {
        match self {
            Self::Stored(handle, state, snapshot) => {
                let pinned = handle.pinned_to(state, snapshot.clone());
                act(&ArrayObjects::Store(StoredObjects::new(&pinned)))
            }
            Self::Foreign(variable) => act(&ArrayObjects::of_variable(&**variable)?),
        }
    }

    /// Grid, codecs and fill value.
    pub(crate) fn layout(&self) -> &StoredLayout {
        match self {
            Self::Stored(_, state, _) => &state.layout,
            Self::Foreign(variable) => &variable.facts().layout,
        }
    }

    /// The fingerprint of the array's metadata, and its key, as of a replica.
    pub(crate) fn form_and_key(&self) -> (String, String) {
        let found =
            self.with(|objects| Some((objects.form().to_owned(), objects.key().to_owned())));
        found.unwrap_or_default()
    }

    /// The coordinates of the objects that hold elements of a region; `None` for too many.
    pub(crate) fn of_region(&self, region: &Region) -> Option<Vec<Vec<u64>>> {
        match self {
            // This is called for each of many blocks, and a geometry takes longer.
            Self::Stored(_, state, _) => objects_of_region(&state.layout, region),
            Self::Foreign(_) => {
                self.with(|objects| objects.of_selection(&Selection::from(region)).ok())
            }
        }
    }

    /// True if an object has the recorded version, contains no commit of after this moment, and no
    /// commit lies over it.
    pub(crate) fn is_still(&self, then: &SourceObject) -> bool {
        let is_still = self.with(|objects| {
            let now = objects.version(&then.at, true).ok()?;
            if Standing::of(then.version.as_ref(), now.as_ref()) != Standing::Same {
                return Some(false);
            }
            let ArrayObjects::Store(stored) = objects else { return Some(true) };
            let PinnedArray { source, moment } = stored.pinned;
            if let Some(held) = &source.hierarchy.held {
                // Writes without a session have no number: their time decides. The snapshot may
                // have an earlier object, and an absent one may have been deleted.
                let SourceVersion { changed_ns, modified_ns, .. } = then.version.as_ref()?;
                let changed = if *changed_ns == 0 { modified_ns } else { changed_ns };
                if *changed > held.since_ns {
                    return Some(false);
                }
            }
            let name = || source.object_name_of(&then.at);
            Some(moment.cover(&then.at, then.commit, &name).ok()?.is_none())
        });
        is_still.unwrap_or(false)
    }
}

/// Objects that a replica may be made of, and the fingerprint of the array's metadata.
#[derive(Debug, PartialEq)]
pub(crate) struct BoundObjects {
    /// As in [`Replica`](crate::replica::Replica).
    pub(crate) meaning: String,
    /// The objects of a selection, with their versions.
    pub(crate) of: SourceObjects,
}

/// Counts of a replica's source objects by their relation to the recorded versions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Standings {
    /// Objects that are listed.
    pub(crate) listed: usize,
    /// Objects with their recorded versions.
    pub(crate) same: usize,
    /// Objects that may be the same: see [`Standing::Alike`].
    pub(crate) alike: usize,
}

impl Array {
    /// Runs `act`, which reads a selection, and returns the objects of the selection that were
    /// unchanged before and after. With `all` none may be missing.
    ///
    /// # Errors
    /// `LimitExceeded` for too many objects; `Conflict` if `all` are needed and one is being
    /// written or has unsettled commits over it; `Conflict` for a file that has changed since it
    /// was opened, and for metadata that were changed meanwhile; those of `act` and of storage.
    pub(crate) fn bound(
        &self,
        selection: &Selection,
        all: bool,
        act: impl FnOnce() -> Result<()>,
    ) -> Result<BoundObjects> {
        let (bound, unbound) = self.bound_in_part(selection, act)?;
        if !unbound.is_empty() && (all || bound.of.objects.is_empty()) {
            let text = "it is being written, or commits that are not settled lie over it: run 'bedform settle', or try \
                        again later";
            return Err(Error::new(ErrorKind::Conflict, text).at(self.name()));
        }
        Ok(bound)
    }

    /// As [`Array::bound`], with the coordinates of the objects that were being written, or had
    /// commits over them.
    ///
    /// # Errors
    /// As [`Array::bound`], for objects only for too many.
    pub(crate) fn bound_in_part(
        &self,
        selection: &Selection,
        act: impl FnOnce() -> Result<()>,
    ) -> Result<(BoundObjects, Vec<Vec<u64>>)> {
        let located = |error: Error| error.at(self.name());
        // Two writes in one clock step may leave the same time.
        sleep(LEAST_STEP);
        let mut before = self.settled_objects(selection, SystemTime::now()).map_err(located)?;
        if let Some(step) = before.young {
            sleep(step);
            before = self.settled_objects(selection, SystemTime::now()).map_err(located)?;
        }
        act()?;
        let after = self.settled_objects(selection, SystemTime::now()).map_err(located)?.bound;
        let SettledObjects { bound: BoundObjects { meaning, mut of }, mut left_out, .. } = before;
        if meaning != after.meaning || of.key != after.of.key {
            let text = "its metadata have changed meanwhile: try again";
            return Err(located(Error::new(ErrorKind::Conflict, text)));
        }
        let after = after.of.objects.into_iter().map(|object| (object.at.clone(), object));
        let after: HashMap<Vec<u64>, SourceObject> = after.collect();
        of.objects.retain(|object| {
            let is_same = after.get(&object.at) == Some(object);
            if !is_same {
                left_out.push(object.at.clone());
            }
            is_same
        });
        Ok((BoundObjects { meaning, of }, left_out))
    }

    /// The current objects of a selection, except those of which no replica may be made at `time`.
    fn settled_objects(&self, selection: &Selection, time: SystemTime) -> Result<SettledObjects> {
        self.with_objects(|objects| {
            let coordinates = objects.of_selection(selection)?;
            let (mut young, mut left_out) = (None, Vec::new());
            let mut found = Vec::with_capacity(coordinates.len());
            for coordinates in coordinates {
                check_cancelled("looking at the objects of an array was stopped")?;
                let Some(object) = objects.settled(&coordinates)? else {
                    left_out.push(coordinates);
                    continue;
                };
                match object.version.as_ref().filter(|version| is_young(version, time)) {
                    Some(version) => {
                        young = young.max(Some(clock_step(version.changed_ns)));
                        left_out.push(coordinates);
                    }
                    None => found.push(object),
                }
            }
            let of = SourceObjects { key: objects.key().to_owned(), objects: found };
            let bound = BoundObjects { meaning: objects.form().to_owned(), of };
            Ok(SettledObjects { bound, left_out, young })
        })
    }

    /// The objects that hold the elements of a selection, including very recent ones; `None` if one
    /// is being written, has commits over it or is absent, and for too many.
    ///
    /// # Errors
    /// Those of storage.
    pub(crate) fn settled_versions(&self, selection: &Selection) -> Result<Option<BoundObjects>> {
        self.with_objects(|objects| {
            let coordinates = match objects.of_selection(selection) {
                Err(error) if error.kind() == ErrorKind::LimitExceeded => return Ok(None),
                coordinates => coordinates?,
            };
            let mut found = Vec::with_capacity(coordinates.len());
            for at in coordinates {
                match objects.settled(&at)?.filter(|object| object.version.is_some()) {
                    Some(object) => found.push(object),
                    None => return Ok(None),
                }
            }
            let of = SourceObjects { key: objects.key().to_owned(), objects: found };
            Ok(Some(BoundObjects { meaning: objects.form().to_owned(), of }))
        })
    }

    /// The versions of the objects that hold the elements of a selection, including very recent
    /// ones; `None` for too many.
    ///
    /// # Errors
    /// Those of storage.
    pub(crate) fn object_versions(
        &self,
        selection: &Selection,
    ) -> Result<Option<Vec<SourceObject>>> {
        self.with_objects(|objects| {
            let coordinates = match objects.of_selection(selection) {
                Err(error) if error.kind() == ErrorKind::LimitExceeded => return Ok(None),
                coordinates => coordinates?,
            };
            let object = |at: Vec<u64>| {
                let version = objects.version(&at, true)?;
                Ok(SourceObject { at, version, commit: 0 })
            };
            coordinates.into_iter().map(object).collect::<Result<Vec<_>>>().map(Some)
        })
    }

    /// Counts the objects with their recorded versions; none for the record of another array, or of
    /// this one with other metadata.
    ///
    /// # Errors
    /// Those of storage.
    pub(crate) fn standings(&self, meaning: &str, of: &SourceObjects) -> Result<Standings> {
        self.with_objects(|objects| {
            if objects.key() != of.key || objects.form() != meaning {
                return Ok(Standings::default());
            }
            let mut found = Standings { listed: of.objects.len(), ..Standings::default() };
            for object in &of.objects {
                // A file that is deleted or unreadable counts as changed.
                let Ok(now) = objects.version(&object.at, true) else { continue };
                match Standing::of(object.version.as_ref(), now.as_ref()) {
                    Standing::Same => found.same += 1,
                    Standing::Alike => found.alike += 1,
                    Standing::Changed => {}
                }
            }
            Ok(found)
        })
    }

    /// Lists every object of the array in storage, with its version.
    ///
    /// # Errors
    /// Those of storage; `Unsupported` for an array of a foreign file.
    pub(crate) fn own_objects(&self) -> Result<Vec<ReplicaObject>> {
        self.with_objects(|objects| {
            let ArrayObjects::Store(stored) = objects else {
                return Err(Error::new(ErrorKind::Unsupported, "only stores have objects"));
            };
            let source = &stored.pinned.source;
            let own = |at: Vec<u64>| {
                let gone = || Error::corrupt(source.object_name_of(&at), "it is gone");
                let version = stored.version(&at)?.ok_or_else(gone)?;
                Ok(ReplicaObject { at, version })
            };
            source.existing()?.into_iter().map(own).collect()
        })
    }

    /// The worst relation of the array's own objects to their listed versions.
    ///
    /// # Errors
    /// As [`Array::own_objects`].
    pub(crate) fn own_standing(&self, listed: &[ReplicaObject]) -> Result<Standing> {
        self.with_objects(|objects| {
            let mut worst = Standing::Same;
            for object in listed {
                let now = objects.version(&object.at, true)?;
                worst = worst.max(Standing::of(Some(&object.version), now.as_ref()));
            }
            Ok(worst)
        })
    }

    /// The array's key, which no other array at its path has; for an archive the joined dimension.
    ///
    /// # Errors
    /// Those of looking it up.
    pub(crate) fn key(&self) -> Result<String> {
        self.with_objects(|objects| Ok(objects.key().to_owned()))
    }

    /// The region of the array that each of these objects holds.
    ///
    /// # Errors
    /// Those of looking it up.
    pub(crate) fn regions_of(&self, objects: &[SourceObject]) -> Result<Vec<Region>> {
        self.with_objects(|found| {
            let region = |object: &SourceObject| {
                found.region(&object.at).ok_or_else(|| Error::invalid("no such object"))
            };
            objects.iter().map(region).collect()
        })
    }

    /// Calls `act` with the current objects of the array.
    fn with_objects<T>(&self, act: impl FnOnce(&ArrayObjects<'_>) -> Result<T>) -> Result<T> {
        match self.known()? {
            ArrayAtRead::Stored(handle, state, _) => {
                // Handles that do not check before each read check here.
                handle.store.refresh_if_stale()?;
                act(&ArrayObjects::Store(StoredObjects::new(&handle.pinned(&state)?)))
            }
            ArrayAtRead::Foreign(variable) => {
                let objects = ArrayObjects::of_variable(&**variable).ok_or_else(|| {
                    let text = "it is read by a library of its own, and has no replicas";
                    Error::new(ErrorKind::Unsupported, text)
                })?;
                act(&objects)
            }
        }
    }
}

/// The outcome of [`Array::settled_objects`].
struct SettledObjects {
    bound: BoundObjects,
    /// The coordinates of the other objects that the selection touches.
    left_out: Vec<Vec<u64>>,
    /// The longest clock step by which some objects are too recent.
    young: Option<Duration>,
}
