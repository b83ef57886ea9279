//! The client of a server: one for each process, since a connection cannot be shared with a child.

use std::fmt;
use std::sync::Arc;

use ::object_store::ObjectStore;

use super::Result;
use super::per_process::PerProcess;
use crate::{StorageError, StorageErrorKind};

type Store = Arc<dyn ObjectStore>;
/// Makes a client, or says why there is none.
pub(super) type Make = Box<dyn Fn(Repeats) -> std::result::Result<Store, String> + Send + Sync>;

/// What a client does about requests that fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeats {
    /// It asks again: whatever asks for bytes, or deletes.
    Yes,
    /// It says so: a write that is made twice is told that its condition does not hold.
    No,
}

pub(super) struct Client {
    repeating: PerProcess<Store>,
    plain: PerProcess<Store>,
    make: Make,
}

impl Client {
    pub(super) fn new(make: Make) -> Self {
        Self { repeating: PerProcess::new(), plain: PerProcess::new(), make }
    }

    /// What requests go through in this process that may be made twice.
    ///
    /// # Errors
    /// `Server` if no client can be made any more: the environment has changed.
    pub(super) fn store(&self) -> Result<&Store> {
        self.try_store().map_err(no_client)
    }

    /// As [`Client::store`], for requests that may not.
    ///
    /// # Errors
    /// As [`Client::store`].
    pub(super) fn store_to_write(&self) -> Result<&Store> {
        self.plain.get(|| (self.make)(Repeats::No), drop).map_err(no_client)
    }

    /// As [`Client::store`], with the reason alone.
    pub(super) fn try_store(&self) -> std::result::Result<&Store, String> {
        self.repeating.get(|| (self.make)(Repeats::Yes), drop)
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
