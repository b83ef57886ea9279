//! Readahead of an array: the reads that follow a pattern or a list of the program's.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bedform_format::trace::query::{QueryTally, TracedCondition};
use bedform_geometry::Selection;

use super::known::{ArrayAtRead, ArrayRead, ReadOutcome};
use super::redirect::Redirected;
use super::{Array, ArrayBacking};
use crate::error::Result;
use crate::plan::copy::CopyTarget;
use crate::prefetch::{AheadElements, BackgroundReader, FollowedRead, HandleReads, MakeReader};
use crate::run::deliver::Deliver;
use crate::run::execute::execute_noting;
use crate::run::{FollowedReads, ReadStatistics};
use crate::trace::MadeRead;

impl BackgroundReader for Array {
    fn read_ahead(&self, selection: &Selection) -> Option<AheadElements> {
        let known = self.known().ok()?;
        let bytes = usize::try_from(known.geometry(selection).ok()?.result_bytes()).ok()?;
        let mut elements = Vec::new();
        elements.try_reserve_exact(bytes).ok()?;
        let read = known.with_best_plan(selection, |plan, _| {
            let (opened, began) = (Mutex::default(), SystemTime::now());
            let room = elements.spare_capacity_mut().get_mut(..bytes).unwrap_or_default();
            let deliver = Deliver::Buffer(CopyTarget::of_room(room));
            let statistics = execute_noting(plan, deliver, Some(&opened))?;
            let opened = opened.into_inner().unwrap_or_else(PoisonError::into_inner);
            Ok(plan.as_of(opened, began).map(|as_of| (as_of, statistics)))
        });
        let (as_of, statistics) = read.ok()??;
        // SAFETY: the vector has this capacity, and a successful read has filled all of its buffer.
        // Filling it with zeros first took a third of this thread's time for raw chunks.
        unsafe { elements.set_len(bytes) };
        Some(AheadElements { elements, as_of, statistics })
    }
}

impl Array {
    /// Reads these selections ahead, one after the other, as they are used: for a program that
    /// knows its next reads. Meanwhile no pattern is read ahead. Has no effect where prefetching is
    /// off.
    ///
    /// # Errors
    /// `OutOfBounds`, `InvalidArgument` for a selection that does not fit the array; `Unsupported`
    /// for text.
    pub fn foresee(&self, selections: Vec<Selection>) -> Result<()> {
        let known = self.known()?;
        let sized = selections.into_iter().map(|selection| {
            let bytes = known.geometry(&selection)?.result_bytes();
            Ok((selection, bytes))
        });
        let sized = sized.collect::<Result<Vec<_>>>()?;
        if let Some((follows, path)) = known.follows() {
            follows.foresee(path, sized, &|| known.reader());
        }
        Ok(())
    }

    /// True if reads and queries of the array are recorded.
    pub(crate) fn is_recorded(&self) -> bool {
        self.last_known().is_recorded()
    }

    /// Records a finished query by its use of the array, where reads are recorded.
    pub(crate) fn record_query(&self, condition: TracedCondition, tally: &QueryTally) {
        let known = self.last_known();
        if let Some((follows, _)) = known.follows() {
            follows.record_query(known.traced(), condition, tally);
        }
    }
}

