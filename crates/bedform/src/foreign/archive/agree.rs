//! Which dimension files are joined along, and whether they fit together.

use std::collections::BTreeSet;
use std::path::Path;

use bedform_format::chunk_map::{ForeignArray, ForeignStorage};
use serde_json::Value;

use super::forms::{FileVariables, Forms, FoundForm, MEANINGS};
use super::place::ArchiveFiles;
use crate::error::{Error, ErrorKind, Result};
use crate::foreign::attributes::{Style, dimension_names, group_attributes};

/// What is to be found out of files that were examined.
pub(super) struct Agreement<'a> {
    /// The variables of the first file.
    pub(super) first: &'a [ForeignArray],
    pub(super) forms: &'a Forms,
    pub(super) places: &'a ArchiveFiles,
}

fn axis_of(array: &ForeignArray, dimension: &str) -> Option<usize> {
    dimension_names(array).iter().position(|name| name == dimension)
}

/// The numbers of the variables of the first file, which is at `path`, that have the dimension, with its axis, but
/// those that the library of the format alone reads.
///
/// # Errors
/// `InvalidArgument` if there is none; `Unsupported` for one that has it twice.
pub(super) fn joined_axes(
    first: &[ForeignArray],
    dimension: &str,
    path: &Path,
) -> Result<Vec<(usize, usize)>> {
    let mut joined = Vec::new();
    let mut has_dimension = false;
    for (number, array) in first.iter().enumerate() {
        let Some(axis) = axis_of(array, dimension) else { continue };
        has_dimension = true;
        if is_native(array) {
            continue;
        }
        if dimension_names(array).iter().filter(|name| *name == dimension).count() > 1 {
            let text = format!("{:?} has the dimension {dimension:?} twice", array.path);
            return Err(Error::new(ErrorKind::Unsupported, text).at(path.display()));
        }
        joined.push((number, axis));
    }
    if has_dimension {
        return Ok(joined);
    }
    let known: BTreeSet<_> = first.iter().flat_map(dimension_names).collect();
    let known: Vec<_> = known.into_iter().collect();
    Err(Error::invalid(format!(
        "{}: no variable has the dimension {dimension:?}; they have {}; along a new one \
         xr.open_mfdataset joins files",
        path.display(),
        known.join(", ")
    )))
}

