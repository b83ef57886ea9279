//! The replicas of an opened source, each opened at its first use.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bedform_format::chunk_map::SourceVersion;
use bedform_format::metadata::parse_array;
use bedform_format::replica::{
    Catalogue, Replica, ReplicaElements, ReplicaObject, SourceObject, fingerprint_of,
};
use bedform_format::{DataType, Limits, ObjectPath};
use bedform_geometry::{AxisSelection, Region, Selection};
use bedform_storage::{Bell, Mode, Profile, Version};

use serde::Serialize;
use serde_json::Value;

use super::catalogue::{CATALOGUE, PLACES, Standing};
use crate::error::{Error, Result};
use crate::opening::storage_in_sidecar;
use crate::options::{Freshness, OpenOptions};
use crate::plan::copy::CopyTarget;
use crate::plan::opening::Need;
use crate::plan::tuning::Tuning;
use crate::run::chunks::ChunkCache;
use crate::run::deliver::Deliver;
use crate::run::execute::execute;
use crate::run::plan::{PlanPiece, ReadPlan};
use crate::sidecar::{REPLICAS, Sidecar, source_version, source_version_of};
use crate::source::{OpenCell, PendingCell, Settled, Source, StoredLayout};
use crate::zarr::hierarchy::Hierarchy;
use crate::zarr::source::ZarrSource;
use crate::zarr::state::ArrayState;

/// The most kinds of reads with a remembered choice; one more clears all choices.
const CHOICES_MAX: usize = 1 << 12;
/// The time after which an open handle looks for newer catalogues.
const LOOKED_AGAIN: Duration = Duration::from_secs(2);
/// The environment variable that turns replicas off.
const VARIABLE: &str = "BEDFORM_REPLICAS";

/// The use of a replica by the reads of a handle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ReplicaStatistics {
    /// Its name.
    pub id: String,
    /// The path of the array that it is a copy of.
    pub array: String,
    /// Reads that took elements from it.
    pub reads: u64,
    /// Bytes that they took from it.
    pub bytes: u64,
    /// True once a read of it failed: the handle then reads the array itself.
    pub is_broken: bool,
}

/// The chosen replicas, by number, for each array and kind of reads.
type Choices = HashMap<(String, Vec<u64>), Vec<usize>>;

/// The chosen replicas for a kind of reads, and the eighths of such a read that the array supplies.
pub(crate) type RememberedChoice = (Vec<usize>, u64);

/// The replicas of one opened source. An open handle also uses replicas that are made later.
#[derive(Debug)]
pub(crate) struct Replicas {
    /// The sidecars that could have replicas when the source was opened.
    sidecars: Vec<Sidecar>,
    options: OpenOptions,
    seen: Mutex<Option<CatalogueView>>,
}

/// The replicas that the newest catalogue of each sidecar names.
#[derive(Debug)]
struct CatalogueView {
    /// The time of the last look for newer catalogues.
    looked: Instant,
    /// The sidecar of the user, then that of the site.
    sidecars: Vec<Sidecar>,
    /// The generation number of each catalogue.
    generations: Vec<u64>,
    named: Arc<NamedReplicas>,
}

/// The replicas named by a set of catalogues, and the choices made among them.
#[derive(Debug, Default)]
pub(crate) struct NamedReplicas {
    by_array: BTreeMap<String, Vec<Arc<OpenReplica>>>,
    /// The choices for kinds of reads, by array and kind.
    choices: Mutex<Choices>,
    /// The choices for kinds of reads, by number of the kind.
    kinds: Mutex<HashMap<u64, RememberedChoice>>,
}

/// The places of points, loaded once for all replicas with the same points.
type SharedPlaces = Arc<OnceLock<Option<Vec<u64>>>>;

