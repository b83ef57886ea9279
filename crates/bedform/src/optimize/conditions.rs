//! The states of a source's replicas, from the versions of their own objects and of the source's.

use std::fmt;

use bedform_format::{DataType, Limits, ObjectPath};
use bedform_geometry::Selection;
use bedform_storage::Mode;
use serde::Serialize;

use super::{OptimizeOptions, OptimizedSource, SourcePlace};
use crate::array::{Array, Standings};
use crate::error::{Error, ErrorKind, Result};
use crate::opening::storage_in_sidecar;
use crate::options::OpenOptions;
use crate::replica::{PLACES, Replica, ReplicaElements, Standing, replicas_in};
use crate::sidecar::{REPLICAS, Sidecar};
use crate::store::Store;

/// The state of a replica, which decides whether reads use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReplicaState {
    /// Reads use it for all objects of the source that are unchanged since it was made.
    Current,
    /// Parts are not read: files of the source, or its own, keep their size and time of change, but
    /// have another file number or time of attributes. `optimize` compares the elements, and wakes
    /// it.
    Resting,
    /// Never read: the source was written, or its metadata changed, since the replica was made.
    Outdated,
    /// Never read: some of its files are missing or replaced.
    Broken,
}

/// The state of a replica, with the reason.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ReplicaJudgement {
    pub(super) state: ReplicaState,
    /// The share of the source's objects that are unchanged, or possibly unchanged.
    pub(super) share: f64,
    /// The reason for a state other than current.
    reason: Option<String>,
}

/// A replica with its state, for users.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ReplicaCondition {
    /// Its name.
    pub id: String,
    /// The path of the array that it is a copy of.
    pub array: String,
    /// Its bytes on storage.
    pub stored_bytes: u64,
    /// True for a replica of the site.
    pub is_of_site: bool,
    /// Its state.
    pub state: ReplicaState,
    /// The reason why it is not read, or only in part.
    pub reason: Option<String>,
}

/// Returns the replicas of the source at `place`, of this user and of the site, each with its
/// state. `options` gives the directory of the sidecars, and the opened source.
///
/// # Errors
/// Errors of opening the source.
pub fn conditions(place: &SourcePlace, options: &OptimizeOptions) -> Result<Vec<ReplicaCondition>> {
    let sidecar = Sidecar::find(&place.sidecar_name()?, options.sidecars.as_deref())?;
    let both = sidecar.iter().chain(sidecar.as_ref().and_then(Sidecar::site));
    if both.map(|one| replicas_in(one, &Limits::default())).all(|found| found.is_empty()) {
        return Ok(Vec::new());
    }
    let source = OptimizedSource::open_with_all(place, options)?;
    let named = |replica: &Replica, condition: &ReplicaJudgement, is_of_site| ReplicaCondition {
        id: replica.id.clone(),
        array: replica.array.clone(),
        stored_bytes: replica.stored_bytes,
        is_of_site,
        state: condition.state,
        reason: condition.reason.clone(),
    };
    let own = source.replicas.iter().map(|(replica, condition)| named(replica, condition, false));
    let of_site = source.of_site.iter();
    Ok(own.chain(of_site.map(|(replica, condition)| named(replica, condition, true))).collect())
}

impl ReplicaJudgement {
    /// Judges a replica in a sidecar, of an array of an opened store.
    pub(super) fn of(store: &Store, sidecar: &Sidecar, replica: &Replica) -> Self {
        let own = own_standing(sidecar, replica).unwrap_or(Standing::Changed);
        let found = standings(store, replica).unwrap_or_default();
        let Standings { listed, same, alike } = found;
        // A read uses all points of a replica or none.
        let is_lost = match replica.held {
            ReplicaElements::Points { .. } => same + alike < listed || listed == 0,
            ReplicaElements::Runs(_) => same + alike == 0,
        };
        let share = if is_lost { 0.0 } else { (same + alike) as f64 / listed.max(1) as f64 };
        let (state, reason) = match own {
            Standing::Changed => (ReplicaState::Broken, Some(Reason::OwnFiles)),
            _ if is_lost => (ReplicaState::Outdated, Some(Reason::Written)),
            Standing::Alike => (ReplicaState::Resting, Some(Reason::OwnCopied)),
            Standing::Same if alike > 0 => {
                (ReplicaState::Resting, Some(Reason::Copied(alike, listed)))
            }
            Standing::Same => (ReplicaState::Current, None),
        };
        Self { state, share, reason: reason.map(|reason| reason.to_string()) }
    }
}

