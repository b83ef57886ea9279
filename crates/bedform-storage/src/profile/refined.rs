//! Correction factors: measured over predicted times of earlier reads.
//!
//! A profile keeps four factors for each codec: cold reads, cold reads that mostly wait, cached
//! reads by one thread and by several. Each is the geometric mean of the ratios of the last reads.
//! Few reads have little weight, and each ratio and factor is bounded. A machine that is busy for a
//! while therefore does not spoil the profile.

use serde::{Deserialize, Serialize};

use super::{ENTRIES_MAX, Profile, ProfileError, TEXT_BYTES_MAX, malformed, within};

/// The most reads that a factor averages.
const REMEMBERED: u32 = 32;
/// The number of reads at which a factor has half its weight.
const HALF: f64 = 3.0;
/// The largest ratio that one read may add; its inverse is the smallest. Below, the same for a
/// factor.
const RATIO_MAX: f64 = 8.0;
const FACTOR_MAX: f64 = 4.0;

/// The mean ratio of measured to predicted read times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Factor {
    /// The geometric mean of the ratios.
    pub ratio: f64,
    /// The number of reads averaged, at most 32.
    pub reads: u32,
}

impl Default for Factor {
    fn default() -> Self {
        Self { ratio: 1.0, reads: 0 }
    }
}

impl Factor {
    /// Adds a read with this ratio of measured to uncorrected predicted time.
    pub fn add(&mut self, ratio: f64) {
        if !ratio.is_finite() || ratio <= 0.0 {
            return;
        }
        self.reads = self.reads.saturating_add(1).min(REMEMBERED);
        let said = ratio.clamp(1.0 / RATIO_MAX, RATIO_MAX).ln();
        let mean = self.ratio.ln() + (said - self.ratio.ln()) / f64::from(self.reads);
        self.ratio = mean.exp().clamp(1.0 / FACTOR_MAX, FACTOR_MAX);
    }

    /// Returns the multiplier for a prediction, weighted by the number of reads.
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

/// The correction factors of one codec.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refined {
    /// For reads with nothing in memory that mostly move or decode bytes.
    #[serde(default)]
    pub cold: Factor,
    /// For reads with nothing in memory that mostly wait for answers.
    #[serde(default)]
    pub waiting: Factor,
    /// For reads by one thread whose objects are in the page cache.
    #[serde(default)]
    pub cached: Factor,
    /// For such reads by several threads, whose speed-up has its own error.
    #[serde(default)]
    pub shared: Factor,
}

/// The class of a read, which selects its correction factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FactorKind {
    /// Nothing was in memory; most of the time went to moving or decoding bytes.
    Cold,
    /// Nothing was in memory; most of the time was waiting for answers.
    Waiting,
    /// The objects were in the page cache, and one thread read them.
    Cached,
    /// The same with several threads.
    Shared,
}

impl Refined {
    /// Returns the factor for a class of reads.
    pub fn of(mut self, kind: FactorKind) -> Factor {
        *self.factor(kind)
    }

    /// Adds a read of this class with this ratio of measured to uncorrected predicted time.
    pub fn learn(&mut self, kind: FactorKind, ratio: f64) {
        self.factor(kind).add(ratio);
    }

    fn factor(&mut self, kind: FactorKind) -> &mut Factor {
        match kind {
            FactorKind::Cold => &mut self.cold,
            FactorKind::Waiting => &mut self.waiting,
            FactorKind::Cached => &mut self.cached,
            FactorKind::Shared => &mut self.shared,
        }
    }
}

impl Profile {
    /// Checks that the correction factors are plausible.
    ///
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
        // Later reads replace earlier ones.
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
