//! Reorganization: other layouts for arrays of a store, in the store's own place.
//!
//! # Promises
//!
//! - A reader that opens the store finds the old store or the new one, whole, at any moment and
//!   after a crash. The two directories are exchanged in one step; where the system cannot exchange
//!   directories, nothing is copied.
//! - A reader that has the store open gets the values of its array, or `Conflict` once the old
//!   files are removed.
//! - The new store has everything in the old one: attributes, groups, names of dimensions, fill
//!   values, codecs, the store's identity, files of other programs, modes and owners of
//!   directories. Unchanged files are hard-linked, and copied only where the system cannot link.
//! - Every byte of the arrays that get another layout is compared before the store changes.
//! - A stopped run resumes when the same call is made again, as a conversion does.
//!
//! # How
//!
//! 1. [`Reorganization::new`] refuses stores that it cannot reorganize, and writes nothing.
//! 2. [`Reorganization::run`] locks the work directory beside the store,
//!    `.<store>.bedform-reorganized`, and tries there whether two directories can be exchanged.
//! 3. It links everything there except the chunks of changed arrays (`tree`). Changed arrays are
//!    created anew, with new keys: a shard that is taken for one of the other layout is an error by
//!    its stamp.
//! 4. It copies and compares regions as a conversion does, by workers if there are any.
//! 5. Under the locks of the store and its arrays: if the store is unchanged, the directories are
//!    exchanged. Then the old documents are removed. If a shard of the old directory has changed by
//!    then, all is undone.
//! 6. It removes the old directory. A process that is killed before that leaves it in the work
//!    directory, and the next call removes it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bedform_format::shown::shell_path;
use bedform_format::{DataType, ObjectPath};
use bedform_storage::{
    Condition, Durability, Lock, Storage, StorageErrorKind, StorageExt as _, TreePublication,
};
use rustix::fs::{Access, access};

use super::copy::ConversionJob;
use super::plan::{ArrayPlan, ConvertPlan, decide_given};
use super::source::ConvertSource;
use super::state::state_without_documents;
use super::tasks::{Distributed, TargetPlace, TaskExchange};
use super::work::WorkDirectory;
use super::{
    ArrayLayoutChoice, CodecWish, ConvertError, ConvertOptions, ConvertResult, ConvertTarget,
    Converted, tree,
};
use crate::array::Array;
use crate::error::{Error, ErrorKind, Result};
use crate::log::opened::OpenedStore;
use crate::opening::{is_file, url_of};
use crate::options::{OpenOptions, Prefetch, ProgressCallback};
use crate::publication::split_target;
use crate::store::Store;
use crate::zarr::documents::ZARR_JSON;
use crate::zarr::nodes::NodeKind;
use crate::zarr::publish::commit;
use crate::zarr::state::inner;
use crate::zarr::{ArrayLayout, NewArray};

/// Two directories that are exchanged as a test before anything is copied.
const TRIED: [&str; 2] = ["tried-a", "tried-b"];
/// The most arrays whose locks are held at a time: each lock takes two of the process's file
/// descriptors.
const LOCKED_MAX: usize = 128;

/// A planned change of the layouts of arrays of a store, in its place.
#[derive(Debug)]
pub struct Reorganization {
    /// The store as the user named it.
    shown: String,
    /// The directory of the store, with links resolved.
    path: PathBuf,
    parent: Arc<dyn Storage>,
    name: ObjectPath,
    store: Store,
    source: ConvertSource,
    target: ConvertTarget,
    options: ConvertOptions,
    plan: ConvertPlan,
}

/// The reason that the array has to keep its layout; `None` if it can get another one.
///
/// # Errors
/// Those of looking up the array.
pub fn keeps_layout(array: &Array) -> Result<Option<&'static str>> {
    let metadata = array.metadata()?;
    Ok(match metadata.data_type {
        _ if metadata.identity.is_none() || metadata.shard().is_none() => {
            Some("another library has made it")
        }
        DataType::String | DataType::FixedUnicode(_) => Some("it holds text"),
        DataType::Raw(_) => Some("its elements are bytes without a type"),
        _ if metadata.structure.is_some() => Some("its elements have fields"),
        _ if metadata.choice.as_ref().is_some_and(|choice| choice.is_open()) => {
            Some("nothing was written to it")
        }
        _ => None,
    })
}

