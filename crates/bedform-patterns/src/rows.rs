//! Repeating sequences in the steps between rows (section 2.3.4: starts of structured patterns).

use crate::composed::Composed;
use crate::pattern::{Rows, Sequence};
use crate::{Grower, Place, Walk};

/// Largest number of rows of earlier runs.
const KNOWN_MAX: usize = 8;

/// Rows of equal shape, and the steps between them.
#[derive(Debug, Clone, Default)]
pub(crate) struct RowSteps {
    steps: Composed,
    /// The last row that has started.
    row: Walk,
    /// True while accesses are in that row.
    is_under_way: bool,
    known: Vec<Walk>,
}

impl RowSteps {
    /// Checks if a row has started with an access that the structured pattern did not predict.
    pub(crate) fn follow(&mut self, grower: &Grower, at: Option<&Place>) {
        let Some(row) = grower.row() else { return self.recall(at) };
        self.is_under_way = true;
        let Walk { start, levels } = &mut self.row;
        if *levels != row.levels {
            self.steps.clear();
            *levels = row.levels;
        } else if start == row.start {
            return;
        }
        start.clone_from(row.start);
        match row.before.step_to(row.start) {
            Some(step) => {
                let fingerprint = step.fingerprint();
                self.steps.push(step, fingerprint, row.start);
            }
            None => self.steps.clear(),
        }
    }

    /// Searches for a repeating sequence.
    pub(crate) fn find(&mut self) {
        self.steps.find(&self.row.start);
    }

    /// Returns true if the place is the predicted start of the next row.
    pub(crate) fn is_next(&self, place: &Place) -> bool {
        self.is_under_way && self.steps.is_next(&self.row.start, place)
    }

    /// Returns true if a next row is predicted.
    pub(crate) fn has_next(&self) -> bool {
        self.is_under_way && self.steps.repeats() && self.ahead().next().is_some()
    }

    /// Returns the places of the rows after the current one.
    pub(crate) fn ahead(&self) -> impl Iterator<Item = Place> + '_ {
        let mut row = self.row.clone();
        let steps = self.steps.sequence().cycle().take_while(|_| self.is_under_way);
        let rows = steps.map_while(move |step| {
            row.start = row.start.after(step)?;
            // Empty rows would never end.
            row.place(0).filter(|_| row.count() > 0)?;
            Some(row.clone())
        });
        rows.flat_map(|row| (0..row.count()).map_while(move |number| row.place(number)))
    }

    /// Returns the rows whose steps repeat, if any.
    pub(crate) fn current(&self) -> Option<Rows> {
        let Sequence { start, steps } = self.steps.current()?;
        Some(Rows { row: Walk { start, levels: self.row.levels.clone() }, steps })
    }

    /// Returns the rows of earlier runs.
    pub(crate) fn known(&self) -> impl Iterator<Item = Rows> + '_ {
        self.known.iter().filter_map(|row| {
            let sequence =
                self.steps.known().iter().find(|sequence| sequence.start == row.start)?;
            Some(Rows { row: row.clone(), steps: sequence.steps.clone() })
        })
    }

    /// Adds rows of an earlier run; the following rows are predicted when the first one starts
    /// again.
    pub(crate) fn know(&mut self, rows: Rows) {
        let Rows { row, steps } = rows;
        self.known.retain(|known| known.start != row.start);
        self.known.truncate(KNOWN_MAX - 1);
        self.steps.know(Sequence { start: row.start.clone(), steps });
        self.known.push(row);
    }

    fn recall(&mut self, at: Option<&Place>) {
        let known = self.known.iter().rev().find(|row| Some(&row.start) == at);
        self.is_under_way = known.is_some();
        if let Some(row) = known {
            self.row.clone_from(row);
            self.steps.clear();
            self.steps.recall(&row.start);
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let known = self.known.iter().map(Walk::heap_bytes).sum::<usize>();
        self.steps.heap_bytes()
            + self.row.heap_bytes()
            + known
            + size_of::<Walk>() * self.known.capacity()
    }
}
