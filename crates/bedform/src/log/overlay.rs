//! Overlays: the elements that unsettled commits have over the chunks of one object.
//!
//! For each chunk of a read, the newest commit that has elements there supplies them first, then
//! older ones the elements still missing. The rest is read from the stored chunk, or is the fill
//! value. So no element is read that a newer one hides, and each is copied from its block straight
//! to the result.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bedform_format::log::{TableBlock, TableIndex, TableRecord};
use bedform_geometry::{AxisRange, ChunkGrid, Positions, Region};

use super::blocks::LogCopies;
use super::section::{LoadedSection, WrittenBox};
use super::view::{ArraySection, RootView};
use crate::error::{Error, Result};
use crate::plan::copy::CopyTarget;
use crate::plan::geometry::{ChunkTask, Geometry};
use crate::plan::mask::Mask;
use crate::plan::part::{ChunkPart, PartAxis, Ranges, RegularAxis, range_within};
use crate::source::{Cover, Destination, Payloads, StoredLayout, Uncovered, UncoveredRest};
use crate::write::elements::fill_outside;

/// Bytes of sections that one overlay keeps in memory. Further sections are taken from the store's
/// cache, or loaded, each time.
const HELD_BYTES: u64 = 64 << 20;

/// A section that may touch the object, with its contents once a read has loaded it.
#[derive(Debug)]
pub(super) struct SectionSlot {
    place: ArraySection,
    section: Mutex<Option<Arc<LoadedSection>>>,
}

impl From<ArraySection> for SectionSlot {
    fn from(place: ArraySection) -> Self {
        Self { place, section: Mutex::default() }
    }
}

/// The covered object: its array, its box, and the last commit that it contains.
#[derive(Debug)]
pub(super) struct CoveredObject {
    pub(super) key: [u8; 16],
    pub(super) start: Vec<u64>,
    pub(super) end: Vec<u64>,
    pub(super) after: u64,
}

/// The sections of one commit.
type CommitSections = Vec<SectionSlot>;

/// Consecutive commits: one with known sections, or several in blocks of a table. A read loads
/// these blocks only if newer layers do not cover all that it needs.
#[derive(Debug)]
pub(super) struct OverlayLayer {
    blocks: Option<TableBlockRun>,
    /// Sections by commit, the newest commit first; set when a read first needs them.
    commits: OnceLock<Vec<CommitSections>>,
}

/// Blocks of a table that share a commit, or a single block; the newest first.
#[derive(Debug)]
struct TableBlockRun {
    record: TableRecord,
    index: Arc<TableIndex>,
    blocks: Vec<TableBlock>,
}

impl OverlayLayer {
    pub(super) fn of_commit(sections: CommitSections) -> Self {
        Self { blocks: None, commits: OnceLock::from(vec![sections]) }
    }

