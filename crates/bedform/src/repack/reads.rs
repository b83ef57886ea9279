//! The reads of a mix at a few places, as plans price them.

use bedform_geometry::{AxisRange, AxisSelection, Selection};

use crate::error::Result;
use crate::layout::{Read, ReadMix};
use crate::plan::price::Price;

/// Places at which a read is priced, as shares of the room that it has along each axis.
const PLACES: [f64; 3] = [0.17, 0.5, 0.83];

/// A kind of read, with its share of all reads.
pub(super) struct PlacedRead {
    pub(super) weight: f64,
    selections: Vec<Selection>,
}

impl PlacedRead {
    /// Returns the mean seconds over the places, cold and cached.
    ///
    /// # Errors
    /// Those of `price`.
    pub(super) fn mean(
        &self,
        mut price: impl FnMut(&Selection) -> Result<Price>,
    ) -> Result<(f64, f64)> {
        let (mut cold, mut cached) = (0.0, 0.0);
        for selection in &self.selections {
            let price = price(selection)?;
            cold += price.seconds;
            cached += price.cached_seconds;
        }
        let count = self.selections.len().max(1) as f64;
        Ok((cold / count, cached / count))
    }
}

/// Returns the reads of a mix in an array of `shape`, at a few places each.
pub(super) fn placed(mix: &ReadMix, shape: &[u64]) -> Vec<PlacedRead> {
    let total: f64 = mix.reads.iter().map(|(_, weight)| weight).sum();
    let placed = mix.reads.iter().map(|(read, weight)| PlacedRead {
        weight: weight / total,
        selections: selections_of(read, shape),
    });
    placed.collect()
}

fn selections_of(read: &Read, shape: &[u64]) -> Vec<Selection> {
    let widths: Vec<u64> = match read {
        Read::Selection(selection) => return vec![selection.clone()],
        Read::Everything => shape.to_vec(),
        Read::Box { shape: widths } => {
            widths.iter().zip(shape).map(|(width, length)| *width.min(length)).collect()
        }
        Read::Axes { spanned } => {
            let width = |(axis, length): (usize, &u64)| {
                if spanned.contains(&axis) { *length } else { 1 }
            };
            shape.iter().enumerate().map(width).collect()
        }
    };
    let at = |share: f64| -> Option<Selection> {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let axis = |(width, length): (&u64, &u64)| {
            let start = (length.saturating_sub(*width) as f64 * share) as u64;
            AxisRange::new(start, 1, *width).ok().map(AxisSelection::Range)
        };
        let axes: Option<_> = widths.iter().zip(shape).map(axis).collect();
        axes.map(Selection::Orthogonal)
    };
    let mut selections: Vec<Selection> = PLACES.iter().filter_map(|share| at(*share)).collect();
    selections.dedup();
    selections
}
