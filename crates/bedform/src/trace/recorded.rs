//! What reads of lists and points selected, once for each content, beside the trace of a process.
//!
//! A read pays for a hash of its positions, and the first of each content for their encoding. What an earlier run
//! has recorded and `learn` has kept is not recorded again.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use bedform_format::trace::selection::{POSITIONS_MAX, SelectedAxis, TracedSelection};
use bedform_geometry::{AxisSelection, Points, Selection};

use super::form::{range_of, traced_range};
use super::keeping::kept_hashes;
use super::make_room;
use crate::sidecar::Sidecar;

/// The directory of what processes have recorded, in a sidecar.
pub(super) const RECORDED: &str = "recorded-selections";
/// Bytes of the selections of one array, as they are encoded.
pub(super) const ARRAY_BYTES_MAX: u64 = 64 << 20;
/// Bytes of all selections that are recorded of a source, and of all that are kept: an eighth of its traces.
pub(super) const SELECTIONS_BYTES_MAX: u64 = super::ALL_BYTES_MAX / 8;
/// Files of selections of a source.
const FILES_MAX: usize = 10_000;
/// Selections that a process tells apart; of further ones the boxes alone are recorded.
const HASHES_MAX: usize = 1 << 16;
/// Bytes that wait to be written.
const WAITING_BYTES_MAX: usize = 8 << 20;

/// The selection of a read as it is recorded; nothing for boxes, whose axes say all, and for unions of boxes.
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

/// The selection that was recorded; nothing for one that none can be.
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

/// What a process has recorded of the selections of one source.
#[derive(Debug)]
pub(super) struct Recorded {
    sidecar: Sidecar,
    /// Its path in the sidecar.
    file: String,
    /// Content hashes of what need not be recorded; nothing before the first list is read.
    known: Option<HashSet<u64>>,
    /// By the arrays' paths.
    bytes: HashMap<Box<str>, u64>,
    /// Bytes of all of them, written or not.
    all_bytes: u64,
    waiting: Vec<u8>,
}

impl Recorded {
    /// Beside the trace `name`.
    pub(super) fn new(sidecar: Sidecar, name: &str) -> Self {
        let (bytes, waiting) = (HashMap::new(), Vec::new());
        let file = format!("{RECORDED}/{name}");
        Self { sidecar, file, known: None, bytes, all_bytes: 0, waiting }
    }

    /// True the first time that a selection of this content is read, of an array of whose selections there is still
    /// room for more.
    pub(super) fn wants(&mut self, path: &str, hash: u64, positions: usize) -> bool {
        let known = self.known.get_or_insert_with(|| kept_hashes(&self.sidecar));
        let has_room = known.len() < HASHES_MAX
            && positions <= POSITIONS_MAX
            && self.all_bytes < SELECTIONS_BYTES_MAX
            && self.bytes.get(path).is_none_or(|bytes| *bytes < ARRAY_BYTES_MAX);
        has_room && known.insert(hash)
    }

    /// Takes an encoded selection.
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

    /// Writes what waits.
    pub(super) fn flush(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        make_room(&self.sidecar, RECORDED, SELECTIONS_BYTES_MAX, FILES_MAX);
        // What cannot be written is not kept.
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
        let mut recorded = Recorded::new(sidecar.clone(), "trace");
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
