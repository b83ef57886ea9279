//! Accepts a sidecar beside data, made by another user or machine, after comparing its replicas
//! with the data.

use bedform_format::mesh_replica::MeshReplica;
use bedform_format::{Limits, ObjectPath};
use bedform_geometry::{Points, Region, Selection};
use serde::Serialize;

use super::building::{bytes_of, remove_unnamed};
use super::conditions::{open_own, places_in, read_into};
use super::{OptimizedSource, SourcePlace};
use crate::array::{Array, BoundObjects};
use crate::error::{Error, ErrorKind, Result};
use crate::mesh::mesh_replicas_in;
use crate::options::ProgressCallback;
use crate::replica::{
    CATALOGUE, Catalogue, PLACES, Replica, ReplicaElements, fingerprint_of, replicas_in,
};
use crate::sidecar::{REPLICAS, Sidecar};
use crate::store::Store;
use crate::threads::workers::check_cancelled;
use crate::trace::newest_knowledge;

/// Bytes of a replica that are compared at a time.
const PIECE_BYTES: u64 = 32 << 20;

/// The outcome of [`trust`].
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Trusted {
    /// The directory of the sidecar.
    pub directory: String,
    /// True if the sidecar was registered before; nothing was done then.
    pub was_trusted: bool,
    /// Names of the replicas whose elements equal those of the source.
    pub accepted: Vec<String>,
    /// Replicas that were removed.
    pub refused: Vec<RefusedReplica>,
    /// The number of arrays whose learned reads stay.
    pub learned_arrays: u64,
    /// Other removed names: chunk maps, which are made again, and the policy and watch, which the
    /// user has to set again.
    pub removed: Vec<String>,
}

/// A replica that was removed because it differs from the source or cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefusedReplica {
    /// Its name.
    pub id: String,
    /// The path of its array.
    pub array: String,
    /// The reason, for the user.
    pub why: String,
}

/// Compares the sidecar beside the source at `place`, which another user or machine may have made,
/// with the source, and registers it. Replicas stay if all their elements equal those of the
/// source. Files that name places in the source, or start processes, are removed. `progress`
/// receives the bytes compared so far and in all.
///
/// # Errors
/// `NotFound` without a sidecar of this user; `PermissionDenied` for one with links, devices or
/// files of others, or that cannot be registered; `Conflict` if another process compares it; errors
/// of reading the source; `Interrupted`.
pub fn trust(place: &SourcePlace, progress: ProgressCallback<'_>) -> Result<Trusted> {
    let name = place.sidecar_name()?;
    let Some(sidecar) = Sidecar::unregistered(&name)? else {
        let found = Sidecar::find(&name, None)?.and_then(|sidecar| sidecar.own_directory());
        let directory = found.map_or_else(String::new, |found| found.display().to_string());
        return Ok(Trusted { directory, was_trusted: true, ..Trusted::default() });
    };
    let directory = sidecar.own_directory().unwrap_or_default().display().to_string();
    let Some(_lock) = sidecar.try_lock("")? else {
        let text = format!("{directory}: another process looks through it: wait for it");
        return Err(Error::new(ErrorKind::Conflict, text));
    };
    let mut done = Trusted { directory, ..Trusted::default() };
    for MeshReplica { id, component: array, .. } in mesh_replicas_in(&sidecar) {
        let why = "replicas of refined meshes are not compared: make it anew by 'bedform optimize'";
        done.refused.push(RefusedReplica { id, array, why: why.to_owned() });
    }
    let listed = replicas_in(&sidecar, &Limits::default());
    // The unregistered sidecar is not used for opening. A plotfile, which has no replicas of arrays, is
    // no store that could be opened.
    let source = match listed.is_empty() {
        true => None,
        false => Some(OptimizedSource::open(place, &super::OptimizeOptions::default())?),
    };
    let all: u64 = listed.iter().map(|replica| replica.raw_bytes).sum();
    let (mut kept, mut compared) = (Vec::new(), 0_u64);
    for replica in listed {
        check_cancelled("comparing was stopped")?;
        let telling = |bytes: u64, _: u64| progress(compared + bytes, all);
        let Some(source) = &source else { break };
        match compare(source, &sidecar, &replica, &telling)? {
            Ok(renewed) => {
                done.accepted.push(renewed.id.clone());
                kept.push(renewed);
            }
            Err(why) => {
                let (id, array) = (replica.id.clone(), replica.array.clone());
                done.refused.push(RefusedReplica { id, array, why });
            }
        }
        compared += replica.raw_bytes;
    }
    done.learned_arrays = newest_knowledge(&sidecar).map_or(0, |known| known.arrays.len() as u64);
    // From here on a crash leaves an unregistered sidecar, which nothing reads.
    done.removed = sidecar.remove_uncompared()?;
    remove_unnamed(&sidecar, kept.iter().map(|one| &one.id));
    if !kept.is_empty()
        && sidecar.save_next(CATALOGUE, &Catalogue::new(place.shown(), kept)).is_none()
    {
        let text = format!("{}: the catalogue cannot be kept", done.directory);
        return Err(Error::new(ErrorKind::Io, text));
    }
    sidecar.register()?;
    Ok(done)
}

