//! Tasks for workers in other processes, such as those of a cluster, and the loop that hands them
//! out.
//!
//! Plan, journal and publication stay in the converting process. A worker gets a [`TargetPlace`]
//! and [`RegionTask`]s, plain values, and answers when the shards of a task are durable; only then
//! does the journal name its regions. So the death of a worker costs its tasks, and nothing else:
//!
//! - A task may be done twice, even by two workers at the same time, if one was taken for dead.
//!   Regions are whole shards, each published atomically, and both copies are of the source in one
//!   state.
//! - A worker of a conversion that has ended writes into a store under a name that nobody publishes
//!   (`work`). In an object store it checks the key of its draft before each region. A shard that
//!   it is writing by then has the stamp of its draft: in another draft of the same name it is an
//!   error, never data.

use std::collections::HashMap;

use bedform_format::metadata;
use bedform_geometry::Region;
use serde::{Deserialize, Serialize};

use super::copy::ConversionJob;
use super::journal::{Journal, mark};
use super::plan::ArrayPlan;
use crate::array::Array;
use crate::error::{Error, Result};
use crate::replica::ReplicaElements;

/// The divisor of all bytes: small regions are gathered until a task has this part of them...
const TASK_PART: u64 = 64;
/// ...but at least so many bytes, because a task costs some milliseconds...
const TASK_BYTES_MIN: u64 = 1 << 20;
/// ...and at most so many bytes, which the death of a worker costs.
const TASK_BYTES_MAX: u64 = 32 << 20;
/// The most regions of a task: each is copied separately.
const TASK_REGIONS_MAX: usize = 64;

/// The place of the growing store for workers, and the state that they check before writing to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetPlace {
    /// The directory that holds the target, or the URL of the store.
    pub place: String,
    /// The path of the store in the directory; `None` at a URL, where its arrays are drafts.
    pub tree: Option<String>,
    /// The state of the source when the conversion began.
    pub source_state: String,
    /// The document of the profile by which codecs are chosen.
    pub profile: String,
    /// The path and the part of the one array that is copied, for a replica; `None` for all arrays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<(String, ReplicaElements)>,
}

/// Some regions of one array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayRegions {
    /// The array's path.
    pub array: String,
    /// The random key of the target's array, in hexadecimal digits.
    pub key: String,
    /// Elements along each axis of the array.
    pub shape: Vec<u64>,
    /// Start and shape of each region.
    pub regions: Vec<(Vec<u64>, Vec<u64>)>,
}

/// Regions that a worker copies, or compares, in one go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionTask {
    /// The number by which the worker answers.
    pub number: u64,
    /// Whether the worker reads both sides and compares them, instead of copying.
    pub is_comparison: bool,
    /// The regions, in the order of work.
    pub arrays: Vec<ArrayRegions>,
}

/// The result of one exchange with workers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExchangedTasks {
    /// The numbers of finished tasks, whose regions are durable.
    pub finished: Vec<u64>,
    /// Messages for the user.
    pub warnings: Vec<String>,
    /// The number of tasks that the workers currently take at a time.
    pub tasks_at_once: usize,
}

/// Hands tasks to workers. Waits until at least one task is finished, if any are with the workers.
/// An error ends the conversion; finished regions are kept.
pub type TaskExchange<'a> = &'a dyn Fn(&TargetPlace, &[RegionTask]) -> Result<ExchangedTasks>;

/// Workers, and the target's place for them.
#[derive(Clone, Copy)]
pub(super) struct Workers<'a> {
    pub(super) place: &'a TargetPlace,
    pub(super) exchange: TaskExchange<'a>,
}

/// A task under construction, and the marks of its regions.
#[derive(Default)]
struct TaskBuilder {
    arrays: Vec<ArrayRegions>,
    marks: Vec<(String, u64)>,
    bytes: u64,
}

impl TaskBuilder {
    fn add(&mut self, plan: &ArrayPlan, key: &[u8; 16], region: &Region, mark: (String, u64)) {
        if self.arrays.last().is_none_or(|last| last.array != plan.name) {
            let (array, shape) = (plan.name.clone(), plan.shape.clone());
            let (key, regions) = (metadata::hex(key), Vec::new());
            self.arrays.push(ArrayRegions { array, key, shape, regions });
        }
        if let Some(last) = self.arrays.last_mut() {
            last.regions.push((region.start().to_vec(), region.shape().to_vec()));
        }
        self.bytes = self.bytes.saturating_add(mark.1);
        self.marks.push(mark);
    }

    /// True once the task has `bytes`, or the most regions.
    fn is_full(&self, bytes: u64) -> bool {
        self.bytes >= bytes || self.marks.len() >= TASK_REGIONS_MAX
    }
}

/// Tasks that the workers have, or will get next.
struct TasksInFlight<'a> {
    workers: Workers<'a>,
    is_comparison: bool,
    count: u64,
    new: Vec<RegionTask>,
    marks: HashMap<u64, Vec<(String, u64)>>,
    tasks_at_once: usize,
    warnings: Vec<String>,
}

