//! Waits for the names of objects that nothing in memory knows.
//!
//! A path is found step by step: of each directory its entry and its attributes are read, then those of the
//! object. The directory of the store is open. A read looks first whether the array's document is the one that it
//! knows.

/// To find a directory: a block of the one above, and its own attributes.
const DIRECTORY_WAITS: u64 = 2;
/// The array's directory, and the attributes of its document.
pub(super) const DOCUMENT_WAITS: u64 = DIRECTORY_WAITS + 1;

/// Counts the waits of objects that are found one after the other, as a read opens them.
#[derive(Debug, Default)]
pub(super) struct Names {
    last: Option<Vec<u64>>,
}

impl Names {
    /// The waits until the object at `coordinates` of the shard grid is found, below a directory for each
    /// coordinate but the last.
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
        // The attributes of objects of one directory come together.
        document + above as u64 * DIRECTORY_WAITS + u64::from(is_alone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_one_directory_are_found_together() {
        let mut names = Names::default();
        let waits: Vec<u64> = [[0, 0, 0], [0, 0, 1], [0, 1, 0], [2, 0, 0]]
            .iter()
            .map(|coordinates| names.waits_for(coordinates))
            .collect();
        // The document and three directories; the one of the shards; another; another below another.
        assert_eq!(waits, [3 + 6 + 1, 0, 2 + 1, 4 + 1]);
    }
}
