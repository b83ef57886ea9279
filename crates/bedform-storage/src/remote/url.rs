//! The client for a URL: which store, which credentials, how long it tries.

use std::sync::{Arc, Once};
use std::time::Duration;

use ::object_store::aws::AmazonS3Builder;
use ::object_store::azure::MicrosoftAzureBuilder;
use ::object_store::gcp::GoogleCloudStorageBuilder;
use ::object_store::http::HttpBuilder;
use ::object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};
use ::url::Url;

use super::aws;
use super::client::{Client, Make, Repeats};
use super::error::redacted;

/// Why there is no client for a URL, in one line without secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{url}: {reason}")]
pub struct UrlError {
    url: String,
    reason: String,
}

type Result<T> = std::result::Result<T, UrlError>;

/// What else than the URL says how an object store is reached. Credentials are no part of it: they come
/// from the environment, where the tools of each vendor look for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteOptions {
    /// Requests are not signed: for buckets that all may read.
    pub anonymous: bool,
    /// The server, where it is not the vendor's: `http://localhost:9000`.
    pub endpoint: Option<String>,
    /// The region of the bucket.
    pub region: Option<String>,
    /// How long a request is tried again after errors that may pass.
    pub deadline: Duration,
    /// The first pause before a request is tried again; the next ones are longer.
    pub pause: Duration,
    /// Nobody else writes: locks and conditions, which some servers do not know, are done without.
    pub single_writer: bool,
    /// How long a lock outlives a holder that does not renew it.
    pub lease: Duration,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            anonymous: false,
            endpoint: None,
            region: None,
            deadline: Duration::from_secs(60),
            pause: Duration::from_millis(50),
            single_writer: false,
            lease: Duration::from_secs(30),
        }
    }
}

/// The time for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time without a byte after which a request is tried again.
const SILENCE_MAX: Duration = Duration::from_secs(15);
const RETRIES_MAX: usize = 12;

/// A place in an object store.
pub(super) struct Place {
    pub(super) client: Client,
    pub(super) prefix: String,
    pub(super) shown: String,
    /// True if the server tells what it has.
    pub(super) lists: bool,
}

impl Place {
    pub(super) fn of(url: &str, options: &RemoteOptions) -> Result<Self> {
        let shown = redacted(url.trim_end_matches('/'));
        let (scheme, rest) =
            url.split_once("://").ok_or_else(|| refused(&shown, "it is no URL"))?;
        if rest.contains(['?', '#'])
            || rest.split('/').next().is_some_and(|host| host.contains('@'))
        {
            let text = "credentials and queries are no part of a store's URL: give them in the \
                        environment";
            return Err(refused(&shown, text));
        }
        start_tls();
        let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
        let mut prefix = path.trim_matches('/').to_owned();
        if bucket.is_empty() {
            return Err(refused(&shown, "it names no bucket or host"));
        }
        let (bucket, own) = (bucket.to_owned(), options.clone());
        let make: Make = match scheme {
            "s3" | "s3a" => Box::new(move |repeats| {
                let builder = s3(&bucket, &own, repeats).ok_or_else(|| aws::NONE.to_owned())?;
                made(builder.build())
            }),
            "gs" | "gcs" => Box::new(move |repeats| made(google(&bucket, &own, repeats).build())),
            "az" | "azure" => Box::new(move |repeats| made(azure(&bucket, &own, repeats).build())),
            "http" | "https" => {
                let parsed =
                    Url::parse(url).map_err(|error| refused(&shown, &error.to_string()))?;
                prefix = decoded(parsed.path().trim_matches('/'));
                let server =
                    parsed.join("/").map_err(|error| refused(&shown, &error.to_string()))?;
                let client = client_options(scheme == "http");
                Box::new(move |repeats| {
                    let builder = HttpBuilder::new().with_url(server.clone());
                    let builder = builder.with_retry(retries(&own, repeats));
                    made(builder.with_client_options(client.clone()).build())
                })
            }
            _ => {
                let text =
                    "stores are in directories, or at s3://, gs://, az://, http:// or https://";
                return Err(refused(&shown, text));
            }
        };
        let client = Client::new(make);
        client.try_store().map_err(|reason| refused(&shown, &reason))?;
        Ok(Self { client, prefix, shown, lists: !scheme.starts_with("http") })
    }
}

