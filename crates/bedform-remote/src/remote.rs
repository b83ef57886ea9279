//! Objects of an object store: S3, Google Cloud Storage, Azure, and plain HTTP servers.
//!
//! Requests go through the crate `object_store`, whose asynchronous runtime stays in here: calls of
//! [`Storage`](bedform_storage::Storage) block, and many are in flight because many threads call.
//!
//! An object store keeps no bytes for who has opened an object: what was replaced meanwhile is a
//! `Conflict` for all later reads of it, so that an index and the chunks that it names belong together.
//! Each request asks for the version that was opened (`If-Match`), and each answer is compared with it.
//!
//! Every write has a condition (`If-None-Match`, `If-Match`), also where the newest writer wins: what a
//! writer that was cut off still has on its way finds that it does not hold. `put` has how a lost answer
//! is told from a conflict, `parts` how large objects are sent, `lease` how locks are kept, `growing` how
//! objects grow, `transport` and `paging` what servers that misbehave cannot do. What is acknowledged is as
//! durable as the server makes it; [`Durability`](bedform_storage::Durability) makes no difference.

mod aws;
mod azure;
mod client;
mod error;
mod gcp;
mod growing;
mod lease;
mod object;
mod paging;
mod parts;
mod per_process;
mod pieces;
pub(crate) mod probe;
mod put;
mod remove;
mod runtime;
mod storage;
mod transport;
mod url;
mod web;
mod writer;

use std::collections::{BTreeSet, HashMap};
use std::fmt::Display;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ::object_store::path::Path;
use ::object_store::{Error, ObjectMeta, ObjectStore, PutPayload};
use bedform_format::ObjectPath;
use futures_util::TryStreamExt as _;

use self::client::{Client, Made};
use self::error::to_error;
use self::growing::GrownObject;
use self::lease::{Held, LOCK_NAME, Leases, Patience};
use self::object::RemoteObject;
pub use self::parts::Parts;
use self::pieces::SharedPieces;
use self::put::{Known, Unwritten, Writes, given_up};
#[cfg(test)]
pub(crate) use self::runtime::wait;
use self::url::Place;
pub use self::url::{RemoteOptions, UrlError};
use bedform_storage::cancellation::interrupted;
use bedform_storage::{Condition, Lock, Mode, Object, StorageError, StorageErrorKind, Version};

type Result<T> = std::result::Result<T, StorageError>;

/// What names of this module's own objects begin with: they do not appear in listings.
const OWN_PREFIX: &str = ".bedform-";
/// What an object is called that a server is tried with.
const PROBE_PREFIX: &str = ".bedform-probe-";
/// Names of which a handle remembers what it saw; beyond it forgets all, and looks again.
const SEEN_MAX: usize = 1 << 12;

/// Servers and buckets that are fit for several writers, as this process has seen.
static FIT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
/// What is said of a store that has no URL: any two may be of different servers.
const OTHER_SYSTEM: &str = "other";
/// The number of the next store without a URL.
static OTHERS: AtomicU64 = AtomicU64::new(0);

/// A prefix of an object store, by its URL.
///
/// ```no_run
/// use bedform_format::ObjectPath;
/// use bedform_remote::{RemoteOptions, RemoteStorage};
/// use bedform_storage::{Mode, Storage};
///
/// let options = RemoteOptions { anonymous: true, ..RemoteOptions::default() };
/// let storage = RemoteStorage::open("s3://bucket/run42.zarr", Mode::ReadOnly, &options)?;
/// let document = storage.open(&ObjectPath::parse("zarr.json").unwrap())?;
/// let mut bytes = vec![0; document.version().size as usize];
/// document.read(0, &mut bytes)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct RemoteStorage {
    shared: Arc<Shared>,
    /// What all names begin with; empty for a whole bucket.
    prefix: String,
    /// The URL as users may see it.
    shown: String,
    /// Errors of objects have their whole URL: who asks for one file knows it by nothing else.
    says_urls: bool,
    /// What all places have in common that are read alike, as the name of a file.
    system: String,
    /// Tells who asks from others who may have other rights.
    rights: String,
}

