//! The HTTP client below all vendors' protocols, hardened against misbehaving servers.
//!
//! Every request, also one for credentials, passes [`Transport`], which checks each answer:
//!
//! - **Bytes.** An answer has at most the bytes of the requested range, or else the limit of its
//!   kind. Of an error page the first 64 KiB are read. Encodings are refused, so that no body
//!   inflates.
//! - **Time.** An answer begins within `stall`. Then, and while a request's body is sent, each
//!   `stall` moves a minimum of bytes. A request is not repeated once its [`call`] has lasted for
//!   the deadline.
//! - **Address.** A request to an object store, signed or not, goes to its endpoint alone. One to a
//!   web server may be redirected, by the rules of `redirect`.
//!
//! Bodies are passed on as they arrive, without a copy.

mod answer;
mod redirect;
mod sent;

use std::error::Error as _;
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ::object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpService,
};
use ::object_store::{ClientConfigKey, ClientOptions, Error};
use ::url::Url;
use async_trait::async_trait;
use reqwest::header::{ACCEPT_ENCODING, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, StatusCode};
use tokio::time::timeout;

use self::redirect::{NameResolver, NetworkScope, RedirectTrail, location_of};
use self::sent::SentBytes;

/// The time limit for a connection.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const USER_AGENT: &str = concat!("bedform/", env!("CARGO_PKG_VERSION"));
/// The factor on `stall` for a sent body: the system buffers some MiB that the server receives only
/// later.
const STALLS_OF_SENT: u32 = 4;

/// The time limits of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TransferLimits {
    /// The time for which a request is repeated.
    pub(super) deadline: Duration,
    /// The time within which an answer must begin, and in which a body must move the minimum of
    /// bytes.
    pub(super) stall: Duration,
    pub(super) bytes_per_second_min: u64,
}

impl TransferLimits {
    /// Returns the least bytes of each `stall`.
    fn bytes_min(&self) -> u64 {
        let bytes = u128::from(self.bytes_per_second_min) * self.stall.as_millis() / 1000;
        u64::try_from(bytes).unwrap_or(u64::MAX).max(1)
    }
}

/// The server's behaviour that ended a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ServerFailure {
    #[error("the server sends more than {0} bytes, which is all that may come")]
    TooLong(u64),
    #[error("the server does not end its answer")]
    Endless,
    #[error("the server's list does not end: {0}")]
    EndlessList(String),
    #[error("the server did not answer within {0:?}")]
    Silent(Duration),
    #[error("the server is too slow: {bytes} bytes in {time:?}")]
    Slow { bytes: u64, time: Duration },
    #[error("the request was tried for {deadline:?}: {last}")]
    Over { deadline: Duration, last: String },
    #[error("the server sends the object encoded as {0}: let it send objects as they are")]
    Encoded(String),
    #[error("the server answered {0} and broke off before it had said what is missing")]
    PageCutOff(StatusCode),
    #[error("the server does not allow to read the object (status 405), which may be there")]
    NotAllowed,
    #[error("the server redirects to {to}: {why}")]
    Redirected { to: String, why: &'static str },
}

impl ServerFailure {
    /// Names the server only: the rest of a URL may be a secret.
    fn redirected(to: &Url, why: &'static str) -> Self {
        let port = to.port().map(|port| format!(":{port}")).unwrap_or_default();
        let (scheme, host) = (to.scheme(), to.host_str().unwrap_or_default());
        Self::Redirected { to: format!("{scheme}://{host}{port}"), why }
    }

    /// True if a repeated request may succeed.
    fn may_pass(&self) -> bool {
        matches!(self, Self::Silent(_) | Self::Slow { .. } | Self::PageCutOff(_))
    }
}

/// Returns the failure that ended a request; `None` if the server itself reported an error.
pub(super) fn failure_of(error: &Error) -> Option<&ServerFailure> {
    let mut next = error.source();
    while let Some(error) = next {
        if let Some(failure) = error.downcast_ref() {
            return Some(failure);
        }
        next = error.source();
    }
    None
}

/// A request with all its repetitions.
#[derive(Debug)]
struct RepeatedRequest {
    begun: Instant,
    /// A permanent failure, after which the call makes no more requests.
    refused: OnceLock<ServerFailure>,
    /// The outcome of the last request.
    last: Mutex<Option<String>>,
}

tokio::task_local! {
    static CALL: Arc<RepeatedRequest>;
}

/// Groups the requests of `future` into one call, with one deadline for all of them.
pub(super) async fn call<F: Future>(future: F) -> F::Output {
    CALL.scope(Arc::new(RepeatedRequest::begin()), future).await
}

impl RepeatedRequest {
    fn begin() -> Self {
        Self { begun: Instant::now(), refused: OnceLock::new(), last: Mutex::default() }
    }

