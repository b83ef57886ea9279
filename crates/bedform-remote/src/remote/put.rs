//! Conditional writes that happen at most once.
//!
//! A server may carry out a write and lose the answer. A repeated request then fails its condition.
//! So each write carries a random name, which the object keeps in its metadata together with the
//! names of earlier writes. A writer in doubt reads them back. If its name is there, the write has
//! happened, even if others have followed. If the name would be listed and is not, the write has
//! not happened. A failed condition at the first attempt is final.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::object_store::multipart::PartId;
use ::object_store::path::Path;
use ::object_store::{
    Attribute, Attributes, Error, GetOptions, GetRange, MultipartId, ObjectMeta, ObjectStore,
    ObjectStoreExt as _, PutMode, PutOptions, PutPayload, UpdateVersion,
};
use futures_util::future::join3;
use rustix::rand::{GetRandomFlags, getrandom};

use super::error::{is_out_of_range, is_refusal, is_too_many, strict};
use super::parts::MultipartClient;
use super::runtime::request;
use super::transport::{ServerFailure, failure_of};
use super::version_of;
use bedform_storage::Version;

/// The metadata key for the names of an object's last writes, newest first.
const WRITES: &str = "bedformwrites";
/// The metadata key of a growing object for the directory of its parts.
const PARTS: &str = "bedformparts";
/// The most names of writes that an object keeps.
const WRITES_MAX: usize = 16;
/// The longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The state of an object, as the server last reported it.
#[derive(Debug, Clone)]
pub(super) struct ObjectState {
    pub(super) version: Version,
    pub(super) update: UpdateVersion,
    /// The directory of the parts of a growing object.
    pub(super) parts: Option<String>,
    writes: Vec<String>,
}

/// The reason why a write failed, or may have failed.
#[derive(Debug)]
pub(super) enum WriteError {
    /// The name stands for another object than expected.
    Refused,
    /// Certainly not written.
    Failed(Error),
    /// The write may have happened, or may still happen.
    Unknown(Error),
}

/// The clients and rules of writes to a server.
#[derive(Debug, Clone)]
pub(super) struct Writes {
    /// The client for lookups, which repeats failed requests.
    pub(super) store: Arc<dyn ObjectStore>,
    /// The client for writes, which does not.
    pub(super) plain: Arc<dyn ObjectStore>,
    /// The time for which a write is repeated.
    pub(super) deadline: Duration,
    /// The first pause between two attempts.
    pub(super) pause: Duration,
    /// False for a single writer on a server without conditions.
    pub(super) has_conditions: bool,
}

/// The names of an object's last writes, newest first; never empty.
#[derive(Debug)]
pub(super) struct WriteNames(Vec<String>);

/// A multipart upload that is ready to be completed, with its parts.
pub(super) struct Completion {
    pub(super) parts: Arc<dyn MultipartClient>,
    pub(super) upload: MultipartId,
    pub(super) ids: Vec<PartId>,
}

/// The outcome of a write, as far as the stored object tells.
enum WriteOutcome {
    /// It happened; the stored object, unless other writes have followed.
    Written(Option<ObjectState>),
    /// The expected object is still there.
    AsBefore,
    /// Another object is there, which does not descend from this write.
    Replaced,
    /// Another object is there, with too many later writes to decide whether this one happened.
    Untold,
}

/// The request of a write.
enum WriteRequest {
    Whole { payload: PutPayload, attributes: Attributes },
    Parts(Completion),
}

impl ObjectState {
    pub(super) fn new(meta: &ObjectMeta, attributes: &Attributes) -> Self {
        let text = |name: &'static str| attributes.get(&Attribute::Metadata(name.into()));
        let writes = text(WRITES).map(|writes| writes.split(',').map(str::to_owned).collect());
        Self {
            version: version_of(meta),
            update: UpdateVersion { e_tag: meta.e_tag.clone(), version: meta.version.clone() },
            parts: text(PARTS).map(|parts| (**parts).to_owned()),
            writes: writes.unwrap_or_default(),
        }
    }

    /// True if the object's metadata name a write.
    pub(super) fn is_named(&self) -> bool {
        !self.writes.is_empty()
    }

