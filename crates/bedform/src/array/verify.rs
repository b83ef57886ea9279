//! Reads everything that is stored and checks it.

use super::Array;
use crate::codec::Scratch;
use crate::error::{Error, ErrorKind, Result};
use crate::read::locate::ChunkSource;

impl Array {
    /// How many objects (shards, or chunks of an array without them) are stored, and how many the
    /// array's shape has room for. Those that are not there were never written, or are lost: nothing
    /// in plain Zarr tells which.
    ///
    /// # Errors
    /// Those of storage.
    pub fn stored_objects(&self) -> Result<(u64, u64)> {
        let state = self.state()?;
        let source = self.source(&state)?;
        let grid: Vec<u64> = state
            .grid
            .grid_shape()
            .iter()
            .zip(&state.per_object)
            .map(|(chunks, count)| chunks.div_ceil(*count))
            .collect();
        let inside = |place: &&Vec<u64>| place.iter().zip(&grid).all(|(at, count)| at < count);
        let stored = source.existing()?.iter().filter(inside).count();
        Ok((stored as u64, grid.iter().fold(1, |all, count| u64::saturating_mul(all, *count))))
    }

    /// Reads every stored object of the array (and, while there is a log, looks for those that must be
    /// there), checks its tail and decodes every chunk. Gives one
    /// line per damaged object or chunk. Memory is bounded by one chunk.
    ///
    /// # Errors
    /// `Interrupted`, and those of storage that are not about one object.
    pub fn verify(&self, interrupted: &dyn Fn() -> bool) -> Result<Vec<String>> {
        let state = self.state()?;
        let source = self.source(&state)?;
        let mut problems = Vec::new();
        let mut scratch = Scratch::default();
        for coordinates in source.expected()? {
            if interrupted() {
                return Err(Error::new(ErrorKind::Interrupted, "the check was stopped"));
            }
            let opened = match source.open(&coordinates, &|| ()) {
                Ok(Some(opened)) => opened,
                Ok(None) => continue,
                Err(error) => {
                    problems.push(error.to_string());
                    continue;
                }
            };
            let count: u64 = state.per_object.iter().product();
            for position in 0..count {
                let (extent, skip) = match opened.places.find(position) {
                    Ok(Some(place)) => place,
                    Ok(None) => continue,
                    Err(problem) => {
                        let object = source.object_name(&coordinates);
                        problems.push(format!("{object}: {problem}"));
                        continue;
                    }
                };
                let checked = (|| {
                    if extent.length > state.codec.encoded_bytes_max() {
                        return Err("larger than a chunk can be".to_owned());
                    }
                    let length = usize::try_from(extent.length).unwrap_or(usize::MAX);
                    let mut encoded = vec![0; length];
                    opened
                        .object
                        .read(extent.offset, &mut encoded)
                        .map_err(|error| error.to_string())?;
                    state
                        .codec
                        .decode(&encoded, skip, &mut scratch)
                        .map(drop)
                        .map_err(|error| error.to_string())
                })();
                if let Err(problem) = checked {
                    problems.push(format!(
                        "{}, chunk {position} (bytes {} to {}): {problem}",
                        source.object_name(&coordinates),
                        extent.offset,
                        extent.end()
                    ));
                }
            }
        }
        Ok(problems)
    }
}
