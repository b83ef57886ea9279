//! Arrays that a session creates.
//!
//! The members know them at once. Their documents are written in the background while the members
//! write data, and become visible with the next commit.

use crate::log::opened::OpenedStore;
use crate::zarr::new_array::NewArray;
use crate::zarr::together::NewArrayBatch;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::Builder;

use bedform_format::metadata::LogState;
use bedform_format::{DataType, ObjectPath};
use bedform_storage::{Version, stopped_by};
use serde_json::{Value, json};

use super::alike::{GivenArrays, are_alike};
use super::arrays::SessionArray;
use super::{Session, SessionMember, holds_text};
use crate::comm::decide;
use crate::error::{Error, ErrorKind, Result};
use crate::log::coordinator::{Coordinator, check_place, first_root};
use crate::log::place::LogPlace;
use crate::log::stream::WriteTarget;
use crate::options::OpenOptions;
use crate::threads::workers;

/// Number of arrays that are written under one hold of the store's lock, which other writers need,
/// too.
const LOCKED_TOGETHER: usize = 64;

/// Arrays whose documents are being written.
#[derive(Debug)]
pub(in crate::log) struct ArrayCreation {
    store: Arc<OpenedStore>,
    new: Arc<NewArrayBatch>,
    /// The task that returns the versions of the documents; `None` once they were taken.
    work: Option<CreationTask>,
}

/// The channel with the result of a thread, and the flag that ends the thread's waits.
type CreationTask = (Receiver<Result<Vec<Version>>>, Arc<AtomicBool>);

impl ArrayCreation {
    fn begin(store: &Arc<OpenedStore>, log: &LogPlace, new: NewArrayBatch) -> Result<Self> {
        let (store, new) = (store.clone(), Arc::new(new));
        let (stop, (written, answer)) = (Arc::<AtomicBool>::default(), sync_channel(1));
        let write = {
            let (store, log, new) = (store.clone(), log.clone(), new.clone());
            // The receiver waits for it, unless the program has ended that wait.
            move || drop(written.send(write_all(&store, &log, &new)))
        };
        if store.options.threads == Some(1) {
            write();
        } else {
            let stopped = stop.clone();
            let thread = Builder::new().name("bedform-create".to_owned());
            let started = thread.spawn(move || stopped_by(&stopped, write));
            started.map_err(|error| Error::no_thread(&error))?;
        }
        Ok(Self { store, new, work: Some((answer, stop)) })
    }

    /// Waits until all documents are written, and returns their versions.
    fn written(&mut self) -> Result<Vec<Version>> {
        let ended = || Error::new(ErrorKind::Poisoned, "the arrays could not be created");
        let (answer, stop) = self.work.take().ok_or_else(ended)?;
        let written =
            workers::answer(&answer).inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
        written.unwrap_or_else(|| Err(ended()))
    }
}

impl Drop for ArrayCreation {
    fn drop(&mut self) {
        if self.work.is_none() {
            return;
        }
        if let Ok(versions) = self.written()
            && let Ok(_lock) = self.store.lock(&ObjectPath::root())
        {
            self.new.discard(&self.store, &versions);
        }
    }
}

/// Writes the documents of all arrays durably, and prepares the log for the commit.
fn write_all(
    store: &Arc<OpenedStore>,
    log: &LogPlace,
    new: &NewArrayBatch,
) -> Result<Vec<Version>> {
    let mut versions = Vec::with_capacity(new.len());
    for start in (0..new.len()).step_by(LOCKED_TOGETHER) {
        let _lock = store.lock(&ObjectPath::root())?;
        let end = new.len().min(start + LOCKED_TOGETHER);
        versions.extend(new.write(store, start..end)?);
    }
    new.sync(store)?;
    prepare_log_early(store, log)?;
    Ok(versions)
}

impl Session {
    /// Returns the options with which the session's store was opened.
    pub fn options(&self) -> &OpenOptions {
        &self.member.store.options
    }

    /// Creates arrays. All members can write to them at once. They become visible with the next
    /// commit, all or none, before the data that are written to them. Collective; members give the
    /// same arrays, and members other than the coordinator may give none. Faster than
    /// [`Store::create_arrays`](crate::Store::create_arrays): documents are written while the
    /// members write.
    ///
    /// # Errors
    /// As [`Store::create_arrays`](crate::Store::create_arrays); `Unsupported` for arrays of text;
    /// `InvalidArgument` if members give different arrays: nothing is created then. Errors of
    /// writing documents, and `Conflict` with another writer that creates one of the arrays
    /// meanwhile, are errors of the commit.
    pub fn create_arrays(&mut self, arrays: &[(ObjectPath, NewArray)]) -> Result<()> {
        self.create_arrays_given(Ok(arrays))
    }

