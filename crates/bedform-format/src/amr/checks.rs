//! Checks that the parsers of plotfiles share.

use bedform_geometry::BoxList;

use super::error::Result;
use super::text::{TextCursor, excerpt};
use crate::shown::is_hidden;
use crate::{Limits, ObjectPath};

/// Makes a list of boxes for the rank of a box that was read.
pub(super) fn new_list(at: &TextCursor, rank: usize) -> Result<BoxList> {
    BoxList::new(rank).map_err(|error| at.corrupt(error.to_string()))
}

/// Reads the number of components, and checks it.
pub(super) fn read_components(cursor: &mut TextCursor, limits: &Limits) -> Result<u64> {
    let before = *cursor;
    let count = cursor.count("the number of components")?;
    let limit = limits.mesh_components_max;
    if count == 0 {
        return Err(before.expected("a positive number of components"));
    }
    if count > limit {
        return Err(before.limit(format!("{count} components, at most {limit}")));
    }
    Ok(count)
}

/// Checks a number of boxes, which was read at `at`, against the limit and against the rest of the
/// text.
pub(super) fn check_boxes(
    at: &TextCursor,
    cursor: &TextCursor,
    count: u64,
    bytes_each: usize,
    limits: &Limits,
) -> Result {
    let limit = limits.mesh_boxes_max;
    if count == 0 {
        return Err(at.expected("a positive number of boxes"));
    }
    if count > limit {
        return Err(at.limit(format!("{count} boxes, at most {limit}")));
    }
    let left = cursor.rest().len();
    if count.saturating_mul(bytes_each as u64) > left as u64 {
        return Err(at.corrupt(format!("{count} boxes, but {left} bytes of text are left")));
    }
    Ok(())
}

/// Checks a path that the text names, relative to a directory.
pub(super) fn relative_path(at: &TextCursor, name: &[u8]) -> Result<ObjectPath> {
    let refused = |reason: &str| Err(at.corrupt(format!("{reason} in the path {}", excerpt(name))));
    let Ok(text) = std::str::from_utf8(name) else { return refused("bytes that are not UTF-8") };
    if text.chars().any(is_hidden) {
        return refused("a hidden character");
    }
    match ObjectPath::parse(text) {
        Ok(path) if path.is_root() => refused("no name"),
        Ok(path) => Ok(path),
        Err(error) => refused(error.reason),
    }
}
