//! One sequence of reads: its pattern and its readahead window.
//!
//! The window holds the predicted places ahead of the program. It is filled again when half of it
//! has been read, so that most reads give no advice. Its length is at most a quarter of the correct
//! predictions so far, or [`PLACES_MIN`]. So at most a fifth of the advice is wasted when a pattern
//! ends. Its limit in bytes begins with a setting, and doubles each time that the limit cuts the
//! window.
//!
//! Places that follow the last read without a gap are in the window, but get no advice: the
//! kernel's own readahead fetches them.

use std::collections::VecDeque;

use bedform_patterns::{Analyzer, PatternKind, Place};

use crate::record::KINDS;

/// The most places of a window. Filling it takes some ten microseconds, during which no other
/// thread's reads are followed.
const PLACES_MAX: usize = 512;
/// The length of a window that is always allowed, in reads.
const PLACES_MIN: usize = 4;
/// Correct predictions for each place ahead.
const RIGHT_FOR_PLACE: usize = 4;
/// The number of reads whose bytes always fit a window.
const READS_MIN: u64 = 2;
/// Byte ranges with a smaller gap are advised as one.
const GAP: u64 = 4096;

/// A byte range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileRange {
    /// The first byte.
    pub(crate) start: u64,
    /// The end, exclusive.
    pub(crate) end: u64,
}

impl FileRange {
    fn bytes(self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// The limits of a window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowLimits {
    /// Bytes ahead at first.
    pub(crate) ahead: u64,
    /// The most bytes ahead.
    pub(crate) ahead_max: u64,
    /// The size of the file in bytes.
    pub(crate) file_bytes: u64,
}

/// The relation of a read to the predictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PredictionOutcome {
    /// The kind of the pattern that predicted it, as an index into the counters of
    /// [`crate::record`].
    pub(crate) kind: Option<usize>,
    /// True if the kernel was advised of it.
    pub(crate) was_advised: bool,
    /// True if earlier advice turned out wrong.
    pub(crate) is_stale: bool,
}

/// Consecutive places of a window that were all advised of, or all left to the kernel.
#[derive(Debug)]
struct WindowPart {
    places: usize,
    bytes: u64,
    is_advised: bool,
}

/// Follows one sequence of reads.
#[derive(Debug, Default)]
pub(crate) struct ReadSequence {
    analyzer: Analyzer,
    last: Option<FileRange>,
    window: VecDeque<WindowPart>,
    /// Correct predictions in a row; a wrong one divides the number by four.
    right: usize,
    /// The limit of the window in bytes; `None` before the first window.
    depth: Option<u64>,
}

impl ReadSequence {
    /// Adds the next read, and compares it with the window.
    pub(crate) fn push(&mut self, run: FileRange) -> PredictionOutcome {
        let Some(place) = Place::bytes(run.start, run.bytes()) else {
            return PredictionOutcome::default();
        };
        let predicted = self.analyzer.push(place).predicted;
        let is_contiguous = self.last.is_some_and(|last| last.end == run.start);
        self.last = Some(run);
        let mut outcome = PredictionOutcome {
            kind: predicted.map(|kind| index(kind, is_contiguous)),
            ..PredictionOutcome::default()
        };
        match predicted {
            // It is one of several candidates, so the window has no order.
            Some(PatternKind::Correlated) => self.window.clear(),
            Some(_) => {
                self.right = self.right.saturating_add(1);
                outcome.was_advised = self.pass(run.bytes());
            }
            None => outcome.is_stale = self.give_up(),
        }
        outcome
    }

    /// True if the window has unread places.
    pub(crate) fn is_ahead(&self) -> bool {
        !self.window.is_empty()
    }

    /// Advises of the next places if half of the window was read, and returns the advised bytes.
    /// `advise` returns false when the queue is full.
    pub(crate) fn refill(
        &mut self,
        bounds: &WindowLimits,
        mut advise: impl FnMut(FileRange) -> bool,
    ) -> u64 {
        let Some(last) = self.last else { return 0 };
        let depth = self.depth.unwrap_or(bounds.ahead);
        let wanted = depth.max(READS_MIN.saturating_mul(last.bytes()));
        let places_max = (self.right / RIGHT_FOR_PLACE).clamp(PLACES_MIN, PLACES_MAX);
        let (mut places, mut bytes) = (0_usize, 0_u64);
        for part in &self.window {
            places += part.places;
            bytes = bytes.saturating_add(part.bytes);
        }
        if bytes > wanted / 2 || places > places_max / 2 {
            return 0;
        }
        let had = places;
        let mut filling = WindowFilling { last, is_leading: true, run: None, places: 0, bytes: 0 };
        let mut advised = 0;
        for (number, place) in self.analyzer.ahead().take(places_max).enumerate() {
            let Some(run) = run_of(&place, bounds.file_bytes).filter(|_| bytes < wanted) else {
                break;
            };
            let is_left = filling.step(run);
            if number < had {
                continue;
            }
            if is_left {
                advised += filling.flush(&mut self.window, &mut advise).unwrap_or(0);
                grow(&mut self.window, 1, run.bytes(), false);
            } else if !filling.take(run) {
                match filling.flush(&mut self.window, &mut advise) {
                    Some(bytes) => advised += bytes,
                    None => break,
                }
                filling.take(run);
            }
            places += 1;
            bytes = bytes.saturating_add(run.bytes());
        }
        advised += filling.flush(&mut self.window, &mut advise).unwrap_or(0);
        // The whole window was read as predicted, so the next one may be longer.
        let is_bounded = places > had && had > 0 && bytes >= wanted;
        let next = if is_bounded { depth.saturating_mul(2).min(bounds.ahead_max) } else { depth };
        self.depth = Some(next.max(depth));
        advised
    }