/// What a place has in common with those beside it, and with its objects.
#[derive(Debug)]
struct Shared {
    client: Client,
    options: RemoteOptions,
    /// False if nothing is ever written.
    is_writable: bool,
    /// True if the server tells what it has: plain HTTP servers do not.
    lists: bool,
    /// Why nothing more is written, once the outcome of a write is unknown.
    poison: OnceLock<String>,
    leases: Leases,
    /// What was seen last under names that may be written to, or that nothing was there: a guess that
    /// each write checks.
    seen: Mutex<HashMap<Path, Option<Known>>>,
    /// The server was seen to keep to conditions.
    has_checked: AtomicBool,
    /// A [`TakesParts`].
    takes_parts: AtomicU8,
    pieces: SharedPieces,
}

/// Whether a server completes an object of parts on a condition alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TakesParts {
    Unknown,
    Trying,
    Yes,
    No,
}

impl RemoteStorage {
    /// The place at `url`: `s3://bucket/path`, `gs://bucket/path`, `az://container/path` or
    /// `http(s)://host/path`, which is only read. Asks nothing of the server.
    ///
    /// # Errors
    /// For a URL that is none of these, or has secrets in it, or options that make no client.
    pub fn open(
        url: &str,
        mode: Mode,
        options: &RemoteOptions,
    ) -> std::result::Result<Self, UrlError> {
        let place = Place::of(url, options)?;
        if mode != Mode::ReadOnly && !place.lists {
            return Err(place.refuse("HTTP servers are only read"));
        }
        if mode == Mode::Create && place.prefix.is_empty() {
            return Err(
                place.refuse("a store needs a name in its bucket, its log has one beside it")
            );
        }
        if place.has_query {
            return Err(place.refuse("the URL of a store has no query: only that of a file may"));
        }
        let Place { client, prefix, shown, system, rights, lists, .. } = place;
        let shared = Arc::new(Shared::new(client, mode, options, lists));
        Ok(Self { shared, prefix, shown, says_urls: false, system, rights })
    }

    /// The place that the object at `url` lies in, read-only, and the object's name there. Asks nothing of the
    /// server.
    ///
    /// # Errors
    /// As [`RemoteStorage::open`]; for a URL that ends with no name of an object.
    pub fn open_parent(
        url: &str,
        options: &RemoteOptions,
    ) -> std::result::Result<(Self, ObjectPath), UrlError> {
        let place = Place::of(url, options)?;
        let parse = |name: &str| ObjectPath::parse(name).ok().filter(|name| !name.is_root());
        let (prefix, name) = place.prefix.rsplit_once('/').unwrap_or(("", &place.prefix));
        let name = parse(name).ok_or_else(|| place.refuse("it ends with no name of a file"))?;
        let shown = place.shown.rsplit_once('/').map_or(&*place.shown, |(parent, _)| parent);
        let (prefix, shown) = (prefix.to_owned(), shown.to_owned());
        let Place { client, system, rights, lists, .. } = place;
        let shared = Arc::new(Shared::new(client, Mode::ReadOnly, options, lists));
        Ok((Self { shared, prefix, shown, says_urls: true, system, rights }, name))
    }

    /// A prefix of `store`, called `shown`.
    pub fn new(
        store: Arc<dyn ObjectStore>,
        prefix: &str,
        shown: &str,
        mode: Mode,
        options: &RemoteOptions,
    ) -> Self {
        let client = Client::new(Box::new(move |_| Ok(Made::whole(store.clone()))));
        Self::of(Shared::new(client, mode, options, true), prefix, shown)
    }

    /// As [`RemoteStorage::new`], of a store that completes objects of parts on a condition.
    pub fn new_in_parts(
        store: Arc<dyn ObjectStore>,
        parts: Arc<dyn Parts>,
        prefix: &str,
        shown: &str,
        mode: Mode,
        options: &RemoteOptions,
    ) -> Self {
        let made = move |_| Ok(Made { store: store.clone(), parts: Some(parts.clone()) });
        let shared = Shared::new(Client::new(Box::new(made)), mode, options, true);
        shared.takes_parts.store(TakesParts::Yes as u8, Ordering::Release);
        Self::of(shared, prefix, shown)
    }

    /// A prefix of a store that may be the same as that of another handle, or not.
    fn of(shared: Shared, prefix: &str, shown: &str) -> Self {
        Self {
            shared: Arc::new(shared),
            prefix: prefix.to_owned(),
            shown: shown.to_owned(),
            says_urls: false,
            system: OTHER_SYSTEM.to_owned(),
            rights: OTHERS.fetch_add(1, Ordering::Relaxed).to_string(),
        }
    }

