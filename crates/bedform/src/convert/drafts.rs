//! Conversions to a place in which nothing can be renamed, such as an object store.
//!
//! The arrays are drafts, which no reader sees, until one commit names them all. A conversion that
//! is stopped removes its drafts; it leaves an empty store, and the next run starts from the
//! beginning.

use std::collections::BTreeMap;
use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_storage::Storage;
use serde_json::Map;

use super::copy::ConversionJob;
use super::plan::ArrayPlan;
use super::tasks::TargetPlace;
use super::{ConvertResult, Converted};
use crate::array::Array;
use crate::error::{Error, ErrorKind, Result};
use crate::options::OpenOptions;
use crate::store::Store;

/// Copies all arrays; they become visible when they are complete and, if asked, verified.
pub(super) fn convert(
    job: &ConversionJob<'_>,
    place: Option<&TargetPlace>,
    storage: &Arc<dyn Storage>,
    options: &OpenOptions,
    verify: bool,
) -> ConvertResult<Converted> {
    let store = empty_store(storage, options)?;
    let mut drafts = BTreeMap::new();
    let outcome = fill(job, place, &store, &mut drafts, verify);
    if outcome.is_err() {
        let paths = paths_of(&drafts);
        // A thread of its own is not interrupted with the caller's. Drafts that cannot be removed
        // are invisible, and are removed when their names are used again.
        let discard = || drop(store.discard_drafts(&paths));
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().spawn_scoped(scope, discard);
            drop(thread.map(std::thread::ScopedJoinHandle::join));
        });
    }
    let written = outcome?;
    let mut warnings = job.plan.warnings.clone();
    warnings.extend(store.take_warnings());
    warnings.extend(written);
    Ok(Converted { resumed_bytes: 0, verified: verify, warnings })
}

fn fill(
    job: &ConversionJob<'_>,
    place: Option<&TargetPlace>,
    store: &Store,
    drafts: &mut BTreeMap<String, Array>,
    verify: bool,
) -> ConvertResult<Vec<String>> {
    for array in &job.plan.arrays {
        let path = ObjectPath::parse(&array.name).map_err(Error::from)?;
        let new = job.new_array(store, &path, array)?;
        let draft = store.draft_array(&path, &new)?;
        drafts.insert(array.name.clone(), draft);
    }
    let draft_of = |array: &ArrayPlan| find(drafts, array);
    let copied = job.copy_all(place, &draft_of, &mut None)?;
    if verify {
        job.compare(place, &draft_of)?;
    }
    let paths = paths_of(drafts);
    let groups: Vec<_> = job.source.groups()?.into_iter().collect();
    store.commit_drafts_with(&paths, &groups)?;
    Ok(copied.warnings)
}

/// The paths of drafts, each of which was parsed when the draft was made.
fn paths_of(drafts: &BTreeMap<String, Array>) -> Vec<ObjectPath> {
    drafts.values().filter_map(|draft| ObjectPath::parse(draft.path()).ok()).collect()
}

fn find(drafts: &BTreeMap<String, Array>, array: &ArrayPlan) -> Result<Array> {
    let gone = || Error::new(ErrorKind::NotFound, format!("no draft of {:?}", array.name));
    drafts.get(&array.name).cloned().ok_or_else(gone)
}

fn empty_store(storage: &Arc<dyn Storage>, options: &OpenOptions) -> Result<Store> {
    match Store::open(storage.clone(), options.clone()) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Store::create(storage.clone(), &Map::new(), options.clone())
        }
        outcome => outcome,
    }
}
