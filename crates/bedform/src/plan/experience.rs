//! Refinement of a storage profile by the durations of this process's reads.
//!
//! If the profile of a storage is stored in a file, its [refinement](bedform_storage::Refined) is
//! updated by each suitable read. The file is written at most every ten seconds; of several
//! processes, the last writer wins. `bedform calibrate` starts with a new refinement. With
//! `BEDFORM_REFINE=0` nothing is learnt, but the stored refinement still applies.
//!
//! No call blocks on a lock, because a process may have forked while another thread held it.
//!
//! A read is suitable if its price could be exact. No element comes from the cache or a log, and
//! its bytes are either all in the page cache or all on the device.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bedform_storage::{FactorKind, Profile, Refined};

/// Reads of fewer seconds are too short for the clock.
const SECONDS_MIN: f64 = 100e-6;
/// The shortest time between two reads that are learnt from, so that learning costs nothing.
const BETWEEN_READS: Duration = Duration::from_millis(5);
const BETWEEN_SAVES: Duration = Duration::from_secs(10);
/// The most codecs that a refinement holds.
const CODECS_MAX: usize = 64;
const VARIABLE: &str = "BEDFORM_REFINE";

/// The refinement of one storage, as this process has learnt it.
#[derive(Debug)]
pub(crate) struct ProfileRefinement {
    /// The path of the profile's file.
    place: PathBuf,
    state: Mutex<RefinementState>,
}

/// The refinement in memory, and the times of its last update and save.
#[derive(Debug)]
struct RefinementState {
    refinement: BTreeMap<String, Refined>,
    /// The time of the measurement that the refinement belongs to.
    measured_at: String,
    last: Option<Instant>,
    saved: Instant,
    is_new: bool,
}

static ALL: LazyLock<Mutex<HashMap<PathBuf, Arc<ProfileRefinement>>>> =
    LazyLock::new(Mutex::default);

impl ProfileRefinement {
    /// Returns the refinement of the profile at `place`; `None` if learning is turned off, or the
    /// lock is taken.
    pub(crate) fn of(place: &Path, profile: &Profile) -> Option<Arc<Self>> {
        if std::env::var(VARIABLE).is_ok_and(|said| said == "0") {
            return None;
        }
        let mut all = ALL.try_lock().ok()?;
        let known = all.entry(place.to_owned()).or_insert_with(|| {
            Arc::new(Self {
                place: place.to_owned(),
                state: Mutex::new(RefinementState::of(profile)),
            })
        });
        let mut state = known.lock()?;
        if state.measured_at != profile.measured_at {
            *state = RefinementState::of(profile);
        }
        drop(state);
        Some(Arc::clone(known))
    }

    /// Returns the correction factors of a codec.
    pub(crate) fn refined(&self, codec: &str) -> Refined {
        let known = self.lock().and_then(|state| state.refinement.get(codec).copied());
        known.unwrap_or_default()
    }

    /// Returns true if a read of `seconds` seconds should be learnt from.
    pub(crate) fn is_due(&self, seconds: f64) -> bool {
        let is_time = |state: MutexGuard<'_, RefinementState>| {
            state.last.is_none_or(|last| last.elapsed() >= BETWEEN_READS)
        };
        seconds >= SECONDS_MIN && self.lock().is_some_and(is_time)
    }

    /// Learns from a read that took `ratio` times the seconds predicted without refinement.
    pub(crate) fn learn(&self, codec: &str, kind: FactorKind, ratio: f64) {
        let Some(mut state) = self.lock() else { return };
        state.last = Some(Instant::now());
        if state.refinement.len() >= CODECS_MAX && !state.refinement.contains_key(codec) {
            return;
        }
        state.refinement.entry(codec.to_owned()).or_default().learn(kind, ratio);
        state.is_new = true;
        if state.saved.elapsed() >= BETWEEN_SAVES {
            self.save(&mut state);
        }
    }

    /// Writes the refinement into the profile's file, if that still holds the same measurement.
    fn save(&self, state: &mut RefinementState) {
        state.saved = Instant::now();
        let Ok(mut profile) = Profile::load(&self.place) else { return };
        if !state.is_new || profile.measured_at != state.measured_at {
            return;
        }
        state.is_new = false;
        profile.refinement = state.refinement.clone();
        // A file that cannot be written must not keep data from being read.
        let _ = profile.save(&self.place);
    }

    fn lock(&self) -> Option<MutexGuard<'_, RefinementState>> {
        self.state.try_lock().ok()
    }
}

impl RefinementState {
    fn of(profile: &Profile) -> Self {
        Self {
            refinement: profile.refinement.clone(),
            measured_at: profile.measured_at.clone(),
            last: None,
            saved: Instant::now(),
            is_new: false,
        }
    }
}

/// Writes the refinements of all storages to their profiles, at the end of a process.
pub fn keep_experience() {
    let all: Vec<_> =
        ALL.try_lock().map_or_else(|_| Vec::new(), |all| all.values().cloned().collect());
    for experience in all {
        if let Some(mut state) = experience.lock() {
            experience.save(&mut state);
        }
    }
}

/// Discards the refinement of the storage whose profile is at `place`, after a new profile was
/// written there.
pub fn forget_experience(place: &Path) {
    let known = ALL.try_lock().ok().and_then(|all| all.get(place).cloned());
    if let Some(mut state) = known.as_ref().and_then(|experience| experience.lock()) {
        let profile = Profile::load(place).unwrap_or_else(|_| Profile::default_local());
        *state = RefinementState::of(&profile);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_learnt_is_kept_with_its_profile_and_forgotten_with_the_next() {
        let place = std::env::temp_dir().join(format!("bedform-learnt-{}", std::process::id()));
        let profile =
            Profile { measured_at: "2026-01-31T12:00:00Z".into(), ..Profile::default_local() };
        profile.save(&place).unwrap();
        let experience = ProfileRefinement::of(&place, &profile).unwrap();
        (0..40).for_each(|_| experience.learn("zstd", FactorKind::Cached, 2.0));
        assert!(experience.refined("zstd").cached.counts() > 1.7);
        assert_eq!(experience.refined("zstd").cold.counts(), 1.0);
        keep_experience();
        let kept = Profile::load(&place).unwrap();
        assert_eq!(kept.refinement["zstd"], experience.refined("zstd"));
        // Measured again.
        let next =
            Profile { measured_at: "2026-02-01T12:00:00Z".into(), ..Profile::default_local() };
        next.save(&place).unwrap();
        experience.learn("zstd", FactorKind::Cached, 2.0);
        keep_experience();
        assert!(Profile::load(&place).unwrap().refinement.is_empty());
        let again = ProfileRefinement::of(&place, &next).unwrap();
        assert_eq!(again.refined("zstd").cached.counts(), 1.0);
        std::fs::remove_file(place).unwrap();
    }
}
