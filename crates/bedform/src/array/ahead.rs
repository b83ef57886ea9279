//! Readahead of an array: the reads that follow a pattern or a list of the program's.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bedform_geometry::Selection;

use super::known::ArrayAtRead;
use super::redirect::{Redirected, ReplicaBytes};
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
        let read = known.with_best_plan(selection, |plan| {
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
    pub(super) fn record(
        &self,
        selection: &Selection,
        deliver: Deliver<'_>,
        (took, was_ahead, replicas): (Duration, bool, &ReplicaBytes),
    ) {
        let Some((follows, path)) = self.follows().filter(|(follows, _)| follows.records()) else {
            return;
        };
        let bytes = match deliver {
            Deliver::Buffer(target) => target.len() as u64,
            Deliver::Visitor(_) => self.geometry(selection).map_or(0, |plan| plan.result_bytes()),
            Deliver::Cache(_) => return,
        };
        let layout = self.layout();
        let array = (path, layout.grid.array_shape(), layout.item_size as u64);
        follows.record(array, selection, &MadeRead { bytes, took, was_ahead, replicas });
    }

    /// The bytes that replicas supplied to a read, where reads are recorded.
    pub(super) fn taken(&self, redirected: &Redirected) -> ReplicaBytes {
        match self.follows() {
            Some((follows, _)) if follows.records() => redirected.taken_by_name(),
            _ => ReplicaBytes::new(),
        }
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
        selection: &Selection,
        deliver: Deliver<'_>,
        reader: MakeReader<'a>,
    ) -> Option<FollowedRead<'a>> {
        let bytes = deliver.target()?.len() as u64;
        let (follows, path) = self.follows()?;
        let shape = self.layout().grid.array_shape();
        follows.begin(path, shape, (selection, bytes), reader)
    }

    /// Takes the elements that were read ahead for `selection`, if a read would return the same
    /// now: into `own`, else to the buffer of `deliver`.
    ///
    /// # Errors
    /// As [`ArrayAtRead::read`].
    pub(super) fn read_before(
        &self,
        selection: &Selection,
        deliver: Deliver<'_>,
        followed: Option<&mut FollowedRead<'_>>,
        own: Option<&mut Option<Vec<u8>>>,
    ) -> Result<Option<(ReadStatistics, ReplicaBytes)>> {
        let (Some(target), Some(followed)) = (deliver.target(), followed) else { return Ok(None) };
        let Some(read) = followed.take()? else { return Ok(None) };
        let mut taken = ReplicaBytes::new();
        let is_still = self.with_best_plan_of(selection, |plan, redirected| {
            let is_still = plan.is_still(&read.as_of)?;
            if let Some(redirected) = redirected.filter(|_| is_still) {
                redirected.count();
                taken = self.taken(redirected);
            }
            Ok(is_still)
        });
        if !matches!(is_still, Ok(true)) || read.elements.len() != target.len() {
            followed.drop_taken();
            return is_still.map(|_| None);
        }
        match own {
            Some(own) => *own = Some(read.elements),
            None => target.fill(&read.elements),
        }
        followed.use_taken();
        Ok(Some((read.statistics, taken)))
    }
}
