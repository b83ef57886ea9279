//! A handle on an array of an opened store: what the array is as of a snapshot.
//!
//! Commits that are not settled may have made an array larger than its documents say. Whoever reads,
//! writes or settles it asks the handle for its state.

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
use crate::zarr::choosing::{self, Closing};
use crate::zarr::hierarchy::DraftLock;
use crate::zarr::publish::{attribute_values, check_key, own_document};
use crate::zarr::state::{ArrayState, load};

/// An array of an opened store. Cheap to clone; safe to share between threads.
#[derive(Debug, Clone)]
pub(crate) struct ArrayHandle {
    pub(crate) store: Arc<OpenedStore>,
    pub(crate) path: ObjectPath,
    state: Arc<RwLock<Arc<ArrayState>>>,
    /// The state with the shape that commits which are not settled have given the array.
    larger: Arc<RwLock<Option<Larger>>>,
    pub(crate) draft: Option<Arc<DraftLock>>,
    /// A handle on a growth that is under way: what is known stays as it is.
    pub(crate) growing: bool,
}

/// The larger state of an array, and which of its states it was made from.
#[derive(Debug)]
struct Larger {
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

    /// An array whose creation is not yet committed; with its lock, if this handle has made it.
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

    /// The values of the array's attributes.
    ///
    /// # Errors
    /// As [`ObjectText::parse`].
    pub(crate) fn values(&self, attributes: &ObjectText) -> Result<Map<String, Value>> {
        attribute_values(&self.store, &self.path, attributes)
    }

    /// The array's document with the values of its attributes.
    ///
    /// # Errors
    /// As [`ObjectText::parse`].
    pub(crate) fn with_values(&self, document: Value) -> Result<Value> {
        json::with_values(document, &self.store.options.limits)
            .map_err(|error| Error::metadata(self.name(), error.into()))
    }

    /// The array as a user knows it.
    pub(crate) fn name(&self) -> String {
        self.store.name_of(&self.path)
    }

    /// What is known of the array, looked up again if the store's freshness asks for it and another
    /// writer (or another handle) has changed it.
    /// Commits that are not settled may have made the array larger than its metadata say.
    pub(crate) fn state(&self) -> Result<Arc<ArrayState>> {
        Ok(self.state_as_of()?.0)
    }

    /// As [`Array::state`], with the snapshot that it took to find it, if it took one.
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

    /// As [`Array::state`], with a snapshot: none of its commits has made the array larger than that.
    pub(crate) fn state_in_snapshot(&self) -> Result<(Arc<ArrayState>, Snapshot)> {
        // A table that says the shape may have been settled and removed since its root was read.
        self.store.in_one_snapshot(|| self.state_in_one_snapshot())
    }

    fn state_in_one_snapshot(&self) -> Result<(Arc<ArrayState>, Snapshot)> {
        let snapshot = self.store.snapshot()?;
        // In this order: settling publishes an array's shape before it drops the commits that gave it,
        // so what the root no longer says the documents do.
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
        let known = Larger { of: state.number, state: enlarged.clone() };
        *self.larger.write().unwrap_or_else(PoisonError::into_inner) = Some(known);
        Ok(enlarged)
    }

    /// What [`Array::state`] gave last.
    pub(crate) fn last_state(&self) -> Arc<ArrayState> {
        let state = self.known();
        match &*self.larger.read().unwrap_or_else(PoisonError::into_inner) {
            Some(larger) if larger.of == state.number => larger.state.clone(),
            _ => state,
        }
    }

    /// As [`Array::state`], as the metadata have it.
    fn stored_state(&self) -> Result<Arc<ArrayState>> {
        let state = self.known();
        if self.growing {
            return Ok(state);
        }
        match &state.source {
            Some(source) if self.store.documents.is_current(&self.store, source)? => Ok(state),
            Some(_) => self.reload(),
            None => match self.reload() {
                // Not yet committed.
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(state),
                outcome => outcome,
            },
        }
    }

    /// What a read of the array with `state` fails with: `error`, unless that calls damaged what others have deleted
    /// or made smaller since this handle looked.
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

