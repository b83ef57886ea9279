//! Chooses replicas for a source from its recorded or expected reads, and builds them.
//!
//! [`plan`] decides and writes nothing; [`build`] carries out a plan; [`optimize`] does both.
//!
//! # How it works
//!
//! 1. *Reads*: the learned kinds of reads of each array
//!    ([`LearnedReadKind`](crate::trace::LearnedReadKind)) with their places and counts, and the
//!    learned lists and points ([`LearnedSelection`](crate::trace::LearnedSelection)). Reads that
//!    the caller expects replace them. A read that is 30 days older than the newest counts half.
//! 2. *Prices*: the read plan of a few places of each kind predicts its seconds.
//!    Queries by value count, too: their conditions, each with the predicted seconds of a scan and
//!    of the query with an index, whose effect a few blocks of the array tell.
//! 3. *Candidates*: boxes of an array: the bounds of each kind, its hot region, and the hot regions
//!    of several kinds together. Each has the layout that costs least for these kinds
//!    ([`advise`](mod@crate::layout::advise)). And a value index of each array that queries compare,
//!    unless a user has built one.
//! 4. *Choice*: a greedy choice within the budget takes the candidate that saves most predicted
//!    seconds per byte, until none saves more than it costs to make. An existing replica is a
//!    candidate without building cost. A new one must also pay against the existing ones. An
//!    existing one goes if a new one takes its place. Any other unchosen one stays while there is
//!    room. Otherwise the replicas go first whose reads the chosen ones serve, then those with the
//!    fewest saved seconds per byte, and of equals the one used longest ago.
//! 5. *Waking*: [`wake`] compares resting replicas with the source, element by element.
//! 6. *Building*: each replica is a conversion of a part of the source
//!    ([`convert`](mod@crate::convert)). A conversion resumes after an interruption and publishes
//!    only complete data. Then the catalogue names the replica. Unchosen replicas are removed last:
//!    if a new one takes more bytes than predicted and passes the budget, it is removed instead.
//!
//! This is the layout management of Tang, *Dynamic data prefetching and layout optimizations*,
//! section 3.2.4, with one budget for all replicas of a source.
//!
//! | module | holds |
//! |---|---|
//! | `reads` | kinds of reads, with their prices |
//! | `queries` | conditions of queries with their prices, and the indexes that would serve them |
//! | `candidates` | replicas that could be made |
//! | `choose` | the choice of replicas within the budget |
//! | `named_budget` | the budget that a note names |
//! | `conditions` | the state of each replica: read or not, and why |
//! | `waking` | the comparison of resting replicas with the source |
//! | `place` | the path or list of files of a source |
//! | `building` | the making of replicas, and changes of the catalogue |
//! | `targets` | the storage targets of the shards of a replica |
//! | `layouts` | new layouts for the arrays of a Bedform store itself |
//! | `meshes` | replicas of the components of refined meshes |
//! | `policy` | all of this in the background, after a number of reads |
//! | `trusting` | the comparison of another user's or machine's replicas with the source |

mod building;
mod candidates;
mod choose;
mod conditions;
mod layouts;
mod meshes;
mod named_budget;
mod place;
mod policy;
mod queries;
mod reads;
mod targets;
#[cfg(test)]
mod tests;
mod trusting;
mod waking;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bedform_format::chunk_map::SourceVersion;
use bedform_format::{Limits, ObjectPath};
use bedform_storage::ProfileOrigin;
use serde::Serialize;

use crate::convert::TaskExchange;
use crate::error::{Error, ErrorKind, Result};
use crate::foreign::ForeignFile;
use crate::indexing::{IndexCondition, index_conditions};
use crate::layout::Reader;
use crate::options::{OpenOptions, Prefetch, ProgressCallback};
use crate::replica::{ExpectedReads, Replica, ReplicaElements, replicas_in};
use crate::sidecar::Sidecar;
use crate::size::{self, bytes_text};
use crate::store::Store;
use crate::threads::workers::check_cancelled;
use crate::trace::{ReplicaUse, newest_knowledge};
use crate::zarr::nodes::NodeKind;

