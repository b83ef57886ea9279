//! Clients from URLs: the store, the credentials, the deadlines.

use std::env;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Once, OnceLock};
use std::time::Duration;

use ::object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use ::object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use ::object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use ::object_store::list::PaginatedListStore;
use ::object_store::{BackoffConfig, ClientConfigKey, ClientOptions, ObjectStore, RetryConfig};
use ::percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use ::url::Url;

use super::aws;
use super::azure;
use super::client::{BuiltClient, ClientFactory, RetryPolicy, ServerClients};
use super::error::redacted;
use super::gcp;
use super::paging::Paged;
use super::parts::{AmazonParts, Conditional};
use super::transport::{CONNECT_TIMEOUT, TransferLimits, Transport};
use super::web;

/// The reason why there is no client for a URL, in one line without secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{url}: {reason}")]
pub struct UrlError {
    url: String,
    reason: String,
}

pub(super) type Result<T> = std::result::Result<T, UrlError>;

/// The options of an object store, in addition to its URL. Credentials are not among them: they
/// come from the environment, from the variables and files that each vendor's tools use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteOptions {
    /// Send unsigned requests: for public buckets.
    pub anonymous: bool,
    /// The server, if it is not the vendor's: `http://localhost:9000`.
    pub endpoint: Option<String>,
    /// The region of the bucket.
    pub region: Option<String>,
    /// The time for which a request is repeated after transient errors. A list may take this time
    /// and one second for each 500 entries.
    pub deadline: Duration,
    /// The time within which an answer must begin. In each such interval a body must move a minimum
    /// of bytes.
    pub stall: Duration,
    /// The least bytes per second of a body; slower ones are requested again.
    pub bytes_per_second_min: u64,
    /// The first pause before a request is repeated; later pauses are longer.
    pub pause: Duration,
    /// No other program writes: do without locks and conditions, which some servers do not have.
    pub single_writer: bool,
    /// The time after which an unrenewed lock expires.
    pub lease: Duration,
    /// The size in bytes of a part of a multipart upload. Objects of at least twice this size are
    /// sent in concurrent parts, where the server can.
    pub part_bytes: usize,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            anonymous: false,
            endpoint: None,
            region: None,
            deadline: Duration::from_secs(60),
            stall: Duration::from_secs(15),
            bytes_per_second_min: 1 << 10,
            pause: Duration::from_millis(50),
            single_writer: false,
            lease: Duration::from_secs(30),
            part_bytes: 8 << 20,
        }
    }
}

const RETRIES_MAX: usize = 12;

/// A place in an object store, as its URL describes it.
pub(super) struct ResolvedUrl {
    pub(super) client: ServerClients,
    pub(super) prefix: String,
    pub(super) shown: String,
    /// Scheme, server and bucket in the form of a file name.
    pub(super) system: String,
    /// A fingerprint of the credentials, which separates handles with different rights.
    pub(super) rights: String,
    /// True if the server can list objects.
    pub(super) lists: bool,
    /// True if each request carries the query of the URL, which names a file or grants access to
    /// it.
    pub(super) has_query: bool,
}

/// The error for a URL with credentials. It does not show the URL, because the secret may be
/// anywhere in it.
const NO_SECRETS: &str = "credentials and queries are no part of it: give them in the environment; only the \
     URLs of files on web servers have a query";

