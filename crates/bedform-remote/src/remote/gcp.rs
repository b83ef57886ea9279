//! Unsigned requests to Google Cloud Storage.
//!
//! Without signatures the crate's client reads without a token, but still fetches one for each
//! write and deletion, from the machine's metadata server. It gets an empty token instead, and the
//! header that would carry it is removed from its requests.

use std::sync::Arc;

use ::object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService,
};
use ::object_store::gcp::{GcpCredential, GoogleCloudStorageBuilder};
use ::object_store::{ClientOptions, Error, StaticCredentialProvider};
use async_trait::async_trait;
use reqwest::header::AUTHORIZATION;

use super::transport::Transport;

/// Returns the builder of a client that fetches no token and sends none.
pub(super) fn unsigned(
    builder: GoogleCloudStorageBuilder,
    transport: Transport,
) -> GoogleCloudStorageBuilder {
    let none = StaticCredentialProvider::new(GcpCredential { bearer: String::new() });
    let builder = builder.with_skip_signature(true).with_credentials(Arc::new(none));
    builder.with_http_connector(Unsigned(transport))
}

/// A connector whose clients send no token.
#[derive(Debug)]
struct Unsigned(Transport);

impl HttpConnector for Unsigned {
    fn connect(&self, options: &ClientOptions) -> Result<HttpClient, Error> {
        let client = self.0.connect(options)?;
        Ok(HttpClient::new(WithoutToken(client)))
    }
}

#[derive(Debug)]
struct WithoutToken(HttpClient);

#[async_trait]
impl HttpService for WithoutToken {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        request.headers_mut().remove(AUTHORIZATION);
        self.0.execute(request).await
    }
}
