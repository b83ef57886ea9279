//! An object store whose answers get lost (row F14 of the stages in `reliability/stages.toml`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::cast_possible_truncation)]

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use object_store::memory::InMemory;
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartId, MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result,
};

use crate::MultipartClient;

/// The frequency of faults, per thousand requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultRate {
    /// Of requests that write.
    pub writes: u64,
    /// Of requests that read, list or delete, which a client repeats.
    pub reads: u64,
}

/// A feature that a server lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingFeature {
    /// Ranges that count from the end of an object, which Azure lacks.
    Ends,
    /// Conditions: it writes over any object.
    Conditions,
    /// Metadata of objects.
    Metadata,
}

/// Objects in memory behind a faulty server. Its faults occur with `likelihood`, in an order that
/// follows from a seed. They are refusals, lost requests and answers, late writes, truncated
/// bodies, and lists without the newest objects. Each answer that arrives is true, except for these
/// lists.
#[derive(Clone)]
pub struct FaultyServer {
    inner: Arc<InMemory>,
    seed: u64,
    uploads: Arc<Mutex<BTreeMap<String, StoredUpload>>>,
    /// The missing feature.
    lacks: Option<MissingFeature>,
    state: Arc<Mutex<ServerState>>,
}

/// A multipart upload: its parts and metadata.
#[derive(Clone)]
struct StoredUpload {
    attributes: Attributes,
    parts: BTreeMap<usize, PutPayload>,
}

struct ServerState {
    random: u64,
    likelihood: FaultRate,
    /// The last written names, newest last.
    recent: VecDeque<Path>,
    faults: u64,
    /// Numbers of uploads begun, and of objects sent whole.
    begun: u64,
    whole: u64,
    /// Writes that will happen after their requests have failed.
    late: usize,
    /// True if every list leaves out the newest objects.
    hides: bool,
    /// The name whose next answer is held back and then lost.
    held: Option<HeldAnswer>,
    /// Reads of objects whose names contain this text wait; below, the number of waiting reads.
    silent: Option<String>,
    waiting: usize,
}

#[derive(Debug, Clone)]
struct HeldAnswer {
    name: Path,
    is_written: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteFault {
    Refused,
    AnswerLost,
    Late(Duration),
    Busy,
    Slow,
}

/// The most objects that a list may leave out.
const RECENT_MAX: usize = 8;

impl FaultyServer {
    /// Returns a server without objects.
    pub fn new(seed: u64, likelihood: FaultRate) -> Self {
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let (recent, inner, uploads) = (VecDeque::new(), Arc::default(), Arc::default());
        let state = ServerState {
            random,
            likelihood,
            recent,
            faults: 0,
            begun: 0,
            whole: 0,
            late: 0,
            hides: false,
            held: None,
            silent: None,
            waiting: 0,
        };
        Self { inner, seed, uploads, lacks: None, state: Arc::new(Mutex::new(state)) }
    }

    /// Removes a feature from the server.
    #[must_use]
    pub fn without(self, lack: MissingFeature) -> Self {
        Self { lacks: Some(lack), ..self }
    }

    /// Returns the seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the number of uploads that were begun, and neither completed nor removed.
    pub fn uploads(&self) -> usize {
        self.all_uploads().len()
    }

    /// Returns the number of uploads begun.
    pub fn uploads_begun(&self) -> u64 {
        self.state().begun
    }

    /// Returns the number of writes that will happen after their requests have failed.
    pub fn late_writes(&self) -> usize {
        self.state().late
    }

    /// Returns the number of requests that sent an object whole, refused ones included.
    pub fn sent_whole(&self) -> u64 {
        self.state().whole
    }

    fn all_uploads(&self) -> MutexGuard<'_, BTreeMap<String, StoredUpload>> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes an upload an object, without a fault.
    async fn complete_now(&self, name: &Path, upload: &str, mode: PutMode) -> Result<PutResult> {
        let Some(StoredUpload { attributes, parts }) = self.all_uploads().get(upload).cloned()
        else {
            let source = "status code: 404 [NoSuchUpload]".into();
            return Err(Error::NotFound { path: name.to_string(), source });
        };
        let payload = parts.values().flat_map(|part| part.iter().cloned()).collect::<PutPayload>();
        let options = PutOptions { mode, attributes, ..PutOptions::default() };
        let put = self.inner.put_opts(name, payload, options).await?;
        self.all_uploads().remove(upload);
        self.note(name);
        Ok(put)
    }

    /// Sets the frequency of faults.
    pub fn set(&self, likelihood: FaultRate) {
        self.state().likelihood = likelihood;
    }

    /// Sets whether every list leaves out the newest objects.
    pub fn set_hiding(&self, hides: bool) {
        self.state().hides = hides;
    }

    /// Lets the next write of `name` happen, and holds its answer back until
    /// [`FaultyServer::let_go`] loses it.
    pub fn hold(&self, name: &str) {
        self.state().held = Some(HeldAnswer { name: Path::from(name), is_written: false });
    }

