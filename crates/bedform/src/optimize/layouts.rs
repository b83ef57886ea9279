//! Chooses new layouts for the arrays of a Bedform store, and reorganizes the store.
//!
//! Each array with learned or expected reads gets the layout with the least predicted cost, by the
//! same prices as replicas. An array keeps its layout if another one saves less than a tenth of the
//! predicted time, or if its format allows no other. Its codecs stay. [`Reorganization`] copies the
//! store and exchanges the directories.

use std::collections::{BTreeMap, BTreeSet};

use bedform_format::ObjectPath;
use bedform_storage::ProfileOrigin;
use serde::Serialize;

use super::building::drop_of_replaced;
use super::candidates::{ArrayKinds, BestLayout};
use super::reads::{PricedReadKind, ReadsFor, kinds_of};
use super::waking::wake;
use super::{OptimizeOptions, OptimizedSource, PlannedRead, SourcePlace};
use crate::array::Array;
use crate::convert::{
    ArrayLayoutChoice, ConvertOptions, Reorganization, TaskExchange, check_reorganizable,
    keeps_layout, remove_reorganized,
};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::options::ProgressCallback;
use crate::threads::workers::check_cancelled;
use crate::zarr::nodes::NodeKind;

/// The least share of the predicted seconds of an array's reads that a new layout must save.
const GAIN_MIN: f64 = 0.1;

/// The new layouts of a store's arrays, with predicted times. Its JSON has the same names.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LayoutPlan {
    /// The store as the user named it.
    pub source: String,
    /// The profile of the store's storage, by which seconds are predicted.
    pub profile: ProfileOrigin,
    /// Arrays that have reads.
    pub arrays: Vec<PlannedLayout>,
    /// Kinds of reads, with their predicted seconds.
    pub reads: Vec<PlannedRead>,
    /// Present stored bytes of the arrays that change; the other arrays keep their files.
    pub bytes: u64,
    /// Arrays without reads, which keep their layouts.
    pub others: u64,
    /// Remarks for the user.
    pub notes: Vec<String>,
}

/// The present and the planned layout of an array.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlannedLayout {
    /// The path of the array.
    pub array: String,
    /// Names of its axes.
    pub dims: Vec<String>,
    /// Elements along each axis.
    pub shape: Vec<u64>,
    /// The present layout.
    pub now: Layout,
    /// The planned layout.
    pub then: Layout,
    /// True if the layout changes.
    pub is_changed: bool,
    /// The reason why it does not change.
    pub kept: Option<String>,
    /// Present stored bytes.
    pub bytes: u64,
    /// Predicted seconds of all its reads in the present layout.
    pub seconds_now: f64,
    /// Predicted seconds of all its reads in the planned layout.
    pub seconds_then: f64,
}

/// The outcome of [`reorganize`].
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Reorganized {
    /// Paths of the arrays with a new layout.
    pub changed: Vec<String>,
    /// Decoded bytes that an earlier, interrupted run had copied.
    pub resumed_bytes: u64,
    /// Names of removed replicas, of arrays with a new layout.
    pub dropped: Vec<String>,
    /// Remarks for the user.
    pub warnings: Vec<String>,
}

/// Returns the path of a store; an archive is an error.
fn path_of(place: &SourcePlace) -> Result<&std::path::Path> {
    match place {
        SourcePlace::One(path) => Ok(path),
        SourcePlace::Archive { .. } => Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "{}: files are not reorganized: 'bedform convert' makes one store of them",
                place.shown()
            ),
        )),
    }
}

/// Decides which arrays of the store at `place` get which layouts. Reads a few blocks of each array
/// to measure their compression; writes nothing.
///
/// # Errors
/// Those of [`check_reorganizable`]; `NotFound` if no reads were learned and none are given;
/// `InvalidArgument` for reads that no array can have.
///
/// # Examples
///
/// ```
/// use bedform::optimize::{ExpectedRead, OptimizeOptions, SourcePlace, plan_layouts, reorganize};
/// use bedform::{NewArray, OpenOptions, Store};
/// use bedform_format::ObjectPath;
///
/// # let directory = std::env::temp_dir().join(format!("bedform-reorganize-{}", std::process::id()));
/// let path = directory.join("maps.zarr");
/// let store = Store::create_path(&path, &Default::default(), OpenOptions::default())?;
/// let maps = serde_json::json!({
///     "shape": [400, 60, 80], "dtype": "float32", "dims": ["time", "lat", "lon"],
///     "chunks": [1, 60, 80], "shards": [50, 60, 80], "codecs": ["zstd"],
/// });
/// let new = NewArray::from_json(&maps, &Default::default())?;
/// store.create_array(&ObjectPath::parse("t")?, &new)?;
///
/// let mut options = OptimizeOptions::default();
/// options.reads =
///     vec![ExpectedRead { spanned: vec!["time".to_owned()], weight: 1.0, ..Default::default() }];
/// let place = SourcePlace::One(path.clone());
/// let plan = plan_layouts(&place, &options)?;
/// assert!(plan.arrays[0].is_changed);
/// reorganize(&place, &plan, &options, &|_, _| (), None)?;
/// let t = Store::open_path(&path, OpenOptions::default())?.array(&ObjectPath::parse("t")?)?;
/// assert!(t.describe()?["chunks"][0].as_u64() > Some(1), "series lie in few chunks");
/// # std::fs::remove_dir_all(directory).unwrap();
/// # Ok::<(), bedform::Error>(())
/// ```
pub fn plan_layouts(place: &SourcePlace, options: &OptimizeOptions) -> Result<LayoutPlan> {
    let path = path_of(place)?;
    drop(check_reorganizable(path, 0)?);
    let source = OptimizedSource::open(place, options)?;
    let mut notes = Vec::new();
    let kinds = kinds_of(&source, place, options, ReadsFor::Layouts, &mut notes)?;
    let names: BTreeSet<&str> = kinds.iter().map(|kind| kind.array.as_str()).collect();
    let nodes = source.store.nodes()?.into_values();
    let count = nodes.filter(|kind| *kind == NodeKind::Array).count();
    let (mut arrays, mut reads) = (Vec::with_capacity(names.len()), Vec::new());
    for name in &names {
        check_cancelled("the plan was stopped")?;
        let (planned, of_array) = planned_layout(&source, name, &kinds, options)?;
        reads.extend(of_array);
        arrays.push(planned);
    }
    let changed = arrays.iter().filter(|array| array.is_changed);
    let bytes = changed.map(|array| array.bytes).sum();
    Ok(LayoutPlan {
        source: place.shown(),
        profile: source.store.profile().into(),
        arrays,
        reads,
        bytes,
        others: (count - names.len()) as u64,
        notes,
    })
}