    /// Groups the blocks of a table into layers, the newest first. Blocks that share a commit form
    /// one layer, since the sections of a commit apply in an order of their own.
    pub(super) fn of_blocks<'b>(
        record: &TableRecord,
        index: &Arc<TableIndex>,
        blocks: impl Iterator<Item = &'b TableBlock>,
    ) -> Vec<Self> {
        let mut all: Vec<TableBlockRun> = Vec::new();
        for block in blocks {
            let newer = all.last_mut().filter(|newer| {
                newer.blocks.last().is_some_and(|last| last.commits.0 == block.commits.1)
            });
            match newer {
                Some(newer) => newer.blocks.push(block.clone()),
                None => all.push(TableBlockRun {
                    record: record.clone(),
                    index: index.clone(),
                    blocks: vec![block.clone()],
                }),
            }
        }
        let layer = |blocks| Self { blocks: Some(blocks), commits: OnceLock::new() };
        all.into_iter().map(layer).collect()
    }

    /// Returns the commits that may touch the object, the newest first.
    fn commits(&self, view: &RootView, near: &CoveredObject) -> Result<&[CommitSections]> {
        if let Some(commits) = self.commits.get() {
            return Ok(commits);
        }
        let mut by_commit: Vec<(u64, CommitSections)> = Vec::new();
        if let Some(TableBlockRun { record, index, blocks }) = &self.blocks {
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

/// The sections of unsettled commits that touch one object, in layers, the newest first.
#[derive(Debug)]
pub(crate) struct Overlay {
    view: Arc<RootView>,
    near: CoveredObject,
    layers: Vec<OverlayLayer>,
    /// Bytes of the sections that are kept in memory.
    held_bytes: AtomicU64,
    /// The array's shape before the first of these commits enlarged it. Elements stored outside it
    /// were never part of the array.
    base: Option<Vec<u64>>,
    form: ElementForm,
}

/// The memory layout of a chunk's elements, which is the stored one: order of axes, byte order.
#[derive(Debug)]
struct ElementForm {
    grid: ChunkGrid,
    strides: Vec<i64>,
    item_size: usize,
    swap_size: usize,
    fill: Vec<u8>,
}

/// Returns the uncovered elements of a chunk's parts from the masks of free elements.
fn uncovered(masks: Vec<Mask>) -> Uncovered {
    match () {
        () if masks.iter().all(Mask::is_full) => Uncovered::None,
        () if masks.iter().all(Mask::is_untouched) => Uncovered::All,
        () => Uncovered::Some(masks),
    }
}

/// A box that overlaps the read, with its precedence: of two, the greater one wins, field by field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct OverlapBox {
    epoch: u32,
    rank: u32,
    section: usize,
    entry: u32,
    number: usize,
}

impl Overlay {
    /// Returns the overlay of `layers` over an object of an array with the stored layout `layout`.
    pub(super) fn new(
        view: Arc<RootView>,
        near: CoveredObject,
        layers: Vec<OverlayLayer>,
        base: Option<Vec<u64>>,
        layout: &StoredLayout,
    ) -> Self {
        let form = ElementForm {
            grid: layout.grid.clone(),
            strides: layout.codec.strides().to_vec(),
            item_size: layout.item_size,
            swap_size: layout.codec.swap_size(),
            fill: layout.stored_fill(),
        };
        Self { view, near, layers, held_bytes: AtomicU64::new(0), base, form }
    }

    /// Takes the free elements outside the array's shape before it grew, and returns a mask in
    /// which only they are free.
    fn take_outside(&self, coordinates: &[u64], part: &ChunkPart<'_>, mask: &mut Mask) -> Mask {
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
        part: &ChunkPart<'_>,
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

    /// Takes the elements of a commit that are still free in a part, within the box from `low` to
    /// `high`.
    fn take_commit(
        &self,
        commit: &CommitSections,
        (chunk, part, regular): (&Region, &ChunkPart<'_>, &Option<(Vec<RegularAxis>, i64)>),
        (low, high): (&[u64], &[u64]),
        found: &mut Vec<OverlapBox>,
        mask: &mut Mask,
        copies: &mut LogCopies,
    ) -> Result<()> {
        let sections = commit.iter().filter(|held| held.place.may_have(low, high));
        let sections = sections.map(|held| self.load(held)).collect::<Result<Vec<_>>>()?;
        found.clear();
        for (at, section) in sections.iter().enumerate() {
            section.visit(&self.near.key, low, high, &mut |entry, number| {
                let (epoch, rank) = (section.entry(entry).epoch, section.entry(entry).rank);
                found.push(OverlapBox { epoch, rank, section: at, entry, number });
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

    /// Takes a box's elements that are still free, if they form one run in the box, the part and
    /// the result. This is the fast path for logs of very many small boxes. Otherwise returns
    /// false, and does nothing.
    fn take_run(
        &self,
        section: &LoadedSection,
        piece: WrittenBox<'_>,
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
            // Number of elements of the box before this one along the axis: less than its length.
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
        piece: WrittenBox<'_>,
        (chunk, part): (&Region, &ChunkPart<'_>),
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

    /// Returns empty copies for [`Cover::take`] to fill.
    fn copies(&self) -> LogCopies {
        LogCopies::new(self.view.blocks.clone())
    }

    fn load(&self, held: &SectionSlot) -> Result<Arc<LoadedSection>> {
        // Other threads that need the section wait here, so that it is loaded once.
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
    ) -> Result<UncoveredRest> {
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
        Ok(UncoveredRest { stored: uncovered(stored), fill: uncovered(fill) })
    }

    fn touches(&self, coordinates: &[u64]) -> bool {
        let chunk = self.form.grid.chunk_region(coordinates);
        if self.base.as_ref().is_some_and(|base| !is_inside(&chunk, base)) {
            return true;
        }
        let end: Vec<u64> = (0..chunk.rank()).map(|axis| chunk.end(axis)).collect();
        let is_hit = |held: &SectionSlot| {
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
        let part = ChunkPart::Box { axes: axes.collect(), target_start: 0 };
        if let Some(base) = &self.base {
            let ElementForm { grid, strides, item_size, fill, .. } = &self.form;
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
        let ElementForm { item_size: item, swap_size: swap, .. } = self.form;
        copies.run(&Destination { target: Some(CopyTarget::new(elements)), item, swap })
    }
}

/// Returns the error of a read with two kinds of covers, which does not occur.
fn other_batch() -> Error {
    Error::invalid("one read cannot take from covers of two kinds")
}

fn is_inside(chunk: &Region, shape: &[u64]) -> bool {
    (0..chunk.rank()).all(|axis| chunk.end(axis) <= shape[axis])
}
