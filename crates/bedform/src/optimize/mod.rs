//! Which replicas a source should have, and how they are made.
//!
//! [`plan`] decides and writes nothing; [`build`] makes what it says.
//!
//! # How
//!
//! 1. *Reads*: the kinds of reads that were learnt of each array, where they were, and how often
//!    ([`ReadKind`](crate::trace::ReadKind)), and the lists and points that were
//!    ([`LearnedSelection`](crate::trace::LearnedSelection)); or those that the caller expects. Reads of a month ago
//!    count half.
//! 2. *Prices*: each kind is priced at a few of its places, by the plan of the read as it would be run.
//! 3. *Candidates*: for each kind, for the kinds of an array together, and for where they mostly are, the box that
//!    they take, in the layout that costs least for them ([`advise`](mod@crate::layout::advise)).
//! 4. *Choice*: the candidate that saves most predicted time for its bytes, of those that fit the budget, until none
//!    saves more than it costs to make. Replicas that are there count as candidates that cost nothing to make; those
//!    that are not chosen go if their place is needed, those first that saved least for their bytes, and longest ago,
//!    by the reads that were recorded.
//! 5. *Waking*: replicas that rest are compared with the source, element by element ([`wake`]).
//! 6. *Building*: each replica is a conversion of a part of the source ([`convert`](mod@crate::convert)), with its
//!    promises: what was stopped goes on, nothing is seen before it is whole. Then the catalogue names it.
//!
//! This is the layout management of Tang, *Dynamic data prefetching and layout optimizations*, section 3.2.4, with
//! one budget for all.
//!
//! | module | holds |
//! |---|---|
//! | `reads` | kinds of reads, with their prices |
//! | `candidates` | replicas that could be made |
//! | `choose` | those that are worth their place |
//! | `conditions` | whether replicas are read, and why not |
//! | `waking` | replicas that rest, compared with the source |
//! | `place` | where a source lies |
//! | `building` | how they are made, and the catalogue |
//! | `targets` | which storage targets their shards go to |
//! | `layouts` | which layouts the arrays of a store of ours should have themselves |
//! | `policy` | all of it in the background, after so many reads |
//! | `trusting` | replicas that another user or machine has made, compared with the source |

mod building;
mod candidates;
mod choose;
mod conditions;
mod layouts;
mod place;
mod policy;
mod reads;
mod targets;
mod trusting;
mod waking;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bedform_format::Limits;
use bedform_format::chunk_map::SourceVersion;
use serde::Serialize;

use crate::convert::Exchange;
use crate::error::{Error, Result};
use crate::foreign::ForeignFile;
use crate::layout::Reader;
use crate::options::{OpenOptions, Prefetch, Progress};
use crate::replica::{Expected, Held, Replica, replicas_in};
use crate::sidecar::Sidecar;
use crate::size::{self, bytes_text};
use crate::store::Store;
use crate::threads::workers::check_goes_on;
use crate::trace::{ReplicaUse, newest_knowledge};
use crate::zarr::nodes::NodeKind;

pub use building::{Optimized, build, build_by};
pub use conditions::{ReplicaCondition, ReplicaState, conditions};
pub use layouts::{LayoutPlan, PlannedLayout, Reorganized, plan_layouts, reorganize};
pub use place::SourcePlace;
pub use policy::{policy_state, run_at_low_priority, run_policy, set_policy};
pub use reads::{ExpectedRead, ListedRead};
pub use trusting::{RefusedReplica, Trusted, trust};
pub use waking::wake;

use candidates::candidates_of;
use choose::{choose, least_budget};
use conditions::ReplicaJudgement;
use reads::{Deciding, Kind, kinds_of};

/// How much replicas may take together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Budget {
    /// So many bytes.
    Bytes(u64),
    /// So much of the bytes of the source: 0.2 for a fifth.
    Share(f64),
}

/// The largest share that makes sense: a thousand copies.
const SHARE_MAX: f64 = 1000.0;

impl Budget {
    /// A size with its unit, or a percentage of the source's bytes. A number without a unit is refused, but for 0:
    /// as bytes it would hold no replica, and drop those that are there.
    ///
    /// ```
    /// use bedform::optimize::Budget;
    ///
    /// assert_eq!(Budget::parse("20%")?, Budget::Share(0.2));
    /// assert_eq!(Budget::parse("4 GiB")?, Budget::Bytes(4 << 30));
    /// assert!(Budget::parse("20").is_err());
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
    fn bytes(self, source_bytes: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Share(share) => (source_bytes as f64 * share) as u64,
        }
    }
}

