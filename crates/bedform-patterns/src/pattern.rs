//! Saved patterns, for later runs (end of section 2.3.4).
//!
//! Files are untrusted: ranks, levels, counts and lengths are limited, and a pattern that is
//! unknown or exceeds a limit is skipped. A wrong pattern costs only its predictions, up to the
//! first one that fails.

use std::marker::PhantomData;

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::correlated::FOLLOWERS_MAX;
use crate::repeats::PERIOD_MAX;
use crate::{Place, Step, Walk};

/// Largest number of patterns that are read for one array or file; further ones are skipped.
pub const PATTERNS_MAX: usize = 4096;

/// A pattern that an analyzer found, for runs that repeat the accesses.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Pattern {
    /// Equal steps, nested to any depth.
    Walk(Walk),
    /// Steps that repeat as a sequence.
    Sequence(Sequence),
    /// Rows at steps that repeat as a sequence.
    Rows(Rows),
    /// Places that are often read after another place.
    Correlated(FollowedPlace),
    /// Accesses that each start at the end of the previous one.
    Contiguous(ContiguousAccesses),
}

/// Accesses whose steps repeat.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "SavedSequence")]
pub struct Sequence {
    /// The first place.
    pub start: Place,
    /// The steps of one repetition, from the start on.
    pub steps: Vec<Step>,
}

/// Rows of a structured pattern at the steps of a repeating sequence.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "SavedRows")]
pub struct Rows {
    /// The first row.
    pub row: Walk,
    /// The steps between rows, from the first row on.
    pub steps: Vec<Step>,
}

/// A place and the places that are often read after it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "SavedFollowed")]
pub struct FollowedPlace {
    /// The place.
    pub entry: Place,
    /// Places that often follow it.
    pub followers: Vec<Place>,
}

/// Contiguous accesses of any size.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "SavedRun")]
pub struct ContiguousAccesses {
    /// The first place.
    pub start: Place,
    /// The axis along which they continue.
    pub axis: usize,
    /// The median size along the axis.
    pub size: i64,
    /// Number of accesses so far.
    pub accesses: u64,
}

#[derive(Deserialize)]
struct SavedSequence {
    start: Place,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct SavedRows {
    row: Walk,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct SavedFollowed {
    entry: Place,
    followers: Vec<Place>,
}

#[derive(Deserialize)]
struct SavedRun {
    start: Place,
    axis: usize,
    size: i64,
    accesses: u64,
}

/// The reason why a saved pattern is invalid.
type Wrong = &'static str;

impl TryFrom<SavedSequence> for Sequence {
    type Error = Wrong;

    fn try_from(SavedSequence { start, steps }: SavedSequence) -> Result<Self, Wrong> {
        are_steps(&steps, &start)?;
        Ok(Self { start, steps })
    }
}

impl TryFrom<SavedRows> for Rows {
    type Error = Wrong;

    fn try_from(SavedRows { row, steps }: SavedRows) -> Result<Self, Wrong> {
        are_steps(&steps, &row.start)?;
        if row.levels.is_empty() {
            return Err("a row of one place");
        }
        Ok(Self { row, steps })
    }
}

impl TryFrom<SavedFollowed> for FollowedPlace {
    type Error = Wrong;

    fn try_from(SavedFollowed { entry, followers }: SavedFollowed) -> Result<Self, Wrong> {
        if followers.len() > FOLLOWERS_MAX {
            return Err("too many places after one");
        }
        Ok(Self { entry, followers })
    }
}

impl TryFrom<SavedRun> for ContiguousAccesses {
    type Error = Wrong;

    fn try_from(saved: SavedRun) -> Result<Self, Wrong> {
        let SavedRun { start, axis, size, accesses } = saved;
        if axis >= start.rank() || size < 1 {
            return Err("a run along no axis, or of no size");
        }
        Ok(Self { start, axis, size, accesses })
    }
}

fn are_steps(steps: &[Step], start: &Place) -> Result<(), Wrong> {
    if steps.is_empty() || steps.len() > PERIOD_MAX {
        return Err("a sequence of no steps, or too many");
    }
    let are_alike = steps.iter().all(|step| step.moves().len() == start.rank());
    are_alike.then_some(()).ok_or("a step of other axes than its place")
}

impl From<Walk> for Pattern {
    fn from(walk: Walk) -> Self {
        Self::Walk(walk)
    }
}

/// Patterns in a file. Deserialization skips invalid entries.
///
/// ```
/// use bedform_patterns::{Analyzer, Patterns, Place};
///
/// let at = |offset| Place::bytes(offset, 10).unwrap();
/// let mut first = Analyzer::default();
/// (0..20).for_each(|row| _ = first.push(at(100 * row)));
/// let saved = serde_json::to_string(&Patterns(first.patterns())).unwrap();
///
/// let Patterns(known) = serde_json::from_str(&saved).unwrap();
/// let mut second = Analyzer::knowing(known);
/// assert_eq!(second.push(at(0)).predicted, None);
/// assert!(second.push(at(100)).predicted.is_some());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Patterns(pub Vec<Pattern>);

impl<'de> Deserialize<'de> for Patterns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        known_ones(deserializer).map(Self)
    }
}

/// Deserializes the valid elements of a list, up to a limit.
pub(crate) fn known_ones<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    deserializer.deserialize_seq(KnownOnes(PhantomData))
}

/// One element of the list, valid or not.
#[derive(Deserialize)]
#[serde(untagged)]
enum Saved<T> {
    Known(T),
    Other(IgnoredAny),
}

struct KnownOnes<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for KnownOnes<T> {
    type Value = Vec<T>;

    fn expecting(&self, text: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        text.write_str("a list of patterns")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut saved: A) -> Result<Vec<T>, A::Error> {
        let mut known = Vec::new();
        while let Some(next) = saved.next_element()? {
            if let Saved::Known(pattern) = next
                && known.len() < PATTERNS_MAX
            {
                known.push(pattern);
            }
        }
        Ok(known)
    }
}