    /// True if the write with the held answer has happened.
    pub fn is_holding(&self) -> bool {
        self.state().held.as_ref().is_some_and(|held| held.is_written)
    }

    /// Loses the held answer.
    pub fn let_go(&self) {
        self.state().held = None;
    }

    /// Makes reads of objects whose names contain `part` wait; `None` ends all waits.
    pub fn set_silent(&self, part: Option<&str>) {
        self.state().silent = part.map(str::to_owned);
    }

    fn is_silent(&self, name: &Path) -> bool {
        self.state().silent.as_ref().is_some_and(|part| name.as_ref().contains(part))
    }

    /// Returns the number of waiting reads.
    pub fn waiting(&self) -> usize {
        self.state().waiting
    }

    /// Waits while reads of `name` wait; the caller counts as a waiting read until it is dropped.
    async fn listen(&self, name: &Path) {
        struct WaitingRead<'a>(&'a FaultyServer);
        impl Drop for WaitingRead<'_> {
            fn drop(&mut self) {
                self.0.state().waiting -= 1;
            }
        }
        if !self.is_silent(name) {
            return;
        }
        self.state().waiting += 1;
        let _waiting = WaitingRead(self);
        while self.is_silent(name) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// True once for each held name.
    fn begins_to_hold(&self, name: &Path) -> bool {
        let mut state = self.state();
        let held = state.held.as_mut().filter(|held| held.name == *name && !held.is_written);
        held.map(|held| held.is_written = true).is_some()
    }

    /// Returns the number of requests with a fault so far.
    pub fn faults(&self) -> u64 {
        self.state().faults
    }

    fn state(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_fault(&self) -> Option<WriteFault> {
        let mut state = self.state();
        let likelihood = state.likelihood.writes;
        if !state.fails(likelihood) {
            return None;
        }
        Some(match state.below(5) {
            0 => WriteFault::Refused,
            1 => WriteFault::AnswerLost,
            2 => WriteFault::Late(Duration::from_millis(state.below(30))),
            3 => WriteFault::Busy,
            _ => WriteFault::Slow,
        })
    }

    fn read_fails(&self) -> bool {
        let mut state = self.state();
        let likelihood = state.likelihood.reads;
        state.fails(likelihood)
    }

    fn note(&self, name: &Path) {
        let mut state = self.state();
        state.recent.retain(|other| other != name);
        state.recent.push_back(name.clone());
        if state.recent.len() > RECENT_MAX {
            state.recent.pop_front();
        }
    }

    /// Returns the names that the next list leaves out.
    fn hidden(&self) -> Vec<Path> {
        let mut state = self.state();
        let likelihood = state.likelihood.reads;
        if state.hides {
            return state.recent.iter().cloned().collect();
        }
        if !state.fails(likelihood) {
            return Vec::new();
        }
        let count = state.below(RECENT_MAX as u64 + 1) as usize;
        state.recent.iter().rev().take(count).cloned().collect()
    }
}

impl ServerState {
    fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % limit.max(1)
    }

    fn fails(&mut self, likelihood: u64) -> bool {
        let fails = self.below(1000) < likelihood;
        self.faults += u64::from(fails);
        fails
    }
}

impl fmt::Debug for FaultyServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("FaultyServer")
    }
}

impl fmt::Display for FaultyServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("FaultyServer")
    }
}

fn lost(what: &str) -> Error {
    Error::Generic { store: "faulty", source: what.to_owned().into() }
}

