//! The catalogue as a helper file of a sidecar, in generations.

use bedform_format::Limits;
use bedform_format::chunk_map::SourceVersion;
use bedform_format::replica::{Catalogue, ObjectsOf};

use crate::sidecar::{Helper, may_be_same};

/// The directory of the catalogue's generations in a sidecar.
pub(crate) const CATALOGUE: &str = "catalogue";
/// The array of a replica of points that holds the places of its elements.
pub(crate) const PLACES: &str = "places";

impl Helper for Catalogue {
    const BYTES_MAX: u64 = 64 << 20;

    fn encode(&self) -> Option<Vec<u8>> {
        Self::encode(self)
    }

    fn decode(bytes: &[u8], limits: &Limits) -> Option<Self> {
        Self::decode(bytes, limits)
    }

    fn source(&self) -> Option<&SourceVersion> {
        Some(&self.source)
    }

    fn renewed(mut self, source: &SourceVersion) -> Self {
        self.source.clone_from(source);
        self
    }
}

/// The recorded checksum of the pieces of object `number`, if the state `now` differs from the recorded one only
/// as a move or a copy changes it.
pub(crate) fn pieces_if_alike(
    of: &ObjectsOf,
    number: usize,
    now: Option<&SourceVersion>,
) -> Option<u32> {
    let (then, now) = (of.objects.get(number)?.1.as_ref()?, now?);
    of.pieces.get(number).copied().filter(|_| may_be_same(then, now, of.sampled_ns))
}