/// Called with the mark and the bytes of each finished region.
type OnRegionDone<'a> = &'a mut dyn FnMut(&str, u64) -> Result<()>;

impl<'a> TasksInFlight<'a> {
    /// Asks how many tasks the workers take.
    fn begin(workers: Workers<'a>, is_comparison: bool) -> Result<Self> {
        let ExchangedTasks { tasks_at_once, .. } = (workers.exchange)(workers.place, &[])?;
        let (new, marks, warnings) = (Vec::new(), HashMap::new(), Vec::new());
        Ok(Self { workers, is_comparison, count: 0, new, marks, tasks_at_once, warnings })
    }

    /// Makes a task of the gathered regions. Once the workers' capacity is reached, hands the tasks
    /// over and waits for one to finish.
    fn send(&mut self, gathered: TaskBuilder, done: OnRegionDone<'_>) -> Result<()> {
        let TaskBuilder { arrays, marks, .. } = gathered;
        if arrays.is_empty() {
            return Ok(());
        }
        let (number, is_comparison) = (self.count, self.is_comparison);
        self.new.push(RegionTask { number, is_comparison, arrays });
        self.marks.insert(number, marks);
        self.count += 1;
        while self.marks.len() >= self.tasks_at_once.max(1) {
            self.exchange(done)?;
        }
        Ok(())
    }

    fn exchange(&mut self, done: OnRegionDone<'_>) -> Result<()> {
        let new = std::mem::take(&mut self.new);
        let exchanged = (self.workers.exchange)(self.workers.place, &new)?;
        self.tasks_at_once = exchanged.tasks_at_once;
        for warning in exchanged.warnings {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
        for number in exchanged.finished {
            let marks = self.marks.remove(&number);
            let unknown = || Error::invalid(format!("workers have no task {number}"));
            for (mark, bytes) in marks.ok_or_else(unknown)? {
                done(&mark, bytes)?;
            }
        }
        Ok(())
    }

    /// Waits for all tasks; returns the workers' warnings.
    fn end(mut self, done: OnRegionDone<'_>) -> Result<Vec<String>> {
        while !self.marks.is_empty() {
            self.exchange(done)?;
        }
        Ok(self.warnings)
    }
}

/// The result of a copy by workers.
pub(super) struct Distributed {
    /// Bytes that an earlier run had copied.
    pub(super) resumed_bytes: u64,
    /// Messages for the user.
    pub(super) warnings: Vec<String>,
}

impl ConversionJob<'_> {
    /// Copies as [`ConversionJob::copy`] does, or compares as [`ConversionJob::compare`] does, by workers.
    ///
    /// # Errors
    /// Those of the exchange; those of storage. Finished regions are kept.
    pub(super) fn distribute(
        &self,
        workers: Workers<'_>,
        is_comparison: bool,
        target_of: &dyn Fn(&ArrayPlan) -> Result<Array>,
        journal: &mut Option<Journal>,
    ) -> Result<Distributed> {
        let (mut finished, mut resumed_bytes) = (0_u64, 0_u64);
        let mut in_flight = TasksInFlight::begin(workers, is_comparison)?;
        let mut gathered = TaskBuilder::default();
        let task_bytes = (self.plan.bytes() / TASK_PART).clamp(TASK_BYTES_MIN, TASK_BYTES_MAX);
        for array in &self.plan.arrays {
            self.open(array)?;
            let key = key_of(&target_of(array)?)?;
            for region in array.regions() {
                let region = region?;
                let bytes = array.bytes_of(region.shape());
                let mark = mark(&array.name, &key, region.start());
                if journal.as_ref().is_some_and(|journal| journal.is_done(&mark)) {
                    resumed_bytes = resumed_bytes.saturating_add(bytes);
                    self.note(&mut None, &mut finished, &mark, bytes)?;
                    continue;
                }
                gathered.add(array, &key, &region, (mark, bytes));
                if gathered.is_full(task_bytes) {
                    let mut done =
                        |mark: &str, bytes| self.note(journal, &mut finished, mark, bytes);
                    in_flight.send(std::mem::take(&mut gathered), &mut done)?;
                }
            }
        }
        let mut done = |mark: &str, bytes| self.note(journal, &mut finished, mark, bytes);
        in_flight.send(gathered, &mut done)?;
        let warnings = in_flight.end(&mut done)?;
        Ok(Distributed { resumed_bytes, warnings })
    }

    /// Counts a finished region, and marks it in the journal if there is one.
    fn note(
        &self,
        journal: &mut Option<Journal>,
        finished: &mut u64,
        mark: &str,
        bytes: u64,
    ) -> Result<()> {
        if let Some(journal) = journal.as_mut() {
            journal.note(mark, bytes)?;
        }
        *finished = finished.saturating_add(bytes);
        self.tell(*finished)
    }
}

/// The random key of an array; zeros for an array without one.
pub(super) fn key_of(array: &Array) -> Result<[u8; 16]> {
    Ok(array.metadata()?.identity.map_or([0; 16], |identity| identity.array))
}
