//! The stored blocks of joined variables: see [`crate::foreign::stored`].

use bedform_format::chunk_map::ForeignStorage;

use super::Archive;
use super::examine::in_threads;
use crate::error::Result;
use crate::foreign::stored::{SourceFile, StoredBlocks, StoredPart, StoredVariable};
use crate::options::ProgressCallback;

impl Archive {
    /// Returns the files in their joined order.
    pub(in crate::foreign) fn source_files(&self) -> Vec<SourceFile> {
        let files = self.places.files.iter().zip(&self.files);
        let file = |(place, file): (&super::place::FilePlace, &super::ArchivedFile)| SourceFile {
            path: Some(place.path.clone()),
            version: file.source.clone(),
        };
        files.map(file).collect()
    }

    /// Adds the parts of all files to those of the variables that are joined.
    ///
    /// # Errors
    /// As [`ForeignFile::stored_variables`](crate::foreign::ForeignFile).
    pub(in crate::foreign) fn add_parts<'f>(
        &'f self,
        variables: &mut [StoredVariable<'f>],
        progress: ProgressCallback<'_>,
    ) -> Result<()> {
        let numbers: Vec<Option<usize>> = variables
            .iter()
            .map(|variable| self.by_path.get(&variable.array.path).copied())
            .collect();
        let joined: Vec<usize> = numbers.iter().copied().flatten().collect();
        let blocks = in_threads(self.files.len(), progress, |file| {
            joined.iter().map(|number| self.blocks_of(file, *number)).collect::<Result<Vec<_>>>()
        })?;
        for (file, found) in blocks.into_iter().enumerate() {
            let own = variables.iter_mut().zip(&numbers);
            let own = own.filter_map(|(variable, number)| Some((variable, (*number)?)));
            for ((variable, number), blocks) in own.zip(found) {
                let (start, array) = (self.starts[file], &self.form(file, number).array);
                variable.axis = Some(self.joined[number].axis);
                variable.parts.push(StoredPart { file, start, array, blocks });
            }
        }
        Ok(())
    }

    /// Returns the blocks of joined variable `number` in a file.
    fn blocks_of(&self, file: usize, number: usize) -> Result<StoredBlocks> {
        let (form, place) = (self.form(file, number), &self.files[file].variables[number]);
        Ok(match (&form.array.storage, &place.chunks) {
            (ForeignStorage::Empty, _) => StoredBlocks::Absent,
            (ForeignStorage::Compact { .. }, _) => StoredBlocks::Inside,
            (ForeignStorage::Chunked { .. }, Some(table)) => StoredBlocks::Table(table.clone()),
            (ForeignStorage::Chunked { .. }, None) => {
                let object = self.object(file)?;
                let table = self.table((file, number), form, &*object)?;
                StoredBlocks::Table(table.unwrap_or_default())
            }
            _ => StoredBlocks::At(place.at),
        })
    }
}
