//! Locks in an object store: leases, because no lock there ends with its holder.
//!
//! A lock is a small object, created and changed only on condition. Its holder rewrites it every
//! few seconds, as a heartbeat. A waiting process takes a lock that stays unchanged for a whole
//! lease by its own monotonic clock, so that no two clocks are compared. A holder that could not
//! renew its lease for three quarters of that time considers it lost. Its handle then writes
//! nothing more and reports that its last writes may be missing.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ::object_store::path::Path;
use ::object_store::{Error, ObjectStore, ObjectStoreExt as _, PutPayload};

use super::error::strict;
use super::put::{ObjectState, WriteError, Writes, random_name};
use super::{RemoteShared, Result, runtime};
use bedform_storage::Lock;
use bedform_storage::cancellation::{LockPoll, interrupted};

/// The name of the object that is a directory's lock.
pub(super) const LOCK_NAME: &str = ".bedform-lock";
const FREE: &str = "free";
/// The first and the longest pause between two looks at a held lock.
const LOOKS: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(150)];
const STATE_BYTES_MAX: u64 = 4096;
/// The most locks that a handle remembers as released by itself.
const FREE_MAX: usize = 1 << 10;

/// The time to wait for a lock that another holder has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaseWait {
    /// Not at all.
    None,
    /// Until it is known whether the holder is alive.
    ToTell,
    /// Without a limit.
    Endless,
}

/// The leases of this handle.
#[derive(Debug, Default)]
pub(super) struct Leases {
    all: Mutex<Vec<Arc<Lease>>>,
    /// Locks that threads of this process hold, or are about to take.
    taken: Mutex<HashSet<Path>>,
    given_up: Condvar,
    /// Locks that this handle released, with their state then.
    free: Mutex<HashMap<Path, ObjectState>>,
}

/// A held lock.
#[derive(Debug)]
struct Lease {
    name: Path,
    holder: String,
    process: u32,
    state: Mutex<LeaseState>,
    /// True once the heartbeat is to end: the lock was released, or its directory deleted.
    has_ended: AtomicBool,
}

#[derive(Debug)]
struct LeaseState {
    known: ObjectState,
    /// The time at which the last successful renewal was sent.
    renewed: Instant,
    /// True once another writer has taken the lock.
    is_lost: bool,
    beats: u64,
}

