//! Objects of an object store: S3, Google Cloud Storage, Azure, and plain HTTP servers.
//!
//! Requests are sent by the crate `object_store`, whose asynchronous runtime stays internal. Calls
//! of [`Storage`](bedform_storage::Storage) block, so many requests in flight need many calling
//! threads, or its pending answers.
//!
//! An object store keeps no replaced bytes for readers. Later reads of a replaced object return
//! `Conflict`, so that an index and the chunks that it names belong together. Each request names
//! the opened version (`If-Match`), and each answer is compared with it.
//!
//! Every write has a condition (`If-None-Match`, `If-Match`), also where the newest writer wins. A
//! delayed request of a disconnected writer therefore fails. An acknowledged write is as durable as
//! the server makes it; [`Durability`](bedform_storage::Durability) makes no difference.
//!
//! `put` tells a lost answer from a conflict, `parts` sends large objects, and `growing` grows
//! objects. `lease` keeps locks. `transport` and `paging` guard against misbehaving servers.

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

use self::client::{BuiltClient, ServerClients};
use self::error::to_error;
use self::growing::GrownObject;
use self::lease::{LOCK_NAME, LeaseGuard, LeaseWait, Leases};
use self::object::RemoteObject;
pub use self::parts::MultipartClient;
use self::pieces::SharedUploadBuffers;
use self::put::{ObjectState, WriteError, Writes, given_up};
#[cfg(test)]
pub(crate) use self::runtime::wait;
use self::url::ResolvedUrl;
pub use self::url::{RemoteOptions, UrlError};
use bedform_storage::cancellation::interrupted;
use bedform_storage::{Condition, Lock, Mode, Object, StorageError, StorageErrorKind, Version};

type Result<T> = std::result::Result<T, StorageError>;

/// The prefix of this module's own objects, which are left out of listings.
const OWN_PREFIX: &str = ".bedform-";
/// The prefix of objects that test a server's conditions.
const PROBE_PREFIX: &str = ".bedform-probe-";
/// The most names whose last seen state a handle remembers; when it has more, it forgets all.
const SEEN_MAX: usize = 1 << 12;

/// Servers and buckets whose conditions this process has tested.
static FIT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
/// The system of a store without a URL: any two may have different servers.
const OTHER_SYSTEM: &str = "other";
/// The number of the next store without a URL.
static OTHERS: AtomicU64 = AtomicU64::new(0);

/// A prefix of an object store, opened by its URL.
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
    shared: Arc<RemoteShared>,
    /// The prefix of all names; empty for a whole bucket.
    prefix: String,
    /// The URL in the form shown to users.
    shown: String,
    /// True if errors show the whole URL of an object: a caller that opens a single file knows only
    /// its URL.
    says_urls: bool,
    /// Scheme, server and bucket in the form of a file name: their places have a common profile.
    system: String,
    /// A fingerprint of the credentials, which separates handles with different rights.
    rights: String,
}

/// State that a storage shares with its siblings and its objects.
#[derive(Debug)]
struct RemoteShared {
    client: ServerClients,
    options: RemoteOptions,
    /// False for a read-only handle.
    is_writable: bool,
    /// True if the server can list objects, which plain HTTP servers cannot.
    lists: bool,
    /// The reason why nothing more is written, after a write with an unknown outcome.
    poison: OnceLock<String>,
    leases: Leases,
    /// The last seen state of names that may be written to; `None` for a missing object. Each write
    /// checks this guess.
    seen: Mutex<HashMap<Path, Option<ObjectState>>>,
    /// True once the server was seen to enforce conditions.
    has_checked: AtomicBool,
    /// A [`TakesParts`] as a number.
    takes_parts: AtomicU8,
    pieces: SharedUploadBuffers,
}

/// Whether a server can complete a multipart upload on a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TakesParts {
    Unknown,
    Trying,
    Yes,
    No,
}

