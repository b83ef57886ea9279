//! Replicas: other copies of arrays, or of parts of them, in layouts that fit reads which were made.
//!
//! # Promises
//!
//! - A replica has the elements that its array had when it was made. It is read in the place of the array only
//!   while the array means the same by its objects, these have the versions that it was made of, and none contains
//!   a later commit than the read's moment.
//! - It is read only whole: the catalogue lists each of its own objects, and one that is absent or another makes the
//!   replica unreadable.
//! - Losing a replica, or all of them, loses nothing but speed: whatever of one cannot be read is read of the
//!   array itself.
//! - A replica counts from the moment in which a catalogue names it. Whatever lies beside without being named
//!   is unfinished, or was given up.
//!
//! # How
//!
//! The replicas of a source lie in its [sidecar](crate::sidecar), below `replicas`, each as a plain Zarr v3 store
//! with one array, which has the path of the array that it is a copy of. Those of the sidecar of the site count as
//! those of the user's own do. The catalogue is a helper file in
//! generations. What a replica holds is a product of runs of positions, one list of runs for each axis
//! ([`Held`]): a box, or the rows of many boxes one after the other with the gaps left out, the *concatenation* of
//! Tang, *Dynamic data prefetching and layout optimizations*, section 3.2.4.
//!
//! Reads are redirected beneath [`Array`](crate::Array), in `array/redirect`.
//!
//! | module | holds |
//! |---|---|
//! | `catalogue` | the catalogue as a helper file; `bedform_format::replica` has its bytes |
//! | `opened` | replicas of an opened source, each opened when it is first asked for |

mod catalogue;
mod opened;

pub use bedform_format::replica::{
    Catalogue, Expected, Held, ObjectsOf, OwnObject, PlacesOf, Replica, Runs, SourceObject,
};
pub(crate) use bedform_format::replica::{OBJECTS_MAX, fingerprint_of, meaning_of};
pub(crate) use catalogue::{CATALOGUE, PLACES, Standing};
pub(crate) use opened::{NamedReplicas, OpenReplica, ReplicaSource, Replicas, replicas_in};
pub use opened::{ReplicaStatistics, current_replicas};
