//! The catalogue as a helper file of a sidecar, the replicas that it names, and the comparison of its
//! versions with present ones.

use std::path::Path;

use bedform_format::Limits;
use bedform_format::chunk_map::SourceVersion;
use bedform_format::replica::{Catalogue, Replica};

use crate::error::Result;
use crate::sidecar::{Helper, Sidecar, source_version_of};

/// The directory of the catalogue's generations in a sidecar.
pub(crate) const CATALOGUE: &str = "catalogue";
/// The array of a replica of points that holds the places of its elements.
pub(crate) const PLACES: &str = "places";

// Valid for every state of the source: each replica records the versions of its objects.
impl Helper for Catalogue {
    const BYTES_MAX: u64 = 64 << 20;

    fn encode(&self) -> Option<Vec<u8>> {
        Self::encode(self)
    }

    fn decode(bytes: &[u8], limits: &Limits) -> Option<Self> {
        Self::decode(bytes, limits)
    }
}

/// Returns the replicas that the newest catalogue of a sidecar names, current or not.
pub(crate) fn replicas_in(sidecar: &Sidecar, limits: &Limits) -> Vec<Replica> {
    let newest = sidecar.load_newest(CATALOGUE, &SourceVersion::default(), limits);
    newest.map(|(_, Catalogue { replicas, .. })| replicas).unwrap_or_default()
}

/// Returns the names of the replicas, of this user and of the site, that fit the present version of
/// the file at `path`. For a store it returns all: their objects are compared one by one when they
/// are read.
///
/// # Errors
/// Those of [`Sidecar::of_path`].
pub fn current_replicas(path: &Path) -> Result<Vec<String>> {
    let Ok(found) = std::fs::metadata(path) else { return Ok(Vec::new()) };
    let Some(sidecar) = Sidecar::of_path(path)? else { return Ok(Vec::new()) };
    let state = found.is_file().then(|| source_version_of(&found));
    let limits = Limits::default();
    let both = std::iter::once(&sidecar).chain(sidecar.site());
    let listed = both.flat_map(|sidecar| replicas_in(sidecar, &limits));
    // A replica of one file records that file's version; other objects are not examined here.
    let is_current = |replica: &Replica| match replica.of.objects.as_slice() {
        [only] if only.at.is_empty() => only.version == state,
        _ => true,
    };
    Ok(listed.filter(is_current).map(|replica| replica.id).collect())
}

/// The relation of an object to its recorded version, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    /// It has the recorded version.
    Same,
    /// It has the recorded size and time of modification, but another file number or time of
    /// attributes. A copy, a move and `chmod` have this effect, and so do other bytes with a
    /// restored time.
    Alike,
    /// Its bytes were written since, or it appeared or vanished.
    Changed,
}

impl Standing {
    /// Compares an object's version `now` with the recorded version `then`; `None` stands for an
    /// absent object.
    pub(crate) fn of(then: Option<&SourceVersion>, now: Option<&SourceVersion>) -> Self {
        // Without times and ETags, two objects of one size cannot be distinguished.
        let is_told = |version: &SourceVersion| {
            *version != SourceVersion { size: version.size, ..SourceVersion::default() }
        };
        match (then, now) {
            (then, now) if then == now && then.is_none_or(is_told) => Self::Same,
            (Some(then), Some(now))
                if then.size == now.size
                    && then.modified_ns == now.modified_ns
                    && then.modified_ns != 0 =>
            {
                Self::Alike
            }
            _ => Self::Changed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_of_the_same_size_and_time_is_alike_and_only_one_of_the_same_version_the_same() {
        let then = SourceVersion { size: 5, modified_ns: 7, changed_ns: 9, identity: (1, 2) };
        let of = |now: &SourceVersion| Standing::of(Some(&then), Some(now));
        assert_eq!(of(&then), Standing::Same);
        // The same mount has another number on another machine.
        assert_eq!(of(&SourceVersion { identity: (3, 2), ..then.clone() }), Standing::Same);
        assert_eq!(of(&SourceVersion { changed_ns: 10, ..then.clone() }), Standing::Alike);
        assert_eq!(of(&SourceVersion { identity: (1, 3), ..then.clone() }), Standing::Alike);
        assert_eq!(of(&SourceVersion { size: 6, ..then.clone() }), Standing::Changed);
        assert_eq!(of(&SourceVersion { modified_ns: 8, ..then.clone() }), Standing::Changed);
        assert_eq!(Standing::of(None, None), Standing::Same);
        assert_eq!(Standing::of(Some(&then), None), Standing::Changed);
        assert_eq!(Standing::of(None, Some(&then)), Standing::Changed);
        let untold = SourceVersion { size: 5, ..SourceVersion::default() };
        assert_eq!(Standing::of(Some(&untold), Some(&untold)), Standing::Changed);
        let untimed = SourceVersion { modified_ns: 0, ..then.clone() };
        let other = SourceVersion { changed_ns: 10, ..untimed.clone() };
        assert_eq!(Standing::of(Some(&untimed), Some(&other)), Standing::Changed);
    }
}
