//! Online detection of regularities in sequences of accesses.
//!
//! An [access](Place) is a place: a box of an array, or a byte range of a file. A [`Step`]
//! describes the way from one place to the next by the move of every bound, so growing boxes are as
//! regular as moving boxes.
//!
//! | item | meaning |
//! |---|---|
//! | [`Place`], [`Step`] | the bounds of an access, and their move to the next one |
//! | [`Walk`], [`Grower`] | contiguous, simple-strided and kd-strided patterns, grown access by access |
//! | [`Repeats`] | repeating sequences: composition-based patterns |
//! | [`Correlated`] | places that often follow others: correlation-based patterns |
//! | [`Analyzer`] | all patterns of one array or file, with contiguous accesses and interleaved walks |
//! | [`Pattern`], [`Patterns`] | patterns in saved form |
//! | [`Global`], [`Globals`] | patterns merged over processes, and split for another number of processes |
//! | [`Settings`] | thresholds |
//!
//! Pure: no I/O, no clock, no `unsafe`. Places come from untrusted traces: no place makes a
//! function panic, wrap, or exceed its memory limits.
//!
//! The patterns are those of Tang, *Dynamic data prefetching and layout optimizations*, chapter 2,
//! generalized from offsets to boxes.
#![forbid(unsafe_code)]

mod analyzer;
mod composed;
mod contiguous;
mod correlated;
mod fingerprint;
mod global;
mod grower;
mod interleaved;
mod pattern;
mod place;
mod recent;
mod repeats;
mod rows;
mod settings;
mod shapes;
mod walk;
mod walker;

pub use analyzer::{AnalyzedAccess, Analyzer, PatternKind};
pub use correlated::{Correlated, OFTEN};
pub use global::{Global, Globals, merge};
pub use grower::{CurrentRow, Grower, GrownAccess};
pub use pattern::{
    ContiguousAccesses, FollowedPlace, PATTERNS_MAX, Pattern, Patterns, Rows, Sequence,
};
pub use place::{Place, RANK_MAX, Step};
pub use repeats::{PERIOD_MAX, Repeats};
pub use settings::Settings;
pub use walk::{LEVELS_MAX, Level, Walk};
