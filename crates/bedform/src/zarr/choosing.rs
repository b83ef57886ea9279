//! Arrays whose codecs the first write chooses.
//!
//! Such an array is created **open**: its document says so, and names `zstd`. The first write
//! samples its elements, chooses codecs ([`crate::codec::choice`]), and *closes* the array: it
//! rewrites the document with the codecs and a note of the codecs compared. Only then does it write
//! a shard.
//!
//! # One array never has two codecs
//!
//! **No shard is published by an open state.** All publications of shards use `ObjectWrite`, which
//! refuses an open state. A writer that finds the array open, in a state that it has read or
//! cached, calls [`close`] and continues with the documents that it returns. So it suffices that
//! all writers that close an array get the same codecs, always:
//!
//! 1. [`close`] reads the documents anew under the store's lock. If they are closed already, it
//!    takes their codecs and discards its own choice. A closed array is never opened again: writers
//!    of shapes and attributes keep the rest of the document as they find it under the same lock.
//! 2. The array's own document is rewritten first, on condition that it is the one that was read.
//!    On a server a lock is a lease, which a writer can lose without knowing. Of two writers that
//!    believe they hold it, one fails here, reads again, and takes the other's codecs.
//! 3. Then the store's document follows, which readers use. A crash between the two leaves a closed
//!    own document below an open one in the store's. The next writer to close takes the codecs of
//!    the own document, as in 2, and publishes them in the store's. No shard was written by then.
//! 4. A crash after that leaves a closed array without shards, which is an array like any other.
//!
//! **A reader** may hold an open state while others close the array and write to it. It takes its
//! snapshot of the log first and then reads the state again. So commits that the snapshot no longer
//! has are in shards that this state can decode. A shard with a stamp under an open state was
//! written by a later state: the reader begins again (`ZarrSource::read_index`). It never decodes
//! chunks by the codecs of an open document that were encoded by others.
//!
//! **Programs that are not Bedform** see an empty array of `zstd`. If one of them writes shards
//! (which have no stamp) before the array is closed, closing finds them and keeps `zstd`. A program
//! that opened the array before it was closed, and writes afterwards, writes chunks that nobody can
//! decode: checksums or decoders report that. Versions of Bedform that do not know open arrays
//! refuse them by the version of Bedform's own key.
//!
//! An array that is opened without its store, such as a copy of its directory, is never open: no
//! store's document says whether it was closed.

use bedform_format::metadata::{
    ArrayMetadata, CodecChoice, Encoding, Identity, ShardEncoding, close_choice, own_value,
    parse_array, seal,
};
use bedform_format::{BytesCodec, CodecChain, ObjectPath};
use bedform_geometry::Selection;
use bedform_storage::{Condition, StorageExt as _};
use serde_json::Value;

use super::documents::{StoredDocument, ZARR_JSON, read_opened};
use super::hierarchy::Hierarchy;
use super::new_array::NewArray;
use super::publish::{RootChange, check_key, commit_all};
use super::source::ZarrSource;
use super::state::{ArrayState, inner};
use crate::codec::choice::{ChosenCodecs, ReadRates, SampleBlock, choose};
use crate::error::{Error, ErrorKind, Result};
use crate::write::elements::WriteInput;
use crate::write::sample::sample;

/// Attempts to replace documents while others replace them.
const ATTEMPTS_MAX: usize = 16;

/// Chooses codecs for the array at `path` with `metadata` by the blocks that `sampled` returns.
///
/// # Errors
/// Those of `sampled`; `NoMemory`.
pub(crate) fn chosen_by(
    hierarchy: &Hierarchy,
    path: &ObjectPath,
    metadata: &ArrayMetadata,
    sampled: impl FnOnce() -> Result<Vec<SampleBlock>>,
) -> Result<ChosenCodecs> {
    let beyond_zarr = match metadata.choice {
        Some(CodecChoice::Open { beyond_zarr }) => beyond_zarr,
        _ => return Err(Error::invalid("the codecs of the array are not open")),
    };
    let (chunk_shape, _) = inner(metadata)?;
    let item_size = metadata.data_type.item_size().unwrap_or(1) as u64;
    let chunk_bytes = chunk_shape.iter().fold(item_size, |all, length| all.saturating_mul(*length));
    let chunk_bytes = usize::try_from(chunk_bytes).unwrap_or(usize::MAX);
    let rates = ReadRates::of(&hierarchy.tuning.profile);
    let chosen = choose(&sampled()?, metadata.data_type, chunk_bytes, beyond_zarr, rates)
        .map_err(Error::encoding)?;
    hierarchy.tallies.note_chosen(path);
    Ok(chosen)
}

