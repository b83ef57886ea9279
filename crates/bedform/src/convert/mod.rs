//! Conversion of any readable input into a store whose layouts fit the reads.
//!
//! # Promises
//!
//! - The target appears under its name only when it is complete, durable and, if asked, verified.
//! - A conversion to a directory that is stopped, by a signal, a crash or a full disk, resumes when
//!   the same call is made again. It starts over if the source has changed since.
//! - Values, encoded shards and kept chunks stay within the memory given, whatever the size of the
//!   source.
//!
//! # How
//!
//! [`plan`] decides layouts and regions without reading elements, and returns a plain value.
//! [`run`] copies one region after another.
//!
//! 1. It locks the work directory beside the target, `.<target>.bedform-partial` (`work`).
//! 2. It compares the plan in the directory with its own, and starts over if that is of another
//!    state of the source.
//! 3. It creates the missing parts of the store in the work directory: groups, then arrays, each in
//!    one commit.
//! 4. It copies the regions that the journal does not name (`journal`). A write is durable when it
//!    returns, and its mark is appended after that.
//! 5. If asked, it reads both sides again and compares every byte.
//! 6. It gives the store its name if that is free, and removes the work directory. A crash between
//!    the two leaves a work directory without a store, which a later conversion to that name uses.
//!
//! All calls go to the storage of the directory that holds the target. An object store cannot
//! rename, so a stopped conversion to one starts over: see `drafts`.
//!
//! | module | holds |
//! |---|---|
//! | `source`, `attributes`, `state` | the source: arrays, attributes, a fingerprint of its state |
//! | `target` | the target's place |
//! | `plan`, `regions`, `question` | layouts and regions, without I/O; options from JSON |
//! | `new_array` | the arrays of the target |
//! | `work`, `journal` | the work directory, finished regions |
//! | `copy`, `drafts` | regions read, written and compared; conversions to object stores |
//! | `tasks`, `worker` | tasks for workers in other processes, and their execution |
//! | `reorganize`, `tree` | other layouts of a store in its place: links, the exchange |
//! | `words` | values in messages |

mod attributes;
mod copy;
mod drafts;
mod journal;
mod new_array;
mod plan;
mod question;
mod regions;
mod reorganize;
mod source;
mod state;
mod target;
mod tasks;
mod tree;
mod words;
mod work;
mod worker;

use std::fmt;

use bedform_format::ObjectPath;
use bedform_geometry::Order;
use bedform_storage::Profile;
use serde::Serialize;
use serde_json::Value;

use crate::error::{Error, ErrorKind, Result};
pub use crate::foreign::ReadElements;
use crate::layout::Reader;
use crate::options::OpenOptions;
use crate::options::ProgressCallback;
use crate::store::Store;
pub(crate) use attributes::variable_attributes as encoded_attributes;
use copy::ConversionJob;
pub(crate) use copy::read_both;
pub use plan::{ArrayPlan, ConvertPlan};
pub use reorganize::{Reorganization, check_reorganizable, keeps_layout, remove_reorganized};
pub use source::{ConvertSource, ReadTexts, RegionReader};
pub use target::ConvertTarget;
use target::TargetBacking;
pub use tasks::{ArrayRegions, ExchangedTasks, RegionTask, TargetPlace, TaskExchange};
use work::WorkDirectory;
pub use worker::RegionWorker;

/// The divisor of the memory: so much caches decoded chunks of the source that the next region
/// needs again...
const CACHE_PART: u64 = 4;
/// ...and at most so many bytes.
const CACHE_BYTES_MAX: u64 = 64 << 20;

/// A layout that the user names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayLayoutChoice {
    /// Elements of a chunk along each axis.
    pub chunks: Vec<u64>,
    /// Elements of a shard along each axis; `None` for shards of about 64 MiB.
    pub shards: Option<Vec<u64>>,
    /// The order of the chunks in a shard.
    pub order: Order,
}

/// The user's choice of codecs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CodecWish {
    /// The codecs that are fastest to read, by a sample of the elements.
    Auto {
        /// Whether codecs outside Zarr's core may be chosen.
        beyond_zarr: bool,
    },
    /// These codecs, by name or as in Zarr metadata.
    Named(Vec<Value>),
}

impl Default for CodecWish {
    fn default() -> Self {
        Self::Auto { beyond_zarr: false }
    }
}

/// Options of a conversion.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ConvertOptions {
    /// The layout of all arrays of the same rank; other arrays, and all without it, get the
    /// cheapest one.
    pub layout: Option<ArrayLayoutChoice>,
    /// The axes that typical reads span, by name, with weights. A kind with an axis that an array
    /// lacks is ignored for that array.
    pub reads: Vec<(Vec<String>, f64)>,
    /// The readers for which layouts must be fast.
    pub readers: Vec<Reader>,
    /// The parameters of the target's storage; `None` takes the stored profile.
    pub profile: Option<Profile>,
    /// The limit of bytes for values, encoded shards and kept chunks. Open the source with a cache
    /// of [`ConvertOptions::source_cache_bytes`], which is a part of it.
    pub memory_bytes: u64,
    /// The codecs of the arrays.
    pub codecs: CodecWish,
    /// Paths of arrays to leave out.
    pub exclude: Vec<String>,
    /// Whether the objects of an array lie in one directory, named `c.0.0`: fewer directories, with
    /// more objects in each.
    pub flat_keys: bool,
    /// Whether both sides are read again, and every byte compared, before the target appears.
    pub verify: bool,
    /// Whether to discard an unfinished conversion to this target.
    pub restart: bool,
}