pub use building::{Optimized, OptimizedIndexes, build, build_by};
pub use conditions::{ReplicaCondition, ReplicaState, conditions};
pub use layouts::{LayoutPlan, PlannedLayout, Reorganized, plan_layouts, reorganize};
pub use meshes::{
    HeldDomainPart, MadeMeshReplica, MeshLayout, MeshOptimizeOptions, MeshOptimizePlan,
    MeshOptimized, PlannedMeshReplica, current_mesh_replicas, layout_for_reads, optimize_meshes,
    plan_meshes,
};
pub use place::SourcePlace;
pub use policy::{policy_state, run_at_low_priority, run_policy, set_policy};
pub use reads::{ExpectedRead, ListedRead};
pub use trusting::{RefusedReplica, Trusted, trust};
use waking::compare_resting;
pub use waking::wake;

use candidates::{CandidateReplica, PlannedHelper, candidates_of};
use choose::{ChosenReplicas, PricedUse, choose};
use conditions::ReplicaJudgement;
use named_budget::{budget_to_keep, budget_to_make, text_up};
use queries::{PricedQuery, index_candidates, indexed_array, queries_of};
use reads::{PricedReadKind, ReadsFor, kinds_of, known_reads};

/// The limit on the bytes of all replicas of a source together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ReplicaBudget {
    /// A number of bytes.
    Bytes(u64),
    /// A share of the bytes of the source: 0.2 for a fifth.
    Share(f64),
    /// A fifth of the bytes of the source, or the bytes of the existing replicas, whichever is
    /// more.
    Default,
}

/// The share of [`ReplicaBudget::Default`].
const SHARE_DEFAULT: f64 = 0.2;

/// The largest accepted share: a thousand copies.
const SHARE_MAX: f64 = 1000.0;

impl ReplicaBudget {
    /// Parses a size with its unit, or a percentage of the source's bytes. A number without a unit
    /// is refused, except 0: as bytes it would hold no replica, and drop the existing ones.
    ///
    /// ```
    /// use bedform::optimize::ReplicaBudget;
    ///
    /// assert_eq!(ReplicaBudget::parse("20%")?, ReplicaBudget::Share(0.2));
    /// assert_eq!(ReplicaBudget::parse("4 GiB")?, ReplicaBudget::Bytes(4 << 30));
    /// assert!(ReplicaBudget::parse("20").is_err());
    /// # Ok::<(), bedform::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for anything else.
    pub fn parse(text: &str) -> Result<Self> {
        let Some(percent) = text.trim().strip_suffix('%') else {
            let number = text.trim();
            if number.parse::<f64>().is_ok_and(|number| number != 0.0) {
                return Err(Error::invalid(format!(
                    "the budget {number} has no unit: {number}% of the source, or {number} MiB?"
                )));
            }
            return size::from_text(text).map(Self::Bytes);
        };
        let share = percent.trim().parse::<f64>().map(|percent| percent / 100.0);
        match share {
            Ok(share) if (0.0..=SHARE_MAX).contains(&share) => Ok(Self::Share(share)),
            _ => Err(Error::invalid(format!(
                "not a budget: {text:?}; it is a share of the source, as 20%, or a size, as 4 GiB"
            ))),
        }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn bytes(self, source_bytes: u64, existing_bytes: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Share(share) => (source_bytes as f64 * share) as u64,
            Self::Default => Self::Share(SHARE_DEFAULT).bytes(source_bytes, 0).max(existing_bytes),
        }
    }
}

/// Settings of [`plan`] and [`build`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OptimizeOptions {
    /// The limit on the bytes of all replicas together, with their documents and shard indexes, and
    /// of the value indexes that an earlier plan made.
    /// [`build`] removes replaced replicas after it has made the new ones: until then the sidecar
    /// may hold both.
    pub budget: ReplicaBudget,
    /// Expected reads. Without them, and without `selections`, the learned reads count.
    pub reads: Vec<ExpectedRead>,
    /// Selections that will be read exactly as given.
    pub selections: Vec<ListedRead>,
    /// Another source with the same arrays, whose learned reads count instead of this source's.
    pub like: Option<SourcePlace>,
    /// The directory of the sidecars; it overrides `BEDFORM_SIDECAR`.
    pub sidecars: Option<PathBuf>,
    /// The memory budget for making a replica: values, encoded shards and kept chunks, in bytes.
    pub memory_bytes: u64,
    /// The source, already opened, for a source that its path alone does not open.
    pub store: Option<Store>,
    /// The readers that a store's new layouts have to suit. Only Bedform reads replicas.
    pub readers: Vec<Reader>,
}

