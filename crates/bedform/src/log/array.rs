//! A handle on an array of an opened store, and the array's state as of a snapshot.
//!
//! Commits that are not settled may have made an array larger than its document says. So readers,
//! writers and settling take the state of an array from its handle.

use std::sync::{Arc, PoisonError, RwLock};

use bedform_format::ObjectPath;
use bedform_format::json::{self, ObjectText};
use bedform_format::metadata::{ArrayMetadata, parse_array};
use bedform_storage::Lock;
use serde_json::{Map, Value, json};

use super::opened::OpenedStore;
use super::shapes::enlarge;
use super::snapshot::{PinnedArray, Snapshot};
use crate::codec::choice::SampleBlock;
use crate::error::{Error, ErrorKind, Result};
use crate::zarr::choosing::{self, ArrayToClose};
use crate::zarr::hierarchy::DraftLock;
use crate::zarr::publish::{attribute_values, check_key, own_document};
use crate::zarr::state::{ArrayState, load};

/// An array of an opened store. Cheap to clone; safe to share between threads.
#[derive(Debug, Clone)]
pub(crate) struct ArrayHandle {
    pub(crate) store: Arc<OpenedStore>,
    pub(crate) path: ObjectPath,
    state: Arc<RwLock<Arc<ArrayState>>>,
    /// The state with the shape that unsettled commits give the array, once it was needed.
    larger: Arc<RwLock<Option<EnlargedState>>>,
    pub(crate) draft: Option<Arc<DraftLock>>,
    /// True for an array whose growth is in progress: the handle keeps its state.
    pub(crate) growing: bool,
}

/// The enlarged state of an array, and the number of the state that it was made from.
#[derive(Debug)]
struct EnlargedState {
    of: u64,
    state: Arc<ArrayState>,
}

impl ArrayHandle {
    pub(crate) fn open(store: Arc<OpenedStore>, path: ObjectPath) -> Result<Self> {
        let state = load(&store, &path)?;
        Ok(Self {
            store,
            path,
            state: Arc::new(RwLock::new(Arc::new(state))),
            larger: Arc::default(),
            draft: None,
            growing: false,
        })
    }

    /// Makes a handle on an array whose creation is not committed yet; `lock` is set by the
    /// creating handle.
    pub(crate) fn draft(
        store: Arc<OpenedStore>,
        path: ObjectPath,
        metadata: ArrayMetadata,
        document: Value,
        lock: Option<Arc<DraftLock>>,
    ) -> Result<Self> {
        let state = ArrayState::new(&store, &path, metadata, document, None)?;
        let state = Arc::new(RwLock::new(Arc::new(state)));
        Ok(Self { store, path, state, larger: Arc::default(), draft: lock, growing: false })
    }

    /// Returns the values of the array's attributes.
    ///
    /// # Errors
    /// As [`ObjectText::parse`].
    pub(crate) fn values(&self, attributes: &ObjectText) -> Result<Map<String, Value>> {
        attribute_values(&self.store, &self.path, attributes)
    }

    /// Returns the array's document with the values of its attributes.
    ///
    /// # Errors
    /// As [`ObjectText::parse`].
    pub(crate) fn with_values(&self, document: Value) -> Result<Value> {
        json::with_values(document, &self.store.options.limits)
            .map_err(|error| Error::metadata(self.name(), error.into()))
    }

    /// Returns the name of the array for messages.
    pub(crate) fn name(&self) -> String {
        self.store.name_of(&self.path)
    }

    /// Returns the present state of the array. Looks for changes by other writers and handles if
    /// the store's freshness asks for it. Unsettled commits may have made the array larger than its
    /// metadata say.
    pub(crate) fn state(&self) -> Result<Arc<ArrayState>> {
        Ok(self.state_as_of()?.0)
    }

    /// Returns [`ArrayHandle::state`], with the snapshot if one was taken to find it.
    pub(crate) fn state_as_of(&self) -> Result<(Arc<ArrayState>, Option<Snapshot>)> {
        if !self.store.documents.is_log_pending(&self.store) {
            let state = self.stored_state()?;
            self.store.check_outer()?;
            if !self.store.documents.is_log_pending(&self.store) {
                return Ok((state, None));
            }
        }
        let (state, snapshot) = self.state_in_snapshot()?;
        Ok((state, Some(snapshot)))
    }