/// A function that calls its argument with all elements of an array.
pub(crate) type ElementsCallback<'a> =
    dyn Fn(&mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> + 'a;

/// Returns `new` with codecs chosen by the elements that `with_elements` supplies, if its codecs
/// are open.
///
/// # Errors
/// As `Store::create_array`; `InvalidArgument` for another number of elements.
pub(crate) fn chosen_for(
    hierarchy: &Hierarchy,
    path: &ObjectPath,
    new: &NewArray,
    with_elements: &ElementsCallback<'_>,
) -> Result<NewArray> {
    if !new.is_open() || new.shape.contains(&0) {
        return Ok(new.clone());
    }
    let identity = Identity { store: [0; 16], array: [0; 16] };
    let document = new.document(identity, hierarchy, path)?;
    let metadata = parse_array(&document, &hierarchy.options.limits)
        .map_err(|error| Error::metadata(hierarchy.name_of(path), error))?;
    let chosen = chosen_by(hierarchy, path, &metadata, || {
        let state = ArrayState::new(hierarchy, path, metadata.clone(), document, None)?;
        let plan = state.layout.geometry(&Selection::all(&new.shape))?;
        let mut blocks = Vec::new();
        with_elements(&mut |elements| {
            if plan.result_bytes() != elements.len() as u64 {
                let text = format!("{path}: the elements are not those of the array");
                return Err(Error::invalid(text));
            }
            blocks = sample(&state.layout, &plan, &WriteInput::Bytes(elements))?;
            Ok(())
        })?;
        Ok(blocks)
    })?;
    let mut new = new.clone();
    new.layout.serializer = chosen.serializer;
    new.layout.codecs = chosen.codecs;
    new.layout.choice = Some(CodecChoice::Made(chosen.comparison));
    Ok(new)
}

/// An open array that is to be closed.
pub(crate) struct ArrayToClose<'a> {
    pub(crate) path: &'a ObjectPath,
    /// The array's state before it is closed.
    pub(crate) state: &'a ArrayState,
    /// The chosen codecs; `None` keeps those of the document, because existing objects were written
    /// by them.
    pub(crate) chosen: Option<ChosenCodecs>,
}