    /// Removes a predicted read from the window; true if the kernel was advised of it.
    fn pass(&mut self, bytes: u64) -> bool {
        let Some(part) = self.window.front_mut() else { return false };
        let is_advised = part.is_advised;
        part.places -= 1;
        part.bytes = part.bytes.saturating_sub(bytes);
        if part.places == 0 {
            self.window.pop_front();
        }
        is_advised
    }

    /// Clears the window after a wrong prediction; true if the kernel was advised of other places.
    fn give_up(&mut self) -> bool {
        let is_stale = self.window.iter().any(|part| part.is_advised);
        self.window.clear();
        self.right /= 4;
        self.depth = None;
        is_stale
    }
}

/// A window while it is filled.
struct WindowFilling {
    /// The previous place.
    last: FileRange,
    /// True while no gap has followed the last read.
    is_leading: bool,
    /// The byte range of the next advice, with its number of places and their bytes.
    run: Option<FileRange>,
    places: usize,
    bytes: u64,
}

impl WindowFilling {
    /// Moves to the next place; true if the kernel's own readahead covers it.
    fn step(&mut self, run: FileRange) -> bool {
        let follows = run.start == self.last.end || run == self.last;
        self.is_leading &= follows;
        self.last = run;
        self.is_leading
    }

    /// Adds a place to the next advice; false if it is not adjacent.
    fn take(&mut self, run: FileRange) -> bool {
        let joined = match self.run {
            None => run,
            Some(before)
                if run.start >= before.start && run.start <= before.end.saturating_add(GAP) =>
            {
                FileRange { start: before.start, end: before.end.max(run.end) }
            }
            Some(_) => return false,
        };
        self.run = Some(joined);
        self.places += 1;
        self.bytes = self.bytes.saturating_add(run.bytes());
        true
    }

    /// Gives the collected advice, and returns its bytes; `None` if the queue is full.
    fn flush(
        &mut self,
        window: &mut VecDeque<WindowPart>,
        advise: &mut impl FnMut(FileRange) -> bool,
    ) -> Option<u64> {
        let Some(run) = self.run.take() else { return Some(0) };
        let [places, bytes] = [self.places as u64, self.bytes];
        (self.places, self.bytes) = (0, 0);
        if !advise(run) {
            return None;
        }
        grow(window, usize::try_from(places).unwrap_or(0), bytes, true);
        Some(bytes)
    }
}

fn grow(window: &mut VecDeque<WindowPart>, places: usize, bytes: u64, is_advised: bool) {
    match window.back_mut() {
        Some(part) if part.is_advised == is_advised => {
            part.places += places;
            part.bytes = part.bytes.saturating_add(bytes);
        }
        _ => window.push_back(WindowPart { places, bytes, is_advised }),
    }
}

/// Returns the byte range of a place, clipped to the file; `None` if it is empty.
fn run_of(place: &Place, file_bytes: u64) -> Option<FileRange> {
    let (start, end) = place.bounds().next()?;
    let [start, end] = [u64::try_from(start).ok()?, u64::try_from(end).ok()?.min(file_bytes)];
    (start < end).then_some(FileRange { start, end })
}

