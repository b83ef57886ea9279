//! Checks of the stored objects of an array: their tails, and every chunk.

use std::collections::BTreeSet;

use bedform_codec::Scratch;
use bedform_geometry::linearize;

use super::Array;
use super::verified::verify_arrays;
use crate::error::{ErrorKind, Result};
use crate::log::array::ArrayHandle;
use crate::log::check::CheckedArray;
use crate::log::snapshot::PinnedArray;
use crate::source::Moment;
use crate::threads::workers::check_cancelled;
use crate::write::sink::{Sink, StoredUnit};
use crate::zarr::state::ArrayState;

/// Attempts to check an object while others settle.
const ATTEMPTS_MAX: usize = 100;

impl Array {
    /// Returns the number of stored objects (shards, or chunks of an array without them), and the
    /// number in the array's shape. A missing object was never written, has all its data in the
    /// log, or is lost: nothing in plain Zarr tells which.
    ///
    /// # Errors
    /// Those of storage.
    pub fn stored_objects(&self) -> Result<(u64, u64)> {
        let checked = self.stored()?.checked()?;
        let room = checked.grid.iter().fold(1, |all, count| u64::saturating_mul(all, *count));
        Ok((checked.stored.len() as u64, room))
    }
}

impl Array {
    /// Reads every stored object of the array, checks its tail and decodes every chunk. With a log,
    /// objects that must exist are looked for, and the array's data in the log are checked, as
    /// [`Store::verify`](crate::Store::verify) does. Returns one line for each damage. Memory is
    /// bounded.
    ///
    /// # Errors
    /// `Interrupted`, and those of storage that are not about one object.
    pub fn verify(&self) -> Result<Vec<String>> {
        let handle = self.stored()?;
        Ok(verify_arrays(&handle.store, &[handle], false, &|_, _| ())?.problems)
    }
}

impl ArrayHandle {
    /// The facts that the check of the log needs, with the list of existing objects.
    pub(crate) fn checked(&self) -> Result<CheckedArray> {
        let state = self.state()?;
        let pinned = self.pinned(&state)?;
        let source = pinned.source;
        let grid = source.object_grid();
        let existing = source.existing_or_asked()?;
        let inside = |place: &&Vec<u64>| place.iter().zip(&grid).all(|(at, count)| at < count);
        let stored = existing.iter().filter(inside).map(|at| linearize(at, &grid)).collect();
        Ok(CheckedArray {
            key: pinned.moment.key(),
            name: self.path.to_string(),
            object_shape: state.metadata.chunk_shape.clone(),
            stored,
            logged: BTreeSet::new(),
            grid,
        })
    }

    /// Checks every object that exists, or must exist; calls `add` with a line for each damage.
    ///
    /// # Errors
    /// As [`Array::verify`].
    pub(crate) fn verify_objects(&self, add: &mut dyn FnMut(String)) -> Result<()> {
        let state = self.state()?;
        let mut pinned = self.pinned(&state)?;
        let mut scratch = Scratch::default();
        let expected = |pinned: &PinnedArray<'_>| pinned.expected();
        let all = match self.in_newest(&state, &mut pinned, &expected) {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                add(error.to_string());
                pinned.source.existing_or_asked()?.into_iter().collect()
            }
            all => all?,
        };
        for at in all {
            check_cancelled(STOPPED)?;
            let lines = self.verify_object(&state, &mut pinned, &at, &mut scratch)?;
            lines.into_iter().for_each(&mut *add);
        }
        Ok(())
    }

    /// Returns a line for each damage of one object, as of one moment.
    ///
    /// # Errors
    /// `SnapshotMoved` if the object no longer belongs to the snapshot.
    fn verify_object<'a>(
        &'a self,
        state: &'a ArrayState,
        pinned: &mut PinnedArray<'a>,
        at: &[u64],
        scratch: &mut Scratch,
    ) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        for _ in 0..ATTEMPTS_MAX {
            lines.clear();
            match self.in_newest(state, pinned, &|pinned| open_checked(pinned, at)) {
                Ok(Some(unit)) => {
                    let name = pinned.source.object_name_of(at);
                    let mut add = |line| lines.push(line);
                    verify_chunks(state, &name, &unit, scratch, &mut add);
                    // Damage counts only if the object was not replaced meanwhile; otherwise the
                    // new one is checked.
                    if lines.is_empty() || unit.object.is_current().unwrap_or(true) {
                        break;
                    }
                }
                Ok(None) => break,
                Err(error)
                    if error.kind() == ErrorKind::SnapshotMoved && self.store.held.is_some() =>
                {
                    return Err(self.store.moved_on(error));
                }
                Err(error) => {
                    lines.push(error.to_string());
                    break;
                }
            }
        }
        Ok(lines)
    }

    /// Calls `act`, again with the newest snapshot where the data have moved on.
    fn in_newest<'a, T>(
        &'a self,
        state: &'a ArrayState,
        pinned: &mut PinnedArray<'a>,
        act: &dyn Fn(&PinnedArray<'a>) -> Result<T>,
    ) -> Result<T> {
        for _ in 0..ATTEMPTS_MAX {
            match act(pinned) {
                Err(error)
                    if matches!(error.kind(), ErrorKind::SnapshotMoved | ErrorKind::Conflict) =>
                {
                    let before = pinned.moment.number();
                    self.store.refresh()?;
                    *pinned = self.pinned(state)?;
                    if pinned.moment.number() == before {
                        return act(pinned);
                    }
                }
                outcome => return outcome,
            }
        }
        act(pinned)
    }
}

/// The message of a cancelled check.
pub(crate) const STOPPED: &str = "the check was stopped";

/// Opens the object at `coordinates` and locates its chunks; `None` if it does not exist and need
/// not.
fn open_checked(pinned: &PinnedArray<'_>, coordinates: &[u64]) -> Result<Option<StoredUnit>> {
    let sink = pinned.sink(None);
    let stored = sink.open_unit(coordinates)?;
    let contained = stored.as_ref().map_or(0, |stored| stored.contained);
    pinned.moment.check(coordinates, contained, &|| sink.unit_name(coordinates))?;
    Ok(stored)
}

/// Decodes every chunk of an object; calls `add` with a line for each damage.
fn verify_chunks(
    state: &ArrayState,
    name: &str,
    unit: &StoredUnit,
    scratch: &mut Scratch,
    add: &mut dyn FnMut(String),
) {
    for position in 0..state.layout.per_object.iter().product() {
        let (extent, skip) = match unit.locations.locate(position) {
            Ok(Some(location)) => (location.extent, location.skip),
            Ok(None) => continue,
            Err(problem) => {
                add(format!("{name}: {problem}"));
                continue;
            }
        };
        let mut check = || {
            if extent.length > state.layout.codec.encoded_bytes_max() {
                return Err("larger than a chunk can be".to_owned());
            }
            let mut encoded = vec![0; usize::try_from(extent.length).unwrap_or(usize::MAX)];
            let read = unit.object.read(extent.offset, &mut encoded);
            read.map_err(|error| error.to_string())?;
            let decoded = state.layout.codec.decode(&encoded, skip, scratch);
            decoded.map(drop).map_err(|error| error.to_string())
        };
        if let Err(problem) = check() {
            let (start, end) = (extent.offset, extent.end());
            add(format!("{name}, chunk {position} (bytes {start} to {end}): {problem}"));
        }
    }
}
