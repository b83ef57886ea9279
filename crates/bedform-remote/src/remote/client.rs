//! The client of a server: one for each process, because a child cannot share a connection.

use std::fmt;
use std::sync::Arc;

use ::object_store::ObjectStore;

use super::Result;
use super::parts::MultipartClient;
use super::per_process::PerProcess;
use bedform_storage::{StorageError, StorageErrorKind};

type StoreClient = Arc<dyn ObjectStore>;
/// A function that makes a client, or returns the reason why it cannot.
pub(super) type ClientFactory =
    Box<dyn Fn(RetryPolicy) -> std::result::Result<BuiltClient, String> + Send + Sync>;

/// A client, with its multipart uploads where the server has them.
pub(super) struct BuiltClient {
    pub(super) store: StoreClient,
    pub(super) parts: Option<Arc<dyn MultipartClient>>,
}

impl BuiltClient {
    /// Returns a client of a server without multipart uploads.
    pub(super) fn whole(store: StoreClient) -> Self {
        Self { store, parts: None }
    }
}

/// The treatment of failed requests by a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryPolicy {
    /// It repeats them: for reads and deletions.
    Yes,
    /// It reports them: a repeated write would fail its own condition.
    No,
}

pub(super) struct ServerClients {
    repeating: PerProcess<BuiltClient>,
    plain: PerProcess<BuiltClient>,
    make: ClientFactory,
}

impl ServerClients {
    pub(super) fn new(make: ClientFactory) -> Self {
        Self { repeating: PerProcess::new(), plain: PerProcess::new(), make }
    }

    /// Returns the client for requests that may be repeated.
    ///
    /// # Errors
    /// `Server` if a client can no longer be made, because the environment has changed.
    pub(super) fn store(&self) -> Result<&StoreClient> {
        self.try_store().map_err(no_client)
    }

    /// As [`ServerClients::store`], for requests that must not be repeated.
    ///
    /// # Errors
    /// As [`ServerClients::store`].
    pub(super) fn store_to_write(&self) -> Result<&StoreClient> {
        Ok(&self.made_to_write()?.store)
    }

    /// Returns the multipart clients: for requests that may be repeated, and for those that must
    /// not.
    ///
    /// # Errors
    /// As [`ServerClients::store`].
    pub(super) fn parts(&self) -> Result<Option<[Arc<dyn MultipartClient>; 2]>> {
        let repeating = self.made().map_err(no_client)?.parts.clone();
        let plain = self.made_to_write()?.parts.clone();
        Ok(repeating.zip(plain).map(|(repeating, plain)| [repeating, plain]))
    }

    /// As [`ServerClients::store`], with the reason as the error.
    pub(super) fn try_store(&self) -> std::result::Result<&StoreClient, String> {
        Ok(&self.made()?.store)
    }

    fn made(&self) -> std::result::Result<&BuiltClient, String> {
        self.repeating.get(|| (self.make)(RetryPolicy::Yes), drop)
    }

    fn made_to_write(&self) -> Result<&BuiltClient> {
        self.plain.get(|| (self.make)(RetryPolicy::No), drop).map_err(no_client)
    }
}

fn no_client(reason: String) -> StorageError {
    let source = Some(std::io::Error::other(reason));
    let (kind, path) = (StorageErrorKind::Server, String::new());
    StorageError { kind, operation: "open", path, source }
}

impl fmt::Debug for ServerClients {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Client").finish_non_exhaustive()
    }
}