/// A replica, opened at its first use.
#[derive(Debug)]
pub(crate) struct OpenReplica {
    pub(crate) record: Replica,
    /// The smallest box around its elements; `None` for points.
    bounds: Option<Region>,
    directory: PathBuf,
    sidecar: Sidecar,
    options: OpenOptions,
    opened: OnceLock<Option<OpenedReplica>>,
    /// The places of its elements, for a replica of points.
    places: SharedPlaces,
    /// Indexes into the objects that it was made of, by their coordinates.
    objects: OnceLock<HashMap<Vec<u64>, usize>>,
    /// For each object, the moment at which a read compared its version, and whether it was the
    /// recorded one. Later reads of the same moment need not compare again.
    looked: Mutex<HashMap<Vec<u64>, (u64, bool)>>,
    /// True once a read of it failed.
    is_broken: AtomicBool,
    /// Reads that took elements from it, and their bytes.
    reads: AtomicU64,
    bytes: AtomicU64,
}

#[derive(Debug)]
struct OpenedReplica {
    hierarchy: Hierarchy,
    path: ObjectPath,
    state: ArrayState,
    own: OwnVersions,
}

/// The recorded versions of a replica's objects, by their coordinates.
type OwnVersions = HashMap<Vec<u64>, SourceVersion>;

fn versions_of(objects: &[ReplicaObject]) -> OwnVersions {
    objects.iter().map(|object| (object.at.clone(), object.version.clone())).collect()
}

/// Returns the sidecars that may have replicas for a user: the user's own, and that of the site.
fn of_user_and_site(own: &Sidecar) -> Vec<Sidecar> {
    let sidecars = std::iter::once(own).chain(own.site());
    let may_have = |sidecar: &&Sidecar| {
        sidecar.own_directory().is_some() && sidecar.is_trusted_at(&[REPLICAS])
    };
    sidecars.filter(may_have).cloned().collect()
}

/// Looks for the sidecars again: a source may get its first sidecar while it is open.
fn found_again(sidecars: &[Sidecar]) -> Vec<Sidecar> {
    let found = sidecars.first().and_then(Sidecar::found_again);
    let found = found.map(|own| of_user_and_site(&own));
    found.filter(|found| !are_at_one(found, sidecars)).unwrap_or_else(|| sidecars.to_vec())
}

/// True if both lists name the same directories.
fn are_at_one(these: &[Sidecar], those: &[Sidecar]) -> bool {
    these.iter().map(Sidecar::own_directory).eq(those.iter().map(Sidecar::own_directory))
}

fn are_off(options: &OpenOptions) -> bool {
    let said = std::env::var(VARIABLE).ok();
    !options.replicas || matches!(said.as_deref().map(str::trim), Some("0" | "off" | "false"))
}

/// Returns the replicas that the newest catalogue of a sidecar names, current or not.
pub(crate) fn replicas_in(sidecar: &Sidecar, limits: &Limits) -> Vec<Replica> {
    let newest = sidecar.load_newest(CATALOGUE, &SourceVersion::default(), limits);
    newest.map(|(_, Catalogue { replicas, .. })| replicas).unwrap_or_default()
}

/// Returns the names of the replicas, of this user and of the site, that fit the present version of
/// the file at `path`. For a store it returns all: their objects are compared one by one when they
/// are read.
///
/// # Errors
/// Those of [`Sidecar::of_path`].
pub fn current_replicas(path: &Path) -> Result<Vec<String>> {
    let Ok(found) = std::fs::metadata(path) else { return Ok(Vec::new()) };
    let Some(sidecar) = Sidecar::of_path(path)? else { return Ok(Vec::new()) };
    let state = found.is_file().then(|| source_version_of(&found));
    let limits = Limits::default();
    let both = std::iter::once(&sidecar).chain(sidecar.site());
    let listed = both.flat_map(|sidecar| replicas_in(sidecar, &limits));
    // A replica of one file records that file's version; other objects are not examined here.
    let is_current = |replica: &Replica| match replica.of.objects.as_slice() {
        [only] if only.at.is_empty() => only.version == state,
        _ => true,
    };
    Ok(listed.filter(is_current).map(|replica| replica.id).collect())
}

