//! Variables of texts of any length, by our own parser.
//!
//! A read first fetches the elements as raw bytes, by the plan of all arrays. Then it reads the
//! texts that they refer to in the global heaps of the file. Each such read looks up the places of
//! the chunks again.

use std::sync::Arc;

use bedform_format::DataType;
use bedform_format::hdf5::StoredTexts;

use super::tables::{LazyTables, map_of_one};
use super::{ForeignFile, hdf5};
use crate::error::{Error, ErrorKind, Result};

/// A variable of texts.
pub(crate) struct TextVariable<'f> {
    file: &'f ForeignFile,
    path: String,
    /// The file with this variable alone, as raw elements.
    pub(crate) stored: ForeignFile,
}

impl ForeignFile {
    /// Returns the variable of texts at `path`.
    ///
    /// # Errors
    /// `NotFound`; `Unsupported` for a variable that holds no text, or that only the library reads;
    /// `Conflict` if the file has changed; those of the parser.
    pub(crate) fn text_variable(&self, path: &str) -> Result<TextVariable<'_>> {
        if self.archive.is_some() {
            return self.file_of(path)?.text_variable(path);
        }
        let position = self.position(path)?;
        let array = &self.map.arrays[position];
        let address = self.tables.address(position);
        let address = address.filter(|_| array.data_type == Some(DataType::String));
        let address = address.ok_or_else(|| {
            let text = format!("{path:?} of {} is read by its own library", self.name());
            Error::new(ErrorKind::Unsupported, text)
        })?;
        let object = self.object(true)?;
        let reader = self.reader(&*object);
        let stored = hdf5::read_stored_texts(&reader, address, array, self.tables.limits())
            .map_err(|error| self.located(error))?;
        let stored = Self {
            map: Arc::new(map_of_one(&self.map, stored)),
            lookup: Arc::default(),
            tables: Arc::new(LazyTables::default()),
            ..self.clone()
        };
        Ok(TextVariable { file: self, path: path.to_owned(), stored })
    }
}

impl TextVariable<'_> {
    /// Returns the texts that elements of the variable refer to.
    ///
    /// # Errors
    /// `Conflict` if the file has changed; those of the parser.
    pub(crate) fn texts_of(&self, elements: &[u8]) -> Result<StoredTexts> {
        let object = self.file.object(true)?;
        let reader = self.file.reader(&*object);
        hdf5::read_texts(&reader, elements, &self.path, self.file.tables.limits())
            .map_err(|error| self.file.located(error))
    }
}
