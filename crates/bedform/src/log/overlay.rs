//! What lies over an object's chunks.
//!
//! Of each chunk that a read needs, the newest box that a commit wrote is looked at first: it gives
//! what it has, the next one what is still missing, and what is left is read as it is stored, or is the
//! fill value. So nothing is read that something newer hides, and every element goes from its block
//! straight to its place.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bedform_format::log::{TableBlock, TableIndex, TableRecord};
use bedform_geometry::{AxisRange, ChunkGrid, Positions, Region};

use super::blocks::LogCopies;
use super::section::{LoadedSection, Piece};
use super::view::{ArraySection, View};
use crate::error::{Error, Result};
use crate::plan::copy::Target;
use crate::plan::geometry::{ChunkTask, Geometry};
use crate::plan::mask::Mask;
use crate::plan::part::{Part, PartAxis, Ranges, RegularAxis, range_within};
use crate::source::{Cover, Destination, Payloads, Rest, StoredLayout, Uncovered};
use crate::write::elements::fill_outside;

/// Bytes of sections that one overlay holds. Of more it knows where they lie, and asks the store's
/// readers for them.
const HELD_BYTES: u64 = 64 << 20;

/// A section that may touch the object, and what it has once a read has needed it.
#[derive(Debug)]
pub(super) struct Held {
    place: ArraySection,
    section: Mutex<Option<Arc<LoadedSection>>>,
}

impl From<ArraySection> for Held {
    fn from(place: ArraySection) -> Self {
        Self { place, section: Mutex::default() }
    }
}

/// The object that is covered: its array, its box, and the last commit that it contains.
#[derive(Debug)]
pub(super) struct Near {
    pub(super) key: [u8; 16],
    pub(super) start: Vec<u64>,
    pub(super) end: Vec<u64>,
    pub(super) after: u64,
}

/// The sections of one commit.
type OfCommit = Vec<Held>;

/// Commits that follow each other: one whose sections are known, or those of blocks of a table, which a read looks at
/// when what is newer does not cover all that it needs.
#[derive(Debug)]
pub(super) struct Layer {
    blocks: Option<Blocks>,
    /// By commit, the newest first.
    commits: OnceLock<Vec<OfCommit>>,
}

/// Blocks of a table that have parts of one commit, or a single one; the newest first.
#[derive(Debug)]
struct Blocks {
    record: TableRecord,
    index: Arc<TableIndex>,
    blocks: Vec<TableBlock>,
}

impl Layer {
    pub(super) fn of_commit(sections: OfCommit) -> Self {
        Self { blocks: None, commits: OnceLock::from(vec![sections]) }
    }

    /// The layers of blocks of a table, the newest first. What a commit has in several blocks is one layer: its
    /// sections count in an order of their own.
    pub(super) fn of_blocks<'b>(
        record: &TableRecord,
        index: &Arc<TableIndex>,
        blocks: impl Iterator<Item = &'b TableBlock>,
    ) -> Vec<Self> {
        let mut all: Vec<Blocks> = Vec::new();
        for block in blocks {
            let newer = all.last_mut().filter(|newer| {
                newer.blocks.last().is_some_and(|last| last.commits.0 == block.commits.1)
            });
            match newer {
                Some(newer) => newer.blocks.push(block.clone()),
                None => all.push(Blocks {
                    record: record.clone(),
                    index: index.clone(),
                    blocks: vec![block.clone()],
                }),
            }
        }
        let layer = |blocks| Self { blocks: Some(blocks), commits: OnceLock::new() };
        all.into_iter().map(layer).collect()
    }

    /// The commits that may have something of the object, the newest first.
    fn commits(&self, view: &View, near: &Near) -> Result<&[OfCommit]> {
        if let Some(commits) = self.commits.get() {
            return Ok(commits);
        }
        let mut by_commit: Vec<(u64, OfCommit)> = Vec::new();
        if let Some(Blocks { record, index, blocks }) = &self.blocks {
            for block in blocks.iter().rev() {
                let from = (record, &**index, block);
                view.sections_of_block(from, &near.key, near.after, &mut |section| {
                    if section.may_have(&near.start, &near.end) {
                        match by_commit.last_mut().filter(|(last, _)| *last == section.commit) {
                            Some((_, sections)) => sections.push(section.into()),
                            None => by_commit.push((section.commit, vec![section.into()])),
                        }
                    }
                    Ok(())
                })?;
            }
        }
        let commits = by_commit.into_iter().rev().map(|(_, sections)| sections).collect();
        Ok(self.commits.get_or_init(|| commits))
    }
}