    /// As [`Session::create_arrays`]. If the coordinator passes an error, that is the error of all
    /// members.
    ///
    /// # Errors
    /// As [`Session::create_arrays`]; that of the coordinator.
    pub fn create_arrays_given(
        &mut self,
        arrays: Result<impl AsRef<[(ObjectPath, NewArray)]>>,
    ) -> Result<()> {
        self.member.check_process()?;
        self.enter("create_arrays()");
        let members = self.member.group.clone();
        let given = GivenArrays::of(&members, arrays.as_ref().map_or(&[], AsRef::as_ref));
        let sound = self.check_sound().map(|()| given.digest(&members));
        let told = decide(&*members, sound, |digests| {
            let arrays = arrays?;
            match are_alike(&digests) {
                true => {
                    self.arrays.check_not_created(arrays.as_ref())?;
                    self.as_coordinator()?.begin_creation(arrays.as_ref())
                }
                false => Ok(Vec::new()),
            }
        })?;
        if told.is_empty() {
            return Err(given.explain(&members));
        }
        self.member.epoch += 1;
        for one in serde_json::from_slice::<Vec<Value>>(&told).map_err(|_| erred())? {
            let (path, data_type, target) = parse(&one).ok_or_else(erred)?;
            self.arrays
                .add_created(path, SessionArray::new(target, data_type, self.member.epoch, true));
        }
        Ok(())
    }
}

impl Coordinator<'_> {
    /// Starts to write the arrays, and returns their description for all members.
    fn begin_creation(&mut self, arrays: &[(ObjectPath, NewArray)]) -> Result<Vec<u8>> {
        let SessionMember { store, log, .. } = &*self.member;
        let mut known = Vec::with_capacity(arrays.len());
        let new = {
            let _lock = store.lock(&ObjectPath::root())?;
            NewArrayBatch::new(store, arrays)?
        };
        for ((path, array), key) in arrays.iter().zip(new.keys()) {
            if array.data_type.item_size().is_none() {
                return Err(holds_text(path));
            }
            let data_type = format!("={}", array.data_type.numpy());
            known.push(json!([path.as_str(), key, data_type, array.shape]));
        }
        self.state.creations.push(ArrayCreation::begin(store, log, new)?);
        Ok(Value::Array(known).to_string().into_bytes())
    }

    /// Makes the arrays visible that the session has created. `visible` gets the paths of those
    /// that are, even if others fail.
    pub(in crate::log) fn commit_creations(&mut self, visible: &mut Vec<ObjectPath>) -> Result<()> {
        let SessionMember { store, log, .. } = &*self.member;
        for mut creation in std::mem::take(&mut self.state.creations) {
            let versions = creation.written()?;
            let _lock = store.lock(&ObjectPath::root())?;
            let outcome = creation
                .new
                .check_untouched(store, &versions)
                .and_then(|()| prepare_log(store, log, 0))
                .and_then(|state| creation.new.commit(store, state));
            if outcome.is_err() {
                creation.new.discard(store, &versions);
                return outcome;
            }
            visible.extend(creation.new.paths().cloned());
        }
        Ok(())
    }
}

/// Prepares the log while members write, so that the first commit has less to do.
pub(in crate::log) fn prepare_log_early(store: &OpenedStore, log: &LogPlace) -> Result<()> {
    let _lock = store.lock(&ObjectPath::root())?;
    // A log without commits counts as none. An error here occurs again in the commit, which reports
    // it.
    let _ = prepare_log(store, log, 0);
    Ok(())
}

/// Prepares the log for its first commit. Returns the log state for the store's document, with at
/// least `settled` settled commits; `None` if the document already says so. The caller holds the
/// store's lock.
pub(in crate::log) fn prepare_log(
    store: &OpenedStore,
    log: &LogPlace,
    settled: u64,
) -> Result<Option<LogState>> {
    let (newest, state) = store.newest_root(log)?;
    check_place(store, log, newest.as_deref(), state)?;
    if state.pending && state.settled >= settled {
        return Ok(None);
    }
    let first = newest.is_none().then(|| first_root(log, state.settled));
    log.prepare(first.as_ref())?;
    Ok(Some(LogState { pending: true, kept: false, settled: settled.max(state.settled) }))
}

fn parse(one: &Value) -> Option<(ObjectPath, DataType, WriteTarget)> {
    let (path, key, data_type, shape): (String, [u8; 16], String, Vec<u64>) =
        serde_json::from_value(one.clone()).ok()?;
    let (data_type, _) = DataType::parse_numpy(&data_type)?;
    let target = WriteTarget::new(key, data_type.item_size()?, shape);
    Some((ObjectPath::parse(&path).ok()?, data_type, target))
}

fn erred() -> Error {
    Error::invalid("the members' coordinator erred")
}
