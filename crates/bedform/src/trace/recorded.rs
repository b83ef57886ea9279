//! Records the selections of lists and points, each content once, in a file beside the trace of a
//! process.
//!
//! A read pays for a hash of its positions; the first read of each content also for their encoding.
//! A selection that `learn` has already stored is not recorded again.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use bedform_format::trace::selection::{POSITIONS_MAX, SelectedAxis, TracedSelection};
use bedform_geometry::{AxisSelection, Points, Selection};

use super::form::{range_of, traced_range};
use super::keeping::kept_hashes;
use super::make_room;
use crate::sidecar::Sidecar;

/// The directory of the selections that processes have recorded, in a sidecar.
pub(super) const RECORDED: &str = "recorded-selections";
/// The most encoded bytes of the selections of one array.
pub(super) const ARRAY_BYTES_MAX: u64 = 64 << 20;
/// The most bytes of all recorded selections of a source, and of all stored ones: an eighth of its
/// traces.
pub(super) const SELECTIONS_BYTES_MAX: u64 = super::ALL_BYTES_MAX / 8;
/// The most files of recorded selections of a source.
const FILES_MAX: usize = 10_000;
/// The most different selections that a process records; of further ones it records only the box.
const HASHES_MAX: usize = 1 << 16;
/// The waiting bytes at which they are written.
const WAITING_BYTES_MAX: usize = 8 << 20;

/// Returns the selection of a read in its recorded form; `None` for boxes, which their axes
/// describe completely, and for unions of boxes.
pub(super) fn traced(selection: &Selection) -> Option<TracedSelection<'_>> {
    match selection {
        Selection::Orthogonal(axes) => {
            let is_list = |axis: &AxisSelection| matches!(axis, AxisSelection::Coords(_));
            let axes_of = || axes.iter().map(traced_axis).collect();
            axes.iter().any(is_list).then(|| TracedSelection { is_points: false, axes: axes_of() })
        }
        Selection::Points(points) if points.rank() > 0 => {
            let axes = points.coords().iter().map(|positions| list(positions));
            Some(TracedSelection { is_points: true, axes: axes.collect() })
        }
        Selection::Points(_) | Selection::Union(_) => None,
    }
}

fn traced_axis(axis: &AxisSelection) -> SelectedAxis<'_> {
    match axis {
        AxisSelection::Range(range) => SelectedAxis::Range(traced_range(range)),
        AxisSelection::Coords(positions) => list(positions),
    }
}

fn list(positions: &[u64]) -> SelectedAxis<'_> {
    SelectedAxis::List(Cow::Borrowed(positions))
}

/// Returns the selection of a recorded one; `None` for a malformed one.
pub(super) fn selection_of(traced: TracedSelection<'static>) -> Option<Selection> {
    let TracedSelection { is_points, axes } = traced;
    if is_points {
        let list = |axis| match axis {
            SelectedAxis::List(positions) => Some(positions.into_owned()),
            SelectedAxis::Range(_) => None,
        };
        let lists = axes.into_iter().map(list).collect::<Option<Vec<_>>>()?;
        return Points::new(lists).ok().map(Selection::Points);
    }
    let axis = |axis| match axis {
        SelectedAxis::Range(range) => range_of(range),
        SelectedAxis::List(positions) => Some(AxisSelection::Coords(positions.into_owned())),
    };
    axes.into_iter().map(axis).collect::<Option<_>>().map(Selection::Orthogonal)
}

/// The selections of one source that a process has recorded.
#[derive(Debug)]
pub(super) struct SelectionRecorder {
    sidecar: Sidecar,
    /// The path of the file in the sidecar.
    file: String,
    /// Content hashes of stored or recorded selections; `None` before the first list is read.
    known: Option<HashSet<u64>>,
    /// Recorded bytes, by path of the array.
    bytes: HashMap<Box<str>, u64>,
    /// Bytes of all arrays, written or waiting.
    all_bytes: u64,
    waiting: Vec<u8>,
}