impl Default for OptimizeOptions {
    fn default() -> Self {
        Self {
            budget: ReplicaBudget::Default,
            reads: Vec::new(),
            selections: Vec::new(),
            like: None,
            sidecars: None,
            memory_bytes: 512 << 20,
            store: None,
            readers: Reader::ALL.to_vec(),
        }
    }
}

/// The replicas and value indexes to make, keep and drop, with predicted times. Its JSON has the
/// same names.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OptimizePlan {
    /// The source as the user named it.
    pub source: String,
    /// The version of the source file that the plan was made for; the default for a store or
    /// archive.
    #[serde(skip_serializing)]
    state: SourceVersion,
    /// Stored bytes of the source.
    pub source_bytes: u64,
    /// The profile of the source's storage, by which seconds are predicted.
    pub profile: ProfileOrigin,
    /// Bytes that replicas and planned indexes may take.
    pub budget_bytes: u64,
    /// Predicted bytes of all replicas and planned indexes after the plan.
    pub bytes: u64,
    /// Kinds of reads, with their predicted seconds before and after the plan.
    pub reads: Vec<PlannedRead>,
    /// Conditions of queries, with their predicted seconds before and after the plan.
    pub queries: Vec<PlannedQuery>,
    /// The value indexes of the plan.
    pub indexes: PlannedIndexes,
    /// Replicas to make.
    pub make: Vec<PlannedReplica>,
    /// Names of the replicas that stay.
    pub keep: Vec<String>,
    /// Names of the replicas to remove.
    pub drop: Vec<String>,
    /// Names of existing replicas and indexes that no read needs, kept or dropped, the most valuable
    /// first.
    #[serde(skip_serializing)]
    unused: Vec<String>,
    /// Remarks for the user.
    pub notes: Vec<String>,
}

impl OptimizePlan {
    /// True if it makes a replica or an index.
    fn makes_something(&self) -> bool {
        !self.make.is_empty() || !self.indexes.make.is_empty()
    }

    /// True if it leaves everything as it is.
    fn changes_nothing(&self) -> bool {
        !self.makes_something() && self.drop.is_empty() && self.indexes.drop.is_empty()
    }
}

/// The value indexes that a plan makes, and those of earlier plans. Users' own are left alone.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct PlannedIndexes {
    /// Indexes to make or renew.
    pub make: Vec<PlannedIndex>,
    /// Paths of the arrays whose index stays.
    pub keep: Vec<String>,
    /// Paths of the arrays whose index is removed.
    pub drop: Vec<String>,
}

/// A value index that is to be made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlannedIndex {
    /// The path of the array.
    pub array: String,
    /// True with the bins of [`BinChoice::Auto`](crate::indexing::BinChoice).
    pub has_bins: bool,
    /// Bytes of the array's elements.
    pub raw_bytes: u64,
    /// Predicted bytes on storage.
    pub bytes: u64,
    /// Predicted seconds to make it.
    pub building_seconds: f64,
}

/// Queries with one condition, and their predicted seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlannedQuery {
    /// The condition in Python's form, with paths of arrays as names.
    pub condition: String,
    /// True if stored values are compared, and not decoded ones.
    pub is_stored: bool,
    /// Paths of the arrays of the condition.
    pub arrays: Vec<String>,
    /// Names of the axes of the region.
    pub dims: Vec<String>,
    /// Elements of the region along each axis.
    pub shape: Vec<u64>,
    /// The first position of the box around all such regions, along each axis.
    pub start: Vec<u64>,
    /// The end of that box along each axis, exclusive.
    pub end: Vec<u64>,
    /// The weight of such queries: their number, older ones counting less.
    pub queries: f64,
    /// Predicted seconds of one cold scan.
    pub seconds_of_source: f64,
    /// Predicted seconds of one cold query with the existing indexes.
    pub seconds_now: f64,
    /// Predicted seconds of one cold query with the indexes of the plan.
    pub seconds_then: f64,
}

