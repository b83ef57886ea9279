//! The array behind a read that replicas may serve, and the parts of such a read: from the array
//! itself, its files, replicas.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bedform_geometry::{PlacedAxis, PlacedBox, split};

use super::objects::ArrayObjects;
use crate::error::{Error, ErrorKind, Result};
use crate::foreign::archive::{ArchiveMember, FileRead, JoinedVariable};
use crate::plan::geometry::Geometry;
use crate::plan::opening::Need;
use crate::replica::{OpenReplica, ReplicaSource};
use crate::run::explain::priced;
use crate::run::plan::{PlanPiece, ReadPlan};
use crate::run::read_source::ReadSource;
use crate::source::{OpenCell, PendingCell, Source, StoredLayout};

/// The most objects that a plan may touch to be resolved for its price; above that its geometry
/// alone decides.
const RESOLVED_MAX: u64 = 64;
/// The most parts of a read.
pub(super) const PARTS_MAX: usize = 64;
/// The most objects that are checked for changes.
pub(super) const CELLS_MAX: u64 = 1 << 12;

/// The array behind a read that replicas may serve, as of the read's moment: its objects, and its
/// own source.
pub(crate) struct BaseArray<'a> {
    pub(super) objects: ArrayObjects<'a>,
    /// The array itself; `None` for an array that is joined from many files, each with a source of
    /// its own.
    pub(super) own: Option<ReadSource<'a>>,
    /// The same source with opened objects kept, for prices.
    opened: Option<OpenedOnce<'a>>,
}

/// A source that opens each object once for all compared plans, because each opening is a wait.
struct OpenedOnce<'a> {
    source: &'a dyn Source,
    opened: Mutex<BTreeMap<Vec<u64>, Option<OpenCell>>>,
}

impl Source for OpenedOnce<'_> {
    fn open(
        &self,
        coordinates: &[u64],
        need: Need,
        asked: Option<PendingCell>,
        waits: &dyn Fn(),
    ) -> Result<Option<OpenCell>> {
        let opened = || self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = opened().get(coordinates) {
            return Ok(known.clone());
        }
        let found = self.source.open(coordinates, need, asked, waits)?;
        opened().insert(coordinates.to_vec(), found.clone());
        Ok(found)
    }

    fn comes_whole(&self, need: Need) -> bool {
        self.source.comes_whole(need)
    }

    fn object_name(&self, coordinates: &[u64]) -> String {
        self.source.object_name(coordinates)
    }

    fn place_name(&self) -> String {
        self.source.place_name()
    }

    fn makes_chunks(&self) -> bool {
        self.source.makes_chunks()
    }

    fn needs_lookups(&self) -> bool {
        self.source.needs_lookups()
    }

    fn is_remote(&self) -> bool {
        self.source.is_remote()
    }
}

/// A part of a read: its source, and the elements to take from it.
#[derive(Debug)]
pub(super) struct ReadPart {
    pub(super) of: ReadPartSource,
    pub(super) geometry: Geometry,
}

/// The source of a part.
#[derive(Debug)]
pub(super) enum ReadPartSource {
    Replica(Arc<OpenReplica>),
    /// The array itself.
    Array,
    /// A file of an array that is joined from many.
    File(FileRead),
}

/// The opened source of a part.
enum PartSource<'a> {
    Replica(ReplicaSource<'a>),
    Array(ReadSource<'a>),
    File { joined: &'a JoinedVariable, read: &'a FileRead, member: ArchiveMember<'a> },
}

impl PartSource<'_> {
    /// The source as reads see it.
    fn read_source(&self) -> ReadSource<'_> {
        match self {
            Self::Array(own) => *own,
            Self::File { joined, read, member } => joined.read_source(read, member),
            Self::Replica(replica) => ReadSource {
                meaning: replica.meaning(),
                cache: replica.cache(),
                ..ReadSource::settled(replica, replica.layout(), replica.tuning())
            },
        }
    }
}

impl<'a> BaseArray<'a> {
    pub(super) fn new(objects: ArrayObjects<'a>) -> Self {
        let own = objects.read_source();
        let opened = own.map(|own| OpenedOnce { source: own.source, opened: Mutex::default() });
        Self { objects, own, opened }
    }

    /// True if a replica may be of the array as it is; for a file, only if the file is unchanged.
    pub(super) fn may_have(&self, replica: &OpenReplica) -> bool {
        let (layout, named) = (self.objects.layout(), (self.objects.key(), self.objects.form()));
        let is_file = matches!(self.objects, ArrayObjects::File { .. });
        replica.may_be_of(layout.grid.array_shape(), layout, named)
            && (!is_file || self.is_still(replica, &[]).unwrap_or(false))
    }

    /// True if an object of the array is unchanged since the replica was made of it, and belongs to
    /// the read's moment. That is: it contains no later commit, and no cover lies over it.
    pub(super) fn is_still(&self, replica: &OpenReplica, coordinates: &[u64]) -> Result<bool> {
        let looked_at = self.objects.looked_at();
        let version = || self.objects.version(coordinates, looked_at.is_none());
        let Some(commit) = replica.commit_if_same(coordinates, looked_at, version)? else {
            return Ok(false);
        };
        // No commits lie over the files of a joined array.
        let Some(own) = self.own else { return Ok(true) };
        match own.moment.cover(coordinates, commit, &|| own.source.object_name(coordinates)) {
            Err(error) if error.kind() == ErrorKind::SnapshotMoved => Ok(false),
            cover => Ok(cover?.is_none()),
        }
    }