    /// Returns the call of the current request, or a new one.
    fn current() -> Arc<Self> {
        CALL.try_with(Clone::clone).unwrap_or_else(|_| Arc::new(Self::begin()))
    }

    /// Fails if the call must make no more requests.
    fn check(&self, pace: TransferLimits) -> Result<(), ServerFailure> {
        if let Some(failure) = self.refused.get() {
            return Err(failure.clone());
        }
        if self.left(pace) > Duration::ZERO { Ok(()) } else { Err(self.over(pace)) }
    }

    /// Returns the failure of a call whose deadline has passed, with the outcome of its last
    /// request.
    fn over(&self, pace: TransferLimits) -> ServerFailure {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let last = last.unwrap_or_else(|| "the server did not answer".to_owned());
        ServerFailure::Over { deadline: pace.deadline, last }
    }

    fn left(&self, pace: TransferLimits) -> Duration {
        pace.deadline.saturating_sub(self.begun.elapsed())
    }

    /// Records `failure`, and returns it as an error for the crate's client.
    fn failed(&self, failure: ServerFailure) -> HttpError {
        if !failure.may_pass() {
            let _ = self.refused.set(failure.clone());
            return HttpError::new(HttpErrorKind::Unknown, failure);
        }
        self.note(failure.to_string());
        HttpError::new(HttpErrorKind::Timeout, failure)
    }

    fn note(&self, last: String) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
    }
}

/// A connector that makes the clients of a store.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transport {
    pub(super) pace: TransferLimits,
    /// True to follow redirects, for unsigned requests only.
    pub(super) follows: bool,
}

impl HttpConnector for Transport {
    fn connect(&self, options: &ClientOptions) -> Result<HttpClient, Error> {
        let timeout = options.get_config_value(&ClientConfigKey::ConnectTimeout);
        let timeout = timeout.as_deref().and_then(seconds).unwrap_or(CONNECT_TIMEOUT);
        let allows_plain = options.get_config_value(&ClientConfigKey::AllowHttp);
        let allows_plain = allows_plain.is_some_and(|value| value == "true");
        let failed = |error: reqwest::Error| {
            let source = Box::new(error);
            Error::Generic { store: "HTTP client", source }
        };
        let origin = client(NameResolver::All, timeout, allows_plain).map_err(failed)?;
        Ok(HttpClient::new(Connection { transport: *self, origin, elsewhere: Default::default() }))
    }
}

/// A connector for a web server, whose clients add `query` to each request.
#[derive(Debug, Clone)]
pub(super) struct WithQuery {
    pub(super) transport: Transport,
    pub(super) query: Option<Arc<str>>,
}

impl HttpConnector for WithQuery {
    fn connect(&self, options: &ClientOptions) -> Result<HttpClient, Error> {
        let client = self.transport.connect(options)?;
        Ok(match &self.query {
            Some(query) => HttpClient::new(Querying { client, query: query.clone() }),
            None => client,
        })
    }
}

/// A client that adds a query to the URL of each request.
#[derive(Debug)]
struct Querying {
    client: HttpClient,
    query: Arc<str>,
}

#[async_trait]
impl HttpService for Querying {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let mut url = url_of(&request)?;
        url.set_query(Some(&self.query));
        *request.uri_mut() = url.as_str().parse().map_err(no_uri)?;
        self.client.execute(request).await
    }
}

/// Parses a time in seconds, in the format of the crate's options.
fn seconds(text: &str) -> Option<Duration> {
    text.strip_suffix('s')?.parse().ok().map(Duration::from_secs)
}

fn client(
    names: NameResolver,
    connect_timeout: Duration,
    allows_plain: bool,
) -> reqwest::Result<Client> {
    Client::builder()
        .user_agent(USER_AGENT)
        .redirect(Policy::none())
        .referer(false)
        .http1_only()
        // A decompressed body has another length than was requested.
        .no_gzip()
        .no_deflate()
        .no_brotli()
        .no_zstd()
        .connect_timeout(connect_timeout)
        .dns_resolver(Arc::new(names))
        .https_only(!allows_plain)
        .build()
}

/// The client of one server, and of the servers to which it redirects.
#[derive(Debug)]
struct Connection {
    transport: Transport,
    origin: Client,
    /// Clients for redirected requests, by reach: each connects to public addresses and those of
    /// one reach.
    elsewhere: [OnceLock<Client>; NetworkScope::COUNT],
}

#[async_trait]
impl HttpService for Connection {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let call = RepeatedRequest::current();
        request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let expected = answer::AnswerLimits::of(&request, !self.transport.follows);
        if expected.is_of_nothing() {
            // All bytes have arrived, but then an error instead of the end: the client would resume
            // after them.
            return Err(call.failed(ServerFailure::Endless));
        }
        let method = request.method().clone();
        let response = match self.transport.follows {
            true => self.follow(request, &call).await?,
            false => self.go_to_endpoint(request, &call).await?,
        };
        match response.status() {
            // A GET may be allowed: this status says nothing about the object, and a repetition
            // changes nothing.
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED
                if method == Method::HEAD =>
            {
                return Err(HttpError::new(HttpErrorKind::Unknown, ServerFailure::NotAllowed));
            }
            // The client of web servers would take it for a missing object.
            StatusCode::METHOD_NOT_ALLOWED if method == Method::GET => {
                return Err(call.failed(ServerFailure::NotAllowed));
            }
            _ => {}
        }
        answer::bounded(response, expected, self.transport.pace, &call).await
    }
}

