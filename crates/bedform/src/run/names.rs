//! The number of waits for path lookups of objects that no cache knows.
//!
//! A path is resolved step by step: the file system reads the entry and the attributes of each
//! directory, then those of the object. The directory of the store is open. A read first checks
//! whether the array's document is the one that it knows.

/// Waits to find a directory: a block of the directory above, and its own attributes.
const DIRECTORY_WAITS: u64 = 2;
/// Waits to find the array's directory and the attributes of its document.
pub(super) const DOCUMENT_WAITS: u64 = DIRECTORY_WAITS + 1;

/// A counter of the waits for the objects of a read, in the order in which the read opens them.
#[derive(Debug, Default)]
pub(super) struct LookupWaits {
    last: Option<Vec<u64>>,
}

impl LookupWaits {
    /// Returns the waits to find the object at `coordinates` of the shard grid. Each coordinate but
    /// the last names a directory on its path.
    pub(super) fn waits_for(&mut self, coordinates: &[u64]) -> u64 {
        let levels = coordinates.len().saturating_sub(1);
        let (above, document) = match &self.last {
            None => (levels + 1, DOCUMENT_WAITS),
            Some(last) => {
                let same = last.iter().zip(coordinates).take_while(|(one, other)| one == other);
                (levels.saturating_sub(same.count()), 0)
            }
        };
        let is_alone = self.last.is_none() || above > 0;
        self.last = Some(coordinates.to_vec());
        // The attributes of the objects of one directory come together.
        document + above as u64 * DIRECTORY_WAITS + u64::from(is_alone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_one_directory_are_found_together() {
        let mut names = LookupWaits::default();
        let waits: Vec<u64> = [[0, 0, 0], [0, 0, 1], [0, 1, 0], [2, 0, 0]]
            .iter()
            .map(|coordinates| names.waits_for(coordinates))
            .collect();
        // The document and three directories; the one of the shards; another; another below
        // another.
        assert_eq!(waits, [3 + 6 + 1, 0, 2 + 1, 4 + 1]);
    }
}
