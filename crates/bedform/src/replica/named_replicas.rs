//! The replicas that a set of catalogues names, by array, and the choices made among them.
//!
//! Choices are kept with the replicas that they were made among: new catalogues make new ones.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bedform_format::replica::Replica;

use super::catalogue::replicas_in;
use super::open_replica::{OpenReplica, ReplicaStatistics};
use super::places::SharedPlaces;
use crate::options::OpenOptions;
use crate::sidecar::{REPLICAS, Sidecar};

/// The most kinds of reads with a remembered choice; one more clears all choices.
const CHOICES_MAX: usize = 1 << 12;

/// The chosen replicas, by number, for each array and kind of reads.
type Choices = HashMap<(String, Vec<u64>), Vec<usize>>;

/// The chosen replicas for a kind of reads, and the eighths of such a read that the array supplies.
pub(crate) type RememberedChoice = (Vec<usize>, u64);

/// The replicas named by a set of catalogues, and the choices made among them.
#[derive(Debug, Default)]
pub(crate) struct NamedReplicas {
    by_array: BTreeMap<String, Vec<Arc<OpenReplica>>>,
    /// The choices for kinds of reads, by array and kind.
    choices: Mutex<Choices>,
    /// The choices for kinds of reads, by number of the kind.
    kinds: Mutex<HashMap<u64, RememberedChoice>>,
}

impl NamedReplicas {
    /// Loads the newest catalogues of these sidecars; a replica that `before` has too stays open.
    pub(super) fn load(
        sidecars: &[Sidecar],
        options: &OpenOptions,
        before: Option<&NamedReplicas>,
    ) -> Self {
        let mut named = Self::default();
        let mut shared: HashMap<(String, Vec<u64>), SharedPlaces> = HashMap::new();
        for sidecar in sidecars.iter().filter(|one| one.is_trusted_at(&[REPLICAS])) {
            for record in replicas_in(sidecar, &options.limits) {
                let known = before.and_then(|before| before.with(&record, sidecar));
                // New replicas with the same points share the places that a known one has loaded.
                let loaded = || known.as_ref().map(|known| known.places.clone());
                let key =
                    record.places.as_ref().map(|of| (of.fingerprint.clone(), record.held.shape()));
                let places = key.map(|key| {
                    shared.entry(key).or_insert_with(|| loaded().unwrap_or_default()).clone()
                });
                let of_array = named.by_array.entry(record.array.clone()).or_default();
                let places = places.unwrap_or_default();
                let new = || OpenReplica::new(record, sidecar, options, places).map(Arc::new);
                of_array.extend(known.or_else(new));
            }
        }
        named
    }

    /// Returns the replicas of the array at `path`.
    pub(crate) fn of_array(&self, path: &str) -> &[Arc<OpenReplica>] {
        self.by_array.get(path).map_or(&[], Vec::as_slice)
    }

    /// Returns the replica in a sidecar with this record.
    fn with(&self, record: &Replica, sidecar: &Sidecar) -> Option<Arc<OpenReplica>> {
        self.of_array(&record.array).iter().find(|one| one.is_of(record, sidecar)).cloned()
    }

    /// Returns the use of each replica.
    pub(super) fn statistics(&self) -> impl Iterator<Item = ReplicaStatistics> {
        self.by_array.values().flatten().map(|replica| replica.statistics())
    }

    /// Returns the replicas chosen for the kind `key` of reads of an array; calls `choose` the
    /// first time.
    pub(crate) fn choice(
        &self,
        array: &str,
        key: Vec<u64>,
        choose: impl FnOnce() -> Vec<usize>,
    ) -> Vec<usize> {
        let lock = || self.choices.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (array.to_owned(), key);
        if let Some(known) = lock().get(&key) {
            return known.clone();
        }
        let chosen = choose();
        let mut choices = lock();
        if choices.len() >= CHOICES_MAX {
            choices.clear();
        }
        choices.insert(key, chosen.clone());
        chosen
    }

    /// Returns the remembered choice for a kind of reads.
    pub(crate) fn remembered(&self, kind: u64) -> Option<RememberedChoice> {
        self.kinds().get(&kind).cloned()
    }

    /// True if the remembered choice for a kind of reads is empty.
    pub(crate) fn are_no_help(&self, kind: u64) -> bool {
        self.kinds().get(&kind).is_some_and(|(choice, _)| choice.is_empty())
    }

    pub(crate) fn remember(&self, kind: u64, what: RememberedChoice) {
        let mut kinds = self.kinds();
        if kinds.len() >= CHOICES_MAX {
            kinds.clear();
        }
        kinds.insert(kind, what);
    }

    fn kinds(&self) -> MutexGuard<'_, HashMap<u64, RememberedChoice>> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