impl Default for ConvertOptions {
    fn default() -> Self {
        Self {
            layout: None,
            reads: Vec::new(),
            readers: Reader::ALL.to_vec(),
            profile: None,
            memory_bytes: 512 << 20,
            codecs: CodecWish::default(),
            exclude: Vec::new(),
            flat_keys: false,
            verify: false,
            restart: false,
        }
    }
}

impl ConvertOptions {
    /// Bytes of decoded chunks that the source may cache: a part of the memory.
    pub fn source_cache_bytes(&self) -> u64 {
        (self.memory_bytes / CACHE_PART).min(CACHE_BYTES_MAX)
    }

    fn memory_for_regions(&self) -> u64 {
        self.memory_bytes - self.source_cache_bytes()
    }

    /// The total memory that leaves `bytes` apart from the source's cache.
    fn memory_with_cache(bytes: u64) -> u64 {
        bytes.saturating_mul(CACHE_PART) / (CACHE_PART - 1)
    }
}

/// The result of a conversion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Converted {
    /// Decoded bytes that an earlier, unfinished run had copied.
    pub resumed_bytes: u64,
    /// Whether every byte was compared with the source.
    pub verified: bool,
    /// Messages for the user.
    pub warnings: Vec<String>,
}

/// The reason that a conversion has not published its target.
#[derive(Debug)]
pub enum ConvertError {
    /// Another conversion to the same target is running.
    Busy(String),
    /// The copy differs from its source; it was not published.
    Differs(String),
    /// Any other failure. In a directory, finished regions are kept.
    Other(Error),
}

type ConvertResult<T> = std::result::Result<T, ConvertError>;