    /// Fails if the array with `state` is not there any more: deleted, or replaced with its store or group. In
    /// an object store nothing is asked: each look is a request, and nothing is replaced as a whole there.
    ///
    /// # Errors
    /// `Conflict`; those of storage.
    pub(crate) fn check_is_there(&self, state: &ArrayState) -> Result<()> {
        let storage = &self.store.storage;
        // Of a held store the source has asked.
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

    /// The array with `state`, as of now.
    ///
    /// # Errors
    /// As [`OpenedStore::snapshot`].
    pub(crate) fn pinned<'a>(&'a self, state: &'a ArrayState) -> Result<PinnedArray<'a>> {
        Ok(self.pinned_to(state, self.store.snapshot()?))
    }

    /// The array with `state`, as of `snapshot`.
    pub(crate) fn pinned_to<'a>(
        &'a self,
        state: &'a ArrayState,
        snapshot: Snapshot,
    ) -> PinnedArray<'a> {
        PinnedArray::new(&self.store, &self.path, state, snapshot)
    }

    /// Takes `state`, which was just committed; better, what storage has now.
    pub(crate) fn advance(&self, state: ArrayState) {
        if self.reload().is_err() {
            // The commit stands all the same. Storage is asked again at the next use.
            *self.state.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(state);
        }
    }

    /// What was known of the array when it was last looked up.
    pub(crate) fn known(&self) -> Arc<ArrayState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Gives the array, which is open as `state` has it, its codecs: by the blocks that `sampled` gives, or none to keep
    /// those of the document. What others have given it meanwhile counts. The handle knows the array with its codecs
    /// then.
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
        let closing = Closing { path: &self.path, state, chosen };
        let documents = choosing::close(&self.store, &[closing])?;
        if !self.growing && self.reload().is_ok() {
            return Ok(());
        }
        // A draft, or a growth that is under way: its shape stays as it is known here.
        for mut document in documents {
            document["shape"] = json!(self.known().metadata.shape);
            let metadata = parse_array(&document, &self.store.options.limits)
                .map_err(|error| Error::metadata(self.name(), error))?;
            let state = ArrayState::new(&self.store, &self.path, metadata, document, None)?;
            *self.state.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(state);
        }
        Ok(())
    }

    /// `state`, or what storage has by now if that is open: others may have closed the array and written to it. For
    /// readers, who took their snapshot before.
    ///
    /// # Errors
    /// As [`ArrayHandle::reload`].
    pub(crate) fn closed_by_now(&self, state: &Arc<ArrayState>) -> Result<Arc<ArrayState>> {
        if !state.is_open || self.growing || self.store.held.is_some() {
            return Ok(state.clone());
        }
        // A handle that looks for nothing would find what it knows.
        self.store.documents.read_root(&self.store)?;
        let now = match self.reload() {
            // A draft is as its own document has it.
            Err(error) if error.kind() == ErrorKind::NotFound => self.draft_by_now(state)?,
            now => now?,
        };
        if now.is_open || now.identity() != state.identity() {
            return Ok(state.clone());
        }
        // Commits may have made it larger than its document says.
        Ok(Arc::new(self.with_shape(&now, &state.metadata.shape)?))
    }

    /// As [`ArrayHandle::closed_by_now`], of a draft.
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

    /// What storage has on the array now.
    pub(crate) fn reload(&self) -> Result<Arc<ArrayState>> {
        let state = Arc::new(load(&self.store, &self.path)?);
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = state.clone();
        Ok(state)
    }

    /// A handle on the array as it will be with `shape`: see [`Store::grown`](crate::Store::grown).
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

    /// The lock under which the array's shape changes.
    pub(crate) fn lock(&self) -> Result<Box<dyn Lock>> {
        if self.draft.as_ref().is_some_and(|draft| draft.is_live()) {
            return Err(Error::invalid(format!(
                "{} is a draft, whose shape does not change; commit it first",
                self.name()
            )));
        }
        self.store.lock(&self.path)
    }

    /// The array as it would be with another shape.
    ///
    /// # Errors
    /// As [`ArrayState::with_shape`].
    pub(crate) fn with_shape(&self, state: &ArrayState, shape: &[u64]) -> Result<ArrayState> {
        state.with_shape(&self.store, &self.path, shape)
    }
}

/// The error of an array that is no longer what commits are of.
pub(crate) fn replaced(name: &str, what: &str) -> Error {
    Error::new(
        ErrorKind::Conflict,
        format!(
            "another program has {what} {name}, of which there are commits that are not settled: put \
             back what was there, or delete the array with Bedform"
        ),
    )
}