/// What is laid over an object: by commit, the newest first, the sections that touch it.
#[derive(Debug)]
pub(crate) struct Overlay {
    view: Arc<View>,
    near: Near,
    layers: Vec<Layer>,
    /// Of the sections that it holds.
    held_bytes: AtomicU64,
    /// The shape from which the first of these commits made the array larger. What is stored outside
    /// was never part of the array.
    base: Option<Vec<u64>>,
    form: Form,
}

/// How the elements of a chunk lie in memory: as they are stored (order of axes, byte order).
#[derive(Debug)]
struct Form {
    grid: ChunkGrid,
    strides: Vec<i64>,
    item_size: usize,
    swap_size: usize,
    fill: Vec<u8>,
}

/// What is left of the parts of a chunk by the masks of its free elements.
fn uncovered(masks: Vec<Mask>) -> Uncovered {
    match () {
        () if masks.iter().all(Mask::is_full) => Uncovered::None,
        () if masks.iter().all(Mask::is_free) => Uncovered::All,
        () => Uncovered::Some(masks),
    }
}

/// A box that has a share in what is read, with what decides which of two counts, in that order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    epoch: u32,
    rank: u32,
    section: usize,
    entry: u32,
    number: usize,
}

impl Overlay {
    /// What `layers` lay over an object of an array that is stored as `layout` says.
    pub(super) fn new(
        view: Arc<View>,
        near: Near,
        layers: Vec<Layer>,
        base: Option<Vec<u64>>,
        layout: &StoredLayout,
    ) -> Self {
        let form = Form {
            grid: layout.grid.clone(),
            strides: layout.codec.strides().to_vec(),
            item_size: layout.item_size,
            swap_size: layout.codec.swap_size(),
            fill: layout.stored_fill(),
        };
        Self { view, near, layers, held_bytes: AtomicU64::new(0), base, form }
    }

    /// Takes the elements outside the array as it was before it grew, and gives them as the free ones.
    fn take_outside(&self, coordinates: &[u64], part: &Part<'_>, mask: &mut Mask) -> Mask {
        let chunk = self.form.grid.chunk_region(coordinates);
        let Some(base) = self.base.as_ref().filter(|base| !is_inside(&chunk, base)) else {
            return Mask::full(part.shape());
        };
        let high: Vec<u64> = base
            .iter()
            .zip(chunk.start())
            .map(|(base, start)| base.saturating_sub(*start))
            .collect();
        let mut outside = mask.clone();
        part.clip(&vec![0; high.len()], &high, |inside| outside.take(inside, &mut |_| ()));
        outside.for_each_free(&mut |ranges| mask.take(ranges, &mut |_| ()));
        outside
    }

    fn take_part(
        &self,
        coordinates: &[u64],
        part: &Part<'_>,
        mask: &mut Mask,
        copies: &mut LogCopies,
    ) -> Result<()> {
        let Some((mut low, mut high)) = part.bounds() else { return Ok(()) };
        let chunk = self.form.grid.chunk_region(coordinates);
        for (axis, start) in chunk.start().iter().enumerate() {
            low[axis] += start;
            high[axis] += start;
        }
        let (regular, mut found) = (part.regular(), Vec::new());
        for layer in &self.layers {
            if mask.is_full() {
                break;
            }
            for commit in layer.commits(&self.view, &self.near)? {
                if mask.is_full() {
                    break;
                }
                let asked = (&chunk, part, &regular);
                self.take_commit(commit, asked, (&low, &high), &mut found, mask, copies)?;
            }
        }
        Ok(())
    }