/// A kind of read, and its predicted seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlannedRead {
    /// The path of the array.
    pub array: String,
    /// Names of its axes.
    pub dims: Vec<String>,
    /// Elements that such a read takes along each axis.
    pub shape: Vec<u64>,
    /// The first position of the box around all such reads, along each axis.
    pub start: Vec<u64>,
    /// The end of that box along each axis, exclusive.
    pub end: Vec<u64>,
    /// The weight of such reads: their number, older ones counting less.
    pub reads: f64,
    /// Predicted seconds of one cold read of the source itself.
    pub seconds_of_source: f64,
    /// Predicted seconds of one read with the existing replicas.
    pub seconds_now: f64,
    /// Predicted seconds of one read with the replicas of the plan.
    pub seconds_then: f64,
}

/// A replica that is to be made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlannedReplica {
    /// Its name.
    pub id: String,
    /// The path of the array.
    pub array: String,
    /// Names of its axes.
    pub dims: Vec<String>,
    /// The part of the array that it holds.
    pub held: ReplicaElements,
    /// The places of its elements in the C order of the array, for a replica of points.
    #[serde(skip_serializing)]
    pub places: Option<Arc<Vec<u64>>>,
    /// Elements along each axis.
    pub shape: Vec<u64>,
    /// Bytes of its elements.
    pub raw_bytes: u64,
    /// Elements of a chunk along each axis.
    pub chunks: Vec<u64>,
    /// Elements of a shard along each axis.
    pub shards: Vec<u64>,
    /// The order of the chunks in a shard.
    pub order: String,
    /// Predicted bytes on storage.
    pub bytes: u64,
    /// Predicted seconds to make it.
    pub building_seconds: f64,
    /// The kinds of reads that it serves.
    pub expected: Vec<ExpectedReads>,
}

/// An opened source, with its sidecar and its replicas.
struct OptimizedSource {
    store: Store,
    /// Nothing while the source has no sidecar.
    sidecar: Option<Sidecar>,
    /// The replicas that this user made or may remove.
    replicas: Vec<(Replica, ReplicaJudgement)>,
    /// The replicas of the site, which this user neither makes nor drops.
    of_site: Vec<(Replica, ReplicaJudgement)>,
    /// Names of this user's replicas that no read can use again: broken, or outdated.
    dead: Vec<String>,
    /// True if indexes are planned: they lie in the sidecar that the arrays find, and not in one
    /// that the caller names.
    plans_indexes: bool,
    /// The value indexes of earlier plans that are of the source as it is.
    indexes: Vec<IndexCondition>,
    /// Paths of the arrays whose index, by an earlier plan, is of an earlier state of the source.
    dead_indexes: Vec<String>,
    /// Paths of the arrays with an index that is no plan's to change: a user built it, or the site
    /// has it.
    users_indexes: Vec<String>,
    /// The version of a file; the default for a store or an archive.
    state: SourceVersion,
    bytes: u64,
    /// The recorded use of each replica, by its name.
    uses: BTreeMap<String, ReplicaUse>,
}

impl OptimizedSource {
    /// The time of the last use of any replica, in nanoseconds since 1970; 0 without one.
    fn newest_ns(&self) -> u64 {
        self.uses.values().map(|used| used.last_ns).max().unwrap_or(0)
    }

    /// Opens the source at `place` with recording, reading ahead and replicas turned off.
    fn open(place: &SourcePlace, asked: &OptimizeOptions) -> Result<Self> {
        let mut source = Self::open_with_all(place, asked)?;
        // An archive with other files may share this sidecar and still have the files of a replica.
        let is_archive = matches!(place, SourcePlace::Archive { .. });
        let is_dead = |(replica, condition): &(Replica, ReplicaJudgement)| {
            let is_dead = match condition.state {
                ReplicaState::Broken => true,
                ReplicaState::Outdated => !is_archive,
                _ => false,
            };
            is_dead.then(|| replica.id.clone())
        };
        source.dead = source.replicas.iter().filter_map(is_dead).collect();
        source.replicas.retain(|one| is_dead(one).is_none());
        Ok(source)
    }

