//! Validates arguments that Python passes as text: paths, JSON, descriptions.

use bedform::{ErrorKind, NewArray, OpenOptions, size};
use bedform_format::json::JsonError;
use bedform_format::{Limits, ObjectPath, json, shown};
use pyo3::prelude::*;
use pyo3::types::PyString;
use serde_json::{Map, Value};

use crate::error::raise;

/// Parses the path of an array or group.
pub(crate) fn path_of(text: &str) -> PyResult<ObjectPath> {
    ObjectPath::parse(text).map_err(|error| raise(error.into()))
}

/// Parses a JSON object.
pub(crate) fn json_of(text: &str) -> PyResult<Map<String, Value>> {
    let parsed = json::parse_object(text, &Limits::default());
    parsed.map_err(|error| {
        let kind = match error {
            JsonError::Syntax(_) | JsonError::WebPage(_) => ErrorKind::InvalidArgument,
            _ => ErrorKind::LimitExceeded,
        };
        raise(bedform::Error::new(kind, error.to_string()))
    })
}

/// Parses the options of opening a store: see `OpenOptions::from_json`.
pub(crate) fn options(text: &str) -> PyResult<OpenOptions> {
    OpenOptions::from_json(&json_of(text)?).map_err(raise)
}

/// Parses new arrays, each a path and a description in JSON.
pub(crate) fn new_arrays(
    arrays: &[(String, String)],
    options: &OpenOptions,
) -> PyResult<Vec<(ObjectPath, NewArray)>> {
    let described = arrays.iter().map(|(path, text)| {
        let new = NewArray::from_json_with(&Value::Object(json_of(text)?), options);
        Ok((path_of(path)?, new.map_err(raise)?))
    });
    described.collect()
}

/// Parses a size with its unit, and returns it in bytes: see `bedform::size`.
#[pyfunction]
pub(crate) fn parse_size(text: &Bound<'_, PyString>) -> PyResult<u64> {
    size::from_text(&text.to_string_lossy()).map_err(raise)
}

/// Returns a name or value in printable form: see `bedform_format::shown`.
#[pyfunction]
pub(crate) fn printable(text: &str, characters_max: usize) -> String {
    shown::printable(text, characters_max).into_owned()
}

/// Returns the remedy for a system error that a limit of the environment caused; `None` for other
/// errors.
#[pyfunction]
pub(crate) fn limit_behind(errno: i32) -> Option<&'static str> {
    bedform_storage::limit_behind(&std::io::Error::from_raw_os_error(errno))
}

/// Quotes a path for a command in a message: see `bedform_format::shown`.
#[pyfunction]
pub(crate) fn shell_path(path: &str) -> String {
    shown::shell_path(path).into_owned()
}

/// Returns a message in printable form: see `bedform_format::shown`.
#[pyfunction]
pub(crate) fn message(text: String) -> String {
    shown::message(text)
}
