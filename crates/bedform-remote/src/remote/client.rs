//! The client of a server: one for each process, because a child cannot share a connection.

use std::fmt;
use std::sync::Arc;

use ::object_store::ObjectStore;

use super::Result;
use super::parts::Parts;
use super::per_process::PerProcess;
use bedform_storage::{StorageError, StorageErrorKind};

type Store = Arc<dyn ObjectStore>;
/// A function that makes a client, or returns the reason why it cannot.
pub(super) type Make = Box<dyn Fn(Repeats) -> std::result::Result<Made, String> + Send + Sync>;

/// A client, with its multipart uploads where the server has them.
pub(super) struct Made {
    pub(super) store: Store,
    pub(super) parts: Option<Arc<dyn Parts>>,
}

impl Made {
    /// Returns a client of a server without multipart uploads.
    pub(super) fn whole(store: Store) -> Self {
        Self { store, parts: None }
    }
}

/// The treatment of failed requests by a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeats {
    /// It repeats them: for reads and deletions.
    Yes,
    /// It reports them: a repeated write would fail its own condition.
    No,
}

pub(super) struct Client {
    repeating: PerProcess<Made>,
    plain: PerProcess<Made>,
    make: Make,
}

impl Client {
    pub(super) fn new(make: Make) -> Self {
        Self { repeating: PerProcess::new(), plain: PerProcess::new(), make }
    }

    /// Returns the client for requests that may be repeated.
    ///
    /// # Errors
    /// `Server` if a client can no longer be made, because the environment has changed.
    pub(super) fn store(&self) -> Result<&Store> {
        self.try_store().map_err(no_client)
    }

    /// As [`Client::store`], for requests that must not be repeated.
    ///
    /// # Errors
    /// As [`Client::store`].
    pub(super) fn store_to_write(&self) -> Result<&Store> {
        Ok(&self.made_to_write()?.store)
    }

    /// Returns the multipart clients: for requests that may be repeated, and for those that must
    /// not.
    ///
    /// # Errors
    /// As [`Client::store`].
    pub(super) fn parts(&self) -> Result<Option<[Arc<dyn Parts>; 2]>> {
        let repeating = self.made().map_err(no_client)?.parts.clone();
        let plain = self.made_to_write()?.parts.clone();
        Ok(repeating.zip(plain).map(|(repeating, plain)| [repeating, plain]))
    }

    /// As [`Client::store`], with the reason as the error.
    pub(super) fn try_store(&self) -> std::result::Result<&Store, String> {
        Ok(&self.made()?.store)
    }

    fn made(&self) -> std::result::Result<&Made, String> {
        self.repeating.get(|| (self.make)(Repeats::Yes), drop)
    }

    fn made_to_write(&self) -> Result<&Made> {
        self.plain.get(|| (self.make)(Repeats::No), drop).map_err(no_client)
    }
}

fn no_client(reason: String) -> StorageError {
    let source = Some(std::io::Error::other(reason));
    let (kind, path) = (StorageErrorKind::Server, String::new());
    StorageError { kind, operation: "open", path, source }
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Client").finish_non_exhaustive()
    }
}
