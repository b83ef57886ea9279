//! Kinds of reads that no single layout serves well, and the cost of each in a layout of its own.

use serde::Serialize;

use super::advise::{AdviseRequest, NamedRead};
use super::choose::{Priced, Search};
use super::cost::{CostModel, Layout, Read};
use super::report;

/// A layout is good for a read if its time is at most so many times that of the best layout for the
/// read alone.
const GOOD_MAX: f64 = 2.0;
/// The most kinds of reads for which separate layouts are searched.
const KINDS_MAX: usize = 8;

/// The cost of a kind of read in the chosen layout, and in the best layout for it alone.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KindAlone {
    /// The axes or elements that are read, as in [`NamedRead::name`].
    pub name: String,
    /// Predicted seconds in the chosen layout.
    pub seconds: f64,
    /// Predicted seconds in the best layout for this read alone.
    pub alone_seconds: f64,
    /// The best layout for this read alone.
    #[serde(flatten)]
    pub layout: Layout,
}

/// A comparison of one layout for all kinds of reads with separate layouts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Kinds {
    /// Each kind of read alone, in the order of the reads.
    pub alone: Vec<KindAlone>,
    /// The chunk shape that comes nearest to the best for every read, by the read that it serves
    /// worst.
    pub nearest_chunk_shape: Vec<u64>,
    /// For that read, the time with these chunks over the best time.
    pub nearest_ratio: f64,
    /// True if the search was limited to layouts that another reader reads well.
    #[serde(skip)]
    pub(super) is_bound: bool,
}

impl Kinds {
    /// Searches for a layout for each of the reads that a user named, if they are few and more than
    /// one.
    pub(super) fn of(
        request: &AdviseRequest,
        extents: &[u64],
        model: &CostModel,
        search: &Search,
        chosen: &Priced,
        names: &[NamedRead],
    ) -> Option<Self> {
        let is_asked = request.compare_alone && !request.reads.reads.is_empty();
        if !is_asked || !(2..=KINDS_MAX).contains(&search.reads.len()) {
            return None;
        }
        let best = |(read, _): &(Read, f64)| {
            let reads = vec![(read.clone(), 1.0)];
            Search::new(request, extents, model.clone(), reads).run().0
        };
        let mut alone = Vec::with_capacity(search.reads.len());
        for ((read, name), cost) in search.reads.iter().zip(names).zip(&chosen.costs) {
            let best = best(read);
            alone.push(KindAlone {
                name: name.name.clone(),
                seconds: cost.seconds,
                // The search for all reads may have found a layout that is better still.
                alone_seconds: best
                    .costs
                    .first()
                    .map_or(cost.seconds, |own| own.seconds.min(cost.seconds)),
                layout: best.layout,
            });
        }
        let seconds: Vec<f64> = alone.iter().map(|kind| kind.alone_seconds).collect();
        let (nearest_chunk_shape, nearest_ratio) = search.nearest_to(&seconds);
        let is_bound = search.is_bound();
        Some(Self { alone, nearest_chunk_shape, nearest_ratio, is_bound })
    }

    /// Adds notes for the user if a kind of read is far from its best time.
    pub(super) fn note(&self, notes: &mut Vec<String>) {
        let far: Vec<String> = self
            .alone
            .iter()
            .filter(|kind| kind.seconds > GOOD_MAX * kind.alone_seconds)
            .map(|kind| {
                format!(
                    "{} takes {}, {} in chunks of {}",
                    kind.name,
                    report::seconds_text(kind.seconds),
                    report::seconds_text(kind.alone_seconds),
                    report::shape_text(&kind.layout.chunk_shape),
                )
            })
            .collect();
        if far.is_empty() {
            return;
        }
        let nearest = report::shape_text(&self.nearest_chunk_shape);
        notes.push(match self.nearest_ratio > GOOD_MAX {
            true => format!(
                "no layout found{} is within twice the best for every read: chunks of {nearest} \
                 come nearest, {:.1} times it for the worst",
                if self.is_bound { " that zarr-python reads well" } else { "" },
                self.nearest_ratio,
            ),
            false => format!(
                "chunks of {nearest} are within {:.1} times the best for every read, and cost more \
                 by these weights",
                self.nearest_ratio,
            ),
        });
        notes.push(format!("beyond twice the best: {}", far.join("; ")));
    }
}