    /// What all places have in common that are read alike: scheme, server and bucket, as the name of a
    /// file: profiles are kept by it. No secrets and no names of users are in it.
    pub fn system(&self) -> &str {
        &self.system
    }

    /// The name of an object in the object store.
    fn name_of(&self, operation: &'static str, path: &ObjectPath) -> Result<Path> {
        let separator = if self.prefix.is_empty() || path.is_root() { "" } else { "/" };
        let name = format!("{}{separator}{path}", self.prefix);
        Path::parse(name).map_err(|error| to_error(operation, &path.to_string(), error.into()))
    }

    /// What errors call an object that is read.
    fn shown_of(&self, path: &ObjectPath) -> String {
        if self.says_urls { format!("{}/{path}", self.shown) } else { path.to_string() }
    }

    /// The name of an object that is written, or an error.
    fn name_to_write(&self, operation: &'static str, path: &ObjectPath) -> Result<Path> {
        self.shared.check_writable(operation, path)?;
        if path.is_root() {
            return Err(StorageError::new(StorageErrorKind::NotAnObject, operation, path));
        }
        self.check_server(operation, path)?;
        self.name_of(operation, path)
    }

    /// Fails if the server is not fit for several writers; looked at once for each server and process.
    fn check_server(&self, operation: &'static str, path: &ObjectPath) -> Result<()> {
        let writes = self.shared.writes()?;
        if !writes.has_conditions || self.shared.has_checked.load(Ordering::Acquire) {
            return Ok(());
        }
        // What a server knows of conditions does not depend on who asks, or of which object.
        if self.is_fit(&self.system) {
            self.shared.has_checked.store(true, Ordering::Release);
            return Ok(());
        }
        let name = self.probe_name(operation, path)?;
        let outcome = runtime::write(operation, path, writes.probe(&name))?;
        let outcome = outcome.ok_or_else(|| interrupted(operation, path))?;
        outcome.map_err(|unwritten| self.shared.error(operation, path, unwritten))?;
        self.shared.has_checked.store(true, Ordering::Release);
        self.note_fit(self.system.clone());
        Ok(())
    }

    /// True if a handle of this process has seen that the server is fit. Not waited for: a child that was
    /// forked may have a copy of the lock that nobody gives back, and then tries the server once more.
    fn is_fit(&self, system: &str) -> bool {
        FIT.try_lock().is_ok_and(|fit| fit.contains(system))
    }

    fn note_fit(&self, system: String) {
        if self.system != OTHER_SYSTEM
            && let Ok(mut fit) = FIT.try_lock()
        {
            fit.insert(system);
        }
    }

    /// What takes objects in parts, with requests that may be made twice and with others, if the server is
    /// known to complete them on a condition alone. The first who asks has that tried, in the background.
    fn parts(&self, path: &ObjectPath) -> Result<Option<[Arc<dyn Parts>; 2]>> {
        let shared = &self.shared;
        if shared.options.single_writer {
            return Ok(None);
        }
        let Some(parts) = shared.client.parts()? else { return Ok(None) };
        let (unknown, trying) = (TakesParts::Unknown as u8, TakesParts::Trying as u8);
        let (done, known) = (Ordering::AcqRel, Ordering::Acquire);
        match shared.takes_parts.compare_exchange(unknown, trying, done, known) {
            Ok(_) if self.is_fit(&self.system_in_parts()) => {
                shared.takes_parts.store(TakesParts::Yes as u8, Ordering::Release);
                Ok(Some(parts))
            }
            Ok(_) => {
                self.try_parts(path, parts)?;
                Ok(None)
            }
            Err(known) => Ok((known == TakesParts::Yes as u8).then_some(parts)),
        }
    }

    fn try_parts(&self, path: &ObjectPath, parts: [Arc<dyn Parts>; 2]) -> Result<()> {
        let (writes, place) = (self.shared.writes()?, self.clone());
        let name = self.probe_name("create", path)?;
        runtime::spawn(async move {
            let found = match writes.probe_parts(&name, &parts).await {
                Ok(()) => TakesParts::Yes,
                Err(_) => TakesParts::No,
            };
            if found == TakesParts::Yes {
                place.note_fit(place.system_in_parts());
            }
            place.shared.takes_parts.store(found as u8, Ordering::Release);
        })?;
        Ok(())
    }