    /// Opens the source as [`OptimizedSource::open`] does, but keeps dead replicas among `replicas`.
    fn open_with_all(place: &SourcePlace, asked: &OptimizeOptions) -> Result<Self> {
        let mut options = OpenOptions::default();
        (options.prefetch, options.replicas, options.records) = (Prefetch::Off, false, false);
        let opened = asked.store.clone();
        let store = opened.map_or_else(|| place.open(options), Ok)?;
        let sidecar = Sidecar::find(&place.sidecar_name()?, asked.sidecars.as_deref())?;
        // The objects of a store or an archive carry their versions one by one.
        let file = store.file().map(|file| file.map().source.clone());
        let is_archive = matches!(place, SourcePlace::Archive { .. });
        let state = file.clone().filter(|_| !is_archive).unwrap_or_default();
        let named_in = |sidecar: &Sidecar| -> Vec<(Replica, ReplicaJudgement)> {
            let named = replicas_in(sidecar, &Limits::default()).into_iter();
            named.map(|one| (one.clone(), ReplicaJudgement::of(&store, sidecar, &one))).collect()
        };
        let replicas = sidecar.as_ref().map_or_else(Vec::new, named_in);
        let of_site = sidecar.as_ref().and_then(Sidecar::site).map_or_else(Vec::new, named_in);
        let bytes = match file {
            Some(file) => file.size,
            None => stored_bytes(&store)?,
        };
        let known = sidecar.as_ref().and_then(newest_knowledge);
        let uses = known.map(|known| known.replicas).unwrap_or_default();
        let mut source = Self {
            store,
            sidecar,
            replicas,
            of_site,
            dead: Vec::new(),
            plans_indexes: asked.sidecars.is_none(),
            indexes: Vec::new(),
            dead_indexes: Vec::new(),
            users_indexes: Vec::new(),
            state,
            bytes,
            uses,
        };
        source.sort_indexes()?;
        Ok(source)
    }

    /// The existing value indexes; none if none are planned.
    fn index_conditions(&self) -> Result<Vec<IndexCondition>> {
        if self.plans_indexes { index_conditions(&self.store) } else { Ok(Vec::new()) }
    }

    /// Sorts the existing indexes by maker and state.
    fn sort_indexes(&mut self) -> Result<()> {
        for condition in self.index_conditions()? {
            if !condition.is_planned {
                self.users_indexes.push(condition.array);
                continue;
            }
            let array = self.store.array(&ObjectPath::parse(&condition.array)?)?;
            match array.value_index()?.is_some_and(|index| index.is_complete()) {
                true => self.indexes.push(condition),
                false => self.dead_indexes.push(condition.array),
            }
        }
        Ok(())
    }

    /// The stored bytes of this user's replicas, and of the indexes of earlier plans.
    fn existing_bytes(&self) -> u64 {
        let replicas: u64 = self.replicas.iter().map(|(one, _)| one.stored_bytes).sum();
        replicas + self.indexes.iter().map(|one| one.bytes).sum::<u64>()
    }

    /// The dimension along which an archive joins its files; nothing for other sources.
    fn joined(&self) -> Option<&str> {
        self.store.file().and_then(ForeignFile::joined_dimension)
    }
}

/// Returns the bytes of the chunks of all arrays of a store.
fn stored_bytes(store: &Store) -> Result<u64> {
    let mut bytes = 0_u64;
    for (path, kind) in store.nodes()? {
        if kind == NodeKind::Array {
            check_cancelled("the plan was stopped")?;
            bytes = bytes.saturating_add(store.array(&path)?.stored_bytes()?);
        }
    }
    Ok(bytes)
}

/// The reads and queries that a plan is made for.
struct PricedUses {
    kinds: Vec<PricedReadKind>,
    queries: Vec<PricedQuery>,
}

impl PricedUses {
    /// Collects the reads that the caller expects, or the learned reads and queries.
    ///
    /// # Errors
    /// Those of [`kinds_of`] and [`queries_of`].
    fn of(
        source: &OptimizedSource,
        place: &SourcePlace,
        options: &OptimizeOptions,
        notes: &mut Vec<String>,
    ) -> Result<Self> {
        let kinds = kinds_of(source, place, options, ReadsFor::Replicas, notes)?;
        let is_learned = options.reads.is_empty() && options.selections.is_empty();
        let known = match is_learned && source.plans_indexes {
            true => known_reads(source, place, options.like.as_ref())?,
            false => None,
        };
        let queries = match known {
            Some((_, knowledge)) => queries_of(source, &knowledge, notes)?,
            None => Vec::new(),
        };
        Ok(Self { kinds, queries })
    }

