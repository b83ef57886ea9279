//! Reads that the library of the file's format makes, unless elements that were read ahead, or
//! replicas, are there.

use std::time::{Duration, Instant};

use bedform_geometry::Selection;

use super::Array;
use super::known::{ArrayAtRead, ArrayRead};
use crate::plan::copy::CopyTarget;
use crate::run::ReadStatistics;
use crate::run::deliver::Deliver;
use crate::trace::MadeRead;

/// The uses that the engine has for reads of an array that another library makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostedUses {
    /// They are recorded.
    pub records: bool,
    /// Replicas may supply elements.
    pub has_replicas: bool,
    /// They may be made ahead.
    pub reads_ahead: bool,
}

impl Array {
    /// Returns the uses for reads of the array as of now.
    pub(crate) fn hosted_uses(&self) -> HostedUses {
        let known = self.last_known();
        HostedUses {
            records: known.is_recorded(),
            has_replicas: known.has_replicas(),
            reads_ahead: known.reads_ahead(),
        }
    }

    /// Supplies `selection` in `target`, C order, elements in the machine's byte order, if elements
    /// that were read ahead or replicas have all or part of it; returns true then. Else calls
    /// `read`, which reads the same elements in its own way, and returns false; `target` may have
    /// been written in part before. The read is followed and recorded as those of [`Array::read`]
    /// are.
    ///
    /// No error is returned: `read` finds it as well.
    pub(crate) fn supply_or(
        &self,
        selection: &Selection,
        target: CopyTarget<'_>,
        read: impl FnOnce(),
    ) -> bool {
        self.last_known().supply_or(ArrayRead::new(selection, Deliver::Buffer(target)), read)
    }

    /// Records a read of `selection`, of `bytes` bytes, that another library made and that took
    /// `took`, where reads are recorded.
    pub(crate) fn record_elsewhere(&self, selection: &Selection, bytes: u64, took: Duration) {
        let made = MadeRead { bytes, took, was_ahead: false, replicas: &[] };
        self.last_known().record_made(selection, &made);
    }
}

impl ArrayAtRead<'_> {
    fn supply_or(&self, read: ArrayRead<'_>, elsewhere: impl FnOnce()) -> bool {
        let (began, reader) = (Instant::now(), || self.reader());
        let mut followed = self.followed(read, &reader);
        let ahead = self.read_before(read, followed.as_mut()).ok().flatten();
        let supplied = ahead.or_else(|| self.read_by_replicas(read).ok().flatten());
        let is_supplied = supplied.is_some();
        let outcome = supplied.unwrap_or_else(|| {
            let began = Instant::now();
            elsewhere();
            if let Some(followed) = followed {
                followed.was_made(began.elapsed(), false);
            }
            self.outcome(ReadStatistics::default(), None)
        });
        self.record(read, began.elapsed(), &outcome);
        is_supplied
    }
}