impl Lease {
    fn state(&self) -> MutexGuard<'_, LeaseState> {
        lock(&self.state)
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    fn is_lapsed(&self, lease: Duration) -> bool {
        let state = self.state();
        !self.has_ended() && (state.is_lost || state.renewed.elapsed() > lease * 3 / 4)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Leases {
    /// Returns the name of a lost lock, if there is one.
    pub(super) fn lost(&self, lease: Duration) -> Option<String> {
        lock(&self.all).iter().find(|one| one.is_lapsed(lease)).map(|one| one.name.to_string())
    }

    /// Ends the leases of all locks below `prefix`, which is about to be deleted.
    pub(super) fn end_below(&self, prefix: &Path) {
        for lease in lock(&self.all).iter().filter(|lease| lease.name.prefix_matches(prefix)) {
            lease.has_ended.store(true, Ordering::Release);
        }
    }

    /// Reserves the lock `name` for this thread, waiting for other threads of the process if
    /// `waits`. False if another thread has it and the call does not wait, or was cancelled.
    fn take(&self, name: &Path, waits: bool, waiting: &mut LockPoll<'_>) -> bool {
        let mut taken = lock(&self.taken);
        while taken.contains(name) {
            if !waits || waiting.is_cancelled() {
                return false;
            }
            let waited = self.given_up.wait_timeout(taken, LOOKS[1]);
            taken = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        taken.insert(name.clone())
    }

    fn note_free(&self, name: &Path, known: ObjectState) {
        let mut free = lock(&self.free);
        if free.len() >= FREE_MAX {
            free.clear();
        }
        free.insert(name.clone(), known);
    }

    fn give_up(&self, name: &Path) {
        lock(&self.taken).remove(name);
        self.given_up.notify_all();
    }
}

/// The guard of a lock.
pub(super) struct LeaseGuard {
    shared: Arc<RemoteShared>,
    name: Path,
    /// `None` for a single writer.
    lease: Option<Arc<Lease>>,
}

impl Lock for LeaseGuard {}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        let leases = &self.shared.leases;
        if let Some(lease) = &self.lease {
            lock(&leases.all).retain(|other| !Arc::ptr_eq(other, lease));
            // A forked child has a copy of the guard, but not the lock.
            if lease.process == std::process::id() && !lease.has_ended.swap(true, Ordering::AcqRel)
            {
                self.release(lease);
            }
        }
        leases.give_up(&self.name);
    }
}

impl LeaseGuard {
    /// Takes the lock `name`; `None` if another holder has it beyond `patience`.
    ///
    /// # Errors
    /// Of the server.
    pub(super) fn take(
        shared: &Arc<RemoteShared>,
        name: Path,
        patience: LeaseWait,
    ) -> Result<Option<Self>> {
        let locked = name.to_string();
        let waiting_for = locked.strip_suffix(LOCK_NAME).unwrap_or(&locked);
        let mut waiting = LockPoll::new(waiting_for);
        if !shared.leases.take(&name, patience == LeaseWait::Endless, &mut waiting) {
            return if waiting.was_cancelled { Err(waiting.interrupted()) } else { Ok(None) };
        }
        let mut held = Self { shared: shared.clone(), name, lease: None };
        let writes = shared.writes()?;
        if !writes.has_conditions {
            return Ok(Some(held));
        }
        let acquiring = acquire(&writes, &held.name, shared, patience, &mut waiting);
        let Some(taken) = runtime::write("lock", waiting_for, acquiring)? else {
            return Err(interrupted("lock", waiting_for));
        };
        let Some(lease) = taken.map_err(|unwritten| shared.error("lock", &held.name, unwritten))?
        else {
            return if waiting.was_cancelled { Err(waiting.interrupted()) } else { Ok(None) };
        };
        let lease = Arc::new(lease);
        lock(&shared.leases.all).push(lease.clone());
        held.lease = Some(lease.clone());
        runtime::spawn(renew(writes, lease, shared.options.lease))?;
        Ok(Some(held))
    }