/// A client, or why there is none, without secrets.
fn made<S: ObjectStore>(
    built: ::object_store::Result<S>,
) -> std::result::Result<Arc<dyn ObjectStore>, String> {
    let store = built.map_err(|error| redacted(&error.to_string()))?;
    Ok(Arc::new(store))
}

impl Place {
    /// Why this place is not to be had.
    pub(super) fn refuse(&self, what: &str) -> UrlError {
        refused(&self.shown, what)
    }
}

fn refused(shown: &str, what: &str) -> UrlError {
    UrlError { url: shown.to_owned(), reason: what.to_owned() }
}

/// Nothing if there are no credentials.
fn s3(bucket: &str, options: &RemoteOptions, repeats: Repeats) -> Option<AmazonS3Builder> {
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
    let is_signed = !options.anonymous && std::env::var("AWS_SKIP_SIGNATURE").is_err();
    if is_signed {
        builder = aws::with_profile(builder)?;
    }
    if let Some(endpoint) = &options.endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    if let Some(region) = &options.region {
        builder = builder.with_region(region);
    }
    if options.anonymous {
        builder = builder.with_skip_signature(true);
    }
    let client = client_options(may_be_plain(options, "AWS_ENDPOINT_URL"));
    Some(builder.with_retry(retries(options, repeats)).with_client_options(client))
}

fn google(bucket: &str, options: &RemoteOptions, repeats: Repeats) -> GoogleCloudStorageBuilder {
    let mut builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket);
    if let Some(endpoint) = &options.endpoint {
        builder = builder.with_base_url(endpoint);
    }
    if options.anonymous {
        builder = builder.with_skip_signature(true);
    }
    let client = client_options(may_be_plain(options, "GOOGLE_BASE_URL"));
    builder.with_retry(retries(options, repeats)).with_client_options(client)
}

fn azure(container: &str, options: &RemoteOptions, repeats: Repeats) -> MicrosoftAzureBuilder {
    let mut builder = MicrosoftAzureBuilder::from_env().with_container_name(container);
    if let Some(endpoint) = &options.endpoint {
        builder = builder.with_endpoint(endpoint.clone());
    }
    if options.anonymous {
        builder = builder.with_skip_signature(true);
    }
    let client = client_options(may_be_plain(options, "AZURE_STORAGE_ENDPOINT"));
    builder.with_retry(retries(options, repeats)).with_client_options(client)
}

/// True if the server that was named speaks HTTP without TLS.
fn may_be_plain(options: &RemoteOptions, variable: &str) -> bool {
    let from_environment = || std::env::var(variable).ok();
    let endpoint = options.endpoint.clone().or_else(from_environment);
    endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"))
}

fn client_options(allow_http: bool) -> ClientOptions {
    ClientOptions::new()
        .with_allow_http(allow_http)
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_read_timeout(SILENCE_MAX)
        // A large answer of a slow server takes as long as it takes: what matters is that bytes come.
        .with_timeout_disabled()
}

fn retries(options: &RemoteOptions, repeats: Repeats) -> RetryConfig {
    let backoff = BackoffConfig {
        init_backoff: options.pause,
        max_backoff: Duration::from_secs(5),
        ..BackoffConfig::default()
    };
    let max_retries = if repeats == Repeats::Yes { RETRIES_MAX } else { 0 };
    RetryConfig { backoff, max_retries, retry_timeout: options.deadline }
}

/// `text` without the escapes of URLs.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Names the library for TLS, once: there is another one that needs more to be built.
fn start_tls() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Where somebody has named one before, that one serves.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}