    /// Returns [`ArrayHandle::state`] with a snapshot, of which no commit makes the array larger
    /// than that.
    pub(crate) fn state_in_snapshot(&self) -> Result<(Arc<ArrayState>, Snapshot)> {
        // A table that has the shape may have been settled and removed since its root was read.
        self.store.in_one_snapshot(|| self.state_in_one_snapshot())
    }

    fn state_in_one_snapshot(&self) -> Result<(Arc<ArrayState>, Snapshot)> {
        let snapshot = self.store.snapshot()?;
        // The order matters. Settling publishes an array's shape before it drops the commits that
        // gave it, so the document has each shape that the root no longer has.
        let state = self.stored_state()?;
        let Some(view) = snapshot.view.as_ref().filter(|_| !self.growing) else {
            return Ok((state, snapshot));
        };
        if let Some(key) = state.source.as_ref().and_then(|source| source.replaced)
            && view.names(&key)?
        {
            return Err(replaced(&self.name(), "put something else in the place of"));
        }
        let key = state.identity().map(|identity| identity.array);
        let state = match key.map(|key| view.shape_of(&key)).transpose()?.flatten() {
            Some(shape) => self.enlarged(state, &shape)?,
            None => state,
        };
        Ok((state, snapshot))
    }

    fn enlarged(&self, state: Arc<ArrayState>, shape: &[u64]) -> Result<Arc<ArrayState>> {
        let mut larger = state.metadata.shape.clone();
        enlarge(&mut larger, shape);
        if larger == state.metadata.shape {
            return Ok(state);
        }
        if let Some(known) = &*self.larger.read().unwrap_or_else(PoisonError::into_inner)
            && known.of == state.number
            && known.state.metadata.shape == larger
        {
            return Ok(known.state.clone());
        }
        let enlarged = Arc::new(self.with_shape(&state, &larger)?);
        let known = EnlargedState { of: state.number, state: enlarged.clone() };
        *self.larger.write().unwrap_or_else(PoisonError::into_inner) = Some(known);
        Ok(enlarged)
    }

    /// Returns the state that [`ArrayHandle::state`] returned last.
    pub(crate) fn last_state(&self) -> Arc<ArrayState> {
        let state = self.known();
        match &*self.larger.read().unwrap_or_else(PoisonError::into_inner) {
            Some(larger) if larger.of == state.number => larger.state.clone(),
            _ => state,
        }
    }

    /// Returns the state without the growth by unsettled commits, as the metadata have it.
    fn stored_state(&self) -> Result<Arc<ArrayState>> {
        let state = self.known();
        if self.growing {
            return Ok(state);
        }
        match &state.source {
            Some(source) if self.store.documents.is_current(&self.store, source)? => Ok(state),
            Some(_) => self.reload(),
            None => match self.reload() {
                // The array is a draft.
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(state),
                outcome => outcome,
            },
        }
    }

    /// Returns the error of a failed read of the array with `state`. A `Corrupt` error becomes a
    /// `Conflict` if other writers have deleted or changed the array since this handle looked.
    pub(crate) fn changed_or(&self, state: &ArrayState, error: Error) -> Error {
        if error.kind() != ErrorKind::Corrupt || self.store.held.is_some() {
            return error;
        }
        if let Err(gone) = self.check_is_there(state)
            && gone.kind() == ErrorKind::Conflict
        {
            return gone;
        }
        let newest = || {
            let (newest, said) = self.store.newest_root(&self.store.log_place()?)?;
            Ok::<_, Error>(newest.map_or(said.settled, |root| root.number))
        };
        match (self.store.snapshot(), newest()) {
            (Ok(seen), Ok(newest)) if seen.number != newest => {
                let text = format!(
                    "{} has changed since this handle looked, and what it had is gone: open it again",
                    self.name()
                );
                Error::new(ErrorKind::Conflict, text)
            }
            _ => error,
        }
    }

