//! The replicas of an opened source, and the look for newer catalogues while it is open.
//!
//! The sidecars of the user and of the site may each have a catalogue; a source may get its first
//! sidecar while it is open. A replica that a newer catalogue still names stays open.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::catalogue::CATALOGUE;
use super::named_replicas::NamedReplicas;
use super::open_replica::ReplicaStatistics;
use crate::options::{Freshness, OpenOptions};
use crate::sidecar::{REPLICAS, Sidecar};

/// The time after which an open handle looks for newer catalogues.
const LOOKED_AGAIN: Duration = Duration::from_secs(2);
/// The environment variable that turns replicas off.
const VARIABLE: &str = "BEDFORM_REPLICAS";

/// The replicas of one opened source. An open handle also uses replicas that are made later.
#[derive(Debug)]
pub(crate) struct Replicas {
    /// The sidecars that could have replicas when the source was opened.
    sidecars: Vec<Sidecar>,
    options: OpenOptions,
    seen: Mutex<Option<CatalogueView>>,
}

/// The replicas that the newest catalogue of each sidecar names.
#[derive(Debug)]
struct CatalogueView {
    /// The time of the last look for newer catalogues.
    looked: Instant,
    /// The sidecar of the user, then that of the site.
    sidecars: Vec<Sidecar>,
    /// The generation number of each catalogue.
    generations: Vec<u64>,
    named: Arc<NamedReplicas>,
}

/// Returns the sidecars that may have replicas for a user: the user's own, and that of the site.
fn of_user_and_site(own: &Sidecar) -> Vec<Sidecar> {
    let sidecars = std::iter::once(own).chain(own.site());
    let may_have = |sidecar: &&Sidecar| {
        sidecar.own_directory().is_some() && sidecar.is_trusted_at(&[REPLICAS])
    };
    sidecars.filter(may_have).cloned().collect()
}

/// Looks for the sidecars again: a source may get its first sidecar while it is open.
fn found_again(sidecars: &[Sidecar]) -> Vec<Sidecar> {
    let found = sidecars.first().and_then(Sidecar::found_again);
    let found = found.map(|own| of_user_and_site(&own));
    found.filter(|found| !are_at_one(found, sidecars)).unwrap_or_else(|| sidecars.to_vec())
}

/// True if both lists name the same directories.
fn are_at_one(these: &[Sidecar], those: &[Sidecar]) -> bool {
    these.iter().map(Sidecar::own_directory).eq(those.iter().map(Sidecar::own_directory))
}

/// True if reads of a source opened with these options use no replicas.
pub(crate) fn are_off(options: &OpenOptions) -> bool {
    let said = std::env::var(VARIABLE).ok();
    !options.replicas || matches!(said.as_deref().map(str::trim), Some("0" | "off" | "false"))
}

impl Replicas {
    /// Makes the replicas of a source opened with these options; `None` without a sidecar on this
    /// machine.
    pub(crate) fn new(options: &OpenOptions) -> Option<Arc<Self>> {
        let sidecar = options.sidecar.as_ref().filter(|_| !are_off(options))?;
        let sidecars = of_user_and_site(sidecar);
        if sidecars.is_empty() {
            return None;
        }
        let options = OpenOptions {
            writable: false,
            // The files of a replica never change.
            freshness: Freshness::Open,
            sidecar: None,
            profile: None,
            refines: None,
            ..options.clone()
        };
        Some(Arc::new(Self { sidecars, options, seen: Mutex::default() }))
    }

    /// Returns the replicas that the catalogues name, at most [`LOOKED_AGAIN`] out of date.
    pub(crate) fn now(&self) -> Arc<NamedReplicas> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seen) = &*seen
            && seen.looked.elapsed() < LOOKED_AGAIN
        {
            return Arc::clone(&seen.named);
        }
        // Taken before loading, so that the next look finds a catalogue saved meanwhile.
        let looked = Instant::now();
        let before = seen.take();
        let sidecars = match &before {
            Some(before) => found_again(&before.sidecars),
            None => self.sidecars.clone(),
        };
        let numbers = sidecars.iter().map(|sidecar| sidecar.last_number(CATALOGUE));
        let generations: Vec<u64> = numbers.collect();
        let named = match before {
            Some(before)
                if before.generations == generations && are_at_one(&before.sidecars, &sidecars) =>
            {
                before.named
            }
            before => {
                let before = before.as_ref().map(|before| &*before.named);
                Arc::new(NamedReplicas::load(&sidecars, &self.options, before))
            }
        };
        Arc::clone(&seen.insert(CatalogueView { looked, sidecars, generations, named }).named)
    }

    /// Returns the use of each loaded replica.
    pub(crate) fn statistics(&self) -> Vec<ReplicaStatistics> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().flat_map(|seen| seen.named.statistics()).collect()
    }
}