impl Replicas {
    /// Makes the replicas of a source opened with these options; `None` without a sidecar on this
    /// machine.
    pub(crate) fn new(options: &OpenOptions) -> Option<Arc<Self>> {
        let sidecar = options.sidecar.as_ref().filter(|_| !are_off(options))?;
        let sidecars = of_user_and_site(sidecar);
        if sidecars.is_empty() {
            return None;
        }
        let options = OpenOptions {
            writable: false,
            // The files of a replica never change.
            freshness: Freshness::Open,
            sidecar: None,
            profile: None,
            refines: None,
            ..options.clone()
        };
        Some(Arc::new(Self { sidecars, options, seen: Mutex::default() }))
    }

    /// Returns the replicas that the catalogues name, at most [`LOOKED_AGAIN`] out of date.
    pub(crate) fn now(&self) -> Arc<NamedReplicas> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seen) = &*seen
            && seen.looked.elapsed() < LOOKED_AGAIN
        {
            return Arc::clone(&seen.named);
        }
        // Taken before loading, so that the next look finds a catalogue saved meanwhile.
        let looked = Instant::now();
        let before = seen.take();
        let sidecars = match &before {
            Some(before) => found_again(&before.sidecars),
            None => self.sidecars.clone(),
        };
        let numbers = sidecars.iter().map(|sidecar| sidecar.last_number(CATALOGUE));
        let generations: Vec<u64> = numbers.collect();
        let named = match before {
            Some(before)
                if before.generations == generations && are_at_one(&before.sidecars, &sidecars) =>
            {
                before.named
            }
            before => {
                let before = before.as_ref().map(|before| &*before.named);
                Arc::new(self.load(&sidecars, before))
            }
        };
        Arc::clone(&seen.insert(CatalogueView { looked, sidecars, generations, named }).named)
    }

    /// Loads the newest catalogues; a replica that `before` has too stays open.
    fn load(&self, sidecars: &[Sidecar], before: Option<&NamedReplicas>) -> NamedReplicas {
        let mut named = NamedReplicas::default();
        let mut shared: HashMap<(String, Vec<u64>), SharedPlaces> = HashMap::new();
        for sidecar in sidecars.iter().filter(|one| one.is_trusted_at(&[REPLICAS])) {
            for record in replicas_in(sidecar, &self.options.limits) {
                let known = before.and_then(|before| before.with(&record, sidecar));
                let of_array = named.by_array.entry(record.array.clone()).or_default();
                let key =
                    record.places.as_ref().map(|of| (of.fingerprint.clone(), record.held.shape()));
                if let Some(known) = known {
                    // New replicas with the same points share its loaded places.
                    if let Some(key) = key {
                        shared.entry(key).or_insert_with(|| known.places.clone());
                    }
                    of_array.push(known);
                    continue;
                }
                let places = key.map(|key| shared.entry(key).or_default().clone());
                let replica = self.unopened(record, sidecar, places.unwrap_or_default());
                of_array.extend(replica.map(Arc::new));
            }
        }
        named
    }

    /// Returns the use of each loaded replica.
    pub(crate) fn statistics(&self) -> Vec<ReplicaStatistics> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let known = seen.iter().flat_map(|seen| seen.named.by_array.values().flatten());
        known.map(|replica| replica.statistics()).collect()
    }

    fn unopened(
        &self,
        record: Replica,
        sidecar: &Sidecar,
        places: SharedPlaces,
    ) -> Option<OpenReplica> {
        Some(OpenReplica {
            directory: sidecar.own_directory()?.join(REPLICAS).join(&record.id),
            sidecar: sidecar.clone(),
            bounds: record.held.bounds(),
            options: self.options.clone(),
            record,
            opened: OnceLock::new(),
            places,
            objects: OnceLock::new(),
            looked: Mutex::default(),
            is_broken: AtomicBool::new(false),
            reads: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        })
    }
}

impl NamedReplicas {
    /// Returns the replicas of the array at `path`.
    pub(crate) fn of_array(&self, path: &str) -> &[Arc<OpenReplica>] {
        self.by_array.get(path).map_or(&[], Vec::as_slice)
    }

    /// Returns the replica in a sidecar with this record.
    fn with(&self, record: &Replica, sidecar: &Sidecar) -> Option<Arc<OpenReplica>> {
        let directory = sidecar.own_directory()?.join(REPLICAS).join(&record.id);
        let is_same = |one: &&Arc<OpenReplica>| one.directory == directory && one.record == *record;
        self.of_array(&record.array).iter().find(is_same).cloned()
    }

