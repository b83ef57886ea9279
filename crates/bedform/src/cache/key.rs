//! Keys of cache entries, and the test whether a version identifies an object.

use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bedform_format::chunk_map::SourceVersion;
use bedform_storage::Version;

/// Twice the clock step of most file systems, in nanoseconds. (Linux before 6.13 counts the ticks
/// of its timer, of 1 to 10 ms.)
const CLOCK_STEP_NS: i64 = 20_000_000;
/// More than a step of file systems that count whole seconds (ext4 with small inodes, ext3, sshfs)
/// or two seconds (FAT), in nanoseconds.
const COARSE_STEP_NS: i64 = 3_000_000_000;
const SECOND_NS: i64 = 1_000_000_000;

/// The kind of a cache entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum EntryKind {
    /// The index of a shard.
    Index,
    /// The directory of a commit in a log.
    Directory,
    /// The index of a table of a log, or one of its blocks.
    Table,
    /// A section of a log: boxes, and the places of their blocks.
    Section,
    /// A decoded block of a log.
    Block,
    /// A decoded chunk.
    Chunk,
}

impl EntryKind {
    /// All kinds, in the order of their numbers.
    pub(crate) const ALL: [Self; 6] =
        [Self::Index, Self::Directory, Self::Table, Self::Section, Self::Block, Self::Chunk];

    /// The name that statistics show.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Index => "shard indexes",
            Self::Directory => "log directories",
            Self::Table => "log tables",
            Self::Section => "log sections",
            Self::Block => "log blocks",
            Self::Chunk => "chunks",
        }
    }

    /// The class of entries that it competes with for memory.
    pub(super) fn class(self) -> EvictionClass {
        match self {
            Self::Index | Self::Directory | Self::Table => EvictionClass::Index,
            Self::Section | Self::Block | Self::Chunk => EvictionClass::Data,
        }
    }
}

/// Entries that compete for the same part of the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum EvictionClass {
    /// Small entries, each of which saves a request: a floor is kept for them.
    Index,
    /// Everything else.
    Data,
}

/// The canonical identity of a storage place, credentials included. Equal texts name the same
/// place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PlaceId(Arc<str>);

impl PlaceId {
    /// The place that `identity` names.
    pub(crate) fn new(identity: &str) -> Self {
        Self(identity.into())
    }
}

/// The part of a key that all objects of one array (or log, or file) share. It is made once for an
/// opened array, so that lookups neither allocate nor hash it again.
#[derive(PartialEq, Eq)]
pub(crate) struct Scope {
    // First, so that most comparisons end here.
    hash: u64,
    place: Option<PlaceId>,
    path: Box<str>,
    decoding: u64,
}

impl Scope {
    /// The scope of objects at or below `path` of a place. `decoding` is a hash of codecs, data
    /// type and chunk shape.
    pub(crate) fn new(place: Option<&PlaceId>, path: &str, decoding: u64) -> Arc<Self> {
        let mut hasher = DefaultHasher::new();
        (seed(), place, path, decoding).hash(&mut hasher);
        let (hash, place, path) = (hasher.finish(), place.cloned(), path.into());
        Arc::new(Self { hash, place, path, decoding })
    }

    pub(super) fn is_shared(&self) -> bool {
        self.place.is_some()
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Scope").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The identity of an object within a scope.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum ObjectKey {
    /// The object at these coordinates in the grid of objects: the first `rank` of them, followed
    /// by zeros.
    Few { rank: u8, coordinates: [u64; FEW_AXES] },
    /// The object at these coordinates, which are more than [`FEW_AXES`].
    Many(Arc<[u64]>),
    /// The object of this name.
    Name(Arc<str>),
}

/// The most coordinates that a key holds without an allocation.
const FEW_AXES: usize = 4;

impl ObjectKey {
    /// The object at `coordinates` in the grid of objects.
    pub(crate) fn at(coordinates: &[u64]) -> Self {
        let mut few = [0; FEW_AXES];
        match (u8::try_from(coordinates.len()), few.get_mut(..coordinates.len())) {
            (Ok(rank), Some(front)) => {
                front.copy_from_slice(coordinates);
                Self::Few { rank, coordinates: few }
            }
            _ => Self::Many(coordinates.into()),
        }
    }
}

/// The key of an entry. Equal keys have equal values, for all handles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CacheKey {
    // First, so that most comparisons end here.
    hash: u64,
    kind: EntryKind,
    /// The only handle that may see the entry; 0 if all may.
    handle: u64,
    position: u64,
    version: Version,
    object: ObjectKey,
    scope: Arc<Scope>,
}

