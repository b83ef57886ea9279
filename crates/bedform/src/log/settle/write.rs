//! The objects of a round are encoded and written, and their stamps read back.

use std::sync::atomic::{AtomicU64, Ordering};

use super::SettleStatistics;
use super::lay::{Building, BuildingObject};
use crate::array::source::ZarrSource;
use crate::error::{Error, ErrorKind, Result};
use crate::store::Store;
use crate::write::elements::Input;
use crate::write::object::{BuiltObject, ObjectWrite, contained, open_stored};
use crate::write::region::each_object;

/// What was done, counted by all threads.
#[derive(Default)]
pub(super) struct Counts {
    objects: AtomicU64,
    bytes: AtomicU64,
    pub(super) read_bytes: AtomicU64,
    pub(super) rounds: AtomicU64,
    /// Bytes of the plan that need nothing any more.
    pub(super) done: AtomicU64,
}

impl Counts {
    pub(super) fn statistics(&self) -> SettleStatistics {
        SettleStatistics {
            commits: 0,
            objects: self.objects.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            rounds: self.rounds.load(Ordering::Relaxed),
        }
    }

    pub(super) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

/// Who writes, on whatever thread.
pub(super) struct Writer<'a> {
    pub(super) store: &'a Store,
    /// The number of the root whose commits are settled.
    pub(super) root: u64,
    pub(super) counts: &'a Counts,
}

impl Writer<'_> {
    /// Encodes and writes the objects of a round and reads their stamps back.
    ///
    /// # Errors
    /// The first error of any object; `Conflict` if another program has written one.
    pub(super) fn write(
        &self,
        round: Vec<Building<'_>>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<()> {
        let mut objects = Vec::new();
        for building in round {
            for object in building.objects {
                let BuildingObject { coordinates, stored, bytes, chunks, contained, .. } = object;
                let valid = building.plan.valid(contained);
                let is_cut = stored.is_some() && valid.is_some();
                if chunks.is_empty() && !is_cut {
                    Counts::add(&self.counts.done, bytes);
                    continue;
                }
                let built = BuiltObject { stored, chunks: chunks.into() };
                objects.push((building.source, coordinates, valid, built, bytes));
            }
        }
        let act = |number: u64, threads| {
            let at = usize::try_from(number).unwrap_or(usize::MAX);
            let (source, coordinates, valid, built, planned) = &objects[at];
            let written = object(source, coordinates, *valid, threads).run_built(built)?;
            self.check_settled(source, coordinates)?;
            Counts::add(&self.counts.objects, 1);
            Counts::add(&self.counts.bytes, written);
            Counts::add(&self.counts.done, *planned);
            Ok(written)
        };
        each_object(&self.store.shared, objects.len() as u64, act, interrupted).map(drop)
    }

    /// Writes an object that is larger than a round: chunk by chunk, each with what lies over it.
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub(super) fn write_large(
        &self,
        source: &ZarrSource<'_>,
        coordinates: &[u64],
        valid: Option<&[u64]>,
        planned: u64,
    ) -> Result<()> {
        if valid.is_some() || source.is_pending(coordinates)? {
            let threads = self.store.shared.tuning.threads;
            let written = object(source, coordinates, valid, threads).run()?;
            self.check_settled(source, coordinates)?;
            Counts::add(&self.counts.objects, 1);
            Counts::add(&self.counts.bytes, written);
        }
        Counts::add(&self.counts.done, planned);
        Ok(())
    }

    /// Fails unless the stamp of an object says that it contains the commits of the view.
    fn check_settled(&self, source: &ZarrSource<'_>, coordinates: &[u64]) -> Result<()> {
        let stored = open_stored(source, coordinates)?;
        if stored.is_some_and(|(_, places)| contained(&places) >= self.root) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Conflict,
            format!(
                "{} does not contain what was settled into it: another program has written it; \
                 settle again",
                source.object_name_of(coordinates)
            ),
        ))
    }
}

fn object<'b>(
    source: &'b ZarrSource<'b>,
    coordinates: &[u64],
    valid: Option<&'b [u64]>,
    threads: usize,
) -> ObjectWrite<'b> {
    ObjectWrite {
        source,
        plan: None,
        input: Input::Bytes(&[]),
        coordinates: coordinates.to_vec(),
        valid,
        threads,
    }
}