    /// Returns the replicas chosen for the kind `key` of reads of an array; calls `choose` the
    /// first time.
    pub(crate) fn choice(
        &self,
        array: &str,
        key: Vec<u64>,
        choose: impl FnOnce() -> Vec<usize>,
    ) -> Vec<usize> {
        let lock = || self.choices.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (array.to_owned(), key);
        if let Some(known) = lock().get(&key) {
            return known.clone();
        }
        let chosen = choose();
        let mut choices = lock();
        if choices.len() >= CHOICES_MAX {
            choices.clear();
        }
        choices.insert(key, chosen.clone());
        chosen
    }

    /// Returns the remembered choice for a kind of reads.
    pub(crate) fn remembered(&self, kind: u64) -> Option<RememberedChoice> {
        self.kinds().get(&kind).cloned()
    }

    /// True if the remembered choice for a kind of reads is empty.
    pub(crate) fn are_no_help(&self, kind: u64) -> bool {
        self.kinds().get(&kind).is_some_and(|(choice, _)| choice.is_empty())
    }

    pub(crate) fn remember(&self, kind: u64, what: RememberedChoice) {
        let mut kinds = self.kinds();
        if kinds.len() >= CHOICES_MAX {
            kinds.clear();
        }
        kinds.insert(kind, what);
    }

