//! Candidate replicas: boxes, runs or points of an array, in layouts that fit kinds of its reads.
//!
//! | module | holds |
//! |---|---|
//! | `settings` | limits and assumptions |
//! | `existing` | existing replicas as candidates |
//! | `elements` | the elements that a new replica of an array could hold |
//! | `sample` | the compression of these elements |
//! | `held` | the part of a kind of reads that a replica holds |
//! | `laid_out` | new replicas in their cheapest layouts |

mod elements;
mod existing;
mod held;
mod laid_out;
mod sample;
mod settings;

use super::queries::index_id;
use super::reads::PricedReadKind;
use super::{OptimizedSource, PlannedIndex, PlannedMeshReplica, PlannedReplica};
use crate::error::Result;

pub(super) use elements::ArrayKinds;
use existing::existing;
pub(super) use laid_out::BestLayout;

/// A replica or a value index that is to be made.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PlannedHelper {
    Replica(Box<PlannedReplica>),
    Index(PlannedIndex),
    OfMesh(Box<PlannedMeshReplica>),
}

impl PlannedHelper {
    /// Its name among all candidates.
    pub(super) fn id(&self) -> String {
        match self {
            Self::Replica(replica) => replica.id.clone(),
            Self::Index(index) => index_id(&index.array),
            Self::OfMesh(replica) => replica.id.clone(),
        }
    }

    /// Its predicted bytes on storage.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Replica(replica) => replica.bytes,
            Self::Index(index) => index.bytes,
            Self::OfMesh(replica) => replica.bytes,
        }
    }
}

/// A replica that exists or could be made, or a value index, with its benefit for each kind of read
/// and each condition of queries.
#[derive(Debug, Clone)]
pub(super) struct CandidateReplica {
    /// The plan for making it; `None` for an existing replica.
    pub(super) planned: Option<PlannedHelper>,
    /// True for a replica of the site: it exists whatever is chosen, and counts in no user's
    /// budget.
    pub(super) is_of_site: bool,
    pub(super) id: String,
    pub(super) bytes: u64,
    pub(super) building_seconds: f64,
    /// For each kind of read, then for each condition, the share of the reads that it holds
    /// completely, and the seconds of one of them. For a listed read, the share of its elements, and
    /// the seconds of the whole read at that rate.
    pub(super) serves: Vec<Option<(f64, f64)>>,
    /// True for an existing replica if all reads that it was made for are counted, and it serves
    /// them.
    pub(super) is_counted: bool,
    /// The past benefit of an existing replica.
    pub(super) worth: Worth,
}

/// The past benefit of an existing replica.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Worth {
    /// Predicted seconds that it saved in the recorded reads that used it; older reads count less.
    pub(super) seconds: f64,
    /// The start of the last such read, or the time of its making, in nanoseconds since 1970.
    pub(super) last_ns: u64,
}

/// Returns all candidates: existing replicas, and new ones that are not larger than the budget.
///
/// # Errors
/// Errors of opening and sampling the arrays.
pub(super) fn candidates_of(
    source: &OptimizedSource,
    kinds: &[PricedReadKind],
    budget_bytes: u64,
) -> Result<Vec<CandidateReplica>> {
    let mut all: Vec<CandidateReplica> = Vec::new();
    for replica in &source.of_site {
        all.push(CandidateReplica { is_of_site: true, ..existing(source, replica, kinds) });
    }
    for replica in &source.replicas {
        all.push(existing(source, replica, kinds));
    }
    let mut arrays: Vec<&str> = kinds.iter().map(|kind| kind.array.as_str()).collect();
    arrays.sort_unstable();
    arrays.dedup();
    for array in arrays {
        let of_array = ArrayKinds::new(source, array, kinds)?;
        for elements in of_array.elements() {
            let found = of_array.laid_out(elements, budget_bytes)?;
            all.extend(found.filter(|found| all.iter().all(|other| other.id != found.id)));
        }
    }
    Ok(all)
}

/// Returns the bytes of an array of `shape`.
fn bytes_of(shape: &[u64], item_size: u64) -> f64 {
    shape.iter().map(|length| *length as f64).product::<f64>() * item_size as f64
}