/// Opens a store for reading, if it can be reorganized: a settled store that Bedform made, in Zarr
/// v3, on a local disk, which this user may replace. Writes nothing.
///
/// # Errors
/// `Unsupported` names an alternative; `Conflict` if it has unsettled commits, or is being written;
/// `PermissionDenied`; `NotFound`; those of opening it.
pub fn check_reorganizable(path: &Path, cache_bytes: u64) -> Result<Store> {
    let shown = path.display().to_string();
    let refuse = |what: &str| {
        let pasted = shell_path(&shown);
        let text = format!("{shown} {what}: 'bedform convert {pasted} NEW' makes a store of it");
        Err(Error::new(ErrorKind::Unsupported, text))
    };
    if url_of(path).is_some() {
        return refuse("is no directory of this machine, where alone stores are reorganized");
    }
    if is_file(path) {
        return refuse("is a file, and no store that could be reorganized");
    }
    let mut options = OpenOptions { cache_bytes, ..OpenOptions::default() };
    (options.prefetch, options.replicas, options.records) = (Prefetch::Off, false, false);
    let store = match Store::open_path(path, options) {
        Err(error) if error.kind() == ErrorKind::NotFound && path.is_dir() => {
            return refuse("is no Zarr store, and is not reorganized");
        }
        opened => opened?,
    };
    let Ok(opened) = store.zarr() else { return refuse("is no store of Bedform") };
    if opened.outer.is_some() || opened.is_array {
        let text =
            format!("{shown} is a part of a store: give the path of the store that it lies in");
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    if !path.is_dir() {
        return refuse("is no directory of this machine, where alone stores are reorganized");
    }
    if store.zarr_format()? != 3 {
        return refuse("is Zarr v2, which Bedform only reads");
    }
    let root = opened.documents.root(opened)?;
    if root.is_none_or(|root| root.group.store.is_none()) {
        return refuse("was not made by Bedform");
    }
    check_settled(opened, &shown)?;
    check_owner(path, &shown)?;
    Ok(store)
}

/// Fails if there are unsettled commits or active writers.
fn check_settled(opened: &OpenedStore, shown: &str) -> Result<()> {
    let conflict = |text: String| Err(Error::new(ErrorKind::Conflict, text));
    let pasted = shell_path(shown);
    let root = opened.documents.read_root(opened)?;
    let log = root.map(|root| root.group.log).unwrap_or_default();
    if log.pending {
        return conflict(format!(
            "{shown} has commits that are not settled: run 'bedform settle {pasted}' first"
        ));
    }
    let is_written = opened.log_summary()?.segments_open.is_none_or(|open| open > 0);
    if is_written || log.has_log() {
        return conflict(format!(
            "{shown} is being written, or a writer of it has died: end the writers, run 'bedform recover {pasted}' \
             and 'bedform settle {pasted}', then the same command"
        ));
    }
    Ok(())
}

/// Fails if this user may not replace the directory of the store.
fn check_owner(path: &Path, shown: &str) -> Result<()> {
    let denied = |text: String| Err(Error::new(ErrorKind::PermissionDenied, text));
    let pasted = shell_path(shown);
    let failed =
        |error: std::io::Error| Error::new(ErrorKind::Io, format!("{}: {error}", path.display()));
    let real = path.canonicalize().map_err(failed)?;
    let Some(above) = real.parent() else {
        return Err(Error::invalid(format!("{shown} is the root of the file system")));
    };
    let (own, outer) = (fs::metadata(&real).map_err(failed)?, fs::metadata(above).map_err(failed)?);
    if own.dev() != outer.dev() {
        let text = format!(
            "{shown} is the root of a file system, which cannot be replaced: 'bedform convert {pasted} NEW' makes \
             a new store"
        );
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    let user = rustix::process::geteuid();
    if !user.is_root() && own.uid() != user.as_raw() {
        return denied(format!(
            "{shown} belongs to user {}, who alone reorganizes it: 'bedform convert {pasted} NEW' makes a store of \
             your own",
            own.uid()
        ));
    }
    if access(above, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        return denied(format!(
            "{}: this user may not write there, where the new store grows: 'bedform convert {pasted} NEW' makes one \
             elsewhere",
            above.display()
        ));
    }
    Ok(())
}

/// The name of the work directory.
fn hidden_name(name: &ObjectPath) -> String {
    format!(".{}.bedform-reorganized", name.name())
}

/// Removes the work directory of a killed run beside the store at `path`, unless another process
/// holds it.
///
/// # Errors
/// Those of storage.
pub fn remove_reorganized(path: &Path) -> Result<()> {
    let Ok(real) = path.canonicalize() else { return Ok(()) };
    let (above, name) = split_target(&real)?;
    if !above.join(hidden_name(&name)).is_dir() {
        return Ok(());
    }
    let target = ConvertTarget::open(&real, OpenOptions::default())?;
    let Some((parent, name)) = target.named_place() else { return Ok(()) };
    match WorkDirectory::take_as(parent, name, &hidden_name(name)) {
        Ok(Some(work)) => work.remove(),
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    }
}

impl Reorganization {
    /// Plans these layouts for arrays of the store at `path`. Writes nothing.
    ///
    /// # Errors
    /// As [`check_reorganizable`]; `InvalidArgument` for an array that has to keep its layout or
    /// does not fit the memory; `NotFound` for a missing array.
    pub fn new(
        path: &Path,
        layouts: &BTreeMap<String, ArrayLayoutChoice>,
        options: ConvertOptions,
    ) -> Result<Self> {
        let shown = path.display().to_string();
        let store = check_reorganizable(path, options.source_cache_bytes())?;
        let failed = |error: std::io::Error| Error::new(ErrorKind::Io, format!("{shown}: {error}"));
        let real = path.canonicalize().map_err(failed)?;
        let source = ConvertSource::store(shown.clone(), &store)?;
        let target = ConvertTarget::open(&real, OpenOptions::default())?;
        let Some((parent, name)) = target.named_place() else {
            return Err(Error::invalid(format!("{shown} is no directory")));
        };
        let (parent, name) = (parent.clone(), name.clone());
        let mut arrays = Vec::with_capacity(layouts.len());
        for (array, layout) in layouts {
            if let Some(why) = keeps_layout(&store.array(&ObjectPath::parse(array)?)?)? {
                return Err(Error::invalid(format!("{array} of {shown} keeps its layout: {why}")));
            }
            let opened = source.array(array)?;
            arrays.push(decide_given(array.clone(), &opened, layout, &target, &options)?);
        }
        let plan = ConvertPlan {
            source: shown.clone(),
            target: shown.clone(),
            arrays,
            codecs: CodecWish::default(),
            flat_keys: false,
            warnings: Vec::new(),
        };
        Ok(Self { shown, path: real, parent, name, store, source, target, options, plan })
    }

    /// The arrays to copy, with their new layouts and regions.
    pub fn plan(&self) -> &ConvertPlan {
        &self.plan
    }

    /// Copies, compares, and puts the new store in the place of the old one. `exchange` hands
    /// regions to workers, as in [`run_on_workers`](super::run_on_workers). `progress` gets the
    /// decoded bytes done and in total, first for copying, then for comparing.
    ///
    /// # Errors
    /// [`ConvertError::Busy`] if another process reorganizes the store; `Unsupported` where the
    /// file system cannot exchange directories; `Conflict` if the store has changed since, or is
    /// being written; [`ConvertError::Differs`]; `Interrupted`; those of reading and writing. The
    /// store stays unchanged; copied regions are kept unless they are of no use.
    pub fn run(
        &self,
        progress: ProgressCallback<'_>,
        exchange: Option<TaskExchange<'_>>,
    ) -> ConvertResult<Converted> {
        let hidden = hidden_name(&self.name);
        let Some(mut work) = WorkDirectory::take_as(&self.parent, &self.name, &hidden)? else {
            return Err(ConvertError::Busy(format!(
                "another process reorganizes {}: wait for it or stop it",
                self.shown
            )));
        };
        if let Err(error) = self.check_exchange(&work) {
            let _ = work.remove();
            return Err(error.into());
        }
        let opening = OpenOptions { writable: true, cache_bytes: 0, ..OpenOptions::default() };
        // This handle stays on the old directory, even when that gets another name.
        let writable = Store::open_path(&self.path, opening.clone())?;
        drop(self.locks(&writable)?);
        let job = ConversionJob { source: &self.source, plan: &self.plan, progress, exchange };
        let state = self.source.state_but_links()?;
        let shards = state_without_documents(&**writable.storage())?;
        if work.match_or_begin(&self.plan, &self.source, &state)? {
            if let Err(error) = self.link(&work) {
                let _ = work.remove();
                return Err(error.into());
            }
            work.note_linked()?;
        }
        let profile = self.options.profile.clone().unwrap_or_else(|| self.target.profile().clone());
        let place = match exchange {
            Some(_) => {
                // The state as workers see it, after the files were linked.
                let place = self.target.for_workers(&self.source.state()?, &profile)?;
                Some(TargetPlace { tree: Some(work.tree()?.as_str().to_owned()), ..place })
            }
            None => None,
        };
        let opening = OpenOptions { profile: Some(profile), ..opening };
        let copied = self.copy(&job, &work, place.as_ref(), &opening);
        let (resumed_bytes, warnings) = copied.map_err(|error| self.explained(error))?;
        job.compare_store(place.as_ref(), work.store()?, &opening).map_err(
            |error| match error {
                ConvertError::Other(error) => ConvertError::Other(self.explained(error)),
                error => error,
            },
        )?;
        if place.is_some() || resumed_bytes > 0 {
            // Remains of killed writers are hidden, and cost only their space.
            let _ = work.sweep();
        }
        let mut warnings: Vec<String> = warnings;
        warnings.extend(self.finish_tree(&work)?);
        let tree = work.tree()?;
        // A thread of its own is not interrupted with the caller's, so it never stops between two
        // steps.
        std::thread::scope(|scope| {
            let swap = || self.swap(&tree, &writable, &state, shards);
            let thread = std::thread::Builder::new().spawn_scoped(scope, swap);
            let failed = |what: String| Error::new(ErrorKind::Io, what);
            let thread = thread.map_err(|error| failed(format!("no thread: {error}")))?;
            thread.join().map_err(|_| failed("the exchange has failed".to_owned()))?
        })?;
        if let Err(error) = work.remove() {
            warnings.push(format!(
                "the old files stay in {}: {error}: remove them",
                self.path.with_file_name(&hidden).display()
            ));
        }
        Ok(Converted { resumed_bytes, verified: true, warnings })
    }

    /// Fails where two directories cannot be exchanged in one step.
    fn check_exchange(&self, work: &WorkDirectory) -> Result<()> {
        let [first, second] = TRIED.map(|name| work.at(name));
        let (first, second) = (first?, second?);
        for path in [&first, &second] {
            drop(self.parent.within(path)?);
        }
        let how = TreePublication::Exchange;
        let tried = self.parent.publish_tree(&first, &second, how, Durability::Process);
        for path in [&first, &second] {
            self.parent.delete_tree(path, Durability::Process)?;
        }
        tried.map_err(|error| match error.kind {
            StorageErrorKind::Unsupported => Error::new(
                ErrorKind::Unsupported,
                format!(
                    "{}: this file system cannot exchange two directories in one step, and readers might find no \
                     store: 'bedform convert {} NEW' makes a new one",
                    self.shown,
                    shell_path(&self.shown)
                ),
            ),
            _ => error.into(),
        })
    }

    /// Takes the locks of the store and its arrays. They exclude appends, commits and changes of
    /// metadata.
    fn locks(&self, store: &Store) -> Result<Vec<Box<dyn Lock>>> {
        let opened = store.zarr()?;
        let mut locks = Vec::new();
        let nodes = store.nodes()?.into_iter();
        let arrays = nodes.filter(|(_, kind)| *kind == NodeKind::Array).map(|(path, _)| path);
        // In the order in which writers take them: arrays by path, then the store.
        for path in arrays.chain([ObjectPath::root()]) {
            let Some(lock) = opened.storage.try_lock(&path)? else {
                let text = format!(
                    "{} is being written: wait until the writers have ended, then run the same again",
                    opened.name_of(&path)
                );
                return Err(Error::new(ErrorKind::Conflict, text));
            };
            if locks.len() < LOCKED_MAX || path.is_root() {
                locks.push(lock);
            }
        }
        Ok(locks)
    }

    fn changed(&self) -> BTreeSet<&str> {
        self.plan.arrays.iter().map(|array| array.name.as_str()).collect()
    }

    /// Links everything except the chunks of changed arrays, and creates these arrays.
    fn link(&self, work: &WorkDirectory) -> Result<()> {
        let to = self.tree_path(work)?;
        let changed = self.changed();
        tree::link(&self.path, &to, &changed, &self.shown)?;
        let opening = OpenOptions { writable: true, cache_bytes: 0, ..OpenOptions::default() };
        let store = Store::open(work.store()?, opening)?;
        let mut new = Vec::with_capacity(self.plan.arrays.len());
        for array in &self.plan.arrays {
            let path = ObjectPath::parse(&array.name)?;
            new.push((path.clone(), new_array(&self.store.array(&path)?, array)?));
        }
        let paths: Vec<ObjectPath> = new.iter().map(|(path, _)| path.clone()).collect();
        {
            let opened = &**store.zarr()?;
            let _lock = opened.lock(&ObjectPath::root())?;
            commit(opened, &[], &paths)?;
        }
        store.create_arrays(&new)?;
        tree::link_others(&self.path, &to, &changed)
    }

    fn tree_path(&self, work: &WorkDirectory) -> Result<PathBuf> {
        Ok(self.path.with_file_name(work.tree()?.as_str()))
    }

    fn has_changed(&self) -> Error {
        let text = format!(
            "{} has changed while it was copied, and stays as it is: end what writes to it, and run the same again",
            self.shown
        );
        Error::new(ErrorKind::Conflict, text)
    }

    /// Turns the error of a copy that found its snapshot moved into that of a changed store.
    fn explained(&self, error: Error) -> Error {
        match error.kind() {
            ErrorKind::SnapshotMoved => self.has_changed(),
            _ => error,
        }
    }

    fn copy(
        &self,
        job: &ConversionJob<'_>,
        work: &WorkDirectory,
        place: Option<&TargetPlace>,
        opening: &OpenOptions,
    ) -> Result<(u64, Vec<String>)> {
        let store = Store::open(work.store()?, opening.clone())?;
        let mut journal = Some(work.journal()?);
        let target_of = |array: &ArrayPlan| store.array(&ObjectPath::parse(&array.name)?);
        let copied = job.copy_all(place, &target_of, &mut journal);
        // Synced after errors, too: finished regions are worth keeping.
        let kept = journal.as_mut().map_or(Ok(()), super::journal::Journal::sync);
        let Distributed { resumed_bytes, mut warnings } = copied?;
        kept?;
        warnings.extend(store.take_warnings());
        Ok((resumed_bytes, warnings))
    }

    /// Copies modes and owners of the old directories and files to new ones, and makes all of them
    /// durable.
    fn finish_tree(&self, work: &WorkDirectory) -> Result<Vec<String>> {
        tree::finish(&self.path, &self.tree_path(work)?, &self.changed())
    }

    /// Exchanges the new store, at `tree`, with the old one, which `old` has open, if the old one
    /// has not changed.
    fn swap(&self, tree: &ObjectPath, old: &Store, state: &str, shards: u128) -> Result<()> {
        let _locks = self.locks(old)?;
        check_settled(old.zarr()?, &self.shown)?;
        let documents = documents_of(old)?;
        if self.source.state_but_links()? != state {
            return Err(self.has_changed());
        }
        let exchange = || {
            let how = TreePublication::Exchange;
            self.parent.publish_tree(tree, &self.name, how, Durability::Disk)
        };
        exchange()?;
        // `old` stays on the old directory, now under another name. Its documents are removed
        // first: a reader that misses a shard looks for them.
        let storage = &**old.storage();
        let removed = documents.iter().try_for_each(|(path, _)| {
            Ok::<_, Error>(storage.delete(path, Durability::Process, Condition::None)?)
        });
        let checked = removed.and_then(|()| match state_without_documents(storage)? == shards {
            true => Ok(()),
            false => Err(self.has_changed()),
        });
        if checked.is_err() {
            for (path, bytes) in &documents {
                storage.put(path, bytes, Durability::Disk, Condition::None)?;
            }
            exchange()?;
        }
        checked
    }
}

/// Reads the documents of a store's root and of all its nodes.
fn documents_of(store: &Store) -> Result<Vec<(ObjectPath, Vec<u8>)>> {
    let nodes = store.nodes()?.into_keys();
    let mut documents = Vec::new();
    for node in std::iter::once(ObjectPath::root()).chain(nodes) {
        let path = node.join(ZARR_JSON)?;
        let Some(object) = store.storage().find(&path)? else { continue };
        let mut bytes = vec![0; usize::try_from(object.version().size).unwrap_or(usize::MAX)];
        object.read(0, &mut bytes)?;
        documents.push((path, bytes));
    }
    Ok(documents)
}

/// An array like `old` in the layout of `planned`, with the same codecs.
fn new_array(old: &Array, planned: &ArrayPlan) -> Result<NewArray> {
    let metadata = old.metadata()?;
    let (_, chain) = inner(&metadata)?;
    Ok(NewArray {
        layout: ArrayLayout {
            chunk_shape: planned.chunks.clone(),
            shard_shape: planned.shards.clone(),
            order: planned.order.parse()?,
            serializer: Some(chain.serializer),
            codecs: chain.bytes.clone(),
            transpose: chain.transpose.clone(),
            checksum: false,
            keys: metadata.keys,
            choice: metadata.choice.clone(),
        },
        attributes: old.attributes()?,
        shape: metadata.shape,
        data_type: metadata.data_type,
        fill_value: metadata.fill_value,
        dimension_names: metadata.dimension_names,
    })
}

#[cfg(test)]
mod tests {
    use bedform_storage::{Failing, Fault, LocalStorage, Mode, StorageOperation};
    use serde_json::{Map, json};

    use super::*;
    use crate::array::Elements;

    /// A store of one array, in a directory that is removed with it.
    struct Made {
        directory: PathBuf,
    }

    impl Made {
        fn new(name: &str) -> Self {
            let directory = std::env::temp_dir()
                .join(format!("bedform-reorganize-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&directory);
            let made = Self { directory };
            let store =
                Store::create_path(&made.path(), &Map::new(), OpenOptions::default()).unwrap();
            let described = json!({
                "shape": [64, 16], "dtype": "uint8", "chunks": [1, 16], "shards": [16, 16],
                "codecs": ["zstd"],
            });
            let new = NewArray::from_json(&described, &Default::default()).unwrap();
            let array = store.create_array(&ObjectPath::parse("t").unwrap(), &new).unwrap();
            let all = bedform_geometry::Selection::all(&[64, 16]);
            array.write(&all, Elements::Bytes(&made.values())).unwrap();
            made
        }

        fn path(&self) -> PathBuf {
            self.directory.join("run.zarr")
        }

        fn values(&self) -> Vec<u8> {
            (0..64 * 16).map(|at| (at % 251) as u8).collect()
        }

        fn reorganization(&self) -> Reorganization {
            let choice = ArrayLayoutChoice {
                chunks: vec![64, 4],
                shards: Some(vec![64, 16]),
                order: bedform_geometry::Order::RowMajor,
            };
            let layouts = BTreeMap::from([("t".to_owned(), choice)]);
            Reorganization::new(&self.path(), &layouts, ConvertOptions::default()).unwrap()
        }

        /// Chunk shape and elements of the array.
        fn read(&self) -> (Vec<u64>, Vec<u8>) {
            let store = Store::open_path(&self.path(), OpenOptions::default()).unwrap();
            let array = store.array(&ObjectPath::parse("t").unwrap()).unwrap();
            let mut values = vec![0; 64 * 16];
            array.read(&bedform_geometry::Selection::all(&[64, 16]), &mut values).unwrap();
            (array.metadata().unwrap().inner_chunk_shape().to_vec(), values)
        }

        fn is_alone(&self) -> bool {
            fs::read_dir(&self.directory).unwrap().count() == 1
        }
    }

    impl Drop for Made {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }

    #[test]
    fn where_directories_cannot_change_places_nothing_is_copied() {
        let made = Made::new("refused");
        let storage = Failing::new(LocalStorage::open(&made.directory, Mode::ReadWrite).unwrap());
        let reorganization =
            Reorganization { parent: Arc::new(storage.clone()), ..made.reorganization() };
        storage.fail_at(
            StorageOperation::PublishTree,
            0,
            Fault::Error(StorageErrorKind::Unsupported),
        );
        let error = Error::from(reorganization.run(&|_, _| (), None).unwrap_err());
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("bedform convert"), "{error}");
        assert!(made.is_alone());
        assert_eq!(made.read(), (vec![1, 16], made.values()));
        reorganization.run(&|_, _| (), None).unwrap();
        assert_eq!(made.read(), (vec![64, 4], made.values()));
        assert!(made.is_alone());
    }

    #[test]
    fn what_is_written_while_the_directories_change_places_undoes_the_exchange() {
        let made = Made::new("undone");
        let reorganization = made.reorganization();
        let hidden = hidden_name(&reorganization.name);
        let (parent, name) = (&reorganization.parent, &reorganization.name);
        let mut work = WorkDirectory::take_as(parent, name, &hidden).unwrap().unwrap();
        let state = reorganization.source.state_but_links().unwrap();
        work.match_or_begin(&reorganization.plan, &reorganization.source, &state).unwrap();
        reorganization.link(&work).unwrap();
        let options = OpenOptions { writable: true, ..OpenOptions::default() };
        let old = Store::open_path(&made.path(), options).unwrap();
        // The state of the shards is not as given, as if one had changed.
        let error = reorganization.swap(&work.tree().unwrap(), &old, &state, 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert_eq!(made.read(), (vec![1, 16], made.values()));
    }

    #[test]
    fn an_exchange_that_fails_leaves_the_store_and_what_was_copied() {
        let made = Made::new("failed");
        let storage = Failing::new(LocalStorage::open(&made.directory, Mode::ReadWrite).unwrap());
        let reorganization =
            Reorganization { parent: Arc::new(storage.clone()), ..made.reorganization() };
        storage.fail_at(StorageOperation::PublishTree, 1, Fault::Error(StorageErrorKind::Io));
        reorganization.run(&|_, _| (), None).unwrap_err();
        assert_eq!(made.read(), (vec![1, 16], made.values()));
        let done = made.reorganization().run(&|_, _| (), None).unwrap();
        assert_eq!(done.resumed_bytes, 64 * 16);
        assert_eq!(made.read(), (vec![64, 4], made.values()));
    }
}
