//! Whether the replicas of a source are read, and why not: by their own objects and by those that they were made of.

use std::fmt;

use bedform_format::{DataType, Limits, ObjectPath};
use bedform_geometry::Selection;
use bedform_storage::Mode;
use serde::Serialize;

use super::{OptimizeOptions, Source, SourcePlace};
use crate::array::{Array, Standings};
use crate::error::{Error, ErrorKind, Result};
use crate::opening::storage_in_sidecar;
use crate::options::OpenOptions;
use crate::replica::{Held, PLACES, Replica, Standing, replicas_in};
use crate::sidecar::{REPLICAS, Sidecar};
use crate::store::Store;

/// Whether a replica is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReplicaState {
    /// It is read for all that is as it was when it was made.
    Current,
    /// Some of it is not read: files of the source, or its own, have their size and time of change, but another file
    /// number or time of attributes. `optimize` compares the elements, and wakes it.
    Resting,
    /// Nothing of it is read: the source was written, or has other metadata, since.
    Outdated,
    /// Nothing of it is read: some of its files are gone, or are other ones.
    Broken,
}

/// The state of a replica, and why it has that.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ReplicaJudgement {
    pub(super) state: ReplicaState,
    /// The share of the source's objects that are as they were, or may be.
    pub(super) share: f64,
    /// Nothing for one that is current.
    reason: Option<String>,
}

/// A replica, and whether it is read.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ReplicaCondition {
    /// Its name.
    pub id: String,
    /// The path of the array that it is a copy of.
    pub array: String,
    /// Bytes that it takes in storage.
    pub stored_bytes: u64,
    /// True for one of the site.
    pub is_of_site: bool,
    /// Whether it is read.
    pub state: ReplicaState,
    /// Why it is not, or not all of it.
    pub reason: Option<String>,
}

/// The replicas of the source at `place`, of this user and of the site, each with its state. `options` has the place
/// of the sidecars, and the opened source.
///
/// # Errors
/// Of opening the source.
pub fn conditions(place: &SourcePlace, options: &OptimizeOptions) -> Result<Vec<ReplicaCondition>> {
    let sidecar = Sidecar::find(&place.sidecar_name()?, options.sidecars.as_deref())?;
    let both = sidecar.iter().chain(sidecar.as_ref().and_then(Sidecar::site));
    if both.map(|one| replicas_in(one, &Limits::default())).all(|found| found.is_empty()) {
        return Ok(Vec::new());
    }
    let source = Source::open_with_all(place, options)?;
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
    /// That of a replica in a sidecar, of an array of an opened store.
    pub(super) fn of(store: &Store, sidecar: &Sidecar, replica: &Replica) -> Self {
        let own = own_standing(sidecar, replica).unwrap_or(Standing::Changed);
        let found = standings(store, replica).unwrap_or_default();
        let Standings { listed, same, alike } = found;
        // Points are read all or not at all.
        let is_lost = match replica.held {
            Held::Points { .. } => same + alike < listed || listed == 0,
            Held::Runs(_) => same + alike == 0,
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

/// Why a replica is not read.
enum Reason {
    OwnFiles,
    Written,
    OwnCopied,
    /// So many files of how many.
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

/// The worst standing of a replica's own objects.
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

/// The places of the elements of a replica of `count` points, in the C order of its array.
///
/// # Errors
/// `Corrupt` if it does not list so many places; those of reading.
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

/// Reads a selection into a buffer, whose elements it replaces.
///
/// # Errors
/// `LimitExceeded` where memory is short; those of reading.
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

/// A replica in a sidecar as a store.
pub(super) fn open_own(sidecar: &Sidecar, replica: &Replica) -> Result<Store> {
    let options = OpenOptions { records: false, ..OpenOptions::default() };
    let place = format!("{REPLICAS}/{}", replica.id);
    let storage = storage_in_sidecar(sidecar, &place, Mode::ReadOnly, &options)?;
    Store::open(storage, options)
}