/// Returns the index of a pattern's kind in the counters of a [`crate::record::Record`].
fn index(kind: PatternKind, is_contiguous: bool) -> usize {
    match kind {
        PatternKind::Correlated => 4,
        PatternKind::Contiguous => 0,
        _ if is_contiguous => 0,
        PatternKind::Strided => 1,
        PatternKind::ComposedRows => 2,
        PatternKind::Composed => 3,
        PatternKind::Interleaved => 5,
        _ => KINDS - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;
    const BOUNDS: WindowLimits =
        WindowLimits { ahead: 256 * KIB, ahead_max: 1024 * KIB, file_bytes: 1 << 40 };

    fn run(start: u64, bytes: u64) -> FileRange {
        FileRange { start, end: start + bytes }
    }

    /// Follows reads, and returns the advice after each.
    fn advice(
        follow: &mut ReadSequence,
        bounds: &WindowLimits,
        reads: &[FileRange],
    ) -> Vec<Vec<FileRange>> {
        let after = |read: &FileRange| {
            let mut told = Vec::new();
            follow.push(*read);
            follow.refill(bounds, |run| {
                told.push(run);
                true
            });
            told
        };
        reads.iter().map(after).collect()
    }

    #[test]
    fn strides_are_advised_of_once_each_and_further_ahead_with_time() {
        let reads: Vec<FileRange> = (0..200).map(|n| run(n * 1000 * KIB, 64 * KIB)).collect();
        let mut follow = ReadSequence::default();
        let told = advice(&mut follow, &BOUNDS, &reads);
        assert!(told[..2].iter().all(Vec::is_empty));
        assert_eq!(told[2], reads[3..7]);
        let all: Vec<FileRange> = told.concat();
        assert_eq!(
            all,
            (3..3 + all.len() as u64).map(|n| run(n * 1000 * KIB, 64 * KIB)).collect::<Vec<_>>()
        );
        // Each refill advises of half a window of 16 reads.
        assert!((208..=216).contains(&(3 + all.len())), "{}", all.len());
        assert!(told.iter().filter(|told| !told.is_empty()).count() < 40);
    }

    #[test]
    fn sequential_reads_are_left_to_the_kernel() {
        let reads: Vec<FileRange> = (0..100).map(|n| run(n * 64 * KIB, 64 * KIB)).collect();
        assert!(advice(&mut ReadSequence::default(), &BOUNDS, &reads).concat().is_empty());
        // The kernel has no readahead for reads that go backwards.
        let backwards: Vec<FileRange> = reads.iter().rev().copied().collect();
        assert!(!advice(&mut ReadSequence::default(), &BOUNDS, &backwards).concat().is_empty());
    }

    #[test]
    fn rows_of_reads_without_gaps_are_advised_of_as_one() {
        let rows = (0..8)
            .flat_map(|row| (0..4).map(move |n| run(row * 9000 * KIB + n * 64 * KIB, 64 * KIB)));
        let reads: Vec<FileRange> = rows.collect();
        let told = advice(&mut ReadSequence::default(), &BOUNDS, &reads).concat();
        // Adjacent reads are one piece of advice, up to the end of a row or of the window.
        assert!(told.iter().all(|run| run.start % (9000 * KIB) + run.bytes() <= 256 * KIB));
        assert!(told.iter().filter(|run| run.bytes() >= 128 * KIB).count() >= 5, "{told:?}");
    }

    #[test]
    fn nothing_behind_the_end_of_a_file_is_advised_of() {
        let bounds = WindowLimits { file_bytes: 5 * 1000 * KIB + 10, ..BOUNDS };
        let reads: Vec<FileRange> = (0..4).map(|n| run(n * 1000 * KIB, 64 * KIB)).collect();
        let told = advice(&mut ReadSequence::default(), &bounds, &reads).concat();
        assert_eq!(
            told,
            [run(3 * 1000 * KIB, 64 * KIB), run(4 * 1000 * KIB, 64 * KIB), run(5 * 1000 * KIB, 10)]
        );
    }

    #[test]
    fn little_was_advised_of_in_vain_whenever_a_pattern_ends() {
        for count in [4, 5, 10, 40, 200, 1000] {
            let reads: Vec<FileRange> = (0..count).map(|n| run(n * 1000 * KIB, 4 * KIB)).collect();
            let mut follow = ReadSequence::default();
            let told = advice(&mut follow, &BOUNDS, &reads).concat().len() as u64;
            let in_vain = told - (count - 3);
            assert!(in_vain <= (count / 4).max(4), "{in_vain} of {told} after {count} reads");
            // The next window begins with the length that earlier predictions allow.
            assert!(follow.push(run(1 << 39, 4 * KIB)).is_stale);
            assert!(!follow.is_ahead());
        }
    }

    #[test]
    fn a_queue_that_is_full_ends_the_window() {
        let reads: Vec<FileRange> = (0..3).map(|n| run(n * 1000 * KIB, 64 * KIB)).collect();
        let mut follow = ReadSequence::default();
        for read in &reads {
            follow.push(*read);
        }
        let mut room = 2;
        let advised = follow.refill(&BOUNDS, |_| {
            room -= 1;
            room >= 0
        });
        assert_eq!(advised, 128 * KIB);
        assert!(follow.push(run(3000 * KIB, 64 * KIB)).was_advised);
    }

    #[test]
    fn random_reads_are_not_advised_of() {
        let mut state = 7_u64;
        let reads: Vec<FileRange> = (0..2000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                run(state >> 30 << 12, 64 * KIB)
            })
            .collect();
        assert!(advice(&mut ReadSequence::default(), &BOUNDS, &reads).concat().is_empty());
    }
}