impl RemoteStorage {
    /// Opens the place at `url`: `s3://bucket/path`, `gs://bucket/path`, `az://container/path`, or
    /// the read-only `http(s)://host/path`. Sends no request.
    ///
    /// # Errors
    /// For another URL, one that contains secrets, or options from which no client can be made.
    pub fn open(
        url: &str,
        mode: Mode,
        options: &RemoteOptions,
    ) -> std::result::Result<Self, UrlError> {
        let place = ResolvedUrl::of(url, options)?;
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
        let ResolvedUrl { client, prefix, shown, system, rights, lists, .. } = place;
        let shared = Arc::new(RemoteShared::new(client, mode, options, lists));
        Ok(Self { shared, prefix, shown, says_urls: false, system, rights })
    }

    /// Opens, read-only, the place that contains the object at `url`, and returns the object's name
    /// there. Sends no request.
    ///
    /// # Errors
    /// As [`RemoteStorage::open`]; for a URL that does not end with the name of an object.
    pub fn open_parent(
        url: &str,
        options: &RemoteOptions,
    ) -> std::result::Result<(Self, ObjectPath), UrlError> {
        let place = ResolvedUrl::of(url, options)?;
        let parse = |name: &str| ObjectPath::parse(name).ok().filter(|name| !name.is_root());
        let (prefix, name) = place.prefix.rsplit_once('/').unwrap_or(("", &place.prefix));
        let name = parse(name).ok_or_else(|| place.refuse("it ends with no name of a file"))?;
        let shown = place.shown.rsplit_once('/').map_or(&*place.shown, |(parent, _)| parent);
        let (prefix, shown) = (prefix.to_owned(), shown.to_owned());
        let ResolvedUrl { client, system, rights, lists, .. } = place;
        let shared = Arc::new(RemoteShared::new(client, Mode::ReadOnly, options, lists));
        Ok((Self { shared, prefix, shown, says_urls: true, system, rights }, name))
    }

    /// Opens a prefix of `store`, with the name `shown`.
    pub fn new(
        store: Arc<dyn ObjectStore>,
        prefix: &str,
        shown: &str,
        mode: Mode,
        options: &RemoteOptions,
    ) -> Self {
        let client = ServerClients::new(Box::new(move |_| Ok(BuiltClient::whole(store.clone()))));
        Self::of(RemoteShared::new(client, mode, options, true), prefix, shown)
    }

    /// As [`RemoteStorage::new`], for a store that completes multipart uploads on a condition.
    pub fn new_in_parts(
        store: Arc<dyn ObjectStore>,
        parts: Arc<dyn MultipartClient>,
        prefix: &str,
        shown: &str,
        mode: Mode,
        options: &RemoteOptions,
    ) -> Self {
        let made = move |_| Ok(BuiltClient { store: store.clone(), parts: Some(parts.clone()) });
        let shared = RemoteShared::new(ServerClients::new(Box::new(made)), mode, options, true);
        shared.takes_parts.store(TakesParts::Yes as u8, Ordering::Release);
        Self::of(shared, prefix, shown)
    }

    /// Returns a prefix of a store that may or may not be that of another handle.
    fn of(shared: RemoteShared, prefix: &str, shown: &str) -> Self {
        Self {
            shared: Arc::new(shared),
            prefix: prefix.to_owned(),
            shown: shown.to_owned(),
            says_urls: false,
            system: OTHER_SYSTEM.to_owned(),
            rights: OTHERS.fetch_add(1, Ordering::Relaxed).to_string(),
        }
    }

    /// Returns scheme, server and bucket in the form of a file name. Their places share one
    /// profile. The text contains no secrets and no user names.
    pub fn system(&self) -> &str {
        &self.system
    }

    /// Returns the name of an object in the object store.
    fn name_of(&self, operation: &'static str, path: &ObjectPath) -> Result<Path> {
        let separator = if self.prefix.is_empty() || path.is_root() { "" } else { "/" };
        let name = format!("{}{separator}{path}", self.prefix);
        Path::parse(name).map_err(|error| to_error(operation, &path.to_string(), error.into()))
    }

