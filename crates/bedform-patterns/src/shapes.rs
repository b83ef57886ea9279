//! The shapes of rows of interleaved walks: the step within a row, its length, and the step between
//! rows.
//!
//! Workers that walk the tiles of an array together each take a row, then another free one. So a
//! row that is nearly complete is followed by the first free row at the step between rows.

use std::collections::VecDeque;

use crate::fingerprint::{Divider, PlaceFingerprint};
use crate::walker::Walker;
use crate::{Level, Place, Step, Walk};

/// Largest number of known shapes.
const SHAPES_MAX: usize = 8;
/// Largest number of remembered rows.
const ROWS_MAX: usize = 64;
/// Number of rows whose lengths are compared.
const COMPARED: usize = 8;
/// Number of following rows among which a free one is searched.
const ROWS_AHEAD: u64 = 64;

/// A row that was started.
#[derive(Debug, Clone)]
struct StartedRow {
    step: PlaceFingerprint,
    start: Place,
    fingerprint: PlaceFingerprint,
    /// Its length, once it has ended.
    length: Option<u64>,
}

/// The rows with one step.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    step: Step,
    fingerprint: PlaceFingerprint,
    length: Option<u64>,
    rows: Option<(Step, Divider)>,
    /// False while predicted rows fail to come.
    is_followed: bool,
    newest: Place,
}

/// A row that may start: its start, step and length.
#[derive(Debug, Clone)]
pub(crate) struct NextRow {
    pub(crate) start: Place,
    pub(crate) step: Step,
    pub(crate) length: u64,
}

/// All shapes, and the rows from which they were learned.
#[derive(Debug, Clone, Default)]
pub(crate) struct RowShapes {
    shapes: VecDeque<Shape>,
    rows: VecDeque<StartedRow>,
}

impl RowShapes {
    /// Learns from a pattern of ordered accesses.
    pub(crate) fn learn(&mut self, walk: &Walk) {
        let [row, above @ ..] = walk.levels.as_slice() else { return };
        let length = (!above.is_empty()).then_some(row.count);
        let shape = self.shape(&row.step, &walk.start);
        shape.length = length.or(shape.length);
        if let Some(above) = above.first() {
            shape.rows =
                Divider::new(above.step.fingerprint()).map(|divider| (above.step.clone(), divider));
            shape.is_followed = true;
        }
    }

    /// Returns true if rows with this step are known.
    pub(crate) fn knows(&self, step: PlaceFingerprint) -> bool {
        self.find(step).is_some()
    }

    /// Returns the length of rows with this step.
    pub(crate) fn length(&self, step: PlaceFingerprint) -> Option<u64> {
        self.find(step)?.length
    }

    /// Records a row that was started.
    pub(crate) fn begin(&mut self, walker: &Walker) {
        if self.is_begun(walker.step_fingerprint, walker.start_fingerprint) {
            return;
        }
        self.keep_row(walker);
        let before = self
            .find(walker.step_fingerprint)
            .and_then(|shape| walker.start.before(&shape.rows.as_ref()?.0));
        let is_behind = before
            .is_some_and(|before| self.is_begun(walker.step_fingerprint, before.fingerprint()));
        if let Some(shape) = self.find_mut(walker.step_fingerprint) {
            shape.newest.clone_from(&walker.start);
            shape.is_followed |= is_behind;
        }
        self.find_rows(walker.step_fingerprint);
    }

    fn keep_row(&mut self, walker: &Walker) {
        if self.rows.len() >= ROWS_MAX {
            self.rows.pop_front();
        }
        self.rows.push_back(StartedRow {
            step: walker.step_fingerprint,
            start: walker.start.clone(),
            fingerprint: walker.start_fingerprint,
            length: None,
        });
    }

    /// Moves the start of a row to an earlier place.
    pub(crate) fn begin_before(&mut self, start: PlaceFingerprint, walker: &Walker) {
        let row = self
            .rows
            .iter_mut()
            .find(|row| row.fingerprint == start && row.step == walker.step_fingerprint);
        if let Some(row) = row {
            row.start.clone_from(&walker.start);
            row.fingerprint = walker.start_fingerprint;
        }
    }