/// Returns the replica with the source's present versions if all its elements equal the source's;
/// else the reason against it.
///
/// # Errors
/// Errors of reading the source; `Interrupted`.
fn compare(
    source: &OptimizedSource,
    sidecar: &Sidecar,
    replica: &Replica,
    progress: ProgressCallback<'_>,
) -> Result<std::result::Result<Replica, String>> {
    let path = match ObjectPath::parse(&replica.array) {
        Ok(path) => path,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let whole = match source.store.array(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(Err("the source has no such array".to_owned()));
        }
        whole => whole?,
    };
    if whole.shape()? != replica.array_shape {
        return Ok(Err("the array has another shape".to_owned()));
    }
    let copy = match UntrustedReplica::open(sidecar, replica, &path) {
        Ok(copy) => copy,
        Err(error) => return Ok(Err(error.to_string())),
    };
    if copy.array.data_type()? != whole.data_type()? {
        return Ok(Err("the array has another type".to_owned()));
    }
    let selection = match &copy.places {
        Some(places) => Selection::Points(Points::at_places(places, &replica.array_shape)?),
        None => replica.held.outer(&Region::whole(replica.held.shape())?),
    };
    let mut difference = None;
    let BoundObjects { meaning, of } = whole.bound(&selection, copy.places.is_some(), || {
        difference = difference_of(&whole, &copy, replica, progress)?;
        Ok(())
    })?;
    if let Some(why) = difference {
        return Ok(Err(why));
    }
    let mut accepted = Replica { meaning, of, ..replica.clone() };
    accepted.stored_bytes = bytes_of(&**copy.store.storage())?;
    accepted.objects = copy.array.own_objects()?;
    if let Some(places) = &mut accepted.places {
        places.objects = copy.store.array(&ObjectPath::parse(PLACES)?)?.own_objects()?;
    }
    Ok(Ok(accepted))
}

/// Returns the reason why a replica's elements differ from the source's; `None` if they are equal.
///
/// # Errors
/// Errors of reading the source; `Interrupted`.
fn difference_of(
    whole: &Array,
    copy: &UntrustedReplica,
    replica: &Replica,
    progress: ProgressCallback<'_>,
) -> Result<Option<String>> {
    let shape = replica.held.shape();
    let item_bytes = copy.array.result_bytes(&Selection::all(&shape))? / count_of(&shape).max(1);
    let (mut one, mut other, mut done) = (Vec::new(), Vec::new(), 0);
    for region in pieces(&Region::whole(shape)?, (PIECE_BYTES / item_bytes.max(1)).max(1))? {
        check_cancelled("comparing was stopped")?;
        let of_source = copy.selection_of(replica, &region)?;
        read_into(whole, &of_source, &mut one)?;
        if let Err(error) = read_into(&copy.array, &region.into(), &mut other) {
            return Ok(Some(error.to_string()));
        }
        if one != other {
            return Ok(Some("it has other elements than the source".to_owned()));
        }
        done += one.len() as u64;
        progress(done, replica.raw_bytes);
    }
    Ok(None)
}