    /// Takes what a commit has of the free elements of a part, in the box from `low` to `high`.
    fn take_commit(
        &self,
        commit: &OfCommit,
        (chunk, part, regular): (&Region, &Part<'_>, &Option<(Vec<RegularAxis>, i64)>),
        (low, high): (&[u64], &[u64]),
        found: &mut Vec<Found>,
        mask: &mut Mask,
        copies: &mut LogCopies,
    ) -> Result<()> {
        let sections = commit.iter().filter(|held| held.place.may_have(low, high));
        let sections = sections.map(|held| self.load(held)).collect::<Result<Vec<_>>>()?;
        found.clear();
        for (at, section) in sections.iter().enumerate() {
            section.visit(&self.near.key, low, high, &mut |entry, number| {
                let (epoch, rank) = (section.entry(entry).epoch, section.entry(entry).rank);
                found.push(Found { epoch, rank, section: at, entry, number });
                true
            });
        }
        found.sort_unstable();
        for one in found.iter().rev() {
            if mask.is_full() {
                break;
            }
            let section = &sections[one.section];
            let Some(piece) = section.piece(one.entry, one.number, self.form.item_size) else {
                continue;
            };
            let is_done = match regular {
                Some((axes, target)) => {
                    self.take_run(section, piece, (chunk, axes, *target), mask, copies)?
                }
                None => false,
            };
            if !is_done {
                self.take_box(section, piece, (chunk, part), mask, copies)?;
            }
        }
        Ok(())
    }

    /// Takes what a box has of the elements that are still free, if that is one run of elements in
    /// the box, the part and the result: the short way, for logs of very many small boxes. False, and
    /// nothing done, if it is not.
    fn take_run(
        &self,
        section: &LoadedSection,
        piece: Piece<'_>,
        (chunk, axes, target): (&Region, &[RegularAxis], i64),
        mask: &mut Mask,
        copies: &mut LogCopies,
    ) -> Result<bool> {
        let item = self.form.item_size;
        let Ok(mut stride) = i64::try_from(item) else { return Ok(false) };
        let (each, mut target) = (stride, target);
        let Ok(mut source) = i64::try_from(piece.data_start) else { return Ok(false) };
        let (mut start, mut step, mut count) = (0, 1, 1);
        for (at, axis) in axes.iter().enumerate().rev() {
            let (low, high) = piece.within(chunk, at);
            let Some((first, found)) = range_within(&axis.inside, low, high) else {
                return Ok(true);
            };
            let (inside, result) = (axis.inside.get(first), axis.result.get(first));
            let (Some(inside), Some(result)) = (inside, result) else { return Ok(false) };
            let (begin, length) = piece.axis(at);
            // What the box has before this element: less than its length.
            let before = (chunk.start()[at] + inside).wrapping_sub(begin).cast_signed();
            source += before * stride;
            target += result.cast_signed() * axis.target_stride;
            if found > 1 {
                let is_run = count == 1
                    && step == 1
                    && axis.inside.step() * stride == each
                    && axis.result.step() * axis.target_stride == each;
                if !is_run {
                    return Ok(false);
                }
                count = found;
            }
            start += first * step;
            step *= axis.inside.len();
            let longer = i64::try_from(length).ok().and_then(|length| stride.checked_mul(length));
            let Some(longer) = longer else { return Ok(false) };
            stride = longer;
        }
        let mut outcome = Ok(());
        mask.take_run(start, count, &mut |at, count| {
            if outcome.is_ok() {
                let ahead = (at - start).cast_signed() * each;
                outcome = copies.add_run(section, (source + ahead, target + ahead), count, item);
            }
        });
        outcome.map(|()| true)
    }

    /// As [`Overlay::take_run`], for any box and any part.
    fn take_box(
        &self,
        section: &LoadedSection,
        piece: Piece<'_>,
        (chunk, part): (&Region, &Part<'_>),
        mask: &mut Mask,
        copies: &mut LogCopies,
    ) -> Result<()> {
        let item = self.form.item_size;
        let strides = piece.strides();
        let origin = strides.as_ref().and_then(|strides| piece.origin(chunk, strides));
        let origin = origin.ok_or_else(|| {
            let place = section.segment.place_of(section.offset());
            Error::corrupt(place, "a box of more bytes than can be counted")
        })?;
        let (low, high): (Vec<u64>, Vec<u64>) =
            (0..chunk.rank()).map(|axis| piece.within(chunk, axis)).unzip();
        let mut outcome = Ok(());
        part.clip(&low, &high, |ranges| {
            mask.take(ranges, &mut |free: &Ranges| {
                if outcome.is_ok() {
                    outcome = copies.add(section, part.copy(free, origin), item);
                }
            });
        });
        outcome
    }

    /// Copies for [`Cover::take`] to add to.
    fn copies(&self) -> LogCopies {
        LogCopies::new(self.view.blocks.clone())
    }

    fn load(&self, held: &Held) -> Result<Arc<LoadedSection>> {
        // Whoever needs it meanwhile waits, and does not load it, too.
        let mut kept = held.section.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(section) = &*kept {
            return Ok(section.clone());
        }
        let ArraySection { segment, offset, stored_bytes, .. } = &held.place;
        let section = self.view.section(segment, *offset, *stored_bytes)?;
        let bytes = section.memory_bytes();
        if self.held_bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) <= HELD_BYTES {
            *kept = Some(section.clone());
        }
        Ok(section)
    }
}

impl Cover for Overlay {
    fn take(
        &self,
        geometry: &Geometry,
        cell: u64,
        task: ChunkTask,
        payloads: &mut Payloads,
    ) -> Result<Rest> {
        let coordinates = geometry.chunk_coordinates(cell, task);
        let copies = payloads.batch(|| self.copies()).ok_or_else(other_batch)?;
        let (mut stored, mut fill) = (Vec::new(), Vec::new());
        geometry.for_each_part(cell, task, |part| {
            let mut mask = Mask::new(part.shape());
            self.take_part(&coordinates, &part, &mut mask, copies)?;
            fill.push(self.take_outside(&coordinates, &part, &mut mask));
            stored.push(mask);
            Ok(())
        })?;
        Ok(Rest { stored: uncovered(stored), fill: uncovered(fill) })
    }

