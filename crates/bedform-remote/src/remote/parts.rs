//! Multipart uploads: several streams for one object, and one condition for the whole.
//!
//! 1. An upload is begun, with the metadata of the future object.
//! 2. Its parts are sent in any order, and repeated on failure. They are not visible.
//! 3. One request gives the object its name, if the condition holds. Like a write by a single
//!    request it carries a random name in the metadata: `put` tells a lost answer from a conflict.
//!
//! A server that ignores the condition of the third step would lose other writers' work. So each
//! server is tested with an object first, while objects are sent whole. A server that fails the
//! test gets no parts. A cancelled upload is removed. If its writer dies, the upload stays,
//! invisible, until a lifecycle rule of the bucket removes it.

use std::fmt::Debug;
use std::sync::Arc;

use ::object_store::aws::AmazonS3;
use ::object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use ::object_store::multipart::{MultipartStore as _, PartId};
use ::object_store::path::Path;
use ::object_store::{
    Attributes, ClientOptions, Error, MultipartId, PutMode, PutMultipartOptions, PutPayload,
    PutResult,
};
use async_trait::async_trait;
use reqwest::header::{HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};

use super::error::is_of_upload;
use super::transport::Transport;

/// A client for multipart uploads.
#[async_trait]
pub trait MultipartClient: Debug + Send + Sync {
    /// Begins an upload and returns its id.
    ///
    /// # Errors
    /// Of the server.
    async fn begin(&self, name: &Path, attributes: Attributes) -> Result<MultipartId, Error>;

    /// Sends part `number`, counted from 0. Idempotent.
    ///
    /// # Errors
    /// Of the server.
    async fn part(
        &self,
        name: &Path,
        upload: &MultipartId,
        number: usize,
        payload: PutPayload,
    ) -> Result<PartId, Error>;

    /// Makes the parts the object `name`, on the condition `mode`. Ends the upload.
    ///
    /// # Errors
    /// `Precondition` if the condition does not hold, `NotFound` if there is no such upload; of the server.
    async fn complete(
        &self,
        name: &Path,
        upload: &MultipartId,
        parts: Vec<PartId>,
        mode: PutMode,
    ) -> Result<PutResult, Error>;

    /// Removes an upload with its parts.
    ///
    /// # Errors
    /// Of the server.
    async fn abort(&self, name: &Path, upload: &MultipartId) -> Result<(), Error>;
}

tokio::task_local! {
    /// The condition of the request that completes an upload: the crate's client cannot pass one.
    static CONDITION: (HeaderName, HeaderValue);
}

/// A connector whose clients complete uploads on a condition.
#[derive(Debug)]
pub(super) struct Conditional(pub(super) Transport);

impl HttpConnector for Conditional {
    fn connect(&self, options: &ClientOptions) -> Result<HttpClient, Error> {
        let client = self.0.connect(options)?;
        Ok(HttpClient::new(Conditions(client)))
    }
}

/// A client that adds the condition to requests that complete an upload, and refuses such a request
/// without one.
#[derive(Debug)]
struct Conditions(HttpClient);

#[async_trait]
impl HttpService for Conditions {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if completes(&request) {
            let Ok((name, value)) = CONDITION.try_with(Clone::clone) else {
                let reason = "an upload is to be completed without a condition";
                return Err(HttpError::new(HttpErrorKind::Unknown, std::io::Error::other(reason)));
            };
            request.headers_mut().insert(name, value);
        }
        self.0.execute(request).await
    }
}

fn completes(request: &HttpRequest) -> bool {
    let mut query = request.uri().query().unwrap_or_default().split('&');
    *request.method() == reqwest::Method::POST && query.any(|pair| pair.starts_with("uploadId="))
}

/// Multipart uploads of Amazon S3 and compatible servers.
#[derive(Debug)]
pub(super) struct AmazonParts(pub(super) Arc<AmazonS3>);

#[async_trait]
impl MultipartClient for AmazonParts {
    async fn begin(&self, name: &Path, attributes: Attributes) -> Result<MultipartId, Error> {
        let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
        self.0.create_multipart_opts(name, options).await
    }

    async fn part(
        &self,
        name: &Path,
        upload: &MultipartId,
        number: usize,
        payload: PutPayload,
    ) -> Result<PartId, Error> {
        self.0.put_part(name, upload, number, payload).await
    }

    async fn complete(
        &self,
        name: &Path,
        upload: &MultipartId,
        parts: Vec<PartId>,
        mode: PutMode,
    ) -> Result<PutResult, Error> {
        let condition = condition_of(mode)?;
        let completed = self.0.complete_multipart(name, upload, parts);
        match CONDITION.scope(condition, completed).await {
            // The object that was to be replaced is gone.
            Err(Error::NotFound { path, source }) if !is_of_upload(&*source) => {
                Err(Error::Precondition { path, source })
            }
            outcome => outcome,
        }
    }