    fn has(&self, write: &str) -> bool {
        self.writes.iter().any(|known| known == write)
    }

    /// Returns the object if this write was its last one.
    fn if_last(self, write: &str) -> Option<Self> {
        self.writes.first().is_some_and(|last| last == write).then_some(self)
    }

    /// True if this object would name a write on top of `expected`, had it happened.
    fn tells(&self, expected: Option<&Self>) -> bool {
        let before = expected.and_then(|expected| expected.writes.first());
        self.writes.len() < WRITES_MAX || before.is_some_and(|before| self.has(before))
    }
}

/// Looks up the state of the object `name`; `None` if it is missing. With `is_strict`, only the
/// server's explicit statement counts as missing.
///
/// # Errors
/// Of the server.
pub(super) async fn look(
    store: &dyn ObjectStore,
    name: &Path,
    is_strict: bool,
) -> Result<Option<ObjectState>, Error> {
    request(|| look_once(store, name, is_strict)).await
}

/// Returns the metadata of an object by a HEAD request; if the server refuses those, by a read of
/// the first byte.
pub(super) async fn head(
    store: &dyn ObjectStore,
    name: &Path,
) -> Result<(ObjectMeta, Attributes), Error> {
    let error = match store.get_opts(name, GetOptions { head: true, ..GetOptions::default() }).await
    {
        Ok(found) => return Ok((found.meta, found.attributes)),
        Err(error @ Error::NotFound { .. }) => return Err(error),
        Err(error) => error,
    };
    if failure_of(&error).is_some_and(|failure| *failure != ServerFailure::NotAllowed) {
        return Err(error);
    }
    let range = Some(GetRange::Bounded(0..1));
    match store.get_opts(name, GetOptions { range, ..GetOptions::default() }).await {
        Ok(found) => {
            let answer = (found.meta.clone(), found.attributes.clone());
            let _ = found.bytes().await;
            Ok(answer)
        }
        // Servers also answer so to a method that they do not allow. Here the object itself was
        // read, and is missing.
        Err(missing @ Error::NotFound { .. }) => Err(missing),
        Err(_) => Err(error),
    }
}

async fn look_once(
    store: &dyn ObjectStore,
    name: &Path,
    is_strict: bool,
) -> Result<Option<ObjectState>, Error> {
    if is_strict {
        // Only an answer with a body tells whether the object or the bucket is missing.
        let range = Some(GetRange::Bounded(0..1));
        match store.get_opts(name, GetOptions { range, ..GetOptions::default() }).await {
            Ok(found) => {
                let known = ObjectState::new(&found.meta, &found.attributes);
                // The connection can be reused after the body was read.
                let _ = found.bytes().await;
                return Ok(Some(known));
            }
            // An empty object has no first byte.
            Err(error) if is_out_of_range(&error) => {}
            Err(error) => {
                return match strict(error) {
                    Error::NotFound { .. } => Ok(None),
                    error => Err(error),
                };
            }
        }
    }
    match head(store, name).await {
        Ok((meta, attributes)) => Ok(Some(ObjectState::new(&meta, &attributes))),
        Err(Error::NotFound { .. }) if !is_strict => Ok(None),
        Err(missing @ Error::NotFound { .. }) => {
            Err(Error::Generic { store: "server", source: missing.into() })
        }
        Err(error) => Err(error),
    }
}

impl Writes {
    /// Tests the server with an object `name`, which is removed again. Fails if the server ignores
    /// conditions or loses metadata: two writers would then overwrite each other's work.
    ///
    /// # Errors
    /// `Failed` describes the server's behaviour; errors of the server.
    pub(super) async fn probe(&self, name: &Path) -> Result<(), WriteError> {
        let body = || PutPayload::from(random_name());
        let outcome = async {
            let first = self.put_if(name, body(), None, None).await?;
            let second = self.put_if(name, body(), first.as_ref(), None).await?;
            // A server with conditions refuses the two writes.
            let (new, old, found) = join3(
                self.put_if(name, body(), None, None),
                self.put_if(name, body(), first.as_ref(), None),
                self.look(name),
            )
            .await;
            for refused in [new, old] {
                match refused {
                    Err(WriteError::Refused) => {}
                    Ok(_) => return Err(unfit("the server ignores the conditions of writes")),
                    Err(unwritten) => return Err(unwritten),
                }
            }
            check_last(found, second, "the server does not keep the metadata of objects")
        };
        let outcome = outcome.await;
        // If this fails, the object stays, hidden from listings.
        let _ = self.store.delete(name).await;
        outcome
    }