/// Gives open arrays their codecs, or finds those that others gave them. Returns the arrays'
/// documents, in the order of `arrays`. Durable on return. The caller holds no lock of the store.
///
/// # Errors
/// `Conflict` if an array was replaced; those of storage.
pub(crate) fn close(hierarchy: &Hierarchy, arrays: &[ArrayToClose<'_>]) -> Result<Vec<Value>> {
    hierarchy.check_writable()?;
    let mut attempts = 0;
    loop {
        match close_once(hierarchy, arrays) {
            Err(error) if error.kind() == ErrorKind::Conflict && attempts < ATTEMPTS_MAX => {
                attempts += 1;
            }
            outcome => return outcome,
        }
    }
}

fn close_once(hierarchy: &Hierarchy, arrays: &[ArrayToClose<'_>]) -> Result<Vec<Value>> {
    let _lock = hierarchy.lock(&ObjectPath::root())?;
    let mut documents = Vec::with_capacity(arrays.len());
    let mut added = Vec::new();
    for array in arrays {
        let closed = close_one(hierarchy, array)?;
        if closed.is_to_commit {
            added.push((array.path.clone(), Some(closed.document.clone())));
        }
        documents.push(closed.document);
    }
    if !added.is_empty() {
        commit_all(hierarchy, added, &[], RootChange::default())?;
    }
    Ok(documents)
}

/// An array whose own document is closed.
struct ClosedDocument {
    document: Value,
    /// True if the store's document does not say so yet.
    is_to_commit: bool,
}

/// Closes the own document of an array. The caller holds the store's lock.
fn close_one(hierarchy: &Hierarchy, array: &ArrayToClose<'_>) -> Result<ClosedDocument> {
    let ArrayToClose { path, state, chosen } = array;
    let gone = || {
        let text = format!("{} was deleted by another writer", hierarchy.name_of(path));
        Error::new(ErrorKind::NotFound, text)
    };
    let name = path.join(ZARR_JSON)?;
    let object = hierarchy.storage.find(&name)?.ok_or_else(gone)?;
    let own = read_opened(hierarchy, &name, &*object)?;
    let committed = match hierarchy.documents.array(hierarchy, path) {
        Ok(found) => Some(found.document),
        // A draft, which the store's document does not name.
        Err(error) if error.kind() == ErrorKind::NotFound && own.sealed => None,
        Err(error) => return Err(error),
    };
    for document in committed.iter().chain([&own.document]) {
        if let Some(identity) = state.identity() {
            check_key(hierarchy, path, document, &identity.array)?;
        }
    }
    let is_draft = committed.is_none();
    let mut document = committed.unwrap_or_else(|| own.document.clone());
    if choice_of(hierarchy, path, &document)?.is_none() {
        return Ok(ClosedDocument { document, is_to_commit: false });
    }
    close_document(hierarchy, array, &own, chosen.as_ref(), &mut document)?;
    let condition = Condition::Unchanged(&*object);
    let durability = hierarchy.options.durability;
    let put = hierarchy.storage.put(&name, &seal(document.clone()), durability, condition);
    hierarchy.documents.note_published(path);
    put?;
    Ok(ClosedDocument { document, is_to_commit: !is_draft })
}

/// Gives an open document its codecs.
fn close_document(
    hierarchy: &Hierarchy,
    array: &ArrayToClose<'_>,
    own: &StoredDocument,
    chosen: Option<&ChosenCodecs>,
    document: &mut Value,
) -> Result<()> {
    let ArrayToClose { path, state, .. } = array;
    if own.sealed && choice_of(hierarchy, path, &own.document)?.is_none() {
        // A writer crashed between the two documents.
        take_codecs(document, &own.document);
        return Ok(());
    }
    let metadata = parse_array(document, &hierarchy.options.limits)
        .map_err(|error| Error::metadata(hierarchy.name_of(path), error))?;
    let chosen = match chosen {
        Some(chosen) if !has_objects(hierarchy, path, state)? => chosen.clone(),
        // Existing objects were written by the codecs that the document names.
        _ => {
            let choice = CodecChoice::Made(bedform_format::metadata::CodecComparison::default());
            close_choice(document, &metadata.encoding, metadata.data_type, &choice);
            return Ok(());
        }
    };
    let encoding = with_codecs(&metadata.encoding, &chosen);
    let choice = CodecChoice::Made(chosen.comparison);
    close_choice(document, &encoding, metadata.data_type, &choice);
    Ok(())
}

/// Replaces the codecs of `document`, and its note about them, by those of another document of the
/// same array.
fn take_codecs(document: &mut Value, other: &Value) {
    for key in ["codecs", "bedform"] {
        document[key] = other[key].clone();
    }
}

/// Returns an array's own document that another program wrote last, with the codecs of the store's
/// document `in_store`. The program may have read the document while it was open, and written it
/// back so.
pub(super) fn as_closed(own: Value, in_store: Option<&Value>) -> Value {
    let open = |document: &Value| {
        let choice = own_value(document).and_then(|own| own.get("choice"));
        choice.and_then(|choice| choice.get("open")).and_then(Value::as_bool) == Some(true)
    };
    let key = |document: &Value| own_value(document).and_then(|own| own.get("array")).cloned();
    let mut document = own;
    if let Some(closed) = in_store.filter(|closed| open(&document) && !open(closed))
        && key(closed) == key(&document)
    {
        take_codecs(&mut document, closed);
    }
    document
}

/// True if another program has written objects of the array. Where listing is denied, none is
/// assumed.
fn has_objects(hierarchy: &Hierarchy, path: &ObjectPath, state: &ArrayState) -> Result<bool> {
    match (ZarrSource { hierarchy, path, state }).existing() {
        Ok(existing) => Ok(!existing.is_empty()),
        Err(error) if hierarchy.storage.is_remote() && error.is_of_list() => Ok(false),
        Err(error) => Err(error),
    }
}

/// The array's choice of codecs, if it is open.
fn choice_of(
    hierarchy: &Hierarchy,
    path: &ObjectPath,
    document: &Value,
) -> Result<Option<CodecChoice>> {
    let metadata = parse_array(document, &hierarchy.options.limits)
        .map_err(|error| Error::metadata(hierarchy.name_of(path), error))?;
    Ok(metadata.choice.filter(CodecChoice::is_open))
}

/// The encoding with other codecs; the order of axes and the checksum stay.
fn with_codecs(encoding: &Encoding, chosen: &ChosenCodecs) -> Encoding {
    match encoding {
        Encoding::Shard(shard) => Encoding::Shard(ShardEncoding {
            inner: Box::new(with_codecs(&shard.inner, chosen)),
            ..shard.clone()
        }),
        Encoding::Chunk(chain) => {
            let mut bytes = chosen.codecs.clone();
            if chain.is_checked() {
                bytes.push(BytesCodec::Crc32c);
            }
            let serializer = chosen.serializer.unwrap_or(chain.serializer);
            Encoding::Chunk(CodecChain { transpose: chain.transpose.clone(), serializer, bytes })
        }
    }
}

#[cfg(test)]
mod tests;