/// What is asked of an optimisation.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OptimizeOptions {
    /// How much replicas may take together, with what they need beside their elements.
    pub budget: Budget,
    /// Reads that will come; without them, and without selections, those that were learnt.
    pub reads: Vec<ExpectedRead>,
    /// Selections that will be read, exactly.
    pub selections: Vec<ListedRead>,
    /// Another source of the same form whose reads count, and not those of this one.
    pub like: Option<SourcePlace>,
    /// The directory of the sidecars, in the place of what `BEDFORM_SIDECAR` says.
    pub sidecars: Option<PathBuf>,
    /// The limit for values, encoded shards and kept chunks while a replica is made, in bytes.
    pub memory_bytes: u64,
    /// The source, opened, where its path alone does not open it.
    pub store: Option<Store>,
    /// The readers that the layouts of a store have to suit; of replicas it is Bedform alone.
    pub readers: Vec<Reader>,
}

impl Default for OptimizeOptions {
    fn default() -> Self {
        Self {
            budget: Budget::Share(0.2),
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

/// What would be done. As JSON it has the same names.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OptimizePlan {
    /// The source as the user named it.
    pub source: String,
    /// The state of a file that it is for.
    #[serde(skip_serializing)]
    state: SourceVersion,
    /// Bytes of the source as it is stored.
    pub source_bytes: u64,
    /// Bytes that replicas may take.
    pub budget_bytes: u64,
    /// Bytes that they will take, as predicted.
    pub bytes: u64,
    /// Kinds of reads, and what becomes of them.
    pub reads: Vec<PlannedRead>,
    /// Replicas to make.
    pub make: Vec<PlannedReplica>,
    /// Names of replicas that stay.
    pub keep: Vec<String>,
    /// Names of replicas that go.
    pub drop: Vec<String>,
    /// What should be known of it.
    pub notes: Vec<String>,
}

/// A kind of read, and its predicted time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlannedRead {
    /// The path of the array.
    pub array: String,
    /// Names of its axes.
    pub dims: Vec<String>,
    /// Elements along each axis.
    pub shape: Vec<u64>,
    /// Where they are: first positions.
    pub start: Vec<u64>,
    /// Ends, exclusive.
    pub end: Vec<u64>,
    /// How many such reads count.
    pub reads: f64,
    /// Predicted seconds of one, cold, of the source itself.
    pub seconds_of_source: f64,
    /// With the replicas that there are now.
    pub seconds_now: f64,
    /// With those of the plan.
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
    /// What of the array it holds.
    pub held: Held,
    /// Where its elements are in the C order of the array, if they are single ones.
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
    /// Bytes that it will take, as predicted.
    pub bytes: u64,
    /// Seconds that making it takes, as predicted.
    pub building_seconds: f64,
    /// What it is made for.
    pub expected: Vec<Expected>,
}

/// What a plan is made by, and made of.
struct Source {
    store: Store,
    /// Nothing where there is no place for one yet.
    sidecar: Option<Sidecar>,
    /// The replicas of this user.
    replicas: Vec<(Replica, ReplicaJudgement)>,
    /// The replicas of the site, which are not this user's to make or to drop.
    of_site: Vec<(Replica, ReplicaJudgement)>,
    /// Names of replicas of this user that nothing is read of, and nothing will be.
    dead: Vec<String>,
    /// That of a file.
    state: SourceVersion,
    bytes: u64,
    /// What reads took from the replicas that are there.
    uses: BTreeMap<String, ReplicaUse>,
}

impl Source {
    /// When a replica was used last, in nanoseconds since 1970.
    fn newest_ns(&self) -> u64 {
        self.uses.values().map(|used| used.last_ns).max().unwrap_or(0)
    }