    /// Fails if the array with `state` was deleted, or replaced with its store or group. In an
    /// object store nothing is checked: each check is a request, and nothing is replaced as a whole
    /// there.
    ///
    /// # Errors
    /// `Conflict`; those of storage.
    pub(crate) fn check_is_there(&self, state: &ArrayState) -> Result<()> {
        let storage = &self.store.storage;
        // For a held store the source has checked this.
        let asks = !storage.is_remote() && self.store.held.is_none();
        let Some(source) = state.source.as_ref().filter(|_| asks) else { return Ok(()) };
        let (path, version) = source.own();
        match storage.stat(path) {
            Ok(found) if found == *version => return Ok(()),
            Err(error) if !error.is_not_found() => return Err(error.into()),
            Ok(_) if state.identity().is_none() => return Ok(()),
            _ => {}
        }
        let gone = || {
            let text =
                format!("{} was deleted or replaced by another writer; open it again", self.name());
            Error::new(ErrorKind::Conflict, text)
        };
        let document = match own_document(&self.store, &self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(gone()),
            document => document?,
        };
        match state.identity() {
            Some(identity) => check_key(&self.store, &self.path, &document, &identity.array),
            None => Err(gone()),
        }
    }

    /// Returns the array with `state`, as of a snapshot taken now.
    ///
    /// # Errors
    /// As [`OpenedStore::snapshot`].
    pub(crate) fn pinned<'a>(&'a self, state: &'a ArrayState) -> Result<PinnedArray<'a>> {
        Ok(self.pinned_to(state, self.store.snapshot()?))
    }