    /// Writes that the lock is free, so that no process has to wait for the end of the lease. A
    /// slow write continues in the background.
    fn release(&self, lease: &Arc<Lease>) {
        if self.shared.is_poisoned() {
            return;
        }
        // Without a client the lease expires.
        let Ok(writes) = self.shared.writes() else { return };
        let (shared, lease) = (self.shared.clone(), lease.clone());
        if let Ok(freed) = runtime::spawn(free(writes, shared, lease)) {
            let _ = runtime::give_back(freed);
        }
    }
}

/// Writes that the lock is free. Repeats this while an earlier heartbeat may still arrive.
async fn free(writes: Writes, shared: Arc<RemoteShared>, lease: Arc<Lease>) {
    let begun = Instant::now();
    loop {
        let (known, beats) = {
            let state = lease.state();
            (state.known.clone(), state.beats + 1)
        };
        let body = state_of(FREE, beats);
        match writes.put_if(&lease.name, body, Some(&known), None).await {
            Err(WriteError::Refused) if begun.elapsed() < writes.deadline => {}
            Ok(Some(known)) => return shared.leases.note_free(&lease.name, known),
            // Another process has taken the lock, or its state is unknown.
            Ok(None) | Err(_) => return,
        }
        // The last heartbeat may have arrived in between.
        match holder_of(&*writes.store, &lease.name).await {
            Ok(Some((holder, known))) if holder == lease.holder => {
                lease.state().known = known;
            }
            _ => return,
        }
    }
}

fn state_of(holder: &str, beats: u64) -> PutPayload {
    // The beat number and the random name make each state a new version.
    PutPayload::from(format!("bedform-lock 1\n{holder}\n{beats} {}\n", random_name()))
}

/// Reads the holder of a lock, with the state of its object.
async fn holder_of(
    store: &dyn ObjectStore,
    name: &Path,
) -> std::result::Result<Option<(String, ObjectState)>, Error> {
    runtime::request(|| holder_once(store, name)).await
}

async fn holder_once(
    store: &dyn ObjectStore,
    name: &Path,
) -> std::result::Result<Option<(String, ObjectState)>, Error> {
    let found = match store.get(name).await {
        Ok(found) => found,
        Err(error) => match strict(error) {
            Error::NotFound { .. } => return Ok(None),
            error => return Err(error),
        },
    };
    let known = ObjectState::new(&found.meta, &found.attributes);
    if found.meta.size > STATE_BYTES_MAX {
        // Not written by this module: it is taken once it stays unchanged for a lease.
        return Ok(Some((String::new(), known)));
    }
    let bytes = found.bytes().await?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(Some((text.lines().nth(1).unwrap_or_default().to_owned(), known)))
}

async fn acquire(
    writes: &Writes,
    name: &Path,
    shared: &RemoteShared,
    patience: LeaseWait,
    waiting: &mut LockPoll<'_>,
) -> std::result::Result<Option<Lease>, WriteError> {
    let lease = shared.options.lease;
    let holder = random_name();
    let mut seen: Option<(ObjectState, Instant)> = None;
    let mut pause = LOOKS[0];
    // Usually no other process has taken the lock since this handle released it.
    let mut free = lock(&shared.leases.free).remove(name);
    loop {
        let there = match free.take() {
            Some(known) => Some((FREE.to_owned(), known)),
            None => holder_of(&*writes.store, name).await.map_err(WriteError::Failed)?,
        };
        let is_free = match &there {
            None => true,
            Some((holder, known)) => {
                let is_new = seen.as_ref().is_none_or(|(seen, _)| seen.version != known.version);
                let has_enough = match patience {
                    LeaseWait::None => true,
                    LeaseWait::ToTell => is_new && seen.is_some(),
                    LeaseWait::Endless => false,
                };
                if holder != FREE && has_enough {
                    return Ok(None);
                }
                if is_new {
                    seen = Some((known.clone(), Instant::now()));
                }
                let since = seen.as_ref().map_or(Duration::ZERO, |(_, since)| since.elapsed());
                holder == FREE || since > lease
            }
        };
        if is_free {
            let begun = Instant::now();
            let expected = there.as_ref().map(|(_, known)| known);
            let body = state_of(&holder, 0);
            match writes.put_if(name, body, expected, None).await {
                Ok(Some(known)) => {
                    let state = LeaseState { known, renewed: begun, is_lost: false, beats: 0 };
                    return Ok(Some(Lease {
                        name: name.clone(),
                        holder,
                        process: std::process::id(),
                        state: Mutex::new(state),
                        has_ended: AtomicBool::new(false),
                    }));
                }
                // Or the lock was taken and lost before its answer arrived.
                Ok(None) | Err(WriteError::Refused) => pause = LOOKS[0],
                Err(unwritten) => return Err(unwritten),
            }
        }
        if waiting.is_cancelled() {
            return Ok(None);
        }
        tokio::time::sleep(pause.min(lease / 8)).await;
        pause = (pause * 2).min(LOOKS[1]);
    }
}

/// Rewrites the lock as long as it is held.
async fn renew(writes: Writes, lease: Arc<Lease>, length: Duration) {
    let beat = length / 8;
    // A hanging request must leave time for another one.
    let writes = Writes { deadline: beat, ..writes };
    loop {
        tokio::time::sleep(beat).await;
        if lease.has_ended() {
            return;
        }
        let (known, beats) = {
            let state = lease.state();
            (state.known.clone(), state.beats + 1)
        };
        let begun = Instant::now();
        let body = state_of(&lease.holder, beats);
        let put = writes.put_if(&lease.name, body, Some(&known), None);
        match tokio::time::timeout(length / 4, put).await {
            Ok(Ok(Some(known))) => {
                let mut state = lease.state();
                (state.known, state.renewed, state.beats) = (known, begun, beats);
            }
            Ok(Ok(None)) => {
                lease.state().is_lost = true;
                return;
            }
            Ok(Err(WriteError::Refused)) => {
                // An earlier heartbeat that timed out may have arrived since.
                match holder_of(&*writes.store, &lease.name).await {
                    Ok(Some((holder, known))) if holder == lease.holder => {
                        lease.state().known = known;
                    }
                    Ok(_) => {
                        lease.state().is_lost = true;
                        return;
                    }
                    Err(_) => {}
                }
            }
            // Repeated until the lease has lapsed, and afterwards: the lock may still be ours to
            // release.
            Ok(Err(_)) | Err(_) => {}
        }
    }
}