    /// All of them, as the choice compares them.
    fn all(&self) -> Vec<PricedUse> {
        let kinds = self.kinds.iter().map(PricedReadKind::priced_use);
        kinds.chain(self.queries.iter().map(PricedQuery::priced_use)).collect()
    }

    /// Returns all candidates: replicas, then indexes.
    ///
    /// # Errors
    /// Errors of opening and sampling the arrays.
    fn candidates(
        &self,
        source: &OptimizedSource,
        budget_bytes: u64,
    ) -> Result<Vec<CandidateReplica>> {
        let mut all = candidates_of(source, &self.kinds, budget_bytes)?;
        let count = self.kinds.len() + self.queries.len();
        all.iter_mut().for_each(|one| one.serves.resize(count, None));
        all.extend(index_candidates(source, &self.queries, self.kinds.len())?);
        Ok(all)
    }
}

/// Divides names into those of replicas, and the arrays of indexes.
fn by_kind(names: Vec<String>) -> (Vec<String>, Vec<String>) {
    let (indexes, replicas): (Vec<_>, Vec<_>) =
        names.into_iter().partition(|name| indexed_array(name).is_some());
    let array = |name: String| indexed_array(&name).map(str::to_owned);
    (replicas, indexes.into_iter().filter_map(array).collect())
}

/// Divides what is to be made into replicas and indexes.
fn planned_by_kind(make: Vec<PlannedHelper>) -> (Vec<PlannedReplica>, Vec<PlannedIndex>) {
    let (mut replicas, mut indexes) = (Vec::new(), Vec::new());
    for planned in make {
        match planned {
            PlannedHelper::Replica(replica) => replicas.push(*replica),
            PlannedHelper::Index(index) => indexes.push(index),
            // Arrays have no such replicas.
            PlannedHelper::OfMesh(_) => {}
        }
    }
    (replicas, indexes)
}

/// Decides which replicas and value indexes the source at `place` should have. Reads a few blocks of
/// each array to measure their compression; writes nothing.
///
/// # Errors
/// `NotFound` if no reads were learned and none are given; `InvalidArgument` for reads that no
/// array can have; errors of opening the source.
pub fn plan(place: &SourcePlace, options: &OptimizeOptions) -> Result<OptimizePlan> {
    let mut source = OptimizedSource::open(place, options)?;
    // There may be one for each array: they follow the notes on the whole source.
    let mut of_arrays = Vec::new();
    let uses = PricedUses::of(&source, place, options, &mut of_arrays)?;
    let budget_bytes = options.budget.bytes(source.bytes, source.existing_bytes());
    let candidates = uses.candidates(&source, budget_bytes)?;
    let mut chosen = choose(&uses.all(), candidates, budget_bytes);
    let makes_nothing = chosen.make.is_empty();
    let (make, indexes) = planned_by_kind(std::mem::take(&mut chosen.make));
    for replica in &make {
        of_arrays.extend(targets::note_of(&source, place, replica, options)?);
    }
    let mut notes = Vec::new();
    let mut seconds = chosen.seconds_now.iter().copied().zip(chosen.seconds_then.iter().copied());
    let reads = uses.kinds.iter().zip(seconds.by_ref());
    let reads = reads.map(|(kind, (now, then))| kind.planned(now, then)).collect();
    let queries = uses.queries.iter().zip(seconds);
    let queries = queries.map(|(query, (now, then))| query.planned(now, then)).collect();
    if !source.of_site.is_empty() {
        let (count, bytes) = (source.of_site.len(), source.of_site.iter());
        let bytes: u64 = bytes.map(|(one, _)| one.stored_bytes).sum();
        notes.push(format!(
            "the site has {count} replicas of it, {bytes} bytes, which are read whatever is chosen here"
        ));
    }
    let resting = source.replicas.iter().filter(|one| one.1.state == ReplicaState::Resting);
    match resting.count() {
        0 => {}
        count => notes.push(format!(
            "{count} replicas rest, because files were copied or moved, or their attributes were changed: they are \
             compared before others are made"
        )),
    }
    if makes_nothing && chosen.keep.is_empty() {
        notes.push(note_of_nothing(&mut source, &uses, &chosen, budget_bytes)?);
    }
    notes.extend(of_arrays);
    let (keep, kept_indexes) = by_kind(chosen.keep);
    let (drop, mut dropped_indexes) = by_kind(chosen.drop);
    let is_made = |path: &String| indexes.iter().any(|index| index.array == *path);
    dropped_indexes.extend(source.dead_indexes.into_iter().filter(|path| !is_made(path)));
    Ok(OptimizePlan {
        source: place.shown(),
        profile: source.store.profile().into(),
        state: source.state,
        source_bytes: source.bytes,
        budget_bytes,
        bytes: chosen.bytes,
        reads,
        queries,
        indexes: PlannedIndexes { make: indexes, keep: kept_indexes, drop: dropped_indexes },
        make,
        keep,
        drop: source.dead.into_iter().chain(drop).collect(),
        unused: chosen.unused,
        notes,
    })
}

