//! The order of files by the labels of the joined dimension.

use std::cmp::Ordering;

use bedform_format::archive::{ArchivedFile, CoordinateSpan, SpanKind};

use super::FileOrder;
use super::place::ArchiveFiles;
use crate::error::{Error, Result};

/// Returns true if each file has labels along the joined dimension whose order is known.
pub(super) fn is_labelled(files: &[ArchivedFile]) -> bool {
    files.iter().all(|file| file.span.kind != SpanKind::Unlabeled)
}

/// Returns the numbers of the files in the order of their labels, files without elements last.
/// Without such an order, returns them as they were `given`.
pub(super) fn sorted(files: &[ArchivedFile], given: &[usize]) -> Vec<usize> {
    let has = |kind| files.iter().any(|file| file.span.kind == kind);
    let falls = has(SpanKind::Decreasing);
    let has_one_order =
        is_labelled(files) && !has(SpanKind::Unordered) && !(falls && has(SpanKind::Increasing));
    let mut order: Vec<usize> = (0..files.len()).collect();
    order.sort_by_key(|file| given[*file]);
    if has_one_order {
        order.sort_by(|one, other| by_label(&files[*one].span, &files[*other].span, falls));
    }
    order
}

fn by_label(one: &CoordinateSpan, other: &CoordinateSpan, falls: bool) -> Ordering {
    let order = one.first.total_cmp(&other.first).then(one.last.total_cmp(&other.last));
    match (one.kind == SpanKind::Empty, other.kind == SpanKind::Empty) {
        (false, false) if falls => order.reverse(),
        (false, false) => order,
        (one, other) => one.cmp(&other),
    }
}

/// Fails with the first file at which the labels of the joined dimension cease to rise, or to fall.
///
/// # Errors
/// `InvalidArgument` names the file, its label and that before it.
pub(super) fn check(
    (dimension, units): (&str, Option<&str>),
    files: &[ArchivedFile],
    places: &ArchiveFiles,
    order: FileOrder,
) -> Result<()> {
    let filled =
        files.iter().zip(&places.files).filter(|(file, _)| file.span.kind != SpanKind::Empty);
    let filled: Vec<_> = filled.collect();
    if filled.len() < 2 || !is_labelled(files) {
        return Ok(());
    }
    let units = units.map_or_else(String::new, |units| format!(" {units}"));
    let remedy = match order {
        FileOrder::Given => {
            "change the order of the list, or give a pattern: its files are sorted by it"
        }
        FileOrder::ByCoordinate => "leave out a file, or list them in an order of your own",
    };
    let remedy = format!("{remedy}; compat=\"override\" joins them as they are");
    let mut direction = Ordering::Equal;
    let mut last: Option<(f64, &std::path::Path)> = None;
    for (file, place) in filled {
        let (span, path) = (&file.span, &*place.path);
        if span.kind == SpanKind::Unordered {
            return Err(Error::invalid(format!(
                "{}: {dimension:?} neither rises nor falls throughout the file, or lacks values: it \
                 is not joined with others; compat=\"override\" joins them as they are",
                path.display()
            )));
        }
        let steps = last.map(|(end, _)| (end, span.first)).into_iter();
        for (from, to) in steps.chain([(span.first, span.last)]) {
            let step = to.total_cmp(&from);
            if from == to || direction == Ordering::Equal || step == direction {
                direction = if from == to { direction } else { step };
                continue;
            }
            let before = last.map_or_else(String::new, |(end, path)| {
                format!(", behind {end:?} of {}", path.display())
            });
            return Err(Error::invalid(format!(
                "{}: {dimension:?} goes from {:?} to {:?}{units}{before}: the joined labels would \
                 neither rise nor fall throughout: {remedy}",
                path.display(),
                span.first,
                span.last
            )));
        }
        last = Some((span.last, path));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(kind: SpanKind, first: f64, last: f64) -> ArchivedFile {
        ArchivedFile { span: CoordinateSpan { kind, first, last }, ..ArchivedFile::default() }
    }

    #[test]
    fn files_are_sorted_in_the_direction_in_which_their_labels_go() {
        let rising = |first, last| file(SpanKind::Increasing, first, last);
        let falling = |first, last| file(SpanKind::Decreasing, first, last);
        let one = |at| file(SpanKind::Constant, at, at);
        let empty = || file(SpanKind::Empty, 0.0, 0.0);
        for (files, expected) in [
            (vec![rising(5.0, 7.0), one(2.0), rising(-1.0, 0.0)], [2, 1, 0]),
            (vec![falling(-1.0, -5.0), one(2.0), falling(9.0, 4.0)], [2, 1, 0]),
            (vec![rising(0.0, 1.0), one(2.0), one(3.0)], [0, 1, 2]),
            (vec![empty(), one(2.0), one(1.0)], [2, 1, 0]),
            (vec![rising(5.0, 7.0), falling(2.0, 1.0), one(0.0)], [1, 0, 2]),
            (vec![one(3.0), ArchivedFile::default(), one(1.0)], [1, 0, 2]),
            (vec![one(3.0), file(SpanKind::Unordered, 0.0, 0.0), one(1.0)], [1, 0, 2]),
            (vec![one(3.0), one(3.0), one(3.0)], [1, 0, 2]),
        ] {
            assert_eq!(sorted(&files, &[7, 5, 9]), expected);
        }
    }
}
