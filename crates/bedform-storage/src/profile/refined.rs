//! What reads really took, over what was predicted of them.
//!
//! A profile keeps factors for each codec: of cold reads, apart for those that mostly wait, and of cached ones by
//! one thread and by several. Each is the mean of the ratios of the last reads, as a geometric one. Few reads
//! count little, no read counts for much, and no factor goes far: a machine that is busy for a while does not
//! spoil the profile.

use serde::{Deserialize, Serialize};

use super::{ENTRIES_MAX, Profile, ProfileError, TEXT_BYTES_MAX, malformed, within};

/// Reads that a factor remembers.
const REMEMBERED: u32 = 32;
/// Reads after which a factor counts for half.
const HALF: f64 = 3.0;
/// What one read may say at most, and a factor.
const RATIO_MAX: f64 = 8.0;
const FACTOR_MAX: f64 = 4.0;

/// How many times as long as predicted reads took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Factor {
    /// The mean ratio.
    pub ratio: f64,
    /// Reads that it is of; it does not count on beyond what is remembered.
    pub reads: u32,
}

impl Default for Factor {
    fn default() -> Self {
        Self { ratio: 1.0, reads: 0 }
    }
}

impl Factor {
    /// A read took so many times what was predicted, before any factor.
    pub fn add(&mut self, ratio: f64) {
        if !ratio.is_finite() || ratio <= 0.0 {
            return;
        }
        self.reads = self.reads.saturating_add(1).min(REMEMBERED);
        let said = ratio.clamp(1.0 / RATIO_MAX, RATIO_MAX).ln();
        let mean = self.ratio.ln() + (said - self.ratio.ln()) / f64::from(self.reads);
        self.ratio = mean.exp().clamp(1.0 / FACTOR_MAX, FACTOR_MAX);
    }

    /// What a prediction is multiplied by.
    ///
    /// ```
    /// use bedform_storage::Factor;
    ///
    /// let mut factor = Factor::default();
    /// assert_eq!(factor.counts(), 1.0);
    /// (0..100).for_each(|_| factor.add(2.0));
    /// assert!((1.8..2.0).contains(&factor.counts()));
    /// ```
    pub fn counts(&self) -> f64 {
        let reads = f64::from(self.reads);
        self.ratio.powf(reads / (reads + HALF))
    }
}

/// The factors of the reads of one codec.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refined {
    /// Of reads that found nothing in memory, and mostly move or decode bytes.
    #[serde(default)]
    pub cold: Factor,
    /// Of reads that found nothing in memory, and mostly wait for answers.
    #[serde(default)]
    pub waiting: Factor,
    /// Of reads whose objects were in the page cache, by one thread.
    #[serde(default)]
    pub cached: Factor,
    /// Of such reads by several threads: what they gain is another thing than what the work takes.
    #[serde(default)]
    pub shared: Factor,
}

/// Which factor a read is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadKind {
    /// It found nothing in memory, and mostly moves or decodes bytes.
    Cold,
    /// It found nothing in memory, and mostly waits for answers.
    Waiting,
    /// Its objects were in the page cache, and one thread read them.
    Cached,
    /// The same with several threads.
    Shared,
}

impl Refined {
    /// The factor of a kind of reads.
    pub fn of(mut self, kind: ReadKind) -> Factor {
        *self.factor(kind)
    }

    /// A read of that kind took so many times what was predicted, before any factor.
    pub fn learn(&mut self, kind: ReadKind, ratio: f64) {
        self.factor(kind).add(ratio);
    }

    fn factor(&mut self, kind: ReadKind) -> &mut Factor {
        match kind {
            ReadKind::Cold => &mut self.cold,
            ReadKind::Waiting => &mut self.waiting,
            ReadKind::Cached => &mut self.cached,
            ReadKind::Shared => &mut self.shared,
        }
    }
}

impl Profile {
    /// # Errors
    /// As [`Profile::check`].
    pub(super) fn check_refinement(&self) -> Result<(), ProfileError> {
        if self.refinement.len() > ENTRIES_MAX
            || self.refinement.keys().any(|codec| codec.len() > TEXT_BYTES_MAX)
        {
            return Err(malformed("the profile", "its refinement has too many codecs".into()));
        }
        let of = |by: &Refined| [by.cold, by.waiting, by.cached, by.shared];
        let factors = self.refinement.values().flat_map(of);
        for factor in factors {
            within("refinement", factor.ratio, (1.0 / FACTOR_MAX, FACTOR_MAX))?;
            let reads = f64::from(factor.reads);
            within("reads of the refinement", reads, (0.0, f64::from(REMEMBERED)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_read_says_little_and_none_says_much() {
        let mut factor = Factor::default();
        factor.add(1e9);
        assert!(factor.counts() < 1.5, "{factor:?}");
        factor.add(f64::NAN);
        factor.add(0.0);
        assert_eq!(factor.reads, 1);
        (0..1000).for_each(|_| factor.add(1e9));
        assert!(factor.counts() <= FACTOR_MAX);
        // What was learnt is forgotten as it was learnt.
        (0..200).for_each(|_| factor.add(0.5));
        assert!((0.5..0.6).contains(&factor.counts()), "{factor:?}");
    }

    #[test]
    fn counts_of_reads_that_nobody_remembers_are_refused_and_never_wrap() {
        let mut factor = Factor { ratio: 1.0, reads: u32::MAX };
        let mut profile = Profile::default_local();
        profile.refinement.insert("zstd".into(), Refined { cold: factor, ..Refined::default() });
        let error = profile.check().unwrap_err();
        assert!(matches!(error, ProfileError::Implausible { .. }), "{error}");
        factor.add(2.0);
        assert_eq!(factor.reads, REMEMBERED);
    }
}