impl SelectionRecorder {
    /// Records beside the trace `name`.
    pub(super) fn new(sidecar: Sidecar, name: &str) -> Self {
        let (bytes, waiting) = (HashMap::new(), Vec::new());
        let file = format!("{RECORDED}/{name}");
        Self { sidecar, file, known: None, bytes, all_bytes: 0, waiting }
    }

    /// True for the first read of this content, while the array and the source have room for its
    /// positions.
    pub(super) fn wants(&mut self, path: &str, hash: u64, positions: usize) -> bool {
        let known = self.known.get_or_insert_with(|| kept_hashes(&self.sidecar));
        let has_room = known.len() < HASHES_MAX
            && positions <= POSITIONS_MAX
            && self.all_bytes < SELECTIONS_BYTES_MAX
            && self.bytes.get(path).is_none_or(|bytes| *bytes < ARRAY_BYTES_MAX);
        has_room && known.insert(hash)
    }

    /// Adds an encoded selection to the waiting bytes.
    pub(super) fn keep(&mut self, path: &str, block: &[u8]) {
        let length = block.len() as u64;
        let of_array = match self.bytes.get_mut(path) {
            Some(bytes) => bytes,
            None => self.bytes.entry(path.into()).or_default(),
        };
        if *of_array + length > ARRAY_BYTES_MAX || self.all_bytes + length > SELECTIONS_BYTES_MAX {
            return;
        }
        *of_array += length;
        self.all_bytes += length;
        self.waiting.extend_from_slice(block);
        if self.waiting.len() >= WAITING_BYTES_MAX {
            self.flush();
        }
    }

    /// Writes the waiting bytes.
    pub(super) fn flush(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        make_room(&self.sidecar, RECORDED, SELECTIONS_BYTES_MAX, FILES_MAX);
        // A failed write loses these selections.
        self.sidecar.append(&self.file, &self.waiting);
        self.waiting = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use bedform_geometry::AxisRange;

    use super::*;

    #[test]
    fn selections_of_lists_and_points_are_found_again_and_boxes_are_none() {
        let range =
            |start, step, count| AxisSelection::Range(AxisRange::new(start, step, count).unwrap());
        let rows = AxisSelection::Coords(vec![7, 3, 3]);
        for selection in [
            Selection::Orthogonal(vec![rows.clone(), range(9, -2, 4)]),
            Selection::Orthogonal(vec![rows.clone(), rows]),
            Selection::Points(Points::new(vec![vec![1, 2], vec![4, 4]]).unwrap()),
        ] {
            let recorded = traced(&selection).unwrap();
            let bytes = recorded.encode(recorded.hash()).unwrap();
            let block = bedform_format::trace::selection::selection_blocks(&bytes).next();
            assert_eq!(selection_of(block.unwrap().decode().unwrap()), Some(selection));
        }
        assert!(traced(&Selection::Orthogonal(vec![range(0, 1, 4)])).is_none());
        assert!(traced(&Selection::Points(Points::of_rank_zero(3))).is_none());
    }

    #[test]
    fn each_content_is_recorded_once_while_there_is_room() {
        let place = std::env::temp_dir().join(format!("bedform-recorded-{}", std::process::id()));
        let sidecar = Sidecar::of_path_in(&place.join("s.zarr"), Some(&place)).unwrap().unwrap();
        let mut recorded = SelectionRecorder::new(sidecar.clone(), "trace");
        assert!(recorded.wants("x", 1, 10));
        assert!(!recorded.wants("x", 1, 10));
        // Another array with the same list.
        assert!(!recorded.wants("y", 1, 10));
        assert!(!recorded.wants("x", 2, POSITIONS_MAX + 1));
        recorded.keep("x", &[0; 100]);
        recorded.bytes.insert("x".into(), ARRAY_BYTES_MAX - 10);
        recorded.keep("x", &[0; 11]);
        recorded.flush();
        let file = sidecar.own_directory().unwrap().join(RECORDED).join("trace");
        assert_eq!(std::fs::metadata(&file).unwrap().len(), 100);
        recorded.bytes.insert("x".into(), ARRAY_BYTES_MAX);
        assert!(!recorded.wants("x", 3, 1));
        assert!(recorded.wants("y", 3, 1));
        std::fs::remove_dir_all(&place).unwrap();
    }
}