    fn touches(&self, coordinates: &[u64]) -> bool {
        let chunk = self.form.grid.chunk_region(coordinates);
        if self.base.as_ref().is_some_and(|base| !is_inside(&chunk, base)) {
            return true;
        }
        let end: Vec<u64> = (0..chunk.rank()).map(|axis| chunk.end(axis)).collect();
        let is_hit = |held: &Held| {
            let mut is_hit = false;
            match self.load(held) {
                Ok(section) => section.visit(&self.near.key, chunk.start(), &end, &mut |_, _| {
                    is_hit = true;
                    false
                }),
                Err(_) => is_hit = true,
            }
            is_hit
        };
        self.layers.iter().any(|layer| {
            let Ok(commits) = layer.commits(&self.view, &self.near) else { return true };
            let mut near = commits.iter().flatten();
            near.any(|held| held.place.may_have(chunk.start(), &end) && is_hit(held))
        })
    }

    fn lay(&self, coordinates: &[u64], elements: &mut [u8]) -> Result<()> {
        let chunk = self.form.grid.chunk_region(coordinates);
        let lengths = chunk.shape().iter();
        let positions: Vec<Positions> = lengths
            .map(|length| AxisRange::contiguous(0, *length).map(Positions::Range))
            .collect::<std::result::Result<_, _>>()?;
        let axes = positions.iter().zip(&self.form.strides).map(|(positions, stride)| PartAxis {
            inside: positions,
            result: positions,
            target_stride: *stride,
        });
        let part = Part::Box { axes: axes.collect(), target_start: 0 };
        if let Some(base) = &self.base {
            let Form { grid, strides, item_size, fill, .. } = &self.form;
            fill_outside(
                &grid.chunk_region(coordinates),
                base,
                strides,
                *item_size,
                fill,
                elements,
            )?;
        }
        let mut copies = self.copies();
        self.take_part(coordinates, &part, &mut Mask::new(part.shape()), &mut copies)?;
        let Form { item_size: item, swap_size: swap, .. } = self.form;
        copies.run(&Destination { target: Some(Target::new(elements)), item, swap })
    }
}

/// The error of a read that has two kinds of covers, which none has.
fn other_batch() -> Error {
    Error::invalid("one read cannot take from covers of two kinds")
}

fn is_inside(chunk: &Region, shape: &[u64]) -> bool {
    (0..chunk.rank()).all(|axis| chunk.end(axis) <= shape[axis])
}
