//! What entries of the cache are known by.

use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bedform_format::chunk_map::SourceVersion;
use bedform_storage::Version;

/// The steps in which most file systems count time, twice over. (Linux before 6.13 counts the ticks of its timer, of
/// 1 to 10 ms.)
const CLOCK_STEP_NS: i64 = 20_000_000;
/// More than a step of file systems that count whole seconds, as ext4 with small inodes, ext3 and sshfs do, or every
/// second one, as FAT does.
const COARSE_STEP_NS: i64 = 3_000_000_000;
const SECOND_NS: i64 = 1_000_000_000;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// The index of a shard.
    Index,
    /// The directory of a commit in a log.
    Directory,
    /// The index of a table of a log, or one of its blocks.
    Table,
    /// A section of a log: boxes, and where their blocks lie.
    Section,
    /// A decoded block of a log.
    Block,
    /// A decoded chunk.
    Chunk,
}

impl Kind {
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

    /// Which entries it competes with for memory.
    pub(super) fn class(self) -> Class {
        match self {
            Self::Index | Self::Directory | Self::Table => Class::Index,
            Self::Section | Self::Block | Self::Chunk => Class::Data,
        }
    }
}

/// Entries that compete for the same part of the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Class {
    /// Small, and each spares a request: a floor is kept for them.
    Index,
    /// Everything else.
    Data,
}

/// The canonical identity of a storage place, credentials included. Equal texts are the same place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PlaceId(Arc<str>);

impl PlaceId {
    /// The place that `identity` names.
    pub(crate) fn new(identity: &str) -> Self {
        Self(identity.into())
    }
}

/// What all objects of one array (or one log, or one file) have in common in their keys. It is made once
/// for an opened array, so that a lookup neither allocates nor hashes it again.
#[derive(PartialEq, Eq)]
pub(crate) struct Scope {
    // First, so that most comparisons end here.
    hash: u64,
    place: Option<PlaceId>,
    path: Box<str>,
    decoding: u64,
}

impl Scope {
    /// Objects at or below `path` of a place, decoded as `decoding` says: a hash of codecs, data type and
    /// chunk shape.
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

/// Which object of a scope.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum ObjectKey {
    /// The object at these coordinates in the grid of objects: as many as `rank` says, zeros behind them.
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

/// The key of an entry. Equal keys stand for equal values, whichever handle asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    // First, so that most comparisons end here.
    hash: u64,
    kind: Kind,
    /// The handle that alone may see the entry; 0 if all may.
    handle: u64,
    position: u64,
    version: Version,
    object: ObjectKey,
    scope: Arc<Scope>,
}

impl Key {
    pub(super) fn new(
        handle: u64,
        kind: Kind,
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

    pub(super) fn digest(&self) -> u64 {
        self.hash
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// As the function of this name, of the object's version.
    pub(super) fn is_too_young(&self) -> bool {
        is_too_young(&self.version)
    }

    /// The handle that alone may see the entry; 0 if all may.
    pub(super) fn handle(&self) -> u64 {
        self.handle
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// True if another version of the object could look the same, because this one is as young as the steps in which
/// its file system counts time.
pub(super) fn is_too_young(version: &Version) -> bool {
    was_too_young(version, SystemTime::now())
}

/// As [`is_too_young`], for who has looked at the object at `time`, and needs it to be the same since.
pub(crate) fn was_too_young(version: &Version, time: SystemTime) -> bool {
    if version.changed_ns == 0 {
        return false;
    }
    let time = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let time = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    version.changed_ns > time.saturating_sub(clock_step_ns(version.changed_ns))
}

/// As [`was_too_young`], of the version of a source.
pub(crate) fn is_young(version: &SourceVersion, time: SystemTime) -> bool {
    was_too_young(&Version { changed_ns: version.changed_ns, ..Version::default() }, time)
}

/// As [`is_young`], where the file system counts whole seconds: a program that writes a file again within one leaves
/// the same version. A chunk map of such a file is not kept.
pub(crate) fn is_coarsely_young(version: &SourceVersion, time: SystemTime) -> bool {
    version.changed_ns % SECOND_NS == 0 && is_young(version, time)
}

/// More than a step of the clock that gave a time: where that has no fraction of a second, the clock has none.
/// A finer one gives such a time once in many millions, which then counts as young a little longer.
fn clock_step_ns(changed_ns: i64) -> i64 {
    if changed_ns % SECOND_NS == 0 { COARSE_STEP_NS } else { CLOCK_STEP_NS }
}

/// As long as an object that was changed at a time may look the same after another change.
pub(crate) fn clock_step(changed_ns: i64) -> Duration {
    Duration::from_nanos(clock_step_ns(changed_ns).unsigned_abs())
}

/// True if two objects with this version under one name, at whatever time, are the same bytes. A time
/// alone does not tell: servers give it in seconds.
pub(super) fn tells_apart(version: &Version) -> bool {
    version.identity != (0, 0)
}

/// Hashes what is a hash already.
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

/// A random number that hashes begin with, so that no data can be made to collide in the tables. It is
/// found without a lock, for the sake of forked children.
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
