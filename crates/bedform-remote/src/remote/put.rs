//! Writes that happen once, if what they were made for is still there.
//!
//! A server may do what it is asked to and its answer may be lost; asked again, it says that the condition
//! does not hold. So each write brings a random name of its own, which the object keeps in its metadata,
//! before those of the writes that it followed: whoever is in doubt reads them back. A write that is found
//! there has happened, also if others have followed; one that is not, and would be, has not. A server that
//! says at the first attempt that the condition does not hold is believed.

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
use super::parts::Parts;
use super::runtime::request;
use super::transport::{Failure, failure_of};
use super::version_of;
use bedform_storage::Version;

/// The metadata that names an object's last writes, the newest first.
const WRITES: &str = "bedformwrites";
/// The metadata of an object that grows: where its parts are.
const PARTS: &str = "bedformparts";
/// Writes that an object names.
const WRITES_MAX: usize = 16;
/// The longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// What is there under a name.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) version: Version,
    pub(super) update: UpdateVersion,
    /// Where the parts of the object are, if it grows.
    pub(super) parts: Option<String>,
    writes: Vec<String>,
}

/// Why nothing was written, or perhaps.
#[derive(Debug)]
pub(super) enum Unwritten {
    /// Something else is there than was expected.
    Refused,
    /// Nothing was written.
    Failed(Error),
    /// It may have been written, or may still be.
    Unknown(Error),
}

/// Writes to a server.
#[derive(Debug, Clone)]
pub(super) struct Writes {
    /// What looks go through, which asks again by itself.
    pub(super) store: Arc<dyn ObjectStore>,
    /// What writes go through, which does not.
    pub(super) plain: Arc<dyn ObjectStore>,
    /// How long a write is tried.
    pub(super) deadline: Duration,
    /// The first pause between two attempts.
    pub(super) pause: Duration,
    /// False where nobody else writes, and the server knows no conditions.
    pub(super) has_conditions: bool,
}

/// What an object's writes are called, the newest first; never none.
#[derive(Debug)]
pub(super) struct Names(Vec<String>);

/// Parts that were sent, and what makes them an object.
pub(super) struct Completion {
    pub(super) parts: Arc<dyn Parts>,
    pub(super) upload: MultipartId,
    pub(super) ids: Vec<PartId>,
}

/// What became of a write, as far as what is there says.
enum Outcome {
    /// It happened: what is there, unless others have followed.
    Written(Option<Known>),
    /// What it was made for is still there.
    AsBefore,
    /// Something else is there, which does not follow it.
    Replaced,
    /// Something else is there, and so much has followed that nothing says whether it happened.
    Untold,
}

/// What a write asks for.
enum Request {
    Whole { payload: PutPayload, attributes: Attributes },
    Parts(Completion),
}

impl Known {
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

    /// True if the object names a write.
    pub(super) fn is_named(&self) -> bool {
        !self.writes.is_empty()
    }

    fn has(&self, write: &str) -> bool {
        self.writes.iter().any(|known| known == write)
    }

    /// What is there, if this write was the last one.
    fn if_last(self, write: &str) -> Option<Self> {
        self.writes.first().is_some_and(|last| last == write).then_some(self)
    }

    /// True if a write made for `expected` would be named here, had it happened.
    fn tells(&self, expected: Option<&Self>) -> bool {
        let before = expected.and_then(|expected| expected.writes.first());
        self.writes.len() < WRITES_MAX || before.is_some_and(|before| self.has(before))
    }
}

/// What is there under `name`; nothing if there is nothing. Of a server that `is_strict` nothing but its
/// word for it counts.
///
/// # Errors
/// Of the server.
pub(super) async fn look(
    store: &dyn ObjectStore,
    name: &Path,
    is_strict: bool,
) -> Result<Option<Known>, Error> {
    request(|| look_once(store, name, is_strict)).await
}

/// What is there, by a request without a body; of a server that refuses these, by one for the first byte.
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
    if failure_of(&error).is_some_and(|failure| *failure != Failure::NotAllowed) {
        return Err(error);
    }
    let range = Some(GetRange::Bounded(0..1));
    match store.get_opts(name, GetOptions { range, ..GetOptions::default() }).await {
        Ok(found) => {
            let answer = (found.meta.clone(), found.attributes.clone());
            let _ = found.bytes().await;
            Ok(answer)
        }
        // Servers also say so of what they do not allow: it was asked for by name, and is not there.
        Err(missing @ Error::NotFound { .. }) => Err(missing),
        Err(_) => Err(error),
    }
}