/// An opened replica of an unregistered sidecar.
struct UntrustedReplica {
    store: Store,
    array: Array,
    /// The places of its elements, for a replica of points.
    places: Option<Vec<u64>>,
}

impl UntrustedReplica {
    /// Opens the replica and checks it against its description in the catalogue.
    ///
    /// # Errors
    /// Errors of opening it; `Corrupt` if it differs from the description.
    fn open(sidecar: &Sidecar, replica: &Replica, path: &ObjectPath) -> Result<Self> {
        let differs = || {
            let place = format!("{REPLICAS}/{}", replica.id);
            Error::corrupt(place, "it is not the replica of the catalogue")
        };
        let store = open_own(sidecar, replica)?;
        let array = store.array(path)?;
        if array.document()? != replica.document || array.shape()? != replica.held.shape() {
            return Err(differs());
        }
        let places = match (&replica.held, &replica.places) {
            (ReplicaElements::Points { count, first, last }, Some(of)) => {
                let listed = store.array(&ObjectPath::parse(PLACES)?)?;
                if listed.document()? != of.document {
                    return Err(differs());
                }
                let places = places_in(&store, *count)?;
                let is_right = places.is_sorted_by(|a, b| a < b)
                    && (places.first(), places.last()) == (Some(first), Some(last))
                    && of.fingerprint == fingerprint_of(&places);
                Some(is_right.then_some(places).ok_or_else(differs)?)
            }
            (ReplicaElements::Runs(_), None) => None,
            _ => return Err(differs()),
        };
        Ok(Self { store, array, places })
    }

    /// Returns the elements of the source that a region of the replica holds.
    fn selection_of(&self, replica: &Replica, region: &Region) -> Result<Selection> {
        let Some(places) = &self.places else { return Ok(replica.held.outer(region)) };
        let start = usize::try_from(region.start()[0]).unwrap_or(usize::MAX);
        let end = usize::try_from(region.end(0)).unwrap_or(usize::MAX).min(places.len());
        let places = places.get(start..end).unwrap_or_default();
        Ok(Selection::Points(Points::at_places(places, &replica.array_shape)?))
    }
}

fn count_of(shape: &[u64]) -> u64 {
    shape.iter().copied().fold(1, u64::saturating_mul)
}

/// Divides a region into boxes of at most `count_max` elements, by halving the longest axis.
fn pieces(region: &Region, count_max: u64) -> Result<Vec<Region>> {
    let (mut waiting, mut small) = (vec![region.clone()], Vec::new());
    while let Some(region) = waiting.pop() {
        let longest = (0..region.rank()).max_by_key(|axis| region.shape()[*axis]);
        let longest = longest.filter(|axis| region.shape()[*axis] > 1);
        let Some(axis) = longest.filter(|_| count_of(region.shape()) > count_max) else {
            small.push(region);
            continue;
        };
        let (start, shape) = (region.start().to_vec(), region.shape().to_vec());
        let half = shape[axis] / 2;
        let (mut first, mut second, mut behind) = (shape.clone(), shape, start.clone());
        (first[axis], second[axis], behind[axis]) = (half, second[axis] - half, start[axis] + half);
        waiting.push(Region::new(behind, second)?);
        waiting.push(Region::new(start, first)?);
    }
    Ok(small)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_a_region_and_none_is_larger_than_it_may_be() {
        for (shape, most) in [(vec![7, 3, 5], 4), (vec![1, 1], 1), (vec![], 1), (vec![9], 100)] {
            let region = Region::whole(shape.clone()).unwrap();
            let found = pieces(&region, most).unwrap();
            assert!(found.iter().all(|piece| count_of(piece.shape()) <= most));
            let sum: u64 = found.iter().map(|piece| count_of(piece.shape())).sum();
            assert_eq!(sum, count_of(&shape));
        }
    }
}