    /// As [`Writes::probe`], for multipart uploads; fails also if the server has none.
    ///
    /// # Errors
    /// As [`Writes::probe`].
    pub(super) async fn probe_parts(
        &self,
        name: &Path,
        parts: &[Arc<dyn MultipartClient>; 2],
    ) -> Result<(), WriteError> {
        let mut uploads = Vec::new();
        let outcome = self.try_parts(name, parts, &mut uploads).await;
        for upload in &uploads {
            let _ = parts[0].abort(name, upload).await;
        }
        let _ = self.store.delete(name).await;
        outcome
    }

    async fn try_parts(
        &self,
        name: &Path,
        parts: &[Arc<dyn MultipartClient>; 2],
        uploads: &mut Vec<MultipartId>,
    ) -> Result<(), WriteError> {
        let first = self.put_in_one_part(name, parts, None, uploads).await?;
        let second = self.put_in_one_part(name, parts, first.as_ref(), uploads).await?;
        for expected in [None, first.as_ref()] {
            match self.put_in_one_part(name, parts, expected, uploads).await {
                Err(WriteError::Refused) => {}
                Ok(_) => return Err(unfit("the server ignores the conditions of uploads")),
                Err(unwritten) => return Err(unwritten),
            }
        }
        let found = self.look(name).await;
        check_last(found, second, "the server does not keep the metadata of uploads")
    }

    async fn put_in_one_part(
        &self,
        name: &Path,
        [repeating, plain]: &[Arc<dyn MultipartClient>; 2],
        expected: Option<&ObjectState>,
        uploads: &mut Vec<MultipartId>,
    ) -> Result<Option<ObjectState>, WriteError> {
        let (names, body) = (WriteNames::following(expected), random_name());
        let size = body.len() as u64;
        let upload = repeating.begin(name, names.attributes()).await.map_err(WriteError::Failed)?;
        uploads.push(upload.clone());
        let part = repeating.part(name, &upload, 0, body.into()).await;
        let ids = vec![part.map_err(WriteError::Failed)?];
        let completion = Completion { parts: plain.clone(), upload, ids };
        self.complete_if(name, expected, &names, size, completion).await
    }

    /// As the free function [`look`], strictly.
    ///
    /// # Errors
    /// Of the server.
    pub(super) async fn look(&self, name: &Path) -> Result<Option<ObjectState>, Error> {
        look(&*self.store, name, true).await
    }

    /// Writes `payload` under `name` if the object there is `expected`, or missing for `None`.
    /// `parts` is the directory of a growing object's parts. Returns the written object; `None` if
    /// it was written and then replaced by another write.
    ///
    /// # Errors
    /// [`WriteError`].
    pub(super) async fn put_if(
        &self,
        name: &Path,
        payload: PutPayload,
        expected: Option<&ObjectState>,
        parts: Option<&str>,
    ) -> Result<Option<ObjectState>, WriteError> {
        let names = WriteNames::following(expected);
        let mut attributes = names.attributes();
        if let Some(parts) = parts {
            attributes.insert(Attribute::Metadata(PARTS.into()), parts.to_owned().into());
        }
        let size = payload.content_length() as u64;
        let request = WriteRequest::Whole { payload, attributes };
        self.conclude(name, expected, &names, &request, (size, parts)).await
    }

    /// As [`Writes::put_if`], for the parts of an upload that was begun with `names`.
    ///
    /// # Errors
    /// [`WriteError`]. The upload may still exist.
    pub(super) async fn complete_if(
        &self,
        name: &Path,
        expected: Option<&ObjectState>,
        names: &WriteNames,
        size: u64,
        completion: Completion,
    ) -> Result<Option<ObjectState>, WriteError> {
        let request = WriteRequest::Parts(completion);
        self.conclude(name, expected, names, &request, (size, None)).await
    }