    /// Returns the array with `state`, as of `snapshot`.
    pub(crate) fn pinned_to<'a>(
        &'a self,
        state: &'a ArrayState,
        snapshot: Snapshot,
    ) -> PinnedArray<'a> {
        PinnedArray::new(&self.store, &self.path, state, snapshot)
    }

    /// Reads the state that storage has after a commit; takes the committed `state` if that fails.
    pub(crate) fn advance(&self, state: ArrayState) {
        if self.reload().is_err() {
            // The commit stands nevertheless. The next use reads storage again.
            *self.state.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(state);
        }
    }

    /// Returns the state of the last lookup.
    pub(crate) fn known(&self) -> Arc<ArrayState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Gives codecs to the array, which is open in `state`. They are chosen by the blocks that
    /// `sampled` returns; without `sampled`, those of the document stay. Codecs that another writer
    /// has given it meanwhile take precedence. Afterwards the handle has the array with its codecs.
    ///
    /// # Errors
    /// Those of `sampled`; as [`choosing::close`].
    pub(crate) fn close(
        &self,
        state: &ArrayState,
        sampled: Option<&dyn Fn() -> Result<Vec<SampleBlock>>>,
    ) -> Result<()> {
        let chosen = |sampled: &dyn Fn() -> Result<Vec<SampleBlock>>| {
            choosing::chosen_by(&self.store, &self.path, &state.metadata, sampled)
        };
        let chosen = sampled.map(chosen).transpose()?;
        let closing = ArrayToClose { path: &self.path, state, chosen };
        let documents = choosing::close(&self.store, &[closing])?;
        if !self.growing && self.reload().is_ok() {
            return Ok(());
        }
        // A draft, or a growth in progress: the handle keeps its own shape.
        for mut document in documents {
            document["shape"] = json!(self.known().metadata.shape);
            let metadata = parse_array(&document, &self.store.options.limits)
                .map_err(|error| Error::metadata(self.name(), error))?;
            let state = ArrayState::new(&self.store, &self.path, metadata, document, None)?;
            *self.state.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(state);
        }
        Ok(())
    }

    /// Returns the state and snapshot of one attempt of a read, whose lookup found `state` and
    /// perhaps a snapshot; without one it is taken now.
    ///
    /// # Errors
    /// As [`OpenedStore::snapshot`] and [`ArrayHandle::reload`].
    pub(crate) fn state_to_read(
        &self,
        state: &Arc<ArrayState>,
        snapshot: Option<Snapshot>,
    ) -> Result<(Arc<ArrayState>, Snapshot)> {
        let snapshot = snapshot.map_or_else(|| self.store.snapshot(), Ok)?;
        // The snapshot first, then the state: so the state can decode every shard that the snapshot
        // refers to.
        Ok((self.closed_by_now(state)?, snapshot))
    }

    /// Returns `state`. If the array is open in it and was closed since, returns the state in
    /// storage instead. The writer that closed the array may have written chunks. For readers that
    /// took their snapshot before.
    ///
    /// # Errors
    /// As [`ArrayHandle::reload`].
    fn closed_by_now(&self, state: &Arc<ArrayState>) -> Result<Arc<ArrayState>> {
        if !state.is_open || self.growing || self.store.held.is_some() {
            return Ok(state.clone());
        }
        // If the store's freshness forbids a look for changes, the reload would use the known
        // documents.
        self.store.documents.read_root(&self.store)?;
        let now = match self.reload() {
            // Only a draft's own document describes it.
            Err(error) if error.kind() == ErrorKind::NotFound => self.draft_by_now(state)?,
            now => now?,
        };
        if now.is_open || now.identity() != state.identity() {
            return Ok(state.clone());
        }
        // Commits may have made the array larger than its document says.
        Ok(Arc::new(self.with_shape(&now, &state.metadata.shape)?))
    }

    /// Returns as [`ArrayHandle::closed_by_now`], for a draft.
    fn draft_by_now(&self, state: &Arc<ArrayState>) -> Result<Arc<ArrayState>> {
        let document = match own_document(&self.store, &self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(state.clone()),
            document => document?,
        };
        let metadata = parse_array(&document, &self.store.options.limits)
            .map_err(|error| Error::metadata(self.name(), error))?;
        if metadata.identity != state.metadata.identity {
            return Ok(state.clone());
        }
        Ok(Arc::new(ArrayState::new(&self.store, &self.path, metadata, document, None)?))
    }

    /// Reads the state from storage, and keeps it in the handle.
    pub(crate) fn reload(&self) -> Result<Arc<ArrayState>> {
        let state = Arc::new(load(&self.store, &self.path)?);
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = state.clone();
        Ok(state)
    }

    /// Returns a handle on the array as it will be with `shape`: see
    /// [`Store::grown`](crate::Store::grown).
    pub(crate) fn grown(&self, shape: &[u64]) -> Result<Self> {
        let state = self.state()?;
        let old = &state.metadata.shape;
        let fits = shape.len() == old.len() && old.iter().zip(shape).all(|(old, new)| old <= new);
        if !fits {
            return Err(Error::invalid(format!(
                "{} of shape {old:?} does not grow to {shape:?}",
                self.name()
            )));
        }
        let grown = Arc::new(self.with_shape(&state, shape)?);
        let state = Arc::new(RwLock::new(grown));
        let Self { store, path, larger, draft, .. } = self.clone();
        Ok(Self { store, path, state, larger, draft, growing: true })
    }

    /// Takes the lock under which the array's shape changes.
    pub(crate) fn lock(&self) -> Result<Box<dyn Lock>> {
        if self.draft.as_ref().is_some_and(|draft| draft.is_live()) {
            return Err(Error::invalid(format!(
                "{} is a draft, whose shape does not change; commit it first",
                self.name()
            )));
        }
        self.store.lock(&self.path)
    }

    /// Returns the state that the array would have with another shape.
    ///
    /// # Errors
    /// As [`ArrayState::with_shape`].
    pub(crate) fn with_shape(&self, state: &ArrayState, shape: &[u64]) -> Result<ArrayState> {
        state.with_shape(&self.store, &self.path, shape)
    }
}

/// Returns the error for an array with unsettled commits that another program has removed or
/// replaced.
pub(crate) fn replaced(name: &str, what: &str) -> Error {
    Error::new(
        ErrorKind::Conflict,
        format!(
            "another program has {what} {name}, of which there are commits that are not settled: put \
             back what was there, or delete the array with Bedform"
        ),
    )
}