impl ArrayAtRead<'_> {
    /// The follower of the array's reads, and the array's path in it.
    fn follows(&self) -> Option<(&HandleReads, &str)> {
        let follows = match self {
            Self::Stored(handle, ..) => handle.store.follows.as_deref(),
            Self::Foreign(variable) => variable.facts().follows.as_deref(),
        };
        let is_followed = !self.layout().is_text();
        follows.filter(|_| is_followed).map(|follows| (follows, self.path()))
    }

    /// The pattern of the array's reads so far, and whether it predicts `selection`.
    pub(super) fn followed_reads(&self, selection: &Selection) -> Option<FollowedReads> {
        let (follows, path) = self.follows()?;
        follows.followed_reads(path, selection)
    }

    /// Records a finished read, where reads are recorded.
    pub(super) fn record(&self, read: ArrayRead<'_>, took: Duration, outcome: &ReadOutcome) {
        if read.pass_bytes.is_some() || !self.is_recorded() {
            return;
        }
        let bytes = match read.deliver {
            Deliver::Buffer(target) => target.len() as u64,
            Deliver::Visitor(_) => {
                self.geometry(read.selection).map_or(0, |plan| plan.result_bytes())
            }
            Deliver::Cache(_) => return,
        };
        let ReadOutcome { was_ahead, ref replicas, .. } = *outcome;
        self.record_made(read.selection, &MadeRead { bytes, took, was_ahead, replicas });
    }

    /// True if reads may be made ahead.
    pub(super) fn reads_ahead(&self) -> bool {
        self.follows().is_some_and(|(follows, _)| follows.reads_ahead())
    }

    /// True if reads are recorded.
    pub(super) fn is_recorded(&self) -> bool {
        self.follows().is_some_and(|(follows, _)| follows.records())
    }

    /// Records a read that has been made, where reads are recorded.
    pub(super) fn record_made(&self, selection: &Selection, made: &MadeRead<'_>) {
        if let Some((follows, _)) = self.follows() {
            follows.record(self.traced(), selection, made);
        }
    }

    /// The array as traces name it: path, shape and item size.
    fn traced(&self) -> (&str, &[u64], u64) {
        let layout = self.layout();
        (self.path(), layout.grid.array_shape(), layout.item_size as u64)
    }

    /// The outcome of a read with these statistics; counts the part of replicas in it.
    pub(super) fn outcome(
        &self,
        statistics: ReadStatistics,
        redirected: Option<&Redirected>,
    ) -> ReadOutcome {
        if let Some(redirected) = redirected {
            redirected.count();
        }
        let named = redirected.filter(|_| self.is_recorded()).map(Redirected::taken_by_name);
        let replicas = named.unwrap_or_default();
        ReadOutcome { statistics, replicas, was_ahead: false, taken: None }
    }

    /// Makes a handle on the array for the threads that read ahead.
    pub(super) fn reader(&self) -> Arc<dyn BackgroundReader> {
        let backing = match self {
            Self::Stored(handle, ..) => ArrayBacking::Stored((*handle).clone()),
            Self::Foreign(variable) => ArrayBacking::Foreign(Arc::clone(variable)),
        };
        Arc::new(Array { backing })
    }

    /// Tells the follower that a read begins; `None` if the read is not followed.
    pub(super) fn followed<'a>(
        &self,
        read: ArrayRead<'_>,
        reader: MakeReader<'a>,
    ) -> Option<FollowedRead<'a>> {
        let bytes = read.deliver.target().filter(|_| read.pass_bytes.is_none())?.len() as u64;
        let (follows, path) = self.follows()?;
        let shape = self.layout().grid.array_shape();
        follows.begin(path, shape, (read.selection, bytes), reader)
    }

    /// Takes the elements that were read ahead, if the read would return the same now. They are
    /// returned in their own buffer if the read takes it, else copied to its destination.
    ///
    /// # Errors
    /// As [`ArrayAtRead::read`].
    pub(super) fn read_before(
        &self,
        read: ArrayRead<'_>,
        followed: Option<&mut FollowedRead<'_>>,
    ) -> Result<Option<ReadOutcome>> {
        let (Some(target), Some(followed)) = (read.deliver.target(), followed) else {
            return Ok(None);
        };
        let Some(ahead) = followed.take()? else { return Ok(None) };
        let found = self.with_best_plan(read.selection, |plan, redirected| {
            let is_still = plan.is_still(&ahead.as_of)?;
            Ok(is_still.then(|| self.outcome(ahead.statistics, redirected)))
        });
        let outcome = match found {
            Ok(Some(outcome)) if ahead.elements.len() == target.len() => outcome,
            found => {
                followed.drop_taken();
                return found.map(|_| None);
            }
        };
        if !read.takes_buffers {
            target.fill(&ahead.elements);
        }
        let taken = read.takes_buffers.then_some(ahead.elements);
        followed.use_taken();
        Ok(Some(ReadOutcome { was_ahead: true, taken, ..outcome }))
    }
}
