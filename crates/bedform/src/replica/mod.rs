//! Replicas: further copies of arrays, or of parts of them, in layouts that fit the recorded reads.
//!
//! # Promises
//!
//! - A replica has the elements that its array had when it was made. A read uses it only for
//!   objects with the recorded versions, and only if none of them contains a later commit than the
//!   read's moment. The array must also have the same metadata.
//! - A replica with a missing or replaced object of its own is unreadable: the catalogue lists
//!   every object.
//! - Losing replicas costs only speed: a read falls back to the array itself.
//! - A replica counts from the moment at which a catalogue names it. An unnamed directory is
//!   unfinished or dropped.
//!
//! # How it works
//!
//! The replicas of a source lie in its [sidecar](crate::sidecar), below `replicas`. Each is a plain
//! Zarr v3 store with one array, at the path of the original array. The replicas of the site's
//! sidecar count like the user's own. The catalogue is a helper file in generations. A replica
//! holds a product of runs of positions, one list of runs per axis ([`ReplicaElements`]). That is a box, or
//! the rows of many boxes without the gaps between them, the *concatenation* of Tang, *Dynamic data
//! prefetching and layout optimizations*, section 3.2.4. Or it holds single elements, with their
//! places in a second array.
//!
//! [`Array`](crate::Array) redirects reads to replicas, in `array/redirect`.
//!
//! | module | holds |
//! |---|---|
//! | `catalogue` | the catalogue as a helper file; `bedform_format::replica` defines its bytes |
//! | `replicas` | the replicas of an opened source, and the look for newer catalogues |
//! | `named_replicas` | the replicas that the catalogues name, and the choices made among them |
//! | `open_replica` | one replica, opened at its first use |
//! | `places` | the places of a replica of points |
//! | `source` | a replica as a `Source` of chunks |

mod catalogue;
mod named_replicas;
mod open_replica;
mod places;
mod replicas;
mod source;

pub use bedform_format::replica::{
    AxisRuns, Catalogue, ExpectedReads, Replica, ReplicaElements, ReplicaObject, ReplicaPositions,
    SourceObject, SourceObjects,
};
pub(crate) use bedform_format::replica::{OBJECTS_MAX, fingerprint_of, meaning_of};
pub use catalogue::current_replicas;
pub(crate) use catalogue::{CATALOGUE, PLACES, Standing, replicas_in};
pub(crate) use named_replicas::NamedReplicas;
pub(crate) use open_replica::OpenReplica;
pub use open_replica::ReplicaStatistics;
pub(crate) use replicas::{Replicas, are_off};
pub(crate) use source::ReplicaSource;