#[async_trait]
impl ObjectStore for FaultyServer {
    async fn put_opts(
        &self,
        name: &Path,
        payload: PutPayload,
        mut options: PutOptions,
    ) -> Result<PutResult> {
        match self.lacks {
            Some(MissingFeature::Conditions) => options.mode = PutMode::Overwrite,
            Some(MissingFeature::Metadata) => options.attributes = Attributes::new(),
            _ => {}
        }
        self.state().whole += 1;
        match self.write_fault() {
            Some(WriteFault::Refused) => return Err(lost("status code: 503 Slow Down")),
            Some(WriteFault::Late(after)) => {
                let (server, name) = (self.clone(), name.clone());
                self.state().late += 1;
                tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    if server.inner.put_opts(&name, payload, options).await.is_ok() {
                        server.note(&name);
                    }
                    server.state().late -= 1;
                });
                return Err(lost("connection reset"));
            }
            Some(WriteFault::Busy) => {
                let source = "status code: 409 ConditionalRequestConflict".into();
                return Err(Error::AlreadyExists { path: name.to_string(), source });
            }
            Some(WriteFault::AnswerLost) => {
                if self.inner.put_opts(name, payload, options).await.is_ok() {
                    self.note(name);
                }
                return Err(lost("connection reset"));
            }
            Some(WriteFault::Slow) => tokio::time::sleep(Duration::from_millis(5)).await,
            None => {}
        }
        let put = self.inner.put_opts(name, payload, options).await?;
        self.note(name);
        if self.begins_to_hold(name) {
            while self.is_holding() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            return Err(lost("connection reset"));
        }
        Ok(put)
    }

    async fn put_multipart_opts(
        &self,
        name: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(name, options).await
    }

    async fn get_opts(&self, name: &Path, options: GetOptions) -> Result<GetResult> {
        if self.lacks == Some(MissingFeature::Ends)
            && matches!(options.range, Some(GetRange::Suffix(_)))
        {
            return Err(Error::NotSupported { source: "no suffixes".into() });
        }
        self.listen(name).await;
        if !self.read_fails() {
            return self.inner.get_opts(name, options).await;
        }
        let whole = self.inner.get_opts(name, options).await?;
        let (meta, range) = (whole.meta.clone(), whole.range.clone());
        let (attributes, extensions) = (whole.attributes.clone(), whole.extensions.clone());
        let bytes = whole.bytes().await?;
        let cut = bytes.slice(..bytes.len() / 2);
        let parts: [Result<Bytes>; 2] = [Ok(cut), Err(lost("connection reset"))];
        let payload = GetResultPayload::Stream(stream::iter(parts).boxed());
        Ok(GetResult { payload, meta, range, attributes, extensions })
    }

    async fn get_ranges(&self, name: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(name, ranges).await
    }

    fn delete_stream(
        &self,
        names: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let server = self.clone();
        let deleted = self.inner.delete_stream(names);
        deleted
            .map(move |outcome| match server.read_fails() {
                true => Err(lost("connection reset")),
                false => outcome,
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let hidden = self.hidden();
        let shown = move |listed: &Result<ObjectMeta>| {
            let is_hidden = listed.as_ref().is_ok_and(|meta| hidden.contains(&meta.location));
            std::future::ready(!is_hidden)
        };
        self.inner.list(prefix).filter(shown).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        if self.read_fails() {
            return Err(lost("status code: 500 Internal Error"));
        }
        let hidden = self.hidden();
        let mut listed = self.inner.list_with_delimiter(prefix).await?;
        listed.objects.retain(|meta| !hidden.contains(&meta.location));
        Ok(listed)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[async_trait]
impl MultipartClient for FaultyServer {
    async fn begin(&self, _name: &Path, mut attributes: Attributes) -> Result<MultipartId> {
        if self.read_fails() {
            return Err(lost("connection reset"));
        }
        if self.lacks == Some(MissingFeature::Metadata) {
            attributes = Attributes::new();
        }
        let upload = format!("{:016x}", self.state().below(u64::MAX));
        self.state().begun += 1;
        self.all_uploads()
            .insert(upload.clone(), StoredUpload { attributes, parts: BTreeMap::new() });
        Ok(upload)
    }

    async fn part(
        &self,
        name: &Path,
        upload: &MultipartId,
        number: usize,
        payload: PutPayload,
    ) -> Result<PartId> {
        if self.read_fails() {
            return Err(lost("connection reset"));
        }
        match self.all_uploads().get_mut(upload) {
            Some(upload) => upload.parts.insert(number, payload),
            None => {
                let source = "status code: 404 [NoSuchUpload]".into();
                return Err(Error::NotFound { path: name.to_string(), source });
            }
        };
        Ok(PartId { content_id: number.to_string() })
    }

    async fn complete(
        &self,
        name: &Path,
        upload: &MultipartId,
        _parts: Vec<PartId>,
        mut mode: PutMode,
    ) -> Result<PutResult> {
        if self.lacks == Some(MissingFeature::Conditions) {
            mode = PutMode::Overwrite;
        }
        match self.write_fault() {
            Some(WriteFault::Refused) => return Err(lost("status code: 503 Slow Down")),
            Some(WriteFault::Late(after)) => {
                let (server, name, upload) = (self.clone(), name.clone(), upload.clone());
                self.state().late += 1;
                tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    let _ = server.complete_now(&name, &upload, mode).await;
                    server.state().late -= 1;
                });
                return Err(lost("connection reset"));
            }
            Some(WriteFault::Busy) => {
                let source = "status code: 409 ConditionalRequestConflict".into();
                return Err(Error::AlreadyExists { path: name.to_string(), source });
            }
            Some(WriteFault::AnswerLost) => {
                let _ = self.complete_now(name, upload, mode).await;
                return Err(lost("connection reset"));
            }
            Some(WriteFault::Slow) => tokio::time::sleep(Duration::from_millis(5)).await,
            None => {}
        }
        self.complete_now(name, upload, mode).await
    }

    async fn abort(&self, _name: &Path, upload: &MultipartId) -> Result<()> {
        if self.read_fails() {
            return Err(lost("connection reset"));
        }
        self.all_uploads().remove(upload);
        Ok(())
    }
}