async fn look_once(
    store: &dyn ObjectStore,
    name: &Path,
    is_strict: bool,
) -> Result<Option<Known>, Error> {
    if is_strict {
        // Only an answer with a body says what it is that is missing.
        let range = Some(GetRange::Bounded(0..1));
        match store.get_opts(name, GetOptions { range, ..GetOptions::default() }).await {
            Ok(found) => {
                let known = Known::new(&found.meta, &found.attributes);
                // The connection is good for more once its answer was taken.
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
        Ok((meta, attributes)) => Ok(Some(Known::new(&meta, &attributes))),
        Err(Error::NotFound { .. }) if !is_strict => Ok(None),
        Err(missing @ Error::NotFound { .. }) => {
            Err(Error::Generic { store: "server", source: missing.into() })
        }
        Err(error) => Err(error),
    }
}

impl Writes {
    /// Fails if the server does what a condition forbids, or forgets what writes are called: no two writers
    /// could do without. `name` is that of an object which is made for it, and removed.
    ///
    /// # Errors
    /// `Failed` says what the server does; of the server.
    pub(super) async fn probe(&self, name: &Path) -> Result<(), Unwritten> {
        let body = || PutPayload::from(random_name());
        let outcome = async {
            let first = self.put_if(name, body(), None, None).await?;
            let second = self.put_if(name, body(), first.as_ref(), None).await?;
            // None of these three does anything at a server that is fit.
            let (new, old, found) = join3(
                self.put_if(name, body(), None, None),
                self.put_if(name, body(), first.as_ref(), None),
                self.look(name),
            )
            .await;
            for refused in [new, old] {
                match refused {
                    Err(Unwritten::Refused) => {}
                    Ok(_) => return Err(unfit("the server ignores the conditions of writes")),
                    Err(unwritten) => return Err(unwritten),
                }
            }
            check_last(found, second, "the server does not keep the metadata of objects")
        };
        let outcome = outcome.await;
        // What stays is in no listing.
        let _ = self.store.delete(name).await;
        outcome
    }

    /// As [`Writes::probe`], of uploads: fails also if the server knows none.
    ///
    /// # Errors
    /// As [`Writes::probe`].
    pub(super) async fn probe_parts(
        &self,
        name: &Path,
        parts: &[Arc<dyn Parts>; 2],
    ) -> Result<(), Unwritten> {
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
        parts: &[Arc<dyn Parts>; 2],
        uploads: &mut Vec<MultipartId>,
    ) -> Result<(), Unwritten> {
        let first = self.put_in_one_part(name, parts, None, uploads).await?;
        let second = self.put_in_one_part(name, parts, first.as_ref(), uploads).await?;
        for expected in [None, first.as_ref()] {
            match self.put_in_one_part(name, parts, expected, uploads).await {
                Err(Unwritten::Refused) => {}
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
        [repeating, plain]: &[Arc<dyn Parts>; 2],
        expected: Option<&Known>,
        uploads: &mut Vec<MultipartId>,
    ) -> Result<Option<Known>, Unwritten> {
        let (names, body) = (Names::following(expected), random_name());
        let size = body.len() as u64;
        let upload = repeating.begin(name, names.attributes()).await.map_err(Unwritten::Failed)?;
        uploads.push(upload.clone());
        let part = repeating.part(name, &upload, 0, body.into()).await;
        let ids = vec![part.map_err(Unwritten::Failed)?];
        let completion = Completion { parts: plain.clone(), upload, ids };
        self.complete_if(name, expected, &names, size, completion).await
    }

    /// As the function of this name.
    ///
    /// # Errors
    /// Of the server.
    pub(super) async fn look(&self, name: &Path) -> Result<Option<Known>, Error> {
        look(&*self.store, name, true).await
    }

    /// Puts `payload` under `name` if `expected` is there, or nothing if that is nothing. `parts` says where
    /// the parts of an object are that grows. Gives what is there then; nothing if it was written, and
    /// others have written since.
    ///
    /// # Errors
    /// [`Unwritten`].
    pub(super) async fn put_if(
        &self,
        name: &Path,
        payload: PutPayload,
        expected: Option<&Known>,
        parts: Option<&str>,
    ) -> Result<Option<Known>, Unwritten> {
        let names = Names::following(expected);
        let mut attributes = names.attributes();
        if let Some(parts) = parts {
            attributes.insert(Attribute::Metadata(PARTS.into()), parts.to_owned().into());
        }
        let size = payload.content_length() as u64;
        let request = Request::Whole { payload, attributes };
        self.conclude(name, expected, &names, &request, (size, parts)).await
    }

    /// As [`Writes::put_if`], of parts that were sent for an upload which was begun with `names`.
    ///
    /// # Errors
    /// [`Unwritten`]. The upload may still be there.
    pub(super) async fn complete_if(
        &self,
        name: &Path,
        expected: Option<&Known>,
        names: &Names,
        size: u64,
        completion: Completion,
    ) -> Result<Option<Known>, Unwritten> {
        let request = Request::Parts(completion);
        self.conclude(name, expected, names, &request, (size, None)).await
    }

    async fn send(
        &self,
        name: &Path,
        mode: PutMode,
        request: &Request,
    ) -> Result<::object_store::PutResult, Error> {
        match request {
            Request::Whole { payload, attributes } => {
                let attributes = attributes.clone();
                let options = PutOptions { mode, attributes, ..PutOptions::default() };
                self.plain.put_opts(name, payload.clone(), options).await
            }
            Request::Parts(Completion { parts, upload, ids }) => {
                parts.complete(name, upload, ids.clone(), mode).await
            }
        }
    }

    /// Asks until it is known what became of a write of so many bytes.
    async fn conclude(
        &self,
        name: &Path,
        expected: Option<&Known>,
        names: &Names,
        request: &Request,
        (size, parts): (u64, Option<&str>),
    ) -> Result<Option<Known>, Unwritten> {
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
                // One that completes what an earlier one perhaps completed may say so of nothing.
                Ok(_) if is_in_doubt && matches!(request, Request::Parts(_)) => {
                    let found = self.look(name).await.map_err(Unwritten::Unknown)?;
                    return match names.outcome(found, expected) {
                        Outcome::Written(known) => Ok(known),
                        Outcome::AsBefore => Err(Unwritten::Failed(lost_upload(name))),
                        Outcome::Replaced => Err(Unwritten::Refused),
                        Outcome::Untold => Err(Unwritten::Unknown(lost_upload(name))),
                    };
                }
                Ok(put) => match known_of(put, size, &names.0, parts) {
                    Some(known) => return Ok(Some(known)),
                    None => return self.read_back(name, names.own()).await,
                },
                Err(error) => error,
            };
            match &error {
                Error::Precondition { .. } if !is_in_doubt => return Err(Unwritten::Refused),
                _ if is_refusal(&error) && !is_in_doubt => return Err(Unwritten::Failed(error)),
                // Or others are writing just now.
                Error::AlreadyExists { .. } | Error::Precondition { .. } => {}
                // Nothing was done: Google changes an object once a second.
                _ if is_too_many(&error) => {}
                _ => is_in_doubt = true,
            }
            // Where nobody else writes, what is done twice is done once.
            let outcome = match self.has_conditions {
                true => self.look(name).await.map(|found| names.outcome(found, expected)),
                false => Ok(Outcome::AsBefore),
            };
            match outcome {
                Ok(Outcome::Written(known)) => return Ok(known),
                Ok(Outcome::Untold) if is_in_doubt => return Err(Unwritten::Unknown(error)),
                Ok(Outcome::Replaced | Outcome::Untold) => return Err(Unwritten::Refused),
                // The server was busy, or the request was lost.
                Ok(Outcome::AsBefore) => {}
                Err(_) => is_in_doubt = true,
            }
            if begun.elapsed() + pause > self.deadline {
                let unwritten = if is_in_doubt { Unwritten::Unknown } else { Unwritten::Failed };
                return Err(unwritten(error));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// As [`Writes::put_if`], whatever is there: the newest writer wins. What a lapsed writer of this name
    /// still has on its way comes to nothing.
    ///
    /// # Errors
    /// [`Unwritten`]; `Refused` only if others write all the time.
    pub(super) async fn put_over(
        &self,
        name: &Path,
        payload: PutPayload,
        mut there: Option<Known>,
    ) -> Result<Option<Known>, Unwritten> {
        let begun = Instant::now();
        loop {
            match self.put_if(name, payload.clone(), there.as_ref(), None).await {
                Err(Unwritten::Refused) if begun.elapsed() < self.deadline => {
                    there = self.look(name).await.map_err(Unwritten::Failed)?;
                }
                outcome => return outcome,
            }
        }
    }

    /// What is there behind a write of which the server does not tell what it has made.
    async fn read_back(&self, name: &Path, write: &str) -> Result<Option<Known>, Unwritten> {
        match self.look(name).await {
            // Where nobody else writes, it need not say whose it is.
            Ok(found) if !self.has_conditions => Ok(found),
            Ok(found) => Ok(found.and_then(|found| found.if_last(write))),
            Err(error) => Err(Unwritten::Unknown(error)),
        }
    }
}

impl Names {
    /// The name of a new write, and those of the writes that made what is `expected`.
    pub(super) fn following(expected: Option<&Known>) -> Self {
        let before = expected.iter().flat_map(|expected| expected.writes.clone());
        Self([random_name()].into_iter().chain(before).take(WRITES_MAX).collect())
    }

    /// As metadata of the object.
    pub(super) fn attributes(&self) -> Attributes {
        let mut attributes = Attributes::new();
        attributes.insert(Attribute::Metadata(WRITES.into()), self.0.join(",").into());
        attributes
    }

    fn own(&self) -> &str {
        &self.0[0]
    }

    /// What became of the write, which was made for `expected`, by what is there.
    fn outcome(&self, found: Option<Known>, expected: Option<&Known>) -> Outcome {
        match found {
            Some(found) if found.has(self.own()) => Outcome::Written(found.if_last(self.own())),
            found if is_same(found.as_ref(), expected) => Outcome::AsBefore,
            Some(found) if !found.tells(expected) => Outcome::Untold,
            _ => Outcome::Replaced,
        }
    }
}

/// The outcome of a write of which the program has not waited for the end.
pub(super) fn given_up() -> Unwritten {
    let source = "the program was stopped before the server answered".into();
    Unwritten::Unknown(Error::Generic { store: "requests", source })
}

/// Fails for `reason` unless what was found is what was written last, and names its writes.
fn check_last(
    found: Result<Option<Known>, Error>,
    written: Option<Known>,
    reason: &str,
) -> Result<(), Unwritten> {
    let found = found.map_err(Unwritten::Failed)?.filter(Known::is_named);
    let is_last =
        found.zip(written).is_some_and(|(found, written)| found.version == written.version);
    if is_last { Ok(()) } else { Err(unfit(reason)) }
}

/// The error of an upload that the server has let go of.
fn lost_upload(name: &Path) -> Error {
    let source = "the server has lost what was sent".into();
    Error::NotFound { path: name.to_string(), source }
}

fn unfit(reason: &str) -> Unwritten {
    let source = format!(
        "{reason}, so that two writers would lose each other's work: say that nobody else writes with \
         the option single_writer"
    );
    Unwritten::Failed(Error::Generic { store: "conditions", source: source.into() })
}

fn is_same(found: Option<&Known>, expected: Option<&Known>) -> bool {
    match (found, expected) {
        (None, None) => true,
        (Some(found), Some(expected)) => found.version == expected.version,
        _ => false,
    }
}

/// What was put; nothing if the server does not tell.
fn known_of(
    put: ::object_store::PutResult,
    size: u64,
    writes: &[String],
    parts: Option<&str>,
) -> Option<Known> {
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
    Some(Known { version, update, parts, writes })
}

/// A name that nobody else has.
pub(super) fn random_name() -> String {
    format!("{:016x}", random())
}

/// A number that nobody can foresee.
pub(super) fn random() -> u64 {
    let mut bytes = [0; 8];
    let mut filled = 0;
    while filled < bytes.len() {
        // It fails before a system has gathered any, which is over before programs run.
        if let Ok(count) = getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            filled += count;
        }
    }
    u64::from_le_bytes(bytes)
}