/// Plans the layout of an array, and returns it with the array's kinds of reads.
fn planned_layout(
    source: &OptimizedSource,
    name: &str,
    kinds: &[PricedReadKind],
    options: &OptimizeOptions,
) -> Result<(PlannedLayout, Vec<PlannedRead>)> {
    let array = source.store.array(&ObjectPath::parse(name)?)?;
    let now = layout_now(&array)?;
    let of_array = ArrayKinds::new(source, name, kinds)?;
    let BestLayout { layout, seconds } = of_array.best_layout(&now, &options.readers)?;
    let total = |of: fn(&(usize, f64, f64)) -> f64| -> f64 {
        seconds.iter().map(|one| kinds[one.0].reads * of(one)).sum()
    };
    let (seconds_now, seconds_then) = (total(|one| one.1), total(|one| one.2));
    let gain = (seconds_now - seconds_then) / seconds_now.max(f64::MIN_POSITIVE);
    let kept = match keeps_layout(&array)? {
        Some(why) => Some(why.to_owned()),
        None if layout == now => Some("it has the layout that costs least".to_owned()),
        None if gain < GAIN_MIN => {
            let percent = 100.0 * gain.max(0.0);
            Some(format!("the best layout saves {percent:.0} % of the time of its reads"))
        }
        None => None,
    };
    let is_changed = kept.is_none();
    let then = if is_changed { layout } else { now.clone() };
    let reads = seconds.iter().map(|(number, now, then)| {
        kinds[*number].planned(*now, if is_changed { *then } else { *now })
    });
    let planned = PlannedLayout {
        array: name.to_owned(),
        dims: kinds[seconds[0].0].dims.clone(),
        shape: array.shape()?,
        now,
        then,
        is_changed,
        kept,
        bytes: array.stored_bytes()?,
        seconds_now,
        seconds_then: if is_changed { seconds_then } else { seconds_now },
    };
    Ok((planned, reads.collect()))
}

/// Returns the present layout of an array.
fn layout_now(array: &Array) -> Result<Layout> {
    let metadata = array.metadata()?;
    Ok(Layout {
        chunk_shape: metadata.inner_chunk_shape().to_vec(),
        shard_shape: metadata.chunk_shape.clone(),
        order: array.order()?,
    })
}

/// Gives the arrays of the store at `place` the layouts of `planned`, which [`plan_layouts`] made,
/// and exchanges the new store with the old one. `exchange` works as in
/// [`run_on_workers`](crate::convert::run_on_workers). `progress` receives decoded bytes, done and
/// in all, first of copying, then of comparing. After an interruption, the same call resumes.
///
/// # Errors
/// Those of [`Reorganization::new`] and [`Reorganization::run`]; the store is unchanged then.
pub fn reorganize(
    place: &SourcePlace,
    planned: &LayoutPlan,
    options: &OptimizeOptions,
    progress: ProgressCallback<'_>,
    exchange: Option<TaskExchange<'_>>,
) -> Result<Reorganized> {
    let path = path_of(place)?;
    let changed = planned.arrays.iter().filter(|array| array.is_changed);
    let choice = |array: &PlannedLayout| ArrayLayoutChoice {
        chunks: array.then.chunk_shape.clone(),
        shards: Some(array.then.shard_shape.clone()),
        order: array.then.order,
    };
    let layouts: BTreeMap<String, ArrayLayoutChoice> =
        changed.map(|array| (array.array.clone(), choice(array))).collect();
    let mut done = Reorganized::default();
    if layouts.is_empty() {
        remove_reorganized(path)?;
    } else {
        let converting =
            ConvertOptions { memory_bytes: options.memory_bytes, ..ConvertOptions::default() };
        let reorganization = Reorganization::new(path, &layouts, converting)?;
        let converted = reorganization.run(progress, exchange)?;
        (done.resumed_bytes, done.warnings) = (converted.resumed_bytes, converted.warnings);
        done.changed = layouts.into_keys().collect();
    }
    // Unchanged arrays keep their files, but the temporary hard links changed the times of
    // attributes, so their replicas rest.
    if !done.changed.is_empty()
        && let Err(error) = wake(place, options, &|_, _| {})
    {
        done.warnings.push(format!(
            "replicas of the other arrays rest until 'bedform optimize' has compared them: {error}"
        ));
    }
    // A replica that cannot be removed is never read again, and only costs space.
    match drop_of_replaced(place, options) {
        Ok(dropped) => done.dropped = dropped,
        Err(error) => done.warnings.push(format!("old replicas stay: {error}")),
    }
    Ok(done)
}