impl fmt::Display for ConvertError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy(text) | Self::Differs(text) => formatter.write_str(text),
            Self::Other(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for ConvertError {}

impl From<Error> for ConvertError {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl From<ConvertError> for Error {
    fn from(error: ConvertError) -> Self {
        match error {
            ConvertError::Busy(text) => Self::new(ErrorKind::Conflict, text),
            ConvertError::Differs(text) => Self::new(ErrorKind::Corrupt, text),
            ConvertError::Other(error) => error,
        }
    }
}

/// Decides the arrays, their layouts and their regions. Reads no elements, writes nothing.
///
/// # Errors
/// `Exists` if the target's name is taken; those of reading the source's documents;
/// `InvalidArgument` in four cases. The target lies in the source, an array does not fit the memory
/// or has elements that no store can hold, or the options name a missing array or dimension.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use bedform::convert::{ConvertOptions, ConvertSource, ConvertTarget, plan};
/// use bedform::{NewArray, OpenOptions, Store};
/// use bedform_format::ObjectPath;
/// use bedform_storage::MemoryStorage;
///
/// let store = Store::create(Arc::new(MemoryStorage::new()), &Default::default(), OpenOptions::default())?;
/// let description = serde_json::json!({
///     "shape": [400, 90, 180], "dtype": "float32", "chunks": [1, 90, 180], "shards": [50, 90, 180],
/// });
/// let new = NewArray::from_json(&description, &Default::default())?;
/// store.create_array(&ObjectPath::parse("t")?, &new)?;
///
/// let source = ConvertSource::store("maps.zarr", &store)?;
/// let target =
///     ConvertTarget::named(Arc::new(MemoryStorage::new()), "series.zarr", OpenOptions::default())?;
/// let mut options = ConvertOptions::default();
/// options.reads = vec![(vec!["dim_0".to_owned()], 1.0)];
/// let plan = plan(&source, &target, &options)?;
/// assert_eq!(plan.arrays[0].source_chunks, Some(vec![1, 90, 180]));
/// assert!(plan.arrays[0].chunks[0] > 1, "series lie in few chunks");
/// # Ok::<(), bedform::Error>(())
/// ```
pub fn plan(
    source: &ConvertSource,
    target: &ConvertTarget,
    options: &ConvertOptions,
) -> Result<ConvertPlan> {
    target.check_free()?;
    target.check_apart(source)?;
    plan::decide(source, target, options)
}

/// Runs a `plan` that [`plan()`] has made of the same source, target and options. The target
/// appears when all of it is complete.
///
/// # Errors
/// [`ConvertError::Busy`], [`ConvertError::Differs`]; `InvalidArgument` if the work directory holds
/// another conversion, `Exists` if the target's name was taken meanwhile, `Interrupted`, those of
/// reading and writing. In a directory, finished regions are kept, and the same call resumes.
pub fn run(
    plan: &ConvertPlan,
    source: &ConvertSource,
    target: &ConvertTarget,
    options: &ConvertOptions,
    progress: ProgressCallback<'_>,
) -> std::result::Result<Converted, ConvertError> {
    run_as(&ConversionJob { source, plan, progress, exchange: None }, target, options)
}

/// As [`run`], by workers in other processes, each with an open [`RegionWorker`]: `exchange` hands
/// them tasks. A conversion that was begun without workers can be resumed with them, and the
/// reverse.
///
/// # Errors
/// As [`run`], and those of `exchange`; `Unsupported` for a target that has neither path nor URL.
pub fn run_on_workers(
    plan: &ConvertPlan,
    source: &ConvertSource,
    target: &ConvertTarget,
    options: &ConvertOptions,
    progress: ProgressCallback<'_>,
    exchange: TaskExchange<'_>,
) -> std::result::Result<Converted, ConvertError> {
    run_as(&ConversionJob { source, plan, progress, exchange: Some(exchange) }, target, options)
}

fn run_as(
    job: &ConversionJob<'_>,
    target: &ConvertTarget,
    options: &ConvertOptions,
) -> ConvertResult<Converted> {
    // The storage that is written to decides the choice of codecs.
    let mut opening = target.options.clone();
    let profile = options.profile.clone().or(opening.profile.take());
    let profile = profile.unwrap_or_else(|| target.profile().clone());
    let state = job.source.state()?;
    let place = match job.exchange {
        Some(_) => {
            let place = target.for_workers(&state, &profile)?;
            Some(TargetPlace { part: job.source.copied_part().cloned(), ..place })
        }
        None => None,
    };
    opening.profile = Some(profile);
    match &target.place {
        TargetBacking::Whole(storage) => {
            drafts::convert(job, place.as_ref(), storage, &opening, options.verify)
        }
        TargetBacking::Named { parent, name } => {
            let work = WorkDirectory::take(parent, name, target.name())?;
            convert_in(job, place, (work, &state), &opening, options)
        }
    }
}

fn convert_in(
    job: &ConversionJob<'_>,
    mut place: Option<TargetPlace>,
    (mut work, state): (WorkDirectory, &str),
    opening: &OpenOptions,
    options: &ConvertOptions,
) -> ConvertResult<Converted> {
    let mut warnings = job.plan.warnings.clone();
    warnings.extend(work.match_plan(job.plan, job.source, state, options.restart)?);
    if let Some(place) = &mut place {
        place.tree = Some(work.tree()?.as_str().to_owned());
    }
    let storage = work.store()?;
    let store = open_or_create(&work, job, opening)?;
    create_missing(&store, job)?;
    let mut journal = Some(work.journal()?);
    let target_of = |array: &ArrayPlan| store.array(&ObjectPath::parse(&array.name)?);
    let copied = job.copy_all(place.as_ref(), &target_of, &mut journal);
    // Synced after errors, too: finished regions are worth keeping.
    let kept = journal.as_mut().map_or(Ok(()), journal::Journal::sync);
    let tasks::Distributed { resumed_bytes, warnings: of_workers } = copied?;
    kept?;
    let written = store.take_warnings();
    drop((journal, store));
    if options.verify {
        job.compare_store(place.as_ref(), storage, opening)?;
    }
    if place.is_some() || resumed_bytes > 0 {
        // Remains of killed writers are hidden, and cost only their space.
        let _ = work.sweep();
    }
    warnings.extend(work.publish()?);
    warnings.extend(written);
    warnings.extend(of_workers);
    Ok(Converted { resumed_bytes, verified: options.verify, warnings })
}

fn open_or_create(
    work: &WorkDirectory,
    job: &ConversionJob<'_>,
    opening: &OpenOptions,
) -> Result<Store> {
    match Store::open(work.store()?, opening.clone()) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let attributes = job.source.groups()?.remove(&ObjectPath::root()).unwrap_or_default();
            Store::create(work.store()?, &attributes, opening.clone())
        }
        outcome => outcome,
    }
}

/// Creates the missing groups and arrays: all groups at once, then all arrays.
fn create_missing(store: &Store, job: &ConversionJob<'_>) -> Result<()> {
    let there = store.nodes()?;
    let mut groups = job.source.groups()?;
    groups.retain(|path, _| !path.is_root() && !there.contains_key(path));
    if !groups.is_empty() {
        let groups: Vec<_> = groups.into_iter().collect();
        store.commit_drafts_with(&[], &groups)?;
    }
    let mut arrays = Vec::new();
    for array in &job.plan.arrays {
        let path = ObjectPath::parse(&array.name)?;
        if !there.contains_key(&path) {
            arrays.push((path.clone(), job.new_array(store, &path, array)?));
        }
    }
    if arrays.is_empty() { Ok(()) } else { store.create_arrays(&arrays) }
}