    /// Returns the name of an object for errors of reads.
    fn shown_of(&self, path: &ObjectPath) -> String {
        if self.says_urls { format!("{}/{path}", self.shown) } else { path.to_string() }
    }

    /// Returns the name of an object that is about to be written, after checking the handle and the
    /// server.
    fn name_to_write(&self, operation: &'static str, path: &ObjectPath) -> Result<Path> {
        self.shared.check_writable(operation, path)?;
        if path.is_root() {
            return Err(StorageError::new(StorageErrorKind::NotAnObject, operation, path));
        }
        self.check_server(operation, path)?;
        self.name_of(operation, path)
    }

    /// Fails if the server does not enforce conditions; tested once per server and process.
    fn check_server(&self, operation: &'static str, path: &ObjectPath) -> Result<()> {
        let writes = self.shared.writes()?;
        if !writes.has_conditions || self.shared.has_checked.load(Ordering::Acquire) {
            return Ok(());
        }
        // The result depends neither on the credentials nor on the object.
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

    /// True if a handle of this process has tested the server. Does not wait for the lock: a forked
    /// child may have a copy that is locked for good, and then tests the server again.
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

    /// Returns the multipart clients, with and without repetition of requests, if the server is
    /// known to complete uploads on a condition. The first call starts a test in the background and
    /// returns `None`.
    fn parts(&self, path: &ObjectPath) -> Result<Option<[Arc<dyn MultipartClient>; 2]>> {
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

    fn try_parts(&self, path: &ObjectPath, parts: [Arc<dyn MultipartClient>; 2]) -> Result<()> {
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

    /// Returns a new name for an object that tests the server.
    fn probe_name(&self, operation: &'static str, path: &ObjectPath) -> Result<Path> {
        let probe = format!("{PROBE_PREFIX}{}", put::random_name());
        let probe = ObjectPath::root().join(&probe);
        let unfit = |_| StorageError::new(StorageErrorKind::NotAnObject, operation, path);
        self.name_of(operation, &probe.map_err(unfit)?)
    }

    /// Writes `payload` under `name` if `condition` holds. `there` is the last seen state of the
    /// name, if known.
    fn publish(
        &self,
        path: &ObjectPath,
        name: &Path,
        payload: PutPayload,
        condition: Condition<'_>,
        there: Option<Option<ObjectState>>,
    ) -> Result<Version> {
        let shared = &*self.shared;
        shared.check_writable("publish", path)?;
        let writes = shared.writes()?;
        // A server that checks no conditions cannot check the guess.
        let guess = there.filter(|_| writes.has_conditions);
        let written = runtime::write("publish", path, async {
            let look = async || writes.look(name).await.map_err(WriteError::Failed);
            let expected = match condition {
                Condition::Absent if writes.has_conditions => None,
                Condition::Absent => match look().await? {
                    None => None,
                    Some(_) => return Err(WriteError::Refused),
                },
                Condition::Unchanged(object) => {
                    let is_that = |known: &ObjectState| known.version == *object.version();
                    let known = match guess.flatten().filter(is_that) {
                        Some(known) => Some(known),
                        None => look().await?.filter(is_that),
                    };
                    Some(known.ok_or(WriteError::Refused)?)
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

    /// Records the outcome of a write and returns the version.
    fn published(
        &self,
        path: &ObjectPath,
        name: &Path,
        condition: Condition<'_>,
        written: std::result::Result<Option<ObjectState>, WriteError>,
    ) -> Result<Version> {
        let shared = &*self.shared;
        match &written {
            Ok(Some(known)) => shared.note(name, Some(known.clone())),
            Ok(None) | Err(_) => shared.forget(name),
        }
        let written = written.map_err(|unwritten| match (unwritten, condition) {
            (WriteError::Refused, Condition::Absent) => {
                StorageError::new(StorageErrorKind::Exists, "publish", path)
            }
            (unwritten, _) => shared.error("publish", path, unwritten),
        })?;
        shared.check_leases("publish", path)?;
        Ok(written.map_or_else(no_version, |known| known.version))
    }

    /// Takes the lock of a directory.
    fn take_lock(&self, path: &ObjectPath, patience: LeaseWait) -> Result<Option<Box<dyn Lock>>> {
        self.shared.check_writable("lock", path)?;
        self.check_server("lock", path)?;
        let directory = self.name_of("lock", path)?;
        let store = &**self.shared.client.store()?;
        let name = directory.clone().join(LOCK_NAME);
        // A caller that waits for a lock knows that the directory exists.
        if patience != LeaseWait::Endless && !path.is_root() {
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
        let held = LeaseGuard::take(&self.shared, name, patience)?;
        Ok(held.map(|held| Box::new(held) as Box<dyn Lock>))
    }
}

impl RemoteShared {
    fn new(client: ServerClients, mode: Mode, options: &RemoteOptions, lists: bool) -> Self {
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
            pieces: SharedUploadBuffers::default(),
        }
    }

    /// Returns the clients for writes in this process.
    fn writes(&self) -> Result<Writes> {
        let RemoteOptions { deadline, pause, single_writer, .. } = self.options;
        let store = self.client.store()?.clone();
        let plain = self.client.store_to_write()?.clone();
        Ok(Writes { store, plain, deadline, pause, has_conditions: !single_writer })
    }

    /// Opens an object together with its last `bytes` bytes.
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
        let ObjectState { version, parts, .. } = known;
        Ok(match parts {
            None => Box::new(object),
            Some(parts) => Box::new(GrownObject::open(self, name, shown, version, &parts).await?),
        })
    }

    /// Remembers the state of a name.
    fn note(&self, name: &Path, known: Option<ObjectState>) {
        if !self.is_writable {
            return;
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= SEEN_MAX {
            seen.clear();
        }
        seen.insert(name.clone(), known);
    }

    /// Forgets the state of a name.
    fn forget(&self, name: &Path) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Returns the last seen state of a name; `None` if it was never seen.
    fn seen(&self, name: &Path) -> Option<Option<ObjectState>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn is_poisoned(&self) -> bool {
        self.poison.get().is_some()
    }

    /// Fails if this handle is read-only or poisoned.
    fn check_writable(&self, operation: &'static str, path: &ObjectPath) -> Result<()> {
        if !self.is_writable {
            return Err(StorageError::new(StorageErrorKind::ReadOnly, operation, path));
        }
        self.check_leases(operation, path)
    }

    /// Fails if a lock was lost under which this handle may have written.
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

    /// Returns the error of a write to `path`; an unknown outcome poisons the handle.
    fn error(
        &self,
        operation: &'static str,
        path: &impl Display,
        unwritten: WriteError,
    ) -> StorageError {
        match unwritten {
            WriteError::Refused => StorageError::new(StorageErrorKind::Conflict, operation, path),
            WriteError::Failed(error) => to_error(operation, &path.to_string(), error),
            WriteError::Unknown(error) => {
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

/// Returns the version that the metadata of an object describe.
fn version_of(meta: &ObjectMeta) -> Version {
    let hash = |text: &Option<String>| {
        let Some(text) = text else { return 0 };
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        hasher.finish()
    };
    // A strong ETag identifies the bytes. The answer to a write contains no time, so that time is
    // left out.
    let is_named = meta.e_tag.as_ref().is_some_and(|tag| !tag.starts_with("W/"));
    let modified = if is_named { None } else { meta.last_modified.timestamp_nanos_opt() };
    Version {
        size: meta.size,
        modified_ns: modified.unwrap_or(0),
        changed_ns: 0,
        identity: (hash(&meta.e_tag), hash(&meta.version)),
    }
}

/// Returns a version that no object has: the written object was replaced before its version was
/// known.
fn no_version() -> Version {
    Version { size: 0, modified_ns: -1, changed_ns: -1, identity: (u64::MAX, u64::MAX) }
}