    fn system_in_parts(&self) -> String {
        format!("{} in parts", self.system)
    }

    /// The name of an object that a server is tried with.
    fn probe_name(&self, operation: &'static str, path: &ObjectPath) -> Result<Path> {
        let probe = format!("{PROBE_PREFIX}{}", put::random_name());
        let probe = ObjectPath::root().join(&probe);
        let unfit = |_| StorageError::new(StorageErrorKind::NotAnObject, operation, path);
        self.name_of(operation, &probe.map_err(unfit)?)
    }

    /// Gives `payload` its name if `condition` holds; `there` is what was there when it was last looked at,
    /// if that is known.
    fn publish(
        &self,
        path: &ObjectPath,
        name: &Path,
        payload: PutPayload,
        condition: Condition<'_>,
        there: Option<Option<Known>>,
    ) -> Result<Version> {
        let shared = &*self.shared;
        shared.check_writable("publish", path)?;
        let writes = shared.writes()?;
        // Where the server checks no condition, nothing is guessed.
        let guess = there.filter(|_| writes.has_conditions);
        let written = runtime::write("publish", path, async {
            let look = async || writes.look(name).await.map_err(Unwritten::Failed);
            let expected = match condition {
                Condition::Absent if writes.has_conditions => None,
                Condition::Absent => match look().await? {
                    None => None,
                    Some(_) => return Err(Unwritten::Refused),
                },
                Condition::Unchanged(object) => {
                    let is_that = |known: &Known| known.version == *object.version();
                    let known = match guess.flatten().filter(is_that) {
                        Some(known) => Some(known),
                        None => look().await?.filter(is_that),
                    };
                    Some(known.ok_or(Unwritten::Refused)?)
                }
                Condition::None => {
                    let known = match guess {
                        Some(known) => known,
                        None => look().await?,
                    };
                    return writes.put_over(name, payload, known).await;
                }
            };
            writes.put_if(name, payload, expected.as_ref(), None).await
        })?;
        self.published(path, name, condition, written.unwrap_or_else(|| Err(given_up())))
    }

    /// Notes what became of a write, and gives the version.
    fn published(
        &self,
        path: &ObjectPath,
        name: &Path,
        condition: Condition<'_>,
        written: std::result::Result<Option<Known>, Unwritten>,
    ) -> Result<Version> {
        let shared = &*self.shared;
        match &written {
            Ok(Some(known)) => shared.note(name, Some(known.clone())),
            Ok(None) | Err(_) => shared.forget(name),
        }
        let written = written.map_err(|unwritten| match (unwritten, condition) {
            (Unwritten::Refused, Condition::Absent) => {
                StorageError::new(StorageErrorKind::Exists, "publish", path)
            }
            (unwritten, _) => shared.error("publish", path, unwritten),
        })?;
        shared.check_leases("publish", path)?;
        Ok(written.map_or_else(no_version, |known| known.version))
    }

    /// The lock of a directory.
    fn take_lock(&self, path: &ObjectPath, patience: Patience) -> Result<Option<Box<dyn Lock>>> {
        self.shared.check_writable("lock", path)?;
        self.check_server("lock", path)?;
        let directory = self.name_of("lock", path)?;
        let store = &**self.shared.client.store()?;
        let name = directory.clone().join(LOCK_NAME);
        // Who waits for a lock knows that there is something to be locked.
        if patience != Patience::Endless && !path.is_root() {
            let is_there = runtime::wait(
                "lock",
                path,
                runtime::request(|| async {
                    let mut below = store.list(Some(&directory));
                    Ok(below.try_next().await?.is_some())
                }),
            )?;
            if !is_there.map_err(|error: Error| to_error("lock", path.as_str(), error))? {
                return Err(StorageError::new(StorageErrorKind::NotFound, "lock", path));
            }
        }
        let held = Held::take(&self.shared, name, patience)?;
        Ok(held.map(|held| Box::new(held) as Box<dyn Lock>))
    }
}

impl Shared {
    fn new(client: Client, mode: Mode, options: &RemoteOptions, lists: bool) -> Self {
        Self {
            client,
            options: options.clone(),
            is_writable: mode != Mode::ReadOnly,
            lists,
            poison: OnceLock::new(),
            leases: Leases::default(),
            seen: Mutex::default(),
            has_checked: AtomicBool::new(false),
            takes_parts: AtomicU8::new(TakesParts::Unknown as u8),
            pieces: SharedPieces::default(),
        }
    }

