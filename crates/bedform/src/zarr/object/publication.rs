//! The publication of a written object in one step, on condition that the stored one is unchanged.

use bedform_format::ObjectPath;
use bedform_storage::{Condition, Durability, ObjectWriter};

use super::{ExistingObject, ObjectWrite, is_lost_race, moved_if_gone};
use crate::error::{Error, Result};
use crate::threads::budget::MemoryReservation;
use crate::threads::check::RunningCheck;
use crate::write::sink::{BuiltUnit, StagedUnit, StoredUnit};
use crate::zarr::kept::keep;

/// An object that is written and not yet published.
pub(super) struct UnpublishedObject<'a> {
    /// `None` for an object without chunks that may be absent.
    pub(super) writer: Option<Box<dyn ObjectWriter + 'a>>,
    pub(super) path: ObjectPath,
    /// Memory of the chunks in an upload: held until the server has received the object.
    pub(super) rooms: Vec<MemoryReservation>,
}

impl UnpublishedObject<'_> {
    /// As [`StagedUnit::hand_over`].
    fn hand_over(&mut self) -> Result<()> {
        Ok(self.writer.as_mut().map_or(Ok(()), |writer| writer.hand_over())?)
    }
}

/// An object of built chunks, written and not yet published.
pub(super) struct StagedObject<'a> {
    pub(super) write: ObjectWrite<'a>,
    pub(super) built: &'a BuiltUnit,
    pub(super) staged: UnpublishedObject<'a>,
}

impl StagedUnit for StagedObject<'_> {
    fn hand_over(&mut self) -> Result<()> {
        self.staged.hand_over()
    }

    fn publish(self: Box<Self>) -> Result<u64> {
        let Self { write, built, staged } = *self;
        match write.put(built.stored.as_ref(), false, staged) {
            // `valid` was computed for the earlier object. The object stored now may contain
            // commits that made the array larger; its cover supplies the elements that do not
            // count.
            Err(error) if is_lost_race(&error) => ObjectWrite { valid: None, ..write }.run(),
            outcome => outcome,
        }
    }
}

/// An object of new, merged and kept chunks, written and not yet published.
pub(super) struct StagedChange<'a> {
    pub(super) write: ObjectWrite<'a>,
    /// The stored object that was merged.
    pub(super) stored: Option<StoredUnit>,
    pub(super) alone: bool,
    pub(super) staged: UnpublishedObject<'a>,
}

impl StagedUnit for StagedChange<'_> {
    fn hand_over(&mut self) -> Result<()> {
        self.staged.hand_over()
    }

    fn publish(self: Box<Self>) -> Result<u64> {
        let Self { write, stored, alone, staged } = *self;
        match write.put(stored.as_ref(), alone, staged) {
            Err(error) if is_lost_race(&error) => write.run(),
            outcome => outcome,
        }
    }
}

impl ObjectWrite<'_> {
    /// Publishes a written object under its name; returns its bytes.
    pub(super) fn put(
        &self,
        stored: Option<&StoredUnit>,
        alone: bool,
        staged: UnpublishedObject<'_>,
    ) -> Result<u64> {
        let UnpublishedObject { writer, path, rooms } = staged;
        let Some(mut writer) = writer else { return self.leave_absent(&path).map(|()| 0) };
        let bytes = writer.position();
        let condition = match (alone, stored) {
            (true, _) => Condition::None,
            (false, Some(stored)) => Condition::Unchanged(&*stored.object),
            (false, None) => Condition::Absent,
        };
        self.wait_for_check()?;
        if let Some(suffix) = self.kept_beside {
            let stored = stored.map(|stored| stored.object.version());
            // Without the kept object, snapshots report that the data have moved on.
            let _ = keep(self.source, &self.coordinates, stored, (&mut *writer, suffix));
        }
        if stored.is_none() {
            // For a stored object its stamp has been checked already.
            self.source.check_is_there()?;
        }
        writer.publish(condition).map_err(moved_if_gone)?;
        drop(rooms);
        Ok(bytes)
    }

    /// True if an object without chunks may be absent. With a log it may not: its stamp says which
    /// commits it contains. It also may not where it replaces an object: a snapshot takes absence
    /// to mean that the object was absent at the snapshot's moment.
    pub(super) fn may_be_absent(&self, existing: &ExistingObject<'_>) -> Result<bool> {
        if !self.moment.is_settled() {
            return Ok(false);
        }
        if !existing.alone {
            return Ok(existing.stored.is_none());
        }
        match self.source.hierarchy.storage.stat(&self.source.object_path(&self.coordinates)?) {
            Err(error) if error.is_not_found() => Ok(true),
            there => there.map(|_| false).map_err(Error::from),
        }
    }

    /// True if a chunk of fill values must be written: the object is one chunk, and lies on a
    /// server or may not be absent.
    pub(super) fn keeps_fill(&self, existing: &ExistingObject<'_>) -> Result<bool> {
        let is_chunk = self.state().shard().is_none();
        Ok(is_chunk
            && (self.source.hierarchy.storage.is_remote() || !self.may_be_absent(existing)?))
    }

    fn wait_for_check(&self) -> Result<()> {
        self.check.map_or(Ok(()), RunningCheck::wait)
    }

    /// Leaves an object without chunks absent, durably.
    fn leave_absent(&self, path: &ObjectPath) -> Result<()> {
        self.wait_for_check()?;
        let hierarchy = self.source.hierarchy;
        // The writer that deleted it may have crashed before it synced the directory.
        if hierarchy.options.durability == Durability::Disk {
            hierarchy.storage.sync(&path.parent())?;
        }
        Ok(())
    }
}