impl Connection {
    async fn go_to_endpoint(
        &self,
        request: HttpRequest,
        call: &RepeatedRequest,
    ) -> Result<HttpResponse, HttpError> {
        let url = url_of(&request);
        let response = self.execute(&self.origin, request, call).await?;
        match url.ok().and_then(|url| location_of(&response, &url)) {
            Some(to) => {
                let why = "requests to an object store go to its endpoint alone";
                Err(call.failed(ServerFailure::redirected(&to, why)))
            }
            None => Ok(response),
        }
    }

    async fn follow(
        &self,
        request: HttpRequest,
        call: &RepeatedRequest,
    ) -> Result<HttpResponse, HttpError> {
        let url = url_of(&request)?;
        let (method, headers) = (request.method().clone(), request.headers().clone());
        let mut response = self.execute(&self.origin, request, call).await?;
        let mut trail = RedirectTrail::new(url);
        while let Some(to) = location_of(&response, trail.at()) {
            if method != Method::GET && method != Method::HEAD {
                let why = "only what is read is read elsewhere";
                return Err(call.failed(ServerFailure::redirected(&to, why)));
            }
            trail.step(to, &response).await.map_err(|failure| call.failed(failure))?;
            let mut next = HttpRequest::new(HttpRequestBody::empty());
            *next.method_mut() = method.clone();
            *next.uri_mut() = trail.at().as_str().parse().map_err(no_uri)?;
            *next.headers_mut() = trail.headers(&headers);
            let client = match trail.reach() {
                None => &self.origin,
                Some(reach) => self.elsewhere(reach)?,
            };
            let answered = self.execute(client, next, call).await;
            response = answered.map_err(|error| refused(error, call))?;
        }
        let is_missing = matches!(response.status(), StatusCode::NOT_FOUND | StatusCode::GONE);
        if is_missing && !trail.is_of_same_object() {
            let why = "what is missing there may be here";
            return Err(call.failed(ServerFailure::redirected(trail.at(), why)));
        }
        Ok(response)
    }

    /// Returns the client that connects to public addresses and those of `reach`.
    fn elsewhere(&self, reach: NetworkScope) -> Result<&Client, HttpError> {
        let made = &self.elsewhere[reach as usize];
        if let Some(client) = made.get() {
            return Ok(client);
        }
        let client = client(NameResolver::Within(reach), CONNECT_TIMEOUT, true).map_err(no_uri)?;
        Ok(made.get_or_init(|| client))
    }

    /// Sends a request, and waits for the answer to begin.
    async fn execute(
        &self,
        client: &Client,
        request: HttpRequest,
        call: &RepeatedRequest,
    ) -> Result<HttpResponse, HttpError> {
        let pace = self.transport.pace;
        call.check(pace).map_err(|failure| HttpError::new(HttpErrorKind::Unknown, failure))?;
        let (parts, body) = request.into_parts();
        let (body, sent) = SentBytes::watch(body).await;
        let mut answering = pin!(client.call(HttpRequest::from_parts(parts, body)));
        let time = pace.stall * if sent.is_none() { 1 } else { STALLS_OF_SENT };
        let mut before = 0;
        let mut window = time.min(call.left(pace));
        loop {
            if let Ok(answered) = timeout(window, &mut answering).await {
                return answered;
            }
            let now = sent.as_ref().map_or(0, SentBytes::bytes);
            if now - before < pace.bytes_min() {
                let is_over = window < time;
                let failure = if is_over { call.over(pace) } else { ServerFailure::Silent(window) };
                return Err(call.failed(failure));
            }
            (before, window) = (now, time);
        }
    }
}

fn url_of(request: &HttpRequest) -> Result<Url, HttpError> {
    Url::parse(&request.uri().to_string()).map_err(no_uri)
}

fn no_uri(error: impl std::error::Error + Send + Sync + 'static) -> HttpError {
    HttpError::new(HttpErrorKind::Unknown, error)
}

/// Returns the error of a redirected request. A refused address is permanent; other connection
/// errors are repeated.
fn refused(error: HttpError, call: &RepeatedRequest) -> HttpError {
    let mut next = error.source();
    while let Some(source) = next {
        match source.downcast_ref::<ServerFailure>() {
            Some(failure) if !failure.may_pass() => return call.failed(failure.clone()),
            _ => next = source.source(),
        }
    }
    error
}