impl ResolvedUrl {
    pub(super) fn of(url: &str, options: &RemoteOptions) -> Result<Self> {
        let (url, query) = web::without_query(url);
        let shown = redacted(url.trim_end_matches('/'));
        let (scheme, rest) =
            url.split_once("://").ok_or_else(|| refused(&shown, "it is no URL"))?;
        let scheme = &*scheme.to_ascii_lowercase();
        if rest.contains(['?', '#'])
            || rest.split('/').next().is_some_and(|host| host.contains('@'))
        {
            return Err(refused("the URL of a store", NO_SECRETS));
        }
        start_tls();
        let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(refused(&shown, "it names no bucket or host"));
        }
        let prefix = path.trim_matches('/').to_owned();
        let has_gap = path.starts_with('/') || prefix.contains("//");
        if has_gap && !scheme.starts_with("http") {
            return Err(refused(&shown, "there is no name between two of its slashes"));
        }
        // Names of objects are not paths of files.
        let has_dots = prefix.split('/').any(|name| matches!(name, "." | ".."));
        if has_dots && !scheme.starts_with("http") {
            return Err(refused(&shown, "object stores have no `.` and no `..`: name it without"));
        }
        let is_bucket = is_plain_name(bucket) || scheme.starts_with("http");
        if !is_bucket || options.region.as_deref().is_some_and(|r| !is_plain_name(r)) {
            return Err(refused(&shown, "no bucket and no region is called so"));
        }
        let (vendor, client) = match scheme {
            "s3" | "s3a" => {
                let builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
                let is_signed = !options.anonymous && env::var("AWS_SKIP_SIGNATURE").is_err();
                let builder = if is_signed { aws::with_profile(builder) } else { Some(builder) };
                let builder = builder.ok_or_else(|| refused(&shown, aws::NONE))?;
                ("s3", Vendor::client(builder, options))
            }
            "gs" | "gcs" => {
                let builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket);
                ("gs", Vendor::client(builder, options))
            }
            "az" | "azure" => {
                let builder = MicrosoftAzureBuilder::from_env().with_container_name(bucket);
                ("az", Vendor::client(builder, options))
            }
            "http" | "https" => return Self::of_server(url, query, shown, options),
            _ => {
                let text =
                    "stores are in directories, or at s3://, gs://, az://, http:// or https://";
                return Err(refused(&shown, text));
            }
        };
        let (make, server, rights) = client.map_err(|reason| refused(&shown, &reason))?;
        let client = ServerClients::new(make);
        client.try_store().map_err(|reason| refused(&shown, &reason))?;
        let system = system_of(vendor, &server, bucket);
        Ok(Self { client, prefix, shown, system, rights, lists: true, has_query: false })
    }

    /// Returns the error for a place that cannot be used.
    pub(super) fn refuse(&self, what: &str) -> UrlError {
        refused(&self.shown, what)
    }
}

pub(super) fn refused(shown: &str, what: &str) -> UrlError {
    UrlError { url: shown.to_owned(), reason: what.to_owned() }
}

/// Returns scheme, server and bucket in the form of a file name. Other characters are escaped, so
/// that no two systems share a name.
pub(super) fn system_of(scheme: &str, server: &str, bucket: &str) -> String {
    const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.');
    let escaped = |text| utf8_percent_encode(text, KEPT).to_string();
    format!("{scheme}_{}_{}", escaped(server), escaped(bucket))
}

/// Returns the host and port of a server, without a user name or password.
pub(super) fn host_of(server: &str) -> String {
    let Ok(url) = Url::parse(server) else { return String::new() };
    let host = url.host_str().unwrap_or_default();
    url.port().map_or(host.to_owned(), |port| format!("{host}:{port}"))
}

/// A builder of a vendor's clients, initialized from the vendor's own variables.
trait Vendor: Clone + Send + Sync + 'static {
    /// True if the name of an account determines the server.
    const HAS_ACCOUNTS: bool = false;

    /// Returns the endpoint, or the account that determines it; `None` for the vendor's default.
    fn server(&self) -> Option<String>;
    /// Sets the endpoint.
    fn with_server(self, server: &str) -> Self;
    /// Sets the region of the bucket.
    fn in_region(self, region: &str) -> Self;
    /// Turns signatures off.
    fn unsigned(self) -> Self;
    /// Returns the values of all settings that identify the user.
    fn rights(&self) -> Vec<Option<String>>;
    /// Adds the settings that a client needs, or returns the missing one.
    fn complete(self) -> std::result::Result<Self, String> {
        Ok(self)
    }
    /// True if plain HTTP is allowed, or the vendor has a server without TLS.
    fn allows_plain(&self) -> bool;
    /// Builds the client.
    fn build(
        self,
        retries: RetryConfig,
        options: ClientOptions,
        transport: Transport,
    ) -> ::object_store::Result<BuiltClient>;

    /// Returns a maker of clients, the server, and a fingerprint of the credentials.
    fn client(
        mut self,
        options: &RemoteOptions,
    ) -> std::result::Result<(ClientFactory, String, String), String> {
        if let Some(server) = &options.endpoint {
            self = self.with_server(server);
        }
        if let Some(region) = &options.region {
            self = self.in_region(region);
        }
        if options.anonymous {
            self = self.unsigned();
        }
        let server = self.server();
        check_server(server.as_deref(), Self::HAS_ACCOUNTS)?;
        let server = server.unwrap_or_default();
        self = self.complete()?;
        let is_plain = self.allows_plain() || server.starts_with("http://");
        let rights = fingerprint(&self.rights());
        let host = if server.contains("://") { host_of(&server) } else { server };
        let own = options.clone();
        let make = move |repeats| {
            let retries = retries(&own, repeats);
            let options = client_options(is_plain);
            let made = self.clone().build(retries, options, transport(&own, false));
            made.map_err(|error| reason(&error))
        };
        Ok((Box::new(make), host, rights))
    }
}