    fn kinds(&self) -> MutexGuard<'_, HashMap<u64, RememberedChoice>> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenReplica {
    /// Returns the opened replica as a source of chunks; `None` if it is broken or differs from its
    /// record.
    pub(crate) fn source(&self) -> Option<ReplicaSource<'_>> {
        if self.is_broken() {
            return None;
        }
        let opened = self.opened.get_or_init(|| self.open().ok());
        if opened.is_none() {
            self.distrust();
        }
        let OpenedReplica { hierarchy, path, state, own } = opened.as_ref()?;
        Some(ReplicaSource { source: ZarrSource { hierarchy, path, state }, own })
    }

    fn open(&self) -> Result<OpenedReplica> {
        let mut options = self.options.clone();
        options.profile = Profile::for_path(&self.directory).ok().flatten();
        if !self.sidecar.is_trusted_at(&[REPLICAS, &self.record.id]) {
            return Err(Error::corrupt(self.name(), "others than its owner may write it"));
        }
        let place = format!("{REPLICAS}/{}", self.record.id);
        let storage = storage_in_sidecar(&self.sidecar, &place, Mode::ReadOnly, &options)?;
        let hierarchy = Hierarchy::new(storage, options, |_, _| Ok(None));
        let path = ObjectPath::parse(&self.record.array)?;
        let state = self.state_of(&hierarchy, &path, self.record.document.clone())?;
        if state.metadata.shape != self.record.held.shape() {
            return Err(Error::corrupt(self.name(), "it is not the replica of the catalogue"));
        }
        let own = versions_of(&self.record.objects);
        Ok(OpenedReplica { hierarchy, path, state, own })
    }

    /// Returns the state of one of its arrays, from a document.
    fn state_of(
        &self,
        hierarchy: &Hierarchy,
        path: &ObjectPath,
        document: Value,
    ) -> Result<ArrayState> {
        let metadata = parse_array(&document, &hierarchy.options.limits)
            .map_err(|error| Error::metadata(self.name(), error))?;
        ArrayState::new(hierarchy, path, metadata, document, None)
    }

    /// Returns the places of its elements in the C order of the array, ascending; `None` for a
    /// replica without points, or if they cannot be read.
    pub(crate) fn places(&self) -> Option<&[u64]> {
        let places = self.places.get_or_init(|| self.load_places().ok());
        if places.is_none() {
            self.distrust();
        }
        places.as_deref()
    }

    fn load_places(&self) -> Result<Vec<u64>> {
        let damaged = || Error::corrupt(self.name(), "its places are not those of the catalogue");
        let ReplicaElements::Points { count, first, last } = self.record.held else {
            return Err(damaged());
        };
        let opened = self.opened.get_or_init(|| self.open().ok()).as_ref().ok_or_else(damaged)?;
        let path = ObjectPath::parse(PLACES)?;
        let of = self.record.places.as_ref().ok_or_else(damaged)?;
        let state = self.state_of(&opened.hierarchy, &path, of.document.clone())?;
        let is_number = state.metadata.data_type == DataType::UInt64;
        if state.metadata.shape != [count] || !is_number {
            return Err(damaged());
        }
        let bytes = usize::try_from(count).ok().and_then(|count| count.checked_mul(8));
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(bytes.ok_or_else(damaged)?).map_err(|_| damaged())?;
        buffer.resize(bytes.unwrap_or(0), 0);
        let geometry = state.layout.geometry(&Selection::all(&[count]))?;
        let own = versions_of(&of.objects);
        let source = ZarrSource { hierarchy: &opened.hierarchy, path: &path, state: &state };
        let source = ReplicaSource { source, own: &own };
        let piece = PlanPiece {
            source: &source,
            moment: &Settled,
            layout: &state.layout,
            meaning: 0,
            geometry: &geometry,
            cache: None,
            begins: None,
            cells_before: 0,
        };
        let plan = ReadPlan::new(std::slice::from_ref(&piece), &opened.hierarchy.tuning);
        execute(plan, Deliver::Buffer(CopyTarget::new(&mut buffer)))?;
        #[allow(clippy::host_endian_bytes)]
        let number = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes);
        let places: Vec<u64> = buffer.as_chunks::<8>().0.iter().map(number).collect();
        let ascend = places.windows(2).all(|pair| pair[0] < pair[1]);
        let is_right = ascend
            && places.first() == Some(&first)
            && places.last() == Some(&last)
            && of.fingerprint == fingerprint_of(&places);
        is_right.then_some(places).ok_or_else(damaged)
    }

    /// Returns the last commit in the object at `coordinates`, if its version, which `now` returns,
    /// is the recorded one. With `looked_at`, the number of a moment, one comparison serves all
    /// reads of that moment.
    ///
    /// # Errors
    /// Those of `now`.
    pub(crate) fn commit_if_same(
        &self,
        coordinates: &[u64],
        looked_at: Option<u64>,
        now: impl FnOnce() -> Result<Option<SourceVersion>>,
    ) -> Result<Option<u64>> {
        let of = &self.record.of.objects;
        let index = || of.iter().map(|object| object.at.clone()).zip(0..).collect();
        let Some(number) = self.objects.get_or_init(index).get(coordinates) else {
            return Ok(None);
        };
        let SourceObject { version, commit, .. } = &of[*number];
        let looked = || self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(moment) = looked_at
            && let Some((of_moment, is_same)) = looked().get(coordinates)
            && *of_moment == moment
        {
            return Ok(is_same.then_some(*commit));
        }
        let is_same = Standing::of(version.as_ref(), now()?.as_ref()) == Standing::Same;
        if let Some(moment) = looked_at {
            looked().insert(coordinates.to_vec(), (moment, is_same));
        }
        Ok(is_same.then_some(*commit))
    }

    /// True if it can be a replica of an array with this shape, layout, key in its store, and
    /// meaning of its objects.
    pub(crate) fn may_be_of(
        &self,
        shape: &[u64],
        layout: &StoredLayout,
        (key, meaning): (&str, &str),
    ) -> bool {
        let Replica { array_shape, held, of, .. } = &self.record;
        let grows = array_shape.len() == shape.len()
            && array_shape.iter().zip(shape).all(|(then, now)| then <= now);
        // The number of a place depends on the length of every axis but the first.
        let fits = match held {
            ReplicaElements::Runs(_) => grows,
            ReplicaElements::Points { .. } => grows && array_shape.get(1..) == shape.get(1..),
        };
        fits && of.key == key
            && self.record.meaning == meaning
            && self.source().is_some_and(|source| {
                let own = source.layout();
                own.item_size == layout.item_size && own.fill_element() == layout.fill_element()
            })
    }

    /// Returns the path of the replica's directory, for messages.
    pub(crate) fn name(&self) -> String {
        self.directory.display().to_string()
    }

    /// False if a quick check shows that it holds no element of a selection.
    pub(crate) fn may_have(&self, selection: &Selection) -> bool {
        if self.is_broken() {
            return false;
        }
        match (&self.bounds, selection) {
            (Some(held), Selection::Orthogonal(axes)) => {
                axes.len() == held.rank()
                    && axes.iter().enumerate().all(|(at, axis)| {
                        axis.bounds().is_some_and(|bounds| self.meets(at, bounds))
                    })
            }
            (Some(held), Selection::Points(points)) => held.rank() == 1 && points.rank() == 1,
            (None, Selection::Orthogonal(axes)) => {
                matches!(axes.as_slice(), [AxisSelection::Coords(_)])
            }
            (None, Selection::Points(_)) => true,
            (_, Selection::Union(_)) => false,
        }
    }

    /// False if its bounds along an axis exclude all positions from `low` to `high`, inclusive.
    pub(crate) fn meets(&self, axis: usize, (low, high): (u64, u64)) -> bool {
        let held = self.bounds.as_ref();
        held.is_none_or(|held| low < held.end(axis) && held.start()[axis] <= high)
    }

    /// True once a read of it failed.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    /// Excludes it from further reads of this handle.
    pub(crate) fn distrust(&self) {
        self.is_broken.store(true, Ordering::Relaxed);
    }

    /// Counts a read that took `bytes` bytes from it.
    pub(crate) fn count(&self, bytes: u64) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn statistics(&self) -> ReplicaStatistics {
        ReplicaStatistics {
            id: self.record.id.clone(),
            array: self.record.array.clone(),
            reads: self.reads.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            is_broken: self.is_broken(),
        }
    }
}

