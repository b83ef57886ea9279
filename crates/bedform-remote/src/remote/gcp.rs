//! Requests to Google Cloud Storage that nobody signs.
//!
//! The client of the crate reads without a token where it is told to, and fetches one for each write and
//! deletion all the same, from the server that gives a machine its credentials. So it is given one that is
//! empty, and what would say so is taken from its requests.

use std::sync::Arc;

use ::object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService,
};
use ::object_store::gcp::{GcpCredential, GoogleCloudStorageBuilder};
use ::object_store::{ClientOptions, Error, StaticCredentialProvider};
use async_trait::async_trait;
use reqwest::header::AUTHORIZATION;

use super::transport::Transport;

/// The builder of a client that asks nobody for a token, and sends none.
pub(super) fn unsigned(
    builder: GoogleCloudStorageBuilder,
    transport: Transport,
) -> GoogleCloudStorageBuilder {
    let none = StaticCredentialProvider::new(GcpCredential { bearer: String::new() });
    let builder = builder.with_skip_signature(true).with_credentials(Arc::new(none));
    builder.with_http_connector(Unsigned(transport))
}

/// Makes clients that send no token.
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