    async fn send(
        &self,
        name: &Path,
        mode: PutMode,
        request: &WriteRequest,
    ) -> Result<::object_store::PutResult, Error> {
        match request {
            WriteRequest::Whole { payload, attributes } => {
                let attributes = attributes.clone();
                let options = PutOptions { mode, attributes, ..PutOptions::default() };
                self.plain.put_opts(name, payload.clone(), options).await
            }
            WriteRequest::Parts(Completion { parts, upload, ids }) => {
                parts.complete(name, upload, ids.clone(), mode).await
            }
        }
    }

    /// Repeats a write of `size` bytes until its outcome is known.
    async fn conclude(
        &self,
        name: &Path,
        expected: Option<&ObjectState>,
        names: &WriteNames,
        request: &WriteRequest,
        (size, parts): (u64, Option<&str>),
    ) -> Result<Option<ObjectState>, WriteError> {
        let begun = Instant::now();
        let mode = match expected {
            _ if !self.has_conditions => PutMode::Overwrite,
            None => PutMode::Create,
            Some(expected) => PutMode::Update(expected.update.clone()),
        };
        let mut pause = self.pause;
        let mut is_in_doubt = false;
        loop {
            let error = match self.send(name, mode.clone(), request).await {
                // A completion after a lost one may be confirmed although there is nothing.
                Ok(_) if is_in_doubt && matches!(request, WriteRequest::Parts(_)) => {
                    let found = self.look(name).await.map_err(WriteError::Unknown)?;
                    return match names.outcome(found, expected) {
                        WriteOutcome::Written(known) => Ok(known),
                        WriteOutcome::AsBefore => Err(WriteError::Failed(lost_upload(name))),
                        WriteOutcome::Replaced => Err(WriteError::Refused),
                        WriteOutcome::Untold => Err(WriteError::Unknown(lost_upload(name))),
                    };
                }
                Ok(put) => match known_of(put, size, &names.0, parts) {
                    Some(known) => return Ok(Some(known)),
                    None => return self.read_back(name, names.own()).await,
                },
                Err(error) => error,
            };
            match &error {
                Error::Precondition { .. } if !is_in_doubt => return Err(WriteError::Refused),
                _ if is_refusal(&error) && !is_in_doubt => return Err(WriteError::Failed(error)),
                // Or other writers are active right now.
                Error::AlreadyExists { .. } | Error::Precondition { .. } => {}
                // Nothing was done: Google allows one change of an object per second.
                _ if is_too_many(&error) => {}
                _ => is_in_doubt = true,
            }
            // With a single writer a repeated write has the same result.
            let outcome = match self.has_conditions {
                true => self.look(name).await.map(|found| names.outcome(found, expected)),
                false => Ok(WriteOutcome::AsBefore),
            };
            match outcome {
                Ok(WriteOutcome::Written(known)) => return Ok(known),
                Ok(WriteOutcome::Untold) if is_in_doubt => return Err(WriteError::Unknown(error)),
                Ok(WriteOutcome::Replaced | WriteOutcome::Untold) => {
                    return Err(WriteError::Refused);
                }
                // The server was busy, or the request was lost.
                Ok(WriteOutcome::AsBefore) => {}
                Err(_) => is_in_doubt = true,
            }
            if begun.elapsed() + pause > self.deadline {
                let unwritten = if is_in_doubt { WriteError::Unknown } else { WriteError::Failed };
                return Err(unwritten(error));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// As [`Writes::put_if`], over any object: the newest writer wins. Delayed requests of earlier
    /// writers of this name then fail their conditions.
    ///
    /// # Errors
    /// [`WriteError`]; `Refused` only if other writers write all the time.
    pub(super) async fn put_over(
        &self,
        name: &Path,
        payload: PutPayload,
        mut there: Option<ObjectState>,
    ) -> Result<Option<ObjectState>, WriteError> {
        let begun = Instant::now();
        loop {
            match self.put_if(name, payload.clone(), there.as_ref(), None).await {
                Err(WriteError::Refused) if begun.elapsed() < self.deadline => {
                    there = self.look(name).await.map_err(WriteError::Failed)?;
                }
                outcome => return outcome,
            }
        }
    }

    /// Returns the object after a write whose answer did not describe it.
    async fn read_back(&self, name: &Path, write: &str) -> Result<Option<ObjectState>, WriteError> {
        match self.look(name).await {
            // With a single writer it need not name its write.
            Ok(found) if !self.has_conditions => Ok(found),
            Ok(found) => Ok(found.and_then(|found| found.if_last(write))),
            Err(error) => Err(WriteError::Unknown(error)),
        }
    }
}

impl WriteNames {
    /// Returns a new name, followed by those of the writes of the `expected` object.
    pub(super) fn following(expected: Option<&ObjectState>) -> Self {
        let before = expected.iter().flat_map(|expected| expected.writes.clone());
        Self([random_name()].into_iter().chain(before).take(WRITES_MAX).collect())
    }

    /// Returns the names as metadata of the object.
    pub(super) fn attributes(&self) -> Attributes {
        let mut attributes = Attributes::new();
        attributes.insert(Attribute::Metadata(WRITES.into()), self.0.join(",").into());
        attributes
    }

    fn own(&self) -> &str {
        &self.0[0]
    }

    /// Returns the outcome of the write, made for `expected`, from the stored object.
    fn outcome(&self, found: Option<ObjectState>, expected: Option<&ObjectState>) -> WriteOutcome {
        match found {
            Some(found) if found.has(self.own()) => {
                WriteOutcome::Written(found.if_last(self.own()))
            }
            found if is_same(found.as_ref(), expected) => WriteOutcome::AsBefore,
            Some(found) if !found.tells(expected) => WriteOutcome::Untold,
            _ => WriteOutcome::Replaced,
        }
    }
}

/// The outcome of a write whose answer the program did not wait for.
pub(super) fn given_up() -> WriteError {
    let source = "the program was stopped before the server answered".into();
    WriteError::Unknown(Error::Generic { store: "requests", source })
}

/// Fails for `reason` unless the stored object is the last written one and names its writes.
fn check_last(
    found: Result<Option<ObjectState>, Error>,
    written: Option<ObjectState>,
    reason: &str,
) -> Result<(), WriteError> {
    let found = found.map_err(WriteError::Failed)?.filter(ObjectState::is_named);
    let is_last =
        found.zip(written).is_some_and(|(found, written)| found.version == written.version);
    if is_last { Ok(()) } else { Err(unfit(reason)) }
}

/// Returns the error of an upload that the server has forgotten.
fn lost_upload(name: &Path) -> Error {
    let source = "the server has lost what was sent".into();
    Error::NotFound { path: name.to_string(), source }
}

fn unfit(reason: &str) -> WriteError {
    let source = format!(
        "{reason}, so that two writers would lose each other's work: say that nobody else writes with \
         the option single_writer"
    );
    WriteError::Failed(Error::Generic { store: "conditions", source: source.into() })
}

fn is_same(found: Option<&ObjectState>, expected: Option<&ObjectState>) -> bool {
    match (found, expected) {
        (None, None) => true,
        (Some(found), Some(expected)) => found.version == expected.version,
        _ => false,
    }
}

/// Returns the written object; `None` if the answer lacks its ETag.
fn known_of(
    put: ::object_store::PutResult,
    size: u64,
    writes: &[String],
    parts: Option<&str>,
) -> Option<ObjectState> {
    let meta = ObjectMeta {
        location: Path::default(),
        last_modified: std::time::UNIX_EPOCH.into(),
        size,
        e_tag: Some(put.e_tag?),
        version: put.version,
    };
    let version = version_of(&meta);
    let update = UpdateVersion { e_tag: meta.e_tag, version: meta.version };
    let (writes, parts) = (writes.to_vec(), parts.map(str::to_owned));
    Some(ObjectState { version, update, parts, writes })
}

/// Returns a unique name.
pub(super) fn random_name() -> String {
    format!("{:016x}", random())
}

/// Returns an unpredictable number.
pub(super) fn random() -> u64 {
    let mut bytes = [0; 8];
    let mut filled = 0;
    while filled < bytes.len() {
        // It fails only before the system has gathered entropy, which is long before programs run.
        if let Ok(count) = getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            filled += count;
        }
    }
    u64::from_le_bytes(bytes)
}