    async fn abort(&self, name: &Path, upload: &MultipartId) -> Result<(), Error> {
        self.0.abort_multipart(name, upload).await
    }
}

/// Returns the condition as a header of a request.
fn condition_of(mode: PutMode) -> Result<(HeaderName, HeaderValue), Error> {
    let unfit = |what: &str| Error::NotSupported { source: what.to_owned().into() };
    match mode {
        PutMode::Create => Ok((IF_NONE_MATCH, HeaderValue::from_static("*"))),
        PutMode::Update(version) => {
            let tag = version.e_tag.ok_or_else(|| unfit("a version without a name"))?;
            let tag = HeaderValue::from_str(&tag).map_err(|_| unfit("a version of no name"))?;
            Ok((IF_MATCH, tag))
        }
        PutMode::Overwrite => Err(unfit("uploads are completed on a condition alone")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::super::put::{Completion, WriteError, WriteNames, Writes};
    use super::super::runtime::wait;
    use super::*;
    use crate::conformance::{FaultRate, FaultyServer, MissingFeature};

    #[test]
    fn a_server_takes_parts_only_if_it_keeps_conditions_and_metadata_of_uploads() {
        let server = || FaultyServer::new(1, FaultRate { writes: 0, reads: 0 });
        for (server, is_fit) in [
            (server(), true),
            (server().without(MissingFeature::Conditions), false),
            (server().without(MissingFeature::Metadata), false),
        ] {
            let [store, plain] = [&server, &server].map(|server| Arc::new(server.clone()));
            let (deadline, pause) = (Duration::from_secs(600), Duration::from_millis(1));
            let writes = Writes { store, plain, deadline, pause, has_conditions: true };
            let parts: Arc<dyn MultipartClient> = Arc::new(server.clone());
            let (name, parts) = (Path::from("a"), [parts.clone(), parts]);
            let found = wait("create", "a", writes.probe_parts(&name, &parts)).unwrap().is_ok();
            assert_eq!((found, server.uploads()), (is_fit, 0));
        }
    }

    /// A server that crashes while it completes an upload, and confirms the repeated request.
    #[derive(Debug)]
    struct Forgetful(AtomicBool);

    #[async_trait]
    impl MultipartClient for Forgetful {
        async fn begin(&self, _: &Path, _: Attributes) -> Result<MultipartId, Error> {
            Ok("1".to_owned())
        }

        async fn part(
            &self,
            _: &Path,
            _: &MultipartId,
            _: usize,
            _: PutPayload,
        ) -> Result<PartId, Error> {
            Ok(PartId { content_id: "1".to_owned() })
        }

        async fn complete(
            &self,
            _: &Path,
            _: &MultipartId,
            _: Vec<PartId>,
            _: PutMode,
        ) -> Result<PutResult, Error> {
            if !self.0.swap(true, Ordering::SeqCst) {
                return Err(Error::Generic { store: "test", source: "connection reset".into() });
            }
            let e_tag = Some("\"1\"".to_owned());
            Ok(PutResult { e_tag, version: None, extensions: Default::default() })
        }

        async fn abort(&self, _: &Path, _: &MultipartId) -> Result<(), Error> {
            Ok(())
        }
    }

    #[test]
    fn an_upload_that_is_said_to_be_complete_after_an_answer_was_lost_is_looked_for() {
        let server = FaultyServer::new(1, FaultRate { writes: 0, reads: 0 });
        let [store, plain] = [&server, &server].map(|server| Arc::new(server.clone()));
        let (deadline, pause) = (Duration::from_secs(600), Duration::from_millis(1));
        let writes = Writes { store, plain, deadline, pause, has_conditions: true };
        let parts = Arc::new(Forgetful(AtomicBool::new(false)));
        let (name, names) = (Path::from("a"), WriteNames::following(None));
        let completion = Completion { parts, upload: "1".to_owned(), ids: Vec::new() };
        let outcome =
            wait("create", "a", writes.complete_if(&name, None, &names, 1, completion)).unwrap();
        assert!(matches!(outcome, Err(WriteError::Failed(Error::NotFound { .. }))));
    }

    #[test]
    fn requests_that_complete_an_upload_are_known_from_others() {
        let request = |method: &str, uri: &str| {
            let request = HttpRequest::new(Vec::new().into());
            let (mut parts, body) = request.into_parts();
            parts.method = method.parse().unwrap();
            parts.uri = uri.parse().unwrap();
            HttpRequest::from_parts(parts, body)
        };
        assert!(completes(&request("POST", "http://h/b/uploads?uploadId=1")));
        assert!(completes(&request("POST", "http://h/b?a=1&uploadId=1")));
        assert!(!completes(&request("POST", "http://h/b/uploadId=1?uploads")));
        assert!(!completes(&request("PUT", "http://h/b?partNumber=1&uploadId=1")));
        assert!(!completes(&request("DELETE", "http://h/b?uploadId=1")));
    }
}