    /// Records the length of a row that has ended. The greatest length that two recent rows share
    /// becomes the length of the shape.
    pub(crate) fn end(&mut self, walker: &Walker) {
        let (step, start) = (walker.step_fingerprint, walker.start_fingerprint);
        if !self.is_begun(step, start) {
            self.keep_row(walker);
        }
        let mut rows = self.rows.iter_mut().filter(|row| row.step == step);
        if let Some(row) = rows.find(|row| row.fingerprint == start) {
            row.length = Some(walker.reached);
        }
        let ended =
            self.rows.iter().rev().filter(|row| row.step == step).filter_map(|row| row.length);
        let lengths: Vec<u64> = ended.take(COMPARED).collect();
        let twice =
            lengths.iter().enumerate().filter(|(at, length)| lengths[at + 1..].contains(length));
        if let Some(length) = twice.map(|(_, length)| *length).max() {
            self.shape(&walker.step, &walker.start).length = Some(length);
            self.find_rows(step);
        }
    }

    /// Forgets the length of rows with this step, since one was longer.
    pub(crate) fn forget_length(&mut self, step: PlaceFingerprint) {
        if let Some(shape) = self.find_mut(step) {
            shape.length = None;
        }
        self.rows.iter_mut().filter(|row| row.step == step).for_each(|row| row.length = None);
    }

    /// Records that a predicted row did not come; further rows are then not predicted.
    pub(crate) fn forget_row(&mut self, walker: &Walker) {
        let (step, start) = (walker.step_fingerprint, walker.start_fingerprint);
        self.rows.retain(|row| row.step != step || row.fingerprint != start);
        if let Some(shape) = self.find_mut(step) {
            shape.is_followed = false;
        }
    }

