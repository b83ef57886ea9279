//! The client of a server: one for each process, since a connection cannot be shared with a child.

use std::fmt;
use std::sync::Arc;

use ::object_store::ObjectStore;

use super::Result;
use super::parts::Parts;
use super::per_process::PerProcess;
use bedform_storage::{StorageError, StorageErrorKind};

type Store = Arc<dyn ObjectStore>;
/// Makes a client, or says why there is none.
pub(super) type Make = Box<dyn Fn(Repeats) -> std::result::Result<Made, String> + Send + Sync>;

/// A client, and what takes objects in parts, where something does.
pub(super) struct Made {
    pub(super) store: Store,
    pub(super) parts: Option<Arc<dyn Parts>>,
}

impl Made {
    /// A client of a server that takes no parts.
    pub(super) fn whole(store: Store) -> Self {
        Self { store, parts: None }
    }
}

/// What a client does about requests that fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeats {
    /// It asks again: whatever asks for bytes, or deletes.
    Yes,
    /// It says so: a write that is made twice is told that its condition does not hold.
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
        Ok(&self.made_to_write()?.store)
    }

    /// What takes objects in parts in this process: with requests that may be made twice, and with others.
    ///
    /// # Errors
    /// As [`Client::store`].
    pub(super) fn parts(&self) -> Result<Option<[Arc<dyn Parts>; 2]>> {
        let repeating = self.made().map_err(no_client)?.parts.clone();
        let plain = self.made_to_write()?.parts.clone();
        Ok(repeating.zip(plain).map(|(repeating, plain)| [repeating, plain]))
    }

    /// As [`Client::store`], with the reason alone.
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
