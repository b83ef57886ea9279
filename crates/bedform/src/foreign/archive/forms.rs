//! Forms: what variables of many files have in common, each kept once.

use std::collections::{BTreeMap, HashMap};

use bedform_format::archive::ArchivedVariable;
use bedform_format::chunk_map::{ChunkMap, Encoding, ForeignArray, ForeignStorage};

use super::examine::Examined;
use crate::error::{Error, ErrorKind, Result};
use crate::foreign::attributes::dimension_names;

/// Attributes by which stored values become what they mean: files that differ in them cannot be read as one.
pub(super) const MEANINGS: [&str; 7] =
    ["units", "calendar", "scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned"];

/// The forms of the variables that the first file has.
#[derive(Debug, Default)]
pub(super) struct Forms {
    /// The variables of the first file, by their paths.
    variables: HashMap<String, usize>,
    pub(super) all: Vec<FoundForm>,
    numbers: HashMap<String, u32>,
    /// Variables that the first file lacks: the first file that has each, and its dimensions there.
    pub(super) others: BTreeMap<String, (usize, Vec<String>)>,
}

/// A form, and the first file with it.
#[derive(Debug)]
pub(super) struct FoundForm {
    pub(super) array: ForeignArray,
    pub(super) variable: usize,
    pub(super) file: usize,
}

/// The variables of one file, in the order of the first file's; nothing for those that it lacks.
pub(super) type Found = Vec<Option<ArchivedVariable>>;

impl Forms {
    /// Those of files the first of which has this chunk map.
    pub(super) fn of_first(map: &ChunkMap) -> Self {
        let paths = map.arrays.iter().map(|array| array.path.clone());
        Self { variables: paths.zip(0..).collect(), ..Self::default() }
    }

    /// The number of a form, which is added if it is new; nothing for a variable that the first file lacks.
    ///
    /// # Errors
    /// `Corrupt` for a variable that cannot be described.
    pub(super) fn number(&mut self, form: ForeignArray, file: usize) -> Result<Option<u32>> {
        let Some(&variable) = self.variables.get(&form.path) else {
            let dimensions = dimension_names(&form);
            let known = self.others.entry(form.path).or_insert_with(|| (file, dimensions.clone()));
            if file < known.0 {
                *known = (file, dimensions);
            }
            return Ok(None);
        };
        let text = serde_json::to_string(&form)
            .map_err(|error| Error::new(ErrorKind::Corrupt, format!("{}: {error}", form.path)))?;
        if let Some(&number) = self.numbers.get(&text) {
            let known = &mut self.all[number as usize];
            known.file = known.file.min(file);
            return Ok(Some(number));
        }
        let number = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        self.numbers.insert(text, number);
        self.all.push(FoundForm { array: form, variable, file });
        Ok(Some(number))
    }

    /// The variables of file number `file`.
    ///
    /// # Errors
    /// As [`Forms::number`].
    pub(super) fn take(&mut self, examined: Examined, file: usize) -> Result<Found> {
        let mut found: Found = vec![None; self.variables.len()];
        for (array, address) in examined.map.arrays.into_iter().zip(examined.datasets) {
            let (form, mut place) = form_of(array, address);
            let at = self.variables.get(&form.path).copied();
            if let (Some(number), Some(at)) = (self.number(form, file)?, at) {
                place.form = number;
                found[at] = Some(place);
            }
        }
        Ok(found)
    }
}

/// A variable as a form and its place; `address` is that of its dataset, where its chunks are not known.
fn form_of(array: ForeignArray, address: Option<u64>) -> (ForeignArray, ArchivedVariable) {
    let (mut form, mut place) = array.into_form();
    if let (Some(address), ForeignStorage::Chunked { .. }) = (address, &form.storage) {
        place = ArchivedVariable { at: address, ..ArchivedVariable::default() };
    }
    form.attributes.retain(|(name, _)| MEANINGS.contains(&name.as_str()));
    let enumeration = form.encoding.enumeration.take();
    form.encoding = Encoding { enumeration, ..Encoding::default() };
    (form, place)
}