    /// Opens the source at `place` for reads that nobody records, reads ahead, or takes of replicas.
    fn open(place: &SourcePlace, asked: &OptimizeOptions) -> Result<Self> {
        let mut source = Self::open_with_all(place, asked)?;
        // Another list of files may begin with the same one, and have what a replica was made of.
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

    /// As [`Source::open`], with the replicas that are dead.
    fn open_with_all(place: &SourcePlace, asked: &OptimizeOptions) -> Result<Self> {
        let mut options = OpenOptions::default();
        (options.prefetch, options.replicas, options.records) = (Prefetch::Off, false, false);
        let opened = asked.store.clone();
        let store = opened.map_or_else(|| place.open(options), Ok)?;
        let sidecar = Sidecar::find(&place.sidecar_name()?, asked.sidecars.as_deref())?;
        // That of a store, or of many files, is in its objects, each by itself.
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
        let dead = Vec::new();
        Ok(Self { store, sidecar, replicas, of_site, dead, state, bytes, uses })
    }

    /// The dimension along which its files are joined, if it is many.
    fn joined(&self) -> Option<&str> {
        self.store.file().and_then(ForeignFile::joined_dimension)
    }
}

/// Bytes of the chunks of all arrays of a store.
fn stored_bytes(store: &Store) -> Result<u64> {
    let mut bytes = 0_u64;
    for (path, kind) in store.nodes()? {
        if kind == NodeKind::Array {
            check_goes_on("the plan was stopped")?;
            bytes = bytes.saturating_add(store.array(&path)?.stored_bytes()?);
        }
    }
    Ok(bytes)
}

/// Decides which replicas the source at `place` should have. Reads a few blocks of each array to see how small
/// they become; writes nothing.
///
/// # Errors
/// `NotFound` if no reads were learnt and none are given; `InvalidArgument` for reads that no array can have; those
/// of opening the source.
pub fn plan(place: &SourcePlace, options: &OptimizeOptions) -> Result<OptimizePlan> {
    let source = Source::open(place, options)?;
    let mut notes = Vec::new();
    let kinds = kinds_of(&source, place, options, Deciding::Replicas, &mut notes)?;
    let budget_bytes = options.budget.bytes(source.bytes);
    let candidates = candidates_of(&source, &kinds, budget_bytes)?;
    let chosen = choose(&kinds, candidates, budget_bytes);
    for replica in &chosen.make {
        notes.extend(targets::note_of(&source, place, replica, options)?);
    }
    let seconds = chosen.seconds_now.iter().zip(&chosen.seconds_then);
    let reads = kinds.iter().zip(seconds).map(|(kind, (now, then))| kind.planned(*now, *then));
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
    if chosen.make.is_empty() && chosen.keep.is_empty() {
        notes.push(note_of_nothing(&source, &kinds, budget_bytes)?);
    }
    Ok(OptimizePlan {
        source: place.shown(),
        state: source.state,
        source_bytes: source.bytes,
        budget_bytes,
        bytes: chosen.bytes,
        reads: reads.collect(),
        make: chosen.make,
        keep: chosen.keep,
        drop: source.dead.into_iter().chain(chosen.drop).collect(),
        notes,
    })
}

/// Why a plan has no replica, and which budget has one.
fn note_of_nothing(source: &Source, kinds: &[Kind], budget_bytes: u64) -> Result<String> {
    let candidates = candidates_of(source, kinds, u64::MAX)?;
    Ok(match least_budget(kinds, &candidates) {
        None => "no replica saves more time than it takes to make, whatever the budget".to_owned(),
        Some(least) => format!(
            "no replica fits the budget of {}: one of {} holds the smallest that pays",
            bytes_text(budget_bytes as f64),
            bytes_text_up(least),
        ),
    })
}

/// A size that is no smaller than so many bytes, as a budget is written.
fn bytes_text_up(bytes: u64) -> String {
    let unit_bytes = if bytes < 1 << 20 { 1 << 10 } else { 1 << 20 };
    let unit = if unit_bytes == 1 << 10 { "KiB" } else { "MiB" };
    format!("{} {unit}", bytes.div_ceil(unit_bytes))
}

/// Wakes, chooses and makes replicas: [`wake`], [`plan`], then [`build_by`].
///
/// # Errors
/// As these.
pub fn optimize(
    place: &SourcePlace,
    options: &OptimizeOptions,
    progress: Progress<'_>,
    exchange: Option<Exchange<'_>>,
) -> Result<(OptimizePlan, Optimized)> {
    let woken = wake(place, options, progress)?;
    let planned = plan(place, options)?;
    let mut done = build_by(place, &planned, options, progress, exchange)?;
    done.woken = woken;
    Ok((planned, done))
}