/// Returns a text that is equal for equal values in this process, and reveals nothing about them.
pub(super) fn fingerprint(values: &[Option<String>]) -> String {
    static KEYS: OnceLock<[RandomState; 2]> = OnceLock::new();
    let keys = KEYS.get_or_init(|| [RandomState::new(), RandomState::new()]);
    let [first, second] = keys.each_ref().map(|key| key.hash_one(values));
    format!("{first:016x}{second:016x}")
}

/// True for a valid name of a bucket or region.
fn is_plain_name(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-:$".contains(&byte))
}

/// Fails if `server` is not the URL of a server, or contains secrets. With `has_accounts`, a name
/// without a scheme is an account.
fn check_server(server: Option<&str>, has_accounts: bool) -> std::result::Result<(), String> {
    let Some(server) = server else { return Ok(()) };
    if has_accounts && !server.contains([':', '/', ' ', '@']) {
        return Ok(());
    }
    let url = Url::parse(server).ok().filter(|url| {
        let is_web = matches!(url.scheme(), "http" | "https");
        is_web && url.host().is_some() && !server.contains([' ', '\n'])
    });
    let Some(url) = url else {
        return Err("the endpoint is no URL of a server, such as http://localhost:9000".to_owned());
    };
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        let text =
            "credentials and queries are no part of the endpoint: give them in the environment";
        return Err(text.to_owned());
    }
    Ok(())
}

/// True for a setting that is turned on.
pub(super) fn is_true(value: Option<String>) -> bool {
    value.is_some_and(|value| value.eq_ignore_ascii_case("true") || value == "1")
}

impl Vendor for AmazonS3Builder {
    fn server(&self) -> Option<String> {
        let of_s3 = self.get_config_value(&AmazonS3ConfigKey::S3Endpoint);
        of_s3.or_else(|| self.get_config_value(&AmazonS3ConfigKey::Endpoint))
    }

    fn with_server(self, server: &str) -> Self {
        // The endpoint of S3 takes precedence over that of all services, which variables may have
        // set.
        self.with_config(AmazonS3ConfigKey::S3Endpoint, server)
    }

    fn in_region(self, region: &str) -> Self {
        self.with_region(region)
    }

    fn unsigned(self) -> Self {
        self.with_skip_signature(true)
    }

    fn rights(&self) -> Vec<Option<String>> {
        use AmazonS3ConfigKey as Key;
        let keys = [
            Key::AccessKeyId,
            Key::SecretAccessKey,
            Key::Token,
            Key::MetadataEndpoint,
            Key::ContainerCredentialsRelativeUri,
            Key::ContainerCredentialsFullUri,
            Key::ContainerAuthorizationTokenFile,
            Key::WebIdentityTokenFile,
            Key::RoleArn,
            Key::RoleSessionName,
            Key::StsEndpoint,
            Key::SkipSignature,
            Key::RequestPayer,
        ];
        let of_customer = "aws_sse_customer_key_base64".parse().ok();
        keys.iter().chain(&of_customer).map(|key| self.get_config_value(key)).collect()
    }

    fn allows_plain(&self) -> bool {
        is_true(self.get_config_value(&AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp)))
    }

    fn build(
        self,
        retries: RetryConfig,
        options: ClientOptions,
        transport: Transport,
    ) -> ::object_store::Result<BuiltClient> {
        let builder = self.with_retry(retries).with_client_options(options);
        let store = Arc::new(builder.with_http_connector(Conditional(transport)).build()?);
        Ok(BuiltClient {
            parts: Some(Arc::new(AmazonParts(store.clone()))),
            ..paged(store, transport)
        })
    }
}

impl Vendor for GoogleCloudStorageBuilder {
    fn server(&self) -> Option<String> {
        self.get_config_value(&GoogleConfigKey::BaseUrl)
    }

    fn with_server(self, server: &str) -> Self {
        self.with_base_url(server)
    }

    fn in_region(self, _region: &str) -> Self {
        self
    }

    fn unsigned(self) -> Self {
        self.with_skip_signature(true)
    }