/// The reason why a replica is not read, or only in part.
enum Reason {
    OwnFiles,
    Written,
    OwnCopied,
    /// The number of copied or moved source files, and the number of all.
    Copied(usize, usize),
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OwnFiles => formatter.write_str("files of the replica are gone or damaged"),
            Self::Written => formatter
                .write_str("the source was written or has other metadata since it was made"),
            Self::OwnCopied => formatter.write_str(
                "files of the replica were copied or moved, or their attributes were changed; \
                 'bedform optimize' compares them with the source",
            ),
            Self::Copied(alike, listed) => write!(
                formatter,
                "{alike} of {listed} source files were copied or moved, or their attributes were changed; \
                 'bedform optimize' compares them with the replica"
            ),
        }
    }
}

fn standings(store: &Store, replica: &Replica) -> Result<Standings> {
    store.array(&ObjectPath::parse(&replica.array)?)?.standings(&replica.meaning, &replica.of)
}

/// Returns the worst standing of a replica's own objects.
fn own_standing(sidecar: &Sidecar, replica: &Replica) -> Result<Standing> {
    let store = open_own(sidecar, replica)?;
    let own = store.array(&ObjectPath::parse(&replica.array)?)?;
    let mut worst = own.own_standing(&replica.objects)?;
    if let Some(places) = &replica.places {
        let own = store.array(&ObjectPath::parse(PLACES)?)?;
        worst = worst.max(own.own_standing(&places.objects)?);
    }
    Ok(worst)
}

/// Reads the places of the elements of a replica of `count` points, in the C order of its array.
///
/// # Errors
/// `Corrupt` if it does not list `count` places; errors of reading.
pub(super) fn places_in(own: &Store, count: u64) -> Result<Vec<u64>> {
    let array = own.array(&ObjectPath::parse(PLACES)?)?;
    if array.shape()? != [count] || array.data_type()? != DataType::UInt64 {
        return Err(Error::corrupt(PLACES, "it does not list the places of the replica"));
    }
    let mut bytes = Vec::new();
    read_into(&array, &Selection::all(&[count]), &mut bytes)?;
    #[allow(clippy::host_endian_bytes)]
    let number = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes);
    Ok(bytes.as_chunks::<8>().0.iter().map(number).collect())
}

/// Reads a selection into a buffer, and resizes the buffer to the result.
///
/// # Errors
/// `LimitExceeded` if the buffer cannot be allocated; errors of reading.
pub(super) fn read_into(array: &Array, selection: &Selection, buffer: &mut Vec<u8>) -> Result<()> {
    let bytes = usize::try_from(array.result_bytes(selection)?).unwrap_or(usize::MAX);
    buffer.clear();
    buffer
        .try_reserve_exact(bytes)
        .map_err(|_| Error::new(ErrorKind::LimitExceeded, "a piece of a replica is too large"))?;
    buffer.resize(bytes, 0);
    array.read(selection, buffer)?;
    Ok(())
}

/// Opens a replica in a sidecar as a store, without recording its reads.
pub(super) fn open_own(sidecar: &Sidecar, replica: &Replica) -> Result<Store> {
    let options = OpenOptions { records: false, ..OpenOptions::default() };
    let place = format!("{REPLICAS}/{}", replica.id);
    let storage = storage_in_sidecar(sidecar, &place, Mode::ReadOnly, &options)?;
    Store::open(storage, options)
}