    /// Returns the free rows that follow the row at `start`, nearest first.
    pub(crate) fn free_rows(
        &self,
        step: PlaceFingerprint,
        start: &Place,
    ) -> impl Iterator<Item = NextRow> + '_ {
        let shape = self.find(step).filter(|shape| shape.is_followed);
        let shape = shape.and_then(|shape| Some((shape, shape.length?, shape.rows.as_ref()?)));
        let start = start.clone();
        let rows = shape.into_iter().flat_map(move |(shape, length, (by, _))| {
            let mut start = start.clone();
            (0..ROWS_AHEAD).map_while(move |_| {
                start = start.after(by)?;
                Some(NextRow { start: start.clone(), step: shape.step.clone(), length })
            })
        });
        rows.filter(move |row| !self.is_begun(step, row.start.fingerprint()))
    }

    /// Returns the row that starts at a place, if it is near the newest row of a shape.
    pub(crate) fn row_at(&self, place: &Place, fingerprint: PlaceFingerprint) -> Option<NextRow> {
        let near = |shape: &&Shape| {
            let steps = shape.rows.as_ref().and_then(|(_, divider)| {
                divider.steps(fingerprint.wrapping_sub(shape.newest.fingerprint()))
            });
            shape.is_followed
                && steps.is_some_and(|steps| steps.unsigned_abs() <= ROWS_AHEAD)
                && !self.is_begun(shape.fingerprint, fingerprint)
        };
        let shape = self.shapes.iter().find(near)?;
        Some(NextRow { start: place.clone(), step: shape.step.clone(), length: shape.length? })
    }

    /// Returns the walks that the recent rows form.
    pub(crate) fn walks(&self) -> impl Iterator<Item = Walk> + '_ {
        self.shapes
            .iter()
            .filter_map(|shape| Some((shape, shape.length?, &shape.rows.as_ref()?.0)))
            .flat_map(|(shape, length, by)| {
                let is_row = |place: &Place| self.is_begun(shape.fingerprint, place.fingerprint());
                let own = self.rows.iter().filter(|row| row.step == shape.fingerprint);
                let firsts = own
                    .filter(move |row| !row.start.before(by).is_some_and(|before| is_row(&before)));
                firsts.filter_map(move |first| {
                    let next = |row: &Place| row.after(by).filter(is_row);
                    let rows = std::iter::successors(Some(first.start.clone()), next)
                        .take(ROWS_MAX)
                        .count();
                    let row = Level { step: shape.step.clone(), count: length };
                    let levels = vec![row, Level { step: by.clone(), count: rows as u64 }];
                    (rows > 2).then(|| Walk { start: first.start.clone(), levels })
                })
            })
    }

    fn is_begun(&self, step: PlaceFingerprint, start: PlaceFingerprint) -> bool {
        self.rows.iter().any(|row| row.fingerprint == start && row.step == step)
    }

    fn find(&self, step: PlaceFingerprint) -> Option<&Shape> {
        self.shapes.iter().find(|shape| shape.fingerprint == step)
    }

    fn find_mut(&mut self, step: PlaceFingerprint) -> Option<&mut Shape> {
        self.shapes.iter_mut().find(|shape| shape.fingerprint == step)
    }

    /// Returns the shape of a step, made if new, and moves it to the front.
    fn shape(&mut self, step: &Step, start: &Place) -> &mut Shape {
        let fingerprint = step.fingerprint();
        let known = self.shapes.iter().position(|shape| shape.fingerprint == fingerprint);
        let shape = known.and_then(|known| self.shapes.remove(known)).unwrap_or_else(|| Shape {
            step: step.clone(),
            fingerprint,
            length: None,
            rows: None,
            is_followed: false,
            newest: start.clone(),
        });
        self.shapes.truncate(SHAPES_MAX - 1);
        self.shapes.push_front(shape);
        &mut self.shapes[0]
    }

    /// Searches for three rows at equal steps, including the newest, once their length is known;
    /// the shortest step is chosen.
    fn find_rows(&mut self, step: PlaceFingerprint) {
        let Some(shape) = self.find(step).filter(|shape| shape.length.is_some()) else { return };
        let rows: Vec<&StartedRow> = self.rows.iter().filter(|row| row.step == step).collect();
        let known = shape.rows.as_ref().map_or(u64::MAX, |(step, _)| step.distance());
        let shortest = steps_of_three(&rows).min_by_key(Step::distance);
        let found = shortest.filter(|step| step.distance() < known);
        let found = found.and_then(|step| Some((Divider::new(step.fingerprint())?, step)));
        let newest = rows.last().map(|row| row.start.clone());
        if let (Some((divider, by)), Some(newest), Some(shape)) =
            (found, newest, self.find_mut(step))
        {
            (shape.rows, shape.is_followed, shape.newest) = (Some((by, divider)), true, newest);
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let rows = self.rows.iter().map(|row| row.start.heap_bytes());
        let own = size_of::<StartedRow>() * self.rows.capacity()
            + size_of::<Shape>() * self.shapes.capacity();
        let shapes = self.shapes.iter().map(|shape| {
            let above = shape.rows.as_ref().map_or(0, |(step, _)| step.heap_bytes());
            above + shape.step.heap_bytes() + shape.newest.heap_bytes()
        });
        own + rows.sum::<usize>() + shapes.sum::<usize>()
    }
}

/// Returns the steps by which the newest row and two others are equally spaced, from older to
/// newer.
fn steps_of_three(rows: &[&StartedRow]) -> impl Iterator<Item = Step> {
    let (new, others) =
        rows.split_last().map_or((None, &[][..]), |(new, others)| (Some(new), others));
    others.iter().zip(new.into_iter().cycle()).filter_map(|(old, new)| {
        let by = new.fingerprint.wrapping_sub(old.fingerprint);
        let outer = [new.fingerprint.wrapping_add(by), old.fingerprint.wrapping_sub(by)];
        let is_third = others.iter().any(|row| outer.contains(&row.fingerprint));
        (is_third && by != 0).then(|| old.start.step_to(&new.start)).flatten()
    })
}
