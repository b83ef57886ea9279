//! What the reads of this process took, for the prices of the next ones.
//!
//! Of the storage whose profile is kept, the profile's [refinement](bedform_storage::Refined) learns from reads
//! as they happen, and is kept with it: at most every ten seconds, and by whoever writes last. `calibrate`
//! begins anew. With `BEDFORM_REFINE=0` nothing more is learnt; what is kept counts.
//!
//! No lock is waited for: a process may have forked while another thread held it.
//!
//! A read counts if its price could be right: nothing of it came from the cache or a log, and all of it was either
//! in the page cache or on the device.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bedform_storage::{FactorKind, Profile, Refined};

/// Shorter reads are over before a clock says much.
const SECONDS_MIN: f64 = 100e-6;
/// No more than a read in this time: learning must cost nothing.
const BETWEEN_READS: Duration = Duration::from_millis(5);
const BETWEEN_SAVES: Duration = Duration::from_secs(10);
/// Codecs that are learnt about.
const CODECS_MAX: usize = 64;
const VARIABLE: &str = "BEDFORM_REFINE";

/// What is known of one storage.
#[derive(Debug)]
pub(crate) struct Experience {
    /// The file of the profile.
    place: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    refinement: BTreeMap<String, Refined>,
    /// Of which measurement.
    measured_at: String,
    last: Option<Instant>,
    saved: Instant,
    is_new: bool,
}

static ALL: LazyLock<Mutex<HashMap<PathBuf, Arc<Experience>>>> = LazyLock::new(Mutex::default);

impl Experience {
    /// That of the profile at `place`; nothing where no more is to be learnt.
    pub(crate) fn of(place: &Path, profile: &Profile) -> Option<Arc<Self>> {
        if std::env::var(VARIABLE).is_ok_and(|said| said == "0") {
            return None;
        }
        let mut all = ALL.try_lock().ok()?;
        let known = all.entry(place.to_owned()).or_insert_with(|| {
            Arc::new(Self { place: place.to_owned(), state: Mutex::new(State::of(profile)) })
        });
        let mut state = known.lock()?;
        if state.measured_at != profile.measured_at {
            *state = State::of(profile);
        }
        drop(state);
        Some(Arc::clone(known))
    }

    /// The factors of a codec.
    pub(crate) fn refined(&self, codec: &str) -> Refined {
        let known = self.lock().and_then(|state| state.refinement.get(codec).copied());
        known.unwrap_or_default()
    }

    /// True if a read of so many seconds is to be learnt from.
    pub(crate) fn is_due(&self, seconds: f64) -> bool {
        let is_time = |state: MutexGuard<'_, State>| {
            state.last.is_none_or(|last| last.elapsed() >= BETWEEN_READS)
        };
        seconds >= SECONDS_MIN && self.lock().is_some_and(is_time)
    }

    /// A read took `ratio` times what was predicted, before any refinement.
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

    /// Keeps what was learnt with the profile, if it still is the one that was learnt about.
    fn save(&self, state: &mut State) {
        state.saved = Instant::now();
        let Ok(mut profile) = Profile::load(&self.place) else { return };
        if !state.is_new || profile.measured_at != state.measured_at {
            return;
        }
        state.is_new = false;
        profile.refinement = state.refinement.clone();
        // A place that takes nothing must not keep data from being read.
        let _ = profile.save(&self.place);
    }

    fn lock(&self) -> Option<MutexGuard<'_, State>> {
        self.state.try_lock().ok()
    }
}

impl State {
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

/// Keeps what was learnt of all storages: for the end of a process.
pub fn keep_experience() {
    let all: Vec<_> =
        ALL.try_lock().map_or_else(|_| Vec::new(), |all| all.values().cloned().collect());
    for experience in all {
        if let Some(mut state) = experience.lock() {
            experience.save(&mut state);
        }
    }
}

/// Forgets what was learnt of the storage whose profile is in `place`: another one is kept there now.
pub fn forget_experience(place: &Path) {
    let known = ALL.try_lock().ok().and_then(|all| all.get(place).cloned());
    if let Some(mut state) = known.as_ref().and_then(|experience| experience.lock()) {
        let profile = Profile::load(place).unwrap_or_else(|_| Profile::default_local());
        *state = State::of(&profile);
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
        let experience = Experience::of(&place, &profile).unwrap();
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
        let again = Experience::of(&place, &next).unwrap();
        assert_eq!(again.refined("zstd").cached.counts(), 1.0);
        std::fs::remove_file(place).unwrap();
    }
}