    /// What writes go through in this process.
    fn writes(&self) -> Result<Writes> {
        let RemoteOptions { deadline, pause, single_writer, .. } = self.options;
        let store = self.client.store()?.clone();
        let plain = self.client.store_to_write()?.clone();
        Ok(Writes { store, plain, deadline, pause, has_conditions: !single_writer })
    }

    /// Opens an object, of which the last `bytes` come along.
    async fn open(
        self: Arc<Self>,
        name: Path,
        shown: String,
        bytes: u64,
    ) -> Result<Box<dyn Object>> {
        let opening = RemoteObject::open(self.clone(), name.clone(), shown.clone(), bytes);
        let (object, known) = opening.await.inspect_err(|error| {
            if error.is_not_found() {
                self.note(&name, None);
            }
        })?;
        self.note(&name, Some(known.clone()));
        let Known { version, parts, .. } = known;
        Ok(match parts {
            None => Box::new(object),
            Some(parts) => Box::new(GrownObject::open(self, name, shown, version, &parts).await?),
        })
    }

    /// Remembers what is under a name.
    fn note(&self, name: &Path, known: Option<Known>) {
        if !self.is_writable {
            return;
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= SEEN_MAX {
            seen.clear();
        }
        seen.insert(name.clone(), known);
    }

    /// Lets go of what was seen under a name.
    fn forget(&self, name: &Path) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// What was seen last under a name; nothing if nobody has looked.
    fn seen(&self, name: &Path) -> Option<Option<Known>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn is_poisoned(&self) -> bool {
        self.poison.get().is_some()
    }

    /// Fails if this handle does not write, or no longer does.
    fn check_writable(&self, operation: &'static str, path: &ObjectPath) -> Result<()> {
        if !self.is_writable {
            return Err(StorageError::new(StorageErrorKind::ReadOnly, operation, path));
        }
        self.check_leases(operation, path)
    }

    /// Fails if a lock was lost under which something may have been written.
    fn check_leases(&self, operation: &'static str, path: &ObjectPath) -> Result<()> {
        if let Some(lock) = self.leases.lost(self.options.lease) {
            let _ = self.poison.set(format!(
                "the lock {lock} could not be renewed for {:?}, and others may have taken it",
                self.options.lease
            ));
        }
        match self.poison.get() {
            None => Ok(()),
            Some(reason) => Err(poisoned(operation, path, reason.clone())),
        }
    }

    /// The error of a write to `path`; if its outcome is unknown nothing more is written.
    fn error(
        &self,
        operation: &'static str,
        path: &impl Display,
        unwritten: Unwritten,
    ) -> StorageError {
        match unwritten {
            Unwritten::Refused => StorageError::new(StorageErrorKind::Conflict, operation, path),
            Unwritten::Failed(error) => to_error(operation, &path.to_string(), error),
            Unwritten::Unknown(error) => {
                let error = to_error(operation, &path.to_string(), error);
                let said = error.source.map(|source| format!(": {source}")).unwrap_or_default();
                let reason = format!("nobody knows whether {path} was written{said}");
                let _ = self.poison.set(reason.clone());
                poisoned(operation, path, reason)
            }
        }
    }
}

fn poisoned(operation: &'static str, path: &impl Display, reason: String) -> StorageError {
    StorageError {
        kind: StorageErrorKind::Poisoned,
        operation,
        path: path.to_string(),
        source: Some(io::Error::other(reason)),
    }
}

/// The version that an object store tells of.
fn version_of(meta: &ObjectMeta) -> Version {
    let hash = |text: &Option<String>| {
        let Some(text) = text else { return 0 };
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        hasher.finish()
    };
    // A strong name is of these bytes alone, and who has written them is told no time.
    let is_named = meta.e_tag.as_ref().is_some_and(|tag| !tag.starts_with("W/"));
    let modified = if is_named { None } else { meta.last_modified.timestamp_nanos_opt() };
    Version {
        size: meta.size,
        modified_ns: modified.unwrap_or(0),
        changed_ns: 0,
        identity: (hash(&meta.e_tag), hash(&meta.version)),
    }
}

/// That of nothing that is there: of what others have replaced before anybody knew what it was.
fn no_version() -> Version {
    Version { size: 0, modified_ns: -1, changed_ns: -1, identity: (u64::MAX, u64::MAX) }
}
