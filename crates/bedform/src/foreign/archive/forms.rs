//! Forms: the common properties of variables of many files, each kept once.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bedform_format::archive::ArchivedVariable;
use bedform_format::chunk_map::{ChunkMap, ForeignArray, ForeignEncoding, ForeignStorage};

use super::examine::ExaminedFileMap;
use super::meaning::MEANINGS;
use crate::error::{Error, ErrorKind, Result};
use crate::foreign::attributes::dimension_names;

/// The forms of the variables that the first file has.
#[derive(Debug, Default)]
pub(super) struct Forms {
    pub(super) first: FirstVariables,
    pub(super) all: Vec<FoundForm>,
    numbers: HashMap<String, u32>,
    /// Variables that the first file lacks: the lowest number of a file that has each, and its
    /// dimensions there.
    pub(super) others: BTreeMap<String, (usize, Vec<String>)>,
}

/// The numbers of the variables of the first file, by their paths.
#[derive(Debug, Clone, Default)]
pub(super) struct FirstVariables(Arc<HashMap<String, usize>>);

/// A form that may be known already.
pub(super) struct FormCandidate {
    array: ForeignArray,
    /// The number of the variable, and a text that identifies the form among others of it; `None`
    /// if the first file lacks it.
    known: Option<(usize, String)>,
}

/// A form, and the first file with it.
#[derive(Debug)]
pub(super) struct FoundForm {
    pub(super) array: ForeignArray,
    pub(super) variable: usize,
    pub(super) file: usize,
}

/// The variables of one file, in the order of the first file's; `None` for those that it lacks.
pub(super) type FileVariables = Vec<Option<ArchivedVariable>>;

impl FirstVariables {
    /// Prepares a form for [`Forms::number`], so that this work is done without the lock on the
    /// forms of all files.
    ///
    /// # Errors
    /// `Corrupt` for a variable that cannot be described.
    pub(super) fn candidate(&self, array: ForeignArray) -> Result<FormCandidate> {
        let Some(&variable) = self.0.get(&array.path) else {
            return Ok(FormCandidate { array, known: None });
        };
        let text = serde_json::to_string(&array)
            .map_err(|error| Error::new(ErrorKind::Corrupt, format!("{}: {error}", array.path)))?;
        Ok(FormCandidate { array, known: Some((variable, text)) })
    }

    /// Returns the variables of a file, each as a form and its place.
    ///
    /// # Errors
    /// As [`FirstVariables::candidate`].
    pub(super) fn described(
        &self,
        examined: ExaminedFileMap,
    ) -> Result<Vec<(FormCandidate, ArchivedVariable)>> {
        let variables = examined.map.arrays.into_iter().zip(examined.datasets);
        let described = variables.map(|(array, address)| {
            let (form, place) = form_of(array, address);
            Ok((self.candidate(form)?, place))
        });
        described.collect()
    }
}

impl Forms {
    /// Makes the forms of files whose first one has this chunk map.
    pub(super) fn of_first(map: &ChunkMap) -> Self {
        let paths = map.arrays.iter().map(|array| array.path.clone());
        Self { first: FirstVariables(Arc::new(paths.zip(0..).collect())), ..Self::default() }
    }

    /// Returns the number of a form, which is added if it is new; `None` for a variable that the
    /// first file lacks.
    pub(super) fn number(&mut self, form: FormCandidate, file: usize) -> Option<u32> {
        let FormCandidate { array, known } = form;
        let Some((variable, text)) = known else {
            let dimensions = dimension_names(&array);
            let known = self.others.entry(array.path).or_insert_with(|| (file, dimensions.clone()));
            if file < known.0 {
                *known = (file, dimensions);
            }
            return None;
        };
        if let Some(&number) = self.numbers.get(&text) {
            let known = &mut self.all[number as usize];
            known.file = known.file.min(file);
            return Some(number);
        }
        let number = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        self.numbers.insert(text, number);
        self.all.push(FoundForm { array, variable, file });
        Some(number)
    }

    /// Returns the variables of file number `file`.
    pub(super) fn take(
        &mut self,
        described: Vec<(FormCandidate, ArchivedVariable)>,
        file: usize,
    ) -> FileVariables {
        let mut found: FileVariables = vec![None; self.first.0.len()];
        for (form, mut place) in described {
            let at = form.known.as_ref().map(|(variable, _)| *variable);
            if let (Some(number), Some(at)) = (self.number(form, file), at) {
                place.form = number;
                found[at] = Some(place);
            }
        }
        found
    }
}

/// Splits a variable into a form and its place; `address` is that of its dataset if its chunks are
/// not known.
fn form_of(array: ForeignArray, address: Option<u64>) -> (ForeignArray, ArchivedVariable) {
    let (mut form, mut place) = array.into_form();
    if let (Some(address), ForeignStorage::Chunked { .. }) = (address, &form.storage) {
        place = ArchivedVariable { at: address, ..ArchivedVariable::default() };
    }
    form.attributes.retain(|(name, _)| MEANINGS.contains(&name.as_str()));
    let enumeration = form.encoding.enumeration.take();
    form.encoding = ForeignEncoding { enumeration, ..ForeignEncoding::default() };
    (form, place)
}