    fn rights(&self) -> Vec<Option<String>> {
        use GoogleConfigKey as Key;
        let keys = [
            Key::ServiceAccount,
            Key::ServiceAccountKey,
            Key::ApplicationCredentials,
            Key::BearerToken,
            Key::SkipSignature,
        ];
        keys.iter().map(|key| self.get_config_value(key)).collect()
    }

    fn allows_plain(&self) -> bool {
        // The same client asks the metadata server of the machine for credentials, over plain HTTP.
        true
    }

    fn build(
        self,
        retries: RetryConfig,
        options: ClientOptions,
        transport: Transport,
    ) -> ::object_store::Result<BuiltClient> {
        let is_signed = !is_true(self.get_config_value(&GoogleConfigKey::SkipSignature));
        let builder = match is_signed {
            true => self.with_http_connector(transport),
            false => gcp::unsigned(self, transport),
        };
        let builder = builder.with_retry(retries).with_client_options(options);
        Ok(paged(Arc::new(builder.build()?), transport))
    }
}

impl Vendor for MicrosoftAzureBuilder {
    const HAS_ACCOUNTS: bool = true;

    fn server(&self) -> Option<String> {
        // The account is the first part of the server's name.
        let account = || self.get_config_value(&AzureConfigKey::AccountName);
        self.get_config_value(&AzureConfigKey::Endpoint).or_else(account)
    }

    fn with_server(self, server: &str) -> Self {
        self.with_endpoint(server.to_owned())
    }

    fn in_region(self, _region: &str) -> Self {
        self
    }

    fn unsigned(self) -> Self {
        self.with_skip_signature(true)
    }

    fn complete(self) -> std::result::Result<Self, String> {
        azure::with_account(self).ok_or_else(|| azure::NO_ACCOUNT.to_owned())
    }

    fn rights(&self) -> Vec<Option<String>> {
        use AzureConfigKey as Key;
        let keys = [
            Key::AccountName,
            Key::AccessKey,
            Key::ClientId,
            Key::ClientSecret,
            Key::AuthorityId,
            Key::AuthorityHost,
            Key::SasKey,
            Key::Token,
            Key::UseEmulator,
            Key::MsiEndpoint,
            Key::ObjectId,
            Key::MsiResourceId,
            Key::FederatedTokenFile,
            Key::UseAzureCli,
            Key::SkipSignature,
            Key::FabricTokenServiceUrl,
            Key::FabricWorkloadHost,
            Key::FabricSessionToken,
            Key::FabricClusterIdentifier,
            Key::EncryptionKey,
        ];
        keys.iter().map(|key| self.get_config_value(key)).collect()
    }

    fn allows_plain(&self) -> bool {
        let value = |key| is_true(self.get_config_value(&key));
        value(AzureConfigKey::UseEmulator)
            || value(AzureConfigKey::Client(ClientConfigKey::AllowHttp))
    }

    fn build(
        self,
        retries: RetryConfig,
        options: ClientOptions,
        transport: Transport,
    ) -> ::object_store::Result<BuiltClient> {
        let builder = self.with_retry(retries).with_client_options(options);
        Ok(paged(Arc::new(builder.with_http_connector(transport).build()?), transport))
    }
}

pub(super) fn client_options(allow_http: bool) -> ClientOptions {
    ClientOptions::new()
        .with_allow_http(allow_http)
        .with_connect_timeout(CONNECT_TIMEOUT)
        // A large answer of a slow server has no time limit: the transport checks that bytes
        // arrive.
        .with_timeout_disabled()
}

/// Returns the transport of all requests; with `follows`, unsigned requests follow redirects.
pub(super) fn transport(options: &RemoteOptions, follows: bool) -> Transport {
    let RemoteOptions { deadline, stall, bytes_per_second_min, .. } = *options;
    Transport { pace: TransferLimits { deadline, stall, bytes_per_second_min }, follows }
}

/// Returns a client whose lists are bounded.
fn paged<S: ObjectStore + PaginatedListStore>(store: Arc<S>, transport: Transport) -> BuiltClient {
    BuiltClient::whole(Arc::new(Paged { store, deadline: transport.pace.deadline }))
}

/// Returns a client, or the reason why there is none.
pub(super) fn built<S: ObjectStore>(
    built: ::object_store::Result<S>,
) -> std::result::Result<BuiltClient, String> {
    built.map(|store| BuiltClient::whole(Arc::new(store))).map_err(|error| reason(&error))
}