/// A replica as a source of chunks. Each object that a read opens must have the version that the
/// catalogue lists: the elements of a missing object would read as the fill value.
#[derive(Clone, Copy)]
pub(crate) struct ReplicaSource<'a> {
    source: ZarrSource<'a>,
    own: &'a OwnVersions,
}

impl<'a> ReplicaSource<'a> {
    /// Returns its layout on storage.
    pub(crate) fn layout(&self) -> &'a StoredLayout {
        &self.source.state.layout
    }

    /// Returns the hash of the metadata that its chunks depend on.
    pub(crate) fn meaning(&self) -> u64 {
        self.source.state.meaning
    }

    /// Returns the cache of its decoded chunks.
    pub(crate) fn cache(&self) -> Option<ChunkCache<'a>> {
        ChunkCache::new(&self.source.hierarchy.cache, &self.source.state.scope)
    }

    /// Returns the parameters for planning its reads.
    pub(crate) fn tuning(&self) -> &'a Tuning {
        &self.source.hierarchy.tuning
    }
}

impl Source for ReplicaSource<'_> {
    fn ask(&self, coordinates: &[u64], need: Need, bell: &Arc<Bell>) -> Option<PendingCell> {
        self.source.ask(coordinates, need, bell)
    }

    fn open(
        &self,
        coordinates: &[u64],
        need: Need,
        asked: Option<PendingCell>,
        waits: &dyn Fn(),
    ) -> Result<Option<OpenCell>> {
        let opened = self.source.open(coordinates, need, asked, waits)?;
        let now = opened.as_ref().map(|cell| source_version(cell.object.version()));
        if now.as_ref() == self.own.get(coordinates) {
            return Ok(opened);
        }
        let problem = match now {
            None => "it is gone",
            Some(_) => "it is not the file that the catalogue lists",
        };
        Err(Error::corrupt(self.object_name(coordinates), problem))
    }

    fn is_still(&self, coordinates: &[u64], version: Option<&Version>) -> Result<bool> {
        self.source.is_still(coordinates, version)
    }

    fn comes_whole(&self, need: Need) -> bool {
        self.source.comes_whole(need)
    }

    fn object_name(&self, coordinates: &[u64]) -> String {
        self.source.object_name(coordinates)
    }

    fn is_remote(&self) -> bool {
        self.source.is_remote()
    }
}
