//! Regularities in sequences of accesses, found while they happen.
//!
//! An [`Access`](Place) is a place: a box of an array, or a run of bytes of a file. A [`Step`] describes the way
//! from one place to the next by the move of every boundary; so boxes that grow are as regular as boxes that
//! wander.
//!
//! | module | what |
//! |---|---|
//! | [`Place`], [`Step`] | where an access lies, and how the next one lies to it |
//! | [`Walk`], [`Grower`] | contiguous, simple-strided and kd-strided patterns, grown access by access |
//! | [`Repeats`] | sequences that repeat: composition-based patterns |
//! | [`Correlated`] | places that follow others often: correlation-based patterns |
//! | [`Analyzer`] | all of them for one array or file; contiguous accesses, and interleaved walks |
//! | [`Pattern`], [`Patterns`] | patterns found, saved and read again |
//! | [`Global`], [`Globals`] | the patterns of processes merged, and split for another number of them |
//! | [`Settings`] | thresholds |
//!
//! Pure: no I/O, no clock, no `unsafe`. Places come from traces that nobody checked: nothing here panics, wraps or
//! takes more memory than its limits because of them.
//!
//! The patterns are those of Tang, *Dynamic data prefetching and layout optimizations*, chapter 2, carried over from
//! offsets to boxes.
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

pub use analyzer::{Analyzer, Kind, Seen};
pub use correlated::{Correlated, OFTEN};
pub use global::{Global, Globals, merge};
pub use grower::{Grower, Grown, RowUnderWay};
pub use pattern::{Followed, PATTERNS_MAX, Pattern, Patterns, Rows, Run, Sequence};
pub use place::{Place, RANK_MAX, Step};
pub use repeats::{PERIOD_MAX, Repeats};
pub use settings::Settings;
pub use walk::{LEVELS_MAX, Level, Walk};