/// Plans for a source without learned reads: its replicas stay, except those that no read can use.
fn plan_without_reads(place: &SourcePlace, options: &OptimizeOptions) -> Result<OptimizePlan> {
    let source = OptimizedSource::open(place, options)?;
    let shown = place.shown();
    Ok(OptimizePlan {
        profile: source.store.profile().into(),
        source_bytes: source.bytes,
        budget_bytes: options.budget.bytes(source.bytes, source.existing_bytes()),
        bytes: source.existing_bytes(),
        reads: Vec::new(),
        queries: Vec::new(),
        indexes: PlannedIndexes {
            keep: source.indexes.iter().map(|one| one.array.clone()).collect(),
            ..PlannedIndexes::default()
        },
        make: Vec::new(),
        keep: source.replicas.iter().map(|(one, _)| one.id.clone()).collect(),
        drop: source.dead,
        unused: Vec::new(),
        notes: vec![format!(
            "no reads were learnt, so resting replicas were compared and none were planned; {} records reads",
            place.command("watch")
        )],
        state: source.state,
        source: shown,
    })
}

/// Says why a plan has no replica and no index, and names a budget that keeps the existing ones, or
/// that makes one. Clears the existing replicas of `source`, to price candidates without them.
fn note_of_nothing(
    source: &mut OptimizedSource,
    uses: &PricedUses,
    chosen: &ChosenReplicas,
    budget_bytes: u64,
) -> Result<String> {
    let candidates = uses.candidates(source, u64::MAX)?;
    let kinds = &uses.all();
    let what = if uses.queries.is_empty() { "replica" } else { "replica or index" };
    let budget = bytes_text(budget_bytes as f64);
    if !chosen.drop.is_empty() {
        let (count, existing) = (chosen.drop.len(), bytes_text(source.existing_bytes() as f64));
        source.replicas.clear();
        source.indexes.clear();
        let without_existing = uses.candidates(source, u64::MAX)?;
        let keeping = text_up(budget_to_keep(kinds, &candidates, &without_existing));
        return Ok(format!(
            "no {what} fits the budget of {budget}: existing ones, {count}, take {existing}; one of {keeping} keeps \
             them"
        ));
    }
    Ok(match budget_to_make(kinds, &candidates) {
        None => format!("no {what} saves more time than it takes to make, whatever the budget"),
        Some(least) => format!(
            "no {what} fits the budget of {budget}: one of {} holds the smallest that pays",
            text_up(least),
        ),
    })
}

/// Wakes, chooses and makes replicas: calls [`wake`], [`plan`] and [`build_by`].
///
/// # Errors
/// Those of [`wake`], [`plan`] and [`build_by`].
pub fn optimize(
    place: &SourcePlace,
    options: &OptimizeOptions,
    progress: ProgressCallback<'_>,
    exchange: Option<TaskExchange<'_>>,
) -> Result<(OptimizePlan, Optimized)> {
    let resting = compare_resting(place, options, progress)?;
    let asks =
        !options.reads.is_empty() || !options.selections.is_empty() || options.like.is_some();
    let planned = match plan(place, options) {
        // Without reads the comparison is all that there was to do.
        Err(error)
            if error.kind() == ErrorKind::NotFound && !asks && !resting.compared.is_empty() =>
        {
            plan_without_reads(place, options)?
        }
        planned => planned?,
    };
    let mut done = build_by(place, &planned, options, progress, exchange)?;
    (done.compared, done.woken) = (resting.compared, resting.woken);
    Ok((planned, done))
}