    /// Splits a replica's box into parts that are unchanged and parts that have changed; `None` if
    /// that cannot be decided.
    pub(super) fn parts_that_are_still(
        &self,
        replica: &OpenReplica,
        part: PlacedBox,
    ) -> Option<(Vec<PlacedBox>, Vec<PlacedBox>)> {
        let objects = self.objects_in(&part, CELLS_MAX)?;
        let (mut valid, mut changed) = (vec![part], Vec::new());
        for coordinates in objects {
            if self.is_still(replica, &coordinates).ok()? {
                continue;
            }
            let region = self.objects.region(&coordinates)?;
            let mut still = Vec::with_capacity(valid.len());
            for part in valid {
                let (inside, rest) = split(&part, &region);
                match inside {
                    Some(inside) => {
                        changed.push(inside);
                        still.extend(rest);
                    }
                    None => still.push(part),
                }
            }
            valid = still;
            if valid.len() + changed.len() > PARTS_MAX {
                return None;
            }
        }
        Some((valid, changed))
    }

    /// The array itself, with opened objects kept.
    pub(super) fn priced(&self) -> Option<ReadSource<'_>> {
        Some(ReadSource { source: self.opened.as_ref()?, ..self.own? })
    }

    pub(super) fn price(&self, parts: &[ReadPart]) -> Option<f64> {
        let (own, others): (Vec<_>, Vec<_>) = parts.iter().partition(|part| part.is_own());
        let mut seconds = 0.0;
        for group in [own, others].iter().filter(|group| !group.is_empty()) {
            let is_own = group.iter().all(|part| part.is_own());
            // Resolving parts of replicas would request every index, perhaps for a plan that is not
            // chosen.
            seconds += self
                .with_pieces(group, self.priced(), |plan| {
                    match !is_own || plan.cell_count() > RESOLVED_MAX {
                        true => Ok(plan.estimate().seconds),
                        false => priced(plan).map(|(_, price)| price.seconds),
                    }
                })?
                .ok()?;
        }
        Some(seconds)
    }

    /// Calls `act` with the plan of these parts, where `own` supplies those of the array; `None` if
    /// a replica cannot be opened.
    pub(super) fn with_pieces<T>(
        &self,
        parts: &[&ReadPart],
        own: Option<ReadSource<'_>>,
        act: impl FnOnce(ReadPlan<'_>) -> Result<T>,
    ) -> Option<Result<T>> {
        let mut sources: Vec<PartSource<'_>> = Vec::with_capacity(parts.len());
        for part in parts {
            sources.push(match (&part.of, &self.objects) {
                (ReadPartSource::Replica(replica), _) => PartSource::Replica(replica.source()?),
                (ReadPartSource::File(read), ArrayObjects::Archive(joined)) => {
                    PartSource::File { joined, read, member: joined.member(read) }
                }
                (ReadPartSource::Array | ReadPartSource::File(_), _) => PartSource::Array(own?),
            });
        }
        let pieces = parts.iter().zip(&sources);
        let mut pieces: Vec<PlanPiece<'_>> =
            pieces.map(|(part, source)| source.read_source().piece(&part.geometry)).collect();
        PlanPiece::number(&mut pieces);
        let all_of_replicas = sources.iter().all(|of| matches!(of, PartSource::Replica(_)));
        let tuning = match sources.first() {
            Some(PartSource::Replica(first)) if all_of_replicas => first.tuning(),
            _ => self.objects.tuning(),
        };
        Some(act(ReadPlan::new(&pieces, tuning)))
    }

    /// The parts of a box of a read that the array itself supplies.
    pub(super) fn own_parts(&self, part: &[PlacedAxis], shape: &[u64]) -> Result<Vec<ReadPart>> {
        match &self.objects {
            ArrayObjects::Archive(joined) => Ok(of_files(joined.parts_of(part, shape)?)),
            _ => Ok(vec![ReadPart {
                of: ReadPartSource::Array,
                geometry: self.geometry(part, shape)?,
            }]),
        }
    }

    pub(super) fn geometry(&self, part: &[PlacedAxis], shape: &[u64]) -> Result<Geometry> {
        let StoredLayout { grid, per_object, item_size, .. } = self.objects.layout();
        Geometry::placed(grid, per_object, part, shape, *item_size)
    }
}

impl ReadPart {
    /// A part that a replica supplies; `part` has positions in the replica.
    pub(super) fn of_replica(
        replica: &Arc<OpenReplica>,
        part: &[PlacedAxis],
        result_shape: &[u64],
    ) -> Result<Self> {
        let gone = || Error::new(ErrorKind::NotFound, replica.name());
        let StoredLayout { grid, per_object, item_size, .. } =
            replica.source().ok_or_else(gone)?.layout();
        let geometry = Geometry::placed(grid, per_object, part, result_shape, *item_size)?;
        Ok(Self { of: ReadPartSource::Replica(replica.clone()), geometry })
    }

    /// True if the array itself supplies the part.
    pub(super) fn is_own(&self) -> bool {
        !matches!(self.of, ReadPartSource::Replica(_))
    }
}

pub(super) fn of_files(parts: Vec<(FileRead, Geometry)>) -> Vec<ReadPart> {
    let part = |(read, geometry)| ReadPart { of: ReadPartSource::File(read), geometry };
    parts.into_iter().map(part).collect()
}
