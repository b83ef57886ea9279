//! The choice of the dimension along which files are joined, and the check that the files fit
//! together.

use std::collections::BTreeSet;
use std::path::Path;

use bedform_format::chunk_map::{ForeignArray, ForeignStorage};

use super::forms::{FileVariables, Forms, FoundForm};
use super::meaning::{MEANINGS, meaning, shown};
use super::place::ArchiveFiles;
use crate::error::{Error, ErrorKind, Result};
use crate::foreign::attributes::dimension_names;

const SAY_WHICH: &str = "say along which one they are joined, with concat_dim";

/// A comparison of examined files with the first one.
pub(super) struct Agreement<'a> {
    /// The variables of the first file.
    pub(super) first: &'a [ForeignArray],
    pub(super) forms: &'a Forms,
    pub(super) places: &'a ArchiveFiles,
}

/// An examined file: its number, its variables, and the reason why it does not fit, if one is
/// known.
pub(super) type ExaminedFile<'a> = (usize, &'a FileVariables, Option<&'a String>);

/// Returns the one dimension that can grow in the file at `path`; `None` if none can.
///
/// # Errors
/// `InvalidArgument` for several.
pub(super) fn unlimited_dimension(first: &[ForeignArray], path: &Path) -> Result<Option<String>> {
    let axes = first
        .iter()
        .flat_map(|array| dimension_names(array).into_iter().zip(array.unlimited.clone()));
    let found = axes.filter(|(_, is_unlimited)| *is_unlimited).map(|(name, _)| name).collect();
    only_one(found, "several dimensions can grow:", &path.display().to_string())
}

/// Returns the only one of several candidate dimensions; `None` if there is none.
///
/// # Errors
/// `InvalidArgument` names the candidates.
pub(super) fn only_one(
    mut candidates: BTreeSet<String>,
    why: &str,
    files: &str,
) -> Result<Option<String>> {
    if candidates.len() < 2 {
        return Ok(candidates.pop_first());
    }
    let names = Vec::from_iter(candidates).join(", ");
    Err(Error::invalid(format!("{files}: {why} {names}: {SAY_WHICH}")))
}

/// Returns the error for files whose joined dimension cannot be determined.
pub(super) fn no_dimension(path: &Path) -> Error {
    Error::invalid(format!(
        "{}: the files differ in no dimension and none can grow: {SAY_WHICH}",
        path.display()
    ))
}

fn axis_of(array: &ForeignArray, dimension: &str) -> Option<usize> {
    dimension_names(array).iter().position(|name| name == dimension)
}

/// Returns the number and axis of each variable of the first file, which is at `path`, that has the
/// dimension. Variables that only the library of the format reads are left out.
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

    /// Fails with the first file that differs from the first one, and the difference.
    ///
    /// # Errors
    /// `InvalidArgument` names the file, the variable, and the difference.
    pub(super) fn check(&self, dimension: &str, files: &[ExaminedFile<'_>]) -> Result<()> {
        let forms = self.forms.all.iter();
        let differing =
            forms.filter_map(|form| Some((form.file, 1, self.differs(form, dimension)?)));
        let lacking = files.iter().filter_map(|(file, found, _)| {
            let variable = found.iter().position(Option::is_none)?;
            let array = &self.first[variable];
            let text = format!("has no variable {:?}, which {} has", array.path, self.file(0));
            Some((*file, 1, text))
        });
        let others = self.forms.others.iter().filter_map(|(path, (file, names))| {
            let text = format!("has a variable {path:?}, which {} lacks", self.file(0));
            names.iter().any(|name| name == dimension).then_some((*file, 1, text))
        });
        // A known reason says more than the attributes in which the files then differ.
        let found = files.iter().filter_map(|(file, _, known)| Some((*file, 0, (*known)?.clone())));
        let first = differing.chain(lacking).chain(others).chain(found).min();
        first.map_or(Ok(()), |(file, _, how)| {
            Err(Error::invalid(format!("{}: {how}", self.file(file))))
        })
    }

    /// Returns the first difference between the form of a joined variable and that of the first
    /// file.
    fn differs(&self, form: &FoundForm, dimension: &str) -> Option<String> {
        let (first, array) = (&self.first[form.variable], &form.array);
        let path = &first.path;
        let of_first = self.file(0);
        let (names, own) = (dimension_names(first), dimension_names(array));
        if !names.iter().chain(&own).any(|name| name == dimension) {
            return None;
        }
        if names != own {
            let (names, own) = (names.join(", "), own.join(", "));
            return Some(format!("{path:?} has the dimensions ({own}), in {of_first} ({names})"));
        }
        for (axis, name) in names.iter().enumerate() {
            let (length, own) = (first.shape[axis], array.shape[axis]);
            if length != own && name != dimension {
                return Some(format!("{path:?} has {own} along {name}, in {of_first} {length}"));
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

/// Returns true for a variable that only the library of its format reads.
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