impl Agreement<'_> {
    fn file(&self, number: usize) -> String {
        self.places.files[number].path.display().to_string()
    }

    /// The dimension along which the files are joined, if nobody says it: the one in which they differ, else the
    /// one that can grow.
    ///
    /// # Errors
    /// `InvalidArgument` where it is not clear.
    pub(super) fn dimension(&self) -> Result<String> {
        let mut differing = BTreeSet::new();
        for form in &self.forms.all {
            let first = &self.first[form.variable];
            let names = dimension_names(first);
            if names == dimension_names(&form.array) {
                let axes = first.shape.iter().zip(&form.array.shape).zip(names);
                differing.extend(axes.filter(|((a, b), _)| a != b).map(|(_, name)| name));
            }
        }
        let unlimited = || {
            let axes = self
                .first
                .iter()
                .flat_map(|array| dimension_names(array).into_iter().zip(array.unlimited.clone()));
            axes.filter(|(_, is_unlimited)| *is_unlimited).map(|(name, _)| name).collect()
        };
        let is_by_length = !differing.is_empty();
        let found: BTreeSet<String> = if is_by_length { differing } else { unlimited() };
        match (found.len(), found.first()) {
            (1, Some(one)) => Ok(one.clone()),
            _ => {
                let names: Vec<_> = found.into_iter().collect();
                let why = match (names.len(), is_by_length) {
                    (0, _) => "the files differ in no dimension and none can grow".to_owned(),
                    (_, true) => format!("the files differ in {}", names.join(", ")),
                    (_, false) => format!("several dimensions can grow: {}", names.join(", ")),
                };
                Err(Error::invalid(format!(
                    "{}: {why}: say along which one they are joined, with concat_dim",
                    self.file(0)
                )))
            }
        }
    }

    /// Fails with the first file that does not fit the first one, and how. `files` are the variables of those that
    /// were examined, by their numbers.
    ///
    /// # Errors
    /// `InvalidArgument` names the file, the variable, and how they differ.
    pub(super) fn check(&self, dimension: &str, files: &[(usize, &FileVariables)]) -> Result<()> {
        let forms = self.forms.all.iter();
        let differing = forms.filter_map(|form| Some((form.file, self.differs(form, dimension)?)));
        let lacking = files.iter().filter_map(|(file, found)| {
            let variable = found.iter().position(Option::is_none)?;
            let array = &self.first[variable];
            // One that is not joined and cannot be read is left to the first file.
            let text = format!("has no variable {:?}, which {} has", array.path, self.file(0));
            Some((*file, text))
        });
        let others = self.forms.others.iter().filter_map(|(path, (file, names))| {
            let text = format!("has a variable {path:?}, which {} lacks", self.file(0));
            names.iter().any(|name| name == dimension).then_some((*file, text))
        });
        let first = differing.chain(lacking).chain(others).min();
        first.map_or(Ok(()), |(file, how)| {
            Err(Error::invalid(format!("{}: {how}", self.file(file))))
        })
    }

    /// How a form differs from that of the first file in what all files must have alike.
    fn differs(&self, form: &FoundForm, dimension: &str) -> Option<String> {
        let (first, array) = (&self.first[form.variable], &form.array);
        let path = &first.path;
        let of_first = self.file(0);
        let (names, own) = (dimension_names(first), dimension_names(array));
        if names != own {
            let (names, own) = (names.join(", "), own.join(", "));
            return Some(format!("{path:?} has the dimensions ({own}), in {of_first} ({names})"));
        }
        let is_joined = names.iter().any(|name| name == dimension);
        for (axis, name) in names.iter().enumerate() {
            let (length, own) = (first.shape[axis], array.shape[axis]);
            if length != own && name != dimension {
                let that = if is_joined { "" } else { ", which is not joined," };
                return Some(format!(
                    "{path:?}{that} has {own} along {name}, in {of_first} {length}"
                ));
            }
        }
        if is_native(first) != is_native(array) {
            let (of, not) = if is_native(array) { ("is", "not") } else { ("is not", "it is") };
            return Some(format!(
                "{path:?} {of} for the library of its format alone to read, in {of_first} {not}"
            ));
        }
        let is_same = first.data_type == array.data_type
            && first.encoding.enumeration == array.encoding.enumeration;
        if !is_same {
            let (is, was) = (type_of(array), type_of(first));
            return Some(format!("{path:?} holds {is}, in {of_first} {was}"));
        }
        if !is_joined {
            return None;
        }
        MEANINGS.iter().find_map(|name| {
            let (of, own) = (meaning(first, name), meaning(array, name));
            (of != own).then(|| {
                let (of, own) = (shown(of.as_ref()), shown(own.as_ref()));
                format!(
                    "{path:?} has the attribute {name} {own}, in {of_first} {of}: its values do \
                     not mean the same"
                )
            })
        })
    }
}

/// True for a variable that only the library of its format reads.
pub(super) fn is_native(array: &ForeignArray) -> bool {
    let is_sized = array.data_type.and_then(bedform_format::DataType::item_size).is_some();
    matches!(array.storage, ForeignStorage::Native { .. }) || !is_sized
}

fn type_of(array: &ForeignArray) -> String {
    match (array.data_type, &array.encoding.enumeration) {
        (Some(data_type), None) => data_type.to_string(),
        (Some(data_type), Some(_)) => format!("an enumeration of {data_type}"),
        (None, _) => "elements without a type of fixed size".to_owned(),
    }
}

/// The value of an attribute, whatever its byte order, and whether one number is a list or not.
fn meaning(array: &ForeignArray, name: &str) -> Option<Value> {
    let (_, attribute) = array.attributes.iter().find(|(own, _)| own == name)?;
    let only = [(name.to_owned(), attribute.clone())];
    let value = group_attributes(&only, Style::H5netcdf).remove(name)?;
    Some(match value {
        Value::Array(list) if list.len() == 1 => list.into_iter().next().unwrap_or_default(),
        other => other,
    })
}

fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "missing".to_owned(), Value::to_string)
}