impl CacheKey {
    pub(super) fn new(
        handle: u64,
        kind: EntryKind,
        scope: &Arc<Scope>,
        object: ObjectKey,
        version: &Version,
        position: u64,
    ) -> Self {
        let mut hasher = DefaultHasher::new();
        (scope.hash, kind, handle, position, version, &object).hash(&mut hasher);
        let (hash, scope, version) = (hasher.finish(), scope.clone(), version.clone());
        Self { hash, kind, handle, position, version, object, scope }
    }

    /// Returns the hash of the key, made once in `new`.
    pub(super) fn digest(&self) -> u64 {
        self.hash
    }

    pub(super) fn kind(&self) -> EntryKind {
        self.kind
    }

    /// As the function of this name, for the version in the key.
    pub(super) fn is_too_young(&self) -> bool {
        is_too_young(&self.version)
    }

    /// The only handle that may see the entry; 0 if all may.
    pub(super) fn handle(&self) -> u64 {
        self.handle
    }
}

impl Hash for CacheKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// True if another version of the object could look the same: this one is not older than a clock
/// step of its file system.
pub(super) fn is_too_young(version: &Version) -> bool {
    was_too_young(version, SystemTime::now())
}

/// As [`is_too_young`], for a caller that saw the object at `time` and needs to know that it has
/// not changed since.
pub(crate) fn was_too_young(version: &Version, time: SystemTime) -> bool {
    if version.changed_ns == 0 {
        return false;
    }
    let time = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let time = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    version.changed_ns > time.saturating_sub(clock_step_ns(version.changed_ns))
}

/// As [`was_too_young`], for the version of a source: true for an object that was changed just before `time`, so
/// that a later write may leave the same version.
pub(crate) fn is_young(version: &SourceVersion, time: SystemTime) -> bool {
    was_too_young(&Version { changed_ns: version.changed_ns, ..Version::default() }, time)
}

/// As [`is_young`], for file systems that count whole seconds only. A program that rewrites a file within one second
/// leaves the same version, so no chunk map of such a file is kept.
pub(crate) fn is_coarsely_young(version: &SourceVersion, time: SystemTime) -> bool {
    version.changed_ns % SECOND_NS == 0 && is_young(version, time)
}

/// A bound of the clock step behind a time, in nanoseconds: a time in whole seconds comes from a
/// clock without fractions. A finer clock gives such a time once in many millions; then the object
/// counts as young for longer.
fn clock_step_ns(changed_ns: i64) -> i64 {
    if changed_ns % SECOND_NS == 0 { COARSE_STEP_NS } else { CLOCK_STEP_NS }
}

/// The time after a change during which another change may leave the same time.
pub(crate) fn clock_step(changed_ns: i64) -> Duration {
    Duration::from_nanos(clock_step_ns(changed_ns).unsigned_abs())
}

/// True if this version identifies the bytes under one name at all times. A time alone does not:
/// servers give it in seconds.
pub(super) fn tells_apart(version: &Version) -> bool {
    version.identity != (0, 0)
}

/// A hasher for keys that are hashes already.
#[derive(Default)]
pub(super) struct PassThrough(u64);

/// Makes [`PassThrough`] hashers.
pub(super) type BuildPassThrough = BuildHasherDefault<PassThrough>;

impl Hasher for PassThrough {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// A random number with which all hashes begin, so that no data can be crafted to collide in the
/// tables. It is initialized without a lock, because a forked child could inherit that as held.
fn seed() -> u64 {
    static SEED: AtomicU64 = AtomicU64::new(0);
    match SEED.load(Ordering::Relaxed) {
        0 => {
            let own = RandomState::new().hash_one(0) | 1;
            match SEED.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => own,
                Err(others) => others,
            }
        }
        known => known,
    }
}