/// Returns the text of an error, without secrets.
fn reason(error: &::object_store::Error) -> String {
    redacted(&error.to_string())
}

pub(super) fn retries(options: &RemoteOptions, repeats: RetryPolicy) -> RetryConfig {
    let backoff = BackoffConfig {
        init_backoff: options.pause,
        max_backoff: Duration::from_secs(5),
        ..BackoffConfig::default()
    };
    let max_retries = if repeats == RetryPolicy::Yes { RETRIES_MAX } else { 0 };
    RetryConfig { backoff, max_retries, retry_timeout: options.deadline }
}

/// Selects the library for TLS, once: the default one needs more tools to be built.
fn start_tls() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // If the program has selected one before, that one is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(url: &str, endpoint: Option<&str>) -> String {
        let endpoint = endpoint.map(str::to_owned);
        let options = RemoteOptions { anonymous: true, endpoint, ..RemoteOptions::default() };
        ResolvedUrl::of(url, &options).unwrap().system
    }

    #[test]
    fn systems_are_told_apart_by_scheme_server_and_bucket_alone() {
        let here = Some("http://localhost:9000/");
        assert_eq!(system("s3://b.c/deep/down", here), "s3_localhost%3A9000_b.c");
        assert_eq!(system("gs://b_c", here), "gs_localhost%3A9000_b%5Fc");
        assert_eq!(system("https://host:81/a%20b", None), "https_host%3A81_");
        assert_eq!(system("s3a://b/x", here), system("s3://b/y/", here));
        assert_ne!(system("s3://b", Some("http://h")), system("s3://b", Some("http://h:1")));
    }

    #[test]
    fn a_fingerprint_tells_rights_apart_and_nothing_of_them() {
        let values = |text: &str| [Some(text.to_owned()), None];
        assert_eq!(fingerprint(&values("secret")), fingerprint(&values("secret")));
        assert_ne!(fingerprint(&values("secret")), fingerprint(&values("other")));
        assert_ne!(fingerprint(&values("secret")), fingerprint(&[None, Some("secret".into())]));
        let rights = |anonymous| {
            let endpoint = Some("http://localhost:9000".to_owned());
            let builder = AmazonS3Builder::new().with_bucket_name("b").with_access_key_id("secret");
            let options = RemoteOptions { anonymous, endpoint, ..RemoteOptions::default() };
            let (_, _, rights) = Vendor::client(builder, &options).ok().unwrap();
            assert!(rights.len() == 32 && !rights.contains("secret"), "{rights}");
            rights
        };
        assert_ne!(rights(true), rights(false));
        assert_eq!(rights(true), rights(true));
    }

    #[test]
    fn what_is_no_server_bucket_or_region_is_refused_and_no_secret_is_said() {
        let refuse = |url: &str, endpoint: Option<&str>, region: Option<&str>| {
            let [endpoint, region] = [endpoint, region].map(|text| text.map(str::to_owned));
            let anonymous = true;
            let options = RemoteOptions { anonymous, endpoint, region, ..Default::default() };
            let said = ResolvedUrl::of(url, &options).err().map(|error| error.to_string());
            let said = said.unwrap_or_else(|| panic!("{url} {options:?}"));
            assert!(!said.contains("secret"), "{said}");
        };
        for endpoint in [
            "127.0.0.1:9000",
            "http://a b",
            "http://key:secret@localhost:9000",
            "http://localhost?sig=secret",
            "file:///secret",
            "http://",
        ] {
            refuse("s3://b/x", Some(endpoint), None);
        }
        refuse("s3://b/x", None, Some("a b\n"));
        refuse("s3://Buck et/x", None, None);
    }

    #[test]
    fn who_names_no_account_is_told_in_one_line_how() {
        let builder = MicrosoftAzureBuilder::new().with_container_name("b");
        let said = Vendor::client(builder, &RemoteOptions::default()).err().unwrap();
        assert!(said.ends_with(": set AZURE_STORAGE_ACCOUNT_NAME"), "{said}");
        assert!(!said.contains('\n'), "{said}");
    }

    #[test]
    fn an_escape_has_two_digits() {
        let prefix = |url| ResolvedUrl::of(url, &RemoteOptions::default()).unwrap().prefix;
        assert_eq!(prefix("http://h/a%20b/%2f%c3%a4/"), "a b//\u{e4}");
        assert_eq!(prefix("http://h/%+f%2"), "%+f%2");
    }
}
